"""The rows of some segments by partition and offset: what a consumer takes in many parts is decoded and shaped once."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from txnlog.data.segment_metadata import Found, rows_with_holes
from txnlog.data.segment_rows import PlannedSegment

Numbers = npt.NDArray[np.int64]


class _Stretch(NamedTuple):
    """Offsets of a partition that follow each other without a gap, as rows of the table.

    ``offsets`` are those of the rows where not every offset has one; None where each has.
    """

    start: int
    end: int
    first_row: int
    offsets: Numbers | None = None

    def row_of(self, offset: int) -> int:
        """The row of the table at an offset, or behind it."""
        if self.offsets is None:
            return self.first_row + offset - self.start
        return self.first_row + int(np.searchsorted(self.offsets, offset))


def by_offset(decoded: Iterable[tuple[PlannedSegment, pa.Table]]) -> list[Found]:
    """The wanted rows of decoded files, a slice each: in the order of partitions, and of offsets in each of them."""
    found = [
        rows_with_holes(segment, table)
        if segment.holes_in is not None
        else Found(segment, table if item.rows == len(table) else table.slice(item.first_row, item.rows), (item,))
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
            rows, end = item.slices[0].rows, offset + item.slices[0].width
            if item.segment.holes_in is not None:
                stretches.append(_Stretch(offset, end, first_row, item.rows.column("_offset").to_numpy()))
            elif stretches and stretches[-1].end == offset and stretches[-1].offsets is None:
                stretches[-1] = stretches[-1]._replace(end=end)
            else:
                stretches.append(_Stretch(offset, end, first_row))
            first_row += rows
        assert first_row == len(table), "all rows were shaped"

    @property
    def size_bytes(self) -> int:
        """What its rows take in memory."""
        size: int = self._table.get_total_buffer_size()
        return size

    def rows(self, partition: int, start: int, end: int) -> tuple[pa.Table, int] | None:
        """The rows of a partition from an offset on, up to ``end`` or the first offset that is not here, and that one.

        None where ``start`` is not here. Where offsets have no row any more there are fewer rows than offsets, or none.
        """
        stretches = self._stretches.get(partition, ())
        place = bisect_right(stretches, start, key=_start) - 1
        if place < 0 or start >= stretches[place].end:
            return None
        found, end = stretches[place], min(end, stretches[place].end)
        first_row = found.row_of(start)
        return self._table.slice(first_row, found.row_of(end) - first_row), end

    def next_offset(self, partition: int, offset: int, end: int) -> int:
        """The first offset of a partition that is here behind one that is not; ``end`` where that comes first."""
        stretches = self._stretches.get(partition, ())
        place = bisect_right(stretches, offset, key=_start)
        return min(stretches[place].start, end) if place < len(stretches) else end


def _start(stretch: _Stretch) -> int:
    return stretch.start


__all__ = ["SegmentRun", "by_offset"]
