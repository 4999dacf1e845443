"""The rows of some segments by partition and offset: what a consumer takes in many parts is decoded and shaped once."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import pyarrow as pa

from txnlog.data.segment_metadata import Found
from txnlog.data.segment_rows import PlannedSegment


class _Stretch(NamedTuple):
    """Offsets of a partition that follow each other without a gap, as rows of the table."""

    start: int
    end: int
    first_row: int


def by_offset(decoded: Iterable[tuple[PlannedSegment, pa.Table]]) -> list[Found]:
    """The wanted rows of decoded files, a slice each: in the order of partitions, and of offsets in each of them."""
    found = [
        Found(segment, table if item.rows == len(table) else table.slice(item.first_row, item.rows), (item,))
        for segment, table in decoded
        for item in segment.slices
    ]
    found.sort(key=_place)
    return found


def _place(found: Found) -> tuple[int, int]:
    (item,) = found.slices
    assert item.offset is not None, "only visible rows are read by their offsets"
    return item.partition, item.offset


class SegmentRun:
    """All rows of some visible segments, with their metadata. Never changes: a row keeps its offset wherever it lies.

    Args:
        found: their rows, as ``by_offset`` gives them.
        table: the same, shaped.
    """

    __slots__ = ("_stretches", "_table")

    def __init__(self, found: Sequence[Found], table: pa.Table) -> None:
        self._table = table
        self._stretches: dict[int, list[_Stretch]] = {}
        first_row = 0
        for item in found:
            partition, offset = _place(item)
            stretches = self._stretches.setdefault(partition, [])
            rows = item.slices[0].rows
            if stretches and stretches[-1].end == offset:
                stretches[-1] = stretches[-1]._replace(end=offset + rows)
            else:
                stretches.append(_Stretch(offset, offset + rows, first_row))
            first_row += rows
        assert first_row == len(table), "all rows were shaped"

    @property
    def size_bytes(self) -> int:
        """What its rows take in memory."""
        size: int = self._table.get_total_buffer_size()
        return size

    def rows(self, partition: int, start: int, end: int) -> pa.Table | None:
        """The rows of a partition from an offset on, up to ``end`` or the first that is not here; None without one."""
        stretches = self._stretches.get(partition, ())
        place = bisect_right(stretches, start, key=_start) - 1
        if place < 0 or start >= stretches[place].end:
            return None
        found = stretches[place]
        return self._table.slice(found.first_row + start - found.start, min(end, found.end) - start)

    def next_offset(self, partition: int, offset: int, end: int) -> int:
        """The first offset of a partition that is here behind one that is not; ``end`` where that comes first."""
        stretches = self._stretches.get(partition, ())
        place = bisect_right(stretches, offset, key=_start)
        return min(stretches[place].start, end) if place < len(stretches) else end


def _start(stretch: _Stretch) -> int:
    return stretch.start


__all__ = ["SegmentRun", "by_offset"]
