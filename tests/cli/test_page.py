"""docs/reference/command-line.md has every command as the parser has it, and prints what the commands print."""

from __future__ import annotations

import re
import shlex

from tests.cli.command_line import run
from tests.cli.printed import fits, steady
from tests.pages import page, run_page
from tools import reference
from txnlog.cli.commands import DONE

NAME = "docs/reference/command-line.md"
CALL = re.compile(r"^\$ txnlog (.*)$", re.MULTILINE)


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
