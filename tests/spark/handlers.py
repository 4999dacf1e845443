"""A handler that hides an error, and the commits of entries."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

from txnlog.errors import SchemaMismatch
from txnlog.format.actions import Commit

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from spark_ext.write.dataframe_transaction import DataFrameTransaction
    from txnlog.api.namespace import Namespace


def commits(ns: Namespace, numbers: tuple[int, ...]) -> list[Commit]:
    entries = [ns._connection.follower.log.entry(number).actions for number in numbers]
    return [action for actions in entries for action in actions if isinstance(action, Commit)]


def hides_a_mismatch(batch: DataFrame, txn: DataFrameTransaction) -> None:
    with contextlib.suppress(SchemaMismatch):
        txn.write(batch.selectExpr("if(id = 6, null, id) AS id"), "odd")
