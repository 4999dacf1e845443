"""What an Exclusive consumer receives, what it is given again, and when (docs/guarantees.md, Acknowledging)."""

from __future__ import annotations

import contextlib
from typing import Any

import numpy as np
import pytest

from tests.by_hand import compact
from tests.client.support import SCHEMA, Place, Unchanged, begun, cursor, holding, ids, raises, received, rows
from txnlog.data import segment_reader
from txnlog.errors import (
    InvalidInputError,
    TransactionAborted,
    TransactionConflict,
)
from txnlog.testing import ManualClock

# --- receiving -------------------------------------------------------------------------------------------------------


@pytest.mark.clause("P-93")
def test_each_message_is_received_once_in_order(ten: Any) -> None:
    consumer = ten.consumer("orders", "billing")
    first = consumer.receive(4, timeout_ms=0)
    assert (ids(first.table), len(first)) == ([0, 1, 2, 3], 4)
    assert first.table.column_names == ["id", "name", "_partition", "_offset", "_timestamp", "_txn_id", "_version"]
    assert first.positions == [("orders", 0, n) for n in range(4)]
    assert first.end_offsets == {0: 4}
    assert first.redelivery_counts == [0] * 4
    assert received(consumer) == [4, 5, 6, 7, 8, 9]
    ten.produce("orders", rows(10))
    assert received(consumer) == [10]


def test_an_empty_receive_waits_and_has_the_columns(ten: Any, place: Place) -> None:
    consumer = ten.consumer("orders", "billing")
    full = consumer.receive(timeout_ms=0)
    before = sum(ten._connection.runtime.slept_ms)
    nothing = consumer.receive(timeout_ms=700)
    assert sum(ten._connection.runtime.slept_ms) - before == pytest.approx(700)
    assert (len(nothing), nothing.positions, nothing.end_offsets) == (0, [], {})
    assert nothing.table.schema == full.table.schema
    with Unchanged(place):
        consumer.acknowledge(nothing)
        with ten.begin() as txn:
            txn.acknowledge(nothing)
            txn.acknowledge(nothing, cumulative=True)


def test_who_waits_asks_ever_more_rarely_and_not_at_the_same_moments_as_others(ten: Any) -> None:
    consumer = ten.consumer("orders", "billing")
    consumer.receive(timeout_ms=0)
    ten._connection.runtime.slept_ms.clear()
    consumer.receive(timeout_ms=5_000)
    pauses = ten._connection.runtime.slept_ms[:-1]  # the last is what is left
    waited = 0.0
    for pause in pauses:
        longest = min(max(waited / 8, 0.5), 250)
        assert longest / 2 <= pause <= longest
        waited += pause
    assert len({round(pause, 3) for pause in pauses[8:]}) > 5, "not in step"
    assert len(pauses) < 120


def test_messages_arrive_while_somebody_waits(memory: Place) -> None:
    ns = memory.orders()
    consumer = ns.consumer("orders", "billing")
    other = memory.open()
    runtime: Any = ns._connection.runtime
    pause = runtime.pause

    def produce_meanwhile(milliseconds: float) -> Any:
        paused = pause(milliseconds)
        return runtime.job(lambda: other.produce("orders", rows(1))) if len(runtime.slept_ms) == 3 else paused

    runtime.slept_ms.clear()
    runtime.pause = produce_meanwhile
    assert ids(consumer.receive(timeout_ms=10_000).table) == [1]
    assert sum(ns._connection.runtime.slept_ms) < 1_000


def test_a_big_segment_is_fetched_once_and_kept_until_its_end(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(segment_reader, "_CACHEABLE_BYTES", 0)
    monkeypatch.setattr(segment_reader, "_RUN_BYTES", 0)
    ns = place.orders(*range(10))
    consumer = ns.consumer("orders", "billing")
    before = ns.store_requests.get(("get", "segment"), 0)
    assert [received(consumer, 4) for _ in range(2)] == [[0, 1, 2, 3], [4, 5, 6, 7]]
    assert received(consumer) == [8, 9]
    assert ns.store_requests["get", "segment"] == before + 1
    consumer.seek("earliest")
    assert received(consumer, 4) == [0, 1, 2, 3]
    assert ns.store_requests["get", "segment"] == before + 2, "it was kept beyond its end"


def test_a_receive_does_not_look_through_all_segments(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nor does it forget those that come later, from this client or another, or lie in a checkpoint."""
    ns, other = place.open(), place.open()
    ns.create_topic("orders", SCHEMA, partitions=2)
    for number in range(6):
        ns.produce("orders", rows(number), partition=number % 2)
    ns.checkpoint()
    consumer = ns.consumer("orders", "billing")
    assert sorted(received(consumer, 3)) == [0, 2, 4]
    monkeypatch.delattr(type(ns._connection.follower), "segments")
    ns.produce("orders", rows(6, 7), partition=1)
    other.produce("orders", rows(8, 9), partition=0)
    txn = begun(other, 10, partition=0, flush=True)
    assert sorted(received(consumer)) == [1, 3, 5, 6, 7, 8, 9]
    txn.commit()
    aborted = begun(ns, 11, partition=0, flush=True)
    aborted.abort()
    ns.checkpoint()
    assert received(consumer) == [10]


def test_a_segment_that_was_replaced_is_not_read_any_more(ten: Any, place: Place) -> None:
    """Another client merges what a consumer is in the middle of; the files of before are gone at once."""
    ten.produce("orders", rows(10, 11))
    consumer = ten.consumer("orders", "billing")
    assert received(consumer, 4) == [0, 1, 2, 3]
    other = place.open()
    old = [segment for segment in other.snapshot().plan("orders").segments if segment.slices]
    compact(other, "orders", [segment.number for segment in old], 0)
    for segment in old:
        other._connection.store.delete(segment.key)
    consumer.seek("earliest")
    assert received(consumer) == list(range(12))
    assert received(place.open().consumer("orders", "audit")) == list(range(12))


def test_parts_of_messages_can_be_taken(ten: Any) -> None:
    messages = ten.consumer("orders", "billing").receive(timeout_ms=0)
    assert ids(messages[2:5].table) == [2, 3, 4]
    assert ids(messages[[0, 7]].table) == [0, 7]
    assert ids(messages[-1].table) == [9]
    assert ids(messages[::3].table) == [0, 3, 6, 9]
    assert ids(messages[np.array([1, 2])].table) == [1, 2]
    assert ids(messages[np.int64(3)].table) == [3]
    assert ids(messages[5:2].table) == []
    assert messages[[7, 0]]._ranges() == {0: ((0, 1), (7, 8))}
    assert [ids(one.table) for one in messages] == [[number] for number in range(10)]
    assert [len(one) for one in messages[5:2]] == []
    for wrong in (10, -11, [0, 10], "1", [None], 1.5, True):
        with raises(InvalidInputError, match="position"):
            messages[wrong]
    assert "10 messages" in repr(messages)


def test_messages_are_shown_escaped(sales: Any) -> None:
    sales.produce("orders", [{"id": 1, "name": "<script>"}])
    messages = sales.consumer("orders", "billing").receive(timeout_ms=0)
    assert "<script>" not in messages._repr_html_()
    assert "&lt;script&gt;" in messages._repr_html_()


@pytest.mark.parametrize(
    "options",
    [
        {"max_messages": 0},
        {"max_messages": "1"},
        {"max_messages": True},
        {"timeout_ms": -1},
        {"timeout_ms": 10**400},
        {"timeout_ms": 10**5_000},
        {"timeout_ms": None},
        {"timeout_ms": "1"},
    ],
)
def test_a_receive_that_makes_no_sense_is_refused(ten: Any, options: Any) -> None:
    with raises(InvalidInputError, match=next(iter(options))):
        ten.consumer("orders", "billing").receive(**options)


def test_several_partitions_and_topics_under_one_subscription(ns: Any) -> None:
    ns.create_topic("audit", SCHEMA)
    for number in range(6):
        ns.produce("orders", rows(number), partition=number % 2)
    ns.produce("audit", rows(100, 101))
    consumer = ns.consumer(["orders", "audit", "orders"], "billing")
    batches = [consumer.receive(timeout_ms=0) for _ in range(2)]
    assert {batch.topic for batch in batches} == {"orders", "audit"}
    assert sorted(n for batch in batches for n in ids(batch.table)) == [0, 1, 2, 3, 4, 5, 100, 101]
    with ns.begin() as txn:
        for batch in batches:
            txn.acknowledge(batch, cumulative=True)
    assert [cursor(ns, "orders", p).cursor for p in (0, 1)] == [3, 3]
    assert cursor(ns, "audit").cursor == 2


# --- giving back -----------------------------------------------------------------------------------------------------


def test_what_is_released_is_delivered_again(ten: Any) -> None:
    consumer = ten.consumer("orders", "billing")
    messages = consumer.receive(timeout_ms=0)
    consumer.negative_acknowledge(messages[[2, 5]])
    assert received(consumer) == [2, 5]
    consumer.acknowledge(messages[0])
    consumer.redeliver_unacknowledged()
    assert received(consumer) == [1, 2, 3, 4, 5, 6, 7, 8, 9]


@pytest.mark.parametrize("flushed", [False, True])
@pytest.mark.parametrize("cumulative", [False, True])
def test_a_negative_acknowledgement_of_a_pending_message_has_no_effect(
    ten: Any, flushed: bool, cumulative: bool
) -> None:
    consumer = ten.consumer("orders", "billing")
    messages = consumer.receive(4, timeout_ms=0)
    txn = holding(ten, messages, cumulative=cumulative, flush=flushed)
    consumer.negative_acknowledge(messages)
    consumer.redeliver_unacknowledged()
    assert received(consumer) == [4, 5, 6, 7, 8, 9]
    txn.commit()
    assert received(consumer) == []


@pytest.mark.parametrize("kind", ["exclusive", "failover", "shared"])
@pytest.mark.parametrize("busy", [0, 1])
def test_a_busy_partition_keeps_no_other_from_being_received(memory: Place, kind: str, busy: int) -> None:
    ns = memory.orders(partitions=2)
    ns.produce("orders", rows(*range(2_000)), partition=busy)
    consumer = ns.consumer("orders", "billing", type=kind)

    def batches(count: int) -> list[int]:
        found: list[int] = []
        for _ in range(count):
            messages = consumer.receive(100, timeout_ms=0)
            consumer.acknowledge(messages)
            found += ids(messages.table)
        return found

    assert batches(6) == list(range(600))
    ns.produce("orders", rows(-1), partition=1 - busy)
    later = batches(4)
    assert later.count(-1) == 1
    assert [number for number in later if number >= 0] == list(range(600, 999)), "each partition in its order"


@pytest.mark.clause("P-209")
def test_what_comes_back_while_messages_are_delivered_is_not_forgotten(
    memory: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Commits in the background release what they acknowledged while the consumer receives."""
    ns, other = memory.open(), memory.open()
    ns.create_topic("orders", SCHEMA)
    ns.produce("orders", rows(0, 1, 2, 3))
    consumer = ns.consumer("orders", "billing")
    txn = holding(ns, consumer.receive(2, timeout_ms=0))
    item: Any = consumer._subscribed[0]
    honest, ended = item._read, []

    def interrupted(wanted: Any) -> Any:
        """While the messages are read: a commit ends in the background."""
        item._read = honest
        other.abort(txn.id)
        ended.append(txn.commit_async())
        with contextlib.suppress(TimeoutError, TransactionAborted):
            ended[0].result(5)
        return honest(wanted)

    item._read = interrupted
    messages = consumer.receive(timeout_ms=0)
    assert ids(messages.table) == [2, 3]
    consumer.negative_acknowledge(messages[1])
    with raises(TransactionAborted):
        ended[0].result(10)
    assert received(consumer) == [0, 1, 3]


@pytest.mark.parametrize("sought", [False, True], ids=["a newer consumer", "a seek"])
def test_what_a_fenced_transaction_took_is_delivered_at_once(sales: Any, sought: bool) -> None:
    sales.produce("orders", rows(1, 2))
    consumer = sales.consumer("orders", "billing")
    _txn = holding(sales, consumer.receive(timeout_ms=0))
    if sought:
        consumer.seek("earliest")
    else:
        consumer = sales.consumer("orders", "billing")
    assert ids(consumer.receive(timeout_ms=0).table) == [1, 2]


def test_an_abort_does_not_release_what_was_received_after_a_seek(sales: Any) -> None:
    sales.produce("orders", rows(1, 2))
    consumer = sales.consumer("orders", "billing")
    before = consumer.receive(timeout_ms=0)
    txn = holding(sales, before)
    consumer.seek("earliest")
    txn.abort()
    assert ids(consumer.receive(timeout_ms=0).table) == [1, 2]
    consumer.negative_acknowledge(before)
    assert len(consumer.receive(timeout_ms=0)) == 0, "handed out twice"


# --- deadlines -------------------------------------------------------------------------------------------------------


def test_a_transaction_that_was_forgotten_holds_nothing_after_its_deadline(place: Place, clock: ManualClock) -> None:
    ns = place.orders(0, 1, clock=clock)
    consumer = ns.consumer("orders", "billing")
    messages = consumer.receive(timeout_ms=0)
    _forgotten = holding(ns, messages, timeout_ms=1_000)
    with raises(TransactionConflict):
        ns.begin().acknowledge(messages)
    clock.advance(1_000)
    consumer.redeliver_unacknowledged()
    assert received(consumer) == [0, 1]
    with ns.begin() as txn:
        txn.acknowledge(messages)
    assert cursor(ns).cursor == 2
