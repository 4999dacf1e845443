"""What every operation on a transaction answers (docs/guarantees.md, Transactions), over memory and local files."""

from __future__ import annotations

import gc
import re
from functools import partial
from typing import Any

import pyarrow as pa
import pytest

from tests.client.support import SCHEMA, START_MS, Place, Unchanged, ids, raises, read, rows
from txnlog import transaction, work
from txnlog.errors import (
    ConsumerFenced,
    InvalidInputError,
    InvalidTransactionState,
    LimitExceeded,
    NameNotAllowed,
    OutcomeUnknown,
    OutOfOrderSequence,
    SchemaMismatch,
    StoreError,
    TopicNotFound,
    TransactionAborted,
    TransactionConflict,
    TransactionHasFailedOperation,
    TransactionTimedOut,
    TxnLogError,
)
from txnlog.ids import TxnId
from txnlog.testing import ManualClock

# --- the plain way --------------------------------------------------------------------------------------------------


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


# --- commit and abort, again and again ------------------------------------------------------------------------------


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
    with Unchanged(place), raises(InvalidTransactionState, match="was committed"):
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


# --- flush ----------------------------------------------------------------------------------------------------------


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


# --- deadlines ------------------------------------------------------------------------------------------------------


@pytest.fixture
def timed(place: Place, clock: ManualClock) -> tuple[Any, ManualClock]:
    ns = place.open(clock=clock)
    ns.create_topic("orders", SCHEMA)
    return ns, clock


@pytest.mark.clause("P-64")
@pytest.mark.parametrize("flushed", [False, True])
@pytest.mark.parametrize("call", ["commit", "produce", "flush"])
def test_after_the_deadline_every_call_says_timed_out(timed: tuple[Any, ManualClock], flushed: bool, call: str) -> None:
    ns, clock = timed
    txn = ns.begin(timeout_ms=1_000)
    txn.produce("orders", rows(1))
    if flushed:
        txn.flush()
    clock.advance(1_000)
    with raises(TransactionTimedOut, match="deadline|timed out"):
        getattr(txn, call)(*(("orders", rows(2)) if call == "produce" else ()))
    with raises(TransactionTimedOut):
        txn.commit()
    assert txn.state == "ABORTED"
    assert (ns.transaction(txn.id).state, ns.transaction(txn.id).reason) == (
        ("ABORTED", "timeout") if flushed else ("UNKNOWN", None)
    )
    txn.abort()
    assert read(ns) == []


def test_just_before_the_deadline_it_commits(timed: tuple[Any, ManualClock]) -> None:
    ns, clock = timed
    txn = ns.begin(timeout_ms=1_000)
    clock.advance(100_000)  # the clock starts with the first work, not with begin
    txn.produce("orders", rows(1))
    clock.advance(999)
    txn.commit()
    assert read(ns) == [1]


def test_the_default_is_a_minute_and_the_log_shows_what_is_left(timed: tuple[Any, ManualClock]) -> None:
    ns, clock = timed
    txn = ns.begin()
    txn.produce("orders", rows(1))
    clock.advance(20_000)
    txn.flush()
    assert ns.transaction(txn.id).deadline_ms == START_MS + 60_000
    clock.advance(39_999)
    txn.commit()


def test_a_clock_that_jumps_back_does_not_lengthen_the_logged_timeout(timed: Any) -> None:
    ns, clock = timed
    txn = ns.begin(timeout_ms=60_000)
    txn.produce("orders", rows(1))
    clock.advance(-900_000)
    txn.flush()
    record = ns.connection.follower.state.transactions[txn.id.number]
    assert record.deadline_ms - record.opened_ms == 60_000
    txn.commit()


@pytest.mark.clause("P-64")
def test_a_transaction_that_others_ended_for_its_deadline_says_timed_out(
    timed: tuple[Any, ManualClock], place: Place
) -> None:
    ns, clock = timed
    slow = ManualClock(START_MS)  # the owner's clock stands still
    owner = place.open(clock=slow)
    txn = owner.begin(timeout_ms=1_000)
    txn.produce("orders", rows(1))
    txn.flush()
    clock.advance(7_000)
    ns.produce("orders", rows(2))
    with raises(TransactionTimedOut, match="timed out"):
        txn.commit()
    with raises(TransactionTimedOut):
        txn.produce("orders", rows(3))
    assert read(ns) == [2]


@pytest.mark.clause("P-64")
def test_a_deadline_that_passes_while_the_commit_races_is_kept(timed: tuple[Any, ManualClock], place: Place) -> None:
    ns, clock = timed
    owner, store = place.faulty(clock=clock)
    txn = owner.begin(timeout_ms=1_000)
    txn.produce("orders", rows(1))

    def rival() -> None:
        ns.produce("orders", rows(9))
        clock.advance(2_000)

    store.script.append(rival)
    with raises(TransactionTimedOut):
        txn.commit()
    assert read(ns) == [9]


@pytest.mark.clause("P-64")
def test_a_flushed_transaction_is_not_committed_after_its_deadline(memory: Place, clock: ManualClock) -> None:
    """The deadline passes while the commit loses a race."""
    ns, store = memory.faulty(clock=clock)
    ns.create_topic("orders", SCHEMA)
    rival = memory.open(clock=clock)
    txn = ns.begin(timeout_ms=10_000)
    txn.produce("orders", rows(1))
    txn.flush()

    def race() -> None:
        clock.advance(10_001)
        rival.produce("orders", rows(2))

    store.script.append(race)
    with pytest.raises(TransactionTimedOut):
        txn.commit()
    assert read(ns) == [2]


@pytest.mark.clause("P-58")
@pytest.mark.parametrize("timeout_ms", [0, -1, 900_001, 1.5, "60000", True, float("nan")])
def test_a_timeout_that_makes_no_sense_is_refused_at_begin(ns: Any, place: Place, timeout_ms: Any) -> None:
    with Unchanged(place), raises(InvalidInputError, match="timeout_ms"):
        ns.begin(timeout_ms=timeout_ms)
    assert ns.begin(timeout_ms=900_000).state == "OPEN"


# --- other hands ----------------------------------------------------------------------------------------------------


@pytest.mark.clause("P-55", "P-57")
@pytest.mark.parametrize("flushed", [False, True])
def test_an_administrators_abort_is_told_to_the_owner(ns: Any, place: Place, flushed: bool) -> None:
    admin = place.open()
    txn = ns.begin()
    txn.produce("orders", rows(1))
    if flushed:
        txn.flush()
    info = admin.abort(txn.id, by="ada", why="the job was lost")
    assert (info.state, info.reason) == ("ABORTED", "admin")
    with raises(TransactionAborted, match="admin") as caught:
        txn.commit()
    assert caught.value.reason == "admin"
    with raises(TransactionAborted):
        txn.produce("orders", rows(1))
    txn.abort()
    assert read(ns) == []
    assert ns.transaction(txn.id).reason == "admin"


@pytest.mark.clause("P-55")
def test_an_administrators_abort_comes_too_late(ns: Any, place: Place) -> None:
    txn = ns.begin()
    txn.produce("orders", rows(1))
    result = txn.commit()
    with Unchanged(place):
        info = place.open().abort(str(txn.id))
    assert (info.state, info.version) == ("COMMITTED", result.version)


@pytest.mark.clause("P-117")
def test_a_commit_that_races_an_abort_hears_what_the_log_says(memory: Place) -> None:
    ns, store = memory.faulty()
    admin = memory.open()
    ns.create_topic("orders", SCHEMA)
    txn = ns.begin()
    txn.produce("orders", rows(1))
    txn.flush()
    admin.snapshot()
    store.script.append(lambda: admin.abort(txn.id))
    with raises(TransactionAborted, match="admin"):
        txn.commit()
    assert read(ns) == []


# --- failed operations ----------------------------------------------------------------------------------------------


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


# --- idempotent batches ---------------------------------------------------------------------------------------------


@pytest.mark.clause("P-67", "P-69")
@pytest.mark.parametrize("flushed", [False, True])
def test_a_batch_that_was_committed_before_is_skipped(ns: Any, place: Place, flushed: bool) -> None:
    with ns.begin(txn_app_id="nightly", txn_version=7) as first:
        first.produce("orders", rows(1))
    assert ns.last_txn_version("nightly") == 7
    for version in (7, 6):
        again = place.open().begin(txn_app_id="nightly", txn_version=version)
        assert again.skipped
        again.produce("orders", rows(2))
        if flushed:
            again.flush()
        result = again.commit()
        assert result.skipped
        assert (result.version, result.txn_id) == (first.result.version, first.id)
        assert again.commit() is result
        assert again.state == "COMMITTED"
    assert ns.transactions(state="OPEN") == ()
    assert read(ns) == [1]
    with ns.begin(txn_app_id="nightly", txn_version=8) as next_one:
        assert not next_one.skipped
        next_one.produce("orders", rows(3))
    assert not next_one.result.skipped
    assert sorted(read(ns)) == [1, 3]


@pytest.mark.clause("P-69")
def test_an_empty_one_of_a_batch_that_was_committed_before_is_skipped_too(ns: Any, place: Place) -> None:
    with ns.begin(txn_app_id="job", txn_version=3) as first:
        first.produce("orders", rows(1))
    assert not first.skipped, "its own commit is none before it"
    with Unchanged(place), ns.begin(txn_app_id="job", txn_version=3) as again:
        assert again.skipped
    assert again.skipped
    assert (again.result.skipped, again.result.version) == (True, first.result.version)


def test_a_skipped_batch_writes_nothing(ns: Any, place: Place) -> None:
    with ns.begin(txn_app_id="nightly", txn_version=7) as txn:
        txn.produce("orders", rows(1))
    with Unchanged(place), ns.begin(txn_app_id="nightly", txn_version=7) as txn:
        txn.produce("orders", rows(1))
    assert txn.result.skipped


@pytest.mark.clause("P-67", "P-69")
def test_the_second_of_two_runs_finds_the_first_in_the_log(memory: Place) -> None:
    ns, store = memory.faulty()
    rival = memory.open()
    ns.create_topic("orders", SCHEMA)

    def run(client: Any, number: int) -> Any:
        txn = client.begin(txn_app_id="nightly", txn_version=1)
        txn.produce("orders", rows(number))
        return txn.commit()

    results: list[Any] = []
    store.script.append(lambda: results.append(run(rival, 1)))
    mine = run(ns, 2)
    assert mine.skipped
    assert mine.version == results[0].version
    assert read(ns) == [1]


@pytest.mark.clause("P-62")
def test_a_commit_whose_answer_was_lost_is_not_told_to_have_been_skipped(memory: Place) -> None:
    """A checkpoint let go of the outcome, and the application's version says that somebody brought it: ourselves."""
    ns, store = memory.faulty()
    ns.create_topic("orders", SCHEMA)
    ns.connection.appender.create_attempts = 1
    txn = ns.begin(txn_app_id="nightly", txn_version=3)
    txn.produce("orders", rows(1))
    store.script.extend(["broken-after"])
    store.reads.extend(["broken"])
    with pytest.raises(OutcomeUnknown):
        txn.commit()
    ns.produce("orders", rows(2))
    ns.checkpoint()
    result = txn.commit()
    assert not result.skipped
    assert result.offsets == {("orders", 0): range(1)}
    assert read(ns) == [1, 2]


@pytest.mark.clause("P-113")
def test_an_application_is_remembered_until_it_is_forgotten(ns: Any, place: Place) -> None:
    assert ns.last_txn_version("nightly") is None
    with ns.begin(txn_app_id="nightly", txn_version=0) as txn:
        txn.produce("orders", rows(1))
    ns.checkpoint()
    assert place.open().last_txn_version("nightly") == 0
    ns.forget_app("nightly")
    ns.forget_app("nightly")
    assert place.open().last_txn_version("nightly") is None
    with ns.begin(txn_app_id="nightly", txn_version=0) as txn:
        txn.produce("orders", rows(2))
    assert sorted(read(ns)) == [1, 2]


def test_an_empty_batch_does_not_move_the_application(ns: Any, place: Place) -> None:
    with Unchanged(place), ns.begin(txn_app_id="nightly", txn_version=3):
        pass
    assert ns.last_txn_version("nightly") is None


@pytest.mark.parametrize(
    ("options", "kind"),
    [
        ({"txn_app_id": "nightly"}, InvalidInputError),
        ({"txn_version": 1}, InvalidInputError),
        ({"txn_app_id": "nightly", "txn_version": -1}, InvalidInputError),
        ({"txn_app_id": "nightly", "txn_version": 1.0}, InvalidInputError),
        ({"txn_app_id": "nightly", "txn_version": True}, InvalidInputError),
        ({"txn_app_id": "nightly", "txn_version": 1 << 63}, InvalidInputError),
        ({"txn_app_id": "", "txn_version": 1}, NameNotAllowed),
        ({"txn_app_id": "a\nb", "txn_version": 1}, NameNotAllowed),
        ({"txn_app_id": 7, "txn_version": 1}, NameNotAllowed),
    ],
)
def test_half_an_application_or_none_is_refused_at_begin(ns: Any, options: Any, kind: Any) -> None:
    with raises(kind):
        ns.begin(**options)


# --- several at once ------------------------------------------------------------------------------------------------


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


# --- asking and ending from outside ---------------------------------------------------------------------------------


@pytest.mark.clause("P-57", "P-65")
def test_an_id_that_the_log_does_not_show_is_unknown_until_an_abort_makes_it_definite(ns: Any, place: Place) -> None:
    txn = ns.begin()
    txn.produce("orders", rows(1))
    with Unchanged(place):
        assert ns.transaction(txn.id).state == "UNKNOWN"
        assert ns.transaction(str(txn.id)).version is None
    other = place.open()
    assert other.abort(txn.id).state == "ABORTED"
    assert other.transaction(txn.id).state == "ABORTED"
    with raises(TransactionAborted):
        txn.commit()


@pytest.mark.parametrize("wrong", ["", "xyz", "0" * 31, "G" * 32, -7, None, b"0" * 32, "0" * 31 + "\n"])
def test_what_is_no_id_is_refused(ns: Any, place: Place, wrong: Any) -> None:
    for call in (ns.transaction, ns.abort):
        with Unchanged(place), raises(InvalidInputError):
            call(wrong)


def test_an_id_of_another_namespace_is_refused(ns: Any, place: Place) -> None:
    other = place.open("shipping")
    other.create_topic("orders", SCHEMA)
    txn = other.begin()
    for call in (ns.transaction, ns.abort):
        with Unchanged(place), raises(InvalidInputError, match="coordinator"):
            call(txn.id)


def test_a_number_that_was_never_given_out_cannot_be_aborted(ns: Any, place: Place) -> None:
    with Unchanged(place), raises(InvalidInputError, match="never"):
        ns.abort(TxnId(ns.connection.coordinator, 1 << 40))
    assert ns.transaction(TxnId(ns.connection.coordinator, 1 << 40)).state == "UNKNOWN"


def test_open_and_ended_transactions_are_listed(place: Place, clock: ManualClock) -> None:
    ns = place.open(clock=clock)
    ns.create_topic("orders", SCHEMA)
    done, dropped, open_one = ns.begin(), ns.begin(), ns.producer("loader").begin()
    for txn in (done, dropped, open_one):
        txn.produce("orders", rows(1))
        txn.flush()
    done.commit()
    dropped.abort()
    clock.advance(500)
    listed = {info.txn_id: info.state for info in ns.transactions()}
    assert listed == {done.id: "COMMITTED", dropped.id: "ABORTED", open_one.id: "OPEN"}
    (info,) = ns.transactions(state="OPEN")
    assert (info.producer, info.age_ms) == ("loader", 500)
    assert ns.transactions(min_age_ms=501) == ()
    assert len(ns.transactions(min_age_ms=500)) == 1
    assert "OPEN" in ns.transactions()._repr_html_()
    with raises(InvalidInputError, match="OPNE"):
        ns.transactions(state="OPNE")
    for wrong in ("1", -1, 0.5, True):
        with raises(InvalidInputError, match="min_age_ms"):
            ns.transactions(min_age_ms=wrong)


@pytest.mark.parametrize("text", ["", "a\x00b", "x" * 257, 5])
def test_who_and_why_of_an_abort_are_labels(ns: Any, place: Place, text: Any) -> None:
    txn = ns.begin()
    for options in ({"by": text}, {"why": text}):
        with Unchanged(place), raises(NameNotAllowed):
            ns.abort(txn.id, **options)


# --- what a transaction looks like ----------------------------------------------------------------------------------


def test_a_transaction_and_its_result_have_a_short_repr(ns: Any) -> None:
    txn = ns.begin()
    txn.produce("orders", pa.table({"id": [1], "name": ["secret"]}))
    assert repr(txn) == f"Transaction({txn.id}, OPEN)"
    assert "secret" not in repr(txn.commit())
    assert str(txn.id) in txn.result._repr_html_()


def test_a_transaction_that_is_let_go_leaves_nothing_in_memory(ns: Any) -> None:
    for _ in range(10):
        txn = ns.begin()
        txn.produce("orders", rows(1))
        del txn
    gc.collect()
    assert not [item for item in gc.get_objects() if isinstance(item, transaction.Transaction)]


def test_the_number_that_an_error_names_stands_for_the_transaction(ns: Any) -> None:
    with ns.begin() as txn:
        txn.produce("orders", rows(1))
    for known in (txn.id, str(txn.id), txn.id.number, str(txn.id.number)):
        assert ns.transaction(known).state == "COMMITTED"
    for wrong in (True, -1, 1 << 64, "7x"):
        with raises(InvalidInputError):
            ns.transaction(wrong)


def _pending_elsewhere(ns: Any, txn: Any, *, cumulative: bool) -> None:
    messages = ns.consumer("orders", "billing").receive(timeout_ms=0)
    txn.acknowledge(messages, cumulative=cumulative)
    ns.begin().acknowledge(messages, cumulative=cumulative)


def _held_by_prepared(ns: Any, txn: Any) -> None:
    txn.prepare()
    rival = ns.begin(txn_app_id="nightly", txn_version=2)
    rival.produce("orders", rows(2))
    rival.commit()


def _ended_by_log(ns: Any, txn: Any, **options: Any) -> None:
    txn.flush()
    ns.abort(txn.id, **options)
    txn.commit()


def _decided_twice(ns: Any, txn: Any) -> None:
    ns.complete(txn.prepare(), commit=True)
    ns.complete(txn.id, commit=False)


@pytest.mark.parametrize(
    "call",
    [
        partial(_pending_elsewhere, cumulative=False),
        partial(_pending_elsewhere, cumulative=True),
        _held_by_prepared,
        _ended_by_log,
        _decided_twice,
        lambda ns, txn: ns.abort(txn.prepare()),
        lambda ns, txn: (txn.flush(), ns.complete(txn.id, commit=True)),
        lambda ns, txn: ns.complete(txn.id, commit=True),
        lambda _, txn: (txn.prepare(), txn.commit()),
    ],
)
def test_an_error_that_names_a_transaction_shows_its_txn_id(memory: Place, call: Any) -> None:
    memory.open("first")
    ns = memory.open("second")
    ns.create_topic("orders", SCHEMA)
    ns.produce("orders", rows(0))
    txn = ns.begin(txn_app_id="nightly", txn_version=1)
    txn.produce("orders", rows(1))
    with pytest.raises(TxnLogError, match=f"transaction {txn.id}") as caught:
        call(ns, txn)
    assert str(txn.id).startswith("0001"), "of the second namespace"
    assert not re.search(r"transaction [0-9]{1,19}\b", str(caught.value))


def test_a_timeout_shows_the_txn_id(memory: Place, clock: ManualClock) -> None:
    ns, other = memory.open(clock=clock), memory.open(clock=clock)
    ns.create_topic("orders", SCHEMA)
    for flushed in (False, True):
        txn = ns.begin(timeout_ms=1_000)
        txn.produce("orders", rows(1))
        if flushed:
            txn.flush()
        clock.advance(10_000)
        other.produce("orders", rows(2))
        if flushed:
            ns.snapshot()
        with raises(TransactionTimedOut, match=f"transaction {txn.id}"):
            txn.commit()
