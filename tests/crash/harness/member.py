"""A process of a run: it works until it is told to stop, killed, fenced, or gives up.

Its calls go through the client of the simulation, here over a real store and in real time: each is written down.
"""

from __future__ import annotations

import contextlib
import os
import random
import time
import traceback
from collections.abc import Callable, Container
from types import SimpleNamespace
from typing import Any, ClassVar, TypeVar

import txnlog
from tests.crash.harness.faulty_store import FaultyStore
from tests.crash.harness.journal import Journal, name_of
from tests.crash.harness.plan import NAMESPACE, Board, Plan, decision
from txnlog.errors import (
    CoordinatorFenced,
    FencedError,
    InvalidTransactionState,
    RetriableError,
    StoreError,
    TransactionNotFound,
)
from txnlog.store import Store, open_store
from txnlog.testing.actors.ending import report_decision
from txnlog.testing.client import Client, reported_outcome
from txnlog.testing.world import World

T = TypeVar("T")

DONE, FENCED, GAVE_UP, BROKEN = 0, 3, 4, 5
"""Exit codes: told to stop; a newer owner took over; must not go on while an outcome is unknown; a finding."""

_CREATE_ATTEMPTS = 3
"""Puts of an entry before its outcome is unknown: the default is patient for a minute."""


class MustNotGoOn(Exception):
    """The outcome of something is open on which everything further depends."""


class ProcessClient(Client):
    """The client of one process: the history that it writes is its journal, and no value of it is another one's."""

    def __init__(self, plan: Plan, name: str, chance: random.Random, first_value: int = 0) -> None:
        nobody: Any = SimpleNamespace(
            label=lambda *_: None, trace=lambda *_: None, wait_for=lambda *_: None, now_ms=0.0, frozen_until_ms=0.0
        )
        self.journal = Journal(plan.journals / f"{name}.jsonl")
        self.world = World(nobody, self.journal, budget=0, next_value=first_value)
        self.actor = self.scheduler = nobody
        self.name = name
        self.chance = chance
        self.ns = None


class Member:
    """See the module. A subclass says what it opens, and what its steps are."""

    keeper: ClassVar[bool] = False
    """Whether it has nothing of its own to recover: whoever comes next goes on."""

    def __init__(self, plan: Plan, board: Board, worker: int, generation: int, unsettled: Container[int] = ()) -> None:
        """``unsettled`` are earlier generations that may have left something open."""
        self._plan = plan
        self._board = board
        self._worker = worker
        self._generation = generation
        self._unsettled = unsettled
        self._name = name_of(worker, generation)
        self._chance = plan.random("worker", worker, generation)
        self._parent = os.getppid()
        self._client = ProcessClient(plan, self._name, self._chance, (worker + 1) * 10**12 + generation * 10**6)
        self._note = self._client.journal.note

    def run(self) -> int:
        """Work; returns the exit code."""
        try:
            self._start()
            self._recover()
            while not self._is_over():
                self._step()
                time.sleep(self._pause() / 1e3)
        except FencedError as error:
            self._note("fenced", error=repr(error))
            return FENCED
        except MustNotGoOn as error:
            self._note("gave up", error=str(error))
            return GAVE_UP
        except Exception:  # noqa: BLE001 - whatever it is, it is a finding, and the journal says which
            self._note("broken", error=traceback.format_exc())
            return BROKEN
        return DONE

    def _start(self) -> None:
        store = self._store()
        ns = persist(lambda: txnlog.open(self._plan.root, NAMESPACE, store=store, clock=self._board))
        self._client.ns = ns
        ns._connection.appender.create_attempts = _CREATE_ATTEMPTS
        self._board.begin_work(self._worker)

    @property
    def _ns(self) -> txnlog.Namespace:
        assert self._client.ns is not None, "a member begins with it"
        return self._client.ns

    def _store(self) -> Store:
        plan = self._plan
        chance = plan.random("faults", self._worker, self._generation)
        return FaultyStore(open_store(plan.root, plan.options), chance, plan.spool, plan.faults)

    def _recover(self) -> None:
        """Answer for what predecessors left open."""
        self._board.note_recovered(self._worker, self._generation)

    def _is_over(self) -> bool:
        """Nothing fences a keeper that slept while its successor began: it ends its step, and would go on for ever."""
        return self._board.stopped or (self.keeper and self._board.recovered(self._worker) > self._generation)

    def _begin_work(self) -> None:
        if os.getppid() != self._parent:
            raise MustNotGoOn("the run is over, and nobody said so")
        self._board.begin_work(self._worker)

    def _step(self) -> None:
        """Begin and do some work."""
        raise NotImplementedError

    def _pause(self) -> float:
        """Milliseconds until the next step."""
        return self._chance.uniform(0, self._plan.pause_ms)


def persist(call: Callable[[], T]) -> T:
    """Call again while the store gives no answer, or a block was closed on the way."""
    for attempt in range(60):
        try:
            return call()
        except (RetriableError, StoreError, CoordinatorFenced):
            time.sleep(min(0.2, 0.01 * 2**attempt))
    raise MustNotGoOn("no answer for a long time")


def make_definite(client: Client, ns: txnlog.Namespace, txn: str) -> str:
    """What the log shows of a transaction, and its definite end, which is returned.

    A prepared one ends as the outside system decides. One that the log cannot show any more, because the block of its
    number was closed, is aborted: in a run no outcome is forgotten.
    """

    def end() -> dict[str, Any]:
        try:
            return reported_outcome(ns.abort(txn, by="crash test", why="its outcome is unknown"))
        except TransactionNotFound:
            return {"state": "ABORTED", "version": None}

    if client.call("outcome", lambda: ns.transaction(txn), reported_outcome, txn=txn).state != "PREPARED":
        with contextlib.suppress(InvalidTransactionState):  # it was prepared meanwhile
            return str(client.call("outcome", end, lambda shown: shown, txn=txn)["state"])
    return carry_out(client, ns, txn)


def carry_out(client: Client, ns: txnlog.Namespace, txn: str) -> str:
    """Carry out what the outside system decided about a prepared transaction; its end."""
    with contextlib.suppress(InvalidTransactionState):  # its owner never heard that it is prepared, and took it back
        report_decision(client, ns, txn, commit=decision(txn))
    return client.call("outcome", lambda: ns.transaction(txn), reported_outcome, txn=txn).state
