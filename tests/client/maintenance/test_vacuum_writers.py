"""Vacuum while others write: files that no entry names go, and those of a writer at work stay."""

from __future__ import annotations

from typing import Any

import pytest

from tests.by_hand import compact
from tests.client.support import Place, begun, is_entry, raises, read, rows, staged
from tests.client.vacuums import HOUR_MS, WEEK_MS, check_every_version, concerns, counts, files, hooked, left_behind
from txnlog.errors import CoordinatorFenced
from txnlog.fold.number_blocks import TOUCH_MS
from txnlog.format.actions import Close, Vacuum
from txnlog.testing import ManualClock
from txnlog.testing.scheduler import START_MS


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
    txn = begun(lake, 4, flush=True)
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
    txn = begun(paused, 2)

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
    txn = begun(writer, 1)
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
    txn = begun(writer, 1)
    staged(txn)  # its file is there; frozen before its entry
    clock.advance(2 * HOUR_MS)
    ns, store = hooked(memory, clock)
    woken: list[str] = []

    def wake(call: str, key: str) -> None:
        if call == point and "_log/" not in key and not woken:
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
    txn = begun(busy, 3)
    staged(txn)  # a file without an entry
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
