"""Rows as plain bytes for another process, and back, strictly.

Whoever made the bytes may mean harm, and Arrow's own format would have a reader follow what they say of themselves: its
metadata is not checked as it is read, and a small body may be compressed. So only the buffers of the columns travel, in
an order that the schema gives. They cost no more memory than they have, and are checked before anybody looks at a row.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import pyarrow as pa
from msgspec import Struct

from txnlog.data.arrow_coercion import ARROW_ERRORS

_OFFSET: Final = 4
"""Bytes of an offset of text, binary, lists and maps."""


class MalformedRows(Exception):
    """Buffers that are not those of rows of the schema."""


class WireRows(Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """Rows of one topic: ``[rows, buffers]``.

    Attributes:
        rows: how many.
        buffers: of each column in the order of the schema: the validity, None where nothing is null; then what Arrow's
            columnar format has for the type (values; or offsets and values; or the buffers of the fields, elements or
            entries, for a list or map behind its offsets). Little-endian.
    """

    rows: int
    buffers: tuple[bytes | None, ...]


def encode(table: pa.Table) -> WireRows:
    """The rows of a table."""
    (batch,) = table.combine_chunks().to_batches() or [pa.RecordBatch.from_pylist([], table.schema)]
    # Through Arrow's own format: only so a slice has just what it shows.
    batch = pa.ipc.read_record_batch(batch.serialize(), batch.schema)
    buffers = [buffer for column in batch.columns for buffer in column.buffers()]
    return WireRows(batch.num_rows, tuple([None if buffer is None else buffer.to_pybytes() for buffer in buffers]))


def decode(found: WireRows, schema: pa.Schema) -> pa.Table:
    """The table: its columns are of exactly this schema, and valid. Raises MalformedRows."""
    buffers = iter(found.buffers)
    try:
        if not 0 <= found.rows < 1 << 31:
            raise MalformedRows(f"there cannot be {found.rows} of them")
        table = pa.Table.from_arrays([_array(field.type, found.rows, buffers) for field in schema], schema=schema)
    except (*ARROW_ERRORS, StopIteration):
        raise MalformedRows("they cannot be read") from None  # Arrow's texts show values
    if next(buffers, self := object()) is not self:
        raise MalformedRows("there are more buffers than columns need")
    return table


def _array(kind: pa.DataType, length: int, buffers: Iterator[bytes | None]) -> pa.Array:
    own = [next(buffers) for _ in range(kind.num_buffers)]
    if None in own[1:]:
        raise MalformedRows("a buffer is missing")
    children: list[pa.Array] = []
    if pa.types.is_struct(kind):
        children = [_array(kind.field(number).type, length, buffers) for number in range(kind.num_fields)]
    elif pa.types.is_list(kind) or pa.types.is_map(kind):
        inner = pa.struct([kind.key_field, kind.item_field]) if pa.types.is_map(kind) else kind.value_type
        child = _array(inner, _last_offset(own[1], length), buffers)
        if pa.types.is_map(kind) and (child.null_count or child.field(0).null_count):
            raise MalformedRows("a map has null for an entry or a key")  # Arrow ends the process
        children = [child]
    if length == 0:
        return pa.array([], kind)  # nobody checks the buffers of no rows, and some read them
    made: Any = [None if data is None else pa.py_buffer(data) for data in own]
    array = pa.Array.from_buffers(kind, length, made, children=children or None)
    array.validate(full=True)
    return array


def _last_offset(offsets: bytes | None, length: int) -> int:
    if length == 0:
        return 0
    data = (offsets or b"")[_OFFSET * length : _OFFSET * (length + 1)]
    last = int.from_bytes(data, "little", signed=True)
    if len(data) != _OFFSET or last < 0:
        raise MalformedRows("their offsets are cut")
    return last


__all__ = ["MalformedRows", "WireRows", "decode", "encode"]
