"""The engine: one thread at a time owns what the clients of a process know. Calls are tasks, and run step by step.

A task is a coroutine. It runs without a pause up to the next effect that it awaits, so what it changes is never seen
halfway, and nothing there needs a lock. What blocks (a request of a store, encoding a file) runs in a pool meanwhile.

Whoever calls waits for a reply, and a signal (Ctrl-C) can interrupt nothing but this wait. The task is cancelled
then: where it waits for other tasks or for time it ends, and where it waits for a request it goes on to its end.

A forked child makes an engine of its own. What the parent had under way goes on in the parent only.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Coroutine
from contextlib import suppress
from functools import partial
from typing import Any, Final, Generic, TypeVar

from txnlog.engine.effects import Cancelled, Effect, Pause, Result, Step
from txnlog.engine.log_lines import call_for_pending, write_pending
from txnlog.engine.worker import CALLBACKS, THREADS, Blocking, Host, Worker, refuse_after_end
from txnlog.errors import CalledInItsOwnWork, RetriableError, TxnLogError
from txnlog.replies import note_written

R = TypeVar("R")

_LOG_PAUSE_MS: Final = 50.0

Work = Callable[[], Coroutine[Effect[Any], Any, R]]
"""Makes the coroutine of a task: in the engine, so that there is none where an interrupt comes before."""


def _nothing(_result: object = None) -> None:
    pass


async def _begun() -> Any:
    raise AssertionError("it is begun once")


class Task(Generic[R]):
    """A task under way.

    Attributes:
        keeps_process: whether the end of the process waits for it.
        has_written: whether an entry in the log has something of it that readers find.
        ended: whether it came to its end.
        is_refused: whether there was no thread for it: it must not begin when there is one again.
    """

    __slots__ = (
        "_coroutine",
        "_done",
        "_effect",
        "_engine",
        "_is_cancelled",
        "_is_shielded",
        "_undo",
        "_work",
        "ended",
        "has_written",
        "is_refused",
        "keeps_process",
    )

    def __init__(
        self,
        engine: Engine,
        work: Work[R],
        done: Callable[[Result[R]], None],
        *,
        undo: Callable[[], object] = _nothing,
        keeps_process: bool = False,
    ) -> None:
        self._engine = engine
        self._work = work
        self._coroutine: Coroutine[Effect[Any], Any, R] | None = None
        self._done = done
        self._effect: Effect[Any] | None = None
        self._is_cancelled = False
        self._is_shielded = False
        self._undo = undo
        self.keeps_process = keeps_process
        self.has_written = False
        self.ended = False
        self.is_refused = False

    def go_on(self) -> None:
        """See Waiting."""
        self._is_cancelled, self._is_shielded = False, True

    # --- for effects ------------------------------------------------------------------------------------------------

    def resume(self, effect: Effect[Any], result: Result[Any]) -> None:
        """See Waiting."""
        self._engine._hand_back(partial(self._resume, effect, result))

    def resume_here(self, effect: Effect[Any], result: Result[Any]) -> None:
        """See Waiting."""
        self._engine._put_here(partial(self._resume, effect, result))

    def resume_after(self, effect: Effect[Any], milliseconds: float) -> Step:
        """See Waiting."""
        return self._engine._put_after(milliseconds, partial(self._resume, effect, Result(None)))

    def note_written(self) -> None:
        """See Waiting."""
        self.has_written = True

    def _resume(self, effect: Effect[Any], result: Result[Any]) -> None:
        if self._effect is effect:
            self._advance(result)

    # --- for the engine ---------------------------------------------------------------------------------------------

    def begin(self) -> None:
        """Run it up to what it awaits first; nothing where it was cancelled, or has begun, before."""
        if not self.ended and not self.is_refused and self._coroutine is None:
            self._coroutine = self._work()
            self._work = _begun  # what it was made of is not kept
            self._advance(Result(None))

    def cancel(self) -> None:
        """Nobody waits for it any longer."""
        if self.ended:
            self._undo()
            return
        self.keeps_process = True
        if self._is_shielded:
            return
        self._is_cancelled = True
        effect = self._effect
        if effect is None:  # it did not begin
            self._end(Result(None, Cancelled()))
        elif effect.cancel(self):
            self._advance(self._cancelled())

    def _cancelled(self) -> Result[Any]:
        self._is_cancelled = False  # it is raised once: a task that goes on is to end
        return Result(None, Cancelled())

    def _advance(self, result: Result[Any]) -> None:
        coroutine = self._coroutine
        assert coroutine is not None, "it began"
        next_result: Result[Any] | None = result
        while next_result is not None:
            self._effect = None
            try:
                if next_result.error is not None:
                    effect = coroutine.throw(next_result.error)
                else:
                    effect = coroutine.send(next_result.value)
            except StopIteration as stop:
                self._end(Result(stop.value))
                return
            except BaseException as error:  # noqa: BLE001 - its caller gets it
                self._end(Result(None, error))
                return
            self._effect = effect
            if self._is_cancelled and effect.can_be_cancelled:
                next_result = self._cancelled()
                continue
            try:
                next_result = effect.begin(self)
            except Exception as error:  # noqa: BLE001 - as no thread that could be started: the task gets it
                next_result = Result(None, error)

    def _end(self, result: Result[R]) -> None:
        self.ended = True
        self._engine._under_way.pop(self, None)
        self._done(result)


class Engine:
    """Runs tasks, each a coroutine over effects, in one thread at a time: see ``Worker``, whose threads take turns."""

    def __init__(self, host: Host) -> None:
        self._host = host
        self._worker = Worker(host, "txnlog-engine")
        self._put = self._worker.put
        self._hand_back = self._worker.hand_back
        self._put_here = self._worker.put_here
        self._put_after = self._worker.put_after
        self._under_way: dict[Task[Any], None] = {}

    @property
    def is_current(self) -> bool:
        """Whether this is called in the engine: by a task."""
        return self._worker.is_current()

    def call(
        self,
        work: Work[R],
        *,
        through: Callable[[Step], None] | None = None,
        interrupted: Callable[[BaseException], None] = _nothing,
        undo: Callable[[], object] = _nothing,
        goes_on: bool = False,
    ) -> R:
        """Run a task, and wait for it.

        Args:
            work: makes its coroutine.
            through: has a step run in the engine; by default at once.
            interrupted: called with what interrupts the wait, and is about to be raised.
            undo: called in the engine where the task came to its end, but the wait was interrupted before.
            goes_on: whether it runs to its end where the wait is interrupted, and the end of the process waits for it.

        Raises:
            CalledInItsOwnWork: in the engine itself, which would wait for itself.
            CalledAfterTheEnd: there is no engine any more.
            RetriableError: no thread could be started.
            Whatever the task raises; what interrupts the wait.
        """
        if self.is_current:
            raise CalledInItsOwnWork
        refuse_after_end()
        replies = self._host.inbox()
        task = Task(self, work, replies.put, undo=undo, keeps_process=goes_on)
        try:
            self._begin(task, through or self._put)
            reply: Result[R] = replies.take(None)
            write_pending()
            if reply.error is None:
                value: R = reply.value
                return value  # nothing is called from here on: an interrupt comes before, or later
        except BaseException as error:
            with suppress(RetriableError):  # of no thread for it: what interrupts the wait says more
                self._put(task.begin if goes_on and not isinstance(error, TxnLogError) else task.cancel)
            if not isinstance(error, TxnLogError):
                interrupted(error)
            raise
        finally:
            if task.has_written:
                note_written()
        try:
            return reply.get()
        finally:
            del work, interrupted, undo, replies, task, reply  # the traceback of an error refers to this frame

    def step(self, function: Step) -> None:
        """Have a function called in the engine, without waiting for it. It makes no request. From any thread."""
        self._put(function)

    def block(self, work: Blocking, elsewhere: Callable[[Step], None]) -> None:
        """See Worker: for effects."""
        self._worker.block(work, elsewhere)

    def look(self, function: Callable[[], R]) -> R:
        """Call a function in the engine: nothing changes meanwhile. It makes no request, and waits for nothing."""
        return function() if self.is_current else self.call(partial(_call, function))

    def post(
        self,
        work: Work[R],
        done: Callable[[Result[R]], None] = _nothing,
        *,
        through: Callable[[Step], None] | None = None,
        keeps_process: bool = True,
    ) -> Step:
        """Run a task that nobody waits for. From any thread. Returns what cancels it, from any thread.

        Args:
            work: makes its coroutine.
            done: called in the engine when it came to its end, also where this call is refused or interrupted.
            through: has a step run in the engine; by default at once.
            keeps_process: whether the end of the process waits for it.
        """
        task = Task(self, work, done, keeps_process=keeps_process)
        try:
            self._begin(task, through or self._put)
        except BaseException:
            with suppress(RetriableError):
                self._put(task.cancel)
            raise
        return partial(self._put, task.cancel)

    def has_work(self) -> bool:
        """Whether a task is under way. From any thread."""
        return bool(self._under_way)

    def keeps_process(self) -> bool:
        """Whether the end of the process should wait for a task. From any thread."""
        return any(task.keeps_process for task in list(self._under_way))

    def _begin(self, task: Task[Any], through: Callable[[Step], None]) -> None:
        self._under_way[task] = None
        if self.is_current:
            task.begin()
            return
        try:
            through(task.begin)
        except RetriableError:
            task.is_refused = True
            self._under_way.pop(task, None)  # the end of the process need not wait for what was refused
            raise


async def _call(function: Callable[[], R]) -> R:
    return function()


_of_process: Final[dict[str, Any]] = {}
_of_parents: Final[list[Any]] = []
"""Never collected: that would run the ends of tasks that go on in the parent."""


def engine_of_process() -> Engine:
    """The engine of this process."""
    found: Engine | None = _of_process.get("engine")
    return _of_process.setdefault("engine", Engine(THREADS)) if found is None else found


def callbacks_of_process() -> Worker:
    """The thread of this process that calls what users want to have called, such as callbacks of Futures, in order."""
    found: Worker | None = _of_process.get("callbacks")
    return _of_process.setdefault("callbacks", Worker(THREADS, CALLBACKS)) if found is None else found


def keep_threads() -> None:
    """Let the threads of this process stay from here on: Python 3.12 starts none for handlers of ``atexit``."""
    THREADS.keeps_threads = True
    if "engine" in _of_process:
        for worker in (engine_of_process()._worker, callbacks_of_process()):
            with suppress(RetriableError):
                worker.wake()


_is_writing: Final[set[str]] = set()


def _write_log_lines_soon() -> None:
    """A thread of the client has logged something. Mostly who waits for that thread writes it, and otherwise this."""
    if not _is_writing:
        _is_writing.add("soon")
        try:
            engine_of_process().post(_write_log_lines, keeps_process=False)
        except RetriableError:
            _is_writing.clear()  # the next line tries it again


async def _write_log_lines() -> None:
    await Pause(_LOG_PAUSE_MS)
    _is_writing.clear()
    callbacks_of_process().put(write_pending)


call_for_pending(_write_log_lines_soon)


def _begin_in_child() -> None:
    _is_writing.clear()
    _of_parents.append(dict(_of_process))
    _of_process.clear()


os.register_at_fork(after_in_child=_begin_in_child)


__all__ = [
    "Engine",
    "Task",
    "Work",
    "callbacks_of_process",
    "engine_of_process",
    "keep_threads",
]
