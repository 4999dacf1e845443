"""A time limit of the program, whose signal's handler raises, while maintenance waits for the disk."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable
from types import FrameType
from typing import Any

import pytest

from tests.client.support import Place, rows
from tests.interrupts import hearing_signal


@pytest.mark.parametrize("call", ["optimize", "checkpoint", "maintain"])
def test_it_reaches_the_caller_and_the_handle_can_still_write(
    local: Place, monkeypatch: pytest.MonkeyPatch, call: str
) -> None:
    """REFUSED: TimeoutError is an OSError, and was noted as an fsync that failed."""
    ns = local.orders(1)
    ns.produce("orders", rows(2))
    calls: dict[str, Callable[[], Any]] = {
        "optimize": lambda: ns.optimize("orders"),
        "checkpoint": ns.checkpoint,
        "maintain": ns.maintain,
    }
    main, heard = threading.main_thread(), threading.Event()

    def handle(_number: int, _frame: FrameType | None) -> None:
        heard.set()
        raise TimeoutError("the job's own limit")

    def fsync(_descriptor: int) -> None:
        if not heard.is_set():
            if threading.current_thread() is main:
                signal.raise_signal(signal.SIGUSR1)
            signal.pthread_kill(main.ident or 0, signal.SIGUSR1)
            assert heard.wait(20)

    with hearing_signal(handle):
        monkeypatch.setattr(os, "fsync", fsync)
        with pytest.raises(TimeoutError, match="the job's own limit"):
            calls[call]()
    assert ns.produce("orders", rows(3)).version
    calls[call]()
