"""A transaction may outlive its handle: whoever closed that must not take its rows for gone."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from tests.client.support import SCHEMA, FaultyStore, Place, read, rows
from tests.forks import in_child
from txnlog.errors import Durable, InvalidTransactionState, OutcomeUnknown


@pytest.mark.parametrize("call", ["commit", "abort"])
def test_the_rows_of_a_prepared_transaction_are_not_said_to_be_gone(memory: Place, call: str) -> None:
    """DOUBLE: "open it again and begin a new one: nothing of this becomes visible". Then the token is completed."""
    ns = memory.orders()
    txn = ns.begin()
    txn.produce("orders", rows(1))
    token = txn.prepare()
    ns.close()
    with pytest.raises(InvalidTransactionState) as caught:
        getattr(txn, call)()
    followed = memory.open()
    if "begin a new one: nothing of this becomes visible" in caught.value.advice:
        followed.produce("orders", rows(1))
    followed.complete(token, commit=True)  # the outside system had committed
    assert read(followed) == [1], caught.value


def test_the_rows_of_a_prepare_without_an_answer_are_not_said_to_be_gone(memory: Place) -> None:
    """DOUBLE: likewise, "unless the outcome of its commit is unknown": it is that of its prepare."""
    ns, store = memory.faulty()
    ns.create_topic("orders", SCHEMA)
    txn = ns.begin()
    txn.produce("orders", rows(1))
    store.forever = "lost"
    store.reads_forever = "broken"
    with pytest.raises(OutcomeUnknown):
        txn.prepare()
    ns.close()
    store.heal()
    with pytest.raises(InvalidTransactionState) as caught:
        txn.prepare()
    assert caught.value.durable is Durable.MAYBE
    (prepared,) = memory.open().transactions(state="PREPARED")
    assert prepared.txn_id == txn.id
    assert "prepare" in caught.value.advice, caught.value


def _committed(txn: Any, _store: FaultyStore) -> None:
    txn.commit()


def _flushed(txn: Any, _store: FaultyStore) -> None:
    txn.flush()


def _aborted(txn: Any, _store: FaultyStore) -> None:
    txn.abort()


def _commit_unanswered(txn: Any, store: FaultyStore) -> None:
    store.forever, store.reads_forever = "lost", "broken"
    with pytest.raises(OutcomeUnknown):
        txn.commit()


@pytest.mark.parametrize(
    ("end", "says"),
    [
        (lambda _txn, _store: None, "begin a new one: nothing of this becomes visible"),
        (_aborted, "begin a new one: nothing of this becomes visible"),
        (_flushed, "nothing of this becomes visible; what the log shows stays pending until its deadline, unless"),
        (_committed, "begin a new one: this one was committed"),
        (_commit_unanswered, "the outcome of its commit is unknown; ns.abort(txn_id) makes it definite"),
    ],
)
def test_what_becomes_of_its_rows_depends_on_what_the_log_has(
    memory: Place, end: Callable[[Any, FaultyStore], None], says: str
) -> None:
    ns, store = memory.faulty()
    ns.create_topic("orders", SCHEMA)
    txn = ns.begin()
    txn.produce("orders", rows(1))
    end(txn, store)
    ns.close()
    store.heal()
    with pytest.raises(InvalidTransactionState) as caught:
        txn.produce("orders", rows(2))
    assert says in caught.value.advice


def test_a_commit_under_way_gives_its_result_after_the_handle_was_closed(
    memory: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    ns, store = memory.faulty()
    ns.create_topic("orders", SCHEMA)
    txn = ns.begin()
    txn.produce("orders", rows(1))
    sent, closed = threading.Event(), threading.Event()
    store.script.extend([sent.set, lambda: closed.wait(20), "ok"])
    with ThreadPoolExecutor() as pool:
        commit = pool.submit(txn.commit)
        assert sent.wait(20)
        closing = pool.submit(ns.close)
        while not ns._connection.is_closed:
            time.sleep(0.001)
        with monkeypatch.context() as patch:
            patch.setattr(type(txn._machine), "must_get_ready", False)  # as if the commit had begun a moment later
            refused = txn.commit_async()
        with pytest.raises(InvalidTransactionState) as caught:
            refused.result()
        late = pool.submit(txn.commit_async)
        closed.set()
        closing.result()
        assert late.result().result() == commit.result()
    assert "call commit(), which gives its result" in caught.value.advice
    assert txn.commit() == commit.result()


def test_the_child_of_a_fork_that_closed_its_handle_knows_nothing_of_the_end_in_its_parent(local: Place) -> None:
    """DOUBLE: "begin a new one: nothing of this becomes visible", and then the parent commits."""
    ns = local.orders()
    txn = ns.begin()
    txn.produce("orders", rows(1))

    def child() -> str:
        ns.close()
        with pytest.raises(InvalidTransactionState) as caught:
            txn.commit()
        return caught.value.advice

    assert in_child(child) == "make a transaction of your own"
    txn.commit()
    assert read(ns) == [1]


def test_a_closed_handle_answers_for_a_prepared_transaction_as_before_it_was_closed(memory: Place) -> None:
    ns = memory.orders()
    txn = ns.begin()
    token = txn.prepare()
    ns.close()
    assert txn.prepare() == token
    with pytest.raises(InvalidTransactionState) as caught:
        txn.commit()
    assert caught.value.durable is Durable.MAYBE
    assert "ns.complete(token, commit=...)" in caught.value.advice
