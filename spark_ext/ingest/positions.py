"""How far an ingestion has come in each partition of Kafka, as the log of the namespace says it.

The log remembers, for ever, the last ``txn_version`` of an application id. Each partition of a Kafka topic is such an
application here, and the version of a transaction is the offset of the last message that it stands for. So the position
is in the same commit as the rows, and needs no place of its own: neither a folder of Spark's nor a topic.

Offsets are no sequences of a producer, which have no gaps: Kafka's have, where a transaction ends, where a topic is
compacted, and where retention deleted messages (docs/decisions/0045-where-an-ingestion-has-come.md).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import Future
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from spark_ext.write.write_jobs import add_segments
from txnlog.api.internals import connection_of, leave_outcome_open
from txnlog.api.producer import begin_transaction
from txnlog.common.names import parse_label
from txnlog.errors import InvalidInputError, OutcomeUnknown

if TYPE_CHECKING:
    from txnlog.api.namespace import Namespace
    from txnlog.api.transaction import Transaction
    from txnlog.common.ids import TxnId
    from txnlog.fold.state import State
    from txnlog.format.actions import Segment
    from txnlog.results import Committed

_TOPIC_ID: Final = "#"
"""Behind the name of a topic of Kafka, which cannot contain it, and in front of its id."""


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
        name: the producer of its transactions, and the beginning of its application ids.
        epoch: of the producer; a newer run of the same ingestion has a higher one, and this one cannot commit any more.
        topics: the ids of the Kafka topics by their names; empty where the broker gives none.
    """

    name: str
    epoch: int
    topics: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Position:
    """The offset up to which messages are in the log (excluded), and the version of the log that says so."""

    offset: int
    version: int


def app_id(name: str, part: Part) -> str:
    """The application id whose ``txn_version`` is the last offset of a partition. Raises NameNotAllowed."""
    return parse_label("name of the ingestion with topic and partition", f"{name}/{part.topic}/{part.partition}")


def positions(ns: Namespace, name: str, parts: Iterable[Part]) -> dict[Part, Position]:
    """The positions of the partitions that have one, as this client knows the log."""
    ids = {part: app_id(name, part) for part in parts}

    def look(state: State) -> dict[Part, Position]:
        found = {part: state.apps.get(label) for part, label in ids.items()}
        return {
            part: Position(record.app_version + 1, record.version)
            for part, record in found.items()
            if record is not None
        }

    return connection_of(ns).follower.look(look)


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


# --- the identity of Kafka's topics -----------------------------------------------------------------------------------


def check_topic_ids(ns: Namespace, name: str, topics: Mapping[str, str]) -> list[str]:
    """Check that the topics of Kafka are those of before; returns the names of those that are new to the ingestion.

    Raises InvalidInputError for one that was created again under its name, or is another cluster's.
    """
    known = connection_of(ns).follower.look(lambda state: _known_ids(state, name, topics))
    for topic, number in topics.items():
        if known[topic] and number not in known[topic]:
            raise made_again(name, topic)
    return [topic for topic in topics if not known[topic]]


def _known_ids(state: State, name: str, topics: Iterable[str]) -> dict[str, list[str]]:
    beginnings = {topic: f"{name}/{topic}{_TOPIC_ID}" for topic in topics}
    return {
        topic: [label.removeprefix(beginning) for label in state.apps if label.startswith(beginning)]
        for topic, beginning in beginnings.items()
    }


def made_again(name: str, topic: str) -> InvalidInputError:
    """The error for a topic whose offsets mean other messages now."""
    return InvalidInputError(
        f"the Kafka topic {topic!r} is not the one that the ingestion {name!r} read: it was deleted and created again, "
        "or is another cluster's, and its offsets are of other messages",
        advice="to ingest the new topic, give the ingestion another name (name=...) and a new checkpoint; what was "
        "ingested from the old one stays",
    )


# --- commits ----------------------------------------------------------------------------------------------------------


def note_topics(ns: Namespace, ingestion: Ingestion, topics: Iterable[str]) -> None:
    """Let the log remember the ids of topics from which the ingestion reads for the first time."""
    _commit_all(
        ns,
        ingestion,
        {f"{ingestion.name}/{topic}{_TOPIC_ID}{ingestion.topics[topic]}": (0, lambda _: []) for topic in topics},
    )


def note_starts(ns: Namespace, ingestion: Ingestion, starts: Mapping[Part, int]) -> None:
    """Let the log remember where an ingestion begins in partitions in which it does not begin at offset 0."""
    _commit_all(
        ns,
        ingestion,
        {app_id(ingestion.name, part): (start - 1, lambda _: []) for part, start in starts.items() if start > 0},
    )


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
    wanted = {app_id(ingestion.name, part): (end - 1, segments) for part, (end, segments) in parts.items()}
    return dict(zip(parts, _commit_all(ns, ingestion, wanted), strict=True))


def _commit_all(
    ns: Namespace, ingestion: Ingestion, wanted: Mapping[str, tuple[int, Callable[[TxnId], list[Segment]]]]
) -> list[Committed]:
    under_way: list[tuple[Transaction, Future[Committed]]] = []
    error: BaseException | None = None
    try:
        for label, (version, segments) in wanted.items():
            txn = begin_transaction(
                connection_of(ns),
                ingestion.name,
                ingestion.epoch,
                txn_app_id=label,
                txn_version=version,
                timed_from_log=True,
            )
            add_segments(txn, segments(txn.id))
            under_way.append((txn, txn.commit_async()))
    except BaseException as failure:
        error = failure
        raise
    finally:
        # Whatever happens to one of them, all outcomes are waited for: none may come behind what this call raises.
        done, failures = [], []
        for txn, future in under_way:
            try:
                done.append(future.result())
            except Exception as failure:  # noqa: BLE001 - the first one is raised
                failures.append(failure)
                if isinstance(failure, OutcomeUnknown):
                    leave_outcome_open(txn)
        if failures and error is None:
            raise failures[0]
    return done


__all__ = [
    "Ingestion",
    "Part",
    "Position",
    "app_id",
    "check_topic_ids",
    "check_written_to",
    "commit_parts",
    "made_again",
    "note_starts",
    "note_topics",
    "positions",
]
