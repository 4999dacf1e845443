"""Random histories of a namespace on disk whose topics are published now and then, and what their tables must show."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa
from hypothesis import strategies as st

import catalog as txn_catalog
from catalog import Catalog, Published
from tests.by_hand import append, compact
from tests.catalog.engines import Engines, assert_same
from tests.client.support import Place
from txnlog.api.namespace import Namespace
from txnlog.errors import TopicNotFound
from txnlog.fold.state import TopicRecord
from txnlog.format import schema as schemas
from txnlog.format.actions import AlterTopic

SCHEMA = pa.schema([("id", pa.int64()), ("name", pa.string()), ("price", pa.float64())])
TOPICS = ("orders", "audit")

Step = tuple[str, int, int]
steps = st.lists(
    st.tuples(
        st.sampled_from(
            ["produce"] * 4
            + ["commit"] * 3
            + ["together"] * 2
            + ["abort", "open", "compact", "compact", "widen", "drop", "checkpoint", "reopen"]
            + ["publish"] * 4
        ),
        st.integers(0, 7),
        st.integers(0, 255),
    ),
    min_size=5,
    max_size=30,
)
"""What is done, and two numbers for it."""


def mergeable(ns: Namespace, topic: str) -> list[tuple[int, list[int]]]:
    """By partition runs of neighbouring segments of one partition each."""
    runs: list[tuple[int, list[int]]] = []
    ends: dict[int, int] = {}
    last: dict[int, list[int]] = {}
    for segment in ns.snapshot().plan(topic).segments:
        if len(segment.slices) != 1:
            for item in segment.slices:
                last.pop(item.partition, None)
            continue
        item = segment.slices[0]
        assert item.offset is not None
        run = last.get(item.partition)
        if run is None or ends.get(item.partition) != item.offset:
            run = last[item.partition] = []
            runs.append((item.partition, run))
        run.append(segment.number)
        ends[item.partition] = item.offset + item.rows
    return [(partition, run) for partition, run in runs if len(run) > 1]


def add_column(ns: Namespace, topic: str, name: str, kind: str = "string") -> int:
    """Another column, as ``alter_topic`` adds it."""
    record = ns._connection.topic_record(topic)
    wider = schemas.StructType((*record.schema.fields, schemas.StructField(name, kind)))
    return append(ns, AlterTopic(record.id, wider))


class Story:
    """A namespace to which things happen."""

    def __init__(self, place: Place, name: str = "sales", **options: str) -> None:
        self.place = place
        self.name = name
        self.options = options
        self.ns: Any = place.open(name)
        self.catalogs = [txn_catalog.open(place.root) for _ in range(2)]
        self._next = 0
        self._open: list[Any] = []
        for topic in TOPICS:
            self.ns.create_topic(topic, SCHEMA, partitions=2, **options)

    def rows(self, count: int) -> list[dict[str, Any]]:
        """Rows that no other call gives."""
        first = self._next
        self._next += count
        return [
            {"id": number, "name": None if number % 5 == 0 else f"n{number}" * (number % 30), "price": number / 4}
            for number in range(first, first + count)
        ]

    def run(self, todo: Sequence[Step]) -> None:
        for what, which, many in todo:
            getattr(self, f"do_{what}")(which, many)

    def do_produce(self, which: int, many: int) -> None:
        self.ns.produce(TOPICS[which % 2], self.rows(1 + many % 5), partition=which // 2 % 2)

    def _filled(self, which: int, many: int) -> Any:
        txn = self.ns.begin()
        for number in range(1 + many % 3):
            txn.produce(TOPICS[(which + number) % 2], self.rows(1 + many // 3 % 3), partition=(which // 2 + number) % 2)
            if many & 64:
                txn.flush()
        return txn

    def do_commit(self, which: int, many: int) -> None:
        self._filled(which, many).commit()

    def do_abort(self, which: int, many: int) -> None:
        self._filled(which, many | 64).abort()

    def do_together(self, which: int, many: int) -> None:
        """Several transactions whose commits may share an entry and its segments."""
        txns = [self._filled(which + number, many & ~64) for number in range(2 + many % 3)]
        for future in [txn.commit_async() for txn in txns]:
            future.result(60)

    def do_open(self, which: int, many: int) -> None:
        """A transaction that stays open for a while, or ends now."""
        if self._open and many % 2:
            self._open.pop(0).commit()
        else:
            self._open.append(self._filled(which, many | 64))

    def do_compact(self, which: int, many: int) -> None:
        topic = TOPICS[which % 2]
        runs = mergeable(self.ns, topic)
        if runs:
            partition, run = runs[many % len(runs)]
            first = which // 2 % (len(run) - 1)
            compact(self.ns, topic, run[first : first + 2 + many % 3], partition)

    def do_widen(self, which: int, many: int) -> None:
        topic = TOPICS[which % 2]
        names = [field.name for field in self.ns._connection.topic_record(topic).schema.fields]
        if len(names) < 6:
            add_column(self.ns, topic, f"more{len(names)}", ("string", "long", "date", "decimal(9,2)")[many % 4])

    def do_drop(self, which: int, many: int) -> None:
        if many % 4 == 0:
            topic = TOPICS[which % 2]
            self.ns.drop_topic(topic)
            self.ns.create_topic(topic, SCHEMA, partitions=2, **self.options)

    def do_checkpoint(self, which: int, many: int) -> None:
        self.ns.checkpoint()

    def do_reopen(self, which: int, many: int) -> None:
        self._open = []
        self.ns.close()
        self.ns = self.place.open(self.name)
        self.catalogs[which % 2].close()
        self.catalogs[which % 2] = txn_catalog.open(self.place.root)

    def do_publish(self, which: int, many: int) -> None:
        self.publish(which)

    def publish(self, which: int = 0) -> Mapping[str, Published]:
        """Publish everything by one of two catalogs; the topics that have tables, by folder."""
        cat: Catalog = self.catalogs[which % 2]
        return {item.url.rpartition("/")[2]: item for item in cat.publish(self.name)[:-1]}

    def records(self) -> list[TopicRecord]:
        """All topics that there ever were."""
        self.ns._connection.follower.refresh()
        return list(self.ns._connection.follower.state.topics.values())

    def path(self, record: TopicRecord) -> str:
        """The folder of a topic's table."""
        return f"{self.place.root}/{self.name}/{record.folder}"

    def wanted(self, record: TopicRecord, version: int) -> pa.Table:
        """What the log's readers see of a topic at a version; of one that is gone, what they saw last."""
        if record.dropped_version is not None and version >= record.dropped_version:
            version = record.dropped_version - 1
        snapshot = self.ns.snapshot(version=version)
        try:
            return snapshot.read(record.name)
        except TopicNotFound:
            raise AssertionError(f"{record.name} is not there at {version}") from None

    def close(self) -> None:
        for cat in self.catalogs:
            cat.close()
        self.ns.close()


def check_versions(
    story: Story, engines: Engines, names: Sequence[str], published: Mapping[str, Mapping[int, int]]
) -> int:
    """Every engine reads at every version what the log's readers see there. Returns how many reads were compared.

    ``published`` has by folder which version of the namespace each Delta version shows.
    """
    compared = 0
    records = {record.folder: record for record in story.records()}
    for folder, versions in published.items():
        record = records[folder]
        for delta_version, version in versions.items():
            wanted = story.wanted(record, version)
            for engine in names:
                assert_same(engines.read(engine, story.path(record), delta_version), wanted)
                compared += 1
    return compared
