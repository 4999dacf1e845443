"""What acknowledging answers, in a transaction and outside (docs/guarantees.md, Acknowledging)."""

from __future__ import annotations

import random
import shutil
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import catalog
import txnlog
from tests.client.support import SCHEMA, Place, Unchanged, cursor, holding, ids, raises, read, received, rows
from txnlog.api.internals import acknowledge_ranges
from txnlog.common.ids import TxnId
from txnlog.errors import (
    InvalidInputError,
    InvalidTransactionState,
    TransactionAborted,
    TransactionConflict,
    TransactionHasFailedOperation,
)
from txnlog.testing import ManualClock

# --- acknowledging outside a transaction -----------------------------------------------------------------------------


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
    txn = holding(ten, messages[3], flush=flushed)
    with Unchanged(place), raises(TransactionConflict, match="pending") as caught:
        consumer.acknowledge(messages[:5], cumulative=cumulative)
    assert caught.value.advice.startswith("try again when that transaction has ended"), "the caller has none to abort"
    consumer.acknowledge(messages[4])
    txn.commit()
    assert cursor(ten).acknowledged == ((3, 5),)


def test_a_plain_acknowledge_whose_number_was_ended_is_not_said_to_be_done(memory: Place) -> None:
    ns, store = memory.faulty_orders(1, 2)
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


def test_messages_chosen_in_any_order_and_twice_are_each_acknowledged_once(place: Place) -> None:
    ns = place.orders(partitions=3)
    for partition in range(3):
        ns.produce("orders", rows(*range(8)), partition=partition)
    messages = ns.consumer("orders", "billing").receive(timeout_ms=0)
    chance = random.Random(7)
    for _ in range(200):
        chosen = messages[[chance.randrange(24) for _ in range(chance.randrange(1, 40))]]
        named = [
            (partition, offset)
            for partition, found in chosen._ranges().items()
            for start, end in found
            for offset in range(start, end)
        ]
        assert sorted(named) == sorted({(partition, offset) for _, partition, offset in chosen.positions})
        assert chosen.end_offsets == {
            partition: 1 + max(offset for at, offset in named if at == partition) for partition, _ in named
        }


def test_messages_of_another_namespace_are_refused(ten: Any, place: Place) -> None:
    other = place.orders(1, namespace="shipping")
    messages = other.consumer("orders", "billing").receive(timeout_ms=0)
    mine = ten.consumer("orders", "billing")
    txn = ten.begin()
    with Unchanged(place):
        for call in (txn.acknowledge, mine.acknowledge):
            with raises(InvalidInputError, match="shipping"):
                call(messages)
    assert txn.state == "OPEN"


def test_messages_of_a_namespace_under_the_same_relative_path_elsewhere_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    handles = []
    for folder in ("here", "there"):
        (tmp_path / folder).mkdir()
        monkeypatch.chdir(tmp_path / folder)
        ns = txnlog.open("lake", namespace="sales", create=True)
        ns.create_topic("orders", SCHEMA)
        ns.produce("orders", rows(1))
        ns.consumer("orders", "billing")
        handles.append(ns)
    here, there = handles
    messages = here.consumer("orders", "billing").receive(timeout_ms=0)
    with there.begin() as txn, raises(InvalidInputError, match="the messages come from"):
        txn.acknowledge(messages)
    assert (cursor(here).cursor, cursor(there).cursor) == (0, 0)
    here.close()
    there.close()


def test_messages_of_a_namespace_that_was_dropped_are_refused_by_the_next_of_its_name(local: Place) -> None:
    dropped = local.orders(1)
    messages = dropped.consumer("orders", "billing").receive(timeout_ms=0)
    with catalog.open(local.root) as root:
        shutil.rmtree(root.drop_namespace("sales"))
    ns = local.orders(2)
    ns.consumer("orders", "billing")
    with ns.begin() as txn, raises(InvalidInputError, match="the messages come from"):
        txn.acknowledge(messages)
    assert cursor(ns).cursor == 0


@pytest.fixture
def stale(place: Place, clock: ManualClock) -> Any:
    """A handle that has seen the topic and nothing of what came later."""
    return place.orders(clock=clock)


@pytest.fixture
def messages(stale: Any, place: Place, clock: ManualClock) -> Any:
    """Two messages that a consumer of a Shared subscription received through another handle."""
    ns = place.open(clock=clock)
    ns.produce("orders", rows(0, 1))
    return ns.consumer("orders", "billing", type="shared").receive(timeout_ms=0)


@pytest.mark.clause("P-171")
def test_a_shared_acknowledgement_is_pending_whatever_the_handle_knew_of_the_subscription(
    stale: Any, messages: Any, place: Place
) -> None:
    _txn = holding(stale, messages)
    assert cursor(place.open()).pending == 2


@pytest.mark.clause("P-82")
def test_a_cumulative_acknowledgement_of_shared_messages_is_refused_whatever_the_handle_knew(
    stale: Any, messages: Any, place: Place
) -> None:
    txn = stale.begin()
    with Unchanged(place), raises(InvalidInputError, match="shared"):
        txn.acknowledge(messages, cumulative=True)


@pytest.mark.clause("P-209")
@pytest.mark.parametrize("how", ["admin", "timeout", "abandoned", "own"])
@pytest.mark.parametrize("of_another", [True, False])
def test_what_came_to_nothing_is_delivered_again_by_a_consumer_of_another_handle(
    stale: Any, place: Place, clock: ManualClock, how: str, of_another: bool
) -> None:
    ns = place.open(clock=clock)
    ns.produce("orders", rows(0, 1))
    consumer = ns.consumer("orders", "billing")
    txn = (stale if of_another else ns).begin(timeout_ms=10_000)
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


# --- acknowledging inside a transaction ------------------------------------------------------------------------------


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
    with Unchanged(place), raises(TransactionConflict, match="acknowledged before.*receive again: these messages are"):
        txn.acknowledge(messages[4], cumulative=cumulative)
    with Unchanged(place), raises(TransactionHasFailedOperation, match="receive again"):
        txn.commit()
    consumer.acknowledge(messages[4], cumulative=cumulative)
    assert ids(consumer.receive(timeout_ms=0).table) == []
    with ten.begin() as again:
        consumer.redeliver_unacknowledged()
        again.acknowledge(consumer.receive(timeout_ms=0), cumulative=cumulative)
    assert cursor(ten).cursor == 10


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


@pytest.mark.clause("P-81")
@pytest.mark.parametrize("flushed", [False, True])
def test_a_cumulative_one_further_on_replaces_the_first(ten: Any, flushed: bool) -> None:
    messages = ten.consumer("orders", "billing").receive(timeout_ms=0)
    txn = holding(ten, messages[1])
    txn.acknowledge(messages[3], cumulative=True)
    if flushed:
        txn.flush()
    txn.acknowledge(messages[6], cumulative=True)
    txn.commit()
    assert cursor(ten).cursor == 7
    txn = holding(ten, messages[8], cumulative=True)
    with raises(TransactionConflict, match="already"):
        txn.acknowledge(messages[7], cumulative=True)


@pytest.mark.clause("P-79", "P-80")
@pytest.mark.parametrize("call", ["commit", "flush"])
def test_a_conflict_with_another_client_is_found_at_the_commit(ten: Any, place: Place, call: str) -> None:
    other = place.open()
    consumer = other.consumer("orders", "billing")
    messages = consumer.receive(timeout_ms=0)
    txn = ten.begin()
    ten.snapshot()
    acknowledge_ranges(txn, messages[:3]._acknowledgements(other._connection, cumulative=False))  # unknown to it
    txn.produce("audit", rows(1))
    consumer.acknowledge(messages[2])
    with Unchanged(place), raises(TransactionConflict, match="acknowledged before"):
        getattr(txn, call)()
    with raises(TransactionConflict if call == "commit" else TransactionHasFailedOperation):
        txn.commit()
    assert (txn.state, read(ten, "audit")) == ("ABORTED", [])


@pytest.mark.clause("P-119")
def test_a_conflict_that_is_over_is_none(ten: Any, place: Place) -> None:
    """What stands against a call is looked at again before it is told."""
    other = place.open()
    consumer = other.consumer("orders", "billing")
    messages = consumer.receive(timeout_ms=0)
    held = holding(other, messages[2], flush=True)
    ten.snapshot()
    held.abort()
    with ten.begin() as txn:
        txn.acknowledge(messages[2])
    assert cursor(ten).acknowledged == ((2, 3),)


@pytest.mark.parametrize("flushed", [True, False], ids=["flushed", "unlogged"])
def test_an_aborted_cumulative_acknowledgement_releases_all_that_it_took(ten: Any, flushed: bool) -> None:
    consumer = ten.consumer("orders", "billing")
    consumer.receive(3, timeout_ms=0)
    second = consumer.receive(3, timeout_ms=0)
    txn = holding(ten, second, cumulative=True, flush=flushed)
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
        line for line in ten._connection.follower.log.entry(txn.result.version).actions if hasattr(line, "shares")
    ]
    assert [item.ranges[0].ranges for item in commit.acknowledgements] == [((0, 10),)]


def test_messages_of_another_subscription_are_refused(ten: Any, place: Place) -> None:
    """A variable of the wrong name would take them off the other one, or give nothing back."""
    consumer, other = ten.consumer("orders", "billing"), ten.consumer("orders", "shipping")
    messages = consumer.receive(timeout_ms=0)
    with Unchanged(place):
        for call in (other.acknowledge, partial(other.acknowledge, cumulative=True), other.negative_acknowledge):
            with raises(InvalidInputError, match="another subscription"):
                call(messages)
    consumer.acknowledge(messages)


def test_a_mask_and_an_empty_batch_are_distinguished_from_wrong_positions(ns: Any) -> None:
    ns.produce("orders", rows(1, 2))
    consumer = ns.consumer("orders", "billing")
    messages = consumer.receive(timeout_ms=0)
    for mask in ([True, False], np.array([True, False])):
        with raises(InvalidInputError) as caught:
            messages[mask]
        assert "flatnonzero" in caught.value.advice
    assert len(messages[np.flatnonzero(np.array([True, False]))]) == 1
    with raises(InvalidInputError, match="there are no messages"):
        consumer.receive(timeout_ms=0)[0]


def test_who_acknowledges_twice_in_a_transaction_hears_that_it_is_over(ns: Any) -> None:
    ns.produce("orders", rows(1))
    messages = ns.consumer("orders", "billing").receive(timeout_ms=0)
    txn = holding(ns, messages)
    for call, kind in (
        (lambda: txn.acknowledge(messages), TransactionConflict),
        (lambda: txn.produce("orders", rows(2)), TransactionHasFailedOperation),
        (txn.commit, TransactionHasFailedOperation),
    ):
        with raises(kind) as caught:
            call()
        assert "begin a new one" in caught.value.advice
