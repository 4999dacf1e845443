"""What claiming messages, releasing them and time do to the leases and redelivery counts of a cursor."""

from __future__ import annotations

import pytest

from tests.memory_log import Log, ranges_of
from txnlog.errors import ConsumerFenced, TransactionConflict
from txnlog.fold.state import LeaseRecord, Redelivery
from txnlog.format.actions import Abort, Acknowledge, Acknowledgement, Begin, Commit, Consumer, Lease, Release, Seek


@pytest.fixture
def shared(log: Log) -> int:
    """A shared subscription of ten messages in each of two partitions."""
    topic = log.topic(partitions=2)
    log.produce(topic, {0: 10, 1: 10})
    return log.subscription(topic, type="shared", lease_ms=5_000)


def lease(log: Log, subscription: int, consumer: str, spans: dict, after_ms: int = 1_000) -> int:
    log.entry(Lease(subscription, consumer, ranges_of(spans)), after_ms=after_ms)
    return log.now_ms + 5_000


def claim(log: Log, subscription: int, spans: dict) -> int:
    txn = log.number()
    epoch = log.state.subscriptions[subscription].epoch
    log.entry(Begin(txn), Acknowledge(txn, Acknowledgement(subscription, epoch, ranges_of(spans))))
    return txn


@pytest.mark.clause("P-237")
def test_a_claim_leaves_leases_and_counts_as_they_are_until_its_transaction_ends(log, shared):
    until = lease(log, shared, "a", {0: [(0, 6)]})
    log.entry(Release(shared, "b", ranges_of({0: [(1, 2)]}), redeliver=True))
    first = claim(log, shared, {0: [(0, 2)]})
    second = claim(log, shared, {0: [(3, 4)]})
    assert log.cursor(shared).leases == (LeaseRecord("a", until, ((0, 6),)),)
    assert log.cursor(shared).redeliveries == (Redelivery(1, 2, 1),)
    log.entry(Commit(first))
    assert log.cursor(shared).position == 2
    assert log.cursor(shared).leases == (LeaseRecord("a", until, ((2, 6),)),)
    assert log.cursor(shared).redeliveries == ()
    log.entry(Abort(second))
    assert log.cursor(shared).leases == (LeaseRecord("a", until, ((2, 3), (4, 6))),)
    assert log.cursor(shared).redeliveries == (Redelivery(3, 4, 1),)


@pytest.mark.clause("P-238")
def test_a_release_counts_what_is_neither_acknowledged_nor_claimed_leased_or_not(log, shared):
    log.entry(Commit(claim(log, shared, {0: [(0, 1), (4, 5)]})))
    claim(log, shared, {0: [(6, 7)]})
    until = lease(log, shared, "a", {0: [(1, 3)]})
    log.entry(Release(shared, "b", ranges_of({0: [(0, 8)]}), redeliver=True))
    counted = tuple((item.start, item.end, item.count) for item in log.cursor(shared).redeliveries)
    assert counted == ((1, 4, 1), (5, 6, 1), (7, 8, 1))
    assert log.cursor(shared).leases == (LeaseRecord("a", until, ((1, 3),)),)
    log.entry(Release(shared, "a", ranges_of({0: [(2, 3)]})))
    assert log.cursor(shared).leases == (LeaseRecord("a", until, ((1, 2),)),)
    assert tuple((item.start, item.end, item.count) for item in log.cursor(shared).redeliveries) == counted


@pytest.mark.clause("P-239")
def test_an_expired_lease_stays_until_a_line_removes_it(log, shared):
    first = lease(log, shared, "a", {0: [(0, 4)], 1: [(0, 4)]})
    second = lease(log, shared, "b", {0: [(4, 6)]}, after_ms=4_999)
    assert [item.consumer for item in log.cursor(shared).leases] == ["a", "b"]
    log.entry(after_ms=1_000_000)
    log.entry(Release(shared, "c", ranges_of({0: [(0, 1)]}), redeliver=True))
    assert log.cursor(shared).leases == (LeaseRecord("a", first, ((0, 4),)), LeaseRecord("b", second, ((4, 6),)))
    log.entry(Release(shared, "a", ranges_of({0: [(0, 1)]})))
    assert log.cursor(shared).leases[0] == LeaseRecord("a", first, ((1, 4),))
    third = lease(log, shared, "c", {0: [(8, 9)]})
    assert log.cursor(shared).leases == (LeaseRecord("c", third, ((8, 9),)),)
    assert log.cursor(shared, 1).leases == (LeaseRecord("a", first, ((0, 4),)),)
    log.entry(Seek(shared, ((1, 0),)))
    assert log.cursor(shared, 1).leases == ()


@pytest.mark.clause("P-239")
def test_a_lease_is_over_at_its_very_end(log, shared):
    lease(log, shared, "a", {0: [(0, 1)]})
    lease(log, shared, "b", {0: [(1, 2)]}, after_ms=5_000)
    assert [item.consumer for item in log.cursor(shared).leases] == ["b"]


@pytest.mark.clause("P-240")
def test_an_empty_acknowledgement_claims_nothing(log):
    topic = log.topic()
    log.produce(topic, 3)
    subscription = log.subscription(topic)
    txn = log.number()
    log.entry(Begin(txn), Acknowledge(txn, Acknowledgement(subscription, subscription)))
    assert log.state.transactions[txn].held == ()
    log.entry(Consumer(subscription, "next"))
    assert log.state.transactions[txn].state == "OPEN"
    epoch = log.state.subscriptions[subscription].epoch
    with pytest.raises(ConsumerFenced):
        log.entry(Acknowledge(txn, Acknowledgement(subscription, epoch - 1)))
    with pytest.raises(TransactionConflict):
        log.entry(Acknowledge(txn, Acknowledgement(subscription, epoch, expected=((0, 1),))))
    log.entry(Commit(txn))
    assert log.state.outcomes[txn].state == "COMMITTED"
