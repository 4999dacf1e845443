"""Bugs planted in txnlog/fold, but for subscriptions: transactions, producers, ids, garbage, visibility."""

from __future__ import annotations

from typing import Final

from tests.mutants.mutant import Mutant
from tests.mutants.names import (
    ANSWERS,
    CLIENT_INFO,
    CLIENT_TRANSACTIONS,
    COMMANDS,
    FOLD,
    LIMITS,
    NUMBERS,
    OFFSETS,
    PREPARED,
    PRODUCERS,
    REFUSALS,
    RETENTION,
    SEQUENCES,
    TARGETS,
    TRANSACTIONS,
    TWO_PHASES,
    VACUUM,
    VACUUM_CALL,
    VACUUM_GRACE,
    VACUUM_WRITERS,
    VISIBILITY,
)

MUTANTS: Final = (
    # --- the chain of entries ---------------------------------------------------------------------------------------
    Mutant(
        "hash chain not looked at",
        "txnlog/fold/apply.py",
        "if header.previous != head.digest:",
        "if not header.version and header.previous != head.digest:",
        "an entry of another log, or a swapped one, is folded",
        (FOLD + "an_entry_that_continues_another_log_is_damage",),
    ),
    Mutant(
        "time may go back",
        "txnlog/fold/apply.py",
        "if header.timestamp_ms < head.timestamp_ms:",
        "if header.timestamp_ms < 0:",
        "a timestamp no longer stands for one version, and deadlines jump",
        (FOLD + "log_time_may_stand_still_but_never_goes_back",),
    ),
    Mutant(
        "checkpoint pointer moves back",
        "txnlog/fold/apply.py",
        "return named if known is None else max(known, named)",
        "return named",
        "a client that is behind hides a newer checkpoint from everybody",
        (FOLD + "the_newest_checkpoint_is_the_highest_that_any_header_named",),
    ),
    # --- visibility -------------------------------------------------------------------------------------------------
    Mutant(
        "the future is visible",
        "txnlog/fold/visibility.py",
        "if record.ended_version is None or record.ended_version > version:",
        "if record.ended_version is None:",
        "a snapshot of the past shows what was committed after it",
        (VISIBILITY + "the_past_read_from_the_newest_state_is_what_was_there",),
    ),
    Mutant(
        "aborted rows are visible",
        "txnlog/fold/visibility.py",
        'return "COMMITTED" if record.state == "visible" else "ABORTED"',
        'return "COMMITTED"',
        "a reader sees what was aborted",
        (VISIBILITY + "uncommitted_rows_come_with_their_state_and_without_an_offset",),
    ),
    Mutant(
        "replaced files are read as well",
        "txnlog/fold/visibility.py",
        "return removed is None or removed > version",
        "return True",
        "every compacted row is read twice",
        (TARGETS + "a_replaced_segment_is_visible_up_to_its_replacement",),
    ),
    # --- fencing ----------------------------------------------------------------------------------------------------
    Mutant(
        "no fence",
        "txnlog/fold/producers.py",
        "if record.epoch != epoch:",
        "if epoch is None:",
        "a zombie commits beside its successor",
        (PRODUCERS + "an_old_epoch_is_fenced_at_the_beginning_and_at_a_plain_commit",),
    ),
    Mutant(
        "epoch not asked in the commit",
        "txnlog/fold/transactions.py",
        'if producer is not None and (transaction is None or transaction.state == "OPEN"):',
        'if producer is not None and transaction is not None and transaction.state == "OPEN":',
        "a producer fenced between two tries of its append commits all the same",
        (PRODUCERS + "an_old_epoch_is_fenced_at_the_beginning_and_at_a_plain_commit",),
    ),
    Mutant(
        "open transactions survive their producer",
        "txnlog/fold/producers.py",
        'if transaction.state == "OPEN":',
        'if transaction.state == "DONE":',
        "what a dead process left open hangs on, and its successor does the work again",
        (PRODUCERS + "a_new_producer_aborts_the_open_transactions_of_its_name_and_no_others",),
    ),
    # --- sequences --------------------------------------------------------------------------------------------------
    Mutant(
        "a gap in sequences",
        "txnlog/fold/sequences.py",
        "if sequence != expected:",
        "if sequence < expected:",
        "a lost batch is not noticed",
        (SEQUENCES + "a_gap_or_a_part_of_a_batch_is_refused",),
    ),
    Mutant(
        "a batch counts as one row",
        "txnlog/fold/sequences.py",
        "Sequences(batch.sequence + batch.rows - 1, recent)",
        "Sequences(batch.sequence, recent)",
        "the rest of a batch is taken again",
        (PRODUCERS + "sequences_belong_to_the_name_and_go_on_across_epochs",),
    ),
    # --- outcomes ---------------------------------------------------------------------------------------------------
    Mutant(
        "prepared contents not compared",
        "txnlog/fold/transactions.py",
        'if action.digest not in {"", transaction.digest}:',
        "if action.digest is None:",
        "a token completes something else than was prepared",
        (PREPARED + "a_commit_with_other_contents_is_refused",),
    ),
    # --- numbers and blocks -----------------------------------------------------------------------------------------
    Mutant(
        "a number accepted twice",
        "txnlog/fold/number_blocks.py",
        "if bits & bit:",
        "if not bit:",
        "a late commit of an ended transaction is taken for a new one",
        (NUMBERS + "a_number_is_used_once_by_a_transaction_or_a_segment",),
    ),
    Mutant(
        "closing is no fence",
        "txnlog/fold/number_blocks.py",
        "return block if block is not None and number < block.first + block.count else None",
        "return block",
        "files of a closed block, which were collected, become visible",
        (TARGETS + "a_number_of_a_closed_block_does_not_fall_to_the_block_before",),
    ),
    Mutant(
        "a block closed around an open transaction",
        "txnlog/fold/number_blocks.py",
        "if block.first <= number < end:",
        "if number == end:",
        "vacuum deletes the files of a transaction that still commits",
        (NUMBERS + "a_block_with_a_transaction_that_has_not_ended_cannot_be_closed",),
    ),
    # --- offsets and claims -----------------------------------------------------------------------------------------
    Mutant(
        "a hole after every commit",
        "txnlog/fold/transactions.py",
        "draft.ends.put((topic, partition), base + rows)",
        "draft.ends.put((topic, partition), base + rows + 1)",
        "offsets are not dense: consumers wait for messages that never were",
        (OFFSETS + "offsets_are_dense_and_in_the_order_of_commits",),
    ),
    Mutant(
        "rows of nobody",
        "txnlog/fold/transactions.py",
        "    if share.rows < rows:\n",
        "    if share.rows < rows - 1:\n",
        "rows are visible that no transaction committed",
        (OFFSETS + "a_shared_segment_must_be_claimed_completely",),
    ),
    Mutant(
        "rows claimed twice",
        "txnlog/fold/transactions.py",
        "Unclaimed(topic, offset + share.rows, rows - share.rows)",
        "Unclaimed(topic, offset, rows - share.rows)",
        "two transactions own the same rows",
        (OFFSETS + "commits_claim_a_shared_segment_in_the_order_of_the_lines",),
    ),
    Mutant(
        "shared rows overtake pending ones",
        "txnlog/fold/transactions.py",
        "if place in pending:",
        "if place is pending:",
        "the order in which a transaction produced is turned around",
        (OFFSETS + "shared_rows_cannot_overtake_pending_ones_of_their_transaction",),
    ),
    # --- applications, streams, time --------------------------------------------------------------------------------
    Mutant(
        "the same application version twice",
        "txnlog/fold/transactions.py",
        '    if last is not None:\n        raise InvalidTransactionState(\n            f"{app_id',
        "    if last is not None and app_version < last.app_version:\n        raise InvalidTransactionState(\n"
        '            f"{app_id',
        "a batch that runs twice at once is there twice",
        (TRANSACTIONS + "of_two_with_the_same_version_the_first_wins",),
    ),
    Mutant(
        "the same micro-batch twice",
        "txnlog/fold/transactions.py",
        "if last is not None and batch.batch <= last.batch:",
        "if last is not None and batch.batch < last.batch:",
        "a replayed micro-batch is there twice",
        (TRANSACTIONS + "a_batch_that_is_not_above_the_last_is_refused",),
    ),
    Mutant(
        "timed out without the grace",
        "txnlog/fold/overdue.py",
        "transaction.deadline_ms + EXPIRY_GRACE_MS <= now_ms",
        "transaction.deadline_ms <= now_ms",
        "a client whose clock is a little ahead ends the transactions of others",
        (COMMANDS + "a_transaction_is_overdue_a_grace_after_its_deadline",),
    ),
    Mutant(
        "prepared transactions time out",
        "txnlog/fold/transactions.py",
        'state="PREPARED", deadline_ms=None, digest=action.digest',
        'state="PREPARED", digest=action.digest',
        "what an outside system committed is aborted here",
        (PREPARED + "a_prepared_transaction_has_no_deadline",),
    ),
    # --- decisions from outside -------------------------------------------------------------------------------------
    Mutant(
        "a prepared transaction keeps its deadline",
        "txnlog/fold/transactions.py",
        'state="PREPARED", deadline_ms=None, digest',
        'state="PREPARED", digest',
        "an abort for its timeout is tried with every entry, and refused",
        (TWO_PHASES + "a_prepared_transaction_never_times_out",),
    ),
    # --- collection -------------------------------------------------------------------------------------------------
    Mutant(
        "files deleted by a listing alone",
        "txnlog/fold/garbage.py",
        "return Garbage.UNNAMED if closed else None",
        "return Garbage.UNNAMED",
        "a writer between its data and its entry commits a file that is gone",
        (VACUUM_WRITERS + "a_writer_at_work_is_left_alone",),
    ),
    Mutant(
        "blocks closed at once",
        "txnlog/fold/garbage.py",
        "if now_ms >= _closable_from_ms(block, grace_ms) and",
        "if now_ms >= block.touched_ms and",
        "a writer is refused that was silent for a moment",
        (VACUUM_GRACE + "files_of_a_writer_that_died_wait_for_the_grace_and_can_go_at_the_time_that_is_named",),
    ),
    Mutant(
        "what ended deleted at once",
        "txnlog/fold/garbage.py",
        "if unneeded is None or unneeded > bound:",
        "if unneeded is None:",
        "a version that can be read lacks its files",
        (VACUUM + "replaced_files_go_with_the_versions_that_need_them",),
    ),
    Mutant(
        "a dropped topic's files deleted while a version shows them",
        "txnlog/fold/garbage.py",
        "ends = (removals.get(record.number), dropped) if",
        "ends = (removals.get(record.number), dropped and 0) if",
        "a version that can be read lacks its files",
        (RETENTION + "of_two_dropped_topics_the_later_one_stays_while_the_earlier_one_goes",),
    ),
    # --- docs/guarantees.md, rules ------------------------------------------------------------------------------------
    Mutant(
        "epochs begin anew",
        "txnlog/fold/producers.py",
        "ProducerRecord(name, at.version, kept, action.fenced_by)",
        "ProducerRecord(name, 1 + (old.epoch if old else 0), kept, action.fenced_by)",
        "an epoch is no version: one of a name that was there before comes back, and with it a zombie",
        (PRODUCERS + "epochs_of_a_name_count_the_entries_of_others_in_between",),
    ),
    Mutant(
        "what is pending takes offsets",
        "txnlog/fold/transactions.py",
        "slices = tuple(SegmentSlice(item.partition, item.rows, None, item.sequence) for item in action.slices)",
        "slices = tuple(\n"
        "            SegmentSlice(p.partition, p.rows, (_advance_end(draft, topic.id, p.partition, "
        "p.rows), None)[1], p.sequence)\n"
        "            for p in action.slices\n"
        "        )",
        "an aborted transaction leaves a hole in the offsets",
        (CLIENT_TRANSACTIONS + "an_exception_after_a_flush_aborts_in_the_log",),
    ),
    Mutant(
        "the number comes before the recorded outcome",
        "txnlog/fold/transaction_ends.py",
        "        refuse_ended(draft, number)\n        raise",
        "        raise",
        "who asks for the second time hears that its number was used, not how it ended",
        (TRANSACTIONS + "a_recorded_outcome_comes_before_the_producers_epoch",),
    ),
    Mutant(
        "a bound that lets one more in",
        "txnlog/fold/producers.py",
        "if old is None and len(draft.producers) >= MAX_PRODUCERS:",
        "if len(draft.producers) >= MAX_PRODUCERS:",
        "at the limit no known name can start again: whoever restarts is refused",
        (LIMITS + "one_producer_too_many_is_refused_and_a_known_name_is_not",),
    ),
    # --- docs/guarantees.md, rules about transactions -----------------------------------------------------------------
    Mutant(
        "one end for all of a name",
        "txnlog/fold/transaction_ends.py",
        "left = tuple(number for number in producer.open if number != transaction.number)",
        "left = ()",
        "when one transaction ends, its producer's others are nobody's: no successor aborts them",
        (ANSWERS + "each_of_several_transactions_is_its_producers_until_its_own_end",),
    ),
    Mutant(
        "pending files are garbage",
        "txnlog/fold/garbage.py",
        'if record.state == "visible" else ()',
        'if record.state == "visible" else (record.logged_version,)',
        "a transaction that was open, or prepared, over a vacuum commits files that are gone",
        (VACUUM + "what_open_and_prepared_transactions_logged_stays",),
    ),
    # --- docs/guarantees.md, rules about producing --------------------------------------------------------------------
    Mutant(
        "an abort advances sequences",
        "txnlog/fold/transaction_ends.py",
        "    acknowledgements.settle(draft, number, transaction.held, committed=False)\n",
        "    for s in sequences.pending_segments(draft, transaction):\n"
        "        for p in (item for item in s.slices if item.sequence is not None):\n"
        "            batch = Batch(transaction.producer, s.topic, p.partition, p.sequence, p.rows, 0, "
        "at.version, number)\n"
        "            sequences.note(draft, transaction.producer, batch)\n"
        "    acknowledgements.settle(draft, number, transaction.held, committed=False)\n",
        "rows that were aborted are taken for a repetition when they are sent again: they are lost",
        (SEQUENCES + "an_aborted_transaction_does_not_advance_sequences",),
    ),
    Mutant(
        "files become visible in another order",
        "txnlog/fold/transactions.py",
        "for segment in sequences.pending_segments(draft, transaction):\n            topic =",
        "for segment in reversed(sequences.pending_segments(draft, transaction)):\n            topic =",
        "the order in which a transaction produced is turned around",
        (REFUSALS + "rows_stand_in_the_order_of_calls_and_in_each_call_in_its_own",),
    ),
    # --- what handles say, and what lies in the way -----------------------------------------------------------------
    Mutant(
        "a vacuum reports what the one before it reported",
        "txnlog/fold/garbage.py",
        "and end is not None and oldest < end <= target]",
        "and end is not None and end <= target]",
        "people are asked about files that are gone for long",
        (VACUUM_CALL + "a_later_vacuum_says_only_what_becomes_unreadable_by_it",),
    ),
    # --- who a writer is ---------------------------------------------------------------------------------------------
    Mutant(
        "a writer is compared with its client",
        "txnlog/fold/state.py",
        "        return writer_of(self.writer_text)\n",
        "        return self.writer_text\n",
        "a vacuum foresees that it closes its own block, and nobody brings the commits of a client that has a name",
        (
            CLIENT_INFO + "a_vacuum_knows_its_own_block_by_the_digits",
            "tests/unit/log/test_collector.py::test_a_block_that_says_its_client_is_its_writers",
        ),
    ),
)
