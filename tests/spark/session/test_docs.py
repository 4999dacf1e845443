"""What the README, docs/tour.md and docs/spark.md show of Spark runs as it stands."""

from __future__ import annotations

import decimal
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from pyspark.sql import functions as F  # noqa: N812 - as everybody writes it
from pyspark.sql.types import NullType, StructField, StructType

import spark_ext
import txnlog
from spark_ext.support.spark_schemas import arrow_schema
from tests.cli.printed import runs_as_shown
from tests.pages import blocks, needs_spark, page, programs, run_page, section
from txnlog.data.arrow_coercion import Unfit, conform_array
from txnlog.errors import SchemaMismatch
from txnlog.format import schema as schemas

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from txnlog.api.namespace import Namespace

NEED_DELTA = ("Exactly once into a Delta table", "Topics under names in SQL")
"""Sections of docs/spark.md that tests/delta runs: the session here has no Delta."""


def without_delta(text: str) -> str:
    """A page without what stands in those sections."""
    for title in NEED_DELTA:
        text = text.replace(section(text, title), "")
    return text


def placed(text: str, tmp_path: Path) -> list[str]:
    """The Python blocks of a text, in a folder of the test's own."""
    return [code.replace("/tmp/", f"{tmp_path}/") for code in blocks(text)]


def test_what_the_readme_shows_runs_in_its_order(spark: SparkSession, tmp_path: Path) -> None:
    text = page("README.md")
    given: dict[str, Any] = {}
    for code in placed(text, tmp_path):
        exec(code, given)
    read = given["ns"].snapshot()
    assert [read.read(topic).num_rows for topic in ("invoices", "archive", "small", "large")] == [2, 2, 1, 1]
    (sql,) = blocks(text, "sql")
    view, query = sql.replace("/tmp/", f"{tmp_path}/").split(";")
    try:
        spark.sql(view)
        totals = {row["customer"]: row["sum(amount)"] for row in spark.sql(query).collect()}
    finally:
        spark.catalog.dropTempView("orders")
    assert totals == {"ann": 12.5, "bob": 7.0}


@pytest.mark.some(3)
@pytest.mark.parametrize(
    "name", [name for name in programs("guide", "operations", "recipes", "reference") if needs_spark(name)]
)
def test_a_page_with_spark_is_a_program_that_prints_what_the_page_says(
    name: str, spark: SparkSession, tmp_path: Path
) -> None:
    try:
        run_page(name, tmp_path, console=runs_as_shown if "/operations/" in name else None)
    finally:
        spark.catalog.dropTempView("orders")


@pytest.mark.long  # each of them runs in a test of its own
def test_all_pages_run_one_after_the_other_in_one_folder_and_a_second_time(spark: SparkSession, tmp_path: Path) -> None:
    """As a reader runs them: nothing is removed in between."""
    for compare in (True, False):
        given: dict[str, Any] = {}
        for code in placed(page("README.md"), tmp_path):
            exec(code, given)
        for name in programs("guide", "recipes"):
            try:
                run_page(name, tmp_path, compare=compare)
            finally:
                spark.catalog.dropTempView("orders")


def test_what_the_tour_says_of_spark_runs(spark: SparkSession, namespace: Namespace, tmp_path: Path) -> None:
    df = spark.range(3).select("id", F.lit("ann").alias("customer"), F.current_timestamp().alias("at"))
    rate = spark.readStream.format("rate").load()
    stream = rate.selectExpr("value AS id", "'bob' AS customer", "timestamp AS at")
    creating, using, processing = placed(section(page("docs/tour.md"), "In Spark"), tmp_path)
    given = {"spark": spark, "ns": namespace, "df": df, "stream": stream}
    exec(creating, given)
    assert all(column.nullable for column in namespace.topic("orders").schema)
    while namespace.snapshot().version < 4:  # one of the examples reads it
        namespace.produce("orders", [{"id": 9, "customer": "cyd"}])
    try:
        exec(using, given)
        assert spark.table("orders").where("customer = 'ann'").count() == 6, "written by two of the examples"
        exec(processing, given)
        assert namespace.snapshot().read("ann").num_rows == 6, "the stream goes on, and writes other names"
    finally:
        for query in spark.streams.active:
            query.stop()
        spark.catalog.dropTempView("orders")


def test_the_page_on_spark_runs(spark: SparkSession, tmp_path: Path) -> None:
    found = placed(without_delta(page("docs/spark.md")), tmp_path)
    assert len(found) > 3
    given: dict[str, Any] = {"spark": spark}
    exec("\n".join(found), given)
    with txnlog.open(str(tmp_path / "lake"), namespace="shop", mode="r") as ns:
        assert all(column.nullable for column in ns.topic("orders").schema)
        assert ns.snapshot().read("counts").to_pylist() == [
            {"customer": "ann", "count": 3},
            {"customer": "ann", "count": 4},
        ]
        lag = [*ns.lag("orders", "billing"), *ns.lag("returns", "billing"), *ns.lag("orders", "nightly")]
        assert sum(item.behind_messages for item in lag) == 0
        read = sum(progress.numInputRows for progress in given["query"].recentProgress)
        assert read == ns.snapshot().read("billed").num_rows == 4, "computed once"


SIMPLE = {
    "tinyint": pa.int8(),
    "smallint": pa.int16(),
    "int": pa.int32(),
    "bigint": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "decimal": pa.decimal128(8, 2),
    "string": pa.string(),
    "binary": pa.binary(),
    "boolean": pa.bool_(),
    "date": pa.date32(),
    "timestamp": pa.timestamp("us", "UTC"),
    "timestamp_ntz": pa.timestamp("us"),
}


def fits(given: pa.Array, name: str) -> bool:
    """Whether a column may be one of a topic: without rows, as far as its type tells."""
    try:
        conform_array(given, SIMPLE[name])
    except Unfit:
        return False
    return True


def test_the_table_of_types_on_the_page_is_the_rule() -> None:
    told: dict[str, set[str]] = {}
    for line in re.findall(
        r"^\| `.*", section(page("docs/spark.md"), "A topic of a DataFrame's columns"), re.MULTILINE
    ):
        sources, targets = (set(re.findall(r"`(\w+)`", cell)) for cell in line.strip("|").split("|"))
        told |= dict.fromkeys(sources, targets)
    assert told == {
        source: {name for name in SIMPLE if fits(pa.array([], kind), name)} for source, kind in SIMPLE.items()
    }
    assert fits(pa.array([decimal.Decimal("7.00")]), "bigint")
    assert not fits(pa.array([decimal.Decimal("7.001")]), "decimal")
    assert fits(pa.array([7.0]), "bigint")
    assert not fits(pa.array([7.5]), "bigint")
    with pytest.raises(SchemaMismatch, match="the Spark type void, which no topic can have"):
        arrow_schema(StructType([StructField("nothing", NullType())]))


def test_our_line_of_a_query_that_failed_is_found_as_the_page_says(
    spark: SparkSession, namespace: Namespace, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (code,) = placed(section(page("docs/spark.md"), "Reading an error"), tmp_path)
    namespace.create_topic("rates", pa.schema([("value", pa.int64())]))
    stream, path = spark.readStream.format("rate").load(), f"{namespace.root}/{namespace.name}"
    queries = {
        "SchemaMismatch": spark_ext.write_stream(
            stream, path, checkpoint=f"{tmp_path}/c", handler=lambda batch, txn: txn.write(batch, "rates")
        ),
        "InvalidInputError": spark.readStream.format("txnlog")
        .option("versionAsOf", 1)
        .load(f"{path}/rates")
        .writeStream.format("noop")
        .option("checkpointLocation", f"{tmp_path}/d")
        .start(),
    }
    for kind, query in queries.items():
        exec(code, {"query": query})
        told = capsys.readouterr().out.splitlines()
        assert len(told) == 1
        assert told[0].startswith(f"txnlog.errors.{kind}: ")


def test_sparks_own_schema_is_refused_with_the_call_that_turns_it_into_arrow(spark: SparkSession) -> None:
    df = spark.range(1).select("id", F.current_timestamp().alias("at"))
    for given in (df.schema, df):
        with pytest.raises(SchemaMismatch, match=r"not \w+ \(of a DataFrame: df\.limit\(0\)\.toArrow\(\)\.schema;"):
            schemas.from_arrow(given)
    assert schemas.from_arrow(df.limit(0).toArrow().schema) == schemas.from_arrow(arrow_schema(df.schema))
