"""How far a reader is behind in its topics, over all partitions: by its offsets, or by a subscription's cursors."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from txnlog.api.lag import readable_offsets
from txnlog.common import ranges
from txnlog.fold.acknowledgements import unacknowledged
from txnlog.fold.state import State, TopicRecord

if TYPE_CHECKING:
    from txnlog.client.connection import Connection
    from txnlog.common.ranges import Ranges
    from txnlog.log.segment_summary import SegmentSummary


class Behind(NamedTuple):
    """How far a reader is behind the newest version in one topic.

    Attributes:
        offsets: by partition how many offsets lie between the reader and the end.
        messages: how many messages there can be read that the reader has not processed. As everywhere, offsets whose
            messages were compacted or erased count, and deleted ones do not.
        versions: how many versions the log has from the one on that made the oldest of these messages visible.
        ms: the age of that message in milliseconds, None where there is none.
    """

    offsets: tuple[int, ...]
    messages: int
    versions: int
    ms: int | None


class _Unread(NamedTuple):
    """A topic; by partition the offsets to the end, and those that can be read and are still to be processed."""

    topic: TopicRecord
    offsets: list[int]
    left: list[Ranges]


_Wanted = Callable[[State], Mapping[int, _Unread]]


def behind_positions(connection: Connection, positions: Mapping[int, Mapping[int, int]]) -> dict[int, Behind]:
    """By topic how far a reader is behind that has read up to these offsets, by topic and partition.

    In the state that the handle has read. Topics that are not there any more are left out.
    """

    def unread(state: State) -> Mapping[int, _Unread]:
        found: dict[int, _Unread] = {}
        for number, offsets in positions.items():
            topic = state.topics.get(number)
            if topic is None or topic.dropped:
                continue
            places = [(there, offsets.get(p, there.start)) for p, there in enumerate(readable_offsets(state, topic))]
            left = [_from(max(there.start, offset), there.stop) for there, offset in places]
            found[number] = _Unread(topic, [max(0, there.stop - offset) for there, offset in places], left)
        return found

    return connection.follower.over_checkpoints(partial(_found, connection, unread))


def behind_cursors(connection: Connection, subscriptions: Iterable[int]) -> dict[int, Behind]:
    """By subscription how far it is behind; what is pending in a transaction is not processed yet.

    In the state that the handle has read. Subscriptions that are not there any more are left out.
    """
    wanted = list(subscriptions)

    def unread(state: State) -> Mapping[int, _Unread]:
        found: dict[int, _Unread] = {}
        for number in wanted:
            record = state.subscriptions.get(number)
            if record is None:
                continue
            topic = state.topics[record.topic]
            cursors = [state.cursors[number, p] for p in range(topic.partitions)]
            places = list(zip(readable_offsets(state, topic), cursors, strict=True))
            left = [unacknowledged(cursor, there.start, there.stop) for there, cursor in places]
            found[number] = _Unread(topic, [max(0, there.stop - cursor.position) for there, cursor in places], left)
        return found

    return connection.follower.over_checkpoints(partial(_found, connection, unread))


def _from(low: int, end: int) -> Ranges:
    return ((low, end),) if low < end else ranges.EMPTY


def _found(connection: Connection, unread: _Wanted) -> dict[int, Behind]:
    summaries = connection.session.segment_summaries
    wanted, head, recent = connection.follower.look(lambda state: (unread(state), state.head, summaries.recent(state)))
    # Most readers are at the end, and then nothing has to be read of the checkpoint.
    summary = summaries.of(recent) if any(any(item.left) for item in wanted.values()) else None
    now_ms = head.log_time_ms(connection.runtime.now_ms())
    return {number: _behind(item, head.version, now_ms, summary) for number, item in wanted.items()}


def _behind(item: _Unread, newest: int, now_ms: int, summary: SegmentSummary | None) -> Behind:
    if summary is None:
        return Behind(tuple(item.offsets), 0, 0, None)
    messages = sum([ranges.size(left) for left in item.left])
    firsts: Sequence[tuple[int, int]] = [(p, left[0][0]) for p, left in enumerate(item.left) if left]
    commits = [summary.visible_since(item.topic.id, p, first) for p, first in firsts]
    since = [commit for commit in commits if commit is not None]
    if not since:
        return Behind(tuple(item.offsets), messages, 0, None)
    version = min([commit.version for commit in since])
    age_ms = max(0, now_ms - min([commit.timestamp_ms for commit in since]))
    return Behind(tuple(item.offsets), messages, newest - version + 1, age_ms)


__all__ = ["Behind", "behind_cursors", "behind_positions"]
