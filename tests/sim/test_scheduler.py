"""The scheduler: virtual time, one order, actors that pause and crash as whole processes."""

from __future__ import annotations

import builtins
from typing import Any

import pytest

from txnlog.errors import InvalidInputError
from txnlog.testing.faults import NO_FAULTS
from txnlog.testing.scheduler import START_MS, Actor, Crashed, Scheduler
from txnlog.testing.simulated_runtime import SimulatedRuntime
from txnlog.testing.simulated_store import SimulatedStore


def test_tasks_run_in_the_order_of_virtual_time():
    scheduler, seen = Scheduler(1), []

    def work(name: str, pauses: list[float]) -> None:
        for pause in pauses:
            scheduler.sleep(pause)
            seen.append((name, scheduler.now_ms))

    Actor(scheduler, "a").start(lambda: work("a", [10, 10]), "main")
    Actor(scheduler, "b").start(lambda: work("b", [5, 10]), "main")
    scheduler.run()
    assert seen == [("b", 5), ("a", 10), ("b", 15), ("a", 20)]


def test_a_paused_actor_stands_still_with_all_its_tasks_and_loses_nothing():
    scheduler, seen = Scheduler(1), []
    actor = Actor(scheduler, "a")

    def work(name: str) -> None:
        scheduler.sleep(10)
        seen.append((name, scheduler.now_ms))

    actor.start(lambda: work("one"), "main")
    actor.start(lambda: work("two"), "background")
    scheduler.after(5, lambda: actor.pause(1_000))
    scheduler.run()
    assert seen == [("one", 1_005), ("two", 1_005)]


def test_a_crashed_actor_unwinds_without_seeing_anything_more():
    scheduler, seen = Scheduler(1), []
    actor = Actor(scheduler, "a")

    def work() -> None:
        try:
            scheduler.sleep(10)
            seen.append("went on")
        except Crashed:
            seen.append("unwound")
            with pytest.raises(Crashed):
                actor.check_alive()
            raise

    task = actor.start(work, "main")
    scheduler.after(5, lambda: scheduler.crash(actor))
    scheduler.run()
    assert seen == ["unwound"]
    assert not task.is_alive()
    assert task.error is None


def test_an_actor_may_crash_itself_and_takes_its_other_tasks_along():
    scheduler, seen = Scheduler(1), []
    actor = Actor(scheduler, "a")

    def crash() -> None:
        scheduler.crash(actor)
        seen.append("came back")

    actor.start(lambda: scheduler.sleep(100), "background")
    actor.start(crash, "main")
    late = actor.start(lambda: seen.append("began after the crash"), "late")
    scheduler.run()
    assert seen == []
    assert not late.is_alive()


def test_a_task_that_fails_is_reported_and_harms_no_other():
    failed: list[object] = []
    seen: list[None] = []
    scheduler = Scheduler(1, on_error=lambda task, error: failed.append((task.name, type(error))))
    Actor(scheduler, "a").start(lambda: seen[7], "main")
    Actor(scheduler, "b").start(lambda: seen.append(None), "main")
    scheduler.run()
    assert failed == [("main", IndexError)]
    assert seen == [None]


def test_tasks_of_one_actor_wait_for_each_other():
    scheduler = Scheduler(1)
    actor = Actor(scheduler, "a")
    ready: list[int] = []
    seen: list[object] = []

    def first() -> None:
        scheduler.wait_for(lambda: bool(ready))
        seen.append(scheduler.now_ms)

    def second() -> None:
        scheduler.sleep(30)
        ready.append(1)

    actor.start(first, "first")
    task = actor.start(second, "second")

    def third() -> None:
        task.join()
        seen.append("joined")

    actor.start(third, "third")
    scheduler.run()
    assert seen == [30, "joined"]


def test_tasks_wait_for_each_other_at_an_inbox():
    scheduler, seen = Scheduler(1), []
    actor = Actor(scheduler, "a")
    runtime = SimulatedRuntime(actor, SimulatedStore(scheduler, NO_FAULTS), trusts_clock=True)
    inbox = runtime.inbox()

    def wait() -> None:
        seen.extend([inbox.take(5), scheduler.now_ms])
        seen.extend([inbox.take(None), scheduler.now_ms])

    def work() -> None:
        actor.start(wait, "waiter")
        runtime.sleep_ms(10)
        inbox.put("item")

    actor.start(work, "main")
    scheduler.run()
    assert seen == [None, 5, "item", 10]


def test_a_run_that_makes_no_progress_comes_to_an_end():
    scheduler = Scheduler(1)

    def work() -> None:
        while True:
            scheduler.sleep(1)

    actor = Actor(scheduler, "a")
    actor.start(work, "main")
    assert not scheduler.run(most_events=100)
    scheduler.crash(actor)
    scheduler.run()


def test_a_clock_is_skewed_and_stops_without_touching_virtual_time():
    scheduler = Scheduler(1)
    actor, other = Actor(scheduler, "a"), Actor(scheduler, "b")
    actor.skew_ms = -500
    assert actor.clock_ms() == START_MS - 500
    actor.stopped_at_ms = actor.clock_ms()
    scheduler.after(1_000, lambda: None)
    scheduler.run()
    assert actor.clock_ms() == START_MS - 500
    assert other.clock_ms() == START_MS + 1_000


def test_all_chance_of_a_runtime_comes_from_the_seed():
    def drawn(seed: int) -> list[object]:
        scheduler = Scheduler(seed)
        actor = Actor(scheduler, "a")
        runtime = SimulatedRuntime(actor, SimulatedStore(scheduler), trusts_clock=True)
        found: list[object] = []
        calls = [lambda number=number: found.append(number) for number in range(5)]
        actor.start(lambda: found.extend([runtime.unique(), runtime.jitter(10), runtime.run_all(calls)]), "main")
        scheduler.run()
        return found

    assert drawn(7) == drawn(7)
    assert drawn(7) != drawn(8)


def test_calls_side_by_side_all_end_and_the_first_error_is_raised():
    scheduler, seen = Scheduler(1), []
    actor = Actor(scheduler, "a")
    runtime = SimulatedRuntime(actor, SimulatedStore(scheduler), trusts_clock=True)

    def fail(name: str) -> None:
        seen.append(name)
        raise ValueError(name)

    def work() -> None:
        with pytest.raises(ValueError, match="one"):
            runtime.run_all([lambda: fail("one"), lambda: fail("two"), lambda: seen.append("three")])

    actor.start(work, "main")
    scheduler.run()
    assert sorted(seen) == ["one", "three", "two"]


def test_the_trace_hash_distinguishes_runs():
    def trace(seed: int) -> str:
        scheduler = Scheduler(seed)
        scheduler.trace("drew", scheduler.chance.random())
        return scheduler.trace_hash()

    assert trace(1) == trace(1)
    assert trace(1) != trace(2)


def test_without_greenlet_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch):
    real = builtins.__import__

    def missing(name: str, *arguments: Any, **options: Any) -> Any:
        if name == "greenlet":
            raise ImportError(name)
        return real(name, *arguments, **options)

    monkeypatch.setattr(builtins, "__import__", missing)
    with pytest.raises(InvalidInputError, match=r"pip install txnlog\[testing\]"):
        Scheduler(1)
