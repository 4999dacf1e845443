"""Checking the rows of a segment: that they decode, and agree with what the log says of each."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import pyarrow as pa

from txnlog.common import ranges
from txnlog.data import segment_file
from txnlog.data.segment_rows import PlannedSegment, check_places, file_schema
from txnlog.data.segment_statistics import contradiction
from txnlog.errors import CorruptionError
from txnlog.fold.state import SegmentRecord
from txnlog.maintenance.fsck.origins import Origin, Origins


def check_rows(
    data: bytes, planned: PlannedSegment, schema: pa.Schema, record: SegmentRecord, origins: Origins | None
) -> None:
    """Raise CorruptionError unless a file's rows are those that the log recorded.

    Args:
        data: the file, which is verified.
        planned: all of it, as a reader of the newest version reads it.
        schema: of its topic.
        record: what the log says of it.
        origins: which transactions brought which messages; None where that is not known of all.
    """
    wanted = file_schema(schema, planned)
    table = segment_file.decode_verified(data, schema=wanted, rows=planned.file_rows, key=planned.key)
    check_places(planned, table)
    for name, said in record.statistics.items():
        # Whether there is such a column is no question of damage (PROTOCOL.md, "statistics").
        what = contradiction(said, table.column(name)) if name in schema.names else ""
        if what:
            raise _differs(planned, f"in its column {name[:60]!a} {what}")
    if origins is not None and record.state == "visible":
        _check_origins(planned, table, record, origins)


def _check_origins(planned: PlannedSegment, table: pa.Table, record: SegmentRecord, origins: Origins) -> None:
    """What the file, or else the log, says of each row is what the entry says that made it visible."""
    parts: list[Origin] = []
    for item in record.slices:
        found = origins.of(record.topic, item.partition, item.start, record.width_of(item))
        if found is None:
            raise _differs(planned, f"no transaction brought all of its messages of partition {item.partition}")
        if record.extent is not None:
            there = table.column("_offset").to_numpy() - item.start
            found = Origin(*(column[there] for column in found))
        parts.append(found)
    txns, versions, times_ms = (np.concatenate(columns) for columns in zip(*parts, strict=True))
    if (txns != (table.column("_txn").to_numpy() if planned.stores_txn else record.txn)).any():
        raise _differs(planned, "its rows are of other transactions than the log says")
    if planned.compacted:
        stored = table.column("_version").to_numpy()
        times_us = table.column("_timestamp").cast(pa.int64()).to_numpy()
        right = np.array_equal(stored, versions) and np.array_equal(times_us, times_ms * 1000)
    else:
        right = bool((versions == record.ended_version).all() and (times_ms == record.timestamp_ms).all())
    if not right:
        raise _differs(planned, "its rows are of other versions or times than the log says")


def _differs(planned: PlannedSegment, what: str) -> CorruptionError:
    return CorruptionError(f"segment {planned.key!r} is not what the log recorded: {what}")


def check_offsets(records: Iterable[SegmentRecord], partition: int, start: int, end: int) -> str:
    """What is wrong with the visible segments of a partition that holds the offsets from ``start`` to ``end``; or "".

    Each of these offsets is in one segment. Those below the earliest one may be, too.
    """
    spans = [
        (item.offset, record.end_of(item))
        for record in records
        for item in record.slices
        if item.partition == partition and item.offset is not None
    ]
    covered = ranges.normalize(spans)
    if ranges.size(covered) != sum(last - first for first, last in spans):
        return "hold some offsets twice"
    missing = ranges.subtract(((start, end),), covered) if start < end else ranges.EMPTY
    if missing:
        return f"do not hold the offsets {missing[0][0]} to {missing[0][1] - 1}"
    return "hold offsets behind the end" if covered and covered[-1][1] > end else ""


__all__ = ["check_offsets", "check_rows"]
