"""Several consumers on one subscription: who receives what, who acknowledges first, and whom a seek fences."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from tests.client.shared import LEASE_MS, actions, ns, other
from tests.client.support import (
    SCHEMA,
    Place,
    Unchanged,
    begun,
    counts,
    cursor,
    holding,
    ids,
    raises,
    read,
    received,
    rows,
    take,
)
from txnlog.client import delivery
from txnlog.errors import (
    ConsumerFenced,
    InvalidInputError,
    StoreError,
    SubscriptionExists,
    SubscriptionNotFound,
    TransactionConflict,
    TransactionHasFailedOperation,
)
from txnlog.format.actions import Lease
from txnlog.testing import ManualClock

__all__ = ["ns", "other"]  # fixtures


# --- several consumers ------------------------------------------------------------------------------------------------


@pytest.mark.clause("P-76", "P-170")
def test_what_one_consumer_has_the_other_does_not_get(ns: Any, other: Any) -> None:
    one, two = ns.consumer("orders", "billing", name="one"), other.consumer("orders", "billing", name="two")
    assert received(one, 4) == [0, 1, 2, 3]
    assert received(two, 4) == [4, 5, 6, 7]
    assert received(one) == [8, 9]
    assert (received(one), received(two)) == ([], [])


def test_a_receive_that_gives_nothing_writes_nothing(ns: Any, other: Any, memory: Place) -> None:
    one, two = ns.consumer("orders", "billing"), other.consumer("orders", "billing")
    take(one)
    with Unchanged(memory):
        assert received(two) == received(one) == []
        two.acknowledge(take(two))
        two.negative_acknowledge(take(two))
        two.redeliver_unacknowledged()


def test_a_grant_is_one_range_however_many_messages_it_has(ns: Any) -> None:
    consumer = ns.consumer("orders", "billing", name="one")
    before = ns.snapshot().version
    take(consumer)
    assert [[list(item.ranges) for item in lease.ranges] for lease in actions(ns, Lease, before)] == [[[(0, 10)]]]


def test_the_consumer_creates_a_shared_subscription(ns: Any, memory: Place) -> None:
    consumer = ns.consumer("orders", "shipping", type="shared")
    assert ns.subscription("orders", "shipping").type == "shared"
    assert received(consumer) == list(range(10))
    with Unchanged(memory), raises(SubscriptionExists, match="shared"):
        ns.consumer("orders", "shipping", type="exclusive")


def test_partitions_have_their_turn_and_topics_too(ns: Any) -> None:
    ns.create_topic("wide", SCHEMA, partitions=3)
    for number in range(9):
        ns.produce("wide", rows(number), partition=number % 3)
    consumer = ns.consumer(["orders", "wide"], "shipping", type="shared")
    found = [take(consumer, 3) for _ in range(6)]
    assert sorted(n for item in found for n in ids(item.table)) == sorted([*range(9), *range(9)][:18])
    assert len({item.positions[0][1] for item in found if item.topic == "wide"}) == 3


# --- acknowledging ----------------------------------------------------------------------------------------------------


@pytest.mark.clause("P-80", "P-88")
def test_an_individual_acknowledgement_of_what_was_taken_is_a_conflict_in_a_transaction(ns: Any, memory: Place) -> None:
    consumer = ns.consumer("orders", "billing")
    messages = take(consumer)
    consumer.acknowledge(messages[[2, 5]])
    with Unchanged(memory):
        consumer.acknowledge(messages[2])
    assert cursor(ns).acknowledged == ((2, 3), (5, 6))
    txn = ns.begin()
    with Unchanged(memory), raises(TransactionConflict, match="acknowledged before"):
        txn.acknowledge(messages[4:6])
    with raises(TransactionHasFailedOperation):
        txn.commit()


@pytest.mark.clause("P-76", "P-80")
def test_the_acknowledgement_decides_whoever_holds_the_lease(ns: Any, other: Any, clock: ManualClock) -> None:
    """The first wins, though its lease is over and the messages are leased to another."""
    one, two = ns.consumer("orders", "billing", name="one"), other.consumer("orders", "billing", name="two")
    late = take(one)
    clock.advance(LEASE_MS)
    again = take(two)
    assert ids(again.table) == list(range(10))
    one.acknowledge(late[:5])
    txn = other.begin()
    with raises(TransactionConflict, match="acknowledged before"):
        txn.acknowledge(again[4:6])
    txn.abort()
    two.acknowledge(again)
    assert cursor(ns).cursor == 10


@pytest.mark.clause("P-80", "P-171")
@pytest.mark.parametrize("plain", [True, False])
def test_what_is_pending_in_another_transaction_is_a_conflict(
    ns: Any, other: Any, clock: ManualClock, plain: bool
) -> None:
    """A transaction's acknowledgement on a Shared subscription is logged at once: nobody hears of it too late."""
    one, two = ns.consumer("orders", "billing", name="one"), other.consumer("orders", "billing", name="two")
    first = take(one)
    clock.advance(LEASE_MS)
    second = take(two)
    txn = holding(ns, first[3])
    assert cursor(other).pending == 1
    with raises(TransactionConflict, match="pending"):
        if plain:
            two.acknowledge(second)
        else:
            other.begin().acknowledge(second)
    txn.commit()
    assert cursor(ns).acknowledged == ((3, 4),)


@pytest.mark.clause("P-88")
def test_what_was_pending_here_and_is_taken_by_now_is_no_conflict_outside_of_a_transaction(
    ns: Any, other: Any, clock: ManualClock
) -> None:
    one, two = ns.consumer("orders", "billing"), other.consumer("orders", "billing")
    messages = take(one)
    _txn = holding(ns, messages[0], timeout_ms=1_000)
    clock.advance(6_000)
    two.acknowledge(take(two, 1))
    one.acknowledge(messages[0])
    assert cursor(ns).cursor == 1


@pytest.mark.clause("P-80")
@pytest.mark.parametrize("again", [slice(5, 6), slice(3, 6)], ids=["one of them", "the same call"])
def test_a_message_twice_in_one_transaction_is_a_conflict(ns: Any, again: slice) -> None:
    messages = take(ns.consumer("orders", "billing"))
    txn = holding(ns, messages[3:6])
    with raises(TransactionConflict, match="pending"):
        txn.acknowledge(messages[again])


@pytest.mark.clause("P-203")
@pytest.mark.parametrize("first", [True, False])
@pytest.mark.parametrize("repeated", [True, False])
def test_an_acknowledgement_that_the_store_refused_is_committed_only_where_it_was_repeated(
    memory: Place, ns: Any, clock: ManualClock, first: bool, repeated: bool
) -> None:
    handle, store = memory.faulty(clock=clock)
    consumer = handle.consumer("orders", "billing")
    messages = take(consumer, 2)
    txn = begun(handle, 1, topic="audit")
    if not first:
        txn.acknowledge(messages[0])
    store.script.append("refused")
    with raises(StoreError):
        txn.acknowledge(messages[int(not first)])
    assert cursor(ns).pending == int(not first)
    if repeated:
        txn.acknowledge(messages[int(not first)])
    txn.commit()
    assert cursor(ns).cursor == int(not first) + int(repeated), "what was told to have failed did"
    assert read(ns, "audit") == [1]


@pytest.mark.clause("P-82")
def test_a_cumulative_acknowledgement_is_refused(ns: Any, memory: Place) -> None:
    consumer = ns.consumer("orders", "billing")
    messages = take(consumer)
    txn = ns.begin()
    with Unchanged(memory):
        for call in (consumer.acknowledge, txn.acknowledge):
            with raises(InvalidInputError, match="shared"):
                call(messages[:4], cumulative=True)
    consumer.acknowledge(messages)
    with Unchanged(memory), raises(InvalidInputError, match="shared"):
        consumer.acknowledge(messages, cumulative=True)
    txn.produce("audit", rows(1))
    txn.commit()
    assert read(ns, "audit") == [1], "the call was wrong, the transaction is not harmed"


@pytest.mark.clause("P-85")
def test_consume_process_produce_over_a_shared_subscription(ns: Any, other: Any) -> None:
    one, two = ns.consumer("orders", "billing"), other.consumer("orders", "billing")
    for handle, consumer in ((ns, one), (other, two)):
        with handle.begin() as txn:
            messages = take(consumer, 5)
            txn.acknowledge(messages)
            txn.produce("audit", rows(*ids(messages.table)))
    assert cursor(ns).cursor == 10
    assert sorted(read(ns, "audit")) == list(range(10))


# --- what is kept in memory -------------------------------------------------------------------------------------------


def test_of_what_was_acknowledged_nothing_is_kept(ns: Any, other: Any) -> None:
    """Two who take turns: to each the messages of the other are holes, for ever."""
    one, two = ns.consumer("orders", "billing", name="one"), other.consumer("orders", "billing", name="two")
    ns.produce("orders", rows(*range(10, 50)))
    for _ in range(25):
        for consumer in (one, two):
            consumer.acknowledge(take(consumer, 1))
    assert cursor(ns).cursor == 50
    take(one)
    kept = one._subscribed[0]._delivered
    assert sum(len(found) for found in kept.values()) == 0


# --- what is shown ----------------------------------------------------------------------------------------------------


def test_a_description_shows_what_is_leased_pending_and_redelivered(ns: Any, other: Any, clock: ManualClock) -> None:
    one, two = ns.consumer("orders", "billing", name="one"), other.consumer("orders", "billing", name="two")
    messages = take(one, 6)
    take(two, 1)
    one.negative_acknowledge(messages[4:6])
    one.acknowledge(messages[0])
    _txn = holding(ns, messages[1:3])
    info = other.subscription("orders", "billing")
    assert (info.type, info.consumer, info.consumers) == ("shared", "two", {"one": 3, "two": 1})
    assert (info.leased, info.pending, info.redelivered) == (4, 2, 2)
    (lag,) = other.lag("orders", "billing")
    assert (lag.cursor, lag.behind_messages, lag.pending, lag.leased) == (1, 9, 2, 4)
    clock.advance(LEASE_MS)
    info = other.subscription("orders", "billing")
    assert (info.consumers, info.leased) == ({}, 0)
    assert "leased" in info.cursors[0]._repr_html_()


# --- fencing ----------------------------------------------------------------------------------------------------------


@pytest.mark.clause("P-75", "P-79")
def test_a_seek_gives_everything_anew_and_fences_the_other_consumers(ns: Any, other: Any) -> None:
    one, two = ns.consumer("orders", "billing"), other.consumer("orders", "billing")
    mine, theirs = take(one, 4), take(two, 3)
    two.negative_acknowledge(theirs[0])
    one.acknowledge(mine)
    one.seek({0: 2})
    calls = (
        lambda: two.receive(timeout_ms=0),
        lambda: two.acknowledge(theirs),
        lambda: two.negative_acknowledge(theirs),
        two.redeliver_unacknowledged,
        lambda: two.seek("latest"),
        lambda: other.begin().acknowledge(theirs),
        lambda: one.acknowledge(mine),
    )
    for call in calls:
        with raises(ConsumerFenced, match="billing"):
            call()
    assert counts(take(one)) == dict.fromkeys(range(2, 10), 0)
    two.close()
    assert received(other.consumer("orders", "billing")) == []


def test_a_seek_of_one_partition_releases_what_was_leased_in_the_others(memory: Place, clock: ManualClock) -> None:
    ns = memory.orders(partitions=2, clock=clock)
    for partition in (0, 1):
        ns.produce("orders", rows(partition), partition=partition)
    consumer = ns.consumer("orders", "billing", type="shared")
    take(consumer)
    consumer.seek({0: 0})
    assert counts(take(consumer)) == {0: 0, 1: 1}


def test_a_drop_that_another_thread_sees_while_messages_are_delivered_comes_before_or_after(
    ns: Any, other: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    consumer = ns.consumer("orders", "billing")
    honest = delivery.TopicDelivery._read
    dropped: list[threading.Thread] = []

    def interrupted(*arguments: Any) -> Any:
        if not dropped:
            other.drop_subscription("orders", "billing")
            dropped.append(threading.Thread(target=ns.snapshot))
            dropped[0].start()
            dropped[0].join(5)
        return honest(*arguments)

    monkeypatch.setattr(delivery.TopicDelivery, "_read", interrupted)
    assert received(consumer) == list(range(10))
    dropped[0].join()
    with raises(SubscriptionNotFound):
        take(consumer)
    consumer.close()
