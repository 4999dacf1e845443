"""A consumer of one or several topics under one subscription name (Exclusive)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from types import TracebackType
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from txnlog import planner, ranges
from txnlog import schema as schemas
from txnlog.acknowledgements import check_epoch, cursor_of
from txnlog.actions import Acknowledgement, Commit, Header, PartitionRanges, Seek
from txnlog.apply_transactions import outcome_error
from txnlog.arguments import shown, whole_number
from txnlog.commands import Answer, Simple
from txnlog.errors import (
    InvalidInputError,
    InvalidTransactionState,
    SubscriptionNotFound,
    TopicNotFound,
)
from txnlog.messages import Messages
from txnlog.names import nearest
from txnlog.ranges import Ranges
from txnlog.segment_rows import METADATA_FIELDS
from txnlog.state import Cursor, Draft, SubscriptionRecord, TopicRecord

if TYPE_CHECKING:
    from txnlog.connection import Connection, Position

_FIRST_PAUSE_MS = 5.0
_LONGEST_PAUSE_MS = 250.0
"""Between looks at the log while there is nothing to receive: one GET each."""

EPOCHS = "epoch"
"""Commands that raise a subscription's epoch: one an entry, whose version the epoch is."""


@dataclass(slots=True)
class _Subscribed:
    """One topic of a consumer: its subscription, the epoch held, and what was handed out and not returned."""

    topic: TopicRecord
    subscription: int
    epoch: int
    delivered: dict[int, Ranges] = field(default_factory=dict)


class Consumer:
    """Receives what no acknowledgement has taken yet, each message once until it is given back. For one thread."""

    def __init__(self, namespace: Connection, name: str, subscribed: Sequence[tuple[TopicRecord, int, int]]) -> None:
        self._ns = namespace
        self.name = name
        self._subscribed = [_Subscribed(topic, subscription, epoch) for topic, subscription, epoch in subscribed]
        self._turn = 0
        self._closed = False
        self._owner = namespace.identity

    def __repr__(self) -> str:
        topics = ", ".join(item.topic.name for item in self._subscribed)
        return f"Consumer({topics}{', closed' if self._closed else ''})"

    def __enter__(self) -> Consumer:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    # --- receiving --------------------------------------------------------------------------------------------------

    def receive(self, max_messages: int = 1000, timeout_ms: int = 1000) -> Messages:
        """The next messages, of one topic at a time; none after the timeout.

        Args:
            max_messages: at most so many.
            timeout_ms: how long to wait while there is nothing.

        Raises:
            ConsumerFenced: a newer consumer, a seek or a drop took the subscription over.
            CorruptionError: a segment is missing or damaged.
        """
        whole_number("max_messages", max_messages, 1)
        whole_number("timeout_ms", timeout_ms, 0)
        self.check_usable()
        runtime = self._ns.runtime
        deadline = runtime.elapsed_ms() + timeout_ms
        pause = _FIRST_PAUSE_MS
        while True:
            # Before anything is handed out: a consumer that was fenced must hear of it at its next call.
            self._ns.follower.refresh()
            for item in self._subscribed:
                self._check_epoch(item)
            self._ns.end_overdue([item.subscription for item in self._subscribed])
            for _ in range(len(self._subscribed)):
                item = self._subscribed[self._turn % len(self._subscribed)]
                self._turn += 1
                messages = self._take(item, max_messages)
                if messages is not None:
                    return messages
            left = deadline - runtime.elapsed_ms()
            if left <= 0:
                item = self._subscribed[0]
                return Messages(self, item.topic.name, item.subscription, item.epoch, self._schema(item).empty_table())
            runtime.sleep_ms(min(pause, left))
            pause = min(2 * pause, _LONGEST_PAUSE_MS)

    def _take(self, item: _Subscribed, most: int) -> Messages | None:
        wanted: list[tuple[int, ranges.Range]] = []
        left = most
        held = self._ns.held(item.subscription, item.epoch)
        with self._ns.follower.lock:
            record = self._check_epoch(item)
            state = self._ns.follower.state
            for partition in range(item.topic.partitions):
                cursor = state.cursors[record.id, partition]
                start = state.starts.get((item.topic.id, partition), 0)
                end = state.ends.get((item.topic.id, partition), 0)
                delivered = ranges.subtract(item.delivered.get(partition, ()), ((0, cursor.position),))
                item.delivered[partition] = delivered
                mine = ranges.union(delivered, held.get(partition, ()))
                for low, high in available(cursor, start, end, mine):
                    if left <= 0:
                        break
                    high = min(high, low + left)  # noqa: PLW2901 - the part that still fits
                    wanted.append((partition, (low, high)))
                    left -= high - low
        if not wanted:
            return None
        table = self._read(item, wanted)
        for partition, found in wanted:
            item.delivered[partition] = ranges.union(item.delivered[partition], (found,))
        return Messages(self, item.topic.name, item.subscription, item.epoch, table)

    def _read(self, item: _Subscribed, wanted: list[tuple[int, ranges.Range]]) -> pa.Table:
        records, removals = self._ns.follower.segments(item.topic.id)
        version = self._ns.follower.version
        tables: list[pa.Table] = []
        waves: list[dict[int, ranges.Range]] = []
        for partition, found in wanted:  # one range of each partition at a time: a plan holds no more
            wave = next((w for w in waves if partition not in w), None)
            if wave is None:
                wave = {}
                waves.append(wave)
            wave[partition] = found
        for wave in waves:
            plan = planner.plan(
                records,
                removals,
                topic=item.topic.name,
                folder=item.topic.folder,
                schema=self._ns.follower.state.topics[item.topic.id].schema,
                coordinator=self._ns.coordinator,
                version=version,
                offsets=wave,
            )
            tables.extend(self._ns.reader.batches(plan, include_metadata=True))
        return pa.concat_tables(tables).sort_by([("_partition", "ascending"), ("_offset", "ascending")])

    def _check_epoch(self, item: _Subscribed) -> SubscriptionRecord:
        record = self._ns.follower.state.subscriptions.get(item.subscription)
        if record is None:
            raise SubscriptionNotFound(
                f"the subscription of {item.topic.name!r} was dropped", advice="create it again with ns.consumer(...)"
            )
        check_epoch(record, item.epoch)
        return record

    def _schema(self, item: _Subscribed) -> pa.Schema:
        """The schema of received messages: user columns, then metadata."""
        schema = schemas.to_arrow(self._ns.topic_record_by_id(item.topic.id).schema)
        return pa.schema([*schema, *METADATA_FIELDS])

    def check_usable(self, namespace: Connection | None = None) -> None:
        """Raise unless this consumer may still be used by this process, in the given namespace."""
        if namespace is not None and not self._ns.same_namespace(namespace):
            raise InvalidInputError(
                f"the messages come from the namespace {self._ns.name!r}, not from {namespace.name!r} of this root",
                advice="a transaction takes messages of its own namespace",
            )
        self._ns.check_owner(self._owner, "consumer")
        if self._closed:
            raise InvalidTransactionState("the consumer is closed", advice="open another with ns.consumer(...)")

    # --- acknowledging ----------------------------------------------------------------------------------------------

    def acknowledge(self, messages: Messages, *, cumulative: bool = False) -> None:
        """Take messages off the subscription, outside of any transaction; durable on return.

        What was taken before is fine.

        Raises:
            TransactionConflict: a message is pending in an open transaction.
            ConsumerFenced: a newer consumer took over.
        """
        self.check_usable()
        _ = self._ns.appender  # a reader is refused even where there is nothing to acknowledge
        wanted = self._messages(messages).acknowledgements(self._ns, cumulative=cumulative)
        if wanted:
            acknowledge_plain(self._ns, wanted)

    def _messages(self, messages: object) -> Messages:
        if not isinstance(messages, Messages):
            raise InvalidInputError(
                f"messages are what a consumer received, not {type(messages).__name__}",
                advice="pass what receive() gave, or a part of it: messages[2:5]",
            )
        return messages

    def negative_acknowledge(self, messages: Messages) -> None:
        """Give messages back: they are delivered again. One that is pending in a transaction is not affected."""
        self.check_usable()
        self._messages(messages).give_back()

    def redeliver_unacknowledged(self) -> None:
        """Give back everything that was received and not acknowledged."""
        self.check_usable()
        for item in self._subscribed:
            item.delivered.clear()

    def give_back(self, subscription: int, epoch: int, returned: Mapping[int, Ranges]) -> None:
        """Ranges that were received become available again; not those of before a seek, which began anew."""
        for item in self._subscribed:
            if (item.subscription, item.epoch) == (subscription, epoch):
                for partition, found in returned.items():
                    item.delivered[partition] = ranges.subtract(item.delivered.get(partition, ()), found)

    def redelivery_counts(
        self, subscription: int, partitions: npt.NDArray[np.int64], offsets: npt.NDArray[np.int64]
    ) -> list[int]:
        """How often messages were delivered again, by the log (Shared subscriptions count; others do not)."""
        with self._ns.follower.lock:
            cursors = {
                int(p): self._ns.follower.state.cursors.get((subscription, int(p))) for p in np.unique(partitions)
            }
        counts: list[int] = []
        for partition, offset in zip(partitions, offsets, strict=True):
            cursor = cursors[int(partition)]
            found = [r.count for r in (cursor.redeliveries if cursor else ()) if r.start <= offset < r.end]
            counts.append(found[0] if found else 0)
        return counts

    def seek(self, position: Position, topic: str | None = None) -> None:
        """Move the subscription: ``"earliest"``, ``"latest"``, ``{partition: offset}``, or an aware datetime.

        Acknowledgements of what was received before the seek are refused afterwards (a higher epoch).

        Raises:
            InvalidTransactionState: the log shows pending acknowledgements.
            OffsetOutOfRange: an offset that the partition does not hold.
        """
        self.check_usable()
        chosen = [item for item in self._subscribed if topic is None or item.topic.name == topic]
        if not chosen:
            raise TopicNotFound(
                f"this consumer has no topic {shown(topic)}",
                advice=nearest(str(topic), [item.topic.name for item in self._subscribed]),
            )
        appender = self._ns.appender
        actions = []
        for item in chosen:
            positions = self._ns.resolve_position(item.topic, position)
            actions.append(Seek(item.subscription, tuple(sorted(positions.items()))))

        def decide(draft: Draft, _at: Header) -> list[Seek]:
            for item in chosen:
                record = draft.subscriptions.get(item.subscription)
                if record is not None:
                    check_epoch(record, item.epoch)
            return actions

        epoch = appender.call(Simple(decide, lambda _draft, at: at.version, EPOCHS))
        for item in chosen:
            item.epoch = epoch
            item.delivered.clear()

    def close(self) -> None:
        """Stop receiving. Pending acknowledgements of open transactions stay with those."""
        self._closed = True


def available(cursor: Cursor, start: int, end: int, delivered: Ranges) -> Ranges:
    """What of a partition can be handed out: neither acknowledged, nor pending, nor handed out already."""
    low = max(cursor.position, start)
    if cursor.cumulative is not None:
        low = max(low, cursor.cumulative.end)
    if low >= end:
        return ()
    left: Ranges = ((low, end),)
    left = ranges.subtract(left, cursor.acknowledged)
    for hold in cursor.holds:
        left = ranges.subtract(left, hold.ranges)
    return ranges.subtract(left, delivered)


def acknowledge_plain(connection: Connection, wanted: Sequence[Acknowledgement]) -> None:
    """Take messages off subscriptions outside of any transaction; durable on return. What was taken before is fine.

    Raises:
        TransactionConflict: a message is pending in an open transaction.
        ConsumerFenced: a subscription has another epoch by now.
        SubscriptionNotFound: it was dropped.
        TransactionAborted: somebody aborted the acknowledgement itself while it was under way.
    """
    number = connection.appender.take_numbers(1)[0]

    def left(draft: Draft) -> list[Acknowledgement]:
        return [rest for item in wanted if (rest := _not_yet_taken(draft, item)) is not None]

    def decide(draft: Draft, _at: Header) -> list[Commit] | Answer[None]:
        outcome = draft.outcomes.get(number)
        if outcome is not None and outcome.state == "ABORTED":
            raise outcome_error(outcome)
        if outcome is not None:
            return Answer(None, settled=True)
        rest = left(draft)
        return [Commit(number, "", (), tuple(rest))] if rest else Answer(None)

    with connection.follower.lock:
        rest = left(connection.follower.state.draft())
    connection.check_conflicts(number, rest)
    connection.appender.call(Simple(decide, lambda _draft, _at: None, None, (number,)))


def _not_yet_taken(draft: Draft, item: Acknowledgement) -> Acknowledgement | None:
    """A plain acknowledgement without what was acknowledged before: that is no conflict outside a transaction."""
    record = draft.subscriptions.get(item.subscription)
    if record is None:
        raise SubscriptionNotFound("the subscription was dropped", advice="create it again with ns.consumer(...)")
    check_epoch(record, item.epoch)
    left: list[PartitionRanges] = []
    for wanted in item.ranges:
        cursor = cursor_of(draft, item.subscription, wanted.partition)
        taken = ranges.union(((0, cursor.position),) if cursor.position else (), cursor.acknowledged)
        rest = ranges.subtract(wanted.ranges, taken)
        if rest:
            left.append(PartitionRanges(wanted.partition, rest))
    cumulative = tuple(
        (partition, end)
        for partition, end in item.cumulative
        if end > cursor_of(draft, item.subscription, partition).position
    )
    if not left and not cumulative:
        return None
    return Acknowledgement(item.subscription, item.epoch, tuple(left), cumulative)


__all__ = ["EPOCHS", "Consumer", "acknowledge_plain", "available"]
