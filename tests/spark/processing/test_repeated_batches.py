"""A batch of ``process`` that a Delta table has and no entry commits comes again as it was, whatever is free by now."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from spark_ext.processing.batch_plan import Batch, plan_again, plan_batch
from spark_ext.processing.delta_batches import BatchRecord, RepeatBatchError
from spark_ext.processing.ownership import take_over
from spark_ext.read.scan import Scan, open_scan
from spark_ext.support import namespace_cache
from spark_ext.support.options import read_options
from tests.spark.shop import Shop, shop
from tests.spark.support import path_of
from txnlog.api.internals import acknowledge_ranges
from txnlog.common.ids import TxnId
from txnlog.errors import RetriableError

if TYPE_CHECKING:
    from txnlog.api.namespace import Namespace

__all__ = ["shop"]  # a fixture


@pytest.fixture
def ns(namespace: Namespace) -> Namespace:
    namespace.create_topic("orders", pa.schema([("id", pa.int64())]))
    namespace.produce("orders", [{"id": number} for number in range(6)])
    namespace_cache.use(namespace)
    return namespace


def held(ns: Namespace, count: int) -> str:
    """The token of a prepared transaction that holds the first messages of each partition."""
    consumer = ns.consumer("orders", subscription="billing", takeover=True)
    txn = ns.begin()
    messages = consumer.receive(max_messages=count)
    assert len(messages) == count
    txn.acknowledge(messages)
    return txn.prepare()


def looked(ns: Namespace) -> tuple[Scan, Any]:
    """What a run that begins looks at."""
    owned = take_over(ns._connection, ["orders"], "billing", query_name=None, start="earliest", to_dead_letters=False)
    return open_scan(read_options({"path": path_of(ns, "orders")}, streaming=False), mode="rw"), owned


def left(ns: Namespace) -> tuple[str, Batch]:
    """A batch above what a prepared transaction holds."""
    token = held(ns, 2)
    batch = plan_batch(*looked(ns), None, None)
    assert batch is not None
    assert batch.offsets == {"orders": {0: (2, 6)}}
    return token, batch


def commit(ns: Namespace, batch: Batch) -> None:
    with ns.begin() as txn:
        acknowledge_ranges(txn, list(batch.acknowledgements))


def test_what_was_held_below_a_batch_and_is_free_by_now_comes_in_a_later_one(ns: Namespace) -> None:
    token, batch = left(ns)
    ns.complete(token, commit=False)
    scan, owned = looked(ns)
    anew = plan_batch(scan, owned, None, batch.end)
    assert anew is not None
    assert anew.offsets == {"orders": {0: (0, 6)}}, "another batch than the one that was left"
    again = plan_again(scan, owned, batch.offsets, batch.end)
    assert again is not None
    assert (again.offsets, again.rows, again.deleted) == (batch.offsets, 4, 0)
    commit(ns, again)
    rest = plan_batch(*looked(ns), None, None)
    assert rest is not None
    assert rest.offsets == {"orders": {0: (0, 2)}}
    commit(ns, rest)
    assert plan_batch(*looked(ns), None, None) is None


def test_a_batch_above_what_is_held_still_comes_again_as_it_was(ns: Namespace) -> None:
    _, batch = left(ns)
    scan, owned = looked(ns)
    again = plan_again(scan, owned, batch.offsets, batch.end)
    assert again is not None
    assert (again.offsets, again.end, again.rows, again.deleted) == (batch.offsets, batch.end, 4, 0)


@pytest.mark.parametrize("position", [3, 6])
def test_a_batch_of_which_others_took_some_does_not_come_again(ns: Namespace, position: int) -> None:
    token, batch = left(ns)
    ns.complete(token, commit=False)
    ns.consumer("orders", subscription="billing", takeover=True).seek({0: position})
    scan, owned = looked(ns)
    assert plan_again(scan, owned, batch.offsets, batch.end) is None


def test_a_run_repeats_the_batch_that_a_table_has_also_after_a_loss(shop: Shop) -> None:
    """The table is played by the handler, which raises what the first append of a run raises."""
    shop.produce(0, 8)
    token = held(shop.ns, 2)
    scan, owned = looked(shop.ns)
    batch = plan_batch(scan, owned, None, None)
    assert batch is not None
    shop.ns.complete(token, commit=False)
    noted: list[Exception] = [
        RetriableError("the answer was lost"),
        RepeatBatchError("a table", 1, BatchRecord.of(batch, TxnId(0, 1), shop.ns._connection.newest_entry)),
    ]

    def handler(frame: Any, txn: Any) -> None:
        shop.handle(frame, txn)
        if noted:
            raise noted.pop()

    shop.run(handler, max_rows=None)
    whole, first, second, rest = shop.calls
    assert whole == list(range(8))
    assert first == second, "after the loss it is still the batch of the table"
    assert len(first) == batch.rows
    assert sorted(second + rest) == whole
    found = [shop.ns.snapshot().read(topic).column("id").to_pylist() for topic in ("even", "odd")]
    assert sorted(found[0] + found[1]) == whole
