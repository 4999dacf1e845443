"""Bugs planted in txnlog/log: ids, group commit, the appender and its slots."""

from __future__ import annotations

from typing import Final

from tests.mutants.mutant import Mutant
from tests.mutants.names import (
    ANSWERS,
    BACKGROUND,
    BLOCK_KEEPER,
    ENTRY_BUILDER,
    FILES,
    GROUP_COMMIT,
    INTERRUPTED_WAITS,
    LOST_ANSWERS,
    OPENING,
    OUTCOME_UNKNOWN,
    RACES,
)

MUTANTS: Final = (
    # --- appending --------------------------------------------------------------------------------------------------
    Mutant(
        "not found taken for failed",
        "txnlog/log/slots.py",
        "        except ObjectNotFound:\n            pass\n",
        "        except ObjectNotFound:\n"
        '            raise StoreError("not there", durable=Durable.NOTHING) from None\n',
        "a delayed put lands after the caller was told that nothing was written",
        (OUTCOME_UNKNOWN + "a_commit_survives_one_bad_answer",),
    ),
    Mutant(
        "any answer counts as created",
        "txnlog/log/slots.py",
        "if store.create(key, data) is Created.CREATED:",
        "if store.create(key, data):",
        "whoever loses a race reports success",
        (RACES + "a_lost_race_is_decided_again_and_committed_behind_the_winner",),
    ),
    Mutant(
        "the winner counts as this writer",
        "txnlog/log/appender.py",
        "won = found == entry.data",
        "won = bool(found)",
        "whoever loses a race reports success, and folds what is not there",
        (RACES + "a_lost_race_is_decided_again_and_committed_behind_the_winner",),
    ),
    Mutant(
        "doubt forgotten",
        "txnlog/log/appender.py",
        "        self._unresolved = entry\n",
        "        self._unresolved = None\n",
        "the next entry overtakes one that may still land",
        (OUTCOME_UNKNOWN + "nothing_else_is_sent_while_an_entry_is_unknown",),
    ),
    Mutant(
        "told before it is on disk",
        "txnlog/log/slots.py",
        "store.sync(key)  #",
        "#",
        "a power cut takes back what was reported",
        (LOST_ANSWERS + "an_entry_that_may_not_survive_a_power_cut_is_unknown",),
    ),
    Mutant(
        "refused by an old state",
        "txnlog/log/group_commit.py",
        "if not self.refreshed and (",
        "if self.refreshed and (",
        "a client that is behind says no where the log says yes",
        (RACES + "a_stale_client_does_not_skip_what_was_forgotten",),
    ),
    Mutant(
        "notified of what fell out of the entry",
        "txnlog/log/group_commit.py",
        "answer = (reply, settled) if clean else self._answer_of_the_log(reply, draft, header, riders, look)",
        "answer = (reply, settled)",
        "a batch is skipped for one that is never committed, and nobody brings it again",
        (
            ENTRY_BUILDER + "a_batch_is_not_skipped_for_one_that_fell_out_of_the_entry",
            BACKGROUND + "a_batch_is_not_skipped_for_one_that_is_not_committed_after_all",
        ),
    ),
    Mutant(
        "whoever is put off is overtaken",
        "txnlog/log/group_commit.py",
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
        "txnlog/log/group_commit.py",
        "if look.dependent:",
        "if False:",
        "of two calls of one client the second is told what was true before the first",
        (ENTRY_BUILDER + "nobody_is_answered_before_one_in_front_who_depends_on_others",),
    ),
    Mutant(
        "without rows in the segments, without rows at all",
        "txnlog/log/group_commit.py",
        "(_supposed if rowless else _decided)(member,",
        "_decided(member,",
        "a commit that rested on one that fell out is refused, or goes on without its rows",
        (ENTRY_BUILDER + "a_batch_is_not_skipped_for_one_that_fell_out_of_the_entry",),
    ),
    Mutant(
        "refused by an entry that ends only some of what is overdue",
        "txnlog/log/group_commit.py",
        "answered_with_ends = riders.ending and encoded is None",
        "answered_with_ends = False",
        "a seek is refused for the hundred and first transaction that is over",
        (
            ENTRY_BUILDER + "an_answer_that_rests_on_a_rider_is_given_behind_the_entry",
            ANSWERS + "a_seek_ends_all_that_is_overdue_however_much_it_is",
        ),
    ),
    Mutant(
        "refused beside others without another look",
        "txnlog/log/group_commit.py",
        "(look.dependent or any(not settled for _, settled in look.answers))",
        "any(not settled for _, settled in look.answers)",
        "a commit behind one that is skipped is refused for a transaction that is over",
        (BACKGROUND + "nobody_is_refused_for_what_is_overdue_in_whatever_company",),
    ),
    Mutant(
        "what the log shows is not told where asking again fails",
        "txnlog/log/appender.py",
        "        self._answer_settled(attempt)\n",
        "        self._complete_all(attempt)\n",
        "the owner of a committed transaction hears that nothing was written, and does it again",
        (LOST_ANSWERS + "a_commit_that_the_log_shows_is_reported_whatever_fails",),
    ),
    Mutant(
        "what does not fit is forgotten",
        "txnlog/log/appender.py",
        "        self._queue.put_back(attempt.returned)\n",
        "        for asked in attempt.returned:\n            asked.answer(None)\n",
        "a commit that did not fit into an entry with others is answered, and in no entry",
        (BACKGROUND + "a_background_commit_that_does_not_fit_goes_into_the_next_entry",),
    ),
    Mutant(
        "a busy writer never looks for what is overdue",
        "txnlog/log/appender.py",
        "        if made.riders.looked:\n",
        "        if made.riders:\n",
        "as long as one client appends all the time, what dead ones left open stays open",
        (RACES + "who_appends_all_the_time_ends_what_is_overdue_too",),
    ),
    Mutant(
        "refused for what is overdue",
        "txnlog/log/appender.py",
        "        self._last_expiry_scan_ms = None\n        attempt",
        "        attempt",
        "a seek is refused for a transaction that is over, instead of ending it",
        (ANSWERS + "a_seek_is_not_refused_for_what_an_overdue_transaction_holds",),
    ),
    Mutant(
        "one look ends a hundred, and then no other is taken",
        "txnlog/log/appender.py",
        "bool(ending), looked and not ending)",
        "bool(ending), looked)",
        "a seek is refused for the hundred and first transaction that is over",
        (ANSWERS + "a_seek_ends_all_that_is_overdue_however_much_it_is",),
    ),
    Mutant(
        "shared file keeps the rows of who fell out",
        "txnlog/log/group_commit.py",
        "return self._waved == self._with_rows() and all(",
        "return bool(self._waved) and all(",
        "rows of a refused transaction get offsets, or the entry is damage",
        (GROUP_COMMIT + "shared_rows_are_written_again_without_the_one_that_lost_its_topic",),
    ),
    Mutant(
        "an entry before its segments",
        "txnlog/log/appender.py",
        """            before()
            return occupy(self._store, self._runtime, key, entry.data, attempts=self.create_attempts, sent=sent)
""",
        """            try:
                return occupy(self._store, self._runtime, key, entry.data, attempts=self.create_attempts, sent=sent)
            finally:
                before()
""",
        "a reader of the entry finds no file, and after a crash nobody ever does",
        (FILES + "segments_are_on_the_store_before_the_entry_that_names_them",),
    ),
    Mutant(
        "what comes at the last moment is not appended",
        "txnlog/log/appender.py",
        "            self._begin()  # for what came since the last look\n",
        "",
        "a call waits for ever, or until its handle appends something else",
        (INTERRUPTED_WAITS + "a_call_that_comes_while_the_last_entry_ends_is_appended_as_well",),
    ),
    Mutant(
        "a state with half of an entry is decided with",
        "txnlog/log/appender.py",
        "        self._follower.check_whole()\n",
        "",
        "after an error in memory a handle appends what the log refuses, or gives wrong offsets",
        (INTERRUPTED_WAITS + "a_handle_whose_state_is_incomplete_refuses_to_append",),
    ),
    Mutant(
        "the clock is looked at once for all entries of an append",
        "txnlog/log/appender.py",
        "            await self._check()  # each time:",
        "            pass  # each time:",
        "a clock that jumps while a race is lost ends the transactions of others",
        (
            "tests/client/namespaces/test_clocks.py::test_a_clock_that_jumps_while_an_append_is_under_way_does_not_drag_the_log_along",
        ),
    ),
    # --- collection -------------------------------------------------------------------------------------------------
    Mutant(
        "no life shown",
        "txnlog/log/id_allocator.py",
        "now_ms - block.touched_ms >= RENEW_AFTER_MS",
        "block.touched_ms > now_ms",
        "a writer that is slow but alive loses its numbers, and its commit is refused",
        (BLOCK_KEEPER + "whoever_takes_a_number_after_a_silence_has_time_to_use_it",),
    ),
    # --- docs/guarantees.md, rules ------------------------------------------------------------------------------------
    Mutant(
        "a refused command leaves its traces",
        "txnlog/log/group_commit.py",
        "        draft.rollback(mark)\n",
        "",
        "what the log never showed is taken for done by the client that was refused",
        (GROUP_COMMIT + "a_refused_member_leaves_no_trace_in_what_the_client_knows",),
    ),
    Mutant(
        "each client's own clock",
        "txnlog/log/appender.py",
        "timestamp_ms = max(head.timestamp_ms, self._runtime.now_ms())",
        "timestamp_ms = self._runtime.now_ms()",
        "log time goes back with a clock that is behind: nobody can append after one that is ahead",
        (OPENING + "log_time_never_goes_back",),
    ),
)
