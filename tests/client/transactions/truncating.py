"""Topics to be truncated, and what others do meanwhile."""

from __future__ import annotations

from typing import Any

import pytest

from tests.client.support import SCHEMA, Place, ids, rows
from txnlog.client import truncation


def two_topics(place: Place, **options: Any) -> Any:
    """A namespace with holes, ten messages in ``orders`` and two in ``audit``, over two partitions each."""
    ns = place.open(**options)
    ns.enable("holes")
    for topic in ("orders", "audit"):
        ns.create_topic(topic, SCHEMA, partitions=2)
    for number in range(10):
        ns.produce("orders", rows(number), partition=number % 2)
    ns.produce("audit", rows(100, 101), partition=0)
    return ns


def replace(ns: Any, *numbers: int, topics: tuple[str, ...] = ("orders",), **arguments: Any) -> Any:
    with ns.begin() as txn:
        for topic in topics:
            txn.truncate(topic, **arguments)
            txn.produce(topic, rows(*numbers), partition=0)
    return txn.result


def numbers(ns: Any, topic: str = "orders", version: int | None = None) -> list[int]:
    return sorted(ids(ns.snapshot(version).read(topic)))


def meanwhile(monkeypatch: pytest.MonkeyPatch, act: Any, times: int = 1) -> list[int]:
    """Let others act once a truncation was planned, and before its entry. Returns how often that was."""
    plan = truncation.planned
    turns: list[int] = []

    def planned(*arguments: Any, **more: Any) -> Any:
        found = plan(*arguments, **more)
        if len(turns) < times:
            turns.append(len(turns))
            act()
        return found

    monkeypatch.setattr("txnlog.client.transaction_work.planned", planned)
    return turns
