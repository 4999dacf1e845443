"""The public surface is explicit: what `__all__` names exists, is told once and in order."""

from __future__ import annotations

import ast
import importlib
from pathlib import Path
from typing import Any

import pytest

import spark_ext

ROOT = Path(__file__).parent.parent.parent
PACKAGES = ("txnlog", "catalog", "spark_ext")


def exporting_files() -> list[str]:
    """The modules that must define `__all__`: all but those that are run, and packages that are a docstring alone."""
    files = [path for package in PACKAGES for path in sorted((ROOT / package).rglob("*.py"))]
    return [
        path.relative_to(ROOT).as_posix()
        for path in files
        if path.name != "__main__.py" and len(ast.parse(path.read_text(encoding="utf-8")).body) > 1
    ]


def exported_names(source: str) -> list[str]:
    """The names in `__all__`, which must be one literal."""
    values = [
        node.value
        for node in ast.parse(source).body
        if isinstance(node, ast.Assign | ast.AnnAssign)
        and any(isinstance(target, ast.Name) and target.id == "__all__" for target in targets(node))
    ]
    assert len(values) == 1, "__all__ is assigned once"
    return list(ast.literal_eval(values[0]))


def targets(node: ast.Assign | ast.AnnAssign) -> list[ast.expr]:
    return node.targets if isinstance(node, ast.Assign) else [node.target]


def order(name: str) -> tuple[int, str]:
    """Constants, then classes, then functions and modules, each by the alphabet: as the linter sorts (RUF022)."""
    bare = name.lstrip("_")
    return (0 if bare.isupper() else 1 if bare[:1].isupper() else 2), name


@pytest.mark.parametrize("file", exporting_files())
def test_exported_names_are_sorted_exist_and_are_listed_once(file):
    names = exported_names((ROOT / file).read_text(encoding="utf-8"))
    assert names == sorted(set(names), key=order)
    module = importlib.import_module(file.removesuffix(".py").removesuffix("/__init__").replace("/", "."))
    assert [name for name in names if not hasattr(module, name)] == []


def imported_names(source: str) -> set[str]:
    """What a module has from others."""
    return {
        alias.asname or alias.name.partition(".")[0]
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.Import | ast.ImportFrom)
        for alias in node.names
    }


@pytest.mark.parametrize("file", [file for file in exporting_files() if not file.endswith("/__init__.py")])
def test_a_module_exports_its_own_names_only(file):
    """A name has one home, and is imported from there; a package's ``__init__`` may gather what its modules have."""
    source = (ROOT / file).read_text(encoding="utf-8")
    assert imported_names(source).isdisjoint(exported_names(source))


@pytest.mark.parametrize("package", PACKAGES)
def test_a_package_says_what_it_is_for(package):
    assert importlib.import_module(package).__doc__


def test_what_needs_pyspark_says_how_to_install_it(monkeypatch: pytest.MonkeyPatch) -> None:
    def lacks(_module: str) -> Any:
        message = "No module named 'pyspark'"
        raise ModuleNotFoundError(message, name="pyspark")

    monkeypatch.setattr("spark_ext.importlib.import_module", lacks)
    monkeypatch.delitem(vars(spark_ext), "process", raising=False)
    with pytest.raises(ModuleNotFoundError, match=r"spark_ext\.process needs PySpark.*pip install 'txnlog\[spark\]'"):
        _ = spark_ext.process
