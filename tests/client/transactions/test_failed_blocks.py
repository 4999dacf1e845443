"""Blocks that fail: what becomes of their transactions and of what these took, and what their errors advise."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable
from typing import Any

import pytest

from tests.client.support import (
    SCHEMA,
    FaultyStore,
    Place,
    cursor,
    ids,
    raises,
    read,
    received,
    rows,
    take,
)
from txnlog.errors import (
    ConsumerBusy,
    Durable,
    InvalidTransactionState,
    LimitExceeded,
    OutcomeUnknown,
    RetriableError,
    StoreError,
    TxnLogError,
)


def _no_room(store: FaultyStore) -> None:
    store.script.append("refused")


def _no_room_for_an_abort_either(store: FaultyStore) -> None:
    store.forever = "refused"


def _no_room_for_rows(store: FaultyStore) -> None:
    store.puts.append("refused")


def _race_lost_for_ever(store: FaultyStore) -> None:
    def lost() -> None:
        raise RetriableError("somebody else was always faster")

    store.script.append(lost)


def _too_much(store: FaultyStore) -> None:
    def refuse() -> None:
        raise LimitExceeded("an entry that is too big")

    store.script.append(refuse)


@pytest.mark.parametrize("kind", ["exclusive", "shared"])
@pytest.mark.parametrize("flushed", [False, True])
@pytest.mark.parametrize(
    ("fail", "error"),
    [
        (_no_room, StoreError),
        (_no_room_for_an_abort_either, StoreError),
        (_no_room_for_rows, StoreError),
        (_race_lost_for_ever, RetriableError),
        (_too_much, LimitExceeded),
    ],
)
def test_a_block_whose_commit_wrote_nothing_aborts_and_gives_its_messages_back(
    memory: Place, kind: str, flushed: bool, fail: Callable[[FaultyStore], None], error: type[TxnLogError]
) -> None:
    """Nobody calls commit() behind a block: what stayed open would withhold its messages until its timeout."""
    ns, store = memory.faulty()
    for topic in ("orders", "audit"):
        ns.create_topic(topic, SCHEMA)
    ns.produce("orders", rows(*range(3)))
    ns.create_subscription("orders", "billing", type=kind)
    consumer = ns.consumer("orders", "billing")
    messages = take(consumer, 2)
    with raises(error), ns.begin() as txn:
        txn.acknowledge(messages)
        if flushed:
            txn.flush()
        txn.produce("audit", [{"id": number, "name": "n" * 200_000} for number in range(3)])
        fail(store)
    store.heal()
    assert txn.state == "ABORTED"
    assert received(consumer) == [0, 1, 2]
    assert [item.state for item in ns.transactions(state="OPEN")] == []
    assert not ns._connection.session.unlogged_aborts, "nothing is remembered that has its end"
    with raises(InvalidTransactionState, match="was aborted"):
        txn.commit()
    assert read(ns, "audit") == []


_ANEW = "begin the block again: its transaction was aborted"


@pytest.mark.parametrize("calls", ["commit", "flush", "another call"])
@pytest.mark.parametrize("flushed", [False, True])
def test_a_race_lost_in_a_block_is_run_again_from_the_blocks_beginning(
    memory: Place, calls: str, flushed: bool
) -> None:
    """Of a transaction that its block has aborted the same call would only be refused."""
    ns, store = memory.faulty_orders()
    with raises(RetriableError) as lost, ns.begin() as txn:
        txn.produce("orders", rows(1))
        if flushed:
            txn.flush()
        txn.produce("orders", rows(2))
        _race_lost_for_ever(store)
        if calls == "flush":
            txn.flush()
        elif calls == "another call":
            ns.create_topic("audit", SCHEMA)
    assert lost.value.advice == _ANEW
    assert (txn.state, read(ns)) == ("ABORTED", [])


@pytest.mark.parametrize("abort", ["ok", "dropped"])
def test_the_outcome_of_a_flush_is_no_longer_unknown_behind_its_block(memory: Place, abort: str) -> None:
    ns, store = memory.faulty_orders()
    with raises(OutcomeUnknown, durable=Durable.MAYBE) as lost, ns.begin() as txn:
        txn.produce("orders", rows(1))
        store.forever = "dropped"
        try:
            txn.flush()
        finally:
            store.forever = None if abort == "ok" else abort
    assert (lost.value.advice, txn.state) == (_ANEW, "ABORTED")


def _commit_in_doubt(_: Any, txn: Any, store: FaultyStore) -> None:
    txn.produce("orders", rows(1))
    store.forever = "dropped"


def _committed_before(_: Any, txn: Any, __: FaultyStore) -> None:
    txn.commit()
    raise RetriableError("what came behind the commit")


def _another_call_in_doubt(ns: Any, _: Any, store: FaultyStore) -> None:
    store.forever = "dropped"
    ns.produce("orders", rows(1))


def _advice_of_its_own(_: Any, __: Any, ___: FaultyStore) -> None:
    raise ConsumerBusy("held by another")


@pytest.mark.parametrize(
    ("work", "advice"),
    [
        (_commit_in_doubt, r"call commit\(\) again, or ns.abort\(txn_id\)"),
        (_committed_before, "try the same call again"),
        (_another_call_in_doubt, r"before you looked: ns.transaction\(txn_id\), or ns.abort\(txn_id\)"),
        (_advice_of_its_own, "wait for the lease to end"),
    ],
)
def test_what_a_block_did_not_abort_or_not_alone_is_advised_as_anywhere(
    memory: Place, work: Callable[..., None], advice: str
) -> None:
    ns, store = memory.faulty_orders()
    with pytest.raises(RetriableError) as caught, ns.begin() as txn:
        work(ns, txn, store)
    assert re.search(advice, caught.value.advice)


@pytest.mark.parametrize("fate", ["refused", "dropped"])
def test_an_abort_that_failed_in_a_block_reaches_the_log_when_it_is_called_again(memory: Place, fate: str) -> None:
    ns, store = memory.faulty_orders(1, 2)
    consumer = ns.consumer("orders", "billing")
    refusal = raises(StoreError) if fate == "refused" else raises(OutcomeUnknown, durable=Durable.MAYBE)
    with refusal, ns.begin() as txn:
        txn.acknowledge(take(consumer))
        txn.flush()
        store.forever = fate
        txn.abort()
    store.heal()
    txn.abort()
    assert memory.open().transaction(txn.id).state == "ABORTED"
    assert received(consumer) == [1, 2]


@pytest.mark.parametrize("end", ["receive", "acknowledge", "take it along", "seek"])
@pytest.mark.parametrize("closed", [False, True])
@pytest.mark.parametrize("kind", ["exclusive", "shared"])
def test_what_was_abandoned_withholds_nothing_from_the_handle_that_received_it(
    memory: Place, kind: str, closed: bool, end: str
) -> None:
    """Two handles in one process: the messages of one are acknowledged in a transaction of the other."""
    ns, store = memory.faulty()
    other = memory.open(wrap=lambda _: store)
    ns.create_topic("orders", SCHEMA)
    ns.create_subscription("orders", "billing", type=kind)
    consumer = _gives_up(ns, store, flush="ok", abort="refused", receiver=other)
    if closed:
        ns.close()
    if end == "seek":
        consumer.seek("earliest")
    messages = take(consumer)
    assert ids(messages.table) == [1, 2]
    if end == "acknowledge":
        consumer.acknowledge(messages)
    elif end == "take it along":
        with other.begin() as txn:
            txn.acknowledge(messages)
    assert cursor(other).cursor == (0 if end in {"receive", "seek"} else 2)
    assert not other._connection.session.unlogged_aborts, "nothing is remembered that has its end"


@pytest.mark.parametrize("in_a_transaction", [False, True])
def test_what_a_flush_of_unknown_outcome_took_can_be_taken_by_who_gets_it_again(
    memory: Place, in_a_transaction: bool
) -> None:
    """The flush comes into the log at the next call, and its transaction was given up before."""
    ns, store = memory.faulty()
    consumer = _gives_up(ns, store, flush="dropped", abort="dropped")
    if in_a_transaction:
        with ns.begin() as txn:
            txn.acknowledge(take(consumer))
    else:
        consumer.acknowledge(take(consumer))
    assert ns.subscription("orders", "billing").cursors[0].cursor == 2


def _gives_up(ns: Any, store: FaultyStore, *, flush: str, abort: str, receiver: Any = None) -> Any:
    """A consumer, of this handle or another, whose two messages a block acknowledged that failed without saying so."""
    if "orders" not in ns.topics():
        ns.create_topic("orders", SCHEMA)
    ns.produce("orders", rows(1, 2))
    consumer = (receiver or ns).consumer("orders", "billing")
    with contextlib.suppress(ValueError, OutcomeUnknown), ns.begin() as txn:
        txn.acknowledge(take(consumer))
        store.forever = None if flush == "ok" else flush
        txn.flush()
        store.forever = abort
        int("what a block fails with")
    store.heal()
    return consumer
