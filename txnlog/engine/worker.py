"""Threads that run the steps of an inbox, and what they wait on. A simulation has tasks in place of threads."""

from __future__ import annotations

import heapq
import itertools
import sys
import threading
import time
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from queue import Empty, SimpleQueue
from typing import Any, Final, Protocol

from txnlog.engine.effects import Step
from txnlog.engine.log_lines import LogLines, run_as_own_thread
from txnlog.errors import CalledAfterTheEnd, Durable, RetriableError

_logger = LogLines("txnlog.engine")

CALLBACKS: Final = "txnlog-callbacks"
"""The thread that calls what users want to have called: no task waits for it."""

_IDLE_MS: Final = 1_000.0
"""A thread with nothing to do ends after this: a process that forks should have as few threads as it can."""

_LONGEST_WAIT_S: Final = 0.5
"""A signal that comes just before a thread begins to wait is handled when the wait ends, so none lasts longer."""

_MOST_ASIDE: Final = 8
"""Threads of a worker that block at the same time; whatever more would block is for a pool, which has its own limit."""

_STARTS_NONE_AT_THE_END: Final = (3, 12, 0) <= sys.version_info[:3] < (3, 12, 2)
"""These start no thread once the script has come to its end, although its own threads work on (gh-113964)."""

Blocking = Callable[[], Step]
"""Something that blocks. What it returns is called at once."""


def program_has_ended() -> bool:
    """Whether the program has ended, and with it all threads: what its finalizers ask of them never comes."""
    return sys.is_finalizing()


def refuse_after_end(*_of_request: object) -> None:
    """Raise CalledAfterTheEnd where the program has ended. Also a hook before requests of a store.

    By then the thread by which a library makes them may be gone, for which it would wait, Arrow may abort the process,
    and builtins and imports are missing.
    """
    if program_has_ended():
        raise CalledAfterTheEnd


def start_thread(thread: threading.Thread) -> None:
    """Start a thread. Raises RetriableError where the process cannot have another one."""
    try:
        thread.start()
    except RuntimeError as error:
        raise RetriableError(
            f"this process cannot start another thread: {error}",
            advice="see the limit of its threads (of a container, or ulimit -u), and make the same call again; if the "
            "script has come to its end, let it join its threads before (Python 3.12 starts none after that)",
            durable=Durable.NOTHING,
        ) from error


class Inbox(Protocol):
    """What a thread is to do, or to hear of, next."""

    def put(self, item: Any) -> None:
        """Add something. Any thread may, also in the handler of a signal."""

    def take(self, timeout_ms: float | None) -> Any:
        """Wait for the oldest and take it out; None where there is none within the time."""

    def is_empty(self) -> bool:
        """Whether there is nothing to take."""


class Host(Protocol):
    """What an engine runs in: a process, outside of simulations.

    Attributes:
        keeps_threads: whether the thread of a worker stays when it has nothing to do: there may be no other one later.
    """

    keeps_threads: bool

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
        try:
            return self._items.get_nowait()
        except Empty:
            pass
        while True:
            try:
                return self._items.get(timeout=_LONGEST_WAIT_S if timeout_ms is None else timeout_ms / 1e3)
            except Empty:
                if timeout_ms is not None:
                    return None


class _Threads:
    """The threads of this process."""

    def __init__(self) -> None:
        self.keeps_threads = _STARTS_NONE_AT_THE_END

    def inbox(self) -> Inbox:
        """See Host."""
        return _ThreadInbox()

    def start(self, work: Step, name: str) -> None:
        """See Host. Nothing runs any more where the interpreter has ended, whatever is asked for."""
        if program_has_ended():
            return
        own = work if name == CALLBACKS else partial(run_as_own_thread, work)
        start_thread(threading.Thread(target=own, name=name, daemon=True))

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

    Nothing here has a lock, since an interrupt, and the handler of a signal that waits for the engine, may come in the
    middle of ``put``. There is one seat. Who puts a step while nobody has it begins a thread, and of several that were
    begun only the one that takes the seat runs steps.
    """

    def __init__(self, host: Host, name: str) -> None:
        self._host = host
        self._name = name
        self._inbox = host.inbox()
        self._seat: deque[None] = deque([None])
        self._thread: object = None
        self._blocking: list[tuple[Blocking, Callable[[Step], None]]] = []
        self._aside: deque[None] = deque([None] * _MOST_ASIDE)
        self._spare: deque[Inbox] = deque()
        self._here: deque[Step] = deque()
        self._timers: list[tuple[float, int, Step]] = []
        self._numbers = itertools.count()

    def put(self, step: Step) -> None:
        """Have a step run. Any thread may, also in the handler of a signal.

        Raises RetriableError where no thread can be started: the step waits for the next one that puts something.
        """
        self._inbox.put(step)
        if self._seat:
            self._begin()

    def wake(self) -> None:
        """Have a thread there, to run what waits or will come. Raises RetriableError where none can be started."""
        if self._seat:
            self._begin()

    def is_idle(self) -> bool:
        """Whether nothing is under way, and nothing waits. From any thread."""
        return bool(self._seat) and self._inbox.is_empty()

    def put_here(self, step: Step) -> None:
        """``put`` in the thread itself: the step is run before others that wait."""
        self._here.append(step)

    def hand_back(self, step: Step) -> None:
        """``put`` by a thread that did something for a step: it runs the steps itself where no other can be started."""
        try:
            self.put(step)
        except RetriableError:
            self._run(stays=False)

    def _begin(self) -> None:
        """Have a thread run steps: one that has nothing to do, or a new one."""
        try:
            spare = self._spare.pop()
        except IndexError:
            self._host.start(self._run, self._name)
        else:
            spare.put(True)

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
        self._get_up()
        if self._here or not self._inbox.is_empty():
            self._begin()

    def _sit_down(self) -> bool:
        """Take the seat, and whether it was free."""
        try:
            self._seat.pop()
        except IndexError:
            return False
        self._thread = self._host.current()
        return True

    def _get_up(self) -> None:
        """Leave the seat. A step that came just before has nobody yet: look for it afterwards."""
        self._thread = None
        self._seat.append(None)

    def _run(self, *, stays: bool = True) -> None:
        """Run steps until there is nothing to do for a while. ``stays``: for ever, where threads are kept."""
        me = self._host.current()
        try:
            while not (self._sit_down() and self._run_steps(stays=stays)):
                if not self._wait_as_spare():
                    return
        finally:
            if self._thread is me:  # it was interrupted
                self._get_up()

    def _run_steps(self, *, stays: bool) -> bool:
        """Run steps while this thread has the seat. Whether there was nothing to do for so long that it ends."""
        me = self._host.current()
        while self._thread is me:
            if self._here:
                self._run_here()
            else:
                step = self._next()
                if step is None:
                    if stays and self._host.keeps_threads:
                        continue
                    self._get_up()
                    if self._inbox.is_empty() or not self._sit_down():
                        return True
                    continue
                self._call(step)
                del step  # it may have an error, and by the traceback of that what a call was given
            if self._blocking:
                self._block()
        return False

    def _run_here(self) -> None:
        """Run the steps of here. What they have run here in turn waits behind all others, which have their turn."""
        for _ in range(len(self._here)):
            self._call(self._here.popleft())
        while self._here:
            self._inbox.put(self._here.popleft())

    def _call(self, step: Step) -> None:
        try:
            step()
        except Exception:
            _logger.exception("A step of %s failed, which goes on with the next one. This is a bug.", self._name)

    def _block(self) -> None:
        """Do what blocks, the last of several in this thread. Others run steps that come meanwhile, and go on then."""
        *others, (work, elsewhere) = self._blocking
        self._blocking = []
        for other, of_other in others:
            try:
                of_other(partial(do, other))
            except RetriableError:
                self._inbox.put(partial(self.block, other, of_other))  # in a step of its own, as the last of that
        is_aside = self._goes_aside()
        if not is_aside:
            with suppress(RetriableError):
                elsewhere(partial(do, work))
                return
            self._get_up()
        then = work()
        if is_aside:
            self._aside.append(None)
        self._sit_down()  # first: what comes of it would have another thread begin
        self._call(then)

    def _goes_aside(self) -> bool:
        """Leave the seat to do what blocks, unless steps wait, or too many threads do so already."""
        if self._timers or self._here or not self._inbox.is_empty():
            return False
        try:
            self._aside.pop()
        except IndexError:
            return False
        self._get_up()
        if not self._inbox.is_empty() and self._sit_down():
            self._aside.append(None)
            return False
        return True

    def _wait_as_spare(self) -> bool:
        """Wait until nobody has the seat; False where that takes so long that the thread ends."""
        inbox = self._host.inbox()
        self._spare.append(inbox)
        if inbox.take(_IDLE_MS) is None:
            try:
                self._spare.remove(inbox)
            except ValueError:
                inbox.take(_IDLE_MS)  # somebody has just chosen it
            else:
                return False
        return True

    def _next(self) -> Step | None:
        """The next step; None where there has been none for so long that the thread ends.

        A step whose time has come waits for its turn as any other does: of pauses without a length no other would run.
        """
        while True:
            timers = self._timers
            left_ms = timers[0][0] - self._host.elapsed_ms() if timers else _IDLE_MS
            while left_ms <= 0:
                self._inbox.put(heapq.heappop(timers)[2])
                left_ms = timers[0][0] - self._host.elapsed_ms() if timers else _IDLE_MS
            step: Step | None = self._inbox.take(left_ms)
            if step is not None or not timers:
                return step


class Crew:
    """Makes calls that block, a limited number at a time, in threads that do not keep the process.

    Without a lock, as the worker: of more threads than are needed the others end at once.

    Attributes:
        threads: those that there are. A finalizer that Python runs in one of them, even between two calls, must not
            wait for what may need that very thread.
    """

    def __init__(self, host: Host, name: str, most: int) -> None:
        self._host = host
        self._name = name
        self._most = most
        self._inbox = host.inbox()
        self._free: deque[None] = deque([None] * most)
        self._waiting: deque[None] = deque()
        self._is_over = False
        self.threads: set[object] = set()

    def close(self) -> None:
        """Let its threads end as soon as they have nothing to do."""
        self._is_over = True
        for _ in range(len(self._waiting)):
            self._inbox.put(_nothing)

    def put(self, call: Step) -> None:
        """Have a call made.

        Raises RetriableError where there is no thread, and none can be started. It may be made later all the same.
        """
        self._inbox.put(call)
        try:
            self._begin()
        except RetriableError:
            if len(self._free) == self._most:
                raise

    def put_or_call(self, call: Step) -> None:
        """Have a call made once: by this thread where there is no other one."""
        once = only_once(call)
        try:
            self.put(once)
        except RetriableError:  # it is queued all the same, and may be taken where somebody can start a thread
            once()

    def _begin(self) -> None:
        if self._free and not self._waiting:
            self._host.start(self._run, self._name)

    def _run(self) -> None:
        me = self._host.current()
        self.threads.add(me)
        while self._take_place():
            self._make_calls()
            self._free.append(None)
            if self._inbox.is_empty():  # else it came while this one had the place, and no thread may have been begun
                break
        self.threads.discard(me)

    def _take_place(self) -> bool:
        try:
            self._free.pop()
        except IndexError:
            return False
        return True

    def _make_calls(self) -> None:
        """Make calls until there is none for a while."""
        while True:
            self._waiting.append(None)
            call = self._inbox.take(_IDLE_MS)
            self._waiting.pop()
            if call is None and self._inbox.is_empty():
                return
            if not self._inbox.is_empty():
                with suppress(RetriableError):
                    self._begin()
            if call is not None:
                call()
            del call  # as a step of a worker
            if self._is_over and self._inbox.is_empty():
                return


def _nothing() -> None:
    pass


def only_once(call: Step) -> Step:
    """Of several threads that make what this gives exactly one makes the call; the others go on at once."""
    begun = itertools.count()

    def once() -> None:
        if next(begun) == 0:  # one step, so it needs no lock
            call()

    return once


def do(work: Blocking) -> None:
    """Do it, and call what it returns."""
    work()()


__all__ = [
    "CALLBACKS",
    "THREADS",
    "Blocking",
    "Crew",
    "Host",
    "Inbox",
    "Worker",
    "do",
    "only_once",
    "program_has_ended",
    "refuse_after_end",
    "start_thread",
]
