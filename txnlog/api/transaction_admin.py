"""Looking at transactions from outside, and ending them."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, Final, get_args

from txnlog.client.transaction_base import append_end
from txnlog.common.format_limits import MAX_NUMBER
from txnlog.common.ids import TxnId
from txnlog.common.names import nearest, parse_label
from txnlog.common.validation import Duration, duration_ms, shown, truth
from txnlog.common.writer_text import client_of
from txnlog.errors import InvalidInputError, TransactionNotFound
from txnlog.fold.number_blocks import block_of
from txnlog.fold.state import Outcome, TransactionRecord, TransactionState
from txnlog.log.transaction_commands import AbortCommand, CompleteCommand
from txnlog.replies import IfUnknown, unknown_outcome
from txnlog.results import Committed, Listing, TransactionInfo

if TYPE_CHECKING:
    from txnlog.client.connection import Connection

STATES: Final[tuple[TransactionState, ...]] = get_args(TransactionState)


def number_of(connection: Connection, txn_id: Any) -> int:
    """The number of a TxnID of this namespace. Raises InvalidInputError for one of another, and for a number alone.

    A number, as the log's entries show it, could be one of another namespace, and an abort of the wrong one is final.
    """
    if isinstance(txn_id, int) and not isinstance(txn_id, bool) and 0 <= txn_id <= MAX_NUMBER:
        raise InvalidInputError(
            f"the number {txn_id} alone is no TxnID: each namespace has a transaction with it",
            advice=f"of the namespace {connection.name!r} it is {str(connection.txn_id(txn_id))!r}",
        )
    parsed = TxnId.parse(txn_id)
    if parsed != connection.txn_id(parsed.number):
        connection.follower.refresh()  # whoever adopted the log since gives TxnIDs with another coordinator id
    if parsed != connection.txn_id(parsed.number):
        raise InvalidInputError(
            f"{parsed} belongs to the namespace with coordinator id {parsed.coordinator}, this one has "
            f"{connection.coordinators.of(parsed.number)}",
            advice="open the namespace that began the transaction",
        )
    return parsed.number


def _open_info(connection: Connection, record: TransactionRecord) -> TransactionInfo:
    """One that has not ended; its age is by the log's time, as all that opens and ends it is."""
    return TransactionInfo(
        connection.txn_id(record.number),
        record.state,
        record.opened_version,
        record.opened_ms,
        None,
        record.producer,
        connection.log_now_ms() - record.opened_ms,
        record.deadline_ms,
        _client(connection, record.number),
    )


def _ended_info(connection: Connection, outcome: Outcome) -> TransactionInfo:
    return TransactionInfo(
        connection.txn_id(outcome.number),
        outcome.state,
        outcome.version,
        outcome.timestamp_ms,
        outcome.reason or None,
        client=_client(connection, outcome.number),
    )


def _client(connection: Connection, number: int) -> str | None:
    """Who began the transaction with a number, as the open block that has it says."""
    block = block_of(connection.follower.state, number)
    return None if block is None else client_of(block.writer_text)


def transactions(connection: Connection, state: str | None, min_age_ms: Duration | None) -> Listing:
    """Open and prepared transactions, and those that ended after the checkpoint that this client uses, newest first."""
    state = state.upper() if isinstance(state, str) else state
    if state is not None and state not in STATES:
        raise InvalidInputError(f"unknown state {shown(state)}", advice=nearest(str(state), STATES))
    least_ms = None
    if min_age_ms is not None:
        least_ms = duration_ms("min_age_ms", min_age_ms, 0)
    unended, outcomes = connection.follower.look(
        lambda known: (list(known.transactions.values()), list(known.outcomes.values()))
    )
    infos = [_open_info(connection, item) for item in unended] + [_ended_info(connection, item) for item in outcomes]
    found = [item for item in infos if state is None or item.state == state]
    if least_ms is not None:
        found = [item for item in found if item.age_ms is not None and item.age_ms >= least_ms]
    found.sort(key=lambda item: (item.version or 0, item.txn_id), reverse=True)
    return Listing(found)


def transaction(connection: Connection, txn_id: TxnId | str) -> TransactionInfo:
    """What the log shows of a transaction; ``UNKNOWN`` is no negative answer (``abort`` gives one)."""
    number = number_of(connection, txn_id)
    connection.follower.refresh()
    record = connection.follower.state.transactions.get(number)
    if record is not None:
        return _open_info(connection, record)
    outcome = connection.follower.outcome(number)
    if outcome is not None:
        return _ended_info(connection, outcome)
    return TransactionInfo(connection.txn_id(number), "UNKNOWN")


def abort(
    connection: Connection, txn_id: TxnId | str, by: str | None, why: str | None, *, force: bool
) -> TransactionInfo:
    """End a transaction for ever, or return its true outcome: afterwards the answer is definite."""
    number = number_of(connection, txn_id)
    if by is not None:
        parse_label("name of the administrator", by)
    if why is not None:
        parse_label("reason", why)
    connection.follower.refresh()
    outcome = connection.follower.outcome(number)
    if outcome is None:
        outcome = _end(connection, AbortCommand(number, "admin", by, why, force))
    return _ended_info(connection, outcome)


def _end(connection: Connection, command: AbortCommand) -> Outcome:
    """End a transaction, or return how it ended; see ``append_end``."""
    appender = connection.appender
    return appender.run(partial(append_end, appender, connection.follower, command), (command.txn,))


def end_failed(connection: Connection, number: int) -> Outcome:
    """Abort a job that failed, whoever worked under its number (several processes): that makes it definite.

    The outcome is COMMITTED where a commit had come before.
    """
    return _end(connection, AbortCommand(number, "failed"))


def complete(connection: Connection, token: TxnId | str, *, commit: bool) -> Committed | None:
    """Carry out the outside decision about a prepared transaction; the same decision again gives the same answer."""
    number = number_of(connection, token)
    command = CompleteCommand(number, truth("commit", commit))
    try:
        with unknown_outcome(IfUnknown.COMPLETE):
            outcome = connection.appender.call(command)
    except TransactionNotFound:
        known = connection.outcome(number)  # an end that only a checkpoint holds
        if known is None:
            raise
        outcome = command.repeated(known, connection.txn_id(number))
    if outcome.state == "ABORTED":
        return None
    return connection.committed(outcome)


__all__ = [
    "STATES",
    "abort",
    "complete",
    "end_failed",
    "number_of",
    "transaction",
    "transactions",
]
