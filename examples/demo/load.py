"""Before the pipeline: the topics, all flights in one transaction, and one more batch that is aborted.

``python -m examples.demo.load FOLDER ROOT`` makes the namespace in ``FOLDER/ROOT``.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

import spark_ext
import txnlog
from examples.demo import data, names, transform
from examples.demo.kills import say
from examples.demo.session import start_spark

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PARTITIONS: Final = 3
ABORTED_ROWS: Final = 10_000


def create_topics(root: Path) -> None:
    """A namespace with three topics, and a subscription from the first flight on."""
    with txnlog.open(root, namespace=names.NAMESPACE, create=True) as ns:
        ns.create_topic(names.FLIGHTS, schema=data.SCHEMA, partitions=PARTITIONS, key="carrier")
        ns.create_topic(names.DELAYS, schema=transform.DELAYS)
        ns.create_topic(names.CARRIER_TOTALS, schema=transform.CARRIER_TOTALS)
        ns.create_subscription(names.FLIGHTS, names.SUBSCRIPTION, start="earliest")


def load(spark: SparkSession, namespace: str, rows: int | None) -> int:
    """Write all flights in one transaction, then some again in one that is aborted. Returns the rows of that one."""
    flights = spark.createDataFrame(data.read_flights(rows=rows))
    with spark_ext.transaction(spark, namespace, producer="loader") as txn:
        txn.write(flights, names.FLIGHTS)
    again = flights.limit(ABORTED_ROWS)
    with spark_ext.transaction(spark, namespace, producer="loader") as txn:
        aborted = txn.write(again, names.FLIGHTS)
        txn.flush()  # the log shows it from here on, as open; nobody reads it
        txn.abort()
    return aborted


def visible(spark: SparkSession, path: str) -> dict[str, list[int]]:
    """By isolation level the committed and the aborted rows that a reader sees."""
    committed = spark.read.format("txnlog").option("columns", "id").load(path).count()
    everything = spark.read.format("txnlog").option("isolationLevel", "read_uncommitted").option("columns", "id")
    states = {
        row["_txn_state"]: row["count"]
        for row in everything.option("includeMetadata", "true").load(path).groupBy("_txn_state").count().collect()
    }
    return {
        "read_committed": [committed, 0],
        "read_uncommitted": [states.get("COMMITTED", 0), states.get("ABORTED", 0)],
    }


def main(arguments: Sequence[str]) -> None:
    parser = argparse.ArgumentParser(prog="python -m examples.demo.load", description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("root")
    parser.add_argument("--rows", type=int)
    options = parser.parse_args(arguments)
    root = options.folder / options.root
    create_topics(root)
    spark = start_spark(options.folder, "load")
    namespace = str(root / names.NAMESPACE)
    aborted = load(spark, namespace, options.rows)
    say("loaded", aborted=aborted, visible=visible(spark, f"{namespace}/{names.FLIGHTS}"))
    spark.stop()


if __name__ == "__main__":
    main(sys.argv[1:])
