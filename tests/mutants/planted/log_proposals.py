"""Bugs planted in txnlog/log and txnlog/data: group commit between processes."""

from __future__ import annotations

from typing import Final

from tests.mutants.mutant import Mutant

_COLLECTOR: Final = "tests/unit/log/test_collector.py::test_"
_OF_THE_DEAD: Final = "tests/sim/test_proposals_of_the_dead.py::test_"
_DISTANCES: Final = "tests/sim/test_proposals_distances.py::test_"
_CODEC: Final = "tests/unit/log/test_proposal_codec.py::test_"
_ROWS: Final = "tests/unit/data/test_wire_rows.py::test_"
_RHYTHM: Final = "tests/unit/log/test_rhythm.py::test_"
_FAR: Final = "tests/sim/test_proposals.py::test_"
_REFUSED: Final = "tests/sim/test_proposals_refused.py::test_"
_ATTACKED: Final = "tests/sim/test_proposals_attacked.py::test_"

MUTANTS: Final = (
    Mutant(
        "nobody proposes the same once more",
        "txnlog/log/proposals/proposer.py",
        "            and (not self._open or self._open.keys() == {attempt.proposed_as})\n",
        "            and not self._open\n",
        "a crowd whose collector ended races for seconds: each has to win once before it can propose again",
        (_FAR + "who_waited_in_vain_proposes_the_same_to_the_next_one",),
    ),
    Mutant(
        "what is refused of a proposal is overtaken",
        "txnlog/log/proposals/collector.py",
        "        return self._ended == place\n",
        "        return True\n",
        "a writer's second transaction is in the log before its first one",
        (_COLLECTOR + "nothing_overtakes_what_was_refused_in_front_of_it",),
    ),
    Mutant(
        "a proposal speaks for anybody",
        "txnlog/log/proposals/collector.py",
        "        if any(owner_of(draft, number) != self._writer for number in (self._number, *txn_ids)):\n",
        "        if any(owner_of(draft, number) is None for number in (self._number, *txn_ids)):\n",
        "whoever may put a mailbox ends the transactions of others",
        (_COLLECTOR + "nothing_is_done_with_numbers_of_others",),
    ),
    Mutant(
        "a void proposal is carried out",
        "txnlog/log/proposals/collector.py",
        "        return not can_be_used(draft, self._number)\n",
        "        return False\n",
        "what its owner was refused is in the log later",
        (_COLLECTOR + "nothing_is_done_where_the_number_was_used",),
    ),
    Mutant(
        "what others propose is committed behind its deadline",
        "txnlog/log/proposals/proposal_codec.py",
        "        return left_ms is not None and timestamp_ms > self.time_ms + left_ms\n",
        "        return False\n",
        "whoever waited for the deadline of a process that died does its work again, and it is there twice",
        (_COLLECTOR + "nothing_is_committed_behind_its_deadline",),
    ),
    Mutant(
        "who comes now and then takes over from who collects",
        "txnlog/log/proposals/collector.py",
        "        if not self._races.is_open:\n",
        "        if False:\n",
        "each change of who collects makes all others race",
        (_FAR + "who_comes_now_and_then_does_not_take_over",),
    ),
    Mutant(
        "nobody makes a place for those who lose every race",
        "txnlog/log/appender.py",
        "        await self._collector.make_place()\n",
        "",
        "who is farther from the store than a busy process commits nothing",
        (_DISTANCES + "a_far_writer_commits_next_to_a_near_one",),
    ),
    Mutant(
        "who collects is not let in by those who race",
        "txnlog/log/proposals/races.py",
        "        return self._follower.version - newest >= _MOST_BETWEEN\n",
        "        return False\n",
        "whoever proposes waits in vain, since two busy processes win all races against who collects",
        (_DISTANCES + "two_near_ones_that_flush_leave_a_far_writer_a_place",),
    ),
    Mutant(
        "only who is asked makes a place",
        "txnlog/log/proposals/races.py",
        "            if (is_asked or is_begun) and",
        "            if is_asked and",
        "the place of one busy process is the other's: who is far from the store appends nothing",
        (_DISTANCES + "two_near_ones_leave_a_far_one_a_place_for_what_cannot_be_proposed",),
    ),
    Mutant(
        "whoever is far from the store reads one entry at a time",
        "txnlog/log/proposals/proposer.py",
        "            count = _READ_AT_ONCE if late >= _LATE_LOOKS else 1\n",
        "            count = 1\n",
        "each of its commits takes longer than the one before",
        (_DISTANCES + "a_far_proposer_does_not_fall_behind_the_collector",),
    ),
    Mutant(
        "the texts of a stream in a mailbox have any length",
        "txnlog/log/proposals/proposal_codec.py",
        "if any(len(text) > MAX_LABEL_CHARACTERS for item in",
        "if any(False for item in",
        "whoever may put a mailbox makes every client remember a mebibyte for ever",
        ("tests/sim/test_proposals_hostile.py::test_a_mailbox_makes_nobody_remember_a_mib_for_ever",),
    ),
    Mutant(
        "a damaged mailbox is read",
        "txnlog/log/proposals/proposal_codec.py",
        "if xxhash.xxh3_128_digest(content) != data[:_DIGEST_BYTES]:",
        "if len(data) < _DIGEST_BYTES:",
        "a bit that flipped on its way is in somebody's rows",
        (_CODEC + "bytes_that_changed_on_their_way_are_refused",),
    ),
    Mutant(
        "a mailbox of another writer",
        "txnlog/log/proposals/proposal_codec.py",
        "    if found.writer != writer:\n",
        "    if not found.writer:\n",
        "a copied mailbox has its commands brought twice, in whatever order",
        (_CODEC + "a_mailbox_is_its_writers_and_has_a_number_where_it_does_something",),
    ),
    Mutant(
        "rows of others are not checked",
        "txnlog/data/wire_rows.py",
        "    array.validate(full=True)\n",
        "",
        "offsets that lie end the process that reads them",
        (_ROWS + "buffers_that_lie_are_refused",),
    ),
    Mutant(
        "rows that nothing names",
        "txnlog/log/proposals/proposal_codec.py",
        "    if any(not rows.is_at_end for rows in contents.values()):\n",
        "    if any(rows.is_at_end is None for rows in contents.values()):\n",
        "a mailbox that contradicts itself is carried out in part",
        (_CODEC + "rows_and_pieces_agree",),
    ),
    Mutant(
        "a pause as long as a clock went ahead",
        "txnlog/log/proposals/rhythm.py",
        "if writer != self._writer or not 0 < distance_ms <= _LONGEST_TRIPS * trip:",
        "if writer != self._writer:",
        "a proposer waits for days for an entry that came long ago",
        (_RHYTHM + "a_clock_that_stands_or_jumps_makes_no_pause_long",),
    ),
    Mutant(
        "a missing right of who collects is a failure of its own callers",
        "txnlog/log/appender.py",
        "not attempt.leave(lambda member: member.is_of_another)",
        "attempt",
        "a program that only seeks hears that it may not write to a topic",
        (_FAR + "a_collector_without_the_right_to_the_rows_of_others_leaves_them",),
    ),
    Mutant(
        "rows stay in the mailbox",
        "txnlog/log/appender.py",
        "        await self._proposer.close()\n",
        "",
        "rows of a topic that was dropped long ago can still be read",
        (_FAR + "rows_do_not_stay_in_mailboxes_once_their_writers_are_closed",),
    ),
    Mutant(
        "who has nothing to bring begins to collect again at once",
        "txnlog/log/proposals/collector.py",
        "        pays = self._pays()\n        if self._own_idle > _OWN_IDLE_CYCLES or not pays:\n",
        "        if self._own_idle > _OWN_IDLE_CYCLES or not self._pays():\n",
        "a producer next to a consumer asks for mailboxes between any two commits",
        (_ATTACKED + "a_producer_that_rests_next_to_a_consumer_begins_to_collect_less_and_less_often",),
    ),
    Mutant(
        "an earlier put under the same number is forgotten",
        "txnlog/log/proposals/proposer.py",
        "max(version, head.version), max(time_ms, now_ms))",
        "head.version, now_ms)",
        "where a clock was set back, what its owner was refused for want of memory is in the log later",
        (_REFUSED + "what_was_put_before_a_clock_was_set_back_may_come_true_as_long_as_it_says",),
    ),
    Mutant(
        "who is refused is answered before the proposal is void",
        "txnlog/log/entry_riders.py",
        "bool(ending or retracting)",
        "bool(ending)",
        "a commit fails for want of memory, and takes effect",
        (_REFUSED + "who_has_no_memory_for_a_race_does_not_hear_that_nothing_was_sent",),
    ),
    Mutant(
        "acknowledgements of a mailbox are not counted",
        "txnlog/log/proposals/proposal_codec.py",
        "    return 1 + ends + sum([1 + len(found.ranges) for found in acknowledgement.ranges])\n",
        "    return 0\n",
        "thirty kilobytes stop whoever collects for seconds",
        (
            "tests/sim/test_proposals_hostile.py::test_a_mailbox_of_a_few_kilobytes_does_not_stop_the_process_that_collects",
        ),
    ),
    Mutant(
        "a proposal is over by the clock of whoever proposed it",
        "txnlog/log/proposals/proposer.py",
        "at.version, head_ms)]",
        "at.version, at.timestamp_ms)]",
        "a commit is refused past its deadline, and another writer, whose clock is behind, brings it into the log",
        (
            "tests/sim/test_proposals_clocks.py::test_a_commit_that_is_refused_by_a_clock_that_is_ahead_does_not_come_true",
        ),
    ),
    Mutant(
        "a slow put makes all waits as long",
        "txnlog/log/proposals/rhythm.py",
        "self.ms = min(max(_LEAST_TRIP_MS, statistics.median(self._seen)), _LONGEST_TRIP_MS)",
        "self.ms = max(_LEAST_TRIP_MS, statistics.median(self._seen))",
        "behind one lost answer a process waits for a quarter of a minute with each commit",
        ("tests/sim/test_proposals_slow_puts.py::test_after_one_slow_put_a_process_commits_as_fast_as_others",),
    ),
    Mutant(
        "dead letters are proposed",
        "txnlog/client/dead_letters.py",
        "    travels = False  # whoever brought it would not look whether one was\n",
        "",
        "messages that a consumer has received under a lease that lasts are dead letters as well",
        (_OF_THE_DEAD + "what_its_holder_received_again_is_no_dead_letter",),
    ),
    Mutant(
        "a grant is answered by an entry of somebody else",
        "txnlog/log/group_commit.py",
        "            if not member.command.txn_ids and not member.command.travels:\n"
        "                continue  # it was not proposed: only its own entry has an answer for it\n",
        "",
        "receive() gives nothing of what the log leased to it, until the leases are over",
        (_OF_THE_DEAD + "messages_that_the_log_leased_to_a_consumer_are_received",),
    ),
    Mutant(
        "the name of the dead is a sign of life",
        "txnlog/log/proposals/races.py",
        "-math.inf if self._was_in_vain(writer) else self._runtime.elapsed_ms()",
        "self._runtime.elapsed_ms()",
        "who commits alone waits ten round trips for each entry",
        (_OF_THE_DEAD + "who_is_left_by_a_collector_that_was_killed_is_as_fast_as_alone",),
    ),
    Mutant(
        "mailboxes are thrown out one by one",
        "txnlog/log/proposals/collector.py",
        "            kept = set(order(self._mailboxes))\n",
        "            kept = set(self._mailboxes)\n"
        "            while len(kept) > _MOST_MAILBOXES:\n"
        "                kept.remove(max(kept, key=lambda writer: (writer not in known, -self._put_ms(writer))))\n",
        "a thousand mailboxes that were left cost a quarter of a second before each entry",
        (_OF_THE_DEAD + "mailboxes_of_the_dead_cost_no_more_than_a_look_each",),
    ),
    Mutant(
        "only the handle of the consumer knows what may land",
        "txnlog/client/ledger.py",
        "(is_late and not claim.may_land(txn))",
        "is_late",
        "messages whose acknowledgement another handle sent without an answer are delivered again",
        (
            "tests/client/transactions/test_claims_of_two_handles.py::test_what_was_sent_without_an_answer_is_not_delivered_again",
        ),
    ),
)
