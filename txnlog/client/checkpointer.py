"""Making checkpoints, off the commit path: a failure is logged and tried again later, never shown to a committer."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import pyarrow as pa

from txnlog.client.upkeep import BackgroundWork
from txnlog.common.format_limits import FORMAT_VERSION
from txnlog.common.limits import CHECKPOINT_ENTRIES, CHECKPOINT_TAIL_BYTES, MAX_CHECKPOINT_RUNS
from txnlog.engine.log_lines import LogLines
from txnlog.engine.runtime import Runtime
from txnlog.errors import CorruptionError, TxnLogError, UnsupportedFeature
from txnlog.fold.state import State
from txnlog.format import keys
from txnlog.log import checkpoint_codec
from txnlog.log.checkpoint_codec import Manifest, Part, PartKind
from txnlog.log.follower import Follower
from txnlog.log.slots import occupy, put_unnamed
from txnlog.replies import IfUnknown, note_written, unknown_outcome
from txnlog.sentences import Call, Words
from txnlog.store.base import Store

_logger = LogLines("txnlog.checkpointer")

_SPREAD = 0.2
_SPREAD_ENTRIES = int(CHECKPOINT_ENTRIES * _SPREAD)
"""Clients that append to one log draw a delay up to this many entries: mostly one of them makes the checkpoint then."""

_LEAST_TAIL_BYTES = 256 << 10
_TAIL_BYTES_PER_ROW = 16
"""A tail is due before applying it takes as long as restoring the checkpoint below it, one row of which takes as long
as 20 to 40 bytes of entries: 1,000 entries may hold 64,000 small transactions. More often would cost writers."""

_MANIFEST_ATTEMPTS = 4
"""The next checkpoint is as good, so this one does not wait for an outage to end."""


class SlotOccupied(CorruptionError):
    """The slot of this version's manifest holds something else. It is not overwritten: a later version has its own."""

    _default_advice = Words("call ", Call("checkpoint"), " again: it makes one at a later version")


class Checkpointer:
    """Makes a checkpoint whenever one is due, one at a time, in the background.

    Attributes:
        interval: entries beyond the newest checkpoint after which one is due. Fewer only cost requests.
        spread: the longest delay of this client on top of it, in entries.
    """

    def __init__(self, follower: Follower, store: Store, runtime: Runtime) -> None:
        self._follower = follower
        self._store = store
        self._runtime = runtime
        self.interval = CHECKPOINT_ENTRIES
        self.spread = _SPREAD_ENTRIES
        self._background = BackgroundWork(runtime)
        self._delay = runtime.jitter(1.0)
        self._counted: int | None = None
        self._counted_bytes = 0

    def after_append(self) -> None:
        """Start a checkpoint in the background if one is due. To be called in the engine."""
        if self.due():
            self._background.begin(self._make_one)

    async def _make_one(self) -> None:
        await self._runtime.job(self._quietly)

    def due(self) -> bool:
        """Whether the tail beyond the newest checkpoint is long enough."""
        head = self._follower.state.head
        newest = self._follower.newest_usable_checkpoint
        self._count_from(-1 if newest is None else newest)
        since = head.version - (-1 if newest is None else newest)
        if since >= self.interval + int(self._delay * self.spread):
            return True
        base = self._follower.base
        rows = 0 if base is None else base.runs("hot")[0].rows
        wanted = max(_LEAST_TAIL_BYTES, rows * _TAIL_BYTES_PER_ROW) * (1 + self._delay * _SPREAD)
        tail_bytes = self._follower.applied_bytes - self._counted_bytes
        return since >= 2 and tail_bytes >= min(wanted, CHECKPOINT_TAIL_BYTES)

    def _count_from(self, version: int) -> None:
        """Somebody else's checkpoint became known: the tail begins anew, or every client would make its own."""
        if self._counted is not None and version > self._counted:
            self._counted_bytes = self._follower.applied_bytes
        self._counted = version

    def _count(self, version: int, applied_bytes: int) -> None:
        self._counted, self._counted_bytes = version, applied_bytes

    def _quietly(self) -> None:
        try:
            self.make()
        except TxnLogError as error:
            _logger.warning("no checkpoint was made: %s", error.message)
        except Exception:
            _logger.exception("no checkpoint was made: a bug, which harms no commit")

    def make(self) -> Manifest:
        """Make a checkpoint of the newest version now, and return its manifest. Raises SlotOccupied."""
        self._follower.adopt_checkpoint()
        return self._follower.over_checkpoints(self._make)

    def _make(self) -> Manifest:
        base, state, applied_bytes = self._follower.look(
            lambda known: (self._follower.base, known.copy(), self._follower.applied_bytes)
        )
        if base is not None and base.version == state.head.version:
            return base
        manifest, objects = checkpoint_of(state, base, self._follower.log.checkpoints.read_run, self._runtime.unique)
        put_unnamed(self._store, self._runtime, objects)
        manifest = self._create(manifest)
        self._follower.rebase(manifest)
        self._runtime.engine.look(partial(self._count, manifest.version, applied_bytes))
        self._delay = self._runtime.jitter(1.0)
        return manifest

    def _create(self, manifest: Manifest) -> Manifest:
        """Put the manifest last. Another client's at the same version is as good, if it is whole, of the same entries.

        It is not in a folder that was copied while others wrote to it: what came along of their later checkpoints says
        nothing about the entries that were appended to the copy.
        """
        data = checkpoint_codec.encode_manifest(manifest)
        with unknown_outcome(IfUnknown.CHECKPOINT):
            found = occupy(
                self._store, self._runtime, keys.manifest_key(manifest.version), data, attempts=_MANIFEST_ATTEMPTS
            )
        if found == data:
            note_written()
            return manifest
        try:
            other = checkpoint_codec.decode_manifest(found, manifest.version)
            if other.digest != manifest.digest:
                raise CorruptionError(f"the checkpoint {manifest.version} in the store is one of another log")
            self._follower.log.checkpoints.verify(part for part in other.parts if part not in manifest.parts)
        except (CorruptionError, UnsupportedFeature) as error:
            raise SlotOccupied(error.message) from None
        return other

    def close(self) -> None:
        """Wait for a checkpoint that is under way."""
        self._background.wait()


def checkpoint_of(
    state: State, base: Manifest | None, read_run: Callable[[Part], pa.Table], unique: Callable[[], str]
) -> tuple[Manifest, list[tuple[str, bytes]]]:
    """The checkpoint of a state: its manifest, and by their keys the objects to put before that.

    Args:
        state: with the cold rows that ended behind the base.
        base: the checkpoint that has the others; None for none.
        read_run: reads a run of it.
        unique: makes names of files.
    """
    objects: list[tuple[str, bytes]] = []

    def added(part: Part, data: bytes) -> Part:
        objects.append((keys.part_key(part.unique), data))
        return part

    head = state.head
    parts = [added(*checkpoint_codec.encode_hot(state, unique()))]
    for kind, table in checkpoint_codec.cold_rows(state).items():
        runs, run, first = _runs(kind, table, base, read_run, head.outcomes_since_ms)
        parts.extend(runs)
        if run.num_rows:
            span = (first, head.version)
            parts.append(added(*checkpoint_codec.encode_part(kind, run, unique(), span, head.timestamp_ms)))
    return Manifest(FORMAT_VERSION, head.version, head.digest, head.timestamp_ms, tuple(parts)), objects


def _runs(
    kind: PartKind,
    table: pa.Table,
    base: Manifest | None,
    read_run: Callable[[Part], pa.Table],
    expired_before_ms: int,
) -> tuple[tuple[Part, ...], pa.Table, int]:
    """The runs of the checkpoint before that stay, and the rows of the new one with the version that it begins with.

    Of too many runs the newest are merged into the new one.
    """
    runs = () if base is None else base.runs(kind)
    first = 0 if base is None else base.version + 1
    if not table.num_rows or len(runs) < MAX_CHECKPOINT_RUNS:
        return runs, table, first
    runs, merged = _split(runs, table.num_rows)
    if kind == "outcomes":
        runs = tuple(part for part in runs if part.timestamp_ms >= expired_before_ms)
    tables = [read_run(part) for part in merged]
    run = checkpoint_codec.merge_runs(kind, [*tables, table], expired_before_ms=expired_before_ms)
    return runs, run, merged[0].first_version


def _split(runs: tuple[Part, ...], rows: int) -> tuple[tuple[Part, ...], tuple[Part, ...]]:
    """Which runs stay, and which are merged with so many new rows: one at least, and not more than pay.

    A run is merged with newer ones that have as many rows together, so that of a million rows none is written often.
    """
    first = len(runs) - 1
    rows += runs[first].rows
    while first and runs[first - 1].rows <= rows:
        first -= 1
        rows += runs[first].rows
    return runs[:first], runs[first:]


__all__ = ["Checkpointer", "SlotOccupied", "checkpoint_of"]
