"""Errors that are none of the library's: what a call says of itself, and that it ends."""

from __future__ import annotations

import dataclasses
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tests.client.support import SCHEMA, Place, ids, rows, take
from tests.faults import Once
from tests.interrupts import hearing_signal
from txnlog.log.transaction_commands import FlushCommand
from txnlog.store import HookStore, StoreCall
from txnlog.testing import ManualClock


@dataclasses.dataclass(frozen=True)
class Rejected(Exception):
    """A user's error, as a frozen dataclass: Python sets its traceback, and nobody else an attribute."""

    order: int


def _raising(error: BaseException) -> Callable[[], object]:
    def work() -> None:
        raise error

    return work


@pytest.mark.parametrize("through", ["decide", "store"])
def test_an_acknowledgement_of_which_nothing_takes_effect_takes_none(
    memory: Place, monkeypatch: pytest.MonkeyPatch, clock: ManualClock, through: str
) -> None:
    """LOST: a worker of a Shared subscription runs short of memory in ``acknowledge`` (or its own store raises).

    The error says "nothing was sent of this call, and nothing of it takes effect". So the worker leaves this message
    to others, and commits what it did with the message before. The commit acknowledges both: nobody ever gets it.
    """
    armed = False

    def is_meant(_done: StoreCall, _key: str) -> bool:
        return armed

    ns, _ = memory.wrapped(lambda store: HookStore(store, before=Once(is_meant, _raising(MemoryError()))), clock=clock)
    ns.create_topic("orders", SCHEMA)
    ns.produce("orders", rows(0, 1))
    consumer = ns.consumer("orders", "billing", type="shared")
    first, second = take(consumer, 1), take(consumer, 1)
    with ns.begin(timeout_ms=600_000) as txn:
        txn.acknowledge(first)
        with monkeypatch.context() as short:
            if through == "decide":
                short.setattr(FlushCommand, "decide", lambda *_: _raising(MemoryError())())
            else:
                clock.advance(61_000)  # idle: before it appends it looks whether its log is there
                armed = True
            with pytest.raises(MemoryError) as caught:
                txn.acknowledge(second)
            armed = False
    assert caught.value.__notes__ == ["txnlog: nothing was sent of this call, and nothing of it takes effect"]
    consumer.close()
    assert ids(take(ns.consumer("orders", "billing", type="shared")).table) == [1]


def test_what_a_function_of_transact_raises_comes_out_of_it(memory: Place) -> None:
    """WRONG ERROR: the program's own error, a frozen dataclass; ``with ns.begin()`` raises it, ``transact`` another."""
    ns = memory.orders()

    def work(txn: Any) -> None:
        txn.produce("orders", rows(1))
        raise Rejected(1)

    with pytest.raises(Rejected):
        ns.transact(work)


@pytest.mark.parametrize("call", ["produce", "commit"])
def test_what_a_handler_raises_comes_out_of_the_call_that_it_interrupts(memory: Place, call: str) -> None:
    """WRONG ERROR: a time limit of the program, whose error is a frozen dataclass, in a call that waits.

    "What a handler raises comes out of the call that it interrupts." FrozenInstanceError came, without a note, which
    no ``except`` of the program is for.
    """
    ns = memory.orders()
    txn = ns.begin()
    txn.produce("orders", rows(1))
    engine, held, end = ns._connection.runtime.engine, threading.Event(), threading.Event()

    def hold() -> None:
        held.set()
        end.wait(20)

    def handle(*_: object) -> None:
        raise Rejected(1)

    engine.step(hold)
    assert held.wait(20)
    made = partial(ns.produce, "orders", rows(2)) if call == "produce" else txn.commit
    main = threading.main_thread().ident or 0
    try:
        with hearing_signal(handle):
            threading.Timer(0.2, lambda: signal.pthread_kill(main, signal.SIGUSR1)).start()
            with pytest.raises(Rejected) as caught:
                made()
    finally:
        end.set()
    (note,) = caught.value.__notes__
    assert "may take effect all the same" in note


_PROGRAM = """
import dataclasses, os, sys, threading
import pyarrow as pa
import txnlog
from txnlog.store import HookStore, StoreCall, open_store

@dataclasses.dataclass(frozen=True)
class Rejected(Exception):
    order: int

    def __getattr__(self, name):
        raise KeyError(name)

armed = False

def before(call, key):
    global armed
    if armed and call is StoreCall.PUT and key.endswith(".parquet"):
        armed = False
        raise Rejected(1)

ns = txnlog.open(sys.argv[1], namespace="sales", create=True, store=HookStore(open_store(sys.argv[1]), before=before))
ns.create_topic("orders", pa.schema([("id", pa.int64())]))

def run():
    try:
        if sys.argv[2] == "produce":
            ns.produce("orders", [{"id": 1}])
        else:
            txn = ns.begin()
            txn.produce("orders", [{"id": 1}])
            txn.commit_async().result()
    except BaseException as error:
        print("raised", type(error).__name__)

armed = True
thread = threading.Thread(target=run, daemon=True)
thread.start()
thread.join(8)
print("hangs" if thread.is_alive() else "ended", flush=True)
os._exit(0)
"""


@pytest.mark.parametrize("call", ["produce", "commit_async"])
def test_a_call_whose_store_raises_a_frozen_error_ends(tmp_path: Path, call: str) -> None:
    """HANG: a store of the user's own (``store=``) raises an error once that gives and takes no attributes."""
    program = [sys.executable, "-c", _PROGRAM, str(tmp_path / "lake"), call]
    done = subprocess.run(program, capture_output=True, text=True, timeout=60, check=False)
    assert "ended" in done.stdout, done.stdout + done.stderr
