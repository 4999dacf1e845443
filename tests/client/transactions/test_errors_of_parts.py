"""Errors of calls in several parts: what is on the store of them, and what they came of."""

from __future__ import annotations

from typing import Any

import pytest

from tests.client.support import SCHEMA, Place, rows, take
from txnlog.errors import Durable, OutcomeUnknown, RetriableError, StoreError, TopicNotFound
from txnlog.testing import ManualClock


def test_what_the_caller_was_at_is_not_the_cause_of_an_error(memory: Place) -> None:
    """LIE: "the above exception was the direct cause": of a call in an ``except`` block, which failed by itself."""
    ns = memory.orders()
    with pytest.raises(TopicNotFound) as plain:
        ns.consumer("ordres", "billing")
    assert plain.value.__cause__ is None

    def handling() -> None:
        try:
            raise ValueError("a row of the user's")
        except ValueError:
            ns.consumer("ordres", "billing")

    with pytest.raises(TopicNotFound) as caught:
        handling()
    assert caught.value.__cause__ is None, "it is its context"


def test_a_plain_produce_that_sent_no_row_does_not_say_that_its_rows_may_be_there(memory: Place) -> None:
    """LIE: only the outcome of a block of numbers is unknown; ``error.txn_ids[0]``, as documented, is an IndexError."""
    memory.orders().close()
    ns, store = memory.faulty()
    store.forever = "dropped"
    with pytest.raises(RetriableError) as caught:
        ns.produce("orders", rows(1))
    assert not isinstance(caught.value, OutcomeUnknown), "ns.abort(error.txn_ids[0]) would come next"
    assert caught.value.durable is Durable.NOTHING


def test_a_transact_whose_flushed_rows_are_pending_says_so(memory: Place) -> None:
    """LIE: the function flushed, the commit and the abort are refused: "nothing was written", and it is in the log."""
    memory.orders().close()
    ns, store = memory.faulty()

    def work(txn: Any) -> None:
        txn.produce("orders", rows(1))
        txn.flush()
        store.forever = "refused"

    with pytest.raises(StoreError) as caught:
        ns.transact(work)
    store.heal()
    assert len(ns.transactions(state="OPEN")) == 1
    assert caught.value.durable is Durable.MAYBE, caught.value


def test_an_abort_of_somebody_else_is_no_effect_of_a_receive(memory: Place, clock: ManualClock) -> None:
    """LIE: ``receive`` ends an overdue transaction of another worker, and then finds no space for its own lease."""
    ns, store = memory.faulty(clock=clock)
    ns.create_topic("orders", SCHEMA)
    ns.produce("orders", rows(1, 2))
    ns.create_subscription("orders", "billing", type="shared")
    other = memory.open(clock=clock)
    held = other.begin(timeout_ms=10_000)
    held.acknowledge(take(other.consumer("orders", "billing")))
    consumer = ns.consumer("orders", "billing")
    clock.advance(60_000)
    before = ns.snapshot().version
    store.script.extend(["ok", "refused"])
    with pytest.raises(StoreError) as caught:
        take(consumer)
    assert ns.snapshot().version == before + 1, "the abort"
    assert caught.value.durable is Durable.NOTHING
