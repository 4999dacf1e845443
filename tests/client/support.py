"""What the client's tests share: places for a root, a runtime that never waits, stores that misbehave on demand."""

from __future__ import annotations

import itertools
import random
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from functools import partial
from typing import Any, TypeVar

import pyarrow as pa
import pytest

import txnlog
from txnlog.api.internals import check_open
from txnlog.api.namespace import Namespace
from txnlog.engine.effects import Pause, Result
from txnlog.engine.engine import engine_of_process
from txnlog.engine.promises import Promise
from txnlog.engine.runtime import Clock, Runtime
from txnlog.engine.worker import Worker
from txnlog.errors import Durable, StoreError, TxnLogError
from txnlog.fold.apply import apply_entry
from txnlog.fold.state import State
from txnlog.format import keys
from txnlog.format.actions import Close
from txnlog.format.codec import decode_entry
from txnlog.log.appender import Submitted
from txnlog.log.commands import Simple
from txnlog.store import CountingStore, Created, ForwardingStore, Store, identity_of, open_store
from txnlog.store.base import ObjectNotFound
from txnlog.store.probe import Passed

S = TypeVar("S", bound=Store)

_unique = itertools.count()

SCHEMA = pa.schema([pa.field("id", pa.int64()), pa.field("name", pa.string())])


class FakeRuntime(Runtime):
    """Sleeps in no time: waiting moves a clock of its own."""

    slept_ms: list[float]

    def __init__(self, clock: Clock | None = None) -> None:
        super().__init__(clock)
        self.slept_ms = []
        self._elapsed_ms = 0.0

    def elapsed_ms(self) -> float:
        return self._elapsed_ms

    def sleep_ms(self, milliseconds: float) -> None:
        self.slept_ms.append(milliseconds)
        self._elapsed_ms += milliseconds
        time.sleep(0.000_01)  # others get their turn

    def pause(self, milliseconds: float) -> Pause:
        self.sleep_ms(milliseconds)
        return Pause(0)


def trusting_probe(store: Store, prefix: str, **_: Any) -> Passed:
    """Stands in for the probe of a store: nothing is asked of it."""
    return Passed(identity_of(store), 1, 1, 0)


class Place:
    """A root somewhere, and the handles that a test opened on it."""

    def __init__(self, kind: str, root: str, storage_options: dict[str, Any] | None = None) -> None:
        self.kind = kind
        self.root = root
        self.storage_options = storage_options or {}
        self.opened: list[Namespace] = []

    def store(self) -> Store:
        """A handle on the root's objects."""
        return open_store(self.root, self.storage_options)

    def open(self, namespace: str = "sales", *, wrap: Callable[[Store], Store] | None = None, **options: Any) -> Any:
        """Open the namespace, made if need be; ``wrap`` puts a store around the root's."""
        if wrap is not None:
            options["store"] = wrap(self.store())
        elif self.storage_options:
            options["storage_options"] = self.storage_options
        options.setdefault("create", options.get("mode") != "r")
        handle = txnlog.open(self.root, namespace=namespace, **options)
        self.opened.append(handle)
        return handle

    def orders(self, *numbers: int, partitions: int = 1, **options: Any) -> Any:
        """A handle on the namespace with the topic ``orders``, and these rows in it in one entry."""
        handle = self.open(**options)
        handle.create_topic("orders", SCHEMA, partitions=partitions)
        if numbers:
            handle.produce("orders", rows(*numbers))
        return handle

    def wrapped(self, wrap: Callable[[Store], S], **options: Any) -> tuple[Any, S]:
        """A handle, and the store that was put around the root's for it."""
        stores: list[S] = []

        def kept(store: Store) -> Store:
            stores.append(wrap(store))
            return stores[0]

        return self.open(wrap=kept, **options), stores[0]

    def counted(self, **options: Any) -> tuple[Any, CountingStore]:
        """A handle whose requests are counted, by class of key."""
        return self.wrapped(partial(CountingStore, classify=kind_of), **options)

    def faulty(self, **options: Any) -> tuple[Any, FaultyStore]:
        """A handle on a store that misbehaves when told."""
        return self.wrapped(FaultyStore, **options)

    def faulty_orders(
        self, *numbers: int, audit: bool = False, partitions: int = 1, **options: Any
    ) -> tuple[Any, FaultyStore]:
        """The same with the topic ``orders``, perhaps ``audit``, and these rows."""
        ns, store = self.faulty(**options)
        ns.create_topic("orders", SCHEMA, partitions=partitions)
        if audit:
            ns.create_topic("audit", SCHEMA)
        if numbers:
            ns.produce("orders", rows(*numbers))
        return ns, store

    def close(self) -> None:
        """Close what was opened."""
        for handle in self.opened:
            handle.close()


@pytest.fixture(name="memory")
def memory_place() -> Iterator[Place]:
    """An empty root in memory."""
    place = Place("memory", f"memory://{unique_name()}")
    yield place
    place.close()


kind_of = keys.kind_of
"""The class of a key of the whole store."""


def is_entry(key: str) -> bool:
    """Whether a key of the whole store is a slot of the namespace's log."""
    return kind_of(key) == "entry"


Fault = str | Callable[[], object]


class FaultyStore(ForwardingStore):
    """Creates of log entries go as ``script`` says, one word each; an empty script is an honest store.

    ``ok``; ``lost``: done, but the answer is not heard; ``dropped``: not done; ``late``: not done until ``land()``;
    ``twice``: done, and once more at ``land()``; ``refused``: StoreError(NOTHING); ``broken``: StoreError(MAYBE), not
    done; ``broken-after``: StoreError(MAYBE), done. A callable runs first, and the next word is taken.
    ``reads`` does the same for reads of entries (``ok``, ``absent``, ``broken``); ``puts`` for puts of segments;
    ``manifests`` takes the words of ``script`` for creates of checkpoints. ``forever`` is what an empty script says,
    ``reads_forever`` what empty ``reads`` say.
    """

    def __init__(self, inner: Store) -> None:
        super().__init__(inner)
        self.script: deque[Fault] = deque()
        self.reads: deque[Fault] = deque()
        self.puts: deque[Fault] = deque()
        self.syncs: deque[Fault] = deque()
        self.manifests: deque[Fault] = deque()
        self.forever: str | None = None
        self.reads_forever: str | None = None
        self.calls: list[tuple[str, str]] = []
        self._late: list[tuple[str, bytes]] = []

    def land(self) -> None:
        """What was delayed arrives now."""
        for key, data in self._late:
            self.inner.create(key, data)
        self._late.clear()

    def heal(self) -> None:
        """An honest store from now on."""
        self.forever = self.reads_forever = None
        for words in (self.script, self.reads, self.puts, self.syncs, self.manifests):
            words.clear()

    def create(self, key: str, data: bytes) -> Created:
        kind = kind_of(key)
        if kind not in {"entry", "checkpoint"}:
            return super().create(key, data)
        if kind == "entry":
            self.calls.append(("create", key))
        match self._next(self.script if kind == "entry" else self.manifests):
            case "ok":
                return super().create(key, data)
            case "lost":
                super().create(key, data)
                return Created.UNKNOWN
            case "dropped":
                return Created.UNKNOWN
            case "late":
                self._late.append((key, data))
                return Created.UNKNOWN
            case "twice":
                self._late.append((key, data))
                return super().create(key, data)
            case "refused":
                raise StoreError("no space left", durable=Durable.NOTHING)
            case "broken":
                raise StoreError("connection dropped", durable=Durable.MAYBE)
            case "broken-after":
                super().create(key, data)
                raise StoreError("connection dropped", durable=Durable.MAYBE)
            case "killed":
                super().create(key, data)
                raise KeyboardInterrupt
            case word:
                raise AssertionError(word)

    def get(self, key: str) -> bytes:
        if is_entry(key):
            self.calls.append(("get", key))
            match self._next(self.reads):
                case "absent":
                    raise ObjectNotFound(key)
                case "broken":
                    raise StoreError("read timed out")
        return super().get(key)

    def put(self, key: str, data: bytes) -> None:
        self.calls.append(("put", key))
        if kind_of(key) == "segment":
            match self._next(self.puts):
                case "refused":
                    raise StoreError("no space left", durable=Durable.NOTHING)
                case "broken":
                    raise StoreError("connection dropped", durable=Durable.MAYBE)
                case "killed":
                    raise KeyboardInterrupt
        super().put(key, data)

    def sync(self, key: str) -> None:
        if is_entry(key) and self._next(self.syncs) == "broken":
            raise StoreError("an earlier fsync failed", durable=Durable.MAYBE)
        super().sync(key)

    def _next(self, words: deque[Fault]) -> str:
        while words:
            word = words.popleft()
            if not callable(word):
                return word
            word()
        if words is self.script:
            return self.forever or "ok"
        return (words is self.reads and self.reads_forever) or "ok"


def rows(*numbers: int) -> list[dict[str, Any]]:
    """Rows that are told apart by their id."""
    return [{"id": number, "name": f"n{number}"} for number in numbers]


def begun(
    owner: Any,
    *numbers: int,
    topic: str = "orders",
    partition: int | None = None,
    sequence: int | None = None,
    flush: bool = False,
    **options: Any,
) -> Any:
    """A transaction of a handle or a producer that has produced rows, and flushed them where that is said."""
    txn = owner.begin(**options)
    txn.produce(topic, rows(*numbers), partition=partition, sequence=sequence)
    if flush:
        txn.flush()
    return txn


def committed(owner: Any, *numbers: int, **options: Any) -> Any:
    """The same in a block, which commits."""
    with begun(owner, *numbers, **options) as txn:
        pass
    return txn


def holding(owner: Any, messages: Any, *, cumulative: bool = False, flush: bool = False, **options: Any) -> Any:
    """A transaction that has acknowledged messages, and flushed that where it is said."""
    txn = owner.begin(**options)
    txn.acknowledge(messages, cumulative=cumulative)
    if flush:
        txn.flush()
    return txn


def ids(table: pa.Table) -> list[int]:
    """The ids of rows, in order."""
    return table.column("id").to_pylist()


def received(consumer: Any, most: int = 1000, timeout_ms: int = 0) -> list[int]:
    """The ids of what a consumer receives, without waiting if not told to."""
    return ids(consumer.receive(most, timeout_ms=timeout_ms).table)


def take(consumer: Any, most: int = 1000) -> Any:
    """What a consumer receives without waiting."""
    return consumer.receive(most, timeout_ms=0)


def counts(messages: Any) -> dict[int, int]:
    """How often each message was redelivered, by id."""
    return dict(zip(ids(messages.table), messages.redelivery_counts, strict=True))


def cursor(ns: Any, topic: str = "orders", partition: int = 0) -> Any:
    """Where the subscription ``billing`` of a topic stands in a partition."""
    return ns.subscription(topic, "billing").cursors[partition]


def read(ns: Namespace, topic: str = "orders", **options: Any) -> list[int]:
    """The ids of a topic's committed rows at the newest version."""
    return ids(ns.snapshot().read(topic, **options))


TXN_CALLS: dict[str, Callable[[Any, Any], object]] = {
    "produce": lambda txn, _: txn.produce("orders", rows(9)),
    "acknowledge": lambda txn, messages: txn.acknowledge(messages),
    "flush": lambda txn, _: txn.flush(),
    "check_open": lambda txn, _: check_open(txn),
    "prepare": lambda txn, _: txn.prepare(),
    "commit": lambda txn, _: txn.commit(),
    "commit_async": lambda txn, _: txn.commit_async().result(30),
}
"""What its owner may ask of a transaction, by name; some take received messages."""


def one_received(ns: Any) -> tuple[Any, Any]:
    """A consumer of the only message, and what it received."""
    ns.produce("orders", rows(0))
    consumer = ns.consumer("orders", "billing")
    return consumer, consumer.receive(timeout_ms=0)


class Unchanged:
    """The log must not grow inside the block, as seen by a handle of its own."""

    def __init__(self, place: Place, namespace: str = "sales") -> None:
        self._handle = place.open(namespace, mode="r")

    def __enter__(self) -> None:
        self._before = self._handle.snapshot().version

    def __exit__(self, kind: object, *_: object) -> None:
        if kind is None:
            assert self._handle.snapshot().version == self._before, "something was written"


def prepared(ns: Any, *numbers: int, topic: str = "orders", **options: Any) -> str:
    """The token of a prepared transaction with these rows."""
    txn = ns.begin(**options)
    txn.produce(topic, rows(*numbers))
    token: str = txn.prepare()
    return token


def waiting(ns: Any) -> int:
    """How many calls of a handle wait for the next entry."""
    appender = ns._connection.appender
    return len(appender._admission) + len(appender._queue)


class _InTheBackground(Submitted[Any]):
    """A command of the log, and the future of its reply."""

    def __init__(self, ns: Any, command: Any) -> None:
        super().__init__(ns._connection.appender)
        self._command = command
        self.future = Promise[Any](ns._connection.runtime.call_back)

    async def work(self) -> Any:
        return await self._appender.carry_out(self._command, in_background=True)

    def done(self, result: Result[Any]) -> None:
        if result.error is None:
            self.future.set_result(result.get())
        else:
            self.future.set_exception(result.error)


def submitted(ns: Any, command: Any) -> Future[Any]:
    """A command of the log that is carried out in the background."""
    task = _InTheBackground(ns, command)
    ns._connection.appender.submit(task)
    return task.future


def staged(txn: Any) -> None:
    """Write a transaction's rows as segments that no entry names yet."""
    txn._run(partial(txn._machine.spill, everything=True))


def raises(kind: type[TxnLogError], match: str = "", durable: Durable = Durable.NOTHING) -> Any:
    """pytest.raises for exactly one class of our errors, with what it says about durability."""

    def check(error: BaseException) -> bool:
        assert isinstance(error, TxnLogError)
        assert type(error) is kind, f"{type(error).__name__}: {error}"
        assert error.durable is durable, error
        silent = error._unsaid and durable is Durable.NOTHING
        assert error.advice, "every error knows what to do"
        assert str(error) == f"{error.message} ({error.advice}{'' if silent else f'; {durable.value}'})", "and says it"
        return True

    return pytest.raises(kind, match=match or None, check=check)


def run_threads(*calls: Callable[[], object], seconds: float = 60) -> list[object]:
    """Run calls side by side; what each returned or raised. A thread that does not end fails the test."""
    results: list[object] = [None] * len(calls)

    def run(index: int) -> None:
        try:
            results[index] = calls[index]()
        except BaseException as error:  # noqa: BLE001 - it is the result
            results[index] = error

    threads = [threading.Thread(target=run, args=(index,), daemon=True) for index in range(len(calls))]
    for thread in threads:
        thread.start()
    deadline = time.monotonic() + seconds
    for thread in threads:
        thread.join(max(0.0, deadline - time.monotonic()))
        assert not thread.is_alive(), "a thread hangs"
    return results


def together(ns: Any, store: FaultyStore, *calls: Callable[[], Future[Any]]) -> list[Future[Any]]:
    """The Futures of calls that gather while an entry is under way, so that they share the next one."""
    futures: list[Future[Any]] = []
    store.script.append(lambda: futures.extend(call() for call in calls))
    ns.create_topic(unique_name())
    return futures


def assert_whole(ns: Any, place: Place) -> None:
    """What a handle has in memory is what the log says, and others can commit with it."""
    (other,) = run_threads(lambda: ns.create_topic("passing", SCHEMA, if_not_exists=True), seconds=20)
    assert not isinstance(other, BaseException), other
    fresh = place.open(mode="r")
    ns._connection.follower.refresh()
    tables_of = ns._connection.follower.state.as_tables()
    for name, table in fresh._connection.follower.state.as_tables().items():
        assert tables_of[name] == table, name


def wait_for(ready: Callable[[], bool]) -> None:
    """Wait for another thread, not for ever."""
    deadline = time.monotonic() + 20
    while not ready():
        assert time.monotonic() < deadline, "the other thread hangs"
        time.sleep(0.001)


def has_no_thread(worker: Worker | None = None) -> bool:
    """Whether a worker, by default the engine's of this process, has no thread: the next step begins one.

    Threads by the same name may hang for ever in stores of other tests.
    """
    found = engine_of_process()._worker if worker is None else worker
    return bool(found._seat) and not found._spare


def unique_name() -> str:
    """A name that no other test uses."""
    return f"client-{next(_unique)}"


def objects(store: Store, prefix: str = "") -> Iterator[str]:
    """Keys of a store."""
    return (info.key for info in store.list(prefix))


def busy(ns: Any, seed: int, steps: int = 12) -> None:
    """Some of everything: topics, commits, aborts, open ones, cursors, sequences, apps, producers, drops."""
    rng = random.Random(seed)
    if "orders" not in ns.topics():
        ns.create_topic("orders", SCHEMA, partitions=2)
        ns.create_topic("audit", SCHEMA)
    consumer = ns.consumer("orders", "billing")
    producer = ns.producer(f"loader-{seed % 3}")
    for step in range(steps):
        number = seed * 1_000 + step
        ns.produce("orders", rows(number), partition=rng.randrange(2))
        producer.produce("orders", rows(number), partition=0)
        txn = producer.begin(txn_app_id="nightly", txn_version=number) if step % 4 == 1 else ns.begin()
        txn.produce("orders", rows(number), partition=1)
        if step % 2:
            txn.produce("audit", rows(number))
            txn.flush()
        if step % 3 == 0:
            txn.acknowledge(consumer.receive(3, timeout_ms=0)[[0]])
        if step % 5 == 4:
            txn.abort()
        elif step % 7 != 6:
            txn.commit()
    ns.create_topic(f"passing-{seed}", SCHEMA)
    ns.produce(f"passing-{seed}", rows(1))
    passing = ns.consumer(f"passing-{seed}", "billing")
    txns = [ns.begin() for _ in range(3)]
    txns[1].acknowledge(passing.receive(1, timeout_ms=0))
    for txn in txns:
        txn.produce("orders", rows(seed), partition=1)
        txn.produce(f"passing-{seed}", rows(seed))
    txns[0].flush()
    tokens = [txn.prepare() for txn in txns[1:]]
    ns.drop_topic(f"passing-{seed}")
    txns[0].commit()
    for token, decision in zip(tokens, (True, False), strict=True):
        ns.complete(token, commit=decision)


def from_zero(ns: Any) -> State:
    """The fold of the entries alone."""
    state = State()
    for version in range(ns.snapshot().version + 1):
        apply_entry(state, decode_entry(ns._connection.follower.log.get(version), version))
    return state


def close_blocks(rival: Namespace, writer: str) -> None:
    """What vacuum will do to a writer that was silent for the grace."""
    blocks = [block.first for block in rival._connection.follower.state.blocks.values() if block.writer == writer]
    rival._connection.follower.refresh()
    rival._connection.appender.call(
        Simple(lambda _draft, _at: [Close(first) for first in blocks], lambda _draft, _at: None)
    )
