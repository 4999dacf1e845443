"""Ctrl-C in what ends a transaction: an attempt of ``ns.transact``, a close, the commit of a skipped batch."""

from __future__ import annotations

import contextlib
import itertools
import time
from functools import partial
from typing import Any

import pytest

from tests.client.interrupting_store import InterruptingStore
from tests.client.support import SCHEMA, Place, begun, committed, has_no_thread, ids, read, rows, take, wait_for
from tests.client.thread_limit import Limit
from tests.interrupts import hearing_interrupts
from txnlog.api.transaction import Transaction
from txnlog.engine import worker
from txnlog.errors import InvalidTransactionState, RetriableError


class _StoreThatGoesOn(InterruptingStore):
    """The end of an attempt waits for the request that is under way, and the next attempt may be faster."""

    def wait_for_main_thread(self) -> None:
        time.sleep(0.2)


def test_messages_of_an_attempt_whose_abort_is_interrupted_come_again(memory: Place) -> None:
    """LOSE: whoever stops a cell, or a loop, of ``ns.transact`` with Ctrl-C while a failed attempt is aborted.

    ``transact`` promises to release what an attempt received ("``ns.transact`` does this by itself", docs/python.md).
    Interrupted while it aborts, it does not: the next attempt receives what comes later, and its cumulative
    acknowledgement takes messages that nobody ever processed.
    """
    for request in itertools.count(1):
        store = _StoreThatGoesOn(memory.store())
        ns = memory.orders(namespace=f"ns{request}", store=store)
        ns.create_topic("audit", SCHEMA)
        ns.produce("orders", rows(1, 2))
        consumer = ns.consumer("orders", "billing")
        processed: list[int] = []

        def fails(txn: Any, consumer: Any = consumer) -> None:
            take(consumer, 1)
            txn.produce("audit", rows(1))
            txn.flush()
            raise ZeroDivisionError  # before it acknowledged anything

        def works(txn: Any, consumer: Any = consumer) -> list[int]:
            messages = take(consumer, 1)
            txn.acknowledge(messages, cumulative=True)
            return ids(messages.table)

        def attempt(ns: Any = ns, fails: Any = fails) -> None:
            with contextlib.suppress(ZeroDivisionError):
                ns.transact(fails)

        with hearing_interrupts():
            going_on = store.interrupted(attempt, request)
        for _ in range(2):
            if ns.lag("orders", "billing")[0].behind_messages:
                processed += ns.transact(works)
        assert processed == [1, 2], f"acknowledged: all; processed: {processed}; interrupted at the request {request}"
        if not going_on:
            break
    assert request > 2, "requests"


def test_messages_of_an_attempt_that_is_interrupted_before_it_could_be_aborted_come_again(
    memory: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    """LOSE: Ctrl-C comes behind an error of the function, in the instant before ``transact`` aborts."""
    ns = memory.orders(1, 2)
    consumer = ns.consumer("orders", "billing")

    def fails(_txn: Any) -> None:
        take(consumer, 1)
        raise ZeroDivisionError

    def interrupted(_txn: Transaction) -> bool:
        monkeypatch.undo()
        raise KeyboardInterrupt

    monkeypatch.setattr(Transaction, "_discard", interrupted)
    with pytest.raises(KeyboardInterrupt):
        ns.transact(fails)
    assert ns.transact(lambda _txn: ids(take(consumer, 1).table)) == [1]


def test_the_transaction_of_a_block_that_is_interrupted_at_its_end_does_not_stay_open(
    memory: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    """LEAK: Ctrl-C comes behind an error in the block, in the instant before its transaction is aborted."""
    ns = memory.orders(1, 2)
    consumer = ns.consumer("orders", "billing")

    def interrupted(_txn: Transaction) -> bool:
        monkeypatch.undo()
        raise KeyboardInterrupt

    txn = ns.begin()

    def block() -> None:
        with txn:
            txn.acknowledge(take(consumer, 2))
            monkeypatch.setattr(Transaction, "_discard", interrupted)
            raise ZeroDivisionError

    with pytest.raises(KeyboardInterrupt):
        block()
    assert ids(take(consumer, 2).table) == [1, 2]
    assert txn.state == "ABORTED"


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


def _has_none_open(ns: Any) -> bool:
    return not ns.transactions(state="OPEN")


@pytest.mark.parametrize("then", ["commit", "block", "abort"])
def test_the_commit_of_a_skipped_batch_is_interrupted_and_made_again(memory: Place, then: str) -> None:
    """LIE, HANG of messages: a job that is run again, writes much (flush), and is stopped by Ctrl-C.

    "Repeat the call, or abort: both return the true outcome": ``commit()`` raises KeyError from then on, and the log
    shows the transaction as open until it times out.
    """
    for request in itertools.count(1):
        store = InterruptingStore(memory.store())
        name = f"{then}{request}"
        ns, other = memory.open(name, store=store), memory.open(name)
        ns.create_topic("orders", SCHEMA)
        txn = begun(ns, 1, flush=True, txn_app_id="nightly", txn_version=1)
        committed(other, 2, txn_app_id="nightly", txn_version=1)
        with hearing_interrupts():
            end = partial(txn.__exit__, None, None, None) if then == "block" else txn.commit
            going_on = store.interrupted(end, request)
        if then == "abort" and going_on:
            with contextlib.suppress(InvalidTransactionState):  # it was committed, as skipped
                txn.abort()
        elif then == "commit":
            assert txn.commit().skipped, request
        assert read(ns) == [2]
        wait_for(partial(_has_none_open, ns))  # the commit goes on, whoever waits for it
        if not going_on:
            break
    assert request > 1, "requests"
