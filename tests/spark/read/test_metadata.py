"""Metadata of a namespace as DataFrames: the rows of the Arrow tables, also of those without any."""

from __future__ import annotations

import pickle
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.errors import PySparkException
from pyspark.sql.datasource import InputPartition
from pyspark.sql.types import StructType

import spark_ext
from spark_ext.read.metadata import schema_of
from spark_ext.read.metadata_reader import MetadataReader
from spark_ext.source import TxnLogDataSource
from spark_ext.support.options import read_options
from tests.spark.support import path_of
from txnlog.api.tables import TABLES
from txnlog.errors import InvalidInputError, SchemaMismatch, TxnLogError, VersionNotAvailable

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


# --- the option of the format -----------------------------------------------------------------------------------------


def _planned(namespace: Namespace, schema: StructType | None = None, topic: str = "", **options: Any) -> MetadataReader:
    """What plans a read with the option, as Spark does it."""
    given = {"path": path_of(namespace, topic), **{name: str(value) for name, value in options.items()}}
    return MetadataReader(read_options(given, streaming=False), schema or schema_of(read_options(given)))


def _read(namespace: Namespace, schema: StructType | None = None, **options: Any) -> list[dict[str, Any]]:
    """Its rows, each share with its own copy of the reader."""
    planned = _planned(namespace, schema, **options)
    found: list[dict[str, Any]] = []
    for partition in planned.partitions():
        reader = pickle.loads(pickle.dumps(planned))
        for batch in reader.read(pickle.loads(pickle.dumps(partition))):
            found += batch.to_pylist()
    return found


def _shop(namespace: Namespace) -> None:
    namespace.create_topic("orders", partitions=2)
    namespace.create_subscription("orders", "billing")
    with namespace.producer("loader") as producer:
        producer.produce("orders", [{"value": b"1"}, {"value": b"2"}])
    namespace.produce("orders", [{"value": b"3"}])


@pytest.mark.parametrize("name", list(TABLES))
def test_the_option_gives_the_rows_of_the_table_in_tasks_that_need_no_store(namespace: Namespace, name: str) -> None:
    _shop(namespace)
    assert schema_of(read_options({"path": path_of(namespace), "metadata": name})).names == TABLES[name].schema.names
    varying = {"age_ms": 0, "lag_ms": 0}
    wanted = [row | {key: 0 for key in row if key in varying} for row in namespace.table(name).to_pylist()]
    found = [row | {key: 0 for key in row if key in varying} for row in _read(namespace, metadata=name)]
    assert found == wanted
    assert found


def test_the_option_gives_as_many_rows_as_the_limit_says_and_the_version_has(namespace: Namespace) -> None:
    _shop(namespace)
    entries = _read(namespace, metadata="history")
    assert [row["version"] for row in _read(namespace, metadata="history", limit=2)] == [
        entries[0]["version"],
        entries[1]["version"],
    ]
    before = entries[0]["version"] - 1
    assert _read(namespace, metadata="history", versionAsOf=before) == entries[1:]
    segments = _read(namespace, metadata="segments")
    assert _read(namespace, metadata="segments", versionAsOf=before) == segments[:-1]
    time = entries[1]["timestamp"].isoformat()
    assert _read(namespace, metadata="segments", timestampAsOf=time)[-1]["ended_version"] <= before + 1
    assert _read(namespace, metadata="history", limit=0) == []


def test_many_rows_are_shared_out_and_columns_may_be_chosen(
    namespace: Namespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    _shop(namespace)
    monkeypatch.setattr("spark_ext.read.metadata_reader.PARTITION_ROWS", 2)
    entries = namespace.table("history").to_pylist()
    chosen = StructType().add("writer", "string").add("version", "long")
    assert _read(namespace, chosen, metadata="history") == [
        {"writer": row["writer"], "version": row["version"]} for row in entries
    ]
    assert len(_planned(namespace, metadata="history").partitions()) == -(-len(entries) // 2)
    assert list(_planned(namespace, metadata="history").read(InputPartition(None))) == [], "Spark's stand-in"
    with pytest.raises(SchemaMismatch, match=r"'versoin', which the table 'history' does not have.*'version'"):
        _read(namespace, StructType().add("versoin", "long"), metadata="history")


def test_what_does_not_fit_is_refused_when_the_dataframe_is_made(namespace: Namespace) -> None:
    namespace.create_topic("orders")

    def refused(kind: type[TxnLogError], problem: str, topic: str = "", **options: str) -> None:
        given = {"path": path_of(namespace, topic), **options}
        with pytest.raises(kind, match=problem):
            TxnLogDataSource(given).schema()

    refused(InvalidInputError, "no table 'histroy'.*did you mean 'history'", metadata="histroy")
    refused(InvalidInputError, "the topic 'orders': metadata is that of a whole", topic="orders", metadata="files")
    refused(InvalidInputError, "'files' shows what is there now.*have versions", metadata="files", versionAsOf="1")
    refused(InvalidInputError, "'subscription' does not fit 'metadata'", metadata="files", subscription="billing")
    refused(InvalidInputError, "'limit' needs 'metadata'", topic="orders", limit="5")
    with pytest.raises(VersionNotAvailable, match="999"):
        _planned(namespace, metadata="segments", versionAsOf=999)
    stream = TxnLogDataSource({"path": path_of(namespace), "metadata": "files"}).streamReader(StructType())
    with pytest.raises(InvalidInputError, match=r"'metadata' belongs to spark\.read"):
        stream.initialOffset()


def test_spark_reads_a_table_of_metadata_by_the_format_and_in_sql(spark: SparkSession, namespace: Namespace) -> None:
    _shop(namespace)
    path = path_of(namespace)
    history = spark.read.format("txnlog").option("metadata", "history").load(path)
    rows = [row.asDict() for row in history.collect()]
    assert rows == [row.asDict() for row in spark_ext.metadata(spark, path, "history").collect()]
    assert len(rows) == namespace.snapshot().version + 1
    commits = sum(row["actions"].get("commit", 0) > 0 for row in rows)
    assert history.where("actions['commit'] > 0").count() == commits > 0
    newest = rows[0]["version"]
    spark.sql(
        f"CREATE OR REPLACE TEMPORARY VIEW files_then USING txnlog "
        f"OPTIONS (path '{path}', metadata 'segments', versionAsOf '{newest - 1}')"
    )
    total = "sum(aggregate(slices, 0L, (a, s) -> a + s.rows))"
    assert spark.sql(f"SELECT {total} FROM files_then").collect()[0][0] == 2
    assert spark_ext.metadata(spark, path, "segments").selectExpr(total).collect()[0][0] == 3
    assert spark_ext.metadata(spark, path, "segments", version=newest - 1).selectExpr(total).collect()[0][0] == 2
    empty = spark.read.format("txnlog").options(metadata="producers", limit="0").load(path)
    assert (empty.columns, empty.count()) == (TABLES["producers"].schema.names, 0)
    with pytest.raises(PySparkException, match=r"InvalidInputError: a namespace has no table 'file'.*'files'"):
        spark.read.format("txnlog").option("metadata", "file").load(path)
