"""A small namespace with holes, the same bytes every time: a topic that was compacted by its key, and an erased one."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

import txnlog
from tests.damage.lake import NAME, START_MS, SteadyRuntime, Target, steady
from txnlog.format import keys
from txnlog.testing import ManualClock

SCHEMA: Final = pa.schema([("id", pa.int64()), ("name", pa.string())])
COMPACTED: Final = "prices"
ERASED: Final = "people"


def build(folder: Path) -> tuple[Target, ...]:
    """Make the root in an empty folder. Returns the objects that are damaged one by one."""
    SteadyRuntime.begin()
    clock = ManualClock(START_MS)
    with steady(), txnlog.open(folder, namespace=NAME, create=True, clock=clock) as ns:
        ns.enable("holes")
        ns.create_topic(COMPACTED, SCHEMA, key="id", cleanup_policy="compact", delta="off")
        ns.create_topic(ERASED, SCHEMA, delta="off")
        numbers = iter(range(100))
        for round_ in range(3):
            clock.advance(1_000)
            kept = [{"id": number, "name": "once"} for number in (10 * round_, 10 * round_ + 1)]
            ns.produce(COMPACTED, [*kept, {"id": 7, "name": f"round {round_}"}])
            ns.produce(ERASED, [{"id": next(numbers), "name": "somebody"} for _ in range(3)])
        before = ns.snapshot()
        first = ns.checkpoint()
        clock.advance(100_000)
        assert ns.compact(COMPACTED).removed_messages
        erased = ns.erase(ERASED, pc.field("id") == 4)
        past = ns.snapshot().plan(ERASED).segments
        ns.optimize(ERASED)
        second = ns.checkpoint()
        ns.produce(ERASED, [{"id": 100, "name": "another"}])
        assert erased.version is not None
        return tuple(_targets(ns, before, past, erased.version, (first, second)))


def _targets(ns: Any, before: Any, past: Any, erased: int, checkpoints: tuple[int, int]) -> Iterator[Target]:
    """Each with the object that it is swapped with: of a rewritten file what it was made of, and of others the next."""

    def segment(name: str, one: Any, other: Any) -> Target:
        return Target(name, f"{NAME}/{one.key}", f"{NAME}/{other.key}")

    compacted = [item for item in ns.snapshot().plan(COMPACTED).segments if item.compacted]
    merged = [item for item in ns.snapshot().plan(ERASED).segments if item.compacted]
    replaced = before.plan(ERASED).segments
    (rewritten,) = (item for item in past if item.compacted)
    yield segment("a segment that was compacted", compacted[0], before.plan(COMPACTED).segments[0])
    yield segment("a segment that an erasure rewrote", rewritten, replaced[1])
    yield segment("a segment that was merged behind an erasure", merged[0], rewritten)
    yield segment("a segment with an erased row", replaced[1], replaced[0])

    def entry(name: str, version: int) -> Target:
        key = f"{NAME}/{keys.entry_key(version)}"
        return Target(name, key, f"{NAME}/{keys.entry_key(version + 1)}", entry=True)

    yield entry("an entry that checkpoints cover", erased)
    manifests = [f"{NAME}/{keys.manifest_key(version)}" for version in checkpoints]
    yield Target("the newest checkpoint's manifest", manifests[1], manifests[0])
    follower = ns._connection.follower
    for part in follower.log.checkpoints.manifest(checkpoints[1]).parts:
        if part.kind == "hot" or part.first_version > checkpoints[0]:
            other = follower.log.checkpoints.manifest(checkpoints[0]).runs("hot")[0]
            yield Target(
                f"the newest checkpoint's part `{part.kind}`",
                f"{NAME}/{keys.part_key(part.unique)}",
                f"{NAME}/{keys.part_key(other.unique)}",
            )


__all__ = ["COMPACTED", "ERASED", "build"]
