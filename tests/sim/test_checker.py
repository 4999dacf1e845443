"""The checker finds every anomaly in a history made by hand, and nothing in the good histories near it.

Every function tells a story. ``@bad`` names all that the checker must report of it, and nothing else; ``@good`` stories
must pass. Together they say what a pipeline may see, and what it never may.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.sim.story import NEVER, SUBSCRIPTION, TOPIC, UNKNOWN, Story, at
from txnlog.errors import (
    InvalidTransactionState,
    ProducerFenced,
    RetriableError,
    StoreError,
    TransactionAborted,
    TransactionConflict,
    TransactionTimedOut,
    VersionNotAvailable,
)
from txnlog.testing.anomalies import Anomaly
from txnlog.testing.checker import check
from txnlog.testing.history import History

Told = Callable[[Story], Any]
BAD: list[Any] = []
GOOD: list[Any] = []
COVERED: set[str] = set()


def bad(*anomalies: str) -> Callable[[Told], Told]:
    def note(told: Told) -> Told:
        BAD.append(pytest.param(told, set(anomalies), id=told.__name__))
        COVERED.update(anomalies)
        return told

    return note


def good(told: Told) -> Told:
    GOOD.append(pytest.param(told, id=told.__name__))
    return told


FAILED = StoreError("nothing was written")
LATE = TransactionTimedOut("too late")

# --- the log: offsets, versions, values -----------------------------------------------------------------------------


@good
def two_transactions_and_a_read_of_each_version(story):
    story.whole("t1", 3, 10, 11).read(3, orders="t1@3 10 11").whole("t2", 4, 20).read(4, orders="t1@3 10 11, t2@4 20")
    story.read(3, wanted=3, orders="t1@3 10 11").final(orders="t1@3 10 11, t2@4 20")


@bad("inconsistent offsets", "diverging snapshots")
def two_reads_of_one_version_disagree_on_an_offset(story):
    story.whole("t1", 3, 10, 11).read(3, orders="t1@3 10 11").read(3, orders="t1@3 11 10")


@bad("inconsistent offsets")
def a_consumer_gets_another_message_at_an_offset(story):
    story.whole("t1", 3, 10, 11).consumer(4).receive(4, "0=11").final(orders="t1@3 10 11")


@bad("offset gap")
def an_offset_is_left_out(story):
    story.whole("t1", 3, 10).whole("t2", 4, 20).final(orders="t1@3 10, t2@4 2=20")


@bad("offset overlap")
def an_offset_is_given_twice(story):
    story.whole("t1", 3, 10).whole("t2", 4, 20).final(orders="t1@3 10, t2@4 0=20")


@bad("offsets against versions", "stale commit")
def a_later_commit_has_earlier_offsets(story):
    story.whole("t1", 4, 10).whole("t2", 3, 20).final(orders="t1@4 10, t2@3 20")


@bad("duplicate", "torn commit")
def a_transaction_is_visible_twice(story):
    story.whole("t1", 3, 10).final(orders="t1@3 10, t1@4 10")


@bad("duplicate")
def a_plain_batch_that_was_sent_again_is_visible_twice(story):
    story.produce(None, 10, fails=UNKNOWN).begin("t2").produce("t2", 10).commit("t2", 4)
    story.final(orders="x@3 10, t2@4 10")


@good
def a_batch_in_doubt_that_is_sent_again_in_a_transaction_is_visible_once(story):
    story.produce(None, 10, fails=UNKNOWN).begin("t2").produce("t2", 10).commit("t2", 4).final(orders="t2@4 10")


@good
def a_repeated_sequence_is_answered_as_a_duplicate(story):
    story.producer("loader", 2).produce(None, 10, sequence=0, fails=UNKNOWN)
    story.produce(None, 10, sequence=0, version=3, duplicate=True).final(orders="x@3 10")


@bad("lost write")
def a_duplicate_whose_original_is_not_there(story):
    story.producer("loader", 2).produce(None, 9, sequence=0, version=3)
    story.produce(None, 10, sequence=1, version=3, duplicate=True).final(orders="x@3 9")


@good
def a_sequence_that_a_batch_in_doubt_had_taken(story):
    story.producer("loader", 2).produce(None, 10, producer="loader", epoch=2, fails=UNKNOWN)
    story.produce(None, 11, sequence=0, version=3, duplicate=True).final(orders="x@3 10")


@bad("garbage")
def a_message_that_nobody_produced(story):
    story.whole("t1", 3, 10).final(orders="t1@3 10, x@4 99")


@bad("garbage")
def a_message_of_another_transaction(story):
    story.whole("t1", 3, 10).begin("t2").produce("t2", 20).abort("t2").final(orders="t1@3 10 20")


@bad("garbage", "torn commit")
def a_message_in_another_topic(story):
    story.whole("t1", 3, 10, 11).final(orders="t1@3 10", audit="t1@3 11")


@bad("non-monotonic send")
def the_messages_of_a_call_in_another_order(story):
    story.whole("t1", 3, 10, 11).final(orders="t1@3 11 10")


@bad("non-monotonic send")
def the_calls_of_a_transaction_in_another_order(story):
    story.begin("t1").produce("t1", 10, 11).produce("t1", 12).commit("t1", 3).final(orders="t1@3 12 10 11")


@good
def several_calls_of_a_transaction_in_their_order(story):
    story.begin("t1").produce("t1", 10, 11).produce("t1", 12).commit("t1", 3).final(orders="t1@3 10 11 12")


@bad("sequence gap", "lost write")
def a_sequenced_batch_is_lost(story):
    story.producer("loader", 2)
    for number in range(3):
        story.produce(None, 10 + number, sequence=number, version=3 + number)
    story.final(orders="x@3 10, z@5 12")


@bad("sequence repeated")
def a_sequence_is_used_for_two_batches(story):
    story.producer("loader", 2).produce(None, 10, sequence=0, version=3).produce(None, 11, sequence=0, version=4)
    story.final(orders="x@3 10, y@4 11")


@good
def sequences_go_on_over_transactions_and_epochs(story):
    story.producer("loader", 2).produce(None, 10, 11, sequence=0, version=3)
    story.begin("t1", "loader", 2).produce("t1", 12, sequence=2).abort("t1")
    story.by("b").producer("loader", 5).begin("t2", "loader", 5).produce("t2", 12, sequence=2).commit("t2", 6)
    story.final(orders="x@3 10 11, t2@6 12")


# --- transactions ---------------------------------------------------------------------------------------------------


@bad("aborted read")
def an_aborted_transaction_is_visible(story):
    story.begin("t1").produce("t1", 10).abort("t1").final(orders="t1@3 10")


@bad("aborted read")
def a_transaction_is_visible_that_the_log_says_is_aborted(story):
    story.begin("t1").produce("t1", 10).commit("t1", fails=UNKNOWN).final({"t1": ("ABORTED", 4)}, orders="t1@3 10")


@bad("aborted read")
def a_read_shows_what_is_aborted_in_the_end(story):
    story.begin("t1").produce("t1", 10).read(3, orders="t1@3 10").abort("t1").final(orders="")


@bad("aborted read")
def a_consumer_gets_an_aborted_message(story):
    story.consumer(2).begin("t1").produce("t1", 10).receive(2, "0=10").abort("t1").final(orders="")


@bad("aborted read", "failed but visible")
def a_fenced_commit_is_visible(story):
    story.begin("t1").produce("t1", 10).commit("t1", fails=ProducerFenced("newer")).final(orders="t1@3 10")


@bad("intermediate read", "stale commit")
def a_read_shows_a_transaction_before_its_commit_was_called(story):
    story.begin("t1").produce("t1", 10).read(3, orders="t1@3 10").commit("t1", 3).final(orders="t1@3 10")


@bad("intermediate read")
def a_read_shows_a_transaction_that_is_not_there_in_the_end(story):
    story.begin("t1").produce("t1", 10).read(3, orders="t1@3 10").commit("t1", fails=UNKNOWN).final(orders="")


@bad("intermediate read")
def a_transaction_without_a_commit_is_visible(story):
    story.begin("t1").produce("t1", 10).final(orders="t1@3 10")


@bad("intermediate read")
def a_consumer_gets_a_message_before_its_commit_was_called(story):
    story.consumer(2).begin("t1").produce("t1", 10).receive(2, "0=10").commit("t1", 3).final(orders="t1@3 10")


@bad("intermediate read", "G-single")
def a_read_shows_a_part_of_a_run(story):
    story.whole("t1", 3, 10, 11).read(3, orders="t1@3 10").final(orders="t1@3 10 11")


@good
def a_read_while_the_commit_is_under_way(story):
    story.begin("t1").produce("t1", 10)
    token = story.recorder.invoke("a", "commit", txn="t1")
    story.by("b").read(3, orders="t1@3 10")
    story.recorder.ok(token, version=3)
    story.final(orders="t1@3 10")


@bad("lost write")
def an_acknowledged_commit_is_not_in_the_final_read(story):
    story.whole("t1", 3, 10).final(orders="")


@bad("lost write")
def an_acknowledged_plain_batch_is_not_in_the_final_read(story):
    story.produce(None, 10, version=3).final(orders="")


@bad("lost write")
def what_was_read_is_gone(story):
    story.begin("t1").produce("t1", 10).commit("t1", fails=UNKNOWN).read(3, orders="t1@3 10").final(orders="")


@bad("lost write")
def the_outcome_says_committed_and_nothing_is_there(story):
    story.begin("t1").produce("t1", 10).commit("t1", fails=UNKNOWN).final({"t1": ("COMMITTED", 3)}, orders="")


@good
def a_commit_in_doubt_is_visible(story):
    story.begin("t1").produce("t1", 10).commit("t1", fails=UNKNOWN).final({"t1": ("COMMITTED", 3)}, orders="t1@3 10")


@good
def a_commit_in_doubt_is_not_visible(story):
    story.begin("t1").produce("t1", 10).commit("t1", fails=UNKNOWN).final({"t1": ("ABORTED", 3)}, orders="")


@good
def a_commit_that_never_returned_is_visible_or_not(story):
    story.begin("t1").produce("t1", 10).commit("t1", fails=NEVER).begin("t2").produce("t2", 20)
    story.commit("t2", fails=NEVER).produce(None, 30, fails=NEVER).produce(None, 40, fails=NEVER)
    story.final(orders="t1@3 10, x@4 40")


@good
def what_is_in_a_dropped_topic_is_gone(story):
    story.begin("t1").produce("t1", 10, topic="audit").produce("t1", 11).commit("t1", 3)
    story.call("drop_topic", topic="audit")
    story.final(orders="t1@3 11")


@good
def a_drop_of_a_name_meets_the_topic_that_has_it_by_then(story):
    story.begin("t1").produce("t1", 10, topic="audit~3").produce("t1", 11).commit("t1", 4)
    story.call("drop_topic", topic="audit")
    story.final(orders="t1@4 11")


@good
def a_plain_batch_is_in_the_topic_that_has_the_name_by_then(story):
    story.call("drop_topic", topic="audit")
    story.produce(None, 10, 11, topic="audit", version=4).final(**{"audit~4": "x@4 10 11"})


@bad("garbage")
def a_transaction_is_in_a_topic_that_has_the_name_of_its_own(story):
    story.begin("t1").produce("t1", 10, topic="audit").commit("t1", 5)
    story.call("drop_topic", topic="audit")
    story.final(**{"audit~4": "t1@5 10"})


@bad("torn commit")
def a_topic_of_a_transaction_is_missing(story):
    story.begin("t1").produce("t1", 10, topic="audit").produce("t1", 11).commit("t1", 3).final(orders="t1@3 11")


@bad("torn commit")
def a_partition_of_a_commit_in_doubt_is_missing(story):
    story.begin("t1").produce("t1", 10, partition=1).produce("t1", 11).commit("t1", fails=UNKNOWN)
    story.final(orders="t1@3 11", orders_1="")


@bad("torn commit")
def a_part_of_a_call_in_doubt_is_missing(story):
    story.begin("t1").produce("t1", 10, 11, fails=UNKNOWN).commit("t1", 3).final(orders="t1@3 10")


@good
def a_call_in_doubt_is_in_its_transaction_or_not(story):
    story.begin("t1").produce("t1", 10, 11, fails=UNKNOWN).produce("t1", 12, 13, fails=UNKNOWN).commit("t1", 3)
    story.final(orders="t1@3 12 13")


@bad("torn commit")
def a_part_of_a_plain_batch_in_doubt_is_missing(story):
    story.produce(None, 10, 11, fails=UNKNOWN).final(orders="x@3 10")


@bad("torn commit")
def a_transaction_is_visible_at_two_versions(story):
    story.begin("t1").produce("t1", 10).produce("t1", 11).commit("t1", 3).final(orders="t1@3 10, t1@4 11")


@bad("torn commit", "G-single")
def a_read_shows_one_topic_of_a_transaction(story):
    story.begin("t1").produce("t1", 10, topic="audit").produce("t1", 11).commit("t1", 3)
    story.read(3, orders="t1@3 11", audit="").final(orders="t1@3 11", audit="t1@3 10")


@bad("torn commit")
def the_messages_are_there_and_the_acknowledgement_is_not(story):
    consumed(story).produce("t1", 20).commit("t1", fails=UNKNOWN).final(cursors=at(0), orders="x@2 10 11, t1@5 20")


@bad("torn commit")
def the_acknowledgement_is_there_and_the_messages_are_not(story):
    consumed(story).produce("t1", 20).commit("t1", fails=UNKNOWN).final(cursors=at(2), orders="x@2 10 11")


@bad("torn commit")
def one_of_two_acknowledgements_in_doubt_is_there(story):
    consumed(story).consumer(6, subscription="r").receive(6, "0=10", subscription="r")
    story.take("t1", 6, 0, 1, subscription="r").commit("t1", fails=UNKNOWN)
    cursors = {(TOPIC, SUBSCRIPTION): {0: (2, ())}, (TOPIC, "r"): {0: (0, ())}}
    story.final(cursors=cursors, orders="x@2 10 11")


@good
def a_consuming_transaction_in_doubt_is_there_whole(story):
    consumed(story).produce("t1", 20).commit("t1", fails=UNKNOWN).final(cursors=at(2), orders="x@2 10 11, t1@5 20")


@good
def a_consuming_transaction_in_doubt_is_not_there_at_all(story):
    consumed(story).produce("t1", 20).commit("t1", fails=UNKNOWN).final(cursors=at(0), orders="x@2 10 11")


@bad("failed but visible")
def a_commit_that_failed_without_effects_is_visible(story):
    story.begin("t1").produce("t1", 10).commit("t1", fails=FAILED).final(orders="t1@3 10")


@bad("failed but visible")
def a_plain_batch_that_failed_without_effects_is_visible(story):
    story.produce(None, 10, fails=FAILED).final(orders="x@3 10")


@bad("failed but visible")
def a_call_that_failed_without_effects_is_in_its_transaction(story):
    story.begin("t1").produce("t1", 10).produce("t1", 11, fails=FAILED).commit("t1", 3).final(orders="t1@3 10 11")


@bad("failed but visible")
def a_skipped_batch_is_visible(story):
    story.begin("t1").produce("t1", 10).commit("t1", 2, skipped=True).final(orders="t1@3 10")


@bad("failed but visible")
def a_plain_acknowledgement_that_failed_is_in_the_cursor(story):
    received(story).take(None, 4, 0, 2, fails=FAILED).final(cursors=at(2), orders="x@2 10 11")


@good
def a_commit_that_failed_and_then_succeeded(story):
    story.begin("t1").produce("t1", 10).commit("t1", fails=RetriableError("busy")).commit("t1", 3)
    story.final(orders="t1@3 10")


@good
def a_skipped_batch_leaves_nothing(story):
    story.begin("t1").produce("t1", 10).commit("t1", 2, skipped=True).final(orders="")


@bad("commit after timeout")
def a_commit_lands_after_a_reported_timeout(story):
    story.begin("t1").produce("t1", 10).commit("t1", fails=LATE).final(orders="t1@3 10")


@bad("commit after timeout", "two answers")
def a_commit_is_acknowledged_after_a_reported_timeout(story):
    story.begin("t1").produce("t1", 10).commit("t1", fails=UNKNOWN).commit("t1", fails=LATE).commit("t1", 3)
    story.final(orders="t1@3 10")


@good
def a_timed_out_transaction_is_not_there(story):
    story.begin("t1").produce("t1", 10).commit("t1", fails=LATE).final({"t1": ("ABORTED", 4)}, orders="")


@bad("zombie commit")
def a_transaction_of_an_older_epoch_lands_behind_the_newer_one(story):
    story.producer("loader", 2).begin("t1", "loader", 2).produce("t1", 10).by("b").producer("loader", 3)
    story.by("a").commit("t1", 4).final(orders="t1@4 10")


@bad("zombie commit")
def a_plain_batch_of_an_older_epoch_lands_behind_the_newer_one(story):
    story.producer("loader", 2).by("b").producer("loader", 3)
    story.by("a").produce(None, 10, sequence=0, fails=UNKNOWN).final(orders="x@4 10")


@bad("zombie commit")
def a_zombie_lands_what_its_successor_was_refused(story):
    story.producer("loader", 2).by("b").producer("loader", 3).by("a").produce(None, 10, sequence=0, fails=UNKNOWN)
    story.by("b").produce(None, 10, sequence=0, fails=FAILED).final(orders="x@4 10")


@good
def a_successor_sends_again_what_was_in_doubt(story):
    story.producer("loader", 2).produce(None, 10, sequence=0, fails=UNKNOWN).by("b").producer("loader", 3)
    story.produce(None, 10, sequence=0, version=4).final(orders="x@4 10")


@bad("zombie commit")
def a_fenced_consumer_commits(story):
    consumed(story).by("b").consumer(5).by("a").commit("t1", 6).final(cursors=at(2), orders="x@2 10 11")


@good
def a_transaction_that_landed_before_it_was_fenced(story):
    story.producer("loader", 2).begin("t1", "loader", 2).produce("t1", 10).commit("t1", fails=UNKNOWN)
    story.by("b").producer("loader", 4).by("a").commit("t1", 3).final(orders="t1@3 10")


@bad("epoch moved back")
def a_newer_producer_gets_an_older_epoch(story):
    story.producer("loader", 4).by("b").producer("loader", 3)


@bad("two answers")
def an_unknown_outcome_is_told_in_two_ways(story):
    story.begin("t1").produce("t1", 10).commit("t1", fails=UNKNOWN)
    story.by("b").outcome("t1", "ABORTED").by("c").outcome("t1", "COMMITTED", 3).final(orders="t1@3 10")


@bad("two answers")
def an_unknown_outcome_is_told_to_be_aborted_and_is_visible(story):
    story.begin("t1").produce("t1", 10).commit("t1", fails=NEVER).by("b").outcome("t1", "ABORTED")
    story.final(orders="t1@3 10")


@bad("changed outcome")
def a_committed_transaction_is_aborted_later(story):
    story.whole("t1", 3, 10).outcome("t1", "ABORTED", 4)


@bad("changed outcome")
def an_aborted_transaction_is_open_again(story):
    story.begin("t1").produce("t1", 10).abort("t1").outcome("t1", "OPEN").final(orders="")


@bad("changed outcome", "misplaced commit")
def a_commit_is_told_at_two_versions(story):
    story.whole("t1", 3, 10).outcome("t1", "COMMITTED", 4).final(orders="t1@3 10")


@bad("two answers")
def a_commit_in_doubt_that_is_repeated_forgets_what_was_dropped(story):
    story.begin("t1").produce("t1", 10).prepare("t1").complete("t1", 3, dropped=("audit", "orders/billing"))
    story.complete("t1", fails=UNKNOWN).complete("t1", 3, dropped=("audit",)).final(orders="t1@3 10")


@bad("changed outcome")
def a_commit_that_is_repeated_says_that_something_else_was_dropped(story):
    story.begin("t1").produce("t1", 10).commit("t1", 3, dropped=("audit",)).commit("t1", 3, dropped=("orders/b",))
    story.final(orders="t1@3 10")


@good
def a_commit_tells_again_what_was_dropped_by_name_or_by_number(story):
    story.begin("t1").produce("t1", 10).prepare("t1").complete("t1", 3, dropped=("audit", "orders/billing"))
    story.by("b").complete("t1", 3, dropped=("audit", "7")).complete("t1", fails=UNKNOWN)
    story.commit("t1", 3, dropped=("audit", "orders/billing")).final(orders="t1@3 10")


@good
def a_batch_that_was_skipped_says_nothing_of_what_was_dropped(story):
    story.begin("t1").produce("t1", 10).commit("t1", 3, dropped=("audit",)).final(orders="t1@3 10")
    story.begin("t2").produce("t2", 20).commit("t2", 3, skipped=True)


@good
def a_transaction_is_open_until_it_ends(story):
    story.begin("t1").produce("t1", 10).outcome("t1", "OPEN").commit("t1", 3).outcome("t1", "COMMITTED", 3)
    story.final({"t1": ("COMMITTED", 3)}, orders="t1@3 10")


@good
def a_plain_batch_in_doubt_is_asked_for_by_its_own_id(story):
    story.produce(None, 10, fails=UNKNOWN).by("b").outcome("x", "COMMITTED", 3)
    story.produce(None, 20, fails=UNKNOWN).outcome("y", "ABORTED", 4)
    story.final({"x": ("COMMITTED", 3), "y": ("ABORTED", 4)}, orders="x@3 10")


@bad("two answers")
def a_plain_batch_in_doubt_is_told_to_be_aborted_and_is_visible(story):
    story.produce(None, 10, fails=UNKNOWN).by("b").outcome("x", "ABORTED", 4).final(orders="x@3 10")


@good
def an_unknown_outcome_becomes_definite(story):
    story.begin("t1").produce("t1", 10).commit("t1", fails=UNKNOWN).outcome("t1", "UNKNOWN")
    story.commit("t1", fails=UNKNOWN).outcome("t1", "COMMITTED", 3).abort("t1", fails=InvalidTransactionState("no"))
    story.commit("t1", 3).final({"t1": ("COMMITTED", 3)}, orders="t1@3 10")


@good
def an_empty_transaction_is_whatever_one_asks_for(story):
    story.begin("t1").commit("t1", 0).outcome("t1", "UNKNOWN").abort("t1").outcome("t1", "ABORTED").final()


@bad("misplaced commit")
def a_commit_says_another_version(story):
    story.whole("t1", 3, 10).final(orders="t1@4 10")


@bad("misplaced commit")
def a_commit_says_other_offsets(story):
    story.whole("t1", 3, 10).begin("t2").produce("t2", 20).commit("t2", 4, offsets={(TOPIC, 0): (0, 1)})
    story.final(orders="t1@3 10, t2@4 20")


@good
def a_commit_says_where_its_messages_are(story):
    story.whole("t1", 3, 10).begin("t2").produce("t2", 20).commit("t2", 4, offsets={(TOPIC, 0): (1, 2)})
    story.produce(None, 30, version=5, offsets={(TOPIC, 0): range(2, 3)}).final(orders="t1@3 10, t2@4 20, x@5 30")


# --- readers --------------------------------------------------------------------------------------------------------


@bad("stale read")
def a_read_of_the_newest_version_is_older_than_an_acknowledged_commit(story):
    story.whole("t1", 3, 10).by("b").read(2, orders="").final(orders="t1@3 10")


@bad("stale read")
def a_read_of_another_version_than_the_one_asked_for(story):
    story.whole("t1", 3, 10).whole("t2", 4, 20).read(3, wanted=4, orders="t1@3 10").final(orders="t1@3 10, t2@4 20")


@good
def a_read_that_overlaps_a_commit_may_be_older(story):
    token = story.recorder.invoke("b", "read")
    story.whole("t1", 3, 10)
    story.recorder.ok(token, version=2, rows={})
    story.final(orders="t1@3 10")


@bad("stale commit")
def a_commit_lands_before_what_was_acknowledged_before_it(story):
    story.whole("t1", 5, 10).begin("t2").produce("t2", 20, topic="audit").commit("t2", 4)
    story.final(orders="t1@5 10", audit="t2@4 20")


@bad("unseen")
def a_read_leaves_the_newest_transaction_out(story):
    story.whole("t1", 3, 10).whole("t2", 4, 20).read(4, orders="t1@3 10").final(orders="t1@3 10, t2@4 20")


@bad("unseen")
def a_cursor_passed_messages_that_nobody_acknowledged(story):
    received(story).final(cursors=at(1), orders="x@2 10 11")


@bad("future read")
def a_read_shows_what_became_visible_later(story):
    story.whole("t1", 3, 10).whole("t2", 4, 20).read(3, wanted=3, orders="t1@3 10, t2@4 20")
    story.final(orders="t1@3 10, t2@4 20")


@bad("diverging snapshots", "unseen")
def two_readers_of_one_version_see_different_messages(story):
    story.whole("t1", 3, 10).read(3, orders="").read(3, orders="t1@3 10").final(orders="t1@3 10")


@good
def a_read_of_one_topic(story):
    story.begin("t1").produce("t1", 10, topic="audit").produce("t1", 11).commit("t1", 3)
    rows = {("orders", 0): ((0, 11, "t1", 3),)}
    story.call("read", result={"version": 3, "rows": rows}, topics=["orders"])
    story.final(orders="t1@3 11", audit="t1@3 10")


# --- consumers ------------------------------------------------------------------------------------------------------


def received(story: Story) -> Story:
    """Two messages in version 2, received by a consumer with epoch 4."""
    return story.produce(None, 10, 11, version=2).consumer(4).receive(4, "0=10 1=11")


def consumed(story: Story) -> Story:
    """The same, and a transaction that acknowledges both."""
    return received(story).begin("t1").take("t1", 4, 0, 2)


FOUR = "x@2 10 11 12 13"


def four(story: Story) -> Story:
    """Four messages in version 2, and a consumer with epoch 4."""
    return story.produce(None, 10, 11, 12, 13, version=2).consumer(4)


@good
def consume_process_produce(story):
    consumed(story).produce("t1", 20).commit("t1", 5).receive(4, "2=20")
    story.begin("t2").take("t2", 4, 2, 3, cumulative=True).commit("t2", 6)
    story.final(cursors=at(3), orders="x@2 10 11, t1@5 20")


@bad("skipped poll")
def a_free_message_is_left_out_within_a_call(story):
    four(story).receive(4, "0=10 2=12").final(orders=FOUR)


@bad("skipped poll")
def a_free_message_is_left_out_between_calls(story):
    four(story).receive(4, "0=10").receive(4, "2=12").final(orders=FOUR)


@bad("skipped poll", "non-monotonic poll")
def a_message_comes_after_later_ones(story):
    four(story).receive(4, "0=10 2=12").receive(4, "1=11 3=13").final(orders=FOUR)


@bad("non-monotonic poll")
def the_messages_of_a_call_come_in_another_order(story):
    four(story).receive(4, "1=11 0=10").final(orders=FOUR)


@bad("skipped poll")
def an_aborted_message_is_left_out(story):
    four(story).receive(4, "0=10 1=11").begin("t1").take("t1", 4, 0, 2).abort("t1").receive(4, "2=12")
    story.final(orders=FOUR)


@good
def messages_that_another_transaction_holds_are_left_out(story):
    four(story).receive(4, "0=10 1=11").begin("t1").take("t1", 4, 0, 2).by("b").consumer(5).receive(5, "2=12 3=13")
    story.by("a").commit("t1", fails=UNKNOWN).final(orders=FOUR)


@good
def messages_are_left_out_whose_transaction_is_told_to_be_aborted_meanwhile(story):
    four(story).receive(4, "0=10 1=11").begin("t1").take("t1", 4, 0, 2).prepare("t1").by("b").consumer(5)
    where = {"topic": TOPIC, "subscription": SUBSCRIPTION, "epoch": 5}
    receiving = story.recorder.invoke("b", "receive", **where)
    story.by("a").complete("t1", 6, commit=False)
    story.recorder.ok(receiving, messages=[(0, 2, 12, 0), (0, 3, 13, 0)])
    story.by("b").receive(5, "0=10 1=11").final(orders=FOUR)


@bad("skipped poll")
def messages_are_left_out_whose_transaction_was_told_to_be_aborted_before(story):
    four(story).receive(4, "0=10 1=11").begin("t1").take("t1", 4, 0, 2).prepare("t1").by("b").consumer(5)
    story.by("a").complete("t1", 6, commit=False).by("b").receive(5, "2=12 3=13").final(orders=FOUR)


@bad("acknowledge without read")
def a_cumulative_one_takes_what_was_given_back(story):
    four(story).receive(4, "0=10 1=11").receive(4, "2=12").give_back(4, (0, 1))
    story.take(None, 4, 2, 3, cumulative=True, version=5).final(cursors=at(3), orders=FOUR)


@good
def a_cumulative_one_takes_what_was_given_back_and_is_named(story):
    four(story).receive(4, "0=10 1=11").give_back(4, (0, 2)).take(None, 4, 0, 2, cumulative=True, version=5)
    story.final(cursors=at(2), orders=FOUR)


@good
def aborted_messages_are_delivered_again(story):
    four(story).receive(4, "0=10 1=11").begin("t1").take("t1", 4, 0, 2).abort("t1").receive(4, "0=10 1=11 2=12")
    story.begin("t2").take("t2", 4, 0, 3).commit("t2", 5).receive(4, "3=13")
    story.final(cursors=at(3), orders=FOUR)


@good
def messages_that_were_given_back_are_delivered_again(story):
    four(story).receive(4, "0=10 1=11 2=12").give_back(4, (1, 2)).receive(4, "1=11 3=13").final(orders=FOUR)


@bad("skipped poll")
def messages_that_were_given_back_are_left_out(story):
    four(story).receive(4, "0=10 1=11 2=12").give_back(4, (1, 2)).receive(4, "3=13").final(orders=FOUR)


def too_late(story: Story) -> Story:
    four(story).receive(4, "0=10 1=11").begin("t1").take("t1", 4, 0, 2).commit("t1", fails=LATE)
    return story.receive(4, "2=12 3=13")


@good
def a_timed_out_transaction_that_a_flush_had_logged_holds_its_messages_until_it_ends_there(story):
    too_late(story).final({"t1": ("ABORTED", 7)}, orders=FOUR)


@bad("skipped poll")
def messages_are_left_out_whose_transaction_timed_out_and_was_never_logged(story):
    too_late(story).final(orders=FOUR)


@good
def everything_that_was_not_acknowledged_is_given_back(story):
    four(story).receive(4, "0=10 1=11").give_back(4).receive(4, "0=10 1=11 2=12").final(orders=FOUR)


@bad("duplicate poll")
def a_message_comes_again_for_no_reason(story):
    four(story).receive(4, "0=10 1=11").receive(4, "1=11 2=12").final(orders=FOUR)


@good
def a_newer_consumer_gets_what_the_older_one_did_not_acknowledge(story):
    four(story).receive(4, "0=10 1=11").by("b").consumer(5).receive(5, "0=10 1=11").final(orders=FOUR)


@good
def several_consumers_of_one_epoch_share_the_messages(story):
    four(story).receive(4, "0=10 1=11").by("b").consumer(4).receive(4, "2=12").by("a").receive(4, "3=13")
    story.by("b").receive(4, "1=11").final(orders=FOUR)


@bad("redelivery after acknowledge")
def a_committed_acknowledgement_is_delivered_again(story):
    consumed(story).commit("t1", 5).receive(4, "0=10 1=11").final(cursors=at(2), orders="x@2 10 11")


@bad("redelivery after acknowledge")
def a_plain_acknowledgement_is_delivered_again_to_the_next_consumer(story):
    received(story).take(None, 4, 0, 2, version=5).by("b").consumer(6).receive(6, "0=10 1=11")
    story.final(cursors=at(2), orders="x@2 10 11")


@good
def after_a_seek_everything_comes_again(story):
    consumed(story).commit("t1", 5).seek(0, 6).receive(6, "0=10 1=11").begin("t2").take("t2", 6, 0, 1)
    story.commit("t2", 7).final(cursors=at(1), orders="x@2 10 11")


@good
def after_a_seek_in_doubt_everything_may_come_again(story):
    consumed(story).commit("t1", 5).seek(0, fails=UNKNOWN).consumer(7).receive(7, "0=10 1=11")
    story.final(cursors=at(0), orders="x@2 10 11")


@good
def after_a_seek_that_failed_what_was_received_before_it_is_not_free(story):
    """Nobody says that it came to nothing, but its consumer was not fenced."""
    four(story).receive(4, "0=10 1=11 2=12").give_back(4, (0, 1)).seek(3, fails=UNKNOWN)
    story.receive(4, "0=10").receive(4, "3=13").final(orders=FOUR)


@good
def a_call_under_way_while_another_client_seeks_has_what_was_received_before(story):
    four(story).receive(4, "0=10 1=11 2=12").give_back(4, (0, 1))
    token = story.recorder.invoke("a", "receive", topic=TOPIC, subscription=SUBSCRIPTION, epoch=4)
    story.by("b").consumer(5).seek(3, 6)
    story.recorder.ok(token, messages=[(0, 0, 10, 0), (0, 3, 13, 0)])
    story.final(orders=FOUR)


@good
def after_a_seek_everything_comes_again_with_the_epoch_that_the_consumer_told(story):
    four(story).receive(4, "0=10 1=11").seek(0).receive(4, "0=10 1=11").seek(3).receive(4, "3=13").final(orders=FOUR)


@good
def messages_that_came_again_before_their_abort_was_told_are_not_free(story):
    four(story).receive(4, "0=10 1=11").begin("t1").take("t1", 4, 0, 2).commit("t1", fails=UNKNOWN)
    story.receive(4, "0=10 1=11").outcome("t1", "ABORTED", 5).receive(4, "2=12").give_back(4).receive(4, "0=10")
    story.final(orders=FOUR)


@good
def an_abort_that_another_client_asked_for_is_not_known_to_the_consumer_yet(story):
    four(story).receive(4, "0=10 1=11").begin("t1").take("t1", 4, 0, 2).by("b").abort("t1").by("a").receive(4, "2=12")
    story.final({"t1": ("ABORTED", 5)}, at(0), orders=FOUR)


@good
def an_acknowledgement_in_doubt_is_delivered_again(story):
    consumed(story).commit("t1", fails=UNKNOWN).by("b").consumer(6).receive(6, "0=10 1=11")
    story.final({"t1": ("ABORTED", 6)}, at(0), orders="x@2 10 11")


@bad("double consume")
def two_transactions_take_one_message(story):
    consumed(story).by("b").begin("t2").take("t2", 4, 1, 2).by("a").commit("t1", 5).by("b").commit("t2", 6)
    story.final(cursors=at(2), orders="x@2 10 11")


@bad("double consume")
def a_transaction_takes_what_a_plain_call_took(story):
    consumed(story).take(None, 4, 0, 1, version=5).commit("t1", 6).final(cursors=at(2), orders="x@2 10 11")


@good
def a_plain_call_finds_taken_what_a_transaction_took_at_the_newest_version(story):
    where = {"topic": TOPIC, "subscription": SUBSCRIPTION, "epoch": 4}
    consumed(story)
    plain = story.recorder.invoke("b", "acknowledge", txn=None, ranges=[(0, 0, 1)], cumulative=False, **where)
    story.commit("t1", 5)
    story.recorder.ok(plain, version=5)
    story.final(cursors=at(2), orders="x@2 10 11")


@bad("double consume")
def a_cumulative_acknowledgement_that_does_not_move_the_cursor(story):
    consumed(story).begin("t2").take("t2", 4, 0, 2, cumulative=True).commit("t1", 5).commit("t2", 6)
    story.final(cursors=at(2), orders="x@2 10 11")


@good
def the_second_transaction_that_takes_a_message_is_refused(story):
    consumed(story).begin("t2").take("t2", 4, 1, 2, fails=TransactionConflict("held")).commit("t1", 5)
    story.commit("t2", fails=TransactionAborted("failed")).final(cursors=at(2), orders="x@2 10 11")


@good
def a_cumulative_acknowledgement_over_messages_that_are_taken(story):
    four(story).receive(4, "0=10 1=11 2=12").begin("t1").take("t1", 4, 1, 2).commit("t1", 5)
    story.begin("t2").take("t2", 4, 0, 3, cumulative=True).commit("t2", 6).final(cursors=at(3), orders=FOUR)


@bad("acknowledge without read")
def messages_are_taken_that_were_not_received(story):
    four(story).receive(4, "0=10").take(None, 4, 0, 2, version=5).final(cursors=at(2), orders=FOUR)


@bad("acknowledge without read")
def messages_are_taken_that_were_received_with_an_older_epoch(story):
    received(story).by("b").consumer(5).take(None, 5, 0, 2, version=6).final(cursors=at(2), orders="x@2 10 11")


@bad("acknowledge without read")
def a_cumulative_acknowledgement_passes_messages_that_were_not_received(story):
    four(story).receive(4, "0=10").take(None, 4, 0, 3, cumulative=True, version=5).final(cursors=at(3), orders=FOUR)


@good
def a_subscription_that_begins_in_the_middle(story):
    story.produce(None, 10, 11, 12, version=2)
    story.call("create_subscription", topic=TOPIC, subscription=SUBSCRIPTION, positions={0: 2})
    story.consumer(4).receive(4, "2=12").take(None, 4, 0, 3, cumulative=True, version=5)
    story.final(cursors=at(3), orders="x@2 10 11 12")


@bad("cursor moved back")
def a_cursor_shows_less_than_before(story):
    received(story).take(None, 4, 0, 2, fails=UNKNOWN).cursor(2).cursor(1).final(orders="x@2 10 11")


@bad("cursor moved back", "lost write")
def an_acknowledged_acknowledgement_is_not_in_the_cursor(story):
    received(story).take(None, 4, 0, 2, version=5).final(cursors=at(0), orders="x@2 10 11")


@bad("cursor moved back", "torn commit")
def a_part_of_a_committed_acknowledgement_is_not_in_the_cursor(story):
    consumed(story).commit("t1", 5).final(cursors=at(0, (1, 2)), orders="x@2 10 11")


@good
def a_seek_moves_the_cursor_back(story):
    received(story).take(None, 4, 0, 2, version=5).cursor(2).seek(1, 6).cursor(1).final(
        cursors=at(1), orders="x@2 10 11"
    )


@good
def a_seek_while_the_cursor_is_looked_at(story):
    received(story).take(None, 4, 0, 2, version=5)
    token = story.recorder.invoke("b", "cursors", topic=TOPIC, subscription=SUBSCRIPTION)
    story.seek(0, 6)
    story.recorder.ok(token, cursors=at(0))
    story.final(cursors=at(0), orders="x@2 10 11")


@bad("aborted read")
def an_aborted_acknowledgement_is_in_the_cursor(story):
    consumed(story).abort("t1").final(cursors=at(2), orders="x@2 10 11")


@good
def a_dropped_subscription_shows_nothing(story):
    consumed(story).commit("t1", 5)
    story.call("drop_subscription", topic=TOPIC, subscription=SUBSCRIPTION)
    story.final(orders="x@2 10 11")


# --- cycles ---------------------------------------------------------------------------------------------------------


def crossed(story: Story, *versions: int) -> Story:
    """Two transactions that write to two topics, and whose commits are under way at once."""
    for txn, value in (("t1", 10), ("t2", 20)):
        story.begin(txn).produce(txn, value).produce(txn, value + 1, topic="audit")
    tokens = [story.recorder.invoke("a", "commit", txn=txn) for txn in ("t1", "t2")]
    for token, version in zip(tokens, versions, strict=True):
        story.recorder.ok(token, version=version)
    return story


@bad("G0", "offsets against versions")
def two_transactions_are_each_before_the_other(story):
    crossed(story, 3, 4).final(orders="t1@3 10, t2@4 20", audit="t2@4 21, t1@3 11")


@good
def two_transactions_of_one_entry_in_one_order(story):
    crossed(story, 3, 3).final(orders="t1@3 10, t2@3 20", audit="t1@3 11, t2@3 21")


@good
def two_transactions_of_one_entry_in_different_orders(story):
    crossed(story, 3, 3).final(orders="t1@3 10, t2@3 20", audit="t2@3 21, t1@3 11")


@bad("G1c")
def two_transactions_consume_what_the_other_wrote(story):
    story.consumer(1).consumer(2, topic="audit").begin("t1").produce("t1", 10).begin("t2").produce(
        "t2", 20, topic="audit"
    )
    tokens = [story.recorder.invoke("a", "commit", txn=txn) for txn in ("t1", "t2")]
    story.receive(1, "0=10").receive(2, "0=20", topic="audit").take("t2", 1, 0, 1).take("t1", 2, 0, 1, topic="audit")
    for token in tokens:
        story.recorder.ok(token, version=3)
    story.final(orders="t1@3 10", audit="t2@3 20")


@bad("G-single", "torn commit", "unseen")
def a_read_shows_a_commit_and_not_the_one_before_it(story):
    story.begin("t1").produce("t1", 10).produce("t1", 11, topic="audit").commit("t1", 3).whole("t2", 4, 20)
    story.whole("t3", 5, 30).begin("t4").produce("t4", 40, topic="audit").commit("t4", 6)
    story.begin("t5").produce("t5", 50).produce("t5", 51, topic="books").commit("t5", 7)
    story.read(7, orders="t1@3 10, t2@4 20", audit="t1@3 11, t4@6 40", books="t5@7 51")
    story.final(orders="t1@3 10, t2@4 20, t3@5 30, t5@7 50", audit="t1@3 11, t4@6 40", books="t5@7 51")


@bad("G2", "diverging snapshots", "unseen")
def two_readers_see_two_commits_in_different_orders(story):
    story.whole("t1", 3, 10).begin("t2").produce("t2", 20, topic="audit").commit("t2", 4)
    story.read(4, orders="t1@3 10", audit="").read(4, orders="", audit="t2@4 20")
    story.final(orders="t1@3 10", audit="t2@4 20")


@good
def consuming_transactions_that_did_not_see_each_other(story):
    story.produce(None, 10, version=2).produce(None, 20, topic="audit", version=3).consumer(4).consumer(
        5, topic="audit"
    )
    story.receive(4, "0=10").receive(5, "0=20", topic="audit")
    story.begin("t1").take("t1", 4, 0, 1).produce("t1", 21, topic="audit").begin("t2")
    story.take("t2", 5, 0, 1, topic="audit").produce("t2", 11).commit("t1", 6).commit("t2", 7)
    story.final(orders="x@2 10, t2@7 11", audit="y@3 20, t1@6 21")


# --- prepared transactions ------------------------------------------------------------------------------------------

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


# --- Shared subscriptions -------------------------------------------------------------------------------------------


def several(story: Story, most: int | None = None) -> Story:
    """Two messages in version 2, and a Shared subscription with epoch 4 whose first consumer has them."""
    return story.shared(most).produce(None, 10, 11, version=2).consumer(4).receive(4, "0=10 1=11")


@good
def a_lease_ends_and_another_consumer_gets_the_message(story):
    several(story, most=1).by("b").receive(4, "0=10", again=1).take(None, 4, 0, 1, version=5)
    story.final(orders="x@2 10 11", cursors=at(1))


@good
def the_same_consumer_gets_it_again_with_a_count(story):
    several(story).give_back(4, (0, 1)).receive(4, "0=10", again=1).receive(4, "0=10", again=3).final(
        orders="x@2 10 11"
    )


@good
def two_deliveries_at_once_have_the_counts_that_they_have(story):
    story.shared().produce(None, 10, version=2).consumer(4)
    where = {"topic": TOPIC, "subscription": SUBSCRIPTION, "epoch": 4}
    one, two = (story.recorder.invoke(actor, "receive", **where) for actor in "ab")
    story.recorder.ok(two, messages=[(0, 0, 10, 1)])
    story.recorder.ok(one, messages=[(0, 0, 10, 0)])
    story.final(orders="x@2 10")


@good
def after_a_seek_redeliveries_are_counted_anew(story):
    several(story).receive(4, "0=10", again=2).seek(0, 6).receive(6, "0=10").final(orders="x@2 10 11")


@bad("uncounted redelivery")
def after_a_seek_redeliveries_are_counted_again(story):
    several(story).seek(0, 6).receive(6, "0=10").receive(6, "0=10").final(orders="x@2 10 11")


@good
def a_dead_letter_again_after_a_seek(story):
    several(story, most=0).seek(0, 7).final(orders="x@2 10 11", cursors=at(1), dead=((0, 10, 1, 6), (0, 10, 1, 8)))


@bad("redelivery count moved back")
def a_redelivery_count_goes_back(story):
    several(story).receive(4, "0=10", again=2).by("b").receive(4, "0=10", again=1).final(orders="x@2 10 11")


@bad("uncounted redelivery")
def a_message_comes_again_and_nobody_counts(story):
    several(story).by("b").receive(4, "0=10").final(orders="x@2 10 11")


@bad("delivered too often")
def a_message_comes_more_often_than_is_allowed(story):
    several(story, most=1).receive(4, "0=10", again=1).receive(4, "0=10", again=2).final(orders="x@2 10 11")


@bad("redelivery after acknowledge")
def a_message_of_a_shared_subscription_comes_after_it_was_acknowledged(story):
    several(story).take(None, 4, 0, 1, version=5).by("b").receive(4, "0=10", again=1).final(orders="x@2 10 11")


@good
def what_came_too_often_is_a_dead_letter(story):
    several(story, most=0).final(orders="x@2 10 11", cursors=at(1), dead=((0, 10, 1, 6),))


@bad("dead letter")
def a_dead_letter_before_its_time(story):
    several(story, most=1).final(orders="x@2 10 11", cursors=at(1), dead=((0, 10, 1, 6),))


@bad("dead letter")
def a_dead_letter_twice(story):
    several(story, most=0).final(orders="x@2 10 11", cursors=at(1), dead=((0, 10, 1, 6), (0, 10, 1, 7)))


@bad("dead letter")
def a_dead_letter_of_another_message(story):
    several(story, most=0).final(orders="x@2 10 11", cursors=at(1), dead=((0, 11, 1, 6),))


@bad("torn commit")
def a_dead_letter_whose_message_is_free(story):
    several(story, most=0).final(orders="x@2 10 11", cursors=at(0), dead=((0, 10, 1, 6),))


@bad("double consume")
def a_message_is_taken_after_it_became_a_dead_letter(story):
    several(story, most=0).begin("t1").take("t1", 4, 0, 1).commit("t1", 7)
    story.final(orders="x@2 10 11", cursors=at(1), dead=((0, 10, 1, 6),))


# --- Failover subscriptions -----------------------------------------------------------------------------------------


def waiting(story: Story) -> Story:
    """Of two consumers one is active and has a message, the other waits."""
    return story.whole("x", 2, 10, 11).consumer(4).receive(4, "0=10").by("b").receive(None, "")


@good
def another_consumer_takes_over_while_it_receives(story):
    opened = waiting(story).recorder.invoke("b", "open_consumer", topic=TOPIC, subscription=SUBSCRIPTION)
    story.receive(None, "0=10 1=11", active=6)
    story.recorder.ok(opened, epoch=6)
    story.take(None, 6, 0, 2, version=7).receive(6, "").final(orders="x@2 10 11", cursors=at(2))


@bad("zombie poll")
def who_was_taken_over_receives_all_the_same(story):
    waiting(story).consumer(6).by("a").receive(4, "1=11").final(orders="x@2 10 11")


@good
def who_was_taken_over_receives_nothing(story):
    waiting(story).consumer(6).by("a").receive(4, "").final(orders="x@2 10 11")


@bad("duplicate poll")
def the_new_one_gets_a_message_twice(story):
    waiting(story).receive(None, "0=10", active=6).receive(6, "0=10").final(orders="x@2 10 11")


@bad("acknowledge without read", "skipped poll")
def the_new_one_acknowledges_what_the_old_one_got(story):
    waiting(story).receive(None, "1=11", active=6).take(None, 6, 0, 1, version=7)
    story.final(orders="x@2 10 11", cursors=at(1))


# --- files ----------------------------------------------------------------------------------------------------------


@good
def a_vacuum_takes_versions_away(story):
    story.whole("t1", 3, 10).vacuum(3).call("read", VersionNotAvailable("gone"), version=2)
    story.vacuum(3).final(orders="t1@3 10", missing=(("old.parquet", 3),))


@good
def a_vacuum_that_is_under_way_may_take_versions_away(story):
    story.whole("t1", 3, 10).vacuum(3, fails=NEVER).call("read", VersionNotAvailable("gone"), version=2)
    story.final(orders="t1@3 10")


@bad("missing file")
def a_vacuum_deletes_what_the_newest_version_needs(story):
    story.whole("t1", 3, 10).vacuum(3).final(orders="t1@3 10", missing=(("new.parquet", None),))


@bad("missing file")
def a_vacuum_deletes_what_a_readable_version_needs(story):
    story.whole("t1", 3, 10).vacuum(3).final(orders="t1@3 10", missing=(("old.parquet", 4),))


@bad("readable versions moved")
def a_readable_version_cannot_be_read(story):
    story.whole("t1", 3, 10).vacuum(2).call("read", VersionNotAvailable("gone"), version=3)
    story.final(orders="t1@3 10")


@bad("readable versions moved")
def the_oldest_readable_version_moves_back(story):
    story.whole("t1", 3, 10).vacuum(3).vacuum(2).final(orders="t1@3 10")


# --- the tests ------------------------------------------------------------------------------------------------------


def found(told: Told) -> list[str]:
    story = Story()
    told(story)
    history = story.history()
    findings = check(history)
    assert check(History.from_lines(history.to_lines())) == findings, "what was written down gives the same findings"
    return [str(finding) for finding in findings]


@pytest.mark.parametrize("told", GOOD)
def test_a_good_history_has_no_findings(told):
    assert found(told) == []


@pytest.mark.parametrize(("told", "anomalies"), BAD)
def test_a_bad_history_is_found_and_called_by_its_name(told, anomalies):
    findings = found(told)
    assert {finding.partition(":")[0] for finding in findings} == anomalies, findings


def test_there_is_a_bad_history_of_every_anomaly():
    assert {anomaly.value for anomaly in Anomaly} == COVERED


def test_every_anomaly_says_what_it_means():
    assert all(len(anomaly.meaning) > 20 for anomaly in Anomaly)


def test_a_history_in_which_nothing_happened_has_no_findings():
    assert check(History(())) == []
