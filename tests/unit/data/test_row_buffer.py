"""What producers hand over becomes rows of exactly the topic's schema, or SchemaMismatch names the column."""

from __future__ import annotations

import datetime as dt
import decimal
import enum
import math
import zoneinfo
from typing import Any

import numpy as np
import pandas as pd
import polars
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.effort import tries
from tests.unit.arrow_strategies import junk, schemas, tables
from txnlog.data import arrow_coercion, row_buffer, segment_file
from txnlog.data.row_buffer import RowBuffer, concat, conform
from txnlog.errors import InvalidInputError, SchemaMismatch, StoreError

ROME = zoneinfo.ZoneInfo("Europe/Rome")
NOON = dt.datetime.fromisoformat("2026-11-21T12:00")
MIDNIGHT = dt.datetime.fromisoformat("2026-11-21T00:00")
UTC_NOON = NOON.replace(tzinfo=dt.UTC)
UTC_TYPE = pa.timestamp("us", "UTC")
DEFAULT = pa.schema([("key", pa.binary()), ("value", pa.binary()), ("headers", pa.map_(pa.string(), pa.binary()))])


def one(kind: pa.DataType, *, nullable: bool = True) -> pa.Schema:
    return pa.schema([pa.field("x", kind, nullable)])


def stored(value: object, kind: pa.DataType) -> object:
    """What a dict's value becomes."""
    return conform({"x": value}, one(kind), topic="t")["x"][0].as_py()


def stored_array(array: pa.Array, kind: pa.DataType) -> list[object]:
    """What an Arrow column becomes."""
    result = conform(pa.table({"x": array}), one(kind), topic="t")
    assert result.schema.equals(one(kind))
    result.validate(full=True)
    return result["x"].to_pylist()


class Colour(enum.StrEnum):
    RED = "red"


class Level(enum.IntEnum):
    HIGH = 3


# --- values -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("value", "kind", "expected"),
    [
        (b"a", pa.binary(), b"a"),
        (bytearray(b"a"), pa.binary(), b"a"),
        (memoryview(b"abc")[::2], pa.binary(), b"ac"),
        ("é", pa.binary(), "é".encode()),
        (np.bytes_(b"a"), pa.binary(), b"a"),
        ("é", pa.string(), "é"),
        ("", pa.string(), ""),
        (Colour.RED, pa.string(), "red"),
        (np.str_("a"), pa.string(), "a"),
        (True, pa.bool_(), True),
        (np.bool_(True), pa.bool_(), True),
        (127, pa.int8(), 127),
        (-128, pa.int8(), -128),
        (2**63 - 1, pa.int64(), 2**63 - 1),
        (-(2**63), pa.int64(), -(2**63)),
        (np.uint64(7), pa.int8(), 7),
        (Level.HIGH, pa.int32(), 3),
        (3.0, pa.int32(), 3),
        (decimal.Decimal("3.00"), pa.int32(), 3),
        (2**53, pa.float64(), 2.0**53),
        (2**80, pa.float64(), 2.0**80),
        (2**25, pa.float32(), 2.0**25),
        (0.1, pa.float32(), float(np.float32(0.1))),
        (np.float64(0.1), pa.float64(), 0.1),
        (np.float32(0.5), pa.float64(), 0.5),
        (math.inf, pa.float32(), math.inf),
        (dt.date(2026, 11, 21), pa.date32(), dt.date(2026, 11, 21)),
        (MIDNIGHT, pa.date32(), dt.date(2026, 11, 21)),
        (UTC_NOON, UTC_TYPE, UTC_NOON),
        (NOON.replace(tzinfo=ROME), UTC_TYPE, UTC_NOON - dt.timedelta(hours=1)),
        (pd.Timestamp(NOON, tz="Europe/Rome"), UTC_TYPE, UTC_NOON - dt.timedelta(hours=1)),
        (NOON, pa.timestamp("us"), NOON),
        (np.datetime64("2026-11-21T12:00:00"), pa.timestamp("us"), NOON),
        (decimal.Decimal("1E+3"), pa.decimal128(6, 2), decimal.Decimal("1000.00")),
        (decimal.Decimal("-0.10"), pa.decimal128(2, 1), decimal.Decimal("-0.1")),
        (decimal.Decimal("0E-30"), pa.decimal128(2, 1), decimal.Decimal("0.0")),
        (decimal.Decimal("9" * 38), pa.decimal128(38, 0), decimal.Decimal("9" * 38)),
        (decimal.Decimal("0." + "9" * 38), pa.decimal128(38, 38), decimal.Decimal("0." + "9" * 38)),
        (12, pa.decimal128(4, 2), decimal.Decimal("12.00")),
        (pd.NA, pa.int64(), None),
        (pd.NaT, UTC_TYPE, None),
        ((1, None), pa.list_(pa.int64()), [1, None]),
        (np.array([1, 2]), pa.list_(pa.int64()), [1, 2]),
        ({"a": b"1"}, DEFAULT.field("headers").type, [("a", b"1")]),
        ([("a", b"1"), ["a", None]], DEFAULT.field("headers").type, [("a", b"1"), ("a", None)]),
        ({}, DEFAULT.field("headers").type, []),
        ({"b": 1}, pa.struct([("a", pa.string()), ("b", pa.int8())]), {"a": None, "b": 1}),
    ],
)
def test_a_value_that_fits_is_stored_unchanged(value, kind, expected):
    assert stored(value, kind) == expected


@pytest.mark.parametrize(
    ("value", "kind"),
    [
        (b"a", pa.string()),
        ("\ud800", pa.string()),
        ("\ud800", pa.binary()),
        (1, pa.binary()),
        (1, pa.string()),
        (1, pa.bool_()),
        (True, pa.int64()),
        (True, pa.float64()),
        (True, pa.float32()),
        (True, pa.decimal128(4, 2)),
        ("1", pa.int64()),
        (128, pa.int8()),
        (-(2**63) - 1, pa.int64()),
        (2**200, pa.int64()),
        (1.5, pa.int64()),
        (math.nan, pa.int64()),
        (np.uint64(2**63), pa.int64()),
        (2**53 + 1, pa.float64()),
        (10**400, pa.float64()),
        (2**24 + 1, pa.float32()),
        (1e300, pa.float32()),
        (NOON, UTC_TYPE),
        (dt.date(2026, 11, 21), UTC_TYPE),
        (dt.date(2026, 11, 21), pa.timestamp("us")),
        (dt.datetime(1, 1, 1, tzinfo=dt.timezone(dt.timedelta(hours=1))), UTC_TYPE),
        (UTC_NOON, pa.timestamp("us")),
        (pd.Timestamp("2026-11-21T12:00:00.000000001", tz="UTC"), UTC_TYPE),
        (np.datetime64("2026-11-21T12:00:00.000000001"), pa.timestamp("us")),
        ("2026-11-21", pa.date32()),
        (NOON, pa.date32()),
        (UTC_NOON, pa.date32()),
        (0.5, pa.decimal128(4, 2)),
        (decimal.Decimal("0.001"), pa.decimal128(4, 2)),
        (decimal.Decimal(100), pa.decimal128(4, 2)),
        (decimal.Decimal("NaN"), pa.decimal128(4, 2)),
        (decimal.Decimal("Infinity"), pa.decimal128(4, 2)),
        (dt.timedelta(1), pa.int64()),
        (object(), pa.int64()),
        ({1: 2}, pa.int64()),
        ([1], pa.int64()),
        ("ab", pa.list_(pa.string())),
        ({"a": 1}, pa.list_(pa.string())),
        ([["a"]], DEFAULT.field("headers").type),
        ([1], DEFAULT.field("headers").type),
        ({None: b""}, DEFAULT.field("headers").type),
        ([1], pa.struct([("a", pa.int64())])),
    ],
)
def test_a_value_that_does_not_fit_is_refused_with_topic_column_and_row(value, kind):
    buffer = RowBuffer(one(kind), "orders")
    with pytest.raises(
        SchemaMismatch, match=r"topic 'orders', column 'x(\.[a-z]+)?' \(row 1\): .* \(.*nothing was written"
    ):
        buffer.append([{}, {"x": value}])
    assert buffer.rows == buffer.to_table().num_rows == 0


@pytest.mark.parametrize("value", [0.5, "0.50", np.float64(0.5)])
@pytest.mark.parametrize("nested", [False, True])
def test_a_float_or_text_for_a_decimal_is_refused_with_the_way_out(value, nested):
    kind = pa.decimal128(4, 2)
    schema, row = (one(pa.list_(kind)), {"x": [value]}) if nested else (one(kind), {"x": value})
    with pytest.raises(SchemaMismatch, match=type(value).__name__) as caught:
        conform([row], schema, topic="t")
    assert "use decimal.Decimal" in caught.value.advice


def test_a_message_never_shows_a_value():
    with pytest.raises(SchemaMismatch) as caught:
        conform([{"x": "secret"}], one(pa.int64()), topic="t")
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize(
    ("kind", "value", "path"),
    [
        (pa.list_(pa.field("element", pa.int64(), False)), [1, None], "x.element"),
        (pa.list_(pa.list_(pa.int8())), [[1], [300]], "x.element.element"),
        (pa.struct([pa.field("a", pa.int64(), False)]), {}, "x.a"),
        (pa.struct([pa.field("a", pa.struct([("b", pa.int8())]))]), {"a": {"b": "no"}}, "x.a.b"),
        (pa.map_(pa.string(), pa.field("value", pa.int64(), False)), {"a": None}, "x.value"),
        (pa.map_(pa.string(), pa.int64()), {1: 1}, "x.key"),
    ],
)
def test_the_error_names_the_way_into_a_nested_column(kind, value, path):
    with pytest.raises(SchemaMismatch, match=f"column '{path}'"):
        conform([{"x": value}], one(kind), topic="t")


def test_an_unknown_key_is_refused_and_the_nearest_column_offered():
    with pytest.raises(SchemaMismatch, match=r"topic 't' has no column 'vlaue' \(row 1\) \(did you mean 'value'"):
        conform([{}, {"vlaue": b"1"}], DEFAULT, topic="t")
    with pytest.raises(SchemaMismatch, match=r"'x' .*: the struct has no field 'aa' .*did you mean 'a'"):
        conform([{"x": {"aa": 1}}], one(pa.struct([("a", pa.int64())])), topic="t")


def test_an_unknown_column_is_left_out_or_added_unless_it_differs_in_case_only():
    with pytest.raises(SchemaMismatch, match=r"leave .* out, or first add it: ns.alter_topic\('t', add_") as told:
        conform([{"value2": b"1"}], DEFAULT, topic="t")
    assert told.value.advice.startswith("did you mean 'value'?; ")
    with pytest.raises(SchemaMismatch) as told:
        conform([{"VALUE": b"1"}], DEFAULT, topic="t")
    assert told.value.advice == "names are case-sensitive: did you mean 'value'?"


def test_a_key_that_is_no_text_is_refused():
    with pytest.raises(SchemaMismatch, match="has no column '<int>'"):
        conform([{1: b""}], DEFAULT, topic="t")


def test_null_in_a_column_that_is_never_null_is_refused_whether_given_or_left_out():
    schema = one(pa.int64(), nullable=False)
    for row in ({}, {"x": None}, {"x": pd.NA}):
        with pytest.raises(SchemaMismatch, match=r"column 'x'.*not null .*ns.alter_topic\('t', widen={'x': pa.field"):
            conform([row], schema, topic="t")


@pytest.mark.parametrize("as_table", [False, True])
def test_null_that_a_nested_field_refuses_is_reported_with_the_alteration_that_allows_it(as_table: bool):
    kind = pa.struct([pa.field("a", pa.list_(pa.field("element", pa.int64(), nullable=False)))])
    given = [{"x": {"a": [1, None]}}]
    with pytest.raises(
        SchemaMismatch, match=r"'x\.a\.element'.*not null .*widen={'x': pa\.field\('x', its type, with 'x"
    ):
        conform(pa.Table.from_pylist(given) if as_table else given, one(kind), topic="t")


@pytest.mark.parametrize("as_table", [False, True])
def test_a_key_of_a_map_is_never_null_and_nothing_is_offered_that_would_allow_it(as_table: bool):
    pairs = [{"key": None, "value": b""}]
    given = pa.table({"x": [pairs]}) if as_table else [{"x": [(None, b"")]}]
    with pytest.raises(SchemaMismatch, match=r"'x\.key'.*: null in the place of a key of a map \(give a key; nothing"):
        conform(given, one(pa.map_(pa.string(), pa.binary())), topic="t")


# --- Arrow data -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("array", "kind", "expected"),
    [
        (pa.array([1, None], pa.int32()), pa.int64(), [1, None]),
        (pa.array([1, None], pa.uint64()), pa.int8(), [1, None]),
        (pa.array([1.0, None]), pa.int64(), [1, None]),
        (pa.array([2**53, 2**60]), pa.float64(), [2.0**53, 2.0**60]),
        (pa.array([2**25], pa.int32()), pa.float32(), [2.0**25]),
        (pa.array([0.5, None, math.inf]), pa.float32(), [0.5, None, math.inf]),
        (pa.array([np.float16(0.5)]), pa.float64(), [0.5]),
        (pa.array(["é"], pa.large_string()), pa.string(), ["é"]),
        (pa.array(["é"], pa.string_view()), pa.binary(), ["é".encode()]),
        (pa.array([b"ab"], pa.binary(2)), pa.binary(), [b"ab"]),
        (pa.array(["a", None, "a"]).dictionary_encode(), pa.string(), ["a", None, "a"]),
        (pc.run_end_encode(pa.array([1, 1, 2])), pa.int64(), [1, 1, 2]),
        (pa.nulls(2), pa.int64(), [None, None]),
        (pa.nulls(1), DEFAULT.field("headers").type, [None]),
        (pa.array([1000], pa.timestamp("ns", "Europe/Rome")), UTC_TYPE, [dt.datetime(1970, 1, 1, 0, 0, 0, 1, dt.UTC)]),
        (pa.array([1], pa.timestamp("s")), pa.timestamp("us"), [dt.datetime.fromisoformat("1970-01-01T00:00:01")]),
        (pa.array([MIDNIGHT, None]), pa.date32(), [dt.date(2026, 11, 21), None]),
        (pa.array([dt.date(2026, 11, 21)], pa.date64()), pa.date32(), [dt.date(2026, 11, 21)]),
        (pa.array([12, None]), pa.decimal128(4, 2), [decimal.Decimal("12.00"), None]),
        (pa.array([decimal.Decimal("1.20")], pa.decimal256(50, 5)), pa.decimal128(4, 2), [decimal.Decimal("1.20")]),
        (pa.array([decimal.Decimal("3.00")]), pa.int64(), [3]),
        (pa.array([[1, None], None, []], pa.large_list(pa.int32())), pa.list_(pa.int64()), [[1, None], None, []]),
        (pa.array([[1, 2], None], pa.list_(pa.int32(), 2)), pa.list_(pa.int64()), [[1, 2], None]),
        (pa.array([[1, 2], None], pa.list_view(pa.int32())), pa.list_(pa.int64()), [[1, 2], None]),
        (
            pa.array([{"b": 1, "a": "x"}, None]),
            pa.struct([("a", pa.binary()), ("b", pa.int8()), ("c", pa.string())]),
            [{"a": b"x", "b": 1, "c": None}, None],
        ),
        (
            pa.array([[("a", 1)], None, []], pa.map_(pa.large_string(), pa.int64())),
            pa.map_(pa.string(), pa.int8()),
            [[("a", 1)], None, []],
        ),
        (pa.array([[{"key": "a", "value": 1}], None]), pa.map_(pa.string(), pa.int8()), [[("a", 1)], None]),
    ],
)
def test_an_arrow_column_that_fits_is_converted_without_loss(array, kind, expected):
    assert stored_array(array, kind) == expected
    # Slices and chunks see the same values.
    assert stored_array(pa.chunked_array([array.slice(1), array.slice(0, 1)]), kind) == expected[1:] + expected[:1]


@pytest.mark.parametrize(
    ("array", "kind"),
    [
        (pa.array([300]), pa.int8()),
        (pa.array([1.5]), pa.int64()),
        (pa.array([math.nan]), pa.int64()),
        (pa.array([2**53 + 1]), pa.float64()),
        (pa.array([2**63 - 1]), pa.float64()),
        (pa.array([0.1]), pa.float32()),
        (pa.array([1e300]), pa.float32()),
        (pa.array([0.1]), pa.decimal128(4, 2)),
        (pa.array([decimal.Decimal("0.5")]), pa.float64()),
        (pa.array([decimal.Decimal("0.001")]), pa.decimal128(4, 2)),
        (pa.array([decimal.Decimal("100.00")]), pa.decimal128(4, 2)),
        (pa.array([100]), pa.decimal128(4, 2)),
        (pa.array([True]), pa.int64()),
        (pa.array([1]), pa.bool_()),
        (pa.array(["1"]), pa.int64()),
        (pa.array([1]), pa.string()),
        (pa.array([b"a"]), pa.string()),
        (pa.array([1], pa.timestamp("ns")), pa.timestamp("us")),
        (pa.array([1], pa.timestamp("us")), UTC_TYPE),
        (pa.array([1], UTC_TYPE), pa.timestamp("us")),
        (pa.array([2**60], pa.timestamp("s")), pa.timestamp("us")),
        (pa.array([NOON]), pa.date32()),
        (pa.array([UTC_NOON]), pa.date32()),
        (pa.array([dt.date(2026, 11, 21)]), pa.timestamp("us")),
        (pa.array([dt.timedelta(1)]), pa.int64()),
        (pa.array([[1]]), pa.int64()),
        (pa.array([1]), pa.list_(pa.int64())),
        (pa.array([1]), pa.struct([("a", pa.int64())])),
        (pa.array([1]), DEFAULT.field("headers").type),
        (pa.array([{"b": 1}]), pa.struct([("a", pa.int64())])),
        (pa.array([[1, None]]), pa.list_(pa.field("element", pa.int64(), False))),
        (pa.array([{"a": None}]), pa.struct([pa.field("a", pa.int64(), False)])),
        (pa.array([{"b": 1}]), pa.struct([pa.field("a", pa.int64(), False), ("b", pa.int64())])),
        (
            pa.array([[("a", None)]], pa.map_(pa.string(), pa.int64())),
            pa.map_(pa.string(), pa.field("value", pa.int64(), False)),
        ),
        (pa.array([[{"key": None, "value": 1}]]), pa.map_(pa.string(), pa.int64())),
        (pa.array([[None, {"key": "a", "value": 1}]]), pa.map_(pa.string(), pa.int64())),
        (pa.array([["a"]]), pa.map_(pa.string(), pa.int64())),
    ],
)
def test_an_arrow_column_that_does_not_fit_is_refused(array, kind):
    with pytest.raises(SchemaMismatch, match=r"topic 't', column 'x"):
        stored_array(array, kind)
    with pytest.raises(SchemaMismatch, match=r"topic 't', column 'x"):
        stored_array(pa.chunked_array([array, array]), kind)


WITHOUT = pa.timestamp("us")


@pytest.mark.parametrize(
    ("kind", "data", "way"),
    [
        (UTC_TYPE, [{"x": NOON}], r"value\.replace\(tzinfo"),
        (UTC_TYPE, [{"x": pd.Timestamp(NOON)}], r"tz_localize\('UTC'\)"),
        (UTC_TYPE, [{"x": np.datetime64(NOON)}], r"tz_localize\('UTC'\)"),
        (UTC_TYPE, pd.DataFrame({"x": [pd.Timestamp(NOON)]}), r"tz_localize\('UTC'\)"),
        (UTC_TYPE, pa.table({"x": [NOON]}), r"assume_timezone\(column, 'UTC'\)"),
        (pa.list_(UTC_TYPE), pa.table({"x": [[NOON]]}), r"assume_timezone\(column, 'UTC'\)"),
        (WITHOUT, [{"x": UTC_NOON}], "leave the zone out"),
        (WITHOUT, [{"x": pd.Timestamp(UTC_NOON)}], r"tz_localize\(None\)"),
        (WITHOUT, pd.DataFrame({"x": [pd.Timestamp(UTC_NOON)]}), r"tz_localize\(None\)"),
        (WITHOUT, pa.table({"x": [UTC_NOON]}), r"local_timestamp\(column\)"),
    ],
)
def test_a_zone_that_is_missing_or_too_much_is_reported_the_same_way_in_every_kind_of_input(kind, data, way):
    what = "a datetime with a zone in a timestamp without one" if kind == WITHOUT else "a naive datetime in a timestamp"
    with pytest.raises(SchemaMismatch, match=rf"column 'x(\.element)?'.*: {what}.*{way}"):
        conform(data, one(kind), topic="t")


def test_the_ways_out_of_a_wrong_zone_are_ways_out():
    naive, aware = pa.array([NOON]), pa.array([UTC_NOON], UTC_TYPE)
    assert stored_array(pc.assume_timezone(naive, "UTC"), UTC_TYPE) == [UTC_NOON]
    assert stored_array(pc.local_timestamp(aware), WITHOUT) == [NOON]
    frame = pd.DataFrame({"x": naive.to_pandas()})
    frame["x"] = frame["x"].dt.tz_localize("UTC")
    assert conform(frame, one(UTC_TYPE), topic="t")["x"].to_pylist() == [UTC_NOON]
    frame["x"] = frame["x"].dt.tz_localize(None)
    assert conform(frame, one(WITHOUT), topic="t")["x"].to_pylist() == [NOON]


def test_what_is_no_number_is_one_value_in_every_width():
    for source in (pa.float64(), pa.float16()):
        (value,) = stored_array(pa.array([np.float16(math.nan)]).cast(source), pa.float32())
        assert isinstance(value, float)
        assert math.isnan(value)


def test_null_inside_is_refused_also_where_the_type_is_the_wanted_one():
    kind = pa.list_(pa.field("element", pa.int64(), False))
    array = pa.array([[1], [None]], kind)
    assert array.type == kind
    with pytest.raises(SchemaMismatch, match=r"column 'x\.element'"):
        stored_array(array, kind)


def test_what_lies_below_a_null_struct_or_list_is_no_fault():
    inner = pa.struct([pa.field("a", pa.int64(), False)])
    rows_ = [{"a": 1}, None]
    assert stored_array(pa.array(rows_, inner), inner) == rows_
    outer = pa.struct([pa.field("s", inner, False), pa.field("l", pa.list_(pa.field("element", inner, False)))])
    nested = [{"s": {"a": 1}, "l": [{"a": 2}]}, None, {"s": {"a": 3}, "l": None}]
    assert stored_array(pa.array(nested, outer), outer) == nested
    # A null list may have elements in memory, which nobody may see.
    masked = pa.ListArray.from_arrays(
        pa.array([0, 1, 2], pa.int32()), pa.array([1, None], pa.int32()), mask=pa.array([False, True])
    )
    assert stored_array(masked, pa.list_(pa.field("element", pa.int64(), False))) == [[1], None]
    junk_below = pa.StructArray.from_arrays([pa.array([1, 300])], names=["a"], mask=pa.array([False, True]))
    assert stored_array(junk_below, pa.struct([("a", pa.int8())])) == [{"a": 1}, None]


REQUIRED = [
    (pa.int64(), 1),
    (pa.bool_(), True),
    (pa.string(), "a"),
    (pa.binary(), b"b"),
    (pa.decimal128(10, 2), decimal.Decimal("1.25")),
    (pa.timestamp("us", "UTC"), dt.datetime(2020, 1, 1, tzinfo=dt.UTC)),
    (pa.list_(pa.field("element", pa.int64(), False)), [1, 2]),
    (pa.map_(pa.string(), pa.int64()), [("k", 1)]),
    (pa.struct([pa.field("x", pa.string(), False)]), {"x": "y"}),
]


@pytest.mark.parametrize(("kind", "value"), REQUIRED, ids=lambda item: str(item)[:12])
@pytest.mark.parametrize("holes", [[None, 1, None, 1], [None, None], [1]], ids=["mixed", "all", "none"])
def test_a_null_struct_with_a_required_field_can_be_stored(kind, value, holes):
    given_type = pa.struct([pa.field("a", kind), pa.field("b", pa.int64())])
    wanted = pa.schema([("s", pa.struct([pa.field("a", kind, False), pa.field("b", pa.int64())]))])
    items = [None if hole is None else {"a": value, "b": 2} for hole in holes]
    array = pa.array(items, given_type)
    for column in (array, array.slice(1), pa.chunked_array([array, array])):
        table = conform(pa.table({"s": column}), wanted, topic="t")
        stored = segment_file.encode(table)
        read = segment_file.decode(stored.data, stored.checksum, schema=wanted, rows=table.num_rows, key="k")
        assert read.column("s").to_pylist() == column.to_pylist()


def test_a_missing_column_is_null_unless_it_may_not_be():
    table = pa.table({"value": [b"1"]})
    assert conform(table, DEFAULT, topic="t").to_pylist() == [{"key": None, "value": b"1", "headers": None}]
    strict = pa.schema([pa.field("key", pa.binary(), False), ("value", pa.binary())])
    with pytest.raises(SchemaMismatch, match="column 'key': null, or missing"):
        conform(table, strict, topic="t")


def test_columns_come_in_any_order_and_leave_in_the_schemas():
    table = pa.table({"value": ["b"], "key": ["a"]})
    result = conform(table, DEFAULT, topic="t")
    assert result.schema.equals(DEFAULT)
    assert result.to_pylist() == [{"key": b"a", "value": b"b", "headers": None}]


def test_a_column_that_is_there_twice_is_refused():
    table = pa.Table.from_arrays([pa.array([b""]), pa.array([b""])], names=["key", "key"])
    with pytest.raises(SchemaMismatch, match="column 'key' is there twice"):
        conform(table, DEFAULT, topic="t")


@pytest.mark.parametrize("data", [[{"value": b"", "_offset": 1}], pa.table({"value": [b""], "_offset": [1]})])
def test_a_column_that_reading_adds_is_refused_with_how_to_forward_the_others(data):
    with pytest.raises(SchemaMismatch, match=r"no column '_offset'.*table\.select\(\['key', 'value', 'headers'\]\)"):
        conform(data, DEFAULT, topic="t")


def test_an_unknown_column_is_refused_and_the_nearest_offered():
    with pytest.raises(SchemaMismatch, match=r"topic 't' has no column 'vlaue' \(did you mean 'value'\?; or leave the"):
        conform(pa.table({"vlaue": [b""]}), DEFAULT, topic="t")


@pytest.mark.parametrize("as_table", [False, True])
def test_a_name_of_other_case_is_named_as_such_and_that_the_right_one_is_there_as_well(as_table: bool):
    alone: dict[str, bytes] = {"Value": b""}
    for row, told in (
        (alone, "case-sensitive: did you mean 'value'"),
        ({"value": b"", **alone}, "have 'value' as well"),
    ):
        with pytest.raises(SchemaMismatch, match=rf"topic 't' has no column 'Value' .*{told}"):
            conform(pa.Table.from_pylist([row]) if as_table else [row], DEFAULT, topic="t")


def test_arrow_data_that_lies_about_itself_is_refused():
    broken = pa.Array.from_buffers(pa.string(), 1, [None, pa.py_buffer(b"\0\0\0\0\2\0\0\0"), pa.py_buffer(b"\xff\xfe")])
    with pytest.raises(SchemaMismatch, match="not valid Arrow data"):
        conform(pa.table({"x": broken}), one(pa.string()), topic="t")


def test_columns_too_big_for_one_array_are_taken_in_parts(monkeypatch):
    monkeypatch.setattr(arrow_coercion, "MAX_PART_BYTES", 100)
    array = pa.array([str(i) * 10 for i in range(100)], pa.large_string())
    assert stored_array(array, pa.string()) == array.to_pylist()


# --- kinds of input ---------------------------------------------------------------------------------------------------

ROWS = [{"id": 1, "name": "a"}, {"id": 2, "name": None}]
SMALL = pa.schema([("id", pa.int32()), ("name", pa.string())])


class OnlyStream:
    def __arrow_c_stream__(self, requested_schema=None):
        return pa.Table.from_pylist(ROWS).__arrow_c_stream__(requested_schema)


class OnlyArray:
    def __arrow_c_array__(self, requested_schema=None):
        return pa.RecordBatch.from_pylist(ROWS).__arrow_c_array__(requested_schema)


def duckdb_relation():
    import duckdb

    return duckdb.sql("select * from (values (1, 'a'), (2, null)) t(id, name)")


@pytest.mark.parametrize(
    "make",
    [
        lambda: ROWS,
        lambda: tuple(ROWS),
        lambda: iter(ROWS),
        lambda: pa.Table.from_pylist(ROWS),
        lambda: pa.RecordBatch.from_pylist(ROWS),
        lambda: [pa.RecordBatch.from_pylist(ROWS[:1]), pa.Table.from_pylist(ROWS[1:], schema=SMALL)],
        lambda: (pa.RecordBatch.from_pylist([row], schema=SMALL) for row in ROWS),
        lambda: pa.Table.from_pylist(ROWS).to_reader(),
        lambda: pa.array(ROWS),
        OnlyStream,
        OnlyArray,
        lambda: [OnlyArray()],
        lambda: pd.DataFrame(ROWS),
        lambda: pd.DataFrame(ROWS, index=[7, 9]),
        lambda: [
            pd.DataFrame(ROWS[:1]),
            polars.DataFrame(ROWS[1:], schema={"id": polars.Int64, "name": polars.String}),
        ],
        lambda: polars.DataFrame(ROWS),
        duckdb_relation,
    ],
)
def test_every_kind_of_input_gives_the_same_rows(make):
    table = conform(make(), SMALL, topic="t")
    assert table.schema.equals(SMALL)
    assert table.to_pylist() == ROWS
    buffer = RowBuffer(SMALL, "t")
    assert buffer.append(make()) == buffer.rows == 2
    assert buffer.to_table().equals(table)


def test_one_dict_is_one_row():
    assert conform(ROWS[0], SMALL, topic="t").to_pylist() == ROWS[:1]


@pytest.mark.parametrize("data", [[], (), iter(()), pa.table({}), SMALL.empty_table(), pd.DataFrame({"id": []})])
def test_no_rows_are_an_empty_table_of_the_schema(data):
    assert conform(data, SMALL, topic="t").equals(SMALL.empty_table())


@pytest.mark.parametrize(
    "data",
    [None, 1, "text", b"bytes", object(), [1], [None], [ROWS[0], 1], [pa.table({}), ROWS[0]], [ROWS[0], pa.table({})]],
)
def test_what_is_no_rows_is_refused(data):
    with pytest.raises(SchemaMismatch, match="topic 't'"):
        conform(data, SMALL, topic="t")


def test_a_series_is_no_table():
    with pytest.raises(SchemaMismatch, match="topic 't'"):
        conform(polars.Series("id", [1]), SMALL, topic="t")


def test_a_data_frame_that_does_not_convert_is_refused():
    with pytest.raises(SchemaMismatch, match="DataFrame does not become an Arrow table"):
        conform(pd.DataFrame({"id": [1, "a"]}), SMALL, topic="t")


class Broken:
    error: Exception = AssertionError()

    def __arrow_c_stream__(self, requested_schema=None):
        raise self.error


@pytest.mark.parametrize(
    ("error", "told"),
    [
        (AssertionError(), "AssertionError"),
        (RuntimeError("no stream\nat org.apache"), "no stream"),
        (OSError("x"), "x"),
    ],
)
def test_whatever_a_data_frame_raises_is_our_refusal(error, told):
    data = Broken()
    data.error = error
    match = rf"Broken does not become an Arrow table: {told} \(pass a py"
    for taken in (data, [data]):
        with pytest.raises(SchemaMismatch, match=match) as caught:
            conform(taken, SMALL, topic="t")
        assert caught.value.__cause__ is error


def test_an_error_of_our_own_under_a_stream_stays_what_it_is():
    data = Broken()
    data.error = StoreError("gone")
    with pytest.raises(StoreError, match="gone"):
        conform(data, SMALL, topic="t")


@pytest.mark.parametrize("base", [Broken, object])
def test_a_data_frame_of_spark_is_answered_with_the_two_ways_to_write_it(base):
    frame = type("DataFrame", (base,), {"__module__": "pyspark.sql.classic.dataframe"})()
    with pytest.raises(SchemaMismatch, match=r"\(pass df\.toArrow\(\).* or .*spark_ext\.transaction"):
        conform(frame, SMALL, topic="t")


def test_an_error_of_the_users_own_iterator_comes_through():
    def broken():
        yield ROWS[0]
        raise ConnectionError("gone")

    buffer = RowBuffer(SMALL, "t")
    with pytest.raises(ConnectionError):
        buffer.append(broken())
    assert buffer.rows == 0


# --- buffers ----------------------------------------------------------------------------------------------------------


def test_a_refused_append_takes_nothing():
    buffer = RowBuffer(SMALL, "t")
    buffer.append(ROWS)
    for bad in ([ROWS[0], {"id": "x"}], pa.table({"id": ["x"]}), iter([ROWS[0], {"idd": 1}])):
        with pytest.raises(InvalidInputError):
            buffer.append(bad)
    assert buffer.to_table().to_pylist() == ROWS


def test_later_changes_to_what_was_passed_do_not_reach_the_buffer():
    schema = pa.schema([("l", pa.list_(pa.int64())), ("m", pa.map_(pa.string(), pa.int64())), ("b", pa.binary())])
    row: dict[str, Any] = {"l": [1], "m": {"a": 1}, "b": bytearray(b"1")}
    before = conform(row, schema, topic="t")
    buffer = RowBuffer(schema, "t")
    buffer.append([row])
    row["l"].append(2)
    row["m"]["b"] = 2
    row["b"][0] = 0
    row["l"] = None
    assert buffer.to_table().equals(before)


def test_later_changes_to_a_data_frame_do_not_reach_the_buffer():
    values = np.array([1.0, 2.0])
    for frame in (pd.DataFrame({"x": values}, copy=False), [pd.DataFrame({"x": values}, copy=False)]):
        values[0] = 1.0
        buffer = RowBuffer(one(pa.float64()), "t")
        buffer.append(frame)
        values[0] = 99.0
        assert buffer.to_table()["x"].to_pylist() == [1.0, 2.0]


def test_rows_of_many_calls_and_buffers_stay_in_order():
    buffers = []
    expected = []
    for number in range(6):
        buffer = RowBuffer(SMALL, "t")
        for data in ([{"id": number}], pa.table({"id": [number + 10]}), {"id": number + 20}, [], [{"id": number + 30}]):
            buffer.append(data if number % 2 else (data if isinstance(data, list) else [{"id": number + 20}]))
        expected += buffer.to_table()["id"].to_pylist()
        buffers.append(buffer)
    assert concat(buffers)["id"].to_pylist() == expected
    assert expected[4:8] == [1, 11, 21, 31]


def test_rows_above_the_limit_become_arrow_at_once(monkeypatch):
    monkeypatch.setattr(row_buffer, "SEAL_BYTES", 100)
    schema = one(pa.string())
    buffers = [RowBuffer(schema, "t") for _ in range(3)]
    expected = []
    for buffer in buffers:
        for data in ([{"x": "a" * 30}] * 2, [{"x": "b" * 99}], [{"x": str(i) * 20} for i in range(50)], [{"x": "c"}]):
            buffer.append(data)
            expected += [row["x"] for row in data]
        assert len(buffer._tables) > 2
        for _ in range(20):
            buffer.append({"x": "d" * 10})
            expected.append("d" * 10)
            assert len(buffer._open) <= 6
    assert concat(buffers)["x"].to_pylist() == expected


def test_a_row_that_no_array_can_hold_is_refused(monkeypatch):
    monkeypatch.setattr(row_buffer, "SEAL_BYTES", 100)
    monkeypatch.setattr(row_buffer, "MAX_ROW_BYTES", 1000)
    with pytest.raises(SchemaMismatch, match="row 1 takes more than 1,000 bytes"):
        conform([{"x": "a"}, {"x": "a" * 1001}], one(pa.string()), topic="t")


def test_the_size_is_about_that_of_arrow():
    schema = pa.schema([*DEFAULT, ("n", pa.list_(pa.struct([("a", pa.string())])))])
    data = [
        {"key": b"k" * 30, "value": b"v" * 300, "headers": {"a" * 20: b"b" * 50}, "n": [{"a": "c" * 40}] * 3}
        for _ in range(100)
    ]
    buffer = RowBuffer(schema, "t")
    buffer.append(data)
    assert 0.8 < buffer.size_bytes / buffer.to_table().nbytes < 1.2


def test_plans_of_forgotten_schemas_are_dropped(monkeypatch):
    monkeypatch.setattr(row_buffer, "MAX_CACHED_PLANS", 3)
    for number in range(10):
        assert conform({str(number): 1}, pa.schema([(str(number), pa.int64())]), topic="t").num_rows == 1
    assert len(row_buffer._PLANS) <= 3


def test_buffers_of_equal_schemas_go_together():
    buffers = []
    for number in range(3):
        row_buffer._PLANS.clear()
        buffers.append(RowBuffer(pa.schema(list(SMALL)), "t"))
        buffers[-1].append([{"id": number}] * (row_buffer.ROWS_AT_ONCE + 1 if number == 1 else 1))
    assert concat(buffers)["id"].to_pylist() == [0, *[1] * (row_buffer.ROWS_AT_ONCE + 1), 2]


# --- properties -------------------------------------------------------------------------------------------------------


@given(tables())
@settings(max_examples=tries(300, 100), deadline=None)
def test_rows_of_any_schema_come_back_as_they_are(table):
    listed = table.to_pylist()
    from_rows = conform(listed, table.schema, topic="t")
    from_rows.validate(full=True)
    assert from_rows.schema.equals(table.schema)
    assert repr(from_rows.to_pylist()) == repr(listed)
    from_table = conform(table, table.schema, topic="t")
    assert repr(from_table.to_pylist()) == repr(listed)


@given(tables(), st.data())
@settings(max_examples=tries(300, 100), deadline=None)
def test_other_encodings_of_the_same_values_give_the_same_rows(table, data):
    def encoded(column: pa.ChunkedArray) -> pa.ChunkedArray:
        kind = column.type
        choices = [column]
        if pa.types.is_string(kind):
            choices += [column.cast(pa.large_string()), column.cast(pa.string_view()), column.dictionary_encode()]
        elif pa.types.is_integer(kind):
            choices += [column.cast(pa.int64()), column.dictionary_encode()]
        elif pa.types.is_timestamp(kind) and kind.tz:
            choices += [column.cast(pa.timestamp("us", "Asia/Kathmandu"))]
        elif pa.types.is_list(kind):
            choices += [column.cast(pa.large_list(kind.value_type))] if kind.value_field.nullable else []
        return data.draw(st.sampled_from(choices))

    columns = [encoded(column) for column in table.columns]
    order = data.draw(st.permutations(range(len(columns))))
    given_ = pa.Table.from_arrays([columns[i] for i in order], names=[table.column_names[i] for i in order])
    start = data.draw(st.integers(0, table.num_rows))
    result = conform(given_.slice(start), table.schema, topic="t")
    result.validate(full=True)
    assert result.schema.equals(table.schema)
    assert repr(result.to_pylist()) == repr(table.slice(start).to_pylist())


@given(schemas(), st.data())
@settings(max_examples=tries(500, 150), deadline=None)
def test_junk_is_taken_whole_or_refused_with_one_error(schema, data):
    names = st.sampled_from([*schema.names, "other"])
    rows_ = data.draw(st.lists(st.dictionaries(names, junk), min_size=1, max_size=3))
    buffer = RowBuffer(schema, "t")
    try:
        taken = buffer.append(rows_)
    except SchemaMismatch:
        assert buffer.rows == 0
        return
    assert taken == len(rows_)
    table = buffer.to_table()
    table.validate(full=True)
    assert table.num_rows == taken
    # What was taken from Python is taken again from Arrow: there is one set of rules.
    assert conform(table, schema, topic="t").equals(table) or "nan" in repr(table.to_pylist())


@given(schemas(), tables())
@settings(max_examples=tries(300, 100), deadline=None)
def test_a_strangers_table_is_taken_whole_or_refused_with_one_error(schema, table):
    names = [*schema.names, *(f"more{i}" for i in range(table.num_columns))][: table.num_columns]
    try:
        result = conform(table.rename_columns(names), schema, topic="t")
    except SchemaMismatch:
        return
    result.validate(full=True)
    assert result.num_rows == table.num_rows
    assert result.schema.equals(schema)
