"""Threads that work on when the script has come to its end, and what runs then, in each Python as it is and as others.

Python 3.12.0 and 3.12.1 start no thread from the moment at which the script ends, also none for a thread that works on
(gh-113964). From 3.12.2 on, 3.12 starts none once these have ended, as for the handlers of ``atexit``. Others start
threads to the last.
"""

from __future__ import annotations

import subprocess
import sys
import time

import pytest

from tests.client.support import SCHEMA, Place, read

_REFUSE = """
import _thread, atexit, threading
ended = []
def refusing(*args, begin=threading.{start}, **named):
    if {when}:
        raise RuntimeError("can't create new thread at interpreter shutdown")
    return begin(*args, **named)
threading.{start} = refusing
"""

_START = "_start_joinable_thread" if sys.version_info >= (3, 13) else "_start_new_thread"

_AS_3_12_1 = _REFUSE.format(start=_START, when="threading._SHUTTING_DOWN") + (
    # What decides by the version of Python that it runs in.
    "import txnlog.engine.worker as worker; worker.THREADS.keeps_threads = True\n"
)
_AS_3_12_9 = _REFUSE.format(start=_START, when="ended")
_LAST = "\nimport atexit; atexit.register(ended.append, True)\n"
"""Registered last, it is called first."""

_PYTHONS = pytest.mark.parametrize(
    ("before", "behind"), [("", ""), (_AS_3_12_9, _LAST), (_AS_3_12_1, "")], ids=["this one", "3.12.9", "3.12.1"]
)

_OPEN = """
import sys, threading, time
import txnlog
ns = txnlog.open({root!r}, namespace="sales")
"""


def _run(place: Place, *parts: str) -> tuple[subprocess.CompletedProcess[str], float]:
    with place.open() as ns:
        ns.create_topic("orders", SCHEMA)
    began = time.monotonic()
    script = "".join(parts).replace("{root!r}", repr(place.root))
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=110, check=False)
    return done, time.monotonic() - began


@_PYTHONS
def test_callbacks_are_called_where_no_thread_begins_any_more(local: Place, before, behind) -> None:
    """HANG (a minute) and LOST callbacks, Python 3.12.1: a script submits, adds callbacks, and comes to its end."""
    submit = """
for number in range(5):
    txn = ns.begin()
    txn.produce("orders", [{"id": number}])
    txn.commit_async().add_done_callback(lambda future: print("called", future.result().version))
"""
    done, took_s = _run(local, before, _OPEN, submit, behind)
    assert done.stderr == ""
    assert done.stdout.count("called") == 5
    assert took_s < 45


@_PYTHONS
def test_threads_that_work_on_behind_the_script_go_on(local: Place, before, behind) -> None:
    """LIES ("make the same call again": for ever), Python 3.12.1: workers that nobody joins."""
    work = """
ns.produce("orders", [{"id": 1000}])
def work(first):
    for number in range(first, first + 2):
        time.sleep(2)  # as one who waits for work
        for _ in range(20):
            try:
                ns.produce("orders", [{"id": number}])
                break
            except txnlog.errors.RetriableError:
                time.sleep(0.1)  # as it says
        else:
            print("never")
for first in (0, 100):
    threading.Thread(target=work, args=(first,)).start()
"""
    done, _ = _run(local, before, _OPEN, work, behind)
    assert (done.stdout, done.stderr) == ("", "")
    assert sorted(read(local.open())) == [0, 1, 100, 101, 1000]


@_PYTHONS
def test_a_handle_that_was_idle_is_closed_by_atexit(local: Place, before, behind) -> None:
    """LIES, Python 3.12: ``atexit.register(ns.close)`` fails where the handle was idle for a second."""
    close = 'import atexit; atexit.register(ns.close); ns.produce("orders", [{"id": 1}]); time.sleep(3)'
    done, _ = _run(local, before, _OPEN, close, behind)
    assert done.stderr == ""


@pytest.mark.parametrize("imports", ["", "import concurrent.futures.thread, txnlog.engine.promises"])
def test_a_thread_opens_a_namespace_when_the_script_has_ended(local: Place, imports: str) -> None:
    """ERROR (RuntimeError, each time again), every Python: all work is done by threads that nobody joins."""
    script = """
import threading, time
import pyarrow
import txnlog
def work():
    threading.main_thread().join()
    time.sleep(0.2)
    with txnlog.open({root!r} + "-2", namespace="sales", create=True) as ns:
        ns.create_topic("orders", pyarrow.schema([("id", pyarrow.int64())]))
        ns.produce("orders", [{"id": 1}])
    print("done")
threading.Thread(target=work).start()
"""
    done, _ = _run(local, imports, script)
    assert (done.stdout, done.stderr) == ("done\n", "")
