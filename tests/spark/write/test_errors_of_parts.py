"""Transactions over DataFrames take several entries, and write to other systems: errors say what of it is there."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import TYPE_CHECKING

import pytest

import spark_ext
from spark_ext.write import write_jobs
from tests.client.support import SCHEMA, is_entry
from tests.spark.support import path_of
from txnlog.errors import Durable, StoreError
from txnlog.store.base import Created
from txnlog.store.local import LocalStore

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from txnlog.api.namespace import Namespace


@pytest.fixture
def full_behind(monkeypatch: pytest.MonkeyPatch) -> Callable[[int], None]:
    """From the call on so many entries can be put, and then the disk is full."""
    create = LocalStore.create

    def full(most: int) -> None:
        puts = itertools.count()

        def refuse(store: LocalStore, key: str, data: bytes) -> Created:
            if is_entry(key) and next(puts) >= most:
                raise StoreError("no space left", durable=Durable.NOTHING)
            return create(store, key, data)

        monkeypatch.setattr(LocalStore, "create", refuse)

    return full


@pytest.mark.parametrize("call", ["flush", "commit"])
def test_files_of_which_a_part_is_pending_are_said_to_be(
    namespace: Namespace,
    spark: SparkSession,
    monkeypatch: pytest.MonkeyPatch,
    full_behind: Callable[[int], None],
    call: str,
) -> None:
    """LIE: of files that are too many for one entry the first ones are in the log: "nothing was written"."""
    monkeypatch.setattr(write_jobs, "ENTRY_SEGMENTS", 1)
    namespace.create_topic("orders", SCHEMA)
    df = spark.range(2, numPartitions=1).selectExpr("id", "'n' name")
    with spark_ext.transaction(spark, path_of(namespace)) as txn:
        for _ in range(3):
            txn.write(df, "orders")
        full_behind(1)
        with pytest.raises(StoreError) as caught:
            txn.flush() if call == "flush" else txn.commit()
        assert [item.txn_id for item in namespace.transactions("OPEN")] == [txn.id], "a part of it"
        full_behind(9)
    assert caught.value.durable is Durable.MAYBE, caught.value


def test_rows_that_a_delta_table_has_are_not_nothing(
    namespace: Namespace, spark: SparkSession, full_behind: Callable[[int], None]
) -> None:
    """LIE: "nothing was written", with the note that the Delta table has the rows of the call."""
    namespace.create_topic("orders", SCHEMA)
    table: list[str] = []
    with spark_ext.transaction(spark, path_of(namespace), txn_app_id="nightly", txn_version=1) as txn:
        txn.write(spark.range(2).selectExpr("id", "'n' name"), "orders")
        txn._before_commit("Delta table 'totals'", "totals", lambda: table.append("rows"))  # as write_delta calls it
        full_behind(0)
        with pytest.raises(StoreError) as caught:
            txn.commit()
        full_behind(9)
    assert table == ["rows"]
    assert "has its rows" in caught.value.__notes__[0]
    assert caught.value.durable is Durable.MAYBE, caught.value
