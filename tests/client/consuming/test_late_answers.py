"""An answer of the store that comes behind a deadline: what is under way may take effect yet, and is nobody else's."""

from __future__ import annotations

from typing import Any

import pytest

from tests.client.support import SCHEMA, Place, cursor, received, rows, run_threads, take
from txnlog.testing import ManualClock


def faulty_ten(memory: Place, clock: ManualClock) -> tuple[Any, Any, Any]:
    ns, store = memory.faulty(clock=clock)
    ns.create_topic("orders", SCHEMA)
    ns.produce("orders", rows(*range(10)))
    return ns, ns.consumer("orders", "billing"), store


@pytest.mark.parametrize("cumulative", [False, True])
def test_a_plain_acknowledgement_that_the_store_answers_late_is_not_delivered_again(
    memory: Place, clock: ManualClock, cumulative: bool
) -> None:
    """DOUBLE: the clock jumps ahead (NTP, a laptop that wakes up), or the store hangs for a minute."""
    ns, consumer, store = faulty_ten(memory, clock)
    messages = take(consumer, 4)
    seen: list[Any] = []

    def late() -> None:
        clock.advance(61_000)
        run_threads(lambda: seen.append(received(consumer)))

    store.script.append(late)
    consumer.acknowledge(messages, cumulative=cumulative)
    assert cursor(ns).cursor == 4
    assert seen == [[4, 5, 6, 7, 8, 9]]


@pytest.mark.parametrize("cumulative", [False, True])
def test_the_messages_of_a_commit_that_the_store_answers_late_are_not_delivered_again(
    memory: Place, clock: ManualClock, cumulative: bool
) -> None:
    """DOUBLE: the same for a transaction whose deadline passes while its commit is under way."""
    ns, consumer, store = faulty_ten(memory, clock)
    messages = take(consumer, 4)
    seen: list[Any] = []
    txn = ns.begin(timeout_ms=10_000)
    txn.acknowledge(messages, cumulative=cumulative)
    clock.advance(9_000)

    def late() -> None:
        clock.advance(2_000)
        run_threads(lambda: seen.append(received(consumer)))

    store.script.append(late)
    txn.commit()
    assert cursor(ns).cursor == 4
    assert seen == [[4, 5, 6, 7, 8, 9]]
