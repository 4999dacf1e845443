"""Ctrl-C while a consumer is opened, and what calls over several topics say of what they wrote."""

from __future__ import annotations

import time
from typing import Any

import pytest

from tests.client.shared import LEASE_MS, shared
from tests.client.support import SCHEMA, Place, received, rows, take, wait_for
from tests.interrupts import hearing_interrupts, interrupt_main_thread
from txnlog.engine.engine import engine_of_process
from txnlog.errors import Durable, StoreError
from txnlog.testing import ManualClock


@pytest.mark.parametrize(("kind", "takeover"), [("failover", "any"), ("exclusive", "after_lease")])
def test_nobody_waits_for_the_lease_of_a_consumer_whose_opening_was_interrupted(
    memory: Place, kind: str, takeover: str
) -> None:
    """LEAK: Ctrl-C in ``ns.consumer()``: its entry goes on, nobody has the consumer, and the next one waits."""
    ns, store = memory.faulty_orders(*range(4))
    ns.create_subscription("orders", "billing", type=kind, takeover=takeover, lease_ms=3_600_000)
    begun: list[float] = []

    def interrupted() -> None:
        interrupt_main_thread()
        time.sleep(0.7)  # the main thread hears of it meanwhile
        begun.append(time.monotonic())

    store.script.append(interrupted)
    with hearing_interrupts(), pytest.raises(KeyboardInterrupt):
        ns.consumer("orders", "billing", name="one")
    wait_for(lambda: bool(begun) and not engine_of_process().keeps_process())
    assert ns.subscription("orders", "billing").consumer == "one", "what was interrupted took effect"
    assert received(ns.consumer("orders", "billing", name="one")) == [0, 1, 2, 3]


def test_messages_of_another_consumer_of_the_subscription_are_released_or_refused(memory: Place) -> None:
    """LIE: two consumers of a Shared subscription in one process: a thread releases through the other one."""
    ns = memory.orders(*range(4))
    ns.create_subscription("orders", "billing", type="shared", lease_ms=3_600_000)
    one, two = ns.consumer("orders", "billing"), ns.consumer("orders", "billing")
    two.negative_acknowledge(take(one))
    assert received(two) == [0, 1, 2, 3], "it said nothing, and did nothing: they wait for the end of their lease"


def test_a_release_over_two_topics_that_fails_at_the_second_one_does_not_say_that_nothing_was_written(
    memory: Place, clock: ManualClock
) -> None:
    """LIE: there is no space left for the second entry."""
    ns, store = shared(memory, clock, 4)
    ns.create_topic("more", SCHEMA)
    ns.produce("more", rows(*range(4)))
    ns.create_subscription("more", "billing", type="shared", lease_ms=LEASE_MS)
    consumer = ns.consumer(["orders", "more"], "billing")
    assert [len(take(consumer)), len(take(consumer))] == [4, 4]
    before = ns.snapshot().version
    store.script.extend(["ok", "refused"])
    with pytest.raises(StoreError) as caught:
        consumer.redeliver_unacknowledged()
    assert ns.snapshot().version == before + 1
    assert caught.value.durable is Durable.MAYBE


def test_a_receive_that_released_before_it_failed_does_not_say_that_nothing_was_written(
    memory: Place, clock: ManualClock
) -> None:
    """LIE: what a failed attempt had is released by the next receive, which then finds no space for its own lease."""
    ns, store = shared(memory, clock, 4)
    consumer = ns.consumer("orders", "billing")

    def fail(_txn: Any) -> None:
        take(consumer)
        store.script.append("refused")  # the release, which is made later then
        raise ValueError("not now")

    with pytest.raises(ValueError, match="not now"):
        ns.transact(fail)
    before = ns.snapshot().version
    store.script.extend(["ok", "refused"])
    with pytest.raises(StoreError) as caught:
        take(consumer)
    assert ns.snapshot().version == before + 1
    assert caught.value.durable is Durable.MAYBE
