"""Pauses between attempts, and between looks. Pure: who waits brings the clock, and lets chance shorten them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

_MOST_DOUBLINGS = 1_000
"""A power of two that is a float still; the longest pause came long before."""

_OF_WAIT: Final = 8.0
"""A pause is an eighth of the wait so far: what comes is found so much later than it could be, at most."""

_OF_LOOK: Final = 4.0
"""And at least a quarter of a look."""

_SHORTEST_MS: Final = 0.5
_LONGEST_MS: Final = 250.0


@dataclass(frozen=True, slots=True)
class Backoff:
    """Pauses that double from the first to the longest.

    Attributes:
        first_ms: the pause after one failure.
        longest_ms: no pause is longer.
    """

    first_ms: float
    longest_ms: float

    def after(self, failures: int) -> float:
        """The pause in milliseconds after so many failures in a row, of which there is one at least."""
        return min(self.first_ms * 2.0 ** min(failures - 1, _MOST_DOUBLINGS), self.longest_ms)


def pause_between_looks(waited_ms: float, look_ms: float) -> float:
    """The pause in milliseconds before the next look for something that may come at any time.

    It is a share of the wait so far: what comes soon is found soon, and what comes late is found later by about that
    share. And it is at least a share of what a look takes, so that whoever waits for a slow store asks it no more often
    than helps.

    Args:
        waited_ms: how long the wait has lasted.
        look_ms: how long the look took.
    """
    return min(max(waited_ms / _OF_WAIT, look_ms / _OF_LOOK, _SHORTEST_MS), _LONGEST_MS)


__all__ = ["Backoff", "pause_between_looks"]
