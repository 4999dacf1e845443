"""A shop whose orders go to a topic and to a Delta table, and drivers that die at any step between the two."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

import spark_ext
import txnlog
from spark_ext.delta.delta_table import DeltaTable
from spark_ext.support import namespace_cache
from txnlog.common.pauses import Backoff
from txnlog.format.keys import kind_of
from txnlog.store import Created, ForwardingStore, Store, open_store

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from spark_ext.processing.run import Processed

SCHEMA = pa.schema([("id", pa.int64()), ("customer", pa.string())])


class Death(BaseException):
    """The process ends here: nothing of what follows reaches a store."""


class QueryDeath(Exception):
    """The same inside of a query: Java waits for ever for a function that ends by anything else."""


@dataclass
class Life:
    """Of a driver: it ends at the step with this number; a dead one takes no more steps."""

    end: int
    ends_with: type[BaseException] = Death
    steps: list[str] = field(default_factory=list)

    @property
    def dead(self) -> bool:
        return len(self.steps) >= self.end

    def step(self, name: str) -> None:
        self.check()
        self.steps.append(name)
        self.check()

    def check(self) -> None:
        if self.dead:
            raise self.ends_with


class MortalStore(ForwardingStore):
    """A store whose client dies around the entries of commits."""

    def __init__(self, inner: Store, life: Life) -> None:
        super().__init__(inner)
        self._life = life

    def create(self, key: str, data: bytes) -> Created:
        self._life.check()
        what = next((name for name in ("prepare", "commit") if f'{{"action":"{name}"'.encode() in data), None)
        if kind_of(key) != "entry" or what is None:
            return super().create(key, data)
        self._life.step(f"before our {what}")
        created = super().create(key, data)
        self._life.step(f"after our {what}")
        return created

    def get(self, key: str) -> bytes:
        self._life.check()
        return super().get(key)

    def put(self, key: str, data: bytes) -> None:
        self._life.check()
        super().put(key, data)


class Shop:
    """Orders, of which a handler makes bills: rows of a topic, and of a Delta table of somebody else's."""

    def __init__(self, spark: SparkSession, folder: Path, patch: pytest.MonkeyPatch, *, new: bool = True) -> None:
        self.spark, self.folder, self._patch = spark, folder, patch
        self.root = str(folder / "lake")
        self.path, self.table, self.checkpoint = f"{self.root}/sales", str(folder / "bills"), str(folder / "checkpoint")
        self.ns: Any = None
        self.count = 0
        self.calls: list[list[int]] = []
        if not new:
            return
        with txnlog.open(self.root, namespace="sales", create=True) as ns:
            ns.create_topic("orders", SCHEMA, partitions=2)
            ns.create_topic("bills", SCHEMA)
            ns.create_subscription("orders", "billing")
        self.empty().write.format("delta").save(self.table)

    def empty(self) -> DataFrame:
        return self.spark.createDataFrame([], "id bigint, customer string")

    def open(self) -> Any:
        return txnlog.open(self.root, namespace="sales")

    def careful(self) -> None:
        """The subscription ``careful``, which has dead letters."""
        with self.open() as ns:
            ns.create_subscription("orders", "careful", dead_letter_topic="orders-dead")

    def produce(self, rows: int = 4) -> None:
        """One transaction over both partitions."""
        with self.open() as ns, ns.begin() as txn:
            for partition in (0, 1):
                numbers = range(self.count + partition, self.count + rows, 2)
                txn.produce("orders", [{"id": i, "customer": f"c{i % 3}"} for i in numbers], partition=partition)
        self.count += rows

    # --- lives ------------------------------------------------------------------------------------------------------

    def born(self, end: int = 1_000_000, ends_with: type[BaseException] = Death) -> Life:
        """From here on this process is another one, which lives so many steps."""
        life = Life(end, ends_with)
        original = _APPEND

        def append(table: DeltaTable, *given: Any) -> None:
            life.step("before Delta's commit")
            original(table, *given)
            life.step("after Delta's commit")

        self._patch.setattr(DeltaTable, "append", append)
        store = MortalStore(open_store(self.root, {}), life)
        self.ns = txnlog.open(self.root, "sales", store=store)
        namespace_cache.use(self.ns)
        return life

    def handle(self, batch: DataFrame, txn: Any) -> None:
        self.calls.append(sorted(row["id"] for row in batch.select("id").collect()))
        rows = batch.select("id", "customer")
        txn.write(rows, "bills")
        spark_ext.write_delta(rows, self.table, txn)

    def process(self, handler: Callable[[Any, Any], None] | None = None, **options: Any) -> Processed:
        given = {"topics": "orders", "subscription": "billing", "max_rows": 4, "progress": False, **options}
        return spark_ext.process(self.spark, self.path, handler=handler or self.handle, **given)

    def decided(self, max_messages: int = 4) -> None:
        """All that is there, received by a consumer, in transactions that the table decides about."""
        consumer = self.ns.consumer("orders", subscription="billing", takeover=True)
        while True:
            with spark_ext.transaction(self.spark, self.path, producer="bills", decided_by=self.table) as txn:
                messages = consumer.receive(max_messages=max_messages, timeout_ms=0)
                if not len(messages):
                    return
                rows = self.spark.createDataFrame(messages.table.select(["id", "customer"]))
                txn.write(rows, "bills")
                spark_ext.write_delta(rows, self.table, txn)
                txn.acknowledge(messages)

    def stream(self) -> None:
        """All that is there, in batches of a transaction each, until the end or the death."""
        orders = self.spark.readStream.format("txnlog").option("subscription", "billing")
        query = spark_ext.write_stream(
            orders.option("maxOffsetsPerTrigger", 4).load(f"{self.path}/orders"),
            self.path,
            checkpoint=self.checkpoint,
            acknowledge="billing",
            trigger={"availableNow": True},
            handler=self.handle,
        )
        query.awaitTermination()

    # --- what became of it ------------------------------------------------------------------------------------------

    def in_topic(self) -> list[int]:
        with self.open() as ns:
            return sorted(ns.snapshot().read("bills").column("id").to_pylist())

    def dead(self) -> list[int]:
        with self.open() as ns:
            return sorted(ns.snapshot().read("orders-dead").column("id").to_pylist())

    def in_delta(self, table: str | None = None) -> list[int]:
        frame = self.spark.read.format("delta").load(table or self.table)
        return sorted(row["id"] for row in frame.select("id").collect())

    def behind(self) -> int:
        with self.open() as ns:
            return sum(item.behind_messages for item in ns.lag("orders", "billing"))

    def check(self) -> None:
        """Every order took effect once, in both, and is taken off."""
        orders = list(range(self.count))
        assert (self.in_topic(), self.in_delta(), self.behind()) == (orders, orders, 0)


_APPEND = DeltaTable.append


@pytest.fixture
def shop(spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Shop]:
    """A shop with eight orders in two transactions. Handlers that fail are called again at once."""
    monkeypatch.setattr("spark_ext.processing.run._HANDLER_BACKOFF", Backoff(1.0, 1.0))
    made = Shop(spark, tmp_path, monkeypatch)
    made.produce()
    made.produce()
    yield made
    namespace_cache._handles.clear()


def dying_at_every_step(
    spark: SparkSession,
    tmp_path: Path,
    patch: pytest.MonkeyPatch,
    work: Callable[[Shop], object],
    again: Callable[[Shop], object],
    *,
    ends_with: type[BaseException] = Death,
    told: type[BaseException] = Death,
    check: Callable[[Shop], object] = Shop.check,
) -> list[str]:
    """Do the work in shop after shop, by drivers that live a step longer each; the steps of the first that lives on.

    Args:
        spark: the session, one for all drivers.
        tmp_path: where each shop gets a folder.
        patch: what makes a driver mortal.
        work: what a driver does in a new shop.
        again: what the next one does, behind a death.
        ends_with: what ends a driver.
        told: what ``work`` raises then.
        check: sees to a shop at the end, whoever died in it.
    """
    for end in range(1, 100):
        (folder := tmp_path / str(end)).mkdir()
        made = Shop(spark, folder, patch)
        made.produce()
        made.produce()
        life = made.born(end, ends_with)
        try:
            work(made)
        except told:
            made.born()
            again(made)
        check(made)
        namespace_cache._handles.clear()
        if not life.dead:
            return life.steps
    raise AssertionError("it takes steps for ever")
