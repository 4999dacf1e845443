"""Kafka without a broker: recorded messages in a file, which a source of Spark and a cluster read.

The source has the columns, the offsets and the options of Spark's Kafka source, as far as an ingestion uses them. What
it is not is Kafka: `make test-kafka` asks a broker.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition

from spark_ext.ingest.kafka_cluster import Bounds, Topics
from spark_ext.ingest.positions import TopicPartition
from txnlog.errors import InvalidInputError

FILE: Final = "kafka.recording"
"""The option with the path of the recording."""

_SCHEMA: Final = (
    "key binary, value binary, topic string, partition int, offset bigint, timestamp timestamp, timestampType int, "
    "headers array<struct<key: string, value: binary>>"
)


class Recording:
    """Messages by topic and partition; None is an offset without a message."""

    def __init__(self, file: Path) -> None:
        self.file = file

    def write(self, topic: str, number: str, partitions: Sequence[Sequence[int | None]], first: int = 0) -> None:
        """What a topic with this id has from an offset on."""
        known = self.read()
        known[topic] = {"id": number, "first": first, "partitions": [list(item) for item in partitions]}
        new = self.file.with_suffix(".new")
        new.write_text(json.dumps(known), encoding="utf-8")
        new.replace(self.file)  # a query that runs sees all of it, or nothing

    def read(self) -> dict[str, Any]:
        """By topic its id, its first offset, and its messages by partition."""
        return json.loads(self.file.read_text(encoding="utf-8")) if self.file.exists() else {}


class RecordedCluster:
    """The cluster of a recording."""

    def __init__(self, _spark: object, options: Mapping[str, str]) -> None:
        self._recording = Recording(Path(options[FILE]))

    def topics(self, names: Sequence[str]) -> Topics:
        known = self._recording.read()
        for name in names:
            if name not in known:
                raise InvalidInputError(f"no topic {name}")
        parts = [TopicPartition(name, number) for name in names for number in range(len(known[name]["partitions"]))]
        return Topics(self.ids(names), tuple(parts))

    def bounds(self, parts: Sequence[TopicPartition]) -> dict[TopicPartition, Bounds]:
        known = self._recording.read()
        return {
            part: Bounds(first, first + len(known[part.topic]["partitions"][part.partition]))
            for part in parts
            for first in [known[part.topic]["first"]]
        }

    def check_settings(self) -> None:
        """None of Kafka's own is given."""

    def written(self, part: TopicPartition) -> int:
        return self.bounds([part])[part].latest

    def ids(self, names: Sequence[str]) -> dict[str, str]:
        known = self._recording.read()
        return {name: known[name]["id"] for name in names}


@dataclass
class _Range(InputPartition):
    topic: str
    partition: int
    start: int
    end: int


class RecordedKafka(DataSource):
    """The source."""

    @classmethod
    def name(cls) -> str:
        return "recorded_kafka"

    def schema(self) -> str:
        return _SCHEMA

    def streamReader(self, schema: object) -> DataSourceStreamReader:  # noqa: N802 - Spark's signature
        return _Reader(dict(self.options))


class _Reader(DataSourceStreamReader):
    def __init__(self, options: dict[str, str]) -> None:
        self._recording = Recording(Path(options[FILE]))
        self._topics = options["subscribe"].split(",")
        self._starting = options["startingoffsets"]

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802 - Spark's name
        found: dict[str, Any] = json.loads(self._starting)
        return found

    def latestOffset(self, *_limits: object) -> dict[str, Any]:  # noqa: N802 - Spark's name
        known = self._recording.read()
        return {
            topic: {
                str(number): known[topic]["first"] + len(item) for number, item in enumerate(known[topic]["partitions"])
            }
            for topic in self._topics
        }

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        return [
            _Range(topic, int(number), start.get(topic, {}).get(number, 0), offset)
            for topic, numbers in end.items()
            for number, offset in numbers.items()
        ]

    def read(self, partition: Any) -> Iterator[tuple[Any, ...]]:
        known = self._recording.read()[partition.topic]
        for offset in range(partition.start, partition.end):
            message = known["partitions"][partition.partition][offset - known["first"]]
            if message is not None:
                text = str(message).encode()
                yield text, text, partition.topic, partition.partition, offset, None, 0, None

    def commit(self, end: dict[str, Any]) -> None:
        pass


__all__ = ["FILE", "RecordedCluster", "RecordedKafka", "Recording"]
