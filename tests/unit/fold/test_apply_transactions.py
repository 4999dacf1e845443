"""The life of a transaction: beginning, effects, and the one end it has."""

from __future__ import annotations

import pytest

from tests.memory_log import Log, cumulatively, individually
from txnlog.common.format_limits import MAX_TIMEOUT_MS
from txnlog.errors import (
    InvalidInputError,
    InvalidTransactionState,
    LimitExceeded,
    NameNotAllowed,
    ProducerFenced,
    TransactionAborted,
    TransactionNotFound,
)
from txnlog.fold import transactions
from txnlog.fold.state import AppRecord, Outcome, StreamRecord
from txnlog.format.actions import (
    Abort,
    Acknowledge,
    Begin,
    Commit,
    DropSubscription,
    ForgetApp,
    Namespace,
    Prepare,
    Protocol,
    Reserve,
    StreamBatch,
)


@pytest.fixture
def topic(log) -> int:
    return log.topic()


@pytest.fixture
def txn(log) -> int:
    """An OPEN transaction."""
    number = log.number()
    log.entry(Begin(number))
    return number


# --- beginning --------------------------------------------------------------------------------------------------------


@pytest.mark.clause("P-58")
def test_a_transaction_is_open_with_a_deadline_in_log_time(log):
    version = log.entry(Begin(0, 60_000))
    record = log.transaction(0)
    assert (record.state, record.opened_version, record.opened_ms) == ("OPEN", version, log.now_ms)
    assert record.deadline_ms == log.now_ms + 60_000


@pytest.mark.clause("P-58")
def test_without_a_timeout_there_is_no_deadline(log, txn):
    assert log.transaction(txn).deadline_ms is None


@pytest.mark.clause("P-58")
@pytest.mark.parametrize("timeout_ms", [0, MAX_TIMEOUT_MS + 1, 1 << 62])
def test_a_timeout_of_nothing_or_above_the_cap_is_refused(log, timeout_ms):
    with pytest.raises(InvalidInputError, match="cap"):
        log.entry(Begin(0, timeout_ms))
    log.entry(Begin(0, MAX_TIMEOUT_MS))


@pytest.mark.clause("P-58")
@pytest.mark.parametrize(("cap", "timeout_ms"), [(5_000, 5_001), (3_600_000, 3_600_001)])
def test_a_namespace_has_its_own_cap(cap, timeout_ms):
    log = Log(begun=False)
    log.entry(Protocol(1, 1), Namespace("sales", 0, cap), Reserve("w", 0, 256))
    with pytest.raises(InvalidInputError, match=f"{cap}"):
        log.entry(Begin(0, timeout_ms))
    log.entry(Begin(0, cap))


@pytest.mark.clause("P-36")
def test_too_many_open_transactions_are_refused_prepared_ones_included(log, monkeypatch):
    monkeypatch.setattr(transactions, "MAX_OPEN_TRANSACTIONS", 2)
    log.entry(Begin(0), Begin(1), Prepare(1, ""))
    with pytest.raises(LimitExceeded, match="open transactions"):
        log.entry(Begin(2))
    log.entry(Commit(3))
    log.entry(Abort(0), Begin(2))


def test_a_transaction_begins_once(log, txn):
    with pytest.raises(InvalidTransactionState, match="used before"):
        log.entry(Begin(txn))


# --- one end ----------------------------------------------------------------------------------------------------------


@pytest.mark.clause("P-55")
@pytest.mark.parametrize("shown", [True, False], ids=["begun before", "never shown"])
def test_a_commit_is_remembered_with_version_time_and_digest(log, shown):
    if shown:
        log.entry(Begin(0))
    version = log.entry(Commit(0, "d"))
    assert log.outcome(0) == Outcome(0, "COMMITTED", version, log.now_ms, "", "d", ())
    assert log.state.transactions == {}


@pytest.mark.clause("P-55")
@pytest.mark.parametrize("reason", ["user", "timeout", "fenced", "admin", "failed"])
def test_an_abort_is_remembered_with_its_reason(log, txn, reason):
    version = log.entry(Abort(txn, reason, "ada", "why not"))
    assert log.outcome(txn) == Outcome(txn, "ABORTED", version, log.now_ms, reason)
    assert log.state.transactions == {}


@pytest.mark.clause("P-57")
def test_the_abort_of_an_id_that_was_never_shown_makes_it_definite(log, topic):
    log.entry(Abort(5, "admin"))
    assert log.outcome(5).state == "ABORTED"
    for action in (Begin(5), Commit(5), Abort(5), log.segment(topic, {0: 1}, 5), Prepare(5, "")):
        with pytest.raises(TransactionAborted) as caught:
            log.entry(action)
        assert caught.value.reason == "admin"


def everything(log: Log, topic: int, subscription: int, txn: int) -> list:
    """One action of every kind that touches a transaction."""
    return [
        Begin(txn),
        Commit(txn),
        Abort(txn),
        Prepare(txn, ""),
        Acknowledge(txn, individually(subscription, {0: [(0, 1)]})),
        log.segment(topic, {0: 1}, txn),
    ]


@pytest.mark.clause("P-28", "P-55")
def test_after_a_commit_everything_is_answered_with_the_commit(log, topic, txn):
    subscription = log.subscription(topic)
    version = log.entry(Commit(txn))
    for action in everything(log, topic, subscription, txn):
        with pytest.raises(InvalidTransactionState, match=f"was committed at version {version}") as caught:
            log.entry(action)
        assert caught.value.advice == "it stays committed: nothing is left to do"


@pytest.mark.clause("P-28", "P-55")
def test_after_an_abort_everything_is_answered_with_its_reason(log, topic, txn):
    subscription = log.subscription(topic)
    version = log.entry(Abort(txn, "timeout"))
    for action in everything(log, topic, subscription, txn):
        with pytest.raises(TransactionAborted, match=rf"at version {version} \(timeout\)"):
            log.entry(action)


@pytest.mark.clause("P-28")
def test_a_recorded_outcome_comes_before_the_producers_epoch(log):
    epoch = log.producer()
    log.entry(Commit(0, producer="loader", epoch=epoch))
    log.producer()
    with pytest.raises(InvalidTransactionState, match="was committed"):
        log.entry(Commit(0, producer="loader", epoch=epoch))
    with pytest.raises(ProducerFenced):
        log.entry(Commit(1, producer="loader", epoch=epoch))


@pytest.mark.clause("P-28")
def test_the_producers_epoch_comes_before_acknowledgement_conflicts(log, topic):
    subscription = log.subscription(topic)
    epoch = log.producer()
    log.producer()
    wanted = individually(subscription, {0: [(0, 1)]}, epoch=99)
    with pytest.raises(ProducerFenced):
        log.entry(Commit(0, acknowledgements=(wanted,), producer="loader", epoch=epoch))


@pytest.mark.clause("P-56")
@pytest.mark.parametrize("action", [Prepare(900, ""), Acknowledge(900, individually(1, {0: [(0, 1)]}))])
def test_what_was_never_begun_can_have_no_effects(log, action):
    with pytest.raises(TransactionNotFound):
        log.entry(action)


def test_producer_and_application_of_a_known_transaction_stand_in_its_beginning(log, txn):
    epoch = log.producer()
    for action in (Commit(txn, producer="loader", epoch=epoch), Commit(txn, app_id="a", app_version=1)):
        with pytest.raises(InvalidInputError, match="begin action"):
            log.entry(action)


def test_a_transaction_can_begin_work_and_end_in_one_entry(log, topic):
    log.produce(topic, 5)
    subscription = log.subscription(topic)
    txn = log.number()
    log.entry(
        Begin(txn, 1_000),
        log.segment(topic, {0: 2}, txn),
        Acknowledge(txn, individually(subscription, {0: [(1, 2)]})),
        Commit(txn, acknowledgements=(individually(subscription, {0: [(0, 1)]}),)),
    )
    assert log.cursor(subscription).position == 2
    assert log.offsets(txn) == {(topic, 0): [(5, 7)]}


def test_several_subscriptions_end_together(log, topic):
    other = log.topic("audit")
    log.produce(topic, 5)
    log.produce(other, 5)
    one, two = log.subscription(topic), log.subscription(other, "audit")
    log.entry(Commit(log.number(), acknowledgements=(cumulatively(one, {0: 4}), cumulatively(two, {0: 2}))))
    assert (log.cursor(one).position, log.cursor(two).position) == (4, 2)


@pytest.mark.clause("P-89")
def test_what_is_held_of_a_dropped_subscription_lapses(log, topic, txn):
    log.produce(topic, 5)
    subscription = log.subscription(topic)
    log.entry(Acknowledge(txn, individually(subscription, {0: [(0, 1)]})))
    log.entry(DropSubscription(subscription))
    log.entry(log.segment(topic, {0: 1}, txn), Commit(txn))
    assert log.outcome(txn).state == "COMMITTED"
    assert log.state.cursors == {}


# --- applications -----------------------------------------------------------------------------------------------------


@pytest.mark.clause("P-67")
def test_an_application_version_is_remembered_with_its_transaction(log):
    version = log.entry(Commit(0, app_id="nightly", app_version=20261121))
    assert log.state.apps == {"nightly": AppRecord("nightly", 20261121, 0, version)}


@pytest.mark.clause("P-67")
@pytest.mark.parametrize("app_version", [7, 6, -(1 << 63)])
@pytest.mark.parametrize("begun", [True, False])
def test_an_application_version_that_is_not_above_the_last_is_refused(log, begun, app_version):
    log.entry(Commit(0, app_id="nightly", app_version=7))
    if begun:
        log.entry(Begin(1, app_id="nightly", app_version=app_version))
    action = Commit(1) if begun else Commit(1, app_id="nightly", app_version=app_version)
    with pytest.raises(InvalidTransactionState, match="committed version 7"):
        log.entry(action)


@pytest.mark.clause("P-67")
def test_only_a_commit_counts_for_an_application(log):
    log.entry(Begin(0, app_id="nightly", app_version=7))
    log.entry(Abort(0))
    assert log.state.apps == {}
    log.entry(Begin(1, app_id="nightly", app_version=7))
    log.entry(Commit(1))
    assert log.state.apps["nightly"].txn == 1


@pytest.mark.clause("P-67")
def test_of_two_with_the_same_version_the_first_wins(log):
    log.entry(Begin(0, app_id="nightly", app_version=7), Begin(1, app_id="nightly", app_version=7))
    log.entry(Commit(1))
    with pytest.raises(InvalidTransactionState):
        log.entry(Commit(0))


@pytest.mark.clause("P-67")
def test_a_forgotten_application_may_begin_anywhere(log):
    log.entry(Commit(0, app_id="nightly", app_version=7))
    log.entry(ForgetApp("nightly"), ForgetApp("never heard of"))
    log.entry(Commit(1, app_id="nightly", app_version=1))


@pytest.mark.parametrize("kind", [Begin, Commit])
@pytest.mark.parametrize("fields", [{"app_id": "a"}, {"app_version": 1}])
def test_application_and_version_go_together(log, kind, fields):
    with pytest.raises(InvalidInputError, match="go together"):
        log.entry(kind(0, **fields))


@pytest.mark.clause("P-8")
@pytest.mark.parametrize("kind", [Begin, Commit])
@pytest.mark.parametrize("app_id", ["", "x" * 257, "a\nb"])
def test_an_application_with_a_bad_id_is_refused_before_it_has_done_anything(log, kind, app_id):
    with pytest.raises(NameNotAllowed):
        log.entry(kind(0, app_id=app_id, app_version=1))


# --- streams ----------------------------------------------------------------------------------------------------------


def batch(number: int, query: str = "q", digest: str = "d", identity: str = "carriers") -> StreamBatch:
    return StreamBatch(identity, query, number, digest)


@pytest.mark.clause("P-70")
def test_a_stream_remembers_its_last_batch(log):
    log.entry(Commit(0, stream=batch(0)))
    version = log.entry(Commit(1, stream=batch(4, "other", "e")))
    assert log.state.streams == {"carriers": StreamRecord("carriers", "other", 4, "e", 1, version)}


@pytest.mark.clause("P-70")
@pytest.mark.parametrize("again", [batch(3), batch(3, digest="e"), batch(3, "other"), batch(2), batch(0)])
def test_a_batch_that_is_not_above_the_last_is_refused(log, again):
    log.entry(Commit(0, stream=batch(3)))
    with pytest.raises(InvalidTransactionState, match="committed batch 3"):
        log.entry(Commit(1, stream=again))
    log.entry(Commit(1, stream=batch(0, identity="another")))


@pytest.mark.clause("P-8")
def test_a_stream_with_a_bad_identity_is_refused(log):
    with pytest.raises(NameNotAllowed):
        log.entry(Commit(0, stream=batch(0, identity="")))
