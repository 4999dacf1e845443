"""The program examples/ingest/delta_changes_in.py: the versions of a Delta table come once."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import spark_ext
from examples.ingest import delta_changes_in

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from txnlog.api.namespace import Namespace


def test_changes_come_once_over_restarts_and_deaths_and_a_run_that_only_hangs_brings_nothing(
    spark: SparkSession, namespace: Namespace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    namespace.create_topic("prices", delta_changes_in.CHANGES)
    table = str(tmp_path / "prices")
    spark.sql(
        f"CREATE TABLE delta.`{table}` (name STRING, price BIGINT) USING delta "
        "TBLPROPERTIES ('delta.enableChangeDataFeed' = 'true')"
    )
    spark.sql(f"INSERT INTO delta.`{table}` VALUES ('apple', 1), ('pear', 2)")
    assert delta_changes_in.bring(spark, namespace, table) == 2
    assert delta_changes_in.bring(spark, namespace, table) == 0
    spark.sql(f"UPDATE delta.`{table}` SET price = 3 WHERE name = 'apple'")
    write = spark_ext.DataFrameTransaction.write

    def overtaken(txn: Any, *given: Any) -> int:
        """While this run hangs, another one does its work, and more."""
        with monkeypatch.context() as patch:
            patch.setattr(spark_ext.DataFrameTransaction, "write", write)
            spark.sql(f"DELETE FROM delta.`{table}` WHERE name = 'pear'")
            assert delta_changes_in.bring(spark, namespace, table) == 2
        return write(txn, *given)

    monkeypatch.setattr(spark_ext.DataFrameTransaction, "write", overtaken)
    with pytest.raises(Exception, match="producer"):
        delta_changes_in.bring(spark, namespace, table)
    found = namespace.snapshot().read("prices").to_pylist()
    assert sorted((row["version"], row["change"], row["name"], row["price"]) for row in found) == [
        (1, "insert", "apple", 1),
        (1, "insert", "pear", 2),
        (2, "update_postimage", "apple", 3),
        (3, "delete", "pear", 2),
    ]
