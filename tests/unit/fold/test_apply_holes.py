"""Merged segments with holes: their offsets are kept, and some have no row any more."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.memory_log import Log
from txnlog.errors import InvalidInputError
from txnlog.format.actions import Begin, Protocol, Replace, Segment
from txnlog.format.features import HOLES
from txnlog.log import checkpoint_codec

WITH_HOLES = Protocol(1, 1, (HOLES,), (HOLES,))


@pytest.fixture
def topic(log) -> int:
    """Partition 0 holds offsets 0 to 5, in two segments."""
    topic = log.topic(partitions=2)
    log.produce(topic, 2)
    log.produce(topic, 4)
    return topic


def with_extent(log: Log, topic: int, rows: int, extent: int, txn: int) -> Segment:
    return log.segment(topic, {0: rows}, txn, compacted=True, extent=extent)


def replaced(log: Log, topic: int, *segments: tuple[int, int], offsets: tuple[int, ...] = (0,)) -> int:
    """Replace all by segments of so many rows and offsets; the version."""
    txn, old = log.number(), tuple(log.state.segments)
    log.entry(Begin(txn), *(with_extent(log, topic, rows, extent, txn) for rows, extent in segments))
    return log.entry(Replace(topic, txn, old, offsets))


@pytest.mark.clause("P-90", "P-236")
@pytest.mark.parametrize("segments", [((4, 6),), ((0, 6),), ((6, 6),), ((1, 2), (0, 4))])
def test_a_segment_stands_for_its_offsets_whatever_rows_it_has(log, topic, segments):
    log.entry(WITH_HOLES)
    replaced(log, topic, *segments, offsets=(0, 2)[: len(segments)])
    assert log.ends(topic) == {0: 6, 1: 0}
    visible = [record for number, record in log.state.segments.items() if number not in log.state.removals]
    assert [(record.extent, record.end_of(record.slices[0])) for record in visible] == [
        (extent, end) for (_, extent), end in zip(segments, (6,) if len(segments) == 1 else (2, 6), strict=True)
    ]


@pytest.mark.clause("P-90")
@pytest.mark.parametrize(("segments", "offsets"), [(((3, 5),), (0,)), (((4, 7),), (0,)), (((2, 3), (2, 4)), (0, 2))])
def test_no_offset_comes_or_goes_with_holes(log, topic, segments, offsets):
    log.entry(WITH_HOLES)
    with pytest.raises(InvalidInputError):
        replaced(log, topic, *segments, offsets=offsets)


@pytest.mark.clause("P-134")
def test_there_are_no_holes_without_the_feature(log, topic):
    txn = log.number()
    with pytest.raises(InvalidInputError, match="without the feature 'holes'"):
        log.entry(Begin(txn), with_extent(log, topic, 1, 6, txn))


@pytest.mark.parametrize(
    "changes", [{"extent": 0}, {"extent": 2}, {"compacted": False}, {"compacted": False, "extent": 3}]
)
def test_an_extent_is_no_less_than_the_rows_of_a_merged_segment(log, topic, changes):
    log.entry(WITH_HOLES)
    txn = log.number()
    with pytest.raises(InvalidInputError):
        log.entry(Begin(txn), log.segment(topic, {0: 3}, txn, **{"compacted": True, "extent": 6} | changes))


def test_a_segment_without_an_extent_has_rows(log, topic):
    log.entry(WITH_HOLES)
    txn = log.number()
    with pytest.raises(InvalidInputError, match="out of range"):
        log.entry(Begin(txn), log.segment(topic, {0: 0}, txn, compacted=True))


@pytest.mark.clause("P-128")
def test_a_run_of_a_checkpoint_has_extents_where_it_says_something_with_them(log, topic):
    def run() -> tuple[list[str], dict[int, int | None]]:
        table = checkpoint_codec.cold_rows(log.state)["segments"]
        part, data = checkpoint_codec.encode_part("segments", table, "0" * 32, (0, log.version), log.now_ms)
        found = checkpoint_codec.read_part(data, part)
        stored = pq.read_schema(pa.BufferReader(data)).names
        return stored, {record.number: record.extent for record in checkpoint_codec.segments_of(found)}

    columns, extents = run()
    assert "extent" not in columns
    assert set(extents.values()) == {None}
    log.entry(WITH_HOLES)
    replaced(log, topic, (4, 6))
    columns, extents = run()
    assert columns[-1] == "extent"
    assert sorted(extents.values(), key=str) == [6, None, None]
