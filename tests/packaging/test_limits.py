"""Every limit says why it is what it is."""

from __future__ import annotations

import ast
import inspect
from types import ModuleType

import pytest

from txnlog.common import format_limits, limits

MODULES = pytest.mark.parametrize("module", [limits, format_limits], ids=lambda module: module.__name__)


@MODULES
def test_every_limit_or_block_of_limits_is_followed_by_its_reason(module: ModuleType) -> None:
    body = ast.parse(inspect.getsource(module)).body
    waiting: list[str] = []
    told = 0
    for statement in body:
        if isinstance(statement, ast.AnnAssign) and isinstance(statement.target, ast.Name):
            waiting.append(statement.target.id)
        elif isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant):
            told += len(waiting)
            waiting = []
    assert waiting == []
    assert told == len(module.__all__) > 20


@MODULES
def test_blocks_of_limits_are_not_cut_by_empty_lines(module: ModuleType) -> None:
    """An empty line between a limit and the reason below another one would make that one's reason its own."""
    lines = inspect.getsource(module).splitlines()
    bare = [
        line.split(":")[0]
        for line, following in zip(lines, [*lines[1:], ""], strict=True)
        if ": Final = " in line and not following
    ]
    assert bare == []
