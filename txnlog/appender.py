"""Compare-and-append: commands of one client become entries, several in one (PROTOCOL.md, "Appending").

There is no background thread on the commit path: whoever has an open command and finds no append under way leads the
next entry, with all commands that queued up meanwhile (group commit). ``commit_async`` alone is led by a worker thread.
One entry is under way per client; an entry whose outcome is unknown is put again, byte for byte, before anything else.
"""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable, Hashable, Iterable
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeVar, cast

import msgspec

from txnlog import keys
from txnlog.actions import AnyAction, Header, Reserve
from txnlog.apply import apply, begin_entry, finish_entry
from txnlog.codec import decode_entry, digest_of, encode_action, encode_entry
from txnlog.commands import Answer, Command, Piece, overdue
from txnlog.errors import Durable, LimitExceeded, OutcomeUnknown, StoreError, TxnLogError
from txnlog.follower import Follower
from txnlog.ids import TxnId
from txnlog.limits import TARGET_ENTRY_BYTES
from txnlog.numbering import NumberPool
from txnlog.runtime import Runtime
from txnlog.state import Draft
from txnlog.store.base import Created, ObjectNotFound, Store

R = TypeVar("R")
T = TypeVar("T")
_logger = logging.getLogger("txnlog.appender")

_CREATE_ATTEMPTS = 12
"""About a minute of doubling pauses, in which most outages end."""

_PAUSE_MS = 20.0
_LONGEST_PAUSE_MS = 10_000.0
_MAX_RACES = 1_000
"""Lost races of one command; each was won by somebody else, so this bounds nothing but a broken store."""

_EXPIRY_SCAN_MS = 1_000
_GROUP_COMMANDS = 1_024


class SharedSegments(Protocol):
    """Makes the segments that an entry's commits share; implemented where Parquet is written."""

    def build(self, draft: Draft, pieces: list[tuple[int, Piece]], numbers: NumberPool, /) -> SharedWave | None:
        """Files for ``(txn, piece)`` in commit order, without dropped topics; None where numbers are missing."""


@dataclass(frozen=True, slots=True)
class SharedWave:
    """Segments of one entry: by topic the number, their actions, and the objects to put before the entry."""

    numbers: dict[int, int]
    actions: tuple[AnyAction, ...]
    objects: tuple[tuple[str, bytes], ...]


@dataclass(slots=True, eq=False)
class _Waiting:
    command: Command[Any]
    finish: Callable[[Any, BaseException | None], Any] | None = None
    future: Future[Any] = field(default_factory=Future)


@dataclass(slots=True, eq=False)
class _Attempt:
    """One batch on its way into the log: who is left, and the shared segments made for whom."""

    live: list[_Waiting]
    wave: SharedWave = SharedWave({}, (), ())
    waved: list[_Waiting] = field(default_factory=list)
    refreshed: bool = False
    lost_races: int = 0


@dataclass(frozen=True, slots=True)
class _Made:
    """An entry that may be put, and the draft that it makes true."""

    draft: Draft
    header: Header
    data: bytes
    riders: tuple[AnyAction, ...]
    results: list[Any]


@dataclass(frozen=True, slots=True)
class _InDoubt:
    """An entry that was sent and whose slot nobody has read since."""

    version: int
    data: bytes


class Appender:
    """The one writer of a handle. Thread-safe.

    Attributes:
        writer: the name of this writer in headers and blocks.
        numbers: its stock of numbers.
        create_attempts: puts of the same bytes at one slot before the outcome is reported as unknown. Fewer only
            make the question come sooner: what is in doubt then is settled by whoever asks next.
    """

    def __init__(
        self,
        follower: Follower,
        store: Store,
        runtime: Runtime,
        shared: SharedSegments,
        *,
        min_commit_interval_ms: int = 0,
        before_first_append: Callable[[], None] = lambda: None,
        after_append: Callable[[], None] = lambda: None,
    ) -> None:
        self.writer = runtime.unique()[:16]
        self.numbers = NumberPool(self.writer)
        self.create_attempts = _CREATE_ATTEMPTS
        self._follower = follower
        self._store = store
        self._runtime = runtime
        self._shared = shared
        self._min_interval_ms = min_commit_interval_ms
        self._before_first_append = before_first_append
        self._after_append = after_append
        self._queue: deque[_Waiting] = deque()
        self._completions: deque[tuple[_Waiting, Any, BaseException | None]] = deque()
        self._queue_lock = threading.Lock()
        self._lead_lock = threading.Lock()
        self._work = threading.Event()
        self._worker: threading.Thread | None = None
        self._closed: TxnLogError | None = None
        self._checked = False
        self._in_doubt: _InDoubt | None = None
        self._last_append_ms = -1e12
        self._last_expiry_scan_ms = 0

    # --- for callers ------------------------------------------------------------------------------------------------

    def call(self, command: Command[R]) -> R:
        """Carry out a command and wait for it. Raises its refusal, OutcomeUnknown, or what the store says."""
        waiting = self._enqueue(command, None)
        while not waiting.future.done():
            with self._lead_lock:
                if not waiting.future.done():
                    self._lead()
            self._complete()
        return cast("R", waiting.future.result())

    def submit(self, command: Command[R], finish: Callable[[R | None, BaseException | None], T]) -> Future[T]:
        """Carry out a command in the background. ``finish`` makes the Future's value of the answer or the error."""
        waiting = self._enqueue(command, finish)
        with self._queue_lock:
            if self._worker is None or not self._worker.is_alive():
                self._worker = threading.Thread(target=self._work_loop, name="txnlog-appender", daemon=True)
                self._worker.start()
        self._work.set()
        return cast("Future[T]", waiting.future)

    def take_numbers(self, count: int = 1) -> list[int]:
        """Numbers of this writer's blocks, reserving a block where there are too few."""
        while True:
            taken = self.numbers.take(count)
            if taken is not None:
                return taken
            self.numbers.demand(count)
            self.call(_NumbersWanted(self.numbers))

    def close(self, error: TxnLogError) -> None:
        """No more appends; what waits gets the error."""
        self._closed = error
        self._work.set()
        worker = self._worker
        if worker is not None and worker is not threading.current_thread():
            worker.join(timeout=60)
        with self._queue_lock:
            waiting, self._queue = list(self._queue), deque()
        for item in waiting:
            item.future.set_exception(error)

    # --- leading ----------------------------------------------------------------------------------------------------

    def _enqueue(self, command: Command[Any], finish: Callable[[Any, BaseException | None], Any] | None) -> _Waiting:
        if self._closed is not None:
            raise self._closed
        waiting = _Waiting(command, finish)
        with self._queue_lock:
            self._queue.append(waiting)
        return waiting

    def _work_loop(self) -> None:
        while self._closed is None:
            self._work.wait()
            self._work.clear()
            while self._queue and self._closed is None:
                with self._lead_lock:
                    self._lead()
                self._complete()

    def _answer(self, waiting: _Waiting, result: Any, error: BaseException | None = None) -> None:
        """Give a command its answer: at once where a thread waits, after the lead lock where callbacks may run."""
        if waiting.finish is not None:
            self._completions.append((waiting, result, error))
        elif error is not None:
            waiting.future.set_exception(error)
        else:
            waiting.future.set_result(result)

    def _complete(self) -> None:
        """Answer the background commands. No lock is held: a callback may call anything."""
        while True:
            try:
                waiting, result, error = self._completions.popleft()
            except IndexError:
                return
            assert waiting.finish is not None, "only background commands are answered here"
            try:
                value = waiting.finish(result, error)
            except BaseException as problem:  # noqa: BLE001 - the Future carries it to whoever waits
                waiting.future.set_exception(problem)
            else:
                waiting.future.set_result(value)

    def _take_batch(self) -> list[_Waiting]:
        """The commands of the next entry: in order, those that must be alone in their kind one at a time."""
        batch: list[_Waiting] = []
        kept: list[_Waiting] = []
        alone: set[Hashable] = set()
        size = 0
        with self._queue_lock:
            while self._queue and len(batch) < _GROUP_COMMANDS and size < TARGET_ENTRY_BYTES:
                waiting = self._queue.popleft()
                kind = waiting.command.alone
                if kind is not None and kind in alone:
                    kept.append(waiting)
                    continue
                if kind is not None:
                    alone.add(kind)
                batch.append(waiting)
                size += 200 + sum(64 for _ in waiting.command.pieces)
            self._queue.extendleft(reversed(kept))
        return batch

    def _lead(self) -> None:
        """Append one entry with whatever waits. The lead lock is held."""
        if not self._queue:
            return
        pause = self._last_append_ms + self._min_interval_ms - self._runtime.elapsed_ms()
        if self._min_interval_ms and pause > 0:
            self._runtime.sleep_ms(pause)
        batch = self._take_batch()
        try:
            if not self._checked:
                self._before_first_append()
                self._checked = True
            self._resolve_doubt(batch)
            self._append_batch(batch)
        except TxnLogError as error:
            self._fail(batch, error)
        except BaseException as error:
            # A bug or an interrupt must reach every caller: a future that never ends is a hang.
            self._fail(batch, error)
            raise
        self._last_append_ms = self._runtime.elapsed_ms()
        try:
            self._after_append()
        except Exception:
            _logger.exception("maintenance after an append failed; the append itself is done")

    def _fail(self, batch: Iterable[_Waiting], error: BaseException) -> None:
        answered = {id(waiting) for waiting, _, _ in self._completions}
        for waiting in batch:
            if not waiting.future.done() and id(waiting) not in answered:
                self._answer(waiting, None, error)

    def _resolve_doubt(self, batch: list[_Waiting]) -> None:
        """Before anything new: settle the entry that was sent and not heard of."""
        doubt = self._in_doubt
        if doubt is None:
            return
        winner = self._put_entry(doubt.version, doubt.data, batch)
        self._in_doubt = None
        self._follower.fold(decode_entry(winner, doubt.version))

    def _append_batch(self, batch: list[_Waiting]) -> None:
        attempt = _Attempt(batch)
        for _ in range(_MAX_RACES):
            with self._follower.lock:
                entry = self._make_entry(attempt)
            if entry is None:
                if not attempt.live:
                    return
                continue
            self._runtime.run_all([_put(self._store, key, content) for key, content in attempt.wave.objects])
            attempt.wave = SharedWave(attempt.wave.numbers, attempt.wave.actions, ())
            winner = self._put_entry(entry.header.version, entry.data, attempt.live)
            if winner != entry.data:
                self._follower.fold(decode_entry(winner, entry.header.version))
                attempt.lost_races += 1
                attempt.refreshed = True
                self._runtime.sleep_ms(self._runtime.jitter(min(_PAUSE_MS, attempt.lost_races)))
                continue
            self._follower.adopt(entry.draft, entry.header.version, len(entry.data))
            for action in entry.riders:
                if isinstance(action, Reserve):
                    self.numbers.add(action)
            for waiting, result in zip(attempt.live, entry.results, strict=True):
                self._answer(waiting, result)
            return
        raise StoreError("every race for the next entry was lost", advice="see whether the store answers truly")

    def _make_entry(self, attempt: _Attempt) -> _Made | None:
        """Decide the live commands at the newest state. None: something changed (or nobody is left), look again."""
        draft = self._follower.state.draft()
        header = self._header(draft)
        begin_entry(draft, header)
        riders = self._riders(draft, header)
        if not self._have_wave(attempt, draft):
            return None
        actions, answers, refused = self._decide(draft, header, attempt)
        if refused and not attempt.refreshed:
            # A refusal by an old state may be out of date: look once before saying no.
            attempt.refreshed = True
            if self._follower.refresh() != header.version - 1:
                return None
        for waiting, error in refused:
            self._answer(waiting, None, error)
        for waiting, value in answers:
            self._answer(waiting, value)
        gone = {id(waiting) for waiting, _ in refused} | {id(waiting) for waiting, _ in answers}
        if gone:
            with_rows = any(id(waiting) in gone and waiting.command.pieces for waiting in attempt.live)
            attempt.live = [waiting for waiting in attempt.live if id(waiting) not in gone]
            if with_rows or not attempt.live:
                return None
        finish_entry(draft, "")
        results = [waiting.command.result(draft, header) for waiting in attempt.live]
        try:
            data = encode_entry(header, [encode_action(a) for a in (*riders, *attempt.wave.actions, *actions)])
        except LimitExceeded:
            if len(attempt.live) == 1:
                raise
            half = len(attempt.live) // 2
            with self._queue_lock:
                self._queue.extendleft(reversed(attempt.live[half:]))
            attempt.live = attempt.live[:half]
            return None
        draft.head = msgspec.structs.replace(draft.head, digest=digest_of(data))
        return _Made(draft, header, data, tuple(riders), results)

    def _have_wave(self, attempt: _Attempt, draft: Draft) -> bool:
        """Make the shared segments, unless those of the last try still fit: same commands, every topic still there."""
        members = [waiting for waiting in attempt.live if waiting.command.pieces]
        if members == attempt.waved and all(
            (topic := draft.topics.get(number)) is not None and topic.dropped_version is None
            for number in attempt.wave.numbers
        ):
            return True
        pieces = [(waiting.command.txn_ids[0], piece) for waiting in members for piece in waiting.command.pieces]
        wave = self._shared.build(draft, pieces, self.numbers)
        if wave is None:
            self._reserve_now()
            return False
        attempt.wave, attempt.waved = wave, members
        return True

    def _decide(
        self, draft: Draft, header: Header, attempt: _Attempt
    ) -> tuple[list[AnyAction], list[tuple[_Waiting, Any]], list[tuple[_Waiting, TxnLogError]]]:
        """Apply the wave and every command to the draft; a refused one leaves no trace in it."""
        for action in attempt.wave.actions:
            apply(draft, action, header)
        actions: list[AnyAction] = []
        answers: list[tuple[_Waiting, Any]] = []
        refused: list[tuple[_Waiting, TxnLogError]] = []
        for waiting in attempt.live:
            mark = draft.savepoint()
            try:
                decided = waiting.command.decide(draft, header, attempt.wave.numbers)
                if isinstance(decided, Answer):
                    answers.append((waiting, decided.value))
                    continue
                for action in decided:
                    apply(draft, action, header)
            except TxnLogError as error:
                draft.rollback(mark)
                refused.append((waiting, error))
                continue
            actions.extend(decided)
        return actions, answers, refused

    def _header(self, draft: Draft) -> Header:
        head = draft.head
        base = self._follower.base
        newest = head.checkpoint
        if base is not None and (newest is None or base.version > newest):
            newest = base.version
        return Header(
            head.version + 1,
            self.writer,
            max(head.timestamp_ms, self._runtime.now_ms()),
            head.digest,
            newest,
        )

    def _riders(self, draft: Draft, header: Header) -> list[AnyAction]:
        """What goes along with any entry: the next block of numbers, and the end of overdue transactions."""
        riders: list[AnyAction] = []
        if self.numbers.wants():
            riders.append(self.numbers.reservation(draft))
        if header.timestamp_ms - self._last_expiry_scan_ms >= _EXPIRY_SCAN_MS:
            self._last_expiry_scan_ms = header.timestamp_ms
            riders.extend(overdue(draft, header.timestamp_ms))
        for action in riders:
            apply(draft, action, header)
        return riders

    def _reserve_now(self) -> None:
        """An entry of its own that reserves numbers: only a writer's first append needs it."""
        for _ in range(_MAX_RACES):
            draft = self._follower.state.draft()
            header = self._header(draft)
            begin_entry(draft, header)
            action = self.numbers.reservation(draft)
            apply(draft, action, header)
            data = encode_entry(header, [encode_action(action)])
            winner = self._put_entry(header.version, data, [])
            self._follower.fold(decode_entry(winner, header.version))
            if winner == data:
                self.numbers.add(action)
                return
        raise StoreError("every race for a block of numbers was lost", advice="see whether the store answers truly")

    def _put_entry(self, version: int, data: bytes, waiting: list[_Waiting]) -> bytes:
        """Put an entry into its slot until the slot is occupied; returns what occupies it.

        Anything but *created* proves nothing until the slot was read, and "not found" proves nothing at all: the same
        bytes go to the same slot again, so that a late first copy can only be our own success.
        """
        key = keys.entry_key(version)
        pause = _PAUSE_MS
        sent = False
        for attempt in range(self.create_attempts):
            try:
                if self._store.create(key, data) is Created.CREATED:
                    return data
                sent = True
            except StoreError as error:
                if error.durable is Durable.NOTHING and not sent and self._in_doubt is None:
                    raise
                sent = True
                _logger.warning("put of entry %d: %s (attempt %d)", version, error.message, attempt + 1)
            try:
                found = self._store.get(key)
                self._store.sync(key)  # what may not survive a power cut has not happened yet, not even our own entry
            except ObjectNotFound:
                pass
            except StoreError as error:
                _logger.warning("read of entry %d: %s (attempt %d)", version, error.message, attempt + 1)
            else:
                return found
            self._runtime.sleep_ms(pause / 2 + self._runtime.jitter(pause / 2))
            pause = min(2 * pause, _LONGEST_PAUSE_MS)
        self._in_doubt = _InDoubt(version, data)
        coordinator = self._follower.state.head.coordinator
        numbers = [number for item in waiting for number in item.command.txn_ids]
        raise OutcomeUnknown(
            f"the store did not say whether entry {version} exists",
            txn_ids=tuple(str(TxnId(coordinator, number)) for number in numbers),
        )


class _NumbersWanted:
    """Needs numbers now: makes an entry, with which the reservation rides."""

    alone = None
    pieces: tuple[Piece, ...] = ()
    txn_ids: tuple[int, ...] = ()

    def __init__(self, pool: NumberPool) -> None:
        self._pool = pool

    def decide(self, _draft: Draft, _at: Header, _shared: object) -> list[AnyAction] | Answer[None]:
        return [] if self._pool.wants() else Answer(None)

    def result(self, _draft: Draft, _at: Header) -> None:
        return None


def _put(store: Store, key: str, content: bytes) -> Callable[[], None]:
    return lambda: store.put(key, content)


__all__ = ["Appender", "SharedSegments", "SharedWave"]
