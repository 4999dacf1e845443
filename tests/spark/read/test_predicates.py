"""The visibility predicate has one definition and three compiled forms: pure, pyarrow, Spark. They agree."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from functools import cache
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pyspark.sql import functions as F  # noqa: N812 - as everybody writes it

from spark_ext.read import visibility_column
from tests.effort import tries
from tests.histories import Steps, history, planned, states
from tests.unit.random_entries import entries
from txnlog.common.format_limits import MAX_NUMBER
from txnlog.common.ranges import Ranges
from txnlog.fold.state import SegmentRecord, State
from txnlog.fold.visibility import Visibility, is_visible
from txnlog.format.keys import SEGMENT_COLUMN

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

HISTORIES = tries(400, 60)
A_JOB = 100
"""Predicates that one job of Spark evaluates, each and its negation for every number."""

NUMBERS = [*range(1_500), 1 << 40, MAX_NUMBER - 1, MAX_NUMBER]
TABLE = pa.table({SEGMENT_COLUMN: pa.array(NUMBERS, pa.int64())})


def evaluated_by_spark(spark: SparkSession, predicate: Iterable[Visibility]) -> list[list[tuple[bool, bool]]]:
    """Of each predicate what its column says of every number, and what its negation says."""
    frame = spark.createDataFrame(TABLE)
    waiting = list(predicate)
    result: list[list[tuple[bool, bool]]] = []
    for first in range(0, len(waiting), A_JOB):
        columns = [visibility_column.to_column(item) for item in waiting[first : first + A_JOB]]
        found = frame.select(
            SEGMENT_COLUMN, F.array(*columns).alias("yes"), F.array(*[~column for column in columns]).alias("no")
        ).toArrow()
        assert found.column(SEGMENT_COLUMN).to_pylist() == NUMBERS
        yes = zip(*found.column("yes").to_pylist(), strict=True)
        no = zip(*found.column("no").to_pylist(), strict=True)
        result.extend(list(zip(flags, negated, strict=True)) for flags, negated in zip(yes, no, strict=True))
    return result


def numbers_of(flags: Sequence[tuple[bool, bool]]) -> set[int]:
    """The numbers of which a column is true; it must be true or false of each, and its negation the contrary."""
    assert set(flags) <= {(True, False), (False, True)}
    return {number for number, (yes, _) in zip(NUMBERS, flags, strict=True) if yes}


@cache
def by_arrow(ranges: Ranges) -> frozenset[int]:
    """The numbers of which the pyarrow expression is true; and its negation must be the contrary."""
    expression = Visibility(ranges).to_arrow()
    found = TABLE.filter(expression).column(SEGMENT_COLUMN).to_pylist()
    others = TABLE.filter(~expression).column(SEGMENT_COLUMN).to_pylist()
    assert sorted(found + others) == NUMBERS
    return frozenset(found)


def kept(record: SegmentRecord, newest: State) -> bool:
    """Whether not all rows of a visible segment were deleted since."""
    starts = newest.starts
    return any(
        item.offset is not None and item.offset + item.rows > starts.get((record.topic, item.partition), 0)
        for item in record.slices
    )


def shown_then(past: State, newest: State, topic: int) -> tuple[set[int], set[int]]:
    """The segments a reader saw at that time, by the state as it was: visible ones, and others that were there."""
    records = [record for record in past.segments.values() if record.topic == topic]
    visible = [r for r in records if r.state == "visible" and r.number not in past.removals and kept(r, newest)]
    return {r.number for r in visible}, {r.number for r in records if r.state != "visible"}


@pytest.mark.clause("P-99", "P-100", "P-101")
def test_the_three_compilations_of_the_predicate_agree_over_random_histories(spark: SparkSession) -> None:
    seen: Counter[str] = Counter()
    found: dict[Ranges, set[int]] = {}

    @settings(max_examples=HISTORIES, deadline=None, database=None, suppress_health_check=list(HealthCheck))
    @given(st.tuples(entries, entries, entries, entries))
    def look(todo: tuple[Steps, ...]) -> None:
        log = history([entry for part in todo for entry in part])
        newest = log.state
        assert set(newest.segments) <= set(NUMBERS)
        seen["histories"] += 1
        seen.update({record.state for record in newest.segments.values()})
        seen["replaced"] += bool(newest.removals)
        seen["deleted"] += bool(newest.starts)
        for version, past in states(log):
            for topic in past.topics:
                visible, others = shown_then(past, newest, topic)
                records = [r for r in newest.segments.values() if r.topic == topic and kept(r, newest)]
                assert {r.number for r in records if is_visible(r, version, newest.removals)} == visible
                for level, wanted in (("read_committed", visible), ("read_uncommitted", visible | others)):
                    predicate = planned(log, topic, version, isolation_level=level).visibility
                    assert {number for number in NUMBERS if number in predicate} == wanted
                    assert by_arrow(predicate.numbers) == wanted
                    found[predicate.numbers] = wanted

    def enough() -> bool:
        often = min(seen[kind] for kind in ("visible", "aborted", "pending")) >= HISTORIES / 8
        return often and min(seen[kind] for kind in ("replaced", "deleted")) >= 1

    for _ in range(8):  # what is rare may not come in the first round
        look()
        if enough():
            break
    assert enough(), seen
    assert seen["histories"] >= HISTORIES / 2
    flags = evaluated_by_spark(spark, map(Visibility, found))
    assert len(flags) == len(found) > HISTORIES / 2
    for (ranges, wanted_numbers), column in zip(found.items(), flags, strict=True):
        assert numbers_of(column) == wanted_numbers == by_arrow(ranges)


def test_the_forms_agree_over_sets_of_any_numbers(spark: SparkSession) -> None:
    sets: list[frozenset[int]] = []

    @settings(max_examples=tries(200, 60), deadline=None, database=None)
    @given(st.frozensets(st.one_of(st.sampled_from(NUMBERS), st.integers(0, 40)), max_size=60))
    def collect(numbers: frozenset[int]) -> None:
        assert by_arrow(Visibility.of(numbers).numbers) == numbers
        sets.append(numbers)

    collect()
    for numbers, column in zip(sets, evaluated_by_spark(spark, map(Visibility.of, sets)), strict=True):
        assert numbers_of(column) == numbers


def test_a_long_predicate_is_one_text_for_spark(spark: SparkSession) -> None:
    every_other = Visibility.of(range(0, 20_000, 2))
    (column,) = evaluated_by_spark(spark, [every_other])
    assert numbers_of(column) == {number for number in NUMBERS if number < 20_000 and number % 2 == 0}
