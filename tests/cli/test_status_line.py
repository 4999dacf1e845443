"""What is on the screen of a terminal while a command is at work, and after it."""

from __future__ import annotations

import contextlib
import fcntl
import logging
import os
import pty
import struct
import subprocess
import sys
import termios
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

import txnlog
from tests.client.support import SCHEMA, rows
from txnlog.cli.output import StatusLine
from txnlog.testing import ManualClock
from txnlog.testing.scheduler import START_MS

COLUMNS = 50


def screen(text: str) -> list[str]:
    """The lines of a terminal that got a text, all that scrolled away included."""
    lines, column = [""], 0
    for character in text:
        if character == "\r":
            column = 0
        elif character == "\n":
            lines.append("")
            column = 0
        else:
            if column == COLUMNS:
                lines.append("")
                column = 0
            lines[-1] = lines[-1].ljust(column)[:column] + character + lines[-1][column + 1 :]
            column += 1
    return [line.rstrip() for line in lines]


def on_terminal(call: Callable[[int], object]) -> str:
    """What a call writes to a terminal."""
    outer, inner = pty.openpty()
    fcntl.ioctl(inner, termios.TIOCSWINSZ, struct.pack("HHHH", 24, COLUMNS, 0, 0))
    with ThreadPoolExecutor(1) as pool:  # a terminal that nobody reads makes its writers wait
        written = pool.submit(_read_all, outer)
        try:
            call(inner)
        finally:
            os.close(inner)
        return written.result()


def _read_all(outer: int) -> str:
    written = b""
    with contextlib.suppress(OSError):  # Linux reports the end in this way
        while part := os.read(outer, 65_536):
            written += part
    os.close(outer)
    return written.decode()


@pytest.fixture
def lake(tmp_path: Path) -> str:
    """A namespace of long ago, with segments to merge and a topic that was dropped."""
    clock = ManualClock(START_MS)
    with txnlog.open(tmp_path / "lake", namespace="sales", create=True, clock=clock) as ns:
        for topic in ("orders-of-all-customers-in-the-north", "audit", "payments"):
            ns.create_topic(topic, SCHEMA)
            for number in range(10):
                ns.produce(topic, rows(number))
        ns.drop_topic("payments")
    return str(tmp_path / "lake" / "sales")


@pytest.mark.parametrize("arguments", [["maintain"], ["vacuum", "--yes"], ["optimize", "audit"]])
def test_nothing_of_the_progress_is_left_on_the_screen_and_no_line_runs_into_another(
    lake: str, arguments: list[str]
) -> None:
    def call(inner: int) -> None:
        command = [sys.executable, "-m", "txnlog", lake, *arguments]
        subprocess.run(command, stdin=inner, stdout=inner, stderr=inner, check=True)

    written = on_terminal(call)
    assert "\r" in written.replace("\r\n", ""), "there was progress"
    shown = screen(written)
    if arguments != ["optimize", "audit"]:
        assert shown[0].startswith("versions 0 to ")
        assert "  payments (dropped): 10 segments, " in "\n".join(shown)
    assert not [line for line in shown if "merged" in line and "_segments" not in line]
    assert not [line for line in shown if "files," in line]
    first = {"maintain": "checkpoint", "vacuum": "version ", "optimize": "topic"}[arguments[0]]
    assert [line for line in shown if line.startswith(first)], "the answer begins a line"


def test_a_line_that_is_too_long_for_the_terminal_is_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    def call(inner: int) -> None:
        with os.fdopen(os.dup(inner), "w") as terminal:
            monkeypatch.setattr(sys, "stderr", terminal)
            with StatusLine() as status:
                status.show("x" * 200)
                status.show("y" * 200)
            monkeypatch.undo()

    written = on_terminal(call)
    assert screen(written) == [""]
    assert "x" * (COLUMNS - 1) in written
    assert "x" * COLUMNS not in written


def test_a_warning_begins_a_line_of_its_own_and_is_printed_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(logging.getLogger(), "handlers", [])  # as in a process of the command line

    def call(inner: int) -> None:
        with os.fdopen(os.dup(inner), "w") as terminal:
            monkeypatch.setattr(sys, "stderr", terminal)
            with StatusLine() as status:
                status.show("orders: 10 of 20 segments merged")
                logging.getLogger("txnlog.log").warning("a checkpoint is damaged")
                logging.getLogger("txnlog.log").info("nobody asked for this")
                status.show("orders: 20 of 20 segments merged")
            logging.getLogger("txnlog.log").warning("another one")
            monkeypatch.undo()

    assert screen(on_terminal(call)) == ["a checkpoint is damaged", "another one", ""]
    assert logging.getLogger("txnlog").handlers == []
