"""A selection over S3: the same client, through a server that honours create-if-absent."""

from __future__ import annotations

import pickle
from typing import Any

import pytest

import txnlog
from tests.client.support import SCHEMA, Place, ids, raises, read, rows, run_threads
from tools.servers import SECRET_KEY
from txnlog.errors import CorruptionError, NamespaceNotFound, ReadOnly, TransactionConflict
from txnlog.format.keys import entry_key


@pytest.fixture
def lake(s3: Place) -> Any:
    ns = s3.orders(partitions=2)
    ns.create_topic("audit", SCHEMA)
    return ns


def test_consume_process_produce_over_s3(lake: Any, s3: Place) -> None:
    lake.produce("orders", rows(*range(10)), partition=0)
    consumer = lake.consumer("orders", "billing")
    with lake.begin() as txn:
        messages = consumer.receive(4, timeout_ms=0)
        txn.acknowledge(messages)
        txn.produce("audit", rows(*ids(messages.table)))
        txn.flush()
        txn.produce("audit", rows(99))
    with pytest.raises(ZeroDivisionError):
        lake.transact(lambda txn: txn.produce("audit", rows(7)) or 1 // 0)
    other = s3.open(mode="r")
    assert read(other, "audit") == [0, 1, 2, 3, 99]
    assert other.subscription("orders", "billing").cursors[0].cursor == 4
    assert txn.result.offsets == {("audit", 0): range(5)}
    second = lake.begin()
    with raises(TransactionConflict):
        second.acknowledge(messages)
    with raises(ReadOnly):
        other.produce("orders", rows(1))


def test_checkpoint_time_travel_and_a_fresh_process_over_s3(lake: Any, s3: Place) -> None:
    versions = [lake.produce("orders", rows(number), partition=0).version for number in range(4)]
    assert lake.checkpoint() == versions[-1]
    lake.produce("orders", rows(4), partition=1)
    fresh, counting = s3.counted()
    assert fresh._connection.follower.base is not None
    assert ids(fresh.snapshot(version=versions[1]).read("orders")) == [0, 1]
    assert sorted(read(fresh)) == [0, 1, 2, 3, 4]
    counting.reset()
    fresh.begin()
    counting.reset()
    fresh.produce("orders", rows(5))
    assert counting.counts() == {("put", "segment"): 1, ("create", "entry"): 1}


def test_two_clients_with_threads_race_over_s3(lake: Any, s3: Place) -> None:
    other = s3.open()

    def work(ns: Any, first: int) -> list[range]:
        return [ns.produce("audit", rows(first + number)).offsets["audit", 0] for number in range(5)]

    found: Any = run_threads(lambda: work(lake, 0), lambda: work(lake, 100), lambda: work(other, 200))
    told = {
        span.start: first + n for first, spans in zip((0, 100, 200), found, strict=True) for n, span in enumerate(spans)
    }
    assert read(lake, "audit") == read(other, "audit") == [told[offset] for offset in range(15)]


def test_secrets_of_s3_appear_nowhere(lake: Any, s3: Place) -> None:
    copy = pickle.loads(pickle.dumps(txnlog.open(s3.root, "sales", storage_options=s3.storage_options)))
    s3.opened.append(copy)
    with raises(NamespaceNotFound) as missing:
        s3.open("sails", create=False)
    shown = [repr(lake), repr(copy), repr(lake._connection.store), str(missing.value), repr(lake.snapshot())]
    assert not [text for text in shown if SECRET_KEY in text]
    stored = b"".join(s3.store().get(info.key) for info in s3.store().list(""))
    assert SECRET_KEY.encode() not in stored


def test_damage_over_s3_is_named(lake: Any, s3: Place) -> None:
    version = lake.produce("orders", rows(1)).version
    store = s3.store()
    (segment,) = lake.snapshot().plan("orders").segments
    data = store.get(f"sales/{segment.key}")
    store.put(f"sales/{segment.key}", data[:-1] + b"\0")
    with raises(CorruptionError, match="damaged"):
        s3.open(mode="r").snapshot().read("orders")
    store.put(f"sales/{entry_key(version)}", b"{}\n")
    with raises(CorruptionError, match=f"entry {version}"):
        s3.open(mode="r")
