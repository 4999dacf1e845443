"""Conditions on columns, of the option ``filters``: which rows satisfy one, and which files hold none that does.

They mean what they mean to Spark: null satisfies none but ``is null``, NaN is above all other numbers, and texts are in
the order of their bytes. Executors use it: it needs the standard library and PyArrow.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import reduce
from typing import Any, Final, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc

NULL_TESTS: Final = ("is null", "is not null")
SETS: Final = ("in", "not in")
EQUALITIES: Final = ("=", "!=", *SETS)
ORDERS: Final = {"<": pc.less, "<=": pc.less_equal, ">": pc.greater, ">=": pc.greater_equal}
OPERATORS: Final = (*EQUALITIES, *ORDERS, *NULL_TESTS)

Column: TypeAlias = pa.Array | pa.ChunkedArray


@dataclass(frozen=True, slots=True)
class Span:
    """What is known of the values of a column in a file: bounds, None where not known; may there be nulls, values."""

    low: Any = None
    high: Any = None
    nulls: bool = True
    values: bool = True


@dataclass(frozen=True, slots=True)
class Condition:
    """A column, one of ``OPERATORS``, and the values it compares with: one, any number for a set, none for null."""

    column: str
    operator: str
    values: tuple[Any, ...] = ()

    def may_hold(self, span: Span) -> bool:
        """Whether some row of a file may satisfy it. False is certain."""
        if self.operator == "is null":
            return span.nulls
        if not span.values:
            return False
        low, high = span.low, span.high
        if self.operator in ("=", "in"):
            return any((low is None or low <= value) and (high is None or value <= high) for value in self.values)
        if self.operator in ("!=", "not in"):
            return low is None or low != high or low not in self.values
        if self.operator in ("<", "<="):
            return low is None or low < self.values[0] or (self.operator == "<=" and low == self.values[0])
        if self.operator in (">", ">="):
            return high is None or high > self.values[0] or (self.operator == ">=" and high == self.values[0])
        return True  # is not null

    def holds(self, column: Column) -> Column:
        """Of each row whether it satisfies the condition: true or false, never null."""
        if self.operator == "is null":
            return pc.is_null(column)
        if self.operator == "is not null":
            return pc.is_valid(column)
        real = pa.types.is_floating(column.type)
        if real:
            column = column.cast(pa.float64())  # a float is compared with a number as it is, not as the nearest float
        if self.operator in EQUALITIES:
            found = _one_of(column, self.values, real=real)
            if self.operator in ("!=", "not in"):
                found = pc.and_(pc.invert(found), pc.is_valid(column))
        else:
            found = ORDERS[self.operator](column, pa.scalar(self.values[0], column.type))
            if real and self.operator in (">", ">="):
                found = pc.or_(found, pc.is_nan(column))
        return pc.fill_null(found, False)


def _one_of(column: Column, values: tuple[Any, ...], *, real: bool) -> Column:
    if real and values:  # 0.0 and -0.0 are equal, but not the same element of a set
        return reduce(pc.or_, (pc.equal(column, pa.scalar(value, column.type)) for value in values))
    return pc.is_in(column, value_set=pa.array(values, column.type))


__all__ = ["EQUALITIES", "NULL_TESTS", "OPERATORS", "ORDERS", "SETS", "Column", "Condition", "Span"]
