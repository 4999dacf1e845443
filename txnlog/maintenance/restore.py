"""Making a namespace out of a backup: verified first, then visible, then a namespace of its own.

Entry 0 of the log is put last: without it no client takes the folder for a namespace. All else was read, compared with
its checksum, and written by then. The adoption comes behind that, so writers of the original never write here, and new
TxnIDs are none of the original's.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from txnlog.common.names import NamespaceName, folded
from txnlog.common.validation import shortened
from txnlog.engine.runtime import Runtime
from txnlog.errors import Durable, InvalidInputError, NameNotAllowed, StoreError
from txnlog.fold import garbage
from txnlog.fold.state import NamespaceRecord
from txnlog.format import keys
from txnlog.format.actions import Adopt
from txnlog.format.backup_manifest import (
    BACKUP_FORMAT,
    BackupFile,
    BackupManifest,
    RestoreMark,
    decode_restore_mark,
    encode_backup,
)
from txnlog.format.codec import decode_entry, digest_of
from txnlog.log.follower import Follower
from txnlog.log.log_identity import CATALOG, listed
from txnlog.log.log_reader import Log
from txnlog.log.root_log import Root
from txnlog.log.slots import occupy
from txnlog.maintenance.backup_folder import BackupFolder, Progress, in_waves
from txnlog.replies import Rest, finishing, note_written
from txnlog.results import Restored
from txnlog.sentences import Call, Words
from txnlog.store.base import ObjectNotFound, Store
from txnlog.store.wrappers import PrefixStore

if TYPE_CHECKING:
    from txnlog.client.connection import Connection


@dataclass(frozen=True, slots=True)
class Target:
    """Where a namespace is to be made.

    Attributes:
        root: the store of the root.
        name: the namespace's name there.
        connect: opens the namespace when its log is there.
    """

    root: Store
    name: NamespaceName
    connect: Callable[[], Connection]


def restore(
    folder: BackupFolder,
    target: Target,
    runtime: Runtime,
    version: int | None,
    *,
    dry_run: bool,
    progress: Progress | None,
) -> Restored:
    """Make a namespace out of a backup. See ``txnlog.restore``."""
    folder.look()
    return _Restore(folder, folder.chosen(version), target, runtime, progress).make(dry_run=dry_run)


class _Restore:
    """One restore of one backup."""

    def __init__(
        self,
        folder: BackupFolder,
        manifest: BackupManifest,
        target: Target,
        runtime: Runtime,
        progress: Progress | None,
    ) -> None:
        self._folder = folder
        self._manifest = manifest
        self._target = target
        self._runtime = runtime
        self._progress = progress
        self._store = PrefixStore(target.root, target.name)
        self._log = Log(self._store, runtime)
        self._root = Root(target.root, runtime)
        self._sizes: Mapping[str, int] = {}
        self._read_bytes = 0
        self._mark = RestoreMark(
            BACKUP_FORMAT,
            manifest.namespace,
            manifest.coordinator,
            manifest.beginning,
            manifest.version,
            manifest.digest,
        )

    def make(self, *, dry_run: bool) -> Restored:
        """Restore it, or only read all of it."""
        self._sizes = {info.key: info.size_bytes for info in self._store.list("")}
        begun = self._check_target()
        if keys.entry_key(0) not in self._sizes:
            self._folder.check_sizes(self._manifest)
            if dry_run:
                self._copy(lambda _key, _data: None)
                return self._restored(None, dry_run=True)
            # Before anything is copied: a root that cannot have a namespace refuses it now, and not after hours.
            self._root.ensure_safe(adopting=True)
        elif dry_run:
            raise self._refusal(
                "where a namespace is"
                if self._is_adopted()
                else "where this backup is being restored: only its last step, the adoption, is left"
            )
        with finishing(Rest.RESTORE):
            return self._finished(begun=begun)

    def _finished(self, *, begun: bool) -> Restored:
        if not begun:
            note_written()
            self._occupy(keys.RESTORE_KEY, encode_backup(self._mark))
            self._check_still_free()
        if keys.entry_key(0) not in self._sizes:
            self._make_log()
        coordinator = self._adopted_as()
        if coordinator is None or not self._is_listed(coordinator):
            coordinator = self._adopt()
        with contextlib.suppress(StoreError):  # nobody needs it any more, and it does no harm
            self._store.delete(keys.RESTORE_KEY)
        return self._restored(coordinator, dry_run=False)

    def _restored(self, coordinator: int | None, *, dry_run: bool) -> Restored:
        manifest = self._manifest
        segments = sum(isinstance(keys.parse_key(file.key), keys.SegmentKey) for file in manifest.files)
        return Restored(
            self._target.name,
            coordinator,
            manifest.version,
            manifest.timestamp_ms,
            entries=manifest.version + 1,
            segments=segments,
            size_bytes=manifest.size_bytes,
            dry_run=dry_run,
        )

    # --- what is there ----------------------------------------------------------------------------------------------

    def _check_target(self) -> bool:
        """Whether this very restore was begun before. Raises unless the folder is empty, or it was.

        Raises InvalidInputError, or NameNotAllowed where the name differs from another one only in case.
        """
        records = self._records()
        name = self._target.name
        alike = [item.name for item in records if item.name != name and folded(item.name) == folded(name)]
        if alike:
            raise NameNotAllowed(f"{name!r} differs from the namespace {alike[0]!r} of the root only in case")
        begun = self._begun()
        if self._sizes and not begun:
            is_namespace = keys.entry_key(0) in self._sizes
            raise self._refusal("where a namespace is" if is_namespace else f"which has files ({min(self._sizes)})")
        own = listed(records, name)
        if own is not None and own.log not in {"", self._manifest.beginning}:
            raise InvalidInputError(
                f"the root lists another namespace {name!r} than the one of the backup, although its folder is empty",
                advice=Words(
                    "choose another name; or, if that one is not needed any more, take it out of the root: ",
                    Call("drop_namespace", repr(str(name)), of=CATALOG),
                ),
                durable=Durable.NOTHING,
            )
        if keys.entry_key(0) in self._sizes and self._adoptions()[1]:
            raise self._refusal("where a namespace is")  # it was restored, and others have written to it since
        return begun

    def _check_still_free(self) -> None:
        """Raise InvalidInputError where somebody created a namespace between the look at the folder and the mark in it.

        From the mark on nobody begins to.
        """
        first = self._log.get(0)
        if first is not None and digest_of(first) != self._manifest.beginning:
            with contextlib.suppress(StoreError):
                self._store.delete(keys.RESTORE_KEY)
            raise self._refusal("where somebody else created a namespace at the same time")

    def _records(self) -> Sequence[NamespaceRecord]:
        if self._root.exists():
            return self._root.namespaces()
        self._root.refuse_namespace()
        self._root.refuse_remains()
        return ()

    def _begun(self) -> bool:
        """Whether the folder has what an interrupted restore of this backup left there."""
        if keys.RESTORE_KEY not in self._sizes:
            return False
        try:
            found = decode_restore_mark(self._store.get(keys.RESTORE_KEY), keys.RESTORE_KEY)
        except ObjectNotFound:
            return False
        if found != self._mark:
            raise self._refusal(
                f"where the restore of another backup was interrupted: of version {found.version} of the namespace "
                f"{found.namespace!r}"
            )
        return True

    def _refusal(self, where: str) -> InvalidInputError:
        url = shortened(self._target.root.url(self._target.name))
        return InvalidInputError(
            f"nothing is restored into the folder {url}, {where}",
            advice="choose another name or another root; or drop the namespace, remove its folder, and restore it then",
            durable=Durable.NOTHING,
        )

    # --- copying ----------------------------------------------------------------------------------------------------

    def _make_log(self) -> None:
        """Copy all that the backup has, entry 0 last."""
        first: list[bytes] = []

        def put(key: str, data: bytes) -> None:
            if key == keys.entry_key(0):
                first.append(data)
            elif self._sizes.get(key) != len(data):
                self._put(key, data)

        self._copy(put)
        if self._log.get(0) == first[0]:
            self._remove_what_is_over()
        self._occupy(keys.entry_key(0), first[0])

    def _remove_what_is_over(self) -> None:
        """Delete what a vacuum deleted, and this restore put back: another one of the same backup was quicker.

        Its namespace may have been in use for long, and nobody would expect erased rows there any more.
        """
        follower = Follower(self._log, self._runtime)
        topics = {topic.folder: topic for topic in follower.topics()}
        found = {folder: follower.segments(topic.id) for folder, topic in topics.items()}
        numbers = {folder: {record.number: record for record in records} for folder, (records, _) in found.items()}
        bound = follower.state.head.oldest_readable
        for file in self._manifest.files:
            key = keys.parse_key(file.key)
            if isinstance(key, keys.SegmentKey) and key.folder in topics:
                topic, (_, removals) = topics[key.folder], found[key.folder]
                record = numbers[key.folder].get(key.segment)
                if garbage.reason_of(topic, record, key.file, removals, bound, closed=False) is not None:
                    self._store.delete(file.key)

    def _put(self, key: str, data: bytes) -> None:
        if key.startswith(keys.LOG_FOLDER) and key not in self._sizes:
            self._occupy(key, data)
        else:
            self._store.put(key, data)

    def _occupy(self, key: str, data: bytes) -> None:
        if occupy(self._store, self._runtime, key, data) != data:
            raise self._refusal(f"where somebody else put {key} at the same time")

    def _copy(self, put: Callable[[str, bytes], None]) -> None:
        """Read all that belongs to the backup, and put each object when it is known to be whole."""
        manifest = self._manifest
        segments = [item for item in manifest.files if isinstance(keys.parse_key(item.key), keys.SegmentKey)]
        others = [item for item in manifest.files if not isinstance(keys.parse_key(item.key), keys.SegmentKey)]
        self._copy_files("segments", segments, put)
        self._copy_files("checkpoints", others, put)
        self._report("entries", 0, manifest.version + 1)
        done = 0
        for entries in self._folder.entries(manifest):
            self._runtime.run_all([partial(put, keys.entry_key(version), data) for version, data in entries])
            done += len(entries)
            self._read_bytes += sum(len(data) for _, data in entries)
            self._report("entries", done, manifest.version + 1)

    def _copy_files(self, what: str, files: Sequence[BackupFile], put: Callable[[str, bytes], None]) -> None:
        def copy(file: BackupFile) -> None:
            put(file.key, self._folder.file(file))

        done = 0
        self._report(what, done, len(files))
        for wave in in_waves([file for file in files if self._sizes.get(file.key) != file.size_bytes]):
            self._runtime.run_all([partial(copy, file) for file in wave])
            done += len(wave)
            self._read_bytes += sum(file.size_bytes for file in wave)
            self._report(what, done, len(files))

    def _report(self, what: str, done: int, known: int) -> None:
        if self._progress is not None:
            self._progress(what, done, known, self._read_bytes)

    # --- adoption ---------------------------------------------------------------------------------------------------

    def _adopted_as(self) -> int | None:
        """The coordinator id by which the log was adopted last; None where it was not yet."""
        coordinator, is_written_to = self._adoptions()
        if coordinator is None and is_written_to:
            raise self._refusal("where somebody else writes at the same time")
        return coordinator

    def _adoptions(self) -> tuple[int | None, bool]:
        """The coordinator id of the last adoption right behind the backup, and whether another entry follows.

        There are several where an adoption of unknown outcome was repeated, and both landed.
        """
        coordinator: int | None = None
        version, digest = self._manifest.version, self._manifest.digest
        while (data := self._log.get(version + 1)) is not None:
            version += 1
            entry = decode_entry(data, version)
            adopted = next((item for item in entry.actions if isinstance(item, Adopt)), None)
            if adopted is None or entry.header.previous != digest:
                return coordinator, True
            coordinator, digest = adopted.coordinator, entry.digest
        return coordinator, False

    def _is_adopted(self) -> bool:
        coordinator, _ = self._adoptions()
        return coordinator is not None and self._is_listed(coordinator)

    def _is_listed(self, coordinator: int) -> bool:
        """Whether the root lists what was adopted with this id: another adoption may have begun with a later one."""
        own = listed(self._records(), self._target.name)
        return own is not None and own.coordinator == coordinator

    def _adopt(self) -> int:
        last = self._log.get(self._manifest.version)
        if last is None or digest_of(last) != self._manifest.digest:
            raise self._refusal("where somebody else writes at the same time")
        connection = self._target.connect()
        try:
            return connection.session.adopt(force=True)
        finally:
            connection.close()


__all__ = ["Target", "restore"]
