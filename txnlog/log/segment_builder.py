"""From rows to segment files and their actions: shared ones of an entry, and those of one transaction."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import groupby

import numpy as np
import pyarrow as pa

from txnlog.common.limits import TARGET_SEGMENT_BYTES
from txnlog.data import row_buffer, segment_file
from txnlog.data.row_buffer import RowBuffer
from txnlog.data.segment_columns import STORED_COLUMNS
from txnlog.fold.state import Draft, TopicRecord
from txnlog.format import schema
from txnlog.format.actions import Segment, SliceRows
from txnlog.format.kept_statistics import kept_statistics
from txnlog.format.keys import segment_key
from txnlog.log.commands import Piece
from txnlog.log.group_commit import SharedWave
from txnlog.log.number_pool import NumberPool
from txnlog.replies import copy_of

_PARTITION = STORED_COLUMNS.field("_partition")
_TXN = STORED_COLUMNS.field("_txn")


@dataclass(frozen=True, slots=True)
class BuiltSegment:
    """A file that is ready to be put, and the action that will name it."""

    key: str
    data: bytes
    action: Segment


class SharedSegmentBuilder:
    """Makes, for each topic, the one segment that the commits of an entry share."""

    def __init__(
        self, unique: Callable[[], str], keep: Callable[[str, pa.Table], object] = lambda _key, _table: None
    ) -> None:
        """``keep`` is shown the key and the rows of each."""
        self._unique = unique
        self._keep = keep

    def build(self, draft: Draft, pieces: list[tuple[int, Piece]], numbers: NumberPool) -> SharedWave | None:
        """See SharedSegments. Rows lie by partition, in each partition by commit, in each commit as produced."""
        topics: dict[int, TopicRecord] = {}
        by_topic: dict[int, list[tuple[int, Piece]]] = {}
        for item in pieces:
            number = item[1].topic
            if number not in topics:
                topic = draft.topics.get(number)
                if topic is None or topic.dropped:
                    continue
                topics[number] = topic
                by_topic[number] = []
            by_topic[number].append(item)
        taken = numbers.take(len(topics))
        if taken is None:
            numbers.demand(len(topics))
            return None
        built: list[BuiltSegment] = []
        refused: dict[int, Exception] = {}
        for (number, items), segment in zip(by_topic.items(), taken, strict=True):
            try:
                built.append(self._one(topics[number], items, segment))
            except Exception:
                alone = self._refused(topics[number], items, segment)
                if not alone:
                    raise
                refused |= alone
        if refused:
            return SharedWave({}, (), (), refused)
        return SharedWave(
            {item.action.topic: item.action.segment for item in built},
            tuple(item.action for item in built),
            tuple((item.key, item.data) for item in built),
        )

    def _refused(self, topic: TopicRecord, items: list[tuple[int, Piece]], segment: int) -> dict[int, Exception]:
        """Whose rows make no segment by themselves either, and why: nobody else shall hear of it."""
        by_txn: dict[int, list[tuple[int, Piece]]] = {}
        for item in items:
            by_txn.setdefault(item[0], []).append(item)
        refused: dict[int, Exception] = {}
        for txn, own in by_txn.items():
            try:
                self._one(topic, own, segment)
            except Exception as error:  # noqa: BLE001 - a bug, too, is that of whose rows show it
                refused[txn] = copy_of(error)
        return refused

    def _one(self, topic: TopicRecord, items: list[tuple[int, Piece]], segment: int) -> BuiltSegment:
        items.sort(key=lambda item: item[1].partition)  # stable: commit order stays within a partition
        counts = [piece.rows for _, piece in items]
        table = _table(topic, [piece for _, piece in items])
        table = table.append_column(_TXN, pa.array(np.repeat([txn for txn, _ in items], counts), pa.int64()))
        table = table.append_column(
            _PARTITION, pa.array(np.repeat([piece.partition for _, piece in items], counts), pa.int32())
        )
        rows: dict[int, int] = {}
        for _, piece in items:
            rows[piece.partition] = rows.get(piece.partition, 0) + piece.rows
        slices = tuple([SliceRows(partition, count) for partition, count in rows.items()])
        made = make(topic, table, slices, segment, f"{self._unique()}.parquet", None)
        self._keep(made.key, table)
        return made


def make(
    topic: TopicRecord, table: pa.Table, slices: tuple[SliceRows, ...], segment: int, file: str, txn: int | None
) -> BuiltSegment:
    """One segment file of rows that already lie by partition."""
    encoded = segment_file.encode(table)
    action = Segment(
        segment,
        topic.id,
        file,
        encoded.rows,
        len(encoded.data),
        encoded.checksum,
        slices,
        txn,
        False,
        kept_statistics(topic.properties, encoded.statistics),
    )
    return BuiltSegment(segment_key(topic.folder, segment, file), encoded.data, action)


def build_owned(
    topic: TopicRecord, pieces: Sequence[Piece], txn: int, take: Callable[[], int], unique: Callable[[], str]
) -> Iterable[BuiltSegment]:
    """The segments of one transaction in one topic, each of about the target size; the rows of a partition in order.

    Yields one file after the other, so that a big write needs the memory of one.
    """
    ordered = sorted(pieces, key=lambda piece: piece.partition)
    group: list[Piece] = []
    size = 0
    for piece in ordered:
        if group and (size + piece.size_bytes > TARGET_SEGMENT_BYTES or not _follows(group[-1], piece)):
            yield from _owned(topic, group, txn, take, unique)
            group, size = [], 0
        group.append(piece)
        size += piece.size_bytes
    if group:
        yield from _owned(topic, group, txn, take, unique)


def _follows(last: Piece, piece: Piece) -> bool:
    """Whether rows may stand behind others in a slice: it names the sequence of its first row only."""
    if piece.partition != last.partition:
        return True
    return piece.sequence == (None if last.sequence is None else last.sequence + last.rows)


def _table(topic: TopicRecord, pieces: Sequence[Piece]) -> pa.Table:
    """The rows of several calls. Where a column was added between them, all get the topic's newest schema."""
    contents: list[RowBuffer] = [piece.content for piece in pieces]
    first = contents[0].schema
    if all(content.schema is first or content.schema.equals(first) for content in contents):
        return row_buffer.concat(contents)
    newest = schema.to_arrow(topic.schema)
    return pa.concat_tables([row_buffer.conform(content.to_table(), newest, topic=topic.name) for content in contents])


def _owned(
    topic: TopicRecord, pieces: list[Piece], txn: int, take: Callable[[], int], unique: Callable[[], str]
) -> Iterable[BuiltSegment]:
    table = _table(topic, pieces)
    slices = _slices(pieces)
    if len(slices) > 1:
        partitions = np.repeat([item.partition for item in slices], [item.rows for item in slices])
        table = table.append_column(_PARTITION, pa.array(partitions, pa.int32()))
        yield make(topic, table, slices, take(), f"{unique()}.parquet", txn)
        return
    (only,) = slices
    step = table.num_rows
    if table.nbytes > TARGET_SEGMENT_BYTES:
        step = max(1, table.num_rows * TARGET_SEGMENT_BYTES // table.nbytes)
    for first in range(0, table.num_rows, step):
        part = table.slice(first, step)
        sequence = None if only.sequence is None else only.sequence + first
        yield make(
            topic, part, (SliceRows(only.partition, part.num_rows, sequence),), take(), f"{unique()}.parquet", txn
        )


def _slices(pieces: list[Piece]) -> tuple[SliceRows, ...]:
    result: list[SliceRows] = []
    for partition, group in groupby(pieces, key=lambda piece: piece.partition):
        items = list(group)
        result.append(SliceRows(partition, sum(piece.rows for piece in items), items[0].sequence))
    return tuple(result)


__all__ = ["BuiltSegment", "SharedSegmentBuilder", "build_owned", "make"]
