"""How long the commits of a handle took, and how they failed."""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from typing import Final, NamedTuple

from txnlog.errors import TxnLogError

BOUNDS_MS: Final = (1, 2.5, 5, 10, 25, 50, 100, 250, 500, 1_000, 2_500, 5_000, 10_000, 30_000)
"""Upper bounds of the histogram: from a local disk to a store that is away until the attempts of an entry are over."""


class CommitHistogram(NamedTuple):
    """By bound the commits that took no longer, and longer than the bound before; the last count is that of the rest.

    ``sum_ms`` is how long all of them took together.
    """

    counts: tuple[int, ...]
    sum_ms: float


class CommitTimes:
    """What the commits of one handle took, since it was opened. Only the engine notes, so nothing is lost."""

    __slots__ = ("_counts", "_failures", "_sum_ms")

    def __init__(self) -> None:
        self._counts = [0] * (len(BOUNDS_MS) + 1)
        self._sum_ms = 0.0
        self._failures: Counter[str] = Counter()

    def note(self, milliseconds: float) -> None:
        """A call that commits succeeded after so long."""
        self._counts[bisect_left(BOUNDS_MS, milliseconds)] += 1
        self._sum_ms += milliseconds

    def note_failed(self, error: TxnLogError) -> None:
        """A call that commits ended with an error."""
        self._failures[type(error).__name__] += 1

    def histogram(self) -> CommitHistogram:
        """How long those took that succeeded. From any thread: one that is noted meanwhile may be in a part of it."""
        return CommitHistogram(tuple(self._counts), self._sum_ms)

    def failures(self) -> dict[str, int]:
        """How many failed, by the name of the error. From any thread."""
        return self._failures.copy()


__all__ = ["BOUNDS_MS", "CommitHistogram", "CommitTimes"]
