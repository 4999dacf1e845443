"""Ctrl-C: an interrupt in the main thread tears nothing that is in memory, and no other thread waits for ever."""

from __future__ import annotations

import contextlib
import itertools
import threading
from concurrent.futures import _base
from functools import partial
from typing import Any

import pytest

from tests.client.support import (
    SCHEMA,
    Place,
    assert_whole,
    begun,
    cursor,
    holding,
    ids,
    read,
    received,
    rows,
    run_threads,
    take,
)
from tests.interrupts import hearing_interrupts, interrupt_main_thread, interrupted
from txnlog.api import consumer as consumer_module
from txnlog.api import messages, transaction
from txnlog.client import (
    acknowledgement_conflicts,
    connection,
    consumer_machine,
    ledger,
    session_owner,
)
from txnlog.client import transaction_work as work
from txnlog.engine import admission, effects, engine, promises, runtime, worker
from txnlog.errors import InvalidTransactionState, TransactionAborted, TransactionTimedOut
from txnlog.log import appender, follower
from txnlog.testing import ManualClock
from txnlog.testing.scheduler import START_MS

CONNECTION = (connection, session_owner)
CALLING = (admission, appender, effects, engine, follower, promises, runtime, worker)
"""Of these only what runs in the thread of the caller is interrupted."""


def test_a_batch_that_is_interrupted_anywhere_is_repeated_and_there_once(memory: Place) -> None:
    ns = memory.orders()
    producer = ns.producer("loader")

    def produce(number: int) -> Any:
        return producer.produce("orders", rows(number), partition=0, sequence=number)

    for number in itertools.count():
        if not interrupted(partial(produce, number), CALLING, number + 1):
            break
        result = produce(number)
        assert result.offsets == {("orders", 0): range(number, number + 1)}
    assert number > 5, "places"
    assert read(memory.open(mode="r")) == list(range(number + 1))
    assert_whole(ns, memory)


def test_a_refresh_that_is_interrupted_anywhere_leaves_a_whole_state(memory: Place) -> None:
    ns, other = memory.open(), memory.open()
    ns.create_topic("orders", SCHEMA)
    producer = ns.producer("loader")
    other.snapshot()
    consumer = other.consumer("orders", "billing")  # it has the segments of the topic by their offsets
    for number in itertools.count():
        producer.produce("orders", rows(number))
        going_on = interrupted(other._connection.follower.refresh, CALLING, number + 1)
        assert received(consumer) == [number]
        if not going_on:
            break
    assert number > 1, "places"
    assert_whole(other, memory)


def test_a_background_commit_that_is_interrupted_anywhere_leaves_a_handle_that_commits(memory: Place) -> None:
    ns = memory.orders()

    def commit(number: int) -> None:
        txn = begun(ns, number)
        txn.commit_async().result(20)

    for number in itertools.count():
        going_on = interrupted(partial(commit, number), CALLING, number + 1)
        (other,) = run_threads(partial(ns.produce, "orders", rows(1_000 + number)), seconds=20)
        assert not isinstance(other, BaseException), other
        if not going_on:
            break
    assert number > 10, "places"
    found = read(ns)
    assert len(set(found)) == len(found)
    assert_whole(ns, memory)


def test_a_block_that_is_interrupted_anywhere_says_aborted_only_of_what_is_not_there(memory: Place) -> None:
    ns = memory.orders()

    def commit(txn: Any, number: int) -> None:
        with contextlib.suppress(StopIteration), txn:
            txn.produce("orders", rows(number))
            txn.commit_async()
            raise StopIteration  # whatever ends the block, while the commit is under way

    states: set[str] = set()
    for number in itertools.count():
        txn = ns.begin()
        going_on = interrupted(partial(commit, txn, number), (_base, *CALLING, transaction), number + 1)
        told_state = txn.state
        (other,) = run_threads(partial(ns.produce, "orders", rows(1_000 + number)), seconds=20)
        assert not isinstance(other, BaseException), other
        states.add(told_state)
        told = {} if told_state == "ABORTED" else txn.commit().offsets  # none where it was interrupted before produce()
        assert (number in read(ns)) == bool(told), (number, told_state)
        if not going_on:
            break
    assert number > 20, "places"
    assert "ABORTED" in states
    assert_whole(ns, memory)


@pytest.mark.clause("P-203")
@pytest.mark.parametrize("call", ["flush", "commit", "prepare"])
@pytest.mark.parametrize("big", [False, True])
def test_an_end_that_is_interrupted_anywhere_and_repeated_doubles_nothing(
    memory: Place, monkeypatch: pytest.MonkeyPatch, call: str, big: bool
) -> None:
    if big:
        monkeypatch.setattr(work, "SMALL_PRODUCE_BYTES", 1)
    ns = memory.orders()
    for number in itertools.count():
        txn = begun(ns, number)
        going_on = interrupted(getattr(txn, call), (transaction, *CALLING), number + 1)
        getattr(txn, call)()
        if call == "prepare":
            ns.complete(str(txn.id), commit=True)
        else:
            txn.commit()
        if not going_on:
            break
    assert number > 10, "places"
    assert read(memory.open(mode="r")) == list(range(number + 1))


def test_the_rows_of_a_call_that_is_interrupted_anywhere_are_there_whole_or_not_at_all(memory: Place) -> None:
    ns = memory.open()
    ns.create_topic("orders", SCHEMA, partitions=4, key="id")
    found = set()
    for number in itertools.count():
        batch_ids = range(1_000 * number, 1_000 * number + 40)
        batch = rows(*batch_ids)
        txn = ns.begin()
        going_on = interrupted(partial(txn.produce, "orders", batch), (transaction, work), number + 1)
        txn.commit()
        found.add(len(set(batch_ids) & set(read(ns))))
        if not going_on:
            break
    assert number > 5, "places"
    assert found == {0, 40}


@pytest.mark.clause("P-55", "P-65")
@pytest.mark.parametrize("then", ["abort", "commit", "commit past the deadline"])
def test_after_a_commit_that_is_interrupted_anywhere_the_end_that_is_reported_is_true(
    memory: Place, clock: ManualClock, then: str
) -> None:
    ns = memory.orders(clock=clock)
    ends = set()
    for number in itertools.count():
        txn = begun(ns, number, timeout_ms=1_000)
        going_on = interrupted(txn.commit, (*CONNECTION, transaction, *CALLING), number + 1)
        if then == "commit past the deadline":
            clock.advance(5_000)
        with contextlib.suppress(InvalidTransactionState if then == "abort" else TransactionTimedOut):
            getattr(txn, then.split(maxsplit=1)[0])()
        ends.add(txn.state)
        assert (number in read(ns)) == (txn.state == "COMMITTED"), number
        if not going_on:
            break
    assert number > 10, "places"
    assert ends == ({"COMMITTED"} if then == "commit" else {"ABORTED", "COMMITTED"})


@pytest.mark.clause("P-209", "P-215")
@pytest.mark.parametrize("refused", [False, True])
def test_an_abort_that_is_interrupted_anywhere_gives_its_messages_back(
    memory: Place, clock: ManualClock, refused: bool
) -> None:
    """Its own, or that of a commit which the log refuses."""
    for place in itertools.count(1):
        ns, other = (memory.open(f"ns{place}", clock=clock) for _ in range(2))
        ns.create_topic("orders", SCHEMA)
        ns.produce("orders", rows(0, 1, 2))
        consumer = ns.consumer("orders", "billing")
        txn = holding(ns, consumer.receive(timeout_ms=0), cumulative=True)
        if refused:
            txn.flush()
            other.abort(txn.id)

        def end(txn: Any = txn) -> None:
            with contextlib.suppress(TransactionAborted):
                txn.commit() if refused else txn.abort()

        going_on = interrupted(end, (transaction, *CALLING), place)
        txn.abort()
        assert received(consumer) == [0, 1, 2], place
        if not going_on:
            break
    assert place > 10, "places"


@pytest.mark.clause("P-209", "P-215")
@pytest.mark.parametrize("kind", ["exclusive", "failover", "shared"])
def test_a_receive_that_is_interrupted_anywhere_has_received_nothing(memory: Place, kind: str) -> None:
    """Else a cumulative acknowledgement of what comes later takes messages that nobody saw."""
    for place in itertools.count(1):
        ns = memory.open(f"ns{place}")
        for topic, partition in itertools.product(("orders", "payments"), (0, 1)):
            ns.create_topic(topic, SCHEMA, partitions=2, if_not_exists=True)
            ns.produce(topic, rows(partition, partition + 2), partition=partition)
        consumer = ns.consumer(["orders", "payments"], "billing", type=kind)
        batches = [take(consumer, 3)]
        going_on = interrupted(
            partial(take, consumer, 3), (consumer_module, consumer_machine, messages, *CALLING), place
        )
        if not going_on:
            break
        while len(batch := take(consumer, 3)):
            batches.append(batch)
        found = sorted(position for batch in batches for position in batch.positions)
        assert found == sorted(itertools.product(("orders", "payments"), (0, 1), (0, 1))), place
        assert not any(count for batch in batches for count in batch.redelivery_counts), place
    assert place > 5, "places"


def interrupted_while_reading(consumer: Any, end: threading.Event) -> None:
    """Ctrl-C comes while the store is asked for the messages of a receive, and does not answer before ``end``."""
    item = consumer._subscribed[0]
    read = item._read

    def slow(wanted: Any) -> Any:
        item._read = read
        interrupt_main_thread()
        end.wait(60)
        return read(wanted)

    item._read = slow
    with hearing_interrupts(), pytest.raises(KeyboardInterrupt):
        consumer.receive(timeout_ms=0)


@pytest.mark.clause("P-215")
def test_a_receive_that_is_interrupted_while_it_reads_delivers_nothing(memory: Place) -> None:
    """Also where the read is awaited to its end: the caller is gone by then."""
    ns = memory.orders(0, 1)
    consumer: Any = ns.consumer("orders", "billing")
    runtime, end = ns._connection.runtime, threading.Event()
    read, runtime.read = runtime.read, runtime.job
    interrupted_while_reading(consumer, end)
    runtime.read = read
    end.set()
    assert received(consumer) == [0, 1]


@pytest.mark.parametrize("kind", ["exclusive", "shared"])
def test_after_an_interrupt_nobody_waits_for_a_store_that_does_not_answer(memory: Place, kind: str) -> None:
    """The calls that follow, such as the end of a ``with`` block, go on at once."""
    consumer: Any = memory.orders(0, 1).consumer("orders", "billing", type=kind)
    end = threading.Event()
    interrupted_while_reading(consumer, end)
    try:
        assert run_threads(lambda: received(consumer)) == [[0, 1]]
        assert run_threads(consumer.close) == [None]
    finally:
        end.set()


@pytest.mark.clause("P-208", "P-209")
def test_an_interrupted_acknowledgement_comes_before_what_its_caller_does_next(memory: Place) -> None:
    """It is in the engine's inbox when Ctrl-C comes: a redelivery behind it does not overtake it."""
    ns = memory.orders(0)
    consumer = ns.consumer("orders", "billing")
    messages, txn = take(consumer, 1), ns.begin()
    engine = ns._connection.runtime.engine
    held, going = threading.Event(), threading.Event()

    def hold() -> None:
        going.set()
        held.wait(60)

    engine.step(hold)
    assert going.wait(60)
    interrupt = threading.Timer(0.1, interrupt_main_thread)
    interrupt.start()
    with hearing_interrupts(), pytest.raises(KeyboardInterrupt):
        txn.acknowledge(messages)
    threading.Timer(0.1, held.set).start()
    consumer.redeliver_unacknowledged()
    found = received(consumer)
    txn.commit()
    assert (found, cursor(ns).cursor) in [([0], 0), ([], 1)]


@pytest.mark.parametrize("how", ["plain", "in a transaction", "of another handle"])
def test_an_acknowledgement_that_is_interrupted_anywhere_keeps_no_lock(memory: Place, how: str) -> None:
    """Also where the traceback is kept, as a notebook keeps that of its last cell."""
    ns, other = memory.open(), memory.open()
    ns.create_topic("orders", SCHEMA)
    ns.produce("orders", rows(1))
    kept: list[BaseException] = []

    def call() -> None:
        try:
            (consumer if how == "plain" else txn).acknowledge(messages)
        except KeyboardInterrupt as interrupt:
            kept.append(interrupt)
            raise

    for place in range(1, 1_000):
        consumer = ns.consumer("orders", f"s{place}")
        messages = consumer.receive(timeout_ms=0)
        txn = (other if how == "of another handle" else ns).begin()
        files = (contextlib, *CONNECTION, *CALLING, acknowledgement_conflicts, ledger, transaction)
        again = interrupted(call, files, place)
        for handle in (ns, other):
            assert run_threads(handle._connection.follower.refresh) == [handle._connection.follower.version]
        if not again:
            break
        txn.abort()
    assert place > 15, place
    assert len(kept) == place - 1


@pytest.mark.clause("P-208", "P-209")
def test_what_an_interrupted_acknowledgement_has_in_its_transaction_is_held(memory: Place) -> None:
    """Who catches Ctrl-C may commit that transaction yet: nobody is handed the message meanwhile."""
    ns = memory.orders(1)
    taken = 0
    for place in range(1, 1_000):
        consumer = ns.consumer("orders", f"s{place}")
        messages = consumer.receive(timeout_ms=0)
        txn = ns.begin()
        again = interrupted(
            partial(txn.acknowledge, messages),
            (contextlib, *CONNECTION, *CALLING, acknowledgement_conflicts, ledger, transaction, work),
            place,
        )
        consumer.redeliver_unacknowledged()
        found = received(consumer)
        txn.commit()
        position = ns.subscription("orders", f"s{place}").cursors[0].cursor
        taken += position
        assert (found, position) in [([1], 0), ([], 0), ([], 1)], f"interrupted at the place {place}"
        if not again:
            break
    assert taken > 1


def test_what_rides_with_an_interrupted_acknowledgement_is_delivered(memory: Place) -> None:
    """A grant that was logged and not noted would be leased to a consumer that never hands it out."""
    for place in itertools.count(1):
        ns = memory.orders(*range(500), namespace=f"ns{place}", clock=ManualClock(START_MS))
        consumer = ns.consumer("orders", "billing", type="shared")
        got: list[int] = []
        for _ in range(2):
            messages = take(consumer, 100)
            got += ids(messages.table)
            consumer.acknowledge(messages)
        messages = take(consumer, 100)
        got += ids(messages.table)
        went_on = interrupted(partial(consumer.acknowledge, messages), CALLING, place)
        if not went_on:
            break
        consumer.acknowledge(messages)
        while len(messages := take(consumer, 100)):
            got += ids(messages.table)
            consumer.acknowledge(messages)
        assert got == list(range(500)), f"place {place}"
    assert place > 3, place
