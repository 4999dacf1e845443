"""Erasing rows: they leave the newest version at once, and every other file of the topic as soon as it may be deleted.

Which rows go is a condition on the columns of the topic. The files that show them are written again without them. All
others that have some are named, with what each waits for: files of older versions and of aborted transactions for a
vacuum, those of open transactions for their end. The same call, made again, finds what is left.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from txnlog.client import dead_letters
from txnlog.client.positions import start_offsets
from txnlog.common.validation import shown
from txnlog.data import segment_file
from txnlog.data.scan_planner import plan_segment
from txnlog.data.segment_columns import STORED_COLUMNS
from txnlog.data.segment_order import in_log_order
from txnlog.data.segment_statistics import is_bound
from txnlog.errors import CorruptionError, Durable, InvalidInputError, RetriableError
from txnlog.fold.segment_replacement import check_holes
from txnlog.fold.state import SegmentRecord, State, TopicRecord
from txnlog.fold.visibility import is_visible
from txnlog.format import keys
from txnlog.format import schema as schemas
from txnlog.format.schema import StructType
from txnlog.maintenance.merging import Gone, Merger, Rows
from txnlog.maintenance.rewriting import Rewritten, rewrite
from txnlog.replies import IfUnknown, refused_write
from txnlog.results import Erased, FileWithErasedRows
from txnlog.store.base import ObjectNotFound

if TYPE_CHECKING:
    from txnlog.client.connection import Connection

_SOURCE: Final = "_source_topic"
"""The column of a dead letter that names the topic of the message."""

_MOST_ROUNDS: Final = 100
"""Each looks at all again, where others were ahead."""

_STORED: Final = frozenset(STORED_COLUMNS.names)
Mask = npt.NDArray[np.bool_]


def erase(connection: Connection, topic: str, where: object, *, dry_run: bool) -> Erased:
    """Erase rows of a topic, and of the topics that take its dead letters. See ``Namespace.erase``."""
    if not isinstance(where, pc.Expression):
        raise InvalidInputError(
            f"where is a pyarrow.compute expression, not {type(where).__name__}",
            advice='use one such as pyarrow.compute.field("customer") == "C-17"',
        )
    if not dry_run:
        _ = connection.appender  # a reader is refused before it looks at anything
    with contextlib.nullcontext() if dry_run else refused_write():
        connection.follower.refresh()
        record = connection.topic_record(topic)
        connection.follower.look(lambda state: check_holes(state, "an erasure"))
        targets = [(record, where), *connection.follower.look(lambda state: _letters_of(state, record, where))]
        for item, condition in targets:
            _check_condition(item, condition)
    try:
        done = [_Erasure(connection, item, condition).run(dry_run=dry_run) for item, condition in targets]
    except pa.ArrowException as error:
        raise InvalidInputError(
            f"the condition fails on rows of {topic!r}: {shown(str(error))}",
            advice="use one that every row can answer; what was erased before stays erased",
            durable=Durable.MAYBE,
        ) from None
    first, *letters = done
    is_complete = all(item.is_complete for item in done)
    return replace(first, dead_letters=tuple(letters), is_complete=is_complete)


def _letters_of(state: State, source: TopicRecord, where: pc.Expression) -> list[tuple[TopicRecord, pc.Expression]]:
    """The topics that have dead letters of a topic, and of those, each with the condition on its rows.

    Whether a subscription brings them yet does not matter: it may have been dropped.
    """
    names = [source.name]
    found: list[tuple[TopicRecord, pc.Expression]] = []
    takers = [item for item in state.topics.values() if not item.dropped and _SOURCE in _names(item.schema)]
    for name in names:  # which grows
        for item in takers:
            if item.name in names or (item.name not in _takers_of(state, name) and not _fits(item, where)):
                continue
            names.append(item.name)
            found.append((item, where & (pc.field(_SOURCE) == name)))
    return found


def _takers_of(state: State, name: str) -> set[str]:
    source = next(item for item in state.topics.values() if item.name == name and not item.dropped)
    return {item.name for item in dead_letters.of_source(state.draft(), source)}


def _fits(topic: TopicRecord, where: pc.Expression) -> bool:
    """Whether a condition fits the columns of a topic: else it cannot have letters of who it is for."""
    try:
        schemas.to_arrow(topic.schema).empty_table().filter(where)
    except (pa.ArrowException, TypeError, ValueError):
        return False
    return True


def _check_condition(topic: TopicRecord, where: pc.Expression) -> None:
    """Raise InvalidInputError for a condition that does not fit the columns, or that older rows cannot answer."""
    empty = schemas.to_arrow(topic.schema).empty_table()
    try:
        empty.filter(where)
    except (pa.ArrowException, TypeError, ValueError) as error:
        raise InvalidInputError(
            f"the condition does not fit the columns of {topic.name!r}: {shown(str(error))}",
            advice=f"columns are: {', '.join(empty.column_names)[:200]}",
        ) from None
    later = [name for name in empty.column_names if name not in _names(topic.schemas[0].schema)]
    for name in later:
        try:
            empty.drop_columns(name).filter(where)
        except (pa.ArrowException, TypeError, ValueError):
            raise InvalidInputError(
                f"older rows of {topic.name!r} do not have the column {name!r}, so that they cannot be decided about",
                advice=f"name columns that the topic began with: {', '.join(_names(topic.schemas[0].schema))[:200]}; "
                "or say what is to become of these rows, by their other columns",
            ) from None


def _names(schema: StructType) -> list[str]:
    return [field.name for field in schema.fields]


class _Erasure:
    """Erases rows of one topic."""

    def __init__(self, connection: Connection, topic: TopicRecord, where: pc.Expression) -> None:
        self._connection = connection
        self._topic = topic
        self._where = where
        self._merger = Merger(connection, topic, IfUnknown.ERASE)
        self._done = Rewritten()
        self._bounds: set[str] = set()

    def run(self, *, dry_run: bool) -> Erased:
        """Erase, and say what is left; or only look."""
        for _ in range(_MOST_ROUNDS):
            known, visible, others = self._found()
            losing = self._losing(visible, known)
            if losing is not None and (dry_run or not losing):
                break
            if losing:
                starts = start_offsets(self._connection.follower, self._topic)
                rewrite(self._merger, losing, visible, starts, known, self._goes, self._done)
        else:
            raise RetriableError(
                f"rows of {self._topic.name!r} were merged by others whenever they were to be erased",
                advice="call it again",
                durable=Durable.MAYBE,
            )
        if dry_run:
            self._done.removed_messages = sum(losing.values())
            self._done.segments = len(losing)
        seen = [*visible, *(record for record, _ in others)]
        waiting = tuple(self._waiting(others, seen))
        return Erased(
            self._topic.name,
            self._done.version,
            self._done.removed_messages,
            self._done.segments,
            self._done.entries,
            waiting,
            tuple(sorted(self._bounds)),
            not losing and not waiting,
            dry_run,
        )

    def _found(self) -> tuple[int, list[SegmentRecord], list[tuple[SegmentRecord, int | None]]]:
        """The version, the segments that it shows, and all others, with the version that replaced them."""
        follower = self._connection.follower
        follower.refresh()
        known = follower.version
        records, removals = follower.segments(self._topic.id)
        visible = in_log_order(item for item in records if is_visible(item, known, removals))
        shown_now = {item.number for item in visible}
        others = [(item, removals.get(item.number)) for item in records if item.number not in shown_now]
        return known, visible, others

    # --- which rows ---------------------------------------------------------------------------------------------------

    def _losing(self, visible: Sequence[SegmentRecord], known: int) -> dict[int, int] | None:
        """By number of a segment how many rows go. None: others were ahead."""
        losing: dict[int, int] = {}
        by_number = {record.number: record for record in visible}
        try:
            for rows in self._merger.rows(visible, known, self._merger.schema()):
                going = self._goes(rows)
                if going.any():
                    number = rows.segment.number
                    losing[number] = losing.get(number, 0) + int(going.sum())
                    self._note_bounds(by_number[number], rows.table.filter(pa.array(going)))
        except Gone:
            return None
        return losing

    def _goes(self, rows: Rows) -> Mask:
        return _matching(rows.table.drop_columns([n for n in rows.table.column_names if n in _STORED]), self._where)

    def _note_bounds(self, record: SegmentRecord, rows: pa.Table) -> None:
        """Note the columns of which the log holds a value of these rows, as a bound: an entry is never changed."""
        for name, bounds in record.statistics.items():
            if name not in rows.column_names or name in self._bounds:
                continue
            if any(is_bound(bound, rows.column(name)) for bound in bounds[:2]):
                self._bounds.add(name)

    # --- what is left -------------------------------------------------------------------------------------------------

    def _waiting(
        self, others: Sequence[tuple[SegmentRecord, int | None]], seen: Sequence[SegmentRecord]
    ) -> Iterator[FileWithErasedRows]:
        """The files with rows that are to go, and that are not deleted yet.

        Args:
            others: the segments that the newest version does not show, with the version that replaced them.
            seen: all segments that were looked at. A file that got its entry since is as one without.
        """
        schema = self._merger.schema()
        for record, removed in others:
            key = keys.segment_key(self._topic.folder, record.number, record.file)
            table = self._table(record, schema)
            if table is None:
                continue
            going = _matching(table.select(schema.names), self._where)
            if going.any():
                self._note_bounds(record, table.filter(pa.array(going)))
                yield FileWithErasedRows(key, int(going.sum()), _why(record), removed or record.ended_version)
        named = {keys.segment_key(self._topic.folder, item.number, item.file) for item in seen}
        yield from self._unnamed(named, schema)

    def _table(self, record: SegmentRecord, schema: pa.Schema) -> pa.Table | None:
        """The rows of a segment that the newest version does not show; None where its file is gone."""
        state = {"visible": "COMMITTED", "aborted": "ABORTED", "pending": "OPEN"}[record.state]
        planned = plan_segment(record, self._topic.folder, state, None, {})  # type: ignore[arg-type]  # one of them
        assert planned is not None, "every segment has offsets, or rows"
        try:
            return self._connection.reader.whole(schema, planned)
        except ObjectNotFound:
            return None

    def _unnamed(self, named: set[str], schema: pa.Schema) -> Iterator[FileWithErasedRows]:
        """Files that no entry names and that have such rows, or cannot be read: of writers at work, or dead."""
        store = self._connection.store
        for info in store.list(keys.segments_prefix(self._topic.folder)):
            if info.key in named or not isinstance(keys.parse_key(info.key), keys.SegmentKey):
                continue
            try:
                rows = _rows_of_unnamed(store.get(info.key), schema, self._where)
            except ObjectNotFound:
                continue
            if rows:
                yield FileWithErasedRows(info.key, rows, "no entry names it", None)


def _why(record: SegmentRecord) -> str:
    if record.state == "visible":
        return "older versions show it"
    return "its transaction was aborted" if record.state == "aborted" else "its transaction is open"


def _matching(table: pa.Table, where: pc.Expression) -> Mask:
    """Which rows of a table satisfy a condition."""
    place = "row"
    while place in table.column_names:
        place += "_"
    found = table.append_column(place, pa.array(np.arange(len(table)))).filter(where).column(place)
    mask = np.zeros(len(table), np.bool_)
    mask[found.to_numpy()] = True
    return mask


def _rows_of_unnamed(data: bytes, schema: pa.Schema, where: pc.Expression) -> int:
    """How many rows of a file satisfy a condition; 1 of one that is no such file (yet)."""
    try:
        rows = pq.read_metadata(pa.BufferReader(data)).num_rows
        table = segment_file.decode_verified(data, schema=schema, rows=rows, key="")
    except (CorruptionError, pa.ArrowException, OSError):
        return 1
    return int(_matching(table, where).sum())


__all__ = ["erase"]
