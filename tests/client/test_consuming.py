"""What receiving and acknowledging answer (docs/guarantees.md, Acknowledging), for Exclusive subscriptions."""

from __future__ import annotations

import contextlib
import datetime
import threading
from typing import Any

import numpy as np
import pytest

from tests.client.support import SCHEMA, START_MS, Place, Unchanged, ids, raises, read, received, rows
from tests.spark.native_support import compact
from txnlog import ranges, reader
from txnlog.errors import (
    ConsumerFenced,
    InvalidInputError,
    InvalidTransactionState,
    NameNotAllowed,
    OffsetOutOfRange,
    OutcomeUnknown,
    SubscriptionExists,
    SubscriptionNotFound,
    TopicNotFound,
    TransactionAborted,
    TransactionConflict,
    TransactionHasFailedOperation,
)
from txnlog.ids import TxnId
from txnlog.testing import ManualClock


def cursor(ns: Any, topic: str = "orders", partition: int = 0) -> Any:
    return ns.subscription(topic, "billing").cursors[partition]


# --- receiving ------------------------------------------------------------------------------------------------------


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
    before = sum(ten.connection.runtime.slept_ms)
    nothing = consumer.receive(timeout_ms=700)
    assert sum(ten.connection.runtime.slept_ms) - before == pytest.approx(700)
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
    ten.connection.runtime.slept_ms.clear()
    consumer.receive(timeout_ms=5_000)
    pauses = ten.connection.runtime.slept_ms[:-1]  # the last is what is left
    for number, pause in enumerate(pauses):
        longest = min(5 * 2**number, 250)
        assert longest / 2 <= pause <= longest
    assert len({round(pause, 3) for pause in pauses[8:]}) > 5, "not in step"


def test_messages_arrive_while_somebody_waits(memory: Place) -> None:
    ns = memory.open()
    ns.create_topic("orders", SCHEMA)
    consumer = ns.consumer("orders", "billing")
    other = memory.open()
    sleep = ns.connection.runtime.sleep_ms

    def produce_meanwhile(milliseconds: float) -> None:
        sleep(milliseconds)
        if len(ns.connection.runtime.slept_ms) == 3:
            other.produce("orders", rows(1))

    ns.connection.runtime.slept_ms.clear()
    ns.connection.runtime.sleep_ms = produce_meanwhile
    assert ids(consumer.receive(timeout_ms=10_000).table) == [1]
    assert sum(ns.connection.runtime.slept_ms) < 1_000


def test_a_big_segment_is_fetched_once_and_kept_until_its_end(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reader, "_CACHEABLE_BYTES", 0)
    ns = place.open()
    ns.create_topic("orders", SCHEMA)
    ns.produce("orders", rows(*range(10)))
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
    monkeypatch.delattr(type(ns.connection.follower), "segments")
    ns.produce("orders", rows(6, 7), partition=1)
    other.produce("orders", rows(8, 9), partition=0)
    txn = other.begin()
    txn.produce("orders", rows(10), partition=0)
    txn.flush()
    assert sorted(received(consumer)) == [1, 3, 5, 6, 7, 8, 9]
    txn.commit()
    aborted = ns.begin()
    aborted.produce("orders", rows(11), partition=0)
    aborted.flush()
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
    compact(other, [segment.number for segment in old], 0)
    for segment in old:
        other.connection.store.delete(segment.key)
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
    assert messages[[7, 0]].ranges() == {0: ((0, 1), (7, 8))}
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


# --- acknowledging outside a transaction ----------------------------------------------------------------------------


@pytest.mark.clause("P-80", "P-88")
def test_individual_acknowledgements_move_the_cursor_over_what_is_taken(ten: Any, place: Place) -> None:
    consumer = ten.consumer("orders", "billing")
    messages = consumer.receive(timeout_ms=0)
    consumer.acknowledge(messages[[0, 1, 4, 5, 9]])
    assert (cursor(ten).cursor, cursor(ten).acknowledged) == (2, ((4, 6), (9, 10)))
    consumer.acknowledge(messages[2:4])
    assert (cursor(ten).cursor, cursor(ten).acknowledged) == (6, ((9, 10),))
    with Unchanged(place):
        consumer.acknowledge(messages[:6])
        consumer.acknowledge(messages[9])
    again = place.open().consumer("orders", "billing")
    assert received(again) == [6, 7, 8]


@pytest.mark.clause("P-81", "P-88")
def test_a_cumulative_acknowledgement_takes_everything_below(ten: Any, place: Place) -> None:
    consumer = ten.consumer("orders", "billing")
    messages = consumer.receive(timeout_ms=0)
    consumer.acknowledge(messages[6])
    consumer.acknowledge(messages[3], cumulative=True)
    assert (cursor(ten).cursor, cursor(ten).acknowledged) == (4, ((6, 7),))
    with Unchanged(place):
        consumer.acknowledge(messages[2], cumulative=True)
    consumer.acknowledge(messages[5], cumulative=True)
    assert (cursor(ten).cursor, cursor(ten).acknowledged) == (7, ())


@pytest.mark.parametrize("cumulative", [False, True])
@pytest.mark.parametrize("flushed", [False, True])
def test_a_plain_acknowledgement_of_what_a_transaction_holds_is_a_conflict(
    ten: Any, place: Place, cumulative: bool, flushed: bool
) -> None:
    """Of the same client at once, logged or not: the first wins."""
    consumer = ten.consumer("orders", "billing")
    messages = consumer.receive(timeout_ms=0)
    txn = ten.begin()
    txn.acknowledge(messages[3])
    if flushed:
        txn.flush()
    with Unchanged(place), raises(TransactionConflict, match="pending"):
        consumer.acknowledge(messages[:5], cumulative=cumulative)
    consumer.acknowledge(messages[4])
    txn.commit()
    assert cursor(ten).acknowledged == ((3, 5),)


def test_a_plain_acknowledge_whose_number_was_ended_is_not_told_to_be_done(memory: Place) -> None:
    ns, store = memory.faulty()
    ns.create_topic("orders", SCHEMA)
    ns.produce("orders", rows(1, 2))
    consumer = ns.consumer("orders", "billing")
    messages = consumer.receive(timeout_ms=0)
    admin = memory.open()
    following = ns.begin().id
    store.script.append(lambda: admin.abort(TxnId(following.coordinator, following.number + 1)))
    with pytest.raises(TransactionAborted):
        consumer.acknowledge(messages)
    assert admin.subscription("orders", "billing").cursors[0].cursor == 0


@pytest.mark.parametrize("wrong", [None, "all", [1], 5, {}])
def test_what_was_not_received_cannot_be_acknowledged(ten: Any, place: Place, wrong: Any) -> None:
    consumer = ten.consumer("orders", "billing")
    txn = ten.begin()
    with Unchanged(place):
        for call in (consumer.acknowledge, consumer.negative_acknowledge, txn.acknowledge):
            with raises(InvalidInputError, match="received"):
                call(wrong)


def test_a_list_of_messages_is_refused_with_the_call_that_takes_any_part(ten: Any) -> None:
    consumer = ten.consumer("orders", "billing")
    messages = consumer.receive(timeout_ms=0)
    for parts in (list(messages), tuple(messages), [messages[0], messages[7]]):
        for call in (consumer.acknowledge, consumer.negative_acknowledge, ten.begin().acknowledge):
            with pytest.raises(InvalidInputError, match=r"not (list|tuple) \(choose .*: messages\[\[0, 7\]\]"):
                call(parts)
    consumer.acknowledge(messages[[0, 7]])
    assert (cursor(ten).cursor, cursor(ten).acknowledged) == (1, ((7, 8),))


def test_messages_of_another_namespace_are_refused(ten: Any, place: Place) -> None:
    other = place.open("shipping")
    other.create_topic("orders", SCHEMA)
    other.produce("orders", rows(1))
    messages = other.consumer("orders", "billing").receive(timeout_ms=0)
    mine = ten.consumer("orders", "billing")
    txn = ten.begin()
    with Unchanged(place):
        for call in (txn.acknowledge, mine.acknowledge):
            with raises(InvalidInputError, match="shipping"):
                call(messages)
    assert txn.state == "OPEN"


def test_messages_of_another_handle_of_the_namespace_are_fine(ten: Any, place: Place) -> None:
    other = place.open()
    messages = other.consumer("orders", "billing").receive(timeout_ms=0)
    with ten.begin() as txn:
        txn.acknowledge(messages, cumulative=True)
    assert cursor(ten).cursor == 10


@pytest.fixture
def stale(place: Place, clock: ManualClock) -> Any:
    """A handle that has seen the topic and nothing of what came later."""
    ns = place.open(clock=clock)
    ns.create_topic("orders", SCHEMA)
    return ns


@pytest.mark.clause("P-171")
def test_a_shared_acknowledgement_is_pending_whatever_the_handle_knew_of_the_subscription(
    stale: Any, place: Place, clock: ManualClock
) -> None:
    ns = place.open(clock=clock)
    ns.produce("orders", rows(0, 1))
    messages = ns.consumer("orders", "billing", type="shared").receive(timeout_ms=0)
    txn = stale.begin()
    txn.acknowledge(messages)
    assert cursor(ns).pending == 2


@pytest.mark.clause("P-82")
def test_a_cumulative_acknowledgement_of_shared_messages_is_refused_whatever_the_handle_knew(
    stale: Any, place: Place, clock: ManualClock
) -> None:
    ns = place.open(clock=clock)
    ns.produce("orders", rows(0, 1))
    messages = ns.consumer("orders", "billing", type="shared").receive(timeout_ms=0)
    txn = stale.begin()
    with Unchanged(place), raises(InvalidInputError, match="shared"):
        txn.acknowledge(messages, cumulative=True)


@pytest.mark.clause("P-209")
@pytest.mark.parametrize("how", ["admin", "timeout", "abandoned", "own"])
def test_what_came_to_nothing_is_delivered_again_by_a_consumer_of_another_handle(
    stale: Any, place: Place, clock: ManualClock, how: str
) -> None:
    ns = place.open(clock=clock)
    ns.produce("orders", rows(0, 1))
    consumer = ns.consumer("orders", "billing")
    txn = stale.begin(timeout_ms=10_000)
    txn.acknowledge(consumer.receive(timeout_ms=0))
    if how != "abandoned":
        txn.flush()
    if how == "admin":
        place.open(clock=clock).abort(txn.id)
    elif how == "own":
        txn.abort()
    else:
        clock.advance(15_001)
    assert ids(consumer.receive(timeout_ms=0).table) == [0, 1]
    txn.abort()
    assert len(consumer.receive(timeout_ms=0)) == 0, "handed out twice"


def test_a_transaction_goes_on_after_the_handle_whose_consumer_received_was_closed(ten: Any, place: Place) -> None:
    other, more = place.open(), place.open()
    ten.produce("audit", rows(1))
    messages = [
        other.consumer("orders", "billing").receive(timeout_ms=0),
        more.consumer("audit", "billing").receive(timeout_ms=0),
    ]
    with ten.begin() as txn:
        txn.acknowledge(messages[0])
        other.close()
        txn.acknowledge(messages[1])
    assert cursor(ten).cursor == 10


# --- acknowledging inside a transaction -----------------------------------------------------------------------------


@pytest.mark.clause("P-85", "P-124")
def test_consume_process_produce_is_one_entry(ten: Any, place: Place) -> None:
    consumer = ten.consumer("orders", "billing")
    before = ten.snapshot().version
    with ten.begin() as txn:
        messages = consumer.receive(5, timeout_ms=0)
        txn.acknowledge(messages)
        txn.produce("audit", rows(*(n * 10 for n in ids(messages.table))))
        assert cursor(place.open()).cursor == 0
    assert ten.snapshot().version == before + 1
    assert (cursor(ten).cursor, read(ten, "audit")) == (5, [0, 10, 20, 30, 40])


@pytest.mark.clause("P-80")
@pytest.mark.parametrize("cumulative", [False, True])
def test_what_is_acknowledged_already_is_a_conflict_in_a_transaction(ten: Any, place: Place, cumulative: bool) -> None:
    consumer = ten.consumer("orders", "billing")
    messages = consumer.receive(timeout_ms=0)
    consumer.acknowledge(messages[:5])
    txn = ten.begin()
    with Unchanged(place), raises(TransactionConflict, match="acknowledged before"):
        txn.acknowledge(messages[4], cumulative=cumulative)
    with Unchanged(place), raises(TransactionHasFailedOperation):
        txn.commit()


@pytest.mark.clause("P-80", "P-81")
@pytest.mark.parametrize("flushed", [False, True])
@pytest.mark.parametrize(("first", "second"), [("one", "one"), ("one", "up to"), ("up to", "one"), ("up to", "up to")])
def test_two_open_transactions_of_one_client_conflict_at_once(
    ten: Any, place: Place, flushed: bool, first: str, second: str
) -> None:
    """Individual against cumulative both ways, and the reverse; the first wins, the second must be aborted."""
    consumer = ten.consumer("orders", "billing")
    messages = consumer.receive(timeout_ms=0)
    one, two = ten.begin(), ten.begin()
    one.acknowledge(messages[5], cumulative=first == "up to")
    if flushed:
        one.flush()
    wanted = messages[3] if (first, second) == ("up to", "one") else messages[7 if second == "up to" else 5]
    with Unchanged(place), raises(TransactionConflict, match="pending|acknowledges cumulatively"):
        two.acknowledge(wanted, cumulative=second == "up to")
    with raises(TransactionHasFailedOperation):
        two.commit()
    one.commit()
    assert (cursor(ten).cursor, cursor(ten).acknowledged) == ((6, ()) if first == "up to" else (0, ((5, 6),)))


@pytest.mark.clause("P-80")
@pytest.mark.parametrize("flushed", [False, True])
def test_a_message_twice_in_one_transaction_is_a_conflict(ten: Any, flushed: bool) -> None:
    messages = ten.consumer("orders", "billing").receive(timeout_ms=0)
    txn = ten.begin()
    txn.acknowledge(messages[3:6])
    if flushed:
        txn.flush()
    with raises(TransactionConflict, match="pending"):
        txn.acknowledge(messages[5])


@pytest.mark.clause("P-81")
@pytest.mark.parametrize("flushed", [False, True])
def test_a_cumulative_one_further_on_replaces_the_first(ten: Any, flushed: bool) -> None:
    messages = ten.consumer("orders", "billing").receive(timeout_ms=0)
    txn = ten.begin()
    txn.acknowledge(messages[1])
    txn.acknowledge(messages[3], cumulative=True)
    if flushed:
        txn.flush()
    txn.acknowledge(messages[6], cumulative=True)
    txn.commit()
    assert cursor(ten).cursor == 7
    txn = ten.begin()
    txn.acknowledge(messages[8], cumulative=True)
    with raises(TransactionConflict, match="already"):
        txn.acknowledge(messages[7], cumulative=True)


@pytest.mark.clause("P-79", "P-80")
def test_a_conflict_with_another_client_is_found_at_the_commit(ten: Any, place: Place) -> None:
    other = place.open()
    consumer = other.consumer("orders", "billing")
    messages = consumer.receive(timeout_ms=0)
    txn = ten.begin()
    ten.snapshot()
    txn.acknowledge_ranges(messages[:3].acknowledgements(other.connection, cumulative=False))  # unknown to it
    txn.produce("audit", rows(1))
    consumer.acknowledge(messages[2])
    with Unchanged(place), raises(TransactionConflict, match="acknowledged before"):
        txn.commit()
    assert txn.state == "ABORTED"
    assert read(ten, "audit") == []
    with raises(TransactionConflict):
        txn.commit()


@pytest.mark.clause("P-80")
def test_a_conflict_with_another_client_is_found_at_the_flush(ten: Any, place: Place) -> None:
    other = place.open()
    consumer = other.consumer("orders", "billing")
    messages = consumer.receive(timeout_ms=0)
    ten.snapshot()
    txn = ten.begin()
    txn.acknowledge_ranges(messages[:3].acknowledgements(other.connection, cumulative=False))  # unknown to it
    txn.produce("audit", rows(1))
    consumer.acknowledge(messages[2])
    with Unchanged(place), raises(TransactionConflict):
        txn.flush()
    with raises(TransactionHasFailedOperation):
        txn.commit()
    assert txn.state == "ABORTED"


@pytest.mark.clause("P-119")
def test_a_conflict_that_is_over_is_none(ten: Any, place: Place) -> None:
    """What stands against a call is looked at again before it is told."""
    other = place.open()
    consumer = other.consumer("orders", "billing")
    messages = consumer.receive(timeout_ms=0)
    held = other.begin()
    held.acknowledge(messages[2])
    held.flush()
    ten.snapshot()
    held.abort()
    with ten.begin() as txn:
        txn.acknowledge(messages[2])
    assert cursor(ten).acknowledged == ((2, 3),)


@pytest.mark.clause("P-85", "P-98")
@pytest.mark.parametrize("flushed", [False, True])
@pytest.mark.parametrize("cumulative", [False, True])
def test_after_an_abort_the_messages_are_delivered_again_at_once(ten: Any, flushed: bool, cumulative: bool) -> None:
    consumer = ten.consumer("orders", "billing")
    txn = ten.begin()
    txn.acknowledge(consumer.receive(4, timeout_ms=0), cumulative=cumulative)
    if flushed:
        txn.flush()
    assert received(consumer) == [4, 5, 6, 7, 8, 9]
    txn.abort()
    assert received(consumer) == [0, 1, 2, 3]
    assert cursor(ten).cursor == 0


@pytest.mark.parametrize("flushed", [True, False], ids=["flushed", "unlogged"])
def test_an_aborted_cumulative_acknowledgement_gives_back_all_that_it_took(ten: Any, flushed: bool) -> None:
    consumer = ten.consumer("orders", "billing")
    consumer.receive(3, timeout_ms=0)
    second = consumer.receive(3, timeout_ms=0)
    txn = ten.begin()
    txn.acknowledge(second, cumulative=True)
    if flushed:
        txn.flush()
    txn.abort()
    assert received(consumer) == list(range(10)), "the first three as well: nobody acknowledged them"


@pytest.mark.clause("P-85")
def test_acknowledgements_over_several_subscriptions_are_all_or_nothing(ns: Any) -> None:
    ns.create_topic("audit", SCHEMA)
    ns.produce("orders", rows(1), partition=0)
    ns.produce("audit", rows(2))
    one, two = ns.consumer("orders", "billing"), ns.consumer("audit", "billing")
    other = ns.consumer("orders", "shipping")
    for commit in (False, True):
        txn = ns.begin()
        for consumer in (one, two, other):
            txn.acknowledge(consumer.receive(timeout_ms=0), cumulative=consumer is two)
        (txn.commit if commit else txn.abort)()
        found = [cursor(ns).cursor, cursor(ns, "audit").cursor, ns.subscription("orders", "shipping").cursors[0].cursor]
        assert found == ([1, 1, 1] if commit else [0, 0, 0])


@pytest.mark.clause("P-85", "P-102")
def test_a_closed_consumers_pending_acknowledgements_stay_pending(ten: Any, place: Place) -> None:
    consumer = ten.consumer("orders", "billing")
    txn = ten.begin()
    messages = consumer.receive(4, timeout_ms=0)
    txn.acknowledge(messages)
    txn.flush()
    consumer.close()
    assert cursor(ten).pending == 4
    for call in (
        consumer.receive,
        lambda: consumer.acknowledge(messages),
        lambda: consumer.seek("earliest"),
        lambda: consumer.negative_acknowledge(messages),
        consumer.redeliver_unacknowledged,
    ):
        with Unchanged(place), raises(InvalidTransactionState, match="closed"):
            call()
    assert "closed" in repr(consumer)
    txn.commit()
    assert cursor(ten).cursor == 4


def test_many_acknowledgements_of_one_transaction_are_one_in_the_entry(ten: Any) -> None:
    consumer = ten.consumer("orders", "billing")
    with ten.begin() as txn:
        for _ in range(10):
            txn.acknowledge(consumer.receive(1, timeout_ms=0))
    (commit,) = [
        line for line in ten.connection.follower.log.entry(txn.result.version).actions if hasattr(line, "shares")
    ]
    assert [item.ranges[0].ranges for item in commit.acknowledgements] == [((0, 10),)]


# --- giving back ----------------------------------------------------------------------------------------------------


def test_what_is_given_back_is_delivered_again(ten: Any) -> None:
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
    txn = ten.begin()
    txn.acknowledge(messages, cumulative=cumulative)
    if flushed:
        txn.flush()
    consumer.negative_acknowledge(messages)
    consumer.redeliver_unacknowledged()
    assert received(consumer) == [4, 5, 6, 7, 8, 9]
    txn.commit()
    assert received(consumer) == []


@pytest.mark.clause("P-209")
def test_what_comes_back_while_messages_are_handed_out_is_not_forgotten(
    memory: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Commits in the background give back in the client's own thread, while the consumer's thread receives."""
    ns, other = memory.open(), memory.open()
    ns.create_topic("orders", SCHEMA)
    ns.produce("orders", rows(0, 1, 2, 3))
    consumer = ns.consumer("orders", "billing")
    txn = ns.begin()
    txn.acknowledge(consumer.receive(2, timeout_ms=0))
    honest = ranges.union
    ended: list[Any] = []

    def interrupted(left: Any, right: Any) -> Any:
        """Between the look at what was handed out and the note of what is: a commit ends in the background."""
        if not ended and threading.current_thread() is threading.main_thread() and right == ((2, 4),):
            other.abort(txn.id)
            ended.append(txn.commit_async())
            with contextlib.suppress(TimeoutError, TransactionAborted):
                ended[0].result(0.5)  # it may have to wait for this call
        return honest(left, right)

    monkeypatch.setattr(ranges, "union", interrupted)
    assert ids(consumer.receive(timeout_ms=0).table) == [2, 3]
    with raises(TransactionAborted):
        ended[0].result(10)
    assert ids(consumer.receive(timeout_ms=0).table) == [0, 1]


def test_what_a_fenced_consumers_transaction_took_is_delivered_at_once(sales: Any) -> None:
    sales.produce("orders", rows(1, 2))
    old = sales.consumer("orders", "billing")
    txn = sales.begin()
    txn.acknowledge(old.receive(timeout_ms=0))
    new = sales.consumer("orders", "billing")
    assert ids(new.receive(timeout_ms=0).table) == [1, 2]


def test_what_was_taken_before_a_seek_is_delivered_again(sales: Any) -> None:
    sales.produce("orders", rows(1, 2))
    consumer = sales.consumer("orders", "billing")
    txn = sales.begin()
    txn.acknowledge(consumer.receive(timeout_ms=0))
    consumer.seek("earliest")
    assert ids(consumer.receive(timeout_ms=0).table) == [1, 2]


def test_an_abort_does_not_give_back_what_was_received_after_a_seek(sales: Any) -> None:
    sales.produce("orders", rows(1, 2))
    consumer = sales.consumer("orders", "billing")
    before = consumer.receive(timeout_ms=0)
    txn = sales.begin()
    txn.acknowledge(before)
    consumer.seek("earliest")
    txn.abort()
    assert ids(consumer.receive(timeout_ms=0).table) == [1, 2]
    consumer.negative_acknowledge(before)
    assert len(consumer.receive(timeout_ms=0)) == 0, "handed out twice"


def _two_taken(place: Place, **options: Any) -> tuple[Any, Any, Any]:
    """A namespace, its consumer, and a flushed transaction that took both messages."""
    ns = place.open(**options)
    ns.create_topic("orders", SCHEMA)
    ns.produce("orders", rows(1, 2))
    consumer = ns.consumer("orders", "billing")
    txn = ns.begin(timeout_ms=10_000)
    txn.acknowledge(consumer.receive(timeout_ms=0))
    return ns, consumer, txn


def test_what_an_administrator_gave_back_is_delivered_again_without_a_call_by_the_owner(memory: Place) -> None:
    _, consumer, txn = _two_taken(memory)
    txn.flush()
    memory.open().abort(txn.id)
    assert ids(consumer.receive(timeout_ms=0).table) == [1, 2]
    txn.abort()
    assert len(consumer.receive(timeout_ms=0)) == 0, "handed out twice"


def test_what_an_abandoned_transaction_took_is_delivered_again_after_its_timeout(
    memory: Place, clock: ManualClock
) -> None:
    _, consumer, txn = _two_taken(memory, clock=clock)
    del txn
    clock.advance(10_001)
    assert ids(consumer.receive(timeout_ms=0).table) == [1, 2]


def test_what_an_abandoned_flushed_transaction_took_is_delivered_again_after_its_timeout(
    memory: Place, clock: ManualClock
) -> None:
    _, consumer, txn = _two_taken(memory, clock=clock)
    txn.flush()
    del txn
    clock.advance(10_001)
    assert len(consumer.receive(timeout_ms=0)) == 0, "others wait 5 s more"
    clock.advance(5_000)
    assert ids(consumer.receive(timeout_ms=0).table) == [1, 2]


def test_an_unknown_outcome_that_an_abort_made_definite_gives_the_messages_back(memory: Place) -> None:
    ns, store = memory.faulty()
    ns.create_topic("orders", SCHEMA)
    ns.produce("orders", rows(1, 2))
    consumer = ns.consumer("orders", "billing")
    ns.connection.appender.create_attempts = 1
    txn = ns.begin()
    txn.acknowledge(consumer.receive(timeout_ms=0))
    store.script.append("dropped")
    store.reads.append("absent")
    with pytest.raises(OutcomeUnknown):
        txn.commit()
    memory.open().produce("orders", rows(3))
    assert ns.abort(txn.id).state == "ABORTED"
    assert ids(consumer.receive(timeout_ms=0).table) == [1, 2, 3]


# --- seek -----------------------------------------------------------------------------------------------------------


@pytest.mark.clause("P-72", "P-75")
def test_a_seek_moves_the_cursor_and_refuses_what_was_received_before(ten: Any, place: Place) -> None:
    consumer = ten.consumer("orders", "billing")
    messages = consumer.receive(timeout_ms=0)
    consumer.acknowledge(messages[:6])
    epoch = ten.subscription("orders", "billing").epoch
    consumer.seek({0: 3})
    assert ten.subscription("orders", "billing").epoch > epoch
    assert received(consumer) == [3, 4, 5, 6, 7, 8, 9]
    with Unchanged(place), raises(ConsumerFenced):
        consumer.acknowledge(messages[8])
    consumer.seek("latest")
    assert received(consumer) == []
    consumer.seek("earliest")
    assert received(consumer) == list(range(10))


def test_a_seek_to_a_time(place: Place, clock: ManualClock) -> None:
    ns = place.open(clock=clock)
    ns.create_topic("orders", SCHEMA)
    for number in range(5):
        clock.advance(1_000)
        ns.produce("orders", rows(number))
    consumer = ns.consumer("orders", "billing")
    at = datetime.datetime.fromtimestamp((START_MS + 3_000) / 1000, datetime.UTC)
    consumer.seek(at)
    assert received(consumer) == [3, 4]
    consumer.seek(at - datetime.timedelta(days=1))
    assert received(consumer) == [0, 1, 2, 3, 4]
    consumer.seek(at + datetime.timedelta(days=1))
    assert received(consumer) == []


@pytest.mark.clause("P-75")
def test_a_seek_is_refused_while_the_log_shows_pending_acknowledgements(ten: Any, place: Place) -> None:
    consumer = ten.consumer("orders", "billing")
    txn = ten.begin()
    txn.acknowledge(consumer.receive(4, timeout_ms=0))
    txn.flush()
    with Unchanged(place), raises(InvalidTransactionState, match="pending"):
        consumer.seek("earliest")
    assert received(consumer, 1) == [4], "the consumer goes on"
    txn.commit()
    consumer.seek("earliest")
    assert received(consumer) == list(range(10))


@pytest.mark.parametrize(
    ("position", "kind"),
    [
        ({0: 11}, OffsetOutOfRange),
        ({0: -1}, InvalidInputError),
        ({1: 0}, InvalidInputError),
        ({0: "5"}, InvalidInputError),
        ({"0": 5}, InvalidInputError),
        ("newest", InvalidInputError),
        (5, InvalidInputError),
        (None, InvalidInputError),
        (datetime.datetime(2026, 1, 1), InvalidInputError),  # noqa: DTZ001 - naive on purpose
    ],
)
def test_a_position_that_makes_no_sense_is_refused(ten: Any, place: Place, position: Any, kind: Any) -> None:
    consumer = ten.consumer("orders", "billing")
    with Unchanged(place):
        with raises(kind):
            consumer.seek(position)
        with raises(kind):
            ten.create_subscription("orders", "other", start=position)
    assert received(consumer, 1) == [0]


def test_a_seek_of_several_topics_is_all_or_nothing(ten: Any) -> None:
    ten.produce("audit", rows(100))
    consumer = ten.consumer(["orders", "audit"], "billing")
    txn = ten.begin()
    batches = [consumer.receive(timeout_ms=0) for _ in range(2)]
    txn.acknowledge(next(batch for batch in batches if batch.topic == "audit"))
    txn.flush()
    with raises(InvalidTransactionState):
        consumer.seek("latest")
    assert cursor(ten).cursor == 0
    consumer.seek("latest", topic="orders")
    assert cursor(ten).cursor == 10
    txn.commit()
    consumer.seek("earliest")
    assert (cursor(ten).cursor, cursor(ten, "audit").cursor) == (0, 0)
    assert sorted(received(consumer) + received(consumer)) == [*range(10), 100]
    with raises(TopicNotFound, match="ordres"):
        consumer.seek("earliest", topic="ordres")


# --- subscriptions --------------------------------------------------------------------------------------------------


def test_a_subscription_is_created_where_it_should_start(ten: Any) -> None:
    ten.create_subscription("orders", "from-start")
    ten.create_subscription("orders", "from-end", start="latest")
    info = ten.create_subscription("orders", "from-four", type="Exclusive", start={0: 4}, lease_ms=5_000)
    assert (info.topic, info.name, info.type, info.consumer) == ("orders", "from-four", "exclusive", None)
    assert ten.subscriptions("orders") == ("from-end", "from-four", "from-start")
    assert [received(ten.consumer("orders", name)) for name in ("from-start", "from-end", "from-four")] == [
        list(range(10)),
        [],
        [4, 5, 6, 7, 8, 9],
    ]
    with raises(SubscriptionExists):
        ten.create_subscription("orders", "from-end")
    ten.create_subscription("orders", "from-end", if_not_exists=True)
    assert "from-four" in info._repr_html_()


def test_a_start_that_names_some_partitions_begins_the_others_at_the_beginning(ns: Any) -> None:
    for partition in (0, 1):
        ns.produce("orders", rows(partition), partition=partition)
    info = ns.create_subscription("orders", "billing", start={1: 1})
    assert [item.cursor for item in info.cursors] == [0, 1]


@pytest.mark.parametrize(
    ("options", "kind"),
    [
        ({"name": "a/b"}, NameNotAllowed),
        ({"name": ".."}, NameNotAllowed),
        ({"name": 7}, NameNotAllowed),
        ({"type": "exclusiv"}, InvalidInputError),
        ({"max_redeliveries": 3, "dead_letter_topic": "orders-dead"}, InvalidInputError),
        ({"type": "failover", "dead_letter_topic": "orders-dead"}, InvalidInputError),
        ({"type": 7}, InvalidInputError),
        ({"takeover": "never"}, InvalidInputError),
        ({"takeover": None}, InvalidInputError),
        ({"lease_ms": 0}, InvalidInputError),
        ({"lease_ms": "30"}, InvalidInputError),
        ({"max_redeliveries": -1}, InvalidInputError),
        ({"max_redeliveries": "5"}, InvalidInputError),
        ({"dead_letter_topic": "../x"}, NameNotAllowed),
        ({"dead_letter_topic": 5}, NameNotAllowed),
        ({"topic": "ordres"}, TopicNotFound),
        ({"topic": None}, NameNotAllowed),
    ],
)
def test_a_subscription_that_makes_no_sense_is_refused(ten: Any, place: Place, options: Any, kind: Any) -> None:
    with Unchanged(place), raises(kind):
        ten.create_subscription(**{"topic": "orders", "name": "billing", **options})


@pytest.mark.parametrize(
    ("arguments", "kind"),
    [
        (([], "billing"), InvalidInputError),
        ((7, "billing"), InvalidInputError),
        ((None, "billing"), InvalidInputError),
        ((["orders", 7], "billing"), NameNotAllowed),
        (("orders", ""), NameNotAllowed),
        (("orders", 7), NameNotAllowed),
        (("ordres", "billing"), TopicNotFound),
    ],
)
def test_a_consumer_that_makes_no_sense_is_refused(ten: Any, place: Place, arguments: Any, kind: Any) -> None:
    with Unchanged(place), raises(kind):
        ten.consumer(*arguments)


def test_the_type_of_a_subscription_is_what_it_was_created_with(ten: Any, place: Place) -> None:
    ten.create_subscription("orders", "billing", type="shared")
    ten.consumer("orders", "billing")
    with Unchanged(place), raises(SubscriptionExists, match="shared"):
        ten.consumer("orders", "billing", type="exclusive")


def test_a_consumers_name_is_a_label(ten: Any, place: Place) -> None:
    for name in ("", "a\nb", 7, "x" * 257):
        with Unchanged(place), raises(NameNotAllowed):
            ten.consumer("orders", "billing", name=name)


@pytest.mark.clause("P-89")
@pytest.mark.parametrize("flushed", [False, True])
def test_a_transaction_goes_on_without_a_subscription_dropped_meanwhile(ten: Any, place: Place, flushed: bool) -> None:
    consumer = ten.consumer("orders", "billing")
    txn = ten.begin()
    txn.acknowledge(consumer.receive(timeout_ms=0))
    txn.produce("audit", rows(1))
    if flushed:
        txn.flush()
    place.open().drop_subscription("orders", "billing")
    result = txn.commit()
    assert result.dropped == ("orders/billing",)
    assert read(ten, "audit") == [1]
    assert ten.subscriptions("orders") == ()


@pytest.mark.clause("P-89")
def test_a_consumer_of_a_dropped_subscription_is_told(ten: Any, place: Place) -> None:
    consumer = ten.consumer("orders", "billing")
    messages = consumer.receive(4, timeout_ms=0)
    place.open().drop_subscription("orders", "billing")
    for call in (
        lambda: consumer.acknowledge(messages),
        lambda: consumer.receive(timeout_ms=0),
        lambda: consumer.seek("latest"),
        lambda: ten.begin().acknowledge(messages),
        lambda: ten.subscription("orders", "billing"),
        lambda: ten.lag("orders", "billing"),
        lambda: ten.drop_subscription("orders", "billing"),
    ):
        with Unchanged(place), raises(SubscriptionNotFound):
            call()


def test_a_subscription_that_does_not_exist_offers_the_nearest(ten: Any) -> None:
    ten.create_subscription("orders", "billing")
    with raises(SubscriptionNotFound, match="biling") as caught:
        ten.lag("orders", "biling")
    assert caught.value.advice == "did you mean 'billing'?"


def test_a_consumer_of_a_dropped_topic_is_told(ten: Any, place: Place) -> None:
    consumer = ten.consumer("orders", "billing")
    consumer.receive(4, timeout_ms=0)
    place.open().drop_topic("orders")
    with raises(SubscriptionNotFound, match="dropped"):
        consumer.receive(timeout_ms=0)


# --- lag and what is pending ----------------------------------------------------------------------------------------


def test_lag_says_how_far_behind(place: Place, clock: ManualClock) -> None:
    ns = place.open(clock=clock)
    ns.create_topic("orders", SCHEMA, partitions=2)
    ns.create_subscription("orders", "billing")
    assert [(item.behind_messages, item.behind_ms) for item in ns.lag("orders", "billing")] == [(0, None)] * 2
    ns.produce("orders", rows(0, 1), partition=0)
    clock.advance(1_000)
    ns.produce("orders", rows(2, 3), partition=0)
    clock.advance(500)
    (first, second) = ns.lag("orders", "billing")
    assert (first.partition, first.cursor, first.end, first.behind_messages, first.behind_ms) == (0, 0, 4, 4, 1_500)
    assert (second.behind_messages, second.behind_ms) == (0, None)
    consumer = ns.consumer("orders", "billing")
    messages = consumer.receive(timeout_ms=0)
    consumer.acknowledge(messages[[0, 1, 3]])
    (first, _) = ns.lag("orders", "billing")
    assert (first.cursor, first.behind_messages, first.behind_ms) == (2, 1, 500)
    ns.checkpoint()
    consumer.acknowledge(messages[2])
    (first, _) = place.open(clock=clock).lag("orders", "billing")
    assert (first.cursor, first.behind_messages, first.behind_ms) == (4, 0, None)


def test_a_description_counts_what_is_pending(ten: Any) -> None:
    consumer = ten.consumer("orders", "billing")
    messages = consumer.receive(timeout_ms=0)
    consumer.acknowledge(messages[1])
    txn = ten.begin()
    txn.acknowledge(messages[[3, 4]])
    txn.flush()
    found = cursor(ten)
    assert (found.partition, found.cursor, found.acknowledged, found.pending, found.redelivered) == (
        0,
        0,
        ((1, 2),),
        2,
        0,
    )


# --- deadlines ------------------------------------------------------------------------------------------------------


@pytest.mark.clause("P-64")
def test_who_waits_for_what_an_overdue_transaction_holds_ends_it(place: Place, clock: ManualClock) -> None:
    ns = place.open(clock=clock)
    ns.create_topic("orders", SCHEMA)
    ns.produce("orders", rows(0, 1))
    owner = place.open(clock=clock)
    consumer = ns.consumer("orders", "billing")
    txn = owner.begin(timeout_ms=1_000)
    txn.acknowledge(consumer.receive(timeout_ms=0))
    txn.flush()
    consumer.redeliver_unacknowledged()
    assert received(consumer) == []
    clock.advance(5_999)
    assert received(consumer) == []
    clock.advance(1)
    assert received(consumer) == [0, 1]
    assert ns.transaction(txn.id).reason == "timeout"


def test_a_transaction_that_was_forgotten_holds_nothing_after_its_deadline(place: Place, clock: ManualClock) -> None:
    ns = place.open(clock=clock)
    ns.create_topic("orders", SCHEMA)
    ns.produce("orders", rows(0, 1))
    consumer = ns.consumer("orders", "billing")
    messages = consumer.receive(timeout_ms=0)
    forgotten = ns.begin(timeout_ms=1_000)
    forgotten.acknowledge(messages)
    with raises(TransactionConflict):
        ns.begin().acknowledge(messages)
    clock.advance(1_000)
    consumer.redeliver_unacknowledged()
    assert received(consumer) == [0, 1]
    with ns.begin() as txn:
        txn.acknowledge(messages)
    assert cursor(ns).cursor == 2
