"""Applying the actions of subscriptions: creation, epochs, cursors and leases."""

from __future__ import annotations

import msgspec

from txnlog.common import ranges
from txnlog.common.format_limits import MAX_LEASED_MESSAGES, MAX_SUBSCRIPTIONS
from txnlog.common.names import parse_label, parse_subscription_name, parse_topic_name
from txnlog.errors import InvalidInputError, InvalidTransactionState, LimitExceeded, SubscriptionExists
from txnlog.fold.acknowledgements import check_ranges, count_redelivery, leased_by
from txnlog.fold.state import Cursor, Draft, LeaseRecord, SubscriptionRecord
from txnlog.fold.subscription_records import check_offset, cursor_of, forget_subscription, live_subscription
from txnlog.fold.topics import live_topic
from txnlog.fold.transaction_ends import end_aborted
from txnlog.format.actions import Consumer, DropSubscription, Header, Lease, Release, Seek, Subscription


def create(draft: Draft, action: Subscription, at: Header) -> None:
    """Create a subscription; its id and first epoch are the entry's version."""
    name = parse_subscription_name(action.name)
    topic = live_topic(draft, action.topic)
    if draft.subscription_names.get((topic.id, name)) is not None:
        raise SubscriptionExists(f"the topic {topic.name!r} has a subscription {name!r}")
    if at.version in draft.subscriptions.changed():  # also where it was dropped since
        raise InvalidInputError("one entry creates one subscription, whose id is the entry's version")
    if len(draft.subscription_names) >= MAX_SUBSCRIPTIONS:
        raise LimitExceeded(f"the namespace has {MAX_SUBSCRIPTIONS:,} subscriptions", advice="drop some")
    if len(action.start) != topic.partitions:
        raise InvalidInputError(f"{len(action.start)} start offsets for {topic.partitions} partitions")
    if action.lease_ms <= 0:
        raise InvalidInputError("lease_ms is a positive number of milliseconds")
    if action.dead_letter_topic is not None:
        parse_topic_name(action.dead_letter_topic)
    for partition, offset in enumerate(action.start):
        check_offset(draft, topic.id, partition, offset)
        draft.cursors.put((at.version, partition), Cursor(offset))
    draft.subscription_names.put((topic.id, name), at.version)
    draft.subscriptions.put(
        at.version,
        SubscriptionRecord(
            at.version,
            topic.id,
            name,
            action.type,
            at.version,
            action.lease_ms,
            action.takeover,
            action.max_redeliveries,
            action.dead_letter_topic,
        ),
    )


def drop(draft: Draft, action: DropSubscription, _at: Header) -> None:
    """Drop a subscription. Open transactions go on without what they acknowledged on it."""
    record = live_subscription(draft, action.subscription)
    forget_subscription(draft, record, _partitions(draft, record))


def _partitions(draft: Draft, record: SubscriptionRecord) -> int:
    return live_topic(draft, record.topic).partitions


def open_consumer(draft: Draft, action: Consumer, at: Header) -> None:
    """A consumer opens: on Exclusive and Failover it raises the epoch and so fences its predecessor."""
    record = live_subscription(draft, action.subscription)
    parse_label("consumer name", action.name)
    if action.stream is not None:
        parse_label("stream identity", action.stream)
    if record.type == "shared":
        draft.subscriptions.put(record.id, msgspec.structs.replace(record, consumer=action.name))
        return
    if record.epoch == at.version and (record.id != at.version or record.consumer is not None):
        raise InvalidInputError("one entry opens one consumer of a subscription: its epoch is the entry's version")
    _abort_holders(draft, record, at)
    draft.subscriptions.put(
        record.id, msgspec.structs.replace(record, epoch=at.version, consumer=action.name, stream=action.stream)
    )


def _abort_holders(draft: Draft, record: SubscriptionRecord, at: Header) -> None:
    """Abort the OPEN transactions with acknowledgements of the older epoch; PREPARED ones stay."""
    holders: set[int] = set()
    for partition in range(_partitions(draft, record)):
        cursor = cursor_of(draft, record.id, partition)
        holders.update(hold.txn for hold in cursor.holds)
        if cursor.cumulative is not None:
            holders.add(cursor.cumulative.txn)
    for number in sorted(holders):
        transaction = draft.transactions.get(number)
        assert transaction is not None, "only a transaction that has not ended claims messages"
        if transaction.state == "OPEN":
            end_aborted(draft, number, at, "fenced")


def seek(draft: Draft, action: Seek, at: Header) -> None:
    """Move cursors. Refused while the log shows pending acknowledgements; forgets what was acknowledged above."""
    record = live_subscription(draft, action.subscription)
    for partition, offset in action.positions:
        cursor = cursor_of(draft, record.id, partition)
        if cursor.holds or cursor.cumulative is not None:
            topic = draft.topics.get(record.topic)
            assert topic is not None, "topics are never forgotten"
            raise InvalidTransactionState(
                f"partition {partition} of {topic.name!r} has pending acknowledgements of the subscription "
                f"{record.name!r}",
                advice="end the transactions of these acknowledgements, then seek",
            )
        check_offset(draft, record.topic, partition, offset)
        draft.cursors.put((record.id, partition), Cursor(offset))
    draft.subscriptions.put(record.id, msgspec.structs.replace(record, epoch=at.version))


# --- leases of Shared subscriptions ---------------------------------------------------------------------------------


def _shared(draft: Draft, subscription: int) -> SubscriptionRecord:
    record = live_subscription(draft, subscription)
    if record.type != "shared":
        raise InvalidInputError(f"the subscription {record.name!r} is {record.type}: leases are for Shared ones")
    return record


def lease(draft: Draft, action: Lease, at: Header) -> None:
    """Grant ranges to a Shared consumer; a lease saves double work, and the acknowledgement decides."""
    record = _shared(draft, action.subscription)
    parse_label("consumer name", action.consumer)
    leased = leased_by(draft, record.id, _partitions(draft, record), action.consumer, at.timestamp_ms)
    for item in action.ranges:
        check_ranges(item, draft.end_of(record.topic, item.partition))
        leased += ranges.size(item.ranges)
        cursor = cursor_of(draft, record.id, item.partition)
        live = tuple(grant for grant in cursor.leases if grant.until_ms > at.timestamp_ms)
        grant = LeaseRecord(action.consumer, at.timestamp_ms + record.lease_ms, item.ranges)
        draft.cursors.put((record.id, item.partition), msgspec.structs.replace(cursor, leases=(*live, grant)))
    if leased > MAX_LEASED_MESSAGES:
        raise LimitExceeded(
            f"{leased:,} messages leased to one consumer",
            advice=f"acknowledge some first: a consumer can lease at most {MAX_LEASED_MESSAGES:,}",
        )


def release(draft: Draft, action: Release, _at: Header) -> None:
    """Return leased ranges, counting a redelivery where asked; what is pending or acknowledged is not affected."""
    record = _shared(draft, action.subscription)
    parse_label("consumer name", action.consumer)
    for item in action.ranges:
        check_ranges(item, draft.end_of(record.topic, item.partition))
        cursor = cursor_of(draft, record.id, item.partition)
        mine = tuple(
            msgspec.structs.replace(grant, ranges=left) if grant.consumer == action.consumer else grant
            for grant in cursor.leases
            if (left := ranges.subtract(grant.ranges, item.ranges)) or grant.consumer != action.consumer
        )
        cursor = msgspec.structs.replace(cursor, leases=mine)
        if action.redeliver:
            cursor = count_redelivery(cursor, item.ranges)
        draft.cursors.put((record.id, item.partition), cursor)


__all__ = ["create", "drop", "lease", "open_consumer", "release", "seek"]
