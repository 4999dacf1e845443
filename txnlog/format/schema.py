"""Schemas of topics: Delta's schema JSON in the log, Arrow in memory.

The log stores what Delta and Spark store (``{"type": "struct", "fields": [...]}``), so that ``spark_ext`` hands it to
Spark unchanged, and a Delta log could hold it as it is. Arrow types are mapped to the nearest of it; what has no
counterpart is refused with the way out.
"""

from __future__ import annotations

import re
from typing import Final

import pyarrow as pa
from msgspec import Struct

from txnlog.common.format_limits import MAX_COLUMN_CHARACTERS, MAX_COLUMNS, MAX_SCHEMA_DEPTH
from txnlog.common.names import nearest
from txnlog.errors import SchemaMismatch


class StructType(Struct, frozen=True, tag_field="type", tag="struct", forbid_unknown_fields=True):
    """Columns of a topic, or the fields of a nested column."""

    fields: tuple[StructField, ...]


class StructField(Struct, frozen=True, forbid_unknown_fields=True):
    """One column: name, type, whether null is allowed, free metadata."""

    name: str
    type: DataType
    nullable: bool = True
    metadata: dict[str, str] = {}


class ArrayType(Struct, frozen=True, tag_field="type", tag="array", forbid_unknown_fields=True):
    """A list of one element type."""

    elementType: DataType  # noqa: N815 - the name in Delta's schema JSON
    containsNull: bool = True  # noqa: N815


class MapType(Struct, frozen=True, tag_field="type", tag="map", forbid_unknown_fields=True):
    """A map of one key and one value type."""

    keyType: DataType  # noqa: N815
    valueType: DataType  # noqa: N815
    valueContainsNull: bool = True  # noqa: N815


DataType = str | StructType | ArrayType | MapType

PRIMITIVES: Final[dict[str, pa.DataType]] = {
    "string": pa.string(),
    "binary": pa.binary(),
    "boolean": pa.bool_(),
    "byte": pa.int8(),
    "short": pa.int16(),
    "integer": pa.int32(),
    "long": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "date": pa.date32(),
    "timestamp": pa.timestamp("us", "UTC"),
    "timestamp_ntz": pa.timestamp("us"),
}
"""Types without parts, by their names in the log, which are Spark's."""

_NAMES: Final = {arrow: name for name, arrow in PRIMITIVES.items()} | {
    pa.large_string(): "string",
    pa.large_binary(): "binary",
    pa.string_view(): "string",
    pa.binary_view(): "binary",
}
_DECIMAL: Final = re.compile(r"decimal\(([1-9][0-9]?),(0|[1-9][0-9]?)\)", re.ASCII)
_UNSIGNED: Final = {pa.uint8(): "int16", pa.uint16(): "int32", pa.uint32(): "int64", pa.uint64(): "decimal128(20, 0)"}
_COLUMN: Final = re.compile(r"[^\x00-\x1f\x7f ,;{}()=]+")

WHOLE_NUMBERS: Final = ("byte", "short", "integer", "long")
"""Each holds all values of those before it."""

KEY_TYPES: Final = frozenset({"string", "binary", *WHOLE_NUMBERS})
"""Types whose xxhash64 Spark and Python compute alike (PROTOCOL.md, "Partition of a key")."""

DEAD_LETTER_COLUMNS: Final[dict[str, DataType]] = {
    "_dead_reason": "string",
    "_source_topic": "string",
    "_source_partition": "integer",
    "_source_offset": "long",
    "_redeliveries": "integer",
}
"""What a dead-letter topic adds to its source's columns: the only names that may begin with an underscore."""

DEFAULT_SCHEMA: Final = StructType(
    (
        StructField("key", "binary"),
        StructField("value", "binary"),
        StructField("headers", MapType("string", "binary")),
    )
)
"""A topic made without a schema is a Kafka-like one."""


def from_arrow(schema: pa.Schema) -> StructType:
    """The log's form of an Arrow schema. Raises SchemaMismatch naming the column that has no counterpart."""
    if not isinstance(schema, pa.Schema):
        advice = "pass pa.schema([(name, type), ...])"
        if type(schema).__module__.startswith("pyspark."):
            advice = "of a DataFrame: df.limit(0).toArrow().schema"
        raise SchemaMismatch(f"a schema is a pyarrow.Schema, not {type(schema).__name__}", advice=advice)
    result = StructType(tuple(_field_from_arrow(field, field.name, 0) for field in schema))
    check(result)
    return result


def _field_from_arrow(field: pa.Field, path: str, depth: int) -> StructField:
    return StructField(field.name, _type_from_arrow(field.type, path, depth), field.nullable)


def _type_from_arrow(arrow: pa.DataType, path: str, depth: int) -> DataType:
    if depth > MAX_SCHEMA_DEPTH:
        raise SchemaMismatch(f"column {path!r} is nested deeper than {MAX_SCHEMA_DEPTH}", advice="flatten it")
    if name := _NAMES.get(arrow):
        return name
    if pa.types.is_timestamp(arrow):
        return "timestamp_ntz" if arrow.tz is None else "timestamp"
    if pa.types.is_decimal(arrow) and arrow.precision <= 38 and 0 <= arrow.scale <= arrow.precision:
        return f"decimal({arrow.precision},{arrow.scale})"
    if pa.types.is_dictionary(arrow):
        return _type_from_arrow(arrow.value_type, path, depth)
    if pa.types.is_list(arrow) or pa.types.is_large_list(arrow) or pa.types.is_fixed_size_list(arrow):
        element = arrow.value_field
        return ArrayType(_type_from_arrow(element.type, f"{path}.element", depth + 1), element.nullable)
    if pa.types.is_map(arrow):
        return MapType(
            _type_from_arrow(arrow.key_type, f"{path}.key", depth + 1),
            _type_from_arrow(arrow.item_type, f"{path}.value", depth + 1),
            arrow.item_field.nullable,
        )
    if pa.types.is_struct(arrow):
        return StructType(tuple(_field_from_arrow(child, f"{path}.{child.name}", depth + 1) for child in arrow))
    if arrow in _UNSIGNED:
        raise SchemaMismatch(
            f"column {path!r}: Spark and Delta have no unsigned {arrow}", advice=f"cast it to {_UNSIGNED[arrow]}"
        )
    raise SchemaMismatch(
        f"column {path!r} has the Arrow type {arrow}, which has no counterpart in Spark and Delta",
        advice="cast it to a string, binary, number, date, timestamp, list, map or struct",
    )


def to_arrow(schema: StructType) -> pa.Schema:
    """The Arrow schema in which rows of a topic are written and read."""
    return pa.schema([_field_to_arrow(field) for field in schema.fields])


def _field_to_arrow(field: StructField) -> pa.Field:
    return pa.field(field.name, type_to_arrow(field.type), field.nullable)


def type_to_arrow(data_type: DataType) -> pa.DataType:
    """The Arrow type of one column type. Raises SchemaMismatch for a name this format does not know."""
    if isinstance(data_type, StructType):
        return pa.struct([_field_to_arrow(field) for field in data_type.fields])
    if isinstance(data_type, ArrayType):
        return pa.list_(pa.field("element", type_to_arrow(data_type.elementType), data_type.containsNull))
    if isinstance(data_type, MapType):
        return pa.map_(
            type_to_arrow(data_type.keyType),
            pa.field("value", type_to_arrow(data_type.valueType), data_type.valueContainsNull),
        )
    if arrow := PRIMITIVES.get(data_type):
        return arrow
    if (match := _DECIMAL.fullmatch(data_type)) and int(match[1]) <= 38 and int(match[2]) <= int(match[1]):
        return pa.decimal128(int(match[1]), int(match[2]))
    raise SchemaMismatch(
        f"unknown column type {data_type[:60]!a}",
        advice=f"use one of {', '.join(sorted(PRIMITIVES))}, or a decimal like decimal(10,2) of at most 38 digits",
    )


def check(schema: StructType) -> None:
    """Raise SchemaMismatch unless a topic may have this schema: names that every engine takes, known types, bounds."""
    if not schema.fields:
        raise SchemaMismatch("the schema has no column", advice="give the topic at least one column")
    if len(schema.fields) > MAX_COLUMNS:
        raise SchemaMismatch(f"the schema has {len(schema.fields)} columns", advice=f"use at most {MAX_COLUMNS}")
    for field in schema.fields:
        if field.name.startswith("_") and DEAD_LETTER_COLUMNS.get(field.name) != field.type:
            raise SchemaMismatch(
                f"column {field.name!r}: names with a leading underscore are reserved for metadata", advice="rename it"
            )
    _check_fields(schema, "", 0)


def _check_fields(schema: StructType, path: str, depth: int) -> None:
    seen: dict[str, str] = {}
    for field in schema.fields:
        name = f"{path}{field.name}"
        if not _COLUMN.fullmatch(field.name) or len(field.name) > MAX_COLUMN_CHARACTERS:
            raise SchemaMismatch(
                f"column name {ascii(name)[:80]} is not allowed",
                advice=f"use 1 to {MAX_COLUMN_CHARACTERS} characters without blanks, control characters and "
                ",;{}()=, as Delta asks",
            )
        if other := seen.get(field.name.casefold()):
            clash = "are there twice" if other == name else "differ only in case"
            raise SchemaMismatch(f"columns {other!r} and {name!r} {clash}", advice="rename one of them")
        seen[field.name.casefold()] = name
        _check_type(field.type, name, depth + 1)


def _check_type(data_type: DataType, path: str, depth: int) -> None:
    if depth > MAX_SCHEMA_DEPTH:
        raise SchemaMismatch(f"column {path!r} is nested deeper than {MAX_SCHEMA_DEPTH}", advice="flatten it")
    if isinstance(data_type, StructType):
        if not data_type.fields:
            raise SchemaMismatch(f"column {path!r} is a struct without fields: Parquet cannot hold it")
        _check_fields(data_type, f"{path}.", depth)
    elif isinstance(data_type, ArrayType):
        _check_type(data_type.elementType, f"{path}.element", depth + 1)
    elif isinstance(data_type, MapType):
        _check_type(data_type.keyType, f"{path}.key", depth + 1)
        _check_type(data_type.valueType, f"{path}.value", depth + 1)
    else:
        type_to_arrow(data_type)


def check_key(schema: StructType, key: str) -> None:
    """Raise SchemaMismatch unless ``key`` is a column whose hash Spark and Python compute alike."""
    for field in schema.fields:
        if field.name == key:
            if not isinstance(field.type, str) or field.type not in KEY_TYPES:
                raise SchemaMismatch(
                    f"column {key!r} cannot be the key: its type is not one of {', '.join(sorted(KEY_TYPES))}",
                    advice="add a string column to key by",
                )
            return
    raise SchemaMismatch(f"the key {key[:60]!a} is not a column", advice=nearest(key, (f.name for f in schema.fields)))


__all__ = [
    "DEAD_LETTER_COLUMNS",
    "DEFAULT_SCHEMA",
    "KEY_TYPES",
    "PRIMITIVES",
    "WHOLE_NUMBERS",
    "ArrayType",
    "DataType",
    "MapType",
    "StructField",
    "StructType",
    "check",
    "check_key",
    "from_arrow",
    "to_arrow",
    "type_to_arrow",
]
