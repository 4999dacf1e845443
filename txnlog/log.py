"""Reading a commit log from its store: slots, the tail, checkpoints. Nothing here appends."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Container, Iterable, Iterator, Mapping
from functools import partial
from typing import Final

import pyarrow as pa

from txnlog import checkpoint, keys
from txnlog.apply import apply_entry, newer_checkpoint
from txnlog.arguments import shortened
from txnlog.checkpoint import Manifest, Part
from txnlog.codec import Entry, decode_entry, digest_of
from txnlog.errors import CorruptionError, UnsupportedFeature
from txnlog.limits import MAX_CHECKPOINT_RUNS
from txnlog.recent import Recent
from txnlog.runtime import Runtime
from txnlog.state import Batch, Outcome, SegmentRecord, State
from txnlog.store.base import ObjectNotFound, Store
from txnlog.wording import Call, Words

_logger = logging.getLogger("txnlog.log")

SLOTS_AT_ONCE: Final = 32
"""Slots that are asked for at once: behind a checkpoint there are seldom more than 1,000."""

NO_ENTRIES: Final[Mapping[int, bytes]] = {}

_CONFIRM_MS: Final = (0, 50, 250)
"""Pauses before the looks at an entry that must be there. A later entry is there, so its slot was filled before: at the
first look it is there again where writers went on meanwhile, at the others where a cache of names was behind."""

_CACHED_PARTS = len(checkpoint.COLD_KINDS) * MAX_CHECKPOINT_RUNS
"""Cold runs kept in memory: those of a whole checkpoint."""

_CACHED_TOPICS = 8 * MAX_CHECKPOINT_RUNS
"""One topic's segments of a run kept decoded, for eight topics: a consumer asks for them at every receive."""


class UnusableCheckpoint(CorruptionError):
    """An object of a checkpoint is missing or damaged. No user sees it: an older checkpoint is used instead.

    Only a missing or damaged entry is corruption, since all that checkpoints hold follows from the entries.

    Attributes:
        subject: the version of the manifest, or the part as a manifest names it.
    """

    def __init__(self, subject: int | Part, message: str) -> None:
        super().__init__(message, advice=Words("make a new checkpoint: ", Call("checkpoint")))
        self.subject = subject

    @property
    def key(self) -> str:
        """The key of the object."""
        return keys.manifest_key(self.subject) if isinstance(self.subject, int) else keys.part_key(self.subject.unique)


class Log:
    """The commit log of one namespace on its store."""

    def __init__(self, store: Store, runtime: Runtime) -> None:
        self.store = store
        self._runtime = runtime
        self._warned: dict[str, UnusableCheckpoint] = {}
        self._unusable_parts: set[Part] = set()  # with size and digest: another manifest may say what it is
        self._unusable_versions: set[int] = set()
        self._parts: Recent[str, pa.Table] = Recent(_CACHED_PARTS)
        self._segments: Recent[tuple[str, int], tuple[SegmentRecord, ...]] = Recent(_CACHED_TOPICS)
        self._first: bytes | None = None

    def get(self, version: int) -> bytes | None:
        """The bytes in a slot, None where it is free."""
        try:
            return self.store.get(keys.entry_key(version))
        except ObjectNotFound:
            return None

    def entry(self, version: int) -> Entry:
        """An entry that must be there: an absent one is damage, since log objects are never deleted."""
        data = self.get(version)
        return decode_entry(self._confirmed(version) if data is None else data, version)

    def get_many(self, first: int, count: int, known: Mapping[int, bytes] = NO_ENTRIES) -> list[bytes]:
        """The bytes of slots from ``first`` on, up to the first free one, at most ``count``; not those ``known``."""
        wanted = [version for version in range(first, first + count) if version not in known]
        read = self._runtime.run_all([partial(self.get, version) for version in wanted])
        found = dict(zip(wanted, read, strict=True))
        result: list[bytes] = []
        for version in range(first, first + count):
            data = known[version] if version in known else found[version]
            if data is None:
                break
            result.append(data)
        return result

    def first(self) -> bytes | None:
        """The bytes of entry 0, None where there is no log. They never change, so they are read once."""
        if self._first is None:
            self._first = self.get(0)
        return self._first

    def exists(self) -> bool:
        """Whether there is a log at all."""
        return self.first() is not None

    def beginning(self) -> str:
        """The digest of entry 0, which tells the log from all that are no copies of it."""
        data = self.first()
        if data is None:
            raise CorruptionError("entry 0 is missing: there is no log")
        return digest_of(data)

    def newest(self) -> tuple[int, int | None, dict[int, bytes]]:
        """The tail of the log, the newest checkpoint that headers on the way name, and the entries on the way.

        No slot below the tail is ever free, so doubling and bisection find it without a LIST. The free slot that they
        come to may be an entry that the store lost: the one behind it tells. A header names only checkpoints below
        itself: one that names another could lead behind the end of its own log.
        """
        low, checkpointed = 0, None
        data = self.first()
        if data is None:
            raise CorruptionError("entry 0 is missing: there is no log")
        seen = {0: data}
        step = 1
        high = None
        while high is None:
            probe = low + step
            data = self.get(probe)
            if data is None:
                high = probe
                break
            low, step, seen[probe] = probe, step * 2, data
            checkpointed = newer_checkpoint(checkpointed, decode_entry(data, probe).header)
        while high - low > 1:
            middle = (low + high) // 2
            data = self.get(middle)
            if data is None:
                high = middle
            else:
                low, seen[middle] = middle, data
                checkpointed = newer_checkpoint(checkpointed, decode_entry(data, middle).header)
        if self.get(high + 1) is not None:
            self._confirmed(high)
        return low, checkpointed, seen

    def _confirmed(self, version: int) -> bytes:
        """The bytes in a slot below the tail that seemed free. Raises CorruptionError where it is (docs/stores.md)."""
        for pause_ms in _CONFIRM_MS:
            if pause_ms:
                self._runtime.sleep_ms(pause_ms)
            data = self.get(version)
            if data is not None:
                return data
        raise CorruptionError(
            f"entry {version} is missing below the tail of the log",
            advice=f"restore {keys.entry_key(version)} of the namespace from a copy; over a network file system, which "
            "may show new entries seconds late, open it again first",
        )

    def load(self) -> tuple[State, Manifest | None, int]:
        """The state at the tail, from the newest usable checkpoint on; see ``state_at``."""
        tail, checkpointed, seen = self.newest()
        return self.state_at(tail, checkpointed, seen)

    def state_at(
        self, version: int, named: int | None, known: Mapping[int, bytes] = NO_ENTRIES
    ) -> tuple[State, Manifest | None, int]:
        """The state at a version, from the newest usable checkpoint on that ``named`` leads to, else from entry 0.

        Returns the manifest of that checkpoint as well, and the bytes of entries that were folded. Entries that are
        ``known`` are not read again.
        """
        for manifest in self.checkpoints(named):
            try:
                state = self.restore(manifest)
                return state, manifest, self.fold(state, version, known)
            except UnusableCheckpoint as error:
                self.note(error)
            except CorruptionError:
                if self.holds(manifest):
                    raise
                self.note(UnusableCheckpoint(manifest.version, "it is of another log than the entry of its version"))
            self._unusable_versions.add(manifest.version)
        state = State()
        return state, None, self.fold(state, version, known)

    def fold(self, state: State, until: int, known: Mapping[int, bytes] = NO_ENTRIES) -> int:
        """Apply the entries after a state's version up to ``until``. Returns their bytes.

        Those that are ``known`` are not read again.
        """
        size = 0
        while state.head.version < until:
            first = state.head.version + 1
            count = min(SLOTS_AT_ONCE, until - first + 1)
            batch = self.get_many(first, count, known)
            if len(batch) < count:
                batch.append(self._confirmed(first + len(batch)))
            for data in batch:
                apply_entry(state, decode_entry(data, state.head.version + 1))
                size += len(data)
        return size

    # --- checkpoints ------------------------------------------------------------------------------------------------

    def checkpoints(self, named: int | None) -> Iterator[Manifest]:
        """The usable checkpoints, newest first: the one that a header names, then those that its own entry leads to."""
        while named is not None:
            manifest = self._usable_manifest(named)
            if manifest is not None:
                yield manifest
            named = self.named_by(named)

    def named_by(self, version: int) -> int | None:
        """The checkpoint that the header of an entry names: one of an older version."""
        return newer_checkpoint(None, self.entry(version).header)

    def _usable_manifest(self, version: int) -> Manifest | None:
        """The manifest at a version, None where it is unusable, or names an object that is known to be."""
        if version in self._unusable_versions:
            return None
        try:
            manifest = self.manifest(version)
        except UnusableCheckpoint as error:
            self.note(error)
            return None
        return manifest if self.judged_usable(manifest) else None

    def judged_usable(self, manifest: Manifest) -> bool:
        """Whether no object of a checkpoint is known to be missing or damaged; one that names such is unusable then."""
        if not self._unusable_parts.isdisjoint(manifest.parts):
            self._unusable_versions.add(manifest.version)
        return manifest.version not in self._unusable_versions

    def is_unusable(self, version: int) -> bool:
        """Whether the checkpoint at a version is known to be unusable."""
        return version in self._unusable_versions

    def note(self, error: UnusableCheckpoint) -> None:
        """Remember that an object is unusable, and warn of it once."""
        if isinstance(error.subject, int):
            self._unusable_versions.add(error.subject)
        else:
            self._unusable_parts.add(error.subject)
        if self._warned.setdefault(error.key, error) is error:
            _logger.warning(
                "%s is unusable: %s. Nothing is lost, since all of it follows from the entries of the log: an older "
                "checkpoint is used, or the whole log, which takes longer. Make a new checkpoint: ns.checkpoint(), "
                "or the command checkpoint.",
                shortened(self.store.url(error.key)),
                error.message,
            )

    @contextlib.contextmanager
    def _reading(self, subject: int | Part) -> Iterator[None]:
        """Raise UnusableCheckpoint where an object of a checkpoint is missing, or is not what it should be."""
        try:
            yield
        except UnusableCheckpoint:
            raise
        except ObjectNotFound:
            raise UnusableCheckpoint(subject, "it is missing") from None
        except (CorruptionError, UnsupportedFeature) as error:
            raise UnusableCheckpoint(subject, error.message) from None

    def manifest(self, version: int) -> Manifest:
        """The manifest of a checkpoint. Raises UnusableCheckpoint."""
        with self._reading(version):
            return checkpoint.decode_manifest(self.store.get(keys.manifest_key(version)), version)

    def restore(self, manifest: Manifest) -> State:
        """The state of a checkpoint. Raises UnusableCheckpoint."""
        (part,) = manifest.runs("hot")
        with self._reading(part):
            state = checkpoint.decode_hot(self._read(part))
        if state.head.version != manifest.version or state.head.digest != manifest.digest:
            raise UnusableCheckpoint(manifest.version, "its part holds the state of another version, or of another log")
        return state

    def holds(self, manifest: Manifest) -> bool:
        """Whether the entry that a checkpoint is of is the one in this log."""
        data = self.get(manifest.version)
        return data is not None and digest_of(data) == manifest.digest

    def is_whole(self, version: int) -> bool:
        """Whether the checkpoint at a version can be used, by reading all of it."""
        manifest = self._usable_manifest(version)
        if manifest is None:
            return False
        try:
            self.verify(manifest.parts)
        except UnusableCheckpoint as error:
            self.note(error)
        return self.judged_usable(manifest)

    def verify(self, parts: Iterable[Part]) -> None:
        """Read parts again, whatever is in memory. Raises UnusableCheckpoint for the first bad one."""
        self._runtime.run_all([partial(self._verify, part) for part in parts])

    def _verify(self, part: Part) -> None:
        with self._reading(part):
            checkpoint.check_part(self.store.get(keys.part_key(part.unique)), part)

    def _read(self, part: Part) -> pa.Table:
        return checkpoint.read_part(self.store.get(keys.part_key(part.unique)), part)

    # Cold runs are kept in memory while they are used. All of these raise UnusableCheckpoint.

    def read_run(self, part: Part) -> pa.Table:
        """The rows of a cold run."""
        table = self._parts.get(part.unique)
        if table is None:
            with self._reading(part):
                table = self._read(part)
            self._parts.put(part.unique, table)
        return table

    def segments(self, part: Part, topic: int) -> tuple[SegmentRecord, ...]:
        """The segments of one topic in a cold run, which stay decoded while they are used."""
        key = (part.unique, topic)
        found = self._segments.get(key)
        if found is None:
            with self._reading(part):
                found = tuple(checkpoint.segments_of(self.read_run(part), topic))
            self._segments.put(key, found)
        return found

    def removals(self, part: Part) -> dict[int, int]:
        """Which segments a cold run says were replaced, and at which version."""
        return checkpoint.removals_in(self.read_run(part))

    def outcome(self, part: Part, number: int, topics: Container[int]) -> Outcome | None:
        """The outcome of one transaction in a cold run, as far as it is there; ``topics`` are all that there are."""
        with self._reading(part):
            found = checkpoint.outcome_in(self.read_run(part), number)
            unknown = () if found is None else [topic for topic in found.dropped_topics if topic not in topics]
            if unknown:
                raise CorruptionError(f"a checkpoint gives outcome {number} the unknown topic {unknown[0]}")
            return found

    def batches(self, part: Part, producer: str, topic: int, partition: int, first: int, last: int) -> list[Batch]:
        """The sequenced batches of a cold run that hold sequences from ``first`` to ``last``."""
        return checkpoint.batches_in(self.read_run(part), producer, topic, partition, first, last)

    def version_at(self, timestamp_ms: int, newest: int) -> int | None:
        """The newest version whose timestamp is at or below a time; None where the log begins later."""
        low, high = -1, newest + 1
        while high - low > 1:
            middle = (low + high) // 2
            if self.entry(middle).header.timestamp_ms <= timestamp_ms:
                low = middle
            else:
                high = middle
        return None if low < 0 else low


__all__ = ["SLOTS_AT_ONCE", "Log", "UnusableCheckpoint"]
