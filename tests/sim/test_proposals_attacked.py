"""Attacks on what writers propose to each other: rows, and whoever waits. Each names its kind."""

from __future__ import annotations

import gc
import weakref
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from tests.sim.crowds import (
    TRIP_MS,
    Workers,
    _known_writers,
    asked_about_proposals,
    commits,
    entries,
    proposing,
    read_all,
    workers,
    world,
    writer_of,
)
from txnlog.api.internals import adopt_segments, connection_of
from txnlog.api.namespace import Namespace
from txnlog.data.row_buffer import RowBuffer
from txnlog.format import keys
from txnlog.log.commands import Piece
from txnlog.log.segment_builder import build_owned
from txnlog.store.base import Created
from txnlog.testing import far_store
from txnlog.testing.far_store import FarWorld
from txnlog.testing.world import NAMESPACE

__all__ = ["_known_writers", "commits", "proposing", "workers", "world"]

pytestmark = pytest.mark.some(one_in=3)


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


def test_numbers_are_the_same_where_their_writer_has_just_widened_the_column(world, workers, proposing):
    """TEAR: [5, 6, 7] were committed, and [5, 0, 6] are there: of the defaults, with whole numbers.

    A process widens a column from ``int32`` to ``int64`` and goes on producing. Whoever collects stood still for half a
    second meanwhile: it has not read the entry that widens, and reads the mailbox. Its bytes are of ``int64``, longer
    than those of ``int32`` need be, and pass for them.
    """
    sent: list[int] = []
    frozen: list[float] = []

    def work(ns: Namespace) -> None:
        ns.create_topic("numbers", pa.schema([("n", pa.int32())]))
        with ns.begin() as txn:
            txn.produce("numbers", [{"n": 1}])
        name = workers.collector()
        store = world.stores[name]
        ask = store._ask

        def asked(what: str, key: str, *arguments: Any) -> Any:
            found = ask(what, key, *arguments)
            if what == "create" and found is Created.CREATED and not frozen:
                frozen.append(world.now_ms)
                world.actors[name].pause(600)
            return found

        setattr(store, "_ask", asked)  # noqa: B010 - a method
        while not frozen:
            world.scheduler.sleep(1)
        ns.alter_topic("numbers", widen={"n": pa.int64()})
        with ns.begin() as txn:
            txn.produce("numbers", [{"n": n} for n in (5, 6, 7)])
        sent.extend([1, 5, 6, 7])
        ns.close()

    proposing.start(work)
    world.run(30_000)
    assert sent
    assert read_all(world, "numbers").column("n").to_pylist() == sent


@pytest.mark.parametrize("place", range(4))
def test_numbers_of_a_spark_job_are_given_to_nobody_else(world, workers, proposing, place):
    """LOSS, silent: rows that executors of Spark wrote are left out of their commit, which succeeds.

    A job reserves a block, "numbers that nobody else gets" (``spark_ext.write.write_jobs.reserve_job``), in the name of
    the handle. When the handle's own numbers run out it has a block proposed, and takes over every open block of its
    writer (``Proposer.add_numbers``): that of the job as well. Its next segment has the number of a task's file, and
    the commit of the job takes that file for one that an earlier flush brought into the log (``_living``). Where a
    transaction got the number first, the job's commit is refused instead.
    """
    committed: list[Any] = []
    numbers: list[int] = []

    def work(ns: Namespace) -> None:
        connection = connection_of(ns)
        block = connection.reserve_block(256)
        schema = pa.schema([("value", pa.int64())])
        topic = connection.follower.look(lambda state: next(t for t in state.topics.values() if t.name == "audit"))

        def commit(value: int) -> None:
            with ns.begin() as txn:
                txn.produce("audit", [{"value": value}])
            numbers.append(txn.id.number)

        while connection.appender.numbers.take(1) is not None:
            pass  # as after some hundreds of commits
        commit(1)
        workers.closing |= {"w0", "w1", "w2", "w3"}
        world.scheduler.sleep(3_000)
        commit(2)  # alone: with a segment of its own
        with ns.begin() as txn:
            buffer = RowBuffer(schema, "audit")
            buffer.append([{"value": 900}])
            rows = Piece(topic.id, 0, 1, buffer.size_bytes, buffer, buffer.fingerprint())
            number = block[place]  # of a task
            (file,) = build_owned(topic, [rows], txn.id.number, lambda: number, lambda: "e" * 32)
            connection.store.put(file.key, file.data)
            adopt_segments(txn, [file.action])
        committed.append(txn)
        ns.close()

    proposing.start(work)
    world.run(60_000)
    assert committed
    rows = read_all(world, "audit").column("value").to_pylist()
    assert rows.count(900) == 1, f"committed, and not there: {committed[0]}"


# --- waiting ----------------------------------------------------------------------------------------------------------


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
    assert min(gained.values()) > 0, "in six seconds"


def test_who_commits_alone_again_is_as_fast_as_alone(world, workers):
    """STALL: one writer that is alone again, since the others only rest, stays at half of its speed for ever.

    Two processes commit for a moment at the same time, as jobs do that begin together; then one of them, which
    collects, has nothing to commit any more and keeps its handle open. It goes on collecting, as the other one
    proposes, which never races again: each commit takes a cycle of 3.5 round trips and more, where two would do.
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
    assert count >= 0.8 * 10_000 / (2 * TRIP_MS), "two round trips a commit"


@pytest.mark.parametrize(
    "other", ["acknowledges what it receives", "leases and acknowledges", "seeks every three seconds"]
)
def test_a_producer_next_to_a_consumer_is_as_fast_as_before(world, workers, other):
    """STALL: one producer and one consumer, and the producer makes less than half of its commits.

    Acknowledgements, leases and seeks race, and are never proposed. The consumer loses a race against the producer,
    wins one, and collects from then on, for the producer alone: each commit takes a cycle of somebody else instead of
    two round trips of its own. Without group commit the producer makes 112, 90 and 119 commits in ten seconds here; now
    46, 42 and 53. One lost race a second is enough; "who commits alone pays nothing" (CHANGELOG.md).
    """

    def consume(ns: Namespace) -> None:
        if other.startswith("leases"):
            ns.create_subscription("audit", "mine", type="shared")
        consumer = ns.consumer("audit", "mine")
        while world.now_ms < 18_000:
            if other.startswith("seeks"):
                consumer.seek({0: int(world.now_ms) % 2})
                world.scheduler.sleep(3_000)
            elif len(found := consumer.receive(max_messages=100, timeout_ms=500)):
                consumer.acknowledge(found)

    workers.start("producer")
    world.run(1_500)
    world.start("consumer", consume)
    world.run(8_000)
    since_ms = world.now_ms
    world.run(since_ms + 10_000)
    assert workers.gained(since_ms)["producer"] >= (80 if not other.startswith("leases") else 50)


def test_a_producer_that_rests_next_to_a_consumer_begins_to_collect_less_and_less_often(world, workers):
    """COST: one producer that rests between commits, and one consumer that acknowledges each: 166 times in six seconds.

    A lost race made it collect, six cycles without commits of its own ended that, and the next race began it again: two
    puts, and a listing a cycle, between any two commits.
    """

    def produce(ns: Namespace) -> None:
        while world.now_ms < 60_000:
            with ns.begin() as txn:
                txn.produce("audit", [{"value": 1}])
            world.scheduler.sleep(500 + int(world.now_ms) % 50)

    def consume(ns: Namespace) -> None:
        consumer = ns.consumer("audit", "mine")
        while world.now_ms < 60_000:
            if len(found := consumer.receive(max_messages=100, timeout_ms=500)):
                consumer.acknowledge(found)

    world.start("producer", produce)
    world.start("consumer", consume)
    world.run(60_000)
    assert asked_about_proposals(world) < 250


@pytest.mark.parametrize("seed", [3, 11, 14])
def test_a_writer_that_lets_its_commits_gather_does_not_slow_others_down(monkeypatch, seed):
    """STALL: a writer with ``min_commit_interval_ms`` that collects makes everybody wait for its interval.

    The interval is for its own commits, "for fewer requests". Once it collects, each of its cycles waits that long,
    before it looks into any mailbox. Others race after ten round trips, and believe in it again as soon as it shows
    life, so nobody takes its place: all of them make one commit a second: fewer than
    without group commit (1.3), where five are usual with another collector.
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
    original = vars(far_store)["open_namespace"]

    def opening(*arguments, **options):
        name = options["store"]._actor.name
        if name in intervals:
            options["min_commit_interval_ms"] = intervals[name]
            opened.append(name)
        return original(*arguments, **options)

    monkeypatch.setattr(far_store, "open_namespace", opening)
    return opened


def test_who_collected_last_week_keeps_nobody_waiting(world, workers):
    """HANG: two processes, a name that is left of a process that was killed, and one of the two commits nothing.

    ``collector.json`` names somebody who was killed last week. One process commits steadily, alone. Another one loses
    two races against it, finds the name, takes it for alive as it has just heard of it, proposes, and waits: each entry
    of the first one puts off its patience, and no entry is one of who collects. The first one loses no race, so that it
    neither looks nor collects. This goes on until the first one pauses for ten round trips.
    """
    world.objects.put(f"{NAMESPACE}/{keys.COLLECTOR_KEY}", b'{"writer":"%s"}' % (b"d" * 32))
    workers.start("steady")
    world.run(4_000)
    workers.start("late")
    world.run(20_000)
    gained = workers.gained(8_000)
    assert gained["steady"] >= 60
    assert gained["late"] >= 5, "in twelve seconds, with a deadline of a minute"


@pytest.mark.parametrize("how", ["it rested", "its process was paused"])
def test_whoever_is_behind_reads_on_at_once(world, workers, how):
    """STALL: a commit takes a third as long as its client had not looked at the log: 35 s after two minutes.

    A client rests while others commit, or its process stands still, or has just opened the namespace. At its next
    commit it loses two races, proposes, and then reads what it does not know yet entry by entry, each in a round trip
    of its own, or even in the rhythm in which they were written (it comes nearer by 2 ms with each then). So its
    commit is in the log at once and is heard of half a minute later, or an hour, past any deadline; and the next one is
    still late. Whoever races reads ahead, 2, 4, 8, 16 entries at a time.
    """
    took: list[float] = []

    def late(ns: Namespace) -> None:
        for number in range(4):
            if number == 1:
                if how == "it rested":
                    world.scheduler.sleep(30_000)
                else:
                    world.actors["late"].pause(30_000)
                    world.scheduler.sleep(1)
            began_ms = world.now_ms
            with ns.begin(timeout_ms=10_000) as txn:
                txn.produce("audit", [{"value": number}])
            took.append(world.now_ms - began_ms)
        ns.close()

    workers.start("w0", "w1", "w2", "w3")
    world.run(2_000)
    world.start("late", late)
    world.run(100_000 if how == "it rested" else 60_000)
    assert len(took) == 4
    assert max(took) < 5_000, f"{took}: without group commit 2.5 s at most"


def test_a_handle_that_nobody_has_any_more_does_not_work_for_others(world):
    """LEAK: a handle that was forgotten works for others as long as these commit, and cannot be stopped any more.

    A function of a server opens the namespace, commits for a while, and returns without ``close()``. Nobody has the
    handle any more, and without group commit the garbage collector takes it. One that collects is kept by its loop: it
    makes the segments and entries of all other processes, with the threads and the memory of this one, for ever.
    """
    workers = Workers(world)
    forgotten: dict[str, weakref.ref[Any]] = {}

    def forget(ns: Namespace, name: str) -> None:
        forgotten[name] = weakref.ref(ns)
        while name not in workers.resting:
            with ns.begin() as txn:
                txn.produce("audit", [{"value": 1}])

    for name in ("w0", "w1", "w2", "w3"):
        world.start(name, lambda ns, name=name: forget(ns, name))
    world.run(4_000)
    name = workers.collector()
    workers.resting.add(name)
    world.run(world.now_ms + 2_000)
    gc.collect()
    assert forgotten[name]() is None, "nobody has it"
    count = len(entries(world))
    world.run(world.now_ms + 4_000)
    late = [entry.header.writer for entry in entries(world)[count + 5 :]]
    assert late.count(writer_of(world, name) or "") == 0, f"of {len(late)} entries"
