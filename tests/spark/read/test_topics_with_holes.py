"""Topics that were compacted by key: native scans, the format and streams pass over holes and keep all offsets."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

import spark_ext
from tests.spark.runs import Run
from tests.spark.support import assert_same_rows, path_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from txnlog.api.namespace import Namespace

SCHEMA = pa.schema([("name", pa.string()), ("id", pa.int64())])


@pytest.fixture
def ns(namespace: Namespace) -> Namespace:
    """Keys with many messages each in three partitions, the last of them behind a compaction."""
    namespace.enable("holes")
    namespace.create_topic("orders", SCHEMA, partitions=3, key="name", cleanup_policy="compact")
    for number in range(8):
        produce(namespace, number)
    assert namespace.compact("orders").removed_messages == 7 * 20
    produce(namespace, 8)
    return namespace


def produce(ns: Namespace, number: int) -> int:
    return ns.produce("orders", [{"name": f"k{key}", "id": 100 * number + key} for key in range(20)]).version


@pytest.mark.clause("P-250", "P-251")
def test_every_reader_gives_the_same_rows_at_every_version(spark: SparkSession, ns: Namespace) -> None:
    path = path_of(ns, "orders")
    newest = ns.snapshot().version
    expected = ns.snapshot().read("orders", include_metadata=True)
    assert expected.num_rows == 40
    for version in (newest - 3, newest):
        wanted = ns.snapshot(version).read("orders", include_metadata=True)
        assert_same_rows(read(spark, path, version), wanted)
        assert_same_rows(spark_ext.read_topic(spark, path, version, include_metadata=True), wanted)
    ends = ns.snapshot().end_offsets("orders")
    for cut in ({p: (3, end - 2) for p, end in ends.items()}, {0: (0, 1)}, {1: (ends[1] - 3, ends[1])}):
        wanted = ns.snapshot().read("orders", offsets=cut, include_metadata=True)
        assert_same_rows(spark_ext.read_topic(spark, path, offsets=cut, include_metadata=True), wanted)
    assert spark_ext.read_topic(spark, path).count() == spark.read.format("txnlog").load(path).count() == 40
    offset = expected.column("_offset")[20].as_py()
    found = spark.read.format("txnlog").option("filters", f'[["_offset", "==", {offset}]]').load(path)
    assert found.count() == expected.column("_offset").to_pylist().count(offset)
    partitions = spark.read.format("txnlog").options(minPartitions="7", includeMetadata="true").load(path)
    assert_same_rows(partitions, expected)


def read(spark: SparkSession, path: str, version: int) -> Any:
    return spark.read.format("txnlog").options(versionAsOf=str(version), includeMetadata="true").load(path)


def test_a_stream_and_process_pass_over_holes(spark: SparkSession, ns: Namespace) -> None:
    expected = sorted(ns.snapshot().read("orders").column("id").to_pylist())
    run = Run(ns, maxOffsetsPerTrigger=30)
    batches = run.batches()
    assert sorted(row["id"] for batch in batches for row in batch) == expected
    seen: list[int] = []

    def handler(batch: Any, _txn: Any) -> None:
        seen.extend(row.id for row in batch.collect())

    options: dict[str, Any] = {"topics": ["orders"], "subscription": "billing", "max_rows": 30}
    spark_ext.process(spark, path_of(ns), handler=handler, **options)
    assert sorted(seen) == expected
    assert [item.behind_messages for item in ns.lag("orders", "billing")] == [0, 0, 0]
