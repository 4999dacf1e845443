"""Classic checkpoints of a Delta log: one Parquet file with a row for each action, and ``_last_checkpoint``. Pure.

They contain no tombstones: only VACUUM needs those; no other writer may run it here, and ours reads the log instead.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq

from catalog.delta_log.parquet_footer import read_footer
from txnlog.common.format_limits import MAX_NUMBER
from txnlog.data.parquet_pages import DamagedError

_TEXTS: Final = pa.map_(pa.string(), pa.string())

SCHEMA: Final = pa.schema(
    [
        ("txn", pa.struct([("appId", pa.string()), ("version", pa.int64()), ("lastUpdated", pa.int64())])),
        (
            "add",
            pa.struct(
                [
                    ("path", pa.string()),
                    ("partitionValues", _TEXTS),
                    ("size", pa.int64()),
                    ("modificationTime", pa.int64()),
                    ("dataChange", pa.bool_()),
                    ("stats", pa.string()),
                    ("tags", _TEXTS),
                ]
            ),
        ),
        (
            "remove",
            pa.struct(
                [
                    ("path", pa.string()),
                    ("deletionTimestamp", pa.int64()),
                    ("dataChange", pa.bool_()),
                    ("extendedFileMetadata", pa.bool_()),
                    ("partitionValues", _TEXTS),
                    ("size", pa.int64()),
                ]
            ),
        ),
        (
            "metaData",
            pa.struct(
                [
                    ("id", pa.string()),
                    ("name", pa.string()),
                    ("description", pa.string()),
                    ("format", pa.struct([("provider", pa.string()), ("options", _TEXTS)])),
                    ("schemaString", pa.string()),
                    ("partitionColumns", pa.list_(pa.field("element", pa.string()))),
                    ("configuration", _TEXTS),
                    ("createdTime", pa.int64()),
                ]
            ),
        ),
        (
            "protocol",
            pa.struct(
                [
                    ("minReaderVersion", pa.int32()),
                    ("minWriterVersion", pa.int32()),
                    ("readerFeatures", pa.list_(pa.field("element", pa.string()))),
                    ("writerFeatures", pa.list_(pa.field("element", pa.string()))),
                ]
            ),
        ),
        (
            "domainMetadata",
            pa.struct([("domain", pa.string()), ("configuration", pa.string()), ("removed", pa.bool_())]),
        ),
    ]
)
"""The columns of a checkpoint, one for each kind of action, with the types that all engines expect."""

_ROWS_PER_BATCH: Final = 10_000

_ALWAYS_THERE: Final = frozenset({"add", "metaData", "protocol"})
"""Columns that every checkpoint has, whoever made it."""


@dataclass(frozen=True, slots=True)
class Hint:
    """The content of ``_last_checkpoint``: a version, and the size of its checkpoint in bytes (None: not stated)."""

    version: int
    size_bytes: int | None


def checkpoint_bytes(actions: Iterable[Mapping[str, Mapping[str, Any]]]) -> tuple[bytes, int]:
    """The Parquet file of a checkpoint with these actions, each under its name, and their number."""
    sink = pa.BufferOutputStream()
    count = 0
    with pq.ParquetWriter(sink, SCHEMA, compression="snappy", store_schema=False) as writer:
        waiting: list[Mapping[str, Mapping[str, Any]]] = []
        for action in actions:
            waiting.append(action)
            count += 1
            if len(waiting) == _ROWS_PER_BATCH:
                writer.write_table(_table(waiting))
                waiting = []
        if waiting:
            writer.write_table(_table(waiting))
    return sink.getvalue().to_pybytes(), count


def _table(actions: list[Mapping[str, Mapping[str, Any]]]) -> pa.Table:
    rows = [{name: _as_maps(body) for name, body in action.items()} for action in actions]
    return pa.Table.from_pylist(rows, SCHEMA)


def _as_maps(body: Mapping[str, Any]) -> dict[str, Any]:
    """An action's body with maps as lists of pairs, as PyArrow wants them; ``format`` stays a struct."""
    found: dict[str, Any] = {}
    for name, item in body.items():
        if name == "format":
            found[name] = {"provider": item["provider"], "options": list(item["options"].items())}
        else:
            found[name] = list(item.items()) if isinstance(item, Mapping) else item
    return found


def hint_bytes(version: int, data: bytes, actions: int, files: int) -> bytes:
    """The content of ``_last_checkpoint`` for a checkpoint."""
    return msgspec.json.encode({"version": version, "size": actions, "sizeInBytes": len(data), "numOfAddFiles": files})


def parse_hint(data: bytes) -> Hint | None:
    """Parse ``_last_checkpoint``, whoever wrote it; None where it names no version."""
    try:
        found = msgspec.json.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None
    if not isinstance(found, dict):
        return None
    version, size = found.get("version"), found.get("sizeInBytes")
    if type(version) is not int or not 0 <= version <= MAX_NUMBER:
        return None
    return Hint(version, size if type(size) is int else None)


def is_checkpoint(read: Callable[[int, int], bytes], size_bytes: int) -> bool:
    """Whether a file has the footer of a checkpoint, whoever made it. None of its pages is read.

    Args:
        read: the bytes of the file from one position to before another, fewer where it ends.
        size_bytes: of the file.
    """
    try:
        footer = read_footer(read, size_bytes)
    except DamagedError:
        return False
    return footer.rows > 0 and _ALWAYS_THERE.issubset(chunk.column for chunk in footer.chunks)


__all__ = ["SCHEMA", "Hint", "checkpoint_bytes", "hint_bytes", "is_checkpoint", "parse_hint"]
