"""How many small transactions a second one process commits, every write fsynced.

A transaction produces one 100-byte message to each of three partitions. Measured: one after the other; with 64 in
flight; and beside the latter, in turns (A B A B), a bare loop that only writes the same Parquet and JSON bytes with
fsync, and one that leaves them as a power cut must: every segment in its own folder, and the folders fsynced too.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import time
from collections import deque
from concurrent.futures import Future
from pathlib import Path

import msgspec

import txnlog
from benchmarks.report import Row, report, scratch
from txnlog.api.namespace import Namespace
from txnlog.format.keys import entry_key
from txnlog.results import Committed

IN_FLIGHT = 64
VALUE = b"x" * 100


def _work(txn: txnlog.Transaction) -> None:
    for partition in range(3):
        txn.produce("events", [{"value": VALUE}], partition=partition)


def one_after_the_other(ns: Namespace, count: int) -> float:
    """Transactions a second."""
    started = time.perf_counter()
    for _ in range(count):
        with ns.begin() as txn:
            _work(txn)
    return count / (time.perf_counter() - started)


def in_flight(ns: Namespace, count: int) -> float:
    """Transactions a second with IN_FLIGHT of them under way."""
    waiting: deque[Future[Committed]] = deque()
    started = time.perf_counter()
    for _ in range(count):
        txn = ns.begin()
        _work(txn)
        waiting.append(txn.commit_async())
        if len(waiting) >= IN_FLIGHT:
            waiting.popleft().result()
    for future in waiting:
        future.result()
    return count / (time.perf_counter() - started)


def bare_loop(folder: Path, files: list[bytes]) -> float:
    """Seconds to write the same bytes, each file with fsync, and nothing else."""
    folder.mkdir()
    started = time.perf_counter()
    for number, data in enumerate(files):
        _write(folder / str(number), data)
    return time.perf_counter() - started


def power_cut_loop(folder: Path, files: list[bytes]) -> float:
    """Seconds to write the same bytes so that they and their names survive: segments have folders of their own."""
    folder.mkdir()
    started = time.perf_counter()
    for number, data in enumerate(files):
        if data[:4] == b"PAR1":
            own = folder / f"_{number}"
            own.mkdir()
            _sync(folder)
            _write(own / str(number), data)
            _sync(own)
        else:
            _write(folder / str(number), data)
            _sync(folder)
    return time.perf_counter() - started


def _write(path: Path, data: bytes) -> None:
    descriptor = os.open(path, os.O_CREAT | os.O_WRONLY | os.O_EXCL, 0o644)
    os.write(descriptor, data)
    os.fsync(descriptor)
    os.close(descriptor)


def _sync(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    os.fsync(descriptor)
    os.close(descriptor)


def written_since(root: Path, version: int, newest: int) -> list[bytes]:
    """The bytes of the entries after a version and of the segments they name, in the order they were written."""
    files: list[bytes] = []
    segments = {path.parent.name: path for path in (root / "events").rglob("*.parquet")}
    for number in range(version + 1, newest + 1):
        data = (root / entry_key(number)).read_bytes()
        for line in data.splitlines()[1:]:
            action = msgspec.json.decode(line)
            if action["action"] == "segment":
                files.append(segments[f"_txnlog_segment={action['segment']}"].read_bytes())
        files.append(data)
    return files


def main() -> list[Row]:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=20)
    arguments = parser.parse_args()
    with scratch() as folder, txnlog.open(folder / "root", namespace="bench", create=True) as ns:
        ns.create_topic("events", partitions=3)
        one_after_the_other(ns, 50)
        in_flight(ns, 2_000)
        sequential = statistics.median(one_after_the_other(ns, 300) for _ in range(5))
        rates: list[float] = []
        ratios: list[float] = []
        durable_ratios: list[float] = []
        rounds = max(3, int(arguments.seconds / 2))
        total = 50 + 2_000 + 5 * 300
        for number in range(rounds):
            before = ns._connection.follower.version
            rate = in_flight(ns, 10_000)
            total += 10_000
            files = written_since(folder / "root" / "bench", before, ns._connection.follower.version)
            rates.append(rate)
            ratios.append(rate * bare_loop(folder / f"bare-{number}", files) / 10_000)
            durable_ratios.append(rate * power_cut_loop(folder / f"durable-{number}", files) / 10_000)
        code = "import sys, txnlog; print(txnlog.open(sys.argv[1], mode='r').snapshot().read('events').num_rows)"
        counted = subprocess.run(
            [sys.executable, "-c", code, str(folder / "root" / "bench")], capture_output=True, text=True, check=True
        )
        rows = int(counted.stdout)
        assert rows == 3 * total, f"{rows} rows were read back of {3 * total}"
    return [
        Row("small transactions, one after the other", f"{sequential:,.0f}/s", "at least 250/s", sequential >= 250),
        Row(
            f"small transactions, {IN_FLIGHT} in flight",
            f"{statistics.median(rates):,.0f}/s",
            "at least 10,000/s",
            statistics.median(rates) >= 10_000,
        ),
        Row(
            "the same against a bare loop that writes the same bytes with fsync",
            f"{statistics.median(ratios):.2f}",
            "at least 0.3",
            statistics.median(ratios) >= 0.3,
        ),
        Row(
            "the same against a loop that also makes the segments' folders and fsyncs folders",
            f"{statistics.median(durable_ratios):.2f}",
            "reported",
            True,
        ),
        Row("rows read back by a fresh process", f"{rows:,} of {3 * total:,}", "all", rows == 3 * total),
    ]


if __name__ == "__main__":
    report(main())
