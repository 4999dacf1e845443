"""One pipeline for every place where Spark runs: the format, transactions, native scans and streams, once each.

As a program it is what a user would submit: it makes a session from settings, and prints what it saw
as one line of JSON.
"""

from __future__ import annotations

import json
import logging
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.sql import SparkSession
from pyspark.sql import functions as F  # noqa: N812 - as everybody writes it

import spark_ext
import txnlog

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.streaming.query import StreamingQuery

ROWS = 600
PARTITIONS = 4
ORDERS = pa.schema([("id", pa.int64()), ("customer", pa.string()), ("amount", pa.float64())])
NAMED = pa.schema([("id", pa.int64()), pa.field("name", pa.string(), nullable=False)])
COUNTS = pa.schema([("customer", pa.string()), ("count", pa.int64())])


def orders(spark: SparkSession) -> DataFrame:
    """The rows that every place writes: text keys of several lengths, some null."""
    length = (F.col("id") % 40).cast("int")
    name = F.when(F.col("id") % 50 == 49, None).otherwise(F.concat(F.lit("c"), F.repeat(F.lit("é"), length)))
    return spark.range(ROWS).select("id", name.alias("customer"), (F.col("id") / 4).alias("amount"))


class Pipeline:
    """The pipeline in one namespace; ``seen`` holds what its steps answered."""

    def __init__(
        self,
        spark: SparkSession,
        root: str,
        scratch: str,
        storage: Mapping[str, Any] | None = None,
        spark_root: str | None = None,
    ) -> None:
        self.spark = spark
        self.path = f"{spark_root or root}/shop"
        self.scratch = scratch
        self.storage = dict(storage or {})
        self.seen: dict[str, Any] = {}
        self.ns = txnlog.open(root, namespace="shop", create=True, storage_options=self.storage or None)

    def run(self, steps: tuple[str, ...]) -> dict[str, Any]:
        """Some steps, in order; what they saw, and at last what is in the log."""
        self._make_topics()
        for step in steps:
            self.seen[step] = getattr(self, step)()
        snapshot = self.ns.snapshot()
        column = {"orders": "id", "copies": "id", "large": "id", "processed": "id", "named": "id", "counts": "count"}
        self.seen["topics"] = {
            topic: sorted(snapshot.read(topic).column(name).to_pylist()) for topic, name in column.items()
        }
        self.ns.close()
        return self.seen

    def _make_topics(self) -> None:
        self.ns.create_topic("orders", schema=ORDERS, partitions=PARTITIONS, key="customer")
        self.ns.create_topic("copies", schema=ORDERS, partitions=PARTITIONS, key="customer")
        self.ns.create_topic("large", schema=ORDERS)
        self.ns.create_topic("processed", schema=ORDERS)
        self.ns.create_topic("named", schema=NAMED)
        self.ns.create_topic("counts", schema=COUNTS, partitions=2, key="customer")

    def _options(self, **more: str) -> dict[str, str]:
        storage = {"storageOptions": json.dumps(self.storage)} if self.storage else {}
        return {**storage, **more}

    # --- steps ------------------------------------------------------------------------------------------------------

    def write(self) -> int:
        """``df.write`` to a topic with a text key."""
        orders(self.spark).write.format("txnlog").options(**self._options()).mode("append").save(f"{self.path}/orders")
        return self.ns.snapshot().read("orders").num_rows

    def read(self) -> dict[str, Any]:
        """The format, with metadata: every row once, where the Python client would have put it."""
        reader = self.spark.read.format("txnlog").options(**self._options(includeMetadata="true"))
        frame = reader.load(f"{self.path}/orders")
        frame.explain(True)  # what it prints is looked at for secrets
        return _summary(frame)

    def transaction(self) -> list[int]:
        """Two DataFrames in one transaction."""
        frame = orders(self.spark)
        with spark_ext.transaction(self.spark, self.path) as txn:
            large = txn.write(frame.where("amount >= 100"), "large")
            counts = txn.write(frame.groupBy("customer").count(), "counts")
        assert txn.result is not None
        return [large, counts]

    def native(self) -> dict[str, Any]:
        """Spark's own Parquet scan of the same topic, with metadata."""
        return _summary(spark_ext.read_topic(self.spark, f"{self.path}/orders", include_metadata=True))

    def visible(self) -> int:
        """The predicate on one's own scan of the topic's folder."""
        condition = spark_ext.visible(self.spark, f"{self.path}/orders")
        return self.spark.read.parquet(f"{self.path}/orders").where(condition).count()

    def stream(self) -> int:
        """A stream with a handler: rows and acknowledgement in one entry a batch."""
        frame = (
            self.spark.readStream.format("txnlog")
            .options(**self._options(subscription="billing", maxOffsetsPerTrigger="100"))
            .load(f"{self.path}/orders")
        )
        query = spark_ext.write_stream(
            frame,
            self.path,
            checkpoint=f"{self.scratch}/billing",
            acknowledge="billing",
            trigger={"availableNow": True},
            handler=_copy,
        )
        self._finished(query)
        return sum(item.behind_messages for item in self.ns.lag("orders", "billing"))

    def _finished(self, query: StreamingQuery) -> None:
        assert query.awaitTermination(120), "it stops by itself"
        query.explain(True)
        print(query.lastProgress)

    def sink(self) -> int:
        """The format at both ends of a stream."""
        frame = self.spark.readStream.format("txnlog").options(**self._options()).load(f"{self.path}/large")
        writer = frame.writeStream.format("txnlog").options(
            **self._options(checkpointLocation=f"{self.scratch}/sink", path=f"{self.path}/copies")
        )
        self._finished(writer.trigger(availableNow=True).start())
        return self.ns.snapshot().read("copies").num_rows

    def lag(self) -> dict[str, Any]:
        """A monitor of a query: the last line that its listener brought about, and what the log says afterwards."""
        self.ns.create_topic("watched", schema=ORDERS)
        self.ns.produce("watched", [{"id": 1}])
        lines = _Lines()
        logger = logging.getLogger("txnlog.spark.lag")
        logger.addHandler(lines)
        logger.setLevel(logging.INFO)
        frame = self.spark.readStream.format("txnlog").options(**self._options()).load(f"{self.path}/watched")
        writer = frame.writeStream.format("noop").option("checkpointLocation", f"{self.scratch}/lag")
        with spark_ext.monitor(self.spark, storage_options=self.storage or None) as monitor:
            query = writer.trigger(availableNow=True).start()
            self._finished(query)
            lines.came.wait(120)
            self.ns.produce("watched", [{"id": 2}, {"id": 3}])
            (behind,) = monitor.lag(query)
        assert spark_ext.monitor(self.spark) is not monitor, "a new one, since that one was closed"
        spark_ext.monitor(self.spark).close()
        return {"line": lines.last, "behind": behind.behind_messages}

    def process(self) -> dict[str, Any]:
        """A handler over a subscription; where Spark has no file system for the root, it says so and does nothing."""

        def run(native: bool = True) -> str:
            done = spark_ext.process(
                self.spark, self.path, topics="large", subscription="processing", handler=_process, native=native
            )
            return f"{done.batches} batch of {done.rows} rows"

        if not self.path.startswith("s3://"):
            told = run()
        else:
            version = self.ns.snapshot().version
            refused = _told(run)
            assert refused.startswith("txnlog.errors.InvalidInputError: Spark's own scan cannot read s3a://"), refused
            assert self.ns.snapshot().version == version, "nothing was written"
            told = run(native=False)
        return {"told": told, "behind": sum(item.behind_messages for item in self.ns.lag("large", "processing"))}

    def refused(self) -> dict[str, str]:
        """Mistakes, and what is told of them: found by the process that plans, by a task, and by a handler's task."""
        nameless = self.spark.range(1).select(F.col("id"), F.lit(None).cast("string").alias("name"))
        reader = self.spark.read.format("txnlog").options(**self._options())
        stream = self.spark.readStream.format("txnlog").options(**self._options()).load(f"{self.path}/large")

        def in_a_transaction() -> None:
            with spark_ext.transaction(self.spark, self.path) as txn:
                txn.write(nameless, "named")

        def in_a_handler() -> None:
            spark_ext.write_stream(
                stream,
                self.path,
                checkpoint=f"{self.scratch}/refused",
                trigger={"availableNow": True},
                handler=lambda batch, txn: txn.write(batch.selectExpr("id", "CAST(NULL AS STRING) AS name"), "named"),
            ).awaitTermination(120)

        mistakes: dict[str, Callable[[], object]] = {
            "plan": lambda: reader.load(f"{self.path}/ordres").schema,  # a client of Connect asks not before
            "task": lambda: (
                nameless.write.format("txnlog").options(**self._options()).mode("append").save(f"{self.path}/named")
            ),
            "transaction": in_a_transaction,
            "handler": in_a_handler,
        }
        return {name: _told(mistake) for name, mistake in mistakes.items()}

    def executors(self) -> dict[str, Any]:
        """Which Python the tasks of this application ran in, those of the format too, and where it has txnlog from."""

        def where(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            for _ in batches:
                pass
            yield pa.record_batch({"home": [__import__("txnlog").__file__]})

        homes = self.spark.range(0, 4, 1, 2).mapInArrow(where, "home string").distinct().collect()
        app = self.spark.sparkContext.applicationId
        return {"homes": [row.home for row in homes], "pythons": sorted(set(_pythons_below(app)))}


class _Lines(logging.Handler):
    """How many messages the last line left behind."""

    def __init__(self) -> None:
        super().__init__()
        self.came = threading.Event()
        self.last = -1

    def emit(self, record: logging.LogRecord) -> None:
        self.last = json.loads(record.getMessage())["messagesBehindLatest"]
        self.came.set()


def _pythons_below(app: str) -> Iterator[str]:
    """The programs of the Python processes that executors of an application started; they live as long as these do."""
    commands: dict[int, list[str]] = {}
    parents: dict[int, int] = {}
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            commands[int(folder.name)] = (folder / "cmdline").read_text().split("\0")
            parents[int(folder.name)] = int((folder / "stat").read_text().rpartition(")")[2].split()[1])
        except OSError:
            continue  # it has ended
    for number, command in commands.items():
        if "pyspark.daemon" in command and app in commands.get(parents[number], ()):
            yield command[0]


def _told(mistake: Callable[[], object]) -> str:
    """What is said last of an error that is one of ours."""
    try:
        mistake()
    except Exception as error:  # noqa: BLE001 - whatever Spark makes of it
        text = f"{type(error).__module__}.{type(error).__qualname__}: {error}"
        print(text)
        return "txnlog.errors." + text.rpartition("txnlog.errors.")[2].partition("\n")[0]
    return "no error"


def _copy(batch: DataFrame, txn: Any) -> None:
    txn.write(batch, "copies")


def _process(batch: DataFrame, txn: Any) -> None:
    txn.write(batch.where("id % 2 = 0"), "processed")


def _summary(frame: DataFrame) -> dict[str, Any]:
    rows = frame.select("id", "customer", "_partition", "_offset", "_version").collect()
    return {
        "ids": sorted(row.id for row in rows),
        "partitions": {row.customer or "": row._partition for row in rows},
        "offsets": len({(row._partition, row._offset) for row in rows}),
        "versions": len({row._version for row in rows}),
    }


def main(arguments: list[str]) -> None:
    """``python -m tests.places.pipeline SETTINGS``: a JSON file."""
    settings = json.loads(Path(arguments[0]).read_text())
    builder = SparkSession.builder.appName("txnlog-places")
    if "remote" in settings:
        builder = builder.remote(settings["remote"])
    for name, value in settings["conf"].items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    given = {name: settings[name] for name in ("root", "scratch", "storage", "spark_root") if name in settings}
    pipeline = Pipeline(spark, **given)
    print(json.dumps(pipeline.run(tuple(settings["steps"]))))
    spark.stop()


if __name__ == "__main__":
    main(sys.argv[1:])
