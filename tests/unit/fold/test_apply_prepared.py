"""PREPARED transactions: an outside system relies on them, so their commit must never be refused."""

from __future__ import annotations

import pytest

from tests.memory_log import Log, cumulatively, individually
from txnlog.errors import (
    InvalidInputError,
    InvalidTransactionState,
    OutOfOrderSequence,
    ProducerFenced,
    TransactionConflict,
)
from txnlog.format.actions import (
    Abort,
    Acknowledge,
    Begin,
    Commit,
    Consumer,
    DropSubscription,
    DropTopic,
    ForgetApp,
    Prepare,
    Replace,
    Share,
    StreamBatch,
)


@pytest.fixture
def topic(log) -> int:
    return log.topic(partitions=2)


def prepared(log: Log, *segments, digest: str = "d", **options) -> int:
    txn = log.number()
    log.entry(Begin(txn, **options), *(segment(txn) for segment in segments), Prepare(txn, digest))
    return txn


@pytest.mark.clause("P-59")
def test_a_prepared_transaction_has_no_deadline(log):
    txn = prepared(log, timeout_ms=1_000)
    record = log.transaction(txn)
    assert (record.state, record.deadline_ms, record.digest) == ("PREPARED", None, "d")


@pytest.mark.clause("P-59")
def test_nothing_can_be_added_to_a_prepared_transaction(log, topic):
    log.produce(topic, 3)
    subscription = log.subscription(topic)
    txn = prepared(log)
    shared = log.segment(topic, {0: 1})
    wanted = individually(subscription, {0: [(0, 1)]})
    for actions in (
        [log.segment(topic, {0: 1}, txn)],
        [Acknowledge(txn, wanted)],
        [Prepare(txn, "d")],
        [Replace(topic, txn, (), ())],
        [shared, Commit(txn, shares=(Share(shared.segment, 0, 1),))],
        [Commit(txn, acknowledgements=(wanted,))],
        [Commit(txn, stream=StreamBatch("s", "q", 0, "d"))],
    ):
        with pytest.raises(InvalidTransactionState, match="PREPARED"):
            log.entry(*actions)


@pytest.mark.clause("P-59")
@pytest.mark.parametrize("reason", ["timeout", "fenced", "failed"])
def test_only_a_decision_aborts_a_prepared_transaction(log, reason):
    txn = prepared(log)
    with pytest.raises(InvalidTransactionState, match="only a decision"):
        log.entry(Abort(txn, reason))


@pytest.mark.clause("P-59")
@pytest.mark.parametrize("reason", ["user", "admin"])
def test_a_decision_aborts_a_prepared_transaction_and_frees_what_it_held(log, topic, reason):
    log.produce(topic, 3)
    subscription = log.subscription(topic)
    epoch = log.producer()
    txn = log.number()
    log.entry(
        Begin(txn, None, "loader", epoch, "nightly", 7),
        log.segment(topic, {0: 3}, txn, sequences={0: 0}),
        Acknowledge(txn, individually(subscription, {0: [(0, 2)]})),
        Prepare(txn, "d"),
    )
    log.entry(Abort(txn, reason))
    assert log.cursor(subscription).holds == ()
    assert log.state.producers["loader"].open == ()
    log.produce(topic, 3, producer="loader", epoch=epoch, sequences={0: 0}, app_id="nightly", app_version=7)


@pytest.mark.clause("P-61")
@pytest.mark.parametrize("digest", ["", "d"])
def test_the_outcome_keeps_the_prepared_digest(log, digest):
    txn = prepared(log)
    log.entry(Commit(txn, digest))
    assert log.outcome(txn).digest == "d"


@pytest.mark.clause("P-61")
def test_a_commit_with_other_contents_is_refused(log):
    txn = prepared(log)
    with pytest.raises(InvalidTransactionState, match="other contents"):
        log.entry(Commit(txn, "e"))


@pytest.mark.clause("P-49")
def test_an_owner_that_was_fenced_cannot_prepare_but_what_is_prepared_can_be_completed(log):
    epoch = log.producer()
    txn = prepared(log, producer="loader", epoch=epoch)
    log.producer()
    with pytest.raises(ProducerFenced):
        prepared(log, producer="loader", epoch=epoch)
    log.entry(Commit(txn))


# --- its commit can never be refused ----------------------------------------------------------------------------------


@pytest.mark.clause("P-53", "P-60")
def test_sequences_of_a_prepared_transaction_are_held(log, topic):
    epoch = log.producer()
    txn = prepared(log, lambda txn: log.segment(topic, {0: 3}, txn, sequences={0: 0}), producer="loader", epoch=epoch)
    epoch = log.producer()
    for first in (0, 3):
        with pytest.raises(OutOfOrderSequence, match="PREPARED"):
            log.produce(topic, 3, producer="loader", epoch=epoch, sequences={0: first})
    log.produce(topic, {1: 3}, producer="loader", epoch=epoch, sequences={1: 0})
    log.produce(topic, 3, producer="loader", epoch=epoch)
    other = log.producer("other")
    log.produce(topic, 3, producer="other", epoch=other, sequences={0: 0})
    log.entry(Commit(txn))
    log.produce(topic, 3, producer="loader", epoch=epoch, sequences={0: 3})


@pytest.mark.clause("P-53", "P-60")
def test_a_second_transaction_cannot_be_prepared_behind_the_sequences_of_the_first(log, topic):
    epoch = log.producer()

    def sequenced(sequence: int) -> int:
        return prepared(
            log, lambda txn: log.segment(topic, {0: 2}, txn, sequences={0: sequence}), producer="loader", epoch=epoch
        )

    first = sequenced(0)
    with pytest.raises(OutOfOrderSequence, match="PREPARED"):
        sequenced(2)
    log.entry(Commit(first))
    log.entry(Commit(sequenced(2)))


@pytest.mark.clause("P-60")
@pytest.mark.parametrize(
    "sequences", [[2], [5], [3, 6], [4, 3]], ids=["repeated", "a gap", "a gap inside", "backwards"]
)
def test_sequences_that_could_not_be_committed_cannot_be_prepared(log, topic, sequences):
    epoch = log.producer()
    log.produce(topic, 3, producer="loader", epoch=epoch, sequences={0: 0})
    segments = [
        lambda txn, sequence=sequence: log.segment(topic, {0: 2}, txn, sequences={0: sequence})
        for sequence in sequences
    ]
    with pytest.raises(OutOfOrderSequence):
        prepared(log, *segments, producer="loader", epoch=epoch)


@pytest.mark.clause("P-60")
def test_a_gap_inside_the_first_sequences_of_a_producer_cannot_be_prepared(log, topic):
    epoch = log.producer()
    with pytest.raises(OutOfOrderSequence):
        prepared(
            log,
            lambda txn: log.segment(topic, {0: 2}, txn, sequences={0: 0}),
            lambda txn: log.segment(topic, {0: 2}, txn, sequences={0: 5}),
            producer="loader",
            epoch=epoch,
        )


@pytest.mark.clause("P-60")
def test_sequences_behind_visible_ones_can_be_prepared_over_several_segments(log, topic):
    epoch = log.producer()
    log.produce(topic, 3, producer="loader", epoch=epoch, sequences={0: 0})
    txn = prepared(
        log,
        lambda txn: log.segment(topic, {0: 2}, txn, sequences={0: 3}),
        lambda txn: log.segment(topic, {0: 2}, txn, sequences={0: 5}),
        producer="loader",
        epoch=epoch,
    )
    log.entry(Commit(txn))
    assert log.state.sequences["loader", topic, 0].last == 6


@pytest.mark.clause("P-60")
def test_sequences_that_follow_each_other_can_be_prepared(log, topic):
    epoch = log.producer()
    txn = prepared(
        log,
        lambda txn: log.segment(topic, {0: 2, 1: 1}, txn, sequences={0: 7, 1: 0}),
        lambda txn: log.segment(topic, {0: 2}, txn, sequences={0: 9}),
        producer="loader",
        epoch=epoch,
    )
    log.entry(Commit(txn))
    assert log.state.sequences["loader", topic, 0].last == 10


@pytest.mark.clause("P-68", "P-60")
def test_an_application_version_of_a_prepared_transaction_is_held(log):
    txn = prepared(log, app_id="nightly", app_version=7)
    other = log.number()
    log.entry(Begin(other, app_id="nightly", app_version=9))
    for actions in ([Commit(log.number(), app_id="nightly", app_version=8)], [Commit(other)], [Prepare(other, "")]):
        with pytest.raises(TransactionConflict, match="PREPARED"):
            log.entry(*actions)
    log.entry(Commit(log.number(), app_id="another", app_version=8))
    log.entry(ForgetApp("nightly"))
    log.entry(Commit(txn))
    log.entry(Commit(other))


@pytest.mark.clause("P-68", "P-60")
def test_an_application_version_that_is_not_above_the_last_cannot_be_prepared(log):
    log.entry(Commit(log.number(), app_id="nightly", app_version=7))
    with pytest.raises(InvalidTransactionState, match="committed version 7"):
        prepared(log, app_id="nightly", app_version=7)


@pytest.mark.clause("P-59", "P-216")
def test_its_commit_leaves_nothing_out_that_prepare_did_not(log, topic):
    subscription = log.subscription(topic)
    txn = prepared(log)
    log.entry(DropTopic(topic))
    for commit in (Commit(txn, dropped_topics=(topic,)), Commit(txn, dropped_subscriptions=(subscription,))):
        with pytest.raises(InvalidTransactionState, match="nothing can be added"):
            log.entry(commit)
    log.entry(Commit(txn))
    assert (log.outcome(txn).dropped_topics, log.outcome(txn).dropped_subscriptions) == ((), ())


@pytest.mark.clause("P-8", "P-61")
@pytest.mark.parametrize("digest", ["d" * 257, "a\nb", "\u2028"])
def test_a_digest_is_a_label(log, digest):
    txn, other = log.number(), log.number()
    log.entry(Begin(txn), Begin(other))
    for action in (Prepare(txn, digest), Commit(other, digest), Commit(log.number(), digest)):
        with pytest.raises(InvalidInputError, match="digest"):
            log.entry(action)
    log.entry(Prepare(txn, "d" * 256))
    log.entry(Commit(txn))
    assert (log.outcome(txn).digest, log.outcome(txn).prepared) == ("d" * 256, True)


@pytest.mark.clause("P-60", "P-143")
def test_a_compacted_segment_cannot_be_prepared(log, topic):
    with pytest.raises(InvalidInputError, match="compacted"):
        prepared(log, lambda txn: log.segment(topic, {0: 1}, txn, compacted=True))


@pytest.mark.clause("P-60", "P-62")
def test_nothing_that_happens_later_keeps_it_from_committing(log, topic):
    log.produce(topic, {0: 10, 1: 10})
    subscription = log.subscription(topic)
    gone = log.subscription(topic, "gone")
    dropped = log.topic("dropped")
    epoch = log.producer()
    txn = log.number()
    log.entry(
        Begin(txn, 1_000, "loader", epoch, "nightly", 7),
        log.segment(topic, {0: 3}, txn, sequences={0: 0}),
        log.segment(dropped, {0: 3}, txn),
        Acknowledge(txn, individually(subscription, {0: [(3, 5)]})),
        Acknowledge(txn, cumulatively(subscription, {1: 4})),
        Acknowledge(txn, cumulatively(gone, {0: 4})),
        Prepare(txn, "d"),
    )
    log.producer()
    opened = log.entry(Consumer(subscription, "another"))
    log.entry(DropTopic(dropped), DropSubscription(gone))
    log.entry(Commit(log.number(), acknowledgements=(individually(subscription, {0: [(0, 3)]}, epoch=opened),)))
    for wanted in (
        cumulatively(subscription, {0: 4}, epoch=opened),
        cumulatively(subscription, {1: 9}, epoch=opened),
        individually(subscription, {0: [(4, 5)]}, epoch=opened),
    ):
        with pytest.raises(TransactionConflict):
            log.entry(Commit(log.number(), acknowledgements=(wanted,)), after_ms=10**9)
    log.entry(Commit(txn))
    assert (log.cursor(subscription, 0).position, log.cursor(subscription, 1).position) == (5, 4)
    assert (log.outcome(txn).dropped_topics, log.outcome(txn).dropped_subscriptions) == ((dropped,), (gone,))
