"""The changes of a Delta table into a topic, each exactly once: the log knows the last version, and nothing else must.

    spark-submit --packages io.delta:delta-spark_4.2_2.13:4.4.0 delta_changes_in.py /data/lake /data/prices

The table has the property ``delta.enableChangeDataFeed=true``, and the columns ``name`` and ``price``.
"""

from __future__ import annotations

import argparse

import pyarrow as pa
from pyspark.sql import SparkSession

import spark_ext
import txnlog

CHANGES = pa.schema([("name", pa.string()), ("price", pa.int64()), ("change", pa.string()), ("version", pa.int64())])


def bring(spark: SparkSession, ns: txnlog.Namespace, table: str) -> int:
    """Bring the versions that are new since the last call; returns the number of rows."""
    newest = spark.sql(f"DESCRIBE HISTORY delta.`{table}` LIMIT 1").collect()[0]["version"]
    with spark_ext.transaction(
        spark, f"{ns.root}/{ns.name}", producer="prices", txn_app_id="prices", txn_version=newest
    ) as txn:
        if txn.skipped:
            return 0
        # Behind the beginning, which fenced older runs: none of them can bring a version any more.
        last = ns.last_txn_version("prices")
        feed = spark.read.format("delta").option("readChangeFeed", "true").option("endingVersion", newest)
        changes = feed.option("startingVersion", 0 if last is None else last + 1).load(table)
        rows = changes.where("_change_type <> 'update_preimage'").selectExpr(
            "name", "price", "_change_type AS change", "_commit_version AS version"
        )
        return txn.write(rows, "prices")


def main() -> None:
    arguments = argparse.ArgumentParser(description="Bring the changes of a Delta table.")
    arguments.add_argument("lake", help="a folder or URL; made if it is not there")
    arguments.add_argument("table", help="the path of the Delta table")
    given = arguments.parse_args()
    with txnlog.open(given.lake, namespace="shop", create=True) as ns:
        ns.create_topic("prices", CHANGES, if_not_exists=True)
        spark = SparkSession.builder.appName("delta-changes-in").getOrCreate()
        print(f"{bring(spark, ns, given.table)} changes")
        spark.stop()


if __name__ == "__main__":
    main()
