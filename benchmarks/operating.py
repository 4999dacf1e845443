"""The speed of operating a namespace: compaction, erasure, retention, fsck, backup and metrics.

- Key compaction and erasure, against PyArrow that reads the same files and writes what comes out of them: the same
  columns, rows and number of files, by the same compression, each file fsynced. It knows beforehand which rows stay,
  and has no log, no checksum to verify or to make, and no statistics to store.
- Retention that deletes all messages of very many segments: what it appends, and how long that takes; then the
  maintenance that takes the files off the log and deletes them.
- ``fsck``: ``quick`` of very many segments, and ``full`` against reading the same files with as many threads.
- A first backup, against copying the same files with as many threads; each is fsynced, and so are the folders.
- ``metrics`` of very many topics, with a subscription each.

Whatever is compared runs in turns (A B A B), and the clock decides. Of seconds those of processors decide, which are no
more on a busy machine; none of these works waits for a disk that it keeps busy.

    python -m benchmarks.operating [--quick] [UNIT ...]
"""

from __future__ import annotations

import os
import shutil
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any, Final, NamedTuple

import click
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
import pyarrow.parquet as pq

import txnlog
from benchmarks import by_hand, optimize
from benchmarks.report import Row, report, scratch
from txnlog.api.namespace import Namespace
from txnlog.common.limits import PARALLEL_REQUESTS
from txnlog.maintenance import retention

TURNS: Final = 3
SPEED: Final = 0.5
OF_THE_DISK: Final = 0.7


class Size(NamedTuple):
    """How much is measured.

    Attributes:
        files: of the topic that is compacted, erased, checked and copied.
        rows: in each of them.
        old: segments that retention deletes.
        listed: segments that are checked by listing alone.
        topics: that metrics are of.
    """

    files: int
    rows: int
    old: int
    listed: int
    topics: int


FULL: Final = Size(20, 100_000, 10_000, 100_000, 1_000)
QUICK: Final = Size(10, 50_000, 1_000, 5_000, 200)


class Took(NamedTuple):
    """What something took: seconds of the clock, and of processors."""

    clock: float
    computing: float


def timed(work: Callable[[], object]) -> Took:
    """Do it, and say what it took."""
    used, begun = time.process_time(), time.perf_counter()
    work()
    return Took(time.perf_counter() - begun, time.process_time() - used)


def middle(several: Sequence[Took]) -> Took:
    """The median of each."""
    return Took(*(statistics.median(item) for item in zip(*several, strict=True)))


def spread(several: Sequence[float]) -> str:
    """From the least to the greatest."""
    return f"{min(several):.2f} to {max(several):.2f}"


def compared(what: str, goal: float, ours: Sequence[Took], theirs: Sequence[Took], size_bytes: int) -> Row:
    """How fast the first ones are, as a part of the others' speed; by the clock decides."""
    ratios = [b.clock / a.clock for a, b in zip(ours, theirs, strict=True)]
    mine, other = middle(ours), middle(theirs)
    ratio = statistics.median(ratios)
    figure = (
        f"{ratio:.2f} of its speed ({spread(ratios)}); {size_bytes / mine.clock / 1e6:.0f} MB/s; "
        f"{mine.clock:.2f} s and {other.clock:.2f} s, of processors {mine.computing:.2f} s and {other.computing:.2f} s"
    )
    return Row(what, figure, f"at least {goal}", ratio >= goal)


# --- compaction and erasure -------------------------------------------------------------------------------------------


def orders(root: Path, size: Size) -> int:
    """A topic of orders by customer, in a file for each commit; returns the bytes of its files."""
    with txnlog.open(root, namespace="bench", create=True) as ns:
        ns.enable("holes")
        ns.create_topic("orders", optimize.SCHEMA, key="customer", cleanup_policy="compact", merge="manual")
        for number in range(size.files):
            ns.produce("orders", rows(number, size.rows))
        return sum(segment.size_bytes for segment in ns.snapshot().plan("orders").segments)


def rows(number: int, count: int) -> pa.Table:
    """The rows of one commit: of 50,000 customers, and one in a hundred is C-000000."""
    chance = np.random.default_rng(number)
    customers = chance.integers(1, 50_000, count)
    customers[chance.random(count) < 0.01] = 0
    first = number * count
    return pa.table(
        {
            "id": np.arange(first, first + count),
            "customer": [f"C-{value:06}" for value in customers],
            "carrier": pa.array(np.array(["AA", "B6", "DL", "EV", "UA"])[chance.integers(0, 5, count)]),
            "quantity": pa.array(chance.integers(1, 100, count), pa.int32()),
            "amount": chance.gamma(2.0, 50.0, count),
            "at": pa.array(1_767_225_600_000_000 + np.arange(first, first + count) * 1_000, pa.timestamp("us", "UTC")),
        },
        optimize.SCHEMA,
    )


def _noted(found: list[tuple[int, int]], call: Callable[[Namespace], tuple[int, int]], ns: Namespace) -> None:
    found.append(call(ns))


def files_of(ns: Namespace) -> list[str]:
    """The files that the newest version of the topic shows."""
    return [ns._connection.store.url(segment.key) for segment in ns.snapshot().plan("orders").segments]


def written(files: Sequence[str], tables: Sequence[pa.Table], folder: Path) -> None:
    """What PyArrow does: read all, write what stays."""
    folder.mkdir()
    step = -(-len(files) // len(tables))
    for place, table in enumerate(tables):
        if chosen := files[place * step : (place + 1) * step]:
            ds.dataset(chosen).to_table()
        path = folder / f"{place}.parquet"
        pq.write_table(table, path, compression="zstd")
        descriptor = os.open(path, os.O_RDONLY)
        os.fsync(descriptor)
        os.close(descriptor)


def rewriting(folder: Path, size: Size) -> Iterator[Row]:
    """Compaction and erasure."""
    root = folder / "rewriting"
    size_bytes = orders(root, size)

    def compact(ns: Namespace) -> tuple[int, int]:
        done = ns.compact("orders")
        assert done.finished, done
        return done.rewritten_segments, done.removed_messages

    def erase(ns: Namespace) -> tuple[int, int]:
        done = ns.erase("orders", pc.field("customer") == "C-000000")
        return done.rewritten_segments, done.erased_messages

    for name, call in (("compact", compact), ("erase", erase)):
        ours: list[Took] = []
        theirs: list[Took] = []
        what = ""
        for turn in range(TURNS + 1):
            copy, out = folder / f"{name}-{turn}", folder / f"{name}-{turn}-out"
            shutil.copytree(root, copy)
            found: list[tuple[int, int]] = []
            with txnlog.open(copy, namespace="bench") as ns:
                before = files_of(ns)
                took = timed(partial(_noted, found, call, ns))
                after = [file for file in files_of(ns) if file not in before]
                tables = [pq.read_table(file, partitioning=None) for file in after]
            (segments, gone) = found[0]
            assert segments == len(before) == size.files, "every file loses rows"
            assert sum(map(len, tables)) == size.files * size.rows - gone
            other = timed(partial(written, before, tables, out))
            if turn:  # the first one warms both up
                ours.append(took)
                theirs.append(other)
            what = (
                f"`{name}` of {size.files * size.rows:,} messages in {size.files} files, {size_bytes / 1e6:.0f} MB, "
                f"of which {gone:,} go, against PyArrow reading and writing the same"
            )
            shutil.rmtree(copy)
            shutil.rmtree(out)
        yield compared(what, SPEED, ours, theirs, size_bytes)
    shutil.rmtree(root)


# --- retention --------------------------------------------------------------------------------------------------------


def deleting(folder: Path, size: Size) -> Iterator[Row]:
    """Retention of old segments."""
    template = folder / "retention"
    by_hand.build(
        template / "bench", 1, size.old, per_entry=1, step_ms=1_000, properties={"txnlog.retention_ms": "1000"}
    )
    several: list[Took] = []
    entries: set[int] = set()
    rest: list[Took] = []
    for turn in range(TURNS):
        copy = folder / f"retention-{turn}"
        shutil.copytree(template, copy)
        with txnlog.open(copy, namespace="bench") as ns:
            ns._connection.appender.take_numbers()  # the entry by which a handle reserves them is not retention's
            before = ns.snapshot().version
            several.append(timed(lambda: retention.retain(ns._connection)))
            entries.add(ns.snapshot().version - before)
            assert ns.snapshot().read(by_hand.folder_of(0)).num_rows == 0, "all of it is gone"
            rest.append(timed(ns.maintain))
        shutil.rmtree(copy)
    took = middle(several)
    yield Row(
        f"retention deletes the messages of {size.old:,} segments",
        f"{max(entries)} entry, {took.clock:.2f} s ({spread([item.clock for item in several])}), of processors "
        f"{took.computing:.2f} s",
        "one entry, under 2 s",
        entries == {1} and took.computing < 2,
    )
    took = middle(rest)
    yield Row(
        "the maintenance behind it, which takes the files off the log, and keeps them for older versions",
        f"{took.clock:.2f} s, of processors {took.computing:.2f} s",
        "reported",
        True,
    )
    shutil.rmtree(template)


# --- fsck and backup --------------------------------------------------------------------------------------------------


def listed(folder: Path, size: Size) -> Iterator[Row]:
    """The quick check of very many segments."""
    root = folder / "listed"
    by_hand.build(root / "bench", 1, size.listed)
    with txnlog.open(root, namespace="bench", mode="r") as ns:
        several = [timed(lambda: _whole(ns, "quick")) for _ in range(TURNS)]
    listing = [timed(lambda: _listed(root / "bench" / by_hand.folder_of(0))) for _ in range(TURNS)]
    took, other = middle(several), middle(listing)
    goal = 10 * size.listed / FULL.listed
    yield Row(
        f"`fsck quick` of {size.listed:,} segments",
        f"{took.clock:.2f} s ({spread([item.clock for item in several])}), of processors {took.computing:.2f} s; "
        f"`os.walk` with the sizes alone takes {other.clock:.2f} s, of processors {other.computing:.2f} s",
        f"under {goal:.1f} s",
        took.computing < goal,
    )
    shutil.rmtree(root)


def _whole(ns: Namespace, level: Any) -> None:
    found = ns.fsck(level)
    assert not [item for item in found.findings if item.severity != "note"], found.findings[:3]


def _listed(folder: Path) -> None:
    for path, _, names in os.walk(folder):
        for name in names:
            os.stat(os.path.join(path, name))


def reading(folder: Path, size: Size) -> Iterator[Row]:
    """The full check, and the backup, of files as they are written."""
    root = folder / "reading"
    orders(root, size._replace(rows=5 * size.rows))
    every = [path for path in (root / "bench").rglob("*") if path.is_file()]
    size_bytes = sum(path.stat().st_size for path in every)
    ours: list[Took] = []
    theirs: list[Took] = []
    with txnlog.open(root, namespace="bench", mode="r") as ns:
        for turn in range(TURNS + 1):
            forget(every)
            took = timed(lambda: _whole(ns, "full"))
            forget(every)
            other = timed(lambda: _read(every))
            if turn:
                ours.append(took)
                theirs.append(other)
    what = f"{len(every)} files, {size_bytes / 1e6:.0f} MB, from the disk"
    yield compared(
        f"`fsck full` of {what}, against reading them with {PARALLEL_REQUESTS} threads",
        OF_THE_DISK,
        ours,
        theirs,
        size_bytes,
    )
    ours, theirs = [], []
    for turn in range(TURNS + 1):
        backup, copy = folder / f"backup-{turn}", folder / f"copy-{turn}"
        forget(every)
        took = timed(partial(txnlog.backup, root / "bench", backup))
        forget(every)
        other = timed(partial(_copy, root / "bench", every, copy))
        if turn:
            ours.append(took)
            theirs.append(other)
        shutil.rmtree(backup)
        shutil.rmtree(copy)
    yield compared(
        f"a first backup of {what}, against copying them with {PARALLEL_REQUESTS} threads",
        OF_THE_DISK,
        ours,
        theirs,
        size_bytes,
    )
    shutil.rmtree(root)


def forget(files: Sequence[Path]) -> None:
    """Have the system drop files from its memory: they are read from the disk the next time."""
    for file in files:
        with open(file, "rb") as stored:
            os.fsync(stored.fileno())
            os.posix_fadvise(stored.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def _read(files: Sequence[Path]) -> None:
    with ThreadPoolExecutor(PARALLEL_REQUESTS) as pool:
        list(pool.map(lambda path: len(path.read_bytes()), files))


def _copy(root: Path, files: Sequence[Path], target: Path) -> None:
    """Copy files, each on disk with its folder when it is done."""

    def one(file: Path) -> None:
        place = target / file.relative_to(root)
        place.parent.mkdir(parents=True, exist_ok=True)
        with open(place, "xb", buffering=0) as stored:
            stored.write(file.read_bytes())
            os.fsync(stored.fileno())
        for path in (place.parent, place.parent.parent):
            descriptor = os.open(path, os.O_RDONLY)
            os.fsync(descriptor)
            os.close(descriptor)

    with ThreadPoolExecutor(PARALLEL_REQUESTS) as pool:
        list(pool.map(one, files))


# --- metrics ----------------------------------------------------------------------------------------------------------


def metrics(folder: Path, size: Size) -> Iterator[Row]:
    """The metrics of very many topics."""
    root = folder / "metrics"
    by_hand.build(root / "bench", size.topics, 20, per_entry=20, with_files=False, subscriptions=True)
    first: list[Took] = []
    later: list[Took] = []
    for _ in range(TURNS):
        with txnlog.open(root, namespace="bench", mode="r") as ns:
            first.append(timed(ns.metrics))
            later += [timed(ns.metrics) for _ in range(TURNS)]
    goal = 0.2 * size.topics / FULL.topics
    for text, several in (("the first call of a handle", first), ("each further one", later)):
        took = middle(several)
        yield Row(
            f"`metrics` of {size.topics:,} topics of 20 segments, with a subscription each, {text}",
            f"{took.clock:.3f} s ({spread([item.clock for item in several])}), of processors {took.computing:.3f} s",
            f"under {goal:.2f} s",
            took.computing < goal,
        )
    shutil.rmtree(root)


UNITS: Final[dict[str, Callable[[Path, Size], Iterator[Row]]]] = {
    "rewriting": rewriting,
    "retention": deleting,
    "listing": listed,
    "reading": reading,
    "metrics": metrics,
}


@click.command()
@click.argument("units", nargs=-1, type=click.Choice(list(UNITS)))
@click.option("--quick", is_flag=True, help="Less of everything, in seconds.")
def main(units: tuple[str, ...], quick: bool) -> None:
    """Measure these UNITS, by default all."""
    found: list[Row] = []
    for name in units or UNITS:
        with scratch() as folder:
            found += UNITS[name](folder, QUICK if quick else FULL)
    report(found)


if __name__ == "__main__":
    main()
