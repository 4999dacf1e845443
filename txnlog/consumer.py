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
from txnlog.actions import Acknowledgement, Commit, Header, PartitionRanges, Seek
from txnlog.commands import Answer, Simple
from txnlog.errors import ConsumerFenced, InvalidInputError, InvalidTransactionState, SubscriptionNotFound
from txnlog.messages import Messages
from txnlog.ranges import Ranges
from txnlog.state import Cursor, Draft, SubscriptionRecord, TopicRecord

if TYPE_CHECKING:
    from txnlog.connection import Connection, Position

_FIRST_PAUSE_MS = 5.0
_LONGEST_PAUSE_MS = 250.0
"""Between looks at the log while there is nothing to receive: one GET each."""


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
        if max_messages <= 0 or timeout_ms < 0:
            raise InvalidInputError("max_messages is positive and timeout_ms is not negative")
        self.check_usable()
        deadline = self._ns.runtime.elapsed_ms() + timeout_ms
        pause = _FIRST_PAUSE_MS
        looked = False
        while True:
            for _ in range(len(self._subscribed)):
                item = self._subscribed[self._turn % len(self._subscribed)]
                self._turn += 1
                messages = self._take(item, max_messages)
                if messages is not None:
                    return messages
            if looked and self._ns.runtime.elapsed_ms() >= deadline:
                item = self._subscribed[0]
                empty = pa.schema(planner_schema(item.topic, self._ns)).empty_table()
                return Messages(self, item.topic.name, item.subscription, item.epoch, empty)
            if looked:
                self._ns.runtime.sleep_ms(min(pause, max(0.0, deadline - self._ns.runtime.elapsed_ms())))
                pause = min(2 * pause, _LONGEST_PAUSE_MS)
            self._ns.follower.refresh()
            self._ns.end_overdue([item.subscription for item in self._subscribed])
            looked = True

    def _take(self, item: _Subscribed, most: int) -> Messages | None:
        wanted: list[tuple[int, ranges.Range]] = []
        left = most
        with self._ns.follower.lock:
            record = self._check_epoch(item)
            state = self._ns.follower.state
            for partition in range(item.topic.partitions):
                cursor = state.cursors[record.id, partition]
                start = state.starts.get((item.topic.id, partition), 0)
                end = state.ends.get((item.topic.id, partition), 0)
                delivered = ranges.subtract(item.delivered.get(partition, ()), ((0, cursor.position),))
                item.delivered[partition] = delivered
                for low, high in available(cursor, start, end, delivered):
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
        if record.epoch != item.epoch:
            raise ConsumerFenced(
                f"the subscription {record.name!r} of {item.topic.name!r} has epoch {record.epoch}, this consumer "
                f"{item.epoch}"
            )
        return record

    def check_usable(self) -> None:
        """Raise unless this consumer may still be used by this process."""
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
        wanted = messages.acknowledgements(cumulative=cumulative)
        if not wanted:
            return
        number = self._ns.appender.take_numbers(1)[0]

        def decide(draft: Draft, _at: Header) -> list[Commit] | Answer[None]:
            if draft.outcomes.get(number) is not None:
                return Answer(None)
            left = [rest for item in wanted if (rest := _not_yet_taken(draft, item)) is not None]
            return [Commit(number, "", (), tuple(left))] if left else Answer(None)

        self._ns.appender.call(Simple(decide, lambda _draft, _at: None, None, (number,)))

    def negative_acknowledge(self, messages: Messages) -> None:
        """Give messages back: they are delivered again. One that is pending in a transaction is not affected."""
        self.check_usable()
        messages.give_back()

    def redeliver_unacknowledged(self) -> None:
        """Give back everything that was received and not acknowledged."""
        self.check_usable()
        for item in self._subscribed:
            item.delivered.clear()

    def give_back(self, subscription: int, returned: Mapping[int, Ranges]) -> None:
        """Ranges that were received become available again."""
        for item in self._subscribed:
            if item.subscription == subscription:
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
        for item in self._subscribed:
            if topic is not None and item.topic.name != topic:
                continue
            positions = self._ns.resolve_position(item.topic, position)
            action = Seek(item.subscription, tuple(sorted(positions.items())))
            own, subscription = item, item.subscription

            def decide(draft: Draft, _at: Header, action: Seek = action, own: _Subscribed = own) -> list[Seek]:
                record = draft.subscriptions.get(own.subscription)
                if record is not None and record.epoch != own.epoch:
                    raise ConsumerFenced(f"the subscription {record.name!r} has a newer consumer")
                return [action]

            item.epoch = self._ns.appender.call(
                Simple(decide, lambda _draft, at: at.version, ("subscription", subscription))
            )
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


def _not_yet_taken(draft: Draft, item: Acknowledgement) -> Acknowledgement | None:
    """A plain acknowledgement without what was acknowledged before: that is no conflict outside a transaction."""
    left: list[PartitionRanges] = []
    for wanted in item.ranges:
        cursor = draft.cursors.get((item.subscription, wanted.partition))
        if cursor is None:
            continue
        taken = ranges.union(((0, cursor.position),) if cursor.position else (), cursor.acknowledged)
        rest = ranges.subtract(wanted.ranges, taken)
        if rest:
            left.append(PartitionRanges(wanted.partition, rest))
    cumulative = tuple(
        (partition, end)
        for partition, end in item.cumulative
        if (cursor := draft.cursors.get((item.subscription, partition))) is not None and end > cursor.position
    )
    record = draft.subscriptions.get(item.subscription)
    if record is not None and record.epoch != item.epoch:
        raise ConsumerFenced(f"the subscription {record.name!r} has epoch {record.epoch}, this consumer {item.epoch}")
    if not left and not cumulative:
        return None
    return Acknowledgement(item.subscription, item.epoch, tuple(left), cumulative)


def planner_schema(topic: TopicRecord, namespace: Connection) -> pa.Schema:
    """The schema of received messages: user columns, then metadata."""
    snapshot = namespace.snapshot_at(namespace.follower.version)
    return snapshot.scan(topic.name, include_metadata=True, offsets={}).schema


__all__ = ["Consumer", "available"]
