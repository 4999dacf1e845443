"""The threads of a worker: one runs its steps, none is left without one, and who blocks lets another one go on."""

from __future__ import annotations

import gc
import threading
import time
import weakref
from collections import deque
from collections.abc import Callable
from functools import partial
from queue import Empty
from typing import Any

import pytest

from tests.client.support import wait_for
from tests.effort import tries
from txnlog.engine import worker as module
from txnlog.engine.worker import THREADS, Crew, Worker
from txnlog.errors import Durable, RetriableError


class _Given:
    """What a call was given."""

    def __call__(self) -> None:
        pass


@pytest.mark.parametrize("make", [lambda: Worker(THREADS, "tests"), lambda: Crew(THREADS, "tests", 1)])
def test_a_thread_that_waits_does_not_keep_what_it_did_last(
    make: Callable[[], Worker | Crew], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It may have an error, whose traceback has the rows of a call."""
    monkeypatch.setattr(module, "_IDLE_MS", 60_000.0)
    at_work = make()
    step = _Given()
    given = weakref.ref(step)
    at_work.put(step)
    del step
    wait_for(lambda: gc.collect() >= 0 and given() is None)
    monkeypatch.undo()
    at_work.put(lambda: None)  # so that the thread ends


def test_a_step_that_comes_while_the_thread_ends_is_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_IDLE_MS", 1.0)
    ran: list[int] = []

    class Inbox:
        """Gets a step just when its thread has waited long enough."""

        def __init__(self) -> None:
            self._inner = THREADS.inbox()
            self.put, self.is_empty = self._inner.put, self._inner.is_empty

        def take(self, timeout_ms: float | None) -> Any:
            found = self._inner.take(timeout_ms)
            if found is None and len(ran) == 1:
                threading.Thread(target=worker.put, args=(lambda: ran.append(2),), daemon=True).start()
                wait_for(lambda: not self.is_empty())
            return found

    class Host:
        keeps_threads = False
        inbox, start, current, elapsed_ms = Inbox, THREADS.start, THREADS.current, THREADS.elapsed_ms

    worker = Worker(Host(), "ending")
    worker.put(lambda: ran.append(1))
    wait_for(lambda: ran == [1, 2])


def test_no_wait_lasts_longer_than_a_signal_may_be_late(monkeypatch: pytest.MonkeyPatch) -> None:
    """A signal may come between the last look at signals and the wait, which it does not interrupt then."""
    waits: list[float | None] = []

    class Queue:
        def get_nowait(self) -> int:
            raise Empty

        def get(self, timeout: float | None = None) -> int:
            waits.append(timeout)
            if len(waits) < 3:
                raise Empty
            return 7

    inbox = THREADS.inbox()
    monkeypatch.setattr(inbox, "_items", Queue())
    assert inbox.take(None) == 7
    assert all(wait is not None and wait <= 1 for wait in waits), waits


def test_an_interrupt_while_the_thread_is_started_makes_no_two_of_them() -> None:
    class Host:
        keeps_threads = False
        inbox, current, elapsed_ms = THREADS.inbox, THREADS.current, THREADS.elapsed_ms
        interrupted = False

        def start(self, work: Callable[[], None], name: str) -> None:
            THREADS.start(work, name)
            if not self.interrupted:
                self.interrupted = True
                raise KeyboardInterrupt

    worker = Worker(Host(), "interrupted")
    ran: list[object] = []
    with pytest.raises(KeyboardInterrupt):
        worker.put(lambda: ran.append(threading.current_thread()))
    worker.put(lambda: ran.append(threading.current_thread()))
    wait_for(lambda: len(ran) == 2)
    assert ran[0] is ran[1]
    wait_for(lambda: sum(thread.name == "interrupted" for thread in threading.enumerate()) == 1)


def test_of_threads_that_were_begun_one_runs_steps() -> None:
    class Host:
        """Begins two where one is wanted, as where two calls find nobody at the same time."""

        keeps_threads = False
        inbox, current, elapsed_ms = THREADS.inbox, THREADS.current, THREADS.elapsed_ms

        def start(self, work: Callable[[], None], name: str) -> None:
            for _ in range(2):
                THREADS.start(work, name)

    worker = Worker(Host(), "twins")
    inside: list[int] = []
    most: list[int] = []

    def step() -> None:
        inside.append(1)
        time.sleep(0.002)
        most.append(len(inside))
        inside.pop()

    for _ in range(40):
        worker.put(step)
    wait_for(lambda: len(most) == 40)
    assert set(most) == {1}


def test_a_step_that_waits_leaves_the_others_to_another_thread() -> None:
    worker = Worker(THREADS, "aside")
    release, seen = threading.Event(), list[int]()

    def waiting() -> None:
        assert worker.is_current()
        worker.step_aside()
        assert not worker.is_current()
        release.wait(20)
        seen.append(2)

    worker.put(waiting)
    worker.put(lambda: seen.append(1))
    wait_for(lambda: seen == [1])
    release.set()
    wait_for(lambda: seen == [1, 2])


def has(items: list[object], count: int) -> bool:
    return len(items) == count


def entering(entered: threading.Event, release: threading.Event) -> bool:
    entered.set()
    return release.wait(20)


def by_the_worker(worker: Worker, work: Callable[[], object], came: Callable[[object], None]) -> None:
    """Have the worker do something that blocks, unless it would rather have a thread of a pool do it."""

    def doing() -> Callable[[], None]:
        return partial(came, work())

    worker.put(partial(worker.block, doing, lambda _work: came("elsewhere")))


def test_what_blocks_is_done_by_the_thread_itself_where_nothing_else_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    """To pass it to another thread, and the result back, takes longer than most requests of a local disk."""
    monkeypatch.setattr(module, "_IDLE_MS", 200.0)
    worker = Worker(THREADS, "blocking")
    threads: list[object] = []
    for _ in range(3):
        by_the_worker(worker, threading.current_thread, threads.append)
        wait_for(lambda: worker._inbox.is_empty() and not worker._blocking)
    wait_for(lambda: len(threads) == 3)
    assert len(set(threads)) == 1
    assert threads[0] is not threading.current_thread()


def test_steps_that_come_while_the_thread_blocks_are_run_by_another_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_IDLE_MS", 2_000.0)
    worker = Worker(THREADS, "meanwhile")
    seen: list[object] = []
    for number in range(20):
        entered, release = threading.Event(), threading.Event()

        def blocked(entered: threading.Event = entered, release: threading.Event = release) -> str:
            entered.set()
            assert release.wait(20)
            return "released"

        by_the_worker(worker, blocked, seen.append)
        entered.wait(20)
        worker.put(partial(seen.append, "meanwhile"))
        wait_for(partial(has, seen, 2 * number + 1))
        release.set()
        wait_for(partial(has, seen, 2 * number + 2))
    assert seen == ["meanwhile", "released"] * 20
    named = [thread for thread in threading.enumerate() if thread.name == "meanwhile"]
    assert len(named) <= 3, "whoever has nothing to do is the next one"


def test_no_more_threads_block_than_there_may_be(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_MOST_ASIDE", 2)
    worker = Worker(THREADS, "many")
    release, seen = threading.Event(), list[object]()
    for number in range(4):
        entered = threading.Event()
        by_the_worker(worker, partial(entering, entered, release), seen.append)
        assert number > 1 or entered.wait(20)
        wait_for(partial(has, seen, max(0, number - 1)))
    assert seen == ["elsewhere"] * 2
    release.set()
    wait_for(lambda: seen == ["elsewhere"] * 2 + [True] * 2)


def test_what_blocks_waits_for_no_step_that_is_there_already() -> None:
    worker = Worker(THREADS, "busy")
    seen: list[object] = []

    def two() -> None:
        worker.put(partial(seen.append, "a step"))
        worker.block(lambda: partial(seen.append, "by the thread itself"), lambda _work: seen.append("elsewhere"))

    worker.put(two)
    wait_for(lambda: len(seen) == 2)
    assert seen == ["elsewhere", "a step"]


def test_steps_whose_time_comes_at_once_let_others_have_their_turn() -> None:
    """As a command that looks again and again, where the clock that it looks at is not the engine's."""
    worker = Worker(THREADS, "timers")
    looks, seen = list[None](), list[str]()

    def again() -> None:
        if not looks:
            worker.put(partial(seen.append, "another"))
        looks.append(None)
        if not seen and len(looks) < 1_000:
            worker.put_after(0, again)

    worker.put(again)
    wait_for(lambda: seen == ["another"])
    assert len(looks) < 1_000


def test_a_short_wait_behind_an_item_that_is_there_ends() -> None:
    """An item that is taken without a wait leaves a wake-up: a wait that begins with it must not last for ever."""
    inbox, rounds = THREADS.inbox(), list[int]()

    def wait() -> None:
        for number in range(tries(100_000, 25_000)):
            inbox.put(number)
            assert inbox.take(0.001) == number
            assert inbox.take(0.001) is None
            rounds.append(number)

    thread = threading.Thread(target=wait, daemon=True)
    thread.start()
    thread.join(60)
    hung = thread.is_alive()
    inbox.put(None)  # a thread that waits for ever goes on, and ends
    assert not hung, len(rounds)


def test_the_thread_of_a_worker_stays_at_the_end_of_a_process() -> None:
    class Host:
        keeps_threads = False
        inbox, start, current, elapsed_ms = THREADS.inbox, THREADS.start, THREADS.current, THREADS.elapsed_ms

    host = Host()
    worker = Worker(host, "stays")
    ran: list[object] = []
    worker.put(lambda: ran.append(threading.current_thread()))
    host.keeps_threads = True
    time.sleep(2.5)  # it has been idle for so long that it would have ended
    assert sum(thread.name == "stays" for thread in threading.enumerate()) == 1
    host.keeps_threads = False
    worker.put(lambda: ran.append(threading.current_thread()))
    wait_for(lambda: len(ran) == 2)
    assert ran[0] is ran[1]


def test_an_interrupt_of_who_runs_the_steps_leaves_them_to_the_next_thread() -> None:
    """LOST: Ctrl-C in a thread that handed back a step, and ran the others since none could be started."""

    class Host:
        keeps_threads = False
        inbox, current, elapsed_ms = THREADS.inbox, THREADS.current, THREADS.elapsed_ms
        refuses = True

        def start(self, work: Callable[[], None], name: str) -> None:
            if self.refuses:
                raise RetriableError("this process cannot start another thread", durable=Durable.NOTHING)
            THREADS.start(work, name)

    def interrupted() -> None:
        raise KeyboardInterrupt

    host = Host()
    worker = Worker(host, "left")
    ran: list[int] = []
    with pytest.raises(KeyboardInterrupt):
        worker.hand_back(interrupted)
    host.refuses = False
    worker.put(lambda: ran.append(1))
    wait_for(lambda: ran == [1])


def test_a_call_that_comes_while_the_last_thread_of_a_crew_ends_is_made() -> None:
    """LOST: a request of a commit, where no other thread can be started at that moment."""

    class Host:
        keeps_threads = False
        inbox, current, elapsed_ms = THREADS.inbox, THREADS.current, THREADS.elapsed_ms
        refuses = False

        def start(self, work: Callable[[], None], name: str) -> None:
            if self.refuses:
                raise RetriableError("this process cannot start another thread", durable=Durable.NOTHING)
            THREADS.start(work, name)

    class Places(deque[None]):
        """A call comes when a thread is about to give its place back: behind its last look for one."""

        def append(self, place: None) -> None:
            if not host.refuses:
                host.refuses = True
                crew.put(lambda: made.append(1))
            super().append(place)

    host, made = Host(), list[int]()
    crew = Crew(host, "crew", 2)
    crew._free = Places([None, None])
    crew.close()  # a thread ends as soon as it has nothing to do
    crew.put(lambda: None)
    wait_for(lambda: made == [1])
