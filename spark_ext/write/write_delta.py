"""Rows into a Delta table of somebody else's, exactly once, with a transaction of ours: ``spark_ext.write_delta``.

Two logs cannot take one entry. So the rows go to the Delta table first, at the end of the transaction, under an
identity that the same work has again after a crash (``delta_identity``); then comes our entry. Whoever dies between the
two does the work again, and Delta tells that it has the rows.
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
    """Append a DataFrame to a Delta table of somebody else's, exactly once, with a transaction of ours.

    ::

        def bill(batch, txn):
            txn.write(batch.where("late"), "delays")
            spark_ext.write_delta(batch.groupBy("customer").count(), "/data/delta/counts", txn)

        spark_ext.process(spark, "/data/lake/sales", topics=["orders"], subscription="billing", handler=bill)

    The rows are computed and appended when the transaction commits: first the Delta table, in one commit of its own
    with its ``txn`` action, then our entry. So readers of the table see the rows a moment before topics show theirs,
    and a death between the two leaves them there, while nothing of ours is committed. What is promised is about what
    comes then:

    - **process**: the next run finds in the table which offsets its last batch had, brings exactly these again to the
      handler, and appends nothing for them. Rows that the handler makes otherwise this time are not appended.
    - **write_stream**: the query, started with the same checkpoint, brings the batch with the same source offsets, and
      Delta skips it. With a new checkpoint it is another query, which begins at the cursor: rows come twice.
    - **transaction** with ``txn_app_id`` and ``txn_version``: the same version again is skipped by the table. That the
      same version means the same rows is the caller's word.
    - **transaction** with ``producer`` and ``decided_by=table``: all of it or nothing, in both; nothing comes again
      that was decided. See :func:`spark_ext.transaction`.

    Where a table holds something later than, or other than, what is to be appended, it is an error and nothing is
    committed: no row is left out silently. A table that forgets applications
    (``delta.setTransactionRetentionDuration``) is refused, and a session that lets Delta note nothing with its commits
    (``spark.databricks.delta.commitInfo.enabled``).

    Args:
        df: the rows; columns by name, as Delta has it.
        table: a path or URL, or a name; the table must be there.
        txn: the transaction of the block or handler. Each table is written to once in it.
        options: of Delta's writer, such as ``{"mergeSchema": "true"}``.

    Raises:
        InvalidInputError: there is no such table, it is a topic's, or the transaction has no identity that a second
            run would have again: it is without ``txn_app_id``; or ``txn`` is none.
        UnsupportedFeature: the session has no Delta, or is Spark Connect's.
        TransactionHasFailedOperation, InvalidTransactionState: the transaction takes no more work.

    What the append itself raises, the end of the block raises: ``SchemaMismatch`` for columns that are not the table's,
    what else Spark says, ``TransactionConflict`` or ``ConsumerFenced`` where another one writes under the same
    identity, ``CorruptionError`` where what the table notes of the last batch is damaged, ``OutcomeUnknown`` where it
    does not tell whether it took the rows. Nothing is committed here.
    """
    if not isinstance(txn, DataFrameTransaction):
        raise InvalidInputError(
            f"txn is a transaction over DataFrames, not {type_of(txn)}",
            advice="pass the one that the handler is given, or of `with spark_ext.transaction(...) as txn:`",
        )
    identity = txn._identity
    if not txn.skipped and identity is None:
        raise InvalidInputError(
            "nothing tells a second run of this transaction from other work: its rows would come twice after a crash",
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
