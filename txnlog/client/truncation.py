"""Truncation: with the entry that commits a transaction, all earlier messages of a topic are gone from then on.

The segments that show them give way, in that entry, to files without a row, one for each partition, that stand for the
same offsets (feature ``holes``, PROTOCOL.md P-250 to P-252). So no offset changes, consumers pass, and versions before
show what they showed, until a vacuum. What the entry itself makes visible stays, whoever brought it: nobody had an
answer before this transaction was committed.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass
from typing import TYPE_CHECKING, Final, NamedTuple

from txnlog.common import ranges
from txnlog.common.ranges import Ranges
from txnlog.data import segment_file
from txnlog.data.segment_columns import merged_columns
from txnlog.errors import Durable, InvalidInputError, RetriableError
from txnlog.fold.acknowledgements import cursor_of, unacknowledged
from txnlog.fold.state import Cursor, Draft, SegmentRecord, State, SubscriptionRecord, TopicRecord
from txnlog.fold.visibility import is_visible
from txnlog.format import schema as schemas
from txnlog.format.actions import Acknowledgement, AnyAction, Begin, Header, Replace, Segment, SliceRows
from txnlog.format.keys import segment_key
from txnlog.log.commands import ONE_TRUNCATION, Answer, SharedNumbers
from txnlog.log.dropped import is_dropped, refuse_made_again
from txnlog.log.slots import put_unnamed
from txnlog.log.transaction_commands import CommitCommand, CommitResult
from txnlog.sentences import Argument, Words

if TYPE_CHECKING:
    from txnlog.client.connection import Connection

_MOST_NAMED: Final = 3
"""Subscriptions that an error names."""


class OutOfDate(RetriableError):
    """A truncation was prepared by a state that others have changed since."""

    def __init__(self, topic: str) -> None:
        super().__init__(
            f"{topic!r} was merged, or had its first messages, while the transaction that truncates it was committed",
            durable=Durable.NOTHING,
        )


class Wanted(NamedTuple):
    """What a transaction asks for of a topic.

    Attributes:
        allow_unacknowledged: whether messages go that a subscription has not acknowledged.
        owned_since: the version since which nobody else may have written to it; None: anybody may.
    """

    allow_unacknowledged: bool = False
    owned_since: int | None = None


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
        files: by partition the file that comes in, of those that had offsets.
        size_bytes: of each of these files, which are all the same, and ``checksum`` theirs.
        visible: the segments that were visible at the version ``known``.
        forgotten: asked for the version up to which the state has forgotten segments and removals.
        wanted: what was asked for.
    """

    topic: int
    txn: int
    files: Mapping[int, EmptyFile]
    size_bytes: int
    checksum: str
    visible: frozenset[int]
    known: int
    forgotten: Callable[[], int]
    wanted: Wanted

    @property
    def numbers(self) -> list[int]:
        """Those that its entry will use."""
        return [self.txn, *(item.number for item in self.files.values())]

    def actions(self, draft: Draft, txn: int, acknowledgements: Sequence[Acknowledgement]) -> list[AnyAction]:
        """What truncates it in front of the entry at hand; nothing where the topic was dropped, or is empty.

        Args:
            draft: with what comes before in the entry.
            txn: the number of the transaction that truncates, and ``acknowledgements`` those that it brings along.
            acknowledgements: see there.

        Raises InvalidInputError for what a subscription has not acknowledged, and OutOfDate.
        """
        topic = draft.topics.get(self.topic)
        if topic is None or topic.dropped:
            return []
        before = draft.anew()  # offsets that this very entry gives are not truncated
        if self.forgotten() > self.known:
            raise OutOfDate(topic.name)
        hot = {
            number
            for number, record in before.segments.items()
            if record.topic == self.topic and record.state == "visible"
        }
        gone = {number for number in self.visible | hot if before.removals.get(number) is None}
        if any(draft.removals.get(number) is not None for number in gone):
            raise OutOfDate(topic.name)  # this very entry merges some of them
        spans = {p: (before.start_of(self.topic, p), before.end_of(self.topic, p)) for p in range(topic.partitions)}
        spans = {p: (start, end) for p, (start, end) in spans.items() if start < end}
        if not gone:
            return []
        if not spans.keys() <= self.files.keys():
            raise OutOfDate(topic.name)
        if self.wanted.owned_since is not None:
            check_owned(topic, (before.segments.get(number) for number in gone), self.wanted.owned_since)
        if not self.wanted.allow_unacknowledged:
            _check_acknowledged(draft, topic, spans, txn, acknowledgements)
        return [
            Begin(self.txn),
            *(self._segment(p, end - start) for p, (start, end) in spans.items()),
            Replace(self.topic, self.txn, tuple(sorted(gone)), tuple(start for start, _ in spans.values())),
        ]

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
    """A commit that truncates topics as well. Its rows, and what others bring in the same entry, stay."""

    travels = False  # who brings it for another one cannot look again
    alone = ONE_TRUNCATION
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


def _check_acknowledged(
    draft: Draft,
    topic: TopicRecord,
    spans: Mapping[int, tuple[int, int]],
    txn: int,
    acknowledgements: Sequence[Acknowledgement],
) -> None:
    """Raise InvalidInputError where a subscription has not acknowledged all that would go.

    What the transaction that truncates acknowledges itself counts as acknowledged.
    """
    needed: dict[str, int] = {}
    for subscription in _subscriptions_of(draft, topic):
        own = [item for item in acknowledgements if item.subscription == subscription.id]
        count = sum(
            ranges.size(_left(cursor_of(draft, subscription.id, p), p, span, txn, own)) for p, span in spans.items()
        )
        if count:
            needed[subscription.name] = count
    if not needed:
        return
    named = ", ".join(f"{name!r} {count:,}" for name, count in list(needed.items())[:_MOST_NAMED])
    more = ", and others" if len(needed) > _MOST_NAMED else ""
    raise InvalidInputError(
        f"of the messages of {topic.name!r} subscriptions have not acknowledged some: {named}{more}",
        advice=Words(
            "wait until they have, or pass ",
            Argument("allow_unacknowledged", True),
            ": then these subscriptions go on behind what is truncated",
        ),
        durable=Durable.NOTHING,
    )


def _subscriptions_of(draft: Draft, topic: TopicRecord) -> list[SubscriptionRecord]:
    return sorted(
        (item for _, item in draft.subscriptions.items() if item.topic == topic.id), key=lambda item: item.name
    )


def _left(cursor: Cursor, partition: int, span: tuple[int, int], txn: int, own: Sequence[Acknowledgement]) -> Ranges:
    left = unacknowledged(cursor, *span)
    for hold in cursor.holds:
        if hold.txn == txn:
            left = ranges.subtract(left, hold.ranges)
    ends = [end for item in own for place, end in item.cumulative if place == partition]
    if cursor.cumulative is not None and cursor.cumulative.txn == txn:
        ends.append(cursor.cumulative.end)
    for end in ends:
        left = ranges.subtract(left, ((0, end),))
    for item in own:
        for part in item.ranges:
            if part.partition == partition:
                left = ranges.subtract(left, part.ranges)
    return left


def check_acknowledged_yet(
    connection: Connection, topic: str, txn: int = -1, acknowledgements: Sequence[Acknowledgement] = ()
) -> None:
    """Raise InvalidInputError where a subscription has not acknowledged all messages of a topic, as far as is known.

    Args:
        connection: whose.
        topic: its name.
        txn: the transaction that truncates it, and ``acknowledgements`` those that the log may not show yet.
        acknowledgements: see there.
    """
    record = connection.topic_record(topic)

    def check(state: State) -> None:
        spans = {p: (state.start_of(record.id, p), state.end_of(record.id, p)) for p in range(record.partitions)}
        _check_acknowledged(state.draft(), record, spans, txn, acknowledgements)

    connection.follower.look(check)


def check_owned(topic: TopicRecord, records: Iterable[SegmentRecord | None], since: int) -> None:
    """Raise InvalidInputError where visible segments came behind a version. Merged ones are of any version."""
    for record in records:
        if record is None or record.compacted or record.ended_version is None or record.ended_version <= since:
            continue
        raise InvalidInputError(
            f"somebody else wrote {record.rows:,} messages to {topic.name!r} at version {record.ended_version}: they "
            "would go with the next complete result",
            advice="let one query alone write to the topic of a complete result, or write to another topic",
            durable=Durable.NOTHING,
        )


def planned(connection: Connection, topic: TopicRecord, wanted: Wanted) -> Truncation:
    """Look at a topic and put the files that a truncation needs. Blocking work; what it puts no entry names yet.

    Raises what the store raises: nothing was logged.
    """
    session = connection.session
    follower = session.follower
    known = follower.version
    records, removals = follower.segments(topic.id)
    shown = [record for record in records if is_visible(record, known, removals)]
    if wanted.owned_since is not None:
        check_owned(topic, shown, wanted.owned_since)
    state = follower.state
    partitions = [p for p in range(topic.partitions) if state.end_of(topic.id, p)]
    txn, *numbers = session.appender.take_numbers(1 + len(partitions))
    schema = merged_columns(schemas.to_arrow(topic.schema), has_holes=True)
    encoded = segment_file.encode(schema.empty_table())
    files = {
        partition: EmptyFile(number, f"{session.runtime.unique()}.parquet")
        for partition, number in zip(partitions, numbers, strict=True)
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
        known,
        lambda: -1 if follower.base is None else follower.base.version,
        wanted,
    )


__all__ = ["OutOfDate", "TruncatingCommit", "Truncation", "Wanted", "check_acknowledged_yet", "planned"]
