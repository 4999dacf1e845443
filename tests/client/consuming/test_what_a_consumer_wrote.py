"""Consumers of several topics, and of Shared subscriptions: errors say whether a part of the call is in the log."""

from __future__ import annotations

import pytest

from tests.client.support import SCHEMA, FaultyStore, Place, Unchanged, cursor, kind_of, received, rows, take
from txnlog.errors import ConsumerBusy, Durable, StoreError
from txnlog.testing import ManualClock


def test_a_failover_consumer_that_took_one_of_two_places_says_so(memory: Place) -> None:
    """LIE: ``receive`` became the consumer of one topic, and is refused the other's: "nothing was written"."""
    ns, store = memory.faulty()
    for topic in ("orders", "audit"):
        ns.create_topic(topic, SCHEMA)
        ns.create_subscription(topic, "billing", type="failover")
    first = memory.open().consumer(["orders", "audit"], "billing", name="first")
    second = ns.consumer(["orders", "audit"], "billing", name="second")
    first.close()
    store.script.append("ok")
    store.forever = "refused"
    with pytest.raises(StoreError) as caught:
        take(second)
    store.heal()
    assert ns.subscription("orders", "billing").consumer == "second"
    assert caught.value.durable is Durable.MAYBE, caught.value


class _Unreadable(FaultyStore):
    """No segment can be read any more, and no entry be put from then on."""

    def get(self, key: str) -> bytes:
        self._check(key)
        return super().get(key)

    def get_range(self, key: str, start: int, end: int) -> bytes:
        self._check(key)
        return super().get_range(key, start, end)

    def _check(self, key: str) -> None:
        if kind_of(key) == "segment":
            self.forever = "refused"
            raise StoreError("read timed out")


def test_a_shared_consumer_that_keeps_messages_from_all_others_says_so(memory: Place) -> None:
    """LIE: ``receive`` leased messages in the log, cannot read them, nor release them: "nothing was written"."""
    memory.orders(1, 2, 3)
    ns, store = memory.wrapped(_Unreadable)
    ns.create_subscription("orders", "billing", type="shared")
    consumer = ns.consumer("orders", "billing")
    with pytest.raises(StoreError) as caught:
        take(consumer)
    store.heal()
    assert received(memory.open().consumer("orders", "billing")) == [], "nobody else gets them"
    assert cursor(ns).leased == 3
    assert caught.value.durable is Durable.MAYBE, caught.value


def test_a_redelivery_that_wrote_nothing_says_so(memory: Place, clock: ManualClock) -> None:
    """LIE: the first topic has nothing left to release, the second one's is refused: "data may be durable"."""
    ns, store = memory.faulty(clock=clock)
    for topic in ("audit", "orders"):
        ns.create_topic(topic, SCHEMA)
        ns.create_subscription(topic, "billing", type="shared")
    ns.produce("audit", rows(1))
    consumer = ns.consumer(["audit", "orders"], "billing")
    assert received(consumer) == [1]
    clock.advance(60_000)
    other = memory.open(clock=clock).consumer("audit", "billing")
    other.acknowledge(take(other))
    ns.produce("orders", rows(2))
    assert consumer.receive(timeout_ms=0).topic == "orders"
    store.forever = "refused"
    with Unchanged(memory), pytest.raises(StoreError) as caught:
        consumer.redeliver_unacknowledged()
    assert caught.value.durable is Durable.NOTHING, caught.value


def test_a_consumer_whose_subscription_somebody_else_created_wrote_nothing(memory: Place) -> None:
    """LIE: the rival's subscription counts as made by this call, which is refused: "data may be durable"."""
    ns, store = memory.faulty()
    ns.create_topic("orders", SCHEMA)
    rival = memory.open()

    def first() -> None:
        rival.create_subscription("orders", "billing", takeover="same_name")
        rival.consumer("orders", "billing", name="rival")

    store.script.append(first)
    with pytest.raises(ConsumerBusy) as caught:
        ns.consumer("orders", "billing", name="mine")
    assert ns.snapshot().version == rival.snapshot().version == 3, "the topic, the subscription, its consumer"
    assert caught.value.durable is Durable.NOTHING, caught.value
