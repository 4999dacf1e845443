"""How a topic's schema may change, so that every row that was ever written can be read by the newer one. Pure.

The format keeps the key and says nothing else; these rules are the client's (docs/python.md has them as a table). A
column is never dropped or renamed, a new one allows null, a type only widens to one that has every value of the old
one, null stays allowed where it was. The readers of old files
(:mod:`txnlog.data.segment_columns`) read by the same rules; a test holds the two together.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Final

import msgspec

from txnlog.common.names import nearest
from txnlog.errors import SchemaMismatch
from txnlog.format import schema as schemas
from txnlog.format.column_text import column_text, difference_text, type_text
from txnlog.format.schema import WHOLE_NUMBERS, ArrayType, DataType, MapType, StructField, StructType

_EXACT_AS_DOUBLE: Final = frozenset({"byte", "short", "integer", "float"})
"""A double has 53 bits: not for every long."""

_DECIMAL: Final = re.compile(r"decimal\((\d+),(\d+)\)", re.ASCII)

_ADVICE: Final = "make another topic, or add a column of the type that is wanted"


def widens(old: str, new: str) -> bool:
    """Whether every value of one simple type is one of the other."""
    if old == new:
        return True
    if old in WHOLE_NUMBERS and new in WHOLE_NUMBERS:
        return WHOLE_NUMBERS.index(old) < WHOLE_NUMBERS.index(new)
    if new == "double":
        return old in _EXACT_AS_DOUBLE
    before, after = _DECIMAL.fullmatch(old), _DECIMAL.fullmatch(new)
    if before is None or after is None:
        return False
    precision, scale = int(before[1]), int(before[2])
    return scale <= int(after[2]) and precision - scale <= int(after[1]) - int(after[2])


def evolved(
    old: StructType,
    added: Sequence[StructField] = (),
    widened: Mapping[str, StructField] | None = None,
    key: str | None = None,
) -> StructType:
    """The schema with more columns, which come last, and wider ones, which stay in their places.

    What is there already is no change. ``widened`` is by the name of the column, with its whole new type: fields that
    are new inside of a struct come last there.

    Raises SchemaMismatch naming the column, by its path where it is nested, and the rule.
    """
    changed = dict(widened or {})
    names = [field.name for field in old.fields]
    for name in changed:
        if name not in names:
            raise SchemaMismatch(f"there is no column {name[:80]!a} to widen", advice=nearest(name, names))
    fields = [_field(item, changed.get(item.name, item), item.name, key) for item in old.fields]
    known = {item.name: item for item in fields}
    for item in added:
        found = known.get(item.name)
        if found is None:
            known[item.name] = _new(item, item.name)
            fields.append(item)
        elif found.type != item.type:
            shown = f"as {_shown(found.type)}: it cannot be added as {_shown(item.type)}"
            if not isinstance(found.type, str) and not isinstance(item.type, str):  # cut short, both may look the same
                shown = f"with another type: {difference_text(StructType((found,)), StructType((item,)))}"
            raise SchemaMismatch(
                f"the column {item.name!r} is there {shown}",
                advice="choose another name, or pass its wider type in widen={...}",
            )
        elif found.nullable != item.nullable:
            raise _other_nullability(found)
    result = StructType(tuple(fields))
    schemas.check(result)
    return result


def carried(old: StructType, source: StructType, key: str | None = None) -> StructType:
    """A schema that holds also the rows of another one: what it lacks is added, what is too narrow widened.

    Raises SchemaMismatch where they contradict each other.
    """
    own = {item.name: item for item in old.fields}
    narrower = {
        item.name: msgspec.structs.replace(item, nullable=item.nullable or own[item.name].nullable)
        for item in source.fields
        if item.name in own and not takes(own[item.name], item)
    }
    return evolved(old, [item for item in source.fields if item.name not in own], narrower, key)


def takes(column: StructField, rows: StructField) -> bool:
    """Whether rows of a column can be written to another one without loss: it is the same, or as if widened from it."""
    try:
        _field(rows, column, rows.name)
    except SchemaMismatch:
        return False
    return True


def is_read_by(newer: StructType, older: StructType) -> bool:
    """Whether files of a newer schema can be read by an older one: columns that it does not have are left out.

    Not where a column that it has was widened, or may be null by now.
    """
    known = {item.name: item for item in newer.fields}
    return all(item.name in known and _holds(item, known[item.name]) for item in older.fields)


def _holds(there: StructField, wanted: StructField) -> bool:
    """Whether a column takes the values of another one, but for fields of structs that it does not have."""
    return (there.nullable or not wanted.nullable) and _type_holds(there.type, wanted.type)


def _type_holds(there: DataType, wanted: DataType) -> bool:
    if isinstance(there, StructType) and isinstance(wanted, StructType):
        return is_read_by(wanted, there)
    if isinstance(there, ArrayType) and isinstance(wanted, ArrayType):
        return (there.containsNull or not wanted.containsNull) and _type_holds(there.elementType, wanted.elementType)
    if isinstance(there, MapType) and isinstance(wanted, MapType):
        return (
            (there.valueContainsNull or not wanted.valueContainsNull)
            and _type_holds(there.keyType, wanted.keyType)
            and _type_holds(there.valueType, wanted.valueType)
        )
    return there == wanted


# --- one column -------------------------------------------------------------------------------------------------------


def _other_nullability(there: StructField) -> SchemaMismatch:
    shown = column_text(there.name, there.type, nullable=there.nullable)
    if there.nullable:
        return SchemaMismatch(
            f"the column {shown} is there and may be null: it cannot be added as not null",
            advice="leave out nullable=False, or choose another name",
        )
    return SchemaMismatch(
        f"the column {shown} is there: it cannot be added as one that may be null",
        advice=f"to allow null there, pass widen={{{there.name!r}: pa.field({there.name!r}, type)}}; to keep it, leave "
        "it out of add_columns",
    )


def _new(field: StructField, path: str) -> StructField:
    if not field.nullable:
        raise SchemaMismatch(
            f"the new column {path!r} must allow null: the rows that are there have no value for it",
            advice="leave out nullable=False",
        )
    return field


def _field(old: StructField, new: StructField, path: str, key: str | None = None) -> StructField:
    if new is old:
        return old
    if path == key and new.type != old.type:
        raise SchemaMismatch(
            f"the key {path!r} keeps its type: by another one its rows would go to other partitions",
            advice="make another topic",
        )
    _stays_null(old.nullable, new.nullable, path)
    return msgspec.structs.replace(old, type=_type(old.type, new.type, path), nullable=new.nullable)


def _stays_null(old: bool, new: bool, path: str) -> None:
    if old and not new:
        raise SchemaMismatch(
            f"the column {path!r} may be null, and must stay so: rows that are there may have none",
            advice="leave out nullable=False",
        )


def _type(old: DataType, new: DataType, path: str) -> DataType:
    if isinstance(old, StructType) and isinstance(new, StructType):
        return _struct(old, new, path)
    if isinstance(old, ArrayType) and isinstance(new, ArrayType):
        _stays_null(old.containsNull, new.containsNull, f"{path}.element")
        return ArrayType(_type(old.elementType, new.elementType, f"{path}.element"), new.containsNull)
    if isinstance(old, MapType) and isinstance(new, MapType):
        _stays_null(old.valueContainsNull, new.valueContainsNull, f"{path}.value")
        return MapType(
            _type(old.keyType, new.keyType, f"{path}.key"),
            _type(old.valueType, new.valueType, f"{path}.value"),
            new.valueContainsNull,
        )
    if old == new:
        return old
    if isinstance(old, str) and isinstance(new, str) and widens(old, new):
        return new
    raise SchemaMismatch(
        f"the column {path!r} is {_shown(old)}, which does not widen to {_shown(new)}: not every value of the one is "
        "one of the other",
        advice=_ADVICE,
    )


def _struct(old: StructType, new: StructType, path: str) -> StructType:
    wanted = {item.name: item for item in new.fields}
    for item in old.fields:
        if item.name not in wanted:
            raise SchemaMismatch(
                f"the column {f'{path}.{item.name}'!r} is left out: columns cannot be dropped or renamed",
                advice="name all fields of the struct, the old ones with their names",
            )
    kept = [_field(item, wanted.pop(item.name), f"{path}.{item.name}") for item in old.fields]
    return StructType((*kept, *(_new(item, f"{path}.{item.name}") for item in wanted.values())))


def _shown(kind: DataType) -> str:
    """A type for a message, cut short where it is long."""
    text = kind if isinstance(kind, str) else ascii(type_text(kind))[1:-1]
    return text if len(text) <= 100 else f"{text[:97]}..."


__all__ = ["carried", "evolved", "is_read_by", "takes", "widens"]
