"""Python's logging, for threads that calls of users wait for: what they log is written by those who call, or later.

A handler of ``logging`` has a lock while it writes, which may take long (a pipe that is full). A signal may come in
that moment, and the signal's handler call the client: it waits for the engine then, which must not wait for that lock.
"""

from __future__ import annotations

import logging
import os
import sys
import threading
from collections import deque
from collections.abc import Callable
from typing import Any, Final

_Line = tuple[logging.Logger, int, str, tuple[object, ...], Any]

_own_threads: Final[set[int]] = set()
_pending: Final[deque[_Line]] = deque()
_wakers: Final[list[Callable[[], None]]] = []


def run_as_own_thread(work: Callable[[], None]) -> None:
    """Run what a thread of the client is for: what it logs is left to others."""
    me = threading.get_ident()
    _own_threads.add(me)
    try:
        work()
    finally:
        _own_threads.discard(me)


def call_for_pending(waker: Callable[[], None]) -> None:
    """Have something called whenever lines wait, which has ``write_pending`` called soon, by a thread of its own."""
    _wakers.append(waker)


def write_pending() -> None:
    """Write what waits. By a thread that nobody waits for, or whose own lock of a handler it can only be."""
    while _pending:
        try:
            logger, level, text, arguments, error = _pending.popleft()
        except IndexError:  # another thread had it
            return
        logger.log(level, text, *arguments, exc_info=error)


class LogLines:
    """As a logger, but for threads of the client. ``exc_info`` is an error, or True for the one at hand."""

    def __init__(self, name: str) -> None:
        self._logger = logging.getLogger(name)

    def debug(self, text: str, *arguments: object, exc_info: object = None) -> None:
        """See Logger."""
        self.log(logging.DEBUG, text, *arguments, exc_info=exc_info)

    def info(self, text: str, *arguments: object) -> None:
        """See Logger."""
        self.log(logging.INFO, text, *arguments)

    def warning(self, text: str, *arguments: object, exc_info: object = None) -> None:
        """See Logger."""
        self.log(logging.WARNING, text, *arguments, exc_info=exc_info)

    def exception(self, text: str, *arguments: object) -> None:
        """See Logger."""
        self.log(logging.ERROR, text, *arguments, exc_info=True)

    def log(self, level: int, text: str, *arguments: object, exc_info: object = None) -> None:
        """See Logger."""
        error: Any = sys.exc_info() if exc_info is True else exc_info
        if threading.get_ident() not in _own_threads:
            self._logger.log(level, text, *arguments, exc_info=error)
            return
        _pending.append((self._logger, level, text, arguments, error))
        for waker in _wakers:
            waker()


def _begin_in_child() -> None:
    _own_threads.clear()
    _pending.clear()


os.register_at_fork(after_in_child=_begin_in_child)


__all__ = ["LogLines", "call_for_pending", "run_as_own_thread", "write_pending"]
