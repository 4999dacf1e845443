"""What the tests of ingestion share: a namespace whose topic gets the messages of a Kafka topic of their own."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
import pytest

import spark_ext
from txnlog.api.internals import connection_of

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

    from tests.kafka.session import Cluster
    from txnlog.api.namespace import Namespace

SCHEMA: Final = pa.schema([("id", pa.int64()), ("partition", pa.int32()), ("offset", pa.int64())])
COLUMNS: Final = {"id": "cast(cast(value AS string) AS bigint)", "partition": "partition", "offset": "offset"}

_numbers: Final = itertools.count()


@dataclass
class Lake:
    """A namespace with the topic ``orders``, for the Kafka topic ``source``, which has not been created."""

    spark: SparkSession
    cluster: Cluster
    ns: Namespace
    folder: Path
    source: str = field(default_factory=lambda: f"orders-{next(_numbers)}")

    @property
    def path(self) -> str:
        return f"{self.ns.root}/{self.ns.name}"

    def start(self, options: Mapping[str, str] | None = None, **given: Any) -> Any:
        """Start an ingestion of all that is there."""
        arguments = {
            "subscribe": self.source,
            "topic": "orders",
            "columns": COLUMNS,
            "trigger": {"availableNow": True},
            **given,
        }
        return spark_ext.ingest_kafka(
            self.spark, self.path, options={**self.cluster.options, **(options or {})}, **arguments
        )

    def ingest(self, options: Mapping[str, str] | None = None, **given: Any) -> Any:
        """Ingest all that is there; returns the query."""
        query = self.start(options, **given)
        query.awaitTermination()
        return query

    def ids(self, topic: str = "orders") -> list[int]:
        """The ids in the topic, sorted."""
        return sorted(self.ns.snapshot().read(topic).column("id").to_pylist())

    def in_order(self) -> bool:
        """Whether the messages of each partition of Kafka are in one of the topic, in their order."""
        table = self.ns.snapshot().read("orders", include_metadata=True)
        rows = sorted(table.to_pylist(), key=lambda row: (row["_partition"], row["_offset"]))
        for number in {row["partition"] for row in rows}:
            own = [row for row in rows if row["partition"] == number]
            offsets = [row["offset"] for row in own]
            if len({row["_partition"] for row in own}) != 1 or offsets != sorted(offsets):
                return False
        return True

    def position(self, partition: int = 0, name: str = "kafka:orders") -> int | None:
        """Up to which offset the log has a partition."""
        self.ns.snapshot()  # reads the log
        record = connection_of(self.ns).stream(f"{name}/{self.source}/{partition}")
        return None if record is None else record.batch


@pytest.fixture
def lake(spark: SparkSession, cluster: Cluster, namespace: Namespace, tmp_path: Path) -> Iterator[Lake]:
    namespace.create_topic("orders", SCHEMA, partitions=3)
    yield Lake(spark, cluster, namespace, tmp_path)
    for query in spark.streams.active:
        query.stop()
