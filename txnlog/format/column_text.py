"""Columns and their types as text for messages, and where two schemas differ. Pure.

In the words of Arrow, which callers pass. A type's own text leaves out whether the values of a map may be null.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import Final

from txnlog.format.schema import ArrayType, DataType, MapType, StructField, StructType, type_to_arrow

SPARK_SQL_NAMES: Final = {"byte": "tinyint", "short": "smallint", "integer": "int", "long": "bigint"}
"""What Spark SQL calls types otherwise than Spark's schemas, and so the log."""

_MOST_SHOWN: Final = 4
"""Differences in a message."""

_MOST_CHARACTERS: Final = 100
"""Characters of a type in a message."""


def type_text(kind: DataType, *, nullable: bool = True) -> str:
    """A type, and whether null is refused, at every depth."""
    if isinstance(kind, StructType):
        fields = ", ".join(f"{item.name}: {type_text(item.type, nullable=item.nullable)}" for item in kind.fields)
        text = f"struct<{fields}>"
    elif isinstance(kind, ArrayType):
        text = f"list<element: {type_text(kind.elementType, nullable=kind.containsNull)}>"
    elif isinstance(kind, MapType):
        text = f"map<{type_text(kind.keyType)}, {type_text(kind.valueType, nullable=kind.valueContainsNull)}>"
    else:
        text = str(type_to_arrow(kind))
    return text if nullable else f"{text} not null"


def column_text(path: str, kind: DataType, *, nullable: bool) -> str:
    """A column for a message, cut short where it is long."""
    text = type_text(kind)
    text = text if len(text) <= _MOST_CHARACTERS else f"{text[: _MOST_CHARACTERS - 3]}..."
    return ascii(f"{path}: {text}{'' if nullable else ' not null'}")[1:-1]


def difference_text(there: StructType, wanted: StructType) -> str:
    """How the columns that are there differ from those that are wanted: the first differences, by their paths."""
    found = _of_structs(there, wanted, "")
    shown = "; ".join(islice(found, _MOST_SHOWN)) or "in another order, or with other metadata"
    more = sum(1 for _ in found)
    return f"{shown}; and {more} more" if more else shown


def _of_structs(there: StructType, wanted: StructType, prefix: str) -> Iterator[str]:
    other = {item.name: item for item in wanted.fields}
    for item in there.fields:
        if item.name in other:
            yield from _of_columns(item, other.pop(item.name), f"{prefix}{item.name}")
        else:
            yield f"it also has {_text(item, prefix)}"
    for item in other.values():
        yield f"it does not have {_text(item, prefix)}"


def _text(field: StructField, prefix: str) -> str:
    return column_text(f"{prefix}{field.name}", field.type, nullable=field.nullable)


def _of_columns(there: StructField, wanted: StructField, path: str) -> Iterator[str]:
    """The differences of two columns of one name: inside of them where they are nested alike."""
    if there.nullable == wanted.nullable:
        old, new = there.type, wanted.type
        if isinstance(old, StructType) and isinstance(new, StructType):
            yield from _of_structs(old, new, f"{path}.")
            return
        if isinstance(old, ArrayType) and isinstance(new, ArrayType):
            parts = [("element", old.elementType, old.containsNull, new.elementType, new.containsNull)]
        elif isinstance(old, MapType) and isinstance(new, MapType):
            parts = [
                ("key", old.keyType, True, new.keyType, True),
                ("value", old.valueType, old.valueContainsNull, new.valueType, new.valueContainsNull),
            ]
        else:
            parts = []
        for name, before, may_be, after, might_be in parts:
            pair = StructField(name, before, may_be), StructField(name, after, might_be)
            yield from _of_columns(*pair, f"{path}.{name}")
        if parts or old == new:
            return
    yield (
        f"{column_text(path, there.type, nullable=there.nullable)} instead of "
        f"{column_text(path, wanted.type, nullable=wanted.nullable).removeprefix(f'{ascii(path)[1:-1]}: ')}"
    )


__all__ = ["SPARK_SQL_NAMES", "column_text", "difference_text", "type_text"]
