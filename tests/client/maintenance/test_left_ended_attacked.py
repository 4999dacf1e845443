"""What compaction notes of messages without a value that it left must hold for all that lies below what was done."""

from __future__ import annotations

import pytest

from tests.client.maintenance.prices import DAY_MS, compacted_topic, put, shown
from tests.client.support import Place
from txnlog.maintenance.compaction import Compaction
from txnlog.testing import ManualClock

START_MS = 1_700_000_000_000


def removed(ns) -> list[int]:
    return [item.removed_messages for item in ns.maintain().compacted]


def test_a_subscription_that_comes_later_makes_nobody_forget_what_waits(memory: Place) -> None:
    """Stands still: the message that ended "a" stays for ever, though nobody needs it any more.

    The pass that the time of "a" asks for sees nothing below the new subscription's position, and notes that nothing
    is left that ended its key; below what was done nothing is new, so that no maintenance looks again.
    """
    clock = ManualClock(START_MS)
    ns = compacted_topic(memory.open(clock=clock), compact_unacknowledged=False)
    put(ns, *[(f"k{key}", 1) for key in range(50)], ("a", 1), ("a", None))
    ns.compact("prices")
    ns.create_subscription("prices", "audit", start="earliest")
    clock.advance(2 * DAY_MS)
    assert removed(ns) in ([], [0])
    with ns.consumer("prices", subscription="audit") as consumer:
        while len(messages := consumer.receive(timeout_ms=0)):
            consumer.acknowledge(messages)
    for _ in range(5):
        clock.advance(2 * DAY_MS)
        ns.maintain()
    assert "a" not in [row[2] for row in shown(ns)]


def test_a_lag_that_was_raised_for_a_time_makes_nobody_forget_what_waits(memory: Place) -> None:
    """Stands still: as above, by ``min_compaction_lag_ms`` altered between two passes."""
    clock = ManualClock(START_MS)
    ns = compacted_topic(memory.open(clock=clock))
    put(ns, *[(f"k{key}", 1) for key in range(50)], ("a", 1), ("a", None))
    ns.compact("prices")
    ns.alter_topic("prices", min_compaction_lag_ms=10 * DAY_MS)
    clock.advance(2 * DAY_MS)
    ns.maintain()
    ns.alter_topic("prices", min_compaction_lag_ms=0)
    for _ in range(5):
        clock.advance(2 * DAY_MS)
        ns.maintain()
    assert "a" not in [row[2] for row in shown(ns)]


def test_who_was_overtaken_does_not_say_that_nothing_is_left(memory: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """Stands still: the note of a compaction that saw less overwrites that of one that saw more."""
    clock = ManualClock(START_MS)
    ns, other = compacted_topic(memory.open(clock=clock)), memory.open(clock=clock)
    put(ns, *[(f"k{key}", 1) for key in range(50)])
    looked_at = Compaction._looked_at
    once = [1]

    def overtaken(self, found):
        decision = looked_at(self, found)
        if once:
            once.clear()
            put(other, ("a", None))
            other.compact("prices")
        return decision

    monkeypatch.setattr(Compaction, "_looked_at", overtaken)
    ns.compact("prices")
    for _ in range(5):
        clock.advance(2 * DAY_MS)
        ns.maintain()
    assert "a" not in [row[2] for row in shown(ns)]
