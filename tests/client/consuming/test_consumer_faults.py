"""Interleavings, lost answers and interrupts in which a message is lost or doubled."""

from __future__ import annotations

import contextlib
import threading
from functools import partial
from typing import Any

import pytest

from tests.client.shared import LEASE_MS, begin, shared
from tests.client.support import SCHEMA, FaultyStore, Place, cursor, holding, ids, received, rows, run_threads, take
from tests.interrupts import hearing_signal
from txnlog.errors import OutcomeUnknown, RetriableError, StoreError, TransactionConflict, TxnLogError
from txnlog.testing import ManualClock


def faulty_ten(memory: Place, **options: Any) -> tuple[Any, Any, FaultyStore]:
    ns, store = memory.faulty_orders(*range(10), **options)
    return ns, ns.consumer("orders", "billing"), store


# --- plain acknowledgements beside each other -------------------------------------------------------------------------


@pytest.mark.parametrize("how", ["negative_acknowledge", "redeliver_unacknowledged"])
def test_a_cumulative_one_does_not_take_what_was_released_next_to_another_one_that_fails(
    memory: Place, how: str
) -> None:
    """One thread acknowledges 0-4, and its entry is refused; one releases them; one acknowledges 5-9 cumulatively."""
    _ns, consumer, store = faulty_ten(memory)
    first, second = take(consumer, 5), take(consumer, 5)
    answers: list[object] = []
    threads: list[threading.Thread] = []

    def third() -> None:
        try:
            consumer.acknowledge(second, cumulative=True)
        except TxnLogError as error:
            answers.append(error)
        else:
            answers.append(None)

    def meanwhile() -> None:
        release = (
            partial(consumer.negative_acknowledge, first)
            if how == "negative_acknowledge"
            else consumer.redeliver_unacknowledged
        )
        assert run_threads(release) == [None]
        threads.append(begin(third))
        threads[0].join(0.5)

    store.script.extend([meanwhile, "refused"])
    with pytest.raises(StoreError):
        consumer.acknowledge(first)
    threads[0].join(20)
    again = received(consumer)
    assert set(range(5)) <= set(again), f"0-4 are neither acknowledged by their user nor delivered: {again}, {answers}"


# --- a transaction whose acknowledgement was refused, and that its owner forgot ---------------------------------------


def forgotten(ns: Any, clock: ManualClock) -> tuple[Any, Any]:
    """A consumer of ten messages; and a transaction that acknowledged two, was refused four, behind its deadline."""
    ns.produce("orders", rows(*range(10)))
    consumer = ns.consumer("orders", "billing")
    messages = take(consumer, 6)
    rival, txn = ns.begin(), ns.begin()
    rival.acknowledge(messages[[5]])
    txn.acknowledge(messages[:2])
    with contextlib.suppress(TransactionConflict):
        txn.acknowledge(messages[2:6])
    rival.commit()
    clock.advance(3_600_000)
    return consumer, txn


def test_what_a_forgotten_transaction_was_refused_is_delivered_after_its_deadline(
    lake: Any, clock: ManualClock
) -> None:
    consumer, _txn = forgotten(lake, clock)
    assert received(consumer, 5) == [0, 1, 2, 3, 4]


def test_nothing_that_a_forgotten_transaction_was_refused_is_taken_by_a_cumulative_one(
    lake: Any, clock: ManualClock
) -> None:
    consumer, _txn = forgotten(lake, clock)
    seen: list[int] = [5]
    while len(batch := take(consumer)):
        seen += ids(batch.table)
        consumer.acknowledge(batch, cumulative=True)
    assert cursor(lake).cursor == 10
    assert sorted(seen) == list(range(10))


# --- a transaction of another handle, which others ended --------------------------------------------------------------


def test_what_was_delivered_again_is_not_claimed_anew_by_a_transaction_that_others_ended(memory: Place) -> None:
    """Its owner does not know of that end yet, and acknowledges one more message."""
    ns, other, admin = memory.open(), memory.open(), memory.open()
    ns.create_topic("orders", SCHEMA)
    ns.produce("orders", rows(*range(4)))
    consumer = ns.consumer("orders", "billing")
    messages = take(consumer)
    other.snapshot()
    txn = holding(other, messages[:2], flush=True)
    admin.abort(txn.id, by="ada", why="hanging")
    assert received(consumer) == [0, 1]
    with contextlib.suppress(TxnLogError):
        txn.acknowledge(messages[2])
        txn.commit()
    assert [number for number in received(consumer) if number < 2] == [], "they are in the hands of the user"


def test_what_was_delivered_again_can_be_released_after_a_transaction_that_others_ended(
    memory: Place, clock: ManualClock
) -> None:
    """The same on a Shared subscription: the release of what a thread holds has no effect."""
    ns, other, admin = memory.open(clock=clock), memory.open(clock=clock), memory.open(clock=clock)
    ns.create_topic("orders", SCHEMA)
    ns.produce("orders", rows(*range(4)))
    ns.create_subscription("orders", "billing", type="shared", lease_ms=LEASE_MS)
    consumer = ns.consumer("orders", "billing")
    messages = take(consumer)
    other.snapshot()
    txn = holding(other, messages[:2])
    admin.abort(txn.id, by="ada", why="hanging")
    again = take(consumer)
    assert ids(again.table) == [0, 1]
    with contextlib.suppress(TxnLogError):
        txn.acknowledge(messages[2])
    consumer.negative_acknowledge(again)
    assert set(received(admin.consumer("orders", "billing"))) >= {0, 1}


# --- an acknowledgement that may be made again, in transact -----------------------------------------------------------


def test_transact_loses_no_message_where_an_acknowledgement_could_not_be_made(
    memory: Place, clock: ManualClock
) -> None:
    """A thread's transaction hangs; the store is away for a moment; transact runs its function again."""
    ns, consumer, store = faulty_ten(memory, clock=clock)
    ns.create_topic("audit", SCHEMA)
    _hanging = holding(ns, take(consumer, 2), flush=True, timeout_ms=1_000)
    attempts: list[list[int]] = []

    def away() -> None:
        store.reads_forever = store.forever = "broken"

    def work(txn: Any) -> None:
        messages = take(consumer, 3)
        attempts.append(ids(messages.table))
        txn.produce("audit", messages.table.select(["id", "name"]))
        if len(attempts) == 1:
            clock.advance(60_000)
            store.script.extend([away, "dropped"])
            with contextlib.suppress(OutcomeUnknown):
                ns.create_topic("other", SCHEMA)  # by another thread
            store.reads_forever = None
        try:
            txn.acknowledge(messages, cumulative=True)
        finally:
            store.heal()

    while len(attempts) < 12 and cursor(ns).cursor < 10:
        with contextlib.suppress(RetriableError, TransactionConflict):
            ns.transact(work)
    derived = set(ns.snapshot().read("audit").column("id").to_pylist())
    assert cursor(ns).cursor == 10
    assert derived == set(range(10)), attempts


# --- what an error says of durability ---------------------------------------------------------------------------------


@pytest.mark.parametrize("topics", [1, 2])
def test_an_error_behind_dead_letters_that_were_moved_does_not_say_that_nothing_was_written(
    memory: Place, clock: ManualClock, topics: int
) -> None:
    """The call moved a message to the dead letters; then the store has no space for the next lease."""
    ns, store = shared(memory, clock, 1, max_redeliveries=0, dead_letter_topic="dead")
    names = ["orders", "more"][:topics]
    if topics == 2:
        ns.create_topic("more", SCHEMA)
        ns.create_subscription("more", "billing", type="shared", lease_ms=LEASE_MS)
    consumer = ns.consumer(names, "billing")
    consumer.negative_acknowledge(consumer.receive(1, timeout_ms=0))
    if topics == 2:
        ns.produce("more", rows(5))
        assert received(consumer) == [5]  # it is the turn of the first topic again
    ns.produce(names[-1], rows(1))
    store.script.extend(["ok", "refused"])
    before = ns.snapshot().version
    with pytest.raises(StoreError) as caught:
        take(consumer)
    assert memory.open(mode="r").snapshot().read("dead").num_rows == 1
    assert ns.snapshot().version > before
    assert "nothing was written" not in str(caught.value)


# --- what the advice of a refusal says --------------------------------------------------------------------------------


def test_what_is_received_first_as_the_refusal_advises_is_not_delivered_twice(memory: Place) -> None:
    """A cumulative acknowledgement would take 1, which was released: "receive it first", says the error."""
    ns = memory.orders(*range(4))
    consumer = ns.consumer("orders", "billing")
    messages = take(consumer)
    consumer.negative_acknowledge(messages[1])
    txn = ns.begin()
    with pytest.raises(TransactionConflict, match="receive it first"):
        txn.acknowledge(messages[2:], cumulative=True)
    assert received(consumer) == [1]
    txn.abort()
    assert 1 not in received(consumer), "it is in the hands of the user"


# --- a signal's handler -----------------------------------------------------------------------------------------------


def test_a_handler_of_a_signal_that_aborts_does_not_wait_for_the_call_that_it_interrupted(memory: Place) -> None:
    """SIGTERM comes while the main thread receives; its handler ends the transaction, and the call goes on."""
    ns = memory.orders(*range(4))
    consumer = ns.consumer("orders", "billing")
    txn = holding(ns, take(consumer, 2))
    item = consumer._subscribed[0]
    read, aborted = item._read, threading.Event()

    def handle(_number: int, _frame: object) -> None:
        txn.abort()
        aborted.set()

    def while_reading(wanted: Any) -> Any:
        item._read = read
        send()
        assert aborted.wait(30)
        return read(wanted)

    item._read = while_reading
    with hearing_signal(handle) as send:
        assert ids(take(consumer, 2).table) == [2, 3]
    assert txn.state == "ABORTED"
    assert received(consumer) == [0, 1]


# --- no conflict ------------------------------------------------------------------------------------------------------


def test_a_transaction_goes_on_behind_a_plain_acknowledgement_of_other_messages(memory: Place) -> None:
    """Thread 1 acknowledges 0-4 cumulatively, its entry is under way; the transaction of thread 2 takes 5-9."""
    ns, consumer, store = faulty_ten(memory)
    first, second = take(consumer, 5), take(consumer, 5)
    txn = ns.begin()
    answers: list[object] = []
    store.script.append(lambda: answers.extend(run_threads(partial(txn.acknowledge, second, cumulative=True))))
    consumer.acknowledge(first, cumulative=True)
    assert answers == [None]
    txn.commit()
    assert cursor(ns).cursor == 10
