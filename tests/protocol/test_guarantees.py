"""docs/guarantees.md: every rule has its sentence in PROTOCOL.md and its test, and whatever it names is there."""

from __future__ import annotations

import ast
import functools
import re
from dataclasses import dataclass

import pytest

from tests.mutants.mutants import MUTANTS
from tests.protocol.document import ROOT, clauses, rows

TESTS = ROOT / "tests"
TEXT = (ROOT / "docs" / "guarantees.md").read_text(encoding="utf-8")
SPARK = (ROOT / "docs" / "spark.md").read_text(encoding="utf-8")
COUNTS = {1: 15, 2: 19, 3: 10, 4: 20, 5: 9, 6: 16}
"""Rows of each section."""
NOT_BUILT: frozenset[str] = frozenset()
"""Rows that may have neither sentence nor test."""
LEAST_WITH_BUGS = 76
"""Rows with at least one planted bug that their own test catches."""
BUGS = {mutant.name: mutant for mutant in MUTANTS}

_CLAUSE = re.compile(r"\bP-\d+\b")
_PLACE = re.compile(r"\]\(spark\.md#([a-z0-9-]*)\)")
_TEST = re.compile(r"`([a-z0-9_]+(?:/[a-z0-9_]+)*\.py)::(\w+)`")
_TABLE = re.compile(r"(?:^\|.*\|\n)+", re.MULTILINE)


@dataclass(frozen=True)
class Rule:
    """One row of the map."""

    number: str
    text: str
    sentences: tuple[str, ...]
    tests: tuple[tuple[str, str], ...]
    bugs: tuple[str, ...] = ()
    places: tuple[str, ...] = ()
    """Sections of docs/spark.md that promise it, by their anchors: in place of sentences, or beside them."""


HEADING = "| no. | in short | sentences | tests | planted bugs |"


def rules(text: str = TEXT) -> list[Rule]:
    """The rows of all tables that map rules to sentences and tests."""
    found: list[Rule] = []
    for table in _TABLE.findall(text):
        if table.startswith(HEADING):
            for number, words, sentences, tests, bugs in rows(table):
                names = tuple(filter(None, (name.strip() for name in bugs.split(";"))))
                stated = tuple(_CLAUSE.findall(sentences)), tuple(_TEST.findall(tests))
                found.append(Rule(number, words, *stated, names, tuple(_PLACE.findall(sentences))))
    return found


def not_yet() -> dict[str, str]:
    """By rule what is missing of it."""
    (table,) = (found for found in _TABLE.findall(TEXT) if found.startswith("| no. | what is missing |"))
    return {row[0]: row[1] for row in rows(table)}


@functools.cache
def known_tests(file: str) -> dict[str, frozenset[str]]:
    """By name the tests of a file, with the sentences that each one names."""
    path = TESTS / file
    if not path.is_file():
        return {}
    return marked(path.read_text(encoding="utf-8"))


def marked(source: str) -> dict[str, frozenset[str]]:
    """By name the tests of a source, with the sentences that each one names."""
    return {
        node.name: frozenset(
            str(argument.value)
            for decorator in node.decorator_list
            if isinstance(decorator, ast.Call) and ast.unparse(decorator.func) == "pytest.mark.clause"
            for argument in decorator.args
            if isinstance(argument, ast.Constant)
        )
        for node in ast.parse(source).body
        if isinstance(node, ast.FunctionDef) and node.name.startswith("test_")
    }


def sections(text: str = SPARK) -> set[str]:
    """The anchors of a page's sections that say something, as GitHub makes them of headings."""
    parts = re.split(r"^## (.*)\n", text, flags=re.MULTILINE)[1:]
    named = zip(parts[::2], parts[1::2], strict=True)
    return {re.sub(r"[^a-z0-9 -]", "", title.lower()).replace(" ", "-") for title, body in named if body.strip()}


def complaints(rule: Rule) -> list[str]:
    """What is wrong with a row."""
    known = {clause.id for clause in clauses()}
    found = [f"there is no {sentence}" for sentence in rule.sentences if sentence not in known]
    found += [f"there is no {name} in {file}" for file, name in rule.tests if name not in known_tests(file)]
    found += [f"docs/spark.md has no section {place!r}" for place in rule.places if place not in sections()]
    if not rule.sentences and not rule.places and rule.number not in NOT_BUILT:
        found.append("no sentence states it")
    if not rule.tests and rule.number not in NOT_BUILT:
        found.append("no test holds it")
    named = frozenset().union(*(known_tests(file).get(name, frozenset()) for file, name in rule.tests))
    if rule.sentences and rule.tests and not named & set(rule.sentences):
        found.append("none of its tests names one of its sentences")
    own = {f"tests/{file}::{name}" for file, name in rule.tests}
    for name in rule.bugs:
        if name not in BUGS:
            found.append(f"there is no planted bug {name!r}")
        elif not {test.partition("[")[0] for test in BUGS[name].tests} <= own:
            found.append(f"the planted bug {name!r} is for other tests to catch than its own")
    return found


def test_no_row_is_missing_and_they_stand_in_order():
    expected = [f"S{section}.{row}" for section, count in COUNTS.items() for row in range(1, count + 1)]
    assert [rule.number for rule in rules()] == expected


@pytest.mark.parametrize("rule", rules(), ids=lambda rule: rule.number)
def test_every_rule_has_a_sentence_and_a_test(rule):
    assert complaints(rule) == []


def test_most_rules_have_a_planted_bug_that_their_own_test_catches():
    having = [rule.number for rule in rules() if rule.bugs]
    assert len(having) >= LEAST_WITH_BUGS
    assert {number.partition(".")[0] for number in having} == {f"S{section}" for section in COUNTS}


def test_what_is_not_built_is_reported():
    told = not_yet()
    assert set(NOT_BUILT) <= set(told) <= {rule.number for rule in rules()}
    assert all(told.values())


def test_every_sentence_and_test_that_the_page_names_is_there():
    assert set(_CLAUSE.findall(TEXT)) <= {clause.id for clause in clauses()}
    missing = [(file, name) for file, name in _TEST.findall(TEXT) if name not in known_tests(file)]
    assert missing == []
    assert TEXT.count("::") == len(_TEST.findall(TEXT)), "a test is named as `file::name`"


def test_every_promise_names_sentences_and_tests():
    promises = TEXT[TEXT.index("\n## Promises\n") : TEXT.index("\n## Not promised\n")].split("\n\n**")[1:]
    assert len(promises) == 19
    for promise in promises:
        assert _CLAUSE.search(promise), promise
        assert _TEST.search(promise), promise


HERE = "`protocol/test_guarantees.py::test_what_is_not_built_is_reported`"


@pytest.mark.parametrize(
    ("row", "complaint"),
    [
        (f"| S9.1 | x | P-99999 | {HERE} | |", "no P-99999"),
        ("| S9.1 | x | P-1 | `protocol/test_guarantees.py::test_gone` | |", "no test_gone"),
        ("| S9.1 | x | P-1 | `protocol/test_nowhere.py::test_it` | |", "no test_it"),
        ("| S9.1 | x | P-1 | | |", "no test"),
        (f"| S9.1 | x | | {HERE} | |", "no sentence"),
        (f"| S9.1 | x | [here](spark.md#nowhere) | {HERE} | |", "no section 'nowhere'"),
        (f"| S9.1 | x | [here](README.md#in-spark) | {HERE} | |", "no sentence"),
        (f"| S9.1 | x | P-1 | {HERE} | |", "none of its tests"),
        (f"| S9.1 | x | P-1 | {HERE} | a bug of nobody |", "no planted bug 'a bug of nobody'"),
        (f"| S9.1 | x | P-1 | {HERE} | no fence |", "'no fence' is for other tests"),
    ],
)
def test_a_row_that_is_not_true_is_found(row, complaint):
    (rule,) = rules(f"{HEADING}\n|---|---|---|---|---|\n{row}\n")
    assert any(complaint in text for text in complaints(rule))


def test_a_section_without_a_word_promises_nothing():
    assert sections("# A\n\n## As it was, so\n\nwords\n\n## Empty\n\n## Last: `x`\nwords\n") == {
        "as-it-was-so",
        "last-x",
    }


def test_only_a_test_of_the_file_counts():
    source = "@pytest.mark.clause('P-1')\ndef test_it(): pass\n\ndef helper(): pass\n\n# def test_other(): pass\n"
    assert marked(source) == {"test_it": frozenset({"P-1"})}
