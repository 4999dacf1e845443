"""Deciding a batch: what is told at once, what waits for the entry, what is decided anew."""

from __future__ import annotations

from typing import Any

import pytest

from tests.memory_log import Log
from txnlog.acknowledgements import live_subscription
from txnlog.actions import Abort, Begin, Consumer, DropSubscription, Segment, SliceRows
from txnlog.apply import apply, begin_entry
from txnlog.commands import Piece, Simple, effect
from txnlog.entry_builder import Attempt, MadeEntry, Member, Riders, SharedWave, Step
from txnlog.errors import InvalidTransactionState, TransactionTimedOut
from txnlog.ids import TxnId
from txnlog.transaction_commands import AbortCommand, CommitCommand, Opening


def make(log: Log, attempt: Attempt[Member], *ending: Any) -> MadeEntry[Member] | Step:
    """One look at the batch, at the log's newest state; ``ending`` rides along."""
    draft, header = log.state.draft(), log.header()
    begin_entry(draft, header)
    for action in ending:
        apply(draft, action, header)
    return attempt.make(draft, header, Riders(ending, bool(ending)))


def aborting(number: int) -> Member:
    return Member(AbortCommand(number))


def refusing(number: int, pieces: tuple[Piece, ...] = ()) -> Member:
    """Refused as soon as the transaction has ended."""

    def decide(draft: Any, at: Any) -> list[Any]:
        if draft.outcomes.get(number) is not None:
            raise InvalidTransactionState("it ended")
        return []

    return Member(Simple(decide, lambda draft, at: None, None, (number,), pieces))


def told(attempt: Attempt[Member]) -> list[tuple[Member, str]]:
    return [(v.member, type(v.error).__name__ if v.error else v.value.state) for v in attempt.answers]


def test_an_answer_from_the_log_is_told_at_once(log: Log) -> None:
    number = log.number()
    log.entry(Abort(number))
    member = aborting(number)
    attempt = Attempt([member])
    assert make(log, attempt) is Step.DONE
    assert told(attempt) == [(member, "ABORTED")]


def test_a_refusal_is_looked_at_again_once(log: Log) -> None:
    number = log.number()
    log.entry(Abort(number))
    attempt = Attempt([refusing(number)])
    assert make(log, attempt) is Step.REFRESH
    assert not attempt.answers
    attempt.refreshed = True
    assert make(log, attempt) is Step.DONE
    assert told(attempt) == [(attempt.answers[0].member, "InvalidTransactionState")]


@pytest.mark.clause("P-119")
def test_what_rests_on_another_member_waits_for_the_entry(log: Log) -> None:
    number = log.number()
    first, second, third = aborting(number), aborting(number), refusing(number)
    attempt = Attempt([first, second, third])
    attempt.refreshed = True
    made = make(log, attempt)
    assert isinstance(made, MadeEntry)
    assert not attempt.answers
    assert made.sent == (first,)
    assert [v.member for v in made.replies] == [first, second, third]
    assert isinstance(made.replies[2].error, InvalidTransactionState)
    assert b'"abort"' in made.data


def test_after_a_lost_race_everybody_is_decided_anew(log: Log) -> None:
    number = log.number()
    first, second = aborting(number), refusing(number)
    attempt = Attempt([first, second])
    attempt.refreshed = True
    assert isinstance(make(log, attempt), MadeEntry)
    attempt.lost()
    log.entry(Abort(number))
    assert make(log, attempt) is Step.DONE
    assert told(attempt) == [(first, "ABORTED"), (second, "InvalidTransactionState")]


def test_a_state_that_moved_without_a_race_decides_anew_too(log: Log) -> None:
    """Another thread of the client folded an entry between two looks."""
    number = log.number()
    topic = log.topic()
    log.entry(Begin(number))
    rows = (Piece(topic, 0, 1, 10, None, 7),)
    first, second = aborting(number), refusing(number, rows)
    attempt = Attempt([first, second])
    attempt.refreshed = True
    attempt.set_wave(SharedWave({}, (), ()))
    assert make(log, attempt) is Step.AGAIN, "rows of one that fell out must leave the shared segments"
    assert not attempt.answers
    log.entry(Abort(number))
    assert [make(log, attempt), make(log, attempt)] == [Step.AGAIN, Step.DONE]
    assert told(attempt) == [(first, "ABORTED"), (second, "InvalidTransactionState")]


def test_an_answer_that_rests_on_a_rider_waits_for_the_entry(log: Log) -> None:
    number = log.number()
    log.entry(Begin(number, 1))
    member = aborting(number)
    attempt = Attempt([member])
    made = make(log, attempt, Abort(number, "timeout"))
    assert isinstance(made, MadeEntry)
    assert (made.sent, [v.member for v in made.replies]) == ((), [member])
    assert made.replies[0].value.reason == "timeout"
    assert not attempt.answers


def test_riders_alone_are_not_worth_an_entry(log: Log) -> None:
    number, other = log.number(), log.number()
    log.entry(Begin(number, 1))
    log.entry(Abort(other))
    assert make(log, Attempt([]), Abort(number, "timeout")) is Step.DONE


def test_who_has_an_answer_is_no_member_any_more(log: Log) -> None:
    number, other = log.number(), log.number()
    log.entry(Abort(number))
    done, new = aborting(number), aborting(other)
    attempt = Attempt([done, new])
    made = make(log, attempt)
    assert isinstance(made, MadeEntry)
    assert told(attempt) == [(done, "ABORTED")]
    assert attempt.members == [new]
    assert made.sent == (new,)


def test_an_answer_is_of_the_state_that_its_own_command_made(log: Log) -> None:
    subscription = log.subscription(log.topic())
    opened = Member(
        Simple(
            lambda _draft, _at: [Consumer(subscription, "c")],
            lambda draft, _at: live_subscription(draft, subscription).epoch,
        )
    )
    dropped = Member(effect(lambda _draft, _at: [DropSubscription(subscription)]))
    made = make(log, Attempt([opened, dropped]))
    assert isinstance(made, MadeEntry)
    assert [(reply.member, reply.value) for reply in made.replies] == [(opened, made.header.version), (dropped, None)]


def _commit(txn: int, topic: int, deadline_ms: int | None, now: list[int]) -> CommitCommand:
    opening = Opening(TxnId(0, txn), lambda: now[0], deadline_ms=deadline_ms)
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
