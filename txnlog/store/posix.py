"""Directories and files by descriptor, so that nothing between two system calls can lead a path out of its root.

A folder is walked part by part with ``O_NOFOLLOW``: a symbolic link below the root is never followed, wherever it leads
(the root itself may be one; it is resolved once, when the store is opened).
"""

from __future__ import annotations

import errno
import os
import stat
from typing import Final

_OPEN_FOLDER: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_OPEN_FILE: Final = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
"""O_NONBLOCK: opening a named pipe that somebody put there must fail, not hang."""

_O_TMPFILE: Final[int | None] = getattr(os, "O_TMPFILE", None)
_PERMISSIONS: Final = 0o666
_CHUNK_BYTES: Final = 16 << 20

NO_TMPFILE: Final = frozenset({errno.EOPNOTSUPP, errno.EISDIR, errno.EINVAL, errno.ENOENT})
"""What kernels and file systems without O_TMPFILE answer (``open(2)``: EISDIR and ENOENT come from old kernels)."""


class SymbolicLinkError(OSError):
    """A part of a path below the root is a symbolic link."""


class SpecialFileError(OSError):
    """The key names a folder, a device, a pipe or a socket."""


def open_folder(root: str, parts: tuple[str, ...]) -> int:
    """Descriptor of the folder ``root/parts…``. Raises FileNotFoundError, NotADirectoryError, SymbolicLinkError."""
    folder = os.open(root, _OPEN_FOLDER & ~os.O_NOFOLLOW)
    for part in parts:
        try:
            below = open_subfolder(folder, part)
        finally:
            os.close(folder)
        folder = below
    return folder


def open_subfolder(folder: int, name: str) -> int:
    """Descriptor of one folder in an open one."""
    try:
        return os.open(name, _OPEN_FOLDER, dir_fd=folder)
    except NotADirectoryError:
        # The kernel says "not a directory" of a symbolic link too; who set up the link should read what is wrong.
        _refuse_link(folder, name)
        raise


def open_file(folder: int, name: str) -> int:
    """Descriptor of a regular file in an open folder, for reading."""
    try:
        file = os.open(name, _OPEN_FILE, dir_fd=folder)
    except OSError as error:
        if error.errno == errno.ELOOP:
            _refuse_link(folder, name)
        raise
    if not stat.S_ISREG(os.fstat(file).st_mode):
        os.close(file)
        raise SpecialFileError(errno.EISDIR, "Not a regular file", name)
    return file


def status_of_file(folder: int, name: str) -> os.stat_result:
    """Size and times of a regular file in an open folder, without opening it."""
    status = os.stat(name, dir_fd=folder, follow_symlinks=False)
    if stat.S_ISLNK(status.st_mode):
        raise SymbolicLinkError(errno.ELOOP, "Symbolic link", name)
    if not stat.S_ISREG(status.st_mode):
        raise SpecialFileError(errno.EISDIR, "Not a regular file", name)
    return status


def _refuse_link(folder: int, name: str) -> None:
    if stat.S_ISLNK(os.stat(name, dir_fd=folder, follow_symlinks=False).st_mode):
        raise SymbolicLinkError(errno.ELOOP, "Symbolic link", name) from None


def open_nameless(folder: int) -> int | None:
    """A new file in ``folder`` without a name, which vanishes unless linked; None where the system has no such."""
    if _O_TMPFILE is None:
        return None
    try:
        return os.open(".", _O_TMPFILE | os.O_WRONLY | os.O_CLOEXEC, _PERMISSIONS, dir_fd=folder)
    except OSError as error:
        if error.errno in NO_TMPFILE:
            return None
        raise


def link_nameless(file: int, folder: int, name: str) -> None:
    """Give a nameless file its name. Raises FileExistsError where the name exists; atomic (``linkat(2)``)."""
    # Linking by descriptor alone (AT_EMPTY_PATH) needs a capability; the way through /proc is open to everybody. With a
    # folder's descriptor Python calls linkat with AT_SYMLINK_FOLLOW, which is what makes /proc's link be followed.
    os.link(f"/proc/self/fd/{file}", name, dst_dir_fd=folder, follow_symlinks=True)


def has_proc(file: int) -> bool:
    """Whether the way of :func:`link_nameless` exists; a container may come without ``/proc``."""
    return os.path.lexists(f"/proc/self/fd/{file}")


def open_temporary(folder: int, name: str) -> int:
    """A new file under a temporary name. The name must never be used twice: see ``LocalStore``."""
    return os.open(
        name, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, _PERMISSIONS, dir_fd=folder
    )


def write_all(file: int, data: bytes) -> None:
    """Write every byte, however many calls it takes."""
    rest = memoryview(data)
    while rest:
        rest = rest[os.write(file, rest[:_CHUNK_BYTES]) :]


def read_range(file: int, start: int, end: int) -> bytes:
    """Bytes ``[start, end)`` of an open file; shorter where it ends."""
    pieces = []
    while start < end:
        piece = os.pread(file, min(end - start, _CHUNK_BYTES), start)
        if not piece:
            break
        pieces.append(piece)
        start += len(piece)
    return b"".join(pieces)


class closing:  # noqa: N801 - as contextlib's, which is for what has a close()
    """Close a descriptor at the end of the block."""

    __slots__ = ("_descriptor",)

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor

    def __enter__(self) -> int:
        return self._descriptor

    def __exit__(self, *_error: object) -> None:
        os.close(self._descriptor)


__all__ = [
    "NO_TMPFILE",
    "SpecialFileError",
    "SymbolicLinkError",
    "closing",
    "has_proc",
    "link_nameless",
    "open_file",
    "open_folder",
    "open_nameless",
    "open_subfolder",
    "open_temporary",
    "read_range",
    "status_of_file",
    "write_all",
]
