"""What maintenance answers: retention, optimize, vacuum, backups and checks."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from txnlog.results.log import Unreadable
from txnlog.results.shown import Shown

CheckLevel = Literal["quick", "full", "deep"]
Severity = Literal["damage", "warning", "unchecked", "note"]
FindingKind = Literal["entry", "checkpoint", "segment", "transaction"]
RepairKind = Literal["entry", "checkpoint", "segment", "transaction", "table", "heartbeat", "proposal"]


@dataclass(frozen=True)
class Vacuumed(Shown):
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
class BackedUp(Shown):
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
class Restored(Shown):
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
class Optimized(Shown):
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
class Compacted(Shown):
    """What key compaction did to a topic, or would do first (``dry_run``).

    Attributes:
        topic: its name.
        version: of the last entry that took messages out; None where there were none to take.
        removed_messages: those with a newer message of their key, and those that ended their key long enough ago.
        rewritten_segments: segments that lost messages, and were replaced.
        written_segments: segments that came in for them.
        read_bytes: of the files that were read, for their keys at least.
        written_bytes: of those that were written.
        entries: how often segments were replaced: each is a version of the log.
        lost_races: passes that others were ahead of. They were planned again.
        finished: whether all was compacted that can be now.
        dry_run: whether nothing was written.
    """

    topic: str
    version: int | None
    removed_messages: int
    rewritten_segments: int
    written_segments: int
    read_bytes: int
    written_bytes: int
    entries: int
    lost_races: int
    finished: bool
    dry_run: bool


@dataclass(frozen=True)
class FileWithErasedRows(Shown):
    """A file that still has rows that an erasure took out, or would take out.

    Attributes:
        key: the object, by its key in the folder of the namespace.
        rows: how many; at least 1 of a file that cannot be read.
        why: ``older versions show it``, ``its transaction was aborted``, ``no entry names it``,
            ``it is the mailbox of a writer`` (with rows of transactions that another process was to commit): a vacuum
            deletes it; ``its transaction is open``: erase again once that has ended.
        version: the version that replaced it, or aborted its transaction; None where there is none.
    """

    key: str
    rows: int
    why: str
    version: int | None


@dataclass(frozen=True)
class Erased(Shown):
    """What an erasure did to a topic, or would do (``dry_run``), and what is left to wait for.

    Attributes:
        topic: its name.
        version: of the last entry that took rows out; None where the newest version had none.
        erased_messages: the rows that are gone from the newest version.
        rewritten_segments: segments that lost rows, and were replaced.
        entries: how often segments were replaced: each is a version of the log.
        waiting: files that have such rows yet, and why. A vacuum deletes most of them: :meth:`Namespace.vacuum`.
        bounds: columns of which the log holds a value of these rows for ever, as the least or the greatest one of a
            file; of a file that is deleted, also columns with a value that no row of the topic has any more, where it
            may have been one of these rows. A topic with ``statistics="off"`` has none.
        is_complete: whether nothing is left: no file has such a row.
        dry_run: whether nothing was written.
        dead_letters: the same of the topics that take dead letters of this one.
    """

    topic: str
    version: int | None
    erased_messages: int
    rewritten_segments: int
    entries: int
    waiting: tuple[FileWithErasedRows, ...]
    bounds: tuple[str, ...]
    is_complete: bool
    dry_run: bool
    dead_letters: tuple[Erased, ...] = ()


@dataclass(frozen=True)
class KeptFor(Shown):
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
class RetentionInfo(Shown):
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
class DeletedRecords(Shown):
    """What one deletion of messages did, or would do.

    Attributes:
        topic: the topic.
        version: of the entry that deleted them; None where nothing was deleted.
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
class Maintained(Shown):
    """What one call of maintenance did.

    Attributes:
        checkpoint: the version of the newest checkpoint.
        retained: of each topic whose settings deleted messages or let them expire, what became of them.
        compacted: of each topic with ``cleanup_policy="compact"`` in which messages were looked at, what was done.
        optimized: of each topic in which segments were merged, what was done.
        published: topics with ``delta="auto"``, whose Delta tables were brought up to date.
        vacuumed: what was deleted.
        failures: by topic why optimizing or publishing it failed, and the way out; as ``_delta/segments`` why that
            table could not be published, as ``Delta tables`` why none could. Everything else was done.
        finished: whether nothing is left to do but what is in ``failures``: else call it again.
    """

    checkpoint: int
    retained: tuple[DeletedRecords, ...]
    compacted: tuple[Compacted, ...]
    optimized: tuple[Optimized, ...]
    published: tuple[str, ...]
    vacuumed: Vacuumed
    failures: Mapping[str, str]
    finished: bool


@dataclass(frozen=True)
class Finding(Shown):
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
class FsckReport(Shown):
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


@dataclass(frozen=True)
class RepairedObject(Shown):
    """One object in which a repair found something wrong.

    Attributes:
        kind: ``entry``, ``checkpoint`` or ``segment``; ``table``: the log of a published Delta table; ``heartbeat``:
            the sign of life of a consumer; ``proposal``: a mailbox, or the object that names who collects;
            ``transaction``: one that nobody ended.
        key: the object, by its key in the folder of the namespace; of a table its folder, of a transaction its TxnID.
        done: what was done, or would be (``dry_run``); empty where nothing was.
        left: what is wrong with it now; empty where nothing is.
        severity: of what is left, as of a :class:`Finding`; None where nothing is left.
        advice: what to do about what is left.
    """

    kind: RepairKind
    key: str
    done: str
    left: str
    severity: Severity | None
    advice: str

    def __str__(self) -> str:
        """A line for people."""
        parts = [f"{self.key}: {self.done}"] if self.done else []
        if self.left:
            parts.append(f"{self.severity}: {self.left} ({self.advice})")
        return "; ".join(parts)


@dataclass(frozen=True)
class Repaired(Shown):
    """What a repair did, and what it left.

    Attributes:
        version: the newest version of the log.
        dry_run: whether nothing was written.
        objects: those in which something was wrong; what is left comes first, what is worst before all others.
        is_clean: whether nothing is left to do.
        of: the objects of which something of one severity is left, as ``repaired.of("damage")``.
    """

    version: int
    dry_run: bool
    objects: tuple[RepairedObject, ...]

    @property
    def is_clean(self) -> bool:
        """Whether nothing is left to do."""
        return all(item.severity is None for item in self.objects)

    def of(self, severity: Severity) -> tuple[RepairedObject, ...]:
        """The objects of which something of one severity is left."""
        return tuple(item for item in self.objects if item.severity == severity)


__all__ = [
    "BackedUp",
    "CheckLevel",
    "Compacted",
    "DeletedRecords",
    "Erased",
    "FileWithErasedRows",
    "Finding",
    "FindingKind",
    "FsckReport",
    "KeptFor",
    "Maintained",
    "Optimized",
    "RepairKind",
    "Repaired",
    "RepairedObject",
    "Restored",
    "RetentionInfo",
    "Severity",
    "Vacuumed",
]
