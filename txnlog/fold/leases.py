"""What may be delivered to a Shared consumer: grants, the expired leases that end with them, and dead letters.

Pure: looks at a draft, gives actions. A lease keeps others from doing the same work; who acknowledges first wins.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from txnlog.common import ranges
from txnlog.common.format_limits import MAX_ACKNOWLEDGED_RANGES, MAX_LABEL_CHARACTERS, MAX_LEASED_MESSAGES
from txnlog.common.limits import MOST_DEAD_LETTERS
from txnlog.common.ranges import EMPTY, Range, Ranges
from txnlog.fold.acknowledgements import acknowledged_or_pending, count_redelivery, leased_by
from txnlog.fold.state import Cursor, Draft, Redelivery, SubscriptionRecord
from txnlog.fold.subscription_records import check_epoch, cursor_of, live_subscription
from txnlog.format.actions import AnyAction, Lease, PartitionRanges, Release

_OPENING: Final = re.compile(r"/[0-9a-f]{8}\Z")


def label_of(name: str, unique: str) -> str:
    """The label of one opening of a consumer: who comes later under the same name has other leases."""
    ending = f"/{unique[:8]}"
    return name[: MAX_LABEL_CHARACTERS - len(ending)] + ending


def name_of(label: str) -> str:
    """The consumer's name in the label of a lease, as far as there was room for it."""
    return _OPENING.sub("", label) or label


@dataclass(frozen=True, slots=True)
class Wanted:
    """What a consumer asks for.

    Attributes:
        consumer: the label of its leases.
        prefetched: ranges that were granted to it and that it has not delivered: renewed without counting.
        first: the partition to begin with, so that each has its turn.
        before: by partition the offset where the consumer cannot go on: nothing is granted from there on.
        ahead: asked for before there is need: only where as many messages remain for others.
    """

    subscription: int
    epoch: int
    consumer: str
    most: int
    prefetched: Mapping[int, Ranges] = field(default_factory=dict)
    first: int = 0
    before: Mapping[int, int] = field(default_factory=dict)
    ahead: bool = False


@dataclass(frozen=True, slots=True)
class Grant:
    """What a consumer gets, by partition, and the actions that log it; ``dead`` was redelivered too often."""

    granted: dict[int, Ranges]
    dead: dict[int, tuple[Redelivery, ...]]
    actions: tuple[AnyAction, ...]


def in_turn(first: int, count: int) -> list[int]:
    """All partitions, beginning with another one at each turn: a busy one keeps no other from being delivered."""
    return [(first + step) % count for step in range(count)]


def available(cursor: Cursor, start: int, end: int, delivered: Ranges) -> Ranges:
    """What of a partition can be delivered: neither acknowledged, nor pending, nor delivered already."""
    low = max(cursor.position, start)
    if cursor.cumulative is not None:
        low = max(low, cursor.cumulative.end)
    if low >= end:
        return ()
    left: Ranges = ((low, end),)
    left = ranges.subtract(left, cursor.acknowledged)
    for hold in cursor.holds:
        left = ranges.subtract(left, hold.ranges)
    return ranges.subtract(left, delivered)


def leased(cursor: Cursor, consumer: str, *, after_ms: int = -1) -> Ranges:
    """What a consumer has leased: all that the log shows, or what is leased for longer than a time."""
    mine = (item for item in cursor.leases if item.consumer == consumer and item.until_ms > after_ms)
    return ranges.normalize(found for item in mine for found in item.ranges)


def live(cursor: Cursor, now_ms: int) -> Ranges:
    """What anybody has leased at a time of the log."""
    return ranges.normalize(found for grant in cursor.leases if grant.until_ms > now_ms for found in grant.ranges)


def grant(draft: Draft, wanted: Wanted, now_ms: int) -> Grant:
    """What may be delivered to a consumer at a time of the log.

    The state drops every expired lease of a partition that gets a new one, so all of those are released here, and their
    messages counted: also those that nobody is granted now.
    """
    record = live_subscription(draft, wanted.subscription)
    check_epoch(record, wanted.epoch)
    topic = draft.topics.get(record.topic)
    assert topic is not None, "topics are never forgotten"
    count = topic.partitions
    left = min(wanted.most, MAX_LEASED_MESSAGES - leased_by(draft, record.id, count, wanted.consumer, now_ms))
    granted: dict[int, Ranges] = {}
    dead: dict[int, tuple[Redelivery, ...]] = {}
    dead_left = MOST_DEAD_LETTERS
    spare = 0
    for partition in in_turn(wanted.first, count):
        cursor = cursor_of(draft, record.id, partition)
        free, found = _free(draft, record, wanted, partition, now_ms)
        if letters := _removable(cursor, found, dead_left, now_ms):
            dead[partition] = letters
            dead_left -= sum(item.end - item.start for item in letters)
        if partition in wanted.before:
            free = ranges.below(free, wanted.before[partition])
        chosen = _within(cursor, free, left, now_ms)
        if chosen:
            granted[partition] = chosen
            left -= ranges.size(chosen)
        spare += ranges.size(free) - ranges.size(chosen)
    if wanted.ahead and (spare < wanted.most or dead):
        granted = {}
    return Grant(granted, dead, _actions(draft, record, wanted, granted, now_ms))


def are_worn_out(draft: Draft, wanted: Wanted, dead: Mapping[int, tuple[Redelivery, ...]], now_ms: int) -> bool:
    """Whether messages are free, and redelivered too often, and exactly as often, at a later look as well."""
    record = live_subscription(draft, wanted.subscription)
    for partition, letters in dead.items():
        _, found = _free(draft, record, wanted, partition, now_ms)
        for item in letters:
            same = ranges.normalize((other.start, other.end) for other in found if other.count == item.count)
            if ranges.subtract(((item.start, item.end),), same):
                return False
    return True


def _free(
    draft: Draft, record: SubscriptionRecord, wanted: Wanted, partition: int, now_ms: int
) -> tuple[Ranges, tuple[Redelivery, ...]]:
    """What of a partition can be delivered, and what was redelivered too often for that."""
    cursor = cursor_of(draft, record.id, partition)
    start = draft.start_of(record.topic, partition)
    end = draft.end_of(record.topic, partition)
    own = ranges.intersect(wanted.prefetched.get(partition, EMPTY), leased(cursor, wanted.consumer))
    free = available(cursor, start, end, ranges.subtract(live(cursor, now_ms), own))
    return _worn_out(record, cursor, free, own, now_ms) if free else (free, ())


def _expired(cursor: Cursor, now_ms: int, consumer: str | None = None) -> Ranges:
    """What was leased, to a consumer or to anybody, until a time of the log or an earlier one."""
    return ranges.normalize(
        found
        for lease in cursor.leases
        if lease.until_ms <= now_ms and consumer in {None, lease.consumer}
        for found in lease.ranges
    )


def _worn_out(
    record: SubscriptionRecord, cursor: Cursor, free: Ranges, own: Ranges, now_ms: int
) -> tuple[Ranges, tuple[Redelivery, ...]]:
    """Split off what would be delivered more often than the subscription allows."""
    most = record.max_redeliveries
    if most is None or record.dead_letter_topic is None or not (cursor.redeliveries or cursor.leases):
        return free, ()
    counted = count_redelivery(cursor, ranges.subtract(_expired(cursor, now_ms), own)).redeliveries
    dead = tuple(
        Redelivery(start, end, item.count)
        for item in counted
        if item.count > most
        for start, end in ranges.intersect(((item.start, item.end),), free)
    )
    if dead:
        free = ranges.subtract(free, ranges.normalize((item.start, item.end) for item in dead))
    return free, dead


def _removable(cursor: Cursor, dead: tuple[Redelivery, ...], most: int, now_ms: int) -> tuple[Redelivery, ...]:
    """Of what is to be a dead letter the first that can be: one at the limit of ranges waits until holes fill."""
    if not dead:
        return ()
    chosen = _within(cursor, ranges.normalize((item.start, item.end) for item in dead), most, now_ms)
    return tuple(
        Redelivery(start, end, item.count)
        for item in dead
        for start, end in ranges.intersect(((item.start, item.end),), chosen)
    )


def _within(cursor: Cursor, free: Ranges, most: int, now_ms: int) -> Ranges:
    """The first of what is free. At the limit of ranges only what fills a hole, so that it can be acknowledged."""
    if most <= 0:
        return ()
    leases = sum(len(found.ranges) for found in cursor.leases if found.until_ms > now_ms)
    taken = len(cursor.acknowledged) + sum(len(hold.ranges) for hold in cursor.holds)
    room = MAX_ACKNOWLEDGED_RANGES - taken - leases
    edges = _edges(cursor) if room < len(free) else frozenset()
    chosen: list[Range] = []
    for start, end in free:
        size = min(most, end - start)
        if start in edges:
            chosen.append((start, start + size))
        elif room > 0:
            chosen.append((start, start + size))
            room -= 1
        elif end in edges:
            chosen.append((end - size, end))
        else:
            continue
        most -= size
        if not most:
            break
    return tuple(chosen)


def _edges(cursor: Cursor) -> frozenset[int]:
    """Where unavailable ranges begin and end: what touches one adds none."""
    return frozenset(edge for found in acknowledged_or_pending(cursor) for edge in found) | {cursor.position}


def _actions(
    draft: Draft, record: SubscriptionRecord, wanted: Wanted, granted: Mapping[int, Ranges], now_ms: int
) -> tuple[AnyAction, ...]:
    counted: dict[str, list[PartitionRanges]] = {}
    renewed: list[PartitionRanges] = []
    for partition in sorted(granted):
        cursor = cursor_of(draft, record.id, partition)
        own = ranges.intersect(wanted.prefetched.get(partition, EMPTY), leased(cursor, wanted.consumer))
        if own:
            renewed.append(PartitionRanges(partition, own))
        for consumer in dict.fromkeys(lease.consumer for lease in cursor.leases if lease.until_ms <= now_ms):
            over = _expired(cursor, now_ms, consumer)
            if consumer == wanted.consumer:
                over = ranges.subtract(over, own)
            if over:
                counted.setdefault(consumer, []).append(PartitionRanges(partition, over))
    actions: list[AnyAction] = [
        Release(record.id, consumer, tuple(found), redeliver=True) for consumer, found in counted.items()
    ]
    if renewed:
        actions.append(Release(record.id, wanted.consumer, tuple(renewed)))
    if granted:
        found = tuple(PartitionRanges(partition, granted[partition]) for partition in sorted(granted))
        actions.append(Lease(record.id, wanted.consumer, found))
    return tuple(actions)


def returned(
    draft: Draft, subscription: int, consumer: str, found: Mapping[int, Ranges], *, redeliver: bool
) -> list[AnyAction]:
    """The release of what is still leased to a consumer in these ranges: no acknowledged or pending messages."""
    record = live_subscription(draft, subscription)
    parts: list[PartitionRanges] = []
    for partition in sorted(found):
        cursor = cursor_of(draft, record.id, partition)
        end = draft.end_of(record.topic, partition)
        mine = ranges.intersect(found[partition], leased(cursor, consumer))
        mine = ranges.intersect(mine, available(cursor, 0, end, EMPTY))
        if mine:
            parts.append(PartitionRanges(partition, mine))
    return [Release(record.id, consumer, tuple(parts), redeliver)] if parts else []


__all__ = [
    "Grant",
    "Wanted",
    "are_worn_out",
    "available",
    "grant",
    "in_turn",
    "label_of",
    "leased",
    "live",
    "name_of",
    "returned",
]
