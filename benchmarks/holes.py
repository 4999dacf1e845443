"""What holes cost who reads: a topic of which rows were erased, next to one that never had more than the rest.

Of one topic every other row was erased, so that there are as many holes as rows; of the next one a tenth, here and
there; of the last one each customer but the newest row (key compaction), which leaves few rows and long holes.

Both have the same rows in as many files. They are read as a table, received by a new subscription, a thousand messages
at a time, and, with ``--spark``, scanned by Spark with all metadata. In turns (A B A B), each with a handle of its own.

``--beside CHECKOUT`` reads a topic without holes, in a namespace that has not enabled them, by the code of another
checkout and by this one, in turns, in a process each: what a topic pays that has none.

    python -m benchmarks.holes [--rows 1000000] [--turns 5] [--spark] [--beside CHECKOUT]
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import click
import pyarrow.compute as pc

import txnlog
from benchmarks import optimize
from benchmarks.report import Row, report, scratch

FILES = 20
MOST = 1.10
BATCH = 1_000


CASES: dict[str, Callable[[Any, str], object]] = {
    "half": lambda ns, topic: ns.erase(topic, pc.bit_wise_and(pc.field("id"), 1) == 0),
    "tenth": lambda ns, topic: ns.erase(topic, pc.field("quantity") <= 10),
    "compacted": lambda ns, topic: ns.compact(topic),
}


def fill(root: Path, rows: int) -> dict[str, int]:
    """Two topics with the same rows for each case: one with holes, and one without. Returns how many rows."""
    optimize.ROWS = rows // FILES
    counts: dict[str, int] = {}
    with txnlog.open(root, namespace="bench", create=True) as ns:
        ns.enable("holes")
        for case, remove in CASES.items():
            ns.create_topic(case, optimize.SCHEMA, key="customer", cleanup_policy="compact")
            ns.create_topic(f"{case}-dense", optimize.SCHEMA)
            for number in range(FILES):
                ns.produce(case, optimize.rows(number))
            remove(ns, case)
            for segment in ns.snapshot().plan(case).segments:
                (place,) = segment.slices
                assert place.offset is not None, "its rows are committed"
                span = {0: (place.offset, place.offset + place.width)}
                ns.produce(f"{case}-dense", ns.snapshot().read(case, offsets=span))
            files = {len(ns.snapshot().plan(topic).segments) for topic in (case, f"{case}-dense")}
            assert len(files) == 1, files
            assert ns.snapshot().read(case).equals(ns.snapshot().read(f"{case}-dense"))
            counts[case] = ns.snapshot().plan(case).rows
    return counts


def plain(root: Path, rows: int) -> None:
    """A topic without holes, in a namespace without the feature."""
    optimize.ROWS = rows // FILES
    with txnlog.open(root, namespace="bench", create=True) as ns:
        ns.create_topic("dense", optimize.SCHEMA)
        for number in range(FILES):
            ns.produce("dense", optimize.rows(number))


def read(ns: Any, topic: str) -> int:
    """All rows as one table."""
    return int(ns.snapshot().read(topic).num_rows)


def receive(ns: Any, topic: str) -> int:
    """All messages by a new subscription."""
    total = 0
    with ns.consumer(topic, subscription=f"sub-{time.time_ns()}") as consumer:
        while messages := consumer.receive(BATCH, timeout_ms=0):
            total += len(messages)
    return total


WAYS: dict[str, Callable[[Any, str], int]] = {"read": read, "receive": receive}


def took(root: Path, way: str, topic: str) -> tuple[float, float]:
    """What reading a topic takes, by the clock and of processors."""
    with txnlog.open(root, namespace="bench") as ns:
        ns.topic(topic)
        begun = time.perf_counter(), time.process_time()
        WAYS[way](ns, topic)
        return time.perf_counter() - begun[0], time.process_time() - begun[1]


def compared(what: str, pairs: list[tuple[tuple[float, float], tuple[float, float]]]) -> Row:
    """How much longer the first ones take: of processors, which decides, and by the clock."""
    by_clock, of_processors = ([a[place] / b[place] for a, b in pairs] for place in (0, 1))
    ratio = statistics.median(of_processors)
    ours, theirs = (statistics.median(pair[side][1] for pair in pairs) for side in (0, 1))
    figure = (
        f"{ratio:.2f} of processors ({min(of_processors):.2f} to {max(of_processors):.2f}; {ours * 1e3:.0f} ms and "
        f"{theirs * 1e3:.0f} ms), {statistics.median(by_clock):.2f} by the clock"
    )
    return Row(what, figure, f"at most {MOST:.2f}", ratio <= MOST)


def with_and_without(root: Path, rows: int, counts: dict[str, int], turns: int) -> Iterator[Row]:
    """The two topics of each case."""
    for case, left in counts.items():
        for way in WAYS:
            pairs = [(took(root, way, case), took(root, way, f"{case}-dense")) for _ in range(turns + 1)][1:]
            yield compared(
                f"{case}: {way} the {left:,} of {rows:,} rows that are left, against them without holes", pairs
            )


def scanned(root: Path, rows: int, turns: int) -> Iterator[Row]:
    """The same by Spark; by the clock, since another process does it."""
    import spark_ext  # noqa: PLC0415 - the others need no Spark
    from benchmarks.spark_pairs import Pair, all_of, start_spark  # noqa: PLC0415

    spark = start_spark()

    def scan(topic: str) -> None:
        all_of(spark_ext.read_topic(spark, f"{root}/bench/{topic}", include_metadata=True))

    what = f"half: Spark scans {rows // 2:,} of {rows:,} rows, with all metadata, against them without holes"
    yield Pair(what, MOST, lambda: scan("half"), lambda: scan("half-dense")).measured(turns)
    spark.stop()


def beside(root: Path, rows: int, turns: int, checkout: str) -> Iterator[Row]:
    """The code of two checkouts."""
    here = str(Path(__file__).parents[1])

    def child(place: str, way: str) -> tuple[float, float]:
        command = [sys.executable, __file__, "--child", way, "--folder", str(root)]
        done = subprocess.run(
            command, stdout=subprocess.PIPE, text=True, check=True, env={**os.environ, "PYTHONPATH": place}, cwd=place
        )
        by_clock, of_processors = map(float, done.stdout.split())
        return by_clock, of_processors

    for way in WAYS:
        pairs = [(child(here, way), child(checkout, way)) for _ in range(turns + 1)][1:]
        yield compared(f"{way} {rows:,} rows of a topic without holes, against the other checkout", pairs)


@click.command()
@click.option("--rows", default=1_000_000, show_default=True, help="Rows before some go.")
@click.option("--turns", default=5, show_default=True, help="Pairs of runs.")
@click.option("--spark", is_flag=True, help="By Spark, too.")
@click.option("--beside", "checkout", help="The folder of another checkout, to compare with.")
@click.option("--child", hidden=True)
@click.option("--folder", type=click.Path(path_type=Path), hidden=True)
def main(rows: int, turns: int, spark: bool, checkout: str | None, child: str | None, folder: Path | None) -> None:
    """Measure what holes cost."""
    if child is not None and folder is not None:
        took(folder, child, "dense")
        print(*took(folder, child, "dense"))
        return
    found: list[Row] = []
    with scratch() as place:
        root = (place / "lake").resolve()
        if checkout is not None:
            plain(root, rows)
            found += beside(root, rows, turns, checkout)
        else:
            found += with_and_without(root, rows, fill(root, rows), turns)
            found += scanned(root, rows, turns) if spark else ()
    report(found)


if __name__ == "__main__":
    main()
