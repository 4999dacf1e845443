"""Where no thread can be started, as at a container's limit, and calls in the middle of the client's own work.

No call waits for ever, none is made twice, and what an error calls not written is not there later.
"""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from tests.client.support import SCHEMA, Place, begun, has_no_thread, raises, read, rows, wait_for
from tests.client.thread_limit import Limit
from tests.forks import in_child
from txnlog.common.limits import PARALLEL_REQUESTS
from txnlog.engine.engine import callbacks_of_process
from txnlog.engine.runtime import Runtime
from txnlog.errors import InvalidTransactionState, RetriableError


def test_a_callback_whose_thread_could_not_be_started_once_is_called_later(
    memory: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The Futures themselves have their results at once."""
    ns = memory.orders()
    limit = Limit(monkeypatch, "txnlog-callbacks")
    wait_for(lambda: has_no_thread(callbacks_of_process()))
    called: list[int] = []
    with limit:
        futures = []
        for number in range(2):
            txn = begun(ns, number)
            futures.append(txn.commit_async())
            futures[-1].add_done_callback(lambda _, number=number: called.append(number))
        for future in futures:
            assert future.result(10).offsets
        wait_for(lambda: bool(limit.refused))
        assert not called
    wait_for(lambda: called == [0, 1])


def test_a_handle_whose_check_found_no_thread_once_goes_on(memory: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first append of a handle, and one after an idle minute, looks at the root in a thread of its own."""
    memory.open().create_topic("orders", SCHEMA)
    ns = memory.open()
    limit = Limit(monkeypatch, "txnlog-job")
    limit.on = True
    results: list[object] = []

    def produce() -> None:
        try:
            results.append(ns.produce("orders", rows(1)))
        except BaseException as error:  # noqa: BLE001 - any end would do
            results.append(error)

    threading.Thread(target=produce, daemon=True).start()
    wait_for(lambda: bool(limit.refused) or bool(results))
    limit.on = False
    threading.Thread(target=lambda: results.append(ns.produce("orders", rows(2))), daemon=True).start()
    deadline = time.monotonic() + 8
    while len(results) < 2 and time.monotonic() < deadline:
        time.sleep(0.01)
    hung = len(results) < 2
    if hung:
        memory.opened.remove(ns)  # its close() would wait for ever, too
    assert not hung, "threads can be started again, and calls wait for ever"
    assert len(read(ns)) == sum(not isinstance(item, BaseException) for item in results)


def test_a_call_that_found_no_engine_thread_does_nothing_later(memory: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    ns = memory.orders(0)
    wait_for(has_no_thread)
    limit = Limit(monkeypatch, "txnlog-engine")
    with limit, pytest.raises(RetriableError, match="nothing was written"):
        ns.produce("orders", rows(1))
    assert limit.refused
    ns.produce("orders", rows(2))
    assert read(ns) == [0, 2]


def test_a_request_for_which_a_pool_found_no_thread_is_made_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """The pool has queued it by then: who makes it itself must not have it made again, when the call has ended."""
    runtime, made = Runtime(), list[int]()
    limit = Limit(monkeypatch)
    limit.on = True
    runtime._run_in_pool(lambda: made.append(1))
    limit.on = False
    runtime._run_in_pool(lambda: made.append(2))
    wait_for(lambda: 2 in made)
    assert limit.refused
    runtime.close()
    wait_for(lambda: len(runtime._crew._free) == PARALLEL_REQUESTS)  # nothing is queued
    assert made == [1, 2]


# --- calls in the middle of the client's own work -------------------------------------------------------------------


_GENERATORS = """
import faulthandler, os, sys
import pyarrow as pa
import txnlog
faulthandler.dump_traceback_later(60, exit=True)
ns = txnlog.open(sys.argv[1], namespace="sales", create=True)
ns.create_topic("orders", pa.schema([("id", pa.int64())]))

def work(n):
    with ns.begin() as txn:
        txn.produce("orders", [{"id": n}])
        txn.flush()
        yield txn

class Job:
    def __init__(self, n):
        self.me = self  # a cycle, as exceptions and callbacks make them
        self.step = work(n)
        next(self.step)

for n in range(100):
    Job(n)
    ns.produce("orders", [{"id": n}])
    print(n, flush=True)
print("through")
os._exit(0)
"""


def test_generators_that_are_left_behind_with_a_transaction_hold_up_nobody(tmp_path: Path) -> None:
    """Nothing is forced: Python's own collector, a local root, a with-block in a generator that nobody went through."""
    done = subprocess.run(
        [sys.executable, "-c", _GENERATORS, tmp_path], capture_output=True, text=True, timeout=90, check=False
    )
    assert done.returncode == 0, done.stdout[-300:] + done.stderr[-3000:]
    assert "through" in done.stdout


def test_a_forked_child_does_not_wait_for_a_future_of_its_parent(memory: Place) -> None:
    ns, store = memory.faulty_orders()
    answered = threading.Event()
    store.script.append(lambda: answered.wait(20))
    txn = begun(ns, 1)
    future = txn.commit_async()
    with raises(InvalidTransactionState, match="forked from"):
        in_child(future.result)
    answered.set()
    assert future.result(20).offsets == {("orders", 0): range(1)}


_REFUSED = """
import sys, time, threading
import pyarrow as pa
import txnlog
from txnlog.errors import RetriableError
ns = txnlog.open(sys.argv[1], namespace="sales", create=True)
ns.create_topic("orders", pa.schema([("id", pa.int64())]))
ns.produce("orders", [{"id": 1}])
consumer = ns.consumer("orders", "billing")
messages = consumer.receive(1)
txn = ns.begin()
txn.produce("orders", [{"id": 2}])
time.sleep(3)  # its threads end
# as at a container's limit
def refuse(*a, **k):
    raise RuntimeError("can't start new thread")
threading._start_new_thread = refuse
try:
    CALL
except RetriableError as error:
    print("refused", error, flush=True)
print("through", flush=True)
"""


@pytest.mark.some(1)
@pytest.mark.parametrize("call", ["txn.commit_async().exception(5)", "consumer.close()"])
def test_the_end_of_a_process_does_not_wait_for_what_was_refused(tmp_path: Path, call: str) -> None:
    """HANG, for a minute, and LIE: "nothing was written", and at the end "calls were not finished"."""
    began = time.monotonic()
    done = subprocess.run(
        [sys.executable, "-c", _REFUSED.replace("CALL", call), tmp_path],
        capture_output=True,
        text=True,
        timeout=90,
        check=False,
    )
    assert "through" in done.stdout, done.stderr
    assert "were not finished" not in done.stderr
    assert time.monotonic() - began < 30, "half of the time that an end waits"
