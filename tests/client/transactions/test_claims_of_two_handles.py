"""A consumer of one handle, and a transaction of another one that was sent, and of which nobody knows the outcome."""

from __future__ import annotations

import pyarrow as pa
import pytest

from txnlog.api.opening import open_namespace
from txnlog.errors import Durable, OutcomeUnknown, StoreError
from txnlog.store import MemoryStore
from txnlog.store.base import Created
from txnlog.testing import ManualClock


class _Failing(MemoryStore):
    fails = False

    def create(self, key: str, data: bytes) -> Created:
        if self.fails:
            raise StoreError(f"503 for {key}", durable=Durable.MAYBE)
        return super().create(key, data)


@pytest.mark.parametrize("through", ["the handle of the consumer", "another handle"])
def test_what_was_sent_without_an_answer_is_not_delivered_again(through):
    store, clock = _Failing(), ManualClock()
    first = open_namespace("memory://x", "main", store=store, clock=clock, create=True)
    second = open_namespace("memory://x", "main", store=store, clock=clock)
    first.create_topic("jobs", pa.schema([("n", pa.int64())]))
    first.create_topic("out", pa.schema([("n", pa.int64())]))
    first.create_subscription("jobs", "mine", start="earliest")
    consumer = first.consumer("jobs", "mine")
    with first.begin() as txn:
        txn.produce("jobs", [{"n": 1}])
    with second.begin() as txn:
        txn.produce("out", [{"n": 0}])
    found = consumer.receive(max_messages=10, timeout_ms=0)
    assert len(found) == 1
    owner = first if through == "the handle of the consumer" else second
    owner._connection.appender.create_attempts = 1
    txn = owner.begin(timeout_ms=5_000)
    txn.acknowledge(found)
    txn.produce("out", [{"n": 1}])
    store.fails = True
    with pytest.raises(OutcomeUnknown):
        txn.commit()
    store.fails = False
    clock.advance(6_000)
    again = consumer.receive(max_messages=10, timeout_ms=0)
    result = txn.commit()  # the same bytes go to the same slot
    assert result.version
    assert len(again) == 0, "it is committed, and was delivered again before"
