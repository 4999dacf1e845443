"""Closing a handle: what it finishes, what it refuses afterwards, and that nobody hangs."""

from __future__ import annotations

import gc
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import txnlog
from tests.client.support import SCHEMA, FaultyStore, Place, Unchanged, begun, raises, read, rows, run_threads, wait_for
from tests.descriptors import descriptors
from txnlog.engine import runtime
from txnlog.errors import Durable, InvalidTransactionState, OutcomeUnknown
from txnlog.store import LocalStore


def test_after_close_every_call_is_refused(ns: Any, place: Place) -> None:
    ns.produce("orders", rows(1))
    snapshot, producer = ns.snapshot(), ns.producer("loader")
    consumer = ns.consumer("orders", "billing")
    messages = consumer.receive(timeout_ms=0)
    txn, named = ns.begin(), producer.begin()
    done = begun(ns, 2)
    result = done.commit()
    ns.close()
    ns.close()
    for call in (
        ns.topics,
        ns.snapshot,
        ns.begin,
        ns.transactions,
        ns.checkpoint,
        lambda: ns.topic("orders"),
        lambda: ns.produce("orders", rows(1)),
        lambda: ns.producer("other"),
        lambda: ns.consumer("orders", "billing"),
        lambda: ns.abort(txn.id),
        lambda: snapshot.read("orders"),
        lambda: snapshot.end_offsets("orders"),
        producer.begin,
        lambda: producer.last_sequence("orders", 0),
        lambda: consumer.receive(timeout_ms=0),
        lambda: consumer.acknowledge(messages),
        lambda: txn.produce("orders", rows(1)),
        txn.flush,
        txn.commit,
        named.commit,
    ):
        with Unchanged(place), raises(InvalidTransactionState, match="closed"):
            call()
    assert isinstance(txn.commit_async().exception(10), InvalidTransactionState)
    assert done.commit() is result
    assert "closed" in repr(ns)
    assert str(txn.id) in repr(txn)
    producer.close()
    consumer.close()


def test_a_closed_namespace_keeps_nothing_open_on_its_disk_while_a_scan_reads_on(local: Place) -> None:
    """LEAK: docs/stores.md says that the file system can be unmounted; its folders stayed open with the handle."""
    folder = Path(local.root)
    with txnlog.open(folder, namespace="sales", create=True) as ns:
        ns.create_topic("orders", SCHEMA)
        for number in range(20):
            ns.produce("orders", rows(number))
        scan = ns.snapshot().scan("orders")
        first = next(scan)
        assert descriptors(folder)
    assert not descriptors(folder)
    assert first.num_rows + sum(part.num_rows for part in scan) == 20
    assert not descriptors(folder)


def test_a_store_that_was_given_is_closed_by_its_owner(tmp_path: Path) -> None:
    store = LocalStore(tmp_path)
    first, second = (txnlog.open("lake", name, create=True, store=store) for name in ("sales", "stock"))
    for ns in (first, second):
        ns.create_topic("orders", SCHEMA)
        ns.produce("orders", rows(1))
    first.close()
    assert descriptors(tmp_path)
    second.produce("orders", rows(2))
    second.close()
    store.close()
    assert not descriptors(tmp_path)


def test_a_with_block_closes(place: Place) -> None:
    with place.open() as ns:
        ns.create_topic("orders", SCHEMA)
    with raises(InvalidTransactionState, match="closed"):
        ns.topics()


def test_close_finishes_a_commit_that_has_not_come_to_its_entry(
    ns: Any, place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another call of the transaction began at the same moment, and was first."""
    txn = begun(ns, 1)
    monkeypatch.setattr(type(txn._machine), "must_get_ready", False)  # the other one has not begun yet
    runtime, held, go = ns._connection.runtime, threading.Event(), threading.Event()

    def wait() -> None:
        held.set()
        go.wait(30)

    async def busy() -> None:
        async with txn._machine._turn:
            await runtime.request(wait)

    runtime.engine.post(busy)
    assert held.wait(30)
    future = txn.commit_async()
    closing = threading.Thread(target=ns.close)
    closing.start()
    closing.join(0.1)
    assert closing.is_alive()
    go.set()
    closing.join(30)
    assert future.result(0).offsets
    assert read(place.open()) == [1]


def test_close_ends_no_transaction(ns: Any, place: Place) -> None:
    txn = begun(ns, 1, flush=True)
    ns.close()
    assert place.open().transaction(txn.id).state == "OPEN"


def test_close_warns_of_transactions_that_nobody_ended(ns: Any, caplog: pytest.LogCaptureFixture) -> None:
    """A commit that was forgotten looks like one that was made, until somebody misses the rows."""

    def begun(then: Callable[[Any], object] = lambda _: None, number: int = 1) -> Any:
        txn = ns.begin()
        if number:
            txn.produce("orders", rows(number))
        then(txn)
        return txn

    ns.produce("orders", rows(0))
    taken = ns.begin()
    taken.acknowledge(ns.consumer("orders", "billing").receive(timeout_ms=0))
    left = [begun(), begun(lambda txn: txn.flush()), taken]
    ended = [begun(lambda txn: txn.commit()), begun(lambda txn: txn.abort()), begun(lambda txn: txn.prepare())]
    empty = begun(number=0)
    ended.append(begun(lambda txn: ns.abort(txn.id)))
    for _ in range(3):
        ns.close()
    (warning,) = [record.getMessage() for record in caplog.records if record.name == "txnlog.transaction"]
    assert [f"{txn.id} (topic 'orders')" in warning for txn in left] == [True] * 3
    assert not [txn for txn in (*ended, empty) if str(txn.id) in warning]


def test_close_names_the_first_of_many(ns: Any, caplog: pytest.LogCaptureFixture) -> None:
    left = [ns.begin() for _ in range(10)]
    for number, txn in enumerate(left):
        txn.produce("orders", rows(number))
    ns.close()
    assert " and 2 more. Nothing of them is visible" in caplog.messages[-1]


def test_close_says_nothing_of_transactions_whose_end_is_unknown(memory: Place, caplog: Any) -> None:
    """Who was told with an error that it is unknown need not be told that it is not there."""
    ns, store = memory.faulty_orders()
    txn = begun(ns, 1)
    store.forever, store.reads_forever = "lost", "broken"
    with raises(OutcomeUnknown, durable=Durable.MAYBE):
        txn.commit()
    store.heal()
    ns.close()
    del txn
    gc.collect()
    assert "with work" not in caplog.text


def _held_a_moment(store: FaultyStore) -> threading.Event:
    """The next entry takes a moment; the event says that it is under way."""
    begun = threading.Event()

    def hold() -> None:
        begun.set()
        time.sleep(0.02)

    store.script.append(hold)
    return begun


def test_close_finishes_what_was_committed_in_the_background(memory: Place) -> None:
    ns, store = memory.faulty_orders()
    transactions = [ns.begin() for _ in range(5)]
    for number, txn in enumerate(transactions):
        txn.produce("orders", rows(number))
    begun = _held_a_moment(store)
    futures = [txn.commit_async() for txn in transactions]
    assert begun.wait(20)
    ns.close()
    assert all(future.done() for future in futures)
    assert sorted(read(memory.open())) == [0, 1, 2, 3, 4]


def test_close_while_commits_wait_leaves_nobody_hanging(memory: Place) -> None:
    ns, store = memory.faulty_orders()
    transactions = [ns.begin() for _ in range(8)]
    for number, txn in enumerate(transactions):
        txn.produce("orders", rows(number))
    begun = _held_a_moment(store)

    def close() -> None:
        begun.wait(20)
        ns.close()

    results = run_threads(*[txn.commit for txn in transactions], close)
    found = sorted(read(memory.open()))
    for number, result in enumerate(results[:-1]):
        assert (number in found) == (not isinstance(result, Exception))
        assert not isinstance(result, Exception) or isinstance(result, InvalidTransactionState)


def test_close_with_a_store_that_never_answers_ends(memory: Place) -> None:
    ns, store = memory.faulty_orders()
    transactions = [ns.begin() for _ in range(5)]
    for number, txn in enumerate(transactions):
        txn.produce("orders", rows(number))
    store.forever = "dropped"
    futures = [txn.commit_async() for txn in transactions]
    ns.close()
    assert all(isinstance(future.exception(30), txnlog.errors.TxnLogError) for future in futures)
    assert any(isinstance(future.exception(30), OutcomeUnknown) for future in futures)


def test_closing_and_opening_leaves_no_thread_behind(memory: Place) -> None:
    before = threading.active_count()
    for _ in range(3):
        with memory.open() as ns:
            ns.create_topic("orders", SCHEMA, if_not_exists=True)
            txn = begun(ns, 1)
            txn.commit_async().result(30)
            ns.checkpoint()
    wait_for(lambda: threading.active_count() <= before)  # those with nothing to do end after a second


# --- a process that ends without closing anything -------------------------------------------------------------------

_COMMITS = """
import txnlog
ns = txnlog.open({root!r}, namespace="sales")
told = []
for number in range(30):
    txn = ns.begin()
    txn.produce("orders", [{{"id": number}}])
    future = txn.commit_async()
    {after}
{last}
"""


def _run(place: Place, last: str = "", after: str = "", before: str = "") -> subprocess.CompletedProcess[str]:
    with place.open() as ns:
        ns.create_topic("orders", SCHEMA)
    script = before + _COMMITS.format(root=place.root, last=last, after=after)
    return subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=False)


@pytest.mark.some(1)
@pytest.mark.parametrize(
    "last",
    ["", "raise SystemExit(0)", "import os; os.fork() or None"],
    ids=["the script ends", "it exits", "a forked child ends as well"],
)
def test_what_was_submitted_is_finished_when_the_process_ends(local: Place, last: str) -> None:
    done = _run(local, last)
    assert (done.returncode, done.stderr) == (0, "")
    assert sorted(read(local.open())) == list(range(30)), "each once"


def test_what_a_thread_submits_after_the_script_is_finished(local: Place) -> None:
    last = """
import threading, time
def late():
    threading.main_thread().join()
    time.sleep(0.2)
    txn = ns.begin()
    txn.produce("orders", [{"id": 30 + n} for n in range(3)], partition=0)
    txn.commit_async()
threading.Thread(target=late).start()
"""
    done = _run(local, last)
    assert (done.returncode, done.stderr) == (0, "")
    assert sorted(read(local.open())) == list(range(33))


def test_callbacks_run_before_the_process_ends(local: Place) -> None:
    done = _run(local, after="future.add_done_callback(lambda f: print(f.result().version))")
    assert done.stderr == ""
    assert len(done.stdout.split()) == 30


def test_a_handle_can_be_used_by_what_runs_as_the_process_ends(local: Place) -> None:
    done = _run(local, 'import atexit; atexit.register(lambda: ns.produce("orders", [{"id": 99}]))')
    assert (done.returncode, done.stderr) == (0, "")
    assert sorted(read(local.open())) == [*range(30), 99]


@pytest.mark.parametrize("asked", [False, True])
def test_a_failure_in_the_background_is_logged_at_the_end_where_nobody_asked_for_it(local: Place, asked: bool) -> None:
    last = """
import shutil
shutil.rmtree(ns._connection.root)
late = ns.begin()
late.produce("orders", [{"id": 99}])
late = late.commit_async()
"""
    done = _run(local, last + "print(late.exception())" if asked else last, after="future.result()")
    assert ("a call in the background failed, and nobody asked its Future" in done.stderr) is not asked


def test_who_asks_while_it_fails_asked(local: Place) -> None:
    last = """
from txnlog.engine.promises import Promise

class AskedMeanwhile(Exception):
    def __str__(self):
        promise.add_done_callback(lambda _: None)
        return "it failed"

promise = Promise(lambda step: step())
promise.set_exception(AskedMeanwhile())
"""
    assert _run(local, last).stderr == ""


def test_a_failure_is_not_reported_while_a_thread_may_ask_for_it(local: Place) -> None:
    last = """
import shutil, threading, time
shutil.rmtree(ns._connection.root)
late = ns.begin()
late.produce("orders", [{"id": 99}])
late = late.commit_async()
def ask():
    threading.main_thread().join()
    time.sleep(0.2)
    print("asked", type(late.exception()).__name__)
threading.Thread(target=ask).start()
"""
    done = _run(local, last, after="future.result()")
    assert "asked" in done.stdout
    assert "nobody asked" not in done.stderr


def test_a_commit_that_fails_at_once_is_reported_at_the_end_too(local: Place) -> None:
    last = """
import time
late = ns.begin(timeout_ms=1)
late.produce("orders", [{"id": 99}])
time.sleep(0.05)
late.commit_async()
"""
    done = _run(local, last, after="future.result()")
    assert "a call in the background failed, and nobody asked its Future" in done.stderr


def test_threads_that_go_on_and_on_do_not_keep_the_process(local: Place) -> None:
    last = """
import threading, time
def for_ever():
    while True:
        ns.produce("orders", [{"id": 99}])
for _ in range(2):
    threading.Thread(target=for_ever, daemon=True).start()
time.sleep(0.3)
"""
    done = _run(local, last)
    assert done.returncode == 0
    assert set(range(30)) <= set(read(local.open()))


def test_a_callback_that_exits_costs_the_others_nothing(local: Place) -> None:
    done = _run(local, after="future.add_done_callback(lambda f, n=number: exit() if n == 0 else print(n))")
    assert sorted(map(int, done.stdout.split())) == list(range(1, 30)), done.stderr


@pytest.mark.parametrize(
    ("last", "after"),
    [
        ("", "future.add_done_callback(lambda f: exit()); told.append(future)"),
        (
            """
import threading, time
def serve():
    threading.main_thread().join()
    time.sleep(2.5)
    txn = ns.begin()
    txn.produce("orders", [{"id": 30}])
    told.append(txn.commit_async())
threading.Thread(target=serve).start()
""",
            "",
        ),
    ],
    ids=["a callback exits, and its Future is kept", "another thread goes on for longer"],
)
def test_the_end_waits_for_what_is_under_way_and_for_nothing_else(local: Place, last: str, after: str) -> None:
    """Two seconds are all that it may wait here."""
    done = _run(local, last, after, before="import txnlog.engine.promises\ntxnlog.engine.promises._end._left_s = 2.0\n")
    assert "not finished" not in done.stderr
    assert sorted(read(local.open())) == list(range(31 if last else 30))


def test_closing_a_producer_of_a_closed_handle_is_no_news_where_the_log_shows_nothing(
    sales: Any, caplog: pytest.LogCaptureFixture
) -> None:
    producer = sales.producer("loader")
    txn = begun(producer, 1)
    sales.close()
    with raises(InvalidTransactionState, match="closed") as caught:
        txn.commit()
    assert "begin a new one: nothing of this becomes visible" in caught.value.advice
    caplog.clear()
    producer.close()
    assert not caplog.records


@pytest.mark.some(1)
@pytest.mark.parametrize("under_way", ["ns.produce('orders', [{'id': 7}])", "late.commit()"])
def test_a_signal_that_closes_what_appends_waits_for_nobody(local: Place, under_way: str) -> None:
    """The handler runs above the call that it would wait for."""
    last = f"""
import faulthandler, signal, threading
faulthandler.dump_traceback_later(45, exit=True)
late = ns.begin()
late.produce("orders", [{{"id": 99}}])
appender = ns._connection.appender
put = appender._put_entry
async def signalled(*arguments):
    appender._put_entry = put
    signal.pthread_kill(threading.main_thread().ident, signal.SIGTERM)
    return await put(*arguments)
signal.signal(signal.SIGTERM, lambda *_: ns.close())
appender._put_entry = signalled
{under_way}
ns.close()
print("through")
"""
    assert "through" in _run(local, last, after="future.result()").stdout


@pytest.mark.real_runtime
def test_closing_waits_for_no_callback_of_another_handle(memory: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """All handles of a process share the thread of the callbacks: who has no Futures does not wait for it."""
    monkeypatch.setattr(runtime, "_CALLBACKS_MS", 20_000.0)
    memory.orders()
    ns, store = memory.wrapped(FaultyStore)
    other = memory.open("other")
    other.create_topic("x", SCHEMA)
    began, go_on, closed = threading.Event(), threading.Event(), threading.Event()
    registered = threading.Event()
    store.script.append(lambda: registered.wait(30))

    def long(_future: object) -> None:
        began.set()
        go_on.wait(30)

    txn = ns.begin()
    txn.produce("orders", rows(1))
    txn.commit_async().add_done_callback(long)
    registered.set()
    assert began.wait(30)

    def close() -> None:
        other.close()
        closed.set()

    closing = threading.Thread(target=close)
    closing.start()
    try:
        assert closed.wait(10)
    finally:
        go_on.set()
        closing.join()
