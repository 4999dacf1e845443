"""Commits in the background: what was called later does not come before what was called earlier."""

from __future__ import annotations

import threading
import time

import pytest

from tests.client.support import SCHEMA, FaultyStore, Place, rows, wait_for
from tests.client.transactions.time_limits import limited, slow_file
from tests.client.transactions.truncating import meanwhile, numbers, two_topics
from tests.faults import Once
from txnlog.errors import AccessDenied, Durable, RetriableError
from txnlog.store import HookStore, StoreCall


def test_of_complete_results_the_last_one_stays(memory: Place) -> None:
    """Each transaction replaces the content of the topic; the one that was committed last is to be seen."""
    ns = memory.open()
    ns.enable("holes")
    ns.create_topic("result", SCHEMA)
    futures = []
    for number in range(8):
        txn = ns.begin()
        txn.truncate("result")
        txn.produce("result", rows(number))
        futures.append(txn.commit_async())
    versions = [future.result().version for future in futures]
    left = ns.snapshot().read("result").column("id").to_pylist()
    assert left == [7], f"visible at {versions}, and the topic has {left}"


def test_a_transaction_that_was_flushed_is_not_overtaken_by_a_later_commit(memory: Place) -> None:
    """``commit_async``: "in the order of the calls". The newest value of a key is the one that was committed last."""
    ns = memory.open()
    ns.create_topic("orders", SCHEMA, key="id")
    wrong = []
    for number in range(8):
        older, newer = ns.begin(), ns.begin()
        older.produce("orders", [{"id": number, "name": "first"}])
        older.flush()
        older.produce("orders", [{"id": number, "name": "second"}])
        newer.produce("orders", [{"id": number, "name": "third"}])
        done = [txn.commit_async() for txn in (older, newer)]
        versions = [future.result().version for future in done]
        table = ns.snapshot().read("orders").to_pylist()
        last = [row["name"] for row in table if row["id"] == number][-1]
        if last != "third":
            wrong.append((versions, last))
    assert not wrong, f"(versions, the value of the key that is the newest one now): {wrong}"


def test_rows_that_a_flush_brought_into_the_log_come_before_those_of_a_later_commit(memory: Place) -> None:
    """In one entry, too, in which the rows that commits share come first."""
    ns = memory.open()
    ns.create_topic("orders", SCHEMA)
    for number in range(0, 30, 3):
        busy, older, newer = ns.begin(), ns.begin(), ns.begin()
        older.produce("orders", rows(number + 1))
        older.flush()
        newer.produce("orders", rows(number + 2))
        busy.produce("orders", rows(number))
        # While the entry of the first one is under way, the others wait for the next one.
        for future in [txn.commit_async() for txn in (busy, older, newer)]:
            future.result()
    assert ns.snapshot().read("orders").column("id").to_pylist() == list(range(30))


def test_a_batch_is_not_skipped_because_a_later_one_overtook_it(memory: Place) -> None:
    """Of an application's batches 1 and 2, committed in this order, both take effect."""
    ns = memory.open()
    ns.create_topic("orders", SCHEMA)
    first = ns.begin(txn_app_id="nightly", txn_version=1)
    first.produce("orders", rows(1))
    first.flush()
    first.produce("orders", rows(2))
    second = ns.begin(txn_app_id="nightly", txn_version=2)
    second.produce("orders", rows(3))
    done = [txn.commit_async() for txn in (first, second)]
    versions = [future.result().version for future in done]
    left = sorted(ns.snapshot().read("orders").column("id").to_pylist())
    assert left == [1, 2, 3], f"answered with the versions {versions}, skipped: {first.skipped}; the topic has {left}"


def test_rows_behind_a_truncation_that_was_flushed_stay(memory: Place) -> None:
    """A complete result in two parts, then a message more. The topic is an old one: nothing has to be planned again."""
    ns = memory.open()
    ns.enable("holes")
    ns.create_topic("orders", SCHEMA)
    ns.produce("orders", rows(0))
    whole, later = ns.begin(), ns.begin()
    whole.truncate("orders")
    whole.produce("orders", rows(1))
    whole.flush()
    whole.produce("orders", rows(2))
    later.produce("orders", rows(3))
    done = [txn.commit_async() for txn in (whole, later)]
    versions = [future.result().version for future in done]
    left = sorted(ns.snapshot().read("orders").column("id").to_pylist())
    assert left == [1, 2, 3], f"visible at {versions}, and the topic has {left}"


def test_a_complete_result_has_no_rows_of_an_earlier_transaction(memory: Place) -> None:
    """What was asked for before the truncation goes with it. One file takes its time, as on any store."""
    slow = Once(lambda call, _key: call is StoreCall.PUT, lambda: time.sleep(0.2), came=True)
    ns = memory.open(wrap=lambda store: HookStore(store, before=slow))
    ns.enable("holes")
    ns.create_topic("orders", SCHEMA)
    ns.produce("orders", rows(0))
    earlier, whole = ns.begin(), ns.begin()
    whole.truncate("orders")
    whole.produce("orders", rows(9))
    earlier.produce("orders", rows(1))
    earlier.flush()
    earlier.produce("orders", rows(2))
    slow.came = False
    done = [earlier.commit_async()]
    wait_for(lambda: slow.came)
    done.append(whole.commit_async())
    versions = [future.result().version for future in done]
    left = ns.snapshot().read("orders").column("id").to_pylist()
    assert left == [9], f"visible at {versions}, and the topic has {left}"


def test_rows_behind_the_truncation_of_a_topic_without_messages_stay(
    memory: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Somebody brings a partition its first messages before the entry, and they go with it."""
    ns = memory.open()
    ns.enable("holes")
    ns.create_topic("orders", SCHEMA, partitions=3)
    meanwhile(monkeypatch, lambda: ns.produce("orders", rows(1), partition=0))
    whole, later = ns.begin(), ns.begin()
    whole.truncate("orders")
    whole.produce("orders", rows(2), partition=1)
    later.produce("orders", rows(3), partition=2)
    done = [txn.commit_async() for txn in (whole, later)]
    versions = [future.result().version for future in done]
    assert versions == sorted(versions)
    assert sorted(ns.snapshot().read("orders").column("id").to_pylist()) == [2, 3]


def test_a_truncation_that_is_out_of_date_is_overtaken_by_nobody(
    memory: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A checkpoint came between. Its Future says so, the rows behind it stay, and it may be committed again."""
    ns = memory.open()
    ns.enable("holes")
    ns.create_topic("orders", SCHEMA)
    ns.produce("orders", rows(0))
    ns.checkpoint()

    def checkpointed() -> None:
        ns.produce("orders", rows(1))
        ns.checkpoint()

    meanwhile(monkeypatch, checkpointed)
    whole, later = ns.begin(), ns.begin()
    whole.truncate("orders")
    whole.produce("orders", rows(2))
    later.produce("orders", rows(3))
    done = [txn.commit_async() for txn in (whole, later)]
    error = done[0].exception()
    assert isinstance(error, RetriableError)
    assert "a checkpoint was written" in str(error)
    assert "commit() again" in str(error)
    assert error.durable is Durable.NOTHING
    done[1].result()
    assert sorted(ns.snapshot().read("orders").column("id").to_pylist()) == [0, 1, 3]
    whole.commit_async().result()
    assert ns.snapshot().read("orders").column("id").to_pylist() == [2]


def test_sequences_in_order_are_not_refused(memory: Place) -> None:
    """Sequences 0 and 1, then 2, of one producer: no later call can bring the first ones after that."""
    ns = memory.open()
    ns.create_topic("orders", SCHEMA)
    producer = ns.producer("loader")
    first, second = producer.begin(), producer.begin()
    first.produce("orders", rows(0), partition=0, sequence=0)
    first.flush()
    first.produce("orders", rows(1), partition=0, sequence=1)
    second.produce("orders", rows(2), partition=0, sequence=2)
    done = [txn.commit_async() for txn in (first, second)]
    errors = [str(future.exception()) for future in done if future.exception() is not None]
    assert not errors


def test_a_plain_produce_comes_behind_the_commits_that_were_called_before(memory: Place) -> None:
    ns = memory.open()
    ns.create_topic("orders", SCHEMA)
    for number in range(4):
        before = ns.begin()
        before.produce("orders", rows(3 * number), partition=0)
        before.flush()
        before.produce("orders", rows(3 * number + 1), partition=0)
        future = before.commit_async()
        after = ns.produce("orders", rows(3 * number + 2), partition=0)
        assert future.result().version < after.version
    assert ns.snapshot().read("orders").column("id").to_pylist() == list(range(12))


def test_a_commit_that_fails_lets_those_behind_it_go_on(memory: Place) -> None:
    """Its file cannot be put, so its place is left without a command in the queue."""
    refusing = Once(lambda call, key: call is StoreCall.PUT and key.endswith(".parquet"), _refuse, came=True)
    ns = memory.open(wrap=lambda store: HookStore(store, before=refusing))
    ns.create_topic("orders", SCHEMA)
    first, second = ns.begin(), ns.begin()
    first.produce("orders", rows(1))
    first.flush()
    first.produce("orders", rows(2))
    second.produce("orders", rows(3))
    refusing.came = False
    done = [txn.commit_async() for txn in (first, second)]
    assert isinstance(done[0].exception(), AccessDenied)
    assert done[1].result().version
    first.commit()
    assert sorted(ns.snapshot().read("orders").column("id").to_pylist()) == [1, 2, 3]


def _refuse() -> None:
    raise AccessDenied("no right to put")


# --- calls that are under way, or were interrupted --------------------------------------------------------------------


@pytest.mark.parametrize("way", ["flush in a thread", "acknowledge in a thread", "a flush with a time limit"])
def test_a_batch_is_not_skipped_although_its_transaction_is_at_work_yet(memory: Place, way: str) -> None:
    """LOST: one thread calls commit_async of batch 1, then of batch 2. The first waits for its transaction's turn
    behind a flush (or an acknowledgement, which a Shared consumer logs at once), the second one overtakes it, and batch
    1 is skipped as an older one, with success: its rows are gone. The flush is another thread's, or was interrupted."""
    memory.orders(1, 2, 3)
    ns, store = memory.wrapped(FaultyStore)
    ns.create_topic("out", SCHEMA)
    received = ns.consumer("orders", "billing", type="Shared").receive(3)
    first = ns.begin(txn_app_id="nightly", txn_version=1)
    first.produce("out", rows(1))
    second = ns.begin(txn_app_id="nightly", txn_version=2)
    second.produce("out", rows(2))
    under_way = threading.Event()

    def slow() -> None:
        under_way.set()
        time.sleep(1.0)

    store.script.append(slow)
    if way == "a flush with a time limit":
        limited(first.flush)
    else:
        call = first.flush if way == "flush in a thread" else lambda: first.acknowledge(received)
        threading.Thread(target=call).start()
        assert under_way.wait(30)
    done = [future.result(30) for future in [first.commit_async(), second.commit_async()]]
    assert (numbers(ns, "out"), [item.skipped for item in done]) == ([1, 2], [False, False])


def test_sequences_of_transactions_of_which_one_is_flushed_by_another_thread(memory: Place) -> None:
    """LOST: the same with the sequences of a producer. Sequence 1 comes before sequence 0, which is refused for ever:
    its transaction is aborted, by an error that says that 0 was committed before, perhaps."""
    memory.orders()
    ns, store = memory.wrapped(FaultyStore)
    producer = ns.producer("p")
    first, second = producer.begin(), producer.begin()
    first.produce("orders", rows(0), partition=0, sequence=0)
    second.produce("orders", rows(1), partition=0, sequence=1)
    under_way = threading.Event()

    def slow() -> None:
        under_way.set()
        time.sleep(0.5)

    store.script.append(slow)
    threading.Thread(target=first.flush).start()
    assert under_way.wait(30)
    for future in [first.commit_async(), second.commit_async()]:
        future.result(30)
    assert numbers(ns) == [0, 1]


def test_a_truncation_whose_commit_had_a_time_limit_takes_no_later_rows(memory: Place) -> None:
    """LOST: commit() of a truncation is interrupted by a time limit while its files are put, and commit_async() of it
    is called, as an interrupted call may be made again. Another transaction, called behind that, overtakes it, and its
    rows go with the truncation, without a word."""
    two_topics(memory)
    ns, slow = slow_file(memory, lambda: time.sleep(1.0))
    whole, later = ns.begin(), ns.begin()
    whole.truncate("orders")
    whole.produce("orders", rows(1), partition=0)
    later.produce("orders", rows(2), partition=0)
    slow.came = False
    limited(whole.commit)
    versions = [future.result(30).version for future in [whole.commit_async(), later.commit_async()]]
    assert (numbers(ns), versions) == ([1, 2], sorted(versions))


def test_commit_async_next_to_a_commit_that_waits_for_a_flush_is_that_commit(memory: Place) -> None:
    """LIE: one thread flushes a transaction, another one commits it, a third calls commit_async(), which first has its
    rows put into a file. That waits behind the commit, so the Future raises "was committed (begin a new transaction;
    nothing was written)" in place of the commit's result: who believes it commits the rows twice. Without the flush,
    or with commit() in place of commit_async(), it is the commit's result. (A time limit that interrupts a flush, then
    a commit_async, and commit_async again, leads here as well, by one thread.)"""
    memory.orders()
    ns, store = memory.wrapped(FaultyStore)
    txn = ns.begin()
    txn.produce("orders", rows(1))
    txn.flush()
    txn.produce("orders", rows(2))
    busy, flushing = threading.Event(), threading.Event()

    def one() -> None:  # the entry of somebody else's call
        busy.set()
        time.sleep(0.5)

    def two() -> None:  # that of the flush
        flushing.set()
        time.sleep(0.5)

    ns.create_topic("out", SCHEMA)
    store.script.extend([one, "ok", two])
    threading.Thread(target=lambda: ns.produce("out", rows(0))).start()
    assert busy.wait(30)
    threading.Thread(target=txn.flush).start()
    time.sleep(0.1)
    commit = threading.Thread(target=txn.commit)
    commit.start()
    assert flushing.wait(30)
    txn.produce("orders", rows(3))
    future = txn.commit_async()
    commit.join()
    assert future.result(30) == txn.result
    assert numbers(ns) == [1, 2, 3]
