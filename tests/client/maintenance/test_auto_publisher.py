"""Publishing after commits by itself: who is asked, when, and what a failure of his costs (nothing)."""

from __future__ import annotations

import importlib.metadata
import logging
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from tests.by_hand import append
from tests.client.support import SCHEMA, Place, raises, rows, wait_for
from txnlog.client import auto_publisher
from txnlog.client.auto_publisher import GROUP
from txnlog.errors import StoreError, UnsupportedFeature
from txnlog.format.actions import DeleteRecords


class Recorder:
    """A publisher that writes down what it is asked for."""

    def __init__(self) -> None:
        self.made = 0
        self.asked: list[int] = []
        self.gate = threading.Event()
        self.gate.set()
        self.error: Exception | None = None
        self.at_once = 0
        self._lock = threading.Lock()

    def make(self, follower: Any, store: Any, runtime: Any) -> Any:
        self.made += 1
        return self

    def publish_after_commit(self, topic: int) -> None:
        assert self._lock.acquire(blocking=False), "one at a time"
        try:
            self.asked.append(topic)
            assert self.gate.wait(20)
            if self.error is not None:
                raise self.error
        finally:
            self._lock.release()


@pytest.fixture
def recorder(monkeypatch: pytest.MonkeyPatch) -> Iterator[Recorder]:
    found = Recorder()
    monkeypatch.setattr(auto_publisher, "_load", lambda: found.make)
    yield found
    found.gate.set()


@pytest.fixture
def ns(memory: Place) -> Any:
    handle = memory.open()
    handle.create_topic("orders", SCHEMA, delta="auto")
    handle.create_topic("audit", SCHEMA)
    handle.create_topic("secret", SCHEMA, delta="off")
    return handle


def settled(ns: Any) -> None:
    ns._connection.session.auto_publisher.close()


def test_topics_that_want_it_are_published_after_each_commit(recorder: Recorder, ns: Any) -> None:
    orders = ns.topic("orders").id
    with ns.begin() as txn:
        for topic in ("orders", "audit", "secret"):
            txn.produce(topic, rows(1))
    settled(ns)
    assert set(recorder.asked) == {orders}
    before = len(recorder.asked)
    ns.produce("audit", rows(2))
    settled(ns)
    assert len(recorder.asked) == before
    ns.produce("orders", rows(2))
    settled(ns)
    assert recorder.asked[before:] == [orders]
    assert recorder.made == 1


def test_nobody_is_asked_for_before_the_first_commit_to_such_a_topic(memory: Place, recorder: Recorder) -> None:
    handle = memory.open()
    handle.create_topic("audit", SCHEMA)
    handle.produce("audit", rows(1))
    settled(handle)
    assert recorder.made == 0
    handle.create_topic("orders", SCHEMA, delta="auto")
    settled(handle)
    assert recorder.asked == [handle.topic("orders").id]


def test_a_dropped_topic_is_published_once_more(recorder: Recorder, ns: Any) -> None:
    orders = ns.topic("orders").id
    settled(ns)
    recorder.asked.clear()
    ns.drop_topic("orders")
    settled(ns)
    assert recorder.asked == [orders]


def test_what_only_takes_files_away_is_published_too(recorder: Recorder, ns: Any) -> None:
    """Else a vacuum deletes what the table still names."""
    orders = ns.topic("orders")
    ns.produce("orders", rows(1, 2), partition=0)
    append(ns, DeleteRecords(orders.id, ((0, 2),)))
    settled(ns)
    recorder.asked.clear()
    done = ns.optimize("orders")
    assert (done.merged_segments, done.written_segments) == (1, 0)
    settled(ns)
    assert recorder.asked == [orders.id]


def test_while_one_is_under_way_at_most_one_waits(recorder: Recorder, ns: Any) -> None:
    settled(ns)
    recorder.asked.clear()
    recorder.gate.clear()
    ns.produce("orders", rows(0))
    wait_for(lambda: recorder.asked != [])
    for number in range(1, 9):
        ns.produce("orders", rows(number))  # no commit waits for the publisher
    recorder.gate.set()
    settled(ns)
    assert len(recorder.asked) == 2


@pytest.mark.parametrize("error", [StoreError("no space left"), ValueError("a bug")])
def test_a_failure_is_reported_once_and_harms_no_commit(
    recorder: Recorder, ns: Any, caplog: pytest.LogCaptureFixture, error: Exception
) -> None:
    settled(ns)
    recorder.error = error
    with caplog.at_level(logging.WARNING, "txnlog.publisher"):
        for number in range(3):
            assert ns.produce("orders", rows(number)).version
            settled(ns)
    assert [(item.name, item.levelname) for item in caplog.records] == [("txnlog.publisher", "WARNING")]
    recorder.error = None
    ns.produce("orders", rows(3))
    settled(ns)
    recorder.error = error
    with caplog.at_level(logging.WARNING, "txnlog.publisher"):
        ns.produce("orders", rows(4))
        settled(ns)
    assert len(caplog.records) == 2, "it went well in between"
    assert len(recorder.asked) >= 5


def test_closing_the_handle_waits_for_what_was_asked(recorder: Recorder, ns: Any) -> None:
    settled(ns)
    recorder.asked.clear()
    recorder.gate.clear()
    ns.produce("orders", rows(1))
    wait_for(lambda: recorder.asked != [])
    ns.produce("orders", rows(2))
    threading.Timer(0.05, recorder.gate.set).start()
    ns.close()
    assert len(recorder.asked) == 2


def test_what_others_appended_is_published_with_ones_own(recorder: Recorder, ns: Any, memory: Place) -> None:
    settled(ns)
    other = memory.open()
    other.produce("orders", rows(1))
    settled(other)
    recorder.asked.clear()
    ns.produce("audit", rows(2))
    settled(ns)
    assert recorder.asked == [ns.topic("orders").id]


@pytest.mark.parametrize("found", [0, 2])
def test_without_one_publisher_a_warning_says_so(
    ns: Any, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, found: int
) -> None:
    settled(ns)
    points = [importlib.metadata.EntryPoint(f"p{number}", f"some.thing:p{number}", GROUP) for number in range(found)]
    monkeypatch.setattr(importlib.metadata, "entry_points", lambda **_: points)
    with caplog.at_level(logging.WARNING, "txnlog.publisher"):
        ns._connection.session.auto_publisher._publisher = None
        ns._connection.session.auto_publisher._failed.clear()
        caplog.clear()
        ns.produce("orders", rows(1))
        settled(ns)
    assert len(caplog.records) == 1
    assert "there must be one entry point" in caplog.text
    assert ns.snapshot().read("orders").num_rows == 1


def test_the_mode_that_holds_now_counts(recorder: Recorder, ns: Any, memory: Place) -> None:
    settled(ns)
    recorder.asked.clear()
    memory.open().alter_topic("orders", delta="manual")
    ns.produce("orders", rows(1))
    settled(ns)
    assert recorder.asked == []
    audit = ns.alter_topic("audit", delta="auto").id
    settled(ns)
    ns.produce("audit", rows(2))
    settled(ns)
    assert recorder.asked == [audit, audit]


def test_who_has_nothing_to_publish_notes_nothing_of_what_it_folds(recorder: Recorder, ns: Any, memory: Place) -> None:
    reader, writer, other = memory.open(mode="r"), memory.open("elsewhere"), memory.open("elsewhere")
    ns.produce("orders", rows(1))
    other.create_topic("audit", SCHEMA)
    other.produce("audit", rows(1))
    for handle in (reader, writer):
        handle.snapshot()
        assert not handle._connection.session.auto_publisher._touched


def test_two_publishers_are_an_error_that_says_so(memory: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    points = [importlib.metadata.EntryPoint(name, f"{name}:make", GROUP) for name in ("one", "other")]
    monkeypatch.setattr(importlib.metadata, "entry_points", lambda group: points)
    ns = memory.open()
    with raises(
        UnsupportedFeature, match="one entry point of the group txnlog.publisher, and there is: one:make, other"
    ):
        ns._connection.session.auto_publisher.publish_auto()
