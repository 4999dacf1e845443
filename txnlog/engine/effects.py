"""What a task awaits: requests, time, other tasks. The engine begins each, and goes on with others meanwhile."""

from __future__ import annotations

import itertools
from collections.abc import Awaitable, Callable, Generator, Sequence
from functools import partial
from typing import Any, Final, Generic, Protocol, TypeVar

from txnlog.replies import copy_of

R = TypeVar("R")
R_co = TypeVar("R_co", covariant=True)


class Cancelled(BaseException):
    """Raised once in a task whose caller no longer waits, where it waits for other tasks or for time."""


Step = Callable[[], None]
"""Something that is called once, in the engine or by whoever has its turn. It blocks nobody."""


class Result(Generic[R_co]):
    """What a task, or a request, came to: a value, or an error."""

    __slots__ = ("error", "value")

    def __init__(self, value: Any, error: BaseException | None = None) -> None:
        self.value = value
        self.error = error

    def get(self) -> R_co:
        """The value; raises the error."""
        if self.error is not None:
            try:
                raise self.error
            finally:
                self = None  # type: ignore[assignment]  # noqa: PLW0642 - the traceback refers to this frame
        value: R_co = self.value
        return value


def result_of(call: Callable[[], R]) -> Result[R]:
    """Call, whatever comes of it."""
    try:
        return Result(call())
    except BaseException as error:  # noqa: BLE001 - whoever asked for it gets it
        return Result(None, error)


class Waiting(Protocol):
    """A task that awaits an effect, as the effect sees it. To be called in the engine, but for ``resume``."""

    def go_on(self) -> None:
        """From here on it runs to its end, whoever waits for it."""

    def resume(self, effect: Effect[Any], result: Result[Any]) -> None:
        """Let it go on with what came of the effect. Any thread may call it; a second call changes nothing."""

    def resume_here(self, effect: Effect[Any], result: Result[Any]) -> None:
        """``resume`` by the engine: at once, when the step at hand has ended."""

    def resume_after(self, effect: Effect[Any], milliseconds: float) -> Step:
        """Let it go on when so much time has passed, unless what is returned is called."""

    def note_written(self) -> None:
        """Something of it is in the log, that readers find."""


class Effect(Generic[R_co]):
    """Something that a task awaits.

    Attributes:
        can_be_cancelled: whether it need not begin where the task's caller is gone.
    """

    can_be_cancelled = False

    def __await__(self) -> Generator[Effect[Any], R_co, R_co]:
        return (yield self)

    def begin(self, waiting: Waiting) -> Result[R_co] | None:
        """Begin it for a task. Gives the result where it is there at once."""
        raise NotImplementedError

    def cancel(self, waiting: Waiting) -> bool:  # noqa: ARG002 - see below
        """The task's caller is gone. False where the task has to wait all the same."""
        return False


class Pause(Effect[None]):
    """Lets time pass."""

    can_be_cancelled = True

    def __init__(self, milliseconds: float) -> None:
        self._milliseconds = milliseconds
        self._end: Step = lambda: None

    def begin(self, waiting: Waiting) -> None:
        """See Effect."""
        self._end = waiting.resume_after(self, self._milliseconds)

    def cancel(self, waiting: Waiting) -> bool:  # noqa: ARG002 - see Effect
        """See Effect."""
        self._end()
        return True


Submit = Callable[[Callable[[], Step]], None]
"""Has something done that blocks, and calls what that returns."""


class Request(Effect[R]):
    """Calls something that blocks, while the engine goes on. It runs to its end, whoever waits for it."""

    def __init__(self, submit: Submit, call: Callable[[], R]) -> None:
        self._submit = submit
        self._call = call

    def begin(self, waiting: Waiting) -> None:
        """See Effect."""
        self._submit(lambda: partial(waiting.resume, self, result_of(self._call)))


class Read(Request[R]):
    """A request that changes nothing. Where the task's caller is gone nobody waits for its end."""

    can_be_cancelled = True

    def cancel(self, waiting: Waiting) -> bool:  # noqa: ARG002 - see Effect
        """See Effect."""
        return True


class Requests(Effect[list[R]]):
    """Makes independent calls at the same time. Results in order; the first error is raised after all have ended."""

    def __init__(self, submit: Submit, calls: Sequence[Callable[[], R]]) -> None:
        self._submit = submit
        self._calls = calls

    def begin(self, waiting: Waiting) -> Result[list[R]] | None:
        """See Effect."""
        if not self._calls:
            return Result([])
        results: list[Result[R]] = [Result(None)] * len(self._calls)
        ended = itertools.count(1)  # one step for each: of several threads exactly one is the last

        def run(place: int, call: Callable[[], R]) -> Step:
            results[place] = result_of(call)
            if next(ended) < len(self._calls):
                return lambda: None
            error = next((item.error for item in results if item.error is not None), None)
            values = [item.get() for item in results] if error is None else None
            return partial(waiting.resume, self, Result(values, error))

        for place, call in enumerate(self._calls):
            self._submit(partial(run, place, call))
        return None


class Reply(Effect[R]):
    """A value, or an error, that one task gives to others: once."""

    can_be_cancelled = True

    def __init__(self) -> None:
        self.result: Result[R] | None = None
        self._waiting: list[Waiting] = []

    def give(self, value: Any, error: BaseException | None = None) -> None:
        """Give it to whoever waits, and to whoever asks later. A second one changes nothing."""
        if self.result is None:
            self.result = Result(value, copy_of(error))
            for waiting in self._waiting:
                waiting.resume_here(self, self._own(self.result))
            self._waiting = []

    def begin(self, waiting: Waiting) -> Result[R] | None:
        """See Effect."""
        if self.result is None:
            self._waiting.append(waiting)
            return None
        return self._own(self.result)

    def _own(self, result: Result[R]) -> Result[R]:
        """What one of them gets."""
        return result if result.error is None else Result(None, copy_of(result.error))

    def cancel(self, waiting: Waiting) -> bool:
        """See Effect."""
        self._waiting = [item for item in self._waiting if item is not waiting]
        return True


class _StillWanted(Effect[None]):
    can_be_cancelled = True

    def begin(self, waiting: Waiting) -> Result[None]:  # noqa: ARG002 - see Effect
        """See Effect."""
        return Result(None)


STILL_WANTED: Final = _StillWanted()
"""Awaits nothing, but ends the task where its caller is gone."""


class _GoOn(Effect[None]):
    def begin(self, waiting: Waiting) -> Result[None]:
        """See Effect."""
        waiting.go_on()
        return Result(None)


GO_ON: Final = _GoOn()
"""Awaits nothing. From here on the task runs to its end, whoever waits for it: something is to be settled."""


class _Written(Effect[None]):
    def begin(self, waiting: Waiting) -> Result[None]:
        """See Effect."""
        waiting.note_written()
        return Result(None)


WRITTEN: Final = _Written()
"""Awaits nothing. Notes that the task has written something, which is on the store already."""


class _Done:
    """Awaits nothing: a coroutine for each turn that nobody waits for would cost more than the turn."""

    def __await__(self) -> Generator[Effect[Any], None, None]:
        return
        yield


_DONE: Final = _Done()


class Turn:
    """Commands that must not run side by side have their turn, in the order in which they ask: ``async with turn``."""

    __slots__ = ("_is_taken", "_waiting")

    def __init__(self) -> None:
        self._is_taken = False
        self._waiting: list[Reply[None]] | None = None  # there is one for each transaction, and most need none

    @property
    def is_taken(self) -> bool:
        """Whether a command has it: others wait. From any thread."""
        return self._is_taken

    def __aenter__(self) -> Awaitable[None]:
        if self._is_taken:
            return self._wait()
        self._is_taken = True
        return _DONE

    async def _wait(self) -> None:
        given: Reply[None] = Reply()
        self._waiting = waiting = self._waiting or []
        waiting.append(given)
        try:
            await given
        except Cancelled:
            if given.result is None:
                waiting.remove(given)
            else:  # it was given the turn just now
                self._give()
            raise

    def __aexit__(self, *_error: object) -> Awaitable[None]:
        self._give()
        return _DONE

    def _give(self) -> None:
        if self._waiting:
            self._waiting.pop(0).give(None)
        else:
            self._is_taken = False


__all__ = [
    "GO_ON",
    "STILL_WANTED",
    "WRITTEN",
    "Cancelled",
    "Effect",
    "Pause",
    "Read",
    "Reply",
    "Request",
    "Requests",
    "Result",
    "Step",
    "Turn",
    "Waiting",
    "result_of",
]
