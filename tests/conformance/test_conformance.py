"""The conformance kit: two readers pass it, its roots can be made anew, and no misreading of PROTOCOL.md passes."""

from __future__ import annotations

import json
import re
import sys
import types
from functools import cache, partial
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from tests.conformance import second_checkpoints, second_cursors, second_entries, second_log, second_rows
from tests.conformance.misreading import Misreading
from tests.conformance.misreadings import MISREADINGS
from tests.effort import every
from txnlog.format.actions import KNOWN_ACTIONS
from txnlog.testing.conformance import Answer, Case, cases_of, difference
from txnlog.testing.conformance.__main__ import main
from txnlog.testing.conformance.cases import EXIT_CODES, EXPECTED, GOLDEN, LEVELS, OK, ROOT
from txnlog.testing.conformance.making import ROOTS, VARIANTS, make
from txnlog.testing.conformance.reference import answer
from txnlog.testing.conformance.runner import NoAnswerError, ask, check, run, table

MODULES = (second_entries, second_cursors, second_log, second_checkpoints, second_rows)
PARTS = [Path(module.__file__).read_text(encoding="utf-8") for module in MODULES]
"""The second reader."""

SIBLING = re.compile(r"^from tests\.conformance\..*? import (?:\([^)]*\)|.*)\n|^from __future__ .*\n", re.MULTILINE)
SOURCE = "\n".join(SIBLING.sub("", part) for part in PARTS)
"""The same as one module."""

README = (Path(__file__).parents[2] / "conformance" / "README.md").read_text(encoding="utf-8")


@cache
def cases(root: str | None = None) -> tuple[Case, ...]:
    """The kit's cases, or those of one golden root."""
    return tuple(case for case in cases_of() if root in {None, case.golden})


def second(module: Any, case: Case) -> Answer:
    """What the second reader, or a misreading of it, answers."""
    try:
        return Answer(OK, tuple(module.read(*case.arguments)))
    except Exception as error:  # noqa: BLE001 - what a misreading runs into is its own affair
        if isinstance(code := getattr(error, "code", None), str):
            return Answer(code)
        raise NoAnswerError(f"{type(error).__name__}: {error}") from None


def failures(results: list) -> list[str]:
    return [f"{result.case.name}: {result.difference}" for result in results if result.difference is not None]


# --- readers ----------------------------------------------------------------------------------------------------------


def test_the_reference_passes():
    assert failures(run(cases(), lambda case: answer(*case.arguments))) == []


def test_a_reader_written_from_the_document_passes():
    assert failures(run(cases(), partial(second, second_rows))) == []


def test_the_second_reader_knows_nothing_of_this_project():
    imported = {
        line.split()[1].partition(".")[0] for line in SOURCE.splitlines() if line.startswith(("import", "from"))
    }
    assert imported <= {*sys.stdlib_module_names, "pyarrow"}


def misread(misreading: Misreading) -> types.ModuleType:
    assert SOURCE.count(misreading.right) == 1, "the line is there once"
    module = types.ModuleType("misreading")
    exec(compile(SOURCE.replace(misreading.right, misreading.wrong), misreading.name, "exec"), module.__dict__)
    return module


@pytest.mark.some(20)
@pytest.mark.parametrize("misreading", MISREADINGS, ids=lambda item: item.name.replace(" ", "-"))
def test_a_misreading_fails_a_case(misreading):
    module = misread(misreading)
    assert any(check(case, partial(second, module)).difference for case in cases(misreading.root))


def test_there_are_many_misreadings():
    assert len(MISREADINGS) >= 100
    assert len({item.name for item in MISREADINGS}) == len(MISREADINGS)
    assert {item.root for item in MISREADINGS} == {*ROOTS, *VARIANTS} - {"types"}


# --- the roots --------------------------------------------------------------------------------------------------------


def test_the_kit_holds_every_action_kind_of_answer_and_shape_of_file():
    tags: set[str] = set()
    shapes: set[tuple] = set()
    for path in GOLDEN.glob("*/root/*/_log/0*/*.json"):
        for line in path.read_bytes().split(b"\n"):
            try:
                action = json.loads(line)
                tags.add(action["action"])
            except (ValueError, TypeError, KeyError):
                continue  # one of the damaged entries
            if action["action"] == "segment" and path.parts[-6] != "entries":
                several = len(action["slices"]) > 1
                shapes.add((action.get("txn") is None, action.get("compacted", False), several))
    assert tags >= KNOWN_ACTIONS
    assert shapes == {
        (True, False, False),
        (True, False, True),
        (False, False, False),
        (False, False, True),
        (False, True, False),
    }
    assert {case.expected.kind for case in cases()} == set(EXIT_CODES)
    assert {case.level for case in cases()} == set(LEVELS)


def test_every_root_is_described_and_has_cases():
    assert {case.golden for case in cases()} == {*ROOTS, *VARIANTS} == {path.name for path in GOLDEN.iterdir()}
    for name in (*ROOTS, *VARIANTS):
        assert f"| `{name}` |" in README
        assert json.loads((GOLDEN / name / EXPECTED).read_text(encoding="utf-8"))["about"]
    assert sum(path.stat().st_size for path in GOLDEN.rglob("*") if path.is_file()) < 3 << 20


def test_the_page_names_every_exit_code():
    for kind, code in EXIT_CODES.items():
        assert f"| {code} | {'the rows' if kind == OK else kind}" in README


def test_the_same_seed_gives_the_same_answers(tmp_path):
    first, step = every(3)
    names = [*ROOTS, *VARIANTS][first::step]
    make(tmp_path, 1, names)
    made, kept = cases_of(tmp_path), [case for case in cases() if case.golden in names]
    assert [(c.golden, c.arguments[1:], c.expected) for c in made] == [
        (c.golden, c.arguments[1:], c.expected) for c in kept
    ]


def test_another_seed_gives_other_roots_that_both_readers_read_alike(tmp_path):
    names = ("fences", "merged", "produces")
    make(tmp_path, 2, names)
    made = cases_of(tmp_path)
    assert [case.golden for case in made] == [case.golden for case in cases() if case.golden in names]
    assert [case.expected for case in made] != [case.expected for case in cases() if case.golden in names]
    assert failures(run(made, partial(second, second_rows))) == []


# --- comparing --------------------------------------------------------------------------------------------------------

ROW = {"id": 1, "_partition": 0, "_offset": 4}


def rows(*found: dict) -> Answer:
    return Answer(OK, found)


@pytest.mark.parametrize(
    ("other", "words"),
    [
        (rows(), "missing is"),
        (rows(ROW, ROW), "not expected is"),
        (rows(ROW | {"id": 1.0}), "missing is"),
        (rows(ROW | {"id": True}), "missing is"),
        (rows(ROW | {"more": None}), "not expected is"),
        (Answer("damaged"), "the answer is damaged, not rows"),
    ],
)
def test_an_answer_that_differs_is_reported(other, words):
    assert words in (difference(rows(ROW), other) or "")


def test_the_order_of_rows_counts_within_a_partition_only():
    later, elsewhere = ROW | {"_offset": 5}, ROW | {"_partition": 1}
    pending = ROW | {"_offset": None}
    expected = rows(ROW, later, elsewhere, pending)
    assert difference(expected, rows(pending, elsewhere, ROW, later)) is None
    assert "comes behind" in (difference(expected, rows(later, ROW, elsewhere, pending)) or "")


def test_zeros_and_numbers_are_compared_exactly():
    assert difference(rows(ROW | {"x": 0.0}), rows(ROW | {"x": -0.0})) is not None
    assert difference(rows(ROW | {"x": [1, None]}), rows(ROW | {"x": [1.0, None]})) is not None
    assert difference(rows(ROW | {"x": {"a": 2**63 - 1}}), rows(ROW | {"x": {"a": 2**63 - 1}})) is None


def test_where_the_reader_decides_each_of_its_answers_passes():
    (case,) = [case for case in cases("entries") if case.also]
    assert (case.expected.kind, case.also) == ("unsupported", ("damaged",))

    def differs(kind: str) -> str | None:
        return check(case, lambda _: Answer(kind)).difference

    assert (differs("damaged"), differs("unsupported")) == (None, None)
    assert differs(OK) == "the answer is rows, not unsupported"


# --- the command line -------------------------------------------------------------------------------------------------

REFERENCE = (sys.executable, "-m", "txnlog.testing.conformance", "reference")


def test_the_reference_answers_as_a_command():
    case = next(case for case in cases("types") if case.topic == "all")
    assert ask(REFERENCE, case) == case.expected


@pytest.mark.parametrize("kind", EXIT_CODES)
def test_the_reference_says_each_kind_of_answer_by_its_exit_code(kind):
    case = next(case for case in cases() if case.expected.kind == kind)
    result = CliRunner().invoke(main, ["reference", "read", *case.arguments])
    assert result.exit_code == EXIT_CODES[kind]
    assert [json.loads(line) for line in result.output.splitlines()] == list(case.expected.rows)


def script(text: str) -> tuple[str, ...]:
    return (sys.executable, "-c", text)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("raise SystemExit(1)", "the exit code 1"),
        ("import sys; print('no such luck', file=sys.stderr); sys.exit(9)", "no such luck"),
        ("print('{')", "line 1 is no JSON"),
        ("print('[]')", "line 1 is no row"),
        ("print('{\"id\": 1}')", "line 1 is no row"),
    ],
)
def test_an_answer_that_means_nothing_is_no_answer(text, words):
    with pytest.raises(NoAnswerError, match=words):
        ask(script(text), cases()[0])


def test_a_run_prints_what_differs():
    command = ["run", "--only", "produces", "--", *script("raise SystemExit(13)")]
    result = CliRunner().invoke(main, command)
    own = cases("produces")
    right = sum(case.expected.kind == "topic" for case in own)
    assert result.exit_code == 1
    assert f"{right} of {len(own)} cases passed" in result.output
    assert f"{own[0].name}: the answer is topic, not rows" in result.output


def test_a_run_that_passes_ends_with_zero(monkeypatch):
    monkeypatch.setattr("txnlog.testing.conformance.__main__.ask", lambda _command, case: answer(*case.arguments))
    result = CliRunner().invoke(main, ["run", "--only", "merged", "--", "any"])
    assert (result.exit_code, result.output.splitlines()[-1]) == (0, f"{len(cases('merged'))} of 24 cases passed")
    assert CliRunner().invoke(main, ["run", "--only", "nowhere", "--", "any"]).exit_code == 2


@pytest.mark.parametrize("terminal", [True, False])
def test_a_run_shows_how_far_it_came_on_a_terminal_only(monkeypatch, capsys, terminal):
    monkeypatch.setattr("txnlog.testing.conformance.__main__.ask", lambda _command, _case: Answer("topic"))
    monkeypatch.setattr(sys.stderr, "isatty", lambda: terminal)
    with pytest.raises(SystemExit):
        main(["run", "--only", "merged", "--", "any"], standalone_mode=False)
    said = [text.rstrip() for text in capsys.readouterr().err.split("\r")]
    shown = ["0 of 24 cases: merged", *(f"{done} of 24 cases, {done} differ: merged" for done in range(1, 25))]
    assert said == (["", *shown, "", ""] if terminal else [""])


def test_the_table_has_a_line_for_each_root():
    results = [check(case, lambda case: case.expected) for case in (*cases("merged"), *cases("types"))]
    lines = table(results).splitlines()
    assert [line.split()[0] for line in lines[:-1]] == ["merged", "types"]
    assert all(line.endswith("ok") for line in lines[:-1])


def test_make_says_what_it_made(tmp_path, monkeypatch):
    monkeypatch.setattr("txnlog.testing.conformance.__main__.make", lambda folder, seed: (folder / f"{seed}").mkdir())
    result = CliRunner().invoke(main, ["make", str(tmp_path), "--seed", "7"])
    assert result.output == f"0 cases in {tmp_path}\n"
    assert (tmp_path / "7").is_dir()
    assert ROOT
