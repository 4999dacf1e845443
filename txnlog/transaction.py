"""A transaction in the hands of its owner: what it buffers, makes durable, and how it ends."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from concurrent.futures import Future
from functools import partial
from types import TracebackType
from typing import TYPE_CHECKING, Any, cast

import xxhash

from txnlog import administration
from txnlog.acknowledgements import hold
from txnlog.actions import Acknowledgement, Segment, StreamBatch
from txnlog.commands import AbortCommand, CommitCommand, CommitResult, FlushCommand, Opening, Piece, ended_error
from txnlog.errors import (
    AbortableError,
    CoordinatorFenced,
    FencedError,
    InvalidInputError,
    InvalidTransactionState,
    OutcomeUnknown,
    ProducerFenced,
    TransactionHasFailedOperation,
    TransactionTimedOut,
    TxnLogError,
)
from txnlog.ids import TxnId
from txnlog.limits import BUFFER_BYTES, SMALL_PRODUCE_BYTES
from txnlog.partitioning import place
from txnlog.results import Committed
from txnlog.segment_builder import BuiltSegment, build_owned
from txnlog.state import Outcome, TransactionState

if TYPE_CHECKING:
    from txnlog.connection import Connection
    from txnlog.messages import Messages

_logger = logging.getLogger("txnlog.transaction")


class Transaction:
    """One transaction over any number of topics and subscriptions of a namespace. Thread-safe.

    As a context manager it commits at the end of the block, and raises there what the commit raises; an exception
    inside the block aborts it. Nothing of it is visible before it is committed, all of it is afterwards.
    """

    def __init__(
        self,
        namespace: Connection,
        number: int,
        *,
        timeout_ms: int | None,
        producer: str | None = None,
        epoch: int | None = None,
        app_id: str | None = None,
        app_version: int | None = None,
        timed_from_log: bool = False,
    ) -> None:
        self._ns = namespace
        self._number = number
        self._timeout_ms = timeout_ms
        self._timed_from_log = timed_from_log
        # Holds no reference to this object: a cycle would leave every transaction to the garbage collector.
        self._opening = Opening(number, namespace.runtime.now_ms, producer, epoch, app_id, app_version)
        self._lock = threading.RLock()
        self._state: TransactionState = "OPEN"
        self._ended: TxnLogError | None = None
        self._failed: TxnLogError | None = None
        self._in_doubt = False
        self._begun = False
        self._pieces: list[Piece] = []
        self._buffered_bytes = 0
        self._staged: list[Segment] = []
        self._owned_topics: set[int] = set()
        self._acknowledged: list[Acknowledgement] = []
        self._logged_acknowledgements: list[Acknowledgement] = []
        self._taken: list[Messages] = []
        self._digest = xxhash.xxh3_64()
        self._stream: StreamBatch | None = None
        self.result: Committed | None = None
        self._owner = namespace.identity

    # --- what it is -------------------------------------------------------------------------------------------------

    @property
    def id(self) -> TxnId:
        """The 128-bit TxnID. Note it to ask for the outcome after a crash: ``ns.transaction(id)``, ``ns.abort(id)``."""
        return TxnId(self._ns.coordinator, self._number)

    @property
    def state(self) -> TransactionState:
        """OPEN, PREPARED, COMMITTED or ABORTED, as far as this handle knows."""
        return self._state

    @property
    def skipped(self) -> bool:
        """Whether the log shows that this txn_version (or a later one) of the app was committed before."""
        return self._ns.skips(self._opening.app_id, self._opening.app_version)

    def __repr__(self) -> str:
        return f"Transaction({self.id}, {self._state})"

    def __enter__(self) -> Transaction:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None:
            if self._state == "OPEN":
                self.commit()
            return
        if self._state == "OPEN" and not self._in_doubt:
            try:
                self.abort()
            except TxnLogError:
                # The user's own error is on its way out; the abort is only tidiness: nothing commits this any more.
                _logger.warning("abort of %s failed; it ends by its timeout", self.id, exc_info=True)

    # --- work -------------------------------------------------------------------------------------------------------

    def produce(self, topic: str, data: Any, partition: int | None = None, *, sequence: int | None = None) -> None:
        """Add rows. They are checked now, and durable at ``flush()`` or the commit.

        Args:
            topic: a topic of the namespace.
            data: a pyarrow Table or RecordBatch(es), a list of dicts, or anything with ``__arrow_c_stream__``.
            partition: a partition; otherwise the key's hash chooses it for each row, or the client in turn.
            sequence: the first row's sequence, for a named producer and a given partition.

        Raises:
            SchemaMismatch: naming the column; nothing was added.
            TopicNotFound, OffsetOutOfRange: as they say.
            ProducerFenced, TransactionTimedOut, TransactionAborted: the transaction has ended.
        """
        with self._lock:
            self._check_open()
            if sequence is not None and (partition is None or self._opening.producer is None):
                raise InvalidInputError(
                    "a sequence needs a named producer and a partition", advice="pass partition=, use ns.producer(name)"
                )
            if self._buffered_bytes >= BUFFER_BYTES:
                self._stage(everything=True)  # before anything is added: a failure here adds nothing
            for piece in place(self._ns, topic, data, partition, sequence):
                self._note_effect()
                self._pieces.append(piece)
                self._buffered_bytes += piece.size_bytes
                self._digest.update(
                    f"p{piece.topic},{piece.partition},{piece.rows},{piece.sequence},{piece.digest};".encode()
                )

    def acknowledge(self, messages: Messages, *, cumulative: bool = False) -> None:
        """Take received messages off their subscriptions, when and if this transaction commits.

        Args:
            messages: what a consumer received, or a part of it (``messages[2:5]``).
            cumulative: everything up to and including these messages, in each of their partitions.

        Raises:
            TransactionConflict: somebody else was first; the transaction can only be aborted.
            ConsumerFenced: a newer consumer took over.
        """
        with self._lock:
            self._check_open()
            wanted = messages.acknowledgements(cumulative=cumulative)
            try:
                self._check_conflicts(wanted)
            except (AbortableError, FencedError) as error:
                self._failed = error
                raise
            self._note_effect()
            self._acknowledged.extend(wanted)
            self._taken.append(messages)
            for item in wanted:
                self._digest.update(repr(item).encode())
            self._ns.note_holds(self._number, self._logged_acknowledgements + self._acknowledged)

    def _check_conflicts(self, wanted: list[Acknowledgement]) -> None:
        """Against the log as this client knows it, and what its own open transactions hold and have not logged."""
        with self._ns.follower.lock:
            draft = self._ns.follower.state.draft()
            for number, items in self._ns.holds():
                for item in items:
                    mark = draft.savepoint()
                    try:
                        hold(draft, number, item)
                    except TxnLogError:
                        draft.rollback(mark)  # logged meanwhile, or lost already: no obstacle of its own
            for item in wanted:
                hold(draft, self._number, item)

    def flush(self) -> None:
        """Make the work so far durable and pending: the log shows the transaction, with its deadline, from here on."""
        with self._lock:
            self._check_open()
            self._stage(everything=True)
            if self._staged or self._acknowledged:
                self._log_work()

    def _log_work(self) -> None:
        self._start_clock()
        command = FlushCommand(self._opening, tuple(self._staged), tuple(self._acknowledged))
        # From here on the log may show the transaction, whatever becomes of the call: an abort must be logged as well.
        begun, self._begun = self._begun, True
        try:
            self._ns.appender.call(command)
        except (AbortableError, FencedError) as error:
            # An answer: of this call nothing is in the log. After a call without one (OutcomeUnknown, an interrupt) the
            # next flush or commit leaves out what the log then shows.
            self._begun = begun
            self._failed = error
            self._ns.release_holds(self._number)
            raise
        self._staged.clear()
        self._logged_acknowledgements.extend(self._acknowledged)
        self._acknowledged.clear()

    def _stage(self, *, everything: bool) -> None:
        """Write buffered rows as segments of this transaction: all, or where they are too many to share a file.

        Of a topic that has such a segment all rows go this way: shared rows come first in an entry, so mixing would
        turn the order of production around.
        """
        sizes: dict[int, int] = {}
        for piece in self._pieces:
            sizes[piece.topic] = sizes.get(piece.topic, 0) + piece.size_bytes
        chosen = {
            topic
            for topic, size in sizes.items()
            if everything or size >= SMALL_PRODUCE_BYTES or topic in self._owned_topics
        }
        if not chosen:
            return
        for topic in sorted(chosen):
            # A topic's rows leave the buffer when all of its segments are on the store: staging that failed half-way is
            # done again from the beginning, and what it left behind is garbage that no entry names.
            staged = self._put_owned(topic, [piece for piece in self._pieces if piece.topic == topic])
            self._staged.extend(staged)
            self._owned_topics.add(topic)
            self._pieces = [piece for piece in self._pieces if piece.topic != topic]
            self._buffered_bytes = sum(piece.size_bytes for piece in self._pieces)

    def _put_owned(self, topic: int, pieces: list[Piece]) -> list[Segment]:
        runtime = self._ns.runtime
        record = self._ns.topic_record_by_id(topic)
        staged: list[Segment] = []
        wave: list[BuiltSegment] = []
        waiting = 0
        for built in build_owned(record, pieces, self._number, self._take_number, runtime.unique):
            wave.append(built)
            staged.append(built.action)
            waiting += len(built.data)
            if waiting >= BUFFER_BYTES:
                self._put(wave)
                wave, waiting = [], 0
        self._put(wave)
        return staged

    def _put(self, wave: list[BuiltSegment]) -> None:
        store = self._ns.store
        self._ns.runtime.run_all([partial(store.put, built.key, built.data) for built in wave])

    def _take_number(self) -> int:
        return self._ns.appender.take_numbers(1)[0]

    def adopt_segments(self, segments: list[Segment]) -> None:
        """Add segments that were written elsewhere (Spark's executors) under numbers of this client's blocks."""
        with self._lock:
            self._check_open()
            self._staged.extend(segments)
            self._owned_topics.update(item.topic for item in segments)
            for item in segments:
                self._digest.update(f"s{item.topic},{item.segment},{item.checksum};".encode())

    def acknowledge_ranges(self, wanted: list[Acknowledgement]) -> None:
        """Add acknowledgements by offsets instead of received messages (streams)."""
        with self._lock:
            self._check_open()
            self._acknowledged.extend(wanted)
            for item in wanted:
                self._digest.update(repr(item).encode())

    def set_stream(self, batch: StreamBatch) -> None:
        """Bind the commit to a micro-batch: a replay of it is skipped."""
        with self._lock:
            self._check_open()
            self._stream = batch

    # --- the end ----------------------------------------------------------------------------------------------------

    def commit(self) -> Committed:
        """Commit, and return once it is visible. Repeated, or after a lost answer, it gives the same result.

        Raises:
            TransactionTimedOut, TransactionAborted, ProducerFenced, TransactionConflict: it did not commit.
            TransactionHasFailedOperation: an earlier operation failed; the transaction is aborted now.
            OutcomeUnknown: the store did not answer; commit() again, or ns.abort(txn.id), makes it definite.
        """
        with self._lock:
            command = self._commit_command()
            if command is None:
                assert self.result is not None, "a transaction that needs no entry has its result"
                return self.result
            try:
                result = self._ns.appender.call(command)
            except TxnLogError as error:
                return self._finish(command, None, error)
            except BaseException:
                self._in_doubt = True  # interrupted while the entry may be under way
                raise
            return self._committed(command, result)

    def commit_async(self) -> Future[Committed]:
        """Commit in the background; concurrent commits share an entry. The Future gives what commit() gives."""
        with self._lock:
            try:
                command = self._commit_command()
                if command is not None:
                    return self._ns.appender.submit(command, partial(self._finish, command))
                assert self.result is not None, "a transaction that needs no entry has its result"
            except TxnLogError as error:
                failed: Future[Committed] = Future()
                failed.set_exception(error)
                return failed
        done: Future[Committed] = Future()
        done.set_result(self.result)
        return done

    def _finish(self, command: CommitCommand, result: CommitResult | None, error: BaseException | None) -> Committed:
        """What a commit came to; no lock of the appender is held."""
        with self._lock:
            if error is not None:
                try:
                    result = self._recorded(command, error)
                except BaseException as end:
                    self._not_committed(end)
                    raise
            assert result is not None, "an answer or an error"
            return self._committed(command, result)

    def _recorded(self, command: CommitCommand, error: BaseException) -> Outcome:
        """The end of a refused commit that only a checkpoint remembers; raises the refusal where there is none."""
        if isinstance(error, CoordinatorFenced | InvalidTransactionState):
            outcome = self._ns.follower.outcome(self._number)
            if outcome is not None:
                return command.repeated(outcome)
        raise error

    def _commit_command(self) -> CommitCommand | None:
        """What to append; None where nothing must be. Stages big writes first, outside of any entry."""
        if self._state == "COMMITTED":
            return None
        self._ns.check_owner(self._owner, "transaction")
        if self._state == "ABORTED":
            raise self._ended or InvalidTransactionState(f"the transaction {self.id} was aborted")
        if self._failed is not None:
            cause = self._failed
            if not isinstance(cause, FencedError):
                self._abort("failed")
            raise TransactionHasFailedOperation(
                f"an operation of the transaction {self.id} failed: {cause.message}"
            ) from cause
        if not self._in_doubt:
            self._check_deadline()
            if not (self._begun or self._pieces or self._staged or self._acknowledged or self._stream):
                self._check_not_fenced()
                self._state = "COMMITTED"
                self.result = Committed(self.id, self._ns.follower.version, {})
                return None
            self._stage(everything=False)
        return CommitCommand(
            self._opening,
            self._digest.hexdigest(),
            tuple(self._pieces),
            tuple(self._staged),
            tuple(self._acknowledged),
            self._stream,
        )

    def _committed(self, command: CommitCommand, result: CommitResult) -> Committed:
        self._in_doubt = False
        self._state = "COMMITTED"
        self._ns.release_holds(self._number)
        self._pieces, self._staged = [], []
        self.result = self._ns.committed(result, command.dropped)
        return self.result

    def _not_committed(self, error: BaseException) -> None:
        if isinstance(error, OutcomeUnknown) or not isinstance(error, TxnLogError):
            self._in_doubt = True
        elif isinstance(error, AbortableError | FencedError):
            # Refused before anything of this commit was in the log; what an earlier flush logged must still be ended.
            self._in_doubt = False
            self._failed = error
            if isinstance(error, AbortableError):
                try:
                    self._abort("failed")
                except TxnLogError:
                    _logger.warning("abort of %s failed; it ends by its timeout", self.id, exc_info=True)
            self._release(error)

    def abort(self) -> None:
        """End without effect; repeated it is fine. What it acknowledged is delivered again.

        Raises:
            InvalidTransactionState: it was committed.
        """
        with self._lock:
            if self._state == "ABORTED":
                return
            if self._state == "COMMITTED":
                raise InvalidTransactionState(f"the transaction {self.id} was committed")
            self._ns.check_owner(self._owner, "transaction")
            self._abort("user")

    def _abort(self, reason: str) -> None:
        if self._begun or self._in_doubt or self._state == "PREPARED":
            outcome = administration.end(self._ns, AbortCommand(self._number, cast("Any", reason)))
            self._in_doubt = False
            if outcome.state == "COMMITTED":
                self._state = "COMMITTED"
                self.result = self._ns.committed(outcome, ())
                raise ended_error(outcome)
        self._release(None)

    def _release(self, error: TxnLogError | None) -> None:
        self._state = "ABORTED"
        self._ended = error
        self._pieces, self._staged = [], []
        self._ns.release_holds(self._number)
        for messages in self._taken:
            messages.give_back()
        self._taken.clear()

    # --- checks -----------------------------------------------------------------------------------------------------

    def _check_open(self) -> None:
        self._ns.check_owner(self._owner, "transaction")
        if self._state == "COMMITTED":
            raise InvalidTransactionState(f"the transaction {self.id} was committed", advice="begin a new transaction")
        if self._state == "ABORTED":
            raise self._ended or InvalidTransactionState(
                f"the transaction {self.id} was aborted", advice="begin a new transaction"
            )
        if self._state == "PREPARED":
            raise InvalidTransactionState(
                f"the transaction {self.id} is PREPARED", advice="use ns.complete(token, ...)"
            )
        if self._in_doubt:
            raise InvalidTransactionState(
                f"the commit of {self.id} is in doubt", advice="call commit() again, or abort() to make it definite"
            )
        if self._failed is not None:
            raise TransactionHasFailedOperation(
                f"an operation of the transaction {self.id} failed: {self._failed.message}"
            ) from self._failed
        outcome = self._ns.follower.state.outcomes.get(self._number)
        if outcome is not None:
            self._ended_elsewhere(outcome)
        self._check_not_fenced()
        self._check_deadline()

    def _ended_elsewhere(self, outcome: Outcome) -> None:
        error = ended_error(outcome)
        if outcome.state == "COMMITTED":
            self._state = "COMMITTED"
            self.result = self._ns.committed(outcome, ())
            raise error
        if outcome.reason == "fenced" and self._opening.producer is not None:
            error = ProducerFenced(f"a newer producer {self._opening.producer!r} aborted the transaction {self.id}")
        self._release(error)
        raise error

    def _check_not_fenced(self) -> None:
        producer = self._opening.producer
        if producer is None:
            return
        record = self._ns.follower.state.producers.get(producer)
        if record is not None and record.epoch != self._opening.epoch:
            error = ProducerFenced(
                f"the producer {producer!r} has epoch {self._opening.epoch} but {record.epoch} is the newest"
            )
            self._release(error)
            raise error

    def _note_effect(self) -> None:
        """The deadline counts from the first call, or from the first effect in the log where work takes its time."""
        if not self._timed_from_log:
            self._start_clock()

    def _start_clock(self) -> None:
        if self._opening.deadline_ms is None and self._timeout_ms is not None:
            self._opening.deadline_ms = self._ns.runtime.now_ms() + self._timeout_ms

    def _check_deadline(self) -> None:
        try:
            self._opening.left_ms()
        except TransactionTimedOut as timed_out:
            error = timed_out
        else:
            return
        if self._begun:
            outcome = administration.end(self._ns, AbortCommand(self._number, "timeout"))
            if outcome.state == "COMMITTED":
                self._ended_elsewhere(outcome)
        self._release(error)
        raise error


Handler = Callable[[Transaction], Any]

__all__ = ["Handler", "Transaction"]
