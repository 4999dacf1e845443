"""Rows out of JSON Lines, with the values that the columns of a topic take where JSON has no such values."""

from __future__ import annotations

import base64
import binascii
import datetime
import decimal
import json
import math
from collections.abc import Callable, Mapping
from typing import Any, Final

import pyarrow as pa

from txnlog.common.validation import shown
from txnlog.data.arrow_coercion import is_text
from txnlog.errors import InvalidInputError

_Reader = Callable[[Any], Any]

_NO_NUMBERS: Final = {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}
"""What JSON has as texts: ``read --json`` prints them so."""

_MOST_DIGITS: Final = 40
"""More than any number of a column has; others are left for the topic to refuse."""


class _Misfit(Exception):
    """A text that the type of its column does not take, and why."""


def _base64(text: str) -> bytes:
    return base64.b64decode(text, validate=True)


BINARY: Final[Mapping[str, Callable[[str], bytes]]] = {"text": str.encode, "hex": bytes.fromhex, "base64": _base64}
"""By name what a text in a binary column means."""


def rows_of(data: bytes, schema: pa.Schema, binary: str) -> list[dict[str, Any]]:
    """The rows of JSON Lines: an object a line; blank lines are passed over. Raises InvalidInputError, with the line.

    Args:
        data: the lines, in UTF-8.
        schema: the columns of the topic. Names that it does not have are left for the topic to refuse.
        binary: what texts in binary columns mean: one of ``BINARY``.
    """
    readers = {field.name: _reader(field.type, BINARY[binary]) for field in schema}
    rows: list[dict[str, Any]] = []
    for number, line in enumerate(data.removeprefix(b"\xef\xbb\xbf").split(b"\n"), 1):
        if not line.strip():
            continue
        row = _object(line, number)
        for name, value in row.items():
            if value is not None and name in readers:
                try:
                    row[name] = readers[name](value)
                except _Misfit as misfit:
                    raise InvalidInputError(
                        f"line {number}, column {name!r}: {misfit}", advice="correct the line"
                    ) from None
        rows.append(row)
    return rows


def _object(line: bytes, number: int) -> dict[str, Any]:
    try:
        found = json.loads(line, parse_float=decimal.Decimal, parse_constant=_refused)
    except (ValueError, ArithmeticError, RecursionError):
        found = None
    if not isinstance(found, dict):
        raise InvalidInputError(
            f"line {number} is not a JSON object: {shown(line[:200].decode(errors='replace').strip())}",
            advice='give an object a line, like {"customer": "ann", "amount": 12.5}',
        )
    return found


def _refused(name: str) -> Any:
    raise ValueError(f"{name} is no number of JSON")


def _reader(kind: pa.DataType, binary: Callable[[str], bytes]) -> _Reader:
    """A function from a value of JSON, which is not null, to one for a column. It raises _Misfit."""
    types = pa.types
    if types.is_list(kind):
        return _list(_reader(kind.value_type, binary))
    if types.is_struct(kind):
        return _struct({field.name: _reader(field.type, binary) for field in kind})
    if types.is_map(kind):
        return _map(_reader(kind.key_type, binary), _reader(kind.item_type, binary), in_text=not is_text(kind.key_type))
    if types.is_binary(kind):
        return lambda value: _bytes(value, binary)
    if types.is_floating(kind):
        return _float
    if types.is_integer(kind):
        return _integer
    if types.is_decimal(kind):
        return _decimal
    if types.is_date(kind):
        return _date
    if types.is_timestamp(kind):
        return lambda value: _time(value, zoned=kind.tz is not None)
    return lambda value: value


def _list(element: _Reader) -> _Reader:
    def read(value: Any) -> Any:
        if not isinstance(value, list):
            return value
        return [None if item is None else element(item) for item in value]

    return read


def _struct(fields: Mapping[str, _Reader]) -> _Reader:
    def read(value: Any) -> Any:
        if not isinstance(value, dict):
            return value
        return {
            name: fields[name](item) if item is not None and name in fields else item for name, item in value.items()
        }

    return read


def _map(key: _Reader, item: _Reader, *, in_text: bool) -> _Reader:
    """Of an object, whose names are texts, or of a list of pairs, as ``read --json`` prints it."""

    def read(value: Any) -> Any:
        if isinstance(value, dict):
            pairs = [(_from_text(name) if in_text else name, left) for name, left in value.items()]
        elif isinstance(value, list) and all(isinstance(pair, list) and len(pair) == 2 for pair in value):
            pairs = [(name, left) for name, left in value]
        else:
            return value
        return [(key(name), None if left is None else item(left)) for name, left in pairs]

    return read


def _from_text(name: str) -> Any:
    """A name of an object where keys are numbers or true and false; anything else stays a text."""
    try:
        found = json.loads(name, parse_float=decimal.Decimal, parse_constant=_refused)
    except (ValueError, ArithmeticError, RecursionError):
        return name
    return found if isinstance(found, int | decimal.Decimal) else name


def _bytes(value: Any, binary: Callable[[str], bytes]) -> Any:
    if not isinstance(value, str):
        return value
    try:
        return binary(value)
    except (ValueError, binascii.Error):
        raise _Misfit(f"{shown(value)} is not what --binary says") from None


def _float(value: Any) -> Any:
    if isinstance(value, str):
        return _NO_NUMBERS.get(value, value)
    if not isinstance(value, decimal.Decimal):
        return value
    number = float(value)
    if math.isinf(number):
        raise _Misfit(f"{shown(str(value))} is too big for a number with a floating point")
    return number


def _integer(value: Any) -> Any:
    if not isinstance(value, decimal.Decimal):
        return value
    if value.adjusted() < _MOST_DIGITS and value == value.to_integral_value():
        return int(value)
    raise _Misfit(f"{shown(str(value))} is no whole number of the column's range")


def _decimal(value: Any) -> Any:
    if not isinstance(value, str):
        return value
    try:
        return decimal.Decimal(value)
    except ArithmeticError:
        raise _Misfit(f"{shown(value)} is no number") from None


def _date(value: Any) -> datetime.date:
    try:
        return datetime.date.fromisoformat(value)
    except (TypeError, ValueError):
        raise _Misfit(f"{shown(value)} is no date like 2026-11-21") from None


def _time(value: Any, *, zoned: bool) -> datetime.datetime:
    example = f"2026-11-21T12:00:00{'Z' if zoned else ''}"
    try:
        found = datetime.datetime.fromisoformat(value)
    except (TypeError, ValueError):
        raise _Misfit(f"{shown(value)} is no time like {example}") from None
    if (found.utcoffset() is not None) is not zoned:
        raise _Misfit(f"{shown(value)} {'lacks the zone' if zoned else 'has a zone'}, unlike {example}")
    return found


__all__ = ["BINARY", "rows_of"]
