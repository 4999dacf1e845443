"""Offsets that have no message any more, and which message carries each: whoever acknowledges that takes them as well.

Key compaction and erasure leave them in files, where only a reader finds them. A consumer is delivered what lies around
them. Each hole goes with the message in front of it in what was delivered, or else with the one behind it: so a cursor
passes over it, and no two transactions claim it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from txnlog.common import ranges
from txnlog.common.ranges import EMPTY, Range, Ranges
from txnlog.fold.acknowledgements import cursor_of
from txnlog.fold.leases import available, leased, live
from txnlog.fold.state import Draft
from txnlog.format.actions import Acknowledgement, AnyAction, Commit, Header, PartitionRanges
from txnlog.log.commands import Answer, Simple

if TYPE_CHECKING:
    from txnlog.client.connection import Connection


class Hole(NamedTuple):
    """Offsets from ``start`` to ``end`` without a message, which go with the message at ``carrier``."""

    start: int
    end: int
    carrier: int


Holes = Mapping[int, tuple[Hole, ...]]
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
    there = offsets_in(table)
    left = {p: ranges.subtract(found, there.get(p, EMPTY)) for p, found in wanted.items()}
    return {p: found for p, found in left.items() if found}


def carried(wanted: Mapping[int, Ranges], holes: Mapping[int, Ranges]) -> tuple[dict[int, Ranges], Holes]:
    """Of offsets that were read those that are delivered, and their holes, each with its message.

    A range of which nothing is left is not delivered: no message would ever acknowledge it.
    """
    if not holes:
        return dict(wanted), {}
    delivered: dict[int, Ranges] = {}
    found: dict[int, tuple[Hole, ...]] = {}
    for partition, several in wanted.items():
        own: list[Hole] = []
        left: list[Range] = []
        for start, end in several:
            inside = ranges.intersect(holes.get(partition, EMPTY), ((start, end),))
            if inside == ((start, end),):
                continue
            left.append((start, end))
            for first, behind in inside:
                if first > start:
                    own.append(Hole(first, behind, first - 1))
                else:
                    own.append(Hole(first, behind, behind))
        if left:
            delivered[partition] = tuple(left)
        if own:
            found[partition] = tuple(own)
    return delivered, found


def with_holes(offsets: Mapping[int, Ranges], holes: Holes) -> dict[int, Ranges]:
    """The offsets of some messages, and the holes that they carry."""
    found = dict(offsets)
    for partition in found.keys() & holes.keys():
        own = [hole for hole in holes[partition] if ranges.contains(found[partition], hole.carrier)]
        if own:
            found[partition] = ranges.union(found[partition], _of(own))
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


def _of(holes: list[Hole]) -> Ranges:
    return ranges.normalize((hole.start, hole.end) for hole in holes)


__all__ = ["Hole", "Holes", "acknowledge_holes", "carried", "holes_in", "offsets_in", "with_holes"]
