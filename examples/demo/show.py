"""What the demo prints: a bar that moves in a terminal, plain lines in a pipe, and tables in both."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn
from rich.table import Table

from examples.demo.compare import Verdict

PIPE_WIDTH = 110
"""Columns of a table where no terminal says how wide it is."""


class Show:
    """The demo's output."""

    def __init__(self, console: Console | None = None) -> None:
        self.console = console or _console()

    def line(self, text: str) -> None:
        """A line of text, which may hold rich's markup."""
        self.console.print(text, highlight=False)

    @contextlib.contextmanager
    def step(self, title: str) -> Iterator[None]:
        """Something that takes a while and has no parts."""
        started = time.monotonic()
        if self.console.is_terminal:
            with self.console.status(title):
                yield
        else:
            self.line(f"{title} ...")
            yield
        self._done(title, started)

    @contextlib.contextmanager
    def bar(self, title: str, total: int, unit: str) -> Iterator[Callable[[int, str], None]]:
        """Something with parts: gives a function that takes how many are done, and what is worth a line."""
        started = time.monotonic()
        if not self.console.is_terminal:
            self.line(f"{title} ...")
            yield _quarters(self.line, total, unit)
        else:
            columns = (
                SpinnerColumn(),
                TextColumn("{task.description}"),
                BarColumn(),
                MofNCompleteColumn(),
                TextColumn(unit),
                TimeElapsedColumn(),
            )
            with Progress(*columns, console=self.console, transient=True) as progress:
                task = progress.add_task(title, total=total)

                def advance(done: int, note: str) -> None:
                    progress.update(task, completed=done)
                    if note:
                        self.line(f"     [yellow]{note}[/]")

                yield advance
        self._done(title, started)

    def table(self, title: str, head: list[str], rows: list[list[str]], *, numbers_from: int = 1) -> None:
        """A table; columns from ``numbers_from`` on are numbers."""
        table = Table(box=SIMPLE_HEAD)
        for index, name in enumerate(head):
            table.add_column(name, justify="right" if index >= numbers_from else "left", overflow="fold")
        for row in rows:
            table.add_row(*row)
        self.line(f"\n[bold]{title}[/]")
        self.console.print(table)

    def _done(self, title: str, started: float) -> None:
        self.line(f"[green]done[/] {title} [dim]({time.monotonic() - started:.0f} s)[/]")


def _console() -> Console:
    console = Console()
    return console if console.is_terminal else Console(width=PIPE_WIDTH)


def _quarters(line: Callable[[str], None], total: int, unit: str) -> Callable[[int, str], None]:
    """A line at each quarter, and for everything that is worth one."""
    last = 0

    def show(done: int, note: str) -> None:
        nonlocal last
        quarter = 4 * done // max(1, total)
        if quarter > last or note:
            line(f"  {done}/{total} {unit}{'  ' + note if note else ''}")
        last = max(last, quarter)

    return show


def verdict_rows(expected_late: int, expected_flights: int, verdicts: list[Verdict]) -> list[list[str]]:
    """The rows of the comparison: what is measured, what the CSV says, and a column for each pipeline."""

    def found(what: str, expected: int, lost: str, doubled: str) -> list[str]:
        counts = [expected - getattr(verdict, lost) + getattr(verdict, doubled) for verdict in verdicts]
        return [what, f"{expected:,}", *(_marked(count, expected) for count in counts)]

    def damage(what: str, field: str) -> list[str]:
        return [what, "0", *(_marked(getattr(verdict, field), 0) for verdict in verdicts)]

    return [
        found("delays: rows", expected_late, "late_lost", "late_doubled"),
        damage("  lost", "late_lost"),
        damage("  doubled", "late_doubled"),
        found("carrier_totals: flights counted", expected_flights, "flights_lost", "flights_doubled"),
        damage("  lost", "flights_lost"),
        damage("  doubled", "flights_doubled"),
        damage("carriers with a wrong summed delay", "wrong_delays"),
        damage("batches of a carrier where the topics disagree", "disagreeing"),
        damage("cumulative counts that jump", "jumps"),
        damage("cumulative counts that repeat", "repeats"),
    ]


def _marked(count: int, right: int) -> str:
    return f"[green]{count:,}[/]" if count == right else f"[bold red]{count:,}[/]"


__all__ = ["Show", "verdict_rows"]
