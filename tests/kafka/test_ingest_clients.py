"""Kafka's clients of an ingestion: which settings they get, and when they are closed."""

from __future__ import annotations

import socket
import threading
import time
from typing import TYPE_CHECKING, Any

import pytest

import spark_ext
from spark_ext.ingest import kafka_cluster
from spark_ext.ingest.kafka_cluster import Bounds, KafkaCluster
from spark_ext.ingest.positions import TopicPartition
from tests.kafka.lake import COLUMNS, SCHEMA, Lake, lake
from txnlog.errors import InvalidInputError, RetriableError

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

    from txnlog.api.namespace import Namespace

__all__ = ["lake"]  # a fixture


def test_settings_may_come_from_a_config_provider_as_for_sparks_source(lake: Lake, tmp_path: Path) -> None:
    """Kafka's own way to keep secrets out of options: here the servers, as a password needs a broker that asks."""
    lake.cluster.create(lake.source)
    lake.cluster.produce(lake.source, [1, 2])
    secrets = tmp_path / "secrets.properties"
    secrets.write_text(f"servers={lake.cluster.address}\n", encoding="utf-8")
    options = {
        "kafka.bootstrap.servers": f"${{file:{secrets}:servers}}",
        "kafka.config.providers": "file",
        "kafka.config.providers.file.class": "org.apache.kafka.common.config.provider.FileConfigProvider",
    }
    frame = lake.spark.read.format("kafka").options(**options).option("subscribe", lake.source).load()
    assert frame.count() == 2, "Spark's source takes them"
    lake.ingest(options)
    assert lake.ids() == [1, 2]
    with pytest.raises(InvalidInputError, match=r"max\.poll\.records"):
        lake.start({**options, "kafka.max.poll.records": f"${{file:{secrets}:servers}}"})


def test_a_call_that_is_refused_leaves_no_client_that_knocks_on(spark: SparkSession, namespace: Namespace) -> None:
    """A server that ends each connection, as one does that is not Kafka, or refuses a password."""
    namespace.create_topic("orders", SCHEMA)
    came: list[float] = []
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve() -> None:
            while True:
                try:
                    connection, _ = server.accept()
                except OSError:
                    return
                came.append(time.monotonic())
                connection.close()

        threading.Thread(target=serve, daemon=True).start()
        with pytest.raises(RetriableError):
            spark_ext.ingest_kafka(
                spark,
                f"{namespace.root}/{namespace.name}",
                subscribe="orders",
                topic="orders",
                columns=COLUMNS,
                options={
                    "kafka.bootstrap.servers": f"127.0.0.1:{server.getsockname()[1]}",
                    "kafka.request.timeout.ms": "1000",
                    "kafka.default.api.timeout.ms": "2000",
                },
            )
        time.sleep(3)  # what was under way has ended
        before = len(came)
        time.sleep(10)
        later = len(came) - before
    assert before
    assert later == 0


def test_a_client_is_not_closed_while_another_ingestion_asks_with_it(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nine ingestions in a driver, each with a ``kafka.client.id`` of its own."""
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
    part = TopicPartition(lake.source, 0)
    assert first.bounds([part]) == {part: Bounds(0, 0)}
    assert len(kafka_cluster._idle) <= kafka_cluster._MOST_CLIENTS
