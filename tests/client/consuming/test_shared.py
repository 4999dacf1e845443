"""Several consumers on one subscription: leases, who acknowledges first, and how often a message was delivered."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from tests.client.support import SCHEMA, Place, Unchanged, counts, cursor, ids, raises, read, received, rows, take
from txnlog.client import shared_delivery
from txnlog.errors import (
    ConsumerFenced,
    InvalidInputError,
    InvalidTransactionState,
    OutcomeUnknown,
    StoreError,
    SubscriptionExists,
    SubscriptionNotFound,
    TransactionAborted,
    TransactionConflict,
    TransactionHasFailedOperation,
    TransactionTimedOut,
)
from txnlog.fold import leases
from txnlog.format.actions import Lease, Release
from txnlog.testing import ManualClock

LEASE_MS = 10_000


@pytest.fixture
def ns(memory: Place, clock: ManualClock) -> Any:
    """Ten messages in one partition, and a Shared subscription whose leases last ten seconds."""
    handle = memory.open(clock=clock)
    handle.create_topic("orders", SCHEMA)
    handle.create_topic("audit", SCHEMA)
    handle.produce("orders", rows(*range(10)))
    handle.create_subscription("orders", "billing", type="shared", lease_ms=LEASE_MS)
    return handle


@pytest.fixture
def other(ns: Any, memory: Place, clock: ManualClock) -> Any:
    """Another client of the namespace."""
    return memory.open(clock=clock)


def actions(ns: Any, kind: type, since: int) -> list[Any]:
    newest = ns.snapshot().version
    return [
        action
        for version in range(since + 1, newest + 1)
        for action in ns._connection.follower.log.entry(version).actions
        if isinstance(action, kind)
    ]


# --- several consumers ------------------------------------------------------------------------------------------------


@pytest.mark.clause("P-76", "P-170")
def test_what_one_consumer_has_the_other_does_not_get(ns: Any, other: Any) -> None:
    one, two = ns.consumer("orders", "billing", name="one"), other.consumer("orders", "billing", name="two")
    assert received(one, 4) == [0, 1, 2, 3]
    assert received(two, 4) == [4, 5, 6, 7]
    assert received(one) == [8, 9]
    assert (received(one), received(two)) == ([], [])


def test_a_shared_consumer_does_not_fence_another(ns: Any, other: Any) -> None:
    one = ns.consumer("orders", "billing", type="shared")
    first = take(one, 4)
    two = other.consumer("orders", "billing", type="shared")
    two.acknowledge(take(two))
    one.acknowledge(first)
    assert cursor(ns).cursor == 10


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
def test_an_individual_acknowledgement_of_what_was_taken_has_no_effect_outside_of_a_transaction(
    ns: Any, memory: Place
) -> None:
    consumer = ns.consumer("orders", "billing")
    messages = take(consumer)
    consumer.acknowledge(messages[[2, 5]])
    with Unchanged(memory):
        consumer.acknowledge(messages[2])
    assert cursor(ns).acknowledged == ((2, 3), (5, 6))


@pytest.mark.clause("P-80")
def test_an_individual_acknowledgement_of_what_was_taken_is_a_conflict_in_a_transaction(ns: Any, memory: Place) -> None:
    consumer = ns.consumer("orders", "billing")
    messages = take(consumer)
    consumer.acknowledge(messages[[2, 5]])
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
    txn = ns.begin()
    txn.acknowledge(first[3])
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
    txn = ns.begin(timeout_ms=1_000)
    txn.acknowledge(messages[0])
    clock.advance(6_000)
    two.acknowledge(take(two, 1))
    one.acknowledge(messages[0])
    assert cursor(ns).cursor == 1


@pytest.mark.clause("P-80")
def test_a_message_twice_in_one_transaction_is_a_conflict(ns: Any) -> None:
    messages = take(ns.consumer("orders", "billing"))
    txn = ns.begin()
    txn.acknowledge(messages[3:6])
    with raises(TransactionConflict, match="pending"):
        txn.acknowledge(messages[5])


@pytest.mark.clause("P-80")
def test_the_same_acknowledgement_twice_in_one_transaction_is_a_conflict(ns: Any) -> None:
    messages = take(ns.consumer("orders", "billing"))
    txn = ns.begin()
    txn.acknowledge(messages[3:6])
    with raises(TransactionConflict, match="pending"):
        txn.acknowledge(messages[3:6])


@pytest.mark.clause("P-203")
@pytest.mark.parametrize("first", [True, False])
@pytest.mark.parametrize("repeated", [True, False])
def test_an_acknowledgement_that_the_store_refused_is_committed_only_where_it_was_repeated(
    memory: Place, ns: Any, clock: ManualClock, first: bool, repeated: bool
) -> None:
    handle, store = memory.faulty(clock=clock)
    consumer = handle.consumer("orders", "billing")
    messages = take(consumer, 2)
    txn = handle.begin()
    txn.produce("audit", rows(1))
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


# --- what comes again -------------------------------------------------------------------------------------------------


@pytest.mark.clause("P-86", "P-171")
def test_after_an_abort_the_messages_come_again_and_were_counted_once(ns: Any, other: Any) -> None:
    one, two = ns.consumer("orders", "billing"), other.consumer("orders", "billing")
    messages = take(one)
    one.acknowledge(messages[0])
    txn = ns.begin()
    txn.acknowledge(messages[1:4])
    assert received(two) == []
    txn.abort()
    again = take(two)
    assert counts(again) == {1: 1, 2: 1, 3: 1}
    two.acknowledge(again)
    assert again.redelivery_counts == [1, 1, 1], "as of the receipt"
    assert received(one) == []


@pytest.mark.clause("P-86")
@pytest.mark.parametrize("how", ["admin", "timeout"])
@pytest.mark.parametrize("call", ["commit", "abort"])
def test_an_abort_that_the_owner_hears_of_late_is_counted_once(
    ns: Any, other: Any, clock: ManualClock, how: str, call: str
) -> None:
    consumer = ns.consumer("orders", "billing", name="one")
    txn = ns.begin(timeout_ms=1_000)
    txn.acknowledge(take(consumer, 3))
    if how == "admin":
        other.abort(txn.id)
    else:
        clock.advance(6_000)
    again = take(consumer, 3)
    assert counts(again) == {0: 1, 1: 1, 2: 1}
    if call == "abort":
        txn.abort()
    else:
        with raises(TransactionAborted if how == "admin" else TransactionTimedOut):
            txn.commit()
    assert other.subscription("orders", "billing").consumers == {"one": 3}, "it works on them"
    consumer.negative_acknowledge(again)
    assert counts(take(other.consumer("orders", "billing"), 3)) == {0: 2, 1: 2, 2: 2}


@pytest.mark.clause("P-86")
def test_who_waits_for_what_an_overdue_transaction_holds_ends_it(ns: Any, other: Any, clock: ManualClock) -> None:
    one, two = ns.consumer("orders", "billing"), other.consumer("orders", "billing")
    txn = ns.begin(timeout_ms=1_000)
    txn.acknowledge(take(one, 3))
    clock.advance(5_999)
    assert received(two, 1) == [3]
    clock.advance(1)
    assert counts(take(two, 3)) == {0: 1, 1: 1, 2: 1}
    assert ns.transaction(txn.id).reason == "timeout"


@pytest.mark.clause("P-86")
def test_after_a_conflict_and_an_abort_the_others_of_its_messages_come_again(ns: Any, other: Any) -> None:
    one = ns.consumer("orders", "billing")
    messages = take(one)
    other.consumer("orders", "billing").acknowledge(messages[5])
    txn = ns.begin()
    with raises(TransactionConflict):
        txn.acknowledge(messages[4:7])
    txn.abort()
    assert counts(take(one)) == {4: 1, 6: 1}


@pytest.mark.clause("P-78", "P-170")
def test_messages_of_an_expired_lease_are_granted_again_and_counted_in_the_same_entry(
    ns: Any, other: Any, clock: ManualClock
) -> None:
    one, two = ns.consumer("orders", "billing", name="one"), other.consumer("orders", "billing", name="two")
    take(one, 6)
    clock.advance(LEASE_MS - 1)
    assert received(two) == [6, 7, 8, 9]
    clock.advance(1)
    before = ns.snapshot().version
    assert counts(take(two, 2)) == {0: 1, 1: 1}
    assert ns.snapshot().version == before + 1
    (released,) = actions(ns, Release, before)
    assert (released.redeliver, released.ranges[0].ranges) == (True, ((0, 6),))
    assert leases.name_of(released.consumer) == "one"
    assert counts(take(two)) == {2: 1, 3: 1, 4: 1, 5: 1}, "those that were not granted at once were counted too, once"


@pytest.mark.clause("P-78")
def test_a_consumer_that_lets_its_own_lease_end_receives_its_messages_again(ns: Any, clock: ManualClock) -> None:
    consumer = ns.consumer("orders", "billing")
    messages = take(consumer, 3)
    clock.advance(LEASE_MS)
    assert counts(take(consumer, 3)) == {0: 1, 1: 1, 2: 1}
    consumer.acknowledge(messages)
    assert cursor(ns).cursor == 3


@pytest.mark.clause("P-78")
def test_what_is_pending_when_its_lease_ends_is_not_counted(ns: Any, other: Any, clock: ManualClock) -> None:
    one, two = ns.consumer("orders", "billing"), other.consumer("orders", "billing")
    messages = take(one)
    txn = ns.begin(timeout_ms=10 * LEASE_MS)
    txn.acknowledge(messages[:2])
    clock.advance(LEASE_MS)
    assert counts(take(two)) == dict.fromkeys(range(2, 10), 1)
    txn.abort()
    assert counts(take(two)) == {0: 1, 1: 1}


def test_a_negative_acknowledgement_gives_messages_to_anybody_and_is_counted(ns: Any, other: Any) -> None:
    one, two = ns.consumer("orders", "billing"), other.consumer("orders", "billing")
    messages = take(one)
    one.negative_acknowledge(messages[[2, 5]])
    again = take(two)
    assert counts(again) == {2: 1, 5: 1}
    two.negative_acknowledge(again[1])
    assert counts(take(one)) == {5: 2}


def test_a_negative_acknowledgement_of_a_pending_message_has_no_effect(ns: Any, memory: Place) -> None:
    consumer = ns.consumer("orders", "billing")
    messages = take(consumer)
    txn = ns.begin()
    txn.acknowledge(messages[:4])
    with Unchanged(memory):
        consumer.negative_acknowledge(messages[:4])
    consumer.redeliver_unacknowledged()
    assert received(consumer) == [4, 5, 6, 7, 8, 9]
    txn.commit()
    assert cursor(ns).cursor == 4


def test_a_negative_acknowledgement_of_what_another_has_by_now_has_no_effect(
    ns: Any, other: Any, clock: ManualClock, memory: Place
) -> None:
    one, two = ns.consumer("orders", "billing"), other.consumer("orders", "billing")
    late = take(one)
    clock.advance(LEASE_MS)
    again = take(two)
    with Unchanged(memory):
        one.negative_acknowledge(late)
        one.redeliver_unacknowledged()
    assert received(one) == []
    two.negative_acknowledge(again[0])
    assert counts(take(one)) == {0: 2}


@pytest.mark.clause("P-214")
@pytest.mark.parametrize("name", ["host-1", "n" * 256])
@pytest.mark.parametrize("call", ["negative_acknowledge", "redeliver_unacknowledged", "close"])
def test_who_has_the_name_of_another_has_leases_of_its_own(
    ns: Any, other: Any, clock: ManualClock, name: str, call: str
) -> None:
    old, new = ns.consumer("orders", "billing", name=name), other.consumer("orders", "billing", name=name)
    messages = take(old, 3)
    clock.advance(LEASE_MS)
    assert counts(take(new, 3)) == {0: 1, 1: 1, 2: 1}
    if call == "negative_acknowledge":
        old.negative_acknowledge(messages)
    else:
        getattr(old, call)()
    assert other.subscription("orders", "billing").consumers == {name[:247]: 3}, "those of the newer one"


def test_messages_are_released_once(ns: Any, memory: Place) -> None:
    consumer = ns.consumer("orders", "billing")
    messages = take(consumer)
    consumer.negative_acknowledge(messages[:2])
    with Unchanged(memory):
        consumer.negative_acknowledge(messages[:2])
    assert counts(take(consumer)) == {0: 1, 1: 1}


def test_redeliver_unacknowledged_gives_all_back(ns: Any, other: Any) -> None:
    one, two = ns.consumer("orders", "billing"), other.consumer("orders", "billing")
    messages = take(one, 5)
    one.acknowledge(messages[[1, 2]])
    one.redeliver_unacknowledged()
    assert counts(take(two)) == {0: 1, 3: 1, 4: 1} | dict.fromkeys(range(5, 10), 0)


@pytest.mark.clause("P-85")
def test_a_consumer_that_closes_gives_its_leases_back_but_what_is_pending_stays_pending(ns: Any, other: Any) -> None:
    one, two = ns.consumer("orders", "billing"), other.consumer("orders", "billing")
    messages = take(one, 6)
    txn = ns.begin()
    txn.acknowledge(messages[:2])
    one.close()
    one.close()
    assert counts(take(two)) == {2: 1, 3: 1, 4: 1, 5: 1} | dict.fromkeys(range(6, 10), 0)
    with raises(InvalidTransactionState, match="closed"):
        one.receive()
    txn.abort()
    assert counts(take(two)) == {0: 1, 1: 1}


def test_closing_never_fails(ns: Any, other: Any) -> None:
    consumer = ns.consumer("orders", "billing")
    take(consumer)
    other.drop_subscription("orders", "billing")
    consumer.close()
    one = ns.consumer("orders", "billing", type="shared")
    take(one)
    ns.produce("orders", rows(*range(1_000)))
    ahead = ns.consumer("orders", "ahead", type="shared")
    received = [take(ahead, 100) for _ in range(4)]
    ahead.acknowledge(received[-1])  # and asks for the next ones in the same entry
    ns.close()
    one.close()
    ahead.close()


# --- doubt ------------------------------------------------------------------------------------------------------------


def test_a_grant_of_unknown_outcome_is_delivered_if_it_is_in_the_log_and_asked_for_again_if_not(
    ns: Any, memory: Place, clock: ManualClock
) -> None:
    for word in ("broken-after", "dropped"):
        handle, store = memory.faulty(clock=clock)
        consumer = handle.consumer("orders", "billing")
        handle._connection.appender.create_attempts = 1
        store.script.append(word)
        store.reads.extend(["ok", "broken"])
        with pytest.raises(OutcomeUnknown):
            take(consumer)
        assert counts(take(consumer)) == dict.fromkeys(range(10), 0), word
        consumer.close()
        messages = take(handle.consumer("orders", "billing"))
        assert set(messages.redelivery_counts) == {1}
        handle.snapshot()
        ns.drop_subscription("orders", "billing")
        ns.create_subscription("orders", "billing", type="shared", lease_ms=LEASE_MS)


@pytest.mark.parametrize("word", ["dropped", "broken-after", "taken"])
def test_a_redelivery_is_counted_once_after_a_grant_of_unknown_outcome(
    ns: Any, memory: Place, clock: ManualClock, word: str
) -> None:
    """The log may still show the lease under which the messages were handed out: it does not make them new ones."""
    handle, store = memory.faulty(clock=clock)
    consumer = handle.consumer("orders", "billing")
    assert counts(take(consumer)) == dict.fromkeys(range(10), 0)
    clock.advance(LEASE_MS + 1)
    handle._connection.appender.create_attempts = 1
    store.script.append("dropped" if word == "taken" else word)
    store.reads.extend(["ok", "broken"])
    with pytest.raises(OutcomeUnknown):
        take(consumer)
    if word == "taken":
        ns.produce("audit", rows(1))  # another entry in the slot that was in doubt
    assert counts(take(consumer)) == dict.fromkeys(range(10), 1)
    assert received(consumer) == []


# --- limits -----------------------------------------------------------------------------------------------------------


@pytest.mark.clause("P-36", "P-172")
def test_a_consumer_has_a_bounded_number_of_messages(ns: Any, other: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(leases, "MAX_LEASED_MESSAGES", 6)
    one, two = ns.consumer("orders", "billing", name="one"), other.consumer("orders", "billing", name="two")
    messages = take(one, 4)
    assert received(one) == [4, 5]
    assert received(one) == []
    assert received(two) == [6, 7, 8, 9]
    one.acknowledge(messages[:2])
    ns.produce("orders", rows(10, 11, 12))
    assert received(one) == [10, 11]


@pytest.mark.clause("P-36", "P-172")
def test_at_the_limit_of_ranges_nothing_new_is_delivered_until_holes_fill(
    ns: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(leases, "MAX_ACKNOWLEDGED_RANGES", 3)
    consumer = ns.consumer("orders", "billing")
    messages = take(consumer)
    consumer.acknowledge(messages[[1, 3, 6]])
    ns.produce("orders", rows(10, 11))
    assert received(consumer) == []
    consumer.negative_acknowledge(messages[[4, 5]])
    assert received(consumer, 1) == [4], "a hole: taking it adds no range"
    consumer.acknowledge(messages[4:6])
    assert cursor(ns).acknowledged == ((1, 2), (3, 7))
    consumer.acknowledge(messages)
    assert received(consumer) == [10, 11]


# --- ahead ------------------------------------------------------------------------------------------------------------

BATCH = 100


@pytest.fixture
def many(ns: Any) -> Any:
    """A thousand messages more, of which the subscription ``fast`` has taken none."""
    ns.produce("orders", rows(*range(10, 1_010)))
    ns.create_subscription("orders", "fast", type="shared", lease_ms=LEASE_MS)
    return ns


def versions(ns: Any, call: Any) -> int:
    before = ns.snapshot().version
    call()
    return ns.snapshot().version - before


@pytest.mark.clause("P-170")
@pytest.mark.parametrize("transaction", [False, True])
def test_the_next_grant_rides_in_the_entry_of_the_acknowledgement(many: Any, transaction: bool) -> None:
    consumer = many.consumer("orders", "fast")

    def one_batch() -> None:
        messages = take(consumer, BATCH)
        seen.extend(ids(messages.table))
        assert set(messages.redelivery_counts) == {0}
        if transaction:
            with many.begin() as txn:
                txn.acknowledge(messages)
        else:
            consumer.acknowledge(messages)

    seen: list[int] = []
    entries = [versions(many, one_batch) for _ in range(10)]
    own = 2 if transaction else 1
    assert entries[:3] == [own + 1] * 3, "a grant, then the acknowledgement"
    assert entries[3:9] == [own] * 6
    assert seen == list(range(1_000))
    assert many.subscription("orders", "fast").cursors[0].cursor == 1_000


def test_what_is_granted_ahead_leaves_as_much_for_others(many: Any, other: Any) -> None:
    one, two = many.consumer("orders", "fast", name="one"), other.consumer("orders", "fast", name="two")
    for _ in range(4):
        one.acknowledge(take(one, 200))
    assert received(two) == list(range(800, 1_010)), "ahead it would have had them all"


def test_what_was_granted_ahead_is_released_uncounted(many: Any, other: Any) -> None:
    one, two = many.consumer("orders", "fast", name="one"), other.consumer("orders", "fast", name="two")
    for _ in range(3):
        one.acknowledge(take(one, BATCH))
    assert other.subscription("orders", "fast").consumers == {"one": BATCH}
    assert ids(take(two, 1).table) == [400]
    one.close()
    assert counts(take(two, 1)) == {300: 0}


@pytest.mark.clause("P-170")
def test_what_was_delivered_since_the_next_grant_was_asked_for_is_not_delivered_again(many: Any) -> None:
    many.produce("orders", rows(*range(1_010, 2_010)))
    consumer = many.consumer("orders", "fast", name="one")
    for _ in range(4):
        consumer.acknowledge(take(consumer, 200))  # from here on the next grant rides in what is appended next
    batches = [take(consumer, BATCH), take(consumer, 50)]
    many.produce("audit", rows(1))
    batches += [take(consumer, BATCH) for _ in range(3)]
    seen = [number for batch in batches for number in ids(batch.table)]
    assert seen == list(range(800, 800 + len(seen))), "nothing was given back, and no lease ended"
    assert len(seen) > 200


def test_what_was_granted_ahead_and_ran_out_is_renewed_uncounted(many: Any, clock: ManualClock) -> None:
    consumer = many.consumer("orders", "fast")
    for _ in range(3):
        consumer.acknowledge(take(consumer, BATCH))
    clock.advance(LEASE_MS)
    messages = take(consumer, BATCH)
    assert (ids(messages.table)[0], set(messages.redelivery_counts)) == (300, {0})


@pytest.mark.clause("P-79")
def test_a_grant_that_rides_does_not_outlive_a_seek_or_its_consumer(many: Any) -> None:
    consumer = many.consumer("orders", "fast", name="one")
    for _ in range(3):
        take(consumer, BATCH)
    consumer.seek("latest")
    many.produce("audit", rows(1))
    assert many.subscription("orders", "fast").consumers == {}
    consumer.seek("earliest")
    for _ in range(3):
        take(consumer, BATCH)
    consumer.close()
    many.produce("audit", rows(2))
    assert many.subscription("orders", "fast").consumers == {}


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
    txn = ns.begin()
    txn.acknowledge(messages[1:3])
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
    ns = memory.open(clock=clock)
    ns.create_topic("orders", SCHEMA, partitions=2)
    for partition in (0, 1):
        ns.produce("orders", rows(partition), partition=partition)
    consumer = ns.consumer("orders", "billing", type="shared")
    take(consumer)
    consumer.seek({0: 0})
    assert counts(take(consumer)) == {0: 0, 1: 1}


@pytest.mark.clause("P-75")
def test_a_seek_is_refused_while_acknowledgements_are_pending(ns: Any, memory: Place) -> None:
    consumer = ns.consumer("orders", "billing")
    txn = ns.begin()
    txn.acknowledge(take(consumer, 1))
    with Unchanged(memory), raises(InvalidTransactionState, match="pending"):
        consumer.seek("earliest")


def test_a_consumer_of_a_dropped_subscription_is_notified(ns: Any, other: Any) -> None:
    consumer = ns.consumer("orders", "billing")
    messages = take(consumer)
    other.drop_subscription("orders", "billing")
    for call in (
        lambda: consumer.receive(timeout_ms=0),
        lambda: consumer.acknowledge(messages),
        lambda: consumer.negative_acknowledge(messages),
        consumer.redeliver_unacknowledged,
    ):
        with raises(SubscriptionNotFound):
            call()


def test_a_drop_that_another_thread_sees_while_messages_are_delivered_comes_before_or_after(
    ns: Any, other: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    consumer = ns.consumer("orders", "billing")
    honest = shared_delivery.SharedTopicDelivery._ready
    dropped: list[threading.Thread] = []

    def interrupted(*arguments: Any) -> Any:
        ready = honest(*arguments)
        if ready and not dropped:
            other.drop_subscription("orders", "billing")
            dropped.append(threading.Thread(target=ns.snapshot))
            dropped[0].start()
            dropped[0].join(0.5)  # it may have to wait for this call
        return ready

    monkeypatch.setattr(shared_delivery.SharedTopicDelivery, "_ready", interrupted)
    assert received(consumer) == list(range(10))
    dropped[0].join()
    with raises(SubscriptionNotFound):
        take(consumer)
    consumer.close()
