"""What every operation on a transaction answers (docs/guarantees.md, Transactions), over memory and local files."""

from __future__ import annotations

from typing import Any

import pytest

from tests.client.support import (
    SCHEMA,
    Place,
    Unchanged,
    begun,
    holding,
    ids,
    raises,
    read,
    rows,
    take,
)
from txnlog.client import transaction_work
from txnlog.errors import (
    ConsumerFenced,
    LimitExceeded,
    OutOfOrderSequence,
    ProducerFenced,
    StoreError,
    TransactionAborted,
    TransactionConflict,
    TransactionHasFailedOperation,
    TransactionTimedOut,
)
from txnlog.testing import ManualClock

# --- the plain way ---------------------------------------------------------------------------------------------------


@pytest.mark.clause("P-93", "P-124")
def test_a_block_commits_at_its_end_all_topics_at_once(ns: Any) -> None:
    ns.create_topic("audit", SCHEMA)
    before = ns.snapshot().version
    with ns.begin() as txn:
        txn.produce("orders", rows(1, 2), partition=0)
        txn.produce("audit", rows(3))
        assert (txn.state, txn.result) == ("OPEN", None)
        assert read(ns) == read(ns, "audit") == [], "not visible inside the transaction either"
    assert txn.state == "COMMITTED"
    assert txn.result.txn_id == txn.id
    assert txn.result.version == before + 1 == ns.snapshot().version
    assert txn.result.offsets == {("orders", 0): range(2), ("audit", 0): range(1)}
    assert (txn.result.skipped, txn.result.duplicate, txn.result.dropped) == (False, False, ())
    assert (read(ns), read(ns, "audit")) == ([1, 2], [3])


def test_an_exception_in_the_block_aborts(ns: Any, place: Place) -> None:
    txn = ns.begin()
    with Unchanged(place), pytest.raises(ZeroDivisionError):
        _fail_inside(txn, flush=False)
    assert txn.state == "ABORTED"
    assert read(ns) == []


def _fail_inside(txn: Any, *, flush: bool) -> None:
    with txn:
        txn.produce("orders", rows(1))
        if flush:
            txn.flush()
        raise ZeroDivisionError


def test_a_block_that_is_left_with_the_class_of_an_exception_aborts_too(ns: Any) -> None:
    """What delegates a block may pass nothing else."""
    txn = ns.begin().__enter__()
    txn.produce("orders", rows(1))
    txn.__exit__(ValueError, None, None)
    assert txn.state == "ABORTED"
    assert read(ns) == []


@pytest.mark.clause("P-98")
def test_an_exception_after_a_flush_aborts_in_the_log(ns: Any) -> None:
    txn = ns.begin()
    with pytest.raises(ZeroDivisionError):
        _fail_inside(txn, flush=True)
    info = ns.transaction(txn.id)
    assert (info.state, info.reason) == ("ABORTED", "user")
    assert read(ns) == []
    ns.produce("orders", rows(2), partition=0)
    assert ns.snapshot().end_offsets("orders") == {0: 1, 1: 0}, "an abort takes no offsets"


def test_what_the_block_commits_by_itself_stays_committed(ns: Any) -> None:
    with ns.begin() as txn:
        txn.produce("orders", rows(1))
        result = txn.commit()
    assert txn.result is result
    with ns.begin() as txn:
        txn.produce("orders", rows(2))
        txn.abort()
    assert txn.state == "ABORTED"
    assert read(ns) == [1]


def test_a_block_whose_transaction_ended_behind_its_back_raises_at_its_end(memory: Place, clock: ManualClock) -> None:
    """A user who swallows the error of an operation must not take the block's end for a commit."""
    ns = memory.orders(clock=clock)
    with raises(TransactionTimedOut), ns.begin(timeout_ms=1_000) as txn:
        txn.produce("orders", rows(1))
        clock.advance(1_001)
        with raises(TransactionTimedOut):
            txn.produce("orders", rows(2))
    assert read(ns) == []


# --- commit and abort, again and again -------------------------------------------------------------------------------


@pytest.mark.clause("P-63")
def test_an_empty_transaction_ends_without_a_trace(ns: Any, place: Place) -> None:
    with Unchanged(place):
        with ns.begin() as committed:
            pass
        assert committed.result.version == ns.snapshot().version
        assert committed.result.offsets == {}
        assert committed.commit() is committed.result
        aborted = ns.begin()
        aborted.abort()
        nothing = ns.begin()
        nothing.produce("orders", [])
        nothing.produce("orders", SCHEMA.empty_table())
        nothing.flush()
        nothing.commit()
        assert ns.transaction(committed.id).state == "UNKNOWN"


# --- flush -----------------------------------------------------------------------------------------------------------


@pytest.mark.clause("P-56", "P-101")
def test_a_flush_makes_the_work_durable_and_pending(ns: Any, place: Place) -> None:
    txn = ns.begin()
    with Unchanged(place):
        txn.flush()
    txn.produce("orders", rows(1), partition=0)
    txn.flush()
    with Unchanged(place):
        txn.flush()
    other = place.open()
    info = other.transaction(txn.id)
    assert (info.state, info.txn_id) == ("OPEN", txn.id)
    assert info.deadline_ms is not None
    assert read(other) == []
    pending = other.snapshot().read("orders", isolation_level="read_uncommitted", include_metadata=True)
    assert (ids(pending), pending.column("_offset").to_pylist()) == ([1], [None])
    txn.produce("orders", rows(2), partition=0)
    txn.produce("orders", rows(3), partition=1)
    assert txn.commit().offsets == {("orders", 0): range(2), ("orders", 1): range(1)}
    assert sorted(read(other)) == [1, 2, 3]
    assert other.transaction(txn.id).state == "COMMITTED"


def test_a_big_transaction_is_written_as_it_goes(sales: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transaction_work, "BUFFER_BYTES", 10_000)
    monkeypatch.setattr(transaction_work, "SMALL_PRODUCE_BYTES", 2_000)
    txn = sales.begin()
    for start in range(0, 4_000, 400):
        txn.produce("orders", rows(*range(start, start + 400)))
    txn.produce("audit", rows(-1))
    assert len(txn._machine.work.staged) >= 3
    result = txn.commit()
    assert read(sales) == list(range(4_000))
    assert read(sales, "audit") == [-1]
    assert result.offsets == {("orders", 0): range(4_000), ("audit", 0): range(1)}


@pytest.mark.parametrize("fault", ["refused", "broken"])
def test_a_store_that_fails_while_a_big_transaction_is_written_costs_no_row_and_doubles_none(
    memory: Place, monkeypatch: pytest.MonkeyPatch, fault: str
) -> None:
    ns, store = memory.faulty_orders(audit=True)
    monkeypatch.setattr(transaction_work, "BUFFER_BYTES", 5_000)
    txn = begun(ns, -1, topic="audit")
    txn.produce("orders", rows(*range(400)))
    store.puts.extend(["ok", fault])
    with pytest.raises(StoreError):
        txn.produce("orders", rows(*range(400, 800)))
    txn.produce("orders", rows(*range(400, 800)))
    store.puts.append(fault)
    with pytest.raises(StoreError):
        txn.commit()
    txn.commit()
    assert (read(ns), read(ns, "audit")) == (list(range(800)), [-1])


# --- failed operations -----------------------------------------------------------------------------------------------


def _taken(ns: Any) -> Any:
    """A message that was acknowledged already."""
    ns.produce("orders", rows(0))
    consumer = ns.consumer("orders", "billing")
    messages = consumer.receive(timeout_ms=0)
    consumer.acknowledge(messages)
    return messages


@pytest.mark.parametrize("flushed", [False, True])
def test_after_a_failed_operation_the_commit_aborts(ns: Any, flushed: bool) -> None:
    messages = _taken(ns)
    txn = begun(ns, 1, flush=flushed)
    with raises(TransactionConflict):
        txn.acknowledge(messages)
    with raises(TransactionHasFailedOperation, match="acknowledged before"):
        txn.produce("orders", rows(2))
    assert txn.state == "OPEN"
    with raises(TransactionHasFailedOperation, match="acknowledged before") as caught:
        txn.commit()
    assert isinstance(caught.value.__cause__, TransactionConflict)
    assert txn.state == "ABORTED"
    with raises(TransactionHasFailedOperation):
        txn.commit()
    txn.abort()
    assert ns.transaction(txn.id).state == ("ABORTED" if flushed else "UNKNOWN")
    assert ns.transaction(txn.id).reason == ("failed" if flushed else None)
    assert read(ns) == [0]


def test_a_block_with_a_failed_operation_raises_at_its_end(ns: Any) -> None:
    messages = _taken(ns)
    with raises(TransactionHasFailedOperation), ns.begin() as txn:
        txn.produce("orders", rows(1))
        with raises(TransactionConflict):
            txn.acknowledge(messages)
    assert read(ns) == [0]


@pytest.mark.clause("P-98")
def test_a_refused_commit_of_a_flushed_transaction_is_aborted_in_the_log(sales: Any) -> None:
    with sales.producer("loader") as loader:
        loader.produce("orders", rows(0), partition=0, sequence=0)
        txn = begun(loader, 1, partition=0, sequence=1, flush=True)
        loader.produce("orders", rows(2), partition=0, sequence=1)
        with raises(OutOfOrderSequence):
            txn.commit()
    assert (sales.transaction(txn.id).state, sales.transaction(txn.id).reason) == ("ABORTED", "failed")
    with raises(OutOfOrderSequence):
        txn.commit()


def test_a_fenced_acknowledgement_at_commit_ends_the_transaction_in_the_log(memory: Place, sales: Any) -> None:
    sales.produce("orders", rows(0))
    old = sales.consumer("orders", "billing")
    txn = begun(sales, 1, flush=True)
    txn.acknowledge(old.receive(timeout_ms=0))
    memory.open().consumer("orders", "billing")
    with raises(ConsumerFenced):
        txn.commit()
    assert txn.state == "ABORTED"
    assert sales.transaction(txn.id).state == "ABORTED"


# --- several at once -------------------------------------------------------------------------------------------------


@pytest.mark.clause("P-36", "P-205")
def test_transactions_that_are_overdue_keep_nobody_from_beginning_one(
    memory: Place, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in ("api.writing", "fold.transactions"):
        monkeypatch.setattr(f"txnlog.{module}.MAX_OPEN_TRANSACTIONS", 2)
    dead, ns = memory.open(clock=clock), memory.open(clock=clock)
    dead.create_topic("orders", SCHEMA)
    for number in range(2):
        txn = begun(dead, number, flush=True, timeout_ms=1_000)
    clock.advance(5_999)
    ns.produce("orders", rows(6))
    with raises(LimitExceeded, match="2 open transactions"):
        ns.begin()
    clock.advance(1)
    fresh = [ns.begin() for _ in range(2)]
    for number, txn in enumerate(fresh, 7):
        txn.produce("orders", rows(number))
        txn.flush()
    with raises(LimitExceeded, match="2 open transactions"):
        ns.begin()
    fresh[1].commit()
    assert read(ns) == [6, 8]


@pytest.mark.parametrize("count", [90, 250])
def test_nobody_is_refused_for_what_is_overdue_however_much_it_is(
    memory: Place, clock: ManualClock, count: int
) -> None:
    ns = memory.orders(*range(count), clock=clock)
    consumer = ns.consumer("orders", "billing")
    messages = take(consumer)
    for number in range(count):
        holding(ns, messages[number], flush=True)
    clock.advance(120_000)
    with ns.begin() as txn:
        txn.acknowledge(messages[count - 1])
    assert txn.state == "COMMITTED"


@pytest.mark.clause("P-119")
def test_begin_is_not_refused_by_a_limit_that_is_no_longer_reached(
    memory: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("txnlog.api.writing.MAX_OPEN_TRANSACTIONS", 1)
    ns, other = memory.open(), memory.open()
    ns.create_topic("orders", SCHEMA)
    txn = begun(other, 1, flush=True)
    ns.snapshot()
    with raises(LimitExceeded, match="open transactions"):
        ns.begin()
    txn.commit()
    ns.begin()


@pytest.mark.parametrize("flushed", [True, False])
@pytest.mark.parametrize("how", ["fenced", "aborted"])
def test_a_flush_without_new_work_reports_that_others_ended_or_fenced_the_transaction(
    ns: Any, place: Place, how: str, flushed: bool
) -> None:
    txn = ns.producer("loader").begin()
    if flushed:
        txn.produce("orders", rows(1))
        txn.flush()
    other = place.open()
    if how == "fenced":
        other.producer("loader")
    else:
        other.abort(txn.id)
    with raises(ProducerFenced if how == "fenced" else TransactionAborted):
        txn.flush()
    assert txn.state == "ABORTED"
