"""Messages of a Kafka broker into a topic against Spark's own Kafka source into Parquet files.

Both are streaming queries over the same messages, in as many micro-batches, that end when there is no more
(``Trigger.AvailableNow``). Timed is a query from its start to its end. Ours makes each batch durable, its entries
fsynced, with the position in each partition of Kafka. Before the figures count, either side must have all messages.
The broker, one of Kafka 4.1 in KRaft mode on loopback, shares the processors with Spark.
"""

from __future__ import annotations

import argparse
import shutil
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.sql import SparkSession
from pyspark.sql import functions as F  # noqa: N812 - as everybody writes it

import spark_ext
import txnlog
from benchmarks.report import report, scratch
from benchmarks.spark_pairs import Pair, start_spark
from tools import kafka

GOAL = 1.10
PARTITIONS = 4
SCHEMA = pa.schema(
    [
        ("key", pa.binary()),
        ("value", pa.binary()),
        ("partition", pa.int32()),
        ("offset", pa.int64()),
        ("timestamp", pa.timestamp("us", "UTC")),
    ]
)


class Ingestions:
    """Queries over the same messages; each has a checkpoint and a place to write to of its own."""

    def __init__(self, spark: SparkSession, servers: str, folder: Path, messages: int, batches: int) -> None:
        self._spark = spark
        self._folder = folder
        self._messages = messages
        self._options = {
            "kafka.bootstrap.servers": servers,
            "startingOffsets": "earliest",
            "maxOffsetsPerTrigger": str(-(-messages // batches)),
        }
        self._turn = 0

    def fill(self, size: int) -> None:
        """The messages, of random text that does not compress well."""
        numbers = self._spark.range(self._messages)
        text = F.concat(*(F.sha2(F.concat(F.col("id"), F.lit(part)), 256) for part in range(size // 64)))
        rows = numbers.select(F.col("id").cast("string").alias("key"), text.alias("value"))
        options = {"kafka.bootstrap.servers": self._options["kafka.bootstrap.servers"], "topic": "source"}
        rows.write.format("kafka").options(**options).save()

    def prepare(self) -> None:
        """Another place for each query, and no more of the last one."""
        shutil.rmtree(self._folder / f"parquet-{self._turn}", ignore_errors=True)
        shutil.rmtree(self._folder / f"lake-{self._turn}", ignore_errors=True)
        self._turn += 1
        with txnlog.open(self._folder / f"lake-{self._turn}", namespace="bench", create=True) as ns:
            ns.create_topic("sink", SCHEMA, partitions=PARTITIONS)

    def ours(self) -> None:
        """Into a topic."""
        lake = self._folder / f"lake-{self._turn}"
        query = spark_ext.ingest_kafka(
            self._spark,
            f"{lake}/bench",
            subscribe="source",
            topic="sink",
            options=self._options,
            trigger={"availableNow": True},
        )
        self._finish(query)
        with txnlog.open(lake, namespace="bench", mode="r") as ns:
            assert sum(ns.snapshot().end_offsets("sink").values()) == self._messages, "all messages"

    def theirs(self) -> None:
        """Into Parquet files."""
        target = str(self._folder / f"parquet-{self._turn}")
        source = self._spark.readStream.format("kafka").options(**self._options).option("subscribe", "source").load()
        writer = source.select(*SCHEMA.names).writeStream.format("parquet").trigger(availableNow=True)
        self._finish(writer.option("checkpointLocation", str(self._folder / f"checkpoint-{self._turn}")).start(target))
        found: Any = self._spark.read.parquet(target).agg(F.count("*")).collect()[0][0]
        assert found == self._messages, "all messages"

    def _finish(self, query: Any) -> None:
        query.awaitTermination()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--messages", type=int, default=1_000_000)
    parser.add_argument("--size", type=int, default=1_024, help="bytes of a message's value")
    parser.add_argument("--batches", type=int, default=4, help="micro-batches of a query")
    parser.add_argument("--turns", type=int, default=5, help="pairs of queries")
    arguments = parser.parse_args()
    kafka.broker_jars()
    with scratch() as scratch_folder:
        folder = scratch_folder.resolve()
        (folder / "broker").mkdir()
        broker = kafka.Broker(folder / "broker", f"num.partitions={PARTITIONS}\n")
        try:
            spark = start_spark(jars=kafka.spark_jars())
            ingestions = Ingestions(spark, broker.address, folder, arguments.messages, arguments.batches)
            ingestions.fill(arguments.size)
            what = (
                f"{arguments.messages:,} messages of {arguments.size:,} bytes from Kafka; Spark's source into Parquet"
            )
            pair = Pair(what, GOAL, ingestions.ours, ingestions.theirs, ingestions.prepare)
            report([pair.measured(arguments.turns)])
            spark.stop()
        finally:
            broker.end()


if __name__ == "__main__":
    main()
