"""When maintenance compacts: half is new, or messages without a value have had their time; never all the time."""

from __future__ import annotations

from typing import Any

from tests.client.maintenance.prices import DAY_MS, compacted_topic, put, shown
from tests.client.support import Place
from txnlog.api.namespace import Namespace
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
