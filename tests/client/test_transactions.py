"""What every operation on a transaction answers (docs/guarantees.md, Transactions), over memory and local files."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable
from typing import Any

import pytest

from tests.client.support import (
    SCHEMA,
    FaultyStore,
    Place,
    Unchanged,
    cursor,
    ids,
    raises,
    read,
    received,
    rows,
    take,
)
from txnlog import work
from txnlog.errors import (
    ConsumerBusy,
    ConsumerFenced,
    Durable,
    InvalidInputError,
    InvalidTransactionState,
    LimitExceeded,
    OutcomeUnknown,
    OutOfOrderSequence,
    RetriableError,
    SchemaMismatch,
    StoreError,
    TopicNotFound,
    TransactionConflict,
    TransactionHasFailedOperation,
    TransactionTimedOut,
    TxnLogError,
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
    ns = memory.open(clock=clock)
    ns.create_topic("orders", SCHEMA)
    with raises(TransactionTimedOut), ns.begin(timeout_ms=1_000) as txn:
        txn.produce("orders", rows(1))
        clock.advance(1_001)
        with raises(TransactionTimedOut):
            txn.produce("orders", rows(2))
    assert read(ns) == []


def _no_room(store: FaultyStore) -> None:
    store.script.append("refused")


def _no_room_for_an_abort_either(store: FaultyStore) -> None:
    store.forever = "refused"


def _no_room_for_rows(store: FaultyStore) -> None:
    store.puts.append("refused")


def _race_lost_for_ever(store: FaultyStore) -> None:
    def lost() -> None:
        raise RetriableError("somebody else was always faster")

    store.script.append(lost)


def _too_much(store: FaultyStore) -> None:
    def refuse() -> None:
        raise LimitExceeded("an entry that is too big")

    store.script.append(refuse)


@pytest.mark.parametrize("kind", ["exclusive", "shared"])
@pytest.mark.parametrize("flushed", [False, True])
@pytest.mark.parametrize(
    ("fail", "error"),
    [
        (_no_room, StoreError),
        (_no_room_for_an_abort_either, StoreError),
        (_no_room_for_rows, StoreError),
        (_race_lost_for_ever, RetriableError),
        (_too_much, LimitExceeded),
    ],
)
def test_a_block_whose_commit_wrote_nothing_aborts_and_gives_its_messages_back(
    memory: Place, kind: str, flushed: bool, fail: Callable[[FaultyStore], None], error: type[TxnLogError]
) -> None:
    """Nobody calls commit() behind a block: what stayed open would withhold its messages until its timeout."""
    ns, store = memory.faulty()
    for topic in ("orders", "audit"):
        ns.create_topic(topic, SCHEMA)
    ns.produce("orders", rows(*range(3)))
    ns.create_subscription("orders", "billing", type=kind)
    consumer = ns.consumer("orders", "billing")
    messages = take(consumer, 2)
    with raises(error), ns.begin() as txn:
        txn.acknowledge(messages)
        if flushed:
            txn.flush()
        txn.produce("audit", [{"id": number, "name": "n" * 200_000} for number in range(3)])
        fail(store)
    store.heal()
    assert txn.state == "ABORTED"
    assert received(consumer) == [0, 1, 2]
    assert [item.state for item in ns.transactions(state="OPEN")] == []
    assert not ns.connection.session.given_up, "nothing is remembered that has its end"
    with raises(InvalidTransactionState, match="was aborted"):
        txn.commit()
    assert read(ns, "audit") == []


_ANEW = "begin the block again: its transaction was aborted"


@pytest.mark.parametrize("calls", ["commit", "flush", "another call"])
@pytest.mark.parametrize("flushed", [False, True])
def test_a_race_lost_in_a_block_is_run_again_from_the_blocks_beginning(
    memory: Place, calls: str, flushed: bool
) -> None:
    """Of a transaction that its block has aborted the same call would only be refused."""
    ns, store = memory.faulty()
    ns.create_topic("orders", SCHEMA)
    with raises(RetriableError) as lost, ns.begin() as txn:
        txn.produce("orders", rows(1))
        if flushed:
            txn.flush()
        txn.produce("orders", rows(2))
        _race_lost_for_ever(store)
        if calls == "flush":
            txn.flush()
        elif calls == "another call":
            ns.create_topic("audit", SCHEMA)
    assert lost.value.advice == _ANEW
    assert (txn.state, read(ns)) == ("ABORTED", [])


@pytest.mark.parametrize("abort", ["ok", "dropped"])
def test_a_flush_in_doubt_is_no_more_in_doubt_behind_its_block(memory: Place, abort: str) -> None:
    ns, store = memory.faulty()
    ns.create_topic("orders", SCHEMA)
    with raises(OutcomeUnknown, durable=Durable.MAYBE) as lost, ns.begin() as txn:
        txn.produce("orders", rows(1))
        store.forever = "dropped"
        try:
            txn.flush()
        finally:
            store.forever = None if abort == "ok" else abort
    assert (lost.value.advice, txn.state) == (_ANEW, "ABORTED")


def _commit_in_doubt(_: Any, txn: Any, store: FaultyStore) -> None:
    txn.produce("orders", rows(1))
    store.forever = "dropped"


def _committed_before(_: Any, txn: Any, __: FaultyStore) -> None:
    txn.commit()
    raise RetriableError("what came behind the commit")


def _another_call_in_doubt(ns: Any, _: Any, store: FaultyStore) -> None:
    store.forever = "dropped"
    ns.produce("orders", rows(1))


def _advice_of_its_own(_: Any, __: Any, ___: FaultyStore) -> None:
    raise ConsumerBusy("held by another")


@pytest.mark.parametrize(
    ("work", "advice"),
    [
        (_commit_in_doubt, r"call commit\(\) again, or ns.abort\(txn_id\)"),
        (_committed_before, "try the same call again"),
        (_another_call_in_doubt, r"before you looked: ns.transaction\(txn_id\), or ns.abort\(txn_id\)"),
        (_advice_of_its_own, "wait for the lease to end"),
    ],
)
def test_what_a_block_did_not_abort_or_not_alone_is_advised_as_anywhere(
    memory: Place, work: Callable[..., None], advice: str
) -> None:
    ns, store = memory.faulty()
    ns.create_topic("orders", SCHEMA)
    with pytest.raises(RetriableError) as caught, ns.begin() as txn:
        work(ns, txn, store)
    assert re.search(advice, caught.value.advice)


@pytest.mark.parametrize("fate", ["refused", "dropped"])
def test_an_abort_that_failed_in_a_block_reaches_the_log_when_it_is_called_again(memory: Place, fate: str) -> None:
    ns, store = memory.faulty()
    ns.create_topic("orders", SCHEMA)
    ns.produce("orders", rows(1, 2))
    consumer = ns.consumer("orders", "billing")
    refusal = raises(StoreError) if fate == "refused" else raises(OutcomeUnknown, durable=Durable.MAYBE)
    with refusal, ns.begin() as txn:
        txn.acknowledge(take(consumer))
        txn.flush()
        store.forever = fate
        txn.abort()
    store.heal()
    txn.abort()
    assert memory.open().transaction(txn.id).state == "ABORTED"
    assert received(consumer) == [1, 2]


def test_a_seek_is_not_refused_for_what_was_given_up(memory: Place) -> None:
    ns, store = memory.faulty()
    consumer = _gives_up(ns, store, flush="ok", abort="refused")
    consumer.seek("earliest")
    assert received(consumer) == [1, 2]


@pytest.mark.parametrize("end", ["receive", "acknowledge", "take it along", "seek"])
@pytest.mark.parametrize("closed", [False, True])
@pytest.mark.parametrize("kind", ["exclusive", "shared"])
def test_what_was_given_up_withholds_nothing_from_the_handle_that_received_it(
    memory: Place, kind: str, closed: bool, end: str
) -> None:
    """Two handles in one process: the messages of one are acknowledged in a transaction of the other."""
    ns, store = memory.faulty()
    other = memory.open(wrap=lambda _: store)
    ns.create_topic("orders", SCHEMA)
    ns.create_subscription("orders", "billing", type=kind)
    consumer = _gives_up(ns, store, flush="ok", abort="refused", receiver=other)
    if closed:
        ns.close()
    if end == "seek":
        consumer.seek("earliest")
    messages = take(consumer)
    assert ids(messages.table) == [1, 2]
    if end == "acknowledge":
        consumer.acknowledge(messages)
    elif end == "take it along":
        with other.begin() as txn:
            txn.acknowledge(messages)
    assert cursor(other).cursor == (0 if end in {"receive", "seek"} else 2)
    assert not other.connection.session.given_up, "nothing is remembered that has its end"


@pytest.mark.parametrize("in_a_transaction", [False, True])
def test_what_a_flush_in_doubt_took_can_be_taken_by_who_gets_it_again(memory: Place, in_a_transaction: bool) -> None:
    """The flush comes into the log at the next call, and its transaction was given up before."""
    ns, store = memory.faulty()
    consumer = _gives_up(ns, store, flush="dropped", abort="dropped")
    if in_a_transaction:
        with ns.begin() as txn:
            txn.acknowledge(take(consumer))
    else:
        consumer.acknowledge(take(consumer))
    assert ns.subscription("orders", "billing").cursors[0].cursor == 2


def _gives_up(ns: Any, store: FaultyStore, *, flush: str, abort: str, receiver: Any = None) -> Any:
    """A consumer, of this handle or another, whose two messages a block acknowledged that failed without saying so."""
    if "orders" not in ns.topics():
        ns.create_topic("orders", SCHEMA)
    ns.produce("orders", rows(1, 2))
    consumer = (receiver or ns).consumer("orders", "billing")
    with contextlib.suppress(ValueError, OutcomeUnknown), ns.begin() as txn:
        txn.acknowledge(take(consumer))
        store.forever = None if flush == "ok" else flush
        txn.flush()
        store.forever = abort
        int("what a block fails with")
    store.heal()
    return consumer


@pytest.mark.parametrize("count", [90, 250])
def test_nobody_is_refused_for_what_is_overdue_however_much_it_is(
    memory: Place, clock: ManualClock, count: int
) -> None:
    ns = memory.open(clock=clock)
    ns.create_topic("orders", SCHEMA)
    ns.produce("orders", rows(*range(count)))
    consumer = ns.consumer("orders", "billing")
    messages = take(consumer)
    for number in range(count):
        txn = ns.begin()
        txn.acknowledge(messages[number])
        txn.flush()
    clock.advance(120_000)
    with ns.begin() as txn:
        txn.acknowledge(messages[count - 1])
    assert txn.state == "COMMITTED"


@pytest.mark.parametrize("fate", ["lost", "dropped"])
def test_a_block_whose_commit_is_in_doubt_leaves_that_to_commit_or_abort(memory: Place, fate: str) -> None:
    ns, store = memory.faulty()
    ns.create_topic("orders", SCHEMA)
    with raises(OutcomeUnknown, durable=Durable.MAYBE), ns.begin() as txn:
        txn.produce("orders", rows(1))
        store.script.append(fate)
        store.forever, store.reads_forever = "dropped", "broken"
    store.heal()
    assert txn.state == "OPEN"
    txn.commit()
    assert read(ns) == [1]


# --- commit and abort, again and again -------------------------------------------------------------------------------


@pytest.mark.clause("P-55", "P-62")
def test_a_second_commit_gives_the_same_result_and_writes_nothing(ns: Any, place: Place) -> None:
    txn = ns.begin()
    txn.produce("orders", rows(1))
    result = txn.commit()
    with Unchanged(place):
        assert txn.commit() is result
        assert txn.commit_async().result(10) is result


@pytest.mark.clause("P-55")
def test_an_abort_after_the_commit_is_refused(ns: Any, place: Place) -> None:
    txn = ns.begin()
    txn.produce("orders", rows(1))
    txn.commit()
    with Unchanged(place), raises(InvalidTransactionState, match=r"was committed \(it stays committed: nothing"):
        txn.abort()
    assert txn.state == "COMMITTED"
    assert read(ns) == [1]


@pytest.mark.clause("P-55", "P-63")
@pytest.mark.parametrize("flushed", [False, True])
def test_a_commit_after_the_abort_is_refused_and_a_second_abort_is_fine(ns: Any, place: Place, flushed: bool) -> None:
    txn = ns.begin()
    txn.produce("orders", rows(1))
    if flushed:
        txn.flush()
    txn.abort()
    with Unchanged(place):
        txn.abort()
        for _ in range(2):
            with raises(InvalidTransactionState, match="was aborted"):
                txn.commit()
        with raises(InvalidTransactionState, match="was aborted"):
            txn.produce("orders", rows(2))
    assert read(ns) == []


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


@pytest.mark.parametrize("call", ["produce", "acknowledge", "flush", "check_open"])
@pytest.mark.parametrize("end", ["commit", "abort"])
def test_nothing_can_be_added_after_the_end(ns: Any, place: Place, call: str, end: str) -> None:
    ns.produce("orders", rows(0))
    messages = ns.consumer("orders", "billing").receive(timeout_ms=0)
    txn = ns.begin()
    txn.produce("orders", rows(1))
    txn.check_open()
    getattr(txn, end)()
    arguments = {"produce": ("orders", rows(2)), "acknowledge": (messages,)}.get(call, ())
    with Unchanged(place), raises(InvalidTransactionState, match=f"was {end}ed|was committed"):
        getattr(txn, call)(*arguments)


# --- flush -----------------------------------------------------------------------------------------------------------


@pytest.mark.clause("P-56", "P-101")
def test_a_flush_makes_the_work_durable_and_pending(ns: Any, place: Place) -> None:
    txn = ns.begin()
    txn.produce("orders", rows(1), partition=0)
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


@pytest.mark.clause("P-94", "P-96")
def test_rows_stay_in_the_order_of_production_however_they_were_written(sales: Any) -> None:
    txn = sales.begin()
    for number in range(9):
        txn.produce("orders", rows(number))
        if number % 3 == 0:
            txn.flush()
    txn.commit()
    assert read(sales) == list(range(9))


def test_a_flush_without_work_writes_nothing(ns: Any, place: Place) -> None:
    txn = ns.begin()
    with Unchanged(place):
        txn.flush()
    txn.produce("orders", rows(1))
    txn.flush()
    with Unchanged(place):
        txn.flush()


def test_a_big_transaction_is_written_as_it_goes(sales: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(work, "BUFFER_BYTES", 10_000)
    monkeypatch.setattr(work, "SMALL_PRODUCE_BYTES", 2_000)
    txn = sales.begin()
    for start in range(0, 4_000, 400):
        txn.produce("orders", rows(*range(start, start + 400)))
    txn.produce("audit", rows(-1))
    assert len(txn._work.staged) >= 3
    result = txn.commit()
    assert read(sales) == list(range(4_000))
    assert read(sales, "audit") == [-1]
    assert result.offsets == {("orders", 0): range(4_000), ("audit", 0): range(1)}


@pytest.mark.parametrize("fault", ["refused", "broken"])
def test_a_store_that_fails_while_a_big_transaction_is_written_costs_no_row_and_doubles_none(
    memory: Place, monkeypatch: pytest.MonkeyPatch, fault: str
) -> None:
    ns, store = memory.faulty()
    ns.create_topic("orders", SCHEMA)
    ns.create_topic("audit", SCHEMA)
    monkeypatch.setattr(work, "BUFFER_BYTES", 5_000)
    txn = ns.begin()
    txn.produce("audit", rows(-1))
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
    txn = ns.begin()
    txn.produce("orders", rows(1))
    if flushed:
        txn.flush()
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


def test_after_a_failed_operation_an_abort_is_fine(ns: Any) -> None:
    messages = _taken(ns)
    txn = ns.begin()
    with raises(TransactionConflict):
        txn.acknowledge(messages)
    txn.abort()
    assert txn.state == "ABORTED"


def test_a_block_with_a_failed_operation_raises_at_its_end(ns: Any) -> None:
    messages = _taken(ns)
    with raises(TransactionHasFailedOperation), ns.begin() as txn:
        txn.produce("orders", rows(1))
        with raises(TransactionConflict):
            txn.acknowledge(messages)
    assert read(ns) == [0]


@pytest.mark.parametrize(
    ("call", "kind"),
    [
        (lambda txn: txn.produce("ordres", rows(1)), TopicNotFound),
        (lambda txn: txn.produce("orders", [{"idd": 1}]), SchemaMismatch),
        (lambda txn: txn.produce("orders", [{"id": "one"}]), SchemaMismatch),
        (lambda txn: txn.produce("orders", rows(1), sequence=1), InvalidInputError),
        (lambda txn: txn.acknowledge("all of them"), InvalidInputError),
    ],
)
def test_bad_input_does_not_poison(ns: Any, place: Place, call: Any, kind: Any) -> None:
    txn = ns.begin()
    txn.produce("orders", rows(1))
    with Unchanged(place), raises(kind):
        call(txn)
    txn.produce("orders", rows(2))
    txn.commit()
    assert sorted(read(ns)) == [1, 2]


@pytest.mark.clause("P-98")
def test_a_refused_commit_of_a_flushed_transaction_is_aborted_in_the_log(sales: Any) -> None:
    with sales.producer("loader") as loader:
        loader.produce("orders", rows(0), partition=0, sequence=0)
        txn = loader.begin()
        txn.produce("orders", rows(1), partition=0, sequence=1)
        txn.flush()
        loader.produce("orders", rows(2), partition=0, sequence=1)
        with raises(OutOfOrderSequence):
            txn.commit()
    assert (sales.transaction(txn.id).state, sales.transaction(txn.id).reason) == ("ABORTED", "failed")
    with raises(OutOfOrderSequence):
        txn.commit()


def test_a_fenced_acknowledgement_at_commit_ends_the_transaction_in_the_log(memory: Place, sales: Any) -> None:
    sales.produce("orders", rows(0))
    old = sales.consumer("orders", "billing")
    txn = sales.begin()
    txn.produce("orders", rows(1))
    txn.flush()
    txn.acknowledge(old.receive(timeout_ms=0))
    memory.open().consumer("orders", "billing")
    with raises(ConsumerFenced):
        txn.commit()
    assert txn.state == "ABORTED"
    assert sales.transaction(txn.id).state == "ABORTED"


# --- several at once -------------------------------------------------------------------------------------------------


def test_a_plain_produce_beside_an_open_transaction_is_visible_at_once(sales: Any) -> None:
    with sales.begin() as txn:
        txn.produce("orders", rows(1))
        txn.flush()
        sales.produce("orders", rows(2))
        assert read(sales) == [2]
    assert read(sales) == [2, 1]


@pytest.mark.clause("P-36")
def test_too_many_open_transactions_are_refused(ns: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    from txnlog import apply_transactions

    monkeypatch.setattr("txnlog.producer.MAX_OPEN_TRANSACTIONS", 2)
    monkeypatch.setattr(apply_transactions, "MAX_OPEN_TRANSACTIONS", 2)
    late = ns.begin()
    late.produce("orders", rows(9))
    opened = [ns.begin() for _ in range(2)]
    for txn in opened:
        txn.produce("orders", rows(1))
        txn.flush()
    with raises(LimitExceeded, match="2 open transactions"):
        ns.begin()
    with raises(LimitExceeded, match="2 open transactions"):
        late.flush()
    opened[0].abort()
    late.commit()
    assert read(ns) == [9]


@pytest.mark.clause("P-36", "P-205")
def test_transactions_that_are_overdue_keep_nobody_from_beginning_one(
    memory: Place, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in ("producer", "apply_transactions"):
        monkeypatch.setattr(f"txnlog.{module}.MAX_OPEN_TRANSACTIONS", 2)
    dead, ns = memory.open(clock=clock), memory.open(clock=clock)
    dead.create_topic("orders", SCHEMA)
    for number in range(2):
        txn = dead.begin(timeout_ms=1_000)
        txn.produce("orders", rows(number))
        txn.flush()
    clock.advance(5_999)
    ns.produce("orders", rows(6))
    with raises(LimitExceeded, match="2 open transactions"):
        ns.begin()
    clock.advance(1)
    begun = [ns.begin() for _ in range(2)]
    for number, txn in enumerate(begun, 7):
        txn.produce("orders", rows(number))
        txn.flush()
    with raises(LimitExceeded, match="2 open transactions"):
        ns.begin()
    begun[1].commit()
    assert read(ns) == [6, 8]


@pytest.mark.clause("P-119")
def test_begin_is_not_refused_by_a_limit_that_is_no_longer_reached(
    memory: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("txnlog.producer.MAX_OPEN_TRANSACTIONS", 1)
    ns, other = memory.open(), memory.open()
    ns.create_topic("orders", SCHEMA)
    txn = other.begin()
    txn.produce("orders", rows(1))
    txn.flush()
    ns.snapshot()
    txn.commit()
    ns.begin()
