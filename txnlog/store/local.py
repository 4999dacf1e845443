"""A store in a folder of a local (POSIX) file system, durable against power cuts.

An object comes into being by ``link(2)``, which is atomic and refuses a name that exists: a nameless file
(``O_TMPFILE``) is written and fsynced, linked under its name, then the folder is fsynced (``docs/stores.md``, "Local
file systems"). Readers see a whole object or none. Where the system has no nameless files, a file under a name that is
never used again takes the part.
"""

from __future__ import annotations

import contextlib
import errno
import os
import secrets
from collections.abc import Callable, Iterator
from typing import Final, NoReturn

from txnlog.common.lru import Recent
from txnlog.engine.main_thread import outside_main_thread
from txnlog.errors import Durable, StoreError
from txnlog.sentences import Either, Words
from txnlog.store import posix
from txnlog.store.base import Created, ObjectInfo, ObjectNotFound
from txnlog.store.identity import StoreIdentity, make_identity
from txnlog.store.key_guard import TEMPORARY_PREFIX, check_key, check_prefix, is_key, split_prefix
from txnlog.store.rights import denied

_ADVICE: Final = {
    errno.ENOSPC: "free space on the file system (or inodes, if 'df -i' shows none left), then try again",
    errno.EDQUOT: "free space below your quota, then try again",
    errno.EFBIG: "raise the limit of the size of files (ulimit -f), or use a file system that takes larger ones",
    errno.EISDIR: "move away what has the name of an object and is no file",
    errno.EPERM: "give this user write access to the root, on a file system that has hard links",
    errno.EROFS: Words(
        "mount the file system writable",
        Either(", or open with mode='r'", "; the commands that only look need no right to write"),
    ),
    errno.EMFILE: "raise the limit of open files",
    errno.ENFILE: "raise the limit of open files",
}

_NOT_LINKED: Final = frozenset(
    {
        errno.EACCES,
        errno.EDQUOT,
        errno.EISDIR,
        errno.ELOOP,
        errno.EMLINK,
        errno.ENAMETOOLONG,
        errno.ENOENT,
        errno.ENOSPC,
        errno.ENOSYS,
        errno.ENOTDIR,
        errno.ENOTEMPTY,
        errno.EOPNOTSUPP,
        errno.EPERM,
        errno.EROFS,
        errno.EXDEV,
    }
)
"""What link and rename answer when they did not give the name. Any other (EIO, ESTALE, ETIMEDOUT) leaves that open."""

_CANNOT_SYNC: Final = frozenset({errno.EACCES, errno.EPERM, errno.EROFS, errno.EINVAL, errno.EOPNOTSUPP, errno.ENOSYS})
"""Answers of opening or fsyncing a folder above the root that need not stop anybody."""

_KNOWN_FOLDERS: Final = 128
"""Folders known to be on disk, each with a descriptor of a process that may have 1,024: those of a hundred topics.

One that is forgotten costs an fsync when it is used again.
"""

_READ_FOLDERS: Final = 4
"""Folders that are read from again and again, such as that of the newest entries; kept open likewise."""

_STATUSES_AT_ONCE: Final = 16
"""Files of a folder that are looked at while it is open for a listing: a segment is alone in its folder. Of more, one
after the other: who lists may want the first one only."""

_Folders = Recent[tuple[str, ...], posix.Descriptor]
_Entries = list[posix.Found]  # inside the class, `list` is the method


class LocalStore:
    """Objects as files below ``root``.

    Args:
        root: the folder; made at the first write. A symbolic link is resolved now, once.
        use_tmpfile: False takes the way for systems without ``O_TMPFILE`` or ``/proc``.

    After a failed fsync nobody knows what of this process's writes is on disk, and asking again proves nothing (the
    kernel forgets the failure): from then on every create, put and sync of this instance raises StoreError(MAYBE).
    Open again.

    The folders that it writes to, or reads from, again and again stay open until ``close``, so their file system cannot
    be unmounted.

    Attributes:
        service: this machine's disks are one.
    """

    service = "local"

    def __init__(self, root: str | os.PathLike[str], *, use_tmpfile: bool = True) -> None:
        self._root = os.path.realpath(os.fspath(root))
        self._use_tmpfile = use_tmpfile
        self._durable_folders: _Folders = Recent(_KNOWN_FOLDERS)
        self._read_folders: _Folders = Recent(_READ_FOLDERS)
        self._last_read: tuple[str, ...] = ()
        self._failed_sync: str | None = None
        self._never_made: set[str] = set()

    def close(self) -> None:
        """Close the folders that it keeps open, and keep none from here on. Every call goes on to be answered.

        One that writes takes some more fsyncs then.
        """
        # Not one by one: another thread that is comparing one closes it by letting go of it.
        self._durable_folders, self._read_folders = Recent(0), Recent(0)

    def never_make(self, folder: str) -> None:
        """From here on do not make this folder: whoever removes or moves it means it.

        Else a writer that is at work meanwhile would make it again, and go on in a log that nobody can open.
        """
        self._never_made.add(folder)

    def may_make(self, folder: str) -> None:
        """This folder is begun anew: it may be made."""
        self._never_made.discard(folder)

    @property
    def identity(self) -> StoreIdentity:
        """Kind ``local``, hashed with the resolved root: a copy of the folder on another disk is probed anew."""
        return make_identity("local", "", self._root)

    @outside_main_thread
    def create(self, key: str, data: bytes) -> Created:
        """Create ``key`` atomically; on disk with its folders when CREATED. An fsync of the file, one of the folder."""
        with self._staged(key, data) as (folder, name, link):
            try:
                link(name)
            except FileExistsError:
                self._refuse_if_no_file(key, folder, name)
                return Created.UNKNOWN
            except OSError as error:
                if error.errno in _NOT_LINKED:
                    self._fail("create", key, error, Durable.NOTHING)
                return Created.UNKNOWN
            # The name exists, so readers may act upon it: a failure from here on is no longer "nothing", nor is it
            # UNKNOWN, since reading the slot back would show it without proving that a power cut leaves it there.
            self._sync_folder("create", key, folder)
            return Created.CREATED

    @outside_main_thread
    def put(self, key: str, data: bytes) -> None:
        """Create ``key`` by ``link(2)`` or replace it by ``rename(2)``; on disk with its folders on return."""
        with self._staged(key, data) as (folder, name, link):
            try:
                self._name(link, folder, name)
            except OSError as error:
                self._fail("put", key, error, Durable.NOTHING if error.errno in _NOT_LINKED else Durable.MAYBE)
            self._sync_folder("put", key, folder)

    @outside_main_thread
    def put_unsynced(self, key: str, data: bytes) -> None:
        """Create or replace ``key`` by ``rename(2)``, without an fsync of the object."""
        *parents, name = check_key(key).split("/")
        try:
            with self._open_durable(tuple(parents), make=True) as folder:
                temporary = _temporary_name()
                try:
                    with posix.open_temporary(folder, temporary) as file:
                        posix.write_all(file, data)
                    os.replace(temporary, name, src_dir_fd=folder, dst_dir_fd=folder)
                except OSError:
                    _remove(folder, temporary)
                    raise
        except OSError as error:
            self._fail("put", key, error, Durable.MAYBE)

    def _refuse_if_no_file(self, key: str, folder: int, name: str) -> None:
        """Raise StoreError where a folder or a link has the name: no call of anybody ever makes an object of it."""
        try:
            posix.status_of_file(folder, name)
        except (posix.SymbolicLinkError, posix.SpecialFileError) as error:
            self._fail("create", key, error, Durable.NOTHING)
        except OSError:
            return  # whoever reads finds out

    def _name(self, link: Callable[[str], None], folder: int, name: str) -> None:
        """Give a staged file its name: at once where it is free, as for every segment; else in place of another."""
        with contextlib.suppress(FileExistsError):
            link(name)
            return
        temporary = _temporary_name()
        try:
            link(temporary)
            os.replace(temporary, name, src_dir_fd=folder, dst_dir_fd=folder)
        except OSError:
            _remove(folder, temporary)
            raise

    def get(self, key: str) -> bytes:
        """The whole object. Raises ObjectNotFound."""
        with self._translated("get", key), self._open(key) as file:
            return posix.read_all(file)

    def get_range(self, key: str, start: int, end: int) -> bytes:
        """Bytes ``[start, end)``; shorter where the object ends. Raises ObjectNotFound."""
        assert 0 <= start <= end, (start, end)
        with self._translated("get", key), self._open(key) as file:
            return posix.read_range(file, start, end)

    def info(self, key: str) -> ObjectInfo:
        """Size and modification time. Raises ObjectNotFound."""
        with self._translated("info", key):
            parent, name = self._folder_of(key)
            with parent as folder:
                return _info(key, posix.status_of_file(folder, name))

    def list(self, prefix: str) -> Iterator[ObjectInfo]:
        """Files whose key starts with ``prefix``, in key order. Symbolic links and strangers' names are skipped."""
        folder, rest = split_prefix(check_prefix(prefix))
        return self._walk(tuple(folder.split("/")) if folder else (), rest)

    @outside_main_thread
    def delete(self, key: str) -> None:
        """Remove ``key``; an absent key is fine. No fsync: what a power cut brings back is garbage, not damage."""
        with contextlib.suppress(ObjectNotFound), self._translated("delete", key):
            parent, name = self._folder_of(key)
            with parent as folder:
                posix.remove(folder, name)

    @outside_main_thread
    def remove_unfinished(self, prefix: str, before_ms: int) -> None:
        """Remove the temporary files below a folder that were written to before a time: their processes died.

        Where one lives all the same its call fails, and nothing of it was stored. No error: what cannot be removed
        stays, and does no harm.

        Args:
            prefix: the folder with its ``/``; empty: everything below the root.
            before_ms: epoch milliseconds of the clock that the file system has.
        """
        folder, _ = split_prefix(check_prefix(prefix))
        self._remove_unfinished(tuple(folder.split("/")) if folder else (), before_ms)

    def _remove_unfinished(self, folder: tuple[str, ...], before_ms: int) -> None:
        with contextlib.suppress(OSError), posix.open_folder(self._root, folder) as descriptor:
            for found in posix.entries_of(descriptor, lambda name: is_key(name) or _is_temporary(name), 0):
                if found.is_folder:
                    self._remove_unfinished((*folder, found.name), before_ms)
                elif _is_temporary(found.name):
                    with contextlib.suppress(OSError):
                        if posix.status_of_file(descriptor, found.name).st_mtime_ns < before_ms * 1_000_000:
                            posix.remove(descriptor, found.name)

    def url(self, key: str) -> str:
        """The absolute path."""
        return os.path.join(self._root, check_key(key))

    @outside_main_thread
    def sync(self, key: str) -> None:
        """Fsync the folders that lead to ``key``; its bytes were fsynced before it got its name."""
        parts = check_key(key).split("/")
        self._refuse_after_failed_sync()
        try:
            parent = self._open_durable(tuple(parts[:-1]), make=False)
        except OSError as error:
            self._fail("sync", key, error, Durable.MAYBE)
        with parent as folder:
            self._sync_folder("sync", key, folder)

    def __repr__(self) -> str:
        return f"<LocalStore {self._root}>"

    # --- writing ----------------------------------------------------------------------------------------------------

    @contextlib.contextmanager
    def _staged(self, key: str, data: bytes) -> Iterator[tuple[int, str, Callable[[str], None]]]:
        """Bytes on disk in the folder of ``key``, without its name: the folder, the name, and what gives a name."""
        *parents, name = check_key(key).split("/")
        self._refuse_after_failed_sync()
        with contextlib.ExitStack() as stack:
            try:
                folder = stack.enter_context(self._open_durable(tuple(parents), make=True))
                link = self._stage(folder, data, stack)
            except OSError as error:
                # Whatever went wrong, the name was not given yet.
                self._fail("write", key, error, Durable.NOTHING)
            yield folder, name, link

    def _stage(self, folder: int, data: bytes, stack: contextlib.ExitStack) -> Callable[[str], None]:
        file = posix.open_nameless(folder) if self._use_tmpfile else None
        if file is not None:
            nameless = stack.enter_context(file)
            self._write(nameless, data)
            return lambda name: self._link_nameless(nameless, folder, name, data, stack)
        return self._stage_named(folder, data, stack)

    def _stage_named(self, folder: int, data: bytes, stack: contextlib.ExitStack) -> Callable[[str], None]:
        # 128 random bits and O_EXCL: a name used twice could truncate an object that was linked from it.
        temporary = _temporary_name()
        with posix.open_temporary(folder, temporary) as file:
            stack.callback(_remove, folder, temporary)
            self._write(file, data)
        return lambda name: os.link(temporary, name, src_dir_fd=folder, dst_dir_fd=folder, follow_symlinks=False)

    def _link_nameless(self, file: int, folder: int, name: str, data: bytes, stack: contextlib.ExitStack) -> None:
        try:
            posix.link_nameless(file, folder, name)
        except FileNotFoundError:
            if posix.has_proc(file):
                raise
            self._use_tmpfile = False
            self._stage_named(folder, data, stack)(name)

    def _write(self, file: int, data: bytes) -> None:
        posix.write_all(file, data)
        self._fsync(file)

    def _open_durable(self, parts: tuple[str, ...], *, make: bool) -> posix.Descriptor:
        """A folder that is on disk itself, with every folder above it."""
        if not parts:
            return self._open_durable_root(make=make)
        if (known := self._open_known(self._durable_folders, parts)) is not None:
            return known
        with self._open_durable(parts[:-1], make=make) as parent:
            may_make = make and "/".join(parts) not in self._never_made
            folder, made = _open_or_make(parent, parts[-1], make=may_make)
            self._fsync(parent)  # whoever made it may not have come as far as this
        if not made:  # from its second use on: nobody comes back to the folder of a segment
            self._note_durable(parts, folder)
        return folder

    def _open_known(self, folders: _Folders, parts: tuple[str, ...]) -> posix.Descriptor | None:
        """A folder that was walked to before, by one call instead of one a part.

        What the path leads to is compared with what the walk found: another folder, or none, is for a new walk.
        """
        if (known := folders.get(parts)) is None:
            return None
        try:
            folder = posix.open_folder(os.path.join(self._root, *parts), ())
        except OSError:
            return None  # the walk reports what is wrong
        if _is_same(known, folder):
            return folder
        folder.close()
        return None

    def _note_durable(self, parts: tuple[str, ...], folder: posix.Descriptor) -> None:
        self._keep(self._durable_folders, parts, folder)

    def _keep(self, folders: _Folders, parts: tuple[str, ...], folder: posix.Descriptor) -> None:
        """Keep a folder open: until it is let go, its inode's number is given to no other one, removed or not."""
        folders.drop(parts)
        with contextlib.suppress(OSError):  # no descriptor is left: it is walked to, or synced, again then
            folders.put(parts, folder.again())

    def _open_durable_root(self, *, make: bool) -> posix.Descriptor:
        known = self._durable_folders.get(())
        if make and known is None:
            os.makedirs(self._root, exist_ok=True)
        folder = posix.open_folder(self._root, ())
        if known is None or not _is_same(known, folder):
            self._sync_above_root()
            self._note_durable((), folder)
        return folder

    def _sync_above_root(self) -> None:
        """At a root not met before, or made anew: any folder above it may have been made a moment ago, by whomever."""
        folder = self._root
        while folder != os.path.dirname(folder):
            folder = os.path.dirname(folder)
            try:
                with posix.open_folder(folder, ()) as parent:
                    os.fsync(parent)
            except OSError as error:
                if error.errno not in _CANNOT_SYNC:
                    self._note_failed_sync(error)
                    raise
                # Nobody made a folder there a moment ago: it is read-only, not ours to read, or has no fsync.

    # --- fsync ------------------------------------------------------------------------------------------------------

    def _fsync(self, descriptor: int) -> None:
        try:
            os.fsync(descriptor)
        except OSError as error:
            self._note_failed_sync(error)
            raise

    def _note_failed_sync(self, error: OSError) -> None:
        self._failed_sync = os.strerror(error.errno or errno.EIO)

    def _sync_folder(self, call: str, key: str, folder: int) -> None:
        try:
            self._fsync(folder)
        except OSError as error:
            self._fail(call, key, error, Durable.MAYBE)

    def _refuse_after_failed_sync(self) -> None:
        failed = self._failed_sync
        if failed is not None:
            raise StoreError(
                f"an earlier fsync below {self._root} failed: {failed}",
                advice="check the disk, then open again",
                durable=Durable.MAYBE,
            )

    # --- reading ----------------------------------------------------------------------------------------------------

    def _folder_of(self, key: str) -> tuple[posix.Descriptor, str]:
        """The folder of a key, and the name in it."""
        *parents, name = check_key(key).split("/")
        parts = tuple(parents)
        for folders in (self._durable_folders, self._read_folders):
            if (known := self._open_known(folders, parts)) is not None:
                return known, name
        folder = posix.open_folder(self._root, parts)
        if parts == self._last_read:  # else it may be the folder of a segment, to which nobody comes back
            self._keep(self._read_folders, parts, folder)
        self._last_read = parts
        return folder, name

    def _open(self, key: str) -> posix.Descriptor:
        """The file of a key, for reading."""
        parent, name = self._folder_of(key)
        with parent as folder:
            return posix.open_file(folder, name)

    @contextlib.contextmanager
    def _translated(self, call: str, key: str) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            if not posix.has_raised(error):  # the handler of a signal did, as a time limit does: it is no answer
                raise
            if isinstance(error, FileNotFoundError | NotADirectoryError):
                raise ObjectNotFound(key) from None
            self._fail(call, key, error, Durable.NOTHING)

    def _walk(self, folder: tuple[str, ...], name_prefix: str, above: int | None = None) -> Iterator[ObjectInfo]:
        """The files of a folder and of those in it; ``above`` is the open folder that it is in, where one is."""
        path = "/".join(folder)
        try:
            with self._translated("list", path):
                if above is None:
                    descriptor = posix.open_folder(self._root, folder)
                else:
                    descriptor = posix.open_subfolder(above, folder[-1])
        except ObjectNotFound:
            return
        with descriptor as opened:
            for name, is_folder, status in self._entries(path, opened, name_prefix):
                if is_folder:
                    yield from self._walk((*folder, name), "", opened)
                elif status is not None:
                    yield _info("/".join((*folder, name)), status)
                else:
                    # Deleted since the folder was read: not there, then.
                    with contextlib.suppress(ObjectNotFound):
                        yield self.info("/".join((*folder, name)))

    def _entries(self, path: str, descriptor: int, name_prefix: str) -> _Entries:
        """The files and folders of an open folder, in the order of keys."""
        try:
            with self._translated("list", path):
                entries = posix.entries_of(
                    descriptor, lambda name: name.startswith(name_prefix) and is_key(name), _STATUSES_AT_ONCE
                )
        except ObjectNotFound:
            return []
        # A folder sorts where its first key would: "a-b" lies before "a/b".
        return sorted(entries, key=lambda entry: entry.name + "/" * entry.is_folder)

    def _fail(self, call: str, key: str, error: OSError, durable: Durable) -> NoReturn:
        code = error.errno or errno.EIO
        if isinstance(error, posix.SymbolicLinkError):
            advice = "replace the symbolic link by what it leads to: links below the root are not followed"
        elif self._failed_sync is not None:
            advice = "check the disk, then open again"
        else:
            advice = _ADVICE.get(code, "check the file system below the root")
        if code == errno.ENOENT and any(key.startswith(f"{folder}/") for folder in self._never_made):
            advice = (
                "its folder was removed, moved or renamed while it was open: bring it back, or open it where it is now"
            )
        if code == errno.EACCES:
            raise denied(call, key, os.path.join(self._root, key), os.strerror(code), durable) from error
        text = f"{call} of {key!r} in {self._root} failed: {os.strerror(code)}"
        raise StoreError(text, advice=advice, durable=durable) from error


def _is_same(known: posix.Descriptor, folder: posix.Descriptor) -> bool:
    """Whether a folder is the one that is open. A network file system may have lost that one: then it is not."""
    try:
        return os.path.samestat(known.status(), folder.status())
    except OSError:
        return False


def _info(key: str, status: os.stat_result) -> ObjectInfo:
    return ObjectInfo(key, status.st_size, status.st_mtime_ns // 1_000_000)


def _open_or_make(folder: int, name: str, *, make: bool) -> tuple[posix.Descriptor, bool]:
    """A folder in another, and whether this call made it."""
    made = False
    try:
        return posix.open_subfolder(folder, name), made
    except FileNotFoundError:
        if not make:
            raise
        with contextlib.suppress(FileExistsError):
            os.mkdir(name, dir_fd=folder)
            made = True
        return posix.open_subfolder(folder, name), made


def _temporary_name() -> str:
    return f"{TEMPORARY_PREFIX}{secrets.token_hex(16)}"


def _is_temporary(name: str) -> bool:
    return name.startswith(TEMPORARY_PREFIX)


def _remove(folder: int, name: str) -> None:
    # A temporary that stays is garbage without a name that anybody lists; failing the caller for it would be wrong.
    with contextlib.suppress(OSError):
        posix.remove(folder, name)


__all__ = ["LocalStore"]
