"""A compacted topic of prices, and what a reader sees of it."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from txnlog.api.namespace import Namespace

PRICES = pa.schema([pa.field("name", pa.string()), pa.field("price", pa.int64())])


DAY_MS = 24 * 60 * 60 * 1_000


Row = tuple[int, int, str | None, int | None]
"""Partition, offset, key and value."""


def compacted_topic(ns: Namespace, partitions: int = 1, **settings: Any) -> Namespace:
    ns.enable("holes")
    ns.create_topic("prices", PRICES, partitions=partitions, key="name", cleanup_policy="compact", **settings)
    return ns


def put(ns: Namespace, *pairs: tuple[str | None, int | None]) -> int:
    return ns.produce("prices", [{"name": name, "price": price} for name, price in pairs]).version


def shown(ns: Namespace, version: int | None = None, **arguments: Any) -> list[Row]:
    table = ns.snapshot(version).read("prices", include_metadata=True, **arguments)
    columns = [table.column(name).to_pylist() for name in ("_partition", "_offset", "name", "price")]
    return sorted(zip(*columns, strict=True), key=lambda row: row[:2])
