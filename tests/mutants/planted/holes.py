"""Bugs planted in what deals with holes: reading them, key compaction, erasure."""

from __future__ import annotations

from typing import Final

from tests.mutants.mutant import Mutant

_CONSUMING: Final = "tests/client/consuming/test_holes.py::test_"
_COMPACT: Final = "tests/client/maintenance/test_compact.py::test_"
_MEANWHILE: Final = "tests/client/maintenance/test_compact_meanwhile.py::test_"
_EMPTY: Final = "tests/client/maintenance/test_compact_without_messages.py::test_"
_CLOCKS: Final = "tests/client/maintenance/test_compaction_clocks.py::test_"
_IN_MAINTENANCE: Final = "tests/client/maintenance/test_compact_in_maintenance.py::test_"
_LEFT: Final = "tests/client/maintenance/test_erase_what_is_left.py::test_"
_ERASE: Final = "tests/client/maintenance/test_erase.py::test_"
_FOLD: Final = "tests/unit/fold/test_apply_holes.py::test_"

MUTANTS: Final = (
    Mutant(
        "a hole needs no feature",
        "txnlog/fold/transactions.py",
        "if HOLES not in draft.head.reader_features:",
        "if draft is None:",
        "older clients take the log for damaged",
        (_FOLD + "there_are_no_holes_without_the_feature",),
    ),
    Mutant(
        "the end of a segment with holes is behind its rows",
        "txnlog/fold/state.py",
        "return item.rows if self.extent is None else self.extent",
        "return item.rows",
        "offsets are given twice, and a replacement loses some",
        (_FOLD + "a_segment_stands_for_its_offsets_whatever_rows_it_has",),
    ),
    Mutant(
        "a part of a file with holes is its first rows",
        "txnlog/data/segment_metadata.py",
        "first, end = np.searchsorted(offsets, [item.offset, item.offset + item.width]).tolist()",
        "first, end = 0, min(item.width, len(offsets))",
        "a scan of some offsets gives rows of others",
        (_COMPACT + "of_each_key_the_newest_message_stays_at_its_offset",),
    ),
    Mutant(
        "rows at other offsets than the log says are fine",
        "txnlog/data/segment_rows.py",
        "if len(offsets) and (offsets[0] < start or offsets[-1] >= end or (np.diff(offsets) <= 0).any()):",
        "if len(offsets) and offsets[0] < start:",
        "a damaged file gives a message twice",
        ("tests/unit/data/test_scan_planner.py::test_rows_between_holes_ascend_within_the_offsets_of_their_segment",),
    ),
    Mutant(
        "no message takes a hole with it",
        "txnlog/client/holes.py",
        "            end = self.holes[place][1]",
        "            pass",
        "cursors stand still in front of a hole",
        (_COMPACT + "a_hole_goes_with_the_message_in_front_of_it",),
    ),
    Mutant(
        "what is read beyond the wanted messages counts as delivered",
        "txnlog/client/delivery.py",
        "found if first + count == behind else ranges.below(found, int(offsets[first + count]))",
        "found",
        "messages are acknowledged that nobody was delivered",
        (
            _CONSUMING + "as_many_messages_as_wanted_come_in_spite_of_holes",
            _CONSUMING + "partitions_that_are_read_together_are_cut_in_their_order",
        ),
    ),
    Mutant(
        "a cumulative acknowledgement stops at a hole",
        "txnlog/client/delivery.py",
        "if missing := ranges.subtract(missing, self._holes.get(partition, EMPTY)):",
        "if missing:",
        "it is refused for messages that nobody will ever be delivered",
        (
            "tests/client/consuming/test_holes.py::test_a_cumulative_acknowledgement_passes_over_holes_that_nobody_carries",
        ),
    ),
    Mutant(
        "a message of another key is superseded",
        "txnlog/maintenance/compaction.py",
        "newest = np.where(places < 0, -1, known.offsets[places])",
        "newest = known.offsets[places]",
        "the newest message of a key that nobody wrote again is lost",
        (_COMPACT + "compaction_among_merges_and_deletions_shows_what_a_plain_list_would",),
    ),
    Mutant(
        "a message without a value goes at once",
        "txnlog/maintenance/compaction.py",
        "ended & (times <= self._before_us)",
        "ended & (times <= times)",
        "a reader that is behind never hears that a key is gone",
        (_COMPACT + "a_key_without_a_value_goes_when_readers_have_had_time",),
    ),
    Mutant(
        "compaction passes subscriptions",
        "txnlog/maintenance/compaction.py",
        "if not COMPACT_UNACKNOWLEDGED.of(topic.properties):",
        "if topic is None:",
        "a subscription that needs every message loses some",
        (_COMPACT + "what_a_subscription_needs_stays_where_the_topic_says_so",),
    ),
    Mutant(
        "an erasure looks at what is visible only",
        "txnlog/maintenance/erasure.py",
        "in self._counted(there):",
        "in self._counted([]):",
        "it says that nothing is left while older versions show the rows",
        (_ERASE + "erased_rows_are_gone_and_the_others_are_where_they_were",),
    ),
    Mutant(
        "merged files bring the statistics back",
        "txnlog/maintenance/merging.py",
        "_fitting(kept_statistics(self._topic.properties, encoded.statistics), most_bytes),",
        "_fitting(encoded.statistics, most_bytes),",
        "values of erased rows stay in the log for ever",
        (_ERASE + "no_byte_of_a_thousand_erased_rows_is_left",),
    ),
    Mutant(
        "a column that older rows lack decides",
        "txnlog/maintenance/erasure.py",
        "known = _began_as(field, began)",
        "known = field",
        "older rows stay without a word",
        (_ERASE + "a_condition_that_older_rows_cannot_answer_is_refused",),
    ),
    Mutant(
        "compaction knows the columns of before",
        "txnlog/maintenance/compaction.py",
        "topic = state.topics[self._topic.id]",
        "topic = self._topic",
        "a message with a value in a column that just came ends its key, and is lost",
        (_MEANWHILE + "a_value_in_a_column_that_just_came_is_one",),
    ),
    Mutant(
        "a compaction ends by the settings that it began with",
        "txnlog/maintenance/compaction.py",
        "if not is_compacted(self._topic):",
        "if self._topic is None:",
        "a topic that is to keep all again loses messages",
        (_MEANWHILE + "a_topic_that_is_to_keep_all_again_loses_nothing_with_the_next_pass",),
    ),
    Mutant(
        "what was decided by other settings goes",
        "txnlog/maintenance/compaction.py",
        "if _settings(topic) != _settings(self._topic):",
        "if topic is None:",
        "messages go that the settings keep by then",
        (_MEANWHILE + "what_was_decided_by_other_settings_does_not_go",),
    ),
    Mutant(
        "maintenance forgets what a call left",
        "txnlog/maintenance/compaction.py",
        "(left_new(self._topic.properties) or found",
        "(found",
        "less than half of a topic stays as it is for ever",
        (_IN_MAINTENANCE + "maintenance_goes_on_with_what_one_call_left",),
    ),
    Mutant(
        "what compaction did not look at is nothing",
        "txnlog/maintenance/compaction.py",
        "left_there = left or (unseen and left_ended(topic.properties) is not False)",
        "left_there = left",
        "messages without a value stay for ever",
        (
            _IN_MAINTENANCE + "a_subscription_that_comes_later_makes_nobody_forget_what_waits",
            _MEANWHILE + "who_was_overtaken_does_not_say_that_nothing_is_left",
        ),
    ),
    Mutant(
        "a compaction that may read little does nothing",
        "txnlog/maintenance/compaction.py",
        "if passes and self._max_bytes is not None",
        "if self._max_bytes is not None",
        "however often it is called, it is never finished",
        (_IN_MAINTENANCE + "one_pass_is_done_however_little_may_be_read",),
    ),
    Mutant(
        "a bound is nobody's where another row has it",
        "txnlog/maintenance/bounds_of_gone_files.py",
        "in self._all.items() if _among",
        "in self._values.items() if _among",
        "whether the log says a value of an erased row depends on the order of the segments",
        (_LEFT + "a_bound_is_a_value_of_an_erased_row_whoever_else_has_it",),
    ),
    Mutant(
        "new offsets are new messages",
        "txnlog/maintenance/compaction.py",
        "if any(len(item.offsets) for item in several):",
        "if several:",
        "a partition that was emptied stops all maintenance",
        (_EMPTY + "a_namespace_with_a_topic_whose_content_was_replaced_is_maintained",),
    ),
    Mutant(
        "a compaction trusts its own clock",
        "txnlog/maintenance/compaction.py",
        "if at.timestamp_ms < self._times.now_ms:",
        "if draft is None:",
        "a clock that is ahead for a moment takes out ends of keys that readers have not had time for",
        (_CLOCKS + "no_key_ends_by_a_clock_that_was_ahead_for_a_moment",),
    ),
    Mutant(
        "a compaction decides again by the time of before",
        "txnlog/maintenance/compaction.py",
        "        self._times = Times(connection)  # anew",
        "        # anew",
        "a clock that was ahead for a moment stops a compaction",
        (_CLOCKS + "no_key_ends_by_a_clock_that_was_ahead_for_a_moment",),
    ),
    Mutant(
        "a compaction does not look again who reads",
        "txnlog/maintenance/compaction.py",
        "            cursor_in(draft, item, p).position >= limit\n",
        "            limit is not None\n",
        "a subscription that came during a compaction is not delivered what it may need in full",
        (_MEANWHILE + "who_begins_to_read_during_a_compaction_is_delivered_all",),
    ),
    Mutant(
        "a condition goes by places",
        "txnlog/maintenance/erasure.py",
        'if "field_ref" in str(error):',
        'if "fields" in str(error):',
        "rows of others are erased from dead letters, and those that were meant stay",
        (_ERASE + "a_condition_by_places_is_refused",),
    ),
)
