"""A close that does not come to its end, and is made again."""

from __future__ import annotations

import itertools
from functools import partial
from typing import Any

import pytest

from tests.client.interrupting_store import InterruptingStore
from tests.client.support import SCHEMA, Place, has_no_thread, ids, rows, take, wait_for
from tests.client.thread_limit import Limit
from tests.interrupts import hearing_interrupts
from txnlog.engine import worker
from txnlog.errors import InvalidTransactionState, RetriableError


def _two_flushed(producer: Any) -> list[Any]:
    txns = [producer.begin() for _ in range(2)]
    for txn in txns:
        txn.produce("orders", rows(1))
        txn.flush()
    return txns


def test_a_producer_whose_close_was_interrupted_is_closed_by_the_next_one(memory: Place) -> None:
    """LIE: Ctrl-C, or a handler that raises, at the end of ``with ns.producer(...)``, and ``close()`` again.

    The second close does nothing: transactions that the log shows stay open up to their deadline, hold what they
    acknowledged, and can even be committed, though "after its producer was closed: it was aborted".
    """
    for request in itertools.count(1):
        store = InterruptingStore(memory.store())
        ns = memory.orders(namespace=f"ns{request}", store=store)
        producer = ns.producer("loader")
        txns = _two_flushed(producer)
        with hearing_interrupts():
            going_on = store.interrupted(producer.close, request)
        producer.close()
        for txn in txns:
            with pytest.raises(InvalidTransactionState, match="aborted"):
                txn.commit()
        if not going_on:
            break
    assert request > 1, "requests"


def test_a_producer_whose_close_found_no_thread_is_closed_by_the_next_one(
    memory: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    """LIE: the same where the process may start no thread; the error says to make the same call again."""
    monkeypatch.setattr(worker, "_IDLE_MS", 20.0)
    ns = memory.orders()
    producer = ns.producer("loader")
    txns = _two_flushed(producer)
    wait_for(has_no_thread)
    with Limit(monkeypatch, "txnlog-engine"), pytest.raises(RetriableError, match="make the same call again"):
        producer.close()
    producer.close()
    assert [txn.state for txn in txns] == ["ABORTED"] * 2


@pytest.mark.parametrize("again", [False, True])
@pytest.mark.parametrize("kind", ["shared", "failover"])
def test_a_close_of_a_consumer_that_is_interrupted_goes_on(memory: Place, kind: str, again: bool) -> None:
    """LEAK: Ctrl-C at the end of ``with ns.consumer(...)``, and perhaps ``close()`` again: its messages stayed leased.

    Others get these messages, or the place, at once, and not when the lease has ended.
    """
    for request in itertools.count(1):
        store = InterruptingStore(memory.store())
        name = f"{kind}{again}{request}".lower()
        ns, other = memory.open(name, store=store), memory.open(name)
        topics = ["audit", "orders"]
        for number, topic in enumerate(topics):
            ns.create_topic(topic, SCHEMA)
            ns.produce(topic, rows(number))
        consumer = ns.consumer(topics, "billing", type=kind)
        assert [*ids(take(consumer, 1).table), *ids(take(consumer, 1).table)] == [0, 1]
        following = other.consumer(topics, "billing")
        found = ids(take(following, 1).table)
        with hearing_interrupts():
            going_on = store.interrupted(consumer.close, request)
        if again:
            consumer.close()
        wait_for(partial(_receives, following, found))
        if not going_on:
            break
    assert request > 1, "requests"


def _receives(consumer: Any, found: list[int]) -> bool:
    found += ids(take(consumer).table)
    return sorted(found) == [0, 1]
