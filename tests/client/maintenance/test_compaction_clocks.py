"""Key compaction by a clock that is ahead for a moment: the time of the entry counts, by which everybody else goes."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import pytest

import txnlog
from tests.client.maintenance.prices import compacted_topic, put, shown
from txnlog.testing import ManualClock

MINUTE_MS = 60_000
_roots = itertools.count()


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock(1_767_225_600_000)


@pytest.fixture
def ns(clock: ManualClock) -> Iterator[Any]:
    with txnlog.open(f"memory://compact-clocks-{next(_roots)}", namespace="sales", create=True, clock=clock) as found:
        yield found


def compacted(ns: Any, clock: ManualClock, monkeypatch: pytest.MonkeyPatch) -> Any:
    """What is done by a clock that is an hour ahead until just before the first entry is made."""
    appender = ns._connection.appender
    take_numbers = appender.take_numbers
    ahead = [1]

    def come_right(*arguments: Any) -> Any:
        if ahead:
            ahead.clear()
            clock.advance(-60 * MINUTE_MS)
        return take_numbers(*arguments)

    clock.advance(60 * MINUTE_MS)
    with monkeypatch.context() as patch:
        patch.setattr(appender, "take_numbers", come_right)
        done = ns.compact("prices")
    if ahead:
        clock.advance(-60 * MINUTE_MS)
    return done


def test_no_key_ends_by_a_clock_that_was_ahead_for_a_moment(
    ns: Any, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    compacted_topic(ns, delete_retention_ms="30m")
    put(ns, ("a", None), ("b", 1))
    before = shown(ns)
    done = compacted(ns, clock, monkeypatch)
    assert (done.removed_messages, done.lost_races, done.finished) == (0, 1, True)
    assert shown(ns) == before
    clock.advance(31 * MINUTE_MS)
    assert ns.compact("prices").removed_messages == 1


def test_nothing_is_compacted_that_was_old_enough_by_a_clock_that_was_ahead_for_a_moment(
    ns: Any, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    compacted_topic(ns, min_compaction_lag_ms="30m")
    put(ns, ("a", 1), ("a", 2))
    before = shown(ns)
    done = compacted(ns, clock, monkeypatch)
    assert (done.removed_messages, done.finished) == (0, True)
    assert shown(ns) == before
    clock.advance(31 * MINUTE_MS)
    assert ns.compact("prices").removed_messages == 1
