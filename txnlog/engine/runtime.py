"""What the client takes from its surroundings, so that a simulation can give others: time, chance, concurrency."""

from __future__ import annotations

import atexit
import contextlib
import os
import random
import time
import uuid
import weakref
from collections.abc import Callable, Sequence
from functools import partial
from typing import Final, Protocol, TypeVar

from txnlog.common.format_limits import MAX_TIME_MS
from txnlog.common.limits import PARALLEL_REQUESTS
from txnlog.common.validation import shown
from txnlog.engine.effects import Pause, Read, Request, Requests, Result, Step, result_of
from txnlog.engine.engine import Engine, callbacks_of_process, engine_of_process
from txnlog.engine.log_lines import LogLines
from txnlog.engine.worker import CALLBACKS, THREADS, Blocking, Crew, Host, Inbox, Worker, only_once
from txnlog.errors import InvalidInputError, RetriableError

T = TypeVar("T")
_logger = LogLines("txnlog.runtime")

_NO_THREAD_PAUSE_MS: Final = 100.0

_CALLBACKS_MS: Final = 60_000.0
"""For how long a handle that is closed waits for callbacks of its Futures."""


class Clock(Protocol):
    """A source of wall-clock time; ``txnlog.testing.ManualClock`` is another one."""

    def now_ms(self) -> int:
        """Epoch milliseconds."""


class SystemClock:
    """The machine's clock."""

    def now_ms(self) -> int:
        """Epoch milliseconds."""
        return time.time_ns() // 1_000_000


SYSTEM_CLOCK: Final = SystemClock()


class OfOneProcess(Protocol):
    """What a forked child must have anew: locks that nobody there lets go, threads that are not there."""

    def _begin_in_child(self) -> None:
        """In the child: forget the parent's. No request, nothing that fails or waits."""


# No WeakSet: in the function that it calls when an item is collected an interrupt would be shown, and swallowed.
_renewed: Final[set[weakref.ref[OfOneProcess]]] = set()


def _there(items: set[weakref.ref[T]]) -> list[T]:
    return [item for item in (found() for found in list(items)) if item is not None]


def renew_in_child(item: OfOneProcess) -> None:
    """Have ``item._begin_in_child()`` called in every forked child, as long as the item is there."""
    _renewed.add(weakref.ref(item, _renewed.discard))


class HeardAtExit(Protocol):
    """What has something to say when the interpreter ends."""

    def report_at_exit(self) -> None:
        """The last call. No request, no lock that another thread may have."""


_ending: Final[set[weakref.ref[HeardAtExit]]] = set()


def call_at_exit(item: HeardAtExit) -> None:
    """Have ``item.report_at_exit()`` called when the interpreter ends, as long as the item is there."""
    _ending.add(weakref.ref(item, _ending.discard))


@atexit.register
def _at_exit() -> None:
    with contextlib.ExitStack() as stack:  # all are called, also where a filter turns the warning of one into an error
        for item in _there(_ending):
            stack.callback(item.report_at_exit)


_working: Final[set[tuple[Runtime, object]]] = set()
"""Who does something that a task awaits: each change is one step."""

_in_jobs: Final[set[tuple[Runtime, object]]] = set()
"""The same of jobs, which may call the client."""


def is_at_work() -> bool:
    """Whether any thread of this process does something that a task awaits, or awaited."""
    return bool(_working)


def _after_fork() -> None:
    _working.clear()
    _in_jobs.clear()
    for item in _there(_renewed):
        item._begin_in_child()


os.register_at_fork(after_in_child=_after_fork)


_QUICK_MS: Final = 1.0
"""A request that takes longer is worth another thread. Threads that all wait for the interpreter take turns of 5 ms, so
that 150 small files of a local disk took them twice as long together as one after the other."""


class Runtime:
    """Time, chance and concurrency of one client.

    Args:
        clock: is trusted as it is; the machine's by default.
        host: what runs in place of this process's threads, for an engine of its own.
    """

    def __init__(self, clock: Clock | None = None, host: Host | None = None) -> None:
        self.clock: Clock = clock or SYSTEM_CLOCK
        self.trusts_clock = clock is not None
        self._host = host or THREADS
        self._own = None if host is None else (Engine(host), Worker(host, CALLBACKS))
        self._random = random.SystemRandom()
        self._closed = False
        self._is_waking = False
        self._begin_in_child()
        renew_in_child(self)

    def _begin_in_child(self) -> None:
        """In a forked child: threads of its own, at the next call."""
        self._crew = Crew(self._host, "txnlog-io", PARALLEL_REQUESTS)

    def now_ms(self) -> int:
        """Epoch milliseconds by the client's clock. InvalidInputError where one that was passed in gives none."""
        now_ms = self.clock.now_ms()
        if type(now_ms) is int and 0 <= now_ms <= MAX_TIME_MS:
            return now_ms
        raise InvalidInputError(
            f"the clock gives {shown(now_ms)}, not epoch milliseconds as a whole number",
            advice="let its now_ms() return an int, such as time.time_ns() // 1_000_000",
        )

    def elapsed_ms(self) -> float:
        """A clock that never jumps, for waiting and for the client's own deadlines in real time."""
        return self._host.elapsed_ms()

    def sleep_ms(self, milliseconds: float) -> None:
        """Wait."""
        time.sleep(milliseconds / 1e3)

    def jitter(self, ceiling: float) -> float:
        """A random number between 0 and the ceiling."""
        return self._random.uniform(0, ceiling)

    def spread(self, pause_ms: float) -> float:
        """At least half of a pause, and by chance up to all of it: whoever waits for the same does not ask at once."""
        return pause_ms / 2 + self.jitter(pause_ms / 2)

    def unique(self) -> str:
        """32 hexadecimal digits that nobody else draws."""
        return uuid.uuid4().hex

    def run_all(self, calls: Sequence[Callable[[], T]]) -> list[T]:
        """Run independent store requests side by side; results in order, the first error raised after all ended."""
        if self.is_working:
            calls = [self._noted(call) for call in calls]
        results: list[Result[T]] = [Result(None)] * len(calls)
        ended = self.inbox()

        def run(place: int) -> None:
            results[place] = result_of(calls[place])
            ended.put(place)

        runs = [only_once(partial(run, place)) for place in range(len(calls))]
        if not self._closed:
            for once in runs[1:]:
                self._run_in_pool(once)
        for place, once in enumerate(runs):
            once()
            error = results[place].error
            if error is not None and not isinstance(error, Exception):
                raise error  # this thread was interrupted
        for _ in calls:
            ended.take(None)
        return [result.get() for result in results]

    def run_quick(self, calls: Sequence[Callable[[], T]]) -> list[T]:
        """``run_all`` of requests that mostly take less time than to hand them to other threads: of a folder's files.

        The caller makes them, one after the other, until one takes longer. The first error is raised at once.
        """
        results: list[T] = []
        for place, call in enumerate(calls):
            began_ms = self.elapsed_ms()
            results.append(call())
            if self.elapsed_ms() - began_ms >= _QUICK_MS:
                return results + self.run_all(calls[place + 1 :])
        return results

    # --- for tasks of the engine ---------------------------------------------------------------------------------

    @property
    def engine(self) -> Engine:
        """The engine that owns what this client knows."""
        return engine_of_process() if self._own is None else self._own[0]

    @property
    def callbacks(self) -> Worker:
        """The thread that calls what users want to have called."""
        return callbacks_of_process() if self._own is None else self._own[1]

    def call_back(self, step: Step) -> None:
        """Have something called that users want to have called, such as a callback of a Future: one after the other."""
        try:
            self.callbacks.put(step)
        except RetriableError:  # it is queued all the same, and waits for a thread
            self.engine.post(self._wake_callbacks)

    def wait_for_callbacks(self) -> None:
        """Wait until what users want to have called by now was called, not for ever: one may wait for this thread."""
        callbacks = self.callbacks
        if callbacks.is_current():
            return
        called = self.inbox()
        is_idle = callbacks.is_idle()
        try:
            callbacks.put(partial(called.put, True))
        except RetriableError:
            if is_idle:
                return  # there is none to wait for
            raise
        if called.take(_CALLBACKS_MS) is None:
            callbacks.step_aside()  # one may wait for what the closing thread has: it keeps only itself
            called.take(_CALLBACKS_MS)

    async def _wake_callbacks(self) -> None:
        """Start the thread of the callbacks, as soon as the process may have another one. One task does, for all."""
        if self._is_waking:
            return
        self._is_waking = True
        try:
            while True:
                await Pause(_NO_THREAD_PAUSE_MS)
                with contextlib.suppress(RetriableError):
                    self.callbacks.wake()
                    return
        finally:
            self._is_waking = False

    def call_elsewhere(self, call: Callable[[], None]) -> None:
        """Have something called that may wait for a thread which waits for the engine. From any thread."""

        async def called() -> None:
            await self.request(call)

        self.engine.post(called)

    def inbox(self) -> Inbox:
        """Something on which a thread can wait for others."""
        return self._host.inbox()

    @property
    def is_working(self) -> bool:
        """Whether this thread does something that a task awaits, or is there to do so.

        What a finalizer or a logging handler calls there must not wait for a task, which may wait for that one.
        """
        current = self._host.current()
        return (self, current) in _working or current in self._crew.threads

    @property
    def is_in_work(self) -> bool:
        """``is_working``, or whether this thread does a job, which may call the client, but not wait for its end."""
        return self.is_working or (self, self._host.current()) in _in_jobs

    def _noted(self, call: Callable[[], T], among: set[tuple[Runtime, object]] = _working) -> Callable[[], T]:
        def noted() -> T:
            work = (self, self._host.current())
            if work in among:
                return call()
            among.add(work)
            try:
                return call()
            finally:
                among.discard(work)

        return noted

    def request(self, call: Callable[[], T]) -> Request[T]:
        """Await what a call gives that blocks, such as one request of the store. It must not wait for other calls."""
        return Request(self._block, self._noted(call))

    def requests(self, calls: Sequence[Callable[[], T]]) -> Requests[T]:
        """Await what independent calls give: results in order, the first error after all have ended."""
        return Requests(self._block, [self._noted(call) for call in calls])

    def job(self, call: Callable[[], T], *, appends: bool = True) -> Request[T]:
        """Await what a call gives that may itself call the client, also to append something, unless it says no."""
        return Request(self._block_long, self._noted(call, _in_jobs if appends else _working))

    def read(self, call: Callable[[], T]) -> Read[T]:
        """``job`` for a call that changes nothing: nobody waits for its end where the task's caller is gone."""
        return Read(self._block_long, self._noted(call))

    def pause(self, milliseconds: float) -> Pause:
        """Await that so much time has passed."""
        return Pause(milliseconds)

    def _block_long(self, work: Blocking) -> None:
        """A thread of its own, not one of the pool: calls there that wait for others of the pool could fill it."""
        self.engine.block(work, self._run_in_thread)

    def _block(self, work: Blocking) -> None:
        self.engine.block(work, self._run_in_pool)

    def _run_in_thread(self, work: Callable[[], None]) -> None:
        self._host.start(work, "txnlog-job")

    def _run_in_pool(self, work: Callable[[], None]) -> None:
        self._crew.put_or_call(work)

    def close(self) -> None:
        """Make calls one by one from here on: it is over. Its threads end when they have nothing to do."""
        self._closed = True
        self._crew.close()


__all__ = [
    "SYSTEM_CLOCK",
    "Clock",
    "OfOneProcess",
    "Runtime",
    "SystemClock",
    "call_at_exit",
    "is_at_work",
    "renew_in_child",
]
