"""Topics with a history, to be read by the format."""

from __future__ import annotations

from collections.abc import Iterator
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from pyspark.errors import PySparkException

import txnlog
from tests.spark.support import path_of
from txnlog.testing import ManualClock
from txnlog.testing.scheduler import START_MS

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from txnlog.api.namespace import Namespace


ORDERS = pa.schema([pa.field("id", pa.int64(), nullable=False), ("customer", pa.string()), ("amount", pa.float64())])
METADATA = ["_partition", "_offset", "_timestamp", "_txn_id", "_version"]


def orders(*ids: int) -> list[dict[str, Any]]:
    return [{"id": i, "customer": f"c{i % 5}" if i % 7 else None, "amount": i / 4} for i in ids]


def load(spark: SparkSession, ns: Namespace, topic: str = "", **options: Any) -> DataFrame:
    return spark.read.format("txnlog").options(**options).load(path_of(ns, topic))


def listed(table: pa.Table) -> list[str]:
    """Rows as text in an order of their own: NaN equals itself, and everything can be compared."""
    return sorted(map(str, table.to_pylist()))


def same(df: DataFrame, table: pa.Table) -> bool:
    """Whether a DataFrame has the columns and rows of a table, and some rows at all."""
    assert df.columns == table.column_names
    assert table.num_rows
    return listed(df.toArrow()) == listed(table)


def ids(df: DataFrame) -> list[int]:
    return sorted(row["id"] for row in df.select("id").collect())


def refused(kind: str, problem: str) -> Any:
    """Spark shows an error of ours by its class and its text, and nothing of Python's or Java's before it."""
    return pytest.raises(PySparkException, match=rf"(?s)\A\s*[^\n]*[:.]\s+txnlog\.errors\.{kind}: [^\n]*{problem}")


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SimpleNamespace]:
    """Topics with a history, one second an entry: nobody writes to it."""
    clock = ManualClock(START_MS)
    root = str(tmp_path_factory.mktemp("read") / "lake")
    with txnlog.open(root, namespace="sales", create=True, clock=clock) as ns:
        ns.create_topic("orders", ORDERS, partitions=3, key="customer")
        ns.create_topic("audit", ORDERS, partitions=2)
        ns.create_topic("empty", ORDERS, partitions=2)
        ns.create_topic("plain")
        ns.create_topic("gone", ORDERS)
        ns.produce("gone", orders(900, 901))
        versions = []
        for first in range(0, 40, 8):
            clock.advance(1_000)
            with ns.begin() as txn:
                txn.produce("orders", orders(*range(first, first + 8)))
                txn.produce("audit", orders(first), partition=first // 8 % 2)
            versions.append(txn.result.version)
        ns.produce("orders", orders(50, 51), partition=1)
        aborted, pending = ns.begin(), ns.begin(timeout_ms=900_000)
        for txn, number in ((aborted, 70), (pending, 80)):
            txn.produce("orders", orders(number, number + 1, number + 2))
            txn.flush()
        aborted.abort()
        before_drop = ns.snapshot().version
        ns.drop_topic("gone")
        ns.create_topic("gone", ORDERS)
        ns.produce("gone", orders(950))
        ns.produce("plain", [{"key": b"k", "value": b"\x00v", "headers": [("h", b"1")]}, {"value": None}])
        clock.advance(1_000)
        ns.produce("orders", orders(60), partition=2)
        yield SimpleNamespace(ns=ns, versions=versions, before_drop=before_drop, aborted=aborted, pending=pending)
