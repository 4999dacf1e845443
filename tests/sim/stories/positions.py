"""Stories of the log: offsets, versions and values, and sequences of producers."""

from __future__ import annotations

from tests.sim.story import UNKNOWN, bad, good


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


@bad("sequence gap")
def a_sequence_is_left_out_around_a_transaction_without_one(story):
    story.producer("loader", 2).produce(None, 10, sequence=0, version=3)
    story.begin("t1", "loader", 2).produce("t1", 11).commit("t1", 4).produce(None, 12, sequence=2, version=5)
    story.final(orders="x@3 10, t1@4 11, y@5 12")


@good
def sequences_go_on_around_a_batch_whose_producer_assigned_one(story):
    story.producer("loader", 2).produce(None, 10, sequence=0, version=3)
    story.produce(None, 11, producer="loader", epoch=2, version=4)
    story.produce(None, 12, sequence=2, version=5).final(orders="x@3 10, z@4 11, y@5 12")


@good
def sequences_go_on_over_transactions_and_epochs(story):
    story.producer("loader", 2).produce(None, 10, 11, sequence=0, version=3)
    story.begin("t1", "loader", 2).produce("t1", 12, sequence=2).abort("t1")
    story.by("b").producer("loader", 5).begin("t2", "loader", 5).produce("t2", 12, sequence=2).commit("t2", 6)
    story.final(orders="x@3 10 11, t2@6 12")
