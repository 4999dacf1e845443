"""``spark_ext.transaction``: many DataFrames of any schemas, one commit."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from pyspark.errors import AnalysisException, PySparkException, PythonException
from pyspark.sql import functions as F  # noqa: N812 - as everybody writes it

import spark_ext
import txnlog
from spark_ext.write import write_jobs
from tests.spark.support import ids, path_of, versions
from txnlog.data import partitioner
from txnlog.errors import (
    InvalidInputError,
    InvalidTransactionState,
    NameNotAllowed,
    NamespaceNotFound,
    ProducerFenced,
    SchemaMismatch,
    TopicNotFound,
    TransactionHasFailedOperation,
    TransactionTimedOut,
)
from txnlog.testing import ManualClock

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from txnlog.api.namespace import Namespace

ORDERS = pa.schema([pa.field("id", pa.int64(), nullable=False), ("customer", pa.string())])
AUDIT = pa.schema([("at", pa.timestamp("us", "UTC")), ("text", pa.string())])


@pytest.fixture
def ns(namespace: Namespace) -> Namespace:
    namespace.create_topic("orders", ORDERS, partitions=3, key="customer")
    namespace.create_topic("audit", AUDIT, partitions=2)
    namespace.create_topic("totals", pa.schema([("customer", pa.string()), ("count", pa.int64())]))
    return namespace


@pytest.fixture
def orders(spark: SparkSession) -> DataFrame:
    return spark.range(0, 500, 1, 3).selectExpr("id", "concat('c', id % 17) customer")


def fail(message: str) -> None:
    raise RuntimeError(message)


def test_frames_of_several_schemas_become_visible_at_one_version(
    ns: Namespace, orders: DataFrame, spark: SparkSession
) -> None:
    with spark_ext.transaction(spark, path_of(ns)) as txn:
        assert txn.write(orders, "orders") == 500
        assert txn.write(orders.groupBy("customer").count(), "totals") == 17
        txn.write(spark.sql("SELECT timestamp'2026-11-21 08:00:00' at, 'done' text"), "audit")
        assert ids(ns, "orders") == [], "nothing is visible before the end of the block"
        assert not txn.skipped
        assert txn.rows == {"orders": 500, "totals": 17, "audit": 1}
    assert txn.result is not None
    assert versions(ns, "orders", "totals", "audit") == {txn.result.version}
    assert ids(ns, "orders") == list(range(500))
    assert sum(row["count"] for row in ns.snapshot().read("totals").to_pylist()) == 500
    assert {topic for topic, _ in txn.result.offsets} == {"orders", "totals", "audit"}
    for row in ns.snapshot().read("orders", include_metadata=True).to_pylist():
        assert row["_partition"] == partitioner.partition_of_key(row["customer"], pa.string(), 3)


def test_an_exception_in_the_block_leaves_nothing_visible(
    ns: Namespace, orders: DataFrame, spark: SparkSession
) -> None:
    with pytest.raises(RuntimeError, match="as planned"), spark_ext.transaction(spark, path_of(ns)) as txn:  # noqa: PT012
        txn.write(orders, "orders")
        fail("as planned")
    assert ids(ns, "orders") == []
    assert txn.state == "ABORTED"
    assert list(Path(path_of(ns), "orders").rglob("*.parquet")), "the files are garbage"
    with pytest.raises(InvalidTransactionState, match="aborted"):
        txn.write(orders, "orders")


def test_a_committed_app_version_is_known_before_a_frame_runs(
    ns: Namespace, orders: DataFrame, spark: SparkSession, tmp_path: Path
) -> None:
    with spark_ext.transaction(spark, path_of(ns), txn_app_id="nightly", txn_version=5) as first:
        first.write(orders, "orders")
    version = ns._connection.follower.refresh()
    ran = str(tmp_path / "ran")

    def note(value):
        Path(ran).touch()
        return value

    noting = orders.withColumn("id", F.udf(note, "bigint")("id"))
    for again in (5, 4):
        with spark_ext.transaction(spark, path_of(ns), producer="p", txn_app_id="nightly", txn_version=again) as second:
            assert second.skipped
            assert second.write(noting, "orders") == 0
            assert second.state == "OPEN"
        assert second.state == "COMMITTED"
        assert second.result.skipped
        assert second.result.version == first.result.version
        assert second.result.txn_id == first.id
    assert not Path(ran).exists()
    assert ns._connection.follower.refresh() == version, "the skipped ones wrote nothing, not even a producer's epoch"
    with spark_ext.transaction(spark, path_of(ns), txn_app_id="nightly", txn_version=6) as third:
        third.write(orders.where("id < 3").selectExpr("id + 500 id"), "orders")
    assert ids(ns, "orders") == list(range(503))


def test_two_runs_of_one_version_at_once_commit_one_of_them(
    ns: Namespace, orders: DataFrame, spark: SparkSession
) -> None:
    options: dict[str, Any] = {"txn_app_id": "nightly", "txn_version": 5}
    with spark_ext.transaction(spark, path_of(ns), **options) as slow:
        slow.write(orders, "orders")
        with spark_ext.transaction(spark, path_of(ns), **options) as fast:
            fast.write(orders, "orders")
        assert not fast.result.skipped
    assert slow.result.skipped
    assert slow.result.version == fast.result.version
    assert ids(ns, "orders") == list(range(500))


def test_a_newer_transaction_of_the_producer_fences_the_older_one(
    ns: Namespace, orders: DataFrame, spark: SparkSession
) -> None:
    with (  # noqa: PT012 - the end of the block raises
        pytest.raises(ProducerFenced, match="loader"),
        spark_ext.transaction(spark, path_of(ns), producer="loader") as older,
    ):
        older.write(orders, "orders")
        with spark_ext.transaction(spark, path_of(ns), producer="loader") as newer:
            newer.write(orders.selectExpr("id + 1000 id"), "orders")
    with pytest.raises(ProducerFenced, match="loader"):
        older.write(orders, "orders")
    assert ids(ns, "orders") == list(range(1_000, 1_500))


def test_what_was_received_is_acknowledged_with_the_commit(
    ns: Namespace, orders: DataFrame, spark: SparkSession
) -> None:
    ns.produce("audit", [{"text": str(i)} for i in range(10)], partition=0)
    consumer = ns.consumer("audit", subscription="loader")
    with pytest.raises(RuntimeError), spark_ext.transaction(spark, path_of(ns)) as txn:  # noqa: PT012
        txn.acknowledge(consumer.receive(10))
        fail("as planned")
    with spark_ext.transaction(spark, path_of(ns)) as txn:
        messages = consumer.receive(10)
        assert len(messages) == 10, "the abort gave them back"
        txn.acknowledge(messages, cumulative=True)
        txn.write(orders, "orders")
        assert ns.subscription("audit", "loader").cursors[0].cursor == 0
    assert ns.subscription("audit", "loader").cursors[0].cursor == 10
    assert ids(ns, "orders") == list(range(500))


def test_a_block_whose_commit_is_interrupted_gives_its_messages_back(
    ns: Namespace, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    ns.produce("audit", [{"text": "one"}])
    consumer = ns.consumer("audit", subscription="loader")

    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(write_jobs, "add_segments", interrupted)
    with pytest.raises(KeyboardInterrupt), spark_ext.transaction(spark, path_of(ns)) as txn:
        txn.acknowledge(consumer.receive(10))
    assert txn.state == "ABORTED"
    assert len(consumer.receive(10)) == 1


def test_what_is_refused_before_its_job_leaves_the_transaction_as_it_was(
    ns: Namespace, orders: DataFrame, spark: SparkSession
) -> None:
    no_frame: Any = orders.toPandas()
    no_topic: Any = None
    with spark_ext.transaction(spark, path_of(ns)) as txn:
        with pytest.raises(SchemaMismatch, match="no column 'amount'"):
            txn.write(orders.withColumn("amount", F.lit(1)), "orders")
        with pytest.raises(TopicNotFound, match="did you mean 'orders'"):
            txn.write(orders, "oders")
        with pytest.raises(InvalidInputError, match=r"Spark DataFrame, not pandas\..*DataFrame \(.*createDataFrame"):
            txn.write(no_frame, "orders")
        with pytest.raises(NameNotAllowed, match="a topic name is text"):
            txn.write(orders, no_topic)
        txn.write(orders, "orders")
    assert ids(ns, "orders") == list(range(500))


def test_rows_without_a_column_are_refused_and_not_left_out(ns: Namespace, spark: SparkSession) -> None:
    rows = spark.range(3).select()
    with (
        spark_ext.transaction(spark, path_of(ns)) as txn,
        pytest.raises(SchemaMismatch, match="the DataFrame has no column"),
    ):
        txn.write(rows, "audit")
    with pytest.raises(AnalysisException, match="SchemaMismatch: the DataFrame has no column"):
        rows.write.format("txnlog").mode("append").save(path_of(ns, "audit"))


def test_a_stream_is_refused_with_the_call_that_takes_one(ns: Namespace, spark: SparkSession) -> None:
    stream = spark.readStream.format("rate").load().selectExpr("timestamp at")
    with spark_ext.transaction(spark, path_of(ns)) as txn:
        with pytest.raises(InvalidInputError, match=r"this DataFrame is a stream \(use spark_ext\.write_stream"):
            txn.write(stream, "audit")
        assert txn.state == "OPEN"


@pytest.mark.some(1)
@pytest.mark.parametrize("ansi", ["true", "false"])
def test_a_key_that_is_none_of_the_topics_type_is_refused_with_its_column(
    namespace: Namespace, spark: SparkSession, ansi: str
) -> None:
    namespace.create_topic("small", pa.schema([("id", pa.int32()), ("text", pa.string())]), partitions=3, key="id")
    spark.conf.set("spark.sql.ansi.enabled", ansi)
    try:
        with (
            pytest.raises(TransactionHasFailedOperation, match="column 'id': values of type int64 that do not fit"),
            spark_ext.transaction(spark, path_of(namespace)) as txn,
            contextlib.suppress(SchemaMismatch),
        ):
            txn.write(spark.sql("SELECT id + 3000000000 id, 'x' text FROM range(2)"), "small")
        with spark_ext.transaction(spark, path_of(namespace)) as txn:
            txn.write(spark.sql("SELECT id, 'x' text FROM range(9)"), "small")
    finally:
        spark.conf.unset("spark.sql.ansi.enabled")
    for row in namespace.snapshot().read("small", include_metadata=True).to_pylist():
        assert row["_partition"] == partitioner.partition_of_key(row["id"], pa.int32(), 3)


@pytest.mark.clause("P-203")
@pytest.mark.parametrize(
    ("bad", "kind", "problem"),
    [
        ("if(id = 77, null, id)", SchemaMismatch, "topic 'orders', column 'id': null.* \\(give a value"),
        ("if(id = 77, cast(raise_error('boom') as bigint), id)", PySparkException, "boom"),
    ],
    ids=["a task of ours", "the frame"],
)
def test_after_a_job_that_failed_the_rest_is_not_committed_without_it(
    ns: Namespace, orders: DataFrame, spark: SparkSession, bad: str, kind: type[Exception], problem: str
) -> None:
    with pytest.raises(TransactionHasFailedOperation) as told, spark_ext.transaction(spark, path_of(ns)) as txn:  # noqa: PT012
        with pytest.raises(kind, match=problem) as cause:
            txn.write(orders.withColumn("id", F.expr(bad)), "orders")
        with pytest.raises(TransactionHasFailedOperation):
            txn.write(orders.groupBy("customer").count(), "totals")
    assert str(told.value.__cause__) == str(cause.value)
    assert ids(ns, "orders") == []
    assert ns.transactions("OPEN") == ()


def test_what_a_function_of_the_frame_raises_is_no_error_of_ours_whatever_its_text_says(
    ns: Namespace, orders: DataFrame, spark: SparkSession
) -> None:
    def told(value):
        raise ValueError(f"row {value} says\ntxnlog.errors.ProducerFenced: stop")

    with pytest.raises(PythonException, match="ProducerFenced: stop"), spark_ext.transaction(spark, path_of(ns)) as txn:
        txn.write(orders.withColumn("id", F.udf(told, "bigint")("id")), "orders")
    assert txn.state == "ABORTED"


def test_columns_may_have_dots_and_backticks_in_their_names(namespace: Namespace, spark: SparkSession) -> None:
    columns = pa.schema(
        [("a.b", pa.int64()), ("c`d", pa.string()), ("k.x`", pa.int32()), ("s", pa.struct([("t.u", "bool")]))]
    )
    namespace.create_topic("t", columns, partitions=3, key="k.x`")
    df = spark.range(9).selectExpr(
        "named_struct('t.u', true) s", "cast(id as int) `k.x```", "concat('x', id) `c``d`", "id + 1 `a.b`"
    )
    with spark_ext.transaction(spark, path_of(namespace)) as txn:
        assert txn.write(df, "t") == 9
    rows = namespace.snapshot().read("t", include_metadata=True).to_pylist()
    assert sorted((row["a.b"], row["c`d"], row["k.x`"], row["s"]["t.u"]) for row in rows) == [
        (i + 1, f"x{i}", i, True) for i in range(9)
    ]
    for row in rows:
        assert row["_partition"] == partitioner.partition_of_key(row["k.x`"], pa.int32(), 3)


def test_bad_calls_are_refused_before_anything_is_done(ns: Namespace, spark: SparkSession, tmp_path: Path) -> None:
    version = ns._connection.follower.refresh()
    with pytest.raises(InvalidInputError, match="names the topic 'orders'"):
        spark_ext.transaction(spark, f"{path_of(ns)}/orders")
    with pytest.raises(NamespaceNotFound, match="nothing was written"):
        spark_ext.transaction(spark, str(tmp_path / "nowhere" / "sales"))
    with pytest.raises(InvalidInputError, match="'lake/sales' is relative"):
        spark_ext.transaction(spark, "lake/sales")
    with pytest.raises(InvalidInputError, match="go together"):
        spark_ext.transaction(spark, path_of(ns), txn_app_id="nightly")
    with pytest.raises(InvalidInputError, match="plain values"):
        spark_ext.transaction(spark, path_of(ns), storage_options={"session": object()})
    assert ns._connection.follower.refresh() == version


def test_rows_of_two_writes_keep_their_order_in_each_partition(ns: Namespace, spark: SparkSession) -> None:
    with spark_ext.transaction(spark, path_of(ns)) as txn:
        for start in (0, 100):
            txn.write(spark.range(start, start + 100, 1, 1).selectExpr("id", "'same' customer"), "orders")
    assert ns.snapshot().read("orders").column("id").to_pylist() == list(range(200))


@pytest.mark.some(3)
@pytest.mark.parametrize("kind", ["tinyint", "smallint", "int", "bigint", "binary", "string"])
def test_spark_and_python_send_a_key_of_any_type_to_the_same_partition(
    namespace: Namespace, spark: SparkSession, kind: str
) -> None:
    types = {"tinyint": pa.int8(), "smallint": pa.int16(), "int": pa.int32(), "bigint": pa.int64()}
    arrow = types.get(kind) or {"binary": pa.binary(), "string": pa.string()}[kind]
    namespace.create_topic("t", pa.schema([("k", arrow), ("n", pa.int64())]), partitions=5, key="k")
    # The frame's column is narrower than the topic's where it can be: hashes differ by type.
    given = {"bigint": "int", "int": "smallint"}.get(kind, kind)
    df = spark.range(100).selectExpr(f"if(id = 50, null, cast(cast(id as string) as {given})) k", "id n")
    with spark_ext.transaction(spark, path_of(namespace)) as txn:
        txn.write(df, "t")
        txn.write(spark.range(100, 103).selectExpr("id n"), "t")
    rows = namespace.snapshot().read("t", include_metadata=True).to_pylist()
    assert len(rows) == 103
    for row in rows:
        assert row["_partition"] == partitioner.partition_of_key(row["k"], arrow, 5)


def test_files_too_many_for_one_entry_still_become_visible_at_once(
    ns: Namespace, orders: DataFrame, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(write_jobs, "ENTRY_SEGMENTS", 1)
    with spark_ext.transaction(spark, path_of(ns)) as txn:
        txn.write(orders, "orders")
        txn.write(orders.groupBy("customer").count(), "totals")
    assert len(versions(ns, "orders", "totals")) == 1
    assert ids(ns, "orders") == list(range(500))
    assert ns.transactions("OPEN") == ()


def test_a_flush_makes_the_work_pending_and_the_commit_visible(
    ns: Namespace, orders: DataFrame, spark: SparkSession
) -> None:
    with spark_ext.transaction(spark, path_of(ns)) as txn:
        txn.write(orders, "orders")
        txn.flush()
        assert [item.txn_id for item in ns.transactions("OPEN")] == [txn.id]
        assert ids(ns, "orders") == []
        txn.write(orders.selectExpr("id + 500 id"), "orders")
    assert ids(ns, "orders") == list(range(1_000))


def test_an_empty_frame_is_fine(ns: Namespace, orders: DataFrame, spark: SparkSession) -> None:
    with spark_ext.transaction(spark, path_of(ns)) as txn:
        assert txn.write(orders.where("false"), "orders") == 0
        assert txn.write(spark.createDataFrame([], "id bigint"), "orders") == 0
    assert ns.transactions() == ()


def test_jobs_may_take_longer_than_any_timeout_and_the_log_shows_a_deadline_once_it_sees_them() -> None:
    clock = ManualClock(1_000_000)
    with txnlog.open("memory://late", namespace="sales", create=True, clock=clock) as ns:
        ns.create_topic("orders", ORDERS)
        slow = write_jobs.begin(ns, write_jobs.reserve_job(ns))
        slow.produce("orders", [{"id": 1}])
        clock.advance(3_600_000)
        slow.commit()
        hanging = write_jobs.begin(ns, write_jobs.reserve_job(ns))
        hanging.produce("orders", [{"id": 2}])
        clock.advance(3_600_000)
        hanging.flush()
        clock.advance(3_600_000)
        with pytest.raises(TransactionTimedOut):
            hanging.commit()
        assert ids(ns, "orders") == [1]


def test_a_frame_that_pyspark_does_not_hand_over_is_refused_with_the_two_ways_to_write_it(
    spark: SparkSession, ns: Namespace
) -> None:
    frame = spark.sql("SELECT timestamp '2026-01-01 00:00:00' AS at, 'x' AS text")
    with pytest.raises(SchemaMismatch, match=r"\(pass df\.toArrow\(\).*txn\.write\(df, 'audit'\)"):
        ns.produce("audit", frame)
    assert ns.produce("audit", frame.toArrow()).offsets
