"""Data files of the table of segments that are damaged: like all that is published they are compared, not trusted."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

import deltalake
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import catalog as txn_catalog
from catalog.publication import segments_table, table_publisher
from tests.catalog.judging import check_segments_table
from tests.client.support import SCHEMA, Place, rows
from txnlog.format import keys
from txnlog.format.schema import to_arrow
from txnlog.store.local import LocalStore

ARROW = to_arrow(segments_table.SCHEMA)

Damage = Callable[[bytes], bytes]


@pytest.fixture(autouse=True)
def _small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(segments_table, "STRETCH", 5)
    monkeypatch.setattr(table_publisher, "CHECKPOINT_VERSIONS", 3)


def encoded(table: pa.Table) -> bytes:
    """Rows as another version of the library writes them: the same, in other bytes, and more of them."""
    sink = pa.BufferOutputStream()
    pq.write_table(table, sink, compression="none", use_dictionary=False, store_schema=True)
    return sink.getvalue().to_pybytes()


def _with_another_row(data: bytes) -> bytes:
    table = pq.read_table(pa.BufferReader(data))
    return encoded(pa.concat_tables([table, table.slice(0, 1)]))


def _with_another_value(data: bytes) -> bytes:
    table = pq.read_table(pa.BufferReader(data))
    at = table.column_names.index("base_offset")
    return encoded(table.set_column(at, "base_offset", pa.array([7] * table.num_rows, pa.int64())))


DAMAGE: dict[str, Damage] = {
    "cut": lambda data: data[:-9],
    "empty": lambda _data: b"",
    "longer": lambda data: data + b"x",
    "garbage": lambda _data: b"garbage",
    "garbage of its size": lambda data: bytes(len(data)),
    "damaged in a page": lambda data: data[:20] + bytes(20) + data[40:],
    "a row twice": _with_another_row,
    "another offset": _with_another_value,
}


def folder(place: Place) -> Path:
    return Path(place.root) / "sales" / keys.SEGMENTS_TABLE


def contents(place: Place) -> dict[str, bytes]:
    """All commits and data files."""
    found = [*(folder(place) / "_delta_log").glob("*.json"), *folder(place).glob("*.parquet")]
    return {item.name: item.read_bytes() for item in found}


def live(place: Place) -> list[Path]:
    """The files of the newest version, in the order in which commits added them; times of files are too coarse."""
    commits = sorted((folder(place) / "_delta_log").glob("*.json"))
    lines = [json.loads(line) for commit in commits for line in commit.read_text(encoding="utf-8").splitlines()]
    added = [line["add"]["path"] for line in lines if "add" in line]
    found = [Path(item) for item in deltalake.DeltaTable(str(folder(place))).file_uris()]
    return sorted(found, key=lambda item: added.index(item.name))


def grown(place: Place, cat: Any, count: int) -> Any:
    ns = place.open()
    ns.create_topic("orders", SCHEMA)
    for number in range(count):
        ns.produce("orders", rows(number))
        cat.publish("sales")
    return ns


@pytest.mark.parametrize("kind", DAMAGE)
@pytest.mark.parametrize("call", ["repair", "publish"])
def test_a_damaged_file_of_the_newest_version_is_there_again(
    place: Place, kind: str, call: str, caplog: pytest.LogCaptureFixture
) -> None:
    with txn_catalog.open(place.root) as cat:
        ns = grown(place, cat, 2)
        before = contents(place)
        item = live(place)[-1]
        item.write_bytes(DAMAGE[kind](item.read_bytes()))
        assert contents(place) != before
        with caplog.at_level(logging.WARNING, "txnlog.publisher"):
            done = getattr(cat, call)("sales")
        assert done[-1].repaired == (), "no commit was damaged"
        assert contents(place) == before
        assert f"the file {item.name} of the Delta table" in caplog.text
    check_segments_table(ns)


@pytest.mark.parametrize("kind", DAMAGE)
def test_repair_looks_into_the_files_of_every_version(place: Place, kind: str) -> None:
    with txn_catalog.open(place.root) as cat:
        ns = grown(place, cat, 14)
        before = contents(place)
        assert len(live(place)) > 2
        for item in folder(place).glob("*.parquet"):
            item.write_bytes(DAMAGE[kind](item.read_bytes()))
        assert cat.repair("sales")[-1].repaired == ()
        assert contents(place) == before
    check_segments_table(ns)


def test_a_file_that_another_version_of_the_library_wrote_stays(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    with txn_catalog.open(place.root) as cat:
        ns = grown(place, cat, 8)
        before = contents(place)
        monkeypatch.setattr(segments_table, "_encoded", encoded)
        with txn_catalog.open(place.root) as other:
            assert other.publish("sales")[-1].repaired == ()
            assert other.repair("sales")[-1].repaired == ()
        assert contents(place) == before
    check_segments_table(ns)


@pytest.mark.parametrize("call", ["repair", "publish"])
def test_a_file_that_comes_back_in_other_bytes_has_its_true_size_in_commits_and_checkpoints(
    place: Place, call: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with txn_catalog.open(place.root) as cat:
        ns = grown(place, cat, 14)
        checkpoints = list((folder(place) / "_delta_log").glob("*.checkpoint.parquet"))
        assert len(checkpoints) > 2
        items = live(place) if call == "repair" else live(place)[-1:]
        for item in items:
            item.write_bytes(item.read_bytes()[:-9])
        monkeypatch.setattr(segments_table, "_encoded", encoded)
        done = getattr(cat, call)("sales")
        assert len(done[-1].repaired) == len(items)
    check_segments_table(ns)
    assert deltalake.DeltaTable(str(folder(place))).to_pyarrow_table().num_rows > 0


def _many_rows() -> pa.Table:
    count = 2_000_000
    return pa.table([pa.nulls(count, field.type) for field in ARROW], ARROW)


def _large_row() -> pa.Table:
    columns: list[Any] = [pa.nulls(1, field.type) for field in ARROW]
    columns[ARROW.get_field_index("txn_id")] = pa.array(["0" * 100_000_000])
    return pa.table(columns, ARROW)


@pytest.mark.parametrize("claims", [_many_rows, _large_row])
def test_a_small_file_that_claims_much_does_not_fill_the_memory(place: Place, claims: Callable[[], pa.Table]) -> None:
    with txn_catalog.open(place.root) as cat:
        grown(place, cat, 1)
        (item,) = live(place)
        before = item.read_bytes()
        pq.write_table(claims(), item, compression="zstd", store_schema=False, row_group_size=10_000_000)
        assert item.stat().st_size < 200_000
        assert _memory_of(lambda: cat.publish("sales")) < 50_000_000
        assert item.read_bytes() == before


def test_a_large_file_is_not_fetched_whole(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    fetched: list[int] = []

    def noted(name: str) -> None:
        real = getattr(LocalStore, name)

        def call(*given: Any) -> bytes:
            data: bytes = real(*given)
            fetched.append(len(data))
            return data

        monkeypatch.setattr(LocalStore, name, call)

    with txn_catalog.open(place.root) as cat:
        grown(place, cat, 1)
        (item,) = live(place)
        before = item.read_bytes()
        with item.open("wb") as file:
            file.truncate(64 << 20)
        noted("get")
        noted("get_range")
        cat.publish("sales")
        assert fetched
        assert max(fetched) < 1 << 20
        assert item.read_bytes() == before


def _memory_of(call: Callable[[], object]) -> int:
    """How many bytes Arrow has at once during a call."""
    pool, before = pa.system_memory_pool(), pa.default_memory_pool()
    pa.set_memory_pool(pool)
    try:
        start = pool.max_memory()
        call()
        return int(pool.max_memory()) - start
    finally:
        pa.set_memory_pool(before)


def test_a_checkpoint_that_is_made_again_takes_no_newer_file_away(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    with txn_catalog.open(place.root) as cat:
        ns = grown(place, cat, 5)
        newest = max((folder(place) / "_delta_log").glob("*.checkpoint.parquet"))
        newest.unlink()
        monkeypatch.setattr(segments_table, "KEPT_MS", -1)
        monkeypatch.setattr(table_publisher, "CHECKPOINT_VERSIONS", 100)
        with txn_catalog.open(place.root) as other:
            other.publish("sales")
        assert newest.exists()
    check_segments_table(ns)
    assert deltalake.DeltaTable(str(folder(place))).to_pyarrow_table().num_rows > 0


def test_only_files_that_a_version_names_are_judged(place: Place) -> None:
    """A publisher that lost the race for a version leaves the file of the version that it did not write."""
    with txn_catalog.open(place.root) as cat:
        ns = grown(place, cat, 7)
    left_behind = folder(place) / f"{'0' * 32}.parquet"
    for data in (live(place)[0].read_bytes(), b"garbage"):
        left_behind.write_bytes(data)
        check_segments_table(ns)
    replaced = next(item for item in folder(place).glob("*.parquet") if item not in {left_behind, *live(place)})
    data = replaced.read_bytes()
    replaced.unlink()
    with pytest.raises(AssertionError, match=f"files that are not there: .*{replaced.name}"):
        check_segments_table(ns)
    replaced.write_bytes(bytes(len(data)))
    with pytest.raises(pa.ArrowInvalid):
        check_segments_table(ns)
    replaced.write_bytes(data)
    check_segments_table(ns)
