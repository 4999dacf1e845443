"""Whether a topic is a Delta table as well: what its properties say about that. Pure.

It is the property ``txnlog.delta`` of the topic, absent for the default. What publishes is another layer.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, Literal, get_args

from txnlog.arguments import shown
from txnlog.errors import InvalidInputError, SchemaMismatch
from txnlog.schema import ArrayType, DataType, MapType, StructField, StructType

Delta = Literal["auto", "manual", "off"]
"""Published after each commit, when somebody asks for it (the default), or never."""

CHOICES: Final[tuple[Delta, ...]] = get_args(Delta)
OWN_PREFIX: Final = "txnlog."
"""Properties of ours: users' begin with something else."""

PROPERTY: Final = f"{OWN_PREFIX}delta"

_LACKING: Final = frozenset({"timestamp_ntz"})
"""Types of ours that Delta has only with a table feature, without which readers drop out."""


def parse_delta(value: object) -> Delta:
    """One of ``CHOICES``, or InvalidInputError."""
    for choice in CHOICES:
        if value == choice:
            return choice
    raise InvalidInputError(f"delta is one of {', '.join(map(repr, CHOICES))}, not {shown(value)}")


def delta_of(properties: Mapping[str, str]) -> Delta:
    """What a topic's properties say; a value that is none of ours counts as the default."""
    found = properties.get(PROPERTY)
    return next((choice for choice in CHOICES if choice == found), "manual")


def with_delta(properties: Mapping[str, str], delta: Delta) -> dict[str, str]:
    """The properties of a topic with that choice."""
    others = {name: value for name, value in properties.items() if name != PROPERTY}
    return others if delta == "manual" else {**others, PROPERTY: delta}


def check_own_names(properties: Mapping[str, object]) -> None:
    """Raise InvalidInputError for a property that a user sets and that is ours."""
    for name in properties:
        if name.startswith(OWN_PREFIX):
            raise InvalidInputError(
                f"the property {shown(name)} is txnlog's own", advice="use another name, or the argument delta"
            )


def check_fields(fields: tuple[StructField, ...], delta: Delta) -> None:
    """Raise SchemaMismatch for columns that no Delta table has, of a topic that may be published."""
    if delta == "off":
        return
    for field in fields:
        path = _lacking(field.type, field.name)
        if path is not None:
            raise SchemaMismatch(
                f"the column {path!r} is timestamp_ntz, which a Delta table that every engine reads cannot have",
                advice='use a timestamp with a zone, pa.timestamp("us", "UTC"), or delta="off": never published',
            )


def _lacking(kind: DataType, path: str) -> str | None:
    """The path of the first type that Delta lacks."""
    parts: list[tuple[DataType, str]] = []
    if isinstance(kind, StructType):
        parts = [(field.type, f"{path}.{field.name}") for field in kind.fields]
    elif isinstance(kind, ArrayType):
        parts = [(kind.elementType, f"{path}.element")]
    elif isinstance(kind, MapType):
        parts = [(kind.keyType, f"{path}.key"), (kind.valueType, f"{path}.value")]
    elif kind in _LACKING:
        return path
    return next((found for inner, name in parts if (found := _lacking(inner, name)) is not None), None)


__all__ = [
    "CHOICES",
    "OWN_PREFIX",
    "PROPERTY",
    "Delta",
    "check_fields",
    "check_own_names",
    "delta_of",
    "parse_delta",
    "with_delta",
]
