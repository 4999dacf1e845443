"""What is left of a batch that a Delta table has: its messages are dead letters, or somebody dealt with them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from spark_ext.processing.batch_plan import Batch, plan_batch
from spark_ext.processing.earlier_batches import dead_lettered, what_is_left
from spark_ext.processing.ownership import Ownership, take_over
from spark_ext.read.scan import Scan, open_scan
from spark_ext.support import namespace_cache
from spark_ext.support.options import read_options
from tests.spark.support import path_of
from txnlog.api.snapshot import Snapshot
from txnlog.client import dead_letters

if TYPE_CHECKING:
    from txnlog.api.namespace import Namespace

SCHEMA = pa.schema([("id", pa.int64())])


@pytest.fixture
def ns(namespace: Namespace) -> Namespace:
    namespace.create_topic("orders", SCHEMA)
    namespace.produce("orders", [{"id": number} for number in range(6)])
    namespace.create_subscription("orders", "billing", dead_letter_topic="orders-dead")
    namespace_cache.use(namespace)
    return namespace


def looked(ns: Namespace, *topics: str) -> tuple[Scan, tuple[Ownership, ...]]:
    """What a run that begins looks at."""
    owned = take_over(
        ns._connection, topics or ["orders"], "billing", query_name=None, start="earliest", to_dead_letters=True
    )
    return open_scan(read_options({"path": path_of(ns, "orders")}, streaming=False), mode="rw"), owned


def noted(ns: Namespace, max_rows: int | None = None) -> tuple[str, Batch]:
    """A batch that a Delta table has, and the transaction that never committed it."""
    scan, owned = looked(ns)
    batch = plan_batch(scan, owned, max_rows, None)
    assert batch is not None
    return str(ns.begin().id), batch


def give_up(ns: Namespace, low: int, high: int, topic: str = "orders") -> None:
    """As a run gives up on messages."""
    scan, owned = looked(ns, topic)
    record = ns._connection.subscription_record_by_id(owned[0].subscription)
    into = dead_letters.target(ns._connection, record)
    with ns.begin() as txn:
        consumer = ns.consumer(topic, subscription="billing", takeover=True)
        messages = consumer.receive(max_messages=high - low)
        txn.acknowledge(messages)
        table = scan.snapshot.scan(topic, offsets={0: (low, high)}, include_metadata=True).read_all()
        source = ns._connection.topic_record_by_id(record.topic)
        for partition, letters in dead_letters.of_failed_batch(into, source, table, reason="x", redeliveries=1):
            txn.produce(into.name, letters, partition)


def left(ns: Namespace, txn: str, batch: Batch, *topics: str) -> Any:
    return what_is_left(*looked(ns, *topics), txn, batch.offsets, batch.end.version)


def test_of_a_batch_whose_messages_are_dead_letters_nothing_is_left(ns: Namespace) -> None:
    txn, batch = noted(ns)
    give_up(ns, 0, 6)
    for number in range(3):
        ns.produce("orders-dead", [{"id": 100 + number}])
    ns.optimize("orders-dead")
    assert left(ns, txn, batch) == {}


def test_of_a_batch_of_which_a_part_became_dead_letters_the_rest_is_left(ns: Namespace) -> None:
    txn, batch = noted(ns)
    give_up(ns, 0, 2)
    assert left(ns, txn, batch) == {"orders": {0: (2, 6)}}
    assert dead_lettered(*looked(ns), batch.offsets, batch.end.version) == {"orders": {0: ((0, 2),)}}


def test_one_letter_of_a_consumer_that_dealt_with_the_others_is_one(ns: Namespace) -> None:
    """A consumer's own letter for message 3; of the other five it made something, in the same transaction."""
    txn, batch = noted(ns)
    consumer = ns.consumer("orders", subscription="billing", takeover=True)
    with ns.begin() as inner:
        inner.acknowledge(consumer.receive(max_messages=6))
        letter = {"id": 3, "_source_topic": "orders", "_source_partition": 0, "_source_offset": 3}
        inner.produce("orders-dead", [{**letter, "_dead_reason": "bad", "_redeliveries": 0}])
    assert dead_lettered(*looked(ns), batch.offsets, batch.end.version) == {"orders": {0: ((3, 4),)}}
    assert left(ns, txn, batch) == batch.offsets, "no single range: it cannot come, which is told"


def test_letters_of_another_topic_at_the_same_offsets_count_for_none(ns: Namespace) -> None:
    ns.create_topic("returns", SCHEMA)
    ns.produce("returns", [{"id": number} for number in range(6)])
    ns.create_subscription("returns", "billing", dead_letter_topic="orders-dead")
    txn, batch = noted(ns)
    give_up(ns, 0, 6, "returns")
    ns.consumer("orders", subscription="billing", takeover=True).seek({0: 6})
    assert left(ns, txn, batch, "orders", "returns") == batch.offsets


def test_letters_that_were_there_before_a_batch_count_for_none(ns: Namespace) -> None:
    """Somebody sought back behind them, and the messages came again."""
    give_up(ns, 0, 6)
    ns.consumer("orders", subscription="billing", takeover=True).seek("earliest")
    txn, batch = noted(ns)
    ns.consumer("orders", subscription="billing", takeover=True).seek({0: 6})
    assert left(ns, txn, batch) == batch.offsets


def test_messages_that_are_free_again_are_no_dead_letters(ns: Namespace) -> None:
    txn, batch = noted(ns)
    give_up(ns, 0, 6)
    ns.consumer("orders", subscription="billing", takeover=True).seek({0: 0})
    assert left(ns, txn, batch) == batch.offsets


def test_letters_are_not_read_for_a_batch_that_nobody_took(ns: Namespace, monkeypatch: pytest.MonkeyPatch) -> None:
    txn, batch = noted(ns)

    def read(*_given: Any, **_named: Any) -> None:
        raise AssertionError

    monkeypatch.setattr(Snapshot, "scan", read)
    assert left(ns, txn, batch) == batch.offsets


def test_of_a_subscription_that_is_dropped_meanwhile_nothing_becomes_dead_letters(ns: Namespace) -> None:
    """The commit of who works on it is refused by name."""
    txn, batch = noted(ns)
    scan, owned = looked(ns)
    ns.drop_subscription("orders", "billing")
    assert what_is_left(scan, owned, txn, batch.offsets, batch.end.version) == batch.offsets


def test_without_a_dead_letter_topic_nothing_becomes_dead_letters(ns: Namespace) -> None:
    ns.create_subscription("orders", "plain")
    owned = take_over(ns._connection, ["orders"], "plain", query_name=None, start="earliest", to_dead_letters=False)
    scan = open_scan(read_options({"path": path_of(ns, "orders")}, streaming=False), mode="rw")
    batch = plan_batch(scan, owned, None, None)
    assert batch is not None
    txn = str(ns.begin().id)
    ns.consumer("orders", subscription="plain", takeover=True).seek({0: 6})
    assert what_is_left(scan, owned, txn, batch.offsets, batch.end.version) == batch.offsets
