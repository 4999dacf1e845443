"""The columns of a Parquet file, whose bytes are trusted, in the topic's schema.

Older files have fewer and narrower columns; every other difference is damage.
"""

from __future__ import annotations

from typing import Final

import pyarrow as pa
import pyarrow.parquet as pq

from txnlog.data.parquet_pages import DamagedError
from txnlog.data.segment_statistics import leaves

STORED_COLUMNS: Final = pa.schema(
    [
        pa.field("_txn", pa.int64(), nullable=False),
        pa.field("_partition", pa.int32(), nullable=False),
        pa.field("_version", pa.int64(), nullable=False),
        pa.field("_timestamp", pa.timestamp("us", "UTC"), nullable=False),
    ]
)
"""What a file may store after the user's columns, because the log cannot say it of all its rows."""

THREADS_BYTES: Final = 4 << 20
"""Smaller files are decoded on the calling thread: handing them over costs more than it saves."""

_DAMAGE: Final = (pa.ArrowException, OSError, ValueError, KeyError, IndexError, TypeError, OverflowError)
"""What Arrow raises for bytes that it cannot read (some of its own errors are Python's)."""


def read_columns(buffer: pa.Buffer, wanted: pa.Schema, rows: int) -> pa.Table:
    """The wanted columns of a file whose bytes are trusted. Raises DamagedError for whatever does not decode."""
    try:
        file = pq.ParquetFile(
            pa.BufferReader(buffer), page_checksum_verification=True, coerce_int96_timestamp_unit="us"
        )
        if file.metadata.num_rows != rows:
            raise DamagedError(f"it holds {file.metadata.num_rows:,} rows, the log says {rows:,}")
        stored = file.schema_arrow
        if stored.equals(wanted):  # as it is of nearly every file: what follows takes longer than to read a small one
            table = file.reader.read_all(use_threads=buffer.size >= THREADS_BYTES)
            if table.num_rows != rows:
                raise DamagedError(f"it decodes to {table.num_rows:,} rows, the log says {rows:,}")
            return pa.Table.from_arrays(table.columns, schema=wanted)
        indices: list[int] = []
        position = 0
        names = frozenset(wanted.names)
        for field in stored:
            count = leaves(field.type)
            if field.name in names:
                indices += range(position, position + count)
            position += count
        table = file.reader.read_all(column_indices=indices, use_threads=buffer.size >= THREADS_BYTES)
    except DamagedError:
        raise
    except _DAMAGE as error:
        raise DamagedError(f"it does not decode: {error}") from None
    if table.num_rows != rows and indices:
        raise DamagedError(f"it decodes to {table.num_rows:,} rows, the log says {rows:,}")
    present = table.column_names
    if len(set(present)) != len(present):
        raise DamagedError("a column is there twice")
    arrays = [_column(table, field, rows) for field in wanted]
    if not arrays:
        return table
    return pa.Table.from_arrays(arrays, schema=wanted)


def _column(table: pa.Table, field: pa.Field, rows: int) -> pa.Array | pa.ChunkedArray:
    if field.name not in table.column_names:
        if not field.nullable and rows:
            raise DamagedError(f"it has no column {field.name!r}")
        return pa.nulls(rows, field.type)
    column = table.column(field.name)
    if column.type != field.type:
        if not _widens(column.type, field.type):
            raise DamagedError(f"its column {field.name!r} is {column.type}, the topic's is {field.type}")
        try:
            column = column.cast(field.type)
        except _DAMAGE as error:
            raise DamagedError(f"its column {field.name!r} does not become {field.type}: {error}") from None
    if not field.nullable and column.null_count:
        raise DamagedError(f"its column {field.name!r} holds null")
    return column


def _widens(stored: pa.DataType, wanted: pa.DataType) -> bool:
    """Whether every value of the stored type is one of the wanted type, as schemas evolve and as Spark writes."""
    is_ = pa.types
    if stored == wanted:
        return True
    if is_.is_struct(stored) and is_.is_struct(wanted):
        stored_fields = {field.name: field for field in stored}
        return all(
            _widens(stored_fields[field.name].type, field.type) if field.name in stored_fields else field.nullable
            for field in wanted
        )
    if is_.is_list(stored) and is_.is_list(wanted):
        return _widens(stored.value_type, wanted.value_type)
    if is_.is_map(stored) and is_.is_map(wanted):
        return _widens(stored.key_type, wanted.key_type) and _widens(stored.item_type, wanted.item_type)
    if is_.is_integer(stored):
        if is_.is_integer(wanted):
            return stored.bit_width <= wanted.bit_width
        return is_.is_float64(wanted) and stored.bit_width <= 32
    if is_.is_float32(stored):
        return is_.is_float64(wanted)
    if is_.is_decimal(stored) and is_.is_decimal(wanted):
        return stored.scale <= wanted.scale and stored.precision - stored.scale <= wanted.precision - wanted.scale
    # Spark's old 96-bit timestamps are instants, and come without a zone.
    return is_.is_timestamp(stored) and stored.tz is None and is_.is_timestamp(wanted)


__all__ = ["STORED_COLUMNS", "read_columns"]
