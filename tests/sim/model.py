"""A tiny correct system: dictionaries and lists, one call after the other. Its histories have no findings."""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from typing import Any

from tests.sim.story import NEVER, UNKNOWN
from txnlog.common import ranges
from txnlog.errors import StoreError, TransactionTimedOut
from txnlog.testing.history import History, Recorder

PLACES = [("orders", 0), ("orders", 1), ("audit", 0)]
SUBSCRIBED = ("orders", "s")


@dataclass
class Open:
    """A transaction that has not ended."""

    name: str
    producer: str | None
    epoch: int | None
    contents: dict[tuple[str, int], list[int]] = field(default_factory=dict)
    held: dict[int, ranges.Ranges] = field(default_factory=dict)
    at_epoch: int | None = None


class Model:
    """A namespace with two topics and one subscription; a random walk over it, from a seed."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.recorder = Recorder()
        self.version = 0
        self.rows: dict[tuple[str, int], list[tuple[int, int, str, int]]] = {place: [] for place in PLACES}
        self.open: list[Open] = []
        self.outcomes: dict[str, tuple[str, int]] = {}
        self.epochs: dict[str, int] = {}
        self.sequences: dict[tuple[str, str, int], int] = {}
        self.consumer: int | None = None
        self.delivered: dict[int, ranges.Ranges] = {0: (), 1: ()}
        self.taken: dict[int, ranges.Ranges] = {0: (), 1: ()}
        self.values = 0
        self.names = 0

    def run(self, operations: int) -> History:
        steps = [self.begin, self.produce, self.produce, self.end, self.end, self.plain, self.read, self.receive]
        steps += [self.receive, self.acknowledge, self.acknowledge, self.open_producer, self.open_consumer, self.ask]
        weights = [4, 4, 4, 4, 4, 2, 2, 3, 3, 3, 3, 1, 0.5, 1]
        while len(self.recorder.history().operations) < operations - 1:
            for step in self.random.choices([*steps, self.seek, self.give_back], [*weights, 0.3, 0.5], k=20):
                step()
        rows = {place: tuple(found) for place, found in self.rows.items()}
        cursors = {SUBSCRIBED: {p: self.cursor(p) for p in (0, 1)}}
        self.call("judge", "final", result={"rows": rows, "outcomes": dict(self.outcomes), "cursors": cursors})
        return self.recorder.history()

    def call(self, actor: str, kind: Any, /, fails: Any = None, result: dict[str, Any] | None = None, **asked: Any):
        token = self.recorder.invoke(actor, kind, **asked)
        if isinstance(fails, BaseException):
            self.recorder.failed(token, fails)
        elif fails != NEVER:
            self.recorder.ok(token, **(result or {}))

    def next_version(self) -> int:
        self.version += self.random.choice([1, 1, 1, 2])
        return self.version

    def fresh(self, count: int) -> list[int]:
        self.values += count
        return list(range(self.values - count, self.values))

    # --- producing --------------------------------------------------------------------------------------------------

    def begin(self) -> None:
        if len(self.open) < 4:
            self.names += 1
            name = self.random.choice([None, *self.epochs])
            self.open.append(Open(f"t{self.names}", name, self.epochs.get(name)))
            self.call("client", "begin", txn=f"t{self.names}", producer=name, epoch=self.epochs.get(name))

    def produce(self) -> None:
        if self.open:
            txn, place = self.random.choice(self.open), self.random.choice(PLACES)
            values = self.fresh(self.random.randint(1, 8))
            fails = self.random.choice([None] * 9 + [StoreError("nothing")])
            self.call("client", "produce", fails, {}, txn=txn.name, topic=place[0], partition=place[1], values=values)
            if fails is None:
                txn.contents.setdefault(place, []).extend(values)

    def append(self, txn: str, contents: dict[tuple[str, int], list[int]], version: int) -> dict[Any, Any]:
        offsets = {}
        for place, values in contents.items():
            start = len(self.rows[place])
            offsets[place] = range(start, start + len(values))
            self.rows[place] += [(start + i, value, txn, version) for i, value in enumerate(values)]
        return offsets

    def end(self) -> None:
        if not self.open:
            return
        txn = self.open.pop(self.random.randrange(len(self.open)))
        how = self.random.choice(["commit", "commit", "commit", "abort", "unknown", "never", "lost", "late", "twice"])
        fenced = txn.producer is not None and self.epochs[txn.producer] != txn.epoch
        if fenced or (txn.held and txn.at_epoch != self.consumer):
            how = "late"
        if how in {"abort", "late", "lost"}:
            self.release(txn)
            if txn.contents or txn.held:
                self.outcomes[txn.name] = ("ABORTED", self.next_version())
            if how == "abort":
                self.call("client", "abort", txn=txn.name)
            else:
                self.call("client", "commit", UNKNOWN if how == "lost" else TransactionTimedOut("late"), txn=txn.name)
            return
        version = self.next_version() if txn.contents or txn.held else self.version
        offsets = self.append(txn.name, txn.contents, version)
        for partition, found in txn.held.items():
            self.taken[partition] = ranges.union(self.taken[partition], found)
        if txn.contents or txn.held:
            self.outcomes[txn.name] = ("COMMITTED", version)
        answer = {"version": version, "offsets": offsets}
        fails = {"unknown": UNKNOWN, "never": NEVER, "twice": UNKNOWN}.get(how)
        self.call("client", "commit", fails, answer, txn=txn.name)
        if how == "twice":
            self.call("client", "commit", None, answer, txn=txn.name)

    def release(self, txn: Open) -> None:
        if txn.at_epoch == self.consumer:
            for partition, found in txn.held.items():
                self.delivered[partition] = ranges.subtract(self.delivered[partition], found)

    def plain(self) -> None:
        place, values = self.random.choice(PLACES), self.fresh(self.random.randint(1, 5))
        name = self.random.choice([None, *self.epochs])
        sequence = None if name is None else self.sequences.get((name, *place), 0)
        asked: dict[str, Any] = {
            "txn": None,
            "topic": place[0],
            "partition": place[1],
            "values": values,
            "sequence": sequence,
        }
        asked |= {"producer": name, "epoch": self.epochs.get(name)}
        how = self.random.choice([None, None, None, UNKNOWN, NEVER, "lost", "nothing", "twice"])
        if how in {"lost", "nothing"}:
            self.call("client", "produce", UNKNOWN if how == "lost" else StoreError("nothing"), **asked)
            return
        version = self.next_version()
        offsets = self.append(f"p{version}", {place: values}, version)
        if name is not None:
            self.sequences[name, *place] = sequence + len(values)
        answer = {"version": version, "offsets": offsets}
        self.call("client", "produce", UNKNOWN if how == "twice" else how, answer, **asked)
        if how == "twice" and name is not None:
            self.call("client", "produce", None, answer | {"duplicate": True}, **asked)

    def open_producer(self) -> None:
        name = self.random.choice(["p", "q"])
        self.epochs[name] = self.next_version()
        self.call("client", "open_producer", result={"epoch": self.version}, name=name)

    # --- reading ----------------------------------------------------------------------------------------------------

    def read(self) -> None:
        wanted = self.random.choice([None, None, self.random.randint(0, self.version)])
        at = self.version if wanted is None else wanted
        rows = {place: tuple(row for row in found if row[3] <= at) for place, found in self.rows.items()}
        self.call("reader", "read", result={"version": at, "rows": rows}, version=wanted)

    def ask(self) -> None:
        if self.outcomes:
            txn = self.random.choice(sorted(self.outcomes))
            state, version = self.outcomes[txn]
            self.call("reader", "outcome", result={"state": state, "version": version}, txn=txn)

    # --- consuming --------------------------------------------------------------------------------------------------

    def cursor(self, partition: int) -> tuple[int, ranges.Ranges]:
        taken = self.taken[partition]
        if taken and taken[0][0] == 0:
            return taken[0][1], taken[1:]
        return 0, taken

    def held(self, partition: int) -> ranges.Ranges:
        return ranges.normalize(part for txn in self.open for part in txn.held.get(partition, ()))

    def open_consumer(self) -> None:
        self.consumer = self.next_version()
        self.delivered = {0: (), 1: ()}
        for txn in self.open:
            if txn.held:
                txn.held, txn.contents, txn.at_epoch = {}, {}, -1
                txn.producer, txn.epoch = "p", -1
        self.epochs.setdefault("p", 0)
        self.call("client", "open_consumer", result={"epoch": self.consumer}, topic="orders", subscription="s")

    def receive(self) -> None:
        if self.consumer is None:
            return self.open_consumer()
        messages: list[tuple[int, int, int, int]] = []
        for partition in (0, 1):
            rows = self.rows["orders", partition]
            free: ranges.Ranges = ((0, len(rows)),) if rows else ()
            for gone in (self.taken[partition], self.held(partition), self.delivered[partition]):
                free = ranges.subtract(free, gone)
            offsets = [offset for start, end in free for offset in range(start, end)][: self.random.randint(1, 6)]
            self.delivered[partition] = ranges.union(self.delivered[partition], ranges.from_values(offsets))
            messages += [(partition, offset, rows[offset][1], 0) for offset in offsets]
        asked: dict[str, Any] = {"topic": "orders", "subscription": "s", "epoch": self.consumer}
        self.call("client", "receive", result={"messages": messages}, **asked)
        return None

    def acknowledge(self) -> None:
        partition = self.random.randrange(2)
        ready = ranges.subtract(self.delivered[partition], ranges.union(self.taken[partition], self.held(partition)))
        if not ready or self.consumer is None:
            return
        start, end = self.random.choice(ready)
        end = self.random.randint(start + 1, end)
        cumulative = start == (self.cursor(partition)[0]) and self.random.random() < 0.5
        asked: dict[str, Any] = {
            "topic": "orders",
            "subscription": "s",
            "epoch": self.consumer,
            "cumulative": cumulative,
        }
        asked["ranges"] = [(partition, start, end)]
        named = [txn for txn in self.open if txn.at_epoch in {None, self.consumer}]
        txn = self.random.choice([None, *named])
        if txn is None:
            self.taken[partition] = ranges.union(self.taken[partition], ((start, end),))
            self.call("client", "acknowledge", result={"version": self.next_version()}, txn=None, **asked)
        else:
            txn.held[partition] = ranges.union(txn.held.get(partition, ()), ((start, end),))
            txn.at_epoch = self.consumer
            self.call("client", "acknowledge", txn=txn.name, **asked)

    def give_back(self) -> None:
        if self.consumer is not None:
            for partition in (0, 1):
                self.delivered[partition] = ranges.intersect(self.delivered[partition], self.held(partition))
            self.call(
                "client", "negative_acknowledge", topic="orders", subscription="s", epoch=self.consumer, ranges=()
            )

    def seek(self) -> None:
        if self.consumer is not None and not any(txn.held for txn in self.open):
            offset = self.random.randint(0, len(self.rows["orders", 0]))
            self.consumer = self.next_version()
            self.delivered = {0: (), 1: ()}
            self.taken[0] = ((0, offset),) if offset else ()
            positions = {0: offset, 1: self.cursor(1)[0]}
            self.taken[1] = ((0, positions[1]),) if positions[1] else ()
            asked: dict[str, Any] = {"topic": "orders", "subscription": "s", "positions": positions}
            self.call("client", "seek", result={"epoch": self.consumer}, **asked)
