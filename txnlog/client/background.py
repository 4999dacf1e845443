"""Work that nobody waits for: begun in the engine, one time at a time, and waited for at the end."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any, Final

from txnlog.engine.effects import Effect
from txnlog.engine.engine import Command
from txnlog.engine.runtime import Runtime

_MOST_MS: Final = 60_000.0
"""A store that is away so long is not waited for."""

_PAUSE_MS: Final = 5.0


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

    def _noted(self, work: Callable[[], Coroutine[Effect[Any], Any, None]]) -> Command[None]:
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
            await self._runtime.pause(_PAUSE_MS)


__all__ = ["BackgroundWork"]
