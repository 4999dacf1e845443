"""What the tests over Spark share: paths, committed rows, a driver that dies, native scans."""

from __future__ import annotations

import importlib.metadata
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa

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
