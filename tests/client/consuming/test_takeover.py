"""Who may take an Exclusive subscription over, and when: the subscription's rule, which no consumer can weaken.

And what becomes of the consumer that had it.
"""

from __future__ import annotations

import datetime
import re
from typing import Any

import pytest

from tests.client.support import SCHEMA, Place, Unchanged, holding, raises, received, rows, take
from txnlog.client.subscription_ownership import release_epochs, take_epoch, take_epochs
from txnlog.errors import (
    ConsumerBusy,
    ConsumerFenced,
    Durable,
    InvalidInputError,
    StoreError,
    SubscriptionExists,
    TopicNotFound,
    TransactionAborted,
    TxnLogError,
    UnsupportedFeature,
)
from txnlog.testing import ManualClock
from txnlog.testing.scheduler import START_MS

LEASE_MS = 9_000


@pytest.fixture
def ns(memory: Place) -> Any:
    """Ten messages."""
    return memory.orders(*range(10))


@pytest.fixture
def kept(ns: Any) -> Any:
    """A subscription whose consumer keeps its place for a lease."""
    ns.create_subscription("orders", "billing", takeover="after_lease", lease_ms=LEASE_MS)
    return ns


@pytest.mark.clause("P-77")
def test_same_name_takes_over_under_its_name_only(ns: Any, memory: Place) -> None:
    ns.create_subscription("orders", "billing", takeover="same_name")
    old = ns.consumer("orders", "billing", name="one")
    with Unchanged(memory), raises(ConsumerBusy, match="'one'"):
        memory.open().consumer("orders", "billing", name="two")
    with Unchanged(memory), raises(ConsumerBusy):
        memory.open().consumer("orders", "billing")
    assert received(old, 1) == [0]
    new = memory.open().consumer("orders", "billing", name="one")
    with raises(ConsumerFenced):
        old.receive(timeout_ms=0)
    assert received(new, 1) == [0]
    new.close()
    with Unchanged(memory), raises(ConsumerBusy, match="'one'"):
        memory.open().consumer("orders", "billing", name="two")
    assert received(memory.open().consumer("orders", "billing", name="one")) == list(range(10))


@pytest.mark.clause("P-77", "P-175", "P-176")
def test_after_lease_a_second_one_is_busy_while_the_lease_lasts(kept: Any, memory: Place) -> None:
    old = kept.consumer("orders", "billing", name="one")
    other = memory.open()
    with Unchanged(memory):
        for _ in range(20):
            with raises(ConsumerBusy, match="'one'"):
                other.consumer("orders", "billing", name="two")
            other._connection.runtime.sleep_ms(LEASE_MS - 1)
            kept._connection.runtime.sleep_ms(LEASE_MS / 3 + 1)
            received(old)
    assert received(old) == []
    with raises(ConsumerBusy):
        other.consumer("orders", "billing")
    other._connection.runtime.sleep_ms(LEASE_MS)
    new = other.consumer("orders", "billing", name="two")
    assert received(new) == list(range(10))
    with raises(ConsumerFenced):
        old.receive(timeout_ms=0)


@pytest.mark.clause("P-77", "P-176")
@pytest.mark.parametrize("name", ["one", "two"])
def test_after_lease_a_closed_one_is_not_waited_for_and_a_name_does_not_help(
    kept: Any, memory: Place, name: str
) -> None:
    old = kept.consumer("orders", "billing", name="one")
    with Unchanged(memory), raises(ConsumerBusy):
        memory.open().consumer("orders", "billing", name=name)
    old.close()
    assert received(memory.open().consumer("orders", "billing", name=name)) == list(range(10))


@pytest.mark.clause("P-176")
def test_a_seek_is_a_sign_of_life_of_its_own(kept: Any, memory: Place) -> None:
    old = kept.consumer("orders", "billing")
    other = memory.open()
    with raises(ConsumerBusy):
        other.consumer("orders", "billing")
    other._connection.runtime.sleep_ms(LEASE_MS)
    old.seek("latest")
    with Unchanged(memory), raises(ConsumerBusy):
        other.consumer("orders", "billing")


@pytest.mark.clause("P-77")
def test_a_consumer_cannot_weaken_the_rule(kept: Any, memory: Place) -> None:
    """Whoever asks for the epoch is asked for it in the entry itself: another type, or haste, does not help."""
    kept.consumer("orders", "billing", name="one")
    record = kept.subscription("orders", "billing")
    other = memory.open()
    with Unchanged(memory):
        for seen in (None, record.id, record.epoch - 1, record.epoch + 1):
            with raises(ConsumerBusy):
                take_epochs(other._connection, {record.id: seen}, "two")


@pytest.mark.clause("P-77", "P-176")
def test_of_two_that_saw_the_same_lease_end_one_is_busy(kept: Any, memory: Place) -> None:
    kept.consumer("orders", "billing", name="one")
    fast = memory.open()
    slow, store = memory.faulty()
    for handle in (fast, slow):
        with raises(ConsumerBusy):
            handle.consumer("orders", "billing")
        handle._connection.runtime.sleep_ms(LEASE_MS)
    store.script.append(lambda: fast.consumer("orders", "billing", name="fast"))
    with raises(ConsumerBusy, match="'fast'"):
        slow.consumer("orders", "billing", name="slow")
    assert kept.subscription("orders", "billing").consumer == "fast"


def test_streams_take_exclusive_subscriptions_without_leases_only(kept: Any, memory: Place) -> None:
    for name, options in (("one", {"type": "shared"}), ("two", {"type": "failover"}), ("three", {})):
        if options:
            kept.create_subscription("orders", name, **options)
        record = kept.subscription("orders", name if options else "billing")
        with Unchanged(memory), raises(UnsupportedFeature, match="stream"):
            take_epoch(kept._connection, record.id, "run", "query")


# --- several topics at once -------------------------------------------------------------------------------------------


@pytest.fixture
def both(sales: Any) -> Any:
    """Two topics of one message; the consumer ``alive`` of the first is in the middle of its work."""
    sales.produce("orders", rows(1))
    sales.produce("audit", rows(2))
    sales.create_subscription("orders", "billing", takeover="same_name")
    return sales


@pytest.mark.parametrize("why", ["missing", "busy", "type", "name"])
@pytest.mark.parametrize("fresh", [False, True], ids=["there", "new"])
def test_a_consumer_of_several_topics_that_is_refused_fences_nobody_and_creates_nothing(
    both: Any, memory: Place, why: str, fresh: bool
) -> None:
    options = {"busy": {"takeover": "after_lease"}, "type": {"type": "shared"}}.get(why, {"takeover": "same_name"})
    both.create_subscription("audit", "billing", **options)
    both.create_topic("new", SCHEMA)
    alive = both.consumer("orders", "billing", name="alive")
    keeper = both.consumer("audit", "billing", name="keeper")
    txn = holding(both, take(alive), flush=True)
    topics = ["orders", *(["new"] if fresh else []), "nothing" if why == "missing" else "audit"]
    kinds: dict[str, type[TxnLogError]] = {"missing": TopicNotFound, "type": SubscriptionExists}
    with Unchanged(memory), raises(kinds.get(why, ConsumerBusy)):
        memory.open().consumer(topics, "billing", name="alive", type="exclusive" if why == "type" else None)
    assert both.subscriptions("new") == ()
    txn.commit()
    assert received(keeper) == [2]


def test_all_places_are_taken_in_one_entry(both: Any, memory: Place) -> None:
    both.create_subscription("audit", "billing", type="shared")
    first = both.consumer(["orders", "audit"], "billing", name="one")
    before = both.snapshot().version
    second = memory.open().consumer(["orders", "audit"], "billing", name="one")
    assert both.snapshot().version == before + 1
    assert sorted([*received(second), *received(second)]) == [1, 2]
    with raises(ConsumerFenced):
        first.receive(timeout_ms=0)


def test_a_refusal_that_comes_too_late_says_what_may_be_there(both: Any, memory: Place) -> None:
    """Between the look and the entry somebody takes the second topic: the first is not taken, the third was created."""
    both.create_topic("new", SCHEMA)
    both.create_subscription("audit", "billing", takeover="same_name")
    alive = both.consumer("orders", "billing", name="two")
    slow, store = memory.faulty()
    store.script.append(lambda: both.consumer("audit", "billing", name="one"))
    with raises(ConsumerBusy, match="'one'", durable=Durable.MAYBE):
        slow.consumer(["orders", "audit", "new"], "billing", name="two")
    assert both.subscriptions("new") == ("billing",)
    assert received(alive) == [1]


def test_places_that_were_taken_are_released_where_a_later_one_fails(both: Any, memory: Place) -> None:
    both.create_subscription("audit", "billing", takeover="after_lease", lease_ms=LEASE_MS)
    both.create_topic("third", SCHEMA)
    both.create_subscription("third", "billing", type="failover", lease_ms=LEASE_MS)
    slow, store = memory.faulty()
    store.script.extend(["ok", "refused"])
    with raises(StoreError, durable=Durable.MAYBE):
        slow.consumer(["audit", "third"], "billing", name="slow")
    both.consumer("audit", "billing", name="other")  # nobody waits for a lease


def test_a_subscription_that_somebody_else_creates_meanwhile_is_taken_as_it_is(both: Any, memory: Place) -> None:
    slow, store = memory.faulty()
    store.script.append(lambda: both.create_subscription("audit", "billing", type="shared", lease_ms=1_000))
    assert sorted(received(slow.consumer("audit", "billing"))) == [2]
    store.script.append(lambda: both.create_subscription("audit", "more", type="shared"))
    with raises(SubscriptionExists):
        slow.consumer("audit", "more", type="failover")


# --- what a takeover does to the older consumer -----------------------------------------------------------------------


@pytest.mark.clause("P-72", "P-77", "P-79")
def test_a_second_consumer_fences_the_first_at_its_next_operation(ten: Any, place: Place) -> None:
    old = ten.consumer("orders", "billing", name="one")
    messages = old.receive(4, timeout_ms=0)
    other = place.open()
    new = other.consumer("orders", "billing", name="two")
    assert other.subscription("orders", "billing").consumer == "two"
    version = other.snapshot().version
    with raises(ConsumerFenced, match="billing"):
        old.receive(timeout_ms=0)
    for call in (
        lambda: old.acknowledge(messages),
        lambda: old.acknowledge(messages, cumulative=True),
        lambda: old.seek("earliest"),
        lambda: ten.begin().acknowledge(messages),
    ):
        with raises(ConsumerFenced, match="billing"):
            call()
    assert other.snapshot().version == version
    assert received(new) == list(range(10))
    assert ("put", "hint") not in ten.store_requests, "no lease, no sign of life"


@pytest.mark.clause("P-79")
@pytest.mark.parametrize("call", ["receive", "acknowledge", "seek", "commit", "flush"])
def test_a_fenced_consumer_hears_of_it_from_the_log(ten: Any, place: Place, call: str) -> None:
    old = ten.consumer("orders", "billing")
    messages = old.receive(4, timeout_ms=0)
    txn = holding(ten, messages[:2])
    place.open().consumer("orders", "billing")
    calls = {
        "receive": lambda: old.receive(timeout_ms=0),
        "acknowledge": lambda: old.acknowledge(messages[3]),
        "seek": lambda: old.seek("latest"),
        "commit": txn.commit,
        "flush": txn.flush,
    }
    with Unchanged(place), raises(ConsumerFenced, match="billing"):
        calls[call]()


@pytest.mark.clause("P-73")
def test_a_takeover_aborts_the_open_transactions_of_the_older_consumer(ten: Any, place: Place) -> None:
    old = ten.consumer("orders", "billing")
    txn = holding(ten, old.receive(4, timeout_ms=0), flush=True)
    other = place.open()
    new = other.consumer("orders", "billing")
    assert (other.transaction(txn.id).state, other.transaction(txn.id).reason) == ("ABORTED", "fenced")
    assert received(new) == list(range(10))
    with raises(TransactionAborted, match="fenced"):
        txn.commit()
    assert txn.state == "ABORTED"


def test_the_leases_of_a_dead_consumer_of_several_topics_run_out_side_by_side(memory: Place) -> None:
    ns, other = memory.open(), memory.open()
    topics = ["a", "b", "c", "d"]
    for topic in topics:
        ns.create_topic(topic, SCHEMA)
        ns.create_subscription(topic, "billing", takeover="after_lease", lease_ms=300, allow_short_lease=True)
    ns.consumer(topics, "billing", name="one")  # and never again a sign of life
    for _ in range(2):
        with pytest.raises(ConsumerBusy):
            other.consumer(topics, "billing", name="two")
        other._connection.runtime.sleep_ms(200)
    other.consumer(topics, "billing", name="two")


# --- subscriptions that belong to a query -----------------------------------------------------------------------------


@pytest.fixture
def owned(ns: Any) -> Any:
    """A subscription that a query has: a stream's sink, or spark_ext.process, takes it like this."""
    info = ns.create_subscription("orders", "billing")
    take_epoch(ns._connection, info.id, "run-1", "nightly")
    return ns


def test_a_query_has_a_subscription_since_the_entry_that_gave_it_to_it(memory: Place) -> None:
    clock = ManualClock(START_MS)
    ns = memory.orders(clock=clock)
    info = ns.create_subscription("orders", "billing")
    clock.advance(60_000)
    take_epoch(ns._connection, info.id, "run-1", "nightly")
    clock.advance(60_000)
    ns.produce("orders", rows(1))
    since = ns.subscription("orders", "billing").query_since
    assert since == datetime.datetime.fromtimestamp(START_MS / 1000 + 60, datetime.UTC)
    with raises(ConsumerBusy, match=f"since {re.escape(since.isoformat())}, which a consumer would end"):
        memory.open(clock=clock).consumer("orders", "billing")


@pytest.mark.clause("P-77", "P-223")
def test_a_plain_consumer_does_not_end_a_query(owned: Any, memory: Place) -> None:
    since = owned.subscription("orders", "billing").query_since
    before = owned.subscription("orders", "billing").epoch
    with Unchanged(memory), raises(ConsumerBusy, match="the query 'nightly'") as caught:
        memory.open().consumer("orders", "billing")
    assert since.isoformat() in str(caught.value)
    assert "takeover=True" in str(caught.value)
    with Unchanged(memory), raises(ConsumerBusy):
        memory.open().consumer("orders", "billing", name="nightly")
    assert owned.subscription("orders", "billing").epoch == before


def test_takeover_says_that_it_is_meant(owned: Any, memory: Place) -> None:
    consumer = memory.open().consumer("orders", "billing", takeover=True)
    assert received(consumer) == list(range(10))
    info = owned.subscription("orders", "billing")
    assert (info.query, info.query_since) == (None, None)
    memory.open().consumer("orders", "billing")
    with raises(ConsumerFenced):
        consumer.receive(timeout_ms=0)


def test_a_query_takes_over_from_whoever_is_there_without_a_word(owned: Any) -> None:
    number = owned.subscription("orders", "billing").id
    take_epoch(owned._connection, number, "run-2", "nightly")
    take_epoch(owned._connection, number, "run-3", "another query")
    assert owned.subscription("orders", "billing").query == "another query"


def test_takeover_does_not_weaken_the_rule_of_the_subscription(ns: Any, memory: Place) -> None:
    info = ns.create_subscription("orders", "billing", takeover="same_name")
    take_epoch(ns._connection, info.id, "run-1", "nightly")
    with Unchanged(memory), raises(ConsumerBusy, match="same_name"):
        memory.open().consumer("orders", "billing", takeover=True)
    with Unchanged(memory), raises(ConsumerBusy, match="the query"):
        memory.open().consumer("orders", "billing", name="nightly")
    memory.open().consumer("orders", "billing", name="nightly", takeover=True)


def test_of_several_topics_none_is_taken_where_one_belongs_to_a_query(owned: Any, memory: Place) -> None:
    owned.create_topic("bills", SCHEMA)
    with Unchanged(memory), raises(ConsumerBusy, match="the query"):
        memory.open().consumer(["bills", "orders"], "billing")
    assert owned.subscriptions("bills") == ()


def test_a_query_that_comes_between_the_look_and_the_entry_is_not_ended(ns: Any, memory: Place) -> None:
    info, other = ns.create_subscription("orders", "billing"), memory.open()
    other.topics()
    take_epoch(ns._connection, info.id, "run-1", "nightly")
    with Unchanged(memory), raises(ConsumerBusy, match="the query"):
        take_epoch(other._connection, info.id, "two")
    assert ns.subscription("orders", "billing").query == "nightly"


@pytest.mark.clause("P-223")
def test_what_a_query_released_is_free_and_keeps_its_name(ns: Any, memory: Place) -> None:
    info = ns.create_subscription("orders", "billing", takeover="same_name")
    epoch = take_epoch(ns._connection, info.id, "run-1", "nightly")
    release_epochs(ns._connection, {info.id: epoch})
    with raises(ConsumerBusy, match="'nightly'"):
        memory.open().consumer("orders", "billing", name="two")
    memory.open().consumer("orders", "billing", name="nightly")


def test_a_query_releases_what_is_its_own_only(owned: Any, memory: Place) -> None:
    info = owned.subscription("orders", "billing")
    take_epoch(owned._connection, info.id, "run-2", "nightly")
    with Unchanged(memory):
        release_epochs(owned._connection, {info.id: info.epoch})
    owned.drop_subscription("orders", "billing")
    with Unchanged(memory):
        release_epochs(owned._connection, {info.id: info.epoch})


def test_takeover_of_a_consumer_is_no_rule(ns: Any, memory: Place) -> None:
    with Unchanged(memory), raises(InvalidInputError, match="takeover"):
        ns.consumer("orders", "billing", takeover="any")


# --- messages of a consumer that was fenced ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("call", "by"),
    [("acknowledge", "another consumer"), ("acknowledge", "a seek"), ("negative_acknowledge", "another consumer")],
)
def test_a_consumer_that_is_well_hears_that_the_messages_are_of_an_older_epoch(
    ns: Any, memory: Place, call: str, by: str
) -> None:
    consumer = ns.consumer("orders", "billing")
    messages = consumer.receive(4, timeout_ms=0)
    before = ns.subscription("orders", "billing").epoch
    if by == "a seek":
        consumer.seek("earliest")
    else:
        consumer = ns.consumer("orders", "billing")
    epoch = ns.subscription("orders", "billing").epoch
    with Unchanged(memory), raises(ConsumerFenced) as caught:
        getattr(consumer, call)(messages)
    text = str(caught.value)
    assert f"received {'by' if by == 'another consumer' else 'before'} {by}" in text
    assert f"in epoch {before} of" in text
    assert f"this consumer has its epoch {epoch}, and goes on" in text
    assert caught.value.goes_on
    assert "receive()" in text
    assert "stop" not in text
    assert caught.value.durable is Durable.NOTHING
    again = consumer.receive(timeout_ms=0)
    consumer.acknowledge(again)
    assert len(again) == 10


def test_a_fenced_consumer_hears_of_its_own_epoch_whoever_received_the_messages(ns: Any, memory: Place) -> None:
    first = ns.consumer("orders", "billing")
    messages = first.receive(4, timeout_ms=0)
    second = ns.consumer("orders", "billing")
    fenced = ns.subscription("orders", "billing").epoch
    ns.consumer("orders", "billing")
    for call in (second.acknowledge, second.negative_acknowledge):
        with Unchanged(memory), raises(ConsumerFenced, match=f"^this consumer lost its place.*'s is {fenced}"):
            call(messages)


def test_a_transaction_hears_of_which_epoch_the_messages_are(ns: Any) -> None:
    messages = ns.consumer("orders", "billing").receive(4, timeout_ms=0)
    before = ns.subscription("orders", "billing").epoch
    ns.consumer("orders", "billing")
    with raises(ConsumerFenced, match=f"these messages .* received in its epoch {before}"):
        ns.begin().acknowledge(messages)
