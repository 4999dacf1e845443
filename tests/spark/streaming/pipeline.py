"""A query that splits orders, for the tests of ``spark_ext.write_stream``."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

import spark_ext
from spark_ext.streaming.write_stream import _Batches
from spark_ext.support.namespace_cache import target_at
from tests.spark.support import ids, versions

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from spark_ext.write.dataframe_transaction import DataFrameTransaction
    from txnlog.api.namespace import Namespace

SCHEMA = pa.schema([pa.field("id", pa.int64(), nullable=False), ("customer", pa.string())])
COUNTS = pa.schema([("customer", pa.string()), ("count", pa.int64())])


@dataclass
class Pipeline:
    """Orders to even ones, odd ones and counts; ``calls`` are the ids that the handler was given, by call."""

    spark: SparkSession
    ns: Namespace
    checkpoint: Path
    calls: list[list[int]] = field(default_factory=list)

    def produce(self, first: int, count: int = 10) -> None:
        self.ns.produce("orders", [{"id": i, "customer": f"c{i % 3}"} for i in range(first, first + count)])

    def handle(self, batch: DataFrame, txn: DataFrameTransaction) -> None:
        self.calls.append(sorted(row["id"] for row in batch.collect()))
        txn.write(batch.where("id % 2 = 0"), "even")
        txn.write(batch.where("id % 2 = 1"), "odd")
        txn.write(batch.groupBy("customer").count(), "counts")

    def source(self, **options: str) -> DataFrame:
        given = {"subscription": "billing", "maxOffsetsPerTrigger": "10", **options}
        return self.spark.readStream.format("txnlog").options(**given).load(f"{self.path}/orders")

    @property
    def path(self) -> str:
        return f"{self.ns.root}/{self.ns.name}"

    def start(self, handler: Callable[[Any, Any], object] | None = None, **options: Any) -> Any:
        return spark_ext.write_stream(
            self.source(),
            self.path,
            handler=handler or self.handle,
            **{"acknowledge": "billing", "checkpoint": str(self.checkpoint), **options},
        )

    def run(self, handler: Callable[[Any, Any], object] | None = None, **options: Any) -> Any:
        """One run of the query to the end of what is there."""
        query = self.start(handler, trigger={"availableNow": True}, **options)
        try:
            assert query.awaitTermination(120)
        finally:
            query.stop()
        return query

    def batches(self, handler: Callable[[Any, Any], object], acknowledge: str | None) -> _Batches:
        """The driver's side of another run of this query, as a second process would have it."""
        target = target_at(self.path, {})
        return _Batches(target, str(self.checkpoint), handler, acknowledge, None, uuid.uuid4().hex)

    def check(self, first: int, last: int) -> None:
        """The orders from ``first`` to before ``last`` took effect, each once, and nothing else did."""
        assert ids(self.ns, "even") == [i for i in range(first, last) if i % 2 == 0]
        assert ids(self.ns, "odd") == [i for i in range(first, last) if i % 2 == 1]
        counted = dict.fromkeys(("c0", "c1", "c2"), 0)
        for row in self.ns.snapshot().read("counts").to_pylist():
            counted[row["customer"]] += row["count"]
        assert counted == {f"c{k}": sum(i % 3 == k for i in range(first, last)) for k in range(3)}
        assert versions(self.ns, "even") == versions(self.ns, "odd") == versions(self.ns, "counts")

    def behind(self) -> int:
        return sum(item.behind_messages for item in self.ns.lag("orders", "billing"))


@pytest.fixture
def pipeline(spark: SparkSession, namespace: Namespace, tmp_path: Path) -> Pipeline:
    namespace.create_topic("orders", SCHEMA, partitions=2)
    namespace.create_topic("even", SCHEMA, partitions=2, key="customer")
    namespace.create_topic("odd", SCHEMA)
    namespace.create_topic("counts", COUNTS)
    return Pipeline(spark, namespace, tmp_path / "checkpoint")
