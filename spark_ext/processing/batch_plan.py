"""What a batch of ``spark_ext.process`` is: whose subscription it is, what it reads, what its commit takes off."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from spark_ext.streaming.batch_limits import limited
from txnlog.api import subscriptions
from txnlog.api.internals import connection_of
from txnlog.client import dead_letters
from txnlog.client.positions import check_position
from txnlog.client.subscription_ownership import check_all_free, check_streamable, release_epochs, try_to_take
from txnlog.common import ranges
from txnlog.common.names import nearest
from txnlog.errors import Durable, InvalidInputError, OutcomeUnknown, SubscriptionNotFound, TxnLogError
from txnlog.fold.acknowledgements import acknowledged_of
from txnlog.fold.leases import available
from txnlog.format.actions import Acknowledgement, PartitionRanges

if TYPE_CHECKING:
    from spark_ext.read.scan import Scan
    from txnlog.api.namespace import Namespace
    from txnlog.client.connection import Connection
    from txnlog.client.positions import Position
    from txnlog.data.scan_planner import OffsetRanges
    from txnlog.fold.state import Cursor, SubscriptionRecord

_logger: Final = logging.getLogger("txnlog.spark")

_CLAIM_ATTEMPTS: Final = 4
_CLAIM_PAUSE_MS: Final = 500.0

_SHOWN_POSITIONS: Final = 8
"""Partitions of an advice that is to be copied; for more it says how to ask."""


# --- whose it is ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Claim:
    """A topic's subscription, by its id, in the hands of one run: under this epoch and no other."""

    topic: str
    subscription: int
    epoch: int


def claim(
    connection: Connection,
    topics: Sequence[str],
    subscription: str,
    *,
    query_name: str | None,
    start: Position | Mapping[str, Position],
    gives_up: bool,
) -> tuple[Claim, ...]:
    """Become the consumer of the subscription on all topics, in one entry: an older run is fenced from here on.

    The fold has come to that entry when this returns, so whatever an older run committed is in the cursors by now. A
    subscription that is missing is created; whatever may be refused is looked at before.

    Raises:
        TopicNotFound: with the nearest name.
        UnsupportedFeature: the subscription is of a kind whose messages are not one run's alone.
        ConsumerBusy: its takeover rule keeps it for another name.
        InvalidInputError: dead letters are wanted and it has no topic for them, or it needs ``query_name``.
        OutcomeUnknown: the store did not answer; run again.
    """
    connection.follower.refresh()
    name = query_name or f"process-{connection.runtime.unique()[:8]}"
    known: list[SubscriptionRecord] = []
    missing: list[str] = []
    for topic in topics:
        record = connection.subscription_record(connection.topic_record(topic).id, subscription)
        if gives_up:
            _check_dead_letters(connection, topic, subscription, record)
        if record is None:
            missing.append(topic)
            continue
        check_streamable(record)
        if record.takeover == "same_name" and query_name is None:
            raise InvalidInputError(
                f"the subscription {subscription!r} of {topic!r} is taken over under the same name only",
                advice="pass query_name=..., the same at every run",
            )
        known.append(record)
    starts = {topic: _start_of(topic, start, topics) for topic in topics}
    for topic, position in starts.items():  # of a subscription that is there as well, where it would count for nothing
        check_position(connection.topic_record(topic), position, connection.log_now_ms())
    check_all_free(connection, known, name, may_end_query=True)
    made: list[SubscriptionRecord] = []
    try:
        for topic in missing:
            # Another run may begin for the first time as well: that subscription will do.
            found = subscriptions.create(connection, topic, subscription, start=starts[topic], if_not_exists=True)
            made.append(found.record)
        by_topic = {connection.topic_record_by_id(record.topic).name: record for record in (*known, *made)}
        with connection.naming_dropped():
            epochs = _take(connection, [record.id for record in by_topic.values()], name)
    except TxnLogError as error:
        if made and error.durable is Durable.NOTHING:
            error.durable = Durable.MAYBE
        raise
    return tuple(Claim(topic, by_topic[topic].id, epochs[by_topic[topic].id]) for topic in topics)


def release(connection: Connection, claims: Iterable[Claim]) -> None:
    """The run ended as it should: plain consumers may have the subscription again. Never raises.

    A run that failed keeps it, as one that died does: whoever looks why is not to end it by that for good.
    """
    try:
        release_epochs(connection, {item.subscription: item.epoch for item in claims})
    except TxnLogError as error:
        _logger.warning(
            "The run ended, and its subscription could not be released: a consumer needs takeover=True", exc_info=error
        )


def _start_of(topic: str, start: Position | Mapping[str, Position], topics: Sequence[str]) -> Position:
    if not isinstance(start, Mapping) or not any(isinstance(key, str) for key in start):
        return start  # type: ignore[return-value]  # of all topics alike
    by_topic: Mapping[str, Position] = start  # type: ignore[assignment]
    for name in by_topic:
        if name not in topics:
            raise InvalidInputError(
                f"start names the topic {ascii(name)[:80]}, which is not read", advice=nearest(str(name), topics)
            )
    return by_topic.get(topic, "earliest")


def _check_dead_letters(
    connection: Connection, topic: str, subscription: str, record: SubscriptionRecord | None
) -> None:
    """Raise unless there is a topic that can take what the handler fails on."""
    what = f'on_error="dead_letter", but the subscription {subscription!r} of {topic!r}'
    if record is None:
        raise InvalidInputError(
            f"{what} does not exist yet",
            advice=f"ns.create_subscription({topic!r}, ..., dead_letter_topic=...) makes one that has, and the topic; "
            'or pass on_error="stop"',
        )
    if record.dead_letter_topic is None:
        start = f"{{item.partition: item.cursor for item in ns.lag({topic!r}, {subscription!r})}}"
        cursors = connection.cursors_of(record.id)
        if len(cursors) <= _SHOWN_POSITIONS:
            start = str({partition: cursor.position for partition, cursor in sorted(cursors.items())})
        raise InvalidInputError(
            f"{what} has no dead-letter topic, and keeps its settings",
            advice=f"ns.create_subscription({topic!r}, 'another name', start={start}, dead_letter_topic=...) makes one "
            'that goes on where this one is: process that, and this one no more; or pass on_error="stop"',
        )
    dead_letters.target(connection, record)


def _take(connection: Connection, wanted: Sequence[int], name: str) -> dict[int, int]:
    for _ in range(_CLAIM_ATTEMPTS - 1):
        try:
            return try_to_take(connection, wanted, name, name)
        except OutcomeUnknown:  # an epoch that this made is nobody's
            connection.runtime.sleep_ms(_CLAIM_PAUSE_MS)
    return try_to_take(connection, wanted, name, name)


# --- what it reads ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class End:
    """Where something ends: at a version, and by topic and partition behind the last offset visible there."""

    version: int
    offsets: Mapping[str, Mapping[int, int]]

    @classmethod
    def of(cls, scan: Scan) -> End:
        """Everything that a scan shows."""
        return cls(scan.snapshot.version, {topic: scan.snapshot.end_offsets(topic) for topic in scan.topics})


@dataclass(frozen=True, slots=True)
class Batch:
    """One batch. ``plan_again`` gives it again; ``plan_batch`` up to the same end may begin lower, where a hold ended.

    Attributes:
        end: where it ends.
        offsets: by topic and partition the range that it reads.
        taken: what its commit acknowledges: the same, and what was deleted before anybody read it.
        rows: how many it reads.
        deleted: how many it takes unread.
    """

    end: End
    offsets: Mapping[str, OffsetRanges]
    taken: tuple[Acknowledgement, ...]
    rows: int
    deleted: int

    def __str__(self) -> str:
        return offsets_text(self.offsets)


def offsets_text(offsets: Mapping[str, OffsetRanges]) -> str:
    """Ranges by topic and partition, for people."""
    return "; ".join(
        f"{topic} " + ", ".join(f"{partition}: {low} to {high}" for partition, (low, high) in found.items())
        for topic, found in offsets.items()
    )


def plan_batch(scan: Scan, claims: Iterable[Claim], max_rows: int | None, until: End | None) -> Batch | None:
    """The next batch; None where there is nothing to read, up to ``until`` or the newest version.

    Of a partition it takes the first run of offsets that nobody has: behind the cursor, and between what was
    acknowledged by itself or is pending in a prepared transaction. It ends between versions, so it holds no half
    transaction but where others took the other half.

    Raises:
        ConsumerFenced: another run, a consumer or a seek took the subscription over.
        SubscriptionNotFound: it was dropped.
    """
    cursors = _cursors(scan, claims)
    last = until or End.of(scan)
    runs: dict[str, dict[int, ranges.Range]] = {}
    begin: dict[str, dict[int, int]] = {}
    for topic, found in cursors.items():
        starts, ends = scan.snapshot.start_offsets(topic), last.offsets[topic]
        free = {p: available(cursor, starts[p], ends.get(p, 0), ()) for p, cursor in found[1].items()}
        runs[topic] = {p: left[0] for p, left in free.items() if left}
        begin[topic] = {p: left[0][0] if left else ends.get(p, 0) for p, left in free.items()}
    version, stops = last.version, last.offsets
    if max_rows is not None:
        version, stops = limited(scan, begin, max_rows, last.version)
    offsets: dict[str, dict[int, ranges.Range]] = {}
    for topic, of_topic in runs.items():
        cut = {p: (low, min(high, stops[topic][p])) for p, (low, high) in of_topic.items()}
        offsets[topic] = {p: (low, high) for p, (low, high) in sorted(cut.items()) if low < high}
    rows = sum(high - low for found in offsets.values() for low, high in found.values())
    if not rows:
        return None
    end = End(version, {topic: {p: stops[topic][p] for p in found} for topic, found in begin.items()})
    return _batch(scan, cursors, end, {topic: found for topic, found in offsets.items() if found})


def plan_again(scan: Scan, claims: Iterable[Claim], again: Mapping[str, OffsetRanges], end: End) -> Batch | None:
    """The batch that was planned before and read these offsets; None where somebody else has some of them.

    What was pending below them when it was planned may be free by now: that is left to a later batch.

    Raises: as ``plan_batch``.
    """
    cursors = _cursors(scan, claims)
    for topic, found in again.items():
        if topic not in cursors:
            return None
        starts = scan.snapshot.start_offsets(topic)
        for p, (low, high) in found.items():
            cursor = cursors[topic][1].get(p)
            if cursor is None or low < starts[p] or available(cursor, low, high, ()) != ((low, high),):
                return None
    return _batch(scan, cursors, end, again)


def _batch(
    scan: Scan, cursors: Mapping[str, tuple[Claim, Mapping[int, Cursor]]], end: End, offsets: Mapping[str, OffsetRanges]
) -> Batch:
    rows = sum(high - low for found in offsets.values() for low, high in found.values())
    starts = {topic: scan.snapshot.start_offsets(topic) for topic in offsets}
    taken = [
        _taken(item, found, starts[topic], offsets[topic])
        for topic, (item, found) in cursors.items()
        if topic in offsets
    ]
    acknowledged = sum(ranges.size(item.ranges) for wanted in taken for item in wanted.ranges)
    return Batch(end, offsets, tuple(taken), rows, acknowledged - rows)


@contextmanager
def _told_of_dropped(connection: Connection) -> Iterator[None]:
    """Name a subscription that was dropped under the run, which has no consumer to open."""
    try:
        with connection.naming_dropped():
            yield
    except SubscriptionNotFound as error:
        error.advice = "run it again: that makes the subscription again, where start says"
        raise


def _cursors(scan: Scan, claims: Iterable[Claim]) -> dict[str, tuple[Claim, Mapping[int, Cursor]]]:
    """By topic the claim and its cursors, as the newest fold has them. Raises where a claim was lost."""
    connection = connection_of(scan.namespace)
    result: dict[str, tuple[Claim, Mapping[int, Cursor]]] = {}
    with _told_of_dropped(connection), connection.follower.lock:
        for item in claims:
            connection.check_consumer(item.subscription, item.epoch)
            result[item.topic] = item, connection.cursors_of(item.subscription)
    return result


def _taken(
    item: Claim, cursors: Mapping[int, Cursor], starts: Mapping[int, int], read: OffsetRanges
) -> Acknowledgement:
    """Message by message: what was deleted, and what is read. What lies between, free or not, stays as it is."""
    wanted: dict[int, ranges.Ranges] = {}
    for p, (low, high) in read.items():
        left = available(cursors[p], 0, high, ())
        wanted[p] = ranges.subtract(left, ((starts[p], low),)) if starts[p] < low else left
    return Acknowledgement(item.subscription, item.epoch, tuple(PartitionRanges(p, of) for p, of in wanted.items()))


class PartitionNotThereError(Exception):
    """A note names a partition that its topic does not have, whose number of them is fixed."""


def was_committed(
    ns: Namespace, claims: Iterable[Claim], txn: str, read: Mapping[str, OffsetRanges], after: int
) -> bool:
    """Whether a transaction of an older run was committed, which took these offsets.

    An id that the log does not show can come no more: the claim is behind whatever older runs appended. Then it never
    was committed, or so long ago that its outcome was forgotten, and its offsets are taken: only then do these tell,
    for a seek, or a consumer, may have taken them instead.

    Args:
        ns: the namespace.
        claims: of this run.
        txn: its id.
        read: what it took off the topics.
        after: a version of the namespace that was there before it.

    Raises:
        PartitionNotThereError: it cannot have read what the topic does not have.
        SubscriptionNotFound: one of the claims was dropped meanwhile.
    """
    found = ns.transaction(txn)
    if found.state != "UNKNOWN":
        return found.state == "COMMITTED"
    if connection_of(ns).remembers_outcomes_behind(after):
        return False
    of_topic = {item.topic: item.subscription for item in claims}
    for topic, offsets in read.items():
        if topic not in of_topic:
            continue  # of a run over other topics
        with _told_of_dropped(connection_of(ns)):
            cursors = connection_of(ns).cursors_of(of_topic[topic])
        for p, (low, high) in offsets.items():
            if p not in cursors:
                raise PartitionNotThereError(f"{txn} read {topic!r} {p}")
            if ranges.subtract(((low, high),), acknowledged_of(cursors[p])):
                return False
    return True


def given_up(
    scan: Scan, claims: Iterable[Claim], read: Mapping[str, OffsetRanges], after: int
) -> dict[str, dict[int, ranges.Ranges]]:
    """Which of these offsets are taken, and are dead letters: somebody gave up on these messages.

    A letter tells topic, partition and offset of its message, and not the subscription: where two subscriptions of one
    topic share a dead-letter topic, what either gave up on counts for both. Letters that are no more, since their topic
    has a retention, tell nothing.

    Args:
        scan: whose snapshot shows the letters.
        claims: of this run.
        read: the offsets; those of topics that this run does not claim are never given up.
        after: letters up to this version are of what was at these offsets before, or of another try.
    """
    connection = connection_of(scan.namespace)
    result: dict[str, dict[int, ranges.Ranges]] = {}
    for item in claims:
        try:
            record = connection.subscription_record_by_id(item.subscription)
            cursors = connection.cursors_of(item.subscription)
        except SubscriptionNotFound:
            continue  # dropped meanwhile: whoever commits is told
        offsets = read.get(item.topic, {})
        taken = {p: ranges.intersect((of,), acknowledged_of(cursors[p])) for p, of in offsets.items() if p in cursors}
        taken = {p: of for p, of in taken.items() if of}
        if not taken or record.dead_letter_topic is None:
            continue
        letters = _letters(scan, record.dead_letter_topic, item.topic, taken, after)
        both = {p: ranges.intersect(of, letters[p]) for p, of in taken.items()}
        result[item.topic] = {p: of for p, of in both.items() if of}
    return result


def _letters(
    scan: Scan, into: str, topic: str, wanted: Mapping[int, ranges.Ranges], after: int
) -> dict[int, ranges.Ranges]:
    """By partition the offsets of a topic that have letters behind a version. It reads the letters once."""
    offset = pc.field("_source_offset")
    lowest, highest = min(of[0][0] for of in wanted.values()), max(of[-1][1] for of in wanted.values())
    where = (pc.field("_source_topic") == topic) & (offset >= lowest) & (offset < highest)
    where &= pc.field("_version") > after
    columns = ["_source_topic", "_source_partition", "_source_offset"]
    found: dict[int, ranges.Ranges] = dict.fromkeys(wanted, ())
    for batch in scan.snapshot.scan(into, columns=columns, include_metadata=True):  # a filter would read all columns
        rows = pa.Table.from_batches([batch]).filter(where)
        for p in wanted:
            of = rows.filter(pc.equal(rows.column("_source_partition"), p)).column("_source_offset")
            ranges.include(found, {p: ranges.from_values(of.to_pylist())})
    return found


def what_is_left(
    scan: Scan, claims: Iterable[Claim], txn: str, read: Mapping[str, OffsetRanges], after: int
) -> dict[str, dict[int, ranges.Range]] | None:
    """What is still to come of a batch that a Delta table has: its offsets without those that somebody gave up on.

    None where it was committed. Of a partition where that is no single range, which no batch can read, it is all.

    Args:
        scan: that shows what this run may know.
        claims: of this run.
        txn: that was to commit the batch.
        read: what it took off the topics.
        after: a version that was there when the table took it.

    Raises:
        PartitionNotThereError: as of :func:`was_committed`.
    """
    if was_committed(scan.namespace, claims, txn, read, after):
        return None
    gone = given_up(scan, claims, read, after)
    left: dict[str, dict[int, ranges.Range]] = {}
    for topic, offsets in read.items():
        of_topic = gone.get(topic, {})
        rest = {p: ranges.subtract((of,), of_topic.get(p, ())) for p, of in offsets.items()}
        found = {p: of[0] if len(of) == 1 else offsets[p] for p, of in rest.items() if of}
        if found:
            left[topic] = found
    return left


def count_left(scan: Scan, claims: Iterable[Claim], until: End) -> tuple[int, int]:
    """How many messages up to an end nobody took yet, and how many more are pending in transactions."""
    left = pending = 0
    for topic, (_, cursors) in _cursors(scan, claims).items():
        starts, ends = scan.snapshot.start_offsets(topic), until.offsets[topic]
        for p, cursor in cursors.items():
            free = ranges.size(available(cursor, starts[p], ends.get(p, 0), ()))
            left += free
            pending += ranges.size(available(_unheld(cursor), starts[p], ends.get(p, 0), ())) - free
    return left, pending


def _unheld(cursor: Cursor) -> Cursor:
    """A cursor as if nothing were pending in a transaction."""
    return msgspec.structs.replace(cursor, holds=(), cumulative=None)


__all__ = [
    "Batch",
    "Claim",
    "End",
    "PartitionNotThereError",
    "claim",
    "count_left",
    "given_up",
    "offsets_text",
    "plan_again",
    "plan_batch",
    "release",
    "was_committed",
    "what_is_left",
]
