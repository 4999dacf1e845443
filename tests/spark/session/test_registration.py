"""``cat.register``: a namespace's topics as temporary views; what Spark cannot do is refused, with the reason."""

from __future__ import annotations

import subprocess
import sys
import traceback
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

import catalog
import txnlog
from catalog.delta_log.sql import delta_location
from tools.servers import s3_server
from txnlog.errors import InvalidInputError, NamespaceNotFound, TopicNotFound, UnsupportedFeature
from txnlog.store.local import LocalStore

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from catalog import Catalog
    from txnlog.api.namespace import Namespace

SCHEMA = pa.schema([("id", pa.int64()), ("customer", pa.string())])


@pytest.fixture
def cat(namespace: Namespace) -> Iterator[Catalog]:
    """A catalog with the topics ``orders`` and ``eu.late-orders`` in ``sales``."""
    for topic in ("orders", "eu.late-orders"):
        namespace.create_topic(topic, SCHEMA)
    namespace.produce("orders", [{"id": 1, "customer": "ann"}, {"id": 2, "customer": "bob"}])
    with catalog.open(namespace.root) as opened:
        yield opened


@pytest.fixture(autouse=True)
def _no_views(spark: SparkSession) -> Iterator[None]:
    yield
    for table in spark.catalog.listTables():
        if table.isTemporary:
            spark.catalog.dropTempView(table.name)


def test_every_topic_is_a_view_to_read_and_to_write_under_a_name_that_sql_takes(
    spark: SparkSession, cat: Catalog, namespace: Namespace
) -> None:
    assert cat.register(spark, "sales") == {"orders": "orders", "eu.late-orders": "eu_late_orders"}
    spark.sql("INSERT INTO eu_late_orders SELECT * FROM orders WHERE id = 2")
    assert namespace.snapshot().read("eu.late-orders").to_pylist() == [{"id": 2, "customer": "bob"}]
    cat.register(spark, "sales", as_="views", topics=["eu.late-orders"], replace=True)
    assert spark.sql("SELECT customer FROM eu_late_orders").collect() == [("bob",)]
    assert "orders" in {table.name for table in spark.catalog.listTables() if table.isTemporary}


def test_a_view_of_another_name_hides_nothing(spark: SparkSession, cat: Catalog) -> None:
    spark.range(3).createOrReplaceTempView("orders")
    with pytest.raises(InvalidInputError, match=r"there is a view or table 'orders' in the session already"):
        cat.register(spark, "sales")
    assert [table.name for table in spark.catalog.listTables()] == ["orders"], "nothing was registered"
    assert spark.table("orders").count() == 3
    cat.register(spark, "sales", names={"orders": "all_orders"})
    assert (spark.table("orders").count(), spark.table("all_orders").count()) == (3, 2)


def test_two_topics_under_one_name_are_refused_before_anything_is_made(
    spark: SparkSession, cat: Catalog, namespace: Namespace
) -> None:
    namespace.create_topic("eu-late.orders", SCHEMA)
    before = spark.catalog.listTables()
    with pytest.raises(InvalidInputError, match=r"the topics 'eu.late.orders' and 'eu.late.orders' would both be"):
        cat.register(spark, "sales")
    assert spark.catalog.listTables() == before
    found = cat.register(spark, "sales", names={"eu-late.orders": "others"})
    assert sorted(found.values()) == ["eu_late_orders", "orders", "others"]


@pytest.mark.some(4)
@pytest.mark.parametrize(
    ("given", "error", "text"),
    [
        ({"as_": "tables"}, InvalidInputError, "would lose its path"),
        ({"as_": "delta"}, UnsupportedFeature, "this session has no Delta"),
        ({"as_": "delta", "replace": True}, InvalidInputError, "replace is for views"),
        ({"database": "lake"}, InvalidInputError, "temporary views are in no database"),
        ({"topics": ["order"]}, TopicNotFound, "did you mean 'orders'"),
        ({"names": {"order": "x"}}, TopicNotFound, "did you mean 'orders'"),
        ({"names": {"orders": "a b"}}, InvalidInputError, "'a b' is no name for a view or table"),
        ({"names": {"orders": None}}, InvalidInputError, "None is no name for a view or table"),
        ({"as_": "delta", "database": "a`b"}, InvalidInputError, "is no name for a database"),
        ({"namespace": "sale"}, NamespaceNotFound, "did you mean 'sales'"),
    ],
    ids=str,
)
def test_what_cannot_be_registered_is_refused_and_nothing_is(
    spark: SparkSession, cat: Catalog, given: dict[str, Any], error: type[Exception], text: str
) -> None:
    before = spark.catalog.listTables()  # other tests of the session may have left views
    with pytest.raises(error, match=text):
        cat.register(spark, **{"namespace": "sales", **given})
    assert spark.catalog.listTables() == before


def test_a_name_that_sql_cannot_read_is_named_as_such(spark: SparkSession) -> None:
    with pytest.raises(InvalidInputError, match=r"'my-db\.bills' is no name in SQL .*backticks"):
        delta_location(spark, "my-db.bills")
    with pytest.raises(UnsupportedFeature, match="this session has no Delta"):
        delta_location(spark, "`my-db`.bills")


def test_storage_options_that_no_view_could_carry_are_refused_and_not_shown(spark: SparkSession, cat: Catalog) -> None:
    class Credential:
        def __repr__(self) -> str:
            return "private-word"

    before = spark.catalog.listTables()
    with (
        catalog.open(cat.root, {"credential": Credential()}, store=LocalStore(cat.root)) as opened,
        pytest.raises(InvalidInputError, match="storage options for Spark are plain values") as refused,
    ):
        opened.register(spark, "sales")
    assert "private-word" not in "".join(traceback.format_exception(refused.value))
    assert spark.catalog.listTables() == before, "nothing was registered"


def test_storage_options_are_in_no_plan_statement_or_error(spark: SparkSession) -> None:
    with s3_server("registered") as server:
        options = {**server.storage_options, "config_kwargs": {"user_agent_extra": "private-word"}}
        with txnlog.open(server.url("lake"), namespace="sales", create=True, storage_options=options) as ns:
            ns.create_topic("orders", SCHEMA)
            ns.produce("orders", [{"id": 1, "customer": "ann"}])
        with catalog.open(server.url("lake"), options) as cat:
            cat.register(spark, "sales")
        assert spark.table("orders").collect() == [(1, "ann")], "the view has the options"
        frame = spark.sql("SELECT * FROM orders WHERE id > 0")
        plans = frame._jdf.queryExecution().toString() + spark.sql("DESCRIBE EXTENDED orders").toPandas().to_string()
        with pytest.raises(Exception, match="nothing_of_the_kind") as caught:
            spark.sql("SELECT nothing_of_the_kind FROM orders")
    for word in (server.storage_options["secret"], "private-word"):
        assert word not in plans
        assert word not in str(caught.value)


def test_the_catalog_needs_no_spark_before_it_registers() -> None:
    code = "import sys, catalog; assert not [name for name in sys.modules if name.startswith(('pyspark', 'py4j'))]"
    subprocess.run([sys.executable, "-c", code], check=True)
