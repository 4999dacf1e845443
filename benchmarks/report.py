"""What benchmarks share: a row of the result table, also of two ways compared, a scratch folder on a real disk."""

from __future__ import annotations

import contextlib
import os
import shutil
import statistics
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Row:
    """One figure: what was measured, what came out, what was asked for, whether it holds."""

    what: str
    figure: str
    goal: str
    reached: bool


_UNITS = {"s": (1, 2), "ms": (1_000, 1)}
"""How many of one are a second, and the decimals of a figure in it."""


def compared(what: str, goal: float, pairs_s: Sequence[tuple[float, float]], unit: str = "s") -> Row:
    """The row of two ways that were timed in turns: the median of the pairs' ratios, and both medians in a unit."""
    of_a_second, decimals = _UNITS[unit]
    ours, theirs = (
        f"{statistics.median(values) * of_a_second:.{decimals}f} {unit}" for values in zip(*pairs_s, strict=True)
    )
    ratio = statistics.median(a / b for a, b in pairs_s)
    return Row(what, f"{ratio:.2f} ({ours}, {theirs})", f"at most {goal:.2f}", ratio <= goal)


@contextlib.contextmanager
def scratch() -> Iterator[Path]:
    """A folder beside the project, on the disk that is measured (a temporary file system in memory would not fsync)."""
    parent = Path(os.environ.get("TXNLOG_BENCH_DIR", "out/bench"))
    parent.mkdir(parents=True, exist_ok=True)
    folder = Path(tempfile.mkdtemp(dir=parent))
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def table(rows: list[Row]) -> str:
    """Rows as a Markdown table."""
    lines = ["| what | measured | goal | reached |", "| --- | --- | --- | --- |"]
    lines += [f"| {row.what} | {row.figure} | {row.goal} | {'yes' if row.reached else '**no**'} |" for row in rows]
    return "\n".join(lines)


def report(rows: list[Row]) -> None:
    """Print the rows."""
    print(table(rows))


__all__ = ["Row", "compared", "report", "scratch", "table"]
