"""Optimize: fewer files and the same rows, at every version, whoever reads, writes, crashes or merges meanwhile."""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from tests.by_hand import append
from tests.by_hand import compact as merge_by_hand
from tests.client.support import (
    SCHEMA,
    Place,
    Unchanged,
    ids,
    is_entry,
    kind_of,
    raises,
    read,
    received,
    rows,
    run_threads,
    take,
)
from txnlog.data.segment_file import SegmentWriter
from txnlog.errors import (
    CorruptionError,
    Durable,
    InvalidInputError,
    OutcomeUnknown,
    ReadOnly,
    StoreError,
    TopicNotFound,
)
from txnlog.format import codec, keys
from txnlog.format.actions import Close, DeleteRecords, Replace, Segment
from txnlog.maintenance import compaction, optimizer
from txnlog.testing import ManualClock

METADATA = ["_partition", "_offset", "_timestamp", "_txn_id", "_version"]


def whole(ns: Any, topic: str = "orders", version: int | None = None) -> list[dict[str, Any]]:
    """All rows with their metadata, by partition and offset."""
    table = ns.snapshot(version).read(topic, include_metadata=True)
    return table.sort_by([("_partition", "ascending"), ("_offset", "ascending")]).to_pylist()


def everything(ns: Any, topic: str = "orders") -> dict[int, list[dict[str, Any]]]:
    """The same at every version at which the topic is there."""
    first = ns._connection.topic_record(topic).id
    return {version: whole(ns, topic, version) for version in range(first, ns.snapshot().version + 1)}


def segments(ns: Any, topic: str = "orders") -> list[int]:
    """Rows of the segments that a reader takes."""
    return [segment.rows for segment in ns.snapshot().plan(topic).segments]


def filled(ns: Any, count: int = 12, partitions: int = 1, **options: Any) -> Any:
    """A topic with so many small segments."""
    ns.create_topic("orders", SCHEMA, partitions=partitions, **options)
    for number in range(count):
        ns.produce("orders", rows(*range(3 * number, 3 * number + 3)), partition=number % partitions)
    return ns


@pytest.fixture
def ns(place: Place) -> Any:
    return filled(place.open())


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
    planned = compaction.merges

    def merges(*args: Any) -> Any:
        for number in (100, 101):
            other.produce("orders", rows(number))
        return planned(*args)

    monkeypatch.setattr(compaction, "merges", merges)
    done = ns.optimize("orders")
    assert (done.finished, done.merged_segments) == (True, 12)
    assert segments(ns) == [36, 1, 1, 1, 1], "what came meanwhile is left for the next one"


# --- bounds -----------------------------------------------------------------------------------------------------------


def sizes(ns: Any) -> list[int]:
    return [segment.size_bytes for segment in ns.snapshot().plan("orders").segments]


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
    monkeypatch.setattr(optimizer, "_STATISTICS_BYTES", 8 << 10)
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
    monkeypatch.setattr(optimizer, "ROW_GROUP_BYTES", 1_000)
    monkeypatch.setattr(optimizer, "_LEAST_ROW_GROUP_BYTES", 1_000)
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


def actions(ns: Any, kind: type) -> list[Any]:
    """All actions of a kind, in the order of the log."""
    log = ns._connection.follower.log
    entries = [log.entry(version) for version in range(ns.snapshot().version + 1)]
    return [action for entry in entries for action in entry.actions if isinstance(action, kind)]


def test_retention_that_moves_while_rows_are_merged_is_no_reason_to_stop(memory: Place) -> None:
    ns, store = memory.faulty()
    filled(ns)
    other = memory.open()
    store.script.append(lambda: delete_before(other, 10))
    before = whole(ns)
    assert ns.optimize("orders").finished
    assert whole(ns) == before[10:]


# --- others, meanwhile ------------------------------------------------------------------------------------------------


@pytest.mark.clause("P-91")
@pytest.mark.parametrize("cold", [False, True])
def test_who_comes_second_plans_again_and_replaces_nothing_twice(memory: Place, cold: bool) -> None:
    """``cold``: its fold has let go of the removals by the time that it asks."""
    ns, store = memory.faulty()
    filled(ns)
    ns.checkpoint()
    other = memory.open()

    def meanwhile() -> None:
        other.produce("orders", rows(100))
        assert other.optimize("orders").entries == 1
        if cold:
            ns._connection.follower.refresh()
            ns._connection.session.checkpointer.make()

    store.script.append(meanwhile)
    before = whole(ns)
    done = ns.optimize("orders")
    assert (done.lost_races, done.entries, done.finished) == (1, 0, True)
    assert [row["id"] for row in whole(ns)] == [*[row["id"] for row in before], 100]
    assert len(actions(ns, Replace)) == 1
    assert [row["_offset"] for row in whole(memory.open(mode="r"))] == list(range(37))


@pytest.mark.clause("P-91")
def test_a_checkpoint_in_between_costs_a_look_and_not_the_work(memory: Place) -> None:
    ns, store = memory.faulty()
    filled(ns)
    ns.checkpoint()
    other = memory.open()

    def meanwhile() -> None:
        other.produce("orders", rows(100))
        ns._connection.follower.refresh()
        ns._connection.session.checkpointer.make()

    store.script.append(meanwhile)
    before = whole(ns)
    puts = len([call for call in store.calls if call[0] == "put" and kind_of(call[1]) == "segment"])
    done = ns.optimize("orders")
    assert (done.lost_races, done.entries, done.finished) == (0, 1, True)
    assert len([call for call in store.calls if call[0] == "put" and kind_of(call[1]) == "segment"]) == puts + 1
    assert [row["id"] for row in whole(ns)] == [*[row["id"] for row in before], 100]


@pytest.mark.clause("P-90", "P-91")
def test_a_look_for_one_merge_says_nothing_of_the_next_one(memory: Place) -> None:
    """What others merged of the second one is as far back in a checkpoint as what was looked at for the first."""
    ns, store = memory.faulty()
    filled(ns, partitions=2)
    ns.checkpoint()
    other = memory.open()
    of_others = [segment for segment in other.snapshot().plan("orders").segments if segment.slices[0].partition == 1]

    def meanwhile() -> None:
        merge_by_hand(other, "orders", [segment.number for segment in of_others], 1)
        ns._connection.follower.refresh()
        ns._connection.session.checkpointer.make()

    store.script.append(meanwhile)
    before = whole(ns)
    ns.optimize("orders")
    for client in (ns, memory.open(mode="r")):
        assert whole(client) == before


def test_a_part_that_is_left_is_merged_after_a_lost_race(memory: Place) -> None:
    ns, store = memory.faulty()
    filled(ns)
    other = memory.open()
    store.script.append(lambda: other.optimize("orders", 4 * max(sizes(ns)), max_bytes=0))
    before = whole(ns)
    done = ns.optimize("orders")
    assert done.lost_races == 1
    assert done.entries >= 1
    assert whole(ns) == before


def test_optimizers_and_writers_at_once_lose_and_double_nothing(place: Place) -> None:
    ns = filled(place.open(), count=20, partitions=2)
    clients = [place.open() for _ in range(4)]
    before = everything(ns)

    def write(client: Any, first: int) -> None:
        for number in range(10):
            client.produce("orders", rows(first + number), partition=number % 2)

    def merge(client: Any) -> None:
        for _ in range(4):
            client.optimize("orders", 10_000)

    results = run_threads(
        lambda: write(clients[0], 1_000),
        lambda: write(clients[1], 2_000),
        lambda: merge(clients[2]),
        lambda: merge(clients[3]),
    )
    assert not [item for item in results if isinstance(item, BaseException)]
    found = whole(ns)
    assert sorted(row["id"] for row in found) == sorted([*range(60), *range(1_000, 1_010), *range(2_000, 2_010)])
    for partition in (0, 1):
        assert [row["_offset"] for row in found if row["_partition"] == partition] == list(range(40))
    assert {version: whole(ns, "orders", version) for version in before} == before
    ns.optimize("orders")
    assert len(segments(ns)) == 2


def test_a_consumer_in_the_midst_of_receiving_and_its_transaction_go_on(ns: Any, place: Place) -> None:
    other = place.open()
    consumer = other.consumer("orders", "billing")
    first = take(consumer, 4)
    txn = other.begin()
    txn.acknowledge(first)
    ns.optimize("orders")
    found = [*ids(first.table), *received(consumer, 5)]
    txn.commit()
    ns.optimize("orders")
    messages = take(consumer)
    assert [*found, *ids(messages.table)] == list(range(36))
    assert messages.positions[0] == ("orders", 0, 9)
    consumer.acknowledge(messages, cumulative=True)
    assert ns.lag("orders", "billing")[0].cursor == 36


def test_an_old_snapshot_and_a_scan_under_way_read_on(ns: Any, place: Place) -> None:
    snapshot = place.open(mode="r").snapshot()
    scan = snapshot.scan("orders")
    first = next(iter(scan))
    ns.optimize("orders")
    assert ids(first) + [number for batch in scan for number in ids(batch)] == list(range(36))
    assert ids(snapshot.read("orders")) == list(range(36))


def test_how_far_behind_a_subscription_is_does_not_change(place: Place, clock: ManualClock) -> None:
    ns = filled(place.open(clock=clock), count=0)
    ns.create_subscription("orders", "billing")
    for number in range(6):
        ns.produce("orders", rows(number))
        clock.advance(1_000)
    before = ns.lag("orders", "billing")
    assert before[0].behind_ms == 6_000
    ns.optimize("orders")
    assert ns.lag("orders", "billing") == before


def test_a_topic_that_is_dropped_meanwhile_ends_it(memory: Place) -> None:
    ns, store = memory.faulty()
    filled(ns)
    other = memory.open()
    store.script.append(lambda: other.drop_topic("orders"))
    with raises(TopicNotFound, "was dropped"):
        ns.optimize("orders")


def test_columns_that_are_altered_meanwhile_do_not_matter(memory: Place) -> None:
    ns, store = memory.faulty()
    filled(ns)
    other = memory.open()
    store.script.append(lambda: other.alter_topic("orders", [("note", pa.string())]))
    before = whole(ns)
    assert ns.optimize("orders").finished
    assert whole(ns) == [{**dict(list(row.items())[:2]), "note": None, **dict(list(row.items())[2:])} for row in before]


# --- crashes, doubt, damage -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("where", ["segment", "entry"])
def test_a_crash_leaves_files_that_no_entry_names(memory: Place, clock: ManualClock, where: str) -> None:
    ns, store = memory.faulty(clock=clock)
    filled(ns)
    before = whole(ns)
    if where == "segment":
        store.puts.append("killed")
    else:
        store.script.append(lambda: (_ for _ in ()).throw(KeyboardInterrupt()))
    with pytest.raises(KeyboardInterrupt):
        ns.optimize("orders")
    other = memory.open(clock=clock)
    assert whole(other) == before
    assert other.optimize("orders").written_segments == 1
    clock.advance(30 * 24 * 3_600_000)
    found = other.vacuum()
    assert (found.unnamed_files, found.replaced_files) == (0 if where == "segment" else 1, 12)
    assert whole(memory.open(mode="r")) == before


def test_an_answer_that_was_lost_is_found_and_an_unknown_one_leaves_the_rows(memory: Place) -> None:
    ns, store = memory.faulty()
    filled(ns)
    before = whole(ns)
    store.script.append("lost")
    assert ns.optimize("orders").entries == 1
    ns.produce("orders", rows(100))
    store.forever = "broken-after"
    store.script.append(lambda: setattr(store, "reads_forever", "broken"))
    with raises(OutcomeUnknown, "the entry of this call", durable=Durable.MAYBE) as caught:
        ns.optimize("orders")
    assert "call ns.optimize(topic) again" in caught.value.advice
    store.heal()
    assert ns.optimize("orders").entries == 0, "it was done"
    assert [row["id"] for row in whole(ns)] == [*[row["id"] for row in before], 100]


def test_a_store_that_refuses_files_changes_nothing(memory: Place) -> None:
    ns, store = memory.faulty()
    filled(ns)
    before, version = whole(ns), ns.snapshot().version
    store.puts.append("refused")
    with raises(StoreError, "no space left"):
        ns.optimize("orders")
    assert ns.snapshot().version == version
    assert whole(ns) == before


@pytest.mark.clause("P-106")
@pytest.mark.parametrize("harm", ["flip", "cut", "gone"])
def test_damage_is_never_merged(ns: Any, place: Place, harm: str) -> None:
    store = ns._connection.store
    key = ns.snapshot().plan("orders").segments[5].key
    data = store.get(key)
    if harm == "gone":
        store.delete(key)
    else:
        store.put(key, data[:-1] if harm == "cut" else data[:100] + bytes([data[100] ^ 1]) + data[101:])
    with Unchanged(place), raises(CorruptionError, "missing" if harm == "gone" else "damaged"):
        place.open().optimize("orders")


def test_a_file_that_was_merged_and_vacuumed_meanwhile_is_no_damage(
    memory: Place, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    ns = filled(memory.open(clock=clock))
    other = memory.open(clock=clock)
    planned = compaction.merges
    late: list[Callable[[], object]] = [
        lambda: other.optimize("orders"),
        lambda: clock.advance(30 * 24 * 3_600_000),
        other.vacuum,
    ]

    def merges(*args: Any) -> Any:
        found = planned(*args)
        monkeypatch.setattr(compaction, "merges", planned)
        for call in late:
            call()
        return found

    before = whole(ns)
    monkeypatch.setattr(compaction, "merges", merges)
    done = ns.optimize("orders")
    assert (done.lost_races, done.entries, done.finished) == (1, 0, True)
    assert whole(ns) == before


@pytest.mark.clause("P-41", "P-45")
def test_a_writer_whose_numbers_were_taken_meanwhile_takes_others(memory: Place) -> None:
    ns, store = memory.faulty()
    filled(ns)
    other = memory.open()
    before = whole(ns)

    def close_all() -> None:
        state = other._connection.follower
        state.refresh()
        append(other, *[Close(first) for first in list(state.state.blocks) if first not in own(other)])

    store.script.append(close_all)
    done = ns.optimize("orders")
    assert (done.lost_races, done.entries, done.finished) == (1, 1, True)
    assert whole(ns) == before


def own(ns: Any) -> list[int]:
    writer = ns._connection.appender.writer
    return [block.first for block in ns._connection.follower.state.blocks.values() if block.writer == writer]


@pytest.mark.clause("P-45")
def test_its_blocks_are_kept_open_while_it_works(ns: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    kept: list[list[int]] = []
    inner = ns._connection.keep_blocks_alive

    def noted(wanted: list[int]) -> Any:
        kept.append(list(wanted))
        return inner(wanted)

    monkeypatch.setattr(ns._connection, "keep_blocks_alive", noted)
    ns.optimize("orders")
    (merged,) = [action for action in actions(ns, Segment) if action.compacted]
    assert kept == [[merged.txn, merged.segment]]


@pytest.mark.clause("P-104")
def test_files_are_there_before_the_entry_and_nothing_else_is_written(memory: Place) -> None:
    ns, store = memory.counted()
    filled(ns)
    before = dict(store.counts())
    ns.optimize("orders")
    after = {key: count - before.get(key, 0) for key, count in store.counts().items() if count > before.get(key, 0)}
    assert after[("put", "segment")] == 1
    assert after[("create", "entry")] == 1
    assert after[("get", "segment")] == 12
    assert ("delete", "segment") not in after
    assert ("list", "segment") not in after


def test_names_of_files_are_as_all_others(ns: Any) -> None:
    ns.optimize("orders")
    (only,) = ns.snapshot().plan("orders").segments
    assert isinstance(keys.parse_key(only.key), keys.SegmentKey)
    assert kind_of(f"sales/{only.key}") == "segment"
    assert not is_entry(f"sales/{only.key}")
