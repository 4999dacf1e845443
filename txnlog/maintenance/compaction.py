"""Key compaction: of each key the newest message stays, in each partition (PROTOCOL.md, "Holes").

What is new since the last time says which keys have newer messages. Then the older messages of these keys go, wherever
they lie, in the order of their offsets: at every version each key still shows its newest message of then, or a newer
one. A message without a value says that its key is gone; once it is old enough it goes as well, behind those it ended.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from txnlog.client.positions import start_offsets
from txnlog.common.limits import MAX_NUMBER
from txnlog.common.validation import whole_number
from txnlog.errors import InvalidInputError
from txnlog.fold.state import Draft, SegmentRecord, TopicRecord
from txnlog.format import schema as schemas
from txnlog.format.actions import AlterTopic, Header
from txnlog.format.compaction import (
    CLEANUP_POLICY,
    COMPACT_UNACKNOWLEDGED,
    DEFAULT_DELETE_RETENTION_MS,
    DELETE_RETENTION_MS,
    MIN_COMPACTION_LAG_MS,
    compacted_to,
    with_compacted_to,
)
from txnlog.log.commands import Answer, effect
from txnlog.maintenance.ages import Times, older_than
from txnlog.maintenance.expiry import cursor_in, subscriptions_of
from txnlog.maintenance.merging import Gone, Merger, Numbers, Rows
from txnlog.maintenance.rewriting import Mask, Rewritten, rewrite, segments_at
from txnlog.replies import IfUnknown, refused_write
from txnlog.results import Compacted
from txnlog.sentences import Argument, Call, Words

if TYPE_CHECKING:
    from txnlog.client.connection import Connection

_MOST_KEYS: Final = 2_000_000
"""Messages whose keys are in memory at once, those of a pass."""

_LEAST_DIRTY: Final = 0.5
"""The share of the bytes of a topic that must be new before maintenance compacts it, as in Kafka: a byte is then read a
few times, and not whenever something came."""

_MOST_ROUNDS: Final = 100
"""Each compacts more, unless others are always ahead."""


@dataclass(frozen=True, slots=True)
class _Pass:
    """What one pass compacts.

    Attributes:
        known: the version at which all of it was looked at.
        starts: the earliest offsets.
        ordered: all segments up to the new ones, so that the offsets of each partition ascend.
        new: the numbers of those whose keys were not looked at yet.
        ends: by partition the offset behind the new ones.
        limits: by partition the offset up to which messages may go.
        is_last: no more of them can be compacted now.
    """

    known: int
    starts: Mapping[int, int]
    ordered: Sequence[SegmentRecord]
    new: frozenset[int]
    ends: Mapping[int, int]
    limits: Mapping[int, int]
    is_last: bool


class _Newest(NamedTuple):
    """Keys of a partition, and of each the offset of its newest message among the new ones."""

    keys: pa.Array
    offsets: Numbers


class _Going:
    """Which messages go: those with a newer one of their key, and those that ended their key long ago.

    Args:
        columns: which decide, the key first; behind it those that make up the value, where all of them may be null.
        limits: by partition the offset up to which messages may go.
        newest: of each partition the keys with newer messages.
        before_ms: a message without a value that is no younger goes.
    """

    def __init__(
        self, columns: Sequence[str], limits: Mapping[int, int], newest: Mapping[int, _Newest], before_ms: int
    ) -> None:
        self._key, *self._values = columns
        self._limits = limits
        self._newest = newest
        self._before_us = before_ms * 1_000

    def __call__(self, rows: Rows) -> Mask:
        """Which of some messages go."""
        key = rows.table.column(self._key).combine_chunks()
        return (self._superseded(rows, key) | self._ended(rows, key)) & (
            rows.offsets < self._limits[rows.part.partition]
        )

    def _superseded(self, rows: Rows, key: pa.Array) -> Mask:
        """Which messages have a newer one of their key."""
        known = self._newest.get(rows.part.partition)
        if known is None or not len(known.offsets):
            return np.zeros(len(rows.offsets), np.bool_)
        places = pc.fill_null(pc.index_in(key, value_set=known.keys), -1).to_numpy(zero_copy_only=False)
        newest = np.where(places < 0, -1, known.offsets[places])
        return newest > rows.offsets

    def _ended(self, rows: Rows, key: pa.Array) -> Mask:
        """Which messages have a key and no value, and are so old that every reader knows."""
        if not self._values:
            return np.zeros(len(rows.offsets), np.bool_)
        times = rows.table.column("_timestamp").cast(pa.int64()).to_numpy()
        ended = np.asarray(pc.is_valid(key)) & (times <= self._before_us)
        for name in self._values:
            if not ended.any():
                break
            ended &= np.asarray(pc.is_null(rows.table.column(name)))
        return ended


def is_compacted(topic: TopicRecord) -> bool:
    """Whether the settings of a topic say so."""
    return CLEANUP_POLICY.of(topic.properties) == "compact" and topic.key is not None


def begin(connection: Connection, topic: str, *, max_bytes: int | None = None, dry_run: bool = False) -> Compaction:
    """Begin to compact a topic (see ``Namespace.compact``): to be run, or only foreseen."""
    if max_bytes is not None:
        max_bytes = whole_number("max_bytes", max_bytes, 0, MAX_NUMBER)
    if not dry_run:
        _ = connection.appender  # a reader is refused before it looks at anything
    with contextlib.nullcontext() if dry_run else refused_write():
        connection.follower.refresh()
        record = connection.topic_record(topic)
        if not is_compacted(record):
            raise InvalidInputError(
                f"the topic {topic!r} is not compacted by its key",
                advice=Words(
                    "ask for it first: ", Call("alter_topic", repr(topic), Argument("cleanup_policy", "compact"))
                ),
            )
    return Compaction(connection, record, max_bytes)


class Compaction:
    """Compacts one topic: what can be compacted when it begins."""

    def __init__(self, connection: Connection, topic: TopicRecord, max_bytes: int | None = None) -> None:
        self._connection = connection
        self._topic = topic
        self._max_bytes = max_bytes
        self._merger = Merger(connection, topic, IfUnknown.COMPACT)
        self._times = Times(connection)
        self._done = Rewritten()
        self._read_bytes = 0
        self._lost_races = 0

    def is_due(self) -> bool:
        """Whether enough is new."""
        found = self._next(None)
        new = sum(record.size_bytes for record in found.ordered if record.number in found.new)
        return bool(new) and new >= _LEAST_DIRTY * sum(record.size_bytes for record in found.ordered)

    def foresee(self) -> Compacted:
        """What the first pass would do."""
        found = self._next()
        losing, _ = self._losing(found) or ({}, None)
        self._done.removed_messages = sum(losing.values())
        self._done.segments = len(losing)
        return self._result(finished=not losing and found.is_last, dry_run=True)

    def run(self) -> Compacted:
        """Compact, pass by pass, until nothing is left or as much was read as one call may."""
        passes = 0
        for _ in range(_MOST_ROUNDS):
            found = self._next()
            if not found.new and passes:  # the first one may find messages without a value whose time is over
                return self._result(finished=True)
            if self._max_bytes is not None and self._read_bytes >= self._max_bytes:
                return self._result(finished=False)
            if not self._compacted(found):
                self._lost_races += 1
                continue
            passes += 1
            if found.is_last:
                return self._result(finished=True)
        return self._result(finished=False)

    def so_far(self) -> Compacted:
        """What it did before an error ended it."""
        return self._result(finished=False)

    def _result(self, *, finished: bool, dry_run: bool = False) -> Compacted:
        done = self._done
        return Compacted(
            self._topic.name,
            done.version,
            done.removed_messages,
            done.segments,
            done.written,
            self._read_bytes,
            done.written_bytes,
            done.entries,
            self._lost_races,
            finished,
            dry_run,
        )

    # --- what is compacted --------------------------------------------------------------------------------------------

    def _next(self, most_keys: int | None = _MOST_KEYS) -> _Pass:
        """The next pass, by what the log shows now; with None as many keys as there are."""
        connection = self._connection
        connection.follower.refresh()
        topic = self._topic = connection.topic_record_by_id(self._topic.id)
        known, starts = connection.follower.look(
            lambda state: (state.head.version, start_offsets(connection.follower, topic))
        )
        ordered, _ = segments_at(connection, topic, known)
        limits, done = self._limits(topic), compacted_to(topic.properties)
        ends = {p: done.get(p, 0) for p in range(topic.partitions)}
        chosen: list[SegmentRecord] = []
        new: set[int] = set()
        rows = 0
        for record in ordered:
            spans = [(item.partition, item.start, record.end_of(item)) for item in record.slices]
            spans = [(p, start, min(end, limits[p])) for p, start, end in spans if start < limits[p]]
            if any(max(start, done.get(p, 0)) < end for p, start, end in spans):
                if most_keys is not None and new and rows + record.rows > most_keys:
                    return _Pass(known, starts, chosen, frozenset(new), ends, limits, is_last=False)
                new.add(record.number)
                rows += record.rows
                for p, _, end in spans:
                    ends[p] = max(ends[p], end)
            if spans:
                chosen.append(record)
        return _Pass(known, starts, chosen, frozenset(new), ends, limits, is_last=True)

    def _limits(self, topic: TopicRecord) -> dict[int, int]:
        """By partition the offset up to which messages may go: what is too new stays, and what somebody may need."""
        limits = dict.fromkeys(range(topic.partitions), MAX_NUMBER)
        lag_ms = MIN_COMPACTION_LAG_MS.of(topic.properties)
        if lag_ms:
            old = older_than(self._connection, topic, lag_ms, self._times)
            limits = {p: old.get(p, 0) for p in limits}
        if not COMPACT_UNACKNOWLEDGED.of(topic.properties):
            needed = self._connection.follower.look(
                lambda state: [
                    {p: cursor_in(state, item, p).position for p in limits}
                    for item in subscriptions_of(state, topic.id)
                ]
            )
            limits = {p: min([limit, *(positions[p] for positions in needed)]) for p, limit in limits.items()}
        return limits

    # --- one pass -----------------------------------------------------------------------------------------------------

    def _compacted(self, found: _Pass) -> bool:
        """Compact what a pass has, and note it. False where others were ahead."""
        looked = self._losing(found)
        if looked is None:
            return False
        losing, goes = looked
        if not rewrite(self._merger, losing, found.ordered, found.starts, found.known, goes, self._done, found.new):
            return False
        self._note(found.ends)
        return True

    def _losing(self, found: _Pass) -> tuple[dict[int, int], _Going] | None:
        """By number of a segment how many messages go, where some do, and which. None: others were ahead."""
        schema = self._merger.schema()
        columns = self._deciding(schema)
        try:
            new = [record for record in found.ordered if record.number in found.new]
            newest = _newest(self._merger.rows(new, found.known, schema, columns[:1]), columns[0])
            goes = _Going(columns, found.limits, newest, self._ended_before_ms())
            losing: dict[int, int] = {}
            for rows in self._merger.rows(found.ordered, found.known, schema, columns):
                count = int(goes(rows)[rows.offsets >= found.starts[rows.part.partition]].sum())
                if count:
                    losing[rows.segment.number] = losing.get(rows.segment.number, 0) + count
        except Gone:
            return None
        self._read_bytes += sum(record.size_bytes for record in found.ordered)
        return losing, goes

    def _ended_before_ms(self) -> int:
        kept_ms = DELETE_RETENTION_MS.of(self._topic.properties)
        return self._times.now_ms - (DEFAULT_DELETE_RETENTION_MS if kept_ms is None else kept_ms)

    def _deciding(self, schema: pa.Schema) -> list[str]:
        """The columns that decide which messages go: the key, and those that make up the value, if all may be null.

        A topic that began with its key alone is a set: its messages end no key, also where columns were added later.
        """
        key = self._topic.key
        assert key is not None, "a topic without a key is not compacted"
        assert key in schema.names, "a key is a column, which stays"
        if len(self._topic.schemas[0].schema.fields) == 1:
            return [key]
        headers = "headers" if self._topic.schema == schemas.DEFAULT_SCHEMA else None
        values = [name for name in schema.names if name not in {key, headers}]
        return [key, *(values if all(schema.field(name).nullable for name in values) else ())]

    def _note(self, ends: Mapping[int, int]) -> None:
        """Note in the log up to where it was done."""

        def decide(draft: Draft, _at: Header) -> list[AlterTopic] | Answer[None]:
            topic = draft.topics.get(self._topic.id)
            if topic is None or topic.dropped:
                return Answer(None)
            before = compacted_to(topic.properties)
            after = {p: max(end, before.get(p, 0)) for p, end in ends.items()}
            if all(end == before.get(p, 0) for p, end in after.items()):
                return Answer(None)
            return [AlterTopic(topic.id, None, with_compacted_to(topic.properties, after))]

        self._connection.appender.call(effect(decide))


def _newest(found: Iterable[Rows], key: str) -> dict[int, _Newest]:
    """Of each partition the keys of some messages, with the offset of the newest one."""
    keys: dict[int, list[pa.ChunkedArray]] = {}
    offsets: dict[int, list[Numbers]] = {}
    for rows in found:
        keys.setdefault(rows.part.partition, []).append(rows.table.column(key))
        offsets.setdefault(rows.part.partition, []).append(rows.offsets)
    newest: dict[int, _Newest] = {}
    for partition, columns in keys.items():
        chunks = [chunk for column in columns for chunk in column.chunks]
        table = pa.table(
            {"key": pa.chunked_array(chunks, columns[0].type), "offset": np.concatenate(offsets[partition])}
        )
        grouped = table.filter(pc.is_valid(table.column("key"))).group_by("key").aggregate([("offset", "max")])
        newest[partition] = _Newest(grouped.column("key").combine_chunks(), grouped.column("offset_max").to_numpy())
    return newest


__all__ = ["Compaction", "begin", "is_compacted"]
