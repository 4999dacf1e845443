"""Deleting messages by offset or time: at which versions they are gone, and what subscriptions keep."""

from __future__ import annotations

import datetime
import logging
from typing import Any

import pytest

from tests.client.support import SCHEMA, Place, Unchanged, ids, raises, rows
from txnlog.errors import InvalidInputError, OffsetOutOfRange, ReadOnly, TopicNotFound
from txnlog.testing import ManualClock


def left(ns: Any, version: int | None = None) -> list[int]:
    return sorted(ids(ns.snapshot(version).read("orders")))


def test_messages_before_an_offset_are_gone_at_every_version(ten: Any, place: Place) -> None:
    before = ten.snapshot().version
    done = ten.delete_records("orders", {0: 4})
    assert (done.messages, dict(done.start_offsets), done.dry_run) == (4, {0: 4}, False)
    assert done.version == ten.snapshot().version == before + 1
    for client in (ten, place.open(mode="r")):
        assert left(client) == left(client, before) == [4, 5, 6, 7, 8, 9]
        assert client.snapshot().start_offsets("orders") == {0: 4}
        assert client.snapshot().end_offsets("orders") == {0: 10}
    assert ten.produce("orders", rows(10)).offsets["orders", 0] == range(10, 11)


def test_a_second_deletion_up_to_there_writes_nothing(ten: Any, place: Place) -> None:
    ten.delete_records("orders", {0: 4})
    with Unchanged(place):
        for offset in (0, 3, 4):
            done = ten.delete_records("orders", {0: offset})
            assert (done.messages, done.version, dict(done.start_offsets)) == (0, None, {0: 4})


def test_a_dry_run_counts_and_writes_nothing(ten: Any, place: Place) -> None:
    for client in (ten, place.open(mode="r")):
        with Unchanged(place):
            done = client.delete_records("orders", {0: 7}, dry_run=True)
        assert (done.messages, done.version, dict(done.start_offsets), done.dry_run) == (7, None, {0: 7}, True)
    assert left(ten) == list(range(10))
    for dry_run in (False, True):
        for client in (ten, place.open()):  # also one that has no numbers yet
            with (
                Unchanged(place),
                raises(OffsetOutOfRange, "begins at offset 0 and ends at 10; 11 is outside .use 0 to 10"),
            ):
                client.delete_records("orders", {0: 11}, dry_run=dry_run)


@pytest.mark.parametrize("type_", ["exclusive", "failover", "shared"])
def test_a_consumer_warns_once_of_messages_that_nobody_receives_any_more(
    ten: Any, caplog: pytest.LogCaptureFixture, type_: str
) -> None:
    consumer = ten.consumer("orders", subscription="billing", type=type_)
    consumer.acknowledge(consumer.receive(2))
    ten.delete_records("orders", {0: 6}, allow_unacknowledged=True)
    with caplog.at_level(logging.WARNING, "txnlog.consumer"):
        assert ids(consumer.receive(2).table) == [6, 7]
        assert ids(consumer.receive(2).table) == [8, 9]
    found = [record.getMessage() for record in caplog.records]
    assert found == ["4 messages of partition 0 of 'orders' were deleted before a consumer acknowledged them"]


def test_partitions_that_are_not_named_stay(ns: Any) -> None:
    ns.produce("orders", rows(*range(5)), partition=0)
    ns.produce("orders", rows(*range(5, 10)), partition=1)
    done = ns.delete_records("orders", {1: 3})
    assert (done.messages, dict(done.start_offsets)) == (3, {0: 0, 1: 3})
    assert left(ns) == [0, 1, 2, 3, 4, 8, 9]
    assert ns.delete_records("orders", "latest").messages == 7
    assert left(ns) == []


def test_by_time_an_entry_is_as_old_as_its_timestamp(lake: Any, clock: ManualClock) -> None:
    lake.produce("orders", rows(1))
    clock.advance(60_000)
    moment = datetime.datetime.fromtimestamp(clock.now_ms() / 1000, datetime.UTC)
    lake.produce("orders", rows(2))
    clock.advance(60_000)
    lake.produce("orders", rows(3))
    assert lake.delete_records("orders", moment - datetime.timedelta(milliseconds=1)).messages == 1
    assert left(lake) == [2, 3]
    assert lake.delete_records("orders", moment.isoformat()).messages == 1
    assert left(lake) == [3]


def test_what_a_subscription_has_not_acknowledged_is_refused_unless_it_is_meant(ten: Any, place: Place) -> None:
    for name, count in (("billing", 3), ("search", 5)):
        consumer = ten.consumer("orders", subscription=name)
        consumer.acknowledge(consumer.receive(count), cumulative=True)
    with Unchanged(place), raises(InvalidInputError, "'billing' 3, 'search' 1 .*allow_unacknowledged=True"):
        ten.delete_records("orders", {0: 6})
    assert ten.delete_records("orders", {0: 3}).messages == 3
    assert ten.delete_records("orders", {0: 6}, allow_unacknowledged=True).messages == 3
    again = ten.consumer("orders", subscription="billing").receive(10)
    assert again.table["id"].to_pylist() == [6, 7, 8, 9]


def test_what_was_acknowledged_by_itself_above_the_cursor_is_not_needed(ten: Any) -> None:
    consumer = ten.consumer("orders", subscription="billing", type="shared")
    messages = consumer.receive(10)
    consumer.acknowledge(messages[[0, 2, 3]])
    with raises(InvalidInputError, "'billing' 1"):
        ten.delete_records("orders", {0: 4})
    consumer.acknowledge(messages[[1]])
    assert ten.delete_records("orders", {0: 4}).messages == 4


@pytest.mark.parametrize(
    ("before", "kind", "text"),
    [
        ({0: 11}, OffsetOutOfRange, "begins at offset 0 and ends at 10; 11 is outside"),
        ({1: 1}, OffsetOutOfRange, "no partition 1"),
        ({0: -1}, InvalidInputError, "an offset"),
        (7, InvalidInputError, "unknown position"),
        ("2030-01-01T00:00:00Z", InvalidInputError, "in the future"),
        ("2020-01-01T00:00:00", InvalidInputError, "unknown position"),
    ],
)
def test_a_position_that_makes_no_sense_is_refused(ten: Any, place: Place, before: Any, kind: Any, text: str) -> None:
    with Unchanged(place), raises(kind, text):
        ten.delete_records("orders", before)


def test_who_may_not_write_and_what_is_not_there(ten: Any, place: Place) -> None:
    with raises(ReadOnly):
        place.open(mode="r").delete_records("orders", {0: 1})
    with raises(TopicNotFound, "orders"):
        ten.delete_records("order", {0: 1})
    with raises(InvalidInputError, "allow_unacknowledged"):
        ten.delete_records("orders", {0: 1}, allow_unacknowledged="no")


def test_files_with_nothing_left_go_with_the_next_maintenance(lake: Any, memory: Place, clock: ManualClock) -> None:
    for number in range(3):
        lake.produce("orders", rows(number))
    lake.delete_records("orders", {0: 2})
    done = lake.maintain()
    assert [(item.merged_segments, item.written_segments) for item in done.optimized] == [(2, 0)]
    clock.advance(8 * 86_400_000)
    assert lake.maintain().vacuumed.replaced_files == 2
    assert left(lake) == left(memory.open(mode="r")) == [2]


def test_a_topic_made_by_an_entry_behind_the_time_has_nothing_to_delete(lake: Any, clock: ManualClock) -> None:
    moment = datetime.datetime.fromtimestamp(clock.now_ms() / 1000, datetime.UTC)
    clock.advance(1_000)
    lake.create_topic("late", SCHEMA)
    lake.produce("late", rows(1))
    assert lake.delete_records("late", moment).messages == 0


def test_what_was_deleted_is_no_lag_and_holds_up_no_retention(lake: Any, clock: ManualClock) -> None:
    """A Shared cursor stays below what was deleted: nobody acknowledges that any more."""
    lake.produce("orders", rows(*range(6)))
    clock.advance(60_000)
    consumer = lake.consumer("orders", subscription="billing", type="shared")
    consumer.acknowledge(consumer.receive(10)[[2, 3, 5]])
    lake.delete_records("orders", {0: 2}, allow_unacknowledged=True)
    (found,) = lake.lag("orders", "billing")
    assert (found.cursor, found.behind_messages, found.behind_ms) == (0, 1, 60_000)
    lake.alter_topic("orders", retention_ms="1s")
    (shown,) = lake.retention()
    assert (shown.due_messages, shown.kept_messages) == (2, 2)
    assert lake.maintain().retained[0].messages == 2
    assert left(lake) == [4, 5]
