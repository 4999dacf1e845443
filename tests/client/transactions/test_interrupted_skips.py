"""Ctrl-C in the commit of a batch that was done before."""

from __future__ import annotations

import contextlib
import itertools
from functools import partial
from typing import Any

import pytest

from tests.client.interrupting_store import InterruptingStore
from tests.client.support import SCHEMA, Place, begun, committed, read, wait_for
from tests.interrupts import hearing_interrupts
from txnlog.errors import InvalidTransactionState


def _has_none_open(ns: Any) -> bool:
    return not ns.transactions(state="OPEN")


@pytest.mark.parametrize("then", ["commit", "block", "abort"])
def test_the_commit_of_a_skipped_batch_is_interrupted_and_made_again(memory: Place, then: str) -> None:
    """LIE, HANG of messages: a job that is run again, writes much (flush), and is stopped by Ctrl-C.

    "Repeat the call, or abort: both return the true outcome": ``commit()`` raises KeyError from then on, and the log
    shows the transaction as open until it times out.
    """
    for request in itertools.count(1):
        store = InterruptingStore(memory.store())
        name = f"{then}{request}"
        ns, other = memory.open(name, store=store), memory.open(name)
        ns.create_topic("orders", SCHEMA)
        txn = begun(ns, 1, flush=True, txn_app_id="nightly", txn_version=1)
        committed(other, 2, txn_app_id="nightly", txn_version=1)
        with hearing_interrupts():
            end = partial(txn.__exit__, None, None, None) if then == "block" else txn.commit
            going_on = store.interrupted(end, request)
        if then == "abort" and going_on:
            with contextlib.suppress(InvalidTransactionState):  # it was committed, as skipped
                txn.abort()
        elif then == "commit":
            assert txn.commit().skipped, request
        assert read(ns) == [2]
        wait_for(partial(_has_none_open, ns))  # the commit goes on, whoever waits for it
        if not going_on:
            break
    assert request > 1, "requests"
