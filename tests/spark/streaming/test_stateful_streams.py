"""Queries that keep state between batches, written by ``write_stream``: exactly once, whichever batch's driver dies.

Every single batch fails and is started again: before it wrote, behind its data, and behind its commit, before
Spark has noted it in its checkpoint. The rows are those that a run without trouble gives.
"""

from __future__ import annotations

import contextlib
import datetime
import enum
import itertools
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import functions as F  # noqa: N812 - as everybody writes it

import spark_ext
import txnlog
from tests.effort import LONG
from tests.spark.support import path_of, versions
from txnlog.errors import InvalidInputError, UnsupportedFeature
from txnlog.format.actions import Commit

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from txnlog.api.namespace import Namespace

EVENTS = pa.schema([("id", pa.int64()), ("k", pa.string()), ("at", pa.timestamp("us", "UTC"))])
RESULTS = pa.schema([("k", pa.string()), ("n", pa.int64())])
START = datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC)

ROUNDS = (
    ((1, "a", 0), (2, "b", 1), (3, "a", 2), (1, "a", 0)),
    ((4, "a", 16), (2, "b", 16)),
    ((5, "b", 40), (5, "b", 41)),
)
"""What is produced before each round of runs: ids, keys, and minutes since the start."""

Sources = Callable[[str], "DataFrame"]


def totals(events: Sources) -> DataFrame:
    return events("events").groupBy("k").agg(F.count("*").alias("n"))


def windows(events: Sources) -> DataFrame:
    counted = events("events").withWatermark("at", "5 minutes").groupBy(F.window("at", "10 minutes"), "k").count()
    return counted.select(F.concat("k", F.date_format("window.start", "HH:mm")).alias("k"), F.col("count").alias("n"))


def sessions(events: Sources) -> DataFrame:
    counted = (
        events("events").withWatermark("at", "5 minutes").groupBy(F.session_window("at", "3 minutes"), "k").count()
    )
    ends = F.date_format("session_window.end", "HH:mm")
    return counted.select(F.concat("k", ends).alias("k"), F.col("count").alias("n"))


def first_of_each_id(events: Sources) -> DataFrame:
    return events("events").dropDuplicates(["id"]).select("k", F.col("id").alias("n"))


def first_within_watermark(events: Sources) -> DataFrame:
    watermarked = events("events").withWatermark("at", "5 minutes")
    return watermarked.dropDuplicatesWithinWatermark(["id"]).select("k", F.col("id").alias("n"))


def joined(events: Sources, how: str = "inner") -> DataFrame:
    left = events("events").withWatermark("at", "5 minutes").alias("l")
    right = events("others").withWatermark("at", "5 minutes").alias("r")
    near = F.expr("l.id = r.id AND r.at BETWEEN l.at AND l.at + INTERVAL 5 MINUTES")
    return left.join(right, near, how).select(
        F.concat("l.k", F.coalesce("r.k", F.lit("-"))).alias("k"), F.col("l.id").alias("n")
    )


def left_joined(events: Sources) -> DataFrame:
    return joined(events, "left")


def named(events: Sources) -> DataFrame:
    of_events = events("events")
    names = of_events.sparkSession.createDataFrame([("a", "Ada"), ("b", "Bob")], "k string, name string")
    return of_events.join(names, "k").groupBy(F.col("name").alias("k")).agg(F.count("*").alias("n"))


def first_ones_in_windows(events: Sources) -> DataFrame:
    first = events("events").withWatermark("at", "5 minutes").dropDuplicatesWithinWatermark(["id"])
    counted = first.groupBy(F.window("at", "10 minutes"), "k").count()
    return counted.select(F.concat("k", F.date_format("window.start", "HH:mm")).alias("k"), F.col("count").alias("n"))


def windows_of_windows(events: Sources) -> DataFrame:
    counted = events("events").withWatermark("at", "5 minutes").groupBy(F.window("at", "10 minutes"), "k").count()
    larger = counted.groupBy(F.window(F.window_time("window"), "20 minutes")).agg(F.sum("count").alias("n"))
    return larger.select(F.date_format("window.start", "HH:mm").alias("k"), "n")


def counted_in_python(events: Sources) -> DataFrame:
    import pandas as pd

    def count(key: Any, frames: Iterator[pd.DataFrame], state: Any) -> Iterator[pd.DataFrame]:
        before = state.get[0] if state.exists else 0
        now = before + sum(len(frame) for frame in frames)
        state.update((now,))
        yield pd.DataFrame({"k": [key[0]], "n": [now]})

    grouped = events("events").groupBy("k")
    return grouped.applyInPandasWithState(count, "k string, n long", "n long", "update", "NoTimeout")


def transformed(events: Sources) -> DataFrame:
    import pandas as pd
    from pyspark.sql.streaming.stateful_processor import StatefulProcessor
    from pyspark.sql.types import LongType, StructField, StructType

    class Count(StatefulProcessor):
        def init(self, handle: Any) -> None:
            self.count = handle.getValueState("n", StructType([StructField("n", LongType())]))

        def handleInputRows(self, key: Any, rows: Any, timerValues: Any) -> Iterator[pd.DataFrame]:  # noqa: N802, N803
            now = (self.count.get()[0] if self.count.exists() else 0) + sum(len(frame) for frame in rows)
            self.count.update((now,))
            yield pd.DataFrame({"k": [key[0]], "n": [now]})

        def close(self) -> None:
            pass

    grouped = events("events").groupBy("k")
    return grouped.transformWithStateInPandas(Count(), "k string, n long", "update", "None")


def counted_when_it_is_time(events: Sources) -> DataFrame:
    import pandas as pd
    from pyspark.sql.streaming.stateful_processor import StatefulProcessor
    from pyspark.sql.types import LongType, StructField, StructType

    class CountLater(StatefulProcessor):
        def init(self, handle: Any) -> None:
            self.handle = handle
            self.count = handle.getValueState("n", StructType([StructField("n", LongType())]))

        def handleInputRows(self, key: Any, rows: Any, timerValues: Any) -> Iterator[pd.DataFrame]:  # noqa: N802, N803
            frames = list(rows)
            self.count.update(((self.count.get()[0] if self.count.exists() else 0) + sum(map(len, frames)),))
            newest = max(frame["at"].max() for frame in frames)
            self.handle.registerTimer(int(newest.timestamp() * 1_000) + 3 * 60_000)
            yield pd.DataFrame({"k": [], "n": []}).astype({"k": str, "n": "int64"})

        def handleExpiredTimer(self, key: Any, timerValues: Any, expiredTimerInfo: Any) -> Iterator[pd.DataFrame]:  # noqa: N802, N803
            yield pd.DataFrame({"k": [key[0]], "n": [self.count.get()[0]]})

        def close(self) -> None:
            pass

    grouped = events("events").withWatermark("at", "5 minutes").groupBy("k")
    return grouped.transformWithStateInPandas(CountLater(), "k string, n long", "append", "EventTime")


TOTALS = {("a", 3): 1, ("b", 1): 1, ("a", 4): 1, ("b", 2): 1, ("b", 4): 1}
WINDOWS = {("a00:00", 3): 1, ("b00:00", 1): 1, ("a00:10", 1): 1, ("b00:10", 1): 1}
IDS = {("a", 1): 1, ("b", 2): 1, ("a", 3): 1, ("a", 4): 1, ("b", 5): 1}
PAIRS = {("aA", 1): 4, ("bB", 2): 2, ("aA", 4): 1, ("bB", 5): 3}

QUERIES: dict[str, tuple[Callable[[Sources], Any], str, dict[Any, int]]] = {
    "totals, update": (totals, "update", TOTALS),
    "totals, complete": (totals, "complete", {("a", 4): 1, ("b", 4): 1}),
    "windows, append": (windows, "append", WINDOWS),
    "windows, update": (windows, "update", {**WINDOWS, ("b00:40", 2): 1}),
    "sessions, append": (sessions, "append", {("a00:05", 3): 1, ("b00:04", 1): 1, ("a00:19", 1): 1, ("b00:19", 1): 1}),
    "dropDuplicates, append": (first_of_each_id, "append", IDS),
    "dropDuplicates, update": (first_of_each_id, "update", IDS),
    "dropDuplicatesWithinWatermark, append": (first_within_watermark, "append", IDS),
    "inner join, append": (joined, "append", PAIRS),
    "left join, append": (left_joined, "append", {**PAIRS, ("a-", 3): 1}),
    "applyInPandasWithState, update": (counted_in_python, "update", TOTALS),
    "transformWithStateInPandas, update": (transformed, "update", TOTALS),
    "transformWithStateInPandas with timers, append": (
        counted_when_it_is_time,
        "append",
        {("a", 4): 2, ("b", 2): 1, ("b", 4): 1},
    ),
    "join with a table, update": (
        named,
        "update",
        {({"a": "Ada", "b": "Bob"}[k], n): times for (k, n), times in TOTALS.items()},
    ),
    "dropDuplicatesWithinWatermark and windows, append": (
        first_ones_in_windows,
        "append",
        {("a00:00", 2): 1, ("b00:00", 1): 1, ("a00:10", 1): 1},
    ),
    "windows of windows, append": (windows_of_windows, "append", {("00:00", 6): 1}),
}
"""By name a query, its output mode, and the rows that all rounds give, with their count."""

QUICK: dict[str, dict[Any, int]] = {
    "totals, update": {("a", 3): 1, ("b", 1): 1, ("a", 4): 1, ("b", 2): 1},
    "totals, complete": {("a", 4): 1, ("b", 2): 1},
    "windows, append": {("a00:00", 3): 1, ("b00:00", 1): 1},
}
"""Those that are always tried, and the rows that the first two rounds give."""

ROCKSDB = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
PROVIDER = "spark.sql.streaming.stateStore.providerClass"


class Place(enum.Enum):
    """Where the handler of a batch fails."""

    BEFORE_DATA = "before it wrote anything"
    BEFORE_ENTRY = "behind its data, before the entry"
    BEFORE_SPARK = "behind the entry, before Spark notes it"


class Died(Exception):
    """As if the driver had died there."""


@pytest.fixture
def ns(namespace: Namespace) -> Namespace:
    for topic in ("events", "others"):
        namespace.create_topic(topic, EVENTS)
    namespace.create_topic("results", RESULTS)
    namespace.enable("holes")
    return namespace


def produce(ns: Namespace, number: int) -> None:
    found: list[dict[str, Any]] = [
        {"id": i, "k": k, "at": START + datetime.timedelta(minutes=m)} for i, k, m in ROUNDS[number]
    ]
    with ns.begin() as txn:
        txn.produce("events", found)
        txn.produce("others", [{**row, "k": row["k"].upper()} for row in found if row["id"] != 3])


def start(spark: SparkSession, ns: Namespace, query: Any, mode: str, handler: Any) -> Any:
    def events(name: str) -> DataFrame:
        read = spark.readStream.format("txnlog").option("subscription", "counting").load(path_of(ns, name))
        return read.withColumn("id", F.col("id").cast("long"))  # what is kept as state must not change its type

    return spark_ext.write_stream(
        query(events),
        path_of(ns),
        checkpoint=str(Path(ns.root).parent / "checkpoint"),
        acknowledge="counting",
        output_mode=mode,
        trigger={"availableNow": True},
        handler=handler,
    )


def run_to_the_end(
    spark: SparkSession, ns: Namespace, query: Any, mode: str, places: Sequence[Place] = (Place.BEFORE_SPARK,)
) -> int:
    """Start it again until nothing is left; each batch fails at each of the places. How often one failed.

    A batch that has its entry is not given to the handler any more: the next place is of the next batch.
    """
    following = itertools.cycle(places)

    def dies(batch: DataFrame, txn: Any) -> None:
        place = next(following)
        if place is not Place.BEFORE_DATA:
            txn.write(batch, "results")
        if place is Place.BEFORE_SPARK:
            txn.commit()
        raise Died

    for died in range(9 * len(places)):
        run = start(spark, ns, query, mode, dies)
        with contextlib.suppress(StreamingQueryException):
            assert run.awaitTermination(200)
        if run.exception() is None:
            return died
        assert "Died" in str(run.exception())
    raise AssertionError("it does not come to an end")


@pytest.mark.timeout(900)
@pytest.mark.some(1)
@pytest.mark.parametrize("name", QUERIES if LONG else QUICK)
def test_each_batch_takes_effect_once_with_its_state(spark: SparkSession, ns: Namespace, name: str) -> None:
    query, mode, expected = QUERIES[name]
    if "transformWithState" in name:
        spark.conf.set(PROVIDER, ROCKSDB)
    try:
        for number in range(len(ROUNDS) if LONG else 2):
            produce(ns, number)
            assert run_to_the_end(spark, ns, query, mode, [*Place] if LONG else [Place.BEFORE_SPARK]) >= 1
    finally:
        spark.conf.unset(PROVIDER)
    assert shown(ns) == (expected if LONG else QUICK[name])
    assert [item.behind_messages for item in ns.lag("events", "counting")] == [0]


def shown(ns: Namespace) -> Counter[tuple[str, int]]:
    return Counter((row["k"], row["n"]) for row in ns.snapshot().read("results").to_pylist())


@pytest.mark.long
@pytest.mark.timeout(900)
@pytest.mark.parametrize("name", QUERIES)
def test_a_column_is_added_and_another_one_widened_amid_the_state(
    spark: SparkSession, namespace: Namespace, name: str
) -> None:
    """The state was kept by batches that read the columns of before."""
    query, mode, expected = QUERIES[name]
    namespace.enable("holes")
    narrow = pa.schema([("id", pa.int32()), *((field.name, field.type) for field in EVENTS if field.name != "id")])
    for topic in ("events", "others"):
        namespace.create_topic(topic, narrow)
    namespace.create_topic("results", RESULTS)
    if "transformWithState" in name:
        spark.conf.set(PROVIDER, ROCKSDB)
    try:
        for number in range(len(ROUNDS)):
            produce(namespace, number)
            assert run_to_the_end(spark, namespace, query, mode) >= 1
            if number == 0:
                for topic in ("events", "others"):
                    namespace.alter_topic(topic, add_columns=[("note", pa.string())], widen={"id": pa.int64()})
    finally:
        spark.conf.unset(PROVIDER)
    assert shown(namespace) == expected


def test_the_rows_that_changed_are_one_commit_with_the_acknowledgement(spark: SparkSession, ns: Namespace) -> None:
    produce(ns, 0)
    run = start(spark, ns, totals, "update", lambda batch, txn: txn.write(batch, "results"))
    assert run.awaitTermination(120)
    (version,) = versions(ns, "results")
    (commit,) = [item for item in ns._connection.follower.log.entry(version).actions if isinstance(item, Commit)]
    assert len(commit.acknowledgements) == 1


@pytest.mark.parametrize(
    ("mode", "told"),
    [
        ("overwrite", "no output mode 'overwrite'.*'append', 'update' or 'complete'"),
        (None, "no output mode None"),
        (["append"], r"no output mode \['append'\]"),
    ],
)
def test_another_output_mode_is_refused(spark: SparkSession, ns: Namespace, mode: Any, told: str) -> None:
    with pytest.raises(InvalidInputError, match=told):
        start(spark, ns, totals, mode, lambda *_: None)
    assert not (Path(ns.root).parent / "checkpoint").exists()


def test_an_aggregate_that_is_never_complete_names_the_other_modes(spark: SparkSession, ns: Namespace) -> None:
    with pytest.raises(InvalidInputError, match="output_mode='update' writes the rows that changed"):
        start(spark, ns, totals, "append", lambda batch, txn: txn.write(batch, "results"))
    assert not spark.streams.active


def test_a_complete_result_replaces_the_one_before_in_one_version(spark: SparkSession, ns: Namespace) -> None:
    """Each version shows one whole result, with the row that the handler appends to another topic."""

    def handler(batch: DataFrame, txn: Any) -> None:
        txn.write(batch, "results")
        txn.write(batch.limit(1).selectExpr("0L id", "k", "timestamp'2026-01-01' at"), "others", mode="append")

    shown = []
    for number in range(2):
        produce(ns, number)
        assert start(spark, ns, totals, "complete", handler).awaitTermination(120)
        shown.append(ns.snapshot().version)
    results = [
        sorted((row["k"], row["n"]) for row in ns.snapshot(version).read("results").to_pylist()) for version in shown
    ]
    assert results == [[("a", 3), ("b", 1)], [("a", 4), ("b", 2)]]
    assert sum(row["id"] == 0 for row in ns.snapshot().read("others").to_pylist()) == 2


def test_nobody_else_may_write_to_the_topic_of_a_complete_result(spark: SparkSession, ns: Namespace) -> None:
    produce(ns, 0)
    assert start(spark, ns, totals, "complete", lambda batch, txn: txn.write(batch, "results")).awaitTermination(120)
    ns.produce("results", [{"k": "mine", "n": 1}])
    produce(ns, 1)
    query = start(spark, ns, totals, "complete", lambda batch, txn: txn.write(batch, "results"))
    with pytest.raises(StreamingQueryException, match="somebody else wrote 1 messages to 'results'"):
        query.awaitTermination(120)
    assert {"k": "mine", "n": 1} in ns.snapshot().read("results").to_pylist()


def test_without_the_feature_there_is_no_complete_result(spark: SparkSession, tmp_path: Path) -> None:
    ns = txnlog.open(str(tmp_path / "old"), namespace="sales", create=True)
    ns.create_topic("events", EVENTS)
    with pytest.raises(UnsupportedFeature, match="output_mode='complete' needs the feature 'holes'"):
        start(spark, ns, totals, "complete", lambda *_: None)
    ns.close()


def test_the_format_has_no_update_mode_since_spark_refuses_it(spark: SparkSession, ns: Namespace) -> None:
    """docs/spark.md names the way out: the format is not asked, so its errors cannot."""
    produce(ns, 0)
    events = spark.readStream.format("txnlog").load(path_of(ns, "events"))
    writer = totals(lambda _: events).writeStream.format("txnlog").outputMode("update").trigger(availableNow=True)
    query = writer.option("checkpointLocation", f"{ns.root}-checkpoint").start(path_of(ns, "results"))
    with pytest.raises(StreamingQueryException, match="txnlog does not support Update mode"):
        query.awaitTermination(60)
