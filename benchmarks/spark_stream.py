"""A micro-batch of a stream from topic to topic against Spark's own file source and Parquet sink.

Both streams take the same rows in as many micro-batches, one file of the source in each, do next to nothing with them
and end when there is no more (``Trigger.AvailableNow``). Compared is the median of Spark's ``triggerExecution``,
without the first batches of each query. Ours makes each batch durable with one commit, its entry fsynced. Before the
figures count, either side must have all rows, in as many batches.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession

import txnlog
from benchmarks.orders import SCHEMA, rows
from benchmarks.report import report, scratch
from benchmarks.spark_pairs import compared_batches, start_spark

GOAL = 0.85


def fill(folder: Path, batches: int, each: int) -> None:
    """The source of both streams: a topic, and a folder of files in the order of their names."""
    generator = np.random.default_rng(20261121)
    (folder / "files").mkdir()
    with txnlog.open(folder / "lake", namespace="bench", create=True) as ns:
        ns.create_topic("source", SCHEMA)
        for number in range(batches):
            data = rows(each, generator)
            ns.produce("source", data)
            pq.write_table(data, folder / "files" / f"{number:04d}.parquet")


def trivial(frame: DataFrame) -> DataFrame:
    """What both streams do."""
    return frame.where("id >= 0")


class Streams:
    """Queries over the same rows; each has a checkpoint and a place to write to of its own."""

    def __init__(self, spark: SparkSession, folder: Path, batches: int, each: int) -> None:
        self._spark = spark
        self._folder = folder
        self._batches = batches
        self._each = each

    def ours(self, turn: int) -> list[int]:
        """From topic to topic."""
        path = f"{self._folder}/lake/bench"
        with txnlog.open(self._folder / "lake", namespace="bench") as ns:
            ns.create_topic(f"sink-{turn}", SCHEMA)
            source = self._spark.readStream.format("txnlog").option("maxOffsetsPerTrigger", self._each)
            times = self._times(trivial(source.load(f"{path}/source")), "txnlog", f"{path}/sink-{turn}", f"ours-{turn}")
            found = ns.snapshot().read(f"sink-{turn}", include_metadata=True)
        assert found.num_rows == self._batches * self._each, "all rows"
        assert len(set(found.column("_version").to_pylist())) == self._batches, "a commit for each batch"
        return times

    def theirs(self, turn: int) -> list[int]:
        """From folder to folder."""
        schema = self._spark.read.parquet(f"{self._folder}/files").schema
        source = self._spark.readStream.schema(schema).option("maxFilesPerTrigger", 1)
        sink = f"{self._folder}/sink-{turn}"
        times = self._times(trivial(source.parquet(f"{self._folder}/files")), "parquet", sink, f"theirs-{turn}")
        assert self._spark.read.parquet(sink).count() == self._batches * self._each, "all rows"
        return times

    def _times(self, frame: DataFrame, kind: str, path: str, name: str) -> list[int]:
        """Milliseconds of a query's batches."""
        writer = frame.writeStream.format(kind).option("checkpointLocation", f"{self._folder}/checkpoints/{name}")
        query = writer.trigger(availableNow=True).start(path)
        query.awaitTermination()
        progress: list[Any] = [item for item in query.recentProgress if item["numInputRows"]]
        assert len(progress) == self._batches, f"{len(progress)} batches of {self._batches}"
        assert {item["numInputRows"] for item in progress} == {self._each}, "a file for each batch"
        return [item["durationMs"]["triggerExecution"] for item in progress]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--batches", type=int, default=25, help="micro-batches of a query")
    parser.add_argument("--rows", type=int, default=1_000, help="rows of a batch")
    parser.add_argument("--turns", type=int, default=3, help="pairs of queries")
    arguments = parser.parse_args()
    with scratch() as scratch_folder:
        folder = scratch_folder.resolve()
        fill(folder, arguments.batches, arguments.rows)
        spark = start_spark()
        streams = Streams(spark, folder, arguments.batches, arguments.rows)
        what = f"a micro-batch of {arguments.rows:,} rows, topic to topic; built-in files to Parquet sink"
        report([compared_batches(what, GOAL, streams.ours, streams.theirs, arguments.turns)])
        spark.stop()


if __name__ == "__main__":
    main()
