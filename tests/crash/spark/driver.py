"""A driver that takes all orders that are there: ``python -m tests.crash.spark.driver FOLDER ENGINE SEED``.

It goes on where the last one stopped. ``--kill PLACE:BATCH`` says where it dies; ``--master`` names a cluster, and then
its tasks carry out the orders in its folder (see ``tests.crash.spark.orders``).
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import spark_ext
import txnlog
from examples.demo.kills import Kill, KillStore, KillSwitch, Place, say
from spark_ext.ingest.kafka_batches import KafkaBatches
from spark_ext.support import namespace_cache
from tests.crash.spark import broker, workers
from tests.crash.spark.deaths import Dying, death_of
from tests.crash.spark.workload import (
    COUNTS,
    EVEN,
    INGESTED,
    NAMESPACE,
    ODD,
    ORDERS,
    ROWS,
    SUBSCRIPTION,
    Engine,
    taken,
)
from tools import kafka
from tools.java_archive import QUICK
from txnlog.store import open_store

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from txnlog.api.namespace import Namespace

REPOSITORY: Final = Path(__file__).parents[3]

SETTINGS: Final = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.log.level": "ERROR",
    "spark.driver.memory": "1g",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.shuffle.partitions": "2",
    "spark.driver.extraJavaOptions": QUICK,
    # A copy of every task that takes a little longer than the others, on another host.
    "spark.speculation": "true",
    "spark.speculation.interval": "100ms",
    "spark.speculation.multiplier": "1.1",
    "spark.speculation.quantile": "0.3",
    "spark.speculation.minTaskRuntime": "200ms",
    "spark.speculation.task.duration.threshold": "700ms",
}

ON_CLUSTER: Final = {
    "spark.executor.memory": "512m",
    "spark.executor.cores": "1",
    "spark.executor.extraJavaOptions": QUICK,
    # Many die, and that is no reason to give up.
    "spark.task.maxFailures": "30",
    "spark.stage.maxConsecutiveAttempts": "30",
    "spark.eventLog.enabled": "true",
    "spark.eventLog.compress": "false",
    "spark.eventLog.rolling.enabled": "false",
}


_ID: Final = "cast(cast(value AS string) AS bigint)"


def root_of(folder: Path) -> Path:
    """Where the namespace of a run lies."""
    return folder / "lake"


def events_of(folder: Path) -> Path:
    """Where Spark writes what happened on a cluster."""
    return folder / "events"


def start_spark(folder: Path, master: str | None, jars: Sequence[object] = ()) -> SparkSession:
    """A session with speculation, all of whose Python processes know places to die."""
    from pyspark.sql import SparkSession

    for variable in ("PYSPARK_PYTHON", "PYSPARK_DRIVER_PYTHON"):  # of tasks, and of what plans and commits
        os.environ[variable] = str(workers.interpreter(folder))
    builder = SparkSession.builder.master(master or "local[2]").appName("crash")
    settings: dict[str, Any] = {
        **SETTINGS,
        "spark.local.dir": str(folder / "spark"),
        "spark.sql.warehouse.dir": str(folder / "warehouse"),
        "spark.jars": ",".join(map(str, jars)),
    }
    if master is not None:
        events_of(folder).mkdir()
        settings |= {
            **ON_CLUSTER,
            "spark.eventLog.dir": events_of(folder).as_uri(),
            f"spark.executorEnv.{workers.VARIABLE}": os.environ[workers.VARIABLE],
            "spark.executorEnv.PYTHONPATH": str(REPOSITORY),
        }
    return builder.config(map=settings).getOrCreate()


class Driver:
    """One process's work."""

    def __init__(self, folder: Path, ns: Namespace, switch: KillSwitch, engine: Engine) -> None:
        self.folder = folder
        self.engine = engine
        self.path = f"{root_of(folder)}/{NAMESPACE}"
        self.checkpoint = str(folder / "checkpoint")
        self.ns = ns
        self.switch = switch

    def take(self, spark: SparkSession) -> None:
        """Take all orders."""
        match self.engine:
            case Engine.INGEST:
                self.ingest(spark)
            case Engine.STREAM:
                self.stream(self.source(spark), "append", self.handle)
            case Engine.UPDATE | Engine.COMPLETE:
                self.stream(self.counted(self.source(spark)), self.engine.value, self.handle_counts)
            case Engine.SINK:
                self.sink(self.routed(self.source(spark)), "append", self.path)
            case Engine.COMPLETE_SINK:
                self.sink(self.counted(self.source(spark)), "complete", f"{self.path}/{COUNTS}")
            case _:
                mode = "overwrite" if self.engine is Engine.OVERWRITE else "append"
                self.process(spark, lambda batch, txn: self.handle(batch, txn, mode))

    def handle(self, batch: DataFrame, txn: Any, mode: str = "append") -> None:
        """Three topics; the rows of the last one may replace all that were there."""
        self._begin()
        txn.write(batch.where("id % 2 = 0"), EVEN)
        txn.write(batch.where("id % 2 = 1"), ODD)
        txn.write(self.counted(batch), COUNTS, mode)

    def handle_counts(self, batch: DataFrame, txn: Any) -> None:
        """The counts that changed, or all: as the query's output mode says."""
        self._begin()
        txn.write(batch, COUNTS)

    def _begin(self) -> None:
        self.switch.enter(taken(self.ns, self.engine) // ROWS)
        self.switch.reached(Place.BEFORE_DATA)

    def counted(self, orders: DataFrame) -> DataFrame:
        """Number and amount of the orders of each account: of a batch, or of a stream so far."""
        from pyspark.sql import functions as f

        return orders.groupBy("account").agg(f.count("*").alias("count"), f.sum("amount").alias("amount"))

    def routed(self, orders: DataFrame) -> DataFrame:
        """With the topic that each order goes to."""
        from pyspark.sql import functions as f

        return orders.withColumn("topic", f.when(f.col("id") % 2 == 0, f.lit(EVEN)).otherwise(f.lit(ODD)))

    def source(self, spark: SparkSession) -> DataFrame:
        """The orders as a stream."""
        given = {"subscription": SUBSCRIPTION, "maxOffsetsPerTrigger": str(ROWS)}
        return spark.readStream.format("txnlog").options(**given).load(f"{self.path}/{ORDERS}")

    def stream(self, df: DataFrame, mode: str, handler: Callable[[DataFrame, Any], None]) -> None:
        """``spark_ext.write_stream``."""
        query = spark_ext.write_stream(
            df,
            self.path,
            checkpoint=self.checkpoint,
            acknowledge=SUBSCRIPTION,
            output_mode=mode,
            trigger={"availableNow": True},
            handler=handler,
        )
        query.awaitTermination()

    def sink(self, df: DataFrame, mode: str, path: str) -> None:
        """The format's own sink, into the topic of the path, or of a namespace into the topics that rows name."""
        writer = df.writeStream.format("txnlog").outputMode(mode).trigger(availableNow=True)
        options = {"checkpointLocation": self.checkpoint, "acknowledge": SUBSCRIPTION}
        writer.options(**options).start(path).awaitTermination()

    def process(self, spark: SparkSession, handler: Callable[[DataFrame, Any], None]) -> None:
        """``spark_ext.process``."""
        spark_ext.process(spark, self.path, topics=ORDERS, subscription=SUBSCRIPTION, handler=handler, max_rows=ROWS)

    def ingest(self, spark: SparkSession) -> None:
        """``spark_ext.ingest_kafka``. A batch begins where its job does."""
        write: Any = KafkaBatches._write

        def begun(batches: KafkaBatches, *given: Any) -> Any:
            self._begin()
            return write(batches, *given)

        KafkaBatches._write = begun  # type: ignore[method-assign, assignment]
        query = spark_ext.ingest_kafka(
            spark,
            self.path,
            subscribe=ORDERS,
            topic=INGESTED,
            columns={"id": _ID, "account": f"concat('a', {_ID} % 5)", "amount": f"{_ID} * 7 % 23"},
            options={
                "kafka.bootstrap.servers": broker.address_in(self.folder),
                "maxOffsetsPerTrigger": str(ROWS),
            },
            trigger={"availableNow": True},
        )
        query.awaitTermination()

    def careless(self) -> None:
        """No Spark, and a bug: what it read is acknowledged in an entry of its own."""
        with self.ns.consumer(ORDERS, SUBSCRIPTION, takeover=True) as consumer:
            while len(messages := consumer.receive(ROWS, timeout_ms=0)):
                self.switch.enter(taken(self.ns, self.engine) // ROWS)
                self.switch.reached(Place.BEFORE_DATA)
                rows = messages.table.select(["id", "account", "amount"]).to_pylist()
                with self.ns.begin() as txn:
                    txn.produce(EVEN, [row for row in rows if row["id"] % 2 == 0])
                    txn.produce(ODD, [row for row in rows if row["id"] % 2 == 1])
                consumer.acknowledge(messages)


def main(arguments: Sequence[str]) -> None:
    """The command line."""
    parser = argparse.ArgumentParser(prog="python -m tests.crash.spark.driver", description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("engine", type=Engine)
    parser.add_argument("seed", type=int)
    parser.add_argument("--kill", type=Kill.parse, help="where to die, as PLACE:BATCH")
    parser.add_argument("--master", help="a cluster's URL")
    given = parser.parse_args(arguments)
    folder, engine, kill = given.folder, given.engine, given.kill
    say("started", pid=os.getpid())
    told = workers.Told(
        str(folder), engine.value, given.seed, kill=str(kill) if kill else None, orders=given.master is not None
    )
    os.environ[workers.VARIABLE] = told.to_json()
    dying = None if kill is None else Dying(death_of(given.seed, engine, kill))
    # The sink commits elsewhere, and there it dies.
    switch = KillSwitch(None) if dying is None or engine.is_sink else KillSwitch(kill, dying)
    store = KillStore(open_store(str(root_of(folder)), {}), switch)
    with txnlog.open(str(root_of(folder)), NAMESPACE, store=store) as ns:
        driver = Driver(folder, ns, switch, engine)
        if engine is Engine.CARELESS:
            driver.careless()
        else:
            namespace_cache.use(ns)
            spark = start_spark(folder, given.master, kafka.spark_jars() if engine is Engine.INGEST else ())
            driver.take(spark)
            spark.stop()
    if dying is not None:
        dying.wait()


if __name__ == "__main__":
    main(sys.argv[1:])
