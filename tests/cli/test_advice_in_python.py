"""What somebody who types commands is advised to do is a command, or is said to be Python."""

from __future__ import annotations

import ast
import importlib
import pathlib
import re

import pytest

import txnlog
from tests.cli.command_line import run
from txnlog.cli.rendering import rendered, worded
from txnlog.errors import AccessDenied
from txnlog.replies import IfClosed, IfUnknown, Rest
from txnlog.sentences import Words

main_module = importlib.import_module("txnlog.cli.main")

_PYTHON = re.compile(r"(?<!in Python )\b(catalog|txnlog)\.open\(\S*\)(\.\w+\(\S*\))?(?!\S* in Python)|mode=\"r\"")


@pytest.fixture
def lake(tmp_path: pathlib.Path) -> pathlib.Path:
    with txnlog.open(tmp_path / "lake", namespace="sales", create=True) as ns:
        ns.create_topic("orders")
    return tmp_path / "lake"


@pytest.mark.parametrize("command", ["topics", "checkpoint"])
def test_of_a_namespace_whose_folder_is_away(lake, command):
    """The advice is Python alone: ``catalog.open(root).create_namespace('sales')``."""
    (lake / "sales").rename(lake.parent / "away")
    done = run(str(lake / "sales"), command)
    assert done.returncode == 2
    assert not _PYTHON.search(done.stderr), done.stderr


@pytest.mark.parametrize(("name", "command"), [("nope", "topics"), ("sales", "checkpoint")])
def test_of_a_root_whose_list_is_away(lake, name, command):
    """The advice is Python alone, or an argument: ``catalog.open(root).adopt_namespace('sales')``, ``mode="r"``."""
    (lake / "_catalog").rename(lake.parent / "away")
    done = run(str(lake / name), command)
    assert done.returncode == 2
    assert not _PYTHON.search(done.stderr), done.stderr


def test_of_who_may_not_write():
    """The advice is an argument of a call, ``open with mode="r"``: commands that only read do so by themselves."""
    denied = AccessDenied("the store refuses to write", right="write")
    text = str(worded(denied, main_module.cli, main_module.cli.commands["checkpoint"]))
    assert not _PYTHON.search(text), text


_CALLED = re.compile(r"\bns\.\w+\(|(?<!in Python )\b(catalog|txnlog)\.open\(|\bmode=[\"'(]")

_OF_PYTHON_ALONE = {
    "catalog.open(root)",  # the handle of a call
    'use mode="r" or mode="rw"',  # of the argument itself
    'create=True needs mode="rw"',
    'open the namespace with mode="rw"',  # a command that writes does
    ' was opened with mode="r"',
}
"""Texts that no command shows."""


def _texts(tree: ast.AST) -> list[str]:
    """The texts of a module but for documentation, lines of the log, and what has other words for commands."""
    apart: set[int] = set()
    for item in ast.walk(tree):
        if isinstance(item, ast.Expr):
            apart.add(id(item.value))
        elif isinstance(item, ast.Call) and ast.unparse(item.func).startswith(("Either", "_logger.")):
            apart.update(map(id, ast.walk(item)))
    constants = [item for item in ast.walk(tree) if isinstance(item, ast.Constant) and id(item) not in apart]
    return [item.value for item in constants if isinstance(item.value, str)]


def test_every_text_that_names_a_call_or_a_mode_has_other_words_for_commands():
    """It is a ``Call`` or ``Either`` among ``Words``: a plain text would show Python to whoever types a command."""
    package = pathlib.Path(txnlog.__file__).parent
    plain = []
    for file in (*package.rglob("*.py"), *(package.parent / "catalog" / "publication").rglob("*.py")):
        if file.parent.name not in {"cli", "testing", "actors", "conformance"}:
            found = _texts(ast.parse(file.read_text()))
            plain += [(file.name, text) for text in found if _CALLED.search(text) and text not in _OF_PYTHON_ALONE]
    assert plain == []


@pytest.mark.parametrize(
    "advice",
    [
        value
        for table in (IfClosed, IfUnknown, Rest)
        for name, value in vars(table).items()
        if name.isupper() and isinstance(value, Words)
    ],
)
def test_what_to_do_where_a_call_failed_is_a_command_or_said_to_be_of_python(advice):
    text = rendered(advice, main_module.cli, None)
    assert re.search(r"\bns\.\w+\([^()]*\)(?!, in Python)", text) is None, text
    assert "..." not in text.replace("(...), in Python", ""), text
    assert "'transactions complete TOKEN'" not in text, "it wants a decision"


def test_a_decision_is_asked_for_by_its_two_options():
    assert rendered(IfUnknown.COMPLETE, main_module.cli, None) == (
        "call 'transactions complete TOKEN --commit|--abort' again, with the same decision"
    )


def test_every_text_that_names_the_completion_of_a_transaction_has_its_decision():
    package = pathlib.Path(txnlog.__file__).parent
    named = [
        ast.unparse(item)
        for file in package.rglob("*.py")
        for item in ast.walk(ast.parse(file.read_text()))
        if isinstance(item, ast.Call) and ast.unparse(item).startswith("Call('complete'")
    ]
    assert len(named) >= 4
    assert [text for text in named if "Argument('commit'" not in text] == []
