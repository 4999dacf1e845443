"""What the tests of ``spark_ext.process`` share: a shop whose orders a handler sorts into even and odd ones."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

import spark_ext
import txnlog
from spark_ext.support import namespace_cache
from tests.spark.support import ids, path_of, versions
from txnlog.common.pauses import Backoff
from txnlog.store import Store, open_store

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from spark_ext.processing.run import Processed
    from spark_ext.write.dataframe_transaction import DataFrameTransaction
    from txnlog.api.namespace import Namespace

SCHEMA = pa.schema([pa.field("id", pa.int64(), nullable=False), ("customer", pa.string())])


@dataclass
class Shop:
    """Orders go to even ones and odd ones; ``calls`` are the ids that the handler was given, by call."""

    spark: SparkSession
    ns: Namespace
    calls: list[list[int]] = field(default_factory=list)

    def produce(self, first: int, count: int = 4, topic: str = "orders") -> int:
        """Rows in turn over the topic's partitions, in one transaction; the version that shows them."""
        partitions = self.ns.topic(topic).partitions
        ids_of = range(first, first + count)
        with self.ns.begin() as txn:
            for partition in range(partitions):
                rows = [{"id": i, "customer": f"c{i % 3}"} for i in ids_of if i % partitions == partition]
                txn.produce(topic, rows, partition=partition)
        assert txn.result is not None
        return txn.result.version

    def handle(self, batch: DataFrame, txn: DataFrameTransaction) -> None:
        self.calls.append(sorted(row["id"] for row in batch.select("id").collect()))
        txn.write(batch.where("id % 2 = 0").select("id", "customer"), "even")
        txn.write(batch.where("id % 2 = 1").select("id", "customer"), "odd")

    def run(self, handler: Callable[[Any, Any], object] | None = None, **options: Any) -> Processed:
        given = {"topics": ["orders"], "subscription": "billing", "max_rows": 4, "progress": False, **options}
        return spark_ext.process(self.spark, path_of(self.ns), handler=handler or self.handle, **given)

    def wrapped(self, wrap: Callable[[Store], Any]) -> Any:
        """From here on this process commits over a store of the test's."""
        store = wrap(open_store(self.ns.root, {}))
        opened = txnlog.open(self.ns.root, self.ns.name, store=store)
        namespace_cache.use(opened)
        return store

    def check(self, first: int, last: int) -> None:
        """The orders from ``first`` to before ``last`` took effect, each once, and nothing else did."""
        assert ids(self.ns, "even") == [i for i in range(first, last) if i % 2 == 0]
        assert ids(self.ns, "odd") == [i for i in range(first, last) if i % 2 == 1]
        assert versions(self.ns, "even") == versions(self.ns, "odd")

    def behind(self, topic: str = "orders") -> int:
        self.ns.snapshot()
        return sum(item.behind_messages for item in self.ns.lag(topic, "billing"))


@pytest.fixture
def shop(spark: SparkSession, namespace: Namespace, monkeypatch: pytest.MonkeyPatch) -> Iterator[Shop]:
    monkeypatch.setattr("spark_ext.processing.run._HANDLER_BACKOFF", Backoff(1.0, 1.0))
    namespace.create_topic("orders", SCHEMA, partitions=2)
    namespace.create_topic("even", SCHEMA)
    namespace.create_topic("odd", SCHEMA)
    yield Shop(spark, namespace)
    namespace_cache._handles.clear()  # a handle over a test's own store is of no use to the next one
