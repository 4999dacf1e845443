"""Building Delta commits and the actions of checkpoints, for topics and other tables alike. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Final

import msgspec

DOMAIN: Final = "txnlog"
"""Name of the domain metadata that says what a Delta version shows, and of txnlog's own writer feature."""

PROTOCOL: Final[dict[str, Any]] = {
    "minReaderVersion": 1,
    "minWriterVersion": 7,
    "writerFeatures": ["appendOnly", "changeDataFeed", "domainMetadata", "inCommitTimestamp", DOMAIN],
}
"""Every reader can read the table; no other writer knows the last feature, so no other writes to it."""

LOG_PROPERTIES: Final = (
    ("delta.enableInCommitTimestamps", "true"),
    ("delta.logRetentionDuration", "interval 5200 weeks"),
)
"""The properties of every table's log. To an engine that cleans up no version of it is ever old enough."""

NO_PARTITION: Final[Mapping[str, str]] = MappingProxyType({})
"""The partition values of files in a table without partition columns."""

_encode: Final = msgspec.json.Encoder(decimal_format="number").encode


@dataclass(frozen=True, slots=True)
class TableVersion:
    """Which version of the namespace a Delta version shows.

    Attributes:
        delta_version: the version of the table.
        version: of the namespace.
        timestamp_ms: its in-commit timestamp in epoch milliseconds, which increases from version to version.
        before: the version of the namespace that the preceding Delta version shows.
    """

    delta_version: int
    version: int
    timestamp_ms: int
    before: int


NO_VERSION: Final = TableVersion(-1, -1, -1, -1)
"""The predecessor of a table's first version."""


@dataclass(frozen=True, slots=True)
class Identity:
    """Identifies a table: its namespace by coordinator id, and its topic by id, or a table that is no topic by name."""

    coordinator: int
    topic: int | None = None
    table: str | None = None

    def as_json(self) -> dict[str, Any]:
        """The fields that each commit of the table contains."""
        if self.topic is not None:
            return {"coordinator": self.coordinator, "topic": self.topic}
        return {"coordinator": self.coordinator, "table": self.table}


@dataclass(frozen=True, slots=True)
class TableMetadata:
    """The metaData action of a table, without its schema."""

    id: str
    name: str
    created_ms: int
    configuration: tuple[tuple[str, str], ...]
    partition_columns: tuple[str, ...] = ()

    def as_json(self, schema_json: str) -> dict[str, Any]:
        """The body of the action."""
        return {
            "id": self.id,
            "name": self.name,
            "format": {"provider": "parquet", "options": {}},
            "schemaString": schema_json,
            "partitionColumns": list(self.partition_columns),
            "configuration": dict(self.configuration),
            "createdTime": self.created_ms,
        }


def added(
    path: str,
    size_bytes: int,
    modified_ms: int,
    *,
    stats: str,
    changes: bool,
    partition: Mapping[str, str] = NO_PARTITION,
) -> dict[str, Any]:
    """The body of an action that adds a file.

    Args:
        path: relative to the table's folder.
        size_bytes: of the file.
        modified_ms: for people and for engines that ask: a time that follows from the log.
        stats: Delta's statistics of the file, as JSON.
        changes: whether streams are to see its rows; in a checkpoint never.
        partition: by partition column its value.
    """
    return {
        "path": path,
        "partitionValues": dict(partition),
        "size": size_bytes,
        "modificationTime": modified_ms,
        "dataChange": changes,
        "stats": stats,
    }


def removed(
    path: str, size_bytes: int, timestamp_ms: int, *, changes: bool, partition: Mapping[str, str] = NO_PARTITION
) -> dict[str, Any]:
    """The body of an action that removes a file. With ``changes`` a stream stops rather than miss the change."""
    return {
        "path": path,
        "deletionTimestamp": timestamp_ms,
        "dataChange": changes,
        "extendedFileMetadata": True,
        "partitionValues": dict(partition),
        "size": size_bytes,
    }


def commit_lines(
    identity: Identity,
    shown: TableVersion,
    actions: Iterable[Mapping[str, Any]],
    *,
    operation: str,
    metadata: Mapping[str, Any] | None = None,
    ended: bool = False,
) -> bytes:
    """The bytes of a commit: first what identifies it and what it shows, then its file actions.

    Args:
        identity: the table.
        shown: what the commit shows.
        actions: its adds and removes.
        operation: a name for the table's history, which people read.
        metadata: the body of metaData, at the first version and where the schema changed.
        ended: whether the topic was dropped, so that no version follows.
    """
    stamp = _stamp_json(identity, shown, ended=ended)
    lines: list[Mapping[str, Any]] = [
        {
            "commitInfo": {
                "inCommitTimestamp": shown.timestamp_ms,
                "timestamp": shown.timestamp_ms,
                "operation": operation,
                "operationParameters": {"namespaceVersion": str(shown.version)},
                "engineInfo": "txnlog",
                "txnlog": stamp,
            }
        }
    ]
    if shown.delta_version == 0:
        lines.append({"protocol": PROTOCOL})
    if metadata is not None:
        lines.append({"metaData": metadata})
    lines.append({"domainMetadata": _domain_metadata(stamp, shown)})
    return b"".join(_encode(line) + b"\n" for line in (*lines, *actions))


def checkpoint_actions(
    identity: Identity,
    shown: TableVersion,
    files: Iterable[Mapping[str, Any]],
    *,
    metadata: Mapping[str, Any],
    ended: bool = False,
) -> list[Mapping[str, Mapping[str, Any]]]:
    """The actions of a checkpoint: a table's whole state at a version. ``files`` are the bodies of its adds."""
    stamp = _stamp_json(identity, shown, ended=ended)
    return [
        {"protocol": PROTOCOL},
        {"metaData": metadata},
        {"domainMetadata": _domain_metadata(stamp, shown)},
        *({"add": file} for file in files),
    ]


def _stamp_json(identity: Identity, shown: TableVersion, *, ended: bool) -> dict[str, Any]:
    """The stamp of a commit: its table and the versions of the namespace that it and its predecessor show."""
    stamp: dict[str, Any] = {**identity.as_json(), "before": shown.before, "version": shown.version}
    return {**stamp, "ended": True} if ended else stamp


def _domain_metadata(stamp: Mapping[str, Any], shown: TableVersion) -> dict[str, Any]:
    """The stamp as domain metadata: checkpoints contain it, so that it outlasts the commits."""
    configuration = _encode({**stamp, "timestamp": shown.timestamp_ms}).decode()
    return {"domain": DOMAIN, "configuration": configuration, "removed": False}


__all__ = [
    "DOMAIN",
    "LOG_PROPERTIES",
    "NO_PARTITION",
    "NO_VERSION",
    "PROTOCOL",
    "Identity",
    "TableMetadata",
    "TableVersion",
    "added",
    "checkpoint_actions",
    "commit_lines",
    "removed",
]
