"""Pairs of clients that meet in every interleaving of their store calls, and keep their promises in each."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, partial
from typing import Any, Final

import pytest

from tests.effort import LONG
from tests.sim.interleaving import Duel, ScriptedScheduler, in_schedules
from tests.sim.scopes import (
    FIRST,
    NAMESPACE,
    Effect,
    check_folds,
    copied,
    founded,
    has,
    open_client,
    outcome,
    rows,
    together,
    took,
    values,
)
from txnlog.api.internals import acknowledge_ranges
from txnlog.api.namespace import Namespace
from txnlog.api.transaction import Transaction
from txnlog.common.format_limits import EXPIRY_GRACE_MS
from txnlog.common.ids import TxnId
from txnlog.common.limits import DEFAULT_TIMEOUT_MS
from txnlog.errors import (
    ConsumerFenced,
    FencedError,
    InvalidTransactionState,
    ProducerFenced,
    TransactionAborted,
    TransactionConflict,
    TransactionTimedOut,
    TxnLogError,
)
from txnlog.results import Committed
from txnlog.store import MemoryStore
from txnlog.testing import ManualClock
from txnlog.testing.scheduler import START_MS

MOST_SCHEDULES: Final = 3_000
LARGE: Final = {"checkpoint_and_checkpoint", "commit_and_vacuum"}
"""Pairs with too many schedules to run those too that differ by the order of requests that commute."""

HOUR_MS: Final = 3_600_000

Check = Callable[[Namespace], None]
Setup = Callable[[Duel], Check]


@dataclass(frozen=True)
class Pair:
    """Two actors: what is there before, what they do, and what must be afterwards."""

    setup: Setup
    prepare: Callable[[Namespace], object] = lambda _ns: None


PAIRS: dict[str, Pair] = {}


def pair(prepare: Callable[[Namespace], object] = lambda _ns: None) -> Callable[[Setup], Setup]:
    """Add a pair."""

    def add(setup: Setup) -> Setup:
        PAIRS[setup.__name__] = Pair(setup, prepare)
        return setup

    return add


def subscribed(ns: Namespace) -> None:
    ns.create_subscription("orders", "billing")


def work_of(ns: Any, *, first: int, flush: bool = False, **options: Any) -> tuple[Transaction, Effect]:
    """A transaction with rows for two topics."""
    txn: Transaction = ns.begin(**options)
    txn.produce("orders", rows(first))
    if flush:
        txn.flush()
    txn.produce("audit", rows(first + 1))
    return txn, has(orders=(first,), audit=(first + 1,))


def agree(ns: Namespace, txn: Transaction, effect: Effect, answer: object) -> bool:
    """Owner, log and rows tell the same story; whether it was committed."""
    committed = isinstance(answer, Committed)
    assert committed or isinstance(answer, TxnLogError), answer
    assert effect(ns) == committed, f"answered {answer!r}"
    assert outcome(ns, str(txn.id)) == ("COMMITTED" if committed else "ABORTED")
    assert txn.state == ("COMMITTED" if committed else "ABORTED")
    if committed:
        assert txn.commit() == answer
        before = ns.snapshot(version=answer.version - 1).read("audit").num_rows
        assert ns.snapshot(version=answer.version).read("audit").num_rows > before, "visible as from this version"
    return committed


# --- commits ----------------------------------------------------------------------------------------------------------


@pair()
def commit_and_commit(duel: Duel) -> Check:
    (one, mine), (two, yours) = work_of(duel.client("a"), first=11, flush=True), work_of(duel.client("b"), first=21)
    duel.meet(one.commit, two.commit)

    def check(ns: Namespace) -> None:
        assert agree(ns, one, mine, duel.answers[0])
        assert agree(ns, two, yours, duel.answers[1])
        taken = [duel.answers[place].offsets[topic, 0] for place in (0, 1) for topic in ("orders", "audit")]
        assert sorted(str(found) for found in taken) == sorted(
            map(str, (range(4, 5), range(5, 6), range(1), range(1, 2)))
        )

    return check


@pair()
def commit_and_commit_of_one_application(duel: Duel) -> Check:
    batch: dict[str, Any] = {"txn_app_id": "nightly", "txn_version": 1}
    (one, mine), (two, yours) = (
        work_of(duel.client("a"), first=11, **batch),
        work_of(duel.client("b"), first=21, flush=True, **batch),
    )
    duel.meet(one.commit, two.commit)

    def check(ns: Namespace) -> None:
        assert all(isinstance(answer, Committed) for answer in duel.answers), duel.answers
        assert sorted(answer.skipped for answer in duel.answers) == [False, True]
        assert duel.answers[0].version == duel.answers[1].version, "the skipped one tells the original"
        assert [mine(ns), yours(ns)] == [not answer.skipped for answer in duel.answers]

    return check


@pair()
def commit_and_fence(duel: Duel) -> Check:
    txn, effect = work_of(duel.client("a").producer("loader"), first=11, flush=True)
    admin = duel.client("b")
    duel.meet(txn.commit, lambda: admin.fence("loader"))

    def check(ns: Namespace) -> None:
        if not agree(ns, txn, effect, duel.answers[0]):
            assert isinstance(duel.answers[0], ProducerFenced)
        assert (ns.transaction(txn.id).version < duel.answers[1]) == isinstance(duel.answers[0], Committed)

    return check


@pair()
def commit_and_successor(duel: Duel) -> Check:
    """The successor's own commit is never in the way of the fence."""
    txn, effect = work_of(duel.client("a").producer("loader"), first=11)
    heir = duel.client("b")

    def succeed() -> int:
        producer = heir.producer("loader")
        producer.produce("wide", rows(31), 0, sequence=0)
        return int(producer.epoch)

    duel.meet(txn.commit, succeed)

    def check(ns: Namespace) -> None:
        if not agree(ns, txn, effect, duel.answers[0]):
            assert isinstance(duel.answers[0], ProducerFenced)
        else:
            assert duel.answers[0].version < duel.answers[1], "a zombie committed"
        assert values(ns, "wide") == [31]

    return check


@pair()
def commit_and_timeout(duel: Duel) -> Check:
    """The other's clock is late enough to end the transaction with its own entry."""
    owner, other = duel.client("a"), duel.client("b")
    txn, effect = work_of(owner, first=11, flush=True)
    duel.clocks[1].advance(DEFAULT_TIMEOUT_MS + EXPIRY_GRACE_MS + 1)
    duel.meet(txn.commit, lambda: other.produce("probes", rows(100)))

    def check(ns: Namespace) -> None:
        assert isinstance(duel.answers[1], Committed)
        if not agree(ns, txn, effect, duel.answers[0]):
            assert isinstance(duel.answers[0], TransactionTimedOut)
            assert ns.transaction(txn.id).reason == "timeout"

    return check


@pair()
def commit_and_abort_by_an_administrator(duel: Duel) -> Check:
    txn, effect = work_of(duel.client("a"), first=11)
    admin = duel.client("b")
    duel.meet(txn.commit, lambda: admin.abort(str(txn.id), by="ops"))

    def check(ns: Namespace) -> None:
        committed = agree(ns, txn, effect, duel.answers[0])
        assert duel.answers[1].state == ("COMMITTED" if committed else "ABORTED")
        assert committed or isinstance(duel.answers[0], TransactionAborted)

    return check


# --- commits and upkeep -----------------------------------------------------------------------------------------------


@pair()
def commit_and_checkpoint(duel: Duel) -> Check:
    txn, effect = work_of(duel.client("a"), first=11, flush=True)
    other = duel.client("b")
    duel.meet(txn.commit, other.checkpoint)

    def check(ns: Namespace) -> None:
        assert agree(ns, txn, effect, duel.answers[0])
        assert duel.answers[1] <= ns.snapshot().version

    return check


@pair()
def checkpoint_and_checkpoint(duel: Duel) -> Check:
    duel.meet(duel.client("a").checkpoint, duel.client("b").checkpoint)

    def check(ns: Namespace) -> None:
        assert duel.answers[0] == duel.answers[1] == ns.snapshot().version

    return check


@pair()
def commit_and_vacuum(duel: Duel) -> Check:
    """The writer was paused for two days, with a file that no entry names yet."""
    writer = duel.client("a")
    txn, effect = work_of(writer, first=11)
    other = duel.client("b", 48 * HOUR_MS)
    other.snapshot()
    duel.meet(txn.commit, lambda: other.vacuum(retain_ms=0, allow_short_retention=True, grace_ms=HOUR_MS))

    def check(ns: Namespace) -> None:
        if not agree(ns, txn, effect, duel.answers[0]):
            assert isinstance(duel.answers[0], FencedError | TransactionTimedOut)
        assert values(ns, "orders")[: len(FIRST)] == list(FIRST)

    return check


@pair()
def drop_and_commit(duel: Duel) -> Check:
    txn, _ = work_of(duel.client("a"), first=11)
    other = duel.client("b")
    duel.meet(txn.commit, lambda: other.drop_topic("orders"))

    def check(ns: Namespace) -> None:
        answer = duel.answers[0]
        assert isinstance(answer, Committed)
        assert duel.answers[1] is None
        assert ns.topics() == ("audit", "probes", "wide")
        assert values(ns, "audit") == [12]
        assert outcome(ns, str(txn.id)) == "COMMITTED"
        there = ns.snapshot(version=answer.version)
        assert answer.dropped == (() if "orders" in there.topics() else ("orders",))
        if "orders" in there.topics():
            assert there.read("orders").column("value").to_pylist() == [*FIRST, 11]
        assert told_by_all(ns, txn.id) == {answer.dropped}

    return check


# --- acknowledgements -------------------------------------------------------------------------------------------------


def _taking(ns: Any, messages: Any, value: int) -> tuple[Transaction, Effect]:
    """A transaction of any client that takes what some consumer received, and produces."""
    txn: Transaction = ns.begin()
    acknowledge_ranges(txn, messages._acknowledgements(ns._connection, cumulative=False))
    txn.produce("audit", rows(value))
    return txn, has(audit=(value,))


@pair(subscribed)
def acknowledge_and_acknowledge(duel: Duel) -> Check:
    """Two transactions take the same message: one of them wins, whole."""
    message = duel.client("a").consumer("orders", "billing").receive(timeout_ms=0)[1]
    (one, mine), (two, yours) = _taking(duel.clients[0], message, 11), _taking(duel.client("b"), message, 21)
    duel.meet(one.commit, two.commit)

    def check(ns: Namespace) -> None:
        won = [agree(ns, one, mine, duel.answers[0]), agree(ns, two, yours, duel.answers[1])]
        assert sorted(won) == [False, True], "exactly one"
        assert isinstance(duel.answers[won.index(False)], TransactionConflict)
        assert took("billing", 1)(ns)

    return check


@pair(subscribed)
def acknowledge_plainly_and_in_a_transaction(duel: Duel) -> Check:
    consumer = duel.client("a").consumer("orders", "billing")
    messages = consumer.receive(timeout_ms=0)[1]
    txn, effect = _taking(duel.client("b"), messages, 11)

    def acknowledge() -> str:
        consumer.acknowledge(messages)
        return "acknowledged"

    duel.meet(txn.commit, acknowledge)

    def check(ns: Namespace) -> None:
        assert duel.answers[1] == "acknowledged", "what was taken before is fine"
        if not agree(ns, txn, effect, duel.answers[0]):
            assert isinstance(duel.answers[0], TransactionConflict)
        assert took("billing", 1)(ns)

    return check


@pair(lambda ns: ns.create_subscription("orders", "pool", type="shared"))
def acknowledge_and_acknowledge_on_shared(duel: Duel) -> Check:
    """Both consumers were given the messages, by a lease that ran out: acknowledgements decide."""
    one = duel.client("a").consumer("orders", "pool")
    first = one.receive(2, timeout_ms=0)
    other = duel.client("b", 10 * HOUR_MS).consumer("orders", "pool")
    second = other.receive(timeout_ms=0)
    assert second.table.num_rows == len(FIRST)
    txn = duel.clients[1].begin()

    def take() -> Committed:
        txn.acknowledge(second[:2])
        txn.produce("audit", rows(21))
        return txn.commit()

    def acknowledge() -> str:
        one.acknowledge(first)
        return "acknowledged"

    duel.meet(acknowledge, take)

    def check(ns: Namespace) -> None:
        taken, answer = took("pool", 0, 1)(ns), duel.answers[1]
        if isinstance(answer, TransactionConflict):
            txn.abort()
        else:
            assert isinstance(answer, Committed)
        assert taken
        assert has(audit=(21,))(ns) == isinstance(answer, Committed)
        assert duel.answers[0] == "acknowledged" or isinstance(duel.answers[0], TransactionConflict)
        assert isinstance(answer, Committed) or duel.answers[0] == "acknowledged", "one of them wins"

    return check


@pair(subscribed)
def open_consumer_and_commit_of_the_older_epoch(duel: Duel) -> Check:
    consumer = duel.client("a").consumer("orders", "billing")
    txn = duel.clients[0].begin()
    txn.acknowledge(consumer.receive(timeout_ms=0)[:2])
    txn.produce("audit", rows(11))
    effect = together(took("billing", 0, 1), has(audit=(11,)))
    other = duel.client("b")

    def take_over() -> list[int]:
        found: list[int] = other.consumer("orders", "billing").receive(timeout_ms=0).table.column("value").to_pylist()
        return found

    duel.meet(txn.commit, take_over)

    def check(ns: Namespace) -> None:
        if agree(ns, txn, effect, duel.answers[0]):
            assert duel.answers[1] == [3, 4]
        else:
            assert isinstance(duel.answers[0], ConsumerFenced | TransactionAborted)
            assert duel.answers[1] == list(FIRST)

    return check


# --- two phases -------------------------------------------------------------------------------------------------------


@pair()
def prepare_and_fence(duel: Duel) -> Check:
    txn, effect = work_of(duel.client("a").producer("loader"), first=11)
    admin = duel.client("b")
    duel.meet(txn.prepare, lambda: admin.fence("loader"))

    def check(ns: Namespace) -> None:
        assert isinstance(duel.answers[1], int)
        prepared = duel.answers[0] == str(txn.id)
        assert prepared or isinstance(duel.answers[0], ProducerFenced)
        assert not effect(ns)
        assert outcome(ns, str(txn.id)) == ("PREPARED" if prepared else "ABORTED")
        if prepared:
            assert isinstance(ns.complete(duel.answers[0], commit=True), Committed), "kept over the fence"
            assert effect(ns)

    return check


@pair(subscribed)
def complete_with_commit_and_with_abort(duel: Duel) -> Check:
    consumer = duel.client("a").consumer("orders", "billing")
    txn, effect = work_of(duel.clients[0], first=11)
    txn.acknowledge(consumer.receive(timeout_ms=0)[0])
    token, other = txn.prepare(), duel.client("b")
    duel.meet(
        lambda: duel.clients[0].complete(token, commit=True),
        lambda: other.complete(token, commit=False),
    )

    def check(ns: Namespace) -> None:
        committed = together(effect, took("billing", 0))(ns)
        winner, loser = duel.answers if committed else reversed(duel.answers)
        assert isinstance(winner, Committed) if committed else winner is None
        assert isinstance(loser, InvalidTransactionState)
        assert ("committed" if committed else "aborted") in str(loser).lower()
        assert outcome(ns, token) == ("COMMITTED" if committed else "ABORTED")

    return check


@pair(subscribed)
def complete_and_drop(duel: Duel) -> Check:
    first = duel.client("a")
    txn, _ = work_of(first, first=11)
    txn.acknowledge(first.consumer("orders", "billing").receive(timeout_ms=0)[0])
    token, other = txn.prepare(), duel.client("b")

    def drop() -> None:
        other.drop_subscription("orders", "billing")
        other.drop_topic("audit")

    duel.meet(lambda: first.complete(token, commit=True), drop)

    def check(ns: Namespace) -> None:
        answer = duel.answers[0]
        assert isinstance(answer, Committed)
        assert duel.answers[1] is None
        assert answer.dropped in {(), ("orders/billing",), ("audit", "orders/billing")}
        assert ("audit" in answer.dropped) == ("audit" not in ns.snapshot(version=answer.version).topics())
        assert ns.complete(token, commit=True) == first.complete(token, commit=True) == txn.commit() == answer
        assert told_by_all(ns, txn.id) == {answer.dropped}

    return check


def told_by_all(ns: Namespace, txn_id: TxnId) -> set[tuple[str, ...]]:
    """What was dropped before a commit, as the fold has it, then a checkpoint."""
    told: set[tuple[str, ...]] = set()
    for _ in range(2):
        known = ns._connection.outcome(txn_id.number)
        assert known is not None, "it was just committed"
        told.add(ns._connection.committed(known).dropped)
        ns.checkpoint()
    assert txn_id.number not in ns._connection.follower.state.outcomes
    return told


# --- all of them ------------------------------------------------------------------------------------------------------


@cache
def _prepared(name: str) -> MemoryStore:
    return founded(PAIRS[name].prepare, ManualClock(START_MS))


End = tuple[str, ...]


def play(name: str, scheduler: ScriptedScheduler) -> End:
    """Run one schedule of a pair and judge it; the answers and the log it led to. Raises Redundant."""
    duel = Duel(copied(_prepared(name)))
    check = PAIRS[name].setup(duel)
    duel.run(scheduler)
    log = [f"{item.key} {duel.store.get(item.key)!r}" for item in duel.store.list(f"{NAMESPACE}/_log/")]
    fresh = open_client(duel.store, "fresh", ManualClock(START_MS + 1_000))
    check(fresh)
    check_folds([fresh, *duel.clients], duel.store)
    return (*map(repr, duel.answers), *log)


def ends(name: str, *, every: bool = False) -> list[End]:
    """What all schedules of a pair led to; fails with the first that breaks a promise."""
    found = in_schedules(partial(play, name), most=MOST_SCHEDULES, every=every)
    assert len(found) < MOST_SCHEDULES, f"{name} has more schedules"
    return found


@pytest.fixture(autouse=True)
def _quiet(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.CRITICAL, logger="txnlog")


@pytest.mark.parametrize("name", PAIRS)
def test_two_actors_keep_their_promises_in_every_interleaving(name: str):
    assert len(set(ends(name))) > 1, "nobody ever came first but the one"


@pytest.mark.parametrize("name", sorted(PAIRS.keys() - LARGE)[:: 1 if LONG else 3])
def test_schedules_that_were_left_out_lead_to_the_same_ends(name: str):
    every = ends(name, every=True)
    assert len(every) > len(set(every))
    assert set(every) == set(ends(name))
