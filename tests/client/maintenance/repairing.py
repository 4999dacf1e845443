"""A namespace with everything, its copy, and what a repair does to it."""

from __future__ import annotations

from typing import Any

from tests.client.support import Place, unique_name
from txnlog.api.checking import repair_namespace
from txnlog.format import keys
from txnlog.results import Repaired
from txnlog.store import MemoryStore, PrefixStore, Store
from txnlog.testing import ManualClock
from txnlog.testing.scheduler import START_MS

FOLDER = "sales"


def store_of(place: Place) -> Store:
    return PrefixStore(place.store(), FOLDER)


def copied(content: dict[str, bytes]) -> tuple[str, MemoryStore]:
    """The address of a copy with these objects, and its store."""
    name = unique_name()
    store = MemoryStore(name)
    for key, data in content.items():
        store.put(key, data)
    return f"memory://{name}", store


def repaired(place: Place, source: str | None = None, *, store: Store | None = None, **options: Any) -> Repaired:
    clock = ManualClock(START_MS)
    return repair_namespace("x", FOLDER, source=source, store=store or place.store(), clock=clock, **options)


def done(found: Repaired) -> dict[str, str]:
    return {item.key: item.done for item in found.objects if item.done}


def entry(content: dict[str, bytes], place: int) -> str:
    """The key of an entry, from the first one, or from the newest one where it is negative."""
    return sorted(key for key in content if isinstance(keys.parse_key(key), keys.EntryKey))[place]


def first_of(content: dict[str, bytes], kind: type, place: int = 0) -> str:
    return sorted(key for key in content if isinstance(keys.parse_key(key), kind))[place]
