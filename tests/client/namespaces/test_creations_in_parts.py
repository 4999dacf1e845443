"""A namespace is made in several parts, in two logs: errors say which of them are on the store, and how to go on."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import pytest

import catalog
import txnlog
from tests.client.support import Place, is_entry, objects
from tests.faults import Once
from txnlog.errors import Durable, InvalidInputError, InvalidTransactionState, OutcomeUnknown, StoreError
from txnlog.store import Created, ForwardingStore, HookStore, Store, StoreCall


def _unreadable_once_made(store: Store) -> Store:
    """Entry 0 of the namespace can be put, and read by whoever puts it; from then on reads of its log time out."""
    seen = {"made": False, "read": False}

    def before(call: StoreCall, key: str) -> None:
        if call is StoreCall.GET and is_entry(key) and seen["read"]:
            raise StoreError("read timed out")

    def after(call: StoreCall, key: str, _result: object) -> None:
        if is_entry(key):
            seen["read"] = seen["read"] or (seen["made"] and call is StoreCall.GET)
            seen["made"] = seen["made"] or call is StoreCall.CREATE

    return HookStore(store, before=before, after=after)


def _full_behind(most: int) -> Callable[[Store], Store]:
    """So many entries of any log can be put, and then the disk is full."""
    puts = itertools.count()

    def before(call: StoreCall, key: str) -> None:
        if call is StoreCall.CREATE and "_log/" in key and next(puts) >= most:
            raise StoreError("no space left", durable=Durable.NOTHING)

    return lambda store: HookStore(store, before=before)


def _without_root_log(place: Place) -> None:
    place.orders(1).close()
    for key in [key for key in objects(place.store()) if key.startswith("_catalog/")]:
        place.store().delete(key)


def _root(place: Place) -> list[str]:
    return [key for key in objects(place.store()) if key.startswith("_catalog/_log/")]


def test_a_namespace_that_was_made_and_cannot_be_read_is_said_to_be_there(memory: Place) -> None:
    """LIE: ``open(create=True)`` made root and namespace, and cannot read it then: "nothing was written"."""
    with pytest.raises(StoreError) as caught:
        txnlog.open(memory.root, namespace="sales", create=True, store=_unreadable_once_made(memory.store()))
    assert any(key.startswith("sales/_log/") for key in objects(memory.store())), "the namespace is there"
    assert caught.value.durable is Durable.MAYBE, caught.value


def _open(place: Place, store: Store) -> Any:
    return txnlog.open(place.root, namespace="sales", create=True, store=store)


def _adopt(place: Place, store: Store) -> Any:
    return catalog.open(place.root, store=store).adopt_namespace("sales")


@pytest.mark.parametrize("make", [_open, _adopt])
def test_a_root_that_was_made_for_a_namespace_is_said_to_be_there(memory: Place, make: Any) -> None:
    """LIE: the root log is made, its second entry is refused (a full disk): "nothing was written"."""
    if make is _adopt:
        _without_root_log(memory)
    with pytest.raises(StoreError) as caught:
        make(memory, _full_behind(1)(memory.store()))
    assert len(_root(memory)) == 1
    assert caught.value.durable is Durable.MAYBE, caught.value


def test_a_lost_namespace_that_was_registered_anew_is_said_to_be(memory: Place) -> None:
    """LIE: ``create_namespace`` took the lost one out of the root and registered it anew: "nothing was written"."""

    class Later:
        def now_ms(self) -> int:
            return 4_000_000_000_000

    memory.orders(1).close()
    for key in [key for key in objects(memory.store()) if key.startswith("sales/")]:
        memory.store().delete(key)
    known = len(_root(memory))

    def before(call: StoreCall, key: str) -> None:
        if call is StoreCall.GET and key.startswith("sales/") and len(_root(memory)) > known:
            raise StoreError("read timed out")

    cat = catalog.open(memory.root, store=HookStore(memory.store(), before=before), clock=Later())
    with pytest.raises(StoreError) as caught:
        cat.create_namespace("sales")
    assert len(_root(memory)) == known + 1
    assert caught.value.durable is Durable.MAYBE, caught.value


def test_who_adopts_is_not_advised_to_open(memory: Place) -> None:
    """The advice is wrong: where the root log's creation has no answer, ``adopt_namespace`` says "open it again"."""

    class Silent(ForwardingStore):
        def create(self, key: str, data: bytes) -> Created:
            return Created.UNKNOWN if key.startswith("_catalog/_log/") else super().create(key, data)

    _without_root_log(memory)
    with pytest.raises(OutcomeUnknown) as caught:
        _adopt(memory, Silent(memory.store()))
    assert "open it" not in caught.value.advice, caught.value


def test_who_lost_a_race_of_adoptions_is_not_advised_to_adopt_what_is_adopted(memory: Place) -> None:
    """The advice contradicts itself: "open it, which says whether it must be adopted again; then adopt it again".

    It can be opened, and the second adoption is refused.
    """
    memory.orders(1).close()
    copied = Place("memory", f"{memory.root}-copy")
    for key in [key for key in objects(memory.store()) if key.startswith("sales/")]:
        copied.store().put(key, memory.store().get(key))

    def is_entry_of_copy(call: StoreCall, key: str) -> bool:
        return call is StoreCall.CREATE and is_entry(key)

    rival = Once(is_entry_of_copy, lambda: _adopt(copied, copied.store()))
    with pytest.raises(InvalidTransactionState, match="somebody else adopted") as caught:
        _adopt(copied, HookStore(copied.store(), before=rival))
    copied.open(create=False).close()
    with pytest.raises(InvalidInputError, match="is a namespace of its root already"):
        _adopt(copied, copied.store())
    assert "then adopt it again" not in caught.value.advice, caught.value
