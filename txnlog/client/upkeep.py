"""Work that nobody waits for: begun in the engine, one time at a time, and waited for at the end."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Iterable
from typing import Any, Final

from txnlog.engine.effects import Effect
from txnlog.engine.engine import Work
from txnlog.engine.runtime import Runtime

_MOST_MS: Final = 60_000.0
"""A store that is away so long is not waited for."""

_LOOK_EVERY_MS: Final = 5.0

_GATHER_MS: Final = 5.0
"""Before the work for a topic: its first steps would take the interpreter from the commit that asks for it, and what is
committed meanwhile goes with it."""


class BackgroundWork:
    """One kind of background work of a handle. The end of the process does not wait for it, but ``close`` does."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self._is_under_way = False

    def begin(self, work: Callable[[], Coroutine[Effect[Any], Any, None]]) -> None:
        """Do it, unless it is under way. To be called in the engine. It raises nothing."""
        if not self._is_under_way:
            self._is_under_way = True
            self._runtime.engine.post(self._noted(work), keeps_process=False)

    def _noted(self, work: Callable[[], Coroutine[Effect[Any], Any, None]]) -> Work[None]:
        async def noted() -> None:
            try:
                await work()
            finally:
                self._is_under_way = False

        return noted

    def wait(self) -> None:
        """Wait for it, a minute at most. From any thread but the engine's."""
        self._runtime.engine.call(self._wait)

    async def _wait(self) -> None:
        end = self._runtime.elapsed_ms() + _MOST_MS
        while self._is_under_way and self._runtime.elapsed_ms() < end:
            await self._runtime.pause(_LOOK_EVERY_MS)


class TopicQueue:
    """Topics for which there is background work: that of one at a time is under way.

    Args:
        runtime: of the handle.
        work: called in the engine when it is a topic's turn, gives what to do for it in a thread; None for nothing.
    """

    def __init__(self, runtime: Runtime, work: Callable[[int], Callable[[], None] | None]) -> None:
        self._runtime = runtime
        self._work = work
        # Of the engine alone, but for _is_hurried.
        self._waiting: dict[int, None] = {}
        self._is_stopped = False
        self._is_hurried = False
        self._background = BackgroundWork(runtime)

    def begin(self, topics: Iterable[int]) -> None:
        """Have the topics wait for their turn, each once. To be called in the engine."""
        if not self._is_stopped:
            self._waiting.update(dict.fromkeys(topics))
            if self._waiting:
                self._background.begin(self._run)

    async def _run(self) -> None:
        while self._waiting:
            if not self._is_hurried:
                await self._runtime.pause(_GATHER_MS)
            if self._waiting:  # else it was stopped
                topic = next(iter(self._waiting))
                del self._waiting[topic]
                work = self._work(topic)
                if work is not None:
                    await self._runtime.job(work)

    def finish(self) -> None:
        """Wait for what is under way and what waits. From any thread but the engine's."""
        self._is_hurried = True
        self._background.wait()
        self._is_hurried = False

    def stop(self) -> None:
        """Begin nothing more, and wait for what is under way. From any thread but the engine's."""
        self._runtime.engine.look(self._stop)
        self._background.wait()

    def _stop(self) -> None:
        self._is_stopped = True
        self._waiting.clear()


__all__ = ["BackgroundWork", "TopicQueue"]
