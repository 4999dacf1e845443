"""Plans of scans: which rows of which files, in the order of their offsets."""

from __future__ import annotations

import random

import msgspec
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.memory_log import SCHEMA
from txnlog.common.ids import Coordinators
from txnlog.data.scan_planner import ScanPlan, check_offsets, parse_isolation_level, plan
from txnlog.data.segment_metadata import wanted_rows
from txnlog.data.segment_order import in_log_order, in_offset_order
from txnlog.data.segment_rows import check_places
from txnlog.errors import CorruptionError, InvalidInputError, OffsetOutOfRange
from txnlog.fold.state import SegmentRecord, SegmentSlice, SegmentState


def segment(
    number: int,
    slices: dict[int, tuple[int, int | None]],
    *,
    version: int = 1,
    txn: int | None = None,
    state: SegmentState = "visible",
    compacted: bool = False,
) -> SegmentRecord:
    """Slices as ``{partition: (rows, offset)}``."""
    made = tuple(SegmentSlice(partition, rows, offset) for partition, (rows, offset) in sorted(slices.items()))
    ended = None if state == "pending" else version
    return SegmentRecord(
        number,
        1,
        f"{number:032x}.parquet",
        sum(item.rows for item in made),
        100,
        "crc32:00000000",
        made,
        state,
        version,
        txn,
        ended,
        None if ended is None else version * 1_000,
        compacted,
    )


def planned(records: list[SegmentRecord], version: int = 9, **options: object) -> ScanPlan:
    return plan(
        records,
        {},
        topic="orders",
        folder="orders",
        schema=SCHEMA,
        coordinators=Coordinators.one(7),
        version=version,
        **options,  # type: ignore[arg-type]
    )


def offsets_of(found: ScanPlan) -> dict[int, list[int]]:
    result: dict[int, list[int]] = {}
    for item in found.segments:
        for part in item.slices:
            assert part.offset is not None
            result.setdefault(part.partition, []).extend(range(part.offset, part.offset + part.rows))
    return result


def test_a_plan_names_rows_files_and_constants() -> None:
    shared = segment(4, {0: (2, 0), 1: (3, 0)}, version=5)
    owned = segment(6, {1: (2, 3)}, version=7, txn=99)
    found = planned([owned, shared])
    assert [item.number for item in found.segments] == [4, 6]
    first, second = found.segments
    assert first.key == f"orders/_txnlog_segment=4/{4:032x}.parquet"
    assert [(p.partition, p.first_row, p.rows, p.offset) for p in first.slices] == [(0, 0, 2, 0), (1, 2, 3, 0)]
    assert (first.txn, first.version, first.timestamp_ms, first.stores_partition, first.stores_txn) == (
        None,
        5,
        5_000,
        True,
        True,
    )
    assert (second.txn, second.version, second.stores_partition, second.stores_txn, second.whole) == (
        99,
        7,
        False,
        False,
        True,
    )
    assert (first.partitions, second.partitions) == (((0, 2), (1, 3)), ())
    assert found.rows == 7
    assert 4 in found.visibility
    assert 6 in found.visibility
    assert 5 not in found.visibility


def test_a_compacted_segment_stores_what_the_log_no_longer_says() -> None:
    (found,) = planned([segment(4, {0: (2, 0)}, compacted=True, txn=8)]).segments
    assert (found.version, found.timestamp_ms, found.stores_txn, found.stores_partition) == (None, None, True, False)


def test_offsets_cut_files_and_leave_others_alone() -> None:
    records = [segment(n, {0: (10, 10 * n), 1: (5, 5 * n)}) for n in range(5)]
    found = planned(records, offsets={0: (15, 32)})
    assert [item.number for item in found.segments] == [1, 2, 3]
    assert offsets_of(found) == {0: list(range(15, 32))}
    assert [(p.first_row, p.rows) for item in found.segments for p in item.slices] == [(5, 5), (0, 10), (0, 2)]
    assert planned(records, offsets={}).segments == ()
    assert offsets_of(planned(records, starts={0: 41, 1: 7})) == {0: list(range(41, 50)), 1: list(range(7, 25))}


@pytest.mark.clause("P-107", "P-219")
def test_partitions_are_compared_in_all_rows_of_a_file_wanted_or_not() -> None:
    (found,) = planned([segment(4, {0: (2, 0), 1: (3, 0)})], offsets={1: (1, 2)}).segments
    assert [(item.first_row, item.rows) for item in found.slices] == [(3, 1)]
    check_places(found, pa.table({"_partition": pa.array([0, 0, 1, 1, 1], pa.int32())}))
    for place in range(5):
        said = [0, 0, 1, 1, 1]
        said[place] ^= 1
        with pytest.raises(CorruptionError, match="in other partitions"):
            check_places(found, pa.table({"_partition": pa.array(said, pa.int32())}))
    (own,) = planned([segment(6, {1: (2, 3)}, txn=99)]).segments
    check_places(own, pa.table({"id": [1, 2]}))


def test_pending_and_aborted_rows_have_no_offsets_and_no_place_in_ranges() -> None:
    records = [
        segment(1, {0: (2, 0)}),
        segment(2, {0: (2, None)}, txn=5, state="pending"),
        segment(3, {0: (2, None)}, txn=6, state="aborted"),
    ]
    found = planned(records, isolation_level="read_uncommitted")
    assert [(item.number, item.state, item.version) for item in found.segments] == [
        (1, "COMMITTED", 1),
        (2, "OPEN", None),
        (3, "ABORTED", None),
    ]
    assert [part.offset for item in found.segments for part in item.slices] == [0, None, None]
    ranged = planned(records, isolation_level="read_uncommitted", offsets={0: (0, 2)})
    assert [item.number for item in ranged.segments] == [1]
    assert [item.number for item in planned(records).segments] == [1]


@given(st.lists(st.lists(st.integers(0, 4), min_size=1, max_size=5, unique=True), max_size=25), st.randoms())
def test_every_partitions_offsets_ascend_over_all_files(files: list[list[int]], rng: random.Random) -> None:
    ends = dict.fromkeys(range(5), 0)
    records = []
    for number, partitions in enumerate(files):
        slices = {}
        for partition in partitions:
            rows = rng.randrange(1, 4)
            slices[partition] = (rows, ends[partition])
            ends[partition] += rows
        records.append(segment(number, slices))
    rng.shuffle(records)
    found = offsets_of(planned(records))
    assert found == {partition: list(range(end)) for partition, end in ends.items() if end}


def test_segments_that_cannot_be_put_in_order_are_damage() -> None:
    one = segment(1, {0: (1, 0), 1: (1, 1)})
    two = segment(2, {0: (1, 1), 1: (1, 0)})
    with pytest.raises(CorruptionError, match="order"):
        in_offset_order([one, two])
    with pytest.raises(CorruptionError, match="order"):
        in_log_order([one, two])


def test_segments_that_came_later_stand_later_and_merged_ones_as_early_as_they_can() -> None:
    merged = segment(9, {0: (2, 0)}, compacted=True)
    late = segment(1, {0: (2, 4), 1: (1, 0)}, version=7)
    others = [segment(n, {p: (2, 2 * (p == 0))}, version=n) for n, p in ((3, 0), (2, 2))]
    records = [late, segment(8, {1: (1, 1)}, version=8), merged, *others]
    assert [record.number for record in in_log_order(records)] == [9, 2, 3, 1, 8]


def test_wanted_offsets_are_checked_against_what_is_there() -> None:
    check_offsets({0: (2, 5), 1: (0, 0)}, {0: 2}, {0: 5, 1: 0})
    for wrong, words in (
        ({2: (0, 0)}, "no partition 2"),
        ({0: (1, 5)}, "2 to 5"),
        ({0: (2, 6)}, "2 to 5"),
        ({0: (4, 3)}, "beyond the end"),
        ({0: (0, 9)}, "outside"),
    ):
        with pytest.raises(OffsetOutOfRange, match=words):
            check_offsets(wrong, {0: 2}, {0: 5, 1: 0})


def test_isolation_levels_have_two_names() -> None:
    assert [parse_isolation_level(text) for text in ("read_committed", "read_uncommitted")] == [
        "read_committed",
        "read_uncommitted",
    ]
    for wrong in ("READ_COMMITTED", "", "serializable"):
        with pytest.raises(InvalidInputError, match="isolation level"):
            parse_isolation_level(wrong)


@pytest.mark.clause("P-250", "P-251")
def test_rows_between_holes_ascend_within_the_offsets_of_their_segment() -> None:
    record = msgspec.structs.replace(segment(1, {0: (3, 10)}, txn=5, compacted=True), extent=6)
    (found,) = planned([record]).segments
    assert (found.holes_in, found.whole, found.reaches_end) == ((10, 16), True, True)
    for offsets in ([10, 12, 15], [11, 13, 14]):
        check_places(found, pa.table({"_offset": pa.array(offsets, pa.int64())}))
    for wrong in ([9, 12, 15], [10, 12, 16], [10, 10, 12], [12, 11, 13]):
        with pytest.raises(CorruptionError, match="rows at other offsets"):
            check_places(found, pa.table({"_offset": pa.array(wrong, pa.int64())}))
    (part,) = planned([record], offsets={0: (11, 13)}).segments
    assert (part.whole, part.reaches_end) == (False, False)
    read = wanted_rows(part, pa.table({"_offset": pa.array([10, 12, 15], pa.int64()), "value": ["a", "b", "c"]}))
    assert read.rows.column("value").to_pylist() == ["b"]
    assert read.total == 1
