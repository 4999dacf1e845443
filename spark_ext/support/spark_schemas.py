"""A topic's columns and their types in Spark's words, and back."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pyarrow as pa
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from txnlog.common.names import quoted_name
from txnlog.errors import SchemaMismatch
from txnlog.format import schema as schemas


def spark_schema(columns: schemas.StructType) -> StructType:
    """A topic's columns as Spark's schema: the log contains Spark's own JSON."""
    return StructType.fromJson(without_metadata(json.loads(msgspec.json.encode(columns))))


def arrow_schema(columns: StructType) -> pa.Schema:
    """The Arrow form of a DataFrame's schema.

    Raises SchemaMismatch naming the column whose type no topic can have, or if there is no column: then Spark passes no
    rows.
    """
    if not columns.fields:
        raise SchemaMismatch("the DataFrame has no column", advice="select at least one of the topic's")
    fields = []
    seen: set[str] = set()
    for field in json.loads(columns.json())["fields"]:
        name = field["name"]
        if name in seen:
            raise SchemaMismatch(f"the column {quoted_name(name)} is there twice", advice="rename one of them")
        seen.add(name)
        try:
            kind = msgspec.convert(without_metadata(field["type"]), schemas.DataType)
            fields.append(pa.field(name, schemas.type_to_arrow(kind), field["nullable"]))
        except (SchemaMismatch, msgspec.ValidationError):
            raise SchemaMismatch(
                f"the column {quoted_name(name)} has the Spark type {columns[name].dataType.simpleString()[:80]}, "
                "which no topic can have",
                advice="cast it to a string, binary, number, date, timestamp, array, map or struct",
            ) from None
    return pa.schema(fields)


def arrow_for_spark(schema: StructType) -> pa.Schema:
    """The Arrow schema with which Spark compares the batches that it gets."""
    try:
        return to_arrow_schema(schema, timezone="UTC")
    except TypeError:  # before Spark 4.2 it had no such argument
        return to_arrow_schema(schema)


def without_metadata(kind: Any) -> Any:
    """A type of Spark's schema JSON, or a schema, without the metadata of its fields.

    A DataFrame's is anything. A topic's is free text of whoever made it, and Spark would obey some of it: take a
    default for what a file does not have, other types, columns by numbers in the place of their names.
    """
    if isinstance(kind, dict):
        return {key: without_metadata(value) for key, value in kind.items() if key != "metadata"}
    if isinstance(kind, list):
        return [without_metadata(item) for item in kind]
    return kind


__all__ = ["arrow_for_spark", "arrow_schema", "spark_schema", "without_metadata"]
