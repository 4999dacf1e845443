"""``spark_ext.ingest_kafka`` against a real broker: each message comes once, whatever happens to the query."""

from __future__ import annotations

import pytest

from tests.kafka.lake import Lake, lake

__all__ = ["lake"]  # a fixture


def test_messages_of_all_partitions_come_once_and_in_their_order(lake: Lake) -> None:
    lake.cluster.create(lake.source, partitions=4)
    for partition in range(3):
        lake.cluster.produce(lake.source, range(partition, 60, 3), partition)
    lake.ingest({"maxOffsetsPerTrigger": "25"})
    assert lake.ids() == list(range(60))
    assert lake.in_order()
    assert [lake.position(number) for number in range(4)] == [20, 20, 20, 0]


def test_a_restart_continues_behind_the_last_message(lake: Lake) -> None:
    lake.cluster.create(lake.source)
    lake.cluster.produce(lake.source, range(10))
    lake.ingest()
    lake.cluster.produce(lake.source, range(10, 20))
    lake.ingest()
    assert lake.ids() == list(range(20))
    assert lake.in_order()


def test_a_lost_checkpoint_doubles_and_loses_nothing(lake: Lake) -> None:
    lake.cluster.create(lake.source, partitions=2)
    lake.cluster.produce(lake.source, range(10), 0)
    lake.ingest()
    lake.lose_checkpoint()
    lake.cluster.produce(lake.source, range(10, 20), 0)
    lake.cluster.produce(lake.source, range(20, 30), 1)
    query = lake.ingest()
    assert lake.ids() == list(range(30))
    assert sum(item["numInputRows"] for item in query.recentProgress) == 20, "what the log has is not even read"


def test_an_old_copy_of_the_checkpoint_doubles_and_loses_nothing(lake: Lake) -> None:
    lake.cluster.create(lake.source)
    lake.cluster.produce(lake.source, range(10))
    lake.ingest()
    copy = lake.checkpoint.rename(lake.checkpoint.with_name("copy"))
    lake.cluster.produce(lake.source, range(10, 20))
    lake.ingest()
    lake.lose_checkpoint()
    copy.rename(lake.checkpoint)
    lake.cluster.produce(lake.source, range(20, 30))
    lake.ingest({"maxOffsetsPerTrigger": "7"})
    assert lake.ids() == list(range(30))
    assert lake.in_order()


@pytest.mark.parametrize("lost", [True, False])
def test_transactions_of_kafka_leave_offsets_without_messages(lake: Lake, lost: bool) -> None:
    lake.cluster.create(lake.source)
    lake.cluster.transact(lake.source, range(5))
    lake.cluster.transact(lake.source, range(100, 105), commits=False)
    lake.cluster.transact(lake.source, range(5, 10))
    lake.ingest()
    if lost:
        lake.lose_checkpoint()
    lake.cluster.transact(lake.source, range(10, 15))
    lake.ingest()
    assert lake.ids() == list(range(15)), "what Kafka aborted does not come"
