"""The ``txnlog`` format as a streaming source: what Spark calls. Its answers: ``source_plan``."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxRows, SupportsTriggerAvailableNow

from spark_ext.read.task_reader import ReadPartition, read_batches
from spark_ext.support.short_errors import short_errors
from txnlog.api.internals import connection_of

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType

    from spark_ext.streaming.source_plan import StreamPlan
    from spark_ext.support.options import ReadOptions
    from txnlog.format import schema as schemas


@short_errors
class TopicStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Reads topics as a stream, in batches that end at versions: no half transaction, unless ``splitTransactions``.

    It begins at the query's checkpoint, else at the subscription's cursor, else where ``startingOffsets``,
    ``startingTimestamp`` or ``startingVersion`` says, else at the earliest offset. ``maxOffsetsPerTrigger`` is soft: a
    batch takes whole versions, one at least, unless ``splitTransactions``.

    Raises:
        SchemaMismatch: the user's own schema has a column that the topic has not, or has otherwise.
        NamespaceNotFound, TopicNotFound, OffsetOutOfRange, InvalidInputError: see ``open_scan`` and
            ``start_end_offsets.clip``.
    """

    def __init__(self, options: ReadOptions, schema: StructType) -> None:
        from spark_ext.read.scan import open_scan  # noqa: PLC0415 - needs what executors may not have

        scan = open_scan(options)
        self._options: ReadOptions | None = options
        self._topics = {
            topic: connection_of(scan.namespace).topic_record(topic, scan.snapshot.version).id for topic in scan.topics
        }
        self._columns: schemas.StructType | None = scan.columns
        self._job = scan.job(schema)
        self._made: StreamPlan | None = None

    def __repr__(self) -> str:
        return f"TopicStreamReader({self._job.namespace!r})"

    def __getstate__(self) -> dict[str, object]:
        return {
            "_job": self._job,
            "_options": None,
            "_topics": {},
            "_columns": None,
            "_made": None,
        }  # what executors need

    @property
    def _plan(self) -> StreamPlan:
        from spark_ext.streaming.source_plan import StreamPlan  # noqa: PLC0415

        if self._made is None:
            assert self._options is not None, "planning is not done by executors"
            self._made = StreamPlan(self._options, self._topics, self._columns)
        return self._made

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802 - Spark's names, from here on
        """Where a query without a checkpoint begins; creates the subscription if there is none."""
        return self._plan.initial().to_dict()

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        """The newest version is where this run ends."""
        self._plan.stop_at_newest()

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        """``maxOffsetsPerTrigger``, or no limit."""
        limit = self._plan.max_rows
        return ReadAllAvailable() if limit is None else ReadMaxRows(limit)

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802
        """Where the next batch ends: ``start`` itself while there is nothing new."""
        return self._plan.latest(start, limit.max_rows if isinstance(limit, ReadMaxRows) else None)

    def reportLatestOffset(self) -> dict[str, Any]:  # noqa: N802
        """The newest offsets, and how far the batch is behind them, for the query's progress."""
        return self._plan.reported()

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        """The rows of a batch in shares; the same rows whenever it is asked for."""
        return self._plan.partitions(start, end)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows of a share, verified. Raises CorruptionError for a segment that is missing or damaged."""
        assert isinstance(partition, ReadPartition), "one of ours"
        return read_batches(self._job, partition.tasks)

    def commit(self, end: dict[str, Any]) -> None:
        """Acknowledge on the subscription, unless the sink did; at least once, one batch late."""
        self._plan.acknowledge(end)


__all__ = ["TopicStreamReader"]
