"""What transactions take off subscriptions: pending acknowledgements, conflicts, what becomes of them at the end."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

import msgspec

from txnlog.common import ranges
from txnlog.common.format_limits import MAX_ACKNOWLEDGED_RANGES
from txnlog.common.ranges import Ranges
from txnlog.errors import (
    CorruptionError,
    Durable,
    InvalidInputError,
    LimitExceeded,
    OffsetOutOfRange,
    TransactionConflict,
)
from txnlog.fold.state import CumulativeHold, Cursor, Draft, Hold, Redelivery, SubscriptionRecord
from txnlog.fold.subscription_records import (
    check_offset,
    check_received,
    cursor_of,
    live_subscription,
    unknown_subscription,
)
from txnlog.format.actions import Acknowledgement, PartitionRanges
from txnlog.sentences import Argument, Words

_MOST_NAMED: Final = 3
"""Subscriptions that an error names."""

_DONE: Final = "abort the transaction and receive again: these messages are done, and would be refused for ever"


def acknowledged_of(cursor: Cursor) -> Ranges:
    """What was acknowledged of a partition."""
    return ranges.union(((0, cursor.position),) if cursor.position else (), cursor.acknowledged)


ALLOW_UNACKNOWLEDGED: Final = Words("pass ", Argument("allow_unacknowledged", True))


def unacknowledged_error(
    topic: str, which: str, needed: Mapping[str, int], behind: str, how_to_allow: str = ALLOW_UNACKNOWLEDGED
) -> InvalidInputError:
    """The error for messages that were to go, of which subscriptions have not acknowledged some.

    Args:
        topic: its name.
        which: of its messages, such as " before that position".
        needed: by subscription how many.
        behind: behind what the subscriptions would go on.
        how_to_allow: what to do for the messages to go all the same.
    """
    named = ", ".join(f"{name!r} {count:,}" for name, count in list(needed.items())[:_MOST_NAMED])
    more = ", and others" if len(needed) > _MOST_NAMED else ""
    return InvalidInputError(
        f"subscriptions have not acknowledged all messages of {topic!r}{which}: {named}{more}",
        advice=Words(
            "wait until they have, or ", Words(how_to_allow), f": then these subscriptions go on behind {behind}"
        ),
        durable=Durable.NOTHING,
    )


def not_cumulative(subscription: str) -> InvalidInputError:
    """The error for a cumulative acknowledgement of a Shared subscription of that name."""
    return InvalidInputError(
        f"the subscription {subscription!r} is shared: cumulative acknowledgements are for Exclusive and Failover",
        advice="acknowledge the messages themselves",
    )


def unacknowledged(cursor: Cursor, start: int, end: int) -> Ranges:
    """What was not acknowledged of the offsets of a partition that can be read, or of those below some ``end``.

    A cursor may lie below their ``start``: what was deleted nobody acknowledges any more.
    """
    low = max(start, cursor.position)
    return ranges.subtract(((low, end),), cursor.acknowledged) if low < end else ranges.EMPTY


def acknowledged_or_pending(cursor: Cursor) -> Ranges:
    """What was acknowledged of a partition, or is pending message by message."""
    taken = acknowledged_of(cursor)
    for item in cursor.holds:
        taken = ranges.union(taken, item.ranges)
    return taken


def leased_by(draft: Draft, subscription: int, partitions: int, consumer: str, now_ms: int) -> int:
    """How many messages of a Shared subscription a consumer has leased at a time of the log."""
    return sum(
        ranges.size(found.ranges)
        for partition in range(partitions)
        for found in cursor_of(draft, subscription, partition).leases
        if found.consumer == consumer and found.until_ms > now_ms
    )


def check_ranges(item: PartitionRanges, end: int) -> None:
    """Raise OffsetOutOfRange unless the ranges are normal, not empty and below the partition's end."""
    if not item.ranges or not ranges.is_normal(item.ranges) or item.ranges[0][0] < 0 or item.ranges[-1][1] > end:
        raise OffsetOutOfRange(
            f"partition {item.partition} ends at offset {end}: ranges outside it, empty or not in order",
            durable=Durable.NOTHING,
        )


def hold(draft: Draft, txn: int, wanted: Acknowledgement) -> tuple[tuple[int, int], ...]:
    """Make one transaction's acknowledgements pending. Returns the (subscription, partition) pairs that it holds now.

    Raises TransactionConflict where another (or the same) transaction was first: checked both ways between individual
    and cumulative ones, which Pulsar does not.
    """
    record = live_subscription(draft, wanted.subscription)
    check_received(record, wanted.epoch)
    touched: list[tuple[int, int]] = []
    ends = dict(wanted.cumulative)
    for partition, position in wanted.expected:
        cursor = cursor_of(draft, record.id, partition)
        if cursor.position != position:
            raise TransactionConflict(
                f"the cursor of {record.name!r} in partition {partition} is at {cursor.position}, not at {position}",
                advice="another run of this query went on: restart from the subscription's cursor",
            )
        if cursor.acknowledged and cursor.acknowledged[0][0] < ends.get(partition, 0):
            raise TransactionConflict(
                f"the offset {cursor.acknowledged[0][0]} of {record.name!r} in partition {partition} was acknowledged "
                "by itself",
                advice="another consumer took it meanwhile: restart from the subscription's cursor",
            )
    for item in wanted.ranges:
        cursor = cursor_of(draft, record.id, item.partition)
        check_ranges(item, draft.end_of(record.topic, item.partition))
        _check_individual(draft, record, txn, cursor, item)
        draft.cursors.put(
            (record.id, item.partition), msgspec.structs.replace(cursor, holds=(*cursor.holds, Hold(txn, item.ranges)))
        )
        touched.append((record.id, item.partition))
    for partition, end in wanted.cumulative:
        cursor = cursor_of(draft, record.id, partition)
        _check_cumulative(draft, record, txn, partition, end)
        draft.cursors.put((record.id, partition), msgspec.structs.replace(cursor, cumulative=CumulativeHold(txn, end)))
        touched.append((record.id, partition))
    return tuple(touched)


def not_yet_acknowledged(draft: Draft, item: Acknowledgement) -> Acknowledgement | None:
    """What is left of an acknowledgement, None where nothing is."""
    record = draft.subscriptions.get(item.subscription)
    if record is None:
        raise unknown_subscription(item.subscription)
    check_received(record, item.epoch)
    left: list[PartitionRanges] = []
    for wanted in item.ranges:
        cursor = cursor_of(draft, item.subscription, wanted.partition)
        rest = ranges.subtract(wanted.ranges, acknowledged_of(cursor))
        if rest:
            left.append(PartitionRanges(wanted.partition, rest))
    cumulative = tuple(
        (partition, end)
        for partition, end in item.cumulative
        if end > cursor_of(draft, item.subscription, partition).position
    )
    if not left and not cumulative:
        return None
    return Acknowledgement(item.subscription, item.epoch, tuple(left), cumulative)


def is_held(draft: Draft, txn: int, wanted: Acknowledgement) -> bool:
    """Whether the log shows this very acknowledgement pending in the transaction: an earlier flush brought it.

    Of one that takes nothing, and is there for its epoch, the log shows nothing.
    """
    if not (wanted.ranges or wanted.cumulative):
        return False
    for item in wanted.ranges:
        cursor = draft.cursors.get((wanted.subscription, item.partition))
        if cursor is None or Hold(txn, item.ranges) not in cursor.holds:
            return False
    for partition, end in wanted.cumulative:
        cursor = draft.cursors.get((wanted.subscription, partition))
        if cursor is None or cursor.cumulative is None or cursor.cumulative.txn != txn or cursor.cumulative.end < end:
            return False
    return True


def not_held(draft: Draft, txn: int, wanted: Acknowledgement) -> list[Acknowledgement]:
    """What of an acknowledgement the log does not show pending in the transaction, partition by partition."""
    left: list[Acknowledgement] = []
    for item in wanted.ranges:
        cursor = draft.cursors.get((wanted.subscription, item.partition))
        mine = (
            ()
            if cursor is None
            else ranges.normalize(r for held in cursor.holds if held.txn == txn for r in held.ranges)
        )
        rest = ranges.subtract(item.ranges, mine)
        if rest:
            left.append(Acknowledgement(wanted.subscription, wanted.epoch, (PartitionRanges(item.partition, rest),)))
    for partition, end in wanted.cumulative:
        cursor = draft.cursors.get((wanted.subscription, partition))
        held = None if cursor is None else cursor.cumulative
        if held is None or held.txn != txn or held.end < end:
            left.append(Acknowledgement(wanted.subscription, wanted.epoch, (), ((partition, end),)))
    return left


def _check_individual(
    draft: Draft, record: SubscriptionRecord, txn: int, cursor: Cursor, item: PartitionRanges
) -> None:
    where = f"partition {item.partition} of the subscription {record.name!r}"
    if item.ranges[0][0] < cursor.position or ranges.overlaps(item.ranges, cursor.acknowledged):
        raise TransactionConflict(f"{where}: a message was acknowledged before", advice=_DONE)
    if cursor.cumulative is not None and item.ranges[0][0] < cursor.cumulative.end:
        raise _pending(draft, where, cursor.cumulative.txn, txn)
    for other in cursor.holds:
        if ranges.overlaps(item.ranges, other.ranges):
            raise _pending(draft, where, other.txn, txn)
    _check_bound(where, cursor, item.ranges)


def _check_bound(where: str, cursor: Cursor, more: Ranges) -> None:
    """Keep the ranges above a cursor countable, pending ones included. What fills a hole is always welcome."""
    count = len(cursor.acknowledged) + sum(len(other.ranges) for other in cursor.holds)
    if count + len(more) <= MAX_ACKNOWLEDGED_RANGES:
        return
    before = cursor.acknowledged
    for other in cursor.holds:
        before = ranges.union(before, other.ranges)
    after = ranges.union(before, more)
    if _above(cursor, after) > max(MAX_ACKNOWLEDGED_RANGES, _above(cursor, before)):
        raise LimitExceeded(
            f"{where} has {len(before):,} acknowledged ranges above its cursor; at most {MAX_ACKNOWLEDGED_RANGES:,}",
            advice="acknowledge the messages in between",
        )


def _above(cursor: Cursor, taken: Ranges) -> int:
    """How many ranges would remain above the cursor once all are acknowledged."""
    return len(taken) - (taken[:1] != () and taken[0][0] <= cursor.position)


def _check_cumulative(draft: Draft, record: SubscriptionRecord, txn: int, partition: int, end: int) -> None:
    cursor = cursor_of(draft, record.id, partition)
    where = f"partition {partition} of the subscription {record.name!r}"
    if record.type == "shared":
        raise not_cumulative(record.name)
    check_offset(draft, record.topic, partition, end)
    if end <= cursor.position:
        raise TransactionConflict(f"{where}: everything below {cursor.position} was acknowledged before", advice=_DONE)
    if cursor.cumulative is not None:
        if cursor.cumulative.txn != txn:
            raise TransactionConflict(
                f"{where}: the transaction {draft.txn_id(cursor.cumulative.txn)} acknowledges cumulatively"
            )
        if end <= cursor.cumulative.end:
            raise TransactionConflict(f"{where}: this transaction acknowledged up to {cursor.cumulative.end} already")
    for other in cursor.holds:
        if other.txn != txn and other.ranges[0][0] < end:
            raise TransactionConflict(
                f"{where}: a message below {end} is pending in the transaction {draft.txn_id(other.txn)}"
            )


def _pending(draft: Draft, where: str, holder: int, txn: int) -> TransactionConflict:
    if holder == txn:
        return TransactionConflict(
            f"{where}: a message is pending in this very transaction already",
            advice="abort the transaction and begin a new one, which acknowledges each message once",
        )
    return TransactionConflict(f"{where}: a message is pending in the transaction {draft.txn_id(holder)}")


def settle(draft: Draft, txn: int, held: Iterable[tuple[int, int]], *, committed: bool) -> None:
    """A transaction ends: what it holds becomes acknowledged, or available again."""
    for key in dict.fromkeys(held):
        cursor = draft.cursors.get(key)
        if cursor is None:
            continue  # the subscription was dropped meanwhile
        mine: Ranges = ranges.EMPTY
        for item in cursor.holds:
            if item.txn == txn:
                mine = ranges.union(mine, item.ranges)
        others = tuple(item for item in cursor.holds if item.txn != txn)
        cumulative = cursor.cumulative
        end = 0
        if cumulative is not None and cumulative.txn == txn:
            end, cumulative = cumulative.end, None
        cursor = msgspec.structs.replace(cursor, holds=others, cumulative=cumulative)
        if committed:
            cursor = _advance(cursor, mine, end)
        else:
            cursor = _redeliver(draft, key[0], cursor, mine)
        draft.cursors.put(key, cursor)


def _advance(cursor: Cursor, individually: Ranges, end: int) -> Cursor:
    position = max(cursor.position, end)
    acknowledged = ranges.union(cursor.acknowledged, individually)
    if acknowledged and acknowledged[0][0] <= position:
        acknowledged = ranges.subtract(acknowledged, ((0, position),)) if position else acknowledged
        if acknowledged and acknowledged[0][0] == position:
            position, acknowledged = acknowledged[0][1], acknowledged[1:]
    done: Ranges = ((0, position),) if position else ranges.EMPTY
    done = ranges.union(done, acknowledged)
    leases = tuple(
        msgspec.structs.replace(grant, ranges=left)
        for grant in cursor.leases
        if (left := ranges.subtract(grant.ranges, done))
    )
    redeliveries = tuple(
        Redelivery(start, stop, item.count)
        for item in cursor.redeliveries
        for start, stop in ranges.subtract(((item.start, item.end),), done)
    )
    return msgspec.structs.replace(
        cursor, position=position, acknowledged=acknowledged, leases=leases, redeliveries=redeliveries
    )


def _redeliver(draft: Draft, subscription: int, cursor: Cursor, mine: Ranges) -> Cursor:
    record = draft.subscriptions.get(subscription)
    if record is None:
        raise CorruptionError(f"the subscription {subscription} has a cursor but no record")
    if record.type != "shared" or not mine:
        return cursor
    leases = tuple(
        msgspec.structs.replace(grant, ranges=left)
        for grant in cursor.leases
        if (left := ranges.subtract(grant.ranges, mine))
    )
    return count_redelivery(msgspec.structs.replace(cursor, leases=leases), mine)


def count_redelivery(cursor: Cursor, again: Ranges) -> Cursor:
    """Add one to the count of every range that is neither acknowledged nor pending."""
    again = ranges.subtract(again, acknowledged_or_pending(cursor))
    result: list[Redelivery] = []
    for old in cursor.redeliveries:
        span: Ranges = ((old.start, old.end),)
        result.extend(Redelivery(start, end, old.count) for start, end in ranges.subtract(span, again))
        result.extend(Redelivery(start, end, old.count + 1) for start, end in ranges.intersect(span, again))
    known = ranges.normalize((old.start, old.end) for old in cursor.redeliveries)
    result.extend(Redelivery(start, end, 1) for start, end in ranges.subtract(again, known))
    return msgspec.structs.replace(cursor, redeliveries=tuple(sorted(result, key=lambda item: item.start)))


__all__ = [
    "ALLOW_UNACKNOWLEDGED",
    "acknowledged_of",
    "acknowledged_or_pending",
    "check_ranges",
    "count_redelivery",
    "hold",
    "is_held",
    "leased_by",
    "not_cumulative",
    "not_held",
    "not_yet_acknowledged",
    "settle",
    "unacknowledged",
    "unacknowledged_error",
]
