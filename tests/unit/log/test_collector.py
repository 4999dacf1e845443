"""What somebody who collects makes of a mailbox."""

from __future__ import annotations

from typing import Any

import pytest

from tests.memory_log import WRITER, Log
from txnlog.fold.apply import apply, begin_entry
from txnlog.format.actions import Abort, Begin, Commit, Producer, Reserve
from txnlog.log.commands import Answer, Command
from txnlog.log.proposals.collector import Proposal
from txnlog.log.proposals.proposal_codec import Mailbox, Proposed, ProposedCommit, commands_of

OTHER = "f" * 32
NUMBER = 1_000


def proposed(log: Log, *commands: Proposed, number: int | None = NUMBER, writer: str = WRITER) -> list[Command[Any]]:
    head = log.state.head
    mailbox = Mailbox(1, writer, number, head.version, head.timestamp_ms, commands)
    return list(Proposal(mailbox, commands_of(mailbox, log.state)).commands)


def decided(log: Log, commands: list[Command[Any]]) -> list[list[str]]:
    """What each of them writes into one entry, in this order."""
    draft, header = log.state.draft(), log.header()
    begin_entry(draft, header)
    written: list[list[str]] = []
    for command in commands:
        found = command.decide(draft, header, {})
        actions = [] if isinstance(found, Answer) else list(found)
        for action in actions:
            apply(draft, action, header)
        written.append([type(action).__name__ for action in actions])
    return written


def commit(txn: int, **fields: Any) -> ProposedCommit:
    return ProposedCommit(txn, "0" * 32, **fields)


def test_commands_are_carried_out_as_their_owner_would(log: Log) -> None:
    assert decided(log, proposed(log, commit(3), commit(4))) == [["Commit"], ["Commit"]]


@pytest.mark.clause("P-248")
def test_nothing_overtakes_what_was_refused_in_front_of_it(log: Log) -> None:
    """Its owner may append that yet."""
    log.entry(Producer("loader"))
    log.entry(Producer("loader"))
    commands = proposed(log, commit(3), commit(4, producer="loader", epoch=1), commit(5), commit(6))
    assert decided(log, commands) == [["Commit"], [], [], []]
    log.entry(Abort(4))
    assert decided(log, commands) == [["Commit"], [], ["Commit"], ["Commit"]], "once that has its end they may follow"


@pytest.mark.clause("P-247")
def test_nothing_is_done_where_the_number_was_used(log: Log) -> None:
    commands = proposed(log, commit(3))
    log.entry(Abort(NUMBER))
    assert decided(log, commands) == [[]]


@pytest.mark.clause("P-247")
def test_nothing_is_done_with_numbers_of_others(log: Log) -> None:
    log.entry(Reserve(OTHER, 1024, 256))
    assert decided(log, proposed(log, commit(3), number=1025)) == [[]], "the number of the proposal"
    assert decided(log, proposed(log, commit(1026))) == [[]], "the transaction"
    assert decided(log, proposed(log, commit(1026), number=1025, writer=OTHER)) == [["Commit"]]
    assert decided(log, proposed(log, commit(5_000))) == [[]], "a number that nobody was given"


@pytest.mark.clause("P-247", "P-250")
def test_a_block_that_says_its_client_is_its_writers(log: Log) -> None:
    log.entry(Reserve(f"{OTHER} nightly host-7:4711 txnlog/1.0.0", 1024, 256))
    assert decided(log, proposed(log, commit(1026), number=1025, writer=OTHER)) == [["Commit"]]
    assert decided(log, proposed(log, commit(1026), number=1025)) == [[]], "and nobody else's"


@pytest.mark.clause("P-248")
def test_what_is_in_the_log_already_is_not_written_again(log: Log) -> None:
    commands = proposed(log, commit(3), commit(4))
    log.entry(Commit(3, "0" * 32))
    assert decided(log, commands) == [[], ["Commit"]]


@pytest.mark.clause("P-247")
def test_nothing_is_done_about_a_transaction_that_the_log_shows(log: Log) -> None:
    """Whoever may put any mailbox would commit half of it."""
    commands = proposed(log, commit(3))
    log.entry(Begin(3))
    assert decided(log, commands) == [[]]


@pytest.mark.clause("P-247")
def test_nothing_is_committed_behind_its_deadline(log: Log) -> None:
    """Its owner may be gone, and somebody else at work on the same again."""
    commands = proposed(log, commit(3, left_ms=1_000), commit(4, left_ms=900), commit(5))
    log.entry(Abort(201), after_ms=999)
    assert decided(log, commands[:1]) == [["Commit"]]
    log.entry(Abort(202), after_ms=2)
    assert decided(log, commands) == [[], [], []], "nothing overtakes it: its owner hears of it first"
    log.entry(Abort(3), Abort(4))
    assert decided(log, commands) == [[], [], ["Commit"]]


@pytest.mark.clause("P-247")
def test_nothing_is_done_that_was_proposed_long_ago(log: Log) -> None:
    """Its writer may have died, and its deadline passed."""
    commands = proposed(log, commit(3))
    for number in range(64, 127):
        log.entry(Abort(number), after_ms=1)
    assert decided(log, commands) == [["Commit"]]
    log.entry(Abort(200), after_ms=1)
    assert decided(log, commands) == [[]]
    commands = proposed(log, commit(5))
    log.entry(Abort(201), after_ms=60_000)
    assert decided(log, commands) == [["Commit"]]
    log.entry(Abort(202), after_ms=1)
    assert decided(log, commands) == [[]]
