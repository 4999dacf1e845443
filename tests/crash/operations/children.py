"""Forked children of a process that has imported everything and opened nothing: each does one thing, or is killed.

Most of what a new process costs are its imports. A child has them, and nothing else that a process before it had: no
handle, no thread, no state of the client.
"""

from __future__ import annotations

import gc
import os
import pickle
import select
import signal
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

_PATIENCE_S = 120.0
_BEGUN, _END = b"b", b"e"


class ChildFailed(Exception):
    """A child raised something, or hung: the traceback, or what became of it."""


@dataclass(frozen=True)
class Ended:
    """What became of a child: it was ``killed``, by itself or by us; or what it gave."""

    killed: bool
    result: Any = None


def run(work: Callable[[Callable[[], None]], Any], kill_after_s: float | None = None) -> Ended:
    """Work in a child until it ends or is killed. Raises ChildFailed.

    Args:
        work: called with what the child calls when it begins with what it is to be killed in.
        kill_after_s: kill it so long after it has begun.
    """
    gc.freeze()  # a collection in a child would copy every page of its parent
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reading)
        _be_child(work, writing)
    os.close(writing)
    try:
        return _wait_for(child, reading, kill_after_s)
    finally:
        os.close(reading)


def _be_child(work: Callable[[Callable[[], None]], Any], writing: int) -> None:
    """In the child; it never returns."""
    try:
        try:
            answer: tuple[bool, Any] = (True, work(partial(_say_begun, writing)))
            data = pickle.dumps(answer)
        except BaseException:  # noqa: BLE001 - it is the answer
            data = pickle.dumps((False, traceback.format_exc()))
        with os.fdopen(writing, "wb") as pipe:
            pipe.write(data + _END)
        os._exit(0)
    finally:
        os._exit(1)


def _say_begun(writing: int) -> None:
    os.write(writing, _BEGUN)


def _wait_for(child: int, reading: int, kill_after_s: float | None) -> Ended:
    """Read what a child says until it is gone."""
    said = b""
    latest = time.monotonic() + _PATIENCE_S
    kill_at: float | None = None
    while True:
        until = latest if kill_at is None else min(kill_at, latest)
        ready, _, _ = select.select([reading], [], [], max(0.0, until - time.monotonic()))
        if ready:
            piece = os.read(reading, 1 << 16)
            if not piece:
                break
            if piece[:1] == _BEGUN and not said and kill_after_s is not None:
                kill_at = time.monotonic() + kill_after_s
            said += piece
        else:
            os.kill(child, signal.SIGKILL)
            kill_at = None
            if time.monotonic() >= latest:
                os.waitpid(child, 0)
                raise ChildFailed(f"no end after {_PATIENCE_S:.0f} s")
    _, status = os.waitpid(child, 0)
    answer = said.removeprefix(_BEGUN)
    if answer.endswith(_END):
        succeeded, result = pickle.loads(answer.removesuffix(_END))
        if not succeeded:
            raise ChildFailed(result)
        return Ended(killed=False, result=result)
    if os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGKILL:
        return Ended(killed=True)
    raise ChildFailed(f"a child ended with {status}")


__all__ = ["ChildFailed", "Ended", "run"]
