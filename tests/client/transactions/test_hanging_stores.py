"""The end of a process whose store does not answer, and what is said of a transaction that had ended in it."""

from __future__ import annotations

import gc
import subprocess
import sys
import threading
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tests.client.support import Place, begun, read, rows, run_threads, wait_for
from txnlog.errors import InvalidTransactionState

_PROGRAM = """
import sys, threading, time
import pyarrow as pa
import txnlog
from txnlog.engine import promises
from txnlog.store import HookStore, open_store

hangs, reached = False, threading.Event()

def before(call, key):
    if hangs and key.endswith(".parquet"):
        reached.set()
        time.sleep(10**6)

store = HookStore(open_store(sys.argv[1], {}), before=before)
ns = txnlog.open(sys.argv[1], namespace="sales", create=True, store=store)
topics = sys.argv[2].split(",")
for topic in topics:
    ns.create_topic(topic, pa.schema([("id", pa.int64())]))
promises._end._left_s = 3.0  # in place of a minute
hangs = True
txn = ns.begin()
for topic in topics:
    txn.produce(topic, [{"id": 1}])
future = txn.commit_async()
reached.wait(20)
print("through")
"""


@pytest.mark.some(1)
@pytest.mark.parametrize("topics", ["orders", "orders,audit"])
def test_a_process_whose_store_hangs_ends_within_a_minute(tmp_path: Path, topics: str) -> None:
    """HANG: a job whose commit in the background writes two files, to a store that does not answer (NFS, no timeout).

    "Its end waits, a minute at most": of one file that was so. Two were put by a ``ThreadPoolExecutor``, whose threads
    the interpreter joins for ever.
    """
    program = subprocess.Popen(
        [sys.executable, "-c", _PROGRAM, tmp_path, topics], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    try:
        out, _ = program.communicate(timeout=25)
    except subprocess.TimeoutExpired:
        program.kill()
        out, _ = program.communicate()
        assert "through" in out
        pytest.fail("the process does not end")
    assert program.returncode == 0
    assert "through" in out


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
