"""An error that was raised is a value: whoever has it finds in it what was raised to him, and nothing of others."""

from __future__ import annotations

import errno
import gc
import threading
import time
import traceback
import weakref
from typing import Any

import pytest

from tests.client.support import SCHEMA, FaultyStore, Place, is_entry, rows, run_threads, unique_name, wait_for
from txnlog.errors import (
    Durable,
    InvalidTransactionState,
    OutcomeUnknown,
    RetriableError,
    StoreError,
    TopicNotFound,
    TransactionConflict,
    TransactionHasFailedOperation,
    TransactionTimedOut,
    TxnLogError,
)
from txnlog.log.appender import Submitted
from txnlog.store import Created
from txnlog.testing import ManualClock


class _Rows(list[dict[str, Any]]):
    """Rows to which there can be a weak reference."""


@pytest.fixture
def late(lake: Any, clock: ManualClock) -> Any:
    """A transaction that timed out, as its owner has heard."""
    txn = lake.begin(timeout_ms=1_000)
    txn.produce("orders", rows(1))
    clock.advance(10_000)
    raises_of(txn, rows(2))
    return txn


def raises_of(txn: Any, data: Any) -> TxnLogError:
    """What the transaction raises to who produces once more."""
    with pytest.raises(TransactionTimedOut) as caught:
        txn.produce("orders", data)
    return caught.value


def test_a_transaction_that_ended_does_not_keep_what_each_refused_call_was_given(late: Any) -> None:
    """Each call raises an error of its own: the traceback of a shared one would grow, and keep the rows of all."""
    lengths, given = [], []
    for _ in range(10):
        data = _Rows(rows(3))
        given.append(weakref.ref(data))
        try:
            late.produce("orders", data)
        except TransactionTimedOut as error:
            lengths.append(len(traceback.extract_tb(error.__traceback__)))
        del data
    gc.collect()
    kept = sum(ref() is not None for ref in given)
    assert (len(set(lengths)), kept) == (1, 0), f"tracebacks of {lengths} frames, {kept} of 10 batches are kept"


def test_an_error_that_a_transaction_raised_does_not_change_at_its_next_call(late: Any) -> None:
    """Else what its owner logs has another call in its traceback, and the notes of another caller."""
    first = raises_of(late, rows(3))
    before = traceback.format_exception(first)
    with pytest.raises(TransactionTimedOut) as of_a_call:
        late.commit()
    with pytest.raises(TransactionTimedOut) as of_a_block, late:
        pass
    for caught in (of_a_call, of_a_block):
        caught.value.add_note("batch 7 of the nightly job")
    assert traceback.format_exception(first) == before
    assert of_a_block.value is not of_a_call.value
    with pytest.raises(TransactionTimedOut) as again, late:
        pass
    assert not hasattr(again.value, "__notes__")


class _Chained(FaultyStore):
    """Refuses entries, once it is ``full``, as somebody's store may: the cause is the context, and it has a note."""

    full = False

    def create(self, key: str, data: bytes) -> Created:
        if self.full and is_entry(key):
            try:
                raise OSError(errno.ENOSPC, "disk full")
            except OSError:
                error = StoreError("no space left", durable=Durable.NOTHING)
                error.add_note("on the volume 7")
                raise error  # noqa: B904 - with the context alone
        return super().create(key, data)


class _Kept(Submitted[Any]):
    """A commit in the background whose result is kept as the engine gives it."""

    def __init__(self, ns: Any, txn: Any, results: list[Any]) -> None:
        super().__init__(ns._connection.appender)
        self._txn, self._results = txn, results

    def work(self) -> Any:
        return self._txn._machine.commit()

    def done(self, result: Any) -> None:
        self._results.append(result)


def _refused_together(place: Place, count: int) -> list[BaseException]:
    """The errors of so many commits that share an entry, as the engine gives them to the calls."""
    place.open().create_topic("orders", SCHEMA, if_not_exists=True)
    ns, store = place.wrapped(_Chained)
    transactions = [ns.begin() for _ in range(count)]
    for txn in transactions:
        txn.produce("orders", rows(1))
    results: list[Any] = []

    def submit() -> None:
        for txn in transactions:
            ns._connection.appender.submit(_Kept(ns, txn, results))
        store.full = True

    store.script.append(submit)
    ns.create_topic(unique_name())
    wait_for(lambda: len(results) == count)
    store.full = False
    return [result.error for result in results]


def test_commits_that_share_an_entry_hear_of_the_cause_as_one_alone_does(memory: Place) -> None:
    """Also where a store raises in an ``except`` block without ``from``."""
    for count in (1, 2):
        for error in _refused_together(memory, count):
            assert isinstance(error.__cause__ or error.__context__, OSError), f"of {count} callers"


def test_commits_that_share_an_entry_do_not_share_notes(memory: Place) -> None:
    one, other = _refused_together(memory, 2)
    one.add_note("batch 7 of the nightly job")
    assert "batch 7 of the nightly job" not in getattr(other, "__notes__", [])


def test_the_error_of_a_call_that_is_over_is_not_kept(memory: Place) -> None:
    """Its traceback has the rows of the call: they would be in memory until there is another one."""
    ns, store = memory.faulty()
    memory.orders().close()
    data = _Rows(rows(1))
    given = weakref.ref(data)
    store.forever = "refused"
    try:
        ns.produce("orders", data)
    except StoreError:
        del data
    gc.collect()
    assert given() is None, "the rows of a produce that failed are in memory"


def test_a_group_out_of_a_block_that_is_about_something_else_is_the_one_that_was_raised(memory: Place) -> None:
    group = ExceptionGroup("of two tasks", [ValueError("x"), TopicNotFound("y")])
    ns = memory.orders()

    def work() -> None:
        with ns.begin():
            raise group

    with pytest.raises(ExceptionGroup) as caught:
        work()
    assert caught.value is group
    assert caught.value.__context__ is None


def test_the_operation_that_failed_is_the_cause_of_each_later_refusal_and_a_copy_for_each(memory: Place) -> None:
    ns = memory.orders()
    consumer = ns.consumer("orders", "billing")
    ns.produce("orders", rows(1))
    messages = consumer.receive()
    txn, other = ns.begin(), ns.begin()
    other.acknowledge(messages)
    with pytest.raises(TransactionConflict) as conflict:
        txn.acknowledge(messages)
    refusals = []
    for _ in range(2):
        with pytest.raises(TransactionHasFailedOperation) as caught:
            txn.produce("orders", rows(1))
        refusals.append(caught.value.__cause__)
    assert [str(cause) for cause in refusals] == [str(conflict.value)] * 2
    assert len({id(error) for error in (conflict.value, *refusals)}) == 3
    assert [cause.__traceback__ for cause in refusals if cause is not None] == [None, None]


def test_each_call_of_a_future_raises_and_gives_an_error_of_its_own(late: Any) -> None:
    future = late.commit_async()
    found: list[Any] = [future.exception(20), future.exception(20)]
    for _ in range(2):
        with pytest.raises(TransactionTimedOut) as caught:
            future.result(20)
        found.append(caught.value)
    found[0].add_note("batch 7 of the nightly job")
    assert len({id(error) for error in found}) == 4
    assert len({str(error) for error in found}) == 1
    assert len({len(traceback.extract_tb(error.__traceback__)) for error in found[2:]}) == 1
    assert not any(hasattr(error, "__notes__") for error in found[1:])


def test_a_future_does_not_keep_what_was_local_where_its_commit_failed(memory: Place) -> None:
    given: list[weakref.ref[_Rows]] = []

    class Failing(FaultyStore):
        def create(self, key: str, data: bytes) -> Created:
            if self.forever and is_entry(key):
                local = _Rows()
                given.append(weakref.ref(local))
                raise StoreError("no space left", durable=Durable.NOTHING)
            return super().create(key, data)

    memory.orders().close()
    ns, store = memory.wrapped(Failing)
    txn = ns.begin()
    txn.produce("orders", rows(1))
    store.forever = "refused"
    future = txn.commit_async()
    assert isinstance(future.exception(20), StoreError)
    gc.collect()
    assert [ref() for ref in given] == [None]


def test_each_commit_that_a_closed_handle_refuses_gets_an_error_of_its_own(memory: Place) -> None:
    ns = memory.orders()
    appender = ns._connection.appender
    kept = InvalidTransactionState("closed meanwhile")
    appender.close(kept)
    transactions = [ns.begin() for _ in range(2)]
    found: list[Any] = []
    for txn in transactions:
        txn.produce("orders", rows(1))
        found += [txn.commit_async().exception(20), raised_by(txn.commit), raised_by(txn.commit)]
    assert len({id(error) for error in found}) == 6
    assert {error.message for error in found} == {"closed meanwhile"}
    lengths = [len(traceback.extract_tb(error.__traceback__)) for error in found]
    assert lengths[:3] == lengths[3:]
    assert lengths[1] == lengths[2]
    assert kept.__traceback__ is None


def raised_by(call: Any) -> TxnLogError:
    with pytest.raises(InvalidTransactionState) as caught:
        call()
    return caught.value


def test_a_group_of_errors_out_of_a_block_advises_to_begin_it_again(memory: Place) -> None:
    """The block aborted its transaction: the same call again would be refused."""
    memory.orders().close()
    ns, store = memory.faulty()
    begun: list[Any] = []

    def failing(message: str, *found: Exception) -> ExceptionGroup:
        try:
            raise ExceptionGroup(message, found) from OSError("disk")
        except ExceptionGroup as group:
            group.add_note("nightly")
            return group

    def work() -> None:
        with ns.begin() as txn:
            begun.append(txn)
            txn.produce("orders", rows(1))
            store.forever = "dropped"
            try:
                txn.flush()
            except RetriableError as error:
                store.heal()
                raise failing("of all", failing("of one", error), ValueError("of the other")) from OSError("disk")

    with pytest.raises(ExceptionGroup) as caught:
        work()
    inner, other = caught.value.exceptions
    assert isinstance(other, ValueError)
    assert isinstance(inner, ExceptionGroup)
    for group, message in ((caught.value, "of all"), (inner, "of one")):
        assert (group.message, group.__notes__) == (message, ["nightly"])
        assert isinstance(group.__cause__, OSError)
        assert "in failing\n" in "".join(traceback.format_tb(group.__traceback__))
    (error,) = inner.exceptions
    assert isinstance(error, OutcomeUnknown)
    assert begun[0].state == "ABORTED"
    assert error.advice == "begin the block again: its transaction was aborted"


def test_a_producer_does_not_keep_the_rows_of_transactions_that_were_refused(lake: Any, clock: ManualClock) -> None:
    """It notes its last transactions, and these why they ended: not with a traceback, which has all that was local."""
    producer = lake.producer("loader")
    given: list[weakref.ref[_Rows]] = []

    def batch() -> None:
        data = _Rows(rows(1))
        given.append(weakref.ref(data))
        with producer.begin(timeout_ms=1_000) as txn:
            txn.produce("orders", data)
            clock.advance(10_000)

    for _ in range(20):
        with pytest.raises(TransactionTimedOut):
            batch()
    gc.collect()
    assert sum(ref() is not None for ref in given) == 0, "of 20 batches, and no block has an error any more"


def test_threads_that_wait_for_one_commit_do_not_find_each_other_in_their_tracebacks(memory: Place) -> None:
    """Each gets an error of its own."""
    memory.orders().close()
    ns, store = memory.faulty()
    txn = ns.begin()
    txn.produce("orders", rows(1))
    waiting = [threading.Event(), threading.Event()]
    store.script.extend([lambda: [event.wait(20) for event in waiting], lambda: time.sleep(0.2), "refused"])
    txn.commit_async()

    def nightly() -> None:
        waiting[0].set()
        txn.commit()

    def hourly() -> None:
        waiting[1].set()
        txn.commit()

    for name, error in zip(("hourly", "nightly"), run_threads(nightly, hourly), strict=True):
        assert isinstance(error, StoreError)
        assert f"in {name}\n" not in "".join(traceback.format_exception(error))
