"""Two-phase commit decided by a Delta table: ``spark_ext.transaction(..., producer=..., decided_by=table)``.

First the transaction is prepared: its rows are durable, and nobody sees them. Then its rows for the table are appended
there, under a version that belongs to this transaction alone: that Delta commit is the decision. Then the decision is
written to the log. After a crash the recovery reads the decision from the table. If there is none, the recovery decides
against the transaction with a commit without rows: Delta then skips the owner's append, should it still come.
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
    TxnLogError,
)
from txnlog.replies import Rest, after_writing, as_part_of

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
"""Others may write under the application at the same moment: each owner and each recovery once."""


class _Decided(msgspec.Struct, frozen=True):
    """The note in the Delta commit of a decision.

    Attributes:
        txn: the TxnID of the transaction whose rows they are.
        entry: a digest of the entry that prepared it, which distinguishes it from a transaction of another log with the
            same TxnID and version: the entry contains its writer's random id. Older releases of this library note none.
    """

    txn: str
    entry: str | None = None


class DeltaDecision:
    """The Delta table that decides the transactions of a producer.

    A transaction that was prepared at version p of the log is decided by the application's version 2p (with its rows:
    commit) or 2p + 1 (without rows: abort). The producer's next transaction has a later version, since older ones are
    settled before it begins.

    Attributes:
        producer: the producer's name in the log. It contains the table's id, so that no other table decides.
    """

    def __init__(self, ns: Namespace, table: Table, producer: str) -> None:
        self._ns = ns
        self._table = table
        self._app = app_of(connection_of(ns), f"producer/{parse_producer_name(producer)}")
        self.producer = parse_producer_name(f"{producer}@{table.id}")

    def settle(self) -> None:
        """Complete the prepared transactions of older owners, once the initialized producer has fenced them.

        Raises:
            TransactionConflict: the table has a later decision: the table or the log is an older copy.
            OutcomeUnknown: the table or the log did not answer; a transaction may be decided by now.
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
        """Prepare, let the table decide, and write the decision to the log. A repeated call does what is left.

        Raises:
            TransactionAborted: the outcome of the append was unknown; now it is known that the table never gets the
                rows.
            ProducerFenced: a newer owner decided against the transaction.
            TransactionConflict: see :meth:`_settled`.
            OutcomeUnknown: the table or the log did not answer; the transaction may be decided either way.
            Exception: what the append raised. The table decided against the transaction.
        """
        token = inner.prepare()
        with self._asked_about(token):  # also before the append: an earlier call may have done it
            found = self._ns.transaction(token)
        error: Exception | None = None
        appended = False
        if found.state == "PREPARED":  # otherwise it is decided already, by a newer owner or an earlier call
            yes = _yes(found)
            try:
                last = self._table.last(self._app)
                if last is None or last < yes:
                    note = msgspec.to_builtins(self._decided(found))
                    self._table.append(df, self._app, yes, note, options)
                    appended = True
            except Exception as failure:  # noqa: BLE001 - whatever it is, the table knows whether it has the rows
                error = failure
        try:
            committed = self._completed(token, commit=True) if appended else self._settled(token)
        except TxnLogError as unsettled:
            if error is not None:  # which is what the user has to correct, whatever came behind it
                why = str(error).partition("\n")[0]
                unsettled.add_note(f"before that the Delta table {shortened(self._table.name)} refused the rows: {why}")
            raise
        if committed is not None:
            return committed
        if isinstance(error, OutcomeUnknown):  # the outcome is known by now
            raise TransactionAborted(
                f"{token} is aborted, since the Delta table {shortened(self._table.name)} decided against it: "
                f"{error.message}",
                reason="failed",
                durable=Durable.NOTHING,
            ) from error
        if error is not None and not isinstance(error, TransactionConflict):
            raise error
        raise ProducerFenced(f"a newer {self.producer} took over and decided against {token}", durable=Durable.NOTHING)

    def _settled(self, token: str) -> Committed | None:
        """Complete a prepared transaction as the table decided, or decides now. Returns None for an abort.

        Raises:
            TransactionConflict: another transaction has its version in the table: one of a copy of the log, or of the
                log before it was restored to an older state. The transaction is aborted then, since its own rows can
                never get there.
            CorruptionError: the note in the table is damaged, or the entry that prepared the transaction is missing.
            OutcomeUnknown: the table or the log did not answer; the transaction may be decided either way.
        """
        with self._asked_about(token):
            found = self._ns.transaction(token)
            # A transaction in another state was completed by somebody else.
            verdict = self._verdict(found) if found.state == "PREPARED" else found.state == "COMMITTED"
        if verdict is True:
            return self._completed(token, commit=True)
        aborted = self._completed(token, commit=False)
        if isinstance(verdict, TransactionConflict):
            raise verdict
        return aborted

    def _verdict(self, found: TransactionInfo) -> bool | TransactionConflict:
        """Whether the table decided for a prepared transaction. Decides against it if there is no decision yet.

        Returns an error if the table has another transaction under the same version, to be raised after the abort.
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
                        f"the note in version {delta_version} of the Delta table {shortened(self._table.name)} about "
                        f"a decision of {self._app} is damaged, or was not written by this library",
                        advice=_BY_HAND,
                        durable=Durable.MAYBE,
                    ) from error
                ours = self._decided(found)
                if decided.txn == ours.txn and decided.entry in {ours.entry, None, ""}:
                    return True
                return TransactionConflict(
                    f"version {yes} of {self._app} in the Delta table {shortened(self._table.name)}, since its "
                    f"version {delta_version}, is not of {ours.txn}, which was aborted: nothing of it is committed",
                    advice="a copy of the namespace writes to the table, or the namespace was restored to an older "
                    "state: compare the table's rows with the topics, then do the work again, or under another "
                    "producer",
                )
            if last is not None and last > yes:
                break
            with suppress(TransactionConflict):
                self._table.take(self._app, yes + 1, {"refused": str(found.txn_id)})
        raise TransactionConflict(
            f"the Delta table {shortened(self._table.name)} does not show how it decided about {found.txn_id}: it has "
            f"version {self._table.last(self._app)} of {self._app}, instead of {yes} or {yes + 1} with a note that "
            "names the transaction",
            advice=_BY_HAND,
            durable=Durable.MAYBE,
        )

    @contextmanager
    def _asked_about(self, token: str) -> Iterator[None]:
        """Context in which an error of the store, while the decision is looked up, becomes OutcomeUnknown."""
        try:
            yield
        except StoreError as error:
            raise OutcomeUnknown(
                f"it is unknown how the Delta table {shortened(self._table.name)} decided about {token}: "
                f"{error.message}",
                advice=f"{Rest.DECIDE}: ns.transaction({token!r}) shows then how it ended",
            ) from error

    def _completed(self, token: str, *, commit: bool) -> Committed | None:
        """Write to the log how the table decided: where it has the rows it has them even if this fails."""
        with after_writing(Rest.DECIDE), as_part_of(Rest.DECIDE):
            return self._ns.complete(token, commit=commit)

    def _decided(self, prepared: TransactionInfo) -> _Decided:
        """The note for the rows of a transaction. Raises CorruptionError where its entry is missing."""
        assert prepared.version is not None, "what was prepared is in the log"
        return _Decided(str(prepared.txn_id), short_digest(connection_of(self._ns), prepared.version))


def _yes(prepared: TransactionInfo) -> int:
    """The application's version that decides for a prepared transaction. Once it ended, it has another version."""
    assert prepared.state == "PREPARED", "whoever asks has seen that it is"
    assert prepared.version is not None, "what was prepared is in the log"
    return 2 * prepared.version


__all__ = ["DeltaDecision"]
