"""Listings as aligned columns for people, as JSON lines for programs."""

from __future__ import annotations

import contextlib
import dataclasses
import datetime
import json
import sys
from collections.abc import Iterable, Mapping
from typing import Any, Final

import click

from txnlog.common.validation import time_of

_MOMENTS: Final = frozenset({"timestamp_ms", "deadline_ms"})
"""What is epoch milliseconds, unlike an age or a lease, which last so long."""


def _plain(value: Any) -> Any:
    if isinstance(value, bytes):
        return value.hex()
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    if isinstance(value, int | float | bool | str) or value is None:
        return value
    return value.isoformat() if isinstance(value, datetime.date) else str(value)


def _text(value: Any) -> str:
    plain = _plain(value)
    return "" if plain is None else plain if isinstance(plain, str) else json.dumps(plain)


def _for_people(name: str, value: Any) -> tuple[str, Any]:
    """A moment as the time that it is; anything else as it stands."""
    if name not in _MOMENTS:
        return name, value
    plain = name.removesuffix("_ms")
    with contextlib.suppress(OverflowError):  # later than years have four digits
        return plain, None if value is None else time_of(value)
    return plain, value


class Printer:
    """Prints rows as columns, or as JSON, one object a line."""

    def __init__(self, as_json: bool) -> None:
        self._as_json = as_json

    def rows(self, rows: list[dict[str, Any]]) -> None:
        """Rows of the same keys; people read that there is none, programs read no line."""
        if self._as_json:
            for row in rows:
                click.echo(json.dumps(_plain(row)))
            return
        if not rows:
            click.echo("(none)")
            return
        rows = [dict(_for_people(name, value) for name, value in row.items()) for row in rows]
        names = list(rows[0])
        cells = [names, *([_text(row[name]) for name in names] for row in rows)]
        widths = [max(len(line[column]) for line in cells) for column in range(len(names))]
        for line in cells:
            click.echo("  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip())

    def dataclasses(self, items: Iterable[Any]) -> None:
        """Answers of the Python handle."""
        self.rows([{field.name: getattr(item, field.name) for field in dataclasses.fields(item)} for item in items])

    def record(self, record: dict[str, Any]) -> None:
        """One thing, a line for each of its sides."""
        if self._as_json:
            click.echo(json.dumps(_plain(record)))
            return
        width = max(len(name) for name in record)
        for name, value in record.items():
            click.echo(f"{name.ljust(width)}  {_text(value)}")


class StatusLine:
    """One line on the terminal that says how far long work has come; nothing where no terminal is."""

    def __init__(self) -> None:
        self._shows = sys.stderr.isatty()
        self._width = 0

    def __enter__(self) -> StatusLine:
        return self

    def __exit__(self, *_: object) -> None:
        if self._width:
            click.echo("\r" + " " * self._width + "\r", nl=False, err=True)

    def show(self, text: str) -> None:
        """Show this in place of what stood there."""
        if self._shows:
            click.echo("\r" + text.ljust(self._width), nl=False, err=True)
            self._width = max(self._width, len(text))


__all__ = ["Printer", "StatusLine"]
