"""The example of a reader in examples/second_reader passes the kit, and knows nothing of this project."""

from __future__ import annotations

import ast
import json
import sys
from pathlib import Path

import pytest

import examples.second_reader as package
from examples.second_reader import __main__ as second
from examples.second_reader.entries import Answer as Refusal
from txnlog.testing.conformance.cases import EXIT_CODES, OK, Answer, Case, cases_of
from txnlog.testing.conformance.runner import ask, run

FOLDER = Path(package.__file__).parent
KINDS = {code: kind for kind, code in EXIT_CODES.items()}


def answered(case: Case) -> Answer:
    root, *others = case.arguments
    try:
        return Answer(OK, tuple(json.loads(json.dumps(row)) for row in second.answer(Path(root), *others)))
    except Refusal as refusal:
        return Answer(KINDS[refusal.args[0]])


def test_it_passes_the_kit() -> None:
    results = run(cases_of(), answered)
    assert [f"{item.case.name}: {item.difference}" for item in results if item.difference is not None] == []


@pytest.mark.parametrize("kind", ["rows", "damaged"])
def test_it_passes_as_a_command(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(FOLDER.parent)
    case = next(case for case in cases_of() if (case.expected.kind == OK) == (kind == "rows"))
    assert ask((sys.executable, "-m", "second_reader"), case).kind == case.expected.kind


def test_it_imports_nothing_of_this_project_but_itself() -> None:
    names: set[str] = set()
    for path in FOLDER.glob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Import):
                names |= {alias.name.partition(".")[0] for alias in node.names}
            elif isinstance(node, ast.ImportFrom) and not node.level:
                names.add(str(node.module).partition(".")[0])
    assert names - set(sys.stdlib_module_names) == {"pyarrow"}
