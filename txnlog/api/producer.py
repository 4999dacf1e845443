"""A producer: named, with an epoch that fences its predecessor, or anonymous."""

from __future__ import annotations

from types import TracebackType
from typing import TYPE_CHECKING, Any, Final

from txnlog.api.transaction import Transaction
from txnlog.api.writing import begin_transaction, produce_plain
from txnlog.client.partition_numbers import check_partition
from txnlog.client.unended import report_aborted
from txnlog.common.unpicklable import ProcessBound
from txnlog.common.validation import Duration
from txnlog.errors import InvalidInputError, InvalidTransactionState
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
        self._close(reports=error is None)  # else who hears of the error knows why

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

        Commits that are under way, or whose outcome is unknown, are left to their end. A line of Python's logging names
        the transactions that had work, and whose end nobody had asked for.
        """
        self._close(reports=True)

    def _close(self, *, reports: bool) -> None:
        if self._owner is not self._connection.identity:
            return  # in a forked child: they are the parent's
        self._closed = True
        lost = self._connection.settled_work(list(self._open))
        if reports:
            report_aborted(f"The producer {self.name!r} was closed", lost)
        for number, txn in list(self._open.items()):
            txn._discard(_aborted_by_close(txn, self.name))
            self._open.pop(number, None)  # behind it: a close that was interrupted is called again

    def _check(self) -> None:
        self._connection.check_owner(self._owner, "producer")
        if self._closed:
            raise InvalidTransactionState(
                "the producer is closed", advice=Words("start another with ", Call("producer", "..."))
            )
        self._connection.check_producer(self.name, self.epoch)


def _aborted_by_close(txn: Transaction, name: str | None) -> InvalidTransactionState:
    return InvalidTransactionState(
        f"the transaction {txn.id} was aborted when the producer {name!r} was closed",
        advice="commit before you close the producer, or leave its block; what was produced has to be produced again",
    )


__all__ = ["Producer"]
