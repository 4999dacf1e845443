"""Clocks that go wrong while their process runs."""

from __future__ import annotations

import pytest

from tests.client.support import SCHEMA, Place, raises, read, rows
from txnlog.errors import ClockSkew
from txnlog.runtime import SystemClock

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
