"""A transaction in the hands of its owner: what it takes, makes durable, and how it ends."""

from __future__ import annotations

import contextlib
import copy
import logging
import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import Future
from functools import partial
from types import TracebackType
from typing import TYPE_CHECKING, Any, NoReturn

from txnlog.api import transaction_admin
from txnlog.api.messages import Messages, checked
from txnlog.client.acknowledgement_conflicts import check_conflicts, ledgers_of
from txnlog.client.delivery import DeliveryReceipt
from txnlog.client.ledger import Ledger
from txnlog.client.row_placement import place
from txnlog.client.transaction_buffer import Work
from txnlog.client.transaction_lifecycle import ENDED, UNANSWERED, Fate, Life, Request, Stage
from txnlog.common.ids import TxnId
from txnlog.common.unpicklable import ProcessBound
from txnlog.engine.runtime import Promise
from txnlog.errors import (
    AbortableError,
    ConsumerFenced,
    Durable,
    FencedError,
    InvalidTransactionState,
    OutcomeUnknown,
    OutOfOrderSequence,
    RetriableError,
    StoreError,
    TransactionConflict,
    TransactionHasFailedOperation,
    TransactionNotFound,
    TransactionTimedOut,
    TxnLogError,
)
from txnlog.fold.acknowledgements import live_subscription
from txnlog.fold.sequences import check_end
from txnlog.fold.state import Outcome, TransactionState
from txnlog.format.actions import AbortReason, Acknowledgement, Segment, StreamBatch
from txnlog.log.transaction_commands import (
    AbortCommand,
    CommitCommand,
    CommitResult,
    FlushCommand,
    Opening,
    PrepareCommand,
    Skipped,
    ended_error,
    forgotten,
)
from txnlog.results import Committed
from txnlog.wording import Call, Words

if TYPE_CHECKING:
    from txnlog.client.connection import Connection

_logger = logging.getLogger("txnlog.transaction")

_Refused = TransactionConflict | OutOfOrderSequence | ConsumerFenced
"""An operation was refused, and the transaction has not ended by that."""


def _as_after(life: Life, error: TxnLogError) -> TxnLogError:
    """Copy of an end's error with ``durable=MAYBE`` where an earlier end was sent and has no answer.

    A copy, since others may get the same error.
    """
    if life.stage not in UNANSWERED or error.durable is Durable.MAYBE:
        return error
    copied = copy.copy(error)
    copied.__cause__ = error.__cause__
    copied.durable = Durable.MAYBE
    return copied


class Transaction(ProcessBound):
    """One transaction over any number of topics and subscriptions of a namespace. Thread-safe.

    As a context manager it commits at the end of the block, and raises there what the commit raises; an exception
    inside the block aborts it, and so does a commit that fails: no block leaves it open, unless its outcome is unknown
    (``OutcomeUnknown``: ``commit()`` again, or ``abort()``). Nothing of it is visible before it is committed, all of it
    is afterwards.

    Attributes:
        result: what the commit returned, as :class:`txnlog.Committed`; None before.
    """

    def __init__(
        self,
        connection: Connection,
        number: int,
        *,
        timeout_ms: int | None,
        producer: str | None = None,
        epoch: int | None = None,
        app_id: str | None = None,
        app_version: int | None = None,
        timed_from_log: bool = False,
    ) -> None:
        self._connection = connection
        self._number = number
        self._id = connection.txn_id(number)
        self._timed_from_log = timed_from_log
        # Holds no reference to this object: a cycle would leave every transaction to the garbage collector.
        self._opening = Opening(
            self._id, connection.runtime.now_ms, producer, epoch, app_id, app_version, timeout_ms=timeout_ms
        )
        self._lock = threading.RLock()
        self._life = Life()
        # Why it is FAILED or ABORTED, where that was no call of abort().
        self._cause: TxnLogError | None = None
        self._decision: Outcome | None = None
        self._may_prepare = True
        self._under_way: Future[Committed] | None = None
        self._work = Work(connection, number)
        # Handles whose consumers received what it acknowledges, and its own.
        self._handles = [connection]
        self._claimed: list[Ledger] = []
        # Of Shared subscriptions: what the log was to show at once, and may not show.
        self._unanswered: set[tuple[Acknowledgement, ...]] = set()
        self._subscriptions: dict[int, str] = {}
        self.result: Committed | None = None
        self._owner = connection.identity

    # --- what it is -------------------------------------------------------------------------------------------------

    @property
    def id(self) -> TxnId:
        """The 128-bit TxnID. Note it to ask for the outcome after a crash: ``ns.transaction(id)``, ``ns.abort(id)``."""
        return self._id

    @property
    def state(self) -> TransactionState:
        """OPEN, PREPARED, COMMITTED or ABORTED, as far as this handle knows: it makes no request.

        A transaction whose commit has no answer, or was interrupted, is OPEN until the handle has read how it ended.
        """
        if (
            self._life.stage is Stage.PREPARED or self._life.stage in UNANSWERED
        ) and self._owner is self._connection.identity:
            with contextlib.suppress(InvalidTransactionState):  # of a handle that was closed
                outcome = self._connection.follower.state.outcomes.get(self._number)
                if outcome is not None:
                    self._decision = outcome  # a checkpoint takes it out of memory
                return self._life.state if self._decision is None else self._decision.state
        return self._life.state

    @property
    def skipped(self) -> bool:
        """Whether the log shows that this txn_version (or a later one) of the app was committed before."""
        if self.result is not None:
            return self.result.skipped  # its own commit is none before it
        return self._connection.committed_before(self._opening.app_id, self._opening.app_version) is not None

    def __repr__(self) -> str:
        return f"Transaction({self.id}, {self.state})"

    def __enter__(self) -> Transaction:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is not None:
            self._leave(error)
        elif self._life.state == "OPEN":
            try:
                self.commit()
            except BaseException as refusal:
                self._leave(refusal)  # nobody calls commit() again: what it acknowledged would stay claimed for nothing
                raise
        elif self._life.stage is Stage.ABORTED and self._cause is not None:
            raise self._cause  # somebody else ended it, and the block went on: its end is no commit

    # --- work -------------------------------------------------------------------------------------------------------

    def produce(self, topic: str, data: Any, partition: int | None = None, *, sequence: int | None = None) -> None:
        """Add rows. They are checked now, and durable at ``flush()`` or the commit.

        Args:
            topic: a topic of the namespace.
            data: a pyarrow Table or RecordBatch(es), a list of dicts, or anything with ``__arrow_c_stream__``.
            partition: a partition; otherwise the key's hash chooses it for each row, or the client in turn.
            sequence: the first row's sequence, for a named producer and a given partition. Rows that were committed
                before are refused by ``flush()`` or the commit (``OutOfOrderSequence``), not recognised.

        Raises:
            SchemaMismatch: naming the column; nothing was added.
            TopicNotFound, OffsetOutOfRange: as they say.
            LimitExceeded: the sequences of the rows would end above 2^63 - 2; nothing was added.
            ProducerFenced, TransactionTimedOut, TransactionAborted: the transaction has ended.
        """
        with self._mine():
            self._check_open()
            pieces = place(self._connection, topic, data, partition, sequence, named=self._opening.producer is not None)
            for piece in pieces:
                if piece.sequence is not None:
                    check_end(self._opening.producer, piece.partition, piece.sequence, piece.rows)
            if pieces:
                self._work.add_rows(pieces)
                self._note_effect()

    def acknowledge(self, messages: Messages, *, cumulative: bool = False) -> None:
        """Take received messages off their subscriptions, when and if this transaction commits.

        Args:
            messages: what a consumer received, or a part of it (``messages[2:5]``).
            cumulative: all that their consumer received up to and including these messages, in each partition.

        Raises:
            TransactionConflict: somebody else was first, or a message before a cumulative end was released and not
                received again; the transaction can only be aborted.
            ConsumerFenced: a newer consumer took over.
        """
        with self._mine():
            self._check_open()
            wanted = checked(messages)._acknowledgements(self._connection, cumulative=cumulative)
            if not wanted:
                return
            received_by = messages._connection
            if received_by not in self._handles:
                self._handles.append(received_by)
            shared = received_by.shared_subscription(messages._subscription) is not None
            if shared and tuple(wanted) in self._unanswered:
                self._log_work()  # the call is repeated: what it took must not conflict with itself
                return
            receipt = messages._receipt(cumulative=cumulative)
            self._claim_in(ledgers_of(self._connection, wanted, receipt))
            with self._acknowledging(receipt.ledger, wanted):
                self._claim(wanted, receipt)
                if shared:
                    # Logged at once, so that no other consumer receives them and an abort counts as a redelivery.
                    self._unanswered.add(tuple(wanted))
                    self._log_work()

    @contextlib.contextmanager
    def _acknowledging(self, ledger: Ledger, wanted: list[Acknowledgement]) -> Iterator[None]:
        """One acknowledgement: where it is refused and the transaction can go on, it was never made.

        Where the transaction can only be aborted, that releases also what it was refused: nothing that was derived from
        those messages will be visible, and a later cumulative acknowledgement would take them.
        """
        work, deadline_ms, unanswered = self._work.mark(), self._opening.deadline_ms, set(self._unanswered)
        claims = {id(item): item.claims().get(self._number) for item in self._claimed}
        self._note_effect()  # what it was refused is not withheld for ever where nobody aborts it
        for item in wanted:
            ledger.intend(self._number, item, self._opening.deadline_ms)
        try:
            yield
        except TxnLogError as error:
            if error.durable is Durable.NOTHING and not isinstance(error, AbortableError | FencedError):
                self._work.rollback(work)
                self._opening.deadline_ms = deadline_ms
                self._unanswered = unanswered
                for known in self._claimed:
                    known.restore(self._number, claims.get(id(known)))
            raise

    def _acknowledge_ranges(self, wanted: list[Acknowledgement]) -> None:
        """Add acknowledgements by offsets instead of received messages (streams)."""
        with self._mine():
            self._check_open()
            self._claim_in(ledgers_of(self._connection, wanted, None))
            self._claim(wanted)

    def _claim_in(self, ledgers: list[Ledger]) -> None:
        self._claimed += [item for item in ledgers if item not in self._claimed]

    def _claim(self, wanted: list[Acknowledgement], receipt: DeliveryReceipt | None = None) -> None:
        try:
            with self._connection.naming_dropped():
                check_conflicts(self._connection, self._number, wanted, receipt, self._note_acknowledged)
        except (AbortableError, FencedError) as error:
            self._note_failed(Request.WORK, error)
            raise

    def _note_acknowledged(self, wanted: Sequence[Acknowledgement]) -> None:
        self._note_subscriptions(wanted)
        self._note_effect()
        # In this order: what Ctrl-C leaves claimed and not in the work an abort releases; the reverse would be doubled.
        for item in wanted:
            for ledger in self._claimed:
                if (ledger.subscription, ledger.epoch) == (item.subscription, item.epoch):
                    ledger.claim(self._number, item, self._opening.deadline_ms)
        self._work.add_acknowledgements(wanted)

    def _note_subscriptions(self, wanted: Sequence[Acknowledgement]) -> None:
        draft = self._connection.follower.state.draft()
        for item in wanted:
            record = live_subscription(draft, item.subscription)
            topic = draft.topics.get(record.topic)
            assert topic is not None, "topics are never forgotten"
            self._subscriptions[record.id] = f"{topic.name}/{record.name}"

    def _drop_claims(self) -> None:
        """End its claims of messages that are not to be delivered again: they were acknowledged, or may be."""
        for ledger in self._claimed:
            ledger.restore(self._number, None)

    def _abort_claims(self) -> None:
        """End its claims, and have what it claimed delivered again, as far as the log allows."""
        for ledger in self._claimed:
            ledger.abort(self._number)

    def _check_open_now(self) -> None:
        """Raise the conflict with more work: it ended, timed out or was fenced, or its end has an unknown outcome."""
        with self._mine():
            self._check_open()

    def _adopt_segments(self, segments: list[Segment]) -> None:
        """Add segments that were written elsewhere (Spark's executors) under numbers of this client's blocks.

        Those that it was given before are left out, so that a call that was interrupted can be repeated.
        """
        with self._mine():
            self._check_open()
            self._work.add_segments(segments)

    def _set_stream(self, batch: StreamBatch) -> None:
        """Bind the commit to a micro-batch: a replay of it is skipped."""
        with self._mine():
            self._check_open()
            self._work.stream = batch

    def flush(self) -> None:
        """Make the work so far durable and pending: the log shows the transaction, with its deadline, from here on.

        Nobody sees any of it before the commit. The same call again writes nothing twice. It always looks at the
        log: a transaction that was fenced or ended elsewhere is refused here at the latest.

        Raises:
            TransactionTimedOut, TransactionAborted, ProducerFenced, CoordinatorFenced: the transaction has ended, and
                nothing of it will be visible.
            TransactionConflict, ConsumerFenced, OutOfOrderSequence: the log refused what is new; the transaction can
                only be aborted.
            TransactionHasFailedOperation: an earlier operation was refused; likewise.
            InvalidTransactionState: it was committed, is PREPARED, or its end is under way or has an unknown outcome.
            LimitExceeded, StoreError: nothing was logged; the transaction stays as it was, and may flush() again.
            OutcomeUnknown: the log may show it; flush() again, or commit(), brings what is lacking, and abort() drops
                all of it.
        """
        with self._mine():
            self._check_open()
            self._work.stage(everything=True)
            if self._work.staged or self._work.acknowledged:
                self._log_work()
            else:
                self._connection.follower.refresh()  # who ended or fenced it is heard of here at the latest
                self._check_open()

    def _log_work(self) -> None:
        self._start_clock()
        self._work.seal()
        command = FlushCommand(self._opening, tuple(self._work.staged), tuple(self._work.acknowledged))
        # From here on the log may show the transaction, whatever becomes of the call: an abort must be logged as well.
        before, self._life = self._life, self._life.after(Request.FLUSH, Fate.UNKNOWN)
        try:
            left = self._connection.appender.call(command)
        except TxnLogError as error:
            # After a call without an answer (OutcomeUnknown, an interrupt) the next flush or commit leaves out what the
            # log then shows. Otherwise nothing of this call is there.
            if error.durable is Durable.NOTHING:
                self._settle(before, Request.FLUSH, Fate.NOTHING)
            self._check_recorded(error, again=False)
            if isinstance(error, AbortableError | FencedError):
                self._fail(Request.FLUSH, error)
            raise
        self._settle(before, Request.FLUSH, Fate.DONE)
        self._work.note_logged(left)
        for ledger in self._claimed:  # the log knows the deadline by now
            ledger.note_deadline(self._number, self._opening.deadline_ms)
        self._unanswered = set()  # where it is aborted the log releases them, and counts that

    def _check_recorded(self, error: TxnLogError, *, again: bool) -> None:
        """Raise the end that only a checkpoint remembers, where that is what a refusal by the log comes from."""
        if isinstance(error, _Refused) and not again:
            return
        outcome = self._recorded(error, again=again)
        if outcome is not None:
            self._ended_elsewhere(outcome)

    def _recorded(self, error: TxnLogError, *, again: bool) -> Outcome | None:
        """The end behind a refusal by the log, where only a checkpoint remembers it.

        ``again`` says that an earlier end was sent and has no answer. Raises TransactionNotFound where that is so and
        the number can have been used and forgotten: then a refusal proves nothing about the earlier one.
        """
        if isinstance(error, RetriableError | StoreError):
            return None
        outcome = self._connection.outcome(self._number)
        if outcome is None and again and self._connection.may_have_ended(self._number):
            raise forgotten(self._id, Durable.MAYBE) from error
        return outcome

    def _fail(self, request: Request, error: AbortableError | FencedError) -> None:
        """An operation was refused by the log: the transaction can only be aborted, or has ended."""
        if isinstance(error, _Refused):
            self._note_failed(request, error)
        else:
            self._abandon(error)

    def _note_failed(self, request: Request, error: TxnLogError) -> None:
        """Note that it can only be aborted; it keeps what it claimed until then."""
        self._life, self._cause = self._life.after(request, Fate.REFUSED), error

    def prepare(self) -> str:
        """Make the whole work durable and wait for a decision from outside (two-phase commit).

        Returns the token for ``ns.complete(token, commit=...)``, which works from any process: the TxnID as text. From
        here on the transaction has no deadline and is not fenced; what it acknowledged stays pending, its sequences and
        its application version are reserved, and its commit cannot be refused any more. Repeated it returns the same
        token.

        Raises:
            TransactionTimedOut, TransactionAborted, ProducerFenced, CoordinatorFenced: it has ended.
            TransactionConflict, ConsumerFenced, OutOfOrderSequence: the log refused its work; it can only be aborted.
            LimitExceeded, StoreError: nothing was logged; the transaction stays as it was.
            InvalidTransactionState: there is nothing to wait for (a batch that was done before, a stream's batch), or
                ``ns.transact`` runs it.
            TopicNotFound, SubscriptionNotFound: dropped while the transaction had work for it.
            OutcomeUnknown: the store did not answer; prepare() again, or abort().
        """
        with self._mine(), self._noting_earlier_end():
            if self._life.stage is Stage.PREPARED:
                return str(self._id)
            if self._life.stage is Stage.PREPARE_UNKNOWN:
                self._check_owner()
            else:
                self._check_open()
            if not self._may_prepare:
                raise InvalidTransactionState(
                    f"the transaction {self.id} is committed at the end of ns.transact: nobody could decide about it",
                    advice="prepare() one of ns.begin() or of a producer's begin()",
                )
            if self._work.stream is not None:
                raise InvalidTransactionState(
                    f"the transaction {self.id} holds the micro-batch of a stream, which cannot wait for others",
                    advice="commit() it",
                )
            self._work.stage(everything=True)
            self._start_clock()
            self._work.seal()
            self._work.settle()
            self._log_prepare(
                PrepareCommand(
                    self._opening, self._work.digest, tuple(self._work.staged), tuple(self._work.acknowledged)
                )
            )
            self._work.clear()
            # The log shows what was acknowledged, so that nobody delivers it; if it is aborted, everybody may.
            self._abort_claims()
            return str(self._id)

    def _refuse_prepare(self) -> None:
        """Refuse ``prepare()`` from here on: whoever runs the transaction commits it."""
        self._may_prepare = False

    def _log_prepare(self, command: PrepareCommand) -> None:
        # From here on the log may show the transaction, whatever becomes of the call.
        before, self._life = self._life, self._life.after(Request.PREPARE, Fate.UNKNOWN)
        try:
            self._connection.appender.call(command)
        except OutcomeUnknown as error:
            error._advise(
                Words("call prepare() again, or abort(); ", Call("transaction", "txn.id"), " shows what the log has")
            )
            raise
        except TxnLogError as error:
            self._settle(before, Request.PREPARE, Fate.NOTHING)
            # A decision may have come before this answer.
            self._check_recorded(error, again=before.stage in UNANSWERED)
            if isinstance(error, AbortableError | FencedError):
                self._fail(Request.PREPARE, error)
            raise
        self._settle(before, Request.PREPARE, Fate.DONE)

    # --- the end ----------------------------------------------------------------------------------------------------

    def commit(self) -> Committed:
        """Commit, and return once it is visible. Repeated, or after a lost answer, it gives the same result.

        So does that of a prepared transaction which others committed.

        Raises:
            TransactionTimedOut, TransactionAborted, ProducerFenced, CoordinatorFenced: it has ended without a commit.
            TransactionConflict, ConsumerFenced, OutOfOrderSequence: the log refused its work; it is aborted now.
            TransactionHasFailedOperation: an earlier operation failed; the transaction is aborted now.
            LimitExceeded, StoreError: nothing was logged; the transaction stays as it was, and may commit() again.
            OutcomeUnknown: the store did not answer; commit() again, or ns.abort(txn.id), makes it definite.
        """
        with self._mine(), self._noting_earlier_end():
            under_way = self._under_way
            if under_way is None:
                return self._commit_now()
        return under_way.result()

    def _commit_now(self) -> Committed:
        command = self._commit_command()
        if command is None:
            assert self.result is not None, "a transaction that needs no entry has its result"
            return self.result
        # From here on the log may show its end, whatever becomes of the call: Ctrl-C may come behind the entry.
        before, self._life = self._life, self._life.after(Request.COMMIT, Fate.UNKNOWN)
        try:
            result = self._connection.appender.call(command)
        except BaseException as error:  # noqa: BLE001 - raised again, unless the log knows better
            return self._finish(command, before, None, error)
        return self._finish(command, before, result, None)

    def commit_async(self) -> Future[Committed]:
        """Commit in the background; concurrent commits share an entry, in the order of the calls.

        The Future gives what commit() gives, and raises what that raises: see :meth:`commit`. What was submitted is
        finished by ``ns.close()`` and when the process ends by itself; failures whose Future nobody asked are reported
        to Python's logging then.

        While it is under way, ``commit()`` waits for it, and a second call gives the same Future: two of them could be
        answered differently. Callbacks of Futures are called one after the other, in a thread of their own: they may
        call anything, and ask other Futures for their ``result()`` or ``exception()``. A callback that waits for
        another Future in any other way, or for a lock of somebody who does, keeps it from being answered.
        """
        with self._mine():
            if self._under_way is not None:
                return self._under_way
            before = self._life
            try:
                command = self._commit_command()
                if command is not None:
                    self._life = before.after(Request.COMMIT, Fate.UNKNOWN)
                    finish = partial(self._finish_background, command, before)
                    future = self._connection.appender.submit(command, finish)
                    if not future.done():  # it may have been decided in this thread
                        self._under_way = future  # first: who is interrupted here has a commit whose outcome is unknown
                        self._settle(before, Request.COMMIT, Fate.SUBMITTED)
                    return future
                assert self.result is not None, "a transaction that needs no entry has its result"
            except TxnLogError as error:
                if self._life.stage not in ENDED:
                    self._life = before  # of this call nothing is in the queue
                failed: Future[Committed] = Promise()
                failed.set_exception(_as_after(before, error))
                return failed
        done: Future[Committed] = Future()
        done.set_result(self.result)
        return done

    def _finish_background(
        self, command: CommitCommand, before: Life, result: CommitResult | None, error: BaseException | None
    ) -> Committed:
        with self._lock:
            self._under_way = None
            self._settle(before, Request.COMMIT, Fate.UNKNOWN)
            with self._noting_earlier_end():
                return self._finish(command, before, result, error)

    def _finish(
        self, command: CommitCommand, before: Life, result: CommitResult | None, error: BaseException | None
    ) -> Committed:
        """What became of a commit that began at ``before``: until that is known, its outcome is unknown."""
        again = before.stage in UNANSWERED
        try:
            if isinstance(error, TxnLogError):
                outcome = self._recorded(error, again=again)
                if outcome is None:
                    raise error
                result = command.repeated(outcome, self._connection.producer_epoch(self._opening.producer))
            elif error is not None:
                raise error  # it was interrupted while the entry may be under way
            elif isinstance(result, Skipped) and again:
                # The batch was brought before: perhaps by this very commit, whose end only a checkpoint remembers.
                own = self._connection.outcome(self._number)
                result = own if own is not None and own.state == "COMMITTED" else result
        except TxnLogError as end:
            self._note_not_committed(before, end)
            raise
        assert result is not None, "an answer or an error"
        return self._committed(result)

    def _commit_command(self) -> CommitCommand | None:
        """What to append; None where nothing must be. Stages big writes first, outside of any entry."""
        stage = self._life.stage
        if stage is Stage.COMMITTED:
            return None
        self._check_owner()
        if stage is Stage.ABORTED:
            raise self._cause or self._was_aborted()
        if stage is Stage.PREPARED:
            error = self._take_over(self._decided())
            if self.result is None:
                raise error
            return None
        self._check_not_prepared()
        if stage is Stage.FAILED:
            failed = self._has_failed()
            self._abandon(failed)
            raise failed
        if stage not in UNANSWERED:
            self._check_deadline()
            if not self._life.logged and self._work.empty:
                self._check_not_fenced()
                earlier = self._connection.committed_before(self._opening.app_id, self._opening.app_version)
                empty = Committed(self.id, self._connection.follower.version, {})
                self._end_committed(empty if earlier is None else self._connection.committed(earlier))
                return None
            self._work.stage(everything=False)
        self._work.settle()
        return CommitCommand(
            self._opening,
            self._work.digest,
            tuple(self._work.pieces),
            tuple(self._work.staged),
            tuple(self._work.acknowledged),
            self._work.stream,
        )

    def _committed(self, result: CommitResult) -> Committed:
        if isinstance(result, Skipped):
            self._end_in_log("user")  # what an earlier flush logged is not wanted: the batch was done before
            self._abort_claims()
        return self._end_committed(self._connection.committed(result, self._subscriptions))

    def _end_committed(self, result: Committed) -> Committed:
        self.result, self._life = result, self._life.ended(Stage.COMMITTED)
        self._drop_claims()
        self._work.clear()
        if result.dropped:
            _logger.warning(
                "%s was committed. Its rows and acknowledgements for what was dropped meanwhile were left out: %s. The "
                "rest took effect, acknowledgements of other topics included.",
                self.id,
                ", ".join(map(str, result.dropped)),
            )
        return result

    def _note_not_committed(self, before: Life, error: TxnLogError) -> None:
        """Note what became of a commit that failed."""
        if isinstance(error, OutcomeUnknown):
            error._advise(Words("call commit() again, ", error._or_abort))
        elif isinstance(error, AbortableError | FencedError):
            self._abandon(error)
        else:
            self._settle(before, Request.COMMIT, Fate.NOTHING)

    def _settle(self, before: Life, request: Request, fate: Fate) -> None:
        """A call that began at ``before`` has this fate. An end that came meanwhile stays."""
        if self._life.stage not in ENDED:
            self._life = before.after(request, fate)

    def abort(self) -> None:
        """End without effect; repeated it is fine. What it acknowledged is delivered again.

        Raises:
            InvalidTransactionState: it was committed, or it is PREPARED and nobody has decided about it.
            OutcomeUnknown: the store did not answer; abort() again, or ns.abort(txn.id), makes it definite.
        """
        with self._mine(), self._noting_earlier_end():
            stage = self._life.stage
            if stage is Stage.ABORTED:
                if self._connection.has_unlogged_abort(self._number):
                    self._end("user")  # an abort before this one did not reach the log
                self._abort_claims()  # where Ctrl-C came before that
                return
            if stage is Stage.COMMITTED:
                raise InvalidTransactionState(
                    f"the transaction {self.id} was committed", advice="it stays committed: nothing is left to do"
                )
            self._check_owner()
            outcome = None
            if stage is Stage.PREPARED:
                outcome = self._decided()
            elif self._life.logged or stage in UNANSWERED:
                # Where prepare() has no answer nobody heard that it succeeded: no outside system can rely on it.
                outcome = self._end("user", force=stage is Stage.PREPARE_UNKNOWN)
            if outcome is not None and outcome.state == "COMMITTED":
                self._ended_elsewhere(outcome)
            self._release(None)

    def _discard(self) -> bool:
        """Abort, unless a commit is under way or its outcome is unknown; never raises. For blocks that go wrong.

        Where the abort cannot be logged, this handle is through with it all the same: nobody else can commit it, and
        the abort is logged by whoever waits here for what it claims; otherwise the transaction times out.

        Returns whether it was not committed, and will not be.
        """
        if self._owner is not self._connection.identity:
            return False  # it is the parent's
        with self._lock:
            if self._life.stage not in {Stage.OPEN, Stage.FAILED}:
                return self._life.stage is Stage.ABORTED
            try:
                self.abort()
            except TxnLogError as error:
                if self._life.logged:  # else the log shows nothing of it
                    self._abort_later("user", error)
                if self._life.stage not in ENDED:
                    self._release(None)
            return True

    def _leave(self, error: BaseException | None) -> None:
        """The end of a block that goes wrong: ``discard``. What said to call again says to begin the block again.

        Unless that is about something else: a call with an unknown outcome that is not of this transaction.
        """
        if not self._discard() or not isinstance(error, RetriableError):
            return
        if isinstance(error, OutcomeUnknown):
            own = error.txn_ids == (str(self._id),)
        else:
            own = type(error) is RetriableError  # others know better what to wait for
        if own:
            error._advise("begin the block again: its transaction was aborted")

    def _leave_outcome_open(self) -> None:
        """Go on without asking for the unknown outcome of a commit: its claims end here, and the log decides."""
        self._drop_claims()

    def _abandon(self, error: TxnLogError) -> None:
        """End a transaction that can commit no more, also in the log where that may show it, and remember why."""
        if self._life.state == "OPEN":
            self._end_in_log("failed")
            self._release(error)

    def _end(self, reason: AbortReason, *, force: bool = False) -> Outcome | None:
        """End it in the log. None where a flush of unknown outcome was not logged, and never will be (closed block)."""
        try:
            return transaction_admin.end(self._connection, AbortCommand(self._number, reason, force=force))
        except TransactionNotFound:
            if self._life.stage in UNANSWERED:
                raise  # it may have been committed, and the outcome forgotten
            return None

    def _end_in_log(self, reason: AbortReason) -> None:
        """Release what it claims in the log: now if the store answers, and otherwise later."""
        if not self._life.logged:
            return
        try:
            transaction_admin.end(self._connection, AbortCommand(self._number, reason))
        except TxnLogError as error:
            self._abort_later(reason, error)

    def _abort_later(self, reason: AbortReason, error: TxnLogError) -> None:
        _logger.warning(
            "The abort of %s could not be written. It will be retried; otherwise the transaction times out.",
            self.id,
            exc_info=error,
        )
        for connection in self._handles:  # also to other handles, whose consumers it would withhold messages from
            connection.note_unlogged_abort(self._number, reason)

    def _release(self, error: TxnLogError | None) -> None:
        self._cause, self._life = error, self._life.ended(Stage.ABORTED)
        self._work.clear()
        self._abort_claims()

    # --- checks -----------------------------------------------------------------------------------------------------

    def _mine(self) -> contextlib.AbstractContextManager[object]:
        """The lock. In a forked child a thread that is not there may hold it for ever: there nobody waits for it.

        Raises InvalidTransactionState in a child, unless the transaction ended before: its end stands.
        """
        if self._owner is self._connection.identity:
            return self._lock
        if self._life.stage not in ENDED:
            self._connection.check_owner(self._owner, "transaction")
        return contextlib.nullcontext()

    @contextlib.contextmanager
    def _noting_earlier_end(self) -> Iterator[None]:
        """Around each way to end it: a refusal says whether an earlier end, of unknown outcome, may be durable."""
        try:
            yield
        except TxnLogError as error:
            raise _as_after(self._life, error) from error.__cause__

    def _check_owner(self) -> None:
        """Raise InvalidTransactionState unless it is of this process and its handle is open."""
        self._connection.check_owner(self._owner, "transaction")

    def _was_aborted(self) -> InvalidTransactionState:
        return InvalidTransactionState(f"the transaction {self.id} was aborted", advice="begin a new transaction")

    def _has_failed(self) -> TransactionHasFailedOperation:
        cause = self._cause
        assert cause is not None, "a stage that an error led to"
        advice = cause.advice if isinstance(cause, TransactionConflict) else None
        error = TransactionHasFailedOperation(
            f"an operation of the transaction {self.id} failed: {cause.message}", advice=advice
        )
        error.__cause__ = cause
        return error

    def _check_open(self) -> None:
        self._check_owner()
        stage = self._life.stage
        if stage is Stage.COMMITTED:
            raise InvalidTransactionState(f"the transaction {self.id} was committed", advice="begin a new transaction")
        if stage is Stage.ABORTED:
            raise self._cause or self._was_aborted()
        self._check_not_prepared()
        if stage is Stage.COMMITTING:
            raise InvalidTransactionState(f"the commit of {self.id} is under way", advice="begin a new transaction")
        if stage is Stage.COMMIT_UNKNOWN:
            raise InvalidTransactionState(
                f"the outcome of the commit of {self.id} is unknown",
                advice="call commit() again, or abort() to make it definite",
            )
        if stage is Stage.FAILED:
            raise self._has_failed()
        outcome = self._connection.follower.state.outcomes.get(self._number)
        if outcome is not None:
            self._ended_elsewhere(outcome)
        self._check_not_fenced()
        self._check_deadline()

    def _check_not_prepared(self) -> None:
        if self._life.stage is Stage.PREPARED:
            self._ended_elsewhere(self._decided())
        if self._life.stage is Stage.PREPARE_UNKNOWN:
            raise InvalidTransactionState(
                f"the outcome of prepare() of {self.id} is unknown",
                advice="call prepare() again, or abort() to make it definite",
            )

    def _decided(self) -> Outcome:
        """How others ended it since it was prepared. Raises InvalidTransactionState as long as nobody has."""
        self._connection.follower.refresh()
        outcome = self._decision or self._connection.outcome(self._number)
        if outcome is not None:
            return outcome
        if self._connection.may_have_ended(self._number):
            raise forgotten(self._id, Durable.MAYBE)
        raise InvalidTransactionState(
            f"the transaction {self.id} is PREPARED, and nobody has decided about it: this TxnID is its token",
            advice=Words("use ", Call("complete", "token", "commit=True or False")),
        )

    def _ended_elsewhere(self, outcome: Outcome) -> NoReturn:
        """Take over the end that the log records, and raise it: the owner wanted another one."""
        raise self._take_over(outcome)

    def _take_over(self, outcome: Outcome) -> TxnLogError:
        """The end that the log records is this handle's from here on; gives the error for who wanted another one."""
        error = ended_error(outcome, self._opening, self._connection.producer_epoch(self._opening.producer))
        if outcome.state == "COMMITTED":
            self._end_committed(self._connection.committed(outcome, self._subscriptions))
        else:
            self._release(error)
        return error

    def _check_not_fenced(self) -> None:
        try:
            self._connection.check_producer(self._opening.producer, self._opening.epoch)
        except FencedError as error:
            self._release(error)
            raise

    def _note_effect(self) -> None:
        """The deadline counts from the first call, or from the first effect in the log where work takes its time."""
        if not self._timed_from_log:
            self._start_clock()

    def _start_clock(self) -> None:
        opening = self._opening
        if opening.deadline_ms is None and opening.timeout_ms is not None:
            opening.deadline_ms = self._connection.runtime.now_ms() + opening.timeout_ms

    def _check_deadline(self) -> None:
        try:
            self._opening.left_ms()
        except TransactionTimedOut as error:
            if self._life.logged:
                outcome = self._end("timeout")
                if outcome is not None and (outcome.state == "COMMITTED" or outcome.reason != "timeout"):
                    self._ended_elsewhere(outcome)
            self._release(error)
            raise


__all__ = ["Transaction"]
