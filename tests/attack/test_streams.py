"""A streaming run and a consumer that open one subscription at the same time, through one handle."""

from __future__ import annotations

import threading
import time
from typing import Any

import pytest

from spark_ext import stream_batches
from tests.client.support import SCHEMA, Place, rows


@pytest.mark.clause("P-74")
def test_a_run_and_a_consumer_that_open_in_one_entry_are_both_answered(memory: Place) -> None:
    """Both raise the epoch, and an entry raises it once: the one that comes second is for the next entry."""
    ns, store = memory.faulty()
    ns.create_topic("orders", SCHEMA)
    subscription = ns.consumer("orders", "billing")._subscribed[0].subscription
    taken = stream_batches.Taken("orders", subscription, {0: 0}, {0: 1})
    identity = stream_batches.QueryIdentity("query", "query")
    answers: list[Any] = []

    def answered(call: Any) -> None:
        try:
            answers.append(call())
        except Exception as error:  # noqa: BLE001 - it is the result
            answers.append(error)

    threads = [
        threading.Thread(target=answered, args=(call,), daemon=True)
        for call in (
            lambda: stream_batches._take_epoch(ns, taken, identity, "run"),
            lambda: ns.consumer("orders", "billing"),
        )
    ]

    def both_wait() -> None:
        """While an entry is on its way, both queue up for the next."""
        for thread in threads:
            thread.start()
        deadline = time.monotonic() + 10
        while len(ns.appender._queue) < 2 and time.monotonic() < deadline:
            time.sleep(0.001)

    store.script.append(both_wait)
    ns.produce("orders", rows(1))
    for thread in threads:
        thread.join(10)
    assert len(answers) == 2
    assert not [answer for answer in answers if isinstance(answer, Exception)]
