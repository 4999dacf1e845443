"""Columns of a file whose bytes are trusted: which types are taken, and what is damage."""

from __future__ import annotations

import base64
import datetime as dt
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from txnlog.data.joined_tables import joined
from txnlog.data.parquet_pages import DamagedError
from txnlog.data.segment_columns import STORED_COLUMNS, read_columns
from txnlog.data.segment_file import SegmentWriter

SCHEMA = pa.schema([pa.field("id", pa.int64(), nullable=False), pa.field("name", pa.string())])
TABLE = pa.table({"id": [1, 2], "name": ["a", "b"]}, SCHEMA)
UTC, LOCAL = pa.timestamp("us", "UTC"), pa.timestamp("us")
MOMENT = dt.datetime(2026, 11, 21, 1, 2, 3, 4, dt.UTC)


def stored(table: pa.Table, arrow_schema: bytes | None = None, **options: Any) -> pa.Buffer:
    """The bytes of a file, with an Arrow schema of one's choice."""
    sink = pa.BufferOutputStream()
    with pq.ParquetWriter(sink, table.schema, store_schema=False, write_page_checksum=True, **options) as writer:
        writer.write_table(table)
        if arrow_schema is not None:
            writer.add_key_value_metadata({"ARROW:schema": arrow_schema})
    return sink.getvalue()


def read_one(array: pa.Array | pa.ChunkedArray, kind: pa.DataType, **options: Any) -> list[Any]:
    """The values of a file's only column, read as a type."""
    table = pa.table({"x": array})
    found = read_columns(stored(table, **options), pa.schema([("x", kind)]), table.num_rows)
    assert found.schema.field("x").type == kind
    return found.column("x").to_pylist()


def other(name: str, kind: pa.DataType) -> bytes:
    """An Arrow schema that says another type of a column."""
    place = SCHEMA.get_field_index(name)
    return base64.b64encode(SCHEMA.set(place, pa.field(name, kind)).serialize().to_pybytes())


# --- Arrow's own types ------------------------------------------------------------------------------------------------


@pytest.mark.clause("P-219")
@pytest.mark.parametrize(
    "said",
    [
        b"",
        b"%%%",
        base64.b64encode(b"no schema"),
        other("name", pa.large_string()),
        other("name", pa.dictionary(pa.int32(), pa.string())),
        other("id", pa.duration("us")),
        other("id", pa.timestamp("us", "UTC")),
    ],
)
def test_the_types_are_those_of_parquet_whatever_arrow_left_in_the_footer(said):
    assert read_columns(stored(TABLE, said), SCHEMA, 2).equals(TABLE)


def test_columns_may_be_called_as_the_key_of_arrows_types():
    table = pa.table({"ARROW:schema": ["a"], "x": [{"ARROW:schema": 1}], "ARROW:schema ": [2]})
    assert read_columns(stored(table, b"%%%"), table.schema, 1).equals(table)


# --- types that widen, and others -------------------------------------------------------------------------------------


@pytest.mark.clause("P-219")
@pytest.mark.parametrize(
    ("kind", "wanted"),
    [
        (pa.uint8(), pa.int64()),
        (pa.uint32(), pa.int64()),
        (pa.uint16(), pa.float64()),
        (pa.timestamp("us"), UTC),
        (pa.timestamp("ms"), UTC),
        (pa.timestamp("ms", "UTC"), UTC),
        (pa.timestamp("ns"), LOCAL),
        (pa.list_(pa.timestamp("us")), pa.list_(UTC)),
        (pa.struct([("a", pa.uint8())]), pa.struct([("a", pa.int16())])),
    ],
)
def test_a_type_that_is_no_column_s_is_damage(kind, wanted):
    with pytest.raises(DamagedError, match="its column 'x' is"):
        read_one(pa.array([None], kind), wanted)


@pytest.mark.clause("P-219")
def test_old_96_bit_timestamps_are_instants_wherever_they_are():
    kind = pa.struct([("a", pa.int32()), ("b", pa.list_(LOCAL)), ("c", pa.map_(pa.string(), LOCAL)), ("d", LOCAL)])
    wanted = pa.struct([("a", pa.int64()), ("b", pa.list_(UTC)), ("c", pa.map_(pa.string(), UTC)), ("d", UTC)])
    plain = MOMENT.replace(tzinfo=None)
    array = pa.array([{"a": 1, "b": [plain], "c": [("k", plain)], "d": plain}], kind)
    expected = [{"a": 1, "b": [MOMENT], "c": [("k", MOMENT)], "d": MOMENT}]
    assert read_one(array, wanted, use_deprecated_int96_timestamps=True) == expected
    with pytest.raises(DamagedError, match="its column 'x' is"):
        read_one(array, wanted)


def twice(*names: str) -> pa.Array:
    return pa.StructArray.from_arrays([pa.array([place]) for place in range(len(names))], names=list(names))


@pytest.mark.clause("P-219")
def test_a_field_that_a_struct_has_twice_is_damage_where_the_schema_has_it():
    kind = pa.struct([("a", pa.int64()), ("b", pa.int64())])
    for names in (("a", "a", "b"), ("b", "a", "b")):
        with pytest.raises(DamagedError, match="its column 'x' is"):
            read_one(twice(*names), kind)
    assert read_one(twice("c", "a", "c"), kind) == [{"a": 1, "b": None}]


# --- columns that the file stores of its own --------------------------------------------------------------------------


def read_stored(name: str, array: pa.Array) -> list[Any]:
    """A column that a file stores besides the topic's."""
    data = stored(pa.table({name: array}))
    return read_columns(data, pa.schema([STORED_COLUMNS.field(name)]), len(array)).column(name).to_pylist()


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("_txn", pa.int32()),
        ("_partition", pa.int16()),
        ("_version", pa.int32()),
        ("_timestamp", pa.timestamp("us")),
    ],
)
def test_columns_that_are_not_the_topics_have_their_very_type(name, kind):
    assert read_stored(name, pa.array([1], STORED_COLUMNS.field(name).type))
    with pytest.raises(DamagedError, match=f"its column '{name}' is"):
        read_stored(name, pa.array([1], kind))


@pytest.mark.clause("P-11")
def test_a_negative_number_is_no_transactions():
    assert read_stored("_txn", pa.array([0, 2**63 - 1])) == [0, 2**63 - 1]
    assert read_stored("_txn", pa.array([], pa.int64())) == []
    with pytest.raises(DamagedError, match="negative"):
        read_stored("_txn", pa.array([7, -1, 7]))


# --- nested texts -----------------------------------------------------------------------------------------------------

EVENT = pa.struct([("trace", pa.string())])
EVENTS = pa.schema([("event", EVENT), ("n", pa.int64())])


@pytest.mark.parametrize("names", [["event", "n"], ["event"], ["n", "event"]])
def test_a_file_with_nested_columns_is_decoded_a_row_group_at_a_time(
    names: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Arrow decodes no more than 2 GiB of such a text at once, and a merged file may have more."""

    class Reader(pq.ParquetReader):  # type: ignore[misc]
        def read_all(self, *_arguments: Any, **_named: Any) -> pa.Table:
            raise pa.ArrowNotImplementedError("Nested data conversions not implemented for chunked array outputs")

    table = pa.table({"event": pa.array([{"trace": "a"}, None, {"trace": None}], EVENT), "n": [1, 2, 3]}, EVENTS)
    sink = pa.BufferOutputStream()
    with pq.ParquetWriter(sink, EVENTS, store_schema=False, write_page_checksum=True) as writer:
        writer.write_table(table, row_group_size=2)
    monkeypatch.setattr(pq, "ParquetReader", Reader)
    wanted = pa.schema([EVENTS.field(name) for name in names])
    assert read_columns(sink.getvalue(), wanted, 3).to_pydict() == table.select(names).to_pydict()


@pytest.mark.long
def test_more_than_two_gib_of_a_nested_text_are_read_from_one_file() -> None:
    text = "a stack trace " * (1 << 16)
    part = pa.table({"event": pa.array([{"trace": text}] * 32, EVENT), "n": range(32)}, EVENTS)
    count = 2**31 // (32 * len(text)) + 2
    writer = SegmentWriter(EVENTS, None)
    for _ in range(count):
        assert not list(writer.write(part))
    (segment,) = writer.finish()
    rows = read_columns(pa.py_buffer(segment.data), EVENTS, 32 * count)
    traces = pc.struct_field(rows.column("event"), "trace")
    assert (rows.num_rows, pc.sum(pc.utf8_length(traces)).as_py()) == (32 * count, 32 * count * len(text))
    assert joined([rows.slice(0, rows.num_rows // 2), rows.slice(rows.num_rows // 2)]).num_rows == rows.num_rows
