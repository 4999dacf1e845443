"""Nobody waits for a lock that a thread may have while a signal's handler, or a finalizer, calls the client in it.

The engine may want it for the very entry for which that call waits (docs/guarantees.md, Calls from everywhere).
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import catalog
import txnlog

PACKAGE = Path(txnlog.__file__).parent
CATALOG = Path(catalog.__file__).parent

OUTSIDE = ("cli/", "testing/")
"""The command line, which no handler calls, and what stands in for a whole process."""

KINDS = {"Lock", "RLock", "Condition", "Semaphore", "BoundedSemaphore", "Barrier", "Event", "Queue"}
"""Of threading and queue. A SimpleQueue is whole wherever an interrupt comes."""

NOT_WAITED_FOR = {"common/lru.py", "store/wrappers.py"}
"""Who does not get the lock does without it."""


def _modules() -> Iterator[tuple[str, ast.Module]]:
    for path in sorted(PACKAGE.rglob("*.py")):
        name = path.relative_to(PACKAGE).as_posix()
        if not name.startswith(OUTSIDE):
            yield name, ast.parse(path.read_text())


def _names(tree: ast.Module) -> set[str]:
    """The names that a module calls, of whatever module."""
    called = [ast.unparse(node.func) for node in ast.walk(tree) if isinstance(node, ast.Call)]
    return {name.rpartition(".")[2] for name in called}


def test_the_client_has_no_lock_but_those_that_nobody_waits_for() -> None:
    found = {name: kinds for name, tree in _modules() if (kinds := _names(tree) & KINDS)}
    assert found.pop("store/probe.py") == {"Barrier"}, "of threads of its own, which make requests only"
    assert found.pop("client/arrow_start.py") == {"RLock"}, "for which only forks wait, and a thread without handlers"
    assert found == {name: {"Lock"} for name in NOT_WAITED_FOR}


def test_the_catalog_has_no_lock() -> None:
    paths = sorted(CATALOG.rglob("*.py"))
    assert len(paths) > 10
    assert not [path.name for path in paths if _names(ast.parse(path.read_text())) & KINDS]


def test_nobody_waits_for_those() -> None:
    for name, tree in _modules():
        if name in NOT_WAITED_FOR:
            uses = [node.attr for node in ast.walk(tree) if isinstance(node, ast.Attribute) and _is_lock(node.value)]
            whole = sum(_is_lock(node) for node in ast.walk(tree))
            kept = sum(isinstance(node, ast.Assign) and any(map(_is_lock, node.targets)) for node in ast.walk(tree))
            assert set(uses) == {"acquire", "release"}, name
            assert len(uses) + kept == whole, f"{name}: a lock is used as a whole, as in a with block"
            for node in ast.walk(tree):
                if isinstance(node, ast.Call) and ast.unparse(node.func).endswith("_lock.acquire"):
                    assert ast.unparse(node) == f"{ast.unparse(node.func)}(blocking=False)", name


def _is_lock(node: ast.AST) -> bool:
    return isinstance(node, ast.Attribute) and node.attr.endswith("_lock")
