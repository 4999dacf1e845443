"""How a transaction ends: the outcome that is remembered, its error, and what an end without effect releases."""

from __future__ import annotations

import msgspec

from txnlog.common.ids import TxnId
from txnlog.errors import AbortableError, InvalidTransactionState, TransactionAborted, TxnLogError
from txnlog.fold import acknowledgements, number_blocks, sequences
from txnlog.fold.state import Draft, Outcome, TransactionRecord
from txnlog.format.actions import Abort, AbortReason, Header


def refuse_ended(draft: Draft, number: int) -> None:
    """Raise the true outcome where the log remembers one."""
    outcome = draft.outcomes.get(number)
    if outcome is not None:
        raise outcome_error(outcome, draft.txn_id(number))


def use_number(draft: Draft, number: int, at: Header) -> None:
    """Take a transaction's number, once. Raises its true outcome where the log remembers one, else why it cannot be."""
    try:
        number_blocks.use(draft, number, at)
    except TxnLogError:
        refuse_ended(draft, number)
        raise


def outcome_error(outcome: Outcome, txn: TxnId) -> AbortableError | InvalidTransactionState:
    """The error that reports the outcome of a transaction to somebody who wanted another one."""
    if outcome.state == "COMMITTED":
        return InvalidTransactionState(
            f"the transaction {txn} was committed at version {outcome.version}",
            advice="it stays committed: nothing is left to do",
        )
    return TransactionAborted(
        f"the transaction {txn} was aborted at version {outcome.version} ({outcome.reason})",
        reason=outcome.reason,
    )


def abort(draft: Draft, action: Abort, at: Header) -> None:
    """A transaction ends without effect, also one that the log has not shown: late data of it is only garbage."""
    transaction = draft.transactions.get(action.txn)
    if transaction is None:
        use_number(draft, action.txn, at)
        draft.outcomes.put(action.txn, Outcome(action.txn, "ABORTED", at.version, at.timestamp_ms, action.reason))
        return
    if transaction.state == "PREPARED" and action.reason not in {"user", "admin"}:
        raise InvalidTransactionState(
            f"the transaction {draft.txn_id(action.txn)} is PREPARED: only a decision ends it"
        )
    end_aborted(draft, action.txn, at, action.reason)


def end_aborted(draft: Draft, number: int, at: Header, reason: AbortReason) -> None:
    """End an open or prepared transaction without effect."""
    transaction = draft.transactions.get(number)
    assert transaction is not None, "only a transaction that has not ended can be ended"
    for segment in sequences.pending_segments(draft, transaction):
        draft.segments.put(segment.number, msgspec.structs.replace(segment, state="aborted", ended_version=at.version))
    acknowledgements.settle(draft, number, transaction.held, committed=False)
    forget(draft, transaction)
    draft.outcomes.put(number, Outcome(number, "ABORTED", at.version, at.timestamp_ms, reason))


def forget(draft: Draft, transaction: TransactionRecord) -> None:
    """An ended transaction is no longer one of its producer's."""
    draft.transactions.remove(transaction.number)
    if transaction.producer is not None:
        producer = draft.producers.get(transaction.producer)
        if producer is not None and transaction.number in producer.open:
            left = tuple(number for number in producer.open if number != transaction.number)
            draft.producers.put(producer.name, msgspec.structs.replace(producer, open=left))


__all__ = ["abort", "end_aborted", "forget", "outcome_error", "refuse_ended", "use_number"]
