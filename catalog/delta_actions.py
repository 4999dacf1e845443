"""What a version of a topic's Delta table says: from the fold to the lines of a Delta commit. Pure.

The table at a version of the namespace has the segments that are visible there, and the schema that holds there. A
Delta version takes it from one version of the namespace to a later one: what it says follows from those two, so that
any publisher writes the same, and a commit that was lost is written again as it was.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import msgspec

from catalog.delta_statistics import statistics_json
from txnlog import ranges
from txnlog.keys import SEGMENT_COLUMN, relative_segment_key
from txnlog.schema import StructField, StructType
from txnlog.state import SegmentRecord, TopicRecord

DOMAIN: Final = "txnlog"
"""Of the domain metadata that says what a Delta version shows, and of our writer feature."""

PROTOCOL: Final[dict[str, Any]] = {
    "minReaderVersion": 1,
    "minWriterVersion": 7,
    "writerFeatures": ["appendOnly", "changeDataFeed", "domainMetadata", "inCommitTimestamp", DOMAIN],
}
"""Every reader reads; no other writer knows the last feature, so none writes."""

CONFIGURATION: Final[dict[str, str]] = {
    "delta.appendOnly": "true",
    "delta.enableChangeDataFeed": "true",
    "delta.enableInCommitTimestamps": "true",
    "delta.logRetentionDuration": "interval 5200 weeks",
}

MOST_FILES: Final = 5_000
"""Files that one Delta version adds and removes, unless a single entry has more: some megabytes of JSON."""

_encode: Final = msgspec.json.Encoder(decimal_format="number").encode


@dataclass(frozen=True, slots=True)
class Shown:
    """Which version of the namespace a Delta version shows.

    Attributes:
        delta_version: the version of the table.
        version: of the namespace.
        timestamp_ms: the time that it bears, which grows from one to the next.
        before: the version of the namespace that the Delta version before shows.
    """

    delta_version: int
    version: int
    timestamp_ms: int
    before: int


NOTHING_SHOWN: Final = Shown(-1, -1, -1, -1)
"""Before the first one."""


@dataclass(frozen=True, slots=True)
class Identity:
    """Whose table it is: the namespace by its coordinator id, and the topic by its id or another table by its name."""

    coordinator: int
    topic: int | None = None
    table: str | None = None

    def as_json(self) -> dict[str, Any]:
        """What stands in each commit."""
        if self.topic is not None:
            return {"coordinator": self.coordinator, "topic": self.topic}
        return {"coordinator": self.coordinator, "table": self.table}


@dataclass(frozen=True, slots=True)
class Difference:
    """What takes a table from one version of the namespace to a later one, in the order of offsets of a partition.

    ``rearranged`` holds the numbers of added segments whose rows the table had. ``loud`` where that holds of a part of
    one only: who streams must not lose them without a word, so everything counts as change.
    """

    added: tuple[SegmentRecord, ...]
    removed: tuple[SegmentRecord, ...]
    rearranged: frozenset[int]
    loud: bool


class TopicHistory:
    """What a topic's table shows at each version of the namespace.

    Args:
        topic: the topic.
        segments: its segments; all that became visible or were removed behind the versions that are asked for.
        removals: of removed segments the version that removed them.
    """

    def __init__(self, topic: TopicRecord, segments: Iterable[SegmentRecord], removals: Mapping[int, int]) -> None:
        self.topic = topic
        self._removals = removals
        visible = [item for item in segments if item.state == "visible" and item.ended_version is not None]
        self._by_end = sorted(((item.ended_version or 0, item.number, item) for item in visible), key=_place)
        removed = [(removals[item.number], item.number, item) for item in visible if item.number in removals]
        self._by_removal = sorted(removed, key=_place)
        self.times = {item.ended_version: item.timestamp_ms for item in visible}

    def changes(self, after: int, until: int) -> list[int]:
        """The versions behind one and up to another that change what the table shows."""
        topic = self.topic
        found = {topic.id, *(item.version for item in topic.schemas)}
        if topic.dropped_version is not None:
            found.add(topic.dropped_version)
        chosen = {version for version in found if after < version <= until}
        chosen.update(version for version, _, _ in _between(self._by_end, after, until))
        chosen.update(version for version, _, _ in _between(self._by_removal, after, until))
        return sorted(chosen)

    def next_version(
        self, after: int, *, newest: int, oldest_readable: int, most_files: int = MOST_FILES
    ) -> int | None:
        """The version to show after one; None where nothing changed.

        As many entries as fit, one at least. What ended below the oldest readable version is never shown as it was
        there, for its files may be gone. An entry that replaces segments begins a Delta version if their rows are new:
        they are shown first, so that streams see them.
        """
        versions = self.changes(after, newest)
        least = _least(versions, oldest_readable)
        if least is None:
            return None
        chosen = least
        files, fresh = self._weight(after, least)
        for version in versions:
            if version <= least:
                continue
            more, new = self._weight(chosen, version)
            replaced = {number for _, number, _ in _between(self._by_removal, chosen, version)}
            if files + more > most_files or not fresh.isdisjoint(replaced):
                break
            chosen, files = version, files + more
            fresh |= new
        return chosen

    def least_version(self, after: int, *, newest: int, oldest_readable: int) -> int | None:
        """The nearest version that may be shown after one: the same for whoever asks."""
        return _least(self.changes(after, newest), oldest_readable)

    def _weight(self, after: int, until: int) -> tuple[int, set[int]]:
        new = {number for _, number, _ in _between(self._by_end, after, until)}
        return len(new) + len(_between(self._by_removal, after, until)), new

    def visible(self, version: int) -> tuple[SegmentRecord, ...]:
        """The segments that the table has at a version."""
        return tuple(
            item for _, number, item in _between(self._by_end, -1, version) if not self._is_removed(number, version)
        )

    def _is_removed(self, number: int, version: int) -> bool:
        removed = self._removals.get(number)
        return removed is not None and removed <= version

    def difference(self, before: int, after: int) -> Difference:
        """What takes the table from one version to a later one."""
        ended = _between(self._by_end, before, after)
        added = tuple(item for _, number, item in ended if not self._is_removed(number, after))
        gone = _between(self._by_removal, before, after)
        removed = tuple(item for _, _, item in gone if (item.ended_version or 0) <= before)
        rearranged, loud = _rearranged(added, removed)
        return Difference(added, removed, rearranged, loud)


def _least(versions: Sequence[int], oldest_readable: int) -> int | None:
    return max([versions[0], *(item for item in versions if item <= oldest_readable)]) if versions else None


def _place(item: tuple[int, int, SegmentRecord]) -> tuple[int, int]:
    return item[:2]


def _between(
    items: Sequence[tuple[int, int, SegmentRecord]], after: int, until: int
) -> Sequence[tuple[int, int, SegmentRecord]]:
    first = bisect_right(items, after, key=lambda item: item[0])
    return items[first : bisect_right(items, until, lo=first, key=lambda item: item[0])]


def _rearranged(added: Sequence[SegmentRecord], removed: Sequence[SegmentRecord]) -> tuple[frozenset[int], bool]:
    """Which added segments hold rows that removed ones held, and whether one does in part."""
    spans: dict[int, list[ranges.Range]] = {}
    for record in removed:
        for item in record.slices:
            if item.offset is not None:
                spans.setdefault(item.partition, []).append((item.offset, item.offset + item.rows))
    held = {partition: ranges.normalize(found) for partition, found in spans.items()}
    found: set[int] = set()
    loud = False
    for record in added:
        if not record.compacted:
            continue
        new, size = 0, 0
        for item in record.slices:
            assert item.offset is not None, "a visible segment has offsets"
            own = ((item.offset, item.offset + item.rows),)
            size += item.rows
            new += ranges.size(ranges.subtract(own, held.get(item.partition, ranges.EMPTY)))
        if not new:
            found.add(record.number)
        loud = loud or 0 < new < size
    return frozenset(found), loud


# --- lines ------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class TableMetadata:
    """What a table's metaData says beside its schema."""

    id: str
    name: str
    created_ms: int
    partition_columns: tuple[str, ...] = ()
    configuration: tuple[tuple[str, str], ...] = tuple(CONFIGURATION.items())

    def as_json(self, schema_json: str) -> dict[str, Any]:
        """The action."""
        return {
            "id": self.id,
            "name": self.name,
            "format": {"provider": "parquet", "options": {}},
            "schemaString": schema_json,
            "partitionColumns": list(self.partition_columns),
            "configuration": dict(self.configuration),
            "createdTime": self.created_ms,
        }


def schema_json(schema: StructType) -> str:
    """The schema of a topic's table: the topic's columns, and the segment's number as the partition column.

    Of metadata only comments: names that begin with ``delta.`` would mean something to others.
    """
    fields = [_plain(field) for field in schema.fields]
    return _encode(StructType((*fields, StructField(SEGMENT_COLUMN, "long")))).decode()


def _plain(field: StructField) -> StructField:
    kept = {name: text for name, text in field.metadata.items() if name == "comment"}
    return msgspec.structs.replace(field, metadata=kept)


def commit_lines(
    identity: Identity,
    shown: Shown,
    actions: Iterable[Mapping[str, Any]],
    *,
    operation: str,
    metadata: Mapping[str, Any] | None = None,
    ended: bool = False,
) -> bytes:
    """A whole commit: who wrote it and what it shows, then what it changes.

    Args:
        identity: whose table it is.
        shown: what it shows.
        actions: adds and removes.
        operation: for people who look at the table's history.
        metadata: at the first version, and where the schema changed.
        ended: the topic was dropped: nothing will follow.
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
    shown: Shown,
    files: Iterable[Mapping[str, Any]],
    *,
    metadata: Mapping[str, Any],
    ended: bool = False,
) -> list[Mapping[str, Mapping[str, Any]]]:
    """All that makes a table at a version: what :func:`commit_lines` says over time. ``files`` are the adds."""
    stamp = _stamp_json(identity, shown, ended=ended)
    return [
        {"protocol": PROTOCOL},
        {"metaData": metadata},
        {"domainMetadata": _domain_metadata(stamp, shown)},
        *({"add": file} for file in files),
    ]


def _stamp_json(identity: Identity, shown: Shown, *, ended: bool) -> dict[str, Any]:
    """The stamp of a commit: what it says of itself."""
    stamp: dict[str, Any] = {**identity.as_json(), "before": shown.before, "version": shown.version}
    return {**stamp, "ended": True} if ended else stamp


def _domain_metadata(stamp: Mapping[str, Any], shown: Shown) -> dict[str, Any]:
    """What lasts, when the commits are gone."""
    configuration = _encode({**stamp, "timestamp": shown.timestamp_ms}).decode()
    return {"domain": DOMAIN, "configuration": configuration, "removed": False}


def topic_commit(history: TopicHistory, identity: Identity, shown: Shown, metadata: TableMetadata | None) -> bytes:
    """The commit that takes a topic's table from what it showed before to what is shown now.

    ``metadata`` is needed where :func:`needs_metadata` says so.
    """
    change = history.difference(shown.before, shown.version)
    schema = history.topic.schema_at(shown.version)
    actions = [
        *({"remove": remove_action(item, shown.timestamp_ms, loud=change.loud)} for item in change.removed),
        *(
            {"add": add_action(item, schema, changes=change.loud or item.number not in change.rearranged)}
            for item in change.added
        ),
    ]
    stated = None
    if needs_metadata(history.topic, shown):
        assert metadata is not None, "it was asked for"
        stated = metadata.as_json(schema_json(schema))
    return commit_lines(
        identity,
        shown,
        actions,
        operation=_operation(change, shown, changed=stated is not None),
        metadata=stated,
        ended=has_ended(history.topic, shown.version),
    )


def needs_metadata(topic: TopicRecord, shown: Shown) -> bool:
    """Whether a commit states the table's metadata: the first one, and those that change the schema."""
    return shown.delta_version == 0 or any(shown.before < item.version <= shown.version for item in topic.schemas)


def has_ended(topic: TopicRecord, version: int) -> bool:
    """Whether the topic was dropped at a version: nothing follows."""
    return topic.dropped_version is not None and topic.dropped_version <= version


def topic_checkpoint(
    history: TopicHistory, identity: Identity, shown: Shown, metadata: TableMetadata
) -> list[Mapping[str, Mapping[str, Any]]]:
    """The actions of a checkpoint: all that makes the table at a Delta version."""
    schema = history.topic.schema_at(shown.version)
    return checkpoint_actions(
        identity,
        shown,
        (add_action(item, schema, changes=False) for item in history.visible(shown.version)),
        metadata=metadata.as_json(schema_json(schema)),
        ended=has_ended(history.topic, shown.version),
    )


def _operation(change: Difference, shown: Shown, *, changed: bool) -> str:
    if shown.delta_version == 0:
        return "CREATE TABLE"
    if change.loud or len(change.rearranged) < len(change.added):
        return "WRITE"
    if change.added or change.removed:
        return "OPTIMIZE"
    return "CHANGE COLUMNS" if changed else "UPDATE"


def add_action(record: SegmentRecord, schema: StructType, *, changes: bool) -> dict[str, Any]:
    """The action that adds a segment's file."""
    return {
        "path": relative_segment_key(record.number, record.file),
        "partitionValues": {SEGMENT_COLUMN: str(record.number)},
        "size": record.size_bytes,
        "modificationTime": record.timestamp_ms or 0,
        "dataChange": changes,
        "stats": statistics_json(record, schema),
    }


def remove_action(record: SegmentRecord, timestamp_ms: int, *, loud: bool = False) -> dict[str, Any]:
    """The action that removes a segment's file. Its rows stay, in another one, or went by retention."""
    return {
        "path": relative_segment_key(record.number, record.file),
        "deletionTimestamp": timestamp_ms,
        "dataChange": loud,
        "extendedFileMetadata": True,
        "partitionValues": {SEGMENT_COLUMN: str(record.number)},
        "size": record.size_bytes,
    }


__all__ = [
    "CONFIGURATION",
    "DOMAIN",
    "MOST_FILES",
    "NOTHING_SHOWN",
    "PROTOCOL",
    "Difference",
    "Identity",
    "Shown",
    "TableMetadata",
    "TopicHistory",
    "add_action",
    "checkpoint_actions",
    "commit_lines",
    "has_ended",
    "needs_metadata",
    "remove_action",
    "schema_json",
    "topic_checkpoint",
    "topic_commit",
]
