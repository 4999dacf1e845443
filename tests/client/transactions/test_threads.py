"""One handle, one producer or one transaction in several threads, and rivals beside them."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from tests.client.support import SCHEMA, TXN_CALLS, Place, begun, committed, read, rows, run_threads
from txnlog.api.writing import begin_transaction
from txnlog.client import row_placement
from txnlog.client.transaction_work import TransactionWork
from txnlog.engine.runtime import Runtime
from txnlog.errors import (
    InvalidTransactionState,
    TransactionAborted,
    TransactionHasFailedOperation,
    TxnLogError,
)


def test_every_commit_that_meets_an_abort_has_one_end(memory: Place) -> None:
    """``commit_async`` and ``abort`` of one transaction: the Future, the caller and the log agree."""
    ns = memory.orders()
    committed: list[int] = []
    for number in range(60):
        txn = begun(ns, number, flush=number % 3 == 0)
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


@pytest.mark.parametrize("end", ["commit", "prepare"])
def test_rows_whose_thread_is_not_run_until_the_commit_is_done_are_in_it_or_refused(
    memory: Place, monkeypatch: pytest.MonkeyPatch, end: str
) -> None:
    """Threads share a transaction, and the machine is busy: ``produce`` must not return where no row of it is anywhere.

    The rows came behind the commit's last look into the inbox, and their thread was not run (other threads were) before
    the commit was done.
    """
    looked, there, done = threading.Event(), threading.Event(), threading.Event()
    put, settle = TransactionWork.put, TransactionWork.settle

    def slow_place(*args: Any, **kwargs: Any) -> Any:  # many rows: it takes longer than another thread needs to commit
        pieces = row_placement.place(*args, **kwargs)
        if threading.current_thread().name == "other":
            assert looked.wait(20)
        return pieces

    def put_and_wait(self: TransactionWork, new: Any) -> None:
        put(self, new)
        if threading.current_thread().name == "other":
            there.set()
            assert done.wait(20)

    def looked_into_the_inbox(self: TransactionWork) -> None:
        settle(self)
        if not looked.is_set():
            looked.set()
            assert there.wait(20)

    monkeypatch.setattr("txnlog.api.transaction.place", slow_place)
    monkeypatch.setattr(TransactionWork, "put", put_and_wait)
    monkeypatch.setattr(TransactionWork, "settle", looked_into_the_inbox)  # called right behind that look

    outcome: list[object] = []

    def produce() -> None:
        try:
            txn.produce("orders", rows(2))
            outcome.append("taken")
        except TxnLogError as error:
            outcome.append(error)

    with memory.open() as ns:
        ns.create_topic("orders", SCHEMA)
        txn = ns.begin()
        txn.produce("orders", rows(1))
        other = threading.Thread(target=produce, name="other", daemon=True)
        other.start()
        if end == "commit":
            txn.commit()
        else:
            ns.complete(txn.prepare(), commit=True)
        done.set()
        other.join(20)
        assert outcome
        if outcome == ["taken"]:
            assert len(read(ns)) == 2


@pytest.mark.parametrize("end", ["commit", "abort", "commit_async"])
def test_rows_that_come_while_the_transaction_ends_are_in_it_or_refused(
    memory: Place, monkeypatch: pytest.MonkeyPatch, end: str
) -> None:
    """The thread that produces has looked just before."""
    ns, store = memory.faulty_orders()
    txn = begun(ns, 1, flush=True)
    monkeypatch.setattr(txn._machine, "seems_open", lambda: True)
    meanwhile: list[object] = []
    late = threading.Thread(target=lambda: meanwhile.extend(run_threads(partial(txn.produce, "orders", rows(2)))))

    def beside() -> None:
        late.start()
        time.sleep(0.05)

    store.script.append(beside)
    ended = getattr(txn, end)()
    if end == "commit_async":
        ended.result(30)
    late.join(30)
    assert isinstance(meanwhile[0], InvalidTransactionState)
    assert read(ns) == ([] if end == "abort" else [1])


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
        assert handle._connection.follower.state.head == ns._connection.follower.state.head


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
                txn = committed(ns, thread * 100 + number)
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
    ns = memory.orders(partitions=4)
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


def test_commits_gather_for_as_long_as_the_handle_was_configured(memory: Place) -> None:
    ns = memory.orders(1, min_commit_interval_ms=60)
    slept = ns._connection.runtime.slept_ms
    slept.clear()
    ns.produce("orders", rows(2))
    assert slept == [60]


def test_the_runtime_runs_on_without_threads_after_its_end() -> None:
    runtime = Runtime()
    assert runtime.run_all([lambda: 1, lambda: 2]) == [1, 2]
    runtime.close()
    before = threading.active_count()
    assert runtime.run_all([lambda: 3, lambda: 4]) == [3, 4]
    assert threading.active_count() <= before, "fewer: an idle one ends"
    with pytest.raises(ZeroDivisionError):
        runtime.run_all([lambda: 1, lambda: 1 // 0])


def test_threads_share_one_pool() -> None:
    runtime = Runtime()
    before = threading.active_count()
    run_threads(*[lambda: runtime.run_all([lambda: time.sleep(0.001)] * 8) for _ in range(8)])
    assert threading.active_count() - before <= 16
    runtime.close()


# --- one transaction, several threads ---------------------------------------------------------------------------------


def _answers(call: Callable[[], object], times: int) -> list[object]:
    """What each of some calls gives or raises."""
    found: list[object] = []
    for _ in range(times):
        try:
            found.append(call())
        except TxnLogError as error:
            found.append(error)
    return found


def test_a_transaction_used_from_two_threads_loses_nothing(sales: Any) -> None:
    txn = sales.begin()
    run_threads(*[lambda n=n: [txn.produce("orders", rows(n * 1_000 + i)) for i in range(100)] for n in range(4)])
    txn.commit()
    assert sorted(read(sales)) == sorted(n * 1_000 + i for n in range(4) for i in range(100))


def test_of_two_threads_that_commit_and_abort_one_wins(sales: Any) -> None:
    for _ in range(20):
        txn = begun(sales, 1)
        before = len(read(sales))
        committed: Any
        committed, aborted = run_threads(txn.commit, txn.abort)
        if txn.state == "COMMITTED":
            assert isinstance(aborted, InvalidTransactionState)
            assert committed.version == sales.transaction(txn.id).version
            assert len(read(sales)) == before + 1
        else:
            assert isinstance(committed, InvalidTransactionState)
            assert aborted is None
            assert len(read(sales)) == before


def test_rows_that_meet_the_commit_are_in_it_or_refused(sales: Any) -> None:
    for attempt in range(10):
        txn = sales.begin()
        first = attempt * 1_000
        txn.produce("orders", rows(first))
        accepted: list[int] = [first]

        def produce(txn: Any = txn, first: int = first, accepted: list[int] = accepted) -> None:
            for number in range(first + 1, first + 40):
                txn.produce("orders", rows(number))
                accepted.append(number)

        refused, result = run_threads(produce, txn.commit)
        assert refused is None or isinstance(refused, InvalidTransactionState), refused
        assert not isinstance(result, BaseException)
        assert [number for number in read(sales) if first <= number < first + 1_000] == accepted


def test_two_threads_that_commit_get_one_result(sales: Any) -> None:
    for number in range(20):
        txn = begun(sales, number, flush=number % 2 == 1)
        results: list[Any] = run_threads(txn.commit, partial(TXN_CALLS["commit_async"], txn, None), txn.commit)
        assert results == [txn.result] * 3
    assert read(sales) == list(range(20))


@pytest.mark.parametrize("other", ["abort", "commit", "flush", "produce"])
def test_who_meets_a_prepare_comes_before_it_or_is_refused(sales: Any, other: str) -> None:
    for number in range(10):
        txn = begun(sales, number)
        call = txn.abort if other == "abort" else partial(TXN_CALLS[other], txn, None)
        token, answer = run_threads(txn.prepare, call)
        state = sales.transaction(txn.id).state
        if isinstance(token, str):
            assert (txn.state, state) == ("PREPARED", "PREPARED")
            if other in ("abort", "commit"):
                assert isinstance(answer, InvalidTransactionState)
            assert answer is None or "PREPARED" in str(answer)
            sales.complete(token, commit=False)
        else:
            assert isinstance(token, InvalidTransactionState)
            assert (txn.state, other) in (("ABORTED", "abort"), ("COMMITTED", "commit"))
            assert not isinstance(answer, BaseException)


def test_of_threads_that_acknowledge_one_message_one_wins(sales: Any) -> None:
    sales.produce("orders", rows(*range(5)))
    messages = sales.consumer("orders", "billing").receive(timeout_ms=0)
    for number in range(5):
        transactions = [sales.begin() for _ in range(4)]
        answers = run_threads(*[lambda txn=txn, n=number: txn.acknowledge(messages[n]) for txn in transactions])
        assert sorted(type(answer).__name__ for answer in answers) == ["NoneType", *["TransactionConflict"] * 3]
        ends = [_answers(txn.commit, 1)[0] for txn in transactions]
        failed = [end for end in ends if isinstance(end, TransactionHasFailedOperation)]
        assert (len(failed), {txn.state for txn in transactions}) == (3, {"COMMITTED", "ABORTED"})
        assert sales.subscription("orders", "billing").cursors[0].cursor == number + 1


def test_a_producer_that_closes_while_its_transaction_works_ends_it_once(sales: Any) -> None:
    for number in range(10):
        producer = sales.producer("loader")
        txn = begun(producer, number)
        closed, worked, committed = run_threads(
            producer.close, partial(_answers, txn.flush, 5), partial(_answers, txn.commit, 1)
        )
        assert closed is None
        assert isinstance(worked, list)
        assert all(answer is None or isinstance(answer, InvalidTransactionState) for answer in worked)
        if txn.state == "COMMITTED":
            assert committed == [txn.result]
        else:
            assert isinstance(committed, list)
            assert isinstance(committed[0], InvalidTransactionState)
        assert read(sales).count(number) == (txn.state == "COMMITTED")


def test_a_transaction_begun_while_its_producer_closes_is_refused_and_ended(
    local: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    ns = local.orders()
    producer = ns.producer("loader")
    begun: list[Any] = []

    def closing(*arguments: Any, **options: Any) -> Any:
        begun.append(begin_transaction(*arguments, **options))
        producer.close()
        return begun[-1]

    monkeypatch.setattr("txnlog.api.producer.begin_transaction", closing)
    with pytest.raises(InvalidTransactionState, match="closed"):
        producer.begin()
    assert begun[0].state == "ABORTED"
