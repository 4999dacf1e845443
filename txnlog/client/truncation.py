"""Truncation: with the entry that commits a transaction, all earlier messages of a topic are gone from then on.

The segments that show them give way, in that entry, to files without a row, one for each partition, that stand for the
same offsets (feature ``holes``, PROTOCOL.md P-250 to P-252). So no offset changes, consumers pass, and versions before
show what they showed, until a vacuum. No other command is in the entry: what goes is what the version before shows.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass
from typing import TYPE_CHECKING, NamedTuple

import pyarrow.compute as pc

from txnlog.common import ranges
from txnlog.common.ranges import Range, Ranges
from txnlog.data import segment_file
from txnlog.data.scan_planner import plan_segment
from txnlog.data.segment_columns import merged_columns
from txnlog.errors import Durable, InvalidInputError, RetriableError
from txnlog.fold.acknowledgements import ALLOW_UNACKNOWLEDGED, unacknowledged, unacknowledged_error
from txnlog.fold.state import Cursor, Draft, SegmentRecord, State, TopicRecord
from txnlog.fold.subscription_records import cursor_of, subscriptions_of
from txnlog.fold.visibility import is_visible
from txnlog.format import schema as schemas
from txnlog.format.actions import Acknowledgement, AnyAction, Begin, Header, Replace, Segment, SliceRows
from txnlog.format.features import HOLES
from txnlog.format.keys import segment_key
from txnlog.log.commands import BY_ITSELF, Answer, SharedNumbers
from txnlog.log.dropped import is_dropped, refuse_made_again
from txnlog.log.needed_features import check_holes
from txnlog.log.slots import put_unnamed
from txnlog.log.transaction_commands import CommitCommand, CommitResult

if TYPE_CHECKING:
    from txnlog.client.connection import Connection
    from txnlog.client.session import Session

Spans = Mapping[int, Ranges]
"""By partition."""


class OutOfDate(RetriableError):
    """A truncation was prepared by a state that others have changed since."""

    def __init__(self, topic: str) -> None:
        super().__init__(
            f"{topic!r} was merged, or a checkpoint was written, while the transaction that truncates it was committed",
            durable=Durable.NOTHING,
        )


class Wanted(NamedTuple):
    """What a transaction asks for of a topic.

    Attributes:
        allow_unacknowledged: whether messages go that a subscription has not acknowledged.
        owned_since: the version since which nobody else may have written to it; None: anybody may.
        how_to_allow: what the caller can do for those messages to go all the same, as a refusal says it.
    """

    allow_unacknowledged: bool = False
    owned_since: int | None = None
    how_to_allow: str = ALLOW_UNACKNOWLEDGED


class Written(NamedTuple):
    """Rows that somebody wrote at a version, or later."""

    rows: int
    version: int


class EmptyFile(NamedTuple):
    """A file without a row, which is on the store."""

    number: int
    name: str


@dataclass(frozen=True, slots=True)
class Truncation:
    """What is needed to truncate one topic.

    Attributes:
        topic: its id.
        txn: the number of the transaction that replaces its segments.
        files: by partition the file that comes in; others may bring a partition its first messages meanwhile.
        size_bytes: of each of these files, which are all the same, and ``checksum`` theirs.
        visible: the segments that were visible at the version ``known``.
        holes: the offsets of those of them that have no row.
        known: the version at which it was looked at all segments and removals.
        forgotten: asked for the version up to which the state has forgotten segments and removals.
        wanted: what was asked for.
        foreign: what somebody else wrote, where the topic has an owner.
    """

    topic: int
    txn: int
    files: Mapping[int, EmptyFile]
    size_bytes: int
    checksum: str
    visible: frozenset[int]
    holes: Spans
    known: int
    forgotten: Callable[[], int]
    wanted: Wanted
    foreign: Written | None

    @property
    def numbers(self) -> list[int]:
        """Those that its entry may use."""
        return [self.txn, *(item.number for item in self.files.values())]

    @property
    def is_out_of_date(self) -> bool:
        """Whether the state has forgotten some of what came since it was prepared."""
        return self.forgotten() > self.known

    def actions(self, draft: Draft, txn: int, acknowledgements: Sequence[Acknowledgement]) -> list[AnyAction]:
        """What truncates it in front of the entry at hand; nothing where the topic was dropped, or is empty.

        Args:
            draft: the state, with the shared segments of the entry.
            txn: the number of the transaction that truncates, and ``acknowledgements`` those that it brings along.
            acknowledgements: see there.

        Raises:
            InvalidInputError: a subscription has not acknowledged something, or the topic has an owner and somebody
                else wrote to it.
            OutOfDate: it is to be prepared again.
        """
        topic = draft.topics.get(self.topic)
        if topic is None or topic.dropped:
            return []
        if self.is_out_of_date:
            raise OutOfDate(topic.name)
        before = draft.anew()  # the shared segments of the entry have the transaction's own rows
        new = [
            record
            for number, record in before.segments.items()
            if record.topic == self.topic
            and record.state == "visible"
            and number not in self.visible
            and before.removals.get(number) is None
        ]
        gone = [number for number in self.visible if before.removals.get(number) is None]
        gone += [record.number for record in new]
        spans = {p: (before.start_of(self.topic, p), before.end_of(self.topic, p)) for p in range(topic.partitions)}
        spans = {p: (start, end) for p, (start, end) in spans.items() if start < end}
        if not gone:
            return []
        if self.wanted.owned_since is not None:
            self._check_owned(topic, new)
        if not self.wanted.allow_unacknowledged:
            holes = _joined(self.holes, _holes_of(new))
            left = _without(spans, holes)
            _check_acknowledged(draft, topic, left, txn, acknowledgements, self.wanted.how_to_allow)
        return [
            Begin(self.txn),
            *(self._segment(p, end - start) for p, (start, end) in spans.items()),
            Replace(self.topic, self.txn, tuple(sorted(gone)), tuple(start for start, _ in spans.values())),
        ]

    def _check_owned(self, topic: TopicRecord, new: Sequence[SegmentRecord]) -> None:
        if any(record.compacted for record in new):
            raise OutOfDate(topic.name)  # whose rows were merged is to be looked at
        found = self.foreign or next((Written(item.rows, item.ended_version or 0) for item in new if item.rows), None)
        if found is not None:
            raise InvalidInputError(
                f"somebody else wrote {found.rows:,} messages to {topic.name!r} at version {found.version}: they would "
                "go with the next complete result",
                advice="let one query alone write to the topic of a complete result, or write to another topic",
                durable=Durable.NOTHING,
            )

    def _segment(self, partition: int, width: int) -> Segment:
        file = self.files[partition]
        return Segment(
            file.number,
            self.topic,
            file.name,
            rows=0,
            size_bytes=self.size_bytes,
            checksum=self.checksum,
            slices=(SliceRows(partition, 0),),
            txn=self.txn,
            compacted=True,
            extent=width,
        )


@dataclass(slots=True)
class TruncatingCommit(CommitCommand):
    """A commit that truncates topics as well, but for its own rows."""

    travels = False  # who brings it for another one cannot look again
    alone = BY_ITSELF
    _: KW_ONLY
    truncations: Sequence[Truncation]

    def decide(self, draft: Draft, at: Header, shared: SharedNumbers) -> Sequence[AnyAction] | Answer[CommitResult]:
        """See Command."""
        decided = CommitCommand.decide(self, draft, at, shared)
        if isinstance(decided, Answer):
            return decided
        refuse_made_again(draft, [item.topic for item in self.truncations if is_dropped(draft, item.topic)])
        found = [item.actions(draft, self.opening.txn, self.acknowledgements) for item in self.truncations]
        return [*itertools.chain.from_iterable(found), *decided]


# --- what subscriptions need ------------------------------------------------------------------------------------------


def _holes_of(records: Iterable[SegmentRecord]) -> Spans:
    """The offsets of visible segments that have no row."""
    found: dict[int, list[Range]] = {}
    for record in records:
        if not record.rows:
            for item in record.slices:
                found.setdefault(item.partition, []).append((item.start, record.end_of(item)))
    return {partition: ranges.normalize(spans) for partition, spans in found.items()}


def _joined(first: Spans, second: Spans) -> Spans:
    return {p: ranges.union(first.get(p, ranges.EMPTY), second.get(p, ranges.EMPTY)) for p in {*first, *second}}


def _without(spans: Mapping[int, Range], holes: Spans) -> Spans:
    return {p: ranges.subtract((span,), holes.get(p, ranges.EMPTY)) for p, span in spans.items()}


def _check_acknowledged(
    draft: Draft,
    topic: TopicRecord,
    spans: Spans,
    txn: int,
    acknowledgements: Sequence[Acknowledgement],
    how_to_allow: str,
) -> None:
    """Raise InvalidInputError where a subscription has not acknowledged all that would go.

    What the transaction that truncates acknowledges itself counts as acknowledged.
    """
    needed: dict[str, int] = {}
    for subscription in subscriptions_of(draft, topic.id):
        own = [item for item in acknowledgements if item.subscription == subscription.id]
        count = 0
        for partition, span in spans.items():
            if span:
                left = _left(cursor_of(draft, subscription.id, partition), partition, span[-1][1], txn, own)
                count += ranges.size(ranges.intersect(left, span))
        if count:
            needed[subscription.name] = count
    if not needed:
        return
    raise unacknowledged_error(topic.name, "", needed, "what is truncated", how_to_allow)


def _left(cursor: Cursor, partition: int, end: int, txn: int, own: Sequence[Acknowledgement]) -> Ranges:
    """What is not acknowledged below an offset, by the transaction ``txn`` neither."""
    left = unacknowledged(cursor, 0, end)
    for hold in cursor.holds:
        if hold.txn == txn:
            left = ranges.subtract(left, hold.ranges)
    ends = [behind for item in own for place, behind in item.cumulative if place == partition]
    if cursor.cumulative is not None and cursor.cumulative.txn == txn:
        ends.append(cursor.cumulative.end)
    for behind in ends:
        left = ranges.subtract(left, ((0, behind),))
    for item in own:
        for part in item.ranges:
            if part.partition == partition:
                left = ranges.subtract(left, part.ranges)
    return left


# --- before the entry -------------------------------------------------------------------------------------------------


def check_feature(connection: Connection, what: str) -> None:
    """Raise UnsupportedFeature where the namespace cannot have ``what``; looks at the log before it says so."""
    follower = connection.follower
    if HOLES not in follower.state.head.reader_features:
        follower.refresh()
    follower.look(lambda state: check_holes(state, what))


def check_truncatable(
    connection: Connection,
    topic: str,
    what: str,
    txn: int = -1,
    acknowledgements: Sequence[Acknowledgement] = (),
    *,
    wanted: Wanted,
) -> None:
    """Raise what refuses a truncation by what is known now: the job that writes the new rows may take long.

    Args:
        connection: whose.
        topic: its name.
        what: needs the feature of the format, as an error names it.
        txn: the transaction that truncates it, and ``acknowledgements`` those that the log may not show yet.
        acknowledgements: see there.
        wanted: what is asked for of the topic.

    Raises:
        UnsupportedFeature: the namespace does not have the feature.
        InvalidInputError: a subscription needs messages, which this transaction does not acknowledge.
    """
    check_feature(connection, what)
    if wanted.allow_unacknowledged:
        return
    record = connection.topic_record(topic)
    _, shown = _shown(connection.session, record)
    holes = _holes_of(shown)

    def check(state: State) -> None:
        spans = {p: (state.start_of(record.id, p), state.end_of(record.id, p)) for p in range(record.partitions)}
        spans = {p: (start, end) for p, (start, end) in spans.items() if start < end}
        left = _without(spans, holes)
        _check_acknowledged(state.draft(), record, left, txn, acknowledgements, wanted.how_to_allow)

    connection.follower.look(check)


def _shown(session: Session, topic: TopicRecord) -> tuple[int, list[SegmentRecord]]:
    """A version, and the segments that it shows."""
    known = session.follower.version
    records, removals = session.follower.segments(topic.id)
    return known, [record for record in records if is_visible(record, known, removals)]


def _foreign(session: Session, topic: TopicRecord, shown: Iterable[SegmentRecord], since: int) -> Written | None:
    """What was written behind a version: of merged segments the rows say when they came."""
    schema = schemas.to_arrow(topic.schema)
    for record in shown:
        if not record.rows or record.ended_version is None or record.ended_version <= since:
            continue
        if not record.compacted:
            return Written(record.rows, record.ended_version)
        segment = plan_segment(record, topic.folder, "COMMITTED", None, {})
        assert segment is not None, "every visible segment has offsets"
        versions = session.reader.whole(schema, segment, []).column("_version")
        later = pc.sum(pc.greater(versions, since)).as_py()
        if later:
            return Written(later, pc.max(versions).as_py())
    return None


def planned(session: Session, topic: TopicRecord, wanted: Wanted) -> Truncation:
    """Look at a topic and put the files that a truncation needs. Blocking work; what it puts no entry names yet.

    Also of a handle that was closed: what was submitted goes on.

    Raises what the store raises: nothing was logged.
    """
    follower = session.follower
    known, shown = _shown(session, topic)
    foreign = None if wanted.owned_since is None else _foreign(session, topic, shown, wanted.owned_since)
    txn, *numbers = session.appender.take_numbers(1 + topic.partitions)
    schema = merged_columns(schemas.to_arrow(topic.schema), has_holes=True)
    encoded = segment_file.encode(schema.empty_table())
    files = {
        partition: EmptyFile(number, f"{session.runtime.unique()}.parquet") for partition, number in enumerate(numbers)
    }
    put_unnamed(
        session.store,
        session.runtime,
        [(segment_key(topic.folder, item.number, item.name), encoded.data) for item in files.values()],
    )
    return Truncation(
        topic.id,
        txn,
        files,
        encoded.size_bytes,
        encoded.checksum,
        frozenset(record.number for record in shown),
        _holes_of(shown),
        known,
        lambda: follower.forgotten_to,
        wanted,
        foreign,
    )


__all__ = ["OutOfDate", "TruncatingCommit", "Truncation", "Wanted", "check_feature", "check_truncatable", "planned"]
