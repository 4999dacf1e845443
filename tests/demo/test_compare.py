"""The comparison finds every kind of damage, and none where there is none."""

from __future__ import annotations

import pyarrow as pa
import pytest

from examples.demo.compare import Verdict, differing_rows, judge
from examples.demo.show import verdict_rows
from examples.demo.truth import Truth

TRUTH = Truth(frozenset({0, 3, 5}), {"AA": 4, "B6": 3}, {"AA": 200, "B6": 100})
CLEAN = Verdict(0, 0, 0, 0, 0, 0, 0, 0)

LATE = [(0, 0, "AA"), (3, 1, "AA"), (5, 1, "B6")]
TOTALS = [(0, "AA", 2, 1, 90, 2), (0, "B6", 1, 0, 10, 1), (1, "AA", 2, 1, 110, 4), (1, "B6", 2, 1, 90, 3)]


def judged(late=LATE, totals=TOTALS):
    delays = pa.Table.from_pylist([dict(zip(("id", "batch", "carrier"), row, strict=True)) for row in late])
    names = ("batch", "carrier", "flights", "late", "delay_minutes", "flights_so_far")
    return judge(TRUTH, delays, pa.Table.from_pylist([dict(zip(names, row, strict=True)) for row in totals]))


def test_right_outputs_are_clean():
    assert judged() == CLEAN
    assert judged().clean


def test_a_lost_row_is_seen_and_that_the_topics_disagree():
    assert judged(late=LATE[:2]) == Verdict(1, 0, 0, 0, 0, 1, 0, 0)


def test_doubled_rows_are_seen_and_that_the_topics_disagree():
    assert judged(late=[*LATE, LATE[0], LATE[0]]) == Verdict(0, 2, 0, 0, 0, 1, 0, 0)


def test_a_row_that_is_not_in_the_truth_counts_as_one_too_many():
    assert judged(late=[*LATE, (4, 1, "B6")]).late_doubled == 1


def test_totals_that_were_appended_twice_are_seen_as_doubled_and_repeated():
    again = (1, "AA", 2, 1, 110, 6)
    assert judged(totals=[*TOTALS, again]) == Verdict(0, 0, 0, 2, 1, 1, 0, 1)


def test_a_cumulative_count_that_goes_on_from_a_repeated_row_jumps():
    totals = [(0, "AA", 2, 1, 90, 2), (0, "AA", 2, 1, 90, 4), (1, "AA", 2, 1, 110, 6), *TOTALS[1::2]]
    found = judged(totals=totals)
    assert (found.jumps, found.repeats) == (1, 1)


def test_a_missing_row_of_totals_is_seen_as_lost_and_as_a_jump():
    found = judged(totals=TOTALS[1:])
    assert (found.flights_lost, found.wrong_delays, found.disagreeing, found.jumps) == (2, 1, 1, 1)


def test_empty_outputs_lost_everything():
    found = judge(
        TRUTH,
        pa.table(
            {"id": pa.array([], pa.int64()), "batch": pa.array([], pa.int64()), "carrier": pa.array([], pa.string())}
        ),
        pa.table({"carrier": pa.array([], pa.string())}),
    )
    assert (found.late_lost, found.flights_lost, found.wrong_delays) == (3, 7, 2)


@pytest.mark.parametrize(("right", "count"), [([1, 2, 2], 0), ([2, 1, 2], 0), ([1, 2], 1), ([1, 2, 2, 3], 1), ([], 3)])
def test_differing_rows_are_counted_whatever_their_order(right, count):
    left = pa.table({"x": [1, 2, 2]})
    assert differing_rows(left, pa.table({"x": pa.array(right, pa.int64())})) == count


def test_the_table_has_a_row_for_everything_that_can_be_wrong():
    rows = verdict_rows(3, 7, [CLEAN, Verdict(*range(1, 9))])
    assert [row[-1] for row in rows] == [f"[bold red]{number}[/]" for number in (4, 1, 2, 8, 3, 4, 5, 6, 7, 8)]
    assert [row[-2] for row in rows] == [f"[green]{row[1]}[/]" for row in rows]
