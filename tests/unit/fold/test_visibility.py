"""Visibility: one definition and the compiled form of it here, which agree; Spark's is in tests/spark."""

from __future__ import annotations

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from txnlog.data.scan_planner import select
from txnlog.fold.state import SegmentRecord, SegmentSlice
from txnlog.fold.visibility import Visibility, is_visible, state_at
from txnlog.format.keys import SEGMENT_COLUMN


def record(number: int, logged: int, ended: int | None, state: str, offset: int = 0) -> SegmentRecord:
    visible = state == "visible"
    slices = (SegmentSlice(0, 1, offset if visible else None),)
    return SegmentRecord(
        number,
        1,
        f"{number:032x}.parquet",
        1,
        10,
        "crc32:00000000",
        slices,
        state,  # type: ignore[arg-type]
        logged,
        None if visible and logged == ended else number + 1_000,
        ended,
        None if ended is None else ended * 1_000,
    )


@pytest.mark.clause("P-99", "P-100", "P-101")
@pytest.mark.parametrize(
    ("logged", "ended", "state", "version", "wanted"),
    [
        (5, 7, "visible", 4, None),
        (5, 7, "visible", 5, "OPEN"),
        (5, 7, "visible", 6, "OPEN"),
        (5, 7, "visible", 7, "COMMITTED"),
        (5, 7, "aborted", 6, "OPEN"),
        (5, 7, "aborted", 7, "ABORTED"),
        (5, None, "pending", 99, "OPEN"),
        (5, 5, "visible", 5, "COMMITTED"),
        (5, 5, "visible", 4, None),
    ],
)
def test_a_segments_state_at_a_version(logged: int, ended: int | None, state: str, version: int, wanted: str) -> None:
    found = record(1, logged, ended, state)
    assert state_at(found, version) == wanted
    assert is_visible(found, version, {}) == (wanted == "COMMITTED")


@pytest.mark.clause("P-99")
def test_a_replaced_segment_is_seen_before_its_removal_only() -> None:
    found = record(1, 5, 5, "visible")
    assert [is_visible(found, version, {1: 8}) for version in (4, 5, 7, 8, 9)] == [False, True, True, False, False]


segments = st.builds(
    lambda number, logged, more, state: record(
        number, logged, None if state == "pending" else logged + more, state, offset=number
    ),
    st.integers(0, 60),
    st.integers(1, 12),
    st.integers(0, 8),
    st.sampled_from(["pending", "visible", "aborted"]),
)


@pytest.mark.clause("P-99")
@given(
    st.lists(segments, max_size=20, unique_by=lambda item: item.number),
    st.dictionaries(st.integers(0, 60), st.integers(1, 20)),
    st.integers(0, 22),
)
def test_the_predicate_over_records_and_over_files_agree(
    records: list[SegmentRecord], removals: dict[int, int], version: int
) -> None:
    wanted = {item.number for item in records if is_visible(item, version, removals)}
    chosen = [item.number for item, state in select(records, removals, version, "read_committed")]
    assert sorted(chosen) == sorted(wanted)
    predicate = Visibility.of(chosen)
    everywhere = list(range(70))
    assert {number for number in everywhere if number in predicate} == wanted
    table = pa.table({SEGMENT_COLUMN: pa.array(everywhere, pa.int64())})
    assert set(table.filter(predicate.to_arrow()).column(SEGMENT_COLUMN).to_pylist()) == wanted
    named = {number for first, last in predicate.runs() for number in range(first, last + 1)} | set(predicate.singles())
    assert named == wanted
    others = {item.number for item, state in select(records, removals, version, "read_uncommitted")} - wanted
    assert others == {item.number for item in records if state_at(item, version) in {"OPEN", "ABORTED"}}


def test_an_empty_set_shows_nothing() -> None:
    predicate = Visibility.of([])
    table = pa.table({"n": pa.array([1, 2], pa.int64())})
    assert table.filter(predicate.to_arrow("n")).num_rows == 0
    assert (predicate.runs(), predicate.singles(), 1 in predicate) == ((), (), False)
