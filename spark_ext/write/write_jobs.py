"""The driver's side of a job that writes: the specification for its tasks, and the segments from their answers."""

from __future__ import annotations

import weakref
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import pyarrow as pa

from spark_ext.support.python_process import ProcessLock
from spark_ext.support.spark_schemas import arrow_schema
from spark_ext.write.task_writer import (
    JOB_NUMBERS,
    ROUTING_COLUMN,
    JobNumbers,
    TopicTarget,
    WriteSpec,
    WrittenSegment,
    in_order,
)
from txnlog.api.internals import adopt_segments, connection_of
from txnlog.api.writing import begin_transaction
from txnlog.client.truncation import Wanted, check_truncatable
from txnlog.common.format_limits import MAX_BLOCK_NUMBERS
from txnlog.data.arrow_coercion import Unfit, conform_columns, unknown_column
from txnlog.errors import Durable, InvalidInputError, SchemaMismatch, TransactionConflict
from txnlog.fold.number_blocks import CHUNK
from txnlog.format import schema
from txnlog.format.actions import Segment, SliceRows
from txnlog.format.codec import encode_action
from txnlog.replies import reworded

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

    from txnlog.api.namespace import Namespace
    from txnlog.api.transaction import Transaction
    from txnlog.fold.state import TopicRecord

ENTRY_BYTES: Final = 3 << 20
ENTRY_SEGMENTS: Final = 10_000
"""More segments than either go into entries of their own before the commit: an entry has 8 MiB and 50,000 actions."""

# --- numbers ----------------------------------------------------------------------------------------------------------

_STRIDE: Final = JOB_NUMBERS + CHUNK
_MOST_JOBS: Final = MAX_BLOCK_NUMBERS // _STRIDE
"""Jobs of the largest block. The first block has one, each next one twice as many: few entries, few wasted numbers."""


@dataclass(slots=True)
class _Reserved:
    """The numbers reserved for jobs of one handle."""

    numbers: Iterator[int]
    block: int
    next_jobs: int


_reserved: Final[weakref.WeakKeyDictionary[Namespace, _Reserved]] = weakref.WeakKeyDictionary()
_reserved_lock: Final = ProcessLock(_reserved.clear)  # the rest of a block belongs to the parent process


def reserve_job(ns: Namespace) -> JobNumbers:
    """Reserve numbers for a job that nobody else gets."""
    with _reserved_lock:
        known = _reserved.get(ns)
        if known is None or connection_of(ns).is_silent(known.block):
            known = _Reserved(iter(()), -1, 1)
        number = next(known.numbers, None)
        if number is None:
            block = connection_of(ns).reserve_block(known.next_jobs * _STRIDE)
            known.numbers, known.block = iter(range(block.start, block.stop, _STRIDE)), block.start
            known.next_jobs = min(2 * known.next_jobs, _MOST_JOBS)
            number = next(known.numbers)
        _reserved[ns] = known
        return JobNumbers(number)


# --- schemas ----------------------------------------------------------------------------------------------------------


def check_columns(columns: pa.Schema, record: TopicRecord) -> None:
    """Raise SchemaMismatch unless rows with these columns may be rows of a topic: the rules of ``produce``.

    Values are checked when they are written: a nullable column fits one that is not, as long as no value is null.
    """
    wanted = schema.to_arrow(record.schema)
    for name in columns.names:
        if name not in wanted.names:
            raise unknown_column(record.name, name, wanted.names, given=columns.names)
    empty = {field.name: pa.nulls(0, field.type) for field in columns}
    try:
        conform_columns(empty, wanted, rows=1)  # the row makes a missing column count
    except Unfit as unfit:
        mismatch = unfit.mismatch(record.name)
        if unfit.path[-1] in empty:
            mismatch = reworded(mismatch, advice="cast the column of the DataFrame")
        raise mismatch from None


# --- the specification for tasks --------------------------------------------------------------------------------------


def _target(record: TopicRecord) -> TopicTarget:
    arrow = schema.to_arrow(record.schema).serialize().to_pybytes()
    return TopicTarget(record.id, record.name, record.folder, arrow, record.partitions, record.key)


@dataclass(frozen=True, slots=True)
class Planned:
    """A checked job: its columns, and the topic, or None where the column ``topic`` names that of each row."""

    columns: pa.Schema
    record: TopicRecord | None

    def targets(self, ns: Namespace) -> tuple[tuple[TopicTarget, ...], tuple[tuple[str, str], ...]]:
        """The topics that its rows may go to, and the others, each with the reason. Raises as ``spec`` does."""
        return _routed(ns, self.columns) if self.record is None else ((_target(self.record),), ())

    def spec(self, ns: Namespace, storage: str, sources: tuple[int, ...] = ()) -> WriteSpec:
        """The specification for the tasks (``sources``: see there). Reserves the job's numbers as its last step.

        Raises, where rows are routed:
            InvalidInputError: there is no column to route by.
            SchemaMismatch: that column is not a string, or the other columns fit no topic at all.
        """
        targets, refused = self.targets(ns)
        return WriteSpec(
            ns.root,
            ns.name,
            reserve_job(ns),
            targets,
            routes=self.record is None,
            refused=refused,
            turn=_turn(ns),
            sources=sources,
            storage_options=storage,
        )


def planned(ns: Namespace, topic: str | None, spark_schema: StructType) -> Planned:
    """Check by its schema whether a DataFrame's rows may be written to a topic, or routed.

    Raises:
        TopicNotFound: with the nearest name.
        SchemaMismatch: naming the column.
    """
    return planned_for(None if topic is None else connection_of(ns).topic_handle(topic).record, spark_schema)


def planned_for(record: TopicRecord | None, spark_schema: StructType) -> Planned:
    """``planned`` for a topic by its record. Raises SchemaMismatch, naming the column."""
    columns = arrow_schema(spark_schema)
    if record is not None:
        check_columns(columns, record)
    return Planned(columns, record)


OVERWRITTEN: Final = Wanted(
    how_to_allow="overwrite it in a spark_ext.transaction, by "
    "txn.write(df, topic, mode='overwrite', allow_unacknowledged=True)"
)
COMPLETED: Final = Wanted(
    how_to_allow="write it by spark_ext.write_stream, whose handler calls txn.write(df, topic, "
    "allow_unacknowledged=True)"
)
"""What the format asks for of a topic that it overwrites, or of that of a complete result: it has no option for it."""


def check_overwritable(ns: Namespace, record: TopicRecord | None, what: str, wanted: Wanted) -> TopicRecord:
    """The topic that a job overwrites.

    Raises:
        InvalidInputError: none is named, or a subscription has not acknowledged all of its messages.
        UnsupportedFeature: the namespace does not have the feature that overwriting needs.
    """
    if record is None:
        raise InvalidInputError(
            f"{what} needs a topic, and the column {ROUTING_COLUMN!r} may name any",
            advice="write to ROOT/NAMESPACE/TOPIC, or overwrite several topics in one spark_ext.transaction",
        )
    check_truncatable(connection_of(ns), record.name, what, wanted=wanted)
    return record


def _routed(ns: Namespace, columns: pa.Schema) -> tuple[tuple[TopicTarget, ...], tuple[tuple[str, str], ...]]:
    """The topics that routed rows may go to, and the others, each with the reason."""
    index = columns.get_field_index(ROUTING_COLUMN)
    if index < 0:
        raise InvalidInputError(
            f"the path names a namespace and no topic, and the DataFrame has no column {ROUTING_COLUMN!r} to route by",
            advice="write to ROOT/NAMESPACE/TOPIC, give the option 'topic', or add the column",
        )
    if columns.field(index).type != pa.string():
        raise SchemaMismatch(
            f"the column {ROUTING_COLUMN!r} is {columns.field(index).type}, not text: it names each row's topic",
            advice="cast it to string",
        )
    rest = columns.remove(index)
    targets: list[TopicTarget] = []
    refused: list[tuple[str, str]] = []
    problem: SchemaMismatch | None = None
    for record in connection_of(ns).live_topics():
        try:
            check_columns(rest, record)
            targets.append(_target(record))
        except SchemaMismatch as error:
            problem = error
            refused.append((record.name, error.message))
    if not targets:
        if len(refused) == 1 and problem is not None:
            raise problem
        raise SchemaMismatch(
            f"the DataFrame's columns fit no topic of the namespace {ns.name!r}",
            advice="create the topic first, or write each topic's columns by itself (spark_ext.transaction)",
        )
    return tuple(targets), tuple(refused)


def _turn(ns: Namespace) -> int:
    """The partition with which the round-robin begins: a random one, so that small jobs do not all fill partition 0."""
    return int(connection_of(ns).runtime.jitter(1 << 20))


# --- what tasks answer ------------------------------------------------------------------------------------------------


def segments_of(written: Iterable[WrittenSegment], own: JobNumbers, txn: int) -> list[Segment]:
    """The actions that add a job's files to a transaction, its own or another, in the order of its rows."""
    ordered = in_order(list(written))
    assert all(item.segment in own.files for item in ordered), "a task uses the numbers of its job"
    assert len({item.segment for item in ordered}) == len(ordered), "every file has a number of its own"
    return [
        Segment(
            item.segment,
            item.topic,
            item.file,
            item.rows,
            item.size_bytes,
            item.checksum,
            tuple(SliceRows(partition, rows) for partition, rows in item.slices),
            txn,
            statistics={name: (low, high, nulls) for name, low, high, nulls in item.statistics},
        )
        for item in ordered
    ]


def begin(ns: Namespace, numbers: JobNumbers) -> Transaction:
    """An anonymous transaction under the number that was reserved for it; without a deadline until the log shows it."""
    return begin_transaction(connection_of(ns), None, None, timed_from_log=True, number=numbers.txn)


def check_there(ns: Namespace, topic: int, meanwhile: str, *, advice: str) -> TopicRecord:
    """The topic for which a job has written files, from the materialized state.

    Raises TransactionConflict where it was dropped: the commit would leave the rows out, and nobody sees its result.
    """
    record = connection_of(ns).topic_record_by_id(topic)
    if record.dropped:
        raise dropped_meanwhile(record, meanwhile, advice)
    return record


def dropped_meanwhile(record: TopicRecord | None, meanwhile: str, advice: str) -> TransactionConflict:
    """The error for the topic of some rows, of which nothing is committed."""
    name = "that the rows go to" if record is None else repr(record.name)
    return TransactionConflict(
        f"the topic {name} was dropped while {meanwhile}", advice=advice, durable=Durable.NOTHING
    )


def add_segments(txn: Transaction, segments: list[Segment]) -> None:
    """Move the files of its jobs from the list to a transaction, so that its commit includes them.

    If they are too many for one entry, all but the last part is logged now, pending. Called again after OutcomeUnknown,
    or an interrupt, it repeats the current part: the transaction adds no file twice.
    """
    for part in list(entries_of(segments)):
        adopt_segments(txn, part)
        if len(part) < len(segments):
            txn.flush()
        del segments[: len(part)]


def entries_of(segments: Sequence[Segment]) -> Iterator[list[Segment]]:
    """The segments in parts that each fit into an entry, with room for its other actions."""
    part: list[Segment] = []
    size = 0
    for item in segments:
        item_bytes = len(encode_action(item))
        if part and (size + item_bytes > ENTRY_BYTES or len(part) >= ENTRY_SEGMENTS):
            yield part
            part, size = [], 0
        part.append(item)
        size += item_bytes
    if part:
        yield part


__all__ = [
    "COMPLETED",
    "OVERWRITTEN",
    "Planned",
    "add_segments",
    "begin",
    "check_columns",
    "check_overwritable",
    "check_there",
    "dropped_meanwhile",
    "entries_of",
    "planned",
    "planned_for",
    "reserve_job",
    "segments_of",
]
