"""A situation that a long run has to reach is one that the simulation can name: else a reworded label fails it."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

from tests.sim.run import BESIDES
from txnlog import errors, testing
from txnlog.testing import operations, runner

KINDS = set(re.findall(r'tag="(\w+)"', Path(operations.__file__).read_text(encoding="utf-8")))
"""Of operations: with the name of an error each is the label of a call that failed."""


def named(source: str) -> Iterator[str]:
    """What a module names situations, as patterns: arguments of ``label``, and what functions of labels yield."""
    tree = ast.parse(source)
    for node in ast.walk(tree):
        match node:
            case ast.Call(ast.Name("label") | ast.Attribute(attr="label"), [argument]):
                yield from patterns(argument)
            case ast.Call(ast.Attribute(attr="failed"), [_, ast.Constant(str(kind)), _]):
                yield rf"{re.escape(kind)}: [A-Z]\w+"
            case ast.FunctionDef(name="labels_of" | "merged_of"):
                for inner in ast.walk(node):
                    if isinstance(inner, ast.Yield) and inner.value is not None:
                        yield from patterns(inner.value)


def patterns(text: ast.expr) -> list[str]:
    """What an expression may give: what stands there, each branch, and anything for a value that is put in."""
    match text:
        case ast.Constant(str(value)):
            return [re.escape(value)]
        case ast.IfExp(_, one, other):
            return [*patterns(one), *patterns(other)]
        case ast.FormattedValue(ast.IfExp() as chosen):
            return patterns(chosen)
        case ast.JoinedStr(parts):
            found = [""]
            for part in parts:
                found = [before + after for before in found for after in patterns(part)]
            return found
    return [".+"]


def known() -> list[re.Pattern[str]]:
    """The patterns of all modules, but for those that say nothing themselves."""
    folder = Path(testing.__file__).parent
    found = {pattern for path in folder.rglob("*.py") for pattern in named(path.read_text(encoding="utf-8"))}
    return [re.compile(item) for item in sorted(found) if re.search(r"[a-z]{3}", item)]


def can_be_reached(situation: str, patterns: list[re.Pattern[str]]) -> bool:
    kind, _, error = situation.partition(": ")
    return (kind in KINDS and hasattr(errors, error)) or any(pattern.fullmatch(situation) for pattern in patterns)


def test_each_situation_that_runs_must_reach_is_named_in_the_code():
    patterns = known()
    assert len(patterns) > 80
    wanted = {*runner.REACHED, *(name for besides in BESIDES.values() for name in besides.reached)}
    assert sorted(name for name in wanted if not can_be_reached(name, patterns)) == []


def test_a_reworded_situation_is_found():
    patterns = known()
    reworded = ("a dead letters", "clocks: jump", "storms of 429", "commit: OutcomesUnknown", "commits: StoreError")
    assert [name for name in reworded if can_be_reached(name, patterns)] == []
