"""What a cumulative acknowledgement must not take: messages that its consumer has still to hand out (P-215)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.client.support import SCHEMA, Place, Unchanged, holding, ids, raises, received, rows
from txnlog.errors import OutOfOrderSequence, TransactionConflict, TransactionHasFailedOperation

Acknowledge = Callable[..., None]


@pytest.fixture(params=["plain", "in a transaction"])
def acknowledge(request: pytest.FixtureRequest, ten: Any) -> Acknowledge:
    """Acknowledges messages of ``ten``: at once, or in a transaction that commits."""

    def plain(consumer: Any, messages: Any) -> None:
        consumer.acknowledge(messages, cumulative=True)

    def inside(_consumer: Any, messages: Any) -> None:
        with ten.begin() as txn:
            txn.acknowledge(messages, cumulative=True)

    return plain if request.param == "plain" else inside


def position(ns: Any) -> int:
    found: int = ns.subscription("orders", "billing").cursors[0].cursor
    return found


@pytest.mark.clause("P-215")
@pytest.mark.parametrize("cumulative", [False, True])
@pytest.mark.parametrize("flushed", [False, True])
@pytest.mark.parametrize("by_others", [False, True])
def test_it_does_not_take_what_an_aborted_transaction_released(
    ten: Any, place: Place, acknowledge: Acknowledge, cumulative: bool, flushed: bool, by_others: bool
) -> None:
    consumer = ten.consumer("orders", "billing")
    txn = holding(ten, consumer.receive(4, timeout_ms=0), cumulative=cumulative, flush=flushed)
    later = consumer.receive(3, timeout_ms=0)
    if by_others and flushed:
        place.open().abort(txn.id, by="test", why="hanging")
    else:
        txn.abort()
    with Unchanged(place), raises(TransactionConflict, match="offset 0 .* still to be delivered"):
        acknowledge(consumer, later)
    assert received(consumer, 4) == [0, 1, 2, 3]
    acknowledge(consumer, later)
    assert position(ten) == 7


@pytest.mark.clause("P-215")
def test_it_does_not_take_what_its_user_released(ten: Any) -> None:
    consumer = ten.consumer("orders", "billing")
    messages = consumer.receive(timeout_ms=0)
    consumer.negative_acknowledge(messages[[2, 4]])
    with raises(TransactionConflict, match="offset 2 "):
        consumer.acknowledge(messages[7], cumulative=True)
    consumer.acknowledge(messages[:5], cumulative=True)
    assert position(ten) == 5
    consumer.acknowledge(messages[7], cumulative=True)
    assert (position(ten), received(consumer)) == (8, [])


@pytest.mark.clause("P-215")
def test_each_partition_is_looked_at(ns: Any) -> None:
    ns.create_topic("clicks", SCHEMA, partitions=2)
    for partition in (0, 1):
        ns.produce("clicks", rows(0, 1, 2), partition=partition)
    consumer = ns.consumer("clicks", "billing")
    first = consumer.receive(timeout_ms=0)
    consumer.negative_acknowledge(first[3])
    consumer.acknowledge(first[2], cumulative=True)
    with raises(TransactionConflict, match="offset 0 of partition 1"):
        consumer.acknowledge(first[5], cumulative=True)


@pytest.mark.clause("P-215")
def test_a_refused_transaction_releases_all_that_it_wanted(ten: Any) -> None:
    """A function that ``transact`` runs again receives it all, in order."""
    consumer = ten.consumer("orders", "billing")
    messages = consumer.receive(timeout_ms=0)
    consumer.negative_acknowledge(messages[0])
    txn = ten.begin()
    with raises(TransactionConflict):
        txn.acknowledge(messages[5], cumulative=True)
    with raises(TransactionHasFailedOperation):
        txn.commit()
    assert (position(ten), received(consumer)) == (0, [0, 1, 2, 3, 4, 5])


@pytest.mark.clause("P-215")
@pytest.mark.parametrize("inside", [True, False])
@pytest.mark.parametrize("commit", [True, False])
def test_it_does_not_take_what_was_passed_over_because_an_older_consumers_transaction_held_it(
    memory: Place, inside: bool, commit: bool
) -> None:
    ns, other = memory.open(), memory.open()
    ns.create_topic("orders", SCHEMA)
    ns.produce("orders", rows(0, 1, 2, 3))
    txn = ns.begin()
    txn.acknowledge(ns.consumer("orders", "billing").receive(timeout_ms=0)[1])
    token = txn.prepare()
    consumer = other.consumer("orders", "billing")
    messages = consumer.receive(timeout_ms=0)
    assert ids(messages.table) == [0, 2, 3]
    ns.complete(token, commit=commit)
    second = other.begin()
    call = second.acknowledge if inside else consumer.acknowledge
    if commit:
        call(messages, cumulative=True)
        second.commit()
        assert position(ns) == 4
        return
    with raises(TransactionConflict, match="offset 1 .* still to be delivered"):
        call(messages, cumulative=True)
    second.abort()
    seen = consumer.receive(timeout_ms=0)
    assert ids(seen.table) == ([0, 1, 2, 3] if inside else [1]), "what an aborted transaction took comes with it"
    consumer.acknowledge(messages, cumulative=True)
    assert position(ns) == 4


@pytest.mark.clause("P-209", "P-215")
def test_it_does_not_take_what_a_failed_transaction_will_release(ten: Any, acknowledge: Acknowledge) -> None:
    consumer, producer = ten.consumer("orders", "billing"), ten.producer("loader")
    producer.produce("audit", rows(1), partition=0, sequence=0)
    first = holding(producer, consumer.receive(4, timeout_ms=0))
    first.produce("audit", rows(2), partition=0, sequence=7)
    with raises(OutOfOrderSequence):
        first.prepare()
    later = consumer.receive(3, timeout_ms=0)
    with raises(TransactionConflict, match="pending"):
        acknowledge(consumer, later)
    first.abort()
    assert received(consumer, 4) == [0, 1, 2, 3]


@pytest.mark.clause("P-208", "P-215")
def test_it_does_not_take_what_a_transaction_of_another_handle_has_in_hand(ten: Any, place: Place) -> None:
    consumer = ten.consumer("orders", "billing")
    first = holding(place.open(), consumer.receive(4, timeout_ms=0))
    later = consumer.receive(3, timeout_ms=0)
    with raises(TransactionConflict, match="pending"):
        consumer.acknowledge(later, cumulative=True)
    first.commit()
    consumer.acknowledge(later, cumulative=True)
    assert position(ten) == 7


@pytest.mark.clause("P-208", "P-215")
@pytest.mark.parametrize("flushed", [False, True])
def test_it_does_not_take_what_the_consumers_handle_holds(ten: Any, place: Place, flushed: bool) -> None:
    """The transaction of one handle, and a consumer of another, whose own transaction has messages in hand."""
    consumer = ten.consumer("orders", "billing")
    first, second = ten.begin(), place.open().begin()
    first.acknowledge(consumer.receive(4, timeout_ms=0))
    if flushed:
        first.flush()
    with raises(TransactionConflict, match="pending"):
        second.acknowledge(consumer.receive(3, timeout_ms=0), cumulative=True)
    first.abort()
    assert received(consumer, 4) == [0, 1, 2, 3]


@pytest.mark.clause("P-209", "P-215")
@pytest.mark.parametrize("of_the_consumer", [False, True])
def test_it_does_not_take_what_its_consumer_still_thinks_held(ten: Any, place: Place, of_the_consumer: bool) -> None:
    """Only the handle that acknowledges has seen that the transaction which had them was aborted."""
    consumer, other, third = ten.consumer("orders", "billing"), place.open(), place.open()
    first = holding((ten if of_the_consumer else other), consumer.receive(4, timeout_ms=0), flush=True)
    later = consumer.receive(3, timeout_ms=0)
    third.abort(first.id, by="ada", why="hanging")
    other._connection.follower.refresh()
    with raises(TransactionConflict, match="is still to be delivered"):
        other.begin().acknowledge(later, cumulative=True)
    assert received(consumer, 4) == [0, 1, 2, 3]
