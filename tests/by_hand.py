"""Entries and segments laid by hand, past the calls of a client: what others, or older versions, may have left."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pyarrow as pa

from txnlog.api.namespace import Namespace
from txnlog.common.ids import TxnId
from txnlog.data.segment_file import EncodedSegment, encode
from txnlog.format.actions import AnyAction, Begin, Commit, Replace, Segment, SliceRows
from txnlog.format.keys import segment_key
from txnlog.log.commands import Simple


def append(ns: Namespace, *actions: AnyAction) -> int:
    """One entry with these actions; its version."""
    return ns._connection.appender.call(
        Simple(lambda _draft, _at: list(actions), lambda draft, _at: draft.head.version)
    )


def lay(
    ns: Namespace,
    topic: str,
    number: int,
    data: pa.Table | EncodedSegment,
    txn: int,
    partitions: Mapping[int, int],
    *,
    compacted: bool = False,
) -> Segment:
    """Store a file of a topic under a number of one's choice; the action that names it.

    ``partitions`` says how many rows of each it holds, in their order.
    """
    record = ns._connection.topic_record(topic)
    if isinstance(data, pa.Table):
        data = encode(data)
    file = f"{number:032x}.parquet"
    ns._connection.store.put(segment_key(record.folder, number, file), data.data)
    slices = tuple(SliceRows(partition, rows) for partition, rows in sorted(partitions.items()))
    return Segment(
        number,
        record.id,
        file,
        data.rows,
        data.size_bytes,
        data.checksum,
        slices,
        txn=txn,
        compacted=compacted,
        statistics=data.statistics,
    )


def commit_sparse(ns: Namespace, topic: str, positions: Sequence[int], tables: Sequence[pa.Table]) -> list[int]:
    """A segment of partition 0 and a transaction for each table; the numbers, at these positions of a block."""
    block = ns._connection.reserve_block(2 * max(positions) + 4)
    actions: list[AnyAction] = []
    numbers: list[int] = []
    for position, table in zip(positions, tables, strict=True):
        number, txn = block[2 * position], block[2 * position + 1]
        actions += [Begin(txn), lay(ns, topic, number, table, txn, {0: table.num_rows}), Commit(txn)]
        numbers.append(number)
    append(ns, *actions)
    return numbers


def compact(ns: Namespace, topic: str, numbers: Sequence[int], partition: int) -> int:
    """Replace neighbours of one partition by one segment, as ``optimize`` does; the version."""
    snapshot = ns.snapshot()
    record = ns._connection.topic_record(topic)
    spans = [item.slices[0] for item in snapshot.plan(topic).segments if item.number in numbers]
    first = min(span.offset for span in spans if span.offset is not None)
    rows = sum(span.rows for span in spans)
    table = snapshot.read(topic, offsets={partition: (first, first + rows)}, include_metadata=True)
    txns = [TxnId.from_bytes(value).number for value in table.column("_txn_id").to_pylist()]
    stored = (
        table.select([field.name for field in record.schema.fields])
        .append_column(pa.field("_txn", pa.int64(), nullable=False), pa.array(txns, pa.int64()))
        .append_column(pa.field("_version", pa.int64(), nullable=False), table.column("_version"))
        .append_column(pa.field("_timestamp", pa.timestamp("us", "UTC"), nullable=False), table.column("_timestamp"))
    )
    number, txn = ns._connection.reserve_block(2)[:2]
    merged = lay(ns, topic, number, stored, txn, {partition: rows}, compacted=True)
    return append(ns, Begin(txn), merged, Replace(record.id, txn, tuple(sorted(numbers)), (first,)))
