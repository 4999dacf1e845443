"""``df.write.format("txnlog")``: one DataFrame, one transaction."""

from __future__ import annotations

import datetime
import pickle
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import functions as F  # noqa: N812 - as everybody writes it
from pyspark.sql import types as T  # noqa: N812

from spark_ext.support.options import WriteOptions
from spark_ext.write.format_batch_writer import TopicBatchWriter
from tests.spark.support import ids, path_of, versions
from txnlog.data import partitioner
from txnlog.errors import InvalidInputError, ProducerFenced, TransactionConflict

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from txnlog.api.namespace import Namespace

SCHEMA = pa.schema([pa.field("id", pa.int64(), nullable=False), ("customer", pa.string()), ("amount", pa.float64())])


@pytest.fixture
def ns(namespace: Namespace) -> Namespace:
    namespace.create_topic("orders", SCHEMA, partitions=3, key="customer")
    namespace.create_topic("audit", SCHEMA, partitions=2)
    return namespace


@pytest.fixture
def orders(spark: SparkSession) -> DataFrame:
    return spark.range(0, 1_000, 1, 4).selectExpr("id", "concat('c', id % 17) customer", "id * 0.5D amount")


def append(df: DataFrame, path: str, **options: Any) -> None:
    df.write.format("txnlog").options(**options).mode("append").save(path)


def test_rows_are_committed_in_one_transaction_and_come_back_equal(ns: Namespace, orders: DataFrame) -> None:
    append(orders, path_of(ns, "orders"))
    table = ns.snapshot().read("orders", include_metadata=True)
    assert len(set(table.column("_version").to_pylist())) == 1
    assert len(set(table.column("_txn_id").to_pylist())) == 1
    rows = table.sort_by("id").to_pylist()
    assert [(r["id"], r["customer"], r["amount"]) for r in rows] == [(i, f"c{i % 17}", i * 0.5) for i in range(1_000)]
    for row in rows:
        assert row["_partition"] == partitioner.partition_of_key(row["customer"], pa.string(), 3)
    back = ns.snapshot().end_offsets("orders")
    assert sum(back.values()) == 1_000
    append(orders, path_of(ns, "audit"))
    assert ids(ns, "audit") == list(range(1_000))
    assert len([p for p, end in ns.snapshot().end_offsets("audit").items() if end]) == 2, "tasks take turns"


def test_every_type_of_a_topic_survives(namespace: Namespace, spark: SparkSession) -> None:
    schema = T.StructType(
        [
            T.StructField("b", T.BooleanType()),
            T.StructField("i8", T.ByteType()),
            T.StructField("i16", T.ShortType()),
            T.StructField("i32", T.IntegerType()),
            T.StructField("i64", T.LongType()),
            T.StructField("f32", T.FloatType()),
            T.StructField("f64", T.DoubleType()),
            T.StructField("d", T.DecimalType(20, 3)),
            T.StructField("s", T.StringType()),
            T.StructField("x", T.BinaryType()),
            T.StructField("day", T.DateType()),
            T.StructField("at", T.TimestampType()),
            T.StructField("local", T.TimestampNTZType()),
            T.StructField("list", T.ArrayType(T.IntegerType())),
            T.StructField("map", T.MapType(T.StringType(), T.DoubleType())),
            T.StructField(
                "nested", T.StructType([T.StructField("p", T.StringType()), T.StructField("q", T.LongType())])
            ),
        ]
    )
    utc = datetime.UTC
    full = (
        True, 1, 2, 3, 4, 0.5, 0.25, Decimal("12.345"), "ß🦆", b"\x00\xff", datetime.date(2026, 11, 21),
        datetime.datetime(2026, 11, 21, 8, 0, 0, 123456, utc), datetime.datetime(2026, 11, 21, 8, 0, 0, 5),  # noqa: DTZ001 - a type of its own
        [1, None, 3], {"a": 1.5, "b": None}, ("in", 7),
    )  # fmt: skip
    df = spark.createDataFrame([full, (None,) * 16], schema)
    namespace.create_topic(
        "types",
        pa.schema(
            [
                ("b", pa.bool_()), ("i8", pa.int8()), ("i16", pa.int16()), ("i32", pa.int32()), ("i64", pa.int64()),
                ("f32", pa.float32()), ("f64", pa.float64()), ("d", pa.decimal128(20, 3)), ("s", pa.string()),
                ("x", pa.binary()), ("day", pa.date32()), ("at", pa.timestamp("us", "UTC")),
                ("local", pa.timestamp("us")), ("list", pa.list_(pa.int32())),
                ("map", pa.map_(pa.string(), pa.float64())),
                ("nested", pa.struct([("p", pa.string()), ("q", pa.int64())])),
            ]
        ),
        delta="off",
    )  # fmt: skip
    append(df, path_of(namespace, "types"))
    first, second = sorted(namespace.snapshot().read("types").to_pylist(), key=lambda row: row["b"] is None)
    assert second == dict.fromkeys(schema.names)
    wanted: dict[str, Any] = dict(zip(schema.names, full, strict=True))
    wanted["map"], wanted["nested"] = list(wanted["map"].items()), {"p": "in", "q": 7}
    assert {**first, "map": list(first["map"])} == wanted
    again = spark.read.format("txnlog").load(path_of(namespace, "types"))
    assert sorted(map(str, again.collect())) == sorted(map(str, df.collect()))


@pytest.mark.some(3)
@pytest.mark.parametrize(
    ("columns", "problem"),
    [
        (["id", "customer", "amount", "1 as extra"], "SchemaMismatch: topic 'orders' has no column 'extra'"),
        (["id", "customer as custommer"], "no column 'custommer' \\(did you mean 'customer'"),
        (["id", "customer as Customer"], "no column 'Customer' \\(names are case-sensitive: did you mean 'customer'"),
        (
            ["id", "customer", "'x' as CUSTOMER"],
            "no column 'CUSTOMER' \\(.* and the rows have 'customer' as well: leave",
        ),
        (["id", "1.5D as customer"], "topic 'orders', column 'customer': double does not fit into string"),
        (["cast(id as string) id"], "topic 'orders', column 'id': string does not fit into int64"),
        (["customer"], "topic 'orders', column 'id': null, or missing, where the schema says not null"),
        (["id", "interval '1' day as amount"], "column 'amount' has the Spark type interval day"),
        (["id", "customer as _partition"], "no column '_partition'"),
    ],
)
def test_columns_that_do_not_fit_are_named_before_anything_is_written(
    ns: Namespace, orders: DataFrame, columns: list[str], problem: str
) -> None:
    before = ns._connection.follower.refresh()
    with pytest.raises(PySparkException, match=problem):
        append(orders.selectExpr(*columns), path_of(ns, "orders"))
    assert ns._connection.follower.refresh() == before
    assert not list(Path(path_of(ns)).rglob("*.parquet"))


def test_columns_in_any_order_narrower_types_and_missing_nullable_ones_are_fine(
    ns: Namespace, orders: DataFrame
) -> None:
    append(orders.selectExpr("cast(amount as float) amount", "cast(id as int) id"), path_of(ns, "orders"))
    rows = ns.snapshot().read("orders").to_pylist()
    assert sorted((row["id"], row["customer"], row["amount"]) for row in rows) == [
        (i, None, i * 0.5) for i in range(1_000)
    ]


def test_a_null_where_none_may_be_fails_the_job_and_nothing_is_visible(ns: Namespace, orders: DataFrame) -> None:
    broken = orders.withColumn("id", F.expr("if(id = 777, null, id)"))
    with pytest.raises(PySparkException, match="topic 'orders', column 'id': null"):
        append(broken, path_of(ns, "orders"))
    assert ids(ns, "orders") == []
    (ended,) = ns.transactions("ABORTED")
    assert ended.reason == "failed"
    append(orders, path_of(ns, "orders"))
    assert ids(ns, "orders") == list(range(1_000))


def test_a_job_that_fails_leaves_nothing_visible_though_tasks_wrote(ns: Namespace, orders: DataFrame) -> None:
    def late(value):
        if value == 999:
            raise ValueError("as planned")
        return value

    fails_late = F.udf(late, "bigint")
    with pytest.raises(PySparkException, match="as planned"):
        append(orders.withColumn("id", fails_late("id")), path_of(ns, "audit"))
    assert list(Path(path_of(ns, "audit")).rglob("*.parquet")), "the tasks before had written"
    assert ids(ns, "audit") == []
    assert ns.snapshot().end_offsets("audit") == {0: 0, 1: 0}


def overwrite(df: DataFrame, path: str, **options: Any) -> None:
    df.write.format("txnlog").options(**options).mode("overwrite").save(path)


def test_overwrite_replaces_the_content_of_the_topic(ns: Namespace, orders: DataFrame) -> None:
    append(orders, path_of(ns, "orders"))
    before = ns.snapshot().version
    with pytest.raises(PySparkException, match=r"mode\(\"overwrite\"\) needs the feature 'holes'"):
        overwrite(orders, path_of(ns, "orders"))
    ns.enable("holes")
    overwrite(orders.where("id < 10"), path_of(ns, "orders"))
    assert ids(ns, "orders") == list(range(10))
    assert len(ns.snapshot(before).read("orders")) == 1_000
    for _ in range(2):
        overwrite(orders.where("id between 20 and 29"), path_of(ns, "orders"), txnAppId="nightly", txnVersion="1")
        append(orders.where("id = 999"), path_of(ns, "orders"))
    assert ids(ns, "orders") == [*range(20, 30), 999, 999], "the second one was committed before"
    overwrite(orders.where("id < 0"), path_of(ns, "orders"))
    assert ids(ns, "orders") == []


def test_overwriting_is_refused_before_anything_is_written(ns: Namespace, orders: DataFrame) -> None:
    ns.enable("holes")
    append(orders, path_of(ns, "orders"))
    ns.create_subscription("orders", "billing")
    version = ns._connection.follower.refresh()
    refused = r"not acknowledged all messages of 'orders': 'billing' 1,000 .wait .*, by txn\.write\(df, topic, mode="
    with pytest.raises(PySparkException, match=refused):
        overwrite(orders, path_of(ns, "orders"))
    with pytest.raises(PySparkException, match="the column 'topic' may name any"):
        overwrite(orders.withColumn("topic", F.lit("orders")), path_of(ns))
    assert ns._connection.follower.refresh() == version


def test_other_modes_are_refused_by_spark(ns: Namespace, orders: DataFrame) -> None:
    for mode in ("error", "ignore"):
        with pytest.raises(PySparkException, match="UNSUPPORTED_DATA_SOURCE_SAVE_MODE"):
            orders.write.format("txnlog").mode(mode).save(path_of(ns, "orders"))
    assert ids(ns, "orders") == []


def test_a_batch_with_an_app_version_is_written_once(ns: Namespace, orders: DataFrame) -> None:
    path = path_of(ns, "orders")
    append(orders.where("id < 10"), path, txnAppId="nightly", txnVersion=7)
    version = ns._connection.follower.refresh()
    append(orders.where("id >= 10"), path, txnAppId="nightly", txnVersion=7)
    append(orders.where("id >= 10"), path, txnAppId="nightly", txnVersion=3)
    assert ns._connection.follower.refresh() == version, "not even a number was reserved"
    assert ids(ns, "orders") == list(range(10))
    append(orders.where("id between 10 and 19"), path, txnAppId="nightly", txnVersion=8)
    assert ids(ns, "orders") == list(range(20))
    assert ns.last_txn_version("nightly") == 8


def test_a_topic_column_routes_rows_all_in_one_commit(ns: Namespace, orders: DataFrame) -> None:
    routed = orders.withColumn("topic", F.when(F.col("id") % 2 == 0, "orders").otherwise("audit"))
    append(routed, path_of(ns))
    assert ids(ns, "orders") == list(range(0, 1_000, 2))
    assert ids(ns, "audit") == list(range(1, 1_000, 2))
    assert len(versions(ns, "orders", "audit")) == 1


def test_a_row_for_an_unknown_topic_fails_all_of_them(ns: Namespace, orders: DataFrame) -> None:
    routed = orders.withColumn("topic", F.expr("if(id = 5, 'oders', 'orders')"))
    with pytest.raises(PySparkException, match=r"TopicNotFound.*'oders'.*did you mean 'orders'"):
        append(routed, path_of(ns))
    assert ids(ns, "orders") == []


def test_a_namespace_path_needs_a_topic_column_of_text(ns: Namespace, orders: DataFrame) -> None:
    with pytest.raises(PySparkException, match="no column 'topic' to route by"):
        append(orders, path_of(ns))
    with pytest.raises(PySparkException, match="'topic' is int32, not text"):
        append(orders.withColumn("topic", F.lit(1)), path_of(ns))


def test_a_topic_column_is_user_data_where_the_topic_is_given(namespace: Namespace, spark: SparkSession) -> None:
    namespace.create_topic("notes", pa.schema([("topic", pa.string())]))
    df = spark.createDataFrame([("elsewhere",)], "topic string")
    append(df, path_of(namespace, "notes"))
    append(df, path_of(namespace), topic="notes")
    assert namespace.snapshot().read("notes").to_pylist() == [{"topic": "elsewhere"}] * 2
    with pytest.raises(PySparkException, match="names the topic 'notes', and an option"):
        append(df, path_of(namespace, "notes"), topic="notes")


def test_insert_into_a_temporary_view(ns: Namespace, orders: DataFrame, spark: SparkSession) -> None:
    spark.sql(f"CREATE OR REPLACE TEMPORARY VIEW v USING txnlog OPTIONS (path '{path_of(ns, 'audit')}')")
    orders.where("id < 5").createOrReplaceTempView("src")
    spark.sql("INSERT INTO v SELECT * FROM src")
    assert ids(ns, "audit") == list(range(5))


def test_an_empty_frame_writes_nothing(ns: Namespace, orders: DataFrame) -> None:
    append(orders.where("false"), path_of(ns, "orders"))
    assert ids(ns, "orders") == []
    assert ns.transactions() == ()


# --- the writer's own processes ---------------------------------------------------------------------------------------


def writer_for(ns: Namespace, df: DataFrame, topic: str = "orders", **options: Any) -> TopicBatchWriter:
    return TopicBatchWriter(WriteOptions(path_of(ns, topic), **options), df.schema, False)


def test_a_newer_writer_with_the_name_fences_the_older_one(ns: Namespace, orders: DataFrame) -> None:
    older = pickle.loads(pickle.dumps(writer_for(ns, orders, transactional_id="loader")))
    append(orders, path_of(ns, "orders"), transactionalId="loader")
    with pytest.raises(ProducerFenced, match="loader"):
        older.commit([_one_file(older)])
    assert ids(ns, "orders") == list(range(1_000))


def _one_file(writer: TopicBatchWriter) -> Any:
    from spark_ext.write.format_batch_writer import TaskWritten
    from spark_ext.write.task_writer import TaskIdentity, write_batches

    batch = pa.RecordBatch.from_pydict({"id": [5_000], "customer": ["c"], "amount": [1.0]})
    return TaskWritten(tuple(write_batches(iter([batch]), writer._plan.spec, TaskIdentity(0, 1))))


@pytest.mark.parametrize("again", [False, True])
def test_rows_of_a_topic_that_is_dropped_while_they_are_written_are_not_left_out_silently(
    ns: Namespace, orders: DataFrame, *, again: bool
) -> None:
    writer = writer_for(ns, orders)
    message = _one_file(writer)
    ns.drop_topic("orders")
    if again:
        ns.create_topic("orders", SCHEMA)
    with pytest.raises(TransactionConflict, match="'orders' was dropped while its rows were written"):
        writer.commit([message])
    writer.abort([message])


def test_an_aborted_writer_cannot_commit_any_more(ns: Namespace, orders: DataFrame) -> None:
    writer = writer_for(ns, orders)
    message = _one_file(writer)
    writer.abort([message, None])
    with pytest.raises(Exception, match="was aborted"):
        writer.commit([message])
    assert ids(ns, "orders") == []
    other = writer_for(ns, orders)
    other.commit([_one_file(other)])
    other.abort([])  # Spark calls it when the process that committed died before it said so
    assert ids(ns, "orders") == [5_000]


def test_a_writer_shows_and_sends_its_secrets_to_executors_only(ns: Namespace, orders: DataFrame) -> None:
    with pytest.raises(InvalidInputError, match="plain values"):
        writer_for(ns, orders, storage_options={"session": object()})
    assert "storage" not in repr(writer_for(ns, orders)._plan)
