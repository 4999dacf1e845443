"""Writers of one namespace over a store that is far away, in virtual time: each request takes a round trip.

Nothing else takes any time, so this shows what the protocol costs, in seconds instead of minutes, and no other process
of the machine disturbs it.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Iterator
from typing import Any

from txnlog.api.namespace import Namespace
from txnlog.api.opening import open_namespace
from txnlog.common.limits import PARALLEL_REQUESTS
from txnlog.errors import AccessDenied
from txnlog.format import keys
from txnlog.store import MemoryStore
from txnlog.store.base import Created, ObjectInfo
from txnlog.testing.scheduler import Actor, Scheduler
from txnlog.testing.simulated_runtime import SimulatedRuntime
from txnlog.testing.simulated_store import IDENTITY, SimulatedStore
from txnlog.testing.simulation import founded_objects
from txnlog.testing.world import NAMESPACE, ROOT


class FarStore:
    """Objects in memory, half a round trip away from an actor.

    Attributes:
        calls: requests by their name and the kind of object.
        denied: a kind of object that the actor has no right to write.
    """

    def __init__(self, objects: MemoryStore, actor: Actor, trip_ms: float) -> None:
        self._objects = objects
        self._actor = actor
        self._trip_ms = trip_ms
        self.identity = IDENTITY
        self.calls: Counter[str] = Counter()
        self.denied = ""

    def _ask(self, name: str, key: str, *arguments: Any) -> Any:
        kind = keys.kind_of(key)
        self.calls[f"{name} {kind}"] += 1
        self._travel()
        try:
            if kind == self.denied and name in {"create", "put", "delete"}:
                raise AccessDenied(f"no right to {name} {key}", right="write")
            return getattr(self._objects, name)(key, *arguments)
        finally:
            self._travel()

    def _travel(self) -> None:
        scheduler = self._actor.scheduler
        scheduler.sleep(self._trip_ms / 2 * scheduler.chance.uniform(0.95, 1.05))

    def create(self, key: str, data: bytes) -> Created:
        """See Store."""
        found: Created = self._ask("create", key, data)
        return found

    def put(self, key: str, data: bytes) -> None:
        """See Store."""
        self._ask("put", key, data)

    put_unsynced = put

    def get(self, key: str) -> bytes:
        """See Store."""
        found: bytes = self._ask("get", key)
        return found

    def get_range(self, key: str, start: int, end: int) -> bytes:
        """See Store."""
        found: bytes = self._ask("get_range", key, start, end)
        return found

    def info(self, key: str) -> ObjectInfo:
        """See Store."""
        found: ObjectInfo = self._ask("info", key)
        return found

    def list(self, prefix: str) -> Iterator[ObjectInfo]:
        """See Store."""
        return iter(list(self._ask("list", prefix)))

    def delete(self, key: str) -> None:
        """See Store."""
        self._ask("delete", key)

    def url(self, key: str) -> str:
        """See Store."""
        return self._objects.url(key)

    def sync(self, key: str) -> None:
        """See Store."""


class FarRuntime(SimulatedRuntime):
    """A client has as many requests under way at a time as a real one."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._waiting: deque[Callable[[], None]] = deque()
        self._at_work = 0

    def _run_in_pool(self, work: Callable[[], None]) -> None:
        self._waiting.append(work)

        def run() -> None:
            while self._waiting:
                self._waiting.popleft()()
            self._at_work -= 1

        if self._at_work < PARALLEL_REQUESTS:
            self._at_work += 1
            super()._run_in_pool(run)


class FarWorld:
    """A namespace on a store that is far away, and the actors that work on it: processes.

    Args:
        seed: decides everything.
        trip_ms: of a request.
        merge_interval: small segments that come together before a client merges them; by default it never does.

    Attributes:
        objects: what is on the store.
        stores: of each actor.
        errors: what actors ended with, but for good ends and deaths.
    """

    def __init__(self, seed: int, trip_ms: float = 41.0, merge_interval: int = 1 << 30) -> None:
        self.errors: list[BaseException] = []
        self.scheduler = Scheduler(seed, on_error=lambda _task, error: self.errors.append(error))
        self.objects = MemoryStore()
        for key, data in founded_objects().items():
            self.objects.put(key, data)
        self.stores: dict[str, FarStore] = {}
        self.actors: dict[str, Actor] = {}
        self._trip_ms = trip_ms
        self._merge_interval = merge_interval
        self._quiet = SimulatedStore(self.scheduler)

    def start(self, name: str, work: Callable[[Namespace], None]) -> None:
        """Have an actor open the namespace and work on it."""
        actor = self.actors[name] = Actor(self.scheduler, name)
        store = self.stores[name] = FarStore(self.objects, actor, self._trip_ms)
        runtime = FarRuntime(actor, self._quiet, trusts_clock=True)

        def run() -> None:
            ns = open_namespace(ROOT, NAMESPACE, mode="rw", create=False, store=store, runtime=runtime)
            merger = ns._connection.session.auto_merger
            merger.interval = self._merge_interval
            for topic in merger._topics.values():
                topic.due_at = self._merge_interval  # those that were there when it was opened
            work(ns)

        actor.start(run, "main")

    @property
    def now_ms(self) -> float:
        """Virtual time."""
        return self.scheduler.now_ms

    def run(self, until_ms: float) -> None:
        """Let so much virtual time pass, or less where everybody came to an end; raise what an actor ended with."""
        self.scheduler.run(lambda: self.now_ms >= until_ms or not any(map(_is_at_work, self.actors.values())), 10**9)
        if self.errors:
            raise self.errors[0]

    def close(self) -> None:
        """End all actors."""
        for actor in self.actors.values():
            actor.alive = False
            self.scheduler.unwind(actor)


def _is_at_work(actor: Actor) -> bool:
    return actor.alive and bool(actor.tasks) and actor.tasks[0].name == "main" and actor.tasks[0].is_alive()


__all__ = ["FarStore", "FarWorld"]
