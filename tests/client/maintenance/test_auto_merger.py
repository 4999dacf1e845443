"""Small segments are merged by those who commit: when, by whom, and what a failure of it costs (nothing)."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

import pytest

from tests.client.merging import INTERVAL, actions, at_rest, commit, everything, merger, orders, segments, whole
from tests.client.support import SCHEMA, Place, raises, read, rows, wait_for
from txnlog.errors import AccessDenied, InvalidInputError, StoreError, TopicExists
from txnlog.format.actions import Replace, Segment
from txnlog.maintenance.merging import Merger
from txnlog.maintenance.optimizer import Optimization

pytestmark = pytest.mark.usefixtures("soon")


def test_small_segments_become_few_and_every_version_shows_the_same(place: Place) -> None:
    ns = orders(place)
    commit(ns, 100)
    assert sum(segments(ns)) == 100
    assert len(segments(ns)) <= INTERVAL * 1.5 + 5, "a few merged ones, and the newest"
    assert read(ns) == list(range(100))
    before = everything(ns)
    assert {version: whole(place.open(mode="r"), "orders", version) for version in before} == before
    shown = [row["id"] for row in whole(ns)]
    assert shown == list(range(100)), "in the order of their offsets"


def test_a_row_is_written_again_as_often_as_it_takes_for_as_many_to_come(memory: Place) -> None:
    """Twice as many commits cost one merge of each row more, and not as many again.

    How many merges there are is up to the background, which may be behind: the bound is that of doubling.
    """
    ns = orders(memory)
    commit(ns, 128)
    assert sum(item.rows for item in merged_segments(ns)) <= 128 * 7
    commit(ns, 128, 128)
    assert sum(item.rows for item in merged_segments(ns)) <= 256 * 8


def merged_segments(ns: Any) -> list[Any]:
    return [item for item in actions(ns, Segment) if item.compacted]


def test_a_topic_may_have_it_by_hand_only(memory: Place) -> None:
    ns = orders(memory, merge="manual")
    assert ns.topic("orders").properties == {"txnlog.merge": "manual"}
    commit(ns, 30)
    assert len(segments(ns)) == 30
    ns.alter_topic("orders", merge="auto")
    assert ns.topic("orders").properties == {}
    commit(ns, 1, 30)
    assert len(segments(ns)) < 10
    ns.alter_topic("orders", merge="manual")
    commit(ns, 30, 31)
    assert len(segments(ns)) > 30


def test_the_setting_is_checked(memory: Place) -> None:
    ns = memory.open()
    with raises(InvalidInputError, "unknown merge 'never'"):
        ns.create_topic("orders", SCHEMA, merge="never")
    with raises(InvalidInputError, "merge='auto' or merge='manual'"):
        ns.create_topic("orders", SCHEMA, properties={"merge": "auto"})
    with raises(InvalidInputError, "use merge="):
        ns.create_topic("orders", SCHEMA, properties={"txnlog.merge": "auto"})
    ns.create_topic("orders", SCHEMA, merge="manual")
    with raises(TopicExists, "merge: 'manual' instead of 'auto'"):
        ns.create_topic("orders", SCHEMA, merge="auto", if_not_exists=True)
    ns.create_topic("orders", SCHEMA, if_not_exists=True)


def test_programs_that_commit_once_each_merge_as_well(place: Place) -> None:
    """None of them commits often enough by itself."""
    orders(place).close()
    for number in range(40):
        ns = place.open()
        ns.produce("orders", rows(number))
        ns.close()
    ns = place.open(mode="r")
    assert read(ns) == list(range(40))
    assert len(segments(ns)) <= 20


def test_of_several_processes_mostly_one_merges(memory: Place) -> None:
    many = [orders(memory), *(memory.open() for _ in range(3))]
    for number in range(60):
        many[number % 4].produce("orders", rows(number))
        for ns in many:
            ns._connection.follower.refresh()
        for ns in many:
            at_rest(ns)
    assert read(many[0]) == list(range(60))
    replaced = [number for item in actions(many[0], Replace) for number in item.removed]
    assert len(replaced) == len(set(replaced)), "each is replaced once"
    assert len(segments(many[0])) <= INTERVAL * 1.5 + 5


def test_what_another_one_merged_first_is_merged_by_nobody_else(
    memory: Place, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Both read the same segments; the entry of the second one replaces nothing, and it says nothing."""
    ns, rival = orders(memory), memory.open()
    stored = Merger._stored

    def slow(self: Merger, *arguments: Any) -> Any:
        monkeypatch.setattr(Merger, "_stored", stored)
        rival.optimize("orders")
        return stored(self, *arguments)

    monkeypatch.setattr(Merger, "_stored", slow)
    with caplog.at_level(logging.INFO):
        commit(ns, 14)
    assert read(ns) == list(range(14))
    replaced = [number for item in actions(ns, Replace) for number in item.removed]
    assert len(replaced) == len(set(replaced))
    assert not [record for record in caplog.records if "merge" in record.getMessage()]


@pytest.mark.parametrize("error", [StoreError("disk on fire"), ValueError("a bug")])
def test_a_merge_that_fails_fails_no_commit_and_is_done_later(
    memory: Place, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, error: Exception
) -> None:
    ns = orders(memory)
    stored = Merger._stored

    def fail(*_: Any) -> Any:
        raise error

    monkeypatch.setattr(Merger, "_stored", fail)
    commit(ns, 14)
    assert "not merged" in caplog.text
    assert len(segments(ns)) == 14
    assert len([r for r in caplog.records if "not merged" in r.getMessage()]) == 1, "not at each commit"
    monkeypatch.setattr(Merger, "_stored", stored)
    commit(ns, 16, 14)
    assert len(segments(ns)) < 20
    assert read(ns) == list(range(30))


def test_who_lacks_the_right_leaves_it_to_others(
    memory: Place, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A consumer that acknowledges may write no segment."""
    ns = orders(memory)
    asked: list[int] = []

    def denied(*_: Any) -> Any:
        asked.append(1)
        raise AccessDenied("no right", right="write")

    monkeypatch.setattr(Merger, "_stored", denied)
    commit(ns, 40)
    assert len(asked) == 1
    assert "merge" not in caplog.text


def test_a_topic_that_is_dropped_meanwhile_is_no_failure(
    memory: Place, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    ns, rival = orders(memory), memory.open()
    stored = Merger._stored

    def dropped(self: Merger, *arguments: Any) -> Any:
        rival.drop_topic("orders")
        return stored(self, *arguments)

    monkeypatch.setattr(Merger, "_stored", dropped)
    for number in range(14):
        if "orders" not in rival.topics():
            break
        ns.produce("orders", rows(number))
        at_rest(ns)
    assert "orders" not in rival.topics()
    ns.create_topic("orders", SCHEMA)
    commit(ns, 3)
    assert read(ns) == [0, 1, 2]
    assert "not merged" not in caplog.text


def test_close_waits_for_what_is_under_way_and_begins_nothing(memory: Place) -> None:
    ns = orders(memory)
    for number in range(13):
        ns.produce("orders", rows(number))
    ns.close()
    reader = memory.open(mode="r")
    assert len(actions(reader, Replace)) == 1
    assert len(segments(reader)) < 13
    assert read(reader) == list(range(13))


def test_many_partitions_in_each_segment_are_left_alone(memory: Place) -> None:
    """As many files would come of it as there are; it is not tried again with each commit."""
    ns = orders(memory, partitions=50)
    looks: list[int] = []
    run = Optimization.run_newest

    def noted(self: Optimization, small: Any, version: int) -> Any:
        looks.append(len(small))
        return run(self, small, version)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Optimization, "run_newest", noted)
        for first in range(40):
            with ns.begin() as txn:
                for partition in range(50):
                    txn.produce("orders", rows(first * 50 + partition), partition=partition)
            at_rest(ns)
    assert len(segments(ns)) == 40
    assert 1 <= len(looks) <= 4


def test_what_is_committed_while_a_merge_is_under_way_is_kept(memory: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    ns, rival = orders(memory), memory.open()
    stored: Callable[..., Any] = Merger._stored
    number = iter(range(1_000, 2_000))
    merger(rival).interval = 10_000

    def meanwhile(self: Merger, *arguments: Any) -> Any:
        for _ in range(5):
            rival.produce("orders", rows(next(number)))
        return stored(self, *arguments)

    monkeypatch.setattr(Merger, "_stored", meanwhile)
    commit(ns, 30)
    found = read(ns)
    assert sorted(found) == sorted([*range(30), *range(1_000, next(number))])
    assert [row["_offset"] for row in whole(ns)] == list(range(len(found)))


def test_no_commit_waits_for_a_merge(memory: Place) -> None:
    """A commit is answered while a merge is under way."""
    ns = orders(memory)
    gate: list[int] = []
    stored = Merger._stored

    def held(self: Merger, *arguments: Any) -> Any:
        gate.append(1)
        wait_for(lambda: len(gate) > 1)
        return stored(self, *arguments)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Merger, "_stored", held)
        for number in range(13):
            ns.produce("orders", rows(number))
        wait_for(lambda: bool(gate))
        ns.produce("orders", rows(13))
        gate.append(1)
        at_rest(ns)
    assert read(ns) == list(range(14))
