"""A producer: named, with an epoch that fences its predecessor, or anonymous."""

from __future__ import annotations

import threading
from types import TracebackType
from typing import TYPE_CHECKING, Any

from txnlog.arguments import whole_number
from txnlog.errors import InvalidInputError, InvalidTransactionState, OffsetOutOfRange
from txnlog.results import Committed
from txnlog.transaction import Transaction

if TYPE_CHECKING:
    from txnlog.namespace import Namespace


class Producer:
    """Begins transactions and produces plainly. A name makes it exclusive: a newer producer with it fences this one."""

    def __init__(self, namespace: Namespace, name: str | None, epoch: int | None) -> None:
        self._namespace = namespace
        self.name = name
        self.epoch = epoch
        self._closed = False
        self._open: list[Transaction] = []
        self._lock = threading.Lock()
        self._owner = namespace.identity

    def __repr__(self) -> str:
        return f"Producer({self.name!r}, epoch={self.epoch})"

    def __enter__(self) -> Producer:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def begin(
        self, *, timeout_ms: int | None = None, txn_app_id: str | None = None, txn_version: int | None = None
    ) -> Transaction:
        """Begin a transaction; several may be open at once. No round trip once the client has a block of numbers.

        Args:
            timeout_ms: from the first produce or acknowledge to the commit; 60 s by default, capped by the namespace.
            txn_app_id: with ``txn_version`` makes a batch idempotent (Delta's names).
            txn_version: one not above the last committed version of the app is skipped, and the result says so.
        """
        self._check()
        txn = self._namespace.begin_for(
            self.name, self.epoch, timeout_ms=timeout_ms, txn_app_id=txn_app_id, txn_version=txn_version
        )
        with self._lock:
            closed = self._closed
            if not closed:
                self._open = [*(item for item in self._open if item.state == "OPEN"), txn]
        if closed:
            txn.discard()
            self._check()
        return txn

    def produce(self, topic: str, data: Any, partition: int | None = None, *, sequence: int | None = None) -> Committed:
        """Produce outside a transaction: one atomic entry, visible on return.

        With a name and a partition it is idempotent: ``sequence`` is that of the first row (assigned if left out); a
        repeated batch gives its original offsets and ``result.duplicate``.

        Raises:
            OutOfOrderSequence: a gap after the last sequence, or a part of a batch repeated.
        """
        self._check()
        return self._namespace.produce_for(self.name, self.epoch, topic, data, partition, sequence)

    def last_sequence(self, topic: str, partition: int) -> int | None:
        """The last visible sequence of this name in a partition, of any epoch; None before the first."""
        self._check()
        if self.name is None:
            raise InvalidInputError("an anonymous producer has no sequences", advice="name it: ns.producer(name)")
        self._namespace.follower.refresh()
        self._check()
        record = self._namespace.topic_record(topic)
        if whole_number("partition", partition, 0) >= record.partitions:
            raise OffsetOutOfRange(
                f"the topic {topic!r} has no partition {partition}", advice=f"use 0 to {record.partitions - 1}"
            )
        known = self._namespace.follower.state.sequences.get((self.name, record.id, partition))
        return None if known is None else known.last

    def close(self) -> None:
        """Abort the open transactions of this handle; the name stays, for the next producer.

        Commits that are under way, or in doubt, are left to their end.
        """
        if self._owner is not self._namespace.identity:
            return  # in a forked child: they are the parent's, and so is the lock
        with self._lock:
            self._closed = True
            left, self._open = self._open, []
        for txn in left:
            txn.discard()

    def _check(self) -> None:
        self._namespace.check_owner(self._owner, "producer")
        if self._closed:
            raise InvalidTransactionState("the producer is closed", advice="start another with ns.producer(...)")
        self._namespace.check_producer(self.name, self.epoch)


__all__ = ["Producer"]
