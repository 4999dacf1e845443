"""A client's view of a namespace: the newest state it knows, and the cold rows behind it."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Final, NamedTuple, TypeVar

import msgspec

from txnlog.common.ranges import Ranges
from txnlog.common.signal_errors import raise_of_handler
from txnlog.common.validation import shown
from txnlog.data.scan_planner import ScanPlan
from txnlog.data.segment_index import SegmentIndex
from txnlog.data.segment_rows import PlannedSegment, damage_in_scan, missing_text
from txnlog.engine.runtime import Runtime
from txnlog.errors import (
    CorruptionError,
    InvalidTransactionState,
    NamespaceNotFound,
    RetriableError,
    TxnLogError,
    VersionNotAvailable,
)
from txnlog.fold.apply import applied
from txnlog.fold.garbage import may_be_gone
from txnlog.fold.state import Batch, Draft, Outcome, SegmentRecord, State, TopicRange, TopicRecord
from txnlog.format.actions import Commit, Header, Segment
from txnlog.format.codec import Entry, damaged_entry, decode_entry
from txnlog.format.features import HOLES
from txnlog.format.keys import entry_key
from txnlog.log import checkpoint_codec
from txnlog.log.checkpoint_codec import Manifest
from txnlog.log.checkpoint_reader import UnusableCheckpoint
from txnlog.log.log_reader import NO_ENTRIES, SLOTS_AT_ONCE, Log, up_to_free

T = TypeVar("T")

_LOOK_MS: Final = 5_000.0
"""Where nothing new comes for so long, one GET more sees whether the log is still there."""

_MOST_HEARD: Final = 256


class Heard(NamedTuple):
    """An entry of another writer: when it was read, by the clock that never jumps, and its version."""

    at_ms: float
    version: int


class Follower:
    """The materialized state of a log, in memory.

    Only the engine changes it. Who reads several tables that must agree, or goes through one, does so by ``look``.

    Attributes:
        state: the materialized state.
        base: the checkpoint that holds the cold rows which are not in the state any more.
        on_applied: called in the engine when an entry was applied, before anything else changes.
        heard: of the writers whose entries were read last, their newest one.
        applied_ms: when an entry was applied last, or the log was loaded, by that clock.
    """

    def __init__(self, log: Log, runtime: Runtime) -> None:
        self.log = log
        self._changes = 0  # odd while one is under way
        self.runtime = runtime
        self._is_whole = True
        self.state, self.base, self.applied_bytes = log.load()
        log.note_known(self.state)
        self._seen_ms = runtime.elapsed_ms()
        self.heard: dict[str, Heard] = {}
        self.applied_ms = self._seen_ms
        self.on_applied: Callable[[], None] = lambda: None
        self._indexes: dict[int, SegmentIndex] = {}
        self._watchers: list[Callable[[Draft], None]] = []
        self._make_durable(self.version)

    @property
    def version(self) -> int:
        """The newest version that this client has applied."""
        return self.state.head.version

    @property
    def forgotten_to(self) -> int:
        """The version up to which the state has forgotten what its checkpoint holds, such as segments; -1: it has all.

        Who has looked at segments at an older version knows of them what the state does not.
        """
        return -1 if self.base is None else self.base.version

    @property
    def newest_checkpoint(self) -> int | None:
        """The version of the newest checkpoint that headers name or that this client made."""
        named = self.state.head.checkpoint
        base = self.base
        return named if base is None or (named is not None and named > base.version) else base.version

    @property
    def newest_usable_checkpoint(self) -> int | None:
        """The version of the newest checkpoint that is not known to be unusable, as far as headers named it."""
        newest, base = self.newest_checkpoint, self.base
        if newest is None or not self.log.checkpoints.is_unusable(newest):
            return newest
        return None if base is None else base.version

    def refresh(self) -> int:
        """Apply whatever was appended meanwhile: one GET where nothing was. Returns the newest version."""
        found = self._next()  # by the caller: mostly there is nothing, and so nothing to do for the engine
        return self.runtime.engine.call(partial(self.refreshing, found)) if found else self.version

    async def refreshing_if_new(self) -> None:
        """See ``refresh``, with its one GET; for commands of the engine that end where their caller is gone."""
        found = await self.runtime.read(self._next)
        if found:
            await self.refreshing(found)

    def _next(self) -> dict[int, bytes]:
        """The next entry, by its version, if there is one. Raises NamespaceNotFound where the log is gone.

        There is never anything new in a folder that was removed or moved: who waits for messages would wait for ever.
        """
        first = self.version + 1
        data = self.log.get(first)
        now_ms = self.runtime.elapsed_ms()
        if data is None:
            if now_ms - self._seen_ms < _LOOK_MS:
                return {}
            self.log.check_there()
        self._seen_ms = now_ms
        return {} if data is None else {first: data}

    async def refreshing(self, known: Mapping[int, bytes] = NO_ENTRIES) -> int:
        """See ``refresh``; for commands of the engine. Entries that are ``known`` are not read again."""
        ahead = max(1, len(known))
        while True:
            wanted = range(self.version + 1, self.version + 1 + ahead)
            batch = up_to_free(wanted, known, await self.runtime.requests(self.log.reads(wanted, known)))
            if batch:
                await self.runtime.request(partial(self._make_durable, wanted[len(batch) - 1]))
            for version, data in zip(wanted, batch, strict=False):
                self.apply_entry(decode_entry(data, version))
            if len(batch) < ahead:
                return self.version
            ahead = min(ahead * 2, SLOTS_AT_ONCE)

    def reads_of_next(self, count: int) -> list[Callable[[], tuple[int, bytes] | None]]:
        """Reads of the next entries, each on disk, if there is one: for the threads of requests. See ``apply_next``."""
        return [partial(self._read_next, self.version + place) for place in range(1, count + 1)]

    def _read_next(self, version: int) -> tuple[int, bytes] | None:
        data = self.log.get(version)
        if data is None:
            return None
        self._make_durable(version)
        return version, data

    def apply_next(self, found: tuple[int, bytes] | None) -> Entry | None:
        """Apply what a read of the next entry found."""
        if found is None:
            return None
        entry = decode_entry(found[1], found[0])
        self.apply_entry(entry)
        return entry

    def _make_durable(self, version: int) -> None:
        """Have an entry on disk, and so those before it, before anybody can look at what it says.

        Another process may have linked it an instant ago: a power cut could take it back (PROTOCOL.md, "Appending").
        """
        self.log.store.sync(entry_key(version))

    def apply_entry(self, entry: Entry) -> None:
        """Apply the next entry, which is on disk, whoever wrote it; one that is applied is passed over."""
        if entry.header.version > self.version:
            try:
                draft = applied(self.state, entry)
            except CorruptionError:
                self.log.check_there()  # of another namespace it says nothing about this one
                raise
            self._merge(draft, entry.size_bytes)
            self._note_heard(entry.header)

    def _note_heard(self, header: Header) -> None:
        self.heard.pop(header.writer, None)
        self.heard[header.writer] = Heard(self.runtime.elapsed_ms(), header.version)
        if len(self.heard) > _MOST_HEARD:
            del self.heard[next(iter(self.heard))]

    def look(self, function: Callable[[State], T]) -> T:
        """What a function finds in the state: nothing changes meanwhile. From any thread.

        Without a lock: the handler of a signal may come here in the middle of a look, and wait for the engine.

        Args:
            function: makes no request, waits for nothing, and changes nothing. It is called again, in the engine, where
                the state changed under it, whatever it found or raised.
        """
        if self.runtime.engine.is_current:
            return function(self.state)
        changes = self._changes
        if changes % 2 == 0:
            try:
                found = function(self.state)
            except Exception as error:
                raise_of_handler(error)
                if changes == self._changes:
                    raise
            else:
                if changes == self._changes:
                    return found
        return self.runtime.engine.look(partial(function, self.state))

    def topics(self) -> list[TopicRecord]:
        """All topics that there ever were: those that were dropped are never forgotten."""
        return self.look(lambda state: list(state.topics.values()))

    @contextlib.contextmanager
    def _changing(self) -> Iterator[None]:
        """Around each change: whoever looks meanwhile looks again."""
        self._changes += 1
        try:
            yield
        finally:
            self._changes += 1

    def _merge(self, draft: Draft, size_bytes: int) -> None:
        """Carry a draft into the state, and what it shows into the indexes."""
        self.check_whole()
        self._is_whole = False
        with self._changing():
            self._carry(draft)
            self.applied_bytes += size_bytes
        self._is_whole = True
        self.applied_ms = self.runtime.elapsed_ms()
        self.on_applied()

    def check_whole(self) -> None:
        """Raise InvalidTransactionState where an error left the state with a part of an entry."""
        if not self._is_whole:
            raise InvalidTransactionState(
                "an error in this process left the namespace's state in memory incomplete",
                advice="open the namespace again: its log is not affected",
            )

    def _carry(self, draft: Draft) -> None:
        for watcher in self._watchers:
            watcher(draft)
        if self._indexes:
            removed, changed = draft.removals.changed(), draft.segments.changed()
            for number in removed:
                for index in self._indexes.values():
                    index.remove(number)
            for record in changed.values():
                known = None if record is None else self._indexes.get(record.topic)
                if (
                    known is not None
                    and record is not None
                    and record.state == "visible"
                    and record.number not in removed
                ):
                    known.add(record)
        draft.merge()

    def watch(self, watcher: Callable[[Draft], None]) -> None:
        """Show it each draft before that is carried into the state: in the engine."""
        self._watchers.append(watcher)

    def apply_own(self, draft: Draft, version: int, size_bytes: int) -> None:
        """The entry that a draft of this state stands for was created; a refresh may have read and applied it first."""
        if self.version == version - 1:
            self._merge(draft, size_bytes)

    def rebase(self, manifest: Manifest) -> None:
        """Let go of the cold rows that a newer checkpoint holds, unless that is known to be unusable."""
        self.runtime.engine.look(partial(self._rebase, manifest))

    def _rebase(self, manifest: Manifest) -> None:
        if (self.base is None or self.base.version < manifest.version) and self.log.checkpoints.judged_usable(manifest):
            with self._changing():
                self.base = manifest
                checkpoint_codec.trim(self.state, manifest.version)

    def adopt_checkpoint(self) -> None:
        """Rebase to the newest usable checkpoint that the log names, if it is newer than ours: to save memory."""
        for manifest in self.log.checkpoints.usable(self._newer_checkpoint()):
            self.rebase(manifest)
            return

    def _newer_checkpoint(self) -> int | None:
        """The newest checkpoint that headers name, if it is newer than the base."""
        newest = self.newest_checkpoint
        return newest if self.base is None or (newest is not None and newest > self.base.version) else None

    def over_checkpoints(self, look: Callable[[], T]) -> T:
        """Return what ``look`` finds in the base; call it again over an older base while an object is unusable."""
        while True:
            try:
                return look()
            except UnusableCheckpoint as error:
                self.log.checkpoints.note(error)
                self._fall_back()

    def _fall_back(self) -> None:
        """Replace an unusable base by the newest usable one below it, or by none: its cold rows are applied again."""
        base = self.base
        if base is None or self.log.checkpoints.judged_usable(base):
            return  # another thread was faster
        # Hot rows are not touched, so others apply and append meanwhile.
        state, older, _ = self.log.state_at(base.version, self.log.checkpoints.named_by(base.version))
        self.runtime.engine.look(partial(self._replace_base, base, older, state))

    def _replace_base(self, base: Manifest, older: Manifest | None, state: State) -> None:
        if self.base == base:
            with self._changing():
                # First: meanwhile cold rows are in both places; the other way round they would be in neither.
                checkpoint_codec.untrim(self.state, state)
                self.base = older

    def verify_checkpoints(self) -> None:
        """Read all of the base, and of the checkpoint that opening the log begins with: what is unusable is known then.

        What a new checkpoint takes over from the base is whole after that.
        """
        self.adopt_checkpoint()
        base = self.base
        while base is not None and not self.log.checkpoints.is_whole(base.version):
            self._fall_back()
            base = self.base
        named = self.state.head.checkpoint
        if named is not None and (base is None or named != base.version):
            self.log.checkpoints.is_whole(named)

    def unavailable(self, version: int) -> VersionNotAvailable | None:
        """The error for a version that this client knows not to be readable, naming the range; None where it is."""
        head = self.state.head
        if head.oldest_readable <= version <= head.version:
            return None
        return VersionNotAvailable(
            f"version {shown(version)} cannot be read",
            advice=f"versions {head.oldest_readable} to {head.version} can be read",
        )

    def missing(self, plan: ScanPlan, segment: PlannedSegment) -> TxnLogError:
        """What it means that a planned file is not there: a vacuum since then, or damage."""
        return self.missing_at(plan.version, plan.topic, plan.folder, segment)

    def missing_at(self, version: int, name: str, folder: str, segment: PlannedSegment) -> TxnLogError:
        """What it means that a file is missing which the log shows at a version, in a topic of this name and folder."""
        self.refresh()
        unavailable = self.unavailable(version)
        if unavailable is not None:
            return unavailable
        oldest, topics = self.look(lambda state: (state.head.oldest_readable, list(state.topics.values())))
        topic = next((item.id for item in topics if item.folder == folder), None)
        if segment.state == "ABORTED" and topic is not None:
            record = next((item for item in self.segments(topic)[0] if item.number == segment.number), None)
            if record is not None and may_be_gone(record, oldest):
                return RetriableError("aborted rows were vacuumed while they were read")
        try:
            self.log.check_there()
        except NamespaceNotFound as error:
            return error
        damage = missing_text(segment.key)
        if next(iter(self.log.store.list(f"{folder}/")), None) is None:
            damage += ", and so is every other object of the topic, whose folder may have been renamed or moved"
        return damage_in_scan(CorruptionError(damage), name, segment)

    # --- cold rows --------------------------------------------------------------------------------------------------

    def _runs(self, kind: checkpoint_codec.PartKind) -> Iterable[checkpoint_codec.Part]:
        return () if self.base is None else self.base.runs(kind)

    def segments(self, topic: int, shown_at: int = -1) -> tuple[list[SegmentRecord], dict[int, int]]:
        """All segments of a topic that the log ever showed, and which of them were replaced at which version.

        ``shown_at``: without those that were replaced up to this version, whose readers do without them.
        """
        return self.over_checkpoints(partial(self._segments, topic, shown_at))

    def _segments(self, topic: int, shown_at: int) -> tuple[list[SegmentRecord], dict[int, int]]:
        records, removals, parts, removal_parts = self.look(
            lambda state: (
                list(state.segments.values()),
                dict(state.removals),
                tuple(self._runs("segments")),
                tuple(self._runs("removals")),
            )
        )
        for part in removal_parts:
            removals |= self.log.checkpoints.removals(part)
        gone = {number for number, version in removals.items() if version <= shown_at}
        found = {record.number: record for record in records if record.topic == topic}
        for part in parts:
            for record in self.log.checkpoints.segments(part, topic, gone, shown_at):
                found.setdefault(record.number, record)
        return [record for number, record in found.items() if number not in gone], removals

    def holding(
        self, topic: int, wanted: Mapping[int, Ranges], most: int | None = None
    ) -> tuple[list[SegmentRecord], int]:
        """The segments that hold offsets of a topic at the newest version, and that version: as quick with many.

        ``most``: the first so many, partition by partition.
        """
        while True:
            found = self.look(lambda state: self._in_index(state, topic, wanted, most))
            if found is not None:
                return found
            # Made at the first call, which reads checkpoints too: so others may apply entries meanwhile.
            version = self.version
            records, removals = self.segments(topic, version)
            visible = [item for item in records if item.state == "visible" and item.number not in removals]
            self.runtime.engine.look(partial(self._add_index, topic, version, visible))

    def may_have_lost_rows(self, topic: int, several: Sequence[Sequence[int]]) -> list[bool]:
        """Of segments that were visible, group by group, whether rows may have been erased since: one was replaced."""

        def look(state: State) -> list[bool]:
            if HOLES not in state.head.reader_features:
                return [False] * len(several)
            index = self._indexes.get(topic)
            return [index is None or not all(number in index for number in numbers) for numbers in several]

        return self.look(look)

    def _in_index(
        self, state: State, topic: int, wanted: Mapping[int, Ranges], most: int | None
    ) -> tuple[list[SegmentRecord], int] | None:
        index = self._indexes.get(topic)
        return None if index is None else (index.overlapping(wanted, most), state.head.version)

    def _add_index(self, topic: int, version: int, visible: Iterable[SegmentRecord]) -> None:
        if self.version == version:
            self._indexes.setdefault(topic, SegmentIndex(visible))

    def outcome(self, number: int) -> Outcome | None:
        """How a transaction ended, with offsets and digest; None where nothing is remembered."""
        outcome, cold = self.over_checkpoints(partial(self._outcome, number))
        return self._completed(outcome) if outcome is not None and cold else outcome

    async def recorded_outcome(self, number: int) -> Outcome | None:
        """As ``outcome``, for commands of the engine: who need not read a checkpoint waits for nothing."""
        outcome = self.state.outcomes.get(number)
        if outcome is not None or self.base is None:
            return outcome
        return await self.runtime.job(partial(self.outcome, number))

    def _outcome(self, number: int) -> tuple[Outcome | None, bool]:
        """The outcome of a transaction, and whether it is a cold one."""
        outcome, parts = self.look(lambda state: (state.outcomes.get(number), tuple(self._runs("outcomes"))))
        if outcome is not None:
            return outcome, False
        for part in reversed(parts):
            found = self.log.checkpoints.outcome(part, number, self.state.topics)
            if found is not None:
                return found, True
        return None, False

    def _completed(self, outcome: Outcome) -> Outcome:
        """A cold outcome with what its entry says: checkpoints keep what stands nowhere else."""
        if outcome.state == "ABORTED":
            return outcome
        entry = self.log.entry(outcome.version)
        commit = next((item for item in entry.actions if isinstance(item, Commit) and item.txn == outcome.number), None)
        if commit is None:  # a replacement of segments ends a transaction without a commit action
            return msgspec.structs.replace(outcome, offsets=())
        digest = outcome.digest if outcome.prepared else commit.digest
        return msgspec.structs.replace(outcome, digest=digest, offsets=self._offsets(entry, commit))

    def _offsets(self, entry: Entry, commit: Commit) -> tuple[TopicRange, ...]:
        """The offsets a commit was given, from the segments it made visible and its place among the entry's shares."""
        records: dict[int, SegmentRecord] = {}
        for item in entry.actions:
            if isinstance(item, Segment) and item.txn is None:
                for record in self.segments(item.topic)[0]:
                    records[record.number] = record
        claimed: dict[tuple[int, int], int] = {}
        spans: list[TopicRange] = []
        for action in entry.actions:
            if not isinstance(action, Commit):
                continue
            for share in action.shares:
                shared = records.get(share.segment)
                if shared is None:
                    raise damaged_entry(entry.header.version, f" shares segment {share.segment}, which is unknown")
                before = claimed.get((share.segment, share.partition), 0)
                claimed[share.segment, share.partition] = before + share.rows
                if action.txn == commit.txn:
                    base = next(item.offset for item in shared.slices if item.partition == share.partition)
                    assert base is not None, "a shared segment is visible"
                    spans.append(TopicRange(shared.topic, share.partition, base + before, base + before + share.rows))
        for topic in list(self.state.topics):  # another thread may apply a new one
            for record in self.segments(topic)[0]:
                if record.txn == commit.txn and record.state == "visible":
                    spans.extend(
                        TopicRange(topic, item.partition, item.offset, item.offset + item.rows)
                        for item in record.slices
                        if item.offset is not None
                    )
        return joined(spans)

    def batches(self, producer: str, topic: int, partition: int, first: int, last: int) -> list[Batch]:
        """The sequenced batches that hold sequences from ``first`` to ``last``, in order, from memory and history.

        They follow each other without a gap up to the last visible sequence; there are none below the first one.
        """
        return self.over_checkpoints(partial(self._batches, producer, topic, partition, first, last))

    def _batches(self, producer: str, topic: int, partition: int, first: int, last: int) -> list[Batch]:
        known, hot, parts = self.look(
            lambda state: (
                state.sequences.get((producer, topic, partition)),
                [item for key, item in state.batches.items() if key[:3] == (producer, topic, partition)],
                tuple(self._runs("batches")),
            )
        )
        found = {
            item.sequence: item
            for item in (*(known.recent if known else ()), *hot)
            if item.sequence <= last and first < item.sequence + item.rows
        }
        for part in reversed(parts):  # the newest first: memory and runs each go on where the next one ends
            if found and min(found) <= first:
                break
            more = self.log.checkpoints.batches(part, producer, topic, partition, first, last)
            found |= {item.sequence: item for item in more}
        return [found[sequence] for sequence in sorted(found)]


def joined(spans: Iterable[TopicRange]) -> tuple[TopicRange, ...]:
    """Ranges of offsets in order, those that touch as one."""
    result: list[TopicRange] = []
    for item in sorted(spans, key=lambda span: (span.topic, span.partition, span.start)):
        last = result[-1] if result else None
        if last and (last.topic, last.partition, last.end) == (item.topic, item.partition, item.start):
            result[-1] = TopicRange(last.topic, last.partition, last.start, item.end)
        else:
            result.append(item)
    return tuple(result)


__all__ = ["Follower", "joined"]
