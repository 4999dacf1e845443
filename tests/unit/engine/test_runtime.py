"""What a process keeps of its clients, in case that it forks or ends."""

from __future__ import annotations

import sys
import threading
from functools import partial
from typing import Any

import pytest

from txnlog.engine import runtime
from txnlog.engine.promises import Promise
from txnlog.engine.runtime import Runtime, call_at_exit
from txnlog.errors import StoreError


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


# --- requests side by side --------------------------------------------------------------------------------------------


class _Timed(Runtime):
    """Its clock goes on by what each call takes."""

    spent_ms = 0.0

    def elapsed_ms(self) -> float:
        return self.spent_ms


@pytest.mark.parametrize(("slow", "alone"), [(None, 9), (0, 1), (3, 4), (8, 9)])
def test_quick_requests_are_made_by_the_caller_until_one_takes_longer(slow: int | None, alone: int) -> None:
    made = _Timed()
    me, threads = threading.current_thread(), dict[int, threading.Thread]()
    together = threading.Event()

    def call(number: int) -> int:
        threads[number] = threading.current_thread()
        if number >= alone:  # the others wait for one of another thread, which there is then
            if threads[number] is me:
                assert together.wait(30)
            together.set()
        made.spent_ms += 2 if number == slow else 0.1
        return number

    assert made.run_quick([partial(call, number) for number in range(9)]) == list(range(9))
    assert [threads[number] is me for number in range(alone)] == [True] * alone
    assert alone >= 8 or {threads[number] for number in range(alone, 9)} != {me}


def test_the_first_error_of_quick_requests_is_raised_and_the_others_are_not_made() -> None:
    made: list[int] = []

    def call(number: int) -> None:
        made.append(number)
        if number == 2:
            raise StoreError("away")

    with pytest.raises(StoreError, match="away"):
        Runtime().run_quick([partial(call, number) for number in range(5)])
    assert made == [0, 1, 2]
