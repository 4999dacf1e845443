"""How far a subscription is behind in one partition, and what became of its messages there."""

from __future__ import annotations

from txnlog.common import ranges
from txnlog.fold import leases
from txnlog.fold.state import Cursor, State, TopicRecord
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


def redelivered_of(cursor: Cursor) -> int:
    """How many messages came back at least once and are not acknowledged."""
    return sum(item.end - item.start for item in cursor.redeliveries)


def offsets_of(state: State, topic: TopicRecord) -> list[range]:
    """By partition the offsets that can be read."""
    return [range(state.start_of(topic.id, p), state.end_of(topic.id, p)) for p in range(topic.partitions)]


def lag_of(
    topic: int, partition: int, cursor: Cursor, there: range, at_ms: int, summary: SegmentSummary
) -> PartitionLag:
    """The lag at a time of the log; ``there`` are the offsets that can be read in the same state.

    A cursor may lie below them: what was deleted nobody acknowledges any more.
    """
    low = max(there.start, cursor.position)
    left = ranges.subtract(((low, there.stop),), cursor.acknowledged) if low < there.stop else ()
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


__all__ = ["lag_of", "leased_of", "offsets_of", "pending_of", "redelivered_of"]
