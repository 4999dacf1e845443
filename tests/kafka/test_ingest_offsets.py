"""Offsets that are gone, went back or are new, and topics that are made again: what an ingestion does about them."""

from __future__ import annotations

import logging

import pytest

from tests.kafka.lake import COLUMNS, SCHEMA, Lake, lake
from txnlog.errors import InvalidInputError, OffsetOutOfRange, RetriableError

__all__ = ["lake"]  # a fixture

LOSSY = {"failOnDataLoss": "false"}


def with_messages_gone(lake: Lake) -> None:
    """The messages 0 to 9 are ingested, 10 to 14 are deleted by retention before that, 15 to 19 are there."""
    lake.cluster.create(lake.source)
    lake.cluster.produce(lake.source, range(10))
    lake.ingest()
    lake.cluster.produce(lake.source, range(10, 20))
    lake.cluster.delete_records(lake.source, 0, before=15)


def test_messages_that_retention_took_are_an_error_before_anything_is_written(lake: Lake) -> None:
    with_messages_gone(lake)
    version = lake.ns.snapshot().version
    with pytest.raises(OffsetOutOfRange, match=r"begins at offset 15, and the ingestion continues at 10") as caught:
        lake.start()
    assert "failOnDataLoss=false" in str(caught.value)
    assert lake.ns.snapshot().version == version


def test_a_loss_that_is_accepted_is_logged_and_the_rest_comes_once(
    lake: Lake, caplog: pytest.LogCaptureFixture
) -> None:
    with_messages_gone(lake)
    with caplog.at_level(logging.WARNING, "txnlog.spark"):
        lake.ingest(LOSSY)
    assert "begins at offset 15, and the ingestion continues at 10" in caplog.text
    lake.cluster.produce(lake.source, range(20, 25))
    lake.ingest()  # nothing is lost any more
    assert lake.ids() == [*range(10), *range(15, 25)]


@pytest.mark.parametrize("count", [3, 10, 30])
def test_a_kafka_topic_that_was_made_again_is_refused_until_the_ingestion_has_another_name(
    lake: Lake, count: int
) -> None:
    lake.cluster.create(lake.source)
    lake.cluster.produce(lake.source, range(10))
    lake.ingest()
    lake.cluster.delete(lake.source)
    lake.cluster.create(lake.source)
    lake.cluster.produce(lake.source, range(100, 100 + count))
    version = lake.ns.snapshot().version
    with pytest.raises(InvalidInputError, match="was deleted and created again") as caught:
        lake.start()
    assert f"end_ingestion(spark, path, 'kafka:orders', from_beginning=[{lake.source!r}])" in str(caught.value)
    assert lake.ns.snapshot().version == version
    lake.ingest(name="orders-2")
    assert lake.ids() == [*range(10), *range(100, 100 + count)]


def test_what_retention_took_of_messages_that_were_ingested_is_no_loss(lake: Lake) -> None:
    lake.cluster.create(lake.source)
    lake.cluster.produce(lake.source, range(20))
    lake.ingest()
    lake.cluster.delete_records(lake.source, 0, before=15)
    lake.cluster.produce(lake.source, range(20, 25))
    lake.ingest()
    assert lake.ids() == list(range(25))


def test_a_topic_that_the_rows_went_to_and_is_made_again_is_refused(lake: Lake) -> None:
    lake.cluster.create(lake.source)
    lake.cluster.produce(lake.source, range(10))
    lake.ingest()
    lake.ns.drop_topic("orders")
    lake.ns.create_topic("orders", SCHEMA)
    with pytest.raises(InvalidInputError, match="to the topic 'orders', which was dropped and created again"):
        lake.start()
    lake.ingest(name="again")
    assert lake.ids() == list(range(10))


def test_partitions_that_are_added_begin_with_their_first_message(lake: Lake) -> None:
    lake.cluster.create(lake.source)
    lake.cluster.produce(lake.source, range(10))
    lake.ingest({"startingOffsets": "latest"})
    lake.cluster.add_partitions(lake.source, 3)
    lake.cluster.produce(lake.source, range(10, 20), 1)
    lake.ingest({"startingOffsets": "latest"})
    lake.cluster.produce(lake.source, range(20, 30), 2)
    lake.ingest({"startingOffsets": "latest"})
    assert lake.ids() == list(range(10, 30))


def test_latest_is_where_the_first_run_began_also_if_it_found_nothing(lake: Lake) -> None:
    lake.cluster.create(lake.source)
    lake.cluster.produce(lake.source, range(10))
    lake.ingest({"startingOffsets": "latest"})
    lake.cluster.produce(lake.source, range(10, 20))
    lake.ingest({"startingOffsets": "latest"})
    assert lake.ids() == list(range(10, 20))


def test_offsets_to_begin_at_are_one_for_each_partition(lake: Lake) -> None:
    lake.cluster.create(lake.source, partitions=2)
    for partition in (0, 1):
        lake.cluster.produce(lake.source, range(10 * partition, 10 * partition + 10), partition)
    for text, why in (
        (f'{{"{lake.source}": {{"0": 5}}}}', "no offset for the partition 1"),
        (f'{{"{lake.source}": {{"0": 11, "1": 0}}}}', "has those from 0 to 10"),
    ):
        with pytest.raises(InvalidInputError, match=why):
            lake.start({"startingOffsets": text})
    lake.ingest({"startingOffsets": f'{{"{lake.source}": {{"0": 5, "1": -2}}}}'})
    assert lake.ids() == list(range(5, 20))


def test_a_topic_that_kafka_lacks_and_a_cluster_that_does_not_answer_are_errors_of_the_call(lake: Lake) -> None:
    with pytest.raises(InvalidInputError, match=f"Kafka has no topic '{lake.source}'"):
        lake.start()
    nowhere = {"kafka.bootstrap.servers": "127.0.0.1:9", "kafka.default.api.timeout.ms": "2000"}
    with pytest.raises(RetriableError, match="the Kafka cluster does not answer"):
        lake.start({**nowhere, "kafka.request.timeout.ms": "1000"})
    with pytest.raises(InvalidInputError, match="Kafka refuses") as caught:
        lake.start({"kafka.security.protocol": "none", "kafka.ssl.key.password": "hush"})
    assert "hush" not in str(caught.value)


def test_columns_that_do_not_fit_are_refused_before_anything_is_written(lake: Lake) -> None:
    lake.cluster.create(lake.source)
    lake.ns.create_topic("keyed", SCHEMA, key="id")
    version = lake.ns.snapshot().version
    for topic, columns, why in (
        ("keyed", {"offset": "offset"}, "has the key 'id', and no column of that name"),
        ("orders", {"ids": "1"}, "no column 'ids'|has no column.*ids"),
        ("orders", None, "no column 'value'"),
        ("orders", {**COLUMNS, "id": "value"}, "id"),
    ):
        with pytest.raises(InvalidInputError, match=why):
            lake.start(topic=topic, columns=columns)
    assert lake.ns.snapshot().version == version


def test_a_stricter_isolation_level_is_not_called_a_topic_that_was_made_again(lake: Lake) -> None:
    """With an open transaction in Kafka, of which ``read_uncommitted`` read messages already."""
    lake.cluster.create(lake.source)
    producer = lake.cluster._producer({"transactional.id": "open", "transaction.timeout.ms": "600000"})
    producer.initTransactions()
    producer.beginTransaction()
    lake.cluster._send(producer, lake.source, range(5), 0, {})
    producer.flush()
    try:
        lake.ingest({"kafka.isolation.level": "read_uncommitted"})
        assert lake.ids() == list(range(5))
        with pytest.raises(RetriableError, match="a transaction in Kafka is open") as caught:
            lake.ingest()
    finally:
        producer.commitTransaction()
        producer.close()
    assert "created again" not in str(caught.value)
    lake.ingest()  # the end of the transaction took an offset
    assert lake.ids() == list(range(5))


def test_a_run_that_began_at_latest_in_an_empty_topic_misses_nothing(lake: Lake) -> None:
    lake.cluster.create(lake.source, partitions=2)
    lake.ingest({"startingOffsets": "latest"})
    for partition in (0, 1):
        lake.cluster.produce(lake.source, range(10 * partition, 10 * partition + 10), partition)
    lake.ingest({"startingOffsets": "latest"})
    assert lake.ids() == list(range(20))


def test_messages_that_came_and_went_before_a_partition_had_a_row_are_an_error(lake: Lake) -> None:
    lake.cluster.create(lake.source, partitions=2)
    lake.cluster.produce(lake.source, range(10))
    lake.ingest()
    lake.cluster.produce(lake.source, range(10, 20), 1)
    lake.cluster.delete_records(lake.source, 1, before=5)
    with pytest.raises(OffsetOutOfRange, match=r"partition 1 .* begins at offset 5, and the ingestion continues at 0"):
        lake.start()
    lake.ingest(LOSSY)
    assert lake.ids() == [*range(10), *range(15, 20)]
