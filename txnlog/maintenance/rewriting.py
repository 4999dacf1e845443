"""Taking rows out of segments: the offsets stay, declared as holes, and the other rows keep theirs.

Key compaction and erasure say which rows go. Segments that lose some are written again, several in one entry, in the
order of their offsets; the others stay as they are.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from txnlog.common.limits import MERGE_TARGET_BYTES
from txnlog.data.segment_order import in_log_order
from txnlog.fold.state import SegmentRecord, TopicRecord
from txnlog.fold.visibility import is_visible
from txnlog.maintenance.merge_plan import MOST_REPLACED, MOST_WRITTEN, Merge, Part, outputs_of, parts_of
from txnlog.maintenance.merging import Merger, Rows

if TYPE_CHECKING:
    from txnlog.client.connection import Connection

Mask = npt.NDArray[np.bool_]


class Going:
    """Which rows go, as it was found when they were looked at: a bit for each, so that nobody decides it again.

    Attributes:
        counts: by number of a segment how many; those that lose none are left out.
    """

    def __init__(self) -> None:
        self.counts: dict[int, int] = {}
        self._bits: dict[Part, npt.NDArray[np.uint8]] = {}

    def note(self, part: Part, going: Mask) -> None:
        """Note which rows of a part of a segment go."""
        count = int(np.count_nonzero(going))
        if count:
            self.counts[part.segment] = self.counts.get(part.segment, 0) + count
            self._bits[part] = np.packbits(going)

    def of(self, rows: Rows) -> Mask:
        """Which of the rows of a part go."""
        bits = self._bits.get(rows.part)
        count = len(rows.offsets)
        return np.zeros(count, np.bool_) if bits is None else np.unpackbits(bits, count=count).view(np.bool_)

    @property
    def total(self) -> int:
        """How many go."""
        return sum(self.counts.values())


@dataclass(slots=True)
class Rewritten:
    """What was done so far.

    Attributes:
        version: of the last entry.
        removed_messages: rows that are gone.
        segments: files that were written again, and ``written`` those that came in for them.
        written_bytes: of the latter.
        entries: how many.
    """

    version: int | None = None
    removed_messages: int = 0
    segments: int = 0
    written: int = 0
    written_bytes: int = 0
    entries: int = 0


def rewrite(
    merger: Merger,
    losing: Mapping[int, int],
    ordered: Sequence[SegmentRecord],
    starts: Mapping[int, int],
    known: int,
    goes: Callable[[Rows], Mask],
    done: Rewritten,
    needed: Iterable[int] = (),
) -> bool:
    """Write segments again without the rows that go. False where others were ahead: what was done stays done.

    Args:
        merger: of their topic.
        losing: by number of a segment how many rows it loses; others stay.
        ordered: the segments, so that the offsets of each partition ascend.
        starts: the earliest offsets.
        known: the version at which they were looked at.
        goes: which rows go.
        done: what was done so far, to which this is added.
        needed: segments because of which rows of others go: where one is gone, it was decided by what is no more.
    """
    chosen = [record for record in ordered if record.number in losing]
    left = set(needed)
    for group in _groups(chosen):
        parts = [part for record in group for part in parts_of(record, starts)]
        outputs = tuple(replace(output, has_holes=True) for output in outputs_of(parts))
        left.difference_update(record.number for record in group)  # whose rows this very entry brings again
        merged = merger.merge(Merge(tuple(group), outputs), known, lambda rows: ~goes(rows), tuple(sorted(left)))
        if merged is None:
            return False
        done.version = merged.version
        done.entries += 1
        done.segments += len(group)
        done.written += len(merged.segments)
        done.removed_messages += sum(losing[record.number] for record in group)
        done.written_bytes += sum(segment.size_bytes for segment in merged.segments)
    return True


def _groups(records: Iterable[SegmentRecord]) -> list[list[SegmentRecord]]:
    """The segments that one entry writes again: about as much as a big file has."""
    found: list[list[SegmentRecord]] = []
    size = slices = 0
    for record in records:
        size += record.size_bytes
        slices += len(record.slices)
        if not found or size > MERGE_TARGET_BYTES or slices > MOST_WRITTEN or len(found[-1]) >= MOST_REPLACED:
            found.append([])
            size, slices = record.size_bytes, len(record.slices)
        found[-1].append(record)
    return found


def segments_at(
    connection: Connection, topic: TopicRecord, known: int
) -> tuple[list[SegmentRecord], list[tuple[SegmentRecord, int | None]]]:
    """The segments that a version shows, as in the log, and all others, each with the version that replaced it."""
    records, removals = connection.follower.segments(topic.id)
    shown: list[SegmentRecord] = []
    others: list[tuple[SegmentRecord, int | None]] = []
    for record in records:
        if is_visible(record, known, removals):
            shown.append(record)
        else:
            others.append((record, removals.get(record.number)))
    return in_log_order(shown), others


__all__ = ["Going", "Mask", "Rewritten", "rewrite", "segments_at"]
