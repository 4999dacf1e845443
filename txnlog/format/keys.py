"""Every object key of a namespace, and back: nothing else builds or takes apart one. Of the root only the folders.

Keys are relative to the namespace's folder, so a byte copy of the folder is the same namespace.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from txnlog.common.format_limits import ENTRIES_PER_FOLDER
from txnlog.common.names import NAME_PATTERN, TopicName

CATALOG_FOLDER: Final = "_catalog"
"""The root log's folder: a namespace of its own, whose name no user can choose (names begin with a letter or digit)."""

LOG_FOLDER: Final = "_log/"
CHECKPOINT_FOLDER: Final = f"{LOG_FOLDER}checkpoints/"
_PART_FOLDER: Final = f"{CHECKPOINT_FOLDER}parts/"
REPLACED_FOLDER: Final = f"{LOG_FOLDER}replaced/"
"""What repairs replaced."""
PROBE_FOLDER: Final = "_probe/"
"""Below the folder of a log: what is tried before the log is appended to. Deleted afterwards, where that is allowed."""
PROPOSAL_FOLDER: Final = "_proposals/"
"""Not below the log: who may write there may have rows of any topic written, which is more than entries allow."""
COLLECTOR_KEY: Final = f"{PROPOSAL_FOLDER}collector.json"
"""Key of the object that names who collects proposals."""
HEARTBEAT_FOLDER: Final = "_hints/"
SEGMENT_COLUMN: Final = "_txnlog_segment"
"""The partition column that the path of a segment hands to Spark."""
_DELTA_LOG: Final = "_delta_log"
SEGMENTS_TABLE: Final = "_delta/segments"
"""Folder of the published table of segments: names of topics begin with a letter or digit."""
BACKUP_FOLDER: Final = "_backup/"
"""In the folder of a backup, which has the keys of a namespace otherwise: what the backup is of, and its manifests."""
BACKUP_LOG_KEY: Final = f"{BACKUP_FOLDER}log.json"
"""Key of the object that names the log of which a folder has backups: the first one that is put there."""
RESTORE_KEY: Final = "_restore.json"
"""Key of the object that says of a namespace's folder which backup is being restored there: the first, deleted last."""


def entry_key(version: int) -> str:
    """Key of the commit log's slot for one version."""
    return f"{entries_prefix(version // ENTRIES_PER_FOLDER)}{version:020d}.json"


def entries_prefix(number: int, *, slots: int = ENTRIES_PER_FOLDER) -> str:
    """What all keys of so many slots of the commit log begin with: a folder's, or those of a part of it.

    Args:
        number: of the slots: 0 for the first.
        slots: how many: a power of ten.
    """
    first = number * slots
    digits = f"{first:020d}"[: 21 - len(str(slots))] if slots < ENTRIES_PER_FOLDER else ""
    return f"{LOG_FOLDER}{first // ENTRIES_PER_FOLDER:010d}/{digits}"


def manifest_key(version: int) -> str:
    """Key of the checkpoint manifest at one version."""
    return f"{CHECKPOINT_FOLDER}{version:020d}.json"


def part_key(unique: str) -> str:
    """Key of one Parquet part of a checkpoint; ``unique`` is 32 hexadecimal digits."""
    return f"{_PART_FOLDER}{unique}.parquet"


def replaced_key(key: str, digest: str) -> str:
    """Key under which a repair keeps what it replaces: the bytes with a digest, of an entry or of a manifest."""
    kind = "checkpoints" if key.startswith(CHECKPOINT_FOLDER) else "entries"
    version = key.rpartition("/")[2].removesuffix(".json")
    return f"{REPLACED_FOLDER}{kind}/{version}-{digest}.json"


def mailbox_key(writer: str) -> str:
    """Key of a writer's mailbox: its newest proposal. ``writer`` is 32 hexadecimal digits."""
    return f"{PROPOSAL_FOLDER}{writer}.msgpack"


def heartbeat_key(subscription: int, epoch: int) -> str:
    """Key of the sign of life of a subscription's consumer, which is known by its epoch."""
    return f"{HEARTBEAT_FOLDER}{subscription}/{epoch:020d}.json"


def topic_folder(name: TopicName, topic: int, *, first: bool) -> str:
    """Folder of a topic: its name, or ``name~id`` when an earlier topic bore the name."""
    return name if first else f"{name}~{topic}"


def segments_prefix(folder: str) -> str:
    """What the keys of all segments of a topic's folder begin with, and nothing else of the folder does."""
    return f"{folder}/{SEGMENT_COLUMN}="


def segment_key(folder: str, segment: int, file: str) -> str:
    """Key of a segment's Parquet file."""
    return f"{folder}/{relative_segment_key(segment, file)}"


def relative_segment_key(segment: int, file: str) -> str:
    """Path of a segment's file inside its topic's folder."""
    return f"{SEGMENT_COLUMN}={segment}/{file}"


def delta_prefix(folder: str) -> str:
    """What all keys of the Delta log of a table's folder begin with."""
    return f"{folder}/{_DELTA_LOG}/"


def delta_commit_key(folder: str, version: int) -> str:
    """Key of one version of a table's Delta log."""
    return f"{delta_prefix(folder)}{version:020d}.json"


def delta_checkpoint_key(folder: str, version: int) -> str:
    """Key of the classic checkpoint at one version of a table's Delta log."""
    return f"{delta_prefix(folder)}{version:020d}.checkpoint.parquet"


def delta_hint_key(folder: str) -> str:
    """Key of the object that names the newest checkpoint of a table's Delta log."""
    return f"{delta_prefix(folder)}_last_checkpoint"


def table_file_key(folder: str, unique: str) -> str:
    """Key of a data file of a table that is no topic; ``unique`` is 32 hexadecimal digits."""
    return f"{folder}/{unique}.parquet"


def backup_key(version: int) -> str:
    """Key of the manifest of the backup of one version, in the folder of a backup."""
    return f"{BACKUP_FOLDER}{version:020d}.json"


def backup_version(key: str) -> int | None:
    """The version whose backup has its manifest under a key, None where the key is none of a manifest."""
    match = _BACKUP.fullmatch(key)
    return None if match is None else int(match[1])


@dataclass(frozen=True, slots=True)
class EntryKey:
    """A commit-log slot."""

    version: int


@dataclass(frozen=True, slots=True)
class ManifestKey:
    """A checkpoint manifest."""

    version: int


@dataclass(frozen=True, slots=True)
class PartKey:
    """A Parquet part of a checkpoint."""

    unique: str


@dataclass(frozen=True, slots=True)
class ReplacedKey:
    """What a repair kept: the key of the entry or the manifest in whose place it was, and the digest of its bytes."""

    key: str
    digest: str


@dataclass(frozen=True, slots=True)
class MailboxKey:
    """A writer's mailbox; None: the object that names who collects."""

    writer: str | None


@dataclass(frozen=True, slots=True)
class HeartbeatKey:
    """A sign of life of a consumer."""

    subscription: int
    epoch: int


@dataclass(frozen=True, slots=True)
class SegmentKey:
    """A segment's Parquet file."""

    folder: str
    segment: int
    file: str


@dataclass(frozen=True, slots=True)
class DeltaKey:
    """An object of a table's Delta log: of a version its commit or its checkpoint; or the hint (no version)."""

    folder: str
    version: int | None = None
    checkpoint: bool = False


@dataclass(frozen=True, slots=True)
class TableFileKey:
    """A data file of the published table of segments."""

    unique: str


ParsedKey = (
    EntryKey | ManifestKey | PartKey | ReplacedKey | SegmentKey | MailboxKey | HeartbeatKey | DeltaKey | TableFileKey
)

UNIQUE: Final = re.compile(r"[0-9a-f]{32}", re.ASCII)
"""A random 128-bit number, as it stands in keys."""

FILE_NAME: Final = re.compile(rf"{UNIQUE.pattern}\.parquet", re.ASCII)
"""A segment's file name: a random 128-bit number, never chosen by a user, so a log entry cannot point elsewhere."""

_ID: Final = r"0|[1-9][0-9]{0,18}"
_VERSION: Final = r"[0-9]{20}"
_FOLDER: Final = rf"{NAME_PATTERN}(?:~(?:{_ID}))?"
_ENTRY: Final = re.compile(rf"{LOG_FOLDER}([0-9]{{10}})/({_VERSION})\.json", re.ASCII)
_BACKUP: Final = re.compile(rf"{BACKUP_FOLDER}({_VERSION})\.json", re.ASCII)
_MANIFEST: Final = re.compile(rf"{CHECKPOINT_FOLDER}({_VERSION})\.json", re.ASCII)
_PART: Final = re.compile(rf"{_PART_FOLDER}({UNIQUE.pattern})\.parquet", re.ASCII)
_REPLACED: Final = re.compile(
    rf"{REPLACED_FOLDER}(entries|checkpoints)/({_VERSION})-({UNIQUE.pattern})\.json", re.ASCII
)
_MAILBOX: Final = re.compile(rf"{PROPOSAL_FOLDER}({UNIQUE.pattern})\.msgpack", re.ASCII)
_HEARTBEAT: Final = re.compile(rf"{HEARTBEAT_FOLDER}({_ID})/({_VERSION})\.json", re.ASCII)
_SEGMENT: Final = re.compile(rf"({_FOLDER})/{SEGMENT_COLUMN}=({_ID})/({FILE_NAME.pattern})", re.ASCII)
_DELTA: Final = re.compile(
    rf"({_FOLDER}|{SEGMENTS_TABLE})/{_DELTA_LOG}/(?:({_VERSION})\.(json|checkpoint\.parquet)|_last_checkpoint)",
    re.ASCII,
)
_TABLE_FILE: Final = re.compile(rf"{SEGMENTS_TABLE}/({UNIQUE.pattern})\.parquet", re.ASCII)


def parse_key(key: str) -> ParsedKey | None:
    """What a key is, or None where it is none of ours (a stranger's file)."""
    if match := _SEGMENT.fullmatch(key):
        return SegmentKey(match[1], int(match[2]), match[3])
    if match := _ENTRY.fullmatch(key):
        version = int(match[2])
        return EntryKey(version) if int(match[1]) == version // ENTRIES_PER_FOLDER else None
    if match := _MANIFEST.fullmatch(key):
        return ManifestKey(int(match[1]))
    if match := _PART.fullmatch(key):
        return PartKey(match[1])
    if match := _REPLACED.fullmatch(key):
        key_of = entry_key if match[1] == "entries" else manifest_key
        return ReplacedKey(key_of(int(match[2])), match[3])
    if match := _MAILBOX.fullmatch(key):
        return MailboxKey(match[1])
    if key == COLLECTOR_KEY:
        return MailboxKey(None)
    if match := _HEARTBEAT.fullmatch(key):
        return HeartbeatKey(int(match[1]), int(match[2]))
    if match := _DELTA.fullmatch(key):
        return DeltaKey(match[1], None if match[2] is None else int(match[2]), checkpoint=(match[3] or "")[:1] == "c")
    if match := _TABLE_FILE.fullmatch(key):
        return TableFileKey(match[1])
    return None


def kind_of(key: str) -> str:
    """What a key of the whole root is about, for counting requests.

    One of entry, segment, checkpoint, hint, proposal, delta, probe, root and other.
    """
    if key.startswith(f"{CATALOG_FOLDER}/"):
        return "root"
    inner = key.partition("/")[2]
    if inner.startswith(PROBE_FOLDER):
        return "probe"
    parsed = parse_key(inner)
    if isinstance(parsed, EntryKey):
        return "entry"
    if isinstance(parsed, SegmentKey):
        return "segment"
    if isinstance(parsed, HeartbeatKey):
        return "hint"
    if isinstance(parsed, MailboxKey):
        return "proposal"
    if isinstance(parsed, DeltaKey | TableFileKey):
        return "delta"
    return "checkpoint" if isinstance(parsed, ManifestKey | PartKey) else "other"


__all__ = [
    "BACKUP_FOLDER",
    "BACKUP_LOG_KEY",
    "CATALOG_FOLDER",
    "CHECKPOINT_FOLDER",
    "COLLECTOR_KEY",
    "FILE_NAME",
    "HEARTBEAT_FOLDER",
    "LOG_FOLDER",
    "PROBE_FOLDER",
    "PROPOSAL_FOLDER",
    "REPLACED_FOLDER",
    "RESTORE_KEY",
    "SEGMENTS_TABLE",
    "SEGMENT_COLUMN",
    "UNIQUE",
    "DeltaKey",
    "EntryKey",
    "HeartbeatKey",
    "MailboxKey",
    "ManifestKey",
    "ParsedKey",
    "PartKey",
    "ReplacedKey",
    "SegmentKey",
    "TableFileKey",
    "backup_key",
    "backup_version",
    "delta_checkpoint_key",
    "delta_commit_key",
    "delta_hint_key",
    "delta_prefix",
    "entries_prefix",
    "entry_key",
    "heartbeat_key",
    "kind_of",
    "mailbox_key",
    "manifest_key",
    "parse_key",
    "part_key",
    "relative_segment_key",
    "replaced_key",
    "segment_key",
    "segments_prefix",
    "table_file_key",
    "topic_folder",
]
