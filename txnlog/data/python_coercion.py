"""Python values become values of one type of the topic's schema, without loss, or ``Unfit`` says why.

``converter(type)`` compiles a type into one function. It tries the exact Python type first, which is the hot path of a
produce; then what Python and Arrow see differently; and leaves the rest to Arrow, by the rules for Arrow data. What it
returns is immutable or a copy, so that callers may go on changing what they passed.
"""

from __future__ import annotations

import datetime
import decimal
import struct
from collections.abc import Callable, Mapping
from typing import Any, Final

import pyarrow as pa

from txnlog.common.signal_errors import raise_of_handler
from txnlog.data.arrow_coercion import (
    ARROW_ERRORS,
    NAIVE_REFUSED,
    NULL_REFUSED,
    ZONE_REFUSED,
    Unfit,
    check_names,
    conform_array,
    is_text,
)

Converter = Callable[[Any], Any]

_UTC: Final = datetime.UTC
_NULLS_OF_PANDAS: Final = frozenset({"NAType", "NaTType"})
"""Known by name, because pandas need not be there."""


def converter(kind: pa.DataType, *, nullable: bool) -> Converter:
    """The function from a Python value (None for a missing one) to the value that Arrow is given. It raises Unfit."""
    types = pa.types
    slow = _slow(kind, nullable=nullable)
    if types.is_binary(kind):
        return _exact(bytes, slow)
    if types.is_boolean(kind):
        return _exact(bool, slow)
    if types.is_float64(kind):
        return _exact(float, slow)
    if is_text(kind):
        return _text(slow)
    if types.is_integer(kind):
        return _integer(kind, slow)
    if types.is_map(kind):
        return _map(kind, slow)
    if types.is_list(kind):
        return _list(kind, slow)
    if types.is_struct(kind):
        return _struct(kind, slow)
    return slow


def deep_size(value: Any) -> int:
    """About the bytes in Arrow of a nested value that a converter made."""
    kind = type(value)
    if kind is bytes or kind is str:
        return 4 + len(value)
    if kind is list or kind is tuple:
        return 4 + sum(map(deep_size, value))
    if kind is dict:
        return sum(map(deep_size, value.values()))
    return 8


# --- the hot path -----------------------------------------------------------------------------------------------------


def _exact(wanted: type, slow: Converter) -> Converter:
    def convert(value: object) -> object:
        return value if type(value) is wanted else slow(value)

    return convert


def _text(slow: Converter) -> Converter:
    def convert(value: object) -> object:
        # Whether text is ASCII is known at once; other text may hold what UTF-8 cannot express.
        return value if type(value) is str and value.isascii() else slow(value)

    return convert


def _integer(kind: pa.DataType, slow: Converter) -> Converter:
    low, high = -(1 << (kind.bit_width - 1)), (1 << (kind.bit_width - 1)) - 1

    def convert(value: object) -> object:
        return value if type(value) is int and low <= value <= high else slow(value)

    return convert


def _map(kind: pa.MapType, slow: Converter) -> Converter:
    key = converter(kind.key_type, nullable=False)
    item = converter(kind.item_type, nullable=kind.item_field.nullable)

    def convert(value: Any) -> object:
        if value is None:
            return slow(None)
        if type(value) is dict:
            pairs: Any = value.items()
        elif isinstance(value, list | tuple):
            pairs = value
        elif isinstance(value, Mapping):
            pairs = value.items()
        else:
            return slow(value)
        result = []
        place = "key"
        try:
            for left, right in pairs:
                place = "key"
                name = key(left)
                place = "value"
                result.append((name, item(right)))
        except Unfit as unfit:
            raise (unfit.within_key() if place == "key" else unfit.within(place)) from None
        except (TypeError, ValueError):
            raise Unfit("a map is a dict, or a list of pairs") from None
        return result

    return convert


def _list(kind: pa.ListType, slow: Converter) -> Converter:
    element = converter(kind.value_type, nullable=kind.value_field.nullable)

    def convert(value: Any) -> object:
        if not isinstance(value, list | tuple):
            return slow(value)
        try:
            return [element(item) for item in value]
        except Unfit as unfit:
            raise unfit.within("element") from None

    return convert


def _struct(kind: pa.StructType, slow: Converter) -> Converter:
    fields = [(child.name, converter(child.type, nullable=child.nullable)) for child in kind]
    names = [name for name, _ in fields]
    known = frozenset(names)

    def convert(value: Any) -> object:
        if value is None or not isinstance(value, Mapping):
            return slow(value)
        if not known.issuperset(value):
            check_names(list(value), names)
        result = {}
        for name, field in fields:
            try:
                result[name] = field(value.get(name))
            except Unfit as unfit:
                raise unfit.within(name) from None
        return result

    return convert


# --- the whole rule for one type --------------------------------------------------------------------------------------


def _slow(kind: pa.DataType, *, nullable: bool) -> Converter:
    special = _special(kind)

    def convert(value: object) -> object:
        if value is None or type(value).__name__ in _NULLS_OF_PANDAS:
            if nullable:
                return None
            raise Unfit(NULL_REFUSED, "give a value")
        if (result := special(value)) is not None:
            return result
        # Arrow takes a pandas.Timestamp for a datetime and drops its nanoseconds.
        if isinstance(value, Mapping | list | tuple) or getattr(value, "nanosecond", False):
            raise _lossy(value, kind)
        try:
            array = pa.array([value])
        except ARROW_ERRORS as error:
            raise_of_handler(error)
            raise _lossy(value, kind) from None
        return conform_array(array, kind, nullable=nullable)[0].as_py()

    return convert


def _lossy(value: object, kind: pa.DataType) -> Unfit:
    return Unfit(f"a value of type {type(value).__name__} does not fit into {kind} without loss")


def _special(kind: pa.DataType) -> Converter:
    """What Arrow would see differently: a function that gives None where Arrow shall decide."""
    types = pa.types
    if is_text(kind):
        return _text_value
    if types.is_binary(kind):
        return _binary_value
    if types.is_integer(kind):
        return lambda value: _integer_value(value, kind)
    if types.is_float64(kind):
        return lambda value: _float_value(value, kind)
    if types.is_float32(kind):
        return lambda value: _float32_value(value, kind)
    if types.is_date(kind):
        return lambda value: value if type(value) is datetime.date else None
    if types.is_timestamp(kind):
        return lambda value: _timestamp_value(value, kind)
    if types.is_decimal(kind):
        return lambda value: _decimal_value(value, kind)
    return lambda _: None


def _text_value(value: object) -> str | None:
    if not isinstance(value, str):
        return None
    text = str.__str__(value)
    try:
        text.encode()
    except UnicodeEncodeError:
        raise Unfit("the text holds half a surrogate pair, which UTF-8 cannot express") from None
    return text


def _binary_value(value: object) -> bytes | None:
    if isinstance(value, bytes | bytearray | memoryview):
        return bytes(value)
    text = _text_value(value)
    return None if text is None else text.encode()


def _integer_value(value: object, kind: pa.DataType) -> int | None:
    if isinstance(value, bool):
        raise _lossy(value, kind)
    if not isinstance(value, int):
        return None
    limit = 1 << (kind.bit_width - 1)
    if not -limit <= value < limit:
        raise Unfit(f"an int outside the range of {kind}")
    return int(value)


def _float_value(value: object, kind: pa.DataType) -> float | None:
    if isinstance(value, float):
        return float(value)
    if isinstance(value, bool):
        raise _lossy(value, kind)
    if not isinstance(value, int):
        return None
    try:
        result = float(value)
    except OverflowError:
        raise _lossy(value, kind) from None
    if int(result) != value:
        raise _lossy(value, kind)
    return result


def _float32_value(value: object, kind: pa.DataType) -> float | None:
    number = _float_value(value, kind)
    if number is None:
        return None
    try:
        # Rounded: a float is the only one that Python has. An int has to fit.
        result: float = struct.unpack("<f", struct.pack("<f", number))[0]
    except OverflowError:
        raise Unfit(f"a float outside the range of {kind}") from None
    if isinstance(value, int) and result != number:
        raise _lossy(value, kind)
    return result


def _timestamp_value(value: object, kind: pa.DataType) -> datetime.datetime | None:
    if type(value) is not datetime.datetime:
        return None
    if kind.tz is None:
        if value.tzinfo is not None:
            raise Unfit(ZONE_REFUSED, "leave the zone out: the column has none")
        return value
    if value.utcoffset() is None:
        raise Unfit(NAIVE_REFUSED, "say which zone: value.replace(tzinfo=datetime.UTC)")
    try:
        return value.astimezone(_UTC)
    except OverflowError:
        raise Unfit("a datetime outside of the years 1 to 9999 in UTC") from None


def _decimal_value(value: object, kind: pa.DataType) -> decimal.Decimal | None:
    if isinstance(value, bool):
        raise _lossy(value, kind)
    if isinstance(value, int):
        value = decimal.Decimal(int(value))
    if isinstance(value, float | str):
        raise Unfit(_lossy(value, kind).reason, "use decimal.Decimal, which is exact")
    if not isinstance(value, decimal.Decimal):
        return None
    if not value.is_finite():
        raise _lossy(value, kind)
    sign, digits, exponent = value.as_tuple()
    assert isinstance(exponent, int), "a finite decimal has a number as exponent"
    text = "".join(map(str, digits)).strip("0")
    if not text:
        return decimal.Decimal(0)
    exponent += len(digits) - len("".join(map(str, digits)).rstrip("0"))
    if -exponent > kind.scale:
        raise Unfit(f"a decimal with more places than {kind} has")
    if len(text) + exponent > kind.precision - kind.scale:
        raise Unfit(f"a decimal outside the range of {kind}")
    # Digits and exponent, without the rounding of a decimal context, and padded to the scale of the column.
    coefficient = text + "0" * (exponent + kind.scale)
    return decimal.Decimal((sign, tuple(map(int, coefficient)), -kind.scale))


__all__ = ["Converter", "converter", "deep_size"]
