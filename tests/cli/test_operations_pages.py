"""The pages on operations run as they stand: their programs in Python, and their commands."""

from __future__ import annotations

import shlex

import pytest

from tests.cli.command_line import run
from tests.cli.printed import fits, steady
from tests.pages import run_page
from txnlog.cli.commands import DONE


@pytest.mark.parametrize("name", ["cost", "first-day", "upgrade"])
def test_a_page_prints_what_it_says(name, tmp_path):
    def check(call, shown):
        done = run(*shlex.split(call.removeprefix("txnlog ")))
        assert done.returncode == DONE, f"{call}: {done.stdout}{done.stderr}"
        printed = steady(done.stdout)
        assert not shown or printed == steady(shown) or fits(f"\n{printed}", f"\n{steady(shown)}"), call

    run_page(f"docs/operations/{name}.md", tmp_path, console=check)


def test_the_page_on_monitoring_runs(tmp_path):
    run_page("docs/operations/monitoring.md", tmp_path, compare=False)
