"""Ctrl-C while a request of the call is under way: the call ends for its caller, and the handle stays whole."""

from __future__ import annotations

import contextlib
import itertools
import re
import threading
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import pytest

from tests.client.interrupting_store import InterruptingStore
from tests.client.support import SCHEMA, Place, assert_whole, begun, ids, raises, read, rows, take, wait_for, waiting
from tests.interrupts import hearing_interrupts, interrupt_main_thread
from txnlog.engine.admission import Admission
from txnlog.engine.engine import engine_of_process
from txnlog.errors import InvalidTransactionState, OutcomeUnknown, TxnLogError
from txnlog.fold.draft_tables import DraftTable
from txnlog.log.append_queue import Asked
from txnlog.log.commands import effect
from txnlog.store import Created


@pytest.fixture(autouse=True)
def _hearing_interrupts() -> Iterator[None]:
    with hearing_interrupts():
        yield


@pytest.fixture
def interrupting(memory: Place) -> tuple[Any, InterruptingStore]:
    """A client with a topic, and its store."""
    store = InterruptingStore(memory.store())
    ns = memory.orders(store=store)
    ns.begin()
    return ns, store


@pytest.mark.clause("P-203")
@pytest.mark.parametrize("call", ["commit", "flush", "prepare"])
def test_an_end_that_is_interrupted_and_asked_for_again_is_there_once(
    interrupting: Any, memory: Place, call: str
) -> None:
    ns, store = interrupting
    for number in itertools.count():
        txn = begun(ns, number)
        going_on = store.interrupted(getattr(txn, call), number + 1)
        getattr(txn, call)()
        if call == "prepare":
            ns.complete(str(txn.id), commit=True)
        else:
            txn.commit()
        if not going_on:
            break
    assert number > 1, "requests"
    assert read(memory.open(mode="r")) == list(range(number + 1))
    assert_whole(ns, memory)


def test_a_batch_that_is_interrupted_is_repeated_and_there_once(interrupting: Any, memory: Place) -> None:
    ns, store = interrupting
    producer = ns.producer("loader")

    def produce(number: int) -> Any:
        return producer.produce("orders", rows(number), partition=0, sequence=number)

    for number in itertools.count():
        going_on = store.interrupted(partial(produce, number), number + 1)
        assert produce(number).offsets == {("orders", 0): range(number, number + 1)}
        if not going_on:
            break
    assert number > 1, "requests"
    assert read(memory.open(mode="r")) == list(range(number + 1))
    assert_whole(ns, memory)


def test_an_abort_behind_an_interrupted_commit_gives_the_outcome_that_the_log_has(
    interrupting: Any, memory: Place
) -> None:
    ns, store = interrupting
    ends = set()
    for number in itertools.count():
        txn = begun(ns, number)
        going_on = store.interrupted(txn.commit, number + 1)
        with contextlib.suppress(TxnLogError):
            txn.abort()
        ends.add(txn.state)
        assert (number in read(memory.open(mode="r"))) == (txn.state == "COMMITTED"), number
        if not going_on:
            break
    assert "COMMITTED" in ends
    assert_whole(ns, memory)


def test_the_commit_of_another_thread_survives_the_interrupt_of_the_call_that_shares_its_entry(
    interrupting: Any, memory: Place
) -> None:
    ns, store = interrupting
    for number in range(0, 40, 2):
        other = begun(ns, number + 1)
        futures: list[Any] = []

        def both(number: int = number, other: Any = other, futures: list[Any] = futures) -> None:
            futures.append(other.commit_async())
            ns.produce("orders", rows(number))

        going_on = store.interrupted(both, number // 2 + 1)
        if futures:
            assert futures[0].result(20).offsets
        if not going_on:
            break
    assert number > 2, "requests"
    assert_whole(ns, memory)


@pytest.mark.clause("P-209", "P-215")
@pytest.mark.parametrize("kind", ["exclusive", "failover", "shared"])
def test_a_receive_that_is_interrupted_has_received_nothing(memory: Place, kind: str) -> None:
    for request in itertools.count(1):
        store = InterruptingStore(memory.store())
        ns = memory.orders(partitions=2, namespace=f"{kind}{request}", store=store)
        for partition in (0, 1):
            ns.produce("orders", rows(partition, partition + 2), partition=partition)
        consumer = ns.consumer("orders", "billing", type=kind)
        batches = [take(consumer, 1)]
        going_on = store.interrupted(partial(take, consumer, 2), request)
        if not going_on:
            break
        while len(batch := take(consumer, 2)):
            batches.append(batch)
        found = sorted(number for batch in batches for number in ids(batch.table))
        assert found == [0, 1, 2, 3], request
        assert not any(count for batch in batches for count in batch.redelivery_counts), request
    assert request > 1, "requests"


@pytest.mark.clause("P-208", "P-209")
@pytest.mark.parametrize("kind", ["exclusive", "shared"])
@pytest.mark.parametrize("in_transaction", [False, True])
def test_an_acknowledgement_that_is_interrupted_is_repeated_and_there_once(
    memory: Place, kind: str, in_transaction: bool
) -> None:
    for request in itertools.count(1):
        store = InterruptingStore(memory.store())
        ns = memory.orders(1, 2, 3, namespace=f"{kind}{in_transaction}{request}".lower(), store=store)
        consumer = ns.consumer("orders", "billing", type=kind)
        messages = take(consumer, 2)
        txn = ns.begin()

        def acknowledge(consumer: Any = consumer, txn: Any = txn, messages: Any = messages) -> None:
            if in_transaction:
                txn.acknowledge(messages)
                txn.commit()
            else:
                consumer.acknowledge(messages)

        going_on = store.interrupted(acknowledge, request)
        if going_on and txn.state == "OPEN":
            with contextlib.suppress(InvalidTransactionState, OutcomeUnknown):
                acknowledge()
        txn.commit() if in_transaction else None
        assert ids(take(ns.consumer("orders", "billing", type=kind)).table) == [3], request
        if not going_on:
            break
    assert request > 1, "requests"


def test_a_close_that_is_interrupted_and_called_again_finishes_what_was_under_way(
    interrupting: Any, memory: Place
) -> None:
    ns, store = interrupting
    txn = begun(ns, 1)
    future = txn.commit_async()
    store.interrupted(ns.close, 1)
    ns.close()
    assert future.result(20).offsets
    assert read(memory.open(mode="r")) == [1]


def test_a_handle_that_was_closed_while_its_call_was_interrupted_has_no_thread_left_at_work(
    interrupting: Any,
) -> None:
    ns, store = interrupting
    assert store.interrupted(lambda: ns.produce("orders", rows(1)), 1)
    ns.close()
    wait_for(lambda: not engine_of_process().keeps_process())  # its last step may come behind the close


def test_a_call_that_is_interrupted_while_it_waits_for_its_entry_is_withdrawn(interrupting: Any, memory: Place) -> None:
    ns, store = interrupting
    first = threading.Thread(target=lambda: ns.produce("orders", rows(1)), daemon=True)
    create, release = store.create, threading.Event()

    def held(key: str, data: bytes) -> Created:
        release.wait(20)
        return create(key, data)

    def interrupt() -> None:
        wait_for(lambda: waiting(ns) == 1)
        interrupt_main_thread()

    store.create = held
    first.start()
    wait_for(lambda: ns._connection.appender._is_appending and not waiting(ns))
    threading.Thread(target=interrupt, daemon=True).start()
    with pytest.raises(KeyboardInterrupt):
        ns.produce("orders", rows(2))
    release.set()
    first.join(20)
    ns.produce("orders", rows(3))
    assert read(memory.open(mode="r")) == [1, 3]


@pytest.mark.real_runtime
@pytest.mark.parametrize("call", ["commit", "flush", "prepare"])
def test_a_commit_that_is_interrupted_before_it_is_sent_was_never_called(memory: Place, call: str) -> None:
    """It waits for others to share its entry: nobody takes it then, and the transaction goes on as if before."""
    memory.open().create_topic("orders", SCHEMA)
    ns = memory.open(min_commit_interval_ms=500)
    ns.produce("orders", rows(0))
    txn = begun(ns, 1)

    def interrupt() -> None:
        wait_for(lambda: waiting(ns) == 1)
        interrupt_main_thread()

    threading.Thread(target=interrupt, daemon=True).start()
    with pytest.raises(KeyboardInterrupt):
        getattr(txn, call)()
    wait_for(lambda: not txn._machine._turn._is_taken)
    assert not txn._machine.life.logged
    txn.produce("orders", rows(2))
    txn.commit()
    assert read(memory.open(mode="r")) == [0, 1, 2]


def test_a_call_that_comes_while_the_last_entry_ends_is_appended_as_well(interrupting: Any) -> None:
    """Between the look that finds the queue empty and the end of the append."""
    ns, _ = interrupting
    own = ns._connection.appender
    replies = ns._connection.runtime.inbox()

    class Late(Admission):
        found_empty = 0

        def __len__(self) -> int:
            left = super().__len__()
            self.found_empty += not left
            if not left and self.found_empty == 2:  # the look behind the entry
                asked = Asked(effect(lambda _draft, _at: []), replies.put)
                self.add(partial(own._queue.add, asked))  # as another thread does
            return left

    own._admission = Late(own._wake, lambda: own._is_appending)
    ns.produce("orders", rows(1))
    reply = replies.take(5_000)
    assert reply is not None
    reply.get()


def test_a_handle_whose_state_is_incomplete_refuses_to_append(
    interrupting: Any, memory: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What an error in memory left of an entry is nothing to decide with. The log is not affected."""
    ns, _ = interrupting
    merge, tables = DraftTable.merge, itertools.count(1)

    def fails(table: Any) -> None:
        if next(tables) == 3:
            raise MemoryError
        merge(table)

    with monkeypatch.context() as patched:
        patched.setattr(DraftTable, "merge", fails)
        with pytest.raises(OutcomeUnknown):
            ns.produce("orders", rows(1))
    for _ in range(2):
        with raises(InvalidTransactionState, match="incomplete"):
            ns.produce("orders", rows(2))
    assert read(memory.open(mode="r")) == [1]


def test_who_is_behind_a_call_that_was_interrupted_before_the_engine_heard_of_it_is_not_forgotten(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The engine need not hear of what is behind another command, but only where it has heard of that."""
    ns = place.orders(create=True)
    engine, behind = engine_of_process(), list[Any]()
    step = engine.step

    def interrupted(function: Callable[[], None]) -> None:
        monkeypatch.setattr(engine, "step", step)
        other = threading.Thread(target=lambda: behind.append(commit_in_background(ns)))
        other.start()
        other.join(20)
        raise KeyboardInterrupt

    monkeypatch.setattr(engine, "step", interrupted)
    with pytest.raises(KeyboardInterrupt):
        ns.produce("orders", rows(0))
    (future,) = behind
    assert future.result(20).offsets.keys() == {("orders", 0)}
    assert read(ns, "orders") in ([1], [0, 1]), "what is interrupted may take effect"


def commit_in_background(ns: Any) -> Any:
    txn = begun(ns, 1)
    return txn.commit_async()


@pytest.mark.parametrize("call", ["commit", "block", "produce", "produce with a sequence", "transact"])
def test_what_interrupts_a_call_says_that_it_may_take_effect_and_how_to_ask(
    interrupting: Any, memory: Place, call: str
) -> None:
    """Else whoever handles it takes the work for undone, and does it again."""
    ns, store = interrupting
    txns: list[Any] = []
    caught: list[BaseException] = []

    def work(txn: Any) -> None:
        txns.append(txn)
        txn.produce("orders", rows(1))

    def block(end: Callable[[Any], object] = lambda _txn: None) -> None:
        with ns.begin() as txn:
            work(txn)
            end(txn)

    loader = ns.producer("loader") if "sequence" in call else None
    calls: dict[str, Callable[[], Any]] = {
        "commit": lambda: block(lambda txn: txn.commit()),
        "block": block,
        "produce": lambda: ns.produce("orders", rows(1)),
        "produce with a sequence": lambda: loader.produce("orders", rows(1), 0, sequence=0),
        "transact": lambda: ns.transact(work),
    }

    def noting() -> None:
        try:
            calls[call]()
        except KeyboardInterrupt as interrupt:
            caught.append(interrupt)
            raise

    assert store.interrupted(noting, 1)
    (note,) = caught[0].__notes__
    assert "may take effect all the same" in note
    again = "same: make the same call again, with the same sequence, which leaves out what is there; or ns.transaction("
    assert (again in note) == (loader is not None)
    (txn_id,) = re.findall(r"\b[0-9a-f]{32}\b", note)
    assert ns.abort(txn_id).state == "COMMITTED"
    assert loader is None or calls[call]().duplicate
    assert read(memory.open(mode="r")) == [1]
    assert [(str(txn.id), txn.state) for txn in txns] == ([] if "produce" in call else [(txn_id, "COMMITTED")])


def test_what_interrupts_the_reservation_of_a_txn_id_says_nothing_of_an_effect(memory: Place) -> None:
    """REPORTED: of a begin() that was interrupted, that it may take effect."""
    memory.orders()
    ns, store = memory.wrapped(InterruptingStore)
    caught: list[BaseException] = []

    def noting() -> None:
        try:
            ns.begin()
        except KeyboardInterrupt as interrupt:
            caught.append(interrupt)
            raise

    assert store.interrupted(noting, 1)
    assert not getattr(caught[0], "__notes__", ())
    with ns.begin() as txn:
        txn.produce("orders", rows(1))
    assert read(ns, "orders") == [1]


def test_what_the_engine_replies_is_no_interrupt(memory: Place) -> None:
    """A mistake in a command is its answer: the call was not cut short, and nothing of it takes effect later."""

    def mistaken(_draft: Any, _at: Any) -> Any:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError) as raised:
        memory.open()._connection.appender.call(effect(mistaken))
    (note,) = raised.value.__notes__
    assert "interrupted" not in note
    assert "nothing of it takes effect" in note
