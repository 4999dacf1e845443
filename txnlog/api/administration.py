"""Administering a namespace: transactions, producers, format, files, retention, health, metrics, tables, history."""

from __future__ import annotations

import datetime
import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from txnlog.api import features, history, metrics, producers, tables, transaction_admin
from txnlog.api.doctor.examination import examine
from txnlog.api.paths import opened_copy
from txnlog.client.positions import Position
from txnlog.common.ids import TxnId
from txnlog.common.limits import DEFAULT_GRACE_MS, DEFAULT_RETAIN_MS, MAINTAIN_BYTES, MERGE_TARGET_BYTES
from txnlog.common.validation import Duration, callback, truth
from txnlog.maintenance import compaction, erasure, maintain, optimizer, retention, vacuum
from txnlog.maintenance.fsck import check, findings
from txnlog.maintenance.repair import repair as repairing
from txnlog.maintenance.vacuum import Before
from txnlog.replies import in_parts, only_looking
from txnlog.results import (
    CheckLevel,
    Committed,
    Compacted,
    DeletedRecords,
    DoctorReport,
    Erased,
    FsckReport,
    Listing,
    Maintained,
    Optimized,
    Repaired,
    TransactionInfo,
    Vacuumed,
)

if TYPE_CHECKING:
    from txnlog.client.connection import Connection


class Administration:
    """The calls of a namespace that look after it, as far as no data is produced, received or read."""

    _connection: Connection

    def transactions(self, state: str | None = None, min_age_ms: Duration | None = None) -> Listing:
        """Open and prepared transactions, and those that ended since a log checkpoint; by state and age if asked.

        The checkpoint is the one from which this client reads the namespace: what ended before it is not listed, but
        :meth:`transaction` finds it for at least 7 days after its end.

        What the log shows: a transaction is there from its first ``flush()``, its ``prepare()``, or its first
        acknowledgement on a Shared subscription, not from ``begin``.

        Raises:
            InvalidInputError: an unknown state, or an age that is no whole number of milliseconds.
        """
        self._connection.follower.refresh()
        return transaction_admin.transactions(self._connection, state, min_age_ms)

    def transaction(self, txn_id: TxnId | str) -> TransactionInfo:
        """What the log shows of a transaction. UNKNOWN is no negative answer: :meth:`abort` gives a definite one.

        One that has begun is UNKNOWN to other processes until its first entry: ``begin`` writes nothing.

        Raises:
            InvalidInputError: this is no TxnID, or one of another namespace.
        """
        return transaction_admin.transaction(self._connection, txn_id)

    def abort(
        self, txn_id: TxnId | str, *, by: str | None = None, why: str | None = None, force: bool = False
    ) -> TransactionInfo:
        """Make a transaction's outcome definite: aborted for ever, or what it truly was.

        Recovery calls it before it repeats work whose commit has an unknown outcome. A prepared transaction needs
        ``force``. A TxnID that is reserved for a writer, and was not given out yet, is aborted as well: then nobody
        ever gets it.

        Raises:
            InvalidTransactionState: it is PREPARED, and ``force`` is False.
            InvalidInputError: this is no TxnID, but for example a number alone; or the namespace never gave it to a
                writer.
            TransactionNotFound: it ended so long ago that its outcome was forgotten.
            OutcomeUnknown: the store did not answer; make the same call again.
        """
        return transaction_admin.abort(self._connection, txn_id, by, why, force=truth("force", force))

    def complete(self, token: TxnId | str, *, commit: bool) -> Committed | None:
        """Commit or abort a prepared transaction, from any process; nothing fences this call.

        Args:
            token: what ``txn.prepare()`` gave, or the ``txn_id`` of ``ns.transactions(state="PREPARED")``.
            commit: the decision of the outside system.

        Returns what a commit gives; None for an abort. The same decision again gives the same answer, whoever made it
        first: also of a transaction that ended without having been prepared, which the log does not remember.

        Raises:
            InvalidTransactionState: the opposite decision came first, or the transaction is OPEN: it was not prepared.
            TransactionNotFound: the log shows no such transaction.
            OutcomeUnknown: the store did not answer; call it again with the same decision.
        """
        return transaction_admin.complete(self._connection, token, commit=commit)

    def fence(self, producer: str, by: str = "admin") -> int:
        """Fence a producer name: its open transactions are aborted, and its owner is refused from now on.

        Raises:
            InvalidInputError: nobody started it; with the nearest name.
            OutcomeUnknown: look for a newer producer with this name, which a second call would stop as well.
        """
        return producers.fence(self._connection, producer, by)

    def forget_app(self, txn_app_id: str) -> None:
        """Forget the last ``txn_version`` of an application id; the next transaction may bring any.

        Raises:
            InvalidInputError: the log knows none of this id, as where it was forgotten before; with the nearest id.
            OutcomeUnknown: look at ``ns.last_txn_version(txn_app_id)`` before you make the call again.
        """
        producers.forget_app(self._connection, txn_app_id)

    def enable(self, feature: str) -> None:
        """Enable a feature of the format, for ever: older versions of txnlog cannot read or write the log afterwards.

        A newer txnlog never does so by itself. Raises UnsupportedFeature for one that this txnlog does not know.
        """
        features.enable(self._connection, feature)

    @in_parts()
    def checkpoint(self) -> int:
        """Make a checkpoint now, in this thread; returns its version. Clients make them by themselves when due.

        It is the way to a whole one where an older one was lost or damaged, as a warning reported: everything that
        the new one takes over from older ones is read first. Where headers lead to an unusable one, an entry without
        actions is appended, which names the new one.

        Raises:
            ReadOnly: the handle was opened with ``mode="r"``.
            StoreError, OutcomeUnknown: call it again, any time; no commit depends on it.
            CorruptionError: an entry is missing or damaged.
        """
        return self._connection.session.checkpoint()

    @in_parts()
    def vacuum(
        self,
        *,
        retain_ms: Duration = DEFAULT_RETAIN_MS,
        grace_ms: Duration = DEFAULT_GRACE_MS,
        allow_short_retention: bool = False,
        dry_run: bool = False,
        before: Before | None = None,
        progress: vacuum.Progress | None = None,
    ) -> Vacuumed:
        """Delete files that nobody can need: of aborted transactions, of writers that died, replaced by others.

        Also of dropped topics, with their published Delta tables, once no readable version shows them.

        Args:
            retain_ms: versions younger than this stay readable: milliseconds, or ``"7d"``, ``"36h"``. Older ones do as
                long as no file of theirs is deleted. Less than an hour is refused without ``allow_short_retention``.
            grace_ms: how long a writer may be silent; an hour at least. The unused numbers of one that is silent for
                longer are withdrawn: work that it did not log is refused (``CoordinatorFenced``). What was replaced,
                aborted or dropped stays for this time, too, if it is longer than ``retain_ms``.
            allow_short_retention: a ``retain_ms`` below an hour is meant.
            dry_run: only count. Works with mode="r" too, where the store's clock is not looked at.
            before: called with what becomes unreadable, before anything is written or deleted, where anything does.
                What it raises ends the vacuum. It names the topics with a Delta table that may need what is deleted
                and is not published after commits: publish those first.
            progress: called with the topic at work, the files looked at and those deleted so far.

        What open and prepared transactions have in the log stays, as do the log and its checkpoints. Signs of life of
        consumers that are gone are deleted too, and not counted, as are temporary files in which nobody has written for
        the grace. A vacuum that was interrupted is simply called again.

        Raises:
            InvalidInputError: a time that makes no sense; nothing was deleted.
            OutcomeUnknown: the store did not say whether the announcement is in the log; nothing was deleted.
            StoreError: a listing or a deletion failed; what was deleted before is gone, call it again.
        """
        return vacuum.vacuum(
            self._connection,
            retain_ms,
            grace_ms,
            allow_short_retention=truth("allow_short_retention", allow_short_retention),
            dry_run=truth("dry_run", dry_run),
            before=callback("before", before),
            progress=callback("progress", progress),
        )

    def delete_records(
        self, topic: str, before: Position, *, allow_unacknowledged: bool = False, dry_run: bool = False
    ) -> DeletedRecords:
        """Delete the messages of a topic before a position, for ever and at every version. Offsets stay as they are.

        Readers do not see them from the entry of this call on. Their files stay until an :meth:`optimize` takes them
        off the log, and a :meth:`vacuum` deletes them; :meth:`maintain` does both. A Delta table of the topic shows a
        file as long as some message in it can be read.

        Args:
            topic: the topic.
            before: ``{partition: offset}`` (partitions that are not named stay as they are), a time with a zone
                (messages of entries up to it), or ``"latest"``: all that are there.
            allow_unacknowledged: also what a subscription has not acknowledged yet; it goes on behind it.
            dry_run: only count. Works with mode="r" too.

        Raises:
            InvalidInputError: a subscription has not acknowledged all of it; nothing was deleted.
            OffsetOutOfRange: the partition does not exist, or ends before the offset; nothing was deleted.
            TopicNotFound: also where it is dropped meanwhile.
            OutcomeUnknown: call it again.
        """
        return retention.delete_records(
            self._connection,
            topic,
            before,
            allow_unacknowledged=truth("allow_unacknowledged", allow_unacknowledged),
            dry_run=truth("dry_run", dry_run),
        )

    def retention(self, topic: str | None = None) -> Listing:
        """What the next :meth:`maintain` deletes of each topic, and for which subscriptions messages are kept.

        Args:
            topic: one topic; by default all.

        Raises:
            TopicNotFound: with the nearest name.
        """
        return retention.listing(self._connection, topic)

    @in_parts()
    def optimize(
        self,
        topic: str,
        target_size_bytes: int = MERGE_TARGET_BYTES,
        *,
        max_bytes: int | None = None,
        dry_run: bool = False,
        progress: optimizer.Progress | None = None,
    ) -> Optimized:
        """Merge small segments of a topic into big ones: fewer files, one partition each. No row changes in any way.

        It runs at the same time as writers and readers, and blocks none of them; any number of them may run at once.
        Readers of older versions go on with the old files, which vacuum deletes when their time has come.

        Args:
            topic: the topic.
            target_size_bytes: about the size of a file at most; files of more than half of it are left alone. What is
                merged at once is in memory, some of it decoded: a few times as much.
            max_bytes: read no more than this, but merge once at least: what is left is done by the next call.
            dry_run: only say what it would begin with. Works with mode="r" too.
            progress: called with the topic, the segments merged so far, and those to be merged as far as is known.

        Each merge is an entry of its own, so an optimize that is interrupted is simply called again. What comes while
        it runs is left for the next one. Segments that hold several partitions are merged where that leaves half of
        the files, or fewer.

        Raises:
            TopicNotFound: also where it is dropped meanwhile.
            CorruptionError: a file is missing or damaged; what was merged before stays merged.
            OutcomeUnknown, StoreError: call it again.
        """
        only_foreseen = truth("dry_run", dry_run)
        work = optimizer.begin(
            self._connection,
            topic,
            target_size_bytes,
            max_bytes=max_bytes,
            dry_run=only_foreseen,
            progress=callback("progress", progress),
        )
        return work.foresee() if only_foreseen else work.run()

    @in_parts()
    def compact(self, topic: str, *, max_bytes: int | None = None, dry_run: bool = False) -> Compacted:
        """Compact a topic by its key, now: of each key the newest message stays, in each partition; the others go.

        :meth:`maintain` does so by itself once half of the bytes of a topic with ``cleanup_policy="compact"`` are new.
        Offsets stay as they are: those of messages that are gone are holes, which readers pass over. Versions from
        before show all messages until a :meth:`vacuum` deletes their files.

        Args:
            topic: the topic.
            max_bytes: read no more than about this, but look once at what is new at least, up to some millions of
                messages: what is left is done by the next call, and by :meth:`maintain`.
            dry_run: only say what would go first. Works with mode="r" too.

        What goes in which order, and which messages stay in any case, is as :meth:`create_topic` says of its settings.
        A call that was interrupted is simply made again. Settings that are altered meanwhile count at once: what was
        decided by others, and is not written yet, is decided again.

        Raises:
            InvalidInputError: the topic is not to be compacted; nothing was written.
            TopicNotFound: also where it is dropped meanwhile.
            CorruptionError: a file is missing or damaged; what was done before stays done.
            OutcomeUnknown, StoreError: call it again.
        """
        only_foreseen = truth("dry_run", dry_run)
        work = compaction.begin(self._connection, topic, max_bytes=max_bytes, dry_run=only_foreseen)
        return work.foresee() if only_foreseen else work.run()

    @in_parts()
    def erase(self, topic: str, where: Any, *, dry_run: bool = False) -> Erased:
        """Erase the rows of a topic that satisfy a condition, as the law may ask: out of every file, and every version.

        The newest version is without them when the call returns: the files that have some are written again, in the
        topic and in those that take its dead letters. Offsets stay as they are; those of erased rows are holes. Files
        that only older versions, or transactions that did not commit, have are deleted by a :meth:`vacuum`, once its
        times have passed: call this again behind it. ``is_complete`` of the result says that no file is left with such
        a row. A backup is another copy, which this does not reach.

        Args:
            topic: the topic.
            where: a pyarrow expression over its columns by their names, such as ``pc.field("customer") == "C-17"``.
                Rows for which it is null stay.
            dry_run: only say what would go, and where else such rows are. Works with mode="r" too.

        The namespace needs the feature ``holes`` (:meth:`enable`). Every file of the topic is read. Entries of the log
        are never changed: they hold the least and greatest values of columns, unless the topic was created with
        ``statistics="off"``. ``bounds`` of the result names the columns of which such a value is one of an erased row.

        Raises:
            InvalidInputError: the condition does not fit the columns, names one that older rows do not have, or goes by
                places of columns; nothing was written.
            UnsupportedFeature: the namespace lacks the feature; nothing was written.
            TopicNotFound: also where it is dropped meanwhile.
            CorruptionError: a file is missing or damaged; what was done before stays done.
            OutcomeUnknown, StoreError: call it again.
        """
        return erasure.erase(self._connection, topic, where, dry_run=truth("dry_run", dry_run))

    @in_parts()
    def maintain(
        self,
        *,
        target_size_bytes: int = MERGE_TARGET_BYTES,
        max_bytes: int = MAINTAIN_BYTES,
        retain_ms: Duration = DEFAULT_RETAIN_MS,
        grace_ms: Duration = DEFAULT_GRACE_MS,
        allow_short_retention: bool = False,
        before: Before | None = None,
        progress: maintain.Progress | None = None,
    ) -> Maintained:
        """Do what a namespace needs from time to time: a checkpoint, retention, compaction, optimize and vacuum.

        Retention deletes messages as the settings of their topics say (``retention_ms``, ``retention_bytes``), and no
        others: see :meth:`create_topic`, and :meth:`retention` for what it will delete.

        Before the vacuum the Delta tables of the topics with ``delta="auto"`` are brought up to date, and of no others:
        a table of a ``"manual"`` topic shows what it was published with, also a file that vacuum deletes, until
        ``catalog``'s ``publish`` brings it up to date. Publish it once a week at least (``retain_ms``);
        ``vacuumed.unreadable`` of the result, and before that ``before``, name the topics whose tables may need it.

        Made to be called every few minutes or once a day, by anybody, also by several at once; a call that was
        interrupted is simply made again.

        Args:
            target_size_bytes: as of :meth:`optimize`.
            max_bytes: read no more than this to merge it, of all topics together: what is left is for the next call.
            retain_ms: as of :meth:`vacuum`.
            grace_ms: as of :meth:`vacuum`.
            allow_short_retention: as of :meth:`vacuum`.
            before: as of :meth:`vacuum`.
            progress: called with ``"optimize"`` or ``"vacuum"``, and what progress of those is called with.

        A topic with a damaged file, or whose Delta table cannot be published, is passed over and named in ``failures``.

        Raises:
            InvalidInputError: a value that makes no sense; nothing was done.
            OutcomeUnknown, StoreError: call it again; what was done before stays done.
        """
        return maintain.maintain(
            self._connection,
            target_size_bytes=target_size_bytes,
            max_bytes=max_bytes,
            retain_ms=retain_ms,
            grace_ms=grace_ms,
            allow_short_retention=truth("allow_short_retention", allow_short_retention),
            before=callback("before", before),
            progress=callback("progress", progress),
        )

    @only_looking()
    def metrics(self, *, partitions: bool = False) -> str:
        """Metrics of the namespace and of this handle as OpenMetrics text, which Prometheus and others read.

        The comments in the text say what each value means, and since when a counter counts. Names begin with
        ``txnlog_``, those of what this handle did with ``txnlog_handle_``; every value has the label ``namespace``.
        It takes one request to the store where nothing was appended, and reads a checkpoint where there is a newer one.

        Args:
            partitions: the lag of subscriptions also by partition: as many values more as they have partitions.

        Raises:
            InvalidInputError: ``partitions`` is not True or False.
            InvalidTransactionState: the handle was closed.
        """
        return metrics.metrics(self._connection, partitions=truth("partitions", partitions))

    @only_looking()
    def table(
        self,
        name: str,
        *,
        limit: int | None = None,
        version: int | None = None,
        timestamp: datetime.datetime | str | int | None = None,
    ) -> pa.Table:
        """What the namespace consists of, as an Arrow table whose columns are fixed; the reference lists them.

        Args:
            name: ``"transactions"`` (as :meth:`transactions`), ``"segments"`` (files of the topics that the log names),
                ``"subscriptions"`` (a row a partition), ``"producers"``, ``"history"`` (a row an entry, newest first)
                or ``"files"`` (a row an object of the namespace's folder: lists all of it).
            limit: at most so many rows, the first ones. Left out, all; of the history the newest 1,000, since each
                entry is a request.
            version: the table as it was at this version: of ``"history"``, the entries up to it, and of
                ``"segments"``, the files as they stood then. The others show what is there now, and take none.
            timestamp: the same, at the newest version of a time; see :meth:`snapshot`.

        Raises:
            InvalidInputError: there is no such table, with the nearest name; a limit below 0; or a version, or a time,
                of a table that has none.
            VersionNotAvailable: naming the range that can be read.
        """
        return tables.table(self._connection, name, limit, version, timestamp)

    @only_looking()
    def history(self, limit: int = 20) -> Listing:
        """The newest entries of the log, newest first: when, by whom, how many actions of which kind, and which rows.

        Each entry is a request. Rows of entries that are older than the checkpoint are looked up in it.

        Raises:
            InvalidInputError: a limit that is no whole number, or below 0.
        """
        return history.history(self._connection, limit)

    @only_looking()
    def doctor(self, *, probe: bool = False) -> DoctorReport:
        """Look at the namespace, its store and this machine for what somebody should do. It changes nothing.

        It looks at the store and the test of it, the rights and the clock of this client, the packages that are
        installed, the format, the checkpoint, the limits, transactions that nobody ends, subscriptions that nobody
        reads, and topics with many small files, with messages that retention should have deleted, or with an old Delta
        table. Each finding names the call, or the command, that settles it. :meth:`fsck` looks for damage instead.

        Args:
            probe: also try the rights to write and to delete, and compare the clock with the store's. That puts an
                object of 4 KiB below ``_probe/``, as a client puts one before its first append, and one below
                ``_hints/``, and deletes both. Without the right to delete, the first one stays.

        Raises:
            InvalidInputError: ``probe`` is not True or False.
            ReadOnly: ``probe`` with a handle of ``mode="r"``.
        """
        return examine(self._connection, probe=truth("probe", probe))

    @only_looking()
    def fsck(self, level: CheckLevel = "quick", *, progress: findings.Progress | None = None) -> FsckReport:
        """Check the namespace at its newest version. It reads and lists only, so it works with mode="r".

        Args:
            level: ``"quick"`` looks for missing entries, and for missing checkpoints and segments and such of another
                size; it reads the newest entries and checkpoint. ``"full"`` also reads every entry, checkpoint and
                segment, and compares digests and checksums, and checkpoints with the entries. ``"deep"`` also decodes
                all rows, and compares them with what the log says: counts, partitions, statistics, and of each message
                its transaction, version and time.
            progress: called with the kind of objects at work, those looked at so far, and those that are known.

        What others append, replace and vacuum meanwhile is no finding. Published Delta tables, the log of the root,
        heartbeats and proposals are not checked. A namespace that cannot be opened is checked by the command ``fsck``.

        Raises:
            InvalidInputError: an unknown level.
            NamespaceNotFound: its folder was removed or moved.
            StoreError, RetriableError: the end of the log could not be read. Everything else that could not be read is
                a finding, ``unchecked``.
        """
        connection = self._connection
        return check.check(connection.store, connection.runtime, level, progress=callback("progress", progress))

    @in_parts()
    def repair(
        self,
        source: str | os.PathLike[str] | None = None,
        *,
        dry_run: bool = False,
        source_storage_options: Mapping[str, Any] | None = None,
        progress: findings.Progress | None = None,
    ) -> Repaired:
        """Put back what is missing or damaged, as far as it is certain what was there; nothing is ever guessed.

        From the log follow: checkpoints, which are made again; published Delta tables; and heartbeats of consumers and
        proposals, which are removed where they are damaged, since their owners write the next ones. From a copy come
        entries, as far as the next entry names them, segments with the size and checksum in the log, and parts of
        checkpoints. So the newest entry is never put back. A namespace that cannot be opened is repaired by the command
        ``repair``.

        Args:
            source: a copy of the namespace, a path or a URL: the folder of a :func:`txnlog.backup`, or any other. Only
                what is proven to be what was there comes back from it. Left out, nothing comes from elsewhere.
            dry_run: say what would be done and what would be left, and write nothing. Works with mode="r" too.
            source_storage_options: fsspec's options for the source.
            progress: called with the kind of objects at work, those done so far, and those that are known.

        Writers and readers may go on meanwhile. Entries and manifests of checkpoints that are replaced are kept below
        ``_log/replaced/``. A call that was interrupted is simply made again.

        Raises:
            InvalidInputError: the source is this namespace itself, or no copy of it; nothing was written.
            ReadOnly: the handle has mode="r", and ``dry_run`` is False.
            NamespaceNotFound: its folder was removed or moved.
            StoreError, RetriableError: the end of the log, or the source, could not be read. An object that could not
                be written is in the result, as ``unchecked``.
        """
        connection = self._connection
        only_foreseen = truth("dry_run", dry_run)
        if not only_foreseen:
            connection.check_writes()
        shown = callback("progress", progress)
        with opened_copy(source, source_storage_options) as copy:
            return repairing.repair(connection.store, connection.runtime, copy, dry_run=only_foreseen, progress=shown)


__all__ = ["Administration"]
