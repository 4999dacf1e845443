"""How far a subscription is behind in one partition, and what became of its messages there."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from txnlog.common import ranges
from txnlog.fold import leases
from txnlog.fold.acknowledgements import unacknowledged
from txnlog.fold.state import Cursor, TopicRecord
from txnlog.log.segment_summary import SegmentSummary
from txnlog.results import PartitionLag


def pending_of(cursor: Cursor) -> int:
    """How many messages are acknowledged in open transactions."""
    if not cursor.holds and cursor.cumulative is None:
        return 0
    found = ranges.normalize(item for hold in cursor.holds for item in hold.ranges)
    if cursor.cumulative is not None:
        below = ranges.subtract(((cursor.position, cursor.cumulative.end),), cursor.acknowledged)
        found = ranges.union(found, below)
    return ranges.size(found)


def leased_of(cursor: Cursor, at_ms: int) -> int:
    """How many messages Shared consumers have at a time of the log."""
    return ranges.size(leases.live(cursor, at_ms)) if cursor.leases else 0


def redelivered_of(cursor: Cursor, start: int) -> int:
    """How many messages that can be read came back at least once and are not acknowledged."""
    return sum(max(0, item.end - max(item.start, start)) for item in cursor.redeliveries)


class Bounds(Protocol):
    """What has the earliest offsets and the ends of all partitions: a state, or what a look at one copied."""

    @property
    def starts(self) -> Mapping[tuple[int, int], int]:
        """By topic and partition the earliest offset, where messages were deleted."""

    @property
    def ends(self) -> Mapping[tuple[int, int], int]:
        """By topic and partition the offset behind the last message, where there is one."""


def readable_offsets(at: Bounds, topic: TopicRecord) -> list[range]:
    """By partition the offsets that can be read."""
    keys = [(topic.id, partition) for partition in range(topic.partitions)]
    return [range(at.starts.get(key, 0), at.ends.get(key, 0)) for key in keys]


def lag_of(
    topic: int, partition: int, cursor: Cursor, there: range, at_ms: int, summary: SegmentSummary
) -> PartitionLag:
    """The lag at a time of the log; ``there`` are the offsets that can be read in the same state."""
    left = unacknowledged(cursor, there.start, there.stop)
    since_ms = summary.visible_since_ms(topic, partition, left[0][0]) if left else None
    behind_ms = None if since_ms is None else max(0, at_ms - since_ms)
    return PartitionLag(
        partition,
        cursor.position,
        there.stop,
        ranges.size(left),
        behind_ms,
        pending_of(cursor),
        leased_of(cursor, at_ms),
    )


__all__ = ["Bounds", "lag_of", "leased_of", "pending_of", "readable_offsets", "redelivered_of"]
