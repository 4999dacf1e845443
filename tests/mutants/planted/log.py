"""Bugs planted in txnlog/log, but for the appender: commands, checkpoints, readers and followers."""

from __future__ import annotations

from typing import Final

from tests.mutants.mutant import Mutant
from tests.mutants.names import (
    ADOPTION,
    ANSWERS,
    CHECKPOINTS,
    CLIENT_SUBSCRIPTIONS,
    COMMANDS,
    DAMAGE,
    DAMAGED_CHECKPOINTS,
    GROUP_COMMIT,
    LOST_ANSWERS,
    MADE_AGAIN,
    READING,
    SEQUENCES,
    TARGETS,
    TRANSACTION_BATCHES,
    TRANSACTION_ENDS,
    TWO_PHASES,
    VACUUM,
)

MUTANTS: Final = (
    # --- sequences --------------------------------------------------------------------------------------------------
    Mutant(
        "a repeated batch is not known",
        "txnlog/log/transaction_commands.py",
        "repeated.append(known is not None and last <= known.last)",
        "repeated.append(known is not None and last < known.last)",
        "a producer that repeats its last batch gets an error instead of its offsets",
        (COMMANDS + "a_sequenced_batch_is_new_a_repetition_or_a_part",),
    ),
    # --- outcomes ---------------------------------------------------------------------------------------------------
    Mutant(
        "any recorded outcome is success",
        "txnlog/log/transaction_commands.py",
        "return Answer(self.repeated(outcome, _epoch(draft, opening.producer)), settled=True)",
        "return Answer(outcome, settled=True)",
        "commit() of an aborted transaction reports success",
        (COMMANDS + "a_commit_with_other_contents_is_no_repetition",),
    ),
    Mutant(
        "digest of the commit not compared",
        "txnlog/log/transaction_commands.py",
        "if outcome.digest and outcome.digest != self.digest:",
        "if outcome.digest is None:",
        "a forked process gets its twin's success for other rows",
        (COMMANDS + "a_commit_with_other_contents_is_no_repetition",),
    ),
    # --- appending --------------------------------------------------------------------------------------------------
    Mutant(
        "a flush in doubt brings its files again",
        "txnlog/log/transaction_commands.py",
        "if draft.segments.get(item.segment) is None and not _is_dropped(draft, item.topic)",
        "if not _is_dropped(draft, item.topic)",
        "a transaction whose flush lost its answer cannot be committed",
        (LOST_ANSWERS + "a_commit_after_a_flush_of_unknown_outcome_brings_every_row_once",),
    ),
    Mutant(
        "rows that an entry drops get offsets in it",
        "txnlog/log/transaction_commands.py",
        "if (self.plain or piece.topic in shared) and _is_dropped(draft, piece.topic):",
        "if self.plain and _is_dropped(draft, piece.topic):",
        "a commit is told offsets of rows that no version shows, and not that their topic was dropped",
        (GROUP_COMMIT + "a_topic_that_is_dropped_by_the_entry_of_the_commit_is_left_out_and_named",),
    ),
    Mutant(
        "the slot behind the tail is not looked at",
        "txnlog/log/log_reader.py",
        "if self.get(tail + 2) is not None:",
        "if self.get(tail + 1) is not None:",
        "an entry that the store lost is taken for the end of the log, and written over",
        (
            "tests/client/maintenance/test_damage.py::test_a_missing_entry_is_damage_wherever_the_search_for_the_tail_meets_it",
        ),
    ),
    Mutant(
        "a repetition is reported without a look",
        "txnlog/log/transaction_commands.py",
        "return Answer(Duplicate(opening.producer, tuple(self.pieces)))",
        "return Answer(Duplicate(opening.producer, tuple(self.pieces)), settled=True)",
        "the first batch of a topic that was made again is lost, and its producer told that it is there",
        (MADE_AGAIN + "a_first_batch_of_a_topic_made_again_is_no_repetition",),
    ),
    Mutant(
        "rows for a topic that was made again are left out",
        "txnlog/log/transaction_commands.py",
        "if topic is not None and topic.dropped and topic_named(draft, topic.name) is not None:",
        "if topic is None:",
        "a block ends well, and its rows are in neither topic: it began when the second one was there",
        (MADE_AGAIN + "rows_that_may_be_meant_for_a_topic_made_again_are_not_left_out",),
    ),
    # --- the client -------------------------------------------------------------------------------------------------
    Mutant(
        "an outcome in a checkpoint is forgotten",
        "txnlog/log/follower.py",
        "        if outcome is not None:\n            return outcome, False\n        for",
        "        return outcome, False\n        for",
        "after a checkpoint a commit in doubt, repeated, is refused though it was made",
        (LOST_ANSWERS + "a_commit_that_only_a_checkpoint_remembers_is_answered",),
    ),
    # --- decisions from outside -------------------------------------------------------------------------------------
    Mutant(
        "a decision can be turned around",
        "txnlog/log/transaction_commands.py",
        'if (outcome.state == "COMMITTED") != self.commit:',
        "if outcome.number != self.txn:",
        "the outside system commits what was aborted here, and hears of success",
        (TWO_PHASES + "a_decision_can_be_repeated_and_not_turned_around",),
    ),
    # --- collection -------------------------------------------------------------------------------------------------
    Mutant(
        "a vacuum counts as damage",
        "txnlog/log/follower.py",
        "        self.refresh()\n        unavailable",
        "        unavailable",
        "a reader that was slow is told that data is lost",
        (VACUUM + "a_reader_of_a_version_that_was_vacuumed_gets_the_range",),
    ),
    # --- bytes at rest ----------------------------------------------------------------------------------------------
    Mutant(
        "checksum of a checkpoint not verified",
        "txnlog/log/checkpoint_codec.py",
        "if len(data) != part.size_bytes or digest_of(data) != part.digest:",
        "if len(data) != part.size_bytes:",
        "a client goes on from a damaged state",
        (CHECKPOINTS + "a_part_that_is_not_what_its_manifest_names_is_damage",),
    ),
    Mutant(
        "checkpoints lose what is pending",
        "txnlog/log/checkpoint_codec.py",
        'if name == "segments" and value.state != "pending":',
        'if name == "segments":',
        "a transaction that is open over a checkpoint commits without its rows",
        (TARGETS + "a_checkpoint_holds_what_is_pending",),
    ),
    Mutant(
        "trimming takes what is pending",
        "txnlog/log/checkpoint_codec.py",
        "if record.ended_version is not None and record.ended_version <= version:",
        "if record.ended_version is None or record.ended_version <= version:",
        "a transaction that is open over a checkpoint commits without its rows",
        (TARGETS + "trimming_keeps_what_is_pending",),
    ),
    Mutant(
        "trimming takes too much",
        "txnlog/log/checkpoint_codec.py",
        "if outcome.version <= version]",
        "if outcome.version <= version + 1]",
        "an outcome is in no checkpoint and not in memory: a commit repeated is not known",
        (TARGETS + "trimming_keeps_what_ended_after_the_checkpoint",),
    ),
    # --- docs/guarantees.md, rules ------------------------------------------------------------------------------------
    Mutant(
        "a forgotten outcome is made up",
        "txnlog/log/transaction_commands.py",
        "            raise forgotten(self.shown(draft))\n        return [Abort(",
        '            return Answer(Outcome(self.txn, "ABORTED", 0, 0, self.reason), settled=True)\n'
        "        return [Abort(",
        "'aborted' is told of a transaction that was committed long ago, and its work is done again",
        (ANSWERS + "an_outcome_that_was_forgotten_is_not_found_and_never_made_up",),
    ),
    Mutant(
        "the loser of a race reports success",
        "txnlog/log/transaction_commands.py",
        '        if outcome.state == "ABORTED":\n            raise ended_error(outcome, self.opening, epoch)',
        '        if outcome.state == "ABORTED" and outcome.reason == "user":\n'
        "            raise ended_error(outcome, self.opening, epoch)",
        "commit() that lost against an administrator's abort says that it committed",
        (TRANSACTION_ENDS + "a_commit_that_races_an_abort_hears_what_the_log_says",),
    ),
    # --- docs/guarantees.md, rules about transactions -----------------------------------------------------------------
    Mutant(
        "a timeout reported as an abort",
        "txnlog/log/transaction_commands.py",
        'if outcome.state == "ABORTED" and outcome.reason == "timeout":',
        'if outcome.state == "ABORTED" and outcome.reason == "timed out":',
        "the owner does not learn that it was too slow",
        (TRANSACTION_ENDS + "a_transaction_that_others_ended_for_its_deadline_says_timed_out",),
    ),
    Mutant(
        "the deadline is not looked at after a lost race",
        "txnlog/log/transaction_commands.py",
        'elif known is None or known.state == "OPEN":',
        'elif known is not None and known.state == "OPEN":',
        "a transaction commits after its deadline: others may have counted on its end",
        (TRANSACTION_ENDS + "a_deadline_that_passes_while_the_commit_races_is_kept",),
    ),
    Mutant(
        "the same version is tried again",
        "txnlog/log/transaction_commands.py",
        "if app is not None:\n            return Skipped(",
        "if app is not None and opening.app_version < app.app_version:\n            return Skipped(",
        "a batch that was committed is refused with an error instead of skipped, for ever",
        (TRANSACTION_BATCHES + "a_batch_that_was_committed_before_is_skipped",),
    ),
    Mutant(
        "a prepared one aborted without force",
        "txnlog/log/transaction_commands.py",
        'if known is not None and known.state == "PREPARED" and not self.force:',
        'if known is not None and known.state == "PREPARED" and self.force:',
        "recovery aborts what an outside system has committed",
        (TWO_PHASES + "an_administrator_needs_force",),
    ),
    Mutant(
        "a dropped subscription blocks the commit",
        "txnlog/log/transaction_commands.py",
        "if draft.subscriptions.get(item.subscription) is not None and not is_held(draft, txn, item)",
        "if not is_held(draft, txn, item)",
        "a transaction that acknowledged on several subscriptions fails because one was dropped",
        (CLIENT_SUBSCRIPTIONS + "a_transaction_goes_on_without_a_subscription_dropped_meanwhile",),
    ),
    Mutant(
        "a repeated answer forgets what was dropped",
        "txnlog/log/checkpoint_codec.py",
        "        dropped_subscriptions=subscriptions,\n",
        "        dropped_subscriptions=(),\n",
        "who asks again believes that its acknowledgements were made",
        (TWO_PHASES + "a_decision_repeated_names_what_was_dropped_before_the_first",),
    ),
    # --- docs/guarantees.md, rules about producing --------------------------------------------------------------------
    Mutant(
        "batches of a checkpoint are not looked for",
        "txnlog/log/follower.py",
        "        for part in reversed(parts):  # the newest first",
        "        for part in parts[:0]:  # the newest first",
        "a producer that repeats an older batch is not told where its rows are",
        (SEQUENCES + "old_batches_are_found_after_a_checkpoint_and_in_a_new_process",),
    ),
    # --- docs/guarantees.md, rules about reading ----------------------------------------------------------------------
    Mutant(
        "the version after a time",
        "txnlog/log/log_reader.py",
        "return None if low < 0 else low\n",
        "return None if low < 0 else min(high, newest)\n",
        "a reader of a time sees what was committed after it",
        (READING + "a_time_is_the_newest_version_at_or_below_it",),
    ),
    Mutant(
        "a version of the future is read",
        "txnlog/log/follower.py",
        "if head.oldest_readable <= version <= head.version:",
        "if head.oldest_readable <= version:",
        "a reader is told that nothing was there, where nothing is known yet",
        (READING + "a_version_that_cannot_be_read_names_the_range",),
    ),
    # --- altered topics -----------------------------------------------------------------------------------------------
    Mutant(
        "the fault that the search for the tail meets is reported",
        "txnlog/log/log_reader.py",
        "                return probe, checkpointed, seen\n",
        "                raise\n",
        "what is wrong with a log depends on how long it is",
        (DAMAGE + "of_two_faults_of_a_log_the_lower_one_is_reported_wherever_the_search_for_the_tail_comes_by",),
    ),
    # --- what handles say, and what lies in the way -----------------------------------------------------------------
    Mutant(
        "an unusable object is warned of each time",
        "txnlog/log/checkpoint_reader.py",
        "if error.key not in self._warned:",
        "if error.key:",
        "the log of a busy process is full of it",
        (DAMAGED_CHECKPOINTS + "one_that_two_threads_meet_at_once_is_warned_of_once",),
    ),
    Mutant(
        "a copy passes by the first entry of its log",
        "txnlog/log/log_identity.py",
        'record.log in ("", self.beginning)',
        'record.log in ("", record.log)',
        "two namespaces give the same TxnIDs",
        (ADOPTION + "a_log_of_another_root_is_distinguished_from_one_with_the_same_name_and_coordinator_id",),
    ),
    Mutant(
        "an unusable checkpoint is used up to the damage",
        "txnlog/log/log_reader.py",
        "            self.checkpoints.exclude(manifest)\n",
        "            break\n",
        "the older checkpoint is not used, and opening reads the whole log",
        (DAMAGED_CHECKPOINTS + "a_lost_or_damaged_checkpoint_closes_nothing",),
    ),
)
