"""Commits in the background: what they give, what may be asked meanwhile, and who hears that they failed."""

from __future__ import annotations

import asyncio
import itertools
import threading
from concurrent.futures import Future
from typing import Any

import pytest

from tests.client.support import (
    FaultyStore,
    Place,
    begun,
    committed,
    raises,
    read,
    rows,
    together,
    wait_for,
)
from txnlog.api.internals import acknowledge_ranges
from txnlog.engine import runtime
from txnlog.errors import (
    TransactionConflict,
    TransactionTimedOut,
)
from txnlog.format import codec
from txnlog.format.actions import Acknowledgement, PartitionRanges
from txnlog.log.segment_builder import SharedSegmentBuilder
from txnlog.testing import ManualClock
from txnlog.testing.scheduler import START_MS


@pytest.fixture
def held(memory: Place) -> tuple[Any, FaultyStore, threading.Event]:
    """A namespace whose next entry waits for the event."""
    ns, store = memory.faulty_orders()
    ns.begin()
    release = threading.Event()
    store.script.append(lambda: release.wait(30))
    return ns, store, release


def test_a_producer_that_closes_leaves_a_commit_under_way_alone(held: Any) -> None:
    ns, store, release = held
    store.script.appendleft("ok")
    with ns.producer("loader") as producer:
        txn, left = producer.begin(), producer.begin()
        txn.produce("orders", rows(1))
        left.produce("orders", rows(2))
        future = txn.commit_async()
    assert left.state == "ABORTED"
    release.set()
    assert future.result(30).txn_id == txn.id
    assert read(ns) == [1]


def test_callbacks_of_background_commits_may_commit(sales: Any) -> None:
    done = threading.Event()
    seen: list[int] = []

    def again(future: Any) -> None:
        seen.append(future.result().version)
        if len(seen) < 5:
            committed(sales, len(seen))
            following = begun(sales, 100 + len(seen))
            following.commit_async().add_done_callback(again)
        else:
            done.set()

    txn = begun(sales, 0)
    txn.commit_async().add_done_callback(again)
    assert done.wait(30)
    assert sorted(read(sales)) == [0, 1, 2, 3, 4, 101, 102, 103, 104]


@pytest.fixture
def group(memory: Place, clock: ManualClock, monkeypatch: pytest.MonkeyPatch) -> tuple[Any, FaultyStore, list[Any]]:
    """Three open transactions: a batch with all its rows in the log, the same batch again, and something else.

    The first one's deadline passes while the rows of an entry are encoded for the second time: without somebody who
    fell out of it. Nothing of the first is encoded, so the rows of others do not show that it falls out as well. These
    are for another topic: behind the first one's segments of the same they would wait for the next entry.
    """
    ns, store = memory.faulty_orders(audit=True, clock=clock)
    first = begun(ns, 1, flush=True, txn_app_id="nightly", txn_version=5, timeout_ms=1_000)
    second, third = ns.begin(txn_app_id="nightly", txn_version=5), ns.begin()
    second.produce("audit", rows(2))
    third.produce("audit", rows(3))
    build, waves = SharedSegmentBuilder.build, itertools.count(1)

    def late(*arguments: Any) -> Any:
        if next(waves) == 2:
            clock.advance(1_000)
        return build(*arguments)

    monkeypatch.setattr(SharedSegmentBuilder, "build", late)
    return ns, store, [first, second, third]


@pytest.mark.clause("P-69")
@pytest.mark.parametrize("order", [(0, 1, 2), (2, 0, 1)], ids=["first of the entry", "behind another"])
def test_a_batch_is_not_skipped_for_one_that_is_not_committed_after_all(group: Any, order: tuple[int, ...]) -> None:
    ns, store, transactions = group
    futures = together(ns, store, *[transactions[index].commit_async for index in order])
    first, second, third = (futures[order.index(index)] for index in range(3))
    with raises(TransactionTimedOut):
        first.result(30)
    assert third.result(30).offsets
    assert not second.result(30).skipped
    assert ns.transaction(transactions[0].id).state == "ABORTED"
    assert read(ns) == []
    assert sorted(read(ns, "audit")) == [2, 3]


@pytest.mark.clause("P-205")
@pytest.mark.parametrize("company", [False, True], ids=["alone", "behind one that is skipped"])
def test_nobody_is_refused_for_what_is_overdue_in_whatever_company(memory: Place, *, company: bool) -> None:
    """It was looked for what is overdue a moment before, by an entry of the same handle."""
    clock = ManualClock(START_MS)
    ns, store = memory.faulty_orders(clock=clock)
    ns.create_subscription("orders", "billing", type="shared")
    ns.produce("orders", rows(0))
    info = ns.subscription("orders", "billing")
    message = [Acknowledgement(info.id, info.epoch, (PartitionRanges(0, ((0, 1),)),))]
    waiting = ns.begin()
    acknowledge_ranges(waiting, message)
    batches = [ns.begin(txn_app_id="nightly", txn_version=1) for _ in range(2)]
    for batch in batches:
        batch.produce("orders", rows(5))
    holder = memory.open(clock=clock).begin(timeout_ms=1_000)
    acknowledge_ranges(holder, message)
    holder.flush()
    clock.advance(5_500)
    ns.produce("orders", rows(1))
    clock.advance(600)
    calls = [batch.commit_async for batch in batches] if company else []
    *others, last = together(ns, store, *calls, waiting.commit_async)
    assert last.exception(30) is None
    assert [other.result(30).skipped for other in others] == ([False, True] if company else [])


def test_a_background_commit_that_does_not_fit_goes_into_the_next_entry(
    memory: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    ns, store = memory.faulty_orders()
    transactions = [ns.begin() for _ in range(3)]
    for number, txn in enumerate(transactions):
        txn.produce("orders", rows(number), partition=0)
    build = SharedSegmentBuilder.build

    def too_small(*arguments: Any) -> Any:
        monkeypatch.setattr(codec, "MAX_ENTRY_ACTIONS", 2)  # a segment and one commit
        return build(*arguments)

    monkeypatch.setattr(SharedSegmentBuilder, "build", too_small)
    futures = together(ns, store, *[txn.commit_async for txn in transactions])
    versions = [future.result(30).version for future in futures]
    assert versions == [versions[0], versions[0] + 1, versions[0] + 2]
    assert read(ns) == [0, 1, 2]


@pytest.mark.clause("P-203")
@pytest.mark.parametrize("second", ["commit_async", "commit", "block"])
def test_a_commit_next_to_one_that_is_under_way_is_that_one(memory: Place, second: str) -> None:
    """Two could be answered differently: the obstacle of the first may be gone when the second is decided."""
    ns, store = memory.faulty_orders(0, audit=True)
    messages = ns.consumer("orders", "billing").receive(timeout_ms=0)
    blocker = memory.open().begin()
    acknowledge_ranges(blocker, messages._acknowledgements(ns._connection, cumulative=False))
    blocker.flush()
    txn = begun(ns, 1, topic="audit")
    txn.acknowledge(messages)
    going, release = threading.Event(), threading.Event()

    def wait() -> None:
        going.set()
        release.wait(30)

    store.script.append(wait)
    first = txn.commit_async()
    assert going.wait(30)
    first.add_done_callback(lambda _: blocker.abort())
    heard: list[BaseException | None] = []

    def again() -> None:
        try:
            if second == "block":
                with txn:
                    pass
            elif second == "commit":
                txn.commit()
            else:
                txn.commit_async().result(30)
        except TransactionConflict as error:
            heard.append(error)

    thread = threading.Thread(target=again)
    thread.start()
    release.set()
    thread.join(30)
    assert isinstance(first.exception(30), TransactionConflict)
    assert [(type(error), str(error)) for error in heard] == [(TransactionConflict, str(first.exception()))]
    assert read(memory.open(), "audit") == [], "who was told so does the work again"


@pytest.mark.parametrize("kind", [SystemExit, GeneratorExit, asyncio.CancelledError])
def test_a_callback_that_raises_costs_the_others_nothing(held: Any, kind: type[BaseException]) -> None:
    ns, _, release = held

    def bad(_: Future[Any]) -> None:
        raise kind

    futures = []
    for number in range(4):
        txn = begun(ns, number)
        futures.append(txn.commit_async())
    futures[1].add_done_callback(bad)
    release.set()
    assert all(future.result(30).offsets for future in futures)


def test_a_callback_may_wait_for_another_future(held: Any) -> None:
    """Of one that was submitted later, too: it gets its result from another thread."""
    ns, _, release = held
    futures = []
    for number in range(3):
        txn = begun(ns, number)
        futures.append(txn.commit_async())
    found: list[Any] = []
    futures[0].add_done_callback(lambda _: found.extend([futures[1].result(20), futures[2].result(20)]))
    release.set()
    wait_for(lambda: len(found) == 2)
    assert found == [future.result() for future in futures[1:]]


def test_callbacks_that_close_are_as_many_as_there_are(memory: Place) -> None:
    ns, store = memory.faulty_orders()
    ns.begin()
    release = threading.Event()
    store.script.append(lambda: release.wait(30))
    futures = []
    for number in range(300):
        txn = begun(ns, number)
        futures.append(txn.commit_async())
        futures[-1].add_done_callback(lambda _: ns.close())
    release.set()
    assert all(future.result(30).offsets for future in futures)


def test_a_callback_that_does_not_end_keeps_no_other_future_from_its_result(
    memory: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It may wait for a lock that the closing thread has; nobody shall wait for the others for that."""
    monkeypatch.setattr(runtime, "_CALLBACKS_MS", 100)
    ns, _ = memory.faulty_orders()
    busy, release = threading.Event(), threading.Event()

    def callback(_: Future[Any]) -> None:
        busy.set()
        release.wait(30)

    futures = []
    for number in range(3):
        txn = begun(ns, number)
        futures.append(txn.commit_async())
        if not number:
            futures[0].add_done_callback(callback)
            assert busy.wait(20)
    ns.close()
    assert all(future.done() for future in futures)
    release.set()
    assert read(memory.open()) == [0, 1, 2]
