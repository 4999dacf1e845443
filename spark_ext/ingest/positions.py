"""How far an ingestion has come in each partition of Kafka, as the log of the namespace says it.

The log remembers, for ever, the last batch of each stream, and takes no lower one after it. Each partition of a Kafka
topic is such a stream here: the number of a batch is the offset of the last message that it stands for, and its query
is the id of the Kafka topic. So the position is in the same commit as the rows, and needs no place of its own: neither
a folder of Spark's nor a topic.

Offsets are no sequences of a producer, which have no gaps: Kafka's have, where a transaction ends, where a topic is
compacted, and where retention deleted messages (docs/decisions/0045-where-an-ingestion-has-come.md).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import Future
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from spark_ext.write.write_jobs import add_segments
from txnlog.api.internals import connection_of, leave_outcome_open, set_stream
from txnlog.api.producer import begin_transaction
from txnlog.common.names import parse_label
from txnlog.errors import InvalidInputError, OutcomeUnknown
from txnlog.format.actions import StreamBatch

if TYPE_CHECKING:
    from txnlog.api.namespace import Namespace
    from txnlog.api.transaction import Transaction
    from txnlog.common.ids import TxnId
    from txnlog.format.actions import Segment
    from txnlog.results import Committed

_NO_ID: Final = "kafka"
"""In place of the id of a topic, where the broker gives none."""


@dataclass(frozen=True, slots=True, order=True)
class Part:
    """A partition of a Kafka topic."""

    topic: str
    partition: int

    def __str__(self) -> str:
        return f"partition {self.partition} of the Kafka topic {self.topic!r}"


@dataclass(frozen=True, slots=True)
class Ingestion:
    """An ingestion by its name, with the epoch under which this run of it commits.

    Attributes:
        name: the producer of its transactions, and the beginning of the identities of its streams.
        epoch: of the producer; a newer run of the same ingestion has a higher one, and this one cannot commit any more.
        topics: the ids of the Kafka topics by their names; empty where the broker gives none.
    """

    name: str
    epoch: int
    topics: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Position:
    """The offset up to which messages are in the log (excluded), the version that says so, and the topic's id."""

    offset: int
    version: int
    topic_id: str


def stream_of(name: str, part: Part) -> str:
    """The identity of the stream that a partition is. Raises NameNotAllowed."""
    return parse_label("name of the ingestion with topic and partition", f"{name}/{part.topic}/{part.partition}")


def positions(ns: Namespace, name: str, parts: Iterable[Part]) -> dict[Part, Position]:
    """The positions of the partitions that have one, as this client knows the log."""
    streams = {part: connection_of(ns).stream(stream_of(name, part)) for part in parts}
    return {
        part: Position(record.batch + 1, record.version, record.query)
        for part, record in streams.items()
        if record is not None
    }


def check_written_to(ns: Namespace, name: str, topic: str, known: Mapping[Part, Position]) -> None:
    """Raise InvalidInputError where the topic of the namespace is younger than what the ingestion brought into it."""
    record = connection_of(ns).topic_handle(topic).record
    older = [part for part, position in known.items() if position.version < record.id]
    if older:
        raise InvalidInputError(
            f"the topic {topic!r} was dropped and created again after the ingestion {name!r} wrote to it: messages of "
            f"{len(older)} partitions of Kafka were in the dropped one alone",
            advice="give the ingestion another name (name=...) and a new checkpoint: it begins anew",
        )


def check_topic_ids(name: str, known: Mapping[Part, Position], ids: Mapping[str, str]) -> None:
    """Raise InvalidInputError for a topic of Kafka that was created again under its name, or is another cluster's."""
    for part, position in known.items():
        if _NO_ID not in {position.topic_id, ids.get(part.topic, _NO_ID)} and position.topic_id != ids[part.topic]:
            raise made_again(name, part.topic)


def made_again(name: str, topic: str) -> InvalidInputError:
    """The error for a topic whose offsets mean other messages now."""
    return InvalidInputError(
        f"the Kafka topic {topic!r} is not the one that the ingestion {name!r} read: it was deleted and created again, "
        "or is another cluster's, and its offsets are of other messages",
        advice="to ingest the new topic, give the ingestion another name (name=...) and a new checkpoint; what was "
        "ingested from the old one stays",
    )


# --- commits ----------------------------------------------------------------------------------------------------------


def note_starts(ns: Namespace, ingestion: Ingestion, starts: Mapping[Part, int]) -> None:
    """Let the log remember where an ingestion begins in partitions in which it does not begin at offset 0."""
    commit_parts(ns, ingestion, {part: (start, lambda _: []) for part, start in starts.items() if start > 0})


def commit_parts(
    ns: Namespace, ingestion: Ingestion, parts: Mapping[Part, tuple[int, Callable[[TxnId], list[Segment]]]]
) -> dict[Part, Committed]:
    """Commit rows of partitions, a transaction each: by partition the end of its offsets, and its files.

    All of them are on their way at once, so that they share entries of the log.

    Raises:
        ProducerFenced: a newer run of the ingestion has begun; of some partitions the rows may be committed, and then
            that run has found them.
        OutcomeUnknown, StoreError: the log shows what is committed, and the next run continues behind that.
    """
    under_way: dict[Part, tuple[Transaction, Future[Committed]]] = {}
    done: dict[Part, Committed] = {}
    failures: list[Exception] = []
    try:
        for part, (end, segments) in parts.items():
            txn = begin_transaction(connection_of(ns), ingestion.name, ingestion.epoch, timed_from_log=True)
            batch = StreamBatch(
                stream_of(ingestion.name, part), ingestion.topics.get(part.topic, _NO_ID), end - 1, offsets_digest=""
            )
            set_stream(txn, batch)
            add_segments(txn, segments(txn.id))
            under_way[part] = txn, txn.commit_async()
    finally:
        # Whatever becomes of one of them, all outcomes are waited for: none may come behind what this call raises.
        for part, (txn, future) in under_way.items():
            try:
                done[part] = future.result()
            except Exception as failure:  # noqa: BLE001 - the first one is raised
                failures.append(failure)
                if isinstance(failure, OutcomeUnknown):
                    leave_outcome_open(txn)
    if failures:
        raise failures[0]
    return done


__all__ = [
    "Ingestion",
    "Part",
    "Position",
    "check_topic_ids",
    "check_written_to",
    "commit_parts",
    "made_again",
    "note_starts",
    "positions",
    "stream_of",
]
