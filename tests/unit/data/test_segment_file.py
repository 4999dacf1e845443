"""Segments come back as they were written, and damage never comes back as data."""

from __future__ import annotations

import datetime as dt
import decimal
import functools
import io
import json
import math
import random
import subprocess
import sys
import zlib
from collections import Counter
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.effort import tries
from tests.segments import encode_many, footer_checksum
from tests.unit.arrow_strategies import tables
from txnlog.common.limits import MAX_FOOTER_BYTES, STATISTICS_CHARACTERS, STATISTICS_COLUMNS
from txnlog.data import parquet_pages, segment_file
from txnlog.data.segment_columns import STORED_COLUMNS
from txnlog.data.segment_file import EncodedSegment, SegmentWriter, decode, decode_from, encode
from txnlog.errors import CorruptionError
from txnlog.fold.state import Statistics

KEY = "orders/_txnlog_segment=7/0123456789abcdef0123456789abcdef.parquet"
SCHEMA = pa.schema(
    [
        pa.field("id", pa.int64(), False),
        ("name", pa.string()),
        ("tags", pa.list_(pa.field("element", pa.string()))),
        ("headers", pa.map_(pa.string(), pa.binary())),
        ("price", pa.struct([("amount", pa.decimal128(10, 2)), ("exact", pa.bool_())])),
    ]
)
TABLE = pa.Table.from_pylist(
    [
        {
            "id": i,
            "name": None if i % 5 == 4 else f"n{i % 3}",
            "tags": [f"t{i}"] * (i % 3),
            "headers": {"a": b"x" * i} if i % 2 else None,
            "price": {"amount": decimal.Decimal(i), "exact": i % 2 == 0},
        }
        for i in range(12)
    ],
    schema=SCHEMA,
)


class Reads(io.BytesIO):
    """A file that counts what is read of it."""

    def __init__(self, data: bytes) -> None:
        super().__init__(data)
        self.ranges: list[tuple[int, int]] = []

    def read(self, size: int | None = -1, /) -> bytes:
        start = self.tell()
        data = super().read(size)
        self.ranges.append((start, start + len(data)))
        return data


def read_back(data: bytes, checksum: str, table: pa.Table, columns: list[str] | None = None) -> pa.Table:
    return decode(data, checksum, schema=table.schema, rows=table.num_rows, columns=columns, key=KEY)


def read_exactly(data: bytes, checksum: str, size_bytes: int) -> pa.Table:
    return decode(data, checksum, schema=SCHEMA, rows=TABLE.num_rows, key=KEY, size_bytes=size_bytes)


def read_from(data: bytes, checksum: str, table: pa.Table, columns: list[str] | None = None) -> pa.Table:
    return decode_from(
        io.BytesIO(data),
        checksum,
        size_bytes=len(data),
        schema=table.schema,
        rows=table.num_rows,
        columns=columns,
        key=KEY,
    )


def with_checksum(data: bytes) -> str:
    return f"crc32:{zlib.crc32(data):08x}"


def foreign(table: pa.Table, **options: Any) -> bytes:
    """A file as other writers make it."""
    sink = io.BytesIO()
    pq.write_table(table, sink, **{"write_page_checksum": True, **options})
    return sink.getvalue()


def same(left: pa.Table, right: pa.Table) -> bool:
    """Equal, NaN being one value."""
    return left.schema.equals(right.schema) and repr(left.to_pylist()) == repr(right.to_pylist())


# --- round trips ------------------------------------------------------------------------------------------------------


@given(tables())
@settings(max_examples=tries(200, 40), deadline=None)
def test_rows_of_any_schema_come_back_as_they_are(table):
    segment = encode(table)
    assert segment.rows == table.num_rows
    assert segment.size_bytes == len(segment.data)
    for checksum in (segment.checksum, footer_checksum(segment.data)):
        for read in (read_back, read_from):
            result = read(segment.data, checksum, table)
            result.validate(full=True)
            assert same(result, table)
            some = table.column_names[::-2]
            assert same(read(segment.data, checksum, table, some), table.select(some))


@given(tables(), st.integers(1, 300))
@settings(max_examples=tries(150, 30), deadline=None)
def test_a_stream_of_batches_comes_back_in_order(table, target):
    segments = list(encode_many([table, *table.to_batches()], table.schema, target))
    expected = pa.concat_tables([table, table])
    assert all(segment.rows for segment in segments)
    parts = [decode(s.data, s.checksum, schema=table.schema, rows=s.rows, key=KEY) for s in segments] or [
        table.schema.empty_table()
    ]
    assert same(pa.concat_tables(parts), expected)
    for segment in segments:
        check_statistics(
            segment, decode(segment.data, segment.checksum, schema=table.schema, rows=segment.rows, key=KEY)
        )


def test_the_same_rows_give_the_same_bytes():
    assert encode(TABLE) == encode(pa.Table.from_pylist(TABLE.to_pylist(), schema=SCHEMA))


def test_small_and_big_segments_are_written_as_their_readers_expect():
    for table, compression in ((TABLE, "SNAPPY"), (pa.table({"x": [b"a" * 1000] * 2000}), "ZSTD")):
        file = pq.ParquetFile(io.BytesIO(encode(table).data))
        assert file.metadata.row_group(0).column(0).compression == compression
        assert file.metadata.metadata is None
    lists = pq.ParquetFile(io.BytesIO(encode(TABLE).data)).schema
    assert "tags.list.element" in [lists.column(i).path for i in range(len(lists))]


def dictionaries(data: bytes) -> set[str]:
    """The Parquet columns of a file that have one."""
    group = pq.read_metadata(io.BytesIO(data)).row_group(0)
    columns = [group.column(index) for index in range(group.num_columns)]
    return {column.path_in_schema for column in columns if "RLE_DICTIONARY" in column.encodings}


def many_rows(count: int) -> pa.Table:
    """Columns whose values come again, and others whose values do not."""
    numbers = range(count)
    return pa.table(
        {
            "id": numbers,
            "a.name": [f"n{n % 50}" for n in numbers],
            "unique": [f"u{n}" for n in numbers],
            "country": [n % 7 for n in numbers],
            "price": [decimal.Decimal(n % 9) / 4 for n in numbers],
            "tags": [[f"t{n % 3}"] for n in numbers],
            "more": [{"x.y": {"z": n % 2}} for n in numbers],
            "map": pa.array([[("k", n)] for n in numbers], pa.map_(pa.string(), pa.int64())),
        }
    )


NESTED = {"tags.list.element", "more.x.y.z", "map.key_value.key", "map.key_value.value"}


def test_columns_whose_values_come_again_have_a_dictionary(monkeypatch):
    table = many_rows(5_000)
    assert dictionaries(encode(table).data) == {"a.name", "price"} | NESTED, "small: no numbers"
    monkeypatch.setattr(segment_file, "SMALL_PRODUCE_BYTES", 1)
    big = {"a.name", "country", "price"} | NESTED
    assert dictionaries(encode(table).data) == big
    (streamed,) = encode_many([table], table.schema)
    assert dictionaries(streamed.data) == big
    assert not dictionaries(encode(table.slice(0, segment_file.DICTIONARY_ROWS - 1)).data)
    monkeypatch.setattr(segment_file, "MOST_DISTINCT", 1.0)
    assert {"id", "unique"} <= dictionaries(encode(table).data)


def test_a_writer_gives_segments_of_about_the_target_and_holds_no_more():
    batch = pa.record_batch({"x": pa.array(range(10_000), pa.int64())})
    writer = SegmentWriter(batch.schema, target_bytes=200_000)
    segments: list[EncodedSegment] = []
    for _ in range(20):
        segments += writer.write(batch)
        assert writer._pending_bytes <= 200_000
    segments += writer.finish()
    assert [s.rows for s in segments[:-1]] == [segments[0].rows] * (len(segments) - 1)
    assert 20_000 <= segments[0].rows <= 50_000
    assert sum(s.rows for s in segments) == 200_000
    assert list(writer.finish()) == []


def test_one_big_table_becomes_several_segments_of_several_row_groups(monkeypatch):
    monkeypatch.setattr(segment_file, "ROW_GROUP_BYTES", 8_000)
    table = pa.table({"x": pa.array(range(10_000), pa.int64())})
    segments = list(encode_many([table], table.schema, target_bytes=24_000))
    assert 3 <= len(segments) <= 5
    assert pq.ParquetFile(io.BytesIO(segments[0].data)).num_row_groups >= 3
    assert segments[0].statistics["x"] == (0, segments[0].rows - 1, 0)


def test_nothing_in_gives_no_segment():
    assert list(encode_many([], SCHEMA)) == []
    assert list(encode_many([SCHEMA.empty_table()], SCHEMA)) == []


def test_an_empty_table_is_a_valid_segment():
    empty = SCHEMA.empty_table()
    segment = encode(empty)
    assert segment.statistics["id"] == (None, None, 0)
    assert read_back(segment.data, segment.checksum, empty).equals(empty)


# --- statistics -------------------------------------------------------------------------------------------------------


def check_statistics(segment: EncodedSegment, table: pa.Table) -> None:
    """Every bound holds for every row, as far as it says anything."""
    for field in table.schema:
        if pa.types.is_nested(field.type):
            assert field.name not in segment.statistics
            continue
        low, high, nulls = segment.statistics[field.name]
        column = table[field.name].to_pylist()
        assert nulls == column.count(None)
        values = [shown(value) for value in column if value is not None]
        if low is not None:
            assert all(comparable(low, field.type) <= comparable(value, field.type) for value in values)
        if high is not None:
            assert all(comparable(high, field.type) >= comparable(value, field.type) for value in values)
        if values and (pa.types.is_integer(field.type) or pa.types.is_boolean(field.type)):
            assert (low, high) == (min(values), max(values))
        for bound in (low, high):
            if isinstance(bound, float):
                assert math.isfinite(bound)


def shown(value: Any) -> Any:
    if isinstance(value, dt.datetime):
        text = value.replace(tzinfo=None).isoformat(timespec="microseconds")
        return f"{text}Z" if value.tzinfo else text
    return str(value) if isinstance(value, dt.date | decimal.Decimal) else value


def comparable(value: Any, kind: pa.DataType) -> Any:
    return decimal.Decimal(value) if pa.types.is_decimal(kind) else value


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


# --- schemas that grew ------------------------------------------------------------------------------------------------


def test_a_column_that_an_older_file_lacks_is_null():
    segment = encode(TABLE)
    newer = SCHEMA.insert(0, pa.field("new", pa.string())).append(pa.field("more", pa.list_(pa.int8())))
    result = decode(segment.data, segment.checksum, schema=newer, rows=12, key=KEY)
    assert result.schema.equals(newer)
    assert result["new"].null_count == result["more"].null_count == 12
    assert result.select(SCHEMA.names).equals(TABLE)
    only = decode(segment.data, segment.checksum, schema=newer, rows=12, columns=["new"], key=KEY)
    assert only.num_rows == only["new"].null_count == 12


def test_a_missing_column_that_is_never_null_is_damage():
    segment = encode(TABLE)
    newer = SCHEMA.append(pa.field("new", pa.string(), False))
    with pytest.raises(CorruptionError, match="no column 'new'"):
        decode(segment.data, segment.checksum, schema=newer, rows=12, key=KEY)


@pytest.mark.parametrize(
    ("old", "new", "values"),
    [
        (pa.int8(), pa.int64(), [1, None]),
        (pa.int32(), pa.float64(), [1, None]),
        (pa.float32(), pa.float64(), [0.5, None]),
        (pa.decimal128(4, 2), pa.decimal128(10, 3), [decimal.Decimal("1.25"), None]),
        (pa.list_(pa.int8()), pa.list_(pa.int64()), [[1, None], None]),
        (pa.struct([("a", pa.int8())]), pa.struct([("b", pa.string()), ("a", pa.int32())]), [{"a": 1}, None]),
        (pa.map_(pa.string(), pa.int8()), pa.map_(pa.string(), pa.int16()), [[("a", 1)], None]),
        (pa.list_(pa.field("element", pa.int8(), False)), pa.list_(pa.int8()), [[1], None]),
    ],
)
def test_a_narrower_column_of_an_older_file_is_widened(old, new, values):
    segment = encode(pa.table({"x": pa.array(values, old)}))
    result = decode(segment.data, segment.checksum, schema=pa.schema([("x", new)]), rows=2, key=KEY)
    assert result["x"].type == new
    assert result["x"].to_pylist() == pa.array(values, old).cast(new).to_pylist()


@pytest.mark.parametrize(
    ("stored", "wanted"),
    [
        (pa.array([1]), pa.int32()),
        (pa.array(["1"]), pa.int64()),
        (pa.array([0.5]), pa.float32()),
        (pa.array([[1]]), pa.int64()),
        (pa.array([{"a": 1}]), pa.struct([("a", pa.string())])),
        (pa.array([{"a": 1}]), pa.struct([("a", pa.int64()), pa.field("b", pa.int64(), False)])),
        (pa.array([1], pa.timestamp("us", "UTC")), pa.timestamp("us")),
        (pa.array([decimal.Decimal("1.25")]), pa.decimal128(5, 1)),
    ],
)
def test_a_column_of_another_type_is_damage(stored, wanted):
    segment = encode(pa.table({"x": stored}))
    with pytest.raises(CorruptionError, match=f"'{KEY}' is damaged: its column 'x' is"):
        decode(segment.data, segment.checksum, schema=pa.schema([("x", wanted)]), rows=1, key=KEY)


def test_null_in_a_column_that_is_never_null_is_damage():
    segment = encode(pa.table({"x": pa.array([None], pa.int64())}))
    with pytest.raises(CorruptionError, match="its column 'x' holds null"):
        decode(segment.data, segment.checksum, schema=pa.schema([pa.field("x", pa.int64(), False)]), rows=1, key=KEY)


def test_stored_columns_are_read_on_demand_and_must_be_there():
    shared = TABLE
    for name, values in (("_txn", range(12)), ("_partition", [0] * 6 + [1] * 6)):
        field = STORED_COLUMNS.field(name)
        shared = shared.append_column(field, pa.array(values, field.type))
    segment = encode(shared)
    assert "_txn" not in segment.statistics
    assert read_back(segment.data, segment.checksum, TABLE).equals(TABLE)
    for checksum in (segment.checksum, footer_checksum(segment.data)):
        result = read_back(segment.data, checksum, TABLE, ["_partition", "id", "_txn"])
        assert result.equals(shared.select(["_partition", "id", "_txn"]))
    plain = encode(TABLE)
    with pytest.raises(CorruptionError, match="no column '_txn'"):
        read_back(plain.data, plain.checksum, TABLE, ["id", "_txn"])


def test_no_columns_are_still_so_many_rows():
    segment = encode(TABLE)
    for checksum in (segment.checksum, footer_checksum(segment.data)):
        assert read_back(segment.data, checksum, TABLE, []).num_rows == 12


def test_names_with_dots_are_names():
    table = pa.table({"a.b": [1], "a": [{"b": 2, "c.d": 3}], "a.c": ["x"]})
    segment = encode(table)
    for checksum in (segment.checksum, footer_checksum(segment.data)):
        for columns in (["a.b"], ["a"], ["a.c", "a"]):
            assert read_back(segment.data, checksum, table, columns).equals(table.select(columns))


def test_old_96_bit_timestamps_are_read_as_the_instants_they_are():
    schema = pa.schema([("at", pa.timestamp("us", "UTC"))])
    # The last one is beyond what nanoseconds can hold.
    table = pa.table(
        {"at": [dt.datetime(2026, 11, 21, 1, 2, 3, 4, dt.UTC), dt.datetime(9999, 1, 1, tzinfo=dt.UTC)]}, schema
    )
    data = foreign(table, use_deprecated_int96_timestamps=True)
    assert read_back(data, footer_checksum(data), table).equals(table)


# --- damage -----------------------------------------------------------------------------------------------------------

FOREIGN = {
    "snappy, plain": foreign(TABLE, compression="snappy", use_dictionary=False, store_schema=False),
    "zstd, dictionary": foreign(TABLE, compression="zstd", use_dictionary=True, store_schema=False),
    "pages of version 2": foreign(TABLE, compression="snappy", data_page_version="2.0", store_schema=False),
    "many small pages": foreign(
        pa.table({"id": range(120), "name": [f"n{i % 50}" for i in range(120)]}),
        compression="none",
        data_page_size=100,
        write_batch_size=20,
        dictionary_pagesize_limit=200,
        row_group_size=60,
        store_schema=False,
        write_page_index=True,
    ),
}


@pytest.mark.parametrize("bit", range(8))
def test_every_flipped_bit_of_a_file_is_found(bit):
    segment = encode(TABLE)
    for position in range(len(segment.data)):
        damaged = bytearray(segment.data)
        damaged[position] ^= 1 << bit
        with pytest.raises(CorruptionError, match=KEY):
            read_back(bytes(damaged), segment.checksum, TABLE)


@pytest.fixture
def parsed_once(monkeypatch):
    """A footer that comes again is not parsed again: most of what it takes to look at one file with thousands of flips.

    Nothing else is kept: a footer is parsed where its checksum is right only, and what it says is never changed.
    """
    monkeypatch.setattr(segment_file, "parse_footer", functools.cache(parquet_pages.parse_footer))


@pytest.mark.some(1)
@pytest.mark.parametrize("kind", FOREIGN)
def test_a_flipped_bit_of_a_file_known_by_its_footer_never_gives_other_rows(kind, parsed_once):
    data = FOREIGN[kind]
    checksum = footer_checksum(data)
    table = pq.read_table(io.BytesIO(data))
    assert read_back(data, checksum, table).equals(table)
    outcomes: Counter[str] = Counter()
    harmless: set[int] = set()
    for position in range(len(data)):
        for bit in range(8):
            damaged = bytearray(data)
            damaged[position] ^= 1 << bit
            try:
                result = read_back(bytes(damaged), checksum, table)
            except CorruptionError as error:
                assert KEY in str(error)  # noqa: PT017 - a context manager for each bit would take most of the time
                outcomes["found"] += 1
                continue
            assert result.equals(table), f"bit {bit} of byte {position}"
            harmless.add(position)
    assert outcomes["found"] > 6 * len(data)
    # What may change unseen: statistics in page headers and the page index, which readers of rows do not use.
    assert len(harmless) < len(data) // 4


def test_damage_of_other_columns_does_not_matter_to_a_file_known_by_its_footer():
    data = FOREIGN["snappy, plain"]
    checksum = footer_checksum(data)
    column = pq.ParquetFile(io.BytesIO(data)).metadata.row_group(0).column(1)
    damaged = bytearray(data)
    damaged[column.data_page_offset + column.total_compressed_size - 1] ^= 1
    with pytest.raises(CorruptionError, match="checksum"):
        read_back(bytes(damaged), checksum, TABLE)
    assert read_back(bytes(damaged), checksum, TABLE, ["id"]).equals(TABLE.select(["id"]))


def test_many_damaged_bytes_are_found_too(parsed_once):
    dice = random.Random(7)
    for data in FOREIGN.values():
        table = pq.read_table(io.BytesIO(data))
        checksum = footer_checksum(data)
        assert read_back(data, checksum, table).equals(table)
        for _ in range(500):
            damaged = bytearray(data)
            start = dice.randrange(len(data))
            for position in range(start, min(len(data), start + dice.randrange(1, 40))):
                damaged[position] = dice.randrange(256)
            try:
                result = read_back(bytes(damaged), checksum, table)
            except CorruptionError:
                continue
            assert result.equals(table)


def test_pages_without_a_checksum_are_refused_where_only_the_footer_is_known():
    data = foreign(TABLE, write_page_checksum=False)
    with pytest.raises(CorruptionError, match="page's header has not the fields"):
        read_back(data, footer_checksum(data), TABLE)


def test_every_truncation_is_found():
    segment = encode(TABLE)
    checksums = (segment.checksum, footer_checksum(segment.data))
    for length in range(len(segment.data)):
        for checksum in checksums:
            with pytest.raises(CorruptionError, match=KEY):
                read_back(segment.data[:length], checksum, TABLE)
            with pytest.raises(CorruptionError, match=KEY):
                decode_from(
                    io.BytesIO(segment.data[:length]),
                    checksum,
                    size_bytes=len(segment.data),
                    schema=SCHEMA,
                    rows=12,
                    key=KEY,
                )


def test_a_file_that_grew_or_was_swapped_is_found():
    segment = encode(TABLE)
    other = encode(TABLE.slice(0, 11))
    for data in (segment.data + b"\0", b"\0" + segment.data, segment.data * 2, other.data, b""):
        for checksum in (segment.checksum, footer_checksum(segment.data)):
            with pytest.raises(CorruptionError, match=KEY):
                read_exactly(data, checksum, len(segment.data))
            options: dict[str, Any] = {"size_bytes": len(segment.data), "schema": SCHEMA, "rows": 12, "key": KEY}
            try:
                # Through a file only what is wanted is read: bytes behind the end that the log knows are none of ours.
                assert decode_from(io.BytesIO(data), checksum, **options).equals(TABLE)
            except CorruptionError as error:
                assert KEY in str(error)  # noqa: PT017 - it may do either
            else:
                assert data[: len(segment.data)] == segment.data


def test_another_count_of_rows_is_damage():
    segment = encode(TABLE)
    for checksum in (segment.checksum, footer_checksum(segment.data)):
        for columns in (None, ["id"], []):
            with pytest.raises(CorruptionError, match="it holds 12 rows, the log says 13"):
                decode(segment.data, checksum, schema=SCHEMA, rows=13, columns=columns, key=KEY)


@pytest.mark.parametrize("checksum", ["", "crc32", "md5:00000000", "crc32:0", "crc32:ZZZZZZZZ", "footer-crc32:"])
def test_a_checksum_of_an_unknown_kind_proves_nothing(checksum):
    with pytest.raises(CorruptionError, match=KEY):
        read_back(encode(TABLE).data, checksum, TABLE)


@given(st.binary(max_size=200), st.booleans())
def test_random_bytes_are_damage_even_with_the_right_checksum(data, framed):
    data = b"PAR1" + data + len(data).to_bytes(4, "little") + b"PAR1" if framed else data
    checksums = [with_checksum(data), "footer-crc32:00000000"]
    if framed:
        checksums.append(footer_checksum(data))
    for checksum in checksums:
        with pytest.raises(CorruptionError, match=KEY):
            read_back(data, checksum, TABLE)
        with pytest.raises(CorruptionError, match=KEY):
            read_from(data, checksum, TABLE)


@pytest.mark.parametrize("length", [0, 1, 2**16, MAX_FOOTER_BYTES, MAX_FOOTER_BYTES + 1, 2**31, 2**32 - 1])
def test_a_footer_that_lies_about_its_length_is_damage(length):
    data = encode(TABLE).data[:-8] + length.to_bytes(4, "little") + b"PAR1"
    tail = data[-(length + 8) :]
    checksums = [with_checksum(data), f"footer-crc32:{zlib.crc32(tail):08x}", f"footer-crc32:{zlib.crc32(data):08x}"]
    for checksum in checksums:
        for read in (read_back, read_from):
            with pytest.raises(CorruptionError, match=KEY):
                read(data, checksum, TABLE)


@pytest.mark.parametrize(
    "footer",
    [
        b"\x00",
        b"\x19" * 1000,  # lists of lists of lists
        b"\x1c" * 1000,  # structs of structs of structs
        b"\x29\xfc\xff\xff\xff\xff\x0f",  # a list of four billion structs
        b"\x18\xff\xff\xff\xff\x0f",  # a text of four billion bytes
        b"\x15" + b"\xff" * 50,  # a number without end
        b"\x16\x00\x19\x0c\x19\x0c\x00",
        b"\x15\x02\x19\x1c\x15\x00\x00\x16\x00\x19\x1c\x19\x1c\x00\x16\x00\x26\x00\x00\x00",
    ],
)
def test_a_hostile_footer_is_damage_even_with_the_right_checksum(footer):
    data = b"PAR1" + footer + len(footer).to_bytes(4, "little") + b"PAR1"
    for checksum in (with_checksum(data), footer_checksum(data)):
        with pytest.raises(CorruptionError, match=KEY):
            read_back(data, checksum, TABLE)


def test_mutated_files_with_the_right_checksum_give_rows_or_one_error():
    dice = random.Random(11)
    files = [encode(TABLE).data, FOREIGN["zstd, dictionary"], FOREIGN["pages of version 2"]]
    for _ in range(3000):
        data = bytearray(dice.choice(files))
        footer = int.from_bytes(data[-8:-4], "little")
        for _ in range(dice.choice((1, 1, 2, 5))):
            position = len(data) - 9 - dice.randrange(footer) if dice.random() < 0.7 else dice.randrange(len(data))
            data[position] = dice.randrange(256) if dice.random() < 0.5 else data[position] ^ (1 << dice.randrange(8))
        mutated = bytes(data)
        checksums = [with_checksum(mutated)]
        if mutated[-4:] == b"PAR1":
            checksums.append(footer_checksum(mutated))
        for checksum in checksums:
            try:
                result = read_back(mutated, checksum, TABLE)
            except CorruptionError:
                continue
            assert result.num_rows == 12
            assert result.schema.equals(SCHEMA)


# --- random access ----------------------------------------------------------------------------------------------------


def test_only_the_footer_and_the_wanted_columns_are_read(monkeypatch):
    monkeypatch.setattr(segment_file, "TAIL_GUESS_BYTES", 64)
    monkeypatch.setattr(segment_file, "GAP_BYTES", 0)
    table = pa.table({name: pa.array(range(5_000), pa.int64()) for name in "abcd"})
    data = foreign(table, use_dictionary=False, compression="none", row_group_size=2_500)
    file = Reads(data)
    options: dict[str, Any] = {"size_bytes": len(data), "schema": table.schema, "rows": 5_000, "key": KEY}
    result = decode_from(file, footer_checksum(data), columns=["b", "d"], **options)
    assert result.equals(table.select(["b", "d"]))
    metadata = pq.ParquetFile(io.BytesIO(data)).metadata
    footer = int.from_bytes(data[-8:-4], "little") + 8
    wanted = sum(metadata.row_group(g).column(c).total_compressed_size for g in (0, 1) for c in (1, 3))
    assert sum(end - start for start, end in file.ranges) == wanted + footer
    assert len(file.ranges) == 2 + 4


def test_neighbouring_columns_are_read_in_one_go():
    table = pa.table({name: pa.array(range(20_000), pa.int64()) for name in "abcd"})
    data = foreign(table, use_dictionary=False, compression="none")
    file = Reads(data)
    options: dict[str, Any] = {"size_bytes": len(data), "schema": table.schema, "rows": 20_000, "key": KEY}
    assert decode_from(file, footer_checksum(data), **options).equals(table)
    assert len(file.ranges) == 2


def test_an_error_of_the_file_itself_comes_through():
    class Gone(io.BytesIO):
        def read(self, size: int | None = -1, /) -> bytes:
            raise ConnectionError("gone")

    data = encode(TABLE).data
    for checksum in (with_checksum(data), footer_checksum(data)):
        with pytest.raises(ConnectionError):
            decode_from(Gone(data), checksum, size_bytes=len(data), schema=SCHEMA, rows=12, key=KEY)


# --- where it runs ----------------------------------------------------------------------------------------------------


def test_executors_need_nothing_but_pyarrow():
    code = (
        "import sys\n"
        "for name in ('msgspec', 'xxhash', 'fsspec', 'numpy', 'pandas', 'click', 'pyspark'): sys.modules[name] = None\n"
        "import pyarrow as pa\n"
        "from txnlog.data.segment_file import encode, decode\n"
        "table = pa.table({'x': [1]})\n"
        "s = encode(table)\n"
        "assert decode(s.data, s.checksum, schema=table.schema, rows=1, key='k').equals(table)\n"
        "assert s.statistics == {'x': (1, 1, 0)}\n"
    )
    subprocess.run([sys.executable, "-W", "error", "-c", code], check=True, timeout=60)
