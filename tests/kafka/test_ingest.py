"""``spark_ext.ingest_kafka`` against a real broker: each message comes once, whatever happens to the query."""

from __future__ import annotations

import contextlib
from typing import Any

import pytest
from pyspark.errors import StreamingQueryException

from spark_ext.ingest import ingest_kafka as module
from spark_ext.ingest import offset_json
from tests.kafka.lake import Lake, lake

__all__ = ["lake"]  # a fixture

RUNNING = {"processingTime": "100 milliseconds"}


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


def test_a_restart_reads_nothing_that_the_log_has(lake: Lake) -> None:
    lake.cluster.create(lake.source, partitions=2)
    lake.cluster.produce(lake.source, range(10), 0)
    lake.ingest()
    lake.cluster.produce(lake.source, range(10, 20), 0)
    lake.cluster.produce(lake.source, range(20, 30), 1)
    query = lake.ingest()
    assert lake.ids() == list(range(30))
    assert sum(item["numInputRows"] for item in query.recentProgress) == 20, "what the log has is not even read"


def test_transactions_of_kafka_leave_offsets_without_messages(lake: Lake) -> None:
    lake.cluster.create(lake.source)
    lake.cluster.transact(lake.source, range(5))
    lake.cluster.transact(lake.source, range(100, 105), commits=False)
    lake.cluster.transact(lake.source, range(5, 10))
    lake.ingest()
    lake.cluster.transact(lake.source, range(10, 15))
    lake.ingest()
    assert lake.ids() == list(range(15)), "what Kafka aborted does not come"


def test_topics_come_and_go(lake: Lake) -> None:
    """``subscribe`` gets one more, of which retention took something, and later one less: nobody lost anything."""
    other = f"{lake.source}-other"
    lake.cluster.create(lake.source)
    lake.cluster.create(other)
    lake.cluster.produce(lake.source, range(10))
    lake.ingest()
    lake.cluster.produce(other, range(100, 110))
    lake.cluster.delete_records(other, 0, before=5)
    lake.ingest(subscribe=[lake.source, other])
    assert lake.ids() == [*range(10), *range(105, 110)]
    lake.cluster.produce(lake.source, range(10, 20))
    lake.ingest()
    assert lake.ids() == [*range(20), *range(105, 110)]


def test_a_partition_that_is_added_while_a_new_run_starts_ends_it_not(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Behind the look at Kafka, and before Spark's own: the query has an offset for each partition but one."""
    lake.cluster.create(lake.source)
    lake.cluster.produce(lake.source, range(3))
    older = lake.start(trigger=RUNNING)
    older.processAllAvailable()
    text = offset_json.offsets_text

    def meanwhile(*given: Any) -> str:
        lake.cluster.add_partitions(lake.source, 2)
        lake.cluster.produce(lake.source, range(3, 6), 1)
        return text(*given)

    monkeypatch.setattr(module, "offsets_text", meanwhile)
    lake.ingest()
    assert lake.ids() == list(range(6))


@pytest.mark.parametrize("options", [{}, {"failOnDataLoss": "false"}], ids=["strict", "lossy"])
def test_a_run_that_begins_while_an_older_one_still_plans_batches_loses_and_doubles_nothing(
    lake: Lake, options: dict[str, str]
) -> None:
    """Neither reads what the other one plans."""
    lake.cluster.create(lake.source)
    lake.cluster.produce(lake.source, range(3))
    older = lake.start(options, trigger=RUNNING)
    older.processAllAvailable()
    newer = lake.start(options, trigger=RUNNING)
    for first in range(3, 15, 3):
        lake.cluster.produce(lake.source, range(first, first + 3))
        with contextlib.suppress(StreamingQueryException):  # one of them ends
            older.processAllAvailable()
        with contextlib.suppress(StreamingQueryException):
            newer.processAllAvailable()
    ended = [query.exception() for query in (older, newer) if query.exception() is not None]
    assert len(ended) <= 1
    assert all("ProducerFenced" in str(error) for error in ended)
    assert lake.ids() == list(range(15))
