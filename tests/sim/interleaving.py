"""All interleavings of some actors, at the granularity of store calls.

The scheduler of the simulation has a script in place of its clock: at each store call it says whose call goes on. A run
tells where there was a choice, and the next script takes the other way at the last of them (depth first).
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, TypeVar

from tests.sim.scopes import open_client
from txnlog.api.namespace import Namespace
from txnlog.errors import TxnLogError
from txnlog.store import HookStore, MemoryStore
from txnlog.store.wrappers import StoreCall
from txnlog.testing import ManualClock
from txnlog.testing.scheduler import START_MS, Actor, Scheduler, Task

T = TypeVar("T")

Request = tuple[StoreCall, str]

WRITES: Final = frozenset({StoreCall.CREATE, StoreCall.PUT, StoreCall.DELETE})


def commute(one: Request, two: Request) -> bool:
    """Whether the order of two requests makes no difference."""
    if WRITES.isdisjoint((one[0], two[0])):
        return True
    listings = [key for call, key in (one, two) if call is StoreCall.LIST]
    return not (one[1].startswith(two[1]) or two[1].startswith(one[1])) if listings else one[1] != two[1]


class Redundant(Exception):
    """What follows differs from a schedule that was seen by the order of requests that commute."""


class ScriptedScheduler(Scheduler):
    """Lets the actor go on that the script names; the first one where the script has ended.

    Where an actor was passed over for another one, the schedules in which it went first were seen before. It sleeps
    until a request that does not commute with its own was carried out (sleep sets).

    Args:
        script: the places to take, one for each choice.
        every: nobody sleeps: every schedule is run, however many are alike.

    Attributes:
        choices: by decision the place that was taken, and how many there were.
    """

    def __init__(self, script: list[int], *, every: bool = False) -> None:
        super().__init__(0)
        self.choices: list[tuple[int, int]] = []
        self._script = script
        self._every = every
        self._waiting: dict[Task, Request] = {}
        self._asleep: set[Task] = set()

    def gate(self, request: Request) -> None:
        """Where a request of the running task waits for its turn."""
        task = self.current
        assert task is not None, "only tasks meet"
        self._waiting[task] = request
        self._hub.switch()
        task.actor.check_alive()

    def _chosen(self, _ways: list[Task]) -> int:
        """The place of the task that goes on, where several could."""
        made = len(self.choices)
        return self._script[made] if made < len(self._script) else 0

    def run_script(self) -> None:
        """To the end of all tasks. Raises Redundant."""
        self.run()  # to the first request of each
        while self._waiting:
            ways = [task for task in self._waiting if task not in self._asleep]
            if not ways:
                raise Redundant
            place = 0
            if len(ways) > 1:
                place = self._chosen(ways)
                self.choices.append((place, len(ways)))
            if not self._every:
                self._asleep.update(ways[:place])
            request = self._waiting.pop(ways[place])
            self._asleep = {task for task in self._asleep if commute(self._waiting[task], request)}
            self._switch(ways[place])


class RandomScheduler(ScriptedScheduler):
    """Lets any actor go on; the one that went on last with a probability of ``stays``, whatever it is beyond."""

    def __init__(self, chance: random.Random, *, stays: float = 0.0) -> None:
        super().__init__([], every=True)
        self.chance = chance
        self._stays = stays
        self._last: Task | None = None

    def _chosen(self, ways: list[Task]) -> int:
        if self._last not in ways or self.chance.random() >= self._stays:
            self._last = self.chance.choice(ways)
        return ways.index(self._last)


class SteppedScheduler(ScriptedScheduler):
    """One schedule, written down: each step is an actor's place, who goes on until a request is what it asks for next.

    The request, of a key that ends like that of the step, waits until the actor's next step. A step without one goes on
    to the end of the actor.
    """

    def __init__(self, *steps: tuple[int, Request | None]) -> None:
        super().__init__([], every=True)
        self.steps = list(steps)

    def _chosen(self, ways: list[Task]) -> int:
        by_name = {task.actor.name: place for place, task in enumerate(ways)}
        while self.steps:
            actor, until = self.steps[0]
            place = by_name.get(f"actor{actor}")
            if place is not None and not _is_like(self._waiting[ways[place]], until):
                return place
            assert place is not None or until is None, f"actor {actor} ended before {until}"
            self.steps.pop(0)
        return 0

    def run_script(self) -> None:
        """To the end of all tasks. Raises AssertionError where a request of the steps was never asked for."""
        super().run_script()
        assert all(until is None for _, until in self.steps), f"it never came to {self.steps}"


def _is_like(request: Request, wanted: Request | None) -> bool:
    return wanted is not None and request[0] is wanted[0] and request[1].endswith(f"/{wanted[1]}")


@dataclass
class Duel:
    """One run of a pair.

    Attributes:
        calls: what the actors do; each ends with a value or a TxnLogError.
        answers: of the calls, once they ended.
    """

    store: MemoryStore
    clients: list[Namespace] = field(default_factory=list)
    clocks: list[ManualClock] = field(default_factory=list)
    calls: list[Callable[[], Any]] = field(default_factory=list)
    answers: list[Any] = field(default_factory=list)
    scheduler: ScriptedScheduler | None = None

    def __post_init__(self) -> None:
        self._gated = HookStore(self.store, before=self._gate)

    def _gate(self, call: StoreCall, key: str) -> None:
        if self.scheduler is not None:
            self.scheduler.gate((call, key))

    def client(self, name: str, later_ms: int = 0) -> Namespace:
        """A client that has numbers and has appended before, so that a schedule is about what it does next."""

        clock = ManualClock(START_MS + 1_000 + later_ms)
        ns = open_client(self._gated, name, clock)
        ns._connection.appender.take_numbers(1)
        self.clients.append(ns)
        self.clocks.append(clock)
        return ns

    def meet(self, first: Callable[[], Any], second: Callable[[], Any]) -> None:
        """What the actors do, from what each of them knows."""
        self.calls = [first, second]

    def run(self, scheduler: ScriptedScheduler) -> None:
        """Let them meet. Raises Redundant."""
        self.scheduler = scheduler
        self.answers = [None] * len(self.calls)
        tasks = []
        for place, call in enumerate(self.calls):

            def work(place: int = place, call: Callable[[], Any] = call) -> None:
                try:
                    self.answers[place] = call()
                except TxnLogError as error:
                    self.answers[place] = error

            tasks.append(Actor(scheduler, f"actor{place}").start(work, "main"))
        try:
            scheduler.run_script()
        finally:
            self.scheduler = None
            for task in tasks:  # those that wait yet: the schedule was left
                task.actor.alive = False
                scheduler.unwind(task.actor)
        for task in tasks:
            if task.error is not None:
                raise task.error


def in_schedules(
    play: Callable[[ScriptedScheduler], T], *, most: int, first: Sequence[int] = (), every: bool = False
) -> list[T]:
    """What a play led to in each of its schedules, up to so many; what it raises has the schedule in a note.

    Args:
        play: lets a duel run with the scheduler, and judges it.
        first: the script to begin with; what lies before it is left out.
        every: see ScriptedScheduler.
    """
    found: list[T] = []
    script: list[int] | None = [*first]
    while script is not None and len(found) < most:
        scheduler = ScriptedScheduler(script, every=every)
        try:
            found.append(play(scheduler))
        except Redundant:
            pass
        except Exception as error:
            error.add_note(f"schedule {len(found) + 1}, choices {script}")
            raise
        script = _after(scheduler.choices)
    return found


def _after(choices: list[tuple[int, int]]) -> list[int] | None:
    """The script that takes the next way at the last choice that has one; None after the last schedule."""
    for place in range(len(choices) - 1, -1, -1):
        taken, ways = choices[place]
        if taken + 1 < ways:
            return [*(item for item, _ in choices[:place]), taken + 1]
    return None
