"""Clocks that go wrong while their process runs."""

from __future__ import annotations

import pytest

from tests.client.support import SCHEMA, Place, raises, read, received, rows
from txnlog.errors import ClockSkew
from txnlog.runtime import SystemClock
from txnlog.testing import ManualClock

TWO_HOURS_MS = 7_200_000


@pytest.mark.clause("P-112")
def test_a_clock_that_jumps_ahead_after_the_first_append_does_not_drag_the_log_along(
    memory: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    ns, other = memory.open(), memory.open()
    ns.create_topic("orders", SCHEMA)
    honest = SystemClock.now_ms
    txn = other.begin()
    txn.produce("orders", rows(1))
    txn.flush()
    monkeypatch.setattr(SystemClock, "now_ms", lambda clock: honest(clock) + TWO_HOURS_MS)
    with raises(ClockSkew, match="ahead"):
        ns.produce("orders", rows(2))
    monkeypatch.setattr(SystemClock, "now_ms", honest)
    txn.commit()
    ns.produce("orders", rows(3))
    assert read(other) == [1, 3]


def test_a_clock_that_keeps_its_pace_is_looked_at_once(memory: Place) -> None:
    ns = memory.open()
    ns.create_topic("orders", SCHEMA)
    before = ns.store_requests
    ns.produce("orders", rows(1))
    assert ns.store_requests["put", "root"] == before["put", "root"] > 0


@pytest.mark.clause("P-76")
@pytest.mark.parametrize("leased", [0, 2])
def test_a_client_behind_the_log_tells_leases_by_the_time_of_the_log(
    memory: Place, clock: ManualClock, leased: int
) -> None:
    ns = memory.open(clock=clock)
    ns.create_topic("orders", SCHEMA)
    ns.create_subscription("orders", "billing", type="shared", lease_ms=10_000)
    ns.produce("orders", rows(1, 2))
    received(ns.consumer("orders", "billing"))
    behind = memory.open(clock=ManualClock(clock.now_ms() - 60_000), mode="r")
    clock.advance(9_999 if leased else 10_000)
    ns.produce("orders", rows(3))
    assert behind.subscription("orders", "billing").leased == leased
    assert [item.leased for item in behind.lag("orders", "billing")] == [leased]
