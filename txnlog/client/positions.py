"""Positions in a topic: by name, time or partition, as offsets."""

from __future__ import annotations

import contextlib
import datetime
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from txnlog.client.partition_numbers import check_partition
from txnlog.common.validation import epoch_ms, is_to_come, shown, whole_number
from txnlog.errors import InvalidInputError
from txnlog.fold.state import State, TopicRecord
from txnlog.fold.subscription_records import check_offset
from txnlog.fold.visibility import state_at
from txnlog.sentences import Either, Words

if TYPE_CHECKING:
    from txnlog.client.connection import Connection
    from txnlog.log.follower import Follower

Position = str | Mapping[int, int] | datetime.datetime


def start_offsets(follower: Follower, topic: TopicRecord) -> dict[int, int]:
    """The earliest offset that can be read, by partition."""
    return follower.look(lambda state: {p: state.start_of(topic.id, p) for p in range(topic.partitions)})


def _ends_of(state: State, topic: TopicRecord) -> dict[int, int]:
    return {p: state.end_of(topic.id, p) for p in range(topic.partitions)}


def end_offsets(follower: Follower, topic: TopicRecord, version: int) -> dict[int, int]:
    """The offset behind the last message visible at a version, by partition of a topic, also a dropped one."""
    newest, known = follower.look(lambda state: (state.head.version, _ends_of(state, topic)))
    if newest == version:
        return known
    ends = dict.fromkeys(range(topic.partitions), 0)
    segments, _ = follower.segments(topic.id)
    for segment in segments:
        if state_at(segment, version) != "COMMITTED":
            continue
        for item in segment.slices:
            if item.offset is not None:
                ends[item.partition] = max(ends[item.partition], segment.end_of(item))
    return ends


def resolve_position(connection: Connection, topic: TopicRecord, position: Position) -> dict[int, int]:
    """Offsets of a position by name, time or partition. Raises what :func:`check_position` raises."""
    follower = connection.follower
    follower.refresh()
    starts, ends = follower.look(lambda state: (start_offsets(follower, topic), _ends_of(state, topic)))
    if isinstance(position, str) and position == "earliest":
        return starts
    if isinstance(position, str) and position == "latest":
        return ends
    if isinstance(position, Mapping):
        return _offsets_of(topic, position)
    return _offsets_at(follower, topic, _time_of(position, connection.log_now_ms()), starts)


def check_reachable(connection: Connection, topic: str, position: Position) -> None:
    """Raise what a seek would raise for the position itself: the consumer that seeks would fence another one first."""
    record = connection.topic_record(topic)
    offsets = resolve_position(connection, record, position)

    def look(state: State) -> None:
        for partition, offset in offsets.items():
            check_offset(state.draft(), record.id, partition, offset)

    connection.follower.look(look)


def _offsets_at(follower: Follower, topic: TopicRecord, timestamp_ms: int, starts: Mapping[int, int]) -> dict[int, int]:
    """Behind what was visible at a time."""
    version = follower.log.version_at(timestamp_ms, follower.version)
    if version is None or version < topic.id:
        return dict(starts)
    found = end_offsets(follower, topic, version)
    return {p: max(starts[p], found[p]) for p in found}


def check_position(topic: TopicRecord, position: object, now_ms: int) -> None:
    """Raise what :func:`resolve_position` raises for what is no position of a topic. Asks no store.

    Args:
        topic: the topic.
        position: what is to be one.
        now_ms: the time of the log (``Connection.log_now_ms``).

    Raises:
        OffsetOutOfRange: the topic has no such partition.
        InvalidInputError: it is of no kind that a position has, or a time in the future.
    """
    if isinstance(position, Mapping):
        _offsets_of(topic, position)
    elif not isinstance(position, str) or position not in {"earliest", "latest"}:
        _time_of(position, now_ms)


def _time_of(position: object, now_ms: int) -> int:
    """Milliseconds since the epoch. Raises InvalidInputError for what is no time either, or one that is to come."""
    timestamp_ms = None
    if isinstance(position, datetime.datetime | str):  # no number: an offset would pass for a time of long ago
        with contextlib.suppress(InvalidInputError):
            timestamp_ms = epoch_ms(position)
    if timestamp_ms is not None and is_to_come(timestamp_ms, now_ms):
        raise InvalidInputError(
            f"the position {shown(str(position))} is a time in the future: whatever is there would be passed over",
            advice='give a time that has come, or "latest", which is behind whatever is there',
        )
    if timestamp_ms is not None:
        return timestamp_ms
    raise InvalidInputError(
        f"unknown position {shown(position)}",
        advice=Words(
            Either(
                'use "earliest", "latest", {partition: offset}, or a time with a zone: '
                "datetime(..., tzinfo=datetime.UTC), datetime.fromtimestamp(seconds, datetime.UTC) or "
                '"2026-11-21T12:00:00Z"; a number alone could be an offset',
                "use earliest, latest, PARTITION=OFFSET such as 0=50, or a time with a zone such as "
                "2026-11-21T12:00:00Z",
            )
        ),
    )


def _offsets_of(topic: TopicRecord, position: Mapping[Any, Any]) -> dict[int, int]:
    found: dict[int, int] = {}
    for partition, offset in position.items():
        found[check_partition(topic.name, partition, topic.partitions)] = whole_number("an offset", offset, 0)
    return found


__all__ = ["Position", "check_position", "check_reachable", "end_offsets", "resolve_position", "start_offsets"]
