"""The runner of the mutants itself: a survivor is told, and so is whatever keeps a mutant from being judged."""

from __future__ import annotations

import io
import random
import shutil
import subprocess
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from rich.console import Console

from tests.mutants import run
from tests.mutants.mutants import HARMLESS, MUTANTS, Mutant

ROOT = run.ROOT

CODE = "LIMIT = 3\n\n\ndef allowed(count):\n    return count <= LIMIT\n"
TEST = (
    "from txnlog.rule import allowed\n\n\ndef test_limit():\n    assert allowed(3)\n    assert not allowed(4)\n\n\n"
    "def test_nothing():\n    pass\n"
)
LIMIT = "tests/test_rule.py::test_limit"
BUG = Mutant("no limit", "txnlog/rule.py", "count <= LIMIT", "count <= LIMIT + 1", "too many", (LIMIT,))


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A small project with one rule and its test."""
    root = tmp_path / "project"
    for name, text in {
        "txnlog/__init__.py": "",
        "txnlog/rule.py": CODE,
        "txnlog/other.py": "UNUSED = 1\n",
        "tests/__init__.py": "",
        "tests/mutants/__init__.py": "",
        "tests/test_rule.py": TEST,
        "pytest.ini": "[pytest]\n",
    }.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    shutil.copy(Path(run.__file__).parent / "imported.py", root / "tests" / "mutants" / "imported.py")
    subprocess.run(["git", "init", "-q", root], check=True)
    subprocess.run(["git", "add", "."], cwd=root, check=True)
    monkeypatch.setattr(run, "ROOT", root)
    return root


def carry_out(*mutants: Mutant) -> tuple[list[run.Verdict], str]:
    return run.run_all(mutants, 2, Console(file=io.StringIO()))


def test_mutants_are_caught_survive_or_cannot_be_judged(project):
    wanted = {
        BUG: run.CAUGHT,
        replace(BUG, name="changes nothing", replacement="count < LIMIT + 1"): run.SURVIVED,
        replace(BUG, name="is not there", original="count >= LIMIT"): run.BROKEN,
        replace(BUG, name="is there twice", original="LIMIT"): run.BROKEN,
        replace(BUG, name="has no file", file="txnlog/gone.py"): run.BROKEN,
        replace(BUG, name="breaks the import", replacement="count <="): run.BROKEN,
        replace(BUG, name="is never imported", file="txnlog/other.py", original="1", replacement="2"): run.BROKEN,
    }
    verdicts, failed = carry_out(*wanted)
    assert {verdict.mutant: verdict.state for verdict in verdicts} == wanted
    assert "txnlog/other.py was never imported" in failed
    problems = run.problems(verdicts, failed)
    assert len(problems) == 1 + sum(state != run.CAUGHT for state in wanted.values())
    assert (project / "txnlog" / "rule.py").read_text() == CODE


@pytest.mark.parametrize(
    ("change", "text"),
    [
        (lambda root: (root / "txnlog" / "rule.py").write_text(CODE.replace("3", "2")), "test_limit"),
        (lambda root: (root / "tests" / "test_rule.py").write_text("def test_nothing():\n    pass\n"), "not found"),
    ],
    ids=["fails without the mutant", "is not there"],
)
def test_a_test_that_cannot_judge_is_reported(project: Path, change: Callable[[Path], object], text: str):
    change(project)
    verdicts, failed = carry_out(BUG)
    assert text in failed
    assert run.problems(verdicts, failed)


def test_a_run_without_an_end_is_ended_and_is_no_verdict(project: Path, monkeypatch: pytest.MonkeyPatch):
    asleep = replace(BUG, name="has no end", replacement="__import__('time').sleep(99)")
    copy = run.Copy(project.parent / "copy")
    try:
        with monkeypatch.context() as patch:
            patch.setattr(run, "RUN_SECONDS", 2)
            assert run.judge(copy, asleep).output == "no end after 2 s"
        assert run.judge(copy, BUG).state == run.CAUGHT, "the next run is not disturbed"
    finally:
        copy.close()


def test_the_alarm_must_ring():
    caught, survived = run.Verdict(HARMLESS, run.CAUGHT, 0.0), run.Verdict(HARMLESS, run.SURVIVED, 0.0)
    assert run.problems([survived], "") == []
    assert len(run.problems([caught], "")) == 1


def test_the_page_says_how_many_there_are():
    assert f"lists {len(MUTANTS)} bugs" in (ROOT / "docs" / "testing.md").read_text(encoding="utf-8")


def test_no_two_mutants_are_one():
    assert len({mutant.name for mutant in MUTANTS}) == len(MUTANTS)
    assert len({(mutant.file, mutant.original, mutant.replacement) for mutant in MUTANTS}) == len(MUTANTS)
    assert all(mutant.original != mutant.replacement and mutant.tests and mutant.why for mutant in MUTANTS)


@pytest.mark.parametrize("mutant", [HARMLESS, *MUTANTS], ids=lambda mutant: mutant.name)
def test_the_text_of_every_mutant_is_in_its_file_once(mutant):
    assert (ROOT / mutant.file).read_text().count(mutant.original) == 1


@pytest.mark.parametrize("first", [0, 1])
def test_of_many_mutants_a_share_is_taken(monkeypatch: pytest.MonkeyPatch, first: int) -> None:
    judged: list[Mutant] = []

    def run_all(mutants: Sequence[Mutant], _jobs: int, _console: Console) -> tuple[list[run.Verdict], str]:
        judged.extend(mutants)
        return [run.Verdict(item, run.SURVIVED if item is HARMLESS else run.CAUGHT, 0.0) for item in mutants], ""

    monkeypatch.setattr(run, "run_all", run_all)
    monkeypatch.setattr(random, "randrange", lambda _end: first)
    assert run.main(["--one-in", "2"]) == 0
    assert judged == [HARMLESS, *MUTANTS[first::2]]
