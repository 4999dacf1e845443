"""How far queries of Spark and runs of ``spark_ext.process`` are behind, as people who operate them see it."""

from __future__ import annotations

import datetime
import json
import logging
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from pyspark.sql import functions as F  # noqa: N812 - as everybody writes it

import spark_ext
from spark_ext.streaming import monitor as monitors
from tests.open_metrics import parsed
from tests.spark.support import path_of
from txnlog.errors import InvalidInputError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from spark_ext.streaming.monitor import Monitor
    from txnlog.api.namespace import Namespace

SCHEMA = pa.schema([("id", pa.int64())])


@pytest.fixture
def ns(namespace: Namespace) -> Namespace:
    namespace.create_topic("orders", SCHEMA, partitions=2)
    namespace.create_topic("copies", SCHEMA)
    return namespace


@pytest.fixture
def monitor(spark: SparkSession) -> Iterator[Monitor]:
    with spark_ext.monitor(spark, warn_after=2) as made:
        yield made


def produce(ns: Namespace, transactions: int) -> None:
    """Ten messages a transaction, as many as a batch has."""
    for number in range(transactions):
        ns.produce("orders", [{"id": i} for i in range(10)], partition=number % 2)


def source(spark: SparkSession, ns: Namespace, **options: str) -> DataFrame:
    given = {"maxOffsetsPerTrigger": "10", **options}
    return spark.readStream.format("txnlog").options(**given).load(f"{ns.root}/{ns.name}/orders")


def until(ready: Callable[[], bool]) -> None:
    """Wait for a query, on a machine that does much else as well."""
    deadline = time.monotonic() + 240
    while not ready():
        assert time.monotonic() < deadline, "it never comes to that"
        time.sleep(0.02)


def lines(caplog: pytest.LogCaptureFixture) -> list[tuple[int, int]]:
    """By line the batch, and the messages that it left behind."""
    found = [json.loads(item.getMessage()) for item in caplog.records if item.levelno == logging.INFO]
    return [(line["batch"], line["messagesBehindLatest"]) for line in found]


def test_a_slow_query_is_seen_to_fall_behind_and_to_catch_up(
    spark: SparkSession, ns: Namespace, monitor: Monitor, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    assert spark_ext.monitor(spark, warn_after=2) is monitor
    calls: list[int] = []

    def handle(batch: DataFrame, txn: Any) -> None:
        """Slow: while each of its first batches runs, twice as much comes as it takes."""
        until(lambda: len(lines(caplog)) >= len(calls))  # what was measured of the batch before is in the log
        txn.write(batch, "copies")
        if len(calls) < 3:
            produce(ns, 2)
        calls.append(1)

    produce(ns, 1)
    with caplog.at_level("INFO", "txnlog.spark.lag"):
        query = spark_ext.write_stream(
            source(spark, ns, subscription="slow"),
            f"{ns.root}/{ns.name}",
            checkpoint=str(tmp_path / "checkpoint"),
            acknowledge="slow",
            handler=handle,
            query_name="slow",
        )
        try:
            until(lambda: len(lines(caplog)) >= 7)
            (now,) = monitor.lag()
            assert (now.query, now.topic, now.subscription, now.behind_messages) == ("slow", "orders", "slow", 0)
            gauges = parsed(monitor.metrics())
            assert gauges["txnlog_query_lag_messages"].value(query="slow", topic="orders") == 0
            produce(ns, 1)
        finally:
            query.stop()
    assert lines(caplog)[:7] == list(enumerate([20, 30, 40, 30, 20, 10, 0]))
    warnings = [item.getMessage() for item in caplog.records if item.levelno == logging.WARNING]
    assert len(warnings) == 1
    assert "'slow' falls behind in the topic 'orders': each of its last 2 batches" in warnings[0]

    # What Spark itself shows: the source says in latestOffset how far the batch was behind when it was planned.
    progress = {item.batchId: json.loads(item.json)["sources"][0] for item in query.recentProgress}
    behind = [progress[batch]["latestOffset"]["behind"]["orders"]["messagesBehindLatest"] for batch in (0, 1, 3, 6)]
    assert behind == [0, 10, 30, 0]
    assert monitor.lag(query)[0].behind_messages in {0, 10}, "a query that ended is asked by its last progress"
    until(lambda: monitor.lag() == ())
    assert monitor._failures == 0


@pytest.mark.long
def test_two_sources_and_the_formats_sink(spark: SparkSession, ns: Namespace, monitor: Monitor, tmp_path: Path) -> None:
    ns.create_topic("returns", SCHEMA)
    produce(ns, 3)
    ns.produce("returns", [{"id": 1}] * 4)
    other = spark.readStream.format("txnlog").load(f"{ns.root}/{ns.name}/returns")
    writer = source(spark, ns).unionByName(other).writeStream.format("txnlog")
    writer = writer.option("checkpointLocation", str(tmp_path / "checkpoint"))
    query = writer.start(f"{ns.root}/{ns.name}/copies")
    try:
        query.processAllAvailable()
        produce(ns, 2)
        query.processAllAvailable()
        until(lambda: {item.topic for item in monitor.lag()} == {"orders", "returns"})
        assert {(item.query, item.source) for item in monitor.lag()} == {(query.id, 0), (query.id, 1)}
        until(lambda: {item.behind_messages for item in monitor.lag()} == {0})
    finally:
        query.stop()
    assert [json.loads(item.json)["sink"]["numOutputRows"] for item in query.recentProgress[:1]] == [14]


@pytest.mark.long
def test_rows_that_a_watermark_leaves_out_are_warned_of(
    spark: SparkSession, namespace: Namespace, monitor: Monitor, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    schema = pa.schema([("id", pa.int64()), ("at", pa.timestamp("us", "UTC"))])
    namespace.create_topic("scans", schema)
    for hour in (13, 14, 12):  # the last one is too late by the watermark of the batch before
        namespace.produce("scans", [{"id": hour, "at": datetime.datetime(2026, 1, 1, hour, tzinfo=datetime.UTC)}])
    scans = spark.readStream.format("txnlog").option("maxOffsetsPerTrigger", 1).load(path_of(namespace, "scans"))
    counts = scans.withWatermark("at", "1 minute").groupBy(F.window("at", "1 minute")).count()
    query = spark_ext.write_stream(
        counts,
        path_of(namespace),
        checkpoint=str(tmp_path / "checkpoint"),
        output_mode="update",
        query_name="by minute",
        trigger={"availableNow": True},
        handler=lambda batch, _txn: batch.collect(),
    )
    assert query.awaitTermination(120)
    until(lambda: any("left out rows" in record.getMessage() for record in caplog.records))
    (warning,) = [record for record in caplog.records if "left out rows" in record.getMessage()]
    assert warning.levelname == "WARNING"
    assert "'by minute' left out rows in batch 2, since they came later" in warning.getMessage()


def test_the_session_by_another_name_has_the_same_monitor(spark: SparkSession, monitor: Monitor) -> None:
    (row,) = [frame.sparkSession for frame in [spark.range(1)]]
    assert spark_ext.monitor(row, warn_after=2) is monitor
    other = spark.newSession()
    with spark_ext.monitor(other) as second:
        assert second is not monitor
    assert list(monitors._monitors.values()) == [monitor]


def test_a_run_of_process_says_how_far_it_is_behind(
    spark: SparkSession, ns: Namespace, monitor: Monitor, caplog: pytest.LogCaptureFixture
) -> None:
    produce(ns, 3)
    seen: list[int] = []

    def handle(batch: DataFrame, txn: Any) -> None:
        seen.append(sum(item.behind_messages for item in monitor.lag()))
        txn.write(batch, "copies")
        if len(seen) == 2:
            produce(ns, 2)

    with caplog.at_level("INFO", "txnlog.spark.lag"):
        done = spark_ext.process(
            spark,
            f"{ns.root}/{ns.name}",
            topics="orders",
            subscription="loop",
            handler=handle,
            max_rows=10,
            progress=False,
        )
    assert seen == [30, 20, 30], "a batch that runs is not processed yet"
    assert lines(caplog) == [(1, 20), (2, 30), (3, 20)]
    (lag,) = done.lag
    assert (lag.query, lag.topic, lag.subscription, lag.behind_messages) == ("loop", "orders", "loop", 20)
    assert lag.behind_ms is not None
    assert sum(item.behind_messages for item in ns.lag("orders", "loop")) == 20
    assert monitor.lag() == ()


def test_what_is_no_session_is_refused() -> None:
    with pytest.raises(InvalidInputError, match="the first argument is a SparkSession"):
        spark_ext.monitor(None)
