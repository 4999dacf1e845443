"""Deleting messages: by offset or time, and by what the settings of topics say (PROTOCOL.md, ``delete_records``).

A deletion moves earliest offsets, in one entry, so that every client agrees what is gone. Files go later: an optimize
takes those off the log that have nothing left, and a vacuum deletes them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from txnlog.client.positions import Position, resolve_position, start_offsets
from txnlog.common import ranges
from txnlog.common.format_limits import MAX_ENTRY_BYTES
from txnlog.common.ranges import Ranges
from txnlog.data.segment_order import in_offset_order
from txnlog.fold.acknowledgements import unacknowledged, unacknowledged_error
from txnlog.fold.state import Draft, SegmentRecord, State, SubscriptionRecord, TopicRecord
from txnlog.fold.subscription_records import subscriptions_of
from txnlog.fold.topics import check_deletable
from txnlog.fold.visibility import is_visible
from txnlog.format.actions import Acknowledgement, AnyAction, Commit, DeleteRecords, Header
from txnlog.format.retention import MESSAGE_TTL_MS, RETAIN_UNACKNOWLEDGED, RETENTION_BYTES, RETENTION_MS
from txnlog.log.commands import Answer, Simple
from txnlog.maintenance.ages import Times, older_than
from txnlog.maintenance.expiry import Offsets, acknowledgement_of, cursor_in, expire, expired
from txnlog.maintenance.waves import waves
from txnlog.replies import IfUnknown, refused_write, unknown_outcome
from txnlog.results import DeletedRecords, KeptFor, Listing, RetentionInfo

if TYPE_CHECKING:
    from txnlog.client.connection import Connection

_MOST_PLACES: Final = MAX_ENTRY_BYTES // 128
"""Partitions of which an entry deletes: an earliest offset, and what is acknowledged there, take less than so many."""

_Guard = Callable[[Draft, TopicRecord, Offsets], Offsets]


# --- by offset or time ------------------------------------------------------------------------------------------------


def delete_records(
    connection: Connection, topic: str, before: Position, *, allow_unacknowledged: bool, dry_run: bool
) -> DeletedRecords:
    """Delete the messages of a topic before a position. See ``Namespace.delete_records``."""
    if not dry_run:
        connection.check_writes()
    with refused_write():
        connection.follower.refresh()
        record = connection.topic_record(topic)
        wanted = resolve_position(connection, record, before)
    deletion = _Deletion({record.id: wanted}, None if allow_unacknowledged else _refuse)
    # Refused, and not needed, before a number is taken: that may have to be reserved by an entry.
    (found,) = connection.follower.look(lambda state: deletion.foreseen(state.draft()))
    if dry_run or not found.messages:
        return replace(found, dry_run=dry_run)
    (number,) = connection.appender.take_numbers()
    with unknown_outcome(IfUnknown.DELETE_RECORDS):
        (found,) = connection.appender.call(deletion.command(number))
    return found


class _Deletion:
    """Moves the earliest offsets of topics up to these, in one entry; decided against the newest state.

    What is deleted between messages that a subscription acknowledged counts as acknowledged by it: the number of ranges
    above a cursor is limited, and nobody can fill these any more.

    Args:
        wanted: by topic its new earliest offsets, as far as they are above those of then. A topic that was dropped
            meanwhile is passed over.
        guard: called with the draft, the topic, and what would be deleted: gives what may be, or raises. None: whatever
            subscriptions have not acknowledged goes as well.
        now_ms: the time of the log by which it is old enough: an entry of an earlier time deletes nothing.
    """

    def __init__(self, wanted: Mapping[int, Offsets], guard: _Guard | None, now_ms: int = 0) -> None:
        self._wanted = wanted
        self._guard = guard
        self._now_ms = now_ms
        self._decided: Mapping[int, int] = {}  # how many messages go, by topic, as it was decided the last time

    def command(self, number: int) -> Simple[tuple[DeletedRecords, ...]]:
        """What the log is asked for: of each topic what was deleted. ``number`` is that of acknowledgements."""

        def decide(draft: Draft, at: Header) -> Sequence[AnyAction] | Answer[tuple[DeletedRecords, ...]]:
            if at.timestamp_ms < self._now_ms:
                return Answer(self._described(draft, None, {}))
            actions, self._decided = self._actions(draft)
            filled = [item for action in actions for item in _filled(draft, action, at.timestamp_ms)]
            if not actions:
                return Answer(self._described(draft, None, self._decided))
            return [*actions, *([Commit(number, "", (), tuple(filled))] if filled else [])]

        return Simple(decide, lambda draft, at: self._described(draft, at.version, self._decided))

    def foreseen(self, draft: Draft) -> tuple[DeletedRecords, ...]:
        """What it would do at a state."""
        actions, counts = self._actions(draft)
        starts = {action.topic: dict(action.before) for action in actions}
        return tuple(
            replace(item, start_offsets={**item.start_offsets, **starts.get(number, {})}, dry_run=True)
            for number, item in zip(self._wanted, self._described(draft, None, counts), strict=True)
        )

    def _actions(self, draft: Draft) -> tuple[list[DeleteRecords], dict[int, int]]:
        """What moves the offsets, and how many messages go by it, by topic."""
        found: list[DeleteRecords] = []
        counts: dict[int, int] = {}
        for number, wanted in self._wanted.items():
            topic = _topic(draft, number)
            if topic.dropped:
                continue
            for partition, offset in wanted.items():
                check_deletable(draft, topic, partition, offset)
            starts = {p: draft.start_of(number, p) for p in wanted}
            moved: Offsets = {p: offset for p, offset in wanted.items() if offset > starts[p]}
            if self._guard is not None:
                moved = self._guard(draft, topic, moved)
            if moved:
                counts[number] = sum(offset - starts[p] for p, offset in moved.items())
                found.append(DeleteRecords(number, tuple(sorted(moved.items()))))
        return found, counts

    def _described(self, draft: Draft, version: int | None, counts: Mapping[int, int]) -> tuple[DeletedRecords, ...]:
        found: list[DeletedRecords] = []
        for number in self._wanted:
            topic = _topic(draft, number)
            count = counts.get(number, 0)
            starts = {p: draft.start_of(number, p) for p in range(topic.partitions)}
            found.append(DeletedRecords(topic.name, version if count else None, count, starts))
        return tuple(found)


def _topic(draft: Draft, number: int) -> TopicRecord:
    topic = draft.topics.get(number)
    assert topic is not None, "topics are never forgotten"
    return topic


def _filled(draft: Draft, action: DeleteRecords, now_ms: int) -> Iterator[Acknowledgement]:
    """What is deleted below messages that subscriptions acknowledged: acknowledgements of it."""
    for item in subscriptions_of(draft, action.topic):
        ends = {p: offset for p, offset in action.before if cursor_in(draft, item, p).acknowledged}
        if (found := acknowledgement_of(draft, item, ends, now_ms)) is not None:
            yield found


class _Needs:
    """What subscriptions still need of a topic at a state.

    Args:
        draft: the state.
        topic: the topic.
        gone: acknowledgements that come first.
    """

    def __init__(self, draft: Draft | State, topic: TopicRecord, gone: Iterable[Acknowledgement] = ()) -> None:
        self._draft = draft
        self._topic = topic
        self._gone = {(item.subscription, part.partition): part.ranges for item in gone for part in item.ranges}

    def _left(self, subscription: SubscriptionRecord, partition: int, end: int) -> Ranges:
        """What can be read below an offset, and the subscription has not acknowledged."""
        start = self._draft.start_of(self._topic.id, partition)
        left = unacknowledged(cursor_in(self._draft, subscription, partition), start, end)
        return ranges.subtract(left, self._gone.get((subscription.id, partition), ranges.EMPTY))

    def count(self, subscription: SubscriptionRecord, ends: Offsets) -> int:
        """How many messages below these offsets can be read, and the subscription has not acknowledged."""
        return sum(ranges.size(self._left(subscription, p, end)) for p, end in ends.items())

    def first(self, subscription: SubscriptionRecord, partition: int) -> int:
        """The first offset that can be read and that is not acknowledged; the end if there is none."""
        end = self._draft.end_of(self._topic.id, partition)
        left = self._left(subscription, partition, end)
        return left[0][0] if left else end

    def free(self, moved: Offsets) -> Offsets:
        """What may go of what would be deleted: nothing that a subscription has not acknowledged."""
        if not RETAIN_UNACKNOWLEDGED.of(self._topic.properties):
            return moved
        found = dict(moved)
        for item in subscriptions_of(self._draft, self._topic.id):
            for partition in moved:
                found[partition] = min(found[partition], self.first(item, partition))
        return {p: offset for p, offset in found.items() if offset > self._draft.start_of(self._topic.id, p)}


def _refuse(draft: Draft, topic: TopicRecord, moved: Offsets) -> Offsets:
    """Raise InvalidInputError where a subscription has not acknowledged all that would go."""
    needs = _Needs(draft, topic)
    needed = {item.name: needs.count(item, moved) for item in subscriptions_of(draft, topic.id)}
    needed = {name: count for name, count in needed.items() if count}
    if not needed:
        return moved
    raise unacknowledged_error(topic.name, " before that position", needed, "what is deleted")


# --- by the settings of topics ----------------------------------------------------------------------------------------


def retain(connection: Connection) -> tuple[DeletedRecords, ...]:
    """Delete of all topics what their settings say. See ``Namespace.maintain``."""
    connection.follower.refresh()
    times = Times(connection)
    topics = [item for item in connection.live_topics() if _has_retention(item)]
    counts = {item.id: expire(connection, item, _too_old(connection, item, times), times.now_ms) for item in topics}
    wanted = {item.id: due for item in topics if (due := _due(connection, item, times).offsets)}
    by_name: dict[str, DeletedRecords] = {}
    for part in waves(wanted.items(), lambda item: len(item[1]), len(wanted), _MOST_PLACES):
        deletion = _Deletion(dict(part), _Settings(topics).guard, times.now_ms)
        if not any(item.messages for item in connection.follower.look(lambda s, d=deletion: d.foreseen(s.draft()))):  # type: ignore[misc]  # bound now
            continue
        (number,) = connection.appender.take_numbers()
        by_name.update((item.topic, item) for item in connection.appender.call(deletion.command(number)))
    found: list[DeletedRecords] = []
    for topic in sorted(topics, key=lambda item: item.name):
        done = by_name.get(topic.name) or DeletedRecords(topic.name, None, 0, start_offsets(connection.follower, topic))
        if done.messages or counts[topic.id]:
            found.append(replace(done, expired_messages=counts[topic.id]))
    return tuple(found)


class _Settings:
    """What was to be deleted by settings goes only where they still hold: all of it was decided by them."""

    def __init__(self, topics: Iterable[TopicRecord]) -> None:
        self._known = {item.id: self._of(item) for item in topics}

    @staticmethod
    def _of(topic: TopicRecord) -> tuple[int | None, int | None]:
        return RETENTION_MS.of(topic.properties), RETENTION_BYTES.of(topic.properties)

    def guard(self, draft: Draft, topic: TopicRecord, moved: Offsets) -> Offsets:
        """See _Guard."""
        return _Needs(draft, topic).free(moved) if self._known[topic.id] == self._of(topic) else {}


def listing(connection: Connection, topic: str | None) -> Listing:
    """What retention says of topics, and for whom messages are kept. See ``Namespace.retention``."""
    connection.follower.refresh()
    times = Times(connection)
    topics = connection.live_topics() if topic is None else [connection.topic_record(topic)]
    return Listing(_info(connection, item, times) for item in sorted(topics, key=lambda item: item.name))


def _has_retention(topic: TopicRecord) -> bool:
    settings = (RETENTION_MS, RETENTION_BYTES, MESSAGE_TTL_MS)
    return any(setting.of(topic.properties) is not None for setting in settings)


def _too_old(connection: Connection, topic: TopicRecord, times: Times) -> dict[int, int]:
    """By partition the offset behind the messages that have expired for who has not acknowledged them."""
    return older_than(connection, topic, MESSAGE_TTL_MS.of(topic.properties), times)


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


def _due(connection: Connection, topic: TopicRecord, times: Times) -> _Due:
    properties = topic.properties
    by_age = older_than(connection, topic, RETENTION_MS.of(properties), times)
    visible: list[SegmentRecord] = []
    offsets = dict(by_age)
    most_bytes = RETENTION_BYTES.of(properties)
    if most_bytes is not None:
        visible = _visible(connection, topic, times.version)
        for partition, end in _beyond(visible, most_bytes, times).items():
            offsets[partition] = max(end, offsets.get(partition, 0))
    starts = start_offsets(connection.follower, topic)
    return _Due({p: offset for p, offset in offsets.items() if offset > starts[p]}, by_age, visible)


def _visible(connection: Connection, topic: TopicRecord, version: int) -> list[SegmentRecord]:
    """The segments that are visible and have messages that can be read."""
    starts = start_offsets(connection.follower, topic)
    records, removals = connection.follower.segments(topic.id)
    return [item for item in records if is_visible(item, version, removals) and _has_messages(item, starts)]


def _has_messages(record: SegmentRecord, starts: Offsets) -> bool:
    return any(record.end_of(item) > starts.get(item.partition, 0) for item in record.slices)


def _beyond(visible: Sequence[SegmentRecord], most_bytes: int, times: Times) -> dict[int, int]:
    """By partition the offset behind the oldest segments, as far as the others have enough bytes.

    The newest segment stays, whatever its size: else the messages of a big commit would be deleted at once.
    """

    def came_at(record: SegmentRecord) -> int:
        """The version that brought its last rows: a merged one has that of the merge."""
        if not record.compacted:
            return record.ended_version or 0
        commits = (
            times.summary.visible_since(record.topic, item.partition, record.end_of(item) - 1) for item in record.slices
        )
        return max(commit.version for commit in commits if commit is not None)

    found: dict[int, int] = {}
    size = 0
    is_enough = False
    for record in reversed(in_offset_order(visible, came_at)):
        if is_enough:
            for item in record.slices:
                found[item.partition] = max(found.get(item.partition, 0), record.end_of(item))
        size += record.size_bytes
        is_enough = size >= most_bytes  # the one that crosses the bound is kept as a whole
    return found


# --- what is kept back ------------------------------------------------------------------------------------------------


def _info(connection: Connection, topic: TopicRecord, times: Times) -> RetentionInfo:
    properties = topic.properties
    due = _due(connection, topic, times)
    visible = due.visible or _visible(connection, topic, times.version)
    too_old = _too_old(connection, topic, times)

    def look(state: State) -> tuple[int, int, int, list[tuple[str, int, Offsets]]]:
        needs = _Needs(state, topic, expired(state, topic, too_old, times.now_ms))
        total = sum(state.end_of(topic.id, p) - state.start_of(topic.id, p) for p in range(topic.partitions))
        free = needs.free(due.offsets)
        size = _count(state, topic.id, due.offsets)
        kept: list[tuple[str, int, Offsets]] = []
        if RETAIN_UNACKNOWLEDGED.of(properties):
            for item in subscriptions_of(state, topic.id):
                firsts = {p: needs.first(item, p) for p in due.offsets}
                if count := sum(max(0, end - firsts[p]) for p, end in due.offsets.items()):
                    kept.append((item.name, count, firsts))
        return total, size, _count(state, topic.id, free), kept

    total, size, free, kept = connection.follower.look(look)
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
        tuple(KeptFor(name, count, _since_ms(topic, times, due, firsts)) for name, count, firsts in kept),
    )


def _count(state: State, topic: int, ends: Offsets) -> int:
    return sum(max(0, end - state.start_of(topic, p)) for p, end in ends.items())


def _since_ms(topic: TopicRecord, times: Times, due: _Due, firsts: Offsets) -> int | None:
    """When the oldest message that a subscription keeps would have been deleted by ``retention_ms``."""
    age_ms = RETENTION_MS.of(topic.properties)
    if age_ms is None:
        return None
    kept = ((p, firsts[p]) for p, end in due.by_age.items() if firsts.get(p, 0) < end)
    found = [times.summary.visible_since_ms(topic.id, partition, first) for partition, first in kept]
    return min((time_ms + age_ms for time_ms in found if time_ms is not None), default=None)


__all__ = ["delete_records", "listing", "retain"]
