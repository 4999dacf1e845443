"""Consumers of one Failover subscription, two handles, doing anything in any order, against a plain model."""

from __future__ import annotations

import contextlib
import random
from collections import Counter
from collections.abc import Callable
from functools import partial
from types import NoneType
from typing import Any

import pytest

from tests.client.failover_model import (
    CLOSED,
    LEASE_MS,
    PARTITIONS,
    SLOTS,
    TIMEOUT_MS,
    Batch,
    Begun,
    Chosen,
    FailoverModel,
    Opened,
)
from tests.client.support import FakeRuntime, Place, ids, read, rows
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


class FailoverConsumers(FailoverModel):
    """What they do, step by step."""

    def __init__(self, chance: random.Random, place: Place, reached: Counter[str]) -> None:
        super().__init__(chance, place, reached)
        for name in ("one", "two"):
            self.produce(name)
            self.open_consumer(name)

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
