"""Resolving the options for the beginning and end of a read to offsets, on the driver and in planning processes."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Final

from spark_ext.read.scan import Scan
from spark_ext.support.option_parsing import EARLIEST_OFFSET, LATEST_OFFSET, Position
from txnlog.api.internals import connection_of
from txnlog.api.snapshot import Snapshot
from txnlog.common.names import nearest
from txnlog.common.validation import IN_SECONDS, is_in_seconds, is_to_come
from txnlog.errors import InvalidInputError, OffsetOutOfRange

_logger: Final = logging.getLogger("txnlog.spark")

Offsets = dict[str, dict[int, int]]
"""By topic and partition an offset."""


def starts_of(scan: Scan) -> Offsets:
    """The offsets at which a read begins by the options, by default the earliest. Not clipped to existing offsets.

    Raises:
        VersionNotAvailable: ``startingVersion`` was vacuumed, or does not exist yet.
        InvalidInputError: ``startingOffsets`` does not fit the topics; a time is yet to come, or in seconds.
    """
    options = scan.options
    if options.starting_version is not None:
        _check_version(scan, options.starting_version)
        return {topic: _ends_at(scan, topic, options.starting_version - 1) for topic in scan.topics}
    if options.starting_timestamp is not None:
        now_ms = connection_of(scan.namespace).log_now_ms()
        if is_to_come(options.starting_timestamp, now_ms):
            raise InvalidInputError(
                f"the option 'startingTimestamp' is {options.starting_timestamp - now_ms} ms in the future",
                advice="give a time that has come; all digits are epoch milliseconds",
            )
        return _offsets_from(scan, options.starting_timestamp, "startingTimestamp")
    return _resolve(options.starting_offsets or "earliest", scan, "startingOffsets")


def ends_of(scan: Scan) -> Offsets:
    """The offsets at which a read ends by the options, by default those at the scan's version. Not clipped."""
    options = scan.options
    if options.ending_timestamp is not None:
        return _offsets_from(scan, options.ending_timestamp, "endingTimestamp")
    return _resolve(options.ending_offsets or "latest", scan, "endingOffsets")


def ranges_of(scan: Scan) -> dict[str, dict[int, tuple[int, int]]]:
    """By topic and partition the offsets that a batch reads; empty ranges are left out.

    Raises OffsetOutOfRange for offsets that do not exist (see ``clip``), or that end before they begin.
    """
    options = scan.options
    starts, ends = starts_of(scan), ends_of(scan)
    by_time = options.starting_timestamp is not None or options.ending_timestamp is not None
    if by_time or options.starting_version is not None:
        # Bounds of different kinds may be out of order in a partition: then it has no messages between them.
        ends = {t: {p: max(end, starts[t][p]) for p, end in found.items()} for t, found in ends.items()}
    return {topic: clip(topic, starts[topic], ends[topic], scan) for topic in scan.topics}


def _check_version(scan: Scan, version: int) -> None:
    unavailable = connection_of(scan.namespace).follower.unavailable(version)
    if unavailable is not None:
        raise unavailable
    if version > scan.snapshot.version:  # versionAsOf was compared without the log; this check is for timestampAsOf
        raise InvalidInputError(
            f"the option 'startingVersion' ({version}) is beyond the version that is read, {scan.snapshot.version}",
            advice="give an earlier one, or read a later version",
        )


def _offsets_from(scan: Scan, timestamp_ms: int, option: str) -> Offsets:
    """By partition the first readable offset whose message is not older than a time.

    The log's timestamps never decrease, so that these are the ends at the last version before the time.
    Raises InvalidInputError for a time in seconds, which would be in 1970 and select all messages, or none.
    """
    if is_in_seconds(timestamp_ms, connection_of(scan.namespace).log_now_ms()):
        raise InvalidInputError(f"the option {option!r} is {timestamp_ms}, a time of 1970", advice=IN_SECONDS)
    before = connection_of(scan.namespace).follower.log.version_at(timestamp_ms - 1, scan.snapshot.version)
    result: Offsets = {}
    for topic in scan.topics:
        starts, ends = bounds(scan, topic)[0], _ends_at(scan, topic, -1 if before is None else before)
        result[topic] = {p: max(start, ends[p]) for p, start in starts.items()}
    return result


def _ends_at(scan: Scan, topic: str, version: int) -> dict[int, int]:
    """By partition the end of a topic at a version; 0 before it was created, even if the name existed."""
    connection = connection_of(scan.namespace)
    record = connection.topic_record(topic, scan.snapshot.version)
    if version < record.id:
        return dict.fromkeys(range(record.partitions), 0)
    return Snapshot(connection, version).end_offsets(topic)


def bounds(scan: Scan, topic: str) -> tuple[dict[int, int], dict[int, int]]:
    """By partition the earliest readable offset, and the end at the scan's version."""
    starts, ends = scan.snapshot.start_offsets(topic), scan.snapshot.end_offsets(topic)
    return {p: min(starts[p], ends[p]) for p in starts}, ends


def _resolve(position: Position, scan: Scan, option: str) -> dict[str, dict[int, int]]:
    """Offsets of an option ``startingOffsets`` or ``endingOffsets``, by topic and partition; not clipped to the data.

    Raises InvalidInputError where JSON leaves out, or adds, a topic or partition (as Spark's Kafka source does).
    """
    result: dict[str, dict[int, int]] = {}
    if not isinstance(position, str):
        unknown = position.keys() - set(scan.topics)
        if unknown:
            raise InvalidInputError(
                f"the option {option!r} names the topic {min(unknown)!r}, which is not read",
                advice=nearest(min(unknown), scan.topics),
            )
    for topic in scan.topics:
        starts, ends = bounds(scan, topic)
        if isinstance(position, str):
            result[topic] = starts if position == "earliest" else ends
            continue
        given = position.get(topic, {})
        missing, more = sorted(starts.keys() - given.keys()), sorted(given.keys() - starts.keys())
        if missing or more:
            wrong = f"leaves out partition {missing[0]}" if missing else f"names partition {more[0]}"
            raise InvalidInputError(
                f"the option {option!r} {wrong} of the topic {topic!r}",
                advice=f"name its partitions 0 to {len(starts) - 1}; -2 is the earliest offset, -1 the latest",
            )
        special = {EARLIEST_OFFSET: starts, LATEST_OFFSET: ends}
        result[topic] = {p: special[offset][p] if offset in special else offset for p, offset in given.items()}
    return result


def clip(topic: str, start: Mapping[int, int], end: Mapping[int, int], scan: Scan) -> dict[int, tuple[int, int]]:
    """The readable parts of offset ranges.

    Raises OffsetOutOfRange for offsets that do not exist, or no longer, unless ``failOnDataLoss`` is false: then what
    is left is read, and a warning says how many messages are missing.
    """
    starts, ends = bounds(scan, topic)
    result: dict[int, tuple[int, int]] = {}
    for partition, low in start.items():
        high = end[partition]
        first, last = starts.get(partition, 0), ends.get(partition, 0)
        if low > high:
            raise OffsetOutOfRange(
                f"partition {partition} of {topic!r}: the start {low} is beyond the end {high}",
                advice=f"give a start from {first} to {last}, where its next message will be"
                if low > last
                else f"give a start of at most {high}, or an end of at least {low}",
            )
        kept = (min(max(low, first), last), max(min(high, last), first))
        lost = (high - low) - max(0, kept[1] - kept[0])
        if low < first or high > last:
            text = f"partition {partition} of {topic!r} holds offsets {first} to {last}; {low} to {high} were requested"
            if low < first:
                text += f" (the messages from {low} to {min(high, first) - 1} were deleted)"
            if scan.options.fail_on_data_loss:
                raise OffsetOutOfRange(
                    text, advice="request offsets that exist, or set failOnDataLoss to false to go on with the rest"
                )
            _logger.warning("%s: %d messages do not exist and are left out", text, lost)
        if kept[0] < kept[1]:
            result[partition] = kept
    return result


__all__ = ["Offsets", "bounds", "clip", "ends_of", "ranges_of", "starts_of"]
