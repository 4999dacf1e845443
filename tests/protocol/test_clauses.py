"""Every clause of PROTOCOL.md stands for something that a test looks at."""

from __future__ import annotations

import ast
import functools
from pathlib import Path

import pytest

from tests.protocol.document import clauses

TESTS = Path(__file__).parent.parent

NOT_YET: dict[str, str] = {}
"""Clauses that no test names so far, with what they wait for. The list only ever gets shorter."""


def named_by(source: str) -> dict[str, list[str]]:
    """The clauses that a source's tests name: ``@pytest.mark.clause("P-12", ...)`` on a test or a class of tests."""
    found: dict[str, list[str]] = {}
    for node in ast.walk(ast.parse(source)):
        if not isinstance(node, ast.FunctionDef | ast.ClassDef) or not node.name.lower().startswith("test"):
            continue
        for decorator in node.decorator_list:
            if isinstance(decorator, ast.Call) and ast.unparse(decorator.func) == "pytest.mark.clause":
                for argument in decorator.args:
                    assert isinstance(argument, ast.Constant), "a clause is named as text"
                    found.setdefault(str(argument.value), []).append(node.name)
    return found


@functools.cache
def named_anywhere() -> dict[str, list[str]]:
    """By clause the tests that name it, over all folders of tests."""
    result: dict[str, list[str]] = {}
    for path in sorted(TESTS.rglob("test_*.py")):
        for clause, names in named_by(path.read_text(encoding="utf-8")).items():
            result.setdefault(clause, []).extend(names)
    return result


def test_no_number_is_given_twice():
    ids = [clause.id for clause in clauses()]
    assert len(ids) == len(set(ids))
    assert len(ids) > 100


@pytest.mark.parametrize("clause", clauses(), ids=lambda clause: clause.id)
def test_a_clause_is_a_sentence_that_binds_somebody(clause):
    assert clause.binds in {"W", "R", "W, R"}
    assert "MUST" in clause.text
    assert clause.text.rstrip().endswith(".")


@pytest.mark.parametrize("clause", clauses(), ids=lambda clause: clause.id)
def test_every_clause_is_named_by_a_test_or_waits_for_one(clause):
    assert (clause.id in named_anywhere()) != (clause.id in NOT_YET), "named by a test, or in NOT_YET, and never both"


def test_every_test_names_clauses_that_there_are():
    assert set(named_anywhere()) <= {clause.id for clause in clauses()}


def test_what_waits_is_a_clause_and_says_for_what():
    assert set(NOT_YET) <= {clause.id for clause in clauses()}
    assert all(NOT_YET.values())


@pytest.mark.clause("P-141")
def test_nothing_that_runs_code_reads_stored_bytes():
    forbidden = {"pickle", "marshal", "shelve", "dill", "cloudpickle", "yaml"}
    for path in sorted((TESTS.parent / "txnlog").rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Import):
                assert not {alias.name.split(".")[0] for alias in node.names} & forbidden, path
            elif isinstance(node, ast.ImportFrom):
                assert (node.module or "").split(".")[0] not in forbidden, path
            elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
                assert node.func.id not in {"eval", "exec", "compile"}, path


@pytest.mark.parametrize(
    ("source", "found"),
    [
        ("@pytest.mark.clause('P-1', 'P-2')\ndef test_it(): pass", {"P-1", "P-2"}),
        ("@pytest.mark.clause('P-1')\nclass TestIt: pass", {"P-1"}),
        ("@pytest.mark.clause('P-1')\ndef helper(): pass", set()),
        ("# P-1\ndef test_it(): 'P-1'", set()),
    ],
)
def test_only_a_marked_test_counts(source, found):
    assert set(named_by(source)) == found
