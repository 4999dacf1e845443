"""Folders of namespaces that are copied, removed and replaced, as the tools of a store do it; and their adoption."""

from __future__ import annotations

from typing import Any

import catalog as txn_catalog
from catalog import NamespaceInfo
from tests.client.support import SCHEMA, Place, rows
from txnlog.store import Created


def copy(source: Place, name: str, target: Place, new: str | None = None) -> None:
    """Copy the folder of a namespace, as the tools of a store do."""
    store, there = source.store(), target.store()
    for info in list(store.list(f"{name}/")):
        assert (
            there.create(f"{new or name}/{info.key.removeprefix(f'{name}/')}", store.get(info.key)) is Created.CREATED
        )


def remove(place: Place, name: str) -> None:
    """Remove the folder of a namespace."""
    for info in list(place.store().list(f"{name}/")):
        place.store().delete(info.key)


def replace(source: Place, name: str, target: Place, new: str) -> None:
    """Put the copy of a folder in the place of another one."""
    remove(target, new)
    copy(source, name, target, new)


def with_orders(place: Place, name: str = "sales", **options: Any) -> Any:
    """A namespace with a topic and a message."""
    ns = place.open(name, **options)
    ns.create_topic("orders", SCHEMA, if_not_exists=True)
    ns.produce("orders", rows(0))
    return ns


def create(place: Place, name: str, clock: Any) -> None:
    with txn_catalog.open(place.root, clock=clock) as cat:
        cat.create_namespace(name)


def adopt(place: Place, name: str, **options: Any) -> NamespaceInfo:
    with txn_catalog.open(place.root) as cat:
        return cat.adopt_namespace(name, **options)
