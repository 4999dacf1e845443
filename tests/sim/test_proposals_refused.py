"""Attacks on what is refused while a proposal of it may come true. Each names its kind."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.sim.crowds import (
    _known_writers,
    commit_as_advised,
    commit_until_proposed,
    commits,
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
from txnlog.log.transaction_commands import CommitCommand

__all__ = ["_known_writers", "commits", "workers", "world"]


def run_out_of_memory(monkeypatch: pytest.MonkeyPatch, number: int, is_time: Callable[[], bool]) -> None:
    """Let the commit of a transaction find no memory where its own client decides it, from some time on."""
    refuse = CommitCommand._refuse_dropped

    def refused(self: CommitCommand, *arguments: Any) -> None:
        if is_time() and self.opening.txn == number and self.opening.now_ms() > 0:  # in this process
            raise MemoryError
        refuse(self, *arguments)

    monkeypatch.setattr(CommitCommand, "_refuse_dropped", refused)


@pytest.mark.clause("P-246")
@pytest.mark.parametrize("where", ["as its segment is made", "as it is decided"])
def test_who_has_no_memory_for_a_race_does_not_hear_that_nothing_was_sent(world, workers, where, monkeypatch):
    """REPORTED, DOUBLED: a commit fails, "nothing was sent of this call, and nothing takes effect", and takes effect.

    Who collects has read the mailbox, and its entry is on its way for a second. The proposer races, and there is no
    memory for the segment (``ulimit -v``, a container's limit), or any error of another kind comes as the command is
    decided. That was the answer at once. The ``abort`` that makes a proposal void has to be in front of every refusal.
    """
    heard: list[MemoryError] = []
    stopped: list[str] = []

    def no_memory() -> None:
        raise MemoryError

    def work(ns: Namespace) -> None:
        commit_until_proposed(world, ns)
        name = workers.collector()
        workers.resting |= {"w0", "w1", "w2", "w3"} - {name}
        own = mailbox(world, writer_of(world, "p") or "")
        before, store = world.objects.get(own), world.stores[name]
        ask = store._ask

        def asked(what: str, key: str, *arguments: Any) -> Any:
            if what == "create" and stopped and not heard:
                began_ms = world.now_ms
                while not heard and world.now_ms < began_ms + 2_000:
                    world.scheduler.sleep(1)  # on its way
                return world.objects.create(key, *arguments)
            found = ask(what, key, *arguments)
            if what == "get_range" and key == own and found != before:
                stopped.append(name)
            return found

        setattr(store, "_ask", asked)  # noqa: B010 - a method
        txn = ns.begin()
        txn.produce("audit", [{"value": 777}])
        if where == "as its segment is made":
            shared = ns._connection.appender._shared
            make = getattr(shared, "_one")  # noqa: B009 - of the implementation, not of the interface
            setattr(shared, "_one", lambda *items: no_memory() if stopped else make(*items))  # noqa: B010 - a method
        else:
            run_out_of_memory(monkeypatch, txn.id.number, lambda: bool(stopped))
        try:
            txn.commit()
        except MemoryError as error:
            heard.append(error)
        world.scheduler.sleep(4_000)

    workers.start("w0", "w1", "w2", "w3")
    world.start("p", work)
    world.run(12_000)
    assert stopped
    there = read_all(world, "audit").column("value").to_pylist().count(777)
    notes = [getattr(error, "__notes__", None) for error in heard]
    assert not (heard and there), f"it was said: {notes}, and it is there"


@pytest.mark.clause("P-245", "P-246")
def test_what_was_put_before_a_clock_was_set_back_may_come_true_as_long_as_it_says(world, workers, monkeypatch):
    """REPORTED: a commit is refused, for want of memory, and is brought into the log afterwards.

    A clock that was 50 s ahead (which is allowed: P-112) is set right between two proposals under one number. The
    second one says that it is over 50 s before the first one is, and only what it says is noted (``Proposer._open``).
    But the first one may be in somebody's memory, or its put may arrive late, as here: so for 50 s the proposer takes
    for void what is not, and refuses without an ``abort`` of the number.
    """
    heard: list[str] = []
    first: list[bytes] = []
    known = vars(Races)["collector"].fget

    def named(self: Races) -> str | None:
        if self._writer != writer_of(world, "p") or heard:
            return known(self)
        if not first:
            return "f" * 32  # who does not collect any more
        world.actors["p"].skew_ms = 0
        return "e" * 32

    def work(ns: Namespace) -> None:
        with ns.begin() as txn:
            txn.produce("audit", [{"value": 1}])
        monkeypatch.setattr(Races, "collector", property(named))
        own, store = mailbox(world, writer_of(world, "p") or ""), world.stores["p"]
        ask = store._ask
        lost: list[str] = []

        def asked(what: str, key: str, *arguments: Any) -> Any:
            if what == "put" and key == own and not first:
                first.append(arguments[0])  # on its way
                store._travel()
                raise StoreError("503")
            if what == "create" and first and not lost:
                lost.append(key)
                while not any(info.key == key for info in world.objects.list(key)):
                    world.scheduler.sleep(1)  # somebody else is first
            elif what == "create" and first and "unknown" not in lost:
                store._travel()
                raise StoreError("503")
            return ask(what, key, *arguments)

        setattr(store, "_ask", asked)  # noqa: B010 - a method
        world.actors["p"].skew_ms = 50_000
        txn = ns.begin(timeout_ms=300_000)
        txn.produce("audit", [{"value": 777}])
        run_out_of_memory(monkeypatch, txn.id.number, lambda: "unknown" in lost)

        def wait() -> None:
            lost.append("unknown")
            world.scheduler.sleep(80_000)

        try:
            commit_as_advised(txn, heard, wait)
        except MemoryError:
            heard.append("refused")
        ns.close()

    world.start("p", work)

    start_slow_writer(world)
    world.run(90_000)
    assert heard == ["refused"]
    world.objects.put(mailbox(world, writer_of(world, "p") or ""), first[0])
    workers.start("w0", "w1", "w2", "w3")
    world.run(world.now_ms + 6_000)
    assert 777 not in read_all(world, "audit").column("value").to_pylist()
