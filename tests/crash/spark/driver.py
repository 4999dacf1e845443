"""A driver that takes all orders that are there: ``python -m tests.crash.spark.driver FOLDER ENGINE SEED``.

It goes on where the last one stopped. ``--kill PLACE:BATCH`` says where it dies; ``--master`` names a cluster, and then
its tasks carry out the orders in its folder (see ``tests.crash.spark.orders``).
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import spark_ext
import txnlog
from examples.demo.kills import Kill, KillStore, KillSwitch, Place, say
from spark_ext.support import namespace_cache
from tests.crash.spark import workers
from tests.crash.spark.deaths import Dying, death_of
from tests.crash.spark.workload import COUNTS, EVEN, NAMESPACE, ODD, ORDERS, ROWS, SUBSCRIPTION, Engine
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


def root_of(folder: Path) -> Path:
    """Where the namespace of a run lies."""
    return folder / "lake"


def events_of(folder: Path) -> Path:
    """Where Spark writes what happened on a cluster."""
    return folder / "events"


def batches_done(ns: Namespace) -> int:
    """How many batches took effect: half of the orders are even."""
    return 2 * sum(ns.snapshot().end_offsets(EVEN).values()) // ROWS


def start_spark(folder: Path, master: str | None) -> SparkSession:
    """A session with speculation, all of whose Python processes know places to die."""
    from pyspark.sql import SparkSession

    for variable in ("PYSPARK_PYTHON", "PYSPARK_DRIVER_PYTHON"):  # of tasks, and of what plans and commits
        os.environ[variable] = str(workers.interpreter(folder))
    builder = SparkSession.builder.master(master or "local[2]").appName("crash")
    settings: dict[str, Any] = {
        **SETTINGS,
        "spark.local.dir": str(folder / "spark"),
        "spark.sql.warehouse.dir": str(folder / "warehouse"),
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

    def __init__(self, folder: Path, ns: Namespace, switch: KillSwitch) -> None:
        self.path = f"{root_of(folder)}/{NAMESPACE}"
        self.checkpoint = str(folder / "checkpoint")
        self.ns = ns
        self.switch = switch

    def take(self, engine: Engine, spark: SparkSession) -> None:
        """Take all orders, by an engine."""
        {Engine.STREAM: self.stream, Engine.SINK: self.sink, Engine.PROCESS: self.process}[engine](spark)

    def handle(self, batch: DataFrame, txn: Any) -> None:
        """What both handlers write."""
        from pyspark.sql import functions as f

        self.switch.enter(batches_done(self.ns))
        self.switch.reached(Place.BEFORE_DATA)
        txn.write(batch.where("id % 2 = 0"), EVEN)
        txn.write(batch.where("id % 2 = 1"), ODD)
        counts = batch.groupBy("account").agg(f.count("*").alias("count"), f.sum("amount").alias("amount"))
        txn.write(counts, COUNTS)

    def source(self, spark: SparkSession) -> DataFrame:
        """The orders as a stream."""
        given = {"subscription": SUBSCRIPTION, "maxOffsetsPerTrigger": str(ROWS)}
        return spark.readStream.format("txnlog").options(**given).load(f"{self.path}/{ORDERS}")

    def stream(self, spark: SparkSession) -> None:
        """``spark_ext.write_stream``."""
        query = spark_ext.write_stream(
            self.source(spark),
            self.path,
            checkpoint=self.checkpoint,
            acknowledge=SUBSCRIPTION,
            trigger={"availableNow": True},
            handler=self.handle,
        )
        query.awaitTermination()

    def sink(self, spark: SparkSession) -> None:
        """The format's own sink: rows go to the topic that they name."""
        from pyspark.sql import functions as f

        routed = self.source(spark).withColumn("topic", f.when(f.col("id") % 2 == 0, f.lit(EVEN)).otherwise(f.lit(ODD)))
        writer = routed.writeStream.format("txnlog").trigger(availableNow=True)
        options = {"checkpointLocation": self.checkpoint, "acknowledge": SUBSCRIPTION}
        writer.options(**options).start(self.path).awaitTermination()

    def process(self, spark: SparkSession) -> None:
        """``spark_ext.process``."""
        spark_ext.process(
            spark, self.path, topics=ORDERS, subscription=SUBSCRIPTION, handler=self.handle, max_rows=ROWS
        )

    def careless(self) -> None:
        """No Spark, and a bug: what it read is acknowledged in an entry of its own."""
        with self.ns.consumer(ORDERS, SUBSCRIPTION, takeover=True) as consumer:
            while len(messages := consumer.receive(ROWS, timeout_ms=0)):
                self.switch.enter(batches_done(self.ns))
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
    switch = KillSwitch(None) if dying is None or engine is Engine.SINK else KillSwitch(kill, dying)
    store = KillStore(open_store(str(root_of(folder)), {}), switch)
    with txnlog.open(str(root_of(folder)), NAMESPACE, store=store) as ns:
        driver = Driver(folder, ns, switch)
        if engine is Engine.CARELESS:
            driver.careless()
        else:
            namespace_cache.use(ns)
            spark = start_spark(folder, given.master)
            driver.take(engine, spark)
            spark.stop()
    if dying is not None:
        dying.wait()


if __name__ == "__main__":
    main(sys.argv[1:])
