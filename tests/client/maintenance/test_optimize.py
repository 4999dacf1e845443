"""Optimize: fewer files and the same rows at every version; its bounds, and retention."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from tests.by_hand import append
from tests.client.merging import actions, everything, filled, ns, segments, sizes, whole
from tests.client.support import SCHEMA, Place, Unchanged, raises, read, rows
from txnlog.data.segment_file import SegmentWriter
from txnlog.errors import InvalidInputError, ReadOnly, TopicNotFound
from txnlog.format import codec
from txnlog.format.actions import DeleteRecords, Replace
from txnlog.maintenance import merge_plan, merging

__all__ = ["ns"]  # fixtures


@pytest.mark.clause("P-90", "P-143", "P-144", "P-221")
@pytest.mark.parametrize("cold", [False, True])
def test_many_segments_become_one_and_every_version_shows_the_same_rows(place: Place, cold: bool) -> None:
    ns = place.open()
    ns.create_topic("orders", SCHEMA, partitions=2, key="id")
    with ns.producer("loader") as producer, producer.begin() as txn:
        txn.produce("orders", rows(*range(20)))
        txn.flush()
        txn.produce("orders", rows(*range(20, 30)))
    for number in range(8):
        ns.produce("orders", rows(*range(number, number + 9)))
        if cold and number == 5:
            ns.checkpoint()
    before = everything(ns)
    if cold:
        ns.checkpoint()
    done = ns.optimize("orders")
    assert (done.merged_segments, done.written_segments, done.finished, done.entries) == (10, 2, True, 1)
    assert sorted(segments(ns)) == sorted(len([r for r in whole(ns) if r["_partition"] == p]) for p in (0, 1))
    for client in (ns, place.open(mode="r")):
        assert {version: whole(client, "orders", version) for version in before} == before
        assert whole(client) == before[max(before)]
        assert all(item.compacted for item in client.snapshot().plan("orders").segments)


@pytest.mark.clause("P-90")
def test_who_reads_the_newest_version_does_without_what_was_merged_and_an_older_one_shows_it(
    ns: Any, place: Place
) -> None:
    """Whichever is read first: what stays decoded of a checkpoint for one of them is not all that the other needs."""
    before = ns.snapshot().version
    expected = whole(ns)
    ns.optimize("orders")
    ns.checkpoint()
    ns.produce("orders", rows(99))  # its entry names the checkpoint
    newest = ns.snapshot().version
    for versions in ([newest, before, newest], [before, newest, before]):
        other = place.open(mode="r")
        topic = other._connection.topic_record("orders").id
        for version in versions:
            assert whole(other, version=version)[: len(expected)] == expected
        left = place.open(mode="r")._connection.follower.segments(topic, newest)[0]
        assert len(left) == 2, "the merged file, and the new one"
        assert len(other._connection.follower.segments(topic)[0]) == 14
    number = ns.snapshot(before).plan("orders").segments[0].number
    assert len(ns.snapshot().read("orders", exclude_segments=[number])) == 37, "it is one that the topic had"


def test_a_second_run_does_nothing(ns: Any, place: Place) -> None:
    ns.optimize("orders")
    for client in (ns, place.open()):
        with Unchanged(place):
            again = client.optimize("orders")
        assert (again.entries, again.merged_segments, again.version, again.finished) == (0, 0, None, True)


def test_what_is_merged_is_merged_again_with_what_came_since(ns: Any) -> None:
    ns.optimize("orders")
    ns.produce("orders", rows(100, 101))
    before = whole(ns)
    assert ns.optimize("orders").merged_segments == 2
    assert segments(ns) == [38]
    assert whole(ns) == before


def test_shared_segments_of_several_partitions_become_one_each(place: Place) -> None:
    ns = place.open()
    ns.create_topic("orders", SCHEMA, partitions=3, key="id")
    for number in range(7):
        ns.produce("orders", rows(*range(12 * number, 12 * number + 12)))
    before = everything(ns)
    assert all(len(segment.slices) == 3 for segment in ns.snapshot().plan("orders").segments)
    assert ns.optimize("orders").written_segments == 3
    found = ns.snapshot().plan("orders").segments
    assert sorted(segment.slices[0].partition for segment in found) == [0, 1, 2]
    assert all(len(segment.slices) == 1 and not segment.stores_partition for segment in found)
    assert whole(ns) == before[max(before)]
    assert {version: whole(ns, "orders", version) for version in before} == before


@pytest.mark.parametrize("partitions", [1, 3])
@pytest.mark.parametrize("joined_bytes", [1, 20_000, 1 << 30])
def test_parts_are_joined_in_portions_and_nothing_changes(
    memory: Place, joined_bytes: int, partitions: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever a portion may have: rows of one's own and of others, merged and not, before and after an alteration."""
    monkeypatch.setattr(merging, "_JOINED_BYTES", joined_bytes)
    ns, other = memory.open(), memory.open()
    ns.create_topic("orders", SCHEMA, partitions=partitions, key="id")
    for number in range(12):
        if number == 4:
            ns.optimize("orders")
        if number == 6:
            with ns.begin() as txn:
                txn.produce("orders", rows(*range(1_000, 1_009)))
                txn.flush()
        if number == 8:
            ns.alter_topic("orders", add_columns=pa.schema([("note", pa.string())]))
        (ns, other)[number % 2].produce("orders", rows(*range(12 * number, 12 * number + 12)))
    before = everything(ns)
    assert ns.optimize("orders").written_segments == partitions
    assert whole(ns) == before[max(before)]
    assert {version: whole(other, "orders", version) for version in before} == before


@pytest.mark.clause("P-219", "P-221")
def test_columns_of_every_kind_and_age_come_through(place: Place) -> None:
    ns = place.open()
    old = pa.schema([("id", pa.int32()), ("s", pa.struct([("a", pa.int8())])), ("price", pa.decimal128(5, 2))])
    ns.create_topic("orders", old, partitions=1, delta="off")
    ns.produce("orders", [{"id": 1, "s": {"a": 1}, "price": Decimal("1.25")}, {}])
    old_version = ns.snapshot().version
    ns.alter_topic(
        "orders",
        [("x", pa.float64()), ("m", pa.map_(pa.string(), pa.list_(pa.int64())))],
        widen={
            "id": pa.int64(),
            "s": pa.struct([("a", pa.int64()), ("b", pa.binary())]),
            "price": pa.decimal128(12, 4),
        },
    )
    ns.produce("orders", [{"id": 2**40, "x": float("nan"), "m": [("k", [1, None])], "s": {"a": 2**40, "b": b"\xff"}}])
    ns.produce("orders", [{"x": -0.0, "price": Decimal("12345678.1234")}])
    before, then = repr(whole(ns)), whole(ns, "orders", old_version)
    ns.optimize("orders")
    assert repr(whole(ns)) == before
    assert whole(ns, "orders", old_version) == then
    record = next(item for item in ns._connection.follower.state.segments.values() if item.compacted)
    assert record.statistics["x"][:2] == (None, None), "a column with a NaN has no bounds"
    assert record.statistics["id"] == (1, 2**40, 2)
    assert record.statistics["price"] == ("1.2500", "12345678.1234", 2)


def test_pending_and_aborted_rows_stay_where_they_are(ns: Any) -> None:
    txn, gone = ns.begin(), ns.begin()
    for item, number in ((txn, 100), (gone, 200)):
        item.produce("orders", rows(number))
        item.flush()
    gone.abort()
    before = ns.snapshot().read("orders", isolation_level="read_uncommitted", include_metadata=True).to_pylist()
    ns.optimize("orders")
    after = ns.snapshot().read("orders", isolation_level="read_uncommitted", include_metadata=True).to_pylist()
    assert after == before
    txn.commit()
    assert read(ns) == [*range(36), 100]


def test_only_what_was_there_at_the_beginning_is_merged(ns: Any, place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    other = place.open()
    planned = merge_plan.merges

    def merges(*args: Any) -> Any:
        for number in (100, 101):
            other.produce("orders", rows(number))
        return planned(*args)

    monkeypatch.setattr(merge_plan, "merges", merges)
    done = ns.optimize("orders")
    assert (done.finished, done.merged_segments) == (True, 12)
    assert segments(ns) == [36, 1, 1, 1, 1], "what came meanwhile is left for the next one"


# --- bounds -----------------------------------------------------------------------------------------------------------


def test_files_are_about_as_big_as_the_target_and_big_ones_are_left_alone(ns: Any, place: Place) -> None:
    target = 4 * max(sizes(ns))
    before = whole(ns)
    done = ns.optimize("orders", target)
    assert done.entries >= 3, "an entry for each merge"
    assert all(size <= target for size in sizes(ns))
    assert whole(ns) == before
    with Unchanged(place):
        assert ns.optimize("orders", max(sizes(ns))).entries == 0


def test_statistics_that_no_entry_holds_are_left_out(memory: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """Else every call would write all the files, and be refused."""
    monkeypatch.setattr(codec, "MAX_ENTRY_BYTES", 16 << 10)
    monkeypatch.setattr(merging, "_STATISTICS_BYTES", 8 << 10)
    ns = memory.open()
    names = ["first", *(f"long{number}" for number in range(20))]
    ns.create_topic("orders", pa.schema([(name, pa.string()) for name in names]), partitions=8)
    for _ in range(20):
        with ns.begin() as txn:
            for partition in range(8):
                txn.produce("orders", [dict.fromkeys(names, "\U0001f986" * 40)], partition=partition)
    before = whole(ns)
    assert ns.optimize("orders").written_segments == 8
    assert whole(ns) == before
    numbers = [segment.number for segment in ns.snapshot().plan("orders").segments]
    for number in numbers:
        known = ns._connection.follower.state.segments.get(number).statistics
        assert "first" in known
        assert len(known) < len(names)


def test_a_bounded_call_goes_on_where_the_last_one_stopped(ns: Any) -> None:
    target = 4 * max(sizes(ns))
    before = whole(ns)
    calls: list[Any] = []
    while not calls or not calls[-1].finished:
        calls.append(ns.optimize("orders", target, max_bytes=0))
        assert whole(ns) == before
    assert [call.entries for call in calls[:-1]] == [1] * (len(calls) - 1)
    assert len(calls) >= 3


def test_a_dry_run_says_what_it_would_begin_with_and_writes_nothing(ns: Any, place: Place) -> None:
    with Unchanged(place):
        for client in (ns, place.open(mode="r")):
            found = client.optimize("orders", dry_run=True)
            assert (found.merged_segments, found.written_segments) == (12, 1)
            assert (found.dry_run, found.finished) == (True, False)
            assert (found.entries, found.read_bytes) == (0, sum(sizes(ns)))
    ns.optimize("orders")
    assert ns.optimize("orders", dry_run=True).finished


def test_progress_is_reported(ns: Any) -> None:
    told: list[tuple[str, int, int]] = []
    ns.optimize("orders", 4 * max(sizes(ns)), progress=lambda *seen: told.append(seen))
    assert told[-1][0] == "orders"
    assert [done for _, done, _ in told] == sorted(done for _, done, _ in told)
    assert all(0 < done <= all_ for _, done, all_ in told)


@pytest.mark.parametrize("options", [{"target_size_bytes": 0}, {"target_size_bytes": 2**40}, {"max_bytes": -1}])
def test_a_wrong_call_is_refused_before_anything_is_written(ns: Any, place: Place, options: dict[str, int]) -> None:
    with Unchanged(place), raises(InvalidInputError):
        ns.optimize("orders", **options)
    with Unchanged(place), raises(TopicNotFound):
        ns.optimize("order")
    with Unchanged(place), raises(ReadOnly):
        place.open(mode="r").optimize("orders")


def test_rows_are_held_a_row_group_at_a_time(memory: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """However much a topic holds: files wait encoded, and of rows there is a wave, and a row group for each file."""
    ns = filled(memory.open(), count=60)
    most = 0
    write = SegmentWriter.write

    def noted(self: SegmentWriter, data: Any) -> Any:
        nonlocal most
        found = list(write(self, data))
        most = max(most, self._pending_bytes)
        return iter(found)

    monkeypatch.setattr(SegmentWriter, "write", noted)
    monkeypatch.setattr(merging, "ROW_GROUP_BYTES", 1_000)
    monkeypatch.setattr(merging, "_LEAST_ROW_GROUP_BYTES", 1_000)
    monkeypatch.setattr(merging, "_JOINED_BYTES", 1)
    before = whole(ns)
    ns.optimize("orders")
    assert 0 < most < 1_000
    assert whole(ns) == before
    (only,) = ns.snapshot().plan("orders").segments
    file = pa.parquet.ParquetFile(pa.BufferReader(ns._connection.store.get(only.key)))
    assert file.metadata.num_row_groups > 3


# --- retention --------------------------------------------------------------------------------------------------------


def delete_before(ns: Any, offset: int) -> None:
    append(ns, DeleteRecords(ns._connection.topic_record("orders").id, ((0, offset),)))


def test_rows_that_retention_has_passed_are_left_out_and_their_files_replaced_by_nothing(ns: Any) -> None:
    delete_before(ns, 10)
    before = whole(ns)
    done = ns.optimize("orders")
    assert (done.merged_segments, done.written_segments) == (12, 1)
    assert segments(ns) == [26]
    assert whole(ns) == before
    assert before[0]["_offset"] == 10
    assert next(action.removed for action in actions(ns, Replace)) == tuple(sorted(first_three(ns)))


def first_three(ns: Any) -> list[int]:
    found = [item for item in ns._connection.follower.state.segments.values() if not item.compacted]
    return sorted(item.number for item in found)[:3]


def test_retention_that_moves_while_rows_are_merged_is_no_reason_to_stop(memory: Place) -> None:
    ns, store = memory.faulty()
    filled(ns)
    other = memory.open()
    store.script.append(lambda: delete_before(other, 10))
    before = whole(ns)
    assert ns.optimize("orders").finished
    assert whole(ns) == before[10:]
