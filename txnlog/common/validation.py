"""Checks of what users hand in, before anything is done with it."""

from __future__ import annotations

import contextlib
import datetime
import json
import operator
import re
from collections.abc import Mapping
from typing import Any, Final, TypeVar

from txnlog.common.format_limits import MAX_CLOCK_AHEAD_MS, MAX_NUMBER
from txnlog.errors import InvalidInputError
from txnlog.sentences import Argument, Words

F = TypeVar("F")

_EPOCH: Final = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
_MILLISECOND: Final = datetime.timedelta(milliseconds=1)
_TEN_YEARS_MS: Final = 3_652 * 86_400_000

_CONTROLS: Final = re.compile("[\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")
"""No letter is among them. Those that turn the direction make a text look like another one."""

_UNITS_MS: Final = {"d": 86_400_000, "h": 3_600_000, "m": 60_000, "s": 1_000, "ms": 1}
_DURATION: Final = re.compile(rf"([0-9]{{1,18}})({'|'.join(_UNITS_MS)})", re.ASCII)
_EXAMPLES: Final = '"500ms", "30s", "15m", "36h", "7d"'

_UNITS_BYTES: Final = {
    "B": 1,
    **{f"{letter}B": 1_000 ** (power + 1) for power, letter in enumerate("kMGT")},
    **{f"{letter}iB": 1_024 ** (power + 1) for power, letter in enumerate("KMGT")},
}
_SIZE: Final = re.compile(rf"([0-9]{{1,18}}) ?({'|'.join(_UNITS_BYTES)})", re.ASCII)

Size = int | str
"""A number of bytes: whole, or text of a whole number and a unit: ``"500MB"`` (1,000s), ``"10GiB"`` (1,024s)."""

Duration = int | str
"""A length of time: whole milliseconds, or text of a whole number and a unit, such as ``"30s"`` or ``"7d"``."""

IN_SECONDS: Final = "these seem to be seconds: give epoch milliseconds, 1,000 times as many"


def shown(value: object) -> str:
    """A value for a message: escaped and cut short."""
    try:
        text = ascii(value)
    except ValueError:  # Python shows no number of thousands of digits
        return "a longer number"
    return text if len(text) <= 60 else f"{text[:57]}..."


def printable(text: str) -> str:
    """Text of others for a terminal or a page: what would control it, or turn the direction of text, is escaped."""
    return _CONTROLS.sub(lambda found: ascii(found[0])[1:-1], text)


def printable_json(text: str) -> str:
    """The same of JSON, which it stays: such characters are in its texts only."""
    return _CONTROLS.sub(lambda found: f"\\u{ord(found[0]):04x}", text)


def shortened(text: str) -> str:
    """A path or a URL for a message: escaped, and its end, which says most, where it is longer than 120."""
    return ascii(text if len(text) <= 120 else f"...{text[-117:]}")


def type_of(value: object) -> str:
    """The name of a value's type for a message, with its module where it has one of its own."""
    kind = type(value)
    return (kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}")[:120]


def whole_number(what: str, value: object, least: int, most: int | None = None) -> int:
    """A whole number in a range (NumPy's too, but no truth value), or InvalidInputError."""
    number = None
    if not isinstance(value, bool):
        try:
            number = operator.index(value)  # type: ignore[arg-type]  # whatever it is
        except TypeError:
            number = None
    if number is None or number < least or (most is not None and number > most):
        bound = f"at least {least}" if most is None else f"between {least:,} and {most:,}"
        raise InvalidInputError(Words(Argument(what), f" is a whole number, {bound}, not {shown(value)}"))
    return number


def truth(what: str, value: object, advice: str = "") -> bool:
    """True or False (NumPy's too), or InvalidInputError: as a condition ``"false"`` would be True."""
    numpy_has_it = type(value).__module__ == "numpy" and type(value).__name__ in {"bool", "bool_"}
    if isinstance(value, bool) or numpy_has_it:
        return bool(value)
    raise InvalidInputError(
        Words(Argument(what), f" is True or False, not {shown(value)}"), advice=advice or "pass True or False itself"
    )


def callback(what: str, value: F) -> F:
    """A function that is called back, or None for none, or InvalidInputError: before anything is done, not when due."""
    if value is None or callable(value):
        return value
    raise InvalidInputError(
        Words(Argument(what), f" is called back, unlike {shown(value)}"), advice="pass a function, or leave it out"
    )


def duration_ms(what: str, value: object, least: int, most: int | None = None) -> int:
    """Milliseconds of a duration in a range, or InvalidInputError. See ``Duration``."""
    number: object = value
    if isinstance(value, str):
        match = _DURATION.fullmatch(value.strip())
        number = None if match is None else int(match[1]) * _UNITS_MS[match[2]]
    try:
        return whole_number(what, number, least, most)
    except InvalidInputError:
        pass
    bound = f"at least {duration_text(least)}"
    if most is not None and (most < MAX_NUMBER or (isinstance(number, int) and number > most)):
        bound = f"between {duration_text(least)} and {duration_text(most)}"
    raise InvalidInputError(
        Words(Argument(what), f" is a length of time, {bound}, not {shown(value)}"),
        advice=f"give milliseconds as a whole number, or text with a unit, like {_EXAMPLES}",
    )


def long_enough_ms(
    what: str,
    value: object,
    least: int,
    shortest: int,
    usual: int,
    unless: str,
    *,
    allowed: bool,
    else_: str,
    most: int = MAX_NUMBER,
) -> int:
    """Milliseconds of a duration, or InvalidInputError: also where it is short and not said to be meant.

    Args:
        what: the argument.
        value: what was given for it.
        least: milliseconds below which it is refused in any case.
        shortest: milliseconds below which it must be meant.
        usual: milliseconds to suggest.
        unless: the argument that says that it is meant.
        allowed: its value.
        else_: what a shorter one does, as the end of a sentence.
        most: milliseconds above which it is refused in any case.
    """
    found = duration_ms(what, value, least, most)
    if found < shortest and not allowed:
        raise InvalidInputError(
            Words(Argument(what), f" of {duration_text(found)} is less than {duration_text(shortest)}: {else_}"),
            advice=Words(
                "give a longer time, like ",
                Argument(what, duration_text(usual)),
                ", or pass ",
                Argument(unless, True),
                " if it is meant",
            ),
        )
    return found


def size_bytes(what: str, value: object, least: int, most: int) -> int:
    """Bytes of a size in a range, or InvalidInputError: a whole number, or text like ``"500MB"`` or ``"10GiB"``."""
    number: object = value
    if isinstance(value, str):
        match = _SIZE.fullmatch(value.strip())
        number = None if match is None else int(match[1]) * _UNITS_BYTES[match[2]]
    try:
        return whole_number(what, number, least, most)
    except InvalidInputError:
        raise InvalidInputError(
            Words(Argument(what), f" is a number of bytes, at least {least}, not {shown(value)}"),
            advice='give bytes as a whole number, or text with a unit, like "500MB" or "10GiB"',
        ) from None


def duration_text(milliseconds: int) -> str:
    """A duration as text in the largest unit that leaves no rest."""
    unit, size = next(
        item for item in _UNITS_MS.items() if milliseconds % item[1] == 0 and (milliseconds or item[1] == 1)
    )
    return f"{milliseconds // size}{unit}"


def rough_duration(milliseconds: int) -> str:
    """A length of time to read: minutes, hours or days."""
    for name, length_ms in (("days", 86_400_000), ("hours", 3_600_000)):
        if milliseconds >= 2 * length_ms:
            return f"{round(milliseconds / length_ms)} {name}"
    return f"{round(milliseconds / 60_000)} minutes"


def mapping(what: str, value: object) -> dict[Any, Any]:
    """A mapping as a dict, None as an empty one, or InvalidInputError. The value is not shown: it may be secret."""
    if value is None:
        return {}
    if not isinstance(value, Mapping):
        raise InvalidInputError(f"{what} is a dict, not {type(value).__name__}")
    return dict(value)


def text_properties(value: object) -> dict[str, str]:
    """Properties as a dict of texts to texts, None as an empty one, or InvalidInputError."""
    found = mapping("properties", value)
    for key, item in found.items():
        if not isinstance(key, str) or not isinstance(item, str):
            raise InvalidInputError(f"properties maps texts to texts; {shown(key)} is not one", advice="use str(...)")
    return found


def options_json(storage_options: Mapping[str, Any]) -> str:
    """Storage options as the JSON that travels in Spark. Raises InvalidInputError for others, and shows none."""
    try:
        return json.dumps(dict(storage_options))
    except (TypeError, ValueError, RecursionError):
        raise InvalidInputError(
            "storage options for Spark are plain values: text, numbers, true, false, lists, objects",
            advice="executors make their own clients from them; pass keys, not objects",
        ) from None


def epoch_ms(timestamp: object) -> int:
    """Epoch milliseconds of a time with a zone, also as ISO 8601 text. Raises InvalidInputError for a naive one."""
    if isinstance(timestamp, int) and not isinstance(timestamp, bool):
        return timestamp
    given = timestamp
    if isinstance(timestamp, str):
        with contextlib.suppress(ValueError):
            timestamp = datetime.datetime.fromisoformat(timestamp)
    if not isinstance(timestamp, datetime.datetime) or timestamp.utcoffset() is None:
        raise InvalidInputError(
            f"a timestamp is a time with a zone, not {shown(given)}",
            advice='use "2026-11-21T12:00:00Z", epoch milliseconds, or in Python datetime(..., tzinfo=datetime.UTC)',
        )
    return (timestamp - _EPOCH) // _MILLISECOND


def time_of(timestamp_ms: int) -> datetime.datetime:
    """The time, in UTC, of epoch milliseconds. Raises OverflowError where Python's times do not reach."""
    return _EPOCH + timestamp_ms * _MILLISECOND


def is_in_seconds(timestamp_ms: int, log_ms: int) -> bool:
    """Whether epoch milliseconds are surely epoch seconds: far before a log's time, and near it if they are."""
    return timestamp_ms < log_ms - _TEN_YEARS_MS and abs(1_000 * timestamp_ms - log_ms) < _TEN_YEARS_MS


def is_to_come(timestamp_ms: int, log_ms: int) -> bool:
    """Whether a time is yet to come, by a log's time: clocks that may append differ by ``MAX_CLOCK_AHEAD_MS``."""
    return timestamp_ms > log_ms + MAX_CLOCK_AHEAD_MS


__all__ = [
    "IN_SECONDS",
    "Duration",
    "Size",
    "callback",
    "duration_ms",
    "duration_text",
    "epoch_ms",
    "is_in_seconds",
    "is_to_come",
    "long_enough_ms",
    "mapping",
    "options_json",
    "printable",
    "printable_json",
    "rough_duration",
    "shortened",
    "shown",
    "size_bytes",
    "text_properties",
    "time_of",
    "truth",
    "type_of",
    "whole_number",
]
