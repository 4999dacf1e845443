"""Ranges of offsets, read by the format."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from txnlog.format.actions import DeleteRecords
from txnlog.log.commands import Simple

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from txnlog.api.namespace import Namespace
from tests.spark.reads import ORDERS, ids, lake, load, orders, refused, same

__all__ = ["lake"]  # fixtures


@pytest.mark.parametrize(
    ("start", "end"),
    [
        ({0: 0, 1: 0, 2: 0}, None),
        ({0: 3, 1: 5, 2: -2}, None),
        (None, {0: 4, 1: -1, 2: 0}),
        ({0: 2, 1: -2, 2: 1}, {0: 3, 1: 7, 2: -1}),
    ],
)
def test_a_range_of_offsets_gives_its_rows_and_no_others(
    spark: SparkSession, lake: Any, start: dict[int, int] | None, end: dict[int, int] | None
) -> None:
    ends = lake.ns.snapshot().end_offsets("orders")
    options: dict[str, Any] = {"includeMetadata": "true", "minPartitions": "4"}
    low, high = dict.fromkeys(ends, 0), dict(ends)
    if start is not None:
        options["startingOffsets"] = json.dumps({"orders": start})
        low = {p: max(0, offset) for p, offset in start.items()}
    if end is not None:
        options["endingOffsets"] = json.dumps({"orders": end})
        high = {p: ends[p] if offset == -1 else offset for p, offset in end.items()}
    wanted = {p: (low[p], high[p]) for p in ends}
    table = lake.ns.snapshot().read("orders", offsets=wanted, include_metadata=True)
    assert table.num_rows == sum(last - first for first, last in wanted.values())
    assert same(load(spark, lake.ns, "orders", **options), table)


def test_offsets_of_several_topics_and_of_an_old_version(spark: SparkSession, lake: Any) -> None:
    found = load(
        spark,
        lake.ns,
        subscribe="orders,audit",
        includeMetadata="true",
        versionAsOf=lake.versions[1],
        startingOffsets='{"orders": {"0": -2, "1": 0, "2": 0}, "audit": {"0": 1, "1": 0}}',
        endingOffsets='{"orders": {"0": 0, "1": 0, "2": 0}, "audit": {"0": -1, "1": -1}}',
    ).collect()
    assert [(row["_topic"], row["id"], row["_partition"], row["_offset"]) for row in found] == [("audit", 8, 1, 0)]
    everything = load(spark, lake.ns, "audit", startingOffsets="earliest", endingOffsets="latest")
    assert ids(everything) == [0, 8, 16, 24, 32]


@pytest.mark.some(4)
@pytest.mark.parametrize(
    ("options", "kind", "problem"),
    [
        (
            {"startingOffsets": "latest"},
            "InvalidInputError",
            r"'latest' \(-1\): a batch that begins behind all .*it out",
        ),
        (
            {"startingOffsets": '{"audit": {"0": -1, "1": 0}}'},
            "InvalidInputError",
            r"has 'latest' \(-1\): .* reads none \(leave",
        ),
        (
            {"endingOffsets": "earliest"},
            "InvalidInputError",
            r"'earliest' \(-2\): a batch that ends before all .*it out",
        ),
        (
            {"endingOffsets": '{"audit": {"0": -2, "1": 0}}'},
            "InvalidInputError",
            r"has 'earliest' \(-2\): .* reads none \(leave",
        ),
        ({"startingOffsets": '{"audit": {"0": 0}}'}, "InvalidInputError", r"leaves out partition 1.*partitions 0 to 1"),
        ({"endingOffsets": '{"audit": {"0": 0, "1": 0, "2": 0}}'}, "InvalidInputError", r"names partition 2 of the"),
        ({"startingOffsets": '{"audits": {"0": 0}}'}, "InvalidInputError", r"names the topic 'audits', which is not"),
        ({"endingOffsets": '{"audit": {"0": 4, "1": 0}}'}, "OffsetOutOfRange", r"holds offsets 0 to 3; 0 to 4 were"),
        (
            {"startingOffsets": '{"audit": {"0": 3, "1": 0}}', "endingOffsets": '{"audit": {"0": 2, "1": 0}}'},
            "OffsetOutOfRange",
            r"the start 3 is beyond the end 2 .give a start of at most 2, or an end of at least 3",
        ),
        (
            {"startingOffsets": "earliest", "isolationLevel": "read_uncommitted"},
            "InvalidInputError",
            r"'startingOffsets' needs read_committed",
        ),
    ],
)
def test_offsets_that_are_not_there_or_make_no_sense_are_refused(
    spark: SparkSession, lake: Any, options: dict[str, str], kind: str, problem: str
) -> None:
    with refused(kind, problem) as told:
        load(spark, lake.ns, "audit", **options).collect()
    assert "written" not in str(told.value), "it only reads"


def test_offsets_that_were_deleted_are_an_error_unless_data_loss_is_accepted(
    spark: SparkSession, namespace: Namespace
) -> None:
    namespace.create_topic("orders", ORDERS, partitions=2)
    for partition in (0, 1):
        namespace.produce("orders", orders(*range(10 * partition, 10 * partition + 6)), partition=partition)
    namespace._connection.appender.call(
        Simple(
            lambda _draft, _at: [DeleteRecords(namespace._connection.topic_record("orders").id, ((0, 4),))],
            lambda *_: None,
        )
    )
    left = [4, 5, 10, 11, 12, 13, 14, 15]
    assert ids(load(spark, namespace, "orders")) == left
    asked = {"startingOffsets": '{"orders": {"0": 1, "1": 2}}', "endingOffsets": '{"orders": {"0": 5, "1": 9}}'}
    with refused("OffsetOutOfRange", r"holds offsets 4 to 6; 1 to 5 were requested \(.*failOnDataLoss"):
        load(spark, namespace, "orders", **asked).collect()
    assert ids(load(spark, namespace, "orders", failOnDataLoss="false", **asked)) == [4, 12, 13, 14, 15]
