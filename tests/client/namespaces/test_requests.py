"""What operations cost in requests to the store, as long as nobody else writes."""

from __future__ import annotations

from typing import Any

import pytest

from tests.client.support import SCHEMA, Place, begun, committed, read, rows
from txnlog.common.format_limits import RECENT_BATCHES
from txnlog.errors import SchemaMismatch
from txnlog.store import CountingStore


@pytest.fixture(params=[1, 64])
def counted(request: pytest.FixtureRequest, memory: Place) -> tuple[Any, CountingStore]:
    """A warm handle on topics of one or many partitions, whose requests are counted from here on."""
    ns, counting = memory.counted()
    for topic in ("orders", "audit"):
        ns.create_topic(topic, SCHEMA, partitions=request.param)
        ns.create_subscription(topic, "billing")
    ns.produce("orders", rows(0))
    ns.begin()
    counting.reset()
    return ns, counting


@pytest.mark.parametrize("count", [1, 5_000])
def test_a_commit_is_one_put_a_segment_and_one_for_the_entry(counted: Any, count: int) -> None:
    ns, counting = counted
    with ns.begin() as txn:
        txn.produce("orders", rows(*range(count)))
        txn.produce("audit", rows(1))
    assert counting.counts() == {("put", "segment"): 2, ("create", "entry"): 1}
    counting.reset()
    ns.produce("orders", rows(*range(count)))
    assert counting.counts() == {("put", "segment"): 1, ("create", "entry"): 1}


def test_a_commit_over_every_partition_is_one_put_a_topic(counted: Any) -> None:
    ns, counting = counted
    partitions = ns.topic("orders").partitions
    counting.reset()
    with ns.begin() as txn:
        for partition in range(partitions):
            txn.produce("orders", rows(partition), partition=partition)
    assert counting.counts() == {("put", "segment"): 1, ("create", "entry"): 1}
    counting.reset()
    with ns.begin() as txn:
        for partition in range(partitions):
            txn.produce("orders", rows(partition), partition=partition)
        txn.flush()
        assert counting.counts() == {("put", "segment"): 1, ("create", "entry"): 1}
    assert counting.counts() == {("put", "segment"): 1, ("create", "entry"): 2}


def test_acknowledging_is_an_entry_and_rides_with_a_commit_for_nothing(counted: Any) -> None:
    ns, counting = counted
    consumer = ns.consumer("orders", "billing")
    messages = consumer.receive(timeout_ms=0)
    counting.reset()
    with ns.begin() as txn:
        txn.acknowledge(messages)
        txn.produce("audit", rows(1))
    assert counting.counts() == {("put", "segment"): 1, ("create", "entry"): 1}
    ns.produce("orders", rows(2))
    messages = consumer.receive(timeout_ms=0)
    counting.reset()
    consumer.acknowledge(messages)
    assert counting.counts() == {("create", "entry"): 1}


def test_begin_abort_and_empty_transactions_cost_nothing(counted: Any) -> None:
    ns, counting = counted
    for _ in range(20):
        ns.begin().commit()
        txn = begun(ns, 1)
        txn.abort()
    assert counting.counts() == {}


def test_numbers_ride_along(counted: Any) -> None:
    """A reservation travels with an entry that is written anyway."""
    ns, counting = counted
    first = ns.begin().id.number
    for number in range(450):  # of two numbers each: more than three quarters of the first block
        committed(ns, number)
    assert ns.begin().id.number < first + 1_024 <= ns._connection.follower.state.head.next_number - 1_024
    looks = {("get_range", "proposal"): 3}  # whether somebody who loses every race asks for a place: 1 in 128 entries
    # Now and then the clock is compared with the store's: on a slow machine that may fall into these commits.
    counts = {call: count for call, count in counting.counts().items() if call[1] != "probe"}
    assert counts == {("put", "segment"): 450, ("create", "entry"): 450, **looks}


def test_a_look_at_the_log_is_one_get(counted: Any) -> None:
    ns, counting = counted
    ns.snapshot()
    assert counting.counts() == {("get", "entry"): 1}
    counting.reset()
    consumer = ns.consumer("orders", "billing")
    consumer.receive(timeout_ms=0)
    counting.reset()
    consumer.receive(timeout_ms=0)
    assert counting.counts() == {("get", "entry"): 1}


def test_a_repetition_of_a_named_producer_costs_one_look(counted: Any) -> None:
    """Nobody is told that rows are there without it: their topic may have been dropped."""
    ns, counting = counted
    producer = ns.producer("loader")
    for sequence in range(RECENT_BATCHES):
        producer.produce("orders", rows(sequence), partition=0, sequence=sequence)
    counting.reset()
    for sequence in range(RECENT_BATCHES):
        assert producer.produce("orders", rows(sequence), partition=0, sequence=sequence).duplicate
    assert counting.counts() == {("get", "entry"): RECENT_BATCHES}


def test_a_refusal_costs_one_look(counted: Any) -> None:
    ns, counting = counted
    with pytest.raises(Exception, match="exists"):
        ns.create_topic("orders", SCHEMA)
    assert counting.counts() == {("get", "entry"): 1}
    counting.reset()
    with pytest.raises(SchemaMismatch):
        ns.produce("orders", [{"amount": 1}])
    assert counting.counts() == {("get", "entry"): 1}


def test_rows_that_are_read_once_cost_a_look(counted: Any) -> None:
    ns, counting = counted
    ns.produce("orders", iter(rows(1)))
    assert counting.counts() == {("get", "entry"): 1, ("put", "segment"): 1, ("create", "entry"): 1}


def test_the_cost_does_not_grow_with_the_namespace(memory: Place) -> None:
    ns, counting = memory.counted()
    for number in range(30):
        ns.create_topic(f"topic-{number}", SCHEMA, partitions=8)
        ns.create_subscription(f"topic-{number}", "billing")
    open_ones = [ns.begin() for _ in range(20)]
    for number, txn in enumerate(open_ones):
        txn.produce(f"topic-{number}", rows(number))
        txn.flush()
    counting.reset()
    ns.produce("topic-0", rows(1))
    assert counting.counts() == {("put", "segment"): 1, ("create", "entry"): 1}


def test_a_handle_reports_what_it_sent(counted: Any) -> None:
    ns, _ = counted
    before = ns.store_requests
    ns.produce("orders", rows(1))
    assert {key: n - before.get(key, 0) for key, n in ns.store_requests.items() if n != before.get(key, 0)} == {
        ("put", "segment"): 1,
        ("create", "entry"): 1,
    }
    assert len(read(ns)) == 2
