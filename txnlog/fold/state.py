"""The materialized state of a namespace: what applying its log gives.

Hot tables describe what still matters for the next entry (topics, cursors, open transactions, producers, blocks). Cold
ones (outcomes, segments, removals, batches) only grow; they hold what ended after the newest checkpoint that this
client trimmed to, the rest lies in that checkpoint's Parquet runs.
All records are frozen, so a draft, a snapshot and a checkpoint can share them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple

from msgspec import Struct, field

from txnlog.common.format_limits import OUTCOME_RETENTION_MS
from txnlog.common.ids import Coordinators, TxnId
from txnlog.common.ranges import EMPTY, Ranges
from txnlog.common.writer_text import writer_of
from txnlog.fold.draft_tables import DraftTable, rollback
from txnlog.format.actions import Bound, SubscriptionType, Takeover, Verdict
from txnlog.format.schema import StructType

TransactionState = Literal["OPEN", "PREPARED", "COMMITTED", "ABORTED"]
RowsState = Literal["OPEN", "COMMITTED", "ABORTED"]
"""How rows stand in ``_txn_state``: those of a PREPARED transaction are OPEN, their end is not decided either."""
SegmentState = Literal["pending", "visible", "aborted"]
Statistics = dict[str, tuple[Bound, Bound, int | None]]


class Record(Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True, gc=False):
    """Base of all records."""


class Head(Record, frozen=True):
    """The version of the state, and what is one for the whole namespace."""

    version: int = -1
    digest: str = ""
    timestamp_ms: int = 0
    checkpoint: int | None = None
    next_number: int = 0
    open_blocks: tuple[int, ...] = ()
    name: str = ""
    first_coordinator: int = field(default=0, name="coordinator")  # the name in checkpoints
    next_coordinator: int = 0
    max_timeout_ms: int | None = None
    outcome_retention_ms: int | None = None
    reader_version: int = 0
    writer_version: int = 0
    reader_features: tuple[str, ...] = ()
    writer_features: tuple[str, ...] = ()
    oldest_readable: int = 0
    adoptions: tuple[tuple[int, int], ...] = ()
    """Of each adoption the first number that has the new coordinator id, and that id."""

    def log_time_ms(self, clock_ms: int) -> int:
        """The time of the log where a clock shows this: the next entry would have at least this timestamp."""
        return max(self.timestamp_ms, clock_ms)

    @property
    def coordinators(self) -> Coordinators:
        """Which coordinator id stands before which number."""
        return Coordinators(((0, self.first_coordinator), *self.adoptions))

    @property
    def outcomes_since_ms(self) -> int:
        """The outcomes of entries from this time on are remembered; older ones may be forgotten."""
        return self.timestamp_ms - (self.outcome_retention_ms or OUTCOME_RETENTION_MS)


class SchemaVersion(Record, frozen=True):
    """A topic's schema from one version on."""

    version: int
    schema: StructType


class TopicRecord(Record, frozen=True):
    """A topic; dropped ones stay for readers of older versions."""

    id: int
    name: str
    folder: str
    schemas: tuple[SchemaVersion, ...]
    partitions: int
    key: str | None = None
    properties: dict[str, str] = {}
    dropped_version: int | None = None

    @property
    def schema(self) -> StructType:
        """The newest schema."""
        return self.schemas[-1].schema

    def schema_at(self, version: int) -> StructType:
        """The schema that was in force at a version of the log."""
        result = self.schemas[0].schema
        for item in self.schemas:
            if item.version <= version:
                result = item.schema
        return result

    @property
    def dropped(self) -> bool:
        """Whether somebody dropped it."""
        return self.dropped_version is not None

    def exists_at(self, version: int) -> bool:
        """Whether the topic was there at a version of the log."""
        return self.id <= version and (self.dropped_version is None or version < self.dropped_version)


class SubscriptionRecord(Record, frozen=True):
    """A subscription. ``consumer`` is the newest to open it, ``stream`` the streaming query it is bound to."""

    id: int
    topic: int
    name: str
    type: SubscriptionType
    epoch: int
    lease_ms: int
    takeover: Takeover = "any"
    max_redeliveries: int | None = None
    dead_letter_topic: str | None = None
    consumer: str | None = None
    stream: str | None = None


class Hold(Record, frozen=True):
    """Ranges of one partition that an open transaction acknowledged."""

    txn: int
    ranges: Ranges


class CumulativeHold(Record, frozen=True):
    """Everything below ``end``, acknowledged in an open transaction."""

    txn: int
    end: int


class LeaseRecord(Record, frozen=True):
    """Ranges granted to a Shared consumer until a time of the log."""

    consumer: str
    until_ms: int
    ranges: Ranges


class Redelivery(Record, frozen=True):
    """How often a range was delivered again."""

    start: int
    end: int
    count: int


class Cursor(Record, frozen=True):
    """One partition of a subscription: everything below ``position`` is acknowledged, and ``acknowledged`` above it."""

    position: int
    acknowledged: Ranges = EMPTY
    holds: tuple[Hold, ...] = ()
    cumulative: CumulativeHold | None = None
    leases: tuple[LeaseRecord, ...] = ()
    redeliveries: tuple[Redelivery, ...] = ()


class Block(Record, frozen=True):
    """An open block of numbers. ``touched_ms`` is the time of the log at which it last showed life, to the minute.

    ``writer_text`` is what ``reserve`` says, with the client behind the writer's id (P-253).
    """

    first: int
    count: int
    writer_text: str = field(name="writer")
    touched_ms: int

    @property
    def writer(self) -> str:
        """The id of the writer that may use it: what is compared."""
        return writer_of(self.writer_text)


class ProducerRecord(Record, frozen=True):
    """A producer's name: epoch, the numbers of its open transactions, who fenced it."""

    name: str
    epoch: int
    open: tuple[int, ...] = ()
    fenced_by: str | None = None


class Batch(Record, frozen=True):
    """A sequenced batch that became visible."""

    producer: str
    topic: int
    partition: int
    sequence: int
    rows: int
    offset: int
    version: int
    txn: int


class Sequences(Record, frozen=True):
    """The sequences of one (producer, topic, partition): the last visible sequence and the newest batches."""

    last: int
    recent: tuple[Batch, ...] = ()


class TransactionRecord(Record, frozen=True):
    """A transaction that the log shows and has not ended."""

    number: int
    state: Literal["OPEN", "PREPARED"]
    opened_version: int
    opened_ms: int
    deadline_ms: int | None = None
    producer: str | None = None
    epoch: int | None = None
    app_id: str | None = None
    app_version: int | None = None
    segments: tuple[int, ...] = ()
    held: tuple[tuple[int, int], ...] = ()
    digest: str = ""


class TopicRange(Struct, frozen=True, array_like=True, forbid_unknown_fields=True, gc=False):
    """Offsets ``[start, end)`` of a topic's partition."""

    topic: int
    partition: int
    start: int
    end: int


class Outcome(Record, frozen=True):
    """How a transaction ended. ``offsets`` is None where only its end is remembered.

    ``prepared``: a decision committed it, so the digest stands in the line of ``prepare``, not in that of its end. It
    was committed without what it had for ``dropped_topics`` and ``dropped_subscriptions``.
    """

    number: int
    state: Literal["COMMITTED", "ABORTED"]
    version: int
    timestamp_ms: int
    reason: str = ""
    digest: str = ""
    offsets: tuple[TopicRange, ...] | None = None
    prepared: bool = False
    dropped_topics: tuple[int, ...] = ()
    dropped_subscriptions: tuple[int, ...] = ()


class SegmentSlice(Struct, frozen=True, array_like=True, forbid_unknown_fields=True, omit_defaults=True, gc=False):
    """Rows of one partition in a segment; ``offset`` is the first one's, None until the segment is visible."""

    partition: int
    rows: int
    offset: int | None = None
    sequence: int | None = None

    @property
    def start(self) -> int:
        """Its first offset. Of a visible segment only."""
        assert self.offset is not None, "a visible segment has offsets"
        return self.offset


class SegmentRecord(Record, frozen=True):
    """A segment, its rows by partition, and how it stands. ``txn`` is None for one that several transactions share.

    ``extent`` is how many offsets its only slice stands for, where some of them have no row; None where each has one.
    """

    number: int
    topic: int
    file: str
    rows: int
    size_bytes: int
    checksum: str
    slices: tuple[SegmentSlice, ...]
    state: SegmentState
    logged_version: int
    txn: int | None = None
    ended_version: int | None = None
    timestamp_ms: int | None = None
    compacted: bool = False
    statistics: Statistics = {}
    extent: int | None = None

    def width_of(self, item: SegmentSlice) -> int:
        """How many offsets one of its slices stands for."""
        return item.rows if self.extent is None else self.extent

    def end_of(self, item: SegmentSlice) -> int:
        """The offset behind one of its slices. Of a visible segment only."""
        return item.start + self.width_of(item)


class AppRecord(Record, frozen=True):
    """The last committed ``txn_version`` of an application id, and the transaction that brought it."""

    app_id: str
    app_version: int
    txn: int
    version: int


class StreamRecord(Record, frozen=True):
    """The last micro-batch of a streaming identity, and the transaction that brought it."""

    identity: str
    query: str
    batch: int
    offsets_digest: str
    txn: int
    version: int


class NamespaceRecord(Record, frozen=True):
    """Root log: a namespace of the root."""

    id: int
    name: str
    coordinator: int
    dropped_version: int | None = None
    log: str = ""
    """Digest of entry 0 of its log; empty where the registration does not say."""

    @property
    def dropped(self) -> bool:
        """Whether somebody dropped it."""
        return self.dropped_version is not None


HEAD: Final = "head"


class _Reading:
    """What a state and a draft on it answer alike."""

    __slots__ = ()

    starts: Mapping[tuple[int, int], int] | DraftTable[tuple[int, int], int]
    ends: Mapping[tuple[int, int], int] | DraftTable[tuple[int, int], int]

    @property
    def head(self) -> Head:
        """The version, and what is one for the whole namespace."""
        raise NotImplementedError

    def start_of(self, topic: int, partition: int) -> int:
        """The earliest offset of a partition that was not deleted."""
        return self.starts.get((topic, partition)) or 0

    def end_of(self, topic: int, partition: int) -> int:
        """The offset behind the last message of a partition."""
        return self.ends.get((topic, partition)) or 0

    def txn_id(self, number: int) -> TxnId:
        """The whole TxnID of a number of this log, which is what a message shows."""
        return self.head.coordinators.txn_id(number)


class _Tables(_Reading):
    """Every table of a state, in their order: ``TABLES`` are their names.

    A new table has a line here, one in :class:`Draft`, and one in :mod:`txnlog.log.checkpoint_codec` (``_HOT``, or
    ``COLD_KINDS`` with a schema); PROTOCOL.md names it among what a checkpoint holds. Tests compare all four.
    """

    __slots__ = ()

    heads: dict[str, Head]
    topics: dict[int, TopicRecord]
    topic_names: dict[str, int]
    ends: dict[tuple[int, int], int]
    starts: dict[tuple[int, int], int]
    subscriptions: dict[int, SubscriptionRecord]
    subscription_names: dict[tuple[int, str], int]
    cursors: dict[tuple[int, int], Cursor]
    blocks: dict[int, Block]
    used: dict[int, int]
    producers: dict[str, ProducerRecord]
    sequences: dict[tuple[str, int, int], Sequences]
    transactions: dict[int, TransactionRecord]
    outcomes: dict[int, Outcome]
    apps: dict[str, AppRecord]
    streams: dict[str, StreamRecord]
    segments: dict[int, SegmentRecord]
    removals: dict[int, int]
    batches: dict[tuple[str, int, int, int], Batch]
    namespaces: dict[int, NamespaceRecord]
    namespace_names: dict[str, int]
    verdicts: dict[tuple[str, str], Verdict]


TABLES: Final = tuple(_Tables.__annotations__)
"""Every table of a state; a draft has the same, and ``unclaimed`` for the entry at hand."""

_TABLES: Final = frozenset(TABLES)


class State(_Tables):
    """The materialized state of a log at ``head.version``. Only a draft changes it."""

    __slots__ = TABLES

    def __init__(self) -> None:
        for name in TABLES:
            setattr(self, name, {})
        self.heads[HEAD] = Head()

    @property
    def head(self) -> Head:
        """The version of the state, and what is one for the whole namespace."""
        return self.heads[HEAD]

    def draft(self) -> Draft:
        """A draft on this state; at most one is merged before the next is made."""
        return Draft(self)

    def copy(self) -> State:
        """A state of its own that shares the (frozen) records."""
        other = State()
        for name in TABLES:
            getattr(other, name).update(getattr(self, name))
        return other

    def as_tables(self) -> dict[str, dict[Any, Any]]:
        """All tables by name, for comparisons; not a copy."""
        return {name: getattr(self, name) for name in TABLES}


class Unclaimed(NamedTuple):
    """What the commits of the entry at hand have not claimed yet of a shared segment's slice."""

    topic: int
    offset: int
    rows: int


class Draft(_Reading):
    """Changes on top of a state: see :mod:`txnlog.fold.draft_tables`.

    Its tables are made when they are used first: most drafts use some of them, and each command of an entry has one.
    """

    __slots__ = (*TABLES, "_journal", "_state", "_tables", "unclaimed")

    heads: DraftTable[str, Head]
    topics: DraftTable[int, TopicRecord]
    topic_names: DraftTable[str, int]
    ends: DraftTable[tuple[int, int], int]
    starts: DraftTable[tuple[int, int], int]
    subscriptions: DraftTable[int, SubscriptionRecord]
    subscription_names: DraftTable[tuple[int, str], int]
    cursors: DraftTable[tuple[int, int], Cursor]
    blocks: DraftTable[int, Block]
    used: DraftTable[int, int]
    producers: DraftTable[str, ProducerRecord]
    sequences: DraftTable[tuple[str, int, int], Sequences]
    transactions: DraftTable[int, TransactionRecord]
    outcomes: DraftTable[int, Outcome]
    apps: DraftTable[str, AppRecord]
    streams: DraftTable[str, StreamRecord]
    segments: DraftTable[int, SegmentRecord]
    removals: DraftTable[int, int]
    batches: DraftTable[tuple[str, int, int, int], Batch]
    namespaces: DraftTable[int, NamespaceRecord]
    namespace_names: DraftTable[str, int]
    verdicts: DraftTable[tuple[str, str], Verdict]
    unclaimed: DraftTable[tuple[int, int], Unclaimed]

    def __init__(self, state: State) -> None:
        self._state = state
        self._journal: list[tuple[dict[Any, Any], Any, Any]] = []
        self._tables: dict[str, DraftTable[Any, Any]] = {}
        self.unclaimed = DraftTable({}, self._journal)

    if not TYPE_CHECKING:  # which would not find misspelt names

        def __getattr__(self, name: str) -> DraftTable[Any, Any]:
            if name not in _TABLES:
                raise AttributeError(name)
            made = self._tables[name] = DraftTable(getattr(self._state, name), self._journal)
            setattr(self, name, made)
            return made

    def anew(self) -> Draft:
        """Another draft on the same state, without the changes of this one."""
        return Draft(self._state)

    @property
    def head(self) -> Head:
        """The version of the draft, and what is one for the whole namespace."""
        head = self.heads.get(HEAD)
        assert head is not None, "a state always has a head"
        return head

    @head.setter
    def head(self, head: Head) -> None:
        self.heads.put(HEAD, head)

    def savepoint(self) -> int:
        """A mark to roll back to."""
        return len(self._journal)

    def rollback(self, mark: int) -> None:
        """Undo everything since the mark."""
        rollback(self._journal, mark)

    def merge(self) -> None:
        """Carry all changes into the state; the draft is empty afterwards."""
        for name in TABLES:
            table = self._tables.get(name)
            if table is not None and table.changed():
                table.merge()
        self._journal.clear()
        self.unclaimed = DraftTable({}, self._journal)


__all__ = [
    "HEAD",
    "TABLES",
    "AppRecord",
    "Batch",
    "Block",
    "CumulativeHold",
    "Cursor",
    "Draft",
    "Head",
    "Hold",
    "LeaseRecord",
    "NamespaceRecord",
    "Outcome",
    "ProducerRecord",
    "Record",
    "Redelivery",
    "RowsState",
    "SchemaVersion",
    "SegmentRecord",
    "SegmentSlice",
    "SegmentState",
    "Sequences",
    "State",
    "Statistics",
    "StreamRecord",
    "SubscriptionRecord",
    "TopicRange",
    "TopicRecord",
    "TransactionRecord",
    "TransactionState",
    "Unclaimed",
]
