"""Reading a commit log from its store: slots, the tail, checkpoints. Nothing here appends."""

from __future__ import annotations

from functools import partial
from typing import Final

import pyarrow as pa

from txnlog import checkpoint, keys
from txnlog.apply import apply_entry, newer_checkpoint
from txnlog.checkpoint import Manifest, Part
from txnlog.codec import Entry, decode_entry
from txnlog.errors import CorruptionError
from txnlog.limits import MAX_CHECKPOINT_RUNS
from txnlog.recent import Recent
from txnlog.runtime import Runtime
from txnlog.state import SegmentRecord, State
from txnlog.store.base import ObjectNotFound, Store

SLOTS_AT_ONCE: Final = 32
"""Slots that are asked for at once: behind a checkpoint there are seldom more than 1,000."""

_CONFIRM_MS: Final = (0, 50, 250)
"""Pauses before the looks at an entry that must be there. A later entry is there, so its slot was filled before: at the
first look it is there again where writers went on meanwhile, at the others where a cache of names was behind."""

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

    def get_many(self, first: int, count: int) -> list[bytes]:
        """The bytes of slots from ``first`` on, up to the first free one, at most ``count``."""
        found = self._runtime.run_all([partial(self.get, first + index) for index in range(count)])
        result: list[bytes] = []
        for data in found:
            if data is None:
                break
            result.append(data)
        return result

    def exists(self) -> bool:
        """Whether there is a log at all."""
        return self.get(0) is not None

    def newest(self) -> tuple[int, int | None]:
        """The tail of the log and the newest checkpoint that headers on the way name.

        No slot below the tail is ever free, so doubling and bisection find it without a LIST. The free slot that they
        come to may be an entry that the store lost: the one behind it tells. A header names only checkpoints below
        itself: one that names another could lead behind the end of its own log.
        """
        low, checkpointed = 0, None
        data = self.get(0)
        if data is None:
            raise CorruptionError("entry 0 is missing: there is no log")
        step = 1
        high = None
        while high is None:
            probe = low + step
            data = self.get(probe)
            if data is None:
                high = probe
                break
            low, step = probe, step * 2
            checkpointed = newer_checkpoint(checkpointed, decode_entry(data, probe).header)
        while high - low > 1:
            middle = (low + high) // 2
            data = self.get(middle)
            if data is None:
                high = middle
            else:
                low = middle
                checkpointed = newer_checkpoint(checkpointed, decode_entry(data, middle).header)
        if self.get(high + 1) is not None:
            self._confirmed(high)
        return low, checkpointed

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
        """The fold up to the tail, from the newest checkpoint on; its manifest; the bytes of tail that were folded."""
        tail, checkpointed = self.newest()
        manifest = None if checkpointed is None else self.manifest(checkpointed)
        state = State() if manifest is None else self.restore(manifest)
        return state, manifest, self.fold(state, tail)

    def fold(self, state: State, until: int) -> int:
        """Apply the entries after a state's version up to ``until``. Returns their bytes."""
        size = 0
        while state.head.version < until:
            first = state.head.version + 1
            count = min(SLOTS_AT_ONCE, until - first + 1)
            batch = self.get_many(first, count)
            if len(batch) < count:
                batch.append(self._confirmed(first + len(batch)))
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
