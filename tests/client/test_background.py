"""Commits in the background: what they give, what may be asked meanwhile, and who hears that they failed."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from tests.client.support import SCHEMA, FaultyStore, Place, raises, read, rows
from txnlog.errors import InvalidTransactionState, ProducerFenced, TransactionAborted, TransactionConflict


def test_a_commit_in_the_background_gives_what_commit_gives(ns: Any) -> None:
    txn = ns.begin()
    txn.produce("orders", rows(1), partition=0)
    result = txn.commit_async().result(30)
    assert result.offsets == {("orders", 0): range(1)}
    assert txn.state == "COMMITTED"
    assert txn.result == txn.commit() == result


@pytest.fixture
def held(memory: Place) -> tuple[Any, FaultyStore, threading.Event]:
    """A namespace whose next entry waits for the event."""
    ns, store = memory.faulty()
    ns.create_topic("orders", SCHEMA)
    ns.begin()
    release = threading.Event()
    store.script.append(lambda: release.wait(30))
    return ns, store, release


def test_nothing_can_be_added_while_a_commit_is_under_way(held: Any) -> None:
    ns, _, release = held
    txn = ns.begin()
    txn.produce("orders", rows(1))
    future = txn.commit_async()
    for call in (lambda: txn.produce("orders", rows(2)), txn.flush):
        with raises(InvalidTransactionState, match="under way"):
            call()
    assert not future.cancel()
    release.set()
    assert future.result(30).offsets == {("orders", 0): range(1)}
    assert read(ns) == [1]


def test_an_abort_while_the_commit_is_under_way_tells_the_truth(held: Any) -> None:
    ns, _, release = held
    txn = ns.begin()
    txn.produce("orders", rows(1))
    future = txn.commit_async()
    threading.Timer(0.05, release.set).start()
    with raises(InvalidTransactionState, match="was committed"):
        txn.abort()
    assert future.result(30).txn_id == txn.id
    assert (txn.state, read(ns)) == ("COMMITTED", [1])


def test_an_abort_that_comes_before_the_commit_in_the_log_wins(memory: Place) -> None:
    ns, _ = memory.faulty()
    ns.create_topic("orders", SCHEMA)
    txn = ns.begin()
    txn.produce("orders", rows(1))
    memory.open().abort(txn.id)
    future = txn.commit_async()
    assert isinstance(future.exception(30), TransactionAborted)
    txn.abort()
    assert (txn.state, read(ns)) == ("ABORTED", [])


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


def test_a_block_that_commits_in_the_background_waits_for_it_at_its_end(ns: Any) -> None:
    with ns.begin() as txn:
        txn.produce("orders", rows(1))
        future = txn.commit_async()
    assert future.result(30) == txn.result
    assert read(ns) == [1]


def test_callbacks_of_background_commits_may_commit(sales: Any) -> None:
    done = threading.Event()
    seen: list[int] = []

    def again(future: Any) -> None:
        seen.append(future.result().version)
        if len(seen) < 5:
            with sales.begin() as txn:
                txn.produce("orders", rows(len(seen)))
            following = sales.begin()
            following.produce("orders", rows(100 + len(seen)))
            following.commit_async().add_done_callback(again)
        else:
            done.set()

    txn = sales.begin()
    txn.produce("orders", rows(0))
    txn.commit_async().add_done_callback(again)
    assert done.wait(30)
    assert sorted(read(sales)) == [0, 1, 2, 3, 4, 101, 102, 103, 104]


def test_a_background_commit_that_fails_says_so_in_its_future(sales: Any, memory: Place) -> None:
    with sales.producer("loader") as producer:
        txn = producer.begin()
        txn.produce("orders", rows(1))
        memory.open().producer("loader")
        future = txn.commit_async()
        assert isinstance(future.exception(30), ProducerFenced)
        assert txn.state == "ABORTED"


def test_many_background_commits_share_entries(held: Any) -> None:
    ns, _, release = held
    transactions = [ns.begin() for _ in range(50)]
    for number, txn in enumerate(transactions):
        txn.produce("orders", rows(number))
    futures = [txn.commit_async() for txn in transactions]
    release.set()
    versions = {future.result(30).version for future in futures}
    assert len(versions) <= 3
    assert sorted(read(ns)) == list(range(50))


@pytest.mark.clause("P-203")
@pytest.mark.parametrize("second", ["commit_async", "commit", "block"])
def test_a_commit_beside_one_that_is_under_way_is_that_one(memory: Place, second: str) -> None:
    """Two could be answered differently: the obstacle of the first may be gone when the second is decided."""
    ns, store = memory.faulty()
    ns.create_topic("orders", SCHEMA)
    ns.create_topic("audit", SCHEMA)
    ns.produce("orders", rows(0))
    messages = ns.consumer("orders", "billing").receive(timeout_ms=0)
    blocker = memory.open().begin()
    blocker.acknowledge_ranges(messages.acknowledgements(ns.connection, cumulative=False))
    blocker.flush()
    txn = ns.begin()
    txn.produce("audit", rows(1))
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
    assert heard == [first.exception()]
    assert read(memory.open(), "audit") == [], "who was told so does the work again"


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_a_worker_that_ended_is_replaced_and_what_it_left_is_done(ns: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever ends it, it must not go round for ever, and nobody must wait for it."""
    appender = ns.connection.appender

    def ended(_self: object) -> None:
        raise SystemExit

    first, second = ns.begin(), ns.begin()
    for txn in (first, second):
        txn.produce("orders", rows(1), partition=0)
    with monkeypatch.context() as patched:
        patched.setattr(type(appender), "_await_company", ended)
        left = first.commit_async()
        appender._worker.join(30)
        assert not appender._worker.is_alive()
        assert not left.done()
    assert second.commit_async().result(30).offsets
    assert left.result(30).offsets
