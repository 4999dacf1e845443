"""Which blocks may be closed and which files may be deleted (PROTOCOL.md, "Collection"). Pure.

A file that no entry names may be one that a writer is about to name, however old it is: writers pause. So the block of
its number is closed in the log first; whatever comes later with such a number is refused.
"""

from __future__ import annotations

import enum
from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from txnlog.fold.number_blocks import TOUCH_MS
from txnlog.fold.state import Block, Draft, SegmentRecord, State, TopicRecord


class Garbage(enum.Enum):
    """Why a file may be deleted."""

    UNNAMED = "no entry names it, and none can"
    ABORTED = "its transaction was aborted"
    REPLACED = "another segment has its rows"
    DROPPED = "its topic was dropped"


def silent_blocks(draft: Draft, now_ms: int, grace_ms: int) -> list[int]:
    """First numbers of the open blocks that were not touched for the grace and hold no OPEN or PREPARED transaction."""
    busy = sorted(number for number, _ in draft.transactions.items())
    found: list[int] = []
    for first in draft.head.open_blocks:
        block = draft.blocks.get(first)
        assert block is not None, "the head names the open blocks"
        if now_ms >= _closable_from_ms(block, grace_ms) and not _is_busy(busy, block):
            found.append(first)
    return found


def _closable_from_ms(block: Block, grace_ms: int) -> int:
    # The time is kept to the minute: it may have been touched that much later.
    return block.touched_ms + grace_ms + TOUCH_MS


def _is_busy(busy: Sequence[int], block: Block) -> bool:
    """Whether a block has a transaction of these, which are in order."""
    return bisect_right(busy, block.first - 1) != bisect_right(busy, block.first + block.count - 1)


@dataclass(frozen=True, slots=True)
class WaitingNumbers:
    """The numbers that only the grace keeps open: no transaction of their writers is open in the log.

    Attributes:
        blocks: first number, number behind the last one, and the time of the log at which the block may be closed.
    """

    blocks: tuple[tuple[int, int, int], ...] = ()

    @classmethod
    def of(cls, state: State, grace_ms: int) -> WaitingNumbers:
        """Those of a state."""
        busy = sorted(state.transactions)
        return cls(
            tuple(
                (block.first, block.first + block.count, _closable_from_ms(block, grace_ms))
                for block in sorted(state.blocks.values(), key=lambda item: item.first)
                if not _is_busy(busy, block)
            )
        )

    def until_ms(self, number: int) -> int | None:
        """When a number can be closed, if its writer stays silent; None where something else keeps it open."""
        index = bisect_right(self.blocks, number, key=lambda item: item[0]) - 1
        if index < 0 or number >= self.blocks[index][1]:
            return None
        return self.blocks[index][2]


@dataclass(frozen=True, slots=True)
class ClosedNumbers:
    """The numbers that nobody can bring into the log any more, as of one version of it.

    What the log names must be looked up at that version or later: a number is named before its block is closed, or
    never.
    """

    next_number: int
    open_blocks: tuple[tuple[int, int], ...]

    @classmethod
    def of(cls, state: State, closing: Iterable[int] = ()) -> ClosedNumbers:
        """The closed numbers of a state; ``closing`` are blocks that count as closed (a dry run)."""
        gone = frozenset(closing)
        blocks = sorted((block.first, block.first + block.count) for block in state.blocks.values())
        return cls(state.head.next_number, tuple(item for item in blocks if item[0] not in gone))

    def __contains__(self, number: int) -> bool:
        if not 0 <= number < self.next_number:
            return False
        index = bisect_right(self.open_blocks, (number, self.next_number)) - 1
        return index < 0 or number >= self.open_blocks[index][1]


def unneeded_from(record: SegmentRecord, removals: Mapping[int, int], dropped: int | None) -> int | None:
    """From which version on no committed reader needs the file; None where one does, or may yet.

    Args:
        record: a segment.
        removals: of replaced segments the versions that replaced them.
        dropped: the version that dropped its topic; None where the topic is there.
    """
    if record.state == "aborted":
        return record.ended_version
    ends = (removals.get(record.number), dropped) if record.state == "visible" else ()
    return min((version for version in ends if version is not None), default=None)


def is_needed(record: SegmentRecord, removals: Mapping[int, int], dropped: int | None, oldest_readable: int) -> bool:
    """Whether a version that can be read, or one to come, needs the file: exactly those no vacuum may have deleted.

    ``oldest_readable`` is the oldest version that can be read; the others are those of ``unneeded_from``.
    """
    until = unneeded_from(record, removals, dropped)
    return until is None or until > oldest_readable


def oldest_needed(
    topic: TopicRecord, records: Iterable[SegmentRecord], removals: Mapping[int, int], horizon: int
) -> int:
    """How far the oldest readable version must go up, so that what ended of a topic up to ``horizon`` may be deleted.

    A dropped topic ends as a whole: it may have a published table even where it has no segment.
    """
    ends = [topic.dropped_version, *(unneeded_from(record, removals, topic.dropped_version) for record in records)]
    return max((version for version in ends if version is not None and version <= horizon), default=0)


def no_longer_shown(
    topic: TopicRecord, records: Iterable[SegmentRecord], removals: Mapping[int, int], oldest: int, target: int
) -> list[SegmentRecord]:
    """The segments of a topic that a version from ``oldest`` on shows, and none from ``target`` on."""
    ends = ((record, unneeded_from(record, removals, topic.dropped_version)) for record in records)
    return [r for r, end in ends if r.state == "visible" and end is not None and oldest < end <= target]


def is_over(topic: TopicRecord, bound: int) -> bool:
    """Whether a topic was dropped at or below ``bound``; with the oldest readable version: no version shows it."""
    return topic.dropped_version is not None and topic.dropped_version <= bound


def reason_of(
    topic: TopicRecord,
    record: SegmentRecord | None,
    file: str,
    removals: Mapping[int, int],
    bound: int,
    *,
    closed: bool,
) -> Garbage | None:
    """Why a file may be deleted; None where it must stay.

    Args:
        topic: the topic in whose folder it lies.
        record: what the log says of its number; None where it says nothing.
        file: the file's name.
        removals: of replaced segments the versions that replaced them.
        bound: the version up to which what ended may go: not above the oldest readable one.
        closed: whether the number is one of the ``ClosedNumbers``.
    """
    if record is None or record.file != file:
        return Garbage.UNNAMED if closed else None
    unneeded = unneeded_from(record, removals, topic.dropped_version)
    if unneeded is None or unneeded > bound:
        return None
    if record.state == "aborted":
        return Garbage.ABORTED
    return Garbage.REPLACED if unneeded == removals.get(record.number) else Garbage.DROPPED


def may_be_gone(record: SegmentRecord, oldest_readable: int) -> bool:
    """Whether an aborted segment's file may have been deleted: ``read_uncommitted`` shows it no more."""
    return record.state == "aborted" and record.ended_version is not None and record.ended_version <= oldest_readable


__all__ = [
    "ClosedNumbers",
    "Garbage",
    "WaitingNumbers",
    "is_needed",
    "is_over",
    "may_be_gone",
    "no_longer_shown",
    "oldest_needed",
    "reason_of",
    "silent_blocks",
    "unneeded_from",
]
