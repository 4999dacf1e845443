"""Namespaces with files for vacuum to delete, a store that interrupts it, and what must be there afterwards."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.by_hand import compact
from tests.client.support import Place, begun, ids, is_entry, raises, rows
from txnlog.errors import StoreError
from txnlog.format import keys
from txnlog.results import Vacuumed
from txnlog.store import Created, ForwardingStore, ObjectInfo, Store
from txnlog.testing import ManualClock

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
    return place.wrapped(Hooked, clock=clock)


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


@pytest.fixture
def compacted(lake: Any) -> tuple[Any, int]:
    """Three rows in two segments, which one replaced; the version that replaced them."""
    lake.produce("orders", rows(1))
    lake.produce("orders", rows(2, 3))
    return lake, compact(lake, "orders", [item.number for item in lake.snapshot().plan("orders").segments], 0)


def littered(place: Place, clock: ManualClock) -> list[int]:
    """A namespace with some of everything that vacuum deletes, and a prepared transaction; the rows to be read."""
    lake = place.orders(1, clock=clock)
    lake.produce("orders", rows(2))
    compact(lake, "orders", [item.number for item in lake.snapshot().plan("orders").segments], 0)
    for number in (3, 4):
        txn = begun(lake, number, flush=True)
        txn.abort()
    left_behind(place, clock, 5).close()
    txn = begun(lake, 6)
    txn.prepare()
    lake.produce("orders", rows(7))
    lake.close()
    clock.advance(WEEK_MS + HOUR_MS)
    return [1, 2, 7]
