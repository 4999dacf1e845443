"""What positions do not stand for any more, and where to go on then: errors that advise nothing that doubles a message.

A name that is not known to the log begins anew. So whoever is advised to take one has the old one ended first, by
``end_ingestion``: that says where each partition is. No error does, as an older run may move on behind it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import TYPE_CHECKING

from spark_ext.ingest.positions import BY_ROW, NO_ID, IngestedPosition, Ingestion, TopicPartition
from txnlog.api.internals import connection_of
from txnlog.errors import Durable, InvalidInputError, OffsetOutOfRange, RetriableError

if TYPE_CHECKING:
    from txnlog.api.namespace import Namespace


def check_positions(ns: Namespace, ingestion: Ingestion, known: Mapping[TopicPartition, IngestedPosition]) -> None:
    """Raise where positions stand for another topic, of Kafka's or of the namespace.

    Raises:
        InvalidInputError: the Kafka topic has another id, or the rows go to another topic, than when the position was
            written.
        RetriableError: see ``check_ids``.
    """
    check_ids(ingestion.name, {(part.topic, position.topic_id) for part, position in known.items()}, ingestion.topics)
    for position in known.values():
        if position.target != ingestion.target_text:
            raise _other_target(ns, ingestion.name, position.target, ingestion.target_text)


def check_ids(name: str, before: Collection[tuple[str, str]], now: Mapping[str, str]) -> None:
    """Raise where Kafka topics are not those that they were: before by name an id, and now.

    A topic of which no id was known is any, as a broker older than 2.8 gives none.

    Raises:
        InvalidInputError: another id.
        RetriableError: there is none now. That proves nothing: another broker answers, as while brokers are upgraded.
    """
    compared = sorted({(topic, number) for topic, number in before if number != NO_ID})
    if other := sorted({topic for topic, number in compared if now.get(topic, number) != number}):
        raise _made_again(name, other)
    for topic, _ in compared:
        if topic not in now:
            raise RetriableError(
                f"the broker gives no id of the Kafka topic {topic!r} now, and gave one before: whether it is the same "
                "topic is open",
                advice="start the ingestion again when all brokers give ids, as those of Kafka 2.8 and later do",
                durable=Durable.NOTHING,
            )


def _other_target(ns: Namespace, name: str, before: str, now: str) -> InvalidInputError:
    first, second = (_target(ns, target) for target in (before, now))
    if first == second:
        return InvalidInputError(
            f"the rows of the ingestion {name!r} go {first}, which was dropped and created again since it began: what "
            "came before was in the dropped one alone",
            advice="to fill the new one with all that Kafka has, give the ingestion another name (name=...)",
        )
    return InvalidInputError(
        f"the rows of the ingestion {name!r} go {first}, and this call would have them go {second}",
        advice=f"let them go {first} as before; or, to have the next ones go elsewhere, {elsewhere(name)}",
    )


def _target(ns: Namespace, target: str) -> str:
    if target == BY_ROW:
        return "where topic_by says"
    names = [item.name for item in connection_of(ns).follower.topics() if str(item.id) == target]
    return f"to the topic {names[0]!r}" if names else "to a topic that is not known any more"


def _made_again(name: str, topics: list[str]) -> InvalidInputError:
    return InvalidInputError(
        f"the Kafka topic {topics[0]!r} is not the one that the ingestion {name!r} read: it was deleted and created "
        "again, or is another cluster's, and its offsets are of other messages",
        advice=f"to ingest the new topic from its first message, {elsewhere(name, topics)}",
    )


def gone(part: TopicPartition, position: int, earliest: int) -> OffsetOutOfRange:
    """The error for messages that retention deleted before they were ingested."""
    return OffsetOutOfRange(
        f"the {part} begins at offset {earliest}, and the ingestion continues at {position}: the messages between were "
        "deleted by retention before they were ingested",
        advice="accept the loss with the option failOnDataLoss=false, which goes on at the earliest offset; an older "
        "run that still works may have them, and goes on if it is left alone",
        durable=Durable.NOTHING,
    )


def went_back(name: str, part: TopicPartition, what: str) -> OffsetOutOfRange:
    """The error for a partition whose offsets mean other messages now, and what it does."""
    return OffsetOutOfRange(
        f"the {part} {what}: it lost messages in Kafka, as in an unclean election of a leader",
        advice=f"see what became of it; to go on, {elsewhere(name)}; but first put the offset of its first new message "
        f"into the offsets, for the {part}",
        durable=Durable.NOTHING,
    )


def elsewhere(name: str, from_beginning: Iterable[str] = ()) -> str:
    """How to go on under another name, each partition where it is, so that nothing comes twice."""
    topics = list(from_beginning)
    more = f", from_beginning={topics!r}" if topics else ""
    return (
        f"call offsets = spark_ext.end_ingestion(spark, path, {name!r}{more}), which ends all runs under this name, "
        "and then ingest_kafka under another one (name=...) with the option 'startingOffsets': offsets"
    )


__all__ = ["check_ids", "check_positions", "elsewhere", "gone", "went_back"]
