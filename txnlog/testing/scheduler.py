"""Who runs next, when, and whether at all: one thread, one virtual clock, one seeded generator.

A *task* is a greenlet that runs client code until it asks for something that takes time: a store request, a sleep.
Then the scheduler takes the next event by virtual time. An *actor* is what a process is in the world: its tasks (the
threads of that process) are paused together, crash together and read one clock. Nothing but the generator and the order
of calls decides anything, so the same seed gives the same events in any process and under any hash seed.
"""

from __future__ import annotations

import hashlib
import heapq
import random
from collections import Counter
from collections.abc import Callable
from typing import Any, Final

from txnlog.errors import InvalidInputError

START_MS: Final = 1_767_225_600_000
"""Epoch milliseconds at which every simulation begins; virtual time counts from zero on top of it."""


class Crashed(BaseException):
    """Ends the tasks of an actor that crashed: whatever they call from then on raises it, so they see no more."""


class Task:
    """One thread of an actor: a greenlet, and what it is waiting for.

    Attributes:
        actor: the process it belongs to.
        name: for the trace.
        error: what it ended with; None while it runs and after a good end.
    """

    __slots__ = ("_finished", "actor", "error", "greenlet", "name")

    def __init__(self, actor: Actor, name: str) -> None:
        self.actor = actor
        self.name = name
        self.greenlet: Any = None
        self.error: BaseException | None = None
        self._finished = False

    def is_alive(self) -> bool:
        """Whether it still runs."""
        return not self._finished

    def finish(self) -> None:
        """Note that the task ran to its end."""
        self._finished = True

    def join(self, timeout: float | None = None) -> None:  # noqa: ARG002 - as a thread has it; virtual time is free
        """Wait for its end, from another task of the same actor."""
        self.actor.scheduler.wait_for(lambda: not self.is_alive())


class Actor:
    """One simulated process: its tasks and its clock.

    Attributes:
        name: the same for all lives of an actor.
        life: how many of that name were there before.
        alive: False once it crashed; whatever its tasks call then raises Crashed.
        frozen_until_ms: virtual time before which none of its tasks runs.
        skew_ms: what its clock is ahead of virtual time.
        stopped_at_ms: what its clock shows for ever, where it stopped.
    """

    def __init__(self, scheduler: Scheduler, name: str, life: int = 0) -> None:
        self.scheduler = scheduler
        self.name = name
        self.life = life
        self.alive = True
        self.tasks: list[Task] = []
        self.parked: list[tuple[Task, Callable[[], bool]]] = []
        self.frozen_until_ms = 0.0
        self.skew_ms = 0
        self.stopped_at_ms: int | None = None

    def __repr__(self) -> str:
        return f"{self.name}.{self.life}"

    def clock_ms(self) -> int:
        """Epoch milliseconds by the actor's own clock."""
        if self.stopped_at_ms is not None:
            return self.stopped_at_ms
        return START_MS + int(self.scheduler.now_ms) + self.skew_ms

    def start(self, work: Callable[[], None], name: str) -> Task:
        """Add a task that runs next to the others, from the next event on."""
        return self.scheduler.start(self, work, name)

    def pause(self, duration_ms: float) -> None:
        """Freeze the whole process for a while of virtual time."""
        self.frozen_until_ms = max(self.frozen_until_ms, self.scheduler.now_ms + duration_ms)

    def check_alive(self) -> None:
        """Raise Crashed in whatever is left of a crashed actor."""
        if not self.alive:
            raise Crashed


class Scheduler:
    """Runs tasks and callbacks in the order of virtual time; draws everything from one generator.

    Attributes:
        seed: of the generator.
        chance: the generator; the only one of a simulation.
        now_ms: virtual milliseconds since the start.
        labels: named situations that were seen, with their counts.
        on_error: called with tasks that ended with an exception, in the order they ended.
    """

    def __init__(self, seed: int, *, on_error: Callable[[Task, BaseException], None] | None = None) -> None:
        try:
            import greenlet  # noqa: PLC0415 - an extra: the rest of txnlog works without it
        except ImportError:
            raise InvalidInputError(
                "the simulation needs greenlet, which is not installed", advice="pip install txnlog[testing]"
            ) from None
        self._greenlet = greenlet.greenlet
        self._hub = greenlet.getcurrent()
        self.seed = seed
        self.chance = random.Random(seed)
        self.now_ms = 0.0
        self.labels: Counter[str] = Counter()
        self.on_error = on_error
        self._events: list[tuple[float, int, Task | Callable[[], None]]] = []
        self._number = 0
        self._current: Task | None = None
        self._trace: list[tuple[object, ...]] = []

    # --- what is looked at afterwards -------------------------------------------------------------------------------

    def label(self, name: str) -> None:
        """A situation worth counting was reached."""
        self.labels[name] += 1

    def trace(self, *what: object) -> None:
        """Write down what happened; all of it together is the trace whose hash two runs of one seed share."""
        self._trace.append((self.now_ms, *what))

    def trace_lines(self) -> list[str]:
        """What happened, a line each, for people."""
        return [f"{moment:12.3f}  {'  '.join(map(str, what))}" for moment, *what in self._trace]

    def trace_hash(self) -> str:
        """32 hexadecimal digits over all that happened."""
        digest = hashlib.blake2b(digest_size=16)
        for line in self.trace_lines():
            digest.update(line.encode())
        return digest.hexdigest()

    # --- events -----------------------------------------------------------------------------------------------------

    @property
    def current(self) -> Task | None:
        """The task that runs now; None in a callback and outside of :meth:`run`."""
        return self._current

    def after(self, delay_ms: float, event: Task | Callable[[], None]) -> None:
        """Have a task go on, or a callback called, when that much virtual time has passed."""
        self._number += 1
        heapq.heappush(self._events, (self.now_ms + delay_ms, self._number, event))

    def start(self, actor: Actor, work: Callable[[], None], name: str) -> Task:
        """A new task of an actor; it begins at the next event, never inside this call."""
        task = Task(actor, name)

        def run() -> None:
            try:
                actor.check_alive()
                work()
            except Crashed:
                pass
            except BaseException as error:  # noqa: BLE001 - the simulation reports it, no other task may suffer
                task.error = error
                if actor.alive and self.on_error is not None:
                    self.on_error(task, error)
            finally:
                task.finish()

        task.greenlet = self._greenlet(run, self._hub)
        actor.tasks = [*(item for item in actor.tasks if item.is_alive()), task]
        self.after(0.0, task)
        return task

    def sleep(self, milliseconds: float) -> None:
        """Let virtual time pass for the running task, and others run meanwhile. Raises Crashed if it crashed by then.

        Not for the hub: outside of :meth:`run` nobody else could run.
        """
        task = self._current
        assert task is not None, "only tasks sleep"
        task.actor.check_alive()
        self.after(milliseconds, task)
        self._hub.switch()
        task.actor.check_alive()

    def pass_over(self, milliseconds: float) -> None:
        """Let virtual time pass while the whole world stands still: what was due meanwhile is late, in order."""
        self.now_ms += milliseconds

    def wait_for(self, ready: Callable[[], bool], most_ms: float | None = None) -> None:
        """Wait until ``ready()``, which other tasks of the same actor bring about, or for so much virtual time."""
        if ready():
            return
        task = self._current
        assert task is not None, "only tasks wait"
        task.actor.check_alive()
        waiting = (task, ready)
        task.actor.parked.append(waiting)
        if most_ms is not None:
            self.after(most_ms, lambda: self._stop_waiting(waiting))
        self._hub.switch()
        task.actor.check_alive()

    def _stop_waiting(self, waiting: tuple[Task, Callable[[], bool]]) -> None:
        """Let a task go on that still waits."""
        actor = waiting[0].actor
        if any(item is waiting for item in actor.parked):
            actor.parked = [item for item in actor.parked if item is not waiting]
            self.after(0.0, waiting[0])

    def crash(self, actor: Actor) -> None:
        """End an actor: its tasks unwind without seeing or doing anything more.

        Called by a task of the actor itself it does not return but raises Crashed.
        """
        actor.alive = False
        self.trace(actor, "crashes")
        self.after(0.0, lambda: self.unwind(actor))
        if self._current is not None and self._current.actor is actor:
            raise Crashed

    def unwind(self, actor: Actor) -> None:
        """Let the waiting tasks of a crashed actor fall through their handlers: memory is all they may touch."""
        actor.parked.clear()
        for task in actor.tasks:
            if task.greenlet:  # started and not at its end
                task.greenlet.throw(Crashed)
            task.finish()
        actor.tasks = []

    def run(self, until: Callable[[], bool] = lambda: False, most_events: int = 1_000_000) -> bool:
        """Take events until ``until()``, or until there are none. False where ``most_events`` were not enough."""
        events = self._events
        for _ in range(most_events):
            if not events or until():
                return True
            moment, _, event = heapq.heappop(events)
            self.now_ms = max(self.now_ms, moment)
            if not isinstance(event, Task):
                event()
            elif event.actor.frozen_until_ms > self.now_ms:
                self.after(event.actor.frozen_until_ms - self.now_ms, event)
            elif event.is_alive() and event.actor.alive:
                self._switch(event)
        return until()

    def _switch(self, task: Task) -> None:
        """Let a task run until it waits again, or to its end; wake the siblings that waited for what it did."""
        self._current = task
        task.greenlet.switch()
        self._current = None
        actor = task.actor
        if actor.parked:
            still: list[tuple[Task, Callable[[], bool]]] = []
            for item in actor.parked:
                if item[1]():
                    self.after(0.0, item[0])
                else:
                    still.append(item)
            actor.parked = still


__all__ = ["START_MS", "Actor", "Crashed", "Scheduler", "Task"]
