"""Beginning a transaction, and producing without one: in a producer's name or in nobody's."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from txnlog.api.transaction import Transaction
from txnlog.client.row_placement import is_read_once, place
from txnlog.common.format_limits import MAX_NUMBER, MAX_OPEN_TRANSACTIONS, MAX_TIMEOUT_MS
from txnlog.common.limits import DEFAULT_TIMEOUT_MS
from txnlog.common.names import parse_label
from txnlog.common.validation import Duration, duration_ms, whole_number
from txnlog.errors import InvalidInputError, TopicNotFound, TxnLogError
from txnlog.fold.overdue import overdue
from txnlog.fold.topics import topic_named
from txnlog.fold.transactions import too_many_open
from txnlog.log.append_errors import note_repeatable
from txnlog.log.commands import digest_of_call
from txnlog.log.transaction_commands import CommitCommand, CommitResult, Opening
from txnlog.replies import AGAIN_WITH_SEQUENCE, IfUnknown, unknown_outcome
from txnlog.results import Committed

if TYPE_CHECKING:
    from txnlog.client.connection import Connection


def begin_transaction(
    connection: Connection,
    producer: str | None,
    epoch: int | None,
    *,
    timeout_ms: Duration | None = None,
    txn_app_id: str | None = None,
    txn_version: int | None = None,
    timed_from_log: bool = False,
    number: int | None = None,
) -> Transaction:
    """Begin a transaction of a producer; see :meth:`Producer.begin`.

    ``timed_from_log``: its deadline counts from its first logged effect. ``number``: one that this namespace
    reserved for it.
    """
    follower = connection.follower
    cap = follower.state.head.max_timeout_ms or MAX_TIMEOUT_MS
    limit_ms = None if timeout_ms is None else duration_ms("timeout_ms", timeout_ms, 1, cap)
    if (txn_app_id is None) != (txn_version is None):
        raise InvalidInputError("txn_app_id and txn_version go together", advice="give both, or neither")
    if txn_app_id is not None:
        parse_label("txn_app_id", txn_app_id)
        txn_version = whole_number("txn_version", txn_version, 0, MAX_NUMBER)
    if _is_full(connection):
        follower.refresh()
        if _is_full(connection):
            raise too_many_open()
    return Transaction(
        connection,
        connection.appender.take_numbers(1)[0] if number is None else number,
        timeout_ms=limit_ms or (cap if timed_from_log else min(DEFAULT_TIMEOUT_MS, cap)),
        producer=producer,
        epoch=epoch,
        app_id=txn_app_id,
        app_version=txn_version,
        timed_from_log=timed_from_log,
    )


def _is_full(connection: Connection) -> bool:
    """Whether no transaction more may be open. What is overdue does not count: the entry that needs room ends it."""
    follower = connection.follower
    surplus = len(follower.state.transactions) - MAX_OPEN_TRANSACTIONS
    if surplus < 0:
        return False
    now_ms = connection.runtime.now_ms()
    return surplus >= len(follower.look(lambda state: overdue(state.draft(), now_ms)))


def produce_plain(
    connection: Connection,
    producer: str | None,
    epoch: int | None,
    topic: str,
    data: Any,
    partition: int | None,
    sequence: int | None,
) -> Committed:
    """Produce outside a transaction, in a producer's name or without."""
    appender = connection.appender
    named = producer is not None
    pieces = place(connection, topic, data, partition, sequence, named=named)
    txn_id = connection.txn_id(appender.take_numbers(1)[0])
    if not pieces:
        return Committed(txn_id, connection.follower.version, {})
    opening = Opening(txn_id, connection.runtime.now_ms, producer, epoch)

    def commit() -> Committed:
        command = CommitCommand(opening, digest_of_call(pieces), pieces, plain=True, assign_sequences=named)
        try:
            with unknown_outcome(IfUnknown.PRODUCE if sequence is None else IfUnknown.PRODUCE_WITH_SEQUENCE):
                return connection.committed(_commit_timed(connection, command))
        except BaseException as interrupt:
            if sequence is not None and not isinstance(interrupt, Exception):
                note_repeatable(interrupt, f"{AGAIN_WITH_SEQUENCE}, which leaves out what is there")
            raise

    try:
        return commit()
    except TopicNotFound:  # it was dropped; another one may have its name, perhaps since long before this call
        if is_read_once(data) or topic_named(connection.follower.state, topic) is None:
            raise
        pieces = place(connection, topic, data, partition, sequence, named=named)
        if not pieces:
            raise  # the rows were there before: somebody else changes what this call was given
    return commit()


def _commit_timed(connection: Connection, command: CommitCommand) -> CommitResult:
    """Carry out a commit, and note how long that took."""
    appender, runtime, times = connection.appender, connection.runtime, connection.session.commit_times
    called_ms = runtime.elapsed_ms()

    async def carry_out() -> CommitResult:
        try:
            result = await appender.carry_out(command)
        except TxnLogError as error:
            times.note_failed(error)
            raise
        times.note(runtime.elapsed_ms() - called_ms)
        return result

    return appender.run_with_next(carry_out, command.txn_ids)


__all__ = ["begin_transaction", "produce_plain"]
