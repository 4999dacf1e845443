"""Attacks on group commit between processes. Each failing test is a finding; its docstring names the kind."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable, Iterator
from decimal import Decimal
from functools import partial
from typing import Any

import msgspec
import pyarrow as pa
import pytest
import xxhash

from tests.sim.test_proposals import TRIP_MS, Committed, _known_writers, _writer_of, commits_of, entries, mailbox
from txnlog.api.internals import adopt_segments, connection_of
from txnlog.api.namespace import Namespace
from txnlog.common.limits import MAX_PROPOSAL_BYTES
from txnlog.data.row_buffer import RowBuffer
from txnlog.data.wire_rows import WireRows
from txnlog.errors import OutcomeUnknown, StoreError, TxnLogError
from txnlog.format import keys
from txnlog.format.actions import Abort, Commit, Reserve, Segment, SliceRows, Topic
from txnlog.log.collector import Collector
from txnlog.log.commands import Piece
from txnlog.log.proposal_codec import ProposedNumbers
from txnlog.log.segment_builder import build_owned
from txnlog.store.base import Created
from txnlog.testing import far_store
from txnlog.testing.far_store import FarWorld
from txnlog.testing.world import NAMESPACE

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
    assert workers.gained(since_ms)["producer"] >= (80 if not other.startswith("leases") else 70)


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
    assert late.count(_writer_of(world, name) or "") == 0, f"of {len(late)} entries"


# --- hostile mailboxes ------------------------------------------------------------------------------------------------

STRANGER = "a" * 32
"""A writer that somebody made up who may write below ``_proposals/``."""


def put_mailbox(world: FarWorld, writer: str, number: int | None, *commands: Any, rows: Any = None) -> None:
    head = entries(world)[-1].header
    made = {"format": 1, "writer": writer, "number": number, "version": head.version, "time_ms": head.timestamp_ms}
    content = msgspec.msgpack.encode({**made, "commands": commands, "rows": rows or {}})
    world.objects.put(mailbox(world, writer), xxhash.xxh3_128_digest(content) + content)


def strangers_block(world: FarWorld) -> int:
    """The first number of a block that the stranger has somebody reserve."""
    put_mailbox(world, STRANGER, None, ProposedNumbers(256))
    while True:
        world.run(world.now_ms + 100)
        for entry in entries(world):
            for action in entry.actions:
                if isinstance(action, Reserve) and action.writer == STRANGER:
                    return action.first


def with_segments(txn: int, *segments: Segment) -> dict[str, Any]:
    """A commit with segments of its own, which no proposal may have."""
    return {"command": "commit", "txn": txn, "digest": "0" * 32, "segments": segments}


def without_rows(topic: int, txn: int) -> dict[str, Any]:
    return {"command": "commit", "txn": txn, "digest": "0" * 32, "pieces": [[topic, 0, 0, 0]]}


def hostile(topic: int, first: int, name: str) -> tuple[list[Any], Any]:
    """What a stranger proposes: commands, and rows."""
    match name:
        case "a segment that nobody claims":
            segment = Segment(first + 2, topic, f"{7:032x}.parquet", 3, 99, "crc32:00000000", (SliceRows(0, 3),))
            return [with_segments(first + 1, segment)], None
        case "a piece without rows":
            return [without_rows(topic, first + 1)], {topic: [topic, WireRows(0, (None, b""))]}
        case "a piece without rows, twice":
            commands = [without_rows(topic, first + number) for number in (1, 2)]
            return commands, {topic: [topic, WireRows(0, (None, b""))]}
        case _:
            raise AssertionError(name)


HOSTILE = ["a segment that nobody claims", "a piece without rows", "a piece without rows, twice"]


@pytest.mark.clause("P-247", "P-249")
@pytest.mark.parametrize("name", HOSTILE)
def test_nobodys_call_fails_for_what_a_stranger_proposes(world, workers, name):
    """LIE: calls of who collects fail, and name what somebody else proposed.

    What is wrong with a proposal is found where the whole entry is made, not where one command is decided, and so it is
    the error of everybody in it: ``InvalidInputError`` for a commit in which nothing is wrong.
    """
    workers.start("w0", "w1", "w2", "w3")
    world.run(3_000)
    first = strangers_block(world)
    topics = {a.name: e.header.version for e in entries(world) for a in e.actions if isinstance(a, Topic)}
    commands, rows = hostile(topics["orders"], first, name)
    put_mailbox(world, STRANGER, first, *commands, rows=rows)
    world.run(world.now_ms + 6_000)
    assert min(workers.gained(world.now_ms - 3_000).values()) > 0


@pytest.mark.clause("P-247", "P-44")
@pytest.mark.parametrize("what", ["its transaction", "its number"])
def test_segments_of_a_stranger_are_under_its_own_numbers_and_of_its_own_transaction(world, workers, what):
    """LEAK of rights: a stranger acts for somebody else, by the segments of a commit of its own.

    ``number`` and ``txn`` of a command have to be of the mailbox's writer; of ``segments`` neither the number nor the
    transaction is looked at. So rows get into the open transaction of a victim, which commits them; or a number of its
    block is used up, and its commit under that number is refused.
    """
    ids: list[int] = []
    ended: list[str] = []

    def victim(ns: Namespace) -> None:
        txn = ns.begin(timeout_ms=60_000)
        txn.produce("audit", [{"value": 77}])
        if what == "its transaction":
            txn.flush()
        ids.append(txn.id.number)
        while not ended:
            world.scheduler.sleep(100)
        txn.commit()

    workers.start("w0", "w1", "w2", "w3")
    world.start("victim", victim)
    world.run(3_000)
    first = strangers_block(world)
    topics = {a.name: e.header.version for e in entries(world) for a in e.actions if isinstance(a, Topic)}
    number, txn = (first + 2, ids[0]) if what == "its transaction" else (ids[0], first + 1)
    segment = Segment(number, topics["audit"], f"{7:032x}.parquet", 3, 99, "crc32:00000000", (SliceRows(0, 3),), txn)
    put_mailbox(world, STRANGER, first, with_segments(first + 1, segment))
    world.run(world.now_ms + 2_000)
    found = [a for e in entries(world) for a in e.actions if isinstance(a, Segment) and a.segment == number]
    ended.append("now")
    workers.closing |= {"w0", "w1", "w2", "w3"}
    world.run(world.now_ms + 4_000)
    assert not found


@pytest.mark.clause("P-247", "P-249")
def test_a_file_that_is_not_there_is_not_named_for_a_stranger(world, workers):
    """LOSS: a topic that nobody can read any more, by somebody who may write below ``_proposals/`` and nowhere else.

    Who may write there may have *rows* written to any topic. But a proposed commit may name segments, "whose files are
    on the store", and nobody looks: the log names a file for ever that there never was.
    """
    workers.start("w0", "w1", "w2", "w3")
    world.run(3_000)
    first = strangers_block(world)
    topics = {a.name: e.header.version for e in entries(world) for a in e.actions if isinstance(a, Topic)}
    file, checksum = f"{7:032x}.parquet", "crc32:00000000"
    segment = Segment(first + 2, topics["audit"], file, 3, 99, checksum, (SliceRows(0, 3),), first + 1)
    put_mailbox(world, STRANGER, first, with_segments(first + 1, segment))
    world.run(world.now_ms + 2_000)
    workers.closing |= {"w0", "w1", "w2", "w3"}
    assert read_all(world, "audit").num_rows >= sum(map(len, workers.done.values()))


@pytest.mark.parametrize("what", ["half of a transaction is committed", "a prepared one is aborted"])
def test_who_may_write_mailboxes_ends_no_transactions_of_others(world, workers, what):
    """TEAR, and rights: who may write below ``_proposals/`` decides about transactions of others.

    What is said of that right is that rows may be written to any topic (PROTOCOL.md 14, docs/operations/access.md). But
    a mailbox is anybody's who writes it under the victim's key: an open transaction is committed with what it flushed
    so far, or a prepared one is aborted by force, where another system has committed.
    """
    ids: list[int] = []
    ended: list[int] = []

    def victim(ns: Namespace) -> None:
        txn = ns.begin(timeout_ms=60_000)
        txn.produce("audit", [{"value": 77}])
        if what.startswith("half"):
            txn.flush()
        else:
            txn.prepare()
        ids.append(txn.id.number)
        while not ended:
            world.scheduler.sleep(100)

    workers.start("w0", "w1", "w2", "w3")
    world.run(3_000)
    world.start("victim", victim)
    world.run(9_000)
    assert workers.collector() != "victim"
    writer = _writer_of(world, "victim") or ""
    blocks = [a for e in entries(world) for a in e.actions if isinstance(a, Reserve) and a.writer == writer]
    number = blocks[-1].first + blocks[-1].count - 1
    ending = {"command": "commit", "txn": ids[0], "digest": "0" * 32}
    aborting = {"command": "abort", "txn": ids[0], "force": True}
    put_mailbox(world, writer, number, ending if what.startswith("half") else aborting)
    world.run(world.now_ms + 2_000)
    ended.append(1)
    found = [a for e in entries(world) for a in e.actions if isinstance(a, Commit | Abort) and a.txn == ids[0]]
    assert not found


# --- what is said -----------------------------------------------------------------------------------------------------


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
            store = self.world.stores["p"]
            while store.calls["put proposal"] < 3:
                with ns.begin() as txn:
                    txn.produce("audit", [{"value": -1}])
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


def test_one_read_that_fails_is_no_unknown_outcome(world, workers, proposing):
    """LIE, mildly: a single read that fails makes the outcome of a commit unknown, which racing would have settled.

    Whoever races puts the same bytes again, for half a minute, whatever the store answers. Whoever proposed hears of
    the first 503 of a read: ``OutcomeUnknown``, for everything in the mailbox, though the log is there a moment later.
    """
    heard: list[BaseException] = []

    def work(ns: Namespace) -> None:
        for number in range(10):
            proposing.fails.append("get entry")
            try:
                with ns.begin() as txn:
                    txn.produce("audit", [{"value": number}])
            except TxnLogError as error:
                heard.append(error)

    proposing.start(work)
    world.run(world.now_ms + 10_000)
    assert proposing.failed >= 5
    assert heard == []


def test_rows_of_a_shared_segment_are_those_of_who_is_left(world, workers, proposing):
    """LIE: a commit in which nothing is wrong is refused with an error of the format, and cannot be tried again.

    A commit has an unknown outcome (its proposal is out), and its caller commits again, next to another commit. While
    the segment for both is made, which takes a while where it is big, any other thread looks at the log, which shows
    the first one by now. So that has its answer, and is taken for never having had rows in the segment, which has them.
    """
    done: list[Any] = []

    def work(ns: Namespace) -> None:
        shared = ns._connection.appender._shared
        build = shared.build

        def slowly(*arguments: Any) -> Any:
            made = build(*arguments)
            if slow:
                world.scheduler.sleep(400)
            return made

        slow: list[int] = []
        setattr(shared, "build", slowly)  # noqa: B010 - a method
        first, second = ns.begin(), ns.begin()
        first.produce("audit", [{"value": number} for number in range(3_000)])
        second.produce("audit", [{"value": number} for number in range(3_000)])
        proposing.fails.append("get entry")
        try:
            first.commit()
        except OutcomeUnknown as error:
            done.append(error)
        slow.append(1)
        actor = world.actors["p"]

        def look() -> None:
            while len(done) < 3:
                ns.snapshot()
                world.scheduler.sleep(10)

        def commit(txn: Any) -> None:
            try:
                done.append(txn.commit())
            except TxnLogError as error:
                done.append(error)

        actor.start(lambda: commit(first), "first")
        actor.start(lambda: commit(second), "second")
        actor.start(look, "look")
        while len(done) < 3:
            world.scheduler.sleep(10)

    proposing.start(work)
    world.run(world.now_ms + 10_000)
    assert isinstance(done[0], OutcomeUnknown)
    assert [type(item).__name__ for item in done[1:]] == ["Committed", "Committed"]


def test_messages_of_a_commit_that_never_comes_true_are_delivered_again(world, workers, proposing):
    """STALL: messages whose acknowledgement was proposed are never delivered again, by the handle that proposed it.

    Deadlines end what nobody ended (docs/python.md): after a commit of unknown outcome that did not happen, a consumer
    gets its messages again behind the deadline. One that was sent is settled by the next entry of anybody. One that was
    proposed counts as on its way until this handle appends something, which one that only receives never does.
    """
    got: list[Any] = []

    def work(ns: Namespace) -> None:
        ns.create_subscription("audit", "mine")
        consumer = ns.consumer("audit", "mine")
        while not (first := consumer.receive(max_messages=1, timeout_ms=100)):
            pass
        world.objects.delete(mailbox(world, _writer_of(world, "p") or ""))
        proposing.fails.append("get entry")
        own, put = mailbox(world, _writer_of(world, "p") or ""), world.objects.put
        world.objects.put = lambda key, data: (
            None if key == own else put(key, data)
        )  # as if a vacuum deletes it at once
        txn = ns.begin(timeout_ms=3_000)
        txn.acknowledge(first)
        try:
            txn.commit()
        except OutcomeUnknown as error:
            got.append(error)
        world.objects.put = put
        del txn
        for _ in range(15):
            world.scheduler.sleep(1_000)
            again = consumer.receive(max_messages=1, timeout_ms=100)
            got.extend(again.positions)

    proposing.start(work)
    world.run(world.now_ms + 60_000)
    assert isinstance(got[0], OutcomeUnknown)
    assert ("audit", 0, 0) in got, "twelve seconds behind the deadline"


@pytest.mark.clause("P-249")
def test_who_cannot_read_mailboxes_commits_all_the_same(world, workers):
    """HANG: a process that collects commits nothing any more, where reading a mailbox raises what no store should.

    "A bug, too, must reach every caller: else they wait for ever" (``Appender._append_next``). But the mailboxes are
    looked into before that begins: ``MemoryError`` for four megabytes, or a bug of a store that somebody wrote, ends
    the loop, which begins again, and ends again. Nobody hears anything, and the process asks the store without end.
    """
    workers.start("w0", "w1", "w2", "w3")
    world.run(4_000)
    name = workers.collector()
    store = world.stores[name]
    ask = store._ask

    def asked(what: str, key: str, *arguments: Any) -> Any:
        found = ask(what, key, *arguments)
        if what == "get_range" and key.endswith(".msgpack"):
            raise MemoryError
        return found

    store._ask = asked
    world.run(14_000)
    gained = workers.gained(6_000)
    assert min(gained.values()) > 0, f"{name} waits for ever: {gained}"


@pytest.mark.clause("P-249")
def test_a_topic_that_cannot_be_written_fails_nobody_who_does_not_write_to_it(world):
    """LIE: commits to one topic fail for a file of another topic, which somebody else has rows for.

    A store refuses files of one prefix for a while (S3: "503 SlowDown", by prefix; a full volume), and who collects
    writes to another one. Only where the right is missing it goes on without the rows of others; of any other failure
    its own callers hear, though nothing of theirs failed.
    """
    heard: list[TxnLogError] = []
    done: list[str] = []

    def work(topic: str, ns: Namespace) -> None:
        while world.now_ms < 12_000:
            try:
                with ns.begin() as txn:
                    txn.produce(topic, [{"value": 1}])
                done.append(topic)
            except TxnLogError as error:
                if topic == "audit":
                    heard.append(error)
                world.scheduler.sleep(50)
        ns.close()

    for number in range(4):
        world.start(f"a{number}", partial(work, "audit"))
        world.start(f"o{number}", partial(work, "orders"))
    world.run(4_000)
    for store in world.stores.values():
        ask = store._ask

        def asked(what: str, key: str, *arguments: Any, ask: Any = ask, travel: Any = store._travel) -> Any:
            if what == "put" and key.startswith(f"{NAMESPACE}/orders/"):
                travel()
                raise StoreError(f"503 SlowDown for {key}")
            return ask(what, key, *arguments)

        setattr(store, "_ask", asked)  # noqa: B010 - a method
    world.run(20_000)
    assert done.count("audit") > 50
    assert not heard, f"{len(heard)} commits to the other topic failed: {heard[0]}"


# --- late -------------------------------------------------------------------------------------------------------------


def test_a_transaction_is_not_committed_an_hour_after_its_deadline(world, workers, proposing):
    """DOUBLE, by delay: the commit of a process that was killed comes true an hour later, or next week.

    "A transaction is aborted if it is not committed within 60 seconds of its first call" (docs/tour.md). A process is
    killed while its proposal is out, and so is who collects, as when a machine goes down. Its people see nothing of the
    work in the topic long after the deadline, and do it again. The mailbox stays; whoever happens to collect next takes
    ``left_ms`` for time that is left from then on. (An entry that was sent dies with its process, or within minutes.)
    """

    def work(ns: Namespace) -> None:
        world.scheduler.after(0.0, watch)
        while True:
            begun.append(77_777 + len(begun))
            with ns.begin(timeout_ms=5_000) as txn:
                txn.produce("audit", [{"value": begun[-1]}])

    def watch() -> None:
        key = mailbox(world, _writer_of(world, "p") or "")
        before.setdefault("data", world.objects.get(key))
        if world.objects.get(key) == before["data"]:
            world.scheduler.after(0.5, watch)
            return
        for actor in list(world.actors.values()):
            world.scheduler.crash(actor)

    before: dict[str, bytes] = {}
    begun: list[int] = []
    proposing.start(work)
    world.run(world.now_ms + 20_000)
    assert not any(actor.alive for actor in world.actors.values())
    world.scheduler.after(3_600_000, lambda: None)
    world.scheduler.run()
    again = read_all(world, "audit").column("value").to_pylist()
    assert begun[-1] not in again, "it was not committed when its machine went down"
    workers.start("x0", "x1", "x2", "x3")
    world.run(world.now_ms + 12_000)
    workers.closing |= {"x0", "x1", "x2", "x3"}
    world.run(world.now_ms + 4_000)
    assert begun[-1] not in read_all(world, "audit").column("value").to_pylist(), "an hour behind its deadline"


# --- what it costs ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("left", [300, 1_100])
def test_mailboxes_that_killed_processes_left_cost_little(world, workers, left):
    """STALL, COST: mailboxes of processes that are gone make group commit slower than none.

    A process that is killed, or just ends without ``close()``, leaves its mailbox until a vacuum, which some run once a
    week. Each listing shows the left ones as new ones, again and again: they push those of the living out of the 256
    that are looked into, and 256 requests have to go through 16 threads before each entry. More than a thousand of them
    fill the listing. Without group commit 16 writers make 14 commits a second.
    """
    for number in range(left):
        world.objects.put(mailbox(world, f"{number:032x}"), b"what is left")
    workers.start(*[f"w{number}" for number in range(16)])
    world.run(6_000)
    since_ms, before = world.now_ms, sum(store.calls.total() for store in world.stores.values())
    world.run(since_ms + 6_000)
    gained = workers.gained(since_ms)
    requests = sum(store.calls.total() for store in world.stores.values()) - before
    assert sum(gained.values()) / 6 >= 50, f"commits a second: without left ones 99 ({gained})"
    assert requests / sum(gained.values()) <= 8, "requests a commit: without left ones 3.4"


def test_64_writers_commit_more_than_16_with_the_threads_that_there_are(world, workers):
    """COST: who collects for 64 writers needs 65 requests at a time, and a client makes 16. (16 writers: 98/s.)"""
    workers.start(*[f"w{number}" for number in range(64)])
    world.run(12_000)
    since_ms = world.now_ms
    world.run(since_ms + 3_000)
    assert sum(workers.gained(since_ms).values()) / 3 >= 110


def test_who_collects_reads_no_more_than_it_takes(world, workers, monkeypatch):
    """COST: 256 big mailboxes are a gigabyte in memory, and on the network, before each entry.

    Of what was read only 16 MiB are looked at in a cycle (``_CYCLE_BYTES``: "they are in memory"), but all of them are
    read at once before that. They may be hostile, or be left by processes that were killed after big commits.
    """
    read: list[int] = []
    members = Collector._members

    def measured(self: Collector, found: Any) -> Any:
        read.append(sum(len(data) for data in found.values() if data))
        return members(self, found)

    monkeypatch.setattr(Collector, "_members", measured)
    big = bytes(MAX_PROPOSAL_BYTES)
    for number in range(250):
        world.objects.put(mailbox(world, f"{number:032x}"), big)
    workers.start("w0", "w1", "w2", "w3")
    world.run(5_000)
    assert max(read) <= 4 * (16 << 20)


# --- what held --------------------------------------------------------------------------------------------------------


@pytest.mark.clause("P-248")
@pytest.mark.parametrize("seed", [1, 2])
def test_commits_in_the_background_keep_their_order_whoever_brings_them(seed):
    """Held: ORDER, DOUBLE, LOSS of commits in the background, with a collector that dies and vacuums meanwhile."""
    world = FarWorld(seed=seed, trip_ms=TRIP_MS)
    submitted: dict[str, list[int]] = {}
    committed: dict[str, list[int]] = {}
    try:
        workers = Workers(world)

        def submit(ns: Namespace, name: str) -> None:
            first = 1_000_000 * (1 + int(name[1:]))
            mine, done = submitted.setdefault(name, []), committed.setdefault(name, [])
            for turn in range(8):
                futures = []
                for number in range(8):
                    value = first + 8 * turn + number
                    txn = ns.begin()
                    txn.produce("audit", [{"value": value}])
                    mine.append(value)
                    futures.append((value, txn.commit_async()))
                for value, future in futures:
                    while not future.done():
                        world.scheduler.sleep(5)
                    assert future.result().version > 0
                    done.append(value)
            ns.close()

        def submit_as(name: str, ns: Namespace) -> None:
            submit(ns, name)

        for name in ("x0", "x1", "x2", "x3"):
            world.start(name, partial(submit_as, name))
        world.run(3_500)
        dead = workers.collector()
        world.scheduler.crash(world.actors[dead])

        def vacuum(ns: Namespace) -> None:
            ns.vacuum()
            ns.close()

        world.start("admin", vacuum)
        world.run(60_000)
        rows = read_all(world, "audit").column("value").to_pylist()
    finally:
        world.close()
    for name, values in submitted.items():
        found = [value for value in rows if value in set(values)]
        assert found == sorted(found), "in order"
        assert len(found) == len(set(found)), "once"
        assert set(committed[name]) <= set(found), "all that was answered"
        assert name == dead or len(found) == 64
