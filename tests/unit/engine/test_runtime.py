"""What a process keeps of its clients, in case that it forks or ends."""

from __future__ import annotations

import sys
from typing import Any

from txnlog.engine import runtime
from txnlog.engine.promises import Promise
from txnlog.engine.runtime import Runtime, call_at_exit


class _Client:
    def report_at_exit(self) -> None:
        """Nothing."""


def test_what_is_collected_calls_nothing_in_which_an_interrupt_would_be_swallowed() -> None:
    """LOST: one in 300 Ctrl-C in ``open``. What is raised when an object is collected Python shows, and goes on."""
    known = len(runtime._renewed), len(runtime._ending)
    items: list[Any] = [Runtime(), _Client(), Promise(lambda step: step())]
    call_at_exit(items[1])
    assert (len(runtime._renewed), len(runtime._ending)) > known
    called: list[str] = []
    sys.setprofile(lambda frame, event, _: called.append(frame.f_code.co_name) if event == "call" else None)
    items.clear()
    sys.setprofile(None)
    assert called == []
    assert (len(runtime._renewed), len(runtime._ending)) == known
