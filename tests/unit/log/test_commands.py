"""Commands as pure decisions: what of them goes into an entry, what is answered without one, what is refused."""

from __future__ import annotations

from typing import Any

import pytest

from tests.memory_log import Log, cumulatively, individually
from txnlog.common.format_limits import EXPIRY_GRACE_MS
from txnlog.common.ids import TxnId
from txnlog.errors import (
    InvalidInputError,
    InvalidTransactionState,
    OutOfOrderSequence,
    ProducerFenced,
    TopicNotFound,
    TransactionAborted,
    TransactionNotFound,
    TransactionTimedOut,
)
from txnlog.fold.apply import begin_entry
from txnlog.fold.overdue import overdue
from txnlog.fold.state import Outcome, ProducerRecord
from txnlog.format.actions import (
    Abort,
    Acknowledge,
    Acknowledgement,
    Begin,
    Commit,
    DropSubscription,
    DropTopic,
    Prepare,
    Producer,
    Segment,
    StreamBatch,
)
from txnlog.log.commands import Answer, Piece
from txnlog.log.transaction_commands import (
    AbortCommand,
    CommitCommand,
    Duplicate,
    FlushCommand,
    LeftOut,
    Opening,
    PrepareCommand,
    Skipped,
    ended_error,
    replayed,
)


def decided(log: Log, command: Any, shared: dict[int, int] | None = None) -> Any:
    """What a command says at the log's newest state; it must not change anything by saying it."""
    draft = log.state.draft()
    begin_entry(draft, log.header())
    mark = draft.savepoint()
    answer = command.decide(draft, log.header(), shared or {})
    assert draft.savepoint() == mark, "deciding changes nothing"
    return answer if isinstance(answer, Answer) else list(answer)


def opening(number: int, log: Log, **fields: Any) -> Opening:
    return Opening(TxnId(0, number), lambda: log.now_ms, **fields)


def piece(topic: int, partition: int = 0, rows: int = 1, sequence: int | None = None) -> Piece:
    return Piece(topic, partition, rows, 10 * rows, None, 7, sequence)


# --- commit ---------------------------------------------------------------------------------------------------------


def test_a_commit_of_an_unseen_transaction_is_its_beginning_too(log: Log) -> None:
    topic, epoch = log.topic(), log.producer()
    number = log.number()
    command = CommitCommand(
        opening(number, log, producer="loader", epoch=epoch, app_id="a", app_version=3), "d" * 32, [piece(topic)]
    )
    (commit,) = decided(log, command, {topic: 99})
    assert isinstance(commit, Commit)
    assert (commit.txn, commit.producer, commit.epoch, commit.app_id, commit.app_version) == (
        number,
        "loader",
        epoch,
        "a",
        3,
    )
    assert [tuple(getattr(share, f) for f in share.__struct_fields__) for share in commit.shares] == [(99, 0, 1, None)]


def test_a_commit_with_segments_begins_by_a_line_of_its_own(log: Log) -> None:
    topic, number = log.topic(), log.number()
    segment = log.segment(topic, {0: 2}, txn=number)
    command = CommitCommand(opening(number, log, deadline_ms=log.now_ms + 700), "d", segments=(segment,))
    begin, same, commit = decided(log, command)
    assert isinstance(begin, Begin)
    assert begin.timeout_ms == 700
    assert same is segment
    assert isinstance(commit, Commit)
    assert commit.producer is None


def test_a_commit_after_a_flush_brings_the_rest_alone(log: Log) -> None:
    topic, number = log.topic(), log.number()
    logged, new = log.segment(topic, {0: 2}, txn=number), log.segment(topic, {0: 3}, txn=number)
    log.entry(Begin(number), logged)
    actions = decided(log, CommitCommand(opening(number, log), "d", segments=(logged, new)))
    assert [type(action) for action in actions] == [Segment, Commit]
    assert actions[0] is new


@pytest.mark.clause("P-55", "P-62")
def test_a_recorded_end_is_answered_first(log: Log) -> None:
    topic = log.topic()
    number = log.number()
    segment = log.segment(topic, {0: 1}, txn=number)
    log.entry(Begin(number), segment, Commit(number, "d" * 32))
    answer = decided(log, CommitCommand(opening(number, log), "d" * 32))
    assert isinstance(answer, Answer)
    assert answer.settled
    assert answer.value == log.outcome(number)


@pytest.mark.clause("P-62")
def test_a_commit_with_other_contents_is_no_repetition(log: Log) -> None:
    number = log.number()
    log.entry(Commit(number, "d"))
    with pytest.raises(InvalidTransactionState, match="other contents"):
        decided(log, CommitCommand(opening(number, log), "e"))


@pytest.mark.parametrize(
    ("reason", "kind"),
    [
        ("user", TransactionAborted),
        ("admin", TransactionAborted),
        ("failed", TransactionAborted),
        ("timeout", TransactionTimedOut),
        ("fenced", TransactionAborted),
    ],
)
def test_an_end_without_effect_is_reported_by_its_reason(log: Log, reason: Any, kind: type[Exception]) -> None:
    number = log.number()
    log.entry(Abort(number, reason))
    with pytest.raises(kind) as caught:
        decided(log, CommitCommand(opening(number, log), "d"))
    assert type(caught.value) is kind
    with pytest.raises(kind):
        decided(log, FlushCommand(opening(number, log), (), ()))


def test_an_owner_that_was_fenced_hears_that_not_that_it_was_aborted(log: Log) -> None:
    first = log.producer()
    number = log.number()
    log.entry(Begin(number, None, "loader", first))
    log.entry(Producer("loader"))
    with pytest.raises(ProducerFenced):
        decided(log, CommitCommand(opening(number, log, producer="loader", epoch=first), "d"))
    outcome = Outcome(1, "ABORTED", 5, 5, "fenced")
    assert isinstance(ended_error(outcome, opening(1, log), None), TransactionAborted)
    newest = ProducerRecord("p", 5)
    assert isinstance(ended_error(outcome, opening(1, log, producer="p", epoch=4), newest), ProducerFenced)
    assert isinstance(ended_error(outcome, opening(1, log, producer="p", epoch=5), newest), TransactionAborted)


@pytest.mark.clause("P-64")
@pytest.mark.parametrize("begun", [False, True])
def test_a_commit_past_its_deadline_is_refused(log: Log, begun: bool) -> None:
    number = log.number()
    if begun:
        log.entry(Begin(number, 1_000))
    command = CommitCommand(opening(number, log, deadline_ms=log.now_ms + 1), "d")
    decided(log, command)
    log.now_ms += 1
    with pytest.raises(TransactionTimedOut, match="by 0 ms"):
        decided(log, command)


@pytest.mark.clause("P-89", "P-97")
def test_what_was_dropped_meanwhile_is_left_out_and_named(log: Log) -> None:
    gone, here = log.topic("gone"), log.topic("here")
    sub_gone, sub_here = log.subscription(here, "gone"), log.subscription(here, "here")
    log.produce(here, 5)
    number = log.number()
    segments = (log.segment(gone, {0: 1}, txn=number), log.segment(here, {0: 1}, txn=number))
    log.entry(DropTopic(gone))
    log.entry(DropSubscription(sub_gone))
    command = CommitCommand(
        opening(number, log),
        "d",
        [piece(gone), piece(here, 1)],
        segments,
        (individually(sub_gone, {0: [(0, 1)]}), individually(sub_here, {0: [(1, 2)]})),
    )
    _, segment, commit = decided(log, command, {here: 77})
    assert segment is segments[1]
    assert isinstance(commit, Commit)
    assert [item.subscription for item in commit.acknowledgements] == [sub_here]
    assert (commit.dropped_topics, commit.dropped_subscriptions) == ((gone,), (sub_gone,))


@pytest.mark.clause("P-33")
def test_a_plain_produce_is_nothing_without_its_topic(log: Log) -> None:
    topic = log.topic("gone")
    log.entry(DropTopic(topic))
    with pytest.raises(TopicNotFound, match="'gone'"):
        decided(log, CommitCommand(opening(log.number(), log), "d", [piece(topic)], plain=True))


def test_rows_that_follow_each_other_are_one_share(log: Log) -> None:
    topic, epoch = log.topic(partitions=2), log.producer()
    pieces = [
        piece(topic, 0, 2, 10),
        piece(topic, 0, 3, 12),
        piece(topic, 1, 1),
        piece(topic, 1, 2),
        piece(topic, 0, 1, 20),
    ]
    command = CommitCommand(opening(log.number(), log, producer="loader", epoch=epoch), "d", pieces)
    (commit,) = decided(log, command, {topic: 5})
    assert isinstance(commit, Commit)
    assert [(s.partition, s.rows, s.sequence) for s in commit.shares] == [(0, 5, 10), (1, 3, None), (0, 1, 20)]


def test_sequences_are_assigned_behind_the_last_one(log: Log) -> None:
    topic, epoch = log.topic(), log.producer()
    command = CommitCommand(
        opening(log.number(), log, producer="loader", epoch=epoch),
        "d",
        [piece(topic, 0, 2), piece(topic, 0, 3)],
        plain=True,
        assign_sequences=True,
    )
    (first,) = decided(log, command, {topic: 5})
    assert isinstance(first, Commit)
    assert [(s.rows, s.sequence) for s in first.shares] == [(5, 0)]
    log.produce(topic, 4, producer="loader", epoch=epoch, sequences={0: 100})
    (second,) = decided(log, command, {topic: 5})
    assert isinstance(second, Commit)
    assert [(s.rows, s.sequence) for s in second.shares] == [(5, 104)]


@pytest.mark.clause("P-54")
@pytest.mark.parametrize(
    ("sequence", "rows", "answer"),
    [
        (10, 5, "duplicate"),
        (12, 2, "duplicate"),
        (12, 3, "duplicate"),
        (0, 3, "duplicate"),
        (15, 1, "new"),
        (13, 4, "refused"),
        (9, 7, "refused"),
        (17, 1, "new"),
    ],
)
def test_a_sequenced_batch_is_new_a_repetition_or_a_part(log: Log, sequence: int, rows: int, answer: str) -> None:
    topic, epoch = log.topic(), log.producer()
    log.produce(topic, 5, producer="loader", epoch=epoch, sequences={0: 10})
    command = CommitCommand(
        opening(log.number(), log, producer="loader", epoch=epoch), "d", [piece(topic, 0, rows, sequence)], plain=True
    )
    if answer == "refused":
        with pytest.raises(OutOfOrderSequence, match="repeats a part"):
            decided(log, command, {topic: 5})
        return
    found = decided(log, command, {topic: 5})
    if answer == "new":
        assert isinstance(found, list)
    else:
        assert isinstance(found, Answer)
        assert isinstance(found.value, Duplicate)
        assert not found.settled, "the topic may be dropped, and another one have its name"


@pytest.mark.clause("P-69")
def test_an_application_version_that_was_committed_is_skipped_but_may_be_forgotten(log: Log) -> None:
    number = log.number()
    log.entry(Commit(number, "x", app_id="nightly", app_version=7))
    for version, skipped in ((6, True), (7, True), (8, False)):
        found = decided(log, CommitCommand(opening(log.number(), log, app_id="nightly", app_version=version), "d"))
        if skipped:
            assert found == Answer(Skipped(number, log.version))
            assert not found.settled, "forget_app may come in between"
        else:
            assert isinstance(found, list)


@pytest.mark.clause("P-70", "P-71")
def test_a_streams_batch_is_new_a_replay_or_a_mistake(log: Log) -> None:
    number = log.number()
    log.entry(Commit(number, "x", stream=StreamBatch("s", "q1", 4, "d4")))

    def found(query: str, batch: int, digest: str) -> Any:
        command = CommitCommand(opening(log.number(), log), "d", stream=StreamBatch("s", query, batch, digest))
        return decided(log, command)

    assert isinstance(found("q1", 5, "d5"), list)
    assert isinstance(found("q2", 5, "d5"), list)
    assert found("q1", 4, "d4") == found("q1", 3, "other") == Answer(Skipped(number, log.version))
    with pytest.raises(InvalidInputError, match="other source offsets"):
        found("q1", 4, "other")
    with pytest.raises(InvalidInputError, match="begins again at batch 0") as caught:
        found("q2", 0, "d0")
    assert "q1" in str(caught.value)


@pytest.mark.clause("P-142")
def test_the_queries_of_a_stream_are_escaped_and_cut_short_in_errors(log: Log) -> None:
    log.entry(Commit(log.number(), "x", stream=StreamBatch("s", "\x1b[2J" * 10_000, 4, "d4")))
    command = CommitCommand(opening(log.number(), log), "d", stream=StreamBatch("s", "\x1b[2J" * 10_000 + "x", 0, "d"))
    with pytest.raises(InvalidInputError, match="begins again at batch 0") as caught:
        decided(log, command)
    assert "\x1b" not in str(caught.value)
    assert len(str(caught.value)) < 1_000


def batch(number: int, query: str = "q", digest: str = "d") -> StreamBatch:
    return StreamBatch("carriers", query, number, digest)


@pytest.mark.clause("P-71")
def test_the_same_batch_of_a_stream_is_skipped(log: Log) -> None:
    version = log.entry(Commit(0, stream=batch(3)))
    assert replayed(log.state.draft(), batch(3)) == Skipped(0, version)
    assert replayed(log.state.draft(), batch(4)) is None


@pytest.mark.clause("P-71")
@pytest.mark.parametrize("other", [batch(3, digest="e"), batch(3, "another"), batch(0, "another")])
def test_a_batch_with_other_offsets_or_from_another_query_is_an_error(log: Log, other: StreamBatch) -> None:
    log.entry(Commit(0, stream=batch(3)))
    with pytest.raises(InvalidInputError, match="'carriers'"):
        replayed(log.state.draft(), other)


# --- flush ----------------------------------------------------------------------------------------------------------


def test_a_flush_begins_once_and_brings_what_the_log_lacks(log: Log) -> None:
    topic = log.topic()
    subscription = log.subscription(topic)
    log.produce(topic, 5)
    number = log.number()
    one, two = log.segment(topic, {0: 1}, txn=number), log.segment(topic, {0: 1}, txn=number)
    first, second = individually(subscription, {0: [(0, 2)]}), cumulatively(subscription, {0: 4})
    command = FlushCommand(opening(number, log), (one,), (first,))
    actions = decided(log, command)
    assert [type(action) for action in actions] == [Begin, Segment, Acknowledge]
    log.entry(*actions)
    assert decided(log, command) == Answer(LeftOut((), ())), "its answer was lost: nothing is there twice"
    more = decided(log, FlushCommand(opening(number, log), (one, two), (first, second)))
    assert [type(action) for action in more] == [Segment, Acknowledge]
    assert more[0] is two
    assert isinstance(more[1], Acknowledge)
    assert more[1].acknowledgement is second
    log.entry(DropTopic(topic))
    left = LeftOut((two,), (first, second))
    assert decided(log, FlushCommand(opening(number, log), (one, two), (first, second))) == Answer(left)


def test_a_flush_past_its_deadline_is_refused(log: Log) -> None:
    with pytest.raises(TransactionTimedOut):
        decided(log, FlushCommand(opening(log.number(), log, deadline_ms=log.now_ms), (), (_acknowledgement(),)))


def _acknowledgement() -> Acknowledgement:
    return Acknowledgement(1, 1)


# --- abort and prepare ----------------------------------------------------------------------------------------------


@pytest.mark.clause("P-57", "P-65")
def test_an_abort_is_an_entry_or_the_recorded_end(log: Log) -> None:
    number = log.number()
    actions = decided(log, AbortCommand(number, "admin", "ada", "lost"))
    assert actions == [Abort(number, "admin", "ada", "lost")]
    log.entry(*actions)
    assert decided(log, AbortCommand(number)) == Answer(log.outcome(number), settled=True)


@pytest.mark.clause("P-59")
def test_a_prepared_transaction_is_aborted_by_force_only(log: Log) -> None:
    number = log.number()
    log.entry(Begin(number))
    (action,) = decided(log, PrepareCommand(opening(number, log), "d"))
    log.entry(action)
    assert decided(log, PrepareCommand(opening(number, log), "d")) == Answer(None)
    with pytest.raises(InvalidTransactionState, match="PREPARED"):
        decided(log, AbortCommand(number, "admin"))
    assert decided(log, AbortCommand(number, "admin", force=True)) == [Abort(number, "admin")]


def test_an_abort_of_a_number_that_can_have_no_end_is_refused(log: Log) -> None:
    with pytest.raises(InvalidInputError, match="never given"):
        decided(log, AbortCommand(log.state.head.next_number))
    number = log.number()
    log.entry(Abort(number))
    del log.state.outcomes[number]  # as after its retention
    with pytest.raises(TransactionNotFound, match="remembered"):
        decided(log, AbortCommand(number))


# --- the end of overdue transactions --------------------------------------------------------------------------------


@pytest.mark.clause("P-64")
def test_a_transaction_is_overdue_a_grace_after_its_deadline(log: Log) -> None:
    timed, endless, prepared = log.number(), log.number(), log.number()
    log.entry(Begin(timed, 1_000), Begin(endless), Begin(prepared, 1_000), Prepare(prepared, ""))
    deadline = log.transaction(timed).deadline_ms
    assert overdue(log.state.draft(), deadline + EXPIRY_GRACE_MS - 1) == []
    assert overdue(log.state.draft(), deadline + EXPIRY_GRACE_MS) == [Abort(timed, "timeout")]


def test_many_overdue_transactions_are_ended_some_at_a_time(log: Log) -> None:
    numbers = [log.number() for _ in range(150)]
    log.entry(*(Begin(number, 1) for number in numbers))
    ended: list[int] = []
    while found := overdue(log.state.draft(), log.now_ms + 10_000):
        assert len(found) <= 100
        log.entry(*found, after_ms=10_000)
        ended += [action.txn for action in found]
    assert sorted(ended) == numbers
