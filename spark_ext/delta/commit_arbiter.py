"""One decision for a Delta table and for topics: ``spark_ext.transaction(..., producer=..., decided_by=table)``.

Two-phase commit with the Delta table as the other system. First everything of ours is prepared: durable, and seen by
nobody. Then the rows go to the table, under a version that is this transaction's alone: that commit is the decision.
Then the log is told. Who comes after a death asks the table how it decided, and where it did not, takes the place with
a commit without rows: Delta skips the owner's append then, should it still come.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import partial
from typing import TYPE_CHECKING, Final

import msgspec

from spark_ext.delta.idempotence import CommittingTransaction, Table, app_of, noted
from spark_ext.support.namespace_cache import short_digest
from txnlog.api.internals import connection_of
from txnlog.common.names import parse_producer_name
from txnlog.common.validation import shortened
from txnlog.errors import (
    CorruptionError,
    Durable,
    InvalidInputError,
    OutcomeUnknown,
    ProducerFenced,
    StoreError,
    TransactionAborted,
    TransactionConflict,
    after_writing,
)

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from txnlog.api.namespace import Namespace
    from txnlog.api.transaction import Transaction
    from txnlog.results import Committed, TransactionInfo

_logger: Final = logging.getLogger("txnlog.spark")

_BY_HAND: Final = (
    "look for its rows in the table, then: txnlog ROOT/NAMESPACE transactions complete TOKEN --commit, or --abort"
)

_ATTEMPTS: Final = 5
"""Others may write under the application at the same moment: each owner once, and each recovery once."""


class _Decided(msgspec.Struct, frozen=True):
    """What is noted with the rows of a decision.

    Attributes:
        txn: whose rows they are.
        entry: a digest of the entry that prepared it, which tells it from one of another log with its TxnID and
            version: the entry holds its writer's random id. Older versions of this library note none.
    """

    txn: str
    entry: str | None = None


class DeltaDecision:
    """The table that decides about the transactions of a producer.

    A transaction that the log shows since version p is decided by the application's version 2p (its rows: yes) or
    2p + 1 (no row: no). The next one of the producer is behind that, since older ones are settled before it begins.

    Attributes:
        producer: the name in the log. It holds the table's id, so that no other table is asked.
    """

    def __init__(self, ns: Namespace, table: Table, producer: str) -> None:
        self._ns = ns
        self._table = table
        self._app = app_of(connection_of(ns), f"producer/{parse_producer_name(producer)}")
        self.producer = parse_producer_name(f"{producer}@{table.id}")

    def settle(self) -> None:
        """Complete what older owners prepared. After the producer was started anew: they can prepare no more.

        Raises:
            TransactionConflict: the table has a later decision: it, or the log, is an older copy.
            OutcomeUnknown: the table, or the log, does not answer; one of them may be decided by now.
        """
        known = [item for item in self._ns.transactions(state="PREPARED") if item.producer == self.producer]
        for item in sorted(known, key=lambda item: item.version or 0):
            committed = self._settled(str(item.txn_id))
            how = "aborted" if committed is None else f"committed at version {committed.version}"
            _logger.warning("%s, which an older %s left prepared, is %s", item.txn_id, self.producer, how)

    def attach(self, txn: CommittingTransaction, table: Table, df: DataFrame, options: Mapping[str, str]) -> None:
        """See :class:`spark_ext.delta.idempotence.Identity`."""
        if table.id != self._table.id:
            raise InvalidInputError(
                f"the transaction {txn.id} is decided by the Delta table {shortened(self._table.name)}, not by "
                f"{shortened(table.name)}",
                advice="one table can decide; write others in a transaction with txn_app_id, or from the table's rows",
            )
        txn._decide_by(partial(self._finish, df, options))

    def _finish(self, df: DataFrame, options: Mapping[str, str], inner: Transaction) -> Committed:
        """Prepare, let the table decide, tell the log. Repeated it does what is left.

        Raises:
            TransactionAborted: the append left it open whether the table took the rows. It did not, and never will.
            ProducerFenced: a newer owner decided against it.
            TransactionConflict: see :meth:`_settled`.
            OutcomeUnknown: the table, or the log, does not answer, and it may be decided either way.
            Exception: what the append met. The table decided against it.
        """
        token = inner.prepare()
        with self._asked_about(token):  # also before the append: an earlier call may have done it
            found = self._ns.transaction(token)
        error: Exception | None = None
        appended = False
        if found.state == "PREPARED":  # else it was decided before: by a newer owner, or by an earlier call
            yes = _yes(found)
            try:
                last = self._table.last(self._app)
                if last is None or last < yes:
                    note = msgspec.to_builtins(self._decided(found))
                    self._table.append(df, self._app, yes, note, options)
                    appended = True
            except Exception as failure:  # noqa: BLE001 - whatever it was, the table tells whether the rows are there
                error = failure
        committed = self._committed(token) if appended else self._settled(token)
        if committed is not None:
            return committed
        if isinstance(error, OutcomeUnknown):  # it is known by now
            raise TransactionAborted(
                f"{token} is aborted, for the Delta table {shortened(self._table.name)} decided against it: "
                f"{error.message}",
                reason="failed",
                durable=Durable.NOTHING,
            ) from error
        if error is not None and not isinstance(error, TransactionConflict):
            raise error
        raise ProducerFenced(f"a newer {self.producer} took over and decided against {token}", durable=Durable.NOTHING)

    def _settled(self, token: str) -> Committed | None:
        """The end of a prepared transaction, as the table decided, or decides now: None where it is an abort.

        Raises:
            TransactionConflict: another transaction has its version, as one of a copy of the log has, or of the log
                before it was put back: it is aborted then, since its own rows can come there no more.
            CorruptionError: what the table notes is damaged, or the entry that prepared it is gone.
            OutcomeUnknown: the table, or the log, does not answer, and it may be decided either way.
        """
        with self._asked_about(token):
            found = self._ns.transaction(token)
            # Else somebody told the log already.
            verdict = self._verdict(found) if found.state == "PREPARED" else found.state == "COMMITTED"
        if verdict is True:
            return self._committed(token)
        aborted = self._ns.complete(token, commit=False)
        if isinstance(verdict, TransactionConflict):
            raise verdict
        return aborted

    def _verdict(self, found: TransactionInfo) -> bool | TransactionConflict:
        """Whether the table has a prepared transaction's rows, once it can no more come to have them.

        An error where it has another's under the same version: to be raised when this one is aborted.
        """
        yes = _yes(found)
        for _ in range(_ATTEMPTS):
            last = self._table.last(self._app)
            if last == yes + 1:
                return False
            if last == yes:
                note = noted(self._table, self._app, yes)
                if note is None:
                    break
                delta_version, record = note
                try:
                    decided = msgspec.convert(record, _Decided)
                except msgspec.ValidationError as error:
                    raise CorruptionError(
                        f"what the Delta table {shortened(self._table.name)} notes with its version {delta_version} "
                        f"about a decision of {self._app} is damaged, or not of this library",
                        advice=_BY_HAND,
                        durable=Durable.MAYBE,
                    ) from error
                ours = self._decided(found)
                if decided.txn == ours.txn and decided.entry in {ours.entry, None, ""}:
                    return True
                return TransactionConflict(
                    f"the Delta table {shortened(self._table.name)} has version {yes} of {self._app}, since its "
                    f"version {delta_version}, not of {ours.txn}, which is aborted: nothing of it is committed",
                    advice="a copy of the namespace writes there, or it was put back to an older state: compare the "
                    "table's rows with the topics, then do the work again, or under another producer",
                )
            if last is not None and last > yes:
                break
            with suppress(TransactionConflict):
                self._table.take(self._app, yes + 1, {"refused": str(found.txn_id)})
        raise TransactionConflict(
            f"the Delta table {shortened(self._table.name)} does not tell how it decided about {found.txn_id}: it has "
            f"version {self._table.last(self._app)} of {self._app}, and should have {yes} or {yes + 1}, and a note "
            "whose it is",
            advice=_BY_HAND,
            durable=Durable.MAYBE,
        )

    @contextmanager
    def _asked_about(self, token: str) -> Iterator[None]:
        """Around what the table, or the log, is asked about a transaction: without an answer it may be decided."""
        try:
            yield
        except StoreError as error:
            raise OutcomeUnknown(
                f"nobody tells how the Delta table {shortened(self._table.name)} decided about {token}: "
                f"{error.message}",
                advice="commit again, or begin the next transaction of the producer, which settles this one first: "
                f"ns.transaction({token!r}) tells then how it ended",
            ) from error

    def _committed(self, token: str) -> Committed | None:
        """Tell the log that the table decided for a transaction: it has the rows also where that fails."""
        with after_writing("commit again, or begin the next transaction of the producer, which settles this one first"):
            return self._ns.complete(token, commit=True)

    def _decided(self, prepared: TransactionInfo) -> _Decided:
        """What is noted with the rows of a transaction. Raises CorruptionError where its entry is gone."""
        assert prepared.version is not None, "what was prepared is in the log"
        return _Decided(str(prepared.txn_id), short_digest(connection_of(self._ns), prepared.version))


def _yes(prepared: TransactionInfo) -> int:
    """The version under which the table says yes. Of one that has ended the log tells another version: its end's."""
    assert prepared.state == "PREPARED", "whoever asks has seen that it is"
    assert prepared.version is not None, "what was prepared is in the log"
    return 2 * prepared.version


__all__ = ["DeltaDecision"]
