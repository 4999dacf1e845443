"""What positions do not stand for any more, and where to go on then: errors that advise nothing that doubles a message.

A name that is not known to the log begins anew. So whoever is advised to take one reads where the ingestion is in
each partition, as the option ``startingOffsets`` takes it.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Collection, Iterable, Mapping
from typing import TYPE_CHECKING, Final

from spark_ext.ingest.positions import BY_ROW, NO_ID, Ingestion, Part, Position
from spark_ext.support.option_parsing import EARLIEST_OFFSET
from txnlog.api.internals import connection_of
from txnlog.errors import Durable, InvalidInputError, OffsetOutOfRange

if TYPE_CHECKING:
    from txnlog.api.namespace import Namespace

_logger: Final = logging.getLogger("txnlog.spark")

_MOST_OF_AN_ERROR: Final = 2_000
"""Characters of offsets that an error quotes: those of a hundred partitions."""


def partition_offsets(text: str) -> dict[str, dict[int, int]]:
    """Offsets by topic and partition, as Spark's Kafka source writes and reads them. Raises ValueError."""
    found = json.loads(text)
    if not isinstance(found, dict):
        raise ValueError("no object")
    result: dict[str, dict[int, int]] = {}
    for topic, partitions in found.items():
        if not isinstance(partitions, dict):
            raise ValueError("no object of partitions")
        for number, offset in partitions.items():
            if type(offset) is not int or not number.isdecimal():
                raise ValueError("no offset")
            result.setdefault(topic, {})[int(number)] = offset
    return result


def offsets_text(offsets: Mapping[Part, int]) -> str:
    """The inverse of ``partition_offsets``."""
    found: dict[str, dict[str, int]] = {}
    for part, offset in sorted(offsets.items()):
        found.setdefault(part.topic, {})[str(part.partition)] = offset
    return json.dumps(found)


def check_positions(
    ns: Namespace, ingestion: Ingestion, known: Mapping[Part, Position], parts: Collection[Part]
) -> None:
    """Raise InvalidInputError where positions stand for another topic, of Kafka's or of the namespace.

    ``parts`` are all partitions of the topics, as Kafka has them.
    """
    other: dict[str, None] = {}
    for part, position in known.items():
        own = ingestion.batch(part, position.offset)
        if NO_ID not in {position.topic_id, own.query} and position.topic_id != own.query:
            other[part.topic] = None
    if other:
        raise made_again(ingestion.name, other, known, parts)
    for part, position in known.items():
        own = ingestion.batch(part, position.offset)
        if position.target != own.offsets_digest:
            raise _other_target(ns, ingestion.name, position.target, own.offsets_digest, _where(known, parts))


def _other_target(ns: Namespace, name: str, before: str, now: str, offsets: Mapping[Part, int]) -> InvalidInputError:
    first, second = (_target(ns, target) for target in (before, now))
    if first == second:
        return InvalidInputError(
            f"the rows of the ingestion {name!r} go {first}, which was dropped and created again since it began: what "
            "came before was in the dropped one alone",
            advice="to fill the new one with all that Kafka has, give the ingestion another name (name=...)",
        )
    return InvalidInputError(
        f"the rows of the ingestion {name!r} go {first}, and this call would have them go {second}",
        advice=f"let them go {first} as before; or, to have the next ones go elsewhere, {elsewhere(offsets)}",
    )


def _target(ns: Namespace, target: str) -> str:
    if target == BY_ROW:
        return "where topic_by says"
    names = [item.name for item in connection_of(ns).follower.topics() if str(item.id) == target]
    return f"to the topic {names[0]!r}" if names else "to a topic that is not known any more"


def made_again(
    name: str, topics: Iterable[str], known: Mapping[Part, Position], parts: Collection[Part]
) -> InvalidInputError:
    """The error for topics whose offsets mean other messages now."""
    names = list(topics)
    offsets = {
        part: EARLIEST_OFFSET if part.topic in names else offset for part, offset in _where(known, parts).items()
    }
    return InvalidInputError(
        f"the Kafka topic {names[0]!r} is not the one that the ingestion {name!r} read: it was deleted and created "
        "again, or is another cluster's, and its offsets are of other messages",
        advice=f"to ingest the new topic from its first message, {elsewhere(offsets)}",
    )


def gone(part: Part, position: int, earliest: int) -> OffsetOutOfRange:
    """The error for messages that retention deleted before they were ingested."""
    return OffsetOutOfRange(
        f"the {part} begins at offset {earliest}, and the ingestion continues at {position}: the messages between were "
        "deleted by retention before they were ingested",
        advice="accept the loss with the option failOnDataLoss=false, which goes on at the earliest offset; an older "
        "run that still works may have them, and goes on if it is left alone",
        durable=Durable.NOTHING,
    )


def went_back(
    part: Part, what: str, end: int, known: Mapping[Part, Position], parts: Collection[Part]
) -> OffsetOutOfRange:
    """The error for a partition whose offsets mean other messages now: what it does, and where it ends."""
    return OffsetOutOfRange(
        f"the {part} {what}: it lost messages in Kafka, as in an unclean election of a leader",
        advice=f"see what became of it; to go on, {elsewhere({**_where(known, parts), part: end})}, in which {end} is "
        f"to be the offset of the first new message of the {part}",
        durable=Durable.NOTHING,
    )


def elsewhere(offsets: Mapping[Part, int]) -> str:
    """How to go on under another name, each partition at its offset, so that nothing comes twice."""
    text = offsets_text(offsets)
    if len(text) > _MOST_OF_AN_ERROR:
        _logger.warning("where the ingestion is, for the option startingOffsets: %s", text)
        text = "those that the logger txnlog.spark has just shown"
    else:
        text = f"'{text}'"
    return f"end what runs under this name, and begin under another one (name=...) with startingOffsets={text}"


def _where(known: Mapping[Part, Position], parts: Collection[Part]) -> dict[Part, int]:
    """Where the ingestion is in each partition; at the first message where it has not begun."""
    return {part: known[part].offset if part in known else EARLIEST_OFFSET for part in {*known, *parts}}


__all__ = ["check_positions", "elsewhere", "gone", "made_again", "offsets_text", "partition_offsets", "went_back"]
