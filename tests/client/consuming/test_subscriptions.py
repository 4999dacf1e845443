"""Subscriptions as their users see them: created, dropped, moved by a seek, and how far behind they are."""

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
    cursor,
    ids,
    raises,
    read,
    received,
    rows,
    take,
    wait_for,
)
from txnlog.errors import (
    ConsumerBusy,
    ConsumerFenced,
    Durable,
    InvalidInputError,
    InvalidTransactionState,
    NameNotAllowed,
    OffsetOutOfRange,
    SubscriptionExists,
    SubscriptionNotFound,
    TopicNotFound,
)
from txnlog.format.actions import Subscription
from txnlog.log.commands import effect
from txnlog.testing import ManualClock
from txnlog.testing.scheduler import START_MS

# --- subscriptions ---------------------------------------------------------------------------------------------------


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
    with raises(InvalidInputError, match="at least 1ms, not 0"):
        ten.create_subscription("orders", "none", type=kind, lease_ms=0, allow_short_lease=True)


def test_a_lease_of_a_second_needs_no_word_for_it(ten: Any) -> None:
    assert ten.create_subscription("orders", "billing", type="shared", lease_ms="1s").lease_ms == 1_000


def test_a_short_lease_that_is_in_the_log_stays_as_it_is(ten: Any) -> None:
    ten.create_subscription("orders", "billing", type="shared", lease_ms=30, allow_short_lease=True)
    consumer = ten.consumer("orders", "billing")
    assert len(consumer.receive(2, timeout_ms=0)) == 2
    assert ten.subscription("orders", "billing").lease_ms == 30


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


def test_the_type_of_a_subscription_is_what_it_was_created_with(ten: Any, place: Place) -> None:
    ten.create_subscription("orders", "billing", type="shared")
    ten.consumer("orders", "billing")
    with Unchanged(place), raises(SubscriptionExists, match="shared"):
        ten.consumer("orders", "billing", type="exclusive")


def test_a_consumers_name_is_a_label(ten: Any, place: Place) -> None:
    for name in ("", "a\nb", 7, "x" * 257):
        with Unchanged(place), raises(NameNotAllowed):
            ten.consumer("orders", "billing", name=name)


@pytest.mark.clause("P-89")
@pytest.mark.parametrize("flushed", [False, True])
def test_a_transaction_goes_on_without_a_subscription_dropped_meanwhile(ten: Any, place: Place, flushed: bool) -> None:
    consumer = ten.consumer("orders", "billing")
    txn = ten.begin()
    txn.acknowledge(consumer.receive(timeout_ms=0))
    txn.produce("audit", rows(1))
    if flushed:
        txn.flush()
    place.open().drop_subscription("orders", "billing")
    result = txn.commit()
    assert result.dropped == ("orders/billing",)
    assert read(ten, "audit") == [1]
    assert ten.subscriptions("orders") == ()


@pytest.mark.clause("P-89")
def test_a_consumer_of_a_dropped_subscription_is_notified(ten: Any, place: Place) -> None:
    consumer = ten.consumer("orders", "billing")
    messages = consumer.receive(4, timeout_ms=0)
    place.open().drop_subscription("orders", "billing")
    for call in (
        lambda: consumer.acknowledge(messages),
        lambda: consumer.receive(timeout_ms=0),
        lambda: consumer.seek("latest"),
        lambda: ten.begin().acknowledge(messages),
        lambda: ten.subscription("orders", "billing"),
        lambda: ten.lag("orders", "billing"),
        lambda: ten.drop_subscription("orders", "billing"),
    ):
        with Unchanged(place), raises(SubscriptionNotFound):
            call()


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


# --- topics that are made again meanwhile ----------------------------------------------------------------------------


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
            wait_for(lambda: len(ns._connection.appender._queue) == len(calls))

        def gather() -> None:
            then(ns.create_subscription, "orders", "billing", start={0: 1}, if_not_exists=there)
            then(ns.drop_topic, "orders")

        store.script.append(gather)
        ns.produce("audit", rows(1))
        made, _ = [call.result(30) for call in calls]
    assert (made.topic, made.name, made.cursors[0].cursor) == ("orders", "billing", 1)
    assert there == (made.id < ns.snapshot().version)
    assert ns.topics() == ("audit",)


# --- seek ------------------------------------------------------------------------------------------------------------


@pytest.mark.clause("P-72", "P-75")
def test_a_seek_moves_the_cursor_and_refuses_what_was_received_before(ten: Any, place: Place) -> None:
    consumer = ten.consumer("orders", "billing")
    messages = consumer.receive(timeout_ms=0)
    consumer.acknowledge(messages[:6])
    epoch = ten.subscription("orders", "billing").epoch
    consumer.seek({0: 3})
    assert ten.subscription("orders", "billing").epoch > epoch
    assert received(consumer) == [3, 4, 5, 6, 7, 8, 9]
    with Unchanged(place), raises(ConsumerFenced):
        consumer.acknowledge(messages[8])
    consumer.seek("latest")
    assert received(consumer) == []
    consumer.seek("earliest")
    assert received(consumer) == list(range(10))


@pytest.mark.parametrize("kind", ["exclusive", "failover", "shared"])
def test_a_seek_that_names_no_partition_is_refused_and_fences_nobody(sales: Any, memory: Place, kind: str) -> None:
    sales.produce("orders", rows(0, 1, 2))
    sales.create_subscription("orders", "billing", type=kind)
    consumer = sales.consumer("orders", "billing")
    messages = consumer.receive(timeout_ms=0)
    epoch = sales.subscription("orders", "billing").epoch
    with Unchanged(memory), raises(InvalidInputError, match="no partition") as caught:
        consumer.seek({})
    assert "{0: 0}" in caught.value.advice
    assert sales.subscription("orders", "billing").epoch == epoch
    consumer.acknowledge(messages)
    assert cursor(sales).cursor == 3


def test_a_seek_to_a_time(place: Place, clock: ManualClock) -> None:
    ns = place.open(clock=clock)
    ns.create_topic("orders", SCHEMA)
    for number in range(5):
        clock.advance(1_000)
        ns.produce("orders", rows(number))
    consumer = ns.consumer("orders", "billing")
    at = datetime.datetime.fromtimestamp((START_MS + 3_000) / 1000, datetime.UTC)
    consumer.seek(at)
    assert received(consumer) == [3, 4]
    consumer.seek(at - datetime.timedelta(days=1))
    assert received(consumer) == [0, 1, 2, 3, 4]
    consumer.seek(at.isoformat())
    assert received(consumer) == [3, 4]
    consumer.seek(at + datetime.timedelta(minutes=1))
    assert received(consumer) == []


@pytest.mark.parametrize(
    "later", ["2062-11-25T00:00:00Z", datetime.datetime(2062, 11, 25, tzinfo=datetime.UTC)], ids=["text", "datetime"]
)
def test_a_time_in_the_future_is_no_position(ten: Any, place: Place, later: Any) -> None:
    consumer = ten.consumer("orders", "billing")
    match = r"is a time in the future.* \(.*\"latest\".*; nothing was written\)"
    with Unchanged(place):
        with raises(InvalidInputError, match=match):
            consumer.seek(later)
        with raises(InvalidInputError, match=match):
            ten.create_subscription("orders", "other", start=later)
    assert received(consumer, 1) == [0]


def test_the_future_begins_a_minute_ahead_of_the_log_and_of_the_clock(place: Place, clock: ManualClock) -> None:
    ns = place.open(clock=clock)
    ns.create_topic("orders", SCHEMA)
    ns.produce("orders", rows(0))
    consumer = ns.consumer("orders", "billing")

    def at(time_ms: int) -> datetime.datetime:
        return datetime.datetime.fromtimestamp(time_ms / 1_000, datetime.UTC)

    consumer.seek(at(START_MS + 60_000))
    with raises(InvalidInputError, match="in the future"):
        consumer.seek(at(START_MS + 60_001))
    clock.advance(5_000)  # the clock goes ahead of the log
    consumer.seek(at(START_MS + 65_000))
    behind = place.open(clock=ManualClock(START_MS - 3_600_000))
    behind.consumer("orders", "billing").seek(at(START_MS + 65_000))  # the log is ahead of this clock
    with raises(InvalidInputError, match="in the future"):
        behind.create_subscription("orders", "other", start=at(START_MS + 65_001))


@pytest.mark.clause("P-75")
def test_a_seek_is_refused_while_the_log_shows_pending_acknowledgements(ten: Any, place: Place) -> None:
    consumer = ten.consumer("orders", "billing")
    txn = ten.begin()
    txn.acknowledge(consumer.receive(4, timeout_ms=0))
    txn.flush()
    with Unchanged(place), raises(InvalidTransactionState, match="of 'orders' has pending"):
        consumer.seek("earliest")
    assert received(consumer, 1) == [4], "the consumer goes on"
    txn.commit()
    consumer.seek("earliest")
    assert received(consumer) == list(range(10))


@pytest.mark.parametrize(
    ("position", "kind"),
    [
        ({0: 11}, OffsetOutOfRange),
        ({0: -1}, InvalidInputError),
        ({1: 0}, OffsetOutOfRange),
        ({0: "5"}, InvalidInputError),
        ({"0": 5}, InvalidInputError),
        ("newest", InvalidInputError),
        (5, InvalidInputError),
        (None, InvalidInputError),
        (datetime.datetime(2026, 1, 1), InvalidInputError),  # noqa: DTZ001 - naive on purpose
    ],
)
def test_a_position_that_makes_no_sense_is_refused(ten: Any, place: Place, position: Any, kind: Any) -> None:
    consumer = ten.consumer("orders", "billing")
    with Unchanged(place):
        with raises(kind):
            consumer.seek(position)
        with raises(kind):
            ten.create_subscription("orders", "other", start=position)
    assert received(consumer, 1) == [0]


def test_a_seek_of_several_topics_is_all_or_nothing(ten: Any) -> None:
    ten.produce("audit", rows(100))
    consumer = ten.consumer(["orders", "audit"], "billing")
    txn = ten.begin()
    batches = [consumer.receive(timeout_ms=0) for _ in range(2)]
    txn.acknowledge(next(batch for batch in batches if batch.topic == "audit"))
    txn.flush()
    with raises(InvalidTransactionState):
        consumer.seek("latest")
    assert cursor(ten).cursor == 0
    consumer.seek("latest", topic="orders")
    assert cursor(ten).cursor == 10
    txn.commit()
    consumer.seek("earliest")
    assert (cursor(ten).cursor, cursor(ten, "audit").cursor) == (0, 0)
    assert sorted(received(consumer) + received(consumer)) == [*range(10), 100]
    with raises(TopicNotFound, match="ordres"):
        consumer.seek("earliest", topic="ordres")


# --- lag and what is pending -----------------------------------------------------------------------------------------


def test_lag_says_how_far_behind(place: Place, clock: ManualClock) -> None:
    ns = place.open(clock=clock)
    ns.create_topic("orders", SCHEMA, partitions=2)
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
