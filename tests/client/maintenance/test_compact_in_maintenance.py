"""When maintenance compacts: half is new, or messages without a value have had their time; never all the time."""

from __future__ import annotations

from typing import Any

import pytest

from tests.client.maintenance.prices import DAY_MS, compacted_topic, put, shown
from tests.client.support import Place
from txnlog.api.namespace import Namespace
from txnlog.format.compaction import left_ended
from txnlog.maintenance import compaction
from txnlog.testing import ManualClock

START_MS = 1_700_000_000_000
HOUR_MS = 3_600_000


def topic_with_many_keys(place: Place, clock: ManualClock, **settings: Any) -> Namespace:
    """What comes later is less than half of it."""
    ns = compacted_topic(place.open(clock=clock), **settings)
    put(ns, *[(f"k{key}", 1) for key in range(2_000)])
    assert ns.maintain().compacted
    return ns


def removed(ns: Namespace) -> list[int]:
    return [item.removed_messages for item in ns.maintain().compacted]


def test_a_message_without_a_value_that_compaction_left_goes_when_its_time_is_over(place: Place) -> None:
    clock = ManualClock(START_MS)
    ns = topic_with_many_keys(place, clock)
    put(ns, ("k0", None), ("k1", None))
    ns.compact("prices")
    clock.advance(DAY_MS - 1)
    assert removed(ns) == []
    clock.advance(1)
    assert removed(ns) == [2]
    clock.advance(10 * DAY_MS)
    assert removed(ns) == []
    assert len(shown(ns)) == 1_998


def test_one_that_compaction_never_saw_goes_as_well(place: Place) -> None:
    clock = ManualClock(START_MS)
    ns = topic_with_many_keys(place, clock)
    clock.advance(HOUR_MS)
    put(ns, ("k0", None))
    ns.checkpoint()
    clock.advance(DAY_MS - 1)
    assert removed(ns) == []
    clock.advance(1)
    assert removed(ns) == [2]
    assert removed(ns) == []


def test_new_messages_with_values_are_no_reason(memory: Place) -> None:
    clock = ManualClock(START_MS)
    ns = topic_with_many_keys(memory, clock)
    put(ns, ("k0", 2), ("k1", 2))
    clock.advance(3 * DAY_MS)
    assert removed(ns) == []


def test_a_topic_without_statistics_is_looked_at_once_in_that_time(memory: Place) -> None:
    clock = ManualClock(START_MS)
    ns = topic_with_many_keys(memory, clock, statistics="off")
    put(ns, ("k0", 2))
    clock.advance(DAY_MS)
    assert removed(ns) == [1]
    clock.advance(3 * DAY_MS)
    assert removed(ns) == []


def test_a_trickle_of_such_messages_makes_one_compaction_in_that_time(memory: Place) -> None:
    clock = ManualClock(START_MS)
    ns = topic_with_many_keys(memory, clock, delete_retention_ms=DAY_MS)
    compactions = 0
    for hour in range(4 * 24):
        put(ns, (f"k{hour}", None))
        clock.advance(HOUR_MS)
        compactions += len(ns.maintain().compacted)
    assert compactions == 4
    assert len(shown(ns)) < 2_000 - 24


def test_a_short_time_makes_no_more_than_one_in_an_hour(memory: Place) -> None:
    clock = ManualClock(START_MS)
    ns = topic_with_many_keys(memory, clock, delete_retention_ms=0)
    compactions = 0
    for minute in range(120):
        put(ns, (f"k{minute}", None))
        clock.advance(60_000)
        compactions += len(ns.maintain().compacted)
    assert compactions == 2


def test_what_a_subscription_needs_is_no_reason_again_and_again(memory: Place) -> None:
    clock = ManualClock(START_MS)
    ns = topic_with_many_keys(memory, clock, compact_unacknowledged=False)
    ns.create_subscription("prices", "audit", start="latest")
    put(ns, *[(f"k{key}", None) for key in range(5)])
    clock.advance(2 * DAY_MS)
    assert removed(ns) == []
    compactions = 0
    with ns.consumer("prices", subscription="audit") as consumer:
        messages = consumer.receive()
        for place in range(len(messages)):
            consumer.acknowledge(messages[place])
            compactions += len(ns.maintain().compacted)
    assert compactions == 1


def test_compacting_again_notes_nothing(memory: Place) -> None:
    clock = ManualClock(START_MS)
    ns = topic_with_many_keys(memory, clock)
    put(ns, ("k0", None))
    ns.compact("prices")
    version = ns.snapshot().version
    clock.advance(HOUR_MS)
    assert ns.compact("prices").entries == 0
    assert ns.snapshot().version == version


def lasting(ns: Namespace, clock: ManualClock, days: int = 10) -> bool:
    """Whether the message that ended "a" is there after some days of maintenance."""
    for _ in range(days // 2):
        clock.advance(2 * DAY_MS)
        ns.maintain()
    return "a" in [row[2] for row in shown(ns)]


@pytest.mark.parametrize("acknowledged", [0, 10])
def test_a_subscription_that_comes_later_makes_nobody_forget_what_waits(memory: Place, acknowledged: int) -> None:
    """The pass that the time of "a" asks for does not see it, since the new subscription needs it."""
    clock = ManualClock(START_MS)
    ns = compacted_topic(memory.open(clock=clock), compact_unacknowledged=False)
    put(ns, *[(f"k{key}", 1) for key in range(50)], ("a", 1), ("a", None))
    ns.compact("prices")
    ns.create_subscription("prices", "audit", start="earliest")
    with ns.consumer("prices", subscription="audit") as consumer:
        consumer.acknowledge(consumer.receive()[:acknowledged])
    clock.advance(2 * DAY_MS)
    assert removed(ns) == [0]
    with ns.consumer("prices", subscription="audit") as consumer:
        while len(messages := consumer.receive(timeout_ms=0)):
            consumer.acknowledge(messages)
    assert not lasting(ns, clock)


def test_a_lag_that_was_raised_for_a_time_makes_nobody_forget_what_waits(memory: Place) -> None:
    clock = ManualClock(START_MS)
    ns = compacted_topic(memory.open(clock=clock))
    put(ns, *[(f"k{key}", 1) for key in range(50)], ("a", 1), ("a", None))
    ns.compact("prices")
    ns.alter_topic("prices", min_compaction_lag_ms=10 * DAY_MS)
    clock.advance(2 * DAY_MS)
    ns.maintain()
    ns.alter_topic("prices", min_compaction_lag_ms=0)
    assert not lasting(ns, clock)


def test_what_was_deleted_waits_for_nothing(memory: Place) -> None:
    """No maintenance reads the topic again for messages without a value that are behind nobody any more."""
    clock = ManualClock(START_MS)
    ns = compacted_topic(memory.open(clock=clock))
    put(ns, ("a", 1), ("a", None))
    ns.compact("prices")
    assert left_ended(ns._connection.topic_record("prices").properties) is True
    ns.delete_records("prices", {0: 2})
    ns.optimize("prices")
    ns.compact("prices")
    assert left_ended(ns._connection.topic_record("prices").properties) is False


@pytest.mark.parametrize(("kept_ms", "longest_ms"), [(10 * 60_000, 10 * 60_000 + HOUR_MS), (DAY_MS, 2 * DAY_MS)])
def test_such_a_message_goes_after_twice_its_time_or_an_hour_behind_it(
    memory: Place, kept_ms: int, longest_ms: int
) -> None:
    """As docs/operations/retention.md says: what others put, and what is compacted for it, changes nothing of that."""
    clock = ManualClock(START_MS)
    ns = topic_with_many_keys(memory, clock, delete_retention_ms=kept_ms)
    put(ns, ("a", None))
    clock.advance(kept_ms - 1)
    ns.compact("prices")  # a moment too early, so that the next one is as late as it may be
    assert "a" in [row[2] for row in shown(ns)]
    for _ in range((longest_ms - kept_ms) // (5 * 60_000)):
        clock.advance(5 * 60_000)
        ns.maintain()
    clock.advance(1)
    ns.maintain()
    assert "a" not in [row[2] for row in shown(ns)]


def test_maintenance_goes_on_with_what_one_call_left(memory: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """Segments that are not merged, more keys than a pass takes, a bound on each call: soon less than half is new."""
    monkeypatch.setattr(compaction, "_MOST_KEYS", 10)
    ns = compacted_topic(memory.open())
    for number in range(20):
        put(ns, *[(f"{number}-{key}", 1) for key in range(10)])
    put(ns, *[("5-0", 2)] * 10)
    finished: list[bool] = []
    while not (finished and finished[-1]) and len(finished) < 40:
        finished.append(ns.maintain(max_bytes=5_000, target_size_bytes=64).finished)
    assert len(finished) > 3
    assert finished[-1]
    assert [row[1] for row in shown(ns) if row[2] == "5-0"] == [209]
    put(ns, ("x", 1))
    assert not ns.maintain().compacted, "a topic that is compacted as a whole waits until half is new"


def test_one_pass_is_done_however_little_may_be_read(memory: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compaction, "_MOST_KEYS", 2)
    ns = compacted_topic(memory.open())
    for number in range(3):
        put(ns, ("a", number), ("b", number))
    done = [ns.compact("prices", max_bytes=0) for _ in range(4)]
    assert [(item.removed_messages, item.finished) for item in done] == [(0, False), (2, False), (2, True), (0, True)]
