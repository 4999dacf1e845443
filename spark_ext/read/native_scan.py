"""Native scans: Spark's own Parquet reader over exactly the files of a snapshot, with metadata from the log.

What only the log knows of a segment (transaction, version, time, base offset) is added as constants. They are looked up
by the segment's number, which is a partition value in the file's path.
"""

from __future__ import annotations

import datetime
from collections.abc import Collection, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from pyspark.errors import AnalysisException
from pyspark.sql import functions as F  # noqa: N812 - as everybody imports it
from pyspark.sql.types import IntegerType, LongType, StructField, StructType, TimestampType

from spark_ext.read import segment_constants, visibility_column
from spark_ext.read.newest_rows import check_key, newest_rows
from spark_ext.read.scan import metadata_fields, no_topic
from spark_ext.read.scan_session import load_files, session_for_scans, taken_over
from spark_ext.support.columns import named
from spark_ext.support.namespace_cache import location_of, namespace_at
from spark_ext.support.options import storage_of_call
from spark_ext.support.spark_errors import first_line
from spark_ext.support.spark_schemas import spark_schema
from spark_ext.support.spark_versions import has_jvm
from txnlog.api.internals import connection_of
from txnlog.common.ids import Coordinators, TxnId
from txnlog.common.validation import truth
from txnlog.data.segment_rows import damage_in_scan, missing_text
from txnlog.errors import CorruptionError, InvalidInputError, LimitExceeded
from txnlog.fold.visibility import Visibility
from txnlog.format.keys import SEGMENT_COLUMN, entry_key
from txnlog.replies import only_looking
from txnlog.store.base import ObjectNotFound
from txnlog.store.open import hadoop_url

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

    from txnlog.api.namespace import Namespace
    from txnlog.api.snapshot import Snapshot
    from txnlog.data.scan_planner import OffsetRanges, ScanPlan
    from txnlog.data.segment_rows import PlannedSegment, PlannedSlice

MAX_LOOKUP_CELLS: Final = 1 << 18
"""The most constants of one kind in a plan: planning with more takes longer than reading with the format."""

_SCAN_OPTIONS: Final = {
    # Spark's Parquet reader does not look at page checksums by itself: a flipped bit gives wrong sums, silently.
    "parquet.page.verify-checksum.enabled": "true",
    # Whatever the session says: all files that the log names must exist and be whole.
    "ignoreMissingFiles": "false",
    "ignoreCorruptFiles": "false",
    "mergeSchema": "false",
    # Paths are literal: a root may be called [lake].
    "__globPaths__": "false",
    # The files' dates are proleptic Gregorian, as Arrow and Spark 3 write them.
    "datetimeRebaseMode": "CORRECTED",
    "int96RebaseMode": "CORRECTED",
}
_NO_VALUE: Final = -(1 << 63)
_NO_OFFSET: Final = (1 << 63) - 1


@only_looking()
def read_topic(
    spark: SparkSession,
    path: str,
    version: int | None = None,
    isolation_level: str = "read_committed",
    include_metadata: bool = False,
    *,
    timestamp: datetime.datetime | str | int | None = None,
    offsets: OffsetRanges | None = None,
    exclude_segments: Collection[int] = (),
    newest_by: str | None = None,
    storage_options: Mapping[str, Any] | None = None,
) -> DataFrame:
    """Read a topic with Spark's own Parquet scan.

    Args:
        spark: the session; its settings ``spark.txnlog.storage.<name>`` are storage options if none are given.
        path: ROOT/NAMESPACE/TOPIC.
        version: the namespace's version; the newest by default, fixed when this function returns.
        isolation_level: ``read_committed``, or ``read_uncommitted`` with pending and aborted rows as well.
        include_metadata: add ``_partition``, ``_offset``, ``_timestamp``, ``_txn_id``, ``_version``.
        timestamp: the newest version of a time, instead of ``version``: a datetime with a zone, ISO 8601 text with one,
            or epoch milliseconds.
        offsets: by partition the offsets ``(start, end)``; partitions that are not named are not read, nor are files
            without any of these rows.
        exclude_segments: numbers of damaged segments to leave out; a warning says which rows that leaves out.
        newest_by: the topic's key column: of each key only the newest row, and none where that one has no values
            besides its key, as key compaction leaves them. Rows without a key are left out.
        storage_options: fsspec's, with which the log is read; Spark's own reader has settings of its own.

    The sizes of files are compared with the log at once, pages verified by their checksums while they are read: damage
    there is an error of the query. **Parquet's footers have no checksum**: a flipped bit there may change or drop rows
    without an error. For whole files against the log's checksums use the format ``txnlog``.

    Raises:
        NamespaceNotFound, TopicNotFound, VersionNotAvailable, InvalidInputError: an argument is wrong.
        OffsetOutOfRange: offsets that the topic does not have at the version, or no longer has.
        CorruptionError: a segment is missing, or has another size than the log says; with the number for
            ``exclude_segments``.
        LimitExceeded: so many segments that planning would take longer than reading with the format.
    """
    include_metadata = truth("include_metadata", include_metadata)
    namespace, snapshot, topic = _snapshot(spark, path, version, timestamp, storage_options)
    record = None if newest_by is None else connection_of(namespace).topic_record(topic, snapshot.version)
    if record is not None:
        check_key(record, newest_by)
        if isolation_level != "read_committed":
            raise InvalidInputError(
                "newest_by needs committed rows: others have no offset", advice="leave isolation_level out"
            )
    plan = snapshot.plan(topic, offsets=offsets, isolation_level=isolation_level, exclude_segments=exclude_segments)
    frame = read_plan(spark, namespace, plan, include_metadata=include_metadata or record is not None)
    if record is None:
        return frame
    names = [field.name for field in plan.schema.fields]
    metadata = [name for name in frame.columns if name not in names] if include_metadata else []
    return newest_rows(frame, record, names, metadata)


def read_plan(
    spark: SparkSession, namespace: Namespace, plan: ScanPlan, *, include_metadata: bool = False
) -> DataFrame:
    """The rows of a ``Snapshot.plan``, for any version, isolation level and offsets. See :func:`read_topic`."""
    if not plan.segments:
        fields = spark_schema(plan.schema).fields
        if include_metadata:
            fields = [*fields, *metadata_fields(plan.isolation_level)]
        return spark.createDataFrame([], StructType([StructField(f.name, f.dataType, True) for f in fields]))
    stored = _stored_columns(plan)
    frame = _scan(spark, namespace, plan, stored)
    cut = any(not segment.whole for segment in plan.segments)
    if not include_metadata and not cut:
        return frame.drop(*(field.name for field in stored))
    columns = [named(field.name) for field in plan.schema.fields]
    metadata = _Metadata(namespace, plan)
    frame = frame.select("*", *metadata.helpers())
    if cut:
        frame = frame.where(metadata.row_filter())
    return frame.select(*columns, *(metadata.columns() if include_metadata else ()))


@only_looking()
def visible(
    spark: SparkSession,
    path: str,
    version: int | None = None,
    *,
    timestamp: datetime.datetime | str | int | None = None,
    offsets: OffsetRanges | None = None,
    storage_options: Mapping[str, Any] | None = None,
) -> Column:
    """The visibility predicate of a topic as a column on ``_txnlog_segment``, for your own scans of its folder.

    It selects whole segments, including rows that retention has removed from a segment's beginning. ``version``,
    ``timestamp``, ``offsets`` and ``storage_options`` are those of :func:`read_topic`.

    Raises:
        NamespaceNotFound, TopicNotFound, VersionNotAvailable, OffsetOutOfRange: an argument is wrong.
        InvalidInputError: the offsets select a part of a segment, or another argument is wrong.
    """
    _, snapshot, topic = _snapshot(spark, path, version, timestamp, storage_options)
    plan = snapshot.plan(topic)
    if offsets is not None:
        whole = {segment.number: segment for segment in plan.segments}
        plan = snapshot.plan(topic, offsets=offsets)
        for segment in plan.segments:
            if segment.width < whole[segment.number].width:
                raise _not_whole(whole[segment.number])
    return visibility_column.to_column(plan.visibility)


def _not_whole(segment: PlannedSegment) -> InvalidInputError:
    spans = [(item.partition, item.offset or 0, (item.offset or 0) + item.width) for item in segment.slices[:3]]
    text = ", ".join(f"{start} to {end} of partition {partition}" for partition, start, end in spans)
    more = " and more" if len(segment.slices) > len(spans) else ""
    return InvalidInputError(
        f"the offsets cut the segment {segment.number}, which has {text}{more}: the predicate selects whole segments",
        advice="use read_topic(..., offsets=...), or pass offsets at which segments begin and end",
    )


def _snapshot(
    spark: SparkSession,
    path: str,
    version: int | None,
    timestamp: datetime.datetime | str | int | None,
    storage_options: Mapping[str, Any] | None,
) -> tuple[Namespace, Snapshot, str]:
    storage = storage_of_call(spark, storage_options)
    location = location_of(path, storage)
    namespace = namespace_at(location, "r", storage)
    snapshot = namespace.snapshot(version, timestamp)
    if location.topic is None:
        raise no_topic(snapshot, location.namespace, "append the topic")
    return namespace, snapshot, location.topic


def check_reads(spark: SparkSession, namespace: Namespace) -> None:
    """Check that Spark itself, or its server, can read the namespace's files.

    Otherwise a query would fail only at its first action, perhaps in a handler. A local folder with a driver in this
    process needs no check.

    Raises InvalidInputError with Spark's message.
    """
    url = connection_of(namespace).store.url(entry_key(0))
    if "://" not in url and has_jvm(spark):
        return
    try:
        reader = spark.read.format("text").option("__globPaths__", "false")
        assert reader.load(hadoop_url(url)).schema  # a client of Connect sends a request only now
    except Exception as error:
        raise InvalidInputError(
            f"Spark's own scan cannot read {hadoop_url(f'{namespace.root}/{namespace.name}')}: {first_line(error)}",
            advice="pass native=False, or give Spark a file system for it (s3a:// needs hadoop-aws and its settings)",
        ) from error


# --- the scan ---------------------------------------------------------------------------------------------------------


def _stored_columns(plan: ScanPlan) -> list[StructField]:
    """The columns of the planned files after the topic's, including partition values of their paths."""
    fields = []
    if any(segment.stores_txn for segment in plan.segments):
        fields.append(StructField("_txn", LongType()))
    if any(segment.stores_partition for segment in plan.segments):
        fields.append(StructField("_partition", IntegerType()))
    if any(segment.compacted for segment in plan.segments):
        fields += [StructField("_version", LongType()), StructField("_timestamp", TimestampType())]
    if any(segment.holes_in is not None for segment in plan.segments):
        fields.append(StructField("_offset", LongType()))
    return [*fields, StructField(SEGMENT_COLUMN, LongType())]


def _scan(spark: SparkSession, namespace: Namespace, plan: ScanPlan, stored: Sequence[StructField]) -> DataFrame:
    """All rows of the planned files with all stored columns, filtered by the visibility predicate."""
    fields = [*spark_schema(plan.schema).fields, *stored]
    url_of = connection_of(namespace).store.url
    folder = hadoop_url(url_of(plan.folder))
    files = [hadoop_url(url_of(segment.key)) for segment in plan.segments]
    altered = len(connection_of(namespace).topic_record(plan.topic, plan.version).schemas) > 1
    size_bytes = sum(segment.size_bytes for segment in plan.segments)
    finder = session_for_scans(spark, size_bytes, altered=altered) if has_jvm(spark) else spark
    reader = finder.read.format("parquet").schema(StructType(fields)).options(**_SCAN_OPTIONS)
    try:
        frame = load_files(finder, reader.option("basePath", folder), files)
    except AnalysisException as error:
        if error.getCondition() != "PATH_NOT_FOUND":
            raise
        path = str((error.getMessageParameters() or {}).get("path", ""))
        for segment in plan.segments:
            if path.endswith(segment.key):
                raise connection_of(namespace).follower.missing(plan, segment) from None
        raise CorruptionError(f"{missing_text(path[-160:])}; it is of the topic {plan.topic!r}") from None
    _check_sizes(frame, namespace, plan)
    if has_jvm(spark):
        frame = taken_over(spark, frame)
    return frame.where(visibility_column.to_sql(plan.visibility))


def _check_sizes(frame: DataFrame, namespace: Namespace, plan: ScanPlan) -> None:
    """Raise CorruptionError unless the files have as many bytes as the log says: Spark ignores an empty one."""
    known = has_jvm(frame.sparkSession)
    if known:
        # Spark has just listed every file: their total size is one call without a request.
        relation = frame._jdf.queryExecution().analyzed().relation()
        if relation.location().sizeInBytes() == sum(segment.size_bytes for segment in plan.segments):
            return
    found = connection_of(namespace).runtime.run_all(
        [partial(_size_bytes, namespace, plan, segment) for segment in plan.segments]
    )
    for segment, size_bytes in zip(plan.segments, found, strict=True):
        if size_bytes != segment.size_bytes:
            damage = f"the segment {segment.key} has {size_bytes:,} bytes, the log recorded {segment.size_bytes:,}"
            raise damage_in_scan(CorruptionError(damage), plan.topic, segment)
    if known:
        raise CorruptionError(f"Spark finds files of other sizes in {plan.topic!r} than the log recorded")


def _size_bytes(namespace: Namespace, plan: ScanPlan, segment: PlannedSegment) -> int:
    try:
        return connection_of(namespace).store.info(segment.key).size_bytes
    except ObjectNotFound:
        raise connection_of(namespace).follower.missing(plan, segment) from None


# --- metadata ---------------------------------------------------------------------------------------------------------


_ROW: Final = "_txnlog_row"
_PLACE: Final = "_txnlog_place"


class _Metadata:
    """The metadata columns of a plan, from constants and from stored columns."""

    def __init__(self, namespace: Namespace, plan: ScanPlan) -> None:
        self._plan = plan
        self._segments = plan.segments
        # Numbers only increase: this one is above all numbers stored in the plan's files.
        self._next_number = connection_of(namespace).next_number
        self._places = segment_constants.Places.of([segment.number for segment in plan.segments])
        if self._places.size > MAX_LOOKUP_CELLS:
            raise _too_many(plan)

    def helpers(self) -> list[Column]:
        """Columns that :meth:`columns` and :meth:`row_filter` need, to be selected first.

        The position in the file is selected from ``_metadata`` here, since Spark would build that whole struct for
        every row otherwise. The place is computed once for all look-ups.
        """
        return [
            F.col("_metadata.row_index").alias(_ROW),
            self._places.place(F.col(SEGMENT_COLUMN)).alias(_PLACE),
        ]

    def columns(self) -> list[Column]:
        """In the order and with the types of ``txnlog.data.segment_rows``."""
        columns = [
            self._partition().alias("_partition"),
            self._offset().alias("_offset"),
            self._timestamp().alias("_timestamp"),
            self._txn_id().alias("_txn_id"),
            self._version().alias("_version"),
        ]
        if self._plan.isolation_level == "read_uncommitted":
            states = self._places.arrange([item.state for item in self._segments], self._segments[0].state)
            columns.append(segment_constants.text(states, F.col(_PLACE)).alias("_txn_state"))
        return columns

    def _number(self, values: Sequence[int | None], *, stored: str | None = None) -> Column:
        """A constant per segment; ``stored`` is the column of the files for which there is none."""
        known = [value for value in values if value is not None]
        if not known:
            return F.col(stored).cast("bigint") if stored else F.lit(None).cast("bigint")
        if stored:
            # Files that store it have no constant, all others have null in the column.
            filled = [known[0] if value is None else value for value in values]
            constant = segment_constants.number(self._places.arrange(filled, known[0]), F.col(_PLACE))
            return F.coalesce(F.col(stored).cast("bigint"), constant) if len(known) < len(values) else constant
        filled = [_NO_VALUE if value is None else value for value in values]
        return _nullable(self._places.arrange(filled, filled[0]), F.col(_PLACE))

    def _partition(self) -> Column:
        values = [None if item.stores_partition else item.slices[0].partition for item in self._segments]
        return self._number(values, stored="_partition").cast("int")

    def _timestamp(self) -> Column:
        constant = F.timestamp_micros(
            self._number([None if item.timestamp_ms is None else item.timestamp_ms * 1000 for item in self._segments])
        )
        compacted = any(item.compacted for item in self._segments)
        return F.coalesce(self._stored("_timestamp"), constant) if compacted else constant

    def _version(self) -> Column:
        constant = self._number([item.version for item in self._segments])
        compacted = any(item.compacted for item in self._segments)
        return F.coalesce(self._stored("_version"), constant) if compacted else constant

    def _stored(self, name: str) -> Column:
        """What the files store of visible rows, null of all others: merged files that are pending store it as well."""
        hidden = [item.number for item in self._segments if item.state != "COMMITTED"]
        if not hidden:
            return F.col(name)
        return F.when(~visibility_column.to_column(Visibility.of(hidden)), F.col(name))

    def _txn_id(self) -> Column:
        coordinators = self._plan.coordinators
        stored = [item.stores_txn for item in self._segments]
        computed = _txn_id_of(coordinators, F.col("_txn"), self._next_number)
        if all(stored):
            return computed
        ids = [coordinators.txn_id(item.txn or 0).to_bytes() for item in self._segments]
        constant = segment_constants.blob(self._places.arrange(ids, ids[0]), F.col(_PLACE))
        if not any(stored):
            return constant
        return F.when(self._stored("_txn").isNotNull(), computed).otherwise(constant)

    def _offset(self) -> Column:
        if all(len(item.slices) == 1 and item.whole for item in self._segments):
            counted = self._number([_base(item.slices[0]) for item in self._segments]) + F.col(_ROW)
        else:
            counted = self._slice_base() + F.col(_ROW)
        with_holes = any(item.holes_in is not None for item in self._segments)
        return F.coalesce(self._stored("_offset"), counted) if with_holes else counted

    def _slice_base(self) -> Column:
        """Of a row's slice the offset minus the position of its first row: found by segment and partition."""
        starts: list[int] = []
        cells: list[int] = []
        for item in self._segments:
            partitions = [found.partition for found in item.slices]
            first = min(partitions)
            starts.append(len(cells) - first)
            row = [_NO_VALUE] * (max(partitions) - first + 1)
            for found in item.slices:
                base = _base(found)
                row[found.partition - first] = _NO_VALUE if base is None else base
            cells += row
            if len(cells) > MAX_LOOKUP_CELLS:
                raise _too_many(self._plan)
        return _nullable(cells, (self._number(starts) + self._partition()).cast("int"))

    def row_filter(self) -> Column:
        """A condition on rows, for files that hold rows which are not wanted any more."""
        cut = [item for item in self._segments if not item.whole]
        # What is wanted of a partition is one range: from the first offset that the plan wants of any of these files
        # to the last one.
        starts: dict[int, int] = {}
        ends: dict[int, int] = {}
        for item in cut:
            for found in item.slices:
                assert found.offset is not None, "what is not visible is wanted as a whole"
                starts[found.partition] = min(found.offset, starts.get(found.partition, found.offset))
                ends[found.partition] = max(found.offset + found.width, ends.get(found.partition, 0))
        partitions = range(max(starts) + 1)
        earliest = segment_constants.number([starts.get(p, _NO_OFFSET) for p in partitions], self._partition())
        behind = segment_constants.number([ends.get(p, 0) for p in partitions], self._partition())
        # Of a partition that is not wanted at all there is no base offset: outside these bounds is another segment's.
        first = self._number([min(found.partition for found in item.slices) for item in self._segments])
        last = self._number([max(found.partition for found in item.slices) for item in self._segments])
        wanted = self._partition().between(first, last) & (self._offset() >= earliest) & (self._offset() < behind)
        return ~visibility_column.to_column(Visibility.of(item.number for item in cut)) | wanted


def _nullable(values: Sequence[int], place: Column) -> Column:
    """The number at a place, null where it is ``_NO_VALUE``."""
    column = segment_constants.number(values, place)
    if _NO_VALUE not in values:
        return column
    return F.when(column != F.lit(_NO_VALUE), column)


def _base(found: PlannedSlice) -> int | None:
    return None if found.offset is None else found.offset - found.first_row


_EVERY_BYTE: Final = "array(" + ", ".join(f"X'{byte:02x}'" for byte in range(256)) + ")"


def _txn_id_of(coordinators: Coordinators, txn: Column, next_number: int) -> Column:
    """The 16 bytes of a TxnID whose number is a column; all numbers are below ``next_number``."""
    # Byte by byte, as many as the largest number has: through hexadecimal digits it takes twice as long and more.
    count = max(1, -(-(next_number - 1).bit_length() // 8))
    heads = [F.lit(bytearray(TxnId(coordinator, 0).to_bytes()[:-count])) for _, coordinator in coordinators.spans]
    head = heads[0]
    for (first, _), later in zip(coordinators.spans[1:], heads[1:], strict=True):
        head = F.when(txn >= F.lit(first), later).otherwise(head)
    every = F.expr(_EVERY_BYTE)
    places = [F.shiftright(txn, 8 * byte).bitwiseAND(F.lit(255)).cast("int") for byte in reversed(range(count))]
    return F.concat(head, *(F.get(every, place) for place in places))


def _too_many(plan: ScanPlan) -> LimitExceeded:
    return LimitExceeded(
        f"the topic {plan.topic!r} has {len(plan.segments):,} segments: more than metadata can be looked up for",
        advice="merge them with ns.optimize(...), or use spark.read.format('txnlog'), which looks nothing up",
    )


__all__ = ["MAX_LOOKUP_CELLS", "check_reads", "read_plan", "read_topic", "visible"]
