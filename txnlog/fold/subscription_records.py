"""Subscriptions as the state has them: which one an id means, its cursors, its epoch. Pure."""

from __future__ import annotations

from txnlog.errors import ConsumerFenced, Durable, OffsetOutOfRange, SubscriptionNotFound
from txnlog.fold.state import Cursor, Draft, State, SubscriptionRecord
from txnlog.sentences import Call, Words


def unknown_subscription(number: int) -> SubscriptionNotFound:
    """The error for an id that the state does not hold: it keeps nothing of what was dropped."""
    error = SubscriptionNotFound(
        f"no subscription with the id {number}",
        advice=Words("it was dropped: open another consumer with ", Call("consumer", "...")),
    )
    error._number = number
    return error


def live_subscription(draft: Draft, subscription: int) -> SubscriptionRecord:
    """The subscription with an id, or SubscriptionNotFound."""
    record = draft.subscriptions.get(subscription)
    if record is None:
        raise unknown_subscription(subscription)
    return record


def forget_subscription(draft: Draft, record: SubscriptionRecord, partitions: int) -> None:
    """Drop a subscription and its cursors. Open transactions go on without what they acknowledged on it."""
    draft.subscriptions.remove(record.id)
    draft.subscription_names.remove((record.topic, record.name))
    for partition in range(partitions):
        draft.cursors.remove((record.id, partition))


def cursor_of(draft: Draft, subscription: int, partition: int) -> Cursor:
    """The cursor of one partition, or OffsetOutOfRange where the topic has no such partition."""
    cursor = draft.cursors.get((subscription, partition))
    if cursor is None:
        raise OffsetOutOfRange(f"the subscription's topic has no partition {partition}", durable=Durable.NOTHING)
    return cursor


def subscriptions_of(draft: Draft | State, topic: int) -> list[SubscriptionRecord]:
    """The subscriptions of a topic, by name."""
    return sorted((item for _, item in draft.subscriptions.items() if item.topic == topic), key=lambda item: item.name)


def check_offset(draft: Draft, topic: int, partition: int, offset: int) -> None:
    """Raise OffsetOutOfRange unless the offset is one of the partition, or its end."""
    end = draft.end_of(topic, partition)
    if not 0 <= offset <= end:
        record = draft.topics.get(topic)
        assert record is not None, "topics are never forgotten"
        raise OffsetOutOfRange(
            f"partition {partition} of the topic {record.name!r} ends at offset {end}; {offset} is outside",
            advice=f"use 0 to {end}",
            durable=Durable.NOTHING,
        )


def check_epoch(record: SubscriptionRecord, epoch: int) -> None:
    """Raise ConsumerFenced for whoever holds another epoch of the subscription than the newest."""
    if epoch != record.epoch:
        raise ConsumerFenced(
            f"this consumer lost its place: {_who_raised_it(record)}; the epoch of the subscription {record.name!r} is "
            f"{record.epoch}, this consumer's is {epoch}"
        )


def check_received(record: SubscriptionRecord, epoch: int) -> None:
    """Raise ConsumerFenced for messages that were received in another epoch of the subscription than the newest."""
    if record.epoch != epoch:
        raise ConsumerFenced(
            f"these messages of the subscription {record.name!r} were received in its epoch {epoch}, which is "
            f"{record.epoch} now: {_who_raised_it(record)}"
        )


def _who_raised_it(record: SubscriptionRecord) -> str:
    """A seek leaves the consumer as it is, so that the newest one need not be the one that raised the epoch."""
    newest = "" if record.consumer is None else f". Its newest consumer is {record.consumer!r}"
    return f"another consumer, a newer run of the query or a seek took it over{newest}"


__all__ = [
    "check_epoch",
    "check_offset",
    "check_received",
    "cursor_of",
    "forget_subscription",
    "live_subscription",
    "subscriptions_of",
    "unknown_subscription",
]
