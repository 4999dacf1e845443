"""Merging small segments into big ones while others write and read (PROTOCOL.md, ``replace``).

Each merge is one entry of its own: what is planned is read and written, then the log is asked to replace it. Where
others were ahead it is planned again. An optimize that stops anywhere leaves files that no entry names, for vacuum.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Final, ParamSpec, TypeVar

import msgspec
import numpy as np
import pyarrow as pa

from txnlog.client.positions import start_offsets
from txnlog.common.limits import AUTO_MERGE_BYTES, MAX_ENTRY_BYTES, MAX_NUMBER, MAX_SEGMENT_BYTES
from txnlog.common.validation import whole_number
from txnlog.data.scan_planner import plan_segment
from txnlog.data.segment_columns import STORED_COLUMNS
from txnlog.data.segment_file import ROW_GROUP_BYTES, EncodedSegment, SegmentWriter
from txnlog.data.segment_rows import PlannedSegment, naming_segment
from txnlog.engine.log_lines import LogLines
from txnlog.errors import CoordinatorFenced
from txnlog.fold.state import SegmentRecord, Statistics, TopicRecord
from txnlog.format import schema as schemas
from txnlog.format.actions import Segment, SliceRows
from txnlog.format.keys import segment_key
from txnlog.log.slots import put_unnamed
from txnlog.maintenance import merge_plan
from txnlog.maintenance.merge_plan import Merge, Output, Part, ReplaceCommand
from txnlog.maintenance.waves import waves
from txnlog.replies import IfUnknown, refused_write, unknown_outcome
from txnlog.results import Optimized
from txnlog.store.base import ObjectNotFound

if TYPE_CHECKING:
    from txnlog.client.connection import Connection

P = ParamSpec("P")
R = TypeVar("R")

_logger = LogLines("txnlog.optimizer")

_WAVE_FILES: Final = 64
_WAVE_BYTES: Final = 16 << 20
"""Files fetched and decoded side by side: for small ones the requests are what takes time."""

_GENTLE_FILES: Final = 8
_LONGEST_REST_MS: Final = 20.0
"""In the background the files are decoded one after the other, with a rest after each as long as that took. A commit
asks for the interpreter some ten times, and would wait for 5 ms each time behind threads that hold it."""

_BUFFERED_BYTES: Final = 4 * ROW_GROUP_BYTES
"""Arrow bytes of all row groups that are being filled, where the rows of shared segments go to many files."""

_LEAST_ROW_GROUP_BYTES: Final = 1 << 20

_STATISTICS_BYTES: Final = MAX_ENTRY_BYTES // 2
"""Of all segments of a merge, which one entry names: a thousand with long texts would not fit into it."""

_MOST_LOOKS: Final = 4
"""A checkpoint may come between a look and the entry once, or twice."""

_MOST_ROUNDS: Final = 100
"""Each leaves fewer segments, unless others are always ahead."""

Progress = Callable[[str, int, int], object]
"""Called with the topic at work, the segments merged so far, and those that are to be merged as far as is known."""

_METADATA: Final = tuple(STORED_COLUMNS.field(name) for name in ("_txn", "_version", "_timestamp"))
"""What a merged segment stores behind the user's columns."""


def begin(
    connection: Connection,
    topic: str,
    target_size_bytes: int,
    *,
    max_bytes: int | None = None,
    dry_run: bool = False,
    progress: Progress | None = None,
) -> Optimization:
    """Begin to merge the small segments of a topic (see ``Namespace.optimize``): to be run, or only foreseen."""
    target_size_bytes = check_target(target_size_bytes)
    if max_bytes is not None:
        max_bytes = whole_number("max_bytes", max_bytes, 0, MAX_NUMBER)
    if not dry_run:
        _ = connection.appender  # a reader is refused before it looks at anything
    with contextlib.nullcontext() if dry_run else refused_write():
        connection.follower.refresh()
        record = connection.topic_record(topic)
    return Optimization(connection, record, target_size_bytes, max_bytes, progress)


def check_target(target_size_bytes: int) -> int:
    """The size as a whole number, or InvalidInputError."""
    return whole_number("target_size_bytes", target_size_bytes, 1, MAX_SEGMENT_BYTES)


@dataclass(slots=True)
class _Done:
    """What was done so far."""

    version: int | None = None
    merged: int = 0
    written: int = 0
    read_bytes: int = 0
    written_bytes: int = 0
    entries: int = 0
    lost_races: int = 0


class _Missing(Exception):
    """The file of a segment is not there."""

    def __init__(self, segment: PlannedSegment) -> None:
        super().__init__(segment.key)
        self.segment = segment


class Optimization:
    """One optimize of one topic: of what was visible when it began, and of what it made of that."""

    def __init__(
        self,
        connection: Connection,
        topic: TopicRecord,
        target_size_bytes: int,
        max_bytes: int | None,
        progress: Progress | None,
    ) -> None:
        self._connection = connection
        self._topic = topic
        self._target = target_size_bytes
        self._max_bytes = max_bytes
        self._progress = progress
        self._is_gentle = False
        self._begun = connection.follower.version
        self._own: set[int] = set()
        self._known = 0
        self._done = _Done()

    def foresee(self) -> Optimized:
        """What it would begin with."""
        wanted = self._plan()
        self._done.merged = sum(len(merge.removed) for merge in wanted)
        self._done.written = sum(len(merge.outputs) for merge in wanted)
        self._done.read_bytes = sum(merge.size_bytes for merge in wanted)
        return self._result(finished=not wanted, dry_run=True)

    def run(self) -> Optimized:
        """Merge until nothing is left, or as much was read as one call may."""
        for _ in range(_MOST_ROUNDS):
            wanted = self._plan()
            if not wanted:
                return self._result(finished=True)
            for index, merge in enumerate(wanted):
                if self._is_enough(merge):
                    return self._result(finished=False)
                if not self._merge(merge):
                    self._done.lost_races += 1
                    break  # what is known of the others is as old
                self._report(wanted[index + 1 :])
        return self._result(finished=False)

    def run_newest(self, small: Sequence[SegmentRecord], version: int) -> Optimized:
        """Merge what is worth it of small segments that were visible at a version, once, in the background."""
        self._is_gentle = True
        self._known = version  # not the newest: by then they may be merged, and that may be forgotten
        follower = self._connection.follower
        starts = follower.look(lambda _state: start_offsets(follower, self._topic))
        chosen = merge_plan.newest(small, self._target)
        for merge in merge_plan.merges(chosen, {}, self._known, starts, self._target):
            if not self._merge(merge):
                break
        return self._result(finished=True)

    def so_far(self) -> Optimized:
        """What it did before an error ended it."""
        return self._result(finished=False)

    def _plan(self) -> list[Merge]:
        """What is to be merged by what the log shows now."""
        follower = self._connection.follower
        self._known, starts = follower.look(lambda state: (state.head.version, start_offsets(follower, self._topic)))
        records, removals = follower.segments(self._topic.id)
        return merge_plan.merges(
            records,
            removals,
            self._known,
            starts,
            self._target,
            lambda item: item.number in self._own or (item.ended_version or 0) <= self._begun,
        )

    def _is_enough(self, merge: Merge) -> bool:
        """Whether as much was read as was allowed: one merge is done in any case."""
        if self._max_bytes is None or not self._done.entries:
            return False
        return self._done.read_bytes + merge.size_bytes > self._max_bytes

    def _report(self, left: Sequence[Merge]) -> None:
        if self._progress is not None:
            known = self._done.merged + sum(len(merge.removed) for merge in left)
            self._progress(self._topic.name, self._done.merged, known)

    def _result(self, *, finished: bool, dry_run: bool = False) -> Optimized:
        done = self._done
        return Optimized(
            self._topic.name,
            done.version,
            done.merged,
            done.written,
            done.read_bytes,
            done.written_bytes,
            done.entries,
            done.lost_races,
            finished,
            dry_run,
        )

    # --- one merge --------------------------------------------------------------------------------------------------

    def _merge(self, merge: Merge) -> bool:
        """Read, write, replace. False where the segments are not all there any more: nothing was replaced."""
        connection = self._connection
        writers = self._filled(merge)
        if writers is None:
            return False
        # Behind the reading: what takes long needs no block of numbers to be kept open for it.
        txn, *numbers = connection.appender.take_numbers(1 + len(merge.outputs))
        try:
            with connection.keep_blocks_alive([txn, *numbers]):
                written = self._stored(merge.outputs, writers, numbers, txn)
                version = self._replaced(merge, txn, written)
        except CoordinatorFenced:
            _logger.warning(
                "%r: a vacuum withdrew the numbers of this writer, which had been silent for too long. "
                "The merge will be done again with new ones.",
                self._topic.name,
            )
            connection.follower.refresh()
            return False
        if version is None:
            return False
        done = self._done
        done.version = version
        done.entries += 1
        done.merged += len(merge.removed)
        done.written += len(written)
        done.read_bytes += merge.size_bytes
        done.written_bytes += sum(segment.size_bytes for segment in written)
        self._own.update(numbers)
        return True

    def _replaced(self, merge: Merge, txn: int, written: Sequence[Segment]) -> int | None:
        """The version that replaced the segments; None where some are gone.

        Where a checkpoint made the state forget what it knew of them, it is looked at again: what was read and
        written is as good as before.
        """
        follower = self._connection.follower
        removed = tuple(record.number for record in merge.removed)
        known = self._known  # a look at these segments says nothing of those of the next merge
        for _ in range(_MOST_LOOKS):
            command = ReplaceCommand(
                txn,
                self._topic.id,
                tuple(written),
                tuple(output.offset for output in merge.outputs),
                removed,
                known,
                lambda: -1 if follower.base is None else follower.base.version,
            )
            with unknown_outcome(IfUnknown.OPTIMIZE):
                version = self._connection.appender.call(command)
            if version is not None:
                return version
            known = follower.version
            removals = follower.segments(self._topic.id)[1]
            if not removals.keys().isdisjoint(removed):
                return None
        return None

    def _filled(self, merge: Merge) -> list[SegmentWriter] | None:
        """A writer for each output, with all of its rows. None where a file is gone by now."""
        schema = schemas.to_arrow(self._topic_now().schema)
        stored = pa.schema([*schema, *_METADATA])
        group = max(_LEAST_ROW_GROUP_BYTES, min(ROW_GROUP_BYTES, _BUFFERED_BYTES // max(1, len(merge.outputs))))
        writers = [SegmentWriter(stored, None, group) for _ in merge.outputs]
        by_partition: dict[int, list[tuple[int, Output]]] = {}
        for index, output in enumerate(merge.outputs):
            by_partition.setdefault(output.partition, []).append((index, output))
        try:
            for record, segment, table in self._tables(merge, schema):
                for part in merge_plan.parts_of(record, {}):
                    for index, rows in _wanted_of(part, by_partition.get(part.partition, ()), table):
                        ended = list(writers[index].write(_with_metadata(rows, schema, segment)))
                        assert not ended, "a writer without a target has one segment"
        except _Missing as missing:
            self._check_replaced(merge, missing.segment)
            return None
        return writers

    def _topic_now(self) -> TopicRecord:
        """The topic with the columns of the version that was planned, or later: rows of older ones fit into them."""
        return self._connection.topic_record_by_id(self._topic.id)

    def _check_replaced(self, merge: Merge, missing: PlannedSegment) -> None:
        """Raise what a missing file means, unless segments were replaced meanwhile, and vacuumed."""
        follower = self._connection.follower
        follower.refresh()
        _, removals = follower.segments(self._topic.id)
        if all(record.number not in removals for record in merge.removed):
            raise follower.missing_at(self._known, self._topic.name, self._topic.folder, missing) from None

    def _tables(self, merge: Merge, schema: pa.Schema) -> Iterator[tuple[SegmentRecord, PlannedSegment, pa.Table]]:
        """The files of a merge, decoded and verified, a wave of them in memory at a time."""
        folder = self._topic.folder
        files = _GENTLE_FILES if self._is_gentle else _WAVE_FILES
        wanted = merge.removed if merge.outputs else ()
        for wave in waves(wanted, lambda record: record.size_bytes, files, _WAVE_BYTES):
            planned = [plan_segment(record, folder, "COMMITTED", None, {}) for record in wave]
            segments = [segment for segment in planned if segment is not None]
            assert len(segments) == len(wave), "every segment has rows"
            tables = self._decoded_gently(schema, segments) if self._is_gentle else self._decoded(schema, segments)
            yield from zip(wave, segments, tables, strict=True)

    def _decoded(self, schema: pa.Schema, segments: Sequence[PlannedSegment]) -> Iterable[pa.Table]:
        read = self._connection.reader.whole
        return self._connection.runtime.run_all([partial(self._of, item, read, schema, item) for item in segments])

    def _decoded_gently(self, schema: pa.Schema, segments: Sequence[PlannedSegment]) -> Iterator[pa.Table]:
        connection, runtime = self._connection, self._connection.runtime
        written = [connection.reader.written(schema, item) for item in segments]
        asked = [item for item, table in zip(segments, written, strict=True) if table is None]
        files = iter(runtime.run_all([partial(self._of, item, connection.store.get, item.key) for item in asked]))
        for segment, table in zip(segments, written, strict=True):
            if table is not None:
                yield table
                continue
            began_ms = runtime.elapsed_ms()
            yield self._of(segment, connection.reader.whole_of, next(files), schema, segment)
            runtime.sleep_ms(min(runtime.elapsed_ms() - began_ms, _LONGEST_REST_MS))

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
            (encoded,) = writer.finish()
            assert encoded.rows == output.rows, "the slices of the log have no gap"
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
                    (SliceRows(output.partition, output.rows),),
                    txn,
                    True,
                    _fitting(encoded.statistics, most_bytes),
                )
            )
        put_unnamed(self._connection.store, self._connection.runtime, [(key, item.data) for key, item in objects])
        return segments


def _wanted_of(part: Part, outputs: Sequence[tuple[int, Output]], table: pa.Table) -> Iterator[tuple[int, pa.Table]]:
    """The rows of a slice that go into outputs of its partition, with their indices: retention may have passed some."""
    for index, output in outputs:
        low, high = max(part.offset, output.offset), min(part.end, output.offset + output.rows)
        if low < high:
            yield index, table.slice(part.first_row + low - part.offset, high - low)


def _fitting(statistics: Statistics, most_bytes: int) -> Statistics:
    """The statistics of the first columns, as many as so many bytes of an entry hold."""
    found: Statistics = {}
    for name, item in statistics.items():
        most_bytes -= len(msgspec.json.encode({name: item}))
        if most_bytes < 0:
            break
        found[name] = item
    return found


def _with_metadata(rows: pa.Table, schema: pa.Schema, segment: PlannedSegment) -> pa.Table:
    """The user's columns, and transaction, version and time of each row, from the file or from the log."""
    count = rows.num_rows
    constants = {
        "_txn": segment.txn,
        "_version": segment.version,
        "_timestamp": None if segment.timestamp_ms is None else segment.timestamp_ms * 1_000,
    }
    columns = [rows.column(name) for name in schema.names]
    for field in _METADATA:
        value = constants[field.name]
        if segment.compacted or value is None:
            columns.append(rows.column(field.name))
        else:
            columns.append(pa.array(np.full(count, value, np.int64)).cast(field.type))
    return pa.Table.from_arrays(columns, schema=pa.schema([*schema, *_METADATA]))


def merge_newest(connection: Connection, topic: int, small: Sequence[SegmentRecord], version: int) -> None:
    """Merge what is worth it of small segments that a topic had at a version. Nothing where others were ahead.

    Clients that commit call it in the background (``client/auto_merger.py``).
    """
    record = connection.topic_record_by_id(topic)
    Optimization(connection, record, AUTO_MERGE_BYTES, None, None).run_newest(small, version)


__all__ = ["Optimization", "Progress", "begin", "check_target", "merge_newest"]
