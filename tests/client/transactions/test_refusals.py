"""What is refused: to one row, to an object in the wrong hands, too late; and what every error says."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.client.support import (
    SCHEMA,
    TXN_CALLS,
    Place,
    Unchanged,
    begun,
    holding,
    ids,
    one_received,
    raises,
    read,
    rows,
)
from txnlog import errors
from txnlog.api.internals import acknowledge_ranges
from txnlog.errors import (
    AbortableError,
    Durable,
    InvalidInputError,
    InvalidTransactionState,
    NameNotAllowed,
    NamespaceNotFound,
    OffsetOutOfRange,
    SchemaMismatch,
    SubscriptionNotFound,
    TopicNotFound,
    TransactionConflict,
    TransactionHasFailedOperation,
    TransactionNotFound,
    TxnLogError,
    VersionNotAvailable,
)
from txnlog.replies import refused_write
from txnlog.testing import ManualClock


def _cursor(ns: Any) -> int:
    return int(ns.lag("orders", "billing")[0].cursor)


# --- producing and acknowledging --------------------------------------------------------------------------------------


@pytest.mark.clause("P-206")
def test_one_row_that_does_not_fit_stops_its_whole_call(memory: Place) -> None:
    ns, store = memory.faulty_orders(partitions=2)
    store.calls.clear()
    with Unchanged(memory), raises(SchemaMismatch, match="'name'") as caught:
        ns.produce("orders", [*rows(1, 2), {"id": 3, "name": 3.5}])
    assert isinstance(caught.value, InvalidInputError)
    assert [call for call in store.calls if call[0] in ("put", "create")] == []
    ns.produce("orders", rows(4))
    assert read(ns) == [4]


@pytest.mark.clause("P-94", "P-96", "P-207")
def test_rows_stand_in_the_order_of_calls_and_in_each_call_in_its_own(ns: Any) -> None:
    txn = ns.begin()
    for start in range(0, 60, 20):
        txn.produce("orders", rows(*range(start + 19, start - 1, -1)), partition=1)
        if start == 20:
            txn.flush()
    txn.commit()
    assert read(ns) == [*range(19, -1, -1), *range(39, 19, -1), *range(59, 39, -1)]


@pytest.mark.clause("P-208")
@pytest.mark.parametrize("way", ["call", "flush", "commit"])
def test_a_conflict_is_answered_as_soon_as_the_client_can_know(memory: Place, way: str) -> None:
    ns, other = memory.open(), memory.open()
    ns.create_topic("orders", SCHEMA)
    ns.produce("orders", rows(0, 1))
    messages = ns.consumer("orders", "billing").receive(timeout_ms=0)
    first, second = (ns if way == "call" else other).begin(), ns.begin()
    ns.snapshot()
    second.produce("orders", rows(2))
    if way == "call":
        first.acknowledge(messages[0])
        with Unchanged(memory), raises(TransactionConflict, match="pending"):
            second.acknowledge(messages[0])
    else:
        second.acknowledge(messages[0])
        acknowledge_ranges(first, messages[0]._acknowledgements(other._connection, cumulative=False))
        first.flush()
        with raises(TransactionConflict, match="pending"):
            getattr(second, way)()
    with Unchanged(memory), raises(TransactionConflict if way == "commit" else TransactionHasFailedOperation) as caught:
        second.commit()
    assert isinstance(caught.value, AbortableError)
    assert second.state == "ABORTED"
    assert ns.transaction(second.id).state == "UNKNOWN", "nothing of it was logged, so its abort need not be"
    first.commit()
    assert (read(ns), _cursor(ns)) == ([0, 1], 1)


@pytest.mark.clause("P-85", "P-98", "P-209")
@pytest.mark.parametrize("kind", ["exclusive", "shared"])
@pytest.mark.parametrize("end", ["abort", "admin", "fence"])
def test_messages_of_a_transaction_without_effect_come_again_by_themselves(
    memory: Place, clock: ManualClock, kind: str, end: str
) -> None:
    ns = memory.orders(1, 2, clock=clock)
    consumer = ns.consumer("orders", "billing", type=kind)
    txn = ns.producer("worker").begin()
    txn.acknowledge(consumer.receive(timeout_ms=0))
    txn.flush()
    assert len(consumer.receive(timeout_ms=0)) == 0
    {"abort": txn.abort, "admin": lambda: ns.abort(txn.id), "fence": lambda: ns.fence("worker")}[end]()
    assert ids(consumer.receive(timeout_ms=0).table) == [1, 2]


@pytest.mark.clause("P-210")
@pytest.mark.parametrize("kind", ["exclusive", "shared"])
def test_giving_back_what_is_acknowledged_or_pending_has_no_effect(memory: Place, kind: str) -> None:
    ns = memory.orders(0, 1, 2)
    consumer = ns.consumer("orders", "billing", type=kind)
    messages = consumer.receive(timeout_ms=0)
    consumer.acknowledge(messages[0])
    txn = holding(ns, messages[1], flush=True)
    with Unchanged(memory):
        consumer.negative_acknowledge(messages[:2])
    consumer.negative_acknowledge(messages)
    consumer.redeliver_unacknowledged()
    assert ids(consumer.receive(timeout_ms=0).table) == [2]
    txn.commit()
    assert _cursor(ns) == 2


# --- an object in the wrong hands, or too late ------------------------------------------------------------------------


@pytest.mark.clause("P-55", "P-63")
@pytest.mark.parametrize("flushed", [False, True])
@pytest.mark.parametrize("call", list(TXN_CALLS))
def test_every_call_after_the_abort_says_so(ns: Any, place: Place, call: str, flushed: bool) -> None:
    _, messages = one_received(ns)
    txn = begun(ns, 1, flush=flushed)
    txn.abort()
    with Unchanged(place):
        with raises(InvalidTransactionState, match="was aborted") as caught:
            TXN_CALLS[call](txn, messages)
        assert caught.value.advice == "begin a new transaction"
        txn.abort()
    assert (txn.state, read(ns)) == ("ABORTED", [0])


@pytest.mark.clause("P-55", "P-62")
@pytest.mark.parametrize("call", ["produce", "acknowledge", "flush", "prepare", "check_open"])
def test_every_call_that_would_add_to_a_committed_one_says_so(ns: Any, place: Place, call: str) -> None:
    _, messages = one_received(ns)
    txn = begun(ns, 1)
    result = txn.commit()
    with Unchanged(place):
        with raises(InvalidTransactionState, match="was committed") as caught:
            TXN_CALLS[call](txn, messages)
        assert isinstance(caught.value, InvalidInputError)
        assert txn.commit() is txn.commit_async().result(30) is result
        with raises(InvalidTransactionState, match=r"was committed \(it stays committed: nothing"):
            txn.abort()
        with txn:  # a block around it has nothing to end
            pass
    assert sorted(read(ns)) == [0, 1]


@pytest.mark.parametrize("flushed", [False, True])
@pytest.mark.parametrize("call", list(TXN_CALLS))
def test_a_transaction_of_a_closed_producer_is_aborted_and_says_so(
    ns: Any, place: Place, call: str, flushed: bool
) -> None:
    consumer, messages = one_received(ns)
    producer = ns.producer("loader")
    txn, empty = producer.begin(), producer.begin()
    txn.produce("orders", rows(1))
    txn.acknowledge(messages)
    if flushed:
        txn.flush()
    producer.close()
    with Unchanged(place):
        for item in (txn, empty):
            with raises(InvalidTransactionState, match="was aborted when the producer 'loader' was closed"):
                TXN_CALLS[call](item, messages)
            item.abort()
        producer.close()
    assert (read(ns), ids(consumer.receive(timeout_ms=0).table)) == ([0], [0])
    with ns.producer("loader").begin() as again:
        again.produce("orders", rows(2))
    assert sorted(read(ns)) == [0, 2]


def test_a_closed_producer_leaves_prepared_and_committed_ones_alone(ns: Any, place: Place) -> None:
    with ns.producer("loader") as producer:
        committed, prepared = producer.begin(), producer.begin()
        committed.produce("orders", rows(1), partition=0)
        committed.commit()
        prepared.produce("orders", rows(2), partition=0)
        token = prepared.prepare()
    assert (committed.state, prepared.state) == ("COMMITTED", "PREPARED")
    place.open().complete(token, commit=True)
    assert read(ns) == [1, 2]


# --- an end that nobody remembers -------------------------------------------------------------------------------------


@pytest.mark.clause("P-39")
@pytest.mark.parametrize("closed", [False, True], ids=["block-open", "block-closed"])
def test_a_commit_asked_for_again_when_its_outcome_is_forgotten_is_not_called_failed(
    memory: Place, clock: ManualClock, closed: bool
) -> None:
    ns, store = memory.faulty_orders(clock=clock)
    txn = begun(ns, 1)
    store.script.append("killed")
    with pytest.raises(KeyboardInterrupt):
        txn.commit()
    other = memory.open(clock=clock)
    for day in range(12):
        clock.advance(86_400_000)
        other.produce("orders", rows(100 + day))
        other.checkpoint()
    if closed:
        assert other.vacuum().closed_blocks == 1
    ns.checkpoint()
    with pytest.raises(TransactionNotFound) as told:
        txn.commit()
    assert told.value.durable is Durable.MAYBE, "it is committed, and visible"
    assert 1 in read(ns)


# --- what every error says --------------------------------------------------------------------------------------------


REFUSED_WRITES: dict[str, tuple[type[TxnLogError], Callable[[Any, Any], object]]] = {
    "produce to no topic": (TopicNotFound, lambda ns, _: ns.produce("ordres", rows(1))),
    "produce to no topic in a transaction": (TopicNotFound, lambda ns, _: ns.begin().produce("ordres", rows(1))),
    "produce to no partition": (OffsetOutOfRange, lambda ns, _: ns.produce("orders", rows(1), partition=2)),
    "a name that is text only": (NameNotAllowed, lambda ns, _: ns.produce("", rows(1))),
    "seek to no partition": (OffsetOutOfRange, lambda _, consumer: consumer.seek({2: 0}, topic="orders")),
    "seek to no offset": (OffsetOutOfRange, lambda _, consumer: consumer.seek({0: 100}, topic="orders")),
    "seek in no topic": (TopicNotFound, lambda _, consumer: consumer.seek("latest", topic="ordres")),
    "start in no partition": (OffsetOutOfRange, lambda ns, _: ns.create_subscription("orders", "b", start={2: 0})),
    "start at no offset": (OffsetOutOfRange, lambda ns, _: ns.create_subscription("orders", "b", start={0: 100})),
    "subscribe to no topic": (TopicNotFound, lambda ns, _: ns.create_subscription("ordres", "b")),
    "consume no topic": (TopicNotFound, lambda ns, _: ns.consumer("ordres", "b")),
    "optimize no topic": (TopicNotFound, lambda ns, _: ns.optimize("ordres")),
    "drop no topic": (TopicNotFound, lambda ns, _: ns.drop_topic("ordres")),
    "drop no subscription": (SubscriptionNotFound, lambda ns, _: ns.drop_subscription("orders", "biling")),
    "drop no topic's subscription": (TopicNotFound, lambda ns, _: ns.drop_subscription("ordres", "billing")),
    "the last sequence of no partition": (
        OffsetOutOfRange,
        lambda ns, _: ns.producer("loader").last_sequence("orders", 2),
    ),
}


@pytest.mark.parametrize("call", REFUSED_WRITES)
def test_a_call_that_would_have_written_says_that_nothing_was(ns: Any, call: str) -> None:
    ns.create_topic("audit", SCHEMA)
    consumer = ns.consumer(["orders", "audit"], "billing")
    kind, wrong = REFUSED_WRITES[call]
    with raises(kind, match=r"\(.+; nothing was written\)$"):
        wrong(ns, consumer)


WRONG_READS: dict[str, Callable[[Any], object]] = {
    "offsets as a list": lambda ns: ns.snapshot().read("orders", offsets=[0, 1]),
    "offsets as JSON": lambda ns: ns.snapshot().scan("orders", offsets='{"0": [0, 1]}'),
    "offsets without an end": lambda ns: ns.snapshot().plan("orders", offsets={0: 1}),
    "an unknown column": lambda ns: ns.snapshot().read("orders", columns=["idd"]),
    "an unknown level": lambda ns: ns.snapshot().plan("orders", isolation_level="commited"),
    "a filter that is none": lambda ns: ns.snapshot().read("orders", filter="id > 1"),
}


@pytest.mark.parametrize("call", WRONG_READS)
def test_a_wrong_call_that_only_reads_does_not_say_that_nothing_was_written(ns: Any, call: str) -> None:
    with raises(InvalidInputError) as caught:
        WRONG_READS[call](ns)
    assert caught.value.durable is Durable.NOTHING
    assert str(caught.value).endswith(f"({caught.value.advice})")


def test_an_optimize_that_would_only_foresee_does_not_say_it_either(ns: Any) -> None:
    with raises(TopicNotFound, match=r"\(did you mean 'orders'\?\)$"):
        ns.optimize("ordres", dry_run=True)


@pytest.mark.parametrize("offsets", [[0, 1], "{}", {0: 1}, {0: (1, 2, 3)}, {"0": (0, 1)}, 7])
def test_offsets_of_another_form_are_refused_with_the_form(ns: Any, offsets: Any) -> None:
    with raises(
        InvalidInputError, match=r"offsets is a dict \{partition: \(start, end\)\}, not .*offsets=\{0: \(0, 100\)"
    ):
        ns.snapshot().read("orders", offsets=offsets)


@pytest.mark.parametrize("offsets", [{1: 5}, {0: 100}])
def test_a_seek_of_several_topics_names_the_one_that_refuses_it(ns: Any, offsets: dict[int, int]) -> None:
    ns.create_topic("audit", SCHEMA)
    ns.produce("orders", rows(*range(200)), partition=0)
    ns.produce("orders", rows(*range(200)), partition=1)
    with raises(OffsetOutOfRange, match="topic 'audit'"):
        ns.consumer(["orders", "audit"], "billing").seek(offsets)


KINDS = [getattr(errors, name) for name in errors.__all__ if name[0].isupper() and name != "Durable"]


@pytest.mark.parametrize("kind", KINDS)
def test_an_error_of_any_class_says_what_to_do_and_what_may_be_durable(kind: type[TxnLogError]) -> None:
    looks = {NamespaceNotFound, TopicNotFound, SubscriptionNotFound, VersionNotAvailable, OffsetOutOfRange}
    assert str(kind("x", advice="do y", durable=Durable.NOTHING)) == "x (do y; nothing was written)"
    assert str(kind("x", advice="do y", durable=Durable.MAYBE)) == "x (do y; data may be durable)"
    silent = kind("x", advice="do y")
    assert str(silent) == ("x (do y)" if kind in looks else f"x (do y; {kind._default_durable.value})")
    with pytest.raises(kind, match=kind._default_durable.value), refused_write():
        raise silent
