"""Segments come back as they were written, in whole or in part, also where the schema grew."""

from __future__ import annotations

import datetime as dt
import decimal
import io
import subprocess
import sys
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.effort import tries
from tests.segments import encode_many, footer_checksum
from tests.unit.arrow_strategies import tables
from tests.unit.segment_files import KEY, SCHEMA, TABLE, check_statistics, foreign, read_back, read_from, with_checksum
from txnlog.data import segment_file
from txnlog.data.segment_columns import STORED_COLUMNS
from txnlog.data.segment_file import EncodedSegment, SegmentWriter, decode, decode_from, encode
from txnlog.errors import CorruptionError


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


@given(tables())
@settings(max_examples=tries(150, 30), deadline=None)
def test_rows_as_they_were_written_are_merged_as_those_that_are_read_back(table):
    """Who merges small segments takes the rows of its own files as it had them."""
    encoded = encode(table)
    read = decode(encoded.data, encoded.checksum, schema=table.schema, rows=encoded.rows, key=KEY)
    merged = [list(encode_many([rows, rows], table.schema, 1 << 20)) for rows in (table, read)]
    assert merged[0] == merged[1]


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
