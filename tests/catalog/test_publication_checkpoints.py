"""Checkpoints of published tables: when they are made, what they show, and who finds the newest version by them."""

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
from catalog import Catalog, Published
from catalog.delta_log.objects import DeltaLog
from catalog.publication import table_publisher
from catalog.publication.topic_table import TopicView
from tests.catalog.judging import check_table
from tests.catalog.published import commit, folder, grown
from tests.client.support import Place, rows
from txnlog.errors import StoreError, TxnLogError


def test_checkpoints_are_made_now_and_then(
    ns: Any, cat: Catalog, place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(table_publisher, "CHECKPOINT_VERSIONS", 3)
    done = grown(ns, cat, 8)
    found = sorted(int(item.name.split(".")[0]) for item in folder(place).glob("*.checkpoint.parquet"))
    assert found == [2, 5]
    assert json.loads((folder(place) / "_last_checkpoint").read_bytes())["version"] == 5
    for item in folder(place).glob("*.json"):
        if int(item.stem) < 5:
            item.unlink()
    assert deltalake.DeltaTable(done.url).to_pyarrow_table().num_rows == 14
    with txn_catalog.open(place.root) as other:
        ns.produce("orders", rows(99))
        assert other.publish("sales", "orders").delta_version == 8
        assert deltalake.DeltaTable(done.url).to_pyarrow_table().num_rows == 15


def test_a_table_of_many_files_waits_for_its_checkpoint_without_asking_or_counting_at_each_version(
    ns: Any, cat: Catalog, place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(table_publisher, "CHECKPOINT_VERSIONS", 2)
    monkeypatch.setattr(table_publisher, "_FILES_PER_VERSION", 2)
    asked: list[tuple[str, int]] = []

    def noted(kind: type, name: str) -> None:
        real = getattr(kind, name)

        def call(self: Any, *given: Any) -> Any:
            asked.append((name, version))
            return real(self, *given)

        monkeypatch.setattr(kind, name, call)

    noted(DeltaLog, "hint")
    noted(TopicView, "file_count")
    noted(TopicView, "checkpoint")
    for number in range(12):
        ns.produce("orders", rows(number), partition=0)
    for version in range(16):
        ns.produce("orders", rows(100 + version), partition=0)
        assert cat.publish("sales", "orders").delta_version == version
    made = sorted(int(item.name.split(".")[0]) for item in folder(place).glob("*.checkpoint.parquet"))
    assert made == [1, 15], "14 versions outweigh the 28 files of version 15"
    assert [at for name, at in asked if name == "checkpoint"] == made, "none was built to be thrown away"
    assert {at for _, at in asked} == {0, 1, 3, 9, 12, 14, 15}
    with txn_catalog.open(place.root) as other:
        version = 16
        ns.produce("orders", rows(200), partition=0)
        check_read(ns, other, other.publish("sales", "orders"))


def test_a_checkpoint_that_fails_fails_no_publication(
    ns: Any, cat: Catalog, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(table_publisher, "CHECKPOINT_VERSIONS", 2)

    def fail(*_: object) -> None:
        raise TxnLogError("no space left")

    monkeypatch.setattr("catalog.delta_log.objects.DeltaLog.create_checkpoint", fail)
    with caplog.at_level(logging.WARNING, "txnlog.publisher"):
        grown(ns, cat, 3)
    assert "the checkpoint of the Delta table of 'orders' could not be made: no space left" in caplog.text


def ids(url: str, version: int | None = None) -> list[int]:
    """The rows of a table as a reader gives them who begins at a checkpoint."""
    return sorted(deltalake.DeltaTable(url, version=version).to_pyarrow_table().column("id").to_pylist())


def check_read(ns: Any, cat: Catalog, done: Published, *, may_repeat: bool = False) -> None:
    """Every version reads as the log says, from whatever checkpoint a reader begins at."""
    for item in cat.published("sales", "orders"):
        wanted = ns.snapshot(version=item.version).read("orders").column("id").to_pylist()
        assert ids(done.url, item.delta_version) == sorted(wanted), f"version {item.delta_version}"
    check_table(ns, "orders", may_repeat=may_repeat)


@pytest.mark.parametrize("how", ["publish", "repair"])
def test_a_newest_version_whose_checkpoint_was_left_is_there_again(
    ns: Any, cat: Catalog, place: Place, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    """Readers take the checkpoint for the version: another one of that number would never be seen, nor its rows."""
    monkeypatch.setattr(table_publisher, "CHECKPOINT_VERSIONS", 3)
    grown(ns, cat, 3)
    commit(place, 2).unlink()
    ns.produce("orders", rows(50))
    with txn_catalog.open(place.root) as other:
        done = getattr(other, how)("sales", "orders")
        assert done.repaired == (2,)
        check_read(ns, other, done)
        ns.produce("orders", rows(51))
        check_read(ns, other, other.publish("sales", "orders"))


@pytest.mark.parametrize("how", ["publish", "repair"])
def test_checkpoints_show_what_lost_versions_became(
    ns: Any, cat: Catalog, place: Place, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    """Else rows were there twice: in a segment of the checkpoint, and in the merged one that took its place."""
    monkeypatch.setattr(table_publisher, "CHECKPOINT_VERSIONS", 3)
    grown(ns, cat, 5)
    (folder(place) / "_last_checkpoint").unlink()
    for version in (2, 3):
        commit(place, version).unlink()
    with txn_catalog.open(place.root) as other:
        done = getattr(other, how)("sales", "orders")
        assert done.repaired == (2, 3)
        check_read(ns, other, done, may_repeat=True)


def test_repair_writes_damaged_checkpoints_again(
    ns: Any, cat: Catalog, place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(table_publisher, "CHECKPOINT_VERSIONS", 3)
    done = grown(ns, cat, 8)
    path = folder(place) / f"{2:020d}.checkpoint.parquet"
    before = path.read_bytes()
    path.write_bytes(b"garbage")
    cat.repair("sales", "orders")
    assert path.read_bytes() == before
    check_read(ns, cat, done)


def _cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:100])


def _without_footer(path: Path) -> None:
    data = path.read_bytes()
    path.write_bytes(data[:-8] + bytes(8))


DAMAGE: dict[str, Callable[[Path], object]] = {
    "gone": Path.unlink,
    "empty": lambda path: path.write_bytes(b""),
    "cut": _cut,
    "without a footer": _without_footer,
    "with less in it": lambda path: pq.write_table(pq.read_table(path).slice(0, 3), path),
    "another Parquet file": lambda path: pq.write_table(pa.table({"x": [1]}), path),
}


@pytest.mark.parametrize("kind", DAMAGE)
@pytest.mark.parametrize("grows", [False, True])
def test_the_newest_checkpoint_that_is_not_sound_is_made_again_by_the_next_publisher_that_starts(
    ns: Any,
    cat: Catalog,
    place: Place,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    kind: str,
    grows: bool,
) -> None:
    """Else nobody could open the table, nor later what it showed at that version."""
    monkeypatch.setattr(table_publisher, "CHECKPOINT_VERSIONS", 5)
    grown(ns, cat, 7)
    (path,) = folder(place).glob("*.checkpoint.parquet")
    before = path.read_bytes()
    DAMAGE[kind](path)
    if grows:
        ns.produce("orders", rows(90))
    with txn_catalog.open(place.root) as other:
        with caplog.at_level(logging.WARNING, "txnlog.publisher"):
            done = other.publish("sales", "orders")
        assert (done.created, done.repaired) == (int(grows), ())
        assert path.read_bytes() == before
        assert "the checkpoint of version 4 of the Delta table of 'orders' was missing or damaged" in caplog.text
        check_read(ns, other, done)


def test_a_checkpoint_that_cannot_be_made_again_keeps_no_newer_one_back(
    ns: Any, cat: Catalog, place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(table_publisher, "CHECKPOINT_VERSIONS", 5)
    grown(ns, cat, 7)
    _cut(folder(place) / f"{4:020d}.checkpoint.parquet")

    def fails(*_: object) -> Any:
        raise StoreError("no space")

    monkeypatch.setattr(DeltaLog, "overwrite_checkpoint", fails)
    with txn_catalog.open(place.root) as other:
        done = other.publish("sales", "orders")
    assert (folder(place) / f"{6:020d}.checkpoint.parquet").exists()
    assert json.loads((folder(place) / "_last_checkpoint").read_bytes())["version"] == 6
    assert ids(done.url) == sorted(ns.snapshot().read("orders").column("id").to_pylist())


@pytest.mark.parametrize("kind", DAMAGE)
def test_a_checkpoint_of_others_that_is_not_sound_counts_as_none_for_whom_one_is_due(
    ns: Any, cat: Catalog, place: Place, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    monkeypatch.setattr(table_publisher, "CHECKPOINT_VERSIONS", 4)
    grown(ns, cat, 3)
    ns.produce("orders", rows(80))
    with txn_catalog.open(place.root) as other:
        other.publish("sales", "orders")
    (path,) = folder(place).glob("*.checkpoint.parquet")
    DAMAGE[kind](path)
    ns.produce("orders", rows(90))
    check_read(ns, cat, cat.publish("sales", "orders"))


@pytest.mark.parametrize("kind", ["empty", "cut", "without a footer", "another Parquet file"])
def test_what_lies_where_a_checkpoint_is_due_is_not_named_unless_it_is_one(
    ns: Any, cat: Catalog, place: Place, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    monkeypatch.setattr(table_publisher, "CHECKPOINT_VERSIONS", 5)
    path = folder(place) / f"{4:020d}.checkpoint.parquet"

    def planted(self: TopicView, shown: Any) -> Any:
        path.write_bytes(bytes(200))
        DAMAGE[kind](path)
        return real(self, shown)

    real = TopicView.checkpoint
    monkeypatch.setattr(TopicView, "checkpoint", planted)
    done = grown(ns, cat, 5)
    assert json.loads((folder(place) / "_last_checkpoint").read_bytes())["sizeInBytes"] == path.stat().st_size
    check_read(ns, cat, done)


@pytest.mark.parametrize("by", ["us", "delta-rs"])
def test_a_sound_checkpoint_stays_whoever_made_it_and_is_looked_at_once(
    ns: Any, cat: Catalog, place: Place, monkeypatch: pytest.MonkeyPatch, by: str
) -> None:
    monkeypatch.setattr(table_publisher, "CHECKPOINT_VERSIONS", 5)
    done = grown(ns, cat, 7)
    if by == "delta-rs":
        deltalake.DeltaTable(done.url).create_checkpoint()
    before = {path.name: path.read_bytes() for path in folder(place).glob("*checkpoint*")}
    looks: list[int] = []
    real = DeltaLog.is_sound

    def noted(self: DeltaLog, hint: Any) -> bool:
        looks.append(hint.version)
        return real(self, hint)

    monkeypatch.setattr(DeltaLog, "is_sound", noted)
    with txn_catalog.open(place.root) as other:
        for number in range(2):
            ns.produce("orders", rows(90 + number))
            done = other.publish("sales", "orders")
        assert ids(done.url) == sorted(ns.snapshot().read("orders").column("id").to_pylist())
    assert {path.name: path.read_bytes() for path in folder(place).glob("*checkpoint*")} == before
    assert looks == [4 if by == "us" else 6]


@pytest.mark.parametrize(
    "hint",
    [
        b"",
        b"garbage",
        b"[]",
        b'{"version": 7000}',
        b'{"version": "1"}',
        b'{"version": -1}',
        b'{"version": 1%s}' % (b"0" * 400),
        b"[" * 100_000,
    ],
)
def test_a_wrong_hint_misleads_nobody(
    ns: Any, cat: Catalog, place: Place, hint: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(table_publisher, "CHECKPOINT_VERSIONS", 3)
    grown(ns, cat, 5)
    (folder(place) / "_last_checkpoint").write_bytes(hint)
    with txn_catalog.open(place.root) as other:
        ns.produce("orders", rows(60))
        assert other.publish("sales", "orders").delta_version == 5
        for number in range(4):
            ns.produce("orders", rows(70 + number))
            other.publish("sales", "orders")
    assert json.loads((folder(place) / "_last_checkpoint").read_bytes())["version"] >= 5
    check_table(ns, "orders")


def test_many_versions_without_a_hint_are_found_by_a_listing(
    ns: Any, cat: Catalog, place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(table_publisher, "_WALKED", 32)
    for number in range(100):
        ns.produce("orders", rows(number))
        cat.publish("sales", "orders")
    (folder(place) / "_last_checkpoint").unlink()
    with txn_catalog.open(place.root) as other:
        assert other.publish("sales", "orders").delta_version == 99
    check_table(ns, "orders")
