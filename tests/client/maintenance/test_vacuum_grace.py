"""What a vacuum keeps only because ``grace_ms`` had not passed, and when it can go."""

from __future__ import annotations

from typing import Any

import pytest

from tests.client.support import Place, Unchanged, raises, read, rows
from tests.client.vacuums import DAY_MS, HOUR_MS, WEEK_MS, compacted, counts, files, left_behind
from txnlog.errors import StoreError
from txnlog.fold.number_blocks import TOUCH_MS
from txnlog.results import Vacuumed
from txnlog.testing import ManualClock

__all__ = ["compacted"]  # a fixture


def waiting(found: Vacuumed) -> tuple[int, int, int | None]:
    return found.waiting_files, found.waiting_bytes, found.waiting_until_ms


def sizes(ns: Any, numbers: set[int]) -> int:
    """Bytes of the files of these segments."""
    found = ns._connection.store.list("")
    return sum(info.size_bytes for info in found if any(f"_txnlog_segment={number}/" in info.key for number in numbers))


@pytest.mark.clause("P-130", "P-131", "P-147")
@pytest.mark.parametrize("dry_run", [True, False])
def test_files_of_a_writer_that_died_wait_for_the_grace_and_can_go_at_the_time_that_is_named(
    lake: Any, memory: Place, clock: ManualClock, dry_run: bool
) -> None:
    lake.produce("orders", rows(1))
    named = files(lake)
    left_behind(memory, clock, 2).close()
    size_bytes = sizes(lake, files(lake) - named)
    until_ms = clock.now_ms() + HOUR_MS + TOUCH_MS
    clock.advance(HOUR_MS + TOUCH_MS - 1)
    with Unchanged(memory):
        found = lake.vacuum(grace_ms=HOUR_MS, dry_run=dry_run)
    assert (found.deleted_files, found.kept_files) == (0, 2), "those that wait are among the kept ones"
    assert waiting(found) == (1, size_bytes, until_ms)
    assert size_bytes > 0
    clock.advance(1)
    assert clock.now_ms() == until_ms
    found = lake.vacuum(grace_ms=HOUR_MS, dry_run=dry_run)
    assert (counts(found), found.kept_files) == ((1, 0, 0), 1)
    assert found.closed_blocks == 1, "not that of the caller, who has been silent for as long"
    assert waiting(found) == (0, 0, None)
    assert read(lake) == [1]
    assert (files(lake) == named) is not dry_run


def test_the_last_of_several_writers_decides_when_all_of_it_can_go(
    lake: Any, memory: Place, clock: ManualClock
) -> None:
    left_behind(memory, clock, 1).close()
    clock.advance(HOUR_MS // 2)
    left_behind(memory, clock, 2).close()
    found = lake.vacuum(grace_ms=HOUR_MS)
    assert found.waiting_files == 2
    assert found.waiting_until_ms == clock.now_ms() + HOUR_MS + TOUCH_MS
    clock.advance(HOUR_MS + TOUCH_MS)
    assert lake.vacuum(grace_ms=HOUR_MS).deleted_files == 2


def test_files_whose_writer_has_an_open_transaction_wait_for_its_end_and_not_for_the_grace(
    lake: Any, memory: Place, clock: ManualClock
) -> None:
    ns, store = memory.faulty(clock=clock)
    held = ns.begin(timeout_ms=15 * 60_000)
    held.produce("orders", rows(1))
    held.flush()
    lost = ns.begin(timeout_ms=15 * 60_000)
    lost.produce("orders", rows(2))
    store.script.append("refused")
    with raises(StoreError):
        lost.flush()
    found = lake.vacuum(grace_ms=HOUR_MS)
    assert (found.kept_files, waiting(found)) == (2, (0, 0, None))
    held.commit()
    assert lake.vacuum(grace_ms=HOUR_MS).waiting_files == 1


@pytest.mark.parametrize("dry_run", [True, False])
def test_replaced_files_wait_where_the_grace_is_longer_than_the_retention(
    compacted: Any, clock: ManualClock, dry_run: bool
) -> None:
    lake, version = compacted
    replaced = files(lake) - {item.number for item in lake.snapshot().plan("orders").segments}
    since_ms = lake._connection.follower.log.entry(version).header.timestamp_ms
    clock.advance(WEEK_MS - 1)
    found = lake.vacuum(grace_ms=2 * WEEK_MS, dry_run=dry_run)
    assert (found.kept_files, waiting(found)) == (3, (0, 0, None)), "the retention keeps them as well"
    clock.advance(1)
    found = lake.vacuum(grace_ms=2 * WEEK_MS, dry_run=dry_run)
    assert (found.deleted_files, found.kept_files) == (0, 3)
    assert waiting(found) == (2, sizes(lake, replaced), since_ms + 2 * WEEK_MS)
    clock.advance(WEEK_MS)
    assert counts(lake.vacuum(grace_ms=2 * WEEK_MS, dry_run=dry_run)) == (0, 0, 2)


def test_nothing_waits_where_everything_is_needed(lake: Any, clock: ManualClock) -> None:
    lake.produce("orders", rows(1))
    clock.advance(DAY_MS)
    assert waiting(lake.vacuum()) == (0, 0, None)
