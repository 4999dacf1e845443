"""One topic of a Shared consumer: what is leased to it, delivered or not, and messages for the dead-letter topic."""

from __future__ import annotations

import contextlib
from collections import deque
from collections.abc import Callable, Container, Mapping
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from txnlog.client import dead_letters
from txnlog.client.acknowledgement_conflicts import end_claims
from txnlog.client.delivery import Received, Receiving, Stop, TopicDelivery, segment_offsets
from txnlog.client.holes import holes_in
from txnlog.client.ledger import Delivery, Offsets
from txnlog.common import ranges
from txnlog.common.ranges import EMPTY, Range, Ranges
from txnlog.engine.effects import WRITTEN
from txnlog.engine.log_lines import LogLines
from txnlog.errors import CorruptionError, SchemaMismatch, TransactionConflict, TxnLogError
from txnlog.fold import leases
from txnlog.fold.leases import Wanted, in_turn
from txnlog.fold.state import Cursor, Draft, Redelivery, State, SubscriptionRecord, TopicRecord
from txnlog.format.actions import AnyAction, Header
from txnlog.log.append_queue import Ride
from txnlog.log.commands import Answer, Simple, effect
from txnlog.replies import copy_of

if TYPE_CHECKING:
    import pyarrow as pa

    from txnlog.client.connection import Connection

_logger = LogLines("txnlog.consumer")

_MAX_ROUNDS = 1_000
"""Grants that came to nothing, and entries of dead letters, in one call."""

_MOST_DECISIONS = 16
"""Of one command: the newest. Those of a command whose outcome is unknown are looked for in the log."""

_AHEAD_AFTER = 3
_AHEAD_LEAST = 100
"""After so many full batches in a row, of at least so many messages, the next grant rides in the entry of whatever this
client appends next: most often the acknowledgement. A batch then costs one entry less."""


class _Decided(NamedTuple):
    """What a grant gives as it was decided at a time of the log: new leases, and those that it renews.

    What is renewed was prefetched before, and may have been delivered by the time when the log shows the grant.
    """

    time_ms: int
    granted: dict[int, Ranges]
    renewed: Offsets

    @staticmethod
    def of(at: Header, wanted: Wanted, granted: Offsets) -> _Decided:
        known = wanted.prefetched
        new = {p: ranges.subtract(found, known.get(p, EMPTY)) for p, found in granted.items()}
        old = {p: ranges.intersect(found, known.get(p, EMPTY)) for p, found in granted.items()}
        return _Decided(at.timestamp_ms, new, old)


class _Asked:
    """A command that has messages leased.

    Attributes:
        decided: what its decisions gave. Some were tried only; the reply says which one is in the log.
    """

    def __init__(self, wanted: Callable[[], Wanted | None]) -> None:
        self._wanted = wanted
        self.decided: deque[_Decided] = deque(maxlen=_MOST_DECISIONS)
        # Upkeep: what a call that fails had leased it releases, or says so.
        self.command: Simple[_Decided] = Simple(self._decide, lambda _draft, _at: self.decided[-1], is_upkeep=True)

    def _decide(self, draft: Draft, at: Header) -> list[AnyAction] | Answer[_Decided]:
        wanted = self._wanted()
        actions: tuple[AnyAction, ...] = ()
        found = _Decided(at.timestamp_ms, {}, {})
        if wanted is not None:
            # Asked for ahead, nobody waits: the next call of receive raises what a seek or a drop means for it.
            with contextlib.suppress(*[TxnLogError] if wanted.ahead else []):
                grant = leases.grant(draft, wanted, at.timestamp_ms)
                found, actions = _Decided.of(at, wanted, grant.granted), grant.actions
        self.decided.append(found)
        return list(actions) or Answer(found, settled=True)


class SharedTopicDelivery(TopicDelivery):
    """One topic of a Shared consumer.

    The log says what is leased to whom. The ledger says which of its own leases a consumer delivered; the others are
    prefetched: it delivers them without a request, or releases them as never delivered.
    """

    def __init__(
        self, connection: Connection, consumer: str, topic: TopicRecord, subscription: int, epoch: int
    ) -> None:
        super().__init__(connection, leases.label_of(consumer, connection.runtime.unique()), topic, subscription, epoch)
        self._unknown: list[_Decided] = []
        self._withheld: dict[int, Ranges] = {}
        self._full = 0
        self._riding: tuple[Ride, _Asked] | None = None
        self._closed = False
        self._warned: set[type[TxnLogError]] = set()
        self._unreadable: CorruptionError | None = None
        self._ledger.leased = True
        self._looked_at_first: dict[int, Range] = {}

    async def receive(self, call: Receiving) -> Received | None:
        """The next messages, None where there are none: they are leased to this consumer, for ``lease_ms``.

        A damaged segment is read again at each call: it may have been restored. Raises its CorruptionError at the turn
        of its partition, and where there is nothing else; never before what is free below the segment was delivered,
        since whoever seeks past the segment, as the error says, would lose that. A call that raises leaves nothing
        leased that was not delivered: whether its user calls again soon, late or never, nothing of that counts as
        delivered, or waits for the end of a lease.
        """
        try:
            return await self._receive(call)
        except TxnLogError:
            self._adopt_ahead()  # what was granted ahead, too
            await self._release_prefetched(self._prefetched)
            raise

    async def _receive(self, call: Receiving) -> Received | None:
        self._adopt_ahead()
        await self._release_owed()
        turn = self._turn
        own = turn % self.topic.partitions
        stops = await self._met_again()
        self._unreadable = None
        fresh = False
        for _ in range(_MAX_ROUNDS):
            record = self.check()
            self.warn_of_deleted()
            end_claims(self._connection, self._ledger)  # else a late abort takes what is delivered from here on
            self._settle()
            state = self._connection.follower.state
            now_ms = self._connection.log_now_ms()
            self._forget_what_is_not_leased(state)
            if await self._passed_holes():
                continue
            ready = self._ready(state, record, -1 if fresh else now_ms + record.lease_ms // 2, turn, stops)
            counts = {p: _counts(state.cursors[record.id, p], found) for p, found in ready.items()}
            wanted = self._wanted(call.most, turn, stops)
            stopped = turn > 0 and own in stops and own not in ready
            grant = leases.grant(state.draft(), wanted, now_ms) if stopped or not ready else None
            self._turn = turn + 1
            if grant is None:
                received = await self._read_ready(ready, call.most, counts, stops, others=turn == 0)
                if stops:
                    await self._release_unreadable(stops)
                if received is not None:
                    if not stops:
                        self._ask_ahead(len(received.table), call.most)
                    return received
            elif grant.dead and await self._move_to_dead_letters(record, wanted, grant.dead):
                await WRITTEN
            elif own in grant.granted if stopped else grant.granted:
                await self._take(wanted)
                fresh = True
            else:
                break
        error = stops.get(own, next(iter(stops.values()))).error if stops else self._unreadable
        if error is None:
            return None
        raise copy_of(error)

    def _wanted(self, most: int, turn: int, stops: Mapping[int, Stop]) -> Wanted:
        before = {partition: stop.offset for partition, stop in stops.items()}
        return Wanted(self.subscription, self.epoch, self._consumer, most, self._prefetched, turn, before)

    async def _met_again(self) -> dict[int, Stop]:
        """The damaged segments of the call before that are so still, and from which something is to be delivered.

        Nothing at them or behind them is leased again.
        """
        record = self.check()
        state = self._connection.follower.state
        ready: dict[int, Ranges] = {}
        for partition, (first, end) in self._looked_at_first.items():
            start = max(first, state.start_of(self.topic.id, partition))
            if left := leases.available(state.cursors[record.id, partition], start, end, EMPTY):
                ready[partition] = left[:1]
        stops: dict[int, Stop] = {}
        for partition, found in ready.items():
            await self._read_ready({partition: found}, 1, {}, stops)
        self._look_at_first(stops)
        return stops

    def _look_at_first(self, stops: Mapping[int, Stop]) -> None:
        self._looked_at_first = {partition: (stop.offset, stop.end) for partition, stop in stops.items()}

    async def _release_unreadable(self, stops: Mapping[int, Stop]) -> None:
        """Release what is leased at damaged segments and behind them, as never delivered. Best effort.

        Kept, it would count as delivered once the leases end, until it is a dead letter that nobody ever saw, and it
        would fill the limit of leases, so that what is free below the segments could not be had.
        """
        self._look_at_first(stops)
        await self._release_prefetched(
            {
                partition: found
                for partition, stop in stops.items()
                if (found := ranges.subtract(self._prefetched.get(partition, EMPTY), ((0, stop.offset),)))
            }
        )

    @property
    def _prefetched(self) -> Offsets:
        return self._ledger.prefetched(self._consumer)

    @property
    def _delivered(self) -> Offsets:
        return self._ledger.delivered(self._consumer)

    async def _release_prefetched(self, found: Offsets) -> None:
        """Release what was not delivered, and count nothing. Best effort: the next call does it first, or a lease ends.

        Until it is done they are not delivered: a release that lands behind that would let them come again, uncounted.
        """
        ranges.include(self._withheld, found)
        try:
            await self._release_owed()
        except TxnLogError:
            _logger.warning("the leases of %r end by themselves", self._consumer, exc_info=True)
            await WRITTEN  # nobody else receives these messages until then

    def _ready(
        self, state: State, record: SubscriptionRecord, after_ms: int, turn: int, stops: Mapping[int, Stop]
    ) -> dict[int, Ranges]:
        """What of the prefetched can be delivered: leased to this consumer for long enough, acknowledged by nobody."""
        ready: dict[int, Ranges] = {}
        prefetched = self._prefetched
        for partition in in_turn(turn, self.topic.partitions):
            own = prefetched.get(partition, EMPTY)
            cursor = state.cursors[record.id, partition]
            start = state.start_of(self.topic.id, partition)
            end = state.end_of(self.topic.id, partition)
            mine = ranges.intersect(own, leases.leased(cursor, self._consumer, after_ms=after_ms))
            mine = ranges.intersect(mine, leases.available(cursor, start, end, EMPTY))
            if partition in stops:
                mine = ranges.below(mine, stops[partition].offset)
            if mine:
                ready[partition] = mine
        return ready

    async def _passed_holes(self) -> bool:
        """Pass over the partitions in which nothing but holes is leased; whether there were any.

        They would fill the limit of leases. Those that follow them go with them: however many they are, a partition has
        one range.
        """
        state = self._connection.follower.state
        empty: dict[int, Ranges] = {}
        for partition, found in self._prefetched.items():
            cursor = state.cursors[self.subscription, partition]
            start, end = state.start_of(self.topic.id, partition), state.end_of(self.topic.id, partition)
            left = ranges.intersect(found, leases.available(cursor, start, end, EMPTY))
            if left and not ranges.subtract(left, self._holes.get(partition, EMPTY)):
                empty[partition] = left
        if not empty:
            return False
        await self._connection.runtime.read(partial(self._look_for_more_holes, empty))
        known = {
            p: tuple(run for run in self._holes[p] if ranges.overlaps((run,), found)) for p, found in empty.items()
        }
        await self._pass_over(known)
        self._ledger.release(self._consumer, known)
        return True

    def _look_for_more_holes(self, found: Mapping[int, Ranges]) -> None:
        """Note all holes of the segments of some holes. Not in the engine: it reads."""
        records, _ = self._connection.follower.holding(self.topic.id, found)
        state = self._connection.follower.state
        for record in records:
            for partition, own in segment_offsets(record).items():
                earliest = state.start_of(self.topic.id, partition)
                if partition in found and record.extent is not None and earliest < own[1]:
                    wanted = {partition: ((max(own[0], earliest), own[1]),)}
                    ranges.include(self._holes, holes_in(wanted, self._read_alone(wanted)))

    async def _release_owed(self) -> None:
        """Release, in one entry, what was left to do.

        What transactions had that were aborted without the log's knowledge counts as a redelivery; what a call that
        failed had leased does not.
        """
        returned, withheld = self._ledger.returned(self._consumer), dict(self._withheld)
        if not returned and not withheld:
            return
        await self._release(returned, withheld)
        self._ledger.release(self._consumer, withheld)
        # More may have come while the entry was under way.
        self._withheld = {
            partition: left
            for partition, found in self._withheld.items()
            if (left := ranges.subtract(found, withheld.get(partition, EMPTY)))
        }
        cursors = self._connection.follower.state.cursors
        over = {
            partition: ranges.subtract(found, leases.leased(cursor, self._consumer))
            for partition, found in returned.items()
            if (cursor := cursors.get((self.subscription, partition))) is not None
        }
        self._ledger.forget_returned(self._consumer, over)

    def _with_returned(self) -> dict[int, Ranges]:
        """What was delivered, and is so or is to be released."""
        found = dict(self._delivered)
        ranges.include(found, self._ledger.returned(self._consumer))
        return found

    def _forget_what_is_not_leased(self, state: State) -> None:
        """What is leased to this consumer no more was acknowledged, or is another's: to release it has no effect."""
        over: dict[int, Ranges] = {}
        for partition, delivered in self._delivered.items():
            cursor = state.cursors[self.subscription, partition]
            over[partition] = ranges.subtract(delivered, leases.leased(cursor, self._consumer))
        self._ledger.forget_delivered(self._consumer, over)

    async def _take(self, wanted: Wanted) -> None:
        """Have messages leased to this consumer, unless others were faster."""
        asked = _Asked(lambda: wanted)
        try:
            self._add(await self._connection.appender.carry_out(asked.command))
        except BaseException:
            self._unknown.extend(asked.decided)
            raise

    def _add(self, found: _Decided) -> None:
        """What was granted is prefetched. Grants of unknown outcome are in the log by now, or never will be."""
        self._settle()
        self._unknown.clear()
        self._ledger.prefetch(self._consumer, found.granted)
        self._ledger.renew(self._consumer, found.renewed)

    def _settle(self) -> None:
        """What a grant of unknown outcome gave is prefetched once the log shows it: a newer lease than those before."""
        for item in list(self._unknown):
            shown = [self._leased_since(item.time_ms, found) for found in (item.granted, item.renewed)]
            if any(shown):
                self._ledger.prefetch(self._consumer, shown[0])
                self._ledger.renew(self._consumer, shown[1])
                if item in self._unknown:
                    self._unknown.remove(item)

    def _leased_since(self, time_ms: int, found: Offsets) -> Offsets:
        """Those of some messages that the log shows leased to this consumer beyond a time of the log."""
        cursors = self._connection.follower.state.cursors
        shown: dict[int, Ranges] = {}
        for partition, more in found.items():
            cursor = cursors.get((self.subscription, partition))  # None where the subscription was dropped
            if cursor is not None and (
                mine := ranges.intersect(more, leases.leased(cursor, self._consumer, after_ms=time_ms))
            ):
                shown[partition] = mine
        return shown

    def _ask_ahead(self, count: int, most: int) -> None:
        """Have the next batch leased along with what this client appends next, where that pays."""
        self._full = self._full + 1 if count == most >= _AHEAD_LEAST else 0
        if self._full < _AHEAD_AFTER or self._riding is not None:
            return
        asked = _Asked(lambda: None if self._closed else replace(self._wanted(most, self._turn, {}), ahead=True))
        self._riding = (self._connection.appender.ride(asked.command), asked)

    def _adopt_ahead(self) -> None:
        """What was asked for ahead is prefetched once it was logged; if it was not yet, it still rides."""
        if self._riding is not None and (outcome := self._riding[0].outcome) is not None:
            found, error = outcome
            if error is None:
                assert isinstance(found, _Decided), "it is what its command gives"
                self._add(found)
            else:
                self._unknown.extend(self._riding[1].decided)
            self._riding = None

    def deliver(self, received: Received, call: Receiving) -> Delivery:
        """The call returns these messages: they are delivered, by whichever grant they were leased."""
        delivery = super().deliver(received, call)
        for item in [*self._unknown, *(self._riding[1].decided if self._riding is not None else ())]:
            ranges.exclude(item.granted, received.offsets)
        return delivery

    async def _move_to_dead_letters(
        self, record: SubscriptionRecord, wanted: Wanted, dead: Mapping[int, tuple[Redelivery, ...]]
    ) -> bool:
        """Bring messages to the dead-letter topic; somebody else may be faster, or acknowledge them yet.

        False where that topic lacks a column that theirs got since, or where no message can be read: they wait, and the
        others are delivered.
        """
        try:
            dead_letters.target(self._connection, record)
            readable, table = await self._readable(record, dead)
            if table is None:
                return False
            move = partial(dead_letters.move, self._connection, record, self.topic, wanted, table, readable)
            await self._connection.runtime.job(move)
        except TransactionConflict:
            _logger.debug("dead letters of %r: somebody else was first", record.name)
        except SchemaMismatch as error:
            self._warn_waiting(record, error)
            return False
        return True

    def _warn_waiting(self, record: SubscriptionRecord, error: TxnLogError) -> None:
        """Say that dead letters wait, and why: once of each kind of error, however often they are tried again."""
        if type(error) not in self._warned:
            self._warned.add(type(error))
            _logger.warning(
                "dead letters of the subscription %r of %r wait where they are: %s", record.name, self.topic.name, error
            )

    async def _readable(
        self, record: SubscriptionRecord, dead: Mapping[int, tuple[Redelivery, ...]]
    ) -> tuple[Mapping[int, tuple[Redelivery, ...]], pa.Table | None]:
        """Those of some messages that are in no damaged segment, and their rows. An error is noted for the others."""
        while dead:
            wanted = {p: ranges.normalize((item.start, item.end) for item in found) for p, found in dead.items()}
            try:
                # From the store: what was erased since it was read ahead must not be written again.
                return dead, await self._connection.runtime.read(partial(self._read_alone, wanted))
            except CorruptionError as error:
                damaged = await self._damaged(error, wanted)
                dead = _without(dead, segment_offsets(damaged))
                partition = min(wanted.keys() & segment_offsets(damaged).keys())
                self._unreadable = self._in_the_way(error, damaged, partition)
                self._warn_waiting(record, self._unreadable)
        return dead, None

    # --- redelivery -------------------------------------------------------------------------------------------------

    async def negative_acknowledge(self, found: Offsets) -> None:
        """Messages are released by their user: the log counts it, and anybody may receive them at once."""
        delivered = self._delivered
        mine = {partition: ranges.intersect(delivered.get(partition, EMPTY), more) for partition, more in found.items()}
        await self._release(mine, {})
        await super().negative_acknowledge(found)

    def redeliver_of_attempt(self, delivery: Delivery) -> None:
        """The attempt that received them failed: the log is to count that, and anybody may receive them then."""
        delivery.ledger.return_delivered(delivery.consumer, delivery.offsets)

    async def release_redelivered(self) -> None:
        """Let others have at once what is delivered again. Best effort, as their lease ends by itself."""
        try:
            await self._release_owed()
        except TxnLogError:
            _logger.warning("messages of %r are redelivered when their lease ends", self.topic.name, exc_info=True)

    async def redeliver(self) -> None:
        """Everything that was not acknowledged is delivered again, to anybody."""
        prefetched = self._prefetched
        await self._release(self._with_returned(), prefetched)
        self._ledger.release(self._consumer, prefetched)
        await super().redeliver()

    async def _release(self, delivered: Offsets, prefetched: Offsets) -> None:
        await self._release_by(lambda _draft: (delivered, prefetched), is_upkeep=not any(delivered.values()))

    async def _release_by(
        self, chosen: Callable[[Draft], tuple[Offsets, Offsets]], *, look: bool = True, is_upkeep: bool = False
    ) -> None:
        """Release what was delivered, which counts, and what was not.

        Args:
            chosen: both, by a draft of the state.
            look: no entry where the log, as far as it is known, shows none of it.
            is_upkeep: nothing of it was delivered.
        """

        def released(draft: Draft) -> list[AnyAction]:
            record = draft.subscriptions.get(self.subscription)
            if record is None or record.epoch != self.epoch:
                return []  # dropped or sought meanwhile: leases are forgotten, or end by themselves
            return self._releases(draft, *chosen(draft))

        def decide(draft: Draft, _at: Header) -> list[AnyAction] | Answer[None]:
            return released(draft) or Answer(None, settled=True)

        if not look or released(self._connection.follower.state.draft()):
            await self._connection.appender.carry_out(effect(decide, is_upkeep=is_upkeep))

    def _releases(self, draft: Draft, delivered: Offsets, prefetched: Offsets) -> list[AnyAction]:
        return [
            *leases.returned(draft, self.subscription, self._consumer, delivered, redeliver=True),
            *leases.returned(draft, self.subscription, self._consumer, prefetched, redeliver=False),
        ]

    def _all_leased(self, draft: Draft, but: Container[int] = ()) -> tuple[Offsets, Offsets]:
        """All that the log shows leased to this consumer in the other partitions: delivered, and not.

        Also what was granted in an entry that this client does not know yet: nobody else has leases of this label.
        """
        was_delivered = self._with_returned()
        delivered: dict[int, Ranges] = {}
        others: dict[int, Ranges] = {}
        for partition in range(self.topic.partitions):
            cursor = draft.cursors.get((self.subscription, partition))
            if cursor is None or partition in but:
                continue
            mine = leases.leased(cursor, self._consumer)
            known = was_delivered.get(partition, EMPTY)
            delivered[partition], others[partition] = ranges.intersect(mine, known), ranges.subtract(mine, known)
        return (
            {partition: found for partition, found in delivered.items() if found},
            {partition: found for partition, found in others.items() if found},
        )

    def seek_actions(self, draft: Draft, positions: Mapping[int, int]) -> list[AnyAction]:
        """What moves the cursors; in other partitions, what was leased is released."""
        actions = super().seek_actions(draft, positions)
        if draft.subscriptions.get(self.subscription) is None:
            return actions
        return [*self._releases(draft, *self._all_leased(draft, positions)), *actions]

    async def sought(self, epoch: int) -> None:
        """A seek of this consumer raised the epoch: all begins anew."""
        await super().sought(epoch)
        self._ledger.leased = True
        self._unknown.clear()
        self._withheld.clear()
        self._riding = None

    async def close(self) -> None:
        """Release what is leased. Best effort: a lease ends by itself."""
        self._closed = True
        riding = self._riding is not None and self._riding[0].outcome is None
        try:
            if self._unknown or self._riding is not None:
                await self._connection.follower.refreshing()
            # Behind the entry in which the next batch is leased, if that is under way.
            await self._release_by(self._all_leased, look=not riding)
        except TxnLogError:
            _logger.warning("the leases of %r end by themselves", self._consumer, exc_info=True)


def _without(
    messages: Mapping[int, tuple[Redelivery, ...]], lost: Mapping[int, Range]
) -> dict[int, tuple[Redelivery, ...]]:
    """Messages but for those at some offsets."""
    left = {
        partition: tuple(
            Redelivery(start, end, item.count)
            for item in found
            for start, end in ranges.subtract(((item.start, item.end),), (lost[partition],))
        )
        if partition in lost
        else found
        for partition, found in messages.items()
    }
    return {partition: found for partition, found in left.items() if found}


def _counts(cursor: Cursor, found: Ranges) -> tuple[Redelivery, ...]:
    """How often which of these messages were delivered before."""
    return tuple(
        Redelivery(start, end, item.count)
        for item in cursor.redeliveries
        for start, end in ranges.intersect(((item.start, item.end),), found)
    )


__all__ = ["SharedTopicDelivery"]
