"""Calls with a time limit, which they do not keep."""

from __future__ import annotations

import signal
from collections.abc import Callable
from typing import Any

import pytest

from tests.client.support import Place
from tests.faults import Once
from txnlog.store import HookStore, StoreCall


class _TooLong(Exception):
    pass


def limited(call: Callable[[], object], seconds: float = 0.3) -> None:
    """Make a call with a time limit, which it does not keep: what a job with ``signal.alarm`` does."""

    def handler(*_: Any) -> None:
        raise _TooLong

    old = signal.signal(signal.SIGALRM, handler)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        with pytest.raises(_TooLong):
            call()
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, old)


def slow_file(memory: Place, act: Callable[[], object]) -> tuple[Any, Once]:
    """A handle for which, once ``came`` is set to False, the next file takes its time."""
    hook = Once(lambda call, key: call is StoreCall.PUT and key.endswith(".parquet"), act, came=True)
    return memory.open(wrap=lambda store: HookStore(store, before=hook)), hook
