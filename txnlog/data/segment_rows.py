"""The plan of a scan for one segment, the columns of the segment's file, and the error for a damaged one.

Clients and Spark's executors share it, so it needs the standard library, NumPy and PyArrow only.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa

from txnlog.data.segment_columns import STORED_COLUMNS
from txnlog.errors import CorruptionError

if TYPE_CHECKING:
    from txnlog.fold.state import RowsState

METADATA_FIELDS: Final = (
    pa.field("_partition", pa.int32(), False),
    pa.field("_offset", pa.int64()),
    pa.field("_timestamp", pa.timestamp("us", "UTC")),
    pa.field("_txn_id", pa.binary(16), False),
    pa.field("_version", pa.int64()),
)
"""What ``include_metadata`` adds after the user's columns."""

STATE_FIELD: Final = pa.field("_txn_state", pa.string(), False)
"""What read_uncommitted adds after those."""


@dataclass(frozen=True, slots=True)
class PlannedSlice:
    """Rows ``[first_row, first_row + rows)`` of a file: one partition, offsets from ``offset`` on (None: pending).

    Of a file with holes: those rows that have one of the ``extent`` offsets from ``offset`` on. Only the file says
    which they are: ``rows`` is an estimate then, and ``first_row`` 0.
    """

    partition: int
    first_row: int
    rows: int
    offset: int | None
    extent: int | None = None

    @property
    def width(self) -> int:
        """How many offsets it stands for."""
        return self.rows if self.extent is None else self.extent


@dataclass(frozen=True, slots=True)
class PlannedSegment:
    """One file to read, with what the log knows of all its rows. Made by ``scan_planner``, sent to executors.

    ``txn`` is None where the file stores it (``_txn``); ``version`` and ``timestamp_ms`` are None where rows are not
    visible, or where the file stores them (``compacted``: a merged file whose rows are visible). ``file_rows`` is what
    the file must hold; ``slices`` what is wanted of it. ``stores_partition`` says whether the file has the column
    ``_partition``; ``partitions`` is what that column must hold: partition and rows of each of the file's slices, in
    their order. ``holes_in`` are the offsets, from the first one to behind the last one, of a file with holes, which
    has the column ``_offset``.
    """

    number: int
    key: str
    file_rows: int
    size_bytes: int
    checksum: str
    slices: tuple[PlannedSlice, ...]
    state: RowsState
    txn: int | None
    version: int | None
    timestamp_ms: int | None
    compacted: bool
    stores_partition: bool
    partitions: tuple[tuple[int, int], ...] = ()
    holes_in: tuple[int, int] | None = None

    @property
    def stores_txn(self) -> bool:
        """Whether the file has the column ``_txn``."""
        return self.txn is None or self.compacted

    @property
    def rows(self) -> int:
        """How many rows are wanted; of a file with holes about how many."""
        return sum(item.rows for item in self.slices)

    @property
    def width(self) -> int:
        """How many offsets are wanted."""
        return sum(item.width for item in self.slices)

    @property
    def whole(self) -> bool:
        """Whether every row of the file is wanted."""
        if self.holes_in is not None:
            start, end = self.holes_in
            return self.width == end - start
        return self.rows == self.file_rows

    @property
    def reaches_end(self) -> bool:
        """Whether the last rows of the file are wanted."""
        last = self.slices[-1]
        if self.holes_in is not None:
            assert last.offset is not None, "only visible rows have holes between them"
            return last.offset + last.width == self.holes_in[1]
        return last.first_row + last.rows == self.file_rows


def stored_fields(segment: PlannedSegment) -> list[pa.Field]:
    """The metadata columns that the segment's file holds after the user's."""
    stored = {
        "_txn": segment.stores_txn,
        "_partition": segment.stores_partition,
        "_version": segment.compacted,
        "_timestamp": segment.compacted,
        "_offset": segment.holes_in is not None,
    }
    return [field for field in STORED_COLUMNS if stored[field.name]]


def file_schema(schema: pa.Schema, segment: PlannedSegment) -> pa.Schema:
    """The columns of the segment's file: the topic's, then those that it stores."""
    for field in stored_fields(segment):
        schema = schema.append(field)
    return schema


def check_places(segment: PlannedSegment, table: pa.Table) -> None:
    """Raise CorruptionError where any row of a decoded file has another partition or offset than the log says."""
    if segment.holes_in is not None:
        start, end = segment.holes_in
        offsets = table.column("_offset").to_numpy()
        if len(offsets) and (offsets[0] < start or offsets[-1] >= end or (np.diff(offsets) <= 0).any()):
            raise CorruptionError(f"the segment {segment.key} has rows at other offsets than the log recorded")
    if not segment.stores_partition:
        return
    said = np.repeat(*np.array(segment.partitions, np.int32).T)
    found = table.column("_partition").to_numpy()
    if len(found) != len(said) or (found != said).any():
        raise CorruptionError(f"the segment {segment.key} has its rows in other partitions than the log recorded")


def missing_text(key: str) -> str:
    """That a segment's object is not there, in words."""
    return f"the segment {key} is missing"


RESTORE: Final = "restore the object from a copy"


@contextlib.contextmanager
def naming_segment(topic: str, segment: PlannedSegment) -> Iterator[None]:
    """Context in which the error for a damaged segment names topic, partitions and offsets, and how to leave it out."""
    try:
        yield
    except CorruptionError as error:
        raise damage_in_scan(error, topic, segment) from None


def damage_in_scan(error: CorruptionError, topic: str, segment: PlannedSegment) -> CorruptionError:
    """The error for a damaged segment of a scan: the rows that the scan wanted of it, and how to leave it out."""
    restore = RESTORE if error.advice == CorruptionError._default_advice else error.advice
    advice = (
        f"{restore}, or leave it out of the scan with exclude_segments=[{segment.number}], which is the option "
        "excludeSegments of Spark's format"
    )
    rows = [(item.partition, item.offset, item.width) for item in segment.slices]
    return damaged_segment(error, topic, segment.number, rows, advice)


def damaged_segment(
    error: CorruptionError, topic: str, number: int, rows: Iterable[tuple[int, int | None, int]], advice: str
) -> CorruptionError:
    """The error for a damaged segment with what the log says of it.

    Args:
        error: what is wrong with its object.
        topic: the name of its topic.
        number: the segment's number.
        rows: partition, first offset (None: not visible) and count of the rows that cannot be read.
        advice: what to do.
    """
    damage = error.damage or error.message
    found = CorruptionError(
        f"{damage}; it is the segment {number} of the topic {topic!r}, with {offsets_text(rows)}",
        advice=advice,
        durable=error.durable,
    )
    found.segment, found.damage, found.topic = number, damage, topic
    return found


_MOST_SHOWN: Final = 4


def offsets_text(rows: Iterable[tuple[int, int | None, int]]) -> str:
    """Some rows in words, from their partition, first offset (None: not visible) and count."""
    parts: list[str] = []
    for partition, offset, count in rows:
        if offset is None:
            what = f"{count:,} rows that are not visible"
        else:
            what = f"the offset {offset}" if count == 1 else f"the offsets {offset} to {offset + count - 1}"
        parts.append(f"{what} of partition {partition}")
    more = len(parts) - _MOST_SHOWN
    return " and ".join([*parts[:_MOST_SHOWN], *([f"those of {more} more partitions"] if more > 0 else [])])


__all__ = [
    "METADATA_FIELDS",
    "RESTORE",
    "STATE_FIELD",
    "PlannedSegment",
    "PlannedSlice",
    "check_places",
    "damage_in_scan",
    "damaged_segment",
    "file_schema",
    "missing_text",
    "naming_segment",
    "offsets_text",
    "stored_fields",
]
