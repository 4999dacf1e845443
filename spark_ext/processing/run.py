"""One run of ``spark_ext.process``, which processes batch after batch, each until its outcome is known."""

from __future__ import annotations

import contextlib
import logging
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Final, Literal

import pyarrow as pa
from pyspark.errors import AnalysisException, PySparkException

from spark_ext.processing.batch_frames import format_frame, native_frame
from spark_ext.processing.batch_plan import Batch, End, count_left, offsets_text, plan_again, plan_batch
from spark_ext.processing.delta_batches import RepeatBatchError, WhatIsLeft, of_run
from spark_ext.processing.earlier_batches import what_is_left
from spark_ext.processing.ownership import Ownership, check_acknowledged
from spark_ext.processing.progress import progress_line
from spark_ext.processing.run_lag import RunLag
from spark_ext.processing.stop import interruptible
from spark_ext.read.scan import Scan, open_scan
from spark_ext.streaming.lag import TopicLag
from spark_ext.streaming.monitor import watched_run
from spark_ext.support import spark_errors
from spark_ext.write import write_jobs
from spark_ext.write.dataframe_transaction import DataFrameTransaction, Handler, behind_commit
from txnlog.api.internals import acknowledge_ranges, connection_of, discard, end_overdue, leave_outcome_open
from txnlog.client import dead_letters
from txnlog.common.pauses import Backoff
from txnlog.common.validation import shortened
from txnlog.errors import (
    AbortableError,
    CoordinatorFenced,
    CorruptionError,
    Durable,
    FencedError,
    InvalidInputError,
    InvalidTransactionState,
    OutcomeUnknown,
    RetriableError,
    StoreError,
    TransactionHasFailedOperation,
    TxnLogError,
    UnsupportedFeature,
)
from txnlog.replies import note, reworded

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from spark_ext.processing.stop import Stop
    from spark_ext.support.options import ReadOptions
    from txnlog.api.transaction import Transaction
    from txnlog.client.connection import Connection
    from txnlog.results import Committed

_logger: Final = logging.getLogger("txnlog.spark")

Stopped = Literal["caught_up", "asked", "signal"]

_KEPT_VERSIONS: Final = 10_000
"""The most versions that a run remembers: it may go on for years."""

_LOST_ATTEMPTS: Final = 5
"""Attempts at one batch whose transactions are aborted by others: more failures in a row have another cause."""

_COMMIT_ATTEMPTS: Final = 5
"""Attempts at one commit whose outcome is unknown; each includes several requests."""

_MOST_REASON: Final = 500
"""The most characters of an error in a dead letter: each dead letter of the batch contains it."""

_BACKOFF: Final = Backoff(100.0, 5_000.0)

_HANDLER_BACKOFF: Final = Backoff(1_000.0, 30_000.0)
"""Pauses before a failed handler is called again: a service that it uses may be down for some seconds."""


@dataclass(frozen=True, slots=True)
class Processed:
    """The result of a run.

    Attributes:
        batches: how many batches were committed.
        rows: how many rows they read.
        dead_letters: how many of these rows went to dead-letter topics.
        versions: the versions that committed the batches, the newest 10,000 of them.
        stopped: why the run ended: ``caught_up`` (all that existed at its start is processed), ``asked`` (by ``stop``)
            or ``signal`` (Ctrl-C, SIGTERM).
        lag: how far the run was behind in each topic at its end: what has come since its start, and what it left. Empty
            if that is unknown.
    """

    batches: int
    rows: int
    dead_letters: int
    versions: tuple[int, ...]
    stopped: Stopped
    lag: tuple[TopicLag, ...] = ()


@dataclass(frozen=True, slots=True)
class RunSettings:
    """The arguments of a run.

    Attributes:
        read: how its topics are read.
        storage: storage options as tasks get them.
        name: the run's name in log lines.
        handler: called with each batch.
        interval_ms: time between the beginnings of batches; None where the run ends once it caught up.
        to_dead_letters: whether messages on which the handler fails go to the dead-letter topic.
        attempts: how often the handler is called on a batch before that, or before the run stops.
        max_rows: the most messages of one batch.
        native: whether a batch is read by Spark's own scan or by the format.
    """

    read: ReadOptions
    storage: str
    name: str
    handler: Handler
    interval_ms: int | None
    to_dead_letters: bool
    attempts: int
    max_rows: int | None
    native: bool


class _HandlerFailedError(Exception):
    """The handler raised an error, and nothing of its batch is committed."""

    def __init__(self, error: Exception) -> None:
        self.error = error


class _FinalError(Exception):
    """An error that is raised to the caller, whatever ``on_error`` says."""

    def __init__(self, error: Exception) -> None:
        self.error = error


_NOT_THE_HANDLERS: Final = (
    AbortableError,
    RetriableError,
    FencedError,
    StoreError,
    CorruptionError,
    RepeatBatchError,
)
"""Errors that a handler's calls raise without any fault of the messages, which do not become dead letters for them."""


@dataclass(frozen=True, slots=True)
class _Try:
    """An attempt at a batch. ``reason`` is why its messages become dead letters; None where the handler is called.

    ``repeats`` says whether a Delta table has the rows of the batch already.
    """

    scan: Scan
    batch: Batch
    failures: int = 0
    lost: int = 0
    reason: str | None = None
    repeats: bool = False


class Run:
    """One run, from its takeover to its end. Used by one thread, once."""

    def __init__(
        self, spark: SparkSession, order: RunSettings, owned: tuple[Ownership, ...], connection: Connection, stop: Stop
    ) -> None:
        self._spark = spark
        self._order = order
        self._owned = owned
        self._lag = RunLag(connection, owned, order.name)
        self._runtime = connection.runtime
        self._stop = stop
        self._identity = of_run(connection, owned)
        self._batches = self._rows = self._dead_letters = 0
        self._versions: deque[int] = deque(maxlen=_KEPT_VERSIONS)

    def run(self, *, progress: bool) -> Processed:
        """Process batch after batch until there is a reason to end."""
        try:
            with (
                self._stop.listening(),
                interruptible(self._spark),
                watched_run(self._order.name, self._lag.now),
                progress_line(self._order.name, wanted=progress) as show,
            ):
                stopped = self._loop(show)
        except KeyboardInterrupt:
            if self._stop.asked != "signal":
                raise  # not from the second Ctrl-C, which aborts the batch
            stopped = "signal"
        lag = self._lag.known()
        return Processed(self._batches, self._rows, self._dead_letters, tuple(self._versions), stopped, lag)

    def _loop(self, show: Callable[[str], None]) -> Stopped:
        interval_ms = self._order.interval_ms
        until = End.of(self._look()) if interval_ms is None else None
        while True:
            began_ms = self._runtime.elapsed_ms()
            if (asked := self._stop.asked) is not None:
                return asked
            scan = self._look()
            batch = plan_batch(scan, self._owned, self._order.max_rows, until)
            committed = self._batches
            if batch is not None:
                self._finish(scan, batch)
            if self._batches > committed:
                self._lag.note(self._batches)
            left, pending = count_left(scan, self._owned, until or End.of(scan))
            show(f"{self._batches:,} batches, {self._rows:,} rows, {left:,} behind, version {scan.snapshot.version}")
            if until is not None and batch is None:
                if pending:
                    text = "%r: %d messages are pending in other transactions: if those are aborted, they come again"
                    _logger.warning(text, self._order.name, pending)
                return "caught_up"
            if interval_ms is not None:
                self._stop.wait(self._runtime, interval_ms - (self._runtime.elapsed_ms() - began_ms))

    def _look(self) -> Scan:
        """A scan of the newest version of the namespace. It takes two requests if nothing is new."""
        scan = open_scan(self._order.read, mode="rw")
        end_overdue(scan.namespace, [item.subscription for item in self._owned])
        return scan

    # --- one batch --------------------------------------------------------------------------------------------------

    def _finish(self, scan: Scan, batch: Batch) -> None:
        """Try until the batch is committed, or raise. Returns early where the run is to stop."""
        item: _Try | None = _Try(scan, batch)
        while item is not None:
            try:
                result = self._attempt(item)
            except _FinalError as final:
                raise final.error from final.error.__cause__
            except _HandlerFailedError as failed:
                item = self._after_failure(item, failed.error)
            except TransactionHasFailedOperation as error:  # the handler caught what its write raised
                item = self._after_failure(item, error)
            except RepeatBatchError as wanted:
                item = self._repeated(item, wanted)
            except (AbortableError, RetriableError, CoordinatorFenced) as error:
                item = self._after_loss(item, error)
            else:
                self._note(item, result)
                check_acknowledged(connection_of(item.scan.namespace), self._owned, result, str(item.batch))
                return

    def _after_failure(self, item: _Try, error: Exception) -> _Try | None:
        """The next attempt: the handler again, or dead letters. Raises the error if neither would help."""
        name, failures = self._order.name, item.failures + 1
        elsewhere = _cannot_read(error) or _is_the_programs(error)
        if failures < self._order.attempts and not elsewhere:
            _logger.warning("%r: the handler failed (%s)", name, item.batch, exc_info=error)
            asked = self._pause(_HANDLER_BACKOFF.after(failures))
            return None if asked else replace(item, failures=failures)
        if elsewhere or not self._order.to_dead_letters or not self._is_read(item):
            note(error, f"process {name!r}: nothing of its batch was committed ({item.batch})")
            raise error from error.__cause__
        left = self._identity.left(self._what_is_left(item.scan))
        if left is not None:
            raise InvalidInputError(
                f"the handler failed {failures} times on a batch whose rows the Delta table {shortened(left[0])} has "
                f"already, as its version {left[1]} notes: as dead letters its messages would be in both "
                f"({item.batch}): {spark_errors.in_a_line(error)}",
                advice="fix the handler, or the table that refuses its rows, and run again: the batch is repeated as "
                "it was, and the handler must write it to that table again, where nothing is appended for it",
                durable=Durable.MAYBE,
            ) from error
        text = "%r: the handler failed %d times, the batch goes to the dead letters (%s)"
        _logger.error(text, name, failures, item.batch, exc_info=error)
        return replace(item, failures=failures, lost=0, reason=_reason(error, failures))

    def _after_loss(self, item: _Try, error: TxnLogError) -> _Try | None:
        """The next attempt: the same batch, or the rest up to its end where others acknowledged a part of it."""
        lost = item.lost + 1
        if lost >= _LOST_ATTEMPTS:
            raise error
        _logger.info("%r: the batch is tried again after %s (%s)", self._order.name, error, item.batch)
        if self._pause(_BACKOFF.after(lost)):
            return None
        scan = self._look()
        again = plan_again(scan, self._owned, item.batch.offsets, item.batch.end) or plan_batch(
            scan, self._owned, self._order.max_rows, item.batch.end
        )
        if again is None:
            return None  # others acknowledged all of it
        if again.offsets != item.batch.offsets:
            return _Try(scan, again, lost=lost)
        return replace(item, scan=scan, batch=again, lost=lost)

    def _repeated(self, item: _Try, wanted: RepeatBatchError) -> _Try:
        """The batch that a Delta table has and that is not committed in the log; its rows are not appended again.

        Its dead letters are left out: they are never processed again.
        """
        scan = self._look()
        offsets = wanted.record.offsets
        batch = None if item.repeats else plan_again(scan, self._owned, offsets, wanted.end)
        if batch is None:
            raise InvalidInputError(
                f"{wanted}, and this batch cannot be repeated: its offsets were {offsets_text(offsets)}",
                advice="seek the subscription to their first offsets, but in no partition beyond its cursor, since "
                "messages that are passed over are lost: then the batch is repeated, and its rows stay as they are; or "
                "another table, which the handler writes before this one, has later rows",
            ) from wanted
        _logger.warning("%r: %s; it comes again (%s)", self._order.name, wanted, batch)
        return _Try(scan, batch, repeats=True)

    def _pause(self, pause_ms: float) -> bool:
        """Wait before the next attempt. Returns whether the run is to stop instead."""
        return self._stop.wait(self._runtime, self._runtime.spread(pause_ms))

    def _attempt(self, item: _Try) -> Committed:
        """Run one transaction: acknowledgement, work, commit. An error other than _FinalError means no effect."""
        ns = item.scan.namespace
        inner = write_jobs.begin(ns, write_jobs.reserve_job(ns))
        identity = self._identity.of(item.batch, connection_of(ns), self._what_is_left(item.scan))
        with DataFrameTransaction(ns, inner, self._order.storage, identity=identity, batch="the batch") as txn:
            try:
                # Acknowledged first, so that also a commit by the handler includes it.
                acknowledge_ranges(inner, list(item.batch.acknowledgements))
                if item.reason is None:
                    self._handle(item, inner, txn)
                else:
                    self._send_to_dead_letters(item, inner, item.reason)
                return txn.commit()
            except BaseException as error:
                if discard(inner):
                    raise
                # The commit's outcome is unknown, or the handler committed: the log decides, not the error.
                result = self._decided(inner)
                if isinstance(error, OutcomeUnknown):
                    return result
                self._note(item, result)
                if not isinstance(error, Exception):
                    raise
                raised = error.error if isinstance(error, _HandlerFailedError) else error
                note = f"process {self._order.name!r}: the handler had committed its batch, at version {result.version}"
                raise _FinalError(behind_commit(raised, note)) from error

    def _what_is_left(self, scan: Scan) -> WhatIsLeft:
        return partial(what_is_left, scan, self._owned)

    def _decided(self, inner: Transaction) -> Committed:
        """The outcome of a commit, found out by committing again, which is idempotent."""
        try:
            for attempt in range(1, _COMMIT_ATTEMPTS):
                with contextlib.suppress(OutcomeUnknown):
                    return inner.commit()
                self._runtime.sleep_ms(_BACKOFF.after(attempt + 1))
            return inner.commit()
        except BaseException as error:
            leave_outcome_open(inner)  # the next run finds the outcome in the log, and need not wait for this one
            if isinstance(error, OutcomeUnknown):
                again = "run again: a run first finds out in the log whether the batch was committed"
                raise _FinalError(reworded(error, advice=again)) from error
            raise

    def _handle(self, item: _Try, inner: Transaction, txn: DataFrameTransaction) -> None:
        frame = self._frame(item)
        try:
            self._order.handler(frame, txn)
            txn._check_handled()
            if inner.state == "OPEN":
                txn._work_elsewhere()  # also the handler's: only now Spark computes its writes to Delta tables
        except _NOT_THE_HANDLERS:
            raise
        except Exception as error:
            if (interrupt := _interrupt_behind(error)) is not None:
                raise interrupt from error
            raise _HandlerFailedError(error) from error

    def _frame(self, item: _Try) -> DataFrame:
        make = native_frame if self._order.native else format_frame
        return make(self._spark, item.scan, item.batch)

    def _is_read(self, item: _Try) -> bool:
        """Whether Spark can read the batch without the handler: if not, a failure says nothing about the messages.

        Spark may be gone, or its tasks may not reach the store, while this process does, which writes dead letters.
        """
        try:
            self._frame(item).write.format("noop").mode("overwrite").save()
        except Exception:
            _logger.exception("%r: Spark cannot read the batch (%s)", self._order.name, item.batch)
            return False
        return True

    def _send_to_dead_letters(self, item: _Try, inner: Transaction, reason: str) -> None:
        """Write the messages to the dead-letter topics, in this process, with a few segments in memory at a time."""
        connection = connection_of(item.scan.namespace)
        for own in self._owned:
            offsets = item.batch.offsets.get(own.topic)
            if offsets is None:
                continue
            record = connection.subscription_record_by_id(own.subscription)
            source = connection.topic_record_by_id(record.topic)
            into = dead_letters.target(connection, record)
            for rows in item.scan.snapshot.scan(own.topic, offsets=offsets, include_metadata=True):
                messages = pa.Table.from_batches([rows])
                letters = dead_letters.of_failed_batch(
                    into, source, messages, reason=reason, redeliveries=item.failures
                )
                for partition, part in letters:
                    inner.produce(into.name, part, partition)

    def _note(self, item: _Try, result: Committed) -> None:
        batch, dead_lettered = item.batch, item.reason is not None
        self._batches += 1
        self._rows += batch.rows
        self._dead_letters += batch.rows if dead_lettered else 0
        self._versions.append(result.version)
        text = "%r: batch %d of %d rows is version %d (%s)%s"
        where = ", as dead letters" if dead_lettered else ""
        _logger.info(text, self._order.name, self._batches, batch.rows, result.version, batch, where)
        if batch.deleted:
            text = "%r: %d messages were deleted before they were processed"
            _logger.warning(text, self._order.name, batch.deleted)


def _cannot_read(error: Exception) -> bool:
    """Whether Spark could not read a file, of the batch or of the handler: then the store is at fault."""
    return any(
        spark_errors.condition_of(item).startswith("FAILED_READ_FILE") or _is_the_formats(item)
        for item in (error, error.__cause__)
    )


def _is_the_formats(error: BaseException | None) -> bool:
    """Whether a task of the format raised an error that says nothing about messages."""
    kind = spark_errors.raised_by_format(error)
    return kind is not None and issubclass(kind, _NOT_THE_HANDLERS)


def _is_the_programs(error: Exception) -> bool:
    """Whether txnlog, or Spark's planning, refused a call on the driver.

    Such a call has seen no row, so that other messages would fail alike. An error found by a task has an error of
    Spark's as its cause, which an error of analysis on the driver has as well; missing txnlog in the tasks' Python says
    nothing about messages either. But the state of a transaction may depend on the handler's response to a message.
    """
    if isinstance(error, AnalysisException | UnsupportedFeature):
        return True
    if not isinstance(error, InvalidInputError) or isinstance(error, InvalidTransactionState):
        return False
    return not isinstance(error.__cause__, PySparkException) or isinstance(error.__cause__, AnalysisException)


def _reason(error: Exception, failures: int) -> str:
    text = spark_errors.in_a_line(error).encode(errors="backslashreplace").decode()  # a file name may not be valid text
    return f"the handler failed {failures} times: {text}"[:_MOST_REASON]


def _interrupt_behind(error: BaseException) -> KeyboardInterrupt | None:
    """The interrupt that caused an error: after it, another call to Spark may have failed to reach Java."""
    before = error.__context__
    while before is not None and not isinstance(before, KeyboardInterrupt):
        before = before.__context__
    return before


__all__ = ["Processed", "Run", "RunSettings", "Stopped"]
