"""Transactions at a steady pace beside a reader: when each message arrives, also while one transaction stays open."""

from __future__ import annotations

import struct
import time
from collections.abc import Callable
from typing import Final

from benchmarks.peers.load import Load, Outcome

OPEN_SHARE: Final = 2 / 3
"""For this share of a load `open` one transaction stays open."""
_STAMP: Final = struct.Struct(">q")
_SETTLE_S: Final = 2.0
_SAMPLE_S: Final = 0.1


class Watch:
    """What was committed and what was received, with times of the machine's monotonic clock."""

    def __init__(self, load: Load) -> None:
        self.load = load
        self.committed = 0
        self.read = 0
        self._latencies: list[float] = []
        self._progress: list[tuple[float, int, int]] = []
        self._started = 0.0
        self._sampled = 0.0

    def begin(self) -> None:
        """The time starts; what was received until now was for warming up."""
        self.committed = self.read = 0
        self._latencies.clear()
        self._started = time.monotonic()

    def stamped(self, value: bytes) -> bytes:
        """A message that carries the time of now."""
        return _STAMP.pack(time.monotonic_ns()) + value[_STAMP.size :]

    def unstamped(self) -> bytes:
        """A message whose time is not asked for."""
        return _STAMP.pack(0) + bytes(self.load.size - _STAMP.size)

    def received(self, value: bytes) -> None:
        """A reader has a message."""
        self.arrived(_STAMP.unpack_from(value)[0], time.monotonic_ns())

    def arrived(self, sent_ns: int, now_ns: int) -> None:
        """A message that was sent at a time was received at another one."""
        if sent_ns:
            self.read += 1
            self._latencies.append((now_ns - sent_ns) / 1e6)

    def sample(self) -> None:
        """Note how far both are, ten times a second."""
        now = time.monotonic()
        if now >= self._sampled + _SAMPLE_S:
            self._sampled = now
            self._progress.append((round(now - self._started, 3), self.committed, self.read))

    def outcome(self) -> Outcome:
        """All of it, with how far both are now."""
        last = (round(time.monotonic() - self._started, 3), self.committed, self.read)
        return Outcome(
            seconds=self.load.seconds,
            transactions=self.committed,
            rows=self.read,
            latencies_ms=self._latencies,
            progress=[*self._progress, last] if self.load.kind == "open" else [],
        )


def paced(
    watch: Watch, commit: Callable[[bytes], None], begin_one: Callable[[], None], end_one: Callable[[], object]
) -> None:
    """Commit a message each ``cycle_ms``; for a load `open`, one transaction is begun first and ended late.

    Args:
        watch: gets the times; somebody hands it what the reader receives.
        commit: commits one message in a transaction.
        begin_one: begins the transaction that stays open, with one message in it.
        end_one: commits it.
    """
    load = watch.load
    value = bytes(load.size)
    for _ in range(20):
        commit(value)
    settle(watch, 20)
    stays_open = load.kind == "open"
    watch.begin()
    if stays_open:
        begin_one()
    started = time.monotonic()
    due = started
    while (now := time.monotonic()) < started + load.seconds:
        if stays_open and now > started + load.seconds * OPEN_SHARE:
            end_one()
            stays_open = False
        if now < due:
            time.sleep(min(due - now, _SAMPLE_S))
        else:
            commit(value)
            watch.committed += 1
            due = max(due + load.cycle_ms / 1e3, now)
        watch.sample()
    settle(watch, watch.committed)


def settle(watch: Watch, count: int) -> None:
    """Wait until so many messages were received, a little."""
    deadline = time.monotonic() + _SETTLE_S
    while watch.read < count and time.monotonic() < deadline:
        time.sleep(0.01)
        if watch.load.kind == "open" and count > 20:
            watch.sample()


__all__ = ["OPEN_SHARE", "Watch", "paced"]
