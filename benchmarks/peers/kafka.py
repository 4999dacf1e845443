"""Apache Kafka 4.1 as one broker in KRaft mode, with and without fsync; its client is confluent-kafka."""

from __future__ import annotations

import threading
import time
import uuid
from pathlib import Path
from typing import Any, ClassVar, Final

import confluent_kafka
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from benchmarks.peers.load import Load, Outcome, in_threads, is_aborted
from benchmarks.peers.peer import Peer
from benchmarks.peers.values import random_values
from benchmarks.peers.watching import Watch, paced
from tools.kafka import VERSION, Broker, broker_jars

_BATCH: Final = 10_000
_PATIENCE_S: Final = 60.0


class Kafka(Peer):
    """With its defaults: a commit is acknowledged when it is in the memory of the operating system."""

    name = "Kafka, no fsync"
    durability = "in the page cache when a commit returns; the operating system writes it later (the default)"
    warms = True
    settings = "one broker in KRaft mode, heap 1 GB; producers with linger.ms=0 for small transactions"
    extra: ClassVar[str] = ""

    def __init__(self) -> None:
        self._server: Broker | None = None
        self._address = ""
        self._topics: set[str] = set()
        self._producers: list[Producer] = []

    def bring(self) -> str:
        """The jars, with Maven."""
        broker_jars()
        return f"Kafka {VERSION}, confluent-kafka {confluent_kafka.__version__}"

    def start(self, folder: Path) -> None:
        """Format a folder, and start a broker on it."""
        self._server = Broker(folder, self.extra)
        self._address = self._server.address

    def stop(self) -> None:
        """End the broker."""
        self._producers.clear()
        if self._server is not None:
            self._server.end()
            self._server = None

    def is_durable(self, load: Load) -> bool:
        """Not before the operating system writes it."""
        del load
        return bool(self.extra)

    def pids(self) -> list[int]:
        """The broker's."""
        return [self._server.pid] if self._server is not None else []

    def run(self, load: Load) -> Outcome:
        """Run a load."""
        self._make_topic(load.topic, load.partitions)
        match load.kind:
            case "commit" | "fill":
                return self._commit(load)
            case "read":
                return self._read(load)
            case "pipeline":
                return self._pipeline(load)
            case "deliver" | "open":
                return self._watched(load)

    def _make_topic(self, name: str, partitions: int) -> None:
        if name in self._topics:
            return
        admin = AdminClient({"bootstrap.servers": self._address, "log_level": 0})
        admin.create_topics([NewTopic(name, partitions, 1)])[name].result(_PATIENCE_S)
        self._topics.add(name)

    def _producer(self, settings: dict[str, Any], *, transactional: bool = True) -> Producer:
        kind = {"transactional.id": uuid.uuid4().hex} if transactional else {"enable.idempotence": True}
        # What fails is raised; the client also logs each attempt to reach a broker that starts or ends.
        producer = Producer({"bootstrap.servers": self._address, "log_level": 0, **kind, **settings})
        if transactional:
            producer.init_transactions(_PATIENCE_S)
        return producer

    def _commit(self, load: Load) -> Outcome:
        # The producers stay, as an application keeps them: a new one is an entry of the coordinator's log.
        while len(self._producers) < load.producers:
            self._producers.append(self._producer({"linger.ms": 0, "queue.buffering.max.messages": 1_000_000}))
        values = random_values(load)
        partitions = [number for number in range(load.partitions) for _ in range(load.messages)]

        def transact(thread: int, number: int) -> None:
            producer = self._producers[thread]
            producer.begin_transaction()
            _send(producer, load.topic, partitions, values)
            if is_aborted(load, number):
                producer.flush()  # so that what is aborted lies in the log
                producer.abort_transaction(_PATIENCE_S)
            else:
                producer.commit_transaction(_PATIENCE_S)

        return in_threads(load, transact, len(partitions))

    def _consumer(self, topic: str, **settings: Any) -> Consumer:
        consumer = Consumer(
            {
                "bootstrap.servers": self._address,
                "log_level": 0,
                "group.id": uuid.uuid4().hex,
                "isolation.level": "read_committed",
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
                "fetch.wait.max.ms": 100,
                "queued.max.messages.kbytes": 262_144,
                **settings,
            }
        )
        partitions = consumer.list_topics(topic, _PATIENCE_S).topics[topic].partitions
        # Assigned, not subscribed: the protocol of groups takes seconds that have nothing to do with reading.
        consumer.assign([TopicPartition(topic, number, confluent_kafka.OFFSET_BEGINNING) for number in partitions])
        return consumer

    def _read(self, load: Load) -> Outcome:
        started = time.perf_counter()
        consumer = self._consumer(load.topic)
        rows = size = 0
        while rows < load.rows and time.perf_counter() < started + load.seconds:
            # No more than are left: the call waits for as many as it is asked for.
            for message in consumer.consume(min(_BATCH, load.rows - rows), 1.0):
                rows += 1
                size += len(message.value())
        seconds = time.perf_counter() - started
        consumer.close()
        assert size == rows * load.size, "a message of another size was read"
        return Outcome(seconds=seconds, rows=rows)

    def _pipeline(self, load: Load) -> Outcome:
        target = f"{load.topic}-{uuid.uuid4().hex[:8]}"
        self._make_topic(target, load.partitions)
        consumer = self._consumer(load.topic)
        many = {"queue.buffering.max.messages": 1_000_000, "queue.buffering.max.kbytes": 1_048_576, "linger.ms": 5}
        producer = self._producer(many, transactional=load.transactional)
        messages = consumer.consume(1, 10.0)
        rows, latencies = 0, list[float]()
        started = time.perf_counter()
        while rows < load.rows and time.perf_counter() < started + load.seconds:
            began = time.perf_counter()
            if load.transactional:
                producer.begin_transaction()
            while True:
                for message in messages:
                    _produce(producer, target, message.value(), message.partition())
                rows += len(messages)
                messages = []
                if rows >= load.rows or time.perf_counter() >= began + load.cycle_ms / 1e3:
                    break
                messages = consumer.consume(min(1_000, load.rows - rows), 0.01)
            position = consumer.position(consumer.assignment())
            if load.transactional:
                producer.send_offsets_to_transaction(position, consumer.consumer_group_metadata(), _PATIENCE_S)
                producer.commit_transaction(_PATIENCE_S)
            else:
                producer.flush(_PATIENCE_S)
                consumer.commit(offsets=position, asynchronous=False)
            latencies.append((time.perf_counter() - began) * 1e3)
        seconds = time.perf_counter() - started
        consumer.close()
        return Outcome(seconds=seconds, rows=rows, transactions=len(latencies), latencies_ms=latencies)

    def _watched(self, load: Load) -> Outcome:
        watch = Watch(load)
        consumer = self._consumer(load.topic, **{"fetch.wait.max.ms": 500})
        stopped = threading.Event()

        def read() -> None:
            while not stopped.is_set():
                message = consumer.poll(0.02)  # returns with the first message
                if message is not None:
                    watch.received(message.value())

        reader = threading.Thread(target=read, daemon=True)
        reader.start()
        producer = self._producer({"linger.ms": 0})
        left_open = self._producer({"linger.ms": 0, "transaction.timeout.ms": 600_000})

        def commit(value: bytes) -> None:
            producer.begin_transaction()
            stamped = watch.stamped(value)
            _produce(producer, load.topic, stamped, 0)
            producer.commit_transaction(_PATIENCE_S)

        def begin_one() -> None:
            left_open.begin_transaction()
            _produce(left_open, load.topic, watch.unstamped(), 0)
            left_open.flush()

        try:
            paced(watch, commit, begin_one, lambda: left_open.commit_transaction(_PATIENCE_S))
        finally:
            stopped.set()
            reader.join(_PATIENCE_S)
            consumer.close()
        return watch.outcome()


class KafkaWithFsync(Kafka):
    """With an fsync of the log for each append."""

    name = "Kafka, fsync"
    durability = "fsynced: log.flush.interval.messages=1, also for the coordinator's log"
    extra = "log.flush.interval.messages=1\n"


def _send(producer: Producer, topic: str, partitions: list[int], values: list[bytes]) -> None:
    for number, partition in enumerate(partitions):
        _produce(producer, topic, values[number % len(values)], partition)


def _produce(producer: Producer, topic: str, value: bytes, partition: int) -> None:
    while True:
        try:
            producer.produce(topic, value, partition=partition)
            return
        except BufferError:  # the queue is full
            producer.poll(0.01)


__all__ = ["Kafka", "KafkaWithFsync"]
