"""Consumers of one Failover subscription, two handles, doing anything in any order, against a plain model.

The model keeps who is active, which signs of life each handle saw and since when, what is taken, what each open
transaction holds, and what the active one was handed. Of each receive it says exactly what must come: to who waits
nothing, to who takes over all that is free, and to who was taken over the error; and of each call of one that was taken
over that nothing is written.
"""

from __future__ import annotations

import contextlib
import itertools
import random
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from types import NoneType
from typing import Any

import pytest

from tests.client.support import SCHEMA, FakeRuntime, Place, ids, raises, read, received, rows
from tests.effort import tries
from txnlog.errors import (
    ConsumerBusy,
    ConsumerFenced,
    InvalidTransactionState,
    TransactionAborted,
    TransactionConflict,
    TransactionHasFailedOperation,
    TxnLogError,
)
from txnlog.testing import ManualClock
from txnlog.testing.scheduler import START_MS

LEASE_MS = 9_000
SLOTS = {"one": 0, "two": 1, "three": 1}
"""Names of the consumers, and the handle of each: the third shares one."""

PARTITIONS = 2
TIMEOUT_MS = 900_000
"""Of transactions: longer than all steps let pass. What a deadline does, the other models try."""

CLOSED = -1
"""A sign of life that says that its consumer has gone."""

Message = tuple[int, int]


@dataclass
class Batch:
    """What one receive handed out, and the term it belongs to."""

    messages: Any
    term: int


@dataclass(frozen=True)
class Chosen:
    """A part of a batch that is acknowledged, or given back."""

    part: Any
    term: int
    named: set[Message]
    cumulative: bool

    @property
    def unnamed(self) -> set[Message]:
        """What a cumulative acknowledgement takes because it lies before its messages."""
        return self.wanted - self.named

    @property
    def wanted(self) -> set[Message]:
        """All that acknowledging it means."""
        if not self.cumulative:
            return self.named
        return {(partition, offset) for partition, end in self.part.end_offsets.items() for offset in range(end)}


@dataclass
class Opened:
    """A consumer, and what the model knows of it. A term is what a takeover or a seek begins."""

    consumer: Any
    handle: int
    term: int | None = None
    delivered: set[Message] = field(default_factory=set)
    batches: list[Batch] = field(default_factory=list)
    looked_ms: float = 0.0
    taken_when_lost: set[Message] = field(default_factory=set)  # when another took over


@dataclass
class Handle:
    """A client: the sign of life that it saw last, the one that it gave, and the term that it surely knows of."""

    ns: Any
    seen: tuple[int, int | None] | None = None
    since_ms: float = 0.0
    beaten: tuple[int, float] | None = None
    knows: int = 0

    @property
    def now_ms(self) -> float:
        """The time that passed for this client."""
        elapsed: float = self.ns._connection.runtime.elapsed_ms()
        return elapsed


@dataclass
class Begun:
    """An open transaction, and what it acknowledged: by message the term, and what an abort gives back."""

    txn: Any
    handle: int
    taken: dict[Message, int] = field(default_factory=dict)
    ends: dict[tuple[int, int], int] = field(default_factory=dict)  # of its cumulative ones, by term and partition
    wanted: list[tuple[int, set[Message]]] = field(default_factory=list)
    logged: set[Message] = field(default_factory=set)
    unlogged: set[int] = field(default_factory=set)  # terms of what the log does not show
    failed: bool = False
    fenced: int | None = None  # the term that aborted it
    token: str | None = None


class FailoverConsumers:
    """Three consumers of two clients; ``chance`` decides what they do, ``reached`` counts what came of it."""

    def __init__(self, chance: random.Random, place: Place, reached: Counter[str]) -> None:
        self.chance = chance
        self.place = place
        self.reached = reached
        self.clock = ManualClock(START_MS)
        self.numbers = itertools.count()
        self.beats = itertools.count(1)
        self.rows: list[list[int]] = [[] for _ in range(PARTITIONS)]
        self.taken: set[Message] = set()
        self.done: list[int] = []
        self.term = 0
        self.epochs: dict[int, int] = {}  # as the log calls the terms
        self.active: str | None = None
        self.signs: dict[int, int] = {}  # by term the newest one
        self.opened: dict[str, Opened] = {}
        self.begun: list[Begun] = []
        self.handles = [self.open_handle(), self.open_handle()]
        ns = self.handles[0].ns
        ns.create_topic("orders", SCHEMA, partitions=PARTITIONS)
        ns.create_topic("done", SCHEMA)
        ns.create_subscription("orders", "billing", type="failover", lease_ms=LEASE_MS)
        self.watcher = self.place.open(mode="r", clock=self.clock)
        for name in ("one", "two"):
            self.produce(name)
            self.open_consumer(name)

    def open_handle(self) -> Handle:
        """A client that has numbers at hand: a refused call of it writes nothing."""
        handle = Handle(self.place.open(clock=self.clock))
        handle.ns.begin().abort()
        return handle

    # --- what the model says ------------------------------------------------------------------------------------------

    def held(self, *, but: Begun | None = None) -> set[Message]:
        """What open transactions hold: in the log, or for the consumer of this term."""
        return {
            message
            for begun in self.begun
            if begun is not but and begun.fenced is None
            for message, term in begun.taken.items()
            if message in begun.logged or term == self.term
        }

    def logged(self) -> set[Message]:
        """What the log shows as pending."""
        return set().union(*(begun.logged for begun in self.begun if begun.fenced is None))

    def ready(self, who: Opened) -> list[Message]:
        """What is to be handed to the active consumer, in order."""
        gone = self.taken | self.held() | who.delivered
        return [m for p in range(PARTITIONS) for o in range(len(self.rows[p])) if (m := (p, o)) not in gone]

    def take(self, wanted: set[Message]) -> None:
        assert not wanted & self.taken, "each message is acknowledged once"
        self.taken |= wanted

    def lost(self, who: Opened) -> bool:
        """Whether another took its place."""
        return who.term is not None and who.term != self.term

    def new_term(self, name: str) -> None:
        """A takeover or a seek raised the epoch: what was handed out before is out of its consumer's hands."""
        self.term += 1
        self.active = name
        self.opened[name].term = self.term
        self.opened[name].delivered.clear()

    def beat(self, handle: Handle, term: int) -> None:
        """A sign of life, at most once in a third of the lease."""
        if handle.beaten is None or handle.beaten[0] != term or handle.now_ms - handle.beaten[1] >= LEASE_MS / 3:
            handle.beaten = term, handle.now_ms
            self.signs[term] = next(self.beats)

    def lease_is_over(self, handle: Handle) -> bool:
        """Whether the handle, which looks now, may take the place of the active one."""
        sign = self.signs.get(self.term)
        if self.active is None or sign == CLOSED:
            return True
        if handle.seen != (self.term, sign):
            handle.seen, handle.since_ms = (self.term, sign), handle.now_ms
            return False
        return handle.now_ms - handle.since_ms >= LEASE_MS

    def look(self, name: str, *, entering: bool) -> None:
        """What a call does first, of a consumer that was not taken over: show a sign of life, or try to take over."""
        who = self.opened[name]
        handle = self.handles[who.handle]
        handle.knows = self.term
        if who.term is not None:
            self.beat(handle, who.term)
            return
        if not entering and handle.now_ms - who.looked_ms < LEASE_MS / 3:
            return
        who.looked_ms = handle.now_ms
        if self.lease_is_over(handle):
            self.take_over(name)

    def take_over(self, name: str) -> None:
        for other in self.opened.values():
            if other.term == self.term:
                other.taken_when_lost = set(self.taken)
        if self.active is not None:
            self.reached["taken over, closed" if self.signs.get(self.term) == CLOSED else "taken over, silent"] += 1
        self.new_term(name)
        for begun in self.begun:
            if begun.fenced is None and begun.logged and begun.token is None:
                begun.fenced = self.term
                self.reached["a takeover aborted a transaction"] += 1
        self.reached["held through a takeover"] += bool(self.logged())
        handle = self.handles[self.opened[name].handle]
        handle.knows = self.term
        self.beat(handle, self.term)

    def give_back(self, begun: Begun) -> None:
        """What it wanted is handed out again, by who handed it out in this term."""
        for who in self.opened.values():
            for term, wanted in begun.wanted:
                if who.term == term:
                    who.delivered -= wanted

    @contextlib.contextmanager
    def nothing_is_written(self) -> Iterator[None]:
        before = self.watcher.snapshot().version
        yield
        assert self.watcher.snapshot().version == before, "something was written"

    def refused(self, kinds: type[TxnLogError] | tuple[type[TxnLogError], ...], call: Callable[[], object]) -> None:
        with self.nothing_is_written(), pytest.raises(kinds) as caught:
            call()
        with raises(type(caught.value)):
            raise caught.value

    # --- consuming ----------------------------------------------------------------------------------------------------

    def step(self) -> None:
        """Anybody does anything, but who is active, or was taken over, more often than who waits."""
        (operation,) = self.chance.choices(list(OPERATIONS), list(OPERATIONS.values()))
        often = [name for name, who in self.opened.items() if who.term is not None]
        name = self.chance.choice([*SLOTS, *often * 3])
        if operation in OF_A_CONSUMER and name not in self.opened:
            operation = FailoverConsumers.open_consumer
        operation(self, name)

    def produce(self, name: str) -> None:
        numbers = [next(self.numbers) for _ in range(self.chance.randint(1, 4))]
        partition = self.chance.randrange(PARTITIONS)
        self.handles[SLOTS[name]].ns.produce("orders", rows(*numbers), partition=partition)
        self.handles[SLOTS[name]].knows = self.term
        self.rows[partition] += numbers

    def open_consumer(self, name: str) -> None:
        """Another one under the name: the one before closes if it is there."""
        if name in self.opened:
            self.close(name)
        handle = self.handles[SLOTS[name]]
        self.opened[name] = Opened(handle.ns.consumer("orders", "billing", name=name), SLOTS[name])
        self.look(name, entering=True)

    def close(self, name: str) -> None:
        who = self.opened.pop(name)
        with self.nothing_is_written():
            who.consumer.close()
        if who.term == self.term:
            self.signs[self.term] = CLOSED
            self.handles[who.handle].beaten = None

    def receive(self, name: str) -> None:
        who, most = self.opened[name], self.chance.randint(1, 8)
        if self.lost(who):
            self.refused(ConsumerFenced, lambda: who.consumer.receive(most, timeout_ms=0))
            self.handles[who.handle].knows = self.term
            self.reached["receive refused"] += 1
            return
        messages = who.consumer.receive(most, timeout_ms=0)
        self.look(name, entering=True)
        ready = self.ready(who) if who.term == self.term else []
        expected = [(partition, offset) for _, partition, offset in messages.positions]
        first = [[found for found in ready if found[0] == partition] for partition in range(PARTITIONS)]
        counts = Counter(partition for partition, _ in expected)
        assert expected == [found for partition in range(PARTITIONS) for found in first[partition][: counts[partition]]]
        assert len(expected) == min(most, len(ready))
        assert ids(messages.table) == [self.rows[partition][offset] for partition, offset in expected]
        if expected:
            who.delivered |= set(expected)
            for begun in self.begun:  # what it wanted of these is in the hands of their user again
                for term, wanted in begun.wanted:
                    if term == self.term:
                        wanted -= set(expected)
            who.batches.append(Batch(messages, self.term))

    def chosen(self, name: str) -> Chosen | None:
        """A part of what a consumer received, None where that is nothing."""
        if not self.opened[name].batches:
            return None
        found = self.opened[name].batches
        batch = self.chance.choice([found[-1], found[-1], *found[-3:]])
        start, end = sorted(self.chance.sample(range(len(batch.messages) + 1), 2))
        gone = self.taken | self.held() if self.chance.random() < 0.6 else set()
        named = [n for n, (_, p, o) in enumerate(batch.messages.positions) if start <= n < end and (p, o) not in gone]
        part = batch.messages[named or slice(start, end)]
        return Chosen(part, batch.term, {(p, offset) for _, p, offset in part.positions}, self.chance.random() < 0.4)

    def give_back_received(self, name: str) -> None:
        """Some messages, or all."""
        who, found = self.opened[name], self.chosen(name) if self.chance.random() < 0.7 else None
        consumer = who.consumer
        call = partial(consumer.negative_acknowledge, found.part) if found else consumer.redeliver_unacknowledged
        if self.lost(who):
            self.refused(ConsumerFenced, call)
            self.handles[who.handle].knows = self.term
            return
        call()
        self.look(name, entering=False)
        if found is None:
            who.delivered.clear()
        elif found.term == self.term:
            who.delivered -= found.named

    def acknowledge(self, name: str) -> None:
        who, found = self.opened[name], self.chosen(name)
        if found is None:
            return
        handle = self.handles[who.handle]
        call = partial(who.consumer.acknowledge, found.part, cumulative=found.cumulative)
        if found.term != self.term:
            if handle.knows < self.term and found.wanted <= who.taken_when_lost:
                with self.nothing_is_written(), contextlib.suppress(ConsumerFenced):
                    call()  # all of it is taken, as far as this client knows: fine
                return
            self.refused(ConsumerFenced, call)
            self.reached["acknowledgement refused"] += 1
            self.reached["acknowledgement refused to who was behind"] += handle.knows < self.term
            handle.knows = self.term
        elif found.wanted - self.taken & self.held() or found.unnamed & set(self.ready(who)):
            self.refused(TransactionConflict, call)
            self.reached["conflict"] += 1
        else:
            call()
            self.take(found.wanted - self.taken)
            self.reached["acknowledged"] += 1

    def seek(self, name: str) -> None:
        who, at = self.opened[name], self.chance.choice(["earliest", "latest", 0, 1])
        targets = {p: 0 if at == "earliest" else len(self.rows[p]) for p in range(PARTITIONS)}
        if isinstance(at, int):
            targets = {at: self.chance.randint(0, len(self.rows[at]))}
        call = partial(who.consumer.seek, at if isinstance(at, str) else targets)
        self.handles[who.handle].knows = self.term
        if who.term is None:
            self.refused(ConsumerBusy, call)
        elif self.lost(who):
            self.refused(ConsumerFenced, call)
            self.reached["seek refused"] += 1
        elif any(p in targets for p, _ in self.logged()):
            self.refused(InvalidTransactionState, call)
        else:
            call()
            self.new_term(name)
            self.handles[who.handle].knows = self.term
            self.taken = {message for message in self.taken if message[0] not in targets}
            self.taken |= {(p, offset) for p, end in targets.items() for offset in range(end)}
            self.reached["sought"] += 1

    # --- transactions -------------------------------------------------------------------------------------------------

    def acknowledge_in_a_transaction(self, name: str) -> None:
        who, found = self.opened[name], self.chosen(name)
        if found is None:
            return
        begun = self.transaction_of(who.handle)
        if begun is None or self.chance.random() < 0.5:
            begun = Begun(self.handles[who.handle].ns.begin(timeout_ms=TIMEOUT_MS), who.handle)
            self.begun.append(begun)
        expected, error = self.expected_of(who, begun, found), None
        with self.nothing_is_written():
            try:
                begun.txn.acknowledge(found.part, cumulative=found.cumulative)
            except TxnLogError as refusal:
                error = refusal
        assert type(error) in expected, error
        begun.failed |= isinstance(error, ConsumerFenced | TransactionConflict)
        if isinstance(error, NoneType | ConsumerFenced | TransactionConflict):
            begun.wanted.append((found.term, set(found.wanted)))  # an abort gives back also what was refused
        if error is None:
            new = found.wanted - self.taken if found.term == self.term else found.wanted
            begun.taken |= dict.fromkeys(new, found.term)
            begun.unlogged.add(found.term)
            if found.cumulative:
                begun.ends |= {(found.term, p): end for p, end in found.part.end_offsets.items()}

    def expected_of(self, who: Opened, begun: Begun, found: Chosen) -> set[type[Any]]:
        """What an acknowledgement in a transaction may come to: who is behind need not know of a takeover."""
        knows = self.handles[begun.handle].knows
        unheard: set[type[Any]] = {ConsumerFenced, NoneType}
        if begun.failed:
            return {TransactionHasFailedOperation, TransactionAborted}
        if begun.fenced is not None:
            return {TransactionAborted} if knows >= begun.fenced else {TransactionAborted, *unheard}
        if found.term != self.term:
            self.reached["acknowledgement in a transaction refused"] += knows == self.term
            return {ConsumerFenced} if knows == self.term else unheard
        if found.cumulative:
            conflict = bool(
                any(self.no_further(begun, p, end) for p, end in found.part.end_offsets.items())
                or (found.wanted - self.taken) & self.held(but=begun)
                or found.unnamed & set(self.ready(who))
            )
        else:
            conflict = bool(found.wanted & (self.taken | self.held()))
        return {TransactionConflict if conflict else NoneType}

    def no_further(self, begun: Begun, partition: int, end: int) -> bool:
        """Whether a cumulative acknowledgement goes no further than the cursor, or than the transaction's own."""
        below = {(partition, offset) for offset in range(end)}
        return below <= self.taken or end <= begun.ends.get((self.term, partition), 0)

    def transaction_of(self, by: int, *, prepared: bool = False) -> Begun | None:
        """One of a client's open transactions, or anybody's that is prepared."""
        found = [b for b in self.begun if (b.handle == by and b.token is None) or (prepared and b.token is not None)]
        return self.chance.choice(found) if found else None

    def log(self, begun: Begun, call: Callable[[], Any]) -> Any:
        """What a flush, prepare or commit gives; None where it is refused, as it must be, and the transaction ended."""
        kinds: tuple[type[TxnLogError], ...] = ()
        if begun.failed:
            kinds = TransactionHasFailedOperation, TransactionAborted
        elif begun.fenced is not None:
            kinds = (TransactionAborted,)
        elif begun.unlogged - {self.term}:
            kinds = (ConsumerFenced,)
        if not kinds:
            result = call()
            return True if result is None else result
        with pytest.raises(kinds):
            call()
        self.reached.update(f"a transaction ended by {kind.__name__}" for kind in kinds[:1])
        begun.txn.abort()
        self.ended(begun)
        return None

    def ended(self, begun: Begun) -> None:
        """Without effect."""
        self.begun.remove(begun)
        self.give_back(begun)

    def flush_or_prepare(self, name: str) -> None:
        begun, preparing = self.transaction_of(SLOTS[name]), self.chance.random() < 0.3
        if begun is None or (begun.fenced is not None and not begun.unlogged):
            return  # with nothing to log, who is behind says nothing
        result = self.log(begun, begun.txn.prepare if preparing else begun.txn.flush)
        if result is not None:
            begun.logged |= set(begun.taken)
            begun.unlogged.clear()
            if preparing:
                begun.token = result
                self.give_back(begun)  # the log holds it

    def commit(self, name: str) -> None:
        begun = self.transaction_of(SLOTS[name], prepared=True)
        if begun is None:
            return
        numbers = [self.rows[partition][offset] for partition, offset in sorted(begun.taken)]
        if begun.token is not None:
            self.handles[SLOTS[name]].ns.complete(begun.token, commit=True)
            self.reached["completed"] += 1
        else:
            with contextlib.suppress(TransactionAborted, TransactionHasFailedOperation):
                begun.txn.produce("done", rows(*numbers))
            if self.log(begun, begun.txn.commit) is None:
                return
            self.done += numbers
            assert sorted(read(self.watcher, "done")) == sorted(self.done), "with what was produced beside it"
            self.reached["committed"] += 1
        self.begun.remove(begun)
        self.take(set(begun.taken))

    def abort(self, name: str) -> None:
        begun = self.transaction_of(SLOTS[name], prepared=True)
        if begun is not None:
            self.end(begun, SLOTS[name])
            self.reached["aborted"] += 1

    def end(self, begun: Begun, by: int) -> None:
        if begun.token is None:
            begun.txn.abort()
        else:
            self.handles[by].ns.complete(begun.token, commit=False)
        self.ended(begun)

    # --- time, new processes ------------------------------------------------------------------------------------------

    def time_passes(self, name: str) -> None:
        """For one client or for both: the other one is frozen meanwhile."""
        milliseconds = self.chance.choice([1_000, LEASE_MS // 3, LEASE_MS - 1, LEASE_MS, LEASE_MS])
        both = self.chance.random() < 0.5
        self.clock.advance(milliseconds)
        for number, handle in enumerate(self.handles):
            if both or number == SLOTS[name]:
                handle.ns._connection.runtime.sleep_ms(milliseconds)

    def open_again(self, name: str) -> None:
        """A process ends without a word: nobody gives its place back. Another one ends what it left in the log."""
        of = SLOTS[name]
        self.handles[of].ns.close()
        self.handles[of] = self.open_handle()
        self.handles[of].knows = self.term
        for gone in [gone for gone, who in self.opened.items() if who.handle == of]:
            del self.opened[gone]
        for begun in [begun for begun in self.begun if begun.handle == of and begun.token is None]:
            assert self.handles[of].ns.abort(begun.txn.id).state == "ABORTED"
            self.ended(begun)

    # --- what must always hold ----------------------------------------------------------------------------------------

    def the_log_says_what_the_model_says(self) -> None:
        self.watcher.snapshot()
        info = self.watcher.subscription("orders", "billing")
        assert info.consumer == self.active
        assert info.epoch == self.epochs.setdefault(self.term, info.epoch), "it changes at a takeover and a seek"
        assert info.epoch > self.epochs.get(self.term - 1, -1), "and only grows"
        for cursor in info.cursors:
            shown = set(range(cursor.cursor)) | {n for low, high in cursor.acknowledged for n in range(low, high)}
            assert shown == {offset for p, offset in self.taken if p == cursor.partition}
            assert cursor.pending == sum(p == cursor.partition for p, _ in self.logged())

    def a_fresh_consumer_receives_what_is_not_taken(self) -> None:
        for begun in self.begun[:]:
            self.end(begun, 0)
        fresh = self.place.open(clock=self.clock)
        consumer = fresh.consumer("orders", "billing", name="last")
        if self.active is not None and self.signs.get(self.term) != CLOSED:
            assert received(consumer) == []
            fresh._connection.runtime.sleep_ms(LEASE_MS)
        left = {(p, offset) for p in range(PARTITIONS) for offset in range(len(self.rows[p]))} - self.taken
        assert received(consumer) == [self.rows[partition][offset] for partition, offset in sorted(left)]


OF_A_CONSUMER = {
    FailoverConsumers.receive: 7,
    FailoverConsumers.acknowledge: 4,
    FailoverConsumers.acknowledge_in_a_transaction: 5,
    FailoverConsumers.give_back_received: 2,
    FailoverConsumers.seek: 0.7,
    FailoverConsumers.close: 0.3,
}
OPERATIONS = {
    **OF_A_CONSUMER,
    FailoverConsumers.open_consumer: 0.4,
    FailoverConsumers.produce: 4,
    FailoverConsumers.flush_or_prepare: 3,
    FailoverConsumers.commit: 2,
    FailoverConsumers.abort: 0.7,
    FailoverConsumers.time_passes: 6,
    FailoverConsumers.open_again: 0.3,
}
STEPS = {"memory": 60, "local": 60, "s3": 25}
SEEDS = {"memory": range(tries(90, 45)), "local": range(90, tries(94, 92)), "s3": range(94, tries(96, 95))}
"""By kind of root: where a request takes its time there are fewer."""

REACHED = {
    "a takeover aborted a transaction",
    "a transaction ended by ConsumerFenced",
    "a transaction ended by TransactionAborted",
    "a transaction ended by TransactionHasFailedOperation",
    "aborted",
    "acknowledged",
    "acknowledgement in a transaction refused",
    "acknowledgement refused",
    "acknowledgement refused to who was behind",
    "committed",
    "completed",
    "conflict",
    "held through a takeover",
    "receive refused",
    "seek refused",
    "sought",
    "taken over, closed",
    "taken over, silent",
}
"""What the seeds in memory must come to, or they try nothing."""


@pytest.mark.clause("P-72", "P-73", "P-75", "P-79", "P-80", "P-81", "P-175", "P-176", "P-177", "P-209", "P-215")
def test_failover_consumers_do_what_the_model_says(
    fresh_place: Callable[[], Place], subtests: pytest.Subtests, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(FakeRuntime, "jitter", lambda _, ceiling: ceiling / 2)  # so that a seed is always the same run
    kind = fresh_place().kind
    reached: Counter[str] = Counter()
    for seed in SEEDS[kind]:
        with subtests.test(seed=seed), contextlib.closing(fresh_place()) as place:
            chance = random.Random(seed)
            machine = FailoverConsumers(chance, place, reached)
            for _ in range(STEPS[kind]):
                machine.step()
                machine.the_log_says_what_the_model_says()
            machine.a_fresh_consumer_receives_what_is_not_taken()
    if kind == "memory":
        assert {what for what, count in reached.items() if count} == REACHED
