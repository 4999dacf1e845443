"""Bytes of the commit log that a small transaction takes: those of the entries over the transactions in them.

A transaction produces one 100-byte message to each of three partitions. Several are in flight, so that they share
entries (group commit); what else rides along (the header, the shared segment, blocks of numbers) is counted too.
"""

from __future__ import annotations

from collections import deque
from concurrent.futures import Future

import txnlog
from benchmarks.report import Row, report, scratch
from txnlog.api.namespace import Namespace
from txnlog.api.producer import Producer
from txnlog.format.actions import Commit
from txnlog.format.codec import decode_entry
from txnlog.format.keys import entry_key
from txnlog.results import Committed

TRANSACTIONS = 4_096
GOAL = 300
VALUE = b"x" * 100


def commit_many(producer: Producer, in_flight: int, *, sequences: bool) -> None:
    """So many small transactions; with sequences, the first ones of their producer."""
    waiting: deque[Future[Committed]] = deque()
    for number in range(TRANSACTIONS):
        txn = producer.begin()
        for partition in range(3):
            txn.produce("events", [{"value": VALUE}], partition=partition, sequence=number if sequences else None)
        waiting.append(txn.commit_async())
        if len(waiting) >= in_flight:
            waiting.popleft().result()
    while waiting:
        waiting.popleft().result()


def bytes_each(ns: Namespace, producer: Producer, in_flight: int, *, sequences: bool = False) -> tuple[float, float]:
    """Bytes of log a transaction, and transactions an entry."""
    before = ns._connection.follower.version
    commit_many(producer, in_flight, sequences=sequences)
    size = commits = 0
    for version in range(before + 1, ns._connection.follower.version + 1):
        data = ns._connection.store.get(entry_key(version))
        size += len(data)
        commits += sum(isinstance(action, Commit) for action in decode_entry(data, version).actions)
    assert commits == TRANSACTIONS, f"{commits} commits were found"
    return size / commits, commits / (ns._connection.follower.version - before)


def main() -> list[Row]:
    rows: list[Row] = []
    with scratch() as folder, txnlog.open(folder, namespace="bench", create=True) as ns:
        ns.create_topic("events", partitions=3)
        for who, in_flight, sequences in (
            (None, 64, False),
            (None, 256, False),
            ("loader-1", 64, False),
            ("loader-2", 64, True),
        ):
            each, group = bytes_each(ns, ns.producer(who), in_flight, sequences=sequences)
            named = f", a named producer{' with sequences' if sequences else ''}" if who else ""
            what = f"log bytes of a small transaction, {in_flight} in flight{named}"
            rows.append(Row(what, f"{each:.0f} ({group:.0f} to an entry)", f"at most {GOAL}", each <= GOAL))
        alone, _ = bytes_each(ns, ns.producer(), 1)
        rows.append(Row("the same, with an entry of its own", f"{alone:.0f}", "reported", True))
    return rows


if __name__ == "__main__":
    report(main())
