"""Writes of DataFrames in Spark against Spark's own Parquet writes of the same rows, and Delta's.

- one transaction over three topics without a key, against three plain Parquet writes and against three Delta appends;
- one topic of eight partitions with a key, against a plain Parquet write after the same repartition;
- the format ``txnlog``, against a plain Parquet write: as a session is, and with Arrow batches that Spark does not
  measure in bytes; and a sink in Python that drops its rows, likewise, which shows what is Spark's part of that.

Every pair is run in turns (A B A B) from the same Parquet files, each time into a folder of its own. Before it is
measured, what either side wrote must have all rows; the others' codec is Spark's default, as a user has it.
"""

from __future__ import annotations

import argparse
import shutil
from collections.abc import Callable
from functools import partial
from itertools import count
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - as everybody imports it

import spark_ext
import txnlog
from benchmarks import python_sources
from benchmarks.orders import SCHEMA, rows
from benchmarks.report import report, scratch
from benchmarks.spark_pairs import Pair, start_spark
from spark_ext.write.arrow_batches import MAX_BYTES, NOT_MEASURED

FILES = 12
"""Files of the rows that are written: several tasks for each of the three topics."""

TOPICS = ("orders", "returns", "audit")
PARTITIONS = 8
KEY = "customer"


def source_files(folder: Path, total: int) -> list[str]:
    """The rows, as files that both sides read."""
    generator = np.random.default_rng(20261121)
    folder.mkdir(parents=True)
    files = [str(folder / f"{number:04d}.parquet") for number in range(FILES)]
    for file in files:
        pq.write_table(rows(total // FILES, generator), file, compression="zstd")
    return files


class Writes:
    """The ways to write the rows; each call goes into a folder of its own, below one that is emptied in between."""

    def __init__(self, spark: SparkSession, files: list[str], folder: Path) -> None:
        self._spark = spark
        self._schema = spark.read.parquet(files[0]).schema
        self._files = files
        self._folder = folder
        self._number = count()

    def clean(self) -> None:
        """Delete what was written; make the namespace that the next write goes into."""
        shutil.rmtree(self._folder, ignore_errors=True)
        self._folder.mkdir()
        self._place = self._folder / str(next(self._number))
        with txnlog.open(self._place / "lake", namespace="bench", create=True) as ns:
            for topic in TOPICS:
                ns.create_topic(topic, SCHEMA)
            ns.create_topic("keyed", SCHEMA, partitions=PARTITIONS, key=KEY)

    def _thirds(self) -> list[tuple[str, DataFrame]]:
        each = FILES // len(TOPICS)
        parts = [self._files[number * each : (number + 1) * each] for number in range(len(TOPICS))]
        return [(topic, self._frame(part)) for topic, part in zip(TOPICS, parts, strict=True)]

    def _frame(self, files: list[str]) -> DataFrame:
        return self._spark.read.schema(self._schema).parquet(*files)

    def transaction(self) -> None:
        """Three topics, one transaction."""
        with spark_ext.transaction(self._spark, f"{self._place}/lake/bench") as txn:
            for topic, frame in self._thirds():
                txn.write(frame, topic)

    def three(self, kind: str) -> None:
        """Three plain writes."""
        for topic, frame in self._thirds():
            frame.write.format(kind).mode("append").save(f"{self._place}/{topic}")

    def keyed(self) -> None:
        """One keyed topic."""
        with spark_ext.transaction(self._spark, f"{self._place}/lake/bench") as txn:
            txn.write(self._frame(self._files), "keyed")

    def repartitioned(self) -> None:
        """A plain write with a file for every partition, of the same hash."""
        frame = self._frame(self._files).repartition(PARTITIONS, F.pmod(F.xxhash64(KEY), F.lit(PARTITIONS)))
        frame.write.parquet(f"{self._place}/keyed")

    def plain_format(self) -> None:
        """``df.write.format("txnlog")`` of all rows into one topic."""
        self._frame(self._files).write.format("txnlog").mode("append").save(f"{self._place}/lake/bench/orders")

    def nowhere(self) -> None:
        """Into a sink in Python that drops its rows."""
        self._frame(self._files).write.format("nowhere").mode("append").save("nowhere")

    def unmeasured(self, write: Callable[[], None]) -> None:
        """In a session whose Arrow batches Spark does not measure."""
        self._spark.conf.set(MAX_BYTES, NOT_MEASURED)
        try:
            write()
        finally:
            self._spark.conf.unset(MAX_BYTES)

    def plain_parquet(self) -> None:
        """The same as files."""
        self._frame(self._files).write.parquet(f"{self._place}/orders")

    def rows_in_topics(self) -> int:
        """What our writes left."""
        with txnlog.open(self._place / "lake", namespace="bench", mode="r") as ns:
            snapshot = ns.snapshot()
            return sum(sum(snapshot.end_offsets(topic).values()) for topic in snapshot.topics())

    def rows_in_files(self, kind: str, *topics: str) -> int:
        """What the others' writes left."""
        return sum(self._spark.read.format(kind).load(f"{self._place}/{topic}").count() for topic in topics)


def checked(writes: Writes, total: int, pair: Pair, theirs_rows: Callable[[], int]) -> Pair:
    """The pair, both sides of which were seen to write all rows."""
    for work, written in ((pair.ours, writes.rows_in_topics), (pair.theirs, theirs_rows)):
        writes.clean()
        work()
        assert written() == total, f"{pair.what}: {written():,} rows of {total:,}"
    return pair


def of_the_format(writes: Writes, what: str) -> list[Pair]:
    """As a session is, and without measuring."""
    return _both(writes, f"the format, one topic, {what}", writes.plain_format)


def of_no_sink(writes: Writes, what: str) -> list[Pair]:
    """What Spark needs to hand rows to Python."""
    return _both(writes, f"a sink in Python that drops {what}", writes.nowhere)


def _both(writes: Writes, what: str, ours: Callable[[], None]) -> list[Pair]:
    without = partial(writes.unmeasured, ours)
    return [
        Pair(f"{what}; plain Parquet write", 1.15, ours, writes.plain_parquet, writes.clean),
        Pair(f"{what}, batches not measured; likewise", 1.15, without, writes.plain_parquet, writes.clean),
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=10_000_000, help="rows in all")
    parser.add_argument("--turns", type=int, default=5, help="pairs of runs")
    parser.add_argument("--only", default="", help="a text: only rows with it in their description")
    arguments = parser.parse_args()
    total = arguments.rows // FILES * FILES
    with scratch() as scratch_folder:
        folder = scratch_folder.resolve()
        files = source_files(folder / "source", total)
        spark = start_spark(delta=True)
        writes = Writes(spark, files, folder / "written")
        what = f"{total:,} rows"
        pairs = [
            (
                Pair(
                    f"one transaction over three topics, {what}; three plain Parquet writes",
                    1.10,
                    writes.transaction,
                    partial(writes.three, "parquet"),
                    writes.clean,
                ),
                partial(writes.rows_in_files, "parquet", *TOPICS),
            ),
            (
                Pair(
                    f"one transaction over three topics, {what}; three Delta appends",
                    0.95,
                    writes.transaction,
                    partial(writes.three, "delta"),
                    writes.clean,
                ),
                partial(writes.rows_in_files, "delta", *TOPICS),
            ),
            (
                Pair(
                    f"one keyed topic of {PARTITIONS} partitions, {what}; plain Parquet write, repartitioned alike",
                    1.10,
                    writes.keyed,
                    writes.repartitioned,
                    writes.clean,
                ),
                partial(writes.rows_in_files, "parquet", "keyed"),
            ),
            *((pair, partial(writes.rows_in_files, "parquet", "orders")) for pair in of_the_format(writes, what)),
        ]
        results = [
            checked(writes, total, pair, theirs).measured(arguments.turns)
            for pair, theirs in pairs
            if arguments.only in pair.what
        ]
        python_sources.register(spark)
        results += [pair.measured(arguments.turns) for pair in of_no_sink(writes, what) if arguments.only in pair.what]
        spark.stop()
    report(results)


if __name__ == "__main__":
    main()
