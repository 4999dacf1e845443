"""How far an ingestion has come in each partition of Kafka, as the log of the namespace says it.

The log remembers, for ever, the last batch of each stream, and takes no lower one after it. Each partition of a Kafka
topic is such a stream here: the number of a batch is the offset behind the last message that it stands for, its query
is the id of the Kafka topic, and its digest is the topic that the rows go to. So the position is in the same entry as
the rows, and needs no place of its own: neither a folder of Spark's nor a topic.

Where an ingestion begins in the partitions of a topic is logged before its first commit, for all of them in one entry.
So a topic is begun or it is not; and a partition without a position in a topic that is begun was added: it is at offset
0.

Offsets are no sequences of a producer, which have no gaps: Kafka's have, where a transaction ends, where a topic is
compacted, and where retention deleted messages (docs/decisions/0045-where-an-ingestion-has-come.md).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from txnlog.api.internals import connection_of
from txnlog.common.names import parse_label
from txnlog.format.actions import StreamBatch

if TYPE_CHECKING:
    from txnlog.api.namespace import Namespace
    from txnlog.fold.state import StreamRecord

START_AGAIN: Final = "start the ingestion again: it continues where the log is"

NO_ID: Final = "kafka"
"""In place of the id of a topic, where the broker gives none."""

BY_ROW: Final = "by row"
"""In place of the topic that rows go to, where each row says it."""


@dataclass(frozen=True, slots=True, order=True)
class TopicPartition:
    """A partition of a Kafka topic."""

    topic: str
    partition: int

    def __str__(self) -> str:
        return f"partition {self.partition} of the Kafka topic {self.topic!r}"


@dataclass(frozen=True, slots=True)
class Ingestion:
    """An ingestion by its name, and what its positions stand for.

    Attributes:
        name: the producer of its transactions, and the beginning of the identities of its streams.
        topics: the ids of the Kafka topics by their names; empty where the broker gives none.
        target: the id of the topic that the rows go to; None where each row says it.
        epoch: of the producer, once this run of the ingestion has taken over; a newer run has a higher one, and this
            one cannot commit any more.
    """

    name: str
    topics: Mapping[str, str]
    target: int | None = None
    epoch: int | None = None

    @property
    def target_text(self) -> str:
        """The topic that rows go to, as a position has it."""
        return BY_ROW if self.target is None else str(self.target)

    def batch(self, part: TopicPartition, offset: int) -> StreamBatch:
        """The position of a partition, as a commit has it. Raises NameNotAllowed."""
        return StreamBatch(stream_of(self.name, part), self.topics.get(part.topic, NO_ID), offset, self.target_text)


@dataclass(frozen=True, slots=True)
class IngestedPosition:
    """The offset up to which messages are in the log (excluded), the id of the Kafka topic, and where the rows went."""

    offset: int
    topic_id: str
    target: str


def stream_of(name: str, part: TopicPartition) -> str:
    """The identity of the stream that a partition is. Raises NameNotAllowed."""
    return parse_label("name of the ingestion with topic and partition", f"{name}/{part.topic}/{part.partition}")


def end_of(name: str) -> str:
    """The identity of the stream that an ended ingestion has. It is no longer than any that a partition can have."""
    return parse_label("name of the ingestion", f"{name}/end")


def positions(ns: Namespace, name: str, parts: Iterable[TopicPartition]) -> dict[TopicPartition, IngestedPosition]:
    """The positions of the partitions whose topic is begun, as this client knows the log."""
    connection = connection_of(ns)
    found: dict[TopicPartition, IngestedPosition] = {}
    for part in parts:
        record = connection.stream(stream_of(name, part))
        if record is not None:
            found[part] = IngestedPosition(record.batch, record.query, record.offsets_digest)
        elif (first := connection.stream(stream_of(name, TopicPartition(part.topic, 0)))) is not None:
            found[part] = IngestedPosition(0, first.query, first.offsets_digest)  # it was added later
    return found


def partitions_of_ingestions(ns: Namespace) -> Iterator[tuple[str, TopicPartition, StreamRecord]]:
    """Each partition that an ingestion has a position in, with the name of it, as this client knows the log."""
    for record in connection_of(ns).follower.look(lambda state: list(state.streams.values())):
        name, *place = record.identity.rsplit("/", 2)  # a Kafka topic has no slash in its name, and a name may have one
        # Streaming queries have identities of their own, which may look like these, and digests of 64 digits.
        is_ours = record.offsets_digest == BY_ROW or (
            record.offsets_digest.isdecimal() and len(record.offsets_digest) < 64
        )
        if len(place) == 2 and place[1].isdecimal() and is_ours:
            yield name, TopicPartition(place[0], int(place[1])), record


def ingestions(ns: Namespace) -> dict[str, dict[TopicPartition, int]]:
    """All ingestions by name, with their positions, as this client knows the log."""
    found: dict[str, dict[TopicPartition, int]] = defaultdict(dict)
    for name, part, record in partitions_of_ingestions(ns):
        found[name][part] = record.batch
    return dict(found)


__all__ = [
    "BY_ROW",
    "NO_ID",
    "START_AGAIN",
    "IngestedPosition",
    "Ingestion",
    "TopicPartition",
    "end_of",
    "ingestions",
    "partitions_of_ingestions",
    "positions",
    "stream_of",
]
