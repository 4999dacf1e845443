"""Bugs planted in txnlog/maintenance: optimize and vacuum."""

from __future__ import annotations

from typing import Final

from tests.mutants.mutant import Mutant
from tests.mutants.names import (
    FSCK,
    FSCK_DAMAGE,
    MERGE_PLAN,
    OPTIMIZE,
    OPTIMIZE_MEANWHILE,
    RETENTION,
    VACUUM,
    VACUUM_WRITERS,
    WHAT_A_CALL_WROTE,
)

_ATTACKED: Final = "tests/client/maintenance/test_auto_merger_attacked.py::test_"
_RETENTION: Final = "tests/client/maintenance/test_topic_retention.py::test_"
_DELETE: Final = "tests/client/maintenance/test_delete_records.py::test_"
_OWN_ROWS: Final = "tests/client/maintenance/test_merging_own_rows.py::test_"

MUTANTS: Final = (
    # --- collection -------------------------------------------------------------------------------------------------
    Mutant(
        "a dropped topic's files deleted before the table that names them",
        "txnlog/maintenance/vacuum.py",
        "if garbage.is_over(topic, self._plan.bound):",
        "if garbage.is_over(topic, -1):",
        "a published table names files that are gone",
        (RETENTION + "a_dropped_topic_goes_with_its_published_table",),
    ),
    Mutant(
        "names looked up in an old fold",
        "txnlog/maintenance/vacuum.py",
        "by_number = {record.number: record for record in records}",
        "by_number = {r.number: r for r in records if r.logged_version < self._plan.version - 2}",
        "a file that was named just before its block was closed is deleted",
        (VACUUM_WRITERS + "a_writer_that_is_faster_than_the_close_keeps_its_file",),
    ),
    Mutant(
        "hints of living consumers collected",
        "txnlog/maintenance/vacuum.py",
        "return epoch is None or heartbeat.epoch < epoch",
        "return epoch is None or heartbeat.epoch <= epoch",
        "a vacuum takes the sign of life of a consumer away",
        (VACUUM + "hints_that_are_over_go_and_those_of_consumers_stay",),
    ),
    Mutant(
        "who called maintain is advised to call vacuum",
        "txnlog/maintenance/upkeep.py",
        "@as_part_of(Rest.MAINTAIN)\n",
        "",
        "a vacuum with its own times deletes what the call was to keep",
        (WHAT_A_CALL_WROTE + "who_called_maintain_is_advised_to_call_maintain_again",),
    ),
    # --- optimize -----------------------------------------------------------------------------------------------------
    Mutant(
        "segments are replaced by what was known before",
        "txnlog/maintenance/merge_plan.py",
        "if not all(self._is_there(draft, number) for number in self.removed):",
        "if not self.removed:",
        "of two optimizers the second cannot end",
        (MERGE_PLAN + "what_is_gone_by_now_is_not_replaced_again",),
    ),
    Mutant(
        "what the state was trimmed of counts as visible",
        "txnlog/maintenance/merge_plan.py",
        "draft.segments.get(number) is not None or self.forgotten() <= self.known",
        "draft.segments.get(number) is not None or self.forgotten() >= -1",
        "rows that were merged are merged again, and are there twice",
        (
            MERGE_PLAN + "what_the_fold_has_let_go_of_is_replaced_only_if_it_was_known_to_be_there",
            OPTIMIZE_MEANWHILE + "who_comes_second_plans_again_and_replaces_nothing_twice",
        ),
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
        "txnlog/maintenance/merge_plan.py",
        "if last is not None and last.partition == part.partition and last.offset + last.rows == part.offset:",
        "if last is not None and last.partition == part.partition:",
        "the rows behind the hole get other offsets",
        (MERGE_PLAN + "a_big_file_between_shared_segments_stays_and_cuts_its_partition",),
    ),
    Mutant(
        "whatever is small is merged at once",
        "txnlog/maintenance/merge_plan.py",
        "if biggest * 2 <= sum(weights):",
        "if biggest <= sum(weights):",
        "a topic that grows slowly is written again and again",
        (MERGE_PLAN + "a_row_is_written_again_a_few_times_only",),
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
        (OPTIMIZE_MEANWHILE + "its_blocks_are_kept_open_while_it_works",),
    ),
    # --- merges in the background ------------------------------------------------------------------------------------
    Mutant(
        "all that was merged is merged again with whatever comes",
        "txnlog/maintenance/merge_plan.py",
        "or (record.compacted and record.rows > rows):",
        "or (record.compacted and record.rows < 0):",
        "each row is written again with every sixty-fourth commit",
        (
            "tests/unit/maintenance/test_merge_plan.py::test_the_newest_are_merged_and_what_is_left_is_few_and_was_seldom_written",
        ),
    ),
    Mutant(
        "what cannot be merged is tried with each commit",
        "txnlog/client/auto_merger.py",
        "        topic.came, topic.due_at = 0, self._drawn()\n",
        "        topic.due_at = self._drawn()\n",
        "a topic of many partitions costs a look at all of its segments with every commit",
        ("tests/client/maintenance/test_auto_merger.py::test_many_partitions_in_each_segment_are_left_alone",),
    ),
    Mutant(
        "merged although it is to be by hand",
        "txnlog/client/auto_merger.py",
        'return MERGE.of(self._follower.state.topics[number].properties) == "auto"',
        "return True",
        "files are replaced that somebody else takes care of",
        ("tests/client/maintenance/test_auto_merger.py::test_a_topic_may_have_it_by_hand_only",),
    ),
    Mutant(
        "a late merge believes that it has seen the newest version",
        "txnlog/maintenance/optimizer.py",
        "        self._known = version  # not the newest",
        "        self._known = self._connection.follower.version  # not the newest",
        "rows are there twice, and the log is taken for damaged by whoever begins with entry 0",
        (_ATTACKED + "a_thread_that_starts_late_merges_nothing_twice",),
    ),
    Mutant(
        "small segments of dropped topics are kept in mind",
        "txnlog/client/auto_merger.py",
        "                self._topics.pop(number, None)\n",
        "                pass\n",
        "a writer that makes and drops topics grows for ever",
        (_ATTACKED + "segments_of_dropped_topics_are_not_kept_in_memory",),
    ),
    Mutant(
        "own rows of older columns are merged as they were",
        "txnlog/data/segment_reader.py",
        "return table if table is not None and table.schema.equals(file_schema(schema, segment)) else None",
        "return table",
        "a topic that was altered is merged no more",
        (_OWN_ROWS + "rows_that_were_written_before_the_topic_was_altered_are_merged_with_those_behind",),
    ),
    Mutant(
        "own small segments are read again",
        "txnlog/data/segment_reader.py",
        "        self._written.put(key, table)\n",
        "        pass\n",
        "merging costs whoever commits twice as much of a processor",
        (_OWN_ROWS + "no_file_that_it_committed_is_read_and_every_version_shows_the_same",),
    ),
    # --- retention --------------------------------------------------------------------------------------------------
    Mutant(
        "retention passes a cursor",
        "txnlog/maintenance/retention.py",
        "            found[partition] = min(found[partition], _first_needed(draft, topic.id, item, partition))\n",
        "            found[partition] = max(found[partition], _first_needed(draft, topic.id, item, partition))\n",
        "messages are deleted that a subscription has not received",
        (_RETENTION + "what_a_subscription_has_not_acknowledged_is_kept_and_listed",),
    ),
    Mutant(
        "messages expire that a consumer has",
        "txnlog/maintenance/retention.py",
        "            left = ranges.subtract(left, live(cursor, now_ms))\n",
        "",
        "whoever works on a message cannot acknowledge it any more",
        (_RETENTION + "messages_that_somebody_works_on_do_not_expire",),
    ),
    Mutant(
        "the age of a merged message is that of the merge",
        "txnlog/maintenance/retention.py",
        "    return end_offsets(connection.follower, topic, version)\n",
        "    found = [r for r in _visible(connection, topic, times.version) if (r.ended_version or 0) <= version]\n"
        "    return {s.partition: (s.offset or 0) + s.rows for r in found for s in r.slices}\n",
        "merging keeps messages alive for ever",
        (_RETENTION + "merged_messages_keep_the_age_of_their_entries",),
    ),
    Mutant(
        "a deletion asks no subscription",
        "txnlog/maintenance/retention.py",
        "None if allow_unacknowledged else _refuse)",
        "None)",
        "whoever deletes by hand takes messages from a subscription without a word",
        (_DELETE + "what_a_subscription_has_not_acknowledged_is_refused_unless_it_is_meant",),
    ),
    Mutant(
        "the newest segment goes as well",
        "txnlog/maintenance/retention.py",
        "    is_enough = False\n",
        "    is_enough = bool(visible) and visible[-1].size_bytes > most_bytes\n",
        "the messages of a big commit are deleted at once",
        (_RETENTION + "the_oldest_segments_beyond_a_size_are_deleted_and_the_newest_stays",),
    ),
    # --- fsck -------------------------------------------------------------------------------------------------------
    Mutant(
        "fsck takes a listing for the truth",
        "txnlog/maintenance/fsck/segments.py",
        "if isinstance(info, ObjectNotFound):",
        "if file:",
        "a listing that is behind, or a file of another size, is reported as a file that is missing",
        (FSCK + "a_listing_that_is_behind_loses_nothing",),
    ),
    Mutant(
        "fsck reports what a vacuum deleted meanwhile",
        "txnlog/maintenance/fsck/segments.py",
        "if later is not None and self._was_vacuumed(file, later):",
        "if later is None:",
        "a check at the same time as a vacuum reports damage where there is none",
        (FSCK + "a_vacuum_leaves_a_clean_namespace_and_one_that_runs_meanwhile_is_no_finding",),
    ),
    Mutant(
        "fsck is silent about what it may not list",
        "txnlog/maintenance/fsck/findings.py",
        'self.add("unchecked", kind, key,',
        'self.add("note", kind, key,',
        "a namespace of which nothing could be checked is called clean",
        (
            FSCK + "what_cannot_be_listed_is_unchecked_and_not_clean",
            FSCK + "what_the_store_does_not_return_is_unchecked_and_not_clean",
        ),
    ),
    Mutant(
        "fsck does not follow the hash chain",
        "txnlog/maintenance/fsck/entries.py",
        "if successor is None or successor.header.previous == one.digest:",
        "if successor is not None or not one.digest:",
        "a changed bit in an entry is blamed on the one behind it",
        (FSCK_DAMAGE + "an_entry_that_is_lost_or_damaged_is_the_one_that_is_named",),
    ),
    Mutant(
        "fsck believes a checkpoint whose digests are right",
        "txnlog/maintenance/fsck/replay.py",
        "if not self._describes_itself(manifest, head.timestamp_ms):",
        "if manifest is None:",
        "a checkpoint that says something else than the entries is called clean",
        (FSCK_DAMAGE + "a_checkpoint_that_says_something_else_than_the_entries_is_damage",),
    ),
    Mutant(
        "fsck does not ask whose rows a merged file holds",
        "txnlog/maintenance/fsck/rows.py",
        'if origins is not None and record.state == "visible":',
        "if origins is None:",
        "messages of a merged file bear the transactions of others, and nobody ever notices",
        (FSCK + "a_merged_file_with_rows_of_others_is_found_by_the_deep_check",),
    ),
    Mutant(
        "fsck looks at one bound of statistics only",
        "txnlog/data/segment_statistics.py",
        "if most_said is not None and (most is None or most > most_said):",
        "if most_said is not None and most is None:",
        "a scan that uses statistics leaves out rows, and the deep check is clean",
        (FSCK + "statistics_that_do_not_hold_are_found_by_the_deep_check",),
    ),
)
