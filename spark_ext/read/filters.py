"""The option ``filters``: from its texts to typed conditions, and the files of a plan that need not be read."""

from __future__ import annotations

import datetime
from collections.abc import Mapping, Sequence
from dataclasses import replace
from decimal import Decimal, InvalidOperation
from typing import Any

import pyarrow as pa

from spark_ext.read.conditions import EQUALITIES, NULL_TESTS, OPERATORS, SETS, Condition, Span
from txnlog.common.names import nearest
from txnlog.common.validation import shown, time_of
from txnlog.data.arrow_coercion import Unfit
from txnlog.data.python_coercion import converter
from txnlog.data.scan_planner import ScanPlan
from txnlog.data.segment_rows import PlannedSegment, PlannedSlice
from txnlog.errors import InvalidInputError
from txnlog.fold.state import Statistics

Given = tuple[tuple[Any, ...], ...]
"""Conditions as JSON holds them: ``(column, operator)`` or ``(column, operator, value)``; decimals for fractions."""


class _UnfitError(ValueError):
    """What a value should have been."""


# --- from texts to conditions -----------------------------------------------------------------------------------------


def conditions_of(given: Given, columns: pa.Schema) -> tuple[Condition, ...]:
    """Typed conditions, all of which a row must satisfy.

    Raises InvalidInputError for a column that is not among ``columns``, an operator that is none or does not go with
    the column's type, and a value that the type does not have.
    """
    return tuple(_condition(list(item), columns) for item in given)


def _condition(item: list[Any], columns: pa.Schema) -> Condition:
    name, operator, *rest = item
    if name not in columns.names:
        raise InvalidInputError(
            f"the option 'filters' names {ascii(name)[:80]}, which the topic does not have",
            advice=nearest(name, columns.names),
        )
    operator = {"==": "=", "<>": "!="}.get(operator, " ".join(operator.lower().split()))
    if operator not in OPERATORS:
        raise InvalidInputError(
            f"the option 'filters' has no operator {ascii(operator)[:40]}", advice=f"use {', '.join(OPERATORS)}"
        )
    kind = columns.field(name).type
    if operator in NULL_TESTS:
        if rest:
            raise _wrong(name, kind, f"{operator!r} takes no value")
        return Condition(name, operator)
    if not rest:
        raise _wrong(name, kind, f"{operator!r} takes a value")
    value = rest[0]
    if operator in SETS and not isinstance(value, list):
        raise _wrong(name, kind, f"{operator!r} takes a list of values, not {shown(value)}")
    if pa.types.is_boolean(kind) and operator not in EQUALITIES:
        raise _wrong(name, kind, "true and false have no order")
    try:
        return Condition(name, operator, tuple(_typed(each, kind) for each in (value if operator in SETS else [value])))
    except _UnfitError as error:
        raise _wrong(name, kind, str(error)) from None


def _wrong(name: str, kind: pa.DataType, problem: str) -> InvalidInputError:
    return InvalidInputError(
        f"the option 'filters' on the column {ascii(name)[:80]} ({kind}): {problem}",
        advice='like [["amount", ">", 100], ["customer", "in", ["ann", "bob"]], ["at", "is not null"]]',
    )


def _typed(value: Any, kind: pa.DataType) -> Any:
    """A value from JSON as one of a column's type."""
    try:
        result = _parsed(value, kind)
        if result is not None:
            pa.scalar(result, kind)  # Arrow knows the ranges and places of its types
            return result
    except (ValueError, TypeError, OverflowError, InvalidOperation, Unfit, pa.ArrowException):
        result = None
    if value is None:
        raise _UnfitError("null is compared by 'is null' and 'is not null'")
    if result is None and _wanted(kind) is None:
        raise _UnfitError("it can be tested for null only")
    raise _UnfitError(f"{_wanted(kind)} is wanted, not {shown(value)}")


def _wanted(kind: pa.DataType) -> str | None:
    if pa.types.is_boolean(kind):
        return "true or false"
    if pa.types.is_integer(kind):
        return f"a whole number of {kind.bit_width} bits"
    if pa.types.is_floating(kind):
        return "a number"
    if pa.types.is_decimal(kind):
        return f"a number with at most {kind.scale} decimals"
    if pa.types.is_string(kind):
        return "a text"
    if pa.types.is_date(kind):
        return "a day like 2026-11-21"
    if pa.types.is_timestamp(kind):
        return "a time with its zone, like 2026-11-21T08:00:00Z" if kind.tz else "a time like 2026-11-21T08:00:00"
    return None


def _parsed(value: Any, kind: pa.DataType) -> Any:
    """None where the value is of another kind."""
    number = isinstance(value, int | Decimal) and not isinstance(value, bool)
    if pa.types.is_boolean(kind):
        return value if isinstance(value, bool) else None
    if pa.types.is_integer(kind):
        return value if number and isinstance(value, int) else None
    if pa.types.is_floating(kind):
        found = float(value) if number else None
        return found if found is not None and abs(found) < float("inf") else None
    if pa.types.is_decimal(kind):
        if not number and not isinstance(value, str):
            return None
        # Arrow reads beyond its own tables where a decimal has very many places, so it is given none of these.
        return converter(kind, nullable=False)(Decimal(value))
    if not isinstance(value, str):
        return None
    if pa.types.is_string(kind):
        return value
    if pa.types.is_date(kind):
        return datetime.date.fromisoformat(value)
    if pa.types.is_timestamp(kind):
        time = datetime.datetime.fromisoformat(value)
        return time if (time.tzinfo is None) == (kind.tz is None) else None
    return None


# --- files that need not be read --------------------------------------------------------------------------------------


def pruned(
    plan: ScanPlan, conditions: Sequence[Condition], columns: pa.Schema, statistics: Mapping[int, Statistics]
) -> ScanPlan:
    """The plan without what cannot hold a row that satisfies all conditions.

    By segment what its statistics say of the user's columns; by slice what the log knows of all its rows.
    """
    own = frozenset(columns.names)  # those of dead letters begin as the metadata does
    metadata = [condition for condition in conditions if condition.column not in own]
    users = [condition for condition in conditions if condition.column in own]
    segments: list[PlannedSegment] = []
    for segment in plan.segments:
        known = statistics.get(segment.number, {})
        if not all(item.may_hold(_measured(known.get(item.column), segment, columns, item)) for item in users):
            continue
        slices = tuple(
            piece
            for piece in segment.slices
            if all(item.may_hold(_constant(item.column, plan.topic, segment, piece)) for item in metadata)
        )
        if slices:
            segments.append(replace(segment, slices=slices))
    return replace(plan, segments=tuple(segments))


def _measured(
    known: tuple[Any, Any, int | None] | None, segment: PlannedSegment, columns: pa.Schema, condition: Condition
) -> Span:
    if known is None:
        return Span()
    low, high, nulls = known
    kind = columns.field(condition.column).type
    return Span(
        _bound(low, kind),
        _bound(high, kind),
        nulls=nulls is None or nulls > 0,
        values=nulls is None or nulls < segment.file_rows,
    )


def _bound(value: Any, kind: pa.DataType) -> Any:
    """A bound of the log's statistics as a value to compare with; None where it is not what a writer of ours writes."""
    try:
        if pa.types.is_decimal(kind):
            return Decimal(value) if isinstance(value, str) else None
        if pa.types.is_floating(kind):
            return float(value) if isinstance(value, int | float) else None
        return _parsed(value, kind)
    except (ValueError, OverflowError, InvalidOperation):
        return None


def _constant(name: str, topic: str, segment: PlannedSegment, piece: PlannedSlice) -> Span:
    """What the log knows of a metadata column of a slice."""
    if name == "_partition":
        return Span(piece.partition, piece.partition, nulls=False)
    if name == "_topic":
        return Span(topic, topic, nulls=False)
    if name == "_txn_state":
        return Span(segment.state, segment.state, nulls=False)
    if name == "_txn_id":
        return Span(nulls=False)
    if piece.offset is None:
        return Span(values=False)  # what is not visible has no offset, version and time
    if name == "_offset":
        return Span(piece.offset, piece.offset + piece.width - 1, nulls=False)
    if segment.compacted:
        return Span(nulls=False)  # its rows became visible at several versions, and say so themselves
    if name == "_version":
        return Span(segment.version, segment.version, nulls=False)
    assert name == "_timestamp", f"{name} is no metadata column"
    assert segment.timestamp_ms is not None, "a visible segment has a time"
    at = time_of(segment.timestamp_ms)
    return Span(at, at, nulls=False)


__all__ = ["Given", "conditions_of", "pruned"]
