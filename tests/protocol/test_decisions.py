"""What a writer answers without appending: decided against a state, by pure code."""

from __future__ import annotations

import pytest

from tests.core import Log
from txnlog.actions import Abort, Begin, Commit, Prepare, StreamBatch
from txnlog.commands import Answer, Piece
from txnlog.errors import InvalidInputError, InvalidTransactionState, OutOfOrderSequence
from txnlog.limits import EXPIRY_GRACE_MS
from txnlog.transaction_commands import CommitCommand, Duplicate, Opening, Skipped, overdue, replayed


def decided(log: Log, command: CommitCommand) -> object:
    """What the command would append now, or its answer."""
    result = command.decide(log.state.draft(), log.header(), {})
    return result.value if isinstance(result, Answer) else result


def opening(txn: int, **options) -> Opening:
    return Opening(txn, lambda: None, **options)


@pytest.mark.clause("P-62")
def test_a_repeated_commit_is_answered_with_the_recorded_result(log):
    log.entry(Commit(0, "d"))
    assert decided(log, CommitCommand(opening(0), "d")) == log.outcome(0)


@pytest.mark.clause("P-62")
def test_a_commit_with_other_contents_is_no_repetition(log):
    log.entry(Commit(0, "d"))
    with pytest.raises(InvalidTransactionState, match="other contents"):
        decided(log, CommitCommand(opening(0), "e"))


@pytest.mark.clause("P-69")
@pytest.mark.parametrize("app_version", [7, 6])
def test_an_application_version_that_was_committed_is_skipped_with_the_original(log, app_version):
    version = log.entry(Commit(0, app_id="nightly", app_version=7))
    command = CommitCommand(opening(1, app_id="nightly", app_version=app_version), "d")
    assert decided(log, command) == Skipped(0, version)


def batch(number: int, query: str = "q", digest: str = "d") -> StreamBatch:
    return StreamBatch("carriers", query, number, digest)


@pytest.mark.clause("P-71")
def test_the_same_batch_of_a_stream_is_skipped(log):
    version = log.entry(Commit(0, stream=batch(3)))
    assert replayed(log.state.draft(), batch(3)) == Skipped(0, version)
    assert decided(log, CommitCommand(opening(1), "d", stream=batch(3))) == Skipped(0, version)
    assert replayed(log.state.draft(), batch(4)) is None


@pytest.mark.clause("P-71")
@pytest.mark.parametrize("other", [batch(3, digest="e"), batch(3, "another"), batch(0, "another")])
def test_a_batch_with_other_offsets_or_from_another_query_is_an_error(log, other):
    log.entry(Commit(0, stream=batch(3)))
    with pytest.raises(InvalidInputError, match="'carriers'"):
        replayed(log.state.draft(), other)


def sequenced(topic: int, sequence: int, rows: int, epoch: int) -> CommitCommand:
    pieces = [Piece(topic, 0, rows, 1, None, 0, sequence)]
    return CommitCommand(opening(900, producer="loader", epoch=epoch), "d", pieces, plain=True)


@pytest.mark.clause("P-54")
def test_a_batch_that_became_visible_before_is_a_duplicate(log):
    topic, epoch = log.topic(), log.producer()
    log.produce(topic, 5, producer="loader", epoch=epoch, sequences={0: 10})
    for first, rows in ((10, 5), (12, 3), (0, 3)):
        assert isinstance(decided(log, sequenced(topic, first, rows, epoch)), Duplicate)


@pytest.mark.clause("P-54")
def test_a_batch_that_repeats_a_part_is_an_error(log):
    topic, epoch = log.topic(), log.producer()
    log.produce(topic, 5, producer="loader", epoch=epoch, sequences={0: 10})
    with pytest.raises(OutOfOrderSequence, match="repeats a part"):
        decided(log, sequenced(topic, 13, 4, epoch))


@pytest.mark.clause("P-64")
def test_others_end_a_transaction_when_its_deadline_and_the_grace_are_over(log):
    log.entry(Begin(0, 1_000), Begin(1), Begin(2, 1_000), Prepare(2, ""))
    deadline = log.transaction(0).deadline_ms
    assert deadline is not None
    assert overdue(log.state.draft(), deadline + EXPIRY_GRACE_MS - 1) == []
    assert overdue(log.state.draft(), deadline + EXPIRY_GRACE_MS) == [Abort(0, "timeout")]
