"""A Spark session that has the Kafka source, and what tests do to a cluster: through Kafka's own client, in its JVM."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.sessions import session_with
from tools import kafka

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def session(folder: Path) -> SparkSession:
    """A small local session with Kafka; what it keeps is in a folder."""
    return session_with(kafka.spark_jars(), {"spark.log.level": "OFF"}, folder)


class Cluster:
    """A cluster, at an address; the session's JVM has its client."""

    def __init__(self, spark: SparkSession, address: str) -> None:
        self.address = address
        self._jvm: Any = spark._jvm
        self._gateway: Any = spark.sparkContext._gateway
        properties = self._jvm.java.util.Properties()
        properties.put("bootstrap.servers", address)
        self._admin = self._jvm.org.apache.kafka.clients.admin.AdminClient.create(properties)
        self._plain = self._producer()

    @property
    def options(self) -> dict[str, str]:
        """Those of the source."""
        return {"kafka.bootstrap.servers": self.address}

    def create(self, topic: str, partitions: int = 1, settings: Mapping[str, str] | None = None) -> None:
        """Create a topic."""
        made = self._jvm.org.apache.kafka.clients.admin.NewTopic(topic, partitions, 1)
        if settings:
            given = self._jvm.java.util.HashMap()
            for name, value in settings.items():
                given.put(name, value)
            made = made.configs(given)
        self._admin.createTopics(self._list([made])).all().get()
        while any(item.leader() is None for item in self._described(topic).partitions()):
            pass

    def _described(self, topic: str) -> Any:
        return self._admin.describeTopics(self._list([topic])).allTopicNames().get().get(topic)

    def delete(self, topic: str) -> None:
        """Delete a topic; returns when none of its name is there."""
        self._admin.deleteTopics(self._list([topic])).all().get()
        while topic in set(self._admin.listTopics().names().get()):
            pass

    def add_partitions(self, topic: str, count: int) -> None:
        """Let a topic have so many."""
        wanted = self._jvm.java.util.HashMap()
        wanted.put(topic, self._jvm.org.apache.kafka.clients.admin.NewPartitions.increaseTo(count))
        self._admin.createPartitions(wanted).all().get()

    def delete_records(self, topic: str, partition: int, before: int) -> None:
        """As retention does: a partition begins at an offset from now on."""
        wanted = self._jvm.java.util.HashMap()
        place = self._jvm.org.apache.kafka.common.TopicPartition(topic, partition)
        wanted.put(place, self._before(before))
        self._admin.deleteRecords(wanted).all().get()

    def _before(self, offset: int) -> Any:
        """By reflection: Py4J finds the method of an object that has the same name."""
        loader = self._jvm.Thread.currentThread().getContextClassLoader()
        kind = self._jvm.Class.forName("org.apache.kafka.clients.admin.RecordsToDelete", True, loader)
        (method,) = [
            item for item in kind.getMethods() if item.getName() == "beforeOffset" and item.getParameterCount()
        ]
        given = self._gateway.new_array(self._jvm.Object, 1)
        given[0] = offset
        return method.invoke(None, given)

    def produce(self, topic: str, values: Iterable[object], partition: int = 0, **headers: str) -> None:
        """Produce messages whose key is their value, as text; returns when Kafka has all of them, and shows them."""
        first = self.end(topic, partition)
        sent = self._send(self._plain, topic, values, partition, headers)
        self._plain.flush()
        offsets = [int(future.get().offset()) for future in sent]  # raises what became of it
        assert offsets == list(range(first, first + len(sent))), "a producer doubles nothing and leaves nothing out"
        assert self.end(topic, partition) == first + len(sent), "Kafka's end is behind what was produced"

    def end(self, topic: str, partition: int) -> int:
        """The offset that the next message gets: what an ingestion must have come to."""
        place = self._jvm.org.apache.kafka.common.TopicPartition(topic, partition)
        asked = self._jvm.java.util.HashMap()
        asked.put(place, self._jvm.org.apache.kafka.clients.admin.OffsetSpec.latest())
        return int(self._admin.listOffsets(asked).all().get().get(place).offset())

    def transact(self, topic: str, values: Iterable[object], partition: int = 0, *, commits: bool = True) -> None:
        """Produce in a transaction, which leaves a mark in the partition: an offset without a message."""
        producer = self._producer({"transactional.id": "tests"})
        producer.initTransactions()
        producer.beginTransaction()
        self._send(producer, topic, values, partition, {})
        producer.flush()
        (producer.commitTransaction if commits else producer.abortTransaction)()
        producer.close()

    def close(self) -> None:
        """Close the clients."""
        self._plain.close()
        self._admin.close()

    def _send(
        self, producer: Any, topic: str, values: Iterable[object], partition: int, headers: Mapping[str, str]
    ) -> list[Any]:
        sent = []
        for value in values:
            text = str(value).encode()
            record = self._jvm.org.apache.kafka.clients.producer.ProducerRecord(topic, partition, text, text)
            for name, content in headers.items():
                record.headers().add(name, content.encode())
            sent.append(producer.send(record))
        return sent

    def _producer(self, settings: Mapping[str, str] | None = None) -> Any:
        properties = self._jvm.java.util.Properties()
        serializer = "org.apache.kafka.common.serialization.ByteArraySerializer"
        common = {
            "bootstrap.servers": self.address,
            "key.serializer": serializer,
            "value.serializer": serializer,
            "request.timeout.ms": "10000",
            "delivery.timeout.ms": "30000",
        }
        for name, value in {**common, **(settings or {})}.items():
            properties.put(name, value)
        return self._jvm.org.apache.kafka.clients.producer.KafkaProducer(properties)

    def _list(self, items: Sequence[Any]) -> Any:
        made = self._jvm.java.util.ArrayList()
        for item in items:
            made.add(item)
        return made


__all__ = ["Cluster", "session"]
