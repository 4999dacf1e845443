"""Applying the replacement of segments by merged ones: the same rows at the same offsets."""

from __future__ import annotations

import msgspec

from txnlog import ranges
from txnlog.actions import Header, Replace
from txnlog.apply_topics import live_topic
from txnlog.apply_transactions import forget, open_transaction
from txnlog.errors import InvalidInputError, InvalidTransactionState
from txnlog.ranges import Range, Ranges
from txnlog.sequences import pending_segments
from txnlog.state import Draft, Outcome, SegmentSlice


def replace_segments(draft: Draft, action: Replace, at: Header) -> None:
    """Visible segments give way to the pending ones of a transaction: the same rows at the same offsets.

    Each new segment has one slice; ``offsets`` names its first offset, in the order of the transaction's segments.
    """
    transaction = open_transaction(draft, action.txn)
    if transaction.held or transaction.app_id is not None:
        raise InvalidTransactionState(
            f"the transaction {action.txn} does more than replace segments: it must be committed"
        )
    if len(transaction.segments) != len(action.offsets):
        raise InvalidInputError(f"{len(action.offsets)} offsets for {len(transaction.segments)} segments")
    live_topic(draft, action.topic)
    removed = _remove(draft, action, at)
    added: dict[int, list[Range]] = {}
    for segment, offset in zip(pending_segments(draft, transaction), action.offsets, strict=True):
        if segment.topic != action.topic or not segment.compacted:
            raise InvalidInputError(f"segment {segment.number} cannot replace others")
        item = segment.slices[0]
        if offset + item.rows > (draft.ends.get((action.topic, item.partition)) or 0):
            raise InvalidInputError(f"segment {segment.number} would lie behind the end of partition {item.partition}")
        added.setdefault(item.partition, []).append((offset, offset + item.rows))
        draft.segments.put(
            segment.number,
            msgspec.structs.replace(
                segment,
                slices=(SegmentSlice(item.partition, item.rows, offset),),
                state="visible",
                ended_version=at.version,
                timestamp_ms=at.timestamp_ms,
            ),
        )
    _check_same_offsets(draft, action.topic, removed, added)
    forget(draft, transaction)
    draft.outcomes.put(action.txn, Outcome(action.txn, "COMMITTED", at.version, at.timestamp_ms, "", "", ()))


def _remove(draft: Draft, action: Replace, at: Header) -> dict[int, list[Range]] | None:
    """Remove what is replaced. Returns its offsets by partition, or None where a checkpoint holds a part of it."""
    removed: dict[int, list[Range]] | None = {}
    for number in action.removed:
        known = draft.segments.get(number)
        if draft.removals.get(number) is not None or (known is not None and known.state != "visible"):
            raise InvalidTransactionState(f"segment {number} is not visible")
        draft.removals.put(number, at.version)
        if known is None:
            removed = None
            continue
        if known.topic != action.topic:
            raise InvalidInputError(f"segment {number} belongs to another topic")
        if removed is None:
            continue
        for item in known.slices:
            assert item.offset is not None, "a visible segment has offsets"
            removed.setdefault(item.partition, []).append((item.offset, item.offset + item.rows))
    return removed


def _check_same_offsets(
    draft: Draft, topic: int, removed: dict[int, list[Range]] | None, added: dict[int, list[Range]]
) -> None:
    """The new segments hold every offset of the old ones once; only what lies below the earliest may be left out."""
    for partition in {*(removed or ()), *added}:
        new = ranges.normalize(added.get(partition, ()))
        if ranges.size(new) != sum(end - start for start, end in added.get(partition, ())):
            raise InvalidInputError(f"the new segments hold an offset of partition {partition} twice")
        if removed is None:
            continue
        start = draft.starts.get((topic, partition)) or 0
        gone: Ranges = ((0, start),) if start else ranges.EMPTY
        old = ranges.normalize(removed.get(partition, ()))
        if ranges.subtract(new, old) or ranges.subtract(ranges.subtract(old, gone), new):
            raise InvalidInputError(f"the new segments hold other offsets of partition {partition} than the old ones")


__all__ = ["replace_segments"]
