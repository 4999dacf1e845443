"""Arrow data becomes columns of the topic's types without loss, or SchemaMismatch names the column."""

from __future__ import annotations

import datetime as dt
import decimal
import math

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from tests.unit.row_values import DEFAULT, MIDNIGHT, NOON, UTC_NOON, UTC_TYPE, one
from txnlog.data import arrow_coercion, segment_file
from txnlog.data.row_buffer import RowBuffer, conform
from txnlog.errors import SchemaMismatch


def stored_array(array: pa.Array, kind: pa.DataType) -> list[object]:
    """What an Arrow column becomes."""
    result = conform(pa.table({"x": array}), one(kind), topic="t")
    assert result.schema.equals(one(kind))
    result.validate(full=True)
    return result["x"].to_pylist()


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


@pytest.mark.parametrize("kind", [pa.int64(), pa.int32()], ids=["as-it-is", "converted"])
def test_the_first_null_that_is_refused_is_named_by_its_row(kind):
    strict = pa.schema([pa.field("id", pa.int64(), False)])
    batches = [pa.record_batch({"id": pa.array(ids, kind)}) for ids in ([1, 2], [3, None, None])]
    for data in (pa.Table.from_batches(batches), pa.RecordBatchReader.from_batches(batches[0].schema, batches)):
        with pytest.raises(SchemaMismatch, match=r"column 'id' \(row 3\): null, or missing"):
            RowBuffer(strict, "t").append(data)


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
