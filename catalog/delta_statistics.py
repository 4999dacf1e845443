"""Delta's statistics of a file, from those of the log: what cannot be said exactly is left out. Pure."""

from __future__ import annotations

import datetime
from decimal import Decimal, InvalidOperation
from typing import Any, Final

import msgspec

from txnlog.schema import WHOLE_NUMBERS, StructType
from txnlog.state import SegmentRecord

_EXACT_DIGITS: Final = 15
"""A decimal with more might be rounded by who reads numbers of JSON as doubles."""

_REAL_NUMBERS: Final = frozenset({"float", "double"})

_encode: Final = msgspec.json.Encoder(decimal_format="number").encode


def statistics_json(record: SegmentRecord, schema: StructType) -> str:
    """Delta's statistics of a file, from the log's: what they cannot say exactly, or cut as Delta cuts, is left out."""
    low: dict[str, Any] = {}
    high: dict[str, Any] = {}
    nulls: dict[str, int] = {}
    for field in schema.fields:
        known = record.statistics.get(field.name)
        if known is None or not isinstance(field.type, str):
            continue
        first, last, count = known
        if (bound := _bound(field.type, first, upper=False)) is not None:
            low[field.name] = bound
        if (bound := _bound(field.type, last, upper=True)) is not None:
            high[field.name] = bound
        if count is not None:
            nulls[field.name] = count
    return _encode({"numRecords": record.rows, "minValues": low, "maxValues": high, "nullCount": nulls}).decode()


def _bound(kind: str, value: object, *, upper: bool) -> Any:
    """A bound in Delta's form; None where the log has none, or Delta no form for it."""
    if kind in WHOLE_NUMBERS:
        return value if type(value) is int else None
    if kind in _REAL_NUMBERS:
        return value if type(value) in {int, float} else None
    if not isinstance(value, str):
        return None
    if kind in {"string", "date"}:
        return value
    if kind == "timestamp":
        return _milliseconds(value, upper=upper)
    return _decimal(value) if kind.startswith("decimal(") else None


def _decimal(text: str) -> Decimal | None:
    try:
        value = Decimal(text)
    except InvalidOperation:
        return None
    return value if value.is_finite() and len(value.as_tuple().digits) <= _EXACT_DIGITS else None


def _milliseconds(text: str, *, upper: bool) -> str | None:
    """Delta cuts times to milliseconds; an upper bound is raised, so that it is one for who takes it as it is."""
    try:
        value = datetime.datetime.fromisoformat(text)
        if upper and value.microsecond % 1_000:
            value += datetime.timedelta(milliseconds=1)
    except (ValueError, OverflowError):
        return None
    return f"{value.replace(tzinfo=None).isoformat(timespec='milliseconds')}Z"


__all__ = ["statistics_json"]
