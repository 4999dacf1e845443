"""Null below null can be written: of a struct that is null, also the fields that are never null, however deep."""

from __future__ import annotations

import decimal

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from txnlog.data import segment_file
from txnlog.errors import SchemaMismatch

CITY = pa.struct([pa.field("city", pa.string(), False)])
OSLO = {"city": "Oslo"}
SIMPLE = pa.struct(
    [
        pa.field("flag", pa.bool_(), False),
        pa.field("bytes", pa.binary(), False),
        pa.field("price", pa.decimal128(10, 2), False),
        pa.field("when", pa.date32()),
    ]
)
VALUES = [
    (CITY, OSLO),
    (SIMPLE, {"flag": True, "bytes": b"b", "price": decimal.Decimal("1.25"), "when": None}),
    (pa.struct([pa.field("in", CITY, False)]), {"in": OSLO}),
    (pa.struct([pa.field("in", CITY)]), {"in": None}),
    (pa.struct([pa.field("all", pa.list_(pa.field("element", CITY, False)), False)]), {"all": [OSLO, OSLO]}),
    (pa.struct([pa.field("by", pa.map_(pa.string(), CITY), False)]), {"by": [("a", OSLO), ("b", None)]}),
    (pa.list_(CITY), [OSLO, None]),
    (pa.map_(pa.string(), CITY), [("a", None)]),
]


def stored(array: pa.Array) -> list[object]:
    """What is read of a file with the array, written at once and in parts."""
    schema = pa.schema([("x", array.type)])
    table = pa.table([array], schema=schema)
    writer = segment_file.SegmentWriter(schema)
    files = [segment_file.encode(table), *writer.write(table), *writer.finish()]
    read = [
        segment_file.decode(file.data, file.checksum, schema=schema, rows=file.rows, key="k")["x"].to_pylist()
        for file in files
    ]
    assert read[0] == read[1]
    return read[0]


@pytest.mark.parametrize(("kind", "value"), VALUES, ids=lambda item: str(item)[:40])
def test_null_of_any_type_can_be_written(kind, value):
    nulls = pa.nulls(3, kind)
    assert stored(nulls) == [*stored(nulls.slice(1)), None] == [None] * 3
    mixed = pa.concat_arrays([pa.array([None, value], kind), nulls, pa.array([value, value], kind)])
    for array in (mixed, mixed.slice(1), mixed.slice(2, 4)):
        assert stored(array) == array.to_pylist()


def test_a_field_that_a_wider_type_adds_can_be_written():
    wider = pa.struct([pa.field("a", pa.int64()), pa.field("address", CITY)])
    assert stored(pa.array([{"a": 1}, None]).cast(wider)) == [{"a": 1, "address": None}, None]


def test_a_null_that_nothing_hides_is_not_replaced():
    child = pa.array(["Oslo", None])
    with pytest.raises(SchemaMismatch, match="non-nullable"):
        stored(pa.Array.from_buffers(CITY, 2, [None], children=[child]))


def test_rows_of_an_older_file_can_be_written_by_anybody():
    older = segment_file.encode(pa.table({"id": [1], "inner": pa.array([{"a": 1}])}))
    inner = pa.struct([pa.field("a", pa.int64()), pa.field("address", CITY)])
    newer = pa.schema([("id", pa.int64()), ("inner", inner), ("address", CITY)])
    rows = segment_file.decode(older.data, older.checksum, schema=newer, rows=1, key="k")
    pq.write_table(rows, pa.BufferOutputStream())
    assert rows.to_pylist() == [{"id": 1, "inner": {"a": 1, "address": None}, "address": None}]
