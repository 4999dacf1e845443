"""A plain model of the consumers of one Failover subscription, two handles, and what must hold of the log.

It keeps who is active, which signs of life each handle saw and since when, what is taken, what each open transaction
holds, and what the active one was handed. Of each receive it says exactly what must come: to who waits nothing, to who
takes over all that is free, and to who was taken over the error; and of each call of one that was taken over that
nothing is written.
"""

from __future__ import annotations

import contextlib
import itertools
import random
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import pytest

from tests.client.support import SCHEMA, Place, raises, received
from txnlog.errors import (
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


class FailoverModel:
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

    def end(self, begun: Begun, by: int) -> None:
        """An abort, by a client."""
        if begun.token is None:
            begun.txn.abort()
        else:
            self.handles[by].ns.complete(begun.token, commit=False)
        self.ended(begun)

    def ended(self, begun: Begun) -> None:
        """Without effect."""
        self.begun.remove(begun)
        self.give_back(begun)

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
