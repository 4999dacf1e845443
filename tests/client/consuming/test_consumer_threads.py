"""One consumer in several threads: receiving, seeking, closing and Ctrl-C side by side."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from tests.client.support import SCHEMA, FaultyStore, Place, cursor, ids, received, rows, run_threads, wait_for
from txnlog.client import acknowledgement_conflicts
from txnlog.client.delivery import TopicDelivery
from txnlog.client.ledger import Ledger
from txnlog.errors import ConsumerFenced, InvalidTransactionState, StoreError, TransactionConflict
from txnlog.testing import ManualClock

KINDS = ["exclusive", "failover", "shared"]


def begin_beside(call: Callable[[], object], seconds: float = 0.5) -> threading.Thread:
    """Begin a call in another thread, which may have to wait for this one."""
    thread = threading.Thread(target=call, daemon=True)
    thread.start()
    thread.join(seconds)
    return thread


@pytest.mark.parametrize("kind", ["exclusive", "failover", "shared"])
@pytest.mark.parametrize("acknowledge", [True, False])
def test_threads_that_share_a_consumer_get_each_message_once(memory: Place, kind: str, acknowledge: bool) -> None:
    ns = memory.orders(*range(1_200), partitions=3)
    ns.create_subscription("orders", "billing", type=kind)
    consumer = ns.consumer("orders", "billing")
    found: list[int] = []

    def work() -> None:
        while len(messages := consumer.receive(max_messages=25, timeout_ms=0)):
            found.extend(ids(messages.table))
            if acknowledge:
                consumer.acknowledge(messages)

    assert run_threads(*[work] * 4, seconds=60) == [None] * 4
    assert sorted(found) == list(range(1_200))


# --- acknowledging ----------------------------------------------------------------------------------------------------


@pytest.mark.clause("P-80", "P-215")
@pytest.mark.parametrize("cumulative", [False, True])
@pytest.mark.parametrize(
    ("kind", "look"), [(acknowledgement_conflicts, "check_claim"), (TopicDelivery, "check_delivered")]
)
def test_between_the_look_at_others_and_ones_own_hold_nobody_takes_or_releases(
    sales: Any, monkeypatch: pytest.MonkeyPatch, kind: object, look: str, *, cumulative: bool
) -> None:
    sales.produce("orders", rows(*range(3)))
    messages = sales.consumer("orders", "billing").receive(timeout_ms=0)
    first, second = sales.begin(), sales.begin()
    answers: list[object] = []
    beside: list[threading.Thread] = []
    original = getattr(kind, look)

    def take_and_give_back() -> None:
        answers.extend(run_threads(partial(second.acknowledge, messages[:2])))
        second.abort()

    def looked(*arguments: Any) -> None:
        original(*arguments)
        monkeypatch.undo()
        beside.append(begin_beside(take_and_give_back))

    monkeypatch.setattr(kind, look, looked)
    first.acknowledge(messages, cumulative=cumulative)
    beside[0].join(60)
    assert [type(answer) for answer in answers] == [TransactionConflict]
    first.commit()
    assert cursor(sales).cursor == 3


@pytest.mark.clause("P-209", "P-215")
def test_no_cumulative_one_takes_what_an_abort_releases(sales: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """What a transaction claims no more is to be delivered again: there is no moment in between."""
    sales.produce("orders", rows(*range(3)))
    messages = sales.consumer("orders", "billing").receive(timeout_ms=0)
    first, second = sales.begin(), sales.begin()
    first.acknowledge(messages[:2])
    first.flush()
    answers: list[list[object]] = []
    abort = Ledger.abort
    meanwhile = threading.Thread(
        target=lambda: answers.append(run_threads(partial(second.acknowledge, messages[2], cumulative=True)))
    )

    def beside(*arguments: Any) -> None:
        monkeypatch.undo()
        meanwhile.start()
        time.sleep(0.05)
        abort(*arguments)

    monkeypatch.setattr(Ledger, "abort", beside)
    first.abort()
    meanwhile.join(30)
    assert [type(answer) for answer in answers[0]] == [TransactionConflict]
    assert received(sales.consumer("orders", "billing")) == [0, 1, 2]


# --- while the entry of a plain acknowledgement is under way ----------------------------------------------------------


def ten_behind_faults(memory: Place) -> tuple[Any, Any, FaultyStore]:
    ns, store = memory.faulty_orders(*range(10))
    return ns, ns.consumer("orders", "billing"), store


@pytest.mark.clause("P-208")
@pytest.mark.parametrize("cumulative", [False, True])
def test_what_it_takes_is_claimed_and_nobody_receives_it(memory: Place, cumulative: bool) -> None:
    ns, consumer, store = ten_behind_faults(memory)
    messages = consumer.receive(4, timeout_ms=0)
    seen: list[object] = []

    def meanwhile() -> list[int]:
        with pytest.raises(TransactionConflict, match="pending"):
            ns.begin().acknowledge(messages[1])
        consumer.negative_acknowledge(messages[:2])
        return received(consumer)

    store.script.append(lambda: seen.extend(run_threads(meanwhile)))
    consumer.acknowledge(messages, cumulative=cumulative)
    assert seen == [[4, 5, 6, 7, 8, 9]]
    assert cursor(ns).cursor == 4


@pytest.mark.clause("P-208")
@pytest.mark.parametrize("cumulative", [False, True])
def test_one_that_is_refused_leaves_its_messages_delivered(memory: Place, cumulative: bool) -> None:
    """What was released meanwhile is delivered again; the rest is still in the hands of its user."""
    ns, consumer, store = ten_behind_faults(memory)
    messages = consumer.receive(4, timeout_ms=0)
    store.script.extend([lambda: run_threads(partial(consumer.negative_acknowledge, messages[1])), "refused"])
    with pytest.raises(StoreError):
        consumer.acknowledge(messages, cumulative=cumulative)
    assert received(consumer, 2) == [1, 4]
    consumer.acknowledge(messages)
    assert cursor(ns).cursor == 4


@pytest.mark.clause("P-208")
@pytest.mark.parametrize("cumulative", [False, True])
def test_two_at_once_are_in_nobodys_way(memory: Place, cumulative: bool) -> None:
    ns, consumer, store = ten_behind_faults(memory)
    messages = consumer.receive(6, timeout_ms=0)
    answers: list[object] = []
    beside: list[threading.Thread] = []

    def second() -> None:
        answers.extend(run_threads(partial(consumer.acknowledge, messages, cumulative=cumulative)))

    store.script.append(lambda: beside.append(begin_beside(second)))
    consumer.acknowledge(messages[:4], cumulative=cumulative)
    beside[0].join(60)
    assert answers == [None]
    assert cursor(ns).cursor == 6


# --- seeking ----------------------------------------------------------------------------------------------------------


def seek_while_reading(consumer: Any) -> Callable[[], None]:
    """The next receive has chosen its messages when another thread seeks; what waits for that seek to be over."""
    item = consumer._subscribed[0]
    read, begun = item._read, []

    def while_reading(wanted: Any) -> Any:
        item._read = read
        begun.append(begin_beside(partial(consumer.seek, "earliest")))
        return read(wanted)

    item._read = while_reading
    return lambda: begun[0].join(20)


@pytest.mark.clause("P-75")
@pytest.mark.parametrize("kind", ["exclusive", "shared"])
def test_what_was_chosen_before_a_seek_cannot_be_acknowledged_after_it(memory: Place, kind: str) -> None:
    ns = memory.orders(*range(10))
    ns.create_subscription("orders", "billing", type=kind)
    consumer = ns.consumer("orders", "billing")
    consumer.acknowledge(consumer.receive(5, timeout_ms=0))
    sought = seek_while_reading(consumer)
    messages = consumer.receive(5, timeout_ms=0)
    assert ids(messages.table) == [5, 6, 7, 8, 9]
    sought()
    with pytest.raises(ConsumerFenced):
        consumer.acknowledge(messages)
    assert received(consumer) == list(range(10))


@pytest.mark.clause("P-215")
def test_a_cumulative_acknowledgement_after_a_seek_takes_what_was_delivered_since(memory: Place) -> None:
    """Who drops what was received before the seek, as everybody must, gets all of it again."""
    ns = memory.orders(*range(15))
    consumer = ns.consumer("orders", "billing")
    consumer.acknowledge(consumer.receive(5, timeout_ms=0))
    sought = seek_while_reading(consumer)
    consumer.receive(5, timeout_ms=0)
    sought()
    seen: list[int] = []
    while len(messages := consumer.receive(5, timeout_ms=0)):
        seen += ids(messages.table)
        consumer.acknowledge(messages, cumulative=True)
    assert seen == list(range(15))
    assert ns.subscription("orders", "billing").cursors[0].cursor == 15


def test_threads_of_a_consumer_are_not_fenced_by_a_seek_of_their_own(memory: Place) -> None:
    """Between the entry of the seek and its note in the consumer another thread looks."""
    ns = memory.orders(*range(5))
    consumer = ns.consumer("orders", "billing")
    item: Any = consumer._subscribed[0]
    sought, answers = item.sought, []

    async def late(epoch: int) -> None:
        other = partial(begin_beside, lambda: answers.extend(run_threads(partial(received, consumer))))
        await ns._connection.runtime.job(other)
        await sought(epoch)

    item.sought = late
    consumer.seek("earliest")
    wait_for(lambda: bool(answers))
    assert answers == [[0, 1, 2, 3, 4]]


# --- closing ----------------------------------------------------------------------------------------------------------


def close_at_the_first_pause(ns: Any, consumer: Any, then: Callable[[], object]) -> None:
    """Another thread closes the consumer while this one waits in receive()."""
    runtime, pause = ns._connection.runtime, ns._connection.runtime.pause

    def close() -> None:
        consumer.close()
        then()

    def first(milliseconds: float) -> Any:
        runtime.pause = pause
        pause(milliseconds)
        return runtime.job(close)

    runtime.pause = first


@pytest.mark.parametrize("kind", KINDS)
def test_a_consumer_that_is_closed_during_a_wait_delivers_nothing(memory: Place, kind: str) -> None:
    ns, other = memory.open(), memory.open()
    ns.create_topic("orders", SCHEMA)
    ns.create_subscription("orders", "billing", type=kind, lease_ms=9_000)
    consumer = ns.consumer("orders", "billing")
    close_at_the_first_pause(ns, consumer, lambda: other.produce("orders", rows(*range(5))))
    with pytest.raises(InvalidTransactionState, match="closed"):
        consumer.receive(timeout_ms=60_000)
    other._connection.follower.refresh()
    assert other.subscription("orders", "billing").leased == 0


def test_who_waits_for_a_consumer_that_is_closed_during_a_wait_takes_over_at_once(memory: Place) -> None:
    ns, other = memory.open(), memory.open()
    ns.create_topic("orders", SCHEMA)
    ns.create_subscription("orders", "billing", type="failover", lease_ms=60, allow_short_lease=True)
    consumer = ns.consumer("orders", "billing", name="one")
    ns._connection.runtime.sleep_ms(100)
    close_at_the_first_pause(ns, consumer, lambda: ns._connection.runtime.sleep_ms(30))
    with pytest.raises(InvalidTransactionState, match="closed"):
        consumer.receive(timeout_ms=200)
    other.produce("orders", rows(0, 1))
    assert received(other.consumer("orders", "billing", name="two")) == [0, 1]


def test_who_waits_and_is_closed_meanwhile_takes_nothing_over(memory: Place) -> None:
    ns, other = memory.open(), memory.open()
    ns.create_topic("orders", SCHEMA)
    ns.create_subscription("orders", "billing", type="failover", lease_ms=60, allow_short_lease=True)
    active = other.consumer("orders", "billing", name="one")
    waiting = ns.consumer("orders", "billing", name="two")
    close_at_the_first_pause(ns, waiting, active.close)
    with pytest.raises(InvalidTransactionState, match="closed"):
        waiting.receive(timeout_ms=500)
    other._connection.follower.refresh()
    assert other.subscription("orders", "billing").consumer == "one"


# --- Ctrl-C -----------------------------------------------------------------------------------------------------------


class InterruptedInbox:
    """Behind the reply another thread receives, and then Ctrl-C comes."""

    def __init__(self, inner: Any, between: Callable[[], object]) -> None:
        self.put, self.is_empty = inner.put, inner.is_empty
        self.inner, self.between = inner, between

    def take(self, timeout_ms: float | None) -> Any:
        self.inner.take(timeout_ms)
        self.between()
        raise KeyboardInterrupt


def test_what_nobody_received_is_no_redelivery_and_no_dead_letter(
    memory: Place, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was counted as delivered when Ctrl-C came."""
    ns = memory.orders(*range(6), clock=clock)
    ns.create_subscription(
        "orders", "billing", type="shared", lease_ms=9_000, max_redeliveries=0, dead_letter_topic="dead"
    )
    consumer: Any = ns.consumer("orders", "billing")
    others: list[int] = []
    host = type(ns._connection.runtime.engine._host)
    inbox = host.inbox

    def between() -> None:
        run_threads(lambda: others.extend(received(consumer, 3)))

    def interrupted(own: Any) -> Any:
        if threading.current_thread() is not threading.main_thread():
            return inbox(own)
        monkeypatch.undo()
        return InterruptedInbox(inbox(own), between)

    monkeypatch.setattr(host, "inbox", interrupted)
    with pytest.raises(KeyboardInterrupt):
        consumer.receive(3, timeout_ms=0)
    assert others == [3, 4, 5]
    assert received(consumer, 3) == [0, 1, 2]
    assert ns.snapshot().read("dead").num_rows == 0


def test_what_was_withdrawn_is_not_taken_from_who_receives_it_then_where_the_attempt_fails(
    memory: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    """DOUBLE: Ctrl-C in ``receive()`` of an attempt, whose function catches it, while another thread goes on."""
    ns = memory.orders(*range(3))
    consumer: Any = ns.consumer("orders", "billing")
    host = type(ns._connection.runtime.engine._host)
    inbox, others = host.inbox, list[int]()

    def interrupted(own: Any) -> Any:
        if threading.current_thread() is not threading.main_thread():
            return inbox(own)
        monkeypatch.undo()
        return InterruptedInbox(inbox(own), lambda: None)

    def work(_txn: Any) -> None:
        monkeypatch.setattr(host, "inbox", interrupted)
        with pytest.raises(KeyboardInterrupt):
            consumer.receive(3, timeout_ms=0)
        run_threads(lambda: others.extend(received(consumer, 3)))
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        ns.transact(work)
    assert others == [0, 1, 2]
    assert received(consumer, 3) == [], "the other thread has them"
