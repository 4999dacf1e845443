"""A client in a process of its own, of whichever version of txnlog is on its path; a pipe says what it does.

It is run by the older version as well, so it uses only what both have: the public calls, as they were then. A line of
JSON is a call of :class:`Client` with its arguments, a line comes back with its result or its error.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from typing import Any

import pyarrow as pa

import txnlog

SCHEMA = pa.schema([("id", pa.int64()), ("note", pa.string())])
_EMPTY_LIMIT = 20


class Client:
    """What the stories ask of a client."""

    def __init__(self) -> None:
        self.ns: Any = None
        self.open_txns: list[Any] = []

    def where(self) -> str:
        """The file that was imported."""
        return str(txnlog.__file__)

    def open(self, path: str, **options: Any) -> int:
        """Open a namespace; the version of its newest entry."""
        self.ns = txnlog.open(path, **options)
        return int(self.ns.snapshot().version)

    def close(self) -> None:
        """Close it."""
        for txn in self.open_txns:
            txn.close()
        self.ns.close()

    def create(self, *topics: str, partitions: int = 2, **settings: Any) -> None:
        """Topics with the columns of all."""
        for topic in topics:
            self.ns.create_topic(topic, SCHEMA, partitions=partitions, key="id", **settings)

    def subscribe(self, topic: str, name: str, kind: str) -> None:
        """A subscription from the first message on."""
        self.ns.create_subscription(topic, name, type=kind, start="earliest")

    def produce(self, topic: str, first: int, count: int, each: int = 1) -> None:
        """So many commits of some rows each, as one call or as a transaction in turn."""
        for commit in range(count):
            rows = [{"id": first + commit * each + place, "note": f"n{commit}"} for place in range(each)]
            if commit % 2:
                with self.ns.begin() as txn:
                    txn.produce(topic, rows)
            else:
                self.ns.produce(topic, rows)

    def everything(self, topic: str) -> None:
        """One of each: named producers, aborted, open, prepared, seeks, two schemas, deletions, a dropped topic."""
        producer = self.ns.producer("loader")
        with producer.begin() as txn:
            txn.produce(topic, [{"id": 9_001, "note": None}])
            txn.flush()
            txn.produce(topic, [{"id": 9_002, "note": "two segments"}])
        txn = self.ns.begin()
        txn.produce(topic, [{"id": -1, "note": "aborted"}])
        txn.flush()
        txn.abort()
        self.ns.alter_topic(topic, [("late", pa.float64())])
        self.ns.produce(topic, [{"id": 9_003, "note": "x", "late": 0.5}])
        self.ns.create_topic("gone", SCHEMA)
        self.ns.produce("gone", [{"id": 1, "note": "dropped"}])
        self.ns.drop_topic("gone")

    def leave_open(self, topic: str) -> list[str]:
        """A transaction that is open, and one that is prepared: their TxnIDs."""
        half, whole = self.ns.begin(timeout_ms=900_000), self.ns.begin()
        half.produce(topic, [{"id": -2, "note": "open"}])
        half.flush()
        whole.produce(topic, [{"id": 9_004, "note": "prepared"}])
        token = str(whole.prepare())
        self.open_txns.append(half)
        return [str(half.id), token]

    def complete(self, token: str) -> None:
        """Commit what was prepared."""
        self.ns.complete(token, commit=True)

    def abort(self, txn: str) -> str:
        """Abort a transaction of anybody; its state."""
        return str(self.ns.abort(txn, by="the other one").state)

    def states(self) -> dict[str, str]:
        """By TxnID the state of each transaction that is listed."""
        return {str(item.txn_id): str(item.state) for item in self.ns.transactions()}

    def ids(self, topic: str, version: int | None = None) -> list[int]:
        """All ids of a topic, sorted."""
        snapshot = self.ns.snapshot() if version is None else self.ns.snapshot(version=version)
        return sorted(snapshot.read(topic).column("id").to_pylist())

    def rows(self, topic: str) -> list[list[Any]]:
        """All rows with their offsets, sorted."""
        found = self.ns.snapshot().read(topic, include_metadata=True)
        columns = [name for name in found.column_names if name in {"id", "note", "late", "_partition", "_offset"}]
        return sorted([row[name] for name in columns] for row in found.to_pylist())

    def lag(self, topic: str, name: str) -> list[int]:
        """By partition the cursor of a subscription."""
        return [item.cursor for item in self.ns.lag(topic, name)]

    def work(self, source: str, name: str, target: str, most: int, limit: int = 1_000_000) -> list[int]:
        """Process messages until there are none for a while: each is acknowledged and written on in one transaction."""
        done: list[int] = []
        empty = 0
        with self.ns.consumer(source, name) as consumer:
            while empty < _EMPTY_LIMIT and len(done) < limit:
                messages = consumer.receive(most, timeout_ms=50)
                if not len(messages):
                    empty += 1
                    continue
                empty = 0
                rows = [{"id": row["id"], "note": row["note"]} for row in messages.table.to_pylist()]
                with self.ns.begin() as txn:
                    txn.acknowledge(messages)
                    txn.produce(target, rows)
                done += [row["id"] for row in rows]
        return done

    def checkpoint(self) -> int:
        """Write a checkpoint; its version."""
        self.ns.checkpoint()
        return int(self.ns.snapshot().version)

    def base(self) -> int | None:
        """The version of the checkpoint that this client started from."""
        base = self.ns._connection.follower.base
        return None if base is None else int(base.version)

    def maintain(self) -> None:
        """Merge what is small, and look for files that nobody needs."""
        for topic in self.ns.topics():
            self.ns.optimize(topic)
        self.ns.vacuum()

    def damage(self) -> list[str]:
        """What fsck finds, but files that nothing names: whoever loses a race may leave one."""
        return [text for finding in self.ns.fsck("full").findings if not (text := str(finding)).startswith("note:")]

    def history(self) -> list[Any]:
        """By entry its version, its writer and, where this version of the library shows it, its client."""
        return [[item.version, item.writer, getattr(item, "client", None)] for item in self.ns.history(10_000)]

    def backup(self, source: str, folder: str) -> int:
        """A backup of a namespace; its version."""
        return int(txnlog.backup(source, folder).version)

    def restore(self, folder: str, path: str) -> None:
        """A namespace out of a backup."""
        txnlog.restore(folder, path)


def _answers(client: Client, lines: Iterator[str]) -> Iterator[dict[str, Any]]:
    for line in lines:
        name, given, options = json.loads(line)
        try:
            yield {"result": getattr(client, name)(*given, **options)}
        except Exception as error:  # noqa: BLE001 - whatever it is, the test judges it
            advice, durable = getattr(error, "advice", ""), getattr(error, "durable", "")
            yield {"error": type(error).__name__, "text": f"{error}", "advice": str(advice), "durable": str(durable)}


if __name__ == "__main__":
    answers = sys.stdout
    sys.stdout = sys.stderr
    for answer in _answers(Client(), iter(sys.stdin.readline, "")):
        answers.write(json.dumps(answer) + "\n")
        answers.flush()
