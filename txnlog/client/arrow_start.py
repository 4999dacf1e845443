"""What Arrow does at its first conversion in a process, done in a thread where nothing can interrupt it."""

from __future__ import annotations

import os
import threading
from typing import Final

import pyarrow as pa

from txnlog.engine.worker import refuse_after_end, start_thread

_started: Final[dict[str, threading.Thread]] = {}

_turn: Final = threading.RLock()
"""Whoever has it converts or forks: a child that is forked in the middle could never convert anything."""


def start_arrow() -> None:
    """Have Arrow import pandas now, before any read, and wait for that.

    Arrow does so at its first conversion to or from NumPy, which takes half a second. From within its C++ code it
    swallows Ctrl-C there, and a handler of a signal that converts something as well waits for ever: so not in the
    thread of a caller, which is the one that is interrupted. And in a thread that does not keep the process, Arrow
    aborts the process if that ends meanwhile: so in one that does.

    Raises RetriableError where no thread can be started, CalledAfterTheEnd where the program has ended.
    """
    if "done" in _started:
        return
    thread = _started.get("thread")
    refuse_after_end()  # where Arrow would abort the process
    if thread is None:
        thread = threading.Thread(target=_convert, name="txnlog-arrow", daemon=False)
        start_thread(thread)
        _started.setdefault("thread", thread)  # of two, which a handler may have begun inside, each waits for its own
    thread.join()
    _started["done"] = thread


def _convert() -> None:
    with _turn:
        pa.array([0])


def _begin_in_child() -> None:
    _turn.release()
    _started.clear()


os.register_at_fork(before=_turn.acquire, after_in_parent=_turn.release, after_in_child=_begin_in_child)


__all__ = ["start_arrow"]
