"""Whether a topic is published as a Delta table: a property of the topic, and what its columns must be for it.

How it is published this package does not know: ``catalog`` does, or who else is named under the entry-point group
``txnlog.publisher``.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final, Literal, get_args

from txnlog.errors import SchemaMismatch
from txnlog.format.schema import WHOLE_NUMBERS, ArrayType, DataType, MapType, StructType
from txnlog.format.topic_properties import ModeSetting
from txnlog.sentences import Argument, Words

DeltaMode = Literal["auto", "manual", "off"]

DELTA: Final[ModeSetting[DeltaMode]] = ModeSetting("delta", get_args(DeltaMode), default="manual", if_newer="manual")

_Path = tuple[str, ...]

_WIDENING_ADVICE: Final = Words(
    "add a column of the wider type, or alter the topic with ",
    Argument("delta", "off"),
    ", so that it is never published",
)

_NOT_IN_DELTA: Final = frozenset({"timestamp_ntz"})
"""Types for which a Delta table needs a feature that readers lack."""


def is_auto(properties: Mapping[str, str]) -> bool:
    """Whether a topic is published by itself, after commits and by maintenance."""
    return DELTA.of(properties) == "auto"


def check_delta_columns(schema: StructType, mode: DeltaMode) -> None:
    """Raise SchemaMismatch naming the column that a Delta table cannot have, unless the topic is never published."""
    if mode == "off":
        return
    for path, found in _types(schema, ()):
        if found in _NOT_IN_DELTA:
            raise SchemaMismatch(
                f"column {_named(path)} has the type {found}, which the topic's Delta table cannot have: its readers "
                "lack it",
                advice=Words(
                    'make it a timestamp with a zone (in PyArrow pa.timestamp("us", "UTC")), or have ',
                    Argument("delta", "off"),
                    " for the topic, so that it is never published",
                ),
            )


def check_delta_widening(old: StructType, new: StructType, mode: DeltaMode) -> None:
    """Raise SchemaMismatch naming the column whose older files not all readers of a Delta table read as the wider type.

    Whole numbers as longer ones and decimals with more digits before the point they all do. Polars refuses whole
    numbers as doubles, decimals with more digits behind the point, and other keys of maps; DuckDB compares floats that
    became doubles as floats, and so leaves out rows. The queries of delta-rs refuse maps whose values lack a field.
    """
    if mode == "off":
        return
    keys = dict(_map_keys(old, ()))
    for path, key in _map_keys(new, ()):
        if keys.get(path, key) != key:
            raise SchemaMismatch(
                f"the keys of the map {_named(path)} widen, which not every reader of the topic's Delta table reads",
                advice=_WIDENING_ADVICE,
            )
    before = dict(_types(old, ()))
    for path, wider in _types(new, ()):
        inside = next((known for known in keys if path[: len(known)] == known), None)
        if path not in before and inside is not None:
            raise SchemaMismatch(
                f"the map {_named(inside)} gets the field {_named(path)}, which not every reader of the topic's Delta "
                "table reads where older files lack it",
                advice=_WIDENING_ADVICE,
            )
        narrow = before.get(path, wider)
        if narrow == wider or (narrow in WHOLE_NUMBERS and wider in WHOLE_NUMBERS):
            continue
        scale = narrow.rpartition(",")[2]
        if narrow.startswith("decimal(") and wider.startswith("decimal(") and wider.rpartition(",")[2] == scale:
            continue
        raise SchemaMismatch(
            f"column {_named(path)} widens from {narrow} to {wider}, which not every reader of the topic's Delta table "
            "reads",
            advice=_WIDENING_ADVICE,
        )


def _types(kind: DataType, path: _Path) -> Iterator[tuple[_Path, str]]:
    """Every simple type inside a type, with its path: names may hold dots, so that a text would be ambiguous."""
    if isinstance(kind, str):
        yield path, kind
    elif isinstance(kind, StructType):
        for field in kind.fields:
            yield from _types(field.type, (*path, field.name))
    elif isinstance(kind, ArrayType):
        yield from _types(kind.elementType, (*path, "element"))
    elif isinstance(kind, MapType):
        yield from _types(kind.keyType, (*path, "key"))
        yield from _types(kind.valueType, (*path, "value"))


def _map_keys(kind: DataType, path: _Path) -> Iterator[tuple[_Path, DataType]]:
    """The type of the keys of every map inside a type, with the path of the map."""
    if isinstance(kind, StructType):
        for field in kind.fields:
            yield from _map_keys(field.type, (*path, field.name))
    elif isinstance(kind, ArrayType):
        yield from _map_keys(kind.elementType, (*path, "element"))
    elif isinstance(kind, MapType):
        yield path, kind.keyType
        yield from _map_keys(kind.valueType, (*path, "value"))


def _named(path: _Path) -> str:
    return repr(".".join(path))


__all__ = ["DELTA", "DeltaMode", "check_delta_columns", "check_delta_widening", "is_auto"]
