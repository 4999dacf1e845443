"""The protocol core is pure: what pyproject.toml does not list as doing I/O imports nothing that does.

Ruff bans clocks, random numbers, threads and files from every module of ``txnlog`` but the listed ones (TID251). These
tests close the two ways around it: importing a listed module, and silencing the rule.
"""

from __future__ import annotations

import ast
import fnmatch
import functools
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent.parent


@functools.cache
def listed_patterns() -> list[str]:
    """The files of txnlog that may do I/O, as pyproject.toml lists them."""
    with (ROOT / "pyproject.toml").open("rb") as file:
        ignores = tomllib.load(file)["tool"]["ruff"]["lint"]["per-file-ignores"]
    return [
        pattern
        for pattern, rules in ignores.items()
        if pattern.startswith("txnlog/") and any("TID251" in r for r in rules)
    ]


def is_listed(path: str) -> bool:
    """Say whether the file may do I/O."""
    return any(fnmatch.fnmatchcase(path, pattern.replace("**", "*")) for pattern in listed_patterns())


def pure_files() -> list[str]:
    """The pure modules of txnlog, relative to the root."""
    files = [path.relative_to(ROOT).as_posix() for path in sorted((ROOT / "txnlog").rglob("*.py"))]
    return [file for file in files if not is_listed(file)]


def imported_modules(source: str) -> set[str]:
    """The modules that a source imports anywhere, `from package import name` counted as both."""
    names: set[str] = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            names.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, "imports are absolute in this project"
            names.add(node.module or "")
            names.update(f"{node.module}.{alias.name}" for alias in node.names)
    return names


def impure_imports(source: str) -> set[str]:
    """What a source imports from the listed modules of txnlog."""
    found: set[str] = set()
    for name in imported_modules(source):
        if name == "txnlog":
            continue  # Only as the parent of a name, which is judged itself; a bare `import txnlog` is found below.
        if name.startswith("txnlog."):
            path = name.replace(".", "/")
            if is_listed(f"{path}.py") or is_listed(f"{path}/__init__.py"):
                found.add(name)
    bare = any(
        isinstance(node, ast.Import) and any(alias.name == "txnlog" for alias in node.names)
        for node in ast.walk(ast.parse(source))
    )
    return found | ({"txnlog"} if bare else set())


def test_there_is_a_pure_core():
    assert "txnlog/errors.py" in pure_files()
    assert not any(file.startswith("txnlog/store/") for file in pure_files())


@pytest.mark.parametrize("file", pure_files())
def test_a_pure_module_imports_nothing_that_does_io(file):
    assert impure_imports((ROOT / file).read_text(encoding="utf-8")) == set()


@pytest.mark.parametrize("file", pure_files())
def test_a_pure_module_does_not_silence_the_rule(file):
    source = (ROOT / file).read_text(encoding="utf-8")
    assert "TID251" not in source
    assert "ruff: noqa" not in source
    assert "importlib" not in imported_modules(source)
    assert "__import__" not in source


@pytest.mark.parametrize(
    "source",
    [
        "import txnlog",
        "import txnlog.store.base",
        "from txnlog.log.log_reader import appender",
        "from txnlog.store import base",
        "from txnlog.store.base import Store",
        "def late():\n    from txnlog.api.namespace import Namespace",
    ],
)
def test_the_check_sees_every_way_to_import(source):
    assert impure_imports(source)


def test_the_check_lets_pure_imports_pass():
    assert impure_imports("from txnlog import errors\nfrom txnlog.errors import TxnLogError\nimport enum") == set()
