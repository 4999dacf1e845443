"""Metadata of a namespace as DataFrames: the rows of the Arrow tables, also of those without any."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

import spark_ext
from txnlog.api.tables import TABLES
from txnlog.errors import InvalidInputError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from txnlog.api.namespace import Namespace


def _plain(value: Any) -> Any:
    """A value of Spark as PyArrow shows it: times with their zone, maps as pairs."""
    if isinstance(value, dict):
        return sorted(value.items())
    if isinstance(value, list):
        return [_plain(item.asDict() if hasattr(item, "asDict") else item) for item in value]
    return value.timestamp() if hasattr(value, "timestamp") else value


def test_each_table_is_a_dataframe_with_its_rows_and_columns(spark: SparkSession, namespace: Namespace) -> None:
    path = f"{namespace.root}/{namespace.name}"
    empty = spark_ext.metadata(spark, path, "producers")
    assert (empty.columns, empty.count()) == (TABLES["producers"].schema.names, 0)
    namespace.create_topic("orders", partitions=2)
    namespace.create_subscription("orders", "billing")
    with namespace.producer("loader") as producer:
        producer.produce("orders", [{"value": b"1"}, {"value": b"2"}])
    pending = namespace.begin()
    pending.produce("orders", [{"value": b"3"}])
    pending.flush()
    for name in TABLES:
        frame = spark_ext.metadata(spark, path, name)
        assert frame.columns == TABLES[name].schema.names
        found = [row.asDict() for row in frame.collect()]
        wanted = namespace.table(name).to_pylist()
        varying = {"age_ms", "lag_ms", "modified"}
        assert len(found) == len(wanted) > 0, name
        for row, other in zip(found, wanted, strict=True):
            for column in set(row) - varying:
                if column != "slices":
                    assert _plain(row[column]) == _plain(dict(other[column]) if column == "actions" else other[column])
        assert spark_ext.metadata(spark, path, name, limit=1).count() == 1
    slices = spark_ext.metadata(spark, path, "segments").selectExpr("sum(aggregate(slices, 0L, (a, s) -> a + s.rows))")
    assert slices.collect()[0][0] == 3
    history = spark_ext.metadata(spark, path, "history")
    assert history.selectExpr("sum(actions['commit'])").collect()[0][0] == 1
    pending.abort()


def test_a_topic_and_an_unknown_table_are_refused(spark: SparkSession, namespace: Namespace) -> None:
    namespace.create_topic("orders")
    path = f"{namespace.root}/{namespace.name}"
    with pytest.raises(InvalidInputError, match="names the topic 'orders': metadata is that of a whole namespace"):
        spark_ext.metadata(spark, f"{path}/orders", "files")
    with pytest.raises(InvalidInputError, match="did you mean 'files'"):
        spark_ext.metadata(spark, path, "file")
