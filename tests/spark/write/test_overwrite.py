"""``txn.write(df, topic, mode="overwrite")``: whole contents of topics replaced in one commit."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

import spark_ext
from tests.spark.support import ids, path_of
from txnlog.errors import InvalidInputError, UnsupportedFeature

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from txnlog.api.namespace import Namespace

SCHEMA = pa.schema([("id", pa.int64()), ("customer", pa.string())])


@pytest.fixture
def ns(namespace: Namespace) -> Namespace:
    namespace.enable("holes")
    for topic in ("orders", "audit"):
        namespace.create_topic(topic, SCHEMA, partitions=2, key="customer")
        namespace.produce(topic, [{"id": number, "customer": f"c{number}"} for number in range(100, 110)])
    return namespace


@pytest.fixture
def rates(spark: SparkSession) -> DataFrame:
    return spark.range(0, 20, 1, 2).selectExpr("id", "concat('c', id % 7) customer")


def test_several_topics_in_one_version_with_rows_that_are_appended(
    ns: Namespace, spark: SparkSession, rates: DataFrame
) -> None:
    before = ns.snapshot().version
    ns.create_topic("log", SCHEMA)
    with spark_ext.transaction(spark, path_of(ns)) as txn:
        txn.write(rates, "orders", mode="overwrite")
        txn.write(rates.where("id < 5"), "audit", mode="overwrite")
        txn.write(rates.where("id = 5"), "audit")
        txn.write(rates.where("id = 6"), "log")
        assert ids(ns, "orders") == list(range(100, 110)), "before the commit nothing changes"
    assert (ids(ns, "orders"), ids(ns, "audit"), ids(ns, "log")) == ([*range(20)], [*range(6)], [6])
    assert txn.result is not None
    assert len(ns.snapshot(before).read("orders")) == 10
    assert ids(ns, "orders") == sorted(
        row.id for row in spark_ext.read_topic(spark, path_of(ns, "orders")).select("id").collect()
    )
    assert spark.read.format("txnlog").load(path_of(ns, "audit")).count() == 6
    assert spark_ext.read_topic(spark, path_of(ns, "orders"), version=before).count() == 10


def test_a_batch_that_was_committed_before_overwrites_nothing(
    ns: Namespace, spark: SparkSession, rates: DataFrame
) -> None:
    for frame in (rates, rates.where("id < 3")):
        with spark_ext.transaction(spark, path_of(ns), txn_app_id="nightly", txn_version=1) as txn:
            txn.write(frame, "orders", mode="overwrite")
    assert ids(ns, "orders") == list(range(20))


def test_what_is_refused_leaves_everything_as_it_was(ns: Namespace, spark: SparkSession, rates: DataFrame) -> None:
    ns.create_subscription("audit", "billing")

    def write(*calls: tuple[str, Any], **options: Any) -> None:
        with spark_ext.transaction(spark, path_of(ns)) as txn:
            for topic, mode in calls:
                txn.write(rates, topic, mode, **options)

    version = ns._connection.follower.refresh()
    with pytest.raises(InvalidInputError, match="'billing' 10"):
        write(("audit", "overwrite"))
    with pytest.raises(InvalidInputError, match="'orders' was written to before in the transaction"):
        write(("orders", "append"), ("orders", "overwrite"))
    with pytest.raises(InvalidInputError, match="'orders' was written to before in the transaction"):
        write(("orders", "overwrite"), ("orders", "overwrite"))
    with pytest.raises(InvalidInputError, match="mode is 'append' or 'overwrite', not 'error'"):
        write(("orders", "error"))
    with pytest.raises(InvalidInputError, match=r"mode is 'append' or 'overwrite', not \['overwrite'\]"):
        write(("orders", ["overwrite"]))
    with pytest.raises(InvalidInputError, match="allow_unacknowledged"):
        write(("audit", "overwrite"), allow_unacknowledged="yes")
    assert ids(ns, "orders") == ids(ns, "audit") == list(range(100, 110))
    assert not [v for v in ns.history(limit=5) if v.version > version and v.rows], "no rows came"
    write(("audit", "overwrite"), allow_unacknowledged=True)
    assert ids(ns, "audit") == list(range(20))


def test_a_job_that_fails_overwrites_nothing(ns: Namespace, spark: SparkSession, rates: DataFrame) -> None:
    broken = rates.selectExpr("if(id = 19, raise_error('as planned'), id) id", "customer")
    with pytest.raises(Exception, match="as planned"), spark_ext.transaction(spark, path_of(ns)) as txn:
        txn.write(broken, "orders", mode="overwrite")
    assert ids(ns, "orders") == list(range(100, 110))


def test_without_the_feature(namespace: Namespace, spark: SparkSession, rates: DataFrame) -> None:
    namespace.create_topic("orders", SCHEMA)
    with (
        pytest.raises(UnsupportedFeature, match="needs the feature 'holes'"),
        spark_ext.transaction(spark, path_of(namespace)) as txn,
    ):
        txn.write(rates, "orders", mode="overwrite")
