"""Attacks on group commit between processes. Each failing test is a finding; its docstring names the kind."""

from __future__ import annotations

from collections.abc import Iterator
from decimal import Decimal

import pyarrow as pa
import pytest

from tests.sim.test_proposals import TRIP_MS, Committed, _known_writers, _writer_of, commits_of, entries, mailbox
from txnlog.api.namespace import Namespace
from txnlog.testing import far_store
from txnlog.testing.far_store import FarWorld

__all__ = ["_known_writers"]


@pytest.fixture
def world() -> Iterator[FarWorld]:
    made = FarWorld(seed=7, trip_ms=TRIP_MS)
    yield made
    made.close()


@pytest.fixture
def commits(world: FarWorld) -> Committed:
    return Committed(world)


def read_all(world: FarWorld, topic: str) -> pa.Table:
    """What a reader finds in a topic."""
    read: list[pa.Table] = []
    world.start(f"reader of {topic}", lambda ns: read.append(ns.snapshot().read(topic)))
    world.run(world.now_ms + 60_000)
    return read[0]


# --- rows -------------------------------------------------------------------------------------------------------------


def test_amounts_are_the_same_where_a_decimal_column_is_widened_meanwhile(world):
    """TEAR: committed amounts are through ten, or through a hundred, and nobody hears of it.

    Writers commit amounts of ``decimal(10,2)``; an administrator widens the column, as he may at any time. A mailbox
    does not say of which schema its buffers are, and decimals have 16 bytes whatever their scale: who collects knows
    the new schema by then, and takes 12.36 for 1.236. (Widened twelve times here: one in so many rows is hit.)
    """
    sent: dict[int, Decimal] = {}

    def found(ns: Namespace) -> None:
        ns.create_topic("money", pa.schema([("id", pa.int64()), ("amount", pa.decimal128(10, 2))]), delta="off")
        ns.close()

    world.start("founder", found)
    world.run(5_000)
    end_ms = world.now_ms + 6_000

    def pay(first: int, ns: Namespace) -> None:
        number = first
        while world.now_ms < end_ms:
            number += 1
            amount = Decimal(number % 10_000 + 1_234) / 100
            with ns.begin() as txn:
                txn.produce("money", pa.table({"id": [number], "amount": pa.array([amount], pa.decimal128(10, 2))}))
            sent[number] = amount
        ns.close()

    def widen(ns: Namespace) -> None:
        for scale in range(3, 15):
            world.scheduler.sleep(300 + 17 * scale)
            ns.alter_topic("money", widen={"amount": pa.decimal128(8 + scale, scale)})
        ns.close()

    for writer in range(8):
        world.start(f"w{writer}", lambda ns, writer=writer: pay(writer * 100_000, ns))
    world.start("admin", widen)
    world.run(60_000)
    rows = {row["id"]: row["amount"] for row in read_all(world, "money").to_pylist()}
    wrong = {number: (amount, rows[number]) for number, amount in sent.items() if rows[number] != amount}
    assert not wrong


# --- waiting ----------------------------------------------------------------------------------------------------------


class Workers:
    """Writers that commit one transaction after the other until they are told to close."""

    def __init__(self, world: FarWorld) -> None:
        self.world = world
        self.done: dict[str, list[float]] = {}
        self.closing: set[str] = set()
        self.resting: set[str] = set()

    def start(self, *names: str) -> None:
        for name in names:
            self.world.start(name, lambda ns, name=name: self._work(ns, name))

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
        (name,) = [name for name in self.world.stores if _writer_of(self.world, name) == last]
        return name


@pytest.fixture
def workers(world: FarWorld) -> Workers:
    return Workers(world)


@pytest.mark.parametrize("how", ["it dies", "it closes its handle"])
def test_whoever_waits_for_a_collector_that_is_gone_goes_on_though_others_append(world, workers, how):
    """HANG: commits wait for ever, past their deadlines, as long as any other client appends.

    Who collects dies, or closes its handle, while proposals are out. A proposer races after ten round trips without an
    entry, or after two entries of who collects: entries of anybody else put that off without end. A client that seeks,
    opens consumers or leases messages five times a second is enough: it loses no race, so it does not collect.
    """
    workers.start("w0", "w1", "w2", "w3")

    def seek(ns: Namespace) -> None:
        consumer = ns.consumer("audit", "seeker")
        while world.now_ms < 14_000:
            consumer.seek({0: int(world.now_ms) % 2})
            world.scheduler.sleep(200)
        ns.close()

    world.run(3_000)
    world.start("seeker", seek)
    world.run(6_000)
    name = workers.collector()
    assert name != "seeker"
    if how == "it dies":
        world.scheduler.crash(world.actors[name])
    else:
        workers.closing.add(name)
    world.run(world.now_ms + 1_000)
    since_ms = world.now_ms
    world.run(since_ms + 6_000)
    gained = workers.gained(since_ms)
    del gained[name]
    print(name, gained)
    assert min(gained.values()) > 0, "in six seconds"


def test_who_commits_alone_again_is_as_fast_as_alone(world, workers):
    """STALL: one writer that is alone again, since the others only rest, stays at half of its speed for ever.

    Two processes commit for a moment at the same time, as jobs do that begin together; then one of them, which collects,
    has nothing to commit any more and keeps its handle open. It goes on collecting, as the other one proposes, which
    never races again: each commit takes a cycle of 3.5 round trips and more, where two would do.
    """
    workers.start("w0", "w1")
    world.run(5_000)
    name = workers.collector()
    workers.resting.add(name)
    (alone,) = {"w0", "w1"} - {name}
    world.run(10_000)
    since_ms = world.now_ms
    world.run(since_ms + 10_000)
    count = workers.gained(since_ms)[alone]
    print(count, workers.gained(since_ms), asked(world, name))
    assert count >= 0.8 * 10_000 / (2 * TRIP_MS), "two round trips a commit"


def asked(world: FarWorld, name: str) -> int:
    """How many requests an actor made."""
    return world.stores[name].calls.total()


@pytest.mark.parametrize("seed", [3, 11, 14])
def test_a_writer_that_lets_its_commits_gather_does_not_slow_others_down(monkeypatch, seed):
    """STALL: a writer with ``min_commit_interval_ms`` that collects makes everybody wait for its interval.

    The interval is for its own commits, "for fewer requests". Once it collects, each of its cycles waits that long,
    before it looks into any mailbox. Others race after ten round trips, and believe in it again as soon as it shows
    life, so nobody takes its place: all of them make one commit a second instead of five or six.
    """
    attacked_opening(monkeypatch, {"slow": 600})
    world = FarWorld(seed=seed, trip_ms=TRIP_MS)
    try:
        workers = Workers(world)
        workers.start("slow", "w0", "w1")
        world.run(4_000)
        workers.start("w2", "w3", "w4", "w5")
        world.run(8_000)
        since_ms = world.now_ms
        world.run(since_ms + 6_000)
        gained = workers.gained(since_ms)
    finally:
        world.close()
    del gained["slow"]
    assert min(gained.values()) >= 12, "two commits a second, each"


def attacked_opening(monkeypatch: pytest.MonkeyPatch, intervals: dict[str, int]) -> list[str]:
    """Have actors open their handles with options."""
    opened: list[str] = []
    original = far_store.open_namespace

    def opening(*arguments, **options):
        name = options["store"]._actor.name
        if name in intervals:
            options["min_commit_interval_ms"] = intervals[name]
            opened.append(name)
        return original(*arguments, **options)

    monkeypatch.setattr(far_store, "open_namespace", opening)
    return opened
