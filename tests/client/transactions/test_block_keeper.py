"""Who shows life: how a writer at work keeps its block of numbers open, and how that ends."""

from __future__ import annotations

from typing import Any

import pytest

from tests.by_hand import append
from tests.client.support import SCHEMA, Place, Unchanged, committed, read, rows, staged, wait_for
from txnlog.api.writing import begin_transaction
from txnlog.client import block_keeper
from txnlog.engine.effects import Pause
from txnlog.engine.engine import engine_of_process
from txnlog.errors import CoordinatorFenced
from txnlog.fold.number_blocks import block_of
from txnlog.format.actions import Begin, Close, Commit, Renew
from txnlog.testing import ManualClock
from txnlog.testing.scheduler import START_MS

HOUR_MS = 3_600_000
DAY_MS = 24 * HOUR_MS
RENEW_MS = 20 * 60_000


def renewed(ns: Any, since: int) -> list[int]:
    """First numbers of the blocks that were renewed after a version."""
    newest = ns.snapshot().version
    entries = [ns._connection.follower.log.entry(version) for version in range(since + 1, newest + 1)]
    return [action.first for entry in entries for action in entry.actions if isinstance(action, Renew)]


@pytest.mark.clause("P-45")
def test_a_renewal_rides_in_the_next_entry_of_a_writer_that_was_silent_for_a_third_of_the_hour(
    lake: Any, clock: ManualClock
) -> None:
    lake.begin()
    before = lake.snapshot().version
    (block,) = lake._connection.follower.state.blocks.values()
    clock.advance(RENEW_MS - 1)
    lake.create_topic("first", SCHEMA)
    assert renewed(lake, before) == []
    clock.advance(1)
    lake.create_topic("second", SCHEMA)
    assert renewed(lake, before) == [block.first]
    assert lake.snapshot().version == before + 2, "no entry of its own"
    assert lake._connection.follower.state.blocks[block.first].touched_ms == START_MS + RENEW_MS
    lake.create_topic("third", SCHEMA)
    assert renewed(lake, before) == [block.first]


@pytest.mark.clause("P-45")
def test_whoever_takes_a_number_after_a_silence_has_time_to_use_it(
    lake: Any, memory: Place, clock: ManualClock
) -> None:
    writer = memory.open(clock=clock)
    writer.begin()
    clock.advance(55 * 60_000)
    before = writer.snapshot().version
    txn = writer.begin(timeout_ms=15 * 60_000)
    assert len(renewed(writer, before)) == 1
    assert writer.begin().id != txn.id
    assert writer.snapshot().version == before + 1
    txn.produce("orders", rows(1))
    clock.advance(14 * 60_000)
    memory.open(clock=clock).vacuum(grace_ms=HOUR_MS)
    txn.commit()
    assert read(lake) == [1]


@pytest.mark.clause("P-45")
def test_blocks_that_were_used_up_are_let_go(lake: Any, memory: Place, clock: ManualClock) -> None:
    writer = memory.open(clock=clock)
    for _ in range(40):
        writer._connection.appender.take_numbers(256)
    held = len(writer._connection.follower.state.blocks)
    for _ in range(12):
        clock.advance(RENEW_MS)
        writer.begin()
    found = memory.open(clock=clock).vacuum(grace_ms=HOUR_MS)
    assert found.closed_blocks >= held - 2 >= 2
    committed(writer, 1)
    assert read(lake) == [1]


@pytest.fixture
def busy(memory: Place, lake: Any, clock: ManualClock) -> Any:
    """A writer, and what makes hours of its work pass under the eyes of a vacuum."""
    writer, other = memory.open(clock=clock), memory.open(clock=clock)

    def pass_hours(count: int) -> None:
        for _ in range(12 * count):
            clock.advance(HOUR_MS // 12)
            writer.produce("orders", rows(0))
            other.vacuum(grace_ms=HOUR_MS)

    return writer, pass_hours


def use_up(writer: Any) -> None:
    """The writer's numbers are gone: what it renews now is the blocks of those that it gave to somebody."""
    writer._connection.appender.take_numbers(writer._connection.appender.numbers._left)


def first_of_block(ns: Any, number: int) -> int | None:
    """The first number of the open block that holds a number."""
    ns.snapshot()
    block = block_of(ns._connection.follower.state.draft(), number)
    return None if block is None else block.first


@pytest.mark.clause("P-45")
def test_a_transaction_that_was_begun_and_not_used_for_long_can_be_used_next_to_a_busy_writer(
    busy: Any, lake: Any
) -> None:
    writer, pass_hours = busy
    txn = writer.begin()
    use_up(writer)
    before = lake.snapshot().version
    pass_hours(20)
    txn.produce("orders", rows(1))
    assert read(writer).count(1) == 0
    txn.commit()
    assert read(lake).count(1) == 1
    first = first_of_block(lake, txn.id.number)
    assert renewed(lake, before).count(first) == 60, "every twenty minutes"


@pytest.mark.clause("P-45")
def test_segments_that_wait_for_their_entry_are_kept_nameable_next_to_a_busy_writer(busy: Any, lake: Any) -> None:
    writer, pass_hours = busy
    use_up(writer)
    writer.produce("orders", rows(0))
    txn = begin_transaction(writer._connection, None, None, timed_from_log=True)
    txn.produce("orders", rows(1))
    use_up(writer)
    writer.produce("orders", rows(0))
    staged(txn)
    use_up(writer)
    pass_hours(20)
    txn.commit()
    assert read(lake).count(1) == 1


def end(txn: Any, how: str) -> None:
    """Bring a transaction to its end, or to where the log ends it."""
    if how == "flushed, then timed out":
        txn.produce("orders", rows(1))
        txn.flush()
    elif how == "committed":
        txn.produce("orders", rows(1))
        txn.commit()
    elif how == "committed empty":
        txn.commit()
    elif how == "aborted":
        txn.abort()


@pytest.mark.parametrize("how", ["committed", "committed empty", "aborted", "flushed, then timed out", "gone"])
def test_a_transaction_that_has_ended_keeps_no_block_open(busy: Any, how: str) -> None:
    writer, pass_hours = busy
    txn = writer.begin()
    number = txn.id.number
    use_up(writer)
    end(txn, how)
    if how == "gone":
        del txn
    pass_hours(3)
    assert first_of_block(writer, number) is None


def test_a_forgotten_transaction_keeps_its_block_open_for_a_day_and_no_longer(busy: Any) -> None:
    writer, pass_hours = busy
    txn = writer.begin()
    use_up(writer)
    pass_hours(24)
    assert first_of_block(writer, txn.id.number) is not None
    pass_hours(2)
    assert first_of_block(writer, txn.id.number) is None
    txn.produce("orders", rows(1))
    with pytest.raises(CoordinatorFenced):
        txn.commit()


def renew(ns: Any, keeper: Any) -> None:
    """Let a keeper look now."""
    ns._connection.appender.run(keeper.renew_if_due)


@pytest.fixture
def job(memory: Place, lake: Any, clock: ManualClock) -> tuple[Any, range, Any]:
    """A handle, a block for a long job, and its keeper."""
    driver = memory.open(clock=clock)
    block = driver._connection.reserve_block(256)
    return driver, block, driver._connection.keep_alive(block.start + 7)


@pytest.mark.clause("P-45", "P-131")
def test_the_block_of_a_long_job_is_kept_open(job: Any, memory: Place, clock: ManualClock) -> None:
    driver, block, keeper = job
    before = driver.snapshot().version
    for _ in range(3 * 12):
        clock.advance(RENEW_MS // 4)
        renew(driver, keeper)
        assert memory.open(clock=clock).vacuum(grace_ms=HOUR_MS).closed_blocks <= 1
    assert renewed(driver, before).count(block.start) == 9
    append(driver, Begin(block.start), Commit(block.start))


@pytest.mark.clause("P-45")
def test_a_renewal_that_fails_is_tried_again_and_troubles_nobody(
    memory: Place, lake: Any, clock: ManualClock, caplog: Any
) -> None:
    driver, store = memory.faulty(clock=clock)
    block = driver._connection.reserve_block(256)
    keeper = driver._connection.keep_alive(block.start)
    clock.advance(RENEW_MS)
    store.script.append("refused")
    renew(driver, keeper)
    assert "was not renewed: no space left" in caplog.text
    renew(driver, keeper)
    assert driver._connection.follower.state.blocks[block.start].touched_ms == START_MS + RENEW_MS


def test_a_block_that_was_closed_is_not_renewed(job: Any, memory: Place, clock: ManualClock) -> None:
    driver, block, keeper = job
    clock.advance(DAY_MS)
    other = memory.open(clock=clock)
    append(other, Close(block.start))
    with Unchanged(memory):
        renew(driver, keeper)


def test_a_keeper_looks_now_and_then_until_its_job_ends(
    job: Any, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    driver, block, keeper = job
    looks: list[float] = []

    def pause(milliseconds: float) -> Pause:
        looks.append(milliseconds)
        clock.advance(int(milliseconds))
        return Pause(0 if len(looks) <= 8 else 1_000_000)

    monkeypatch.setattr(block_keeper, "Pause", pause)
    under_way = set(engine_of_process()._under_way)
    with keeper:
        wait_for(lambda: len(looks) == 9)
    assert looks == [RENEW_MS / 4] * 9
    assert driver._connection.follower.state.blocks[block.start].touched_ms == START_MS + 2 * RENEW_MS
    wait_for(lambda: set(engine_of_process()._under_way) <= under_way)
