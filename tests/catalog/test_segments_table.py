"""The published table of a namespace's segments: what it says of each, its few files, and what becomes of old ones."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Any

import deltalake
import pyarrow.compute as pc
import pytest
from hypothesis import HealthCheck, example, given, settings

import catalog as txn_catalog
from catalog import Catalog
from catalog.publication import segments_table, table_publisher
from tests.catalog.judging import SEGMENT_COLUMNS, check_segments_table, in_order, segment_rows
from tests.catalog.published import grown
from tests.catalog.stories import Step, Story, steps
from tests.client.support import SCHEMA, Place, rows, unique_name
from txnlog.format import keys
from txnlog.testing import ManualClock

DAY_MS = 24 * 3_600_000


@pytest.fixture(autouse=True)
def _small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(segments_table, "STRETCH", 5)
    monkeypatch.setattr(segments_table, "MOST_STRETCHES", 2)
    monkeypatch.setattr(table_publisher, "CHECKPOINT_VERSIONS", 3)


def path(place: Place) -> Path:
    return Path(place.root) / "sales" / keys.SEGMENTS_TABLE


def told(place: Place, version: int | None = None) -> list[tuple[Any, ...]]:
    """What the table says, read by somebody else."""
    table = deltalake.DeltaTable(str(path(place)), version=version).to_pyarrow_table()
    assert table.column_names == [*SEGMENT_COLUMNS[:8], "timestamp", "txn_id"]
    return in_order(table)


def check(ns: Any, place: Place) -> int:
    """Every version of the table is what it must be, and says to somebody else too what the log says."""
    shown = check_segments_table(ns)
    for number, version in enumerate(shown):
        assert told(place, number) == segment_rows(ns, version)
    return len(shown)


@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(steps)
@example([("produce", 0, 1), ("publish", 0, 0), ("produce", 1, 2)])
def test_the_table_says_what_the_log_says(tmp_path: Path, quick: None, todo: list[Step]) -> None:
    place = Place("local", str(tmp_path / unique_name()))
    story = Story(place)
    try:
        story.run([*todo, ("produce", 0, 0), ("publish", 0, 0), ("produce", 1, 0), ("publish", 1, 0)])
        assert check(story.ns, place) >= 2
        newest = story.ns.snapshot().version
        assert told(place) == segment_rows(story.ns, newest)
        for row in told(place):
            where = {row[3]: (row[4], row[4] + row[6])}
            if row[2] == story.ns.topic(row[1]).id and row[0] in {
                item.number for item in story.ns.snapshot().plan(row[1]).segments
            }:
                plan = story.ns.snapshot().plan(row[1], offsets=where)
                assert row[0] in {item.number for item in plan.segments}
        sound = {item: item.read_bytes() for item in [*path(place).glob("*.parquet"), *path(place).glob("*/*.json")]}
        with txn_catalog.open(place.root) as other:
            assert not any(item.repaired for item in other.repair("sales"))
        assert {item: item.read_bytes() for item in sound} == sound
    finally:
        story.close()
        place.close()


def test_an_empty_namespace_has_an_empty_table(place: Place) -> None:
    place.open()
    with txn_catalog.open(place.root) as cat:
        (done,) = cat.publish("sales")
        assert (done.topic, done.delta_version, done.version) == ("_delta/segments", 0, 0)
        assert told(place) == []
        assert cat.publish("sales")[0].created == 0


def test_files_are_few_and_a_lost_one_is_there_again(place: Place) -> None:
    ns = place.open()
    ns.create_topic("orders", SCHEMA)
    with txn_catalog.open(place.root) as cat:
        for number in range(14):
            ns.produce("orders", rows(number))
            cat.publish("sales")
        newest = ns.snapshot().version
        live = deltalake.DeltaTable(str(path(place))).file_uris()
        assert len(live) <= newest // 5 + 1
        assert len(list(path(place).glob("*.parquet"))) > len(live)
        Path(live[-1]).unlink()
        cat.repair("sales")
        assert told(place) == segment_rows(ns, newest)


@pytest.mark.parametrize("grows", [False, True])
def test_a_lost_file_of_the_newest_version_is_there_again_with_the_next_publication(place: Place, grows: bool) -> None:
    """Also where its commit is as it was, and the publisher the same."""
    ns = place.open()
    ns.create_topic("orders", SCHEMA)
    with txn_catalog.open(place.root) as cat:
        ns.produce("orders", rows(1))
        version = cat.publish("sales")[-1].delta_version
        shown = told(place)
        (newest,) = path(place).glob("*.parquet")
        newest.unlink()
        if grows:
            ns.produce("orders", rows(2))
        cat.publish("sales")
        assert told(place, version) == shown


def test_a_backlog_is_cut_into_versions(place: Place) -> None:
    ns = place.open()
    ns.create_topic("orders", SCHEMA)
    for number in range(30):
        ns.produce("orders", rows(number))
    with txn_catalog.open(place.root) as cat:
        assert cat.publish("sales")[-1].created > 2
    check(ns, place)


def test_two_publishers_write_one_table(place: Place) -> None:
    ns = place.open()
    ns.create_topic("orders", SCHEMA)
    with txn_catalog.open(place.root) as one, txn_catalog.open(place.root) as two:
        for number in range(12):
            ns.produce("orders", rows(number))
            (one, two)[number % 2].publish("sales")
        done = [cat.publish("sales")[-1] for cat in (one, two)]
        assert done[0] == done[1]
    check(ns, place)


def test_vacuum_leaves_it_alone_and_what_is_old_goes(place: Place) -> None:
    clock = ManualClock(1_767_225_600_000)
    ns = place.open(clock=clock)
    ns.create_topic("orders", SCHEMA)
    with txn_catalog.open(place.root, clock=clock) as cat:
        for number in range(7):
            ns.produce("orders", rows(number))
            cat.publish("sales")
        before = {item.name for item in path(place).glob("*.parquet")}
        clock.advance(400 * 365 * DAY_MS)
        ns.vacuum(retain_ms=0, allow_short_retention=True)
        assert {item.name for item in path(place).glob("*.parquet")} == before
        for number in range(4):
            ns.produce("orders", rows(number))
            cat.publish("sales")
        left = {item.name for item in path(place).glob("*.parquet")}
        assert before <= left, "the clock is ahead, and the files are as old as the test"
        for name in before:
            old_s = (path(place) / name).stat().st_mtime - 8 * DAY_MS / 1_000
            os.utime(path(place) / name, (old_s, old_s))
        for number in range(4):
            ns.produce("orders", rows(number))
            cat.publish("sales")
        left = {item.name for item in path(place).glob("*.parquet")}
        assert not before <= left
        assert {Path(item).name for item in deltalake.DeltaTable(str(path(place))).file_uris()} <= left
    assert told(place) == segment_rows(ns, ns.snapshot().version)


def test_a_file_that_was_named_until_now_stays_for_who_began_to_read(place: Place) -> None:
    """However long ago it was written: nothing was committed for a week."""
    ns = place.open()
    ns.create_topic("orders", SCHEMA)
    with txn_catalog.open(place.root) as cat:
        while ns.snapshot().version % 5 != 2:
            ns.produce("orders", rows(1))
        version = cat.publish("sales")[-1].delta_version
        before = told(place)
        (item,) = path(place).glob("*.parquet")
        old_s = item.stat().st_mtime - 8 * DAY_MS / 1_000
        os.utime(item, (old_s, old_s))
        ns.produce("orders", rows(2))
        assert cat.publish("sales")[-1].delta_version == version + 1
        cat.repair("sales")
        assert told(place, version) == before != told(place)


@pytest.mark.parametrize("data", [None, b"garbage"])
def test_a_damaged_version_is_written_again(place: Place, data: bytes | None) -> None:
    ns = place.open()
    ns.create_topic("orders", SCHEMA)
    with txn_catalog.open(place.root) as cat:
        for number in range(2):
            ns.produce("orders", rows(number))
            cat.publish("sales")
        item = path(place) / "_delta_log" / f"{0:020d}.json"
        before = item.read_bytes()
        item.unlink() if data is None else item.write_bytes(data)
        assert cat.repair("sales")[-1].repaired == (0,)
        assert item.read_bytes() == before
    check(ns, place)


def test_who_takes_a_topic_by_its_name_cannot_be_in_its_way(place: Place) -> None:
    ns = place.open()
    for name in ("segments", "delta"):
        ns.create_topic(name, SCHEMA)
        ns.produce(name, rows(1))
    with txn_catalog.open(place.root) as cat:
        assert [item.topic for item in cat.publish("sales")] == ["segments", "delta", "_delta/segments"]
    assert len(told(place)) == 2


def test_a_filter_on_any_column_finds_its_rows(ns: Any, cat: Catalog, place: Place) -> None:
    """delta-rs as an Arrow dataset takes a bound that is not told beside others as one that no row meets."""
    grown(ns, cat, 6)
    with ns.begin() as txn:
        txn.produce("orders", rows(20, 21), partition=0)
        txn.flush()
    cat.publish("sales")
    dataset = deltalake.DeltaTable(str(path(place))).to_pyarrow_dataset()
    table = dataset.to_table()
    assert table.column("txn_id").null_count in range(1, table.num_rows), "with a TxnID and without"
    for name in table.column_names:
        column = pc.field(name)
        for value in table.column(name).unique():
            condition = column == value if value.is_valid else column.is_null()
            wanted = table.filter(condition)
            assert in_order(dataset.to_table(filter=condition)) == in_order(wanted), name
    assert list(dataset.get_fragments(filter=pc.field("segment") > 1 << 40)) == [], "files are passed over"


def flushed(ns: Any, number: int) -> None:
    """A message in a segment of its own transaction."""
    with ns.begin() as txn:
        txn.produce("orders", rows(number))
        txn.flush()


def test_the_tables_of_an_adopted_copy_go_on_and_show_each_txn_id_as_the_log_does(tmp_path: Path) -> None:
    place, copy = Place("local", str(tmp_path / "lake")), Place("local", str(tmp_path / "copies"))
    ns = place.open()
    ns.create_topic("orders", SCHEMA)
    flushed(ns, 0)
    with txn_catalog.open(place.root) as cat:
        cat.publish("sales")
    shutil.copytree(f"{place.root}/sales", f"{copy.root}/sales")
    with txn_catalog.open(copy.root) as cat:
        cat.adopt_namespace("sales")
        copied = copy.open()
        flushed(copied, 1)
        assert [item.delta_version for item in cat.publish("sales")] == [1, 1]
        check(copied, copy)
        assert {row[-1][:4] for row in told(copy)} == {"0000", "0001"}
        assert not any(item.repaired for item in cat.repair("sales"))
    delta = deltalake.DeltaTable(f"{copy.root}/sales/orders").to_pyarrow_table()
    assert sorted(delta.column("id").to_pylist()) == [0, 1]
    place.close()
    copy.close()
