"""A topic as a table to be published: what it shows at each version, from the materialized state."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from catalog.delta_log.commit import LOG_PROPERTIES, Identity, TableMetadata, TableVersion
from catalog.publication import topic_versions
from catalog.publication.table import Action
from catalog.publication.topic_versions import TopicHistory, needs_metadata
from txnlog.errors import InvalidInputError
from txnlog.fold.state import Head, SegmentRecord, State, TopicRecord
from txnlog.format.delta_mode import DELTA, check_delta_columns
from txnlog.format.keys import SEGMENT_COLUMN
from txnlog.log.follower import Follower
from txnlog.sentences import Argument, Call, Words

CONFIGURATION: Final = (
    ("delta.appendOnly", "true"),
    ("delta.enableChangeDataFeed", "true"),
    *LOG_PROPERTIES,
)
"""Table properties. The table is append-only: a topic's rows are only added and rearranged."""


class LogTimes:
    """Timestamps of entries, with a cache of the last one."""

    def __init__(self, follower: Follower) -> None:
        self._follower = follower
        self._last: tuple[int, int] | None = None

    def of(self, version: int) -> int:
        """The timestamp of an entry."""
        last = self._last
        if last is None or last[0] != version:
            last = self._last = version, self._follower.log.entry(version).header.timestamp_ms
        return last[1]


@dataclass(frozen=True, slots=True)
class TableOrigin:
    """The id and creation time of a table, derived from its first entry. No other entry yields the same id."""

    id: str
    created_ms: int


def table_origin(follower: Follower, version: int) -> TableOrigin:
    """The id and creation time of the table that begins with an entry. Raises what ``Log.entry`` does."""
    entry = follower.log.entry(version)
    return TableOrigin(str(uuid.UUID(hex=entry.digest, version=4)), entry.header.timestamp_ms)


def check_published(record: TopicRecord) -> None:
    """Raise InvalidInputError for a topic that is never published, SchemaMismatch for a column that no table has."""
    mode = DELTA.of(record.properties)
    if mode == "off":
        raise InvalidInputError(
            f'the topic {record.name!r} has delta="off": it is never published',
            advice=Words(
                "call ",
                Call("alter_topic", repr(record.name), Argument("delta", "manual")),
                ', or "auto", unless the topic has columns that no Delta table can have',
            ),
        )
    check_delta_columns(record.schema, mode)  # an older txnlog did not check them


class TopicView:
    """What a topic's table shows after a version, by one look at the materialized state."""

    def __init__(self, table: TopicTable, after: int) -> None:
        self._table = table
        follower = table.follower

        def look(state: State) -> tuple[Head, TopicRecord, list[SegmentRecord], dict[int, int], bool]:
            record = state.topics[table.topic]
            base = follower.base
            # The materialized state has all changes after the checkpoint that it was trimmed to.
            whole = base is None or after >= base.version
            found = [item for item in state.segments.values() if item.topic == record.id]
            removed = dict(state.removals)
            return state.head, record, found, removed, whole and all(number in state.segments for number in removed)

        segments: Sequence[SegmentRecord]
        head, record, segments, removals, whole = follower.look(look)
        check_published(record)  # it may have been altered since the call began
        self.newest = head.version
        self._oldest_readable = head.oldest_readable
        if not whole:
            segments, removals = follower.segments(record.id)
        self._history = TopicHistory(record, segments, removals)

    def next_version(self, after: int) -> int | None:
        """See View."""
        return self._history.next_version(
            after,
            newest=self.newest,
            oldest_readable=self._oldest_readable,
            most_files=self._table.most_files,
        )

    def least_version(self, after: int) -> int | None:
        """See View."""
        return self._history.least_version(after, newest=self.newest, oldest_readable=self._oldest_readable)

    def may_show(self, version: int) -> bool:
        """See View."""
        return bool(self._history.changes(version - 1, version))

    def last_change(self, version: int) -> int | None:
        """The last version up to another one that changed the table; None where the topic did not exist yet."""
        return next(reversed(self._history.changes(-1, min(version, self.newest))), None)

    def time_of(self, version: int) -> int:
        """See View."""
        known = self._history.times.get(version)
        return self._table.times.of(version) if known is None else known

    def commit(self, shown: TableVersion) -> bytes:
        """See View."""
        metadata = self._table.metadata() if needs_metadata(self._history.topic, shown) else None
        return topic_versions.topic_commit(self._history, self._table.identity, shown, metadata)

    def file_count(self, version: int) -> int:
        """See View."""
        return len(self._history.visible(version))

    def checkpoint(self, shown: TableVersion) -> Sequence[Action]:
        """See View."""
        return topic_versions.topic_checkpoint(self._history, self._table.identity, shown, self._table.metadata())


class TopicTable:
    """A topic as a table to be published."""

    def __init__(self, follower: Follower, topic: TopicRecord) -> None:
        self.follower = follower
        self.topic = topic.id
        self.name = topic.name
        self.identity = Identity(follower.state.head.first_coordinator, topic=topic.id)
        self.most_files = topic_versions.MOST_FILES
        self.times = LogTimes(follower)
        self._metadata: TableMetadata | None = None

    @property
    def record(self) -> TopicRecord:
        """The topic as it is known now."""
        return self.follower.state.topics[self.topic]

    @property
    def begins(self) -> bool:
        """Whether the table is created if it does not exist: not for a dropped topic."""
        return not self.record.dropped

    def view(self, after: int) -> TopicView:
        """See Table."""
        return TopicView(self, after)

    def refresh(self) -> None:
        """See Table."""
        self.follower.refresh()

    def tidy(self, shown: TableVersion) -> None:
        """See Table. Does nothing: a vacuum deletes the files of a topic."""

    def metadata(self) -> TableMetadata:
        """The metadata of the table, which never changes: its id is derived from the entry that created the topic."""
        if self._metadata is None:
            origin = table_origin(self.follower, self.topic)
            self._metadata = TableMetadata(origin.id, self.name, origin.created_ms, CONFIGURATION, (SEGMENT_COLUMN,))
        return self._metadata


__all__ = ["CONFIGURATION", "LogTimes", "TableOrigin", "TopicTable", "TopicView", "check_published", "table_origin"]
