"""Known bugs, each planted in one place: what the tests are worth is that every one of them is caught.

A mutant is a replacement of text that occurs exactly once in its file. The tests that must fail are named by their
pytest ids; they are fast, and fail without chance.
"""

from __future__ import annotations

from dataclasses import dataclass

OFFSETS = "tests/unit/test_apply_offsets.py::test_"
PRODUCERS = "tests/unit/test_apply_producers.py::test_"
PREPARED = "tests/unit/test_apply_prepared.py::test_"
TRANSACTIONS = "tests/unit/test_apply_transactions.py::test_"
FOLD = "tests/unit/test_apply_protocol.py::test_"
ACKNOWLEDGEMENTS = "tests/unit/test_acknowledgements.py::test_"
SUBSCRIPTIONS = "tests/unit/test_apply_subscriptions.py::test_"
NUMBERS = "tests/unit/test_numbers.py::test_"
DECISIONS = "tests/protocol/test_decisions.py::test_"
SEGMENTS = "tests/protocol/test_segments.py::test_"
CHECKPOINTS = "tests/protocol/test_checkpoints.py::test_"
SHARED = "tests/client/test_shared.py::test_"
DEAD_LETTERS = "tests/client/test_dead_letters.py::test_"
TAKEOVER = "tests/client/test_takeover.py::test_"
RACES = "tests/client/test_races.py::test_"
TWO_PHASES = "tests/client/test_prepared.py::test_"
VACUUM = "tests/client/test_vacuum.py::test_"
DOUBT = "tests/client/test_doubt.py::test_"
IN_DOUBT = "tests/crash/test_in_doubt.py::test_"
TARGETS = "tests/mutants/test_targets.py::test_"


@dataclass(frozen=True)
class Mutant:
    """One planted bug.

    Attributes:
        name: what it does.
        file: where, from the root of the project.
        original: text that occurs once in it, as a whole or a part of a line.
        replacement: what stands there instead.
        why: what would go wrong.
        tests: pytest ids; at least one of them must fail, and all pass without the mutant.
    """

    name: str
    file: str
    original: str
    replacement: str
    why: str
    tests: tuple[str, ...]


HARMLESS = Mutant(
    "a change that changes nothing",
    "txnlog/numbers.py",
    "CHUNK: Final = 256",
    "CHUNK: Final = 0x100",
    "nothing: it must survive, or the alarm is broken",
    (NUMBERS + "blocks_follow_each_other",),
)

MUTANTS = (
    # --- the chain of entries ---------------------------------------------------------------------------------------
    Mutant(
        "hash chain not looked at",
        "txnlog/apply.py",
        "if header.previous != head.digest:",
        "if not header.version and header.previous != head.digest:",
        "an entry of another log, or a swapped one, is folded",
        (FOLD + "an_entry_that_continues_another_log_is_damage",),
    ),
    Mutant(
        "time may go back",
        "txnlog/apply.py",
        "if header.timestamp_ms < head.timestamp_ms:",
        "if header.timestamp_ms < 0:",
        "a timestamp no longer stands for one version, and deadlines jump",
        (FOLD + "log_time_may_stand_still_but_never_goes_back",),
    ),
    Mutant(
        "checkpoint pointer moves back",
        "txnlog/apply.py",
        "max(checkpoint, header.checkpoint)",
        "header.checkpoint",
        "a client that is behind hides a newer checkpoint from everybody",
        (FOLD + "the_newest_checkpoint_is_the_highest_that_any_header_named",),
    ),
    # --- visibility -------------------------------------------------------------------------------------------------
    Mutant(
        "the future is visible",
        "txnlog/visibility.py",
        "if record.ended_version is None or record.ended_version > version:",
        "if record.ended_version is None:",
        "a snapshot of the past shows what was committed after it",
        (TARGETS + "a_segment_is_visible_from_its_commit_on",),
    ),
    Mutant(
        "aborted rows are visible",
        "txnlog/visibility.py",
        'return "COMMITTED" if record.state == "visible" else "ABORTED"',
        'return "COMMITTED"',
        "a reader sees what was aborted",
        (TARGETS + "an_aborted_segment_is_never_visible",),
    ),
    Mutant(
        "replaced files are read as well",
        "txnlog/visibility.py",
        "return removed is None or removed > version",
        "return True",
        "every compacted row is read twice",
        (TARGETS + "a_replaced_segment_is_visible_up_to_its_replacement",),
    ),
    # --- fencing ----------------------------------------------------------------------------------------------------
    Mutant(
        "no fence",
        "txnlog/apply_transactions.py",
        "if record.epoch != epoch:",
        "if epoch is None:",
        "a zombie commits beside its successor",
        (PRODUCERS + "an_old_epoch_is_fenced_at_the_beginning_and_at_a_plain_commit",),
    ),
    Mutant(
        "epoch not asked in the commit",
        "txnlog/apply_transactions.py",
        'if producer is not None and (transaction is None or transaction.state == "OPEN"):',
        'if producer is not None and transaction is not None and transaction.state == "OPEN":',
        "a producer fenced between two tries of its append commits all the same",
        (PRODUCERS + "an_old_epoch_is_fenced_at_the_beginning_and_at_a_plain_commit",),
    ),
    Mutant(
        "open transactions survive their producer",
        "txnlog/apply_transactions.py",
        'if transaction.state == "OPEN":',
        'if transaction.state == "DONE":',
        "what a dead process left open hangs on, and its successor does the work again",
        (PRODUCERS + "a_new_producer_aborts_the_open_transactions_of_its_name_and_no_others",),
    ),
    Mutant(
        "old consumers acknowledge",
        "txnlog/acknowledgements.py",
        "if epoch != record.epoch:",
        "if epoch > record.epoch:",
        "two consumers of an exclusive subscription take the same messages",
        (SUBSCRIPTIONS + "opening_a_consumer_fences_the_one_before",),
    ),
    # --- sequences --------------------------------------------------------------------------------------------------
    Mutant(
        "a gap in sequences",
        "txnlog/sequences.py",
        "if sequence != expected:",
        "if sequence < expected:",
        "a lost batch is not noticed",
        (PRODUCERS + "a_sequence_that_does_not_follow_is_refused",),
    ),
    Mutant(
        "a batch counts as one row",
        "txnlog/sequences.py",
        "Sequences(batch.sequence + batch.rows - 1, recent)",
        "Sequences(batch.sequence, recent)",
        "the rest of a batch is taken again",
        (PRODUCERS + "sequences_go_on_without_a_gap",),
    ),
    Mutant(
        "a repeated batch is not known",
        "txnlog/commands.py",
        "repeated.append(known is not None and last <= known.last)",
        "repeated.append(known is not None and last < known.last)",
        "a producer that repeats its last batch gets an error instead of its offsets",
        (DECISIONS + "a_batch_that_became_visible_before_is_a_duplicate",),
    ),
    # --- outcomes ---------------------------------------------------------------------------------------------------
    Mutant(
        "any recorded outcome is success",
        "txnlog/commands.py",
        "return Answer(self.repeated(outcome, _epoch(draft, opening.producer)), settled=True)",
        "return Answer(outcome, settled=True)",
        "commit() of an aborted transaction reports success",
        (DECISIONS + "a_commit_with_other_contents_is_no_repetition",),
    ),
    Mutant(
        "digest of the commit not compared",
        "txnlog/commands.py",
        "if outcome.digest and outcome.digest != self.digest:",
        "if outcome.digest is None:",
        "a forked process gets its twin's success for other rows",
        (DECISIONS + "a_commit_with_other_contents_is_no_repetition",),
    ),
    Mutant(
        "prepared contents not compared",
        "txnlog/apply_transactions.py",
        'if action.digest not in {"", transaction.digest}:',
        "if action.digest is None:",
        "a token completes something else than was prepared",
        (PREPARED + "a_commit_with_other_contents_is_refused",),
    ),
    # --- appending --------------------------------------------------------------------------------------------------
    Mutant(
        "not found taken for failed",
        "txnlog/appender.py",
        "            except ObjectNotFound:\n                pass\n",
        "            except ObjectNotFound:\n"
        "                self._in_doubt = None\n"
        '                raise StoreError("not there", durable=Durable.NOTHING) from None\n',
        "a delayed put lands after the caller was told that nothing was written",
        (DOUBT + "a_commit_survives_one_bad_answer",),
    ),
    Mutant(
        "any answer taken for created",
        "txnlog/appender.py",
        "if self._store.create(key, entry.data) is Created.CREATED:",
        "if self._store.create(key, entry.data):",
        "whoever loses a race reports success",
        (RACES + "a_lost_race_is_decided_again_and_committed_behind_the_winner",),
    ),
    Mutant(
        "the winner taken for ourselves",
        "txnlog/appender.py",
        "if winner != made.data:",
        "if not winner:",
        "whoever loses a race reports success, and folds what is not there",
        (RACES + "a_lost_race_is_decided_again_and_committed_behind_the_winner",),
    ),
    Mutant(
        "doubt forgotten",
        "txnlog/appender.py",
        "        self._in_doubt = entry\n",
        "        self._in_doubt = None\n",
        "the next entry overtakes one that may still land",
        (DOUBT + "nothing_else_is_sent_while_an_entry_is_in_doubt",),
    ),
    Mutant(
        "told before it is on disk",
        "txnlog/appender.py",
        "self._store.sync(key)  #",
        "#",
        "a power cut takes back what was reported",
        (IN_DOUBT + "an_entry_that_may_not_survive_a_power_cut_is_in_doubt",),
    ),
    Mutant(
        "refused by an old state",
        "txnlog/entry_builder.py",
        "if not self.refreshed and any(not settled for _, _, settled in verdicts):",
        "if self.refreshed and any(not settled for _, _, settled in verdicts):",
        "a client that is behind says no where the log says yes",
        (RACES + "a_stale_client_does_not_skip_what_was_forgotten",),
    ),
    Mutant(
        "shared file keeps the rows of who fell out",
        "txnlog/entry_builder.py",
        "return self._waved == self._with_rows() and all(",
        "return bool(self._waved) and all(",
        "rows of a refused transaction get offsets, or the entry is damage",
        (RACES + "shared_rows_are_written_again_without_the_one_that_lost_its_topic",),
    ),
    Mutant(
        "a flush in doubt brings its files again",
        "txnlog/commands.py",
        "if draft.segments.get(item.segment) is None and not _dropped(draft, item.topic)]",
        "if not _dropped(draft, item.topic)]",
        "a transaction whose flush lost its answer cannot be committed",
        (IN_DOUBT + "a_commit_after_a_flush_in_doubt_brings_every_row_once",),
    ),
    Mutant(
        "exists taken for created",
        "txnlog/store/local.py",
        "            except FileExistsError:\n                return Created.UNKNOWN\n",
        "            except FileExistsError:\n                return Created.CREATED\n",
        "two clients both own one version of the log",
        ("tests/stores/test_conformance.py::test_a_second_create_is_unknown_and_changes_nothing[local]",),
    ),
    # --- numbers and blocks -----------------------------------------------------------------------------------------
    Mutant(
        "a number accepted twice",
        "txnlog/numbers.py",
        "if bits & bit:",
        "if not bit:",
        "a late commit of an ended transaction is taken for a new one",
        (NUMBERS + "a_number_is_used_once_by_a_transaction_or_a_segment",),
    ),
    Mutant(
        "closing is no fence",
        "txnlog/numbers.py",
        "return block if block is not None and number < block.first + block.count else None",
        "return block",
        "files of a closed block, which were collected, become visible",
        (TARGETS + "a_number_of_a_closed_block_does_not_fall_to_the_block_before",),
    ),
    Mutant(
        "a block closed around an open transaction",
        "txnlog/numbers.py",
        "if block.first <= number < end:",
        "if number == end:",
        "vacuum deletes the files of a transaction that still commits",
        (NUMBERS + "a_block_with_a_transaction_that_has_not_ended_cannot_be_closed",),
    ),
    # --- offsets and claims -----------------------------------------------------------------------------------------
    Mutant(
        "a hole after every commit",
        "txnlog/apply_transactions.py",
        "draft.ends.put((topic, partition), base + rows)",
        "draft.ends.put((topic, partition), base + rows + 1)",
        "offsets are not dense: consumers wait for messages that never were",
        (OFFSETS + "offsets_are_dense_and_in_the_order_of_commits",),
    ),
    Mutant(
        "rows of nobody",
        "txnlog/apply_transactions.py",
        "if left.rows:",
        "if left.rows > 1:",
        "rows are visible that no transaction committed",
        (OFFSETS + "a_shared_segment_must_be_claimed_completely",),
    ),
    Mutant(
        "rows claimed twice",
        "txnlog/apply_transactions.py",
        "Claim(topic, offset + share.rows, rows - share.rows)",
        "Claim(topic, offset, rows - share.rows)",
        "two transactions own the same rows",
        (OFFSETS + "commits_claim_a_shared_segment_in_the_order_of_the_lines",),
    ),
    Mutant(
        "shared rows overtake pending ones",
        "txnlog/apply_transactions.py",
        "if (topic_id, share.partition) in pending:",
        "if (topic_id, share.partition) is pending:",
        "the order in which a transaction produced is turned around",
        (OFFSETS + "shared_rows_cannot_overtake_pending_ones_of_their_transaction",),
    ),
    # --- acknowledgements -------------------------------------------------------------------------------------------
    Mutant(
        "individual over cumulative",
        "txnlog/acknowledgements.py",
        "if cursor.cumulative is not None and item.ranges[0][0] < cursor.cumulative.end:",
        "if cursor.cumulative is not None and item.ranges[0][0] < 0:",
        "a message is consumed by two transactions",
        (ACKNOWLEDGEMENTS + "individual_ones_below_a_pending_cumulative_end_conflict",),
    ),
    Mutant(
        "cumulative over individual",
        "txnlog/acknowledgements.py",
        "if other.txn != txn and other.ranges[0][0] < end:",
        "if other.txn != txn and other.ranges[0][0] < 0:",
        "a message is consumed by two transactions (as in Pulsar)",
        (ACKNOWLEDGEMENTS + "a_cumulative_one_over_messages_that_another_holds_individually_conflicts",),
    ),
    Mutant(
        "pending messages taken again",
        "txnlog/acknowledgements.py",
        "if ranges.overlaps(item.ranges, other.ranges):",
        "if item.ranges is other.ranges:",
        "a message is consumed by two transactions",
        (ACKNOWLEDGEMENTS + "a_message_pending_in_another_transaction_is_held",),
    ),
    Mutant(
        "an abort acknowledges",
        "txnlog/acknowledgements.py",
        "        if committed:\n",
        "        if committed or mine:\n",
        "messages of an aborted transaction are never delivered again",
        (ACKNOWLEDGEMENTS + "an_abort_makes_messages_available_again",),
    ),
    # --- applications, streams, time --------------------------------------------------------------------------------
    Mutant(
        "the same application version twice",
        "txnlog/apply_transactions.py",
        "if last is not None and app_version <= last.app_version:",
        "if last is not None and app_version < last.app_version:",
        "a batch that runs twice at once is there twice",
        (TRANSACTIONS + "of_two_with_the_same_version_the_first_wins",),
    ),
    Mutant(
        "the same micro-batch twice",
        "txnlog/apply_transactions.py",
        "if last is not None and batch.batch <= last.batch:",
        "if last is not None and batch.batch < last.batch:",
        "a replayed micro-batch is there twice",
        (TRANSACTIONS + "a_batch_that_is_not_above_the_last_is_refused",),
    ),
    Mutant(
        "timed out without the grace",
        "txnlog/commands.py",
        "transaction.deadline_ms + EXPIRY_GRACE_MS <= now_ms",
        "transaction.deadline_ms <= now_ms",
        "a client whose clock is a little ahead ends the transactions of others",
        (DECISIONS + "others_end_a_transaction_when_its_deadline_and_the_grace_are_over",),
    ),
    Mutant(
        "prepared transactions time out",
        "txnlog/apply_transactions.py",
        'state="PREPARED", deadline_ms=None, digest=action.digest',
        'state="PREPARED", digest=action.digest',
        "what an outside system committed is aborted here",
        (PREPARED + "a_prepared_transaction_has_no_deadline",),
    ),
    # --- the client -------------------------------------------------------------------------------------------------
    Mutant(
        "an abort in doubt is not asked for",
        "txnlog/transaction.py",
        "if self._begun or self._in_doubt or self._under_way:",
        "if self._begun or self._under_way:",
        "abort() reports an abort of what the log shows as committed",
        (IN_DOUBT + "an_abort_of_a_commit_in_doubt_tells_its_true_outcome",),
    ),
    Mutant(
        "a flush in doubt leaves no trace",
        "txnlog/transaction.py",
        "begun, self._begun = self._begun, True",
        "begun, self._begun = self._begun, False",
        "an aborted transaction stays open in the log and holds its messages until it times out",
        (IN_DOUBT + "an_abort_after_a_flush_in_doubt_is_in_the_log",),
    ),
    Mutant(
        "rows stay buffered behind a failed write",
        "txnlog/work.py",
        "self.pieces = [piece for piece in self.pieces if piece.topic != topic]",
        "pass",
        "rows whose files were written are written again: they are there twice",
        (IN_DOUBT + "rows_whose_files_were_written_half_way_are_not_written_twice",),
    ),
    Mutant(
        "an outcome in a checkpoint is forgotten",
        "txnlog/follower.py",
        "        if outcome is not None:\n            return outcome\n        for",
        "        return outcome\n        for",
        "after a checkpoint a commit in doubt, repeated, is refused though it was made",
        (IN_DOUBT + "a_commit_that_only_a_checkpoint_remembers_is_answered",),
    ),
    Mutant(
        "pending messages handed out again",
        "txnlog/leases.py",
        "        left = ranges.subtract(left, hold.ranges)\n",
        "        left = ranges.subtract(left, ())\n",
        "a message is processed twice, and its second commit fails",
        (TARGETS + "what_is_pending_is_not_handed_out",),
    ),
    # --- decisions from outside -------------------------------------------------------------------------------------
    Mutant(
        "a prepared transaction keeps its deadline",
        "txnlog/apply_transactions.py",
        'state="PREPARED", deadline_ms=None, digest',
        'state="PREPARED", digest',
        "an abort for its timeout is tried with every entry, and refused",
        (TWO_PHASES + "a_prepared_transaction_never_times_out",),
    ),
    Mutant(
        "a decision can be turned around",
        "txnlog/commands.py",
        'if (outcome.state == "COMMITTED") != self.commit:',
        "if outcome.number != self.txn:",
        "the outside system commits what was aborted here, and hears of success",
        (TWO_PHASES + "a_decision_can_be_repeated_and_not_turned_around",),
    ),
    # --- collection -------------------------------------------------------------------------------------------------
    Mutant(
        "files deleted by a listing alone",
        "txnlog/collection.py",
        "return Garbage.UNNAMED if closed else None",
        "return Garbage.UNNAMED",
        "a writer between its data and its entry commits a file that is gone",
        (VACUUM + "a_writer_at_work_is_left_alone",),
    ),
    Mutant(
        "blocks closed at once",
        "txnlog/collection.py",
        "if now_ms - block.touched_ms < grace_ms + TOUCH_MS:",
        "if now_ms < block.touched_ms:",
        "a writer is refused that was silent for a moment",
        (VACUUM + "a_file_that_no_entry_names_goes_when_its_block_was_silent_for_the_grace",),
    ),
    Mutant(
        "what ended deleted at once",
        "txnlog/collection.py",
        "if ended is None or ended > bound:",
        "if ended is None:",
        "a version that can be read lacks its files",
        (VACUUM + "replaced_files_go_with_the_versions_that_need_them",),
    ),
    Mutant(
        "names looked up in an old fold",
        "txnlog/maintenance/vacuum.py",
        "by_number = {record.number: record for record in records}",
        "by_number = {r.number: r for r in records if r.logged_version < self._plan.version - 2}",
        "a file that was named just before its block was closed is deleted",
        (VACUUM + "a_writer_that_is_faster_than_the_close_keeps_its_file",),
    ),
    Mutant(
        "a vacuum taken for damage",
        "txnlog/follower.py",
        "        self.refresh()\n        unavailable",
        "        unavailable",
        "a reader that was slow is told that data is lost",
        (VACUUM + "a_reader_of_a_version_that_was_vacuumed_is_told_the_range",),
    ),
    Mutant(
        "no life shown",
        "txnlog/number_pool.py",
        "now_ms - block.touched_ms >= RENEW_AFTER_MS",
        "block.touched_ms > now_ms",
        "a writer that is slow but alive loses its numbers, and its commit is refused",
        (VACUUM + "whoever_takes_a_number_after_a_silence_has_time_to_use_it",),
    ),
    Mutant(
        "leases that end are not counted",
        "txnlog/leases.py",
        "Release(record.id, consumer, tuple(found), redeliver=True)",
        "Release(record.id, consumer, tuple(found), redeliver=False)",
        "a message that kills its consumer comes again for ever, and never is a dead letter",
        (SHARED + "messages_of_an_expired_lease_are_granted_again_and_counted_in_the_same_entry",),
    ),
    Mutant(
        "leases of others do not count",
        "txnlog/leases.py",
        "available(cursor, start, end, ranges.subtract(live(cursor, now_ms), stock))",
        "available(cursor, start, end, ())",
        "every consumer does the same work, and all but one in vain",
        (SHARED + "what_one_consumer_has_the_other_is_not_handed",),
    ),
    Mutant(
        "dead letters stay on the subscription",
        "txnlog/dead_letters.py",
        "acknowledgements=(acknowledgement,)",
        "acknowledgements=()",
        "a message is brought to the dead letters again and again",
        (DEAD_LETTERS + "the_letters_and_the_acknowledgement_are_one_transaction",),
    ),
    Mutant(
        "any lease that was seen to end will do",
        "txnlog/takeover.py",
        "keeps_its_place(record) and seen != record.epoch",
        "keeps_its_place(record) and seen is None",
        "of two that saw a lease end the second takes over from the first, whose lease lasts",
        (TAKEOVER + "of_two_that_saw_the_same_lease_end_one_is_busy",),
    ),
    # --- bytes at rest ----------------------------------------------------------------------------------------------
    Mutant(
        "checksum of a segment not verified",
        "txnlog/segment_file.py",
        "if _checksum(view) != checksum:",
        "if not checksum:",
        "damaged bytes are returned as rows",
        (SEGMENTS + "any_flipped_bit_is_found_or_changes_nothing",),
    ),
    Mutant(
        "checksum of a checkpoint not verified",
        "txnlog/checkpoint.py",
        "if len(data) != part.size_bytes or digest_of(data) != part.digest:",
        "if len(data) != part.size_bytes:",
        "a client goes on from a damaged state",
        (CHECKPOINTS + "a_part_that_is_not_what_its_manifest_names_is_damage",),
    ),
    Mutant(
        "checkpoints lose what is pending",
        "txnlog/checkpoint.py",
        'if name == "segments" and value.state != "pending":',
        'if name == "segments":',
        "a transaction that is open over a checkpoint commits without its rows",
        (TARGETS + "a_checkpoint_holds_what_is_pending",),
    ),
    Mutant(
        "trimming takes what is pending",
        "txnlog/checkpoint.py",
        "if record.ended_version is not None and record.ended_version <= version:",
        "if record.ended_version is None or record.ended_version <= version:",
        "a transaction that is open over a checkpoint commits without its rows",
        (TARGETS + "trimming_keeps_what_is_pending",),
    ),
    Mutant(
        "trimming takes too much",
        "txnlog/checkpoint.py",
        "if outcome.version <= version]",
        "if outcome.version <= version + 1]",
        "an outcome is in no checkpoint and not in memory: a commit repeated is not known",
        (TARGETS + "trimming_keeps_what_ended_after_the_checkpoint",),
    ),
)
