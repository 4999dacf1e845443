"""Subscriptions and topics that are dropped and made again while they are used."""

from __future__ import annotations

import datetime
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import pytest

from tests.client.support import (
    SCHEMA,
    FaultyStore,
    Place,
    Unchanged,
    ids,
    raises,
    received,
    rows,
    take,
    wait_for,
    waiting,
)
from txnlog.errors import Durable, SubscriptionNotFound, TopicNotFound


@pytest.fixture
def pair(memory: Place) -> tuple[Any, FaultyStore, Any]:
    """A client on a store that misbehaves when told, and a rival; ``orders`` and ``audit`` hold a message each."""
    ns, store = memory.faulty()
    for name in ("orders", "audit"):
        ns.create_topic(name, SCHEMA)
        ns.produce(name, rows(0))
    return ns, store, memory.open()


def made_again(rival: Any, partitions: int = 1) -> None:
    """Another topic has the name ``orders``, with a subscription of the same name as the old one had."""
    rival.drop_topic("orders")
    rival.create_topic("orders", SCHEMA, partitions=partitions)
    rival.create_subscription("orders", "there")
    for partition in range(partitions):
        rival.produce("orders", rows(70 + partition), partition)


@pytest.mark.parametrize("kind", ["exclusive", "shared", "failover"])
@pytest.mark.parametrize("topics", ["orders", ["audit", "orders"], ["orders", "audit"]])
@pytest.mark.parametrize("when", ["between its looks", "before its first entry", "before its second entry"])
def test_a_consumer_reads_the_topic_that_its_new_subscription_is_of(
    pair: Any, when: str, topics: str | list[str], kind: str
) -> None:
    """Whoever acknowledges what it received would else take messages away that nobody has seen."""
    ns, store, rival = pair
    if when == "between its looks":
        store.reads.extend(["ok", lambda: made_again(rival, 3)])
    else:
        store.script.extend([*(["ok"] if "second" in when else []), lambda: made_again(rival, 3)])
    consumer = ns.consumer(topics, "billing", type=kind)
    assert not any(callable(fault) for fault in (*store.reads, *store.script)), "it was made again"
    found: list[int] = []
    for _ in range(4):
        messages = take(consumer)
        found += ids(messages.table)
        consumer.acknowledge(messages)
    assert sorted(found) == ([70, 71, 72] if topics == "orders" else [0, 70, 71, 72])
    assert [item.cursor for item in rival.subscription("orders", "billing").cursors] == [1, 1, 1]


CALLS_BY_NAME: dict[str, Callable[[Any], object]] = {
    "create_subscription": lambda ns: ns.create_subscription("orders", "billing", start={0: 1}),
    "create it if need be": lambda ns: ns.create_subscription("orders", "there", if_not_exists=True),
    "drop_subscription": lambda ns: ns.drop_subscription("orders", "there"),
    "consumer": lambda ns: ns.consumer("orders", "there"),
    "consumer of a new one": lambda ns: ns.consumer("orders", "billing"),
}


@pytest.mark.parametrize("call", CALLS_BY_NAME)
def test_a_call_by_name_is_for_the_topic_that_has_the_name(pair: Any, call: str) -> None:
    ns, store, rival = pair
    if "new" not in call and call != "create it if need be":
        ns.create_subscription("orders", "there")
    store.script.append(lambda: made_again(rival))
    CALLS_BY_NAME[call](ns)
    left = rival.subscriptions("orders")
    assert ("billing" in left, "there" in left) == (
        call in {"create_subscription", "consumer of a new one"},
        call != "drop_subscription",
    )


@pytest.mark.parametrize("call", CALLS_BY_NAME)
def test_a_call_by_name_says_which_name_is_gone(pair: Any, call: str) -> None:
    ns, store, rival = pair
    ns.create_subscription("orders", "there")
    if call == "create it if need be":
        ns.drop_subscription("orders", "there")
    store.script.append(lambda: rival.drop_topic("orders"))
    with raises(TopicNotFound, match="no topic 'orders'.*nothing was written"):
        CALLS_BY_NAME[call](ns)


@pytest.mark.parametrize("call", sorted(CALLS_BY_NAME.keys() - {"create it if need be"}))
def test_a_call_by_name_looks_twice_and_then_names_what_was_dropped(pair: Any, call: str) -> None:
    ns, store, rival = pair
    made_again(rival)
    for _ in range(4):
        store.script.extend([lambda: made_again(rival), "ok"])
    kind = SubscriptionNotFound if call in {"drop_subscription", "consumer"} else TopicNotFound
    with raises(kind, match="'orders' was dropped.*nothing was written"):
        CALLS_BY_NAME[call](ns)


@pytest.mark.parametrize("partitions", [1, 3])
@pytest.mark.parametrize("position", ["latest", {0: 0}, "a time"], ids=["name", "offset", "time"])
def test_a_seek_is_for_the_topic_that_is_consumed(pair: Any, memory: Place, position: Any, partitions: int) -> None:
    ns, _, rival = pair
    consumer = ns.consumer("orders", "there")
    made_again(rival, partitions)
    with Unchanged(memory), raises(SubscriptionNotFound, match="'there' of 'orders' was dropped"):
        consumer.seek(datetime.datetime.now(datetime.UTC) if position == "a time" else position)


def test_a_subscription_that_is_dropped_meanwhile_is_named_or_made_again(pair: Any) -> None:
    ns, store, rival = pair
    ns.create_subscription("orders", "there")
    store.script.append(lambda: rival.drop_subscription("orders", "there"))
    with raises(SubscriptionNotFound, match="'orders' has no subscription 'there'.*nothing was written"):
        ns.drop_subscription("orders", "there")
    ns.create_subscription("orders", "there")
    store.script.append(lambda: rival.drop_subscription("orders", "there"))
    assert received(ns.consumer("orders", "there")) == [0]


def test_who_begins_anew_in_vain_still_says_that_something_may_be_durable(pair: Any) -> None:
    """The first look made a subscription of the topic that stays."""
    ns, store, rival = pair
    store.script.extend(["ok", lambda: rival.drop_topic("orders")])
    with raises(TopicNotFound, match="no topic 'orders'", durable=Durable.MAYBE):
        ns.consumer(["audit", "orders"], "billing")
    assert rival.subscriptions("audit") == ("billing",)


def test_who_is_refused_twice_at_the_takeover_still_says_that_something_may_be_durable(pair: Any) -> None:
    """The second try made the subscription that was dropped before the first one's takeover."""
    ns, store, rival = pair
    for topic in ("audit", "orders"):
        ns.create_subscription(topic, "billing")
    store.script.extend([lambda: rival.drop_subscription("orders", "billing"), "ok", "ok"])
    store.script.extend([lambda: rival.drop_subscription("audit", "billing"), "ok"])
    with raises(SubscriptionNotFound, durable=Durable.MAYBE):
        ns.consumer(["audit", "orders"], "billing")
    assert rival.subscriptions("orders") == ("billing",)


@pytest.mark.parametrize("there", [False, True])
def test_a_subscription_is_described_as_it_was_created_whatever_becomes_of_it(pair: Any, there: bool) -> None:
    """Another thread drops its topic with the same entry: the call did what it was asked for, and says so."""
    ns, store, _ = pair
    if there:
        ns.create_subscription("orders", "billing", start={0: 1})
    with ThreadPoolExecutor() as pool:
        calls: list[Future[Any]] = []

        def then(call: Callable[..., object], *arguments: Any, **options: Any) -> None:
            calls.append(pool.submit(call, *arguments, **options))
            wait_for(lambda: waiting(ns) == len(calls))

        def gather() -> None:
            then(ns.create_subscription, "orders", "billing", start={0: 1}, if_not_exists=there)
            then(ns.drop_topic, "orders")

        store.script.append(gather)
        ns.produce("audit", rows(1))
        made, _ = [call.result(30) for call in calls]
    assert (made.topic, made.name, made.cursors[0].cursor) == ("orders", "billing", 1)
    assert there == (made.id < ns.snapshot().version)
    assert ns.topics() == ("audit",)
