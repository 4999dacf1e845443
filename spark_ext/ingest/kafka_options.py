"""Options of Spark's Kafka source, as an ingestion takes them: which may be given, and where it begins."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, TypeVar

from spark_ext.ingest.kafka_cluster import Bounds
from spark_ext.ingest.positions import Part
from spark_ext.support.option_parsing import EARLIEST_OFFSET, LATEST_OFFSET, BadValueError, flag, whole
from txnlog.common.names import nearest
from txnlog.common.validation import shown, type_of
from txnlog.errors import Durable, InvalidInputError, OffsetOutOfRange

SERVERS: Final = "kafka.bootstrap.servers"
ISOLATION_LEVEL: Final = "kafka.isolation.level"
_START: Final = "startingOffsets"
_LOSS: Final = "failOnDataLoss"
HEADERS: Final = "includeHeaders"

_TAKEN: Final = (
    _START,
    _LOSS,
    HEADERS,
    "maxOffsetsPerTrigger",
    "minOffsetsPerTrigger",
    "maxTriggerDelay",
    "minPartitions",
    "maxRecordsPerPartition",
    "groupIdPrefix",
    "kafkaConsumer.pollTimeoutMs",
    "fetchOffset.numRetries",
    "fetchOffset.retryIntervalMs",
)

_REFUSED: Final = {
    "subscribe": "name the topics in the argument subscribe=",
    "subscribePattern": "name the topics in the argument subscribe=",
    "assign": "name the topics in the argument subscribe=: an ingestion reads all partitions of a topic",
    "startingTimestamp": "use startingOffsets, where an offset for each partition may stand",
    "startingOffsetsByTimestamp": "use startingOffsets, where an offset for each partition may stand",
    "startingOffsetsByTimestampStrategy": "leave it out",
    "endingOffsets": "use trigger={'availableNow': True}, which ends at what is there",
    "endingTimestamp": "use trigger={'availableNow': True}, which ends at what is there",
    "endingOffsetsByTimestamp": "use trigger={'availableNow': True}, which ends at what is there",
}

_NUMBERS: Final = (
    "maxOffsetsPerTrigger",
    "minOffsetsPerTrigger",
    "minPartitions",
    "maxRecordsPerPartition",
    "kafkaConsumer.pollTimeoutMs",
    "fetchOffset.numRetries",
    "fetchOffset.retryIntervalMs",
)
_DURATION: Final = re.compile(r"[0-9]+(us|ms|s|m|min|h|d)?")

T = TypeVar("T")

Starting = str | Mapping[str, Mapping[int, int]]


@dataclass(frozen=True, slots=True)
class KafkaOptions:
    """Checked options.

    Attributes:
        subscribe: the names of the topics.
        given: what the source gets, but for the topics and where it begins; may have passwords.
        starting: ``earliest``, ``latest``, or an offset for each partition.
        fail_on_data_loss: whether offsets that are gone are an error.
    """

    subscribe: tuple[str, ...]
    given: Mapping[str, str] = field(repr=False)
    starting: Starting
    fail_on_data_loss: bool

    def starts(self, bounds: Mapping[Part, Bounds]) -> dict[Part, int]:
        """Where partitions begin. Raises InvalidInputError where offsets are given, and not one for each partition."""
        return {part: self._start(part, found) for part, found in bounds.items()}

    def _start(self, part: Part, found: Bounds) -> int:
        if isinstance(self.starting, str):
            return found.earliest if self.starting == "earliest" else found.latest
        offset = self.starting.get(part.topic, {}).get(part.partition)
        if offset is None:
            raise InvalidInputError(
                f"{_START} has no offset for the {part}",
                advice=f"name all partitions; {EARLIEST_OFFSET} is the earliest offset, {LATEST_OFFSET} the latest one",
            )
        if offset in {EARLIEST_OFFSET, LATEST_OFFSET}:
            return found.earliest if offset == EARLIEST_OFFSET else found.latest
        if not found.earliest <= offset <= found.latest:
            raise InvalidInputError(
                f"{_START} has the offset {offset} for the {part}, which has those from {found.earliest} to "
                f"{found.latest}",
                advice=f"use one of these, or {EARLIEST_OFFSET} for the earliest one",
            )
        return offset


def kafka_options(subscribe: str | Sequence[str], options: Mapping[str, object]) -> KafkaOptions:
    """Check the options of a call. Raises InvalidInputError, in whose text no value of a ``kafka.`` option appears."""
    given = _texts(options)
    by_name = {name.lower(): name for name in given}
    if SERVERS not in by_name:
        raise InvalidInputError(f"options lack {SERVERS!r}", advice=f"pass options={{'{SERVERS}': 'HOST:PORT'}}")
    starting = _starting(given.pop(by_name.get(_START.lower(), ""), "earliest"))
    fail = _checked(_LOSS, given.get(by_name.get(_LOSS.lower(), ""), "true"), flag)
    _check_values(given, by_name)
    if ISOLATION_LEVEL not in by_name:
        given[ISOLATION_LEVEL] = "read_committed"
    return KafkaOptions(_topics(subscribe), given, starting, fail)


def _check_values(given: dict[str, str], by_name: Mapping[str, str]) -> None:
    """Check what Spark's source looks at only when the query runs, where it ended another run already."""
    checks: dict[str, Callable[[str], object]] = {
        **{name: whole(1) for name in _NUMBERS},
        "maxTriggerDelay": _duration,
        HEADERS: flag,
    }
    for name, check in checks.items():
        own = by_name.get(name.lower())
        if own is not None:
            _checked(name, given[own], check)
            given[own] = given[own].strip()


def _duration(text: str) -> None:
    if not _DURATION.fullmatch(text.strip().lower()):
        raise BadValueError("is a time such as 90s or 15m")


def _texts(options: object) -> dict[str, str]:
    if not isinstance(options, Mapping):
        raise InvalidInputError(
            f"options is a dict of options of Spark's Kafka source, not {type_of(options)}",
            advice=f"pass options={{'{SERVERS}': 'HOST:PORT'}}",
        )
    refused = {name.lower(): (name, advice) for name, advice in _REFUSED.items()}
    known = {name.lower() for name in _TAKEN}
    found: dict[str, str] = {}
    for name, value in options.items():
        if not isinstance(name, str) or not isinstance(value, str | int):
            raise InvalidInputError(
                f"the option {shown(name)} is not text: {type_of(value)}", advice="give names and values as text"
            )
        lower = name.lower()
        if lower in refused:
            own, advice = refused[lower]
            raise InvalidInputError(f"the option {own!r} is none of an ingestion's", advice=advice)
        if not lower.startswith("kafka.") and lower not in known:
            raise InvalidInputError(
                f"Spark's Kafka source has no option {shown(name)}", advice=nearest(name, (*_TAKEN, *_REFUSED, SERVERS))
            )
        if lower in {seen.lower() for seen in found}:
            raise InvalidInputError(f"the option {shown(name)} is given twice", advice="give it once")
        found[name] = str(value).lower() if isinstance(value, bool) else str(value)
    return found


def _topics(subscribe: object) -> tuple[str, ...]:
    names = [name.strip() for name in subscribe.split(",")] if isinstance(subscribe, str) else subscribe
    if (
        not isinstance(names, Sequence)
        or not names
        or not all(isinstance(name, str) and name and "," not in name for name in names)
        or len(set(names)) != len(names)
    ):
        raise InvalidInputError(
            f"subscribe is the name of a Kafka topic, or a list of different ones, not {shown(subscribe)}",
            advice="pass subscribe='orders'",
        )
    return tuple(names)


def _checked(name: str, text: str, check: Callable[[str], T]) -> T:
    try:
        return check(text)
    except BadValueError as error:
        raise InvalidInputError(
            f"the option {name!r} {error}, not {shown(text)}", advice="correct it, or leave it out"
        ) from None


def _starting(text: str) -> Starting:
    word = text.strip().lower()
    if word in {"earliest", "latest"}:
        return word
    try:
        return partition_offsets(text)
    except ValueError:
        raise InvalidInputError(
            f"the option {_START!r} is 'earliest', 'latest' or JSON with an offset for each partition, not "
            f"{shown(text)}",
            advice="""pass 'earliest', or like '{"orders": {"0": 17, "1": -2}}'""",
        ) from None


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


# --- what the cluster still has ---------------------------------------------------------------------------------------


def gone(part: Part, position: int, earliest: int) -> OffsetOutOfRange:
    """The error for messages that retention deleted before they were ingested."""
    return OffsetOutOfRange(
        f"the {part} begins at offset {earliest}, and the ingestion continues at {position}: the messages between were "
        "deleted by retention before they were ingested",
        advice=f"restore them, or accept the loss with the option {_LOSS}=false, which goes on at the earliest offset",
        durable=Durable.NOTHING,
    )


def went_back(what: str) -> OffsetOutOfRange:
    """The error for offsets that mean other messages now, or none."""
    return OffsetOutOfRange(
        f"{what}: the Kafka topic was created again, or lost messages",
        advice="to ingest what it has now, give the ingestion another name (name=...) and a new checkpoint",
        durable=Durable.NOTHING,
    )


__all__ = [
    "HEADERS",
    "ISOLATION_LEVEL",
    "SERVERS",
    "KafkaOptions",
    "gone",
    "kafka_options",
    "offsets_text",
    "partition_offsets",
    "went_back",
]
