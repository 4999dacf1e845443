"""What operations answer: small values with a short repr and an HTML one for notebooks."""

from __future__ import annotations

import datetime
import html
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any, Literal

import pyarrow as pa

from txnlog.common.ids import TxnId
from txnlog.common.validation import printable, time_of
from txnlog.fold.state import TransactionState

CheckLevel = Literal["quick", "full", "deep"]
Severity = Literal["damage", "warning", "unchecked", "note"]
FindingKind = Literal["entry", "checkpoint", "segment", "transaction"]


def _cell(value: object) -> str:
    return html.escape(printable(str(value)))


class _Shown:
    """A dataclass that notebooks show as a table of its fields."""

    def _repr_html_(self) -> str:
        rows = "".join(
            f"<tr><th>{html.escape(item.name)}</th><td>{_cell(getattr(self, item.name))}</td></tr>"
            for item in fields(self)  # type: ignore[arg-type]  # every subclass is a dataclass
        )
        return f"<table><caption>{type(self).__name__}</caption>{rows}</table>"


@dataclass(frozen=True)
class Committed(_Shown):
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
class TopicInfo(_Shown):
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
class PartitionCursor(_Shown):
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
class SubscriptionInfo(_Shown):
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
class PartitionLag(_Shown):
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
class TransactionInfo(_Shown):
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
    """

    txn_id: TxnId
    state: TransactionState | str
    version: int | None = None
    timestamp_ms: int | None = None
    reason: str | None = None
    producer: str | None = None
    age_ms: int | None = None
    deadline_ms: int | None = None


@dataclass(frozen=True)
class EntryInfo(_Shown):
    """An entry of the commit log.

    Attributes:
        version: its version.
        timestamp_ms: its time in epoch milliseconds.
        writer: the process that wrote it; each handle is a writer of its own.
        actions: how many actions of which kind it has, by the names of the format.
        transactions_committed: how many transactions it commits, merges of segments included.
        size_bytes: the size of its object.
        rows: by topic how many rows it commits, whichever entries have them; merges bring none.
    """

    version: int
    timestamp_ms: int
    writer: str
    actions: Mapping[str, int]
    transactions_committed: int
    size_bytes: int
    rows: Mapping[str, int] = field(default_factory=dict)


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
        times_ms = (self.first_timestamp_ms, self.last_timestamp_ms)
        first, last = (time_of(time_ms).isoformat(timespec="seconds") for time_ms in times_ms)
        lines = [
            f"versions {self.first_version} to {self.last_version} ({first} to {last}) cannot be read any more",
            *(f"  {item}" for item in self.topics),
        ]
        return "\n".join(lines)


@dataclass(frozen=True)
class Vacuumed(_Shown):
    """What a vacuum did, or would do (``dry_run``).

    Attributes:
        version: of the log as it was announced; nothing that came later was touched.
        oldest_readable: older versions cannot be read any more.
        closed_blocks: writers that were silent for the grace, whose reserved numbers (a block) were withdrawn.
        unnamed_files: files that no entry names (of writers that died).
        aborted_files: files of aborted transactions.
        replaced_files: files whose rows lie in others.
        dropped_files: files of dropped topics: what was visible there, and their published Delta tables.
        deleted_bytes: of all of them.
        kept_files: segments that stay, with those that wait.
        dry_run: whether nothing was written or deleted.
        unreadable: what cannot be read any more since this vacuum; None where all can be that could.
        waiting_files: files that are kept only because ``grace_ms`` had not passed: of writers that were active in the
            log since then, or because ``grace_ms`` is longer than ``retain_ms``.
        waiting_bytes: of all of them.
        waiting_until_ms: when all of them can be deleted, in epoch milliseconds, if their writers stay silent and the
            next vacuum has the same ``grace_ms``; None where no file waits.
        deleted_files: all files that were deleted.
    """

    version: int
    oldest_readable: int
    closed_blocks: int
    unnamed_files: int
    aborted_files: int
    replaced_files: int
    dropped_files: int
    deleted_bytes: int
    kept_files: int
    dry_run: bool
    unreadable: Unreadable | None = None
    waiting_files: int = 0
    waiting_bytes: int = 0
    waiting_until_ms: int | None = None

    @property
    def deleted_files(self) -> int:
        """All files that were deleted."""
        return self.unnamed_files + self.aborted_files + self.replaced_files + self.dropped_files


@dataclass(frozen=True)
class BackedUp(_Shown):
    """A backup of a namespace at one version: all of it is there.

    Attributes:
        namespace: the namespace's name.
        version: the newest version that the backup has.
        timestamp_ms: when that version was committed, in epoch milliseconds.
        entries: entries of the log that belong to the backup.
        segments: segments that belong to it.
        size_bytes: of all files that belong to it, checkpoints included.
        copied_files, copied_bytes: what this call copied; the rest was there.
    """

    namespace: str
    version: int
    timestamp_ms: int
    entries: int
    segments: int
    size_bytes: int
    copied_files: int
    copied_bytes: int


@dataclass(frozen=True)
class Restored(_Shown):
    """A namespace that was restored from a backup, or would be (``dry_run``).

    Attributes:
        namespace: the namespace's name, which may be another one than the original's.
        coordinator: its coordinator id, with which its new TxnIDs begin; None for a dry run.
        version: the version of the backup. The next one is that of the adoption.
        timestamp_ms: when that version was committed, in epoch milliseconds.
        entries, segments, size_bytes: as in ``BackedUp``.
        dry_run: whether the backup was only read and compared with its checksums, and nothing was written.
    """

    namespace: str
    coordinator: int | None
    version: int
    timestamp_ms: int
    entries: int
    segments: int
    size_bytes: int
    dry_run: bool


@dataclass(frozen=True)
class Optimized(_Shown):
    """What an optimize did to a topic, or would begin with (``dry_run``).

    Attributes:
        topic: its name.
        version: of the last entry that replaced segments; None where there was nothing to do.
        merged_segments: segments that were replaced, those that came in between included.
        written_segments: segments that came in for them.
        read_bytes: of the files that were read.
        written_bytes: of those that were written.
        entries: how often segments were replaced: each is a version of the log.
        lost_races: merges that others were ahead of: an optimize, or retention. They were planned again.
        finished: whether nothing is left to do of what was there at the beginning.
        dry_run: whether nothing was written.
    """

    topic: str
    version: int | None
    merged_segments: int
    written_segments: int
    read_bytes: int
    written_bytes: int
    entries: int
    lost_races: int
    finished: bool
    dry_run: bool


@dataclass(frozen=True)
class KeptFor(_Shown):
    """Messages that retention would delete, and that are kept because a subscription has not acknowledged them.

    Attributes:
        subscription: its name.
        messages: how many are kept for it.
        since_ms: when the oldest of them would have been deleted: epoch milliseconds, by the time of the log. None
            where ``retention_bytes`` alone would delete them.
    """

    subscription: str
    messages: int
    since_ms: int | None


@dataclass(frozen=True)
class RetentionInfo(_Shown):
    """What retention says of a topic, and what it is about to do.

    Attributes:
        topic: its name.
        retention_ms: how long messages are kept; None: for ever.
        retention_bytes: how many bytes of segments are kept; None: all.
        message_ttl_ms: when a message counts as acknowledged on every subscription; None: never.
        retain_unacknowledged: whether what a subscription has not acknowledged is kept.
        messages: that can be read.
        size_bytes: of the segments that have them.
        due_messages: that the next ``maintain`` deletes.
        kept_messages: that it would delete, if all subscriptions had acknowledged them.
        kept_for: the subscriptions for which they are kept.
    """

    topic: str
    retention_ms: int | None
    retention_bytes: int | None
    message_ttl_ms: int | None
    retain_unacknowledged: bool
    messages: int
    size_bytes: int
    due_messages: int
    kept_messages: int
    kept_for: tuple[KeptFor, ...] = ()


@dataclass(frozen=True)
class DeletedRecords(_Shown):
    """What one deletion of messages did, or would do.

    Attributes:
        topic: the topic.
        version: the newest version of the log that shows it; None where nothing was deleted.
        messages: how many are gone by it.
        start_offsets: by partition the earliest offset that can be read now.
        expired_messages: those that count as acknowledged because of ``message_ttl_ms``, over all subscriptions.
        dry_run: nothing was written.
    """

    topic: str
    version: int | None
    messages: int
    start_offsets: Mapping[int, int]
    expired_messages: int = 0
    dry_run: bool = False


@dataclass(frozen=True)
class Maintained(_Shown):
    """What one call of maintenance did.

    Attributes:
        checkpoint: the version of the newest checkpoint.
        retained: of each topic of which retention deleted messages, what it deleted.
        optimized: of each topic in which segments were merged, what was done.
        published: topics with ``delta="auto"``, whose Delta tables were brought up to date.
        vacuumed: what was deleted.
        failures: by topic why optimizing or publishing it failed, and the way out; as ``_delta/segments`` why that
            table could not be published, as ``Delta tables`` why none could. Everything else was done.
        finished: whether nothing is left to do but what is in ``failures``: else call it again.
    """

    checkpoint: int
    retained: tuple[DeletedRecords, ...]
    optimized: tuple[Optimized, ...]
    published: tuple[str, ...]
    vacuumed: Vacuumed
    failures: Mapping[str, str]
    finished: bool


@dataclass(frozen=True)
class Finding(_Shown):
    """One thing that a check found.

    Attributes:
        severity: ``damage``: something is missing or is not what was written. ``warning``: nothing is lost, and
            somebody should look at it. ``unchecked``: nothing is known, because a right is missing, the store failed,
            or other damage is in the way. ``note``: no fault.
        kind: ``entry``, ``checkpoint``, ``segment`` or ``transaction``.
        key: the object, by its key in the folder of the namespace; of a transaction its TxnID.
        message: what was found.
        advice: what to do next.
    """

    severity: Severity
    kind: FindingKind
    key: str
    message: str
    advice: str

    def __str__(self) -> str:
        """A line for people."""
        return f"{self.severity}: {self.message} ({self.advice})"


@dataclass(frozen=True)
class FsckReport(_Shown):
    """What a check of a namespace found.

    Attributes:
        version: the version that was checked: the newest one when the check began.
        level: ``quick``, ``full`` or ``deep``.
        checked: how many there were, by kind: ``slot`` (numbers of entries that were looked for), ``entry`` (entries
            that were read), ``checkpoint``, ``part`` (of checkpoints), ``segment`` (that a readable version shows),
            ``file`` (segments that were read), ``row``, ``transaction`` (open or prepared).
        findings: what is worst comes first.
        is_clean: whether all was checked, and nothing but notes was found.
        of: the findings of one severity, as ``report.of("damage")``.
    """

    version: int
    level: CheckLevel
    checked: Mapping[str, int]
    findings: tuple[Finding, ...]

    @property
    def is_clean(self) -> bool:
        """Whether all was checked, and nothing but notes was found."""
        return all(item.severity == "note" for item in self.findings)

    def of(self, severity: Severity) -> tuple[Finding, ...]:
        """The findings of one severity."""
        return tuple(item for item in self.findings if item.severity == severity)


class Listing(tuple[Any, ...]):
    """A tuple of answers that notebooks show as one table."""

    __slots__ = ()

    def __new__(cls, items: Iterable[Any] = ()) -> Listing:
        """A listing of these answers."""
        return super().__new__(cls, tuple(items))

    def _repr_html_(self) -> str:
        if not self:
            return "<em>none</em>"
        names: Sequence[str] = [item.name for item in fields(self[0])]
        head = "".join(f"<th>{html.escape(name)}</th>" for name in names)
        body = "".join(
            "<tr>" + "".join(f"<td>{_cell(getattr(row, name))}</td>" for name in names) + "</tr>" for row in self
        )
        return f"<table><tr>{head}</tr>{body}</table>"


__all__ = [
    "BackedUp",
    "CheckLevel",
    "Committed",
    "DeletedRecords",
    "EntryInfo",
    "Finding",
    "FindingKind",
    "FsckReport",
    "KeptFor",
    "Listing",
    "Maintained",
    "Optimized",
    "PartitionCursor",
    "PartitionLag",
    "Restored",
    "RetentionInfo",
    "Severity",
    "SubscriptionInfo",
    "TopicInfo",
    "TransactionInfo",
    "Unreadable",
    "UnreadableTopic",
    "Vacuumed",
]
