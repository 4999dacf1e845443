"""The folder of a backup: what is in it, its manifests, and reading it so that damage never passes for data.

A folder has the backups of one log. Its keys are those of the namespace, so that entries and segments, which never
change, are there once however many backups there are; the manifest of each backup says what belongs to it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import Final, TypeVar

from txnlog.common.validation import shortened
from txnlog.data.segment_file import verify
from txnlog.engine.log_lines import LogLines
from txnlog.engine.runtime import Runtime
from txnlog.errors import CorruptionError, InvalidInputError, UnsupportedFeature
from txnlog.format import keys
from txnlog.format.actions import Header
from txnlog.format.backup_manifest import (
    BackupFile,
    BackupLog,
    BackupManifest,
    decode_backup_log,
    decode_backup_manifest,
)
from txnlog.format.codec import decode_entry, digest_of
from txnlog.maintenance.waves import copied_in_waves
from txnlog.sentences import Either, Words
from txnlog.store.base import ObjectNotFound, Store

T = TypeVar("T")

_logger = LogLines("txnlog.backup")

_ENTRIES_AT_ONCE: Final = 256
"""Entries of one wave. They are small."""

_SHOWN: Final = 3
"""Objects that an error names."""

Progress = Callable[[str, int, int, int], object]
"""Called with what is at work (``segments``, ``checkpoints`` or ``entries``), how many of them are done and how many
there are, and the bytes that were copied so far in all."""


def in_waves(files: Iterable[BackupFile]) -> Iterator[list[BackupFile]]:
    """Files in portions that fit into memory."""
    return copied_in_waves(files, lambda file: file.size_bytes)


def versions_in_waves(first: int, last: int) -> Iterator[range]:
    """The versions from one to another, both included, in portions."""
    for start in range(first, last + 1, _ENTRIES_AT_ONCE):
        yield range(start, min(start + _ENTRIES_AT_ONCE, last + 1))


def check_object(file: BackupFile, data: bytes) -> None:
    """Raise CorruptionError unless the bytes are those that a manifest names."""
    if isinstance(keys.parse_key(file.key), keys.SegmentKey):
        verify(data, file.checksum, rows=None, key=file.key, size_bytes=file.size_bytes)
    elif len(data) != file.size_bytes:
        raise CorruptionError(f"{file.key} has {len(data):,} bytes, and should have {file.size_bytes:,}")
    elif digest_of(data) != file.checksum:
        raise CorruptionError(f"{file.key} is damaged: its digest differs")


class Chain:
    """The entries of a log in their order: each one names the digest of the one before.

    Attributes:
        version: of the last entry; -1 before the first.
        digest: its digest.
    """

    def __init__(self, version: int = -1, digest: str = "") -> None:
        self.version = version
        self.digest = digest

    def check(self, data: bytes) -> Header:
        """The header of the next entry. Raises CorruptionError unless it continues the one before."""
        entry = decode_entry(data, self.version + 1)
        if entry.header.previous != self.digest:
            raise CorruptionError(
                f"entry {self.version + 1} does not continue entry {self.version}: one of the two is damaged"
                if self.version >= 0
                else "entry 0 is not the first entry of a log"
            )
        self.version, self.digest = entry.header.version, entry.digest
        return entry.header


class BackupFolder:
    """The folder of a backup on its store."""

    def __init__(self, store: Store, runtime: Runtime) -> None:
        self.store = store
        self._runtime = runtime
        self.sizes = dict[str, int]()

    @property
    def address(self) -> str:
        """The folder's address, as its store gives it."""
        return self.store.url(keys.BACKUP_LOG_KEY).removesuffix(f"/{keys.BACKUP_LOG_KEY}")

    @property
    def url(self) -> str:
        """The same for a message."""
        return shortened(self.address)

    def look(self) -> None:
        """List what is there: the sizes of all objects by their keys."""
        self.sizes = {info.key: info.size_bytes for info in self.store.list("")}

    def log(self) -> BackupLog | None:
        """The log that the folder has backups of; None where it has none of any.

        Raises CorruptionError, or UnsupportedFeature for a later format.
        """
        try:
            data = self.store.get(keys.BACKUP_LOG_KEY)
        except ObjectNotFound:
            return None
        return self._read(partial(decode_backup_log, data, keys.BACKUP_LOG_KEY))

    def _read(self, decode: Callable[[], T]) -> T:
        try:
            return decode()
        except CorruptionError as error:
            raise self.damaged([error.message]) from None

    @property
    def versions(self) -> list[int]:
        """The versions that have a backup here, oldest first."""
        return sorted(v for v in map(keys.backup_version, self.sizes) if v is not None)

    def manifest(self, version: int) -> BackupManifest:
        """The manifest of a backup. Raises CorruptionError where it is damaged or gone."""
        key = keys.backup_key(version)
        try:
            data = self.store.get(key)
        except ObjectNotFound:
            raise self.damaged([f"{key} is missing"]) from None
        found = self._read(partial(decode_backup_manifest, data, key))
        if found.version != version:
            raise self.damaged([f"{key} is the manifest of version {found.version}"])
        return found

    def usable_manifests(self) -> list[BackupManifest]:
        """The manifests that can be read, oldest first. A warning names the others, which stand for no backup."""
        found: list[BackupManifest] = []
        for version in self.versions:
            try:
                found.append(self.manifest(version))
            except (CorruptionError, UnsupportedFeature) as error:
                _logger.warning("the backup of version %d cannot be used: %s", version, error.message)
        return found

    def chosen(self, version: int | None) -> BackupManifest:
        """The manifest of the newest backup, or of the one of a version.

        Raises:
            InvalidInputError: the folder has no backup, or none of that version.
            CorruptionError: the manifest is damaged.
        """
        known = self.versions
        if not known and self._has(keys.LOG_FOLDER) and not self._has(keys.BACKUP_FOLDER):
            raise InvalidInputError(
                f"the folder {self.url} is a namespace, and has no backup",
                advice="give the folder of the backup; the namespace to make out of it is the other argument",
            )
        if not known:
            raise InvalidInputError(
                f"the folder {self.url} has no backup: there is no manifest below {keys.BACKUP_FOLDER}",
                advice="check the path; where a backup was interrupted, run it again, which goes on where it ended",
            )
        if version is None:
            return self.manifest(known[-1])
        if version not in known:
            raise InvalidInputError(
                f"the folder {self.url} has no backup of version {version}",
                advice=f"there are backups of version {', '.join(map(str, known[-8:]))}",
            )
        return self.manifest(version)

    def _has(self, folder: str) -> bool:
        return any(True for _ in self.store.list(folder))

    # --- reading what a manifest names ------------------------------------------------------------------------------

    def check_sizes(self, manifest: BackupManifest) -> None:
        """Raise CorruptionError where an object that a manifest names is missing or has another size.

        By the listing alone: before anything of it is read.
        """
        wrong = [
            f"{file.key} is missing"
            if size is None
            else f"{file.key} has {size:,} bytes instead of {file.size_bytes:,}"
            for file in manifest.files
            if (size := self.sizes.get(file.key)) != file.size_bytes
        ]
        entries = [self.sizes.get(keys.entry_key(version)) for version in range(manifest.version + 1)]
        gaps = [version for version, size in enumerate(entries) if size is None]
        wrong += [f"{keys.entry_key(version)} is missing" for version in gaps]
        total = sum(size for size in entries if size is not None)
        if not gaps and total != manifest.entries_bytes:
            wrong.append(f"the entries have {total:,} bytes instead of {manifest.entries_bytes:,}")
        if wrong:
            raise self.damaged(wrong)

    def file(self, file: BackupFile) -> bytes:
        """The bytes of a file. Raises CorruptionError unless they are those that the manifest names."""
        try:
            data = self.store.get(file.key)
            check_object(file, data)
        except ObjectNotFound:
            raise self.damaged([f"{file.key} is missing"]) from None
        except CorruptionError as error:
            raise self.damaged([error.message]) from None
        return data

    def entries(self, manifest: BackupManifest) -> Iterator[Sequence[tuple[int, bytes]]]:
        """The entries of a backup with their versions, in portions; only those that a later one or the manifest names.

        Raises CorruptionError: what was read before is whole all the same.
        """
        chain = Chain()
        waiting: list[tuple[int, bytes]] = []
        for wave in versions_in_waves(0, manifest.version):
            sure, waiting = waiting, []
            for version, data in zip(wave, self._runtime.run_all([partial(self._entry, v) for v in wave]), strict=True):
                self._read(partial(chain.check, data))
                sure += waiting
                waiting = [(version, data)]
            yield sure
        if chain.digest != manifest.digest:
            raise self.damaged([f"entry {manifest.version} is not the one that the manifest names"])
        yield waiting

    def _entry(self, version: int) -> bytes:
        try:
            return self.store.get(keys.entry_key(version))
        except ObjectNotFound:
            raise self.damaged([f"{keys.entry_key(version)} is missing"]) from None

    def damaged(self, what: Sequence[str]) -> CorruptionError:
        """The error for a backup of which something is missing or damaged."""
        more = f", and {len(what) - _SHOWN:,} more" if len(what) > _SHOWN else ""
        return CorruptionError(
            f"the backup at {self.url} is damaged: {'; '.join(what[:_SHOWN])}{more}",
            advice=Words(
                "restore an earlier backup of the folder (",
                Either("version=...", "--version"),
                ") or a copy of the folder; while the original is there, back it up again with ",
                Either("verify=True", "--verify"),
                ", which replaces what is missing or damaged",
            ),
        )


__all__ = [
    "BackupFolder",
    "Chain",
    "Progress",
    "check_object",
    "in_waves",
    "versions_in_waves",
]
