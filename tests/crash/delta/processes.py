"""The processes of a run with published topics: writers, and keepers who publish, merge, alter and clean up."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterable, Mapping
from decimal import Decimal
from functools import partial
from typing import Any, ClassVar

import pyarrow as pa

import catalog
from catalog import Catalog, Published
from catalog.publication import table_publisher, topic_versions
from tests.crash.core import keepers
from tests.crash.core.worker import Batch, Worker
from tests.crash.core.workload import Role
from tests.crash.delta.plan import (
    KEYED,
    MODES,
    MOST_COLUMNS,
    MOST_PASSING,
    PASSING,
    PASSING_PARTITIONS,
    SCHEMA,
    TOPICS,
    Phase,
    Progress,
)
from tests.crash.delta.watched_store import WatchedStore, is_slot
from tests.crash.harness.faulty_store import FaultyStore
from tests.crash.harness.member import Member, persist
from tests.crash.harness.plan import NAMESPACE
from txnlog.data.partitioner import partition_of_keys
from txnlog.errors import (
    CoordinatorFenced,
    RetriableError,
    SchemaMismatch,
    StoreError,
    TopicExists,
    TopicNotFound,
    VersionNotAvailable,
)
from txnlog.format.schema import to_arrow
from txnlog.store import Store, open_store

_NO_ANSWER = (RetriableError, StoreError, CoordinatorFenced)

_FILES_AT_ONCE = (1, 3, 8, 5_000)
_VERSIONS_PER_CHECKPOINT = (3, 10, 30)
"""Publishers differ in where they cut, and in when they make checkpoints: each table is the work of many."""

_LONGEST_EVENING_SECONDS = 8.0
"""Of a night, for what is published to be compared. Nobody begins anything then; all go on while the vacuum works."""

_MOST_BACKLOG = 24
_LONGEST_PAUSE_SECONDS = 3.0
"""On a slow machine less is published, so that all of it is compared before its files are gone."""


class Publishing(Member):
    """A process whose store is watched, and loses answers about published tables as well as about the log."""

    role: ClassVar[str]
    progress: ClassVar[Progress]
    """Set before anything is forked."""

    def _store(self) -> Store:
        plan = self._plan
        draw = partial(plan.random, self._worker, self._generation)
        topic_versions.MOST_FILES = draw("files").choice(_FILES_AT_ONCE)  # type: ignore[misc]  # of this process
        table_publisher.CHECKPOINT_VERSIONS = draw("checkpoints").choice(_VERSIONS_PER_CHECKPOINT)  # type: ignore[misc]
        real = open_store(plan.root, plan.options)
        faulty = FaultyStore(real, draw("faults"), plan.spool, plan.faults, is_slot)
        return WatchedStore(faulty, real, draw("deaths"), self.progress, self._worker)

    def _begin_work(self) -> None:
        until = time.monotonic() + _LONGEST_PAUSE_SECONDS
        while self._has_to_wait(until) and not self._board.stopped:
            time.sleep(0.02)
        super()._begin_work()

    def _has_to_wait(self, until: float) -> bool:
        return self.progress.paused or (self.progress.backlog > _MOST_BACKLOG and time.monotonic() < until)

    def _schema_of(self, topic: str) -> pa.Schema:
        """As this process knows it, without a question."""
        return to_arrow(self._ns._connection.topic_record(topic).schema)


# --- rows -------------------------------------------------------------------------------------------------------------


def wider(kind: pa.DataType, chance: random.Random) -> pa.DataType | None:
    """A type that every reader of Delta reads the older files as; None where there is none."""
    if pa.types.is_int8(kind):
        return chance.choice((pa.int16(), pa.int32()))
    if pa.types.is_int16(kind):
        return chance.choice((pa.int32(), pa.int64()))
    if pa.types.is_int32(kind):
        return pa.int64()
    if pa.types.is_float32(kind):
        return pa.float64()
    if pa.types.is_decimal128(kind) and kind.precision < 38:
        return pa.decimal128(min(38, kind.precision + chance.randint(1, 3)), kind.scale)
    return None


NEW = (pa.string(), pa.int8(), pa.int16(), pa.int64(), pa.float32(), pa.float64(), pa.date32(), pa.decimal128(4, 3))
"""Types of columns that are added."""


def value_of(kind: pa.DataType, chance: random.Random) -> Any:
    """A value of a type, its extremes and null among them."""
    if chance.random() < 0.15:
        return None
    if pa.types.is_integer(kind):
        most = 2 ** (kind.bit_width - 1) - 1
        return chance.choice((0, most, -most - 1, chance.randint(-most, most)))
    if pa.types.is_floating(kind):
        return chance.randint(-(2**20), 2**20) / 4
    if pa.types.is_decimal(kind):
        most = 10**kind.precision - 1
        sign, digits, _ = Decimal(chance.choice((most, -most, chance.randint(-most, most)))).as_tuple()
        return Decimal((sign, digits, -kind.scale))
    if pa.types.is_date(kind):
        return pa.scalar(chance.randint(-20_000, 40_000), pa.date32()).as_py()
    return f"{chance.randrange(10**6)}"


def drawn_rows(values: Iterable[int], schema: pa.Schema, chance: random.Random) -> list[dict[str, Any]]:
    """Rows with these values, and some in the columns that mean nothing: all others."""
    others = [field for field in schema if field.name != "value"]
    return [{"value": value} | {field.name: value_of(field.type, chance) for field in others} for value in values]


# --- who writes -------------------------------------------------------------------------------------------------------


class Writer(Publishing, Worker):
    """Transactions over several topics; what it commits to topics on "auto" it publishes."""

    role = "writers"
    roles: ClassVar[tuple[Role, ...]] = ()
    topics = TOPICS

    def _partition(self, topic: str) -> int | None:
        if topic == KEYED and self._chance.random() < 0.8:
            return None  # the key decides
        return super()._partition(topic)

    def _rows(self, batch: Batch) -> list[dict[str, Any]]:
        return drawn_rows(batch.values, self._schema_of(batch.topic), self._chance)

    def _places(self, batch: Batch, rows: list[dict[str, Any]]) -> Mapping[int, tuple[int, ...]]:
        if batch.partition is not None:
            return super()._places(batch, rows)
        places = partition_of_keys(pa.array([row["key"] for row in rows], pa.string()), TOPICS[batch.topic])
        found: dict[int, tuple[int, ...]] = {}
        for place, row in zip(places, rows, strict=True):
            found[int(place)] = (*found.get(int(place), ()), row["value"])
        return found


# --- who keeps --------------------------------------------------------------------------------------------------------


class Publisher(Publishing, keepers.Keeper):
    """Publishes what it is asked to, repairs what needs none, and looks at what is published."""

    role = "publishers"
    pause_ms = 250.0

    def _start(self) -> None:  # a catalog, and no handle on the namespace
        self._open_catalog()
        self._names = [*(topic for topic, mode in MODES.items() if mode != "off"), PASSING]
        self._shown: dict[str, tuple[int, int]] = {}
        self._board.begin_work(self._worker)

    def _open_catalog(self) -> None:
        store = self._store()
        self._cat: Catalog = persist(lambda: catalog.open(self._plan.root, clock=self._board, store=store))

    def _step(self) -> None:
        self._begin_work()
        steps: dict[Callable[[str], None], float] = {
            self._publish: 55,
            self._publish_all: 20,
            self._repair: 6,
            self._look: 8,
            self._forget: 5,
        }
        (step,) = self._chance.choices(list(steps), list(steps.values()))
        topic = self._chance.choice(self._names)
        try:
            step(topic)
        except _NO_ANSWER as error:
            self._note("no answer", error=repr(error))
        except TopicNotFound:
            if topic != PASSING:
                raise
        self.progress.enter(self._worker, Phase.ELSEWHERE)

    def _publish(self, topic: str) -> None:
        self._take(self._cat.publish(NAMESPACE, topic))

    def _publish_all(self, _topic: str) -> None:
        for done in self._cat.publish(NAMESPACE):
            self._take(done)

    def _repair(self, topic: str) -> None:
        every = self._chance.random() < 0.2
        for done in self._cat.repair(NAMESPACE) if every else (self._cat.repair(NAMESPACE, topic),):
            self._take(done)
        self._note("repair")

    def _take(self, done: Published) -> None:
        """Nobody damages anything here, so nothing may be found damaged; and what is shown only grows."""
        assert not done.repaired, f"{done} was repaired, and nobody had damaged it"
        before = self._shown.get(done.url, (-1, -1))
        now = done.delta_version, done.version
        assert all(old <= new for old, new in zip(before, now, strict=True)), f"{done} went back, from {before}"
        self._shown[done.url] = now

    def _look(self, topic: str) -> None:
        """The mapping, both ways."""
        found = self._cat.published(NAMESPACE, topic, limit=6)
        for item in found[1:]:
            try:
                there = self._cat.delta_version(NAMESPACE, topic, item.version)
            except VersionNotAvailable:
                continue  # the topic was made again meanwhile
            same = [other.delta_version for other in found if other.version == item.version]
            assert there in same, f"{topic}: {item} is found at {there}"

    def _forget(self, _topic: str) -> None:
        """Go on without memory."""
        self._cat.close()
        self._open_catalog()


class Optimizer(Publishing, keepers.Keeper):
    """Merges what is small."""

    role = "optimizers"

    def _step(self) -> None:
        self._begin_work()
        topic = self._chance.choice([*TOPICS, PASSING])
        try:
            done = self._ns.optimize(topic, self._chance.choice((4, 8, 32)) << 20)
        except _NO_ANSWER as error:
            self._note("no answer", error=repr(error))
        except TopicNotFound:
            if topic != PASSING:
                raise
        else:
            self._note("optimize", merges=done.entries, lost=done.lost_races)
        if self._chance.random() < 0.03:
            self._maintain()

    def _maintain(self) -> None:
        try:
            self._ns.maintain()
        except _NO_ANSWER as error:
            self._note("no answer", error=repr(error))
        else:
            self._note("maintain")


class Maker(Publishing, keepers.Keeper):
    """Alters topics, and makes one again and again."""

    role = "makers"
    pause_ms = 500.0

    def _step(self) -> None:
        self._begin_work()
        steps: dict[Callable[[], None], float] = {
            self._widen: 4,
            self._add: 2,
            self._set_mode: 1,
            self._produce: 8,
            self._make_again: 1,
        }
        (step,) = self._chance.choices(list(steps), list(steps.values()))
        try:
            step()
        except _NO_ANSWER as error:
            self._note("no answer", error=repr(error))
        except (SchemaMismatch, TopicExists, TopicNotFound) as error:  # by the one that was stopped, and goes on
            self._note("too late", error=repr(error))

    def _topic(self) -> str:
        return self._chance.choice([*TOPICS, PASSING])

    def _widen(self) -> None:
        topic = self._topic()
        fields = [field for field in self._schema_of(topic) if field.name != "value"]
        field = self._chance.choice(fields)
        kind = wider(field.type, self._chance)
        if kind is not None:
            self._ns.alter_topic(topic, widen={field.name: kind})
            self._note("alter", topic=topic, column=field.name, type=str(kind))

    def _add(self) -> None:
        topic = self._topic()
        count = len(self._schema_of(topic))
        if count < MOST_COLUMNS:
            kind = self._chance.choice(NEW)
            self._ns.alter_topic(topic, [(f"more{count}", kind)])
            self._note("alter", topic=topic, column=f"more{count}", type=str(kind))

    def _set_mode(self) -> None:
        self._ns.alter_topic("derived", delta=self._chance.choice(("auto", "manual")))
        self._note("mode")

    def _produce(self) -> None:
        values = self._client.world.values(self._chance.randint(1, 4))
        rows = drawn_rows(values, self._schema_of(PASSING), self._chance)
        self._ns.produce(PASSING, rows, partition=self._chance.randrange(PASSING_PARTITIONS))

    def _make_again(self) -> None:
        made = [topic for topic in self._ns._connection.follower.state.topics.values() if topic.name == PASSING]
        if len(made) < MOST_PASSING and not made[-1].dropped:
            self._ns.drop_topic(PASSING)
            self._note("drop")
        make_passing(self._ns)


def make_passing(ns: Any) -> None:
    """Create the topic that is dropped again."""
    ns.create_topic(PASSING, SCHEMA, partitions=PASSING_PARTITIONS, delta="auto", if_not_exists=True)


class Cleaner(Publishing, keepers.Vacuum):
    """Lets nights go by and deletes. Before a night it waits until what is published was compared."""

    role = "vacuums"
    nights = 0.1

    def _has_to_wait(self, until: float) -> bool:
        return False

    def _is_evening(self) -> bool:
        self.progress.pause(_LONGEST_EVENING_SECONDS)
        while self.progress.compared < persist(lambda: self._ns.snapshot().version):
            if self._board.stopped or not self.progress.paused:
                return False
            time.sleep(0.05)
        self.progress.pause(0.05)
        return True


class Decider(Publishing, keepers.Decider):
    """Brings decisions about what was prepared."""

    role = "deciders"


CAST: tuple[type[Publishing], ...] = (
    *(Writer,) * 4,
    *(Publisher,) * 2,
    Optimizer,
    Maker,
    Cleaner,
    Decider,
)
"""All processes of a run, by number."""
