"""A writer's stock of numbers: blocks reserved in the log, handed out once each."""

from __future__ import annotations

import threading
from collections import deque

from txnlog.actions import Renew, Reserve
from txnlog.limits import RENEW_AFTER_MS
from txnlog.numbers import CHUNK, block_of
from txnlog.state import Draft

_FIRST_BLOCK = 4 * CHUNK
_LARGEST_BLOCK = 256 * CHUNK
_LOW_WATER = 4
"""The next block is reserved while a quarter of what the last one held is left: taking a number almost never waits."""


class NumberPool:
    """Numbers that this writer may use. Thread-safe; it never blocks: an empty pool says so."""

    def __init__(self, writer: str) -> None:
        self._writer = writer
        self._lock = threading.Lock()
        self._ranges: deque[tuple[int, int]] = deque()
        self._left = 0
        self._next_count = _FIRST_BLOCK
        self._demanded = 1

    def take(self, count: int = 1) -> list[int] | None:
        """``count`` numbers, None where the stock does not hold that many."""
        with self._lock:
            if self._left < count:
                return None
            self._left -= count
            taken: list[int] = []
            while len(taken) < count:
                first, end = self._ranges[0]
                use = min(count - len(taken), end - first)
                taken.extend(range(first, first + use))
                if first + use == end:
                    self._ranges.popleft()
                else:
                    self._ranges[0] = (first + use, end)
            return taken

    def demand(self, count: int) -> None:
        """Somebody waits for this many numbers."""
        with self._lock:
            self._demanded = max(self._demanded, count)

    def has_any(self) -> bool:
        """Whether there are numbers."""
        return self._left > 0

    def wants(self) -> bool:
        """Whether it is time to reserve the next block."""
        with self._lock:
            return self._left < max(self._demanded, self._next_count // (2 * _LOW_WATER))

    def reservation(self, draft: Draft) -> Reserve:
        """The action that reserves the next block at the draft's state."""
        with self._lock:
            count = max(self._next_count, -(-self._demanded // CHUNK) * CHUNK)
        return Reserve(self._writer, draft.head.next_number, count)

    def renewals(self, draft: Draft, now_ms: int) -> list[Renew]:
        """Actions that show life of the blocks that this writer has numbers of, where nothing showed it for long."""
        with self._lock:
            blocks = [block_of(draft, first) for first, _ in self._ranges]
        return [
            Renew(block.first) for block in blocks if block is not None and now_ms - block.touched_ms >= RENEW_AFTER_MS
        ]

    def keep_open(self, draft: Draft) -> None:
        """Let go of numbers whose block was closed: nobody may use them any more."""
        with self._lock:
            if all(block_of(draft, first) is not None for first, _ in self._ranges):
                return
            self._ranges = deque(item for item in self._ranges if block_of(draft, item[0]) is not None)
            self._left = sum(end - first for first, end in self._ranges)

    def add(self, granted: Reserve) -> None:
        """A reservation is in the log."""
        with self._lock:
            self._ranges.append((granted.first, granted.first + granted.count))
            self._left += granted.count
            self._next_count = min(2 * self._next_count, _LARGEST_BLOCK)
            self._demanded = 1


__all__ = ["NumberPool"]
