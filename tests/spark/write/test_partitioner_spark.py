"""Keys, hashed by Spark itself and in Python, lead to the same partitions."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql.functions import lit, pmod, xxhash64
from pyspark.sql.types import (
    BinaryType,
    ByteType,
    IntegerType,
    LongType,
    ShortType,
    StringType,
    StructField,
    StructType,
)

from txnlog.data.partitioner import hash_values, key_hasher, partition_of_keys

_LENGTHS = (3, 4, 7, 8, 15, 16, 31, 32, 33, 63, 64, 65)
TEXTS = [
    "",
    "a",
    "abc",
    "é",
    "日本語",
    "\U0001f600",
    "\0",
    " ",
    *("x" * n for n in _LENGTHS),
    "ü" * 500,
]

PARTITIONS = (1, 7, 16, 10_000)

EDGES: dict[str, tuple[Any, pa.DataType, list[Any]]] = {
    "string": (StringType(), pa.string(), TEXTS),
    "binary": (BinaryType(), pa.binary(), [*(text.encode() for text in TEXTS), b"\xff\x00\x80" * 20]),
    "byte": (ByteType(), pa.int8(), [0, 1, -1, 127, -128]),
    "short": (ShortType(), pa.int16(), [0, 1, -1, 2**15 - 1, -(2**15)]),
    "integer": (IntegerType(), pa.int32(), [0, 1, -1, 2**31 - 1, -(2**31)]),
    "long": (LongType(), pa.int64(), [0, 1, -1, 2**31, -(2**31), 2**63 - 1, -(2**63)]),
}


@pytest.mark.parametrize("name", EDGES)
def test_the_partition_of_a_key_is_the_one_that_spark_computes(spark, name):
    spark_type, arrow_type, values = EDGES[name]
    values = [*values, None]
    frame = spark.createDataFrame([(value,) for value in values], StructType([StructField("key", spark_type)]))
    columns = [xxhash64("key")] + [pmod(xxhash64("key"), lit(partitions)) for partitions in PARTITIONS]
    rows = frame.select(columns).collect()
    array = pa.array(values, arrow_type)
    assert hash_values(array).tolist() == [row[0] for row in rows]
    assert [key_hasher(arrow_type)(value) for value in values] == [row[0] for row in rows]
    for position, partitions in enumerate(PARTITIONS, start=1):
        assert partition_of_keys(array, partitions).tolist() == [row[position] for row in rows]
