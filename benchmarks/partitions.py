"""A commit into 100 partitions of one topic against a commit into one: p50 of 200 each, in turns."""

from __future__ import annotations

import statistics
import time

import txnlog
from benchmarks.report import Row, report, scratch
from txnlog.api.namespace import Namespace

COMMITS = 200


def commit_ms(ns: Namespace, topic: str, partitions: int) -> float:
    """Milliseconds of one commit with a message in each partition; producing is not timed."""
    txn = ns.begin()
    for partition in range(partitions):
        txn.produce(topic, [{"value": b"x" * 100}], partition=partition)
    started = time.perf_counter()
    txn.commit()
    return (time.perf_counter() - started) * 1e3


def main() -> list[Row]:
    one: list[float] = []
    many: list[float] = []
    with scratch() as folder, txnlog.open(folder, namespace="bench", create=True) as ns:
        ns.create_topic("one", partitions=1)
        ns.create_topic("many", partitions=100)
        for number in range(COMMITS + 20):
            a, b = commit_ms(ns, "one", 1), commit_ms(ns, "many", 100)
            if number >= 20:
                one.append(a)
                many.append(b)
    ratio = statistics.median(many) / statistics.median(one)
    return [
        Row(
            "commit into 100 partitions against one partition, p50 of 200",
            f"{ratio:.2f} ({statistics.median(many):.2f} ms and {statistics.median(one):.2f} ms)",
            "at most 2",
            ratio <= 2,
        )
    ]


if __name__ == "__main__":
    report(main())
