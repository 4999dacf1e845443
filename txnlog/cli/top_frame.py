"""What ``top`` shows: a frame is made of two readings and the size of the terminal. Pure."""

from __future__ import annotations

import unicodedata
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal, NamedTuple

from txnlog.cli.top_readings import MINUTE_MS, Reading, SubscriptionReading, TopicReading
from txnlog.common.validation import printable, time_of
from txnlog.results import TransactionInfo

Style = Literal["", "title", "heading", "warning", "error"]

_GAP: Final = "  "
_LEAST_NAME: Final = 6
"""Columns that a name is given where the terminal is too narrow."""


class Size(NamedTuple):
    """Columns and lines of a terminal."""

    columns: int
    lines: int


class Line(NamedTuple):
    """A line of a frame: its text, which controls no terminal, and what it is."""

    text: str
    style: Style = ""


@dataclass(frozen=True, slots=True)
class _Column:
    """A column of a table: names are cut where the terminal is too narrow, numbers never are."""

    heading: str
    is_name: bool = False
    to_right: bool = False


@dataclass(frozen=True, slots=True)
class _Table:
    """A table with all its rows, those that matter most first. Which of them fit is decided later."""

    columns: tuple[_Column, ...]
    rows: Sequence[tuple[str, ...]]
    warned: int = 0
    """How many rows, from the first one on, are shown as warnings."""


# --- rates ------------------------------------------------------------------------------------------------------------


def per_second(count: int, milliseconds: int) -> float | None:
    """A rate; None where no time has passed, as where a clock was set back."""
    return count * 1_000 / milliseconds if milliseconds > 0 else None


def commits_of_minute(now: Reading) -> tuple[float | None, int]:
    """Commits a second by the newest entries, and over how many milliseconds: a minute, or as far as these go back."""
    first_ms = now.log_ms - MINUTE_MS
    recent = [item for item in now.entries if item.timestamp_ms > first_ms]
    goes_back = len(recent) < len(now.entries) or now.entries[-1].version == 0
    # Of the oldest entry nobody knows since when it is the only one.
    counted, span_ms = (recent, MINUTE_MS) if goes_back else (recent[:-1], now.log_ms - recent[-1].timestamp_ms)
    return per_second(sum(item.transactions_committed for item in counted), span_ms), span_ms


def messages_per_second(earlier: Reading | None, now: Reading, topic: TopicReading) -> float | None:
    """Messages a second that became visible since an earlier reading; None where that does not have the topic."""
    before = None if earlier is None else earlier.topics.get(topic.name)
    if earlier is None or before is None or before.id != topic.id:
        return None
    return per_second(topic.written - before.written, now.at_ms - earlier.at_ms)


def lag_growth(earlier: Reading | None, now: Reading, item: SubscriptionReading) -> float | None:
    """Messages a second by which a lag grew since an earlier reading, negative where it shrank; None for no answer."""
    before = None if earlier is None else earlier.subscriptions.get((item.topic, item.name))
    if earlier is None or before is None:
        return None
    return per_second(item.lag_messages - before.lag_messages, now.at_ms - earlier.at_ms)


# --- a frame ----------------------------------------------------------------------------------------------------------


def frame(earlier: Reading | None, now: Reading, size: Size, notes: Sequence[Line] = ()) -> list[Line]:
    """The lines of a frame, no more and no longer than the terminal has room for.

    Args:
        earlier: the reading before, with which rates are computed; None where there is none.
        now: the newest reading.
        size: of the terminal.
        notes: lines below the summary, such as an error.
    """
    head = [Line(_summary(now), "title"), Line(_commits(now)), Line(_unended(now)), *notes]
    tables = [_subscriptions(earlier, now), _transactions(now), _topics(earlier, now)]
    free = size.lines - len(head) - 2 * len(tables)  # a blank line and the headings of each
    shares = _shares([max(1, len(table.rows)) for table in tables], free)  # of none, a line says so
    lines = head
    for table, share in zip(tables, shares, strict=True):
        lines = [*lines, Line(""), *_lines(table, share, size.columns)]
    return [Line(_cut(line.text, size.columns), line.style) for line in lines[: size.lines]]


def _shares(wanted: Sequence[int], free: int) -> list[int]:
    """How many rows each table shows: as many as it has, or as all others get; the first ones get what is left."""
    shares = [0] * len(wanted)
    while free > 0 and (growing := [place for place, count in enumerate(wanted) if shares[place] < count]):
        for place in growing[:free]:
            shares[place] += 1
        free -= len(growing[:free])
    return shares


def _summary(now: Reading) -> str:
    time = time_of(now.at_ms).isoformat(timespec="seconds")
    return f"{printable(now.namespace)}{_GAP}version {now.version:,}{_GAP}{time}"


def _commits(now: Reading) -> str:
    since_ms = now.at_ms - now.committed_since_ms
    minute, span_ms = commits_of_minute(now)
    span = "minute" if span_ms == MINUTE_MS else age(span_ms)
    age_ms = now.log_ms - now.entries[0].timestamp_ms
    parts = [f"commits/s {rate(minute)} in the last {span}"]
    if since_ms > 0:
        parts.append(f"{rate(per_second(now.committed, since_ms))} in {age(since_ms)} of watching")
    return f"{', '.join(parts)}; newest {age(age_ms)} ago"


def _unended(now: Reading) -> str:
    counts = [sum(item.state == state for item in now.unended) for state in ("OPEN", "PREPARED")]
    hanging = sum(map(now.is_hanging, now.unended))
    return f"transactions: {counts[0]:,} open, {counts[1]:,} prepared, {hanging:,} hanging"


def _subscriptions(earlier: Reading | None, now: Reading) -> _Table:
    chosen = sorted(now.subscriptions.values(), key=lambda item: (-item.lag_messages, item.topic, item.name))
    columns = (
        _Column("SUBSCRIPTION", is_name=True),
        _Column("TOPIC", is_name=True),
        _Column("LAG", to_right=True),
        _Column("OLDEST", to_right=True),
        _Column("CHANGE"),
        _Column("CONSUMER", is_name=True),
    )
    rows = [
        (
            item.name,
            item.topic,
            f"{item.lag_messages:,}",
            "" if item.lag_ms is None else age(item.lag_ms),
            _change(lag_growth(earlier, now, item)),
            item.consumer or "",
        )
        for item in chosen
    ]
    return _Table(columns, rows)


def _change(growth: float | None) -> str:
    if growth is None:
        return ""
    if not growth:
        return "same"
    return f"{'grows' if growth > 0 else 'shrinks'} {rate(abs(growth))}/s"


def _transactions(now: Reading) -> _Table:
    columns = (
        _Column("TRANSACTION"),
        _Column("STATE"),
        _Column("AGE", to_right=True),
        _Column("TIMES OUT", to_right=True),
        _Column("PRODUCER", is_name=True),
    )
    chosen = sorted(now.unended, key=lambda item: not now.is_hanging(item))  # else the oldest first, as they come
    rows = [
        (
            str(item.txn_id),
            "HANGING" if now.is_hanging(item) else item.state,
            age(item.age_ms or 0),
            _until(item, now),
            item.producer or "",
        )
        for item in chosen
    ]
    return _Table(columns, rows, warned=sum(map(now.is_hanging, chosen)))


def _until(item: TransactionInfo, now: Reading) -> str:
    if item.deadline_ms is None:
        return "never"
    left_ms = item.deadline_ms - now.log_ms
    return f"in {age(left_ms)}" if left_ms >= 0 else f"{age(-left_ms)} ago"


def _topics(earlier: Reading | None, now: Reading) -> _Table:
    columns = (
        _Column("TOPIC", is_name=True),
        _Column("MESSAGES/S", to_right=True),
        _Column("MESSAGES", to_right=True),
        _Column("SIZE", to_right=True),
        _Column("FILES", to_right=True),
    )
    rates = {item.name: messages_per_second(earlier, now, item) for item in now.topics.values()}
    chosen = sorted(now.topics.values(), key=lambda item: (-(rates[item.name] or 0), -item.messages, item.name))
    rows = [
        (
            item.name,
            rate(rates[item.name]),
            f"{item.messages:,}",
            size_text(item.size_bytes),
            f"{item.files:,}",
        )
        for item in chosen
    ]
    return _Table(columns, rows)


# --- tables as lines --------------------------------------------------------------------------------------------------


def _lines(table: _Table, share: int, columns: int) -> Iterator[Line]:
    """The headings of a table, with how many rows there are where not all fit, and its first rows."""
    shown = [tuple(printable(cell) for cell in row) for row in table.rows[:share]]
    counted = f" {share:,} of {len(table.rows):,}" if share < len(table.rows) else ""
    first, *others = (column.heading for column in table.columns)
    headings = (first + counted, *others)
    widths = _widths(table.columns, [headings, *shown], columns)
    yield Line(_joined(table.columns, headings, widths), "heading")
    if share and not shown:
        yield Line("(none)")
    for place, row in enumerate(shown):
        yield Line(_joined(table.columns, row, widths), "warning" if place < table.warned else "")


def _widths(columns: Sequence[_Column], rows: Sequence[Sequence[str]], width: int) -> list[int]:
    """The widths of columns: what is too wide for all is saved in the widest names, cell by cell."""
    widths = [max(cells(row[place]) for row in rows) for place in range(len(columns))]
    names = [place for place, column in enumerate(columns) if column.is_name]
    over = sum(widths) + len(_GAP) * (len(columns) - 1) - width
    while over > 0:
        widest = max(names, key=lambda place: widths[place])
        if widths[widest] <= _LEAST_NAME:
            break  # the frame cuts the line
        widths[widest] -= 1
        over -= 1
    return widths


def _joined(columns: Sequence[_Column], row: Sequence[str], widths: Sequence[int]) -> str:
    texts: list[str] = []
    for column, cell, width in zip(columns, row, widths, strict=True):
        shown = _cut(cell, width)
        blanks = " " * (width - cells(shown))
        texts.append(blanks + shown if column.to_right else shown + blanks)
    return _GAP.join(texts).rstrip()


def cells(text: str) -> int:
    """The columns of a terminal that a text needs: letters of some scripts need two, and marks on letters none."""
    return len(text) if text.isascii() else sum(map(_cell, text))


def _cell(character: str) -> int:
    if unicodedata.category(character) in {"Mn", "Me", "Cf"}:
        return 0
    return 2 if unicodedata.east_asian_width(character) in "WF" else 1


def _cut(text: str, width: int) -> str:
    """A text that needs no more columns than these: the end of a longer one is left out, and marked as such."""
    if cells(text) <= width:
        return text
    kept, used = "", 1  # the mark needs one
    for character in text:
        used += _cell(character)
        if used > width:
            break
        kept += character
    return f"{kept}…" if width > 0 else ""


# --- numbers as texts -------------------------------------------------------------------------------------------------


def rate(value: float | None) -> str:
    """A number a second, with a decimal where it is small; a dash for no answer."""
    if value is None:
        return "-"
    return f"{value:.1f}" if value < 99.95 else f"{value:,.0f}"


def age(milliseconds: int) -> str:
    """A length of time in its two largest units: ``350ms``, ``12s``, ``4m05s``, ``2h03m``, ``3d04h``."""
    if milliseconds < 1_000:
        return f"{milliseconds}ms"
    seconds = milliseconds // 1_000
    if seconds < 60:
        return f"{seconds}s"
    if seconds < 3_600:
        return f"{seconds // 60}m{seconds % 60:02}s"
    if seconds < 86_400:
        return f"{seconds // 3_600}h{seconds % 3_600 // 60:02}m"
    return f"{seconds // 86_400:,}d{seconds % 86_400 // 3_600:02}h"


def size_text(size_bytes: int) -> str:
    """A size in the largest unit of which there is one at least: ``812B``, ``4.2MiB``."""
    if size_bytes < 1_024:
        return f"{size_bytes}B"
    value = float(size_bytes)
    for unit in ("KiB", "MiB", "GiB"):
        value /= 1_024
        if value < 1_023.95:
            return f"{value:.1f}{unit}"
    return f"{value / 1_024:,.1f}TiB"


# --- for programs -----------------------------------------------------------------------------------------------------


def record(earlier: Reading | None, now: Reading, error: str | None = None) -> dict[str, Any]:
    """The same for programs: with all rows, whatever the size of a terminal."""
    minute, span_ms = commits_of_minute(now)
    return {
        "namespace": now.namespace,
        "version": now.version,
        "timestamp_ms": now.at_ms,
        "error": error,
        "commits_per_second": _rounded(minute),
        "commits_span_ms": span_ms,
        "committed": now.committed,
        "committed_since_ms": now.committed_since_ms,
        "open": sum(item.state == "OPEN" for item in now.unended),
        "prepared": sum(item.state == "PREPARED" for item in now.unended),
        "hanging": sum(map(now.is_hanging, now.unended)),
        "transactions": [
            {
                "txn_id": str(item.txn_id),
                "state": item.state,
                "hanging": now.is_hanging(item),
                "age_ms": item.age_ms,
                "deadline_ms": item.deadline_ms,
                "producer": item.producer,
            }
            for item in now.unended
        ],
        "topics": [
            {
                "topic": item.name,
                "messages_per_second": _rounded(messages_per_second(earlier, now, item)),
                "messages": item.messages,
                "size_bytes": item.size_bytes,
                "files": item.files,
            }
            for item in now.topics.values()
        ],
        "subscriptions": [
            {
                "topic": item.topic,
                "subscription": item.name,
                "lag_messages": item.lag_messages,
                "lag_ms": item.lag_ms,
                "lag_growth_per_second": _rounded(lag_growth(earlier, now, item)),
                "consumer": item.consumer,
            }
            for item in now.subscriptions.values()
        ],
    }


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(value, 3)


__all__ = [
    "Line",
    "Size",
    "Style",
    "age",
    "cells",
    "commits_of_minute",
    "frame",
    "lag_growth",
    "messages_per_second",
    "per_second",
    "rate",
    "record",
    "size_text",
]
