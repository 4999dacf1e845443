"""Attacks on merges in the background. Each names its kind."""

from __future__ import annotations

import gc
from typing import Any

import pytest

from tests.client.merging import INTERVAL, at_rest, commit, merger, orders, segments
from tests.client.support import SCHEMA, Place, read, rows, wait_for
from txnlog.client import auto_merger
from txnlog.errors import StoreError
from txnlog.maintenance.merging import Merger

pytestmark = pytest.mark.usefixtures("soon")


@pytest.mark.clause("P-91")
def test_a_thread_that_starts_late_merges_nothing_twice(memory: Place) -> None:
    """DOUBLED, DAMAGED: committed rows are there twice, and whoever begins with entry 0 takes the log for damaged.

    What is small is noted in the engine (``AutoMerger._work``), and up to which version that is known is asked later,
    by the thread of the merge (``Optimization.run_newest``). Where that thread gets the processor late, another client
    has merged the same segments by then, and a checkpoint has made the state forget it: ``known`` is the version
    behind that, so ``ReplaceCommand._is_there`` takes what is forgotten for what is there.
    """
    ns, rival = orders(memory), memory.open()
    merger(rival)._is_denied = True  # it merges when the test asks for it
    gate: list[int] = []
    merge = merger(ns)._merge

    def late(*what: Any) -> object:
        gate.append(1)
        wait_for(lambda: len(gate) > 1)
        return merge(*what)

    merger(ns)._merge = late
    number = 0
    while not gate:
        ns.produce("orders", rows(number))
        number += 1
        if number >= INTERVAL * 2:
            wait_for(lambda: bool(gate))
    rival.optimize("orders")
    ns.produce("orders", rows(number))
    ns.checkpoint()
    gate.append(1)
    at_rest(ns)
    wanted = list(range(number + 1))
    assert sorted(read(ns)) == wanted
    assert sorted(read(memory.open(mode="r"))) == wanted


def test_merges_go_on_where_as_many_small_segments_are_known_as_are_kept_in_mind(
    memory: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    """STOPPED: a handle never merges a topic again after one failure, whatever comes.

    At most 4,096 small segments of a topic are kept in mind (here 40). One merge that fails, or leaves most of them
    alone, has the next one wait for some 80 more than are known: for 4,176 of 4,096. An old topic that was merged by
    hand, whose setting becomes "auto", has as many at once; topics with files of a megabyte come there, too, since
    only the newest 16 MiB are merged.
    """
    monkeypatch.setattr(auto_merger, "_MOST_KNOWN", 40)
    ns = orders(memory, merge="manual")
    commit(ns, 45)
    stored = Merger._stored

    def fail(*_: Any) -> Any:
        raise StoreError("503")

    with monkeypatch.context() as patch:
        patch.setattr(Merger, "_stored", fail)
        ns.alter_topic("orders", merge="auto")
        commit(ns, 1, 45)
    assert Merger._stored is stored
    assert len(segments(ns)) == 46
    commit(ns, 60, 46)
    assert len(segments(ns)) < 100, "not one merge in sixty commits"


def test_segments_of_dropped_topics_are_not_kept_in_memory(memory: Place) -> None:
    """KEPT: a writer keeps the small segments of every topic that was ever dropped, 4,096 of each, with statistics.

    The state forgets them at the next checkpoint. A service that makes a topic for each job, and drops it, grows by all
    of its segments, for as long as it runs; and each append looks at all of these topics.
    """
    ns = memory.open()
    for number in range(5):
        ns.create_topic(f"job{number}", SCHEMA)
        for value in range(6):
            ns.produce(f"job{number}", rows(value))
        ns.drop_topic(f"job{number}")
    ns.checkpoint()
    ns.create_topic("orders", SCHEMA)
    ns.produce("orders", rows(1))
    at_rest(ns)
    gc.collect()
    known = ns._connection.follower.state.segments
    kept = {number for topic in merger(ns)._topics.values() for number in topic.small}
    assert len(known) <= 1, "the state forgot them"
    assert len(kept) <= 1, f"{len(kept)} segments of dropped topics"
