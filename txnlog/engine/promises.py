"""Futures of work in the background, and the end of the process, which waits for what they promise."""

from __future__ import annotations

import atexit
import contextlib
import itertools
import logging
import os
import threading
import time
import weakref
from collections.abc import Callable, Iterator
from concurrent.futures import Future, InvalidStateError
from functools import partial
from queue import Empty, SimpleQueue
from typing import Any, Final, TypeVar

from txnlog.engine.effects import Step
from txnlog.engine.engine import engine_of_process, keep_threads
from txnlog.engine.log_lines import write_pending
from txnlog.engine.runtime import is_at_work
from txnlog.engine.worker import THREADS, program_has_ended
from txnlog.errors import CalledAfterTheEnd, Durable, InvalidTransactionState, RetriableError
from txnlog.replies import copy_of

T = TypeVar("T")
_logger = logging.getLogger("txnlog.runtime")


class Promise(Future[T]):
    """The Future of work in the background, which would end with the process: its end waits, a minute at most.

    Its result is set in the engine, and its callbacks are called elsewhere: so none of them keeps another Future, or
    a task, from its end, whatever it waits for. Failures that nobody asked for are reported to Python's logging when
    the process ends.

    Args:
        call_back: has a callback called, in the order in which it is given them.
    """

    _asked = False
    _has_callbacks = False

    def __init__(self, call_back: Callable[[Step], None]) -> None:
        super().__init__()
        self._call_back = call_back
        self._number = next(_numbers)
        self._process = os.getpid()
        _promises[self._number] = weakref.ref(self, partial(_promises.pop, self._number))

    def result(self, timeout: float | None = None) -> T:
        """See Future. Each call raises an error of its own."""
        error = self.exception(timeout)
        if error is not None:
            try:
                raise error
            finally:
                del error  # its traceback refers to this frame
        return super().result()

    def exception(self, timeout: float | None = None) -> BaseException | None:
        """See Future. Each call gives an error of its own."""
        self._ask()
        if program_has_ended() and not self.done():
            raise CalledAfterTheEnd(durable=Durable.MAYBE)
        return copy_of(super().exception(timeout))

    def add_done_callback(self, fn: Callable[[Future[T]], object]) -> None:
        """See Future."""
        self._ask()
        if self.done():
            super().add_done_callback(fn)
            return
        self._has_callbacks = True
        if THREADS.keeps_threads:  # there is to be a thread for it before the script ends
            self._call_back(_nothing)
        super().add_done_callback(partial(_pass_on, self._call_back, fn))

    def settle(self, value: Any, error: BaseException | None, elsewhere: Callable[[Callable[[], None]], None]) -> None:
        """Set the result, or the error, unless it is set. Waits for nobody: to be called by the engine.

        Who asks the Future has its lock for a moment, in which Python may run a signal's handler or a finalizer, and
        that may wait for the engine. So where somebody has the lock, or others wait for several Futures, it is set by
        another thread: ``elsewhere`` has it call something.
        """
        if self._condition.acquire(blocking=False):
            try:
                if not self._waiters:  # which concurrent.futures.wait() adds
                    self._set(value, error)
                    return
            finally:
                self._condition.release()
        elsewhere(partial(self._set, value, error))

    def _set(self, value: Any, error: BaseException | None) -> None:
        with contextlib.suppress(InvalidStateError):  # it was refused before
            if error is None:
                self.set_result(value)
            else:
                self.set_exception(error)

    def set_result(self, result: T) -> None:
        """See Future."""
        super().set_result(result)
        self._keep()

    def set_exception(self, exception: BaseException | None) -> None:
        """See Future."""
        super().set_exception(copy_of(exception))
        if not self._asked and len(_failures) < _MOST_FAILURES:
            _failures[self._number] = str(exception)
        if self._asked:  # by another thread just now, which found nothing to take out
            _failures.pop(self._number, None)
        self._keep()

    def _keep(self) -> None:
        """It is kept once its callbacks were called, which may promise more."""
        if self._has_callbacks:
            self._call_back(self.forget)
        else:
            self.forget()

    def forget(self) -> None:
        """Nobody is to wait for it: it was kept, or nobody got it."""
        _promises.pop(self._number, None)

    def _ask(self) -> None:
        if self._process != os.getpid() and not self.done():
            raise InvalidTransactionState(
                "the Future belongs to the process that this one was forked from", advice="ask for its result there"
            )
        self._asked = True
        _failures.pop(self._number, None)


def _nothing() -> None:
    pass


def _pass_on(call_back: Callable[[Step], None], fn: Callable[[Future[T]], object], future: Future[T]) -> None:
    call_back(partial(_call, fn, future))


def _call(fn: Callable[[Future[T]], object], future: Future[T]) -> None:
    try:
        fn(future)
    except BaseException:  # an exit of its thread, too, costs nobody else a callback
        _logger.exception("A callback of a Future raised an error.")


_EXIT_S: Final = 60.0
"""For how long the end of a process waits. A store that is away so long is not waited for."""

_EXIT_WORK_S: Final = 2.0
"""For how long it waits for requests that nobody waits for any more."""

_EXIT_PAUSE_S: Final = 0.005

_MOST_FAILURES: Final = 100
"""Texts that are kept of failures that nobody asked for: what the first ones say is enough."""

# Dictionaries: all of one can be listed in one step while other threads go on.
_promises: Final[dict[int, weakref.ref[Promise[Any]]]] = {}
_failures: Final[dict[int, str]] = {}
_numbers: Final = itertools.count()


def _begin_in_child() -> None:
    _failures.clear()
    _promises.clear()


os.register_at_fork(after_in_child=_begin_in_child)


@contextlib.contextmanager
def forgetting_promises() -> Iterator[None]:
    """Let the end of the process wait for nothing that is promised meanwhile, nor report it: for simulated clients."""
    first = next(_numbers)
    try:
        yield
    finally:
        for noted in (_promises, _failures):
            for number in list(noted):
                if number > first:
                    noted.pop(number, None)


class _End:
    """The end of the process, which waits a minute in all."""

    def __init__(self) -> None:
        self._left_s = _EXIT_S

    def wait(self) -> None:
        """Let the workers keep what they promised."""
        began = time.monotonic()
        keep_threads()
        while self._is_open() and time.monotonic() - began < self._left_s:
            time.sleep(_EXIT_PAUSE_S)
        self._left_s -= time.monotonic() - began
        _wait_for_work()

    def _is_open(self) -> bool:
        return bool(_promises) or engine_of_process().keeps_process()

    def report(self) -> None:
        """Wait again, and report failures: nobody is left who could ask. Then have nobody in Arrow."""
        self.wait()
        write_pending()
        if self._is_open():
            _logger.error("calls in the background were not finished within %d s", _EXIT_S)
        for number, text in list(_failures.items()):
            _failures.pop(number, None)
            _logger.error("a call in the background failed, and nobody asked its Future: %s", text)
        _hold_engine()
        _wait_for_work()


def _hold_engine() -> None:
    """Have the engine do nothing in the last moments: for daemon threads it would go on, and be in Arrow at the end.

    Not for ever: whatever else the process does at its end may wait for one of those threads, as Spark's end does.
    """
    engine = engine_of_process()
    if engine.has_work():
        held = SimpleQueue[None]()

        def hold() -> None:
            held.put(None)
            time.sleep(_EXIT_WORK_S)

        with contextlib.suppress(RetriableError, Empty):
            engine.step(hold)
            held.get(timeout=_EXIT_WORK_S)


def _wait_for_work() -> None:
    began = time.monotonic()
    while is_at_work() and time.monotonic() - began < _EXIT_WORK_S:
        time.sleep(_EXIT_PAUSE_S)


# First while thread pools still take calls, which stores and run_all need; there is no public way to be so early. Then
# for what other threads began since: the interpreter has waited for them by then. Where one of these is the first that
# imports this, it is too late for the former.
_end: Final = _End()
try:
    getattr(threading, "_register_atexit", atexit.register)(_end.wait)
except RuntimeError:
    keep_threads()
atexit.register(_end.report)


__all__ = ["Promise", "forgetting_promises"]
