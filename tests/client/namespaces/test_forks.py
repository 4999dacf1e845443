"""What a forked child may do with what its parent opened, and who reads a pickled handle."""

from __future__ import annotations

import copy
import gc
import pickle
import subprocess
import sys
import threading
import weakref
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import txnlog
from tests.client.support import (
    SCHEMA,
    TXN_CALLS,
    Place,
    Unchanged,
    begun,
    committed,
    ids,
    one_received,
    raises,
    read,
    rows,
)
from tests.forks import in_child
from txnlog.data import segment_reader
from txnlog.engine.runtime import Runtime
from txnlog.errors import Durable, InvalidInputError, InvalidTransactionState, OutcomeUnknown, ReadOnly
from txnlog.testing import ManualClock


@pytest.mark.clause("P-46")
def test_a_forked_child_is_a_writer_of_its_own(local: Place) -> None:
    ns = local.orders()
    mine = ns.begin()

    def child() -> tuple[str, int, int]:
        txn = committed(ns, 1)
        return ns._connection.appender.writer, txn.id.number, txn.result.version

    writer, number, _ = in_child(child)
    assert writer != ns._connection.appender.writer
    blocks = {block.writer: range(block.first, block.first + block.count) for block in _blocks(ns)}
    assert number in blocks[writer]
    assert mine.id.number in blocks[ns._connection.appender.writer]
    mine.produce("orders", rows(2))
    mine.commit()
    assert read(ns) == [1, 2]


def _blocks(ns: Any) -> list[Any]:
    ns.snapshot()
    return list(ns._connection.follower.state.blocks.values())


@pytest.mark.clause("P-46")
@pytest.mark.parametrize("flushed", [False, True])
def test_what_the_parent_opened_is_refused_in_the_child_and_goes_on_in_the_parent(local: Place, flushed: bool) -> None:
    ns = local.orders(0)
    producer, consumer = ns.producer("loader"), ns.consumer("orders", "billing")
    messages = consumer.receive(timeout_ms=0)
    txn = begun(producer, 1, flush=flushed)
    done = committed(ns, 5)
    version = ns.snapshot().version

    for call in (
        lambda: txn.produce("orders", rows(2)),
        txn.flush,
        txn.commit,
        txn.abort,
        lambda: txn.acknowledge(messages),
        producer.begin,
        lambda: producer.produce("orders", rows(2)),
        lambda: producer.last_sequence("orders", 0),
        lambda: consumer.receive(timeout_ms=0),
        lambda: consumer.acknowledge(messages),
        lambda: consumer.seek("latest"),
    ):
        with raises(InvalidTransactionState, match="forked"):
            in_child(call)
    assert in_child(lambda: (str(txn.id), repr(txn), done.commit().version)) == (
        str(txn.id),
        repr(txn),
        done.result.version,
    )
    assert in_child(producer.close) is None
    assert ns.snapshot().version == version
    txn.acknowledge(messages)
    txn.commit()
    assert read(ns) == [0, 5, 1]


def test_a_fork_while_another_thread_commits_does_not_hang(local: Place) -> None:
    ns = local.orders()
    stop = threading.Event()

    def commit() -> None:
        number = 1_000
        while not stop.is_set():
            ns.produce("orders", rows(number))
            number += 1

    thread = threading.Thread(target=commit)
    thread.start()
    try:
        for number in range(3):
            assert in_child(partial(ns.produce, "orders", rows(number))).version > 0
    finally:
        stop.set()
        thread.join(30)
    assert sorted(n for n in read(ns) if n < 1_000) == [0, 1, 2]


_FORKS_AT_FIRST_CONVERSION = """
import os, signal, sys, threading
import pyarrow as pa
import txnlog

ns = txnlog.open(sys.argv[1], namespace="sales")
first = threading.Thread(target=ns.produce, args=("orders", [{"id": 1}]))
first.start()
while not any(thread.name == "txnlog-arrow" for thread in threading.enumerate()):
    pass
if not (child := os.fork()):
    signal.alarm(30)
    ns.produce("orders", [{"id": 2}])
    os._exit(0)
first.join()
print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""


def test_a_fork_while_another_thread_converts_for_the_first_time_does_not_hang_the_child(local: Place) -> None:
    ns = local.orders()
    program = [sys.executable, "-c", _FORKS_AT_FIRST_CONVERSION, str(local.root)]
    done = subprocess.run(program, capture_output=True, text=True, timeout=60, check=False)
    assert (done.stdout, done.returncode) == ("0\n", 0), done.stderr
    assert sorted(read(ns)) == [1, 2]


def test_a_fork_asks_the_store_for_nothing_until_it_is_used(local: Place) -> None:
    ns = local.orders()

    def child() -> str:
        assert ns._connection._current is None
        shown = repr(ns)
        ns.close()
        return shown

    assert "forked" in in_child(child)
    assert in_child(lambda: ns.snapshot().version) == ns.snapshot().version


def test_a_closed_handle_stays_closed_in_a_child(local: Place) -> None:
    ns = local.open()
    ns.close()
    with raises(InvalidTransactionState, match="closed"):
        in_child(ns.topics)


@pytest.mark.real_runtime
@pytest.mark.parametrize("closed", [False, True])
def test_a_scan_goes_on_in_a_child_and_in_the_parent(
    local: Place, monkeypatch: pytest.MonkeyPatch, closed: bool
) -> None:
    """Both fetch several segments at once. Threads of the parent, and who holds its locks, are not in the child."""
    monkeypatch.setattr(segment_reader, "_STEP_BYTES", 1)  # else small ones are one step, read by one thread
    monkeypatch.setattr(segment_reader, "_LOCAL_CALL_BYTES", 1)
    ns = local.orders()
    for number in range(10):
        ns.produce("orders", rows(number))
    scan = ns.snapshot().scan("orders")
    assert ids(pa.Table.from_batches([scan.read_next_batch()])) == [0]
    reader = ns._connection.reader
    if closed:
        ns.close()
        with raises(InvalidTransactionState, match="closed"):
            in_child(scan.read_all)
    else:
        with reader._small._lock:
            assert in_child(lambda: ids(scan.read_all())) == list(range(1, 10))
    assert ids(scan.read_all()) == list(range(1, 10))


def test_a_runtime_has_threads_of_its_own_in_a_child() -> None:
    runtime = Runtime()
    assert runtime.run_all([lambda: 1, lambda: 2]) == [1, 2]
    assert in_child(lambda: runtime.run_all([lambda: 3, lambda: 4])) == [3, 4]
    runtime.close()
    assert in_child(lambda: runtime.run_all([lambda: 5, lambda: 6])) == [5, 6]


@pytest.mark.clause("P-46")
@pytest.mark.parametrize("call", [*TXN_CALLS, "abort", "block"])
def test_a_forked_child_is_refused_its_parents_transaction(local: Place, call: str) -> None:
    ns = local.orders()
    _, messages = one_received(ns)
    txn = begun(ns, 1)

    def block() -> None:
        with txn:
            pass

    work = {"abort": txn.abort, "block": block}.get(call) or partial(TXN_CALLS[call], txn, messages)
    with Unchanged(local), raises(InvalidTransactionState, match="forked") as caught:
        in_child(work)
    assert caught.value.advice == "make a transaction of your own"
    txn.commit()
    assert sorted(read(ns)) == [0, 1]


@pytest.mark.clause("P-46", "P-146")
def test_a_forked_child_may_complete_what_its_parent_prepared(local: Place) -> None:
    ns = local.orders()
    txn = begun(ns, 1)
    token = txn.prepare()
    version = in_child(lambda: ns.complete(token, commit=True).version)
    assert read(ns) == [1]
    assert ns.complete(token, commit=True).version == version


@pytest.mark.clause("P-46")
@pytest.mark.parametrize("call", ["commit", "abort", "flush", "commit_async", "close"])
def test_a_fork_while_another_thread_commits_the_transaction_does_not_hang_the_child(local: Place, call: str) -> None:
    ns = local.orders()
    producer = ns.producer("loader")
    txn = begun(producer, 1)
    held, go = threading.Event(), threading.Event()

    runtime = ns._connection.runtime

    def wait() -> None:
        held.set()
        go.wait(60)

    async def busy() -> None:
        async with txn._machine._turn:
            await runtime.request(wait)

    thread = threading.Thread(target=lambda: runtime.engine.call(busy))
    thread.start()
    try:
        assert held.wait(30)
        if call == "close":
            assert in_child(producer.close) is None
        else:
            with raises(InvalidTransactionState, match="forked"):
                in_child(getattr(txn, call))
    finally:
        go.set()
        thread.join(30)
    txn.commit()
    assert read(ns) == [1]


# --- pickling ---------------------------------------------------------------------------------------------------------


@pytest.mark.clause("P-46")
def test_an_unpickled_handle_is_another_writer(place: Place) -> None:
    ns = place.orders()
    other = pickle.loads(pickle.dumps(ns))
    place.opened.append(other)
    other.produce("orders", rows(1))
    ns.produce("orders", rows(2))
    assert other._connection.appender.writer != ns._connection.appender.writer
    assert other._connection.identity is not ns._connection.identity
    assert read(ns) == [1, 2]
    reader = pickle.loads(pickle.dumps(place.open(mode="r")))
    place.opened.append(reader)
    with raises(ReadOnly):
        reader.produce("orders", rows(3))


def test_a_handle_means_the_same_root_when_the_working_directory_is_another(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pickled = b""
    for folder in ("there", "here"):
        (tmp_path / folder).mkdir()
        monkeypatch.chdir(tmp_path / folder)
        with txnlog.open("lake", namespace="sales", create=True) as ns:
            ns.create_topic("orders", SCHEMA)
            pickled = pickle.dumps(ns)
            assert ns.root == str(tmp_path / folder / "lake")
    monkeypatch.chdir(tmp_path / "there")
    with pickle.loads(pickled) as copied, txnlog.open(tmp_path / "here/lake/sales") as ns:
        copied.produce("orders", rows(1))
        assert read(ns) == [1]
        monkeypatch.chdir(tmp_path)
        in_child(lambda: copied.produce("orders", rows(2)).version)
        assert read(ns) == [1, 2]


def test_a_snapshot_can_be_pickled_and_has_a_connection_of_its_own_then(place: Place) -> None:
    ns = place.orders(1)
    snapshot = pickle.loads(pickle.dumps(ns.snapshot()))
    ns.close()
    assert ids(snapshot.read("orders")) == [1]
    snapshot._connection.close()


def test_closing_a_copy_of_a_handle_leaves_the_handle_as_it_is(place: Place) -> None:
    ns = place.orders(create=True)
    copy.copy(ns).close()
    ns.produce("orders", rows(1))
    assert read(ns) == [1]


def test_what_a_handle_made_goes_on_when_nobody_keeps_the_handle(local: Place) -> None:
    ns = local.orders(0)
    connection, kept, local.opened = ns._connection, weakref.ref(ns), []
    producer, consumer, snapshot = ns.producer("loader"), ns.consumer("orders", "billing"), ns.snapshot()
    del ns
    gc.collect()
    assert kept() is None
    with producer.begin() as txn:
        txn.produce("orders", rows(1))
        txn.acknowledge(consumer.receive(timeout_ms=0))
    assert ids(snapshot.read("orders")) == [0]
    assert read(local.open()) == [0, 1]
    connection.close()


def test_a_handle_with_a_store_or_clock_of_its_own_cannot_be_pickled(memory: Place, clock: ManualClock) -> None:
    for ns in (memory.open(clock=clock), memory.open(wrap=lambda store: store)):
        with raises(InvalidInputError, match="pickled"):
            pickle.dumps(ns)


def test_what_belongs_to_its_process_says_so_where_a_closure_would_send_it(memory: Place) -> None:
    ns = memory.orders(1)
    consumer = ns.consumer("orders", "billing")
    for bound in (ns.begin(), ns.producer("loader"), consumer, consumer.receive(timeout_ms=0)):
        with raises(InvalidInputError, match=f"a {type(bound).__name__} cannot be sent to another process"):
            pickle.dumps(bound)


def test_errors_keep_their_fields_through_pickling() -> None:
    error = OutcomeUnknown("who knows", txn_ids=("a" * 32,))
    copy = pickle.loads(pickle.dumps(error))
    assert (str(copy), copy.txn_ids, copy.durable) == (str(error), error.txn_ids, Durable.MAYBE)
