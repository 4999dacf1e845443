"""Listings as aligned columns for people, as JSON lines for programs."""

from __future__ import annotations

import contextlib
import dataclasses
import datetime
import json
import logging
import math
import os
import sys
import threading
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

import click

from txnlog.common.ids import TxnId
from txnlog.common.validation import printable, printable_json, time_of

_MOMENTS: Final = frozenset(
    {
        "deadline_ms",
        "first_timestamp_ms",
        "last_timestamp_ms",
        "since_ms",
        "timestamp_ms",
        "waiting_until_ms",
    }
)
"""What is epoch milliseconds, unlike an age or a lease, which last so long."""

_COUNTS: Final = frozenset({"actions", "rows"})
"""What counts by kind or by topic where it is a mapping."""

_NO_NUMBERS: Final = {"nan": "NaN", "inf": "Infinity", "-inf": "-Infinity"}
"""JSON has no such numbers: they are texts, as in what Spark's ``to_json`` gives and its ``from_json`` reads."""

_DEFAULT_COLUMNS: Final = 80
"""The width of a terminal that does not say it."""

_logger = logging.getLogger("txnlog")


def _is_answer(value: Any) -> bool:
    """Whether it is an answer of the Python handle, which is printed by its fields."""
    return dataclasses.is_dataclass(value) and not isinstance(value, TxnId | type)


def _fields(answer: Any) -> dict[str, Any]:
    return {field.name: getattr(answer, field.name) for field in dataclasses.fields(answer)}


def _plain(value: Any) -> Any:
    if isinstance(value, bytes):
        return value.hex()
    if _is_answer(value):
        return _plain(_fields(value))
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return _NO_NUMBERS[str(value)]
    if isinstance(value, int | float | bool | str) or value is None:
        return value
    return value.isoformat() if isinstance(value, datetime.date) else str(value)


def _json(plain: Any) -> str:
    return printable_json(json.dumps(plain, allow_nan=False))


def _text(value: Any) -> str:
    plain = _plain(value)
    return "" if plain is None else printable(plain) if isinstance(plain, str) else _json(plain)


def _for_people(record: Mapping[str, Any]) -> dict[str, Any]:
    """What the library says of something: moments as the times that they are, and counts as words."""
    return dict(_shown(name, value) for name, value in record.items())


def _shown(name: str, value: Any) -> tuple[str, Any]:
    if name in _MOMENTS:
        plain = name.removesuffix("_ms")
        with contextlib.suppress(OverflowError):  # later than years have four digits
            return plain, None if value is None else time_of(value)
        return plain, value
    if name in _COUNTS and isinstance(value, Mapping):
        return name, ", ".join(f"{count} {kind}" for kind, count in value.items())
    return name, value


class Printer:
    """Prints rows as columns, or as JSON, one object a line."""

    def __init__(self, as_json: bool) -> None:
        self._as_json = as_json

    def rows(self, rows: Iterable[Mapping[str, Any]]) -> None:
        """Rows of the same keys; people read that there is none, programs read no line."""
        self.messages(rows if self._as_json else [_for_people(row) for row in rows])

    def messages(self, rows: Iterable[Mapping[str, Any]]) -> None:
        """Rows whose columns users named, as they stand: none of these names says anything of its values."""
        rows = list(rows)
        if self._as_json:
            for row in rows:
                click.echo(_json(_plain(row)))
            return
        if not rows:
            click.echo("(none)")
            return
        names = list(rows[0])
        cells = [[printable(name) for name in names], *([_text(row[name]) for name in names] for row in rows)]
        widths = [max(len(line[column]) for line in cells) for column in range(len(names))]
        for line in cells:
            click.echo("  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip())

    def answers(self, answers: Iterable[Any], **for_people: Callable[[Any], str]) -> None:
        """Answers of the Python handle, a row each; ``for_people``: what people read in place of a field."""
        found = for_people if not self._as_json else {}
        self.rows({**_fields(answer), **{name: text(answer) for name, text in found.items()}} for answer in answers)

    def record(self, record: Mapping[str, Any]) -> None:
        """One thing, a line for each of its sides."""
        if self._as_json:
            click.echo(_json(_plain(record)))
            return
        record = _for_people(record)
        names = {name: printable(name) for name in record}
        width = max(map(len, names.values()))
        for name, value in record.items():
            click.echo(f"{names[name].ljust(width)}  {_text(value)}")

    def answer(self, answer: Any) -> None:
        """An answer of the Python handle, a line for each field."""
        self.record(_fields(answer))


class StatusLine:
    """One line on the terminal that says how far long work has come; without a terminal, nothing.

    Whoever prints to the terminal meanwhile calls ``clear`` first. Records of the logger ``txnlog`` need no call: they
    may come from any thread.
    """

    def __init__(self) -> None:
        self._shows = sys.stderr.isatty()
        self._width = 0
        self._lock = threading.Lock()
        self._handler = _AroundStatus(self)

    def __enter__(self) -> StatusLine:
        if self._shows:
            _logger.addHandler(self._handler)
        return self

    def __exit__(self, *_: object) -> None:
        _logger.removeHandler(self._handler)
        self.clear()

    def show(self, text: str) -> None:
        """Show this in place of what stood there, as far as it fits: a line that wraps could not be removed."""
        if self._shows:
            shown = text[: _columns() - 1]
            with self._lock:
                click.echo("\r" + shown.ljust(self._width), nl=False, err=True)
                self._width = max(self._width, len(shown))

    def clear(self) -> None:
        """Remove the line: what is printed next begins at its place."""
        with self._lock:
            if self._width:
                click.echo("\r" + " " * self._width + "\r", nl=False, err=True)
                self._width = 0


class _AroundStatus(logging.Handler):
    """Clears the status line for log records, and prints them as logging does when no handler is configured."""

    def __init__(self, status: StatusLine) -> None:
        super().__init__(logging.WARNING)
        self._status = status

    def emit(self, record: logging.LogRecord) -> None:
        self._status.clear()
        if not logging.getLogger().handlers and logging.lastResort is not None:
            logging.lastResort.handle(record)


def _columns() -> int:
    """The width of the terminal to which the status line is written."""
    try:
        return os.get_terminal_size(sys.stderr.fileno()).columns or _DEFAULT_COLUMNS
    except (OSError, ValueError):
        return _DEFAULT_COLUMNS


__all__ = ["Printer", "StatusLine"]
