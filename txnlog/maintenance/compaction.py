"""Key compaction: of each key the newest message stays, in each partition (PROTOCOL.md, "Holes").

What is new since the last time says which keys have newer messages. Then the older messages of these keys go, wherever
they lie, in the order of their offsets: at every version each key still shows its newest message of then, or a newer
one. A message without a value says that its key is gone; once it is old enough it goes as well, behind those it ended.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from txnlog.client.positions import start_offsets
from txnlog.common.format_limits import MAX_NUMBER
from txnlog.common.validation import whole_number
from txnlog.errors import InvalidInputError
from txnlog.fold.state import Draft, SegmentRecord, State, TopicRecord
from txnlog.fold.subscription_records import subscriptions_of
from txnlog.fold.topics import value_columns
from txnlog.format import schema as schemas
from txnlog.format.actions import AlterTopic, Header
from txnlog.format.compaction import (
    CLEANUP_POLICY,
    COMPACT_UNACKNOWLEDGED,
    DEFAULT_DELETE_RETENTION_MS,
    DELETE_RETENTION_MS,
    MIN_COMPACTION_LAG_MS,
    compacted_ms,
    compacted_to,
    left_ended,
    left_new,
    with_compaction,
)
from txnlog.log.commands import Answer, effect
from txnlog.maintenance.ages import Times, older_than
from txnlog.maintenance.expiry import cursor_in
from txnlog.maintenance.merge_plan import Part, not_dropped
from txnlog.maintenance.merging import Gone, Merger, Numbers, Rows
from txnlog.maintenance.rewriting import Going, Mask, Rewritten, rewrite, segments_at
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

_LEAST_APART_MS: Final = 60 * 60 * 1_000
"""Between two compactions that maintenance does for the sake of messages without a value: each reads all keys."""

_MOST_ROUNDS: Final = 100
"""Each compacts more, unless others are always ahead."""


@dataclass(frozen=True, slots=True)
class _Pass:
    """What one pass compacts.

    Attributes:
        known: the version at which all of it was looked at.
        topic: as that version has it.
        starts: the earliest offsets.
        ordered: all segments up to the new ones, so that the offsets of each partition ascend.
        new: the numbers of those whose keys were not looked at yet.
        ends: by partition the offset behind the new ones.
        limits: by partition the offset up to which messages may go.
        new_bytes: about how many bytes are new: of a merged segment a part may be.
        is_last: no more of them can be compacted now.
    """

    known: int
    topic: TopicRecord
    starts: Mapping[int, int]
    ordered: Sequence[SegmentRecord]
    new: frozenset[int]
    ends: Mapping[int, int]
    limits: Mapping[int, int]
    new_bytes: int
    is_last: bool


class _Newest(NamedTuple):
    """Keys of a partition, and of each the offset of its newest message among the new ones."""

    keys: pa.Array
    offsets: Numbers


class _Looked(NamedTuple):
    """A part of a segment as far as it matters.

    Attributes:
        part: which.
        key: of each message.
        offsets: of each message.
        may: which messages may go.
        ended: which of them ended their key, and when that is so long ago that every reader knows, ``over``.
        over: those go in any case.
    """

    part: Part
    key: pa.ChunkedArray
    offsets: Numbers
    may: Mask
    ended: Mask
    over: Mask


class _Decision:
    """Decides which messages go: those with a newer one of their key, and those that ended their key long ago.

    Keys are looked up for many parts at once: each look-up begins with a table of all keys with newer messages.

    Attributes:
        going: what was decided, when all is settled.
        left_ended: whether a message stays that ended its key, until its time is over.

    Args:
        columns: which decide, the key first; behind it those that make up the value, where all of them may be null.
        found: the pass: from the earliest offsets to its limits messages may go.
        before_ms: a message without a value that is no younger goes.
    """

    def __init__(self, columns: Sequence[str], found: _Pass, before_ms: int) -> None:
        self._key, *self._values = columns
        self._found = found
        self._before_us = before_ms * 1_000
        self._newest: dict[int, _Newest] = {}
        self._waiting: dict[int, list[_Looked]] = {}
        self._counts: dict[int, int] = {}
        self.going = Going()
        self.left_ended = False

    def begin(self, new: Iterable[Rows]) -> None:
        """Decide about the new messages, which say what the newest one of each key is."""
        by_partition: dict[int, list[_Looked]] = {}
        for rows in new:
            by_partition.setdefault(rows.part.partition, []).append(self._looked(rows))
        for partition, several in by_partition.items():
            if any(len(item.offsets) for item in several):  # new offsets alone may be holes
                codes, self._newest[partition] = _newest(several)
                self._note(partition, several, codes)

    def look_at(self, rows: Rows) -> None:
        """Decide about older messages, sooner or later."""
        partition = rows.part.partition
        self._waiting.setdefault(partition, []).append(self._looked(rows))
        self._counts[partition] = self._counts.get(partition, 0) + len(rows.offsets)
        if self._counts[partition] >= (len(self._newest[partition].keys) if partition in self._newest else 0):
            self._settle_in(partition)

    def settle(self) -> None:
        """Decide about what waits."""
        for partition in list(self._waiting):
            self._settle_in(partition)

    def _settle_in(self, partition: int) -> None:
        several = self._waiting.pop(partition)
        self._counts[partition] = 0
        known = self._newest.get(partition)
        codes = None if known is None else _places(pc.index_in(_keys_of(several), value_set=known.keys))
        self._note(partition, several, codes)

    def _note(self, partition: int, several: Sequence[_Looked], codes: Numbers | None) -> None:
        """Note which messages go; ``codes`` are the places of their keys among those with newer messages."""
        known = self._newest.get(partition)
        place = 0
        for item in several:
            going, behind = item.over, place + len(item.offsets)
            if codes is not None and known is not None and len(known.offsets):
                places = codes[place:behind]
                newest = np.where(places < 0, -1, known.offsets[places])
                going = going | (newest > item.offsets)
            self.going.note(item.part, going & item.may)
            self.left_ended = self.left_ended or bool((item.ended & item.may & ~going).any())
            place = behind

    def _looked(self, rows: Rows) -> _Looked:
        partition, offsets, key = rows.part.partition, rows.offsets, rows.table.column(self._key)
        may = (offsets >= self._found.starts[partition]) & (offsets < self._found.limits[partition])
        ended = self._ended(rows, key)
        if not ended.any():
            return _Looked(rows.part, key, offsets, may, ended, ended)
        times = rows.table.column("_timestamp").cast(pa.int64()).to_numpy()
        return _Looked(rows.part, key, offsets, may, ended, ended & (times <= self._before_us))

    def _ended(self, rows: Rows, key: pa.ChunkedArray) -> Mask:
        """Which messages have a key and no value."""
        if not self._values or self._values[0] not in rows.table.column_names:
            return np.zeros(len(rows.offsets), np.bool_)
        ended = np.asarray(pc.is_valid(key))
        for name in self._values:
            if not ended.any():
                break
            ended = ended & np.asarray(pc.is_null(rows.table.column(name)))
        return ended


def _newest(several: Sequence[_Looked]) -> tuple[Numbers, _Newest]:
    """The keys of some messages with the offset of the newest one, and of each message the place of its key."""
    encoded = _keys_of(several).dictionary_encode()
    keys = encoded.chunk(0).dictionary
    assert all(len(chunk.dictionary) == len(keys) for chunk in encoded.chunks), "they are one for all chunks"
    codes = _places(pa.chunked_array([chunk.indices for chunk in encoded.chunks]))
    offsets = np.full(len(keys), -1)
    has_key = codes >= 0
    np.maximum.at(offsets, codes[has_key], np.concatenate([item.offsets for item in several])[has_key])
    return codes, _Newest(keys, offsets)


def _keys_of(several: Sequence[_Looked]) -> pa.ChunkedArray:
    kind = several[0].key.type
    chunks = [chunk for item in several for chunk in item.key.chunks]
    return pa.chunked_array(chunks or [pa.array([], kind)], kind)


def _places(found: pa.ChunkedArray) -> Numbers:
    """Places, -1 for null."""
    return pc.fill_null(found, -1).to_numpy()


def is_compacted(topic: TopicRecord) -> bool:
    """Whether the settings of a topic say so."""
    return CLEANUP_POLICY.of(topic.properties) == "compact" and topic.key is not None


def _settings(topic: TopicRecord) -> tuple[object, ...]:
    """What the settings of a topic say of the messages that may go."""
    return tuple(
        setting.of(topic.properties)
        for setting in (CLEANUP_POLICY, DELETE_RETENTION_MS, MIN_COMPACTION_LAG_MS, COMPACT_UNACKNOWLEDGED)
    )


def begin(connection: Connection, topic: str, *, max_bytes: int | None = None, dry_run: bool = False) -> Compaction:
    """Begin to compact a topic (see ``Namespace.compact``): to be run, or only foreseen."""
    if max_bytes is not None:
        max_bytes = whole_number("max_bytes", max_bytes, 0, MAX_NUMBER)
    if not dry_run:
        connection.check_writes()
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
        self._merger = Merger(connection, topic, IfUnknown.COMPACT, self._decides_alike)
        self._times = Times(connection)
        self._done = Rewritten()
        self._read_bytes = 0
        self._lost_races = 0
        self._needed_from: Mapping[int, int] = {}  # by partition what the pass at work may not touch

    def is_due(self) -> bool:
        """Whether enough is new, or a part was left of what was."""
        found = self._next()
        all_bytes = sum(record.size_bytes for record in found.ordered)
        if found.new and (left_new(self._topic.properties) or found.new_bytes >= _LEAST_DIRTY * all_bytes):
            return True
        return self._may_have_ended(found)

    def _may_have_ended(self, found: _Pass) -> bool:
        """Whether there may be messages without a value whose time is over, by what the log says.

        All of them that the last compaction left are over when their time has passed since then. Those that came
        later are over when theirs has. Either way it is no sooner than that after the last one.
        """
        values = _deciding(self._topic)[1:]
        before_ms = self._times.now_ms - self._kept_ms()
        properties = self._topic.properties
        last_ms = compacted_ms(properties)
        if not values or (last_ms is not None and last_ms > min(before_ms, self._times.now_ms - _LEAST_APART_MS)):
            return False
        if compacted_to(properties) and left_ended(properties) is not False:
            return True
        old = older_than(self._connection, self._topic, self._kept_ms(), self._times)
        done = compacted_to(properties)
        return any(
            record.number in found.new
            and any(max(item.start, done.get(item.partition, 0)) < old.get(item.partition, 0) for item in record.slices)
            and not any(_has_no_null(record, name) for name in values)
            for record in found.ordered
        )

    def foresee(self) -> Compacted:
        """What the first pass would do."""
        found = self._next(_MOST_KEYS)
        decision = self._looked_at(found)
        going = Going() if decision is None else decision.going
        self._done.removed_messages = going.total
        self._done.segments = len(going.counts)
        return self._result(finished=not going.counts and found.is_last, dry_run=True)

    def run(self) -> Compacted:
        """Compact, pass by pass, until nothing is left or as much was read as one call may: one pass in any case."""
        passes = 0
        for _ in range(_MOST_ROUNDS):
            found = self._next(_MOST_KEYS)
            if not is_compacted(self._topic):
                return self._result(finished=True)  # by now it is to keep all
            if not found.new and passes:  # the first one may find messages without a value whose time is over
                return self._result(finished=True)
            if passes and self._max_bytes is not None and self._read_bytes >= self._max_bytes:
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

    def _next(self, most_keys: int | None = None) -> _Pass:
        """The next pass, by what the log shows now; with None as many keys as there are."""
        connection = self._connection
        connection.follower.refresh()
        self._times = Times(connection)  # anew: a clock that was ahead when others looked has come right
        known, topic, starts = connection.follower.look(self._in)
        not_dropped(topic, topic.id)
        self._topic = topic
        ordered, _ = segments_at(connection, topic, known)
        limits, done = self._limits(topic), compacted_to(topic.properties)
        ends = {p: done.get(p, 0) for p in range(topic.partitions)}
        chosen: list[SegmentRecord] = []
        new: set[int] = set()
        rows = new_bytes = 0
        for record in ordered:
            spans = [(item.partition, item.start, record.end_of(item)) for item in record.slices]
            spans = [(p, start, min(end, limits[p])) for p, start, end in spans if start < limits[p]]
            width = sum(max(0, end - max(start, done.get(p, 0))) for p, start, end in spans)
            if width:
                if most_keys is not None and new and rows + record.rows > most_keys:
                    return _Pass(known, topic, starts, chosen, frozenset(new), ends, limits, new_bytes, is_last=False)
                new.add(record.number)
                rows += record.rows
                new_bytes += record.size_bytes * min(width, record.rows) // max(1, record.rows)  # new: no holes
                for p, _, end in spans:
                    ends[p] = max(ends[p], end)
            if spans:
                chosen.append(record)
        return _Pass(known, topic, starts, chosen, frozenset(new), ends, limits, new_bytes, is_last=True)

    def _in(self, state: State) -> tuple[int, TopicRecord, dict[int, int]]:
        """What a state says, in one look: a column that came with a version is one of the topic then."""
        topic = state.topics[self._topic.id]
        return state.head.version, topic, start_offsets(self._connection.follower, topic)

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
        self._needed_from = found.limits
        decision = self._looked_at(found)
        if decision is None:
            return False
        going, of_all = decision.going, (found.ordered, found.starts, found.known)
        if not rewrite(self._merger, going.counts, *of_all, going.of, self._done, found.new):
            return False
        self._note(found, left=decision.left_ended)
        return True

    def _looked_at(self, found: _Pass) -> _Decision | None:
        """Decide which messages go. None: others were ahead."""
        columns = _deciding(found.topic)
        try:
            decision = _Decision(columns, found, self._times.now_ms - self._kept_ms())
            decision.begin(self._rows([item for item in found.ordered if item.number in found.new], found, columns))
            for rows in self._rows([item for item in found.ordered if item.number not in found.new], found, columns):
                decision.look_at(rows)
        except Gone:
            return None
        decision.settle()
        self._read_bytes += sum(record.size_bytes for record in found.ordered)
        return decision

    def _rows(self, records: Sequence[SegmentRecord], found: _Pass, columns: Sequence[str]) -> Iterator[Rows]:
        """What decides of some segments: the key alone where the log says that every message has a value."""
        schema = schemas.to_arrow(found.topic.schema)
        valued = [record for record in records if any(_has_no_null(record, name) for name in columns[1:])]
        yield from self._merger.rows(valued, found.known, schema, columns[:1])
        numbers = {record.number for record in valued}
        others = [record for record in records if record.number not in numbers]
        yield from self._merger.rows(others, found.known, schema, columns)

    def _kept_ms(self) -> int:
        """How long a message without a value stays."""
        kept_ms = DELETE_RETENTION_MS.of(self._topic.properties)
        return DEFAULT_DELETE_RETENTION_MS if kept_ms is None else kept_ms

    def _decides_alike(self, draft: Draft, topic: TopicRecord, at: Header) -> bool:
        """Whether a pass would decide alike by now: somebody may want all again, or read from the beginning.

        What was old enough by a clock that was ahead for a moment may not be by the time of the entry.
        """
        if at.timestamp_ms < self._times.now_ms:
            return False
        if _settings(topic) != _settings(self._topic):
            return False
        if COMPACT_UNACKNOWLEDGED.of(topic.properties):
            return True
        return all(
            cursor_in(draft, item, p).position >= limit
            for item in subscriptions_of(draft, topic.id)
            for p, limit in self._needed_from.items()
        )

    def _note(self, found: _Pass, *, left: bool) -> None:
        """Note in the log up to where it was done, and whether messages without a value wait for their time.

        Whether there are any that this pass did not look at, the log said before; and whether more was left, where
        others came further.
        """
        kept_ms = self._kept_ms()
        looked_at = dict(found.starts)
        for record in found.ordered:
            for item in record.slices:
                p = item.partition
                looked_at[p] = max(looked_at[p], min(record.end_of(item), found.limits[p]))

        def decide(draft: Draft, at: Header) -> list[AlterTopic] | Answer[None]:
            now_ms = min(self._times.now_ms, at.timestamp_ms)  # of a clock that was ahead, when it has come right
            topic = not_dropped(draft.topics.get(self._topic.id), self._topic.id)
            before, last_ms = compacted_to(topic.properties), compacted_ms(topic.properties)
            after = {p: max(end, before.get(p, 0)) for p, end in found.ends.items()}
            unseen = any(end > looked_at[p] for p, end in after.items())
            left_there = left or (unseen and left_ended(topic.properties) is not False)
            is_part = not found.is_last or (after != found.ends and left_new(topic.properties))
            is_said = after == before and (left_there, is_part) == (
                left_ended(topic.properties),
                left_new(topic.properties),
            )
            waited = left_there and (last_ms is None or last_ms + kept_ms <= now_ms)  # so that maintenance waits again
            if not any(after.values()) or (is_said and not waited):
                return Answer(None)
            properties = with_compaction(topic.properties, after, now_ms, left_ended=left_there, left_new=is_part)
            return [AlterTopic(topic.id, None, properties)]

        self._connection.appender.call(effect(decide))


def _deciding(topic: TopicRecord) -> list[str]:
    """The columns that decide which messages go: the key, and those that make up the value, if all may be null.

    A topic that began with its key alone is a set: its messages end no key.
    """
    assert topic.key is not None, "a topic without a key is not compacted"
    values = value_columns(topic)
    may_be_null = {field.name for field in topic.schema.fields if field.nullable}
    return [topic.key, *(values if may_be_null.issuperset(values) else ())]


def _has_no_null(record: SegmentRecord, name: str) -> bool:
    """Whether the log says so of a column of a segment."""
    return record.statistics.get(name, (None, None, None))[2] == 0


__all__ = ["Compaction", "begin", "is_compacted"]
