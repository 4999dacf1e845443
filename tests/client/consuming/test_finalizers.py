"""A finalizer that calls txnlog, which the garbage collector runs in a thread that reads for another command.

``docs/guarantees.md``: "Handlers of signals, finalizers and callbacks of Futures may call txnlog."
"""

from __future__ import annotations

import contextlib
import subprocess
import sys
import threading
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

import txnlog
from tests.client.support import SCHEMA, Place, is_entry, rows, take
from tests.faults import Once
from txnlog.engine import engine
from txnlog.errors import CalledInItsOwnWork, TxnLogError
from txnlog.store import HookStore
from txnlog.store.wrappers import StoreCall

_PATIENCE_S = 3


@pytest.fixture(autouse=True)
def _an_engine_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """What hangs keeps the engine, too."""
    monkeypatch.setattr(engine, "_of_process", {})


def _opened(memory: Place, once: Once, kind: str) -> tuple[Any, Any, Any]:
    """A handle that the end of the test does not close, and a consumer with two messages in work."""
    ns = memory.open(wrap=lambda store: HookStore(store, before=once))
    memory.opened.remove(ns)
    ns.create_topic("orders", SCHEMA)
    ns.produce("orders", rows(*range(10)))
    ns.create_subscription("orders", "billing", type=kind)
    consumer = ns.consumer("orders", "billing")
    return ns, consumer, take(consumer, 2)


def _ends(call: Callable[[], object]) -> bool:
    ended = threading.Event()

    def work() -> None:
        with contextlib.suppress(TxnLogError):
            call()
        ended.set()

    threading.Thread(target=work, daemon=True).start()
    return ended.wait(_PATIENCE_S)


def _never(_call: StoreCall, _key: str) -> bool:
    return False


@pytest.mark.parametrize(
    ("kind", "finalizer", "under_way"),
    [
        ("exclusive", "negative_acknowledge", "receive"),
        ("exclusive", "redeliver_unacknowledged", "receive"),
        ("failover", "close", "receive"),
        ("shared", "negative_acknowledge", "redeliver_unacknowledged"),
        ("shared", "close", "negative_acknowledge"),
    ],
)
def test_a_finalizer_in_a_request_of_a_consumer_does_not_wait_for_the_turn_that_the_request_has(
    memory: Place, kind: str, finalizer: str, under_way: str
) -> None:
    """HANG: what releases messages in ``__del__`` is collected in the thread that looks at the log for a receive."""
    once = Once(_never, lambda: None)
    _ns, consumer, messages = _opened(memory, once, kind)
    calls: dict[str, Callable[[], object]] = {
        "receive": partial(take, consumer),
        "negative_acknowledge": partial(consumer.negative_acknowledge, messages),
        "redeliver_unacknowledged": consumer.redeliver_unacknowledged,
        "close": consumer.close,
    }

    def collected() -> None:
        with contextlib.suppress(CalledInItsOwnWork):  # what a finalizer raises is shown, and ends nothing
            calls[finalizer]()

    once.is_meant, once.work = lambda call, _key: call is StoreCall.GET, collected
    assert _ends(calls[under_way]), "both wait for ever"
    assert once.came


@pytest.mark.parametrize("finalizer", ["produce", "acknowledge"])
def test_a_finalizer_in_a_look_at_the_log_by_the_appender_does_not_wait_for_its_entry(
    memory: Place, finalizer: str
) -> None:
    """HANG: others were faster, so the appender reads the log; there a finalizer appends something."""
    once = Once(_never, lambda: None)
    ns, consumer, messages = _opened(memory, once, "exclusive")
    other = memory.open()
    calls: dict[str, Callable[[], object]] = {
        "produce": partial(ns.produce, "orders", rows(11)),
        "acknowledge": partial(consumer.acknowledge, messages),
    }

    def collected() -> None:
        with contextlib.suppress(CalledInItsOwnWork):
            calls[finalizer]()

    other.create_topic("audit", SCHEMA)
    once.is_meant, once.work = lambda call, key: call is StoreCall.GET and is_entry(key), collected
    assert _ends(partial(ns.create_topic, "orders", SCHEMA, if_not_exists=True)), "both wait for ever"
    assert once.came


_RELEASING = """
import faulthandler, sys, time
import pyarrow as pa
import txnlog
faulthandler.dump_traceback_later(45, exit=True)
ns = txnlog.open(sys.argv[1], namespace="sales", create=True)
ns.create_topic("orders", pa.schema([("id", pa.int64())]))
ns.produce("orders", [{"id": number} for number in range(5_000)])
consumer = ns.consumer("orders", "billing")

class Batch:
    # Messages in work: dropped without an acknowledgement they are released.
    def __init__(self, messages):
        self.messages = messages
        self.callbacks = [self.done]

    def done(self):
        pass

    def __del__(self):
        consumer.negative_acknowledge(self.messages)

began = time.monotonic()
while time.monotonic() - began < 4:
    Batch(consumer.receive(50, timeout_ms=0))
print("through")
"""


def test_finalizers_that_come_by_themselves_stop_no_loop(tmp_path: Path) -> None:
    """HANG: nothing is forced: objects in cycles, whose finalizers release messages, stop the program in seconds.

    And its end, where Python collects the last ones: until then nobody had looked at how the program ended.
    """
    done = _run(_RELEASING, tmp_path)
    assert done.returncode == 0, done.stderr[:300] + done.stderr[-2000:]
    assert "through" in done.stdout


_ENDING = """
import faulthandler, sys, time
import pyarrow as pa
import txnlog
faulthandler.dump_traceback_later(45, exit=True)

class Job:
    def __init__(self):
        self.ns = txnlog.open(sys.argv[1], namespace="sales", create=True)
        self.ns.create_topic("orders", pa.schema([("id", pa.int64())]))
        self.ns.produce("orders", [{"id": number} for number in range(10)])
        self.consumer = self.ns.consumer("orders", "billing")
        self.messages = self.consumer.receive(5)
        self.txn = self.ns.begin()
        self.txn.produce("orders", [{"id": 11}])

    def __del__(self):
        CALL

job = Job()
job.itself = job  # Python collects it when the program has ended
time.sleep(float(sys.argv[2]))
print("through", flush=True)
"""


@pytest.mark.some(2)
@pytest.mark.parametrize("idle_s", [0, 1.5], ids=["engine has a thread", "engine has none"])
@pytest.mark.parametrize(
    "call",
    [
        "self.ns.close()",
        "self.txn.commit()",
        "self.consumer.close()",
        "self.ns.produce('orders', [{'id': 1}])",
        "self.txn.commit_async().result()",
    ],
)
def test_a_finalizer_that_runs_when_the_program_has_ended_does_not_wait_for_threads_that_are_gone(
    tmp_path: Path, call: str, idle_s: float
) -> None:
    """HANG: a job that closes its namespace in ``__del__`` and is a global of its program: the program never ended."""
    done = _run(_ENDING.replace("CALL", call), tmp_path, str(idle_s))
    assert done.returncode == 0, done.stderr[-3000:]
    assert "through" in done.stdout
    assert ("CalledAfterTheEnd" in done.stderr) == (call != "self.ns.close()"), done.stderr
    assert ("Exception ignored" in done.stderr) == (call != "self.ns.close()"), done.stderr
    assert "before these transactions with work" in done.stderr


_COLD = """
import faulthandler, sys
import pyarrow as pa
import txnlog
faulthandler.dump_traceback_later(30, exit=True)

class Job:
    def __init__(self, calls):
        self.calls = calls
        self.eval, self.print = eval, print
        self.txnlog, self.path = txnlog, sys.argv[1]
        # Not of a list: that would be the process's first conversion.
        self.table = pa.table({"id": pa.Array.from_buffers(pa.int64(), 1, [None, pa.py_buffer(bytes(8))])})
        self.ns = txnlog.open(self.path, namespace="sales")
        self.snapshot = self.ns.snapshot()
        self.txn = self.ns.begin()
        self.producer = self.ns.producer()

    def __del__(self):
        for call in self.calls:
            try:
                came = f"came to {self.eval(call, self.__dict__)!r}"
            except Exception as error:
                came = f"raised {type(error).__name__}"
            self.print(call, came, sep=": ", flush=True)

job = Job(sys.argv[3].split("|"))
if sys.argv[2] == "cycle":
    job.itself = job
print("through", flush=True)
"""

_ROWS = ("[{'id': 1}]", "table")
_CALLS_OF_A_NAMESPACE: dict[str, tuple[str, ...]] = {
    "abort": ("(txn.id)",),
    "alter_topic": ("('orders', properties={'user.of': 'it'})",),
    "checkpoint": ("()",),
    "compact": ("('orders')",),
    "complete": ("(txn.id, commit=True)",),
    "consumer": ("('orders', 'billing')", "('orders', 'new')"),
    "create_subscription": ("('orders', 'new')",),
    "create_topic": ("('new')",),
    "delete_records": ("('orders', {0: 0})",),
    "doctor": ("()",),
    "drop_subscription": ("('orders', 'billing')",),
    "drop_topic": ("('orders')",),
    "enable": ("('feature')",),
    "erase": ("('orders', 1)",),
    "fence": ("('importer')",),
    "forget_app": ("('app')",),
    "fsck": ("()",),
    "repair": ("()",),
    "history": ("()",),
    "lag": ("('orders', 'billing')",),
    "last_txn_version": ("('app')",),
    "maintain": ("()",),
    "metrics": ("()",),
    "optimize": ("('orders')",),
    "produce": tuple(f"('orders', {given})" for given in _ROWS),
    "retention": ("()",),
    "snapshot": ("()",),
    "subscription": ("('orders', 'billing')",),
    "subscriptions": ("('orders')",),
    "table": ("('producers')",),
    "topic": ("('orders')",),
    "topics": ("()",),
    "transact": tuple(f"(lambda txn: txn.produce('orders', {given}))" for given in _ROWS),
    "transaction": ("(txn.id)",),
    "transactions": ("()",),
    "vacuum": ("()",),
}
"""Those that ask the log or the engine: at the end each is refused."""

_NEEDS_NOBODY: dict[str, str] = {
    "begin": "()",
    "name": "",
    "producer": "()",
    "root": "",
    "store_requests": "",
    "close": "()",  # the last one: it refuses what comes behind it
}


@pytest.mark.parametrize("collected", ["last reference", "cycle"])
def test_no_call_of_a_finalizer_stops_the_end_of_a_program_that_has_done_nothing_before(
    tmp_path: Path, collected: str
) -> None:
    """ABORT: Arrow's first conversion; NameError: there are no builtins any more by which a file was opened."""
    with txnlog.open(tmp_path, namespace="sales", create=True) as ns:
        ns.create_topic("orders", SCHEMA)
        ns.produce("orders", rows(1))
        ns.create_subscription("orders", "billing")
    public = {name for name in dir(txnlog.Namespace) if not name.startswith("_")}
    assert public == {*_CALLS_OF_A_NAMESPACE, *_NEEDS_NOBODY}
    refused = [f"ns.{name}{given}" for name, forms in _CALLS_OF_A_NAMESPACE.items() for given in forms]
    refused += ["txnlog.open(path, namespace='sales')", "snapshot.read('orders')", "list(snapshot.scan('orders'))"]
    refused += [f"{what}.produce('orders', {given})" for what in ("txn", "producer") for given in _ROWS]
    refused += ["txn.flush()", "txn.commit()", "txn.abort()"]
    calls = [*refused, *(f"ns.{name}{given}" for name, given in _NEEDS_NOBODY.items())]
    done = _run(_COLD, tmp_path, collected, "|".join(calls))
    assert done.returncode == 0, done.stderr[-3000:]
    came = dict(
        line.split(": came to " if ": came to " in line else ": raised ") for line in done.stdout.splitlines()[1:]
    )
    assert list(came) == calls, done.stdout
    expected = dict.fromkeys(refused, "CalledAfterTheEnd")
    expected |= {"ns.enable('feature')": "UnsupportedFeature", "ns.erase('orders', 1)": "InvalidInputError"}
    assert {call: came[call] for call in refused} == expected
    assert not [text for call, text in came.items() if call not in refused and "Error" in text]


def _run(program: str, *arguments: str | Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", program, *arguments],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        cwd=Path(txnlog.__file__).parent.parent,
    )
