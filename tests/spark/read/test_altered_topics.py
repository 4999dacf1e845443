"""Topics whose columns were altered: native scans, the format and streams over old and new segments."""

from __future__ import annotations

import datetime
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

import spark_ext
from tests.spark.runs import Run, batch
from tests.spark.support import assert_same_rows, path_of
from txnlog.data.schema_evolution import widens
from txnlog.errors import SchemaMismatch
from txnlog.format import schema as schemas

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

    from txnlog.api.namespace import Namespace

VALUES: dict[str, list[Any]] = {
    "byte": [-(2**7), 2**7 - 1],
    "short": [-(2**15), 2**15 - 1],
    "integer": [-(2**31), 2**31 - 1],
    "long": [-(2**63), 2**63 - 1],
    "float": [0.1, -0.0, 3.4e38, float("inf")],
    "double": [0.1, 1.7e308],
    "decimal(5,2)": [Decimal("999.99"), Decimal("-0.01")],
    "decimal(9,4)": [Decimal("99999.9999"), Decimal("-0.0001")],
    "decimal(12,2)": [Decimal("9999999999.99")],
    "decimal(18,6)": [Decimal("999999999999.999999")],
    "decimal(20,2)": [Decimal("999999999999999999.99"), Decimal("-0.01")],
    "decimal(38,10)": [Decimal("9999999999999999999999999999.9999999999"), Decimal("-0.0000000001")],
}
PAIRS = [(old, new) for old in VALUES for new in VALUES if old != new and widens(old, new)]


def rows_of(kind: str, rows: int = 2_000) -> list[Any]:
    """Values of a type, many and few different ones: so that files hold pages with and without a dictionary."""
    values = [*VALUES[kind], None]
    return [values[number % len(values)] for number in range(rows)]


@pytest.mark.some(1)
@pytest.mark.parametrize("rows", [3, 2_000])
def test_widened_columns_are_read_natively_and_by_the_format_as_python_reads_them(
    spark: SparkSession, namespace: Namespace, rows: int
) -> None:
    names = [f"c{number}" for number in range(len(PAIRS))]
    old = pa.schema([(name, schemas.type_to_arrow(pair[0])) for name, pair in zip(names, PAIRS, strict=True)])
    new = {name: schemas.type_to_arrow(pair[1]) for name, pair in zip(names, PAIRS, strict=True)}
    namespace.create_topic("orders", old, delta="off")
    namespace.produce("orders", pa.table({n: rows_of(p[0], rows) for n, p in zip(names, PAIRS, strict=True)}, old))
    namespace.alter_topic("orders", widen=new)
    namespace.produce(
        "orders",
        pa.table({n: rows_of(p[1], rows) for n, p in zip(names, PAIRS, strict=True)}, pa.schema(list(new.items()))),
    )
    table = namespace.snapshot().read("orders")
    path = path_of(namespace, "orders")
    assert_same_rows(spark.read.format("txnlog").load(path), table)
    for vectorized in ("true", "false"):
        spark.conf.set("spark.sql.parquet.enableVectorizedReader", vectorized)
        try:
            assert_same_rows(spark_ext.read_topic(spark, path), table)
        finally:
            spark.conf.unset("spark.sql.parquet.enableVectorizedReader")


def literal(value: Any) -> str:
    """A value in SQL."""
    if isinstance(value, float):
        return f"CAST('{value}' AS DOUBLE)" if abs(value) < float("inf") else "CAST('Infinity' AS DOUBLE)"
    if isinstance(value, Decimal):
        places = -int(value.as_tuple().exponent)
        return f"CAST('{value:f}' AS DECIMAL(38,{places}))"
    return f"CAST('{value}' AS BIGINT)"


@pytest.mark.some(1)
@pytest.mark.parametrize(
    ("old", "new"), [pair for pair in PAIRS if pair[0] in {"byte", "integer", "float", "decimal(5,2)"}]
)
def test_what_spark_pushes_down_to_old_files_finds_the_rows_of_both(
    spark: SparkSession, namespace: Namespace, old: str, new: str
) -> None:
    before, after = schemas.type_to_arrow(old), schemas.type_to_arrow(new)
    namespace.create_topic("orders", pa.schema([("x", before)]), delta="off")
    namespace.produce("orders", pa.table({"x": pa.array(VALUES[old], before)}))
    namespace.alter_topic("orders", widen={"x": after})
    namespace.produce("orders", pa.table({"x": pa.array(VALUES[new], after)}))
    values = namespace.snapshot().read("orders").column("x").to_pylist()
    frame = spark_ext.read_topic(spark, path_of(namespace, "orders"))
    for wanted in dict.fromkeys(values):
        for operator, holds in (("=", lambda a, b: a == b), (">", lambda a, b: a > b), ("<=", lambda a, b: a <= b)):
            found = [row.x for row in frame.where(f"x {operator} {literal(wanted)}").collect()]
            assert sorted(found) == sorted(value for value in values if holds(value, wanted)), (operator, wanted)


@pytest.mark.parametrize("some", [(1, 2**32 + 2), (2**32 + 2, 1), (1, *range(5, 14), 2**32 + 2)])
def test_a_list_with_values_that_an_old_file_cannot_hold_finds_the_rows_of_both(
    spark: SparkSession, namespace: Namespace, some: tuple[int, ...]
) -> None:
    namespace.create_topic("orders", pa.schema([("x", pa.int32())]))
    namespace.produce("orders", [{"x": 2}, {"x": 2}])
    namespace.alter_topic("orders", widen={"x": pa.int64()})
    namespace.produce("orders", [{"x": 2**32 + 2}, {"x": 1}, {"x": 2}])
    frame = spark_ext.read_topic(spark, path_of(namespace, "orders"))
    for text, wanted in (("NOT IN", [2, 2, 2]), ("IN", [1, 2**32 + 2])):
        assert sorted(row.x for row in frame.where(f"x {text} {some}").collect()) == wanted, text


def test_the_option_filters_leaves_out_no_file_that_an_alteration_made_older(namespace: Namespace) -> None:
    namespace.create_topic(
        "orders", pa.schema([("id", pa.int32()), ("rate", pa.float32()), ("price", pa.decimal128(5, 2))]), delta="off"
    )
    namespace.produce("orders", [{"id": 1, "rate": 0.1, "price": Decimal("1.25")}])
    rate = namespace.snapshot().read("orders").column("rate")[0].as_py()
    namespace.alter_topic(
        "orders",
        [("note", pa.string())],
        widen={"id": pa.float64(), "rate": pa.float64(), "price": pa.decimal128(10, 4)},
    )
    namespace.produce("orders", [{"id": 2**40, "rate": 0.1, "price": Decimal("1.2501"), "note": "x"}])
    for filters, expected in [
        ('[["id", "<", 1.5]]', [1]),
        ('[["id", ">", 1.5]]', [2**40]),
        (f'[["rate", "=", {rate!r}]]', [1]),
        ('[["rate", "=", 0.1]]', [2**40]),
        ('[["price", "=", "1.25"]]', [1]),
        ('[["price", ">", "1.25"]]', [2**40]),
        ('[["note", "is null"]]', [1]),
        ('[["note", "=", "x"]]', [2**40]),
        ('[["note", "is not null"]]', [2**40]),
    ]:
        assert [row["id"] for row in batch(namespace, "orders", filters=filters)] == expected, filters


NESTED = {
    "s": (pa.struct([("a", pa.int32())]), pa.struct([("a", pa.int64()), ("b", pa.string())])),
    "l": (pa.list_(pa.float32()), pa.list_(pa.float64())),
    "m": (pa.map_(pa.string(), pa.decimal128(5, 2)), pa.map_(pa.string(), pa.decimal128(12, 4))),
    "ls": (
        pa.list_(pa.struct([("a", pa.int8())])),
        pa.list_(pa.struct([("a", pa.int32()), ("b", pa.struct([("c", pa.date32())]))])),
    ),
}


def test_nested_columns_and_new_ones_are_read_alike(spark: SparkSession, namespace: Namespace) -> None:
    namespace.create_topic("orders", pa.schema([(name, old) for name, (old, _) in NESTED.items()]), delta="off")
    namespace.produce(
        "orders",
        [{"s": {"a": 2**31 - 1}, "l": [0.5, None], "m": [("k", Decimal("1.25"))], "ls": [{"a": 1}, None]}, {}],
    )
    before = namespace.snapshot().version
    namespace.alter_topic(
        "orders",
        [("note", pa.string()), ("more", pa.list_(pa.int64()))],
        widen={name: new for name, (_, new) in NESTED.items()},
    )
    day = datetime.date(2026, 11, 21)
    namespace.produce(
        "orders",
        [
            {
                "s": {"a": 2**40, "b": "x"},
                "l": [0.1],
                "m": [("k", Decimal("12345678.1234"))],
                "ls": [{"a": 1_000, "b": {"c": day}}],
                "note": "y",
                "more": [1],
            }
        ],
    )
    path = path_of(namespace, "orders")
    for version in (before, None):
        table = namespace.snapshot(version).read("orders", include_metadata=True)
        options = {"includeMetadata": "true"} | ({} if version is None else {"versionAsOf": str(version)})
        assert_same_rows(spark.read.format("txnlog").options(**options).load(path), table)
        assert_same_rows(spark_ext.read_topic(spark, path, version, include_metadata=True), table)


# --- streams ----------------------------------------------------------------------------------------------------------


def test_a_running_stream_keeps_its_columns_and_the_next_run_has_the_new_ones(namespace: Namespace) -> None:
    namespace.create_topic("orders", pa.schema([("id", pa.int64()), ("s", pa.struct([("a", pa.int32())]))]))
    namespace.produce("orders", [{"id": 1, "s": {"a": 1}}])
    run = Run(namespace, includeMetadata="false")
    assert run.batch() == [{"id": 1, "s": {"a": 1}}]
    namespace.alter_topic(
        "orders", [("note", pa.string())], widen={"s": pa.struct([("a", pa.int32()), ("b", pa.string())])}
    )
    namespace.produce("orders", [{"id": 2, "s": {"a": 2, "b": "x"}, "note": "y"}])
    assert run.batch() == [{"id": 2, "s": {"a": 2}}]
    namespace.produce("orders", [{"id": 3, "note": "z"}])
    again = Run(namespace, log=run.log, includeMetadata="false")
    assert again.batch() == [{"id": 3, "s": None, "note": "z"}]


@pytest.mark.parametrize("kind", [pa.int64(), pa.field("id", pa.int32())], ids=["wider", "null"])
def test_a_running_stream_whose_column_was_altered_ends_and_is_started_again(namespace: Namespace, kind: Any) -> None:
    namespace.create_topic("orders", pa.schema([pa.field("id", pa.int32(), nullable=False)]))
    namespace.produce("orders", [{"id": 1}])
    run = Run(namespace, includeMetadata="false")
    assert run.batch() == [{"id": 1}]
    namespace.produce("orders", [{"id": 2}])
    namespace.alter_topic("orders", widen={"id": kind})
    with pytest.raises(SchemaMismatch, match=r"'orders' were widened, or made nullable.*start the query again"):
        run.batch()
    assert Run(namespace, log=run.log[:2], includeMetadata="false").batch() == [{"id": 2}]


def test_a_stream_over_topics_that_are_altered_one_by_one_goes_on(namespace: Namespace) -> None:
    for topic in ("orders", "returns"):
        namespace.create_topic(topic, pa.schema([("id", pa.int64())]))
    run = Run(namespace, "", subscribe="orders,returns", includeMetadata="false")
    assert run.batch() is None
    namespace.alter_topic("orders", [("note", pa.string())])
    namespace.produce("orders", [{"id": 1, "note": "x"}])
    namespace.produce("returns", [{"id": 2}])
    assert [[row["id"] for row in rows] for rows in run.batches()] == [[1, 2]]
    with pytest.raises(SchemaMismatch, match="different columns"):
        Run(namespace, "", subscribe="orders,returns")
    namespace.alter_topic("returns", [("note", pa.string())])
    again = Run(namespace, "", log=run.log, subscribe="orders,returns", includeMetadata="false")
    namespace.produce("returns", [{"id": 3, "note": "y"}])
    assert again.batch() == [{"id": 3, "note": "y"}]


def test_a_query_of_spark_goes_on_over_an_alteration_and_a_restart(
    spark: SparkSession, namespace: Namespace, tmp_path: Path
) -> None:
    namespace.create_topic("orders", pa.schema([("id", pa.int32())]))
    path = path_of(namespace, "orders")
    found: list[Any] = []

    def run(stop_after: int) -> None:
        query = (
            spark.readStream.format("txnlog")
            .load(path)
            .writeStream.option("checkpointLocation", str(tmp_path / "checkpoint"))
            .foreachBatch(lambda frame, _: found.extend(tuple(row) for row in frame.collect()))
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()
        assert len(found) == stop_after

    namespace.produce("orders", [{"id": 1}])
    run(1)
    namespace.produce("orders", [{"id": 2}])
    namespace.alter_topic("orders", [("note", pa.string())], widen={"id": pa.int64()})
    namespace.produce("orders", [{"id": 2**40, "note": "x"}])
    run(3)
    assert sorted(found) == [(1,), (2, None), (2**40, "x")]


def test_a_write_that_was_planned_before_commits_after(spark: SparkSession, namespace: Namespace) -> None:
    namespace.create_topic("orders", pa.schema([("id", pa.int32())]))
    frame = spark.createDataFrame([(1,)], "id int")
    with spark_ext.transaction(spark, path_of(namespace)) as txn:
        txn.write(frame, "orders")
        namespace.alter_topic("orders", [("note", pa.string())], widen={"id": pa.int64()})
        txn.write(spark.createDataFrame([(2**40, "x")], "id long, note string"), "orders")
    found = namespace.snapshot().read("orders").sort_by("id").to_pylist()
    assert found == [{"id": 1, "note": None}, {"id": 2**40, "note": "x"}]
