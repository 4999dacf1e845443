"""Deleting messages: by offset or time, and by what the settings of topics say (PROTOCOL.md, ``delete_records``).

A deletion moves earliest offsets, in one entry, so that every client agrees what is gone. Files go later: an optimize
takes those off the log that have nothing left, and a vacuum deletes them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from txnlog.client.positions import Position, end_offsets, resolve_position, start_offsets
from txnlog.common import ranges
from txnlog.common.ranges import Ranges
from txnlog.data.segment_order import in_log_order
from txnlog.engine.log_lines import LogLines
from txnlog.errors import ConsumerFenced, Durable, InvalidInputError, SubscriptionNotFound, TransactionConflict
from txnlog.fold.acknowledgements import acknowledged_or_pending, unacknowledged
from txnlog.fold.leases import live
from txnlog.fold.state import Cursor, Draft, SegmentRecord, State, SubscriptionRecord, TopicRecord
from txnlog.fold.topics import live_topic
from txnlog.fold.visibility import is_visible
from txnlog.format.actions import Acknowledgement, AnyAction, DeleteRecords, Header, PartitionRanges
from txnlog.format.retention import MESSAGE_TTL_MS, RETAIN_UNACKNOWLEDGED, RETENTION_BYTES, RETENTION_MS
from txnlog.log.commands import Answer, Simple
from txnlog.log.transaction_commands import AcknowledgeCommand
from txnlog.replies import IfUnknown, refused_write, unknown_outcome
from txnlog.results import DeletedRecords, KeptFor, Listing, RetentionInfo
from txnlog.sentences import Argument, Words

if TYPE_CHECKING:
    from txnlog.client.connection import Connection

_logger = LogLines("txnlog.retention")

_MOST_NAMED: Final = 3
"""Subscriptions that an error names."""

Offsets = Mapping[int, int]
"""By partition."""

_Guard = Callable[[Draft, TopicRecord, Offsets], Offsets]


# --- by offset or time ------------------------------------------------------------------------------------------------


def delete_records(
    connection: Connection, topic: str, before: Position, *, allow_unacknowledged: bool, dry_run: bool
) -> DeletedRecords:
    """Delete the messages of a topic before a position. See ``Namespace.delete_records``."""
    if not dry_run:
        _ = connection.appender  # a reader is refused before it looks at anything
    with refused_write():
        connection.follower.refresh()
        record = connection.topic_record(topic)
        wanted = resolve_position(connection, record, before)
    deletion = _Deletion({record.id: wanted}, None if allow_unacknowledged else _refuse)
    if dry_run:
        (found,) = connection.follower.look(lambda state: deletion.foreseen(state.draft()))
        return found
    with unknown_outcome(IfUnknown.DELETE_RECORDS):
        (found,) = connection.appender.call(deletion.command())
    return found


class _Deletion:
    """Moves the earliest offsets of topics up to these, in one entry; decided against the newest state.

    Args:
        wanted: by topic its new earliest offsets, as far as they are above those of then.
        unacknowledged: called with the draft, the topic, and what would be deleted: gives what may be, or raises. None:
            whatever subscriptions have not acknowledged goes as well.
    """

    def __init__(self, wanted: Mapping[int, Offsets], unacknowledged: _Guard | None) -> None:
        self._wanted = wanted
        self._unacknowledged = unacknowledged
        self._decided: Mapping[int, int] = {}  # how many messages go, by topic, as it was decided the last time

    def command(self) -> Simple[tuple[DeletedRecords, ...]]:
        """What the log is asked for: of each topic what was deleted."""
        return Simple(self._decide, lambda draft, at: self._described(draft, at.version, self._decided))

    def foreseen(self, draft: Draft) -> tuple[DeletedRecords, ...]:
        """What it would do at a state."""
        actions, counts = self._actions(draft)
        starts = {action.topic: dict(action.before) for action in actions}
        return tuple(
            replace(item, start_offsets={**item.start_offsets, **starts.get(number, {})}, dry_run=True)
            for number, item in zip(self._wanted, self._described(draft, None, counts), strict=True)
        )

    def _decide(self, draft: Draft, _at: Header) -> Sequence[AnyAction] | Answer[tuple[DeletedRecords, ...]]:
        actions, self._decided = self._actions(draft)
        return actions or Answer(self._described(draft, None, self._decided))

    def _actions(self, draft: Draft) -> tuple[list[DeleteRecords], dict[int, int]]:
        """What moves the offsets, and how many messages go by it, by topic."""
        found: list[DeleteRecords] = []
        counts: dict[int, int] = {}
        for number, wanted in self._wanted.items():
            topic = live_topic(draft, number)
            starts = {p: draft.start_of(number, p) for p in wanted}
            moved: Offsets = {p: offset for p, offset in wanted.items() if offset > starts[p]}
            if self._unacknowledged is not None:
                moved = self._unacknowledged(draft, topic, moved)
            if moved:
                counts[number] = sum(offset - starts[p] for p, offset in moved.items())
                found.append(DeleteRecords(number, tuple(sorted(moved.items()))))
        return found, counts

    def _described(self, draft: Draft, version: int | None, counts: Mapping[int, int]) -> tuple[DeletedRecords, ...]:
        found: list[DeletedRecords] = []
        for number in self._wanted:
            topic = live_topic(draft, number)
            count = counts.get(number, 0)
            starts = {p: draft.start_of(number, p) for p in range(topic.partitions)}
            found.append(DeletedRecords(topic.name, version if count else None, count, starts))
        return tuple(found)


def _subscriptions(draft: Draft | State, topic: int) -> list[SubscriptionRecord]:
    return sorted((item for _, item in draft.subscriptions.items() if item.topic == topic), key=lambda item: item.name)


def _cursor(draft: Draft | State, subscription: SubscriptionRecord, partition: int) -> Cursor:
    cursor = draft.cursors.get((subscription.id, partition))
    assert cursor is not None, "a subscription has a cursor in each partition"
    return cursor


def _left(draft: Draft | State, topic: int, subscription: SubscriptionRecord, partition: int, end: int) -> Ranges:
    """What can be read below an offset, and the subscription has not acknowledged."""
    return unacknowledged(_cursor(draft, subscription, partition), draft.start_of(topic, partition), end)


def _needed(draft: Draft | State, topic: int, subscription: SubscriptionRecord, ends: Offsets) -> int:
    """How many messages below these offsets can be read, and the subscription has not acknowledged."""
    return sum(ranges.size(_left(draft, topic, subscription, p, end)) for p, end in ends.items())


def _first_needed(draft: Draft | State, topic: int, subscription: SubscriptionRecord, partition: int) -> int:
    """The first offset that can be read and that the subscription has not acknowledged; the end if there is none."""
    end = draft.end_of(topic, partition)
    left = _left(draft, topic, subscription, partition, end)
    return left[0][0] if left else end


def _refuse(draft: Draft, topic: TopicRecord, moved: Offsets) -> Offsets:
    """Raise InvalidInputError where a subscription has not acknowledged all that would go."""
    needed = {item.name: _needed(draft, topic.id, item, moved) for item in _subscriptions(draft, topic.id)}
    needed = {name: count for name, count in needed.items() if count}
    if not needed:
        return moved
    named = ", ".join(f"{name!r} {count:,}" for name, count in list(needed.items())[:_MOST_NAMED])
    more = ", and others" if len(needed) > _MOST_NAMED else ""
    raise InvalidInputError(
        f"of the messages of {topic.name!r} before that position subscriptions have not acknowledged some: "
        f"{named}{more}",
        advice=Words(
            "wait until they have, or pass ",
            Argument("allow_unacknowledged", True),
            ": then these subscriptions go on behind what is deleted",
        ),
        durable=Durable.NOTHING,
    )


def _kept_for_subscriptions(draft: Draft, topic: TopicRecord, moved: Offsets) -> Offsets:
    """What may go of what would be deleted: nothing that a subscription has not acknowledged."""
    if not RETAIN_UNACKNOWLEDGED.of(topic.properties):
        return moved
    found = dict(moved)
    for item in _subscriptions(draft, topic.id):
        for partition in moved:
            found[partition] = min(found[partition], _first_needed(draft, topic.id, item, partition))
    return {p: offset for p, offset in found.items() if offset > draft.start_of(topic.id, p)}


# --- by the settings of topics ----------------------------------------------------------------------------------------


def retain(connection: Connection) -> tuple[DeletedRecords, ...]:
    """Delete of all topics what their settings say. See ``Namespace.maintain``."""
    connection.follower.refresh()
    times = _Times(connection)
    topics = [item for item in connection.live_topics() if _has_retention(item)]
    expired = {item.id: _expire(connection, item, times) for item in topics}
    wanted = {item.id: due for item in topics if (due := _due(connection, item, times).offsets)}
    deleted: tuple[DeletedRecords, ...] = ()
    if wanted:
        deleted = connection.appender.call(_Deletion(wanted, _kept_for_subscriptions).command())
    by_name = {item.topic: item for item in deleted}
    found: list[DeletedRecords] = []
    for topic in sorted(topics, key=lambda item: item.name):
        done = by_name.get(topic.name) or DeletedRecords(topic.name, None, 0, start_offsets(connection.follower, topic))
        if done.messages or expired[topic.id]:
            found.append(replace(done, expired_messages=expired[topic.id]))
    return tuple(found)


def listing(connection: Connection, topic: str | None) -> Listing:
    """What retention says of topics, and for whom messages are kept. See ``Namespace.retention``."""
    connection.follower.refresh()
    times = _Times(connection)
    topics = connection.live_topics() if topic is None else [connection.topic_record(topic)]
    return Listing(_info(connection, item, times) for item in sorted(topics, key=lambda item: item.name))


def _has_retention(topic: TopicRecord) -> bool:
    settings = (RETENTION_MS, RETENTION_BYTES, MESSAGE_TTL_MS)
    return any(setting.of(topic.properties) is not None for setting in settings)


class _Times:
    """The version of a time that has passed for so long: the same one for all topics that ask."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self.now_ms = connection.log_now_ms()
        self.version = connection.follower.version
        self._known: dict[int, int | None] = {}

    def version_before(self, age_ms: int) -> int | None:
        """The newest version that is at least so old; None where the log is younger."""
        if age_ms not in self._known:
            log = self._connection.follower.log
            self._known[age_ms] = log.version_at(self.now_ms - age_ms, self.version)
        return self._known[age_ms]


def _older_than(connection: Connection, topic: TopicRecord, age_ms: int | None, times: _Times) -> dict[int, int]:
    """By partition the offset behind the messages that are at least so old."""
    version = None if age_ms is None else times.version_before(age_ms)
    if version is None or version < topic.id:
        return {}
    return end_offsets(connection.follower, topic, version)


@dataclass(frozen=True, slots=True)
class _Due:
    """What settings say is to be deleted of a topic, whatever its subscriptions have acknowledged.

    Attributes:
        offsets: by partition the offset behind it, where there is any.
        by_age: the same by ``retention_ms`` alone.
        visible: the segments that have what can be read.
    """

    offsets: dict[int, int]
    by_age: dict[int, int]
    visible: list[SegmentRecord]


def _due(connection: Connection, topic: TopicRecord, times: _Times) -> _Due:
    properties = topic.properties
    by_age = _older_than(connection, topic, RETENTION_MS.of(properties), times)
    visible: list[SegmentRecord] = []
    offsets = dict(by_age)
    most_bytes = RETENTION_BYTES.of(properties)
    if most_bytes is not None:
        visible = _visible(connection, topic, times.version)
        for partition, end in _beyond(visible, most_bytes).items():
            offsets[partition] = max(end, offsets.get(partition, 0))
    starts = start_offsets(connection.follower, topic)
    return _Due({p: offset for p, offset in offsets.items() if offset > starts[p]}, by_age, visible)


def _visible(connection: Connection, topic: TopicRecord, version: int) -> list[SegmentRecord]:
    """The segments that are visible and have messages that can be read."""
    starts = start_offsets(connection.follower, topic)
    records, removals = connection.follower.segments(topic.id)
    return [item for item in records if is_visible(item, version, removals) and _has_messages(item, starts)]


def _has_messages(record: SegmentRecord, starts: Offsets) -> bool:
    return any((item.offset or 0) + item.rows > starts.get(item.partition, 0) for item in record.slices)


def _beyond(visible: Sequence[SegmentRecord], most_bytes: int) -> dict[int, int]:
    """By partition the offset behind the oldest segments, as far as the others have enough bytes.

    The newest segment stays, whatever its size: else the messages of a big commit would be deleted at once.
    """
    found: dict[int, int] = {}
    size = 0
    is_enough = False
    for record in reversed(in_log_order(visible)):
        if is_enough:
            for item in record.slices:
                found[item.partition] = max(found.get(item.partition, 0), (item.offset or 0) + item.rows)
        size += record.size_bytes
        is_enough = size >= most_bytes  # the one that crosses the bound is kept as a whole
    return found


# --- messages that nobody acknowledged for too long -------------------------------------------------------------------


def _expire(connection: Connection, topic: TopicRecord, times: _Times) -> int:
    """Acknowledge on each subscription what is older than ``message_ttl_ms``; how many messages that were."""
    ends = _older_than(connection, topic, MESSAGE_TTL_MS.of(topic.properties), times)
    if not ends:
        return 0
    count = 0
    names = connection.follower.look(lambda state: [item.name for item in _subscriptions(state, topic.id)])
    for name in names:
        found, expired = connection.follower.look(
            lambda state, name=name: _expired(state, topic, name, ends, times.now_ms)  # type: ignore[misc]  # bound now
        )
        if found is None:
            continue
        (number,) = connection.appender.take_numbers()
        try:
            connection.appender.call(AcknowledgeCommand(number, (found,)))
        except (ConsumerFenced, SubscriptionNotFound, TransactionConflict) as error:
            _logger.info("messages of %r on %r have not expired yet: %s", topic.name, name, error.message)
            continue  # somebody works on them just now: the next call looks again
        _logger.info("%d messages of %r have expired on %r", expired, topic.name, name)
        count += expired
    return count


def _expired(
    state: State, topic: TopicRecord, name: str, ends: Offsets, now_ms: int
) -> tuple[Acknowledgement | None, int]:
    """What has expired on a subscription, as far as nobody works on it; and how many messages that are."""
    record = next((item for item in _subscriptions(state, topic.id) if item.name == name), None)
    if record is None:
        return None, 0
    parts: list[PartitionRanges] = []
    cumulative: list[tuple[int, int]] = []
    count = 0
    for partition, end in sorted(ends.items()):
        cursor = _cursor(state, record, partition)
        if end <= cursor.position:
            continue
        left = ranges.subtract(((cursor.position, end),), acknowledged_or_pending(cursor))
        if record.type == "shared":
            left = ranges.subtract(left, live(cursor, now_ms))
            if left:
                parts.append(PartitionRanges(partition, left))
        else:
            cumulative.append((partition, end))
        count += ranges.size(ranges.subtract(left, ((0, state.start_of(topic.id, partition)),)))
    if not parts and not cumulative:
        return None, 0
    return Acknowledgement(record.id, record.epoch, tuple(parts), tuple(cumulative)), count


# --- what is kept back ------------------------------------------------------------------------------------------------


def _info(connection: Connection, topic: TopicRecord, times: _Times) -> RetentionInfo:
    properties = topic.properties
    due = _due(connection, topic, times)
    visible = due.visible or _visible(connection, topic, times.version)

    def look(state: State) -> tuple[int, int, int, list[tuple[str, int, Offsets]]]:
        draft = state.draft()
        total = sum(state.end_of(topic.id, p) - state.start_of(topic.id, p) for p in range(topic.partitions))
        free = _kept_for_subscriptions(draft, topic, due.offsets)
        size = _count(state, topic.id, due.offsets)
        kept: list[tuple[str, int, Offsets]] = []
        if RETAIN_UNACKNOWLEDGED.of(properties):
            for item in _subscriptions(state, topic.id):
                firsts = {p: _first_needed(state, topic.id, item, p) for p in due.offsets}
                if count := sum(max(0, end - firsts[p]) for p, end in due.offsets.items()):
                    kept.append((item.name, count, firsts))
        return total, size, _count(state, topic.id, free), kept

    total, size, free, kept = connection.follower.look(look)
    records = connection.follower.segments(topic.id)[0] if kept else ()
    return RetentionInfo(
        topic.name,
        RETENTION_MS.of(properties),
        RETENTION_BYTES.of(properties),
        MESSAGE_TTL_MS.of(properties),
        RETAIN_UNACKNOWLEDGED.of(properties),
        total,
        sum(item.size_bytes for item in visible),
        free,
        size - free,
        tuple(KeptFor(name, count, _since_ms(topic, records, due, firsts)) for name, count, firsts in kept),
    )


def _count(state: State, topic: int, ends: Offsets) -> int:
    return sum(max(0, end - state.start_of(topic, p)) for p, end in ends.items())


def _since_ms(topic: TopicRecord, records: Iterable[SegmentRecord], due: _Due, firsts: Offsets) -> int | None:
    """When the oldest message that a subscription keeps would have been deleted by ``retention_ms``."""
    age_ms = RETENTION_MS.of(topic.properties)
    if age_ms is None:
        return None
    oldest = _oldest_ms(records, firsts, due.by_age)
    return None if oldest is None else oldest + age_ms


def _oldest_ms(records: Iterable[SegmentRecord], above: Offsets, below: Offsets) -> int | None:
    """The time of the oldest message at or above some offsets and below others; of a merged one what it came in."""
    return min(
        (
            record.timestamp_ms
            for record in records
            if record.state == "visible" and not record.compacted and record.timestamp_ms is not None
            for item in record.slices
            if (item.offset or 0) + item.rows > above.get(item.partition, 0)
            and (item.offset or 0) < below.get(item.partition, 0)
        ),
        default=None,
    )


__all__ = ["delete_records", "listing", "retain"]
