"""A segment with columns of many types, how it is read, and how its statistics are checked."""

from __future__ import annotations

import datetime as dt
import decimal
import io
import math
import zlib
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from txnlog.data.segment_file import EncodedSegment, decode, decode_from

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


def read_back(data: bytes, checksum: str, table: pa.Table, columns: list[str] | None = None) -> pa.Table:
    return decode(data, checksum, schema=table.schema, rows=table.num_rows, columns=columns, key=KEY)


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
