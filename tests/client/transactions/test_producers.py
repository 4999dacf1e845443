"""Producers with a name (docs/guarantees.md, Producing): who fences whom, and what a closed one answers."""

from __future__ import annotations

from typing import Any

import pytest

from tests.client.support import Place, Unchanged, begun, committed, ids, raises, read, rows
from txnlog.errors import InvalidInputError, InvalidTransactionState, NameNotAllowed, ProducerFenced

# --- producers --------------------------------------------------------------------------------------------------------


@pytest.mark.clause("P-47", "P-48", "P-49")
def test_a_new_producer_fences_its_predecessor_at_every_operation(ns: Any, place: Place) -> None:
    old = ns.producer("loader")
    flushed, buffered, empty, other_one = (old.begin() for _ in range(4))
    flushed.produce("orders", rows(1))
    flushed.flush()
    buffered.produce("orders", rows(2))
    other = place.open()
    new = other.producer("loader")
    assert new.epoch > old.epoch
    assert (ns.transaction(flushed.id).state, ns.transaction(flushed.id).reason) == ("ABORTED", "fenced")
    version = other.snapshot().version
    for call in (
        flushed.commit,
        flushed.flush,
        lambda: flushed.produce("orders", rows(3)),
        lambda: other_one.produce("orders", rows(3)),
        buffered.commit,
        buffered.flush,
        lambda: buffered.produce("orders", rows(3)),
        empty.commit,
        lambda: old.produce("orders", rows(4)),
        old.begin,
        lambda: old.last_sequence("orders", 0),
    ):
        with raises(ProducerFenced, match="loader"):
            call()
    flushed.abort()
    buffered.abort()
    old.close()
    assert other.snapshot().version == version
    new.produce("orders", rows(5))
    assert read(ns) == [5]


@pytest.mark.clause("P-49")
@pytest.mark.parametrize(
    "call", ["commit", "flush", "prepare", "plain", "last_sequence", "flushed commit", "commit_async"]
)
def test_a_fenced_producer_hears_of_it_from_the_log(ns: Any, place: Place, call: str) -> None:
    """The first operation that asks the log tells it, though this client has not looked since."""
    old = ns.producer("loader")
    txn = begun(old, 1, flush=call == "flushed commit")
    place.open().producer("loader")
    calls = {
        "commit": txn.commit,
        "flushed commit": txn.commit,
        "flush": txn.flush,
        "prepare": txn.prepare,
        "plain": lambda: old.produce("orders", rows(2)),
        "last_sequence": lambda: old.last_sequence("orders", 0),
        "commit_async": lambda: txn.commit_async().result(30),
    }
    for _ in range(2):
        with Unchanged(place), raises(ProducerFenced, match="loader"):
            calls[call]()
    assert (txn.state, read(ns)) == ("OPEN" if call in {"plain", "last_sequence"} else "ABORTED", [])


@pytest.mark.clause("P-48")
def test_an_open_transaction_is_aborted_when_its_producer_starts_again(ns: Any) -> None:
    consumer = ns.consumer("orders", "billing")
    ns.produce("orders", rows(0), partition=0)
    with raises(ProducerFenced), ns.producer("loader") as old, old.begin() as txn:
        txn.produce("orders", rows(1))
        txn.acknowledge(consumer.receive(timeout_ms=0))
        txn.flush()
        ns.producer("loader")
    assert read(ns) == [0]
    assert ids(consumer.receive(timeout_ms=0).table) == [0], "what it held is delivered again"


@pytest.mark.clause("P-47")
def test_an_administrators_fence_takes_the_name_away(ns: Any, place: Place) -> None:
    producer = ns.producer("loader")
    txn = begun(producer, 1, flush=True)
    epoch = place.open().fence("loader", by="ada")
    assert epoch > producer.epoch
    with raises(ProducerFenced):
        txn.commit()
    with raises(ProducerFenced, match="fenced by 'ada'") as caught:
        producer.produce("orders", rows(2))
    assert "newer" not in str(caught.value)
    with Unchanged(place), raises(InvalidInputError, match="no producer 'loadr'"):
        ns.fence("loadr")
    assert ns.producer("loader").epoch > epoch


@pytest.mark.parametrize("call", ["commit", "flush", "produce", "prepare"])
def test_a_fenced_transaction_that_the_log_shows_hears_who_the_administrator_was(
    ns: Any, place: Place, call: str
) -> None:
    """As one that the log did not show: that the fence also aborted it does not hide whose fence it was."""
    txn = begun(ns.producer("loader"), 1, flush=True)
    place.open().fence("loader", by="ada")
    arguments = ("orders", rows(2)) if call == "produce" else ()
    with raises(ProducerFenced, match=f"fenced by 'ada', which aborted the transaction {txn.id}") as caught:
        getattr(txn, call)(*arguments)
        txn.commit()  # a call that does not look at the log is refused by the next one
    assert "ask who fenced it" in str(caught.value)
    assert (ns.transaction(txn.id).state, ns.transaction(txn.id).reason) == ("ABORTED", "fenced")


def test_a_successor_after_an_administrators_fence_is_the_one_that_is_named(ns: Any, place: Place) -> None:
    txn = begun(ns.producer("loader"), 1, flush=True)
    other = place.open()
    other.fence("loader", by="ada")
    newest = other.producer("loader").epoch
    with raises(ProducerFenced, match=f"but {newest} is the newest: it aborted the transaction {txn.id}"):
        txn.commit()


def test_anonymous_producers_fence_nobody(ns: Any) -> None:
    one, two = ns.producer(), ns.producer()
    assert (one.name, one.epoch) == (None, None)
    committed(one, 1)
    two.produce("orders", rows(2))
    assert sorted(read(ns)) == [1, 2]
    with raises(InvalidInputError, match="anonymous"):
        one.last_sequence("orders", 0)
    with raises(InvalidInputError, match="named producer"):
        one.produce("orders", rows(1), partition=0, sequence=1)


def test_a_closed_producer_is_refused_and_its_transactions_are_aborted(ns: Any) -> None:
    with ns.producer("loader") as producer:
        txn = begun(producer, 1, flush=True)
    producer.close()
    assert (txn.state, ns.transaction(txn.id).state) == ("ABORTED", "ABORTED")
    for call in (
        producer.begin,
        lambda: producer.produce("orders", rows(1)),
        lambda: producer.last_sequence("orders", 0),
    ):
        with raises(InvalidTransactionState, match="closed"):
            call()
    assert repr(producer).startswith("Producer('loader'")


def test_a_close_says_which_transactions_with_work_it_aborted(ns: Any, caplog: pytest.LogCaptureFixture) -> None:
    producer = ns.producer("loader")
    lost, empty, committed, aborted = begun(producer, 1), producer.begin(), begun(producer, 2), begun(producer, 3)
    committed.commit()
    aborted.abort()
    other = ns.producer("other")
    begun(other, 4)
    other.__exit__(ZeroDivisionError, ZeroDivisionError(), None)  # which says why
    assert not caplog.messages
    producer.close()
    (line,) = caplog.messages
    assert line.startswith("The producer 'loader' was closed, which aborted these transactions with work: ")
    assert [str(txn.id) in line for txn in (lost, empty, committed, aborted)] == [True, False, False, False]
    producer.close()
    ns.close()
    assert caplog.messages == [line]


@pytest.mark.parametrize("name", ["", "a\nb", "x" * 257, "\ud800", 7, b"loader", ["loader"]])
def test_a_producers_name_is_a_label(ns: Any, place: Place, name: Any) -> None:
    with Unchanged(place), raises(NameNotAllowed):
        ns.producer(name)
