"""Runs of decoded segments against a list of all their rows."""

from __future__ import annotations

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from txnlog.data.segment_metadata import Found
from txnlog.data.segment_rows import PlannedSegment, PlannedSlice
from txnlog.data.segment_run import SegmentRun, by_offset

PARTITIONS = 3
Rows = list[tuple[int, int]]


def decoded(number: int, slices: list[PlannedSlice]) -> tuple[PlannedSegment, pa.Table]:
    """A file whose rows hold their own partition and offset."""
    rows: Rows = [(item.partition, (item.offset or 0) + place) for item in slices for place in range(item.rows)]
    segment = PlannedSegment(
        number,
        f"{number}",
        len(rows),
        1,
        "",
        tuple(slices),
        "COMMITTED",
        1,
        1,
        1,
        compacted=False,
        stores_partition=True,
    )
    return segment, table_of(rows)


def table_of(rows: Rows) -> pa.Table:
    return pa.table({"p": pa.array([p for p, _ in rows], pa.int64()), "o": pa.array([o for _, o in rows], pa.int64())})


def rows_of(table: pa.Table) -> Rows:
    return [(row["p"], row["o"]) for row in table.to_pylist()]


def run_of(files: list[tuple[PlannedSegment, pa.Table]]) -> SegmentRun:
    found = by_offset(files)
    return SegmentRun(found, pa.concat_tables([item.rows for item in found]))


@st.composite
def some_files(draw: st.DrawFn) -> list[tuple[PlannedSegment, pa.Table]]:
    """Files of a topic, in any order and with some left out, so that there are gaps."""
    ends = [0] * PARTITIONS
    files = []
    for number in range(draw(st.integers(1, 8))):
        slices, first_row = [], 0
        for partition in sorted(draw(st.sets(st.integers(0, PARTITIONS - 1), min_size=1))):
            count = draw(st.integers(1, 4))
            slices.append(PlannedSlice(partition, first_row, count, ends[partition]))
            ends[partition] += count
            first_row += count
        files.append(decoded(number, slices))
    return draw(st.lists(st.sampled_from(files), min_size=1, unique_by=lambda item: item[0].number))


@given(some_files(), st.integers(0, PARTITIONS - 1), st.integers(0, 20), st.integers(1, 20))
def test_a_run_gives_what_follows_an_offset_without_a_gap(
    files: list[tuple[PlannedSegment, pa.Table]], partition: int, start: int, count: int
) -> None:
    run, there = run_of(files), {row for _, table in files for row in rows_of(table)}
    expected: Rows = []
    for offset in range(start, start + count):
        if (partition, offset) not in there:
            break
        expected.append((partition, offset))
    found = run.rows(partition, start, start + count)
    assert (None if found is None else rows_of(found[0])) == (expected or None)
    assert found is None or found[1] == start + len(expected)
    if not expected:
        behind = [offset for p, offset in there if p == partition and start < offset < start + count]
        assert run.next_offset(partition, start, start + count) == min([*behind, start + count])


def test_rows_lie_by_partition_and_offset_and_know_their_segment() -> None:
    later = decoded(2, [PlannedSlice(0, 0, 2, 3), PlannedSlice(1, 2, 1, 7)])
    first = decoded(1, [PlannedSlice(0, 0, 3, 0)])
    found = by_offset([later, first])
    assert all(isinstance(item, Found) for item in found)
    assert [(item.segment.number, rows_of(item.rows)) for item in found] == [
        (1, [(0, 0), (0, 1), (0, 2)]),
        (2, [(0, 3), (0, 4)]),
        (2, [(1, 7)]),
    ]
    run = run_of([later, first])
    whole = run.rows(0, 0, 5)
    assert whole is not None
    assert rows_of(whole[0]) == [(0, offset) for offset in range(5)]
    assert run.size_bytes >= 6 * 16
