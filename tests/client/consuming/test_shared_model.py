"""Several Shared consumers, doing anything in any order, against a plain model: taken once, and counted right.

The model keeps of every message who has it until when, in which open transaction it is pending, whether it is taken,
and how often it came back. Of each receive it says what must come: nothing that others have, nothing twice, and
nothing while something is free.
"""

from __future__ import annotations

import contextlib
import random
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pytest

from tests.client.support import SCHEMA, Place, ids, rows
from tests.effort import tries
from txnlog.common.format_limits import EXPIRY_GRACE_MS
from txnlog.errors import TransactionConflict
from txnlog.testing import ManualClock
from txnlog.testing.scheduler import START_MS

LEASE_MS = 10_000
MAX_REDELIVERIES = 3
CONSUMERS = 3
TIMEOUT_MS = 15_000


@dataclass
class Message:
    """What the model knows of one message."""

    leased_to: int | None = None
    until_ms: int = 0
    pending: Begun | None = None
    taken: bool = False
    dead: bool = False
    count: int = 0


@dataclass
class Begun:
    """An open transaction of a consumer's client."""

    txn: Any
    deadline_ms: int
    messages: set[int] = field(default_factory=set)
    over: bool = False


class SharedConsumers:
    """Three clients with a consumer each; ``chance`` decides what they do."""

    def __init__(self, chance: random.Random, place: Place) -> None:
        self.chance = chance
        self.place = place
        count = chance.randint(1, 12)
        self.clock = ManualClock(START_MS)
        self.clients = [place.open(clock=self.clock) for _ in range(CONSUMERS)]
        ns = self.clients[0]
        ns.create_topic("orders", SCHEMA)
        ns.create_topic("done", SCHEMA)
        ns.create_subscription(
            "orders",
            "billing",
            type="shared",
            lease_ms=LEASE_MS,
            max_redeliveries=MAX_REDELIVERIES,
            dead_letter_topic="dead",
        )
        ns.produce("orders", rows(*range(count)))
        self.messages = {number: Message() for number in range(count)}
        self.done: list[int] = []
        self.handed: list[dict[int, Any]] = [{} for _ in range(CONSUMERS)]
        self.begun: list[list[Begun]] = [[] for _ in range(CONSUMERS)]
        self.consumers = [
            client.consumer("orders", "billing", name=f"c{index}") for index, client in enumerate(self.clients)
        ]

    # --- the model ----------------------------------------------------------------------------------------------------

    @property
    def now_ms(self) -> int:
        return self.clock.now_ms()

    def end_overdue(self) -> None:
        """Whoever appends or waits ends what is overdue."""
        for begun in (item for several in self.begun for item in several):
            if not begun.over and begun.messages and begun.deadline_ms + EXPIRY_GRACE_MS <= self.now_ms:
                self.give_back(begun)

    def give_back(self, begun: Begun) -> None:
        begun.over = True
        for number in begun.messages:
            item = self.messages[number]
            item.pending, item.leased_to = None, None
            item.count += 1

    def free(self) -> set[int]:
        return {n for n, item in self.messages.items() if not item.taken and item.pending is None}

    # --- what they do -------------------------------------------------------------------------------------------------

    def receive(self, who: int) -> None:
        most = self.chance.randint(1, 6)
        self.end_overdue()
        expired = {
            n
            for n in self.free()
            if self.messages[n].leased_to is not None and self.messages[n].until_ms <= self.now_ms
        }
        free = {n for n in self.free() if self.messages[n].leased_to is None} | expired
        dead = {n for n in free if self.messages[n].count + (n in expired) > MAX_REDELIVERIES}
        messages = self.consumers[who].receive(most, timeout_ms=0)
        expected = sorted(free - dead)[:most]
        assert ids(messages.table) == expected
        for number in dead:
            item = self.messages[number]
            item.taken = item.dead = True
            item.count += number in expired
        if expected:
            for number in expired - dead:
                self.messages[number].count += 1
                self.messages[number].leased_to = None
        for number in expected:
            item = self.messages[number]
            item.leased_to, item.until_ms = who, self.now_ms + LEASE_MS
        assert messages.redelivery_counts == [self.messages[number].count for number in expected]
        for position, number in enumerate(expected):
            self.handed[who][number] = messages[position]

    def chosen(self, who: int) -> list[int]:
        handed = sorted(self.handed[who])
        return sorted(self.chance.sample(handed, min(len(handed), self.chance.randint(0, 4))))

    def acknowledge(self, who: int) -> None:
        for number in self.chosen(who):
            item = self.messages[number]
            if item.pending is not None and item.pending.deadline_ms + EXPIRY_GRACE_MS <= self.now_ms:
                continue  # whether the append or the refusal comes first is not the point here
            if item.pending is not None:
                with pytest.raises(TransactionConflict):
                    self.consumers[who].acknowledge(self.handed[who][number])
                continue
            self.consumers[who].acknowledge(self.handed[who][number])
            if not item.taken:
                self.settle()
                item.taken, item.leased_to = True, None

    def settle(self) -> None:
        """Learn from the log which transactions ended meanwhile: when that happens is not the point here."""
        for begun in (item for several in self.begun for item in several):
            if not begun.over and begun.messages:
                info = self.clients[0].transaction(begun.txn.id)
                if info.state == "ABORTED":
                    assert begun.deadline_ms + EXPIRY_GRACE_MS <= self.now_ms
                    self.give_back(begun)

    def negative_acknowledge(self, who: int) -> None:
        for number in self.chosen(who):
            self.consumers[who].negative_acknowledge(self.handed[who][number])
            self.returned(who, {number})

    def redeliver(self, who: int) -> None:
        self.consumers[who].redeliver_unacknowledged()
        self.returned(who, set(self.messages))

    def returned(self, who: int, numbers: set[int]) -> None:
        self.settle()
        for number in numbers:
            item = self.messages[number]
            if item.leased_to == who and not item.taken and item.pending is None:
                item.leased_to = None
                item.count += 1

    def in_a_transaction(self, who: int) -> None:
        keep = self.chance.choice(["commit", "abort", "open"])
        numbers = self.chosen(who)
        if not numbers:
            return
        txn = self.clients[who].begin(timeout_ms=TIMEOUT_MS)
        begun = Begun(txn, self.now_ms + TIMEOUT_MS)
        self.begun[who].append(begun)
        for number in numbers:
            item = self.messages[number]
            if item.pending is not None and item.pending.deadline_ms + EXPIRY_GRACE_MS <= self.now_ms:
                keep = "abort"
                break
            try:
                txn.acknowledge(self.handed[who][number])
            except TransactionConflict:
                self.settle()
                assert item.taken or item.pending is not None
                self.abort(begun)
                self.returned(who, {number})  # still leased to the consumer, as it was not acknowledged
                return
            self.settle()
            assert (item.taken, item.pending) == (False, None)
            item.pending = begun
            begun.messages.add(number)
        if keep == "commit":
            txn.produce("done", rows(*sorted(begun.messages)))
        if keep != "open":
            self.end(who, begun, commit=keep == "commit")

    def abort(self, begun: Begun) -> None:
        self.settle()
        begun.txn.abort()
        if not begun.over:
            self.give_back(begun)

    def end_the_oldest(self, who: int) -> None:
        commit = self.chance.random() < 0.5
        for begun in self.begun[who]:
            if not begun.over and begun.deadline_ms > self.now_ms:
                if commit:
                    begun.txn.produce("done", rows(*sorted(begun.messages)))
                self.end(who, begun, commit=commit)
                return

    def end(self, who: int, begun: Begun, *, commit: bool) -> None:
        if not commit:
            self.abort(begun)
            return
        begun.txn.commit()
        self.settle()
        begun.over = True
        for number in begun.messages:
            item = self.messages[number]
            item.pending, item.taken, item.leased_to = None, True, None
            self.done.append(number)

    def time_passes(self, _who: int) -> None:
        self.clock.advance(self.chance.choice([1, 1_000, LEASE_MS // 2, LEASE_MS, TIMEOUT_MS + EXPIRY_GRACE_MS]))

    def open_again(self, who: int) -> None:
        """A consumer closes and another one comes: what it had is free, but for what is pending."""
        self.consumers[who].close()
        self.returned(who, set(self.messages))
        self.handed[who].clear()
        self.consumers[who] = self.clients[who].consumer("orders", "billing", name=f"c{who}")

    # --- what must hold -----------------------------------------------------------------------------------------------

    def each_message_is_taken_once(self) -> None:
        self.settle()
        ns = self.clients[0]
        taken = {number for number, item in self.messages.items() if item.taken}
        (cursor,) = ns.subscription("orders", "billing").cursors
        shown = set(range(cursor.cursor)) | {n for low, high in cursor.acknowledged for n in range(low, high)}
        assert shown == taken
        assert cursor.pending == sum(item.pending is not None for item in self.messages.values())
        snapshot = ns.snapshot()
        assert sorted(ids(snapshot.read("done"))) == sorted(self.done), "exactly once"
        letters = snapshot.read("dead").to_pylist()
        assert {row["id"]: row["_redeliveries"] for row in letters} == {
            n: item.count for n, item in self.messages.items() if item.dead
        }
        assert len(letters) == len({row["id"] for row in letters})


OPERATIONS = {
    SharedConsumers.receive: 6,
    SharedConsumers.acknowledge: 1,
    SharedConsumers.negative_acknowledge: 3,
    SharedConsumers.redeliver: 1,
    SharedConsumers.in_a_transaction: 3,
    SharedConsumers.end_the_oldest: 2,
    SharedConsumers.time_passes: 3,
    SharedConsumers.open_again: 1,
}
STEPS = 40
PAST_FAILURES = (1_052,)
SEEDS = {
    "memory": (*range(tries(30, 8)), *PAST_FAILURES),
    "local": range(30, tries(34, 32)),
    "s3": range(34, tries(36, 35)),
}
"""By kind of root: where a request takes its time there are fewer."""


@pytest.mark.clause("P-78", "P-80", "P-86", "P-170", "P-173")
def test_shared_consumers_do_what_the_model_says(fresh_place: Callable[[], Place], subtests: pytest.Subtests) -> None:
    for seed in SEEDS[fresh_place().kind]:
        with subtests.test(seed=seed), contextlib.closing(fresh_place()) as place:
            chance = random.Random(seed)
            machine = SharedConsumers(chance, place)
            for _ in range(STEPS):
                (operation,) = chance.choices(list(OPERATIONS), list(OPERATIONS.values()))
                operation(machine, chance.randrange(CONSUMERS))
                machine.each_message_is_taken_once()
