"""A call of the catalog, or a close, inside a publication of the same thread: a signal's handler, or a finalizer."""

from __future__ import annotations

import contextlib
import itertools
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import catalog as txn_catalog
from catalog import Catalog
from tests.client.support import SCHEMA, rows
from txnlog.api.namespace import Namespace
from txnlog.api.opening import open_namespace
from txnlog.errors import InvalidTransactionState
from txnlog.store import MemoryStore
from txnlog.store.wrappers import HookStore, StoreCall

_PATIENCE_S = 10


class Inside:
    """What is called inside of a request of another call, by the thread that makes the request."""

    def __init__(self) -> None:
        self.wanted: Callable[[StoreCall, str], bool] = lambda _call, _key: False
        self.call: Callable[[], object] = lambda: None
        self.thread: object = None
        self.came = False

    def __call__(self, call: StoreCall, key: str) -> None:
        if threading.current_thread() is self.thread and not self.came and self.wanted(call, key):
            self.came = True
            self.call()

    def comes_through(self, outer: Callable[[], object]) -> bool:
        """Whether the call inside came. In a thread of its own, so that what hangs does not keep the test."""
        ended, self.came = threading.Event(), False

        def work() -> None:
            self.thread = threading.current_thread()
            with contextlib.suppress(InvalidTransactionState):
                outer()
            ended.set()

        threading.Thread(target=work, daemon=True).start()
        assert ended.wait(_PATIENCE_S), "the call inside the other one waits for ever"
        return self.came


@pytest.fixture
def inside() -> Inside:
    """Nothing yet."""
    return Inside()


@pytest.fixture
def ns(quick: None, inside: Inside) -> Iterator[Namespace]:
    """A namespace with a row to publish, over a store that calls."""
    store = HookStore(MemoryStore(), before=inside)
    with open_namespace("memory://root", "shop", create=True, store=store) as opened:
        opened.create_topic("orders", SCHEMA)
        opened.produce("orders", rows(0))
        yield opened


def _catalog(ns: Namespace) -> Catalog:
    store: Any = ns._connection.store
    while not isinstance(store, HookStore) or not isinstance(store.inner, MemoryStore):
        store = store.inner
    return txn_catalog.open("memory://root", store=store)


@pytest.mark.parametrize("call", ["publish", "repair"])
def test_a_publication_inside_of_another_one_comes_through_wherever_it_comes(
    ns: Namespace, inside: Inside, call: str
) -> None:
    """HANG: the thread had the lock of the publisher, or of the catalog, for which the call inside waited."""
    cat = _catalog(ns)
    inside.call = lambda: cat.publish("shop", "orders") if call == "publish" else cat.repair("shop")
    for place in itertools.count():
        ns.produce("orders", rows(place + 1))
        counted = itertools.count()
        inside.wanted = lambda *_of, place=place, counted=counted: next(counted) == place
        came = inside.comes_through(lambda: cat.publish("shop"))
        shown = cat.publish("shop", "orders")
        assert (shown.version, shown.repaired) == (ns.snapshot().version, ())
        if not came:
            break
    assert place > 4, "places"
    cat.close()


def test_a_catalog_can_be_closed_inside_of_its_calls(ns: Namespace, inside: Inside) -> None:
    """HANG: the thread had the lock under which the catalog opens the namespace."""
    for place in itertools.count():
        cat = _catalog(ns)
        counted = itertools.count()
        inside.wanted = lambda *_of, place=place, counted=counted: next(counted) == place
        inside.call = cat.close
        came = inside.comes_through(lambda cat=cat: cat.publish("shop"))  # type: ignore[misc]
        assert not cat._opened or not came
        cat.close()
        if not came:
            break
    assert place > 4, "places"


def test_a_handle_can_be_closed_while_it_publishes_in_maintain_and_in_the_background(
    ns: Namespace, inside: Inside
) -> None:
    """HANG: ``close`` waited a minute for the background, and that for the lock of the thread that closes."""
    ns.alter_topic("orders", delta="auto")
    ns._connection.session.auto_publisher._queue.finish()
    store = ns._connection.store
    for info in list(store.list("")):
        if "/_delta_log/" in info.key:
            store.delete(info.key)

    def close() -> None:
        producing = threading.Thread(target=lambda: ns.produce("orders", rows(1)))
        producing.start()
        producing.join()
        ns.close()

    inside.wanted = lambda call, key: call is StoreCall.CREATE and "/_delta_log/" in key
    inside.call = close
    assert inside.comes_through(ns.maintain)


def test_of_threads_that_open_a_namespace_for_publishing_one_handle_stays(ns: Namespace, inside: Inside) -> None:
    cat = _catalog(ns)
    inside.wanted = lambda *_of: True
    inside.call = lambda: cat.publish("shop", "orders")
    assert inside.comes_through(lambda: cat._publications("shop"))
    assert len(cat._opened) == 1
    cat.close()
