"""Reading, committing, aborting and checkpointing through one handle at once, against a rival."""

from __future__ import annotations

import threading
from typing import Any

from tests.client.support import SCHEMA, Place, read, rows, run_threads
from txnlog.errors import InvalidTransactionState, TransactionAborted


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
