"""Files of a folder into a topic, each exactly once, whatever becomes of the checkpoint.

    spark-submit files_in.py /data/lake /data/incoming

The files are JSON, a line a row, such as ``{"id": 1, "customer": "ann"}``. What was loaded, the topic ``loaded`` says.
"""

from __future__ import annotations

import argparse

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

import spark_ext
import txnlog
from spark_ext import DataFrameTransaction

ORDERS = pa.schema([("id", pa.int64()), ("customer", pa.string())])
LOADED = pa.schema([("file", pa.string())])


def load(spark: SparkSession, lake: str, folder: str) -> StreamingQuery:
    """Spark's file source finds new files; the topic of loaded files decides."""
    rows = spark.readStream.schema("id BIGINT, customer STRING").json(folder)

    def handler(batch: DataFrame, txn: DataFrameTransaction) -> None:
        known = spark_ext.read_topic(spark, f"{lake}/shop/loaded")
        new = batch.join(known, "file", "left_anti")
        txn.write(new.drop("file"), "orders")
        txn.write(new.select("file").distinct(), "loaded")

    return spark_ext.write_stream(
        rows.select("*", "_metadata.file_path").withColumnRenamed("file_path", "file"),
        f"{lake}/shop",
        checkpoint=f"{lake}-checkpoints/files",
        handler=handler,
        trigger={"availableNow": True},
    )


def main() -> None:
    arguments = argparse.ArgumentParser(description="Load the files of a folder.")
    arguments.add_argument("lake", help="a folder or URL; made if it is not there")
    arguments.add_argument("folder", help="where the files are")
    given = arguments.parse_args()
    with txnlog.open(given.lake, namespace="shop", create=True) as ns:
        ns.create_topic("orders", ORDERS, if_not_exists=True)
        ns.create_topic("loaded", LOADED, if_not_exists=True)
        spark = SparkSession.builder.appName("files-in").getOrCreate()
        load(spark, given.lake, given.folder).awaitTermination()
        print(f"{ns.snapshot().read('orders').num_rows} orders of {ns.snapshot().read('loaded').num_rows} files")
        spark.stop()


if __name__ == "__main__":
    main()
