"""What the client takes from its surroundings, so that a simulation can give others: time, chance, concurrency."""

from __future__ import annotations

import atexit
import contextlib
import itertools
import logging
import os
import random
import threading
import time
import uuid
import weakref
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from typing import Any, Final, Protocol, TypeVar

from txnlog.common.limits import MAX_TIME_MS
from txnlog.common.validation import shown
from txnlog.engine.effects import Pause, Request, Requests
from txnlog.engine.engine import Engine, callbacks_of_process, engine_of_process
from txnlog.engine.worker import THREADS, Blocking, Host, Inbox, Worker, do
from txnlog.errors import InvalidInputError, InvalidTransactionState, RetriableError

T = TypeVar("T")
_logger = logging.getLogger("txnlog.runtime")

PARALLEL_REQUESTS = 16
"""Store requests of one data wave or one catch-up that are under way at once."""


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


class Background(Protocol):
    """Work that runs at the same time as its caller: a thread, outside of simulations."""

    def is_alive(self) -> bool:
        """Whether it still runs."""

    def join(self, timeout: float | None = None) -> None:
        """Wait for its end, at most ``timeout`` seconds."""


class OfOneProcess(Protocol):
    """What a forked child must have anew: locks that nobody there lets go, threads that are not there."""

    def _begin_in_child(self) -> None:
        """In the child: forget the parent's. No request, nothing that fails or waits."""


_renewed: Final[weakref.WeakSet[OfOneProcess]] = weakref.WeakSet()


def renew_in_child(item: OfOneProcess) -> None:
    """Have ``item._begin_in_child()`` called in every forked child, as long as the item is there."""
    _renewed.add(item)


class HeardAtExit(Protocol):
    """What has something to say when the interpreter ends."""

    def report_at_exit(self) -> None:
        """The last call. No request, no lock that another thread may have."""


_ending: Final[weakref.WeakSet[HeardAtExit]] = weakref.WeakSet()


def call_at_exit(item: HeardAtExit) -> None:
    """Have ``item.report_at_exit()`` called when the interpreter ends, as long as the item is there."""
    _ending.add(item)


@atexit.register
def _at_exit() -> None:
    with contextlib.ExitStack() as stack:  # all are called, also where a filter turns the warning of one into an error
        for item in list(_ending):
            stack.callback(item.report_at_exit)


def _after_fork() -> None:
    _failures.clear()
    _promises.clear()
    for item in list(_renewed):
        item._begin_in_child()


os.register_at_fork(after_in_child=_after_fork)


class Promise(Future[T]):
    """The Future of work in the background, which would end with the process: its end waits, a minute at most.

    Failures that nobody asked for are reported to Python's logging then.
    """

    _asked = False

    def __init__(self) -> None:
        super().__init__()
        self._number = next(_numbers)
        self._process = os.getpid()
        _promises[self._number] = weakref.ref(self, partial(_forget, self._number))

    def result(self, timeout: float | None = None) -> T:
        """See Future."""
        self._ask()
        self._let_others_be_called()
        return super().result(timeout)

    def exception(self, timeout: float | None = None) -> BaseException | None:
        """See Future."""
        self._ask()
        self._let_others_be_called()
        return super().exception(timeout)

    def _let_others_be_called(self) -> None:
        """A callback of a Future that waits for another one must not keep that from its result."""
        callbacks = callbacks_of_process()
        if not self.done() and callbacks.is_current():
            callbacks.step_aside()

    def add_done_callback(self, fn: Callable[[Future[T]], object]) -> None:
        """See Future."""
        self._ask()
        super().add_done_callback(fn)

    def set_result(self, result: T) -> None:
        """See Future. It is kept once its callbacks ran, which may promise more."""
        try:
            super().set_result(result)
        finally:  # a callback may exit
            _forget(self._number)

    def set_exception(self, exception: BaseException | None) -> None:
        """See Future, and ``set_result``."""
        if not self._asked and len(_failures) < _MOST_FAILURES:
            _failures[self._number] = str(exception)
        if self._asked:  # by another thread just now, which found nothing to take out
            _failures.pop(self._number, None)
        try:
            super().set_exception(exception)
        finally:
            _forget(self._number)

    def forget(self) -> None:
        """Nobody got it: nobody is to wait for it."""
        _forget(self._number)

    def _ask(self) -> None:
        if self._process != os.getpid() and not self.done():
            raise InvalidTransactionState(
                "the Future belongs to the process that this one was forked from", advice="ask for its result there"
            )
        self._asked = True
        _failures.pop(self._number, None)


_EXIT_S: Final = 60.0
"""For how long the end of a process waits. A store that is away so long is not waited for."""

_EXIT_PAUSE_S: Final = 0.005

_MOST_FAILURES: Final = 100
"""Texts that are kept of failures that nobody asked for: what the first ones say is enough."""

# Dictionaries: all of one can be listed in one step while other threads go on.
_promises: Final[dict[int, weakref.ref[Promise[Any]]]] = {}
_failures: Final[dict[int, str]] = {}
_numbers: Final = itertools.count()


def _forget(number: int, _gone: object = None) -> None:
    _promises.pop(number, None)


@contextlib.contextmanager
def forgetting_failures() -> Iterator[None]:
    """Do not report at the end what fails meanwhile in the background and nobody asks for: for simulated clients."""
    before = set(_failures)
    try:
        yield
    finally:
        for number in set(_failures) - before:
            _failures.pop(number, None)


class _End:
    """The end of the process, which waits a minute in all."""

    def __init__(self) -> None:
        self._left_s = _EXIT_S

    def wait(self) -> None:
        """Let the workers keep what they promised."""
        began = time.monotonic()
        while self._is_open() and time.monotonic() - began < self._left_s:
            time.sleep(_EXIT_PAUSE_S)
        self._left_s -= time.monotonic() - began

    def _is_open(self) -> bool:
        return bool(_promises) or engine_of_process().keeps_process()

    def report(self) -> None:
        """Wait again, and report failures: nobody is left who could ask."""
        self.wait()
        if self._is_open():
            _logger.error("calls in the background were not finished within %d s", _EXIT_S)
        for number, text in list(_failures.items()):
            _failures.pop(number, None)
            _logger.error("a call in the background failed, and nobody asked its Future: %s", text)


# First while thread pools still take calls, which stores and run_all need; there is no public way to be so early. Then
# for what other threads began since: the interpreter has waited for them by then.
_end: Final = _End()
getattr(threading, "_register_atexit", atexit.register)(_end.wait)
atexit.register(_end.report)


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
        self._own = None if host is None else (Engine(host), Worker(host, "txnlog-callbacks"))
        self._random = random.SystemRandom()
        self._closed = False
        self._begin_in_child()
        renew_in_child(self)

    def _begin_in_child(self) -> None:
        """In a forked child: threads of its own, at the next call."""
        self._lock = threading.Lock()
        self._pool: ThreadPoolExecutor | None = None

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
        if len(calls) == 1:
            return [calls[0]()]
        if not calls:
            return []
        futures = self._submit(calls)
        if futures is None:
            return [call() for call in calls]
        errors = [error for future in futures if (error := future.exception()) is not None]
        if errors:
            raise errors[0]
        return [future.result() for future in futures]

    def start(self, work: Callable[[], None], name: str) -> Background:
        """Run ``work`` at the same time as the caller, in a thread that ends with the process."""
        thread = threading.Thread(target=work, name=name, daemon=True)
        thread.start()
        return thread

    # --- for commands of the engine ---------------------------------------------------------------------------------

    @property
    def engine(self) -> Engine:
        """The engine that owns what this client knows."""
        return engine_of_process() if self._own is None else self._own[0]

    @property
    def callbacks(self) -> Worker:
        """The thread that calls what users want to have called."""
        return callbacks_of_process() if self._own is None else self._own[1]

    def current(self) -> object:
        """What runs now: a thread."""
        return self._host.current()

    def inbox(self) -> Inbox:
        """Something on which a thread can wait for others."""
        return self._host.inbox()

    def request(self, call: Callable[[], T]) -> Request[T]:
        """Await what a call gives that blocks, such as one request of the store. It must not wait for other calls."""
        return Request(self._block, call)

    def requests(self, calls: Sequence[Callable[[], T]]) -> Requests[T]:
        """Await what independent calls give: results in order, the first error after all have ended."""
        return Requests(self._block, calls)

    def job(self, call: Callable[[], T]) -> Request[T]:
        """Await what a call gives that may itself call the client, in a thread of its own."""
        return Request(self._run_job, call)

    def pause(self, milliseconds: float) -> Pause:
        """Await that so much time has passed."""
        return Pause(milliseconds)

    def _run_job(self, work: Blocking) -> None:
        self._run_in_thread(partial(do, work))

    def _block(self, work: Blocking) -> None:
        self.engine.block(work, self._run_in_pool)

    def _run_in_thread(self, work: Callable[[], None]) -> None:
        self._host.start(work, "txnlog-job")

    def _run_in_pool(self, work: Callable[[], None]) -> None:
        calls = itertools.count()

        def once() -> None:
            if next(calls) == 0:
                work()

        if self._submit([once]) is not None:
            return
        # The pool may have queued it, and make it later, though it could start no thread.
        try:
            self._run_in_thread(once)
        except RetriableError:  # the interpreter ends, or the process may have no more threads
            once()

    def wait_at_most(self, event: threading.Event, milliseconds: float) -> bool:
        """Wait until the event is set, or for so long; whether it is set."""
        return event.wait(milliseconds / 1e3)

    def _submit(self, calls: Sequence[Callable[[], T]]) -> list[Future[T]] | None:
        with self._lock:
            if self._closed:
                return None
            if self._pool is None:
                self._pool = ThreadPoolExecutor(PARALLEL_REQUESTS, thread_name_prefix="txnlog-io")
            try:
                return [self._pool.submit(call) for call in calls]
            except RuntimeError:  # the interpreter ends; a request that was begun may be made twice
                return None

    def close(self) -> None:
        """End the threads. What still runs its calls goes on, one by one."""
        with self._lock:
            pool, self._pool, self._closed = self._pool, None, True
        if pool is not None:
            pool.shutdown(wait=True)


__all__ = [
    "SYSTEM_CLOCK",
    "Background",
    "Clock",
    "OfOneProcess",
    "Promise",
    "Runtime",
    "SystemClock",
    "call_at_exit",
    "forgetting_failures",
    "renew_in_child",
]
