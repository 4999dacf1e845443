"""Stories of transactions: what is visible of them, what their calls reported, and what the log says of them later."""

from __future__ import annotations

from tests.sim.stories.beginnings import FAILED, LATE, consumed, received
from tests.sim.story import NEVER, SUBSCRIPTION, TOPIC, UNKNOWN, at, bad, good
from txnlog.errors import InvalidTransactionState, ProducerFenced, RetriableError


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


def two_at_once(story):
    """Two commits of one client that are under way at once, in this order; the calls of ``ok`` give the versions."""
    story.begin("t1").produce("t1", 10).begin("t2").produce("t2", 20)
    first, second = (story.recorder.invoke("a", "commit", txn=txn) for txn in ("t1", "t2"))
    return first, second


@bad("overtaken commit")
def a_later_commit_comes_before_an_earlier_one(story):
    first, second = two_at_once(story)
    story.recorder.ok(second, version=3)
    story.recorder.ok(first, version=4)
    story.final(orders="t2@3 20, t1@4 10")


@bad("overtaken commit")
def rows_of_a_later_commit_come_before_those_of_an_earlier_one_in_the_same_entry(story):
    first, second = two_at_once(story)
    story.recorder.ok(first, version=3)
    story.recorder.ok(second, version=3)
    story.final(orders="t2@3 20, t1@3 10")


@good
def two_commits_in_one_entry(story):
    first, second = two_at_once(story)
    story.recorder.ok(second, version=3)
    story.recorder.ok(first, version=3)
    story.final(orders="t1@3 10, t2@3 20")


@good
def a_commit_without_an_answer_comes_later(story):
    first, second = two_at_once(story)
    story.recorder.ok(second, version=3)
    story.recorder.failed(first, UNKNOWN)
    story.final(orders="t2@3 20, t1@4 10")
