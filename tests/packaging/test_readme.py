"""The Python of the README and of docs/python.md runs as it stands (that on Spark: tests/spark/test_docs.py)."""

from __future__ import annotations

from tests.pages import blocks, page, section


def run(name, found, tmp_path):
    code = "\n".join(found)
    assert "/tmp/lake" in code
    exec(compile(code.replace("/tmp/lake", str(tmp_path / "lake")), name, "exec"), {})


def test_the_quick_start_runs(tmp_path, capsys):
    run("README.md", blocks(section(page("README.md"), "Quick start in Python")), tmp_path)
    printed = capsys.readouterr().out
    assert "Committed(" in printed
    assert "_offset" in printed
    assert "('sales',)" in printed


def test_the_page_on_python_runs_and_prints_what_it_says(tmp_path, capsys):
    found = blocks(page("docs/python.md"))
    assert len(found) > 6
    run("docs/python.md", found, tmp_path)
    lines = capsys.readouterr().out.splitlines()
    lines = lines[lines.index("done before") :]
    altered = "['customer', 'amount', 'note']"
    assert lines[:8] == ["done before", "20261121", "True True", altered, "orders 4", "paid 3", "4 0", "4"]
    assert lines[8].endswith("'_redeliveries'] 4")
    assert lines[9:11] == ["0", "1"]
