"""Applying the entries of a log for a check: the state at its newest version, compared with checkpoints on the way."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from txnlog.common import ranges
from txnlog.common.format_limits import FORMAT_VERSION
from txnlog.engine.runtime import Runtime
from txnlog.errors import CorruptionError, TxnLogError, UnsupportedFeature
from txnlog.fold.apply import applied
from txnlog.fold.state import SegmentRecord, State
from txnlog.format import keys
from txnlog.format.codec import Entry
from txnlog.log import checkpoint_codec
from txnlog.log.checkpoint_codec import COLD_KINDS, Manifest, Part, PartKind
from txnlog.log.checkpoint_reader import UnusableCheckpoint
from txnlog.log.log_reader import Log
from txnlog.maintenance.fsck.checkpoints import Checkpoints
from txnlog.maintenance.fsck.entries import Slots, judged
from txnlog.maintenance.fsck.findings import PAGE, Findings
from txnlog.maintenance.fsck.origins import Origins

_FIRST_ENTRIES: Final = 3
"""Entries that every client reads at opening: they show whether entry 0 is the one by which the root knows the log."""

_ENDED: Final[dict[PartKind, str]] = {
    "outcomes": "version",
    "segments": "ended_version",
    "removals": "version",
    "batches": "version",
}
"""By kind of cold rows the column with the version that a run's span counts."""


@dataclass(frozen=True, slots=True)
class _Chunk:
    """The cold rows that ended in some versions, the last of them at a time."""

    first: int
    last: int
    last_ms: int
    tables: dict[PartKind, pa.Table]


@dataclass(frozen=True, slots=True)
class View:
    """What a log says at its newest version, as far as it could be read.

    Attributes:
        state: hot rows, and the cold ones that ended last.
        is_complete: whether it is the state of the newest version.
        is_whole: whether every entry was applied, of a quick check from the newest checkpoint on.
        records: all segments that the log ever showed.
        removals: of replaced segments the versions that replaced them.
        origins: where messages came from, where that was asked for.
    """

    state: State
    is_complete: bool
    is_whole: bool
    records: list[SegmentRecord]
    removals: dict[int, int]
    origins: Origins | None


class Replay:
    """Applies the entries of a log, and reports what cannot be applied, or differs from a checkpoint."""

    def __init__(self, log: Log, runtime: Runtime, findings: Findings, checkpoints: Checkpoints, slots: Slots) -> None:
        self._log = log
        self._runtime = runtime
        self._findings = findings
        self._checkpoints = checkpoints
        self._slots = slots
        self._chunks: list[_Chunk] = []
        self._last = State()
        self._lost: int | None = None
        self._was_lost = False
        self._base: Manifest | None = None
        self._read_parts: set[Part] = set()
        self._parts: dict[str, Part] = {}
        self._begins = {0}  # versions with which runs may begin: that behind a checkpoint
        self._origins: Origins | None = None

    def quick(self) -> View:
        """The newest state, from the newest usable checkpoint on."""
        self._checkpoints.check_entries_of(self._slots)
        state: State | None = None
        first = 0
        for manifest in self._checkpoints.newest_first():
            state = self._restored(manifest, ("segments", "removals"))
            if state is not None:
                first = manifest.version  # with its own entry, which the next one must continue
                break
        if first:
            for _ in self._judged(0, min(_FIRST_ENTRIES, first) - 1):
                pass
        state = State() if state is None else state
        for version, entry in self._judged(first, self._slots.version):
            if version > state.head.version:
                state = self._applied(state, entry, version)
                if state is None:
                    break
        return self._view(state)

    def full(self, origins: Origins | None) -> View:
        """The newest state, from the first entry on; each checkpoint on the way is compared with it."""
        self._origins = origins
        state: State | None = State()
        for version, entry in self._judged(0, self._slots.version):
            state = self._applied(state, entry, version)
            manifest = self._checkpoints.usable(version)
            if manifest is None or (entry is not None and not self._checkpoints.is_of(manifest, entry)):
                continue
            if state is not None:
                self._compare(manifest, state)
            else:
                state = self._restored(manifest, COLD_KINDS)
                if state is not None:
                    self._note_not_checked(version)
        self._checkpoints.verify(but=self._read_parts)
        return self._view(state)

    def _judged(self, first: int, last: int) -> Iterable[tuple[int, Entry | None]]:
        for version, entry in judged(self._log, self._runtime, self._findings, first, last, self._slots):
            if entry is not None:
                self._checkpoints.note_header(entry)
            yield version, entry

    def _view(self, state: State | None) -> View:
        complete = state is not None
        if state is None:
            self._note_not_checked(None)
            state = self._last
        records: dict[int, SegmentRecord] = {}
        removals: dict[int, int] = {}
        for chunk in self._chunks:
            records |= {item.number: item for item in checkpoint_codec.segments_of(chunk.tables["segments"])}
            removals |= checkpoint_codec.removals_in(chunk.tables["removals"])
        return View(
            state,
            complete,
            not self._was_lost,
            list((records | state.segments).values()),
            removals | state.removals,
            self._origins,
        )

    # --- entries ----------------------------------------------------------------------------------------------------

    def _applied(self, state: State | None, entry: Entry | None, version: int) -> State | None:
        """The state with the next entry; None where it cannot be known from here on."""
        if state is None:
            return None
        if entry is None:
            return self._stopped(state, version)
        if self._base is not None and state.head.version == self._base.version:
            manifest, self._base = self._base, None
            if entry.header.previous != manifest.digest:
                self._checkpoints.exclude_foreign(manifest)
                return self._stopped(state, version)
        try:
            draft = applied(state, entry)
        except CorruptionError as error:
            self._findings.add("damage", "entry", keys.entry_key(version), error.message, error.advice)
            return self._stopped(state, version)
        except UnsupportedFeature as error:
            self._findings.unread("entry", keys.entry_key(version), error)
            return self._stopped(state, version)
        if self._origins is not None:
            self._origins.note(draft.outcomes.changed().values())
        draft.merge()
        return state

    def _stopped(self, state: State, version: int) -> State | None:
        """No state any more: what an entry does is not known. That before it is kept, in case there is no other."""
        self._last = state
        self._lost = version
        self._was_lost = True
        return None

    def _note_not_checked(self, until: int | None) -> None:
        """Report which entries could not be applied: what they do is known from a checkpoint only, or not at all."""
        if self._lost is None:
            return
        end = self._slots.version if until is None else until
        key = keys.entry_key(self._lost)
        which = f"entry {self._lost}" if end == self._lost else f"the entries {self._lost} to {end}"
        rest = "" if until is None else f"; the check goes on from the checkpoint {until}"
        self._findings.add(
            "unchecked",
            "entry",
            key,
            f"what {which} say{'s' if end == self._lost else ''} could not be applied{rest}",
            f"see to the other findings about entries first, then check again; {PAGE} says more",
        )
        if until is not None:
            self._lost = None

    # --- checkpoints ------------------------------------------------------------------------------------------------

    def _restored(self, manifest: Manifest, kinds: Iterable[PartKind]) -> State | None:
        """The state of a checkpoint, to go on from; None where it is unusable, which is reported."""
        tables = dict(checkpoint_codec.cold_rows(State()))
        try:
            state = self._log.checkpoints.restore(manifest)
            for kind in kinds:
                runs = [self._log.checkpoints.read_run(part) for part in manifest.runs(kind)]
                if runs:
                    tables[kind] = pa.concat_tables(runs)
        except UnusableCheckpoint as error:
            self._checkpoints.report(error)
            return None
        except TxnLogError as error:
            self._findings.unread("checkpoint", keys.manifest_key(manifest.version), error)
            return None
        self._base = manifest
        self._read_parts.update(manifest.runs("hot"), *(manifest.runs(kind) for kind in kinds))
        self._chunks = [_Chunk(0, manifest.version, state.head.timestamp_ms, tables)]
        self._begins.update((manifest.version + 1, *(part.first_version for part in manifest.parts)))
        return state

    def _compare(self, manifest: Manifest, state: State) -> None:
        """Report a checkpoint that differs from the state at its version, whose cold rows are set aside."""
        head = state.head
        since = self._chunks[-1].last + 1 if self._chunks else 0
        self._chunks.append(_Chunk(since, head.version, head.timestamp_ms, checkpoint_codec.cold_rows(state)))
        checkpoint_codec.trim(state, head.version)
        self._begins.add(head.version + 1)
        try:
            restored = self._log.checkpoints.restore(manifest).as_tables()
            self._read_parts.update(manifest.runs("hot"))
            wrong = [name for name, rows in state.as_tables().items() if restored[name] != rows]
            wrong += [kind for kind in COLD_KINDS if not self._is_same(kind, manifest, head.outcomes_since_ms)]
        except UnusableCheckpoint as error:
            self._checkpoints.report(error)
            return
        except TxnLogError as error:
            self._findings.unread("checkpoint", keys.manifest_key(manifest.version), error)
            return
        if not self._describes_itself(manifest, head.timestamp_ms):
            wrong.append("its manifest")
        if wrong:
            self._checkpoints.report_difference(manifest, ", ".join(wrong))

    def _describes_itself(self, manifest: Manifest, timestamp_ms: int) -> bool:
        """Whether the numbers in a manifest are right: nothing else protects them. Its rows were compared before."""
        times_ms = {chunk.last: chunk.last_ms for chunk in self._chunks}
        for part in manifest.parts:
            known = self._parts.setdefault(part.unique, part)
            if known != part or times_ms.get(part.last_version, part.timestamp_ms) != part.timestamp_ms:
                return False
            is_run = part.kind != "hot"
            if is_run and self._checkpoints.are_all_usable and part.first_version not in self._begins:
                return False
            if not is_run and (part.first_version, part.last_version) != (manifest.version, manifest.version):
                return False
        return manifest.timestamp_ms == timestamp_ms and 1 <= manifest.format <= FORMAT_VERSION

    def _is_same(self, kind: PartKind, manifest: Manifest, since_ms: int) -> bool:
        """Whether the runs of a checkpoint hold the cold rows of one kind, each once. Those that were read are known.

        Raises UnusableCheckpoint.
        """
        runs = manifest.runs(kind)
        for part in runs:
            if part in self._read_parts:
                continue
            found = self._log.checkpoints.read_run(part)
            self._read_parts.add(part)
            if not _same_rows(kind, found, self._rows(kind, part.first_version, part.last_version, 0), since_ms):
                return False
        spans = [(part.first_version, part.last_version + 1) for part in runs]
        covered = ranges.normalize(spans)
        if ranges.size(covered) != sum(end - start for start, end in spans):
            return False  # some rows would be there twice
        left = ranges.subtract(((0, manifest.version + 1),), covered)
        return all(not self._rows(kind, first, end - 1, since_ms).num_rows for first, end in left)

    def _rows(self, kind: PartKind, first: int, last: int, since_ms: int) -> pa.Table:
        """The cold rows that ended in some versions, sorted as in a run; outcomes from a time on."""
        column = pc.field(_ENDED[kind])
        tables = [
            chunk.tables[kind].filter((column >= first) & (column <= last))
            for chunk in self._chunks
            if chunk.first <= last and chunk.last >= first and (kind != "outcomes" or chunk.last_ms >= since_ms)
        ]
        empty = checkpoint_codec.cold_rows(State())[kind]
        return checkpoint_codec.merge_runs(kind, [empty, *tables], expired_before_ms=since_ms)


def _same_rows(kind: PartKind, found: pa.Table, expected: pa.Table, since_ms: int) -> bool:
    if kind == "outcomes":
        # Who merges runs leaves out what is too old to be asked for.
        found, expected = (
            checkpoint_codec.merge_runs(kind, [table], expired_before_ms=since_ms) for table in (found, expected)
        )
    if found.equals(expected):
        return True
    # Bounds of columns are JSON there, which may be written in more than one way.
    return kind == "segments" and checkpoint_codec.segments_of(found) == checkpoint_codec.segments_of(expected)


__all__ = ["Replay", "View"]
