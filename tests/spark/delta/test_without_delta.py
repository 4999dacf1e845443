"""A session without Delta is told that it has none, before anything is written."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

import spark_ext
from tests.spark.support import path_of
from txnlog.errors import InvalidInputError, UnsupportedFeature

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from txnlog.api.namespace import Namespace


def test_write_delta_says_that_the_session_has_no_delta(spark: SparkSession, namespace: Namespace) -> None:
    with (
        pytest.raises(UnsupportedFeature, match="configure_spark_with_delta_pip"),
        spark_ext.transaction(spark, path_of(namespace), txn_app_id="a", txn_version=1) as txn,
    ):
        spark_ext.write_delta(spark.range(1), "/nowhere/bills", txn)
    with pytest.raises(UnsupportedFeature, match="this session has no Delta"):
        spark_ext.transaction(spark, path_of(namespace), producer="bills", decided_by="/nowhere/bills")
    assert namespace.transactions() == ()


@pytest.mark.parametrize("table", ["", "  ", None, 7])
def test_write_delta_wants_a_table_and_a_dataframe(spark: SparkSession, namespace: Namespace, table: object) -> None:
    with spark_ext.transaction(spark, path_of(namespace), txn_app_id="a", txn_version=1) as txn:
        with pytest.raises(InvalidInputError, match="a Delta table is a path or a name"):
            spark_ext.write_delta(spark.range(1), table, txn)  # type: ignore[arg-type]  # on purpose
        with pytest.raises(
            InvalidInputError, match=r"write_delta takes a Spark DataFrame, not list \(.*createDataFrame"
        ):
            spark_ext.write_delta([1], "/nowhere/bills", txn)  # type: ignore[arg-type]  # on purpose
