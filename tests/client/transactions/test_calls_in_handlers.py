"""A call inside another call of the same thread: what a signal's handler or a finalizer does at any place of a call."""

from __future__ import annotations

import contextlib
import itertools
import subprocess
import sys
import threading
import uuid
from collections.abc import Callable
from functools import partial
from pathlib import Path
from types import FrameType
from typing import Any

import pytest
from fsspec.implementations.memory import MemoryFileSystem

import txnlog
from tests.client.support import SCHEMA, Place, begun, has_no_thread, rows, take, wait_for
from txnlog.client import session_owner
from txnlog.engine import engine, worker
from txnlog.errors import TxnLogError
from txnlog.store import FsspecStore, fsspec_store
from txnlog.store.fsspec_store import Backend
from txnlog.store.identity import make_identity

_PATIENCE_S = 10
_PACKAGE = str(Path(txnlog.__file__).parent)
_THREADING = str(threading.__file__)


@pytest.fixture(autouse=True)
def _an_engine_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """What hangs keeps the engine, too."""
    monkeypatch.setattr(engine, "_of_process", {})


def _comes_through(call: Callable[[], object], inside: Callable[[], object], files: str, place: int) -> bool:
    """Call, and call something else at a place of these files; False where the call ends before. Fails where it hangs.

    In a thread of its own, as a finalizer comes in any, so that what hangs does not keep the test. A handler of a
    signal is called at the same places of the main thread.
    """
    seen, came, ended, where = 0, False, threading.Event(), ""

    def profile(frame: FrameType, event: str, _: object) -> None:
        nonlocal seen, came, where
        if event in {"call", "c_return"} and frame.f_code.co_filename.startswith(files):
            seen += 1
            if seen == place:
                sys.setprofile(None)
                came, where = True, f"{frame.f_code.co_filename}:{frame.f_lineno}"
                inside()

    def work() -> None:
        sys.setprofile(profile)
        try:
            with contextlib.suppress(TxnLogError):
                call()
        finally:
            sys.setprofile(None)
            ended.set()

    threading.Thread(target=work, daemon=True).start()
    assert ended.wait(_PATIENCE_S), f"the call inside the other one waits for ever: called at {where}"
    return came


def _opened(local: Place, name: str = "sales") -> Any:
    """A handle that the end of the test does not close: it would wait for ever, too, where a call does."""
    ns = local.open(name)
    local.opened.remove(ns)
    ns.create_topic("orders", SCHEMA, if_not_exists=True)
    return ns


def _begun(ns: Any) -> Any:
    return begun(ns, 2)


def _over_fsspec() -> tuple[Any, FsspecStore]:
    """A handle over a library's file system, which the first request opens."""
    identity = make_identity("fsspec/memory", "", uuid.uuid4().hex)
    backend = Backend(
        lambda: MemoryFileSystem(skip_instance_cache=True), f"/{identity.endpoint_hash}", "x://r", identity
    )
    store = FsspecStore(backend)
    ns = txnlog.open("x://r", namespace="sales", store=store, create=True)
    ns.create_topic("orders", SCHEMA)
    return ns, store


def test_so_does_who_commits_inside_of_the_first_request_of_a_librarys_file_system() -> None:
    """HANG: the thread had the lock under which the file system is opened, and each request of the engine wants it."""
    ns, store = _over_fsspec()
    for place in itertools.count(1):
        store._opened.clear()  # as in a forked child
        if not _comes_through(ns.snapshot, _begun(ns).commit, str(fsspec_store.__file__), place):
            break
    assert place > 2, "places"


def test_so_does_who_commits_inside_of_the_first_call_of_a_forked_child(local: Place) -> None:
    """HANG: the thread had the lock under which the child opens the namespace again."""
    ns = _opened(local)
    for place in itertools.count(1):
        ns._connection._begin_in_child()
        if not _comes_through(ns.topics, lambda: _begun(ns).commit(), str(session_owner.__file__), place):
            break
    assert place > 2, "places"
    assert ns.produce("orders", rows(3)).version


@pytest.mark.parametrize("called", ["producer.produce", "consumer.receive", "ns.begin", "commit"])
def test_who_commits_in_a_handler_or_a_finalizer_inside_of_a_call_comes_through(local: Place, called: str) -> None:
    """HANG: whoever commits or produces in the handler of SIGTERM or SIGALRM, or in ``__del__``.

    The thread has a lock (of the follower, the pool of numbers, the counts of requests, the worker) that the engine
    wants for the entry for which the thread waits.
    """
    ns = _opened(local)
    ns.produce("orders", rows(0))
    producer, consumer = ns.producer("loader"), ns.consumer("orders", "billing")
    calls: dict[str, Callable[[], object]] = {
        "producer.produce": lambda: producer.produce("orders", rows(1)),
        "consumer.receive": lambda: take(consumer),
        "ns.begin": ns.begin,
        "commit": lambda: _begun(ns).commit(),
    }
    for place in itertools.count(1):
        consumer.redeliver_unacknowledged()
        if not _comes_through(calls[called], _begun(ns).commit, _PACKAGE, place):
            break
    assert place > 2, "places"


def test_who_closes_in_a_handler_inside_of_a_call_comes_through(local: Place) -> None:
    """HANG: the same for ``ns.close()``, where commits in the background are under way."""
    for place in itertools.count(1):
        ns = _opened(local, f"ns{place}")
        ns.produce("orders", rows(0))
        consumer, txns = ns.consumer("orders", "billing"), [_begun(ns) for _ in range(3)]

        def close(ns: Any = ns, txns: Any = txns) -> None:
            for txn in txns:
                txn.commit_async()
            ns.close()

        if not _comes_through(partial(take, consumer), close, _PACKAGE, place):
            break
    assert place > 2, "places"


def test_a_producer_that_is_closed_inside_of_its_begin_is_closed(local: Place) -> None:
    """HANG: whoever closes a producer in the handler of SIGTERM while the main thread begins a transaction of it."""
    ns = _opened(local)
    for place in itertools.count(1):
        own = ns.producer()
        if not _comes_through(own.begin, own.close, str(Path(_PACKAGE) / "api"), place):
            break
    assert place > 2, "places"


def test_a_commit_inside_of_the_call_that_starts_the_engines_thread_ends(
    local: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    """HANG: the first call after an idle second starts the thread with the lock of the worker, which that needs."""
    monkeypatch.setattr(worker, "_IDLE_MS", 1.0)
    ns = _opened(local)
    for place in itertools.count(1):
        wait_for(has_no_thread)
        if not _comes_through(partial(ns.produce, "orders", rows(1)), _begun(ns).commit, str(worker.__file__), place):
            break
    assert place > 2, "places"


_AMID_A_TIMER = """
import faulthandler, signal, sys, time
import pyarrow as pa
import txnlog
faulthandler.dump_traceback_later(30, exit=True)
ns = txnlog.open(sys.argv[1], namespace="sales", create=True)
for topic in ("orders", "audit"):
    ns.create_topic(topic, pa.schema([("id", pa.int64())]))
producer, consumer = ns.producer("loader"), ns.consumer("orders", "billing")
calls = 0

def report(*_):
    global calls
    calls += 1
    ns.produce("audit", [{"id": calls}])
    signal.setitimer(signal.ITIMER_REAL, 0.0131)

signal.signal(signal.SIGALRM, report)
signal.setitimer(signal.ITIMER_REAL, 0.0131)
began = time.monotonic()
while time.monotonic() - began < SECONDS:
    WORK
signal.setitimer(signal.ITIMER_REAL, 0)
print("through", calls)
"""

_CONSUMING = """
    with producer.begin() as txn:
        txn.produce("orders", [{"id": calls}])
    consumer.acknowledge(consumer.receive(timeout_ms=0))
"""

_POLLING = """
    txn = ns.begin()
    txn.produce("orders", [{"id": calls}])
    future = txn.commit_async()
    while not future.done():
        pass  # something else is done meanwhile
"""


def _runs_through(folder: Path, work: str, seconds: float) -> None:
    """A program that does this again and again, and reports every 13 ms in a signal's handler, comes to its end."""
    program = _AMID_A_TIMER.replace("    WORK\n", work.lstrip("\n")).replace("SECONDS", str(seconds))
    done = subprocess.run(
        [sys.executable, "-c", program, folder], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr[-3500:]
    assert "through" in done.stdout


def test_a_timer_whose_handler_produces_stops_no_loop(tmp_path: Path) -> None:
    """HANG: nothing is forced: a program that reports every 13 ms in its handler stands still within 1 to 10 s."""
    _runs_through(tmp_path, _CONSUMING, 2.5)


@pytest.mark.parametrize("asked", ["result", "done", "exception", "add_done_callback"])
def test_a_call_inside_of_a_question_to_a_future_comes_through(local: Place, asked: str) -> None:
    """HANG: as each place of the client's code is tried by test_calls_in_handlers, here each of the Future's."""
    ns = _opened(local)
    for place in itertools.count(1):
        txn = _begun(ns)
        other = begun(ns, 3)

        def call(txn: Any = txn) -> None:
            future = txn.commit_async()
            if asked == "add_done_callback":
                future.add_done_callback(lambda _: None)
            else:
                getattr(future, asked)()

        if not _comes_through(call, other.commit, _THREADING, place):
            break
    assert place > 2


def test_a_timer_whose_handler_produces_stops_no_loop_that_polls_a_future(tmp_path: Path) -> None:
    """HANG: nothing is forced but that the program looks often."""
    _runs_through(tmp_path, _POLLING, 4)
