"""Attacks on the ingestion that need Kafka itself: each test fails where the ingestion is at fault."""

from __future__ import annotations

import shutil
from typing import Any

import pytest
from pyspark.errors import StreamingQueryException

from spark_ext.ingest import ingest_kafka as module
from spark_ext.ingest import kafka_options
from spark_ext.ingest.kafka_cluster import Bounds, KafkaCluster
from spark_ext.ingest.positions import Part
from tests.kafka.lake import Lake, lake
from txnlog.errors import TxnLogError

__all__ = ["lake"]  # a fixture

RUNNING = {"processingTime": "100 milliseconds"}
SECRET = "hush-hush"


def test_an_old_copy_of_the_checkpoint_is_gone_on_with_where_retention_took_what_was_ingested(lake: Lake) -> None:
    """LIES. "With its old checkpoint, an older copy of it": the log is at 20, Kafka begins at 15, the copy is at 10."""
    lake.cluster.create(lake.source)
    lake.cluster.produce(lake.source, range(10))
    lake.ingest()
    copy = shutil.copytree(lake.checkpoint, lake.checkpoint.with_name("copy"))
    lake.cluster.produce(lake.source, range(10, 20))
    lake.ingest()
    lake.cluster.delete_records(lake.source, 0, before=15)  # all of it was ingested
    lake.cluster.produce(lake.source, range(20, 25))
    lake.ingest(checkpoint=str(copy))
    assert lake.ids() == list(range(25))


def test_a_topic_of_which_retention_took_something_can_be_added_to_an_ingestion(lake: Lake) -> None:
    """LIES, FENCES. ``subscribe`` gets one more topic, the checkpoint stays: nothing of what is to come is lost."""
    other = f"{lake.source}-other"
    lake.cluster.create(lake.source)
    lake.cluster.create(other)
    lake.cluster.produce(lake.source, range(10))
    lake.ingest()
    lake.cluster.produce(other, range(100, 110))
    lake.cluster.delete_records(other, 0, before=5)
    lake.ingest(subscribe=[lake.source, other])
    assert lake.ids() == [*range(10), *range(105, 110)]


def test_a_topic_can_be_taken_out_of_an_ingestion(lake: Lake) -> None:
    """LIES. ``subscribe`` gets one topic less, the checkpoint stays: nobody lost anything."""
    other = f"{lake.source}-other"
    lake.cluster.create(lake.source)
    lake.cluster.create(other)
    lake.cluster.produce(lake.source, range(10))
    lake.cluster.produce(other, range(100, 110))
    lake.ingest(subscribe=[lake.source, other])
    lake.cluster.produce(lake.source, range(10, 20))
    lake.ingest()
    assert lake.ids() == [*range(20), *range(100, 110)]


def test_the_error_of_a_query_has_no_password(lake: Lake) -> None:
    """LEAKS. A value does not fit; the driver's log has the exception as Java shows it, with the plan."""
    lake.cluster.create(lake.source)
    lake.cluster.produce(lake.source, ["no number"])
    query = lake.start({"kafka.ssl.key.password": SECRET, "kafka.ssl.keystore.key": SECRET})
    with pytest.raises(StreamingQueryException) as caught:
        query.awaitTermination()
    shown = str(query._jsq.exception().get().toString())
    plan = str(query._jsq.explainInternal(True))
    assert "no number" in str(caught.value) or "Plan" in shown
    assert SECRET not in str(caught.value) + shown + plan + repr(query.lastProgress) + repr(query.status)


REFUSED_BY_THE_QUERY: list[dict[str, str]] = [
    {"failOnDataLoss": " false "},
    {"maxOffsetsPerTrigger": "9999999999999999999"},
    {"minOffsetsPerTrigger": "10", "maxOffsetsPerTrigger": "5"},
    {"kafka.interceptor.classes": "com.example.Nope"},
]


@pytest.mark.parametrize("options", REFUSED_BY_THE_QUERY, ids=str)
def test_an_option_that_nobody_takes_fences_no_run(lake: Lake, options: dict[str, Any]) -> None:
    """FENCES. A second call has an option that Spark or Kafka refuses, and Spark says so in the query alone."""
    lake.cluster.create(lake.source)
    lake.cluster.produce(lake.source, range(3))
    older = lake.start(trigger=RUNNING)
    older.processAllAvailable()
    refused = ""
    try:
        lake.ingest(options, checkpoint=f"{lake.checkpoint}-2")
    except (TxnLogError, StreamingQueryException) as error:
        refused = f"{type(error).__name__}: {error}"[:300]
    lake.cluster.produce(lake.source, range(3, 6))
    if refused:
        print(refused)
        older.processAllAvailable()
    else:  # it is an option that is taken
        lake.ingest(options, checkpoint=f"{lake.checkpoint}-2")
    assert lake.ids() == list(range(6))


def test_a_client_is_not_closed_while_another_ingestion_asks_with_it(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    """LIES. Nine ingestions in a driver, each with a ``kafka.client.id`` of its own: a healthy one ends."""
    lake.cluster.create(lake.source)
    first, *others = (
        KafkaCluster(lake.spark, {**lake.cluster.options, "kafka.client.id": f"client-{number}"}) for number in range(9)
    )
    offsets = KafkaCluster._offsets

    def meanwhile(own: KafkaCluster, *given: Any) -> Any:
        found = offsets(own, *given)
        if own is first and "earliest" in given:
            for other in others:
                other.ids([lake.source])  # in threads of their own
        return found

    monkeypatch.setattr(KafkaCluster, "_offsets", meanwhile)
    part = Part(lake.source, 0)
    assert first.bounds([part]) == {part: Bounds(0, 0)}


def test_a_partition_that_is_added_while_a_new_run_starts_ends_it_not(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    """FENCES. Behind the look at Kafka, and before Spark's own: the query has an offset for each partition but one."""
    lake.cluster.create(lake.source)
    lake.cluster.produce(lake.source, range(3))
    older = lake.start(trigger=RUNNING)
    older.processAllAvailable()
    text = kafka_options.offsets_text

    def meanwhile(*given: Any) -> str:
        lake.cluster.add_partitions(lake.source, 2)
        lake.cluster.produce(lake.source, range(3, 6), 1)
        return text(*given)

    monkeypatch.setattr(module, "offsets_text", meanwhile)
    lake.ingest(checkpoint=f"{lake.checkpoint}-2")
    assert lake.ids() == list(range(6))


@pytest.mark.parametrize("options", [{}, {"failOnDataLoss": "false"}], ids=["strict", "lossy"])
def test_a_batch_that_a_driver_of_before_planned_in_the_new_checkpoint_is_no_loss_of_kafkas(
    lake: Lake, options: dict[str, str]
) -> None:
    """LIES, DOUBLES. The story of the same name in tests/spark/ingest."""
    lake.cluster.create(lake.source)
    for first in (0, 3):
        lake.cluster.produce(lake.source, range(first, first + 3))
        lake.ingest(options)
    offsets = lake.checkpoint / "offsets"
    shutil.copy(offsets / "0", offsets / "2")
    lake.cluster.produce(lake.source, range(6, 9))
    with pytest.raises(StreamingQueryException) as caught:
        lake.ingest(options)
    lines = [line for line in str(caught.value).splitlines() if "lost" in line or "OffsetOutOfRange" in line]
    assert not lines
