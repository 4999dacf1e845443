"""A store that tells where a process stands with the tables it publishes, and kills it there now and then."""

from __future__ import annotations

import os
import random
import signal
import threading
from collections.abc import Mapping

from tests.crash.delta.plan import Phase, Progress
from tests.crash.harness.faulty_store import is_of_log
from tests.crash.harness.plan import NAMESPACE
from txnlog.format import keys
from txnlog.store import Created, Store
from txnlog.store.base import ObjectNotFound
from txnlog.store.wrappers import ForwardingStore

DEATHS: Mapping[Phase, float] = {
    Phase.COMMIT: 0.002,
    Phase.BEHIND_COMMIT: 0.004,
    Phase.FILE: 0.12,
    Phase.BEHIND_FILE: 0.12,
    Phase.CHECKPOINT: 0.02,
    Phase.BEHIND_CHECKPOINT: 0.04,
    Phase.HINT: 0.04,
    Phase.BEHIND_HINT: 0.03,
}
"""How often a process kills itself at these places, which a signal from outside seldom meets."""

_BEGIN = {
    "commit": (Phase.COMMIT, Phase.BEHIND_COMMIT),
    "file": (Phase.FILE, Phase.BEHIND_FILE),
    "checkpoint": (Phase.CHECKPOINT, Phase.BEHIND_CHECKPOINT),
    "hint": (Phase.HINT, Phase.BEHIND_HINT),
}


def is_slot(key: str) -> bool:
    """Whether answers about a key get lost: those of the log, and those of all that is published."""
    return is_of_log(key) or _kind(key) is not None


def _kind(key: str) -> str | None:
    """What a key of the root is of a published table."""
    folder, _, below = key.partition("/")
    if folder != NAMESPACE:
        return None
    found = keys.parse_key(below)
    if isinstance(found, keys.TableFileKey):
        return "file"
    if not isinstance(found, keys.DeltaKey):
        return None
    if found.version is None:
        return "hint"
    return "checkpoint" if found.checkpoint else "commit"


class WatchedStore(ForwardingStore):
    """See the module. ``inner`` may lose answers, ``real`` loses none: it tells who met somebody else."""

    def __init__(self, inner: Store, real: Store, chance: random.Random, progress: Progress, process: int) -> None:
        super().__init__(inner)
        self._real = real
        self._chance = chance
        self._progress = progress
        self._process = process
        self._lock = threading.Lock()
        self._tried: set[str] = set()

    def create(self, key: str, data: bytes) -> Created:
        """The inner create, between two phases."""
        kind = _kind(key)
        if kind is None:
            self._progress.enter(self._process, Phase.ELSEWHERE)
            return self.inner.create(key, data)
        before, behind = _BEGIN[kind]
        if kind == "commit" and key not in self._tried and self._is_there(key):
            self._progress.count(self._process, "met")
        self._tried.add(key)
        self._enter(before)
        result = self.inner.create(key, data)
        if kind == "commit" and result is Created.CREATED:
            self._progress.count(self._process, "published")
        self._enter(behind)
        return result

    def put(self, key: str, data: bytes) -> None:
        """The inner put, between two phases."""
        kind = _kind(key)
        if kind is None:
            self._progress.enter(self._process, Phase.ELSEWHERE)
            self.inner.put(key, data)
            return
        before, behind = _BEGIN[kind]
        self._enter(before)
        self.inner.put(key, data)
        self._enter(behind)

    def _is_there(self, key: str) -> bool:
        """Whether somebody else was first since this process looked."""
        try:
            self._real.info(key)
        except ObjectNotFound:
            return False
        return True

    def _enter(self, phase: Phase) -> None:
        self._progress.enter(self._process, phase)
        with self._lock:
            dies = self._chance.random() < DEATHS[phase]
        if dies:
            os.kill(os.getpid(), signal.SIGKILL)
