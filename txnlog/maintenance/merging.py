"""One merge of segments: what is planned is read and written, then the log is asked to replace it.

Merging small segments, key compaction and erasure go this way. Each merge is one entry of its own. One that stops
anywhere leaves files that no entry names, for vacuum.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Final, NamedTuple, ParamSpec, TypeVar

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa

from txnlog.common.format_limits import MAX_ENTRY_BYTES
from txnlog.data import segment_file
from txnlog.data.joined_tables import joined
from txnlog.data.scan_planner import plan_segment
from txnlog.data.segment_columns import merged_columns
from txnlog.data.segment_file import ROW_GROUP_BYTES, EncodedSegment, SegmentWriter
from txnlog.data.segment_rows import PlannedSegment, naming_segment
from txnlog.engine.log_lines import LogLines
from txnlog.errors import CoordinatorFenced
from txnlog.fold.state import Draft, SegmentRecord, Statistics, TopicRecord
from txnlog.format import schema as schemas
from txnlog.format.actions import Header, Segment, SliceRows
from txnlog.format.kept_statistics import kept_statistics
from txnlog.format.keys import segment_key
from txnlog.log.slots import put_unnamed
from txnlog.maintenance import merge_plan
from txnlog.maintenance.merge_plan import Merge, Output, Part, ReplaceCommand
from txnlog.maintenance.waves import waves
from txnlog.replies import unknown_outcome
from txnlog.store.base import ObjectNotFound

if TYPE_CHECKING:
    from txnlog.client.connection import Connection

P = ParamSpec("P")
R = TypeVar("R")

_logger = LogLines("txnlog.merging")

_WAVE_FILES: Final = 64
_WAVE_BYTES: Final = 16 << 20
"""Files in memory together, fetched and decoded side by side: for small ones the requests are what takes time."""

_GENTLE_FILES: Final = 8
_LONGEST_REST_MS: Final = 20.0
"""In the background fewer files are fetched side by side, and they are decoded one after the other, with a rest after
each as long as that took. A commit asks for the interpreter some ten times, and would wait for 5 ms each time behind
threads that hold it."""

_BUFFERED_BYTES: Final = 4 * ROW_GROUP_BYTES
"""Arrow bytes of all row groups that are being filled, where the rows of shared segments go to many files."""

_LEAST_ROW_GROUP_BYTES: Final = 1 << 20

_JOINED_BYTES: Final = ROW_GROUP_BYTES
"""Arrow bytes of parts of files that are joined before they are written: small ones together cost a step, not each."""

_PART_BYTES: Final = 4 << 10
"""What a part takes in memory besides its rows, about."""

_STATISTICS_BYTES: Final = MAX_ENTRY_BYTES // 2
"""Of all segments of a merge, which one entry names: a thousand with long texts would not fit into it."""

_MOST_LOOKS: Final = 4
"""A checkpoint may come between a look and the entry once, or twice."""

Numbers = npt.NDArray[np.int64]


class Merged(NamedTuple):
    """What one merge did: at which version, and which segments came."""

    version: int
    segments: tuple[Segment, ...]


class Gone(Exception):
    """Some of the segments were replaced meanwhile, and a file of them was deleted."""


class _Missing(Exception):
    """The file of a segment is not there."""

    def __init__(self, segment: PlannedSegment) -> None:
        super().__init__(segment.key)
        self.segment = segment


class Rows(NamedTuple):
    """Rows of one partition of a segment, as its file has them.

    Those that ``Merger.rows`` gives have ``_txn``, ``_version`` and ``_timestamp``, wherever these are stored.
    """

    segment: SegmentRecord
    planned: PlannedSegment
    part: Part
    offsets: Numbers
    table: pa.Table


Keep = Callable[[Rows], npt.NDArray[np.bool_]]
"""Which of some rows stay."""


class Merger:
    """Merges segments of one topic, one merge after the other.

    Attributes:
        is_gentle: it works in the background, next to those who commit.
        if_unknown: what an unknown outcome of its entry means for the caller.
        still: whether the topic, as it and its subscriptions are when the entry is written, asks for it yet. Else it
            counts as if others had been ahead.
    """

    def __init__(
        self,
        connection: Connection,
        topic: TopicRecord,
        if_unknown: str,
        still: Callable[[Draft, TopicRecord, Header], bool] = lambda _draft, _topic, _at: True,
    ) -> None:
        self._connection = connection
        self._topic = topic
        self._if_unknown = if_unknown
        self._still = still
        self.is_gentle = False

    def merge(self, merge: Merge, known: int, keep: Keep | None = None, needed: tuple[int, ...] = ()) -> Merged | None:
        """Read, write, replace. None where the segments are not all there any more: nothing was replaced.

        Args:
            merge: what goes and what comes. Where ``keep`` leaves rows out, the outputs have holes.
            known: the version at which the segments were looked at.
            keep: which rows stay; None for all.
            needed: segments that have to be there as well, as of ReplaceCommand.
        """
        connection = self._connection
        writers = self._filled(merge, known, keep)
        if writers is None:
            return None
        # Behind the reading: what takes long needs no block of numbers to be kept open for it.
        txn, *numbers = connection.appender.take_numbers(1 + len(merge.outputs))
        try:
            with connection.keep_blocks_alive([txn, *numbers]):
                written = self._stored(merge.outputs, writers, numbers, txn)
                version = self._replaced(merge, txn, written, known, needed)
        except CoordinatorFenced:
            _logger.warning(
                "%r: a vacuum withdrew the numbers of this writer, which had been silent for too long. "
                "The merge will be done again with new ones.",
                self._topic.name,
            )
            connection.follower.refresh()
            return None
        return None if version is None else Merged(version, tuple(written))

    def _replaced(
        self, merge: Merge, txn: int, written: Sequence[Segment], known: int, needed: tuple[int, ...]
    ) -> int | None:
        """The version that replaced the segments; None where some are gone.

        Where a checkpoint made the state forget what it knew of them, it is looked at again: what was read and
        written is as good as before.
        """
        follower = self._connection.follower
        removed = tuple(record.number for record in merge.removed)
        for _ in range(_MOST_LOOKS):
            command = ReplaceCommand(
                txn,
                self._topic.id,
                tuple(written),
                tuple(output.offset for output in merge.outputs),
                removed,
                known,
                lambda: follower.forgotten_to,
                needed,
                self._still,
            )
            with unknown_outcome(self._if_unknown):
                version = self._connection.appender.call(command)
            if version is not None:
                return version
            known = follower.version
            removals = follower.segments(self._topic.id)[1]
            if not removals.keys().isdisjoint((*removed, *needed)):
                return None
        return None

    def _filled(self, merge: Merge, known: int, keep: Keep | None) -> list[SegmentWriter] | None:
        """A writer for each output, with all of its rows. None where a file is gone by now."""
        schema = self.schema()
        row_group_bytes = max(
            _LEAST_ROW_GROUP_BYTES, min(ROW_GROUP_BYTES, _BUFFERED_BYTES // max(1, len(merge.outputs)))
        )
        writers = [
            SegmentWriter(merged_columns(schema, has_holes=item.has_holes), None, row_group_bytes)
            for item in merge.outputs
        ]
        by_partition: dict[int, list[tuple[int, Output]]] = {}
        for index, output in enumerate(merge.outputs):
            by_partition.setdefault(output.partition, []).append((index, output))
        waiting: dict[int, list[Rows]] = {}

        def write() -> None:
            for index, several in waiting.items():
                for group in _alike(several):
                    table = _with_metadata(group, schema, has_holes=merge.outputs[index].has_holes)
                    ended = list(writers[index].write(table))
                    assert not ended, "a writer without a target has one segment"
            waiting.clear()

        size_bytes = 0
        try:
            for rows in self._of_files(merge.removed if merge.outputs else (), known, schema):
                kept = rows if keep is None else _filtered(rows, keep)
                for index, output in by_partition.get(rows.part.partition, ()):
                    waiting.setdefault(index, []).append(_of_output(kept, output))
                size_bytes += rows.table.get_total_buffer_size() + _PART_BYTES
                if size_bytes >= _JOINED_BYTES:
                    write()
                    size_bytes = 0
        except Gone:
            return None
        write()
        return writers

    def schema(self) -> pa.Schema:
        """The columns of the version that was planned, or later: rows of older ones fit into them."""
        return schemas.to_arrow(self._connection.topic_record_by_id(self._topic.id).schema)

    def rows(
        self, records: Sequence[SegmentRecord], known: int, schema: pa.Schema, columns: Sequence[str] | None = None
    ) -> Iterator[Rows]:
        """The rows of visible segments, verified, partition by partition in each.

        Args:
            records: the segments.
            known: the version at which they were looked at.
            schema: of the topic.
            columns: the wanted ones of these; None for all.

        Raises Gone where they were replaced meanwhile.
        """
        wanted = schema if columns is None else pa.schema([schema.field(name) for name in columns])
        for rows in self._of_files(records, known, schema, columns):
            yield rows._replace(table=_with_metadata([rows], wanted, has_holes=False))

    def _of_files(
        self, records: Sequence[SegmentRecord], known: int, schema: pa.Schema, columns: Sequence[str] | None = None
    ) -> Iterator[Rows]:
        """The rows of segments as their files have them. The arguments are those of ``rows``, and so is Gone."""
        try:
            for record, segment, table in self._tables(records, schema, columns):
                for part in merge_plan.parts_of(record, {}):
                    yield Rows(record, segment, part, *_rows_of(part, table))
        except _Missing as missing:
            self._check_replaced(records, missing.segment, known)
            raise Gone from None

    def _check_replaced(self, records: Sequence[SegmentRecord], missing: PlannedSegment, known: int) -> None:
        """Raise what a missing file means, unless segments were replaced meanwhile, and vacuumed."""
        follower = self._connection.follower
        follower.refresh()
        merge_plan.not_dropped(self._connection.topic_record_by_id(self._topic.id), self._topic.id)
        _, removals = follower.segments(self._topic.id)
        if all(record.number not in removals for record in records):
            raise follower.missing_at(known, self._topic.name, self._topic.folder, missing) from None

    def _tables(
        self, records: Sequence[SegmentRecord], schema: pa.Schema, columns: Sequence[str] | None
    ) -> Iterator[tuple[SegmentRecord, PlannedSegment, pa.Table]]:
        """The files of segments, decoded and verified, a wave of them in memory at a time."""
        folder = self._topic.folder
        for wave in waves(records, lambda record: record.size_bytes, _WAVE_FILES, _WAVE_BYTES):
            planned = [plan_segment(record, folder, "COMMITTED", None, {}) for record in wave]
            segments = [segment for segment in planned if segment is not None]
            assert len(segments) == len(wave), "every segment has offsets"
            if self.is_gentle:
                tables: Iterable[pa.Table] = self._decoded_gently(schema, segments)
            else:
                tables = self._decoded(schema, segments, columns)
            yield from zip(wave, segments, tables, strict=True)

    def _decoded(
        self, schema: pa.Schema, segments: Sequence[PlannedSegment], columns: Sequence[str] | None
    ) -> Iterable[pa.Table]:
        read = self._connection.reader.whole
        calls = [partial(self._of, item, read, schema, item, columns) for item in segments]
        return self._connection.runtime.run_all(calls)

    def _decoded_gently(self, schema: pa.Schema, segments: Sequence[PlannedSegment]) -> Iterator[pa.Table]:
        runtime, reader = self._connection.runtime, self._connection.reader
        written = [reader.written(schema, item) for item in segments]
        files = self._fetched([item for item, table in zip(segments, written, strict=True) if table is None])
        for segment, table in zip(segments, written, strict=True):
            if table is not None:
                yield table
                continue
            file = next(files)
            began_ms = runtime.elapsed_ms()
            yield self._of(segment, reader.whole_of, file, schema, segment)
            runtime.sleep_ms(min(runtime.elapsed_ms() - began_ms, _LONGEST_REST_MS))

    def _fetched(self, segments: Sequence[PlannedSegment]) -> Iterator[bytes]:
        """The files of segments, a few at a time."""
        get = self._connection.store.get
        for first in range(0, len(segments), _GENTLE_FILES):
            some = segments[first : first + _GENTLE_FILES]
            yield from self._connection.runtime.run_all([partial(self._of, item, get, item.key) for item in some])

    def _of(self, segment: PlannedSegment, call: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> R:
        """What a call gives for a segment, which its errors name."""
        try:
            with naming_segment(self._topic.name, segment):
                return call(*args, **kwargs)
        except ObjectNotFound:
            raise _Missing(segment) from None

    def _stored(
        self, outputs: Sequence[Output], writers: Sequence[SegmentWriter], numbers: Sequence[int], txn: int
    ) -> list[Segment]:
        """The merged segments, on the store; files leave the memory wave by wave."""
        segments: list[Segment] = []
        most_bytes = _STATISTICS_BYTES // max(1, len(outputs))
        for first in range(0, len(writers), _WAVE_FILES):
            wave = slice(first, first + _WAVE_FILES)
            segments += self._put(outputs[wave], writers[wave], numbers[wave], txn, most_bytes)
        return segments

    def _put(
        self,
        outputs: Sequence[Output],
        writers: Sequence[SegmentWriter],
        numbers: Sequence[int],
        txn: int,
        most_bytes: int,
    ) -> list[Segment]:
        objects: list[tuple[str, EncodedSegment]] = []
        segments: list[Segment] = []
        for output, writer, number in zip(outputs, writers, numbers, strict=True):
            # What has holes may have no row at all, and needs a file all the same: its offsets are still there.
            encoded = next(writer.finish(), None) or segment_file.encode(writer.schema.empty_table())
            assert output.has_holes or encoded.rows == output.width, "the slices of the log have no gap"
            file = f"{self._connection.runtime.unique()}.parquet"
            objects.append((segment_key(self._topic.folder, number, file), encoded))
            segments.append(
                Segment(
                    number,
                    self._topic.id,
                    file,
                    encoded.rows,
                    encoded.size_bytes,
                    encoded.checksum,
                    (SliceRows(output.partition, encoded.rows),),
                    txn,
                    True,
                    _fitting(kept_statistics(self._topic.properties, encoded.statistics), most_bytes),
                    output.width if output.has_holes else None,
                )
            )
        put_unnamed(self._connection.store, self._connection.runtime, [(key, item.data) for key, item in objects])
        return segments


def _rows_of(part: Part, table: pa.Table) -> tuple[Numbers, pa.Table]:
    """The offsets and the rows of a slice."""
    if part.has_holes:
        return table.column("_offset").to_numpy(), table
    return np.arange(part.offset, part.end), table.slice(part.first_row, part.width)


def _filtered(rows: Rows, keep: Keep) -> Rows:
    kept = keep(rows)
    return rows._replace(offsets=rows.offsets[kept], table=rows.table.filter(pa.array(kept)))


def _of_output(rows: Rows, output: Output) -> Rows:
    """Those of some rows that go into an output of their partition: retention may have passed some."""
    first, behind = np.searchsorted(rows.offsets, [output.offset, output.end]).tolist()
    return rows._replace(offsets=rows.offsets[first:behind], table=rows.table.slice(first, behind - first))


def _alike(several: Iterable[Rows]) -> Iterator[list[Rows]]:
    """Neighbours whose files have the same columns, together: each step takes as long for one row as for thousands."""
    found: list[Rows] = []
    for rows in several:
        if found and not rows.table.schema.equals(found[0].table.schema):
            yield found
            found = []
        found.append(rows)
    if found:
        yield found


def _fitting(statistics: Statistics, most_bytes: int) -> Statistics:
    """The statistics of the first columns, as many as so many bytes of an entry hold."""
    found: Statistics = {}
    for name, item in statistics.items():
        most_bytes -= len(msgspec.json.encode({name: item}))
        if most_bytes < 0:
            break
        found[name] = item
    return found


def _with_metadata(several: Sequence[Rows], schema: pa.Schema, *, has_holes: bool) -> pa.Table:
    """The user's columns of rows whose files have the same ones, and what a merged file stores of each."""
    table = joined([rows.table for rows in several])
    in_log: dict[str, Callable[[PlannedSegment], int | None]] = {
        "_txn": lambda segment: segment.txn,
        "_version": lambda segment: segment.version,
        "_timestamp": lambda segment: None if segment.timestamp_ms is None else segment.timestamp_ms * 1_000,
    }
    counts = [rows.table.num_rows for rows in several]
    merged = merged_columns(schema, has_holes=has_holes)
    columns = [table.column(name) for name in schema.names]
    for field in list(merged)[len(schema) :]:
        if field.name == "_offset":
            columns.append(pa.array(np.concatenate([rows.offsets for rows in several])))
        elif field.name in table.schema.names:
            columns.append(table.column(field.name))
        else:
            values = np.array([in_log[field.name](rows.planned) for rows in several], np.int64)
            columns.append(pa.array(np.repeat(values, counts)).cast(field.type))
    return pa.Table.from_arrays(columns, schema=merged)


__all__ = ["Gone", "Keep", "Merged", "Merger", "Numbers", "Rows"]
