"""``ns.transact``: what runs again, what does not, and that no outcome is guessed in between."""

from __future__ import annotations

import asyncio
import itertools
from functools import partial
from typing import Any

import pytest

from tests.client.support import FaultyStore, Place, Unchanged, close_blocks, committed, ids, raises, read, rows
from txnlog.errors import (
    ConsumerBusy,
    ConsumerFenced,
    CoordinatorFenced,
    CorruptionError,
    Durable,
    InvalidInputError,
    InvalidTransactionState,
    OutcomeUnknown,
    OutOfOrderSequence,
    ProducerFenced,
    RetriableError,
    SchemaMismatch,
    StoreError,
    TransactionAborted,
    TransactionConflict,
    TransactionTimedOut,
    TxnLogError,
    UnsafeStore,
)
from txnlog.testing import ManualClock

AGAIN = (
    TransactionConflict,
    TransactionAborted,
    TransactionTimedOut,
    OutOfOrderSequence,
    RetriableError,
    ConsumerBusy,
    CoordinatorFenced,
)
NEVER = (
    ProducerFenced,
    ConsumerFenced,
    InvalidInputError,
    InvalidTransactionState,
    StoreError,
    UnsafeStore,
    CorruptionError,
    OutcomeUnknown,
    SchemaMismatch,
    ValueError,
    ZeroDivisionError,
    KeyboardInterrupt,
)


def failing(error: BaseException, times: int) -> tuple[Any, list[Any]]:
    """Work that produces a row and fails so many times; the transactions that it was given."""
    seen: list[Any] = []

    def work(txn: Any) -> int:
        seen.append(txn)
        txn.produce("orders", rows(len(seen)))
        if len(seen) <= times:
            raise error
        return len(seen)

    return work, seen


@pytest.mark.parametrize("kind", AGAIN)
def test_what_may_go_better_runs_again_in_a_new_transaction(sales: Any, kind: type[TxnLogError]) -> None:
    work, seen = failing(kind("x"), 2)
    assert sales.transact(work) == 3
    assert len({txn.id for txn in seen}) == 3
    assert [txn.state for txn in seen] == ["ABORTED", "ABORTED", "COMMITTED"]
    assert read(sales) == [3]


def test_a_function_that_would_have_to_be_awaited_is_refused(sales: Any, memory: Place) -> None:
    """It would not have run yet when the transaction is committed."""

    async def work(txn: Any) -> None:
        txn.produce("orders", rows(1))

    with Unchanged(memory):
        for given in (work, partial(work), lambda txn: [work(txn)][0]):
            with raises(InvalidInputError, match="nobody would await it"):
                sales.transact(given)


@pytest.mark.parametrize("kind", NEVER)
def test_what_the_next_attempt_cannot_fix_is_raised(sales: Any, memory: Place, kind: type[BaseException]) -> None:
    """What else the function did, and whose outcome is unknown, would be done twice."""
    error = kind("x", txn_ids=("f" * 32,)) if kind is OutcomeUnknown else kind("x")
    work, seen = failing(error, 1)
    with Unchanged(memory), pytest.raises(kind) as caught:
        sales.transact(work)
    assert caught.value is error
    assert [txn.state for txn in seen] == ["ABORTED"]


def test_attempts_and_pauses_are_bounded(sales: Any) -> None:
    work, seen = failing(TransactionConflict("x"), 1_000)
    sales._connection.runtime.slept_ms.clear()
    with raises(TransactionConflict):
        sales.transact(work, attempts=20)
    pauses = sales._connection.runtime.slept_ms
    assert (len(seen), len(pauses)) == (20, 19), "none behind the last"
    for number, pause in enumerate(pauses):
        most = min(20 * 2**number, 5_000)
        assert most / 2 <= pause <= most
    assert len(set(pauses)) == len(pauses), "two who lost to each other do not meet again"
    assert read(sales) == []


@pytest.mark.parametrize("wrong", [0, -1, 1_001, "2", 1.5, True, None])
def test_attempts_that_make_no_sense_are_refused(sales: Any, memory: Place, wrong: Any) -> None:
    with Unchanged(memory), raises(InvalidInputError, match="attempts"):
        sales.transact(lambda txn: txn.produce("orders", rows(1)), attempts=wrong)


def test_options_are_those_of_begin_and_no_others(sales: Any) -> None:
    for option in ("number", "producer", "timed_from_log"):
        with pytest.raises(TypeError, match=option):
            sales.transact(lambda txn: txn.produce("orders", rows(1)), **{option: 1})
    assert read(sales) == []


@pytest.mark.parametrize("kind", ["exclusive", "failover", "shared"])
@pytest.mark.parametrize("acknowledged", ["all", "a part", "none"])
@pytest.mark.parametrize("error", [TransactionConflict, RetriableError, ZeroDivisionError])
def test_messages_of_a_lost_attempt_are_there_for_the_next(
    sales: Any, kind: str, acknowledged: str, error: type[Exception]
) -> None:
    """Else a later cumulative acknowledgement takes those that the function had not come to acknowledge."""
    sales.produce("orders", rows(1, 2))
    consumer = sales.consumer("orders", "billing", type=kind)
    received: list[list[int]] = []

    def work(txn: Any) -> None:
        messages = consumer.receive(timeout_ms=0)
        received.append(ids(messages.table))
        if len(received) == 1:
            if acknowledged != "none":
                txn.acknowledge(messages if acknowledged == "all" else messages[0])
            raise error("x")
        txn.acknowledge(messages)

    if error is ZeroDivisionError:
        with pytest.raises(ZeroDivisionError):
            sales.transact(work)
    sales.transact(work)
    assert received == [[1, 2], [1, 2]]
    assert sales.subscription("orders", "billing").cursors[0].cursor == 2


def test_what_an_attempt_that_committed_received_stays_delivered(sales: Any) -> None:
    sales.produce("orders", rows(1, 2))
    consumer = sales.consumer("orders", "billing")

    def work(txn: Any) -> None:
        txn.acknowledge(consumer.receive(timeout_ms=0)[0])

    sales.transact(work)
    assert ids(consumer.receive(timeout_ms=0).table) == []
    consumer.redeliver_unacknowledged()
    assert ids(consumer.receive(timeout_ms=0).table) == [2]


def test_an_attempt_whose_block_was_closed_goes_on_with_another(memory: Place, sales: Any) -> None:
    sales.begin()
    rival = memory.open()
    closed = itertools.count()

    def work(txn: Any) -> None:
        txn.produce("orders", rows(1))
        if next(closed) == 0:
            close_blocks(rival, sales._connection.appender.writer)

    sales.transact(work)
    assert (next(closed), read(sales)) == (2, [1])


# --- doubt ----------------------------------------------------------------------------------------------------------


@pytest.fixture
def faulty(memory: Place) -> tuple[Any, FaultyStore]:
    """A namespace whose store misbehaves when told; the handle gives up after one put."""
    ns, store = memory.faulty_orders()
    ns.begin()
    ns._connection.appender.create_attempts = 1
    return ns, store


@pytest.mark.clause("P-118")
@pytest.mark.parametrize("fate", ["dropped", "broken", "late", "lost"])
def test_transact_resolves_an_unknown_outcome_before_it_repeats_work(memory: Place, fate: str) -> None:
    ns, store = memory.faulty_orders()
    ns._connection.appender.create_attempts = 3
    ns.begin()
    store.script.extend([fate] * 7)
    store.reads.extend(["broken"] * 6)
    tries: list[int] = []

    def work(txn: Any) -> int:
        tries.append(1)
        txn.produce("orders", rows(len(tries)))
        return len(tries)

    assert ns.transact(work) == 1
    store.land()
    assert read(ns) == [1]
    ns.produce("orders", rows(2))
    assert read(memory.open()) == [1, 2]


@pytest.mark.clause("P-118")
@pytest.mark.parametrize("fate", ["lost", "dropped", "late"])
def test_an_unknown_outcome_inside_the_function_is_made_definite_before_it_runs_again(
    faulty: Any, memory: Place, fate: str
) -> None:
    ns, store = faulty
    seen: list[Any] = []

    def work(txn: Any) -> None:
        seen.append(txn)
        txn.produce("orders", rows(len(seen)))
        if len(seen) == 1:
            store.script.append(fate)
            store.reads.append("broken")
            txn.flush()

    ns.transact(work)
    store.land()
    other = memory.open()
    assert [other.transaction(txn.id).state for txn in seen] == ["ABORTED", "COMMITTED"]
    assert read(other) == [2]


@pytest.mark.clause("P-118")
@pytest.mark.parametrize("call", ["flush", "commit", "none"])
def test_an_unknown_outcome_that_cannot_be_resolved_is_raised_and_nothing_runs_again(
    faulty: Any, memory: Place, call: str
) -> None:
    ns, store = faulty
    seen: list[Any] = []

    def work(txn: Any) -> None:
        seen.append(txn)
        txn.produce("orders", rows(1))
        store.forever = "dropped"
        if call != "none":
            getattr(txn, call)()

    with raises(OutcomeUnknown, durable=Durable.MAYBE) as caught:
        ns.transact(work)
    assert caught.value.txn_ids == (str(seen[0].id),)
    if call == "none":
        assert caught.value.advice.startswith("look how it ended before you call again"), "nobody can commit() again"
    assert len(seen) == 1
    store.forever = None
    assert ns.abort(seen[0].id).state == ("ABORTED" if call == "flush" else "COMMITTED")


def test_a_commit_by_the_function_itself_that_was_unknown_is_not_done_twice(faulty: Any, memory: Place) -> None:
    ns, store = faulty
    seen: list[Any] = []

    def work(txn: Any) -> None:
        seen.append(txn)
        txn.produce("orders", rows(1))
        store.script.append("lost")
        store.reads.append("broken")
        txn.commit()

    with raises(OutcomeUnknown, durable=Durable.MAYBE):
        ns.transact(work)
    assert (len(seen), seen[0].state) == (1, "COMMITTED")
    assert read(ns) == [1]


def test_a_transaction_that_transact_made_definite_gives_its_messages_back(memory: Place) -> None:
    """The first attempt ends aborted by our own question; the second must get the same messages."""
    ns, store = memory.faulty_orders(1, 2)
    consumer = ns.consumer("orders", "billing")
    rival = memory.open()
    ns._connection.appender.create_attempts = 1
    attempts: list[list[int]] = []

    def work(txn: Any) -> None:
        messages = consumer.receive(timeout_ms=0)
        attempts.append(ids(messages.table))
        txn.acknowledge(messages)
        if len(attempts) == 1:
            # The commit is not heard of; asked again, the store is still away; then it is back, the slot another's.
            store.script.extend(["dropped", "dropped", lambda: rival.produce("orders", rows(3))])
            store.reads.extend(["absent", "absent"])

    ns.transact(work)
    assert attempts == [[1, 2], [1, 2, 3]]
    assert consumer.receive(timeout_ms=0).positions == []


@pytest.mark.parametrize("end", ["commit", "commit_async"])
def test_a_function_that_ends_its_transaction_and_fails_behind_it_is_not_run_again(sales: Any, end: str) -> None:
    """Its rows would be there twice."""
    error = RetriableError("what came behind may go better")
    runs = []

    def work(txn: Any) -> None:
        runs.append(txn)
        txn.produce("orders", rows(1))
        getattr(txn, end)()
        raise error

    with pytest.raises(RetriableError) as caught:
        sales.transact(work)
    assert caught.value is error
    assert len(runs) == 1
    assert read(sales) == ([1] if runs[0].state == "COMMITTED" else [])


def test_a_function_that_aborts_its_transaction_is_notified(sales: Any) -> None:
    def work(txn: Any) -> None:
        txn.produce("orders", rows(1))
        txn.abort()

    with raises(InvalidTransactionState):
        sales.transact(work)
    assert read(sales) == []


def test_a_function_may_not_prepare_what_is_committed_behind_it(sales: Any, memory: Place) -> None:
    """Its commit could only be refused, and the transaction would wait for somebody who has its token."""

    def work(txn: Any) -> None:
        txn.produce("orders", rows(1))
        txn.prepare()

    with Unchanged(memory), raises(InvalidTransactionState, match=r"transact.*begin\(\)"):
        sales.transact(work)
    assert sales.transactions(state="PREPARED") == ()

    def careless(txn: Any) -> None:
        with raises(InvalidTransactionState):
            work(txn)

    sales.transact(careless)
    assert read(sales) == [1], "a refusal leaves the transaction as it was"


@pytest.mark.parametrize("wrong", [None, "work", 3, {}])
def test_what_is_no_function_is_refused(sales: Any, memory: Place, wrong: Any) -> None:
    with Unchanged(memory), raises(InvalidInputError, match="function"):
        sales.transact(wrong)


def test_numbers_that_cannot_be_had_now_are_asked_for_again(memory: Place) -> None:
    ns, store = memory.faulty_orders()
    ns._connection.appender.create_attempts = 1
    while ns._connection.appender.numbers.take(1):
        pass
    store.script.append("dropped")
    assert ns.transact(lambda txn: txn.produce("orders", rows(1))) is None
    assert read(ns) == [1]
    while ns._connection.appender.numbers.take(1):
        pass
    store.script.append("dropped")
    with raises(RetriableError, match="no TxnID could be reserved", durable=Durable.NOTHING):
        ns.transact(lambda txn: txn.produce("orders", rows(1)), attempts=1)


def test_each_attempt_has_a_deadline_of_its_own(memory: Place, clock: ManualClock) -> None:
    ns = memory.orders(clock=clock)
    tries = itertools.count()

    def work(txn: Any) -> None:
        txn.produce("orders", rows(1))
        if next(tries) < 2:
            clock.advance(1_000)

    ns.transact(work, timeout_ms=1_000)
    assert (next(tries), read(ns)) == (3, [1])


def test_a_batch_that_another_run_committed_meanwhile_is_skipped(memory: Place, sales: Any) -> None:
    other = memory.open()

    def work(txn: Any) -> str:
        if not txn.skipped:
            committed(other, 1, txn_app_id="nightly", txn_version=1)
            txn.produce("orders", rows(2))
        return "done"

    assert sales.transact(work, txn_app_id="nightly", txn_version=1) == "done"
    assert read(sales) == [1]


def test_a_function_that_would_have_to_be_gone_through_is_refused(sales: Any) -> None:
    def work(txn: Any) -> Any:
        txn.produce("orders", rows(1))
        yield

    with raises(InvalidInputError, match="generator"):
        sales.transact(work)


def test_what_committed_by_itself_may_give_something_to_await(sales: Any) -> None:
    loop = asyncio.new_event_loop()
    try:
        future = loop.create_future()

        def work(txn: Any) -> Any:
            txn.produce("orders", rows(1))
            txn.commit()
            return future

        assert sales.transact(work) is future
    finally:
        loop.close()
    assert read(sales) == [1]
