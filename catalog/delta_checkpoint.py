"""A classic checkpoint of a Delta log: one Parquet file, one row an action, and the object that names it. Pure.

No tombstones: only VACUUM would look for them, which no other writer may do here, and ours looks at the log.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq

from txnlog.limits import MAX_NUMBER

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
"""The actions that a checkpoint may hold, as all engines look for them."""

_ROWS_PER_BATCH: Final = 10_000


def checkpoint_bytes(actions: Iterable[Mapping[str, Mapping[str, Any]]]) -> tuple[bytes, int]:
    """The file of a checkpoint with these actions, each under its name, and how many they are."""
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
    """Mappings as pyarrow wants those of a map: lists of pairs; the format stays a struct."""
    found: dict[str, Any] = {}
    for name, item in body.items():
        if name == "format":
            found[name] = {"provider": item["provider"], "options": list(item["options"].items())}
        else:
            found[name] = list(item.items()) if isinstance(item, Mapping) else item
    return found


def hint_bytes(version: int, data: bytes, actions: int, files: int) -> bytes:
    """What ``_last_checkpoint`` says of a checkpoint."""
    return msgspec.json.encode({"version": version, "size": actions, "sizeInBytes": len(data), "numOfAddFiles": files})


def hinted_version(data: bytes) -> int | None:
    """The version that ``_last_checkpoint`` names, whoever wrote it; None where it names none."""
    try:
        found = msgspec.json.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None
    version = found.get("version") if isinstance(found, dict) else None
    return version if type(version) is int and 0 <= version <= MAX_NUMBER else None


__all__ = ["SCHEMA", "checkpoint_bytes", "hint_bytes", "hinted_version"]
