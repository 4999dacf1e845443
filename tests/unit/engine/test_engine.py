"""The engine: commands run step by step, interrupts hit waits only, and nothing is left without a thread."""

from __future__ import annotations

import gc
import threading
import time
import weakref
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import pytest

from tests.client.support import has_no_thread, wait_for
from tests.forks import in_child
from tests.interrupts import hearing_interrupts, interrupt_main_thread
from txnlog.engine import worker as module
from txnlog.engine.effects import Cancelled, Effect, Pause, Reply, Request, Requests, Result, Turn, Waiting
from txnlog.engine.engine import Engine, Task, engine_of_process
from txnlog.engine.worker import THREADS, do
from txnlog.errors import CalledInItsOwnWork, StoreError


def in_thread(work: Callable[[], Callable[[], None]]) -> None:
    threading.Thread(target=do, args=(work,), daemon=True).start()


@pytest.fixture
def engine(monkeypatch: pytest.MonkeyPatch) -> Iterator[Engine]:
    """An engine whose thread soon ends when it is idle."""
    monkeypatch.setattr(module, "_IDLE_MS", 20.0)
    made = Engine(THREADS)
    yield made
    wait_for(lambda: bool(made._worker._seat))


@pytest.fixture(autouse=True)
def _hearing_interrupts() -> Iterator[None]:
    with hearing_interrupts():
        yield


async def value_of(value: Any) -> Any:
    return value


async def raising(error: BaseException) -> None:
    raise error


# --- calls ------------------------------------------------------------------------------------------------------------


def test_a_call_gives_what_the_command_returns_or_raises(engine: Engine) -> None:
    assert engine.call(partial(value_of, 7)) == 7
    with pytest.raises(ZeroDivisionError):
        engine.call(partial(raising, ZeroDivisionError()))
    assert engine.look(lambda: threading.current_thread().name) == "txnlog-engine"


def test_a_look_from_a_command_is_a_plain_call_and_a_call_is_refused(engine: Engine) -> None:
    async def looking() -> int:
        return engine.look(lambda: 3)

    async def calling() -> None:
        engine.call(partial(value_of, 1))

    assert engine.call(looking) == 3
    with pytest.raises(CalledInItsOwnWork, match="called the client"):
        engine.call(calling)


def test_an_error_is_not_kept_in_memory_by_its_own_traceback(engine: Engine) -> None:
    class Mine(Exception):
        pass

    async def fail() -> None:
        raise Mine

    def failing() -> weakref.ref[Mine]:
        try:
            engine.call(fail)
        except Mine as error:
            return weakref.ref(error)
        raise AssertionError

    gc.disable()
    try:
        found = failing()
        engine.call(partial(value_of, 1))  # the engine's thread has gone on
        assert found() is None
    finally:
        gc.enable()


def test_a_command_runs_without_a_pause_up_to_what_it_awaits(engine: Engine) -> None:
    """Else a lock would be needed."""
    seen: list[tuple[str, int]] = []

    async def steps(name: str) -> None:
        for number in range(50):
            seen.append((name, number))
            seen.append((name, number))
            await Request(in_thread, lambda: None)

    threads = [threading.Thread(target=engine.call, args=(partial(steps, name),)) for name in "ab"]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(20)
    assert seen[::2] == seen[1::2], "the two steps of one command stand together"
    assert {name for name, _ in seen} == {"a", "b"}


def test_a_request_that_does_not_end_keeps_no_other_command_waiting(engine: Engine) -> None:
    release = threading.Event()

    async def blocked() -> bool:
        return await Request(in_thread, partial(release.wait, 20))

    ended: list[Any] = []
    engine.post(blocked, lambda result: ended.append(result.get()))
    assert engine.call(partial(value_of, 1)) == 1
    assert engine.keeps_process()
    assert not ended
    release.set()
    wait_for(lambda: ended == [True])
    assert not engine.keeps_process()


# --- effects ----------------------------------------------------------------------------------------------------------


def test_requests_give_their_results_in_order_and_the_first_error_when_all_have_ended(engine: Engine) -> None:
    ended: list[int] = []

    def one(number: int) -> int:
        time.sleep(0.002 * (5 - number))
        ended.append(number)
        if number in fails:
            raise ValueError(number)
        return number

    async def all_of_them() -> list[int]:
        return await Requests(in_thread, [partial(one, number) for number in range(5)])

    fails: set[int] = set()
    assert engine.call(all_of_them) == [0, 1, 2, 3, 4]
    fails = {1, 3}
    ended.clear()
    with pytest.raises(ValueError, match="1"):
        engine.call(all_of_them)
    assert sorted(ended) == [0, 1, 2, 3, 4]

    async def none() -> list[int]:
        return await Requests(in_thread, [])

    assert engine.call(none) == []


def test_pauses_end_in_the_order_of_their_time(engine: Engine) -> None:
    seen: list[int] = []

    async def after(milliseconds: int) -> None:
        await Pause(milliseconds)
        seen.append(milliseconds)

    for milliseconds in (60, 0, 30):
        engine.post(partial(after, milliseconds))
    wait_for(lambda: len(seen) == 3)
    assert seen == [0, 30, 60]


def test_a_command_gives_others_an_answer_once(engine: Engine) -> None:
    answer: Reply[int] = Reply()
    found: list[int] = []

    async def asking() -> None:
        found.append(await answer)

    for _ in range(2):
        engine.post(asking)
    engine.look(lambda: answer.give(1))
    engine.look(lambda: answer.give(2))
    engine.call(asking)
    wait_for(lambda: len(found) == 3)
    assert found == [1, 1, 1]


def test_commands_that_get_an_error_of_another_one_get_one_each(engine: Engine) -> None:
    answer: Reply[int] = Reply()
    found: list[StoreError] = []

    async def asking() -> None:
        try:
            await answer
        except StoreError as error:
            found.append(error)

    given = StoreError("x")
    for _ in range(2):
        engine.post(asking)
    engine.look(lambda: answer.give(None, given))
    for _ in range(2):
        engine.call(asking)
    assert [str(error) for error in found] == [str(given)] * 4
    assert len({id(error) for error in (given, *found)}) == 5
    assert given.__traceback__ is None


def test_an_effect_that_cannot_begin_ends_the_command_that_awaits_it(engine: Engine) -> None:
    """Its caller would wait for ever."""

    class Impossible(Effect[None]):
        def begin(self, waiting: Waiting) -> None:
            raise ValueError("cannot begin")

    async def awaiting() -> None:
        await Impossible()

    ended: list[Result[None]] = []
    engine.post(awaiting, ended.append)
    wait_for(lambda: bool(ended))
    with pytest.raises(ValueError, match="cannot begin"):
        ended[0].get()
    assert engine.call(partial(value_of, 1)) == 1


# --- interrupts -------------------------------------------------------------------------------------------------------


def test_the_interrupt_of_a_wait_ends_a_command_that_waits_for_time(engine: Engine) -> None:
    seen: list[str] = []

    async def waiting() -> None:
        interrupt_main_thread()
        try:
            await Pause(20_000)
        except Cancelled:
            seen.append("cancelled")
            await Pause(0)  # it is raised once: a command may bring something to its end
            seen.append("end")
            raise

    with pytest.raises(KeyboardInterrupt):
        engine.call(waiting)
    wait_for(lambda: len(seen) == 2)
    assert engine.look(lambda: seen) == ["cancelled", "end"]


def test_a_request_under_way_goes_on_when_the_wait_is_interrupted(engine: Engine) -> None:
    seen: list[str] = []
    release = threading.Event()

    async def requesting() -> None:
        interrupt_main_thread()
        await Request(in_thread, partial(release.wait, 20))
        seen.append("answered")
        await Pause(0)
        seen.append("never")

    with pytest.raises(KeyboardInterrupt):
        engine.call(requesting)
    wait_for(engine.keeps_process)  # the end of the process waits for it
    release.set()
    wait_for(lambda: not engine.keeps_process())
    assert seen == ["answered"]


def test_a_command_that_goes_on_is_begun_where_its_caller_was_interrupted_before(engine: Engine) -> None:
    """Between the note that it is under way and the step that begins it."""
    ran: list[int] = []

    async def mine() -> None:
        ran.append(1)

    def interrupted(_step: Callable[[], None]) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        engine.call(mine, through=interrupted, goes_on=True)
    wait_for(lambda: not engine.keeps_process())
    assert ran == [1]
    with pytest.raises(KeyboardInterrupt):
        engine.call(mine, through=interrupted)
    engine.look(lambda: None)
    assert ran == [1]


def test_a_command_that_is_cancelled_before_it_begins_never_runs(engine: Engine) -> None:
    seen: list[str] = []

    async def mine() -> None:
        seen.append("ran")

    ended: list[Any] = []
    task = Task(engine, mine, lambda result: ended.append(result.error))
    engine.step(task.cancel)
    engine.step(task.begin)
    engine.look(lambda: None)
    assert seen == []
    assert [type(error) for error in ended] == [Cancelled]


# --- threads ----------------------------------------------------------------------------------------------------------


def test_the_thread_ends_when_idle_and_begins_again(engine: Engine) -> None:
    for _ in range(3):
        engine.call(partial(value_of, 1))
        wait_for(lambda: has_no_thread(engine._worker))


def test_no_call_is_left_without_a_thread(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever comes between the last look of a thread and its end."""
    monkeypatch.setattr(module, "_IDLE_MS", 0.01)

    def calls() -> None:
        for number in range(400):
            assert engine.call(partial(value_of, number)) == number

    threads = [threading.Thread(target=calls, daemon=True) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
        assert not thread.is_alive()


def test_a_step_that_fails_ends_nothing_and_is_logged(engine: Engine, caplog: pytest.LogCaptureFixture) -> None:
    def failing() -> None:
        raise ZeroDivisionError

    engine._worker.put(failing)
    assert engine.call(partial(value_of, 1)) == 1
    assert "This is a bug" in caplog.text
    caplog.clear()


def test_a_forked_child_has_an_engine_of_its_own() -> None:
    parents = engine_of_process()
    assert parents.call(partial(value_of, 1)) == 1
    release = threading.Event()

    async def under_way() -> None:
        await Request(in_thread, partial(release.wait, 20))

    parents.post(under_way)

    def child() -> tuple[bool, int, bool]:
        mine = engine_of_process()
        return mine is parents, mine.call(partial(value_of, 2)), mine.keeps_process()

    assert in_child(child) == (False, 2, False)
    release.set()
    wait_for(lambda: not parents.keeps_process())


# --- turns ------------------------------------------------------------------------------------------------------------


def test_commands_have_their_turn_in_the_order_in_which_they_came(engine: Engine) -> None:
    turn, seen, ended = Turn(), list[str](), list[object]()

    async def steps(name: str) -> None:
        async with turn:
            seen.append(name)
            await Pause(5)
            seen.append(name)

    for name in "abc":
        engine.post(partial(steps, name), ended.append)
    wait_for(lambda: len(ended) == 3)
    assert seen == ["a", "a", "b", "b", "c", "c"]


def test_who_is_interrupted_in_the_row_leaves_it(engine: Engine) -> None:
    turn, seen, ended = Turn(), list[str](), list[object]()

    async def steps(name: str) -> None:
        async with turn:
            seen.append(name)
            await Pause(20)

    tasks = [Task(engine, partial(steps, name), ended.append) for name in "abc"]
    for task in tasks:
        engine.step(task.begin)
    engine.step(tasks[1].cancel)
    wait_for(lambda: len(ended) == 3)
    assert seen == ["a", "c"]


def test_who_is_interrupted_when_it_is_given_its_turn_gives_it_on(engine: Engine) -> None:
    turn, seen, ended = Turn(), list[str](), list[object]()
    tasks: list[Task[None]] = []

    async def first() -> None:
        async with turn:
            await Pause(5)
        tasks[1].cancel()  # it was given the turn, and has not gone on yet

    async def steps(name: str) -> None:
        async with turn:
            seen.append(name)

    tasks += [Task(engine, command, ended.append) for command in (first, partial(steps, "b"), partial(steps, "c"))]
    for task in tasks:
        engine.step(task.begin)
    wait_for(lambda: len(ended) == 3)
    assert seen == ["c"]
