"""One transaction over many DataFrames of any schemas: ``spark_ext.transaction``."""

from __future__ import annotations

import contextlib
import inspect
import threading
from collections.abc import Callable, Mapping
from types import TracebackType
from typing import TYPE_CHECKING, Any, TypeVar

from spark_ext.delta.idempotence import of_app
from spark_ext.support import spark_errors
from spark_ext.support.namespace_cache import target_of
from spark_ext.write import write_jobs
from spark_ext.write.frame_jobs import FrameJob, frame_job
from txnlog.api.internals import check_open, check_truncatable, connection_of, discard, leave, truncate
from txnlog.api.writing import begin_transaction
from txnlog.client.truncation import Wanted
from txnlog.common.names import parse_topic_name
from txnlog.common.validation import shown, truth, type_of
from txnlog.errors import (
    Durable,
    InvalidInputError,
    InvalidTransactionState,
    TransactionHasFailedOperation,
    TxnLogError,
)
from txnlog.format.actions import Segment
from txnlog.log.transaction_commands import Skipped
from txnlog.replies import Replying, copy_of, in_parts, note, note_written, notes_of, reworded

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from spark_ext.delta.commit_arbiter import DeltaDecision
    from spark_ext.delta.idempotence import Identity
    from txnlog.api.messages import Messages
    from txnlog.api.namespace import Namespace
    from txnlog.api.transaction import Transaction
    from txnlog.common.ids import TxnId
    from txnlog.results import Committed


class DataFrameTransaction:
    """A transaction for writing DataFrames, inside of its ``with`` block. Thread-safe.

    Nothing of it is visible before the commit, and all of it at one version afterwards. It has no deadline while its
    jobs run: it is in the log only from the commit on, or from ``flush()``, or from an acknowledgement of messages of a
    Shared subscription, which is logged at once. After a failed job it can only be aborted; a call that is refused
    before its job has no effect.

    Attributes:
        result: what the commit returned, as :class:`txnlog.Committed`; None before.
    """

    def __init__(
        self,
        ns: Namespace,
        txn: Transaction,
        storage: str,
        skipped: Skipped | None = None,
        identity: Identity | None = None,
        batch: str | None = None,
        complete_since: int | None = None,
    ) -> None:
        self._ns = ns
        self._txn = txn
        self._storage = storage
        self._skipped = skipped
        self._lock = threading.Lock()
        self._segments: list[Segment] = []
        self._written: dict[str, int] = {}
        self._begun: set[str] = set()
        """Topics whose rows a job writes, or has written."""
        self._entered = False
        self._failed: BaseException | None = None
        self._elsewhere: dict[str, tuple[str, Callable[[], None] | None]] = {}
        self._decide: Callable[[Transaction], Committed] | None = None
        self._identity = identity
        """The identity of this work in other systems, by which a repetition is recognized; None for none."""
        self._batch = batch
        """What a handler is to write in it, as errors name it; None for the transaction of a block."""
        self._complete_since = complete_since
        """Of a query in the mode ``complete`` the version of its last batch, 0 before the first; None for all else."""
        self.result: Committed | None = None

    def __repr__(self) -> str:
        return f"DataFrameTransaction({self.id}, {self.state})"

    @property
    def id(self) -> TxnId:
        """The TxnID: ``ns.transaction(id)`` returns its outcome after a crash, and ``ns.abort(id)`` aborts it."""
        return self._txn.id

    @property
    def state(self) -> str:
        """OPEN, COMMITTED or ABORTED; if it was skipped, COMMITTED from the end of the block on, like its ``result``.

        PREPARED while another system decides, and as long as its decision is unknown here.
        """
        return "COMMITTED" if self.result is not None else self._txn.state

    @property
    def skipped(self) -> bool:
        """Whether this ``txn_version`` (or a later one) of the app was committed before: then nothing is written."""
        return self._skipped is not None

    @property
    def rows(self) -> Mapping[str, int]:
        """Rows written so far, by topic."""
        with self._lock:
            return dict(self._written)

    def write(self, df: DataFrame, topic: str, mode: str | None = None, *, allow_unacknowledged: bool = False) -> int:
        """Write a DataFrame's rows to a topic, in this transaction; runs a Spark job now. Returns the rows.

        Args:
            df: the rows.
            topic: a topic of the namespace.
            mode: ``"append"``; or ``"overwrite"``: with the commit all earlier messages of the topic are gone, as of
                :meth:`txnlog.api.transaction.Transaction.truncate`, so that it has these rows, and what this
                transaction appends to it afterwards. By default ``"append"``, but for the handler of a query with
                ``output_mode="complete"``.
            allow_unacknowledged: with ``"overwrite"``, also where a subscription has not acknowledged all of them.

        Raises:
            InvalidInputError: ``df`` is no DataFrame, or a stream; ``mode`` none of these; what is overwritten was
                written before in this transaction, or a subscription has not acknowledged all of it; or, of a query
                with ``output_mode="complete"``, somebody else wrote to the topic since the query's last batch.
            UnsupportedFeature: ``"overwrite"`` needs the feature ``holes``.
            SchemaMismatch: naming the column, before a job runs, or for a null that a task finds.
            TopicNotFound: with the nearest name.
            TransactionHasFailedOperation: the job of an earlier call failed; only the abort is left.
            ProducerFenced, TransactionTimedOut, TransactionAborted, InvalidTransactionState: the transaction has
                ended, perhaps while the job ran: its rows are not in it.
            Exception: what Spark raises if the job fails. Its rows are not in the transaction, which is aborted at the
                end of its block even if the exception was caught.
        """
        truth("allow_unacknowledged", allow_unacknowledged)
        with Replying(self._advising_the_handler):
            return self._write(df, topic, self._checked_mode(mode), allow_unacknowledged=allow_unacknowledged)

    def _checked_mode(self, mode: object) -> str:
        if mode is None:
            return "append" if self._complete_since is None else "overwrite"
        if mode not in ("append", "overwrite"):
            raise InvalidInputError(f"mode is 'append' or 'overwrite', not {shown(mode)}", advice="pass one of them")
        return str(mode)

    def _write(self, df: DataFrame, topic: str, mode: str, *, allow_unacknowledged: bool) -> int:
        self._check_usable()
        if self._skipped is not None:
            return 0
        if not hasattr(df, "mapInArrow"):
            raise no_frame("write", df, "call write(df, topic); spark.createDataFrame(...) makes a DataFrame of rows")
        if getattr(df, "isStreaming", False):
            raise InvalidInputError(
                "write takes a batch, and this DataFrame is a stream",
                advice="use spark_ext.write_stream, which calls a handler with each batch",
            )
        check_open(self._txn)
        connection_of(self._ns).follower.refresh()  # the topic may have been replaced since the transaction began
        planned = write_jobs.planned(self._ns, parse_topic_name(topic), df.schema)
        wanted = Wanted(allow_unacknowledged, self._complete_since or None)
        if mode == "overwrite":
            check_truncatable(self._txn, topic, wanted)
        spec = planned.spec(self._ns, self._storage)
        assert planned.record is not None, "a topic was named"
        job = frame_job(df, planned.record, spec)
        self._begin_write(topic, overwrites=mode == "overwrite")
        try:
            segments = self._run(job)
            rows = sum(item.rows for item in segments)
            with self._lock:
                check_open(self._txn)  # it may have ended while the job ran, without these rows
                if mode == "overwrite":
                    write_jobs.check_there(
                        self._ns, planned.record.id, "its rows were written", advice="begin a new transaction"
                    )
                    truncate(self._txn, topic, wanted)
                self._segments.extend(segments)
                self._written[topic] = self._written.get(topic, 0) + rows
        except BaseException as error:  # also an interrupt after the job: the caller then does not know of the rows
            self._note_failed(error)
            raise
        return rows

    def _begin_write(self, topic: str, *, overwrites: bool) -> None:
        """Note that a job writes to a topic, whose rows would stay where the topic is overwritten after that."""
        with self._lock:
            if overwrites and topic in self._begun:
                raise InvalidInputError(
                    f"the topic {topic!r} was written to before in the transaction {self.id}, and its rows would stay",
                    advice="overwrite it first, or write one DataFrame: first.unionByName(second)",
                )
            self._begun.add(topic)

    def _note_failed(self, error: BaseException) -> None:
        """Note that rows are missing, so that it cannot commit without them. Has no effect once it has ended."""
        with self._lock, contextlib.suppress(TxnLogError):
            check_open(self._txn)
            self._failed = self._failed or copy_of(error)

    def _run(self, job: FrameJob) -> list[Segment]:
        """The files that a job wrote."""
        with self._lock:
            unnamed = [self._txn.id.number, *(item.segment for item in self._segments)]
        written = job.run(self._ns, unnamed)
        return write_jobs.segments_of(written, job.spec.numbers, self._txn.id.number)

    def acknowledge(self, messages: Messages, *, cumulative: bool = False) -> None:
        """Acknowledge received messages if this transaction commits.

        See :meth:`txnlog.api.transaction.Transaction.acknowledge`.
        """
        self._check_usable()
        if self._skipped is None:
            with Replying(self._advising_the_handler):
                self._txn.acknowledge(messages, cumulative=cumulative)

    @in_parts()
    def flush(self) -> None:
        """Make the work so far durable and pending: from now on the log has the transaction, with its deadline.

        Many files take several entries. A repeated call continues with the rest, and writes nothing twice. If the
        transaction is skipped, it does nothing. See also :meth:`txnlog.api.transaction.Transaction.flush`.

        Raises:
            TransactionHasFailedOperation: the job of a write failed; only the abort is left.
            InvalidTransactionState: it is used outside of its block, or has ended.
            OutcomeUnknown: the log may show the work, or a part of it; flush() again, or the commit, brings the rest.
        """
        self._check_usable()
        if self._skipped is None:
            with Replying(self._advising_the_handler), self._lock:
                write_jobs.add_segments(self._txn, self._segments)
                self._txn.flush()

    @in_parts()
    def commit(self) -> Committed:
        """Commit; returns once everything is visible. Called at the end of the block.

        Raises:
            TransactionHasFailedOperation: the job of a write failed; the transaction is aborted now.
            TransactionTimedOut, TransactionAborted, ProducerFenced, CoordinatorFenced: it has ended without a commit.
            TransactionConflict, ConsumerFenced, OutOfOrderSequence: the log refused its work; it is aborted now.
            LimitExceeded, StoreError: nothing was logged.
            OutcomeUnknown: the store did not answer; commit() again, or ns.abort(txn.id), makes it definite.
            Exception: what ``spark_ext.write_delta`` raised; nothing was committed.
        """
        try:
            self._check_usable()
        except TransactionHasFailedOperation:
            discard(self._txn)
            raise
        if self._skipped is not None:
            self.result = connection_of(self._ns).committed(self._skipped)
        else:
            self._work_elsewhere()
            try:
                with self._lock:
                    write_jobs.add_segments(self._txn, self._segments)
                    self.result = self._txn.commit() if self._decide is None else self._decide(self._txn)
            except BaseException as error:
                self._note_elsewhere(error)
                raise
        return self.result

    def abort(self) -> None:
        """End without effect, as the block does by itself when it raises; repeated it is fine.

        The files that its jobs wrote stay until a vacuum, and no reader sees them. One that is skipped does nothing.

        Raises:
            InvalidTransactionState: it was committed, or it is PREPARED and not decided.
            OutcomeUnknown: the store did not answer; abort() again, or ns.abort(txn.id), makes it definite.
        """
        if self._skipped is None:
            self._txn.abort()

    def _before_commit(self, where: str, key: str, work: Callable[[], None]) -> None:
        """Do work once before the commit. If it raises, the transaction is aborted, and the commit raises that error.

        Raises InvalidInputError for a second work with the same key, which identifies its place.
        """
        self._check_usable()
        with Replying(self._advising_the_handler):
            check_open(self._txn)
        with self._lock:
            if key in self._elsewhere:
                raise _twice(where, self.id)
            self._elsewhere[key] = (where, work)

    def _decide_by(self, decide: Callable[[Transaction], Committed]) -> None:
        """Let another system decide at the commit: ``decide`` prepares the transaction, and completes it."""
        self._check_usable()
        check_open(self._txn)
        with self._lock:
            if self._decide is not None:
                raise _twice("deciding table", self.id)
            self._decide = decide

    def _work_elsewhere(self) -> None:
        """Do the work of ``_before_commit`` now, each once. The commit calls this as well.

        Raises what the work raises, after aborting the transaction. Does nothing after a failed write, which it raises.
        """
        self._check_usable()
        for key, (where, work) in self._elsewhere.items():
            if work is None:
                continue
            try:
                check_open(self._txn)
                work()
                note_written()
            except BaseException as error:
                self._note_elsewhere(error)
                self._note_failed(error)
                discard(self._txn)
                raise
            self._elsewhere[key] = (where, None)  # done, also for a repeated commit

    def _note_elsewhere(self, error: BaseException) -> None:
        """Add notes about the work done before the commit to its error, which may have them already."""
        for where in [where for where, work in self._elsewhere.values() if work is None]:
            text = f"the {where} has its rows; the same work again does not append them a second time"
            if text not in notes_of(error):
                note(error, text)

    def _check_usable(self) -> None:
        """Raise what forbids more work and a commit, for reasons that the transaction itself does not know."""
        if not self._entered:
            raise InvalidTransactionState(
                f"the transaction {self.id} is used outside of its with block, whose end would commit it",
                advice="write `with spark_ext.transaction(...) as txn:`, and use txn inside",
            )
        if self._failed is not None:
            raise TransactionHasFailedOperation(
                f"a write of the transaction {self.id} failed: {spark_errors.in_a_line(self._failed)[:300]}"
            ) from copy_of(self._failed)

    def _check_handled(self) -> None:
        """Raise how the transaction ended if it was aborted while a handler had it: the batch has no other one."""
        self._check_usable()
        if self._txn.state == "ABORTED":
            with Replying(self._advising_the_handler):
                check_open(self._txn)

    def _advising_the_handler(self, error: TxnLogError) -> TxnLogError:
        """Where a handler ended its transaction itself: what that means for the batch, and what to do instead."""
        if self._batch is None or not isinstance(error, InvalidTransactionState):
            return error
        match self._txn.state:
            case "ABORTED":
                return reworded(
                    error,
                    message=f"the handler aborted the transaction of {self._batch}, of which nothing is committed",
                    advice="do not abort it in the handler: raise an error to stop; or return without writing, and the "
                    "batch counts as processed",
                )
            case "COMMITTED":
                return reworded(
                    error,
                    message=f"the transaction of {self._batch} is committed: nothing can be added to it any more",
                    advice="leave txn.commit() out of the handler, whose transaction is committed when it returns; or "
                    "call it last",
                    durable=Durable.MAYBE,
                )
        return error

    def __enter__(self) -> DataFrameTransaction:
        if self._entered:
            raise InvalidTransactionState(
                f"the transaction {self.id} had its with block already",
                advice="begin a new one with spark_ext.transaction(...)",
            )
        self._entered = True
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is not None:
            leave(self._txn, error)
        elif self._skipped is None and self.state != "OPEN":
            self._txn.__exit__(None, None, None)  # raises if it was ended otherwise
        else:
            try:
                self.commit()
            except BaseException as refusal:
                leave(self._txn, refusal)  # releases its claims, also after Ctrl-C, unless the outcome is unknown
                raise


E = TypeVar("E", bound=Exception)

Handler = Callable[["DataFrame", DataFrameTransaction], object]
"""A function that a stream calls with each batch and its transaction."""


def behind_commit(error: E, text: str) -> E:
    """The error of a handler whose batch is committed: with a note of that, and never that nothing was written."""
    answer = reworded(error, durable=Durable.MAYBE) if isinstance(error, TxnLogError) else error
    note(answer, text)
    return answer


def check_handler(handler: object) -> None:
    """Raise InvalidInputError for a handler that cannot be called with a batch and its transaction."""
    advice = "pass handler=lambda batch, txn: txn.write(batch, topic)"
    if not callable(handler):
        raise InvalidInputError(
            f"the handler is a function of a batch and its transaction, not {shown(handler)}", advice=advice
        )
    try:
        # The signature of the decorator's function itself: it may pass more arguments to the wrapped one.
        signature = inspect.signature(handler, follow_wrapped=False)
    except (TypeError, ValueError):
        return  # not written in Python
    try:
        signature.bind(None, None)
    except TypeError as error:
        raise InvalidInputError(
            f"the handler cannot be called with a batch and its transaction: {error}", advice=advice
        ) from None


def no_frame(call: str, value: object, advice: str) -> InvalidInputError:
    """The error of a call that takes a Spark DataFrame and got something else."""
    own = callable(getattr(value, "to_spark", None))
    return InvalidInputError(
        f"{call} takes a Spark DataFrame, not {type_of(value)}", advice="use its to_spark()" if own else advice
    )


def _twice(where: str, txn: TxnId) -> InvalidInputError:
    return InvalidInputError(
        f"the {where} is written to twice in the transaction {txn}",
        advice="write one DataFrame: first.unionByName(second)",
    )


def transaction(
    spark: SparkSession,
    path: str,
    producer: str | None = None,
    txn_app_id: str | None = None,
    txn_version: int | None = None,
    *,
    decided_by: str | None = None,
    storage_options: Mapping[str, Any] | None = None,
) -> DataFrameTransaction:
    """Begin one transaction over any number of DataFrames, topics and acknowledgements.

    ::

        with spark_ext.transaction(spark, "/data/lake/sales", producer="nightly") as txn:
            txn.write(orders_df, "orders")
            txn.write(audit_df, "audit")
        txn.result.version  # shows both

    It commits at the end of the block, and raises there what the commit raises; an exception inside aborts it.

    Args:
        spark: the session whose settings ``spark.txnlog.storage.<name>`` are storage options if none are given.
        path: ROOT/NAMESPACE.
        producer: a name that fences its predecessor: an older transaction under it can no longer commit.
        txn_app_id: with ``txn_version`` it makes the batch idempotent: a version not above the last committed one of
            the app is skipped, which is known before any DataFrame runs (``txn.skipped``).
        txn_version: see ``txn_app_id``.
        decided_by: a Delta table, by path or name, whose commit decides: what :func:`spark_ext.write_delta` brings
            there and everything here take effect, or nothing does. Needs ``producer``, whose older transactions are
            settled first: those whose rows the table has are committed, and the others can never get there.
        storage_options: fsspec's, plain values only: executors make clients from them.

    Raises:
        NamespaceNotFound: the path is no namespace.
        InvalidInputError: the path names a topic; half of ``txn_app_id`` and ``txn_version``; ``decided_by`` without
            ``producer``, with ``txn_app_id``, or no Delta table of somebody else's.
        TransactionConflict: the table does not show how it decided about an older transaction.
        OutcomeUnknown, StoreError: the store did not answer, or refuses, where the producer's epoch or an older
            transaction was settled. Call it again: no transaction has begun.
    """
    if decided_by is not None and (producer is None or txn_app_id is not None):
        raise InvalidInputError(
            "decided_by goes with producer, and without txn_app_id", advice="name the producer: producer=..."
        )
    target = target_of(spark, path, storage_options, advice="name it in txn.write(df, topic)")
    ns = target.open()
    connection_of(ns).follower.refresh()
    skipped = connection_of(ns).committed_before(txn_app_id, txn_version)
    identity: Identity | None = None
    if txn_app_id is not None and txn_version is not None:
        identity = of_app(connection_of(ns), txn_app_id, txn_version)
    epoch = None
    if decided_by is not None and producer is not None:
        identity = decision = _decision(spark, ns, decided_by, producer)
        producer = decision.producer
        epoch = ns.producer(producer).epoch  # from here on no older owner can prepare
        decision.settle()
    elif producer is not None and skipped is None:
        epoch = ns.producer(producer).epoch
    txn = begin_transaction(
        connection_of(ns),
        None if skipped is not None else producer,
        epoch,
        timeout_ms=None,
        txn_app_id=txn_app_id,
        txn_version=txn_version,
        timed_from_log=True,
    )
    return DataFrameTransaction(ns, txn, target.storage, skipped, identity)


def _decision(spark: SparkSession, ns: Namespace, table: str, producer: str) -> DeltaDecision:
    from spark_ext.delta.commit_arbiter import DeltaDecision  # noqa: PLC0415 - a session without Delta needs neither
    from spark_ext.delta.delta_table import DeltaTable  # noqa: PLC0415

    return DeltaDecision(ns, DeltaTable(spark, table), producer)


__all__ = ["DataFrameTransaction", "Handler", "behind_commit", "check_handler", "no_frame", "transaction"]
