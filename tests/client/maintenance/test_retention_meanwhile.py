"""Retention and deletion while others act just before the entry, with holes, with merges; and what is shown of them."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from typing import Any

import pyarrow as pa
import pytest

import txnlog
from txnlog.maintenance import retention
from txnlog.store import Created, ForwardingStore, Store, open_store
from txnlog.testing import ManualClock

HOUR_MS = 3_600_000
SCHEMA = pa.schema([pa.field("id", pa.int64())])
_roots = itertools.count()


class RivalStore(ForwardingStore):
    """Lets a rival act once, just before the first entry that has a text is created: the rival's is there first."""

    def __init__(self, inner: Store, text: bytes, act: Callable[[], object]) -> None:
        super().__init__(inner)
        self._text, self._act = text, act
        self.acted = False

    def create(self, key: str, data: bytes) -> Created:
        if not self.acted and "/_log/" in key and self._text in data:
            self.acted = True
            self._act()
        return super().create(key, data)


def rows(*numbers: int) -> list[dict[str, int]]:
    return [{"id": number} for number in numbers]


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock(1_767_225_600_000)


@pytest.fixture
def root() -> str:
    return f"memory://attack-retention-{next(_roots)}"


@pytest.fixture
def ns(root: str, clock: ManualClock) -> Iterator[Any]:
    with txnlog.open(root, namespace="sales", create=True, clock=clock) as found:
        yield found


def racing(root: str, clock: ManualClock, text: bytes, act: Callable[[], object]) -> tuple[Any, RivalStore]:
    store = RivalStore(open_store(root), text, act)
    return txnlog.open(root, namespace="sales", clock=clock, store=store), store


# --- a subscription that does not go on behind what was deleted -------------------------------------------------------

_COUNT, _LEFT = 20_100, 50


def _with_holes(ns: Any, kind: str) -> Any:
    """Every other message of 20,000 is acknowledged, 10,000 ranges; then all but 50 messages are deleted."""
    ns.create_topic("orders", SCHEMA)
    ns.produce("orders", pa.table({"id": list(range(_COUNT))}))
    ns.create_subscription("orders", "billing", type=kind)
    consumer = ns.consumer("orders", subscription="billing")
    for _ in range(4):
        found = consumer.receive(5_000)
        odd = [place for place, (_, _, offset) in enumerate(found.positions) if offset % 2]
        consumer.acknowledge(found[odd])
    consumer.close()
    ns.delete_records("orders", {0: _COUNT - _LEFT}, allow_unacknowledged=True)
    assert [item.behind_messages for item in ns.lag("orders", "billing")] == [_LEFT]
    return ns.consumer("orders", subscription="billing")


def test_a_shared_subscription_goes_on_behind_what_was_deleted(ns: Any) -> None:
    received = _with_holes(ns, "shared").receive(100)
    assert len(received) == _LEFT


def test_an_exclusive_consumer_acknowledges_behind_what_was_deleted(ns: Any) -> None:
    consumer = _with_holes(ns, "exclusive")
    received = consumer.receive(100)
    assert len(received) == _LEFT
    consumer.acknowledge(received[[10, 11]])


# --- message_ttl_ms takes what somebody has ---------------------------------------------------------------------------


def test_what_was_leased_just_before_the_entry_does_not_expire(root: str, ns: Any, clock: ManualClock) -> None:
    ns.create_topic("orders", SCHEMA, message_ttl_ms="1h")
    ns.create_subscription("orders", "billing", type="shared", lease_ms="12h")
    ns.produce("orders", rows(0, 1, 2))
    clock.advance(2 * HOUR_MS)
    consumer = ns.consumer("orders", subscription="billing")
    had: list[Any] = []
    keeper, store = racing(root, clock, b'"commit"', lambda: had.append(consumer.receive(2)))
    keeper.maintain()
    assert store.acted
    assert len(had[0]) == 2
    txn = ns.begin(timeout_ms="15m")
    txn.acknowledge(had[0])
    txn.commit()


def test_one_pending_message_keeps_no_others_from_expiring(ns: Any, clock: ManualClock) -> None:
    ns.create_topic("orders", SCHEMA, partitions=2, message_ttl_ms="1h")
    for partition in (0, 1):
        ns.produce("orders", rows(0, 1, 2), partition=partition)
    consumer = ns.consumer("orders", subscription="billing")
    txn = ns.begin(timeout_ms="15m")
    txn.acknowledge(consumer.receive(1))
    txn.prepare()
    clock.advance(48 * HOUR_MS)
    for _ in range(3):
        ns.maintain()
    lag = {item.partition: item.behind_messages for item in ns.lag("orders", "billing")}
    assert sorted(lag.values()) == [0, 1]


# --- maintain while others act ----------------------------------------------------------------------------------------


def test_maintain_survives_that_a_topic_is_dropped_meanwhile(root: str, ns: Any, clock: ManualClock) -> None:
    for name in ("logs", "orders"):
        ns.create_topic(name, SCHEMA, retention_ms="1h")
        ns.produce(name, rows(0, 1, 2))
    clock.advance(2 * HOUR_MS)
    keeper, store = racing(root, clock, b'"delete_records"', lambda: ns.drop_topic("logs"))
    done = keeper.maintain()
    assert store.acted
    assert {item.topic: item.messages for item in done.retained} == {"orders": 3}


def test_nothing_is_deleted_by_a_setting_that_was_taken_away_before(root: str, ns: Any, clock: ManualClock) -> None:
    ns.create_topic("orders", SCHEMA, retention_ms="1h")
    ns.produce("orders", rows(0, 1, 2))
    clock.advance(2 * HOUR_MS)
    keeper, store = racing(root, clock, b'"delete_records"', lambda: ns.alter_topic("orders", retention_ms=-1))
    keeper.maintain()
    assert store.acted
    # alter_topic had returned, at a version below that of the deletion: by the log nothing is due there
    assert ns.snapshot().read("orders").num_rows == 3


def test_retention_of_many_partitions_is_more_than_one_entry_where_it_must_be(
    ns: Any, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(retention, "_MOST_PLACES", 500)
    topics, partitions = 10, 200
    for number in range(topics):
        ns.create_topic(f"t{number}", SCHEMA, partitions=partitions, key="id", retention_ms="1h", merge="manual")
        ns.produce(f"t{number}", pa.table({"id": list(range(4 * partitions))}))
    clock.advance(2 * HOUR_MS)
    done = ns.maintain().retained
    assert sum(item.messages for item in done) == topics * 4 * partitions
    assert len({item.version for item in done}) == topics // 2


# --- what is shown of what is left ------------------------------------------------------------------------------------


def test_messages_that_were_deleted_do_not_count_as_redelivered_for_ever(ns: Any, clock: ManualClock) -> None:
    ns.create_topic("orders", SCHEMA)
    ns.create_subscription("orders", "billing", type="shared")
    ns.produce("orders", rows(*range(10)))
    consumer = ns.consumer("orders", subscription="billing")
    consumer.negative_acknowledge(consumer.receive(4))
    consumer.close()
    ns.delete_records("orders", "latest", allow_unacknowledged=True)
    ns.produce("orders", rows(10, 11))
    consumer = ns.consumer("orders", subscription="billing")
    consumer.acknowledge(consumer.receive(10))
    clock.advance(HOUR_MS)
    assert [item.behind_messages for item in ns.lag("orders", "billing")] == [0]
    (line,) = [
        line for line in ns.metrics().splitlines() if line.startswith("txnlog_subscription_redelivered_messages{")
    ]
    assert line.endswith(" 0"), line


def test_what_the_next_maintain_deletes_is_shown_before(ns: Any, clock: ManualClock) -> None:
    ns.create_topic("orders", SCHEMA, retention_ms="1h", message_ttl_ms="3h")
    ns.create_subscription("orders", "billing")
    ns.produce("orders", rows(0, 1, 2))
    clock.advance(4 * HOUR_MS)
    (shown,) = ns.retention()
    (done,) = ns.maintain().retained
    assert (shown.due_messages, shown.kept_messages) == (done.messages, 0)


def test_the_oldest_segments_beyond_a_size_are_deleted_also_where_others_were_merged(
    ns: Any, clock: ManualClock
) -> None:
    ns.create_topic("orders", SCHEMA, partitions=2)
    ns.produce("orders", rows(*range(100)), partition=1)
    clock.advance(365 * 24 * HOUR_MS)
    for number in range(100, 105):
        ns.produce("orders", rows(number), partition=0)
        clock.advance(1_000)
    assert ns.optimize("orders").merged_segments == 5
    ns.alter_topic("orders", retention_bytes=1)
    (done,) = ns.maintain().retained
    left = sorted(ns.snapshot().read("orders")["id"].to_pylist())
    assert left == [100, 101, 102, 103, 104], done
