"""Known bugs of deleting messages, planted as those of ``planted.py`` are."""

from __future__ import annotations

from typing import Final

import pytest

from tests.sim.planted import Mutant
from txnlog.api import snapshot
from txnlog.client import positions
from txnlog.fold.state import TopicRecord
from txnlog.log.follower import Follower
from txnlog.maintenance import retention


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


RETENTION_MUTANTS: Final = (
    Mutant("retention passes cursors", retention_passes_cursors, ("writer", "pipeline"), workload="retained"),
    Mutant("deleted by hand, and nobody asked", deleted_by_hand_unasked, ("writer", "pipeline"), workload="retained"),
    Mutant("deleted messages are read", deleted_messages_are_read, ("writer", "reader"), workload="retained"),
)
