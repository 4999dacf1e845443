"""What the benchmarks in Spark share: a session, and two ways to do the same, timed in turns."""

from __future__ import annotations

import os
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from benchmarks.report import Row, compared
from tools import delta_jars

WARM_UPS = 2
SKIPPED_BATCHES = 3
"""Those at the beginning of a query do not count."""


def start_spark(*, delta: bool = False, jars: Sequence[str] = ()) -> SparkSession:
    """A session on two cores, with Delta or some jars."""
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    builder: Any = SparkSession.builder
    builder = (
        builder.master("local[2]")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.log.level", "ERROR")
        .config("spark.driver.memory", "3g")
        .config("spark.sql.session.timeZone", "UTC")
    )
    if jars:
        builder = builder.config("spark.jars", ",".join(jars))
    if delta:
        builder = builder.config("spark.jars", ",".join(delta_jars.delta_jars()))
        for name, value in delta_jars.SETTINGS.items():
            builder = builder.config(name, value)
    return builder.getOrCreate()  # type: ignore[no-any-return]  # the builder has no types


def all_of(frame: DataFrame) -> None:
    """Compute every column of every row, and throw it away."""
    frame.write.format("noop").mode("overwrite").save()


def seconds(work: Callable[[], object]) -> float:
    """How long some work takes."""
    started = time.perf_counter()
    work()
    return time.perf_counter() - started


@dataclass(frozen=True, slots=True)
class Pair:
    """Two ways to do the same. ``prepare`` is run before each of them, and not timed; ``unit`` is that of the row."""

    what: str
    goal: float
    ours: Callable[[], object]
    theirs: Callable[[], object]
    prepare: Callable[[], object] = lambda: None
    unit: str = "s"

    def measured(self, turns: int) -> Row:
        """Run both in turns (A B A B), after two to warm up: the median of the pairs' ratios, and both medians."""
        pairs = [(self._seconds(self.ours), self._seconds(self.theirs)) for _ in range(WARM_UPS + turns)][WARM_UPS:]
        row = compared(self.what, self.goal, pairs, self.unit)
        print(row, file=sys.stderr, flush=True)
        return row

    def _seconds(self, work: Callable[[], object]) -> float:
        self.prepare()
        return seconds(work)


def compared_batches(
    what: str, goal: float, ours: Callable[[int], list[int]], theirs: Callable[[int], list[int]], turns: int
) -> Row:
    """Two queries by the median of their micro-batches, run in turns, after one each to warm up.

    ``ours`` and ``theirs`` run the query of a turn, and return the milliseconds of its batches; the first ones of a
    query do not count.
    """
    pairs: list[tuple[float, float]] = []
    for turn in range(1 + turns):
        ours_ms, theirs_ms = (statistics.median(run(turn)[SKIPPED_BATCHES:]) for run in (ours, theirs))
        print([ours_ms, theirs_ms], file=sys.stderr, flush=True)
        pairs.append((ours_ms / 1_000, theirs_ms / 1_000))
    return compared(what, goal, pairs[1:], "ms")


__all__ = ["WARM_UPS", "Pair", "all_of", "compared_batches", "seconds", "start_spark"]
