"""What a consumer hands out, and what it holds back, when the subscription's epoch moves."""

from __future__ import annotations

from typing import Any

import pytest

from tests.client.support import SCHEMA, Place, ids, rows
from txnlog.errors import OutcomeUnknown
from txnlog.testing import ManualClock


def test_what_a_fenced_consumers_transaction_took_is_delivered_at_once(sales: Any) -> None:
    sales.produce("orders", rows(1, 2))
    old = sales.consumer("orders", "billing")
    txn = sales.begin()
    txn.acknowledge(old.receive(timeout_ms=0))
    new = sales.consumer("orders", "billing")
    assert ids(new.receive(timeout_ms=0).table) == [1, 2]


def test_what_was_taken_before_a_seek_is_delivered_again(sales: Any) -> None:
    sales.produce("orders", rows(1, 2))
    consumer = sales.consumer("orders", "billing")
    txn = sales.begin()
    txn.acknowledge(consumer.receive(timeout_ms=0))
    consumer.seek("earliest")
    assert ids(consumer.receive(timeout_ms=0).table) == [1, 2]


def test_an_abort_does_not_give_back_what_was_received_after_a_seek(sales: Any) -> None:
    sales.produce("orders", rows(1, 2))
    consumer = sales.consumer("orders", "billing")
    before = consumer.receive(timeout_ms=0)
    txn = sales.begin()
    txn.acknowledge(before)
    consumer.seek("earliest")
    txn.abort()
    assert ids(consumer.receive(timeout_ms=0).table) == [1, 2]
    consumer.negative_acknowledge(before)
    assert len(consumer.receive(timeout_ms=0)) == 0, "handed out twice"


def _two_taken(place: Place, **options: Any) -> tuple[Any, Any, Any]:
    """A namespace, its consumer, and a flushed transaction that took both messages."""
    ns = place.open(**options)
    ns.create_topic("orders", SCHEMA)
    ns.produce("orders", rows(1, 2))
    consumer = ns.consumer("orders", "billing")
    txn = ns.begin(timeout_ms=10_000)
    txn.acknowledge(consumer.receive(timeout_ms=0))
    return ns, consumer, txn


def test_what_an_administrator_gave_back_is_delivered_again_without_a_call_by_the_owner(memory: Place) -> None:
    _, consumer, txn = _two_taken(memory)
    txn.flush()
    memory.open().abort(txn.id)
    assert ids(consumer.receive(timeout_ms=0).table) == [1, 2]
    txn.abort()
    assert len(consumer.receive(timeout_ms=0)) == 0, "handed out twice"


def test_what_an_abandoned_transaction_took_is_delivered_again_after_its_timeout(
    memory: Place, clock: ManualClock
) -> None:
    _, consumer, txn = _two_taken(memory, clock=clock)
    del txn
    clock.advance(10_001)
    assert ids(consumer.receive(timeout_ms=0).table) == [1, 2]


def test_what_an_abandoned_flushed_transaction_took_is_delivered_again_after_its_timeout(
    memory: Place, clock: ManualClock
) -> None:
    _, consumer, txn = _two_taken(memory, clock=clock)
    txn.flush()
    del txn
    clock.advance(10_001)
    assert len(consumer.receive(timeout_ms=0)) == 0, "others wait 5 s more"
    clock.advance(5_000)
    assert ids(consumer.receive(timeout_ms=0).table) == [1, 2]


def test_an_unknown_outcome_that_an_abort_made_definite_gives_the_messages_back(memory: Place) -> None:
    ns, store = memory.faulty()
    ns.create_topic("orders", SCHEMA)
    ns.produce("orders", rows(1, 2))
    consumer = ns.consumer("orders", "billing")
    ns.appender.create_attempts = 1
    txn = ns.begin()
    txn.acknowledge(consumer.receive(timeout_ms=0))
    store.script.append("dropped")
    store.reads.append("absent")
    with pytest.raises(OutcomeUnknown):
        txn.commit()
    memory.open().produce("orders", rows(3))
    assert ns.abort(txn.id).state == "ABORTED"
    assert ids(consumer.receive(timeout_ms=0).table) == [1, 2, 3]
