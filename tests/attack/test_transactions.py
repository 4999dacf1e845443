"""Ends of transactions as their owners are told them."""

from __future__ import annotations

from typing import Any

import pytest

from tests.client.support import SCHEMA, Place, ids, read, rows
from txnlog.errors import OutcomeUnknown, TransactionAborted, TransactionTimedOut
from txnlog.ids import TxnId
from txnlog.testing import ManualClock


@pytest.mark.clause("P-62")
def test_a_commit_whose_answer_was_lost_is_not_told_to_have_been_skipped(memory: Place) -> None:
    """A checkpoint let go of the outcome, and the application's version says that somebody brought it: ourselves."""
    ns, store = memory.faulty()
    ns.create_topic("orders", SCHEMA)
    ns.appender.create_attempts = 1
    txn = ns.begin(txn_app_id="nightly", txn_version=3)
    txn.produce("orders", rows(1))
    store.script.extend(["broken-after"])
    store.reads.extend(["broken"])
    with pytest.raises(OutcomeUnknown):
        txn.commit()
    ns.produce("orders", rows(2))
    ns.checkpoint()
    result = txn.commit()
    assert not result.skipped
    assert result.offsets == {("orders", 0): range(1)}
    assert read(ns) == [1, 2]


@pytest.mark.clause("P-64")
def test_a_flushed_transaction_is_not_committed_after_its_deadline(memory: Place, clock: ManualClock) -> None:
    """The deadline passes while the commit loses a race."""
    ns, store = memory.faulty(clock=clock)
    ns.create_topic("orders", SCHEMA)
    rival = memory.open(clock=clock)
    txn = ns.begin(timeout_ms=10_000)
    txn.produce("orders", rows(1))
    txn.flush()

    def race() -> None:
        clock.advance(10_001)
        rival.produce("orders", rows(2))

    store.script.append(race)
    with pytest.raises(TransactionTimedOut):
        txn.commit()
    assert read(ns) == [2]


def test_a_transaction_that_transact_made_definite_gives_its_messages_back(memory: Place) -> None:
    """The first attempt ends aborted by our own question; the second must get the same messages."""
    ns, store = memory.faulty()
    ns.create_topic("orders", SCHEMA)
    ns.produce("orders", rows(1, 2))
    consumer = ns.consumer("orders", "billing")
    rival = memory.open()
    ns.appender.create_attempts = 1
    attempts: list[list[int]] = []

    def work(txn: Any) -> None:
        messages = consumer.receive(timeout_ms=0)
        attempts.append(ids(messages.table))
        txn.acknowledge(messages)
        if len(attempts) == 1:
            # The commit is not heard of; asked again, the store is still away; then it is back, the slot another's.
            store.script.extend(["dropped", "dropped", lambda: rival.produce("orders", rows(3))])
            store.reads.extend(["absent", "absent"])

    ns.transact(work)
    assert attempts == [[1, 2], [1, 2, 3]]
    assert consumer.receive(timeout_ms=0).positions == []


def test_a_plain_acknowledge_whose_number_was_ended_is_not_told_to_be_done(memory: Place) -> None:
    ns, store = memory.faulty()
    ns.create_topic("orders", SCHEMA)
    ns.produce("orders", rows(1, 2))
    consumer = ns.consumer("orders", "billing")
    messages = consumer.receive(timeout_ms=0)
    admin = memory.open()
    following = ns.begin().id
    store.script.append(lambda: admin.abort(TxnId(following.coordinator, following.number + 1)))
    with pytest.raises(TransactionAborted):
        consumer.acknowledge(messages)
    assert admin.subscription("orders", "billing").cursors[0].cursor == 0


@pytest.mark.clause("P-119")
def test_begin_is_not_refused_by_a_limit_that_is_no_longer_reached(
    memory: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("txnlog.namespace.MAX_OPEN_TRANSACTIONS", 1)
    ns, other = memory.open(), memory.open()
    ns.create_topic("orders", SCHEMA)
    txn = other.begin()
    txn.produce("orders", rows(1))
    txn.flush()
    ns.snapshot()
    txn.commit()
    ns.begin()
