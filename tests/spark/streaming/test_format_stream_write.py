"""``df.writeStream.format("txnlog")``: every micro-batch one commit, replays skipped, sources acknowledged with it."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import functions as F  # noqa: N812 - as everybody writes it

from tests.spark.support import forget_commit, ids, path_of, versions
from txnlog.format.actions import Commit

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from txnlog.api.namespace import Namespace

SCHEMA = pa.schema([("id", pa.int64()), ("customer", pa.string())])


@pytest.fixture
def ns(namespace: Namespace) -> Namespace:
    namespace.create_topic("orders", SCHEMA, partitions=2)
    namespace.create_topic("copy", SCHEMA, partitions=2, key="customer")
    return namespace


def produce(ns: Namespace, first: int, count: int) -> None:
    """Rows in transactions of ten, so that batches have where to end."""
    for start in range(first, first + count, 10):
        ns.produce("orders", [{"id": i, "customer": f"c{i % 7}"} for i in range(start, start + 10)])


def source(spark: SparkSession, ns: Namespace, **options: Any) -> DataFrame:
    reader = spark.readStream.format("txnlog").options(**{"maxOffsetsPerTrigger": "10", **options})
    return reader.load(path_of(ns, "orders"))


def run(df: DataFrame, path: str, checkpoint: Path | None, **options: Any) -> None:
    """One run of a query to the end of what is there."""
    if checkpoint is not None:
        options["checkpointLocation"] = str(checkpoint)
    query = df.writeStream.format("txnlog").options(**options).trigger(availableNow=True).start(path)
    try:
        assert query.awaitTermination(120)
    finally:
        query.stop()


def commits(ns: Namespace, version: int) -> list[Commit]:
    return [item for item in ns._connection.follower.log.entry(version).actions if isinstance(item, Commit)]


def last_batch(ns: Namespace) -> int:
    ns._connection.follower.refresh()
    (record,) = ns._connection.follower.state.streams.values()
    return record.batch


def test_each_batch_is_one_commit_and_a_replayed_one_is_skipped(
    ns: Namespace, spark: SparkSession, tmp_path: Path
) -> None:
    checkpoint = tmp_path / "checkpoint"
    produce(ns, 0, 30)
    run(source(spark, ns), path_of(ns, "copy"), checkpoint)
    assert ids(ns, "copy") == list(range(30))
    assert len(versions(ns, "copy")) == 3
    assert last_batch(ns) == 2
    forget_commit(checkpoint, 2)
    run(source(spark, ns), path_of(ns, "copy"), checkpoint)
    assert ids(ns, "copy") == list(range(30)), "the batch ran again and was not committed again"
    assert (checkpoint / "commits" / "2").exists(), "it ran again"
    produce(ns, 30, 10)
    run(source(spark, ns), path_of(ns, "copy"), checkpoint)
    assert ids(ns, "copy") == list(range(40))
    ns.drop_topic("copy")
    ns.create_topic("copy", SCHEMA)
    produce(ns, 40, 10)
    with pytest.raises(
        StreamingQueryException, match=r"InvalidInputError: the topic 'copy' .* was dropped and created"
    ):
        run(source(spark, ns), path_of(ns, "copy"), checkpoint)
    assert ids(ns, "copy") == []


def test_other_offsets_under_a_batchs_id_are_refused(ns: Namespace, spark: SparkSession, tmp_path: Path) -> None:
    checkpoint = tmp_path / "checkpoint"
    produce(ns, 0, 10)
    run(source(spark, ns), path_of(ns, "copy"), checkpoint)
    shutil.rmtree(checkpoint / "offsets")
    shutil.rmtree(checkpoint / "commits")
    produce(ns, 10, 10)
    with pytest.raises(StreamingQueryException, match="with other source offsets"):
        run(source(spark, ns, maxOffsetsPerTrigger="100"), path_of(ns, "copy"), checkpoint)
    assert ids(ns, "copy") == list(range(10))


def test_a_new_checkpoint_under_the_same_app_id_is_refused_naming_both(
    ns: Namespace, spark: SparkSession, tmp_path: Path
) -> None:
    produce(ns, 0, 10)
    run(source(spark, ns), path_of(ns, "copy"), tmp_path / "one", txnAppId="copier")
    with pytest.raises(StreamingQueryException, match=r"'copier' committed batch 0 of the query .* begins again"):
        run(source(spark, ns), path_of(ns, "copy"), tmp_path / "two", txnAppId="copier")
    assert ids(ns, "copy") == list(range(10))


@pytest.mark.long  # the sink does the same whether it sees the checkpoint or not
def test_a_new_checkpoint_that_the_sink_does_not_see_is_refused_as_well(
    ns: Namespace, spark: SparkSession, tmp_path: Path
) -> None:
    def run_at(folder: str) -> None:
        spark.conf.set("spark.sql.streaming.checkpointLocation", str(tmp_path / folder))
        writer = source(spark, ns).writeStream.format("txnlog").option("txnAppId", "copier").queryName("copier")
        query = writer.trigger(availableNow=True).start(path_of(ns, "copy"))
        try:
            assert query.awaitTermination(120)
        finally:
            query.stop()
            spark.conf.unset("spark.sql.streaming.checkpointLocation")

    produce(ns, 0, 10)
    run_at("one")
    forget_commit(tmp_path / "one" / "copier", 0)
    run_at("one")
    assert ids(ns, "copy") == list(range(10)), "a replay is skipped"
    with pytest.raises(StreamingQueryException, match=r"'copier' committed batch 0 of the query .* begins again"):
        run_at("two")
    assert ids(ns, "copy") == list(range(10))


def test_a_query_without_an_identity_is_refused(ns: Namespace, spark: SparkSession, tmp_path: Path) -> None:
    produce(ns, 0, 10)
    spark.conf.set("spark.sql.streaming.checkpointLocation", str(tmp_path / "all"))
    try:
        with pytest.raises(StreamingQueryException, match="pass checkpointLocation as an option, or txnAppId"):
            run(source(spark, ns), path_of(ns, "copy"), None)
        run(source(spark, ns), path_of(ns, "copy"), None, txnAppId="copier")
    finally:
        spark.conf.unset("spark.sql.streaming.checkpointLocation")
    assert ids(ns, "copy") == list(range(10))


def test_rows_and_acknowledgement_are_in_one_entry(ns: Namespace, spark: SparkSession, tmp_path: Path) -> None:
    checkpoint = tmp_path / "checkpoint"
    produce(ns, 0, 20)
    df = source(spark, ns, subscription="billing")
    run(df, path_of(ns, "copy"), checkpoint, acknowledge="billing")
    assert ids(ns, "copy") == list(range(20))
    assert [item.behind_messages for item in ns.lag("orders", "billing")] == [0, 0]
    for version in versions(ns, "copy"):
        (commit,) = commits(ns, version)
        assert commit.stream is not None
        assert len(commit.acknowledgements) == 1
    forget_commit(checkpoint, 1)
    produce(ns, 20, 20)
    run(source(spark, ns, subscription="billing"), path_of(ns, "copy"), checkpoint, acknowledge="billing")
    assert ids(ns, "copy") == list(range(40))
    assert [item.behind_messages for item in ns.lag("orders", "billing")] == [0, 0]
    epochs = {item.acknowledgements[0].epoch for v in versions(ns, "copy") for item in commits(ns, v)}
    assert len(epochs) == 2, "one epoch a run, not one a batch"


@pytest.mark.clause("P-77")
def test_a_subscription_that_another_consumer_keeps_stops_the_query(
    ns: Namespace, spark: SparkSession, tmp_path: Path
) -> None:
    checkpoint, df = tmp_path / "checkpoint", source(spark, ns, subscription="billing")
    ns.create_subscription("orders", "billing", takeover="same_name")
    ns.consumer("orders", "billing", name="copier", takeover=True)
    produce(ns, 0, 20)
    with pytest.raises(StreamingQueryException, match=r"ConsumerBusy: .*belongs to the consumer 'copier'.*same_name"):
        run(df, path_of(ns, "copy"), tmp_path / "other", acknowledge="billing")
    assert ids(ns, "copy") == []
    for count in (20, 40):
        run(df, path_of(ns, "copy"), checkpoint, acknowledge="billing", txnAppId="copier")
        assert ids(ns, "copy") == list(range(count))
        produce(ns, count, 20)
    assert len({item.acknowledgements[0].epoch for v in versions(ns, "copy") for item in commits(ns, v)}) == 2


def test_a_cursor_that_somebody_moved_stops_the_query(ns: Namespace, spark: SparkSession, tmp_path: Path) -> None:
    checkpoint = tmp_path / "checkpoint"
    produce(ns, 0, 20)
    run(source(spark, ns, subscription="billing"), path_of(ns, "copy"), checkpoint, acknowledge="billing")
    for partition in (0, 1):
        ns.produce("orders", [{"id": i, "customer": "c"} for i in range(10)], partition=partition)
    with ns.consumer("orders", subscription="billing", takeover=True) as consumer:
        consumer.seek({0: 15})
    with pytest.raises(StreamingQueryException, match=r"continues at offset 10, .* 'billing' is at 15"):
        run(source(spark, ns, subscription="billing"), path_of(ns, "copy"), checkpoint, acknowledge="billing")
    assert ids(ns, "copy") == list(range(20))


def test_two_sources_on_one_subscription_are_refused(ns: Namespace, spark: SparkSession, tmp_path: Path) -> None:
    produce(ns, 0, 10)
    both = source(spark, ns, subscription="billing").union(source(spark, ns, subscription="billing"))
    with pytest.raises(StreamingQueryException, match="two sources of the query"):
        run(both, path_of(ns, "copy"), tmp_path / "checkpoint", acknowledge="billing")
    assert ids(ns, "copy") == []


def test_a_topic_column_routes_the_rows_of_a_batch(ns: Namespace, spark: SparkSession, tmp_path: Path) -> None:
    ns.create_topic("odd", SCHEMA)
    produce(ns, 0, 20)
    routed = source(spark, ns, maxOffsetsPerTrigger="100").withColumn(
        "topic", F.when(F.col("id") % 2 == 0, "copy").otherwise("odd")
    )
    run(routed, path_of(ns), tmp_path / "checkpoint")
    assert ids(ns, "copy") == list(range(0, 20, 2))
    assert ids(ns, "odd") == list(range(1, 20, 2))
    assert versions(ns, "copy") == versions(ns, "odd")


@pytest.mark.some(1)
@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"transactionalId": "p"}, "'transactionalId' belongs to df.write"),
        ({"txnVersion": "1"}, "belongs to df.write"),
        ({"acknowledge": "billing"}, "no source of the query reads the namespace 'sales'"),
        ({"acknoledge": "billing"}, "unknown option.*did you mean 'acknowledge'"),
    ],
)
def test_options_that_make_no_sense_are_refused(
    ns: Namespace, spark: SparkSession, tmp_path: Path, options: dict[str, str], problem: str
) -> None:
    produce(ns, 0, 10)
    with pytest.raises(StreamingQueryException, match=problem):
        run(source(spark, ns), path_of(ns, "copy"), tmp_path / "checkpoint", **options)
    assert ids(ns, "copy") == []


def test_a_relative_checkpoint_is_refused(ns: Namespace, spark: SparkSession, tmp_path: Path) -> None:
    """It is another one in another working directory, where the same query would write all rows again."""
    produce(ns, 0, 10)
    relative = Path(os.path.relpath(tmp_path / "checkpoint"))
    with pytest.raises(StreamingQueryException, match=r"the checkpoint's location .* is relative.*os.path.abspath"):
        run(source(spark, ns), path_of(ns, "copy"), relative)
    assert ids(ns, "copy") == []


def complete(spark: SparkSession, ns: Namespace, topic: str, checkpoint: Path) -> None:
    counts = source(spark, ns).groupBy("customer").count()
    query = counts.writeStream.format("txnlog").outputMode("complete").option("checkpointLocation", str(checkpoint))
    query.trigger(availableNow=True).start(path_of(ns, topic)).awaitTermination(120)


def test_a_complete_result_replaces_the_one_before(ns: Namespace, spark: SparkSession, tmp_path: Path) -> None:
    ns.create_topic("counts", pa.schema([("customer", pa.string()), ("count", pa.int64())]), partitions=2)
    produce(ns, 0, 10)
    with pytest.raises(StreamingQueryException, match=r"outputMode\('complete'\) needs the feature 'holes'"):
        complete(spark, ns, "counts", tmp_path / "a")
    ns.enable("holes")
    complete(spark, ns, "counts", tmp_path / "a")
    before = ns.snapshot().version
    produce(ns, 10, 20)
    complete(spark, ns, "counts", tmp_path / "a")
    for version, rows in ((before, 10), (None, 30)):
        found = ns.snapshot(version).read("counts").to_pylist()
        assert sum(row["count"] for row in found) == rows
        assert len({row["customer"] for row in found}) == len(found)
    ns.produce("counts", [{"customer": "mine", "count": 1}])
    produce(ns, 30, 10)
    with pytest.raises(StreamingQueryException, match="somebody else wrote 1 messages to 'counts'"):
        complete(spark, ns, "counts", tmp_path / "a")


def test_rows_that_do_not_fit_are_refused(ns: Namespace, spark: SparkSession, tmp_path: Path) -> None:
    produce(ns, 0, 10)
    with pytest.raises(StreamingQueryException, match="topic 'copy' has no column 'extra'"):
        run(source(spark, ns).withColumn("extra", F.lit(1)), path_of(ns, "copy"), tmp_path / "b")
    assert ids(ns, "copy") == []
