"""Subscriptions, their epochs and leases."""

from __future__ import annotations

import pytest

from tests.memory_log import Log, cumulatively, individually, ranges_of
from txnlog.common.format_limits import MAX_LEASED_MESSAGES
from txnlog.errors import (
    ConsumerFenced,
    InvalidInputError,
    InvalidTransactionState,
    LimitExceeded,
    NameNotAllowed,
    OffsetOutOfRange,
    SubscriptionExists,
    SubscriptionNotFound,
    TopicNotFound,
    TransactionConflict,
)
from txnlog.fold import subscriptions
from txnlog.fold.state import Cursor, LeaseRecord, Redelivery
from txnlog.format.actions import (
    Abort,
    Acknowledge,
    Acknowledgement,
    Begin,
    Commit,
    Consumer,
    DropSubscription,
    DropTopic,
    Lease,
    Prepare,
    Release,
    Seek,
    Subscription,
)

OWNED = pytest.mark.parametrize("kind", ["exclusive", "failover"])


@pytest.fixture
def topic(log) -> int:
    """Two partitions of ten messages."""
    topic = log.topic(partitions=2)
    log.produce(topic, {0: 10, 1: 10})
    return topic


def holding(log: Log, *acknowledgements, prepare: bool = False) -> int:
    """An OPEN (or PREPARED) transaction with pending acknowledgements."""
    txn = log.number()
    log.entry(
        Begin(txn), *(Acknowledge(txn, item) for item in acknowledgements), *([Prepare(txn, "")] if prepare else [])
    )
    return txn


# --- creation ---------------------------------------------------------------------------------------------------------


@pytest.mark.clause("P-9", "P-72")
def test_id_and_first_epoch_are_the_version_of_the_entry(log, topic):
    subscription = log.subscription(topic, start=(0, 7))
    record = log.state.subscriptions[subscription]
    assert subscription == log.version == record.id == record.epoch
    assert (log.cursor(subscription, 0), log.cursor(subscription, 1)) == (Cursor(0), Cursor(7))


def test_a_subscription_keeps_its_settings(log, topic):
    subscription = log.subscription(
        topic, type="shared", takeover="same_name", max_redeliveries=5, dead_letter_topic="orders-dead", lease_ms=7
    )
    record = log.state.subscriptions[subscription]
    assert (record.type, record.takeover, record.lease_ms) == ("shared", "same_name", 7)
    assert (record.max_redeliveries, record.dead_letter_topic) == (5, "orders-dead")


def test_names_are_those_of_one_topic(log, topic):
    log.subscription(topic, "billing")
    with pytest.raises(SubscriptionExists):
        log.subscription(topic, "billing")
    log.subscription(topic, "Billing")
    log.subscription(log.topic("audit"), "billing")


@pytest.mark.clause("P-9")
def test_one_entry_creates_one_subscription(log, topic):
    with pytest.raises(InvalidInputError, match="one subscription"):
        log.entry(
            Subscription(topic, "a", "shared", (0, 0), 1_000),
            Subscription(topic, "b", "shared", (0, 0), 1_000),
        )


@pytest.mark.clause("P-9")
def test_an_entry_that_dropped_the_one_it_created_creates_no_other(log, topic):
    other = log.topic("audit")
    with pytest.raises(InvalidInputError, match="one subscription"):
        log.entry(
            Subscription(topic, "a", "shared", (0, 0), 1_000),
            DropSubscription(log.version + 1),
            Subscription(topic, "b", "shared", (0, 0), 1_000),
        )
    with pytest.raises(InvalidInputError, match="one subscription"):
        log.entry(
            Subscription(topic, "a", "shared", (0, 0), 1_000),
            DropTopic(topic),
            Subscription(other, "b", "shared", (0, 0), 1_000),
        )


@pytest.mark.clause("P-8")
def test_a_stream_that_is_no_label_opens_no_consumer(log, topic):
    subscription = log.subscription(topic)
    with pytest.raises(NameNotAllowed):
        log.entry(Consumer(subscription, "x", "\x1b[2J" * 10_000))


@pytest.mark.clause("P-8")
@pytest.mark.parametrize("kind", [Lease, Release])
def test_what_is_no_label_has_no_leases(log, topic, kind):
    subscription = log.subscription(topic, type="shared")
    with pytest.raises(NameNotAllowed):
        log.entry(kind(subscription, "\x1b[2J", ()))


@pytest.mark.parametrize(
    ("changes", "error"),
    [
        ({"name": "../x"}, NameNotAllowed),
        ({"topic": 99}, TopicNotFound),
        ({"start": (0,)}, InvalidInputError),
        ({"start": (0, 0, 0)}, InvalidInputError),
        ({"start": (0, 11)}, OffsetOutOfRange),
        ({"lease_ms": 0}, InvalidInputError),
        ({"dead_letter_topic": "a/b"}, NameNotAllowed),
    ],
)
def test_a_subscription_that_makes_no_sense_is_refused(log, topic, changes, error):
    fields = {"topic": topic, "name": "billing", "type": "shared", "start": (0, 0), "lease_ms": 1_000}
    with pytest.raises(error):
        log.entry(Subscription(**(fields | changes)))


@pytest.mark.clause("P-36")
def test_too_many_subscriptions_are_refused(log, topic, monkeypatch):
    monkeypatch.setattr(subscriptions, "MAX_SUBSCRIPTIONS", 1)
    first = log.subscription(topic, "a")
    with pytest.raises(LimitExceeded):
        log.subscription(topic, "b")
    log.entry(DropSubscription(first))
    log.subscription(topic, "b")


def test_a_dropped_subscription_is_not_found_and_its_name_is_free(log, topic):
    subscription = log.subscription(topic)
    log.entry(DropSubscription(subscription))
    for action in (
        DropSubscription(subscription),
        Consumer(subscription, "c"),
        Seek(subscription, ()),
        Lease(subscription, "c", ()),
        Release(subscription, "c", ()),
        Commit(log.number(), acknowledgements=(individually(subscription, {0: [(0, 1)]}),)),
    ):
        with pytest.raises(SubscriptionNotFound):
            log.entry(action)
    assert log.subscription(topic) != subscription
    assert set(log.state.cursors) == {(log.version, 0), (log.version, 1)}


# --- epochs -----------------------------------------------------------------------------------------------------------


@pytest.mark.clause("P-72", "P-79")
@OWNED
def test_opening_a_consumer_fences_the_one_before(log, topic, kind):
    subscription = log.subscription(topic, type=kind)
    first = log.entry(Consumer(subscription, "a"))
    second = log.entry(Consumer(subscription, "b", "carriers"))
    record = log.state.subscriptions[subscription]
    assert (record.epoch, record.consumer, record.stream) == (second, "b", "carriers")
    for epoch in (subscription, first, second + 1):
        for wanted in (
            individually(subscription, {0: [(0, 1)]}, epoch=epoch),
            cumulatively(subscription, {0: 1}, epoch=epoch),
            Acknowledgement(subscription, epoch),
        ):
            with pytest.raises(ConsumerFenced, match=f"epoch .* is {second}"):
                log.entry(Commit(log.number(), acknowledgements=(wanted,)))
    log.entry(Commit(log.number(), acknowledgements=(individually(subscription, {0: [(0, 1)]}, epoch=second),)))


@pytest.mark.clause("P-79")
def test_the_epoch_is_asked_in_the_very_commit_too(log, topic):
    subscription = log.subscription(topic)
    txn = holding(log)
    log.entry(Consumer(subscription, "b"))
    with pytest.raises(ConsumerFenced):
        log.entry(Commit(txn, acknowledgements=(individually(subscription, {0: [(0, 1)]}),)))
    with pytest.raises(ConsumerFenced):
        log.entry(Acknowledge(txn, individually(subscription, {0: [(0, 1)]})))


@pytest.mark.clause("P-73")
@OWNED
def test_opening_a_consumer_aborts_open_transactions_that_hold_its_messages_and_keeps_prepared_ones(log, topic, kind):
    subscription = log.subscription(topic, type=kind)
    other = log.subscription(topic, "other", type=kind)
    one = holding(log, individually(subscription, {0: [(0, 1)]}))
    two = holding(log, cumulatively(subscription, {1: 5}), individually(other, {1: [(0, 1)]}))
    unrelated = holding(log, individually(other, {0: [(0, 1)]}))
    kept = holding(log, individually(subscription, {0: [(3, 4)]}), prepare=True)
    version = log.entry(Consumer(subscription, "b"))
    for txn in (one, two):
        assert (log.outcome(txn).reason, log.outcome(txn).version) == ("fenced", version)
    assert set(log.state.transactions) == {unrelated, kept}
    assert [hold.txn for hold in log.cursor(subscription).holds] == [kept]
    assert log.cursor(subscription, 1) == Cursor(0)
    assert log.cursor(other, 1).holds == (), "all that the aborted transaction held is free"


def test_opening_a_shared_consumer_fences_nobody(log, topic):
    subscription = log.subscription(topic, type="shared")
    txn = holding(log, individually(subscription, {0: [(0, 1)]}))
    log.entry(Consumer(subscription, "a"), Consumer(subscription, "b"))
    record = log.state.subscriptions[subscription]
    assert (record.epoch, record.consumer) == (subscription, "b")
    assert log.transaction(txn).state == "OPEN"


@pytest.mark.clause("P-74")
@OWNED
def test_one_entry_opens_one_consumer(log, topic, kind):
    subscription = log.subscription(topic, type=kind)
    with pytest.raises(InvalidInputError, match="one consumer"):
        log.entry(Consumer(subscription, "a"), Consumer(subscription, "b"))


@pytest.mark.clause("P-74")
def test_the_entry_that_creates_a_subscription_may_open_one_consumer_and_no_second(log, topic):
    create = Subscription(topic, "billing", "exclusive", (0, 0), 1_000)
    version = log.version + 1
    with pytest.raises(InvalidInputError, match="one consumer"):
        log.entry(create, Consumer(version, "a"), Consumer(version, "b"))
    log.entry(create, Consumer(version, "a"))
    assert log.state.subscriptions[version].consumer == "a"


@pytest.mark.clause("P-8")
@pytest.mark.parametrize("name", ["", "x" * 257, "\x1b"])
@pytest.mark.parametrize("kind", ["exclusive", "shared"])
def test_a_consumer_with_a_bad_name_is_refused(log, topic, name, kind):
    subscription = log.subscription(topic, type=kind)
    with pytest.raises(NameNotAllowed):
        log.entry(Consumer(subscription, name))
    if kind == "shared":
        with pytest.raises(NameNotAllowed):
            log.entry(Lease(subscription, name, ranges_of({0: [(0, 1)]})))


# --- seek -------------------------------------------------------------------------------------------------------------


@pytest.mark.clause("P-72", "P-75")
def test_a_seek_moves_the_cursor_either_way_forgets_what_lay_above_and_raises_the_epoch(log, topic):
    subscription = log.subscription(topic, type="shared")
    log.entry(Commit(log.number(), acknowledgements=(individually(subscription, {0: [(0, 3), (5, 6)], 1: [(0, 1)]}),)))
    log.entry(Lease(subscription, "c", ranges_of({0: [(3, 4)]})))
    log.entry(Release(subscription, "c", ranges_of({0: [(4, 5)]}), redeliver=True))
    for offset in (1, 10, 0):
        version = log.entry(Seek(subscription, ((0, offset),)))
        assert log.cursor(subscription, 0) == Cursor(offset)
        assert log.epoch(subscription) == version
    assert log.cursor(subscription, 1) == Cursor(1), "the other partition is not touched"


@pytest.mark.clause("P-79")
def test_a_seek_fences_the_acknowledgements_of_before(log, topic):
    subscription = log.subscription(topic)
    log.entry(Seek(subscription, ((0, 5),)))
    with pytest.raises(ConsumerFenced):
        log.entry(Commit(log.number(), acknowledgements=(cumulatively(subscription, {0: 7}),)))


@pytest.mark.clause("P-75")
@pytest.mark.parametrize("prepare", [False, True])
@pytest.mark.parametrize("wanted", [lambda s: individually(s, {0: [(8, 9)]}), lambda s: cumulatively(s, {0: 3})])
def test_a_seek_is_refused_where_acknowledgements_are_pending(log, topic, wanted, prepare):
    subscription = log.subscription(topic)
    txn = holding(log, wanted(subscription), prepare=prepare)
    with pytest.raises(InvalidTransactionState, match="pending"):
        log.entry(Seek(subscription, ((1, 0), (0, 5))))
    log.entry(Seek(subscription, ((1, 5),)))
    log.entry(Abort(txn))
    log.entry(Seek(subscription, ((0, 5),)))


@pytest.mark.clause("P-242")
def test_of_two_positions_of_a_partition_in_one_seek_the_last_one_stays(log, topic):
    subscription = log.subscription(topic)
    log.entry(Seek(subscription, ((0, 7), (1, 2), (0, 3))))
    assert (log.cursor(subscription), log.cursor(subscription, 1)) == (Cursor(3), Cursor(2))


@pytest.mark.parametrize("positions", [((0, 11),), ((2, 0),)])
def test_a_seek_outside_the_topic_is_refused(log, topic, positions):
    subscription = log.subscription(topic)
    with pytest.raises(OffsetOutOfRange):
        log.entry(Seek(subscription, positions))


# --- leases -----------------------------------------------------------------------------------------------------------


@pytest.mark.clause("P-76")
def test_a_lease_lasts_from_the_header_on(log, topic):
    subscription = log.subscription(topic, type="shared", lease_ms=5_000)
    log.entry(Lease(subscription, "a", ranges_of({0: [(0, 3)], 1: [(2, 4)]})))
    assert log.cursor(subscription).leases == (LeaseRecord("a", log.now_ms + 5_000, ((0, 3),)),)
    assert log.cursor(subscription, 1).leases == (LeaseRecord("a", log.now_ms + 5_000, ((2, 4),)),)


@pytest.mark.clause("P-76")
def test_a_lease_is_a_hint_others_may_overlap_and_anybody_may_acknowledge(log, topic):
    subscription = log.subscription(topic, type="shared")
    log.entry(Lease(subscription, "a", ranges_of({0: [(0, 3)]})))
    log.entry(Lease(subscription, "b", ranges_of({0: [(2, 5)]})))
    log.entry(Commit(log.number(), acknowledgements=(individually(subscription, {0: [(1, 3)]}),)))
    assert {(lease.consumer, lease.ranges) for lease in log.cursor(subscription).leases} == {
        ("a", ((0, 1),)),
        ("b", ((3, 5),)),
    }


@pytest.mark.clause("P-76")
def test_expired_leases_disappear_with_the_next_grant(log, topic):
    subscription = log.subscription(topic, type="shared", lease_ms=5_000)
    log.entry(Lease(subscription, "a", ranges_of({0: [(0, 3)]})))
    log.entry(after_ms=10_000)
    assert len(log.cursor(subscription).leases) == 1, "an entry that does not touch the partition changes nothing"
    log.entry(Lease(subscription, "b", ranges_of({0: [(0, 3)]})))
    assert [lease.consumer for lease in log.cursor(subscription).leases] == ["b"]


@pytest.mark.clause("P-76")
@OWNED
def test_leases_are_for_shared_subscriptions(log, topic, kind):
    subscription = log.subscription(topic, type=kind)
    for action in (Lease(subscription, "a", ()), Release(subscription, "a", ())):
        with pytest.raises(InvalidInputError, match="leases are for Shared"):
            log.entry(action)


@pytest.mark.clause("P-83")
@pytest.mark.parametrize("kind", [Lease, Release])
@pytest.mark.parametrize("found", [{0: []}, {0: [(0, 11)]}, {2: [(0, 1)]}, {0: [(3, 4), (0, 1)]}, {0: [(2, 2)]}])
def test_ranges_outside_the_partition_or_out_of_order_are_refused(log, topic, kind, found):
    subscription = log.subscription(topic, type="shared")
    with pytest.raises(OffsetOutOfRange):
        log.entry(kind(subscription, "a", ranges_of(found)))


@pytest.mark.clause("P-36")
def test_a_consumer_can_lease_50_000_messages_at_a_time(log):
    topic = log.topic(partitions=2)
    log.produce(topic, {0: 2 * MAX_LEASED_MESSAGES, 1: 10})
    subscription = log.subscription(topic, type="shared", lease_ms=5_000)
    log.entry(Lease(subscription, "a", ranges_of({0: [(0, MAX_LEASED_MESSAGES)]})))
    with pytest.raises(LimitExceeded):
        log.entry(Lease(subscription, "a", ranges_of({1: [(0, 1)]})))
    log.entry(Lease(subscription, "b", ranges_of({1: [(0, 1)]})))
    log.entry(Release(subscription, "a", ranges_of({0: [(0, 1)]})))
    log.entry(Lease(subscription, "a", ranges_of({1: [(0, 1)]})))


@pytest.mark.clause("P-36", "P-76")
def test_leases_that_expired_do_not_count(log):
    topic = log.topic(partitions=2)
    log.produce(topic, {0: MAX_LEASED_MESSAGES, 1: 10})
    subscription = log.subscription(topic, type="shared", lease_ms=5_000)
    log.entry(Lease(subscription, "a", ranges_of({0: [(0, MAX_LEASED_MESSAGES)]})))
    log.entry(Lease(subscription, "a", ranges_of({1: [(0, 1)]})), after_ms=5_000)
    assert [(lease.consumer, lease.ranges) for lease in log.cursor(subscription, 1).leases] == [("a", ((0, 1),))]


def test_a_release_ends_the_consumers_own_leases_only(log, topic):
    subscription = log.subscription(topic, type="shared")
    log.entry(Lease(subscription, "a", ranges_of({0: [(0, 6)]})), Lease(subscription, "b", ranges_of({0: [(0, 6)]})))
    log.entry(Release(subscription, "a", ranges_of({0: [(1, 3)]})))
    assert [(lease.consumer, lease.ranges) for lease in log.cursor(subscription).leases] == [
        ("a", ((0, 1), (3, 6))),
        ("b", ((0, 6),)),
    ]
    assert log.cursor(subscription).redeliveries == ()
    log.entry(Release(subscription, "a", ranges_of({0: [(0, 6)]})))
    assert [lease.consumer for lease in log.cursor(subscription).leases] == ["b"]


@pytest.mark.clause("P-86")
def test_a_release_counts_redeliveries_where_it_says_so(log, topic):
    subscription = log.subscription(topic, type="shared")
    log.entry(Release(subscription, "a", ranges_of({0: [(0, 4)]}), redeliver=True))
    log.entry(Release(subscription, "a", ranges_of({0: [(2, 6)]}), redeliver=True))
    assert log.cursor(subscription).redeliveries == (Redelivery(0, 2, 1), Redelivery(2, 4, 2), Redelivery(4, 6, 1))


@pytest.mark.clause("P-238", "P-242")
def test_a_release_that_names_a_partition_twice_counts_for_each_element(log, topic):
    subscription = log.subscription(topic, type="shared")
    twice = ranges_of({0: [(0, 4)]}) + ranges_of({0: [(2, 6)]})
    log.entry(Lease(subscription, "a", twice))
    assert [lease.ranges for lease in log.cursor(subscription).leases] == [((0, 4),), ((2, 6),)]
    log.entry(Release(subscription, "a", twice, redeliver=True))
    assert log.cursor(subscription).redeliveries == (Redelivery(0, 2, 1), Redelivery(2, 4, 2), Redelivery(4, 6, 1))
    assert log.cursor(subscription).leases == ()


@pytest.mark.clause("P-86")
def test_what_is_acknowledged_or_pending_is_not_counted(log, topic):
    subscription = log.subscription(topic, type="shared")
    log.entry(Commit(log.number(), acknowledgements=(individually(subscription, {0: [(0, 1), (4, 5)]}),)))
    holding(log, individually(subscription, {0: [(2, 3)]}))
    log.entry(Release(subscription, "a", ranges_of({0: [(0, 6)]}), redeliver=True))
    assert log.cursor(subscription).redeliveries == (Redelivery(1, 2, 1), Redelivery(3, 4, 1), Redelivery(5, 6, 1))


def test_a_message_that_is_acknowledged_is_counted_no_more(log, topic):
    subscription = log.subscription(topic, type="shared")
    log.entry(Release(subscription, "a", ranges_of({0: [(0, 6)]}), redeliver=True))
    log.entry(Commit(log.number(), acknowledgements=(individually(subscription, {0: [(0, 2), (4, 5)]}),)))
    assert log.cursor(subscription).redeliveries == (Redelivery(2, 4, 1), Redelivery(5, 6, 1))


@pytest.mark.clause("P-76")
def test_a_conflict_does_not_ask_who_holds_the_lease(log, topic):
    subscription = log.subscription(topic, type="shared")
    log.entry(Lease(subscription, "a", ranges_of({0: [(0, 3)]})))
    holding(log, individually(subscription, {0: [(0, 1)]}))
    with pytest.raises(TransactionConflict):
        log.entry(Commit(log.number(), acknowledgements=(individually(subscription, {0: [(0, 1)]}),)))
