"""Commands that are decided into one entry: no answer rests on one that did not come along."""

from __future__ import annotations

import pytest

from tests.core import Log
from txnlog.actions import Segment, SliceRows
from txnlog.apply import begin_entry
from txnlog.commands import Piece
from txnlog.entry_builder import Attempt, MadeEntry, Member, Riders, SharedWave, Step
from txnlog.errors import TransactionTimedOut
from txnlog.transaction_commands import CommitCommand, Opening


def _commit(txn: int, topic: int, deadline_ms: int | None, now: list[int]) -> CommitCommand:
    opening = Opening(txn, lambda: now[0], deadline_ms=deadline_ms)
    return CommitCommand(opening, f"{txn:032x}", (Piece(topic, 0, 1, 10, None, txn),))


@pytest.mark.clause("P-26", "P-118")
def test_a_repeated_commit_is_not_told_of_an_end_that_did_not_come() -> None:
    """The deadline of a transaction passes between two looks at one batch, which holds its commit twice."""
    log = Log()
    topic = log.topic("orders")
    now = [log.now_ms]
    late = _commit(1, topic, log.now_ms + 10, now)
    members = [Member(late), Member(late), Member(_commit(2, topic, None, now))]
    attempt: Attempt[Member] = Attempt(members)
    attempt.refreshed = True
    header = log.header()
    told = []
    for number in range(100, 120):
        draft = log.state.draft()
        begin_entry(draft, header)
        made = attempt.make(draft, header, Riders())
        told.extend(attempt.answers)
        attempt.answers.clear()
        if made is Step.WAVE:
            rows = sum(piece.rows for _, piece in attempt.pieces())
            action = Segment(number, topic, f"{number:032x}.parquet", rows, 10, "crc32:00000000", (SliceRows(0, rows),))
            attempt.set_wave(SharedWave({topic: number}, (action,), ()))
            if number > 100:
                now[0] += 11
        if isinstance(made, MadeEntry):
            told.extend(made.replies)
            assert made.sent == (members[2],)
            break
        assert made is not Step.DONE
    errors = {members.index(verdict.member): type(verdict.error) for verdict in told}
    assert errors == {0: TransactionTimedOut, 1: TransactionTimedOut, 2: type(None)}
