"""Publication, one behaviour each: which versions there are, and what they map to."""

from __future__ import annotations

import importlib.metadata
import json
import re
import shutil
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import deltalake
import polars
import pyarrow as pa
import pytest

import catalog as txn_catalog
import txnlog
from catalog import Catalog, ForeignDeltaLog
from catalog.delta_log.objects import DeltaLog
from catalog.publication import topic_table, topic_versions
from catalog.publication.publications import Publications
from tests.by_hand import append, compact
from tests.catalog.judging import check_table, commits_of
from tests.catalog.published import commit, folder, grown
from tests.catalog.replaying import actions_of
from tests.catalog.stories import add_column, mergeable
from tests.client.support import SCHEMA, Place, raises, rows
from txnlog.common.limits import DEFAULT_GRACE_MS
from txnlog.errors import (
    Durable,
    InvalidInputError,
    InvalidTransactionState,
    NamespaceNotFound,
    StoreError,
    TopicNotFound,
    VersionNotAvailable,
)
from txnlog.format import keys
from txnlog.format.actions import Begin, Commit, DeleteRecords, Replace, Segment, SliceRows
from txnlog.store import MemoryStore
from txnlog.testing import ManualClock
from txnlog.testing.scheduler import START_MS

DAY_MS = 24 * 3_600_000


# --- versions ---------------------------------------------------------------------------------------------------------


def test_an_empty_topic_is_an_empty_table(ns: Any, cat: Catalog) -> None:
    done = cat.publish("sales", "orders")
    assert (done.delta_version, done.version, done.created) == (0, ns.topic("orders").id, 1)
    table = deltalake.DeltaTable(done.url)
    assert table.to_pyarrow_table().num_rows == 0
    assert [field.name for field in table.schema().fields] == ["id", "name", keys.SEGMENT_COLUMN]


def test_nothing_new_is_no_version(ns: Any, cat: Catalog, place: Place) -> None:
    cat.publish("sales", "orders")
    ns.create_topic("other", SCHEMA)
    ns.produce("other", rows(1))
    assert cat.publish("sales", "orders").created == 0
    assert len(list(folder(place).iterdir())) == 1


def test_several_entries_are_one_version(ns: Any, cat: Catalog) -> None:
    cat.publish("sales", "orders")
    for number in range(5):
        ns.produce("orders", rows(number))
    done = cat.publish("sales", "orders")
    assert (done.delta_version, done.created) == (1, 1)
    assert done.version == ns.snapshot().version
    check_table(ns, "orders")


def test_a_backlog_is_cut_into_versions_but_no_entry_is(ns: Any, cat: Catalog, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(topic_versions, "MOST_FILES", 3)
    entries = [ns.produce("orders", rows(number)).version for number in range(7)]
    with ns.begin() as txn:  # five files, one entry
        for number in range(5):
            txn.produce("orders", rows(100 + number))
            txn.flush()
    entries.append(txn.result.version)
    entries.append(ns.produce("orders", rows(7)).version)
    done = cat.publish("sales", "orders")
    assert done.created == 5
    shown = check_table(ns, "orders")
    assert shown == [entries[2], entries[5], entries[6], entries[7], entries[8]]


def test_what_was_new_and_merged_meanwhile_is_shown_new_first(ns: Any, cat: Catalog) -> None:
    for number in range(4):
        ns.produce("orders", rows(number), partition=1)
    ((partition, run),) = mergeable(ns, "orders")
    compact(ns, "orders", run, partition)
    assert cat.publish("sales", "orders").created == 2
    check_table(ns, "orders")


def test_an_entry_that_merges_its_own_rows_is_loud(ns: Any, cat: Catalog) -> None:
    """Nobody writes such an entry. Were it there, streams must stop rather than lose rows or see them twice."""
    ns.produce("orders", rows(1), partition=0)
    cat.publish("sales", "orders")
    txn = ns.begin()
    txn.produce("orders", rows(2), partition=0)
    txn.flush()
    follower = ns._connection.follower
    (pending,) = [item for item in follower.state.segments.values() if item.state == "pending"]
    (visible,) = [item for item in follower.state.segments.values() if item.state == "visible"]
    number, other = ns._connection.reserve_block(2)[:2]
    topic = ns.topic("orders").id
    file = f"{number:032x}.parquet"
    merged = Segment(number, topic, file, 2, 10, "crc32:00000000", (SliceRows(0, 2),), txn=other, compacted=True)
    append(
        ns,
        Commit(pending.txn),
        Begin(other),
        merged,
        Replace(topic, other, (visible.number, pending.number), (0,)),
    )
    cat.publish("sales", "orders")
    store = ns._connection.store
    newest = commits_of(store, "orders")[1]
    changes = [(kind, body["dataChange"]) for kind, body in actions_of(newest) if kind in {"add", "remove"}]
    assert changes == [("remove", True), ("add", True)]


def test_a_schema_that_changed_is_stated(ns: Any, cat: Catalog, place: Place) -> None:
    grown(ns, cat, 2)
    add_column(ns, "orders", "more")
    done = cat.publish("sales", "orders")
    (metadata,) = [
        body for kind, body in actions_of(commit(place, done.delta_version).read_bytes()) if kind == "metaData"
    ]
    assert [field["name"] for field in json.loads(metadata["schemaString"])["fields"]] == [
        "id",
        "name",
        "more",
        keys.SEGMENT_COLUMN,
    ]
    first = next(body for kind, body in actions_of(commit(place, 0).read_bytes()) if kind == "metaData")
    assert metadata["id"] == first["id"]
    assert metadata["partitionColumns"] == [keys.SEGMENT_COLUMN]


def test_two_catalogs_write_the_same_bytes(place: Place, ns: Any) -> None:
    for number in range(3):
        ns.produce("orders", rows(number))
    source = {item.name: item.read_bytes() for item in Path(place.root).rglob("*") if item.is_file()}
    assert source
    shutil.copytree(place.root, f"{place.root}-copy")
    written = []
    for root in (place.root, f"{place.root}-copy"):
        with txn_catalog.open(root) as cat:
            cat.publish("sales", "orders")
        written.append((Path(root) / "sales/orders/_delta_log" / f"{0:020d}.json").read_bytes())
    assert written[0] == written[1]


def test_deleted_records_leave_with_their_segment(ns: Any, cat: Catalog) -> None:
    """The earliest offset hides rows from the log's readers at once; the table has them until their file goes."""
    for number in range(4):
        ns.produce("orders", rows(number), partition=0)
    cat.publish("sales", "orders")
    topic = ns.topic("orders").id
    append(ns, DeleteRecords(topic, ((0, 2),)))
    assert cat.publish("sales", "orders").created == 0
    plan = [item for item in ns._connection.follower.segments(topic)[0] if item.slices[0].offset < 2]
    number = ns._connection.reserve_block(1)[0]
    version = append(ns, Begin(number), Replace(topic, number, tuple(item.number for item in plan), ()))
    done = cat.publish("sales", "orders")
    assert (done.created, done.version) == (1, version)
    store = ns._connection.store
    gone = [body for kind, body in actions_of(commits_of(store, "orders")[1]) if kind == "remove"]
    assert len(gone) == 2
    assert not any(body["dataChange"] for body in gone)
    table = deltalake.DeltaTable(done.url).to_pyarrow_table()
    assert sorted(table.column("id").to_pylist()) == sorted(ns.snapshot().read("orders").column("id").to_pylist())


def test_what_a_vacuum_made_unreadable_is_never_shown(place: Place) -> None:
    clock = ManualClock(1_767_225_600_000)
    ns = place.open(clock=clock)
    ns.create_topic("orders", SCHEMA)
    for number in range(4):
        ns.produce("orders", rows(number), partition=0)
    ((partition, run),) = mergeable(ns, "orders")
    compact(ns, "orders", run, partition)
    clock.advance(30 * DAY_MS)
    ns.produce("orders", rows(9))
    assert ns.vacuum(retain_ms=0, allow_short_retention=True, grace_ms=DEFAULT_GRACE_MS).replaced_files == 4
    with txn_catalog.open(place.root, clock=clock) as cat:
        done = cat.publish("sales", "orders")
        assert done.created == 1
        for version in range(done.delta_version + 1):
            assert deltalake.DeltaTable(done.url, version=version).to_pyarrow_table().num_rows == 5


# --- dropped, off, again ----------------------------------------------------------------------------------------------


def test_the_table_of_a_dropped_topic_says_so_and_stays(ns: Any, cat: Catalog, place: Place) -> None:
    grown(ns, cat, 2)
    ns.drop_topic("orders")
    ns.create_topic("orders", SCHEMA)
    ns.produce("orders", rows(70))
    done = cat.publish("sales")[:-1]
    assert sorted(Path(item.url).name for item in done) == sorted(["orders", f"orders~{ns.topic('orders').id}"])
    last = actions_of(commit(place, 2).read_bytes())
    assert last[0][1]["txnlog"]["ended"] is True
    assert deltalake.DeltaTable(str(folder(place).parent)).to_pyarrow_table().num_rows == 4
    assert all(item.created == 0 for item in cat.publish("sales"))
    with txn_catalog.open(place.root) as other:
        assert all(item.created == 0 for item in other.publish("sales"))


def test_a_topic_that_was_dropped_before_has_no_table(ns: Any, cat: Catalog, place: Place) -> None:
    ns.produce("orders", rows(1))
    ns.drop_topic("orders")
    assert [item.topic for item in cat.publish("sales")] == [keys.SEGMENTS_TABLE]
    assert not folder(place).exists()
    with raises(TopicNotFound):
        cat.publish("sales", "orders")


def test_a_topic_that_is_off_is_refused_and_left_out(ns: Any, cat: Catalog, place: Place) -> None:
    ns.create_topic("secret", SCHEMA, delta="off")
    with raises(InvalidInputError, match=r"never published .*alter_topic\('secret', delta='manual'\)"):
        cat.publish("sales", "secret")
    assert [item.topic for item in cat.publish("sales")] == ["orders", keys.SEGMENTS_TABLE]
    assert not folder(place, "secret").exists()
    ns.alter_topic("secret", delta="manual")
    assert cat.publish("sales", "secret").created == 1


def test_one_topic_that_fails_keeps_no_other_back(ns: Any, cat: Catalog, place: Place) -> None:
    ns.create_topic("audit", SCHEMA)
    deltalake.write_deltalake(str(folder(place).parent), pa.table({"x": [1]}))
    with raises(
        ForeignDeltaLog, durable=Durable.MAYBE, match="; up to date are 'audit', '_delta/segments', not 'orders' "
    ):
        cat.publish("sales")
    assert commit(place, 0, "audit").exists()
    with raises(ForeignDeltaLog, match=r"up to date are 'audit'.*; nothing was written\)$"):
        cat.publish("sales")


def test_of_several_topics_that_fail_the_error_names_all(ns: Any, cat: Catalog, place: Place) -> None:
    for topic in ("audit", "returns"):
        ns.create_topic(topic, SCHEMA)
    for topic in ("orders", "returns"):
        deltalake.write_deltalake(str(folder(place, topic).parent), pa.table({"x": [1]}))
    told = r"folder of 'orders' .*'audit', '_delta/segments', not 'orders', 'returns'"
    with raises(ForeignDeltaLog, durable=Durable.MAYBE, match=told) as caught:
        cat.publish("sales")
    (note,) = caught.value.__notes__
    assert re.match(r"'returns': version 0 .* folder of 'returns' .* \(it is not overwritten", note)


def test_maintenance_names_the_topics_whose_tables_failed_and_those_that_did_not(
    ns: Any, cat: Catalog, place: Place
) -> None:
    ns.create_topic("audit", SCHEMA, delta="auto")
    ns._connection.session.auto_publisher.close()
    deltalake.write_deltalake(str(folder(place).parent), pa.table({"x": [1]}))
    ns.alter_topic("orders", delta="auto")
    found = ns.maintain()
    assert found.published == ("audit",)
    assert list(found.failures) == ["orders"]
    assert re.search(
        r"was not written by txnlog.*\(it is not overwritten.*then publish again\)", found.failures["orders"]
    )
    assert commit(place, 0, "audit").exists()


def tables(place: Place) -> dict[str, bytes]:
    """By its path each file of all Delta logs and of the table of segments."""
    root = Path(place.root) / "sales"
    return {str(item.relative_to(root)): item.read_bytes() for item in root.rglob("_delta*/**/*") if item.is_file()}


def test_maintenance_publishes_topics_with_auto_and_no_others(ns: Any, cat: Catalog, place: Place) -> None:
    """``manual`` is published by a call alone: maintenance begins no such table, and brings none up to date."""
    ns.create_topic("secret", SCHEMA, delta="off")
    ns.create_topic("paid", SCHEMA)
    cat.publish("sales", "orders")
    for topic in ("orders", "secret", "paid"):
        ns.produce(topic, rows(1))
    before = tables(place)
    found = ns.maintain()
    assert (found.published, found.failures, tables(place)) == ((), {}, before)
    ns.create_topic("clicks", SCHEMA, delta="auto")
    ns._connection.session.auto_publisher.close()
    Path(place.root, "sales", "clicks", "_delta_log", f"{0:020d}.json").unlink()
    found = ns.maintain()
    assert (found.published, found.failures) == (("clicks",), {})
    there = tables(place)
    assert {Path(name).parts[0] for name in there.keys() - before.keys()} == {"clicks", "_delta"}
    assert {name: there[name] for name in before} == before
    assert [item.topic for item in cat.publish("sales")] == ["orders", "paid", "clicks", keys.SEGMENTS_TABLE]


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock(START_MS)


@pytest.fixture
def old(place: Place, clock: ManualClock) -> Iterator[tuple[Any, Catalog]]:
    """A namespace and its catalog, whose time is that of a clock."""
    ns = place.open(clock=clock)
    with txn_catalog.open(place.root, clock=clock) as handle:
        yield ns, handle


def grow(ns: Any, topic: str, mode: str = "manual") -> None:
    """A topic with three small segments."""
    ns.create_topic(topic, SCHEMA, delta=mode)
    for number in range(3):
        ns.produce(topic, rows(number))


def test_a_vacuum_names_the_delta_tables_that_may_need_what_it_is_about_to_delete(
    old: tuple[Any, Catalog], place: Place, clock: ManualClock
) -> None:
    """Those that no commit publishes, and that are there: of them the version which they must show to need nothing."""
    ns, cat = old
    for topic, mode in {"by-hand": "manual", "off": "manual", "never": "manual", "by-itself": "auto"}.items():
        grow(ns, topic, mode)
    cat.publish("sales", "by-hand")
    cat.publish("sales", "off")
    ns.alter_topic("off", delta="off")
    merged = {topic: ns.optimize(topic).version for topic in ("by-hand", "off", "never", "by-itself")}
    clock.advance(10 * DAY_MS)
    ns.produce("by-hand", rows(9))
    before: list[Any] = []
    with txnlog.open(place.root, "sales", mode="r", clock=clock) as reader:
        foreseen = reader.vacuum(dry_run=True).unreadable
    found = ns.maintain(before=before.append).vacuumed.unreadable
    assert [foreseen] == before == [found]
    named = {item.topic: item.table_must_show for item in found.topics}
    assert named == {"by-hand": merged["by-hand"], "off": merged["off"], "never": None, "by-itself": None}
    assert str(found).count("its Delta table") == 2
    assert f"unless it was published since version {merged['by-hand']}: publish it first" in str(found)
    path = str(folder(place, "by-hand").parent)
    with pytest.raises(FileNotFoundError):
        polars.read_delta(path)
    cat.publish("sales", "by-hand")
    assert len(polars.read_delta(path)) == 4


def test_a_delta_table_that_shows_the_version_that_a_vacuum_names_survives_it(
    old: tuple[Any, Catalog], clock: ManualClock
) -> None:
    ns, cat = old
    grow(ns, "by-hand")
    cat.publish("sales", "by-hand")
    ns.optimize("by-hand")
    clock.advance(10 * DAY_MS)
    ns.produce("by-hand", rows(9))
    (named,) = ns.vacuum(dry_run=True).unreadable.topics
    done = cat.publish("sales", "by-hand")
    assert done.version >= named.table_must_show
    assert ns.vacuum().replaced_files == 3
    assert len(polars.read_delta(done.url)) == 4


def test_maintenance_ends_the_table_of_a_dropped_topic_with_auto_and_of_no_other(
    ns: Any, cat: Catalog, place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    ns.create_topic("clicks", SCHEMA, delta="auto")
    cat.publish("sales")
    monkeypatch.setattr(type(ns._connection.session.auto_publisher), "after_append", lambda _self: None)
    ns._connection.session.auto_publisher.close()  # what the creation of the topic began comes to its end
    for topic in ("orders", "clicks"):
        ns.drop_topic(topic)
    before = tables(place)
    assert (ns.maintain().failures, ns.maintain().published) == ({}, ())
    new = tables(place).keys() - before.keys()
    assert new == {f"clicks/_delta_log/{1:020d}.json"}


def test_an_error_behind_the_first_of_several_versions_does_not_say_that_nothing_was_written(
    ns: Any, cat: Catalog, place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(topic_versions, "MOST_FILES", 1)
    for number in range(3):
        ns.produce("orders", rows(number))
    inner = DeltaLog.create

    def create(log: DeltaLog, version: int, data: bytes) -> bytes:
        if version == 1:
            raise StoreError("no space")
        return inner(log, version, data)

    monkeypatch.setattr(DeltaLog, "create", create)
    with raises(StoreError, durable=Durable.MAYBE, match="no space"):
        cat.publish("sales", "orders")
    assert commit(place, 0).exists()
    with raises(StoreError, match="no space"):
        cat.publish("sales", "orders")


def test_somebody_elses_table_is_in_nobodys_way_when_the_topic_is_dropped(ns: Any, cat: Catalog, place: Place) -> None:
    ns.create_topic("audit", SCHEMA)
    deltalake.write_deltalake(str(folder(place).parent), pa.table({"x": [1]}))
    ns.drop_topic("orders")
    before = sorted(folder(place).iterdir())
    assert [item.topic for item in cat.publish("sales")] == ["audit", keys.SEGMENTS_TABLE]
    assert (ns.maintain().failures, sorted(folder(place).iterdir())) == ({}, before)


# --- what maps to what ------------------------------------------------------------------------------------------------


def test_versions_are_mapped_both_ways(ns: Any, cat: Catalog) -> None:
    with raises(VersionNotAvailable, match="does not exist"):
        cat.delta_version("sales", "orders", ns.snapshot().version)
    grown(ns, cat, 3)
    ns.create_topic("other", SCHEMA)
    assert [item.delta_version for item in cat.published("sales", "orders")] == [2, 1, 0]
    assert [item.delta_version for item in cat.published("sales", "orders", limit=2)] == [2, 1]
    for item in cat.published("sales", "orders"):
        assert cat.delta_version("sales", "orders", item.version) == item.delta_version
    assert cat.delta_version("sales", "orders", ns.snapshot().version) == 2, "nothing changed since"
    first = ns.produce("orders", rows(50)).version
    second = ns.produce("orders", rows(51)).version
    with raises(VersionNotAvailable, match="publish it first"):
        cat.delta_version("sales", "orders", first)
    cat.publish("sales", "orders")
    assert cat.delta_version("sales", "orders", second) == 3
    with raises(VersionNotAvailable, match=f"version 3 shows {second}"):
        cat.delta_version("sales", "orders", first)
    with raises(VersionNotAvailable, match="was created at version"):
        cat.delta_version("sales", "orders", 0)
    with raises(VersionNotAvailable, match=f"its newest one is {second}"):
        cat.delta_version("sales", "orders", second + 1)


@pytest.mark.parametrize("limit", [0, -1, 10_001, "all", 1.5])
def test_limits_are_checked(ns: Any, cat: Catalog, limit: Any) -> None:
    with raises(InvalidInputError):
        cat.published("sales", "orders", limit)


# --- the handle -------------------------------------------------------------------------------------------------------


def test_a_closed_catalog_publishes_nothing(ns: Any, cat: Catalog, place: Place) -> None:
    cat.publish("sales", "orders")
    cat.close()
    with raises(InvalidTransactionState):
        cat.publish("sales", "orders")


def test_what_is_not_there_is_named(ns: Any, cat: Catalog) -> None:
    with raises(NamespaceNotFound):
        cat.publish("sale")
    for call in (cat.publish, cat.repair):
        with raises(TopicNotFound, match="orders.*; nothing was written"):
            call("sales", "order")
    with raises(TopicNotFound, match="orders") as caught:
        cat.published("sales", "order")
    assert "written" not in str(caught.value)


def test_publication_costs_few_requests_where_the_process_knows_the_table(quick: None) -> None:
    store = MemoryStore()
    with txnlog.open("memory://counted", "sales", create=True, store=store) as ns:
        ns.create_topic("orders", SCHEMA)
        of = ns._connection
        publications = Publications(of.follower, of.store, of.runtime)
        topic = ns.topic("orders").id
        publications.publish(topic)
        ns.produce("orders", rows(1))
        before = ns.store_requests
        assert publications.publish(topic).created == 1
        after = ns.store_requests
        spent = {name: after[name] - before.get(name, 0) for name in after if after[name] != before.get(name, 0)}
        # The newest version, and whether two more came; whether a checkpoint is left of the next one; that one.
        assert spent == {("get", "delta"): 3, ("info", "delta"): 1, ("create", "delta"): 1}
        check_table(ns, "orders")


def test_topics_that_want_it_are_published_after_each_commit(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    with (Path(__file__).parents[2] / "pyproject.toml").open("rb") as file:
        points = tomllib.load(file)["project"]["entry-points"]["txnlog.publisher"]
    found = [importlib.metadata.EntryPoint(name, value, "txnlog.publisher") for name, value in points.items()]
    monkeypatch.setattr(importlib.metadata, "entry_points", lambda **_: found)
    ns = place.open()
    ns.create_topic("orders", SCHEMA, delta="auto")
    for number in range(5):
        with ns.begin() as txn:
            txn.produce("orders", rows(number))
        ns._connection.session.auto_publisher.close()
        path = str(folder(place).parent)
        assert deltalake.DeltaTable(path).to_pyarrow_table().num_rows == number + 1
    assert check_table(ns, "orders")[-1] == ns.snapshot().version


def test_a_namespace_that_was_made_again_is_another_one(place: Place) -> None:
    with txn_catalog.open(place.root) as cat:
        for count in (1, 2):
            cat.create_namespace("other")
            with place.open("other", create=False) as ns:
                ns.create_topic("orders", SCHEMA)
                ns.produce("orders", rows(*range(count)))
                done = cat.publish("other", "orders")
                assert (done.delta_version, done.created) == (0, 1)
                assert deltalake.DeltaTable(done.url).to_pyarrow_table().num_rows == count
            cat.drop_namespace("other")
            shutil.rmtree(Path(place.root) / "other")


def test_looking_at_many_versions_takes_one_look_at_the_fold(
    ns: Any, cat: Catalog, place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    grown(ns, cat, 30)
    looks: list[int] = []
    real = topic_table.TopicTable.view

    def view(self: Any, after: int) -> Any:
        looks.append(after)
        return real(self, after)

    monkeypatch.setattr(topic_table.TopicTable, "view", view)
    with txn_catalog.open(place.root) as other:
        assert other.publish("sales", "orders").delta_version == 29
    assert len(looks) <= 3
