"""Attacks on what writers propose to each other: answers, deadlines and costs. Each names its kind."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest

from tests.sim.crowds import (
    TRIP_MS,
    Workers,
    _known_writers,
    commits,
    mailbox,
    proposing,
    read_all,
    workers,
    world,
    writer_of,
)
from txnlog.api.namespace import Namespace
from txnlog.common.format_limits import MAX_PROPOSAL_BYTES
from txnlog.errors import OutcomeUnknown, StoreError, TxnLogError
from txnlog.log.proposals.collector import Collector
from txnlog.testing.far_store import FarWorld
from txnlog.testing.world import NAMESPACE

__all__ = ["_known_writers", "commits", "proposing", "workers", "world"]

pytestmark = pytest.mark.some(one_in=3)


NO_ANSWER = ["get entry", *["create entry"] * 12]
"""The proposal is not waited for, and the race that follows has no answer either: it may come true yet."""

# --- what is said -----------------------------------------------------------------------------------------------------


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
        proposing.fails += NO_ANSWER
        try:
            first.commit()
        except OutcomeUnknown as error:
            done.append(error)
        proposing.fails.clear()
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
    assert [type(item).__name__ for item in done[1:]] == ["Committed", "Committed"], done


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
        world.objects.delete(mailbox(world, writer_of(world, "p") or ""))
        proposing.fails += NO_ANSWER
        own, put = mailbox(world, writer_of(world, "p") or ""), world.objects.put
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
        key = mailbox(world, writer_of(world, "p") or "")
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


@pytest.mark.parametrize("left", [300, pytest.param(1_100, marks=pytest.mark.long)])
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


@pytest.mark.long
def test_64_writers_commit_more_than_16_with_the_threads_that_there_are(world, workers):
    """COST: who collects for 64 writers needs 65 requests at a time, and a client makes 16. (16 writers: 98/s.)

    And a TRAP: who waited for one that ended proposes to the next one, without having won a race before. From a
    beginning in which all 64 race at once it takes them ten to twenty seconds until one collects.
    """
    workers.start(*[f"w{number}" for number in range(64)])
    world.run(30_000)
    since_ms = world.now_ms
    world.run(since_ms + 3_000)
    assert sum(workers.gained(since_ms).values()) / 3 >= 162, "what 32 reach"


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
