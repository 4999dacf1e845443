"""Compare-and-append: commands of one client become entries, several in one (PROTOCOL.md, "Appending").

There is no background thread on the commit path: whoever has an open command and finds no append under way leads the
next entry, with all commands that queued up meanwhile (group commit). ``submit`` alone is led by a worker thread.
One entry is under way per client; an entry whose outcome is unknown is put again, byte for byte, before anything else.

An interrupt (Ctrl-C) may hit the main thread anywhere. It must cost no other thread its answer, and nobody the handle:
no command leaves one place before it is in the next, whoever leads finishes what an interrupted leader left, and the
locks are plain ones: a Condition, an Event or a Future that is interrupted while it is entered stays locked.
"""

from __future__ import annotations

import contextlib
import copy
import logging
import threading
from collections import deque
from collections.abc import Callable, Hashable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Protocol, TypeAlias, TypeVar, cast

from txnlog.common.limits import BUFFER_BYTES, RENEW_AFTER_MS, TARGET_ENTRY_BYTES
from txnlog.common.runtime import Background, Promise, Runtime, Signal
from txnlog.errors import (
    CorruptionError,
    Durable,
    OutcomeUnknown,
    RetriableError,
    StoreError,
    TxnLogError,
    UnsupportedFeature,
)
from txnlog.fold.apply import apply, begin_entry, check_writable
from txnlog.fold.expiry import overdue
from txnlog.fold.id_blocks import is_used
from txnlog.fold.state import Draft
from txnlog.format import keys
from txnlog.format.actions import AbortReason, AnyAction, Header, Reserve
from txnlog.format.codec import Entry, decode_entry
from txnlog.log.commands import ONE_RENEWAL, Answer, Command, Piece, effect
from txnlog.log.follower import Follower
from txnlog.log.group_commit import Attempt, MadeEntry, Member, Riders, SharedWave, Step
from txnlog.log.id_allocator import NumberPool
from txnlog.log.slots import CREATE_ATTEMPTS, occupy, put_unnamed
from txnlog.store.base import Store

R = TypeVar("R")
T = TypeVar("T")
_logger = logging.getLogger("txnlog.appender")

_LONGEST_RACE_PAUSE_MS = 20.0
_MAX_STEPS = 4_000
"""Looks at a batch and lost races before one entry; somebody wins every race, so this bounds a broken store only."""

_RACES_BEFORE_CATCHING_UP = 2
"""Once the entry that won is applied anyway; who loses again is behind a stream of them, and reads all there are."""

_EXPIRY_SCAN_MS = 1_000
"""A look at all open transactions for overdue ones is not paid at every entry; their grace is five times this."""

_GROUP_COMMANDS = 1_024
"""Deciding them takes some 30 ms under the lock, which is about what an entry costs on a store that is not local."""

_COMPANY_LOOKS = 10
_COMPANY_PAUSE_MS = 0.2
"""Together less than what an entry costs even on a fast disk."""


class SharedSegments(Protocol):
    """Makes the segments that an entry's commits share; implemented where Parquet is written."""

    def build(self, draft: Draft, pieces: list[tuple[int, Piece]], numbers: NumberPool, /) -> SharedWave | None:
        """Files for ``(txn, piece)`` in commit order, without dropped topics; None where numbers are missing."""


class Ride(Protocol):
    """What rides along: ``outcome`` is its answer and its error, one of which is None, once there is one."""

    outcome: tuple[Any, BaseException | None] | None


class _Waiting(Member):
    """A command and its ``outcome``: the answer or the error, once there is one, which never changes.

    ``future`` is for those that nobody waits for in a thread; ``finish`` makes its value.
    """

    __slots__ = ("finish", "future", "outcome")

    def __init__(
        self,
        command: Command[Any],
        future: Future[Any] | None = None,
        finish: Callable[[Any, BaseException | None], Any] | None = None,
    ) -> None:
        super().__init__(command)
        self.future = future
        self.finish = finish
        self.outcome: tuple[Any, BaseException | None] | None = None

    def result(self) -> Any:
        """The answer; raises the error."""
        assert self.outcome is not None, "it was waited for"
        value, error = self.outcome
        if error is not None:
            raise error
        return value


_Completion: TypeAlias = tuple[_Waiting, Any, BaseException | None]
"""A background command, and its answer or its error, which its Future is to get."""


@dataclass(frozen=True, slots=True)
class _Unresolved:
    """An entry that was sent and whose slot nobody has read since; the transactions in it."""

    version: int
    data: bytes
    txn_ids: frozenset[int]


class Appender:
    """The one writer of a handle. Thread-safe.

    Attributes:
        writer: the name of this writer in headers and blocks.
        numbers: its pool of numbers.
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
        before_append: Callable[[], None] = lambda: None,
        before_put: Callable[[], None] = lambda: None,
        after_append: Callable[[], None] = lambda: None,
        riders: Callable[[Draft], Sequence[AnyAction]] = lambda _draft: (),
        unlogged_aborts: Mapping[int, AbortReason] = MappingProxyType({}),
    ) -> None:
        self.writer = runtime.unique()
        self.numbers = NumberPool(self.writer, lambda number: is_used(follower.state, number))
        self.create_attempts = CREATE_ATTEMPTS
        self._follower = follower
        self._store = store
        self._runtime = runtime
        self._shared = shared
        self._min_interval_ms = min_commit_interval_ms
        self._before_append = before_append
        self._before_put = before_put
        self._after_append = after_append
        self._own_riders = riders
        self._unlogged_aborts = unlogged_aborts
        self._queue: deque[_Waiting] = deque()
        self._riding: list[_Waiting] = []
        self._queue_lock = threading.Lock()
        self._turn_lock = threading.RLock()
        self._turn = threading.Condition(self._turn_lock)
        self._leader: object | None = None
        self._leading: object | None = None
        self._completing: set[object] = set()
        self._attempt: Attempt[_Waiting] | None = None
        self._completions: deque[_Completion] = deque()
        self._work = Signal()
        self._worker: Background | None = None
        self._closed: TxnLogError | None = None
        self._unresolved: _Unresolved | None = None
        self._last_append_ms = -1e12
        self._shown_ms = runtime.now_ms()
        self._last_batch = 0
        self._last_expiry_scan_ms: int | None = None

    # --- for callers ------------------------------------------------------------------------------------------------

    def call(self, command: Command[R]) -> R:
        """Carry out a command and wait for it. Raises its refusal, OutcomeUnknown, or what the store says."""
        waiting = _Waiting(command)
        try:
            self._enqueue(waiting)
            while waiting.outcome is None:
                self._lead_when(lambda: waiting.outcome is None)
        except BaseException:
            self._withdraw(waiting)
            raise
        return cast("R", waiting.result())

    def submit(self, command: Command[R], finish: Callable[[R | None, BaseException | None], T]) -> Future[T]:
        """Carry out a command in the background. ``finish`` makes the Future's value of the answer or the error.

        Callbacks of the Future run in the worker thread: they may call anything, but not wait for another Future.
        """
        future: Promise[T] = Promise()
        future.set_running_or_notify_cancel()  # what is on its way into the log cannot be cancelled
        waiting = _Waiting(command, future, finish)
        try:
            self._enqueue(waiting)
            future.worker = self._worker
            self._work.set()
        except BaseException:
            self._withdraw(waiting)
            raise
        return future

    def ride(self, command: Command[object]) -> Ride:
        """Let a command go along with whatever this handle appends next. Nobody may wait for it: that may be never."""
        waiting = _Waiting(command)
        with self._queue_lock:
            self._riding.append(waiting)
        return waiting

    def take_numbers(self, count: int = 1) -> list[int]:
        """Numbers of this writer's blocks, reserving a block where there are too few.

        After a long silence the block is renewed first: a number that is given out may be used for a while yet.
        """
        if self._runtime.now_ms() - self._shown_ms >= RENEW_AFTER_MS and self.numbers.has_any():
            self.call(_life_wanted())
        while True:
            taken = self.numbers.take(count)
            if taken is not None:
                return taken
            self.numbers.demand(count)
            self.call(_numbers_wanted(self.numbers))

    def close(self, error: TxnLogError) -> None:
        """Nothing new from here on. What waits is appended yet; where the store fails, it gets the error.

        Closing again goes on where an interrupt ended it. An append that a signal interrupts for it goes on behind it.
        """
        with self._queue_lock:
            self._closed = self._closed or error
        if self._leading is self._runtime.current():
            return
        while self._lead_when(self._has_work):
            pass
        with self._queue_lock:
            for item in self._queue:
                self._answer(item, None, error)
            self._queue = deque()
        with self._turn_lock:
            self._runtime.wait_until(self._turn, lambda: self._leader is None)
            self._turn.notify_all()
        worker = self._worker
        self._work.set()
        if worker is not None and worker is not threading.current_thread():
            worker.join(timeout=60)
        self._complete()

    # --- who leads --------------------------------------------------------------------------------------------------

    def _enqueue(self, waiting: _Waiting) -> None:
        with self._queue_lock:
            if self._closed is not None:
                raise self._closed
            if waiting.finish is not None and (self._worker is None or not self._worker.is_alive()):
                self._worker = self._runtime.start(self._work_loop, "txnlog-appender")
            self._queue.append(waiting)

    def _withdraw(self, waiting: _Waiting) -> None:
        """Whoever asked was interrupted: what nobody took yet, nobody shall take."""
        with self._queue_lock, contextlib.suppress(ValueError):
            self._queue.remove(waiting)
            if isinstance(waiting.future, Promise):
                waiting.future.worker = None

    def _was_left(self) -> bool:
        """Whether an interrupted leader left commands that have no answer yet."""
        return self._attempt is not None and self._leader is None

    def _has_work(self) -> bool:
        return bool(self._queue) or self._was_left()

    def _lead_when(self, wanted: Callable[[], bool], *, in_company: bool = False) -> bool:
        """Lead one entry as soon as nobody else leads, if there is need then. False: no need, or the store failed."""
        lead = object()
        try:  # it begins before this thread leads: wherever an interrupt comes, the lead is let go
            if not self._take_lead(lead, wanted):
                return False
            if in_company:
                self._await_company()
            return self._lead()
        finally:
            try:
                self._let_go(lead)
            except BaseException:
                self._let_go(lead)  # interrupted at the last moment
                raise

    def _take_lead(self, lead: object, wanted: Callable[[], bool]) -> bool:
        """Wait until nobody leads, as long as there is need; whether this thread leads now."""
        with self._turn_lock:
            self._runtime.wait_until(self._turn, lambda: not (self._leader is not None and wanted()))
            if not wanted():
                return False
            self._leading = self._runtime.current()
            self._leader = lead
            return True

    def _let_go(self, lead: object) -> None:
        """Let go of the lead, if this is it. In this order it may be done twice."""
        with self._turn_lock:
            if self._leader is lead:
                self._turn.notify_all()
                self._leading = None
                self._leader = None
            if self._completions or self._was_left() or self._closed is not None:
                self._work.set()  # a thread that waits leads next and answers what was left; for others the worker does

    def _work_loop(self) -> None:
        while True:
            self._runtime.wait_until(self._work, self._work.is_set)
            self._work.clear()
            self._complete()
            while self._has_work():
                try:
                    self._lead_when(self._has_work, in_company=True)
                except Exception:
                    _logger.exception("An append failed. Its callers got the error.")
                finally:
                    # Also where more than an Exception ends this thread: nothing else would end it then.
                    self._complete()
            if self._closed is not None and self._is_through():
                return

    def _is_through(self) -> bool:
        """Of a closed appender: whether nothing is left to be answered. Whoever leads may have it yet."""
        with self._turn_lock:
            return self._leader is None and not self._has_work() and not self._completions

    def _await_company(self) -> None:
        """Let a stream of background commits fill an entry as full as the last one, while it keeps coming."""
        seen = 0
        for _ in range(_COMPANY_LOOKS):
            queued = len(self._queue)
            if not seen < queued < self._last_batch:
                return
            seen = queued
            self._runtime.sleep_ms(_COMPANY_PAUSE_MS)

    def _answer(self, waiting: _Waiting, result: Any, error: BaseException | None = None) -> None:
        """Give a command its answer: at once where a thread waits, through the worker where callbacks may run."""
        if waiting.outcome is not None:
            return
        if waiting.finish is not None:
            self._completions.append((waiting, result, error))
            waiting.outcome = result, error
            self._work.set()
            return
        waiting.outcome = result, error

    def _complete(self) -> None:
        """Answer the background commands. Without any lock: a callback may call anything, and end here again."""
        me = self._runtime.current()
        if me in self._completing:
            return  # a callback that closes: the loop around it answers the rest
        try:
            self._completing.add(me)
            while self._completions:
                with contextlib.suppress(IndexError):  # another thread was faster
                    self._complete_one(self._completions.popleft())
        finally:
            self._completing.discard(me)

    def _complete_one(self, completion: _Completion) -> None:
        waiting, result, error = completion
        assert waiting.finish is not None, "only background commands are answered here"
        assert waiting.future is not None, "only background commands are answered here"
        try:
            if waiting.future.done():
                return  # whoever answered it was interrupted, and it was answered again
            try:
                value = waiting.finish(result, error)
            except BaseException as problem:  # noqa: BLE001 - the Future carries it to whoever waits
                _resolve(waiting.future, None, problem)
            else:
                _resolve(waiting.future, value, None)
        except BaseException:
            if not waiting.future.done():
                self._completions.appendleft(completion)  # interrupted: whoever closes again answers it
            raise

    # --- leading ----------------------------------------------------------------------------------------------------

    def _lead(self) -> bool:
        """Append one entry with whatever waits. False where the store failed."""
        try:
            if self._attempt is not None:
                self._fail(KeyboardInterrupt())  # the leader before was interrupted while it answered the others
            self._gather()
            attempt = self._take_batch()
            if attempt is None:
                return True
            self._not_sent(self._before_append)
            self._resolve_outcome()
            self._append_batch(attempt)
            self._attempt = None
        except TxnLogError as error:
            self._fail(error)
            return False
        except BaseException as error:
            # A bug or an interrupt must reach every caller: one that never gets an answer hangs.
            self._fail(error)
            raise
        else:
            self._maintain()
            return True
        finally:
            self._last_append_ms = self._runtime.elapsed_ms()

    def _not_sent(self, look: Callable[[], None]) -> None:
        """Do what comes before anything is sent."""
        try:
            look()
        except StoreError as error:
            error.durable = Durable.NOTHING  # of the commands, that is: they were not sent
            raise

    def _gather(self) -> None:
        """Let commands gather, as the handle's option says."""
        pause = self._last_append_ms + self._min_interval_ms - self._runtime.elapsed_ms()
        if self._min_interval_ms and pause > 0:
            self._runtime.sleep_ms(pause)

    def _maintain(self) -> None:
        try:
            self._after_append()
        except Exception:
            _logger.exception("The maintenance after an append failed. The append itself is done.")

    def _take_batch(self) -> Attempt[_Waiting] | None:
        """The commands of the next entry: in order, those that must be alone in their kind one at a time.

        They are in the attempt before they leave the queue. If that is where an interrupt comes, they are in both and
        get it as their error: whoever has an answer is not chosen again.
        """
        batch: list[_Waiting] = []
        kept: deque[_Waiting] = deque()
        alone: set[Hashable] = set()
        size = rows_bytes = 0
        with self._queue_lock:
            queued = iter(self._queue)
            for waiting in queued:
                if waiting.outcome is not None:
                    continue
                kind = waiting.command.alone
                if kind is not None and kind in alone:
                    kept.append(waiting)
                    continue
                if kind is not None:
                    alone.add(kind)
                batch.append(waiting)
                size += 200 + 64 * len(waiting.command.pieces)
                rows_bytes += sum(piece.size_bytes for piece in waiting.command.pieces)
                if len(batch) >= _GROUP_COMMANDS or size >= TARGET_ENTRY_BYTES or rows_bytes >= BUFFER_BYTES:
                    break
            kept.extend(queued)
            if batch:
                batch += [waiting for waiting in self._riding if waiting.outcome is None]
                self._attempt = Attempt(batch)
                self._riding = []
            self._queue = kept
        self._last_batch = len(batch)
        return self._attempt

    def _fail(self, error: BaseException) -> None:
        """Answer everybody who waits with what is known: outcome unknown for a sent entry, the error for others."""
        attempt = self._attempt
        if attempt is None:
            return
        self._answer_settled(attempt)
        sent = {id(member) for member in attempt.sent}
        unresolved = self._unresolved.txn_ids if self._unresolved is not None else frozenset()
        members = [member for member in (*attempt.members, *attempt.returned) if member.outcome is None]
        for member in members:
            answer = error
            if id(member) in sent or not unresolved.isdisjoint(member.command.txn_ids):
                answer = self._unknown(member, error)
                answer.__cause__ = error if not isinstance(error, OutcomeUnknown) else error.__cause__
            elif isinstance(error, OutcomeUnknown):
                answer = _blocked(error.__cause__)
            elif not isinstance(error, Exception):
                answer = RetriableError(f"whoever led this append was interrupted ({type(error).__name__})")
            elif isinstance(error, TxnLogError) and len(members) > 1:
                answer = copy.copy(error)
                answer.__cause__ = error.__cause__
            self._answer(member, None, answer)
        self._attempt = None

    def _answer_settled(self, attempt: Attempt[_Waiting]) -> None:
        """Who asks again for what the log shows by now hears that, and not what his asking failed of."""
        with self._follower.lock:
            draft = self._follower.state.draft()
        head = draft.head  # no clock is asked: that may be what failed
        attempt.answer_settled(draft, Header(head.version + 1, self.writer, head.timestamp_ms, head.digest))
        self._complete_all(attempt)

    def _unknown(self, member: _Waiting, error: BaseException) -> OutcomeUnknown:
        state = self._follower.state
        message, first = "the store did not say whether the entry of this call exists", ""
        if isinstance(error.__cause__, TxnLogError):
            message += f" ({error.__cause__.message})"
        if isinstance(error, CorruptionError | UnsupportedFeature):
            message = f"the slot of this call's entry holds what cannot be read, its own or another's: {error.message}"
            first = f"{error.advice}; then "
        unknown = OutcomeUnknown(message, txn_ids=tuple(str(state.txn_id(number)) for number in member.command.txn_ids))
        unknown.advice = f"{first}{unknown.advice}"
        return unknown

    def _resolve_outcome(self) -> None:
        """Before anything new: settle the entry that was sent and not heard of."""
        sent = self._unresolved
        if sent is None:
            return
        if self._put_entry(sent):
            own = decode_entry(sent.data, sent.version)
            self._follower.apply_entry(own)
            self._unresolved = None
            self._add_numbers(own.actions)  # behind it: an interrupt may lose a block, but not give one twice

    def _append_batch(self, attempt: Attempt[_Waiting]) -> None:
        left = _MAX_STEPS
        while left:
            left -= 1
            self._not_sent(self._before_append)  # each time: the clock may have moved during a lost race
            made = self._make_entry(attempt)
            if made is Step.DONE:
                return
            if isinstance(made, MadeEntry):
                if self._send(attempt, made):
                    if not attempt.members:
                        return
                    left = _MAX_STEPS  # of an entry, and this one is in the log
            elif made is Step.REFRESH:
                self._refresh(attempt)
            elif made is Step.WAVE:
                self._make_wave(attempt)
        raise StoreError(
            f"no entry came of {_MAX_STEPS:,} looks and races", advice="see whether the store answers truly"
        )

    def _refresh(self, attempt: Attempt[_Waiting]) -> None:
        """Look at the log, and next for what is overdue in it: nobody shall be refused for that."""
        self._follower.refresh()
        self._last_expiry_scan_ms = None
        attempt.refreshed = True

    def _make_entry(self, attempt: Attempt[_Waiting]) -> MadeEntry[_Waiting] | Step:
        """Decide the members at the newest state."""
        with self._follower.lock:
            draft = self._follower.state.draft()
            check_writable(draft)
            self.numbers.drop_closed(draft)
            header = self._header(draft)
            begin_entry(draft, header)
            made = attempt.make(draft, header, self._riders(draft, header))
        self._complete_all(attempt)
        if attempt.returned:
            with self._queue_lock:
                self._queue.extendleft(reversed(attempt.returned))
            self._work.set()  # nobody waits in a thread for those of the background
            attempt.returned = []
        return made

    def _make_wave(self, attempt: Attempt[_Waiting]) -> None:
        """Encode the segments that the members share; without any lock, so readers go on."""
        with self._follower.lock:
            draft = self._follower.state.draft()
        wave = self._shared.build(draft, attempt.pieces(), self.numbers)
        if wave is not None:
            attempt.set_wave(wave)
            return
        wanted = _Waiting(_numbers_wanted(self.numbers))
        self._append_batch(Attempt([wanted]))
        wanted.result()

    def _send(self, attempt: Attempt[_Waiting], made: MadeEntry[_Waiting]) -> bool:
        """Put the data wave, then the entry. False where another entry took the slot."""
        self._not_sent(self._before_put)
        self._put_wave(attempt)
        version = made.header.version
        numbers = frozenset(number for member in made.sent for number in member.command.txn_ids)
        attempt.sent = made.sent
        try:
            won = self._put_entry(_Unresolved(version, made.data, numbers))
        except TxnLogError:
            if self._unresolved is None:
                attempt.sent = ()
            raise
        if not won:
            attempt.lost()
            if attempt.lost_races >= _RACES_BEFORE_CATCHING_UP:
                self._refresh(attempt)
            self._runtime.sleep_ms(self._runtime.jitter(min(_LONGEST_RACE_PAUSE_MS, attempt.lost_races)))
            return False
        self._follower.apply_own(made.draft, version, len(made.data))
        attempt.won(made)
        self._shown_ms = made.header.timestamp_ms
        if made.riders.looked:
            self._last_expiry_scan_ms = made.header.timestamp_ms
        self._unresolved = None
        self._add_numbers(made.riders.actions)  # behind it, as above
        self._complete_all(attempt)
        return True

    def _complete_all(self, attempt: Attempt[_Waiting]) -> None:
        for reply in attempt.answers:
            self._answer(reply.member, reply.value, reply.error)
        attempt.answers.clear()

    def _put_wave(self, attempt: Attempt[_Waiting]) -> None:
        put_unnamed(self._store, self._runtime, attempt.wave.objects)
        attempt.wave_stored()

    def _add_numbers(self, actions: tuple[AnyAction, ...]) -> None:
        for action in actions:
            if isinstance(action, Reserve) and action.writer == self.writer:
                self.numbers.add(action)

    def _header(self, draft: Draft) -> Header:
        head = draft.head
        timestamp_ms = max(head.timestamp_ms, self._runtime.now_ms())
        return Header(head.version + 1, self.writer, timestamp_ms, head.digest, self._follower.newest_checkpoint)

    def _riders(self, draft: Draft, header: Header) -> Riders:
        """What goes along with any entry: what the handle wants, the next block of numbers, ends of what is overdue."""
        actions: list[AnyAction] = [*self._own_riders(draft), *self.numbers.renewals(draft, header.timestamp_ms)]
        if self.numbers.wants():
            actions.append(self.numbers.reservation(draft))
        last = self._last_expiry_scan_ms
        looked = last is None or header.timestamp_ms - last >= _EXPIRY_SCAN_MS
        ending = overdue(draft, header.timestamp_ms, self._unlogged_aborts) if looked else []
        actions.extend(ending)
        for action in actions:
            apply(draft, action, header)
        return Riders(tuple(actions), bool(ending), looked and not ending)

    def _put_entry(self, entry: _Unresolved) -> bool:
        """Put an entry into its slot until the slot is occupied: whether by this one. Another one is applied.

        Where it is this one it stays unresolved until it is applied: an interrupt may come in between.
        """
        sent = self._unresolved is not None
        self._unresolved = entry
        key = keys.entry_key(entry.version)
        try:
            found = occupy(self._store, self._runtime, key, entry.data, attempts=self.create_attempts, sent=sent)
        except TxnLogError as error:
            if error.durable is Durable.NOTHING:
                self._unresolved = None
            raise
        won = found == entry.data
        if not won:
            self._apply_other(decode_entry(found, entry.version))
            self._unresolved = None
        return won

    def _apply_other(self, entry: Entry) -> None:
        """Apply what occupies the slot of an entry. Damaged bytes may be that entry's own: it stays unresolved."""
        try:
            self._follower.apply_entry(entry)
        except UnsupportedFeature:
            self._unresolved = None  # a whole entry, of a newer client
            raise


def _resolve(future: Future[Any], result: Any, error: BaseException | None) -> None:
    """Resolve a Future. What its callbacks raise costs nobody else an answer; the main thread hears of an interrupt."""
    try:
        if error is not None:
            future.set_exception(error)
        else:
            future.set_result(result)
    except BaseException:
        if not future.done() or threading.current_thread() is threading.main_thread():
            raise
        _logger.exception("A callback of a Future raised an error. It ran in a thread of the appender, which goes on.")


def _blocked(cause: BaseException | None) -> RetriableError:
    """For calls that wait behind an entry of unknown outcome. What the store said last may have to be fixed first."""
    why, advice = "", RetriableError._default_advice
    if isinstance(cause, TxnLogError):
        why, advice = f" ({cause.message})", f"{cause.advice}; then {advice}"
    # Not as its cause: with its traceback the error would keep the calls of others in memory.
    return RetriableError(
        f"the outcome of an earlier entry of this handle is still unknown{why}; of this call nothing was sent",
        advice=advice,
    )


def _numbers_wanted(pool: NumberPool) -> Command[None]:
    """Needs numbers now: makes an entry, with which the reservation rides."""

    def decide(_draft: Draft, _at: Header) -> list[AnyAction] | Answer[None]:
        return [] if pool.wants() else Answer(None, settled=True)

    return effect(decide)


def _life_wanted() -> Command[None]:
    """Makes an entry, with which the renewal of blocks rides."""
    return effect(lambda _draft, _at: [], ONE_RENEWAL)


__all__ = ["Appender", "Ride", "SharedSegments"]
