"""A producer: named, with an epoch that fences its predecessor, or anonymous."""

from __future__ import annotations

from types import TracebackType
from typing import TYPE_CHECKING, Any, Final

from txnlog.api.transaction import Transaction
from txnlog.client.partition_numbers import check_partition
from txnlog.client.row_placement import is_read_once, place
from txnlog.common.format_limits import MAX_NUMBER, MAX_OPEN_TRANSACTIONS, MAX_TIMEOUT_MS
from txnlog.common.limits import DEFAULT_TIMEOUT_MS
from txnlog.common.names import parse_label
from txnlog.common.unpicklable import ProcessBound
from txnlog.common.validation import Duration, duration_ms, whole_number
from txnlog.errors import InvalidInputError, InvalidTransactionState, TopicNotFound, TxnLogError
from txnlog.fold.overdue import overdue
from txnlog.fold.topics import topic_named
from txnlog.fold.transactions import too_many_open
from txnlog.log.append_errors import note_repeatable
from txnlog.log.commands import digest_of_call
from txnlog.log.transaction_commands import CommitCommand, CommitResult, Opening
from txnlog.replies import AGAIN_WITH_SEQUENCE, IfUnknown, unknown_outcome
from txnlog.results import Committed
from txnlog.sentences import Call, Words

if TYPE_CHECKING:
    from txnlog.client.connection import Connection


_LEAST_KEPT: Final = 64
"""Transactions of a producer that are noted before it is looked which of them ended: at every one would be slow."""


class Producer(ProcessBound):
    """Begins transactions and produces plainly. A name makes it exclusive: a newer producer with it fences this one.

    Attributes:
        name: its name, None for an anonymous one.
        epoch: the version of the entry that started it, None for an anonymous one; a newer producer has a higher one.
    """

    def __init__(self, connection: Connection, name: str | None, epoch: int | None) -> None:
        self._connection = connection
        self.name = name
        self.epoch = epoch
        self._closed = False
        self._open: dict[int, Transaction] = {}
        self._most_kept = _LEAST_KEPT
        self._owner = connection.identity

    def __repr__(self) -> str:
        return f"Producer({self.name!r}, epoch={self.epoch})"

    def __enter__(self) -> Producer:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def begin(
        self, *, timeout_ms: Duration | None = None, txn_app_id: str | None = None, txn_version: int | None = None
    ) -> Transaction:
        """Begin a transaction; several may be open at once. No request, once numbers are reserved.

        In a ``with`` block it ends at the end of the block: it is committed, or aborted where anything raises, the
        commit included; only one whose outcome is unknown (``OutcomeUnknown``) waits for ``commit()`` or ``abort()``.

        Args:
            timeout_ms: from the first produce or acknowledge to the commit; 60 s by default, capped by the namespace.
            txn_app_id: with ``txn_version`` makes a batch idempotent (Delta's names).
            txn_version: one not above the last committed version of the app is skipped, and the result says so.

        Raises:
            ProducerFenced: a newer producer has this name.
            InvalidInputError, NameNotAllowed: a timeout above the cap, one of ``txn_app_id`` and ``txn_version`` alone,
                or a value that neither can have.
            LimitExceeded: the namespace has too many open transactions.
            OutcomeUnknown: the store did not answer when numbers for TxnIDs were to be reserved; call it again: no
                transaction has begun.
        """
        self._check()
        txn = begin_transaction(
            self._connection,
            self.name,
            self.epoch,
            timeout_ms=timeout_ms,
            txn_app_id=txn_app_id,
            txn_version=txn_version,
        )
        self._keep(txn)
        if self._closed:  # before it was kept, or just now: then it may have been missed
            txn._discard()
            self._check()
        return txn

    def _keep(self, txn: Transaction) -> None:
        """Note one that ``close`` has to abort. Those that ended are let go of when the list has doubled."""
        if len(self._open) >= self._most_kept:
            for number, item in list(self._open.items()):
                if item.state != "OPEN":
                    self._open.pop(number, None)
            self._most_kept = max(_LEAST_KEPT, 2 * len(self._open))
        self._open[txn.id.number] = txn

    def produce(self, topic: str, data: Any, partition: int | None = None, *, sequence: int | None = None) -> Committed:
        """Produce outside a transaction: one atomic entry, visible on return.

        With a name and a partition it is idempotent: ``sequence`` is that of the first row (assigned if left out); a
        repeated batch, or a part of it, gives its original offsets and ``result.duplicate``.

        Raises:
            OutOfOrderSequence: a gap after the last sequence; rows up to it repeated together with new ones (leave the
                former out); or rows below the first sequence.
            LimitExceeded: the sequences of the rows would end above 2^63 - 2; nothing was written.
            SchemaMismatch, TopicNotFound, OffsetOutOfRange, ProducerFenced: nothing was written.
            OutcomeUnknown: with a ``sequence`` make the same call again; without, its rows would be there twice:
                ``ns.abort(error.txn_ids[0])`` makes the outcome of the first call definite, and returns it.
        """
        self._check()
        return produce_plain(self._connection, self.name, self.epoch, topic, data, partition, sequence)

    def last_sequence(self, topic: str, partition: int) -> int | None:
        """The last visible sequence of this name in a partition, of any epoch; None before the first.

        It says nothing of a batch whose outcome is unknown: settle that one before.

        Raises:
            InvalidInputError: the producer has no name.
            ProducerFenced: a newer producer has it.
            TopicNotFound, OffsetOutOfRange: there is no such topic, or partition of it.
        """
        self._check()
        if self.name is None:
            raise InvalidInputError(
                "an anonymous producer has no sequences", advice=Words("name it: ", Call("producer", "name"))
            )
        self._connection.follower.refresh()
        self._check()
        record = self._connection.topic_record(topic)
        partition = check_partition(topic, partition, record.partitions)
        known = self._connection.follower.state.sequences.get((self.name, record.id, partition))
        return None if known is None else known.last

    def close(self) -> None:
        """Abort the open transactions of this handle; the name stays, for the next producer.

        Commits that are under way, or whose outcome is unknown, are left to their end.
        """
        if self._owner is not self._connection.identity:
            return  # in a forked child: they are the parent's
        self._closed = True
        for number, txn in list(self._open.items()):
            txn._discard()
            self._open.pop(number, None)  # behind it: a close that was interrupted is called again

    def _check(self) -> None:
        self._connection.check_owner(self._owner, "producer")
        if self._closed:
            raise InvalidTransactionState(
                "the producer is closed", advice=Words("start another with ", Call("producer", "..."))
            )
        self._connection.check_producer(self.name, self.epoch)


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


__all__ = ["Producer", "begin_transaction", "produce_plain"]
