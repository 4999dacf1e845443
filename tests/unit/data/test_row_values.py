"""Values of Python become values of the topic's types, or SchemaMismatch names the column and the row."""

from __future__ import annotations

import datetime as dt
import decimal
import enum
import math
import zoneinfo

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

from tests.unit.row_values import DEFAULT, MIDNIGHT, NOON, UTC_NOON, UTC_TYPE, one, stored
from txnlog.data.row_buffer import RowBuffer, conform
from txnlog.errors import SchemaMismatch

ROME = zoneinfo.ZoneInfo("Europe/Rome")


class Colour(enum.StrEnum):
    RED = "red"


class Level(enum.IntEnum):
    HIGH = 3


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
