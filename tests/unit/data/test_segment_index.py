"""The index of a topic's visible segments against a look through all of them."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from txnlog.common import ranges
from txnlog.data.segment_index import SegmentIndex
from txnlog.fold.state import SegmentRecord, SegmentSlice

PARTITIONS = 3


def segment(number: int, slices: list[tuple[int, int, int]]) -> SegmentRecord:
    """A visible segment with (partition, rows, offset) of each slice."""
    rows = sum(count for _, count, _ in slices)
    found = tuple(SegmentSlice(partition, count, offset) for partition, count, offset in slices)
    return SegmentRecord(number, 1, f"{number:032x}.parquet", rows, 1, "", found, "visible", 1)


@st.composite
def topics(draw: st.DrawFn) -> list[SegmentRecord]:
    """Segments whose slices follow each other in every partition."""
    ends = [0] * PARTITIONS
    made: list[SegmentRecord] = []
    for number in range(draw(st.integers(0, 12))):
        slices = []
        for partition in sorted(draw(st.sets(st.integers(0, PARTITIONS - 1), min_size=1))):
            count = draw(st.integers(1, 5))
            slices.append((partition, count, ends[partition]))
            ends[partition] += count
        made.append(segment(number, slices))
    return made


def holds(record: SegmentRecord, wanted: dict[int, ranges.Ranges]) -> bool:
    return any(
        ranges.overlaps(((item.offset or 0, (item.offset or 0) + item.rows),), wanted.get(item.partition, ()))
        for item in record.slices
    )


offsets = st.sets(st.integers(0, 40), min_size=1).map(ranges.from_values)


@given(topics(), st.data(), st.dictionaries(st.integers(0, PARTITIONS), offsets))
def test_it_finds_what_holds_the_offsets_whatever_came_and_went(made, data, wanted):
    index = SegmentIndex(data.draw(st.permutations(made[:6])))
    for record in data.draw(st.permutations(made)):
        index.add(record)
    gone = {record.number for record in made if data.draw(st.booleans())}
    for number in data.draw(st.permutations(sorted(gone))):
        index.remove(number)
    index.remove(99)
    found = index.overlapping(wanted)
    numbers = [record.number for record in found]
    assert len(index) == len(made) - len(gone)
    assert len(set(numbers)) == len(numbers)
    assert {record.number for record in made if record.number not in gone and holds(record, wanted)} <= set(numbers)
    assert set(numbers).isdisjoint(gone)


def test_it_finds_no_more_than_one_segment_before_the_offsets():
    index = SegmentIndex(segment(number, [(0, 10, 10 * number)]) for number in range(1_000))
    assert [item.number for item in index.overlapping({0: ((5_005, 5_015),)})] == [500, 501]
    assert [item.number for item in index.overlapping({0: ((0, 1), (9_999, 10_000))})] == [0, 999]
    assert index.overlapping({1: ((0, 1),)}) == []
    assert [item.number for item in index.overlapping({0: ((5_005, 9_000),), 1: ((0, 1),)}, 3)] == [500, 501, 502]
