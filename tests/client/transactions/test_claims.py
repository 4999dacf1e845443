"""What the open transactions of a client claim: its other calls respect it at once, and for as long as it is so."""

from __future__ import annotations

from typing import Any

import pytest

from tests.client.support import SCHEMA, Place, cursor, holding, raises, received, rows
from txnlog.api.writing import begin_transaction
from txnlog.client import transaction_base
from txnlog.errors import StoreError, TransactionConflict
from txnlog.testing import ManualClock

HOUR_MS = 3_600_000


@pytest.fixture
def flushed(ten: Any) -> tuple[Any, Any, Any]:
    """A consumer, its ten messages, and a transaction that acknowledged the first, flushed, and took the second."""
    consumer = ten.consumer("orders", "billing")
    messages = consumer.receive(timeout_ms=0)
    txn = holding(ten, messages[0], flush=True)
    txn.acknowledge(messages[1])
    return consumer, messages, txn


@pytest.mark.clause("P-80", "P-208")
@pytest.mark.parametrize("number", [0, 1, slice(0, 3)], ids=["flushed", "after it", "both and more"])
@pytest.mark.parametrize("who", ["itself", "another", "nobody"])
def test_what_comes_after_a_flush_is_held_as_well(
    ten: Any, flushed: tuple[Any, Any, Any], who: str, number: int | slice
) -> None:
    consumer, messages, txn = flushed
    call = {"itself": txn.acknowledge, "another": ten.begin().acknowledge, "nobody": consumer.acknowledge}[who]
    with raises(
        TransactionConflict, match="this very transaction" if who == "itself" else "pending in the transaction 0"
    ):
        call(messages[number])


@pytest.mark.clause("P-81", "P-208", "P-215")
def test_a_cumulative_one_of_another_partition_than_was_flushed_meets_it(ns: Any) -> None:
    for partition in (0, 1):
        ns.produce("orders", rows(*range(10 * partition, 10 * partition + 3)), partition=partition)
    consumer = ns.consumer("orders", "billing")
    messages = consumer.receive(timeout_ms=0)
    first = holding(ns, messages[0], flush=True)
    first.acknowledge(messages[3])
    with raises(TransactionConflict, match="pending"):
        consumer.acknowledge(messages[5], cumulative=True)
    first.abort()
    assert received(consumer) == [0, 10]


@pytest.mark.clause("P-209")
@pytest.mark.parametrize("how", ["admin", "fenced"])
def test_an_end_that_a_checkpoint_took_out_of_memory_is_an_end(ten: Any, place: Place, how: str) -> None:
    consumer, producer = ten.consumer("orders", "billing"), ten.producer("loader")
    messages = consumer.receive(4, timeout_ms=0)
    txn = holding(producer, messages, flush=True)
    if how == "admin":
        place.open().abort(txn.id, by="ada", why="hanging")
    else:
        place.open().producer("loader")
    ten._connection.follower.refresh()
    ten.checkpoint()
    with ten.begin() as again:
        again.acknowledge(messages[0])
    assert received(consumer, 3) == [1, 2, 3]


@pytest.mark.clause("P-209")
def test_so_is_that_of_one_whose_time_counts_from_the_log(memory: Place, clock: ManualClock) -> None:
    """As that of Spark's transactions does: when it takes messages it has no deadline yet."""
    ns = memory.orders(*range(10), clock=clock)
    consumer = ns.consumer("orders", "billing")
    txn = begin_transaction(ns._connection, None, None, timed_from_log=True)
    txn.acknowledge(consumer.receive(4, timeout_ms=0))
    txn.flush()
    clock.advance(HOUR_MS)
    ns.produce("orders", rows(10))
    assert ns.transaction(txn.id).state == "ABORTED"
    ns.checkpoint()
    assert received(consumer, 4) == [0, 1, 2, 3]


@pytest.mark.clause("P-209")
def test_a_late_abort_leaves_what_was_delivered_again_meanwhile(ten: Any, place: Place) -> None:
    """The end of a transaction is heard of by its consumer first, and by its owner when the messages are out again."""
    consumer = ten.consumer("orders", "billing")
    txn = holding(ten, consumer.receive(4, timeout_ms=0), flush=True)
    place.open().abort(txn.id, by="ada", why="hanging")
    again = consumer.receive(4, timeout_ms=0)
    txn.abort()
    assert received(consumer) == [4, 5, 6, 7, 8, 9], "the first four are in the hands of the user"
    consumer.acknowledge(again, cumulative=True)
    assert cursor(ten).cursor == 4


@pytest.mark.clause("P-208")
@pytest.mark.parametrize("taker", [0, 1])
@pytest.mark.parametrize("owner", [0, 1])
def test_what_was_abandoned_is_ended_for_who_waits_at_either_handle(
    ten: Any, place: Place, monkeypatch: pytest.MonkeyPatch, owner: int, taker: int
) -> None:
    """The abort of a transaction did not reach the log; the messages are of a consumer of the first handle."""

    async def lose(*_: object) -> None:
        raise StoreError("away")

    handles = [ten, place.open()]
    messages = ten.consumer("orders", "billing").receive(4, timeout_ms=0)
    first = handles[owner].begin()
    first.acknowledge(messages)
    first.flush()
    with monkeypatch.context() as store:
        store.setattr(transaction_base, "append_end", lose)
        first._discard()
    with handles[taker].begin() as txn:
        txn.acknowledge(messages)
    assert cursor(ten).cursor == 4


@pytest.mark.clause("P-119", "P-205", "P-208")
@pytest.mark.parametrize("plain", [False, True])
@pytest.mark.parametrize("owner", [0, 1, 2])
def test_what_is_overdue_is_ended_for_who_waits_whichever_handle_has_it(
    memory: Place, clock: ManualClock, owner: int, plain: bool
) -> None:
    """The messages are of a consumer of the second handle, the first one takes them."""
    handles = [memory.open(clock=clock) for _ in range(3)]
    handles[0].create_topic("orders", SCHEMA)
    handles[0].produce("orders", rows(*range(4)))
    other = handles[0].consumer("orders", "billing")
    messages = handles[1].consumer("orders", "billing").receive(timeout_ms=0)
    first = handles[owner].begin(timeout_ms=1_000)
    first.acknowledge(messages)
    first.flush()
    clock.advance(60_000)
    if plain:
        other.acknowledge(messages)
    else:
        with handles[0].begin() as txn:
            txn.acknowledge(messages)
    assert cursor(handles[0]).cursor == 4


@pytest.mark.clause("P-80")
def test_what_is_taken_while_two_handles_are_looked_at_is_fine_outside_of_a_transaction(
    memory: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    ns, other = memory.open(), memory.open()
    ns.create_topic("orders", SCHEMA)
    ns.produce("orders", rows(*range(4)))
    mine, theirs = [handle.consumer("orders", "billing", type="shared") for handle in (ns, other)]
    messages = theirs.receive(timeout_ms=0)
    theirs.acknowledge(messages[0])
    refresh = other._connection.follower.refresh

    def meanwhile() -> int:
        monkeypatch.undo()
        theirs.acknowledge(messages[1])
        return refresh()

    monkeypatch.setattr(other._connection.follower, "refresh", meanwhile)
    mine.acknowledge(messages[:2])
    assert cursor(ns).cursor == 2
