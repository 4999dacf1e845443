"""Rows as JSON, exactly: what ``conformance/README.md`` says of every Arrow type."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any

import pyarrow as pa

Encoder = Callable[[Any], Any]
"""From a value as PyArrow's ``to_pylist`` gives it to one that ``json`` writes."""


def encoded_rows(table: pa.Table) -> Iterator[dict[str, Any]]:
    """The rows of a table as JSON objects, their columns in the table's order."""
    names = table.column_names
    columns = [_values(table.column(name)) for name in names]
    for values in zip(*columns, strict=True):
        yield dict(zip(names, values, strict=True))


def _values(column: pa.ChunkedArray) -> list[Any]:
    kind = _countable(column.type)
    encode = _encoder(column.type)
    values = (column if kind == column.type else column.cast(kind)).to_pylist()
    return [None if value is None else encode(value) for value in values]


def _countable(kind: pa.DataType) -> pa.DataType:
    """The type with dates and times as the integers that they are: Python's own end with the year 9999."""
    if pa.types.is_date32(kind):
        return pa.int32()
    if pa.types.is_timestamp(kind):
        return pa.int64()
    if pa.types.is_list(kind):
        return pa.list_(kind.value_field.with_type(_countable(kind.value_type)))
    if pa.types.is_map(kind):
        return pa.map_(_countable(kind.key_type), kind.item_field.with_type(_countable(kind.item_type)))
    if pa.types.is_struct(kind):
        return pa.struct([field.with_type(_countable(field.type)) for field in kind])
    return kind


def _encoder(kind: pa.DataType) -> Encoder:
    if pa.types.is_binary(kind) or pa.types.is_fixed_size_binary(kind):
        return bytes.hex
    if pa.types.is_floating(kind):
        return _real
    if pa.types.is_decimal(kind):
        return lambda value: f"{value:f}"
    if pa.types.is_list(kind):
        element = _nullable(_encoder(kind.value_type))
        return lambda value: [element(item) for item in value]
    if pa.types.is_map(kind):
        key, item = _encoder(kind.key_type), _nullable(_encoder(kind.item_type))
        return lambda value: [[key(name), item(inner)] for name, inner in value]
    if pa.types.is_struct(kind):
        fields = {field.name: _nullable(_encoder(field.type)) for field in kind}
        return lambda value: {name: encode(value[name]) for name, encode in fields.items()}
    return lambda value: value


def _nullable(encode: Encoder) -> Encoder:
    return lambda value: None if value is None else encode(value)


def _real(value: float) -> float | str:
    if math.isnan(value):
        return "NaN"
    if math.isinf(value):
        return "Infinity" if value > 0 else "-Infinity"
    return value


__all__ = ["encoded_rows"]
