"""What an operation answers, situation by situation: the error, its group, its words, and that nothing was written."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.client.support import Place, Unchanged, begun, holding, ids, raises, read, rows
from txnlog.errors import (
    AbortableError,
    Durable,
    InvalidInputError,
    InvalidTransactionState,
    OffsetOutOfRange,
    OutcomeUnknown,
    OutOfOrderSequence,
    RetriableError,
    SchemaMismatch,
    StoreError,
    TopicNotFound,
    TransactionNotFound,
    TransactionTimedOut,
    TxnLogError,
)
from txnlog.testing import ManualClock

DAY_MS = 24 * 3_600_000


def _cursor(ns: Any) -> int:
    return int(ns.lag("orders", "billing")[0].cursor)


@pytest.mark.clause("P-200")
def test_interleaved_transactions_of_one_name_keep_what_was_given_to_each(sales: Any, memory: Place) -> None:
    with sales.producer("loader") as loader:
        one, two, three = (loader.begin() for _ in range(3))
        for number in range(3):
            for first, txn in ((0, one), (10, two), (20, three)):
                txn.produce("orders", rows(first + number))
                if number < 2:
                    txn.flush()
        two.abort()
        three.commit()
        assert read(sales) == [20, 21, 22]
        one.commit()
    assert read(memory.open(mode="r")) == [20, 21, 22, 0, 1, 2]
    states = {txn.id: sales.transaction(txn.id).state for txn in (one, two, three)}
    assert states == {one.id: "COMMITTED", two.id: "ABORTED", three.id: "COMMITTED"}


@pytest.mark.clause("P-200", "P-47")
def test_each_of_several_transactions_is_its_producers_until_its_own_end(sales: Any, memory: Place) -> None:
    loader = sales.producer("loader")
    one, two, three = (loader.begin() for _ in range(3))
    for number, txn in enumerate((one, two, three)):
        txn.produce("orders", rows(number))
        txn.flush()
    two.commit()
    memory.open().producer("loader")
    ends = [sales.transaction(txn.id) for txn in (one, two, three)]
    assert [(end.state, end.reason) for end in ends] == [
        ("ABORTED", "fenced"),
        ("COMMITTED", None),
        ("ABORTED", "fenced"),
    ]


@pytest.mark.clause("P-201")
def test_a_plain_produce_is_one_entry_and_can_be_asked_for(ns: Any, place: Place) -> None:
    ns.produce("orders", rows(0))
    before = ns.snapshot().version
    result = ns.produce("orders", rows(1, 2, 3))
    assert (result.version, ns.snapshot().version) == (before + 1, before + 1)
    info = place.open().transaction(result.txn_id)
    assert (info.state, info.version) == ("COMMITTED", result.version)


@pytest.mark.clause("P-201")
def test_a_plain_acknowledgement_is_one_entry_and_can_be_asked_for(memory: Place) -> None:
    ns, store = memory.faulty_orders(1, 2)
    consumer = ns.consumer("orders", "billing")
    messages = consumer.receive(timeout_ms=0)
    before = ns.snapshot().version
    store.forever = "dropped"
    with raises(OutcomeUnknown, durable=Durable.MAYBE) as caught:
        consumer.acknowledge(messages)
    store.forever = None
    (txn_id,) = caught.value.txn_ids
    info = ns.abort(txn_id)
    assert (info.state, info.version) == ("COMMITTED", before + 1), "the entry in doubt goes first"
    assert _cursor(ns) == 2


@pytest.mark.clause("P-202")
@pytest.mark.parametrize("shown", [True, False], ids=["shown by the log", "made definite"])
def test_an_abort_is_answered_as_often_as_it_is_asked_for(ns: Any, place: Place, shown: bool) -> None:
    txn = begun(ns, 1)
    if shown:
        txn.flush()
        txn.abort()
    first = ns.abort(txn.id, why="the job was lost")
    with Unchanged(place):
        txn.abort() if shown else None
        assert ns.abort(txn.id) == ns.abort(str(txn.id)) == first
        assert place.open().abort(txn.id) == first
    assert (first.state, first.reason) == ("ABORTED", "user" if shown else "admin")


@pytest.mark.clause("P-66")
def test_an_outcome_that_was_forgotten_is_not_found_and_never_made_up(memory: Place, clock: ManualClock) -> None:
    ns, store = memory.faulty_orders(0, clock=clock)
    txn = begun(ns, 1)
    store.script.append("killed")
    with pytest.raises(KeyboardInterrupt):
        txn.commit()
    for number in range(2, 14):
        clock.advance(DAY_MS)
        ns.produce("orders", rows(number))
        ns.checkpoint()
    assert ns.transaction(txn.id).state == "UNKNOWN"
    for handle in (ns, memory.open(clock=clock)):
        with Unchanged(memory), raises(TransactionNotFound, match="remembered"):
            handle.abort(txn.id)
    assert read(ns) == list(range(14)), "only the outcome is forgotten"


@pytest.mark.clause("P-118", "P-203")
def test_a_call_that_may_be_tried_again_leaves_the_transaction_as_it_was(memory: Place) -> None:
    ns, store = memory.faulty_orders(0)
    messages = ns.consumer("orders", "billing").receive(timeout_ms=0)
    txn = begun(ns, 1)
    txn.acknowledge(messages)
    store.script.append("refused")
    with Unchanged(memory), raises(StoreError, match="space"):
        txn.flush()
    assert txn.state == "OPEN"
    store.forever = "dropped"
    with raises(OutcomeUnknown, durable=Durable.MAYBE) as caught:
        txn.flush()
    assert isinstance(caught.value, RetriableError)
    assert txn.state == "OPEN"
    store.forever = None
    txn.produce("orders", rows(2))
    txn.commit()
    assert read(ns) == [0, 1, 2]
    assert _cursor(ns) == 1


@pytest.mark.clause("P-203")
@pytest.mark.parametrize(
    ("call", "kind", "words"),
    [
        (lambda txn: txn.produce("orders", [{"id": "x", "name": "y"}]), SchemaMismatch, "'id'"),
        (lambda txn: txn.produce("orders", rows(1), partition=9), OffsetOutOfRange, "no partition 9"),
        (lambda txn: txn.produce("orders", rows(1), sequence=3), InvalidInputError, "sequence"),
        (lambda txn: txn.produce("ordres", rows(1)), TopicNotFound, "ordres"),
        (lambda txn: txn.produce("orders", [{"idd": 1}]), SchemaMismatch, "idd"),
        (lambda txn: txn.acknowledge("all of them"), InvalidInputError, "received"),
        (lambda txn: txn.acknowledge([("orders", 0, 1)]), InvalidInputError, "received"),
    ],
)
@pytest.mark.parametrize("flushed", [False, True])
def test_a_call_that_was_wrong_is_refused_and_the_transaction_goes_on(
    ns: Any, place: Place, call: Callable[[Any], object], kind: type[TxnLogError], words: str, flushed: bool
) -> None:
    txn = begun(ns, 1, partition=0, flush=flushed)
    with Unchanged(place), raises(kind, match=words) as caught:
        call(txn)
    assert isinstance(caught.value, InvalidInputError)
    txn.produce("orders", rows(2), partition=0)
    assert txn.commit().offsets == {("orders", 0): range(2)}


@pytest.mark.clause("P-98", "P-203")
def test_after_a_sequence_that_does_not_follow_the_transaction_can_only_be_aborted(sales: Any, memory: Place) -> None:
    loader = sales.producer("loader")
    loader.produce("orders", rows(0), partition=0, sequence=0)
    txn = begun(loader, 1, partition=0, sequence=1, flush=True)
    txn.produce("orders", rows(3), partition=0, sequence=3)
    with raises(OutOfOrderSequence, match="sequence") as caught:
        txn.commit()
    assert isinstance(caught.value, AbortableError)
    assert (txn.state, sales.transaction(txn.id).reason) == ("ABORTED", "failed")
    for call in (txn.commit, lambda: txn.produce("orders", rows(2), partition=0, sequence=2)):
        with Unchanged(memory), raises(OutOfOrderSequence):
            call()
    assert loader.last_sequence("orders", 0) == 0
    loader.produce("orders", rows(1), partition=0, sequence=1)
    assert read(sales) == [0, 1]


@pytest.mark.clause("P-204")
def test_the_time_of_a_transaction_counts_from_its_first_acknowledgement(memory: Place, clock: ManualClock) -> None:
    ns = memory.orders(1, 2, clock=clock)
    messages = ns.consumer("orders", "billing").receive(timeout_ms=0)
    one, two = ns.begin(timeout_ms=1_000), ns.begin(timeout_ms=1_000)
    clock.advance(3_600_000)
    one.acknowledge(messages[0])
    two.acknowledge(messages[1])
    clock.advance(999)
    one.commit()
    clock.advance(1)
    with Unchanged(memory), raises(TransactionTimedOut) as caught:
        two.commit()
    assert isinstance(caught.value, AbortableError)
    assert _cursor(ns) == 1


@pytest.mark.clause("P-64", "P-205")
@pytest.mark.parametrize("kind", ["exclusive", "shared"])
@pytest.mark.parametrize("of_another", [False, True])
def test_who_waits_for_messages_of_an_overdue_transaction_appends_its_end(
    memory: Place, clock: ManualClock, kind: str, of_another: bool
) -> None:
    ns, owner = memory.orders(1, clock=clock), memory.open(clock=clock)
    consumer = ns.consumer("orders", "billing", type=kind)
    txn = holding((owner if of_another else ns), consumer.receive(timeout_ms=0), flush=True, timeout_ms=1_000)
    consumer.redeliver_unacknowledged()
    clock.advance(5_999)
    assert len(consumer.receive(timeout_ms=0)) == 0
    assert ns.transaction(txn.id).state == "OPEN", "others wait for the grace"
    clock.advance(1)
    assert ids(consumer.receive(timeout_ms=0).table) == [1]
    assert (ns.transaction(txn.id).state, ns.transaction(txn.id).reason) == ("ABORTED", "timeout")
    with raises(TransactionTimedOut):
        txn.commit()


@pytest.mark.clause("P-205")
def test_a_seek_ends_all_that_is_overdue_however_much_it_is(memory: Place, clock: ManualClock) -> None:
    """One entry ends a hundred."""
    ns = memory.orders(*range(201), clock=clock)
    consumer = ns.consumer("orders", "billing")
    messages = consumer.receive(max_messages=201, timeout_ms=0)
    transactions = [ns.begin(timeout_ms=1_000) for _ in messages]
    for txn, message in zip(transactions, messages, strict=True):
        txn.acknowledge(message)
        txn.flush()
    clock.advance(6_000)
    consumer.seek("latest")
    assert ns.transactions(state="OPEN") == ()
    assert _cursor(ns) == 201


@pytest.mark.clause("P-205")
def test_a_seek_is_not_refused_for_what_an_overdue_transaction_holds(memory: Place, clock: ManualClock) -> None:
    """Not even by a handle that looked for what is overdue a moment ago, and found nothing."""
    ns = memory.orders(1, clock=clock)
    consumer = ns.consumer("orders", "billing")
    txn = holding(ns, consumer.receive(timeout_ms=0), flush=True, timeout_ms=1_000)
    clock.advance(5_999)
    ns.produce("orders", rows(2))
    with raises(InvalidTransactionState, match="pending"):
        consumer.seek("latest")
    ns.produce("orders", rows(3))
    clock.advance(1)
    consumer.seek("latest")
    assert (ns.transaction(txn.id).state, ns.transaction(txn.id).reason) == ("ABORTED", "timeout")
    assert _cursor(ns) == 3
