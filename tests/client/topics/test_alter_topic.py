"""A topic gets more columns and wider ones: what readers of every version see, and what is under way meanwhile."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from tests.client.support import (
    SCHEMA,
    Place,
    Unchanged,
    ids,
    is_entry,
    raises,
    read,
    rows,
    run_threads,
    take,
)
from txnlog.errors import (
    Durable,
    InvalidInputError,
    NameNotAllowed,
    OutcomeUnknown,
    ReadOnly,
    SchemaMismatch,
    TopicExists,
    TopicNotFound,
)
from txnlog.format import schema as schemas
from txnlog.format.actions import AlterTopic
from txnlog.log.commands import Simple
from txnlog.testing import ManualClock
from txnlog.testing.scheduler import START_MS

NOTE = [("note", pa.string())]


@pytest.fixture
def ns(place: Place) -> Any:
    return place.orders()


@pytest.mark.clause("P-34", "P-219")
def test_rows_that_are_there_have_null_in_a_new_column_and_older_versions_do_not_have_it(ns: Any, place: Place) -> None:
    before = ns.produce("orders", rows(1)).version
    info = ns.alter_topic("orders", add_columns=NOTE)
    altered = ns.snapshot().version
    after = ns.produce("orders", [{"id": 2, "name": "n2", "note": "x"}]).version
    assert info.schema.names == ["id", "name", "note"]
    for client in (ns, place.open(mode="r")):
        assert client.snapshot(before).read("orders").to_pylist() == rows(1)
        assert client.snapshot(altered).read("orders").to_pylist() == [{"id": 1, "name": "n1", "note": None}]
        assert client.snapshot(after).read("orders").column("note").to_pylist() == [None, "x"]
        assert client.snapshot(after).read("orders", columns=["note"]).num_rows == 2
        assert client.topic("orders").schema == info.schema


@pytest.mark.clause("P-219")
def test_widened_columns_have_the_very_values_of_old_rows(place: Place) -> None:
    ns = place.open()
    ns.create_topic(
        "orders",
        pa.schema(
            [
                pa.field("id", pa.int32(), nullable=False),
                ("rate", pa.float32()),
                ("price", pa.decimal128(5, 2)),
                ("count", pa.int32()),
                ("at", pa.struct([("x", pa.int8())])),
                ("tags", pa.list_(pa.int16())),
            ]
        ),
        partitions=2,
        key="id",
        delta="off",
    )
    old = {"id": 7, "rate": 0.1, "price": Decimal("123.45"), "count": 2**31 - 1, "at": {"x": -128}, "tags": [1, None]}
    ns.produce("orders", [old])
    before = ns.snapshot()
    expected = before.read("orders").to_pylist()[0]
    wider = {
        "rate": pa.float64(),
        "price": pa.decimal128(12, 4),
        "count": pa.float64(),
        "at": pa.struct([("x", pa.int64()), ("y", pa.string())]),
        "tags": pa.list_(pa.int64()),
    }
    info = ns.alter_topic("orders", widen=wider)
    assert {name: info.schema.field(name).type for name in wider} == wider | {
        "tags": pa.list_(pa.field("element", pa.int64()))
    }
    assert not info.schema.field("id").nullable, "a type alone says nothing of null"
    new = {
        "id": 8,
        "rate": 0.1,
        "price": Decimal("12345678.1234"),
        "count": 0.5,
        "at": {"x": 2**40, "y": "z"},
        "tags": [2**40],
    }
    ns.produce("orders", [new])
    found = sorted(ns.snapshot().read("orders").to_pylist(), key=lambda row: row["id"])
    assert found == [expected | {"at": {"x": -128, "y": None}}, new]
    assert before.read("orders").to_pylist() == [expected]
    assert ns.snapshot().read("orders", filter=pa.compute.field("count") > 1).column("id").to_pylist() == [7]


def test_null_may_be_allowed_later(place: Place) -> None:
    ns = place.open()
    ns.create_topic("orders", pa.schema([pa.field("id", pa.int64(), nullable=False)]))
    with raises(SchemaMismatch):
        ns.produce("orders", [{"id": None}])
    ns.alter_topic("orders", widen={"id": pa.field("id", pa.int64())})
    ns.produce("orders", [{"id": None}])
    assert read(ns) == [None]


def test_what_is_so_already_writes_nothing(ns: Any, place: Place) -> None:
    ns.alter_topic("orders", add_columns=NOTE, properties={"user.owner": "ann"}, delta="auto")
    other = place.open()
    with Unchanged(place):
        for client in (ns, other):
            again = client.alter_topic("orders", pa.schema(NOTE), properties={"user.owner": "ann"}, delta="auto")
            assert again.properties == {"user.owner": "ann", "txnlog.delta": "auto"}
            assert client.alter_topic("orders").schema.names == ["id", "name", "note"]
            assert client.alter_topic("orders", widen={"id": pa.int64()}, add_columns=[]) == again


def test_properties_are_set_and_taken_away_one_by_one(ns: Any) -> None:
    assert ns.alter_topic("orders", properties={"user.a": "1", "user.b": "2"}).properties == {
        "user.a": "1",
        "user.b": "2",
    }
    assert ns.alter_topic("orders", properties={"user.a": None, "user.c": "3"}, delta="off").properties == {
        "user.b": "2",
        "user.c": "3",
        "txnlog.delta": "off",
    }
    assert ns.alter_topic("orders", delta="manual").properties == {"user.b": "2", "user.c": "3"}
    assert ns.topic("orders").schema == SCHEMA


@pytest.mark.clause("P-218")
@pytest.mark.parametrize(
    ("options", "error", "match"),
    [
        ({"add_columns": [("id", pa.string())]}, SchemaMismatch, "'id' is there as long"),
        ({"add_columns": [pa.field("x", pa.string(), nullable=False)]}, SchemaMismatch, "must allow null"),
        ({"add_columns": [("_x", pa.string())]}, SchemaMismatch, "reserved"),
        ({"add_columns": [("x", pa.uint8())]}, SchemaMismatch, "unsigned"),
        ({"add_columns": "note"}, InvalidInputError, "list of columns"),
        ({"add_columns": {"note": pa.string()}}, InvalidInputError, "list of columns"),
        ({"add_columns": ["note"]}, InvalidInputError, "list of columns"),
        ({"add_columns": 7}, InvalidInputError, "list of columns"),
        ({"widen": {"id": pa.int32()}}, SchemaMismatch, "'id' is long, which does not widen to integer"),
        ({"widen": {"id": pa.float64()}}, SchemaMismatch, "does not widen to double"),
        ({"widen": {"ID": pa.int64()}}, SchemaMismatch, "no column 'ID'"),
        ({"widen": {"id": pa.field("number", pa.int64())}}, SchemaMismatch, "cannot be renamed"),
        ({"widen": {"id": "long"}}, InvalidInputError, "new types"),
        ({"widen": [("id", pa.int64())]}, InvalidInputError, "dict"),
        ({"properties": {"a": 1}}, InvalidInputError, "texts"),
        ({"properties": {"txnlog.delta": "off"}}, InvalidInputError, "is reserved"),
        ({"delta": "yes"}, InvalidInputError, "unknown delta"),
        ({"add_columns": [("at", pa.timestamp("us"))]}, SchemaMismatch, "'at' has the type timestamp_ntz"),
        (
            {"add_columns": [("s", pa.struct([("at", pa.timestamp("us"))]))]},
            SchemaMismatch,
            "'s.at' has the type timestamp_ntz",
        ),
    ],
)
def test_what_cannot_be_is_refused_before_anything_is_written(
    ns: Any, place: Place, options: dict[str, Any], error: Any, match: str
) -> None:
    with Unchanged(place), raises(error, match):
        ns.alter_topic("orders", **options)


def test_a_topic_that_is_never_published_may_have_what_delta_lacks(ns: Any) -> None:
    ns.alter_topic("orders", add_columns=[("at", pa.timestamp("us"))], delta="off")
    ns.alter_topic("orders", add_columns=NOTE)
    with raises(SchemaMismatch, "'at' has the type timestamp_ntz"):
        ns.alter_topic("orders", delta="manual")


def test_a_topic_that_is_not_there_and_a_reader_are_refused(ns: Any, place: Place) -> None:
    with Unchanged(place):
        with raises(TopicNotFound, "order"):
            ns.alter_topic("order", add_columns=NOTE)
        with raises(NameNotAllowed):
            ns.alter_topic("a/b")
        with raises(ReadOnly):
            place.open(mode="r").alter_topic("orders", add_columns=NOTE)
    ns.drop_topic("orders")
    with raises(TopicNotFound):
        ns.alter_topic("orders", add_columns=NOTE)


@pytest.mark.clause("P-32")
def test_the_key_keeps_its_type(place: Place) -> None:
    ns = place.open()
    ns.create_topic("orders", pa.schema([("id", pa.int32())]), partitions=4, key="id")
    with Unchanged(place), raises(SchemaMismatch, "the key 'id' keeps its type"):
        ns.alter_topic("orders", widen={"id": pa.int64()})


def test_a_program_that_creates_the_topic_where_there_is_none_goes_on(ns: Any, place: Place) -> None:
    ns.alter_topic("orders", NOTE)
    ns.alter_topic("orders", [("more", pa.int64())])
    newest = ns.topic("orders")
    with Unchanged(place):
        for columns in (SCHEMA, newest.schema, pa.schema([*SCHEMA, *[pa.field(*item) for item in NOTE]])):
            assert ns.create_topic("orders", columns, if_not_exists=True) == newest
        with raises(TopicExists, "other columns"):
            ns.create_topic("orders", pa.schema([("id", pa.int64())]), if_not_exists=True)


LONG = [pa.field(f"column_{number}", pa.string()) for number in range(50)]


@pytest.mark.parametrize(
    ("asked", "text"),
    [
        (pa.field("a", pa.string(), nullable=False), "a: string instead of string not null ("),
        (
            pa.field("b", pa.map_(pa.string(), pa.field("value", pa.int64(), nullable=False))),
            "b.value: int64 instead of int64 not null (",
        ),
        (
            pa.field("c", pa.list_(pa.struct([pa.field("d", pa.int64(), nullable=False)]))),
            "c.element.d: int64 instead of int64 not null (",
        ),
        (pa.field("a", pa.int64()), "a: string instead of int64 ("),
        (pa.field("e", pa.int64(), nullable=False), "it does not have e: int64 not null ("),
        (None, "it also has c: list<element: struct<d: int64>> ("),
    ],
)
def test_a_topic_with_other_columns_is_refused_with_those_that_differ(
    ns: Any, place: Place, asked: pa.Field | None, text: str
) -> None:
    there = {
        "a": pa.field("a", pa.string()),
        "b": pa.field("b", pa.map_(pa.string(), pa.int64())),
        "c": pa.field("c", pa.list_(pa.struct([("d", pa.int64())]))),
    }
    ns.create_topic("wide", pa.schema([*LONG, *there.values()]))
    wanted = there | {asked.name: asked} if asked is not None else {name: there[name] for name in "ab"}
    with Unchanged(place), raises(TopicExists) as caught:
        ns.create_topic("wide", pa.schema([*LONG, *wanted.values()]), if_not_exists=True)
    assert f"exists with other columns: {text}" in str(caught.value)


# --- others, meanwhile ------------------------------------------------------------------------------------------------


@pytest.mark.clause("P-220")
@pytest.mark.parametrize("flushed", [False, True])
def test_a_transaction_that_began_before_commits_what_it_has(ns: Any, place: Place, flushed: bool) -> None:
    other = place.open()
    with ns.begin() as txn:
        txn.produce("orders", rows(1))
        if flushed:
            txn.flush()
        other.alter_topic("orders", add_columns=NOTE, widen={"id": pa.int64()})
        txn.produce("orders", rows(2))
        txn.produce("orders", [{"id": 3, "name": "n3", "note": "x"}])  # by now it is heard of
    assert ns.snapshot().read("orders").to_pylist() == [
        {"id": 1, "name": "n1", "note": None},
        {"id": 2, "name": "n2", "note": None},
        {"id": 3, "name": "n3", "note": "x"},
    ]


@pytest.mark.clause("P-220")
def test_rows_of_several_schemas_share_a_segment_of_the_newest(place: Place) -> None:
    ns, other = place.open(), place.open()
    columns = pa.schema([("id", pa.int32()), ("x", pa.struct([("a", pa.float32())]))])
    ns.create_topic("orders", columns, delta="off")
    with ns.begin() as txn:
        txn.produce("orders", [{"id": 1, "x": {"a": 0.5}}])
        wider = {"id": pa.int64(), "x": pa.struct([("a", pa.float64()), ("b", pa.string())])}
        other.alter_topic("orders", widen=wider)
        ns.snapshot()
        txn.produce("orders", [{"id": 2**40, "x": {"a": 0.1, "b": "y"}}])
    assert len(ns.snapshot().plan("orders").segments) == 1
    assert ns.snapshot().read("orders").to_pylist() == [
        {"id": 1, "x": {"a": 0.5, "b": None}},
        {"id": 2**40, "x": {"a": 0.1, "b": "y"}},
    ]


def test_rows_without_a_new_struct_that_requires_a_field_are_committed_and_merged(ns: Any) -> None:
    address = pa.struct([pa.field("city", pa.string(), False)])
    ns.produce("orders", rows(1), partition=0)
    with ns.begin() as txn:
        txn.produce("orders", rows(2), partition=0)
        ns.alter_topic("orders", add_columns=[("address", address)])
        txn.produce("orders", [{"id": 3, "address": {"city": "Oslo"}}], partition=0)
    ns.produce("orders", pa.table({"id": [4]}), partition=0)
    before = ns.snapshot().read("orders").to_pylist()
    assert [row["address"] for row in before] == [None, None, {"city": "Oslo"}, None]
    assert ns.optimize("orders").merged_segments == 3
    assert ns.snapshot().read("orders").to_pylist() == before
    assert ns.maintain().failures == {}


def test_a_client_that_has_not_heard_of_a_column_writes_it(ns: Any, place: Place) -> None:
    other = place.open()
    other.produce("orders", rows(1))
    ns.alter_topic("orders", add_columns=NOTE)
    other.produce("orders", [{"id": 2, "name": "n2", "note": "x"}])
    other.produce("orders", rows(3))
    assert ns.snapshot().read("orders").column("note").to_pylist() == [None, "x", None]


def test_a_producer_goes_on_with_its_sequences(ns: Any) -> None:
    producer = ns.producer("loader")
    first = producer.produce("orders", rows(1), partition=0, sequence=0)
    ns.alter_topic("orders", add_columns=NOTE)
    again = producer.produce("orders", rows(1), partition=0, sequence=0)
    assert again.duplicate
    assert again.offsets == first.offsets
    producer.produce("orders", [{"id": 2, "note": "x"}], partition=0, sequence=1)
    assert read(ns) == [1, 2]


def test_a_consumer_in_the_midst_of_receiving_gets_the_new_columns(ns: Any, place: Place) -> None:
    ns.produce("orders", rows(1, 2, 3))
    consumer = place.open().consumer("orders", "billing")
    assert ids(take(consumer, 1).table) == [1]
    ns.alter_topic("orders", add_columns=NOTE)
    ns.produce("orders", [{"id": 4, "note": "x"}])
    found = []
    while len(messages := take(consumer, 2)):
        found += messages.table.to_pylist()
        consumer.acknowledge(messages, cumulative=True)
    assert [(row["id"], row.get("note")) for row in found] == [(2, None), (3, None), (4, "x")]
    assert ns.subscription("orders", "billing").cursors[0].cursor == 4


def test_dead_letter_topics_follow_in_the_same_entry_and_theirs_too(place: Place, clock: ManualClock) -> None:
    ns = place.orders(clock=clock)
    shared = {"type": "shared", "max_redeliveries": 0}
    ns.create_subscription("orders", "billing", dead_letter_topic="dead", **shared)
    ns.create_subscription("orders", "shipping", dead_letter_topic="dead", **shared)
    ns.create_subscription("dead", "repair", dead_letter_topic="deader", **shared)
    before = ns.snapshot().version
    ns.alter_topic("orders", add_columns=NOTE)
    assert ns.snapshot().version == before + 1
    ns.produce("orders", [{"id": 1, "note": "x"}])
    for topic, name in (("orders", "billing"), ("dead", "repair")):
        consumer = ns.consumer(topic, name)
        consumer.negative_acknowledge(take(consumer))
        assert len(take(consumer)) == 0
    for name in ("dead", "deader"):
        assert ns.snapshot().read(name).column("note").to_pylist() == ["x"]


def test_a_dead_letter_topic_that_cannot_follow_refuses(place: Place) -> None:
    ns = place.orders()
    ns.create_subscription("orders", "billing", type="shared", max_redeliveries=1, dead_letter_topic="dead")
    ns.alter_topic("dead", add_columns=[("note", pa.int64())])
    with (
        Unchanged(place),
        raises(SchemaMismatch, "'dead', which takes dead letters of 'orders', cannot follow.*'note'"),
    ):
        ns.alter_topic("orders", add_columns=NOTE)
    ns.alter_topic("orders", add_columns=[("note", pa.int32())])
    ns.produce("orders", [{"id": 1, "note": 5}])
    consumer = ns.consumer("orders", "billing")
    for _ in range(2):
        consumer.negative_acknowledge(take(consumer))
    assert len(take(consumer)) == 0
    assert ns.snapshot().read("dead").column("note").to_pylist() == [5], "a wider column takes narrower rows"


def test_two_clients_that_alter_at_once_both_do(ns: Any, place: Place) -> None:
    clients = [place.open() for _ in range(4)]
    calls = [
        lambda client=client, number=number: client.alter_topic("orders", [(f"c{number % 2}", pa.int64())])
        for number, client in enumerate(clients)
    ]
    results = run_threads(*calls)
    assert not [item for item in results if isinstance(item, BaseException)]
    assert sorted(ns.topic("orders").schema.names) == ["c0", "c1", "id", "name"]
    record = ns._connection.topic_record("orders")
    assert len(record.schemas) == 3, "those that came second found it there"


def test_a_lost_race_is_decided_again_against_the_newest_columns(memory: Place) -> None:
    ns, store = memory.faulty_orders()
    other = memory.open()
    store.script.append(lambda: other.alter_topic("orders", [("note", pa.int64())]))
    with raises(SchemaMismatch, "'note' is there as long"):
        ns.alter_topic("orders", [("note", pa.string())])
    store.script.append(lambda: other.alter_topic("orders", [("more", pa.string())]))
    ns.alter_topic("orders", [("most", pa.string())])
    assert ns.topic("orders").schema.names == ["id", "name", "note", "more", "most"]


def test_a_lost_answer_is_no_failure_and_an_unknown_one_may_be_asked_again(memory: Place) -> None:
    ns, store = memory.faulty_orders()
    store.script.append("lost")
    assert ns.alter_topic("orders", NOTE).schema.names[-1] == "note"
    store.forever = "broken-after"
    store.reads_forever = "broken"
    with raises(OutcomeUnknown, durable=Durable.MAYBE):
        ns.alter_topic("orders", [("more", pa.string())])
    store.heal()
    assert ns.alter_topic("orders", [("more", pa.string())]).schema.names == ["id", "name", "note", "more"]
    assert len([call for call in store.calls if call[0] == "create" and is_entry(call[1])]) >= 2


def test_altered_columns_are_there_after_a_checkpoint_and_at_every_version(ns: Any, place: Place) -> None:
    versions: dict[int, list[str]] = {}
    for number in range(4):
        ns.produce("orders", [{"id": number}])
        ns.alter_topic("orders", [(f"c{number}", pa.int64())])
        versions[ns.snapshot().version] = ns.topic("orders").schema.names
        ns.checkpoint()
    other = place.open(mode="r")
    for version, names in versions.items():
        table = other.snapshot(version).read("orders")
        assert table.column_names == names
        assert table.num_rows == len(names) - 2


def test_time_is_no_part_of_it(place: Place, clock: ManualClock) -> None:
    ns = place.orders(clock=clock)
    clock.advance(1_000)
    ns.alter_topic("orders", NOTE)
    assert ns.snapshot(timestamp=START_MS + 500).read("orders").column_names == ["id", "name"]
    assert ns.snapshot(timestamp=START_MS + 1_500).read("orders").column_names == ["id", "name", "note"]


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (pa.int32(), pa.float64()),
        (pa.float32(), pa.float64()),
        (pa.decimal128(5, 2), pa.decimal128(12, 4)),
        (pa.list_(pa.int8()), pa.list_(pa.float64())),
    ],
)
def test_what_readers_of_delta_do_not_widen_is_refused_where_there_is_a_table(
    ns: Any, old: pa.DataType, new: pa.DataType
) -> None:
    """Also where the topic was never published before: its older files would be in the table."""
    ns.create_topic("wide", pa.schema([("x", old)]))
    ns.create_topic("alone", pa.schema([("x", old)]), delta="off")
    with raises(SchemaMismatch, match="'x.* widens from"):
        ns.alter_topic("wide", widen={"x": new})
    ns.alter_topic("alone", widen={"x": new})
    with raises(SchemaMismatch, match="'x.* widens from"):
        ns.alter_topic("alone", delta="manual")
    ns.alter_topic("wide", widen={"x": new}, delta="off")


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (pa.map_(pa.int32(), pa.int8()), pa.map_(pa.int64(), pa.int8())),
        (
            pa.list_(pa.map_(pa.struct([("a", pa.int8())]), pa.int8())),
            pa.list_(pa.map_(pa.struct([("a", pa.int8()), ("b", pa.int8())]), pa.int8())),
        ),
    ],
)
def test_keys_of_maps_do_not_widen_where_there_is_a_table(ns: Any, old: pa.DataType, new: pa.DataType) -> None:
    """Polars refuses to read the older files."""
    ns.create_topic("wide", pa.schema([("x", old)]))
    with raises(SchemaMismatch, match="the keys of the map 'x"):
        ns.alter_topic("wide", widen={"x": new})
    ns.alter_topic("wide", widen={"x": new}, delta="off")
    with raises(SchemaMismatch, match="the keys of the map 'x"):
        ns.alter_topic("wide", delta="auto")


FEWER = pa.struct([("a", pa.int8())])
MORE = pa.struct([("a", pa.int8()), ("b", pa.struct([("c", pa.string())]))])


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (pa.map_(pa.string(), FEWER), pa.map_(pa.string(), MORE)),
        (pa.struct([("m", pa.map_(pa.string(), FEWER))]), pa.struct([("m", pa.map_(pa.string(), MORE))])),
        (pa.list_(pa.map_(pa.string(), pa.list_(FEWER))), pa.list_(pa.map_(pa.string(), pa.list_(MORE)))),
    ],
)
def test_structs_inside_of_maps_get_no_fields_where_there_is_a_table(
    ns: Any, old: pa.DataType, new: pa.DataType
) -> None:
    """The queries of delta-rs refuse to read the older files."""
    ns.create_topic("wide", pa.schema([("x", old), ("s", FEWER)]))
    with raises(SchemaMismatch, match=r"the map 'x.* gets the field 'x.*b.c'"):
        ns.alter_topic("wide", widen={"x": new})
    ns.alter_topic("wide", [("another", new)], widen={"s": MORE})
    ns.alter_topic("wide", widen={"x": new}, delta="off")
    with raises(SchemaMismatch, match=r"the map 'x.* gets the field 'x.*b.c'"):
        ns.alter_topic("wide", delta="auto")


def test_columns_whose_names_hold_dots_are_no_fields_of_others(ns: Any) -> None:
    fields = pa.struct([("b", pa.float64())])
    ns.create_topic("apart", pa.schema([("a.b", pa.string()), ("a", fields)]))
    ns.alter_topic("apart", NOTE)
    ns.create_topic("wide", pa.schema([("a.b", pa.int32()), ("a", fields)]))
    with raises(SchemaMismatch, match="'a.b' widens from"):
        ns.alter_topic("wide", widen={"a.b": pa.float64()})


def test_what_was_widened_before_that_was_refused_stands_in_the_way_of_no_other_change(ns: Any) -> None:
    wide = ns.create_topic("wide", pa.schema([("x", pa.float32())])).id
    older = AlterTopic(wide, schemas.from_arrow(pa.schema([("x", pa.float64())])))
    ns._connection.appender.call(Simple(lambda _draft, _at: [older], lambda _draft, _at: None))
    ns.alter_topic("wide", NOTE, delta="auto")
    ns.alter_topic("wide", delta="off")
    with raises(SchemaMismatch, match="'x' widens from"):
        ns.alter_topic("wide", delta="manual")
