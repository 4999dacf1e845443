"""The pages on operations run as they stand: their programs in Python, and their commands."""

from __future__ import annotations

import pytest

from tests.cli.printed import runs_as_shown
from tests.pages import run_page


@pytest.mark.parametrize("name", ["cost", "first-day", "kubernetes", "upgrade"])
def test_a_page_prints_what_it_says(name, tmp_path):
    run_page(f"docs/operations/{name}.md", tmp_path, console=runs_as_shown)


def test_the_page_on_monitoring_runs(tmp_path):
    run_page("docs/operations/monitoring.md", tmp_path, compare=False)
