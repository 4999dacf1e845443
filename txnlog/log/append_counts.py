"""What one writer met while it appended: counters for those who watch it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(slots=True)
class AppendCounts:
    """Counters of one writer since it was made. Only the engine changes them.

    Attributes:
        lost_races: entries that found their slot occupied by the entry of another writer.
        brought: batches of commands of this writer that another writer brought into the log, each as a whole.
        in_vain: batches that this writer proposed, and had to append by itself all the same, or a part of them.
        collected: proposals of others that this writer read to bring their commands along.
        malformed: proposals of others that it passed over, since they are none.
    """

    lost_races: int = 0
    brought: int = 0
    in_vain: int = 0
    collected: int = 0
    malformed: int = 0


__all__ = ["AppendCounts"]
