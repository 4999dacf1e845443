"""Stories of several consumers at once: of Shared and of Failover subscriptions."""

from __future__ import annotations

from tests.sim.story import SUBSCRIPTION, TOPIC, Story, at, bad, good


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


@bad("dead letter")
def a_message_becomes_a_dead_letter_after_it_was_taken(story):
    several(story, most=0).begin("t1").take("t1", 4, 0, 1).commit("t1", 5)
    story.final(orders="x@2 10 11", cursors=at(1), dead=((0, 10, 1, 6),))


@good
def a_dead_letter_of_a_message_that_was_taken_before_a_seek(story):
    several(story, most=0).begin("t1").take("t1", 4, 0, 1).commit("t1", 5).seek(0, 7)
    story.final(orders="x@2 10 11", cursors=at(1), dead=((0, 10, 1, 8),))


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
