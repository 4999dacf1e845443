"""Threads that run the steps of an inbox, and what they wait on. A simulation has tasks in place of threads."""

from __future__ import annotations

import heapq
import itertools
import logging
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from queue import Empty, SimpleQueue
from typing import Any, Final, Protocol

from txnlog.errors import Durable, RetriableError

_logger = logging.getLogger("txnlog.engine")

_IDLE_MS: Final = 1_000.0
"""A thread with nothing to do ends after this: a process that forks should have as few threads as it can."""

_LONGEST_WAIT_S: Final = 0.5
"""A signal that comes just before a thread begins to wait is handled when the wait ends, so none lasts longer."""

_MOST_ASIDE: Final = 8
"""Threads of a worker that block at the same time; whatever more would block is for a pool, which has its own limit."""

Step = Callable[[], None]

Blocking = Callable[[], Step]
"""Something that blocks. What it returns is called at once."""


class Inbox(Protocol):
    """What a thread is to do, or to hear of, next."""

    def put(self, item: Any) -> None:
        """Add something. Any thread may, also in the handler of a signal."""

    def take(self, timeout_ms: float | None) -> Any:
        """Wait for the oldest and take it out; None where there is none within the time."""

    def is_empty(self) -> bool:
        """Whether there is nothing to take."""


class Host(Protocol):
    """What an engine runs in: a process, outside of simulations."""

    def inbox(self) -> Inbox:
        """A new inbox."""

    def start(self, work: Step, name: str) -> None:
        """Run something in a thread of its own, which does not keep the process.

        Raises RetriableError where none can be started.
        """

    def current(self) -> object:
        """What runs now: a thread."""

    def elapsed_ms(self) -> float:
        """A clock that never jumps."""


class _ThreadInbox:
    """An inbox for threads. A SimpleQueue is whole wherever an interrupt comes."""

    def __init__(self) -> None:
        self._items: SimpleQueue[Any] = SimpleQueue()
        self.put = self._items.put
        self.is_empty = self._items.empty

    def take(self, timeout_ms: float | None) -> Any:
        """See Inbox."""
        # First without a wait, which uses up a wake-up that an earlier item left. Else the wait begins with that, and
        # where its time is over by then CPython waits for ever: what is left of it is negative.
        with suppress(Empty):
            return self._items.get_nowait()
        while True:
            try:
                return self._items.get(timeout=_LONGEST_WAIT_S if timeout_ms is None else timeout_ms / 1e3)
            except Empty:
                if timeout_ms is not None:
                    return None


class _Threads:
    """The threads of this process."""

    def inbox(self) -> Inbox:
        """See Host."""
        return _ThreadInbox()

    def start(self, work: Step, name: str) -> None:
        """See Host."""
        try:
            threading.Thread(target=work, name=name, daemon=True).start()
        except RuntimeError as error:
            raise RetriableError(
                "this process cannot start another thread",
                advice="see the limit of its threads (of a container, or ulimit -u), and make the same call again",
                durable=Durable.NOTHING,
            ) from error

    def current(self) -> object:
        """See Host."""
        return threading.current_thread()

    def elapsed_ms(self) -> float:
        """See Host."""
        return time.monotonic_ns() / 1e6


THREADS: Final = _Threads()


class Worker:
    """Runs the steps of an inbox, one after the other. Its thread begins with the first, and ends when idle.

    A step may ask for something that blocks. Where no other step waits, the thread does that itself: to pass it to
    another thread, and the result back, would take two of these longer than most requests of a local disk. Steps that
    come meanwhile are run by another thread, which a signal cannot reach either.
    """

    def __init__(self, host: Host, name: str) -> None:
        self._host = host
        self._name = name
        self._inbox = host.inbox()
        self._lock = threading.RLock()  # over which thread it is, so that no step is left without one
        self._running: object = None
        self._thread: object = None
        self._blocking: list[tuple[Blocking, Callable[[Step], None]]] = []
        self._aside = 0
        self._spare: list[Inbox] = []
        self._timers: list[tuple[float, int, Step]] = []
        self._numbers = itertools.count()

    def put(self, step: Step) -> None:
        """Have a step run. Any thread may, also in the handler of a signal."""
        self._inbox.put(step)
        with self._lock:
            if self._running is None:
                self._begin()

    def _begin(self) -> None:
        """Have a thread run steps: one that has nothing to do, or a new one. With the lock."""
        token = object()
        if self._spare:
            self._spare.pop().put(token)
        else:
            self._host.start(partial(self._run, token), self._name)
        # Behind it: a thread whose beginning was interrupted finds that it is not the one.
        self._running = token

    def block(self, work: Blocking, elsewhere: Callable[[Step], None]) -> None:
        """Have something done that blocks: by this thread, when the step at hand has ended and no other one waits.

        To be called in the thread. Otherwise ``elsewhere`` is called, which has it done by another thread, or raises
        RetriableError where there is none: then it is done by this one all the same.
        """
        self._blocking.append((work, elsewhere))

    def put_after(self, milliseconds: float, step: Step) -> Step:
        """Have a step run after so much time, unless what is returned is called. Both in the thread itself."""
        timer = (self._host.elapsed_ms() + milliseconds, next(self._numbers), step)
        heapq.heappush(self._timers, timer)
        return partial(self._remove, timer)

    def _remove(self, timer: tuple[float, int, Step]) -> None:
        if timer in self._timers:
            self._timers.remove(timer)
            heapq.heapify(self._timers)

    def is_current(self) -> bool:
        """Whether this is called in the thread."""
        return self._thread is not None and self._thread is self._host.current()

    def step_aside(self) -> None:
        """Leave the other steps to another thread: this one is about to wait for something. To be called in it."""
        with self._lock:
            self._begin()
            self._thread = None

    def _run(self, token: object) -> None:
        while self._takes_over(token):
            while self._running is token:
                step = self._next()
                if step is None:
                    return
                self._call(step)
                if self._blocking:
                    self._block(token)
            token = self._wait_as_spare()

    def _takes_over(self, token: object) -> bool:
        """Whether a thread that was begun with a token, none for one that is to end, is the one that runs steps."""
        with self._lock:  # behind the one who began it
            if token is None or self._running is not token:
                return False
            self._thread = self._host.current()
            return True

    def _call(self, step: Step) -> None:
        try:
            step()
        except Exception:
            _logger.exception("A step of %s failed, which goes on with the next one. This is a bug.", self._name)

    def _block(self, token: object) -> None:
        """Do what blocks, the last of several in this thread. Others run steps that come meanwhile, and go on then."""
        *others, (work, elsewhere) = self._blocking
        self._blocking = []
        for other, of_other in others:
            try:
                of_other(partial(do, other))
            except RetriableError:
                self._inbox.put(partial(self.block, other, of_other))  # in a step of its own, as the last of that
        with self._lock:
            is_free = self._inbox.is_empty() and not self._timers and self._aside < _MOST_ASIDE
            if is_free:
                self._leave()
        if not is_free:
            with suppress(RetriableError):
                elsewhere(partial(do, work))
                return
            with self._lock:
                self._leave()
        then = work()
        with self._lock:
            self._aside -= 1
            if self._running is None:  # first: what comes of it would have another thread begin
                self._running, self._thread = token, self._host.current()
        self._call(then)

    def _leave(self) -> None:
        """Let another thread run steps. With the lock."""
        self._running = self._thread = None
        self._aside += 1

    def _wait_as_spare(self) -> object:
        """Wait for steps that nobody else runs; None where there have been none for so long that the thread ends."""
        inbox = self._host.inbox()
        with self._lock:
            self._spare.append(inbox)
        token: object = inbox.take(_IDLE_MS)
        with self._lock:  # behind the one who has just taken it from the spare ones
            if inbox in self._spare:
                self._spare.remove(inbox)
        return inbox.take(0) if token is None else token

    def _next(self) -> Step | None:
        """The next step; None where there has been none for so long that the thread ends."""
        while True:
            timers = self._timers
            left_ms = timers[0][0] - self._host.elapsed_ms() if timers else _IDLE_MS
            if left_ms <= 0:
                return heapq.heappop(timers)[2]
            step: Step | None = self._inbox.take(left_ms)
            if step is not None:
                return step
            with self._lock:
                if not timers and self._inbox.is_empty():
                    self._running = self._thread = None
                    return None


def do(work: Blocking) -> None:
    """Do it, and call what it returns."""
    work()()


__all__ = ["THREADS", "Blocking", "Host", "Inbox", "Step", "Worker", "do"]
