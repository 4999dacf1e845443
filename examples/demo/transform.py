"""What the pipeline computes of a batch of flights: both pipelines call these two functions."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import pyarrow as pa
from pyspark.sql import functions as f

from examples.demo.truth import LATE_MINUTES

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

DELAYS: Final = pa.schema(
    [
        ("id", pa.int64()),
        ("batch", pa.int64()),
        ("carrier", pa.string()),
        ("flight", pa.int64()),
        ("origin", pa.string()),
        ("dest", pa.string()),
        ("time_hour", pa.timestamp("us", tz="UTC")),
        ("delay_minutes", pa.int64()),
    ]
)
"""Columns of the topic ``delays``: one row per late flight."""

CARRIER_TOTALS: Final = pa.schema(
    [
        ("batch", pa.int64()),
        ("carrier", pa.string()),
        ("flights", pa.int64()),
        ("late", pa.int64()),
        ("delay_minutes", pa.int64()),
        ("flights_so_far", pa.int64()),
    ]
)
"""Columns of the topic ``carrier_totals``: one row per carrier and batch."""


def delays(flights: DataFrame, batch: int) -> DataFrame:
    """The late flights of a batch."""
    return flights.where(f.col("arr_delay") > LATE_MINUTES).select(
        "id",
        f.lit(batch).cast("bigint").alias("batch"),
        "carrier",
        "flight",
        "origin",
        "dest",
        "time_hour",
        f.col("arr_delay").alias("delay_minutes"),
    )


def carrier_totals(flights: DataFrame, batch: int, so_far: DataFrame) -> DataFrame:
    """The totals of a batch; the last column goes on from ``so_far``, the rows of ``carrier_totals`` before it."""
    before = so_far.groupBy("carrier").agg(f.max("flights_so_far").alias("before"))
    of_batch = flights.groupBy("carrier").agg(
        f.count("*").alias("flights"),
        f.count_if(f.col("arr_delay") > LATE_MINUTES).alias("late"),
        f.coalesce(f.sum("arr_delay"), f.lit(0)).alias("delay_minutes"),
    )
    return of_batch.join(f.broadcast(before), "carrier", "left").select(
        f.lit(batch).cast("bigint").alias("batch"),
        "carrier",
        "flights",
        "late",
        "delay_minutes",
        (f.col("flights") + f.coalesce("before", f.lit(0))).alias("flights_so_far"),
    )


__all__ = ["CARRIER_TOTALS", "DELAYS", "carrier_totals", "delays"]
