"""A micro-batch of a running aggregate in Update mode, into a topic against Parquet files by ``foreachBatch``.

Both queries read the same topic, a transaction in each batch, and keep a count and a sum for each key; each batch
changes nearly all of them, and writes the rows that changed. Compared is the median of Spark's ``triggerExecution``,
without the first batches of each query. Ours makes each batch durable with one commit, its entry fsynced, and would
skip it if it came again; files written by ``foreachBatch`` come twice then. Before the figures count, the newest rows
of the keys must be the aggregate of the whole source on both sides.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - as everybody imports it

import spark_ext
import txnlog
from benchmarks.report import report, scratch
from benchmarks.spark_pairs import compared_batches, start_spark

GOAL = 1.00

EVENTS = pa.schema([("key", pa.int64()), ("amount", pa.int64())])
TOTALS = pa.schema([("key", pa.int64()), ("n", pa.int64()), ("amount", pa.int64())])
SHUFFLES = 4
"""Partitions of the state: more than two cores keep busy only add to what both sides pay."""


def fill(root: Path, batches: int, each: int, keys: int) -> None:
    """The source: so many rows in each transaction, of keys drawn evenly."""
    generator = np.random.default_rng(20261130)
    with txnlog.open(root, namespace="bench", create=True) as ns:
        ns.create_topic("events", EVENTS)
        for _ in range(batches):
            columns = [generator.integers(0, keys, each), generator.integers(0, 1_000, each)]
            ns.produce("events", pa.Table.from_arrays([pa.array(column) for column in columns], schema=EVENTS))


class Queries:
    """Aggregates of the same rows; each has a checkpoint and a place to write to of its own."""

    def __init__(self, spark: SparkSession, folder: Path, batches: int, each: int) -> None:
        self._spark = spark
        self._folder = folder
        self._batches = batches
        self._each = each
        self._lake = f"{folder}/lake/bench"
        self._expected = self._newest(totals(spark.read.format("txnlog").load(f"{self._lake}/events")))

    def ours(self, turn: int) -> list[int]:
        """Into a topic."""
        sink = f"totals-{turn}"
        with txnlog.open(self._folder / "lake", namespace="bench") as ns:
            ns.create_topic(sink, TOTALS)
        query = spark_ext.write_stream(
            self._changing(),
            self._lake,
            checkpoint=f"{self._folder}/checkpoints/ours-{turn}",
            output_mode="update",
            trigger={"availableNow": True},
            handler=lambda batch, txn: txn.write(batch, sink),
        )
        times = self._times(query)
        assert self._newest(spark_ext.read_topic(self._spark, f"{self._lake}/{sink}")) == self._expected
        return times

    def theirs(self, turn: int) -> list[int]:
        """Into a folder."""
        sink = f"{self._folder}/sink-{turn}"
        writer = self._changing().writeStream.outputMode("update").trigger(availableNow=True)
        writer = writer.option("checkpointLocation", f"{self._folder}/checkpoints/theirs-{turn}")
        query = writer.foreachBatch(lambda batch, _number: batch.write.mode("append").parquet(sink)).start()
        times = self._times(query)
        assert self._newest(self._spark.read.parquet(sink)) == self._expected
        return times

    def _changing(self) -> DataFrame:
        source = self._spark.readStream.format("txnlog").option("maxOffsetsPerTrigger", self._each)
        return totals(source.load(f"{self._lake}/events"))

    def _newest(self, frame: DataFrame) -> tuple[int, int, int]:
        """Keys, and sums over the newest row of each: the one with the highest count."""
        newest = frame.groupBy("key").agg(F.max("n").alias("n"), F.max_by("amount", "n").alias("amount"))
        keys, rows, amount = newest.agg(F.count("*"), F.sum("n"), F.sum("amount")).collect()[0]
        return keys, rows, amount

    def _times(self, query: Any) -> list[int]:
        """Milliseconds of a query's batches."""
        query.awaitTermination()
        progress = [item for item in query.recentProgress if item["numInputRows"]]
        assert len(progress) == self._batches, f"{len(progress)} batches of {self._batches}"
        return [item["durationMs"]["triggerExecution"] for item in progress]


def totals(events: DataFrame) -> DataFrame:
    """Of each key how many rows, and their sum."""
    return events.groupBy("key").agg(F.count("*").alias("n"), F.sum("amount").alias("amount"))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--keys", type=int, default=100_000)
    parser.add_argument("--rows", type=int, default=300_000, help="rows of a batch")
    parser.add_argument("--batches", type=int, default=12, help="micro-batches of a query")
    parser.add_argument("--turns", type=int, default=3, help="pairs of queries")
    arguments = parser.parse_args()
    with scratch() as scratch_folder:
        folder = scratch_folder.resolve()
        fill(folder / "lake", arguments.batches, arguments.rows, arguments.keys)
        spark = start_spark()
        spark.conf.set("spark.sql.shuffle.partitions", SHUFFLES)
        queries = Queries(spark, folder, arguments.batches, arguments.rows)
        what = f"a micro-batch in Update mode, {arguments.keys:,} keys, into a topic; into Parquet by foreachBatch"
        report([compared_batches(what, GOAL, queries.ours, queries.theirs, arguments.turns)])
        spark.stop()


if __name__ == "__main__":
    main()
