"""A topic as the table that it describes, ``read_topic(..., newest_by=KEY)``, against a window function over Parquet.

The Parquet files have the same rows, with the version and the offset of each as columns, and as many files; the
window numbers the rows of each key from the newest one, and the first ones are kept: what people write who have
files. Both are computed with all columns and thrown away (``noop``), in turns (A B A B). Before it is measured, both
must have the same rows.
"""

from __future__ import annotations

import argparse
from functools import partial
from pathlib import Path

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession, Window
from pyspark.sql import functions as F  # noqa: N812 - as everybody imports it

import spark_ext
import txnlog
from benchmarks.orders import SCHEMA, rows
from benchmarks.report import report, scratch
from benchmarks.scan import stored_copy
from benchmarks.spark_pairs import Pair, all_of, start_spark

GOAL = 1.00
SEGMENTS = 20
PARTITIONS = 4
KEY = "customer"
TOPIC = "accounts"


def fill(root: Path, count: int, keys: int) -> None:
    """The topic: each transaction has rows of all keys."""
    generator = np.random.default_rng(20261130)
    with txnlog.open(root, namespace="bench", create=True) as ns:
        ns.create_topic(TOPIC, SCHEMA, partitions=PARTITIONS, key=KEY)
        for _ in range(SEGMENTS):
            data = rows(count // SEGMENTS, generator)
            owners = pa.array(generator.integers(0, keys, data.num_rows, dtype=np.int32))
            ns.produce(TOPIC, data.set_column(data.schema.get_field_index(KEY), KEY, owners))


def newest(spark: SparkSession, root: Path) -> DataFrame:
    """Ours."""
    return spark_ext.read_topic(spark, f"{root}/bench/{TOPIC}", newest_by=KEY)


def windowed(spark: SparkSession, files: list[str]) -> DataFrame:
    """Theirs."""
    schema = spark.read.parquet(files[0]).schema
    newest_first = Window.partitionBy(KEY).orderBy(F.desc("_version"), F.desc("_offset"))
    numbered = spark.read.schema(schema).parquet(*files).withColumn("place", F.row_number().over(newest_first))
    return numbered.where("place = 1").select(*SCHEMA.names)


def fingerprint(frame: DataFrame) -> tuple[int, int]:
    """How many rows, and a number that depends on the value of each of them."""
    found = frame.agg(F.count("*"), F.sum(F.xxhash64(*SCHEMA.names).cast("decimal(38,0)"))).collect()[0]
    return found[0], int(found[1])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=10_000_000)
    parser.add_argument("--keys", type=int, default=1_000_000)
    parser.add_argument("--turns", type=int, default=5, help="pairs of runs")
    arguments = parser.parse_args()
    with scratch() as scratch_folder:
        folder = scratch_folder.resolve()
        fill(folder / "lake", arguments.rows, arguments.keys)
        files = stored_copy(folder / "lake", TOPIC, folder / "files")
        spark = start_spark()
        ours, theirs = partial(newest, spark, folder / "lake"), partial(windowed, spark, files)
        assert fingerprint(ours()) == fingerprint(theirs()), "the same rows"
        what = f"newest_by over {arguments.rows:,} rows of {arguments.keys:,} keys; a window function over Parquet"
        report([Pair(what, GOAL, lambda: all_of(ours()), lambda: all_of(theirs())).measured(arguments.turns)])
        spark.stop()


if __name__ == "__main__":
    main()
