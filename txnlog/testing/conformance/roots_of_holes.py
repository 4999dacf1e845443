"""A golden root about holes: of erasure, of key compaction, and of files that say something wrong."""

from __future__ import annotations

from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from txnlog.api.namespace import Namespace
from txnlog.common.ids import TxnId
from txnlog.format.actions import Begin, DeleteRecords, Replace
from txnlog.format.features import HOLES
from txnlog.testing.conformance.workshop import SCHEMA, Workshop

_WRONG: Final[dict[str, list[int] | None]] = {
    "twice": [0, 2, 2],
    "descending": [0, 4, 2],
    "below": [-1, 2, 4],
    "behind": [0, 2, 5],
    "unsaid": None,
}
"""By topic the offsets that a file says where three of five have a row; None: it has no such column."""


def holes(shop: Workshop) -> str:
    """Segments with holes: some rows gone, none left, merged again, below the earliest offset; damaged ones."""
    with shop.open() as ns:
        topic = ns.create_topic("orders", SCHEMA, partitions=2).id
        versions = [shop.produce(ns, "orders", 5, 3)]
        ns.enable(HOLES)
        versions.append(shop.produce(ns, "orders", 4, 2))
        for ids in ([1, 4, 7, 10], [5, 6, 7, 8]):
            shop.tick()
            ns.erase("orders", pc.field("id").isin(pa.array(ids, pa.int64())))
            versions += [ns.snapshot().version, shop.produce(ns, "orders", 2, 1)]
        shop.tick()
        ns.optimize("orders")
        versions += [ns.snapshot().version, shop.append(ns, DeleteRecords(topic, ((0, 2), (1, 4))))]
        ns.checkpoint()
        versions.append(shop.produce(ns, "orders", 0, 2))
        _keyed(shop, ns)
        for name, offsets in _WRONG.items():
            _laid(shop, ns, name, offsets)
            shop.ask(name, versions=("latest",))
        _laid(shop, ns, "right", [0, 2, 4])
        shop.ask("right", versions=("latest",))
    shop.ask("orders", versions=(*versions, "latest"))
    return holes.__doc__ or ""


def _keyed(shop: Workshop, ns: Namespace) -> None:
    ns.create_topic("keyed", SCHEMA, partitions=2, key="name", cleanup_policy="compact")
    versions = []
    for count in (6, 6):
        shop.tick()
        ns.produce("keyed", shop.rows(count))
        versions.append(ns.snapshot().version)
    shop.tick()
    ns.compact("keyed")
    shop.ask("keyed", versions=(*versions, "latest"))


def _laid(shop: Workshop, ns: Namespace, name: str, offsets: list[int] | None) -> None:
    """A topic of five messages, of which a segment with these offsets takes the place."""
    topic = ns.create_topic(name, SCHEMA).id
    shop.produce(ns, name, 5)
    (old,) = ns.snapshot().plan(name).segments
    rows = ns.snapshot().read(name, include_metadata=True).take([0, 2, 4])
    txns = [TxnId.from_bytes(value).number for value in rows.column("_txn_id").to_pylist()]
    table = (
        rows.select(SCHEMA.names)
        .append_column(pa.field("_txn", pa.int64(), nullable=False), pa.array(txns, pa.int64()))
        .append_column(pa.field("_version", pa.int64(), nullable=False), rows.column("_version"))
        .append_column(pa.field("_timestamp", pa.timestamp("us", "UTC"), nullable=False), rows.column("_timestamp"))
    )
    if offsets is not None:
        table = table.append_column(pa.field("_offset", pa.int64(), nullable=False), pa.array(offsets, pa.int64()))
    txn, number, *_ = ns._connection.reserve_block(2)
    segment = shop.lay(ns, name, number, table, {0: 3}, txn, compacted=True, extent=5)
    shop.append(ns, Begin(txn), segment, Replace(topic, txn, (old.number,), (0,)))


__all__ = ["holes"]
