"""Attacks on truncation that succeed: each docstring begins with the kind of what is wrong."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any

import pytest

from tests.client.support import FaultyStore, Place, rows
from tests.client.transactions.time_limits import limited, slow_file
from tests.client.transactions.truncating import meanwhile, numbers, two_topics
from txnlog.api.internals import set_stream, truncate
from txnlog.client.truncation import Wanted
from txnlog.errors import Durable, InvalidInputError, OutcomeUnknown, RetriableError, StoreError, TransactionTimedOut
from txnlog.format.actions import StreamBatch


def refused(txn: Any, store: FaultyStore) -> None:
    """A commit that the store refuses for certain: nothing is logged, and what was prepared stays prepared."""
    store.script.append("refused")
    with pytest.raises(StoreError, match="no space left"):
        txn.commit()
    store.heal()


def of_unknown_outcome(ns: Any, store: FaultyStore, commit: Callable[[Any], object]) -> Any:
    """A transaction that truncates, and of whose commit nobody knows whether it is in the log."""
    txn = ns.begin()
    txn.truncate("orders")
    txn.produce("orders", rows(77), partition=0)
    store.script.extend(["dropped"] * 100)
    with pytest.raises(OutcomeUnknown):
        commit(txn)
    store.heal()
    return txn


# --- what a commit prepares -------------------------------------------------------------------------------------------


def test_a_commit_of_unknown_outcome_whose_preparation_fails_later_truncates_all_the_same(memory: Place) -> None:
    """RESURRECTED: unknown outcome, a merge and a checkpoint of others, a full store, and the third commit succeeds
    with the new rows and without the truncation: the old rows stay next to them."""
    other = two_topics(memory)
    ns, store = memory.wrapped(FaultyStore)
    txn = of_unknown_outcome(ns, store, lambda txn: txn.commit())
    other.optimize("orders")
    other.checkpoint()
    ns.checkpoint()
    store.puts.extend(["broken"] * 100)
    with pytest.raises(StoreError):
        txn.commit()  # it is out of date, and what it needs anew cannot be put
    store.heal()
    txn.commit()
    assert numbers(other) == [77]


# --- the order of commits ---------------------------------------------------------------------------------------------


def test_commits_in_the_background_keep_the_order_of_the_calls(memory: Place) -> None:
    """LOST: docs of commit_async promise the order of the calls. The commit that was asked for behind the truncation
    overtakes it while that is prepared, and its row goes with it."""
    ns = two_topics(memory)
    first, second = ns.begin(), ns.begin()
    first.truncate("orders")
    first.produce("orders", rows(1), partition=0)
    second.produce("orders", rows(2), partition=0)
    futures = [first.commit_async(), second.commit_async()]
    versions = [future.result(30).version for future in futures]
    assert numbers(ns) == [1, 2]
    assert versions == sorted(versions)


def test_what_is_produced_behind_a_commit_in_the_background_stays(memory: Place) -> None:
    """LOST: the same with a plain produce, which returned its offsets after commit_async had been called."""
    ns = two_topics(memory)
    txn = ns.begin()
    txn.truncate("orders")
    future = txn.commit_async()
    ns.produce("orders", rows(5), partition=0)
    future.result(30)
    assert numbers(ns) == [5]


def test_nobody_overtakes_a_truncation_that_waits(memory: Place) -> None:
    """LOST: a truncation shares no entry, so behind another commit it is put off, and who asked later is not: the third
    commit goes in front of the second one, which takes its row away. All wait while an entry is under way."""
    two_topics(memory)
    ns, store = memory.wrapped(FaultyStore)
    under_way, go_on = threading.Event(), threading.Event()

    def slow() -> None:
        under_way.set()
        go_on.wait(30)

    ahead, first, second, third = ns.begin(), ns.begin(), ns.begin(), ns.begin()
    ahead.produce("audit", rows(0), partition=0)
    first.produce("orders", rows(1), partition=0)
    second.truncate("orders")
    second.produce("orders", rows(2), partition=0)
    third.produce("orders", rows(3), partition=0)
    refused(second, store)
    store.script.append(slow)
    futures = [ahead.commit_async()]
    assert under_way.wait(30)
    futures += [txn.commit_async() for txn in (first, second, third)]
    go_on.set()
    versions = [future.result(30).version for future in futures]
    assert numbers(ns) == [2, 3]
    assert versions == sorted(versions)


def test_closing_finishes_what_was_submitted(memory: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """LIE: "what was submitted is finished by ns.close()" (commit_async). A truncation that has to be prepared again
    meanwhile, since another process brought a partition its first message, ends with "the handle was closed"."""
    other, ns = two_topics(memory), memory.open()
    begun = threading.Event()

    def meanwhile_closed() -> None:
        begun.set()
        time.sleep(0.3)  # the handle is being closed
        other.produce("audit", rows(5), partition=1)

    meanwhile(monkeypatch, meanwhile_closed)
    txn = ns.begin()
    txn.truncate("audit")
    txn.produce("audit", rows(9), partition=0)
    future = txn.commit_async()
    begun.wait(30)
    ns.close()
    assert future.result(30).version == other.snapshot().version
    assert numbers(other, "audit") == [9]


# --- complete results: who else wrote ---------------------------------------------------------------------------------


def complete(ns: Any, batch: int, since: int | None, *values: int) -> Any:
    """What a batch of a query in the mode ``complete`` does. Returns its transaction, to be committed."""
    txn = ns.begin()
    set_stream(txn, StreamBatch("query", "query", batch, ""))
    truncate(txn, "orders", Wanted(owned_since=since))
    txn.produce("orders", rows(*values), partition=0)
    return txn


def test_rows_of_others_are_found_although_they_were_merged(memory: Place) -> None:
    """LOST: docs/spark.md says that the query stops if somebody else wrote to the topic since the last batch. It does
    not once a merge, also one of the background, took the rows: they go without a word."""
    ns, other = two_topics(memory), memory.open()
    since = complete(ns, 0, None, 1).commit().version
    other.produce("orders", rows(2), partition=0)
    other.optimize("orders")
    with pytest.raises(InvalidInputError, match="somebody else wrote"):
        complete(ns, 1, since, 3).commit()
    assert numbers(ns) == [1, 2]


@pytest.mark.parametrize("first", [True, False])
def test_rows_of_others_come_in_another_entry_than_a_complete_result(memory: Place, *, first: bool) -> None:
    """LOST: another commit of the same process shared the entry of a batch, and so its version. Its row was visible
    next to the complete result, no check found it, and the next batch took it away without a word."""
    two_topics(memory)
    ns, store = memory.wrapped(FaultyStore)
    batch, other = complete(ns, 0, None, 1), ns.begin()
    other.produce("orders", rows(2), partition=0)
    refused(batch, store)  # so that it is prepared
    order = [batch, other] if first else [other, batch]
    found = {txn.id: future for txn in order for future in [txn.commit_async()]}
    since, version = found[batch.id].result(30).version, found[other.id].result(30).version
    assert (since < version) is first
    assert since != version
    assert numbers(ns, version=since) == [1]
    if first:
        with pytest.raises(InvalidInputError, match="somebody else wrote"):
            complete(ns, 1, since, 3).commit()
        assert numbers(ns) == [1, 2]


def test_the_batch_itself_that_came_late_is_nobody_else(memory: Place) -> None:
    """LIE, an error of the wrong kind: the first attempt at a batch (a driver that was taken for dead, or an unknown
    outcome) comes into the log while its repetition runs. That is not skipped, but refused: "somebody else wrote"."""
    ns, zombie = two_topics(memory), memory.open()
    since = complete(ns, 0, None, 1).commit().version
    again = complete(ns, 1, since, 3)
    complete(zombie, 1, since, 3).commit()
    ns.snapshot()
    assert again.commit().skipped
    assert numbers(ns) == [3]


# --- smaller ones -----------------------------------------------------------------------------------------------------


def test_there_is_nothing_to_be_acknowledged_in_a_topic_without_messages(memory: Place) -> None:
    """LIE: "of the messages of 'orders' subscriptions have not acknowledged some: 'billing' 6", where no message is
    left. Who has no consumer at work can neither wait nor acknowledge, though nothing can be lost."""
    ns = two_topics(memory)
    consumer = ns.consumer("orders", "billing")
    consumer.acknowledge(consumer.receive(max_messages=4))
    consumer.close()
    with ns.begin() as txn:
        txn.truncate("orders", allow_unacknowledged=True)
    assert numbers(ns) == []
    with ns.begin() as txn:
        txn.truncate("orders")
        txn.produce("orders", rows(1))
    assert numbers(ns) == [1]


def test_the_deadline_counts_from_the_first_call(memory: Place) -> None:
    """LIE: docs/python.md has the deadline begin with the first call of a transaction. With truncate() it does not."""
    ns = two_topics(memory)
    txn = ns.begin(timeout_ms=20)
    txn.truncate("orders")
    time.sleep(0.1)
    with pytest.raises(TransactionTimedOut):
        txn.commit()


# --- in the background ------------------------------------------------------------------------------------------------


def test_a_truncation_in_the_background_that_nobody_planned(memory: Place) -> None:
    """LIE, a bug in place of an error: the same, and the interrupted commit() fails at the store. The Future raises
    AssertionError ("they were planned"), which is no TxnLogError and says nothing of what is durable."""
    two_topics(memory)

    def fail() -> None:
        time.sleep(1.0)
        raise StoreError("no space left", durable=Durable.NOTHING)

    ns, slow = slow_file(memory, fail)
    whole = ns.begin()
    whole.truncate("orders")
    whole.produce("orders", rows(1), partition=0)
    slow.came = False
    limited(whole.commit)
    whole.commit_async().result(30)
    assert numbers(ns) == [1]


def test_commit_async_after_an_unknown_outcome_ends_some_time(memory: Place) -> None:
    """HANG: after OutcomeUnknown nothing is planned again in the background, so once a checkpoint was written each
    commit_async() raises RetriableError, "commit() again": who does that by commit_async goes round for ever."""
    other = two_topics(memory)
    ns, store = memory.wrapped(FaultyStore)
    txn = of_unknown_outcome(ns, store, lambda txn: txn.commit_async().result(30))
    other.produce("audit", rows(5), partition=0)
    ns.checkpoint()
    for _ in range(20):
        try:
            txn.commit_async().result(30)
        except RetriableError:
            continue
        break
    assert numbers(other) == [77]
