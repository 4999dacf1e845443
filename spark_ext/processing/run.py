"""One run of ``spark_ext.process``: batch after batch, each of them until it is decided."""

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
from spark_ext.processing.batch_plan import (
    Batch,
    Claim,
    End,
    count_left,
    offsets_text,
    plan_again,
    plan_batch,
    what_is_left,
)
from spark_ext.processing.delta_batches import RepeatBatchError, WhatIsLeft, of_run
from spark_ext.processing.progress import progress_line
from spark_ext.processing.stop import interruptible
from spark_ext.read.scan import Scan, open_scan
from spark_ext.support import spark_errors
from spark_ext.write import write_jobs
from spark_ext.write.dataframe_transaction import DataFrameTransaction, Handler
from txnlog.api.internals import acknowledge_ranges, check_open, connection_of, discard, leave_outcome_open
from txnlog.client import dead_letters
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
"""A run may go on for years."""

_LOST_ATTEMPTS: Final = 5
"""Of one batch, in a row: whoever loses more often has another problem than a conflict."""

_COMMIT_ATTEMPTS: Final = 5
"""Of one commit whose answer does not come; the appender has asked several times in each."""

_MOST_REASON: Final = 500
"""Characters of an error in a dead letter: it stands beside each message."""

_PAUSE_MS: Final = 100.0
_LONGEST_PAUSE_MS: Final = 5_000.0

_HANDLER_PAUSE_MS: Final = 1_000.0
_LONGEST_HANDLER_PAUSE_MS: Final = 30_000.0
"""Before a handler that failed is called again: what it asks elsewhere may be down for some seconds."""


@dataclass(frozen=True, slots=True)
class Processed:
    """What a run did.

    Attributes:
        batches: how many were committed.
        rows: how many rows they read.
        dead_letters: how many of these went to dead-letter topics.
        versions: which versions committed them, the newest 10,000.
        stopped: why it ended: ``caught_up`` (all that was there at its start is done), ``asked`` (``stop`` told it to)
            or ``signal`` (Ctrl-C, SIGTERM).
    """

    batches: int
    rows: int
    dead_letters: int
    versions: tuple[int, ...]
    stopped: Stopped


@dataclass(frozen=True, slots=True)
class Order:
    """What a run is asked to do.

    Attributes:
        read: how its topics are read.
        storage: storage options as tasks get them.
        name: of the run, for people.
        handler: what is called with each batch.
        interval_ms: between the beginnings of batches; None where the run ends once it caught up.
        gives_up: whether messages on which the handler fails go to the dead-letter topic.
        attempts: how often the handler is called on a batch before that, or before the run stops.
        max_rows: of one batch.
        native: whether a batch is Spark's own scan, or the format's.
    """

    read: ReadOptions
    storage: str
    name: str
    handler: Handler
    interval_ms: int | None
    gives_up: bool
    attempts: int
    max_rows: int | None
    native: bool


class _HandlerFailedError(Exception):
    """What the handler raised, and nothing of its batch is in the log."""

    def __init__(self, error: Exception) -> None:
        self.error = error


class _FinalError(Exception):
    """What the caller gets, whatever ``on_error`` says."""

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
"""What says nothing about the messages, though a call of the handler's raised it: no reason to give up on them."""


@dataclass(frozen=True, slots=True)
class _Try:
    """A batch on its way: ``reason`` is why its messages are given up on; None where the handler is to have them.

    ``repeats`` tells that it is the batch that a Delta table has already.
    """

    scan: Scan
    batch: Batch
    failures: int = 0
    lost: int = 0
    reason: str | None = None
    repeats: bool = False


class Run:
    """One run, from its claim to its end. Used by one thread, once."""

    def __init__(
        self, spark: SparkSession, order: Order, claims: tuple[Claim, ...], connection: Connection, stop: Stop
    ) -> None:
        self._spark = spark
        self._order = order
        self._claims = claims
        self._runtime = connection.runtime
        self._stop = stop
        self._identity = of_run(connection, claims)
        self._batches = self._rows = self._dead_letters = 0
        self._versions: deque[int] = deque(maxlen=_KEPT_VERSIONS)

    def run(self, *, progress: bool) -> Processed:
        """Batch after batch, until there is a reason to end."""
        try:
            with (
                self._stop.listening(),
                interruptible(self._spark),
                progress_line(self._order.name, wanted=progress) as show,
            ):
                stopped = self._loop(show)
        except KeyboardInterrupt:
            if self._stop.asked != "signal":
                raise  # of another kind than the second Ctrl-C, which aborted the batch
            stopped = "signal"
        return Processed(self._batches, self._rows, self._dead_letters, tuple(self._versions), stopped)

    def _loop(self, show: Callable[[str], None]) -> Stopped:
        interval_ms = self._order.interval_ms
        until = End.of(self._look()) if interval_ms is None else None
        while True:
            began_ms = self._runtime.elapsed_ms()
            if (asked := self._stop.asked) is not None:
                return asked
            scan = self._look()
            batch = plan_batch(scan, self._claims, self._order.max_rows, until)
            if batch is not None:
                self._finish(scan, batch)
            left, pending = count_left(scan, self._claims, until or End.of(scan))
            show(f"{self._batches:,} batches, {self._rows:,} rows, {left:,} behind, version {scan.snapshot.version}")
            if until is not None and batch is None:
                if pending:
                    text = "%r: %d messages are pending in other transactions: if those are aborted, they come again"
                    _logger.warning(text, self._order.name, pending)
                return "caught_up"
            if interval_ms is not None:
                self._stop.wait(self._runtime, interval_ms - (self._runtime.elapsed_ms() - began_ms))

    def _look(self) -> Scan:
        """The newest version of the namespace. Two requests where nothing is new: its next entry, and its newest."""
        scan = open_scan(self._order.read, mode="rw")
        connection_of(scan.namespace).end_overdue([item.subscription for item in self._claims])
        return scan

    # --- one batch --------------------------------------------------------------------------------------------------

    def _finish(self, scan: Scan, batch: Batch) -> None:
        """Try until the batch is committed, or nothing more can be tried. Returns early where the run is to stop."""
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
                return

    def _after_failure(self, item: _Try, error: Exception) -> _Try | None:
        """The handler again, or the dead letters. Raises the error where neither is wanted, or would be of any use."""
        name, failures = self._order.name, item.failures + 1
        elsewhere = _cannot_read(error) or _is_the_programs(error)
        if failures < self._order.attempts and not elsewhere:
            _logger.warning("%r: the handler failed (%s)", name, item.batch, exc_info=error)
            asked = self._pause(failures, _HANDLER_PAUSE_MS, _LONGEST_HANDLER_PAUSE_MS)
            return None if asked else replace(item, failures=failures)
        if elsewhere or not self._order.gives_up or not self._is_read(item):
            error.add_note(f"process {name!r}: nothing of its batch was committed ({item.batch})")
            raise error from error.__cause__
        left = self._identity.left(self._what_is_left(item.scan))
        if left is not None:
            raise InvalidInputError(
                f"the handler failed {failures} times on a batch whose rows the Delta table {shortened(left[0])} has "
                f"already, as its version {left[1]} notes: as dead letters its messages would be in both "
                f"({item.batch}): {spark_errors.in_a_line(error)}",
                advice="mend the handler, or the table that refuses its rows, and run again: the batch comes again as "
                "it is, and must be written to that table again, where nothing is appended for it",
                durable=Durable.MAYBE,
            ) from error
        text = "%r: the handler failed %d times, the batch goes to the dead letters (%s)"
        _logger.error(text, name, failures, item.batch, exc_info=error)
        return replace(item, failures=failures, lost=0, reason=_reason(error, failures))

    def _after_loss(self, item: _Try, error: TxnLogError) -> _Try | None:
        """The batch again, or what is left up to its end where others took some of it."""
        lost = item.lost + 1
        if lost >= _LOST_ATTEMPTS:
            raise error
        _logger.info("%r: the batch is tried again after %s (%s)", self._order.name, error, item.batch)
        if self._pause(lost, _PAUSE_MS, _LONGEST_PAUSE_MS):
            return None
        scan = self._look()
        again = plan_again(scan, self._claims, item.batch.offsets, item.batch.end) or plan_batch(
            scan, self._claims, self._order.max_rows, item.batch.end
        )
        if again is None:
            return None  # others took what it held
        if again.offsets != item.batch.offsets:
            return _Try(scan, again, lost=lost)
        return replace(item, scan=scan, batch=again, lost=lost)

    def _repeated(self, item: _Try, wanted: RepeatBatchError) -> _Try:
        """The batch that a Delta table has and no entry commits, as it was: its rows are not appended again.

        What was given up of it is left out: that would never come.
        """
        scan = self._look()
        offsets = wanted.record.offsets
        batch = None if item.repeats else plan_again(scan, self._claims, offsets, wanted.end)
        if batch is None:
            raise InvalidInputError(
                f"{wanted}, and this batch cannot come again: its offsets were {offsets_text(offsets)}",
                advice="seek the subscription to where they begin, and in no partition beyond its cursor, for what is "
                "passed over is lost: the batch comes again, and its rows stay as they are; or another table of the "
                "handler, written before this one, has later rows",
            ) from wanted
        _logger.warning("%r: %s; it comes again (%s)", self._order.name, wanted, batch)
        return _Try(scan, batch, repeats=True)

    def _pause(self, attempt: int, first_ms: float, longest_ms: float) -> bool:
        """Wait before the next attempt; whether the run is to stop instead."""
        pause_ms = min(first_ms * 2 ** min(attempt - 1, 20), longest_ms)
        return self._stop.wait(self._runtime, self._runtime.spread(pause_ms))

    def _attempt(self, item: _Try) -> Committed:
        """One transaction: acknowledgement, work, commit. What it raises, but for _FinalError, left no effect."""
        ns = item.scan.namespace
        inner = write_jobs.begin(ns, write_jobs.reserve_job(ns))
        identity = self._identity.of(item.batch, connection_of(ns), self._what_is_left(item.scan))
        with DataFrameTransaction(ns, inner, self._order.storage, identity=identity) as txn:
            try:
                acknowledge_ranges(inner, list(item.batch.taken))  # first: no commit of the handler's can be without it
                if item.reason is None:
                    self._handle(item, inner, txn)
                else:
                    self._give_up(item, inner, item.reason)
                return txn.commit()
            except BaseException as error:
                if discard(inner):
                    raise
                # Its commit is in doubt, or the handler made it: the log decides, not what was raised.
                result = self._decided(inner)
                if isinstance(error, OutcomeUnknown):
                    return result
                self._note(item, result)
                if not isinstance(error, Exception):
                    raise
                raised = error.error if isinstance(error, _HandlerFailedError) else error
                raised.add_note(
                    f"process {self._order.name!r}: the handler had committed its batch, at version {result.version}"
                )
                raise _FinalError(raised) from error

    def _what_is_left(self, scan: Scan) -> WhatIsLeft:
        return partial(what_is_left, scan, self._claims)

    def _decided(self, inner: Transaction) -> Committed:
        """Ask the log how a commit ended, by committing again: the same bytes, in the same place."""
        try:
            for attempt in range(1, _COMMIT_ATTEMPTS):
                with contextlib.suppress(OutcomeUnknown):
                    return inner.commit()
                self._runtime.sleep_ms(min(_PAUSE_MS * 2**attempt, _LONGEST_PAUSE_MS))
            return inner.commit()
        except BaseException as error:
            leave_outcome_open(inner)  # whoever comes next asks the log, and needs not wait for this one
            if isinstance(error, OutcomeUnknown):
                error.advice = "run again: it asks the log what became of the batch before it does anything"
                raise _FinalError(error) from error
            raise

    def _handle(self, item: _Try, inner: Transaction, txn: DataFrameTransaction) -> None:
        frame = self._frame(item)
        try:
            self._order.handler(frame, txn)
            if inner.state == "OPEN":
                txn._work_elsewhere()  # the handler's as well: Spark computes only now what it gave to a Delta table
        except _NOT_THE_HANDLERS:
            raise
        except Exception as error:
            if (interrupt := _interrupt_behind(error)) is not None:
                raise interrupt from error
            raise _HandlerFailedError(error) from error
        if inner.state == "ABORTED":
            try:
                check_open(inner)  # raises how it ended
            except InvalidTransactionState as error:
                error.add_note("the handler aborted it: it may return without writing, or raise what went wrong")
                raise _HandlerFailedError(error) from error

    def _frame(self, item: _Try) -> DataFrame:
        make = native_frame if self._order.native else format_frame
        return make(self._spark, item.scan, item.batch)

    def _is_read(self, item: _Try) -> bool:
        """Whether Spark reads the batch by itself: where it does not, a failure says nothing about the messages.

        It may be gone, or its tasks may come to no store, while this process, which gives up on messages, does.
        """
        try:
            self._frame(item).write.format("noop").mode("overwrite").save()
        except Exception:
            _logger.exception("%r: Spark cannot read the batch (%s)", self._order.name, item.batch)
            return False
        return True

    def _give_up(self, item: _Try, inner: Transaction, reason: str) -> None:
        """Bring the messages to the dead-letter topics, in this process, a few segments in memory at a time."""
        connection = connection_of(item.scan.namespace)
        for owned in self._claims:
            offsets = item.batch.offsets.get(owned.topic)
            if offsets is None:
                continue
            record = connection.subscription_record_by_id(owned.subscription)
            source = connection.topic_record_by_id(record.topic)
            into = dead_letters.target(connection, record)
            for rows in item.scan.snapshot.scan(owned.topic, offsets=offsets, include_metadata=True):
                messages = pa.Table.from_batches([rows])
                letters = dead_letters.of_failed_batch(
                    into, source, messages, reason=reason, redeliveries=item.failures
                )
                for partition, part in letters:
                    inner.produce(into.name, part, partition)

    def _note(self, item: _Try, result: Committed) -> None:
        batch, given_up = item.batch, item.reason is not None
        self._batches += 1
        self._rows += batch.rows
        self._dead_letters += batch.rows if given_up else 0
        self._versions.append(result.version)
        text = "%r: batch %d of %d rows is version %d (%s)%s"
        where = ", as dead letters" if given_up else ""
        _logger.info(text, self._order.name, self._batches, batch.rows, result.version, batch, where)
        if batch.deleted:
            text = "%r: %d messages were deleted before they were processed"
            _logger.warning(text, self._order.name, batch.deleted)


def _cannot_read(error: Exception) -> bool:
    """Whether Spark could not read a file: the batch's, or one of the handler's own. That is the store's trouble."""
    return any(
        spark_errors.condition_of(item).startswith("FAILED_READ_FILE") or _is_the_formats(item)
        for item in (error, error.__cause__)
    )


def _is_the_formats(error: BaseException | None) -> bool:
    """Whether a task of the format raised what says nothing about messages."""
    kind = spark_errors.raised_by_format(error)
    return kind is not None and issubclass(kind, _NOT_THE_HANDLERS)


def _is_the_programs(error: Exception) -> bool:
    """Whether txnlog, or Spark's planning, refused a call on the driver.

    It had seen no row, so any other messages would fare the same. What a task found has an error of Spark's behind it;
    one of its analysis is of the driver, too, and where the Python of tasks has no txnlog, that says nothing of
    messages either. In which state a transaction is may be the handler's answer to a message.
    """
    if isinstance(error, AnalysisException | UnsupportedFeature):
        return True
    if not isinstance(error, InvalidInputError) or isinstance(error, InvalidTransactionState):
        return False
    return not isinstance(error.__cause__, PySparkException) or isinstance(error.__cause__, AnalysisException)


def _reason(error: Exception, failures: int) -> str:
    told = spark_errors.in_a_line(error).encode(errors="backslashreplace").decode()  # the name of a file may be no text
    return f"the handler failed {failures} times: {told}"[:_MOST_REASON]


def _interrupt_behind(error: BaseException) -> KeyboardInterrupt | None:
    """The interrupt that an error came of: the next call of Spark's, inside the first one, may find no Java there."""
    before = error.__context__
    while before is not None and not isinstance(before, KeyboardInterrupt):
        before = before.__context__
    return before


__all__ = ["Order", "Processed", "Run", "Stopped"]
