"""What benchmarks share: a row of the result table, a scratch folder on a real disk, printing."""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Row:
    """One figure: what was measured, what came out, what was asked for, whether it holds."""

    what: str
    figure: str
    goal: str
    reached: bool


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


__all__ = ["Row", "report", "scratch", "table"]
