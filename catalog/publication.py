"""Publishing committed topics as Delta tables: which there are, and what each shows by the fold."""

from __future__ import annotations

import threading
import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from catalog import delta_actions
from catalog.delta_actions import NOTHING_SHOWN, Identity, Shown, TableMetadata, TopicHistory, needs_metadata
from catalog.delta_log import DeltaLog
from catalog.table_publisher import Action, Prepared, TablePublisher, Work
from txnlog.codec import decode_entry, digest_of
from txnlog.delta_mode import check_delta_columns, delta_mode
from txnlog.errors import CorruptionError, InvalidInputError, VersionNotAvailable
from txnlog.follower import Follower
from txnlog.keys import SEGMENT_COLUMN
from txnlog.runtime import Runtime
from txnlog.state import SegmentRecord, TopicRecord
from txnlog.store.base import Store

MOST_VERSIONS: Final = 10_000
"""Versions whose mapping one call gives."""


@dataclass(frozen=True)
class Published:
    """A published table.

    Attributes:
        topic: the topic's name.
        delta_version: the newest version of its Delta table; -1 where there is none.
        version: the version of the namespace that it shows.
        timestamp_ms: the time that it bears.
        created: how many versions this call added.
        repaired: versions that were missing or damaged, and which this call wrote again from the log.
        url: where the table is: what ``spark.read.format("delta").load(...)`` and others take.
    """

    topic: str
    delta_version: int
    version: int
    timestamp_ms: int
    created: int
    repaired: tuple[int, ...]
    url: str


@dataclass(frozen=True)
class PublishedVersion:
    """A version of a Delta table, the version of the namespace that it shows, and the time that it bears."""

    delta_version: int
    version: int
    timestamp_ms: int


class TopicView:
    """What a topic's table shows behind a version, by one look at the fold."""

    def __init__(self, table: TopicTable, after: int) -> None:
        self._table = table
        follower = table.follower
        with follower.lock:
            state = follower.state
            self.newest = state.head.version
            self._oldest_readable = state.head.oldest_readable
            record = state.topics[table.topic]
            base = follower.base
            # What changed behind the checkpoint that the fold was trimmed to is in the fold.
            whole = base is None or after >= base.version
            segments: Sequence[SegmentRecord] = [item for item in state.segments.values() if item.topic == record.id]
            removals = dict(state.removals)
            whole = whole and all(number in state.segments for number in removals)
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
        """The version that gave the table what it is at another one; None where there was no topic yet."""
        return next(reversed(self._history.changes(-1, min(version, self.newest))), None)

    def time_of(self, version: int) -> int:
        """See View."""
        known = self._history.times.get(version)
        return self._table.time_of(version) if known is None else known

    def commit(self, shown: Shown) -> Prepared:
        """See View."""
        metadata = self._table.metadata() if needs_metadata(self._history.topic, shown) else None
        return Prepared(delta_actions.topic_commit(self._history, self._table.identity, shown, metadata))

    def checkpoint(self, shown: Shown) -> Sequence[Action]:
        """See View."""
        return delta_actions.topic_checkpoint(self._history, self._table.identity, shown, self._table.metadata())


class TopicTable:
    """A topic as a table to be published."""

    def __init__(self, follower: Follower, topic: TopicRecord) -> None:
        self.follower = follower
        self.topic = topic.id
        self.name = topic.name
        self.identity = Identity(follower.state.head.coordinator, topic=topic.id)
        self.most_files = delta_actions.MOST_FILES
        self._metadata: TableMetadata | None = None
        self._times: dict[int, int] = {}

    @property
    def record(self) -> TopicRecord:
        """The topic as it is known now."""
        return self.follower.state.topics[self.topic]

    @property
    def begins(self) -> bool:
        """Whether a table that is not there is made: not for a topic that is gone."""
        return not self.record.dropped

    def view(self, after: int) -> TopicView:
        """See Table."""
        return TopicView(self, after)

    def refresh(self) -> None:
        """See Table."""
        self.follower.refresh()

    def same_content(self, one: bytes, two: bytes) -> bool:
        """See Table."""
        return delta_actions.same_content(one, two)

    def time_of(self, version: int) -> int:
        """The timestamp of an entry."""
        if version not in self._times:
            self._times = {version: self.follower.log.entry(version).header.timestamp_ms}
        return self._times[version]

    def metadata(self) -> TableMetadata:
        """What does not change: the table's id comes from the entry that created the topic."""
        if self._metadata is None:
            data = self.follower.log.get(self.topic)
            if data is None:
                raise CorruptionError(f"entry {self.topic} is missing below the tail of the log")
            created_ms = decode_entry(data, self.topic).header.timestamp_ms
            table = str(uuid.UUID(hex=digest_of(data), version=4))
            self._metadata = TableMetadata(table, self.name, created_ms, (SEGMENT_COLUMN,))
        return self._metadata


class Publications:
    """The published tables of a namespace, as one process knows them. Thread-safe."""

    def __init__(self, follower: Follower, store: Store, runtime: Runtime) -> None:
        self._follower = follower
        self._store = store
        self._runtime = runtime
        self._lock = threading.Lock()
        self._tables: dict[int, TablePublisher] = {}

    def publish(self, topic: int, *, look: bool = True) -> Published:
        """Bring a topic's table up to what the fold shows. Raises InvalidInputError for one that is never published."""
        record = self._check(topic)
        return self._told(record, *self._table(record).publish(look=look))

    def repair(self, topic: int) -> Published:
        """Look at every version of a topic's table, and write again what is not what the log gives."""
        record = self._check(topic)
        return self._told(record, *self._table(record).repair())

    def _check(self, topic: int) -> TopicRecord:
        record = self._follower.state.topics[topic]
        mode = delta_mode(record.properties)
        if mode == "off":
            raise InvalidInputError(
                f'the topic {record.name!r} has delta="off": it is never published',
                advice='create another topic with delta="manual" or "auto" and copy the rows',
            )
        check_delta_columns(record.schema, mode)  # an older txnlog refused none
        return record

    def _table(self, record: TopicRecord) -> TablePublisher:
        with self._lock:
            known = self._tables.get(record.id)
            if known is None:
                log = DeltaLog(self._store, self._runtime, record.folder)
                known = self._tables[record.id] = TablePublisher(log, TopicTable(self._follower, record))
            return known

    def _told(self, record: TopicRecord, shown: Shown, work: Work) -> Published:
        return Published(
            record.name,
            shown.delta_version,
            shown.version,
            shown.timestamp_ms,
            work.created,
            tuple(work.repaired),
            self._store.url(record.folder),
        )

    def topics(self) -> list[int]:
        """The topics that may be published, those that are gone too, whose tables end."""
        with self._follower.lock:
            records = list(self._follower.state.topics.values())
        return [item.id for item in records if delta_mode(item.properties) != "off"]

    def versions(self, topic: int, most: int) -> tuple[PublishedVersion, ...]:
        """The newest versions of a topic's table and what they show, newest first."""
        table = self._table(self._check(topic))
        last = table.look().delta_version
        wanted = range(last, max(-1, last - most), -1)
        found = self._runtime.run_all([_asking(table, version) for version in wanted])
        return tuple(found)

    def delta_version(self, topic: int, version: int) -> int:
        """The Delta version that shows what the topic was at a version of the namespace.

        Raises VersionNotAvailable where none does.
        """
        record = self._check(topic)
        table = self._table(record)
        newest = table.look()
        view = TopicTable(self._follower, record).view(-1)
        wanted = view.last_change(version)
        if wanted is None or newest == NOTHING_SHOWN or wanted > newest.version:
            shows = f"shows version {newest.version}" if newest != NOTHING_SHOWN else "does not exist"
            raise VersionNotAvailable(
                f"the Delta table of {record.name!r} {shows}, not version {version}",
                advice="publish it first" if wanted is not None else f"the topic was created at version {record.id}",
            )
        low, high = -1, newest.delta_version
        while high - low > 1:
            middle = (low + high) // 2
            if table.says(middle).version < wanted:
                low = middle
            else:
                high = middle
        if table.says(high).version != wanted:
            before = "" if high == 0 else f"version {high - 1} shows {table.says(high - 1).version}, "
            raise VersionNotAvailable(
                f"no version of the Delta table of {record.name!r} shows version {version} alone: several entries were "
                "published as one",
                advice=f"{before}version {high} shows {table.says(high).version}; snapshot(version=...) reads any",
            )
        return high


def _asking(table: TablePublisher, version: int) -> Callable[[], PublishedVersion]:
    def ask() -> PublishedVersion:
        says = table.says(version)
        return PublishedVersion(version, says.version, says.timestamp_ms)

    return ask


def publisher(follower: Follower, store: Store, runtime: Runtime) -> Callable[[int], object]:
    """What publishes topics after commits: the entry point of ``txnlog.publisher``."""
    publications = Publications(follower, store, runtime)
    return lambda topic: publications.publish(topic, look=False)


__all__ = ["MOST_VERSIONS", "Publications", "Published", "PublishedVersion", "TopicTable", "TopicView", "publisher"]
