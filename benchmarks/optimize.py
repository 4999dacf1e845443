"""``optimize`` of 2,000 small segments against PyArrow that reads the same files and writes the same rows, in turns.

PyArrow reads with all threads, into as many files as optimize makes, with its own defaults, and each is fsynced: it has
no log, no checksum of a file to verify or to make, and no metadata to store. ``python -m benchmarks.optimize 100``
takes fewer.
"""

from __future__ import annotations

import os
import shutil
import statistics
import sys
import time
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq

import txnlog
from benchmarks.report import Row, report, scratch

SEGMENTS = 2_000
ROWS = 4_000
ROUNDS = 3
SCHEMA = pa.schema(
    [
        ("id", pa.int64()),
        ("customer", pa.string()),
        ("carrier", pa.string()),
        ("quantity", pa.int32()),
        ("amount", pa.float64()),
        ("at", pa.timestamp("us", "UTC")),
    ]
)


def rows(number: int) -> pa.Table:
    """The rows of one commit."""
    chance = np.random.default_rng(number)
    first = number * ROWS
    return pa.table(
        {
            "id": np.arange(first, first + ROWS),
            "customer": [f"C-{value:06}" for value in chance.integers(0, 50_000, ROWS)],
            "carrier": pa.array(np.array(["AA", "B6", "DL", "EV", "UA"])[chance.integers(0, 5, ROWS)]),
            "quantity": pa.array(chance.integers(1, 100, ROWS), pa.int32()),
            "amount": chance.gamma(2.0, 50.0, ROWS),
            "at": pa.array(1_767_225_600_000_000 + np.arange(first, first + ROWS) * 1_000, pa.timestamp("us", "UTC")),
        },
        SCHEMA,
    )


def optimized(lake: Path) -> tuple[float, int]:
    """Seconds of an optimize, and the files that came out."""
    with txnlog.open(lake, namespace="bench") as ns:
        started = time.perf_counter()
        done = ns.optimize("orders")
        seconds = time.perf_counter() - started
        assert done.finished, done
        assert sum(segment.rows for segment in ns.snapshot().plan("orders").segments) == done.merged_segments * ROWS
    return seconds, done.written_segments


def written(files: list[str], folder: Path, count: int) -> float:
    """Seconds of PyArrow for the same files."""
    folder.mkdir()
    started = time.perf_counter()
    step = -(-len(files) // count)
    for first in range(0, len(files), step):
        path = folder / f"{first}.parquet"
        pq.write_table(ds.dataset(files[first : first + step]).to_table(), path)
        descriptor = os.open(path, os.O_RDONLY)
        os.fsync(descriptor)
        os.close(descriptor)
    return time.perf_counter() - started


def main(segments: int = SEGMENTS) -> list[Row]:
    ours: list[float] = []
    theirs: list[float] = []
    with scratch() as folder:
        lake = folder / "lake"
        with txnlog.open(lake, namespace="bench", create=True) as ns:
            ns.create_topic("orders", SCHEMA, merge="manual")
            for number in range(segments):
                ns.produce("orders", rows(number))
            plan = ns.snapshot().plan("orders").segments
            files = [ns._connection.store.url(segment.key) for segment in plan]
        size_bytes = sum(segment.size_bytes for segment in plan)
        for number in range(ROUNDS + 1):
            copy = folder / f"copy-{number}"
            shutil.copytree(lake, copy)
            seconds, count = optimized(copy)
            other = written(files, folder / f"out-{number}", count)
            if number:  # the first one warms both up
                ours.append(seconds)
                theirs.append(other)
            shutil.rmtree(copy)
            shutil.rmtree(folder / f"out-{number}")
    ratio = statistics.median(b / a for a, b in zip(ours, theirs, strict=True))
    speed = size_bytes / statistics.median(ours) / 1e6
    return [
        Row(
            f"`optimize` of {segments:,} segments, {size_bytes / 1e6:.0f} MB, against PyArrow reading and writing them",
            f"{ratio:.2f} of its speed ({speed:.0f} MB/s; {statistics.median(ours):.2f} s and "
            f"{statistics.median(theirs):.2f} s)",
            "at least 0.5",
            ratio >= 0.5,
        )
    ]


if __name__ == "__main__":
    report(main(*map(int, sys.argv[1:])))
