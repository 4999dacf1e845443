"""What a pipeline's two outputs are worth, measured against the truth."""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from examples.demo.truth import Truth

Row = dict[str, Any]


@dataclass(frozen=True)
class Verdict:
    """What is wrong with the outputs; all zero where nothing is.

    Attributes:
        late_lost, late_doubled: rows of ``delays`` that are missing, or there once too often.
        flights_lost, flights_doubled: flights that ``carrier_totals`` does not count, or counts once too often.
        wrong_delays: carriers whose summed delay is not that of the CSV.
        disagreeing: pairs of batch and carrier where the late flights of the two topics are not the same number.
        jumps: rows whose cumulative count is not the one before plus their own.
        repeats: rows of a batch and carrier that had its row before.
    """

    late_lost: int
    late_doubled: int
    flights_lost: int
    flights_doubled: int
    wrong_delays: int
    disagreeing: int
    jumps: int
    repeats: int

    @property
    def clean(self) -> bool:
        """Whether the outputs are exactly right."""
        return not any(vars(self).values())


def judge(truth: Truth, delays: pa.Table, carrier_totals: pa.Table) -> Verdict:
    """Compare the rows of both outputs with the truth and with each other."""
    late: Counter[int] = Counter(delays["id"].to_pylist())
    totals: list[Row] = carrier_totals.to_pylist()
    flights_lost, flights_doubled, wrong_delays = _against_csv(truth, totals)
    jumps, repeats = _cumulative(totals)
    return Verdict(
        late_lost=len(truth.late - late.keys()),
        late_doubled=sum(count - (number in truth.late) for number, count in late.items()),
        flights_lost=flights_lost,
        flights_doubled=flights_doubled,
        wrong_delays=wrong_delays,
        disagreeing=_disagreeing(delays, totals),
        jumps=jumps,
        repeats=repeats,
    )


def _against_csv(truth: Truth, totals: list[Row]) -> tuple[int, int, int]:
    flights: Counter[str] = Counter()
    delay_minutes: Counter[str] = Counter()
    for row in totals:
        flights[row["carrier"]] += row["flights"]
        delay_minutes[row["carrier"]] += row["delay_minutes"]
    carriers = truth.flights.keys() | flights.keys()
    differences = [flights[carrier] - truth.flights.get(carrier, 0) for carrier in carriers]
    wrong = sum(delay_minutes[carrier] != truth.delay_minutes.get(carrier, 0) for carrier in carriers)
    return -sum(min(0, item) for item in differences), sum(max(0, item) for item in differences), wrong


def _disagreeing(delays: pa.Table, totals: list[Row]) -> int:
    in_delays = Counter(zip(delays["batch"].to_pylist(), delays["carrier"].to_pylist(), strict=True))
    in_totals: Counter[tuple[int, str]] = Counter()
    for row in totals:
        in_totals[row["batch"], row["carrier"]] += row["late"]
    return sum(in_delays[pair] != in_totals[pair] for pair in in_delays.keys() | in_totals.keys())


def _cumulative(totals: list[Row]) -> tuple[int, int]:
    """Jumps and repeats, carrier by carrier in the order of the batches."""
    by_carrier: defaultdict[str, list[Row]] = defaultdict(list)
    for row in sorted(totals, key=lambda row: (row["batch"], row["flights_so_far"])):
        by_carrier[row["carrier"]].append(row)
    jumps = repeats = 0
    for rows in by_carrier.values():
        batch, so_far = None, 0
        for row in rows:
            if row["batch"] == batch:
                repeats += 1
                continue  # what follows is measured against the first row of its batch
            jumps += row["flights_so_far"] != so_far + row["flights"]
            batch, so_far = row["batch"], row["flights_so_far"]
    return jumps, repeats


def differing_rows(left: pa.Table, right: pa.Table) -> int:
    """Rows that are in one of two tables more often than in the other; zero for the same rows in any order."""
    rows = [Counter(tuple(row.values()) for row in table.to_pylist()) for table in (left, right)]
    return ((rows[0] - rows[1]) + (rows[1] - rows[0])).total()


__all__ = ["Verdict", "differing_rows", "judge"]
