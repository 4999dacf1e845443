"""The format's batch writes: one DataFrame, one transaction.

The writer is made in a process that Spark starts for planning, travels to the executors by pickle, and commits in yet
another process. So everything that decides is settled at its making (numbers, the producer's epoch, the schema), and
whoever commits opens the namespace for itself.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceArrowWriter, WriterCommitMessage

from spark_ext.support.namespace_cache import Target, target_at
from spark_ext.support.short_errors import short_errors
from spark_ext.write.task_writer import WriteSpec, WrittenSegment, write_batches
from txnlog.api.internals import connection_of, truncate
from txnlog.errors import TxnLogError

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

    from spark_ext.support.options import WriteOptions

_logger = logging.getLogger("txnlog.spark")


@dataclass(frozen=True)
class TaskWritten(WriterCommitMessage):
    """The answer of a task to the driver: its files, which are durable."""

    segments: tuple[WrittenSegment, ...] = ()


@dataclass(frozen=True)
class BatchPlan:
    """The plan of a batch from when the writer was created. ``spec`` is None if the batch was committed before."""

    spec: WriteSpec | None
    producer: str | None = None
    epoch: int | None = None
    app_id: str | None = None
    app_version: int | None = None
    overwritten: int | None = None
    """The topic whose earlier messages go with the commit."""


@short_errors
class TopicBatchWriter(DataSourceArrowWriter):
    """Writes a DataFrame as one transaction: to a topic, or to those that its column ``topic`` names."""

    def __init__(self, options: WriteOptions, schema: StructType, overwrite: bool) -> None:
        self._target = target_at(options.path, options.storage_options, topics_named=options.topic is not None)
        self._plan = _planned(self._target, options, schema, overwrite=overwrite)

    def write(self, iterator: Iterator[pa.RecordBatch]) -> TaskWritten:
        """Runs on executors: writes the rows of one task."""
        if self._plan.spec is None:
            return TaskWritten()
        return TaskWritten(tuple(write_batches(iterator, self._plan.spec)))

    def commit(self, messages: Sequence[Any]) -> None:
        """Runs once all tasks are done: names their files in the log, in one commit."""
        from spark_ext.write import write_jobs  # noqa: PLC0415
        from txnlog.api.writing import begin_transaction  # noqa: PLC0415

        plan = self._plan
        if plan.spec is None:
            return
        numbers = plan.spec.numbers
        ns = self._target.open()
        connection_of(ns).follower.refresh()
        txn = begin_transaction(
            connection_of(ns),
            plan.producer,
            plan.epoch,
            txn_app_id=plan.app_id,
            txn_version=plan.app_version,
            timed_from_log=True,
            number=numbers.txn,
        )
        written = [item for message in messages if message is not None for item in message.segments]
        own = {item.topic for item in written} | ({plan.overwritten} if plan.overwritten is not None else set())
        records = {
            topic: write_jobs.check_there(
                ns, topic, "its rows were written", advice="write them again, if there is a topic for them"
            )
            for topic in sorted(own)
        }
        if plan.overwritten is not None:
            truncate(txn, records[plan.overwritten].name, write_jobs.OVERWRITTEN)
        write_jobs.add_segments(txn, write_jobs.segments_of(written, numbers, numbers.txn))
        result = txn.commit()
        _logger.info("committed %s at version %d%s", txn.id, result.version, " (skipped)" if result.skipped else "")

    def abort(self, messages: Sequence[Any]) -> None:  # noqa: ARG002 - Spark's signature
        """Runs when the job failed. What its tasks wrote is garbage, and the log says so, in case a commit was sent."""
        from txnlog.api import transaction_admin  # noqa: PLC0415

        plan = self._plan
        if plan.spec is None:
            return
        number = plan.spec.numbers.txn
        try:
            outcome = transaction_admin.end_failed(connection_of(self._target.open()), number)
        except TxnLogError:
            _logger.warning("the abort of transaction %d could not be logged", number, exc_info=True)
            return
        if outcome.state == "COMMITTED":
            _logger.warning(
                "the job failed after its transaction %d was committed at version %d: its rows are visible",
                number,
                outcome.version,
            )


def _planned(target: Target, options: WriteOptions, schema: StructType, *, overwrite: bool) -> BatchPlan:
    """Check everything that can be checked before rows are read, and reserve the job's numbers."""
    from spark_ext.write import write_jobs  # noqa: PLC0415 - executors, which unpickle the writer, need nothing of it

    ns = target.open()
    connection_of(ns).follower.refresh()
    app_id, app_version = options.txn_app_id, options.txn_version
    skipped = connection_of(ns).committed_before(app_id, app_version)
    if skipped is not None:
        _logger.info("version %s of %r was committed before, at version %d", app_version, app_id, skipped.version)
        return BatchPlan(None)
    planned = write_jobs.planned(ns, target.location.topic or options.topic, schema)
    overwritten: int | None = None
    if overwrite:
        what, wanted = 'mode("overwrite")', write_jobs.OVERWRITTEN
        overwritten = write_jobs.check_overwritable(ns, planned.record, what, wanted).id
    spec = planned.spec(ns, target.storage)
    epoch = None if options.transactional_id is None else ns.producer(options.transactional_id).epoch
    return BatchPlan(spec, options.transactional_id, epoch, app_id, app_version, overwritten)


__all__ = ["BatchPlan", "TaskWritten", "TopicBatchWriter"]
