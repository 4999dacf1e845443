"""Where the process may start no thread for a moment, while a call is under way."""

from __future__ import annotations

import threading
import time

import pytest

from tests.client.support import SCHEMA, Place, begun, has_no_thread, read, rows, run_threads, wait_for
from tests.client.thread_limit import Limit
from tests.interrupts import hearing_interrupts, interrupt_main_thread
from txnlog.client import transaction_work
from txnlog.engine import engine, worker


@pytest.fixture(autouse=True)
def _an_engine_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """What hangs keeps the engine, too."""
    monkeypatch.setattr(engine, "_of_process", {})


def test_an_interrupt_while_no_thread_can_be_started_does_not_say_that_nothing_was_written(
    memory: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    """LIE, DOUBLE: who makes the same call again, as the error says; in a container at its limit of threads.

    The produce is on its way to the store. Ctrl-C, or a timeout by SIGALRM, ends the wait; to withdraw the command a
    thread is started, which fails, and that error takes the place of the interrupt: "nothing was written".
    """
    monkeypatch.setattr(worker, "_IDLE_MS", 20.0)
    monkeypatch.setattr(worker, "_MOST_ASIDE", 0)  # so that another thread makes the request, and this one ends
    ns, store = memory.faulty_orders()
    limit, gone = Limit(monkeypatch, "txnlog-engine"), threading.Event()

    def beside() -> None:
        limit.on = True
        wait_for(lambda: all(thread.name != "txnlog-engine" for thread in threading.enumerate()))
        interrupt_main_thread()
        gone.wait(20)

    store.script.append(beside)
    with hearing_interrupts():
        with pytest.raises(KeyboardInterrupt):
            ns.produce("orders", rows(1))
        limit.on = False
        gone.set()
    wait_for(lambda: read(ns) == [1])


def test_a_call_whose_request_ended_while_no_thread_could_be_started_ends(
    memory: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    """HANG: who commits large rows (staging takes more than a second) where threads are scarce for one moment.

    The engine's thread has ended for want of work. The thread that staged the rows cannot start another one, and its
    error is lost with what it brought: the commit waits for ever, though threads can be started again at once.
    """
    monkeypatch.setattr(transaction_work, "SMALL_PRODUCE_BYTES", 1)
    monkeypatch.setattr(worker, "_IDLE_MS", 20.0)
    monkeypatch.setattr(worker, "_MOST_ASIDE", 0)  # so that another thread stages them
    ns, store = memory.faulty()
    memory.opened.remove(ns)
    ns.create_topic("orders", SCHEMA)
    limit = Limit(monkeypatch, "txnlog-engine")

    def scarce() -> None:
        wait_for(has_no_thread)
        limit.on = True

    def enough() -> None:
        wait_for(lambda: bool(limit.refused))
        limit.on = False

    store.puts.append(scarce)
    txn = begun(ns, 1)
    threading.Thread(target=enough, daemon=True).start()
    began = time.monotonic()
    (result,) = run_threads(txn.commit, seconds=20)
    assert not isinstance(result, BaseException), (result, time.monotonic() - began)
    assert read(ns) == [1]
