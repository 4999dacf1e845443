"""Decoding the columns of a Parquet file, whose bytes were verified, in the topic's schema.

Older files have fewer and narrower columns; every other difference is damage.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import pyarrow as pa
import pyarrow.parquet as pq

from txnlog.common.signal_errors import raise_of_handler
from txnlog.data.hidden_nulls import storable
from txnlog.data.parquet_pages import MAGIC, TAIL_BYTES, DamagedError, footer_length
from txnlog.data.segment_statistics import leaves

STORED_COLUMNS: Final = pa.schema(
    [
        pa.field("_txn", pa.int64(), nullable=False),
        pa.field("_partition", pa.int32(), nullable=False),
        pa.field("_version", pa.int64(), nullable=False),
        pa.field("_timestamp", pa.timestamp("us", "UTC"), nullable=False),
        pa.field("_offset", pa.int64(), nullable=False),
    ]
)
"""What a file may store after the user's columns, because the log cannot say it of all its rows."""

_MERGED: Final = tuple(STORED_COLUMNS.field(name) for name in ("_txn", "_version", "_timestamp"))
_INSTANT: Final = pa.timestamp("us", "UTC")

THREADS_BYTES: Final = 4 << 20
"""Smaller files are decoded on the calling thread: passing them to Arrow's threads costs more than it saves."""

_ARROW_SCHEMA: Final = b"\x18\x0cARROW:schema\x18"
_OF_NOBODY: Final = b"\x18\x0carrow schema\x18"
"""The key of a footer's metadata under which Arrow keeps its own types, as Thrift writes a key that has a value.

Nothing else that a reader needs can look so: behind the name of a column stands no text.
"""

_DAMAGE: Final = (pa.ArrowException, OSError, ValueError, KeyError, IndexError, TypeError, OverflowError)
"""The exceptions that Arrow raises for bytes that it cannot decode (some of its own errors are Python's)."""


def merged_columns(schema: pa.Schema, *, has_holes: bool) -> pa.Schema:
    """The columns of a merged file of a topic; one with holes stores the offset of each row as well."""
    return pa.schema([*schema, *_MERGED, *([STORED_COLUMNS.field("_offset")] if has_holes else [])])


def read_columns(buffer: pa.Buffer, wanted: pa.Schema, rows: int) -> pa.Table:
    """Decode the wanted columns of a file whose bytes were verified. Raises DamagedError where that fails."""
    try:
        # Not a ParquetFile, which has an index made of all columns, and the bytes, which are here, read by a thread.
        file = pq.ParquetReader()
        file.open(
            pa.BufferReader(buffer),
            metadata=_own_types(buffer),
            page_checksum_verification=True,
            coerce_int96_timestamp_unit="us",
        )
        if file.metadata.num_rows != rows:
            raise DamagedError(f"it holds {file.metadata.num_rows:,} rows, the log says {rows:,}")
        stored = file.schema_arrow
        if stored.equals(wanted):  # true of nearly every file; the rest takes longer than reading a small one
            table = _read(file, stored, None, use_threads=buffer.size >= THREADS_BYTES)
            if table.num_rows != rows:
                raise DamagedError(f"it decodes to {table.num_rows:,} rows, the log says {rows:,}")
            return _checked(pa.Table.from_arrays(table.columns, schema=wanted))
        indices: list[int] = []
        places: dict[str, range] = {}
        position = 0
        names = frozenset(wanted.names)
        for field in stored:
            places[field.name] = range(position, position + leaves(field.type))
            if field.name in names:
                indices += places[field.name]
            position = places[field.name].stop
        if position != len(file.column_paths):  # reading these raises, too, where the name of a field is no text
            raise DamagedError("its columns are others than those of its types")
        table = _read(file, stored, indices, use_threads=buffer.size >= THREADS_BYTES)
    except DamagedError:
        raise
    except _DAMAGE as error:
        raise_of_handler(error)
        raise DamagedError(f"it does not decode: {error}") from None
    if table.num_rows != rows and indices:
        raise DamagedError(f"it decodes to {table.num_rows:,} rows, the log says {rows:,}")
    present = table.column_names
    if len(set(present)) != len(present):
        raise DamagedError("a column is there twice")
    arrays = [_column(file, places, table, field, rows) for field in wanted]
    if not arrays:
        return table
    return _checked(storable(pa.Table.from_arrays(arrays, schema=wanted)))


def _read(file: pq.ParquetReader, stored: pa.Schema, indices: list[int] | None, *, use_threads: bool) -> pa.Table:
    # Arrow decodes no more than 2 GiB of a text in a nested column at once: of a row group there is never as much.
    if file.num_row_groups > 1 and any(pa.types.is_nested(field.type) for field in stored):
        groups = range(file.num_row_groups)
        return pa.concat_tables([file.read_row_group(group, indices, use_threads) for group in groups])
    return file.read_all(column_indices=indices, use_threads=use_threads)


def _checked(table: pa.Table) -> pa.Table:
    """Return the table. Raises DamagedError where its column ``_txn`` has a number that no transaction can have."""
    if "_txn" in table.schema.names and table.num_rows and table.column("_txn").to_numpy().min() < 0:
        raise DamagedError("its column '_txn' holds a negative number, which is no transaction's")
    return table


def _own_types(buffer: pa.Buffer) -> pq.FileMetaData | None:
    """The footer without the types that Arrow may have left there besides Parquet's; None where it left none.

    Arrow prefers them to the file's own types, and rejects a whole file if it cannot decode some of them.
    """
    view = memoryview(buffer)
    start = len(view) - TAIL_BYTES - footer_length(bytes(view[-TAIL_BYTES:]))
    footer = bytes(view[max(0, start) :])
    if _ARROW_SCHEMA not in footer:
        return None
    return pq.read_metadata(pa.BufferReader(MAGIC + footer.replace(_ARROW_SCHEMA, _OF_NOBODY)))


def _column(
    file: pq.ParquetReader, places: dict[str, range], table: pa.Table, field: pa.Field, rows: int
) -> pa.Array | pa.ChunkedArray:
    if field.name not in table.column_names:
        if not field.nullable and rows:
            raise DamagedError(f"it has no column {field.name!r}")
        return pa.nulls(rows, field.type)
    column = table.column(field.name)
    if column.type != field.type:
        physical = iter([file.metadata.schema.column(index).physical_type for index in places[field.name]])
        if field.name in STORED_COLUMNS.names or not _widens(_instants(column.type, physical), field.type):
            raise DamagedError(f"its column {field.name!r} is {column.type}, the topic's is {field.type}")
        try:
            column = column.cast(field.type)
        except _DAMAGE as error:
            raise_of_handler(error)
            raise DamagedError(f"its column {field.name!r} does not become {field.type}: {error}") from None
    if not field.nullable and column.null_count:
        raise DamagedError(f"its column {field.name!r} holds null")
    return column


def _instants(kind: pa.DataType, physical: Iterator[str]) -> pa.DataType:
    """The stored type, with Spark's old 96-bit timestamps as instants in UTC: Arrow gives them no time zone.

    ``physical`` are the Parquet types of its leaves.
    """
    if pa.types.is_struct(kind):
        return pa.struct([field.with_type(_instants(field.type, physical)) for field in kind])
    if pa.types.is_list(kind):
        return pa.list_(kind.value_field.with_type(_instants(kind.value_type, physical)))
    if pa.types.is_map(kind):
        key = _instants(kind.key_type, physical)
        return pa.map_(key, kind.item_field.with_type(_instants(kind.item_type, physical)))
    return _INSTANT if next(physical, "") == "INT96" else kind


def _widens(stored: pa.DataType, wanted: pa.DataType) -> bool:
    """Whether every value of the stored type is one of the wanted type, as schemas evolve (P-219)."""
    is_ = pa.types
    if stored == wanted:
        return True
    if is_.is_struct(stored) and is_.is_struct(wanted):
        names = [field.name for field in stored]
        return all(
            names.count(field.name) == 1 and _widens(stored.field(names.index(field.name)).type, field.type)
            if field.name in names
            else field.nullable
            for field in wanted
        )
    if is_.is_list(stored) and is_.is_list(wanted):
        return _widens(stored.value_type, wanted.value_type)
    if is_.is_map(stored) and is_.is_map(wanted):
        return _widens(stored.key_type, wanted.key_type) and _widens(stored.item_type, wanted.item_type)
    if is_.is_signed_integer(stored):
        if is_.is_integer(wanted):
            return stored.bit_width <= wanted.bit_width
        return is_.is_float64(wanted) and stored.bit_width <= 32
    if is_.is_float32(stored):
        return is_.is_float64(wanted)
    if is_.is_decimal(stored) and is_.is_decimal(wanted):
        return stored.scale <= wanted.scale and stored.precision - stored.scale <= wanted.precision - wanted.scale
    return False


__all__ = ["STORED_COLUMNS", "merged_columns", "read_columns"]
