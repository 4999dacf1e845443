"""The call of a vacuum: its arguments, its dry run, and what it says."""

from __future__ import annotations

from typing import Any

import pytest

from tests.client.support import SCHEMA, Place, Unchanged, committed, raises, read, rows
from tests.client.vacuums import HOUR_MS, WEEK_MS, compacted, counts, files, left_behind, littered
from txnlog.errors import InvalidInputError
from txnlog.testing import ManualClock
from txnlog.testing.scheduler import START_MS

__all__ = ["compacted"]  # fixtures


@pytest.mark.parametrize("mode", ["r", "rw"])
def test_a_dry_run_counts_what_the_next_one_deletes_and_changes_nothing(
    memory: Place, clock: ManualClock, mode: str
) -> None:
    littered(memory, clock)
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
    committed(lake, 4, timeout_ms="2m")
    lake.create_subscription("orders", "billing", type="failover", lease_ms="45s")
    assert lake.subscription("orders", "billing").lease_ms == 45_000
    assert len(lake.consumer("orders", "billing").receive(timeout_ms="0ms")) == 4


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
    littered(memory, clock)
    told: list[tuple[str, int, int]] = []
    memory.open(clock=clock).vacuum(progress=lambda *found: told.append(found))
    assert told[-1] == ("orders", 8, 5)


def test_the_progress_of_a_topic_counts_its_own_files(memory: Place, clock: ManualClock) -> None:
    ns = memory.open(clock=clock)
    dead = ns._connection.appender.take_numbers(5)
    for topic, count in (("orders", 3), ("payments", 2)):
        ns.create_topic(topic, SCHEMA)
        for _ in range(count):
            ns._connection.store.put(f"{topic}/_txnlog_segment={dead.pop()}/{'0' * 32}.parquet", b"x")
    ns.close()
    clock.advance(WEEK_MS)
    told: dict[str, tuple[int, int]] = {}
    memory.open(clock=clock).vacuum(progress=lambda topic, *found: told.update({topic: found}))
    assert told == {"orders": (3, 3), "payments": (2, 2)}


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
