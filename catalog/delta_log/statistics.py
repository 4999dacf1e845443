"""Converting the log's statistics of a file to Delta's, with bounds that hold even for readers that compare exactly.

A file states bounds for all of its columns or for none. Delta allows to leave a column out, but delta-rs as an Arrow
dataset reads null bounds for a column that is left out when others are not: no row meets them, and it skips the file.
Pure.
"""

from __future__ import annotations

import datetime
import decimal
from decimal import Decimal
from typing import Any, Final

import msgspec

from txnlog.common.limits import STATISTICS_COLUMNS
from txnlog.fold.state import SegmentRecord
from txnlog.format.schema import WHOLE_NUMBERS, StructType

_EXACT_DIGITS: Final = 15
"""The most significant digits of a decimal that survive a reader that parses JSON numbers as doubles."""

_EXACT: Final = decimal.Context(_EXACT_DIGITS)

_REAL_NUMBERS: Final = frozenset({"float", "double"})

_NEVER_BOUNDED: Final = "binary"
"""The type of which, as of lists and maps, no reader expects bounds."""

_UNKNOWN: Final = (None, None, None)

_MILLISECOND: Final = datetime.timedelta(milliseconds=1)

_encode: Final = msgspec.json.Encoder().encode


def statistics_json(record: SegmentRecord, schema: StructType, own: StructType | None = None) -> str:
    """The statistics of a file for Delta's ``stats``, as JSON.

    Args:
        record: the file.
        schema: of the table.
        own: the newest schema that the file may have been written by, if that is an older one: columns that are not
            in it are null.
    """
    written = {field.name for field in (schema if own is None else own).fields}
    nulls: dict[str, int] = {}
    for field in schema.fields:
        count = record.rows if field.name not in written else record.statistics.get(field.name, _UNKNOWN)[2]
        if count is not None and isinstance(field.type, str):
            nulls[field.name] = count
    found: dict[str, Any] = {"numRecords": record.rows, "nullCount": nulls}
    for name, upper in (("minValues", False), ("maxValues", True)):
        if bounds := _bounds(record, schema, nulls, upper=upper):
            found[name] = bounds
    return _encode(found).decode()


def _bounds(record: SegmentRecord, schema: StructType, nulls: dict[str, int], *, upper: bool) -> dict[str, Any]:
    """The lower or upper bounds of all columns; none if a bound is unknown that readers expect."""
    found: dict[str, Any] = {}
    for index, field in enumerate(schema.fields):
        if not isinstance(field.type, str):
            if isinstance(field.type, StructType) and index < STATISTICS_COLUMNS:
                found[field.name] = {}  # without this object the struct itself would count as null
            continue
        if field.type == _NEVER_BOUNDED or nulls.get(field.name) == record.rows:
            continue
        known = record.statistics.get(field.name, _UNKNOWN)[upper] if field.name in nulls else None
        bound = _bound(field.type, known, upper=upper)
        if bound is not None and field.name in nulls:
            found[field.name] = bound
        elif index < STATISTICS_COLUMNS:
            return {}
    return found


def _bound(kind: str, value: object, *, upper: bool) -> Any:
    """A bound in Delta's form; None where it is unknown, or Delta has no form for it."""
    if kind in WHOLE_NUMBERS:
        return value if type(value) is int else None
    if kind in _REAL_NUMBERS:
        return value if type(value) in {int, float} else None
    if kind == "boolean":
        return value if type(value) is bool else None
    if kind == "string" and value is None and not upper:
        return ""
    if not isinstance(value, str):
        return None
    if kind in {"string", "date"}:
        return value
    if kind == "timestamp":
        return _milliseconds(value, upper=upper)
    return _decimal(kind, value, upper=upper) if kind.startswith("decimal(") else None


def _decimal(kind: str, text: str, *, upper: bool) -> msgspec.Raw | None:
    """A decimal that every reader parses alike; one with too many digits is moved outwards if its type has room."""
    precision, scale = map(int, kind.removeprefix("decimal(").removesuffix(")").split(","))
    rounding = decimal.ROUND_CEILING if upper else decimal.ROUND_FLOOR
    try:
        value = Decimal(text)
        if value != _EXACT.plus(value):
            # By two digits, not one: the nearest double holds, too.
            for _ in range(2):
                value = value.next_plus(_EXACT) if upper else value.next_minus(_EXACT)
        value = value.quantize(Decimal(1).scaleb(-scale), context=decimal.Context(precision, rounding))
    except decimal.DecimalException:
        return None
    return msgspec.Raw(f"{value:f}".encode()) if value.is_finite() else None


def _milliseconds(text: str, *, upper: bool) -> str | None:
    """A timestamp in milliseconds, as Delta states it; an upper bound is rounded up, so that it holds as it is.

    The last millisecond that can be represented is stated with microseconds instead.
    """
    try:
        value = datetime.datetime.fromisoformat(text).replace(tzinfo=None)
    except ValueError:
        return None
    if not upper or not value.microsecond % 1_000:
        return f"{value.isoformat(timespec='milliseconds')}Z"
    try:
        return f"{(value + _MILLISECOND).isoformat(timespec='milliseconds')}Z"
    except OverflowError:
        return f"{value.replace(microsecond=999_999).isoformat()}Z"


__all__ = ["statistics_json"]
