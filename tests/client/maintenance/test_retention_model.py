"""Deletions amid produces, merges, checkpoints and vacuums: each reader sees what a plain model says."""

from __future__ import annotations

import random
from typing import Any

import pytest

from tests.client.support import SCHEMA, rows
from tests.effort import tries
from txnlog.testing import ManualClock

PARTITIONS = 3


class Model:
    """By partition: the offset, the id and the version of each message that was ever committed, and where it begins."""

    def __init__(self) -> None:
        self.messages: list[list[tuple[int, int]]] = [[] for _ in range(PARTITIONS)]
        self.starts = [0] * PARTITIONS

    def at(self, version: int) -> dict[int, list[tuple[int, int]]]:
        return {
            p: [
                (offset, number)
                for offset, (number, came) in enumerate(self.messages[p])
                if offset >= self.starts[p] and came <= version
            ]
            for p in range(PARTITIONS)
        }


def shown(ns: Any, version: int | None) -> dict[int, list[tuple[int, int]]]:
    table = ns.snapshot(version).read("orders", include_metadata=True)
    found: dict[int, list[tuple[int, int]]] = {p: [] for p in range(PARTITIONS)}
    for row in table.to_pylist():
        found[row["_partition"]].append((row["_offset"], row["id"]))
    return found


@pytest.mark.clause("P-35", "P-90", "P-235")
@pytest.mark.parametrize("seed", range(tries(6, 2)))
def test_every_reader_sees_what_a_plain_model_says(memory: Any, clock: ManualClock, seed: int) -> None:
    chance = random.Random(seed)
    model = Model()
    ns = memory.open(clock=clock)
    ns.create_topic("orders", SCHEMA, partitions=PARTITIONS)
    ns.create_subscription("orders", "billing")
    number = 0
    first = oldest = ns.snapshot().version
    for _ in range(60):
        clock.advance(chance.randrange(2_000_000))
        drawn = chance.random()
        if drawn < 0.5:
            partition, count = chance.randrange(PARTITIONS), chance.randrange(1, 5)
            numbers = range(number, number := number + count)
            done = ns.produce("orders", rows(*numbers), partition=partition)
            assert done.offsets["orders", partition].start == len(model.messages[partition])
            model.messages[partition] += [(item, done.version) for item in numbers]
        elif drawn < 0.65:
            partition = chance.randrange(PARTITIONS)
            offset = chance.randint(model.starts[partition], len(model.messages[partition]))
            ns.delete_records("orders", {partition: offset}, allow_unacknowledged=True)
            model.starts[partition] = offset
        elif drawn < 0.75:
            ns.optimize("orders", chance.choice([2_500, 1 << 20]))
        elif drawn < 0.8:
            ns.checkpoint()
        elif drawn < 0.85:
            oldest = max(first, ns.vacuum(retain_ms="1h", grace_ms="1h").oldest_readable)
        elif drawn < 0.9:
            ns = memory.open(clock=clock)
        version = chance.randint(oldest, ns.snapshot().version)
        assert shown(chance.choice([ns, memory.open(mode="r", clock=clock)]), version) == model.at(version)
    newest = ns.snapshot().version
    received = ns.consumer("orders", subscription="billing").receive(10_000)
    expected = [(p, offset) for p, found in model.at(newest).items() for offset, _ in found]
    assert sorted((p, offset) for _, p, offset in received.positions) == expected
    report = ns.fsck("deep")
    assert report.is_clean, report.findings
