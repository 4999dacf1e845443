"""What the open transactions of a client hold: its other calls hear of it at once, and for as long as it is so."""

from __future__ import annotations

import threading
from functools import partial
from types import SimpleNamespace
from typing import Any

import pytest

from tests.client.support import SCHEMA, Place, raises, received, rows, run_threads
from txnlog import holds
from txnlog.errors import TransactionConflict
from txnlog.producer import begin_transaction
from txnlog.testing import ManualClock

HOUR_MS = 3_600_000


@pytest.fixture
def flushed(ten: Any) -> tuple[Any, Any, Any]:
    """A consumer, its ten messages, and a transaction that acknowledged the first, flushed, and took the second."""
    consumer = ten.consumer("orders", "billing")
    messages = consumer.receive(timeout_ms=0)
    txn = ten.begin()
    txn.acknowledge(messages[0])
    txn.flush()
    txn.acknowledge(messages[1])
    return consumer, messages, txn


@pytest.mark.clause("P-80", "P-208")
@pytest.mark.parametrize("number", [0, 1], ids=["flushed", "after it"])
@pytest.mark.parametrize("who", ["itself", "another", "nobody"])
def test_what_comes_after_a_flush_is_held_as_well(
    ten: Any, flushed: tuple[Any, Any, Any], who: str, number: int
) -> None:
    consumer, messages, txn = flushed
    call = {"itself": txn.acknowledge, "another": ten.begin().acknowledge, "nobody": consumer.acknowledge}[who]
    with raises(
        TransactionConflict, match="this very transaction" if who == "itself" else "pending in the transaction 0"
    ):
        call(messages[number])


@pytest.mark.clause("P-81", "P-208", "P-215")
def test_a_cumulative_one_of_another_partition_than_was_flushed_meets_it(ns: Any) -> None:
    for partition in (0, 1):
        ns.produce("orders", rows(*range(10 * partition, 10 * partition + 3)), partition=partition)
    consumer = ns.consumer("orders", "billing")
    messages = consumer.receive(timeout_ms=0)
    first = ns.begin()
    first.acknowledge(messages[0])
    first.flush()
    first.acknowledge(messages[3])
    with raises(TransactionConflict, match="pending"):
        consumer.acknowledge(messages[5], cumulative=True)
    first.abort()
    assert received(consumer) == [0, 10]


@pytest.mark.clause("P-209")
@pytest.mark.parametrize("how", ["admin", "fenced"])
def test_an_end_that_a_checkpoint_took_out_of_memory_is_an_end(ten: Any, place: Place, how: str) -> None:
    consumer, producer = ten.consumer("orders", "billing"), ten.producer("loader")
    messages = consumer.receive(4, timeout_ms=0)
    txn = producer.begin()
    txn.acknowledge(messages)
    txn.flush()
    if how == "admin":
        place.open().abort(txn.id, by="ada", why="hanging")
    else:
        place.open().producer("loader")
    ten.connection.follower.refresh()
    ten.checkpoint()
    with ten.begin() as again:
        again.acknowledge(messages[0])
    assert received(consumer, 3) == [1, 2, 3]


@pytest.mark.clause("P-209")
def test_so_is_that_of_one_whose_time_counts_from_the_log(memory: Place, clock: ManualClock) -> None:
    """As that of Spark's transactions does: when it takes messages it has no deadline yet."""
    ns = memory.open(clock=clock)
    ns.create_topic("orders", SCHEMA)
    ns.produce("orders", rows(*range(10)))
    consumer = ns.consumer("orders", "billing")
    txn = begin_transaction(ns.connection, None, None, timed_from_log=True)
    txn.acknowledge(consumer.receive(4, timeout_ms=0))
    txn.flush()
    clock.advance(HOUR_MS)
    ns.produce("orders", rows(10))
    assert ns.transaction(txn.id).state == "ABORTED"
    ns.checkpoint()
    assert received(consumer, 4) == [0, 1, 2, 3]


def test_what_several_threads_would_give_back_is_given_back_once() -> None:
    """The end of a transaction, and a consumer that finds out about it: what came again meanwhile would come twice."""
    given: list[int] = []
    taken: Any = [
        SimpleNamespace(giving=threading.RLock(), give_back=partial(given.append, number)) for number in range(200)
    ]
    items = list(taken)

    def work() -> None:
        for item in items:
            holds.give_back(taken, item)

    assert run_threads(*[work] * 4) == [None] * 4
    assert sorted(given) == list(range(200))
    assert taken == []
