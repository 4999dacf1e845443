"""Compare-and-append: commands of one client become entries, several in one (PROTOCOL.md, "Appending").

All but what callers do ("for callers") happens in the engine, so nothing here needs a lock. As long as there are
commands, one entry after the other is appended with all that queued up meanwhile (group commit). One entry is under way
per client; an entry whose outcome is unknown is put again, byte for byte, before anything else.

A command whose caller was interrupted (Ctrl-C) is withdrawn, unless it is on its way into the log: then it goes on.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from types import MappingProxyType
from typing import Any, Final, Generic, Protocol, TypeVar

from txnlog.common.limits import RENEW_AFTER_MS
from txnlog.common.writer_text import writer_text
from txnlog.engine.admission import Admission
from txnlog.engine.effects import Effect, Reply, Result
from txnlog.engine.engine import Work
from txnlog.engine.log_lines import LogLines
from txnlog.engine.runtime import Runtime
from txnlog.engine.worker import refuse_after_end
from txnlog.errors import CalledInItsOwnWork, Durable, StoreError, TxnLogError, UnsupportedFeature
from txnlog.fold.apply import begin_entry, check_writable
from txnlog.fold.number_blocks import is_used
from txnlog.fold.state import Draft
from txnlog.format import keys
from txnlog.format.actions import AbortReason, AnyAction, Header
from txnlog.format.codec import Entry, decode_entry
from txnlog.log.append_errors import answer_of, no_numbers, note_interrupted
from txnlog.log.append_queue import Append, AppendQueue, Asked, Ride
from txnlog.log.commands import ONE_RENEWAL, Command, Piece, effect
from txnlog.log.entry_riders import EntryRiders
from txnlog.log.follower import Follower
from txnlog.log.group_commit import Attempt, MadeEntry, Needed, SharedWave
from txnlog.log.number_pool import NumberPool, NumbersWanted
from txnlog.log.proposals.collector import Collector
from txnlog.log.proposals.proposer import Proposer
from txnlog.log.proposals.races import Races
from txnlog.log.slots import CREATE_ATTEMPTS, occupy
from txnlog.replies import Replying, copy_of, not_sent
from txnlog.store.base import Store

R = TypeVar("R")
T = TypeVar("T")
_logger = LogLines("txnlog.appender")

_MAX_STEPS = 4_000
"""Looks at a batch and lost races before one entry; somebody wins every race, so this bounds a broken store only."""

_RACES_BEFORE_CATCHING_UP = 2
"""Once the entry that won is applied anyway; who loses again is behind a stream of them, and reads all there are."""

_ENCODED_HERE_BYTES: Final = 16 << 10
"""Rows of a size whose encoding takes less than half a millisecond, which other commands can wait."""

_COMPANY_LOOKS = 10
_COMPANY_PAUSE_MS = 0.2
"""Together less than what an entry costs even on a fast disk."""


class SharedSegments(Protocol):
    """Makes the segments that an entry's commits share; implemented where Parquet is written."""

    def build(self, draft: Draft, pieces: list[tuple[int, Piece]], numbers: NumberPool, /) -> SharedWave | None:
        """Files for ``(txn, piece)`` in commit order, without dropped topics; None where numbers are missing."""


@dataclass(frozen=True, slots=True)
class _Unresolved:
    """An entry that was sent and whose slot nobody has read since; the transactions in it."""

    version: int
    data: bytes
    txn_ids: frozenset[int]


class Submitted(Generic[R]):
    """A task in the background, which ``close`` waits for: one object, since there are many under way.

    Args:
        appender: whose.
    """

    __slots__ = ("_appender",)

    def __init__(self, appender: Appender) -> None:
        self._appender = appender

    def work(self) -> Coroutine[Effect[Any], Any, R]:
        """Make its coroutine. In the engine."""
        raise NotImplementedError

    def done(self, result: Result[R]) -> None:
        """It came to its end, or never began. In the engine."""
        raise NotImplementedError

    def begin(self) -> Coroutine[Effect[Any], Any, R]:
        """For the engine."""
        self._appender._submitted.add(self)
        return self.work()

    def end(self, result: Result[R]) -> None:
        """For the engine."""
        self._appender._submitted.discard(self)
        self._appender._rest.give(None)
        self.done(result)


class Appender:
    """The one writer of a handle. Thread-safe.

    Attributes:
        writer: the id of this writer in headers and blocks.
        numbers: its pool of numbers.
        counts: what it met while it appended.
        create_attempts: puts of the same bytes at one slot before the outcome is reported as unknown. Fewer only
            make the question come sooner: an outcome that is unknown then is settled by whoever asks next.
    """

    def __init__(
        self,
        follower: Follower,
        store: Store,
        runtime: Runtime,
        shared: SharedSegments,
        *,
        min_commit_interval_ms: int = 0,
        before_append: Callable[[], Callable[[], None] | None] = lambda: None,
        before_put: Callable[[], None] = lambda: None,
        after_append: Callable[[], None] = lambda: None,
        riders: Callable[[Draft], Sequence[AnyAction]] = lambda _draft: (),
        unlogged_aborts: Mapping[int, AbortReason] = MappingProxyType({}),
        client: str = "",
    ) -> None:
        self.writer = runtime.unique()
        self.numbers = NumberPool(writer_text(self.writer, client), lambda number: is_used(follower.state, number))
        self.create_attempts = CREATE_ATTEMPTS
        self._follower = follower
        self._store = store
        self._runtime = runtime
        self._shared = shared
        self._min_interval_ms = min_commit_interval_ms
        self._before_append = before_append
        self._before_put = before_put
        self._after_append = after_append
        self._races = Races(follower, store, runtime, self.writer)
        self.counts = self._races.counts
        self._proposer = Proposer(follower, store, runtime, self.writer, self.numbers, self._races)
        self._riders = EntryRiders(self.numbers, riders, unlogged_aborts, self._proposer.retractions)
        self._collector = Collector(follower, store, runtime, self.writer, self._races)
        self._queue = AppendQueue(self._wake)
        self._is_appending = False
        self._attempts: list[Attempt[Asked]] = []
        follower.on_applied = self._settle_proposed
        self._admission = Admission(self._wake, lambda: self._is_appending)
        self._submitted: set[Submitted[Any]] = set()
        self._has_submitted = False
        self._rest: Reply[None] = Reply()
        self._closed: TxnLogError | None = None
        self._unresolved: _Unresolved | None = None
        self._last_append_ms = -1e12
        self._shown_ms = runtime.now_ms()

    # --- for callers ------------------------------------------------------------------------------------------------

    def call(self, command: Command[R]) -> R:
        """Carry out a command and wait for it. Raises its refusal, OutcomeUnknown, or what the store says."""
        return self.run_with_next(partial(self._carry_out, command), command.txn_ids)

    async def _carry_out(self, command: Command[R]) -> R:
        return await self.carry_out(command)

    def run(
        self,
        work: Work[R],
        txn_ids: Iterable[int] = (),
        *,
        through: Callable[[Callable[[], None]], None] | None = None,
        undo: Callable[[], object] | None = None,
        goes_on: bool = False,
    ) -> R:
        """Run a task of the engine that may append something, and wait for it.

        Args:
            work: makes its coroutine.
            txn_ids: numbers of the transactions that it is about: what interrupts the wait says how to ask for them.
            through: how it gets into the engine; by default at once.
            undo: for a task without effect where the wait is interrupted: called in the engine where it came to its
                end before. Such a one is about no transaction, and need not go on.
            goes_on: whether it runs to its end, also where the wait is interrupted.
        """
        if self._runtime.is_working:
            raise CalledInItsOwnWork
        engine = self._runtime.engine
        if undo is not None:
            assert not txn_ids, "it has no effect"
            assert not goes_on, "it has no effect"
            return engine.call(work, through=through, undo=undo)
        interrupted = partial(self._note_interrupted, txn_ids)
        return engine.call(work, through=through, interrupted=interrupted, goes_on=goes_on)

    def run_with_next(self, work: Work[R], txn_ids: Iterable[int]) -> R:
        """``run`` a task that appends something, when the next entry is made."""
        return self.run(work, txn_ids, through=self._admission.add)

    def _note_interrupted(self, txn_ids: Iterable[int], error: BaseException) -> None:
        if not isinstance(error, CalledInItsOwnWork):
            note_interrupted(error, map(self._follower.state.txn_id, txn_ids))

    def submit(self, submitted: Submitted[Any]) -> None:
        """Run a task of the engine in the background, when the next entry is made. ``close`` waits for it.

        Raises what refuses new tasks.
        """
        if self._closed is not None:
            raise copy_of(self._closed)
        refuse_after_end()
        self._has_submitted = True
        self._runtime.engine.post(submitted.begin, submitted.end, through=self._admission.add)

    def ride(self, command: Command[object]) -> Ride:
        """Let a command go along with whatever this handle appends next. Nobody may wait for it: that may be never."""
        return self._queue.ride(command)

    def take_numbers(self, count: int = 1) -> list[int]:
        """Numbers of this writer's blocks, reserving a block where there are too few.

        After a long silence the block is renewed first: a number that is given out may be used for a while yet.
        """
        # What is reserved for a caller who was interrupted is the pool's: nothing takes effect of his call.
        reserve = partial(self.run, through=self._admission.add, undo=lambda: None)
        with _OF_NUMBERS:
            if self._runtime.now_ms() - self._shown_ms >= RENEW_AFTER_MS and self.numbers.has_any():
                reserve(partial(self._carry_out, _life_wanted()))
            while True:
                taken = self.numbers.take(count)
                if taken is not None:
                    return taken
                self.numbers.demand(count)
                reserve(partial(self._carry_out, NumbersWanted(self.numbers)))

    def close(self, error: TxnLogError) -> None:
        """Nothing new from here on. What waits is appended yet; where the store fails, it gets the error.

        Closing again goes on where an interrupt ended it.
        """
        if self._runtime.is_working:
            raise CalledInItsOwnWork
        self._runtime.engine.call(partial(self._close, error))
        if self._has_submitted:  # else callbacks are other handles'
            self._runtime.wait_for_callbacks()

    async def _close(self, error: TxnLogError) -> None:
        self._closed = self._closed or error
        while True:
            self._begin()
            if not (self._is_appending or self._submitted or self._queue or self._admission):
                break
            if self._rest.result is not None:
                self._rest = Reply()
            await self._rest
        self._queue.refusal = self._closed
        await self._proposer.close()

    # --- in the engine ----------------------------------------------------------------------------------------------

    def may_land(self, txn: int) -> bool:
        """Whether an entry of a transaction was sent whose slot nobody has read since, or a proposal is out."""
        sent = self._unresolved
        if sent is not None and txn in sent.txn_ids and sent.version > self._follower.version:
            return True
        return txn in self._proposer.open_txn_ids()

    def carry_out(self, command: Command[R], *, in_background: bool = False, goes_on: bool = False) -> Effect[R]:
        """Carry out a command with one of the next entries; to be awaited (see Append). Raises as ``call`` does."""
        return Append(self._queue, command, in_background=in_background, goes_on=goes_on)

    def _wake(self) -> None:
        """Have entries appended, behind the steps that wait already: they may bring more for the first one."""
        if not self._is_appending:
            self._runtime.engine.step(self._begin)

    def _begin(self) -> None:
        if (self._queue or self._admission) and not self._is_appending:
            self._is_appending = True
            # Whoever's work goes on at the end of the process keeps it: this goes on as long as others bring more.
            self._runtime.engine.post(self._append_all, keeps_process=False)

    async def _append_all(self) -> None:
        """Append one entry after the other, as long as commands wait."""
        try:
            while self._queue or self._admission or (self._collector.collects and self._closed is None):
                if not await self._append_next() and self._closed is not None:
                    self._queue.fail(self._closed)
            if self._collector.collects:
                await self._collector.resign()
        finally:
            self._is_appending = False
            self._rest.give(None)
            self._begin()  # for what came since the last look

    async def _append_next(self) -> bool:
        """Append one entry with whatever waits. False where the store failed."""
        await self._gather()
        await self._collector.make_place()
        collects = self._collector.collects and not self._queue.is_next_by_itself
        others = await self._collector.collect(self._waiting_commands) if collects else []
        self._admission.run()
        attempt = self._queue.take_batch()
        if others and attempt is not None and attempt.is_by_itself:
            self._queue.put_back(attempt.members)  # what was collected comes first: it would not be collected again
            attempt = None
        if attempt is None:
            if not others:
                return True
            attempt = Attempt(())
        attempt.add(others)
        attempt.knew_the_end = self._races.knows_the_end
        try:
            await self._resolve_outcome()
            await self._append_batch(attempt)
        except BaseException as error:  # noqa: BLE001 - a bug, too, must reach every caller: else they wait for ever
            self._fail(attempt, error)
            return False
        else:
            self._maintain()
            return True
        finally:
            self._last_append_ms = self._runtime.elapsed_ms()

    def _waiting_commands(self) -> list[Command[Any]]:
        self._admission.run()
        return self._queue.commands()

    async def _check(self) -> None:
        """Look whether this may be appended to: before anything is sent."""
        check = self._before_append()
        if check is not None:
            with not_sent():
                await self._runtime.job(check, appends=False)

    async def _gather(self) -> None:
        """Let commands gather: as the handle's option says, or as full an entry as the last one of the background."""
        left_ms = self._last_append_ms + self._min_interval_ms - self._runtime.elapsed_ms()
        if self._min_interval_ms and left_ms > 0:
            await self._runtime.pause(left_ms)
        seen = 0
        for _ in range(_COMPANY_LOOKS):
            self._admission.run()
            if not self._queue.expects_company(seen):
                return
            seen = len(self._queue)
            await self._runtime.pause(_COMPANY_PAUSE_MS)

    def _maintain(self) -> None:
        try:
            self._after_append()
        except Exception:
            _logger.exception("The maintenance after an append failed. The append itself is done.")

    def _fail(self, attempt: Attempt[Asked], error: BaseException) -> None:
        """Answer everybody who waits with what is known: outcome unknown for a sent entry, the error for others."""
        self._answer_settled(attempt)
        state = self._follower.state
        unresolved = self._proposer.open_txn_ids()
        if self._unresolved is not None:
            unresolved |= self._unresolved.txn_ids
        members = [member for member in attempt.members if member.reply is None]
        for member in members:
            txns = member.command.txn_ids
            may_land = member in attempt.sent or not unresolved.isdisjoint(txns)
            answer = answer_of(error, map(state.txn_id, txns), may_land=may_land)
            member.answer(None, copy_of(answer) if answer is error and len(members) > 1 else answer)

    def _answer_settled(self, attempt: Attempt[Asked]) -> None:
        """Who asks again for what the log shows by now hears that, and not what his asking failed of."""
        draft = self._follower.state.draft()
        attempt.answer_settled(draft, self._next_header(draft))
        self._complete_all(attempt)

    def _next_header(self, draft: Draft) -> Header:
        """For answers of the log alone. No clock is asked: that may be what failed."""
        head = draft.head
        return Header(head.version + 1, self.writer, head.timestamp_ms, head.digest)

    async def _resolve_outcome(self) -> None:
        """Before anything new: settle the entry that was sent and not heard of."""
        sent = self._unresolved
        if sent is None:
            return
        await self._check()
        if await self._put_entry(sent):
            own = decode_entry(sent.data, sent.version)
            self._follower.apply_entry(own)
            self._unresolved = None
            self.numbers.add_own(own.actions)

    async def _propose(self, attempt: Attempt[Asked]) -> None:
        """Have somebody who collects bring the commands into the log; whoever is left then races."""
        if not self._collector.collects and self._proposer.wants(attempt):
            await self._check()
            await self._proposer.propose(attempt)

    def _settle_proposed(self) -> None:
        """An entry was applied: it may hold what was proposed. At once, as a state may forget outcomes later."""
        if self._attempts and self._proposer.awaits:
            self._proposer.add_numbers()
            draft = self._follower.state.draft()
            for attempt in self._attempts:
                attempt.settle(draft, self._next_header(draft))
                self._complete_all(attempt)

    async def _append_batch(self, attempt: Attempt[Asked]) -> None:
        self._attempts.append(attempt)
        try:
            await self._propose(attempt)
            try:
                await self._race(attempt)
            except Exception as error:
                if self._unresolved is not None or not attempt.leave(lambda member: member.is_of_another):
                    raise
                # Whatever it is, it may come of what others proposed: they race, and nobody here hears of it.
                await self._collector.leave_off(error)
                await self._race(attempt)
        finally:
            self._attempts.remove(attempt)

    async def _race(self, attempt: Attempt[Asked]) -> None:
        left = _MAX_STEPS
        while left:
            left -= 1
            await self._check()  # each time: the clock may have moved during a lost race
            await self._races.let_collector_in()
            made = Needed.WAVE if attempt.has_rows_of_no_wave() else self._make_entry(attempt)
            if made is Needed.DONE:
                return
            if isinstance(made, MadeEntry):
                if await self._send(attempt, made):
                    if not attempt.members:
                        return
                    left = _MAX_STEPS  # of an entry, and this one is in the log
            elif made is Needed.REFRESH:
                await self._refresh(attempt)
            elif made is Needed.WAVE:
                await self._make_wave(attempt)
        raise StoreError(
            f"no entry came of {_MAX_STEPS:,} looks and races", advice="see whether the store answers truly"
        )

    async def _refresh(self, attempt: Attempt[Asked]) -> None:
        """Look at the log, and next for what is overdue in it: nobody shall be refused for that."""
        await self._follower.refreshing()
        self._riders.scan_next()
        attempt.refreshed = True

    def _make_entry(self, attempt: Attempt[Asked]) -> MadeEntry[Asked] | Needed:
        """Decide the members at the newest state."""
        self._follower.check_whole()
        draft = self._follower.state.draft()
        check_writable(draft)
        self.numbers.drop_closed(draft)
        header = self._header(draft)
        begin_entry(draft, header)
        made = attempt.make(draft, header, self._riders.apply_to(draft, header))
        self._complete_all(attempt)
        self._queue.put_back(attempt.returned)
        attempt.returned = []
        return made

    async def _make_wave(self, attempt: Attempt[Asked]) -> None:
        """Encode the segments that the members share: small ones here, where a hand-over would cost as much again."""
        pieces = attempt.pieces()
        build = partial(self._shared.build, self._follower.state.draft(), pieces, self.numbers)
        small = sum(piece.size_bytes for _, piece in pieces) <= _ENCODED_HERE_BYTES
        wave = build() if small else await self._runtime.request(build)
        if wave is not None:
            attempt.set_wave(wave, answers=not self._proposer.open_txn_ids())
            return
        wanted = Asked(NumbersWanted(self.numbers))
        await self._append_batch(Attempt([wanted]))
        if wanted.reply is not None:
            wanted.reply.get()

    async def _send(self, attempt: Attempt[Asked], made: MadeEntry[Asked]) -> bool:
        """Put the data wave, then the entry. False where another entry took the slot."""
        before = await self._put_wave(attempt)
        version = made.header.version
        numbers = frozenset(number for member in made.sent for number in member.command.txn_ids)
        attempt.sent = made.sent
        try:
            won = await self._put_entry(_Unresolved(version, made.data, numbers), before)
        except BaseException:
            if self._unresolved is None:
                attempt.sent = ()
            raise
        attempt.wave_stored()
        if not won:
            attempt.lost()
            if attempt.knew_the_end or attempt.lost_races > _RACES_BEFORE_CATCHING_UP:
                self._races.note_rivals()
            await self._propose(attempt)
            await self._races.ask_for_a_place()
            if attempt.lost_races >= _RACES_BEFORE_CATCHING_UP:
                await self._refresh(attempt)
            await self._runtime.pause(self._races.pause_ms(attempt.lost_races))
            return False
        self._follower.apply_own(made.draft, version, len(made.data))
        attempt.won(made)
        self._races.won()
        if not self._min_interval_ms:  # others would wait as long
            self._collector.note_appended()
        self._shown_ms = made.header.timestamp_ms
        self._riders.appended(made.riders, made.header)
        self._unresolved = None
        self.numbers.add_own(made.riders.actions)
        self._complete_all(attempt)
        return True

    async def _put_wave(self, attempt: Attempt[Asked]) -> Callable[[], None]:
        """Put the files of the shared segments. What is left to be done right before the entry is put is returned.

        Of one file at most that is all of it: so a small entry needs one request of the pool.
        """
        calls = [partial(self._store.put, key, data) for key, data in attempt.wave.objects]
        if len(calls) > 1:
            with not_sent():
                await self._runtime.request(self._before_put)
                await self._runtime.requests(calls)
            return lambda: None

        def before() -> None:
            with not_sent():
                self._before_put()
                for call in calls:
                    call()

        return before

    def _complete_all(self, attempt: Attempt[Asked]) -> None:
        for reply in attempt.answers:
            reply.member.answer(reply.value, reply.error)
        attempt.answers.clear()

    def _header(self, draft: Draft) -> Header:
        head = draft.head
        timestamp_ms = head.log_time_ms(self._runtime.now_ms())
        return Header(head.version + 1, self.writer, timestamp_ms, head.digest, self._follower.newest_checkpoint)

    async def _put_entry(self, entry: _Unresolved, before: Callable[[], None] = lambda: None) -> bool:
        """Put an entry into its slot until the slot is occupied: whether by this one. Another one is applied.

        Where it is this one it stays unresolved until it is applied.
        """
        sent = self._unresolved is not None
        looks = self._races.looks_at_loss()
        send = partial(occupy, self._store, self._runtime, keys.entry_key(entry.version), entry.data)

        def put() -> bytes:
            before()
            self._unresolved = entry  # not before: whatever that raised, without its files nobody may send it later
            return send(attempts=self.create_attempts, sent=sent, besides=looks, timed=self._races.timed)

        try:
            found = await self._runtime.request(put)
        except TxnLogError as error:
            if error.durable is Durable.NOTHING:
                self._unresolved = None
            raise
        for look in looks:
            self._races.note(look)
        won = found == entry.data
        if not won:
            other = decode_entry(found, entry.version)
            self._races.note_winner(other.header.writer)
            self._apply_other(other)
            self._unresolved = None
        return won

    def _apply_other(self, entry: Entry) -> None:
        """Apply what occupies the slot of an entry. Damaged bytes may be that entry's own: it stays unresolved."""
        try:
            self._follower.apply_entry(entry)
        except UnsupportedFeature:
            self._unresolved = None  # a whole entry, of a newer client
            raise


_OF_NUMBERS: Final = Replying(no_numbers)


def _life_wanted() -> Command[None]:
    """Makes an entry, with which the renewal of blocks rides."""
    return effect(lambda _draft, _at: [], ONE_RENEWAL, is_upkeep=True)


__all__ = ["Appender", "SharedSegments", "Submitted"]
