"""How far a subscription is behind in one partition, and what became of its messages there."""

from __future__ import annotations

from txnlog.common import ranges
from txnlog.fold import leases
from txnlog.fold.state import Cursor
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


def lag_of(topic: int, partition: int, cursor: Cursor, end: int, at_ms: int, summary: SegmentSummary) -> PartitionLag:
    """The lag at a time of the log; ``end`` is the offset behind the partition's last message in the same state."""
    behind = end - cursor.position - ranges.size(cursor.acknowledged)
    since_ms = summary.visible_since_ms(topic, partition, cursor.position) if behind else None
    behind_ms = None if since_ms is None else max(0, at_ms - since_ms)
    return PartitionLag(
        partition, cursor.position, end, behind, behind_ms, pending_of(cursor), leased_of(cursor, at_ms)
    )


__all__ = ["lag_of", "leased_of", "pending_of", "redelivered_of"]
