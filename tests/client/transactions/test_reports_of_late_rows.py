"""What is reported of transactions that ended as their owner wanted."""

from __future__ import annotations

import gc
import threading
from functools import partial
from typing import Any

import pytest

from tests.client.support import Place, begun, read, rows, run_threads, wait_for
from txnlog.errors import InvalidTransactionState


@pytest.mark.parametrize("end", ["commit", "abort"])
@pytest.mark.parametrize("then", ["close", "del"])
def test_a_transaction_that_ended_is_not_reported_as_lost(
    memory: Place, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, end: str, then: str
) -> None:
    """LIE: a thread's ``produce`` meets the commit (or abort) of another one, and is refused, as it should be.

    From then on the transaction counts as forgotten. At ``ns.close()``, or when it is collected, the log of Python says
    of a committed one: "Nothing of them is visible, and nothing will be". Whoever reads that does the work again.
    """
    ns = memory.orders()
    txn = begun(ns, 1, flush=True)
    meanwhile: list[object] = []
    late = threading.Thread(target=lambda: meanwhile.extend(run_threads(partial(txn.produce, "orders", rows(2)))))
    ended = threading.Event()
    put = txn._machine.work.put

    def held(found: Any) -> None:
        ended.wait(20)
        put(found)

    monkeypatch.setattr(txn._machine.work, "put", held)
    late.start()
    wait_for(late.is_alive)
    getattr(txn, end)()
    ended.set()
    late.join(30)
    assert isinstance(meanwhile[0], InvalidTransactionState)
    assert read(ns) == ([1] if end == "commit" else [])
    ns.checkpoint()  # as any writer makes by itself from time to time: the outcome is in it, and not in memory
    monkeypatch.undo()
    if then == "close":
        ns.close()
    else:
        del txn, put, held, late, meanwhile
        gc.collect()
    assert [record.getMessage() for record in caplog.records if record.name == "txnlog.transaction"] == []
