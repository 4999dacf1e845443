"""A store between a worker and the real one that loses answers, and drops, delays and repeats requests.

A delayed request is written to a spool folder, from which another process sends it: it arrives although its sender may
have been killed long ago, as it does when a server has it in its queue.
"""

from __future__ import annotations

import json
import os
import random
import threading
import time
import uuid
from collections.abc import Callable, Mapping
from pathlib import Path

from tests.crash.harness.plan import NAMESPACE
from txnlog.errors import Durable, StoreError
from txnlog.store import Created, Store
from txnlog.store.wrappers import ForwardingStore

RATES: Mapping[str, float] = {
    "storm": 0.03,
    "lost": 0.02,
    "dropped": 0.01,
    "delayed": 0.03,
    "repeated": 0.01,
    "put": 0.004,
    "get": 0.002,
    "sync": 0.004,
    "delete": 0.01,
}
"""Of each create of an entry: the start of a storm, in which nothing about the log is answered, and the single faults.
Of each put, get, sync and delete: that it fails."""

STORM_REQUESTS = (5, 16)
"""The length of a storm is counted in requests, so that a slow machine has as many unknown outcomes as a fast one."""

SOON_MS = (0.0, 25.0)
LATE_MS = (25.0, 3_000.0)
"""A request that is late by a moment may still find its slot free; by then it was often given up."""


def is_of_log(key: str) -> bool:
    """Whether a key is of the commit log."""
    return key.startswith(f"{NAMESPACE}/_log/")


class FaultyStore(ForwardingStore):
    """See the module. Only the namespace's own objects are affected.

    ``slots`` are the keys whose creates meet the faults that :data:`RATES` has for creates, and the storms.
    """

    def __init__(
        self,
        inner: Store,
        chance: random.Random,
        spool: Path,
        rates: Mapping[str, float],
        slots: Callable[[str], bool] = is_of_log,
    ) -> None:
        super().__init__(inner)
        self._slots = slots
        self._chance = chance
        self._spool = spool
        self._rates = {**RATES, **rates}
        self._lock = threading.Lock()
        self._storm_left = 0

    def create(self, key: str, data: bytes) -> Created:
        """Create, or one of the faults."""
        fault = self._fault(key)
        if fault in {"", "repeated"}:
            result = self.inner.create(key, data)
            if fault:
                self._send_late(key, data)
            return result
        if fault == "lost":
            self.inner.create(key, data)
        elif fault == "delayed":
            self._send_late(key, data)
        if self._hits(0.5):
            return Created.UNKNOWN
        raise StoreError(f"create of {key} was {fault} (planted)", durable=Durable.MAYBE)

    def put(self, key: str, data: bytes) -> None:
        """Put; or fail, before or after."""
        if key.startswith(f"{NAMESPACE}/") and self._hits(self._rates["put"]):
            if self._hits(0.5):
                self.inner.put(key, data)
            raise StoreError(f"put of {key} failed (planted)", durable=Durable.MAYBE)
        self.inner.put(key, data)

    put_unsynced = put

    def get(self, key: str) -> bytes:
        """Get, or fail."""
        if key.startswith(f"{NAMESPACE}/") and (
            (self._slots(key) and self._in_storm()) or self._hits(self._rates["get"])
        ):
            raise StoreError(f"get of {key} failed (planted)", durable=Durable.NOTHING)
        return self.inner.get(key)

    def delete(self, key: str) -> None:
        """Delete; or fail, before or after."""
        if self._hits(self._rates["delete"]):
            if self._hits(0.5):
                self.inner.delete(key)
            raise StoreError(f"delete of {key} failed (planted)", durable=Durable.MAYBE)
        self.inner.delete(key)

    def sync(self, key: str) -> None:
        """Sync, or fail."""
        if self._hits(self._rates["sync"]):
            raise StoreError(f"sync of {key} failed (planted)", durable=Durable.MAYBE)
        self.inner.sync(key)

    def _fault(self, key: str) -> str:
        """What becomes of a create: nothing out of the way (``""``), or a fault."""
        if not self._slots(key):
            return ""
        with self._lock:
            if not self._storm_left and self._chance.random() < self._rates["storm"]:
                self._storm_left = self._chance.randint(*STORM_REQUESTS)
            if self._storm_left:
                self._storm_left -= 1
                return self._chance.choice(("lost", "dropped", "delayed"))
            drawn = self._chance.random()
        for fault in ("lost", "dropped", "delayed", "repeated"):
            drawn -= self._rates[fault]
            if drawn < 0:
                return fault
        return ""

    def _in_storm(self) -> bool:
        with self._lock:
            self._storm_left = max(0, self._storm_left - 1)
            return self._storm_left > 0

    def _hits(self, rate: float) -> bool:
        with self._lock:
            return self._chance.random() < rate

    def _send_late(self, key: str, data: bytes) -> None:
        with self._lock:
            late_ms = self._chance.uniform(*self._chance.choice((SOON_MS, LATE_MS)))
            due = time.time() + late_ms / 1e3
        written = self._spool / f"{uuid.uuid4().hex}.part"
        written.write_bytes(json.dumps({"key": key, "due": due}).encode() + b"\n" + data)
        os.rename(written, written.with_suffix(".request"))


def deliver(store: Store, spool: Path, *, everything: bool = False) -> int:
    """Send the late requests that are due; returns how many were. Their answers go to nobody."""
    sent = 0
    for path in spool.glob("*.request"):
        head, _, data = path.read_bytes().partition(b"\n")
        request = json.loads(head)
        if everything or request["due"] <= time.time():
            store.create(request["key"], data)
            path.unlink()
            sent += 1
    return sent
