"""A subscription that is moved by a seek: to an offset, a time, or nowhere."""

from __future__ import annotations

import datetime
from typing import Any

import pytest

from tests.client.support import Place, Unchanged, cursor, holding, raises, received, rows
from txnlog.errors import ConsumerFenced, InvalidInputError, InvalidTransactionState, OffsetOutOfRange, TopicNotFound
from txnlog.testing import ManualClock
from txnlog.testing.scheduler import START_MS


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
    ns = place.orders(clock=clock)
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
    ns = place.orders(0, clock=clock)
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
@pytest.mark.parametrize("kind", ["exclusive", "shared"])
def test_a_seek_is_refused_while_the_log_shows_pending_acknowledgements(ten: Any, place: Place, kind: str) -> None:
    consumer = ten.consumer("orders", "billing", type=kind)
    txn = holding(ten, consumer.receive(4, timeout_ms=0))
    txn.flush()  # one of a Shared subscription is logged at once
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
