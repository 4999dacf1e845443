"""Known bugs of deleting messages, and of letting them expire, planted as those of ``planted.py`` are."""

from __future__ import annotations

from typing import Any, Final

import pytest

from tests.sim.planted import Mutant
from txnlog.api import snapshot
from txnlog.client import positions
from txnlog.common import ranges
from txnlog.fold.state import TopicRecord
from txnlog.format.retention import RETENTION_MS
from txnlog.log.follower import Follower
from txnlog.maintenance import expiry, retention
from txnlog.maintenance.ages import older_than


def retention_passes_cursors(patch: pytest.MonkeyPatch) -> None:
    """What a topic's settings delete is not kept for subscriptions."""
    patch.setattr(retention._Needs, "free", lambda _needs, moved: moved)


def deleted_by_hand_unasked(patch: pytest.MonkeyPatch) -> None:
    """Whoever deletes by hand hears of no subscription."""
    patch.setattr(retention, "_refuse", lambda _draft, _topic, moved: moved)


def deleted_messages_are_read(patch: pytest.MonkeyPatch) -> None:
    """Snapshots show what was deleted as long as a file has it."""

    class Unmoved:
        """Positions, with all earliest offsets at zero."""

        end_offsets = staticmethod(positions.end_offsets)

        @staticmethod
        def start_offsets(_follower: Follower, topic: TopicRecord) -> dict[int, int]:
            return dict.fromkeys(range(topic.partitions), 0)

    patch.setattr(snapshot, "positions", Unmoved)


def leased_messages_expire(patch: pytest.MonkeyPatch) -> None:
    """Whoever works on a message of a Shared subscription is not asked."""
    patch.setattr(expiry, "live", lambda _cursor, _now_ms: ranges.EMPTY)


def one_more_expires(patch: pytest.MonkeyPatch) -> None:
    """With what is old enough the first message that is not."""
    too_old = retention._too_old

    def more(connection: Any, topic: TopicRecord, times: Any) -> dict[int, int]:
        ends = positions.end_offsets(connection.follower, topic, connection.follower.version)
        return {p: min(end + 1, ends[p]) for p, end in too_old(connection, topic, times).items()}

    patch.setattr(retention, "_too_old", more)


def what_is_to_be_deleted_expires(patch: pytest.MonkeyPatch) -> None:
    """Where no age is set at which messages expire, the one at which they are deleted counts."""
    too_old = retention._too_old

    def either(connection: Any, topic: TopicRecord, times: Any) -> dict[int, int]:
        found = too_old(connection, topic, times)
        return found or older_than(connection, topic, RETENTION_MS.of(topic.properties), times)

    patch.setattr(retention, "_too_old", either)


RETENTION_MUTANTS: Final = (
    Mutant("retention passes cursors", retention_passes_cursors, ("writer", "pipeline"), workload="retained"),
    Mutant("deleted by hand, and nobody asked", deleted_by_hand_unasked, ("writer", "pipeline"), workload="retained"),
    Mutant("deleted messages are read", deleted_messages_are_read, ("writer", "reader"), workload="retained"),
    Mutant("leased messages expire", leased_messages_expire, ("writer", "shared"), workload="expired"),
    Mutant("one message more expires", one_more_expires, ("writer", "pipeline"), workload="expired"),
    Mutant("what is to be deleted expires", what_is_to_be_deleted_expires, ("writer", "pipeline"), workload="expired"),
)
