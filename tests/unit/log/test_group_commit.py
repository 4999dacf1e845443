"""Deciding a batch: what is told at once, what with the entry, and who is decided anew behind it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tests.memory_log import Log, individually, tables_of
from txnlog.errors import InvalidTransactionState, TransactionConflict, TransactionTimedOut, TxnLogError
from txnlog.fold.apply import apply, begin_entry
from txnlog.fold.overdue import overdue
from txnlog.fold.state import Draft, Outcome
from txnlog.fold.subscription_records import live_subscription
from txnlog.format.actions import Abort, Begin, Commit, Consumer, DropSubscription, DropTopic, Header
from txnlog.log.commands import Answer, Piece, Simple, effect
from txnlog.log.group_commit import Attempt, MadeEntry, Member, MemberReply, Needed, Riders, SharedWave
from txnlog.log.transaction_commands import AbortCommand, CommitCommand, Opening, Skipped


def make(log: Log, attempt: Attempt[Member], *ending: Any) -> MadeEntry[Member] | Needed:
    """One look at the batch, at the log's newest state; ``ending`` rides along."""
    draft, header = log.state.draft(), log.header()
    begin_entry(draft, header)
    for action in ending:
        apply(draft, action, header)
    return attempt.make(draft, header, Riders(ending, bool(ending)))


def land(log: Log, attempt: Attempt[Member], made: MadeEntry[Member] | Needed) -> None:
    """The entry is in the log."""
    assert isinstance(made, MadeEntry)
    log.fold(made.data)
    attempt.won(made)


def make_wave(log: Log, attempt: Attempt[Member]) -> None:
    """The shared segments that were asked for, of the topics that are there."""
    rows: dict[int, int] = {}
    for _, piece in attempt.pieces():
        if not log.state.topics[piece.topic].dropped:
            rows[piece.topic] = rows.get(piece.topic, 0) + piece.rows
    segments = tuple([log.segment(topic, {0: count}) for topic, count in rows.items()])
    attempt.set_wave(SharedWave({segment.topic: segment.segment for segment in segments}, segments, ()))


def aborting(number: int) -> Member:
    return Member(AbortCommand(number))


@dataclass(frozen=True)
class WithRows(Simple[None]):
    pieces: tuple[Piece, ...] = ()


def refusing(number: int, pieces: tuple[Piece, ...] = ()) -> Member:
    """Refused as soon as the transaction has ended."""

    def decide(draft: Any, at: Any) -> list[Any]:
        if draft.outcomes.get(number) is not None:
            raise InvalidTransactionState("it ended")
        return []

    return Member(WithRows(decide, lambda draft, at: None, None, (number,), pieces=pieces))


def told(attempt: Attempt[Member]) -> list[tuple[Member, str]]:
    return [(v.member, type(v.error).__name__ if v.error else v.value.state) for v in attempt.answers]


def test_an_answer_from_the_log_is_reported_at_once(log: Log) -> None:
    number = log.number()
    log.entry(Abort(number))
    member = aborting(number)
    attempt = Attempt([member])
    assert make(log, attempt) is Needed.DONE
    assert told(attempt) == [(member, "ABORTED")]


def test_a_refusal_is_looked_at_again_once(log: Log) -> None:
    number = log.number()
    log.entry(Abort(number))
    attempt = Attempt([refusing(number)])
    assert make(log, attempt) is Needed.REFRESH
    assert not attempt.answers
    attempt.refreshed = True
    assert make(log, attempt) is Needed.DONE
    assert told(attempt) == [(attempt.answers[0].member, "InvalidTransactionState")]


@pytest.mark.clause("P-119")
def test_what_rests_on_another_member_is_reported_with_the_entry(log: Log) -> None:
    number = log.number()
    first, second, third = aborting(number), aborting(number), refusing(number)
    attempt = Attempt([first, second, third])
    assert make(log, attempt) is Needed.REFRESH, "with the look comes another for what is overdue"
    attempt.refreshed = True
    made = make(log, attempt)
    assert isinstance(made, MadeEntry)
    assert not attempt.answers
    assert made.sent == (first,)
    assert made.data.count(b'"abort"') == 1
    land(log, attempt, made)
    assert attempt.members == []
    assert told(attempt) == [(first, "ABORTED"), (second, "ABORTED"), (third, "InvalidTransactionState")]


def test_after_a_lost_race_what_was_sent_is_decided_anew(log: Log) -> None:
    number = log.number()
    first, second = aborting(number), refusing(number)
    attempt = Attempt([first, second])
    attempt.refreshed = True
    assert isinstance(make(log, attempt), MadeEntry)
    attempt.lost()
    log.entry(Abort(number))
    assert make(log, attempt) is Needed.DONE
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
    make_wave(log, attempt)
    assert make(log, attempt) is Needed.AGAIN, "rows of one that fell out must leave the shared segments"
    assert not attempt.answers
    log.entry(Abort(number))
    assert make(log, attempt) is Needed.WAVE
    make_wave(log, attempt)
    assert make(log, attempt) is Needed.DONE
    assert told(attempt) == [(first, "ABORTED"), (second, "InvalidTransactionState")]


def test_whoever_the_log_alone_refuses_or_answers_puts_nobody_off(log: Log) -> None:
    ended, others = log.number(), [log.number(), log.number()]
    log.entry(Abort(ended))
    members = [aborting(others[0]), refusing(ended), aborting(ended), aborting(others[1])]
    attempt = Attempt(members)
    attempt.refreshed = True
    made = make(log, attempt)
    assert isinstance(made, MadeEntry)
    assert made.sent == (members[0], members[3])
    assert told(attempt) == [(members[1], "InvalidTransactionState"), (members[2], "ABORTED")]


def test_whoever_rests_on_others_holds_up_nobody(log: Log) -> None:
    number, other = log.number(), log.number()
    members = [aborting(number), refusing(number), aborting(other)]
    attempt = Attempt(members)
    attempt.refreshed = True
    made = make(log, attempt)
    assert isinstance(made, MadeEntry)
    assert made.sent == (members[0], members[2])
    land(log, attempt, made)
    assert told(attempt) == [
        (members[0], "ABORTED"),
        (members[1], "InvalidTransactionState"),
        (members[2], "ABORTED"),
    ]


def test_nobody_is_answered_before_one_in_front_who_depends_on_others(log: Log) -> None:
    """If the first falls out, the second is carried out, and what the log alone tells the third is out of date."""
    number, ended = log.number(), log.number()
    log.entry(Abort(ended))
    members = [aborting(number), refusing(number), refusing(ended)]
    attempt = Attempt(members)
    attempt.refreshed = True
    made = make(log, attempt)
    assert isinstance(made, MadeEntry)
    assert not attempt.answers
    assert [reply.member for reply in made.replies] == members


@pytest.mark.parametrize(
    ("alone", "behind"),
    [
        (InvalidTransactionState("it is open"), Answer("ended")),
        (InvalidTransactionState("it is open"), TransactionTimedOut("it ended")),
        (Answer("open"), Answer("ended")),
    ],
    ids=["refused", "refused otherwise", "answered otherwise"],
)
def test_what_the_log_alone_would_say_otherwise_is_reported_with_the_entry(log: Log, alone: Any, behind: Any) -> None:
    number = log.number()

    def decide(draft: Draft, _at: Header) -> Answer[str]:
        told = alone if draft.outcomes.get(number) is None else behind
        if isinstance(told, Exception):
            raise told
        assert isinstance(told, Answer)
        return told

    members = [aborting(number), Member(Simple(decide, lambda _draft, _at: ""))]
    attempt = Attempt(members)
    attempt.refreshed = True
    made = make(log, attempt)
    assert not attempt.answers
    land(log, attempt, made)
    told = attempt.answers[1]
    assert (told.error or Answer(told.value)) == behind


def test_a_settled_answer_does_not_wait_for_the_look_that_another_one_needs(log: Log) -> None:
    ended, other = log.number(), log.number()
    log.entry(Abort(ended))
    log.entry(Abort(other))
    settled, needing = aborting(ended), refusing(other)
    attempt = Attempt([settled, needing])
    assert make(log, attempt) is Needed.REFRESH
    assert told(attempt) == [(settled, "ABORTED")]
    assert attempt.members == [needing]


def test_an_answer_that_rests_on_a_rider_is_given_behind_the_entry(log: Log) -> None:
    """One entry ends a hundred that are overdue: somebody may be refused for the hundred and first."""
    number = log.number()
    log.entry(Begin(number, 1))
    member = aborting(number)
    attempt = Attempt([member])
    made = make(log, attempt, Abort(number, "timeout"))
    while made is Needed.WAVE:
        make_wave(log, attempt)
        made = make(log, attempt, Abort(number, "timeout"))
    assert isinstance(made, MadeEntry)
    assert (made.sent, made.replies, attempt.answers) == ((), (), [])
    land(log, attempt, made)
    assert make(log, attempt) is Needed.DONE
    assert attempt.answers[0].value.reason == "timeout"


@pytest.mark.parametrize("first", [False, True], ids=["behind", "in front"])
def test_no_segments_are_made_of_those_who_are_put_off_behind_the_end_of_what_is_overdue(
    log: Log, *, first: bool
) -> None:
    """Who asks about an overdue transaction waits, and with it who asked later. Who asked before goes along."""
    topic = log.topic()
    numbers = [log.number() for _ in range(3)]
    for number in numbers:
        log.entry(Begin(number, 1))
    asking, committing = aborting(numbers[0]), Member(Work().commit(log, topic))
    attempt = Attempt([asking, committing] if first else [committing, asking])
    encoded = []
    for number in numbers:
        made = make(log, attempt, Abort(number, "timeout"))
        while made is Needed.WAVE:
            encoded.append(len(attempt.pieces()))
            make_wave(log, attempt)
            made = make(log, attempt, Abort(number, "timeout"))
        if number == numbers[0]:
            assert isinstance(made, MadeEntry)
            assert made.sent == (() if first else (committing,))
        if isinstance(made, MadeEntry):
            land(log, attempt, made)
    list(carry_out(log, attempt, []))
    assert log.state.outcomes[committing.command.txn_ids[0]].state == "COMMITTED"
    assert sum(encoded) <= 1, encoded


def test_what_the_log_shows_by_now_can_be_reported_whatever_became_of_the_attempt(log: Log) -> None:
    topic = log.topic()
    committed, open_one, aborted = (Work(rows=0).commit(log, topic) for _ in range(3))
    log.entry(Commit(committed.opening.txn, committed.digest))
    log.entry(Abort(aborted.opening.txn))
    members = [Member(committed), Member(open_one), Member(aborted)]

    asked = []

    def noting(_draft: Draft, at: Header) -> Answer[None]:
        asked.append(at.version)
        return Answer(None, settled=True)

    attempt = Attempt([*members, Member(Simple(noting, lambda _draft, _at: None))])
    draft, header = log.state.draft(), log.header()
    before = tables_of(draft)
    attempt.answer_settled(draft, header)
    assert told(attempt) == [(members[0], "COMMITTED")]
    assert not asked, "it is of no transaction: what it notes when it is asked is of its own entry"
    assert tables_of(draft) == before


def test_riders_alone_are_not_worth_an_entry(log: Log) -> None:
    number, other = log.number(), log.number()
    log.entry(Begin(number, 1))
    log.entry(Abort(other))
    assert make(log, Attempt([]), Abort(number, "timeout")) is Needed.DONE


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


# --- whole batches --------------------------------------------------------------------------------------------------


def carry_out(
    log: Log, attempt: Attempt[Member], passing: list[int], loses: Callable[[], bool] = lambda: False
) -> Iterator[MemberReply[Member]]:
    """Bring a batch into the log as the appender does. Gives each reply at the moment at which it is told.

    ``passing``: the time before each look, in milliseconds; ``loses`` tells whether somebody else takes the next slot.
    In the log the members must stand in their order: whoever is left behind an entry stands behind all whom it holds.
    """
    asked = attempt.members
    times = iter(passing)
    for _ in range(300):
        log.now_ms += next(times, 0)
        made = make(log, attempt, *overdue(log.state.draft(), log.now_ms))
        if isinstance(made, MadeEntry) and loses():
            attempt.lost()
            log.entry(Abort(log.number()), after_ms=0)
        elif isinstance(made, MadeEntry):
            yield from told_by(log, attempt)
            check_places(log, made)
            land(log, attempt, made)
            yield from attempt.answers
            attempt.answers.clear()
            places = [asked.index(member) for member in (*made.sent, *attempt.members)]
            assert places == sorted(places), "somebody was overtaken"
        elif made is Needed.WAVE:
            make_wave(log, attempt)
        elif made is Needed.REFRESH:
            attempt.refreshed = True
        yield from told_by(log, attempt)
        if made is Needed.DONE:
            return
    raise AssertionError("deciding has no end")


def told_by(log: Log, attempt: Attempt[Member]) -> Iterator[MemberReply[Member]]:
    """What is told before there is an entry: the log alone must say so."""
    for reply in attempt.answers:
        draft, header = log.state.draft(), log.header()
        begin_entry(draft, header)
        check_place(log, draft, header, reply)
        yield reply
    attempt.answers.clear()


def check_places(log: Log, made: MadeEntry[Member]) -> None:
    """What is told with an entry holds at its place in it: as if the commands were carried out one after the other."""
    draft, header = log.state.draft(), made.header
    begin_entry(draft, header)
    for action in made.riders.actions:
        apply(draft, action, header)
    for reply in made.replies:
        check_place(log, draft, header, reply)
    assert tables_of(draft)["outcomes"] == tables_of(made.draft)["outcomes"]


def check_place(log: Log, draft: Draft, header: Header, reply: MemberReply[Member]) -> None:
    """Carry a command out by itself, with segments of its own, and compare what it comes to."""
    rows: dict[int, int] = {}
    for piece in reply.member.command.pieces:
        topic = draft.topics.get(piece.topic)
        if topic is not None and not topic.dropped:
            rows[piece.topic] = rows.get(piece.topic, 0) + piece.rows
    segments = [log.segment(number, {0: count}) for number, count in rows.items()]
    mark = draft.savepoint()
    value, error = None, None
    try:
        for segment in segments:
            apply(draft, segment, header)
        decided = reply.member.command.decide(draft, header, {item.topic: item.segment for item in segments})
        if isinstance(decided, Answer):
            value = decided.value
            draft.rollback(mark)
        else:
            for action in decided:
                apply(draft, action, header)
            value = reply.member.command.result(draft, header)
    except TxnLogError as refusal:
        error = refusal
        draft.rollback(mark)
    assert (value, type(error)) == (reply.value, type(reply.error))


@dataclass(frozen=True)
class Work:
    """A transaction of an application, perhaps, with rows for one topic or two, and perhaps in the log already.

    ``takes``: the one message of a subscription of the first topic, which only one transaction can acknowledge.
    """

    version: int | None = None
    timeout_ms: int | None = None
    rows: int = 1
    logged: bool = False
    others: int = 0
    takes: bool = False

    def commit(self, log: Log, topic: int, other: int | None = None, subscription: int = 0) -> CommitCommand:
        """Its commit; ``log`` keeps the time of its owner as well."""
        number = log.number()
        app = "nightly" if self.version is not None else None
        if self.logged:
            log.entry(Begin(number, self.timeout_ms, app_id=app, app_version=self.version), after_ms=0)
        deadline_ms = None if self.timeout_ms is None else log.now_ms + self.timeout_ms
        opening = Opening(
            log.state.draft().txn_id(number), lambda: log.now_ms, None, None, app, self.version, deadline_ms
        )
        wanted = [(topic, self.rows)] if other is None else [(topic, self.rows), (other, self.others)]
        pieces = tuple([Piece(place, 0, rows, 10, None, number) for place, rows in wanted if rows])
        taken = (individually(subscription, {0: [(0, 1)]}),) if self.takes else ()
        return CommitCommand(opening, f"{number:032x}", pieces, acknowledgements=taken)


def dropping(topic: int) -> Member:
    return Member(effect(lambda _draft, _at: [DropTopic(topic)]))


def errors_of(replies: Iterator[MemberReply[Member]], members: list[Member]) -> dict[int, type]:
    return {members.index(reply.member): type(reply.error) for reply in replies}


def test_nobody_behind_one_that_was_put_off_is_answered_before_it(log: Log) -> None:
    """The third needs what the first brings, or the second, who is not needed as long as the first may come."""
    topic = log.topic()

    def decide(draft: Any, at: Any) -> list[Any]:
        if draft.apps.get("nightly") is None:
            raise InvalidTransactionState("the batch is missing")
        return []

    members = [Member(work.commit(log, topic)) for work in (Work(5, 10, rows=0, logged=True), Work(5))]
    members.append(Member(effect(decide)))
    replies = carry_out(log, Attempt(members), [0, 0, 0, 11])
    assert errors_of(replies, members) == {0: TransactionTimedOut, 1: type(None), 2: type(None)}


def check_shown(log: Log, other: int, reply: MemberReply[Member]) -> None:
    """The log shows what was done, or was done before, at the moment at which it is told."""
    command: Any = reply.member.command
    if isinstance(reply.value, Outcome):
        assert log.state.outcomes[command.txn_ids[0]] == reply.value
    elif isinstance(reply.value, Skipped):
        earlier = log.state.outcomes[reply.value.txn]
        assert (earlier.state, earlier.version) == ("COMMITTED", reply.value.version)
        assert log.state.apps["nightly"].app_version >= command.opening.app_version
    elif reply.error is None:
        assert log.state.topics[other].dropped


@pytest.mark.parametrize("takes", [False, True], ids=["batches", "messages"])
def test_rows_of_those_who_rest_on_others_are_encoded_once(log: Log, *, takes: bool) -> None:
    """Of each pair the second is skipped, or refused, because of the first: one entry, the segments made twice."""
    topic = log.topic()
    pairs = 50
    log.produce(topic, pairs)
    subscription = log.subscription(topic)
    members, encoded = [], []
    for number in range(pairs):
        for _ in range(2):
            commit = Work(None if takes else number + 1).commit(log, topic)
            if takes:
                commit.acknowledgements = (individually(subscription, {0: [(number, number + 1)]}),)
            members.append(Member(commit))

    class Counting(Attempt[Member]):
        def set_wave(self, wave: SharedWave, *, answers: bool = True) -> None:
            encoded.append(len(self.pieces()))
            super().set_wave(wave, answers=answers)

    version = log.version
    replies = {members.index(reply.member): reply for reply in carry_out(log, Counting(members), [])}
    ends = [type(replies[place].error) if takes else type(replies[place].value) for place in range(2 * pairs)]
    assert ends == ([type(None), TransactionConflict] if takes else [Outcome, Skipped]) * pairs
    assert (log.version - version, encoded) == (1, [2 * pairs, pairs])


LATE = Work(1, 10, rows=0, logged=True)
works = st.builds(
    Work,
    st.sampled_from([None, 1, 2]),
    st.sampled_from([None, 1, 10, 20_000]),
    st.integers(0, 2),
    st.booleans(),
    st.integers(0, 1),
    st.booleans(),
)
calls = st.sampled_from(["commit", "commit", "commit", "abort", "drop"])
groups = st.lists(st.tuples(calls, st.integers(0, 2)), min_size=1, max_size=9)
moments = st.sampled_from([0, 1, 10, 6_000])
times = st.lists(moments, max_size=9) | st.builds(lambda looks, ms: [0] * looks + [ms], st.integers(1, 9), moments)


@pytest.mark.clause("P-26", "P-57", "P-65", "P-69", "P-118", "P-119")
@settings(max_examples=300)
@given(st.lists(works, min_size=3, max_size=3), groups, times, st.lists(st.booleans(), max_size=4))
@example([LATE, Work(1), Work()], [("commit", 0), ("commit", 1)], [0, 0, 0, 11], [])
@example([LATE, Work(1), Work()], [("commit", 0), ("commit", 1), ("commit", 2)], [0, 0, 0, 11], [])
@example([LATE, Work(1), Work()], [("commit", 0), ("abort", 0), ("commit", 1), ("commit", 2)], [0, 0, 0, 11], [])
@example([Work(1, 10), Work(1), Work(2)], [("commit", 0), ("commit", 1), ("commit", 2)], [0, 0, 0, 11], [])
@example([Work(1, others=1), Work(2), Work()], [("drop", 0), ("commit", 0), ("commit", 1)], [], [])
def test_whatever_a_group_is_answered_is_in_the_log(
    made: list[Work], group: list[tuple[str, int]], passing: list[int], races: list[bool]
) -> None:
    """And in the order of the calls: ``carry_out`` asserts that. A call aborts, commits, or drops the second topic."""
    log = Log()
    topic, other = log.topic(), log.topic("other")
    log.produce(topic)
    subscription = log.subscription(topic)
    commits = [work.commit(log, topic, other, subscription) for work in made]
    member: dict[str, Callable[[CommitCommand], Member]] = {
        "commit": Member,
        "abort": lambda commit: aborting(commit.opening.txn),
        "drop": lambda _commit: dropping(other),
    }
    members = [member[kind](commits[index]) for kind, index in group]
    told = []
    losing = iter(races)
    for reply in carry_out(log, Attempt(members), passing, lambda: next(losing, False)):
        check_shown(log, other, reply)
        told.append(reply.member)
    assert sorted(map(members.index, told)) == list(range(len(members))), "everybody is told once"
    for work, commit in zip(made, commits, strict=True):
        outcome = log.state.outcomes.get(commit.opening.txn)
        if outcome is not None and outcome.state == "COMMITTED":
            others = 0 if other in outcome.dropped_topics else work.others
            assert sum(item.end - item.start for item in outcome.offsets or ()) == work.rows + others
    assert tables_of(log.replayed()) == tables_of(log.state)
