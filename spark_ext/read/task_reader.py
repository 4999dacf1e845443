"""Reading segments on executors: verified Arrow batches from plain descriptions of files.

It needs the standard library, NumPy, PyArrow, PySpark and those modules of txnlog that need no more; a test runs it
with everything else blocked, since executors may have a Python that is not the driver's.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import reduce
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.datasource import InputPartition

from spark_ext.read.conditions import Column, Condition
from spark_ext.support.python_process import store_of
from txnlog.data import segment_file
from txnlog.data.segment_metadata import metadata_columns, wanted_rows
from txnlog.data.segment_rows import PlannedSegment, check_places, file_schema, missing_text, naming_segment
from txnlog.errors import CorruptionError
from txnlog.store.base import ObjectNotFound, Store

if TYPE_CHECKING:
    from txnlog.common.ids import Coordinators

BATCH_ROWS: Final = 1 << 16
"""The most rows of a batch: with fewer the transfer to the JVM is slower, more only take memory."""

TOPIC_COLUMN: Final = "_topic"

_AHEAD: Final = 4
_AHEAD_BYTES: Final = 64 << 20
"""Segments (and bytes) that are fetched and decoded ahead of the current one, since the store's latency dominates for
small segments."""


SegmentTask = tuple[str, PlannedSegment]
"""A topic, and one of its files to read, or a part of it."""


class ReadPartition(InputPartition):
    """The segments that one task of Spark reads, in order; ``value`` is a tuple of ``SegmentTask``."""

    def __init__(self, tasks: Sequence[SegmentTask]) -> None:
        super().__init__(tuple(tasks))

    @property
    def tasks(self) -> tuple[SegmentTask, ...]:
        """The segments to read, each with its topic."""
        tasks: tuple[SegmentTask, ...] = self.value
        return tasks

    def __repr__(self) -> str:
        return f"ReadPartition({len(self.tasks)} segments, {sum(segment.rows for _, segment in self.tasks)} rows)"


@dataclass(frozen=True)
class ReadJob:
    """The description of a read that all of its tasks share.

    Attributes:
        root, namespace, storage_options: where the segments are.
        coordinators: the high parts of the namespace's TxnIDs.
        stored: the topic's columns.
        target: the columns that Spark asked for, with its types: the topic's and metadata.
        conditions: the conditions that a row must satisfy, also on columns that Spark did not ask for.
    """

    root: str
    namespace: str
    coordinators: Coordinators
    stored: pa.Schema
    target: pa.Schema
    storage_options: Mapping[str, Any] = field(default_factory=dict, repr=False)
    conditions: tuple[Condition, ...] = ()

    @property
    def needed(self) -> set[str]:
        """The columns that must be read."""
        return {*self.target.names, *(condition.column for condition in self.conditions)}


class _File:
    """An object of a store as an open file."""

    def __init__(self, store: Store, key: str) -> None:
        self._store = store
        self._key = key
        self._position = 0

    def seek(self, offset: int) -> None:
        self._position = offset

    def read(self, size: int) -> bytes:
        data = self._store.get_range(self._key, self._position, self._position + size)
        self._position += len(data)
        return data


def _decode(store: Store, job: ReadJob, task: SegmentTask) -> pa.Table:
    """All rows of a file: the wanted columns, and the metadata columns that it stores."""
    with naming_segment(*task):
        return _whole(store, job, task[1])


def _whole(store: Store, job: ReadJob, segment: PlannedSegment) -> pa.Table:
    schema = file_schema(job.stored, segment)
    stored = schema.names[len(job.stored.names) :]
    needed = job.needed
    columns = [name for name in job.stored.names if name in needed] + stored
    if not columns:
        # Nothing but metadata is wanted: some column has to show that the file is whole.
        columns = [schema.names[0]]
    try:
        table = segment_file.decode_from(
            _File(store, segment.key),
            segment.checksum,
            size_bytes=segment.size_bytes,
            schema=schema,
            rows=segment.file_rows,
            key=segment.key,
            columns=columns,
        )
    except ObjectNotFound:
        raise CorruptionError(
            missing_text(segment.key),
            advice="a vacuum may have deleted it since the query was planned: make the DataFrame again, at a version "
            "that can be read; if it is still missing, restore the object from a copy",
        ) from None
    check_places(segment, table)
    return table


def _batches(job: ReadJob, task: SegmentTask, table: pa.Table) -> Iterator[pa.RecordBatch]:
    topic, segment = task
    read = wanted_rows(segment, table)
    rows = read.rows
    names = {*job.target.names, *(each.column for each in job.conditions)} - {*job.stored.names, TOPIC_COLUMN}
    metadata = metadata_columns(names, job.coordinators, [read])

    def column(name: str) -> Column:
        if name in job.stored.names:
            return rows.column(name)
        if name == TOPIC_COLUMN:
            return pa.repeat(pa.scalar(topic), read.total)
        return metadata[name]

    columns: list[Column] = []
    for wanted in job.target:
        found = column(wanted.name)
        columns.append(found if found.type == wanted.type else found.cast(wanted.type))
    result = pa.Table.from_arrays(columns, schema=job.target)
    if job.conditions:
        result = result.filter(reduce(pc.and_, (each.holds(column(each.column)) for each in job.conditions)))
    yield from result.to_batches(max_chunksize=BATCH_ROWS)


def read_batches(job: ReadJob, tasks: Sequence[SegmentTask]) -> Iterator[pa.RecordBatch]:
    """The rows of the segments in the target schema, batch by batch; a few segments are read ahead.

    Raises CorruptionError for a segment that is missing or is not what the log recorded: none of its rows come out.
    """
    store = store_of(job.root, job.namespace, job.storage_options)
    waiting: deque[tuple[SegmentTask, Future[pa.Table]]] = deque()
    position = 0
    with ThreadPoolExecutor(_AHEAD, thread_name_prefix="txnlog-read") as threads:
        try:
            while waiting or position < len(tasks):
                while position < len(tasks) and _may_go_ahead([item for item, _ in waiting], tasks[position]):
                    task = tasks[position]
                    waiting.append((task, threads.submit(_decode, store, job, task)))
                    position += 1
                task, future = waiting.popleft()
                table = future.result()
                with naming_segment(*task):
                    yield from _batches(job, task, table)
        finally:
            for _, future in waiting:
                future.cancel()


def _may_go_ahead(waiting: Sequence[SegmentTask], task: SegmentTask) -> bool:
    if not waiting:
        return True
    size_bytes = sum(segment.size_bytes for _, segment in (*waiting, task))
    return len(waiting) < _AHEAD and size_bytes <= _AHEAD_BYTES


__all__ = ["BATCH_ROWS", "TOPIC_COLUMN", "ReadJob", "ReadPartition", "SegmentTask", "read_batches"]
