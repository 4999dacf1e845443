"""Vacuum: what ended is deleted once nobody can read it, what is open or may be needed stays."""

from __future__ import annotations

from typing import Any

import pytest

from tests.by_hand import append
from tests.client.support import SCHEMA, Place, Unchanged, begun, ids, raises, read, rows, staged
from tests.client.vacuums import (
    DAY_MS,
    HOUR_MS,
    WEEK_MS,
    check_every_version,
    compacted,
    counts,
    files,
    hooked,
    left_behind,
)
from txnlog.errors import CorruptionError, Durable, RetriableError, StoreError, VersionNotAvailable
from txnlog.format import keys
from txnlog.format.actions import Begin, Commit
from txnlog.testing import ManualClock

__all__ = ["compacted"]  # fixtures


# --- what is open -----------------------------------------------------------------------------------------------------


@pytest.mark.clause("P-43", "P-130")
@pytest.mark.parametrize("kind", ["prepared", "hanging"])
def test_what_open_and_prepared_transactions_logged_stays(
    lake: Any, memory: Place, clock: ManualClock, kind: str
) -> None:
    owner = memory.open(clock=clock)
    txn = begun(owner, 1)
    if kind == "prepared":
        txn.prepare()
    else:
        staged(txn)
        append(owner, Begin(txn.id.number), *txn._machine.work.staged)  # without a deadline
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
    txn = begun(lake, 1, flush=True)
    clock.advance(WEEK_MS)
    other = memory.open(clock=clock)
    assert other.vacuum(retain_ms=0, allow_short_retention=True).deleted_files == 0
    other.produce("orders", rows(2))
    assert other.transaction(txn.id).reason == "timeout"
    clock.advance(DAY_MS)
    assert counts(other.vacuum(retain_ms=0, allow_short_retention=True)) == (0, 1, 0)
    assert read(lake) == [2]


# --- what ended -------------------------------------------------------------------------------------------------------


@pytest.mark.clause("P-92", "P-103", "P-130", "P-149")
def test_aborted_rows_go_after_the_grace_and_no_reader_misses_them(
    lake: Any, memory: Place, clock: ManualClock
) -> None:
    lake.produce("orders", rows(1))
    txn = begun(lake, 2, flush=True)
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
@pytest.mark.parametrize(("knows", "has_read"), [(True, False), (False, False), (True, True)])
def test_a_reader_of_a_version_that_was_vacuumed_gets_the_range(
    compacted: Any, memory: Place, clock: ManualClock, knows: bool, has_read: bool
) -> None:
    lake, version = compacted
    reader = memory.open(clock=clock, mode="r")
    snapshot = reader.snapshot(version=version - 1)
    if has_read:  # and has it in memory
        assert ids(snapshot.read("orders")) == [1, 2, 3]
    scan = snapshot.scan("orders")
    clock.advance(WEEK_MS)
    lake.vacuum()
    if knows:
        reader.snapshot()
    for call in (lambda: snapshot.read("orders"), *([] if has_read else [scan.read_all])):
        with raises(VersionNotAvailable, match=f"version {version - 1} cannot be read") as caught:
            call()
        assert caught.value.advice.startswith(f"versions {version} to ")
    assert ids(reader.snapshot().read("orders")) == [1, 2, 3]


@pytest.mark.clause("P-149", "P-150")
def test_a_reader_of_aborted_rows_that_were_vacuumed_reads_again(lake: Any, memory: Place, clock: ManualClock) -> None:
    txn = begun(lake, 1, flush=True)
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
    txn = begun(lake, 4, flush=True)
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
        if call == "list" and "_log/" not in key:  # the log, and whether there is a Delta table, is looked at before
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
    txn = begun(lake, 2, flush=True)
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


# --- checkpoints ------------------------------------------------------------------------------------------------------


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
    txn = begun(lake, 5, flush=True)
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


# --- signs of life ----------------------------------------------------------------------------------------------------


def hints(ns: Any) -> set[str]:
    """Keys of the signs of life that lie there."""
    return {info.key for info in ns._connection.store.list(keys.HEARTBEAT_FOLDER)}


def test_hints_that_are_over_go_and_those_of_consumers_stay(lake: Any, memory: Place, clock: ManualClock) -> None:
    lake.create_topic("audit", SCHEMA)
    for topic, name in (("orders", "kept"), ("orders", "dropped"), ("audit", "gone")):
        lake.create_subscription(topic, name, type="failover")
        lake.consumer(topic, name)
    record = lake.subscription("orders", "kept")
    lake.drop_subscription("orders", "dropped")
    lake.drop_topic("audit")
    store = lake._connection.store
    living = {keys.heartbeat_key(record.id, record.epoch), "_hints/none-of-ours.json"}
    for key in (keys.heartbeat_key(record.id, record.epoch - 1), keys.heartbeat_key(4, 5), "_hints/none-of-ours.json"):
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
        if call == "list" and keys.HEARTBEAT_FOLDER in key:
            lake.create_subscription("orders", "new", type="failover")
            lake.consumer("orders", "new")

    store.before = meanwhile
    ns.vacuum()
    record = lake.subscription("orders", "new")
    assert hints(lake) == {keys.heartbeat_key(record.id, record.epoch)}


@pytest.mark.parametrize("failing", ["list", "delete"])
def test_a_store_that_fails_with_hints_fails_no_vacuum(
    lake: Any, memory: Place, clock: ManualClock, failing: str
) -> None:
    left_behind(memory, clock, 1).close()
    clock.advance(WEEK_MS)
    ns, store = hooked(memory, clock)
    lake._connection.store.put(keys.heartbeat_key(1, 1), b"{}")

    def fail(call: str, key: str) -> None:
        if call == failing and keys.HEARTBEAT_FOLDER in key:
            raise StoreError("no permission")

    store.before = fail
    assert ns.vacuum().deleted_files == 1
