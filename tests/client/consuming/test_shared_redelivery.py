"""What a Shared subscription delivers again: leases that end, aborts, releases; and how often it was delivered."""

from __future__ import annotations

from typing import Any

import pytest

from tests.client.shared import LEASE_MS, actions, ns, other
from tests.client.support import Place, Unchanged, counts, holding, raises, received, rows, take
from txnlog.errors import (
    InvalidTransactionState,
    OutcomeUnknown,
    TransactionAborted,
    TransactionConflict,
    TransactionTimedOut,
)
from txnlog.fold import leases
from txnlog.format.actions import Release
from txnlog.testing import ManualClock

__all__ = ["ns", "other"]  # fixtures


# --- what comes again -------------------------------------------------------------------------------------------------


@pytest.mark.clause("P-86", "P-171")
def test_after_an_abort_the_messages_come_again_and_were_counted_once(ns: Any, other: Any) -> None:
    one, two = ns.consumer("orders", "billing"), other.consumer("orders", "billing")
    messages = take(one)
    one.acknowledge(messages[0])
    txn = holding(ns, messages[1:4])
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
    txn = holding(ns, take(consumer, 3), timeout_ms=1_000)
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


def test_a_negative_acknowledgement_gives_messages_to_anybody_and_is_counted_once(
    ns: Any, other: Any, memory: Place
) -> None:
    one, two = ns.consumer("orders", "billing"), other.consumer("orders", "billing")
    messages = take(one)
    one.negative_acknowledge(messages[[2, 5]])
    with Unchanged(memory):
        one.negative_acknowledge(messages[[2, 5]])
    again = take(two)
    assert counts(again) == {2: 1, 5: 1}
    two.negative_acknowledge(again[1])
    assert counts(take(one)) == {5: 2}


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


@pytest.mark.clause("P-85")
def test_a_consumer_that_closes_gives_its_leases_back_but_what_is_pending_stays_pending(ns: Any, other: Any) -> None:
    one, two = ns.consumer("orders", "billing"), other.consumer("orders", "billing")
    messages = take(one, 6)
    txn = holding(ns, messages[:2])
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
    delivered = {offset for batch in received for offset in counts(batch)}
    found = counts(take(other.consumer("orders", "ahead", type="shared")))
    assert found
    assert delivered.isdisjoint(found), "a closed handle releases nothing: leases end by themselves"


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
