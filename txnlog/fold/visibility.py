"""The visibility predicate: one definition, from which every compiled form is made (PROTOCOL.md, "Visibility").

Over the log's records it is :func:`is_visible`; over files it is a set of segment numbers, :class:`Visibility`, which
compiles to a pyarrow expression here and to a Spark column in ``spark_ext.read.visibility_column``. A property test
holds the three together.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from txnlog.common import ranges
from txnlog.fold.state import RowsState, SegmentRecord
from txnlog.format.keys import SEGMENT_COLUMN


def state_at(record: SegmentRecord, version: int) -> RowsState | None:
    """How a segment's rows stood at a version of the log, a PREPARED transaction's as OPEN; None before they came."""
    if record.logged_version > version:
        return None
    if record.ended_version is None or record.ended_version > version:
        return "OPEN"
    return "COMMITTED" if record.state == "visible" else "ABORTED"


def is_visible(record: SegmentRecord, version: int, removals: Mapping[int, int]) -> bool:
    """Whether read_committed at a version shows the segment: committed at or below it, not yet replaced there."""
    if state_at(record, version) != "COMMITTED":
        return False
    removed = removals.get(record.number)
    return removed is None or removed > version


@dataclass(frozen=True, slots=True)
class Visibility:
    """A set of segment numbers, as normal ranges. Numbers that the log does not name are never in it."""

    numbers: ranges.Ranges

    @classmethod
    def of(cls, numbers: Iterable[int]) -> Visibility:
        """The set of these numbers."""
        return cls(ranges.from_values(numbers))

    def __contains__(self, number: int) -> bool:
        return ranges.contains(self.numbers, number)

    def singles(self) -> tuple[int, ...]:
        """Numbers that stand alone: cheapest as a set."""
        return tuple(start for start, end in self.numbers if end - start == 1)

    def runs(self) -> tuple[tuple[int, int], ...]:
        """First and last number (inclusive) of every longer run: cheapest as comparisons."""
        return tuple((start, end - 1) for start, end in self.numbers if end - start > 1)

    def to_arrow(self, column: str = SEGMENT_COLUMN) -> pc.Expression:
        """The set as a pyarrow expression on the segment number."""
        field = pc.field(column)
        expression = field.isin(pa.array(self.singles(), pa.int64()))
        for first, last in self.runs():
            expression |= (field >= first) & (field <= last)
        return expression


__all__ = ["Visibility", "is_visible", "state_at"]
