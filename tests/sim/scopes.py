"""What the exhaustive tests of small scopes share: a prepared root, a runtime that never waits, effects.

An *effect* is what an operation promised, asked of a client without faults: True where all of it is there, False where
nothing is. Anything in between is torn or doubled, and fails the test by itself.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Sequence
from functools import cache
from typing import Any, TypeVar

import pyarrow as pa

import txnlog
from txnlog.api.namespace import Namespace
from txnlog.common.format_limits import FORMAT_VERSION
from txnlog.engine.runtime import Runtime
from txnlog.errors import TransactionNotFound
from txnlog.fold.apply import apply_entry
from txnlog.fold.state import State
from txnlog.format import keys
from txnlog.format.actions import AnyAction, Protocol, Verdict
from txnlog.format.actions import Namespace as NamespaceAction
from txnlog.format.codec import decode_entry
from txnlog.log import checkpoint_codec
from txnlog.log.log_reader import Log
from txnlog.log.root_log import create_log
from txnlog.store import MemoryStore, Store
from txnlog.store.wrappers import PrefixStore
from txnlog.testing import ManualClock
from txnlog.testing.scheduler import START_MS, Task

T = TypeVar("T")
Effect = Callable[[Namespace], bool]

ROOT, NAMESPACE = "memory://scopes", "small"
SCHEMA = pa.schema([pa.field("value", pa.int64())])
FIRST = (1, 2, 3, 4)
"""The rows of ``orders`` in every scope, at the offsets 0 to 3."""


class StillHost:
    """Threads that run when somebody waits for them, each to its end: so there is one thread. Waiting takes no time."""

    keeps_threads = False

    def __init__(self) -> None:
        self.ready: list[Callable[[], None]] = []
        self.running: object = None
        self.now_ms = 0.0

    def inbox(self) -> StillInbox:
        return StillInbox(self)

    def start(self, work: Callable[[], None], _name: str) -> None:
        self.ready.append(work)

    def current(self) -> object:
        return self.running

    def elapsed_ms(self) -> float:
        return self.now_ms


class StillInbox:
    """Lets the threads of a host run as long as there is nothing."""

    def __init__(self, host: StillHost) -> None:
        self._host = host
        self._items: list[Any] = []

    def put(self, item: Any) -> None:
        self._items.append(item)

    def take(self, timeout_ms: float | None) -> Any:
        while not self._items and self._host.ready:
            before, self._host.running = self._host.running, object()
            self._host.ready.pop(0)()
            self._host.running = before
        if self._items:
            return self._items.pop(0)
        assert timeout_ms is not None, "nobody is left who could reply"
        self._host.now_ms += timeout_ms
        return None

    def is_empty(self) -> bool:
        return not self._items


class StillRuntime(Runtime):
    """One thread, no waiting, and the same chance in every run."""

    def __init__(self, name: str, clock: ManualClock) -> None:
        self._still = StillHost()
        super().__init__(clock, self._still)
        self._name = name
        self._drawn = itertools.count(1)

    def _run_in_pool(self, work: Callable[[], None]) -> None:
        work()

    def sleep_ms(self, milliseconds: float) -> None:
        self._still.now_ms += milliseconds

    def jitter(self, ceiling: float) -> float:
        return ceiling / 2

    def unique(self) -> str:
        return keys_of_chance(self._name, next(self._drawn))

    def run_all(self, calls: Sequence[Callable[[], T]]) -> list[T]:
        """One after the other, to the last: an error is raised when all have ended, as where they run side by side."""
        results, errors = [], []
        for call in calls:
            try:
                results.append(call())
            except Exception as error:  # noqa: BLE001 - raised below
                errors.append(error)
        if errors:
            raise errors[0]
        return results

    def start(self, work: Callable[[], None], name: str) -> Task:
        raise AssertionError(f"{name}: nothing runs in the background here")


@cache
def keys_of_chance(name: str, number: int) -> str:
    """32 hexadecimal digits."""
    return f"{name.encode().hex()[:16]:0<16}{number:016x}"


def open_client(store: Store, name: str, clock: ManualClock | None = None, **options: Any) -> Namespace:
    """A client of its own name (which is all its chance)."""
    runtime = StillRuntime(name, clock or ManualClock(START_MS))
    return txnlog.open(ROOT, NAMESPACE, store=store, runtime=runtime, **options)


def rows(*values: int) -> list[dict[str, int]]:
    return [{"value": value} for value in values]


# --- a root to begin with ---------------------------------------------------------------------------------------------


def new_store(clock: ManualClock) -> MemoryStore:
    """A store with a root whose store passed its probe (which has tests of its own), and no namespace."""
    store = MemoryStore(clock_ms=clock.now_ms)
    start: list[AnyAction] = [
        Protocol(FORMAT_VERSION, FORMAT_VERSION),
        NamespaceAction(keys.CATALOG_FOLDER, 0),
        Verdict(store.identity.store_kind, store.identity.endpoint_hash, 1),
    ]
    create_log(PrefixStore(store, keys.CATALOG_FOLDER), StillRuntime("root", clock), start, keys_of_chance("root", 0))
    return store


def copied(store: MemoryStore) -> MemoryStore:
    """A store with the same objects and clock."""
    copy = MemoryStore(clock_ms=store._clock_ms)
    copy._space.objects.update(store._space.objects)
    return copy


def founded(prepare: Callable[[Namespace], object], clock: ManualClock) -> MemoryStore:
    """A store with the namespace, its topics and FIRST, made ready by ``prepare``."""
    store = new_store(clock)
    ns = open_client(store, "founder", clock, create=True)
    for topic, partitions in (("orders", 1), ("audit", 1), ("wide", 2), ("probes", 1)):
        ns.create_topic(topic, SCHEMA, partitions)
    ns.produce("orders", rows(*FIRST))
    prepare(ns)
    return store


# --- effects ----------------------------------------------------------------------------------------------------------


def whole(parts: Iterable[bool], what: str) -> bool:
    """All of it or nothing."""
    found = list(parts)
    assert len(set(found)) == 1, f"torn: {what} {found}"
    return found[0]


def values(ns: Namespace, topic: str) -> list[int]:
    """The committed rows of a topic that was not dropped; their offsets have no gap."""
    if topic not in ns.topics():
        return []
    table = ns.snapshot().read(topic, include_metadata=True)
    places: dict[int, list[int]] = {}
    for partition, offset in zip(
        table.column("_partition").to_pylist(), table.column("_offset").to_pylist(), strict=True
    ):
        places.setdefault(partition, []).append(offset)
    for partition, offsets in places.items():
        assert offsets == list(range(len(offsets))), f"{topic}/{partition} has the offsets {offsets}"
    found: list[int] = table.column("value").to_pylist()
    assert len(found) == len(set(found)), f"doubled: {topic} has {found}"
    return found


def has(**topics: tuple[int, ...]) -> Effect:
    """Rows of one transaction: ``has(orders=(11, 12), audit=(13,))``."""

    def effect(ns: Namespace) -> bool:
        found = {topic: set(values(ns, topic)) for topic in topics}
        return whole((value in found[topic] for topic, wanted in topics.items() for value in wanted), f"{topics}")

    return effect


def took(subscription: str, *offsets: int) -> Effect:
    """Offsets of ``orders`` that were acknowledged together."""

    def effect(ns: Namespace) -> bool:
        (cursor,) = ns.subscription("orders", subscription).cursors
        return whole(
            (
                offset < cursor.cursor or any(start <= offset < end for start, end in cursor.acknowledged)
                for offset in offsets
            ),
            f"acknowledgements of {offsets}",
        )

    return effect


def together(*effects: Effect) -> Effect:
    """All of one transaction."""
    return lambda ns: whole([effect(ns) for effect in effects], "a transaction")


# --- afterwards -------------------------------------------------------------------------------------------------------


def outcome(ns: Namespace, txn_id: str) -> str:
    """The final answer about a transaction: the state it has for ever, or PREPARED."""
    if ns.transaction(txn_id).state != "PREPARED":
        try:
            ns.abort(txn_id)
        except TransactionNotFound:  # of a block that was never reserved: no entry can name it
            return "ABORTED"
    return ns.transaction(txn_id).state


def replayed(store: Store) -> State:
    """The fold of the log from version 0 on, whatever checkpoints there are."""
    log = Log(PrefixStore(store, NAMESPACE), StillRuntime("replay", ManualClock(START_MS)))
    state, version = State(), 0
    while (entry := log.get(version)) is not None:
        apply_entry(state, decode_entry(entry, version))
        version += 1
    return state


def check_folds(clients: Sequence[Namespace], store: Store) -> None:
    """What clients hold in memory is what a replay gives, once they have read up."""
    zero = replayed(store)
    for ns in clients:
        follower = ns._connection.follower
        follower.log = Log(PrefixStore(store, NAMESPACE), ns._connection.runtime)  # where nothing fails
        follower.refresh()
        expected = zero
        if follower.base is not None:
            expected = zero.copy()
            checkpoint_codec.trim(expected, follower.base.version)
        for table, wanted in expected.as_tables().items():
            assert follower.state.as_tables()[table] == wanted, f"{table} differs from a replay"
