"""Whether a condition of a caller's fits the columns of rows, and what to say where it does not. Pure."""

from __future__ import annotations

import re
from typing import Final, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from txnlog.common.names import nearest
from txnlog.common.validation import printable

_UNKNOWN: Final = re.compile(r"No match for FieldRef\.Name\((.*?)\) in ", re.DOTALL)
"""What Arrow says of a column that is not there, before it lists all that are."""


class Misfit(NamedTuple):
    """What is wrong with a condition, and what to do about it."""

    reason: str
    advice: str


def misfit(condition: pc.Expression, schema: pa.Schema) -> Misfit | None:
    """How a condition does not fit some columns; None where it does. Values may still not be what it can answer."""
    try:
        schema.empty_table().filter(condition)
    except (pa.ArrowException, TypeError, ValueError, KeyError) as error:
        if unknown := _UNKNOWN.match(str(error)):
            return Misfit(f"there is no column {printable(unknown[1])!r}", nearest(unknown[1], schema.names))
        text = str(condition)
        named = [f"{field.name!r} is {field.type}" for field in schema if _names(text, field.name)]
        return Misfit(
            "; ".join([*named, printable(str(error))]),
            "compare each column with a value of its own type, such as pa.scalar(value, type) makes",
        )
    return None


def _names(text: str, column: str) -> bool:
    return re.search(rf"(?<!\w){re.escape(column)}(?!\w)", text) is not None


__all__ = ["Misfit", "misfit"]
