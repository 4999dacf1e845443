"""``read_topic(..., newest_by=key)``: a topic with a key as the table that it describes."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

import spark_ext
from tests.spark.support import path_of
from txnlog.errors import InvalidInputError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from txnlog.api.namespace import Namespace

SCHEMA = pa.schema([("name", pa.string()), ("price", pa.int64()), ("shop.name", pa.string())])


@pytest.fixture
def ns(namespace: Namespace) -> Namespace:
    namespace.create_topic("prices", SCHEMA, partitions=3, key="name")
    return namespace


def put(ns: Namespace, *triples: tuple[str | None, int | None, str | None], **options: Any) -> int:
    found = [{"name": name, "price": price, "shop.name": shop} for name, price, shop in triples]
    return ns.produce("prices", found, **options).version


def read(spark: SparkSession, ns: Namespace, topic: str = "prices", **options: Any) -> list[tuple[Any, ...]]:
    options = {"newest_by": "name", **options}
    return sorted(tuple(row) for row in spark_ext.read_topic(spark, path_of(ns, topic), **options).collect())


def test_of_each_key_the_newest_row(ns: Namespace, spark: SparkSession) -> None:
    put(ns, ("a", 1, "x"), ("b", 2, None), ("a", 3, None), (None, 7, "x"))
    first = put(ns, ("c", None, "y"), ("b", None, None))
    assert read(spark, ns) == [("a", 3, None), ("c", None, "y")], "null is a value of the newest row; b has ended"
    put(ns, ("b", 9, "z"))
    assert read(spark, ns) == [("a", 3, None), ("b", 9, "z"), ("c", None, "y")]
    assert read(spark, ns, version=first) == [("a", 3, None), ("c", None, "y")]
    frame = spark_ext.read_topic(spark, path_of(ns, "prices"), newest_by="name", include_metadata=True)
    assert frame.columns == ["name", "price", "shop.name", "_partition", "_offset", "_timestamp", "_txn_id", "_version"]
    plain = spark_ext.read_topic(spark, path_of(ns, "prices"), include_metadata=True)
    assert {(row["name"], row["_offset"]) for row in frame.collect()} <= {
        (row["name"], row["_offset"]) for row in plain.collect()
    }
    assert [field.dataType for field in frame.schema] == [field.dataType for field in plain.schema]


def test_it_is_what_compaction_leaves(ns: Namespace, spark: SparkSession) -> None:
    dice = random.Random(7)
    for _ in range(6):
        names = [dice.choice("abcdefgh") for _ in range(20)]
        put(ns, *((name, dice.choice([None, 1, 2, 3]), dice.choice([None, "x"])) for name in names))
        ns.optimize("prices")
    expected = read(spark, ns)
    ns.enable("holes")
    ns.alter_topic("prices", cleanup_policy="compact", delete_retention_ms=0)
    ns.compact("prices")
    plain = sorted(tuple(row) for row in spark_ext.read_topic(spark, path_of(ns, "prices")).collect())
    assert [row for row in plain if row[1:] != (None, None)] == expected
    assert read(spark, ns) == expected


def test_rows_that_were_put_into_other_partitions_by_hand(ns: Namespace, spark: SparkSession) -> None:
    for price in range(6):
        put(ns, ("a", price, None), partition=price % 3)
    assert read(spark, ns) == [("a", 5, None)]


def test_a_topic_that_began_with_its_key_alone_is_a_set(namespace: Namespace, spark: SparkSession) -> None:
    namespace.create_topic("seen", pa.schema([("name", pa.string())]), key="name")
    namespace.produce("seen", [{"name": "a"}, {"name": "b"}, {"name": "a"}])
    assert read(spark, namespace, "seen") == [("a",), ("b",)]


def test_a_condition_on_the_key_goes_down_to_the_files(ns: Namespace, spark: SparkSession) -> None:
    put(ns, ("a", 1, "x"), ("b", 2, None))
    frame = spark_ext.read_topic(spark, path_of(ns, "prices"), newest_by="name").where("name = 'b'")
    assert [tuple(row) for row in frame.collect()] == [("b", 2, None)]
    plan = frame._jdf.queryExecution().executedPlan().toString()
    assert "EqualTo(name,b)" in plan


def test_an_empty_topic(ns: Namespace, spark: SparkSession) -> None:
    assert read(spark, ns) == []


def test_what_is_refused(ns: Namespace, spark: SparkSession) -> None:
    ns.create_topic("plain", SCHEMA)
    for topic, options, problem in (
        ("prices", {"newest_by": "price"}, "is the key of a topic, not 'price'.*pass newest_by='name'"),
        ("prices", {"newest_by": 3}, "not 3"),
        ("plain", {}, "the topic 'plain' has no key"),
        ("prices", {"isolation_level": "read_uncommitted"}, "needs committed rows"),
    ):
        with pytest.raises(InvalidInputError, match=problem):
            read(spark, ns, topic, **options)
