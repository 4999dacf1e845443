"""``cat.register(..., as_="delta")``: published topics as external tables of a database, and SQL time travel."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

import catalog
import txnlog
from txnlog.errors import InvalidInputError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from catalog import Catalog
    from txnlog.api.namespace import Namespace

SCHEMA = pa.schema([("id", pa.int64()), ("customer", pa.string())])


@pytest.fixture
def cat(spark: SparkSession, namespace: Namespace) -> Iterator[Catalog]:
    """A catalog with three topics in ``sales``, of which two are published."""
    for topic in ("orders", "eu.late-orders", "unpublished"):
        namespace.create_topic(topic, SCHEMA)
    with catalog.open(namespace.root) as opened:
        for topic in ("orders", "eu.late-orders"):
            publish(opened, namespace, topic, 2)
        yield opened
    for database in ("sales", "lake"):
        spark.sql(f"DROP DATABASE IF EXISTS {database} CASCADE")


def publish(cat: Catalog, ns: Namespace, topic: str, rows: int) -> None:
    """More rows, and one more version of the topic's table."""
    ns.produce(topic, [{"id": number, "customer": "ann"} for number in range(rows)])
    cat.publish(ns.name, topic)


def test_published_topics_are_external_tables_that_show_what_is_published_later(
    spark: SparkSession, cat: Catalog, namespace: Namespace
) -> None:
    found = cat.register(spark, "sales", as_="delta")
    assert found == {"orders": "sales.orders", "eu.late-orders": "sales.eu_late_orders"}
    assert spark.table("sales.eu_late_orders").count() == 2
    publish(cat, namespace, "orders", 3)
    assert spark.table("sales.orders").count() == 5
    assert spark.sql("SELECT count(*) FROM sales.orders VERSION AS OF 0").collect() == [(2,)]
    folder = Path(namespace.root, "sales", "orders")
    assert spark.sql(f"SELECT count(*) FROM delta.`{folder}` VERSION AS OF 0").collect() == [(2,)]
    assert cat.register(spark, "sales", as_="delta") == found, "again"
    spark.sql("DROP TABLE sales.orders")
    assert (folder / "_delta_log").is_dir(), "the table is external"


def test_a_place_for_which_sql_would_put_what_a_setting_says_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    root = f"{tmp_path}/${{spark.app.name}}"
    with txnlog.open(root, namespace="sales", create=True) as ns, catalog.open(root) as cat:
        ns.create_topic("orders", SCHEMA)
        publish(cat, ns, "orders", 1)
        with pytest.raises(InvalidInputError, match=r"the value of a setting .*as_=.views"):
            cat.register(spark, "sales", as_="delta")
    assert not spark.catalog.databaseExists("sales")


def test_a_name_that_another_table_has_is_refused_and_nothing_is_made(
    spark: SparkSession, cat: Catalog, tmp_path: Path
) -> None:
    spark.sql("CREATE DATABASE lake")
    spark.sql(f"CREATE TABLE lake.orders (id BIGINT) USING DELTA LOCATION '{tmp_path / 'other'}'")
    spark.sql("CREATE TABLE lake.eu_late_orders (id BIGINT) USING PARQUET")
    for topic, where in (("orders", "other"), ("eu.late-orders", "a place of its own")):
        with pytest.raises(InvalidInputError, match=rf"is another table, at .*{where}"):
            cat.register(spark, "sales", as_="delta", database="lake", topics=[topic])
    assert spark.table("lake.orders").count() == 0
    found = cat.register(spark, "sales", as_="delta", database="lake", names={"orders": "o", "eu.late-orders": "late"})
    assert found == {"orders": "lake.o", "eu.late-orders": "lake.late"}
    assert spark.table("lake.o").count() == 2


def test_a_topic_that_was_made_again_is_not_the_table_of_the_one_before(
    spark: SparkSession, cat: Catalog, namespace: Namespace
) -> None:
    cat.register(spark, "sales", as_="delta", topics=["orders"])
    namespace.drop_topic("orders")
    namespace.create_topic("orders", SCHEMA)
    with pytest.raises(InvalidInputError, match="is published as a Delta table"):
        cat.register(spark, "sales", as_="delta", topics=["orders"])
    publish(cat, namespace, "orders", 1)
    with pytest.raises(InvalidInputError, match=r"DROP TABLE sales\.orders, which deletes no file"):
        cat.register(spark, "sales", as_="delta", topics=["orders"])
    spark.sql("DROP TABLE sales.orders")
    cat.register(spark, "sales", as_="delta", topics=["orders"])
    assert spark.table("sales.orders").count() == 1


def test_where_nothing_is_published_it_says_how_to(spark: SparkSession, cat: Catalog) -> None:
    with pytest.raises(InvalidInputError, match=r"none of 1 topics is published.*cat\.publish"):
        cat.register(spark, "sales", as_="delta", topics=["unpublished"])
    assert not spark.catalog.databaseExists("sales")
