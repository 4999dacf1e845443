"""What is in doubt around a prepare: the call itself, or the decision; and what is said of it, whatever comes then."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any

import pytest

from tests.client.support import FaultyStore, Place, begun, prepared, raises, read, rows
from txnlog.errors import (
    Durable,
    InvalidInputError,
    InvalidTransactionState,
    OutcomeUnknown,
    StoreError,
    TransactionAborted,
    TransactionConflict,
    TransactionHasFailedOperation,
    TxnLogError,
)
from txnlog.format.keys import kind_of
from txnlog.testing import ManualClock
from txnlog.testing.scheduler import START_MS


@pytest.fixture
def faulty(memory: Place) -> tuple[Any, FaultyStore]:
    """A namespace whose store misbehaves when told; the handle gives up after two puts."""
    ns, store = memory.faulty_orders()
    ns.begin()  # takes its first block of numbers
    ns._connection.appender.create_attempts = 2
    return ns, store


def in_doubt(ns: Any, store: FaultyStore, fate: str) -> Any:
    """A transaction whose prepare got no answer."""
    txn = begun(ns, 1)
    store.script.extend([fate, "dropped"])
    store.reads.extend(["broken", "broken"])
    with raises(OutcomeUnknown, durable=Durable.MAYBE) as caught:
        txn.prepare()
    assert caught.value.txn_ids == (str(txn.id),)
    assert "prepare() again" in str(caught.value)
    return txn


@pytest.mark.parametrize("call", ["commit", "commit_async", "flush"])
def test_while_prepare_is_unknown_only_prepare_and_abort_are_allowed(faulty: Any, call: str) -> None:
    ns, store = faulty
    txn = in_doubt(ns, store, "lost")
    durable = Durable.NOTHING if call == "flush" else Durable.MAYBE
    with raises(InvalidTransactionState, match=r"outcome of prepare\(\) of .* is unknown", durable=durable):
        getattr(txn, call)() if call != "commit_async" else txn.commit_async().result(20)
    assert txn.prepare() == str(txn.id)


def test_a_block_that_ends_with_prepare_of_unknown_outcome_leaves_it_to_be_asked_for(
    faulty: Any, memory: Place
) -> None:
    ns, store = faulty
    store.script.extend(["lost", "dropped"])
    store.reads.extend(["broken", "broken"])
    with raises(OutcomeUnknown, durable=Durable.MAYBE), ns.begin() as txn:
        txn.produce("orders", rows(1))
        txn.prepare()
    assert memory.open().transaction(txn.id).state == "PREPARED"


@pytest.mark.parametrize("commit", [True, False])
@pytest.mark.parametrize("forgotten", [False, True])
def test_a_decision_that_came_while_prepare_was_unknown_is_reported(
    faulty: Any, memory: Place, commit: bool, forgotten: bool
) -> None:
    ns, store = faulty
    txn = in_doubt(ns, store, "lost")
    other = memory.open()
    other.complete(str(txn.id), commit=commit)
    if forgotten:
        other.checkpoint()
        other.produce("orders", rows(9))
        ns.snapshot()
        ns._connection.follower.adopt_checkpoint()
        assert txn.id.number not in ns._connection.follower.state.outcomes
    with raises(InvalidTransactionState if commit else TransactionAborted):
        txn.prepare()
    assert txn.state == ("COMMITTED" if commit else "ABORTED")


def test_a_prepare_of_unknown_outcome_that_lost_to_a_conflict_can_only_be_aborted(memory: Place, faulty: Any) -> None:
    ns, store = faulty
    txn = begun(ns, 1, txn_app_id="nightly", txn_version=1)
    store.script.extend(["dropped", "dropped"])
    store.reads.extend(["broken", "broken"])
    with raises(OutcomeUnknown, durable=Durable.MAYBE):
        txn.prepare()
    other = memory.open()
    token = prepared(other, 2, txn_app_id="nightly", txn_version=1)
    with raises(TransactionConflict):
        txn.prepare()
    with raises(TransactionHasFailedOperation):
        txn.commit()
    other.complete(token, commit=True)
    assert read(ns) == [2]


@pytest.mark.clause("P-118", "P-146")
@pytest.mark.parametrize("fate", ["lost", "dropped", "late"])
@pytest.mark.parametrize("commit", [True, False])
def test_a_decision_of_unknown_outcome_can_be_repeated(faulty: Any, memory: Place, fate: str, commit: bool) -> None:
    ns, store = faulty
    token = prepared(ns, 1)
    store.script.extend([fate, "dropped"])
    store.reads.extend(["broken", "broken"])
    with raises(OutcomeUnknown, match="complete\\(\\) again|did not say", durable=Durable.MAYBE) as caught:
        ns.complete(token, commit=commit)
    assert "call ns.complete(token, commit=...) again" in caught.value.advice
    other = memory.open()
    assert (other.complete(token, commit=commit) is not None) == commit
    store.land()
    assert (ns.complete(token, commit=commit) is not None) == commit
    assert read(ns) == ([1] if commit else [])


# --- a call behind it that is refused -------------------------------------------------------------------------------


class _Clock(ManualClock):
    broken = False

    def now_ms(self) -> int:
        return super().now_ms() if not self.broken else 1.5  # type: ignore[return-value]


def unheard(ns: Any, store: FaultyStore, call: Callable[[], object]) -> None:
    """The call's entry is in the log, and nobody heard of it."""
    ns._connection.appender.create_attempts = 1
    store.forever, store.reads_forever = "broken-after", "broken"
    with raises(OutcomeUnknown, durable=Durable.MAYBE):
        call()
    store.heal()


def test_a_prepare_behind_a_commit_of_unknown_outcome_is_refused_and_does_not_say_that_nothing_was_written(
    faulty: Any,
) -> None:
    ns, store = faulty
    txn = begun(ns, 1)
    unheard(ns, store, txn.commit)
    with raises(InvalidTransactionState, match="the outcome of the commit of .* is unknown", durable=Durable.MAYBE):
        txn.prepare()
    assert txn.commit().offsets == {("orders", 0): range(1)}


@pytest.mark.clause("P-118", "P-203")
@pytest.mark.parametrize("then", ["look", "abort", "produce", "block"])
def test_a_refusal_that_says_nothing_of_a_prepare_of_unknown_outcome_leaves_it_unknown(
    memory: Place, then: str
) -> None:
    """The log shows it PREPARED: without a deadline, and what it took is held until somebody decides."""
    clock = _Clock(START_MS)
    ns, store = memory.faulty_orders(clock=clock)
    block = ns.begin()
    with contextlib.suppress(InvalidInputError), block as txn:
        txn.produce("orders", rows(1))
        unheard(ns, store, txn.prepare)
        ns.produce("orders", rows(5))  # settles it: the log is known again
        clock.broken = True
        try:
            with raises(InvalidInputError, match="the clock", durable=Durable.MAYBE):
                txn.prepare()
            if then == "block":
                raise InvalidInputError("something of the user's")
        finally:
            clock.broken = False
        if then == "produce":
            with raises(InvalidTransactionState):
                txn.produce("orders", rows(2))
        if then == "abort":
            txn.abort()
    state = memory.open(mode="r").transaction(block.id).state
    if then == "abort":
        assert (block.state, state) == ("ABORTED", "ABORTED")
    else:
        assert state == "PREPARED"
        assert block.state != "ABORTED"


@pytest.mark.clause("P-118")
@pytest.mark.parametrize("end", ["prepare", "commit", "abort"])
@pytest.mark.parametrize("known", ["unreadable", "forgotten"])
def test_what_was_unknown_and_ended_elsewhere_is_not_said_to_be_nothing(
    memory: Place, clock: ManualClock, end: str, known: str
) -> None:
    ns, store = memory.faulty_orders(clock=clock)
    txn = begun(ns, 1)
    unheard(ns, store, txn.prepare if end == "prepare" else txn.commit)
    other = memory.open(clock=clock)
    if end == "prepare":
        other.complete(str(txn.id), commit=True)
    for number in range(12 if known == "forgotten" else 1):
        clock.advance(86_400_000 if known == "forgotten" else 1)
        other.produce("orders", rows(100 + number))
        other.checkpoint()
    other.produce("orders", rows(9))
    ns.produce("orders", rows(9))
    if known == "forgotten":
        ns.checkpoint()
    ns._connection.follower.adopt_checkpoint()
    get = store.get

    def without_parts(key: str) -> bytes:
        if known == "unreadable" and kind_of(key) == "checkpoint":
            raise StoreError("read timed out")
        return get(key)

    store.get = without_parts  # type: ignore[method-assign]
    with pytest.raises(TxnLogError) as failure:
        getattr(txn, end)()
    assert failure.value.durable is Durable.MAYBE
    assert txn.state != "ABORTED"
    store.get = get  # type: ignore[method-assign]
    assert 1 in read(ns)
