"""docs/map.md names every module once, the tests that one would look for, and nothing that is not there."""

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


def modules(name: str) -> list[str]:
    return [path.relative_to(ROOT).as_posix() for package in PACKAGES for path in (ROOT / package).rglob(name)]


def test_every_module_is_named_once():
    named = Counter(target(link) for _, link in LINKS if link.endswith(".py"))
    wanted = Counter(module for module in modules("*.py") if not module.endswith("__init__.py"))
    assert wanted.total() > 100
    named -= Counter(["pyspark_txnlog.py"])
    assert sorted(wanted - named) == [], "modules without a line in docs/map.md"
    assert sorted((named - wanted).elements()) == [], "lines of modules that are not there, or named before"


def test_every_package_is_named():
    packages = {Path(module).parent.as_posix() for module in modules("__init__.py")}
    assert len(packages) > 5
    assert packages - {target(link) for _, link in LINKS} == set()


def test_every_module_of_tests_is_named_where_the_folder_alone_tells_too_little():
    found = {path.stem for name in ("client", "catalog") for path in (ROOT / "tests" / name).glob("test_*.py")}
    assert len(found) > 60
    assert found - set(re.findall(r"`(test_\w+)`", TEXT)) == set(), "modules of tests without a word in docs/map.md"


def test_what_is_named_is_there():
    assert [link for _, link in LINKS if not (PAGE.parent / link).exists()] == []
    for text, link in LINKS:
        if link.endswith(".py"):
            assert text.strip("`") == Path(link).stem
    stems = {Path(module).stem for module in modules("*.py")}
    ways = [line for line in TEXT.splitlines() if "→" in line]
    assert ways
    assert [name for way in ways for name in re.findall(r"`(\w+)`", way) if name not in stems] == []
    tests = re.findall(r"`(?:tests/(\w+)/)?(test_[\w*]+)(?:\.py)?`", TEXT)
    assert len(tests) > 20
    assert [name for folder, name in tests if not list((ROOT / "tests").glob(f"{folder or '*'}/{name}.py"))] == []
