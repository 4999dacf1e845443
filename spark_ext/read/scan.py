"""What a read of the ``txnlog`` format looks at: namespace, topics, version, columns. For the driver and for planning.

Batch reads and streams share it; executors never import it.
"""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

import pyarrow as pa
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import (
    ArrayType,
    DataType,
    MapType,
    StringType,
    StructField,
    StructType,
)

from spark_ext.read import filters
from spark_ext.read.conditions import Condition
from spark_ext.read.task_reader import BATCH_ROWS, TOPIC_COLUMN, ReadJob, ReadPartition, SegmentTask
from spark_ext.support.namespace_cache import location_of, namespace_at
from spark_ext.support.options import ReadOptions
from spark_ext.support.spark_schemas import arrow_for_spark, spark_schema
from txnlog.api.internals import connection_of
from txnlog.api.snapshot import Snapshot, check_known
from txnlog.common.names import nearest
from txnlog.data import schema_evolution
from txnlog.data.scan_planner import OffsetRanges, ScanPlan
from txnlog.data.segment_rows import METADATA_FIELDS, STATE_FIELD, PlannedSegment, PlannedSlice
from txnlog.errors import InvalidInputError, SchemaMismatch, TopicNotFound
from txnlog.format import schema as schemas

if TYPE_CHECKING:
    from txnlog.api.namespace import Namespace
    from txnlog.client.session_owner import Mode
    from txnlog.fold.state import SegmentRecord

METADATA: Final = tuple(from_arrow_schema(pa.schema(METADATA_FIELDS)).fields)
STATE: Final = from_arrow_schema(pa.schema([STATE_FIELD])).fields[0]
TOPIC: Final = StructField(TOPIC_COLUMN, StringType(), False)

_PARTITION_BYTES: Final = 256 << 20
"""The most compressed bytes of one input partition, whatever the number of processors."""


@dataclass(frozen=True, slots=True)
class Scan:
    """One or several topics of a namespace at a version. ``schema`` is the schema that Spark gets."""

    options: ReadOptions
    root: str
    namespace: Namespace
    topics: tuple[str, ...]
    snapshot: Snapshot
    columns: schemas.StructType
    schema: StructType
    conditions: tuple[Condition, ...] = ()

    def job(self, wanted: StructType) -> ReadJob:
        """What executors need to read these columns. Raises SchemaMismatch unless the topics have them."""
        check_schema(wanted, self.schema, "the topic" if len(self.topics) == 1 else "the topics")
        return ReadJob(
            self.root,
            self.namespace.name,
            connection_of(self.namespace).coordinators,
            schemas.to_arrow(self.columns),
            arrow_for_spark(wanted),
            self.options.storage_options,
            self.conditions,
        )

    def plan(self, topic: str, offsets: OffsetRanges | None) -> ScanPlan:
        """The plan for a topic, without files that have no row for the option ``filters`` by the log's statistics."""
        plan = self.snapshot.plan(
            topic,
            offsets=offsets,
            isolation_level=self.options.isolation_level,
            exclude_segments=self._excluded(topic),
        )
        if not self.conditions:
            return plan
        records = _segments_of(self.namespace, self.snapshot, topic)
        known = {record.number: record.statistics for record in records}
        return filters.pruned(plan, self.conditions, schemas.to_arrow(self.columns), known)

    def _excluded(self, topic: str) -> frozenset[int]:
        """The segments of a topic that are to be left out."""
        wanted = self.options.exclude_segments
        if not wanted:
            return wanted
        return wanted.intersection(item.number for item in _segments_of(self.namespace, self.snapshot, topic))


def _segments_of(namespace: Namespace, snapshot: Snapshot, topic: str) -> list[SegmentRecord]:
    """The records of all segments that a topic ever had."""
    connection = connection_of(namespace)
    return connection.follower.segments(connection.topic_record(topic, snapshot.version).id)[0]


def _check_excluded(options: ReadOptions, namespace: Namespace, snapshot: Snapshot, topics: Sequence[str]) -> None:
    """Raise InvalidInputError for a segment that is to be left out and that none of the topics has."""
    if options.exclude_segments:
        known = {item.number for topic in topics for item in _segments_of(namespace, snapshot, topic)}
        check_known(options.exclude_segments, known, topics)


def open_scan(options: ReadOptions, *, mode: Mode = "r", columns: schemas.StructType | None = None) -> Scan:
    """Resolve namespace, topics and version of a read. ``columns`` are those with which a running query began.

    Raises:
        NamespaceNotFound, TopicNotFound, VersionNotAvailable: with the nearest name, or the range that can be read.
        SchemaMismatch: several topics with different columns, or with others by now than a running query can read.
        InvalidInputError: no topic was named, or a column does not exist.
    """
    storage = options.storage_options
    location = location_of(options.path, storage, topics_named=options.several)
    namespace = namespace_at(location, mode, storage)
    snapshot = namespace.snapshot(options.version_as_of, options.timestamp_as_of)
    if options.subscribe is not None:
        topics = options.subscribe
    elif options.subscribe_pattern is not None:
        topics = _matching(options.subscribe_pattern, location.namespace, snapshot)
    elif location.topic is not None:
        topics = (location.topic,)
    else:
        raise no_topic(snapshot, location.namespace, "append the topic, or name some in the option subscribe")
    if columns is None:
        columns = _common_columns(namespace, snapshot, topics)
    else:
        _check_readable(namespace, snapshot, topics, columns)
    _check_excluded(options, namespace, snapshot, topics)
    offered = _offered(options, columns)
    return Scan(options, location.root, namespace, topics, snapshot, columns, offered, _conditions(options, columns))


def no_topic(snapshot: Snapshot, namespace: str, advice: str) -> InvalidInputError:
    """The error where a path names a namespace, and a topic is wanted."""
    return InvalidInputError(
        f"the path names the namespace {namespace!r} and no topic", advice=f"{advice}; {nearest('', snapshot.topics())}"
    )


def _conditions(options: ReadOptions, columns: schemas.StructType) -> tuple[Condition, ...]:
    if not options.filters:
        return ()
    metadata = StructType(metadata_fields(options.isolation_level, topic=options.several))
    return filters.conditions_of(options.filters, pa.schema([*schemas.to_arrow(columns), *arrow_for_spark(metadata)]))


def _matching(pattern: str, namespace: str, snapshot: Snapshot) -> tuple[str, ...]:
    """The topics whose whole name a pattern matches, as in Spark's Kafka source; sorted."""
    known = snapshot.topics()
    found = tuple(topic for topic in known if re.fullmatch(pattern, topic))
    if not found:
        raise TopicNotFound(
            f"no topic of the namespace {namespace!r} matches {ascii(pattern)[:80]}",
            advice=f"a pattern matches whole names; {nearest('', known)}",
        )
    return found


def _common_columns(namespace: Namespace, snapshot: Snapshot, topics: Sequence[str]) -> schemas.StructType:
    connection, version = connection_of(namespace), snapshot.version
    found = [connection.topic_record(topic, version).schema_at(version) for topic in topics]
    first = found[0]
    for topic, other in zip(topics[1:], found[1:], strict=True):
        if other == first:
            continue
        differing = (
            item.name for item in (*first.fields, *other.fields) if item not in first.fields or item not in other.fields
        )
        name = next(differing, "order")
        raise SchemaMismatch(
            f"the topics {topics[0]!r} and {topic!r} have different columns (see {name!r})",
            advice="read them one by one and union what they have in common; run spark_ext.process once for each, or "
            "union two sources of a write_stream",
        )
    return first


def _check_readable(
    namespace: Namespace, snapshot: Snapshot, topics: Sequence[str], columns: schemas.StructType
) -> None:
    """Raise SchemaMismatch where a topic was altered so that a running query cannot go on with its columns."""
    for topic in topics:
        record = connection_of(namespace).topic_record(topic, snapshot.version)
        if not schema_evolution.is_read_by(record.schema_at(snapshot.version), columns):
            raise SchemaMismatch(
                f"columns of the topic {topic!r} were widened, or made nullable, since the query began",
                advice="start the query again with its checkpointLocation: it continues where it stopped",
            )


def metadata_fields(isolation_level: str, *, topic: bool = False) -> list[StructField]:
    """The columns that includeMetadata adds."""
    fields = list(METADATA)
    if isolation_level == "read_uncommitted":
        fields.append(STATE)
    if topic:
        fields.append(TOPIC)
    return fields


def _offered(options: ReadOptions, columns: schemas.StructType) -> StructType:
    schema = spark_schema(columns)
    if options.columns is not None:
        for name in options.columns:
            if name not in schema.names:
                raise InvalidInputError(
                    f"the option 'columns' names {ascii(name)[:80]}, which the topic does not have",
                    advice=nearest(name, schema.names),
                )
        schema = StructType([schema[name] for name in options.columns])
    if options.include_metadata:
        schema = StructType([*schema.fields, *metadata_fields(options.isolation_level, topic=options.several)])
    return schema


def check_schema(wanted: StructType, offered: StructType, what: str) -> None:
    """Raise SchemaMismatch unless every wanted column is offered with its type, and nullable if the offered one is."""
    known = {item.name: item for item in offered.fields}
    seen: set[str] = set()
    for item in wanted.fields:
        if item.name in seen:
            raise SchemaMismatch(f"the schema names the column {item.name!r} twice")
        seen.add(item.name)
        found = known.get(item.name)
        if found is None:
            advice = nearest(item.name, known)
            if item.name in {*(field.name for field in METADATA), STATE.name, TOPIC.name}:
                advice = "set the option includeMetadata to true"
            raise SchemaMismatch(
                f"the schema names the column {item.name!r}, which {what} does not have", advice=advice
            )
        if not _fits(item.dataType, found.dataType):
            raise SchemaMismatch(
                f"the schema says {item.dataType.simpleString()} of the column {item.name!r}, {what} "
                f"{found.dataType.simpleString()}",
                advice="read it as it is, and cast afterwards",
            )
        if found.nullable and not item.nullable:
            raise SchemaMismatch(
                f"the schema says that the column {item.name!r} is never null, which {what} does not promise",
                advice="leave out NOT NULL",
            )


def _fits(wanted: DataType, offered: DataType) -> bool:
    """Whether two types are the same, and the wanted one is nullable wherever the offered one is."""
    if isinstance(wanted, StructType) and isinstance(offered, StructType):
        return wanted.names == offered.names and all(
            _fits(ours.dataType, theirs.dataType) and (ours.nullable or not theirs.nullable)
            for ours, theirs in zip(wanted.fields, offered.fields, strict=True)
        )
    if isinstance(wanted, ArrayType) and isinstance(offered, ArrayType):
        return _fits(wanted.elementType, offered.elementType) and (wanted.containsNull or not offered.containsNull)
    if isinstance(wanted, MapType) and isinstance(offered, MapType):
        return (
            _fits(wanted.keyType, offered.keyType)
            and _fits(wanted.valueType, offered.valueType)
            and (wanted.valueContainsNull or not offered.valueContainsNull)
        )
    return wanted == offered


# --- input partitions -------------------------------------------------------------------------------------------------


def tasks_of(plan: ScanPlan) -> list[SegmentTask]:
    """The tasks for executors of a plan."""
    return [(plan.topic, segment) for segment in plan.segments]


def input_partitions(tasks: Sequence[SegmentTask], least: int | None) -> list[ReadPartition]:
    """Tasks in about equal shares of rows, in order.

    As many as this machine has processors (the planning process does not know those of the cluster), fewer for few
    rows, more for many bytes or where ``minPartitions`` asks for more. A file is read by several tasks only if it is
    bigger than a share.
    """
    rows = sum(segment.rows for _, segment in tasks)
    if rows == 0:
        return []
    processors = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    size_bytes = sum(item.size_bytes * item.rows // max(1, item.file_rows) for _, item in tasks)
    count = max(min(processors, -(-rows // BATCH_ROWS)), -(-size_bytes // _PARTITION_BYTES), least or 1)
    return [ReadPartition(share) for share in balanced(tasks, min(count, rows))]


def balanced(tasks: Sequence[SegmentTask], count: int) -> list[list[SegmentTask]]:
    """The tasks in ``count`` shares or fewer of about the same number of rows; none is empty.

    A share may be a quarter too big or too small if that keeps a file whole: each part of it costs its whole decoding.
    """
    left = sum(segment.rows for _, segment in tasks)
    shares: list[list[SegmentTask]] = []
    share: list[SegmentTask] = []
    filled = 0
    target = -(-left // count)

    def close() -> None:
        nonlocal share, filled, target
        shares.append(share)
        share, filled = [], 0
        if left and len(shares) < count:
            target = -(-left // (count - len(shares)))

    for topic, segment in tasks:
        rest: PlannedSegment | None = segment
        while rest is not None:
            last = len(shares) == count - 1
            room = target - filled
            if last or rest.rows <= room + target // 4:
                share.append((topic, rest))
                filled += rest.rows
                left -= rest.rows
                rest = None
                if not last and filled >= target:
                    close()
            elif filled and room <= target // 4:
                close()
            else:
                part, rest = _split(rest, room)
                share.append((topic, part))
                left -= part.rows
                close()
    if share:
        shares.append(share)
    return shares


def _split(segment: PlannedSegment, rows: int) -> tuple[PlannedSegment, PlannedSegment]:
    """A segment's first rows, and the others."""
    assert 0 < rows < segment.rows, "both parts have rows"
    if segment.holes_in is not None:
        (item,) = segment.slices
        assert item.offset is not None, "only visible rows have holes between them"
        width = min(max(1, item.width * rows // item.rows), item.width - 1)
        front = replace(item, rows=rows, extent=width)
        back = replace(item, rows=item.rows - rows, offset=item.offset + width, extent=item.width - width)
        return replace(segment, slices=(front,)), replace(segment, slices=(back,))
    first: list[PlannedSlice] = []
    second: list[PlannedSlice] = []
    for item in segment.slices:
        take = min(rows, item.rows)
        if take:
            first.append(PlannedSlice(item.partition, item.first_row, take, item.offset))
        if take < item.rows:
            offset = None if item.offset is None else item.offset + take
            second.append(PlannedSlice(item.partition, item.first_row + take, item.rows - take, offset))
        rows -= take
    return replace(segment, slices=tuple(first)), replace(segment, slices=tuple(second))


__all__ = [
    "METADATA",
    "STATE",
    "TOPIC",
    "Scan",
    "balanced",
    "check_schema",
    "input_partitions",
    "metadata_fields",
    "no_topic",
    "open_scan",
    "tasks_of",
]
