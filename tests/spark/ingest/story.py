"""What the tests of ingestion without a broker share: recorded messages, and the topic that gets them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

import spark_ext
from spark_ext.ingest import ingest_kafka as module
from tests.spark.ingest.recorded_kafka import FILE, RecordedCluster, RecordedKafka, Recording
from txnlog.api.internals import connection_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from txnlog.api.namespace import Namespace
    from txnlog.fold.state import StreamRecord

RUNNING = {"processingTime": "100 milliseconds"}
"""A trigger of a query that runs on."""

SCHEMA = pa.schema([("id", pa.int64()), ("partition", pa.int32()), ("offset", pa.int64())])
COLUMNS = {"id": "cast(cast(value AS string) AS bigint)", "partition": "partition", "offset": "offset"}


@dataclass
class Story:
    """Recorded messages of the Kafka topic ``source``, and the topic ``orders`` that gets them."""

    spark: SparkSession
    ns: Namespace
    folder: Path
    messages: list[list[int | None]] = field(default_factory=lambda: [[], []])

    @property
    def recording(self) -> Recording:
        return Recording(self.folder / "recording.json")

    def produce(self, partition: int, *messages: int | None, number: str = "id-1") -> None:
        self.messages[partition].extend(messages)
        self.recording.write("source", number, self.messages)

    def start(self, **given: Any) -> Any:
        options = {
            "kafka.bootstrap.servers": "nowhere:9092",
            FILE: str(self.recording.file),
            **given.pop("options", {}),
        }
        arguments = {"subscribe": "source", "topic": "orders", "columns": COLUMNS, "trigger": {"availableNow": True}}
        return spark_ext.ingest_kafka(
            self.spark,
            f"{self.ns.root}/{self.ns.name}",
            options=options,
            **{**arguments, **given},
        )

    def ingest(self, **given: Any) -> None:
        self.start(**given).awaitTermination()

    def take_place(self, patch: pytest.MonkeyPatch) -> None:
        """Of Kafka and its source."""
        patch.setattr(module, "_SOURCE", RecordedKafka.name())
        patch.setattr(module, "KafkaCluster", RecordedCluster)
        patch.setattr(module, "check_source", lambda _: None)

    def stream(self, partition: int, name: str = "kafka:orders") -> StreamRecord:
        """What the log knows of a partition."""
        self.ns.snapshot()  # reads the log
        record = connection_of(self.ns).stream(f"{name}/source/{partition}")
        assert record is not None
        return record

    def ids(self) -> list[int]:
        return sorted(self.ns.snapshot().read("orders").column("id").to_pylist())


@pytest.fixture
def story(
    spark: SparkSession, namespace: Namespace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Story]:
    namespace.create_topic("orders", SCHEMA, partitions=2)
    spark.dataSource.register(RecordedKafka)
    made = Story(spark, namespace, tmp_path)
    made.take_place(monkeypatch)
    yield made
    for query in spark.streams.active:
        query.stop()


__all__ = ["COLUMNS", "RUNNING", "SCHEMA", "Story", "story"]
