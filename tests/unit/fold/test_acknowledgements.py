"""Acknowledgements: which conflict, and what becomes of them at the end of their transaction."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.memory_log import Log, cumulatively, individually, ranges_of
from txnlog.common import ranges
from txnlog.common.ids import TxnId
from txnlog.errors import InvalidInputError, LimitExceeded, OffsetOutOfRange, TransactionConflict
from txnlog.fold import acknowledgements
from txnlog.fold.state import CumulativeHold, Cursor, Hold, LeaseRecord, Redelivery
from txnlog.format.actions import Abort, Acknowledge, Acknowledgement, Begin, Commit, Lease, Prepare

MESSAGES = 20


@pytest.fixture
def topic(log) -> int:
    topic = log.topic(partitions=2)
    log.produce(topic, {0: MESSAGES, 1: MESSAGES})
    return topic


@pytest.fixture
def subscription(log, topic) -> int:
    return log.subscription(topic)


@pytest.fixture
def shared(log, topic) -> int:
    return log.subscription(topic, "shared", type="shared")


def hold(log: Log, *wanted: Acknowledgement, txn: int | None = None) -> int:
    """An OPEN transaction (a new one unless told) with pending acknowledgements."""
    if txn is None:
        txn = log.number()
        log.entry(Begin(txn))
    log.entry(*(Acknowledge(txn, item) for item in wanted))
    return txn


def plain(log: Log, *wanted: Acknowledgement) -> int:
    """Acknowledgements outside a transaction: one commit of its own."""
    txn = log.number()
    log.entry(Commit(txn, acknowledgements=wanted))
    return txn


def one(subscription: int, *spans: tuple[int, int], partition: int = 0) -> Acknowledgement:
    return individually(subscription, {partition: spans})


def upto(subscription: int, end: int, partition: int = 0) -> Acknowledgement:
    return cumulatively(subscription, {partition: end})


# --- conflicts: individual --------------------------------------------------------------------------------------------


@pytest.mark.clause("P-80")
@pytest.mark.parametrize("wanted", [(0, 1), (1, 4), (2, 3), (0, 20)])
def test_a_message_below_the_cursor_is_taken(log, subscription, wanted):
    plain(log, one(subscription, (0, 3)))
    for action in (lambda: plain(log, one(subscription, wanted)), lambda: hold(log, one(subscription, wanted))):
        with pytest.raises(TransactionConflict, match="acknowledged before"):
            action()


@pytest.mark.clause("P-80")
@pytest.mark.parametrize("wanted", [(5, 6), (4, 6), (7, 9), (3, 12)])
def test_a_message_acknowledged_above_the_cursor_is_taken(log, subscription, wanted):
    plain(log, one(subscription, (5, 8)))
    with pytest.raises(TransactionConflict, match="acknowledged before"):
        hold(log, one(subscription, wanted))


@pytest.mark.clause("P-80")
@pytest.mark.parametrize("kind", ["hold", "plain"])
@pytest.mark.parametrize("wanted", [(5, 6), (4, 6), (7, 9), (3, 12)])
def test_a_message_pending_in_another_transaction_is_held(log, subscription, wanted, kind):
    first = hold(log, one(subscription, (5, 8)))
    with pytest.raises(TransactionConflict, match=f"pending in the transaction {TxnId(7, first)}"):
        (hold if kind == "hold" else plain)(log, one(subscription, wanted))


@pytest.mark.clause("P-80")
def test_a_message_pending_in_the_same_transaction_is_held_too(log, subscription):
    txn = hold(log, one(subscription, (5, 8)))
    with pytest.raises(TransactionConflict):
        hold(log, one(subscription, (7, 9)), txn=txn)
    with pytest.raises(TransactionConflict):
        log.entry(Commit(txn, acknowledgements=(one(subscription, (5, 6)),)))
    with pytest.raises(TransactionConflict):
        plain(log, one(subscription, (9, 10)), one(subscription, (9, 10)))
    with pytest.raises(TransactionConflict):
        plain(
            log, Acknowledgement(subscription, subscription, (*ranges_of({0: [(9, 10)]}), *ranges_of({0: [(9, 11)]})))
        )


@pytest.mark.clause("P-80")
def test_individual_ones_next_to_each_other_do_not_conflict(log, subscription):
    hold(log, one(subscription, (5, 8)))
    hold(log, one(subscription, (8, 9), (11, 12)))
    hold(log, one(subscription, (0, 5), (9, 11), (12, 20)))
    hold(log, one(subscription, (5, 8), partition=1))


@pytest.mark.clause("P-80")
@pytest.mark.parametrize("wanted", [(0, 1), (4, 5), (4, 9)])
def test_individual_ones_below_a_pending_cumulative_end_conflict(log, subscription, wanted):
    txn = hold(log, upto(subscription, 5))
    with pytest.raises(TransactionConflict, match=f"pending in the transaction {TxnId(7, txn)}"):
        hold(log, one(subscription, wanted))
    with pytest.raises(TransactionConflict):
        hold(log, one(subscription, wanted), txn=txn)
    hold(log, one(subscription, (5, 9)))


# --- conflicts: cumulative --------------------------------------------------------------------------------------------


@pytest.mark.clause("P-81")
@pytest.mark.parametrize("end", [0, 1, 5])
def test_a_cumulative_one_at_or_below_the_cursor_conflicts(log, subscription, end):
    plain(log, upto(subscription, 5))
    with pytest.raises(TransactionConflict, match="acknowledged before"):
        hold(log, upto(subscription, end))
    with pytest.raises(TransactionConflict):
        plain(log, upto(subscription, end))


@pytest.mark.clause("P-81")
@pytest.mark.parametrize("end", [1, 5, 9])
def test_a_second_transactions_cumulative_one_conflicts(log, subscription, end):
    first = hold(log, upto(subscription, 5))
    with pytest.raises(TransactionConflict, match=f"transaction {TxnId(7, first)} acknowledges cumulatively"):
        hold(log, upto(subscription, end))
    hold(log, upto(subscription, end, partition=1))


@pytest.mark.clause("P-81")
@pytest.mark.parametrize("end", [6, 8, 20])
def test_a_cumulative_one_over_messages_that_another_holds_individually_conflicts(log, subscription, end):
    first = hold(log, one(subscription, (5, 8)))
    with pytest.raises(TransactionConflict, match=f"below {end} is pending in the transaction {TxnId(7, first)}"):
        hold(log, upto(subscription, end))
    with pytest.raises(TransactionConflict):
        plain(log, upto(subscription, end))


@pytest.mark.clause("P-81")
def test_a_cumulative_one_below_what_another_holds_is_fine(log, subscription):
    hold(log, one(subscription, (5, 8)))
    plain(log, upto(subscription, 5))
    assert log.cursor(subscription).position == 5


@pytest.mark.clause("P-81")
def test_a_cumulative_one_over_ones_own_individual_ones_is_fine(log, subscription):
    txn = hold(log, one(subscription, (5, 8)))
    hold(log, upto(subscription, 6), txn=txn)
    log.entry(Commit(txn))
    assert log.cursor(subscription) == Cursor(8)


@pytest.mark.clause("P-81")
def test_a_cumulative_one_over_acknowledged_messages_is_fine(log, subscription):
    plain(log, one(subscription, (2, 4), (6, 9)))
    plain(log, upto(subscription, 7))
    assert log.cursor(subscription) == Cursor(9)


@pytest.mark.clause("P-81")
def test_a_further_cumulative_one_of_the_same_transaction_replaces_it(log, subscription):
    txn = hold(log, upto(subscription, 5))
    hold(log, upto(subscription, 9), txn=txn)
    assert log.cursor(subscription).cumulative == CumulativeHold(txn, 9)
    for end in (9, 8, 1):
        with pytest.raises(TransactionConflict, match="up to 9 already"):
            hold(log, upto(subscription, end), txn=txn)
    log.entry(Commit(txn, acknowledgements=(upto(subscription, 12),)))
    assert log.cursor(subscription) == Cursor(12)


@pytest.mark.clause("P-82")
def test_a_cumulative_one_on_a_shared_subscription_is_refused(log, shared):
    with pytest.raises(InvalidInputError, match="cumulative"):
        plain(log, upto(shared, 1))


@pytest.mark.clause("P-81")
def test_a_prepared_transaction_blocks_cumulative_ones_past_what_it_holds(log, subscription):
    txn = hold(log, one(subscription, (5, 6)))
    log.entry(Prepare(txn, ""))
    with pytest.raises(TransactionConflict):
        plain(log, upto(subscription, 6))
    plain(log, upto(subscription, 5))
    plain(log, one(subscription, (6, 20)))
    log.entry(Commit(txn))
    assert log.cursor(subscription) == Cursor(20)


# --- form -------------------------------------------------------------------------------------------------------------


@pytest.mark.clause("P-83")
@pytest.mark.parametrize(
    "spans", [[], [(0, 21)], [(20, 21)], [(3, 3)], [(4, 3)], [(5, 6), (0, 1)], [(0, 2), (2, 4)], [(0, 3), (2, 4)]]
)
def test_ranges_must_be_normal_not_empty_and_below_the_end(log, subscription, spans):
    with pytest.raises(OffsetOutOfRange):
        plain(log, one(subscription, *spans))


@pytest.mark.clause("P-83")
def test_a_cumulative_end_lies_in_the_partition(log, subscription):
    with pytest.raises(OffsetOutOfRange):
        plain(log, upto(subscription, MESSAGES + 1))
    plain(log, upto(subscription, MESSAGES))


@pytest.mark.clause("P-83")
@pytest.mark.parametrize(
    "wanted",
    [
        lambda s: one(s, (0, 1), partition=2),
        lambda s: upto(s, 1, partition=2),
        lambda s: one(s, (0, 1), partition=99),
        lambda s: Acknowledgement(s, s, expected=((2, 0),)),
    ],
)
def test_a_partition_that_is_not_there_is_refused(log, subscription, wanted):
    with pytest.raises(OffsetOutOfRange):
        plain(log, wanted(subscription))


@pytest.mark.clause("P-242")
def test_a_partition_may_be_named_twice_and_each_element_counts(log, subscription):
    twice = individually(subscription, {0: [(4, 6)]}).ranges + individually(subscription, {0: [(0, 2)]}).ranges
    txn = hold(log, Acknowledgement(subscription, subscription, twice))
    assert log.cursor(subscription).holds == (Hold(txn, ((4, 6),)), Hold(txn, ((0, 2),)))
    plain(log, Acknowledgement(subscription, subscription, cumulative=((1, 3), (1, 5)), expected=((1, 0), (1, 0))))
    assert log.cursor(subscription, 1) == Cursor(5)


@pytest.mark.clause("P-242")
@pytest.mark.parametrize(
    "wanted",
    [
        {"ranges": ranges_of({0: [(0, 2)]}) + ranges_of({0: [(1, 3)]})},
        {"cumulative": ((0, 5), (0, 5))},
        {"cumulative": ((0, 5), (0, 3))},
        {"cumulative": ((0, 5),), "expected": ((0, 0), (0, 1))},
    ],
)
def test_each_element_is_compared_with_what_the_ones_before_it_did(log, subscription, wanted):
    with pytest.raises(TransactionConflict):
        plain(log, Acknowledgement(subscription, subscription, **wanted))


def test_pending_rows_cannot_be_acknowledged(log, topic, subscription):
    txn = log.number()
    log.entry(Begin(txn), log.segment(topic, {0: 5}, txn))
    with pytest.raises(OffsetOutOfRange):
        plain(log, one(subscription, (MESSAGES, MESSAGES + 1)))


@pytest.mark.clause("P-84")
def test_an_acknowledgement_may_expect_where_the_cursors_stand(log, subscription):
    def expecting(*expected: tuple[int, int]) -> Acknowledgement:
        return Acknowledgement(subscription, subscription, cumulative=((0, 9), (1, 9)), expected=expected)

    plain(log, upto(subscription, 4))
    for expected in ([(0, 0), (1, 0)], [(0, 4), (1, 1)], [(0, 5), (1, 0)]):
        with pytest.raises(TransactionConflict, match="the cursor of 'billing'"):
            plain(log, expecting(*expected))
    with pytest.raises(OffsetOutOfRange):
        plain(log, expecting((2, 0)))
    plain(log, expecting((0, 4), (1, 0)))
    assert log.cursor(subscription) == Cursor(9)


@pytest.mark.clause("P-84")
def test_what_it_expects_is_about_messages_below_its_end_only(log, subscription):
    """Who took a message behind the batch is not in its way; one in the midst of it is done twice."""

    def to(end: int, expected: int) -> Acknowledgement:
        return Acknowledgement(subscription, subscription, cumulative=((0, end),), expected=((0, expected),))

    plain(log, one(subscription, (7, 8)))
    plain(log, to(4, 0))
    plain(log, to(7, 4))
    assert log.cursor(subscription) == Cursor(8)
    plain(log, one(subscription, (10, 11)))
    with pytest.raises(TransactionConflict, match="acknowledged by itself"):
        plain(log, to(11, 8))


def expecting(subscription: int, *ends: int, spans: tuple[tuple[int, int], ...] = ()) -> Acknowledgement:
    found = ranges_of({0: spans}) if spans else ()
    return Acknowledgement(subscription, subscription, found, tuple((0, end) for end in ends), expected=((0, 0),))


@pytest.mark.clause("P-84")
def test_the_last_of_several_ends_is_the_one_that_counts(log, subscription):
    plain(log, one(subscription, (7, 8)))
    with pytest.raises(TransactionConflict, match="acknowledged by itself"):
        plain(log, expecting(subscription, 4, 8))
    plain(log, expecting(subscription, 4, 7))


@pytest.mark.clause("P-84")
def test_what_its_own_transaction_claims_is_not_in_the_way_of_an_expected_cursor(log, subscription):
    txn = hold(log, one(subscription, (3, 4)))
    log.entry(Commit(txn, acknowledgements=(expecting(subscription, 9, spans=((5, 6),)),)))
    assert log.cursor(subscription) == Cursor(9)


@pytest.mark.clause("P-84")
def test_its_own_ranges_do_not_help_an_expected_cursor_over_what_was_acknowledged_by_itself(log, subscription):
    plain(log, one(subscription, (1, 9)))
    with pytest.raises(TransactionConflict, match="acknowledged by itself"):
        plain(log, expecting(subscription, 9, spans=((0, 1),)))


@pytest.mark.clause("P-84")
def test_without_a_cumulative_end_only_the_position_is_compared(log, subscription):
    plain(log, one(subscription, (1, 9)))
    plain(log, expecting(subscription, spans=((0, 1),)))
    assert log.cursor(subscription) == Cursor(9)


# --- the end of a transaction -----------------------------------------------------------------------------------------


@pytest.mark.clause("P-85")
def test_a_commit_takes_what_it_held_and_moves_the_cursor_over_what_is_taken_without_a_gap(log, subscription):
    txn = hold(log, one(subscription, (0, 2), (4, 6)))
    assert log.cursor(subscription) == Cursor(0, (), (Hold(txn, ((0, 2), (4, 6))),))
    log.entry(Commit(txn))
    assert log.cursor(subscription) == Cursor(2, ((4, 6),))
    plain(log, one(subscription, (2, 4)))
    assert log.cursor(subscription) == Cursor(6)


@pytest.mark.clause("P-85")
def test_a_commit_takes_what_it_held_and_nothing_of_others(log, subscription):
    first, second = hold(log, one(subscription, (0, 2))), hold(log, one(subscription, (2, 4)))
    log.entry(Commit(second))
    assert log.cursor(subscription) == Cursor(0, ((2, 4),), (Hold(first, ((0, 2),)),))
    log.entry(Commit(first))
    assert log.cursor(subscription) == Cursor(4)


@pytest.mark.clause("P-85")
def test_an_abort_makes_messages_available_again(log, subscription):
    txn = hold(log, one(subscription, (0, 2), (4, 6)), upto(subscription, 3, partition=1))
    log.entry(Abort(txn))
    assert log.cursor(subscription) == log.cursor(subscription, 1) == Cursor(0)
    hold(log, one(subscription, (0, 6)), upto(subscription, 1, partition=1))


@pytest.mark.clause("P-86")
def test_an_abort_on_a_shared_subscription_counts_a_redelivery_and_ends_the_leases(log, shared):
    log.entry(Lease(shared, "a", ranges_of({0: [(0, 6)]})))
    until_ms = log.now_ms + 30_000
    txn = hold(log, one(shared, (0, 2), (4, 5)))
    log.entry(Abort(txn))
    assert log.cursor(shared) == Cursor(
        0,
        leases=(LeaseRecord("a", until_ms, ((2, 4), (5, 6))),),
        redeliveries=(Redelivery(0, 2, 1), Redelivery(4, 5, 1)),
    )
    again = hold(log, one(shared, (1, 3)))
    log.entry(Abort(again))
    assert log.cursor(shared).redeliveries == (
        Redelivery(0, 1, 1),
        Redelivery(1, 2, 2),
        Redelivery(2, 3, 1),
        Redelivery(4, 5, 1),
    )


@pytest.mark.clause("P-86")
def test_an_abort_on_an_owned_subscription_counts_nothing(log, subscription):
    log.entry(Abort(hold(log, one(subscription, (0, 2)))))
    assert log.cursor(subscription).redeliveries == ()


# --- bounds -----------------------------------------------------------------------------------------------------------


@pytest.fixture
def few(monkeypatch) -> int:
    monkeypatch.setattr(acknowledgements, "MAX_ACKNOWLEDGED_RANGES", 3)
    return 3


@pytest.mark.clause("P-36")
def test_ranges_above_the_cursor_are_limited(log, subscription, few):
    plain(log, one(subscription, (2, 3), (4, 5), (6, 7)))
    with pytest.raises(LimitExceeded, match="3 acknowledged ranges"):
        plain(log, one(subscription, (8, 9)))
    with pytest.raises(LimitExceeded):
        hold(log, one(subscription, (8, 9)))


@pytest.mark.clause("P-36")
def test_pending_ranges_count(log, subscription, few):
    hold(log, one(subscription, (2, 3), (4, 5)))
    hold(log, one(subscription, (6, 7)))
    with pytest.raises(LimitExceeded):
        hold(log, one(subscription, (8, 9)))
    with pytest.raises(LimitExceeded):
        plain(log, one(subscription, (8, 9)))


@pytest.mark.clause("P-87")
@pytest.mark.parametrize("filling", [(3, 4), (0, 1), (0, 2), (0, 4), (7, 9), (1, 2)])
def test_at_the_limit_a_hole_may_still_be_filled(log, subscription, few, filling):
    plain(log, one(subscription, (2, 3), (4, 5), (6, 7)))
    spans = ranges.subtract((filling,), ((2, 3),))
    plain(log, one(subscription, *spans))
    assert len(log.cursor(subscription).acknowledged) <= few


# --- against a model --------------------------------------------------------------------------------------------------

spans = st.lists(st.tuples(st.integers(0, MESSAGES - 1), st.integers(1, 6)), min_size=1, max_size=3).map(
    lambda items: ranges.normalize((start, min(MESSAGES, start + length)) for start, length in items)
)
steps = st.lists(
    st.one_of(
        st.tuples(st.just("hold"), st.integers(0, 3), spans),
        st.tuples(st.just("upto"), st.integers(0, 3), st.integers(0, MESSAGES)),
        st.tuples(st.just("commit"), st.integers(0, 3), st.none()),
        st.tuples(st.just("abort"), st.integers(0, 3), st.none()),
    ),
    max_size=25,
)


class Model:
    """Messages of one partition as sets: taken, and held by whom."""

    def __init__(self) -> None:
        self.taken: set[int] = set()
        self.held: dict[int, set[int]] = {}
        self.ends: dict[int, int] = {}

    def position(self) -> int:
        return next(offset for offset in range(MESSAGES + 1) if offset not in self.taken)

    def hold(self, txn: int, wanted: set[int]) -> bool:
        held = set().union(*self.held.values())
        below = set(range(max(self.ends.values(), default=0)))
        if wanted & (self.taken | held | below):
            return False
        self.held.setdefault(txn, set()).update(wanted)
        return True

    def upto(self, txn: int, end: int) -> bool:
        others = set().union(*(held for owner, held in self.held.items() if owner != txn))
        if end <= self.position() or any(owner != txn or end <= old for owner, old in self.ends.items()):
            return False
        if any(offset < end for offset in others):
            return False
        self.ends[txn] = end
        return True

    def end(self, txn: int, *, commit: bool) -> None:
        held, end = self.held.pop(txn, set()), self.ends.pop(txn, 0)
        if commit:
            self.taken |= held | set(range(end))


@pytest.mark.clause("P-80", "P-81", "P-85", "P-75")
@settings(max_examples=300)
@given(steps)
def test_conflicts_and_cursors_are_those_of_sets(todo):
    log = Log()
    topic = log.topic()
    log.produce(topic, MESSAGES)
    subscription = log.subscription(topic)
    model = Model()
    open_transactions: dict[int, int] = {}
    for step, who, argument in todo:
        if who not in open_transactions:
            open_transactions[who] = log.number()
            log.entry(Begin(open_transactions[who]))
        txn = open_transactions[who]
        before = log.cursor(subscription).position
        if step in {"commit", "abort"}:
            model.end(txn, commit=step == "commit")
            log.entry(Commit(txn) if step == "commit" else Abort(txn))
            del open_transactions[who]
        else:
            wanted: Any = argument
            if step == "hold":
                accepted = model.hold(txn, {offset for start, end in wanted for offset in range(start, end)})
                action = Acknowledge(txn, one(subscription, *wanted))
            else:
                accepted = model.upto(txn, wanted)
                action = Acknowledge(txn, upto(subscription, wanted))
            if accepted:
                log.entry(action)
            else:
                with pytest.raises(TransactionConflict):
                    log.entry(action)
        cursor = log.cursor(subscription)
        assert cursor.position == model.position() >= before
        assert {offset for start, end in cursor.acknowledged for offset in range(start, end)} == {
            offset for offset in model.taken if offset > model.position()
        }
        assert ranges.is_normal(cursor.acknowledged)
