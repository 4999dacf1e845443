"""What runs on executors: Arrow batches of one task become segment files, and what the log must say of them.

Every way of writing from Spark goes through here. An executor needs PyArrow, NumPy and our own Python, and fsspec
with the client of its store where this is no local folder.

A segment's number is ``numbers.files.start + task attempt + ATTEMPTS * n`` for the n-th file of a task attempt.
Spark never gives one task-attempt id twice in an application, whatever is retried, speculated or run again as a stage
(attempt *numbers* begin again with every attempt of a stage), so no two files of a job share a number: what a lost task
left behind lies alone in its folder.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from pyspark import TaskContext

from spark_ext.support.python_process import store_of
from txnlog.common.limits import TARGET_SEGMENT_BYTES
from txnlog.common.names import nearest
from txnlog.data import partitioner, segment_file
from txnlog.data.arrow_coercion import Unfit, conform_columns
from txnlog.data.segment_columns import STORED_COLUMNS
from txnlog.errors import LimitExceeded, SchemaMismatch, TopicNotFound, TxnLogError
from txnlog.format.keys import segment_key

ATTEMPTS: Final = 1 << 24
"""Task attempts that an application may start while one job runs: ids further apart would get the same numbers."""

FILES_PER_TASK: Final = 1 << 10
"""The most files of one task: 128 GiB of Arrow at the target size. A larger task is better split."""

JOB_NUMBERS: Final = ATTEMPTS * FILES_PER_TASK
"""The numbers of one job. Blocks are sparse: unused numbers cost nothing."""

SORTED_SEGMENT_BYTES: Final = 64 << 20
"""Arrow bytes of a file with several partitions: its rows are sorted in memory, which takes twice as much."""

ROUTING_COLUMN: Final = "topic"
PARTITION_COLUMN: Final = "_partition"
SOURCE_COLUMN: Final = "_txnlog_source"
"""The place in ``WriteSpec.sources`` of each row's source."""


@dataclass(frozen=True)
class TopicTarget:
    """A topic that a job may write to. ``schema`` is Arrow's, serialized; ``key`` is None where rows go in turn."""

    id: int
    name: str
    folder: str
    schema: bytes
    partitions: int
    key: str | None


@dataclass(frozen=True, slots=True)
class JobNumbers:
    """What is reserved for a job: ``txn``, for a transaction where it has one of its own, and the numbers behind it."""

    txn: int

    @property
    def files(self) -> range:
        """``JOB_NUMBERS`` of them, for the files of its tasks."""
        return range(self.txn + 1, self.txn + 1 + JOB_NUMBERS)


@dataclass(frozen=True)
class WriteSpec:
    """One job, as its tasks see it.

    Attributes:
        root: as ``txnlog.store.open_store`` takes it.
        namespace: the folder below it.
        storage_options: JSON; they appear in no repr.
        numbers: that belong to this job.
        targets: where rows may go; exactly one unless ``routes``.
        routes: whether the column ``topic`` names each row's topic.
        refused: topics that rows of this schema do not fit, and why; for ``routes``.
        turn: where the turn of partitions begins, in a topic without a key.
        target_bytes: Arrow bytes after which a task begins the next file.
        sources: where the rows come from, if those of one source go to one partition of a topic without a key, so that
            they keep their order: of each source the number of its partition there.
    """

    root: str
    namespace: str
    numbers: JobNumbers
    targets: tuple[TopicTarget, ...]
    routes: bool = False
    refused: tuple[tuple[str, str], ...] = ()
    turn: int = 0
    target_bytes: int = TARGET_SEGMENT_BYTES
    sources: tuple[int, ...] = ()
    storage_options: str = field(default="{}", repr=False)


@dataclass(frozen=True)
class WrittenSegment:
    """A file that is durable and that nothing names yet. ``task`` and ``position`` put the files of a job in order."""

    task: int
    position: int
    segment: int
    topic: int
    file: str
    rows: int
    size_bytes: int
    checksum: str
    slices: tuple[tuple[int, int], ...]
    statistics: tuple[tuple[str, Any, Any, int | None], ...]

    def to_json(self) -> str:
        """Text for a column of a DataFrame."""
        return json.dumps([getattr(self, name) for name in self.__dataclass_fields__])

    @classmethod
    def from_json(cls, text: str) -> WrittenSegment:
        """The inverse of ``to_json``."""
        values = dict(zip(cls.__dataclass_fields__, json.loads(text), strict=True))
        values["slices"] = tuple((partition, rows) for partition, rows in values["slices"])
        values["statistics"] = tuple((name, low, high, nulls) for name, low, high, nulls in values["statistics"])
        return cls(**values)


@dataclass(frozen=True)
class TaskIdentity:
    """Which task this is: its partition of the job, and the id of this attempt."""

    partition: int
    attempt: int

    @classmethod
    def current(cls) -> TaskIdentity:
        """Of the Spark task that runs this code."""
        context = TaskContext.get()
        assert context is not None, "runs inside of a Spark task"
        return cls(context.partitionId(), context.taskAttemptId())


def write_batches(
    batches: Iterator[pa.RecordBatch], spec: WriteSpec, task: TaskIdentity | None = None
) -> list[WrittenSegment]:
    """Write the rows of one task; returns what the log must say of the files, all of them durable.

    Rows of one partition of a topic keep their order. Batches have the columns of the topic in any order, further
    ``topic`` where the spec routes, and ``_partition`` where Spark computed it.

    Raises:
        SchemaMismatch: naming topic and column.
        TopicNotFound: a row names a topic that is not there.
        LimitExceeded: more files than a task may write.
        StoreError: the store refuses.
    """
    writer = _TaskWriter(spec, task or TaskIdentity.current())
    for batch in batches:
        writer.add(batch)
    return writer.finish()


def write_marked(
    batches: Iterator[pa.RecordBatch], names: Sequence[str], spec: WriteSpec, mark: str
) -> Iterator[pa.RecordBatch]:
    """For ``mapInArrow``: write the rows of one task under the right names, and give what the log must say as text.

    ``mark`` goes with the errors of ours, so that the driver knows them (see ``spark_errors.typed``).
    """
    renamed = (pa.RecordBatch.from_arrays(batch.columns, names=list(names)) for batch in batches)
    try:
        written = [item.to_json() for item in write_batches(renamed, spec)]
    except TxnLogError as error:
        error.add_note(mark)
        raise
    yield pa.record_batch([pa.array(written, pa.string())], names=["segment"])


class _TaskWriter:
    """The files of one task attempt."""

    def __init__(self, spec: WriteSpec, task: TaskIdentity) -> None:
        self._spec = spec
        self._task = task
        self._store = store_of(spec.root, spec.namespace, json.loads(spec.storage_options))
        self._targets = {target.name: target for target in spec.targets}
        self._writers: dict[tuple[str, int], _TopicWriter] = {}
        self._written: list[WrittenSegment] = []

    def add(self, batch: pa.RecordBatch) -> None:
        """Take rows, and store the files that are full."""
        if not batch.num_rows:
            return
        for source, part in self._by_source(batch):
            for name, rows in self._routed(part):
                target = self._target(name)
                place = name, self._own_partition(target, source)
                writer = self._writers.get(place)
                if writer is None:
                    writer = self._writers[place] = _TopicWriter(target, self._spec.target_bytes, place[1])
                self._store_all(writer, writer.add(rows))

    def finish(self) -> list[WrittenSegment]:
        """Store what is left."""
        for writer in self._writers.values():
            self._store_all(writer, writer.finish())
        return self._written

    def _own_partition(self, target: TopicTarget, source: int) -> int:
        """The partition of a topic without a key that rows go to; 0 where their keys say it.

        Tasks take turns, so that a job spreads its rows; each keeps to one partition: no file needs sorting.
        """
        if target.key is not None:
            return 0
        number = self._spec.sources[source] if self._spec.sources else self._spec.turn + self._task.partition
        return number % target.partitions

    def _by_source(self, batch: pa.RecordBatch) -> Iterator[tuple[int, pa.RecordBatch]]:
        """The rows by their source, without the column that says it."""
        if not self._spec.sources:
            yield 0, batch
            return
        sources = batch.column(SOURCE_COLUMN)
        rest = batch.drop_columns([SOURCE_COLUMN])
        distinct = pc.unique(sources).to_pylist()
        for source in distinct:
            yield source, rest if len(distinct) == 1 else rest.filter(pc.equal(sources, source))

    def _routed(self, batch: pa.RecordBatch) -> Iterator[tuple[str, pa.RecordBatch]]:
        """The rows by topic, without the column that names it."""
        if not self._spec.routes:
            yield self._spec.targets[0].name, batch
            return
        names = batch.column(ROUTING_COLUMN)
        rest = batch.drop_columns([ROUTING_COLUMN])
        if names.null_count:
            raise SchemaMismatch(
                f"the column {ROUTING_COLUMN!r} is null in a row: it names the row's topic",
                advice="fill it, or write to one topic: ROOT/NAMESPACE/TOPIC",
            )
        try:
            _check_valid(ROUTING_COLUMN, names)
        except Unfit as unfit:
            raise SchemaMismatch(f"the column {ROUTING_COLUMN!r}: {unfit.reason}", advice=unfit.advice) from None
        distinct = pc.unique(names).to_pylist()
        for name in distinct:
            yield name, rest if len(distinct) == 1 else rest.filter(pc.equal(names, name))

    def _target(self, name: str) -> TopicTarget:
        target = self._targets.get(name)
        if target is not None:
            return target
        for refused, why in self._spec.refused:
            if refused == name:
                raise SchemaMismatch(why, advice="write these rows to a topic with their columns")
        known = [*self._targets, *(refused for refused, _ in self._spec.refused)]
        raise TopicNotFound(
            f"a row names the topic {ascii(name)[:60]}, which the namespace {self._spec.namespace!r} does not have",
            advice=nearest(name, known),
        )

    def _store_all(self, writer: _TopicWriter, files: Iterator[_File]) -> None:
        target = writer.target
        for slices, encoded in files:
            position = len(self._written)
            if position >= FILES_PER_TASK:
                raise LimitExceeded(
                    f"a task writes more than {FILES_PER_TASK:,} files",
                    advice="let a task have fewer messages, by maxOffsetsPerTrigger or maxRecordsPerPartition"
                    if self._spec.sources
                    else "repartition the DataFrame into more tasks",
                )
            number = self._spec.numbers.files.start + self._task.attempt % ATTEMPTS + position * ATTEMPTS
            file = f"{uuid.uuid4().hex}.parquet"
            self._store.put(segment_key(target.folder, number, file), encoded.data)
            self._written.append(
                WrittenSegment(
                    self._task.partition,
                    position,
                    number,
                    target.id,
                    file,
                    encoded.rows,
                    encoded.size_bytes,
                    encoded.checksum,
                    slices,
                    tuple((name, *bounds) for name, bounds in encoded.statistics.items()),
                )
            )


_File = tuple[tuple[tuple[int, int], ...], segment_file.EncodedSegment]
"""Slices (partition, rows) in the order of the rows, and the bytes."""


class _TopicWriter:
    """The rows of one task for one topic; of one without a key, for one of its partitions."""

    def __init__(self, target: TopicTarget, target_bytes: int, own_partition: int) -> None:
        self.target = target
        self._schema = pa.ipc.read_schema(pa.py_buffer(target.schema))
        self._target_bytes = target_bytes
        self._sorted_bytes = min(target_bytes, SORTED_SEGMENT_BYTES)
        self._own_partition = own_partition
        self._in_turn: segment_file.SegmentWriter | None = None
        self._tables: list[pa.Table] = []
        self._partitions: list[npt.NDArray[np.int32]] = []
        self._bytes = 0

    def add(self, batch: pa.RecordBatch) -> Iterator[_File]:
        """Take rows of this topic and give the files that are full."""
        table = self._conformed(batch)
        partitions = self._partitions_of(batch, table)
        if partitions is None:
            if self._in_turn is None:
                self._in_turn = segment_file.SegmentWriter(self._schema, self._target_bytes)
            yield from self._in_one(self._in_turn.write(table))
            return
        self._tables.append(table)
        self._partitions.append(partitions)
        self._bytes += table.nbytes
        if self._bytes >= self._sorted_bytes:
            yield self._by_partition()

    def finish(self) -> Iterator[_File]:
        """Give the last file."""
        if self._in_turn is not None:
            yield from self._in_one(self._in_turn.finish())
        if self._tables:
            yield self._by_partition()

    def _in_one(self, encoded: Iterator[segment_file.EncodedSegment]) -> Iterator[_File]:
        for item in encoded:
            yield ((self._own_partition, item.rows),), item

    def _by_partition(self) -> _File:
        table = pa.concat_tables(self._tables)
        table, slices = partitioner.split(table, np.concatenate(self._partitions))
        self._tables, self._partitions, self._bytes = [], [], 0
        if len(slices) > 1:
            # What the planner expects of a segment with several slices.
            stored = np.repeat([partition for partition, _ in slices], [rows for _, rows in slices])
            table = table.append_column(STORED_COLUMNS.field(PARTITION_COLUMN), pa.array(stored, pa.int32()))
        return tuple(slices), segment_file.encode(table)

    def _conformed(self, batch: pa.RecordBatch) -> pa.Table:
        given = dict(zip(batch.schema.names, batch.columns, strict=True))
        try:
            for name, column in given.items():
                _check_valid(name, column)
            columns = conform_columns(given, self._schema, batch.num_rows)
        except Unfit as unfit:
            raise unfit.mismatch(self.target.name) from None
        return pa.Table.from_arrays(columns, schema=self._schema)

    def _partitions_of(self, batch: pa.RecordBatch, table: pa.Table) -> npt.NDArray[np.int32] | None:
        """The partition of every row; None where this task's own partition takes all."""
        if self.target.partitions == 1 or self.target.key is None:
            return None
        index = batch.schema.get_field_index(PARTITION_COLUMN)
        if index >= 0:
            return batch.column(index).to_numpy(zero_copy_only=False).astype(np.int32, copy=False)
        return partitioner.partition_of_keys(table.column(self.target.key), self.target.partitions)


def _check_valid(name: str, column: pa.Array) -> None:
    """Raise Unfit for text that is none: Spark makes text of any bytes, at which readers in Python would fail."""
    try:
        column.validate(full=True)
    except pa.ArrowInvalid as error:
        advice = "text is UTF-8: make_valid_utf8 of Spark's repairs it, and a binary column takes any bytes"
        raise Unfit(f"not valid Arrow data: {error}", advice).within(name) from None


def in_order(written: Sequence[WrittenSegment]) -> list[WrittenSegment]:
    """The files of a job in the order of its rows."""
    return sorted(written, key=lambda item: (item.task, item.position))


__all__ = [
    "ATTEMPTS",
    "FILES_PER_TASK",
    "JOB_NUMBERS",
    "PARTITION_COLUMN",
    "ROUTING_COLUMN",
    "SOURCE_COLUMN",
    "JobNumbers",
    "TaskIdentity",
    "TopicTarget",
    "WriteSpec",
    "WrittenSegment",
    "in_order",
    "write_batches",
    "write_marked",
]
