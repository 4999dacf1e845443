"""Work that is stopped before a line of a file: in processes that die there, hang, or let another one pass."""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import sys
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Any

FORK = multiprocessing.get_context("fork")
_PATIENCE_S = 60


@contextlib.contextmanager
def before_line(file: str, line: int, at_line: Callable[[], None]) -> Iterator[None]:
    """Meanwhile do something before that many-th line of a file that is run; before none where it is 0."""

    def trace(frame: FrameType, event: str, _: object) -> Any:
        nonlocal line
        if frame.f_code.co_filename != file:
            return None
        if event == "line":
            line -= 1
            if line == 0:
                at_line()
        return trace

    sys.settrace(trace if line else None)
    try:
        yield
    finally:
        sys.settrace(None)


def start(work: Callable[..., int], *args: Any) -> Any:
    """A process that does this and exits with what it returns."""
    process = FORK.Process(target=lambda: os._exit(work(*args)), daemon=True)
    process.start()
    return process


def ended(process: Any, patience_s: float = _PATIENCE_S) -> int:
    """How a process ended."""
    process.join(patience_s)
    assert process.exitcode is not None, "it hangs"
    return int(process.exitcode)
