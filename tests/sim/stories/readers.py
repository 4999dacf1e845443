"""Stories of readers: how old a read may be, and what two reads may show of one another."""

from __future__ import annotations

from tests.sim.stories.beginnings import received
from tests.sim.story import Story, at, bad, good


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


def crossed(story: Story, *versions: int) -> Story:
    """Two transactions of two clients that write to two topics, and whose commits are under way at once."""
    for txn, value in (("t1", 10), ("t2", 20)):
        story.begin(txn).produce(txn, value).produce(txn, value + 1, topic="audit")
    tokens = [story.recorder.invoke(actor, "commit", txn=txn) for actor, txn in (("a", "t1"), ("b", "t2"))]
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
