"""Writers that are near the store, and others that are far from it. Each test names the kind of the attack."""

from __future__ import annotations

from itertools import pairwise

import pytest

from tests.sim.crowds import _known_writers, workers, world

__all__ = ["_known_writers", "workers", "world"]


def flushing(world, name, until_ms):
    """Six threads of one process flush what they write, as big transactions do, until then."""

    def flush(ns):
        def loop():
            while world.now_ms < until_ms:
                with ns.begin() as txn:
                    txn.produce("orders", [{"value": 1}])
                    txn.flush()

        for number in range(5):
            world.actors[name].start(loop, f"thread {number}")
        loop()

    world.start(name, flush)


@pytest.mark.parametrize("trip", [pytest.param(10.0, marks=pytest.mark.long), 5.0])
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
    world.run(19_000)
    done = [at for at in workers.done["far"] if at >= 4_000]
    assert len(done) >= 30, f"in 15 seconds: one took {[round(b - a) for a, b in pairwise(done)]} ms"


def test_a_far_writer_commits_next_to_a_near_one(world, workers):
    """STALL: who is farther from the store than somebody who commits all the time commits nothing, until its deadline.

    One process next to the store commits one transaction after the other (two round trips of 10 or 20 ms each); another
    one, 41 ms away, loses every race: by the time it has read one entry, and sent its own, another one is there. It
    would propose, but nobody collects: only who has lost a race does, and the near one never loses any.
    """
    workers.start("near")
    world.stores["near"]._trip_ms = 10.0
    world.run(3_000)
    workers.start("far")
    world.run(33_000)
    gained = workers.gained(3_000)
    assert gained["near"] > 500
    assert gained["far"] >= 10, "in half a minute"


def test_who_flushes_without_a_pause_leaves_others_a_place(world, workers):
    """STALL: as above, at the same distance: an entry without rows takes one round trip, and so does each look at it.

    Six threads of one process flush what they write, as big transactions do: there is always a command for the next
    entry, which is put as soon as the last one is there.
    """

    flushing(world, "busy", 30_000)
    world.run(3_000)
    workers.start("other")
    world.run(30_000)
    assert workers.gained(3_000).get("other", 0) >= 5, "in 27 seconds: none without that"


def test_two_near_ones_that_flush_leave_a_far_writer_a_place(world, workers):
    """STALL: as above, with two at 10 ms: each of them wins about every second race, and none of them all of them.

    What they append cannot be proposed, so they race on where somebody collects, and a cycle of who collects takes
    longer than two of their races.
    """
    workers.start("far")
    world.run(1_000)
    near_ones(world, 15_000)
    world.run(15_000)
    assert workers.gained(1_000).get("far", 0) >= 9, "in 14 seconds: 2 without that"


def test_two_near_ones_leave_a_far_one_a_place_for_what_cannot_be_proposed(world):
    """STALL: as above, where the far one opens a producer again and again: its epoch cannot be proposed."""
    opened = []

    def open_producers(ns):
        while world.now_ms < 15_000:
            ns.producer("loader").close()
            opened.append(world.now_ms)

    world.start("far", open_producers)
    world.run(1_000)
    near_ones(world, 15_000)
    world.run(15_000)
    later = [at for at in opened if at > 5_000]
    assert len(later) >= 3, "in 10 seconds: none without that"


def near_ones(world, until_ms):
    """Two processes at 10 ms that flush all the time."""
    for name in ("busy", "too"):
        flushing(world, name, until_ms)
        world.stores[name]._trip_ms = 10.0
