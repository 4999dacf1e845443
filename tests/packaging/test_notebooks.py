"""The notebooks as git keeps them, without running them (`make notebooks` does); and the tool that runs them."""

from __future__ import annotations

import ast
import re
import struct
from pathlib import Path

import nbformat
import pytest

from tools import notebooks

ROOT = Path(__file__).parents[2]
PATHS = sorted((ROOT / "notebooks").glob("*.ipynb"))
WITH_PICTURES = {"02-funds-transfer": 1, "03-exactly-once-streaming": 1, "04-time-travel": 1}

each_notebook = pytest.mark.parametrize("path", PATHS, ids=lambda path: path.stem)

MAX_BYTES = 300_000
MAGICS = {"%matplotlib inline", "%%writefile book.py"}

# What a machine, a person or an account would leave behind; the rest is told by test_repository.py, of every file.
LEFT_BEHIND = re.compile(
    r"""(?<![\w./:}"'])/(?:tmp|var|private|usr|opt|mnt|dbfs)/    # a path that is no example in quotes
    | AKIA[0-9A-Z]{16} | -----BEGIN | eyJ[\w-]{10,}\.eyJ | dapi[0-9a-f]{16} | gh[pousr]_\w{20}
    | (?i: password | secret | api_?key | bearer\s )""",
    re.VERBOSE,
)


def code_of(notebook):
    return [cell.source for cell in notebook.cells if cell.cell_type == "code"]


def without_magics(source):
    return "\n".join(line for line in source.splitlines() if not line.startswith("%"))


def texts_of(notebook):
    """All that can be read in a notebook: what is written, and what was printed."""
    for cell in notebook.cells:
        yield cell.source
        for output in cell.get("outputs", ()):
            yield output.get("text", "")
            yield from (text for kind, text in output.get("data", {}).items() if kind.startswith("text/"))


def test_there_are_four_notebooks_and_the_page_that_lists_them():
    assert [path.stem for path in PATHS] == ["01-quick-start", *WITH_PICTURES]
    listed = (ROOT / "docs" / "recipes" / "notebooks.md").read_text(encoding="utf-8")
    assert [path.name for path in PATHS if f"(../../notebooks/{path.name})" not in listed] == []


@each_notebook
def test_a_notebook_is_kept_as_it_was_executed_and_tidy(path):
    """Fails where code was changed and not run again: `make notebooks ARGS=--write`."""
    notebook = notebooks.read(path)
    assert notebook == notebooks.tidied(notebook)
    assert path.read_text(encoding="utf-8") == nbformat.writes(notebook) + "\n"


@each_notebook
def test_a_notebook_asserts_what_it_claims(path):
    trees = [ast.parse(without_magics(source)) for source in code_of(notebooks.read(path))]
    assert sum(isinstance(node, ast.Assert) for tree in trees for node in ast.walk(tree)) >= 5


@each_notebook
def test_nothing_of_the_machine_is_left_in_a_notebook(path):
    found = [line for text in texts_of(notebooks.read(path)) for line in text.splitlines() if LEFT_BEHIND.search(line)]
    assert found == []


@pytest.mark.parametrize("line", ["Writing /tmp/a/book.py", "PASSWORD=x", "file: /var/lake", "key AKIA" + "A" * 16])
def test_what_is_left_behind_is_found(line):
    assert LEFT_BEHIND.search(line)


@each_notebook
def test_a_notebook_is_small_and_shows_no_error(path):
    assert path.stat().st_size < MAX_BYTES
    outputs = [output for cell in notebooks.read(path).cells for output in cell.get("outputs", ())]
    assert outputs
    assert {output.output_type for output in outputs} <= {"stream", "execute_result", "display_data"}


@each_notebook
def test_a_picture_has_the_width_of_a_page(path):
    pictures = list(notebooks.pictures(notebooks.read(path)))
    assert len(pictures) == WITH_PICTURES.get(path.stem, 0)
    for picture in pictures:
        assert picture.startswith(b"\x89PNG")
        width, height = struct.unpack(">II", picture[16:24])
        assert 500 <= width <= 1200
        assert 300 <= height <= 800


@each_notebook
def test_a_notebook_runs_elsewhere_with_one_line_changed(path):
    """The place of the data is a line of the first cell, and a `spark` that is there, as on Databricks, is taken."""
    first, *rest = code_of(notebooks.read(path))
    assert re.search(r"^# The line to change: .*\nLAKE = tempfile\.gettempdir\(\)$", first, re.MULTILINE)
    assert not any("LAKE" in source for source in rest)
    assert not any("spark = " in source for source in rest)
    assert ("spark = " in first) == ('if "spark" not in globals():' in first)
    magics = {line for source in [first, *rest] for line in source.splitlines() if line.startswith(("%", "!"))}
    assert magics <= MAGICS


@each_notebook
def test_what_a_notebook_links_to_is_there(path):
    links = [link for text in texts_of(notebooks.read(path)) for link in re.findall(r"\]\(([^)#\s]+)\)", text)]
    assert [link for link in links if "://" not in link and not (path.parent / link).exists()] == []


# --- the tool ---------------------------------------------------------------------------------------------------------


def make(folder, *sources):
    folder.mkdir(exist_ok=True)
    cells = [nbformat.v4.new_code_cell(source) for source in sources]
    path = folder / "small.ipynb"
    nbformat.write(nbformat.v4.new_notebook(cells=cells), path)
    return path


def run(tmp_path, *arguments):
    return notebooks.main([*arguments, "--folder", str(tmp_path / "notebooks"), "--out", str(tmp_path / "out")])


def test_an_output_that_git_does_not_have_fails_until_it_is_kept(tmp_path, capsys):
    path = make(tmp_path / "notebooks", "import sys\nprint('kept' * 2)\nprint('lost' * 2, file=sys.stderr)")
    assert run(tmp_path) == 1
    assert "+keptkept" in capsys.readouterr().out
    assert "keptkept" not in path.read_text()
    assert run(tmp_path, "--write") == 0
    kept = path.read_text()
    assert "keptkept" in kept
    assert "lostlost" not in kept
    assert run(tmp_path) == 0
    assert path.read_text() == kept


def test_an_assertion_that_does_not_hold_fails_and_keeps_nothing(tmp_path, capsys):
    path = make(tmp_path / "notebooks", "print(6 * 7)", "assert 6 * 7 == 41, 'not so'", "print('later')")
    before = path.read_bytes()
    assert run(tmp_path, "--write") == 1
    printed = capsys.readouterr().out
    assert "FAILED" in printed
    assert "AssertionError: not so" in printed
    assert "\x1b[" not in printed
    assert path.read_bytes() == before
    assert "later" not in "".join(notebooks.shown(notebooks.read(tmp_path / "out" / "small.ipynb")))


def test_a_kernel_that_dies_fails(tmp_path, capsys):
    make(tmp_path / "notebooks", "import os, signal\nos.kill(os.getpid(), signal.SIGKILL)")
    assert run(tmp_path) == 1
    assert "FAILED" in capsys.readouterr().out
