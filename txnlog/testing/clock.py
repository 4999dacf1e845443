"""A clock that moves only when its owner moves it."""

from __future__ import annotations

import threading


class ManualClock:
    """A clock for ``txnlog.open(..., clock=...)``; it is trusted as it is, so tests of deadlines need no waiting."""

    def __init__(self, start_ms: int = 0) -> None:
        self._now_ms = start_ms
        self._lock = threading.Lock()

    def now_ms(self) -> int:
        """Epoch milliseconds."""
        with self._lock:
            return self._now_ms

    def advance(self, milliseconds: int) -> int:
        """Move forward (or back, with a negative number: clocks do). Returns the new time."""
        with self._lock:
            self._now_ms += milliseconds
            return self._now_ms


__all__ = ["ManualClock"]
