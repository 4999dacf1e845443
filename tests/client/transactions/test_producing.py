"""What producing answers (docs/guarantees.md, Producing): topics, forms of data, partitions, schemas that grow."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

from tests.client.support import SCHEMA, Place, Unchanged, begun, ids, raises, read, rows
from txnlog.client import transaction_work
from txnlog.data.partitioner import partition_of_key
from txnlog.errors import (
    InvalidInputError,
    NameNotAllowed,
    OffsetOutOfRange,
    SchemaMismatch,
    TopicExists,
    TopicNotFound,
)
from txnlog.format.actions import AlterTopic
from txnlog.log.commands import Simple

# --- topics -----------------------------------------------------------------------------------------------------------


@pytest.mark.clause("P-9", "P-34")
def test_a_topic_is_what_it_was_created_as(place: Place) -> None:
    ns = place.open()
    info = ns.create_topic("orders", SCHEMA, partitions=4, key="name", properties={"user.owner": "billing"})
    assert (info.name, info.schema, info.partitions, info.key) == ("orders", SCHEMA, 4, "name")
    assert info.properties == {"user.owner": "billing"}
    assert info.id == ns.snapshot().version
    ns.create_topic("audit")
    assert ns.topics() == place.open().topics() == ("audit", "orders")
    assert ns.topic("orders") == place.open().topic("orders") == info
    assert [field.name for field in ns.topic("audit").schema] == ["key", "value", "headers"]
    assert "orders" in info._repr_html_()


@pytest.mark.clause("P-7")
def test_a_topic_exists_once(ns: Any, place: Place) -> None:
    with Unchanged(place), raises(TopicExists, match="orders"):
        ns.create_topic("orders", SCHEMA, partitions=2)
    with Unchanged(place), raises(TopicExists, match="with other partitions: 2 instead of 7") as caught:
        ns.create_topic("orders", SCHEMA, partitions=7)
    assert "if_not_exists" not in str(caught.value), "that would not help"
    assert "ns.topic('orders')" in caught.value.advice
    with Unchanged(place), raises(NameNotAllowed, match="case"):
        ns.create_topic("Orders", SCHEMA)
    with Unchanged(place):
        assert ns.create_topic("orders", SCHEMA, partitions=2, if_not_exists=True).partitions == 2
    with Unchanged(place), raises(TopicExists, match="partitions: 2 instead of 3"):
        ns.create_topic("orders", SCHEMA, partitions=3, if_not_exists=True)
    with Unchanged(place), raises(TopicExists, match="key: None instead of 'id'"):
        ns.create_topic("orders", SCHEMA, partitions=2, key="id", if_not_exists=True)
    with (
        Unchanged(place),
        raises(TopicExists, match="columns: it also has id: int64; it also has name: string; it does not have key: bi"),
    ):
        ns.create_topic("orders", partitions=2, if_not_exists=True)


@pytest.mark.clause("P-33", "P-34")
def test_a_dropped_topic_is_gone_and_one_made_again_is_another(ns: Any, place: Place) -> None:
    ns.produce("orders", rows(1), partition=0)
    old = ns.snapshot()
    first = ns.topic("orders").id
    ns.drop_topic("orders")
    assert ns.topics() == ()
    for call in (
        lambda: ns.topic("orders"),
        lambda: ns.produce("orders", rows(2)),
        lambda: ns.snapshot().read("orders"),
        lambda: ns.drop_topic("orders"),
        lambda: ns.consumer("orders", "billing"),
        lambda: ns.subscriptions("orders"),
    ):
        with Unchanged(place), raises(TopicNotFound, match="orders"):
            call()
    second = ns.create_topic("orders", SCHEMA, partitions=1)
    assert second.id > first
    assert read(ns) == []
    ns.produce("orders", rows(3))
    assert (ids(old.read("orders")), read(ns)) == ([1], [3])
    assert ids(place.open().snapshot(version=old.version).read("orders")) == [1]


def test_a_topic_that_does_not_exist_offers_the_nearest(ns: Any, place: Place) -> None:
    ns.create_topic("audit", SCHEMA)
    with Unchanged(place), raises(TopicNotFound) as caught:
        ns.produce("ordres", rows(1))
    assert caught.value.advice == "did you mean 'orders'?"
    assert caught.value.__context__ is None, "it is told once"
    with raises(TopicNotFound) as caught:
        ns.topic("nothing-like-it")
    assert "audit, orders" in caught.value.advice


# --- forms of data ----------------------------------------------------------------------------------------------------


TABLE = pa.table({"id": pa.array([1, 2], pa.int64()), "name": ["n1", "n2"]})


def _generator() -> Iterator[dict[str, Any]]:
    yield from rows(1, 2)


@pytest.mark.parametrize(
    "data",
    [
        rows(1, 2),
        tuple(rows(1, 2)),
        _generator(),
        TABLE,
        TABLE.to_batches()[0],
        TABLE.to_batches(),
        pa.RecordBatchReader.from_batches(TABLE.schema, TABLE.to_batches()),
        TABLE.select(["name", "id"]),
        pd.DataFrame({"id": [1, 2], "name": ["n1", "n2"]}),
        pd.DataFrame({"id": [1, 2], "name": ["n1", "n2"]}, index=["a", "b"]),
        pl.DataFrame({"id": [1, 2], "name": ["n1", "n2"]}),
        pa.table({"id": pa.array([1, 2], pa.int32()), "name": pa.array(["n1", "n2"]).dictionary_encode()}),
    ],
    ids=lambda data: type(data).__name__,
)
def test_every_form_of_data_gives_the_same_rows(sales: Any, data: Any) -> None:
    assert sales.produce("orders", data).offsets == {("orders", 0): range(2)}
    assert sales.snapshot().read("orders").to_pylist() == rows(1, 2)
    with sales.begin() as txn:
        txn.produce("audit", TABLE)
    assert sales.snapshot().read("audit").equals(TABLE)


@pytest.mark.parametrize(
    ("data", "words"),
    [
        ([{"id": 1, "nmae": "x"}], "'nmae'"),
        ([{"id": "one"}], "'id'"),
        ([{"id": 1.5}], "'id'"),
        (pa.table({"id": [1], "name": [2]}), "'name'"),
        (pa.table({"id": [1 << 40], "other": [1]}), "'other'"),
        (pd.DataFrame({"id": ["x"], "name": ["y"]}), "'id'"),
        ([1, 2], "row"),
        (7, "int"),
        ("text", "str"),
        (None, "NoneType"),
    ],
)
def test_rows_that_do_not_fit_are_refused_naming_the_column(ns: Any, place: Place, data: Any, words: str) -> None:
    with Unchanged(place), raises(SchemaMismatch, match=words):
        ns.produce("orders", data)
    txn = ns.begin()
    with Unchanged(place), raises(SchemaMismatch, match=words):
        txn.produce("orders", data)
    txn.produce("orders", rows(1))
    txn.commit()
    assert read(ns) == [1]


def test_nothing_to_produce_is_fine(ns: Any, place: Place) -> None:
    with Unchanged(place):
        result = ns.produce("orders", [])
    assert (dict(result.offsets), result.version) == ({}, ns.snapshot().version)


def test_later_changes_of_the_callers_data_do_not_reach_the_log(sales: Any) -> None:
    data = rows(1)
    frame = pd.DataFrame({"id": [2], "name": ["n2"]})
    with sales.begin() as txn:
        txn.produce("orders", data)
        txn.produce("orders", frame)
        data[0]["id"] = 99
        frame.loc[0, "id"] = 99
    assert read(sales) == [1, 2]


def test_memory_that_is_filled_again_for_each_call_is_in_the_log_as_it_was_at_each(sales: Any) -> None:
    memory, futures = np.zeros(1, np.int64), []
    for value in range(8):
        memory[:] = value
        txn = sales.begin()
        txn.produce("orders", pa.table({"id": memory}))
        futures.append(txn.commit_async())
    for future in futures:
        future.result()
    assert read(sales) == list(range(8))


# --- partitions -------------------------------------------------------------------------------------------------------


@pytest.mark.clause("P-110")
def test_rows_of_a_keyed_topic_go_where_their_key_says(place: Place) -> None:
    ns = place.open()
    ns.create_topic("orders", SCHEMA, partitions=4, key="name")
    ns.produce("orders", rows(*range(50)))
    with ns.begin() as txn:
        for number in range(50, 60):
            txn.produce("orders", rows(number))
    table = ns.snapshot().read("orders", include_metadata=True)
    wanted = [partition_of_key(name, pa.string(), 4) for name in table.column("name").to_pylist()]
    assert table.column("_partition").to_pylist() == wanted
    assert len(set(wanted)) == 4
    for partition in range(4):
        found = [i for i, p in zip(ids(table), wanted, strict=True) if p == partition]
        assert found == sorted(found), "rows of a partition keep their order"
    ns.produce("orders", [{"id": 100, "name": None}])
    ns.produce("orders", [{"id": 101, "name": "n1"}], partition=2)
    last = ns.snapshot().read("orders", include_metadata=True).to_pylist()
    assert {row["id"]: row["_partition"] for row in last if row["id"] >= 100} == {100: 42 % 4, 101: 2}


def test_without_a_key_partitions_take_turns(place: Place) -> None:
    ns = place.orders(partitions=3)
    for number in range(9):
        ns.produce("orders", rows(number))
    assert ns.snapshot().end_offsets("orders") == {0: 3, 1: 3, 2: 3}
    ns.produce("orders", pa.table({"id": range(30_000), "name": ["x"] * 30_000}))
    assert sum(ns.snapshot().end_offsets("orders").values()) == 30_009
    assert min(ns.snapshot().end_offsets("orders").values()) >= 10_000, "a big call is spread"


@pytest.mark.parametrize(
    ("partition", "kind"),
    [
        (2, OffsetOutOfRange),
        (10**30, OffsetOutOfRange),
        (-1, InvalidInputError),
        ("0", InvalidInputError),
        (0.0, InvalidInputError),
        (True, InvalidInputError),
    ],
)
def test_a_partition_that_is_not_there_is_refused(ns: Any, place: Place, partition: Any, kind: Any) -> None:
    txn = ns.begin()
    with Unchanged(place):
        for call in (ns.produce, txn.produce):
            with raises(kind, match="partition"):
                call("orders", rows(1), partition=partition)
    assert txn.state == "OPEN"


@pytest.mark.parametrize(
    ("data", "options", "kind"),
    [
        ([{"id": "no number"}], {}, SchemaMismatch),
        ([{"unknown": 1}], {}, SchemaMismatch),
        (rows(1), {"partition": 2}, OffsetOutOfRange),
        (rows(1), {"partition": True}, InvalidInputError),
        (iter(rows(1)), {"partition": -1}, InvalidInputError),
        (rows(1), {"sequence": 1}, InvalidInputError),
        (iter(rows(1)), {"partition": 0, "sequence": -1}, InvalidInputError),
    ],
)
def test_what_is_wrong_with_a_call_is_reported_also_while_the_store_is_away(
    memory: Place, data: Any, options: Any, kind: Any
) -> None:
    ns, store = memory.faulty_orders(partitions=2)
    producer = ns.producer("loader")
    txn = producer.begin()
    producer.produce("orders", rows(0), 0)
    store.reads_forever = "broken"
    for call in (producer.produce, txn.produce):
        with raises(kind):
            call("orders", data, **options)


# --- a schema that grows ----------------------------------------------------------------------------------------------


WIDER = pa.schema([*SCHEMA, pa.field("note", pa.string())])


def widen(ns: Any) -> None:
    """What the catalog will do: a nullable column more."""
    from txnlog.format import schema

    topic = ns.topic("orders").id
    ns._connection.appender.call(
        Simple(lambda _draft, _at: [AlterTopic(topic, schema.from_arrow(WIDER))], lambda _draft, _at: None)
    )


def test_commits_of_one_entry_with_rows_of_several_schemas_share_a_segment(sales: Any) -> None:
    old = begun(sales, 1)
    widen(sales)
    new = sales.begin()
    new.produce("orders", [{"id": 2, "note": "x"}])
    for future in [old.commit_async(), new.commit_async()]:
        future.result(30)
    assert sorted(read(sales)) == [1, 2]


def test_big_writes_take_segments_of_their_own(sales: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transaction_work, "SMALL_PRODUCE_BYTES", 1_000)
    with sales.begin() as txn:
        txn.produce("orders", rows(*range(200)))
        txn.produce("audit", rows(1))
    plan = sales.snapshot().plan("orders")
    assert [segment.txn for segment in plan.segments] == [txn.id.number]
    assert [segment.txn for segment in sales.snapshot().plan("audit").segments] == [None]
    assert (read(sales), read(sales, "audit")) == (list(range(200)), [1])
