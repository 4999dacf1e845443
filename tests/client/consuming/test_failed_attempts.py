"""An attempt of transact that fails, beside other threads of the same consumer."""

from __future__ import annotations

import contextlib
import threading
from typing import Any

import pytest

from tests.client.shared import begin, shared
from tests.client.support import (
    SCHEMA,
    Place,
    cursor,
    has_no_thread,
    ids,
    received,
    rows,
    run_threads,
    take,
    wait_for,
    waiting,
)
from txnlog.engine import worker
from txnlog.errors import Durable, OutcomeUnknown, RetriableError, TxnLogError
from txnlog.testing import ManualClock


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
        consumer.negative_acknowledge(
            messages
        ) if how == "negative_acknowledge" else consumer.redeliver_unacknowledged()
        run_threads(lambda: others.append(take(consumer)))
        raise ValueError("not now")

    with contextlib.suppress(ValueError):
        ns.transact(work)
    assert ids(others[0].table) == [0, 1, 2, 3]
    assert received(consumer) == [], "they are in the hands of the other thread"


def test_an_attempt_past_its_deadline_leaves_the_messages_of_another_thread(memory: Place, clock: ManualClock) -> None:
    """DOUBLE: the function hangs for longer than the timeout; another thread has its messages when it fails at last."""
    ns = memory.orders(*range(4), clock=clock)
    consumer = ns.consumer("orders", "billing")
    others: list[Any] = []

    def work(txn: Any) -> None:
        if not others:
            txn.acknowledge(take(consumer))
            clock.advance(61_000)
            run_threads(lambda: others.append(take(consumer)))

    with contextlib.suppress(TxnLogError):
        ns.transact(work)
    assert ids(others[0].table) == [0, 1, 2, 3]
    assert received(consumer) == [], "they are in the hands of the other thread"


def test_what_another_thread_has_received_is_no_dead_letter(memory: Place, clock: ManualClock) -> None:
    """DOUBLE: released once by the function, and once more where it fails: too often, though nobody failed twice."""
    ns, _store = shared(memory, clock, 2, max_redeliveries=1, dead_letter_topic="dead")
    consumer = ns.consumer("orders", "billing")
    others: list[Any] = []

    def work(_txn: Any) -> None:
        consumer.negative_acknowledge(take(consumer))
        run_threads(lambda: others.append(take(consumer)))
        raise ValueError("not now")

    with contextlib.suppress(ValueError):
        ns.transact(work)
    take(consumer)
    consumer.acknowledge(others[0])  # says that all is well
    assert ns.snapshot().read("dead").num_rows == 0, "it was processed, and is a dead letter"


@pytest.mark.parametrize("kind", ["exclusive", "shared"])
def test_who_releases_twice_does_not_release_what_another_thread_received_in_between(memory: Place, kind: str) -> None:
    """DOUBLE: a thread releases its messages where it fails, and once more in a ``finally``."""
    ns = memory.orders(*range(4))
    ns.create_subscription("orders", "billing", type=kind)
    consumer = ns.consumer("orders", "billing")
    messages = take(consumer)
    consumer.negative_acknowledge(messages)
    others: list[Any] = []
    run_threads(lambda: others.append(take(consumer)))
    assert ids(others[0].table) == [0, 1, 2, 3]
    consumer.negative_acknowledge(messages)
    assert received(consumer) == [], "they are in the hands of the other thread"


def test_an_attempt_whose_abort_meets_the_memory_error_of_another_thread_loses_no_message(
    memory: Place, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """LOSE: another thread produces more than the memory holds, and shares the entry of the abort."""
    ns, store = memory.faulty(clock=clock)
    for topic in ("orders", "audit"):
        ns.create_topic(topic, SCHEMA)
    ns.produce("orders", rows(*range(10)))
    consumer = ns.consumer("orders", "billing")
    threads: list[threading.Thread] = []

    def build(*_: Any) -> Any:
        monkeypatch.undo()
        raise MemoryError("malloc failed")

    def until_both_wait() -> None:
        wait_for(lambda: waiting(ns) == 2)

    def fail(txn: Any) -> None:
        messages = take(consumer, 5)
        txn.produce("audit", messages.table.select(["id", "name"]))
        txn.flush()
        monkeypatch.setattr(ns._connection.appender._shared, "build", build)
        store.script.append(until_both_wait)
        threads.append(begin(lambda: ns.create_topic("passing", SCHEMA)))
        wait_for(lambda: not store.script)
        threads.append(begin(lambda: run_threads(lambda: ns.produce("audit", rows(99)))))
        wait_for(lambda: waiting(ns) == 1)
        raise ValueError("not now")

    with pytest.raises((ValueError, MemoryError)):
        ns.transact(fail)
    for thread in threads:
        thread.join(20)
    clock.advance(3_600_000)
    seen: list[int] = []

    def work(txn: Any) -> int:
        messages = take(consumer, 5)
        seen.extend(ids(messages.table))
        txn.acknowledge(messages, cumulative=True)
        return len(messages)

    while ns.transact(work):
        pass
    assert cursor(ns).cursor == 10
    assert seen == list(range(10)), "0-4 are acknowledged, and nobody has processed them"


def test_what_an_attempt_of_unknown_outcome_received_is_delivered_again_where_it_was_aborted(memory: Place) -> None:
    """LOSE: the store is away during the commit; another process settles it, as the error advises: aborted."""
    ns, store = memory.faulty()
    other = memory.open()
    ns.create_topic("orders", SCHEMA)
    ns.produce("orders", rows(*range(10)))
    consumer = ns.consumer("orders", "billing")

    def go_away() -> None:
        store.reads_forever = store.forever = "broken"

    def fail(txn: Any) -> None:
        messages = take(consumer, 5)
        txn.acknowledge(messages[:2])
        store.script.extend([go_away, "dropped"])

    with pytest.raises(OutcomeUnknown) as caught:
        ns.transact(fail)
    store.heal()
    assert other.abort(caught.value.txn_ids[0]).state == "ABORTED"
    seen: list[int] = []

    def work(txn: Any) -> int:
        messages = take(consumer, 3)
        seen.extend(ids(messages.table))
        txn.acknowledge(messages, cumulative=True)
        return len(messages)

    while ns.transact(work):
        pass
    assert cursor(ns).cursor == 10
    assert sorted(seen) == list(range(10)), "2-4 are acknowledged, and nobody has processed them"


def test_an_attempt_that_fails_where_no_thread_can_be_started_loses_no_message(
    memory: Place, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """LOSE: the process is at the limit of its threads for a moment, just when the engine's would have to begin."""
    ns = memory.orders(*range(10), clock=clock)
    ns.create_topic("audit", SCHEMA)
    consumer = ns.consumer("orders", "billing")
    start = worker.THREADS.start
    refused: list[str] = []

    def start_but_once(_host: object, work: Any, name: str) -> None:
        if not refused:
            refused.append(name)
            raise RetriableError("this process cannot start another thread", durable=Durable.NOTHING)
        start(work, name)

    def fail(txn: Any) -> None:
        messages = take(consumer, 5)
        txn.produce("audit", messages.table.select(["id", "name"]))
        txn.flush()
        wait_for(has_no_thread)  # a slow handler
        monkeypatch.setattr(type(worker.THREADS), "start", start_but_once)
        raise ValueError("not now")

    monkeypatch.setattr(worker, "_IDLE_MS", 1.0)
    with pytest.raises((ValueError, RetriableError)):
        ns.transact(fail, attempts=1)
    assert refused
    clock.advance(3_600_000)
    seen: list[int] = []

    def work(txn: Any) -> int:
        messages = take(consumer, 5)
        seen.extend(ids(messages.table))
        txn.acknowledge(messages, cumulative=True)
        return len(messages)

    while ns.transact(work):
        pass
    assert cursor(ns).cursor == 10
    assert sorted(seen) == list(range(10)), "0-4 are acknowledged, and nobody has processed them"
