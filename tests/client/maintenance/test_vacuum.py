"""Vacuum: what it deletes, what it must not, and that neither a pause nor a crash anywhere costs a row."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.by_hand import append, compact
from tests.client.support import (
    SCHEMA,
    Place,
    Unchanged,
    ids,
    is_entry,
    raises,
    read,
    rows,
    run_threads,
)
from txnlog.errors import (
    CoordinatorFenced,
    CorruptionError,
    Durable,
    InvalidInputError,
    OutcomeUnknown,
    ReadOnly,
    RetriableError,
    StoreError,
    VersionNotAvailable,
)
from txnlog.fold.id_blocks import TOUCH_MS
from txnlog.format import keys
from txnlog.format.actions import Begin, Close, Commit, Vacuum
from txnlog.results import Vacuumed
from txnlog.store import Created, ForwardingStore, ObjectInfo, Store
from txnlog.testing import ManualClock
from txnlog.testing.scheduler import START_MS

HOUR_MS = 3_600_000
DAY_MS = 24 * HOUR_MS
WEEK_MS = 7 * DAY_MS


class Hooked(ForwardingStore):
    """Calls ``before(call, key)`` ahead of every change and listing, ``after`` behind it; either may raise."""

    def __init__(self, inner: Store) -> None:
        super().__init__(inner)
        self.before: Callable[[str, str], object] = lambda _call, _key: None
        self.after: Callable[[str, str], object] = lambda _call, _key: None

    def create(self, key: str, data: bytes) -> Created:
        self.before("create", key)
        result = super().create(key, data)
        self.after("create", key)
        return result

    def list(self, prefix: str) -> Iterator[ObjectInfo]:
        self.before("list", prefix)
        found = list(super().list(prefix))
        self.after("list", prefix)
        return iter(found)

    def delete(self, key: str) -> None:
        self.before("delete", key)
        super().delete(key)
        self.after("delete", key)


def hooked(place: Place, clock: ManualClock) -> tuple[Any, Hooked]:
    """Another handle, with hooks."""
    stores: list[Hooked] = []

    def wrap(store: Store) -> Store:
        stores.append(Hooked(store))
        return stores[0]

    return place.open(wrap=wrap, clock=clock), stores[0]


def files(ns: Any, topic: str = "orders") -> set[int]:
    """Numbers of the segments that lie in a topic's folder."""
    folder = next(item.folder for item in ns._connection.follower.state.topics.values() if item.name == topic)
    found = [keys.parse_key(info.key) for info in ns._connection.store.list(f"{folder}/")]
    return {key.segment for key in found if isinstance(key, keys.SegmentKey)}


def left_behind(place: Place, clock: ManualClock, *numbers: int) -> Any:
    """A handle that wrote a segment and could not log it; its file lies there, and it may come back."""
    ns, store = place.faulty(clock=clock)
    txn = ns.begin(timeout_ms=15 * 60_000)
    txn.produce("orders", rows(*numbers))
    store.script.append("refused")
    with raises(StoreError):
        txn.flush()
    return ns


def concerns(key: str) -> bool:
    """Whether a request is about the log or a topic's segments, their listing included."""
    return is_entry(key) or keys.SEGMENT_COLUMN in key


def check_every_version(place: Place, clock: ManualClock) -> None:
    """Every readable version can be read, at both levels, by somebody who knows nothing yet."""
    ns = place.open(clock=clock, mode="r")
    head = ns._connection.follower.state.head
    for version in range(head.oldest_readable, head.version + 1):
        snapshot = ns.snapshot(version=version)
        for topic in snapshot.topics():
            committed = ids(snapshot.read(topic))
            assert len(committed) == sum(snapshot.end_offsets(topic).values())
            assert snapshot.read(topic, isolation_level="read_uncommitted").num_rows >= len(committed)
    ns.close()


def counts(found: Vacuumed) -> tuple[int, int, int]:
    """Files by reason: unnamed, aborted, replaced."""
    return found.unnamed_files, found.aborted_files, found.replaced_files


# --- files that no entry names --------------------------------------------------------------------------------------


@pytest.mark.clause("P-130", "P-131", "P-147")
def test_a_file_that_no_entry_names_goes_when_its_block_was_silent_for_the_grace(
    lake: Any, memory: Place, clock: ManualClock
) -> None:
    lake.produce("orders", rows(1))
    named = files(lake)
    left_behind(memory, clock, 2).close()
    (orphan,) = files(lake) - named
    clock.advance(HOUR_MS + TOUCH_MS - 1)
    with Unchanged(memory):
        assert counts(lake.vacuum(grace_ms=HOUR_MS)) == (0, 0, 0)
    assert orphan in files(lake)
    clock.advance(1)
    found = lake.vacuum(grace_ms=HOUR_MS)
    assert (counts(found), found.kept_files, found.closed_blocks) == ((1, 0, 0), 1, 1)
    assert files(lake) == named
    assert read(lake) == [1]


@pytest.mark.clause("P-131")
def test_the_time_of_a_touch_is_kept_to_the_minute_and_vacuum_allows_for_it(
    lake: Any, memory: Place, clock: ManualClock
) -> None:
    """The block shows life 59 s after the time that the state keeps: the grace counts from there."""
    clock.advance(TOUCH_MS - 1)
    lake.produce("orders", rows(1))
    other = memory.open(clock=clock)
    clock.advance(HOUR_MS)
    assert other.vacuum(grace_ms=HOUR_MS).closed_blocks == 0


@pytest.mark.clause("P-131", "P-132")
def test_blocks_are_closed_then_folders_listed_then_files_deleted(lake: Any, memory: Place, clock: ManualClock) -> None:
    left_behind(memory, clock, 1).close()
    first = lake.produce("orders", rows(2)).version
    lake.produce("orders", rows(3))
    compact(lake, "orders", [item.number for item in lake.snapshot().plan("orders").segments], 0)
    txn = lake.begin()
    txn.produce("orders", rows(4))
    txn.flush()
    txn.abort()
    clock.advance(WEEK_MS + HOUR_MS)
    ns, store = hooked(memory, clock)
    journal: list[str] = []

    def note(call: str, key: str) -> None:
        if concerns(key):
            journal.append(call)
        if call == "delete":
            now = memory.open(mode="r")._connection.follower.state
            assert now.head.oldest_readable > first
            assert len(now.blocks) == 1, "the vacuum's own"

    store.before = note
    assert counts(ns.vacuum()) == (1, 1, 2)
    assert journal == ["create", "list", "delete", "delete", "delete", "delete"]
    (entry,) = [ns._connection.follower.log.entry(ns.snapshot().version)]
    assert {type(action) for action in entry.actions} >= {Close, Vacuum}


@pytest.mark.clause("P-130", "P-131")
def test_a_paused_writer_is_refused_and_loses_nothing_that_was_committed(
    lake: Any, memory: Place, clock: ManualClock
) -> None:
    """Between its data and its entry: the file is gone when it wakes up, and so is its right to name it."""
    lake.produce("orders", rows(1))
    paused, store = memory.faulty(clock=ManualClock(START_MS))  # frozen, and its clock with it
    txn = paused.begin()
    txn.produce("orders", rows(2))

    def meanwhile() -> None:
        clock.advance(2 * HOUR_MS)
        assert lake.vacuum(grace_ms=HOUR_MS).unnamed_files == 1

    store.script.append(meanwhile)
    with raises(CoordinatorFenced):
        txn.flush()
    assert txn.state == "ABORTED"
    check_every_version(memory, clock)
    assert paused.transact(lambda txn: txn.produce("orders", rows(3))) is None
    assert read(lake) == [1, 3]


@pytest.mark.clause("P-131", "P-148")
@pytest.mark.parametrize("frozen", [True, False])
def test_a_writer_that_is_faster_than_the_close_keeps_its_file(
    lake: Any, memory: Place, clock: ManualClock, frozen: bool
) -> None:
    """``frozen``: by the time that it writes into the log its block may be closed right behind it."""
    writer = memory.open(clock=ManualClock(START_MS) if frozen else clock)
    writer.begin()
    left_behind(memory, clock, 2).close()
    clock.advance(2 * HOUR_MS)
    ns, store = hooked(memory, clock)
    txn = writer.begin()
    txn.produce("orders", rows(1))
    done: list[str] = []

    def wake(call: str, key: str) -> None:
        if is_entry(key) and not done:
            done.append(call)
            txn.flush()
            txn.commit()

    store.before = wake
    found = ns.vacuum(grace_ms=HOUR_MS)
    assert (done, found.unnamed_files) == (["create"], 1)
    assert (
        writer._connection.appender.writer
        not in {block.writer for block in ns._connection.follower.state.blocks.values()}
    ) == frozen
    assert read(lake) == [1]
    check_every_version(memory, clock)


@pytest.mark.clause("P-41", "P-131")
@pytest.mark.parametrize("point", ["list", "delete"])
@pytest.mark.parametrize("side", ["before", "after"])
def test_a_writer_that_wakes_up_while_files_are_deleted_is_refused(
    lake: Any, memory: Place, clock: ManualClock, point: str, side: str
) -> None:
    writer = memory.open(clock=ManualClock(START_MS))
    txn = writer.begin()
    txn.produce("orders", rows(1))
    txn._work.stage(everything=True)  # its file is there; frozen before its entry
    clock.advance(2 * HOUR_MS)
    ns, store = hooked(memory, clock)
    woken: list[str] = []

    def wake(call: str, _key: str) -> None:
        if call == point and not woken:
            woken.append(call)
            with raises(CoordinatorFenced):
                txn.commit()

    setattr(store, side, wake)
    assert ns.vacuum(grace_ms=HOUR_MS).unnamed_files == 1
    assert woken == [point]
    assert read(lake) == []
    check_every_version(memory, clock)


@pytest.mark.clause("P-130")
@pytest.mark.parametrize("point", ["create", "list", "delete"])
def test_a_writer_at_work_is_left_alone(lake: Any, memory: Place, clock: ManualClock, point: str) -> None:
    left_behind(memory, clock, 1).close()
    clock.advance(2 * HOUR_MS)
    busy = memory.open(clock=clock)
    busy.produce("orders", rows(2))
    txn = busy.begin()
    txn.produce("orders", rows(3))
    txn._work.stage(everything=True)  # a file without an entry
    ns, store = hooked(memory, clock)
    done: list[str] = []

    def meanwhile(call: str, _key: str) -> None:
        if call == point and not done:
            done.append(call)
            busy.produce("orders", rows(4))

    store.before = meanwhile
    assert ns.vacuum(grace_ms=HOUR_MS).unnamed_files == 1
    txn.commit()
    assert (read(lake), done) == ([2, 4, 3], [point])
    check_every_version(memory, clock)


@pytest.mark.clause("P-130", "P-44")
def test_another_file_under_a_number_in_use_goes_only_with_its_block(
    lake: Any, memory: Place, clock: ManualClock
) -> None:
    lake.produce("orders", rows(1))
    (number,) = files(lake)
    twin = f"orders/_txnlog_segment={number}/{'f' * 32}.parquet"
    lake._connection.store.put(twin, b"written by an attempt that lost")
    assert lake.vacuum(grace_ms=HOUR_MS).unnamed_files == 0
    lake.close()
    clock.advance(2 * HOUR_MS)
    ns = memory.open(clock=clock)
    assert ns.vacuum(grace_ms=HOUR_MS).unnamed_files == 1
    assert twin not in {info.key for info in ns._connection.store.list("orders/")}
    assert read(ns) == [1]


def test_strangers_files_and_numbers_that_were_never_given_stay(lake: Any, memory: Place, clock: ManualClock) -> None:
    strange = [
        "orders/_delta_log/00000000000000000000.json",
        "orders/notes.txt",
        "orders/_txnlog_segment=1/notes.txt",
        "orders/_txnlog_segment=01/" + "0" * 32 + ".parquet",
        f"orders/_txnlog_segment={1 << 40}/{'0' * 32}.parquet",
        "ordersx/_txnlog_segment=1/" + "0" * 32 + ".parquet",
    ]
    for key in strange:
        lake._connection.store.put(key, b"x")
    lake.close()
    clock.advance(WEEK_MS)
    ns = memory.open(clock=clock)
    assert ns.vacuum().deleted_files == 0
    assert set(strange) <= {info.key for info in ns._connection.store.list("")}


# --- what is open ---------------------------------------------------------------------------------------------------


@pytest.mark.clause("P-43", "P-130")
@pytest.mark.parametrize("kind", ["prepared", "hanging"])
def test_what_open_and_prepared_transactions_logged_stays(
    lake: Any, memory: Place, clock: ManualClock, kind: str
) -> None:
    owner = memory.open(clock=clock)
    txn = owner.begin()
    txn.produce("orders", rows(1))
    if kind == "prepared":
        txn.prepare()
    else:
        txn._work.stage(everything=True)
        append(owner, Begin(txn.id.number), *txn._work.staged)  # without a deadline
    owner.close()
    clock.advance(10 * WEEK_MS)
    ns = memory.open(clock=clock)
    before = files(ns)
    found = ns.vacuum()
    assert (found.deleted_files, found.kept_files) == (0, 1)
    assert files(ns) == before
    if kind == "prepared":
        ns.complete(txn.id, commit=True)
    else:
        append(ns, Commit(txn.id.number))
    assert read(ns) == [1]


def test_an_overdue_transaction_is_ended_first_and_its_files_go_after_the_grace(
    lake: Any, memory: Place, clock: ManualClock
) -> None:
    txn = lake.begin()
    txn.produce("orders", rows(1))
    txn.flush()
    clock.advance(WEEK_MS)
    other = memory.open(clock=clock)
    assert other.vacuum(retain_ms=0, allow_short_retention=True).deleted_files == 0
    other.produce("orders", rows(2))
    assert other.transaction(txn.id).reason == "timeout"
    clock.advance(DAY_MS)
    assert counts(other.vacuum(retain_ms=0, allow_short_retention=True)) == (0, 1, 0)
    assert read(lake) == [2]


# --- what ended -----------------------------------------------------------------------------------------------------


@pytest.mark.clause("P-130", "P-149")
def test_aborted_rows_go_after_the_grace_and_no_reader_misses_them(
    lake: Any, memory: Place, clock: ManualClock
) -> None:
    lake.produce("orders", rows(1))
    txn = lake.begin()
    txn.produce("orders", rows(2))
    txn.flush()
    flushed = lake.snapshot().version
    txn.abort()
    clock.advance(WEEK_MS - 1)
    assert lake.vacuum().deleted_files == 0
    options = {"isolation_level": "read_uncommitted"}
    assert sorted(read(lake, **options)) == [1, 2]
    assert lake._connection.follower.state.head.oldest_readable == 0, "nothing is taken that is not used"
    clock.advance(1)
    found = lake.vacuum()
    assert (counts(found), found.oldest_readable) == ((0, 1, 0), flushed + 1)
    assert read(lake, **options) == read(lake) == [1]
    assert ids(lake.snapshot(version=flushed + 1).read("orders", **options)) == [1]
    with raises(VersionNotAvailable) as caught:
        lake.snapshot(version=flushed)
    assert caught.value.advice == f"versions {flushed + 1} to {lake.snapshot().version} can be read"
    check_every_version(memory, clock)


@pytest.fixture
def compacted(lake: Any) -> tuple[Any, int]:
    """Three rows in two segments, which one replaced; the version that replaced them."""
    lake.produce("orders", rows(1))
    lake.produce("orders", rows(2, 3))
    return lake, compact(lake, "orders", [item.number for item in lake.snapshot().plan("orders").segments], 0)


@pytest.mark.clause("P-103", "P-130", "P-132")
def test_replaced_files_go_with_the_versions_that_need_them(compacted: Any, memory: Place, clock: ManualClock) -> None:
    lake, version = compacted
    clock.advance(WEEK_MS - 1)
    assert lake.vacuum().deleted_files == 0
    assert ids(lake.snapshot(version=version - 1).read("orders")) == [1, 2, 3]
    clock.advance(1)
    found = lake.vacuum()
    assert (counts(found), found.kept_files, found.oldest_readable) == ((0, 0, 2), 1, version)
    assert read(lake) == ids(lake.snapshot(version=version).read("orders")) == [1, 2, 3]
    with raises(VersionNotAvailable, match=f"version {version - 1} cannot be read"):
        lake.snapshot(version=version - 1)
    check_every_version(memory, clock)


@pytest.mark.clause("P-103", "P-150")
@pytest.mark.parametrize("knows", [True, False])
def test_a_reader_of_a_version_that_was_vacuumed_gets_the_range(
    compacted: Any, memory: Place, clock: ManualClock, knows: bool
) -> None:
    lake, version = compacted
    reader = memory.open(clock=clock, mode="r")
    snapshot = reader.snapshot(version=version - 1)
    scan = snapshot.scan("orders")
    clock.advance(WEEK_MS)
    lake.vacuum()
    if knows:
        reader.snapshot()
    for call in (lambda: snapshot.read("orders"), scan.read_all):
        with raises(VersionNotAvailable, match=f"version {version - 1} cannot be read") as caught:
            call()
        assert caught.value.advice.startswith(f"versions {version} to ")
    assert ids(reader.snapshot().read("orders")) == [1, 2, 3]


@pytest.mark.clause("P-103")
def test_a_vacuumed_version_is_not_read_from_memory_either(compacted: Any, memory: Place, clock: ManualClock) -> None:
    lake, version = compacted
    reader = memory.open(clock=clock, mode="r")
    snapshot = reader.snapshot(version=version - 1)
    assert ids(snapshot.read("orders")) == [1, 2, 3]
    clock.advance(WEEK_MS)
    lake.vacuum()
    reader.snapshot()
    with raises(VersionNotAvailable, match=f"version {version - 1} cannot be read"):
        snapshot.read("orders")


@pytest.mark.clause("P-149", "P-150")
def test_a_reader_of_aborted_rows_that_were_vacuumed_reads_again(lake: Any, memory: Place, clock: ManualClock) -> None:
    txn = lake.begin()
    txn.produce("orders", rows(1))
    txn.flush()
    txn.abort()
    reader = memory.open(clock=clock, mode="r")
    snapshot = reader.snapshot()
    clock.advance(WEEK_MS)
    lake.vacuum()
    with raises(RetriableError, match="vacuumed"):
        snapshot.read("orders", isolation_level="read_uncommitted")
    assert ids(snapshot.read("orders", isolation_level="read_uncommitted")) == []


@pytest.mark.clause("P-103", "P-150")
@pytest.mark.parametrize("aborted", [True, False])
def test_a_file_missing_from_a_readable_version_is_damage_before_and_after_a_vacuum(
    compacted: Any, memory: Place, clock: ManualClock, aborted: bool
) -> None:
    lake, _ = compacted
    clock.advance(WEEK_MS)
    lake.vacuum()
    kept = files(lake)
    txn = lake.begin()
    txn.produce("orders", rows(4))
    txn.flush()
    if aborted:
        txn.abort()
    else:
        txn.commit()
    for info in list(lake._connection.store.list("orders/")):
        if keys.parse_key(info.key).segment not in kept:  # type: ignore[union-attr]
            lake._connection.store.delete(info.key)
    reader = memory.open(clock=clock, mode="r")
    with raises(CorruptionError, match="missing"):
        reader.snapshot().read("orders", isolation_level="read_uncommitted")


@pytest.mark.parametrize(("retain_ms", "grace_ms"), [(0, DAY_MS), (DAY_MS, HOUR_MS)])
def test_what_ended_is_kept_for_the_longer_of_retention_and_grace(
    compacted: Any, clock: ManualClock, retain_ms: int, grace_ms: int
) -> None:
    lake, _ = compacted
    times = {"retain_ms": retain_ms, "grace_ms": grace_ms, "allow_short_retention": True}
    clock.advance(DAY_MS - 1)
    assert lake.vacuum(**times).deleted_files == 0
    clock.advance(1)
    assert lake.vacuum(**times).replaced_files == 2


@pytest.mark.clause("P-130")
def test_what_another_vacuum_announced_is_kept_for_ones_own_retention(
    compacted: Any, memory: Place, clock: ManualClock
) -> None:
    lake, version = compacted
    clock.advance(2 * HOUR_MS)
    ns, store = hooked(memory, clock)

    def stop(call: str, key: str) -> None:
        if call == "list" and "_delta_log" not in key:  # whether there is a Delta table is asked before
            raise StoreError("gone")

    store.before = stop
    with raises(StoreError, durable=Durable.MAYBE):
        ns.vacuum(retain_ms=0, allow_short_retention=True, grace_ms=HOUR_MS)
    lake.snapshot()
    assert lake._connection.follower.state.head.oldest_readable == version
    assert lake.vacuum().deleted_files == 0
    assert lake.vacuum(retain_ms=0, allow_short_retention=True, grace_ms=HOUR_MS).replaced_files == 2


def test_all_files_of_a_dropped_topic_are_collected_and_none_of_its_successor(
    lake: Any, memory: Place, clock: ManualClock
) -> None:
    kept = lake.produce("orders", rows(1)).version
    txn = lake.begin()
    txn.produce("orders", rows(2))
    txn.flush()
    txn.abort()
    lake.drop_topic("orders")
    lake.create_topic("orders", SCHEMA)
    clock.advance(WEEK_MS)
    lake.produce("orders", rows(3))
    found = lake.vacuum()
    assert (counts(found), found.dropped_files, found.kept_files) == ((0, 1, 0), 1, 1)
    assert read(lake) == [3]
    assert lake._connection.follower.state.head.oldest_readable > kept
    check_every_version(memory, clock)


# --- checkpoints ----------------------------------------------------------------------------------------------------


@pytest.mark.clause("P-133", "P-3")
def test_log_objects_stay(compacted: Any, memory: Place, clock: ManualClock) -> None:
    lake, _ = compacted
    for number in range(3):
        lake.produce("orders", rows(10 + number))
        lake.checkpoint()
    lake._connection.store.put(keys.part_key("0" * 32), b"of a checkpoint that was never finished")
    before = {info.key for info in lake._connection.store.list("_log/")}
    lake.close()
    clock.advance(10 * WEEK_MS)
    ns = memory.open(clock=clock)
    assert ns.vacuum().deleted_files == 2
    assert before <= {info.key for info in ns._connection.store.list("_log/")}


@pytest.mark.clause("P-130", "P-148")
@pytest.mark.parametrize("point", ["nowhere", "create", "list", "delete"])
@pytest.mark.parametrize("who", ["itself", "another"])
def test_what_only_a_checkpoint_remembers_is_known(
    compacted: Any, memory: Place, clock: ManualClock, point: str, who: str
) -> None:
    """The vacuum's own fold lets go of rows while it works, or somebody else's does."""
    lake, version = compacted
    lake.produce("orders", rows(4))
    txn = lake.begin()
    txn.produce("orders", rows(5))
    txn.flush()
    txn.abort()
    if point == "nowhere":
        lake.checkpoint()
    lake.close()
    left_behind(memory, clock, 6).close()
    clock.advance(WEEK_MS)
    ns, store = hooked(memory, clock)
    other = ns if who == "itself" else memory.open(clock=clock)
    made: list[int] = []

    def meanwhile(call: str, key: str) -> None:
        if call == point and keys.kind_of(key) != "checkpoint" and not made:
            made.append(other._connection.session.checkpointer.make().version)

    store.before = meanwhile
    assert counts(ns.vacuum()) == (1, 1, 2)
    assert bool(made) == (point != "nowhere")
    assert read(ns) == [1, 2, 3, 4]
    assert ns._connection.follower.state.head.oldest_readable > version
    check_every_version(memory, clock)


# --- a crash anywhere -----------------------------------------------------------------------------------------------


def _littered(place: Place, clock: ManualClock) -> list[int]:
    """A namespace with some of everything that vacuum deletes, and a prepared transaction; the rows to be read."""
    lake = place.open(clock=clock)
    lake.create_topic("orders", SCHEMA)
    lake.produce("orders", rows(1))
    lake.produce("orders", rows(2))
    compact(lake, "orders", [item.number for item in lake.snapshot().plan("orders").segments], 0)
    for number in (3, 4):
        txn = lake.begin()
        txn.produce("orders", rows(number))
        txn.flush()
        txn.abort()
    left_behind(place, clock, 5).close()
    txn = lake.begin()
    txn.produce("orders", rows(6))
    txn.prepare()
    lake.produce("orders", rows(7))
    lake.close()
    clock.advance(WEEK_MS + HOUR_MS)
    return [1, 2, 7]


class Killed(BaseException):
    """The process ends here."""


@pytest.mark.clause("P-130", "P-131", "P-132")
@pytest.mark.parametrize("side", ["before", "after"])
@pytest.mark.parametrize("kind", ["killed", "refused"])
def test_wherever_a_vacuum_stops_nothing_is_lost_and_the_next_one_finishes(
    memory: Place, clock: ManualClock, side: str, kind: str
) -> None:
    for point in itertools.count():
        place = Place("memory", f"{memory.root}-{point}")
        own = ManualClock(START_MS)
        expected = _littered(place, own)
        ns, store = hooked(place, own)
        calls = itertools.count()

        def stop(call: str, key: str, calls: Iterator[int] = calls, point: int = point) -> None:
            if concerns(key) and next(calls) == point:
                if kind == "killed":
                    raise Killed
                # Whether the entry exists is asked until it is known, so that a failed create is no failed vacuum.
                raise StoreError("gone", durable=Durable.MAYBE if call == "create" else Durable.NOTHING)

        setattr(store, side, stop)
        try:
            ns.vacuum()
            stopped = False
        except (Killed, StoreError):
            stopped = True
        store.before = store.after = lambda _call, _key: None
        check_every_version(place, own)
        again = place.open(clock=own)
        again.vacuum()
        assert counts(again.vacuum(dry_run=True)) == (0, 0, 0)
        assert read(again) == expected
        (held,) = again.transactions(state="PREPARED")
        again.complete(held.txn_id, commit=True)
        assert read(again) == [*expected, 6]
        assert len(files(again)) == 3
        place.close()
        if next(calls) <= point:
            assert point >= 7, "the entry, the listing and five deletions were each stopped at"
            assert not stopped
            return


@pytest.mark.clause("P-118", "P-132")
@pytest.mark.parametrize("fate", ["lost", "dropped", "late"])
def test_an_announcement_of_unknown_outcome_deletes_nothing(memory: Place, clock: ManualClock, fate: str) -> None:
    expected = _littered(memory, clock)
    ns, store = memory.faulty(clock=clock)
    ns._connection.appender.create_attempts = 2
    before = files(ns)
    store.script.extend([lambda: store.reads.extend(["broken", "broken"]), fate, "dropped"])
    with raises(OutcomeUnknown, durable=Durable.MAYBE) as caught:
        ns.vacuum()
    assert "nothing was deleted" in caught.value.advice
    assert files(ns) == before
    store.land()
    assert counts(ns.vacuum()) == (1, 2, 2)
    assert read(ns) == expected
    check_every_version(memory, clock)


def test_a_vacuum_that_cannot_look_for_delta_tables_writes_and_deletes_nothing(
    compacted: Any, memory: Place, clock: ManualClock
) -> None:
    clock.advance(WEEK_MS)
    ns, store = hooked(memory, clock)

    def stop(call: str, key: str) -> None:
        if call == "list" and "_delta_log" in key:
            raise StoreError("gone")

    store.before = stop
    with Unchanged(memory), raises(StoreError, durable=Durable.NOTHING):
        ns.vacuum()


@pytest.mark.parametrize("point", ["list", "delete"])
def test_a_vacuum_that_fails_behind_its_announcement_does_not_say_that_nothing_was_written(
    memory: Place, clock: ManualClock, point: str
) -> None:
    """Versions that could be read before cannot by now."""
    expected = _littered(memory, clock)
    ns, store = hooked(memory, clock)

    def refuse(call: str, key: str) -> None:
        if call == point and "_delta_log" not in key:  # whether there is a Delta table is asked before
            raise StoreError(f"{call} of {key}: access denied", durable=Durable.NOTHING)

    store.before = refuse
    with raises(StoreError, durable=Durable.MAYBE) as caught:
        ns.vacuum()
    assert caught.value.advice == f"{StoreError._default_advice}; then call ns.vacuum() again"
    assert ns._connection.follower.state.head.oldest_readable > 0
    if point == "list":
        with raises(StoreError):
            ns.vacuum(dry_run=True)
    store.before = lambda _call, _key: None
    assert counts(ns.vacuum()) == (1, 2, 2)
    assert read(ns) == expected


def test_vacuums_at_once_do_each_others_work(memory: Place, clock: ManualClock) -> None:
    expected = _littered(memory, clock)
    handles = [memory.open(clock=clock) for _ in range(4)]
    for result in run_threads(*[handle.vacuum for handle in handles]):
        assert isinstance(result, Vacuumed), result
    assert read(handles[0]) == expected
    assert len(files(handles[0])) == 3
    check_every_version(memory, clock)


# --- signs of life --------------------------------------------------------------------------------------------------


def hints(ns: Any) -> set[str]:
    """Keys of the signs of life that lie there."""
    return {info.key for info in ns._connection.store.list(keys.HINT_FOLDER)}


def test_hints_that_are_over_go_and_those_of_consumers_stay(lake: Any, memory: Place, clock: ManualClock) -> None:
    lake.create_topic("audit", SCHEMA)
    for topic, name in (("orders", "kept"), ("orders", "dropped"), ("audit", "gone")):
        lake.create_subscription(topic, name, type="failover")
        lake.consumer(topic, name)
    record = lake.subscription("orders", "kept")
    lake.drop_subscription("orders", "dropped")
    lake.drop_topic("audit")
    store = lake._connection.store
    living = {keys.hint_key(record.id, record.epoch), "_hints/none-of-ours.json"}
    for key in (keys.hint_key(record.id, record.epoch - 1), keys.hint_key(4, 5), "_hints/none-of-ours.json"):
        store.put(key, b"{}")
    with Unchanged(memory):
        lake.vacuum(dry_run=True)
        assert len(hints(lake)) == 5
        assert lake.vacuum().deleted_files == 0, "they are no data"
        assert hints(lake) == living


def test_a_hint_of_a_subscription_that_a_vacuum_does_not_know_yet_stays(
    lake: Any, memory: Place, clock: ManualClock
) -> None:
    ns, store = hooked(memory, clock)

    def meanwhile(call: str, key: str) -> None:
        if call == "list" and keys.HINT_FOLDER in key:
            lake.create_subscription("orders", "new", type="failover")
            lake.consumer("orders", "new")

    store.before = meanwhile
    ns.vacuum()
    record = lake.subscription("orders", "new")
    assert hints(lake) == {keys.hint_key(record.id, record.epoch)}


@pytest.mark.parametrize("failing", ["list", "delete"])
def test_a_store_that_fails_with_hints_fails_no_vacuum(
    lake: Any, memory: Place, clock: ManualClock, failing: str
) -> None:
    left_behind(memory, clock, 1).close()
    clock.advance(WEEK_MS)
    ns, store = hooked(memory, clock)
    lake._connection.store.put(keys.hint_key(1, 1), b"{}")

    def fail(call: str, key: str) -> None:
        if call == failing and keys.HINT_FOLDER in key:
            raise StoreError("no permission")

    store.before = fail
    assert ns.vacuum().deleted_files == 1


# --- the call -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", ["r", "rw"])
def test_a_dry_run_counts_what_the_next_one_deletes_and_changes_nothing(
    memory: Place, clock: ManualClock, mode: str
) -> None:
    _littered(memory, clock)
    ns = memory.open(clock=clock, mode=mode)
    before = files(ns)
    with Unchanged(memory):
        found = ns.vacuum(dry_run=True)
    assert files(ns) == before
    done = memory.open(clock=clock).vacuum()
    assert (found.dry_run, done.dry_run) == (True, False)
    assert (counts(found), found.deleted_bytes, found.kept_files) == (counts(done), done.deleted_bytes, done.kept_files)
    assert (found.closed_blocks, found.oldest_readable) == (done.closed_blocks, done.oldest_readable)
    assert (counts(done), done.deleted_files, done.kept_files) == ((1, 2, 2), 5, 3)
    assert done.deleted_bytes > 0


def test_a_vacuum_that_finds_nothing_writes_nothing(lake: Any, memory: Place) -> None:
    lake.produce("orders", rows(1))
    with Unchanged(memory):
        assert lake.vacuum().deleted_files == 0


def test_what_becomes_unreadable_is_known_before_anything_is_written(
    compacted: Any, memory: Place, clock: ManualClock
) -> None:
    lake, version = compacted
    lake.create_topic("audit", SCHEMA)
    lake.produce("audit", rows(1))
    lake.drop_topic("audit")
    dropped = lake.snapshot().version
    clock.advance(WEEK_MS)
    seen: list[Any] = []

    def refuse(unreadable: Any) -> None:
        seen.append(unreadable)
        raise KeyboardInterrupt

    with Unchanged(memory), pytest.raises(KeyboardInterrupt):
        lake.vacuum(before=refuse)
    (unreadable,) = seen
    assert (unreadable.first_version, unreadable.last_version) == (0, dropped - 1)
    assert (unreadable.first_timestamp_ms, unreadable.last_timestamp_ms) == (START_MS, START_MS)
    told = [(item.topic, item.segments, item.size_bytes > 0, item.dropped) for item in unreadable.topics]
    assert told == [("orders", 2, True, False), ("audit", 1, True, True)]
    assert lake.vacuum(dry_run=True, before=refuse).unreadable == unreadable
    assert lake.vacuum(before=seen.append).unreadable == unreadable
    assert lake.vacuum(before=refuse).unreadable is None, "nobody is asked where nothing changes"
    assert read(lake) == [1, 2, 3]
    assert version < dropped


def test_a_later_vacuum_says_only_what_becomes_unreadable_by_it(compacted: Any, clock: ManualClock) -> None:
    lake, _ = compacted
    clock.advance(WEEK_MS)
    lake.produce("orders", rows(4))
    first = lake.vacuum().unreadable
    assert [(item.topic, item.segments) for item in first.topics] == [("orders", 2)]
    assert lake.optimize("orders").merged_segments == 2
    clock.advance(WEEK_MS)
    lake.create_topic("next", SCHEMA)
    second = lake.vacuum().unreadable
    assert second.first_version == first.last_version + 1
    assert [(item.topic, item.segments) for item in second.topics] == [("orders", 2)], "not those of the first again"


def test_durations_have_units(compacted: Any, clock: ManualClock) -> None:
    lake, _ = compacted
    clock.advance(36 * HOUR_MS - 1)
    assert lake.vacuum(retain_ms="36h", grace_ms="1h").deleted_files == 0
    clock.advance(1)
    assert lake.vacuum(retain_ms="36h", grace_ms="1h").replaced_files == 2
    assert lake.transactions(min_age_ms="90s") == ()
    with lake.begin(timeout_ms="2m") as txn:
        txn.produce("orders", rows(4))
    lake.create_subscription("orders", "billing", type="failover", lease_ms="45s")
    assert lake.subscription("orders", "billing").lease_ms == 45_000
    assert len(lake.consumer("orders", "billing").receive(timeout_ms="0ms")) == 4


def test_a_reader_cannot_vacuum(lake: Any, memory: Place, clock: ManualClock) -> None:
    with raises(ReadOnly):
        memory.open(mode="r", clock=clock).vacuum()


@pytest.mark.clause("P-147")
@pytest.mark.parametrize(
    "options",
    [
        {"grace_ms": HOUR_MS - 1},
        {"grace_ms": 0},
        {"retain_ms": -1, "allow_short_retention": True},
        {"retain_ms": "7 days"},
        {"retain_ms": 0},
        {"retain_ms": 604_800},
        {"retain_ms": "59m"},
        {"grace_ms": None},
    ],
)
def test_times_that_make_no_sense_are_refused(lake: Any, memory: Place, clock: ManualClock, options: Any) -> None:
    left_behind(memory, clock, 1).close()
    clock.advance(WEEK_MS)
    before = files(lake)
    with Unchanged(memory), raises(InvalidInputError):
        lake.vacuum(**options)
    assert files(lake) == before


def test_long_work_reports_how_far_it_is(memory: Place, clock: ManualClock) -> None:
    _littered(memory, clock)
    told: list[tuple[str, int, int]] = []
    memory.open(clock=clock).vacuum(progress=lambda *found: told.append(found))
    assert told[-1] == ("orders", 8, 5)


def test_many_files_are_deleted_in_waves(lake: Any, memory: Place, clock: ManualClock) -> None:
    dead = memory.open(clock=clock)
    numbers = dead._connection.appender.take_numbers(600)
    for number in numbers:
        dead._connection.store.put(f"orders/_txnlog_segment={number}/{'0' * 32}.parquet", b"x")
    dead.close()
    clock.advance(WEEK_MS)
    told: list[int] = []
    ns = memory.open(clock=clock)
    found = ns.vacuum(progress=lambda _topic, _seen, deleted: told.append(deleted))
    assert (found.unnamed_files, found.deleted_bytes) == (600, 600)
    assert told == [256, 512, 600, 600]
    assert files(ns) == set()
