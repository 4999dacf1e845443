"""REPORTED: a commit is refused, past its deadline, and is brought into the log afterwards, and stays there.

When an entry comes too late for a proposal is reckoned by the clock of the proposer (``Proposer.retractions``: the
header of its own entry, which it need not append): with a clock that is ahead, which is allowed, it takes for void what
everybody else may bring yet, and refuses without an ``abort`` of the number.
"""

from __future__ import annotations

from typing import Any

from tests.sim.crowds import (
    _known_writers,
    commit_as_advised,
    mailbox,
    read_all,
    start_slow_writer,
    workers,
    world,
    writer_of,
)
from txnlog.api.namespace import Namespace
from txnlog.errors import StoreError
from txnlog.log.proposals.races import Races

__all__ = ["_known_writers", "workers", "world"]


def test_a_commit_that_is_refused_by_a_clock_that_is_ahead_does_not_come_true(world, workers, monkeypatch):
    heard: list[str] = []
    known = vars(Races)["collector"].fget

    def named(self: Races) -> str | None:
        if self._writer == writer_of(world, "p") and not heard:
            return "f" * 32  # who is dead by now
        return known(self)

    def work(ns: Namespace) -> None:
        with ns.begin() as txn:
            txn.produce("audit", [{"value": 1}])
        monkeypatch.setattr(Races, "collector", property(named))
        own, store = mailbox(world, writer_of(world, "p") or ""), world.stores["p"]
        ask = store._ask
        proposed: list[str] = []

        def asked(what: str, key: str, *arguments: Any) -> Any:
            if what == "put" and key == own:
                proposed.append(key)
            if what == "create" and proposed and "unknown" not in heard_so_far:
                store._travel()
                raise StoreError("503")  # nothing of the entry arrives: an outage of a minute
            return ask(what, key, *arguments)

        heard_so_far: list[str] = []
        setattr(store, "_ask", asked)  # noqa: B010 - a method
        world.actors["p"].skew_ms = 50_000
        txn = ns.begin()  # a minute
        txn.produce("audit", [{"value": 777}])
        began_ms = world.now_ms

        def wait() -> None:
            heard_so_far.append("unknown")
            world.scheduler.sleep(began_ms + 65_000 - world.now_ms)

        commit_as_advised(txn, heard, wait)

    world.start("p", work)

    start_slow_writer(world)
    world.run(68_000)
    assert heard == ["refused"]
    workers.start("w0", "w1", "w2", "w3")
    world.run(world.now_ms + 6_000)
    assert 777 not in read_all(world, "audit").column("value").to_pylist()
