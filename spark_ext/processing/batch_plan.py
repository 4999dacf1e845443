"""Planning batches of ``spark_ext.process``: the offsets that one reads, and the acknowledgements of its commit."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import msgspec

from spark_ext.processing.ownership import owned_cursors
from spark_ext.streaming.batch_limits import limited
from txnlog.common import ranges
from txnlog.fold.leases import available
from txnlog.format.actions import Acknowledgement, PartitionRanges

if TYPE_CHECKING:
    from spark_ext.processing.ownership import Ownership
    from spark_ext.read.scan import Scan
    from txnlog.data.scan_planner import OffsetRanges
    from txnlog.fold.state import Cursor


@dataclass(frozen=True, slots=True)
class End:
    """An end of reading: a version, and by topic and partition the offset after the last one visible there."""

    version: int
    offsets: Mapping[str, Mapping[int, int]]

    @classmethod
    def of(cls, scan: Scan) -> End:
        """The end of all that a scan shows."""
        return cls(scan.snapshot.version, {topic: scan.snapshot.end_offsets(topic) for topic in scan.topics})


@dataclass(frozen=True, slots=True)
class Batch:
    """One batch of a run.

    ``plan_again`` returns the same batch; ``plan_batch`` up to the same end may begin lower, where a claim ended.

    Attributes:
        end: where it ends.
        offsets: by topic and partition the range of offsets that it reads.
        acknowledgements: what its commit acknowledges: the same, and messages that were deleted unread before.
        rows: the number of messages that it reads.
        deleted: the number of messages that it acknowledges unread.
    """

    end: End
    offsets: Mapping[str, OffsetRanges]
    acknowledgements: tuple[Acknowledgement, ...]
    rows: int
    deleted: int

    def __str__(self) -> str:
        return offsets_text(self.offsets)


def offsets_text(offsets: Mapping[str, OffsetRanges]) -> str:
    """Offset ranges by topic and partition, as text."""
    return "; ".join(
        f"{topic} " + ", ".join(f"{partition}: {low} to {high}" for partition, (low, high) in found.items())
        for topic, found in offsets.items()
    )


def plan_batch(scan: Scan, owned: Iterable[Ownership], max_rows: int | None, until: End | None) -> Batch | None:
    """The next batch; None where there is nothing to read, up to ``until`` or the newest version.

    Of each partition it reads the first contiguous range of free offsets: after the cursor, and neither acknowledged
    individually nor pending in a prepared transaction. It ends between versions, so it contains whole transactions,
    except where others acknowledged a part of one.

    Raises:
        ConsumerFenced: another run, a consumer or a seek took the subscription over.
        SubscriptionNotFound: it was dropped.
    """
    cursors = owned_cursors(scan, owned)
    last = until or End.of(scan)
    runs: dict[str, dict[int, ranges.Range]] = {}
    begin: dict[str, dict[int, int]] = {}
    for topic, found in cursors.items():
        starts, ends = scan.snapshot.start_offsets(topic), last.offsets[topic]
        free = {p: available(cursor, starts[p], ends.get(p, 0), ()) for p, cursor in found[1].items()}
        runs[topic] = {p: left[0] for p, left in free.items() if left}
        begin[topic] = {p: left[0][0] if left else ends.get(p, 0) for p, left in free.items()}
    version, stops = last.version, last.offsets
    if max_rows is not None:
        version, stops = limited(scan, begin, max_rows, last.version)
    offsets: dict[str, dict[int, ranges.Range]] = {}
    for topic, of_topic in runs.items():
        cut = {p: (low, min(high, stops[topic][p])) for p, (low, high) in of_topic.items()}
        offsets[topic] = {p: (low, high) for p, (low, high) in sorted(cut.items()) if low < high}
    rows = sum(high - low for found in offsets.values() for low, high in found.values())
    if not rows:
        return None
    end = End(version, {topic: {p: stops[topic][p] for p in found} for topic, found in begin.items()})
    return _batch(scan, cursors, end, {topic: found for topic, found in offsets.items() if found})


def plan_again(scan: Scan, owned: Iterable[Ownership], again: Mapping[str, OffsetRanges], end: End) -> Batch | None:
    """The batch with the offsets of an earlier one; None where some of them are not free any more.

    Lower offsets that were pending at that time may be free by now: they are left to a later batch.

    Raises what ``plan_batch`` raises.
    """
    cursors = owned_cursors(scan, owned)
    for topic, found in again.items():
        if topic not in cursors:
            return None
        starts = scan.snapshot.start_offsets(topic)
        for p, (low, high) in found.items():
            cursor = cursors[topic][1].get(p)
            if cursor is None or low < starts[p] or available(cursor, low, high, ()) != ((low, high),):
                return None
    return _batch(scan, cursors, end, again)


def _batch(
    scan: Scan,
    cursors: Mapping[str, tuple[Ownership, Mapping[int, Cursor]]],
    end: End,
    offsets: Mapping[str, OffsetRanges],
) -> Batch:
    rows = sum(high - low for found in offsets.values() for low, high in found.values())
    starts = {topic: scan.snapshot.start_offsets(topic) for topic in offsets}
    wanted = [
        _acknowledgement(item, found, starts[topic], offsets[topic])
        for topic, (item, found) in cursors.items()
        if topic in offsets
    ]
    acknowledged = sum(ranges.size(item.ranges) for own in wanted for item in own.ranges)
    return Batch(end, offsets, tuple(wanted), rows, acknowledged - rows)


def _acknowledgement(
    item: Ownership, cursors: Mapping[int, Cursor], starts: Mapping[int, int], read: OffsetRanges
) -> Acknowledgement:
    """The acknowledgement of the messages that are read or were deleted, leaving those in between as they are."""
    wanted: dict[int, ranges.Ranges] = {}
    for p, (low, high) in read.items():
        left = available(cursors[p], 0, high, ())
        wanted[p] = ranges.subtract(left, ((starts[p], low),)) if starts[p] < low else left
    return Acknowledgement(item.subscription, item.epoch, tuple(PartitionRanges(p, of) for p, of in wanted.items()))


def count_left(scan: Scan, owned: Iterable[Ownership], until: End) -> tuple[int, int]:
    """The number of messages up to an end that are free, and of those pending in transactions."""
    left = pending = 0
    for topic, (_, cursors) in owned_cursors(scan, owned).items():
        starts, ends = scan.snapshot.start_offsets(topic), until.offsets[topic]
        for p, cursor in cursors.items():
            free = ranges.size(available(cursor, starts[p], ends.get(p, 0), ()))
            left += free
            pending += ranges.size(available(_unclaimed(cursor), starts[p], ends.get(p, 0), ())) - free
    return left, pending


def _unclaimed(cursor: Cursor) -> Cursor:
    """A copy of the cursor without the claims of transactions."""
    return msgspec.structs.replace(cursor, holds=(), cumulative=None)


__all__ = ["Batch", "End", "count_left", "offsets_text", "plan_again", "plan_batch"]
