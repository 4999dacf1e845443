"""A namespace with messages for consumers of a Shared subscription, a second handle, and a store that misbehaves."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from tests.client.support import SCHEMA, FaultyStore, Place, rows
from txnlog.testing import ManualClock

LEASE_MS = 10_000


@pytest.fixture
def ns(memory: Place, clock: ManualClock) -> Any:
    """Ten messages in one partition, and a Shared subscription whose leases last ten seconds."""
    handle = memory.orders(clock=clock)
    handle.create_topic("audit", SCHEMA)
    handle.produce("orders", rows(*range(10)))
    handle.create_subscription("orders", "billing", type="shared", lease_ms=LEASE_MS)
    return handle


@pytest.fixture
def other(ns: Any, memory: Place, clock: ManualClock) -> Any:
    """Another client of the namespace."""
    return memory.open(clock=clock)


def actions(ns: Any, kind: type, since: int) -> list[Any]:
    newest = ns.snapshot().version
    return [
        action
        for version in range(since + 1, newest + 1)
        for action in ns._connection.follower.log.entry(version).actions
        if isinstance(action, kind)
    ]


def begin(call: Any) -> threading.Thread:
    """A call in a thread of its own."""
    thread = threading.Thread(target=call, daemon=True)
    thread.start()
    return thread


def shared(memory: Place, clock: ManualClock, count: int = 10, **options: Any) -> tuple[Any, FaultyStore]:
    """Messages and a Shared subscription, over a store that misbehaves on demand."""
    ns, store = memory.faulty_orders(*range(count), clock=clock)
    ns.create_subscription("orders", "billing", type="shared", lease_ms=LEASE_MS, **options)
    return ns, store
