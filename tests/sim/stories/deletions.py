"""Stories of messages that were deleted or erased, or expired: who may see them yet, and who needed them."""

from __future__ import annotations

from tests.sim.story import NEVER, UNKNOWN, at, bad, good

FOUR = "t1@3 10 11, t2@4 12 13"


def four(story):
    return story.whole("t1", 3, 10, 11).whole("t2", 4, 12, 13)


@good
def what_was_deleted_is_read_before_and_not_after(story):
    four(story).read(4, orders=FOUR).delete(2, version=5).read(5, orders="t2@4 2=12 13").final(orders=FOUR)


@good
def who_does_not_know_of_a_deletion_yet_reads_what_was_there(story):
    four(story).delete(2, version=5).read(4, 4, orders=FOUR).read(4, 4, orders="t2@4 2=12 13").final(orders=FOUR)


@good
def a_deletion_of_unknown_outcome_may_have_taken_them_or_not(story):
    four(story).delete(2, fails=UNKNOWN).read(4, orders=FOUR).read(5, orders="t2@4 2=12 13").final(orders=FOUR)


@good
def a_deletion_that_is_under_way_may_take_any_where_its_bound_is_not_known(story):
    four(story).delete(None, fails=NEVER).read(4).final(orders=FOUR)


@good
def a_consumer_goes_on_behind_what_was_deleted(story):
    four(story).consumer(5).delete(2, version=6).receive(5, "2=12 3=13")
    story.take(None, 5, 2, 4, cumulative=True, version=7).final(cursors=at(4), orders=FOUR)


@good
def what_subscriptions_need_is_kept(story):
    four(story).consumer(5).receive(5, "0=10 1=11").take(None, 5, 0, 2, version=6)
    story.delete(2, version=7, kept=True).final(cursors=at(2), orders=FOUR)


@good
def what_was_deleted_although_somebody_needed_it_is_nobodys_any_more(story):
    four(story).consumer(5).delete(1, version=6).receive(5, "1=11").take(None, 5, 1, 2, version=7)
    story.delete(2, version=8, kept=True).final(cursors=at(0, (1, 2)), orders=FOUR)


@bad("deleted read")
def a_reader_that_knows_of_a_deletion_shows_what_is_gone(story):
    four(story).delete(2, version=5).read(5, orders=FOUR).final(orders=FOUR)


@bad("deleted read")
def a_part_of_what_is_gone_is_shown(story):
    four(story).delete(2, version=5).read(6, orders="t1@3 1=11, t2@4 12 13").final(orders=FOUR)


@bad("intermediate read", "offset gap", "G-single")
def more_than_was_deleted_is_gone(story):
    four(story).delete(2, version=5).read(5, orders="t2@4 3=13").final(orders=FOUR)


@bad("skipped poll")
def a_consumer_skips_more_than_was_deleted(story):
    four(story).consumer(5).delete(1, version=6).receive(5, "2=12 3=13").final(orders=FOUR)


@bad("deleted before it was acknowledged")
def what_a_subscription_needs_is_deleted(story):
    four(story).consumer(5).receive(5, "0=10").take(None, 5, 0, 1, version=6)
    story.delete(2, version=7, kept=True).final(cursors=at(1), orders=FOUR)


@good
def a_subscription_that_came_behind_a_deletion_needed_nothing_of_it(story):
    four(story).delete(2, version=6, kept=True).consumer(7).receive(7, "2=12 3=13")
    story.take(None, 7, 2, 4, version=8).final(cursors=at(0, (2, 4)), created=7, orders=FOUR)


@good
def a_deletion_that_found_nothing_took_nothing_from_a_subscription_that_came_later(story):
    four(story).delete(2, version=6, kept=True).delete(2, version=None, kept=True).consumer(7)
    story.receive(7, "2=12 3=13").take(None, 7, 2, 4, version=8)
    story.final(cursors=at(0, (2, 4)), created=7, orders=FOUR)


@bad("deleted before it was acknowledged")
def what_one_call_alone_asked_for_is_gone_and_it_says_that_it_deleted_nothing(story):
    four(story).consumer(5).delete(2, version=None, kept=True).receive(5, "2=12 3=13")
    story.take(None, 5, 2, 4, version=7).final(cursors=at(0, (2, 4)), created=5, orders=FOUR)


@bad("deleted before it was acknowledged")
def a_subscription_that_came_right_before_a_deletion_needs_what_is_deleted(story):
    four(story).consumer(5).delete(2, version=6, kept=True).receive(5, "2=12 3=13")
    story.take(None, 5, 2, 4, version=7).final(cursors=at(0, (2, 4)), created=5, orders=FOUR)


# --- erased -----------------------------------------------------------------------------------------------------------


@good
def what_was_erased_is_read_before_and_not_after(story):
    four(story).read(4, orders=FOUR).erase(11, upto=4, version=5)
    story.read(5, orders="t1@3 10, t2@4 2=12 13").read(4, 4, orders=FOUR).final(orders=FOUR)


@good
def an_erasure_of_unknown_outcome_may_have_taken_them_or_not(story):
    four(story).erase(11, 12, upto=4, fails=UNKNOWN).read(4, orders=FOUR)
    story.read(5, orders="t1@3 10, t2@4 3=13").final(orders=FOUR)


@good
def a_consumer_passes_over_what_was_erased_and_takes_its_offset_along(story):
    four(story).consumer(5).erase(11, upto=5, version=6).receive(5, "0=10 2=12 3=13")
    story.take(None, 5, 0, 4, version=7).final(cursors=at(4), orders=FOUR)


@good
def a_cursor_may_pass_over_what_was_erased(story):
    four(story).consumer(5).receive(5, "0=10").take(None, 5, 0, 1, version=6)
    story.erase(11, upto=6, version=7).final(cursors=at(2), orders=FOUR)


@bad("erased read")
def a_reader_that_knows_of_an_erasure_shows_what_is_gone(story):
    four(story).erase(11, upto=4, version=5).read(5, orders=FOUR).final(orders=FOUR)


@bad("unseen")
def more_than_was_erased_is_gone(story):
    four(story).erase(12, upto=4, version=5).read(5, orders="t1@3 10 11").final(orders=FOUR)


@bad("skipped poll")
def a_consumer_skips_more_than_was_erased(story):
    four(story).consumer(5).erase(10, upto=5, version=6).receive(5, "2=12 3=13").final(orders=FOUR)


# --- expired ----------------------------------------------------------------------------------------------------------


def expired(start, end, version, age_ms, ttl_ms, *busy):
    return ((start, end, version, age_ms, ttl_ms, busy),)


@good
def a_cursor_passes_over_what_expired(story):
    four(story).consumer(5).delete(None, version=7).receive(5, "2=12 3=13").take(None, 5, 2, 4, version=8)
    story.final(cursors=at(4), expired=expired(0, 2, 6, 1_000, 1_000), orders=FOUR)


@good
def what_expired_comes_again_after_a_seek(story):
    four(story).consumer(5).delete(None, version=7).seek(0, epoch=8).receive(8, "0=10")
    story.final(cursors=at(0), expired=expired(0, 2, 6, 1_000, 1_000), orders=FOUR)


@good
def who_acknowledges_all_up_to_a_message_takes_what_expired_along(story):
    four(story).consumer(5).receive(5, "0=10").delete(None, version=7).receive(5, "3=13")
    story.take(None, 5, 3, 4, cumulative=True, version=8)
    story.final(cursors=at(4), expired=expired(1, 3, 6, 1_000, 1_000), orders=FOUR)


@bad("expired too early")
def a_younger_message_expires(story):
    four(story).delete(None, version=7).final(cursors=at(2), expired=expired(0, 2, 6, 999, 1_000), orders=FOUR)


@bad("expired too early")
def something_expires_of_a_topic_that_does_not_ask_for_it(story):
    four(story).delete(None, version=7).final(cursors=at(2), expired=expired(0, 2, 6, 999, None), orders=FOUR)


@bad("expired while at work")
def a_leased_message_expires(story):
    four(story).delete(None, version=7)
    story.final(cursors=at(2), expired=expired(0, 2, 6, 1_000, 1_000, (1, 2)), orders=FOUR)


@bad("double consume")
def a_transaction_takes_what_expired_before(story):
    four(story).consumer(5).receive(5, "0=10").delete(None, version=7).begin("t3").take("t3", 5, 0, 1).commit("t3", 8)
    story.final(cursors=at(2), expired=expired(0, 2, 6, 1_000, 1_000), orders=FOUR)


@bad("cursor moved back")
def what_expired_is_free_in_the_end(story):
    four(story).delete(None, version=7).final(cursors=at(0), expired=expired(0, 2, 6, 1_000, 1_000), orders=FOUR)


@bad("unseen")
def more_is_acknowledged_than_expired(story):
    four(story).consumer(5).delete(1, version=7)
    story.final(cursors=at(3), expired=expired(0, 2, 6, 1_000, 1_000), orders=FOUR)


@bad("skipped poll")
def a_consumer_skips_more_than_expired(story):
    four(story).consumer(5).delete(0, version=7).receive(5, "3=13")
    story.final(cursors=at(0, (1, 2)), expired=expired(1, 2, 6, 1_000, 1_000), orders=FOUR)


@bad("skipped poll")
def a_consumer_skips_what_nobody_had_let_expire_yet(story):
    four(story).consumer(5).receive(5, "2=12").delete(1, version=7)
    story.final(cursors=at(2), expired=expired(0, 2, 6, 1_000, 1_000), orders=FOUR)
