"""Lost answers and interrupts of consumers of a Shared subscription: no lease stays that nobody can release."""

from __future__ import annotations

import contextlib
import threading
from functools import partial
from typing import Any

import pytest

from tests.client.shared import LEASE_MS, begin, shared
from tests.client.support import SCHEMA, FaultyStore, Place, counts, ids, received, rows, take
from txnlog import Consumer
from txnlog.errors import OutcomeUnknown, StoreError, TransactionConflict, TxnLogError
from txnlog.testing import ManualClock

# --- a lost answer, and an end that others made, of a Shared subscription ---------------------------------------------


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
    ns = memory.orders(partitions=2, clock=clock)
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


@pytest.fixture
def unanswered(memory: Place, clock: ManualClock, monkeypatch: pytest.MonkeyPatch) -> tuple[Any, Consumer]:
    """A handle and its consumer, whose release has no answer: the store failed a read before, and answers again."""
    ns, store = shared(memory, clock, 3, max_redeliveries=1, dead_letter_topic="dead")
    consumer = ns.consumer("orders", "billing")

    def fail(_wanted: object) -> object:
        store.reads_forever = store.forever = "broken"
        raise StoreError("read timed out")

    monkeypatch.setattr(consumer._subscribed[0], "_read", fail)
    with pytest.raises(StoreError):
        take(consumer)
    monkeypatch.undo()
    store.reads_forever = None
    with contextlib.suppress(TxnLogError):
        first = take(consumer)
        assert len(first) == 0, "its release may land behind it"
    store.heal()
    return ns, consumer


def test_what_a_release_of_unknown_outcome_may_release_yet_is_delivered_by_the_next_receive(
    unanswered: tuple[Any, Consumer],
) -> None:
    _, consumer = unanswered
    again = take(consumer)
    assert len(again) == 3, "the next receive releases them first, and has them leased again"
    assert set(counts(again).values()) == {0}, "nobody had them before"


def test_what_a_release_of_unknown_outcome_releases_behind_another_append_anybody_may_have(
    memory: Place, clock: ManualClock, unanswered: tuple[Any, Consumer]
) -> None:
    """Another consumer then has the messages, uncounted."""
    ns, _ = unanswered
    ns.produce("orders", rows(99))  # what was sent before is appended first
    other = take(memory.open(clock=clock).consumer("orders", "billing"))
    assert len(other) == 4
    assert set(counts(other).values()) == {0}, "nobody had them before"


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


# --- an interrupted acknowledgement of a Shared subscription ----------------------------------------------------------


def test_an_acknowledgement_that_is_interrupted_anywhere_leaves_no_lease_that_nobody_can_release(
    memory: Place, clock: ManualClock
) -> None:
    """Ctrl-C in txn.acknowledge(), the block aborts the transaction, and all is redelivered."""
    import itertools

    from tests.interrupts import interrupted
    from txnlog.api import messages as messages_module
    from txnlog.api import transaction
    from txnlog.client import acknowledgement_conflicts, connection, session_owner, transaction_work

    ns = memory.open(clock=clock)
    other = memory.open(clock=clock)
    ns.create_topic("orders", SCHEMA)
    ns.produce("orders", rows(0))
    ns.create_subscription("orders", "billing", type="shared", lease_ms=LEASE_MS)
    consumer = ns.consumer("orders", "billing")
    client_modules = (transaction_work, connection, session_owner, acknowledgement_conflicts)
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
    ns = memory.orders(*range(10))
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
