"""Creating, describing and opening subscriptions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, cast

from txnlog import ranges
from txnlog.actions import Consumer as ConsumerAction
from txnlog.actions import DropSubscription, Header, Subscription, SubscriptionType, Takeover
from txnlog.commands import Answer, Simple
from txnlog.connection import Position
from txnlog.consumer import Consumer
from txnlog.errors import InvalidInputError, SubscriptionExists, SubscriptionNotFound, UnsupportedFeature
from txnlog.names import nearest, parse_label, parse_subscription_name
from txnlog.results import Listing, PartitionCursor, PartitionLag, SubscriptionInfo
from txnlog.state import Draft, SubscriptionRecord, TopicRecord

if TYPE_CHECKING:
    from txnlog.connection import Connection

TYPES = ("exclusive", "failover", "shared")
TAKEOVERS = ("any", "same_name", "after_lease")
DEFAULT_LEASE_MS = 30_000


def _type(text: str) -> SubscriptionType:
    if text not in TYPES:
        raise InvalidInputError(f"unknown subscription type {ascii(text)[:40]}", advice=nearest(str(text), TYPES))
    if text != "exclusive":
        raise UnsupportedFeature(
            f"this version opens exclusive subscriptions only, not {text} ones", advice='use type="exclusive"'
        )
    return cast("SubscriptionType", text)


def create(
    connection: Connection,
    topic: str,
    name: str,
    *,
    type: str = "exclusive",  # noqa: A002 - the name users know from Pulsar
    start: Position = "earliest",
    lease_ms: int = DEFAULT_LEASE_MS,
    takeover: str = "any",
    max_redeliveries: int | None = None,
    dead_letter_topic: str | None = None,
    if_not_exists: bool = False,
) -> SubscriptionRecord:
    """Create a subscription; see ``Namespace.create_subscription``."""
    parse_subscription_name(name)
    kind = _type(type)
    if takeover not in TAKEOVERS:
        raise InvalidInputError(f"unknown takeover rule {ascii(takeover)[:40]}", advice=nearest(takeover, TAKEOVERS))
    connection.follower.refresh()
    record = connection.topic_record(topic)
    offsets = connection.resolve_position(record, start)
    positions = tuple(offsets.get(partition, 0) for partition in range(record.partitions))
    action = Subscription(
        record.id, name, kind, positions, lease_ms, cast("Takeover", takeover), max_redeliveries, dead_letter_topic
    )

    def decide(draft: Draft, _at: Header) -> list[Subscription] | Answer[SubscriptionRecord]:
        known = draft.subscription_names.get((record.id, name))
        if known is not None and if_not_exists:
            existing = draft.subscriptions.get(known)
            assert existing is not None, "names and subscriptions are changed together"
            if existing.type != kind:
                raise SubscriptionExists(
                    f"the subscription {name!r} of {topic!r} is {existing.type}, not {kind}",
                    advice="leave out the type",
                )
            return Answer(existing)
        return [action]

    def result(draft: Draft, at: Header) -> SubscriptionRecord:
        made = draft.subscriptions.get(at.version)
        assert made is not None, "just created"
        return made

    return connection.appender.call(Simple(decide, result, "subscription"))


def find(connection: Connection, topic: str, name: str) -> tuple[TopicRecord, SubscriptionRecord]:
    """A topic and its subscription, or the error with the nearest name."""
    parse_subscription_name(name)
    record = connection.topic_record(topic)
    with connection.follower.lock:
        state = connection.follower.state
        number = state.subscription_names.get((record.id, name))
        if number is not None:
            return record, state.subscriptions[number]
        names = [item.name for item in state.subscriptions.values() if item.topic == record.id]
    raise SubscriptionNotFound(f"the topic {topic!r} has no subscription {name!r}", advice=nearest(name, names))


def drop(connection: Connection, topic: str, name: str) -> None:
    """Drop a subscription; open transactions go on without what they acknowledged on it."""
    connection.follower.refresh()
    _, record = find(connection, topic, name)
    connection.appender.call(
        Simple(lambda _draft, _at: [DropSubscription(record.id)], lambda _draft, _at: None, ("subscription", record.id))
    )


def describe(connection: Connection, topic: str, name: str) -> SubscriptionInfo:
    """A subscription with its cursors."""
    record, subscription = find(connection, topic, name)
    cursors: list[PartitionCursor] = []
    with connection.follower.lock:
        for partition in range(record.partitions):
            cursor = connection.follower.state.cursors[subscription.id, partition]
            pending = sum(ranges.size(hold.ranges) for hold in cursor.holds)
            if cursor.cumulative is not None:
                pending += max(0, cursor.cumulative.end - cursor.position)
            redelivered = sum(item.end - item.start for item in cursor.redeliveries)
            cursors.append(PartitionCursor(partition, cursor.position, cursor.acknowledged, pending, redelivered))
    return SubscriptionInfo(topic, name, subscription.type, subscription.epoch, subscription.consumer, tuple(cursors))


def names_of(connection: Connection, topic: str) -> tuple[str, ...]:
    """Names of a topic's subscriptions, sorted."""
    record = connection.topic_record(topic)
    with connection.follower.lock:
        found = [item.name for item in connection.follower.state.subscriptions.values() if item.topic == record.id]
    return tuple(sorted(found))


def lag(connection: Connection, topic: str, name: str) -> Listing:
    """By partition how far a subscription is behind."""
    record, subscription = find(connection, topic, name)
    segments, removals = connection.follower.segments(record.id)
    now_ms = connection.runtime.now_ms()
    rows: list[PartitionLag] = []
    with connection.follower.lock:
        state = connection.follower.state
        cursors = [state.cursors[subscription.id, partition] for partition in range(record.partitions)]
        ends = [state.ends.get((record.id, partition), 0) for partition in range(record.partitions)]
    for partition, (cursor, end) in enumerate(zip(cursors, ends, strict=True)):
        behind = end - cursor.position - ranges.size(cursor.acknowledged)
        oldest = [
            segment.timestamp_ms
            for segment in segments
            if segment.number not in removals and segment.timestamp_ms is not None
            for item in segment.slices
            if item.partition == partition and item.offset is not None and item.offset + item.rows > cursor.position
        ]
        behind_ms = max(0, now_ms - min(oldest)) if behind and oldest else None
        rows.append(PartitionLag(partition, cursor.position, end, behind, behind_ms))
    return Listing(rows)


def open_consumer(
    connection: Connection,
    topics: str | Sequence[str],
    subscription: str,
    *,
    type: str | None = None,  # noqa: A002 - the name users know from Pulsar
    name: str | None = None,
    stream: str | None = None,
) -> Consumer:
    """Open a consumer on one or several topics; see ``Namespace.consumer``."""
    label = parse_label("consumer name", name) if name is not None else f"consumer-{connection.runtime.unique()[:8]}"
    wanted = [topics] if isinstance(topics, str) else list(topics)
    if not wanted:
        raise InvalidInputError("a consumer needs a topic")
    opened: list[tuple[TopicRecord, int, int]] = []
    for topic in wanted:
        connection.follower.refresh()
        record = connection.topic_record(topic)
        parse_subscription_name(subscription)
        number = connection.follower.state.subscription_names.get((record.id, subscription))
        if number is None:
            number = create(connection, topic, subscription, type=type or "exclusive", if_not_exists=True).id
        elif type is not None and (existing := connection.follower.state.subscriptions[number]).type != type:
            raise SubscriptionExists(
                f"the subscription {subscription!r} of {topic!r} is {existing.type}, not {ascii(type)[:40]}",
                advice="leave out the type, or use another subscription",
            )
        epoch = _raise_epoch(connection, number, label, stream)
        opened.append((record, number, epoch))
    return Consumer(connection, label, opened)


def _raise_epoch(connection: Connection, subscription: int, name: str, stream: str | None) -> int:
    action = ConsumerAction(subscription, name, stream)
    return connection.appender.call(
        Simple(lambda _draft, _at: [action], lambda _draft, at: at.version, ("subscription", subscription))
    )


__all__ = ["create", "describe", "drop", "find", "lag", "names_of", "open_consumer"]
