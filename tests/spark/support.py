"""What the tests over Spark share: paths, committed rows, a driver that dies, native scans."""

from __future__ import annotations

import importlib.metadata
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.sql.types import LongType, StructField, StructType

from spark_ext.streaming.query_checkpoint import Checkpoint

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from spark_ext.streaming.offsets import StreamOffset
    from txnlog.api.namespace import Namespace


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


# --- without a Spark -------------------------------------------------------------------------------------------------

METADATA = '{"batchWatermarkMs":0,"batchTimestampMs":1795234232475,"conf":{"spark.sql.shuffle.partitions":"2"}}'


class Query:
    """A checkpoint, written as Spark does."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        (folder / "offsets").mkdir(parents=True)
        (folder / "metadata").write_text('{"id":"8aba74d1-2b49-4518-8ea2-51b06a0e81ac"}')

    def write(self, batch: int, *sources: StreamOffset | str, version: str = "v1") -> None:
        """The offsets of a batch."""
        texts = [source if isinstance(source, str) else json.dumps(source.to_dict()) for source in sources]
        (self.folder / "offsets" / str(batch)).write_text("\n".join([version, METADATA, *texts]))

    @property
    def checkpoint(self) -> Checkpoint:
        """It, read."""
        return Checkpoint(str(self.folder))


class Frame:
    """A DataFrame of three rows and one partition, whose job calls something when its files are written."""

    columns = ["id"]  # noqa: RUF012 - as a DataFrame has them
    schema = StructType([StructField("id", LongType())])
    sparkSession = None  # noqa: N815 - Spark's name: no JVM is beside it

    def __init__(self, during: Callable[[], object] = lambda: None) -> None:
        self._during = during

    def toDF(self, *_names: str) -> Frame:  # noqa: N802 - Spark's name
        return self

    def mapInArrow(self, task: Callable[..., Iterator[pa.RecordBatch]], _schema: str) -> Frame:  # noqa: N802
        self._task = task
        return self

    def collect(self) -> list[Any]:
        batch = pa.record_batch([pa.array([1, 2, 3])], names=["c0"])
        answers = [text for part in self._task(iter([batch])) for text in part.column("segment").to_pylist()]
        self._during()
        return [SimpleNamespace(segment=text) for text in answers]


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
