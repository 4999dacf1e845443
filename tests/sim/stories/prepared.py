"""Stories of prepared transactions: who may decide, and what a decision binds."""

from __future__ import annotations

from tests.sim.stories.beginnings import FAILED, LATE
from tests.sim.story import NEVER, UNKNOWN, Story, bad, good
from txnlog.errors import InvalidTransactionState, TransactionConflict

Outcomes = dict[str, tuple[str, int | None]]
PREPARED: Outcomes = {"t1": ("PREPARED", None)}
COMMITTED: Outcomes = {"t1": ("COMMITTED", 3)}
ABORTED: Outcomes = {"t1": ("ABORTED", 3)}


def prepared(story: Story) -> Story:
    return story.begin("t1").produce("t1", 10).prepare("t1")


@good
def a_prepared_transaction_is_completed_by_another_client(story):
    prepared(story).by("b").complete("t1", fails=UNKNOWN).by("c").complete("t1", 3).complete("t1", 3)
    story.complete("t1", commit=False, fails=InvalidTransactionState("committed")).final(COMMITTED, orders="t1@3 10")


@good
def a_prepared_transaction_is_aborted_as_was_decided(story):
    prepared(story).by("b").complete("t1", commit=False).final(ABORTED, orders="")


@good
def a_prepared_transaction_whose_decision_is_in_doubt(story):
    prepared(story).complete("t1", fails=NEVER).final(COMMITTED, orders="t1@3 10")


@good
def a_prepare_in_doubt_is_aborted(story):
    story.begin("t1").produce("t1", 10).prepare("t1", fails=UNKNOWN).abort("t1").final(ABORTED, orders="")


@good
def what_was_prepared_is_not_fenced(story):
    story.producer("loader", 2).begin("t1", "loader", 2).produce("t1", 10).prepare("t1").by("b").producer("loader", 3)
    story.complete("t1", 4).final(orders="t1@4 10")


@good
def a_prepare_in_doubt_was_in_time_and_is_repeated_behind_its_successor(story):
    story.producer("loader", 2).begin("t1", "loader", 2).produce("t1", 10).prepare("t1", fails=UNKNOWN)
    story.by("b").producer("loader", 3).by("a").prepare("t1").complete("t1", 4).final(orders="t1@4 10")


@bad("zombie commit")
def a_zombie_prepares(story):
    story.producer("loader", 2).begin("t1", "loader", 2).produce("t1", 10).by("b").producer("loader", 3)
    story.by("a").prepare("t1").complete("t1", 4).final(orders="t1@4 10")


@bad("ended against its decision")
def a_prepared_transaction_is_aborted_and_nobody_decided_that(story):
    prepared(story).final(ABORTED, orders="")


@bad("ended against its decision", "lost write", "changed outcome")
def a_prepared_transaction_is_committed_and_then_aborted(story):
    prepared(story).complete("t1", 3).final(ABORTED, orders="")


@bad("ended against its decision", "intermediate read")
def a_prepared_transaction_is_visible_and_nobody_decided_that(story):
    prepared(story).final(COMMITTED, orders="t1@3 10")


@bad("ended against its decision", "aborted read", "intermediate read", "changed outcome")
def a_prepared_transaction_is_visible_against_its_decision(story):
    prepared(story).complete("t1", commit=False).final(COMMITTED, orders="t1@3 10")


@bad("ended against its decision", "changed outcome", "lost write")
def a_prepared_transaction_is_decided_in_two_ways(story):
    story.begin("t1").produce("t1", 10).prepare("t1").complete("t1", commit=False).complete("t1", 3)
    story.final()


@bad("ended against its decision")
def a_prepared_transaction_refuses_its_decision(story):
    prepared(story).complete("t1", fails=TransactionConflict("taken")).final(PREPARED, orders="")


@good
def an_administrator_aborts_what_is_prepared(story):
    prepared(story).force("t1").complete("t1", fails=InvalidTransactionState("aborted")).final(ABORTED, orders="")


@good
def an_administrator_comes_too_late_for_what_was_prepared(story):
    prepared(story).complete("t1", 3).force("t1", "COMMITTED").final(COMMITTED, orders="t1@3 10")


@good
def an_administrator_who_never_heard_of_his_success(story):
    prepared(story).force("t1", fails=NEVER).final(ABORTED, orders="")


@bad("ended against its decision")
def an_administrator_was_refused_and_it_is_aborted(story):
    prepared(story).force("t1", fails=FAILED).final(ABORTED, orders="")


@bad("ended against its decision", "intermediate read", "changed outcome")
def what_an_administrator_aborted_is_visible(story):
    prepared(story).force("t1").final(COMMITTED, orders="t1@3 10")


@good
def the_owner_stops_at_its_deadline_and_the_log_shows_that_later(story):
    story.begin("t1").produce("t1", 10).commit("t1", fails=LATE).by("b").outcome("t1", "OPEN")
    story.outcome("t1", "ABORTED").final(ABORTED, orders="")


@bad("changed outcome")
def it_is_open_again_after_the_log_showed_its_timeout(story):
    story.begin("t1").produce("t1", 10).commit("t1", fails=LATE).by("b").outcome("t1", "ABORTED", 3)
    story.outcome("t1", "OPEN").final(ABORTED, orders="")


@bad("changed outcome")
def what_was_completed_is_prepared_again(story):
    prepared(story).complete("t1", commit=False).outcome("t1", "PREPARED").final(ABORTED, orders="")


@bad("intermediate read", "stale commit")
def a_read_shows_what_is_only_prepared(story):
    prepared(story).read(3, orders="t1@3 10").complete("t1", 3).final(COMMITTED, orders="t1@3 10")
