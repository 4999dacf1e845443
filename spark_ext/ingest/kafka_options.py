"""Options of Spark's Kafka source, as an ingestion takes them: which may be given, and where it begins."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Final, TypeVar

from spark_ext.ingest.kafka_cluster import Bounds
from spark_ext.ingest.positions import TopicPartition
from spark_ext.support.option_parsing import EARLIEST_OFFSET, LATEST_OFFSET, BadValueError, flag, position, whole
from txnlog.common.names import nearest
from txnlog.common.validation import shown, type_of
from txnlog.errors import InvalidInputError

SERVERS: Final = "kafka.bootstrap.servers"
ISOLATION_LEVEL: Final = "kafka.isolation.level"
_START: Final = "startingOffsets"
_LOSS: Final = "failOnDataLoss"
HEADERS: Final = "includeHeaders"

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

_MOST_OF_INT: Final = 2**31 - 1
_MOST_OF_LONG: Final = 2**63 - 1

_MOST_OFFSETS: Final = "maxOffsetsPerTrigger"
_LEAST_OFFSETS: Final = "minOffsetsPerTrigger"

_NUMBERS: Final = {
    _MOST_OFFSETS: _MOST_OF_LONG,
    _LEAST_OFFSETS: _MOST_OF_LONG,
    "minPartitions": _MOST_OF_INT,
    "maxRecordsPerPartition": _MOST_OF_LONG,
    "kafkaConsumer.pollTimeoutMs": _MOST_OF_INT,
    "fetchOffset.numRetries": _MOST_OF_INT,
    "fetchOffset.retryIntervalMs": _MOST_OF_INT,
}
"""By option the largest number that the source takes: of those that Java can hold, one that it can add to a time."""

_DURATION: Final = re.compile(r"[0-9]{1,9}(us|ms|s|m|min|h|d)?")

_TAKEN: Final = (
    _START,
    _LOSS,
    HEADERS,
    "maxTriggerDelay",
    "groupIdPrefix",
    *_NUMBERS,
)

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
        starts_given: whether ``startingOffsets`` was given.
    """

    subscribe: tuple[str, ...]
    given: Mapping[str, str] = field(repr=False)
    starting: Starting
    fail_on_data_loss: bool
    starts_given: bool = False

    def starts(self, bounds: Mapping[TopicPartition, Bounds]) -> dict[TopicPartition, int]:
        """Where partitions begin. Raises InvalidInputError where offsets are given, and not one for each partition."""
        return {part: self._start(part, found) for part, found in bounds.items()}

    def offsets_of(self, parts: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """The offsets that are given for partitions by number."""
        if isinstance(self.starting, str):
            return {}
        given = {part: self.starting.get(part.topic, {}).get(part.partition, LATEST_OFFSET) for part in parts}
        return {part: offset for part, offset in given.items() if offset >= 0}

    def other_starts(self, known: Mapping[TopicPartition, int]) -> list[TopicPartition]:
        """Of the partitions that the log has, those for which another offset is given than where they are."""
        return [part for part, offset in self.offsets_of(known).items() if offset != known[part]]

    def starts_of_others(self) -> list[str]:
        """The topics for which offsets are given, and that are not subscribed to."""
        return [] if isinstance(self.starting, str) else sorted(set(self.starting) - set(self.subscribe))

    def check_starts(self, parts: Iterable[TopicPartition]) -> None:
        """Raise InvalidInputError where an offset is given for a partition that its topic does not have.

        The first message is no slip: a topic that was created again may have fewer partitions than before.
        """
        if isinstance(self.starting, str):
            return
        known = set(parts)  # there may be 30,000 of them
        for topic in self.subscribe:
            for number, offset in self.starting.get(topic, {}).items():
                part = TopicPartition(topic, number)
                if offset != EARLIEST_OFFSET and part not in known:
                    raise InvalidInputError(
                        f"{_START} has the offset {offset} for the {part}, which Kafka does not have",
                        advice="leave it out, or correct its number",
                    )

    def _start(self, part: TopicPartition, found: Bounds) -> int:
        if isinstance(self.starting, str):
            return found.earliest if self.starting == "earliest" else found.latest
        offset = self.starting.get(part.topic, {}).get(part.partition)
        if offset is None:
            raise InvalidInputError(
                f"{_START} has no offset for the {part}",
                advice=f"name all partitions, those that were added as well; {EARLIEST_OFFSET} is the earliest offset, "
                f"{LATEST_OFFSET} the latest one",
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
    start = given.pop(by_name.get(_START.lower(), ""), None)
    starting = _starting("earliest" if start is None else start)
    found = _checked_values(given, by_name)
    least, most = found.get(_LEAST_OFFSETS), found.get(_MOST_OFFSETS)
    if least is not None and most is not None and int(least) > int(most):
        raise InvalidInputError(
            f"the option {_LEAST_OFFSETS!r} is {least}, and {_MOST_OFFSETS!r} is {most}, which is less",
            advice="correct one of them, or leave it out",
        )
    if ISOLATION_LEVEL not in by_name:
        given[ISOLATION_LEVEL] = "read_committed"
    return KafkaOptions(_topics(subscribe), given, starting, found.get(_LOSS) != "false", start is not None)


def _checked_values(given: dict[str, str], by_name: Mapping[str, str]) -> dict[str, str]:
    """Check what Spark's source looks at only when the query runs, and have it get what was checked: without blanks."""
    checks: dict[str, Callable[[str], object]] = {
        **{name: partial(_number, most=most) for name, most in _NUMBERS.items()},
        "maxTriggerDelay": _duration,
        HEADERS: flag,
        _LOSS: flag,
    }
    found: dict[str, str] = {}
    for name, check in checks.items():
        own = by_name.get(name.lower())
        if own is not None:
            _checked(name, given[own], check)
            found[name] = given[own] = given[own].strip().lower()
    return found


def _number(text: str, most: int) -> None:
    if whole(1)(text) > most:
        raise BadValueError(f"is a whole number from 1 to {most}")


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
    try:
        return position(text)
    except BadValueError:
        raise InvalidInputError(
            f"the option {_START!r} is 'earliest', 'latest' or JSON with an offset for each partition, not "
            f"{shown(text)}",
            advice="""pass 'earliest', or like '{"orders": {"0": 17, "1": -2}}'""",
        ) from None


__all__ = ["HEADERS", "ISOLATION_LEVEL", "SERVERS", "KafkaOptions", "kafka_options"]
