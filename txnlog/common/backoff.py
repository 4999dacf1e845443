"""Pauses that grow with each failure. Pure: who waits brings the clock, and lets chance shorten them."""

from __future__ import annotations

from dataclasses import dataclass

_MOST_DOUBLINGS = 1_000
"""A power of two that is a float still; the longest pause came long before."""


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


__all__ = ["Backoff"]
