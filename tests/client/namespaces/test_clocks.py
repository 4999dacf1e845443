"""Clocks that go wrong while their process runs."""

from __future__ import annotations

import itertools
from typing import Any

import pytest

from tests.client.support import SCHEMA, Place, begun, holding, raises, read, received, rows, take
from txnlog.common.format_limits import MAX_TIME_MS
from txnlog.engine.runtime import SystemClock
from txnlog.errors import ClockSkew, Durable, InvalidInputError, OutcomeUnknown, StoreError
from txnlog.testing import ManualClock

TWO_HOURS_MS = 7_200_000


def test_a_clock_that_cannot_be_checked_leaves_no_call_unknown(memory: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """The file that was put to learn the store's time may be there; of what was called nothing was sent."""
    ns = memory.open()

    def put(_store: Any, _key: str, _data: bytes) -> None:
        raise StoreError("connection dropped", durable=Durable.MAYBE)

    with monkeypatch.context() as patched:
        patched.setattr(type(ns._connection.session.requests), "put", put)
        with raises(StoreError) as failure:
            ns.create_topic("orders", SCHEMA)
    assert failure.value.durable is Durable.NOTHING
    ns.create_topic("orders", SCHEMA)


@pytest.mark.clause("P-205")
def test_a_clock_that_was_ahead_for_a_moment_keeps_nobody_waiting_for_the_end_of_others(
    memory: Place, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By that clock a transaction is overdue, by the log it is not: there is nothing to end."""
    ns = memory.orders(1, clock=clock)
    consumer = ns.consumer("orders", "billing")
    holder = holding(ns, take(consumer), flush=True, timeout_ms=60_000)
    runtime = ns._connection.runtime
    honest, asked = runtime.now_ms, itertools.count()

    def ahead_at_first() -> int:
        looks = next(asked)
        assert looks < 100, "it asks again and again"
        return int(honest() + (TWO_HOURS_MS if looks < 2 else 0))

    monkeypatch.setattr(runtime, "now_ms", ahead_at_first)
    assert not received(consumer)
    assert ns.transaction(holder.id).state == "OPEN"


@pytest.mark.parametrize(("ahead_ms", "shown"), [(300_000, None), (301_000, "5 minutes"), (30 * 86_400_000, "30 days")])
def test_who_writes_hears_once_that_the_time_of_the_log_is_ahead(
    memory: Place, clock: ManualClock, caplog: pytest.LogCaptureFixture, ahead_ms: int, shown: str | None
) -> None:
    """The clock of one client was wrong for one commit: no lease of a worker that dies ends before that time."""
    ns = memory.orders(0, clock=clock)
    ns.create_subscription("orders", "work", type="shared", lease_ms="5s")
    clock.advance(ahead_ms)
    ns.produce("orders", rows(1))
    clock.advance(-ahead_ms)
    caplog.clear()

    def said() -> list[str]:
        return [item.getMessage() for item in caplog.records if item.name == "txnlog.clock"]

    memory.open(clock=clock).snapshot()
    assert said() == []  # who only reads takes no leases
    worker = memory.open(clock=clock).consumer("orders", "work")
    assert len(take(worker)) == 2
    assert len(said()) == (shown is not None)
    assert shown is None or f"is {shown} ahead" in said()[0]
    take(worker)
    assert len(said()) <= 1

    clock.advance(6_000)  # the worker died
    other = memory.open(clock=clock)
    heir = other.consumer("orders", "work")
    assert not received(heir)
    heir.seek({item.partition: item.cursor for item in other.lag("orders", "work")})  # the way out of the page
    assert received(heir) == [0, 1]


def test_a_transaction_that_nobody_ends_in_a_log_whose_time_is_ahead_is_ended_by_hand(
    memory: Place, clock: ManualClock
) -> None:
    ns = memory.orders(0, clock=clock)
    clock.advance(30 * 86_400_000)
    ns.produce("orders", rows(1))
    clock.advance(-30 * 86_400_000)
    consumer = ns.consumer("orders", "billing")
    txn = holding(ns, take(consumer), flush=True, timeout_ms=1_000)
    clock.advance(60_000)
    other = memory.open(clock=clock)
    other.produce("orders", rows(2))
    assert other.transaction(txn.id).state == "OPEN"
    other.abort(txn.id)
    assert received(other.consumer("orders", "billing", takeover=True)) == [0, 1, 2]


def test_a_clock_that_keeps_its_pace_is_looked_at_once(memory: Place) -> None:
    ns = memory.orders()
    before = ns.store_requests
    ns.produce("orders", rows(1))
    assert ns.store_requests["put", "probe"] == before["put", "probe"] > 0


@pytest.mark.clause("P-76")
@pytest.mark.parametrize("leased", [0, 2])
def test_a_client_behind_the_log_judges_leases_by_the_time_of_the_log(
    memory: Place, clock: ManualClock, leased: int
) -> None:
    ns = memory.orders(clock=clock)
    ns.create_subscription("orders", "billing", type="shared", lease_ms=10_000)
    ns.produce("orders", rows(1, 2))
    received(ns.consumer("orders", "billing"))
    behind = memory.open(clock=ManualClock(clock.now_ms() - 60_000), mode="r")
    clock.advance(9_999 if leased else 10_000)
    ns.produce("orders", rows(3))
    assert behind.subscription("orders", "billing").leased == leased
    assert [item.leased for item in behind.lag("orders", "billing")] == [leased]


class GivenClock:
    """A clock as a user may write one."""

    def __init__(self, now_ms: Any) -> None:
        self.time = now_ms

    def now_ms(self) -> Any:
        return self.time


NO_TIMES = [1_767_225_600_000.5, 1_767_225_600_001.0, -1, MAX_TIME_MS + 1, 2**63, True, None]


@pytest.mark.clause("P-18", "P-22")
@pytest.mark.parametrize("now_ms", NO_TIMES)
def test_a_clock_that_gives_no_milliseconds_is_refused_before_anything_is_written(
    memory: Place, clock: ManualClock, now_ms: Any
) -> None:
    with raises(InvalidInputError, match="the clock gives"):
        memory.open("new", clock=GivenClock(now_ms))
    _ns = memory.orders(namespace="new", clock=clock)
    wrong = GivenClock(clock.now_ms())
    other = memory.open("new", clock=wrong)
    wrong.time = now_ms
    with raises(InvalidInputError, match="the clock gives"):
        other.produce("orders", rows(1))
    wrong.time = clock.now_ms()
    other.produce("orders", rows(2))
    assert read(memory.open("new", clock=clock)) == [2]


@pytest.mark.clause("P-22")
def test_the_last_time_that_a_log_can_have_is_one_that_everybody_can_show(memory: Place) -> None:
    ns = memory.orders(1, clock=ManualClock(MAX_TIME_MS))
    assert take(ns.consumer("orders", "billing")).table["_timestamp"][0].as_py().year == 9999
    assert ns.snapshot().read("orders", include_metadata=True)["_timestamp"][0].as_py().year == 9999


@pytest.mark.clause("P-112")
@pytest.mark.parametrize("when", ["before", "race", "doubt"])
def test_a_clock_that_jumps_while_an_append_is_under_way_does_not_drag_the_log_along(
    memory: Place, monkeypatch: pytest.MonkeyPatch, when: str
) -> None:
    ns, store = memory.faulty()
    other = memory.open()
    ns.create_topic("orders", SCHEMA)
    honest = SystemClock.now_ms
    txn = begun(other, 1, flush=True)

    def jump() -> None:
        monkeypatch.setattr(SystemClock, "now_ms", lambda clock: honest(clock) + TWO_HOURS_MS)

    def lose() -> None:
        other.produce("orders", rows(7))
        jump()

    if when == "before":
        jump()
    elif when == "race":
        store.script.append(lose)
    else:
        ns._connection.follower.refresh()  # else its first race is lost, and another one may bring what it proposes
        ns._connection.appender.create_attempts = 1
        store.forever = "dropped"
        with raises(OutcomeUnknown, durable=Durable.MAYBE):
            ns.produce("orders", rows(9))
        store.heal()
        store.script.append(jump)
    with raises(ClockSkew, match="ahead"):
        ns.produce("orders", rows(2))
    monkeypatch.setattr(SystemClock, "now_ms", honest)
    assert txn.commit().version
    assert ns.produce("orders", rows(3)).version
