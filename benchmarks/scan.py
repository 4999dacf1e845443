"""Scans of a topic in Spark against Spark's own Parquet scan of the same rows, and Delta's.

- 20 segments, one transaction each: the columns alone, against the same files read without txnlog;
- the same with all metadata columns, against a copy of the files in which they are stored;
- both again, in a topic with as many rows of aborted transactions beside them;
- the columns alone, against a Delta table with the same rows, as Delta writes it;
- one column of ten, and a count, against the same files;
- 20 shared segments of 1,000 transactions each, with metadata, likewise;
- 2,000 segments against the same rows in 20: of a topic that merges nothing by itself, of one as it is after its
  writers merged small segments (the default), and merged by ``ns.optimize``;
- the format ``txnlog``, which hands Arrow batches from Python to Spark, against the same files, and against a source in
  Python that has the same batches in memory.

Every pair is run in turns (A B A B) into Spark's ``noop`` sink, which computes every column and throws it away. Spark's
planning counts, and it is told the schema of plain files, so that it looks for none. Before it is measured, each frame
must have all rows, and its executed plan must show the visibility predicate as a partition filter.
"""

from __future__ import annotations

import argparse
import statistics
from collections.abc import Callable, Iterator
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession

import spark_ext
import txnlog
from benchmarks import python_sources
from benchmarks.orders import SCHEMA, rows
from benchmarks.report import Row, report, scratch
from benchmarks.spark_pairs import WARM_UPS, Pair, all_of, seconds, start_spark
from spark_ext.read.task_reader import BATCH_ROWS
from txnlog.api.namespace import Namespace
from txnlog.format.keys import SEGMENT_COLUMN

SEGMENTS = 20
MANY_SEGMENTS = 2_000
TRANSACTIONS = 1_000
PARTITIONS = 4
PLANNING_S = 0.5

TEN = pa.schema([*SCHEMA, *(pa.field(f"{name}_before", SCHEMA.field(name).type) for name in SCHEMA.names[:4])])
TOPICS = {"big": SCHEMA, "aborted": SCHEMA, "ten": TEN, "shared": SCHEMA, "many": SCHEMA, "merging": SCHEMA}
UNMERGED = "many"


# --- the topics -------------------------------------------------------------------------------------------------------


def fill(root: Path, count: int) -> None:
    """The topics, with the same rows in each but the shared one."""
    generator = np.random.default_rng(20261121)
    with txnlog.open(root, namespace="bench", create=True) as ns:
        for topic, schema in TOPICS.items():
            merge: Any = "manual" if topic == UNMERGED else "auto"
            ns.create_topic(topic, schema, partitions=PARTITIONS, merge=merge)
        for number in range(SEGMENTS):
            data = rows(count // SEGMENTS, generator)
            wide = pa.Table.from_arrays([*data.columns, *data.columns[:4]], schema=TEN)
            for topic, table in (("big", data), ("aborted", data), ("ten", wide)):
                with ns.begin() as txn:
                    txn.produce(topic, table, partition=number % PARTITIONS)
            lost = ns.begin()
            lost.produce("aborted", data, partition=number % PARTITIONS)
            lost.flush()
            lost.abort()
            for topic in ("many", "merging"):
                _produce_many(ns, topic, data)
        everything = ns.snapshot().plan("aborted", isolation_level="read_uncommitted")
        assert everything.rows == 2 * ns.snapshot().plan("aborted").rows, "as many aborted rows as committed ones"
    _fill_shared(root, count, generator)
    with txnlog.open(root, namespace="bench", mode="r") as ns:
        counts = {topic: len(ns.snapshot().plan(topic).segments) for topic in TOPICS}
    assert counts["many"] == MANY_SEGMENTS, counts
    assert counts["big"] == counts["aborted"] == counts["ten"] == SEGMENTS, counts
    assert counts["shared"] <= 2 * SEGMENTS, f"{counts}: the transactions did not share segments"


def _produce_many(ns: Namespace, topic: str, data: pa.Table) -> None:
    """The rows in a hundred segments."""
    parts = MANY_SEGMENTS // SEGMENTS
    bounds = [data.num_rows * part // parts for part in range(parts + 1)]
    futures = []
    for number, (start, end) in enumerate(pairwise(bounds)):
        txn = ns.begin()
        txn.produce(topic, data.slice(start, end - start), partition=number % PARTITIONS)
        txn.flush()  # a file of its own
        futures.append(txn.commit_async())
    for future in futures:
        future.result()


def _fill_shared(root: Path, count: int, generator: np.random.Generator) -> None:
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


def stored_copy(root: Path, topic: str, folder: Path) -> list[str]:
    """The topic's files once more, each with its metadata as columns."""
    with txnlog.open(root, namespace="bench", mode="r") as ns:
        plan = ns.snapshot().plan(topic)
        tables = ns._connection.reader.batches(plan, include_metadata=True)
        files: list[str] = []
        folder.mkdir(parents=True)
        for number, table in enumerate(tables):
            files.append(str(folder / f"{number:04d}.parquet"))
            pq.write_table(table, files[-1], compression="zstd", store_schema=False, write_page_checksum=True)
    return files


def plain_files(root: Path, topic: str) -> list[str]:
    """The topic's own files."""
    with txnlog.open(root, namespace="bench", mode="r") as ns:
        return [ns._connection.store.url(segment.key) for segment in ns.snapshot().plan(topic).segments]


def rows_of(count: int, topic: str) -> int:
    """How many rows a topic shows."""
    if topic == "shared":
        return max(1, count // SEGMENTS // TRANSACTIONS) * TRANSACTIONS * SEGMENTS
    return count // SEGMENTS * SEGMENTS


# --- the measurements -------------------------------------------------------------------------------------------------


class Scans:
    """The ways to read the topics of a root."""

    def __init__(self, spark: SparkSession, root: Path, folder: Path, count: int) -> None:
        self._spark = spark
        self._root = root
        self._folder = folder
        self._count = count
        self.filtered: list[bool] = []

    def native(self, topic: str, *, metadata: bool = False) -> DataFrame:
        """Ours."""
        return spark_ext.read_topic(self._spark, f"{self._root}/bench/{topic}", include_metadata=metadata)

    def format(self, topic: str) -> DataFrame:
        """The format ``txnlog``."""
        return self._spark.read.format("txnlog").load(f"{self._root}/bench/{topic}")

    def plain(self, topic: str) -> Callable[[], DataFrame]:
        """Spark's own scan of a topic's files."""
        return self._parquet(plain_files(self._root, topic))

    def stored(self, topic: str) -> Callable[[], DataFrame]:
        """Spark's own scan of files with the same rows, and the metadata as columns."""
        return self._parquet(stored_copy(self._root, topic, self._folder / f"{topic}-stored"))

    def delta(self, topic: str) -> Callable[[], DataFrame]:
        """A Delta table with the same rows, of as many files."""
        table = str(self._folder / f"{topic}-delta")
        for file in plain_files(self._root, topic):
            self._parquet([file])().coalesce(1).write.format("delta").mode("append").save(table)
        assert len(self._spark.read.format("delta").load(table).inputFiles()) == SEGMENTS
        return partial(self._spark.read.format("delta").load, table)

    def in_memory(self, topic: str) -> Callable[[], DataFrame]:
        """A source in Python that has the batches of the format's reader in memory."""
        python_sources.register(self._spark)
        folder = self._folder / f"{topic}-arrow"
        folder.mkdir()
        with txnlog.open(self._root, namespace="bench", mode="r") as ns:
            plan = ns.snapshot().plan(topic)
            for number, table in enumerate(ns._connection.reader.batches(plan, include_metadata=False)):
                with pa.ipc.new_file(str(folder / f"{number:04d}.arrow"), table.schema) as file:
                    file.write_table(table, max_chunksize=BATCH_ROWS)
        return partial(self._spark.read.format("arrow_files").load, str(folder))

    def _parquet(self, files: list[str]) -> Callable[[], DataFrame]:
        schema = self._spark.read.parquet(files[0]).schema
        return lambda: self._spark.read.schema(schema).parquet(*files)

    def pair(
        self,
        what: str,
        goal: float,
        ours: Callable[[], DataFrame],
        theirs: Callable[[], DataFrame],
        *,
        topic: str = "big",
        action: Callable[[DataFrame], object] = all_of,
    ) -> Pair:
        """Two frames that must have all rows of a topic, read by the same action."""
        assert ours().count() == theirs().count() == rows_of(self._count, topic), "all rows, and no others"
        filters = partition_filters(ours())
        if filters is not None:
            self.filtered.append(SEGMENT_COLUMN in filters)
        return Pair(what, goal, lambda: action(ours()), lambda: action(theirs()))

    def all_pairs(self) -> Iterator[Pair]:
        """One at a time: what it compares with is made just before."""
        what = f"{self._count:,} rows in {SEGMENTS} segments"
        native = self.native
        for topic, text in (("big", what), ("aborted", f"{what}, as many aborted rows beside them")):
            yield self.pair(
                f"{text}, columns only; plain Parquet scan", 1.05, partial(native, topic), self.plain(topic)
            )
            yield self.pair(
                f"{text}, with all metadata; plain scan with stored metadata",
                1.00,
                partial(native, topic, metadata=True),
                self.stored(topic),
            )
        yield self.pair(f"{what}, columns only; Delta", 1.00, partial(native, "big"), self.delta("big"))
        plain = self.plain("ten")
        yield self.pair(
            f"{what}, one column of ten; plain Parquet scan",
            1.10,
            lambda: native("ten").select("amount"),
            lambda: plain().select("amount"),
        )
        yield self.pair(f"{what}, count; likewise", 1.10, partial(native, "ten"), plain, action=DataFrame.count)
        yield self.pair(
            f"{SEGMENTS} shared segments of {TRANSACTIONS:,} transactions, all metadata; stored metadata",
            1.25,
            partial(native, "shared", metadata=True),
            self.stored("shared"),
            topic="shared",
        )
        many = f"{MANY_SEGMENTS:,} segments of {self._count // MANY_SEGMENTS:,} rows"
        for metadata, text in ((False, "columns only"), (True, "with all metadata")):
            yield self.pair(
                f"{many}, unmerged, {text}; the same rows in {SEGMENTS} segments",
                1.60,
                partial(native, "many", metadata=metadata),
                partial(native, "big", metadata=metadata),
            )
        with txnlog.open(self._root, namespace="bench", mode="r") as ns:
            left = len(ns.snapshot().plan("merging").segments)
        yield self.pair(
            f"{many} that writers made {left} of, columns only; the same rows in {SEGMENTS} segments",
            1.60,
            partial(native, "merging"),
            partial(native, "big"),
        )
        format_of = partial(self.format, "big")
        yield self.pair(f"the format, {what}, all columns; plain Parquet scan", 1.75, format_of, self.plain("big"))
        yield self.pair(f"the format, {what}; a Python source in memory", 1.15, format_of, self.in_memory("big"))

    def merged(self) -> Pair:
        """The many segments once more, merged; the last pair, since they are not many any more."""
        with txnlog.open(self._root, namespace="bench") as ns:
            ns.optimize("many")
            left = len(ns.snapshot().plan("many").segments)
        return self.pair(
            f"{MANY_SEGMENTS:,} segments that ns.optimize made {left} of, columns only; "
            f"the same rows in {SEGMENTS} segments",
            1.60,
            partial(self.native, "many"),
            partial(self.native, "big"),
        )

    def planning(self, turns: int) -> Row:
        """How long it takes until Spark could start tasks, of many segments."""

        def plan() -> None:
            frame: Any = self.native("many")
            frame._jdf.queryExecution().executedPlan()

        measured = statistics.median([seconds(plan) for _ in range(WARM_UPS + turns)][WARM_UPS:])
        return Row(
            f"planning of {MANY_SEGMENTS:,} segments",
            f"{measured:.2f} s",
            f"at most {PLANNING_S} s",
            measured <= PLANNING_S,
        )


def partition_filters(frame: DataFrame) -> str | None:
    """What the executed plan of a native scan decides by the files' paths alone; None where it is no such scan."""
    jvm_frame: Any = frame
    leaf = jvm_frame._jdf.queryExecution().executedPlan().collectLeaves().head()
    if leaf.getClass().getSimpleName() != "FileSourceScanExec":
        return None
    return str(leaf.partitionFilters().mkString(" AND "))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=10_000_000, help="rows of each topic")
    parser.add_argument("--turns", type=int, default=5, help="pairs of runs")
    parser.add_argument("--only", default="", help="a text: only pairs with it in their description")
    arguments = parser.parse_args()
    with scratch() as folder:
        root = (folder / "lake").resolve()
        fill(root, arguments.rows)
        spark = start_spark(delta=True)
        scans = Scans(spark, root, folder, arguments.rows)
        results = [pair.measured(arguments.turns) for pair in scans.all_pairs() if arguments.only in pair.what]
        if not arguments.only:
            results.append(scans.planning(arguments.turns))
            results.append(scans.merged().measured(arguments.turns))
        filtered, all_of_them = sum(scans.filtered), len(scans.filtered)
        results.append(
            Row(
                "executed plans with the visibility predicate as a partition filter",
                f"{filtered} of {all_of_them}",
                "all",
                filtered == all_of_them > 0,
            )
        )
        spark.stop()
    report(results)


if __name__ == "__main__":
    main()
