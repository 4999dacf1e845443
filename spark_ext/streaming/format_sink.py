"""The format's streaming writes: every micro-batch is one transaction.

Spark creates the writer twice for every batch: in a process that sends it to the executors, and in the one that
commits, which gets nothing but the tasks' answers. So the first one reserves the numbers when it is pickled for
executors, and the tasks pass on what the commit needs: the numbers of the job, the query and its run.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceStreamArrowWriter, WriterCommitMessage

from spark_ext.support.namespace_cache import target_at
from spark_ext.support.paths import check_absolute_checkpoint
from spark_ext.support.short_errors import short_errors
from spark_ext.write.task_writer import JobNumbers, WriteSpec, WrittenSegment, write_batches
from txnlog.api.internals import connection_of, truncate
from txnlog.errors import InvalidInputError, UnsupportedFeature

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

    from spark_ext.streaming.batch_commit import QueryIdentity
    from spark_ext.streaming.query_checkpoint import BatchOffsets, Checkpoint
    from spark_ext.support.options import WriteOptions
    from txnlog.api.namespace import Namespace
    from txnlog.format.actions import Acknowledgement

_logger = logging.getLogger("txnlog.spark")

_RUN: Final = "spark.jobGroup.id"
"""The local property with the job group: Spark runs every job of a streaming query in one named by the query's run."""

_QUERY: Final = "sql.streaming.queryId"
"""The local property of Spark's tasks with the query's id, which is that in the checkpoint."""


@dataclass(frozen=True)
class StreamTaskWritten(WriterCommitMessage):
    """The answer of a task to the commit: its files, the numbers of its job, the run of the query, and the query."""

    numbers: JobNumbers
    run: str
    segments: tuple[WrittenSegment, ...]
    query: str


@short_errors
class TopicStreamWriter(DataSourceStreamArrowWriter):
    """Writes the micro-batches of a query, each as one transaction: to a topic, or where the column ``topic`` says."""

    def __init__(self, options: WriteOptions, schema: StructType, overwrite: bool) -> None:
        if options.checkpoint_location is None and options.txn_app_id is None:
            raise InvalidInputError(
                "the query's identity is unknown: a sink sees no checkpoint that comes from a setting",
                advice="pass checkpointLocation as an option, or txnAppId",
            )
        if options.checkpoint_location is not None:
            check_absolute_checkpoint(options.checkpoint_location)
        elif options.acknowledge is not None:
            raise InvalidInputError(
                "acknowledge needs the query's offsets, which are in its checkpoint",
                advice="pass checkpointLocation as an option",
            )
        from spark_ext.write import write_jobs  # noqa: PLC0415 - executors do not need it

        self._options = options
        self._target = target_at(options.path, options.storage_options, topics_named=options.topic is not None)
        ns = self._open()
        connection_of(ns).follower.refresh()
        self._planned = write_jobs.planned(ns, self._target.location.topic or options.topic, schema)
        self._spec: WriteSpec | None = None
        self._is_complete = overwrite
        if overwrite:
            write_jobs.check_overwritable(ns, self._planned.record, "outputMode('complete')", write_jobs.COMPLETED)

    def _open(self) -> Namespace:
        return self._target.open()

    # --- to the executors -------------------------------------------------------------------------------------------

    def __getstate__(self) -> dict[str, Any]:
        # Only the writer for executors is pickled, and needs numbers; the one that commits needs none.
        if self._spec is None:
            self._spec = self._make_spec()
        return {"_spec": self._spec}

    def _make_spec(self) -> WriteSpec:
        return self._planned.spec(self._open(), self._target.storage)

    def write(self, iterator: Iterator[pa.RecordBatch]) -> StreamTaskWritten:
        """Runs on executors: writes the rows of one task."""
        context = TaskContext.get()
        assert context is not None, "runs inside of a Spark task"
        assert self._spec is not None, "the writer was pickled for executors"
        run, query = context.getLocalProperty(_RUN) or "", context.getLocalProperty(_QUERY) or ""
        return StreamTaskWritten(self._spec.numbers, run, tuple(write_batches(iterator, self._spec)), query)

    # --- the commit -------------------------------------------------------------------------------------------------

    def commit(self, messages: Sequence[Any], batchId: int) -> None:  # noqa: N803 - Spark's name
        """Runs once all tasks are done: rows, batch and acknowledgement in one entry. A replay is skipped."""
        from spark_ext.streaming import batch_commit  # noqa: PLC0415
        from spark_ext.write import write_jobs  # noqa: PLC0415

        ns = self._open()
        answers: list[StreamTaskWritten] = [message for message in messages if message is not None]
        assert answers, "Spark runs at least one task"
        checkpoint = self._checkpoint()
        offsets = None if checkpoint is None else checkpoint.offsets(batchId)
        begun = batch_commit.begin_batch(
            ns, checkpoint, self._options.txn_app_id, batchId, offsets, task_query=answers[0].query
        )
        if begun is None:
            return
        identity, batch = begun
        # With the first batch alone: who commits a later one may be another process, which knows of none before.
        if batchId == 0 and offsets is not None:
            batch_commit.warn_of_unacknowledged(ns, offsets, self._options.acknowledge)
        numbers = answers[0].numbers
        written = [item for answer in answers for item in answer.segments]
        record = self._planned.record
        own = {item.topic for item in written} | ({record.id} if record is not None else set())
        batch_commit.check_targets(ns, batch, own)
        wanted = self._acknowledged(ns, checkpoint, offsets, identity, answers[0].run)
        with batch_commit.batch_transaction(ns, numbers, batch, wanted) as txn, txn:
            if self._is_complete:
                assert record is not None, "the topic was named"
                since = batch_commit.last_version(ns, batch) or None
                truncate(txn, record.name, write_jobs.COMPLETED._replace(owned_since=since))
            write_jobs.add_segments(txn, write_jobs.segments_of(written, numbers, numbers.txn))
            result = txn.commit()
        _logger.info("batch %d of %r: %s at version %d", batchId, identity.name, txn.id, result.version)
        batch_commit.warn_of_dropped(batch, result)

    def abort(self, messages: Sequence[Any], batchId: int) -> None:  # noqa: N803
        """Runs when a batch failed. Its files are garbage, unless it was committed; Spark repeats the batch."""
        _logger.info("batch %d failed: %d tasks had written", batchId, sum(item is not None for item in messages))

    def _checkpoint(self) -> Checkpoint | None:
        from spark_ext.streaming.query_checkpoint import Checkpoint  # noqa: PLC0415

        options = self._options
        if options.checkpoint_location is None:
            return None
        try:
            return Checkpoint(options.checkpoint_location, self._target.location.root, options.storage_options)
        except InvalidInputError:
            if options.txn_app_id is None or options.acknowledge is not None:
                raise
            return None  # on a store that only Spark can read: query and batch id alone identify a replay

    def _acknowledged(
        self,
        ns: Namespace,
        checkpoint: Checkpoint | None,
        offsets: BatchOffsets | None,
        identity: QueryIdentity,
        run: str,
    ) -> list[Acknowledgement]:
        from spark_ext.streaming import batch_commit  # noqa: PLC0415

        if self._options.acknowledge is None:
            return []
        if checkpoint is None or offsets is None:
            raise InvalidInputError(
                "the checkpoint does not hold the offsets of the batch",
                advice="pass the query's own checkpointLocation",
            )
        if not run:
            raise UnsupportedFeature(
                "this version of Spark does not say which run of the query a task belongs to, so that another run "
                "could not be fenced",
                advice="write with spark_ext.write_stream(..., acknowledge=...), which needs no task for that",
            )
        read_ranges = batch_commit.ranges_of_batch(ns, checkpoint, offsets, self._options.acknowledge)
        return batch_commit.acknowledgements(ns, read_ranges, identity, run)


__all__ = ["StreamTaskWritten", "TopicStreamWriter"]
