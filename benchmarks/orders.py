"""The orders that the benchmarks of Spark read and write."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

SCHEMA = pa.schema(
    [
        pa.field("id", pa.int64()),
        pa.field("customer", pa.int32()),
        pa.field("amount", pa.float64()),
        pa.field("country", pa.string()),
        pa.field("comment", pa.string()),
        pa.field("at", pa.timestamp("us", "UTC")),
    ]
)


def rows(count: int, generator: np.random.Generator) -> pa.Table:
    """So many orders."""
    countries = pa.array(["DE", "FR", "IT", "ES", "PL", "NL", "SE", "AT"])
    words = pa.array([f"comment number {i}, as people write them" for i in range(1_000)])
    columns = [
        pa.array(generator.integers(0, 1 << 40, count)),
        pa.array(generator.integers(0, 1 << 20, count, dtype=np.int32)),
        pa.array(generator.random(count)),
        countries.take(pa.array(generator.integers(0, len(countries), count))),
        words.take(pa.array(generator.integers(0, len(words), count))),
        pa.array(generator.integers(1_700_000_000_000_000, 1_800_000_000_000_000, count), pa.timestamp("us", "UTC")),
    ]
    return pa.Table.from_arrays(columns, schema=SCHEMA)


__all__ = ["SCHEMA", "rows"]
