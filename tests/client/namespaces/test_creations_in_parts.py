"""A namespace is made in several parts, in two logs: errors say which of them are on the store, and how to go on."""

from __future__ import annotations

from typing import Any

import pytest

import catalog
from tests.client.support import Place, is_entry, objects
from tests.faults import Once
from txnlog.errors import InvalidInputError, InvalidTransactionState, OutcomeUnknown
from txnlog.store import Created, ForwardingStore, HookStore, Store, StoreCall


def _without_root_log(place: Place) -> None:
    place.orders(1).close()
    for key in [key for key in objects(place.store()) if key.startswith("_catalog/")]:
        place.store().delete(key)


def _adopt(place: Place, store: Store) -> Any:
    return catalog.open(place.root, store=store).adopt_namespace("sales")


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
