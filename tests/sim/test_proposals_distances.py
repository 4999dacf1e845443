"""Writers that are near the store, and others that are far from it. Each test names the kind of the attack."""

from __future__ import annotations

from itertools import pairwise

import pytest

from tests.sim.crowds import _known_writers, workers, world

__all__ = ["_known_writers", "workers", "world"]


@pytest.mark.parametrize("trip", [10.0, 5.0])
def test_a_far_proposer_does_not_fall_behind_the_collector(world, workers, trip):
    """STALL: each commit of a far writer takes longer than the one before: 0.3 s, 0.4, 0.6, 0.9, 1.4, and so on.

    Two processes near the store (10 ms) share entries, one in 35 ms; a third one proposes to them from 41 ms away. It
    reads the log entry by entry, one in each of its round trips, and so falls behind by one in six. Where it has seen
    its own outcome it "knows the end of the log", since it applied something lately, and goes on from there. When it is
    64 entries behind, what it proposes is void as it is put (``PROPOSAL_ENTRIES``), and it can never win a race either.
    """
    workers.start("far")
    world.run(1_000)
    workers.start("near", "too")
    for name in ("near", "too"):
        world.stores[name]._trip_ms = trip
    world.run(4_000)
    world.run(34_000)
    done = [at for at in workers.done["far"] if at >= 4_000]
    assert len(done) >= 60, f"in 30 seconds: one took {[round(b - a) for a, b in pairwise(done)]} ms"
