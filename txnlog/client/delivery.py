"""One topic of a consumer: which messages it delivers next, for one owner at a time (Exclusive).

All of it happens in the engine, but for reading the messages: nothing changes between what the log says and what the
ledger says, and nobody needs a lock.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from contextvars import ContextVar
from functools import partial
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np
import pyarrow as pa

from txnlog.client.acknowledgement_conflicts import end_claims
from txnlog.client.holes import Holes, acknowledge_holes, carried, holes_in
from txnlog.client.ledger import Delivery, Ledger, Offsets
from txnlog.client.read_ahead import ReadAhead
from txnlog.common import ranges
from txnlog.common.ranges import EMPTY, Range, Ranges, below
from txnlog.data import scan_planner
from txnlog.data.segment_rows import RESTORE, damaged_segment
from txnlog.engine.effects import WRITTEN
from txnlog.engine.log_lines import LogLines
from txnlog.errors import CorruptionError, TransactionConflict, TxnLogError
from txnlog.fold.leases import available, in_turn
from txnlog.fold.state import Draft, Redelivery, SegmentRecord, SubscriptionRecord, TopicRecord
from txnlog.fold.subscription_records import check_epoch
from txnlog.format.actions import AnyAction, Seek

if TYPE_CHECKING:
    from txnlog.client.connection import Connection

_logger = LogLines("txnlog.consumer")

_MOST_WIDTH: Final = 1 << 17
"""Offsets that are read at once where there are but holes."""


class TransactAttempt:
    """What consumers delivered to one attempt of ``ns.transact``, which releases it where it fails.

    What an attempt received and did not acknowledge would be passed over by the next one: it receives what comes later.
    """

    def __init__(self) -> None:
        self._delivered: list[tuple[TopicDelivery, Delivery]] = []
        self._failed: dict[TopicDelivery, None] = {}

    def note(self, by: TopicDelivery, delivery: Delivery) -> None:
        """These were delivered to it."""
        self._delivered.append((by, delivery))

    def fail(self) -> None:
        """It failed: what was delivered to it is delivered again. In the engine, so that no interrupt comes between."""
        while self._delivered:
            by, delivery = self._delivered.pop()
            by.redeliver_of_attempt(delivery)
            self._failed[by] = None

    def release(self) -> None:
        """``fail``, and let others have it at once. Interrupted, it goes on by itself."""
        known = [*self._failed, *(by for by, _ in self._delivered)]
        if known:
            known[0].connection.runtime.engine.call(self._release, goes_on=True)

    async def _release(self) -> None:
        self.fail()
        while self._failed:
            by, _ = self._failed.popitem()
            await by.release_redelivered()


class Receiving:
    """One call of ``receive()``.

    Attributes:
        most: at most so many messages.
        attempt: the attempt that makes the call, if one does.
        is_new: whether it looks for the first time: a Failover consumer may wait then.
        delivered: what it delivered.
    """

    __slots__ = ("attempt", "delivered", "is_new", "most")

    def __init__(self, most: int, attempt: TransactAttempt | None) -> None:
        self.most = most
        self.attempt = attempt
        self.is_new = True
        self.delivered: Delivery | None = None

    def withdraw(self) -> None:
        """It was interrupted: nobody has received what it delivered. In the engine."""
        found = self.delivered
        if found is not None:
            found.ledger.withdraw(found.consumer, found.offsets)


class Received(NamedTuple):
    """Messages on their way to the user: rows with metadata, and by partition how often which were delivered before.

    Attributes:
        ledger: of the epoch in which they were received.
        offsets: by partition which messages these are, with the holes between them.
        holes: those holes.
    """

    table: pa.Table
    redeliveries: Mapping[int, tuple[Redelivery, ...]]
    ledger: Ledger
    offsets: Offsets
    holes: Holes


class DeliveryReceipt(NamedTuple):
    """How messages that are acknowledged were received: a Receipt, by the consumer's topic delivery.

    Attributes:
        delivery: what delivered them.
        ledger: of the epoch in which it did.
        unnamed: by partition what a cumulative acknowledgement takes besides them, because it lies before them.
    """

    delivery: TopicDelivery
    ledger: Ledger
    unnamed: Offsets

    @property
    def connection(self) -> Connection:
        """The handle of their consumer, maybe another one than that of the transaction."""
        return self.delivery.connection

    def check_delivered(self) -> None:
        """Raise TransactionConflict where a cumulative acknowledgement would take what is still to be delivered."""
        self.delivery.check_delivered(self.ledger, self.unnamed)


_ATTEMPT: Final[ContextVar[TransactAttempt | None]] = ContextVar("txnlog_attempt", default=None)


def current_attempt() -> TransactAttempt | None:
    """The attempt that runs in this thread."""
    return _ATTEMPT.get()


class attempt:  # noqa: N801 - used as a function is
    """Meanwhile note what consumers deliver in this thread.

    Made by hand: contextlib's own sets an attribute of the error that leaves it, which one of a program may refuse.
    """

    def __enter__(self) -> TransactAttempt:
        found = TransactAttempt()
        self._token = _ATTEMPT.set(found)
        return found

    def __exit__(self, *_: object) -> None:
        _ATTEMPT.reset(self._token)


class Stop(NamedTuple):
    """Where delivery of a partition stops in a call: a damaged segment has the offsets from ``offset`` to ``end``."""

    offset: int
    end: int
    error: CorruptionError


class TopicDelivery:
    """One topic of an Exclusive consumer. One call at a time receives."""

    def __init__(
        self, connection: Connection, consumer: str, topic: TopicRecord, subscription: int, epoch: int
    ) -> None:
        self._connection = connection
        self._consumer = consumer
        self.topic = topic
        self.subscription = subscription
        self._ledger = connection.ledger(subscription, epoch)
        self._read_ahead = ReadAhead(connection, topic)
        self._turn = 0
        self._starts: dict[int, int] = {}
        self._density = 1.0  # of the offsets that were read last the share that has a message
        self._holes: dict[int, Ranges] = {}  # offsets that were read and have no message: they never get one

    @property
    def connection(self) -> Connection:
        """The handle of the consumer."""
        return self._connection

    @property
    def ledger(self) -> Ledger:
        """The ledger of the subscription's epoch, as this consumer knows it."""
        return self._ledger

    @property
    def epoch(self) -> int:
        """The subscription's, as this consumer knows it."""
        return self._ledger.epoch

    def record(self) -> SubscriptionRecord:
        """The subscription. Raises SubscriptionNotFound where it was dropped."""
        return self._connection.subscription_record_by_id(self.subscription)

    def check(self) -> SubscriptionRecord:
        """The subscription, checked: raises ConsumerFenced where another consumer took over."""
        record = self.record()
        check_epoch(record, self.epoch)
        return record

    def warn_of_deleted(self) -> None:
        """Log once how many messages were deleted before the subscription acknowledged them: nobody receives these."""
        state = self._connection.follower.state
        for partition in range(self.topic.partitions):
            start = state.start_of(self.topic.id, partition)
            if start > self._starts.get(partition, 0):
                self._starts[partition] = start
                left = available(state.cursors[self.subscription, partition], 0, start, EMPTY)
                if lost := ranges.size(left):
                    text = "%d messages of partition %d of %r were deleted before a consumer acknowledged them"
                    _logger.warning(text, lost, partition, self.topic.name)

    async def look(self, *, is_new: bool = False) -> None:  # noqa: ARG002 - for those that wait
        """Before anything is done: raise where another took over. ``is_new``: as of Receiving."""
        self.check()

    async def receive(self, call: Receiving) -> Received | None:
        """The next messages, None where there are none. They count as delivered with ``deliver``."""
        ready: dict[int, Ranges] = {}
        record = self.check()
        end_claims(self._connection, self._ledger)
        self.warn_of_deleted()
        cursors = self._connection.follower.state.cursors
        delivered = self._ledger.delivered(self._consumer)
        self._ledger.forget_delivered(self._consumer, {p: ((0, cursors[record.id, p].position),) for p in delivered})
        unavailable = self._ledger.unavailable(self._consumer)
        for partition in in_turn(self._turn, self.topic.partitions):
            if found := self._available(partition, unavailable):
                ready[partition] = found
        await self._pass_over(ready)
        free, ready = ready, self._with_messages(ready)
        self._turn += bool(ready)
        stops: dict[int, Stop] = {}
        while ready:
            first = next(iter(ready))
            received = await self._read_ready(ready, call.most, {}, stops, others=self._turn == 1)
            if received is not None:
                return received
            if first in stops:  # the other partitions have their turn at the next call: nobody can miss this error
                raise stops[first].error
            ready = self._with_messages(ready)
        await self._pass_over(free)
        return None

    async def _pass_over(self, offsets: Offsets) -> bool:
        """Acknowledge what of a partition can be delivered where that is nothing but holes; whether there was any.

        No message would ever acknowledge it. Best effort: what fails is done by the next call.
        """
        empty = {p: found for p, found in offsets.items() if ranges.covers(self._holes.get(p, EMPTY), found)}
        if not empty:
            return False
        pass_over = partial(acknowledge_holes, self._connection, self.subscription, self.epoch, self._consumer, empty)
        try:
            await self._connection.runtime.job(pass_over)
        except TxnLogError as error:
            _logger.debug("offsets of %r without messages stay unacknowledged: %s", self.topic.name, error)
        await WRITTEN
        return True

    def _with_messages(self, ready: Mapping[int, Ranges]) -> dict[int, Ranges]:
        """What is ready, but for partitions in which nothing but holes is, as far as that is known."""
        return {p: found for p, found in ready.items() if not ranges.covers(self._holes.get(p, EMPTY), found)}

    def deliver(self, received: Received, call: Receiving) -> Delivery:
        """The call returns these messages: they are delivered."""
        call.delivered = received.ledger.deliver(self._consumer, received.offsets)
        if call.attempt is not None:
            call.attempt.note(self, call.delivered)
        return call.delivered

    async def _read_ready(
        self,
        ready: dict[int, Ranges],
        most: int,
        redeliveries: Mapping[int, tuple[Redelivery, ...]],
        stops: dict[int, Stop],
        *,
        others: bool = False,
    ) -> Received | None:
        """The first messages of what is ready, partition by partition; of none what lies behind a damaged segment.

        None where nothing is left of the first partition, or of any with ``others``: so begins a consumer, since one
        that the error ends, and that is started again, would never come to the others. ``stops`` gets the damaged
        segments that are met; where it has none of the first partition, that has nothing but holes.
        """
        first = next(iter(ready))
        width = self._width(most)  # offsets to read: behind a read that found nothing but holes twice as many
        while self._with_messages(ready if others else {first: ready[first]}):
            wanted = first_of_all(self._with_messages(ready), width, self._holes)
            try:
                self._read_ahead.ready = dict(ready)
                table = await self._connection.runtime.read(partial(self._read, wanted))
                self._note_holes(holes_in(wanted, table))
                if len(table):
                    self._density = min(len(table) / width, 1.0)
                    table, wanted = _first_rows(table, wanted, most)
                    offsets, holes = carried(wanted, self._holes)
                    ranges.exclude(self._holes, offsets)  # delivered: the ledger has them from here on
                    return Received(table, redeliveries, self._ledger, offsets, holes)
                else:
                    width = min(2 * width, _MOST_WIDTH)
            except CorruptionError as error:
                damaged = await self._damaged(error, wanted)
                for partition, (start, end) in segment_offsets(damaged).items():
                    if ranges.intersect(ready.get(partition, EMPTY), ((start, end),)):
                        stops[partition] = Stop(start, end, self._in_the_way(error, damaged, partition))
                        ready[partition] = below(ready[partition], start)
        return None

    def _width(self, most: int) -> int:
        """The offsets to read for so many messages, if as many of them are holes as at the last read."""
        return max(most, min(math.ceil(most / self._density), _MOST_WIDTH))

    def _note_holes(self, found: Mapping[int, Ranges]) -> None:
        """Note what was read and has no message, and forget what the cursors have passed."""
        ranges.include(self._holes, found)
        cursors = self._connection.follower.state.cursors
        for partition in list(self._holes):
            cursor = cursors.get((self.subscription, partition))  # None where the subscription was dropped
            if cursor is not None:
                self._holes[partition] = ranges.subtract(self._holes[partition], ((0, cursor.position),))

    async def _damaged(self, error: CorruptionError, wanted: Mapping[int, Ranges]) -> SegmentRecord:
        """The segment that an error names. Raises the error itself where it names none of what was read."""
        follower = self._connection.follower
        holding = await self._connection.runtime.read(partial(follower.holding, self.topic.id, wanted))
        found = next((item for item in holding[0] if item.number == error.segment), None)
        if found is None:
            raise error
        return found

    def _in_the_way(self, error: CorruptionError, damaged: SegmentRecord, partition: int) -> CorruptionError:
        start, end = segment_offsets(damaged)[partition]
        found = damaged_segment(
            error,
            self.topic.name,
            damaged.number,
            [(partition, start, end - start)],
            f"{RESTORE}; or acknowledge what was received before it and pass over it with "
            f"consumer.seek({{{partition}: {end}}}, {self.topic.name!r}), which skips its messages",
        )
        found.behind = {partition: end}
        return found

    def _read(self, wanted: Mapping[int, Ranges]) -> pa.Table:
        """The messages at these offsets, partition by partition. Not in the engine: it reads, and decodes."""
        table = self._read_ahead.read(wanted)
        return self._read_alone(wanted) if table is None else table

    def _read_alone(self, wanted: Mapping[int, Ranges]) -> pa.Table:
        """The messages at these offsets and no others. Raises CorruptionError for a damaged segment among theirs."""
        follower = self._connection.follower
        records, version = follower.holding(self.topic.id, wanted)
        plan = scan_planner.plan(
            records,
            {},
            topic=self.topic.name,
            folder=self.topic.folder,
            schema=follower.state.topics[self.topic.id].schema,
            coordinators=self._connection.coordinators,
            version=version,
            offsets={partition: (found[0][0], found[-1][1]) for partition, found in wanted.items()},
        )
        table = pa.concat_tables(self._connection.reader.batches(plan, include_metadata=True, in_parts=True))
        if any(len(found) > 1 for found in wanted.values()):
            table = _only(table, wanted)
        if len(wanted) > 1:
            table = table.sort_by([("_partition", "ascending"), ("_offset", "ascending")])
        return table

    def _available(self, partition: int, unavailable: Mapping[int, Ranges]) -> Ranges:
        """What of a partition can be delivered now; ``unavailable`` says the ledger."""
        state = self._connection.follower.state
        return available(
            state.cursors[self.subscription, partition],
            state.start_of(self.topic.id, partition),
            state.end_of(self.topic.id, partition),
            unavailable.get(partition, EMPTY),
        )

    def check_delivered(self, ledger: Ledger, unnamed: Mapping[int, Ranges]) -> None:
        """Raise TransactionConflict where a cumulative acknowledgement would take what is still to be delivered.

        What was released, or passed over because a transaction claimed it, lies before messages that were received: who
        acknowledges up to those does not mean it, and nobody would ever see it again.

        Makes no request: the claim follows in the same step. A Shared subscription, where a release makes one, has no
        cumulative acknowledgements.

        Args:
            ledger: of the epoch in which the acknowledged messages were received.
            unnamed: by partition what is acknowledged without being one of them, because it lies before them.
        """
        if not unnamed or self.subscription not in self._connection.follower.state.subscriptions:
            return  # dropped: that is what the acknowledgement will hear
        unavailable = ledger.unavailable(self._consumer, plain=False)
        for partition, found in unnamed.items():
            missing = ranges.intersect(self._available(partition, unavailable), found)
            if missing := ranges.subtract(missing, self._holes.get(partition, EMPTY)):
                raise self._not_delivered(partition, missing[0][0])

    def _not_delivered(self, partition: int, offset: int) -> TransactionConflict:
        return TransactionConflict(
            f"a cumulative acknowledgement would take the offset {offset} of partition {partition} of "
            f"{self.topic.name!r}, which was released, or was claimed by another transaction, and is still to be "
            "delivered to this consumer",
            advice="receive it first, or acknowledge the messages themselves; a transaction has to begin anew",
        )

    # --- redelivery -------------------------------------------------------------------------------------------------

    async def negative_acknowledge(self, found: Offsets) -> None:
        """Messages are released by their user: they are delivered again."""
        self._ledger.redeliver(self._consumer, found)

    def redeliver_of_attempt(self, delivery: Delivery) -> None:
        """The attempt that received them failed: they are delivered again."""
        delivery.ledger.redeliver(delivery.consumer, delivery.offsets)

    async def release_redelivered(self) -> None:
        """Let others have at once what is delivered again."""

    async def redeliver(self) -> None:
        """Everything that was not acknowledged is delivered again."""
        self._ledger.redeliver_all(self._consumer)

    def seek_actions(self, draft: Draft, positions: Mapping[int, int]) -> list[AnyAction]:
        """What moves the cursors. Raises ConsumerFenced for an old epoch."""
        record = draft.subscriptions.get(self.subscription)
        if record is not None:
            check_epoch(record, self.epoch)
        return [Seek(self.subscription, tuple(sorted(positions.items())))]

    async def sought(self, epoch: int) -> None:
        """A seek of this consumer raised the epoch: all begins anew."""
        self._ledger = self._connection.ledger(self.subscription, epoch)

    async def close(self) -> None:
        """The consumer receives no more."""


def segment_offsets(segment: SegmentRecord) -> dict[int, Range]:
    """The offsets of a visible segment, by partition."""
    return {item.partition: (item.start, segment.end_of(item)) for item in segment.slices}


def first_of_all(ready: Mapping[int, Ranges], most: int, holes: Mapping[int, Ranges]) -> dict[int, Ranges]:
    """The first so many offsets, partition by partition, and the known holes that touch them or lie between them."""
    chosen: dict[int, Ranges] = {}
    for partition, found in ready.items():
        own = holes.get(partition, EMPTY)
        first = _first_of(ranges.subtract(found, own), most)
        if first:
            end = first[-1][1]
            chosen[partition] = ranges.below(found, next((behind for start, behind in own if start == end), end))
            most -= ranges.size(first)
    return chosen


def _first_of(found: Ranges, most: int) -> Ranges:
    """The first so many offsets of a set."""
    chosen: list[Range] = []
    for start, end in found:
        if most <= 0:
            break
        chosen.append((start, min(end, start + most)))
        most -= end - start
    return tuple(chosen)


def _first_rows(table: pa.Table, wanted: dict[int, Ranges], most: int) -> tuple[pa.Table, dict[int, Ranges]]:
    """The first messages of what was read, in the order in which the partitions were wanted, and their offsets."""
    if len(table) <= most:
        return table, wanted
    partitions, offsets = np.asarray(table.column("_partition")), np.asarray(table.column("_offset"))
    pieces: dict[int, pa.Table] = {}
    chosen: dict[int, Ranges] = {}
    for partition, found in wanted.items():
        first, behind = np.searchsorted(partitions, [partition, partition + 1]).tolist()
        count = min(most, behind - first)
        if count:
            pieces[partition] = table.slice(first, count)
        chosen[partition] = found if first + count == behind else ranges.below(found, int(offsets[first + count]))
        most -= count
    return pa.concat_tables([pieces[partition] for partition in sorted(pieces)]), chosen


def _only(table: pa.Table, wanted: Mapping[int, Ranges]) -> pa.Table:
    """The rows of these offsets."""
    partitions, offsets = np.asarray(table.column("_partition")), np.asarray(table.column("_offset"))
    chosen = np.zeros(len(table), bool)
    for partition, found in wanted.items():
        bounds = np.array(found, np.int64).reshape(-1)
        # Bounds ascend strictly, a start before its end: whoever is behind an odd number of them is inside.
        chosen |= (partitions == partition) & (np.searchsorted(bounds, offsets, "right") % 2 == 1)
    return table.filter(pa.array(chosen))


__all__ = [
    "DeliveryReceipt",
    "Received",
    "Receiving",
    "Stop",
    "TopicDelivery",
    "TransactAttempt",
    "attempt",
    "current_attempt",
    "first_of_all",
    "segment_offsets",
]
