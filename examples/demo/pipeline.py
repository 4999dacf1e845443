"""The pipeline on txnlog: a stream of flights becomes two topics, and each batch is one transaction.

``python -m examples.demo.pipeline FOLDER ROOT [--kill PLACE:BATCH]`` goes on where the last process stopped and ends
when all flights are taken. What a batch writes to both topics and what it takes off its subscription are one entry of
the log, so there is nothing for a kill to tear apart.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import spark_ext
import txnlog
from examples.demo import names, transform
from examples.demo.kills import Kill, KillStore, KillSwitch, Place, say
from examples.demo.session import start_spark
from txnlog.store import open_store

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from spark_ext import DataFrameTransaction


def run(
    spark: SparkSession,
    root: Path,
    checkpoint: Path,
    per_batch: int,
    switch: KillSwitch,
    tell: Callable[..., None] = say,
) -> None:
    """Stream what is there, to its end."""
    namespace = root / names.NAMESPACE
    totals = str(namespace / names.CARRIER_TOTALS)

    def handle(flights: DataFrame, txn: DataFrameTransaction) -> None:
        # What is committed is exactly what earlier batches did, so it says where this one goes on.
        so_far = spark_ext.read_topic(spark, totals).persist()
        batch = so_far.select("batch").distinct().count()
        switch.enter(batch)
        switch.reached(Place.BEFORE_DATA)
        flights.persist()
        txn.write(transform.delays(flights, batch), names.DELAYS)
        txn.write(transform.carrier_totals(flights, batch, so_far), names.CARRIER_TOTALS)
        tell("batch", batch=batch, flights=flights.count())
        flights.unpersist()
        so_far.unpersist()

    flights = (
        spark.readStream.format("txnlog")
        .option("subscription", names.SUBSCRIPTION)
        .option("maxOffsetsPerTrigger", per_batch)
        .option("splitTransactions", "true")  # all flights came in one transaction: whole it would be one batch
        .load(str(namespace / names.FLIGHTS))
    )
    query = spark_ext.write_stream(
        flights,
        str(namespace),
        checkpoint=str(checkpoint),
        acknowledge=names.SUBSCRIPTION,
        trigger={"availableNow": True},
        handler=handle,
    )
    query.awaitTermination()


def main(arguments: Sequence[str]) -> None:
    parser = argparse.ArgumentParser(prog="python -m examples.demo.pipeline", description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("root")
    parser.add_argument("--per-batch", type=int, required=True, help="flights in a batch")
    parser.add_argument("--kill", type=Kill.parse, help="where to die, as PLACE:BATCH")
    options = parser.parse_args(arguments)
    root = options.folder / options.root
    switch = KillSwitch(options.kill)
    # A store that knows when an entry is created, in place of the usual one: where the process can die in between.
    store = KillStore(open_store(str(root), {}), switch)
    with txnlog.open(root, names.NAMESPACE, store=store) as ns:
        spark_ext.use(ns)
        spark = start_spark(options.folder, "pipeline")
        run(spark, root, options.folder / f"checkpoint-{options.root}", options.per_batch, switch)
        spark.stop()


if __name__ == "__main__":
    main(sys.argv[1:])
