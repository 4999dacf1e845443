"""Stories of backups: what is in them, what comes of a restore, and who may write to that."""

from __future__ import annotations

from tests.sim.story import UNKNOWN, bad, good
from txnlog.errors import CorruptionError, Durable, InvalidInputError, StoreError

NOWHERE = InvalidInputError("the folder has no backup of that version", durable=Durable.NOTHING)
FOUR = "0001a@3 10 11, 0001b@4 12 13"
TWO = "0001a@3 10 11"


def four(story):
    return story.whole("0001a", 3, 10, 11).whole("0001b", 4, 12, 13)


@good
def what_was_there_at_the_version_of_a_backup_is_there_again(story):
    four(story).back_up(3, wanted=3).back_up(4).restore(3).go_on(3, "0002x", orders=TWO)
    story.restore(4, "other").go_on(4, "0003x", "other", orders=FOUR).final(orders=FOUR)


@good
def a_backup_and_a_restore_of_unknown_outcome_are_made_again(story):
    four(story).back_up(4, fails=UNKNOWN).back_up(4).restore(4, fails=UNKNOWN).restore(4).final(orders=FOUR)


@good
def a_backup_that_failed_need_not_be_there(story):
    four(story).back_up(4, fails=StoreError("gone", durable=Durable.MAYBE)).restore(4, fails=NOWHERE).final(orders=FOUR)


@good
def what_was_deleted_by_the_version_of_the_backup_is_not_in_it(story):
    four(story).delete(2, version=5).back_up(5).restore(5).go_on(5, "0002x", orders="0001b@4 2=12 13")
    story.final(orders=FOUR)


@good
def a_restored_namespace_is_used_again_and_again(story):
    four(story).back_up(4).restore(4).go_on(4, "0002x", orders=FOUR).go_on(4, "0002y", orders=FOUR).final(orders=FOUR)


@bad("stale backup")
def a_backup_lacks_what_was_acknowledged_before(story):
    four(story).back_up(3).final(orders=FOUR)


@bad("stale backup")
def a_backup_is_one_of_another_version_than_was_asked_for(story):
    four(story).back_up(4, wanted=3).final(orders=FOUR)


@bad("lost backup")
def a_backup_that_was_made_is_nowhere(story):
    four(story).back_up(4).restore(4, fails=NOWHERE).final(orders=FOUR)


@bad("lost backup")
def a_backup_that_was_made_is_damaged_in_the_end(story):
    four(story).back_up(4).restore(4, fails=UNKNOWN).restore(4, fails=CorruptionError("gone")).final(orders=FOUR)


@bad("torn backup")
def a_part_of_a_transaction_is_restored(story):
    story.begin("0001a").produce("0001a", 10).produce("0001a", 20, topic="audit").commit("0001a", 3).back_up(3)
    story.restore(3).go_on(3, "0002x", orders="0001a@3 10").final(orders="0001a@3 10", audit="0001a@3 20")


@bad("torn backup")
def what_came_after_the_version_is_restored(story):
    four(story).back_up(3, wanted=3).restore(3).go_on(3, "0002x", orders=FOUR).final(orders=FOUR)


@bad("torn backup", "incomplete backup")
def something_else_is_restored(story):
    four(story).back_up(4).restore(4).go_on(4, "0002x", orders="0001a@3 10 11, 0001c@4 12 14").final(orders=FOUR)


@bad("incomplete backup")
def a_transaction_is_not_restored(story):
    four(story).back_up(4).restore(4).go_on(4, "0002x", orders=TWO).final(orders=FOUR)


@bad("shared identity")
def a_restored_namespace_gives_the_txn_ids_of_the_original(story):
    four(story).back_up(4).restore(4).go_on(4, "0001c", orders=FOUR).final(orders=FOUR)


@bad("shared identity")
def two_restored_namespaces_give_the_same_txn_ids(story):
    four(story).back_up(4).restore(4).restore(4, "other").go_on(4, "0002x", orders=FOUR)
    story.go_on(4, "0002y", "other", orders=FOUR).final(orders=FOUR)
