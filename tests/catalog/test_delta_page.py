"""The code of docs/delta.md and of the README's exit door runs as it stands, Spark's in a process without txnlog."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.catalog.engines import Engines

ROOT = Path(__file__).parents[2]


def blocks(name: str, kind: str) -> list[str]:
    """The blocks of a page that are marked so."""
    return re.findall(rf"```python{kind}\n(.*?)```", (ROOT / name).read_text(encoding="utf-8"), re.DOTALL)


def placed(code: str, folder: Path) -> str:
    assert "/tmp/lake" in code
    return code.replace("/tmp/lake", str(folder / "lake"))


def test_the_page_runs_and_prints_what_it_says(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    door, *found = blocks("docs/delta.md", "")
    assert len(found) > 3
    assert len(door.strip().splitlines()) == 3
    names: dict[str, object] = {}
    exec(compile(placed("\n".join(found), tmp_path), "docs/delta.md", "exec"), names)
    printed = capsys.readouterr().out
    assert re.search(r"^0 \d+ .*/sales/orders$", printed, re.MULTILINE)
    assert re.search(r"^0 shows \d+ at \d+$", printed, re.MULTILINE)
    assert "(12.5,)" in printed
    exec(compile(placed(door, tmp_path), "docs/delta.md", "exec"), {})
    assert "ann" in capsys.readouterr().out


def test_what_spark_does_there_works_without_txnlog(tmp_path: Path, all_engines: Engines) -> None:
    python = "\n".join(blocks("docs/delta.md", "")[1:])
    exec(compile(placed(python, tmp_path), "docs/delta.md", "exec"), {})
    (code,) = blocks("docs/delta.md", " spark")
    try:
        all_engines.ask(call="exec", code=placed(code, tmp_path))
    finally:
        all_engines.ask(call="exec", code='spark.sql("DROP TABLE IF EXISTS orders")')


def test_the_exit_door_of_the_readme_is_three_lines_that_run(tmp_path: Path, all_engines: Engines) -> None:
    python = "\n".join(blocks("docs/delta.md", "")[1:])
    exec(compile(placed(python, tmp_path), "docs/delta.md", "exec"), {})
    text = (ROOT / "README.md").read_text(encoding="utf-8").split("\n## The exit door\n", 1)[1].split("\n## ", 1)[0]
    code, sql = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    assert len(code.strip().splitlines()) == 3
    all_engines.ask(call="exec", code=placed(code, tmp_path))
    try:
        all_engines.ask(call="exec", code=placed(sql, tmp_path))
    finally:
        all_engines.ask(call="exec", code='spark.sql("DROP TABLE IF EXISTS orders")')
