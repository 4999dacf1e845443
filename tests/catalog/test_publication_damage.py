"""Published tables that somebody damaged, or wrote himself: what is repaired, and what is refused and left alone."""

from __future__ import annotations

import json
import logging
import re
import shutil
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import deltalake
import pyarrow as pa
import pytest

import catalog as txn_catalog
from catalog import Catalog, ForeignDeltaLog
from catalog.publication import table_publisher
from tests.catalog.judging import check_table
from tests.catalog.published import commit, folder, grown
from tests.client.support import SCHEMA, Place, raises, rows
from txnlog.errors import CorruptionError, Durable

# --- damage -----------------------------------------------------------------------------------------------------------

DAMAGE: dict[str, Callable[[bytes], bytes | None]] = {
    "missing": lambda _data: None,
    "empty": lambda _data: b"",
    "cut in the last line": lambda data: data[:-30],
    "cut at a line": lambda data: b"\n".join(data.split(b"\n")[:-2]) + b"\n",
    "garbage": lambda _data: b"\x00\xff garbage",
    "no JSON object": lambda _data: b"[1]\n",
    "another file": lambda data: data.replace(b"parquet", b"parquer"),
    "other statistics": lambda data: data.replace(b'\\"numRecords\\":2', b'\\"numRecords\\":1'),
    "another size": lambda data: data.replace(b'"size":', b'"size":1'),
    "no change": lambda data: data.replace(b'"dataChange":true', b'"dataChange":false'),
    "another version": lambda data: data.replace(b'"before":', b'"before":1'),
    "a line twice": lambda data: data + data.split(b"\n")[-2] + b"\n",
}


@pytest.mark.parametrize("kind", DAMAGE)
@pytest.mark.parametrize("version", [0, 1, 2, 4])
def test_a_damaged_version_is_written_again_as_it_was(
    ns: Any, cat: Catalog, place: Place, kind: str, version: int, caplog: pytest.LogCaptureFixture
) -> None:
    grown(ns, cat, 6)
    path = commit(place, version)
    before = path.read_bytes()
    damaged = DAMAGE[kind](before)
    assert damaged != before
    path.unlink() if damaged is None else path.write_bytes(damaged)
    with txn_catalog.open(place.root) as other, caplog.at_level(logging.WARNING, "txnlog.publisher"):
        done = other.publish("sales", "orders")
    assert done.repaired == (version,)
    assert path.read_bytes() == before
    assert f"version {version} of the Delta table" in caplog.text
    check_table(ns, "orders")
    assert deltalake.DeltaTable(done.url).to_pyarrow_table().num_rows == 10


@pytest.mark.parametrize("kind", DAMAGE)
def test_the_newest_version_is_repaired_by_whoever_wrote_it(ns: Any, cat: Catalog, place: Place, kind: str) -> None:
    grown(ns, cat, 3)
    path = commit(place, 2)
    before = path.read_bytes()
    damaged = DAMAGE[kind](before)
    path.unlink() if damaged is None else path.write_bytes(damaged)
    ns.produce("orders", rows(50))
    done = cat.publish("sales", "orders")
    assert (done.repaired, done.created) == ((2,), 1)
    assert path.read_bytes() == before
    check_table(ns, "orders")


@pytest.mark.parametrize("kind", [kind for kind in DAMAGE if kind != "missing"])
def test_the_newest_version_is_repaired_by_others_too(ns: Any, cat: Catalog, place: Place, kind: str) -> None:
    grown(ns, cat, 3)
    commit(place, 2).write_bytes(DAMAGE[kind](commit(place, 2).read_bytes()) or b"")
    for number in range(3):
        ns.produce("orders", rows(50 + number))
    with txn_catalog.open(place.root) as other:
        assert other.publish("sales", "orders").repaired == (2,)
    check_table(ns, "orders")
    cat.publish("sales", "orders")
    check_table(ns, "orders")


@pytest.mark.parametrize("version", [0, 1, 2])
def test_damaged_bounds_are_found_by_repair(ns: Any, cat: Catalog, place: Place, version: int) -> None:
    """To a publication they are another version's of txnlog, which states more or fewer."""
    grown(ns, cat, 3)
    path = commit(place, version)
    before = path.read_bytes()
    damaged = before.replace(b'\\"maxValues\\":{\\"id\\":', b'\\"maxValues\\":{\\"id\\":9')
    assert damaged != before
    path.write_bytes(damaged)
    with txn_catalog.open(place.root) as other:
        for each in (cat, other):
            assert each.publish("sales", "orders").repaired == ()
        assert path.read_bytes() == damaged
        assert other.repair("sales", "orders").repaired == (version,)
        assert path.read_bytes() == before
        path.write_bytes(damaged)
        assert other.publish("sales", "orders").repaired == (), "what a repair looks at is its own"
    cat.repair("sales", "orders")
    check_table(ns, "orders")


@pytest.mark.parametrize("later_ms", [3, 10**30])
def test_a_newest_version_whose_time_the_log_does_not_give_is_written_again(
    ns: Any, cat: Catalog, place: Place, later_ms: int
) -> None:
    """All that follow would be later still, and at the end beyond what readers take for a time."""
    time_ms = grown(ns, cat, 3).timestamp_ms
    before = commit(place, 2).read_bytes()
    damaged = before
    for name in (b'"inCommitTimestamp":%d', b'\\"timestamp\\":%d'):
        assert damaged.count(name % time_ms) == 1
        damaged = damaged.replace(name % time_ms, name % (time_ms + later_ms))
    commit(place, 2).write_bytes(damaged)
    ns.produce("orders", rows(50))
    done = cat.publish("sales", "orders")
    assert (done.repaired, done.created) == ((2,), 1)
    assert commit(place, 2).read_bytes() == before
    check_table(ns, "orders")


def test_several_lost_versions_in_a_row_are_there_again(ns: Any, cat: Catalog, place: Place) -> None:
    grown(ns, cat, 8)
    for version in (0, 1, 4, 5, 6):
        commit(place, version).unlink()
    with txn_catalog.open(place.root) as other:
        assert other.publish("sales", "orders").repaired == (0, 1, 4, 5, 6)
    shown = check_table(ns, "orders", may_repeat=True)
    assert shown[7] == ns.snapshot().version


def test_repair_looks_at_every_version(ns: Any, cat: Catalog, place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(table_publisher, "CHECKPOINT_VERSIONS", 4)
    grown(ns, cat, 9)
    before = {item.name: item.read_bytes() for item in folder(place).iterdir()}
    commit(place, 1).unlink()
    commit(place, 3).write_bytes(b"garbage")
    with txn_catalog.open(place.root) as other:
        assert other.publish("sales", "orders").repaired == (), "below the newest checkpoint nobody looks"
        assert other.repair("sales", "orders").repaired == (1, 3)
    after = {item.name: item.read_bytes() for item in folder(place).iterdir()}
    assert {name: after[name] for name in before if name != "_last_checkpoint"} == {
        name: data for name, data in before.items() if name != "_last_checkpoint"
    }
    assert json.loads(after["_last_checkpoint"])["version"] == 8
    check_table(ns, "orders")


def test_repair_mends_more_than_is_read_at_once(ns: Any, cat: Catalog, place: Place) -> None:
    for number in range(80):
        ns.produce("orders", rows(number))
        cat.publish("sales", "orders")
    for version in range(3, 70):
        commit(place, version).unlink()
    with txn_catalog.open(place.root) as other:
        assert other.repair("sales", "orders").repaired == tuple(range(3, 70))
    assert check_table(ns, "orders", may_repeat=True)[79] == ns.snapshot().version


def test_a_removed_version_that_others_made_again_stays_as_they_made_it(ns: Any, cat: Catalog, place: Place) -> None:
    """Who knew it as it was would else break the chain to those behind it, and they that to his, for ever."""
    grown(ns, cat, 3)
    commit(place, 2).unlink()
    ns.produce("orders", rows(50))
    with txn_catalog.open(place.root) as other:
        assert other.publish("sales", "orders").delta_version == 2
        ns.produce("orders", rows(51))
        assert other.publish("sales", "orders").delta_version == 3
        for each in (cat, other, cat):
            assert each.publish("sales", "orders").repaired == ()
            check_table(ns, "orders")


def test_a_damaged_version_is_named_where_it_is_asked_for(ns: Any, cat: Catalog, place: Place) -> None:
    grown(ns, cat, 3)
    commit(place, 1).write_bytes(b"garbage")
    with raises(CorruptionError, match=r"version 1 .* repair\("):
        cat.published("sales", "orders")
    cat.repair("sales", "orders")
    assert len(cat.published("sales", "orders")) == 3


def test_a_damaged_version_that_does_not_say_what_it_shows_is_named_too(ns: Any, cat: Catalog, place: Place) -> None:
    version = grown(ns, cat, 3).version
    damaged = re.sub(rb'(\\?"version\\?"):\d+', rb"\1:null", commit(place, 1).read_bytes())
    assert damaged.count(b":null") == 2, "it does not contradict itself"
    commit(place, 1).write_bytes(damaged)
    for ask in (partial(cat.published, "sales", "orders"), partial(cat.delta_version, "sales", "orders", version)):
        with raises(CorruptionError, match=r"version 1 .* repair\("):
            ask()
    assert cat.repair("sales", "orders").repaired == (1,)


def test_repair_without_a_topic_is_of_all_tables_and_one_that_fails_keeps_no_other_back(
    ns: Any, cat: Catalog, place: Place
) -> None:
    for topic in ("audit", "returns"):
        ns.create_topic(topic, SCHEMA)
        ns.produce(topic, rows(1))
    grown(ns, cat, 2)
    cat.publish("sales")
    damaged = [commit(place, 0, topic) for topic in ("orders", "audit", "_delta/segments")]
    for path in damaged:
        path.write_bytes(b"garbage")
    foreign = commit(place, 0, "returns")
    foreign.write_text('{"commitInfo": {"operation": "WRITE"}}\n')
    told = r"'returns'.* was not written by .*; up to date are 'orders', 'audit', '_delta/segments', not 'returns' "
    with raises(ForeignDeltaLog, durable=Durable.MAYBE, match=told):
        cat.repair("sales")
    assert not any(path.read_bytes() == b"garbage" for path in damaged)
    damaged[1].unlink()
    shutil.rmtree(foreign.parent)
    done = {item.topic: (item.created, item.repaired) for item in cat.repair("sales")}
    assert done == {"orders": (0, ()), "audit": (0, (0,)), "returns": (1, ()), "_delta/segments": (0, ())}
    for topic in ("orders", "audit", "returns"):
        check_table(ns, topic)


# --- what belongs to others -------------------------------------------------------------------------------------------


def untouched(place: Place, cat: Catalog, match: str) -> None:
    before = {str(item): item.read_bytes() for item in folder(place).rglob("*") if item.is_file()}
    for call in (cat.publish, cat.repair):
        with raises(ForeignDeltaLog, match=match):
            call("sales", "orders")
    assert {str(item): item.read_bytes() for item in folder(place).rglob("*") if item.is_file()} == before


def test_a_table_that_is_there_already_is_refused(ns: Any, cat: Catalog, place: Place) -> None:
    deltalake.write_deltalake(str(folder(place).parent), pa.table({"x": [1]}))
    untouched(place, cat, "version 0 .* was not written by txnlog")


def test_a_commit_of_somebody_else_is_refused(ns: Any, cat: Catalog, place: Place) -> None:
    grown(ns, cat, 2)
    line = {"add": {"path": "x.parquet", "partitionValues": {}, "size": 1, "modificationTime": 1, "dataChange": True}}
    commit(place, 2).write_text(json.dumps({"commitInfo": {"operation": "WRITE"}}) + "\n" + json.dumps(line) + "\n")
    ns.produce("orders", rows(9))
    untouched(place, cat, "version 2 .* was not written by txnlog")
    with txn_catalog.open(place.root) as other:
        untouched(place, other, "version 2 .* was not written by txnlog")


def test_the_table_of_another_topic_is_refused(ns: Any, cat: Catalog, place: Place) -> None:
    ns.create_topic("audit", SCHEMA)
    cat.publish("sales", "audit")
    shutil.copytree(folder(place, "audit"), folder(place))
    untouched(place, cat, "belongs to another topic or namespace")


def test_what_is_left_of_a_table_is_refused(ns: Any, cat: Catalog, place: Place) -> None:
    grown(ns, cat, 2)
    for item in folder(place).glob("*.json"):
        item.unlink()
    (folder(place) / f"{1:020d}.checkpoint.parquet").write_bytes(b"x")
    with txn_catalog.open(place.root) as other:
        untouched(place, other, "parts of a Delta log without any version")


def test_a_table_ahead_of_the_log_is_no_table_to_go_on_with(ns: Any, cat: Catalog, place: Place) -> None:
    grown(ns, cat, 2)
    entries = sorted((Path(place.root) / "sales/_log").rglob("*.json"))
    entries[-1].unlink()
    with txn_catalog.open(place.root) as other, raises(CorruptionError, match="whose log ends at"):
        other.publish("sales", "orders")
