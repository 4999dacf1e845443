"""What calls answer about the log: commits, topics, subscriptions, transactions, entries, and rows left out."""

from __future__ import annotations

import datetime
from collections.abc import Mapping
from dataclasses import dataclass, field

import pyarrow as pa

from txnlog.common.ids import TxnId
from txnlog.common.validation import time_of
from txnlog.fold.state import TransactionState
from txnlog.results.shown import Shown


@dataclass(frozen=True)
class Committed(Shown):
    """A committed transaction: visible, all of it, to whoever reads at ``version`` or later.

    Attributes:
        txn_id: the transaction; of a skipped or repeated batch the one that brought it, None where several did.
        version: the namespace's version that shows it.
        offsets: by (topic, partition) the range of offsets it was given; None where history no longer has them, or
            where rows of others lie between those of a repeat.
        skipped: the app version or stream batch was committed before; nothing was written now.
        duplicate: the sequenced batch was committed before; nothing was written now.
        dropped: topics and subscriptions dropped meanwhile, without which it was committed. The number of a
            subscription stands for a name that cannot be read.
    """

    txn_id: TxnId | None
    version: int
    offsets: Mapping[tuple[str, int], range] | None = field(default_factory=dict)
    skipped: bool = False
    duplicate: bool = False
    dropped: tuple[str, ...] = ()


@dataclass(frozen=True)
class TopicInfo(Shown):
    """A topic.

    Attributes:
        name: its name.
        schema: the Arrow schema of its columns.
        partitions: how many it has.
        key: the column whose hash chooses the partition of a row, None where the client chooses.
        properties: labels of its users (``user.``) and settings of the library (``txnlog.``), as texts.
        id: the version of the entry that created it; a topic created again under the name has another one.
    """

    name: str
    schema: pa.Schema
    partitions: int
    key: str | None
    properties: Mapping[str, str]
    id: int


@dataclass(frozen=True)
class PartitionCursor(Shown):
    """One partition of a subscription.

    Attributes:
        partition: its number.
        cursor: everything below this offset is acknowledged.
        acknowledged: ranges ``(start, end)`` of offsets above the cursor that are acknowledged, too.
        pending: messages that are acknowledged in open transactions.
        redelivered: messages that came back at least once and are not acknowledged.
        leased: messages that Shared consumers have.
    """

    partition: int
    cursor: int
    acknowledged: tuple[tuple[int, int], ...]
    pending: int
    redelivered: int
    leased: int = 0


@dataclass(frozen=True)
class SubscriptionInfo(Shown):
    """A subscription of a topic and its cursors.

    Attributes:
        topic, name: what it is called.
        type: ``exclusive``, ``failover`` or ``shared``.
        epoch: a number that grows with whatever fences its consumers: a newer consumer, a seek, a drop.
        cursors: one :class:`PartitionCursor` a partition.
        id: the version of the entry that created it.
        takeover: when a newer consumer may fence the active one: ``any``, ``same_name`` or ``after_lease``.
        lease_ms: how long a consumer has messages, or its place, without a sign of life; milliseconds.
        max_redeliveries: after how many a message goes to the dead-letter topic, None for never.
        dead_letter_topic: its name, None where there is none.
        pending: messages that are acknowledged in open transactions.
        leased: messages that Shared consumers have.
        redelivered: messages that came back at least once and are not acknowledged.
        consumer: the newest to open it: of Exclusive and Failover ones the active one.
        consumers: of Shared ones, how many messages are leased to whom.
        query: the streaming query, or the run of ``spark_ext.process``, that it belongs to: its ``txnAppId``,
            ``query_name`` or id. A plain consumer is refused then, unless with ``takeover=True``.
        query_since: when that took it, by the time of the log.
    """

    topic: str
    name: str
    type: str
    epoch: int
    consumer: str | None
    cursors: tuple[PartitionCursor, ...]
    id: int
    takeover: str
    lease_ms: int
    max_redeliveries: int | None = None
    dead_letter_topic: str | None = None
    consumers: Mapping[str, int] = field(default_factory=dict)
    query: str | None = None
    query_since: datetime.datetime | None = None

    @property
    def pending(self) -> int:
        """Messages that are acknowledged in open transactions."""
        return sum(item.pending for item in self.cursors)

    @property
    def leased(self) -> int:
        """Messages that Shared consumers have."""
        return sum(item.leased for item in self.cursors)

    @property
    def redelivered(self) -> int:
        """Messages that came back at least once and are not acknowledged."""
        return sum(item.redelivered for item in self.cursors)


@dataclass(frozen=True)
class PartitionLag(Shown):
    """How far a subscription is behind in one partition.

    Attributes:
        partition: its number.
        cursor: everything below this offset is acknowledged.
        end: the offset behind the newest message.
        behind_messages: messages that are not acknowledged.
        behind_ms: the age of the oldest of them in milliseconds, None where there is none.
        pending: those that are acknowledged in open transactions.
        leased: those that Shared consumers have.
    """

    partition: int
    cursor: int
    end: int
    behind_messages: int
    behind_ms: int | None
    pending: int = 0
    leased: int = 0


@dataclass(frozen=True)
class TransactionInfo(Shown):
    """A transaction as the log shows it.

    Attributes:
        txn_id: its id.
        state: ``OPEN``, ``PREPARED``, ``COMMITTED``, ``ABORTED``, or ``UNKNOWN`` for an id that the log does not show.
        version: the version of the entry that ended it, or of the first one that shows it as long as it is open.
        timestamp_ms: the time of that entry in epoch milliseconds.
        reason: why it was aborted: ``user``, ``timeout``, ``fenced``, ``admin`` or ``failed``.
        producer: of one that has not ended, the name of its producer; None for an anonymous one.
        age_ms: how long it has been open, in milliseconds, by the time of the log; None once it has ended.
        deadline_ms: when it times out, in epoch milliseconds; None for never, and once it has ended.
        client: who began it, as it says itself (``client_name`` of ``txnlog.open``, host, process, version); None where
            the log does not say that, or not any more.
    """

    txn_id: TxnId
    state: TransactionState | str
    version: int | None = None
    timestamp_ms: int | None = None
    reason: str | None = None
    producer: str | None = None
    age_ms: int | None = None
    deadline_ms: int | None = None
    client: str | None = None


@dataclass(frozen=True)
class EntryInfo(Shown):
    """An entry of the commit log.

    Attributes:
        version: its version.
        timestamp_ms: its time in epoch milliseconds.
        writer: the process that wrote it; each handle is a writer of its own.
        actions: how many actions of which kind it has, by the names of the format.
        transactions_committed: how many transactions it commits, merges of segments included.
        size_bytes: the size of its object.
        rows: by topic how many rows it commits, whichever entries have them; merges bring none.
        client: who the writer is, as it says itself (``client_name`` of ``txnlog.open``, host, process, version); None
            where neither the entries that were read nor its open blocks of numbers say that.
    """

    version: int
    timestamp_ms: int
    writer: str
    actions: Mapping[str, int]
    transactions_committed: int
    size_bytes: int
    rows: Mapping[str, int] = field(default_factory=dict)
    client: str | None = None


@dataclass(frozen=True)
class UnreadableTopic:
    """What a vacuum makes unreadable of one topic.

    Attributes:
        topic: its name.
        segments: visible ones that no version shows afterwards. Rows of merged segments are in others as well.
        size_bytes: of these.
        dropped: whether the topic was dropped, so that its rows cannot be read at all any more.
        table_must_show: of a topic that is there, has a Delta table and is not published after commits (``delta``
            is ``"manual"`` or ``"off"``): the version of the namespace that its table must show, or a later one, to
            need none of these segments. Publish it before they are deleted: else the table cannot be read until then.
            None where there is no such table.
    """

    topic: str
    segments: int
    size_bytes: int
    dropped: bool
    table_must_show: int | None = None

    def __str__(self) -> str:
        """A summary in words, for people."""
        name = f"{self.topic} (dropped)" if self.dropped else self.topic
        counts = f"{name}: {self.segments:,} segments, {self.size_bytes:,} bytes"
        if self.table_must_show is None:
            return counts
        return (
            f"{counts}; its Delta table needs some of them, unless it was published since version "
            f"{self.table_must_show}: publish it first, or it cannot be read until then"
        )


@dataclass(frozen=True)
class Unreadable:
    """What a vacuum makes unreadable: known before anything is deleted.

    Attributes:
        first_version: the oldest version that could be read so far.
        last_version: the newest version that cannot be read any more.
        first_timestamp_ms: when the former was committed, in epoch milliseconds.
        last_timestamp_ms: when the latter was.
        topics: by topic the segments that only these versions show.
    """

    first_version: int
    last_version: int
    first_timestamp_ms: int
    last_timestamp_ms: int
    topics: tuple[UnreadableTopic, ...]

    def __str__(self) -> str:
        """A summary in words, for people."""
        first, last = (
            time_of(time_ms).isoformat(timespec="seconds")
            for time_ms in (self.first_timestamp_ms, self.last_timestamp_ms)
        )
        lines = [
            f"versions {self.first_version} to {self.last_version} ({first} to {last}) cannot be read any more",
            *(f"  {item}" for item in self.topics),
        ]
        return "\n".join(lines)


__all__ = [
    "Committed",
    "EntryInfo",
    "PartitionCursor",
    "PartitionLag",
    "SubscriptionInfo",
    "TopicInfo",
    "TransactionInfo",
    "Unreadable",
    "UnreadableTopic",
]
