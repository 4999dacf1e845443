"""When a proposer looks for the next entry of who collects."""

from __future__ import annotations

import random

import pytest

from txnlog.log.proposals.rhythm import Rhythm, RoundTrip

TRIP_MS = 40.0


def measured() -> RoundTrip:
    trip = RoundTrip()
    for _ in range(15):
        trip.note(TRIP_MS)
    return trip


def test_a_round_trip_is_the_median_of_the_newest_ones() -> None:
    trip = RoundTrip()
    assert trip.ms == 50.0, "before the first one a guess"
    for took in (10.0, 10.0, 900.0):
        trip.note(took)
    assert trip.ms == 10.0
    for _ in range(15):
        trip.note(30.0)
    assert trip.ms == 30.0
    for _ in range(15):
        trip.note(0.0)
    assert trip.ms > 0.0, "a pause of none would be a loop"


class Log:
    """Entries that come every so often and can be read a while after the time that they name."""

    def __init__(self, every_ms: float, skew_ms: float, jitter_ms: float = 0.0) -> None:
        self.every_ms = every_ms
        self.skew_ms = skew_ms
        self.chance = random.Random(3)
        self.jitter_ms = jitter_ms
        self.version = 0

    def comes_ms(self, version: int) -> float:
        return version * self.every_ms + random.Random(version).uniform(0, self.jitter_ms)

    def stamp_ms(self, version: int) -> int:
        return int(self.comes_ms(version) + self.skew_ms)


def follow(log: Log, rhythm: Rhythm, entries: int) -> tuple[int, float]:
    """Looks in vain, and the mean delay of what was found, after a while of learning."""
    now_ms, misses, delays = 0.0, 0, []
    for version in range(1, entries + 1):
        while True:
            now_ms += rhythm.pause_ms(now_ms)
            sent_ms = now_ms
            now_ms += TRIP_MS
            if sent_ms + TRIP_MS / 2 >= log.comes_ms(version):
                break
            rhythm.missed()
            misses += version > entries / 2
        rhythm.found(sent_ms, "collector", log.stamp_ms(version))
        if version > entries / 2:
            delays.append(now_ms - log.comes_ms(version))
    return misses, sum(delays) / len(delays)


@pytest.mark.parametrize("skew_ms", [0.0, 7_000_000.0, -7_000_000.0])
@pytest.mark.parametrize("jitter_ms", [0.0, 8.0])
def test_one_look_an_entry_and_hardly_one_in_vain(skew_ms: float, jitter_ms: float) -> None:
    """Whatever clock the collector has."""
    misses, delay_ms = follow(Log(150.0, skew_ms, jitter_ms), Rhythm(measured()), 200)
    assert misses <= 25, "of a hundred entries"
    assert delay_ms <= 1.2 * TRIP_MS


def test_another_collector_is_another_rhythm() -> None:
    rhythm = Rhythm(measured())
    follow(Log(150.0, 0.0), rhythm, 50)
    rhythm.found(100_000.0, "another", 5)
    assert rhythm.pause_ms(100_040.0) <= TRIP_MS, "what was known of the first one does not count"
    rhythm.found(100_200.0, "another", 155)
    assert 0.0 < rhythm.pause_ms(100_240.0) <= 150.0


def test_a_clock_that_stands_or_jumps_makes_no_pause_long() -> None:
    rhythm = Rhythm(measured())
    now_ms = 0.0
    for stamp_ms in (0, 150, 300, 300, 300, 450, 600, 1 << 62, 1 << 62, (1 << 62) + 150, (1 << 62) + 300, 151, 302):
        rhythm.found(now_ms, "collector", stamp_ms)
        assert 0.0 <= rhythm.pause_ms(now_ms + TRIP_MS) <= 150.0
        now_ms += 150.0
    for _ in range(20):
        rhythm.missed()
        assert rhythm.pause_ms(now_ms) <= TRIP_MS, "who looked in vain looks again soon"
