"""Planning batches of ``spark_ext.process``: the claim of the subscription, offsets, and acknowledgements."""

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
"""The most partitions whose positions an advice states; for more it states the expression that returns them."""


# --- whose it is ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Claim:
    """A topic's subscription, by id, as claimed by one run: valid only while its epoch is this one."""

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
    to_dead_letters: bool,
) -> tuple[Claim, ...]:
    """Become the consumer of the subscription on all topics, in one entry: an older run is fenced from here on.

    When this returns the materialized state includes that entry, and so whatever an older run committed is in the
    cursors. A missing subscription is created, after all checks that may refuse the call.

    Raises:
        TopicNotFound: with the nearest name.
        UnsupportedFeature: the subscription is of a kind whose messages several consumers share.
        ConsumerBusy: its takeover rule reserves it for another name.
        InvalidInputError: dead letters are wanted and it has no topic for them, or it needs ``query_name``.
        OutcomeUnknown: the store did not answer; run again.
    """
    connection.follower.refresh()
    name = query_name or f"process-{connection.runtime.unique()[:8]}"
    known: list[SubscriptionRecord] = []
    missing: list[str] = []
    for topic in topics:
        record = connection.subscription_record(connection.topic_record(topic).id, subscription)
        if to_dead_letters:
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
    for topic, position in starts.items():  # checked for an existing subscription as well, which ignores it
        check_position(connection.topic_record(topic), position, connection.log_now_ms())
    check_all_free(connection, known, name, may_end_query=True)
    made: list[SubscriptionRecord] = []
    try:
        for topic in missing:
            # Another first run may create it at the same time: then its subscription is used.
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
    """Release the subscription for plain consumers after a run that ended normally. Never raises.

    A run that failed keeps it, as one that crashed does: a consumer opened to investigate must not take it over.
    """
    try:
        release_epochs(connection, {item.subscription: item.epoch for item in claims})
    except TxnLogError as error:
        _logger.warning(
            "The run ended, and its subscription could not be released: a consumer needs takeover=True", exc_info=error
        )


def _start_of(topic: str, start: Position | Mapping[str, Position], topics: Sequence[str]) -> Position:
    if not isinstance(start, Mapping) or not any(isinstance(key, str) for key in start):
        return start  # type: ignore[return-value]  # one start for all topics
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
    """Raise InvalidInputError unless there is a dead-letter topic for messages on which the handler fails."""
    what = f'on_error="dead_letter", but the subscription {subscription!r} of {topic!r}'
    if record is None:
        raise InvalidInputError(
            f"{what} does not exist yet",
            advice=f"create it with ns.create_subscription({topic!r}, ..., dead_letter_topic=...), which creates that "
            'topic as well; or pass on_error="stop"',
        )
    if record.dead_letter_topic is None:
        start = f"{{item.partition: item.cursor for item in ns.lag({topic!r}, {subscription!r})}}"
        cursors = connection.cursors_of(record.id)
        if len(cursors) <= _SHOWN_POSITIONS:
            start = str({partition: cursor.position for partition, cursor in sorted(cursors.items())})
        raise InvalidInputError(
            f"{what} has no dead-letter topic, and its settings cannot be changed",
            advice=f"ns.create_subscription({topic!r}, 'another name', start={start}, dead_letter_topic=...) creates "
            'one that starts at the cursor of this one: process that one from now on; or pass on_error="stop"',
        )
    dead_letters.target(connection, record)


def _take(connection: Connection, wanted: Sequence[int], name: str) -> dict[int, int]:
    for _ in range(_CLAIM_ATTEMPTS - 1):
        try:
            return try_to_take(connection, wanted, name, name)
        except OutcomeUnknown:  # an epoch that this call may have created belongs to nobody
            connection.runtime.sleep_ms(_CLAIM_PAUSE_MS)
    return try_to_take(connection, wanted, name, name)


# --- what it reads ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class End:
    """An end of reading: a version, and by topic and partition the offset after the last one visible there."""

    version: int
    offsets: Mapping[str, Mapping[int, int]]

    @classmethod
    def of(cls, scan: Scan) -> End:
        """The end of all that a scan shows."""
        return cls(scan.snapshot.version, {topic: scan.snapshot.end_offsets(topic) for topic in scan.topics})


@dataclass(frozen=True, slots=True)
class Batch:
    """One batch of a run.

    ``plan_again`` returns the same batch; ``plan_batch`` up to the same end may begin lower, where a claim ended.

    Attributes:
        end: where it ends.
        offsets: by topic and partition the range of offsets that it reads.
        acknowledgements: what its commit acknowledges: the same, and messages that were deleted unread before.
        rows: the number of messages that it reads.
        deleted: the number of messages that it acknowledges unread.
    """

    end: End
    offsets: Mapping[str, OffsetRanges]
    acknowledgements: tuple[Acknowledgement, ...]
    rows: int
    deleted: int

    def __str__(self) -> str:
        return offsets_text(self.offsets)


def offsets_text(offsets: Mapping[str, OffsetRanges]) -> str:
    """Offset ranges by topic and partition, as text."""
    return "; ".join(
        f"{topic} " + ", ".join(f"{partition}: {low} to {high}" for partition, (low, high) in found.items())
        for topic, found in offsets.items()
    )


def plan_batch(scan: Scan, claims: Iterable[Claim], max_rows: int | None, until: End | None) -> Batch | None:
    """The next batch; None where there is nothing to read, up to ``until`` or the newest version.

    Of each partition it reads the first contiguous range of free offsets: after the cursor, and neither acknowledged
    individually nor pending in a prepared transaction. It ends between versions, so it contains whole transactions,
    except where others acknowledged a part of one.

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
    """The batch with the offsets of an earlier one; None where some of them are not free any more.

    Lower offsets that were pending at that time may be free by now: they are left to a later batch.

    Raises what ``plan_batch`` raises.
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
    wanted = [
        _acknowledgement(item, found, starts[topic], offsets[topic])
        for topic, (item, found) in cursors.items()
        if topic in offsets
    ]
    acknowledged = sum(ranges.size(item.ranges) for own in wanted for item in own.ranges)
    return Batch(end, offsets, tuple(wanted), rows, acknowledged - rows)


@contextmanager
def _naming_dropped(connection: Connection) -> Iterator[None]:
    """Context in which the error for a subscription that was dropped during the run names it, and says what to do."""
    try:
        with connection.naming_dropped():
            yield
    except SubscriptionNotFound as error:
        error.advice = "run it again: that creates the subscription again, at the position start"
        raise


def _cursors(scan: Scan, claims: Iterable[Claim]) -> dict[str, tuple[Claim, Mapping[int, Cursor]]]:
    """By topic the claim and its cursors in the materialized state. Raises ConsumerFenced where a claim was lost."""
    connection = connection_of(scan.namespace)
    result: dict[str, tuple[Claim, Mapping[int, Cursor]]] = {}
    with _naming_dropped(connection), connection.follower.lock:
        for item in claims:
            connection.check_consumer(item.subscription, item.epoch)
            result[item.topic] = item, connection.cursors_of(item.subscription)
    return result


def _acknowledgement(
    item: Claim, cursors: Mapping[int, Cursor], starts: Mapping[int, int], read: OffsetRanges
) -> Acknowledgement:
    """The acknowledgement of the messages that are read or were deleted, leaving those in between as they are."""
    wanted: dict[int, ranges.Ranges] = {}
    for p, (low, high) in read.items():
        left = available(cursors[p], 0, high, ())
        wanted[p] = ranges.subtract(left, ((starts[p], low),)) if starts[p] < low else left
    return Acknowledgement(item.subscription, item.epoch, tuple(PartitionRanges(p, of) for p, of in wanted.items()))


class PartitionNotThereError(Exception):
    """A note in a Delta table names a partition that its topic does not have, and can never have had."""


def was_committed(
    ns: Namespace, claims: Iterable[Claim], txn: str, read: Mapping[str, OffsetRanges], after: int
) -> bool:
    """Whether a transaction of an older run was committed, which was to acknowledge these offsets.

    A transaction that the log does not show cannot come any more: this run's claim is after all that older runs
    appended. So it was never committed, or so long ago that the log forgot its outcome. Only in the second case the
    offsets decide, by whether they are acknowledged: a seek or a consumer may have acknowledged them as well.

    Args:
        ns: the namespace.
        claims: the claims of this run.
        txn: the transaction's TxnID.
        read: the offsets that it was to acknowledge.
        after: a version of the namespace from before the transaction.

    Raises:
        PartitionNotThereError: ``read`` names a partition that its topic does not have.
        SubscriptionNotFound: one of the claimed subscriptions was dropped meanwhile.
    """
    found = ns.transaction(txn)
    if found.state != "UNKNOWN":
        return found.state == "COMMITTED"
    if connection_of(ns).remembers_outcomes_behind(after):
        return False
    of_topic = {item.topic: item.subscription for item in claims}
    for topic, offsets in read.items():
        if topic not in of_topic:
            continue  # from a run over other topics
        with _naming_dropped(connection_of(ns)):
            cursors = connection_of(ns).cursors_of(of_topic[topic])
        for p, (low, high) in offsets.items():
            if p not in cursors:
                raise PartitionNotThereError(f"{txn} read {topic!r} {p}")
            if ranges.subtract(((low, high),), acknowledged_of(cursors[p])):
                return False
    return True


def dead_lettered(
    scan: Scan, claims: Iterable[Claim], read: Mapping[str, OffsetRanges], after: int
) -> dict[str, dict[int, ranges.Ranges]]:
    """Those of the offsets that are acknowledged, and whose messages are in the dead-letter topic.

    A dead letter names the topic, partition and offset of its message, and not the subscription: if two subscriptions
    of a topic share a dead-letter topic, the dead letters of either count for both. Dead letters that retention deleted
    do not count.

    Args:
        scan: its snapshot is searched for dead letters.
        claims: the claims of this run.
        read: the offsets. Those of topics that this run does not claim are never returned.
        after: dead letters up to this version do not count: they are of earlier messages at these offsets, or attempts.
    """
    connection = connection_of(scan.namespace)
    result: dict[str, dict[int, ranges.Ranges]] = {}
    for item in claims:
        try:
            record = connection.subscription_record_by_id(item.subscription)
            cursors = connection.cursors_of(item.subscription)
        except SubscriptionNotFound:
            continue  # dropped meanwhile, which the commit reports
        offsets = read.get(item.topic, {})
        done = {p: ranges.intersect((of,), acknowledged_of(cursors[p])) for p, of in offsets.items() if p in cursors}
        done = {p: of for p, of in done.items() if of}
        if not done or record.dead_letter_topic is None:
            continue
        letters = _letters(scan, record.dead_letter_topic, item.topic, done, after)
        both = {p: ranges.intersect(of, letters[p]) for p, of in done.items()}
        result[item.topic] = {p: of for p, of in both.items() if of}
    return result


def _letters(
    scan: Scan, into: str, topic: str, wanted: Mapping[int, ranges.Ranges], after: int
) -> dict[int, ranges.Ranges]:
    """By partition the offsets of a topic with dead letters after a version. It reads the dead letters once."""
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
    """The offsets that are still to be committed of a batch whose rows a Delta table has; None where it was committed.

    Offsets of dead letters are left out, unless the rest of a partition is no single range, which no batch can read.

    Args:
        scan: its snapshot is searched for dead letters.
        claims: the claims of this run.
        txn: the TxnID of the transaction that was to commit the batch.
        read: the offsets that it was to acknowledge.
        after: a version of the namespace from before the table got the rows.

    Raises:
        PartitionNotThereError: see :func:`was_committed`.
    """
    if was_committed(scan.namespace, claims, txn, read, after):
        return None
    gone = dead_lettered(scan, claims, read, after)
    left: dict[str, dict[int, ranges.Range]] = {}
    for topic, offsets in read.items():
        of_topic = gone.get(topic, {})
        rest = {p: ranges.subtract((of,), of_topic.get(p, ())) for p, of in offsets.items()}
        found = {p: of[0] if len(of) == 1 else offsets[p] for p, of in rest.items() if of}
        if found:
            left[topic] = found
    return left


def count_left(scan: Scan, claims: Iterable[Claim], until: End) -> tuple[int, int]:
    """The number of messages up to an end that are free, and of those pending in transactions."""
    left = pending = 0
    for topic, (_, cursors) in _cursors(scan, claims).items():
        starts, ends = scan.snapshot.start_offsets(topic), until.offsets[topic]
        for p, cursor in cursors.items():
            free = ranges.size(available(cursor, starts[p], ends.get(p, 0), ()))
            left += free
            pending += ranges.size(available(_unclaimed(cursor), starts[p], ends.get(p, 0), ())) - free
    return left, pending


def _unclaimed(cursor: Cursor) -> Cursor:
    """A copy of the cursor without the claims of transactions."""
    return msgspec.structs.replace(cursor, holds=(), cumulative=None)


__all__ = [
    "Batch",
    "Claim",
    "End",
    "PartitionNotThereError",
    "claim",
    "count_left",
    "dead_lettered",
    "offsets_text",
    "plan_again",
    "plan_batch",
    "release",
    "was_committed",
    "what_is_left",
]
