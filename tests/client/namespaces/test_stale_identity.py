"""Which log a folder holds is judged by both logs as they are now, whenever one was read before an adoption."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

import catalog as txn_catalog
from tests.client.copies import adopt, copy, remove, with_orders
from tests.client.support import SCHEMA, Place, begun, prepared, raises, read, rows
from tests.faults import Once
from txnlog.errors import CorruptionError, TxnLogError
from txnlog.store import HookStore, StoreCall
from txnlog.testing import ManualClock

FIRST = "sales/_log/0000000000/00000000000000000000.json"


@pytest.fixture
def adopted(memory: Place) -> tuple[Any, Any]:
    """A handle from before an adoption by force, and one from behind it."""
    old = with_orders(memory)
    adopt(memory, "sales", force=True)
    return old, memory.open("sales", create=False)


def test_a_handle_that_never_appended_goes_on_after_an_adoption_by_force(memory: Place) -> None:
    with_orders(memory).close()
    ns = memory.open("sales", create=False)
    adopt(memory, "sales", force=True)
    ns.produce("orders", rows(1))
    assert read(ns) == [0, 1]


def test_an_open_handle_knows_txn_ids_that_another_process_gave_after_the_adoption(adopted: tuple[Any, Any]) -> None:
    old, new = adopted
    assert old.transaction(new.produce("orders", rows(1)).txn_id).state == "COMMITTED"
    token = prepared(new, 1)
    assert str(old.complete(token, commit=True).txn_id) == token
    assert old.abort(begun(new, 1, flush=True).id).state == "ABORTED"


def meanwhile(prefix: str, work: Callable[[], object]) -> Once:
    """Others work before the first read or creation of an object below some prefix."""
    return Once(lambda call, key: call in {StoreCall.GET, StoreCall.CREATE} and key.startswith(prefix), work)


@pytest.mark.parametrize("mode", ["r", "rw"])
def test_who_opens_while_somebody_adopts_by_force_opens(memory: Place, mode: str) -> None:
    with_orders(memory).close()
    adopted = meanwhile("_catalog/", lambda: adopt(memory, "sales", force=True))
    ns = memory.open("sales", mode=mode, create=False, wrap=partial(HookStore, before=adopted))
    assert adopted.came
    assert read(ns) == [0]


def test_a_creator_that_was_overtaken_opens_the_namespace(memory: Place) -> None:
    clock = ManualClock(1_700_000_000_000)
    memory.open("first", clock=clock)

    def overtaken() -> None:
        clock.advance(10_001)
        memory.open("sales", clock=clock).create_topic("orders", SCHEMA)

    ns = memory.open("sales", clock=clock, wrap=partial(HookStore, before=meanwhile(FIRST, overtaken)))
    ns.produce("orders", rows(1))
    assert read(ns) == [1]


def test_a_catalog_publishes_the_namespace_that_has_the_name_now(memory: Place) -> None:
    ns = memory.orders(namespace="sales")
    for number in range(5):
        ns.produce("orders", rows(number))
    with txn_catalog.open(memory.root) as old, txn_catalog.open(memory.root) as admin:
        old.publish("sales")
        ns.close()
        admin.drop_namespace("sales")
        remove(memory, "sales")
        admin.create_namespace("sales")
        again = memory.orders(100, namespace="sales", create=False)
        for publisher in (old, admin):
            assert publisher.publish("sales", "orders").version == again.snapshot().version
        assert read(again) == [100]


# --- creating anew what was lost --------------------------------------------------------------------------------------


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock(1_700_000_000_000)


@pytest.fixture
def lost(memory: Place, clock: ManualClock) -> Place:
    """A root that has listed a namespace for a minute, whose folder is gone; a copy of it is in another root."""
    with_orders(memory, clock=clock).close()
    clock.advance(60_000)
    backup = Place("memory", f"{memory.root}-backup")
    copy(memory, "sales", backup)
    remove(memory, "sales")
    return backup


def test_a_refused_creation_leaves_the_root_as_it_is(memory: Place, clock: ManualClock) -> None:
    with_orders(memory, clock=clock).close()
    clock.advance(60_000)
    store, key = memory.store(), FIRST
    first = store.get(key)
    store.delete(key)
    with txn_catalog.open(memory.root, clock=clock) as cat:
        before = cat.namespace("sales")
        with raises(CorruptionError, match="entry 0 of its log is missing"):
            cat.create_namespace("sales", if_not_exists=True)
        store.create(key, first)  # as the error says
        assert cat.namespace("sales") == before
    assert read(memory.open(create=False, clock=clock)) == [0]


@pytest.mark.parametrize("how", ["created", "restored"])
@pytest.mark.parametrize("slow", ["create_namespace", "open"])
def test_a_slow_creation_does_not_replace_what_came_meanwhile(
    memory: Place, clock: ManualClock, lost: Place, how: str, slow: str
) -> None:
    def made() -> None:
        if how == "restored":
            copy(lost, "sales", memory)
            return
        with txn_catalog.open(memory.root, clock=clock) as other:
            other.create_namespace("sales")
        with_orders(memory, clock=clock, create=False).close()
        clock.advance(11_000)

    # It looks at the folder of the namespace, and then nothing is heard of it for a while.
    looked = Once(lambda call, key: call is StoreCall.GET and key == FIRST, made)
    with contextlib.suppress(TxnLogError):
        if slow == "open":
            memory.open(clock=clock, wrap=partial(HookStore, after=looked))
        else:
            with txn_catalog.open(memory.root, clock=clock, store=HookStore(memory.store(), after=looked)) as cat:
                cat.create_namespace("sales", if_not_exists=True)
    assert read(memory.open(create=False, clock=clock)) == [0]
