"""docs/map.md names every folder of code and of tests once as a line, and nothing that is not there."""

from __future__ import annotations

import ast
import re
from collections import Counter
from functools import cache
from itertools import pairwise
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "map.md"
PACKAGES = ("txnlog", "catalog", "spark_ext")

TEXT = PAGE.read_text(encoding="utf-8")
LINKS = re.findall(r"\[([^\]]*)\]\(([^)#]+)\)", TEXT)


def target(link: str) -> str:
    return (PAGE.parent / link).resolve().relative_to(ROOT.resolve()).as_posix()


def folders(name: str, pattern: str) -> set[str]:
    return {path.parent.relative_to(ROOT).as_posix() for path in (ROOT / name).rglob(pattern)}


@cache
def modules() -> dict[str, Path]:
    """Every module of the code, by its dotted name."""
    paths = [path for package in PACKAGES for path in (ROOT / package).rglob("*.py")]
    return {".".join(path.relative_to(ROOT).with_suffix("").parts): path for path in paths}


@cache
def modules_named(stem: str) -> list[str]:
    return [module for module in modules() if module.rpartition(".")[2] == stem]


def imports(module: str) -> set[str]:
    """What a module imports itself, also where only types need it."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(modules()[module].read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            found.update([str(node.module), *(f"{node.module}.{alias.name}" for alias in node.names)])
    return found


def test_each_step_of_a_call_imports_the_next():
    ways = [line for line in TEXT.splitlines() if "→" in line]
    assert len(ways) == 3
    for way in ways:
        met: set[str] = set()
        for part in way.split("|")[2].split(";"):
            first, *rest = re.findall(r"`(\w+)`", part)
            assert rest
            assert first in met or not met, f"nothing leads to {first}"
            for step, following in pairwise([first, *rest]):
                assert any(set(modules_named(following)) & imports(module) for module in modules_named(step)), (
                    f"{step}, {following}"
                )
            met |= {first, *rest}


def test_every_folder_of_code_has_one_line():
    rows = [line for line in TEXT.splitlines() if line.startswith("| [")]
    first = Counter(target(re.findall(r"\]\(([^)#]+)\)", row)[0]) for row in rows)
    wanted = {folder for package in PACKAGES for folder in folders(package, "*.py")} - {"txnlog"}
    assert len(wanted) > 15
    assert {folder for folder in wanted if first[folder] != 1} == set(), "folders without a line, or with two"
    top = {path.relative_to(ROOT).as_posix() for path in (ROOT / "txnlog").glob("[a-z]*.py")}
    assert top <= {target(link) for _, link in LINKS}, "modules above the folders, which need a word of their own"


def test_every_folder_of_tests_is_named():
    named = {target(link) for _, link in LINKS}
    assert len(named) > 30
    assert folders("tests", "test_*.py") - named == set()


def test_what_is_named_is_there():
    assert [link for _, link in LINKS if not (PAGE.parent / link).exists()] == []
    above = {path.name for path in (ROOT / "tests").glob("*.py")} - {"conftest.py"}
    assert above == set(re.findall(r"`(\w+\.py)`", TEXT))
