"""The DataFrame of a batch of ``spark_ext.process``, by Spark's own Parquet scan or by the format."""

from __future__ import annotations

import json
from functools import reduce
from typing import TYPE_CHECKING

from pyspark.sql import functions as F  # noqa: N812 - as everybody writes it

from spark_ext.read.native_scan import read_plan
from spark_ext.read.scan import metadata_fields
from spark_ext.read.task_reader import TOPIC_COLUMN
from spark_ext.support.columns import named
from spark_ext.support.spark_schemas import spark_schema
from txnlog.common.validation import options_json

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from spark_ext.processing.batch_plan import Batch
    from spark_ext.read.scan import Scan


def native_frame(spark: SparkSession, scan: Scan, batch: Batch) -> DataFrame:
    """The batch by Spark's Parquet scan, with metadata if the options ask for it, and ``_topic`` for several topics."""
    frames: list[DataFrame] = []
    for topic, offsets in batch.offsets.items():
        plan = scan.plan(topic, offsets)
        frame = read_plan(spark, scan.namespace, plan, include_metadata=scan.options.include_metadata)
        frames.append(frame.withColumn(TOPIC_COLUMN, F.lit(topic)) if len(scan.topics) > 1 else frame)
    return reduce(lambda left, right: left.union(right), frames)


def format_frame(spark: SparkSession, scan: Scan, batch: Batch) -> DataFrame:
    """The same rows and columns by the format ``txnlog``, which needs no file system of Spark's for the root."""
    starts: dict[str, dict[int, int]] = {}
    ends: dict[str, dict[int, int]] = {}
    for topic, offsets in batch.offsets.items():
        known = scan.snapshot.end_offsets(topic)  # others are read from their end to their end
        starts[topic] = {partition: offsets.get(partition, (end, end))[0] for partition, end in known.items()}
        ends[topic] = {partition: offsets.get(partition, (end, end))[1] for partition, end in known.items()}
    several, metadata = len(scan.topics) > 1, scan.options.include_metadata
    reader = (
        spark.read.format("txnlog")
        .option("subscribe", ",".join(batch.offsets))
        .option("versionAsOf", scan.snapshot.version)
        .option("startingOffsets", json.dumps(starts))
        .option("endingOffsets", json.dumps(ends))
        .option("includeMetadata", str(several or metadata).lower())
    )
    if scan.options.storage_options:
        reader = reader.option("storageOptions", options_json(scan.options.storage_options))
    fields = spark_schema(scan.columns).fields + (metadata_fields(scan.options.isolation_level) if metadata else [])
    columns = [named(field.name) for field in fields] + ([named(TOPIC_COLUMN)] if several else [])
    return reader.load(scan.options.path).select(*columns)


__all__ = ["format_frame", "native_frame"]
