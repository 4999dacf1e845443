"""A namespace with a checkpoint, its objects, what was warned of, and whether a handle agrees with the entries."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import Any

import pytest

from tests.client.support import Place, busy, from_zero, rows
from txnlog.format import keys
from txnlog.log import checkpoint_codec


@pytest.fixture
def checkpointed(memory: Place) -> tuple[Any, Any]:
    """A namespace with a checkpoint that headers name, and its raw store."""
    ns = memory.open()
    busy(ns, 1)
    ns.checkpoint()
    ns.produce("orders", rows(5))
    return ns, memory.store()


@pytest.fixture
def warnings(caplog: pytest.LogCaptureFixture) -> Iterator[Warnings]:
    """What was warned of."""
    with caplog.at_level(logging.WARNING, "txnlog"):
        yield Warnings(caplog)


class Warnings:
    """Warnings that were logged since the last look."""

    def __init__(self, caplog: pytest.LogCaptureFixture) -> None:
        self._caplog = caplog

    def take(self) -> list[str]:
        """Them, which are not shown again."""
        found = [record.getMessage() for record in self._caplog.records if record.name == "txnlog.log"]
        self._caplog.clear()
        return found


def objects_of(ns: Any, kind: str) -> list[str]:
    base = ns._connection.follower.base
    if kind == "manifest":
        return [f"sales/{keys.manifest_key(base.version)}"]
    return [f"sales/{keys.part_key(part.unique)}" for part in base.runs(kind)]


def agrees(client: Any) -> None:
    """A handle knows what the entries alone say: hot rows, cold rows, and the rows of every version."""
    zero = from_zero(client)
    follower = client._connection.follower
    for name, table in follower.state.as_tables().items():
        if name not in checkpoint_codec.COLD_KINDS:
            assert table == zero.as_tables()[name], name
    for topic in zero.topics:
        records, removals = follower.segments(topic)
        assert {item.number: item for item in records} == {
            number: item for number, item in zero.segments.items() if item.topic == topic
        }
        assert removals == zero.removals
    for number, outcome in zero.outcomes.items():
        assert follower.outcome(number) == outcome
    for batch in zero.batches.values():
        last = batch.sequence + batch.rows - 1
        assert follower.batches(batch.producer, batch.topic, batch.partition, batch.sequence, last) == [batch]
