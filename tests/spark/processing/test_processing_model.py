"""``spark_ext.process`` against chance: lives that end anywhere, answers that get lost, runs that overlap.

Spark is not there: a batch is a table in this process, and the task that writes it runs here. All else is the real
thing. Whatever happens, every order takes effect once, and at every version of the log exactly those orders have that
the subscription shows as acknowledged.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

import spark_ext
import txnlog
from spark_ext.processing.run import Run
from spark_ext.support import namespace_cache
from spark_ext.support.spark_schemas import spark_schema
from spark_ext.write.task_writer import TaskIdentity
from tests.client.support import FaultyStore, unique_name
from tests.effort import tries
from txnlog.common.pauses import Backoff
from txnlog.engine.runtime import Runtime
from txnlog.errors import ConsumerFenced, RetriableError, StoreError, TransactionAborted
from txnlog.format.actions import Acknowledge, Acknowledgement, Commit
from txnlog.store import Created, Store, open_store

if TYPE_CHECKING:
    from txnlog.api.namespace import Namespace

SCHEMA = pa.schema([pa.field("id", pa.int64(), nullable=False)])
TOPICS = ("orders", "returns")
WORDS = ("lost", "dropped", "broken", "broken-after", "late", "twice")
LIVES = 12
SPARK: Any = SimpleNamespace(conf={}, is_stopped=False, createDataFrame=id, addTag=id, interruptTag=id, removeTag=id)
"""Nobody asks it for more."""


class Death(BaseException):
    """A process ends."""


class Life(FaultyStore):
    """What one process sees of the store, until it dies."""

    def __init__(self, inner: Store, chance: random.Random) -> None:
        super().__init__(inner)
        self._chance = chance
        self.trouble = 0.0
        self.dead = False

    def die(self) -> None:
        self.dead = True
        raise Death

    def create(self, key: str, data: bytes) -> Created:
        self._come_through()
        if self._chance.random() < self.trouble:
            self.script.append(self._chance.choice(WORDS))
        if self._chance.random() < self.trouble / 8:
            self.forever, self.reads_forever = "dropped", "broken"  # the store does not answer any more
        created = super().create(key, data)
        self._come_through()
        return created

    def get(self, key: str) -> bytes:
        self._come_through()
        return super().get(key)

    def put(self, key: str, data: bytes) -> None:
        self._come_through()
        super().put(key, data)

    def _come_through(self) -> None:
        if not self.dead and self._chance.random() < self.trouble / 20:
            self.dead = True
        if self.dead:
            raise Death


class Rows:
    """A batch: what a DataFrame is asked for by ``txn.write``."""

    sparkSession = None  # noqa: N815 - Spark's name: no JVM is beside it

    def __init__(self, table: pa.Table, schema: Any) -> None:
        self.table, self.schema, self.columns = table, schema, table.column_names

    def toDF(self, *names: str) -> Rows:  # noqa: N802 - Spark's name
        return Rows(self.table.rename_columns(list(names)), self.schema)

    def mapInArrow(self, task: Any, _schema: str) -> Rows:  # noqa: N802 - Spark's name
        self._task = task
        return self

    @property
    def write(self) -> Any:
        """What a batch is asked for before its messages are given up: Spark reads them."""
        return SimpleNamespace(format=lambda _: SimpleNamespace(mode=lambda _: SimpleNamespace(save=lambda: None)))

    def collect(self) -> list[Any]:
        batches = self.table.combine_chunks().to_batches()
        answers = [text for part in self._task(iter(batches)) for text in part.column("segment").to_pylist()]
        return [SimpleNamespace(segment=text) for text in answers]


def frame(_run: Run, item: Any) -> Rows:
    tables = [item.scan.snapshot.read(topic, offsets=offsets) for topic, offsets in item.batch.offsets.items()]
    return Rows(pa.concat_tables(tables), spark_schema(item.scan.columns))


class World:
    """A root in memory, and one process after the other, sometimes two."""

    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)
        self.root = f"memory://{unique_name()}"
        self.ns: Namespace = txnlog.open(self.root, "sales", create=True)
        self.lives: list[Life] = []
        self.produced = 0
        self.gives_up = self.chance.random() < 0.5
        self.poisoned = set(self.chance.sample(range(60), 3)) if self.gives_up else set()
        for topic in TOPICS:
            self.ns.create_topic(topic, SCHEMA, partitions=2)
            letters = f"{topic}-dead" if self.gives_up else None
            self.ns.create_subscription(topic, "billing", dead_letter_topic=letters)
        for topic in ("left", "right"):
            self.ns.create_topic(topic, SCHEMA)

    def produce(self) -> None:
        """A transaction over both topics, and all their partitions."""
        with self.ns.begin() as txn:
            for _ in range(self.chance.randint(1, 5)):
                row = {"id": self.produced}
                self.produced += 1
                txn.produce(self.chance.choice(TOPICS), [row], partition=self.chance.randrange(2))

    def live(self, trouble: float, depth: int = 0) -> Any:
        """One process that runs ``process``; what it raised, or what it answered."""
        life = Life(open_store(self.root, {}), self.chance)
        self.lives.append(life)
        ns = txnlog.open(self.root, "sales", store=life)
        ns._connection.appender.create_attempts = 3
        life.trouble = trouble
        namespace_cache.use(ns, storage_options={})

        def handler(batch: Any, txn: Any) -> None:
            ids = set(batch.table.column("id").to_pylist())
            for topic in ("left", "right"):
                txn.write(batch, topic)
                if self.chance.random() < trouble / 4:
                    life.die()
                if self.chance.random() < trouble / 4:
                    txn.flush()
                    if self.chance.random() < 0.5:
                        self.ns.abort(txn.id)
            if depth < 2 and self.chance.random() < trouble / 6:
                self.live(trouble, depth + 1)  # another one begins, and this one hears of it at its commit
                namespace_cache.use(ns, storage_options={})
            if self.chance.random() < trouble / 6:
                txn.commit()
            if ids & self.poisoned:
                raise ValueError(f"no {min(ids & self.poisoned)}")
            if self.chance.random() < trouble / 4:
                self.produce()

        options: dict[str, Any] = {"on_error": "dead_letter", "max_attempts": 2} if self.gives_up else {}
        try:
            return spark_ext.process(
                SPARK,
                f"{self.root}/sales",
                topics=TOPICS,
                subscription="billing",
                handler=handler,
                max_rows=self.chance.choice([None, 1, 5, 20]),
                storage_options={},
                progress=False,
                **options,
            )
        except (Death, ConsumerFenced, RetriableError, StoreError, TransactionAborted, ValueError) as error:
            return error

    def check(self) -> None:
        """Every order once, and at every version those that the subscription has acknowledged."""
        snapshot = self.ns.snapshot()
        places: dict[tuple[str, int, int], int] = {}
        for topic in TOPICS:
            for row in snapshot.read(topic, include_metadata=True).to_pylist():
                places[topic, row["_partition"], row["_offset"]] = row["id"]
        done: list[tuple[int, int]] = []
        outputs = ["left", *(f"{topic}-dead" for topic in TOPICS if self.gives_up)]
        for topic in outputs:
            found = snapshot.read(topic, include_metadata=True)
            done += zip(found.column("id").to_pylist(), found.column("_version").to_pylist(), strict=True)
        right = snapshot.read("right", include_metadata=True)
        left = snapshot.read("left", include_metadata=True)
        assert sorted(zip(*(left.column(name).to_pylist() for name in ("id", "_version")), strict=True)) == sorted(
            zip(*(right.column(name).to_pylist() for name in ("id", "_version")), strict=True)
        )
        assert sorted(number for number, _ in done) == list(range(self.produced)), "each took effect once"
        taken = {version: {places[place] for place in of} for version, of in self.acknowledged(snapshot.version)}
        for version in range(snapshot.version + 1):
            effect = {number for number, at in done if at <= version}
            assert effect == taken[version], f"at version {version}"

    def acknowledged(self, last: int) -> Iterator[tuple[int, set[tuple[str, int, int]]]]:
        """By version what the log shows as acknowledged: topic, partition, offset."""
        names = {self.ns.subscription(topic, "billing").id: topic for topic in TOPICS}
        pending: dict[int, list[Acknowledgement]] = {}
        taken: set[tuple[str, int, int]] = set()
        for version in range(last + 1):
            for action in self.ns._connection.follower.log.entry(version).actions:
                if isinstance(action, Acknowledge):
                    pending.setdefault(action.txn, []).append(action.acknowledgement)
                if isinstance(action, Commit):
                    for item in (*pending.pop(action.txn, []), *action.acknowledgements):
                        assert not item.cumulative
                        for part in item.ranges:
                            for low, high in part.ranges:
                                fresh = {(names[item.subscription], part.partition, o) for o in range(low, high)}
                                assert not fresh & taken, "acknowledged twice"
                                taken |= fresh
            yield version, set(taken)


@pytest.fixture
def without_spark(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    attempts = iter(range(1_000_000))
    monkeypatch.setattr(TaskIdentity, "current", lambda: TaskIdentity(0, next(attempts)))
    monkeypatch.setattr(Run, "_frame", frame)
    monkeypatch.setattr("spark_ext.processing.process.check_reads", lambda *_: None)
    monkeypatch.setattr("spark_ext.processing.run._BACKOFF", Backoff(0.0, 0.0))
    monkeypatch.setattr("spark_ext.processing.run._HANDLER_BACKOFF", Backoff(0.0, 0.0))
    monkeypatch.setattr("spark_ext.processing.ownership._TAKE_PAUSE_MS", 0.0)
    monkeypatch.setattr(Runtime, "sleep_ms", lambda _self, _milliseconds: None)
    yield
    namespace_cache._handles.clear()


@pytest.mark.usefixtures("without_spark")
@pytest.mark.parametrize("seed", range(tries(40, 16)))
def test_whatever_happens_every_order_takes_effect_once(seed: int) -> None:
    world = World(seed)
    for _ in range(world.chance.randint(3, 8)):
        world.produce()
    for _ in range(world.chance.randint(1, LIVES)):
        for _ in range(world.chance.randint(0, 3)):
            world.produce()
        world.live(world.chance.choice([0.0, 0.1, 0.3, 0.5]))
        if world.chance.random() < 0.3:
            for life in world.lives:
                life.land()
    for life in world.lives:
        life.land()
    last = world.live(0.0)
    if isinstance(last, ValueError):  # of a handler that failed behind its own commit
        last = world.live(0.0)
    assert getattr(last, "stopped", last) == "caught_up"
    world.check()
    world.ns.close()
