"""Which log a folder holds is judged by both logs as they are now, whenever one was read before an adoption."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import catalog as txn_catalog
from tests.client.copies import adopt, remove, with_orders
from tests.client.support import SCHEMA, Place, prepared, read, rows
from txnlog.store import Created, ForwardingStore
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


def test_an_open_handle_completes_what_another_process_prepared_after_the_adoption(adopted: tuple[Any, Any]) -> None:
    old, new = adopted
    token = prepared(new, 1)
    assert str(old.complete(token, commit=True).txn_id) == token


def test_an_open_handle_aborts_what_another_process_began_after_the_adoption(adopted: tuple[Any, Any]) -> None:
    old, new = adopted
    txn = new.begin()
    txn.produce("orders", rows(1))
    txn.flush()
    assert old.abort(txn.id).state == "ABORTED"


class Meanwhile(ForwardingStore):
    """Does something once, before a call that concerns some key."""

    def __init__(self, inner: Any, prefix: str, meanwhile: Callable[[], object]) -> None:
        super().__init__(inner)
        self._prefix = prefix
        self._meanwhile: list[Callable[[], object]] = [meanwhile]

    def _before(self, key: str) -> None:
        if key.startswith(self._prefix) and self._meanwhile:
            self._meanwhile.pop()()

    def get(self, key: str) -> bytes:
        self._before(key)
        return super().get(key)

    def create(self, key: str, data: bytes) -> Created:
        self._before(key)
        return super().create(key, data)


@pytest.mark.parametrize("mode", ["r", "rw"])
def test_who_opens_while_somebody_adopts_by_force_opens(memory: Place, mode: str) -> None:
    with_orders(memory).close()
    done: list[None] = []

    def meanwhile() -> None:
        adopt(memory, "sales", force=True)
        done.append(None)

    ns = memory.open("sales", mode=mode, create=False, wrap=lambda store: Meanwhile(store, "_catalog/", meanwhile))
    assert done
    assert read(ns) == [0]


def test_a_creator_that_was_overtaken_opens_the_namespace(memory: Place) -> None:
    clock = ManualClock(1_700_000_000_000)
    memory.open("first", clock=clock)

    def overtaken() -> None:
        clock.advance(10_001)
        memory.open("sales", clock=clock).create_topic("orders", SCHEMA)

    ns = memory.open("sales", clock=clock, wrap=lambda store: Meanwhile(store, FIRST, overtaken))
    ns.produce("orders", rows(1))
    assert read(ns) == [1]


def test_a_catalog_publishes_the_namespace_that_has_the_name_now(memory: Place) -> None:
    ns = memory.open("sales")
    ns.create_topic("orders", SCHEMA)
    for number in range(5):
        ns.produce("orders", rows(number))
    with txn_catalog.open(memory.root) as old, txn_catalog.open(memory.root) as admin:
        old.publish("sales")
        ns.close()
        admin.drop_namespace("sales")
        remove(memory, "sales")
        admin.create_namespace("sales")
        again = memory.open("sales", create=False)
        again.create_topic("orders", SCHEMA)
        again.produce("orders", rows(100))
        for publisher in (old, admin):
            assert publisher.publish("sales", "orders").version == again.snapshot().version
        assert read(again) == [100]
