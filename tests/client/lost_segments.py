"""A topic with a segment that is gone, and consumers of every kind for it."""

from __future__ import annotations

from typing import Any

import pytest

from tests.client.support import Place, rows
from txnlog.store import Store

KINDS = {
    "exclusive": {},
    "exclusive that keeps its place": {"takeover": "after_lease"},
    "failover": {"type": "failover"},
    "shared": {"type": "shared"},
}
every_kind = pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS.keys())


def damaged(memory: Place, *, partitions: int = 1, of: int = 0) -> tuple[Any, Store, Any]:
    """A namespace whose topic has three segments of five messages in each partition; one in the middle is gone."""
    ns = memory.orders(partitions=partitions)
    for number in range(3):
        for partition in range(partitions):
            ns.produce("orders", rows(*range(number * 10, number * 10 + 5)), partition=partition)
    planned = [item for item in ns.snapshot().plan("orders").segments if item.slices[0].partition == of]
    store = memory.store()
    store.delete(f"sales/{planned[1].key}")
    return memory.open(), store, planned[1]


def consumer_of(ns: Any, kind: dict[str, Any]) -> Any:
    ns.create_subscription("orders", "billing", start="earliest", if_not_exists=True, **kind)
    return ns.consumer("orders", "billing")
