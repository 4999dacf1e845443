"""Reading many small segments, in a fresh process each time: ``snapshot.read``, and ``receive(1000)`` to the end.

Three topics of three partitions, messages of 100 bytes with random keys, each next to the same messages in a few files:

- ``thousand``: 1,000 transactions of 1,000 messages, a file each; 20 files;
- ``three``: 3,000 transactions of three messages, a file each; one file;
- ``commits``: 30,000 transactions of three messages, one after the other, and nothing merged; one file.

Prepared once, outside of what is timed. A child process opens the namespace, imports Arrow, reads a topic of one
message, and then takes the time of one way to read one topic; so opening does not count, and nothing of the topic was
read before. Several files and few are timed in turns (A B A B): a rate is the median of the runs, the ratio that of the
pairs.
"""

from __future__ import annotations

import argparse
import cProfile
import pstats
import statistics
import subprocess
import sys
import time
from collections import deque
from collections.abc import Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa

import txnlog
from benchmarks.report import Row, report, scratch
from txnlog.api.namespace import Namespace
from txnlog.results import Committed

BATCH = 1_000
SIZE_BYTES = 100
PARTITIONS = 3
IN_FLIGHT = 64


@dataclass(frozen=True, slots=True)
class Case:
    """A topic of many transactions beside the same messages in a few; what is asked of each way, by its name."""

    transactions: int
    messages: int
    few: int
    least: dict[str, int]
    most_ratio: float | None = None
    in_flight: int = IN_FLIGHT

    @property
    def total(self) -> int:
        """The messages of each of both topics."""
        return self.transactions * self.messages


CASES = {
    "thousand": Case(1_000, 1_000, 20, {"read": 980_000, "receive": 780_000}),
    "three": Case(3_000, 3, 1, {"read": 8_500, "receive": 8_500}),
    "commits": Case(30_000, 3, 1, {"read": 0}, most_ratio=3.0, in_flight=1),
}


def random_column(generator: np.random.Generator, count: int, width: int) -> pa.Array:
    """So many random values of so many bytes."""
    ends = pa.py_buffer(np.arange(count + 1, dtype=np.int32) * width)
    return pa.BinaryArray.from_buffers(pa.binary(), count, [None, ends, pa.py_buffer(generator.bytes(width * count))])


def produce(ns: Namespace, topic: str, transactions: int, messages: int, in_flight: int) -> None:
    """So many transactions of so many messages, in a file each: by their keys they lie in all partitions."""
    ns.create_topic(topic, partitions=PARTITIONS, key="key", merge="manual")  # else its writers merge the files
    generator = np.random.default_rng(20261128)
    widths = {"key": 8, "value": SIZE_BYTES}
    waiting: deque[Future[Committed]] = deque()
    for _ in range(transactions):
        columns = {name: random_column(generator, messages, width) for name, width in widths.items()}
        txn = ns.begin()
        txn.produce(topic, pa.table(columns))
        txn.flush()  # a file of its own: else those that end together share one
        waiting.append(txn.commit_async())
        if len(waiting) >= in_flight:
            waiting.popleft().result()
    for future in waiting:
        future.result()


def prepare(root: Path, case: Case) -> None:
    """The case's namespace, unless it is there."""
    if root.exists():
        return
    started = time.perf_counter()
    with txnlog.open(root, namespace="bench", create=True) as ns:
        produce(ns, "many", case.transactions, case.messages, case.in_flight)
        produce(ns, "few", case.few, case.total // case.few, 1)
        produce(ns, "one", 1, 1, 1)
        counts = {topic: len(ns.snapshot().plan(topic).segments) for topic in ("many", "few")}
        assert counts == {"many": case.transactions, "few": case.few}, counts
    print(f"{root.name}: prepared in {time.perf_counter() - started:.0f} s", file=sys.stderr, flush=True)


# --- in the child -----------------------------------------------------------------------------------------------------


def read(ns: Namespace, topic: str) -> int:
    """All messages as one table."""
    return len(ns.snapshot().read(topic))


def receive(ns: Namespace, topic: str) -> int:
    """All messages by a new subscription, a thousand at a time."""
    total = 0
    with ns.consumer(topic, f"sub-{time.time_ns()}") as consumer:
        while messages := consumer.receive(BATCH, timeout_ms=0):
            total += len(messages)
    return total


WAYS = {"read": read, "receive": receive}


@contextmanager
def profiled(file: str | None) -> Iterator[None]:
    """Meanwhile note which functions of this thread take the time."""
    if file is None:
        yield
        return
    with cProfile.Profile(time.thread_time) as profile:
        yield
    pstats.Stats(profile).dump_stats(file)


def child(root: Path, way: str, topic: str, messages: int, profile: str | None) -> None:
    """Print how many seconds one way takes: of the clock, and of processors."""
    with txnlog.open(root, namespace="bench") as ns:
        WAYS[way](ns, "one")
        started = time.perf_counter(), time.process_time()
        with profiled(profile):
            found = WAYS[way](ns, topic)
        print(time.perf_counter() - started[0], time.process_time() - started[1])
    assert found == messages, f"{found} messages of {messages}"


def seconds(root: Path, way: str, topic: str, messages: int, profile: Path | None = None) -> tuple[float, float]:
    """What one way takes in a fresh process: by the clock, and of processors."""
    arguments = ["--child", str(root), way, topic, str(messages), *([str(profile)] if profile else [])]
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.small_reads", *arguments], stdout=subprocess.PIPE, text=True, check=True
    )
    by_clock, of_processors = map(float, done.stdout.split())
    return by_clock, of_processors


# --- the figures ------------------------------------------------------------------------------------------------------


def measure(root: Path, name: str, case: Case, turns: int) -> list[Row]:
    """Each way of a case, many files and few in turns."""
    prepare(root, case)
    rows: list[Row] = []
    for way, least in case.least.items():
        pairs = [[seconds(root, way, topic, case.total) for topic in ("many", "few")] for _ in range(turns)]
        rate, few = (
            case.total / statistics.median(item[0] for item in several) for several in zip(*pairs, strict=True)
        )
        ratio = statistics.median(many[0] / few[0] for many, few in pairs)
        file_ms = statistics.median(many[1] for many, _ in pairs) / case.transactions * 1e3
        files = f"{case.total:,} messages in {case.transactions:,} files, {way}"
        if case.most_ratio is None:
            figure = f"{rate:,.0f} messages/s ({few:,.0f} in {case.few} files; {file_ms:.2f} ms of processors a file)"
            rows.append(Row(f"{name}: {files}", figure, f"at least {least:,}", rate >= least))
        else:
            figure = f"{ratio:.1f} times as long as in {case.few} files ({rate:,.0f} messages/s and {few:,.0f})"
            reached = ratio <= case.most_ratio
            rows.append(Row(f"{name}: {files}", figure, f"at most {case.most_ratio:.0f} times", reached))
    return rows


def main() -> None:
    if sys.argv[1:2] == ["--child"]:
        root, way, topic, messages, *profile = sys.argv[2:]
        child(Path(root), way, topic, int(messages), profile[0] if profile else None)
        return
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("cases", nargs="*", metavar="case", help=f"of {', '.join(CASES)}; all if none is named")
    parser.add_argument("--turns", type=int, default=5, help="pairs of runs")
    parser.add_argument("--data", type=Path, help="a folder in which what is prepared stays, for the next run")
    parser.add_argument("--profile", type=Path, help="a folder for one profile more of each way (pstats)")
    arguments = parser.parse_args()
    rows: list[Row] = []
    with scratch() as folder:
        data = arguments.data or folder
        data.mkdir(parents=True, exist_ok=True)
        for name in arguments.cases or CASES:
            rows += measure(data / name, name, CASES[name], arguments.turns)
            for way in CASES[name].least if arguments.profile else ():
                arguments.profile.mkdir(parents=True, exist_ok=True)
                seconds(data / name, way, "many", CASES[name].total, arguments.profile / f"{name}-{way}.pstats")
    report(rows)


if __name__ == "__main__":
    main()
