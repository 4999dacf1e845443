"""What the calls of a transaction's owner have in common: its life, its work and claims, checks, sending, its ends.

The calls themselves are in :mod:`txnlog.client.transaction_machine`.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, NoReturn, TypeVar

from txnlog.client.transaction_claims import TransactionClaims
from txnlog.client.transaction_lifecycle import ENDED, TABLE, UNANSWERED, Fate, Life, OwnerCall, Stage
from txnlog.client.transaction_work import Rows, TransactionWork
from txnlog.engine.effects import GO_ON, Cancelled, Turn
from txnlog.engine.log_lines import LogLines
from txnlog.errors import (
    AbortableError,
    ConsumerFenced,
    CoordinatorFenced,
    Durable,
    FencedError,
    InvalidTransactionState,
    OutOfOrderSequence,
    RetriableError,
    StoreError,
    TransactionConflict,
    TransactionHasFailedOperation,
    TransactionNotFound,
    TransactionTimedOut,
    TxnLogError,
)
from txnlog.fold.producers import check_producer, committed_app
from txnlog.fold.state import Outcome
from txnlog.log.transaction_commands import AbortCommand, CommitResult, Skipped, ended_error, forgotten
from txnlog.replies import IfClosed, after_part, copy_of
from txnlog.results import Committed
from txnlog.sentences import Argument, Call, Words

if TYPE_CHECKING:
    from txnlog.client.connection import Connection
    from txnlog.engine.promises import Promise
    from txnlog.format.actions import AbortReason
    from txnlog.log.appender import Appender
    from txnlog.log.commands import Command
    from txnlog.log.follower import Follower
    from txnlog.log.transaction_commands import Opening

R = TypeVar("R")
_logger = LogLines("txnlog.transaction")

_Refused = TransactionConflict | OutOfOrderSequence | ConsumerFenced
"""An operation was refused, and the transaction has not ended by that."""


async def append_end(appender: Appender, follower: Follower, command: AbortCommand) -> Outcome:
    """Append an abort. An end that the log records is the answer instead, also one that only a checkpoint holds."""
    try:
        return await appender.carry_out(command)
    except (CoordinatorFenced, InvalidTransactionState, TransactionNotFound):
        outcome = await follower.recorded_outcome(command.txn)
        if outcome is None:
            raise
        return outcome


class TransactionBase:
    """One transaction of this process, and what the calls of its owner have in common: checks, sending, its ends.

    Attributes:
        life: the moment in its life.
        work: what it did.
        result: what its commit returned.
        cause: why it is FAILED or ABORTED, where that was no call of abort(); to raise, a copy.
        may_prepare: whether ``prepare()`` is allowed: not where somebody else commits it.
        submitted: the Future of a commit in the background, until that has come to its end.
    """

    def __init__(self, connection: Connection, opening: Opening) -> None:
        self.life = Life()
        session = connection.session
        self.work = TransactionWork(connection, session, opening.txn)
        self._claims: TransactionClaims | None = None
        self.result: Committed | None = None
        self.cause: TxnLogError | None = None
        self.may_prepare = True
        self._connection = connection
        self._number = opening.txn
        self._opening = opening
        self._appender = session.appender
        self._follower = session.follower
        self._commit_times = session.commit_times
        self._owner = connection.identity
        self._decision: Outcome | None = None
        self._turn = Turn()
        self.submitted: Promise[Committed] | None = None

    # --- from any thread ----------------------------------------------------------------------------------------------

    def reply(self, error: TxnLogError) -> TxnLogError:
        """The reply to an end that failed: an earlier one that was sent, and has no answer, may be durable.

        So may the work of a transaction that is prepared, which others may have committed since the handle was closed.
        """
        stage = self.life.stage
        may_be = stage in UNANSWERED or (stage is Stage.PREPARED and self._connection.is_closed)
        return after_part(error) if may_be else error

    def forget_submitted(self, future: Promise[Committed]) -> None:
        """Nobody commits it in the background any more for this Future."""
        if self.submitted is future:
            self.submitted = None

    @property
    def claims(self) -> TransactionClaims:
        """What it acknowledges."""
        if self._claims is None:  # most transactions of a producer have none
            self._claims = TransactionClaims(self._connection, self._number, self._opening)
        return self._claims

    def begin_in_child(self) -> None:
        """In a forked child: whose turn it is, and what is under way, is the parent's."""
        self._turn = Turn()
        self.submitted = None

    @property
    def takes_rows(self) -> bool:
        """Whether rows are part of it that are put into its work now: as long as nobody ends it."""
        return self.life.stage is Stage.OPEN and self.work.takes_rows and self.submitted is None

    def seems_open(self) -> bool:
        """Whether this process knows of no conflict with more work. It makes no request, and waits for nothing."""
        opening, state = self._opening, self._follower.state
        if not self.takes_rows or state.outcomes.get(self._number) is not None:
            return False
        if opening.producer is not None:
            record = state.producers.get(opening.producer)
            if record is None or record.epoch != opening.epoch:
                return False
        return opening.deadline_ms is None or self._follower.runtime.now_ms() < opening.deadline_ms

    def add(self, rows: Rows) -> bool:
        """Make rows a part of it. False where it takes none any more: ``check_open`` says why."""
        self._opening.note_effect()
        self.work.put(rows)
        return self.takes_rows or not self.work.take_back(rows)

    def known_outcome(self) -> Outcome | None:
        """How others ended it, as far as this process has read of it."""
        outcome = self._follower.state.outcomes.get(self._number)
        if outcome is not None:
            self._decision = outcome  # a checkpoint takes it out of memory
        return self._decision

    def committed_before(self) -> Skipped | None:
        """The commit that brought this version of its application, or a later one, as far as this client knows."""
        known = committed_app(self._follower.state, self._opening.app_id, self._opening.app_version)
        return None if known is None else Skipped(known.txn, known.version)

    def check_not_submitted(self) -> None:
        """Raise InvalidTransactionState where it is being committed in the background. From any thread."""
        if self.submitted is not None and self.life.stage not in ENDED:
            raise InvalidTransactionState(
                f"the commit of {self._opening.id} is under way", advice="begin a new transaction"
            )

    # --- checks -------------------------------------------------------------------------------------------------------

    async def _check_open(self) -> None:
        """Raise the conflict with more work; otherwise the work has all rows that were produced before."""
        self.check_owner()
        self.check_not_submitted()
        if not self._takes(OwnerCall.WORK):
            raise await self._refused(OwnerCall.WORK)
        outcome = self._follower.state.outcomes.get(self._number)
        if outcome is not None:
            await self._ended_elsewhere(outcome)
        self._check_not_fenced()
        if (late := self._timed_out()) is not None:
            raise await self._end_timed_out(late)
        self.work.collect()

    def _takes(self, call: OwnerCall) -> bool:
        """Whether the table of its life has a cell for this call: what comes often is no coroutine."""
        return call in TABLE[self.life.stage]

    async def _refused(self, call: OwnerCall) -> TxnLogError:
        """The refusal of a call for which the table has no cell."""
        stage = self.life.stage
        if stage is Stage.PREPARED:
            return await self._take_over(await self._decided())
        return self._refusal(stage, call)

    def _refusal(self, stage: Stage, call: OwnerCall) -> TxnLogError:
        txn = self._opening.id
        match stage:
            case Stage.COMMITTED:
                final = call is OwnerCall.ABORT
                advice = "it stays committed: nothing is left to do" if final else "begin a new transaction"
                return InvalidTransactionState(f"the transaction {txn} was committed", advice=advice)
            case Stage.ABORTED if self.cause is not None:
                return copy_of(self.cause)
            case Stage.ABORTED:
                return InvalidTransactionState(f"the transaction {txn} was aborted", advice="begin a new transaction")
            case Stage.FAILED:
                return self._has_failed()
        name, what = ("prepare", "prepare()") if stage is Stage.PREPARE_UNKNOWN else ("commit", "the commit")
        return InvalidTransactionState(
            f"the outcome of {what} of {txn} is unknown",
            advice=f"call {name}() again, or abort() to make it definite",
        )

    def check_owner(self) -> None:
        """Raise InvalidTransactionState unless it is of this process and its handle is open. From any thread."""
        self._connection.check_owner(self._owner, "transaction", self._if_closed)

    def _if_closed(self) -> str:
        """What to do about it where its handle was closed."""
        match self.life.stage:
            case Stage.COMMITTED:
                return IfClosed.COMMITTED
            case Stage.PREPARED:
                return IfClosed.PREPARED
            case Stage.PREPARE_UNKNOWN:
                return IfClosed.PREPARE_UNKNOWN
            case Stage.COMMIT_UNKNOWN:
                return IfClosed.COMMIT_UNKNOWN
            case Stage.COMMITTING:
                return IfClosed.COMMITTING
            case Stage.OPEN | Stage.FAILED if self.life.logged:
                return IfClosed.PENDING
        return IfClosed.NOTHING

    def _check_not_fenced(self) -> None:
        if self._opening.producer is None:
            return
        try:
            check_producer(self._follower.state.draft(), self._opening.producer, self._opening.epoch)
        except FencedError as error:
            self._end_aborted(error)
            raise

    def _timed_out(self) -> TransactionTimedOut | None:
        """The error where it is past its deadline."""
        try:
            self._opening.left_ms()
        except TransactionTimedOut as error:
            return error
        return None

    async def _end_timed_out(self, error: TransactionTimedOut) -> TxnLogError:
        """End it, past its deadline. Gives the error for who called: of the end that the log has, if it is another."""
        if self.life.logged:
            outcome = await self._end("timeout")
            if outcome is not None and (outcome.state == "COMMITTED" or outcome.reason != "timeout"):
                return await self._take_over(outcome)
        self._end_aborted(error)
        return error

    def _has_failed(self) -> TransactionHasFailedOperation:
        cause = self.cause
        assert cause is not None, "a stage that an error led to"
        advice = cause.advice if isinstance(cause, TransactionConflict) else None
        error = TransactionHasFailedOperation(
            f"an operation of the transaction {self._opening.id} failed: {cause.message}", advice=advice
        )
        error.__cause__ = copy_of(cause)
        return error

    # --- what is sent, and what becomes of it -------------------------------------------------------------------------

    async def _send(self, call: OwnerCall, command: Command[R]) -> R:
        """Have a command carried out. Until its fate is known, it may be in the log.

        Where its caller was interrupted before it was sent, nothing of it was done.
        """
        before = self.life
        self.life = before.after(call, Fate.SENT)
        try:
            # What was sent is settled, whoever waits for it.
            sent = self._appender.carry_out(command, in_background=self.submitted is not None, goes_on=True)
            if self._claims is None:
                return await sent
            with self._claims.under_way():
                return await sent
        except Cancelled:
            self._settle(before, call, Fate.NOTHING)
            raise
        except BaseException as error:
            unsent = isinstance(error, Exception) and not isinstance(error, TxnLogError)  # a bug: see Asked.answer
            self._settle(before, call, Fate.NOTHING if unsent else Fate.UNKNOWN)  # unless it turns out to be known
            if isinstance(error, Exception):
                await GO_ON
            raise

    def _settle(self, before: Life, call: OwnerCall, fate: Fate) -> None:
        """A call that began at ``before`` has this fate. An end that came meanwhile stays."""
        if self.life.stage not in ENDED:
            self.life = before.after(call, fate)

    async def _check_recorded(self, error: TxnLogError, *, again: bool) -> None:
        """Raise the end that only a checkpoint remembers, where that is what a refusal by the log comes from."""
        if isinstance(error, _Refused) and not again:
            return
        outcome = await self._recorded(error, again=again)
        if outcome is not None:
            await self._ended_elsewhere(outcome)

    async def _recorded(self, error: TxnLogError, *, again: bool) -> Outcome | None:
        """The end behind a refusal by the log, where only a checkpoint remembers it.

        ``again`` says that an earlier end was sent and has no answer. Raises TransactionNotFound where that is so and
        the number can have been used and forgotten: then a refusal proves nothing about the earlier one.
        """
        if isinstance(error, RetriableError | StoreError):
            return None
        outcome = await self._outcome()
        if outcome is None and again and self._connection.may_have_ended(self._number):
            raise forgotten(self._opening.id, Durable.MAYBE) from error
        return outcome

    async def _outcome(self) -> Outcome | None:
        return await self._follower.recorded_outcome(self._number)

    async def _fail(self, call: OwnerCall, error: AbortableError | FencedError) -> None:
        """An operation was refused by the log: the transaction can only be aborted, or has ended."""
        if isinstance(error, _Refused):
            self._note_failed(call, error)
        else:
            await self._abandon(error)

    def _note_failed(self, call: OwnerCall, error: TxnLogError) -> None:
        """Note that it can only be aborted; it keeps what it claimed until then."""
        self.life, self.cause = self.life.after(call, Fate.REFUSED), copy_of(error)

    # --- how it ends --------------------------------------------------------------------------------------------------

    async def _decided(self) -> Outcome:
        """How others ended it since it was prepared. Raises InvalidTransactionState as long as nobody has."""
        await self._follower.refreshing()
        outcome = self._decision or await self._outcome()
        if outcome is not None:
            return outcome
        if self._connection.may_have_ended(self._number):
            raise forgotten(self._opening.id, Durable.MAYBE)
        raise InvalidTransactionState(
            f"the transaction {self._opening.id} is PREPARED, and nobody has decided about it: this TxnID is its token",
            advice=Words("use ", Call("complete", "token", Argument("commit", ...))),
        )

    async def _ended_elsewhere(self, outcome: Outcome) -> NoReturn:
        """Take over the end that the log records, and raise it: the owner wanted another one."""
        raise await self._take_over(outcome)

    async def _take_over(self, outcome: Outcome) -> TxnLogError:
        """The end that the log records is this handle's from here on; gives the error for who wanted another one."""
        error = ended_error(outcome, self._opening, self._connection.producer_record(self._opening.producer))
        if outcome.state == "COMMITTED":
            await self._end_committed(outcome)
        else:
            self._end_aborted(error)
        return error

    async def _end_committed(self, result: CommitResult) -> Committed:
        subscriptions = {} if self._claims is None else self._claims.subscriptions
        shown = partial(self._connection.committed, result, subscriptions)
        is_known = not isinstance(result, Outcome) or subscriptions.keys() >= set(result.dropped_subscriptions)
        return self._note_committed(shown() if is_known else await self._follower.runtime.job(shown))

    def _note_committed(self, result: Committed) -> Committed:
        self.result, self.life = result, self.life.ended(Stage.COMMITTED)
        if self._claims is not None:
            self._claims.drop()
        self.work.clear()
        if result.dropped:
            _logger.warning(
                "%s was committed. Its rows and acknowledgements for what was dropped meanwhile were left out: %s. The "
                "rest took effect, acknowledgements of other topics included. If a subscription of these is created "
                "again, it delivers their messages again.",
                self._opening.id,
                ", ".join(map(str, result.dropped)),
            )
        return result

    async def _abandon(self, error: TxnLogError) -> None:
        """End a transaction that can commit no more, also in the log where that may show it, and remember why."""
        if self.life.state == "OPEN":
            await self._end_in_log("failed")
            self._end_aborted(error)

    async def _end(self, reason: AbortReason, *, force: bool = False) -> Outcome | None:
        """End it in the log. None where a flush of unknown outcome was not logged, and never will be (closed block)."""
        try:
            return await append_end(self._appender, self._follower, AbortCommand(self._number, reason, force=force))
        except TransactionNotFound:
            if self.life.stage in UNANSWERED:
                raise  # it may have been committed, and the outcome forgotten
            return None

    async def _end_in_log(self, reason: AbortReason) -> None:
        """Release what it claims in the log: now if the store answers, and otherwise later."""
        if not self.life.logged:
            return
        try:
            await append_end(self._appender, self._follower, AbortCommand(self._number, reason))
        except TxnLogError as error:
            self._abort_later(reason, error)

    def _abort_later(self, reason: AbortReason, error: TxnLogError) -> None:
        _logger.warning(
            "The abort of %s could not be written. It will be retried; otherwise the transaction times out.",
            self._opening.id,
            exc_info=error,
        )
        self.claims.note_unlogged_abort(reason)

    def _end_aborted(self, error: TxnLogError | None) -> None:
        """It is ABORTED for its owner from here on; nothing is sent."""
        self.cause, self.life = copy_of(error), self.life.ended(Stage.ABORTED)
        self.work.clear()
        if self._claims is not None:
            self._claims.abort()


__all__ = ["TransactionBase", "append_end"]
