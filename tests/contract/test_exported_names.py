"""A module of ours uses of another one what that one's ``__all__`` has, and nothing else."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]
PACKAGES = ("txnlog", "catalog", "spark_ext")

UNLISTED = {"txnlog.errors.OR_ABORT", "txnlog.errors.no_delta"}
"""``errors.__all__`` is the list of the errors that users meet, and these are none."""

Trees = dict[str, ast.Module]
"""Modules by their dotted names; a package is one too."""


def modules() -> Trees:
    found: Trees = {}
    for path in sorted(path for package in PACKAGES for path in (ROOT / package).rglob("*.py")):
        parts = path.relative_to(ROOT).with_suffix("").parts
        name = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
        found[name] = ast.parse(path.read_text(encoding="utf-8"))
    return found


def exported(tree: ast.Module) -> set[str] | None:
    """What ``__all__`` of a module has; None where it has none."""
    for node in tree.body:
        if isinstance(node, ast.Assign) and any(isinstance(to, ast.Name) and to.id == "__all__" for to in node.targets):
            return set(ast.literal_eval(node.value))
    return None


def uses(tree: ast.Module, of: Trees) -> Iterator[tuple[str, str]]:
    """Module and name of all that a module imports of others, or takes from one that it imported as a whole."""
    whole: dict[str, str] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module in of:
            for alias in node.names:
                if f"{node.module}.{alias.name}" in of:
                    whole[alias.asname or alias.name] = f"{node.module}.{alias.name}"
                else:
                    yield node.module, alias.name
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id in whole:
            yield whole[node.value.id], node.attr


def not_exported(trees: Trees) -> set[str]:
    """What one module uses of another whose ``__all__`` lacks it."""
    offered = {name: exported(tree) for name, tree in trees.items()}
    found: set[str] = set()
    for user, tree in trees.items():
        for module, name in uses(tree, trees):
            names = offered[module]
            known = names is None or name in names or name == "__all__" or f"{module}.{name}" in trees
            if module != user and not known and f"{module}.{name}" not in UNLISTED:
                found.add(f"{user}: {module}.{name}")
    return found


def test_modules_use_of_each_other_what_is_exported() -> None:
    assert not_exported(modules()) == set()


def test_what_is_not_exported_is_seen_by_name_and_by_module() -> None:
    one = ast.parse('__all__ = ["shown"]\nshown = hidden = also = 1\n')
    two = ast.parse("from ours.one import hidden, shown\nfrom ours import one\nprint(one.also, one.shown)\n")
    found = not_exported({"ours": ast.parse(""), "ours.one": one, "ours.two": two})
    assert found == {"ours.two: ours.one.hidden", "ours.two: ours.one.also"}
