"""Retention by a clock that is ahead for a moment: the time of the entry counts, by which everybody else goes."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import pytest

import txnlog
from txnlog.maintenance import retention
from txnlog.testing import ManualClock

MINUTE_MS = 60_000
_roots = itertools.count()


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock(1_767_225_600_000)


@pytest.fixture
def ns(clock: ManualClock) -> Iterator[Any]:
    with txnlog.open(f"memory://retention-clocks-{next(_roots)}", namespace="sales", create=True, clock=clock) as found:
        found.create_topic("orders")
        found.produce("orders", [{"value": b"one"}])
        found.create_subscription("orders", "billing")
        yield found


def retained(ns: Any, clock: ManualClock, monkeypatch: pytest.MonkeyPatch) -> Any:
    """What is done by a clock that is an hour ahead until just before the entry is made."""
    appender = ns._connection.appender
    take_numbers = appender.take_numbers

    def come_right(*arguments: Any) -> Any:
        clock.advance(-60 * MINUTE_MS)
        return take_numbers(*arguments)

    clock.advance(60 * MINUTE_MS)
    with monkeypatch.context() as patch:
        patch.setattr(appender, "take_numbers", come_right)
        return retention.retain(ns._connection)


def test_nothing_expires_by_a_clock_that_was_ahead_for_a_moment(
    ns: Any, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    ns.alter_topic("orders", message_ttl_ms="30m")
    assert retained(ns, clock, monkeypatch) == ()
    assert ns.subscription("orders", "billing").cursors[0].cursor == 0
    clock.advance(31 * MINUTE_MS)
    (done,) = retention.retain(ns._connection)
    assert (done.expired_messages, ns.subscription("orders", "billing").cursors[0].cursor) == (1, 1)


def test_nothing_is_deleted_by_a_clock_that_was_ahead_for_a_moment(
    ns: Any, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    ns.alter_topic("orders", retention_ms="30m", retain_unacknowledged=False)
    assert retained(ns, clock, monkeypatch) == ()
    assert ns.snapshot().start_offsets("orders") == {0: 0}
    clock.advance(31 * MINUTE_MS)
    (done,) = retention.retain(ns._connection)
    assert (done.messages, ns.snapshot().start_offsets("orders")) == (1, {0: 1})
