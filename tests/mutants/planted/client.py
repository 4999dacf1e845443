"""Bugs planted in txnlog/client, but for what consumers receive: the session, transactions, the view of a root."""

from __future__ import annotations

from typing import Final

from tests.mutants.mutant import Mutant
from tests.mutants.names import (
    CLAIMS,
    CLIENT_PRODUCERS,
    CLIENT_TRANSACTIONS,
    CLOSED_AND_PREPARED,
    CONSUMER_FAULTS,
    CONSUMER_THREADS,
    CUMULATIVE,
    FAILOVER,
    FORKS,
    LIFECYCLE,
    LOST_ANSWERS,
    LOST_WORK,
    MOVED_FOLDERS,
    REFUSALS,
    RIGHTS,
    SEQUENCES,
    TWO_PHASES,
)

MUTANTS: Final = (
    # --- appending --------------------------------------------------------------------------------------------------
    Mutant(
        "a flush forgets what it left out",
        "txnlog/client/transaction_work.py",
        "self.staged, self.acknowledged, self._sealed = segments, acknowledgements, sealed",
        "self.staged, self.acknowledged, self._sealed = [], [], 0",
        "an outside system commits by a token that lacks rows, and neither prepare nor complete says so",
        (TWO_PHASES + "what_a_flush_left_out_is_reported_by_prepare",),
    ),
    # --- the client -------------------------------------------------------------------------------------------------
    Mutant(
        "a closed handle takes what is prepared for lost",
        "txnlog/client/transaction_base.py",
        "                return IfClosed.PREPARED\n",
        "                return IfClosed.NOTHING\n",
        "who does the work again, as advised, has its rows twice once others complete the token",
        (CLOSED_AND_PREPARED + "the_rows_of_a_prepared_transaction_are_not_said_to_be_gone",),
    ),
    Mutant(
        "a commit without an answer is a failure",
        "txnlog/client/transaction_lifecycle.py",
        "Fate.UNKNOWN: Stage.COMMIT_UNKNOWN,",
        "Fate.UNKNOWN: stage,",
        "the transaction goes on, and its second commit carries more than the first one, which may be durable",
        (LIFECYCLE + "each_fate_of_each_call_leads_where_the_table_says",),
    ),
    Mutant(
        "rows stay buffered behind a failed write",
        "txnlog/client/transaction_work.py",
        "                self.pieces = [piece for piece in self.pieces if piece.topic != topic]\n",
        "                pass\n",
        "rows whose files were written are written again: they are there twice",
        (LOST_ANSWERS + "rows_whose_files_were_written_half_way_are_not_written_twice",),
    ),
    # --- docs/guarantees.md, rules ------------------------------------------------------------------------------------
    Mutant(
        "the version before the commit is returned",
        "txnlog/client/commit_results.py",
        "session.txn_id(result.number), result.version, offsets,",
        "session.txn_id(result.number), result.version - 1, offsets,",
        "who reads at the version that commit() returned does not find what was committed",
        (CLIENT_TRANSACTIONS + "a_block_commits_at_its_end_all_topics_at_once",),
    ),
    Mutant(
        "maintenance fails its caller",
        "txnlog/client/consumer_heartbeats.py",
        '        except TxnLogError:\n            _logger.warning("the heartbeat of the consumer %r was not',
        '        except ZeroDivisionError:\n            _logger.warning("the heartbeat of the consumer %r was not',
        "what only helps others fails the call whose entry is in the log",
        (FAILOVER + "a_store_that_fails_with_hints_fails_nobody",),
    ),
    # --- docs/guarantees.md, rules about transactions -----------------------------------------------------------------
    Mutant(
        "the owner is asked about another's epoch",
        "txnlog/client/connection.py",
        "check_producer(state.draft(), producer, epoch)",
        "check_producer(state.draft(), producer, self.producer_epoch(producer))",
        "a zombie hears of its fence only when it commits, after all its work",
        (CLIENT_PRODUCERS + "a_fenced_producer_hears_of_it_from_the_log",),
    ),
    Mutant(
        "a child goes on with its parent's transaction",
        "txnlog/client/session_owner.py",
        "if owner is not self.identity:",
        "if owner is None:",
        "parent and child both commit one number",
        (FORKS + "a_forked_child_is_refused_its_parents_transaction",),
    ),
    # --- docs/guarantees.md, rules about producing --------------------------------------------------------------------
    Mutant(
        "a repeat takes another's offsets",
        "txnlog/client/commit_results.py",
        "if any(one.offset + one.rows != other.offset for one, other in itertools.pairwise(batches)):",
        "if not batches:",
        "a repeat over two batches is told offsets of rows that others wrote in between",
        (SEQUENCES + "a_repeat_that_spans_two_batches_is_not_given_the_offsets_of_others",),
    ),
    # --- docs/guarantees.md, rules about acknowledging ----------------------------------------------------------------
    Mutant(
        "conflicts are left to the commit",
        "txnlog/client/acknowledgement_conflicts.py",
        "            check_claim(draft, txn, rest, _claims_of(handle, wanted))\n",
        "            pass\n",
        "two transactions of one client do the same work, and one in vain",
        (REFUSALS + "a_conflict_is_answered_as_soon_as_the_client_can_know",),
    ),
    Mutant(
        "what the consumer's handle claims is not asked",
        "txnlog/client/acknowledgement_conflicts.py",
        "for handle in handles:  # a consumer",
        "for handle in handles[:1]:  # a consumer",
        "a cumulative acknowledgement takes what another handle's transaction gives back",
        (CUMULATIVE + "it_does_not_take_what_the_consumers_handle_holds",),
    ),
    Mutant(
        "what was ended for a waiting one conflicts with it",
        "txnlog/client/acknowledgement_conflicts.py",
        "    if len(handles) > 1:\n",
        "    if len(handles) > 2:\n",
        "the first try over another handle's consumer is refused for what is over",
        (CLAIMS + "what_was_abandoned_is_ended_for_who_waits_at_either_handle",),
    ),
    Mutant(
        "plain acknowledgements are in each other's way",
        "txnlog/client/acknowledgement_conflicts.py",
        "        if rest_of is None:\n            _check_plain",
        "        if True:\n            _check_plain",
        "threads that acknowledge what each received are refused by chance",
        (CONSUMER_THREADS + "two_at_once_are_in_nobodys_way",),
    ),
    Mutant(
        "a plain acknowledgement is in the way of what lies behind it",
        "txnlog/client/acknowledgement_conflicts.py",
        "            ranges.exclude(named, receipt.unnamed)\n",
        "            pass\n",
        "transactions are refused for messages that they do not name",
        (CONSUMER_FAULTS + "a_transaction_goes_on_behind_a_plain_acknowledgement_of_other_messages",),
    ),
    Mutant(
        "the consumer's handle is not told what is claimed",
        "txnlog/client/acknowledgement_conflicts.py",
        "return found if receipt is None or receipt.ledger in found else [*found, receipt.ledger]",
        "return found",
        "a consumer acknowledges over what a transaction of another handle has in hand",
        (CUMULATIVE + "it_does_not_take_what_a_transaction_of_another_handle_has_in_hand",),
    ),
    Mutant(
        "an end in a checkpoint is none",
        "txnlog/client/acknowledgement_conflicts.py",
        "ledger.abort_those_over(connection.may_have_ended,",
        "ledger.abort_those_over(connection.follower.state.outcomes.__contains__,",
        "messages of a transaction that ended are held until its deadline, or for ever",
        (CLAIMS + "an_end_that_a_checkpoint_took_out_of_memory_is_an_end",),
    ),
    Mutant(
        "too few signs of life",
        "txnlog/client/consumer_heartbeats.py",
        "self._runtime.elapsed_ms() - last_ms >= lease_ms / BEATS_PER_LEASE",
        "self._runtime.elapsed_ms() - last_ms >= lease_ms * BEATS_PER_LEASE",
        "a consumer that works is fenced by one that waits",
        (FAILOVER + "a_consumer_that_shows_signs_of_life_keeps_its_place",),
    ),
    # --- docs/guarantees.md, rules about reading ----------------------------------------------------------------------
    Mutant(
        "a relative root means another folder later",
        "txnlog/client/session_owner.py",
        "self.root = absolute(root) if store is None else root",
        "self.root = root",
        "a handle that is sent to another process writes into another log",
        (FORKS + "a_handle_means_the_same_root_when_the_working_directory_is_another",),
    ),
    # --- what handles say, and what lies in the way -----------------------------------------------------------------
    Mutant(
        "a forked child reports its parent's transactions",
        "txnlog/client/transaction_work.py",
        "if self._unended is not None and self._identity is self._connection.identity:",
        "if self._unended is not None:",
        "work that its owner is about to commit is said to be lost",
        (LOST_WORK + "a_child_drops_its_parents_transaction_in_silence",),
    ),
    Mutant(
        "a close settles before it waits",
        "txnlog/client/session_owner.py",
        "            session.close(self._closed_error())\n",
        "            session.unended.settle_all()\n            session.close(self._closed_error())\n",
        "after Ctrl-C in a close nobody says which work is lost",
        (LOST_WORK + "a_close_that_was_interrupted_and_is_called_again_reports_what_was_open",),
    ),
    Mutant(
        "the verdict on a store is not logged",
        "txnlog/client/session.py",
        "return [] if verdict is None or has_verdict_on(self.store, draft.verdicts) else [verdict]",
        "return []",
        "each handle tries the store again",
        (RIGHTS + "a_store_that_the_root_does_not_know_is_tried_below_the_namespace",),
    ),
    Mutant(
        "a folder that was moved is made again",
        "txnlog/client/session.py",
        "        never_make(self.requests, self.name)\n",
        "",
        "a writer at work goes on, and acknowledges, in a log without a beginning, that nobody can open",
        (MOVED_FOLDERS + "a_writer_does_not_make_a_folder_again_that_goes_away_in_the_middle_of_a_commit",),
    ),
)
