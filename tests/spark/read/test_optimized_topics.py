"""Topics whose segments were merged: native scans, the format and streams give the same rows with the same metadata."""

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

SCHEMA = pa.schema([("id", pa.int64()), ("name", pa.string())])


@pytest.fixture
def ns(namespace: Namespace) -> Namespace:
    """Shared segments of three partitions, others of one, and a transaction of several segments."""
    namespace.create_topic("orders", SCHEMA, partitions=3, key="id")
    for number in range(8):
        rows(namespace, 9 * number)
        if number == 4:
            with namespace.begin() as txn:
                txn.produce("orders", [{"id": 1_000, "name": "one"}], partition=1)
                txn.flush()
                txn.produce("orders", [{"id": 1_001, "name": "two"}])
    return namespace


def rows(ns: Namespace, first: int, count: int = 9) -> int:
    made = [{"id": number, "name": f"n{number}"} for number in range(first, first + count)]
    return ns.produce("orders", made).version


def test_every_reader_gives_the_same_rows_at_every_version(spark: SparkSession, ns: Namespace) -> None:
    middle = ns.snapshot().version
    ns.alter_topic("orders", [("note", pa.string())])
    rows(ns, 500)
    newest = ns.snapshot().version
    path = path_of(ns, "orders")
    before = {version: ns.snapshot(version).read("orders", include_metadata=True) for version in (middle, newest)}
    done = ns.optimize("orders")
    assert done.written_segments == 3
    for version, expected in {**before, done.version: before[newest]}.items():
        assert_same_rows(read(spark, path, version), expected)
        assert_same_rows(spark_ext.read_topic(spark, path, version, include_metadata=True), expected)
    ends = ns.snapshot().end_offsets("orders")
    cut = {partition: (2, end - 1) for partition, end in ends.items()}
    expected = ns.snapshot().read("orders", offsets=cut, include_metadata=True)
    assert expected.num_rows < before[newest].num_rows
    assert_same_rows(spark_ext.read_topic(spark, path, offsets=cut, include_metadata=True), expected)
    wanted = spark.read.format("txnlog").option("filters", f'[["id", ">=", 500], ["_version", "<=", {newest}]]')
    assert sorted(row.id for row in wanted.load(path).collect()) == [*range(500, 509), 1_000, 1_001]


def read(spark: SparkSession, path: str, version: int) -> Any:
    return spark.read.format("txnlog").options(versionAsOf=str(version), includeMetadata="true").load(path)


def by_offset(found: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return sorted(found, key=lambda row: (row["_partition"], row["_offset"]))


def test_the_batches_of_a_stream_and_their_replays_hold_the_same_rows(ns: Namespace) -> None:
    plain = Run(ns, maxOffsetsPerTrigger=20)
    expected = [by_offset(batch) for batch in plain.batches()]
    assert len(expected) > 2
    run = Run(ns, maxOffsetsPerTrigger=20)
    found = [by_offset(run.batch() or [])]
    ns.optimize("orders")
    found += [by_offset(batch) for batch in run.batches()]
    assert found == expected, "a batch ends at the versions at which the rows came"
    replay = Run(ns, log=plain.log, maxOffsetsPerTrigger=20)
    for start, end, batch in zip(plain.log, plain.log[1:], expected, strict=False):
        assert by_offset(replay.rows(start, end)) == batch
    started = Run(ns, maxOffsetsPerTrigger=20)
    assert [by_offset(batch) for batch in started.batches()] == expected


def test_process_goes_on_over_a_merge(spark: SparkSession, ns: Namespace) -> None:
    seen: list[int] = []

    def handler(batch: Any, _txn: Any) -> None:
        seen.extend(row.id for row in batch.collect())
        ns.optimize("orders")

    options: dict[str, Any] = {"topics": ["orders"], "subscription": "billing", "max_rows": 30}
    spark_ext.process(spark, path_of(ns), handler=handler, **options)
    assert sorted(seen) == [*range(72), 1_000, 1_001]
    assert [item.behind_messages for item in ns.lag("orders", "billing")] == [0, 0, 0]
