"""The code of docs/delta.md and of the tour's exit door runs as it stands, Spark's in a process without txnlog."""

from __future__ import annotations

import re
from pathlib import Path

import deltalake
import pyarrow as pa
import pytest

import catalog as txn_catalog
import txnlog
from tests.catalog.engines import Engines
from tests.pages import blocks, page, section

PAGE = page("docs/delta.md")


def placed(code: str, folder: Path) -> str:
    assert "/tmp/lake" in code
    return code.replace("/tmp/lake", str(folder / "lake"))


def test_the_page_runs_and_prints_what_it_says(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    door, *found = blocks(PAGE)
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
    python = "\n".join(blocks(PAGE)[1:])
    exec(compile(placed(python, tmp_path), "docs/delta.md", "exec"), {})
    (code,) = blocks(PAGE, "python spark")
    try:
        all_engines.ask(call="exec", code=placed(code, tmp_path))
    finally:
        all_engines.ask(call="exec", code='spark.sql("DROP TABLE IF EXISTS orders")')


def test_the_page_quotes_what_delta_rs_says_of_writes(tmp_path: Path) -> None:
    with txnlog.open(str(tmp_path), namespace="sales", create=True) as ns:
        ns.create_topic("orders", pa.schema([("customer", pa.string())]))
        ns.produce("orders", [{"customer": "ann"}])
    with txn_catalog.open(str(tmp_path)) as cat:
        url = cat.publish("sales", "orders").url
    rows = pa.table({"customer": ["bob"]})
    with pytest.raises(deltalake.exceptions.DeltaError, match=r"Unsupported table features required: \[.*") as appended:
        deltalake.write_deltalake(url, rows, mode="append")
    assert 'Unknown("txnlog")' in str(appended.value)
    with pytest.raises(deltalake.exceptions.DeltaError, match="Delta table is append-only"):
        deltalake.write_deltalake(url, rows, mode="overwrite")
    with pytest.raises(deltalake.exceptions.DeltaError, match="Delta table is append-only"):
        deltalake.DeltaTable(url).delete()
    quoted = re.sub(r"\s+", " ", section(PAGE, "What others may not do"))
    for words in ("Unsupported table features required: ", 'Unknown("txnlog")', "Delta table is append-only"):
        assert words in quoted


def test_the_exit_door_of_the_tour_is_three_lines_that_run(tmp_path: Path, all_engines: Engines) -> None:
    python = "\n".join(blocks(PAGE)[1:])
    exec(compile(placed(python, tmp_path), "docs/delta.md", "exec"), {})
    code, sql = blocks(section(page("docs/tour.md"), "The exit door"))
    assert len(code.strip().splitlines()) == 3
    all_engines.ask(call="exec", code=placed(code, tmp_path))
    try:
        all_engines.ask(call="exec", code=placed(sql, tmp_path))
    finally:
        all_engines.ask(call="exec", code='spark.sql("DROP TABLE IF EXISTS orders")')
