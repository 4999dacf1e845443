"""Copying one version of a namespace into a folder while writers go on.

What makes the copy consistent is the order. The version is chosen once; of the log nothing above it is copied. Segments
come before the entries that name them, as when they were written, and the manifest comes last. Objects of a log never
change, so what is there with the right name and size need not be copied again: after an interruption, and by the next
backup.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Final

from txnlog.common.format_limits import MIN_GRACE_MS
from txnlog.engine.log_lines import LogLines
from txnlog.errors import (
    CorruptionError,
    InvalidInputError,
    NamespaceNotFound,
    RetriableError,
    UnsupportedFeature,
    VersionNotAvailable,
)
from txnlog.fold.garbage import is_needed
from txnlog.format import keys
from txnlog.format.backup_manifest import BACKUP_FORMAT, BackupFile, BackupLog, BackupManifest, encode_backup
from txnlog.format.codec import digest_of
from txnlog.log import checkpoint_codec
from txnlog.log.checkpoint_codec import Manifest
from txnlog.log.slots import occupy
from txnlog.maintenance.backup_folder import (
    BackupFolder,
    Chain,
    Progress,
    check_object,
    in_waves,
    versions_in_waves,
)
from txnlog.maintenance.fsck.findings import attempted
from txnlog.replies import Rest, finishing, note_written, reworded
from txnlog.results import BackedUp
from txnlog.sentences import Either, Words
from txnlog.store.base import ObjectNotFound
from txnlog.store.folders import remove_unfinished

if TYPE_CHECKING:
    from txnlog.client.connection import Connection

_logger = LogLines("txnlog.backup")

_RESTORE_OBJECT: Final = "restore the object from a copy, or from an earlier backup, to its place in the namespace"

_ATTEMPTS: Final = 3
"""Versions that are tried: a vacuum that deletes files of one while they are copied ends soon."""


@dataclass(frozen=True, slots=True)
class _Plan:
    """What belongs to the backup of one version, but for entries and checkpoints.

    Attributes:
        log: whose it is.
        version: the newest version.
        digest: of its entry.
        timestamp_ms: of its entry.
        oldest_readable: the oldest version whose segments are copied.
        newest: the newest version of the original.
        segments: all segments that a readable version shows, or that a transaction may still show.
    """

    log: BackupLog
    version: int
    digest: str
    timestamp_ms: int
    oldest_readable: int
    newest: int
    segments: tuple[BackupFile, ...]


def backup(
    connection: Connection, folder: BackupFolder, version: int | None, *, verify: bool, progress: Progress | None
) -> BackedUp:
    """Copy one version of a namespace into a folder. See ``txnlog.backup``."""
    copied = _Copied()
    for _ in range(_ATTEMPTS):
        plan = _planned(connection, version)
        made = _Backup(connection, folder, plan, copied, verify=verify, progress=progress).make()
        if made is not None:
            return made
        if version is not None:
            raise _vacuumed(version)
        _logger.info("a vacuum deleted files of version %d while they were copied: a newer one is copied", plan.version)
    raise RetriableError(
        f"vacuums deleted files of {_ATTEMPTS} versions while they were copied",
        advice=Words("let no vacuum run at the same time; then ", Rest.BACKUP),
    )


def _vacuumed(version: int) -> VersionNotAvailable:
    return VersionNotAvailable(
        f"version {version} cannot be backed up: a vacuum since then has deleted files that it, or an older version "
        "that could be read then, needs",
        advice=Words("back up the newest version: leave out ", Either("version", "--version")),
    )


def _planned(connection: Connection, version: int | None) -> _Plan:
    """What belongs to the backup of the newest version, or of one that is asked for."""
    follower = connection.follower
    follower.refresh()
    follower.log.check_end(follower.version, whole=True)
    head = follower.state.head
    newest = head.version
    if version is not None and version != newest:
        unavailable = follower.unavailable(version)
        if unavailable is not None:
            raise unavailable
        named = follower.log.checkpoints.named_by(version)
        head = follower.log.state_at(version, named)[0].head
        if head.oldest_readable != follower.state.head.oldest_readable:
            raise _vacuumed(version)
    log = BackupLog(BACKUP_FORMAT, head.name, head.coordinators.newest, follower.log.beginning())
    # Of what was decided later, as far as it matters, it was not decided yet at the version: rows that became visible
    # or were aborted since then were pending.
    segments = tuple(
        BackupFile(keys.segment_key(topic.folder, record.number, record.file), record.size_bytes, record.checksum)
        for topic in follower.topics()
        if topic.id <= head.version
        for records, removals in (follower.segments(topic.id),)
        for record in records
        if record.logged_version <= head.version
        and is_needed(record, removals, topic.dropped_version, head.oldest_readable)
    )
    return _Plan(log, head.version, head.digest, head.timestamp_ms, head.oldest_readable, newest, segments)


def _of_entry(version: int, data: bytes) -> tuple[BackupFile, bytes]:
    return BackupFile(keys.entry_key(version), len(data), digest_of(data)), data


class _Copied:
    """What was copied, of all versions that were tried."""

    def __init__(self) -> None:
        self.files = 0
        self.size_bytes = 0

    def add(self, size_bytes: int) -> None:
        """One more."""
        self.files += 1
        self.size_bytes += size_bytes


class _Backup:
    """One backup of one version."""

    def __init__(
        self,
        connection: Connection,
        folder: BackupFolder,
        plan: _Plan,
        copied: _Copied,
        *,
        verify: bool,
        progress: Progress | None,
    ) -> None:
        self._connection = connection
        self._runtime = connection.runtime
        self._source = connection.store
        self._folder = folder
        self._plan = plan
        self._copied = copied
        self._verify = verify
        self._progress = progress
        self._base: BackupManifest | None = None

    def make(self) -> BackedUp | None:
        """Make the backup; None where files of the version were vacuumed meanwhile."""
        self._look()
        with finishing(Rest.BACKUP):
            return self._made()

    def _made(self) -> BackedUp | None:
        self._claim()
        missing = self._files("segments", self._plan.segments)
        if missing:
            self._check_vacuumed(missing)
            return None
        checkpoints = self._checkpoints()
        entries_bytes = self._entries()
        plan = self._plan
        manifest = BackupManifest(
            BACKUP_FORMAT,
            plan.log.namespace,
            plan.log.coordinator,
            plan.log.beginning,
            plan.version,
            plan.digest,
            plan.timestamp_ms,
            self._runtime.now_ms(),
            entries_bytes,
            (*plan.segments, *checkpoints),
        )
        self._seal(manifest)
        remove_unfinished(self._folder.store, self._runtime.now_ms() - MIN_GRACE_MS)  # of backups that were killed
        return BackedUp(
            plan.log.namespace,
            plan.version,
            plan.timestamp_ms,
            entries=plan.version + 1,
            segments=len(plan.segments),
            size_bytes=manifest.size_bytes,
            copied_files=self._copied.files,
            copied_bytes=self._copied.size_bytes,
        )

    # --- what is there ----------------------------------------------------------------------------------------------

    def _look(self) -> None:
        """Look at what the folder has. Raises InvalidInputError where that is no earlier state of this log."""
        folder, plan = self._folder, self._plan
        folder.look()
        known = folder.log()
        if known is None:
            if folder.sizes:
                raise InvalidInputError(
                    f"the folder {folder.url} has files ({min(folder.sizes)}), and no backup",
                    advice="choose an empty folder, or one that has backups of this namespace",
                )
            return
        if known.beginning != plan.log.beginning:
            same = known.namespace == plan.log.namespace
            raise InvalidInputError(
                f"the folder {folder.url} has backups of another namespace, "
                f"{'also called ' if same else ''}{known.namespace!r}",
                advice="choose another folder: each namespace has one of its own",
            )
        manifests = folder.usable_manifests()
        self._base = next((item for item in reversed(manifests) if item.version <= plan.version), None)
        if manifests:
            self._check_history(manifests[-1].version, manifests[-1].digest)
        last = max(
            (key.version for key in map(keys.parse_key, folder.sizes) if isinstance(key, keys.EntryKey)), default=-1
        )
        if last > (manifests[-1].version if manifests else -1):  # of a backup that was interrupted
            with contextlib.suppress(ObjectNotFound):  # it was removed since the listing
                self._check_history(last, digest_of(folder.store.get(keys.entry_key(last))))

    def _check_history(self, version: int, digest: str) -> None:
        """Raise InvalidInputError unless the log has the entry of a version that the folder has.

        It may be newer than the log was when this backup began: of another one that runs at the same time.
        """
        data = self._connection.follower.log.get(version)
        if data is not None and digest_of(data) == digest:
            return
        if data is None:
            what = f"it has entry {version}, and the log ends at version {self._plan.newest}"
        else:
            what = f"entry {version} of the log is another one"
        raise InvalidInputError(
            f"the folder {self._folder.url} has a later or another history of the namespace: {what}; the namespace was "
            "put back to an older state since that backup, or was written to in two places",
            advice="keep that folder, which may have what the namespace lost, and choose another one",
        )

    def _check_vacuumed(self, missing: Sequence[BackupFile]) -> None:
        """Raise CorruptionError, or NamespaceNotFound, unless a vacuum may have deleted what is missing."""
        follower = self._connection.follower
        follower.refresh()
        if follower.state.head.oldest_readable > self._plan.oldest_readable:
            return
        follower.log.check_there()
        raise CorruptionError(
            f"the segment {missing[0].key} is missing"
            + (f", and {len(missing) - 1:,} others are" if len(missing) > 1 else ""),
            advice=_RESTORE_OBJECT,
        )

    # --- copying ----------------------------------------------------------------------------------------------------

    def _claim(self) -> None:
        """Note first of all which log the folder has backups of, so that an interrupted backup is known as one."""
        if self._folder.sizes:
            return
        note_written()
        self._put_once(keys.BACKUP_LOG_KEY, encode_backup(self._plan.log))

    def _put_once(self, key: str, data: bytes) -> None:
        """Put an object that has one content for ever, where it is not there."""
        found = occupy(self._folder.store, self._runtime, key, data)
        if found != data:
            raise InvalidInputError(
                f"somebody else has put another object under {key} in the folder {self._folder.url}",
                advice="look for another backup into the same folder, and repeat this one when that has ended",
            )
        self._folder.sizes[key] = len(data)

    def _put(self, key: str, data: bytes) -> int:
        """Put an object that is not there, or in place of one that is damaged. Returns its size."""
        if key in self._folder.sizes or not key.startswith(keys.LOG_FOLDER):
            self._folder.store.put(key, data)
            self._folder.sizes[key] = len(data)
        else:
            self._put_once(key, data)
        return len(data)

    def _carry_out(self, copies: Sequence[Callable[[], int | None]]) -> list[int | None]:
        """Copy files at the same time: of each the bytes that were copied, None where the original does not have it."""
        note_written()  # here, and not in the threads that copy: it is noted for the caller
        copied = self._runtime.run_all(copies)
        for size_bytes in copied:
            if size_bytes:
                self._copied.add(size_bytes)
        return copied

    def _is_there(self, file: BackupFile) -> bool:
        """Whether the folder has a file: by name and size, or by what is in it where that is asked for."""
        size_bytes = self._folder.sizes.get(file.key)
        if size_bytes is None:
            return False
        if size_bytes != file.size_bytes:
            text = "%s is copied again: it has %s bytes instead of %s"
            _logger.warning(text, file.key, f"{size_bytes:,}", f"{file.size_bytes:,}")
            return False
        if not self._verify:
            return True
        try:
            check_object(file, self._folder.store.get(file.key))
        except (CorruptionError, ObjectNotFound) as error:
            _logger.warning("%s is copied again: %s", file.key, error)
            return False
        return True

    def _files(self, what: str, files: Sequence[BackupFile]) -> list[BackupFile]:
        """Copy the files that are not there. Returns those that are missing in the original."""
        done = 0
        gone: list[BackupFile] = []
        self._report(what, done, len(files))
        for wave in in_waves(files):
            copied = self._carry_out([partial(self._file, file) for file in wave])
            gone += [file for file, size_bytes in zip(wave, copied, strict=True) if size_bytes is None]
            if gone:
                break
            done += len(wave)
            self._report(what, done, len(files))
        return gone

    def _file(self, file: BackupFile) -> int | None:
        """Copy a file, unless it is there; None where the original does not have it."""
        if self._is_there(file):
            return 0
        try:
            data = self._source.get(file.key)
        except ObjectNotFound:
            return None
        try:
            check_object(file, data)
        except CorruptionError as error:
            raise reworded(
                error,
                message=f"{error.message}; a backup with it would be damaged, too",
                advice=_RESTORE_OBJECT,
            ) from None
        return self._put(file.key, data)

    def _report(self, what: str, done: int, known: int) -> None:
        if self._progress is not None:
            self._progress(what, done, known, self._copied.size_bytes)

    # --- checkpoints ------------------------------------------------------------------------------------------------

    def _checkpoints(self) -> list[BackupFile]:
        """Copy the usable checkpoints up to the version. Returns what they are made of.

        All that they hold follows from the entries: one that is unusable is left out, and nothing is lost.
        """
        known = self._known_checkpoints()
        # A repair makes a checkpoint again: what a backup has of the one before may be what was wrong with it.
        again = {key for key in known if self._is_another(key, known[key].checksum)}
        known = {key: file for key, file in known.items() if key not in again}
        had = {key.version for key in map(keys.parse_key, known) if isinstance(key, keys.ManifestKey)}
        found = (keys.parse_key(info.key) for info in self._source.list(keys.CHECKPOINT_FOLDER))
        wanted = sorted(
            key.version
            for key in found
            if isinstance(key, keys.ManifestKey) and key.version <= self._plan.version and key.version not in had
        )
        self._report("checkpoints", 0, len(wanted))
        for done, version in enumerate(wanted, 1):
            known |= {file.key: file for file in self._checkpoint(version)}
            self._report("checkpoints", done, len(wanted))
        return list(known.values())

    def _known_checkpoints(self) -> dict[str, BackupFile]:
        """The objects of checkpoints that an earlier backup has; none where one of them is gone or damaged."""
        files = [] if self._base is None else self._base.files
        known = {file.key: file for file in files if not isinstance(keys.parse_key(file.key), keys.SegmentKey)}
        whole = all(self._runtime.run_all([partial(self._is_there, file) for file in known.values()]))
        return known if whole else {}

    def _has_another(self, version: int, data: bytes) -> bool:
        """Whether the folder has another manifest of a version, which is whole."""
        key = keys.manifest_key(version)
        if key not in self._folder.sizes:
            return False
        stored = self._folder.store.get(key)
        named = None if self._base is None else next((item for item in self._base.files if item.key == key), None)
        if named is not None and digest_of(stored) != named.checksum:
            return False  # it is damaged
        try:
            checkpoint_codec.decode_manifest(stored, version)
        except (CorruptionError, UnsupportedFeature):
            return False
        return stored != data

    def _is_another(self, key: str, digest: str) -> bool:
        """Whether the namespace has another manifest than the one with a digest."""
        if not isinstance(keys.parse_key(key), keys.ManifestKey):
            return False
        found = attempted(partial(self._source.get, key))
        return isinstance(found, bytes) and digest_of(found) != digest

    def _checkpoint(self, version: int) -> list[BackupFile]:
        """Copy a checkpoint, its manifest last. Returns its objects; none where it is unusable."""
        key = keys.manifest_key(version)
        try:
            data = self._source.get(key)
            manifest = checkpoint_codec.decode_manifest(data, version)
            parts = [BackupFile(keys.part_key(part.unique), part.size_bytes, part.digest) for part in manifest.parts]
            self._check_of_log(manifest)
            if self._has_another(version, data):
                raise CorruptionError("the folder has another one of this version, which other backups may name")
            if None in self._carry_out([partial(self._file, part) for part in parts]):
                raise CorruptionError("a part is missing")
        except (CorruptionError, UnsupportedFeature, ObjectNotFound) as error:
            _logger.warning(
                "the checkpoint of version %d is not backed up, since it is unusable: %s. Nothing is lost.",
                version,
                error,
            )
            return []
        whole = BackupFile(key, len(data), digest_of(data))
        self._carry_out([partial(self._copy, whole, data)])
        return [*parts, whole]

    def _check_of_log(self, manifest: Manifest) -> None:
        if not self._connection.follower.log.checkpoints.is_of_this_log(manifest):
            raise CorruptionError("it is of another log")

    # --- entries ----------------------------------------------------------------------------------------------------

    def _entries(self) -> int:
        """Copy the entries up to the version, in their order. Returns the size of all."""
        plan, sizes = self._plan, self._folder.sizes
        first, chain, total = 0, Chain(), 0
        base = self._base
        if base is not None and not self._verify:  # its manifest says that all of them are there
            before = [sizes.get(keys.entry_key(version)) for version in range(base.version + 1)]
            known = [size for size in before if size is not None]
            if len(known) == len(before) and sum(known) == base.entries_bytes:
                first, total, chain = base.version + 1, base.entries_bytes, Chain(base.version, base.digest)
        self._report("entries", first, plan.version + 1)
        for wave in versions_in_waves(first, plan.version):
            read = self._runtime.run_all([partial(self._entry, version) for version in wave])
            for data in read:
                chain.check(data)
            if chain.version == plan.version:
                self._check_last(chain)
            self._carry_out(
                [partial(self._copy, *_of_entry(version, data)) for version, data in zip(wave, read, strict=True)]
            )
            total += sum(map(len, read))
            self._report("entries", wave[-1] + 1, plan.version + 1)
        self._check_last(chain)
        return total

    def _check_last(self, chain: Chain) -> None:
        if (chain.version, chain.digest) != (self._plan.version, self._plan.digest):
            raise NamespaceNotFound(
                f"the namespace {self._plan.log.namespace!r} is no longer the one whose backup was begun: entry "
                f"{chain.version} of its log is another one",
                advice="look what is there now",
            )

    def _entry(self, version: int) -> bytes:
        data = self._connection.follower.log.get(version)
        if data is None:
            self._connection.follower.log.check_there()
            raise CorruptionError(f"entry {version} is missing")
        return data

    def _copy(self, file: BackupFile, data: bytes) -> int:
        return 0 if self._is_there(file) else self._put(file.key, data)

    # --- the end ----------------------------------------------------------------------------------------------------

    def _seal(self, manifest: BackupManifest) -> None:
        """Put the manifest, from which on there is a backup of the version."""
        key, data = keys.backup_key(manifest.version), encode_backup(manifest)
        known = self._base
        if known is not None and known.version == manifest.version and known.files == manifest.files:
            return  # nothing is new, and all of it is there
        note_written()
        self._folder.store.put(key, data)


__all__ = ["backup"]
