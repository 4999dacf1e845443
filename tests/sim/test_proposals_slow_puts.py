"""STALL: puts that were slow, and all waits of a writer are as long when the store answers at once again.

``RoundTrip.ms`` is the unit of all waits and has no upper bound: the median of the newest 15 puts, and of a single one
where there was no other yet. A put takes as long as the library below tries: with botocore 15 s where one answer is
lost (``read_timeout``), 60 s at most (store/open.py). With 15 s as a round trip a proposer waits for up to 40 of them,
looks once in each, and who collects rests for 7 s in front of each entry, its own commits as well.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.sim.crowds import Workers, _known_writers
from txnlog.testing.far_store import FarStore, FarWorld

__all__ = ["_known_writers"]


@pytest.fixture
def world() -> Iterator[FarWorld]:
    made = FarWorld(seed=7, trip_ms=41.0)
    yield made
    made.close()


def test_after_one_slow_put_a_process_commits_as_fast_as_others(world: FarWorld) -> None:
    """The first put of a process: one answer is lost."""
    workers = Workers(world)
    workers.start("w0", "w1", "w2", "w3")
    world.run(4_000)
    slow: list[float] = []

    def work(ns: Any) -> None:
        store = world.stores["late"]
        ask = store._ask

        def asked(what: str, key: str, *arguments: Any) -> Any:
            if what == "create" and not slow:
                slow.append(world.now_ms)
                world.scheduler.sleep(15_000)
                try:
                    return ask(what, key, *arguments)
                finally:
                    slow.append(world.now_ms)
            return ask(what, key, *arguments)

        setattr(store, "_ask", asked)  # noqa: B010 - a method
        workers._work(ns, "late")

    world.start("late", work)
    world.run(80_000)
    first_ms = workers.done["late"][0] - slow[-1]
    assert first_ms < 5_000, "every request behind the slow one takes 41 ms"


def test_once_a_store_is_fast_again_so_are_commits(world: FarWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    """A store throttles, or a network is bad, for four minutes: then nobody is slow but the writers themselves."""
    slow = [False]
    ask = FarStore._ask

    def asked(self: FarStore, what: str, key: str, *arguments: Any) -> Any:
        if slow[0] and what == "create":
            world.scheduler.sleep(15_000)
        return ask(self, what, key, *arguments)

    monkeypatch.setattr(FarStore, "_ask", asked)
    workers = Workers(world)
    workers.start("w0", "w1", "w2", "w3")
    world.run(5_000)
    slow[0] = True
    world.run(245_000)
    slow[0] = False
    since_ms = world.now_ms + 15_000  # what is under way
    world.run(since_ms + 30_000)
    gained = workers.gained(since_ms)
    assert min(gained.values()) > 20, "in thirty seconds"
