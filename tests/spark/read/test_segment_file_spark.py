"""Spark reads the segments that Python writes, and Python the files that Spark writes, known by their footer."""

from __future__ import annotations

import datetime as dt
import decimal
import random
from collections import Counter
from pathlib import Path

import pyarrow as pa
import pytest

from tests.effort import every
from tests.segments import encode_many, footer_checksum
from txnlog.data.segment_file import decode, encode
from txnlog.errors import CorruptionError

SCHEMA = pa.schema(
    [
        ("text", pa.string()),
        ("data", pa.binary()),
        ("yes", pa.bool_()),
        ("byte", pa.int8()),
        ("short", pa.int16()),
        ("int", pa.int32()),
        ("long", pa.int64()),
        ("float", pa.float32()),
        ("double", pa.float64()),
        ("date", pa.date32()),
        ("at", pa.timestamp("us", "UTC")),
        ("local", pa.timestamp("us")),
        ("small", pa.decimal128(4, 2)),
        ("big", pa.decimal128(38, 10)),
        ("list", pa.list_(pa.field("element", pa.list_(pa.field("element", pa.int64()))))),
        ("map", pa.map_(pa.string(), pa.struct([("a", pa.int32())]))),
        ("struct", pa.struct([("a", pa.string()), ("b", pa.list_(pa.field("element", pa.date32())))])),
    ]
)


def row(i: int) -> dict[str, object]:
    """A row with every type, and null in every column now and then."""
    at = dt.datetime(2026, 11, 21, 12, 0, i % 60, i, dt.UTC)
    values = {
        "text": f"é{i % 7}",
        "data": bytes([i % 256]) * (i % 5),
        "yes": i % 2 == 0,
        "byte": i % 100,
        "short": -i,
        "int": i * 1000,
        "long": i << 40,
        "float": i / 4,
        "double": i / 3,
        "date": at.date(),
        "at": at,
        "local": at.replace(tzinfo=None),
        "small": decimal.Decimal(i % 99) / 4,
        "big": decimal.Decimal(i) / 8,
        "list": [[i, None], [], None],
        "map": {"k": {"a": i}, "n": None},
        "struct": {"a": None, "b": [at.date()]},
    }
    return {name: None if (i + number) % 11 == 0 else value for number, (name, value) in enumerate(values.items())}


SPARK_TYPES = {
    "text": "string",
    "data": "binary",
    "yes": "boolean",
    "byte": "tinyint",
    "short": "smallint",
    "int": "int",
    "long": "bigint",
    "float": "float",
    "double": "double",
    "date": "date",
    "at": "timestamp",
    "local": "timestamp_ntz",
    "small": "decimal(4,2)",
    "big": "decimal(38,10)",
    "list": "array<array<bigint>>",
    "map": "map<string,struct<a:int>>",
    "struct": "struct<a:string,b:array<date>>",
}
TABLE = pa.Table.from_pylist([row(i) for i in range(60)], schema=SCHEMA)


def files_of(folder: Path) -> list[bytes]:
    return [path.read_bytes() for path in sorted(folder.glob("*.parquet"))]


@pytest.mark.parametrize("size", ["small", "big"])
def test_spark_reads_what_python_wrote(spark, tmp_path, size):
    segments = [encode(TABLE)] if size == "small" else list(encode_many([TABLE] * 3, SCHEMA, target_bytes=8_000))
    expected = TABLE if size == "small" else pa.concat_tables([TABLE] * 3)
    for number, segment in enumerate(segments):
        (tmp_path / f"{number:03}.parquet").write_bytes(segment.data)
    frame = spark.read.option("parquet.page.verify-checksum.enabled", "true").parquet(str(tmp_path))
    assert dict(frame.dtypes) == SPARK_TYPES
    back = frame.toArrow().cast(SCHEMA)
    assert sorted(map(repr, back.to_pylist())) == sorted(map(repr, expected.to_pylist()))


@pytest.fixture(scope="module", params=["1.0", "2.0", "int96", "no dictionary"])
def written_by_spark(request, spark, tmp_path_factory):
    folder = tmp_path_factory.mktemp("written") / "files"
    schema = ", ".join(f"{name} {kind}" for name, kind in SPARK_TYPES.items())
    frame = spark.createDataFrame(TABLE, schema).coalesce(1)
    writer = frame.write.option("compression", "zstd" if request.param == "2.0" else "snappy")
    if request.param == "2.0":
        writer = writer.option("parquet.writer.version", "v2")
    if request.param == "no dictionary":
        writer = writer.option("parquet.enable.dictionary", "false")
    kind = "INT96" if request.param == "int96" else "TIMESTAMP_MICROS"
    spark.conf.set("spark.sql.parquet.outputTimestampType", kind)
    try:
        writer.parquet(str(folder))
    finally:
        spark.conf.unset("spark.sql.parquet.outputTimestampType")
    (data,) = files_of(folder)
    return data


def test_python_reads_what_spark_wrote_and_knows_by_its_footer(written_by_spark):
    data = written_by_spark
    result = decode(data, footer_checksum(data), schema=SCHEMA, rows=60, key="k", size_bytes=len(data))
    assert result.schema.equals(SCHEMA)
    assert result.to_pylist() == TABLE.to_pylist()


@pytest.mark.some(1)
def test_a_flipped_bit_of_what_spark_wrote_never_gives_other_rows(written_by_spark):
    data = written_by_spark
    checksum = footer_checksum(data)
    outcomes: Counter[str] = Counter()
    dice = random.Random(5)
    first, step = every(8)
    for position in range(first, len(data), step):
        damaged = bytearray(data)
        damaged[position] ^= 1 << dice.randrange(8)
        try:
            result = decode(bytes(damaged), checksum, schema=SCHEMA, rows=60, key="k")
        except CorruptionError:
            outcomes["found"] += 1
            continue
        assert result.equals(TABLE), position
        outcomes["harmless"] += 1
    assert outcomes["harmless"] > 0
    assert outcomes["found"] > 0.8 * len(data) // step
