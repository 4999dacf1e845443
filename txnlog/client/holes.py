"""Offsets that have no message any more, and which message carries each: whoever acknowledges that takes them as well.

Key compaction and erasure leave them in files, where only a reader finds them; of a truncation the log says it, since
no row is left. A consumer is delivered what lies around them. Each hole goes with the message in front of it in what
was delivered, or else with the one behind it: so a cursor passes over it, and no two transactions claim it.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from txnlog.common import ranges
from txnlog.common.ranges import EMPTY, Range, Ranges
from txnlog.fold.leases import available, leased, live
from txnlog.fold.state import Draft
from txnlog.fold.subscription_records import cursor_of
from txnlog.format.actions import Acknowledgement, AnyAction, Commit, Header, PartitionRanges
from txnlog.log.commands import Answer, Simple

if TYPE_CHECKING:
    from txnlog.client.connection import Connection


class Gaps(NamedTuple):
    """The holes of a partition among delivered offsets.

    Attributes:
        holes: offsets without a message. Each goes with the message in front of it.
        leading: starts of holes in front of which nothing was delivered: they go with the message behind them.
    """

    holes: Ranges
    leading: frozenset[int]

    def of(self, start: int, end: int) -> Range:
        """The offsets of messages that follow each other without a hole, and the holes that go with them."""
        place = bisect_left(self.holes, (end,))
        if place and self.holes[place - 1][1] == start and self.holes[place - 1][0] in self.leading:
            start = self.holes[place - 1][0]
        if place < len(self.holes) and self.holes[place][0] == end and end not in self.leading:
            end = self.holes[place][1]
        return start, end


Holes = Mapping[int, Gaps]
"""By partition."""


def offsets_in(table: pa.Table) -> dict[int, Ranges]:
    """The offsets of messages by partition, in whatever order they are."""
    if not len(table):
        return {}
    partitions, offsets = _numbers(table, "_partition"), _numbers(table, "_offset")
    order = np.lexsort((offsets, partitions))
    partitions, offsets = partitions[order], offsets[order]
    goes_on = (partitions[1:] == partitions[:-1]) & (offsets[1:] - offsets[:-1] <= 1)  # 0: chosen twice
    cuts = np.flatnonzero(~goes_on)
    first, last = np.append(0, cuts + 1), np.append(cuts, len(order) - 1)
    spans = list(zip(offsets[first].tolist(), (offsets[last] + 1).tolist(), strict=True))
    names, places = np.unique(partitions[first], return_index=True)
    return {
        partition: tuple(spans[start:end])
        for partition, start, end in zip(names.tolist(), places, [*places[1:], len(spans)], strict=True)
    }


def _numbers(table: pa.Table, name: str) -> npt.NDArray[np.int64]:
    return np.asarray(table.column(name)).astype(np.int64)


def holes_in(wanted: Mapping[int, Ranges], table: pa.Table) -> dict[int, Ranges]:
    """Of offsets that were read those without a message."""
    if sum(map(ranges.size, wanted.values())) == len(table):
        return {}
    offsets = _numbers(table, "_offset")
    found: dict[int, Ranges] = {}
    for partition, several in wanted.items():
        own = np.sort(offsets if len(wanted) == 1 else offsets[_numbers(table, "_partition") == partition])
        left: list[Range] = []
        for start, end in several:
            first, behind = np.searchsorted(own, (start, end))
            edges = np.concatenate(((start - 1,), own[first:behind], (end,)))
            before = np.flatnonzero(edges[1:] - edges[:-1] > 1)
            left += zip((edges[before] + 1).tolist(), edges[before + 1].tolist(), strict=True)
        if left:
            found[partition] = tuple(left)
    return found


def carried(wanted: Mapping[int, Ranges], holes: Mapping[int, Ranges]) -> tuple[dict[int, Ranges], Holes]:
    """Of offsets that were read those that are delivered, and their holes.

    A range of which nothing is left is not delivered: no message would ever acknowledge it.
    """
    if not holes:
        return dict(wanted), {}
    delivered: dict[int, Ranges] = {}
    found: dict[int, Gaps] = {}
    for partition, several in wanted.items():
        own = holes.get(partition, EMPTY)
        left = tuple(each for each in several if not ranges.covers(own, (each,)))
        if left:
            delivered[partition] = left
        if inside := ranges.intersect(own, left):
            starts = {start for start, _ in left}
            found[partition] = Gaps(inside, frozenset(starts.intersection(start for start, _ in inside)))
    return delivered, found


def with_holes(offsets: Mapping[int, Ranges], holes: Holes) -> dict[int, Ranges]:
    """The offsets of some messages, and the holes that they carry."""
    found = dict(offsets)
    for partition in found.keys() & holes.keys():
        found[partition] = ranges.normalize(holes[partition].of(*each) for each in found[partition])
    return found


def acknowledge_holes(
    connection: Connection, subscription: int, epoch: int, consumer: str, holes: Mapping[int, Ranges]
) -> None:
    """Acknowledge offsets that have no message, as far as nobody but a consumer has them."""
    (number,) = connection.appender.take_numbers()

    def decide(draft: Draft, at: Header) -> list[AnyAction] | Answer[None]:
        record = draft.subscriptions.get(subscription)
        if draft.outcomes.get(number) is not None or record is None or record.epoch != epoch:
            return Answer(None, settled=True)
        parts: list[PartitionRanges] = []
        for partition, found in sorted(holes.items()):
            cursor = cursor_of(draft, subscription, partition)
            others = ranges.subtract(live(cursor, at.timestamp_ms), leased(cursor, consumer))
            start, end = draft.start_of(record.topic, partition), draft.end_of(record.topic, partition)
            if free := ranges.intersect(available(cursor, start, end, others), found):
                parts.append(PartitionRanges(partition, free))
        if not parts:
            return Answer(None, settled=True)
        return [Commit(number, "", (), (Acknowledgement(subscription, epoch, tuple(parts)),))]

    connection.appender.call(Simple(decide, lambda _draft, _at: None, txn_ids=(number,)))


__all__ = ["Gaps", "Holes", "acknowledge_holes", "carried", "holes_in", "offsets_in", "with_holes"]
