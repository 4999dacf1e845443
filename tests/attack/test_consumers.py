"""What a consumer hands out, and what it holds back, when the subscription's epoch moves."""

from __future__ import annotations

from typing import Any

from tests.client.support import ids, rows


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
