"""Null below null: in a field that is never null, Parquet's writer takes none, also where the struct around it is null.

Arrow itself makes such arrays: of the type of a column that is missing, and in the place of a field that a wider type
adds. Whatever is written to a segment goes through here, wherever it came from.

This module runs on Spark's executors too: it needs PyArrow alone.
"""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc


def holds_not_null(kind: pa.DataType) -> bool:
    """Whether the type says not null anywhere inside, which Arrow itself sees to only for the keys of maps."""
    if pa.types.is_map(kind):
        return not kind.item_field.nullable or holds_not_null(kind.key_type) or holds_not_null(kind.item_type)
    if not pa.types.is_nested(kind):
        return False
    children = [kind.field(index) for index in range(kind.num_fields)]
    return any(not child.nullable or holds_not_null(child.type) for child in children)


def storable(table: pa.Table) -> pa.Table:
    """The same rows, with any value in the place of null where a field is never null and what is around it is null.

    A null that is not hidden so stays: the writer refuses it.
    """
    for index, field in enumerate(table.schema):
        if holds_not_null(field.type):
            chunks = [_filled(chunk) for chunk in table.column(index).chunks]
            table = table.set_column(index, field, pa.chunked_array(chunks, field.type))
    return table


def _filled(array: pa.Array) -> pa.Array:
    kind = array.type
    if not holds_not_null(kind):
        return array
    if pa.types.is_struct(kind):
        parts = [_filled(array.field(index)) for index in range(kind.num_fields)]
        children = [
            part if child.nullable or _shows_null(array, part) else _never_null(part)
            for child, part in zip(kind, parts, strict=True)
        ]
        return pa.StructArray.from_arrays(children, fields=list(kind), mask=array.is_null())
    return _with_elements(array, array.buffers()[0])


def _shows_null(array: pa.StructArray, part: pa.Array) -> bool:
    """Whether a field is null where its struct is not."""
    return bool(part.null_count) and pc.any(pc.and_(part.is_null(), array.is_valid())).as_py()


def _with_elements(array: pa.ListArray | pa.MapArray, validity: pa.Buffer | None) -> pa.Array:
    """The list or map with its elements filled."""
    kind = array.type
    if pa.types.is_map(kind):
        fields = [kind.key_field, kind.item_field]
        elements = pa.StructArray.from_arrays([_filled(array.keys), _filled(array.items)], fields=fields)
    else:
        elements = _filled(array.values)
    return pa.Array.from_buffers(
        kind, len(array), [validity, array.buffers()[1]], offset=array.offset, children=[elements]
    )


def _never_null(array: pa.Array) -> pa.Array:
    """The array with any value in the place of null."""
    if not array.null_count:
        return array
    kind = array.type
    if pa.types.is_struct(kind):
        fields = [array.field(index) for index in range(kind.num_fields)]
        return pa.StructArray.from_arrays(fields, fields=list(kind))
    if pa.types.is_list(kind) or pa.types.is_map(kind):
        return _with_elements(array, None)
    return pa.Array.from_buffers(kind, len(array), [None, *array.buffers()[1:]], offset=array.offset)


__all__ = ["holds_not_null", "storable"]
