"""Appending rows to a Delta table that is no topic, exactly once, within a transaction: ``spark_ext.write_delta``.

Two logs cannot share an entry. So the rows go to the Delta table first, at the end of the transaction, under an
identity that the same work has again after a crash (``spark_ext.delta.idempotence``); then the transaction is committed
in the log. After a crash between the two the work is done again, and Delta skips the rows that it has.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from spark_ext.delta.delta_table import DeltaTable, check_options
from spark_ext.write.dataframe_transaction import DataFrameTransaction, no_frame
from txnlog.common.validation import type_of
from txnlog.errors import InvalidInputError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def write_delta(
    df: DataFrame, table: str, txn: DataFrameTransaction, *, options: Mapping[str, str] | None = None
) -> None:
    """Append a DataFrame to a Delta table that is no topic, exactly once, within a transaction.

    ::

        def bill(batch, txn):
            txn.write(batch.where("late"), "delays")
            spark_ext.write_delta(batch.groupBy("customer").count(), "/data/delta/counts", txn)

        spark_ext.process(spark, "/data/lake/sales", topics=["orders"], subscription="billing", handler=bill)

    The rows are computed and appended when the transaction commits: first the Delta table, in one commit of its own
    with its ``txn`` action, then the transaction in the log. So readers of the table see the rows a moment before
    topics show theirs, and after a crash between the two the table has them, while the transaction is not committed.
    The guarantee is about what happens then:

    - **process**: the next run reads in the table which offsets its last batch had, calls the handler with exactly
      these again, and appends nothing for them. If the handler computes other rows this time, they are not appended.
    - **write_stream**: the query, started with the same checkpoint, repeats the batch with the same source offsets, and
      Delta skips it. With a new checkpoint it is another query, which begins at the cursor: rows come twice.
    - **transaction** with ``txn_app_id`` and ``txn_version``: the table skips the same version. The caller has to use
      the same version for the same rows only.
    - **transaction** with ``producer`` and ``decided_by=table``: all of it or nothing takes effect, in both; what is
      decided is never repeated. See :func:`spark_ext.transaction`.

    If a table has something later than, or other than, the rows to be appended, that is an error and nothing is
    committed: no row is left out silently. A table that forgets applications
    (``delta.setTransactionRetentionDuration``) is refused, and so is a session in which Delta stores no notes with its
    commits (``spark.databricks.delta.commitInfo.enabled``).

    Args:
        df: the rows; columns by name, as Delta has it.
        table: a path or URL, or a name; the table must exist.
        txn: the transaction of the block or handler. Each table is written to once in it.
        options: of Delta's writer, such as ``{"mergeSchema": "true"}``.

    Raises:
        InvalidInputError: there is no such table, it is a topic's, or the transaction has no identity that a repeated
            run would have again (it is without ``txn_app_id``); or ``txn`` is no transaction.
        UnsupportedFeature: the session has no Delta, or is Spark Connect's.
        TransactionHasFailedOperation, InvalidTransactionState: the transaction accepts no more work.

    The end of the block raises the errors of the append itself: ``SchemaMismatch`` for columns that are not the
    table's, other errors of Spark, ``TransactionConflict`` or ``ConsumerFenced`` if another writer has the same
    identity, ``CorruptionError`` if the table's note about the last batch is damaged, ``OutcomeUnknown`` if it could
    not be found out whether the table has the rows. The transaction is not committed then.
    """
    if not isinstance(txn, DataFrameTransaction):
        raise InvalidInputError(
            f"txn is a transaction over DataFrames, not {type_of(txn)}",
            advice="pass the one that the handler gets, or that of `with spark_ext.transaction(...) as txn:`",
        )
    identity = txn._identity
    if not txn.skipped and identity is None:
        raise InvalidInputError(
            "the transaction has no identity by which a repetition is recognized: its rows would come twice after a "
            "crash",
            advice="begin it with txn_app_id=... and txn_version=..., or write in a handler of process or write_stream",
        )
    if not hasattr(df, "sparkSession"):
        raise no_frame("write_delta", df, "make one of it with spark.createDataFrame(...)")
    given = check_options(options)
    found = DeltaTable(df.sparkSession, table)
    if txn.skipped or identity is None:
        return
    identity.attach(txn, found, df, given)


__all__ = ["write_delta"]
