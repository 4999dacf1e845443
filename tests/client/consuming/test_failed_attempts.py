"""An attempt of transact that fails, beside other threads of the same consumer."""

from __future__ import annotations

import contextlib
from typing import Any

import pytest

from tests.client.support import Place, ids, received, run_threads, take


@pytest.mark.parametrize("kind", ["exclusive", "shared"])
@pytest.mark.parametrize("how", ["negative_acknowledge", "redeliver_unacknowledged"])
def test_an_attempt_that_released_its_messages_and_fails_leaves_those_of_another_thread(
    memory: Place, kind: str, how: str
) -> None:
    """DOUBLE: the function releases what it cannot process and raises; another thread has received it by then."""
    ns = memory.orders(*range(4))
    ns.create_subscription("orders", "billing", type=kind)
    consumer = ns.consumer("orders", "billing")
    others: list[Any] = []

    def work(_txn: Any) -> None:
        messages = take(consumer)
        if how == "negative_acknowledge":
            consumer.negative_acknowledge(messages)
        else:
            consumer.redeliver_unacknowledged()
        run_threads(lambda: others.append(take(consumer)))
        raise ValueError("not now")

    with contextlib.suppress(ValueError):
        ns.transact(work)
    assert ids(others[0].table) == [0, 1, 2, 3]
    assert received(consumer) == [], "they are in the hands of the other thread"
