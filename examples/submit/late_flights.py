"""Two steps of a daily pipeline, as one file for spark-submit: load a day's flights, then count who was late.

    spark-submit --py-files txnlog-0.1.0-py3-none-any.whl late_flights.py /data/lake 2013-01-01 flights.csv

The CSV has the columns ``carrier``, ``flight``, ``dest`` and ``dep_delay`` (minutes, empty for a cancelled flight).
Each step is exactly once: run it again after a crash, or by mistake, and nothing is there twice. docs/spark.md says
what else a cluster needs whose Python is not the driver's.
"""

from __future__ import annotations

import argparse
import datetime

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - as everybody writes it

import spark_ext
import txnlog
from spark_ext import DataFrameTransaction

FLIGHTS = pa.schema(
    [("carrier", pa.string()), ("flight", pa.int64()), ("dest", pa.string()), ("dep_delay", pa.int64())]
)
COUNTS = pa.schema([("carrier", pa.string()), ("flights", pa.int64()), ("late", pa.int64())])
LATE_MINUTES = 15


def main() -> None:
    arguments = argparse.ArgumentParser(description="Load a day's flights, and count who was late.")
    arguments.add_argument("lake", help="a folder or URL; made if it is not there")
    arguments.add_argument("day", type=datetime.date.fromisoformat, help="2013-01-01")
    arguments.add_argument("csv", help="the day's flights")
    given = arguments.parse_args()

    with txnlog.open(given.lake, namespace="airport", create=True) as ns:
        ns.create_topic("flights", FLIGHTS, partitions=4, key="carrier", if_not_exists=True)
        ns.create_topic("late", FLIGHTS, if_not_exists=True)
        ns.create_topic("counts", COUNTS, partitions=4, key="carrier", if_not_exists=True)
        spark = SparkSession.builder.appName("late-flights").getOrCreate()
        load(spark, f"{given.lake}/airport", given.day, given.csv)
        count(spark, f"{given.lake}/airport", f"{given.lake}-checkpoints/late")
        totals = ns.snapshot().read("counts").to_pandas().groupby("carrier").sum()
        print(totals.to_string())
        spark.stop()


def load(spark: SparkSession, path: str, day: datetime.date, csv: str) -> None:
    """A day is a version of the app "load": what was committed before is skipped."""
    rows = spark.read.csv(csv, header=True, schema="carrier string, flight long, dest string, dep_delay long")
    with spark_ext.transaction(spark, path, txn_app_id="load", txn_version=day.toordinal()) as txn:
        if txn.skipped:
            print(f"{day} was loaded before")
        else:
            print(f"{day}: {txn.write(rows, 'flights')} flights")


def count(spark: SparkSession, path: str, checkpoint: str) -> None:
    """What is new since the last run, to two topics and off the subscription, in one commit a batch."""
    flights = spark.readStream.format("txnlog").option("subscription", "late").load(f"{path}/flights")
    query = spark_ext.write_stream(
        flights,
        path,
        checkpoint=checkpoint,
        acknowledge="late",
        trigger={"availableNow": True},
        handler=tell_late,
    )
    query.awaitTermination()


def tell_late(batch: DataFrame, txn: DataFrameTransaction) -> None:
    late = F.col("dep_delay") >= LATE_MINUTES
    txn.write(batch.where(late), "late")
    sums = batch.groupBy("carrier").agg(F.count("*").alias("flights"), F.count(F.when(late, True)).alias("late"))
    txn.write(sums, "counts")


if __name__ == "__main__":
    main()
