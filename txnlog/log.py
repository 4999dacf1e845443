"""Reading a commit log from its store: slots, the tail, checkpoints. Nothing here appends."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Final

import pyarrow as pa

from txnlog import checkpoint, keys
from txnlog.apply import apply_entry, newer_checkpoint
from txnlog.checkpoint import Manifest, Part
from txnlog.codec import Entry, decode_entry, digest_of
from txnlog.errors import CorruptionError
from txnlog.limits import MAX_CHECKPOINT_RUNS
from txnlog.recent import Recent
from txnlog.runtime import Runtime
from txnlog.state import SegmentRecord, State
from txnlog.store.base import ObjectNotFound, Store

SLOTS_AT_ONCE: Final = 32
"""Slots that are asked for at once: behind a checkpoint there are seldom more than 1,000."""

NO_ENTRIES: Final[Mapping[int, bytes]] = {}

_LATE_MS: Final = (50, 250, 1_000, 3_000)
"""Pauses before an entry that must be there is damage."""

_CACHED_PARTS = len(checkpoint.COLD_KINDS) * MAX_CHECKPOINT_RUNS
"""Cold runs kept in memory: those of a whole checkpoint."""

_CACHED_TOPICS = 8 * MAX_CHECKPOINT_RUNS
"""One topic's segments of a run kept decoded, for eight topics: a consumer asks for them at every receive."""


class Log:
    """The commit log of one namespace on its store."""

    def __init__(self, store: Store, runtime: Runtime) -> None:
        self.store = store
        self._runtime = runtime
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
        if data is None:
            raise CorruptionError(f"entry {version} is missing below the tail of the log")
        return decode_entry(data, version)

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
            self._late(high)
        return low, checkpointed, seen

    def _late(self, version: int) -> bytes:
        """The bytes in a slot below the tail: a network file system may show it seconds late (docs/stores.md)."""
        for pause_ms in _LATE_MS:
            data = self.get(version)
            if data is not None:
                return data
            self._runtime.sleep_ms(pause_ms)
        raise CorruptionError(f"entry {version} is missing below the tail of the log")

    def load(self) -> tuple[State, Manifest | None, int]:
        """The fold up to the tail, from the newest checkpoint on; its manifest; the bytes of tail that were folded."""
        tail, checkpointed, seen = self.newest()
        manifest = None if checkpointed is None else self.manifest(checkpointed)
        state = State() if manifest is None else self.restore(manifest)
        return state, manifest, self.fold(state, tail, seen)

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
                batch.append(self._late(first + len(batch)))
            for data in batch:
                apply_entry(state, decode_entry(data, state.head.version + 1))
                size += len(data)
        return size

    def manifest(self, version: int) -> Manifest:
        """The manifest of a checkpoint that a header names."""
        try:
            data = self.store.get(keys.manifest_key(version))
        except ObjectNotFound:
            raise CorruptionError(f"the checkpoint {version} that the log names is missing") from None
        return checkpoint.decode_manifest(data, version)

    def restore(self, manifest: Manifest) -> State:
        """The state of a checkpoint."""
        (part,) = manifest.runs("hot")
        state = checkpoint.decode_hot(self._read(part))
        if state.head.version != manifest.version or state.head.digest != manifest.digest:
            raise CorruptionError(f"the checkpoint {manifest.version} holds the state of another version")
        return state

    def _read(self, part: Part) -> pa.Table:
        try:
            data = self.store.get(keys.part_key(part.unique))
        except ObjectNotFound:
            raise CorruptionError(f"the checkpoint part {part.unique} ({part.kind}) is missing") from None
        return checkpoint.read_part(data, part)

    def run(self, part: Part) -> pa.Table:
        """A cold run, kept in memory while it is used."""
        table = self._parts.get(part.unique)
        if table is None:
            table = self._read(part)
            self._parts.put(part.unique, table)
        return table

    def segments(self, part: Part, topic: int) -> tuple[SegmentRecord, ...]:
        """The segments of one topic in a cold run, kept in memory while they are used."""
        key = (part.unique, topic)
        found = self._segments.get(key)
        if found is None:
            found = tuple(checkpoint.segments_of(self.run(part), topic))
            self._segments.put(key, found)
        return found

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


__all__ = ["SLOTS_AT_ONCE", "Log"]
