"""The processes of a run with published topics: writers, and keepers who publish, merge, alter and clean up."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from decimal import Decimal
from functools import partial
from typing import Any, ClassVar

import pyarrow as pa

import catalog
from catalog import Catalog, Published
from catalog.publication import publisher, topic_versions
from tests.crash import keepers
from tests.crash.faulty_store import FaultyStore
from tests.crash.plan import NAMESPACE, Role
from tests.crash.worker import Attempt, Worker, persist
from tests.crash_delta.plan import (
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
from tests.crash_delta.watched_store import WatchedStore, is_slot
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


class Publishing(Worker):
    """A process whose store is watched, and loses answers about published tables as well as about the log."""

    role: ClassVar[str]
    progress: ClassVar[Progress]
    """Set before anything is forked."""

    roles: ClassVar[tuple[Role, ...]] = ()

    def _store(self) -> Store:
        plan = self._plan
        draw = partial(plan.random, self._worker, self._generation)
        topic_versions.MOST_FILES = draw("files").choice(_FILES_AT_ONCE)  # type: ignore[misc]  # of this process
        publisher.CHECKPOINT_VERSIONS = draw("checkpoints").choice(_VERSIONS_PER_CHECKPOINT)  # type: ignore[misc]
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


DRAWN = SCHEMA.names[SCHEMA.names.index("key") :]
"""The columns whose values mean nothing, and all that are added."""


def drawn_values(schema: pa.Schema, chance: random.Random) -> dict[str, Any]:
    """Values for the columns that mean nothing."""
    known = set(SCHEMA.names) - set(DRAWN)
    return {field.name: value_of(field.type, chance) for field in schema if field.name not in known}


# --- who writes -------------------------------------------------------------------------------------------------------


class Writer(Publishing):
    """Transactions over several topics, as in ``tests.crash``; what it commits to topics on "auto" it publishes."""

    role = "writers"
    topics = TOPICS

    def _partition(self, topic: str) -> int | None:
        if topic == KEYED and self._chance.random() < 0.8:
            return None  # the key decides
        return super()._partition(topic)

    def _rows(self, attempt: Attempt, topic: str, sequence: int | None) -> list[dict[str, Any]]:
        rows = super()._rows(attempt, topic, sequence)
        schema = self._schema_of(topic)
        # Without padding, since every version is read whole.
        return [row | {"padding": None} | drawn_values(schema, self._chance) for row in rows]


# --- who keeps --------------------------------------------------------------------------------------------------------


class Publisher(Publishing, keepers.Keeper):
    """Publishes what it is asked to, repairs what needs none, and looks at what is published."""

    role = "publishers"

    def _start(self) -> None:
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
            self._journal.write("no answer", error=repr(error))
        except TopicNotFound:
            if topic != PASSING:
                raise
        self.progress.enter(self._worker, Phase.ELSEWHERE)
        time.sleep(self._chance.uniform(0, 0.25))

    def _publish(self, topic: str) -> None:
        self._take(self._cat.publish(NAMESPACE, topic))

    def _publish_all(self, _topic: str) -> None:
        for done in self._cat.publish(NAMESPACE):
            self._take(done)

    def _repair(self, topic: str) -> None:
        every = self._chance.random() < 0.2
        for done in self._cat.repair(NAMESPACE) if every else (self._cat.repair(NAMESPACE, topic),):
            self._take(done)
        self._journal.write("repair")

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
            self._journal.write("no answer", error=repr(error))
        except TopicNotFound:
            if topic != PASSING:
                raise
        else:
            self._journal.write("optimize", merges=done.entries, lost=done.lost_races)
        if self._chance.random() < 0.03:
            self._maintain()
        time.sleep(self._chance.uniform(0, 0.3))

    def _maintain(self) -> None:
        try:
            self._ns.maintain()
        except _NO_ANSWER as error:
            self._journal.write("no answer", error=repr(error))
        else:
            self._journal.write("maintain")


class Maker(Publishing, keepers.Keeper):
    """Alters topics, and makes one again and again."""

    role = "makers"

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
            self._journal.write("no answer", error=repr(error))
        except (SchemaMismatch, TopicExists, TopicNotFound) as error:  # by the one that was stopped, and goes on
            self._journal.write("refused", error=repr(error))
        time.sleep(self._chance.uniform(0, 0.5))

    def _topic(self) -> str:
        return self._chance.choice([*TOPICS, PASSING])

    def _widen(self) -> None:
        topic = self._topic()
        fields = [field for field in self._schema_of(topic) if field.name not in SCHEMA.names or field.name in DRAWN]
        field = self._chance.choice(fields)
        kind = wider(field.type, self._chance)
        if kind is not None:
            self._ns.alter_topic(topic, widen={field.name: kind})
            self._journal.write("alter", topic=topic, column=field.name, type=str(kind))

    def _add(self) -> None:
        topic = self._topic()
        count = len(self._schema_of(topic))
        if count < MOST_COLUMNS:
            kind = self._chance.choice(NEW)
            self._ns.alter_topic(topic, [(f"more{count}", kind)])
            self._journal.write("alter", topic=topic, column=f"more{count}", type=str(kind))

    def _set_mode(self) -> None:
        self._ns.alter_topic("derived", delta=self._chance.choice(("auto", "manual")))
        self._journal.write("mode")

    def _produce(self) -> None:
        label = f"{self._name}p{self._journal_count()}"
        row = dict.fromkeys(SCHEMA.names) | {"label": label, "contents": ""}
        schema = self._schema_of(PASSING)
        rows = [row | {"part": part} | drawn_values(schema, self._chance) for part in range(self._chance.randint(1, 4))]
        self._ns.produce(PASSING, rows, partition=self._chance.randrange(PASSING_PARTITIONS))

    def _journal_count(self) -> int:
        self._count += 1
        return self._count

    def _make_again(self) -> None:
        made = [topic for topic in self._ns._connection.follower.state.topics.values() if topic.name == PASSING]
        if len(made) < MOST_PASSING and not made[-1].dropped:
            self._ns.drop_topic(PASSING)
            self._journal.write("drop")
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
