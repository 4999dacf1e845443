"""The surroundings of one simulated client: virtual time, the simulation's chance, tasks in place of threads."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from txnlog.engine.runtime import Runtime
from txnlog.testing.scheduler import Actor
from txnlog.testing.simulated_store import SimulatedStore

T = TypeVar("T")


class _ActorClock:
    """The clock of an actor. Whoever looks at it may be paused, or crash, and then acts on a time that is long over."""

    def __init__(self, actor: Actor, store: SimulatedStore) -> None:
        self._actor = actor
        self._store = store

    def now_ms(self) -> int:
        """Epoch milliseconds."""
        self._actor.check_alive()
        now_ms = self._actor.clock_ms()
        self._store.disturb(self._actor)
        return now_ms


class SimulatedInbox:
    """An inbox on which tasks of an actor wait in virtual time."""

    def __init__(self, actor: Actor) -> None:
        self._actor = actor
        self._items: deque[Any] = deque()

    def put(self, item: Any) -> None:
        """See Inbox."""
        self._items.append(item)

    def take(self, timeout_ms: float | None) -> Any:
        """See Inbox."""
        self._actor.check_alive()
        self._actor.scheduler.wait_for(lambda: bool(self._items), timeout_ms)
        return self._items.popleft() if self._items else None

    def is_empty(self) -> bool:
        """See Inbox."""
        return not self._items


class _Tasks:
    """The tasks of an actor, in place of threads."""

    keeps_threads = False

    def __init__(self, actor: Actor) -> None:
        self._actor = actor

    def inbox(self) -> SimulatedInbox:
        """See Host."""
        return SimulatedInbox(self._actor)

    def start(self, work: Callable[[], None], name: str) -> None:
        """See Host. In no task of the simulation: what is left of a dead process is collected, which starts nothing."""
        if self.current() is None and not self._actor.alive:
            return
        self._actor.check_alive()
        self._actor.start(work, name)

    def current(self) -> object:
        """See Host."""
        return self._actor.scheduler.current

    def elapsed_ms(self) -> float:
        """See Host."""
        return self._actor.scheduler.now_ms


class SimulatedRuntime(Runtime):
    """What ``txnlog.open(..., runtime=...)`` takes in a simulation.

    A look at the clock may pause the whole actor but lets none of its own tasks run: between two effects of its engine
    nothing else touches the state, also where a command looks at the clock.
    """

    def __init__(self, actor: Actor, store: SimulatedStore, *, trusts_clock: bool) -> None:
        super().__init__(_ActorClock(actor, store), _Tasks(actor))
        self.trusts_clock = trusts_clock
        self._actor = actor
        self._scheduler = actor.scheduler
        self._store = store

    def sleep_ms(self, milliseconds: float) -> None:
        """Let virtual time pass."""
        self._actor.check_alive()
        self._scheduler.sleep(milliseconds)
        self._store.disturb(self._actor)

    def jitter(self, ceiling: float) -> float:
        """From the simulation's generator."""
        return self._scheduler.chance.random() * ceiling

    def unique(self) -> str:
        """From the simulation's generator."""
        return f"{self._scheduler.chance.getrandbits(128):032x}"

    def run_quick(self, calls: Sequence[Callable[[], T]]) -> list[T]:
        """The same as ``run_all``: which of some requests comes first is for chance."""
        return self.run_all(calls)

    def run_all(self, calls: Sequence[Callable[[], T]]) -> list[T]:
        """All calls in some order, each ended before the next; results in the order given, the first error raised."""
        if len(calls) == 1:
            return [calls[0]()]
        order = list(range(len(calls)))
        self._scheduler.chance.shuffle(order)
        results: dict[int, T] = {}
        errors: dict[int, Exception] = {}
        for index in order:
            try:
                results[index] = calls[index]()
            except Exception as error:  # noqa: BLE001 - raised below, when all have ended
                errors[index] = error
        if errors:
            raise errors[min(errors)]
        return [results[index] for index in range(len(calls))]

    def _run_in_pool(self, work: Callable[[], None]) -> None:
        self._actor.check_alive()
        self._actor.start(work, "request")

    def close(self) -> None:
        """Nothing to let go of."""


__all__ = ["SimulatedRuntime"]
