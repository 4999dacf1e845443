"""Namespaces to back up, with some of everything; stores at which a backup or a restore ends; comparing both sides."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

import txnlog
from tests.client.support import SCHEMA, Place, begun, prepared, rows, take, unique_name
from txnlog.format import keys
from txnlog.store import HookStore, MemoryStore, PrefixStore, Store, StoreCall


class Killed(BaseException):
    """The process ends here."""


def stopping(store: Store, calls: Iterator[int], point: int, side: str, error: Callable[[], BaseException]) -> Store:
    """A store that ends the work at one of its requests, counted over all stores that share ``calls``."""

    def stop(_call: StoreCall, _key: str, _result: object = None) -> None:
        if next(calls) == point:
            raise error()

    return HookStore(store, before=stop) if side == "before" else HookStore(store, after=stop)


def before_first(store: Store, call: StoreCall, of: str, act: Callable[[], object]) -> Store:
    """A store at which somebody acts once, before the first request of a kind that concerns a key."""
    left = [act]

    def before(asked: StoreCall, key: str) -> None:
        if asked is call and of in key and left:
            left.pop()()

    return HookStore(store, before=before)


def with_everything(place: Place, **options: Any) -> tuple[Any, dict[str, Any]]:
    """A namespace with merged, replaced, aborted, prepared and open work, a subscription and a checkpoint."""
    ns = place.open(**options)
    ns.create_topic("orders", SCHEMA, partitions=2)
    ns.create_topic("audit", SCHEMA)
    for number in range(4):
        with ns.begin() as txn:
            txn.produce("orders", rows(number), partition=number % 2)
            txn.produce("audit", rows(number))
    consumer = ns.consumer("orders", "billing")
    messages = take(consumer, 2)
    consumer.acknowledge(messages)
    ns.optimize("orders")
    ns.checkpoint()
    token = prepared(ns, 100)
    with ns.begin() as txn:
        txn.produce("audit", rows(4))
    producer = ns.producer("loader")
    producer.produce("audit", rows(5), partition=0, sequence=7)
    begun(ns, 101, flush=True).abort()
    begun(ns, 102, flush=True, timeout_ms=60_000)
    return ns, {"token": token, "acknowledged": len(messages), "epoch": producer.epoch}


def folder() -> MemoryStore:
    """An empty folder for backups."""
    return MemoryStore(unique_name())


def back_up(place: Place, to: Store, name: str = "sales", *, store: Store | None = None, **options: Any) -> Any:
    """Back up a namespace of a place into a folder."""
    source = place.store() if store is None else store
    return txnlog.backup(f"{place.root}/{name}", "memory://unused", store=source, destination_store=to, **options)


def restore(place: Place, backup: Store, name: str = "sales", *, store: Store | None = None, **options: Any) -> Any:
    """Restore a backup as a namespace of a place."""
    root = place.store() if store is None else store
    return txnlog.restore("memory://unused", f"{place.root}/{name}", store=backup, destination_store=root, **options)


def objects(store: Store, prefix: str = "") -> dict[str, bytes]:
    """Everything that a store has, without the time when a backup was made."""
    found = {info.key: store.get(info.key) for info in store.list(prefix)}
    for key, data in found.items():
        if keys.backup_version(key) is not None:
            sealed = json.loads(data)
            del sealed["digest"], sealed["backup"]["created_ms"]
            found[key] = json.dumps(sealed).encode()
    return found


def damaged(store: Store, key: str, damage: str) -> None:
    """An object that is ``missing``, ``short`` by a byte, or with a bit that is ``flipped``."""
    data = store.get(key)
    if damage == "missing":
        store.delete(key)
    elif damage == "short":
        store.put(key, data[:-1])
    else:
        middle = len(data) // 2
        store.put(key, data[:middle] + bytes([data[middle] ^ 1]) + data[middle + 1 :])


def of_namespace(place: Place, name: str = "sales") -> dict[str, bytes]:
    """Everything in the folder of a namespace."""
    return objects(PrefixStore(place.store(), name))


def shown(ns: Any, version: int | None = None) -> dict[str, Any]:
    """All rows of all topics at a version, with their metadata, at both levels, and the ends."""
    snapshot = ns.snapshot(version)
    found: dict[str, Any] = {}
    for topic in snapshot.topics():
        table = snapshot.read(topic, include_metadata=True).to_pylist()
        found[topic] = sorted(table, key=lambda row: (row["_partition"], row["_offset"]))
        uncommitted = snapshot.read(topic, isolation_level="read_uncommitted").to_pylist()
        found[f"{topic} uncommitted"] = sorted(row["id"] for row in uncommitted)
        found[f"{topic} ends"] = snapshot.end_offsets(topic)
    return found


def all_shown(place: Place, until: int, name: str = "sales", **options: Any) -> dict[int, dict[str, Any]]:
    """The same of all versions that can be read, up to one."""
    with txnlog.open(place.root, namespace=name, mode="r", store=place.store(), **options) as ns:
        oldest = ns._connection.follower.state.head.oldest_readable
        return {version: shown(ns, version) for version in range(oldest, until + 1)}
