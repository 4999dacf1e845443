"""Making checkpoints, off the commit path: a failure is logged and tried again later, never shown to a committer."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from functools import partial

from txnlog import checkpoint, keys
from txnlog.checkpoint import Manifest, Part
from txnlog.errors import CorruptionError, OutcomeUnknown, TxnLogError
from txnlog.follower import Follower
from txnlog.limits import (
    CHECKPOINT_ENTRIES,
    CHECKPOINT_TAIL_BYTES,
    FORMAT_VERSION,
    MAX_CHECKPOINT_RUNS,
    OUTCOME_RETENTION_MS,
)
from txnlog.runtime import Background, Runtime
from txnlog.slots import occupy
from txnlog.state import State
from txnlog.store.base import Store

_logger = logging.getLogger("txnlog.checkpointer")

_SPREAD_ENTRIES = CHECKPOINT_ENTRIES // 5
"""Clients that append to one log draw a delay up to this many entries: mostly one of them makes the checkpoint then."""

_MANIFEST_ATTEMPTS = 4
"""The next checkpoint is as good, so this one does not wait for an outage to end."""


class Checkpointer:
    """Makes a checkpoint whenever one is due, one at a time, in a thread of its own.

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
        self._lock = threading.Lock()
        self._thread: Background | None = None
        self._delay = runtime.jitter(1.0)

    def after_append(self) -> None:
        """Start a checkpoint in the background if one is due."""
        if not self.due() or not self._lock.acquire(blocking=False):
            return
        try:
            if self._thread is None or not self._thread.is_alive():
                self._thread = self._runtime.start(self._quietly, "txnlog-checkpoint")
        finally:
            self._lock.release()

    def due(self) -> bool:
        """Whether the tail beyond the newest checkpoint is long enough."""
        head = self._follower.state.head
        newest = self._follower.newest_checkpoint
        since = head.version - (-1 if newest is None else newest)
        return since >= self.interval + int(self._delay * self.spread) or (
            self._follower.tail_bytes >= CHECKPOINT_TAIL_BYTES and since >= 2
        )

    def _quietly(self) -> None:
        try:
            self.make()
        except TxnLogError as error:
            _logger.warning("no checkpoint was made: %s", error.message)
        except Exception:
            _logger.exception("no checkpoint was made: a bug, which harms no commit")

    def make(self) -> Manifest:
        """Make a checkpoint of the newest version now, and give back its manifest."""
        self._follower.adopt_checkpoint()
        with self._follower.lock:
            base = self._follower.base
            state = self._follower.state.copy()
            tail_bytes = self._follower.tail_bytes
        if base is not None and base.version == state.head.version:
            return base
        objects: list[tuple[str, bytes]] = []
        parts = self._hot(state, objects) + self._cold(state, base, objects)
        self._runtime.run_all([partial(self._store.put, key, data) for key, data in objects])
        head = state.head
        manifest = Manifest(FORMAT_VERSION, head.version, head.digest, head.timestamp_ms, parts)
        manifest = self._create(manifest)
        self._follower.rebase(manifest)
        with self._follower.lock:
            self._follower.tail_bytes = max(0, self._follower.tail_bytes - tail_bytes)
        self._delay = self._runtime.jitter(1.0)
        return manifest

    def _hot(self, state: State, objects: list[tuple[str, bytes]]) -> tuple[Part, ...]:
        part, data = checkpoint.encode_hot(state, self._runtime.unique())
        objects.append((keys.part_key(part.unique), data))
        return (part,)

    def _cold(self, state: State, base: Manifest | None, objects: list[tuple[str, bytes]]) -> tuple[Part, ...]:
        """The runs of the checkpoint before and one with what ended since; too many runs become one."""
        head = state.head
        retention_ms = head.outcome_retention_ms or OUTCOME_RETENTION_MS
        first = 0 if base is None else base.version + 1
        parts: list[Part] = []
        for kind, table in checkpoint.cold_rows(state).items():
            runs = () if base is None else base.runs(kind)
            span = (first, head.version)
            if len(runs) >= MAX_CHECKPOINT_RUNS:
                tables = [self._follower.log.run(part) for part in runs]
                table = checkpoint.merge_runs(  # noqa: PLW2901 - the run that is written
                    kind, [*tables, table], expired_before_ms=head.timestamp_ms - retention_ms
                )
                span, runs = (runs[0].first_version, head.version), ()
            parts.extend(runs)
            if table.num_rows:
                part, data = checkpoint.encode_run(kind, table, self._runtime.unique(), span, head.timestamp_ms)
                objects.append((keys.part_key(part.unique), data))
                parts.append(part)
        return tuple(parts)

    def _create(self, manifest: Manifest) -> Manifest:
        """Put the manifest last. Somebody else's at the same version is as good, if it is the fold of the same entries.

        It is not in a folder that was copied while others wrote to it: what came along of their later checkpoints says
        nothing about the entries that were appended to the copy.
        """
        data = checkpoint.encode_manifest(manifest)
        try:
            found = occupy(
                self._store, self._runtime, keys.manifest_key(manifest.version), data, attempts=_MANIFEST_ATTEMPTS
            )
        except OutcomeUnknown as error:
            error.advice = "make a checkpoint again, any time: no commit depends on it"
            raise
        if found == data:
            return manifest
        other = checkpoint.decode_manifest(found, manifest.version)
        if other.digest != manifest.digest:
            raise CorruptionError(f"the checkpoint {manifest.version} in the store is one of another log")
        return other

    def close(self) -> None:
        """Wait for a checkpoint that is under way."""
        thread = self._thread
        if thread is not None and thread.is_alive():
            thread.join(timeout=60)


Maker = Callable[[], Manifest]

__all__ = ["Checkpointer"]
