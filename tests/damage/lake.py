"""A small root with every kind of object that a namespace can have, the same bytes every time, and what it holds."""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, TypeVar
from unittest import mock

import deltalake
import pyarrow as pa

import catalog
import txnlog
from tests.by_hand import compact
from tests.client.support import FakeRuntime, trusting_probe
from txnlog.api.namespace import Namespace
from txnlog.client import session_owner
from txnlog.format import keys
from txnlog.log import root_log as roots
from txnlog.log.proposals import proposal_codec
from txnlog.log.transaction_commands import CommitCommand, Opening
from txnlog.testing.clock import ManualClock

T = TypeVar("T")

NAME: Final = "shop"
TOPICS: Final = ("orders", "payments")
SCHEMA: Final = pa.schema([("id", pa.int64())])
START_MS: Final = 1_767_225_600_000
LEASE_MS: Final = 30_000
DELTA_LOGS: Final = {
    "the Delta table's": f"{NAME}/orders/_delta_log",
    "the segments table's": f"{NAME}/_delta/segments/_delta_log",
}


class SteadyRuntime(FakeRuntime):
    """No waiting, no chance, one request after the other: every run does the same."""

    _made: Iterator[int] = itertools.count()

    def __init__(self, clock: Any = None) -> None:
        super().__init__(clock or ManualClock(START_MS + 3_600_000))
        self._chance = random.Random(next(SteadyRuntime._made))

    @classmethod
    def begin(cls) -> None:
        """From here on all runtimes draw what they drew after the last call of this."""
        cls._made = itertools.count()

    def jitter(self, ceiling: float) -> float:
        return ceiling / 2

    def unique(self) -> str:
        return f"{self._chance.getrandbits(128):032x}"

    def run_all(self, calls: Sequence[Callable[[], T]]) -> list[T]:
        return [call() for call in calls]


@contextlib.contextmanager
def steady() -> Iterator[None]:
    """Every handle that is opened inside has a steady runtime, and a store that is trusted and quick."""
    with (
        mock.patch.object(session_owner, "Runtime", SteadyRuntime),
        mock.patch.object(roots, "probe", trusting_probe),
        mock.patch.object(os, "fsync", return_value=None),  # no power is cut here
    ):
        yield


@dataclass(frozen=True)
class Lake:
    """What an undamaged root holds.

    Attributes:
        older: a version before the segments of ``orders`` were merged, and before the newest checkpoints.
        first_txn, first_version: a transaction that committed before the first checkpoint, and its version.
        rows, older_rows: by topic the ids at the newest version and at the older one.
        segments: the numbers of segments that the published table of segments shows.
        objects: the objects that are damaged one by one.
    """

    folder: Path
    older: int
    first_txn: str
    first_version: int
    rows: dict[str, list[int]]
    older_rows: dict[str, list[int]]
    segments: tuple[int, ...]
    objects: tuple[Target, ...]


@dataclass(frozen=True)
class Target:
    """An object of the root, and the one that it is swapped with; keys of the whole root.

    ``entry`` tells that it is an entry of the namespace's log.
    """

    name: str
    key: str
    partner: str
    entry: bool = False


def build(folder: Path) -> Lake:
    """Make the root in an empty folder."""
    SteadyRuntime.begin()
    clock = ManualClock(START_MS)
    with steady(), txnlog.open(folder, namespace=NAME, create=True, clock=clock) as ns:
        with catalog.open(folder, clock=clock) as cat:
            older, first_txn, first_version, checkpoints = _history(ns, cat, clock)
        snapshot = ns.snapshot()
        rows = {topic: snapshot.read(topic)["id"].to_pylist() for topic in TOPICS}
        past = ns.snapshot(older)
        older_rows = {topic: past.read(topic)["id"].to_pylist() for topic in TOPICS}
        shown = deltalake.DeltaTable(str(folder / NAME / "_delta/segments")).to_pyarrow_table()
        segments = tuple(sorted(shown["segment"].to_pylist()))
        objects = tuple(_targets(folder, ns, older, first_version, checkpoints))
    return Lake(folder, older, first_txn, first_version, rows, older_rows, segments, objects)


def _history(ns: Namespace, cat: catalog.Catalog, clock: ManualClock) -> tuple[int, str, int, list[int]]:
    """Fill a namespace; the older version, a transaction before it, and the versions of the checkpoints."""
    numbers = itertools.count()

    def produced(topic: str) -> None:
        clock.advance(1_000)
        ns.produce(topic, [{"id": next(numbers)} for _ in range(3)])

    with txnlog.open(ns.root, namespace="other", create=True, clock=clock):
        pass  # a second registration in the root log
    for topic in TOPICS:
        ns.create_topic(topic, SCHEMA, delta="off" if topic == "payments" else "manual")
        ns.create_subscription(topic, "billing")
        ns.create_subscription(topic, "audit", takeover="after_lease", lease_ms=LEASE_MS)
    cashier = ns.producer("cashier")
    checkpoints: list[int] = []
    older, first_txn, first_version = -1, "", -1
    for round_ in range(3):
        for topic in TOPICS:
            produced(topic)
        with ns.begin() as txn:
            for topic in TOPICS:
                txn.produce(topic, [{"id": next(numbers)}])
            txn.flush()
        version = ns.snapshot().version
        for _ in range(3):  # more than the log's state remembers of a producer
            cashier.produce("orders", [{"id": next(numbers)}], partition=0)
        aborted = ns.begin()
        aborted.produce("orders", [{"id": -1}])
        aborted.flush()
        aborted.abort()
        cat.publish(NAME, "orders")
        if round_ == 0:
            older, first_txn, first_version = ns.snapshot().version, str(txn.id), version
        checkpoints.append(ns.checkpoint())
        produced("payments")  # its header names the checkpoint
        if round_ < 2:
            merged = [item.number for item in ns.snapshot().plan("orders").segments if not item.compacted]
            compact(ns, "orders", merged, 0)
            cat.repair(NAME)  # with a checkpoint of each Delta log
    cat.publish(NAME)
    for topic in TOPICS:
        with ns.consumer(topic, "audit", name="auditor") as consumer:
            consumer.receive(1, timeout_ms=0)
    for topic in TOPICS:
        produced(topic)
    _propose(ns)
    cat.publish(NAME)
    return older, first_txn, first_version, checkpoints


def _propose(ns: Namespace) -> None:
    """What writers leave behind that raced: a mailbox each, and who collected."""
    store, state = ns._connection.store, ns._connection.follower.state
    (first, second) = ("1" * 32, "2" * 32)
    for writer in (first, second):
        data = proposal_codec.encode(writer, 0, [CommitCommand(Opening(state.txn_id(1), lambda: 0), "0" * 32)], state)
        assert data is not None
        store.put(keys.mailbox_key(writer), data)
    store.put(keys.COLLECTOR_KEY, b'{"writer":"%s"}' % first.encode())


def _targets(folder: Path, ns: Namespace, older: int, first: int, checkpoints: Sequence[int]) -> Iterator[Target]:
    head = ns.snapshot().version

    def entry(version: int) -> str:
        return f"{NAME}/{keys.entry_key(version)}"

    yield Target("the first entry", entry(0), entry(1), entry=True)
    yield Target("an entry that checkpoints cover", entry(first), entry(first + 1), entry=True)
    yield Target("an entry after the newest checkpoint", entry(head - 1), entry(head - 2), entry=True)
    yield Target("the newest entry", entry(head), entry(head - 1), entry=True)

    def manifest(version: int) -> str:
        return f"{NAME}/{keys.manifest_key(version)}"

    yield Target("the newest checkpoint's manifest", manifest(checkpoints[-1]), manifest(checkpoints[-2]))
    yield Target("an older checkpoint's manifest", manifest(checkpoints[0]), manifest(checkpoints[1]))
    parts = {version: _parts(folder / manifest(version)) for version in checkpoints}
    for kind, found in parts[checkpoints[-1]].items():
        # Runs are shared by all later checkpoints: the last one is of the newest alone.
        other = parts[checkpoints[0]][kind][0] if kind in parts[checkpoints[0]] else found[0]
        if kind == "batches":  # newer ones are remembered by the hot part as well
            yield Target("the first part `batches`", _part_key(other), _part_key(found[-1]))
        else:
            yield Target(f"the newest checkpoint's part `{kind}`", _part_key(found[-1]), _part_key(other))
    first_run, last_run = parts[checkpoints[0]]["segments"][0], parts[checkpoints[-1]]["segments"][-1]
    yield Target("a part `segments` of all checkpoints", _part_key(first_run), _part_key(last_run))

    now = [item for item in ns.snapshot().plan("orders").segments if not item.compacted]
    merged = [item for item in ns.snapshot().plan("orders").segments if item.compacted]
    past = ns.snapshot(older).plan("orders").segments
    yield Target("a segment", f"{NAME}/{now[0].key}", f"{NAME}/{now[1].key}")
    yield Target("a merged segment", f"{NAME}/{merged[0].key}", f"{NAME}/{merged[1].key}")
    yield Target("a segment that was replaced", f"{NAME}/{past[0].key}", f"{NAME}/{past[1].key}")
    hints = [_key(folder, path) for path in sorted((folder / NAME / "_hints").rglob("*.json"))]
    yield Target("a heartbeat", hints[0], hints[1])
    mailbox, other = (f"{NAME}/{keys.mailbox_key(digit * 32)}" for digit in "12")
    yield Target("a mailbox", mailbox, other)
    yield Target("who collects", f"{NAME}/{keys.COLLECTOR_KEY}", mailbox)

    root = [f"_catalog/{keys.entry_key(version)}" for version in range(3)]
    yield Target("the root log's first entry", root[0], root[1])
    yield Target("the root log's newest entry", root[2], root[1])
    for whose, place in DELTA_LOGS.items():
        yield from _delta_targets(folder, place, whose)
    files = [_key(folder, path) for path in sorted((folder / NAME / "_delta/segments").glob("*.parquet"))]
    shown = _live_files(folder / NAME / "_delta/segments")
    live = [key for key in files if key.rpartition("/")[2] in shown]
    yield Target("a file of the segments table", live[0], live[1] if len(live) > 1 else files[0])


def _delta_targets(folder: Path, place: str, whose: str) -> Iterator[Target]:
    log = folder / place
    commits = [_key(folder, path) for path in sorted(log.glob("*.json"))]
    checkpoints = [_key(folder, path) for path in sorted(log.glob("*.checkpoint.parquet"))]
    yield Target(f"{whose} first commit", commits[0], commits[1])
    yield Target(f"{whose} commit after its checkpoint", commits[-2], commits[-3])
    yield Target(f"{whose} newest commit", commits[-1], commits[-2])
    yield Target(f"{whose} newest checkpoint", checkpoints[-1], checkpoints[0])
    other = next(item for item in DELTA_LOGS.values() if item != place)
    yield Target(f"{whose} `_last_checkpoint`", f"{place}/_last_checkpoint", f"{other}/_last_checkpoint")


def _live_files(table: Path) -> list[str]:
    """The names of the files that a Delta table shows."""
    return [path.rpartition("/")[2] for path in deltalake.DeltaTable(str(table)).file_uris()]


def _key(folder: Path, path: Path) -> str:
    return path.relative_to(folder).as_posix()


def _parts(manifest: Path) -> dict[str, list[str]]:
    """By kind the unique names of a checkpoint's parts."""
    found: dict[str, list[str]] = {}
    for part in json.loads(manifest.read_bytes())["parts"]:
        found.setdefault(part["kind"], []).append(part["unique"])
    return found


def _part_key(unique: str) -> str:
    return f"{NAME}/_log/checkpoints/parts/{unique}.parquet"


__all__ = ["LEASE_MS", "NAME", "TOPICS", "Lake", "SteadyRuntime", "Target", "build", "steady"]
