"""Native scans of a topic against Spark's plain Parquet scan of the same rows.

- 20 segments, one transaction each: the columns alone, against the same files read without txnlog;
- the same with all metadata columns, against a copy of the files in which they are stored;
- both again, in a topic with as many rows of aborted transactions beside them;
- 20 shared segments of 1,000 transactions each, with metadata, likewise.

Every pair is run in turns (A B A B) into Spark's ``noop`` sink, which computes every column and throws it away. Before
it is measured, each frame must have all rows, and its executed plan must show the visibility predicate as a partition
filter.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession

import spark_ext
import txnlog
from benchmarks.report import Row, report, scratch
from txnlog.keys import SEGMENT_COLUMN

SEGMENTS = 20
TRANSACTIONS = 1_000
PARTITIONS = 4
TOPICS = ("big", "aborted", "shared")
SCHEMA = pa.schema(
    [
        pa.field("id", pa.int64()),
        pa.field("customer", pa.int32()),
        pa.field("amount", pa.float64()),
        pa.field("country", pa.string()),
        pa.field("comment", pa.string()),
        pa.field("at", pa.timestamp("us", "UTC")),
    ]
)


def rows(count: int, generator: np.random.Generator) -> pa.Table:
    """So many orders."""
    countries = pa.array(["DE", "FR", "IT", "ES", "PL", "NL", "SE", "AT"])
    words = pa.array([f"comment number {i}, as people write them" for i in range(1_000)])
    columns = [
        pa.array(generator.integers(0, 1 << 40, count)),
        pa.array(generator.integers(0, 1 << 20, count, dtype=np.int32)),
        pa.array(generator.random(count)),
        countries.take(pa.array(generator.integers(0, len(countries), count))),
        words.take(pa.array(generator.integers(0, len(words), count))),
        pa.array(generator.integers(1_700_000_000_000_000, 1_800_000_000_000_000, count), pa.timestamp("us", "UTC")),
    ]
    return pa.Table.from_arrays(columns, schema=SCHEMA)


def fill(root: Path, count: int) -> None:
    """Topics of 20 big segments, of as many with aborted ones between them, and of 20 shared ones; rows alike."""
    generator = np.random.default_rng(20261121)
    with txnlog.open(root, namespace="bench", create=True) as ns:
        for topic in TOPICS:
            ns.create_topic(topic, SCHEMA, partitions=PARTITIONS)
        for number in range(SEGMENTS):
            data = rows(count // SEGMENTS, generator)
            for topic in ("big", "aborted"):
                with ns.begin() as txn:
                    txn.produce(topic, data, partition=number % PARTITIONS)
            lost = ns.begin()
            lost.produce("aborted", data, partition=number % PARTITIONS)
            lost.flush()
            lost.abort()
    each = max(1, count // SEGMENTS // TRANSACTIONS)
    with txnlog.open(root, namespace="bench", min_commit_interval_ms=2_000) as ns:
        for _ in range(SEGMENTS):
            data = rows(each * TRANSACTIONS, generator)
            begun = []
            for number in range(TRANSACTIONS):
                txn = ns.begin()
                txn.produce("shared", data.slice(number * each, each), partition=number % PARTITIONS)
                begun.append(txn)
            # What comes while an entry waits for its turn shares that entry, and its segment.
            futures = [txn.commit_async() for txn in begun]
            for future in futures:
                future.result()
        segments = len(ns.snapshot().plan("shared").segments)
        assert segments <= 2 * SEGMENTS, f"{segments} segments: the transactions did not share them"
        everything = ns.snapshot().plan("aborted", isolation_level="read_uncommitted")
        assert everything.rows == 2 * ns.snapshot().plan("aborted").rows, "as many aborted rows as committed ones"


def stored_copy(root: Path, topic: str, folder: Path) -> list[str]:
    """The topic's files once more, each with its metadata as columns."""
    with txnlog.open(root, namespace="bench", mode="r") as ns:
        plan = ns.snapshot().plan(topic)
        tables = ns.connection.reader.batches(plan, include_metadata=True)
        files: list[str] = []
        folder.mkdir(parents=True)
        for number, table in enumerate(tables):
            files.append(str(folder / f"{number:04d}.parquet"))
            pq.write_table(table, files[-1], compression="zstd", store_schema=False, write_page_checksum=True)
    return files


def rows_of(count: int, topic: str) -> int:
    """How many rows a topic shows."""
    if topic == "shared":
        return max(1, count // SEGMENTS // TRANSACTIONS) * TRANSACTIONS * SEGMENTS
    return count // SEGMENTS * SEGMENTS


def plain_files(root: Path, topic: str) -> list[str]:
    """The topic's own files."""
    with txnlog.open(root, namespace="bench", mode="r") as ns:
        return [ns.connection.store.url(segment.key) for segment in ns.snapshot().plan(topic).segments]


def seconds(make: Callable[[], DataFrame]) -> float:
    """How long a frame takes, from planning to the last row."""
    started = time.perf_counter()
    make().write.format("noop").mode("overwrite").save()
    return time.perf_counter() - started


def ratio(ours: Callable[[], DataFrame], theirs: Callable[[], DataFrame], turns: int) -> tuple[float, float, float]:
    """Median of the ratios of pairs, and the medians of both, after two turns to warm up."""
    for _ in range(2):
        seconds(ours)
        seconds(theirs)
    pairs = [(seconds(ours), seconds(theirs)) for _ in range(turns)]
    medians = [statistics.median(values) for values in zip(*pairs, strict=True)]
    return statistics.median(a / b for a, b in pairs), medians[0], medians[1]


def partition_filter(frame: DataFrame) -> str:
    """What the executed plan of a scan decides by the files' paths alone."""
    plan: Any = frame._jdf.queryExecution().executedPlan()
    return str(plan.collectLeaves().head().partitionFilters().mkString(" AND "))


def start_spark() -> SparkSession:
    """A session on two cores."""
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    builder: Any = SparkSession.builder
    return (  # type: ignore[no-any-return]  # the builder has no types
        builder.master("local[2]")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.log.level", "ERROR")
        .config("spark.driver.memory", "2g")
        .config("spark.sql.session.timeZone", "UTC")
        .getOrCreate()
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=10_000_000, help="rows of each topic")
    parser.add_argument("--turns", type=int, default=5, help="pairs of runs")
    arguments = parser.parse_args()
    results: list[Row] = []
    with scratch() as folder:
        root = (folder / "lake").resolve()
        fill(root, arguments.rows)
        copies = {topic: stored_copy(root, topic, folder / f"{topic}-stored") for topic in TOPICS}
        plain = {topic: plain_files(root, topic) for topic in TOPICS}
        spark = start_spark()
        path = f"{root}/bench"

        def native(topic: str, *, metadata: bool) -> DataFrame:
            return spark_ext.read_topic(spark, f"{path}/{topic}", include_metadata=metadata)

        what = f"{arguments.rows:,} rows in {SEGMENTS} segments"
        cases = [
            ("big", False, f"{what}, columns only; plain Parquet scan", 1.10),
            ("big", True, f"{what}, with all metadata; plain scan with stored metadata", 1.10),
            ("aborted", False, f"{what}, as many aborted rows beside them, columns only; likewise", 1.10),
            ("aborted", True, f"{what}, as many aborted rows beside them, with all metadata; likewise", 1.10),
            (
                "shared",
                True,
                f"{SEGMENTS} shared segments of {TRANSACTIONS:,} transactions, all metadata; likewise",
                1.25,
            ),
        ]
        filtered = 0
        for topic, metadata, text, goal in cases:
            ours = partial(native, topic, metadata=metadata)
            theirs = partial(spark.read.parquet, *(copies if metadata else plain)[topic])
            assert ours().count() == theirs().count() == rows_of(arguments.rows, topic), "all rows, and no others"
            filtered += SEGMENT_COLUMN in partition_filter(ours())
            measured, own, other = ratio(ours, theirs, arguments.turns)
            figure = f"{measured:.2f} ({own:.2f} s, {other:.2f} s)"
            results.append(Row(text, figure, f"at most {goal:.2f}", measured <= goal))
            print(results[-1], file=sys.stderr, flush=True)
        results.append(
            Row(
                "executed plans with the visibility predicate as a partition filter",
                f"{filtered} of {len(cases)}",
                "all",
                filtered == len(cases),
            )
        )
        spark.stop()
    report(results)


if __name__ == "__main__":
    main()
