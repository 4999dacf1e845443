"""Writers of one namespace over a store that is far away, for tests of what they propose to each other."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import msgspec
import pyarrow as pa
import pytest
import xxhash

from txnlog.api.namespace import Namespace
from txnlog.api.transaction import Transaction
from txnlog.errors import OutcomeUnknown, StoreError, TransactionTimedOut
from txnlog.format import keys
from txnlog.format.actions import Commit
from txnlog.format.codec import Entry, decode_entry
from txnlog.testing.far_store import FarWorld
from txnlog.testing.world import NAMESPACE

SECONDS = 4.0
TRIP_MS = 41.0


@pytest.fixture
def world() -> Iterator[FarWorld]:
    made = FarWorld(seed=7, trip_ms=TRIP_MS)
    yield made
    made.close()


class Committed:
    """What writers committed, by their names, each value once."""

    def __init__(self, world: FarWorld) -> None:
        self.world = world
        self.values: dict[str, list[int]] = {}
        self.longest_ms = 0.0
        self._next = 1_000_000

    def value(self) -> int:
        self._next += 1
        return self._next

    def until(self, end_ms: float, name: str) -> Callable[[Namespace], None]:
        """An actor that commits one transaction after the other until then, and closes its handle."""
        mine = self.values.setdefault(name, [])

        def work(ns: Namespace) -> None:
            while self.world.now_ms < end_ms:
                value, began_ms = self.value(), self.world.now_ms
                with ns.begin() as txn:
                    txn.produce("audit", [{"value": value}])
                mine.append(value)
                self.longest_ms = max(self.longest_ms, self.world.now_ms - began_ms)
            ns.close()

        return work

    def start(self, count: int, seconds: float = SECONDS) -> None:
        """So many of them."""
        for number in range(count):
            self.world.start(f"w{number}", self.until(seconds * 1e3, f"w{number}"))

    def check(self) -> Counter[int]:
        """Every value of a commit that was answered is there, and none twice; returns all that is there."""
        found = Counter(self.rows())
        assert not [value for value, count in found.items() if count > 1], "there twice"
        wanted = {value for values in self.values.values() for value in values}
        assert wanted <= found.keys(), "acknowledged, and not there"
        return found

    def rows(self) -> list[int]:
        """What a reader finds."""
        read: list[list[int]] = []

        def look(ns: Namespace) -> None:
            read.append(ns.snapshot().read("audit").column("value").to_pylist())

        self.world.start("reader", look)
        self.world.run(self.world.now_ms + 60_000)
        return read[0]


@pytest.fixture
def commits(world: FarWorld) -> Committed:
    return Committed(world)


def entries(world: FarWorld) -> list[Entry]:
    """The log, as it is on the store."""
    found: list[Entry] = []
    for info in world.objects.list(f"{NAMESPACE}/_log/0"):
        version = len(found)
        found.append(decode_entry(world.objects.get(info.key), version))
    return found


def mailbox(world: FarWorld, writer: str) -> str:
    return f"{NAMESPACE}/{keys.mailbox_key(writer)}"


def commits_of(entry: Entry) -> int:
    return sum(isinstance(action, Commit) for action in entry.actions)


def asked_about_proposals(world: FarWorld) -> int:
    return sum(
        count for store in world.stores.values() for name, count in store.calls.items() if name.endswith("proposal")
    )


WRITERS: dict[int, dict[str, str]] = {}


def writer_of(world: FarWorld, name: str) -> str | None:
    return WRITERS.get(id(world), {}).get(name)


@pytest.fixture(autouse=True)
def _known_writers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Note which writer each actor is."""
    start = FarWorld.start

    def noted(world: FarWorld, name: str, work: Callable[[Namespace], None]) -> None:
        def run(ns: Namespace) -> None:
            WRITERS.setdefault(id(world), {})[name] = ns._connection.appender.writer
            work(ns)

        start(world, name, run)

    WRITERS.clear()
    monkeypatch.setattr(FarWorld, "start", noted)


def mailboxes(world: FarWorld) -> list[str]:
    folder = f"{NAMESPACE}/{keys.PROPOSAL_FOLDER}"
    return [info.key for info in world.objects.list(folder) if info.key != f"{NAMESPACE}/{keys.COLLECTOR_KEY}"]


def read_all(world: FarWorld, topic: str) -> pa.Table:
    """What a reader finds in a topic."""
    read: list[pa.Table] = []
    world.start(f"reader of {topic}", lambda ns: read.append(ns.snapshot().read(topic)))
    world.run(world.now_ms + 60_000)
    return read[0]


class Workers:
    """Writers that commit one transaction after the other until they are told to close."""

    def __init__(self, world: FarWorld) -> None:
        self.world = world
        self.done: dict[str, list[float]] = {}
        self.closing: set[str] = set()
        self.resting: set[str] = set()

    def start(self, *names: str) -> None:
        for name in names:
            self.world.start(name, partial(self._work_as, name))

    def _work_as(self, name: str, ns: Namespace) -> None:
        self._work(ns, name)

    def _work(self, ns: Namespace, name: str) -> None:
        mine = self.done.setdefault(name, [])
        while name not in self.closing:
            if name in self.resting:
                self.world.scheduler.sleep(50)
                continue
            with ns.begin() as txn:
                txn.produce("audit", [{"value": len(mine)}])
            mine.append(self.world.now_ms)
        ns.close()

    def gained(self, since_ms: float) -> dict[str, int]:
        """Commits of each since then."""
        return {name: sum(at >= since_ms for at in mine) for name, mine in self.done.items()}

    def collector(self) -> str:
        """Whose entries held the last commits."""
        last = next(entry.header.writer for entry in reversed(entries(self.world)) if commits_of(entry))
        (name,) = [name for name in self.world.stores if writer_of(self.world, name) == last]
        return name


@pytest.fixture
def workers(world: FarWorld) -> Workers:
    return Workers(world)


def count_calls(item: Any, name: str) -> list[str]:
    """One more at each call of a method from here on."""
    seen: list[str] = []
    real = getattr(item, name)

    def called(*arguments: Any, **options: Any) -> Any:
        seen.append(name)
        return real(*arguments, **options)

    setattr(item, name, called)
    return seen


def commit_until_proposed(world: FarWorld, ns: Namespace) -> None:
    """Commit until three times others brought it along."""
    appender = ns._connection.appender
    proposed = count_calls(appender._proposer, "_put")
    while len(proposed) < 3 or appender._collector.collects:
        if appender._collector.collects:  # it won a race: others collect while it rests
            world.scheduler.sleep(2_000)
        else:
            with ns.begin() as txn:
                txn.produce("audit", [{"value": -1}])


class Proposing:
    """A client that proposes, and whose store fails when it is told to."""

    def __init__(self, world: FarWorld, workers: Workers) -> None:
        self.world = world
        self.fails: list[str] = []
        self.failed = 0
        workers.start("w0", "w1", "w2", "w3")
        world.run(3_000)

    def start(self, work: Callable[[Namespace], None]) -> None:
        """Have it work, once it has proposed something."""

        def begin(ns: Namespace) -> None:
            commit_until_proposed(self.world, ns)
            work(ns)

        self.world.start("p", begin)
        store = self.world.stores["p"]
        ask = store._ask

        def asked(name: str, key: str, *arguments: Any) -> Any:
            if self.fails and self.fails[0] == f"{name} {keys.kind_of(key)}":
                self.fails.pop(0)
                self.failed += 1
                store._travel()
                raise StoreError(f"503 for {name} of {key}")
            return ask(name, key, *arguments)

        setattr(store, "_ask", asked)  # noqa: B010 - a method


@pytest.fixture
def proposing(world: FarWorld, workers: Workers) -> Proposing:
    return Proposing(world, workers)


def put_mailbox(world: FarWorld, writer: str, number: int | None, *commands: Any, rows: Any = None) -> None:
    head = entries(world)[-1].header
    made = {"format": 1, "writer": writer, "number": number, "version": head.version, "time_ms": head.timestamp_ms}
    content = msgspec.msgpack.encode({**made, "commands": commands, "rows": rows or {}})
    world.objects.put(mailbox(world, writer), xxhash.xxh3_128_digest(content) + content)


def commit_as_advised(txn: Transaction, heard: list[str], on_unknown: Callable[[], object]) -> None:
    """Commit, again where the outcome is unknown, three times at most; note what came of it."""
    for _ in range(3):
        try:
            txn.commit()
            heard.append("committed")
        except OutcomeUnknown:
            on_unknown()
            continue
        except TransactionTimedOut:
            heard.append("refused")
        break


def start_slow_writer(world: FarWorld) -> None:
    """One that commits each four seconds, for two minutes, and brings nothing of others."""

    def slowly(ns: Namespace) -> None:
        world.stores["slow"].denied = "proposal"
        while world.now_ms < 120_000:
            with ns.begin() as txn:
                txn.produce("audit", [{"value": 2}])
            world.scheduler.sleep(4_000)

    world.start("slow", slowly)
