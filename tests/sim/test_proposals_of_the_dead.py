"""What is proposed, or was, and what else its handle does: dead letters, leases; a name or mailboxes of the dead."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from tests.sim.crowds import TRIP_MS, _known_writers, proposing, read_all, workers, world
from txnlog.api.namespace import Namespace
from txnlog.errors import OutcomeUnknown
from txnlog.format import keys
from txnlog.log.proposals.collector import Collector
from txnlog.testing.world import NAMESPACE

__all__ = ["_known_writers", "proposing", "workers", "world"]

ALONE = 10_000 / (2 * TRIP_MS)
"""Commits of one writer alone in ten seconds: two round trips each."""


def test_what_its_holder_received_again_is_no_dead_letter(world, workers, proposing):
    """Whoever moves messages looks whether they are still worn out when its entry is made: only it can look."""
    flags: set[str] = set()
    received: list[int] = []

    def found(ns: Namespace) -> None:
        ns.create_topic("jobs", pa.schema([("n", pa.int64())]))
        settings: dict[str, Any] = {"lease_ms": 2_000, "max_redeliveries": 0, "dead_letter_topic": "dead"}
        ns.create_subscription("jobs", "mine", type="shared", **settings)
        with ns.begin() as txn:
            txn.produce("jobs", pa.table({"n": list(range(600))}))
        ns.close()

    world.start("founder", found)
    world.run(world.now_ms + 4_000)

    def hold(ns: Namespace) -> None:
        """Takes batches of a hundred, so that the next one is leased ahead; then it works for longer than a lease."""
        consumer = ns.consumer("jobs", "mine")
        for _ in range(3):
            consumer.acknowledge(consumer.receive(max_messages=100, timeout_ms=5_000))
        flags.add("works")
        while "found" not in flags:
            world.scheduler.sleep(1)
        batch = consumer.receive(max_messages=100, timeout_ms=1_000)  # renews its leases, and counts nothing
        received.extend(batch.table.column("n").to_pylist())
        world.scheduler.sleep(1_000)  # half of the lease
        consumer.acknowledge(batch)
        flags.add("acknowledged")

    def find(ns: Namespace) -> None:
        """Another consumer: to it those leases are over, and their messages worn out."""
        store, late = world.stores["p"], {"put segment": "p", "put proposal": workers.collector()}
        while "works" not in flags:
            world.scheduler.sleep(10)
        consumer = ns.consumer("jobs", "mine")
        world.scheduler.sleep(2_500)
        ask = store._ask

        def asked(called: str, key: str, *arguments: Any) -> Any:
            before = sum(store.calls[name] for name in late)
            result = ask(called, key, *arguments)
            if sum(store.calls[name] for name in late) > before and "found" not in flags:
                flags.add("found")
                moving = "put proposal" if key.startswith(f"{NAMESPACE}/{keys.PROPOSAL_FOLDER}") else "put segment"
                world.actors[late[moving]].pause(250)  # whoever makes the next entry is a little late
            return result

        setattr(store, "_ask", asked)  # noqa: B010 - a method
        consumer.receive(max_messages=1, timeout_ms=500)
        world.scheduler.sleep(2_000)

    world.start("holder", hold)
    proposing.start(find)
    world.run(world.now_ms + 14_000)
    assert flags == {"works", "found", "acknowledged"}
    assert len(received) == 100
    assert not set(read_all(world, "dead").column("n").to_pylist()) & set(received)


def start_receiving(world, workers, proposing, heard: list[Any], *, fails: bool, **settings: Any) -> None:
    def work(ns: Namespace) -> None:
        ns.create_topic("jobs", pa.schema([("n", pa.int64())]))
        ns.create_subscription("jobs", "mine", type="shared", lease_ms=10_000, **settings)
        with ns.begin() as txn:
            txn.produce("jobs", [{"n": 1}, {"n": 2}])
        consumer = ns.consumer("jobs", "mine")
        txn = ns.begin()
        txn.produce("audit", [{"value": 77}])
        for name in ("w0", "w1", "w2", "w3"):  # all others end, who collects among them
            world.scheduler.crash(world.actors[name])
        if fails:
            proposing.fails.append("put segment")
        try:
            txn.commit()
            assert not fails
        except OutcomeUnknown:
            assert fails
        assert proposing.fails == []
        began_ms = world.now_ms
        for _ in range(5):
            found = consumer.receive(max_messages=100, timeout_ms=3_000)
            heard.extend((n, world.now_ms - began_ms) for n in found.table.column("n").to_pylist())
        ns.close()

    proposing.start(work)
    world.run(world.now_ms + 60_000)


@pytest.mark.parametrize("fails", [False, True])
def test_messages_that_the_log_leased_to_a_consumer_are_received(world, workers, proposing, fails):
    heard: list[Any] = []
    start_receiving(world, workers, proposing, heard, fails=fails)
    assert [n for n, after_ms in heard if after_ms < 3_000] == [1, 2], heard


@pytest.mark.parametrize("fails", [False, True])
def test_no_message_is_a_dead_letter_before_anybody_received_it(world, workers, proposing, fails):
    heard: list[Any] = []
    settings = {"max_redeliveries": 0, "dead_letter_topic": "dead"}
    start_receiving(world, workers, proposing, heard, fails=fails, **settings)
    dead = set(read_all(world, "dead").column("n").to_pylist())
    assert dead <= {n for n, _ in heard}, f"dead letters {dead}, and all that was ever received is {heard}"


def test_who_is_left_by_a_collector_that_was_killed_is_as_fast_as_alone(world, workers):
    """Two processes commit; the one that collects is killed; the other one goes on, a quarter of a minute later too."""
    workers.start("w0", "w1")
    world.run(5_000)
    name = workers.collector()
    (left,) = {"w0", "w1"} - {name}
    world.scheduler.crash(world.actors[name])
    world.run(20_000)
    count = workers.gained(10_000)[left]
    assert count >= 0.8 * ALONE, f"{count} commits in ten seconds, where {ALONE:.0f} are usual"


def test_who_commits_alone_next_to_an_old_name_is_as_fast_as_alone(world, workers):
    """A process alone, on the next day: its first 128 commits are as fast as usual, and no other one."""
    world.objects.put(f"{NAMESPACE}/{keys.COLLECTOR_KEY}", b'{"writer":"%s"}' % (b"d" * 32))
    workers.start("alone")
    world.run(25_000)
    count = workers.gained(15_000)["alone"]
    assert count >= 0.8 * ALONE, f"{count} commits in ten seconds, where {ALONE:.0f} are usual"


def test_without_such_a_name_it_is_as_fast_as_alone(world, workers):
    """The same without the object: this passes."""
    workers.start("alone")
    world.run(25_000)
    assert workers.gained(15_000)["alone"] >= 0.8 * ALONE


def test_mailboxes_of_the_dead_cost_no_more_than_a_look_each(world, workers, monkeypatch):
    looks, cycles = [0], [0]
    put_ms, wanted = Collector._put_ms, Collector._wanted

    def counted_put_ms(collector: Collector, writer: str) -> int:
        looks[0] += 1
        return put_ms(collector, writer)

    def counted_wanted(collector: Collector) -> list[str]:
        cycles[0] += 1
        return wanted(collector)

    monkeypatch.setattr(Collector, "_put_ms", counted_put_ms)
    monkeypatch.setattr(Collector, "_wanted", counted_wanted)
    for number in range(1_000):
        world.objects.put(f"{NAMESPACE}/{keys.mailbox_key(f'{number * 7_919:032x}')}", b"left behind" * 50)
    workers.start("w0", "w1", "w2", "w3")
    world.run(4_000)
    assert cycles[0] >= 5, "somebody collects"
    assert looks[0] / cycles[0] < 3_000
