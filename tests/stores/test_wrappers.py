"""Wrappers change what they say they change, and nothing else."""

from __future__ import annotations

import inspect
from collections.abc import Callable

import pytest

from tests.stores.subjects import RACERS, run_together
from txnlog.errors import ReadOnly, StoreError
from txnlog.store import (
    CountingStore,
    Created,
    ForwardingStore,
    HookStore,
    MemoryStore,
    ObjectNotFound,
    PrefixStore,
    ReadOnlyStore,
    Store,
    StoreCall,
    identity_of,
)


@pytest.fixture
def inner() -> MemoryStore:
    """The wrapped store."""
    return MemoryStore()


def test_every_wrapper_is_a_store_and_forwards_every_call_of_the_interface(inner: MemoryStore) -> None:
    calls = {name for name, _ in inspect.getmembers(Store, inspect.isfunction) if not name.startswith("_")}
    assert calls <= set(dir(ForwardingStore)), "a new call of the interface needs a line in ForwardingStore"
    requests = calls - {"url", "put_unsynced"}  # no request, and a put to whoever counts requests or hooks into them
    assert requests == {call.value for call in StoreCall}, "and one in StoreCall and HookStore"
    for wrapper in (ForwardingStore(inner), HookStore(inner), CountingStore(inner), ReadOnlyStore(inner)):
        assert isinstance(wrapper, Store)
        assert identity_of(wrapper) == inner.identity


# --- counting -------------------------------------------------------------------------------------------------------


def test_requests_are_counted_by_call_and_class_of_key(inner: MemoryStore) -> None:
    store = CountingStore(inner, classify=lambda key: "entry" if key.startswith("_log/") else "segment")
    store.create("_log/1", b"x")
    store.create("_log/1", b"x")
    store.put("orders/1", b"x")
    store.get("_log/1")
    with pytest.raises(ObjectNotFound):
        store.get("orders/2")
    store.get_range("orders/1", 0, 1)
    store.info("orders/1")
    list(store.list("_log/"))
    store.delete("orders/1")
    store.sync("_log/1")
    store.url("_log/1")
    assert store.counts() == {
        ("create", "entry"): 2,
        ("put", "segment"): 1,
        ("get", "entry"): 1,
        ("get", "segment"): 1,
        ("get_range", "segment"): 1,
        ("info", "segment"): 1,
        ("list", "entry"): 1,
        ("delete", "segment"): 1,
        ("sync", "entry"): 1,
    }
    store.reset()
    assert store.counts() == {}


def test_counts_of_many_threads_add_up(inner: MemoryStore) -> None:
    store = CountingStore(inner)

    def work() -> None:
        for number in range(500):
            store.put(f"k/{number}", b"")

    run_together([work] * RACERS)
    assert store.counts() == {("put", "object"): 500 * RACERS}


# --- read-only ------------------------------------------------------------------------------------------------------


def test_a_read_only_store_reads_and_sends_no_write(inner: MemoryStore) -> None:
    inner.create("a", b"x")
    counting = CountingStore(inner)
    store = ReadOnlyStore(counting)
    writes: list[Callable[[], object]] = [
        lambda: store.create("b", b""),
        lambda: store.put("a", b""),
        lambda: store.delete("a"),
    ]
    for call in writes:
        with pytest.raises(ReadOnly, match="read-only"):
            call()
    store.sync("a")
    assert counting.counts() == {}
    assert (store.get("a"), store.info("a").size_bytes, [info.key for info in store.list("")]) == (b"x", 1, ["a"])


# --- below a folder -------------------------------------------------------------------------------------------------


def test_a_prefixed_store_sees_and_writes_only_below_its_folder(inner: MemoryStore) -> None:
    inner.create("other/1", b"other")
    inner.create("sales", b"an object with the folder's name")
    inner.create("sales2/1", b"neighbour")
    store = PrefixStore(inner, "sales")
    assert store.create("1", b"mine") is Created.CREATED
    assert [info.key for info in store.list("")] == ["1"]
    assert inner.get("sales/1") == b"mine"
    assert store.info("1").key == "1"
    assert store.url("1") == inner.url("sales/1")
    with pytest.raises(ObjectNotFound) as caught:
        store.get("2")
    assert caught.value.key == "2"


def test_a_key_that_leads_out_of_the_folder_never_reaches_the_inner_store(inner: MemoryStore) -> None:
    reached: list[str] = []
    store = PrefixStore(HookStore(inner, before=lambda call, key: reached.append(key)), "sales")
    for key in ("../other/1", "/other/1", "..", "", "a/../../other"):
        for call in (store.get, store.info, store.delete, store.sync, store.url, lambda key: store.create(key, b"")):
            with pytest.raises(StoreError):
                call(key)
        with pytest.raises(StoreError):
            store.list(key + "/")
    assert reached == []


def test_prefixes_nest(inner: MemoryStore) -> None:
    PrefixStore(PrefixStore(inner, "a"), "b/c").put("d", b"x")
    assert [info.key for info in inner.list("")] == ["a/b/c/d"]


@pytest.mark.parametrize("folder", ["", "..", "a/../b", "/a", "a/"])
def test_a_prefix_that_is_no_folder_is_refused(inner: MemoryStore, folder: str) -> None:
    with pytest.raises(StoreError):
        PrefixStore(inner, folder)


# --- hooks ----------------------------------------------------------------------------------------------------------


def test_hooks_see_each_call_with_its_key_and_result(inner: MemoryStore) -> None:
    seen: list[object] = []
    store = HookStore(
        inner,
        before=lambda call, key: seen.append((call, key)),
        after=lambda call, key, result: seen.append(result),
    )
    store.create("a", b"x")
    store.get("a")
    store.delete("a")
    with pytest.raises(ObjectNotFound):
        store.get("a")
    assert seen[:6] == [
        (StoreCall.CREATE, "a"),
        Created.CREATED,
        (StoreCall.GET, "a"),
        b"x",
        (StoreCall.DELETE, "a"),
        None,
    ]
    assert seen[6] == (StoreCall.GET, "a")
    assert isinstance(seen[7], ObjectNotFound)


def test_what_before_raises_drops_the_request(inner: MemoryStore) -> None:
    def drop(call: StoreCall, key: str) -> None:
        raise TimeoutError

    with pytest.raises(TimeoutError):
        HookStore(inner, before=drop).create("a", b"x")
    assert list(inner.list("")) == []


def test_what_after_raises_loses_the_answer_of_a_request_that_was_carried_out(inner: MemoryStore) -> None:
    def lose(call: StoreCall, key: str, result: object) -> None:
        raise TimeoutError

    with pytest.raises(TimeoutError):
        HookStore(inner, after=lose).create("a", b"x")
    assert inner.get("a") == b"x"
