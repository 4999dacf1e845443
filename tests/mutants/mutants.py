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
COMMANDS = "tests/unit/test_commands.py::test_"
ENTRY_BUILDER = "tests/unit/test_entry_builder.py::test_"
SEGMENTS = "tests/protocol/test_segments.py::test_"
CHECKPOINTS = "tests/protocol/test_checkpoints.py::test_"
SHARED = "tests/client/test_shared.py::test_"
DEAD_LETTERS = "tests/client/test_dead_letters.py::test_"
TAKEOVER = "tests/client/test_takeover.py::test_"
RACES = "tests/client/test_races.py::test_"
GROUP_COMMIT = "tests/client/test_group_commit.py::test_"
MADE_AGAIN = "tests/client/test_topics_made_again.py::test_"
FILES = "tests/client/test_files.py::test_"
TWO_PHASES = "tests/client/test_prepared.py::test_"
PREPARE_IN_DOUBT = "tests/client/test_prepare_in_doubt.py::test_"
VACUUM = "tests/client/test_vacuum.py::test_"
DOUBT = "tests/client/test_doubt.py::test_"
DOUBT_OF_TRANSACTIONS = "tests/client/test_doubt_of_transactions.py::test_"
TARGETS = "tests/mutants/test_targets.py::test_"
ANSWERS = "tests/client/test_answers.py::test_"
CLIENT_TRANSACTIONS = "tests/client/test_transactions.py::test_"
FAILED_BLOCKS = "tests/client/test_failed_blocks.py::test_"
TRANSACTION_ENDS = "tests/client/test_transaction_ends.py::test_"
TRANSACTION_BATCHES = "tests/client/test_transaction_batches.py::test_"
PRODUCING = "tests/client/test_producing.py::test_"
ACKNOWLEDGING = "tests/client/test_acknowledging.py::test_"
CLIENT_SUBSCRIPTIONS = "tests/client/test_subscriptions.py::test_"
CUMULATIVE = "tests/client/test_cumulative.py::test_"
INTERRUPTS = "tests/client/test_interrupts.py::test_"
CONSUMING = "tests/client/test_consuming.py::test_"
HOLDS = "tests/client/test_holds.py::test_"
BACKGROUND = "tests/client/test_background.py::test_"
FAILOVER = "tests/client/test_failover.py::test_"
BLOCK_KEEPER = "tests/client/test_block_keeper.py::test_"
OPENING = "tests/client/test_opening.py::test_"
FORKS = "tests/client/test_forks.py::test_"
READING = "tests/client/test_reading.py::test_"
CONSUMER_THREADS = "tests/client/test_consumer_threads.py::test_"
TRANSACT = "tests/client/test_transact.py::test_"
LIMITS = "tests/client/test_limits.py::test_"
VISIBILITY = "tests/protocol/test_visibility.py::test_"
PARTITIONER = "tests/unit/test_partitioner.py::test_"
PROCESSING = "tests/spark/test_processing_model.py::test_"
QUERY_CHECKPOINT = "tests/spark/test_query_checkpoint.py::test_"
REMADE_TOPICS = "tests/spark/test_remade_topics.py::test_"
STREAM_READ = "tests/spark/test_stream_read.py::test_"
EVOLUTION = "tests/unit/test_evolution.py::test_"
ALTER_TOPIC = "tests/client/test_alter_topic.py::test_"
OPTIMIZE = "tests/client/test_optimize.py::test_"
COMPACTION = "tests/unit/test_compaction.py::test_"
ARROW_BATCHES = "tests/spark/test_arrow_batches.py::test_"
ALTERED_TOPICS = "tests/spark/test_altered_topics.py::test_"
PUBLICATION = "tests/catalog/test_publication.py::test_"
DAMAGED_PUBLICATION = "tests/catalog/test_publication_damage.py::test_"
PUBLISHERS = "tests/catalog/test_publication_faults.py::test_"
DELTA_ACTIONS = "tests/catalog/test_delta_actions.py::test_"
SEGMENTS_TABLE = "tests/catalog/test_segments_table.py::test_"


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
        "return named if known is None else max(known, named)",
        "return named",
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
        (VISIBILITY + "the_past_read_from_the_newest_state_is_what_was_there",),
    ),
    Mutant(
        "aborted rows are visible",
        "txnlog/visibility.py",
        'return "COMMITTED" if record.state == "visible" else "ABORTED"',
        'return "COMMITTED"',
        "a reader sees what was aborted",
        (VISIBILITY + "uncommitted_rows_come_with_their_state_and_without_an_offset",),
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
        "txnlog/apply_producers.py",
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
        "txnlog/apply_producers.py",
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
        (PRODUCING + "a_gap_or_a_part_of_a_batch_is_refused",),
    ),
    Mutant(
        "a batch counts as one row",
        "txnlog/sequences.py",
        "Sequences(batch.sequence + batch.rows - 1, recent)",
        "Sequences(batch.sequence, recent)",
        "the rest of a batch is taken again",
        (PRODUCERS + "sequences_belong_to_the_name_and_go_on_across_epochs",),
    ),
    Mutant(
        "a repeated batch is not known",
        "txnlog/transaction_commands.py",
        "repeated.append(known is not None and last <= known.last)",
        "repeated.append(known is not None and last < known.last)",
        "a producer that repeats its last batch gets an error instead of its offsets",
        (COMMANDS + "a_sequenced_batch_is_new_a_repetition_or_a_part",),
    ),
    # --- outcomes ---------------------------------------------------------------------------------------------------
    Mutant(
        "any recorded outcome is success",
        "txnlog/transaction_commands.py",
        "return Answer(self.repeated(outcome, _epoch(draft, opening.producer)), settled=True)",
        "return Answer(outcome, settled=True)",
        "commit() of an aborted transaction reports success",
        (COMMANDS + "a_commit_with_other_contents_is_no_repetition",),
    ),
    Mutant(
        "digest of the commit not compared",
        "txnlog/transaction_commands.py",
        "if outcome.digest and outcome.digest != self.digest:",
        "if outcome.digest is None:",
        "a forked process gets its twin's success for other rows",
        (COMMANDS + "a_commit_with_other_contents_is_no_repetition",),
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
        "txnlog/slots.py",
        "        except ObjectNotFound:\n            pass\n",
        "        except ObjectNotFound:\n"
        '            raise StoreError("not there", durable=Durable.NOTHING) from None\n',
        "a delayed put lands after the caller was told that nothing was written",
        (DOUBT + "a_commit_survives_one_bad_answer",),
    ),
    Mutant(
        "any answer taken for created",
        "txnlog/slots.py",
        "if store.create(key, data) is Created.CREATED:",
        "if store.create(key, data):",
        "whoever loses a race reports success",
        (RACES + "a_lost_race_is_decided_again_and_committed_behind_the_winner",),
    ),
    Mutant(
        "the winner taken for ourselves",
        "txnlog/appender.py",
        "won = found == entry.data",
        "won = bool(found)",
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
        "txnlog/slots.py",
        "store.sync(key)  #",
        "#",
        "a power cut takes back what was reported",
        (DOUBT_OF_TRANSACTIONS + "an_entry_that_may_not_survive_a_power_cut_is_in_doubt",),
    ),
    Mutant(
        "refused by an old state",
        "txnlog/entry_builder.py",
        "if not self.refreshed and (",
        "if self.refreshed and (",
        "a client that is behind says no where the log says yes",
        (RACES + "a_stale_client_does_not_skip_what_was_forgotten",),
    ),
    Mutant(
        "told of what fell out of the entry",
        "txnlog/entry_builder.py",
        "told = (reply, settled) if clean else self._told_by_the_log(reply, draft, header, riders, look)",
        "told = (reply, settled)",
        "a batch is skipped for one that is never committed, and nobody brings it again",
        (
            ENTRY_BUILDER + "a_batch_is_not_skipped_for_one_that_fell_out_of_the_entry",
            BACKGROUND + "a_batch_is_not_skipped_for_one_that_is_not_committed_after_all",
        ),
    ),
    Mutant(
        "whoever is put off is overtaken",
        "txnlog/entry_builder.py",
        "put_off = self._now[place:]  # whoever is behind must not overtake\n                break\n",
        "put_off.append(member)\n                continue\n",
        "a batch is skipped for the one behind it, and lost; rows do not stand in the order of the calls",
        (
            ENTRY_BUILDER + "a_batch_that_waits_for_the_drop_of_its_topic_is_not_overtaken_by_the_next_one",
            GROUP_COMMIT + "a_commit_that_waits_for_the_drop_of_its_topic_is_not_overtaken",
        ),
    ),
    Mutant(
        "told before somebody in front",
        "txnlog/entry_builder.py",
        "if look.resting:",
        "if False:",
        "of two calls of one client the second is told what was true before the first",
        (ENTRY_BUILDER + "nobody_is_told_anything_before_one_in_front_who_rests_on_others",),
    ),
    Mutant(
        "without rows in the segments, without rows at all",
        "txnlog/entry_builder.py",
        "(_supposed if rowless else _decided)(member,",
        "_decided(member,",
        "a commit that rested on one that fell out is refused, or goes on without its rows",
        (ENTRY_BUILDER + "a_batch_is_not_skipped_for_one_that_fell_out_of_the_entry",),
    ),
    Mutant(
        "refused by an entry that ends only some of what is overdue",
        "txnlog/entry_builder.py",
        "told_beside_ends = riders.ending and encoded is None",
        "told_beside_ends = False",
        "a seek is refused for the hundred and first transaction that is over",
        (
            ENTRY_BUILDER + "an_answer_that_rests_on_a_rider_is_given_behind_the_entry",
            ANSWERS + "a_seek_ends_all_that_is_overdue_however_much_it_is",
        ),
    ),
    Mutant(
        "refused beside others without another look",
        "txnlog/entry_builder.py",
        "(look.resting or any(not settled for _, settled in look.answers))",
        "any(not settled for _, settled in look.answers)",
        "a commit behind one that is skipped is refused for a transaction that is over",
        (BACKGROUND + "nobody_is_refused_for_what_is_overdue_in_whatever_company",),
    ),
    Mutant(
        "what the log shows is not told where asking again fails",
        "txnlog/appender.py",
        "        self._tell_settled(attempt)\n",
        "        self._tell(attempt)\n",
        "the owner of a committed transaction hears that nothing was written, and does it again",
        (DOUBT_OF_TRANSACTIONS + "a_commit_that_the_log_shows_is_told_so_whatever_fails",),
    ),
    Mutant(
        "given up in one handle only",
        "txnlog/transaction.py",
        "for connection in self._holders:  # also to other handles, whose",
        "for connection in self._holders[:1]:  # also to other handles, whose",
        "messages of an abort that did not reach the log stay withheld from the handle that received them",
        (FAILED_BLOCKS + "what_was_given_up_withholds_nothing_from_the_handle_that_received_it",),
    ),
    Mutant(
        "what does not fit is led by nobody",
        "txnlog/appender.py",
        "            self._work.set()  # nobody waits in a thread for those of the background\n",
        "",
        "a commit in the background is told nothing until its handle appends something else",
        (BACKGROUND + "a_background_commit_that_does_not_fit_is_led_by_the_worker",),
    ),
    Mutant(
        "a busy writer never looks for what is overdue",
        "txnlog/appender.py",
        "        if made.riders.looked:\n",
        "        if made.riders:\n",
        "as long as one client appends all the time, what dead ones left open stays open",
        (RACES + "who_appends_all_the_time_ends_what_is_overdue_too",),
    ),
    Mutant(
        "refused for what is overdue",
        "txnlog/appender.py",
        "        self._last_expiry_scan_ms = None\n        attempt",
        "        attempt",
        "a seek is refused for a transaction that is over, instead of ending it",
        (ANSWERS + "a_seek_is_not_refused_for_what_an_overdue_transaction_holds",),
    ),
    Mutant(
        "one look ends a hundred, and then no other is taken",
        "txnlog/appender.py",
        "bool(ending), looked and not ending)",
        "bool(ending), looked)",
        "a seek is refused for the hundred and first transaction that is over",
        (ANSWERS + "a_seek_ends_all_that_is_overdue_however_much_it_is",),
    ),
    Mutant(
        "shared file keeps the rows of who fell out",
        "txnlog/entry_builder.py",
        "return self._waved == self._with_rows() and all(",
        "return bool(self._waved) and all(",
        "rows of a refused transaction get offsets, or the entry is damage",
        (GROUP_COMMIT + "shared_rows_are_written_again_without_the_one_that_lost_its_topic",),
    ),
    Mutant(
        "a flush in doubt brings its files again",
        "txnlog/transaction_commands.py",
        "if draft.segments.get(item.segment) is None and not _is_dropped(draft, item.topic)",
        "if not _is_dropped(draft, item.topic)",
        "a transaction whose flush lost its answer cannot be committed",
        (DOUBT_OF_TRANSACTIONS + "a_commit_after_a_flush_in_doubt_brings_every_row_once",),
    ),
    Mutant(
        "rows that an entry drops get offsets in it",
        "txnlog/transaction_commands.py",
        "if (self.plain or piece.topic in shared) and _is_dropped(draft, piece.topic):",
        "if self.plain and _is_dropped(draft, piece.topic):",
        "a commit is told offsets of rows that no version shows, and not that their topic was dropped",
        (GROUP_COMMIT + "a_topic_that_is_dropped_by_the_entry_of_the_commit_is_left_out_and_named",),
    ),
    Mutant(
        "an entry before its segments",
        "txnlog/appender.py",
        """        self._put_wave(attempt)
        version = made.header.version
        numbers = frozenset(number for member in made.sent for number in member.command.txn_ids)
        attempt.sent = made.sent
        try:
            won = self._put_entry(_InDoubt(version, made.data, numbers))
""",
        """        version = made.header.version
        numbers = frozenset(number for member in made.sent for number in member.command.txn_ids)
        attempt.sent = made.sent
        try:
            won = self._put_entry(_InDoubt(version, made.data, numbers))
            self._put_wave(attempt)
""",
        "a reader of the entry finds no file, and after a crash nobody ever does",
        (FILES + "segments_are_on_the_store_before_the_entry_that_names_them",),
    ),
    Mutant(
        "a refusal forgets a prepare in doubt",
        "txnlog/transaction.py",
        "self._in_doubt, self._begun = doubted, begun",
        "self._in_doubt, self._begun = None, begun",
        "what it holds is held for ever: nobody knows that it is PREPARED",
        (PREPARE_IN_DOUBT + "a_refusal_that_says_nothing_of_a_prepare_in_doubt_leaves_it_in_doubt",),
    ),
    Mutant(
        "nothing written, beside a call in doubt",
        "txnlog/transaction.py",
        "if not doubted or error.durable is Durable.MAYBE:",
        "if doubted is not None or error.durable is Durable.MAYBE:",
        "whoever believes it does the work of a committed transaction again",
        (DOUBT_OF_TRANSACTIONS + "a_batch_in_doubt_whose_end_cannot_be_read_stays_in_doubt",),
    ),
    Mutant(
        "the slot behind the tail is not looked at",
        "txnlog/log.py",
        "if self.get(high + 1) is not None:",
        "if self.get(high) is not None:",
        "an entry that the store lost is taken for the end of the log, and written over",
        ("tests/client/test_damage.py::test_a_missing_entry_is_damage_wherever_the_search_for_the_tail_meets_it",),
    ),
    Mutant(
        "the worker leaves while another thread leads",
        "txnlog/appender.py",
        "if self._closed is not None and self._is_through():",
        "if self._closed is not None:",
        "after a close that was interrupted a Future waits for ever",
        (BACKGROUND + "a_commit_that_close_leads_is_told_whatever_ends_close",),
    ),
    Mutant(
        "the clock is looked at once for all entries of an append",
        "txnlog/appender.py",
        "self._check_may_append()  # each time:",
        "pass  # each time:",
        "a clock that jumps while a race is lost ends the transactions of others",
        (
            "tests/client/test_clocks.py::test_a_clock_that_jumps_while_an_append_is_under_way_does_not_drag_the_log_along",
        ),
    ),
    Mutant(
        "a repetition is told without a look",
        "txnlog/transaction_commands.py",
        "return Answer(Duplicate(opening.producer, tuple(self.pieces)))",
        "return Answer(Duplicate(opening.producer, tuple(self.pieces)), settled=True)",
        "the first batch of a topic that was made again is lost, and its producer told that it is there",
        (MADE_AGAIN + "a_first_batch_of_a_topic_made_again_is_no_repetition",),
    ),
    Mutant(
        "rows for a topic that was made again are left out",
        "txnlog/transaction_commands.py",
        "if topic is not None and topic.dropped and topic_named(draft, topic.name) is not None:",
        "if topic is None:",
        "a block ends well, and its rows are in neither topic: it began when the second one was there",
        (MADE_AGAIN + "rows_that_may_be_meant_for_a_topic_made_again_are_not_left_out",),
    ),
    Mutant(
        "a length is taken for rows that stay",
        "txnlog/placement.py",
        "return not all(kind is dict or _is_table(kind) for kind in kinds)",
        'return not hasattr(data, "__len__")',
        "a produce is told that it is committed, and the rows are gone: they were read for the topic of before",
        (
            MADE_AGAIN + "what_is_read_once_is_not_read_again",
            MADE_AGAIN + "rows_that_fitted_the_topic_of_before_come_along",
        ),
    ),
    Mutant(
        "a consumer is bound to the topic of before",
        "txnlog/subscriptions.py",
        "(topic, there) if there is not None else _made(connection, topic.name, subscription, wanted))",
        "(topic, there or _made(connection, topic.name, subscription, wanted)[1]))",
        "it hands out messages of a topic that was dropped, and acknowledges those of the one made again",
        (CLIENT_SUBSCRIPTIONS + "a_consumer_reads_the_topic_that_its_new_subscription_is_of",),
    ),
    Mutant(
        "a flush forgets what it left out",
        "txnlog/work.py",
        "self.staged, self.acknowledged, self._sealed = segments, acknowledgements, sealed",
        "self.staged, self.acknowledged, self._sealed = [], [], 0",
        "an outside system commits by a token that lacks rows, and neither prepare nor complete says so",
        (TWO_PHASES + "what_a_flush_left_out_is_told_by_prepare",),
    ),
    Mutant(
        "exists taken for created",
        "txnlog/store/local.py",
        "                self._refuse_if_no_file(key, folder, name)\n                return Created.UNKNOWN\n",
        "                self._refuse_if_no_file(key, folder, name)\n                return Created.CREATED\n",
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
        "if place in pending:",
        "if place is pending:",
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
        '    if last is not None:\n        raise InvalidTransactionState(\n            f"{app_id',
        "    if last is not None and app_version < last.app_version:\n        raise InvalidTransactionState(\n"
        '            f"{app_id',
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
        "txnlog/expiry.py",
        "transaction.deadline_ms + EXPIRY_GRACE_MS <= now_ms",
        "transaction.deadline_ms <= now_ms",
        "a client whose clock is a little ahead ends the transactions of others",
        (COMMANDS + "a_transaction_is_overdue_a_grace_after_its_deadline",),
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
        (DOUBT_OF_TRANSACTIONS + "an_abort_of_a_commit_in_doubt_tells_its_true_outcome",),
    ),
    Mutant(
        "a flush in doubt leaves no trace",
        "txnlog/transaction.py",
        "begun, self._begun = self._begun, True",
        "begun, self._begun = self._begun, False",
        "an aborted transaction stays open in the log and holds its messages until it times out",
        (DOUBT_OF_TRANSACTIONS + "an_abort_after_a_flush_in_doubt_is_in_the_log",),
    ),
    Mutant(
        "rows stay buffered behind a failed write",
        "txnlog/work.py",
        "self.pieces = left",
        "pass",
        "rows whose files were written are written again: they are there twice",
        (DOUBT_OF_TRANSACTIONS + "rows_whose_files_were_written_half_way_are_not_written_twice",),
    ),
    Mutant(
        "an outcome in a checkpoint is forgotten",
        "txnlog/follower.py",
        "        if outcome is not None:\n            return outcome\n        for",
        "        return outcome\n        for",
        "after a checkpoint a commit in doubt, repeated, is refused though it was made",
        (DOUBT_OF_TRANSACTIONS + "a_commit_that_only_a_checkpoint_remembers_is_answered",),
    ),
    Mutant(
        "pending messages handed out again",
        "txnlog/leases.py",
        "        left = ranges.subtract(left, hold.ranges)\n",
        "        left = ranges.subtract(left, ())\n",
        "a message is processed twice, and its second commit fails",
        (ANSWERS + "giving_back_what_is_acknowledged_or_pending_has_no_effect",),
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
        "txnlog/transaction_commands.py",
        'if (outcome.state == "COMMITTED") != self.commit:',
        "if outcome.number != self.txn:",
        "the outside system commits what was aborted here, and hears of success",
        (TWO_PHASES + "a_decision_can_be_repeated_and_not_turned_around",),
    ),
    # --- collection -------------------------------------------------------------------------------------------------
    Mutant(
        "files deleted by a listing alone",
        "txnlog/garbage.py",
        "return Garbage.UNNAMED if closed else None",
        "return Garbage.UNNAMED",
        "a writer between its data and its entry commits a file that is gone",
        (VACUUM + "a_writer_at_work_is_left_alone",),
    ),
    Mutant(
        "blocks closed at once",
        "txnlog/garbage.py",
        "if now_ms - block.touched_ms < grace_ms + TOUCH_MS:",
        "if now_ms < block.touched_ms:",
        "a writer is refused that was silent for a moment",
        (VACUUM + "a_file_that_no_entry_names_goes_when_its_block_was_silent_for_the_grace",),
    ),
    Mutant(
        "what ended deleted at once",
        "txnlog/garbage.py",
        "if unneeded is None or unneeded > bound:",
        "if unneeded is None:",
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
        (BLOCK_KEEPER + "whoever_takes_a_number_after_a_silence_has_time_to_use_it",),
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
    Mutant(
        "one topic after the other",
        "txnlog/takeover.py",
        "    epochs = take_epochs(connection, check_all_free(connection, records, consumer), consumer)\n",
        "    epochs: dict[int, int] = {}\n"
        "    for item in records:\n"
        "        epochs |= take_epochs(connection, {item.id: check_free(connection, item, consumer)}, consumer)\n",
        "a consumer of several topics that is refused fences the living one of the first",
        (TAKEOVER + "a_consumer_of_several_topics_that_is_refused_fences_nobody_and_creates_nothing[there-busy]",),
    ),
    Mutant(
        "any entry in the slot was ours",
        "txnlog/takeover.py",
        "    own = connection.follower.log.entry(epoch).header.writer == connection.appender.writer\n",
        "    own = True\n",
        "who took over in doubt takes the place of the one that was faster, whose lease lasts",
        (FAILOVER + "an_entry_of_another_in_the_slot_of_a_takeover_in_doubt_is_that_ones_place",),
    ),
    Mutant(
        "hints of living consumers collected",
        "txnlog/maintenance/vacuum.py",
        "return epoch is None or hint.epoch < epoch",
        "return epoch is None or hint.epoch <= epoch",
        "a vacuum takes the sign of life of a consumer away",
        (VACUUM + "hints_that_are_over_go_and_those_of_consumers_stay",),
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
    # --- docs/guarantees.md, rules ------------------------------------------------------------------------------------
    Mutant(
        "a forgotten outcome is made up",
        "txnlog/transaction_commands.py",
        "            raise forgotten(self.shown(draft))\n        return [Abort(",
        '            return Answer(Outcome(self.txn, "ABORTED", 0, 0, self.reason), settled=True)\n'
        "        return [Abort(",
        "'aborted' is told of a transaction that was committed long ago, and its work is done again",
        (ANSWERS + "an_outcome_that_was_forgotten_is_not_found_and_never_made_up",),
    ),
    Mutant(
        "the loser of a race reports success",
        "txnlog/transaction_commands.py",
        '        if outcome.state == "ABORTED":\n            raise ended_error(outcome, self.opening, epoch)',
        '        if outcome.state == "ABORTED" and outcome.reason == "user":\n'
        "            raise ended_error(outcome, self.opening, epoch)",
        "commit() that lost against an administrator's abort says that it committed",
        (TRANSACTION_ENDS + "a_commit_that_races_an_abort_hears_what_the_log_says",),
    ),
    Mutant(
        "epochs begin anew",
        "txnlog/apply_producers.py",
        "ProducerRecord(name, at.version, kept, action.fenced_by)",
        "ProducerRecord(name, 1 + (old.epoch if old else 0), kept, action.fenced_by)",
        "an epoch is no version: one of a name that was there before comes back, and with it a zombie",
        (PRODUCERS + "epochs_of_a_name_count_the_entries_of_others_in_between",),
    ),
    Mutant(
        "the version before the commit is told",
        "txnlog/connection.py",
        "TxnId(session.coordinator, result.number), result.version, offsets,",
        "TxnId(session.coordinator, result.number), result.version - 1, offsets,",
        "who reads at the version that commit() returned does not find what was committed",
        (CLIENT_TRANSACTIONS + "a_block_commits_at_its_end_all_topics_at_once",),
    ),
    Mutant(
        "what is pending takes offsets",
        "txnlog/apply_transactions.py",
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
        "a refused command leaves its traces",
        "txnlog/entry_builder.py",
        "        draft.rollback(mark)\n",
        "",
        "what the log never showed is taken for done by the client that was refused",
        (GROUP_COMMIT + "a_refused_member_leaves_no_trace_in_what_the_client_knows",),
    ),
    Mutant(
        "the number comes before the recorded outcome",
        "txnlog/transaction_end.py",
        "        refuse_ended(draft, number)\n        raise",
        "        raise",
        "who asks for the second time hears that its number was used, not how it ended",
        (TRANSACTIONS + "a_recorded_outcome_comes_before_the_producers_epoch",),
    ),
    Mutant(
        "each client's own clock",
        "txnlog/appender.py",
        "timestamp_ms = max(head.timestamp_ms, self._runtime.now_ms())",
        "timestamp_ms = self._runtime.now_ms()",
        "log time goes back with a clock that is behind: nobody can append after one that is ahead",
        (OPENING + "log_time_never_goes_back",),
    ),
    Mutant(
        "maintenance fails its caller",
        "txnlog/heartbeats.py",
        '        except TxnLogError:\n            _logger.warning("the heartbeat of the consumer %r was not',
        '        except ZeroDivisionError:\n            _logger.warning("the heartbeat of the consumer %r was not',
        "what only helps others fails the call whose entry is in the log",
        (FAILOVER + "a_store_that_fails_with_hints_fails_nobody",),
    ),
    Mutant(
        "any failure poisons",
        "txnlog/transaction.py",
        "            if isinstance(error, AbortableError | FencedError):\n"
        "                self._fail(error)\n            raise\n        self._work",
        "            self._fail(error)\n            raise\n        self._work",
        "a transaction is lost to a failure that was over a second later",
        (ANSWERS + "a_call_that_may_be_tried_again_leaves_the_transaction_as_it_was",),
    ),
    Mutant(
        "a bound that lets one more in",
        "txnlog/apply_producers.py",
        "if old is None and len(draft.producers) >= MAX_PRODUCERS:",
        "if len(draft.producers) >= MAX_PRODUCERS:",
        "at the limit no known name can start again: whoever restarts is refused",
        (LIMITS + "one_producer_too_many_is_refused_and_a_known_name_is_not",),
    ),
    # --- docs/guarantees.md, rules about transactions -----------------------------------------------------------------
    Mutant(
        "abort of a committed one",
        "txnlog/transaction.py",
        '            if self._state == "COMMITTED":\n                raise InvalidTransactionState(\n',
        '            if self._state == "COMMITTED":\n                return\n                str(\n',
        "abort() says fine of what was committed",
        (CLIENT_TRANSACTIONS + "an_abort_after_the_commit_is_refused",),
    ),
    Mutant(
        "a second abort is an error",
        "txnlog/transaction.py",
        "                self._end_holds()  # where Ctrl-C came before that\n                return\n",
        "                raise self._was_aborted()\n",
        "whoever cleans up twice fails the second time",
        (ANSWERS + "an_abort_is_answered_as_often_as_it_is_asked_for",),
    ),
    Mutant(
        "an empty transaction is logged",
        "txnlog/transaction.py",
        "if not self._begun and self._work.empty:",
        "if self._begun and self._work.empty:",
        "every idle round of a pipeline costs an entry",
        (CLIENT_TRANSACTIONS + "an_empty_transaction_ends_without_a_trace",),
    ),
    Mutant(
        "a timeout told as an abort",
        "txnlog/transaction_commands.py",
        'if outcome.state == "ABORTED" and outcome.reason == "timeout":',
        'if outcome.state == "ABORTED" and outcome.reason == "timed out":',
        "the owner does not learn that it was too slow",
        (TRANSACTION_ENDS + "a_transaction_that_others_ended_for_its_deadline_says_timed_out",),
    ),
    Mutant(
        "the deadline is not looked at after a lost race",
        "txnlog/transaction_commands.py",
        'elif known is None or known.state == "OPEN":',
        'elif known is not None and known.state == "OPEN":',
        "a transaction commits after its deadline: others may have counted on its end",
        (TRANSACTION_ENDS + "a_deadline_that_passes_while_the_commit_races_is_kept",),
    ),
    Mutant(
        "the owner is asked about another's epoch",
        "txnlog/connection.py",
        "check_producer(self.follower.state.draft(), producer, epoch)",
        "check_producer(self.follower.state.draft(), producer, self.producer_epoch(producer))",
        "a zombie hears of its fence only when it commits, after all its work",
        (PRODUCING + "a_fenced_producer_hears_of_it_from_the_log",),
    ),
    Mutant(
        "a failed operation is passed over",
        "txnlog/transaction.py",
        "        if self._failed is not None:\n"
        "            failed = self._has_failed(self._failed)\n"
        "            self._give_up(failed)",
        "        if self._failed is not None and self._work.empty:\n"
        "            failed = self._has_failed(self._failed)\n"
        "            self._give_up(failed)",
        "a transaction commits without the acknowledgement that was refused",
        (CLIENT_TRANSACTIONS + "after_a_failed_operation_the_commit_aborts",),
    ),
    Mutant(
        "timeouts above the cap",
        "txnlog/producer.py",
        'timeout_ms = whole_number("timeout_ms", timeout_ms, 1, cap)',
        'timeout_ms = whole_number("timeout_ms", timeout_ms, 1)',
        "a transaction is refused at its first flush instead of its beginning",
        (TRANSACTION_ENDS + "a_timeout_that_makes_no_sense_is_refused_at_begin",),
    ),
    Mutant(
        "whoever waits only waits",
        "txnlog/consumer.py",
        "        self._connection.end_overdue([item.subscription for item in self._subscribed])\n",
        "",
        "a consumer waits for ever for messages that a dead process holds, where nobody appends",
        (ANSWERS + "who_waits_for_messages_of_an_overdue_transaction_appends_its_end",),
    ),
    Mutant(
        "one end for all of a name",
        "txnlog/transaction_end.py",
        "left = tuple(number for number in producer.open if number != transaction.number)",
        "left = ()",
        "when one transaction ends, its producer's others are nobody's: no successor aborts them",
        (ANSWERS + "each_of_several_transactions_is_its_producers_until_its_own_end",),
    ),
    Mutant(
        "the same version is tried again",
        "txnlog/transaction_commands.py",
        "if app is not None:\n            return Skipped(",
        "if app is not None and opening.app_version < app.app_version:\n            return Skipped(",
        "a batch that was committed is refused with an error instead of skipped, for ever",
        (TRANSACTION_BATCHES + "a_batch_that_was_committed_before_is_skipped",),
    ),
    Mutant(
        "a prepared one aborted without force",
        "txnlog/transaction_commands.py",
        'if known is not None and known.state == "PREPARED" and not self.force:',
        'if known is not None and known.state == "PREPARED" and self.force:',
        "recovery aborts what an outside system has committed",
        (TWO_PHASES + "an_administrator_needs_force",),
    ),
    Mutant(
        "a dropped subscription holds up the commit",
        "txnlog/transaction_commands.py",
        "if draft.subscriptions.get(item.subscription) is not None and not is_held(draft, txn, item)",
        "if not is_held(draft, txn, item)",
        "a transaction that acknowledged on several subscriptions fails because one was dropped",
        (CLIENT_SUBSCRIPTIONS + "a_transaction_goes_on_without_a_subscription_dropped_meanwhile",),
    ),
    Mutant(
        "a repeated answer forgets what was dropped",
        "txnlog/checkpoint.py",
        "        dropped_subscriptions=subscriptions,\n",
        "        dropped_subscriptions=(),\n",
        "who asks again believes that its acknowledgements were made",
        (TWO_PHASES + "a_decision_repeated_names_what_was_dropped_before_the_first",),
    ),
    Mutant(
        "pending files are garbage",
        "txnlog/garbage.py",
        'return removals.get(record.number) if record.state == "visible" else None',
        'return removals.get(record.number, record.logged_version if record.state == "pending" else None)',
        "a transaction that was open, or prepared, over a vacuum commits files that are gone",
        (VACUUM + "what_open_and_prepared_transactions_logged_stays",),
    ),
    Mutant(
        "an administrator who leaves no name",
        "txnlog/administration.py",
        'AbortCommand(number, "admin", by, why, force)',
        'AbortCommand(number, "user", by, why, force)',
        "the owner cannot tell its own abort from somebody else's",
        (TRANSACTION_ENDS + "an_administrators_abort_is_told_to_the_owner",),
    ),
    Mutant(
        "one open transaction too many",
        "txnlog/producer.py",
        "    if surplus < 0:\n",
        "    if surplus <= 0:\n",
        "what begin() could have said comes after the work",
        (CLIENT_TRANSACTIONS + "too_many_open_transactions_are_refused",),
    ),
    Mutant(
        "a child goes on with its parent's transaction",
        "txnlog/connection.py",
        "if owner is not self.identity:",
        "if owner is None:",
        "parent and child both commit one number",
        (FORKS + "a_forked_child_is_refused_its_parents_transaction",),
    ),
    # --- docs/guarantees.md, rules about producing --------------------------------------------------------------------
    Mutant(
        "batches of a checkpoint are not looked for",
        "txnlog/follower.py",
        "        for part in reversed(parts):\n            found = checkpoint.batch_in(",
        "        for part in parts[:0]:\n            found = checkpoint.batch_in(",
        "a producer that repeats an older batch is not told where its rows are",
        (PRODUCING + "old_batches_are_found_after_a_checkpoint_and_in_a_new_process",),
    ),
    Mutant(
        "a repeat takes another's offsets",
        "txnlog/connection.py",
        "if offsets is None or piece.sequence + piece.rows > batch.sequence + batch.rows:",
        "if offsets is None:",
        "a repeat over two batches is told offsets of rows that others wrote in between",
        (PRODUCING + "a_repeat_that_spans_two_batches_is_not_given_the_offsets_of_others",),
    ),
    Mutant(
        "an abort advances sequences",
        "txnlog/transaction_end.py",
        "    acknowledgements.settle(draft, number, transaction.held, committed=False)\n",
        "    for s in sequences.pending_segments(draft, transaction):\n"
        "        for p in (item for item in s.slices if item.sequence is not None):\n"
        "            batch = Batch(transaction.producer, s.topic, p.partition, p.sequence, p.rows, 0, "
        "at.version, number)\n"
        "            sequences.note(draft, transaction.producer, batch)\n"
        "    acknowledgements.settle(draft, number, transaction.held, committed=False)\n",
        "rows that were aborted are taken for a repetition when they are sent again: they are lost",
        (PRODUCING + "an_aborted_transaction_does_not_advance_sequences",),
    ),
    Mutant(
        "keys hashed with another seed",
        "txnlog/partitioner.py",
        "SEED: Final = 42",
        "SEED: Final = 43",
        "Spark and Python bring one key to two partitions",
        (PARTITIONER + "hashes_are_those_that_spark_gave",),
    ),
    Mutant(
        "files become visible in another order",
        "txnlog/apply_transactions.py",
        "for segment in sequences.pending_segments(draft, transaction):\n            topic =",
        "for segment in reversed(sequences.pending_segments(draft, transaction)):\n            topic =",
        "the order in which a transaction produced is turned around",
        (CLIENT_TRANSACTIONS + "rows_stay_in_the_order_of_production_however_they_were_written",),
    ),
    # --- docs/guarantees.md, rules about acknowledging ----------------------------------------------------------------
    Mutant(
        "acknowledged above the cursor is no conflict",
        "txnlog/acknowledgements.py",
        "if item.ranges[0][0] < cursor.position or ranges.overlaps(item.ranges, cursor.acknowledged):",
        "if item.ranges[0][0] < cursor.position:",
        "a message is consumed by two transactions, one after the other",
        (SHARED + "an_individual_acknowledgement_of_what_was_taken_is_a_conflict_in_a_transaction",),
    ),
    Mutant(
        "a second acknowledgement taken for a repeated call",
        "txnlog/transaction.py",
        "        self._unanswered = {}\n\n    def _check_recorded",
        "\n    def _check_recorded",
        "a transaction that takes a message twice does not hear of it",
        (SHARED + "the_same_acknowledgement_twice_in_one_transaction_is_a_conflict",),
    ),
    Mutant(
        "conflicts are left to the commit",
        "txnlog/transaction.py",
        "            self._connection.check_conflicts(self._number, wanted)\n",
        "            pass\n",
        "two transactions of one client do the same work, and one in vain",
        (ANSWERS + "a_conflict_is_answered_as_soon_as_the_client_can_know",),
    ),
    Mutant(
        "a cumulative one at the cursor",
        "txnlog/acknowledgements.py",
        "if end <= cursor.position:",
        "if end < cursor.position:",
        "two runs of one batch both commit",
        (ACKNOWLEDGEMENTS + "a_cumulative_one_at_or_below_the_cursor_conflicts",),
    ),
    Mutant(
        "the further cumulative one wins",
        "txnlog/acknowledgements.py",
        "if cursor.cumulative.txn != txn:",
        "if cursor.cumulative.txn > txn:",
        "two transactions process the same messages, and both commit",
        (ACKNOWLEDGEMENTS + "a_second_transactions_cumulative_one_conflicts",),
    ),
    Mutant(
        "a cumulative one is never replaced",
        "txnlog/acknowledgements.py",
        "if end <= cursor.cumulative.end:",
        "if end >= cursor.cumulative.end:",
        "a transaction cannot acknowledge as it goes on",
        (ACKNOWLEDGEMENTS + "a_further_cumulative_one_of_the_same_transaction_replaces_it",),
    ),
    Mutant(
        "only the first subscription is settled",
        "txnlog/acknowledgements.py",
        "for key in dict.fromkeys(held):",
        "for key in held[:1]:",
        "one subscription goes on, and the other holds its messages for ever",
        (ACKNOWLEDGING + "acknowledgements_over_several_subscriptions_are_all_or_nothing",),
    ),
    Mutant(
        "an abort gives nothing back",
        "txnlog/transaction.py",
        "        self._give_back()\n        self._release_holds()\n\n    def _give_back",
        "        self._release_holds()\n\n    def _give_back",
        "messages of an aborted transaction wait for the next restart",
        (ANSWERS + "messages_of_a_transaction_without_effect_come_again_by_themselves",),
    ),
    Mutant(
        "a closed consumer keeps its leases",
        "txnlog/shared_intake.py",
        "            self._release(self._handed_out(), dict(self._stock))\n",
        "            self._release({}, {})\n",
        "a restart waits until its own leases end",
        (SHARED + "a_consumer_that_closes_gives_its_leases_back_but_what_is_pending_stays_pending",),
    ),
    Mutant(
        "one redelivery too few",
        "txnlog/leases.py",
        "        if item.count > most\n",
        "        if item.count >= most\n",
        "a message goes to the dead letters before its last try",
        (DEAD_LETTERS + "a_message_above_the_maximum_goes_to_the_dead_letter_topic",),
    ),
    Mutant(
        "any name is the same name",
        "txnlog/takeover.py",
        "        if holder != name:",
        "        if not holder:",
        "a second job takes over the subscription of the first",
        (TAKEOVER + "same_name_takes_over_under_its_name_only",),
    ),
    Mutant(
        "open transactions survive a takeover",
        "txnlog/apply_subscriptions.py",
        "    _abort_holders(draft, record, at)\n",
        "",
        "the new consumer waits for what the old one holds, until its timeout",
        (TAKEOVER + "a_takeover_aborts_the_open_transactions_of_the_older_consumer",),
    ),
    Mutant(
        "a takeover aborts prepared ones",
        "txnlog/apply_subscriptions.py",
        '        if transaction.state == "OPEN":',
        '        if transaction.state != "DONE":',
        "what an outside system committed is aborted by a restart",
        (SUBSCRIPTIONS + "opening_a_consumer_aborts_open_transactions_that_hold_its_messages_and_keeps_prepared_ones",),
    ),
    Mutant(
        "who waits is handed messages",
        "txnlog/failover_intake.py",
        "return super().receive(most) if self.active else None",
        "return super().receive(most)",
        "two consumers of a failover subscription work at once",
        (FAILOVER + "one_consumer_is_active_and_the_others_receive_nothing",),
    ),
    Mutant(
        "a consumer that closes keeps its place",
        "txnlog/failover_intake.py",
        "            self._connection.heartbeats.end(self.subscription, self.epoch, self._consumer)\n",
        "            pass\n",
        "every restart waits for a lease",
        (FAILOVER + "when_the_active_one_closes_the_next_takes_over_at_once",),
    ),
    Mutant(
        "a cumulative one takes what was given back",
        "txnlog/intake.py",
        "if missing := ranges.intersect(self._ready_in(partition, held), found):",
        "if missing := ranges.intersect((), found):",
        "messages of an aborted transaction are acknowledged, and nothing was derived from them",
        (CUMULATIVE + "it_does_not_take_what_an_aborted_transaction_gave_back",),
    ),
    Mutant(
        "an interrupted receive has received",
        "txnlog/consumer.py",
        "                    found.item.take_back(found.handed)\n",
        "                    pass\n",
        "after Ctrl-C a cumulative acknowledgement takes messages that nobody saw",
        (INTERRUPTS + "a_receive_that_is_interrupted_anywhere_has_received_nothing",),
    ),
    Mutant(
        "every receive begins at the first partition",
        "txnlog/intake.py",
        "in_turn(self._turn, self.topic.partitions)",
        "in_turn(0, self.topic.partitions)",
        "messages of a quiet partition are never received as long as another is busy",
        (CONSUMING + "a_busy_partition_keeps_no_other_from_being_received",),
    ),
    Mutant(
        "letters that cannot be written stop everybody",
        "txnlog/shared_intake.py",
        "        except SchemaMismatch as error:\n",
        "        except ZeroDivisionError as error:\n",
        "a topic that got a column has no Shared consumers any more",
        (DEAD_LETTERS + "letters_for_a_topic_that_lacks_a_column_wait_for_it_and_stop_nobody",),
    ),
    Mutant(
        "what was pending is not looked for again",
        "txnlog/consumer.py",
        "taken.check_delivered()  # after that look",
        "pass  # after that look",
        "an acknowledgement takes what a prepared transaction of an older consumer gave back a moment ago",
        (CUMULATIVE + "it_does_not_take_what_was_passed_over_because_an_older_consumers_transaction_held_it",),
    ),
    Mutant(
        "what fails lets go at once",
        "txnlog/transaction.py",
        "            self._failed = error  # what it took is in its hands until it is aborted\n",
        "            self._failed = error\n            self._release_holds()\n",
        "a cumulative acknowledgement takes what the abort is to give back",
        (CUMULATIVE + "it_does_not_take_what_a_failed_transaction_will_give_back",),
    ),
    Mutant(
        "an end lets go before it gives back",
        "txnlog/transaction.py",
        "        self._give_back()\n        self._release_holds()\n",
        "        self._release_holds()\n        self._give_back()\n",
        "in between, another thread acknowledges what nobody will see again",
        (CUMULATIVE + "it_does_not_take_what_an_abort_is_about_to_give_back",),
    ),
    Mutant(
        "another handle is not told what is held",
        "txnlog/transaction.py",
        "connection.note_holds(self._number, self._work.acknowledgements,",
        "connection.note_holds(self._number, (),",
        "a consumer acknowledges over what a transaction of another handle has in hand",
        (CUMULATIVE + "it_does_not_take_what_a_transaction_of_another_handle_has_in_hand",),
    ),
    Mutant(
        "what was flushed hides the rest",
        "txnlog/holds.py",
        "for part in not_held(draft, number, item):",
        "for part in [item]:",
        "what a transaction acknowledges after a flush is in nobody's way",
        (HOLDS + "what_comes_after_a_flush_is_held_as_well",),
    ),
    Mutant(
        "an end in a checkpoint is none",
        "txnlog/connection.py",
        "return self.session.holds.of(subscription, epoch, self.may_have_ended)",
        "return self.session.holds.of(subscription, epoch, self.follower.state.outcomes.__contains__)",
        "messages of a transaction that ended are held until its deadline, or for ever",
        (HOLDS + "an_end_that_a_checkpoint_took_out_of_memory_is_an_end",),
    ),
    Mutant(
        "two commits of one transaction",
        "txnlog/transaction.py",
        "            if self._under_way is not None:\n                return self._under_way\n",
        "",
        "one is refused, the work is done again, and the other commits",
        (BACKGROUND + "a_commit_beside_one_that_is_under_way_is_that_one",),
    ),
    Mutant(
        "leases by name alone",
        "txnlog/leases.py",
        "return name[: MAX_LABEL_CHARACTERS - len(ending)] + ending",
        "return name[: MAX_LABEL_CHARACTERS - len(ending)]",
        "a consumer releases the leases of another that has its name",
        (SHARED + "who_has_the_name_of_another_has_leases_of_its_own",),
    ),
    Mutant(
        "a seek over pending messages",
        "txnlog/apply_subscriptions.py",
        "if cursor.holds or cursor.cumulative is not None:",
        "if cursor.cumulative is not None:",
        "a transaction commits acknowledgements of a cursor that was moved away under it",
        (CLIENT_SUBSCRIPTIONS + "a_seek_is_refused_while_the_log_shows_pending_acknowledgements",),
    ),
    Mutant(
        "a seek that fences nobody",
        "txnlog/apply_subscriptions.py",
        "draft.subscriptions.put(record.id, msgspec.structs.replace(record, epoch=at.version))",
        "draft.subscriptions.put(record.id, record)",
        "what was received before a seek is acknowledged after it",
        (CLIENT_SUBSCRIPTIONS + "a_seek_moves_the_cursor_and_refuses_what_was_received_before",),
    ),
    Mutant(
        "leases without a bound",
        "txnlog/leases.py",
        "left = min(wanted.most, MAX_LEASED_MESSAGES - leased_by(draft, record.id, count, wanted.consumer, now_ms))",
        "left = min(wanted.most, MAX_LEASED_MESSAGES)",
        "a consumer that is slow takes everything, and then is refused",
        (SHARED + "a_consumer_has_a_bounded_number_of_messages",),
    ),
    Mutant(
        "too few signs of life",
        "txnlog/heartbeats.py",
        "if known == epoch and now_ms - last_ms < lease_ms / 3:",
        "if known == epoch and now_ms - last_ms < lease_ms * 3:",
        "a consumer that works is fenced by one that waits",
        (FAILOVER + "a_consumer_that_shows_signs_of_life_keeps_its_place",),
    ),
    # --- docs/guarantees.md, rules about reading ----------------------------------------------------------------------
    Mutant(
        "pending rows have offsets",
        "txnlog/planner.py",
        'offset = item.offset if state == "COMMITTED" else None',
        "offset = item.offset or 0",
        "a row that is not committed seems to have a place: another row gets it later",
        (VISIBILITY + "uncommitted_rows_come_with_their_state_and_without_an_offset",),
    ),
    Mutant(
        "the version after a time",
        "txnlog/log.py",
        "return None if low < 0 else low\n",
        "return None if low < 0 else min(high, newest)\n",
        "a reader of a time sees what was committed after it",
        (READING + "a_time_is_the_newest_version_at_or_below_it",),
    ),
    Mutant(
        "offsets that are gone are passed over",
        "txnlog/planner.py",
        "if start < low or end > high:",
        "if end > high:",
        "rows that retention took are missing, and the reader is not told",
        (READING + "offsets_that_retention_passed_are_refused_with_what_is_left",),
    ),
    Mutant(
        "aborted files are read as well",
        "txnlog/planner.py",
        '        elif state is not None and isolation_level == "read_uncommitted":',
        "        elif state is not None:",
        "every committed reader pays for what was aborted",
        (READING + "open_and_aborted_rows_cost_a_committed_reader_no_request",),
    ),
    Mutant(
        "a version of the future is read",
        "txnlog/follower.py",
        "if type(version) is int and head.oldest_readable <= version <= head.version:",
        "if type(version) is int and head.oldest_readable <= version:",
        "a reader is told that nothing was there, where nothing is known yet",
        (READING + "a_version_that_cannot_be_read_names_the_range",),
    ),
    Mutant(
        "a block that fails to commit stays open",
        "txnlog/transaction.py",
        "                self.leave(refusal)  # nobody calls commit() again",
        "                pass  # nobody calls commit() again",
        "after a full disk the messages of a block are withheld from everybody until its timeout",
        (FAILED_BLOCKS + "a_block_whose_commit_wrote_nothing_aborts_and_gives_its_messages_back",),
    ),
    Mutant(
        "what committed by itself runs again",
        "txnlog/transact.py",
        "if not (txn.discard() or _aborted(txn)):",
        "if not (txn.discard() or True):",
        "a function that commits, and fails behind that, has its rows there twice",
        (TRANSACT + "a_function_that_ends_its_transaction_and_fails_behind_it_is_not_run_again",),
    ),
    Mutant(
        "a commit is in doubt only when it failed",
        "txnlog/transaction.py",
        '        self._in_doubt = "commit"\n        try:',
        "        try:",
        "after Ctrl-C behind the entry abort() says that nothing was committed",
        (INTERRUPTS + "after_a_commit_that_is_interrupted_anywhere_the_end_that_is_told_is_true",),
    ),
    Mutant(
        "rows are staged before they leave the buffer",
        "txnlog/work.py",
        "                self.staged += written\n                self.pieces = left\n",
        "                self.staged.extend(written)\n                self.pieces = left\n",
        "Ctrl-C between the two has the rows there twice",
        (INTERRUPTS + "an_end_that_is_interrupted_anywhere_and_repeated_doubles_nothing",),
    ),
    Mutant(
        "threads choose messages at once",
        "txnlog/consumer.py",
        "                with self._one_at_a_time:\n",
        "                if self._one_at_a_time:\n",
        "two threads that share a consumer work on the same messages",
        (CONSUMER_THREADS + "threads_that_share_a_consumer_are_handed_each_message_once",),
    ),
    Mutant(
        "a relative root means another folder later",
        "txnlog/connection.py",
        "self.root = absolute(root) if store is None else root",
        "self.root = root",
        "a handle that is sent to another process writes into another log",
        (FORKS + "a_handle_means_the_same_root_when_the_working_directory_is_another",),
    ),
    Mutant(
        "a seek beside a receive",
        "txnlog/consumer.py",
        "        with self._one_at_a_time:  # else what",
        "        if self._one_at_a_time:  # else what",
        "messages that were chosen before the seek count as delivered after it, and never come again",
        (CONSUMER_THREADS + "what_was_chosen_before_a_seek_cannot_be_acknowledged_after_it",),
    ),
    # --- streams of Spark ---------------------------------------------------------------------------------------------
    Mutant(
        "a query is known by its checkpoint alone",
        "spark_ext/stream_commits.py",
        "    if txn_app_id is not None:\n",
        "    if txn_app_id is not None and query is None:\n",
        "a query that was given a new checkpoint writes all its batches again",
        (QUERY_CHECKPOINT + "a_query_is_known_by_its_checkpoint_or_its_app_id",),
    ),
    Mutant(
        "the offsets of a batch are not compared",
        "spark_ext/stream_commits.py",
        '"" if offsets is None else offsets.digest()',
        '""',
        "another batch under the number of a committed one is skipped: its rows are lost",
        (QUERY_CHECKPOINT + "the_same_batch_again_is_skipped_and_another_one_under_its_id_refused",),
    ),
    Mutant(
        "batches of an older checkpoint are skipped",
        "spark_ext/stream_commits.py",
        "batch.batch < last.batch:",
        "batch.batch < 0:",
        "a checkpoint that was restored from a backup passes over rows",
        (QUERY_CHECKPOINT + "an_older_checkpoint_is_refused_and_its_rows_are_not_taken_for_committed",),
    ),
    Mutant(
        "checkpoints of one app are taken for one query",
        "spark_ext/stream_commits.py",
        'parse_label("txnAppId", txn_app_id), query or told)',
        'parse_label("txnAppId", txn_app_id), "")',
        "the batches of a new checkpoint are taken for those of the old one",
        (QUERY_CHECKPOINT + "a_new_checkpoint_under_the_same_app_id_is_refused_naming_both",),
    ),
    Mutant(
        "a stream begins beside its cursor",
        "spark_ext/stream_plan.py",
        "{topic: self._followed(scan, topic)[1] for topic in scan.topics}, epochs=epochs",
        "self._starts(scan), epochs=epochs",
        "messages that were acknowledged are processed again, others never",
        (STREAM_READ + "a_subscription_is_where_a_query_begins_and_what_it_moves_one_batch_late",),
    ),
    Mutant(
        "a batch takes off what it did not read",
        "spark_ext/stream_commits.py",
        "expected=tuple((partition, start) for partition, start, _ in moved),",
        "expected=(),",
        "what somebody else took, or gave back, between planning and commit is counted as processed",
        (QUERY_CHECKPOINT + "a_race_for_the_cursor_is_decided_by_the_log",),
    ),
    Mutant(
        "a run that lost its subscription takes it back",
        "spark_ext/stream_commits.py",
        "lost = named().get(item.subscription)",
        "lost = None",
        "two runs of a query take it from each other, batch by batch",
        (QUERY_CHECKPOINT + "a_newer_run_fences_the_older_one_for_good",),
    ),
    Mutant(
        "a cursor further on is passed over",
        "spark_ext/stream_commits.py",
        "if cursor.position != start:",
        "if cursor.position < start:",
        "the error does not say where the checkpoint is and where the cursor, nor the ways out",
        (QUERY_CHECKPOINT + "a_cursor_elsewhere_is_refused_with_both_places_and_the_ways_out",),
    ),
    Mutant(
        "sources of another namespace of the name",
        "spark_ext/stream_commits.py",
        "if not found.is_of(ns.name, ns.connection.coordinator, log_of(ns.connection)):",
        "if found.namespace != ns.name:",
        "a sink takes off of its own topic what was read of another one",
        (QUERY_CHECKPOINT + "sources_of_other_places_and_subscriptions_are_not_ours",),
    ),
    Mutant(
        "logs are told apart by names and numbers alone",
        "spark_ext/stream_offsets.py",
        " and self.log in (None, log)",
        "",
        "what was read of a namespace's twin moves its own cursor",
        (QUERY_CHECKPOINT + "a_source_in_a_root_that_the_same_script_made_is_not_ours",),
    ),
    Mutant(
        "an offset log of a later version is guessed",
        "spark_ext/query_checkpoint.py",
        'if version == "v1":',
        'if version in ("v1", "v3"):',
        "offsets are read where they are something else",
        (QUERY_CHECKPOINT + "other_formats_are_refused_and_never_guessed",),
    ),
    Mutant(
        "two sources share a subscription",
        "spark_ext/stream_commits.py",
        "if (topic, found.subscription) in seen:",
        "if topic in seen:",
        "each takes off what the other has still to read",
        (QUERY_CHECKPOINT + "two_sources_on_one_subscription_are_refused",),
    ),
    Mutant(
        "a source acknowledges nothing",
        "spark_ext/stream_reader.py",
        "self._plan.acknowledge(end)",
        "self._plan.newest()",
        "the cursor stays, and a new query processes all again",
        (STREAM_READ + "a_subscription_is_where_a_query_begins_and_what_it_moves_one_batch_late",),
    ),
    Mutant(
        "a batch ends within a transaction",
        "spark_ext/batch_ends.py",
        "        while behind < len(steps) and steps",
        "        if behind < len(steps) and steps",
        "half a transaction is processed, and committed, by itself",
        (STREAM_READ + "batches_hold_every_committed_row_once_in_whole_transactions",),
    ),
    Mutant(
        "a source goes on in the topic that has the name now",
        "spark_ext/stream_plan.py",
        "if self._ids.setdefault(topic, now) != now:",
        "if self._ids.setdefault(topic, now) < 0:",
        "a query that begins reads the new topic up to where the old one ended, half a transaction perhaps",
        (REMADE_TOPICS + "a_source_whose_topic_is_made_again_while_its_query_begins_reads_neither",),
    ),
    Mutant(
        "a sink goes on into the topic that has the name now",
        "spark_ext/stream_commits.py",
        "topic_record(record.name, last.version).id != number:",
        "topic_record(record.name, last.version).id < 0:",
        "the rows of earlier batches are missing there, and nobody is told",
        (REMADE_TOPICS + "a_sink_does_not_go_on_into_the_topic_that_has_the_name_now",),
    ),
    Mutant(
        "a batch is committed without the rows of a dropped topic",
        "spark_ext/jobs.py",
        "    if record.dropped:\n",
        "    if record.id < 0:\n",
        "its source is acknowledged, and its rows are nowhere",
        (REMADE_TOPICS + "rows_of_a_batch_that_were_written_for_a_topic_that_is_gone_are_not_passed_over",),
    ),
    # --- altered topics -----------------------------------------------------------------------------------------------
    Mutant(
        "a column that refuses null is added",
        "txnlog/evolution.py",
        "    if not field.nullable:\n",
        "    if not field.name:\n",
        "every older row is damage from then on",
        (EVOLUTION + "a_refusal_names_the_column_and_the_rule",),
    ),
    Mutant(
        "a long becomes a double",
        "txnlog/evolution.py",
        '_EXACT_AS_DOUBLE: Final = frozenset({"byte", "short", "integer", "float"})',
        '_EXACT_AS_DOUBLE: Final = frozenset({"byte", "short", "integer", "long", "float"})',
        "rows that are there cannot be read, or are read as others",
        (EVOLUTION + "a_simple_type_widens_to_those_that_have_all_its_values_and_to_no_other",),
    ),
    Mutant(
        "an older version shows the newest columns",
        "txnlog/snapshot.py",
        "schema=record.schema_at(self.version),",
        "schema=record.schema,",
        "what was read once is read otherwise",
        (ALTER_TOPIC + "rows_that_are_there_have_null_in_a_new_column_and_older_versions_do_not_have_it",),
    ),
    Mutant(
        "dead-letter topics do not follow",
        "txnlog/alteration.py",
        "return [altered, *_followers(draft, record, columns)]",
        "return [altered]",
        "a consumer can neither process a message nor get rid of it",
        (ALTER_TOPIC + "dead_letter_topics_follow_in_the_same_entry_and_theirs_too",),
    ),
    Mutant(
        "a stream goes on with columns that its files do not have any more",
        "spark_ext/scan.py",
        "        _check_readable(namespace, snapshot, topics, columns)\n",
        "        pass\n",
        "files that are whole are taken for damaged",
        (ALTERED_TOPICS + "a_running_stream_whose_column_was_altered_ends_and_is_started_again",),
    ),
    # --- optimize -----------------------------------------------------------------------------------------------------
    Mutant(
        "segments are replaced by what was known before",
        "txnlog/compaction.py",
        "if not all(self._is_there(draft, number) for number in self.removed):",
        "if not self.removed:",
        "of two optimizers the second cannot end",
        (COMPACTION + "what_is_gone_by_now_is_not_replaced_again",),
    ),
    Mutant(
        "what the fold has let go of is taken for visible",
        "txnlog/compaction.py",
        "draft.segments.get(number) is not None or self.forgotten() <= self.known",
        "draft.segments.get(number) is not None or self.forgotten() >= -1",
        "rows that were merged are merged again, and are there twice",
        (
            COMPACTION + "what_the_fold_has_let_go_of_is_replaced_only_if_it_was_known_to_be_there",
            OPTIMIZE + "who_comes_second_plans_again_and_replaces_nothing_twice",
        ),
    ),
    Mutant(
        "merged rows have the version of their merge",
        "txnlog/segment_rows.py",
        'return rows.column("_version") if segment.compacted else _repeat(segment.version, count, pa.int64())',
        "return _repeat(segment.version or segment.number, count, pa.int64())",
        "nobody can say any more by which commit a row came",
        (OPTIMIZE + "many_segments_become_one_and_every_version_shows_the_same_rows",),
    ),
    Mutant(
        "a slice of a shared segment is taken for its first rows",
        "txnlog/maintenance/optimizer.py",
        "table.slice(part.first_row + low - part.offset, high - low)",
        "table.slice(low - part.offset, high - low)",
        "rows of one partition are at the offsets of another",
        (OPTIMIZE + "shared_segments_of_several_partitions_become_one_each",),
    ),
    Mutant(
        "neighbours with a hole between them are merged",
        "txnlog/compaction.py",
        "if last is not None and last.partition == part.partition and last.offset + last.rows == part.offset:",
        "if last is not None and last.partition == part.partition:",
        "the rows behind the hole get other offsets",
        (COMPACTION + "a_big_file_between_shared_segments_stays_and_cuts_its_partition",),
    ),
    Mutant(
        "whatever is small is merged at once",
        "txnlog/compaction.py",
        "if biggest * 2 <= sum(weights):",
        "if biggest <= sum(weights):",
        "a topic that grows slowly is written again and again",
        (COMPACTION + "a_row_is_written_again_a_few_times_only",),
    ),
    Mutant(
        "optimize goes on with what comes meanwhile",
        "txnlog/maintenance/optimizer.py",
        "lambda item: item.number in self._own or (item.ended_version or 0) <= self._begun,",
        "lambda item: True,",
        "beside a writer that is quick enough it never ends",
        (OPTIMIZE + "only_what_was_there_at_the_beginning_is_merged",),
    ),
    Mutant(
        "the blocks of an optimize are not kept open",
        "txnlog/maintenance/optimizer.py",
        "with connection.keep_blocks_alive([txn, *numbers]):",
        "with connection.keep_blocks_alive([]):",
        "vacuum takes its files before the entry names them, and the work is done again",
        (OPTIMIZE + "its_blocks_are_kept_open_while_it_works",),
    ),
    Mutant(
        "a merged segment counts for the age of what is behind",
        "txnlog/subscriptions.py",
        "if not segment.compacted and segment.timestamp_ms is not None",
        "if segment.compacted == any(item.compacted for item in segments) and segment.timestamp_ms is not None",
        "a lag of days is shown as one of minutes, or the reverse",
        (OPTIMIZE + "how_far_behind_a_subscription_is_does_not_change",),
    ),
    # --- spark_ext.process --------------------------------------------------------------------------------------------
    Mutant(
        "a run of process takes no epoch",
        "spark_ext/processing_plan.py",
        "epochs = _take(connection, [record.id for record in by_topic.values()], name)",
        "epochs = {record.id: record.epoch for record in by_topic.values()}",
        "a dead run's flushed batch holds its messages for ever, and two runs work side by side",
        (PROCESSING + "whatever_happens_every_order_takes_effect_once",),
    ),
    Mutant(
        "a batch of process is acknowledged in part",
        "spark_ext/processing_plan.py",
        "tuple(PartitionRanges(p, of) for p, of in wanted.items())",
        "tuple(PartitionRanges(p, of) for p, of in wanted.items() if p == min(wanted))",
        "rows of the other partitions are processed again",
        (PROCESSING + "whatever_happens_every_order_takes_effect_once",),
    ),
    Mutant(
        "what somebody else took off counts as committed",
        "spark_ext/processing_plan.py",
        "if ns.connection.remembers_outcomes_behind(after):",
        "if after < 0:",
        "a Delta table keeps rows that no topic will ever show, and nobody is told",
        ("tests/spark/test_processing_outcomes.py::test_offsets_that_somebody_else_took_are_no_commit",),
    ),
    Mutant(
        "messages on which a handler failed are dropped",
        "spark_ext/processing_run.py",
        "dead_letters.give_up(inner, into, source, messages, reason=reason, redeliveries=item.failures)",
        "dead_letters.target(connection, record)",
        "they are taken off the subscription and are nowhere else",
        (PROCESSING + "whatever_happens_every_order_takes_effect_once",),
    ),
    # --- topics as Delta tables ---------------------------------------------------------------------------------------
    Mutant(
        "merged rows are new to those who stream a published topic",
        "catalog/delta_actions.py",
        "        if not new:\n            found.add(record.number)\n",
        "",
        "a stream reads rows twice",
        (
            PUBLICATION + "what_was_new_and_merged_meanwhile_is_shown_new_first",
            DELTA_ACTIONS + "published_versions_show_what_is_visible",
        ),
    ),
    Mutant(
        "rows that were merged at once are never shown as new",
        "catalog/delta_actions.py",
        " or not fresh.isdisjoint(replaced)",
        "",
        "a stream is stopped, or misses rows",
        (PUBLICATION + "what_was_new_and_merged_meanwhile_is_shown_new_first",),
    ),
    Mutant(
        "a published table goes back behind a vacuum",
        "catalog/delta_actions.py",
        "(item for item in versions if item <= oldest_readable)",
        "(item for item in versions if item < 0)",
        "its versions name files that are gone",
        (PUBLICATION + "what_a_vacuum_made_unreadable_is_never_shown",),
    ),
    Mutant(
        "an upper bound of a time is cut",
        "catalog/delta_statistics.py",
        "if upper and value.microsecond % 1_000:",
        "if upper and value.microsecond > 1_000_000:",
        "files with the newest rows are skipped",
        (DELTA_ACTIONS + "bounds_are_exact_or_left_out",),
    ),
    Mutant(
        "a published version is trusted as it is read",
        "catalog/table_publisher.py",
        "if not same_content(view.commit(wanted), data):",
        "if not data:",
        "a commit that lost a line stays, and its files are never read",
        (DAMAGED_PUBLICATION + "a_damaged_version_is_written_again_as_it_was",),
    ),
    Mutant(
        "a commit of somebody else is passed over",
        "catalog/table_publisher.py",
        "if not stamp.is_of(self._table.identity):",
        "if stamp.fields is not None and not stamp.is_of(self._table.identity):",
        "a foreign commit is overwritten as damaged",
        (DAMAGED_PUBLICATION + "a_commit_of_somebody_else_is_refused",),
    ),
    Mutant(
        "who lost a race to publish goes on as if it had won",
        "catalog/table_publisher.py",
        "            if found == prepared:\n",
        "            if found:\n",
        "its next version begins elsewhere than the one before ends",
        (PUBLISHERS + "two_publishers_who_know_the_table_in_every_interleaving",),
    ),
    Mutant(
        "a publisher goes on behind what it knows without a look",
        "catalog/table_publisher.py",
        "return self._note(self._follow(self._looked_at(self._shown, work), work, ahead=2))",
        "return self._shown",
        "a gap where the newest version was removed, rows in two versions where others made it again",
        (
            PUBLISHERS + "a_newest_version_that_was_removed_comes_back_before_the_next_one",
            PUBLISHERS + "who_knew_a_version_that_others_made_again_goes_on_from_what_is_there",
        ),
    ),
    Mutant(
        "whether a checkpoint is left of the next version is not asked",
        "catalog/table_publisher.py",
        "            if self._was_there(wanted.delta_version, view):",
        "            if not wanted:",
        "rows that readers who begin at the checkpoint never see",
        (PUBLISHERS + "a_version_that_was_removed_beside_its_checkpoint_comes_back_with_one_that_shows_the_same",),
    ),
    Mutant(
        "what a lost version showed is not looked up",
        "catalog/table_publisher.py",
        "if following == version + 1 and max(shown.version, 0) <= limit <= view.newest:",
        "if following == version and max(shown.version, 0) <= limit <= view.newest:",
        "a version that others have read becomes another one",
        (DAMAGED_PUBLICATION + "a_damaged_version_is_written_again_as_it_was",),
    ),
    Mutant(
        "the file of a stretch keeps its first name",
        "catalog/segments_table.py",
        'text = f"{self._table.identity.coordinator}/{last}"',
        'text = f"{self._table.identity.coordinator}/{last // STRETCH}"',
        "the table of segments never grows within a stretch",
        (SEGMENTS_TABLE + "the_table_says_what_the_log_says",),
    ),
    Mutant(
        "a row may be as wide as a batch",
        "spark_ext/arrow_batches.py",
        "    share = limit // rows - ",
        "    share = limit - ",
        "10,000 wide rows are one batch of any size",
        (ARROW_BATCHES + "texts_count_together_by_their_bytes_and_a_null_counts_nothing",),
    ),
)
