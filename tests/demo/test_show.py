"""What is printed: a bar in a terminal, plain lines in a pipe."""

from __future__ import annotations

import io

import pytest
from rich.console import Console

from examples.demo.show import Show


@pytest.fixture
def shown():
    """Runs an action with the output of a terminal or a pipe, and gives the text."""

    def show(action, *, terminal):
        file = io.StringIO()
        action(Show(Console(file=file, force_terminal=terminal, width=100)))
        return file.getvalue()

    return show


def with_a_bar(show):
    with show.bar("counting", 8, "steps") as advance:
        for done in range(1, 9):
            advance(done, "a note" if done == 3 else "")


def test_a_pipe_gets_plain_lines_and_not_too_many(shown):
    lines = shown(with_a_bar, terminal=False).splitlines()
    assert "\x1b" not in "".join(lines)
    assert lines[:-1] == [
        "counting ...",
        "  2/8 steps",
        "  3/8 steps  a note",
        "  4/8 steps",
        "  6/8 steps",
        "  8/8 steps",
    ]


def test_a_terminal_gets_a_bar_and_keeps_the_notes(shown):
    text = shown(with_a_bar, terminal=True)
    assert "\x1b" in text
    assert "a note" in text


def test_a_step_says_when_it_is_done(shown):
    def step(show):
        with show.step("working"):
            pass

    assert shown(step, terminal=False).splitlines() == ["working ...", "done working (0 s)"]
    assert "done" in shown(step, terminal=True)


def test_a_table_shows_every_cell(shown):
    text = shown(lambda show: show.table("Title", ["what", "count"], [["one", "1"], ["two", "22"]]), terminal=False)
    assert text.split() == ["Title", "what", "count", *text.split()[3:4], "one", "1", "two", "22"]
