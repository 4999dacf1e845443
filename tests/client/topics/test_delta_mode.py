"""Whether a topic is published as a Delta table: what ``create_topic`` stores, and what it refuses."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from tests.client.support import SCHEMA, Place, Unchanged, raises
from txnlog.errors import InvalidInputError, SchemaMismatch, TopicExists
from txnlog.format.delta_mode import DELTA

LOCAL = pa.timestamp("us")
NESTED = {
    "at": LOCAL,
    "list": pa.list_(LOCAL),
    "map": pa.map_(pa.string(), LOCAL),
    "keys": pa.map_(LOCAL, pa.string()),
    "items": pa.list_(pa.struct([("seen", pa.map_(pa.string(), pa.list_(LOCAL)))])),
}
PATHS = {
    "at": "at",
    "list": "list.element",
    "map": "map.value",
    "keys": "keys.key",
    "items": "items.element.seen.value.element",
}


@pytest.mark.parametrize("mode", ["auto", "manual", "off"])
def test_the_mode_is_a_property_and_the_default_is_left_out(sales: Any, memory: Place, mode: str) -> None:
    sales.create_topic("new", SCHEMA, properties={"user.owner": "billing"}, delta=mode)
    wanted = {"user.owner": "billing"} if mode == "manual" else {"user.owner": "billing", "txnlog.delta": mode}
    properties = memory.open().topic("new").properties
    assert properties == wanted
    assert DELTA.of(properties) == mode


def test_a_mode_that_is_a_text_of_another_class_is_kept_as_the_word_itself(sales: Any) -> None:
    """Such as an element of an array of NumPy, or of an enumeration."""

    class Text(str):
        __slots__ = ()

    sales.create_topic("texts", delta=Text("auto"))
    assert type(sales.topic("texts").properties["txnlog.delta"]) is str


def test_a_topic_is_manual_by_default(sales: Any) -> None:
    assert sales.topic("orders").properties == {}
    assert DELTA.of({}) == "manual"


def test_a_mode_of_a_newer_txnlog_counts_as_the_default() -> None:
    assert DELTA.of({"txnlog.delta": "hourly"}) == "manual"


def test_a_mode_takes_the_place_of_the_one_before() -> None:
    assert DELTA.put_into({"txnlog.delta": "auto", "a": "b"}, "off") == {"a": "b", "txnlog.delta": "off"}
    assert DELTA.put_into({"txnlog.delta": "auto", "a": "b"}, "manual") == {"a": "b"}


@pytest.mark.parametrize("mode", ["on", "", "AUTO", True, 7])
def test_an_unknown_mode_is_refused(sales: Any, memory: Place, mode: Any) -> None:
    with Unchanged(memory), raises(InvalidInputError, match="unknown delta"):
        sales.create_topic("new", SCHEMA, delta=mode)


@pytest.mark.parametrize(("name", "advice"), [("txnlog.delta", "use delta="), ("txnlog.other", "begin with 'user.'")])
def test_reserved_properties_are_refused(sales: Any, memory: Place, name: str, advice: str) -> None:
    with Unchanged(memory), raises(InvalidInputError, match=advice):
        sales.create_topic("new", SCHEMA, properties={name: "auto"})


@pytest.mark.parametrize("mode", [None, "manual", "auto"])
@pytest.mark.parametrize("column", NESTED)
def test_a_type_that_delta_lacks_is_refused_by_its_column_and_both_ways_out(
    sales: Any, memory: Place, column: str, mode: str | None
) -> None:
    schema = pa.schema([("id", pa.int64()), (column, NESTED[column])])
    with Unchanged(memory), raises(SchemaMismatch, match=f"'{PATHS[column]}' has the type timestamp_ntz") as caught:
        sales.create_topic("new", schema, delta=mode)
    assert "delta='off'" in str(caught.value)
    assert 'pa.timestamp("us", "UTC")' in str(caught.value)


@pytest.mark.parametrize("column", NESTED)
def test_a_topic_that_is_never_published_may_have_it(sales: Any, column: str) -> None:
    schema = pa.schema([(column, NESTED[column])])
    assert sales.create_topic("new", schema, delta="off").schema.field(column).type == NESTED[column]


def test_a_topic_that_exists_with_another_mode_is_reported(sales: Any, memory: Place) -> None:
    sales.create_topic("new", SCHEMA, delta="auto")
    assert sales.create_topic("new", SCHEMA, if_not_exists=True).name == "new"
    assert sales.create_topic("new", SCHEMA, if_not_exists=True, delta="auto").name == "new"
    with Unchanged(memory), raises(TopicExists, match="delta: 'auto' instead of 'manual'"):
        sales.create_topic("new", SCHEMA, if_not_exists=True, delta="manual")


@pytest.mark.parametrize("mode", ["auto", "manual", "off"])
def test_a_dead_letter_topic_has_the_mode_of_its_source(sales: Any, mode: str) -> None:
    sales.create_topic("new", SCHEMA, delta=mode)
    sales.create_subscription("new", "billing", type="shared", max_redeliveries=1, dead_letter_topic="dead")
    assert DELTA.of(sales.topic("dead").properties) == mode
