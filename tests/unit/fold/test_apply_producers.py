"""Producers, their epochs and sequences."""

from __future__ import annotations

import pytest

from tests.memory_log import Log, individually
from txnlog.common.format_limits import RECENT_BATCHES
from txnlog.errors import (
    InvalidInputError,
    NameNotAllowed,
    OutOfOrderSequence,
    ProducerFenced,
    TransactionAborted,
)
from txnlog.fold.state import Batch, ProducerRecord, Sequences
from txnlog.format.actions import Abort, Acknowledge, Begin, Commit, DropTopic, ForgetApp, Prepare, Producer, Share


@pytest.fixture
def topic(log) -> int:
    return log.topic(partitions=2)


def begun(log: Log, name: str, epoch: int, *segments) -> int:
    txn = log.number()
    log.entry(Begin(txn, None, name, epoch), *(segment(txn) for segment in segments))
    return txn


def produce(log: Log, topic: int, name: str, epoch: int, rows: int, sequence: int, partition: int = 0) -> int:
    return log.produce(topic, {partition: rows}, sequences={partition: sequence}, producer=name, epoch=epoch)


# --- epochs -----------------------------------------------------------------------------------------------------------


@pytest.mark.clause("P-47")
def test_the_epoch_of_a_producer_is_the_version_that_started_it(log):
    first = log.producer("loader")
    assert log.state.producers["loader"] == ProducerRecord("loader", first)
    second = log.producer("loader")
    assert second > first
    assert log.state.producers["loader"].epoch == second == log.version


@pytest.mark.clause("P-47")
def test_epochs_of_a_name_count_the_entries_of_others_in_between(log):
    log.producer("loader")
    log.producer("other")
    log.topic()
    second = log.producer("loader")
    assert log.state.producers["loader"].epoch == second == log.version


@pytest.mark.clause("P-47")
def test_one_entry_starts_a_name_once(log):
    with pytest.raises(InvalidInputError, match="once"):
        log.entry(Producer("loader"), Producer("loader"))
    log.entry(Producer("loader"), Producer("Loader"))


@pytest.mark.clause("P-8")
@pytest.mark.parametrize("name", ["", "x" * 257, "a\nb"])
def test_a_producer_with_a_bad_name_is_refused(log, name):
    with pytest.raises(NameNotAllowed):
        log.producer(name)


@pytest.mark.clause("P-8")
@pytest.mark.parametrize("app_id", ["", "x" * 257, "a\0b"])
def test_what_is_no_label_is_no_application_to_forget(log, app_id):
    with pytest.raises(NameNotAllowed):
        log.entry(ForgetApp(app_id))


@pytest.mark.clause("P-48")
def test_a_new_producer_aborts_the_open_transactions_of_its_name_and_no_others(log, topic):
    epoch, other_epoch = log.producer("loader"), log.producer("other")
    mine = begun(log, "loader", epoch, lambda txn: log.segment(topic, {0: 1}, txn))
    also_mine = begun(log, "loader", epoch)
    others = begun(log, "other", other_epoch)
    anonymous = log.number()
    log.entry(Begin(anonymous))
    version = log.producer("loader")
    for txn in (mine, also_mine):
        assert (log.outcome(txn).state, log.outcome(txn).reason, log.outcome(txn).version) == (
            "ABORTED",
            "fenced",
            version,
        )
    assert set(log.state.transactions) == {others, anonymous}
    assert log.state.producers["loader"].open == ()
    assert {segment.state for segment in log.state.segments.values()} == {"aborted"}


@pytest.mark.clause("P-48")
def test_a_new_producer_keeps_what_is_prepared(log, topic):
    epoch = log.producer()
    kept = begun(log, "loader", epoch, lambda txn: log.segment(topic, {0: 1}, txn))
    log.entry(Prepare(kept, "d"))
    gone = begun(log, "loader", epoch)
    log.producer()
    assert set(log.state.transactions) == {kept}
    assert log.state.producers["loader"].open == (kept,)
    assert log.outcome(gone).reason == "fenced"
    log.entry(Commit(kept))
    assert log.ends(topic)[0] == 1
    assert log.state.producers["loader"].open == ()


@pytest.mark.clause("P-85")
def test_what_a_fenced_transaction_acknowledged_is_available_again(log, topic):
    log.produce(topic, 3)
    subscription = log.subscription(topic)
    epoch = log.producer()
    txn = begun(log, "loader", epoch)
    log.entry(Acknowledge(txn, individually(subscription, {0: [(0, 3)]})))
    log.producer()
    assert log.cursor(subscription).holds == ()


@pytest.mark.clause("P-49")
def test_an_old_epoch_is_fenced_at_the_beginning_and_at_a_plain_commit(log):
    old = log.producer()
    log.producer()
    with pytest.raises(ProducerFenced, match=f"epoch {old}"):
        log.entry(Begin(log.number(), None, "loader", old))
    with pytest.raises(ProducerFenced):
        log.entry(Commit(log.number(), producer="loader", epoch=old))


@pytest.mark.clause("P-49")
def test_an_epoch_that_was_never_given_is_fenced(log):
    epoch = log.producer()
    with pytest.raises(ProducerFenced):
        log.entry(Begin(log.number(), None, "loader", epoch + 1))


@pytest.mark.clause("P-28", "P-55")
def test_what_fencing_ended_is_reported_as_its_outcome(log):
    epoch = log.producer()
    txn = begun(log, "loader", epoch)
    log.producer()
    for action in (Commit(txn), Prepare(txn, ""), Abort(txn)):
        with pytest.raises(TransactionAborted) as caught:
            log.entry(action)
        assert caught.value.reason == "fenced"


def test_an_administrators_fence_leaves_nobody_the_epoch(log):
    epoch = log.producer()
    log.entry(Producer("loader", "ada"))
    with pytest.raises(ProducerFenced, match="by 'ada'"):
        log.entry(Begin(log.number(), None, "loader", epoch))


def test_a_producer_that_was_never_started_is_refused(log):
    with pytest.raises(InvalidInputError, match="no producer 'loader'"):
        log.entry(Begin(log.number(), None, "loader", 1))


@pytest.mark.parametrize("action", [Begin(0, None, "loader"), Begin(0, None, None, 1), Commit(0, producer="loader")])
def test_name_and_epoch_go_together(log, action):
    log.producer()
    with pytest.raises(InvalidInputError, match="go together"):
        log.entry(action)


# --- sequences --------------------------------------------------------------------------------------------------------


@pytest.mark.clause("P-50")
def test_sequences_go_on_without_a_gap(log, topic):
    epoch = log.producer()
    produce(log, topic, "loader", epoch, 3, 0)
    produce(log, topic, "loader", epoch, 2, 3)
    assert log.state.sequences["loader", topic, 0].last == 4


@pytest.mark.clause("P-50")
def test_the_first_sequence_may_be_any(log, topic):
    epoch = log.producer()
    produce(log, topic, "loader", epoch, 3, 100)
    assert log.state.sequences["loader", topic, 0].last == 102


@pytest.mark.clause("P-50")
@pytest.mark.parametrize("sequence", [0, 2, 4, 100], ids=["repeated", "partly repeated", "a gap", "a big gap"])
def test_a_sequence_that_does_not_follow_is_refused(log, topic, sequence):
    epoch = log.producer()
    produce(log, topic, "loader", epoch, 3, 0)
    with pytest.raises(OutOfOrderSequence, match="is at sequence 2"):
        produce(log, topic, "loader", epoch, 2, sequence)
    txn = begun(log, "loader", epoch, lambda txn: log.segment(topic, {0: 2}, txn, sequences={0: sequence}))
    with pytest.raises(OutOfOrderSequence):
        log.entry(Commit(txn))


@pytest.mark.clause("P-50")
def test_sequences_are_counted_by_producer_topic_and_partition(log, topic):
    other = log.topic("audit")
    epoch, other_epoch = log.producer("loader"), log.producer("other")
    produce(log, topic, "loader", epoch, 3, 0)
    produce(log, topic, "loader", epoch, 1, 7, partition=1)
    produce(log, other, "loader", epoch, 1, 9)
    produce(log, topic, "other", other_epoch, 1, 5)
    assert {key: value.last for key, value in log.state.sequences.items()} == {
        ("loader", topic, 0): 2,
        ("loader", topic, 1): 7,
        ("loader", other, 0): 9,
        ("other", topic, 0): 5,
    }


@pytest.mark.clause("P-50")
def test_sequences_belong_to_the_name_and_go_on_across_epochs(log, topic):
    produce(log, topic, "loader", log.producer(), 3, 0)
    epoch = log.producer()
    with pytest.raises(OutOfOrderSequence):
        produce(log, topic, "loader", epoch, 3, 0)
    produce(log, topic, "loader", epoch, 1, 3)


@pytest.mark.clause("P-51")
def test_pending_sequences_do_not_advance_and_an_abort_leaves_them(log, topic):
    epoch = log.producer()
    txn = begun(log, "loader", epoch, lambda txn: log.segment(topic, {0: 3}, txn, sequences={0: 0}))
    assert log.state.sequences == {}
    log.entry(Abort(txn))
    assert log.state.sequences == {}
    txn = begun(log, "loader", epoch, lambda txn: log.segment(topic, {0: 3}, txn, sequences={0: 0}))
    log.entry(Commit(txn))
    assert log.state.sequences["loader", topic, 0].last == 2


@pytest.mark.clause("P-50")
def test_open_transactions_of_one_name_must_commit_in_the_order_of_their_sequences(log, topic):
    epoch = log.producer()
    produce(log, topic, "loader", epoch, 1, 0)
    first = begun(log, "loader", epoch, lambda txn: log.segment(topic, {0: 2}, txn, sequences={0: 1}))
    second = begun(log, "loader", epoch, lambda txn: log.segment(topic, {0: 2}, txn, sequences={0: 3}))
    with pytest.raises(OutOfOrderSequence):
        log.entry(Commit(second))
    log.entry(Commit(first), Commit(second))
    assert log.state.sequences["loader", topic, 0].last == 4


@pytest.mark.clause("P-50")
def test_segments_and_shares_of_one_transaction_follow_each_other(log, topic):
    epoch = log.producer()
    first, second = (log.number(), log.number())
    shared = log.segment(topic, {0: 5})
    log.entry(
        shared,
        Commit(
            first,
            shares=(Share(shared.segment, 0, 2, 0), Share(shared.segment, 0, 1, 2)),
            producer="loader",
            epoch=epoch,
        ),
        Commit(second, shares=(Share(shared.segment, 0, 2, 3),), producer="loader", epoch=epoch),
    )
    assert [batch.sequence for batch in log.state.sequences["loader", topic, 0].recent] == [0, 2, 3]
    txn = begun(
        log,
        "loader",
        epoch,
        lambda txn: log.segment(topic, {0: 1}, txn, sequences={0: 5}),
        lambda txn: log.segment(topic, {0: 1}, txn, sequences={0: 7}),
    )
    with pytest.raises(OutOfOrderSequence):
        log.entry(Commit(txn))


def test_rows_without_sequences_may_lie_between(log, topic):
    epoch = log.producer()
    produce(log, topic, "loader", epoch, 1, 0)
    log.produce(topic, 4, producer="loader", epoch=epoch)
    produce(log, topic, "loader", epoch, 1, 1)
    assert log.ends(topic)[0] == 6


@pytest.mark.clause("P-54")
def test_a_batch_remembers_its_offsets(log, topic):
    epoch = log.producer()
    log.produce(topic, 10)
    txn = produce(log, topic, "loader", epoch, 3, 7)
    batch = Batch("loader", topic, 0, 7, 3, 10, log.version, txn)
    assert log.state.sequences["loader", topic, 0] == Sequences(9, (batch,))
    assert log.state.batches == {("loader", topic, 0, 7): batch}


@pytest.mark.clause("P-54")
def test_the_newest_batches_stay_in_memory_and_all_of_them_in_history(log, topic):
    epoch = log.producer()
    for sequence in range(RECENT_BATCHES + 3):
        produce(log, topic, "loader", epoch, 1, sequence)
    recent = log.state.sequences["loader", topic, 0].recent
    assert [batch.sequence for batch in recent] == list(range(3, RECENT_BATCHES + 3))
    assert len(log.state.batches) == RECENT_BATCHES + 3


@pytest.mark.clause("P-52")
def test_sequences_need_a_named_producer(log, topic):
    txn = log.number()
    log.entry(Begin(txn))
    with pytest.raises(InvalidInputError, match="named producer"):
        log.entry(log.segment(topic, {0: 1}, txn, sequences={0: 0}))
    with pytest.raises(InvalidInputError, match="named producer"):
        log.produce(topic, 1, sequences={0: 0})


@pytest.mark.clause("P-52")
def test_the_sequences_of_a_shared_segment_stand_in_the_shares(log, topic):
    epoch = log.producer()
    shared = log.segment(topic, {0: 1}, sequences={0: 0})
    with pytest.raises(InvalidInputError, match="shares"):
        log.entry(shared, Commit(log.number(), shares=(Share(shared.segment, 0, 1),), producer="loader", epoch=epoch))


def test_the_sequences_of_a_dropped_topic_do_not_advance(log, topic):
    epoch = log.producer()
    txn = begun(log, "loader", epoch, lambda txn: log.segment(topic, {0: 3}, txn, sequences={0: 0}))
    log.entry(DropTopic(topic))
    log.entry(Commit(txn))
    assert log.state.sequences == {}
