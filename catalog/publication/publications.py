"""Publishing the topics of a namespace as Delta tables, one or all, and mapping Delta versions to the namespace's."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Final, TypeAlias

from catalog.delta_log.commit import NO_VERSION, Identity, TableVersion
from catalog.delta_log.commit_stamp import DamagedCommitError, stamp_of
from catalog.delta_log.objects import DeltaLog
from catalog.publication import dropped_table
from catalog.publication.segments_table import SegmentsTable
from catalog.publication.table_publisher import Changes, TablePublisher
from catalog.publication.topic_table import TopicTable, check_published
from txnlog.client.auto_publisher import Unpublished
from txnlog.engine.runtime import Runtime
from txnlog.errors import Durable, ForeignDeltaLog, TxnLogError, VersionNotAvailable
from txnlog.fold import garbage
from txnlog.fold.state import TopicRecord
from txnlog.format.delta_mode import DELTA, is_auto
from txnlog.format.keys import SEGMENTS_TABLE
from txnlog.log.follower import Follower
from txnlog.replies import after_part, reworded
from txnlog.store.base import ObjectInfo, Store

_logger = logging.getLogger("txnlog.publisher")

MOST_VERSIONS: Final = 10_000
"""The most versions for which one call returns the mapping."""


@dataclass(frozen=True)
class Published:
    """A published table.

    Attributes:
        topic: the topic's name; of the table of segments its folder.
        delta_version: the newest version of its Delta table; -1 where there is none.
        version: the version of the namespace that it shows.
        timestamp_ms: its in-commit timestamp in epoch milliseconds.
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


_Publish: TypeAlias = Callable[[TablePublisher], tuple[TableVersion, Changes]]
"""An operation on a table: publishing or repair."""

_Outcomes: TypeAlias = tuple[list[Published], dict[str, TxnLogError], bool]
"""The results for several tables: those that exist and are up to date, the errors of others by name, and whether
anything was written for those without an error."""


@dataclass(frozen=True)
class PublishedVersion:
    """A version of a published Delta table.

    Attributes:
        delta_version: its number.
        version: the version of the namespace that it shows.
        timestamp_ms: its in-commit timestamp in epoch milliseconds.
    """

    delta_version: int
    version: int
    timestamp_ms: int


class Publications:
    """The published tables of a namespace, as one process knows them. Thread-safe."""

    def __init__(self, follower: Follower, store: Store, runtime: Runtime) -> None:
        self._follower = follower
        self._store = store
        self._runtime = runtime
        self._idle: dict[int | None, TablePublisher] = {}
        """By topic, None for the segments: the publisher that nobody uses, which knows what the table shows."""

    def publish(self, topic: int) -> Published:
        """Bring a topic's table up to what the follower knows.

        Raises InvalidInputError for one that is never published.
        """
        return self._of_topic(topic, TablePublisher.publish)[0]

    def publish_after_commit(self, topic: int) -> None:
        """Bring a topic's table up to what the follower knows, unless no readable version shows the topic."""
        if not self.is_over(topic):
            self.publish(topic)

    def repair(self, topic: int) -> Published:
        """Check every version of a topic's table, and write again those that are not what the log yields."""
        return self._of_topic(topic, TablePublisher.repair)[0]

    def publish_all(self) -> tuple[Published, ...]:
        """Bring all tables up to what the follower knows, that of the segments last. Returns those that exist.

        A failure does not stop the others. The first one is raised at the end, and says which tables are up to date.
        """
        return _all(*self._of_each(TablePublisher.publish))

    def repair_all(self) -> tuple[Published, ...]:
        """Repair all tables, in the manner of :meth:`publish_all`."""
        return _all(*self._of_each(TablePublisher.repair))

    def repair_there(self) -> Mapping[str, tuple[int, ...] | TxnLogError]:
        """Repair the tables that are there, and make none. By folder the versions that were written again, or why not.

        The table of a dropped topic is one of them until no readable version shows the topic.
        """
        found: dict[str, tuple[int, ...] | TxnLogError] = {}
        topics = [self._follower.state.topics[number] for number in self._topics(_is_published)]
        tables: list[tuple[str, Callable[[], AbstractContextManager[TablePublisher]]]] = [
            (item.folder, partial(self._table, item)) for item in topics
        ]
        for folder, table in (*tables, (SEGMENTS_TABLE, self._segments_table)):
            if not DeltaLog(self._store, self._runtime, folder).objects():
                continue
            try:
                with table() as publisher:
                    found[folder] = tuple(publisher.repair()[1].repaired)
            except TxnLogError as error:
                found[folder] = error
        return found

    def publish_auto(self) -> Mapping[str, TxnLogError]:
        """Bring the tables of the topics with ``delta="auto"`` up to what the follower knows.

        The table of segments is one of them if such a topic exists: for a namespace without any, nothing is written.

        Returns the errors by the name of the table.
        """
        topics = self._follower.topics()
        wanted = any(not item.dropped and is_auto(item.properties) for item in topics)
        return self._of_each(TablePublisher.publish, lambda item: is_auto(item.properties), segments=wanted)[1]

    def _of_topic(self, topic: int, publish: _Publish) -> tuple[Published, Changes]:
        record = self._check(topic)
        with self._table(record) as table:
            return _done(record.name, table, publish)

    def _of_each(
        self, publish: _Publish, wanted: Callable[[TopicRecord], bool] | None = None, *, segments: bool = True
    ) -> _Outcomes:
        """Publish or repair the tables of the wanted topics, and last that of the segments."""
        done: list[tuple[Published, Changes]] = []
        failed: dict[str, TxnLogError] = {}
        for number in self._topics(wanted or _is_published):
            try:
                done.append(self._of_topic(number, publish))
            except TxnLogError as error:
                record = self._follower.state.topics[number]
                if not record.dropped:
                    failed[record.name] = error
                elif isinstance(error, ForeignDeltaLog):
                    # Nobody waits for the end of this table, and the foreign table in its place may stay for ever.
                    _logger.info("the table of the dropped topic %r could not be ended: %s", record.name, error.message)
                else:
                    failed[f"{record.name} (dropped at version {record.dropped_version})"] = error
        if segments:
            try:
                with self._segments_table() as table:
                    done.append(_done(SEGMENTS_TABLE, table, publish))
            except TxnLogError as error:
                failed[SEGMENTS_TABLE] = error
        there = [item for item, _ in done if item.delta_version >= 0]
        return there, failed, any(changes.wrote for _, changes in done)

    def _check(self, topic: int) -> TopicRecord:
        record = self._follower.state.topics[topic]
        check_published(record)
        return record

    def _table(self, record: TopicRecord) -> AbstractContextManager[TablePublisher]:
        def made() -> TablePublisher:
            log = DeltaLog(self._store, self._runtime, record.folder)
            return TablePublisher(log, TopicTable(self._follower, record))

        return self._lent(record.id, made)

    def _segments_table(self) -> AbstractContextManager[TablePublisher]:
        def made() -> TablePublisher:
            log = DeltaLog(self._store, self._runtime, SEGMENTS_TABLE)
            return TablePublisher(log, SegmentsTable(self._follower, log, self._runtime))

        return self._lent(None, made)

    @contextmanager
    def _lent(self, topic: int | None, made: Callable[[], TablePublisher]) -> Iterator[TablePublisher]:
        """The publisher of a table, for one call. One whose call is interrupted is not used again.

        Whoever comes meanwhile gets another one, as in another process, and waits for nobody: it may be the handler of
        a signal, or a finalizer, in the middle of that call.
        """
        publisher = self._idle.pop(topic, None) or made()
        try:
            yield publisher
        except TxnLogError:
            self._idle[topic] = publisher
            raise
        self._idle[topic] = publisher

    def _topics(self, wanted: Callable[[TopicRecord], bool]) -> list[int]:
        """The ids of the wanted topics, also of dropped ones until no readable version shows them."""
        records = self._follower.topics()
        return [item.id for item in records if wanted(item) and not self.is_over(item.id)]

    def is_over(self, topic: int) -> bool:
        """Whether no readable version shows a topic, so that its table is deleted and not repaired."""
        return self._follower.look(lambda state: garbage.is_over(state.topics[topic], state.head.oldest_readable))

    def unpublished(self, topic: int) -> Unpublished | None:
        """What a topic's table lacks of what the follower knows; None where there is no table of the topic. Reads only.

        What is damaged says nothing: the next publication finds it.
        """
        record = self._follower.state.topics[topic]
        log, table = DeltaLog(self._store, self._runtime, record.folder), TopicTable(self._follower, record)
        newest = max(log.listed().commits, default=None)
        data = None if newest is None else log.get(newest)
        try:
            stamp = None if data is None else stamp_of(data)
            if stamp is None or not stamp.is_of(table.identity):
                return None
            shown = stamp.version
        except DamagedCommitError:
            return None
        view = table.view(shown)
        lacks = view.least_version(shown)
        return None if lacks is None else Unpublished(shown, view.time_of(lacks))

    def remains(self, topic: TopicRecord) -> Sequence[Sequence[ObjectInfo]]:
        """The objects left of the table of a topic that is over. See :mod:`catalog.publication.dropped_table`."""
        self._idle.pop(topic.id, None)
        log = DeltaLog(self._store, self._runtime, topic.folder)
        return dropped_table.remains(log, Identity(self._follower.state.head.first_coordinator, topic=topic.id))

    def versions(self, topic: int, most: int) -> tuple[PublishedVersion, ...]:
        """The newest versions of a topic's table with the versions of the namespace that they show, newest first."""
        with self._table(self._check(topic)) as table:
            last = table.repair_newest().delta_version
        wanted = range(last, max(-1, last - most), -1)
        return tuple(self._runtime.run_all([partial(_published_version, table, version) for version in wanted]))

    def delta_version(self, topic: int, version: int) -> int:
        """The Delta version that shows what the topic was at a version of the namespace.

        Raises VersionNotAvailable where none does.
        """
        record = self._check(topic)
        with self._table(record) as table:
            newest = table.repair_newest()
        view = TopicTable(self._follower, record).view(-1)
        if version > view.newest:
            raise VersionNotAvailable(
                f"there is no version {version} of the namespace", advice=f"its newest one is {view.newest}"
            )
        wanted = view.last_change(version)
        if wanted is None or newest == NO_VERSION or wanted > newest.version:
            shows = f"shows version {newest.version}" if newest != NO_VERSION else "does not exist"
            raise VersionNotAvailable(
                f"the Delta table of {record.name!r} {shows}, not version {version}",
                advice="publish it first" if wanted is not None else f"the topic was created at version {record.id}",
            )
        low, high = -1, newest.delta_version
        while high - low > 1:
            middle = (low + high) // 2
            if table.stamp(middle).version < wanted:
                low = middle
            else:
                high = middle
        if table.stamp(high).version != wanted:
            before = "" if high == 0 else f"version {high - 1} shows {table.stamp(high - 1).version}, "
            raise VersionNotAvailable(
                f"no version of the Delta table of {record.name!r} shows version {version} alone: several entries were "
                "published as one",
                advice=f"{before}version {high} shows {table.stamp(high).version}; snapshot(version=...) reads any",
            )
        return high


def _is_published(record: TopicRecord) -> bool:
    return DELTA.of(record.properties) != "off"


def _done(name: str, table: TablePublisher, publish: _Publish) -> tuple[Published, Changes]:
    shown, changes = publish(table)
    published = Published(
        name,
        shown.delta_version,
        shown.version,
        shown.timestamp_ms,
        changes.created,
        tuple(changes.repaired),
        table.log.url(),
    )
    return published, changes


def _published_version(table: TablePublisher, version: int) -> PublishedVersion:
    stamp = table.stamp(version)
    return PublishedVersion(version, stamp.version, stamp.timestamp_ms)


def _all(done: Sequence[Published], failed: Mapping[str, TxnLogError], wrote: bool) -> tuple[Published, ...]:
    if failed:
        raise _partly(done, failed, wrote)
    return tuple(done)


def _partly(done: Sequence[Published], failed: Mapping[str, TxnLogError], wrote: bool) -> TxnLogError:
    """The first error of several tables, extended by which tables are up to date; ``durable`` covers all of them."""
    first, *others = failed.values()
    message = first.message
    if done:
        names = ", ".join(repr(item.topic) for item in done)
        message += f"; up to date are {names}, not {', '.join(map(repr, failed))}"
    elif others:
        message += f"; none is up to date of {', '.join(map(repr, failed))}"
    reply = reworded(first, message=message)
    if wrote or any(item.durable is Durable.MAYBE for item in others):
        reply = after_part(reply)
    for name, error in failed.items():
        if error is not first:
            reply.add_note(f"{name!r}: {error}")
    return reply


def publisher(follower: Follower, store: Store, runtime: Runtime) -> Publications:
    """Create the publisher of a namespace, for the entry point ``txnlog.publisher``."""
    return Publications(follower, store, runtime)


__all__ = ["MOST_VERSIONS", "Publications", "Published", "PublishedVersion", "publisher"]
