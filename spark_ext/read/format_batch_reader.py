"""Batch reads of the ``txnlog`` format: one consistent view of one or several topics."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSourceReader, InputPartition

from spark_ext.read.task_reader import ReadPartition, read_batches
from spark_ext.support.option_parsing import EARLIEST_OFFSET, LATEST_OFFSET
from spark_ext.support.short_errors import short_errors
from txnlog.errors import InvalidInputError

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType

    from spark_ext.read.scan import Scan
    from spark_ext.support.option_parsing import Position
    from spark_ext.support.options import ReadOptions


@short_errors
class TopicBatchReader(DataSourceReader):
    """Plans in the process that Spark starts for it, reads on executors; the object travels from one to the other.

    The version is chosen at the first action on a DataFrame, and Spark plans no second time: all actions on it, and on
    what was made from it, see that version. So does a temporary view, until it is made again.

    Raises:
        SchemaMismatch: the user's own schema has a column that the topic has not, or has otherwise.
        NamespaceNotFound, TopicNotFound, VersionNotAvailable, OffsetOutOfRange, InvalidInputError: see ``open_scan``
            and ``start_end_offsets.clip``.
    """

    def __init__(self, options: ReadOptions, schema: StructType) -> None:
        from spark_ext.read.scan import open_scan  # noqa: PLC0415 - needs what executors may not have

        scan = open_scan(options)
        self._job = scan.job(schema)
        self._planned = _plan(scan)

    def __repr__(self) -> str:
        return f"TopicBatchReader({self._job.namespace!r})"

    def __getstate__(self) -> dict[str, object]:
        # Executors get their own partitions one by one, not all of them with the function.
        return {"_job": self._job, "_planned": []}

    def partitions(self) -> Sequence[InputPartition]:
        """Shares of about the same number of rows."""
        return self._planned

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows of a share, verified. Raises CorruptionError for a segment that is missing or damaged."""
        if not isinstance(partition, ReadPartition):
            return iter(())  # Spark's stand-in for a read without partitions
        return read_batches(self._job, partition.tasks)


def _plan(scan: Scan) -> list[ReadPartition]:
    from spark_ext.read.scan import input_partitions, tasks_of  # noqa: PLC0415
    from spark_ext.read.start_end_offsets import ranges_of  # noqa: PLC0415

    options = scan.options
    _check_positions(options.starting_offsets, "startingOffsets", "latest", LATEST_OFFSET)
    _check_positions(options.ending_offsets, "endingOffsets", "earliest", EARLIEST_OFFSET)
    ranges = None if options.everything else ranges_of(scan)
    tasks = []
    for topic in scan.topics:
        tasks += tasks_of(scan.plan(topic, None if ranges is None else ranges[topic]))
    return input_partitions(tasks, options.min_partitions)


def _check_positions(position: Position | None, option: str, word: str, number: int) -> None:
    """A batch that begins at the end, or ends at the beginning, is a mistake: Kafka's source refuses it likewise."""
    if isinstance(position, str) or position is None:
        wrong = position == word
    else:
        wrong = any(number in partitions.values() for partitions in position.values())
    if wrong:
        begins = option.startswith("starting")
        raise InvalidInputError(
            f"the option {option!r} has {word!r} ({number}): "
            f"a batch that {'begins behind' if begins else 'ends before'} all messages reads none",
            advice=f"leave it out, and it {'begins at the earliest' if begins else 'ends at the latest'}",
        )


__all__ = ["TopicBatchReader"]
