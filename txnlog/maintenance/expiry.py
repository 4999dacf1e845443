"""Messages that nobody acknowledged for too long: by ``message_ttl_ms`` they are acknowledged on every subscription.

What expires is decided against the state in front of the entry: a lease, a pending acknowledgement or another setting
that came meanwhile counts. So does the time of the entry: a clock that was ahead for a moment lets nothing expire.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Final

from txnlog.common import ranges
from txnlog.common.ranges import Ranges
from txnlog.engine.log_lines import LogLines
from txnlog.errors import LimitExceeded, TransactionConflict
from txnlog.fold.leases import available, live
from txnlog.fold.state import Cursor, Draft, State, SubscriptionRecord, TopicRecord
from txnlog.fold.subscription_records import subscriptions_of
from txnlog.format.actions import Acknowledgement, AnyAction, Commit, Header, PartitionRanges
from txnlog.format.retention import MESSAGE_TTL_MS
from txnlog.log.commands import Answer, Simple

if TYPE_CHECKING:
    from txnlog.client.connection import Connection

_logger: Final = LogLines("txnlog.retention")

Offsets = Mapping[int, int]
"""By partition."""


def cursor_in(draft: Draft | State, subscription: SubscriptionRecord, partition: int) -> Cursor:
    """The cursor of a subscription in a partition."""
    cursor = draft.cursors.get((subscription.id, partition))
    assert cursor is not None, "a subscription has a cursor in each partition"
    return cursor


def _free_below(cursor: Cursor, end: int, now_ms: int) -> Ranges:
    return available(cursor, 0, end, live(cursor, now_ms))


def acknowledgement_of(
    draft: Draft | State, subscription: SubscriptionRecord, ends: Offsets, now_ms: int
) -> Acknowledgement | None:
    """The acknowledgement of all that is free below some offsets; None where nothing is."""
    parts = [
        PartitionRanges(partition, left)
        for partition, end in sorted(ends.items())
        if (left := _free_below(cursor_in(draft, subscription, partition), end, now_ms))
    ]
    return Acknowledgement(subscription.id, subscription.epoch, tuple(parts)) if parts else None


def expired(draft: Draft | State, topic: TopicRecord, ends: Offsets, now_ms: int) -> list[Acknowledgement]:
    """What has expired of a topic, by subscription: the messages below some offsets that nobody works on."""
    found = (acknowledgement_of(draft, item, ends, now_ms) for item in subscriptions_of(draft, topic.id))
    return [item for item in found if item is not None]


def expire(connection: Connection, topic: TopicRecord, ends: Offsets, now_ms: int) -> int:
    """Acknowledge what has expired of a topic, in one entry; how many messages that were, over all subscriptions.

    Args:
        connection: a handle that writes.
        topic: the topic, with the settings that the offsets come from.
        ends: by partition the offset behind the messages that are too old.
        now_ms: the time of the log at which they are.
    """
    if not ends or not connection.follower.look(lambda state: expired(state, topic, ends, now_ms)):
        return 0
    (number,) = connection.appender.take_numbers()
    try:
        count = connection.appender.call(_Expiry(number, topic, ends, now_ms).command())
    except (TransactionConflict, LimitExceeded) as error:
        _logger.info("messages of %r have not expired yet: %s", topic.name, error.message)
        return 0
    _logger.info("%d messages of %r have expired", count, topic.name)
    return count


class _Expiry:
    """Acknowledges what has expired, outside of transactions."""

    def __init__(self, number: int, topic: TopicRecord, ends: Offsets, now_ms: int) -> None:
        self._number = number
        self._topic = topic
        self._ends = ends
        self._now_ms = now_ms
        self._count = 0  # as it was decided the last time

    def command(self) -> Simple[int]:
        """What the log is asked for: how many messages it were."""
        return Simple(self._decide, lambda _draft, _at: self._count, txn_ids=(self._number,))

    def _decide(self, draft: Draft, at: Header) -> Sequence[AnyAction] | Answer[int]:
        if draft.outcomes.get(self._number) is not None:
            return Answer(self._count, settled=True)
        if at.timestamp_ms < self._now_ms:
            return Answer(0)
        topic = draft.topics.get(self._topic.id)
        ttl_ms = MESSAGE_TTL_MS.of(self._topic.properties)
        if topic is None or topic.dropped or MESSAGE_TTL_MS.of(topic.properties) != ttl_ms:
            return Answer(0)
        found = expired(draft, topic, self._ends, at.timestamp_ms)
        self._count = sum(
            ranges.size(ranges.subtract(part.ranges, ((0, draft.start_of(topic.id, part.partition)),)))
            for item in found
            for part in item.ranges
        )
        return [Commit(self._number, "", (), tuple(found))] if found else Answer(0)


__all__ = ["Offsets", "acknowledgement_of", "cursor_in", "expire", "expired"]
