"""Erasing rows: they leave the newest version at once, and every other file of the topic as soon as it may be deleted.

Which rows go is a condition on the columns of the topic. The files that show them are written again without them. All
others that have some are named, with what each waits for: files of older versions and of aborted transactions for a
vacuum, those of open transactions for their end. The same call, made again, finds what is left.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from txnlog.client import dead_letters
from txnlog.client.positions import start_offsets
from txnlog.common.validation import shown
from txnlog.data import segment_file
from txnlog.data.conditions import misfit
from txnlog.data.scan_planner import plan_segment
from txnlog.data.segment_columns import STORED_COLUMNS
from txnlog.data.segment_statistics import is_bound
from txnlog.errors import CorruptionError, Durable, InvalidInputError, RetriableError
from txnlog.fold.garbage import is_needed
from txnlog.fold.state import SegmentRecord, State, TopicRecord
from txnlog.format import keys
from txnlog.format import schema as schemas
from txnlog.format.schema import StructType
from txnlog.log.needed_features import check_holes
from txnlog.log.proposals import proposal_codec
from txnlog.log.proposals.proposal_codec import MalformedProposal
from txnlog.maintenance.bounds_of_gone_files import BoundsOfGoneFiles
from txnlog.maintenance.merging import Gone, Merger, Rows
from txnlog.maintenance.rewriting import Going, Mask, Rewritten, rewrite, segments_at
from txnlog.maintenance.waves import waves
from txnlog.replies import IfUnknown, refused_write
from txnlog.results import Erased, FileWithErasedRows
from txnlog.store.base import ObjectNotFound

if TYPE_CHECKING:
    from txnlog.client.connection import Connection

_SOURCE: Final = "_source_topic"
"""The column of a dead letter that names the topic of the message."""

_MOST_ROUNDS: Final = 100
"""Each looks at all again, where others were ahead."""

_WAVE_FILES: Final = 64
_WAVE_BYTES: Final = 16 << 20
"""Files of older versions that are looked into side by side."""

_IN_MAILBOX: Final = "it is the mailbox of a writer"

_Other = tuple[SegmentRecord, int | None]
"""A segment that the newest version does not show, and the version that replaced it."""

_STORED: Final = frozenset(STORED_COLUMNS.names)


def erase(connection: Connection, topic: str, where: object, *, dry_run: bool) -> Erased:
    """Erase rows of a topic, and of the topics that take its dead letters. See ``Namespace.erase``."""
    if not isinstance(where, pc.Expression):
        raise InvalidInputError(
            f"where is a pyarrow.compute expression, not {type(where).__name__}",
            advice='use one such as pyarrow.compute.field("customer") == "C-17"',
        )
    if _goes_by_places(where):
        raise InvalidInputError(
            "the condition goes by places of columns or fields, and topics of dead letters may have them elsewhere",
            advice='name them: pyarrow.compute.field("customer")',
        )
    if not dry_run:
        connection.check_writes()
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
            advice="use one that every row can answer" + ("" if dry_run else "; what was erased before stays erased"),
            durable=Durable.NOTHING if dry_run else Durable.MAYBE,
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
    # A topic whose columns do not fit cannot have letters of those whom the condition is for.
    fitting = {item.name for item in takers if misfit(where, schemas.to_arrow(item.schema)) is None}
    for name in names:  # which grows
        wanted = fitting | _takers_of(state, name)
        for item in takers:
            if item.name in names or item.name not in wanted:
                continue
            names.append(item.name)
            found.append((item, where & (pc.field(_SOURCE) == name)))
    return found


def _takers_of(state: State, name: str) -> set[str]:
    source = next(item for item in state.topics.values() if item.name == name and not item.dropped)
    return {item.name for item in dead_letters.of_source(state.draft(), source)}


def _goes_by_places(where: pc.Expression) -> bool:
    """Whether a condition has columns, or fields of structs, by their places. No name of one has a parenthesis."""
    try:
        where.__reduce__()
    except pa.ArrowNotImplementedError as error:
        if "field_ref" in str(error):  # Arrow writes down only names
            return True
    return "FieldRef.FieldPath(" in str(where)


def _check_condition(topic: TopicRecord, where: pc.Expression) -> None:
    """Raise InvalidInputError for a condition that does not fit the columns, or that older rows cannot answer."""
    columns = schemas.to_arrow(topic.schema)
    wrong = misfit(where, columns)
    if wrong is not None:
        raise InvalidInputError(
            f"the condition does not fit the columns of {topic.name!r}: {wrong.reason}", advice=wrong.advice
        )
    began = schemas.to_arrow(topic.schemas[0].schema)
    for place, field in enumerate(columns):
        known = _began_as(field, began)
        older = columns.remove(place) if known is None else columns.set(place, known)
        if not older.equals(columns) and misfit(where, older) is not None:
            what = "do not have" if known is None else "do not have all fields of"
            raise InvalidInputError(
                f"older rows of {topic.name!r} {what} the column {field.name!r}, so that they cannot be decided about",
                advice=f"name columns that the topic began with: {', '.join(began.names)[:200]}; "
                "or say what is to become of these rows, by their other columns",
            )


def _began_as(field: pa.Field, began: pa.Schema) -> pa.Field | None:
    """A column without the fields that came later; None for one that came later as a whole."""
    if field.name not in began.names:
        return None
    return field.with_type(_common(field.type, began.field(field.name).type))


def _common(kind: pa.DataType, began: pa.DataType) -> pa.DataType:
    """A type without the fields of structs that came later."""
    if pa.types.is_struct(kind) and pa.types.is_struct(began):
        known = {item.name: item for item in began}
        return pa.struct(
            [item.with_type(_common(item.type, known[item.name].type)) for item in kind if item.name in known]
        )
    if pa.types.is_list(kind) and pa.types.is_list(began):
        return pa.list_(kind.value_field.with_type(_common(kind.value_type, began.value_type)))
    if pa.types.is_map(kind) and pa.types.is_map(began):
        return pa.map_(kind.key_type, kind.item_field.with_type(_common(kind.item_type, began.item_type)))
    return kind


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
        self._gone: BoundsOfGoneFiles | None = None
        self._counts: dict[int, int] = {}

    def run(self, *, dry_run: bool) -> Erased:
        """Erase, and say what is left; or only look."""
        for _ in range(_MOST_ROUNDS):
            known, visible, others = self._found()
            self._gone = self._bounds_of_gone(others)
            going = self._losing(visible, known)
            if going is not None and (dry_run or not going.counts):
                break
            if going is not None:
                starts = start_offsets(self._connection.follower, self._topic)
                rewrite(self._merger, going.counts, visible, starts, known, partial(self._taken, going), self._done)
        else:
            raise RetriableError(
                f"rows of {self._topic.name!r} were merged by others whenever they were to be erased",
                advice="call it again",
                durable=Durable.MAYBE,
            )
        if dry_run:
            self._done.removed_messages = going.total
            self._done.segments = len(going.counts)
            self._look_at_bounds(going, visible, known)
        waiting = tuple(self._waiting(visible, others))
        if self._gone is not None:
            self._bounds.update(self._gone.columns)
        return Erased(
            self._topic.name,
            self._done.version,
            self._done.removed_messages,
            self._done.segments,
            self._done.entries,
            waiting,
            tuple(sorted(self._bounds)),
            not going.counts and not waiting,
            dry_run,
        )

    def _found(self) -> tuple[int, list[SegmentRecord], list[_Other]]:
        """The version, the segments that it shows, and all others, with the version that replaced them."""
        known = self._connection.follower.refresh()
        return known, *segments_at(self._connection, self._topic, known)

    # --- which rows ---------------------------------------------------------------------------------------------------

    def _losing(self, visible: Sequence[SegmentRecord], known: int) -> Going | None:
        """Which rows of some segments go, by the columns that the condition names. None: others were ahead."""
        schema = self._merger.schema()
        named = {*_named_by(self._where, schema), *(self._gone.columns if self._gone else ())}
        going = Going()
        try:
            for rows in self._merger.rows(visible, known, schema, [name for name in schema.names if name in named]):
                mask = self._goes(rows)
                going.note(rows.part, mask)
                if self._gone is not None:
                    self._bounds |= self._gone.said_of(rows.table.filter(pa.array(mask)))
                    self._gone.see(rows.table.filter(pa.array(~mask)))
        except Gone:
            return None
        return going

    def _goes(self, rows: Rows) -> Mask:
        return _matching(rows.table.drop_columns([n for n in rows.table.column_names if n in _STORED]), self._where)

    def _taken(self, going: Going, rows: Rows) -> Mask:
        """Which rows of a segment go, now that it is read as a whole."""
        mask = going.of(rows)
        if mask.any():
            self._bounds |= _bounds_of(rows.segment, rows.table.filter(pa.array(mask)))
        self._counts[rows.segment.number] = going.counts[rows.segment.number]
        return mask

    def _look_at_bounds(self, going: Going, visible: Sequence[SegmentRecord], known: int) -> None:
        """Note the bounds of rows that would go."""
        losing = [record for record in visible if record.number in going.counts and record.statistics]
        with contextlib.suppress(Gone):
            for rows in self._merger.rows(losing, known, self._merger.schema()):
                self._taken(going, rows)

    # --- what is left -------------------------------------------------------------------------------------------------

    def _waiting(self, visible: Sequence[SegmentRecord], others: Sequence[_Other]) -> Iterator[FileWithErasedRows]:
        """The files with rows that are to go, and that are not deleted yet.

        Args:
            visible: the segments that were looked at. A file that got its entry since is as one without.
            others: those that the newest version does not show, with the version that replaced them.
        """
        store, folder = self._connection.store, self._topic.folder
        listed, there = self._there(others)
        named = {record.number: keys.segment_key(folder, record.number, record.file) for record, _ in others}
        for record, removed, count in self._counted(there):
            if count:
                yield FileWithErasedRows(named[record.number], count, _why(record), removed or record.ended_version)
        schema = self._merger.schema()
        known = {keys.segment_key(folder, record.number, record.file) for record in visible}
        for key in sorted(listed - known - set(named.values())):
            try:
                rows = _rows_of_unnamed(store.get(key), schema, self._where)
            except ObjectNotFound:
                continue
            if rows:
                yield FileWithErasedRows(key, rows, "no entry names it", None)
        yield from self._mailboxes()

    def _mailboxes(self) -> Iterator[FileWithErasedRows]:
        """Mailboxes with such rows, whether they were committed or not, or that cannot be read."""
        store = self._connection.store
        for info in store.list(keys.PROPOSAL_FOLDER):
            key = keys.parse_key(info.key)
            if not isinstance(key, keys.MailboxKey) or key.writer is None:
                continue
            try:
                table = proposal_codec.rows_in(store.get(info.key), key.writer, self._topic)
            except ObjectNotFound:
                continue
            except MalformedProposal:
                yield FileWithErasedRows(info.key, 1, _IN_MAILBOX, None)
                continue
            rows = 0 if table is None else int(_matching(table, self._where).sum())
            if rows:
                yield FileWithErasedRows(info.key, rows, _IN_MAILBOX, None)

    def _there(self, others: Sequence[_Other]) -> tuple[set[str], list[_Other]]:
        """The files that are listed, and those of some segments that may be there."""
        folder = self._topic.folder
        listed = {
            info.key
            for info in self._connection.store.list(keys.segments_prefix(folder))
            if isinstance(keys.parse_key(info.key), keys.SegmentKey)
        }
        # A listing may be behind: what a version still shows is asked for by its name.
        there = [
            (record, removed)
            for record, removed in others
            if keys.segment_key(folder, record.number, record.file) in listed or self._may_be_there(record, removed)
        ]
        return listed, there

    def _bounds_of_gone(self, others: Sequence[_Other]) -> BoundsOfGoneFiles | None:
        """What the log says of files that are deleted."""
        if not any(record.statistics for record, _ in others):
            return None
        there = {record.number for record, _ in self._there(others)[1]}
        schema = self._merger.schema()
        gone = [record for record, _ in others if record.number not in there]
        return BoundsOfGoneFiles(gone, schema, self._where, _named_by(self._where, schema))

    def _may_be_there(self, record: SegmentRecord, removed: int | None) -> bool:
        removals = {} if removed is None else {record.number: removed}
        oldest = self._connection.follower.state.head.oldest_readable
        return is_needed(record, removals, self._topic.dropped_version, oldest)

    def _counted(self, segments: Sequence[_Other]) -> Iterator[tuple[SegmentRecord, int | None, int]]:
        """Segments with the number of rows that are to go, side by side; those that lost theirs here were counted."""
        schema = self._merger.schema()
        columns = _named_by(self._where, schema)
        for wave in waves(segments, lambda item: item[0].size_bytes, _WAVE_FILES, _WAVE_BYTES):
            unknown = [record for record, _ in wave if record.number not in self._counts]
            calls = [partial(self._looked_into, record, schema, columns) for record in unknown]
            for record, (count, bounds) in zip(unknown, self._connection.runtime.run_all(calls), strict=True):
                self._counts[record.number] = count
                self._bounds |= bounds
            yield from ((record, removed, self._counts[record.number]) for record, removed in wave)

    def _looked_into(self, record: SegmentRecord, schema: pa.Schema, columns: Sequence[str]) -> tuple[int, set[str]]:
        """How many rows of a segment that the newest version does not show are to go, and their bounds.

        0, and no bounds, where its file is gone.
        """
        state = {"visible": "COMMITTED", "aborted": "ABORTED", "pending": "OPEN"}[record.state]
        planned = plan_segment(record, self._topic.folder, state, None, {})  # type: ignore[arg-type]  # one of them
        assert planned is not None, "every segment has offsets, or rows"
        try:
            data = self._connection.store.get(planned.key)
        except ObjectNotFound:
            return 0, set()
        reader = self._connection.reader
        going = _matching(reader.whole_of(data, schema, planned, columns).select(columns), self._where)
        if not going.any() or (self._gone is None and not record.statistics):
            return int(going.sum()), set()
        rows = reader.whole_of(data, schema, planned).filter(pa.array(going))
        return int(going.sum()), _bounds_of(record, rows) | (self._gone.said_of(rows) if self._gone else set())


def _bounds_of(record: SegmentRecord, rows: pa.Table) -> set[str]:
    """The columns of which the log holds a value of rows of a segment, as a bound: an entry is never changed."""
    return {
        name
        for name, bounds in record.statistics.items()
        if name in rows.column_names and any(is_bound(bound, rows.column(name)) for bound in bounds[:2])
    }


def _named_by(where: pc.Expression, schema: pa.Schema) -> list[str]:
    """The columns that a condition names, at least one."""
    without = ((name, schema.remove(place)) for place, name in enumerate(schema.names))
    return [name for name, others in without if misfit(where, others) is not None] or schema.names[:1]


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
