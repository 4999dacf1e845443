"""Reading, committing, aborting and checkpointing through one handle at once, against a rival."""

from __future__ import annotations

import sys
import threading
import time
from functools import partial
from typing import Any

import pytest

from tests.client.support import SCHEMA, Place, read, rows, run_threads
from txnlog.errors import InvalidTransactionState, TransactionAborted
from txnlog.runtime import Runtime


def test_every_commit_that_meets_an_abort_has_one_end(memory: Place) -> None:
    """``commit_async`` and ``abort`` of one transaction: the Future, the caller and the log agree."""
    ns = memory.open()
    ns.create_topic("orders", SCHEMA)
    committed: list[int] = []
    for number in range(60):
        txn = ns.begin()
        txn.produce("orders", rows(number))
        if number % 3 == 0:
            txn.flush()
        future = txn.commit_async()
        try:
            txn.abort()
            aborted = True
        except InvalidTransactionState:
            aborted = False
        try:
            future.result(timeout=30)
            assert not aborted
            committed.append(number)
        except TransactionAborted:
            assert aborted
        assert txn.state == ("ABORTED" if aborted else "COMMITTED")
    assert read(ns) == committed


def test_refreshes_commits_and_checkpoints_of_one_handle_agree_with_a_rivals(memory: Place) -> None:
    ns, rival = memory.open(), memory.open()
    ns.create_topic("orders", SCHEMA, partitions=2)
    stop = threading.Event()
    seen: list[int] = []

    def produce(handle: Any, first: int) -> None:
        for number in range(first, first + 40):
            handle.produce("orders", rows(number))

    def look() -> None:
        while not stop.is_set():
            found = ns.snapshot()
            ends = found.end_offsets("orders")
            assert found.read("orders").num_rows == sum(ends.values())
            seen.append(sum(ends.values()))

    def checkpoint() -> None:
        while not stop.is_set():
            ns.checkpoint()

    def work() -> None:
        try:
            results = run_threads(lambda: produce(ns, 0), lambda: produce(rival, 100), lambda: produce(ns, 200))
            assert results == [None, None, None]
        finally:
            stop.set()

    assert run_threads(work, look, checkpoint) == [None, None, None]
    assert seen == sorted(seen), "a reader went back"
    expected = [*range(40), *range(100, 140), *range(200, 240)]
    for handle in (ns, rival, memory.open(mode="r")):
        assert sorted(read(handle)) == expected
        assert handle.follower.state.head == ns.follower.state.head


# --- the threads of a handle ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("clients", [1, 2])
def test_sixteen_threads_commit_through_one_handle(memory: Place, clients: int) -> None:
    """Two handles on one log race as well; every commit is there once, offsets are dense and as told."""
    handles = [memory.open() for _ in range(clients)]
    handles[0].create_topic("orders", SCHEMA)
    switch = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    try:

        def work(thread: int) -> list[tuple[int, range]]:
            ns = handles[thread % clients]
            done = []
            for number in range(12):
                with ns.begin() as txn:
                    txn.produce("orders", rows(thread * 100 + number))
                done.append((thread * 100 + number, txn.result.offsets["orders", 0]))
            return done

        results: Any = run_threads(*[partial(work, n) for n in range(16)])
    finally:
        sys.setswitchinterval(switch)
    for result in results:
        assert isinstance(result, list), result
    told = {offsets.start: number for result in results for number, offsets in result}
    found = read(handles[0])
    assert found == [told[offset] for offset in range(16 * 12)]


def test_threads_of_every_kind_on_one_handle(memory: Place) -> None:
    ns = memory.open()
    ns.create_topic("orders", SCHEMA, partitions=4)
    stop = threading.Event()

    def produce() -> None:
        for number in range(40):
            ns.produce("orders", rows(number), partition=number % 4)

    def commit() -> None:
        producer = ns.producer(f"p{threading.get_ident()}")
        for number in range(20):
            with producer.begin() as txn:
                txn.produce("orders", rows(number))
                if number % 3 == 0:
                    txn.flush()

    def look() -> None:
        last = -1
        while not stop.is_set():
            snapshot = ns.snapshot()
            assert snapshot.version >= last
            last = snapshot.version
            assert snapshot.read("orders").num_rows == sum(snapshot.end_offsets("orders").values())
            ns.transactions()

    def consume() -> None:
        consumer = ns.consumer("orders", "billing")
        for _ in range(10):
            consumer.acknowledge(consumer.receive(20, timeout_ms=0))

    def writers() -> None:
        try:
            found = run_threads(produce, produce, commit, commit, consume)
            assert found == [None] * 5, found
        finally:
            stop.set()

    assert run_threads(writers, look, ns.checkpoint, look)[:2] == [None, None]
    assert ns.snapshot().read("orders").num_rows == 120


@pytest.mark.real_runtime
def test_commits_gather_for_as_long_as_the_handle_was_told(memory: Place) -> None:
    ns = memory.open(min_commit_interval_ms=60)
    ns.create_topic("orders", SCHEMA)
    transactions = [ns.begin() for _ in range(8)]
    for number, txn in enumerate(transactions):
        txn.produce("orders", rows(number))
    started = time.monotonic()
    results: Any = run_threads(*[txn.commit for txn in transactions])
    assert time.monotonic() - started >= 0.02
    assert len({result.version for result in results}) <= 2


def test_the_runtime_runs_on_without_threads_after_its_end() -> None:
    runtime = Runtime()
    assert runtime.run_all([lambda: 1, lambda: 2]) == [1, 2]
    runtime.close()
    before = threading.active_count()
    assert runtime.run_all([lambda: 3, lambda: 4]) == [3, 4]
    assert threading.active_count() == before
    with pytest.raises(ZeroDivisionError):
        runtime.run_all([lambda: 1, lambda: 1 // 0])


def test_threads_share_one_pool() -> None:
    runtime = Runtime()
    before = threading.active_count()
    run_threads(*[lambda: runtime.run_all([lambda: time.sleep(0.001)] * 8) for _ in range(8)])
    assert threading.active_count() - before <= 16
    runtime.close()
