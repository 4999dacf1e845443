"""The identity of a transaction's work in a Delta table, by which the same work is not appended twice.

=================  ============================================  =======================================================
begun by           application and version in the Delta table    the same work again is
=================  ============================================  =======================================================
``transaction``    ``txn_app_id`` and ``txn_version``            what the caller says it is
``write_stream``   the query in its checkpoint, and the batch    the same source offsets, which the checkpoint keeps
``process``        the subscriptions, and the run with a number  the same offsets, in ``delta_batches``
=================  ============================================  =======================================================

Applications are named ``txnlog/<log>/...``, where the log is identified by its first entry: a root that was created
again is another log. No request goes to the store, or to Delta, before the first write to a Delta table.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Protocol

from txnlog.common.ids import TxnId
from txnlog.common.validation import shortened
from txnlog.errors import TransactionConflict

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from spark_ext.delta.delta_table import DeltaTable
    from txnlog.api.transaction import Transaction
    from txnlog.client.connection import Connection
    from txnlog.results import Committed

_logger: Final = logging.getLogger("txnlog.spark")


class Table(Protocol):
    """The interface of a Delta table that identities use, which :class:`spark_ext.delta.delta_table.DeltaTable` has."""

    id: str
    name: str

    def last(self, app: str) -> int | None:
        """The last version of an application."""

    def apps(self, prefix: str) -> list[str]:
        """The applications whose names begin with a prefix."""

    def newest_records(self, app: str) -> Iterator[tuple[int, Mapping[str, Any]]]:
        """The records in an application's commits, with the table's versions, newest first."""

    def append(
        self, df: DataFrame, app: str, version: int, record: Mapping[str, Any], options: Mapping[str, str]
    ) -> None:
        """Append under a version of an application.

        Raises TransactionConflict where that version, or a later one, exists already, or is committed meanwhile.
        """

    def take(self, app: str, version: int, record: Mapping[str, Any]) -> None:
        """Claim a version with a commit without rows. Raises what ``append`` raises."""


class CommittingTransaction(Protocol):
    """The interface of a transaction that identities use, which ``DataFrameTransaction`` has."""

    @property
    def id(self) -> TxnId:
        """Its TxnID."""

    def _before_commit(self, where: str, key: str, work: Callable[[], None]) -> None:
        """Do something once, before the commit."""

    def _decide_by(self, decide: Callable[[Transaction], Committed]) -> None:
        """Let another system decide at the commit."""


class Identity(Protocol):
    """The identity of one transaction's work in a Delta table."""

    def attach(self, txn: CommittingTransaction, table: DeltaTable, df: DataFrame, options: Mapping[str, str]) -> None:
        """Make a transaction's commit append rows to a table. It must be its first work for the table."""


class AppendsFirst:
    """Identity of work that appends to the table first, and commits in the log afterwards."""

    __slots__ = ()

    def attach(self, txn: CommittingTransaction, table: Table, df: DataFrame, options: Mapping[str, str]) -> None:
        """See :class:`Identity`."""
        txn._before_commit(
            f"Delta table {shortened(table.name)}", table.id, partial(self.append, table, df, txn.id, options)
        )

    def append(self, table: Table, df: DataFrame, txn: TxnId, options: Mapping[str, str]) -> None:
        """Append the rows unless the table has them. Raises TransactionConflict where it has others in their place."""
        raise NotImplementedError


def app_of(connection: Connection, name: str) -> str:
    """The application in a Delta table."""
    return f"txnlog/{connection.log_label}/{name}"


def noted(table: Table, app: str, version: int) -> tuple[int, Mapping[str, Any]] | None:
    """The table's version and the record of an application's version; None if there is none, or Delta cleaned it up.

    It shows which transaction committed: Delta's own ``txn`` action shows only that one did.
    """
    for delta_version, record in table.newest_records(app):
        if record.get("version") == version:
            return delta_version, record
    return None


# --- work that has a version by itself --------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Versioned(AppendsFirst):
    """Identity of a batch by an increasing version, which the same batch has when it is repeated.

    Attributes:
        connection: the namespace's connection.
        name: the name of the application in this log.
        version: the version of this batch.
        content: distinguishes this batch from another one under its version; empty where nothing does.
    """

    connection: Connection
    name: str
    version: int
    content: str = ""

    def append(self, table: Table, df: DataFrame, txn: TxnId, options: Mapping[str, str]) -> None:
        """See :class:`AppendsFirst`."""
        app = app_of(self.connection, self.name)
        if self._is_there(table, app):
            _logger.info("%s has version %d of %s already: nothing is appended", table.name, self.version, app)
            return
        try:
            table.append(df, app, self.version, {"txn": str(txn), "content": self.content}, options)
        except TransactionConflict:
            if not self._is_there(table, app):  # otherwise another process did the same work
                raise

    def _is_there(self, table: Table, app: str) -> bool:
        """Whether the table has this batch. Raises TransactionConflict where it has another one, or a later one."""
        last = table.last(app)
        if last is None or last < self.version:
            return False
        if last > self.version:
            raise TransactionConflict(
                f"the Delta table {shortened(table.name)} has version {last} of {app}, so Delta would skip the rows of "
                f"version {self.version}",
                advice="a later batch was written and never committed in the log, or this log is an older copy; "
                "compare the table with the topics",
            )
        found = noted(table, app, self.version) if self.content else None
        if found is not None and found[1].get("content") != self.content:
            raise TransactionConflict(
                f"the Delta table {shortened(table.name)} has another batch under version {self.version} of {app}, "
                f"since its version {found[0]}",
                advice="the checkpoint is not the one with which that was written; compare the two",
            )
        return True


def of_app(connection: Connection, txn_app_id: str, txn_version: int) -> Versioned:
    """The identity of a transaction with a version of an application."""
    return Versioned(connection, f"app/{txn_app_id}", txn_version)


def of_stream(connection: Connection, query: str, batch: int, digest: str) -> Versioned:
    """The identity of a micro-batch: its number in the query that a checkpoint belongs to."""
    return Versioned(connection, f"stream/{query}", batch, digest)


__all__ = [
    "AppendsFirst",
    "CommittingTransaction",
    "Identity",
    "Table",
    "Versioned",
    "app_of",
    "noted",
    "of_app",
    "of_stream",
]
