"""Statistics of segments: bounds that hold for every row."""

from __future__ import annotations

import datetime as dt
import decimal
import io
import json
import math
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings

from tests.effort import tries
from tests.segments import encode_many
from tests.unit.arrow_strategies import tables
from tests.unit.segment_files import check_statistics
from txnlog.common.limits import STATISTICS_CHARACTERS, STATISTICS_COLUMNS
from txnlog.data import segment_file
from txnlog.data.segment_file import encode
from txnlog.fold.state import Statistics


@given(tables())
@settings(max_examples=tries(200, 40), deadline=None)
def test_statistics_bound_every_row_and_survive_json(table):
    segment = encode(table)
    check_statistics(segment, table)
    assert msgspec.json.decode(msgspec.json.encode(segment.statistics), type=Statistics) == segment.statistics
    assert json.loads(json.dumps(segment.statistics)) == {k: list(v) for k, v in segment.statistics.items()}


@pytest.mark.parametrize(
    ("values", "kind", "expected"),
    [
        ([3, None, 1], pa.int8(), (1, 3, 1)),
        ([0.5, 1.5], pa.float32(), (0.5, 1.5, 0)),
        ([0.5, math.nan], pa.float64(), (None, None, 0)),
        ([math.nan], pa.float64(), (None, None, 0)),
        ([math.inf, 0.5], pa.float64(), (0.5, None, 0)),
        ([True, False], pa.bool_(), (False, True, 0)),
        (["b", "a", None], pa.string(), ("a", "b", 1)),
        ([None, None], pa.string(), (None, None, 2)),
        ([b"b", None], pa.binary(), (None, None, 1)),
        ([dt.date(2026, 11, 21)], pa.date32(), ("2026-11-21", "2026-11-21", 0)),
        (
            [dt.datetime(2026, 11, 21, 1, 2, 3, 4, dt.UTC)],
            pa.timestamp("us", "UTC"),
            ("2026-11-21T01:02:03.000004Z", "2026-11-21T01:02:03.000004Z", 0),
        ),
        ([0], pa.timestamp("us"), ("1970-01-01T00:00:00.000000", "1970-01-01T00:00:00.000000", 0)),
        ([-(2**62), 2**62], pa.timestamp("us", "UTC"), (None, None, 0)),
        (
            [decimal.Decimal("-1.5"), decimal.Decimal("1E+7")],
            pa.decimal128(20, 2),
            ("-1.50", "10000000.00", 0),
        ),
    ],
)
def test_statistics_are_what_json_can_hold(values, kind, expected):
    assert encode(pa.table({"x": pa.array(values, kind)})).statistics == {"x": expected}


def test_long_text_is_cut_so_that_its_bounds_still_hold():
    highest = "\U0010ffff"
    n = STATISTICS_CHARACTERS
    for text, upper in (
        ("a" * n, "a" * n),
        ("a" * (n + 1), "a" * n + highest),
        ("a" * n + highest, "a" * n + highest),
        ("a" * n + highest + "b", "a" * n + highest + highest),
        (highest * (n + 9), highest * (n + 9)),
        ("é" * 100, "é" * n + highest),
    ):
        low, high, _ = encode(pa.table({"x": [text]})).statistics["x"]
        assert low == text[:n]
        assert high == upper
        assert upper.encode() >= text.encode()


def test_text_too_long_for_a_footer_has_no_bounds():
    assert encode(pa.table({"x": ["a" * 5000, "b"]})).statistics == {"x": (None, None, 0)}


def test_the_bounds_of_several_row_groups_are_those_of_all(monkeypatch):
    monkeypatch.setattr(segment_file, "ROW_GROUP_BYTES", 1)

    def statistics(kind: pa.DataType, *values: object) -> object:
        table = pa.table({"x": pa.array(values, kind)})
        (segment,) = encode_many([table.slice(i, 1) for i in range(len(values))], table.schema)
        assert pq.ParquetFile(io.BytesIO(segment.data)).num_row_groups == len(values)
        return segment.statistics["x"]

    assert statistics(pa.int64(), 2, 3, 1) == (1, 3, 0)
    assert statistics(pa.int64(), 2, None, 1) == (1, 2, 1)
    batches = [pa.table({"x": [2.0, math.nan]}), pa.table({"x": [1.0, 3.0]})]
    (segment,) = encode_many(batches, batches[0].schema)
    assert segment.statistics["x"] == (None, None, 0)
    # Of one row group the footer does not know the bounds.
    assert statistics(pa.string(), "b", "z" * 5000, "a") == (None, None, 0)


def footers(segment):
    """The statistics in the footer by row group and column."""
    metadata = pq.ParquetFile(io.BytesIO(segment.data)).metadata
    return [
        {group.column(i).path_in_schema: group.column(i).statistics for i in range(group.num_columns)}
        for group in map(metadata.row_group, range(metadata.num_row_groups))
    ]


@pytest.mark.clause("P-222")
def test_a_footer_has_no_bounds_of_a_column_with_a_nan(monkeypatch):
    """Spark, DuckDB and DataFusion skip row groups by them, and to all of them a NaN is above every number."""
    monkeypatch.setattr(segment_file, "ROW_GROUP_BYTES", 1)
    for kind in (pa.float32(), pa.float64()):
        schema = pa.schema([("x", kind), ("y", kind), ("n", pa.int64())])
        tables = [
            pa.Table.from_pydict({"x": [1.0, last], "y": [1.0, None], "n": [1, 2]}, schema) for last in (2.0, math.nan)
        ]
        (found,) = footers(encode(tables[1]))
        assert found["x"] is None
        assert found["y"].has_min_max
        assert found["n"].has_min_max
        (streamed,) = encode_many(tables, schema)
        for found in footers(streamed):
            assert found["x"] is None, "the NaN came with the second row group"
            assert found["n"].has_min_max
        assert streamed.statistics == {"x": (None, None, 0), "y": (1.0, 1.0, 2), "n": (1, 2, 0)}


@pytest.mark.clause("P-222")
def test_a_footer_takes_no_column_for_the_field_whose_path_is_its_name():
    """Parquet's writer tells columns apart by their paths as text, and in the field there may be a NaN."""
    nested = {
        "a": pa.array([{"b": 1.0}, {"b": math.nan}]),
        "l": pa.array([[1.0], [math.nan]]),
        "m": pa.array([[("x", 1.0)], [("x", math.nan)]], pa.map_(pa.string(), pa.float64())),
    }
    names = ["a.b", "l.list.element", "m.key_value.value", "m.x"]
    table = pa.table({**{name: [1, 2] for name in names}, **nested, "n": [1, 2]})
    (streamed,) = encode_many([table], table.schema)
    for segment in (encode(table), streamed):
        metadata = pq.ParquetFile(io.BytesIO(segment.data)).metadata.row_group(0)
        bounded = [item for item in map(metadata.column, range(metadata.num_columns)) if item.statistics is not None]
        assert [item.path_in_schema for item in bounded] == ["m.x", "n"]
        assert segment.statistics["m.x"] == segment.statistics["n"] == (1, 2, 0)
        assert [segment.statistics[name] for name in names[:3]] == [(None, None, None)] * 3


def test_the_bounds_of_zero_hold_for_both_of_its_signs():
    for values in ([0.0], [-0.0], [0.0, -0.0], [-0.0, 0.0]):
        table = pa.table({"x": values})
        (streamed,) = encode_many([table], table.schema)
        for segment in (encode(table), streamed):
            low, high, _ = segment.statistics["x"]
            assert (str(low), str(high)) == ("-0.0", "0.0")


def test_the_first_simple_columns_of_the_user_have_statistics():
    columns: dict[str, Any] = {"nested": [{"a": 1}], "_txn": [1]}
    columns |= {f"c{i:02}": [i] for i in range(STATISTICS_COLUMNS + 5)}
    statistics = encode(pa.table(columns)).statistics
    assert list(statistics) == [f"c{i:02}" for i in range(STATISTICS_COLUMNS)]
    assert statistics["c07"] == (7, 7, 0)
