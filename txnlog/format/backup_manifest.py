"""What a backup says of itself: the log that a folder has backups of, and of each backup what belongs to it. Pure.

A manifest is put when all that it names is there: a version without one has no backup. Entries are not listed: the
header of each names the digest of the one before, and the manifest that of the last one.
"""

from __future__ import annotations

from typing import Final, Literal, TypeVar

import msgspec
from msgspec import Struct

from txnlog.errors import CorruptionError, UnsupportedFeature
from txnlog.format.codec import digest_of

T = TypeVar("T")

BACKUP_FORMAT: Final = 1
"""The format of manifests that this version of txnlog writes, and the newest one that it reads."""


class BackupLog(Struct, frozen=True, forbid_unknown_fields=True):
    """The log that a folder has backups of: no other log has this first entry.

    Attributes:
        format: of what a backup says of itself.
        namespace: the namespace's name.
        coordinator: its coordinator id.
        beginning: the digest of entry 0.
        version, digest: None and empty: their bytes are as in the first backups, which had one type for marks, too.
    """

    format: int
    namespace: str
    coordinator: int
    beginning: str
    version: None = None
    digest: Literal[""] = ""


class RestoreMark(Struct, frozen=True, forbid_unknown_fields=True):
    """What a folder has in which a restore began and did not end: the backup that is restored there.

    Attributes:
        format: of what a backup says of itself.
        namespace, coordinator, beginning: of the log, as in its ``BackupLog``.
        version: the version that is restored.
        digest: the digest of the entry of that version.
    """

    format: int
    namespace: str
    coordinator: int
    beginning: str
    version: int
    digest: str


class BackupFile(Struct, frozen=True, array_like=True, forbid_unknown_fields=True, gc=False):
    """A file of a backup: a segment with its checksum in the log, or an object of a checkpoint.

    Attributes:
        key: where it is, in the backup as in the namespace.
        size_bytes: its size.
        checksum: of a segment ``crc32:<8 hex>`` or ``footer-crc32:<8 hex>``; else the digest, 32 hexadecimal digits.
    """

    key: str
    size_bytes: int
    checksum: str


class BackupManifest(Struct, frozen=True, forbid_unknown_fields=True):
    """One backup: a namespace at a version.

    Attributes:
        format: of what a backup says of itself.
        namespace: the namespace's name.
        coordinator: its coordinator id.
        beginning: the digest of entry 0.
        version: the newest version; the entries from 0 to it belong to the backup.
        digest: the digest of the entry of that version.
        timestamp_ms: the time of that entry.
        created_ms: when the backup was made.
        entries_bytes: the size of all entries.
        files: all other files: segments, and the objects of checkpoints.
    """

    format: int
    namespace: str
    coordinator: int
    beginning: str
    version: int
    digest: str
    timestamp_ms: int
    created_ms: int
    entries_bytes: int
    files: tuple[BackupFile, ...]

    @property
    def size_bytes(self) -> int:
        """The size of all entries and files."""
        return self.entries_bytes + sum(file.size_bytes for file in self.files)


class _Sealed(Struct, frozen=True, forbid_unknown_fields=True):
    """A text with its digest: damage of what says how to find damage is found as well."""

    digest: str
    backup: msgspec.Raw


_encode: Final = msgspec.json.Encoder().encode
_sealed_decoder: Final = msgspec.json.Decoder(_Sealed)
_log_decoder: Final = msgspec.json.Decoder(BackupLog)
_mark_decoder: Final = msgspec.json.Decoder(RestoreMark)
_manifest_decoder: Final = msgspec.json.Decoder(BackupManifest)


def encode_backup(item: BackupLog | BackupManifest | RestoreMark) -> bytes:
    """The bytes of a manifest, of what names a log, or of the mark of a restore."""
    inner = _encode(item)
    return _encode(_Sealed(digest_of(inner), msgspec.Raw(inner))) + b"\n"


def _opened(data: bytes, key: str) -> bytes:
    try:
        sealed = _sealed_decoder.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise CorruptionError(f"{key} is damaged: {ascii(str(error))[:200]}") from None
    inner = bytes(sealed.backup)
    if digest_of(inner) != sealed.digest:
        raise CorruptionError(f"{key} is damaged: its digest differs")
    return inner


def _check_format(inner: bytes, key: str) -> None:
    try:
        found = msgspec.json.decode(inner)["format"]
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError, KeyError, TypeError):
        raise CorruptionError(f"{key} has no format") from None
    if found != BACKUP_FORMAT:
        raise UnsupportedFeature(f"{key} has the format {str(found)[:20]!a}", advice="use a newer txnlog")


def _decoded(decoder: msgspec.json.Decoder[T], data: bytes, key: str) -> T:
    inner = _opened(data, key)
    _check_format(inner, key)
    try:
        return decoder.decode(inner)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise CorruptionError(f"{key} is damaged: {ascii(str(error))[:200]}") from None


def decode_backup_log(data: bytes, key: str) -> BackupLog:
    """What names a log. Raises CorruptionError, or UnsupportedFeature for a later format."""
    return _decoded(_log_decoder, data, key)


def decode_restore_mark(data: bytes, key: str) -> RestoreMark:
    """The mark of a restore. Raises CorruptionError, or UnsupportedFeature for a later format."""
    return _decoded(_mark_decoder, data, key)


def decode_backup_manifest(data: bytes, key: str) -> BackupManifest:
    """The manifest of a backup. Raises CorruptionError, or UnsupportedFeature for a later format."""
    return _decoded(_manifest_decoder, data, key)


__all__ = [
    "BACKUP_FORMAT",
    "BackupFile",
    "BackupLog",
    "BackupManifest",
    "RestoreMark",
    "decode_backup_log",
    "decode_backup_manifest",
    "decode_restore_mark",
    "encode_backup",
]
