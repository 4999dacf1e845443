"""Types, schemas and damaged segments, read by the format."""

from __future__ import annotations

import datetime
import json
import math
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from spark_ext.read.scan import open_scan, tasks_of
from spark_ext.read.task_reader import read_batches
from spark_ext.support.options import read_options
from tests.spark.support import path_of
from txnlog.errors import CorruptionError
from txnlog.testing.conformance import cases_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from txnlog.api.namespace import Namespace
from tests.spark.reads import METADATA, ORDERS, ids, lake, listed, load, orders, refused, same

__all__ = ["lake"]  # fixtures


# --- types and schemas ------------------------------------------------------------------------------------------------


ITEM = pa.struct([pa.field("at", pa.timestamp("us", "UTC")), pa.field("price", pa.decimal128(38, 18))])
TYPES: dict[str, tuple[pa.DataType, list[Any]]] = {
    "flag": (pa.bool_(), [True, False]),
    "i8": (pa.int8(), [-128, 127]),
    "i16": (pa.int16(), [-32_768, 32_767]),
    "i32": (pa.int32(), [-(2**31), 2**31 - 1]),
    "i64": (pa.int64(), [-(2**63), 2**63 - 1]),
    "f32": (pa.float32(), [math.inf, 0.5]),
    "f64": (pa.float64(), [math.nan, -0.0]),
    "small": (pa.decimal128(4, 2), [Decimal("-99.99"), Decimal("0.01")]),
    "wide": (pa.decimal128(38, 0), [Decimal("9" * 38), Decimal(-1)]),
    "text": (pa.string(), ["", "ß🦆\x00\n"]),
    "bytes": (pa.binary(), [b"", bytes(range(256))]),
    "day": (pa.date32(), [datetime.date(1, 1, 1), datetime.date(9999, 12, 31)]),
    "at": (
        pa.timestamp("us", "UTC"),
        [
            datetime.datetime(1969, 12, 31, 23, 59, 59, 999_999, datetime.UTC),
            datetime.datetime(2026, 11, 21, tzinfo=datetime.UTC),
        ],
    ),
    "local": (pa.timestamp("us"), [datetime.datetime(1582, 10, 4, 1), datetime.datetime(2026, 11, 21, 8, 0, 0, 1)]),  # noqa: DTZ001 - a type of its own
    "list": (pa.list_(pa.list_(pa.int32())), [[], [[1, None], None, []]]),
    "solid": (
        pa.list_(pa.field("element", pa.struct([pa.field("x", pa.int8(), nullable=False)]), nullable=False)),
        [[], [{"x": 1}, {"x": -1}]],
    ),
    "map": (pa.map_(pa.string(), pa.list_(pa.float64())), [[], [("a", [1.5, None]), ("b", None)]]),
    "items": (
        pa.list_(ITEM),
        [[None], [{"at": None, "price": Decimal("0.000000000000000001")}]],
    ),
    "nested": (
        pa.struct([("p", pa.string()), ("q", pa.struct([("r", pa.binary())]))]),
        [{"p": None, "q": None}, {"p": "x", "q": {"r": b"\xff"}}],
    ),
}


def test_every_type_a_topic_may_have_comes_back_as_it_was_produced(spark: SparkSession, namespace: Namespace) -> None:
    schema = pa.schema([(name, kind) for name, (kind, _) in TYPES.items()])
    rows = [{name: values[row] for name, (_, values) in TYPES.items()} for row in range(2)]
    produced = pa.Table.from_pylist([*rows, dict.fromkeys(TYPES)], schema)
    namespace.create_topic("types", schema, partitions=2, delta="off")
    namespace.produce("types", produced, partition=1)
    df = load(spark, namespace, "types", includeMetadata="true")
    assert same(df, namespace.snapshot().read("types", include_metadata=True))
    assert listed(df.drop(*METADATA).toArrow()) == listed(produced)
    assert [df.schema[name].dataType.simpleString() for name in ("local", "wide", "map", "items")] == [
        "timestamp_ntz",
        "decimal(38,0)",
        "map<string,array<double>>",
        "array<struct<at:timestamp,price:decimal(38,18)>>",
    ]
    assert not json.loads(df.schema["solid"].dataType.json())["containsNull"]
    # Spark itself agrees about the values, so it is not only our own reader that reads them so.
    probe = df.where("i8 = 127").selectExpr(
        "hex(bytes) = hex(X'00' || unhex(substr(hex(bytes), 3))) AND length(bytes) = 256",
        "text = 'ß🦆\\u0000\\n'",
        "at = timestamp'2026-11-21 00:00:00Z'",
        "local = timestamp_ntz'2026-11-21 08:00:00.000001'",
        "items[0].price = 1e-18BD",
        "map['a'][0] = 1.5D AND map['b'] IS NULL",
        "nested.q.r = X'FF'",
        "small = 0.01BD AND wide = -1",
        "day = date'9999-12-31'",
    )
    assert list(probe.first()) == [True] * 9


def test_a_schema_of_ones_own_chooses_columns_and_may_promise_less(spark: SparkSession, lake: Any) -> None:
    reader = spark.read.format("txnlog").option("includeMetadata", "true")
    df = reader.schema("_offset bigint, amount double, id bigint, _partition int").load(path_of(lake.ns, "orders"))
    table = lake.ns.snapshot().read("orders", include_metadata=True)
    assert same(df, table.select(["_offset", "amount", "id", "_partition"]))
    only = reader.schema("_partition int, _version bigint").load(path_of(lake.ns, "orders"))
    assert same(only, table.select(["_partition", "_version"])), "no column of the topic is asked for"


@pytest.mark.some(2)
@pytest.mark.parametrize(
    ("schema", "problem"),
    [
        ("id bigint, custommer string", r"'custommer', which the topic does not have \(did you mean 'customer'"),
        ("id int", r"says int of the column 'id', the topic bigint.*cast afterwards"),
        ("id bigint, customer string NOT NULL", r"'customer' is never null, which the topic does not promise"),
        ("id bigint, _offset bigint", r"'_offset', which the topic does not have \(set the option includeMetadata"),
        ("ID bigint", r"'ID', which the topic does not have \(did you mean 'id'"),
    ],
)
def test_a_schema_that_the_topic_does_not_have_is_refused(
    spark: SparkSession, lake: Any, schema: str, problem: str
) -> None:
    with refused("SchemaMismatch", problem):
        spark.read.format("txnlog").schema(schema).load(path_of(lake.ns, "orders")).collect()


# --- damage -----------------------------------------------------------------------------------------------------------


@pytest.fixture
def damaged(namespace: Namespace) -> tuple[Namespace, Path]:
    """A topic of one segment, and its file."""
    namespace.create_topic("orders", ORDERS)
    namespace.produce("orders", orders(*range(500)))
    (file,) = Path(path_of(namespace, "orders")).rglob("*.parquet")
    return namespace, file


@pytest.mark.some(2)
@pytest.mark.clause("P-106")
@pytest.mark.parametrize("damage", ["a flipped bit", "cut off", "longer", "empty", "missing", "another file"])
def test_a_damaged_segment_is_an_error_and_gives_no_row(
    spark: SparkSession, damaged: tuple[Namespace, Path], damage: str
) -> None:
    ns, file = damaged
    data = file.read_bytes()
    if damage == "a flipped bit":
        file.write_bytes(data[:100] + bytes([data[100] ^ 1]) + data[101:])
    elif damage == "missing":
        file.unlink()
    elif damage == "another file":
        ns.produce("orders", orders(*range(1_000, 1_500)))
        other = next(path for path in file.parents[1].rglob("*.parquet") if path != file)
        file.write_bytes(other.read_bytes())
    else:
        file.write_bytes({"cut off": data[:-1], "longer": data + b"\0", "empty": b""}[damage])
    scan = open_scan(read_options({"path": path_of(ns, "orders")}, streaming=False))
    batches = read_batches(scan.job(scan.schema), tasks_of(scan.plan("orders", None)))
    with pytest.raises(CorruptionError, match=file.name):
        next(batches)
    with refused("CorruptionError", file.name):
        load(spark, ns, "orders").limit(1).collect()


@pytest.mark.clause("P-106")
def test_a_flipped_bit_is_found_wherever_it_is(damaged: tuple[Namespace, Path]) -> None:
    ns, file = damaged
    data = file.read_bytes()
    scan = open_scan(read_options({"path": path_of(ns, "orders")}, streaming=False))
    job, tasks = scan.job(scan.schema), tasks_of(scan.plan("orders", None))
    assert sum(batch.num_rows for batch in read_batches(job, tasks)) == 500
    for position in range(0, len(data), max(1, len(data) // 97)):
        file.write_bytes(data[:position] + bytes([data[position] ^ 0x10]) + data[position + 1 :])
        with pytest.raises(CorruptionError):
            list(read_batches(job, tasks))


@pytest.mark.clause("P-106", "P-107", "P-219")
def test_executors_take_and_refuse_the_files_that_the_conformance_kit_takes_and_refuses() -> None:
    asked = [case for case in cases_of() if (case.golden, case.level) == ("segments", "read_committed")]
    assert len(asked) > 40
    for case in asked:
        path = str(case.root / case.namespace / case.topic)
        scan = open_scan(read_options({"path": path}, streaming=False))
        job, tasks = scan.job(scan.schema), tasks_of(scan.plan(case.topic, None))
        if case.expected.kind == "damaged":
            with pytest.raises(CorruptionError):
                list(read_batches(job, tasks))
        else:
            assert sum(batch.num_rows for batch in read_batches(job, tasks)) == len(case.expected.rows), case.name


@pytest.mark.clause("P-100", "P-123")
def test_a_read_changes_nothing_on_the_store_and_takes_no_file_that_no_entry_names(
    spark: SparkSession, damaged: tuple[Namespace, Path]
) -> None:
    ns, file = damaged
    stray = file.parent.parent / "_txnlog_segment=999" / file.name
    stray.parent.mkdir()
    stray.write_bytes(file.read_bytes())
    before = {path: path.stat().st_mtime_ns for path in Path(ns.root).rglob("*")}
    assert ids(load(spark, ns, "orders")) == list(range(500))
    assert {path: path.stat().st_mtime_ns for path in Path(ns.root).rglob("*")} == before
