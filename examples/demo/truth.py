"""What the pipeline must have produced, from the CSV alone: no Spark, no Arrow, no txnlog."""

from __future__ import annotations

import csv
import io
import itertools
import zipfile
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

LATE_MINUTES: Final = 60
"""A flight is late when it arrives more than this after its schedule."""


@dataclass(frozen=True)
class Truth:
    """Totals of the CSV.

    Attributes:
        late: the lines of the late flights, which are the rows of ``delays``.
        flights: by carrier the number of its flights.
        delay_minutes: by carrier the summed delay of its flights at arrival, early ones counting below zero.
    """

    late: frozenset[int]
    flights: Mapping[str, int]
    delay_minutes: Mapping[str, int]

    @property
    def total(self) -> int:
        """All flights."""
        return sum(self.flights.values())


def truth_of(records: Iterable[Mapping[str, str]]) -> Truth:
    """The truth about the lines of a CSV."""
    late: set[int] = set()
    flights: Counter[str] = Counter()
    delay_minutes: Counter[str] = Counter()
    for line, record in enumerate(records):
        carrier = record["carrier"]
        flights[carrier] += 1
        if record["arr_delay"] in {"", "NA"}:  # cancelled, or landed elsewhere
            continue
        delay = int(record["arr_delay"])
        delay_minutes[carrier] += delay
        if delay > LATE_MINUTES:
            late.add(line)
    return Truth(frozenset(late), dict(flights), {carrier: delay_minutes[carrier] for carrier in flights})


def read_truth(archive: Path, rows: int | None = None) -> Truth:
    """The truth about the CSV in an archive, or about its first ``rows``."""
    with zipfile.ZipFile(archive) as package, package.open("flights.csv") as file:
        lines = csv.DictReader(io.TextIOWrapper(file, encoding="utf-8", newline=""))
        return truth_of(itertools.islice(lines, rows))


__all__ = ["LATE_MINUTES", "Truth", "read_truth", "truth_of"]
