"""How messages of Kafka become rows: columns, headers, several topics; and who may be at work."""

from __future__ import annotations

import threading
import time
from typing import Any

import pyarrow as pa
import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import functions as F  # noqa: N812 - as everybody writes it

from spark_ext.ingest.kafka_batches import KafkaBatches
from tests.kafka.lake import COLUMNS, SCHEMA, Lake, lake

__all__ = ["lake"]  # a fixture


def test_a_topic_without_a_schema_gets_key_value_and_headers(lake: Lake) -> None:
    lake.cluster.create(lake.source)
    lake.cluster.produce(lake.source, [1], trace="a")
    lake.cluster.produce(lake.source, [2])
    lake.ns.create_topic("raw")
    lake.ingest(topic="raw", columns=None)
    rows = lake.ns.snapshot().read("raw").to_pylist()
    assert rows == [
        {"key": b"1", "value": b"1", "headers": [("trace", b"a")]},
        {"key": b"2", "value": b"2", "headers": None},
    ]


def test_columns_of_kafkas_names_come_by_themselves(lake: Lake) -> None:
    lake.cluster.create(lake.source)
    lake.cluster.produce(lake.source, [1])
    fields = [
        ("value", pa.binary()),
        ("offset", pa.int64()),
        ("timestamp", pa.timestamp("us", "UTC")),
        ("more", pa.int8()),
    ]
    lake.ns.create_topic("raw", pa.schema(fields))
    lake.ingest(topic="raw", columns=None)
    (row,) = lake.ns.snapshot().read("raw").to_pylist()
    assert (row["value"], row["offset"], row["more"]) == (b"1", 0, None)
    assert abs(row["timestamp"].timestamp() - time.time()) < 600


def test_several_topics_of_kafka_go_where_an_expression_says(lake: Lake) -> None:
    sources = [lake.source, f"{lake.source}-b"]
    for first, source in enumerate(sources):
        lake.cluster.create(source, partitions=2)
        for partition in (0, 1):
            lake.cluster.produce(source, range(100 * first + partition, 100 * first + 20, 2), partition)
    for topic in ("low", "high"):
        lake.ns.create_topic(topic, SCHEMA, key="id", partitions=2)
    by = F.when(F.col("topic") == sources[0], "low").otherwise("high")
    given: dict[str, Any] = {"topic": None, "topic_by": by, "subscribe": sources, "name": "both"}
    lake.ingest({"maxOffsetsPerTrigger": "17"}, **given)
    lake.ingest(**given)
    assert (lake.ids("low"), lake.ids("high")) == (list(range(20)), list(range(100, 120)))


def test_messages_that_are_left_out_count_as_ingested(lake: Lake) -> None:
    lake.cluster.create(lake.source)
    lake.cluster.produce(lake.source, range(10))
    lake.ingest(where="offset < 3")
    assert (lake.ids(), lake.position()) == ([0, 1, 2], 10)
    lake.ingest()
    assert lake.ids() == [0, 1, 2]


def test_a_value_that_fits_no_column_fails_the_batch_and_nothing_of_it_is_there(lake: Lake) -> None:
    lake.ns.create_topic("strict", pa.schema([pa.field("id", pa.int64(), nullable=False)]))
    lake.cluster.create(lake.source)
    lake.cluster.produce(lake.source, ["1", "2"])
    lake.cluster.produce(lake.source, ["none"])
    query = lake.start(topic="strict", columns={"id": "try_cast(cast(value AS string) AS bigint)"})
    with pytest.raises(StreamingQueryException, match=r"SchemaMismatch: [^\n]*'?id"):
        query.awaitTermination()
    assert lake.ids("strict") == []
    lake.ingest(topic="strict", columns={"id": "try_cast(cast(value AS string) AS bigint)"}, where="value <> 'none'")
    assert lake.ids("strict") == [1, 2]


def test_a_newer_run_takes_over_and_the_older_one_cannot_commit_any_more(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake.cluster.create(lake.source)
    lake.cluster.produce(lake.source, range(10))
    older = lake.start(trigger={"processingTime": "100 milliseconds"})
    older.processAllAvailable()
    older_id = older.id
    with monkeypatch.context() as patch:
        run = KafkaBatches._run

        def later(batches: KafkaBatches, *given: Any) -> None:
            if batches.query is not None and batches.query.id == older_id:
                assert taken.wait(120)
            run(batches, *given)

        taken = threading.Event()
        patch.setattr(KafkaBatches, "_run", later)
        lake.cluster.produce(lake.source, range(10, 20))
        lake.ingest()
        taken.set()
        with pytest.raises(StreamingQueryException, match="ProducerFenced"):
            older.awaitTermination(60)
    assert lake.ids() == list(range(20))


def test_a_topic_that_is_made_again_while_a_query_runs_ends_it(lake: Lake) -> None:
    lake.cluster.create(lake.source)
    lake.cluster.produce(lake.source, range(10))
    query = lake.start(trigger={"processingTime": "1 second"}, columns=COLUMNS)
    query.processAllAvailable()
    lake.cluster.delete(lake.source)
    lake.cluster.create(lake.source)
    lake.cluster.produce(lake.source, range(100, 130))
    with pytest.raises(StreamingQueryException, match=r"was deleted and created again|some data may have been missed"):
        query.awaitTermination(60)
    assert lake.ids() == list(range(10))


@pytest.mark.parametrize(
    "options",
    [
        {"minPartitions": "7"},
        {"maxRecordsPerPartition": "3"},
        {"minPartitions": "9", "maxRecordsPerPartition": "4"},
    ],
    ids=str,
)
def test_partitions_that_are_split_keep_their_order(lake: Lake, options: dict[str, str]) -> None:
    lake.cluster.create(lake.source, partitions=3)
    for partition in range(3):
        lake.cluster.produce(lake.source, range(partition, 60, 3), partition)
    lake.ingest(options)
    assert lake.ids() == list(range(60))
    assert lake.in_order()
