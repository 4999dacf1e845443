"""Delta Lake 4.4 through Spark 4.2 in this process; a commit covers one table."""

from __future__ import annotations

import importlib.metadata
import os
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from benchmarks.peers.load import Load, Outcome, in_threads
from benchmarks.peers.peer import NotOfferedError, Peer
from benchmarks.peers.values import random_values
from tools.delta_jars import SETTINGS, delta_jars
from tools.server_processes import java

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class Delta(Peer):
    """Appends to a table in a folder."""

    name = "Delta, Spark"
    durability = "in the page cache when a commit returns: Hadoop's local file system does not fsync"
    warms = True
    settings = "a local Spark with two cores and 1 GB; blind appends, each of one partition of Spark"

    def __init__(self) -> None:
        self._spark: SparkSession | None = None
        self._folder = Path()

    def bring(self) -> str:
        """The jars of Delta, with Maven."""
        delta_jars()
        versions = {name: importlib.metadata.version(name) for name in ("delta-spark", "pyspark")}
        return f"Delta {versions['delta-spark']}, Spark {versions['pyspark']}"

    def start(self, folder: Path) -> None:
        """Start a session."""
        from pyspark.sql import SparkSession  # noqa: PLC0415 (other systems need no Spark)

        self._folder = folder
        os.environ["JAVA_HOME"] = str(Path(java()).parents[1])
        os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
        options = {
            **SETTINGS,
            "spark.jars": ",".join(delta_jars()),
            "spark.driver.memory": "1g",
            "spark.driver.bindAddress": "127.0.0.1",
            "spark.ui.enabled": "false",
            "spark.ui.showConsoleProgress": "false",
            "spark.log.level": "ERROR",
            "spark.sql.shuffle.partitions": "2",
            "spark.databricks.delta.snapshotPartitions": "2",
            "spark.sql.warehouse.dir": str(folder / "warehouse"),
            "spark.local.dir": str(folder / "local"),
        }
        builder = SparkSession.builder.master("local[2]").appName("peers")
        for name, value in options.items():
            builder = builder.config(name, value)
        self._spark = builder.getOrCreate()

    def stop(self) -> None:
        """Stop the session, and the Java that it runs in."""
        if self._spark is None:
            return
        gateway = self._spark.sparkContext._gateway
        self._spark.stop()
        self._spark = None
        if gateway is not None:
            gateway.shutdown()
            gateway.proc.stdin.close()  # which ends it
            gateway.proc.wait(60)

    def is_durable(self, load: Load) -> bool:
        """Not before the operating system writes it."""
        del load
        return False

    def pids(self) -> list[int]:
        """Spark's."""
        gateway = self._spark.sparkContext._gateway if self._spark is not None else None
        return [gateway.proc.pid] if gateway is not None else []

    def run(self, load: Load) -> Outcome:
        """Run a load."""
        match load.kind:
            case "commit" | "fill" if load.aborted == 0:
                return self._commit(load)
            case "read":
                return self._read(load)
            case _:
                raise NotOfferedError("a commit covers one table, and there are no consumers")

    def _session(self) -> SparkSession:
        assert self._spark is not None, "it was not started"
        return self._spark

    def _commit(self, load: Load) -> Outcome:
        spark = self._session()
        values = random_values(load)
        partitions = [number for number in range(load.partitions) for _ in range(load.messages)]
        columns = {"partition": partitions, "value": [values[n % len(values)] for n in range(len(partitions))]}
        types = pa.schema([("partition", pa.int32()), ("value", pa.binary())])
        frame = spark.createDataFrame(pa.table(columns, schema=types)).coalesce(1)
        path = str(self._folder / load.topic)

        def transact(_thread: int, _number: int) -> None:
            frame.write.format("delta").mode("append").save(path)

        if not Path(path).exists():  # two writers that both make the table are in each other's way
            frame.limit(0).write.format("delta").save(path)
        return in_threads(load, transact, len(partitions))

    def _read(self, load: Load) -> Outcome:
        started = time.perf_counter()
        table = self._session().read.format("delta").load(str(self._folder / load.topic)).toArrow()
        size = pc.sum(pc.binary_length(table["value"])).as_py() or 0
        seconds = time.perf_counter() - started
        assert size == table.num_rows * load.size, "a message of another size was read"
        return Outcome(seconds=seconds, rows=table.num_rows)


__all__ = ["Delta"]
