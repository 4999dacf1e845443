"""A topic of people, of whom some are erased."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from txnlog.api.namespace import Namespace
from txnlog.testing import ManualClock

PEOPLE = pa.schema([pa.field("id", pa.int64()), pa.field("name", pa.string())])


HOUR_MS = 3_600_000


def people(ns: Namespace, **settings: Any) -> Namespace:
    ns.enable("holes")
    ns.create_topic("orders", PEOPLE, partitions=2, key="id", **settings)
    return ns


def put(ns: Any, *ids: int) -> Any:
    return ns.produce("orders", [{"id": number, "name": f"person-{number}-secret"} for number in ids])


def positions(ns: Namespace) -> dict[int, tuple[int, int]]:
    table = ns.snapshot().read("orders", include_metadata=True)
    columns = [table.column(name).to_pylist() for name in ("id", "_partition", "_offset")]
    return {number: (partition, offset) for number, partition, offset in zip(*columns, strict=True)}


def vacuumed(ns: Namespace, clock: ManualClock) -> None:
    clock.advance(3 * HOUR_MS)
    ns.vacuum(retain_ms=0, grace_ms=HOUR_MS, allow_short_retention=True)
