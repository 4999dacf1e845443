"""When to look, by what was seen: round trips of the store, and entries that come in a rhythm. Pure.

Times are those of a clock that never jumps, in milliseconds.
"""

from __future__ import annotations

import statistics
from collections import deque
from typing import Final

_FIRST_TRIP_MS: Final = 50.0
_LEAST_TRIP_MS: Final = 0.5
_LONGEST_TRIP_MS: Final = 1_000.0
"""A put that took longer waited for more than its way: for a store that throttles, or for an answer that got lost."""

LATELY_TRIPS: Final = 24.0
"""Round trips for which a lost race, and a sign of life of who collects, count."""

PATIENCE_TRIPS: Final = 10.0
"""Round trips without an entry after which nobody waits any longer for who collects."""

_EARLIER_TRIPS: Final = 0.05
_LATER_TRIPS: Final = 0.35
"""Round trips by which one looks earlier after a look that found its entry, and later after one that came too early: so
about one in eight looks is in vain, and the others find an entry that has just come."""

_AGAIN_TRIPS: Final = 0.1
_PAUSE_TRIPS: Final = 0.6
"""Before a second look, since the first one mostly came a little too early, and before each further one."""

_SHORTEST_TRIPS: Final = 1.0
_LONGEST_TRIPS: Final = 12.0
"""Between two entries of who collects: it takes at least a put, and one that is slower has no rhythm."""


class RoundTrip:
    """How long the put of an entry takes, on its way there and back: the median of the newest ones, a second at most.

    It is the unit of all waits of this folder, also of those for reads, which take no longer.
    """

    def __init__(self) -> None:
        self._seen: deque[float] = deque(maxlen=15)
        self.ms = _FIRST_TRIP_MS

    def note(self, milliseconds: float) -> None:
        """One took so long."""
        self._seen.append(milliseconds)
        self.ms = min(max(_LEAST_TRIP_MS, statistics.median(self._seen)), _LONGEST_TRIP_MS)


class Rhythm:
    """When to look for the next entry of who collects.

    How far apart its entries are is known from their headers, whatever the clocks of others say. How much later than
    that time they can be read is found by trial, and kept as long as the same writer collects.
    """

    def __init__(self, trip: RoundTrip) -> None:
        self._trip = trip
        self._distances: deque[float] = deque(maxlen=7)
        self._writer = ""
        self._stamp_ms = 0
        self._lead_ms = 0.0
        self._misses = 0
        self.is_aimed = False
        """Whether the next look is for an entry that is still to come, by all that was seen."""

    def found(self, sent_ms: float, writer: str, stamp_ms: int) -> None:
        """A look that was sent then found an entry, of this writer and this time of the log."""
        trip = self._trip.ms
        distance_ms = stamp_ms - self._stamp_ms
        if writer != self._writer or not 0 < distance_ms <= _LONGEST_TRIPS * trip:
            # Another one, whose clock says nothing of this one's; or its clock stands, as one that went ahead does.
            self._writer = writer
            self._distances.clear()
            self._lead_ms = sent_ms - stamp_ms
        else:
            self._distances.append(max(distance_ms, _SHORTEST_TRIPS * trip))
            if self.is_aimed and not self._misses:
                self._lead_ms -= _EARLIER_TRIPS * trip
        self._stamp_ms = stamp_ms
        self._misses = 0
        self.is_aimed = False

    def missed(self) -> None:
        """A look found nothing."""
        if self.is_aimed and not self._misses:
            self._lead_ms += _LATER_TRIPS * self._trip.ms
        self._misses += 1

    def pause_ms(self, now_ms: float) -> float:
        """How long to wait before the next look."""
        trip = self._trip.ms
        if self._misses or not self._distances:
            return (_AGAIN_TRIPS if self._misses == 1 else _PAUSE_TRIPS) * trip
        aim_ms = self._stamp_ms + statistics.median(self._distances) + self._lead_ms
        self.is_aimed = aim_ms >= now_ms
        return max(0.0, aim_ms - now_ms)


__all__ = ["LATELY_TRIPS", "PATIENCE_TRIPS", "Rhythm", "RoundTrip"]
