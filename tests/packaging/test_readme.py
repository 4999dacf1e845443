"""The Python of the README and the pages on it runs as it stands (that on Spark: tests/spark/session/test_docs.py)."""

from __future__ import annotations

import subprocess
import sys

import pyarrow as pa
import pytest

from tests.client.support import FakeRuntime, Place, unique_name
from tests.pages import blocks, needs_spark, page, programs, run_page, section
from txnlog.client import session_owner


def placed(code, tmp_path):
    assert "/tmp/lake" in code
    return code.replace("/tmp/lake", str(tmp_path / "lake"))


def run(name, found, tmp_path):
    exec(compile(placed("\n".join(found), tmp_path), name, "exec"), {})


def test_the_first_code_of_the_readme_is_a_program_that_prints_what_stands_below_it(tmp_path):
    text = page("README.md")
    program = tmp_path / "first.py"
    program.write_text(placed(blocks(text)[0], tmp_path), encoding="utf-8")
    assert len([line for line in blocks(text)[0].splitlines() if line]) <= 12
    ran = subprocess.run(
        [sys.executable, program], capture_output=True, text=True, check=False, cwd=tmp_path, timeout=60
    )
    assert (ran.stdout, ran.stderr) == (blocks(text, "text")[0], "")


def test_an_older_version_shows_what_the_readme_says(tmp_path, capsys):
    first, earlier, *_ = blocks(page("README.md"))
    (said,) = [line.rpartition("#")[2].strip() for line in earlier.splitlines() if "print(" in line]
    run("README.md", [first], tmp_path)  # as a reader did before the lines below were appended to the program
    for _ in range(2):
        run("README.md", [first, earlier], tmp_path)
        assert capsys.readouterr().out.splitlines()[-1] == said


def test_the_readme_stays_short():
    lines = page("README.md").splitlines()
    assert len(lines) <= 145
    assert len(section(page("README.md"), "Eight words").strip().splitlines()) == 8


def test_the_tour_of_python_runs(tmp_path, capsys):
    run("docs/tour.md", blocks(section(page("docs/tour.md"), "Quick start in Python")), tmp_path)
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


def test_the_pages_run_one_after_the_other_in_one_folder_and_a_second_time(tmp_path):
    """As a reader runs them: nothing is removed in between. tests/spark/session/test_docs.py runs those with Spark."""
    names = [name for name in programs("guide", "recipes") if not needs_spark(name)]
    run("README.md", blocks(page("README.md"))[:2], tmp_path)
    for name in names:
        run_page(name, tmp_path)
    for name in names:
        run_page(name, tmp_path, compare=False)


@pytest.mark.parametrize("fate", ["written", "not written", "not written, and another client was first"])
def test_the_program_on_the_page_on_errors_writes_once_if_the_outcome_is_unknown(fate, tmp_path, monkeypatch):
    monkeypatch.setattr(session_owner, "Runtime", FakeRuntime)  # which does not wait
    given: dict = {}
    run_page("docs/guide/errors.md", tmp_path, given)
    place = Place("memory", f"memory://{unique_name()}")
    try:
        given["ns"], store = place.faulty()
        given["ns"].create_topic("orders", pa.schema([("customer", pa.string())]))
        given["ns"].produce("orders", [{"customer": "ann"}])
        rival = place.open()
        if fate == "written":
            store.script.extend(["broken-after", *["broken"] * 11])
            store.reads.extend(["broken"] * 12)
        else:
            store.script.extend(["dropped"] * 12)
        if "another" in fate:
            store.script.append(lambda: rival.create_topic("other"))
        assert given["write"]([{"customer": "bob"}]) == "written"
        assert given["ns"].snapshot().read("orders")["customer"].to_pylist() == ["ann", "bob"]
        assert rival.topics() == (("orders", "other") if "another" in fate else ("orders",))
    finally:
        place.close()


@pytest.mark.parametrize("name", [name for name in programs("guide", "recipes", "reference") if not needs_spark(name)])
def test_a_page_is_a_program_that_prints_what_the_page_says(name, tmp_path):
    run_page(name, tmp_path)


def test_what_a_page_does_not_show_and_what_it_shows_wrongly_is_found(tmp_path, monkeypatch):
    text = "```python\nprint(1)\n```\n\n```text\n2\n```\n"
    for told, match in ((text, "x.md"), (text.replace("```text\n2", "~~~\n2"), "does not show")):
        monkeypatch.setattr("tests.pages.page", lambda name, told=told: told)
        with pytest.raises(AssertionError, match=match):
            run_page("x.md", tmp_path)
