"""A transaction in the hands of its owner: what it takes, makes durable, and how it ends."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from concurrent.futures import Future
from functools import partial
from types import TracebackType
from typing import TYPE_CHECKING, Any, TypeVar

from txnlog.api.messages import Messages, checked
from txnlog.client.row_placement import place
from txnlog.client.transaction_claims import Acknowledging
from txnlog.client.transaction_lifecycle import ENDED, UNANSWERED, Stage
from txnlog.client.transaction_machine import CommitInBackground, TransactionMachine
from txnlog.client.transaction_work import Rows
from txnlog.client.truncation import Wanted, check_feature
from txnlog.common.ids import TxnId
from txnlog.common.unpicklable import ProcessBound
from txnlog.common.validation import truth
from txnlog.engine.effects import Effect
from txnlog.engine.promises import Promise
from txnlog.errors import OutcomeUnknown, RetriableError, TxnLogError
from txnlog.fold.sequences import check_end
from txnlog.fold.state import TransactionState
from txnlog.log.transaction_commands import Opening
from txnlog.replies import Replying, advising, copy_of
from txnlog.results import Committed

if TYPE_CHECKING:
    from txnlog.client.connection import Connection

R = TypeVar("R")


class Transaction(ProcessBound):
    """One transaction over any number of topics and subscriptions of a namespace. Thread-safe.

    As a context manager it commits at the end of the block, and raises there what the commit raises; an exception
    inside the block aborts it, and so does a commit that fails: no block leaves it open, unless its outcome is unknown
    (``OutcomeUnknown``: ``commit()`` again, or ``abort()``). Nothing of it is visible before it is committed, all of it
    is afterwards.
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
        session = connection.session
        self._runtime = session.runtime
        self._id = session.txn_id(number)
        # Nothing here holds a reference to this object: a cycle would leave it to the garbage collector.
        self._opening = Opening(
            self._id,
            self._runtime.now_ms,
            producer,
            epoch,
            app_id,
            app_version,
            timeout_ms=timeout_ms,
            timed_from_log=timed_from_log,
        )
        self._appender = session.appender
        self._owner = connection.identity
        self._machine = TransactionMachine(connection, self._opening)

    # --- what it is -------------------------------------------------------------------------------------------------

    @property
    def id(self) -> TxnId:
        """The 128-bit TxnID. Note it to ask for the outcome after a crash: ``ns.transaction(id)``, ``ns.abort(id)``."""
        return self._id

    @property
    def result(self) -> Committed | None:
        """What the commit returned, as :class:`txnlog.Committed`; None before."""
        return self._machine.result

    @property
    def state(self) -> TransactionState:
        """OPEN, PREPARED, COMMITTED or ABORTED, as far as this handle knows: it makes no request.

        A transaction whose commit has no answer, or was interrupted, is OPEN until the handle has read how it ended.
        """
        life = self._machine.life
        if life.stage is Stage.PREPARED or life.stage in UNANSWERED:
            outcome = self._machine.known_outcome() if self._is_of_this_process else None
            if outcome is not None:
                return outcome.state
        return life.state

    @property
    def skipped(self) -> bool:
        """Whether the log shows that this txn_version (or a later one) of the app was committed before."""
        result = self._machine.result
        if result is not None:
            return result.skipped  # its own commit is none before it
        opening = self._opening
        if not opening.shown_skipped:
            opening.shown_skipped = self._connection.committed_before(opening.app_id, opening.app_version) is not None
        return opening.shown_skipped

    def __repr__(self) -> str:
        return f"Transaction({self.id}, {self.state})"

    def __enter__(self) -> Transaction:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            self._end_block(kind, error)
        except BaseException:
            self._discard_soon()  # an interrupt may have come before anything else
            raise

    def _end_block(self, kind: type[BaseException] | None, error: BaseException | None) -> None:
        life, cause = self._machine.life, self._machine.cause
        if kind is not None:
            self._leave(error)
        elif life.state == "OPEN":
            try:
                self.commit()
            except BaseException as refusal:
                self._leave(refusal)  # nobody calls commit() again: what it acknowledged would stay claimed for nothing
                raise
        elif life.stage is Stage.ABORTED and cause is not None:
            raise copy_of(cause)  # somebody else ended it, and the block went on: its end is no commit

    # --- the way into the engine ------------------------------------------------------------------------------------

    @property
    def _is_of_this_process(self) -> bool:
        """Whether it was begun in this process, and not in the one that this was forked from."""
        return self._owner is self._connection.identity

    def _enter(self) -> None:
        """Raise InvalidTransactionState in a forked child, unless it ended before: its end stands."""
        if not self._is_of_this_process:
            if self._machine.life.stage not in ENDED:
                self._connection.check_owner(self._owner, "transaction")
            self._machine.begin_in_child()

    def _run(self, command: Callable[[], Coroutine[Effect[Any], Any, R]]) -> R:
        self._enter()
        return self._appender.run(command, (self._id.number,))

    def _add(self, command: Callable[[], Coroutine[Effect[Any], Any, R]]) -> R:
        """Run a command that adds to it."""
        self._machine.check_not_submitted()
        return self._run(command)

    # --- work -------------------------------------------------------------------------------------------------------

    def produce(self, topic: str, data: Any, partition: int | None = None, *, sequence: int | None = None) -> None:
        """Add rows. They are checked and copied now, and durable at ``flush()`` or the commit.

        Later changes to ``data`` do not reach them, nor to the memory that an Arrow table lies over.

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
        machine = self._machine
        self._check_open()
        named = self._opening.producer is not None
        pieces = place(self._connection, topic, data, partition, sequence, named=named)
        for piece in pieces:
            if piece.sequence is not None:
                check_end(self._opening.producer, piece.partition, piece.sequence, piece.rows)
        if not pieces:
            return
        if machine.work.is_full:
            self._add(partial(machine.spill, everything=True))  # where the store fails, this call adds nothing
        rows = Rows(pieces)
        while not machine.add(rows):
            self._add(machine.check_open)  # raises, unless the end that refused them failed meanwhile

    def _check_open(self) -> None:
        """Raise the conflict with more work. It waits only where this process may know of one."""
        self._enter()
        if not (self._is_of_this_process and not self._connection.is_closed and self._machine.seems_open()):
            self._add(self._machine.check_open)

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
        self._check_open()
        found = checked(messages)
        wanted = found._acknowledgements(self._connection, cumulative=cumulative)
        if not wanted:
            return
        call = Acknowledging(wanted, found._receipt(cumulative=cumulative), found._connection)
        with self._connection.naming_dropped():
            try:
                self._add(partial(self._machine.acknowledge, call))
            except TxnLogError:
                raise
            except BaseException:
                self._machine.claims.note_interrupted(call)
                raise

    def truncate(self, topic: str, *, allow_unacknowledged: bool = False) -> None:
        """With the commit, all earlier messages of a topic are gone. What this transaction produces there stays.

        So ``truncate`` and ``produce`` in one transaction replace the content of a topic, and of any number of topics
        at once: no reader sees an empty one, or two contents. Earlier versions show the earlier messages until a
        :meth:`Namespace.vacuum` deletes their files; offsets do not change, and consumers go on behind the messages
        that are gone. What others commit before it goes, too, and the commit has an entry of the log by itself. Needs
        the feature ``holes``.

        Args:
            topic: a topic of the namespace. The same call again changes ``allow_unacknowledged``.
            allow_unacknowledged: also what a subscription has not acknowledged, and this transaction does not
                acknowledge either. Without it the commit raises InvalidInputError then, and nothing is written.

        Raises:
            UnsupportedFeature: the namespace does not have the feature.
            TopicNotFound: with the nearest name.
            ProducerFenced, TransactionTimedOut, TransactionAborted: the transaction has ended.
        """
        self._truncate(topic, Wanted(truth("allow_unacknowledged", allow_unacknowledged)))

    def _truncate(self, topic: str, wanted: Wanted) -> None:
        self._check_open()
        record = self._connection.topic_handle(topic).record
        check_feature(self._connection, "truncating a topic")
        self._add(partial(self._machine.truncate, record.id, wanted))

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
        self._add(self._machine.flush)

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
        return self._add(self._machine.prepare)

    def _refuse_prepare(self) -> None:
        """Refuse ``prepare()`` from here on: whoever runs the transaction commits it."""
        self._machine.may_prepare = False

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
        machine = self._machine
        submitted = machine.submitted
        if machine.life.stage in ENDED:
            return self._run(machine.commit)
        self._enter()
        if submitted is not None:
            return submitted.result()
        commit = partial(machine.commit, called_ms=self._runtime.elapsed_ms())
        return self._appender.run_with_next(commit, (self._id.number,))

    def commit_async(self) -> Future[Committed]:
        """Commit in the background; concurrent commits share an entry, in the order of the calls.

        So the call itself waits for earlier calls of its transaction, and puts the files that the commit needs. One
        that truncates a topic is not prepared again later, as commit() does: where a checkpoint was written between the
        call and its entry, its Future raises RetriableError, and nothing is logged of it. Commit again, which then
        comes behind what was committed meanwhile.

        The Future gives what commit() gives, and raises what that raises: see :meth:`commit`. What was submitted is
        finished by ``ns.close()`` and when the process ends by itself. Failures whose Future nobody asked are reported
        to Python's logging then. In a child that multiprocessing forked nothing of Python's ``atexit`` is called: it
        reports none, and what its threads submit when its target has returned may be lost without a word. Call
        ``result()`` or ``ns.close()`` at the end of the target.

        While it is under way, ``commit()`` waits for it, and a second call gives the same Future: two of them could be
        answered differently. Callbacks of Futures are called one after the other, in a thread of their own: they may
        call anything, and wait for other Futures by ``result()``, since those get their results elsewhere; not by their
        callbacks, as asyncio does, which are called behind this one.
        """
        self._enter()
        machine = self._machine
        future: Promise[Committed] = Promise(self._runtime.call_back)
        future.set_running_or_notify_cancel()  # what is on its way into the log cannot be cancelled
        try:
            if machine.submitted is None and machine.result is None and machine.must_get_ready:
                # Here, so that whoever is called next does not overtake it, and the rows of one who commits fast do not
                # fill the memory.
                self._run(machine.get_ready)
            if machine.submitted is not None:
                future.forget()
                return machine.submitted
            if machine.result is not None:
                future.set_result(machine.result)
                return future
            machine.check_owner()
            machine.submitted = future
            called_ms = self._runtime.elapsed_ms()
            self._appender.submit(CommitInBackground(self._appender, machine, future, called_ms))
        except TxnLogError as error:
            machine.refuse(future, error)
        except BaseException:
            machine.forget_submitted(future)
            future.forget()
            raise
        return future

    def abort(self) -> None:
        """End without effect; repeated it is fine. What it acknowledged is delivered again.

        Raises:
            InvalidTransactionState: it was committed, or it is PREPARED and nobody has decided about it.
            OutcomeUnknown: the store did not answer; abort() again, or ns.abort(txn.id), makes it definite.
        """
        self._run(self._machine.abort)

    def _discard(self, cause: TxnLogError | None = None) -> bool:
        """Abort, unless a commit is under way or its outcome is unknown; never raises. For blocks that go wrong.

        ``cause`` is for whoever calls something of it afterwards.

        Returns whether it was not committed, and will not be.
        """
        if not self._is_of_this_process:
            return False  # it is the parent's
        return self._appender.run(partial(self._machine.discard, cause), (self._id.number,), goes_on=True)

    def _discard_soon(self) -> None:
        """``_discard``, without waiting for it."""
        if self._is_of_this_process:
            self._runtime.engine.post(self._machine.discard)

    def _leave(self, error: BaseException | None) -> None:
        """The end of a block that goes wrong: ``discard``. For what says to call again raises what says to begin again.

        Unless that is about something else: a call with an unknown outcome that is not of this transaction.
        """
        if self._discard():
            Replying(self._advising_to_begin).__exit__(type(error), error, None)

    def _advising_to_begin(self, error: TxnLogError) -> TxnLogError:
        if isinstance(error, OutcomeUnknown):
            own = error.txn_ids == (str(self._id),)
        else:
            own = type(error) is RetriableError  # others know better what to wait for
        return advising(error, "begin the block again: its transaction was aborted") if own else error

    @property
    def _is_pending(self) -> bool:
        """Whether the log may show it, and not as ended."""
        ended = self.state == "ABORTED" and not self._connection.has_unlogged_abort(self._id.number)
        return self._machine.life.logged and not ended


__all__ = ["Transaction"]
