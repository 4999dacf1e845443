"""docs/map.md names every folder of code and of tests once as a line, and nothing that is not there."""

from __future__ import annotations

import re
from collections import Counter
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
    stems = {path.stem for package in PACKAGES for path in (ROOT / package).rglob("*.py")}
    ways = [line for line in TEXT.splitlines() if "→" in line]
    assert len(ways) == 3
    assert [name for way in ways for name in re.findall(r"`(\w+)`", way) if name not in stems] == []
    above = {path.name for path in (ROOT / "tests").glob("*.py")} - {"conftest.py"}
    assert above == set(re.findall(r"`(\w+\.py)`", TEXT))
