"""Stories of truncation: what goes with a commit, what stays, who may see what went yet, and who needed it."""

from __future__ import annotations

from tests.sim.story import TOPIC, UNKNOWN, at, bad, good

FOUR = "t1@3 10 11, t2@4 12 13"
ALL = FOUR + ", t3@5 14"
LEFT = "t3@5 4=14"


def four(story):
    return story.whole("t1", 3, 10, 11).whole("t2", 4, 12, 13)


def gone(version, *offsets, needed_by=()):
    """Messages that went at a version."""
    return tuple((TOPIC, 0, offset, version, needed_by) for offset in offsets)


def replaced(story, version=5, fails=None, *, kept=False):
    """A transaction that truncates the topic and brings a message."""
    return story.begin("t3").truncate("t3", kept=kept).produce("t3", 14).commit("t3", version, fails=fails)


# --- what goes --------------------------------------------------------------------------------------------------------


@good
def all_earlier_messages_go_and_those_of_the_transaction_stay(story):
    replaced(four(story)).read(5, orders=LEFT).read(4, 4, orders=FOUR)
    story.final(truncated=gone(5, 0, 1, 2, 3), orders=ALL)


@good
def a_truncation_of_unknown_outcome_may_have_taken_them_or_not(story):
    replaced(four(story), fails=UNKNOWN).read(4, orders=FOUR).read(5, orders=LEFT)
    story.final(truncated=gone(5, 0, 1, 2, 3), orders=ALL)


@good
def a_transaction_may_truncate_and_bring_nothing(story):
    four(story).begin("t3").truncate("t3").commit("t3", 5).read(5)
    story.final({"t3": ("COMMITTED", 5)}, truncated=gone(5, 0, 1, 2, 3), orders=FOUR)


@good
def what_is_committed_behind_it_stays(story):
    replaced(four(story)).whole("t4", 6, 15).read(6, orders="t3@5 4=14, t4@6 15")
    story.final(truncated=gone(5, 0, 1, 2, 3), orders=ALL + ", t4@6 15")


@good
def a_consumer_passes_over_what_went_and_takes_its_offsets_along(story):
    replaced(four(story).consumer(5), 6).receive(5, "4=14").take(None, 5, 0, 5, version=7)
    story.final(cursors=at(5), truncated=gone(6, 0, 1, 2, 3, needed_by=("s",)), orders=FOUR + ", t3@6 14")


@good
def what_is_acknowledged_may_go_where_the_rest_is_kept(story):
    four(story).consumer(5).receive(5, "0=10 1=11 2=12 3=13").take(None, 5, 0, 4, version=6)
    replaced(story, 7, kept=True)
    story.final(cursors=at(4), truncated=gone(7, 0, 1, 2, 3), orders=FOUR + ", t3@7 14")


@good
def a_transaction_that_was_aborted_takes_nothing(story):
    four(story).begin("t3").truncate("t3").produce("t3", 14).abort("t3").read(4, orders=FOUR)
    story.final({"t3": ("ABORTED", 5)}, orders=FOUR)


# --- what is wrong ----------------------------------------------------------------------------------------------------


@bad("torn truncation")
def an_earlier_message_stays(story):
    replaced(four(story)).read(5, orders="t2@4 2=12 13, t3@5 14")
    story.final(truncated=gone(5, 0, 1), orders=ALL)


@bad("torn truncation")
def somebody_elses_message_comes_at_its_version(story):
    four(story).begin("t3").truncate("t3").produce("t3", 14).begin("t4").produce("t4", 15)
    story.commit("t3", fails=UNKNOWN).commit("t4", 5).read(5, orders="t3@5 4=14, t4@5 15")
    story.final(truncated=gone(5, 0, 1, 2, 3), orders=ALL + ", t4@5 15")


@bad("truncated unasked")
def messages_go_with_a_commit_that_does_not_truncate(story):
    four(story).whole("t3", 5, 14).read(5, orders=LEFT)
    story.final(truncated=gone(5, 0, 1, 2, 3), orders=ALL)


@bad("truncated unasked")
def messages_go_with_a_transaction_that_was_aborted(story):
    four(story).begin("t3").truncate("t3").produce("t3", 14).abort("t3")
    story.final({"t3": ("ABORTED", 5)}, truncated=gone(5, 0, 1, 2, 3), orders=FOUR)


@bad("truncated before it was acknowledged")
def messages_go_that_a_subscription_needs(story):
    replaced(four(story).consumer(5), 6, kept=True)
    story.final(cursors=at(0), truncated=gone(6, 0, 1, 2, 3, needed_by=("s",)), orders=FOUR + ", t3@6 14")


@bad("removed read")
def what_went_is_read_again(story):
    replaced(four(story)).read(5, orders=ALL)
    story.final(truncated=gone(5, 0, 1, 2, 3), orders=ALL)


@bad("lost write")
def what_is_committed_behind_it_goes_as_well(story):
    replaced(four(story)).whole("t4", 6, 15).read(6, orders="t3@5 4=14")
    story.final(truncated=gone(5, 0, 1, 2, 3), orders=ALL)
