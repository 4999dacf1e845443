"""A handle and its process: opening, closing, forking, pickling, threads, read-only, secrets."""

from __future__ import annotations

import logging
import pickle
import sys
import threading
import time
import traceback
from functools import partial
from pathlib import Path
from typing import Any

import pytest

import txnlog
from tests.client.support import SCHEMA, FaultyStore, Place, Unchanged, ids, objects, raises, read, rows, run_threads
from tests.forks import in_child
from txnlog import connection
from txnlog.errors import (
    ClockSkew,
    Durable,
    InvalidInputError,
    InvalidTransactionState,
    NameNotAllowed,
    NamespaceNotFound,
    OutcomeUnknown,
    ReadOnly,
    StoreError,
    UnsafeStore,
)
from txnlog.runtime import Runtime
from txnlog.store import Created, ForwardingStore, MemoryStore, Store
from txnlog.store.base import ObjectInfo, ObjectNotFound
from txnlog.testing import ManualClock

# --- opening --------------------------------------------------------------------------------------------------------


def test_a_namespace_is_made_once_and_opened_again(place: Place) -> None:
    with place.open() as ns:
        ns.create_topic("orders", SCHEMA)
        ns.produce("orders", rows(1))
    again = txnlog.open(f"{place.root}/sales")
    assert (again.name, read(again)) == ("sales", [1])
    again.close()
    assert read(place.open()) == [1]


def test_a_namespace_that_does_not_exist_offers_the_nearest(place: Place) -> None:
    with raises(NamespaceNotFound, match="'sales'"):
        place.open(create=False)
    place.open("sales")
    for mode in ("r", "rw"):
        with raises(NamespaceNotFound, match="'slaes'") as caught:
            place.open("slaes", create=False, mode=mode)
        assert "did you mean 'sales'?" in caught.value.advice
    assert not [key for key in objects(place.store()) if key.startswith("slaes")]


def test_namespaces_of_a_root_have_ids_of_their_own(place: Place) -> None:
    one, two = place.open("one"), place.open("two")
    assert (one.coordinator, two.coordinator) == (0, 1)
    one.create_topic("orders", SCHEMA)
    two.create_topic("orders", SCHEMA)
    assert one.begin().id != two.begin().id
    one.produce("orders", rows(1))
    assert read(two) == []
    with raises(NameNotAllowed, match="case|only"):
        place.open("ONE")


def test_two_who_make_one_namespace_get_the_same(memory: Place) -> None:
    found = run_threads(*[lambda: memory.open("sales") for _ in range(8)])
    assert len({ns.coordinator for ns in found}) == 1  # type: ignore[attr-defined]
    found[0].create_topic("orders", SCHEMA)  # type: ignore[attr-defined]
    assert all(ns.topics() == ("orders",) for ns in found)  # type: ignore[attr-defined]


def test_a_namespace_whose_making_was_cut_short_is_made_by_the_next(memory: Place) -> None:
    memory.open("first")

    class Cut(ForwardingStore):
        def create(self, key: str, data: bytes) -> Created:
            if "second/_log" in key:
                raise KeyboardInterrupt
            return super().create(key, data)

    with pytest.raises(KeyboardInterrupt):
        memory.open("second", wrap=Cut)
    again = memory.open("second")
    assert again.coordinator == 1
    assert again.snapshot().version == 0


@pytest.mark.parametrize(
    ("options", "kind"),
    [
        ({"root": 7}, InvalidInputError),
        ({"root": None}, InvalidInputError),
        ({"root": b"/data"}, InvalidInputError),
        ({"root": ""}, InvalidInputError),
        ({"root": "s3:/bucket"}, InvalidInputError),
        ({"namespace": ".."}, NameNotAllowed),
        ({"namespace": "a/b"}, NameNotAllowed),
        ({"namespace": ""}, NameNotAllowed),
        ({"namespace": "_catalog"}, NameNotAllowed),
        ({"namespace": "a\x00b"}, NameNotAllowed),
        ({"namespace": "x" * 10_000}, NameNotAllowed),
        ({"namespace": 7}, NameNotAllowed),
        ({"mode": "w"}, InvalidInputError),
        ({"mode": None}, InvalidInputError),
        ({"mode": ["r"]}, InvalidInputError),
        ({"mode": "r", "create": True}, InvalidInputError),
        ({"min_commit_interval_ms": -1}, InvalidInputError),
        ({"min_commit_interval_ms": "5"}, InvalidInputError),
        ({"clock": 7}, InvalidInputError),
        ({"storage_options": "key=secret"}, InvalidInputError),
        ({"storage_options": {"key": "secret"}}, InvalidInputError),
    ],
)
def test_bad_arguments_of_open_are_refused(tmp_path: Path, options: Any, kind: Any) -> None:
    with raises(kind) as caught:
        txnlog.open(
            **{"root": str(tmp_path / "lake"), "namespace": "sales", "create": "mode" not in options, **options}
        )
    assert "secret" not in str(caught.value)
    assert not (tmp_path / "lake").exists()


def test_an_option_that_open_does_not_have_is_refused(tmp_path: Path) -> None:
    with pytest.raises(TypeError, match="storage_option"):
        txnlog.open(str(tmp_path), "sales", storage_option={})  # type: ignore[call-arg]


# --- a store that must not be trusted -------------------------------------------------------------------------------


class LooksFirst(ForwardingStore):
    """A store that looks, and then writes."""

    def create(self, key: str, data: bytes) -> Created:
        try:
            self.inner.get(key)
        except ObjectNotFound:
            time.sleep(0.001)
            self.inner.put(key, data)
            return Created.CREATED
        return Created.UNKNOWN


class Overwrites(ForwardingStore):
    """A store that ignores the condition."""

    def create(self, key: str, data: bytes) -> Created:
        self.inner.put(key, data)
        return Created.CREATED


@pytest.mark.clause("P-122")
@pytest.mark.real_probe
@pytest.mark.parametrize("kind", [Overwrites, LooksFirst])
def test_a_store_without_a_safe_create_is_refused_and_nothing_is_left_behind(
    kind: type[ForwardingStore], monkeypatch: pytest.MonkeyPatch
) -> None:
    store = MemoryStore()
    with raises(UnsafeStore):
        txnlog.open("memory://unsafe", "sales", create=True, store=kind(store))
    assert list(objects(store)) == []


@pytest.mark.clause("P-122")
@pytest.mark.real_probe
def test_a_store_is_probed_once(place: Place) -> None:
    _, counting = place.counted()
    assert counting.counts()["create", "root"] > 8
    other, counting = place.counted(namespace="other")
    other.create_topic("orders", SCHEMA)
    assert counting.counts()["create", "root"] == 1, "its registration; the verdict is in the root log"
    assert not [key for key in objects(place.store()) if "probe" in key]


@pytest.mark.clause("P-122")
def test_a_namespace_copied_to_another_store_is_probed_there(memory: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    from txnlog import root

    ns = memory.open()
    ns.create_topic("orders", SCHEMA)
    copy = MemoryStore("a-copy")
    for key in objects(memory.store()):
        copy.put(key, memory.store().get(key))

    def refuse(*_: Any, **__: Any) -> None:
        raise UnsafeStore("the other store looks first")

    monkeypatch.setattr(root, "probe", refuse)
    moved = txnlog.open("memory://copy", "sales", store=copy)
    assert read(moved) == [], "readers never probe"
    with raises(UnsafeStore):
        moved.produce("orders", rows(1))
    moved.close()


@pytest.mark.clause("P-112")
@pytest.mark.parametrize(("ahead_ms", "refused"), [(59_000, False), (70_000, True), (-(10**9), False)])
def test_a_clock_far_ahead_of_the_stores_may_not_append(ahead_ms: int, refused: bool) -> None:
    stores_clock = int(time.time() * 1000) - ahead_ms
    store = MemoryStore(clock_ms=lambda: stores_clock)
    ns = txnlog.open("memory://skewed", "sales", create=True, store=store)
    before = list(objects(store))
    if refused:
        with raises(ClockSkew, match="ahead"):
            ns.create_topic("orders", SCHEMA)
        assert list(objects(store)) == before, "nothing was left behind"
    else:
        ns.create_topic("orders", SCHEMA)
        assert not [key for key in objects(store) if "clock" in key]
    ns.close()


@pytest.mark.clause("P-3", "P-112")
def test_looking_at_the_stores_clock_touches_no_log(memory: Place) -> None:
    """A bucket may forbid deleting below _log, and everywhere: that must not stop a writer."""

    class NoDeletes(ForwardingStore):
        def delete(self, key: str) -> None:
            assert "_log/" not in key
            raise StoreError("deleting is forbidden")

        def put(self, key: str, data: bytes) -> None:
            assert "_log/" not in key or "checkpoints" in key
            super().put(key, data)

    ns = memory.open(wrap=NoDeletes)
    ns.create_topic("orders", SCHEMA)
    assert ns.produce("orders", rows(1)).offsets == {("orders", 0): range(1)}


@pytest.mark.clause("P-112")
def test_a_clock_that_was_injected_is_trusted(memory: Place) -> None:
    ns = memory.open(clock=ManualClock(4_000_000_000_000))
    ns.create_topic("orders", SCHEMA)
    assert ns.produce("orders", rows(1)).version == 2


@pytest.mark.clause("P-22", "P-111")
def test_log_time_never_goes_back(memory: Place, clock: ManualClock) -> None:
    ahead, behind = memory.open(clock=clock), memory.open(clock=ManualClock(5))
    ahead.create_topic("orders", SCHEMA)
    ahead.produce("orders", rows(1))
    behind.produce("orders", rows(2))
    clock.advance(-10_000)
    ahead.produce("orders", rows(3))
    times = [ahead.follower.log.entry(version).header.timestamp_ms for version in range(ahead.snapshot().version + 1)]
    assert times == sorted(times)
    assert read(ahead) == [1, 2, 3]


# --- read-only ------------------------------------------------------------------------------------------------------


@pytest.mark.clause("P-115", "P-123")
def test_reading_needs_get_alone(ns: Any, place: Place) -> None:
    ns.produce("orders", rows(1), partition=0)
    ns.create_subscription("orders", "billing")
    txn = ns.begin()
    txn.produce("orders", rows(2))
    txn.flush()
    ns.checkpoint()
    ns.produce("orders", rows(3), partition=0)
    reader, counting = place.counted(mode="r")
    assert read(reader) == [1, 3]
    assert reader.topics() == ("orders",)
    assert reader.topic("orders").partitions == 2
    assert reader.subscriptions("orders") == ("billing",)
    assert reader.subscription("orders", "billing").cursors[0].cursor == 0
    assert reader.lag("orders", "billing")[0].behind_messages == 2
    assert {info.state for info in reader.transactions()} >= {"OPEN", "COMMITTED"}
    assert reader.transaction(txn.id).state == "OPEN"
    assert reader.last_txn_version("nightly") is None
    reader.snapshot().scan("orders", isolation_level="read_uncommitted", include_metadata=True).read_all()
    assert reader.snapshot(timestamp=4_000_000_000_000).version == ns.snapshot().version
    assert set(counting.by_call()) <= {"get", "get_range", "sync"}


@pytest.mark.clause("P-123")
def test_every_write_through_a_reader_is_refused(ns: Any, place: Place) -> None:
    txn = ns.begin()
    ns.create_subscription("orders", "billing")
    ns.producer("loader")
    reader, counting = place.counted(mode="r")
    for call in (
        lambda: reader.create_topic("audit", SCHEMA),
        lambda: reader.drop_topic("orders"),
        reader.begin,
        lambda: reader.produce("orders", rows(1)),
        reader.producer,
        lambda: reader.producer("loader"),
        lambda: reader.create_subscription("orders", "other"),
        lambda: reader.drop_subscription("orders", "billing"),
        lambda: reader.consumer("orders", "billing"),
        lambda: reader.consumer("orders", "new"),
        lambda: reader.abort(txn.id),
        lambda: reader.fence("loader"),
        lambda: reader.forget_app("nightly"),
        reader.checkpoint,
        lambda: reader.transact(lambda _: None),
        lambda: reader.reserve_block(1),
    ):
        with Unchanged(place), raises(ReadOnly, match='mode="r"'):
            call()
    assert not {"put", "create", "delete", "list"} & set(counting.by_call())


def test_read_only_credentials_say_so_and_write_nothing(memory: Place) -> None:
    """mode="rw" with a store that refuses: nothing was written, and reading goes on."""
    memory.open().create_topic("orders", SCHEMA)

    class Forbidden(ForwardingStore):
        def create(self, key: str, data: bytes) -> Created:
            raise StoreError("access denied", durable=Durable.NOTHING)

        def put(self, key: str, data: bytes) -> None:
            raise StoreError("access denied", durable=Durable.NOTHING)

    ns = memory.open(wrap=Forbidden)
    for call in (lambda: ns.create_topic("audit", SCHEMA), lambda: ns.produce("orders", rows(1)), ns.begin):
        with Unchanged(memory), raises(StoreError, match="access denied"):
            call()
    assert read(ns) == []


# --- closing --------------------------------------------------------------------------------------------------------


def test_after_close_every_call_is_refused(ns: Any, place: Place) -> None:
    ns.produce("orders", rows(1))
    snapshot, producer = ns.snapshot(), ns.producer("loader")
    consumer = ns.consumer("orders", "billing")
    messages = consumer.receive(timeout_ms=0)
    txn, named = ns.begin(), producer.begin()
    done = ns.begin()
    done.produce("orders", rows(2))
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


def test_a_with_block_closes(place: Place) -> None:
    with place.open() as ns:
        ns.create_topic("orders", SCHEMA)
    with raises(InvalidTransactionState, match="closed"):
        ns.topics()


def test_close_ends_no_transaction(ns: Any, place: Place) -> None:
    txn = ns.begin()
    txn.produce("orders", rows(1))
    txn.flush()
    ns.close()
    assert place.open().transaction(txn.id).state == "OPEN"


def _held_a_moment(store: FaultyStore) -> threading.Event:
    """The next entry takes a moment; the event says that it is under way."""
    begun = threading.Event()

    def hold() -> None:
        begun.set()
        time.sleep(0.02)

    store.script.append(hold)
    return begun


def test_close_finishes_what_was_committed_in_the_background(memory: Place) -> None:
    ns, store = memory.faulty()
    ns.create_topic("orders", SCHEMA)
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
    ns, store = memory.faulty()
    ns.create_topic("orders", SCHEMA)
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
    ns, store = memory.faulty()
    ns.create_topic("orders", SCHEMA)
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
            txn = ns.begin()
            txn.produce("orders", rows(1))
            txn.commit_async().result(30)
            ns.checkpoint()
    assert threading.active_count() <= before


# --- threads --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("clients", [1, 2])
def test_sixteen_threads_commit_through_one_handle(memory: Place, clients: int) -> None:
    """Two handles on one log race as well; every commit is there once, offsets are dense and as told."""
    handles = [memory.open() for _ in range(clients)]
    handles[0].create_topic("orders", SCHEMA)
    switch = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    try:

        def work(thread: int) -> list[tuple[int, range]]:
            ns = handles[thread % clients]
            done = []
            for number in range(12):
                with ns.begin() as txn:
                    txn.produce("orders", rows(thread * 100 + number))
                done.append((thread * 100 + number, txn.result.offsets["orders", 0]))
            return done

        results: Any = run_threads(*[partial(work, n) for n in range(16)])
    finally:
        sys.setswitchinterval(switch)
    for result in results:
        assert isinstance(result, list), result
    told = {offsets.start: number for result in results for number, offsets in result}
    found = read(handles[0])
    assert found == [told[offset] for offset in range(16 * 12)]


def test_threads_of_every_kind_on_one_handle(memory: Place) -> None:
    ns = memory.open()
    ns.create_topic("orders", SCHEMA, partitions=4)
    stop = threading.Event()

    def produce() -> None:
        for number in range(40):
            ns.produce("orders", rows(number), partition=number % 4)

    def commit() -> None:
        producer = ns.producer(f"p{threading.get_ident()}")
        for number in range(20):
            with producer.begin() as txn:
                txn.produce("orders", rows(number))
                if number % 3 == 0:
                    txn.flush()

    def look() -> None:
        last = -1
        while not stop.is_set():
            snapshot = ns.snapshot()
            assert snapshot.version >= last
            last = snapshot.version
            assert snapshot.read("orders").num_rows == sum(snapshot.end_offsets("orders").values())
            ns.transactions()

    def consume() -> None:
        consumer = ns.consumer("orders", "billing")
        for _ in range(10):
            consumer.acknowledge(consumer.receive(20, timeout_ms=0))

    def writers() -> None:
        try:
            found = run_threads(produce, produce, commit, commit, consume)
            assert found == [None] * 5, found
        finally:
            stop.set()

    assert run_threads(writers, look, ns.checkpoint, look)[:2] == [None, None]
    assert ns.snapshot().read("orders").num_rows == 120


@pytest.mark.real_runtime
def test_commits_gather_for_as_long_as_the_handle_was_told(memory: Place) -> None:
    ns = memory.open(min_commit_interval_ms=60)
    ns.create_topic("orders", SCHEMA)
    transactions = [ns.begin() for _ in range(8)]
    for number, txn in enumerate(transactions):
        txn.produce("orders", rows(number))
    started = time.monotonic()
    results: Any = run_threads(*[txn.commit for txn in transactions])
    assert time.monotonic() - started >= 0.02
    assert len({result.version for result in results}) <= 2


# --- forks ----------------------------------------------------------------------------------------------------------


@pytest.mark.clause("P-46")
def test_a_forked_child_is_a_writer_of_its_own(local: Place) -> None:
    ns = local.open()
    ns.create_topic("orders", SCHEMA)
    mine = ns.begin()

    def child() -> tuple[str, int, int]:
        with ns.begin() as txn:
            txn.produce("orders", rows(1))
        return ns.appender.writer, txn.id.number, txn.result.version

    writer, number, _ = in_child(child)
    assert writer != ns.appender.writer
    blocks = {block.writer: range(block.first, block.first + block.count) for block in _blocks(ns)}
    assert number in blocks[writer]
    assert mine.id.number in blocks[ns.appender.writer]
    mine.produce("orders", rows(2))
    mine.commit()
    assert read(ns) == [1, 2]


def _blocks(ns: Any) -> list[Any]:
    ns.snapshot()
    return list(ns.follower.state.blocks.values())


@pytest.mark.clause("P-46")
@pytest.mark.parametrize("flushed", [False, True])
def test_what_the_parent_opened_is_refused_in_the_child_and_goes_on_in_the_parent(local: Place, flushed: bool) -> None:
    ns = local.open()
    ns.create_topic("orders", SCHEMA)
    ns.produce("orders", rows(0))
    producer, consumer = ns.producer("loader"), ns.consumer("orders", "billing")
    messages = consumer.receive(timeout_ms=0)
    txn = producer.begin()
    txn.produce("orders", rows(1))
    if flushed:
        txn.flush()
    with ns.begin() as done:
        done.produce("orders", rows(5))
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
    ns = local.open()
    ns.create_topic("orders", SCHEMA)
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


def test_a_fork_asks_the_store_for_nothing_until_it_is_used(local: Place) -> None:
    ns = local.open()
    ns.create_topic("orders", SCHEMA)

    def child() -> str:
        assert ns._current is None
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


# --- pickling -------------------------------------------------------------------------------------------------------


@pytest.mark.clause("P-46")
def test_an_unpickled_handle_is_another_writer(place: Place) -> None:
    ns = place.open()
    ns.create_topic("orders", SCHEMA)
    copy = pickle.loads(pickle.dumps(ns))
    place.opened.append(copy)
    copy.produce("orders", rows(1))
    ns.produce("orders", rows(2))
    assert copy.appender.writer != ns.appender.writer
    assert copy.identity is not ns.identity
    assert read(ns) == [1, 2]
    reader = pickle.loads(pickle.dumps(place.open(mode="r")))
    place.opened.append(reader)
    with raises(ReadOnly):
        reader.produce("orders", rows(3))


def test_a_handle_with_a_store_or_clock_of_its_own_cannot_be_pickled(memory: Place, clock: ManualClock) -> None:
    for ns in (memory.open(clock=clock), memory.open(wrap=lambda store: store)):
        with raises(InvalidInputError, match="pickled"):
            pickle.dumps(ns)


def test_errors_keep_their_fields_through_pickling() -> None:
    error = OutcomeUnknown("who knows", txn_ids=("a" * 32,))
    copy = pickle.loads(pickle.dumps(error))
    assert (str(copy), copy.txn_ids, copy.durable) == (str(error), error.txn_ids, Durable.MAYBE)


# --- secrets --------------------------------------------------------------------------------------------------------


def test_storage_options_appear_nowhere(memory: Place, monkeypatch: pytest.MonkeyPatch, caplog: Any) -> None:
    secret = "hunter2-storage-secret"
    store = memory.store()
    seen: list[Any] = []

    def open_store(url: str, options: Any) -> Store:
        seen.append(options)
        return FaultyStore(store)

    monkeypatch.setattr(connection, "open_store", open_store)
    caplog.set_level(logging.DEBUG)
    ns = txnlog.open("memory://secret", "sales", create=True, storage_options={"key": secret, "nested": {"a": secret}})
    assert seen == [{"key": secret, "nested": {"a": secret}}]
    ns.create_topic("orders", SCHEMA)
    txn = ns.begin()
    txn.produce("orders", rows(1))
    faulty: Any = ns.store
    while not isinstance(faulty, FaultyStore):
        faulty = faulty.inner
    ns.appender.create_attempts = 2
    faulty.forever = "broken"
    with raises(OutcomeUnknown, durable=Durable.MAYBE) as caught:
        txn.commit()
    faulty.forever = None
    txn.commit()
    consumer = ns.consumer("orders", "billing")
    messages = consumer.receive(timeout_ms=0)
    shown = [
        repr(ns),
        ns._repr_html_(),
        str(ns),
        repr(txn),
        repr(txn.result),
        repr(consumer),
        repr(messages),
        repr(ns.snapshot()),
        repr(ns.producer("loader")),
        repr(ns.topic("orders")),
        repr(ns.store),
        caplog.text,
        str(caught.value),
        repr(caught.value),
        "".join(traceback.format_exception(caught.value)),
        repr(pickle.loads(pickle.dumps(ns))),
    ]
    stored = b"".join(store.get(key) for key in objects(store))
    assert not [text for text in shown if secret in text]
    assert secret.encode() not in stored
    ns.close()


# --- a disk that is full --------------------------------------------------------------------------------------------


class Full(ForwardingStore):
    """A disk that is full when told."""

    full = False

    def create(self, key: str, data: bytes) -> Created:
        self._check()
        return super().create(key, data)

    def put(self, key: str, data: bytes) -> None:
        self._check()
        super().put(key, data)

    def info(self, key: str) -> ObjectInfo:
        return super().info(key)

    def _check(self) -> None:
        if self.full:
            raise StoreError("no space left on device", durable=Durable.NOTHING)


def test_a_full_disk_is_said_and_costs_nothing(place: Place) -> None:
    stores: list[Full] = []

    def wrap(store: Store) -> Store:
        stores.append(Full(store))
        return stores[0]

    ns = place.open(wrap=wrap)
    ns.create_topic("orders", SCHEMA)
    ns.produce("orders", rows(0))
    txn = ns.begin()
    txn.produce("orders", rows(1))
    stores[0].full = True
    for call in (
        txn.commit,
        txn.flush,
        lambda: ns.produce("orders", rows(2)),
        lambda: ns.create_topic("audit"),
        lambda: ns.producer("loader"),
        lambda: ns.consumer("orders", "billing"),
        ns.checkpoint,
    ):
        with Unchanged(place), raises(StoreError, match="no space left"):
            call()
    assert isinstance(txn.commit_async().exception(30), StoreError)
    assert read(ns) == [0], "reading goes on"
    stores[0].full = False
    txn.commit()
    assert read(ns) == [0, 1]
    assert ids(ns.consumer("orders", "billing").receive(timeout_ms=0).table) == [0, 1]


def test_the_runtime_runs_on_without_threads_after_its_end() -> None:
    runtime = Runtime()
    assert runtime.run_all([lambda: 1, lambda: 2]) == [1, 2]
    runtime.close()
    before = threading.active_count()
    assert runtime.run_all([lambda: 3, lambda: 4]) == [3, 4]
    assert threading.active_count() == before
    with pytest.raises(ZeroDivisionError):
        runtime.run_all([lambda: 1, lambda: 1 // 0])


def test_threads_share_one_pool() -> None:
    runtime = Runtime()
    before = threading.active_count()
    run_threads(*[lambda: runtime.run_all([lambda: time.sleep(0.001)] * 8) for _ in range(8)])
    assert threading.active_count() - before <= 16
    runtime.close()
