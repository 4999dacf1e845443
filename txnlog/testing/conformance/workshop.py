"""What golden roots are made with: a client whose time and chance come from a seed, and entries laid by hand."""

from __future__ import annotations

import json
import random
import shutil
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, TypeVar

import pyarrow as pa

from txnlog.api.namespace import Namespace
from txnlog.api.opening import open_namespace
from txnlog.data.segment_file import encode
from txnlog.engine.runtime import Runtime
from txnlog.fold.state import TopicRecord
from txnlog.format.actions import AnyAction, Commit, Segment, Share, SliceRows
from txnlog.format.codec import decode_entry, digest_of
from txnlog.format.keys import entry_key, segment_key
from txnlog.log.commands import Simple
from txnlog.store.base import Store
from txnlog.store.identity import StoreIdentity, make_identity
from txnlog.store.open import open_store
from txnlog.store.wrappers import ForwardingStore
from txnlog.testing.clock import ManualClock
from txnlog.testing.conformance.cases import LATEST, LEVELS, ROOT, write_expected
from txnlog.testing.conformance.reference import answer

T = TypeVar("T")

START_MS: Final = 1_767_225_600_000
"""2026-01-01, when every root begins."""

SCHEMA: Final = pa.schema([pa.field("id", pa.int64(), nullable=False), pa.field("name", pa.string())])
PARTITION: Final = pa.field("_partition", pa.int32(), nullable=False)
NAMESPACE: Final = "sales"


class SeededRuntime(Runtime):
    """A runtime with a manual clock and seeded randomness: the same calls write the same log."""

    def __init__(self, clock: ManualClock, chance: random.Random) -> None:
        super().__init__(clock)
        self._chance = chance

    def jitter(self, ceiling: float) -> float:
        """Half of it."""
        return ceiling / 2

    def unique(self) -> str:
        """From the seed."""
        return f"{self._chance.getrandbits(128):032x}"

    def run_all(self, calls: Sequence[Callable[[], T]]) -> list[T]:
        """One by one, so that chance is drawn in one order."""
        return [call() for call in calls]


class _Anywhere(ForwardingStore):
    """A store on this machine whose verdict is the same wherever it is: entries shall not depend on the folder."""

    @property
    def identity(self) -> StoreIdentity:
        """That of a local store at no place."""
        return make_identity("local", "conformance", "")


class Workshop:
    """One golden root in the making: its folder, clock and chance, and the questions that it will be asked."""

    def __init__(self, folder: Path, seed: str) -> None:
        self.folder = folder
        self.root = folder / ROOT
        self.namespace = NAMESPACE  # whose files are laid, forged and asked for
        self.chance = random.Random(seed)  # text: seeded by its SHA-512, the same everywhere
        self.clock = ManualClock(START_MS)
        self.questions: list[tuple[str, str, str, str]] = []
        self.also: dict[tuple[str, str, str, str], tuple[str, ...]] = {}
        self._rows = 0
        folder.mkdir(parents=True)

    # --- clients ----------------------------------------------------------------------------------------------------

    @property
    def home(self) -> Path:
        """The namespace's folder."""
        return self.root / self.namespace

    def open(self, namespace: str | None = None) -> Namespace:
        """A client, which makes the namespace if need be."""
        self.namespace = namespace or NAMESPACE
        return open_namespace(self.root, self.namespace, create=True, store=self.store(), runtime=self.runtime())

    def store(self) -> Store:
        """The root as a store."""
        return _Anywhere(open_store(self.root))

    def runtime(self) -> SeededRuntime:
        """The surroundings of one client."""
        return SeededRuntime(self.clock, self.chance)

    def rows(self, count: int) -> list[dict[str, Any]]:
        """So many rows of ``SCHEMA``, each with an id of its own."""
        first, self._rows = self._rows, self._rows + count
        words = ("ada", "bob", "eve", "größe", "日本", "", None)
        return [{"id": first + place, "name": self.chance.choice(words)} for place in range(count)]

    def tick(self) -> None:
        """Let a second pass."""
        self.clock.advance(1_000)

    def produce(self, ns: Namespace, topic: str, *counts: int) -> int:
        """Rows in one plain produce or, of several partitions, in one transaction; the version that shows them."""
        self.tick()
        txn = ns.begin()
        for partition, count in enumerate(counts):
            if count:
                txn.produce(topic, self.rows(count), partition)
        return txn.commit().version

    # --- by hand ----------------------------------------------------------------------------------------------------

    def append(self, ns: Namespace, *actions: AnyAction) -> int:
        """One entry of a writer with these actions; its version."""
        self.tick()
        return ns._connection.appender.call(
            Simple(lambda _draft, _at: list(actions), lambda draft, _at: draft.head.version)
        )

    def put(self, topic: TopicRecord, number: int, data: bytes) -> str:
        """Store the bytes of a segment; its file name."""
        file = f"{self.chance.getrandbits(128):032x}.parquet"
        path = self.home / segment_key(topic.folder, number, file)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
        return file

    def lay(
        self,
        ns: Namespace,
        topic: str,
        number: int,
        table: pa.Table,
        partitions: Mapping[int, int],
        txn: int | None = None,
        *,
        partition_column: bool = False,
        **changes: Any,
    ) -> Segment:
        """Store a file of a topic under a number of one's choice; the action that names it.

        ``partitions`` says how many rows of each it holds, in their order, and with ``partition_column`` the file says
        so, too; ``changes`` are fields of the action.
        """
        record = ns._connection.topic_record(topic)
        if partition_column:
            column = [partition for partition, rows in sorted(partitions.items()) for _ in range(rows)]
            table = table.append_column(PARTITION, pa.array(column, pa.int32()))
        data = encode(table)
        fields: dict[str, Any] = {
            "file": self.put(record, number, data.data),
            "rows": data.rows,
            "size_bytes": data.size_bytes,
            "checksum": data.checksum,
            "slices": tuple(SliceRows(partition, rows) for partition, rows in sorted(partitions.items())),
            "txn": txn,
            "statistics": data.statistics,
        }
        return Segment(segment=number, topic=record.id, **(fields | changes))

    def shared(
        self, ns: Namespace, topic: str, number: int, pieces: Sequence[tuple[int, int, int]]
    ) -> tuple[Segment, tuple[Commit, ...]]:
        """A shared segment and the commits that claim it.

        ``pieces`` are transaction, partition and count; the commits come in the order in which their transactions are
        first named.
        """
        ordered = sorted(pieces, key=lambda piece: piece[1])
        rows = [row | {"_txn": txn, "_partition": p} for txn, p, count in ordered for row in self.rows(count)]
        stored = SCHEMA.append(pa.field("_txn", pa.int64(), nullable=False))
        stored = stored.append(PARTITION)
        counts: dict[int, int] = {}
        for _, partition, count in ordered:
            counts[partition] = counts.get(partition, 0) + count
        segment = self.lay(ns, topic, number, table_of(rows, stored), counts)
        commits = {
            txn: Commit(txn, shares=tuple(Share(number, p, count) for other, p, count in ordered if other == txn))
            for txn, _, _ in pieces
        }
        return segment, tuple(commits.values())

    # --- entries that no client writes ------------------------------------------------------------------------------

    def newest(self) -> tuple[int, bytes]:
        """The newest entry of the log: its version and its bytes."""
        version = 0
        while (self.home / entry_key(version + 1)).exists():
            version += 1
        return version, (self.home / entry_key(version)).read_bytes()

    def forge(self, *lines: str, **header: Any) -> int:
        """Write the next entry with these lines, whatever they say; ``header`` changes its fields. Its version."""
        version, data = self.newest()
        before = decode_entry(data, version).header
        fields: dict[str, Any] = {
            "action": "header",
            "version": version + 1,
            "writer": before.writer,
            "timestamp_ms": before.timestamp_ms + 1_000,
            "previous": digest_of(data),
        }
        path = self.home / entry_key(version + 1)
        path.write_bytes("".join(f"{line}\n" for line in (compact_json(fields | header), *lines)).encode())
        return version + 1

    # --- questions --------------------------------------------------------------------------------------------------

    def ask(
        self,
        *topics: str,
        versions: Iterable[int | str] = (LATEST,),
        levels: Sequence[str] = LEVELS,
        namespace: str | None = None,
        also: tuple[str, ...] = (),
    ) -> None:
        """Ask for topics at versions. ``also`` are kinds of answers that are right besides this project's own."""
        namespace = namespace or self.namespace
        asked = [
            (namespace, topic, str(version), level) for version in versions for topic in topics for level in levels
        ]
        self.questions += asked
        self.also |= dict.fromkeys(asked, also)

    def finish(self, about: str) -> None:
        """Write the expected answers next to the root."""
        for left in sorted(self.root.glob("*/_probe")):
            shutil.rmtree(left)  # what the trial of the store left behind: empty folders
        found = {question: answer(self.root, *question) for question in dict.fromkeys(self.questions)}
        write_expected(self.folder, about, [(question, said, self.also[question]) for question, said in found.items()])


def table_of(rows: Sequence[Mapping[str, Any]], schema: pa.Schema = SCHEMA) -> pa.Table:
    """Rows as the table of a file."""
    return pa.Table.from_pylist(list(rows), schema)


def compact_json(value: Any) -> str:
    """JSON as entries have it."""
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False)


__all__ = ["NAMESPACE", "PARTITION", "SCHEMA", "START_MS", "SeededRuntime", "Workshop", "compact_json", "table_of"]
