"""``spark.read.format("txnlog")``: exactly the rows of a snapshot, and typed errors for everything else."""

from __future__ import annotations

import datetime
import json
import re
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import functions as F  # noqa: N812 - as everybody writes it

import txnlog
from spark_ext.read.format_batch_reader import TopicBatchReader
from spark_ext.read.scan import open_scan, tasks_of
from spark_ext.support.options import read_options
from tests.spark.support import path_of, plans_once
from tools.servers import SECRET_KEY, s3_server
from txnlog.testing.scheduler import START_MS

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from txnlog.api.namespace import Namespace
from tests.spark.reads import METADATA, ORDERS, ids, lake, load, orders, refused, same

__all__ = ["lake"]  # fixtures


# --- rows and columns -------------------------------------------------------------------------------------------------


@pytest.mark.clause("P-99", "P-144")
@pytest.mark.parametrize("topic", ["orders", "audit", "gone", "plain"])
def test_rows_and_metadata_are_those_of_a_snapshot(spark: SparkSession, lake: Any, topic: str) -> None:
    table = lake.ns.snapshot().read(topic, include_metadata=True)
    assert table.column_names[-5:] == METADATA
    assert same(load(spark, lake.ns, topic, includeMetadata="true"), table)
    assert same(load(spark, lake.ns, topic), table.drop_columns(METADATA))


@pytest.mark.clause("P-99")
@pytest.mark.parametrize("least", ["1", "5", "20"])
def test_each_partition_comes_in_the_order_of_its_offsets_however_it_is_shared_out(
    spark: SparkSession, lake: Any, least: str
) -> None:
    df = load(spark, lake.ns, "orders", includeMetadata="true", minPartitions=least)
    rows = df.collect()
    assert len(rows) == 43
    assert df.rdd.getNumPartitions() >= min(int(least), len(rows))
    for partition, end in lake.ns.snapshot().end_offsets("orders").items():
        assert [row["_offset"] for row in rows if row["_partition"] == partition] == list(range(end))


def test_columns_are_chosen_by_name_and_come_in_that_order(spark: SparkSession, lake: Any) -> None:
    df = load(spark, lake.ns, "orders", columns="amount,id", includeMetadata="true")
    assert df.columns == ["amount", "id", *METADATA]
    assert same(df, lake.ns.snapshot().read("orders", columns=["amount", "id"], include_metadata=True))
    with refused("InvalidInputError", r"'columns' names 'amuont'.*did you mean 'amount'"):
        load(spark, lake.ns, "orders", columns="amuont")


def test_a_topic_without_rows_has_columns_and_counts_none(spark: SparkSession, lake: Any) -> None:
    df = load(spark, lake.ns, "empty", includeMetadata="true")
    assert df.columns == [*ORDERS.names, *METADATA]
    assert not df.schema["id"].nullable
    assert (df.count(), df.collect()) == (0, [])
    assert load(spark, lake.ns, "orders", versionAsOf=lake.versions[0] - 1).collect() == []


def test_what_spark_computes_on_top_is_right(spark: SparkSession, lake: Any) -> None:
    df = load(spark, lake.ns, "orders")
    table = lake.ns.snapshot().read("orders")
    assert df.count() == table.num_rows == 43
    amounts = dict.fromkeys(table["customer"].to_pylist(), 0.0)
    for row in table.to_pylist():
        amounts[row["customer"]] += row["amount"]
    assert {row["customer"]: row["x"] for row in df.groupBy("customer").agg(F.sum("amount").alias("x")).collect()} == (
        amounts
    )
    assert ids(df.where("id >= 36 AND customer IS NOT NULL")) == [36, 37, 38, 39, 50, 51, 60]


# --- versions, times, topics ------------------------------------------------------------------------------------------


@pytest.mark.clause("P-103")
def test_every_version_is_read_as_it_was_over_all_topics(spark: SparkSession, lake: Any) -> None:
    for count, version in enumerate(lake.versions, 1):
        snapshot = lake.ns.snapshot(version)
        for topic, rows in (("orders", 8 * count), ("audit", count)):
            df = load(spark, lake.ns, topic, versionAsOf=version, includeMetadata="true")
            table = snapshot.read(topic, include_metadata=True)
            assert table.num_rows == rows
            assert same(df, table)
    newest = lake.ns.snapshot().version
    with refused("VersionNotAvailable", rf"version {newest + 1} cannot be read \(versions 0 to {newest} can be read"):
        load(spark, lake.ns, "orders", versionAsOf=newest + 1)


def test_a_time_means_the_newest_version_that_is_not_younger(spark: SparkSession, lake: Any) -> None:
    at = START_MS + 2_000
    for text in (str(at), str(at + 999), datetime.datetime.fromtimestamp(at / 1000, datetime.UTC).isoformat()):
        assert ids(load(spark, lake.ns, "orders", timestampAsOf=text)) == list(range(16))
    assert ids(load(spark, lake.ns, "orders", timestampAsOf=at - 1)) == list(range(8))
    for early in (str(START_MS - 1), "2020-01-01T00:00:00Z", "2020-01-01 02:00:00.5+02:00"):
        with refused("VersionNotAvailable", rf"the log begins after {re.escape(early)} \("):
            load(spark, lake.ns, "orders", timestampAsOf=early)


def test_several_topics_come_together_and_say_which_they_are(spark: SparkSession, lake: Any) -> None:
    df = load(spark, lake.ns, subscribe="audit, orders", includeMetadata="true")
    assert df.columns == [*ORDERS.names, *METADATA, "_topic"]
    for topic in ("orders", "audit"):
        table = lake.ns.snapshot().read(topic, include_metadata=True)
        assert same(df.where(F.col("_topic") == topic).drop("_topic"), table)
    assert df.count() == 43 + 5
    assert load(spark, lake.ns, subscribe="audit,empty").count() == 5


@pytest.mark.some(4)
@pytest.mark.parametrize(
    ("topic", "options", "kind", "problem"),
    [
        ("", {}, "InvalidInputError", r"names the namespace 'sales' and no topic.*subscribe"),
        ("ordres", {}, "TopicNotFound", r"no topic 'ordres'.*did you mean 'orders'"),
        ("", {"subscribe": "orders,adit"}, "TopicNotFound", r"no topic 'adit'.*did you mean 'audit'"),
        ("orders", {"subscribe": "audit"}, "InvalidInputError", r"names the topic 'orders', and an option"),
        (
            "",
            {"subscribe": "orders,plain"},
            "SchemaMismatch",
            r"'orders' and 'plain' have different columns \(see 'id'",
        ),
        (
            "",
            {"subscribePattern": "o(.*"},
            "InvalidInputError",
            r"'subscribePattern' is a regular expression \(missing",
        ),
        (
            "",
            {"subscribePattern": "order"},
            "TopicNotFound",
            r"no topic of the namespace 'sales' matches 'order' \(a pat",
        ),
        ("", {"subscribePattern": "o.*|p.*"}, "SchemaMismatch", r"'orders' and 'plain' have different columns"),
        ("orders", {"subscribePattern": "o.*"}, "InvalidInputError", r"names the topic 'orders', and an option"),
        ("orders", {"versionAsof": "1", "timestampAsOf": "1"}, "InvalidInputError", r"exclude each other"),
        ("orders", {"startingVersion": "new"}, "InvalidInputError", r"'startingVersion' is a whole number from 0 on"),
        ("orders", {"mergeSchema": "true"}, "InvalidInputError", r"unknown option 'mergeschema'"),
    ],
)
def test_what_cannot_be_read_is_refused_before_a_dataframe_is_made(
    spark: SparkSession, lake: Any, topic: str, options: dict[str, str], kind: str, problem: str
) -> None:
    with refused(kind, problem):
        load(spark, lake.ns, topic, **options)


def test_a_path_that_holds_no_log_and_several_paths_are_refused(spark: SparkSession, lake: Any) -> None:
    reader = spark.read.format("txnlog")
    with refused("NamespaceNotFound", "did you mean 'sales'"):
        reader.load(f"{lake.ns.root}/saels/orders")
    with refused("InvalidInputError", "load takes one path"):
        reader.load([path_of(lake.ns, "orders"), path_of(lake.ns, "audit")])
    with refused("InvalidInputError", "the path is missing"):
        reader.load()
    for option in ("subscription", "topic"):
        with refused("InvalidInputError", f"the option '{option}' belongs to"):
            reader.option(option, "x").load(path_of(lake.ns, "orders")).collect()


def test_a_dropped_topic_is_gone_now_and_readable_where_it_was(
    spark: SparkSession, lake: Any, namespace: Namespace
) -> None:
    assert ids(load(spark, lake.ns, "gone")) == [950], "a new topic of that name has none of its rows"
    assert ids(load(spark, lake.ns, "gone", versionAsOf=lake.before_drop)) == [900, 901]
    namespace.create_topic("orders", ORDERS)
    version = namespace.produce("orders", orders(1)).version
    newest, fixed = load(spark, namespace, "orders"), load(spark, namespace, "orders", versionAsOf=version)
    namespace.drop_topic("orders")
    with refused("TopicNotFound", "no topic 'orders'"):
        newest.collect()
    assert ids(fixed) == [1]


def test_a_dataframe_keeps_the_version_of_its_first_action(spark: SparkSession, namespace: Namespace) -> None:
    namespace.create_topic("orders", ORDERS)
    df = load(spark, namespace, "orders")
    namespace.produce("orders", orders(1))
    assert ids(df) == [1], "it was made before, and had not run"
    namespace.produce("orders", orders(2))
    assert (ids(df), df.count()) == (([1], 1) if plans_once() else ([1, 2], 2)), "two actions on it agree"
    assert ids(load(spark, namespace, "orders")) == [1, 2]


# --- isolation --------------------------------------------------------------------------------------------------------


@pytest.mark.clause("P-99", "P-101", "P-102")
def test_open_and_aborted_rows_are_for_read_uncommitted_with_their_state(spark: SparkSession, lake: Any) -> None:
    committed = [*range(40), 50, 51, 60]
    assert ids(load(spark, lake.ns, "orders", isolationLevel="read_committed")) == committed
    df = load(spark, lake.ns, "orders", isolationLevel="Read_Uncommitted", includeMetadata="true")
    assert same(df, lake.ns.snapshot().read("orders", isolation_level="read_uncommitted", include_metadata=True))
    rows = {row["id"]: row for row in df.collect()}
    assert sorted(rows) == sorted([*committed, 70, 71, 72, 80, 81, 82])
    for txn, first, state in ((lake.aborted, 70, "ABORTED"), (lake.pending, 80, "OPEN")):
        for number in range(first, first + 3):
            row = rows[number]
            assert (row["_txn_state"], row["_offset"], row["_version"], row["_timestamp"]) == (state, None, None, None)
            assert bytes(row["_txn_id"]) == txn.id.to_bytes()
    assert {rows[number]["_txn_state"] for number in committed} == {"COMMITTED"}
    assert len(ids(load(spark, lake.ns, "orders", isolationLevel="read_uncommitted"))) == len(committed) + 6


@pytest.mark.clause("P-102")
def test_a_transaction_shows_when_it_is_committed_and_not_before(spark: SparkSession, namespace: Namespace) -> None:
    namespace.create_topic("orders", ORDERS)
    namespace.create_topic("audit", ORDERS)
    txn = namespace.begin()
    txn.produce("orders", orders(1))
    txn.flush()
    txn.produce("audit", orders(2))
    namespace.produce("orders", orders(3))
    assert ids(load(spark, namespace, subscribe="orders,audit")) == [3], "what is open holds back nobody"
    txn.commit()
    assert ids(load(spark, namespace, subscribe="orders,audit")) == [1, 2, 3]


# --- SQL --------------------------------------------------------------------------------------------------------------


def test_a_temporary_view_answers_queries_and_is_brought_up_to_date_by_making_it_again(
    spark: SparkSession, namespace: Namespace
) -> None:
    namespace.create_topic("orders", ORDERS, partitions=2)
    namespace.produce("orders", orders(*range(10)))
    view = (
        f"CREATE OR REPLACE TEMPORARY VIEW read_orders USING txnlog OPTIONS (path '{path_of(namespace, 'orders')}', "
        "includeMetadata true, columns 'id')"
    )
    query = "SELECT count(*) n, max(id) m, count(DISTINCT _version) v FROM read_orders WHERE id % 2 = 0"
    spark.sql(view)
    assert spark.table("read_orders").columns == ["id", *METADATA]
    assert spark.sql(query).first().asDict() == {"n": 5, "m": 8, "v": 1}
    namespace.produce("orders", orders(20))
    kept = {"n": 5, "m": 8, "v": 1} if plans_once() else {"n": 6, "m": 20, "v": 2}
    assert spark.sql(query).first().asDict() == kept, "as a DataFrame: at one version"
    spark.sql(view)
    assert spark.sql(query).first().asDict() == {"n": 6, "m": 20, "v": 2}
    spark.catalog.dropTempView("read_orders")


def test_a_table_is_refused_with_the_way_out(spark: SparkSession, lake: Any) -> None:
    with refused("InvalidInputError", r"cannot be created.*CREATE TEMPORARY VIEW"):
        spark.sql(f"CREATE TABLE read_table USING txnlog LOCATION '{path_of(lake.ns, 'orders')}'")


# --- secrets ----------------------------------------------------------------------------------------------------------


def test_secrets_reach_executors_and_no_plan_no_repr_and_no_error(spark: SparkSession) -> None:
    with (
        s3_server() as server,
        txnlog.open(
            server.url("lake"), namespace="sales", create=True, storage_options=server.storage_options
        ) as namespace,
    ):
        namespace.create_topic("orders", ORDERS)
        namespace.produce("orders", orders(*range(20)))

        def reader(**changes: Any) -> Any:
            storage = json.dumps({**server.storage_options, **changes})
            return spark.read.format("txnlog").option("storageOptions", storage)

        df = reader().load(server.url("lake/sales/orders"))
        assert ids(df) == list(range(20))
        execution = df._jdf.queryExecution()
        shown = [execution.toString(), execution.optimizedPlan().toJSON(), repr(df), repr(df.schema)]
        given = {"path": server.url("lake/sales/orders"), "storageOptions": json.dumps(server.storage_options)}
        options = read_options(given, streaming=False)
        scan = open_scan(options)
        shown += [repr(options), repr(scan), repr(scan.job(scan.schema)), repr(TopicBatchReader(options, scan.schema))]
        for path, changes in (("lake/sales/ordres", {}), ("lake/none/x", {}), ("lake/sales/orders", {"nonsense": 1})):
            with pytest.raises(PySparkException) as caught:
                reader(**changes).load(server.url(path))
            shown.append(str(caught.value))
        segment = txnlog.store.open_store(server.url("lake"), server.storage_options)
        _, task = tasks_of(namespace.snapshot().plan("orders"))[0]
        segment.put(f"sales/{task.key}", b"damage")
        with refused("CorruptionError", "segment") as caught:
            df.collect()
        shown.append(str(caught.value))
    assert "txnlog" in shown[0]
    for text in shown:
        assert SECRET_KEY not in text
