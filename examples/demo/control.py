"""The control: the same pipeline, written the ordinary way. Two Parquet appends in a batch, and a checkpoint.

``python -m examples.demo.control FOLDER [--kill PLACE:BATCH]`` reads ``FOLDER/flights``, a file a batch, and appends to
``FOLDER/delays`` and ``FOLDER/carrier_totals``. Nothing here is careless: Spark promises each batch at least once, an
append of files cannot be taken back, and two of them are not one.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql.pandas.types import from_arrow_schema

from examples.demo import transform
from examples.demo.kills import Kill, KillSwitch, Place, say
from examples.demo.session import start_spark

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def write_source(flights: pa.Table, folder: Path, batches: int) -> None:
    """The flights as so many Parquet files, whose times of change are in order: the stream takes them in that order."""
    folder.mkdir(parents=True)
    size = -(-flights.num_rows // batches)
    for number in range(batches):
        file = folder / f"flights-{number:03d}.parquet"
        pq.write_table(flights.slice(number * size, size), file)
        os.utime(file, (1_000_000_000 + number, 1_000_000_000 + number))


def run(spark: SparkSession, folder: Path, switch: KillSwitch) -> None:
    """Stream what is there, to its end."""
    for name in ("delays", "carrier_totals"):
        (folder / name).mkdir(exist_ok=True)
    totals_schema = from_arrow_schema(transform.CARRIER_TOTALS)

    def handle(flights: DataFrame, batch: int) -> None:
        switch.enter(batch)
        switch.reached(Place.BEFORE_DATA)
        flights.persist()
        transform.delays(flights, batch).write.mode("append").parquet(str(folder / "delays"))
        switch.reached(Place.BEFORE_ENTRY)
        so_far = spark.read.schema(totals_schema).parquet(str(folder / "carrier_totals"))
        totals = transform.carrier_totals(flights, batch, so_far)
        totals.write.mode("append").parquet(str(folder / "carrier_totals"))
        switch.reached(Place.BEFORE_SPARK)
        say("batch", batch=batch, flights=flights.count())
        flights.unpersist()

    source = str(folder / "flights")
    stream = spark.readStream.schema(spark.read.parquet(source).schema).option("maxFilesPerTrigger", 1).parquet(source)
    query = (
        stream.writeStream.foreachBatch(handle)
        .option("checkpointLocation", str(folder / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()


def main(arguments: Sequence[str]) -> None:
    parser = argparse.ArgumentParser(prog="python -m examples.demo.control", description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--kill", type=Kill.parse, help="where to die, as PLACE:BATCH")
    options = parser.parse_args(arguments)
    spark = start_spark(options.folder, "control")
    run(spark, options.folder, KillSwitch(options.kill))
    spark.stop()


if __name__ == "__main__":
    main(sys.argv[1:])
