"""Planning a scan: segments of a topic and a request give files, rows and constants to read. Every reader uses it."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Final, Literal, get_args

from txnlog.common.ids import Coordinators
from txnlog.common.names import nearest
from txnlog.data.segment_order import in_offset_order
from txnlog.data.segment_rows import PlannedSegment, PlannedSlice
from txnlog.errors import InvalidInputError, OffsetOutOfRange
from txnlog.fold.state import RowsState, SegmentRecord
from txnlog.fold.visibility import Visibility, is_visible, state_at
from txnlog.format.keys import segment_key
from txnlog.format.schema import StructType

IsolationLevel = Literal["read_committed", "read_uncommitted"]
ISOLATION_LEVELS: Final[tuple[IsolationLevel, ...]] = get_args(IsolationLevel)

OffsetRanges = Mapping[int, tuple[int, int]]
"""Of each wanted partition the offsets ``[start, end)``; a partition that is not named is not read."""


@dataclass(frozen=True, slots=True)
class ScanPlan:
    """What one scan of a topic reads: segments in an order that keeps every partition's offsets ascending."""

    topic: str
    folder: str
    schema: StructType
    coordinators: Coordinators
    version: int
    isolation_level: IsolationLevel
    segments: tuple[PlannedSegment, ...]
    visibility: Visibility

    @property
    def rows(self) -> int:
        """How many rows the scan gives; where files have holes about how many."""
        return sum(segment.rows for segment in self.segments)


def parse_isolation_level(text: str) -> IsolationLevel:
    """A valid isolation level, or InvalidInputError."""
    if text not in ISOLATION_LEVELS:
        raise InvalidInputError(
            f"unknown isolation level {ascii(text)[:60]}", advice=nearest(str(text), ISOLATION_LEVELS)
        )
    return text


def check_offsets(wanted: OffsetRanges, starts: Mapping[int, int], ends: Mapping[int, int]) -> None:
    """Raise OffsetOutOfRange for a partition that is not there, or offsets outside what it holds."""
    for partition, (start, end) in wanted.items():
        if partition not in ends:
            raise OffsetOutOfRange(f"there is no partition {partition}", advice=f"partitions are 0 to {len(ends) - 1}")
        low, high = starts.get(partition, 0), ends[partition]
        if start > end:
            raise OffsetOutOfRange(
                f"partition {partition}: the start {start} is beyond the end {end}",
                advice=f"offsets are (start, end), without the end; there are some between {low} and {high}",
            )
        if start < low or end > high:
            raise OffsetOutOfRange(
                f"partition {partition} holds offsets {low} to {high}; {start} to {end} is outside",
                advice=f"ask for offsets between {low} and {high}",
            )


def plan_segment(
    record: SegmentRecord,
    folder: str,
    state: RowsState,
    offsets: OffsetRanges | None,
    starts: Mapping[int, int],
) -> PlannedSegment | None:
    """The part of one segment that a scan wants; None where it wants nothing of it."""
    slices: list[PlannedSlice] = []
    first_row = 0
    holes_in: tuple[int, int] | None = None
    for item in record.slices:
        offset = item.offset if state == "COMMITTED" else None
        low, high = 0, item.rows if offset is None else record.width_of(item)
        if offset is not None:
            low = max(low, starts.get(item.partition, 0) - offset)
        if offsets is not None:
            wanted = offsets.get(item.partition)
            if wanted is None or offset is None:
                low, high = 0, 0
            else:
                low, high = max(low, wanted[0] - offset), min(high, wanted[1] - offset)
        if offset is not None and record.extent is not None:
            holes_in = (offset, offset + record.extent)
            if low < high:
                rows = -(-item.rows * (high - low) // record.extent)
                slices.append(PlannedSlice(item.partition, 0, rows, offset + low, high - low))
        elif low < high:
            slices.append(
                PlannedSlice(item.partition, first_row + low, high - low, None if offset is None else offset + low)
            )
        first_row += item.rows
    if not slices:
        return None
    committed = state == "COMMITTED"
    stores_partition = not record.compacted and (record.txn is None or len(record.slices) > 1)
    return PlannedSegment(
        record.number,
        segment_key(folder, record.number, record.file),
        record.rows,
        size_bytes=record.size_bytes,
        checksum=record.checksum,
        slices=tuple(slices),
        state=state,
        txn=record.txn,
        version=record.ended_version if committed and not record.compacted else None,
        timestamp_ms=record.timestamp_ms if committed and not record.compacted else None,
        # What a merged file stores holds of visible rows; before and without that they are its own transaction's rows.
        compacted=record.compacted and committed,
        stores_partition=stores_partition,
        partitions=tuple((item.partition, item.rows) for item in record.slices) if stores_partition else (),
        holes_in=holes_in,
    )


def select(
    records: Iterable[SegmentRecord], removals: Mapping[int, int], version: int, isolation_level: IsolationLevel
) -> list[tuple[SegmentRecord, RowsState]]:
    """The segments that a scan at a version sees, with their transactions' state there.

    Committed ones come first, in an order that keeps the offsets of every partition ascending.
    """
    committed: list[SegmentRecord] = []
    others: list[tuple[SegmentRecord, RowsState]] = []
    for record in records:
        state = state_at(record, version)
        if state == "COMMITTED":
            if is_visible(record, version, removals):
                committed.append(record)
        elif state is not None and isolation_level == "read_uncommitted":
            others.append((record, state))
    others.sort(key=lambda pair: (pair[0].logged_version, pair[0].number))
    return [*((record, "COMMITTED") for record in in_offset_order(committed)), *others]


def plan(
    records: Iterable[SegmentRecord],
    removals: Mapping[int, int],
    *,
    topic: str,
    folder: str,
    schema: StructType,
    coordinators: Coordinators,
    version: int,
    isolation_level: IsolationLevel = "read_committed",
    offsets: OffsetRanges | None = None,
    starts: Mapping[int, int] | None = None,
) -> ScanPlan:
    """Plan one scan. ``offsets`` were checked against the partitions' ends; ``starts`` are earliest offsets."""
    segments: list[PlannedSegment] = []
    for record, state in select(records, removals, version, isolation_level):
        planned = plan_segment(record, folder, state, offsets, starts or {})
        if planned is not None:
            segments.append(planned)
    return ScanPlan(
        topic,
        folder,
        schema,
        coordinators,
        version,
        isolation_level,
        tuple(segments),
        Visibility.of(segment.number for segment in segments),
    )


def without_segments(plan: ScanPlan, numbers: Collection[int]) -> tuple[ScanPlan, tuple[PlannedSegment, ...]]:
    """A plan that leaves out some segments, and what it would have read of these."""
    left_out = tuple(segment for segment in plan.segments if segment.number in numbers)
    if not left_out:
        return plan, ()
    segments = tuple(segment for segment in plan.segments if segment.number not in numbers)
    return replace(plan, segments=segments, visibility=Visibility.of(item.number for item in segments)), left_out


__all__ = [
    "ISOLATION_LEVELS",
    "IsolationLevel",
    "OffsetRanges",
    "ScanPlan",
    "check_offsets",
    "parse_isolation_level",
    "plan",
    "plan_segment",
    "select",
    "without_segments",
]
