"""The calls of a transaction's owner, as commands of the engine.

Those of one transaction have their turn: each sees what the one before it left. What is sent goes on to its end, also
where its caller was interrupted; what is not sent is withdrawn then, and was never called.
"""

from __future__ import annotations

import itertools
from collections.abc import Coroutine, Sequence
from typing import TYPE_CHECKING, Any, Final

from txnlog.client.transaction_base import TransactionBase
from txnlog.client.transaction_lifecycle import ENDED, UNANSWERED, Fate, Life, OwnerCall, Stage
from txnlog.client.truncation import OutOfDate, TruncatingCommit, Wanted
from txnlog.engine.effects import Cancelled, Effect, Result
from txnlog.errors import (
    AbortableError,
    Durable,
    FencedError,
    InvalidTransactionState,
    OutcomeUnknown,
    RetriableError,
    TxnLogError,
)
from txnlog.log.appender import Submitted
from txnlog.log.transaction_commands import CommitCommand, CommitResult, FlushCommand, PrepareCommand, Skipped
from txnlog.replies import IfUnknown, Replying, unknown_outcome
from txnlog.results import Committed
from txnlog.sentences import Call, Words

if TYPE_CHECKING:
    from txnlog.client.ledger import Receipt
    from txnlog.client.transaction_claims import Acknowledging
    from txnlog.engine.promises import Promise
    from txnlog.fold.state import Outcome
    from txnlog.format.actions import Acknowledgement, Segment, StreamBatch
    from txnlog.log.appender import Appender


_MOST_LOOKS: Final = 10
"""How often a commit that truncates is prepared again: others merge, and write checkpoints."""


class _Ending(Replying):
    """Around each way to end it. Rows that come meanwhile are refused, unless it turns out to be open still.

    A refusal says whether an earlier end, of unknown outcome, may be durable.
    """

    def __init__(self, transaction: TransactionBase) -> None:
        self._transaction = transaction

    def _reply(self, error: TxnLogError) -> TxnLogError:
        return self._transaction.reply(error)

    def __enter__(self) -> None:
        self._transaction.work.takes_rows = False

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        self._transaction.work.takes_rows = True
        super().__exit__(kind, error, trace)


class TransactionMachine(TransactionBase):
    """One transaction of this process, and what its owner may have done with it."""

    # --- a commit in the background ---------------------------------------------------------------------------------

    def answer(self, future: Promise[Committed], result: Result[Committed]) -> None:
        """A commit in the background came to its end."""
        self.forget_submitted(future)
        if isinstance(result.error, Cancelled):
            future.forget()  # the call itself was interrupted: nobody has the Future
        else:
            future.settle(result.value, result.error, self._follower.runtime.call_elsewhere)

    def refuse(self, future: Promise[Committed], error: TxnLogError) -> None:
        """A commit in the background could not begin. From any thread."""
        self.answer(future, Result(None, self.reply(error)))

    # --- work ---------------------------------------------------------------------------------------------------------

    async def check_open(self) -> None:
        """Raise the conflict with more work: it ended, timed out or was fenced, or its end has an unknown outcome."""
        async with self._turn:
            await self._check_open()

    async def spill(self, *, everything: bool) -> None:
        """Write the rows so far as segments, all or those of topics with many, so that they need no memory."""
        async with self._turn:
            await self._check_open()
            await self.work.stage(everything=everything)

    async def acknowledge(self, call: Acknowledging) -> None:
        """Claim what a consumer received."""
        async with self._turn:
            await self._check_open()
            shared = call.received_by.shared_subscription(call.receipt.ledger.subscription) is not None
            if self.claims.is_repeated(call):
                if shared:
                    await self._log_work()
                return
            with self.claims.acknowledging(call, self.work):
                await self._claim(call.wanted, call.receipt)
                if shared:
                    # At once, so that no other consumer receives them and an abort counts as a redelivery.
                    self.claims.log_at_once(call.wanted)
                    await self._log_work()

    async def acknowledge_ranges(self, wanted: list[Acknowledgement]) -> None:
        """Claim messages by their offsets."""
        async with self._turn:
            await self._check_open()
            await self._claim(wanted)

    async def _claim(self, wanted: Sequence[Acknowledgement], receipt: Receipt | None = None) -> None:
        try:
            await self.claims.claim(wanted, self.work, receipt)
        except (AbortableError, FencedError) as error:
            self._note_failed(OwnerCall.WORK, error)
            raise

    async def adopt_segments(self, segments: list[Segment]) -> None:
        """Add segments that were written elsewhere, but for those that it was given before."""
        async with self._turn:
            await self._check_open()
            self.work.add_segments(segments)

    async def set_stream(self, batch: StreamBatch) -> None:
        """Bind the commit to a micro-batch: a replay of it is skipped."""
        async with self._turn:
            await self._check_open()
            self.work.stream = batch

    async def truncate(self, topic: int, wanted: Wanted) -> None:
        """Have the earlier messages of a topic go with the commit."""
        async with self._turn:
            await self._check_open()
            self._opening.note_effect()
            self.work.truncate(topic, wanted)

    @property
    def must_get_ready(self) -> bool:
        """Whether a commit has to wait for anything but its entry. From any thread."""
        return self._turn.is_taken or self.work.needs_files or bool(self.work.truncated)

    async def get_ready(self) -> None:
        """Do all that a commit needs before its entry: whoever is called behind it does not overtake it then.

        Earlier calls for the transaction come to their end, and files are put. What refuses the commit, it says itself:
        a clock that jumps may show one time here and another one there.
        """
        async with self._turn:
            if self.life.stage is Stage.OPEN:
                self.work.collect()
                await self.work.stage(everything=False)
            if self.life.stage is Stage.OPEN or self.life.stage in UNANSWERED:
                await self.work.plan_truncations()

    async def flush(self) -> None:
        """Make the work so far durable and pending."""
        async with self._turn:
            await self._check_open()
            await self.work.stage(everything=True)
            if self.work.staged or self.work.acknowledged:
                await self._log_work()
            else:
                await self._follower.refreshing()  # who ended or fenced it is heard of here at the latest
                await self._check_open()

    async def _log_work(self) -> None:
        self._opening.start_clock()
        self.work.seal()
        command = FlushCommand(self._opening, tuple(self.work.staged), tuple(self.work.acknowledged))
        before = self.life
        try:
            left = await self._send(OwnerCall.FLUSH, command)
        except TxnLogError as error:
            # After a call without an answer (OutcomeUnknown) the next flush or commit leaves out what the log then
            # shows. Otherwise nothing of this call is there.
            if error.durable is Durable.NOTHING:
                self._settle(before, OwnerCall.FLUSH, Fate.NOTHING)
            await self._check_recorded(error, again=False)
            if isinstance(error, AbortableError | FencedError):
                await self._fail(OwnerCall.FLUSH, error)
            raise
        self._settle(before, OwnerCall.FLUSH, Fate.DONE)
        self.work.note_logged(left)
        self.claims.note_logged()

    # --- the end ------------------------------------------------------------------------------------------------------

    async def prepare(self) -> str:
        """Make the whole work durable, and wait for a decision from outside."""
        async with self._turn:
            with _Ending(self):
                return await self._prepare()

    async def _prepare(self) -> str:
        token = str(self._opening.id)
        if self.life.stage is Stage.PREPARED:
            return token
        if self.life.stage is Stage.PREPARE_UNKNOWN:
            self.check_owner()
        else:
            await self._check_open()
        if not self.may_prepare:
            raise InvalidTransactionState(
                f"the transaction {token} is committed at the end of ns.transact: nobody could decide about it",
                advice=Words("prepare() one of ", Call("begin"), " or of a producer's begin()"),
            )
        work = self.work
        if work.truncated:
            raise InvalidTransactionState(
                f"the transaction {token} truncates a topic, which cannot wait for others",
                advice="commit() it",
            )
        if work.stream is not None:
            raise InvalidTransactionState(
                f"the transaction {token} holds the micro-batch of a stream, which cannot wait for others",
                advice="commit() it",
            )
        await work.stage(everything=True)
        self._opening.start_clock()
        work.seal()
        work.settle()
        await self._log_prepare(
            PrepareCommand(self._opening, work.digest, tuple(work.staged), tuple(work.acknowledged))
        )
        work.clear()
        # The log shows what was acknowledged, so that nobody delivers it; if it is aborted, everybody may.
        self.claims.abort()
        return token

    async def _log_prepare(self, command: PrepareCommand) -> None:
        before = self.life
        try:
            with unknown_outcome(IfUnknown.PREPARE):
                await self._send(OwnerCall.PREPARE, command)
        except OutcomeUnknown:
            raise
        except TxnLogError as error:
            self._settle(before, OwnerCall.PREPARE, Fate.NOTHING)
            # A decision may have come before this answer.
            await self._check_recorded(error, again=before.stage in UNANSWERED)
            if isinstance(error, AbortableError | FencedError):
                await self._fail(OwnerCall.PREPARE, error)
            raise
        self._settle(before, OwnerCall.PREPARE, Fate.DONE)

    async def commit(self, *, in_background: bool = False, called_ms: float | None = None) -> Committed:
        """Commit. In the background, the handle may be closed meanwhile.

        ``called_ms``: the moment of the call, by the clock that never jumps; None for one that nobody measures.
        """
        try:
            result = await self._commit(in_background=in_background)
        except TxnLogError as error:
            self._commit_times.note_failed(error)
            raise
        if called_ms is not None:
            self._commit_times.note(self._follower.runtime.elapsed_ms() - called_ms)
        return result

    async def _commit(self, *, in_background: bool) -> Committed:
        async with self._turn:
            with _Ending(self):
                command = await self._commit_command(in_background=in_background)
                if command is None:
                    assert self.result is not None, "a transaction that needs no entry has its result"
                    return self.result
                before = self.life
                try:
                    try:
                        result = await self._sent_commit(before, command, in_background=in_background)
                    except TxnLogError as error:
                        result = await self._committed_all_the_same(before, command, error)
                    if isinstance(result, Skipped):
                        result = await self._own_end(before, result)
                except TxnLogError as end:
                    await self._note_not_committed(before, end)
                    raise
                if isinstance(result, Skipped):
                    await self._end_in_log("user")  # what an earlier flush logged is not wanted
                    self.claims.abort()
                return await self._end_committed(result)

    async def _sent_commit(self, before: Life, command: CommitCommand, *, in_background: bool) -> CommitResult:
        """Have a commit carried out. One that truncates is prepared again where others were ahead.

        Not in the background: commits that were called later would overtake it meanwhile, and their rows go with it.
        """
        for look in itertools.count(1):
            try:
                return await self._send(OwnerCall.COMMIT, command)
            except OutOfDate as error:
                if in_background or look == _MOST_LOOKS:
                    raise RetriableError(error.message, advice="commit() again", durable=Durable.NOTHING) from None
                self._settle(before, OwnerCall.COMMIT, Fate.NOTHING)
                await self.work.plan_truncations(again=True)
                command = self._command_of_work()
        raise AssertionError("counted to the end")

    async def _committed_all_the_same(self, before: Life, command: CommitCommand, error: TxnLogError) -> Outcome:
        """The end that only a checkpoint remembers, behind an error of this call. Otherwise raises that error."""
        with unknown_outcome(IfUnknown.COMMIT):
            outcome = await self._recorded(error, again=before.stage in UNANSWERED)
            if outcome is None:
                raise error
            return command.repeated(outcome, self._connection.producer_record(self._opening.producer))

    async def _own_end(self, before: Life, skipped: Skipped) -> CommitResult:
        """Who brought the batch before: perhaps this very commit, whose end only a checkpoint remembers."""
        if before.stage not in UNANSWERED:
            return skipped
        with unknown_outcome(IfUnknown.COMMIT):
            own = await self._outcome()
        return own if own is not None and own.state == "COMMITTED" else skipped

    async def _commit_command(self, *, in_background: bool) -> CommitCommand | None:
        """What to append; None where nothing must be. Stages big writes first, outside of any entry."""
        stage = self.life.stage
        if stage is Stage.COMMITTED:
            return None
        if not in_background:
            self.check_owner()
        if not self._takes(OwnerCall.COMMIT):
            raise await self._refused(OwnerCall.COMMIT)
        if stage is Stage.PREPARED:
            error = await self._take_over(await self._decided())
            if self.result is None:
                raise error
            return None
        if stage is Stage.FAILED:
            failed = self._has_failed()
            await self._abandon(failed)
            raise failed
        work = self.work
        if stage not in UNANSWERED:
            if (late := self._timed_out()) is not None:
                raise await self._end_timed_out(late)
            work.collect()
            if not self.life.logged and work.empty:
                self._check_not_fenced()
                earlier = self.committed_before()
                empty = Committed(self._opening.id, self._follower.version, {})
                self._note_committed(empty if earlier is None else self._connection.committed(earlier))
                return None
            await work.stage(everything=False)
            # In the background it is ready, and what is out of date by now would be overtaken by then.
            await work.plan_truncations(only_missing=in_background)
        work.settle()
        return self._command_of_work()

    def _command_of_work(self) -> CommitCommand:
        work = self.work
        parts = (
            self._opening,
            work.digest,
            tuple(work.pieces),
            tuple(work.staged),
            tuple(work.acknowledged),
            work.stream,
        )
        if work.truncated:
            assert len(work.truncations) == len(work.truncated), "they were planned"
            return TruncatingCommit(*parts, owned_topics=work.owned_topics, truncations=tuple(work.truncations))
        return CommitCommand(*parts, owned_topics=work.owned_topics)

    async def _note_not_committed(self, before: Life, error: TxnLogError) -> None:
        """Note what became of a commit that failed."""
        if isinstance(error, AbortableError | FencedError):
            await self._abandon(error)
        elif not isinstance(error, OutcomeUnknown):
            self._settle(before, OwnerCall.COMMIT, Fate.NOTHING)

    async def abort(self) -> None:
        """End without effect."""
        async with self._turn:
            with _Ending(self):
                await self._abort()

    async def _abort(self) -> None:
        stage = self.life.stage
        if stage is Stage.ABORTED:
            if self._connection.has_unlogged_abort(self._number):
                await self._end("user")  # an abort before this one did not reach the log
            self.claims.abort()
            return
        if not self._takes(OwnerCall.ABORT):
            raise await self._refused(OwnerCall.ABORT)
        self.check_owner()
        outcome = None
        if stage is Stage.PREPARED:
            outcome = await self._decided()
        elif self.life.logged or stage in UNANSWERED:
            # Where prepare() has no answer nobody heard that it succeeded: no outside system can rely on it.
            outcome = await self._end("user", force=stage is Stage.PREPARE_UNKNOWN)
        if outcome is not None and outcome.state == "COMMITTED":
            await self._ended_elsewhere(outcome)
        self._end_aborted(None)

    async def discard(self, cause: TxnLogError | None = None) -> bool:
        """Abort, unless a commit is under way or its outcome is unknown; never raises. For blocks that go wrong.

        Where the abort cannot be logged, this handle is through with it all the same: nobody else can commit it, and
        the abort is logged by whoever waits here for what it claims; otherwise the transaction times out.

        ``cause`` is for whoever calls something of it afterwards.

        Returns whether it was not committed, and will not be.
        """
        if self._is_for_others():
            return self.life.stage is Stage.ABORTED
        async with self._turn:
            if self._is_for_others():
                return self.life.stage is Stage.ABORTED
            try:
                with _Ending(self):
                    await self._abort()
            except TxnLogError as error:
                if self.life.logged:  # else the log shows nothing of it
                    self._abort_later("user", error)
                if self.life.stage not in ENDED:
                    self._end_aborted(None)
            self.cause = self.cause or cause
            return True

    def _is_for_others(self) -> bool:
        """Whether a block that goes wrong leaves it as it is: it ended, or its end was sent."""
        return self.submitted is not None or self.life.stage not in {Stage.OPEN, Stage.FAILED}


class CommitInBackground(Submitted[Committed]):
    """A commit that nobody waits for but by its Future.

    Args:
        appender: of its handle.
        machine: whose transaction it is.
        future: gets what comes of it.
        called_ms: the moment of the call, by the clock that never jumps.
    """

    __slots__ = ("_called_ms", "_future", "_machine")

    def __init__(
        self, appender: Appender, machine: TransactionMachine, future: Promise[Committed], called_ms: float
    ) -> None:
        super().__init__(appender)
        self._machine = machine
        self._future = future
        self._called_ms = called_ms

    def work(self) -> Coroutine[Effect[Any], Any, Committed]:
        """See Submitted."""
        return self._machine.commit(in_background=True, called_ms=self._called_ms)

    def done(self, result: Result[Committed]) -> None:
        """See Submitted."""
        self._machine.answer(self._future, result)


__all__ = ["CommitInBackground", "TransactionMachine"]
