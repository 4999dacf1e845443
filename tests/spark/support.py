"""What the tests over Spark share: paths, committed rows, a driver that dies, native scans, segments laid by hand."""

from __future__ import annotations

import importlib.metadata
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from txnlog.actions import AnyAction, Begin, Commit, Replace, Segment, SliceRows
from txnlog.commands import Simple
from txnlog.ids import TxnId
from txnlog.keys import segment_key
from txnlog.segment_file import EncodedSegment, encode

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from txnlog.namespace import Namespace


def path_of(ns: Namespace, topic: str = "") -> str:
    """ROOT/NAMESPACE/TOPIC, or ROOT/NAMESPACE."""
    return f"{ns.root}/{ns.name}/{topic}".rstrip("/")


def plans_once() -> bool:
    """Whether Spark plans a DataFrame of a Python source once; before 4.1 it does so for every action."""
    return not importlib.metadata.version("pyspark").startswith("4.0.")


def ids(ns: Namespace, topic: str) -> list[int]:
    """The ids of a topic's committed rows, sorted."""
    return sorted(ns.snapshot().read(topic).column("id").to_pylist())


def versions(ns: Namespace, *topics: str) -> set[int]:
    """The versions that committed the rows of some topics."""
    found: set[int] = set()
    for topic in topics:
        found |= set(ns.snapshot().read(topic, include_metadata=True).column("_version").to_pylist())
    return found


def forget_commit(checkpoint: Path, batch: int) -> None:
    """As if the driver had died before Spark noted in the query's checkpoint that the batch was done."""
    (checkpoint / "commits" / str(batch)).unlink()
    (checkpoint / "commits" / f".{batch}.crc").unlink()


# --- native scans -----------------------------------------------------------------------------------------------------


def assert_same_rows(frame: DataFrame, table: pa.Table) -> None:
    """The frame has the table's columns and rows, in any order."""
    found = frame.toArrow()
    assert found.column_names == table.column_names
    assert found.num_rows == table.num_rows
    found = found.cast(table.schema)
    assert sorted(map(repr, found.to_pylist())) == sorted(map(repr, table.to_pylist()))


def executed(frame: DataFrame) -> Any:
    """The one file scan of the plan that a frame is executed with: Spark's own object."""
    leaves = frame._jdf.queryExecution().executedPlan().collectLeaves()
    assert leaves.size() == 1
    return leaves.head()


def partition_filters(frame: DataFrame) -> str:
    """What Spark decides by the path alone, once a folder, while it plans."""
    return str(executed(frame).partitionFilters().mkString(" AND "))


# --- by hand ----------------------------------------------------------------------------------------------------------


def append(ns: Namespace, *actions: AnyAction) -> int:
    """One entry with these actions; its version."""
    return ns.connection.appender.call(Simple(lambda _draft, _at: list(actions), lambda draft, _at: draft.head.version))


def lay(
    ns: Namespace,
    number: int,
    data: pa.Table | EncodedSegment,
    txn: int,
    partitions: Mapping[int, int],
    *,
    compacted: bool = False,
) -> Segment:
    """Store a file of ``orders`` under a number of one's choice; the action that names it."""
    record = ns.connection.topic_record("orders")
    if isinstance(data, pa.Table):
        data = encode(data)
    file = f"{number:032x}.parquet"
    ns.connection.store.put(segment_key(record.folder, number, file), data.data)
    slices = tuple(SliceRows(partition, rows) for partition, rows in sorted(partitions.items()))
    return Segment(
        number, record.id, file, data.rows, data.size_bytes, data.checksum, slices, txn=txn, compacted=compacted
    )


def commit_sparse(ns: Namespace, positions: Sequence[int], tables: Sequence[pa.Table]) -> list[int]:
    """One segment of one row's partition 0 each, in one transaction each; numbers at these positions of a block."""
    block = ns.connection.reserve_block(2 * max(positions) + 4)
    actions: list[AnyAction] = []
    numbers: list[int] = []
    for position, table in zip(positions, tables, strict=True):
        number, txn = block[2 * position], block[2 * position + 1]
        actions += [Begin(txn), lay(ns, number, table, txn, {0: table.num_rows}), Commit(txn)]
        numbers.append(number)
    append(ns, *actions)
    return numbers


def compact(ns: Namespace, chosen: Sequence[int], partition: int) -> int:
    """Replace neighbours of one partition by one segment that stores what the log knew of each; the version."""
    snapshot = ns.snapshot()
    spans = [s.slices[0] for s in snapshot.plan("orders").segments if s.number in chosen]
    first = min(span.offset for span in spans if span.offset is not None)
    rows = sum(span.rows for span in spans)
    table = snapshot.read("orders", offsets={partition: (first, first + rows)}, include_metadata=True)
    numbers = [TxnId.from_bytes(value).number for value in table.column("_txn_id").to_pylist()]
    user = [field.name for field in ns.connection.topic_record("orders").schema.fields]
    stored = (
        table.select(user)
        .append_column(pa.field("_txn", pa.int64(), nullable=False), pa.array(numbers, pa.int64()))
        .append_column(pa.field("_version", pa.int64(), nullable=False), table.column("_version"))
        .append_column(pa.field("_timestamp", pa.timestamp("us", "UTC"), nullable=False), table.column("_timestamp"))
    )
    number, txn = ns.connection.reserve_block(2)[:2]
    merged = lay(ns, number, stored, txn, {partition: rows}, compacted=True)
    return append(
        ns, Begin(txn), merged, Replace(ns.connection.topic_record("orders").id, txn, tuple(sorted(chosen)), (first,))
    )
