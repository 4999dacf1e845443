"""docs/reference/command-line.md has every command as the parser has it, and prints what the commands print."""

from __future__ import annotations

import re
import shlex

from tests.cli.command_line import run
from tests.pages import page, run_page
from tools import reference
from txnlog.cli.commands import DONE

NAME = "docs/reference/command-line.md"
CALL = re.compile(r"^\$ txnlog (.*)$", re.MULTILINE)

VARYING = [
    (r"[\w.-]+:\d+ txnlog/[\w.+-]+", "<client>"),
    (r" +", " "),
    (r"\d{4}-\d\d-\d\dT[\d:.]+\+00:00", "<time>"),
    (r"\b(?!0{16})[0-9a-f]{32}\b", "<id>"),
    (r'("behind_ms": |PREPARED \d+ <time> )\d+', r"\1<age>"),
    (r'("timestamp_ms": )\d{13}', r"\1<time>"),
    (r"\b\d{3,5}\b", "<bytes>"),
]
"""What differs from run to run, or with a newer Arrow: clients, times, ages, ids, sizes; and the blanks that align."""


def steady(text: str) -> str:
    """A text without what varies."""
    for pattern, stands in VARYING:
        text = re.sub(pattern, stands, text)
    return text.strip()


def fits(printed: str, shown: str) -> bool:
    """Whether a page shows a part of what is printed: a line ``...`` stands for lines that are left out."""
    parts = shown.split("\n...\n")
    return len(parts) > 1 and re.fullmatch(r"\n(?:.*\n)?".join(map(re.escape, parts)), printed, re.DOTALL) is not None


def test_the_page_has_every_command_once_as_the_parser_has_it() -> None:
    assert reference.page(reference.COMMAND_LINE) == page(NAME), "run: python -m tools.reference"
    marked = re.findall(r"^<!-- txnlog ([a-z -]+): generated", page(NAME), re.MULTILINE)
    assert marked == ["--help", *reference.commands()]


def test_the_page_has_every_way_to_write_an_option() -> None:
    missing = [
        (path, way)
        for path, command in reference.commands().items()
        for option in command.params
        if option.param_type_name == "option"
        for way in (*option.opts, *option.secondary_opts)
        if way not in reference.described(path)
    ]
    assert missing == []


def test_every_command_but_adopt_has_an_example() -> None:
    shown = {" ".join(shlex.split(call)[1:]) for call in CALL.findall(page(NAME))}
    without = [path for path in reference.commands() if not any(f"{call} ".startswith(f"{path} ") for call in shown)]
    assert without == ["adopt"]


def test_the_examples_print_what_the_page_shows(tmp_path) -> None:
    def check(call: str, shown: str) -> None:
        done = run(*shlex.split(call.removeprefix("txnlog ")))
        assert done.returncode == DONE, f"{call}: {done.stderr}"
        printed = steady(done.stdout)
        assert printed == steady(shown) or fits(printed, steady(shown)), call

    run_page(NAME, tmp_path, console=check)
