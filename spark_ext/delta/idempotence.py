"""By what a Delta table knows the work of a transaction, before it is committed here, and when it comes again.

=================  ============================================  =======================================================
begun by           application and version in the Delta table    the same work again is
=================  ============================================  =======================================================
``transaction``    ``txn_app_id`` and ``txn_version``            what the caller says it is
``write_stream``   the query in its checkpoint, and the batch    the same source offsets, which the checkpoint keeps
``process``        the subscriptions, and the run with a number  the same offsets, in ``delta_batches``
=================  ============================================  =======================================================

Applications are named ``txnlog/<log>/...``: the log is told by its first entry, so that a root that was made again is
another one. Nothing is asked of the store, or of Delta, before somebody writes to a Delta table.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Protocol

from spark_ext.support.namespace_cache import log_of
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
    """What a Delta table is asked here: see :class:`spark_ext.delta.delta_table.DeltaTable`, which is one."""

    id: str
    name: str

    def last(self, app: str) -> int | None:
        """The last version of an application."""

    def apps(self, prefix: str) -> list[str]:
        """The applications whose names begin so."""

    def newest_records(self, app: str) -> Iterator[tuple[int, Mapping[str, Any]]]:
        """What was noted with an application's commits, newest first."""

    def append(
        self, df: DataFrame, app: str, version: int, record: Mapping[str, Any], options: Mapping[str, str]
    ) -> None:
        """Append under a version.

        Raises TransactionConflict where that one, or a later one, is there, or comes meanwhile.
        """

    def take(self, app: str, version: int, record: Mapping[str, Any]) -> None:
        """The same without a row."""


class CommittingTransaction(Protocol):
    """What a transaction of DataFrames is asked here: see ``DataFrameTransaction``, which is one."""

    @property
    def id(self) -> TxnId:
        """Its TxnID."""

    def _before_commit(self, where: str, key: str, work: Callable[[], None]) -> None:
        """Do something once, before the commit."""

    def _decide_by(self, decide: Callable[[Transaction], Committed]) -> None:
        """Let somebody else decide at the commit."""


class Identity(Protocol):
    """By what a Delta table knows the work of one transaction."""

    def attach(self, txn: CommittingTransaction, table: DeltaTable, df: DataFrame, options: Mapping[str, str]) -> None:
        """Let the commit of a transaction bring rows to a table, which must be the first work for it."""


class AppendsFirst:
    """Rows go to the table, then comes our entry."""

    __slots__ = ()

    def attach(self, txn: CommittingTransaction, table: Table, df: DataFrame, options: Mapping[str, str]) -> None:
        """See :class:`Identity`."""
        txn._before_commit(
            f"Delta table {shortened(table.name)}", table.id, partial(self.append, table, df, txn.id, options)
        )

    def append(self, table: Table, df: DataFrame, txn: TxnId, options: Mapping[str, str]) -> None:
        """Append the rows, unless the table has them; raises where it has others in their place."""
        raise NotImplementedError


def app_of(connection: Connection, name: str) -> str:
    """The application in a Delta table."""
    return f"txnlog/{log_of(connection)}/{name}"


def noted(table: Table, app: str, version: int) -> tuple[int, Mapping[str, Any]] | None:
    """What was noted under an application's version, with the table's own; None where clean-up took it, or nobody did.

    It tells whose commit it was: Delta's own number tells only that there was one.
    """
    for delta_version, record in table.newest_records(app):
        if record.get("version") == version:
            return delta_version, record
    return None


# --- work that has a version by itself --------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Versioned(AppendsFirst):
    """A batch with a version that grows, and that the same batch has again.

    Attributes:
        connection: of the namespace.
        name: of the application in this log.
        version: of this batch.
        content: what tells it from another batch under its version; empty where nothing does.
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
            if not self._is_there(table, app):  # else the other one was the same work, and was quicker
                raise

    def _is_there(self, table: Table, app: str) -> bool:
        """Whether the table has this batch. Raises TransactionConflict where it has another one, or a later one."""
        last = table.last(app)
        if last is None or last < self.version:
            return False
        if last > self.version:
            raise TransactionConflict(
                f"the Delta table {shortened(table.name)} has version {last} of {app}, and this is {self.version}: "
                "it would skip the rows",
                advice="a later batch was written and never committed here, or this log is an older copy; compare them",
            )
        found = noted(table, app, self.version) if self.content else None
        if found is not None and found[1].get("content") != self.content:
            raise TransactionConflict(
                f"the Delta table {shortened(table.name)} has another batch under version {self.version} of {app}, "
                f"since its version {found[0]}",
                advice="the checkpoint is another one than when that was written; compare them",
            )
        return True


def of_app(connection: Connection, txn_app_id: str, txn_version: int) -> Versioned:
    """Of a transaction with a version of an application."""
    return Versioned(connection, f"app/{txn_app_id}", txn_version)


def of_stream(connection: Connection, query: str, batch: int, digest: str) -> Versioned:
    """Of a micro-batch: its number, in the query that a checkpoint belongs to."""
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
