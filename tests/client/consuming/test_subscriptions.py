"""Subscriptions as their users see them: created, dropped, and how far behind they are."""

from __future__ import annotations

import datetime
from collections.abc import Callable
from typing import Any

import pytest

from tests.client.support import SCHEMA, Place, Unchanged, cursor, holding, ids, raises, read, received, rows, take
from txnlog.errors import (
    ConsumerBusy,
    InvalidInputError,
    NameNotAllowed,
    SubscriptionExists,
    SubscriptionNotFound,
    TopicNotFound,
    TransactionConflict,
)
from txnlog.format.actions import Subscription
from txnlog.log.commands import effect
from txnlog.testing import ManualClock

# --- subscriptions ----------------------------------------------------------------------------------------------------


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
    with raises(SubscriptionExists, match=r"\(use if_not_exists=True if that is fine; nothing was written\)"):
        ten.create_subscription("orders", "from-end")
    ten.create_subscription("orders", "from-end", if_not_exists=True)
    assert "from-four" in info._repr_html_()


def test_a_consumer_that_creates_its_subscription_says_so_and_names_a_similar_one(
    ten: Any, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", logger="txnlog.subscriptions")

    def said_of(name: str) -> list[tuple[str, str]]:
        caplog.clear()
        assert received(ten.consumer("orders", name)) == list(range(10))
        return [(item.levelname, item.getMessage()) for item in caplog.records if item.name == "txnlog.subscriptions"]

    ((level, text),) = said_of("billing")
    assert (level, text) == (
        "INFO",
        "the consumer created the subscription 'billing' of 'orders': it begins with the earliest message",
    )
    assert said_of("billing") == []  # it is there
    ((level, text),) = said_of("biling")
    assert level == "WARNING"
    assert "created the subscription 'biling' of 'orders'" in text
    assert "There is also 'billing'" in text
    assert [level for name in ("worker-1", "worker-2", "audit") for level, _ in said_of(name)] == ["INFO"] * 3


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
        ({"type": "shared", "takeover": "after_lease"}, InvalidInputError),
        ({"type": "shared", "takeover": "same_name"}, InvalidInputError),
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


@pytest.mark.parametrize("lease_ms", [30, "30ms", 999])
@pytest.mark.parametrize("kind", ["exclusive", "failover", "shared"])
def test_a_lease_below_a_second_is_refused_unless_it_is_meant(ten: Any, place: Place, kind: str, lease_ms: Any) -> None:
    with (
        Unchanged(place),
        raises(
            InvalidInputError,
            match=r"^lease_ms of (30|999)ms is less than 1s: .* "
            r"\(give a longer time, like lease_ms='30s', or pass allow_short_lease=True if it is meant; nothing was",
        ),
    ):
        ten.create_subscription("orders", "billing", type=kind, lease_ms=lease_ms)
    ten.create_subscription("orders", "billing", type=kind, lease_ms=lease_ms, allow_short_lease=True)
    assert ten.subscription("orders", "billing").lease_ms in {30, 999}
    assert len(ten.consumer("orders", "billing").receive(2, timeout_ms=0)) == 2, "what is in the log stays as it is"
    for given, wrong in ((0, "0"), (86_400_001, "86_?400_?001")):
        with raises(InvalidInputError, match=f"between 1ms and 1d, not {wrong}"):
            ten.create_subscription("orders", "none", type=kind, lease_ms=given, allow_short_lease=True)
    for name, longer, meant in (("second", "1s", 1_000), ("day", "1d", 86_400_000)):
        assert ten.create_subscription("orders", name, type=kind, lease_ms=longer).lease_ms == meant


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


def test_a_consumers_name_is_a_label(ten: Any, place: Place) -> None:
    for name in ("", "a\nb", 7, "x" * 257):
        with Unchanged(place), raises(NameNotAllowed):
            ten.consumer("orders", "billing", name=name)


@pytest.mark.clause("P-89")
@pytest.mark.parametrize("flushed", [False, True])
def test_a_transaction_goes_on_without_a_subscription_dropped_meanwhile(ten: Any, place: Place, flushed: bool) -> None:
    consumer = ten.consumer("orders", "billing")
    txn = holding(ten, consumer.receive(timeout_ms=0))
    txn.produce("audit", rows(1))
    if flushed:
        txn.flush()
    place.open().drop_subscription("orders", "billing")
    result = txn.commit()
    assert result.dropped == ("orders/billing",)
    assert read(ten, "audit") == [1]
    assert ten.subscriptions("orders") == ()


@pytest.mark.parametrize("kind", ["exclusive", "failover", "shared"])
@pytest.mark.parametrize("when", ["before", "while it is open", "behind a flush", "in its commit"])
def test_nothing_is_committed_that_the_subscription_made_again_delivers_again(pair: Any, kind: str, when: str) -> None:
    ns, store, rival = pair

    def again() -> None:
        rival.drop_subscription("orders", "billing")
        rival.create_subscription("orders", "billing", type=kind)

    ns.produce("orders", rows(1, 2))
    consumer = ns.consumer("orders", "billing", type=kind)
    messages = consumer.receive(3, timeout_ms=0)
    txn = ns.begin()
    if when == "before":
        again()
    txn.acknowledge(messages)
    txn.produce("audit", rows(1))
    if when == "behind a flush":
        txn.flush()
    if when == "in its commit":
        store.script.append(again)
    elif when != "before":
        again()
    with raises(TransactionConflict, match=r"'billing' of 'orders' was dropped and created again .*\(abort the trans"):
        txn.commit()
    assert txn.state == "ABORTED"
    assert read(rival, "audit") == [0]
    fresh = rival.consumer("orders", "billing")
    second_try = fresh.receive(3, timeout_ms=0)
    assert ids(second_try.table) == [0, 1, 2]
    with rival.begin() as second:
        second.produce("audit", rows(2))
        second.acknowledge(second_try)
    assert read(rival, "audit") == [0, 2]


def test_nothing_is_prepared_that_the_subscription_made_again_delivers_again(ten: Any, place: Place) -> None:
    for flushed in (False, True):
        consumer = ten.consumer("orders", "billing")
        txn = holding(ten, consumer.receive(timeout_ms=0), flush=flushed)
        other = place.open()
        other.drop_subscription("orders", "billing")
        other.create_subscription("orders", "billing")
        with raises(TransactionConflict, match="'billing' of 'orders' was dropped and created again"):
            txn.prepare()
        txn.abort()


def test_a_subscription_that_does_not_exist_offers_the_nearest(ten: Any) -> None:
    ten.create_subscription("orders", "billing")
    with raises(SubscriptionNotFound, match="biling") as caught:
        ten.lag("orders", "biling")
    assert caught.value.advice == "did you mean 'billing'?"


CONSUMER_CALLS: dict[str, Callable[[Any, Any, Any], object]] = {
    "receive": lambda consumer, _messages, _ns: consumer.receive(timeout_ms=0),
    "acknowledge": lambda consumer, messages, _ns: consumer.acknowledge(messages),
    "negative_acknowledge": lambda consumer, messages, _ns: consumer.negative_acknowledge(messages),
    "redeliver_unacknowledged": lambda consumer, _messages, _ns: consumer.redeliver_unacknowledged(),
    "seek": lambda consumer, _messages, _ns: consumer.seek("latest"),
    "seek to a time": lambda consumer, _messages, _ns: consumer.seek(datetime.datetime.now(datetime.UTC)),
    "in a transaction": lambda _consumer, messages, ns: (ns.snapshot(), ns.begin().acknowledge(messages)),
}


@pytest.mark.clause("P-89")
@pytest.mark.parametrize("call", CONSUMER_CALLS)
@pytest.mark.parametrize("kind", ["exclusive", "shared", "failover"])
def test_a_consumer_of_what_was_dropped_hears_its_name_and_the_way_out(memory: Place, call: str, kind: str) -> None:
    ns = memory.open()
    for name in ("orders", "audit"):
        ns.create_topic(name, SCHEMA)
        ns.produce(name, rows(1, 2))
        ns.create_subscription(name, "billing", type=kind)
    consumers = {name: ns.consumer(name, "billing", name="c") for name in ("orders", "audit")}
    messages = {name: take(consumer, 1) for name, consumer in consumers.items()}
    memory.open().drop_subscription("orders", "billing")
    memory.open().drop_topic("audit")
    with Unchanged(memory), raises(SubscriptionNotFound, match=r"'billing' of 'orders' was dropped.*ns.consumer"):
        CONSUMER_CALLS[call](consumers["orders"], messages["orders"], ns)
    with (
        Unchanged(memory),
        raises(SubscriptionNotFound, match=r"topic 'audit' was dropped, .*'billing'.*create_topic.*ns.consumer"),
    ):
        CONSUMER_CALLS[call](consumers["audit"], messages["audit"], ns)
    ns.create_topic("audit", SCHEMA)
    ns.produce("audit", rows(3))
    assert [received(ns.consumer(name, "billing")) for name in ("orders", "audit")] == [[1, 2], [3]]


# --- lag and what is pending ------------------------------------------------------------------------------------------


def test_lag_says_how_far_behind(place: Place, clock: ManualClock) -> None:
    ns = place.orders(partitions=2, clock=clock)
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


def test_a_name_that_is_taken_is_reported_with_what_differs_or_how_to_share_it(sales: Any, memory: Place) -> None:
    sales.create_subscription("orders", "billing")
    with Unchanged(memory), raises(SubscriptionExists, match="exists [(]use if_not_exists=True"):
        sales.create_subscription("orders", "billing")
    with Unchanged(memory), raises(SubscriptionExists, match="another type: 'exclusive' instead of 'shared'"):
        sales.create_subscription("orders", "billing", type="shared")
    with Unchanged(memory), raises(SubscriptionExists, match="another takeover"):
        sales.create_subscription("orders", "billing", takeover="same_name", if_not_exists=True)


def test_a_place_that_is_kept_for_a_name_is_not_waited_for(sales: Any) -> None:
    sales.create_subscription("orders", "billing", takeover="same_name")
    sales.consumer("orders", "billing", name="one").close()
    with raises(ConsumerBusy, match="waiting changes nothing"):
        sales.consumer("orders", "billing", name="other")


def test_a_shared_subscription_whose_log_has_a_takeover_rule_can_be_asked_for_again(sales: Any) -> None:
    """Nobody takes over there, so the rule is idle; clients before this one could write it."""
    topic = sales.topic("orders").id
    made = Subscription(topic, "workers", "shared", (0,) * sales.topic("orders").partitions, 30_000, "same_name")
    sales._connection.appender.call(effect(lambda _draft, _at: [made]))
    found = sales.create_subscription("orders", "workers", type="shared", lease_ms=30_000, if_not_exists=True)
    assert found.name == "workers"
