"""Stories of key compaction: what may go, what stays, who may see what went yet, and who needed it."""

from __future__ import annotations

from tests.sim.story import TOPIC, UNKNOWN, at, bad, good

FOUR = "t1@3 10 11, t2@4 12 13"
KEYS = ("a", "b", "a", "b")
LEFT = "t2@4 2=12 13"


def four(story):
    return story.whole("t1", 3, 10, 11).whole("t2", 4, 12, 13)


def keyed(*keys, partition=0):
    """The keys of messages, from offset 0 on; one in small letters has a value, one in capitals ends its key."""
    return tuple(
        (TOPIC, partition, offset, key and key.lower(), key is not None and key.isupper())
        for offset, key in enumerate(keys)
    )


def gone(version, *offsets, age_ms=1_000, **more):
    """Messages that went at a version."""
    fields = {"asked": True, "lag_ms": 0, "kept_ms": 1_000, "needed_by": ()} | more
    return tuple((TOPIC, 0, offset, version, age_ms, *fields.values()) for offset in offsets)


# --- what may go ------------------------------------------------------------------------------------------------------


@good
def the_newest_message_of_each_key_stays(story):
    four(story).read(4, orders=FOUR).compact(5).read(5, orders=LEFT).read(4, 4, orders=FOUR)
    story.final(keyed=keyed(*KEYS), removed=gone(5, 0, 1), orders=FOUR)


@good
def a_message_goes_in_an_entry_of_its_own_and_the_next_one_later(story):
    four(story).compact(6).read(5, 5, orders="t1@3 1=11, t2@4 12 13").read(6, orders=LEFT)
    story.final(keyed=keyed(*KEYS), removed=gone(5, 0) + gone(6, 1), orders=FOUR)


@good
def a_compaction_of_unknown_outcome_may_have_taken_them_or_not(story):
    four(story).compact(fails=UNKNOWN).read(4, orders=FOUR).read(5, orders=LEFT)
    story.final(keyed=keyed(*KEYS), removed=gone(5, 0, 1), orders=FOUR)


@good
def a_message_that_ended_its_key_goes_with_those_that_it_ended(story):
    four(story).compact(5).read(5, orders="t1@3 1=11, t2@4 3=13")
    story.final(keyed=keyed("a", "b", "A", "c"), removed=gone(5, 0, 2), orders=FOUR)


@good
def a_newer_message_takes_one_that_ended_the_key_at_once(story):
    four(story).compact(5).read(5, orders="t1@3 1=11, t2@4 12 13")
    story.final(keyed=keyed("A", "b", "a", "c"), removed=gone(5, 0, age_ms=0), orders=FOUR)


@good
def a_consumer_passes_over_what_went_and_takes_its_offset_along(story):
    four(story).consumer(5).compact(6).receive(5, "0=10 2=12 3=13").take(None, 5, 0, 4, version=7)
    story.final(cursors=at(4), keyed=keyed("a", "b", "c", "b"), removed=gone(6, 1), orders=FOUR)


@good
def a_cursor_may_pass_over_what_went(story):
    four(story).consumer(5).receive(5, "0=10").take(None, 5, 0, 1, version=6).compact(7)
    story.final(cursors=at(2), keyed=keyed("a", "b", "c", "b"), removed=gone(7, 1), orders=FOUR)


# --- what stays -------------------------------------------------------------------------------------------------------


@bad("compacted newest")
def the_newest_message_goes_and_the_older_one_stays(story):
    four(story).compact(5).read(5, orders="t1@3 10 11, t2@4 3=13")
    story.final(keyed=keyed(*KEYS), removed=gone(5, 2), orders=FOUR)


@bad("compacted newest")
def a_message_goes_for_one_that_came_with_a_later_version(story):
    story.whole("t1", 3, 10, 11).compact(4).read(4, orders="t1@3 1=11").whole("t2", 5, 12, 13)
    story.final(keyed=keyed(*KEYS), removed=gone(4, 0), orders="t1@3 10 11, t2@5 12 13")


@bad("compacted newest")
def a_message_goes_for_one_of_an_aborted_transaction(story):
    story.whole("t1", 3, 10, 11).begin("t2").produce("t2", 12, 13).abort("t2").compact(5).read(5, orders="t1@3 1=11")
    story.final({"t2": ("ABORTED", 4)}, keyed=keyed("a", "b"), removed=gone(5, 0), orders="t1@3 10 11")


@bad("compacted newest")
def a_message_goes_for_one_of_another_partition(story):
    story.whole("t1", 3, 10, 11).begin("t2").produce("t2", 12, partition=1).commit("t2", 4).compact(5)
    story.read(5, orders="t1@3 1=11", orders_1="t2@4 12")
    keys = keyed("a", "b") + keyed("a", partition=1)
    story.final(keyed=keys, removed=gone(5, 0), orders="t1@3 10 11", orders_1="t2@4 12")


@bad("compacted newest")
def a_message_without_a_key_goes(story):
    four(story).compact(5).read(5, orders="t1@3 1=11, t2@4 12 13")
    story.final(keyed=keyed(None, "b", None, "c"), removed=gone(5, 0), orders=FOUR)


@bad("end of a key too early")
def a_key_ends_and_nobody_had_time_to_see_it(story):
    four(story).compact(5).read(5, orders="t1@3 1=11, t2@4 3=13")
    story.final(keyed=keyed("a", "b", "A", "c"), removed=gone(5, 0, 2, age_ms=999), orders=FOUR)


@bad("key revived")
def what_ended_a_key_goes_in_front_of_what_it_ended(story):
    four(story).compact(6).read(5, 5, orders="t1@3 10 11, t2@4 3=13").read(6, orders="t1@3 1=11, t2@4 3=13")
    story.final(keyed=keyed("a", "b", "A", "c"), removed=gone(5, 2) + gone(6, 0), orders=FOUR)


@bad("compacted too early")
def a_message_goes_that_is_too_new(story):
    four(story).compact(5).read(5, orders="t1@3 1=11, t2@4 12 13")
    story.final(keyed=keyed(*KEYS), removed=gone(5, 0, age_ms=499, lag_ms=500), orders=FOUR)


@bad("compacted unasked")
def a_topic_that_is_to_keep_all_by_now_loses_messages(story):
    four(story).compact(5).read(5, orders=LEFT)
    story.final(keyed=keyed(*KEYS), removed=gone(5, 0, 1, asked=False), orders=FOUR)


@bad("compacted before it was acknowledged")
def what_a_subscription_needs_goes(story):
    four(story).compact(5).read(5, orders=LEFT)
    story.final(keyed=keyed(*KEYS), removed=gone(5, 0, 1, needed_by=("billing",)), orders=FOUR)


# --- who reads it -----------------------------------------------------------------------------------------------------


@bad("removed read")
def a_reader_shows_what_went(story):
    four(story).compact(5).read(5, orders="t1@3 1=11, t2@4 12 13")
    story.final(keyed=keyed(*KEYS), removed=gone(5, 0, 1), orders=FOUR)


@bad("unseen", "offset gap", "G-single")
def more_is_gone_than_a_compaction_took(story):
    story.whole("t1", 3, 10).whole("t2", 4, 11).whole("t3", 5, 12).compact(6).read(6, orders="t3@5 2=12")
    story.final(keyed=keyed("a", "b", "a"), removed=gone(6, 0), orders="t1@3 10, t2@4 11, t3@5 12")


@bad("unseen", "offset gap", "G-single")
def a_version_in_front_of_a_compaction_lacks_what_went(story):
    four(story).compact(5).read(4, 4, orders=LEFT)
    story.final(keyed=keyed(*KEYS), removed=gone(5, 0, 1), orders=FOUR)


@bad("inconsistent offsets", "removed read", "intermediate read", "G-single")
def what_a_compaction_leaves_moves_up(story):
    four(story).compact(5).read(5, orders="t2@4 1=12 2=13")
    story.final(keyed=keyed(*KEYS), removed=gone(5, 0, 1), orders=FOUR)


@bad("skipped poll")
def a_consumer_skips_more_than_went(story):
    four(story).consumer(5).compact(6).receive(5, "2=12 3=13")
    story.final(keyed=keyed("a", "b", "a", "c"), removed=gone(6, 0), orders=FOUR)


@bad("skipped poll")
def a_consumer_skips_what_nobody_had_compacted_yet(story):
    four(story).consumer(5).receive(5, "2=12 3=13").compact(6)
    story.final(keyed=keyed(*KEYS), removed=gone(6, 0, 1), orders=FOUR)


@bad("skipped poll")
def a_consumer_skips_what_went_with_an_entry_that_was_not_there_yet(story):
    four(story).compact().consumer(5).receive(5, "2=12 3=13").whole("t3", 6, 14)
    story.final(keyed=keyed(*KEYS, "c"), removed=gone(7, 0, 1), orders=f"{FOUR}, t3@6 14")


@bad("stale read")
def a_newest_read_is_older_than_a_compaction(story):
    four(story).compact(5).read(4, orders=FOUR)
    story.final(keyed=keyed(*KEYS), removed=gone(5, 0, 1), orders=FOUR)
