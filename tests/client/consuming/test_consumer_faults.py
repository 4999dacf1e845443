"""Interleavings, lost answers and interrupts in which a message is lost, doubled or counted wrongly."""

from __future__ import annotations

import contextlib
import threading
from functools import partial
from typing import Any

import pytest

from tests.client.support import (
    SCHEMA,
    FaultyStore,
    Place,
    counts,
    cursor,
    ids,
    received,
    rows,
    run_threads,
    take,
    wait_for,
)
from txnlog.errors import OutcomeUnknown, RetriableError, StoreError, TransactionConflict, TxnLogError
from txnlog.testing import ManualClock

LEASE_MS = 10_000


def faulty_ten(memory: Place, **options: Any) -> tuple[Any, Any, FaultyStore]:
    ns, store = memory.faulty(**options)
    ns.create_topic("orders", SCHEMA)
    ns.produce("orders", rows(*range(10)))
    return ns, ns.consumer("orders", "billing"), store


def begin(call: Any) -> threading.Thread:
    thread = threading.Thread(target=call, daemon=True)
    thread.start()
    return thread


def queued(ns: Any, count: int) -> None:
    appender = ns._connection.appender
    wait_for(lambda: len(appender._queue) >= count)


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


def test_what_a_forgotten_transaction_was_refused_is_delivered_after_its_deadline(
    memory: Place, clock: ManualClock
) -> None:
    ns = memory.open(clock=clock)
    ns.create_topic("orders", SCHEMA)
    ns.produce("orders", rows(*range(10)))
    consumer = ns.consumer("orders", "billing")
    messages = take(consumer, 6)
    rival, forgotten = ns.begin(), ns.begin()
    rival.acknowledge(messages[[5]])
    forgotten.acknowledge(messages[:2])
    with contextlib.suppress(TransactionConflict):
        forgotten.acknowledge(messages[2:6])
    rival.commit()
    clock.advance(3_600_000)
    assert received(consumer, 5) == [0, 1, 2, 3, 4]


def test_nothing_that_a_forgotten_transaction_was_refused_is_taken_by_a_cumulative_one(
    memory: Place, clock: ManualClock
) -> None:
    ns = memory.open(clock=clock)
    ns.create_topic("orders", SCHEMA)
    ns.produce("orders", rows(*range(10)))
    consumer = ns.consumer("orders", "billing")
    messages = take(consumer, 6)
    rival, forgotten = ns.begin(), ns.begin()
    rival.acknowledge(messages[[5]])
    forgotten.acknowledge(messages[:2])
    with contextlib.suppress(TransactionConflict):
        forgotten.acknowledge(messages[2:6])
    rival.commit()
    clock.advance(3_600_000)
    seen: list[int] = [5]
    while len(batch := take(consumer)):
        seen += ids(batch.table)
        consumer.acknowledge(batch, cumulative=True)
    assert cursor(ns).cursor == 10
    assert sorted(seen) == list(range(10))


# --- a lost answer, and an end that others made, of a Shared subscription ---------------------------------------------


def shared(memory: Place, clock: ManualClock, count: int = 10, **options: Any) -> tuple[Any, FaultyStore]:
    ns, store = memory.faulty(clock=clock)
    ns.create_topic("orders", SCHEMA)
    ns.produce("orders", rows(*range(count)))
    ns.create_subscription("orders", "billing", type="shared", lease_ms=LEASE_MS, **options)
    return ns, store


def lost(store: FaultyStore, call: Any) -> None:
    """A call whose entry is in the log, and whose answer is lost."""

    def go_away() -> None:
        store.reads_forever = store.forever = "broken"

    store.script.extend([go_away, "broken-after"])
    with pytest.raises(OutcomeUnknown):
        call()
    store.heal()


@pytest.mark.parametrize("end", ["abort", "commit"])
def test_a_late_end_does_not_release_what_was_delivered_again_meanwhile(
    memory: Place, clock: ManualClock, end: str
) -> None:
    """The answer to the acknowledgement is lost; the transaction times out, and others end it."""
    ns, store = shared(memory, clock, 1, max_redeliveries=1, dead_letter_topic="dead")
    other = memory.open(clock=clock)
    consumer = ns.consumer("orders", "billing")
    txn = ns.begin(timeout_ms=1_000)
    messages = take(consumer)
    lost(store, lambda: txn.acknowledge(messages))
    clock.advance(7_000)
    other.abort(txn.id)
    again = take(consumer)
    assert counts(again) == {0: 1}
    with contextlib.suppress(TxnLogError):
        txn.abort() if end == "abort" else txn.commit()
    two = other.consumer("orders", "billing")
    assert received(two) == [], "it is in the hands of the first consumer"
    assert other.snapshot().read("dead").num_rows == 0, "and healthy"
    consumer.acknowledge(again)


def test_an_abort_that_is_repeated_does_not_release_what_was_delivered_again_meanwhile(
    memory: Place, clock: ManualClock
) -> None:
    """The answers to an acknowledgement and to the abort are lost; abort() again, as the error says."""
    ns, store = shared(memory, clock, 1, max_redeliveries=1, dead_letter_topic="dead")
    other = memory.open(clock=clock)
    consumer = ns.consumer("orders", "billing")
    txn = ns.begin()
    messages = take(consumer)
    lost(store, lambda: txn.acknowledge(messages))
    ns.create_topic("passing", SCHEMA)  # the store answers again
    lost(store, txn.abort)
    ns.snapshot()
    again = take(consumer)
    assert counts(again) == {0: 1}
    txn.abort()
    two = other.consumer("orders", "billing")
    assert received(two) == [], "it is in the hands of the first consumer"
    assert other.snapshot().read("dead").num_rows == 0, "and healthy"
    consumer.acknowledge(again)


# --- grants whose call did not return ---------------------------------------------------------------------------------


@pytest.mark.parametrize("word", ["killed", "unknown"])
def test_what_a_call_that_failed_had_leased_is_released_by_close(memory: Place, clock: ManualClock, word: str) -> None:
    """Ctrl-C in receive(), or a lost answer; then the consumer is closed, as a with block does."""
    ns, store = shared(memory, clock, 4, max_redeliveries=0, dead_letter_topic="dead")
    other = memory.open(clock=clock)
    consumer = ns.consumer("orders", "billing")
    if word == "killed":
        store.script.append("killed")
        with pytest.raises(KeyboardInterrupt):
            take(consumer)
    else:
        lost(store, lambda: take(consumer))
    ns.snapshot()
    consumer.close()
    two = other.consumer("orders", "billing")
    clock.advance(LEASE_MS + 1)
    found = take(two)
    assert ids(found.table) == [0, 1, 2, 3], f"dead: {other.snapshot().read('dead').num_rows}"
    assert found.redelivery_counts == [0] * 4


# --- what was leased ahead --------------------------------------------------------------------------------------------


def with_a_ride(ns: Any, most: int = 100) -> tuple[Any, Any]:
    """A consumer that has taken three full batches, whose next batch rides in its next entry, and the last batch."""
    consumer = ns.consumer("orders", "billing")
    for _ in range(2):
        consumer.acknowledge(take(consumer, most))
    return consumer, take(consumer, most)


def test_a_seek_releases_what_was_leased_ahead_in_the_other_partitions(memory: Place, clock: ManualClock) -> None:
    ns = memory.open(clock=clock)
    ns.create_topic("orders", SCHEMA, partitions=2)
    for partition in range(2):
        ns.produce("orders", rows(*range(1_000)), partition=partition)
    ns.create_subscription(
        "orders", "billing", type="shared", lease_ms=LEASE_MS, max_redeliveries=0, dead_letter_topic="dead"
    )
    consumer, last = with_a_ride(ns)
    consumer.acknowledge(last)
    ns.snapshot()
    ahead = [p for p in range(2) if ns.subscription("orders", "billing").cursors[p].leased]
    assert ahead, "a batch was leased ahead"
    consumer.seek({1 - ahead[0]: 0})
    clock.advance(LEASE_MS + 1)
    other = memory.open(clock=clock).consumer("orders", "billing")
    while len(take(other)):
        pass
    assert ns.snapshot().read("dead").num_rows == 0


def test_a_close_next_to_an_acknowledgement_releases_what_it_leases_ahead(memory: Place, clock: ManualClock) -> None:
    ns, store = shared(memory, clock, 1_000, max_redeliveries=0, dead_letter_topic="dead")
    consumer, last = with_a_ride(ns)
    threads: list[threading.Thread] = []

    def meanwhile() -> None:
        threads.append(begin(consumer.close))
        threads[0].join(0.5)

    store.script.append(meanwhile)
    consumer.acknowledge(last)
    threads[0].join(20)
    clock.advance(LEASE_MS + 1)
    other = memory.open(clock=clock).consumer("orders", "billing")
    while len(take(other)):
        pass
    assert ns.snapshot().read("dead").num_rows == 0


def test_a_release_does_not_leave_leased_what_rides_in_its_own_entry(
    memory: Place, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A batch was leased ahead, and received in parts; then the store fails a read for a moment."""
    ns, _store = shared(memory, clock, 3_000, max_redeliveries=0, dead_letter_topic="dead")
    consumer, last = with_a_ride(ns, 300)
    consumer.acknowledge(last)  # 300 more are leased ahead
    part = take(consumer, 100)
    item = consumer._subscribed[0]

    def fail(_wanted: object) -> object:
        raise StoreError("read timed out")

    monkeypatch.setattr(item, "_read", fail)
    with pytest.raises(StoreError):
        take(consumer, 100)
    monkeypatch.undo()
    seen = set(ids(part.table))
    consumer.acknowledge(part)
    while len(batch := take(consumer)):
        seen |= set(ids(batch.table))
        consumer.acknowledge(batch)
    missing = sorted(set(range(900, 3_000)) - seen)
    assert not missing, f"{len(missing)} messages are leased to a consumer that does not deliver them"


# --- a transaction of another handle, which others ended --------------------------------------------------------------


def test_what_was_delivered_again_is_not_claimed_anew_by_a_transaction_that_others_ended(memory: Place) -> None:
    """Its owner does not know of that end yet, and acknowledges one more message."""
    ns, other, admin = memory.open(), memory.open(), memory.open()
    ns.create_topic("orders", SCHEMA)
    ns.produce("orders", rows(*range(4)))
    consumer = ns.consumer("orders", "billing")
    messages = take(consumer)
    other.snapshot()
    txn = other.begin()
    txn.acknowledge(messages[:2])
    txn.flush()
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
    txn = other.begin()
    txn.acknowledge(messages[:2])
    admin.abort(txn.id, by="ada", why="hanging")
    again = take(consumer)
    assert ids(again.table) == [0, 1]
    with contextlib.suppress(TxnLogError):
        txn.acknowledge(messages[2])
    consumer.negative_acknowledge(again)
    assert set(received(admin.consumer("orders", "billing"))) >= {0, 1}


# --- Ctrl-C twice -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("word", ["refused", "interrupt"])
def test_an_acknowledgement_that_is_interrupted_claims_nothing_for_ever(
    memory: Place, clock: ManualClock, monkeypatch: pytest.MonkeyPatch, word: str
) -> None:
    """Its entry fails, or Ctrl-C comes; and Ctrl-C comes (again) behind that."""
    from txnlog.client.ledger import Ledger

    _, consumer, store = faulty_ten(memory, clock=clock)
    messages = take(consumer, 4)

    def interrupted(*_: Any) -> None:
        monkeypatch.undo()
        raise KeyboardInterrupt

    def stop() -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(Ledger, "restore", interrupted)
    store.script.append("refused" if word == "refused" else stop)
    with pytest.raises(KeyboardInterrupt):
        consumer.acknowledge(messages)
    store.heal()
    consumer.redeliver_unacknowledged()
    clock.advance(7 * 86_400_000)
    assert received(consumer) == list(range(10))


# --- an acknowledgement that may be made again, in transact -----------------------------------------------------------


def test_transact_loses_no_message_where_an_acknowledgement_could_not_be_made(
    memory: Place, clock: ManualClock
) -> None:
    """A thread's transaction hangs; the store is away for a moment; transact runs its function again."""
    ns, consumer, store = faulty_ten(memory, clock=clock)
    ns.create_topic("audit", SCHEMA)
    hanging = ns.begin(timeout_ms=1_000)
    hanging.acknowledge(take(consumer, 2))
    hanging.flush()
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


# --- an interrupted acknowledgement of a Shared subscription ----------------------------------------------------------


def test_an_acknowledgement_that_is_interrupted_anywhere_leaves_no_lease_that_nobody_can_release(
    memory: Place, clock: ManualClock
) -> None:
    """Ctrl-C in txn.acknowledge(), the block aborts the transaction, and all is redelivered."""
    import itertools

    from tests.interrupts import interrupted
    from txnlog.api import messages as messages_module
    from txnlog.api import transaction
    from txnlog.client import acknowledgement_conflicts, connection, session_owner, transaction_buffer

    ns = memory.open(clock=clock)
    other = memory.open(clock=clock)
    ns.create_topic("orders", SCHEMA)
    ns.produce("orders", rows(0))
    ns.create_subscription("orders", "billing", type="shared", lease_ms=LEASE_MS)
    consumer = ns.consumer("orders", "billing")
    client_modules = (transaction_buffer, connection, session_owner, acknowledgement_conflicts)
    modules = (transaction, messages_module, *client_modules)
    stuck: list[int] = []
    for place in itertools.count(1):
        messages = take(consumer)
        assert ids(messages.table) == [0]
        going_on = False
        try:
            with ns.begin() as txn:
                going_on = interrupted(partial(txn.acknowledge, messages), modules, place)
                raise KeyboardInterrupt
        except KeyboardInterrupt:
            consumer.redeliver_unacknowledged()
        with other.consumer("orders", "billing") as two:
            if received(two) != [0]:
                stuck.append(place)
                clock.advance(LEASE_MS + 1)
        if not going_on:
            break
    assert place > 20, "places"
    assert not stuck, f"of {place} places at these the message waits for the end of its lease: {stuck}"


@pytest.mark.parametrize("how", ["admin", "fenced"])
def test_what_a_transaction_was_refused_that_others_ended_is_delivered(memory: Place, how: str) -> None:
    """Its owner, or an administrator, ends it by its TxnID; or its producer's next run fences it."""
    ns = memory.open()
    ns.create_topic("orders", SCHEMA)
    ns.produce("orders", rows(*range(10)))
    consumer = ns.consumer("orders", "billing")
    messages = take(consumer, 6)
    producer = ns.producer("loader")
    rival, txn = ns.begin(), producer.begin()
    rival.acknowledge(messages[[5]])
    txn.acknowledge(messages[:2])
    txn.flush()
    with contextlib.suppress(TransactionConflict):
        txn.acknowledge(messages[2:6])
    rival.commit()
    if how == "admin":
        ns.abort(txn.id)
    else:
        ns.producer("loader")
    assert received(consumer, 5) == [0, 1, 2, 3, 4]


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
    ns = memory.open()
    ns.create_topic("orders", SCHEMA)
    ns.produce("orders", rows(*range(4)))
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
    """SIGTERM comes while the main thread is within a transition of the ledger; its handler ends the transaction."""
    import sys

    from txnlog.client import ledger as module

    ns = memory.open()
    ns.create_topic("orders", SCHEMA)
    ns.produce("orders", rows(*range(4)))
    consumer = ns.consumer("orders", "billing")
    txn = ns.begin()
    txn.acknowledge(take(consumer, 2))
    ledger = consumer._subscribed[0].ledger
    lock = ledger._lock
    waits: list[str] = []

    class Watched:
        def __enter__(self) -> None:
            if not lock.acquire(timeout=2):
                waits.append("for ever")
                raise AssertionError("the main thread waits for itself")

        def __exit__(self, *_: object) -> None:
            lock.release()

    ledger._lock = Watched()
    done: list[bool] = []

    def profile(frame: Any, event: str, _: object) -> None:
        if (
            not done
            and event == "call"
            and frame.f_code.co_name == "_with"
            and frame.f_code.co_filename == module.__file__
        ):
            done.append(True)
            sys.setprofile(None)
            with contextlib.suppress(AssertionError):
                txn.abort()

    sys.setprofile(profile)
    try:
        take(consumer, 2)
    finally:
        sys.setprofile(None)
    assert done
    assert not waits


# --- the same, where messages were prefetched before ------------------------------------------------------------------


def test_a_grant_whose_answer_was_lost_is_delivered_though_its_messages_were_prefetched_before(
    memory: Place, clock: ManualClock
) -> None:
    """A call is interrupted behind its grant, its user pauses for longer than the lease, and an answer is lost."""
    ns, store = shared(memory, clock, 10)
    consumer = ns.consumer("orders", "billing")
    store.script.append("killed")
    with pytest.raises(KeyboardInterrupt):
        take(consumer)
    clock.advance(LEASE_MS + 1)
    assert received(consumer, 2) == [0, 1]
    lost(store, partial(take, consumer, 2))
    seen = [0, 1]
    while found := received(consumer, 2):
        seen += found
    assert sorted(seen) == list(range(10)), "the others are leased to this consumer, which does not deliver them"


def test_the_same_where_a_batch_was_leased_ahead_and_received_in_parts(memory: Place, clock: ManualClock) -> None:
    ns, store = shared(memory, clock, 1_500)
    consumer, last = with_a_ride(ns, 300)
    consumer.acknowledge(last)  # 300 more are leased ahead
    clock.advance(LEASE_MS + 1)
    first = take(consumer, 100)
    lost(store, partial(take, consumer, 100))
    consumer.acknowledge(first)
    seen = ids(first.table)
    while found := received(consumer, 100):
        seen += found
    assert sorted(seen) == list(range(900, 1_500))


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
