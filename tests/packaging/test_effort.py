"""What a push leaves to ``make test-all``: marked tests and cases, and of the tests that show a promise never all."""

from __future__ import annotations

import ast
import datetime
from collections.abc import Callable
from pathlib import Path

import pytest

from tests import effort
from tests.protocol.document import ROOT

CONFTEST = Path(__file__).parent.parent / "conftest.py"
MARKED = """
import pytest

def test_always(): pass

@pytest.mark.long
def test_more_of_the_same(): pass

@pytest.mark.some(2)
@pytest.mark.parametrize("number", range(10))
def test_some(number): pass

@pytest.mark.some(3)
@pytest.mark.parametrize("number", range(2))
def test_few(number): pass

@pytest.mark.parametrize("number", [1, pytest.param(2, marks=pytest.mark.long)])
def test_one_case_is_long(number): pass
"""
EVERYTHING = 1 + 1 + 10 + 2 + 2

PLACES = """
import pytest

one = pytest.mark.some(1, of="place")

@pytest.fixture(params=[pytest.param(kind, marks=one) for kind in ("memory", "local")])
def place(request): pass

@pytest.mark.parametrize("number", range(6))
def test_number(place, number): pass

@pytest.mark.some(3)
@pytest.mark.parametrize("number", range(9))
def test_some(place, number): pass
"""

ONE_IN_THREE = """
import pytest

pytestmark = pytest.mark.some(one_in=3)

@pytest.mark.some(1)
@pytest.mark.parametrize("number", range(4))
def test_some(number): pass
""" + "".join(f"\ndef test_{number}(): pass\n" for number in range(8))

DAYS = ("2026-12-30", "2026-12-31", "2027-01-01")

Run = Callable[..., pytest.RunResult]


@pytest.fixture
def run(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> Run:
    """Runs the marked tests beside a copy of this project's conftest."""
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
    monkeypatch.setattr(effort, "LONG", False)
    marks = "\n".join(f"  {name}: x" for name in ("clause", "long", "some(n)"))
    pytester.makeini(f"[pytest]\naddopts = --strict-markers\nmarkers =\n{marks}\n")
    pytester.makeconftest(CONFTEST.read_text())
    pytester.makepyfile(test_marked=MARKED)
    return lambda *arguments: pytester.runpytest_inprocess("-p", "no:cacheprovider", "-v", *arguments)


def test_a_push_runs_no_long_test_and_so_many_cases_and_skips_nothing(run: Run, monkeypatch: pytest.MonkeyPatch):
    taken: list[str] = []
    for day in ("2026-12-30", "2026-12-31", "2027-01-01", "2027-01-02", "2027-01-03"):
        monkeypatch.setattr(effort, "DAY", day)
        result = run()
        result.assert_outcomes(passed=1 + 2 + 2 + 1, deselected=EVERYTHING - 6)
        result.stdout.fnmatch_lines([f"*TXNLOG_DAY={day} *"])
        taken += [line.split()[0] for line in result.outlines if "test_some[" in line]
    assert len(taken) == len(set(taken)) == 10, "two a day: after five days each one was run"


def test_the_same_day_is_the_same_choice(run: Run, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(effort, "DAY", "2026-12-31")
    taken = [[line.split()[0] for line in run().outlines if "test_some[" in line] for _ in range(2)]
    assert taken[0] == taken[1] != []


def test_one_place_of_so_many_is_another_one_each_day_and_all_in_a_long_run(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(effort, "LONG", False)
    taken: list[int] = []
    for time in range(3):  # that its test was run
        day = datetime.date(2026, 12, 20) + datetime.timedelta(time * effort.SHARES["tests/"])
        monkeypatch.setattr(effort, "DAY", day.isoformat())
        first, step = effort.every(3)
        taken += range(first, 9, step)
    assert sorted(taken) == list(range(9))
    monkeypatch.setattr(effort, "LONG", True)
    assert effort.every(3) == (0, 1)


def test_of_the_cases_of_a_test_that_each_push_runs_others_are_chosen_each_day(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(effort, "LONG", False)
    taken: set[str] = set()
    for day in ("2026-12-20", "2026-12-21", "2026-12-22"):
        monkeypatch.setattr(effort, "DAY", day)
        today = effort.chosen("steps", "abcdef", 2)
        assert len(today) == 2
        assert today == sorted(today), "in their order"
        taken.update(today)
    assert sorted(taken) == list("abcdef")
    monkeypatch.setattr(effort, "LONG", True)
    assert effort.chosen("steps", "abcdef", 2) == list("abcdef")


def names_run(run: Run, *arguments: str) -> list[str]:
    return [line.split()[0].partition("::")[2] for line in run(*arguments).outlines if " PASSED" in line]


def test_of_two_places_a_push_takes_one_whatever_the_other_parameters_are(
    run: Run, pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
):
    pytester.makepyfile(test_marked=PLACES)
    taken: list[str] = []
    for day in ("2026-12-30", "2026-12-31"):
        monkeypatch.setattr(effort, "DAY", day)
        taken += (today := names_run(run))
        assert sorted(name[-2] for name in today if "test_number" in name) == list("012345")
        assert len({name.partition("-")[0] for name in today if "test_number" in name}) == 2, "some here, some there"
        assert sum("test_some" in name for name in today) == 3, "a mark of the test itself counts all its cases"
    assert len(taken) == len(set(taken))


def test_of_a_module_a_push_takes_one_test_in_so_many(
    run: Run, pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
):
    pytester.makepyfile(test_marked=ONE_IN_THREE)
    monkeypatch.setattr(effort, "shown_by", tuple)
    taken: list[str] = []
    for day in DAYS:
        monkeypatch.setattr(effort, "DAY", day)
        taken += (today := [name.partition("[")[0] for name in names_run(run)])
        assert len(today) == 3
    assert sorted(taken) == sorted([*(f"test_{number}" for number in range(8)), "test_some"]), "each one in three days"


@pytest.mark.parametrize("shown", [{"test_3", "test_5"}, {"test_3", "test_5", "test_always"}, {"test_of_another_file"}])
def test_of_the_tests_that_show_the_same_a_push_runs_one_at_least(
    shown: set[str], run: Run, pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
):
    pytester.makepyfile(test_marked=ONE_IN_THREE, test_others="def test_always(): pass")
    files = {"test_always": "test_others.py"}
    names = frozenset(f"{files.get(name, 'test_marked.py')}::{name}" for name in shown)
    monkeypatch.setattr(effort, "shown_by", lambda: (names,))
    for day in DAYS:
        monkeypatch.setattr(effort, "DAY", day)
        today = [name.partition("[")[0] for name in names_run(run)]
        least = 1 if "test_3" in shown else 0
        assert len(shown.intersection(today)) >= least
        assert len(today) <= 1 + 3 + least, "and not each that does"
        if "test_always" in shown:
            assert len(today) == 1 + 3, "it is shown without those of the module"


def test_of_a_folder_a_push_takes_its_share_and_each_case_has_its_day(
    run: Run, pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
):
    """Also where there are as many cases as days between two runs of their test."""
    tests = "import pytest\n" + "".join(f"\ndef test_{number}(): pass\n" for number in range(10))
    cases = '\n@pytest.mark.some(1)\n@pytest.mark.parametrize("number", range(6))\ndef test_case(number): pass\n'
    for folder in ("client", "contract"):
        path = pytester.path / "tests" / folder
        path.mkdir(parents=True)
        (path / f"test_{folder}.py").write_text(tests + cases)
    monkeypatch.setattr(effort, "shown_by", tuple)
    taken: set[str] = set()
    for day in range(6 * effort.SHARES["tests/"]):
        monkeypatch.setattr(effort, "DAY", (datetime.date(2026, 12, 1) + datetime.timedelta(day)).isoformat())
        lines = [line.split()[0] for line in run().outlines if " PASSED" in line and line.startswith("tests/")]
        assert sum("contract" in name for name in lines) == 11
        assert 1 <= sum("client" in name for name in lines) <= 2
        taken.update(name for name in lines if "client" in name)
    assert len(taken) == 16


def test_a_long_run_takes_everything(run: Run, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(effort, "LONG", True)
    run().assert_outcomes(passed=EVERYTHING)


@pytest.mark.parametrize(
    ("arguments", "count"),
    [
        (["test_marked.py::test_more_of_the_same"], 1),
        (["test_marked.py::test_some"], 10),
        (["test_marked.py"], EVERYTHING),
        (["."], EVERYTHING),
        (["-k", "case_is"], 2),
    ],
)
def test_who_asks_for_tests_by_name_gets_all_of_them(run: Run, arguments: list[str], count: int):
    assert run(*arguments).parseoutcomes()["passed"] == count


# --- what may not be left out -----------------------------------------------------------------------------------------


def left_out(source: str) -> set[str]:
    """The names of tests in a source that no push runs, with none of their cases."""
    tree = ast.parse(source)
    everywhere = any(
        isinstance(node, ast.Assign)
        and "pytestmark" in map(ast.unparse, node.targets)
        and "pytest.mark.long" in ast.unparse(node.value)
        for node in tree.body
    )
    return {
        node.name
        for node in tree.body
        if isinstance(node, ast.FunctionDef)
        and (everywhere or "pytest.mark.long" in map(ast.unparse, node.decorator_list))
    }


def test_what_is_left_out_is_seen():
    assert left_out(MARKED) == {"test_more_of_the_same"}
    assert left_out("pytestmark = [pytest.mark.long, x]\n\ndef test_it(): pass\n") == {"test_it"}


def test_every_promise_has_a_test_in_each_push():
    needed = {test for tests in effort.shown_by() for test in tests}
    files = {test.partition("::")[0] for test in needed}
    gone = {f"{file}::{name}" for file in files for name in left_out((ROOT / file).read_text(encoding="utf-8"))}
    assert len(needed) > 100
    assert needed & gone == set()
