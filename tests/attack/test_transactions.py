"""Ends of transactions as their owners are told them."""

from __future__ import annotations

import pytest

from tests.client.support import SCHEMA, Place, rows
from txnlog.errors import TransactionAborted
from txnlog.ids import TxnId


def test_a_plain_acknowledge_whose_number_was_ended_is_not_told_to_be_done(memory: Place) -> None:
    ns, store = memory.faulty()
    ns.create_topic("orders", SCHEMA)
    ns.produce("orders", rows(1, 2))
    consumer = ns.consumer("orders", "billing")
    messages = consumer.receive(timeout_ms=0)
    admin = memory.open()
    following = ns.begin().id
    store.script.append(lambda: admin.abort(TxnId(following.coordinator, following.number + 1)))
    with pytest.raises(TransactionAborted):
        consumer.acknowledge(messages)
    assert admin.subscription("orders", "billing").cursors[0].cursor == 0
