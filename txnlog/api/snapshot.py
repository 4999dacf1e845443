"""A consistent view of all topics of a namespace at one version."""

from __future__ import annotations

import datetime
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from operator import index
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from txnlog.client import positions
from txnlog.client.arrow_start import start_arrow
from txnlog.common.validation import IN_SECONDS, epoch_ms, is_in_seconds, printable, shown, truth
from txnlog.data import scan_planner
from txnlog.data.conditions import misfit
from txnlog.data.scan_planner import OffsetRanges, ScanPlan
from txnlog.data.segment_reader import output_schema, parts_of
from txnlog.data.segment_rows import offsets_text
from txnlog.engine.log_lines import LogLines
from txnlog.errors import InvalidInputError, VersionNotAvailable
from txnlog.fold.garbage import may_be_gone
from txnlog.replies import only_looking

if TYPE_CHECKING:
    from txnlog.client.connection import Connection

_logger = LogLines("txnlog.snapshot")


class Snapshot:
    """Every topic at one version: whole transactions only, over all topics at once. Repeatable while it is readable.

    Attributes:
        version: the version of the namespace that it shows.
    """

    def __init__(self, connection: Connection, version: int) -> None:
        self._connection = connection
        self.version = version

    def __repr__(self) -> str:
        return f"Snapshot({self._connection.name!r}, version={self.version})"

    def _repr_html_(self) -> str:
        rows = "".join(
            f"<tr><td>{name}</td><td>{sum(self.end_offsets(name).values()):,}</td></tr>" for name in self.topics()
        )
        return f"<table><caption>{self!r}</caption><tr><th>topic</th><th>messages</th></tr>{rows}</table>"

    def topics(self) -> tuple[str, ...]:
        """Names of the topics at this version, sorted."""
        records = self._connection.follower.topics()
        return tuple(sorted(record.name for record in records if record.exists_at(self.version)))

    def start_offsets(self, topic: str) -> dict[int, int]:
        """The earliest offset that can be read now, by partition: what was removed is readable at no version.

        Raises:
            TopicNotFound: there was none at this version; with the nearest name.
        """
        return positions.start_offsets(self._connection.follower, self._connection.topic_record(topic, self.version))

    def end_offsets(self, topic: str) -> dict[int, int]:
        """The offset behind the last message that is visible at this version, by partition.

        Raises:
            TopicNotFound: there was none at this version; with the nearest name.
        """
        record = self._connection.topic_record(topic, self.version)
        return positions.end_offsets(self._connection.follower, record, self.version)

    @only_looking()
    def plan(
        self,
        topic: str,
        *,
        offsets: OffsetRanges | None = None,
        isolation_level: str = "read_committed",
        exclude_segments: Collection[int] = (),
    ) -> ScanPlan:
        """What a scan of the topic reads: files, rows and constants. For engines that read by themselves.

        A later vacuum may delete the files. ``exclude_segments``: see :meth:`scan`.

        Raises:
            TopicNotFound: there was none at this version; with the nearest name.
            OffsetOutOfRange: naming the offsets that there are.
            VersionNotAvailable: a vacuum has made this version unreadable since the snapshot was made.
            InvalidInputError: an unknown isolation level, offsets that are none, or a segment that the topic never had.
        """
        level = scan_planner.parse_isolation_level(isolation_level)
        unavailable = self._connection.follower.unavailable(self.version)  # a vacuum, since this snapshot was made
        if unavailable is not None:
            raise unavailable
        record = self._connection.topic_record(topic, self.version)
        starts = positions.start_offsets(self._connection.follower, record)
        if offsets is not None:
            offsets = _parsed_offsets(offsets)
            ends = positions.end_offsets(self._connection.follower, record, self.version)
            scan_planner.check_offsets(offsets, starts, ends)
        excluded = segment_numbers(exclude_segments)
        segments, removals = self._connection.follower.segments(record.id, -1 if excluded else self.version)
        check_known(excluded, (item.number for item in segments), [topic])
        if level == "read_uncommitted":
            oldest = self._connection.follower.state.head.oldest_readable
            segments = [item for item in segments if not may_be_gone(item, oldest)]
        everything = scan_planner.plan(
            segments,
            removals,
            topic=topic,
            folder=record.folder,
            schema=record.schema_at(self.version),
            coordinators=self._connection.coordinators,
            version=self.version,
            isolation_level=level,
            offsets=offsets,
            starts=starts,
        )
        plan, left_out = scan_planner.without_segments(everything, excluded)
        for item in left_out:
            rows = offsets_text((part.partition, part.offset, part.width) for part in item.slices)
            text = (
                "A scan of %r at version %d leaves out %d rows, as exclude_segments asks for: the segment %d, with %s."
            )
            _logger.warning(text, topic, self.version, item.rows, item.number, rows)
        return plan

    @only_looking()
    def scan(
        self,
        topic: str,
        *,
        columns: Sequence[str] | None = None,
        filter: Any = None,  # noqa: A002 - pyarrow's name for it
        offsets: OffsetRanges | None = None,
        isolation_level: str = "read_committed",
        include_metadata: bool = False,
        exclude_segments: Collection[int] = (),
    ) -> pa.RecordBatchReader:
        """The topic's rows as a stream of record batches, a few segments in memory at a time.

        Args:
            topic: a topic that exists at this version.
            columns: names of user columns; all by default. With none, ``[]``, batches have rows without columns.
            filter: a pyarrow expression over the topic's columns, wanted or not, and the metadata if it is included.
            offsets: by partition the offsets ``(start, end)``; partitions that are not named are not read.
            isolation_level: ``read_committed``, or ``read_uncommitted`` with pending and aborted rows as well.
            include_metadata: add ``_partition``, ``_offset``, ``_timestamp``, ``_txn_id``, ``_version``.
            exclude_segments: numbers of segments to leave out, as the error for a damaged one names them. A warning of
                the logger ``txnlog.snapshot`` says which rows that leaves out.

        Raises:
            CorruptionError: a segment is missing or damaged; no rows of it come out. It names the rows and the number
                for ``exclude_segments``.
            OffsetOutOfRange, TopicNotFound, VersionNotAvailable, InvalidInputError: as they say, before anything is
                read.
        """
        if filter is not None and not isinstance(filter, pc.Expression):
            raise InvalidInputError(
                f"a filter is a pyarrow.compute expression, not {type(filter).__name__}",
                advice='use e.g. pyarrow.compute.field("id") > 7',
            )
        include_metadata = truth("include_metadata", include_metadata)
        start_arrow()
        plan = self.plan(topic, offsets=offsets, isolation_level=isolation_level, exclude_segments=exclude_segments)
        schema = output_schema(plan, columns, include_metadata=include_metadata)
        inner = columns
        if filter is not None and columns is not None:
            inner = None  # the filter may name columns that are not wanted
        tables = self._tables(plan, inner, include_metadata=include_metadata)
        if filter is None:
            batches = (batch for table in tables for batch in table.to_batches())
        else:
            wrong = misfit(filter, output_schema(plan, inner, include_metadata=include_metadata))
            if wrong is not None:
                raise InvalidInputError(f"the filter does not fit the columns: {wrong.reason}", advice=wrong.advice)
            batches = (batch for table in tables for batch in _filtered(table, filter, schema).to_batches())
        return pa.RecordBatchReader.from_batches(schema, batches)

    def _tables(self, plan: ScanPlan, columns: Sequence[str] | None, *, include_metadata: bool) -> Iterator[pa.Table]:
        """One table a segment. A forked child that goes on with a scan of its parent has a reader of its own."""
        for part in parts_of(plan):
            yield from self._connection.reader.batches(part, columns=columns, include_metadata=include_metadata)

    def read(
        self,
        topic: str,
        *,
        columns: Sequence[str] | None = None,
        filter: Any = None,  # noqa: A002 - pyarrow's name for it
        offsets: OffsetRanges | None = None,
        isolation_level: str = "read_committed",
        include_metadata: bool = False,
        exclude_segments: Collection[int] = (),
    ) -> pa.Table:
        """The topic's rows as one table; see :meth:`scan`."""
        return self.scan(
            topic,
            columns=columns,
            filter=filter,
            offsets=offsets,
            isolation_level=isolation_level,
            include_metadata=include_metadata,
            exclude_segments=exclude_segments,
        ).read_all()


def _filtered(table: pa.Table, expression: Any, schema: pa.Schema) -> pa.Table:
    try:
        return table.filter(expression).select(schema.names)
    except (pa.ArrowException, TypeError, ValueError, KeyError) as error:
        raise InvalidInputError(
            f"the filter fails on rows: {printable(str(error))}", advice="use one that every row can answer"
        ) from None


def segment_numbers(given: object) -> frozenset[int]:
    """The numbers of segments that are to be left out. Raises InvalidInputError for what is no list of them."""
    wrong = InvalidInputError(
        f"exclude_segments is a list of the numbers of segments, not {shown(given)}",
        advice="pass the number that the error for a damaged segment names, e.g. exclude_segments=[1031]",
    )
    if isinstance(given, str | bytes) or not isinstance(given, Iterable):
        raise wrong
    numbers: set[int] = set()
    for item in given:
        if isinstance(item, bool) or not isinstance(item, int):
            raise wrong
        numbers.add(item)
    return frozenset(numbers)


def check_known(excluded: Collection[int], known: Iterable[int], topics: Sequence[str]) -> None:
    """Raise InvalidInputError for a segment that is to be left out and that the topics never had."""
    unknown = set(excluded).difference(known) if excluded else ()
    if unknown:
        what = f"the topic {topics[0]!r} does not have" if len(topics) == 1 else f"none of {len(topics)} topics has"
        raise InvalidInputError(
            f"exclude_segments names the segment {min(unknown)}, which {what}",
            advice="pass the number that the error for a damaged segment names",
        )


def _parsed_offsets(offsets: Mapping[int, Any]) -> OffsetRanges:
    try:
        pairs = [(partition, start, end) for partition, (start, end) in offsets.items()]
        return {index(partition): (index(start), index(end)) for partition, start, end in pairs}
    except (AttributeError, TypeError, ValueError):
        raise InvalidInputError(
            f"offsets is a dict {{partition: (start, end)}}, not {shown(offsets)}",
            advice="pass e.g. offsets={0: (0, 100)}",
        ) from None


def snapshot_at(connection: Connection, version: int) -> Snapshot:
    """A snapshot of a version that this client knows. Raises VersionNotAvailable where it cannot be read."""
    unavailable = connection.follower.unavailable(version)
    if unavailable is not None:
        raise unavailable
    return Snapshot(connection, version)


def snapshot_of(
    connection: Connection, version: int | None, timestamp: datetime.datetime | str | int | None
) -> Snapshot:
    """The newest snapshot, or that of a version or of a time; see ``Namespace.snapshot``."""
    newest = connection.follower.refresh()
    if version is not None and type(version) is not int:
        of_time = isinstance(version, datetime.datetime | str)
        advice = f"give 0 to {newest}" + (", or a time as timestamp=" if of_time else "")
        raise InvalidInputError(f"the version is a whole number, not {shown(version)}", advice=advice)
    if version is not None and timestamp is not None:
        raise InvalidInputError("give a version or a timestamp, not both")
    if timestamp is not None:
        version = _version_at(connection, timestamp)
    return snapshot_at(connection, newest if version is None else version)


def _version_at(connection: Connection, timestamp: datetime.datetime | str | int) -> int:
    version = connection.follower.log.version_at(epoch_ms(timestamp), connection.follower.version)
    if version is None:
        unit = " (epoch milliseconds)" if isinstance(timestamp, int) else ""
        seconds = is_in_seconds(epoch_ms(timestamp), connection.log_now_ms())
        advice = IN_SECONDS if seconds else "ask for a later time"
        raise VersionNotAvailable(f"the log begins after {timestamp}{unit}", advice=advice)
    return version


__all__ = ["Snapshot", "check_known", "segment_numbers", "snapshot_at", "snapshot_of"]
