"""Directories and files by descriptor, so that nothing between two system calls can lead a path out of its root.

A folder is walked part by part with ``O_NOFOLLOW``: a symbolic link below the root is never followed, wherever it leads
(the root itself may be one; it is resolved once, when the store is opened).
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Callable
from functools import partial
from itertools import starmap
from operator import attrgetter
from typing import Final, NamedTuple

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


class Descriptor:
    """An open file or folder, closed at the end of a ``with`` block, whose target is its number, or with its owner.

    An interrupt (Ctrl-C) comes between two steps of Python's, mostly right behind the system call in which the time
    went. So the call that opens hands the number to what closes it within one such step, and that reads and closes it
    within another one: no local variable is ever the only one that knows it, and it is never closed twice.
    """

    __slots__ = ("_numbers", "close")

    def __init__(self, opening: Callable[[], int]) -> None:
        self._numbers: list[int] = []
        self.close = partial(next, map(os.close, self._numbers), None)
        """Close it, unless it is closed: the iterator comes to its end once."""
        self._numbers.extend(starmap(opening, ((),)))

    def again(self) -> Descriptor:
        """Another descriptor of what is open."""
        return Descriptor(partial(os.dup, self._numbers[0]))

    def status(self) -> os.stat_result:
        """Kind, size and times of what is open."""
        return os.fstat(self._numbers[0])

    def __enter__(self) -> int:
        return self._numbers[0]

    def __exit__(self, *_error: object) -> None:
        self.close()

    # No function of Python's, in which an interrupt would be shown and swallowed, as in every finalizer.
    __del__ = property(attrgetter("close"))


def open_folder(root: str, parts: tuple[str, ...]) -> Descriptor:
    """The folder ``root/parts…``. Raises FileNotFoundError, NotADirectoryError, SymbolicLinkError."""
    folder = Descriptor(partial(os.open, root, _OPEN_FOLDER & ~os.O_NOFOLLOW))
    for part in parts:
        with folder as above:
            folder = open_subfolder(above, part)
    return folder


def open_subfolder(folder: int, name: str) -> Descriptor:
    """One folder in an open one."""
    try:
        return Descriptor(partial(os.open, name, _OPEN_FOLDER, dir_fd=folder))
    except NotADirectoryError:
        # The kernel says "not a directory" of a symbolic link too; who set up the link should read what is wrong.
        _refuse_link(folder, name)
        raise


def open_file(folder: int, name: str) -> Descriptor:
    """A regular file in an open folder, for reading."""
    try:
        file = Descriptor(partial(os.open, name, _OPEN_FILE, dir_fd=folder))
    except OSError as error:
        if error.errno == errno.ELOOP:
            _refuse_link(folder, name)
        raise
    if not stat.S_ISREG(file.status().st_mode):
        file.close()
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


def open_nameless(folder: int) -> Descriptor | None:
    """A new file in ``folder`` without a name, which vanishes unless linked; None where the system has no such."""
    if _O_TMPFILE is None:
        return None
    try:
        return Descriptor(partial(os.open, ".", _O_TMPFILE | os.O_WRONLY | os.O_CLOEXEC, _PERMISSIONS, dir_fd=folder))
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


def open_temporary(folder: int, name: str) -> Descriptor:
    """A new file under a temporary name. The name must never be used twice: see ``LocalStore``."""
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    return Descriptor(partial(os.open, name, flags, _PERMISSIONS, dir_fd=folder))


def write_all(file: int, data: bytes) -> None:
    """Write every byte, however many calls it takes."""
    rest = memoryview(data)
    while rest:
        rest = rest[os.write(file, rest[:_CHUNK_BYTES]) :]


def read_all(file: int) -> bytes:
    """Every byte of an open file, read from its beginning."""
    size = os.fstat(file).st_size
    data = read_range(file, 0, size)
    while piece := os.pread(file, _CHUNK_BYTES, len(data)):  # mostly none: no object grows
        data += piece
    return data


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


class Found(NamedTuple):
    """A file or folder: its name, whether it is a folder, and of a file its size and times, where they were asked."""

    name: str
    is_folder: bool
    status: os.stat_result | None = None


def entries_of(folder: int, is_wanted: Callable[[str], bool], most_statuses: int) -> list[Found]:
    """The wanted files and folders in an open folder; no links. Where they are so few, files come with their status."""
    with os.scandir(folder) as scan:
        wanted = [entry for entry in scan if is_wanted(entry.name)]
        found: list[Found] = []
        for entry in wanted:
            if entry.is_dir(follow_symlinks=False):
                found.append(Found(entry.name, True))
            elif entry.is_file(follow_symlinks=False):
                try:
                    status = entry.stat(follow_symlinks=False) if len(wanted) <= most_statuses else None
                except FileNotFoundError:
                    continue  # deleted since the folder was read
                found.append(Found(entry.name, False, status))
        return found


def remove(folder: int, name: str) -> None:
    """Remove a file from an open folder."""
    os.unlink(name, dir_fd=folder)


def has_raised(error: OSError) -> bool:
    """Whether a line of this module raised it, by a system call or itself, and no handler of a signal."""
    place = error.__traceback__
    while place is not None and place.tb_next is not None:
        place = place.tb_next
    return place is not None and place.tb_frame.f_globals is globals()


__all__ = [
    "NO_TMPFILE",
    "Descriptor",
    "Found",
    "SpecialFileError",
    "SymbolicLinkError",
    "entries_of",
    "has_proc",
    "has_raised",
    "link_nameless",
    "open_file",
    "open_folder",
    "open_nameless",
    "open_subfolder",
    "open_temporary",
    "read_all",
    "read_range",
    "remove",
    "status_of_file",
    "write_all",
]
