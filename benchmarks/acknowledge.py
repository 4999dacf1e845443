"""Receiving and acknowledging in batches of 1,000: messages a second of one consumer, and what it costs the log."""

from __future__ import annotations

import statistics
import time

import pyarrow as pa

import txnlog
from benchmarks.report import Row, report, scratch
from txnlog.api.namespace import Namespace
from txnlog.format.keys import entry_key

MESSAGES = 100_000
BATCH = 1_000
ROUNDS = 3
GOAL = 50_000
WAYS = [(kind, transactional) for kind in ("exclusive", "shared") for transactional in (False, True)]
RUN = 40_000
"""Messages in a row that are acknowledged at once; a Shared consumer may hold 50,000."""


def produce(ns: Namespace, topic: str, segments: int, messages: int) -> None:
    """So many segments of so many messages of 100 bytes each, in one partition."""
    ns.create_topic(topic)
    rows = pa.table({"value": pa.array([b"x" * 100] * messages, pa.binary())})
    for _ in range(segments):
        ns.produce(topic, rows)


def rate(ns: Namespace, topic: str, kind: str, subscription: str, *, transactional: bool) -> float:
    """Messages a second of a new subscription, from its first message to its last."""
    taken = 0
    with ns.consumer(topic, subscription, type=kind) as consumer:
        started = time.perf_counter()
        while taken < MESSAGES:
            messages = consumer.receive(BATCH, timeout_ms=0)
            if transactional:
                with ns.begin() as txn:
                    txn.acknowledge(messages)
            else:
                consumer.acknowledge(messages)
            taken += len(messages)
        return MESSAGES / (time.perf_counter() - started)


def way(kind: str, transactional: bool) -> str:
    """A way of acknowledging, in words."""
    return f"{kind.capitalize()}, {'in a transaction each' if transactional else 'plain'}"


def rates(ns: Namespace) -> list[Row]:
    """Each kind with each way of acknowledging, in turns; the median of the rounds."""
    found: dict[tuple[str, bool], list[float]] = {}
    for number in range(ROUNDS):
        for kind, transactional in WAYS:
            name = f"{kind}-{transactional}-{number}"
            found.setdefault((kind, transactional), []).append(rate(ns, "few", kind, name, transactional=transactional))
    return [
        Row(
            f"{way(kind, transactional)}: messages a second",
            f"{statistics.median(several):,.0f}",
            f"at least {GOAL:,}",
            statistics.median(several) >= GOAL,
        )
        for (kind, transactional), several in found.items()
    ]


def segments(ns: Namespace) -> Row:
    """A receive of one segment's messages, where the topic has 2,000 segments and where it has 150."""
    times: dict[str, list[float]] = {"short": [], "long": []}
    consumers = {topic: ns.consumer(topic, "timed") for topic in times}
    for number in range(120):
        for topic, consumer in consumers.items():
            started = time.perf_counter()
            consumer.receive(100, timeout_ms=0)
            if number >= 20:
                times[topic].append((time.perf_counter() - started) * 1e3)
    ratio = statistics.median(times["long"]) / statistics.median(times["short"])
    return Row(
        "a receive of 100 messages out of 2,000 segments against 150, p50 of 100",
        f"{ratio:.2f} ({statistics.median(times['long']):.2f} ms and {statistics.median(times['short']):.2f} ms)",
        "at most 1.5",
        ratio <= 1.5,
    )


def log_bytes(ns: Namespace, kind: str, *, transactional: bool) -> Row:
    """Bytes of the entries that receive and acknowledge many messages in a row, against ten."""
    sizes: list[int] = []
    with ns.consumer("few", f"sizes-{kind}-{transactional}", type=kind) as consumer:
        for count in (10, RUN):
            version = ns.snapshot().version
            messages = consumer.receive(count, timeout_ms=0)
            assert len(messages) == count
            if transactional:
                with ns.begin() as txn:
                    txn.acknowledge(messages)
            else:
                consumer.acknowledge(messages)
            entries = range(version + 1, ns.snapshot().version + 1)
            sizes.append(sum(len(ns._connection.store.get(entry_key(number))) for number in entries))
    return Row(
        f"{way(kind, transactional)}: log bytes for {RUN:,} messages in a row, and 10",
        f"{sizes[1]} and {sizes[0]}",
        "as many, but for digits",
        abs(sizes[1] - sizes[0]) <= 32,
    )


def main() -> list[Row]:
    with scratch() as folder, txnlog.open(folder, namespace="bench", create=True) as ns:
        produce(ns, "few", 10, MESSAGES // 10)
        produce(ns, "short", 150, 100)
        produce(ns, "long", 2_000, 100)
        sizes = [log_bytes(ns, kind, transactional=transactional) for kind, transactional in WAYS]
        return [*rates(ns), segments(ns), *sizes]


if __name__ == "__main__":
    report(main())
