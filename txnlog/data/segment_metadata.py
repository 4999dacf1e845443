"""The wanted rows of decoded segments, and the metadata columns that the log knows of them: of several files at once.

A column is made for all rows of a scan's step, since a file of few rows costs as many calls of NumPy and Arrow as one
of many. Clients and Spark's executors share it, so it needs the standard library, NumPy and PyArrow only.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from txnlog.common.ids import Coordinators
from txnlog.data.segment_rows import STATE_FIELD, PlannedSegment, PlannedSlice


class Found(NamedTuple):
    """Rows of a segment, with the columns that its file stores, and the slices that they are."""

    segment: PlannedSegment
    rows: pa.Table
    slices: Sequence[PlannedSlice]

    @property
    def total(self) -> int:
        """How many rows; a table without columns may have forgotten."""
        return sum([item.rows for item in self.slices])


Numbers = npt.NDArray[Any]


def wanted_rows(segment: PlannedSegment, table: pa.Table) -> Found:
    """The wanted rows of a decoded file, in its order."""
    if segment.holes_in is not None:
        return rows_with_holes(segment, table)
    if not segment.whole:
        parts = [table.slice(first, count) for first, count in _runs(segment.slices)]
        table = parts[0] if len(parts) == 1 else pa.concat_tables(parts)
    return Found(segment, table, segment.slices)


def rows_with_holes(segment: PlannedSegment, table: pa.Table) -> Found:
    """The wanted rows of a decoded file with holes, whose rows are in the order of their offsets."""
    (item,) = segment.slices
    assert item.offset is not None, "only visible rows have holes between them"
    offsets = table.column("_offset").to_numpy()
    first, end = np.searchsorted(offsets, [item.offset, item.offset + item.width]).tolist()
    return Found(segment, table.slice(first, end - first), (replace(item, first_row=first, rows=end - first),))


def _runs(slices: Sequence[PlannedSlice]) -> list[tuple[int, int]]:
    """First row and count of slices of a file, those that follow each other as one."""
    runs: list[tuple[int, int]] = []
    for item in slices:
        if runs and sum(runs[-1]) == item.first_row:
            runs[-1] = (runs[-1][0], runs[-1][1] + item.rows)
        else:
            runs.append((item.first_row, item.rows))
    return runs


def metadata_columns(names: Collection[str], coordinators: Coordinators, found: Sequence[Found]) -> dict[str, pa.Array]:
    """By name some metadata columns of all rows of some segments, one after the other."""
    slices = [item for each in found for item in each.slices]
    counts = _numbers([item.rows for item in slices])
    by_segment = counts if len(slices) == len(found) else _numbers([each.total for each in found])
    columns: dict[str, pa.Array] = {}
    for name in names:
        if name == "_partition":
            partitions = np.array([item.partition for item in slices], np.int32)
            columns[name] = pa.array(np.repeat(partitions, counts))
        elif name == "_offset":
            columns[name] = _offsets(found, slices, counts)
        elif name == "_timestamp":
            values = _of_segments(
                found,
                by_segment,
                lambda segment: None if segment.timestamp_ms is None else segment.timestamp_ms * 1000,
                lambda segment: segment.compacted,
                name,
            )
            columns[name] = values.view(pa.timestamp("us", "UTC"))
        elif name == "_txn_id":
            numbers = _of_segments(
                found, by_segment, lambda segment: segment.txn, lambda segment: segment.stores_txn, "_txn"
            )
            columns[name] = txn_ids(coordinators, numbers.to_numpy())
        elif name == "_version":
            columns[name] = _of_segments(
                found, by_segment, lambda segment: segment.version, lambda segment: segment.compacted, name
            )
        else:
            assert name == STATE_FIELD.name, f"{name} is no metadata column"
            columns[name] = _states(found, by_segment)
    return columns


def _numbers(values: list[int]) -> Numbers:
    return np.array(values, np.int64)


def _offsets(found: Sequence[Found], slices: Sequence[PlannedSlice], counts: Numbers) -> pa.Array:
    """Null where rows are not visible."""
    pending = [item.offset is None for item in slices]
    starts = _numbers([item.offset or 0 for item in slices])
    before = np.cumsum(counts) - counts
    values = np.arange(counts.sum(), dtype=np.int64) + np.repeat(starts - before, counts)
    if any(each.segment.holes_in is not None for each in found):
        first = 0
        for each in found:
            if each.segment.holes_in is not None:
                values[first : first + each.total] = each.rows.column("_offset").to_numpy()
            first += each.total
    return pa.array(values, mask=np.repeat(np.array(pending), counts) if any(pending) else None)


def _of_segments(
    found: Sequence[Found],
    by_segment: Numbers,
    value: Callable[[PlannedSegment], int | None],
    is_stored: Callable[[PlannedSegment], bool],
    stored: str,
) -> pa.Array:
    """What the log says of all rows of each segment, or its file of each row (the column ``stored``)."""
    said = [None if is_stored(each.segment) else value(each.segment) for each in found]
    unknown = [known is None and not is_stored(each.segment) for known, each in zip(said, found, strict=True)]
    values = np.repeat(_numbers([known or 0 for known in said]), by_segment)
    first = 0
    for each, rows in zip(found, by_segment.tolist(), strict=True):
        if is_stored(each.segment):
            column = each.rows.column(stored)
            column = column if column.type == pa.int64() else column.cast(pa.int64())
            values[first : first + rows] = column.to_numpy()
        first += rows
    return pa.array(values, mask=np.repeat(np.array(unknown), by_segment) if any(unknown) else None)


def _states(found: Sequence[Found], by_segment: Numbers) -> pa.Array:
    names = list(dict.fromkeys(each.segment.state for each in found))
    chosen = np.repeat(_numbers([names.index(each.segment.state) for each in found]), by_segment)
    return pa.array(names, pa.string()).take(pa.array(chosen))


def txn_ids(coordinators: Coordinators, numbers: Numbers) -> pa.Array:
    """The 16-byte TxnIDs of numbers of transactions."""
    words = np.empty((len(numbers), 2), ">u8")
    words[:, 1] = numbers
    words[:, 0] = coordinators.first << 48
    for first, coordinator in coordinators.spans[1:]:
        words[words[:, 1] >= first, 0] = coordinator << 48
    return pa.FixedSizeBinaryArray.from_buffers(pa.binary(16), len(numbers), [None, pa.py_buffer(words.tobytes())])


__all__ = ["Found", "metadata_columns", "rows_with_holes", "txn_ids", "wanted_rows"]
