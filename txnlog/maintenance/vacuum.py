"""Deleting files that nobody can need any more (PROTOCOL.md, "Collection").

The order is what keeps data: blocks are closed and the oldest readable version is raised in the log; then folders are
listed; then files are deleted. A vacuum that stops anywhere leaves files for the next one, and nothing else.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, Final

from txnlog.common.format_limits import MAX_NUMBER, MIN_GRACE_MS
from txnlog.common.limits import DEFAULT_RETAIN_MS, MIN_RETAIN_MS
from txnlog.common.validation import Duration, duration_ms, long_enough_ms
from txnlog.engine.log_lines import LogLines
from txnlog.errors import AccessDenied, TxnLogError
from txnlog.fold import garbage
from txnlog.fold.garbage import ClosedNumbers, Garbage, WaitingNumbers
from txnlog.fold.state import Draft, SegmentRecord, State, TopicRecord
from txnlog.format import keys
from txnlog.format.actions import Close, Header
from txnlog.format.actions import Vacuum as VacuumAction
from txnlog.format.delta_mode import is_auto
from txnlog.log.commands import Answer, effect
from txnlog.replies import IfUnknown, Rest, finishing, note_written, unknown_outcome
from txnlog.results import Unreadable, UnreadableTopic, Vacuumed
from txnlog.store.base import ObjectInfo
from txnlog.store.folders import remove_unfinished

if TYPE_CHECKING:
    from txnlog.client.connection import Connection

_logger = LogLines("txnlog.vacuum")

_WAVE_FILES: Final = 256
"""Files deleted between two looks at the listing: a vacuum of millions of files holds no more of them in memory."""

_MOST_CLOSED: Final = 10_000
"""Blocks closed by one vacuum: what is left is closed by the next."""

Before = Callable[[Unreadable], object]
"""Called with what becomes unreadable, before anything is written or deleted. What it raises ends the vacuum."""

Progress = Callable[[str, int, int], object]
"""Called with the topic at work, the files looked at, and those deleted so far."""


@dataclass(frozen=True, slots=True)
class _Plan:
    """What may go: files under closed numbers that no entry names, and what ended up to ``bound``."""

    closed: ClosedNumbers
    bound: int
    oldest_readable: int
    blocks: int
    version: int


@dataclass(frozen=True, slots=True)
class _Graced:
    """What else could go if there were no grace, as in a plan; what ended waits for ``delay_ms``."""

    numbers: WaitingNumbers
    bound: int
    delay_ms: int


def vacuum(
    connection: Connection,
    retain_ms: Duration,
    grace_ms: Duration,
    *,
    allow_short_retention: bool = False,
    dry_run: bool,
    before: Before | None = None,
    progress: Progress | None = None,
) -> Vacuumed:
    """Close silent blocks, raise the oldest readable version, delete what is garbage. See ``Namespace.vacuum``."""
    retained_ms, silent_ms = check_times(retain_ms, grace_ms, allow_short_retention=allow_short_retention)
    if not dry_run:
        connection.check_writes()
    elif connection.mode == "rw":
        with suppress(AccessDenied):  # who may not write may look, and deletes nothing
            connection.session.check_clock()  # or it would promise what the next call refuses
    follower = connection.follower
    follower.refresh()
    follower.log.check_end(follower.version, whole=True)
    now_ms = connection.log_now_ms()
    delay_ms = max(retained_ms, silent_ms)
    horizon, target = _horizon(connection, now_ms - delay_ms)
    without_grace = horizon, target
    if silent_ms > retained_ms:
        without_grace = _horizon(connection, now_ms - retained_ms)
    unreadable = _becoming_unreadable(connection, target)
    if dry_run:
        plan = _foreseen(connection, target, now_ms, silent_ms, horizon)
        graced = _graced(connection, plan, silent_ms, delay_ms, without_grace)
        return _Sweep(connection, plan, graced, unreadable, dry_run=True, progress=progress).run()
    if unreadable is not None:
        _logger.info("%s", unreadable)
        if before is not None:
            before(unreadable)
    plan = _announced(connection, target, silent_ms, horizon)
    graced = _graced(connection, plan, silent_ms, delay_ms, without_grace)
    with finishing(Rest.VACUUM):
        _forget_heartbeats(connection)
        _forget_mailboxes(connection)
        remove_unfinished(connection.store, connection.runtime.now_ms() - silent_ms)
        return _Sweep(connection, plan, graced, unreadable, dry_run=False, progress=progress).run()


def _horizon(connection: Connection, time_ms: int) -> tuple[int, int]:
    """The newest version of a time (-1: none), and the oldest readable one where what ended up to then may go."""
    follower = connection.follower
    horizon = follower.log.version_at(time_ms, follower.version)
    horizon = -1 if horizon is None else horizon
    target = max(
        (garbage.oldest_needed(topic, *follower.segments(topic.id), horizon) for topic in _topics(connection)),
        default=0,
    )
    return horizon, target


def check_times(retain_ms: Duration, grace_ms: Duration, *, allow_short_retention: bool) -> tuple[int, int]:
    """Both times in whole milliseconds, once each is in its range. Raises InvalidInputError."""
    retained_ms = long_enough_ms(
        "retain_ms",
        retain_ms,
        0,
        MIN_RETAIN_MS,
        DEFAULT_RETAIN_MS,
        "allow_short_retention",
        allowed=allow_short_retention,
        else_="snapshots and time travel to anything older would end",
    )
    return retained_ms, duration_ms("grace_ms", grace_ms, MIN_GRACE_MS, MAX_NUMBER)


def _becoming_unreadable(connection: Connection, target: int) -> Unreadable | None:
    """What cannot be read any more once the oldest readable version is ``target``; None where nothing changes."""
    follower = connection.follower
    oldest = follower.state.head.oldest_readable
    if target <= oldest:
        return None
    topics: list[UnreadableTopic] = []
    for topic in _topics(connection):
        found = garbage.no_longer_shown(topic, *follower.segments(topic.id), oldest, target)
        dropped = topic.dropped_version is not None and oldest < topic.dropped_version <= target
        if found or dropped:
            size_bytes = sum(record.size_bytes for record in found)
            needed = _table_must_show(connection, topic, found)
            topics.append(UnreadableTopic(topic.name, len(found), size_bytes, dropped, needed))
    first_ms, last_ms = (follower.log.entry(version).header.timestamp_ms for version in (oldest, target - 1))
    return Unreadable(oldest, target - 1, first_ms, last_ms, tuple(topics))


def _table_must_show(connection: Connection, topic: TopicRecord, gone: Sequence[SegmentRecord]) -> int | None:
    """See ``UnreadableTopic``. What a table shows only its publisher knows; that there is one the store does."""
    if topic.dropped or not gone or is_auto(topic.properties):
        return None
    if next(iter(connection.store.list(keys.delta_prefix(topic.folder))), None) is None:
        return None
    _, removals = connection.follower.segments(topic.id)
    ends = (garbage.unneeded_from(record, removals, None) for record in gone)
    return max(end for end in ends if end is not None)


def _forget_heartbeats(connection: Connection) -> None:
    """Delete signs of life that are over: their subscription was dropped, or has a newer epoch. They need no grace.

    Whoever was fenced may write one late; the next vacuum finds it.
    """
    version, records = connection.follower.look(lambda state: (state.head.version, list(state.subscriptions.values())))
    epochs = {record.id: record.epoch for record in records}

    def over(heartbeat: keys.HeartbeatKey) -> bool:
        if heartbeat.subscription > version:
            return False  # it was created since that look
        epoch = epochs.get(heartbeat.subscription)
        return epoch is None or heartbeat.epoch < epoch

    connection.heartbeats.forget_where(over)


def _forget_mailboxes(connection: Connection) -> None:
    """Delete all mailboxes: rows in them may be of a topic that was dropped. They need no grace.

    Whoever proposes something at this moment races instead.
    """
    try:
        for info in connection.store.list(keys.PROPOSAL_FOLDER):
            key = keys.parse_key(info.key)
            if isinstance(key, keys.MailboxKey) and key.writer is not None:
                connection.store.delete(info.key)
    except TxnLogError:
        _logger.warning("Old proposals could not be deleted. They do no harm, and are deleted later.", exc_info=True)


def _topics(connection: Connection) -> list[TopicRecord]:
    """All topics there ever were: those that were dropped have folders too."""
    return connection.follower.topics()


def _graced(
    connection: Connection, plan: _Plan, grace_ms: int, delay_ms: int, without_grace: tuple[int, int]
) -> _Graced:
    """``without_grace`` are the horizon, and the oldest readable version, of a vacuum without a grace."""
    numbers = connection.follower.look(lambda state: WaitingNumbers.of(state, grace_ms))
    return _Graced(numbers, min(without_grace[0], max(without_grace[1], plan.oldest_readable)), delay_ms)


def _foreseen(connection: Connection, target: int, now_ms: int, grace_ms: int, horizon: int) -> _Plan:
    own = connection.appender.writer if connection.mode == "rw" else None

    def plan(state: State) -> _Plan:
        draft = state.draft()
        # The entry of a vacuum would show that its own writer is alive.
        mine = {first for first in draft.head.open_blocks if (block := draft.blocks.get(first)) and block.writer == own}
        closing = [first for first in garbage.silent_blocks(draft, now_ms, grace_ms) if first not in mine]
        closing = closing[:_MOST_CLOSED]
        oldest = max(target, state.head.oldest_readable)
        return _Plan(ClosedNumbers.of(state, closing), min(horizon, oldest), oldest, len(closing), state.head.version)

    return connection.follower.look(plan)


def _announced(connection: Connection, target: int, grace_ms: int, horizon: int) -> _Plan:
    """Say in the log what will be deleted; only what it says there afterwards counts."""
    closing: list[int] = []

    def decide(draft: Draft, at: Header) -> list[Close | VacuumAction] | Answer[None]:
        closing[:] = garbage.silent_blocks(draft, at.timestamp_ms, grace_ms)[:_MOST_CLOSED]
        actions: list[Close | VacuumAction] = [Close(first) for first in closing]
        if target > draft.head.oldest_readable:
            actions.append(VacuumAction(target))
        return actions or Answer(None)

    with unknown_outcome(IfUnknown.ANNOUNCE_VACUUM):
        connection.appender.call(effect(decide))

    def plan(state: State) -> _Plan:
        oldest = state.head.oldest_readable
        return _Plan(ClosedNumbers.of(state), min(horizon, oldest), oldest, len(closing), state.head.version)

    return connection.follower.look(plan)


class _Sweep:
    """Listing folders, and deleting what the plan allows."""

    def __init__(
        self,
        connection: Connection,
        plan: _Plan,
        graced: _Graced,
        unreadable: Unreadable | None,
        *,
        dry_run: bool,
        progress: Progress | None,
    ) -> None:
        self._connection = connection
        self._plan = plan
        self._unreadable = unreadable
        self._dry_run = dry_run
        self._progress = progress
        self._found: Counter[Garbage] = Counter()
        self._deleted_bytes = 0
        self._kept = 0
        self._graced = graced
        self._waiting_files = self._waiting_bytes = 0
        self._waiting_until_ms: int | None = None
        self._waiting_version: int | None = None
        self._before_topic = (0, 0)

    def run(self) -> Vacuumed:
        for topic in _topics(self._connection):
            self._before_topic = (self._found.total(), self._kept)
            if garbage.is_over(topic, self._plan.bound):
                # Its Delta log goes before its files, and in this order: no reader finds a table that lacks some.
                for step in self._connection.session.auto_publisher.remains(topic):
                    self._delete(topic, ((info, Garbage.DROPPED) for info in step))
            self._delete(topic, self._garbage_of(topic))
            self._report(topic)
        plan = self._plan
        return Vacuumed(
            plan.version,
            plan.oldest_readable,
            plan.blocks,
            unnamed_files=self._found[Garbage.UNNAMED],
            aborted_files=self._found[Garbage.ABORTED],
            replaced_files=self._found[Garbage.REPLACED],
            dropped_files=self._found[Garbage.DROPPED],
            deleted_bytes=self._deleted_bytes,
            kept_files=self._kept,
            dry_run=self._dry_run,
            unreadable=self._unreadable,
            waiting_files=self._waiting_files,
            waiting_bytes=self._waiting_bytes,
            waiting_until_ms=self._all_waited_ms(),
        )

    def _all_waited_ms(self) -> int | None:
        """When all of what waits can go: what ended last in the log, or the writer that was active last, decides."""
        until_ms, version = self._waiting_until_ms, self._waiting_version
        if version is None:
            return until_ms
        ended_ms = self._connection.follower.log.entry(version).header.timestamp_ms + self._graced.delay_ms
        return ended_ms if until_ms is None else max(until_ms, ended_ms)

    def _note_if_waiting(
        self,
        topic: TopicRecord,
        record: SegmentRecord | None,
        removals: Mapping[int, int],
        key: keys.SegmentKey,
        size_bytes: int,
    ) -> None:
        """Count a file that stays, where it could go if there were no grace."""
        until_ms, bound = self._graced.numbers.until_ms(key.segment), self._graced.bound
        if garbage.reason_of(topic, record, key.file, removals, bound, closed=until_ms is not None) is None:
            return
        self._waiting_files += 1
        self._waiting_bytes += size_bytes
        ended = None if record is None else garbage.unneeded_from(record, removals, topic.dropped_version)
        if record is not None and record.file == key.file and ended is not None:
            self._waiting_version = max(ended, self._waiting_version or 0)
        elif until_ms is not None:
            self._waiting_until_ms = max(until_ms, self._waiting_until_ms or 0)

    def _delete(self, topic: TopicRecord, files: Iterator[tuple[ObjectInfo, Garbage]]) -> None:
        while wave := list(islice(files, _WAVE_FILES)):
            if not self._dry_run:
                store = self._connection.store
                note_written()  # what is deleted was found
                self._connection.runtime.run_all([partial(store.delete, info.key) for info, _ in wave])
            for info, reason in wave:
                self._found[reason] += 1
                self._deleted_bytes += info.size_bytes
                _logger.debug("%s: %s", info.key, reason.value)
            self._report(topic)

    def _report(self, topic: TopicRecord) -> None:
        if self._progress is not None:
            deleted_before, kept_before = self._before_topic
            deleted = self._found.total() - deleted_before
            self._progress(topic.name, deleted + self._kept - kept_before, deleted)

    def _garbage_of(self, topic: TopicRecord) -> Iterator[tuple[ObjectInfo, Garbage]]:
        # After the plan was made: what the log names under a closed number is known by now, or never will be.
        records, removals = self._connection.follower.segments(topic.id)
        by_number = {record.number: record for record in records}
        for info in self._connection.store.list(keys.segments_prefix(topic.folder)):
            key = keys.parse_key(info.key)
            if not isinstance(key, keys.SegmentKey):
                continue  # a stranger's file
            number = key.segment
            reason = garbage.reason_of(
                topic, by_number.get(number), key.file, removals, self._plan.bound, closed=number in self._plan.closed
            )
            if reason is None:
                self._kept += 1
                self._note_if_waiting(topic, by_number.get(number), removals, key, info.size_bytes)
            else:
                yield info, reason


__all__ = ["Before", "Progress", "check_times", "vacuum"]
