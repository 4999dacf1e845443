"""Two-phase commit with an outside system: prepare, then the decision, from whichever process brings it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.client.support import (
    SCHEMA,
    TXN_CALLS,
    Place,
    Unchanged,
    begun,
    committed,
    holding,
    ids,
    prepared,
    raises,
    read,
    rows,
)
from txnlog.api.internals import set_stream
from txnlog.errors import (
    ConsumerFenced,
    Durable,
    InvalidInputError,
    InvalidTransactionState,
    OutOfOrderSequence,
    ProducerFenced,
    SubscriptionNotFound,
    TopicNotFound,
    TransactionAborted,
    TransactionHasFailedOperation,
    TransactionNotFound,
)
from txnlog.format.actions import StreamBatch
from txnlog.testing import ManualClock
from txnlog.testing.scheduler import START_MS


@pytest.fixture
def timed(memory: Place, clock: ManualClock) -> Any:
    """A namespace with the topics ``orders`` and ``audit``, and a clock to move."""
    ns = memory.orders(clock=clock)
    ns.create_topic("audit", SCHEMA)
    return ns


# --- the plain way --------------------------------------------------------------------------------------------------


@pytest.mark.clause("P-145", "P-146", "P-102")
@pytest.mark.parametrize("flushed", [False, True])
def test_a_prepared_transaction_is_durable_invisible_and_committed_by_any_process(place: Place, flushed: bool) -> None:
    ns = place.orders()
    ns.create_topic("audit", SCHEMA)
    before = ns.snapshot().version
    with ns.begin() as txn:
        txn.produce("orders", rows(1, 2))
        if flushed:
            txn.flush()
        txn.produce("audit", rows(3))
        token = txn.prepare()
    assert (token, txn.state, txn.result) == (str(txn.id), "PREPARED", None)
    assert ns.snapshot().version == before + 1 + flushed, "one entry, with all that was not logged"
    ns.close()

    other = place.open()
    assert [str(item.txn_id) for item in other.transactions(state="PREPARED")] == [token]
    assert other.transaction(token).state == "PREPARED"
    other.produce("orders", rows(9))
    assert (read(other), read(other, "audit")) == ([9], []), "it delays nobody"
    result = other.complete(token, commit=True)
    assert (str(result.txn_id), result.version) == (token, other.snapshot().version)
    assert result.offsets == {("orders", 0): range(1, 3), ("audit", 0): range(1)}
    assert (read(other), read(other, "audit")) == ([9, 1, 2], [3])
    assert other.transactions(state="PREPARED") == ()


@pytest.mark.clause("P-146")
@pytest.mark.parametrize("commit", [True, False])
@pytest.mark.parametrize("forgotten", [False, True])
def test_a_decision_can_be_repeated_and_not_turned_around(memory: Place, commit: bool, forgotten: bool) -> None:
    """``forgotten``: only a checkpoint remembers the outcome."""
    ns = memory.orders()
    token = prepared(ns, 1)
    first = ns.complete(token, commit=commit)
    if forgotten:
        ns.checkpoint()
        assert ns._connection.follower.state.outcomes == {}
    for handle in (ns, memory.open()):
        with Unchanged(memory):
            assert handle.complete(token, commit=commit) == first
            with raises(InvalidTransactionState, match="COMMITTED" if commit else "ABORTED"):
                handle.complete(token, commit=not commit)
        assert read(handle) == ([1] if commit else [])


@pytest.mark.clause("P-145")
def test_an_empty_transaction_can_be_prepared_and_found(ns: Any, place: Place) -> None:
    token = ns.begin().prepare()
    other = place.open()
    assert other.transaction(token).state == "PREPARED"
    assert other.complete(token, commit=True).offsets == {}


@pytest.mark.clause("P-59")
@pytest.mark.parametrize(
    "call",
    [
        lambda txn: txn.produce("orders", rows(2)),
        lambda txn: txn.flush(),
        lambda txn: txn.commit(),
        lambda txn: txn.commit_async().result(10),
        lambda txn: txn.abort(),
    ],
)
def test_the_owner_can_do_nothing_more_with_it(ns: Any, place: Place, call: Any) -> None:
    txn = begun(ns, 1)
    token = txn.prepare()
    with Unchanged(place), raises(InvalidTransactionState, match="PREPARED") as caught:
        assert txn.prepare() == token
        call(txn)
    assert "ns.complete" in str(caught.value)
    assert token in str(caught.value)
    assert txn.state == "PREPARED"
    ns.complete(token, commit=True)
    assert read(ns) == [1]


@pytest.fixture(params=["here", "elsewhere", "forgotten"])
def decided(request: pytest.FixtureRequest, memory: Place) -> Any:
    """A way to a prepared transaction that was decided here, elsewhere, or so long ago that a checkpoint knows it."""
    ns = memory.orders()

    def decide(call: Callable[[Any, Any], object]) -> Any:
        txn = begun(ns, 1)
        txn.prepare()
        other = ns if request.param == "here" else memory.open()
        call(other, txn.id)
        if request.param == "forgotten":
            other.checkpoint()
            other.produce("orders", rows(9))
            ns.snapshot()
            ns._connection.follower.adopt_checkpoint()
            assert txn.id.number not in ns._connection.follower.state.outcomes
        return txn

    return decide


@pytest.mark.clause("P-59", "P-146")
@pytest.mark.parametrize("first", ["commit", "commit_async", "produce", "flush", "abort"])
def test_the_owner_of_what_others_committed_gets_the_result(decided: Any, memory: Place, first: str) -> None:
    told: list[Any] = []
    txn = decided(lambda ns, token: told.append(ns.complete(token, commit=True)))
    with Unchanged(memory):
        if first == "commit_async":
            assert txn.commit_async().result(10) == told[0]
        elif first != "commit":
            with raises(InvalidTransactionState, match="was committed at version"):
                TXN_CALLS.get(first, lambda txn, _: txn.abort())(txn, None)
        assert [txn.commit(), txn.result, txn.commit()] == told * 3
        assert txn.state == "COMMITTED"
        with raises(InvalidTransactionState, match="was committed"):
            txn.abort()


@pytest.mark.clause("P-59", "P-146")
@pytest.mark.parametrize("first", ["commit", "commit_async", "produce", "flush", "abort"])
@pytest.mark.parametrize("reason", ["user", "admin"])
def test_the_owner_of_what_others_aborted_is_notified(decided: Any, memory: Place, first: str, reason: str) -> None:
    force = reason == "admin"
    txn = decided(lambda ns, token: ns.abort(token, force=True) if force else ns.complete(token, commit=False))
    with Unchanged(memory):
        if first == "abort":
            with txn:
                txn.abort()  # its own wish too: the block ends without an error
        else:
            with raises(TransactionAborted, match=reason) as caught:
                TXN_CALLS[first](txn, None)
            assert caught.value.reason == reason
        with raises(InvalidTransactionState if first == "abort" else TransactionAborted, match="aborted"):
            txn.commit()
        assert txn.state == "ABORTED"
        txn.abort()


@pytest.mark.parametrize("commit", [True, False])
def test_the_state_of_a_prepared_one_is_what_its_client_knows_and_asks_for_nothing(memory: Place, commit: bool) -> None:
    ns, counting = memory.counted()
    ns.create_topic("orders", SCHEMA)
    txn = begun(ns, 1)
    memory.open().complete(txn.prepare(), commit=commit)
    counting.reset()
    assert (txn.state, counting.counts()) == ("PREPARED", {})
    ns.snapshot()
    counting.reset()
    known = "COMMITTED" if commit else "ABORTED"
    assert (txn.state, repr(txn), counting.counts()) == (known, f"Transaction({txn.id}, {known})", {})
    ns.close()
    assert txn.state in {known, "PREPARED"}, "no error: a handle that was closed may not know"


def test_a_prepared_one_whose_end_nobody_remembers_may_have_been_committed(ns: Any) -> None:
    txn = begun(ns, 1)
    ns.complete(txn.prepare(), commit=True)
    del ns._connection.follower.state.outcomes[txn.id.number]  # as after the retention of outcomes
    for call in (txn.commit, txn.abort, txn.flush):
        with raises(TransactionNotFound, match="no outcome", durable=Durable.MAYBE):
            call()


def test_an_exception_after_prepare_does_not_end_it(ns: Any) -> None:
    with pytest.raises(ZeroDivisionError):
        _fail_after_prepare(ns)
    (info,) = ns.transactions(state="PREPARED")
    ns.complete(info.txn_id, commit=True)
    assert read(ns) == [1]


def _fail_after_prepare(ns: Any) -> None:
    with ns.begin() as txn:
        txn.produce("orders", rows(1))
        txn.prepare()
        raise ZeroDivisionError


# --- no timeout, no fence -------------------------------------------------------------------------------------------


@pytest.mark.clause("P-59", "P-60")
def test_a_prepared_transaction_never_times_out(timed: Any, memory: Place, clock: ManualClock) -> None:
    token = prepared(timed, 1, timeout_ms=1_000)
    assert timed.transaction(token).deadline_ms is None
    clock.advance(30 * 24 * 3_600_000)
    timed.produce("audit", rows(7))  # whoever appends ends what is overdue
    assert timed.transaction(token).state == "PREPARED"
    memory.open(clock=clock).complete(token, commit=True)
    assert read(timed) == [1]


@pytest.mark.clause("P-48", "P-60", "P-146")
def test_a_new_producer_of_the_name_keeps_it_and_the_decision_is_not_fenced(ns: Any, place: Place) -> None:
    old = ns.producer("loader")
    with old.begin() as txn:
        txn.produce("orders", rows(1), partition=0, sequence=0)
        token = txn.prepare()
    lost = begun(old, 2, flush=True)
    new = place.open().producer("loader")
    with raises(ProducerFenced):
        lost.commit()
    (info,) = ns.transactions(state="PREPARED")
    assert (str(info.txn_id), info.producer) == (token, "loader")
    result = ns.complete(token, commit=True)
    assert result.offsets == {("orders", 0): range(1)}
    assert new.last_sequence("orders", 0) == 0


@pytest.mark.clause("P-59")
def test_an_administrator_needs_force(ns: Any, place: Place) -> None:
    token = prepared(ns, 1)
    other = place.open()
    with Unchanged(place), raises(InvalidTransactionState, match="PREPARED"):
        other.abort(token)
    assert other.abort(token, by="ada", why="the other system is gone", force=True).reason == "admin"
    with raises(InvalidTransactionState, match="ABORTED at version .* \\(admin\\)"):
        ns.complete(token, commit=True)
    assert ns.complete(token, commit=False) is None


# --- what it holds --------------------------------------------------------------------------------------------------


@pytest.fixture
def received(sales: Any) -> tuple[Any, Any, Any]:
    """A namespace with three messages, a consumer, and what it received: two of them."""
    sales.produce("orders", rows(1, 2, 3))
    consumer = sales.consumer("orders", "billing")
    return sales, consumer, consumer.receive(2, timeout_ms=0)


def test_its_acknowledgements_stay_pending_over_a_takeover_until_the_commit(
    received: tuple[Any, Any, Any], memory: Place
) -> None:
    ns, _, messages = received
    with ns.begin() as txn:
        txn.acknowledge(messages)
        token = txn.prepare()
    other = memory.open()
    taker = other.consumer("orders", "billing")
    assert ids(taker.receive(timeout_ms=0).table) == [3], "the prepared ones are skipped"
    assert other.subscription("orders", "billing").cursors[0].pending == 2
    other.complete(token, commit=True)
    (cursor,) = ns.subscription("orders", "billing").cursors
    assert (cursor.cursor, cursor.pending) == (2, 0)


@pytest.mark.parametrize("decided_here", [True, False])
def test_after_the_abort_its_messages_are_delivered_again(
    received: tuple[Any, Any, Any], memory: Place, decided_here: bool
) -> None:
    ns, consumer, messages = received
    with ns.begin() as txn:
        txn.acknowledge(messages)
        token = txn.prepare()
    assert ids(consumer.receive(timeout_ms=0).table) == [3]
    assert len(consumer.receive(timeout_ms=0)) == 0
    (ns if decided_here else memory.open()).complete(token, commit=False)
    assert ids(consumer.receive(timeout_ms=0).table) == [1, 2]


@pytest.mark.clause("P-53")
def test_its_sequences_are_held(ns: Any) -> None:
    producer = ns.producer("loader")
    with producer.begin() as txn:
        txn.produce("orders", rows(1, 2), partition=0, sequence=0)
        token = txn.prepare()
    with raises(OutOfOrderSequence, match=f"transaction {token}, which is PREPARED"), producer.begin() as rival:
        rival.produce("orders", rows(3), partition=0, sequence=2)
    ns.complete(token, commit=True)
    committed(producer, 3, partition=0, sequence=2)
    assert read(ns) == [1, 2, 3]


def test_a_batch_that_was_done_before_is_not_prepared(ns: Any, place: Place) -> None:
    committed(ns, 1, txn_app_id="nightly", txn_version=1)
    again = begun(ns, 1, txn_app_id="nightly", txn_version=1)
    with Unchanged(place):
        with raises(InvalidTransactionState, match="not above") as caught:
            again.prepare()
        assert "commit() answers as skipped" in caught.value.advice
        assert again.commit().skipped
    assert read(ns) == [1]


def test_a_conflict_at_prepare_leaves_only_the_abort(received: tuple[Any, Any, Any], memory: Place) -> None:
    ns, _, messages = received
    txn = holding(ns, messages)
    memory.open().consumer("orders", "billing")
    with Unchanged(memory):
        with raises(ConsumerFenced):
            txn.prepare()
        with raises(TransactionHasFailedOperation):
            txn.commit()
    assert txn.state == "ABORTED"


def test_the_batch_of_a_stream_is_not_prepared(ns: Any, place: Place) -> None:
    txn = begun(ns, 1)
    set_stream(txn, StreamBatch("carriers", "q", 0, "d"))
    with Unchanged(place), raises(InvalidTransactionState, match="micro-batch"):
        txn.prepare()
    txn.commit()
    assert read(ns) == [1]


# --- what was dropped -----------------------------------------------------------------------------------------------


def test_rows_of_a_topic_dropped_before_prepare_are_not_left_out_in_silence(sales: Any, memory: Place) -> None:
    txn = begun(sales, 7, topic="audit")
    txn.produce("orders", rows(8))
    memory.open().drop_topic("audit")
    with Unchanged(memory), raises(TopicNotFound, match="'audit' was dropped"):
        txn.prepare()
    assert txn.commit().dropped == ("audit",), "a commit goes on without it and says so"


def test_what_a_flush_left_out_is_reported_by_prepare(received: tuple[Any, Any, Any], memory: Place) -> None:
    ns, _, messages = received
    one, two = ns.begin(), ns.begin()
    one.produce("audit", rows(7))
    two.acknowledge(messages)
    other = memory.open()
    other.drop_topic("audit")
    other.drop_subscription("orders", "billing")
    for txn, error in ((one, TopicNotFound), (two, SubscriptionNotFound)):
        txn.produce("orders", rows(8))
        ns._connection.follower.refresh()
        txn.flush()
        txn.flush()
        with Unchanged(memory), raises(error, match="dropped"):
            txn.prepare()
        assert txn.commit().dropped == (("audit",) if txn is one else ("orders/billing",))


def test_a_subscription_dropped_before_prepare_is_reported(received: tuple[Any, Any, Any], memory: Place) -> None:
    ns, _, messages = received
    txn = begun(ns, 7, topic="audit")
    txn.acknowledge(messages)
    memory.open().drop_subscription("orders", "billing")
    with Unchanged(memory), raises(SubscriptionNotFound, match="dropped .*nothing was written"):
        txn.prepare()
    assert txn.commit().dropped == ("orders/billing",), "a commit goes on without it and says so"


@pytest.mark.clause("P-60", "P-97")
def test_what_was_dropped_afterwards_is_left_out_and_named(received: tuple[Any, Any, Any], memory: Place) -> None:
    ns, _, messages = received
    txn = begun(ns, 7, topic="audit")
    txn.produce("orders", rows(4))
    txn.acknowledge(messages)
    token = txn.prepare()
    other = memory.open()
    other.drop_topic("audit")
    other.drop_subscription("orders", "billing")
    result = other.complete(token, commit=True)
    assert result.dropped == ("audit", "orders/billing")
    assert result.offsets == {("orders", 0): range(3, 4)}


@pytest.mark.clause("P-61", "P-89", "P-125", "P-146", "P-216")
@pytest.mark.parametrize("forgotten", [False, True], ids=["in memory", "in a checkpoint"])
def test_a_decision_repeated_names_what_was_dropped_before_the_first(
    received: tuple[Any, Any, Any], memory: Place, forgotten: bool
) -> None:
    ns, _, messages = received
    shipping = ns.consumer("orders", "shipping")
    txn = begun(ns, 7, topic="audit")
    txn.produce("orders", rows(4))
    txn.acknowledge(messages)
    txn.acknowledge(shipping.receive(timeout_ms=0))
    digest = txn._machine.work.digest
    token = txn.prepare()
    other = memory.open()
    other.drop_topic("audit")
    other.drop_subscription("orders", "billing")
    first = other.complete(token, commit=True)
    assert first.dropped == ("audit", "orders/billing")
    other.drop_subscription("orders", "shipping")
    other.create_topic("audit", SCHEMA)
    if forgotten:
        other.checkpoint()
        assert txn.id.number not in other._connection.follower.state.outcomes
    for client in (other, memory.open()):
        assert client.complete(token, commit=True) == first
        assert client._connection.outcome(txn.id.number).digest == digest
    assert txn.commit() == first


def test_a_name_that_cannot_be_read_does_not_fail_a_decision(received: tuple[Any, Any, Any], memory: Place) -> None:
    """The number stands for it, and this client tells the same again."""
    ns, _, messages = received
    txn = holding(ns, messages)
    (number,) = ns._connection.follower.state.subscriptions
    token = txn.prepare()
    ns.drop_subscription("orders", "billing")
    other, store = memory.faulty()

    def fail() -> None:
        store.reads_forever = "broken"

    store.script.append(fail)
    first = other.complete(token, commit=True)
    assert first.dropped == (str(number),)
    store.heal()
    assert other.complete(token, commit=True) == first
    assert txn.commit().dropped == ("orders/billing",)


# --- bad input ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("wrong", [None, 1, "yes", 0])
def test_a_decision_is_true_or_false(ns: Any, place: Place, wrong: Any) -> None:
    token = prepared(ns, 1)
    with Unchanged(place), raises(InvalidInputError, match="True or False"):
        ns.complete(token, commit=wrong)


@pytest.mark.clause("P-65")
@pytest.mark.parametrize("commit", [True, False])
def test_what_the_log_does_not_show_is_no_answer(ns: Any, place: Place, commit: bool) -> None:
    txn = ns.begin()
    with Unchanged(place), raises(TransactionNotFound, match="no prepared transaction"):
        ns.complete(txn.id, commit=commit)


@pytest.mark.parametrize("commit", [True, False])
def test_an_open_transaction_cannot_be_decided(ns: Any, place: Place, commit: bool) -> None:
    txn = begun(ns, 1, flush=True)
    with Unchanged(place), raises(InvalidTransactionState, match="is OPEN"):
        place.open().complete(txn.id, commit=commit)
    txn.commit()


def test_the_listing_shows_since_when(timed: Any, clock: ManualClock) -> None:
    token = prepared(timed, 1)
    clock.advance(5_000)
    (info,) = timed.transactions(state="PREPARED", min_age_ms=5_000)
    assert (str(info.txn_id), info.age_ms, info.timestamp_ms) == (token, 5_000, START_MS)
    assert timed.transactions(state="PREPARED", min_age_ms=5_001) == ()
