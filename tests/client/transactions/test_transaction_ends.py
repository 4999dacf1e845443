"""A transaction that its deadline or other hands end, and what is told of it by its id."""

from __future__ import annotations

import gc
import re
from functools import partial
from typing import Any

import pyarrow as pa
import pytest

from tests.client.support import SCHEMA, Place, Unchanged, begun, committed, raises, read, rows
from txnlog.api import transaction
from txnlog.common.ids import TxnId
from txnlog.errors import (
    Durable,
    InvalidInputError,
    InvalidTransactionState,
    NameNotAllowed,
    TransactionAborted,
    TransactionTimedOut,
    TxnLogError,
)
from txnlog.testing import ManualClock
from txnlog.testing.scheduler import START_MS

# --- deadlines -------------------------------------------------------------------------------------------------------


@pytest.fixture
def timed(place: Place, clock: ManualClock) -> tuple[Any, ManualClock]:
    ns = place.orders(clock=clock)
    return ns, clock


@pytest.mark.clause("P-64")
@pytest.mark.parametrize("flushed", [False, True])
@pytest.mark.parametrize("call", ["commit", "produce", "flush", "prepare"])
def test_after_the_deadline_every_call_says_timed_out(timed: tuple[Any, ManualClock], flushed: bool, call: str) -> None:
    ns, clock = timed
    txn = begun(ns, 1, flush=flushed, timeout_ms=1_000)
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
    txn = begun(ns, 1)
    clock.advance(20_000)
    txn.flush()
    assert ns.transaction(txn.id).deadline_ms == START_MS + 60_000
    clock.advance(39_999)
    txn.commit()


def test_a_clock_that_jumps_back_does_not_lengthen_the_logged_timeout(timed: Any) -> None:
    ns, clock = timed
    txn = begun(ns, 1, timeout_ms=60_000)
    clock.advance(-900_000)
    txn.flush()
    record = ns._connection.follower.state.transactions[txn.id.number]
    assert record.deadline_ms - record.opened_ms == 60_000
    txn.commit()


@pytest.mark.clause("P-64")
def test_a_transaction_that_others_ended_for_its_deadline_says_timed_out(
    timed: tuple[Any, ManualClock], place: Place
) -> None:
    ns, clock = timed
    slow = ManualClock(START_MS)  # the owner's clock stands still
    owner = place.open(clock=slow)
    txn = begun(owner, 1, flush=True, timeout_ms=1_000)
    clock.advance(7_000)
    ns.produce("orders", rows(2))
    with raises(TransactionTimedOut, match="timed out"):
        txn.commit()
    with raises(TransactionTimedOut):
        txn.produce("orders", rows(3))
    assert read(ns) == [2]


@pytest.mark.clause("P-64")
@pytest.mark.parametrize("flushed", [False, True])
def test_a_deadline_that_passes_while_the_commit_races_is_kept(
    timed: tuple[Any, ManualClock], place: Place, flushed: bool
) -> None:
    ns, clock = timed
    owner, store = place.faulty(clock=clock)
    txn = begun(owner, 1, flush=flushed, timeout_ms=1_000)

    def rival() -> None:
        ns.produce("orders", rows(9))
        clock.advance(2_000)

    store.script.append(rival)
    with raises(TransactionTimedOut):
        txn.commit()
    assert read(ns) == [9]


# --- other hands -----------------------------------------------------------------------------------------------------


@pytest.mark.clause("P-55", "P-57")
@pytest.mark.parametrize("flushed", [False, True])
def test_an_administrators_abort_is_reported_to_the_owner(ns: Any, place: Place, flushed: bool) -> None:
    admin = place.open()
    txn = begun(ns, 1, flush=flushed)
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


@pytest.mark.clause("P-117")
def test_a_commit_that_races_an_abort_hears_what_the_log_says(memory: Place) -> None:
    ns, store = memory.faulty()
    admin = memory.open()
    ns.create_topic("orders", SCHEMA)
    txn = begun(ns, 1, flush=True)
    admin.snapshot()
    store.script.append(lambda: admin.abort(txn.id))
    with raises(TransactionAborted, match="admin"):
        txn.commit()
    assert read(ns) == []


# --- asking and ending from outside ----------------------------------------------------------------------------------


@pytest.mark.clause("P-57", "P-65")
def test_an_id_that_the_log_does_not_show_is_unknown_until_an_abort_makes_it_definite(ns: Any, place: Place) -> None:
    txn = begun(ns, 1)
    with Unchanged(place):
        assert ns.transaction(txn.id).state == "UNKNOWN"
        assert ns.transaction(str(txn.id)).version is None
    other = place.open()
    assert other.abort(txn.id).state == "ABORTED"
    assert other.transaction(txn.id).state == "ABORTED"
    with raises(TransactionAborted):
        txn.commit()


@pytest.mark.parametrize("wrong", ["", "xyz", "0" * 31, "G" * 32, "f" * 32, -7, None, b"0" * 32, "0" * 31 + "\n"])
def test_what_is_no_id_is_refused(ns: Any, place: Place, wrong: Any) -> None:
    for call in (ns.transaction, ns.abort, partial(ns.complete, commit=True)):
        with Unchanged(place), raises(InvalidInputError):
            call(wrong)


def test_an_id_of_another_namespace_is_refused(ns: Any, place: Place) -> None:
    other = place.orders(namespace="shipping")
    txn = other.begin()
    for call in (ns.transaction, ns.abort):
        with Unchanged(place), raises(InvalidInputError, match="coordinator"):
            call(txn.id)


def test_a_number_that_was_never_given_out_cannot_be_aborted(ns: Any, place: Place) -> None:
    with Unchanged(place), raises(InvalidInputError, match="never"):
        ns.abort(TxnId(ns._connection.coordinator, 1 << 40))
    assert ns.transaction(TxnId(ns._connection.coordinator, 1 << 40)).state == "UNKNOWN"


def test_open_and_ended_transactions_are_listed(place: Place, clock: ManualClock) -> None:
    ns = place.orders(clock=clock)
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


# --- what a transaction looks like -----------------------------------------------------------------------------------


def test_a_transaction_and_its_result_have_a_short_repr(ns: Any) -> None:
    txn = ns.begin()
    txn.produce("orders", pa.table({"id": [1], "name": ["secret"]}))
    assert repr(txn) == f"Transaction({txn.id}, OPEN)"
    assert "secret" not in repr(txn.commit())
    assert str(txn.id) in txn.result._repr_html_()


def test_a_transaction_that_is_let_go_leaves_nothing_in_memory(ns: Any) -> None:
    def in_memory() -> int:
        gc.collect()
        return len([item for item in gc.get_objects() if isinstance(item, transaction.Transaction)])

    before = in_memory()  # what other tests left, an error's traceback perhaps
    for _ in range(10):
        txn = begun(ns, 1)
        del txn
    assert in_memory() <= before


def test_a_part_of_a_txn_id_stands_for_no_transaction(ns: Any) -> None:
    """Text of few digits is what somebody typed of a TxnID, which is hexadecimal: it would be another transaction."""
    txn = committed(ns, 1)
    for known in (txn.id, str(txn.id)):
        assert ns.transaction(known).state == "COMMITTED"
    for wrong in (True, -1, 1 << 64, txn.id.number, "7x", str(txn.id.number), str(txn.id)[-4:]):
        with raises(InvalidInputError):
            ns.transaction(wrong)


def _pending_elsewhere(ns: Any, txn: Any, *, cumulative: bool) -> None:
    messages = ns.consumer("orders", "billing").receive(timeout_ms=0)
    txn.acknowledge(messages, cumulative=cumulative)
    ns.begin().acknowledge(messages, cumulative=cumulative)


def _held_by_prepared(ns: Any, txn: Any) -> None:
    txn.prepare()
    rival = begun(ns, 2, txn_app_id="nightly", txn_version=2)
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
    ns = memory.orders(0, namespace="second")
    txn = begun(ns, 1, txn_app_id="nightly", txn_version=1)
    with pytest.raises(TxnLogError, match=f"transaction {txn.id}") as caught:
        call(ns, txn)
    assert str(txn.id).startswith("0001"), "of the second namespace"
    assert not re.search(r"transaction [0-9]{1,19}\b", str(caught.value))


def test_a_timeout_shows_the_txn_id(memory: Place, clock: ManualClock) -> None:
    ns, other = memory.open(clock=clock), memory.open(clock=clock)
    ns.create_topic("orders", SCHEMA)
    for flushed in (False, True):
        txn = begun(ns, 1, flush=flushed, timeout_ms=1_000)
        clock.advance(10_000)
        other.produce("orders", rows(2))
        if flushed:
            ns.snapshot()
        with raises(TransactionTimedOut, match=f"transaction {txn.id}"):
            txn.commit()


# --- which transaction is meant ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("call", ["abort", "transaction", "complete"])
@pytest.mark.parametrize("given", [0, 7, True, "7", object()])
def test_a_number_alone_is_no_txn_id_of_any_call(ns: Any, place: Place, call: str, given: Any) -> None:
    """Another namespace has a transaction of that number as well, and an abort is final."""
    options = {"commit": True} if call == "complete" else {}
    with Unchanged(place), raises(InvalidInputError, durable=Durable.NOTHING) as caught:
        getattr(ns, call)(given, **options)
    if given == 7:
        assert f"'{ns._connection.txn_id(7)}'" in caught.value.advice


def test_a_txn_id_that_nobody_was_given_is_refused_and_one_that_is_reserved_is_aborted_for_ever(
    ns: Any, place: Place
) -> None:
    taken = ns.begin().id
    with Unchanged(place), raises(InvalidInputError, match="never given to a writer"):
        ns.abort(TxnId(taken.coordinator, 10**12))
    reserved = TxnId(taken.coordinator, taken.number + 7)
    assert ns.abort(reserved).state == "ABORTED"
    assert reserved not in [ns.begin().id for _ in range(20)]


def test_complete_answers_by_the_outcome_of_one_that_was_not_prepared(ns: Any, place: Place) -> None:
    """The log does not remember whether it was: the decision that is asked for stands, or the other one."""
    committed_one, aborted_one = begun(ns, 1), begun(ns, 2)
    result = committed_one.commit()
    aborted_one.flush()
    aborted_one.abort()
    with Unchanged(place):
        assert place.open().complete(committed_one.id, commit=True) == result
        assert ns.complete(aborted_one.id, commit=False) is None
        for txn, commit in ((committed_one, False), (aborted_one, True)):
            with raises(InvalidTransactionState, match="the first decision stands"):
                ns.complete(txn.id, commit=commit)
