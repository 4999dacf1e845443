"""Ctrl-C while ``ns.transact`` ends an attempt that failed."""

from __future__ import annotations

import contextlib
import itertools
import time
from typing import Any

import pytest

from tests.client.interrupting_store import InterruptingStore
from tests.client.support import SCHEMA, Place, ids, rows, take
from tests.interrupts import hearing_interrupts
from txnlog.api.transaction import Transaction


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
