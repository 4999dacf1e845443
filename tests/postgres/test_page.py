"""docs/postgres.md shows the programs of examples/postgres, word by word: those are what the other tests kill."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import psycopg

import txnlog
from tests.pages import ROOT, blocks, page
from tools.postgres import Server


def test_the_page_shows_the_programs_as_they_are() -> None:
    programs = [path.read_text(encoding="utf-8") for path in sorted((ROOT / "examples" / "postgres").glob("*.py"))]
    found = blocks(page("docs/postgres.md"), "python|sql")
    assert len(found) == 7
    assert [block for block in found if not any(block in program for program in programs)] == []
    shown = "".join(found)
    for call in ("consumer.seek(", "txn.prepare(", "ns.complete(", "raise Overtaken("):
        assert call in shown


def run(module: str, lake: Path, url: str) -> str:
    command = [sys.executable, "-m", f"examples.postgres.{module}", str(lake), url]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    return subprocess.run(command, cwd=ROOT, env=environment, check=True, stdout=subprocess.PIPE, text=True).stdout


def test_the_programs_run_as_they_say(tmp_path: Path, server: Server) -> None:
    with psycopg.connect(server.url(), autocommit=True) as pg:
        pg.execute("CREATE SCHEMA programs")
    lake, url = tmp_path / "lake", server.url("programs")
    assert run("totals", lake, url) == "0 orders counted\n"
    with txnlog.open(lake, namespace="shop") as ns:
        ns.produce("orders", [{"customer": "ann", "cents": 1250}, {"customer": "bob", "cents": 700}])
    assert run("totals", lake, url) == "2 orders counted\nann\t12.50\nbob\t7.00\n"
    assert run("totals", lake, url) == "0 orders counted\nann\t12.50\nbob\t7.00\n"
    assert run("payments", lake, url) == "2 orders paid\n"
    assert run("payments", lake, url) == "0 orders paid\n"
