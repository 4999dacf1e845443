"""A topic with segments of every kind, to be scanned natively."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

import txnlog
from tests.by_hand import append, compact
from txnlog.format.actions import Commit, DeleteRecords, Prepare

if TYPE_CHECKING:
    from txnlog.api.namespace import Namespace
    from txnlog.data.segment_rows import PlannedSegment


SCHEMA = pa.schema(
    [
        pa.field("id", pa.int64(), nullable=False),
        pa.field("a.name", pa.string()),
        pa.field("at", pa.timestamp("us", "UTC")),
    ]
)
LEVELS = ("read_committed", "read_uncommitted")


def rows(*ids: int) -> pa.Table:
    """Rows that are told apart by their id; every third has nulls."""
    start = dt.datetime(2026, 11, 21, tzinfo=dt.UTC)
    return pa.Table.from_pylist(
        [
            {
                "id": number,
                "a.name": None if number % 3 == 0 else f"n{number}",
                "at": None if number % 3 == 1 else start + dt.timedelta(microseconds=number),
            }
            for number in ids
        ],
        schema=SCHEMA,
    )


def flushed(ns: Namespace, **by_partition: tuple[int, ...]) -> Any:
    """A transaction with rows ``p0=(1, 2)`` that has a file of its own."""
    txn = ns.begin(timeout_ms=600_000)
    for name, ids in by_partition.items():
        txn.produce("orders", rows(*ids), partition=int(name[1:]))
    txn.flush()
    return txn


def build(root: Path) -> tuple[Namespace, dict[str, int]]:
    """A topic with segments of every kind, transactions in every state, and the versions on the way."""
    ns = txnlog.open(root, namespace="sales", create=True, min_commit_interval_ms=200)
    ns.create_topic("orders", SCHEMA, partitions=4)
    steps = {"empty": ns.snapshot().version}
    steps["one produce"] = ns.produce("orders", rows(1, 2, 3), partition=1).version

    begun = []
    for number in range(40):
        txn = ns.begin()
        txn.produce("orders", rows(*range(100 + 3 * number, 103 + 3 * number)), partition=number % 3)
        begun.append(txn)
    for future in [txn.commit_async() for txn in begun]:
        steps["many transactions in a segment"] = future.result().version

    open_one = flushed(ns, p0=(301, 302), p3=(303,))
    aborted = flushed(ns, p0=(311,), p1=(312, 313))
    prepared = flushed(ns, p2=(321, 322))
    append(ns, Prepare(prepared.id.number, ""))
    steps["nothing decided"] = ns.snapshot().version
    flushed(ns, p0=(331, 332, 333)).commit()
    steps["of several partitions"] = flushed(ns, p1=(341,), p0=(342, 343), p3=(344, 345)).commit().version
    aborted.abort()
    steps["decided"] = append(ns, Commit(prepared.id.number))
    chosen = []
    for first in (400, 410, 420):
        version = flushed(ns, p3=tuple(range(first, first + 5))).commit().version
        chosen += [item.number for item in planned(ns) if item.version == version]
    steps["before compaction"] = ns.snapshot().version
    steps["compacted"] = compact(ns, "orders", chosen, 3)
    steps["newest"] = ns.produce("orders", rows(500, 501), partition=0).version
    assert open_one.state == "OPEN"
    return ns, steps


def planned(ns: Namespace, level: str = "read_committed") -> tuple[PlannedSegment, ...]:
    return ns.snapshot().plan("orders", isolation_level=level).segments


@pytest.fixture(scope="module")
def busy(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Namespace, dict[str, int]]]:
    ns, steps = build(tmp_path_factory.mktemp("busy"))
    yield ns, steps
    ns.close()


@pytest.fixture
def ns(namespace: Namespace) -> Namespace:
    namespace.create_topic("orders", SCHEMA, partitions=4)
    return namespace


def delete_before(ns: Namespace, before: dict[int, int]) -> None:
    append(ns, DeleteRecords(ns.topic("orders").id, tuple(sorted(before.items()))))
