"""Bugs planted in txnlog/fold: subscriptions, acknowledgements and leases."""

from __future__ import annotations

from typing import Final

from tests.mutants.mutant import Mutant
from tests.mutants.names import (
    ACKNOWLEDGEMENTS,
    ACKNOWLEDGING,
    DEAD_LETTERS,
    REFUSALS,
    SEEK,
    SHARED,
    SHARED_AHEAD,
    SHARED_REDELIVERY,
    SUBSCRIPTIONS,
    TAKEOVER,
)

MUTANTS: Final = (
    # --- fencing ----------------------------------------------------------------------------------------------------
    Mutant(
        "old consumers acknowledge",
        "txnlog/fold/subscription_records.py",
        "if record.epoch != epoch:",
        "if epoch > record.epoch:",
        "two consumers of an exclusive subscription take the same messages",
        (SUBSCRIPTIONS + "opening_a_consumer_fences_the_one_before",),
    ),
    # --- acknowledgements -------------------------------------------------------------------------------------------
    Mutant(
        "individual over cumulative",
        "txnlog/fold/acknowledgements.py",
        "if cursor.cumulative is not None and item.ranges[0][0] < cursor.cumulative.end:",
        "if cursor.cumulative is not None and item.ranges[0][0] < 0:",
        "a message is consumed by two transactions",
        (ACKNOWLEDGEMENTS + "individual_ones_below_a_pending_cumulative_end_conflict",),
    ),
    Mutant(
        "cumulative over individual",
        "txnlog/fold/acknowledgements.py",
        "if other.txn != txn and other.ranges[0][0] < end:",
        "if other.txn != txn and other.ranges[0][0] < 0:",
        "a message is consumed by two transactions (as in Pulsar)",
        (ACKNOWLEDGEMENTS + "a_cumulative_one_over_messages_that_another_holds_individually_conflicts",),
    ),
    Mutant(
        "pending messages claimed again",
        "txnlog/fold/acknowledgements.py",
        "if ranges.overlaps(item.ranges, other.ranges):",
        "if item.ranges is other.ranges:",
        "a message is consumed by two transactions",
        (ACKNOWLEDGEMENTS + "a_message_pending_in_another_transaction_is_held",),
    ),
    Mutant(
        "an abort acknowledges",
        "txnlog/fold/acknowledgements.py",
        "        if committed:\n",
        "        if committed or mine:\n",
        "messages of an aborted transaction are never delivered again",
        (ACKNOWLEDGEMENTS + "an_abort_makes_messages_available_again",),
    ),
    # --- the client -------------------------------------------------------------------------------------------------
    Mutant(
        "pending messages delivered again",
        "txnlog/fold/leases.py",
        "        left = ranges.subtract(left, hold.ranges)\n",
        "        left = ranges.subtract(left, ())\n",
        "a message is processed twice, and its second commit fails",
        (REFUSALS + "giving_back_what_is_acknowledged_or_pending_has_no_effect",),
    ),
    # --- collection -------------------------------------------------------------------------------------------------
    Mutant(
        "leases that end are not counted",
        "txnlog/fold/leases.py",
        "Release(record.id, consumer, tuple(found), redeliver=True)",
        "Release(record.id, consumer, tuple(found), redeliver=False)",
        "a message that kills its consumer comes again for ever, and never is a dead letter",
        (SHARED_REDELIVERY + "messages_of_an_expired_lease_are_granted_again_and_counted_in_the_same_entry",),
    ),
    Mutant(
        "leases of others do not count",
        "txnlog/fold/leases.py",
        "available(cursor, start, end, ranges.subtract(live(cursor, now_ms), own))",
        "available(cursor, start, end, ())",
        "every consumer does the same work, and all but one in vain",
        (SHARED + "what_one_consumer_has_the_other_does_not_get",),
    ),
    # --- docs/guarantees.md, rules about acknowledging ----------------------------------------------------------------
    Mutant(
        "acknowledged above the cursor is no conflict",
        "txnlog/fold/acknowledgements.py",
        "if item.ranges[0][0] < cursor.position or ranges.overlaps(item.ranges, cursor.acknowledged):",
        "if item.ranges[0][0] < cursor.position:",
        "a message is consumed by two transactions, one after the other",
        (SHARED + "an_individual_acknowledgement_of_what_was_taken_is_a_conflict_in_a_transaction",),
    ),
    Mutant(
        "a cumulative one at the cursor",
        "txnlog/fold/acknowledgements.py",
        "if end <= cursor.position:",
        "if end < cursor.position:",
        "two runs of one batch both commit",
        (ACKNOWLEDGEMENTS + "a_cumulative_one_at_or_below_the_cursor_conflicts",),
    ),
    Mutant(
        "the further cumulative one wins",
        "txnlog/fold/acknowledgements.py",
        "if cursor.cumulative.txn != txn:",
        "if cursor.cumulative.txn > txn:",
        "two transactions process the same messages, and both commit",
        (ACKNOWLEDGEMENTS + "a_second_transactions_cumulative_one_conflicts",),
    ),
    Mutant(
        "a cumulative one is never replaced",
        "txnlog/fold/acknowledgements.py",
        "if end <= cursor.cumulative.end:",
        "if end >= cursor.cumulative.end:",
        "a transaction cannot acknowledge as it goes on",
        (ACKNOWLEDGEMENTS + "a_further_cumulative_one_of_the_same_transaction_replaces_it",),
    ),
    Mutant(
        "only the first subscription is settled",
        "txnlog/fold/acknowledgements.py",
        "for key in dict.fromkeys(held):",
        "for key in held[:1]:",
        "one subscription goes on, and the other holds its messages for ever",
        (ACKNOWLEDGING + "acknowledgements_over_several_subscriptions_are_all_or_nothing",),
    ),
    Mutant(
        "one redelivery too few",
        "txnlog/fold/leases.py",
        "        if item.count > most\n",
        "        if item.count >= most\n",
        "a message goes to the dead letters before its last try",
        (DEAD_LETTERS + "a_message_above_the_maximum_goes_to_the_dead_letter_topic",),
    ),
    Mutant(
        "open transactions survive a takeover",
        "txnlog/fold/subscriptions.py",
        "    _abort_holders(draft, record, at)\n",
        "",
        "the new consumer waits for what the old one holds, until its timeout",
        (TAKEOVER + "a_takeover_aborts_the_open_transactions_of_the_older_consumer",),
    ),
    Mutant(
        "a takeover aborts prepared ones",
        "txnlog/fold/subscriptions.py",
        '        if transaction.state == "OPEN":',
        '        if transaction.state != "DONE":',
        "what an outside system committed is aborted by a restart",
        (SUBSCRIPTIONS + "opening_a_consumer_aborts_open_transactions_that_hold_its_messages_and_keeps_prepared_ones",),
    ),
    Mutant(
        "leases by name alone",
        "txnlog/fold/leases.py",
        "return name[: MAX_LABEL_CHARACTERS - len(ending)] + ending",
        "return name[: MAX_LABEL_CHARACTERS - len(ending)]",
        "a consumer releases the leases of another that has its name",
        (SHARED_REDELIVERY + "who_has_the_name_of_another_has_leases_of_its_own",),
    ),
    Mutant(
        "a seek over pending messages",
        "txnlog/fold/subscriptions.py",
        "if cursor.holds or cursor.cumulative is not None:",
        "if cursor.cumulative is not None:",
        "a transaction commits acknowledgements of a cursor that was moved away under it",
        (SEEK + "a_seek_is_refused_while_the_log_shows_pending_acknowledgements",),
    ),
    Mutant(
        "a seek that fences nobody",
        "txnlog/fold/subscriptions.py",
        "draft.subscriptions.put(record.id, msgspec.structs.replace(record, epoch=at.version))",
        "draft.subscriptions.put(record.id, record)",
        "what was received before a seek is acknowledged after it",
        (SEEK + "a_seek_moves_the_cursor_and_refuses_what_was_received_before",),
    ),
    Mutant(
        "leases without a bound",
        "txnlog/fold/leases.py",
        "left = min(wanted.most, MAX_LEASED_MESSAGES - leased_by(draft, record.id, count, wanted.consumer, now_ms))",
        "left = min(wanted.most, MAX_LEASED_MESSAGES)",
        "a consumer that is slow takes everything, and then is refused",
        (SHARED_AHEAD + "a_consumer_has_a_bounded_number_of_messages",),
    ),
    # --- altered topics -----------------------------------------------------------------------------------------------
    Mutant(
        "an expected cursor passes over a message below the second end",
        "txnlog/fold/acknowledgements.py",
        "ends = dict(wanted.cumulative)",
        "ends = dict(reversed(wanted.cumulative))",
        "a message is done twice",
        (ACKNOWLEDGEMENTS + "the_last_of_several_ends_is_the_one_that_counts",),
    ),
)
