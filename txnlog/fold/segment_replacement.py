"""Applying the replacement of segments by merged ones: the same offsets, each with its row, or declared a hole."""

from __future__ import annotations

import msgspec

from txnlog.common import ranges
from txnlog.common.ranges import Range, Ranges
from txnlog.errors import InvalidInputError, InvalidTransactionState
from txnlog.fold import number_blocks
from txnlog.fold.sequences import pending_segments
from txnlog.fold.state import Draft, Outcome, SegmentRecord, SegmentSlice
from txnlog.fold.topics import live_topic
from txnlog.fold.transaction_ends import forget
from txnlog.fold.transactions import open_transaction
from txnlog.format.actions import Header, Replace


def replace_segments(draft: Draft, action: Replace, at: Header) -> None:
    """Visible segments give way to the pending ones of a transaction: the same rows at the same offsets.

    A segment with an ``extent`` stands for all of its offsets, also for those whose rows are gone.
    Each new segment has one slice; ``offsets`` names its first offset, in the order of the transaction's segments.
    """
    transaction = open_transaction(draft, action.txn)
    if transaction.held or transaction.app_id is not None:
        raise InvalidTransactionState(
            f"the transaction {draft.txn_id(action.txn)} does more than replace segments: it must be committed"
        )
    if len(transaction.segments) != len(action.offsets):
        raise InvalidInputError(f"{len(action.offsets)} offsets for {len(transaction.segments)} segments")
    live_topic(draft, action.topic)
    removed, cold = _remove(draft, action, at)
    added: dict[int, list[Range]] = {}
    for segment, offset in zip(pending_segments(draft, transaction), action.offsets, strict=True):
        if segment.topic != action.topic or not segment.compacted:
            raise InvalidInputError(f"segment {segment.number} cannot replace others")
        item = segment.slices[0]
        end = offset + segment.width_of(item)
        if end > draft.end_of(action.topic, item.partition):
            raise InvalidInputError(f"segment {segment.number} would lie behind the end of partition {item.partition}")
        added.setdefault(item.partition, []).append((offset, end))
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
    _check_same_offsets(draft, action.topic, removed, added, cold=cold)
    forget(draft, transaction)
    draft.outcomes.put(action.txn, Outcome(action.txn, "COMMITTED", at.version, at.timestamp_ms, offsets=()))


def _remove(draft: Draft, action: Replace, at: Header) -> tuple[dict[int, list[Range]], bool]:
    """Remove what is replaced. Returns its offsets by partition, and whether a checkpoint holds the rest of it."""
    removed: dict[int, list[Range]] = {}
    cold = False
    for number in action.removed:
        known = draft.segments.get(number)
        if draft.removals.get(number) is not None or not _may_be_visible(draft, number, known):
            raise InvalidTransactionState(f"segment {number} is not visible")
        draft.removals.put(number, at.version)
        if known is None:
            cold = True
            continue
        if known.topic != action.topic:
            raise InvalidInputError(f"segment {number} belongs to another topic")
        for item in known.slices:
            removed.setdefault(item.partition, []).append((item.start, known.end_of(item)))
    return removed, cold


def _may_be_visible(draft: Draft, number: int, known: SegmentRecord | None) -> bool:
    """Of a segment that the state has forgotten, only what its number shows: it was used, and not by a transaction."""
    if known is not None:
        return known.state == "visible"
    return number_blocks.is_spent(draft, number) and number not in draft.outcomes and number not in draft.transactions


def _check_same_offsets(
    draft: Draft, topic: int, removed: dict[int, list[Range]], added: dict[int, list[Range]], *, cold: bool
) -> None:
    """The new segments stand for every offset of the old ones once; those below the earliest may be left out."""
    for partition in {*removed, *added}:
        new = ranges.normalize(added.get(partition, ()))
        if ranges.size(new) != sum(end - start for start, end in added.get(partition, ())):
            raise InvalidInputError(f"the new segments hold an offset of partition {partition} twice")
        start = draft.start_of(topic, partition)
        gone: Ranges = ((0, start),) if start else ranges.EMPTY
        old = ranges.normalize(removed.get(partition, ()))
        if ranges.subtract(ranges.subtract(old, gone), new) or (ranges.subtract(new, old) and not cold):
            raise InvalidInputError(f"the new segments hold other offsets of partition {partition} than the old ones")


__all__ = ["replace_segments"]
