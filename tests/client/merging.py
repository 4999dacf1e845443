"""A topic of many small segments, and what is read of it and its log."""

from __future__ import annotations

from typing import Any

import pytest

from tests.client.support import SCHEMA, Place, rows
from txnlog.client.auto_merger import AutoMerger

INTERVAL = 8


@pytest.fixture
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """Handles merge eight to twelve segments."""
    begin = AutoMerger.__init__

    def sooner(self: AutoMerger, *arguments: Any) -> None:
        begin(self, *arguments)
        self.interval = INTERVAL

    monkeypatch.setattr(AutoMerger, "__init__", sooner)


def merger(ns: Any) -> AutoMerger:
    found: AutoMerger = ns._connection.session.auto_merger
    return found


def at_rest(ns: Any) -> Any:
    """What is under way has come to its end."""
    merger(ns)._queue.finish()
    return ns


def commit(ns: Any, count: int, first: int = 0, topic: str = "orders") -> None:
    """So many transactions of one row."""
    for number in range(first, first + count):
        ns.produce(topic, rows(number))
        at_rest(ns)


def orders(place: Place, **options: Any) -> Any:
    ns = place.open()
    ns.create_topic("orders", SCHEMA, **options)
    return ns


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


def sizes(ns: Any) -> list[int]:
    return [segment.size_bytes for segment in ns.snapshot().plan("orders").segments]


def actions(ns: Any, kind: type) -> list[Any]:
    """All actions of a kind, in the order of the log."""
    log = ns._connection.follower.log
    entries = [log.entry(version) for version in range(ns.snapshot().version + 1)]
    return [action for entry in entries for action in entry.actions if isinstance(action, kind)]
