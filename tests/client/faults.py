"""A Shared subscription over a store that misbehaves on demand, and calls in threads of their own."""

from __future__ import annotations

import threading
from typing import Any

from tests.client.support import FaultyStore, Place
from txnlog.testing import ManualClock

LEASE_MS = 10_000


def begin(call: Any) -> threading.Thread:
    thread = threading.Thread(target=call, daemon=True)
    thread.start()
    return thread


def shared(memory: Place, clock: ManualClock, count: int = 10, **options: Any) -> tuple[Any, FaultyStore]:
    ns, store = memory.faulty_orders(*range(count), clock=clock)
    ns.create_subscription("orders", "billing", type="shared", lease_ms=LEASE_MS, **options)
    return ns, store
