"""How the texts of options are read. ``BadValueError`` says what one should have been, ``options`` of which option."""

from __future__ import annotations

import datetime
import json
import re
from collections.abc import Callable, Mapping
from decimal import Decimal, InvalidOperation
from typing import Any, Final

Position = str | Mapping[str, Mapping[int, int]]
"""``earliest``, ``latest``, or Kafka's JSON: by topic and partition an offset, -2 for earliest and -1 for latest."""

EARLIEST_OFFSET: Final = -2
LATEST_OFFSET: Final = -1

_EPOCH: Final = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
_MILLISECOND: Final = datetime.timedelta(milliseconds=1)
_LEAST_MS: Final = 1_000_000_000
"""Smaller numbers except 0 are refused as times: they are in the first days of 1970, before any log.

Times in seconds are larger, and have an error of their own.
"""

_NUMBER: Final = re.compile("0|[1-9][0-9]{0,8}", re.ASCII)


class BadValueError(ValueError):
    """What the text of an option should have been."""


def text(value: str) -> str:
    """Any text that is not blank."""
    if not value.strip():
        raise BadValueError("is some text")
    return value


def names(value: str) -> tuple[str, ...]:
    """Names with commas between them, none twice."""
    found = tuple(name.strip() for name in value.split(","))
    if not all(found):
        raise BadValueError("is a list of names, separated by commas")
    if len(set(found)) != len(found):
        raise BadValueError("names each thing once")
    return found


def segments(value: str) -> frozenset[int]:
    """Numbers of segments with commas between them."""
    found = [part.strip() for part in value.split(",")]
    if not all(part.isascii() and part.isdecimal() and len(part) <= 19 for part in found):
        raise BadValueError("is a list of the numbers of segments, separated by commas")
    return frozenset(int(part) for part in found)


def flag(value: str) -> bool:
    """True or false, in any case."""
    known = {"true": True, "false": False}.get(value.strip().lower())
    if known is None:
        raise BadValueError("is true or false")
    return known


def whole(least: int) -> Callable[[str], int]:
    """A whole number that is not below ``least``."""

    def parse(value: str) -> int:
        digits = value.strip()
        if not (digits.isascii() and digits.isdecimal()) or len(digits) > 19 or int(digits) < least:
            raise BadValueError(f"is a whole number from {least} on")
        return int(digits)

    return parse


def isolation_level(value: str) -> str:
    """One of the two levels, in any case."""
    level = value.strip().lower()
    if level not in {"read_committed", "read_uncommitted"}:
        raise BadValueError("is read_committed or read_uncommitted")
    return level


def _time(value: str) -> datetime.datetime | int:
    """A time with its zone, or epoch milliseconds: all digits."""
    given = value.strip()
    if given.isascii() and given.isdecimal() and len(given) <= 15:
        return int(given)
    try:
        time = datetime.datetime.fromisoformat(given)
    except ValueError:
        raise BadValueError("is a time: epoch milliseconds, or like 2026-11-21T08:00:00+00:00") from None
    if time.tzinfo is None:
        raise BadValueError("is a time with its zone, like 2026-11-21T08:00:00+00:00")
    return time


def time_as_given(value: str) -> str | int:
    """A time, but text stays text: an error quotes what was given."""
    time = _time(value)
    return time if isinstance(time, int) else value.strip()


def at_or_after(value: str) -> int:
    """The first epoch millisecond at or after a time: messages have whole ones."""
    time = _time(value)
    if isinstance(time, int) and 0 < time < _LEAST_MS:
        raise BadValueError("is a time, in epoch milliseconds such as 1795248000000 (0 is before all messages)")
    return time if isinstance(time, int) else -((_EPOCH - time) // _MILLISECOND)


def pattern(value: str) -> str:
    """A regular expression."""
    try:
        re.compile(value)
    except re.error as error:
        raise BadValueError(f"is a regular expression ({error})") from None
    except (RecursionError, OverflowError):
        raise BadValueError("is a regular expression that is not too large") from None
    return text(value)


def position(value: str) -> Position:
    """A position by name, or an offset of every topic and partition."""
    name = value.strip().lower()
    if name in {"earliest", "latest"}:
        return name
    wrong = BadValueError('is earliest, latest or JSON like {"orders": {"0": 23, "1": -2}}')
    try:
        parsed = json.loads(value)
    except (ValueError, RecursionError):
        raise wrong from None
    if not isinstance(parsed, dict):
        raise wrong
    result: dict[str, dict[int, int]] = {}
    for topic, partitions in parsed.items():
        if not isinstance(partitions, dict):
            raise wrong
        found: dict[int, int] = {}
        for partition, offset in partitions.items():
            if type(offset) is not int or not EARLIEST_OFFSET <= offset < 1 << 63 or not _NUMBER.fullmatch(partition):
                raise wrong
            found[int(partition)] = offset
        result[topic] = found
    return result


def filters(value: str) -> tuple[tuple[Any, ...], ...]:
    """Conditions in the form that PyArrow and pandas know: a list of ``[column, operator, value]``."""
    wrong = BadValueError('is a JSON list like [["amount", ">", 100], ["customer", "is not null"]]')
    try:
        parsed = json.loads(value, parse_float=Decimal, parse_constant=Decimal)
    except (ValueError, RecursionError, InvalidOperation):
        raise wrong from None
    if not isinstance(parsed, list):
        raise wrong
    for item in parsed:
        if not isinstance(item, list) or not 2 <= len(item) <= 3 or not all(isinstance(text, str) for text in item[:2]):
            raise wrong
    return tuple(map(tuple, parsed))


def storage(value: str) -> Mapping[str, Any]:
    """A JSON object. It is secret: no error shows it."""
    try:
        parsed = json.loads(value)
    except (ValueError, RecursionError):
        parsed = None
    if not isinstance(parsed, dict):
        raise BadValueError('is a JSON object like {"key": "...", "secret": "..."}')
    return parsed


__all__ = [
    "EARLIEST_OFFSET",
    "LATEST_OFFSET",
    "BadValueError",
    "Position",
    "at_or_after",
    "filters",
    "flag",
    "isolation_level",
    "names",
    "pattern",
    "position",
    "segments",
    "storage",
    "text",
    "time_as_given",
    "whole",
]
