"""Deriving the versions of a topic's Delta table, and their commits, from the materialized state. Pure.

At a version of the namespace the table has the segments that are visible and the schema that is valid there. A Delta
version takes the table from one version of the namespace to a later one. Its content follows from those two, so that
all publishers write the same, and a lost commit is written again as it was.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import msgspec

from catalog.delta_log.commit import (
    Identity,
    TableMetadata,
    TableVersion,
    added,
    checkpoint_actions,
    commit_lines,
    removed,
)
from catalog.delta_log.statistics import statistics_json
from txnlog.common import ranges
from txnlog.fold.state import SegmentRecord, TopicRecord
from txnlog.format.keys import SEGMENT_COLUMN, relative_segment_key
from txnlog.format.schema import StructField, StructType

MOST_FILES: Final = 5_000
"""The most files that one Delta version adds and removes, unless a single entry has more: some megabytes of JSON."""


@dataclass(frozen=True, slots=True)
class Difference:
    """The segments added and removed between two versions of the namespace, by offset within a partition.

    ``rearranged`` are the numbers of added segments all of whose rows the table had before. ``loud`` is true if a
    segment has some rows that it had, and some new ones: a stream must not miss those, so all files count as changed
    data.
    """

    added: tuple[SegmentRecord, ...]
    removed: tuple[SegmentRecord, ...]
    rearranged: frozenset[int]
    loud: bool


class TopicHistory:
    """What a topic's table shows at each version of the namespace.

    Args:
        topic: the topic.
        segments: its segments; at least those that became visible or were removed after the versions asked for.
        removals: by number of a removed segment the version that removed it.
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
        """The versions after one and up to another that change what the table shows."""
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

        It covers as many entries as fit, at least one. Versions below the oldest readable one are not shown separately,
        since their files may be gone. An entry that replaces segments with new rows begins a Delta version of its own:
        the new rows are shown first, so that streams see them.
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
        """The nearest version that may be shown after one: the same for every publisher."""
        return _least(self.changes(after, newest), oldest_readable)

    def _weight(self, after: int, until: int) -> tuple[int, set[int]]:
        new = {number for _, number, _ in _between(self._by_end, after, until)}
        return len(new) + len(_between(self._by_removal, after, until)), new

    def visible(self, version: int) -> tuple[SegmentRecord, ...]:
        """The segments whose files the table has at a version."""
        return tuple(
            item for _, number, item in _between(self._by_end, -1, version) if not self._is_removed(number, version)
        )

    def _is_removed(self, number: int, version: int) -> bool:
        removed = self._removals.get(number)
        return removed is not None and removed <= version

    def difference(self, before: int, after: int) -> Difference:
        """The segments added and removed between one version and a later one."""
        ended = _between(self._by_end, before, after)
        added = tuple(item for _, number, item in ended if not self._is_removed(number, after))
        gone = _between(self._by_removal, before, after)
        removed = tuple(item for _, _, item in gone if (item.ended_version or 0) <= before)
        rearranged, loud = _rearranged(added, removed)
        return Difference(added, removed, rearranged, loud)

    def add_action(self, record: SegmentRecord, schema: StructType, *, changes: bool) -> dict[str, Any]:
        """The action that adds a segment's file to a table with a schema; later columns are null in it."""
        return add_action(record, schema, changes=changes, own=self.topic.schema_at(record.ended_version or 0))


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
    """The added segments with rows of removed ones only, and whether one has both such rows and new ones."""
    spans: dict[int, list[ranges.Range]] = {}
    for record in removed:
        for item in record.slices:
            if item.offset is not None:
                spans.setdefault(item.partition, []).append((item.offset, record.end_of(item)))
    before = {partition: ranges.normalize(found) for partition, found in spans.items()}
    found: set[int] = set()
    loud = False
    for record in added:
        if not record.compacted:
            continue
        new, size = 0, 0
        for item in record.slices:
            own = ((item.start, record.end_of(item)),)
            size += record.width_of(item)
            new += ranges.size(ranges.subtract(own, before.get(item.partition, ranges.EMPTY)))
        if not new:
            found.add(record.number)
        loud = loud or 0 < new < size
    return frozenset(found), loud


# --- lines ------------------------------------------------------------------------------------------------------------


def schema_json(schema: StructType) -> str:
    """The schema of a topic's table as JSON: the topic's columns, and the segment's number as the partition column.

    Of the columns' metadata only comments are kept: keys that begin with ``delta.`` would have a meaning in Delta.
    """
    fields = [_plain(field) for field in schema.fields]
    return msgspec.json.encode(StructType((*fields, StructField(SEGMENT_COLUMN, "long")))).decode()


def _plain(field: StructField) -> StructField:
    kept = {name: text for name, text in field.metadata.items() if name == "comment"}
    return msgspec.structs.replace(field, metadata=kept)


def topic_commit(
    history: TopicHistory, identity: Identity, shown: TableVersion, metadata: TableMetadata | None
) -> bytes:
    """The commit that takes a topic's table from ``shown.before`` to ``shown.version``.

    ``metadata`` is needed where :func:`needs_metadata` says so.
    """
    change = history.difference(shown.before, shown.version)
    schema = history.topic.schema_at(shown.version)
    actions = [
        *({"remove": remove_action(item, shown.timestamp_ms, loud=change.loud)} for item in change.removed),
        *(
            {"add": history.add_action(item, schema, changes=change.loud or item.number not in change.rearranged)}
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
        ended=was_dropped_by(history.topic, shown.version),
    )


def needs_metadata(topic: TopicRecord, shown: TableVersion) -> bool:
    """Whether a commit states the table's metadata: the first one, and those that change the schema."""
    return shown.delta_version == 0 or any(shown.before < item.version <= shown.version for item in topic.schemas)


def was_dropped_by(topic: TopicRecord, version: int) -> bool:
    """Whether the topic was dropped at or before a version, so that no version of its table follows."""
    return topic.dropped_version is not None and topic.dropped_version <= version


def topic_checkpoint(
    history: TopicHistory, identity: Identity, shown: TableVersion, metadata: TableMetadata
) -> list[Mapping[str, Mapping[str, Any]]]:
    """The actions of a checkpoint of a topic's table at a Delta version."""
    schema = history.topic.schema_at(shown.version)
    return checkpoint_actions(
        identity,
        shown,
        (history.add_action(item, schema, changes=False) for item in history.visible(shown.version)),
        metadata=metadata.as_json(schema_json(schema)),
        ended=was_dropped_by(history.topic, shown.version),
    )


def _operation(change: Difference, shown: TableVersion, *, changed: bool) -> str:
    if shown.delta_version == 0:
        return "CREATE TABLE"
    if change.loud or len(change.rearranged) < len(change.added):
        return "WRITE"
    if change.added or change.removed:
        return "OPTIMIZE"
    return "CHANGE COLUMNS" if changed else "UPDATE"


def add_action(
    record: SegmentRecord, schema: StructType, *, changes: bool, own: StructType | None = None
) -> dict[str, Any]:
    """The action that adds a segment's file; ``own`` as of :func:`statistics_json`."""
    return added(
        relative_segment_key(record.number, record.file),
        record.size_bytes,
        record.timestamp_ms or 0,
        stats=statistics_json(record, schema, own),
        changes=changes,
        partition={SEGMENT_COLUMN: str(record.number)},
    )


def remove_action(record: SegmentRecord, timestamp_ms: int, *, loud: bool = False) -> dict[str, Any]:
    """The action that removes a segment's file. Its rows are in another file, or were deleted by retention."""
    return removed(
        relative_segment_key(record.number, record.file),
        record.size_bytes,
        timestamp_ms,
        changes=loud,
        partition={SEGMENT_COLUMN: str(record.number)},
    )


__all__ = [
    "MOST_FILES",
    "Difference",
    "TopicHistory",
    "add_action",
    "needs_metadata",
    "remove_action",
    "schema_json",
    "topic_checkpoint",
    "topic_commit",
    "was_dropped_by",
]
