"""Publishers of one topic, and what may have been published of it before they come."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

from catalog.publication import table_publisher
from catalog.publication.publications import Publications
from tests.by_hand import compact
from tests.catalog.judging import commits_of
from tests.catalog.stories import mergeable
from tests.sim.scopes import founded, open_client, rows
from txnlog.api.namespace import Namespace
from txnlog.format import keys
from txnlog.store import MemoryStore, Store
from txnlog.store.wrappers import HookStore, StoreCall
from txnlog.testing import ManualClock
from txnlog.testing.scheduler import START_MS

TOPIC = "orders"


def publications(
    ns: Namespace,
    before: Callable[[StoreCall, str], None] | None = None,
    after: Callable[[StoreCall, str, object], None] | None = None,
) -> Publications:
    """A client's, with hooks around the requests of this publisher alone."""
    of = ns._connection
    return Publications(of.follower, HookStore(of.store, before=before, after=after), of.runtime)


def publish(ns: Namespace) -> Any:
    ns._connection.follower.refresh()
    return publications(ns).publish(ns._connection.topic_record(TOPIC).id)


def history(ns: Namespace) -> None:
    """Five segments, of which two are merged."""
    for number in range(10, 14):
        ns.produce(TOPIC, rows(number))
    ((partition, run),) = mergeable(ns, TOPIC)
    compact(ns, TOPIC, run[:2], partition)


def partly_published(ns: Namespace) -> None:
    """The same, and the first versions are there, with a checkpoint."""
    ns.produce(TOPIC, rows(8))
    publish(ns)
    ns.produce(TOPIC, rows(9))
    publish(ns)
    history(ns)


def middle_lost(ns: Namespace) -> None:
    partly_published(ns)
    publish(ns)
    folder = ns._connection.topic_record(TOPIC).folder
    newest = max(commits_of(ns._connection.store, folder))
    ns._connection.store.delete(keys.delta_commit_key(folder, newest - 1))
    ns.produce(TOPIC, rows(30))


def newest_damaged(ns: Namespace) -> None:
    partly_published(ns)
    publish(ns)
    folder = ns._connection.topic_record(TOPIC).folder
    commits = commits_of(ns._connection.store, folder)
    newest = max(commits)
    ns._connection.store.put(keys.delta_commit_key(folder, newest), commits[newest][:-40])
    ns.produce(TOPIC, rows(30))


PREPARED: dict[str, Callable[[Namespace], None]] = {
    item.__name__: item for item in (history, partly_published, middle_lost, newest_damaged)
}


@cache
def prepared(name: str) -> MemoryStore:
    """What is there before. What was lost below a checkpoint is no publisher's care, so there is none in that one."""
    table_publisher.CHECKPOINT_VERSIONS = 1_000 if name == "middle_lost" else 2  # type: ignore[misc]  # tests' fixtures set it back
    return founded(PREPARED[name], ManualClock(START_MS))


def client(store: Store, name: str) -> Namespace:
    ns = open_client(store, name, ManualClock(START_MS + 1_000))
    ns._connection.follower.refresh()
    return ns
