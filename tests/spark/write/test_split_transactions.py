"""A streaming read may take a transaction that is larger than ``maxOffsetsPerTrigger`` in several batches."""

from __future__ import annotations

import pyarrow as pa
import pytest

from spark_ext.streaming.source_plan import StreamPlan
from spark_ext.support.options import read_options
from tests.spark.runs import Options, Run
from txnlog.errors import InvalidInputError


@pytest.fixture
def path(namespace):
    """A topic of three partitions with one large transaction, then five small ones."""
    namespace.create_topic("orders", pa.schema([("id", pa.int64())]), partitions=3)
    with namespace.begin() as txn:
        for partition, rows in enumerate((700, 290, 10)):
            txn.produce("orders", [{"id": number} for number in range(rows)], partition)
    for number in range(5):
        namespace.produce("orders", [{"id": number}] * 10, partition=number % 3)
    return f"{namespace.root}/sales/orders"


def batches(path, limit, **options):
    """Rows by partition of each batch up to the end, as a query takes them."""
    given = {"path": path, "maxOffsetsPerTrigger": str(limit), **options}
    plan = StreamPlan(read_options(given, streaming=True), {}, None)
    position = plan.initial().to_dict()
    found = []
    while (end := plan.latest(position, limit)) != position:
        before, after = (item["offsets"]["orders"] for item in (position, end))
        found.append([after[partition] - before[partition] for partition in sorted(after)])
        position = end
    return found


def test_a_batch_never_holds_half_a_transaction_by_default(path):
    assert batches(path, 100)[0] == [700, 290, 10]


def test_a_large_transaction_is_split_if_that_is_asked_for(path):
    found = batches(path, 100, splitTransactions="true")
    assert [sum(rows) for rows in found] == [100] * 10 + [50]
    assert [sum(rows) for rows in zip(*found, strict=True)] == [720, 310, 20]


def test_every_batch_takes_its_share_of_every_partition(path):
    found = batches(path, 100, splitTransactions="true")
    assert all(rows[0] in range(68, 73) and rows[1] in range(27, 32) for rows in found[:9])


def test_what_is_left_of_a_split_transaction_shares_a_batch_with_the_next_ones(path):
    assert [sum(rows) for rows in batches(path, 300, splitTransactions="true")] == [300, 300, 300, 150]


def test_transactions_below_the_limit_are_not_split(path):
    assert [sum(rows) for rows in batches(path, 1015, splitTransactions="true")] == [1010, 40]
    assert batches(path, 1015, splitTransactions="true") == batches(path, 1015)


@pytest.mark.parametrize("limit", [1, 2, 3, 7])
def test_a_batch_comes_forward_whatever_the_limit(path, limit):
    found = batches(path, limit, splitTransactions="true")
    assert max(sum(rows) for rows in found) <= max(limit, 10)
    assert sum(map(sum, found)) == 1050


@pytest.mark.usefixtures("path")
def test_a_batch_is_the_same_when_it_is_planned_again(namespace):
    """By another run, which finds more rows than there were."""
    options: Options = {"maxOffsetsPerTrigger": 77, "splitTransactions": "true"}
    first = Run(namespace, **options)
    found = first.batches()
    assert [len(rows) for rows in found] == [77] * 12 + [76, 50]
    places = [(row["_partition"], row["_offset"]) for rows in found for row in rows]
    assert sorted(places) == sorted({*places})
    for _ in range(2):
        for number, rows in enumerate(found):
            # The checkpoint of a run that died in this batch, with and without the batch's end.
            replay = Run(namespace, log=first.log[: number + 2], **options)
            assert replay.rows(*replay.log[-2:]) == rows
            again = Run(namespace, log=first.log[: number + 1], **options)
            assert again.batch() == rows
        namespace.produce("orders", [{"id": number} for number in range(500)], partition=1)


def test_splitting_without_a_limit_is_refused(path):
    with pytest.raises(InvalidInputError, match="needs 'maxOffsetsPerTrigger'"):
        read_options({"path": path, "splitTransactions": "true"}, streaming=True)
