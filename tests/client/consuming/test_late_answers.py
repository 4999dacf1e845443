"""Acknowledgements that the store answers late: behind a deadline that passes while they are under way."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest

from tests.client.support import Place, cursor, holding, received, rows, run_threads, take
from tests.faults import Once
from txnlog.errors import OutcomeUnknown
from txnlog.store import HookStore, StoreCall
from txnlog.testing import ManualClock


def faulty_ten(memory: Place, clock: ManualClock) -> tuple[Any, Any, Any]:
    ns, store = memory.faulty_orders(*range(10), clock=clock)
    return ns, ns.consumer("orders", "billing"), store


@pytest.mark.parametrize("cumulative", [False, True])
@pytest.mark.parametrize("late_ms", [61_000, 11_000], ids=["plain", "in a transaction"])
def test_an_acknowledgement_that_the_store_answers_late_is_not_delivered_again(
    memory: Place, clock: ManualClock, late_ms: int, cumulative: bool
) -> None:
    """DOUBLE: its entry was made before the deadline, and is in the log; another thread receives the same meanwhile."""
    ns, consumer, store = faulty_ten(memory, clock)
    messages = take(consumer, 4)
    seen: list[Any] = []

    def late() -> None:
        clock.advance(late_ms)
        run_threads(lambda: seen.append(received(consumer)))

    if late_ms == 11_000:
        acknowledge = holding(ns, messages, cumulative=cumulative, timeout_ms=10_000).commit
    else:
        acknowledge = partial(consumer.acknowledge, messages, cumulative=cumulative)
    store.script.append(late)
    acknowledge()
    assert cursor(ns).cursor == 4
    assert seen == [[4, 5, 6, 7, 8, 9]]


def test_what_a_commit_of_unknown_outcome_acknowledges_is_not_delivered_again_before_that_is_known(
    memory: Place, clock: ManualClock
) -> None:
    """DOUBLE: the entry was made before the deadline, and reaches the store behind it: it is valid."""
    ns, consumer, store = faulty_ten(memory, clock)
    txn = holding(ns, take(consumer, 4), timeout_ms=10_000)
    store.script.append("late")
    store.forever = "dropped"
    with pytest.raises(OutcomeUnknown):
        txn.commit()
    store.heal()
    clock.advance(11_000)
    seen = received(consumer)
    store.land()
    txn.commit()
    assert cursor(ns).cursor == 4
    assert seen == [4, 5, 6, 7, 8, 9]


def test_what_a_commit_acknowledges_is_not_delivered_again_while_its_file_is_stored(
    memory: Place, clock: ManualClock
) -> None:
    """DOUBLE: the rows of the commit take long to upload; another thread receives meanwhile, behind the deadline.

    The entry of the commit may still be put: only what it finds in the log then decides.
    """

    def is_file(call: StoreCall, key: str) -> bool:
        return call is StoreCall.PUT and key.endswith(".parquet")

    seen: list[Any] = []

    def late() -> None:
        clock.advance(2_000)
        run_threads(lambda: seen.append(received(consumer)))

    upload = Once(is_file, late, came=True)
    ns = memory.orders(*range(10), wrap=lambda store: HookStore(store, before=upload), clock=clock)
    consumer = ns.consumer("orders", "billing")
    txn = holding(ns, take(consumer, 4), timeout_ms=10_000)
    txn.produce("orders", rows(10))
    clock.advance(9_000)
    upload.came = False
    txn.commit()
    assert upload.came
    assert cursor(ns).cursor == 4
    assert seen == [[4, 5, 6, 7, 8, 9]]
