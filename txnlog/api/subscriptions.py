"""Creating, describing and opening subscriptions."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Final, TypeVar, get_args

import msgspec

from txnlog.api.consumer import Consumer
from txnlog.api.lag import lag_of, leased_of, pending_of, readable_offsets, redelivered_of
from txnlog.client import dead_letters
from txnlog.client.arrow_start import start_arrow
from txnlog.client.delivery import TopicDelivery
from txnlog.client.heartbeat_delivery import WAITING, FailoverTopicDelivery, HeartbeatTopicDelivery
from txnlog.client.positions import resolve_position
from txnlog.client.shared_delivery import SharedTopicDelivery
from txnlog.client.subscription_ownership import abandon, check_all_free, keeps_its_place, owned_since, try_to_take
from txnlog.common import ranges
from txnlog.common.format_limits import MAX_NUMBER
from txnlog.common.limits import DEFAULT_LEASE_MS, MAX_LEASE_MS, MIN_LEASE_MS
from txnlog.common.names import (
    nearest,
    parse_label,
    parse_subscription_name,
    parse_topic_name,
    parse_topic_names,
    similar,
)
from txnlog.common.validation import Duration, long_enough_ms, shown, truth, whole_number
from txnlog.engine.effects import STILL_WANTED, Cancelled
from txnlog.engine.log_lines import LogLines
from txnlog.errors import (
    InvalidInputError,
    SubscriptionExists,
    SubscriptionNotFound,
    TopicNotFound,
)
from txnlog.fold import leases
from txnlog.fold.state import Cursor, Draft, State, SubscriptionRecord, TopicRecord
from txnlog.fold.subscription_records import cursor_of, live_subscription
from txnlog.fold.topics import live_topic
from txnlog.format.actions import DropSubscription, Header, Subscription, SubscriptionType, Takeover, Topic
from txnlog.log.commands import ONE_CREATION, Answer, Simple, effect
from txnlog.log.segment_summary import RecentSegments
from txnlog.replies import IfUnknown, in_parts, refused_write, unknown_outcome
from txnlog.results import Listing, PartitionCursor, SubscriptionInfo
from txnlog.sentences import Argument, Call, Words

if TYPE_CHECKING:
    from txnlog.client.connection import Connection
    from txnlog.client.positions import Position

_logger: Final = LogLines("txnlog.subscriptions")

T = TypeVar("T")

TYPES: Final[tuple[SubscriptionType, ...]] = get_args(SubscriptionType)
TAKEOVERS: Final[tuple[Takeover, ...]] = get_args(Takeover)


@dataclass(frozen=True, slots=True)
class Found:
    """A subscription at one version of the log, with its topic and by partition its cursors.

    Attributes:
        starts: by partition the earliest offset that can be read.
        at_ms: the time of the log then, by which leases end.
    """

    topic: TopicRecord
    record: SubscriptionRecord
    cursors: tuple[Cursor, ...]
    starts: tuple[int, ...]
    at_ms: int


def _found(draft: Draft, number: int, at_ms: int) -> Found:
    record = live_subscription(draft, number)
    topic = draft.topics.get(record.topic)
    assert topic is not None, "topics are never forgotten"
    partitions = range(topic.partitions)
    cursors = tuple([cursor_of(draft, number, partition) for partition in partitions])
    starts = tuple([draft.start_of(topic.id, partition) for partition in partitions])
    return Found(topic, record, cursors, starts, at_ms)


def _type(text: object) -> SubscriptionType:
    kind = text.lower() if isinstance(text, str) else text  # Pulsar writes Shared, Kafka's tools write SHARED
    if kind not in TYPES:
        raise InvalidInputError(f"unknown subscription type {shown(text)}", advice=nearest(str(text), TYPES))
    return kind


def _takeover(text: object) -> Takeover:
    if not isinstance(text, str) or text not in TAKEOVERS:
        raise InvalidInputError(f"unknown takeover rule {shown(text)}", advice=nearest(str(text), TAKEOVERS))
    return text


def _by_name(connection: Connection, call: Callable[[], T]) -> T:
    """A call that looks names up in the newest state, and then writes by the ids that it found.

    Where one of them is gone by then, another one may have its name: the call is made once more, and looks again.
    """
    known = connection.follower.refresh()
    with in_parts(), refused_write():
        try:
            return call()
        except (TopicNotFound, SubscriptionNotFound):
            if connection.follower.version == known:
                raise
        with connection.naming_dropped():
            return call()


def create(
    connection: Connection,
    topic: str,
    name: str,
    *,
    type: str = "exclusive",  # noqa: A002 - the name users know from Pulsar
    start: Position = "earliest",
    lease_ms: Duration = DEFAULT_LEASE_MS,
    takeover: str = "any",
    max_redeliveries: int | None = None,
    dead_letter_topic: str | None = None,
    if_not_exists: bool = False,
    allow_short_lease: bool = False,
) -> Found:
    """Create a subscription; see ``Namespace.create_subscription``. Gives it as the entry shows it.

    Somebody may drop it with the next one, and another one may have its name: nobody looks for it once more.
    """
    parse_subscription_name(name)
    kind = _type(type)
    rule = _takeover(takeover)
    lease_ms = _lease_ms(lease_ms, allow_short=truth("allow_short_lease", allow_short_lease))
    if_not_exists = truth("if_not_exists", if_not_exists)
    if max_redeliveries is not None:
        max_redeliveries = whole_number("max_redeliveries", max_redeliveries, 0, MAX_NUMBER)
    if dead_letter_topic is not None:
        parse_topic_name(dead_letter_topic)
    if kind == "shared" and rule != "any":
        raise InvalidInputError(
            f"takeover belongs to exclusive and failover subscriptions; {name!r} would be shared",
            advice="pass another type, or leave it out: consumers of a shared subscription go together",
        )
    _check_dead_letters(name, kind, max_redeliveries, dead_letter_topic)
    connection.check_writes()
    settings = Subscription(0, name, kind, (), lease_ms, rule, max_redeliveries, dead_letter_topic)
    return _by_name(connection, lambda: _create(connection, topic, start, settings, if_not_exists=if_not_exists))


def _lease_ms(lease: Duration, *, allow_short: bool) -> int:
    """A lease in milliseconds, or InvalidInputError: also where it is short and not said to be meant."""
    return long_enough_ms(
        "lease_ms",
        lease,
        1,
        MIN_LEASE_MS,
        DEFAULT_LEASE_MS,
        "allow_short_lease",
        allowed=allow_short,
        most=MAX_LEASE_MS,
        else_="it would end while its consumer is at work, and another one would receive the same messages",
    )


def _create(
    connection: Connection, topic: str, start: Position, settings: Subscription, *, if_not_exists: bool
) -> Found:
    """Create a subscription with these settings, of the topic that has the name."""
    name, dead_letter_topic = settings.name, settings.dead_letter_topic
    record = connection.topic_record(topic)
    offsets = resolve_position(connection, record, start)
    if len(offsets) < record.partitions:
        offsets = resolve_position(connection, record, "earliest") | offsets
    positions = tuple(offsets[partition] for partition in range(record.partitions))
    action = msgspec.structs.replace(settings, topic=record.id, start=positions)

    def decide(draft: Draft, at: Header) -> list[Topic | Subscription] | Answer[Found]:
        source = live_topic(draft, record.id)
        letters = [] if dead_letter_topic is None else dead_letters.missing_topic(draft, source, dead_letter_topic)
        known = draft.subscription_names.get((record.id, name))
        if known is None:
            return [*letters, action]
        existing = live_subscription(draft, known)
        if (clash := _clash(existing, action)) is not None:
            raise SubscriptionExists(
                f"the subscription {name!r} of {topic!r} exists with another {clash}",
                advice="ask for what it has, or choose another name",
            )
        if not if_not_exists:
            raise SubscriptionExists(f"the subscription {name!r} of {topic!r} exists")
        return [*letters] or Answer(_found(draft, known, at.timestamp_ms))

    def result(draft: Draft, at: Header) -> Found:
        made = draft.subscription_names.get((record.id, name))
        assert made is not None, "just created, or found"
        return _found(draft, made, at.timestamp_ms)

    return connection.appender.call(Simple(decide, result, ONE_CREATION))


def _check_dead_letters(name: str, kind: SubscriptionType, max_redeliveries: int | None, topic: str | None) -> None:
    """Raise InvalidInputError where a subscription of a kind cannot have these settings.

    A Shared one counts redeliveries, so it has both or none. The consumer of an Exclusive one decides by itself what it
    sends there: it has the topic alone.
    """
    if kind != "shared" and max_redeliveries is not None:
        raise InvalidInputError(
            f"max_redeliveries belongs to shared subscriptions; {name!r} would be {kind}",
            advice='pass type="shared", or leave it out: only shared subscriptions count redeliveries',
        )
    if kind == "failover" and topic is not None:
        raise InvalidInputError(
            f"dead_letter_topic belongs to shared and exclusive subscriptions; {name!r} would be failover",
            advice="pass another type, or leave it out",
        )
    if kind == "shared" and (max_redeliveries is None) != (topic is None):
        raise InvalidInputError(
            "max_redeliveries and dead_letter_topic of a shared subscription go together",
            advice="give both, or neither: messages are then redelivered until somebody acknowledges them",
        )


def _clash(there: SubscriptionRecord, wanted: Subscription) -> str | None:
    """How a subscription differs from one that is wanted, wherever its cursors are; None if it does not."""
    for setting in ("type", "lease_ms", "takeover", "max_redeliveries", "dead_letter_topic"):
        has, asked = getattr(there, setting), getattr(wanted, setting)
        idle = setting == "takeover" and wanted.type == "shared"  # logs may have it, though nobody takes over there
        if has != asked and not idle:
            return f"{setting}: {has!r} instead of {asked!r}"
    return None


def find(connection: Connection, topic: str, name: str) -> Found:
    """A topic's subscription in the newest state, or the error with the nearest name."""
    parse_subscription_name(name)
    record = connection.topic_record(topic)
    now_ms = connection.log_now_ms()

    def look(state: State) -> Found | list[str]:
        number = state.subscription_names.get((record.id, name))
        if number is not None:
            return _found(state.draft(), number, now_ms)
        return [item.name for item in state.subscriptions.values() if item.topic == record.id]

    names = connection.follower.look(look)
    if isinstance(names, Found):
        return names
    raise SubscriptionNotFound(f"the topic {topic!r} has no subscription {name!r}", advice=nearest(name, names))


def drop(connection: Connection, topic: str, name: str) -> None:
    """Drop a subscription; open transactions go on without what they acknowledged on it."""
    connection.check_writes()

    def dropped() -> SubscriptionRecord:
        record = find(connection, topic, name).record
        with unknown_outcome(IfUnknown.DROP_SUBSCRIPTION):
            connection.appender.call(effect(lambda _draft, _at: [DropSubscription(record.id)]))
        return record

    record = _by_name(connection, dropped)
    if keeps_its_place(record):
        connection.heartbeats.forget(record.id, record.epoch)


def describe(connection: Connection, found: Found) -> SubscriptionInfo:
    """A subscription with its cursors, for users."""
    cursors: list[PartitionCursor] = []
    consumers: dict[str, int] = {}
    for partition, cursor in enumerate(found.cursors):
        cursors.append(
            PartitionCursor(
                partition,
                cursor.position,
                cursor.acknowledged,
                pending_of(cursor),
                redelivered_of(cursor, found.starts[partition]),
                leased_of(cursor, found.at_ms),
            )
        )
        for lease in cursor.leases:
            if lease.until_ms > found.at_ms:
                consumer = leases.name_of(lease.consumer)
                consumers[consumer] = consumers.get(consumer, 0) + ranges.size(lease.ranges)
    record = found.record
    return SubscriptionInfo(
        found.topic.name,
        record.name,
        record.type,
        epoch=record.epoch,
        consumer=record.consumer,
        cursors=tuple(cursors),
        id=record.id,
        takeover=record.takeover,
        lease_ms=record.lease_ms,
        max_redeliveries=record.max_redeliveries,
        dead_letter_topic=record.dead_letter_topic,
        consumers=dict(sorted(consumers.items())),
        query=record.stream,
        query_since=owned_since(connection, record),
    )


def names_of(connection: Connection, topic: str) -> tuple[str, ...]:
    """Names of a topic's subscriptions, sorted."""
    record = connection.topic_record(topic)
    records = connection.follower.look(lambda state: list(state.subscriptions.values()))
    return tuple(sorted(item.name for item in records if item.topic == record.id))


def lag(connection: Connection, topic: str, name: str) -> Listing:
    """How far a subscription is behind, by partition."""
    return connection.follower.over_checkpoints(partial(_lag, connection, topic, name))


def _lag(connection: Connection, topic: str, name: str) -> Listing:
    summaries = connection.session.segment_summaries

    def look(state: State) -> tuple[Found, list[range], RecentSegments]:
        found = find(connection, topic, name)
        return found, readable_offsets(state, found.topic), summaries.recent(state)

    found, offsets, recent = connection.follower.look(look)
    summary = summaries.of(recent)
    return Listing(
        lag_of(found.topic.id, partition, cursor, there, found.at_ms, summary)
        for partition, (cursor, there) in enumerate(zip(found.cursors, offsets, strict=True))
    )


def open_consumer(
    connection: Connection,
    topics: str | Sequence[str],
    subscription: str,
    *,
    type: str | None = None,  # noqa: A002 - the name users know from Pulsar
    name: str | None = None,
    takeover: bool = False,
) -> Consumer:
    """Open a consumer on one or several topics; see ``Namespace.consumer``.

    Whatever may be refused is looked at before anything is written, and all epochs that fence somebody are raised in
    one entry: a call that is refused fences nobody, and creates nothing. Where the log changes meanwhile,
    subscriptions may have been created; ``durable`` says so then.
    """
    connection.check_writes()
    label = parse_label("consumer name", name) if name is not None else f"consumer-{connection.runtime.unique()[:8]}"
    parse_subscription_name(subscription)
    start_arrow()
    wanted = None if type is None else _type(type)
    names = parse_topic_names(topics)
    takeover = truth(
        "takeover",
        takeover,
        Words(
            "the rule who may take over is of the subscription: ",
            Call("create_subscription", "...", Argument("takeover", ...)),
        ),
    )
    return _by_name(connection, lambda: _open(connection, names, subscription, wanted, label, takeover=takeover))


def _open(
    connection: Connection,
    topics: Sequence[str],
    subscription: str,
    wanted: SubscriptionType | None,
    label: str,
    *,
    takeover: bool,
) -> Consumer:
    """Open a consumer on the topics that have the names."""
    found = [_look_up(connection, topic, subscription, wanted) for topic in topics]
    known = [record for _, record in found if record is not None]
    if len(known) < len(found):
        check_all_free(connection, [record for record in known if not _waits(record)], label, may_end_query=takeover)
    places: list[tuple[TopicRecord, SubscriptionRecord]] = []
    opened: list[TopicDelivery] = []
    epochs: dict[int, int] = {}
    try:
        for topic, there in found:
            places.append((topic, there) if there is not None else _made(connection, topic.name, subscription, wanted))
        wanted_places = [record.id for _, record in places if not _waits(record)]
        epochs = try_to_take(connection, wanted_places, label, takeover=takeover)
        for topic, record in places:
            opened.append(_kind(record)(connection, label, topic, record.id, epochs.get(record.id, WAITING)))
        for item in opened:
            if item.epoch == WAITING:
                _look_first(connection, item)
    except BaseException:
        abandon(connection, {key: epochs[key] for key in epochs.keys() - {item.subscription for item in opened}}, label)
        for item in opened:
            connection.appender.run(item.close)
        raise
    return Consumer(connection, label, opened)


def _look_first(connection: Connection, item: TopicDelivery) -> None:
    """The first look of a Failover consumer. One that is interrupted does not stay the active one."""

    async def look() -> None:
        await item.look(is_new=True)
        try:
            await STILL_WANTED
        except Cancelled:
            await item.close()
            raise

    connection.appender.run(look, undo=lambda: connection.runtime.engine.post(item.close))


def _look_up(
    connection: Connection, topic: str, subscription: str, wanted: SubscriptionType | None
) -> tuple[TopicRecord, SubscriptionRecord | None]:
    """A topic, and its subscription if it is there. Raises SubscriptionExists where that is of another type."""

    def look(_state: State) -> tuple[TopicRecord, SubscriptionRecord | None]:
        topic_record = connection.topic_record(topic)
        return topic_record, connection.subscription_record(topic_record.id, subscription)

    found, record = connection.follower.look(look)
    if record is not None and wanted is not None and record.type != wanted:
        raise SubscriptionExists(
            f"the subscription {subscription!r} of {topic!r} is {record.type}, not {wanted}",
            advice="leave out the type, or use another subscription",
        )
    return found, record


def _made(
    connection: Connection, topic: str, subscription: str, wanted: SubscriptionType | None
) -> tuple[TopicRecord, SubscriptionRecord]:
    """Create the subscription of a consumer. Where somebody else was faster, that one will do, whatever its rules.

    With the topic that it is of: another one may have the name by now.
    """
    try:
        made = create(connection, topic, subscription, type=wanted or "exclusive")
    except SubscriptionExists:
        found, there = _look_up(connection, topic, subscription, wanted)
        if there is None:
            raise
        return found, there
    report_created(connection, made, "the consumer", "with the earliest message")
    return made.topic, made.record


def report_created(connection: Connection, made: Found, who: str, begins: str) -> None:
    """Say that somebody who reads a subscription created it, which a misspelt name does as well."""
    name, topic = made.record.name, made.topic.name
    known = connection.follower.look(lambda state: list(state.subscription_names))
    others = [other for of, other in known if of == made.topic.id]
    close = similar(name, others)
    created = f"{who} created the subscription {name!r} of {topic!r}: it begins {begins}"
    if close is None:
        _logger.info("%s", created)
    else:
        advice = "if that one was meant, use its name, and drop the new one"
        _logger.warning("%s. There is also %r: %s", created, close, advice)


def _waits(record: SubscriptionRecord) -> bool:
    """Whether a consumer waits where another one is active: all others have their place, or are refused."""
    return record.type == "failover" and record.takeover != "same_name"


def _kind(record: SubscriptionRecord) -> Callable[[Connection, str, TopicRecord, int, int], TopicDelivery]:
    """The class of a consumer's topic delivery, by the subscription's type and takeover rule."""
    if record.type == "exclusive":
        return HeartbeatTopicDelivery if keeps_its_place(record) else TopicDelivery
    return FailoverTopicDelivery if record.type == "failover" else SharedTopicDelivery


__all__ = ["Found", "create", "describe", "drop", "find", "lag", "names_of", "open_consumer", "report_created"]
