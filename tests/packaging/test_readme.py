"""The Python of the README and of docs/python.md runs as it stands (that on Spark: tests/spark/test_docs.py)."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]


def blocks(text):
    """The Python blocks of a text."""
    return re.findall(r"```python\n(.*?)```", text, re.DOTALL)


def run(name, found, tmp_path):
    code = "\n".join(found)
    assert "/tmp/lake" in code
    exec(compile(code.replace("/tmp/lake", str(tmp_path / "lake")), name, "exec"), {})


def test_the_quick_start_runs(tmp_path, capsys):
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    run("README.md", blocks(readme.split("\n## Quick start in Python\n", 1)[1].split("\n## ", 1)[0]), tmp_path)
    printed = capsys.readouterr().out
    assert "Committed(" in printed
    assert "_offset" in printed
    assert "('sales',)" in printed


def test_the_page_on_python_runs_and_prints_what_it_says(tmp_path, capsys):
    found = blocks((ROOT / "docs" / "python.md").read_text(encoding="utf-8"))
    assert len(found) > 6
    run("docs/python.md", found, tmp_path)
    lines = capsys.readouterr().out.splitlines()
    lines = lines[lines.index("done before") :]
    altered = "['customer', 'amount', 'note']"
    assert lines[:8] == ["done before", "20261121", "True True", altered, "orders 4", "paid 3", "4 0", "4"]
    assert lines[8].endswith("'_redeliveries'] 4")
    assert lines[9:11] == ["0", "1"]
