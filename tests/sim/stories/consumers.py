"""Stories of consumers: what they receive and acknowledge, and where the cursor is."""

from __future__ import annotations

from tests.sim.stories.beginnings import FOUR, LATE, consumed, four, received
from tests.sim.story import SUBSCRIPTION, TOPIC, UNKNOWN, Story, at, bad, good
from txnlog.errors import TransactionAborted, TransactionConflict


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
