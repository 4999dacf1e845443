"""Topics as Delta tables: publishing beside commits, reading them, and opening one that has many versions.

- A writer commits 20 transactions a second to one topic that publishes itself. Measured: how far the table is behind
  when the last commit returned, and how long it takes until it shows everything; commits against those of a writer
  whose topic is not published, in turns.
- Spark reads a published topic, and plain Parquet of the same rows; and, since most of what lies between those two is
  the price of Delta itself, a table of the same rows that Spark's Delta wrote.
- deltalake and Spark open a table with many published versions, and one with few, both of the same number of files.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import deltalake
import numpy as np
import pyarrow as pa

import catalog as txn_catalog
import txnlog
from benchmarks.report import Row, report, scratch
from benchmarks.spark_pairs import Pair, all_of, start_spark
from txnlog.api.namespace import Namespace

A_SECOND = 20
MOST_BEHIND_MS = 1_000
PAIRS = 7
SCHEMA = pa.schema([("id", pa.int64()), ("customer", pa.string()), ("amount", pa.float64()), ("day", pa.int32())])


def rows(count: int) -> pa.Table:
    """Rows of a common kind."""
    random = np.random.default_rng(1)
    customers = [f"customer-{number}" for number in random.integers(0, 10_000, count)]
    return pa.table(
        [np.arange(count), customers, random.random(count), random.integers(0, 365, count).astype("int32")],
        schema=SCHEMA,
    )


# --- beside commits ---------------------------------------------------------------------------------------------------


def commits(folder: Path, for_s: float) -> list[Row]:
    """Commits with and without publication, in turns, at a pace."""
    some = rows(10)
    times: dict[str, list[float]] = {"auto": [], "off": []}
    handles: dict[str, Namespace] = {}
    for mode in times:
        handles[mode] = txnlog.open(folder / mode, namespace="bench", create=True)
        handles[mode].create_topic("events", SCHEMA, delta=mode)
        handles[mode].produce("events", some)
    count = int(for_s * A_SECOND)
    began = time.perf_counter()
    for number in range(count):
        for place, mode in enumerate(times):
            # Half of a turn apart: what one of them publishes in the background is over when the other commits.
            time.sleep(max(0.0, began + (number + place / 2) / A_SECOND - time.perf_counter()))
            started = time.perf_counter()
            txn = handles[mode].begin()
            txn.produce("events", some)
            txn.commit()
            times[mode].append(time.perf_counter() - started)
    ended = time.perf_counter()
    newest = handles["auto"].snapshot().version
    behind = newest - _shown(folder / "auto")
    while _shown(folder / "auto") < newest and time.perf_counter() - ended < 60:
        time.sleep(0.005)
    late_ms = (time.perf_counter() - ended) * 1e3
    versions = deltalake.DeltaTable(str(folder / "auto/bench/events")).version()
    for handle in handles.values():
        handle.close()
    on, off = (statistics.median(times[mode][A_SECOND:]) * 1e3 for mode in ("auto", "off"))
    return [
        Row(
            f"{A_SECOND} commits a second for {for_s:.0f} s, published: when all is shown after the last commit",
            f"{late_ms:.0f} ms ({behind} entries behind at once, {versions + 1:,} versions of {count + 2:,} entries)",
            f"at most {MOST_BEHIND_MS:,} ms",
            late_ms <= MOST_BEHIND_MS,
        ),
        Row(
            "p50 of a commit, with publication over without",
            f"{on / off:.2f} ({on:.2f} ms, {off:.2f} ms)",
            "at most 1.05",
            on / off <= 1.05,
        ),
    ]


def _shown(root: Path) -> int:
    """The version of the namespace that the newest version of the table shows."""
    commits_there = sorted((root / "bench/events/_delta_log").glob("*.json"))
    if not commits_there:
        return -1
    with commits_there[-1].open(encoding="utf-8") as file:
        return int(json.loads(file.readline())["commitInfo"]["txnlog"]["version"])


# --- reading ----------------------------------------------------------------------------------------------------------


def reads(folder: Path, spark: Any, count: int, turns: int) -> list[Row]:
    """A published topic against plain Parquet and a Delta table of Spark's, of the same rows in as many files."""
    root = folder / "reads"
    with txnlog.open(root, namespace="bench", create=True) as ns:
        ns.create_topic("events", SCHEMA)
        with ns.begin() as txn:
            txn.produce("events", rows(count))
        segments = [item.key for item in ns.snapshot().plan("events").segments]
    with txn_catalog.open(root) as cat:
        cat.publish("bench", "events")
    plain = folder / "plain"
    plain.mkdir()
    for number, key in enumerate(segments):
        (plain / f"{number}.parquet").write_bytes((root / "bench" / key).read_bytes())
    written = str(folder / "written")
    spark.read.parquet(str(plain)).coalesce(len(segments)).write.format("delta").save(written)

    def published() -> Any:
        return spark.read.format("delta").load(str(root / "bench/events"))

    others: dict[str, Callable[[], Any]] = {
        "plain Parquet": lambda: spark.read.parquet(str(plain)),
        "a Delta table of the same rows that Spark wrote": lambda: spark.read.format("delta").load(written),
    }
    actions: dict[str, Callable[[Any], object]] = {
        f"Spark reads {count:,} published rows as Delta": all_of,
        "a sum of one column of them by another": lambda frame: frame.groupBy("day").sum("amount").collect(),
    }

    def pair(name: str, against: str) -> Pair:
        act, other = actions[name], others[against]
        return Pair(f"{name}; {against}", 1.10, lambda: act(published()), lambda: act(other()))

    return [pair(name, against).measured(turns) for against in others for name in actions]


# --- opening ----------------------------------------------------------------------------------------------------------


def versions(folder: Path, count: int, files: int) -> str:
    """A table of so many versions and about so many files."""
    root = folder / f"versions-{count}"
    some = rows(5)
    with txnlog.open(root, namespace="bench", create=True) as ns, txn_catalog.open(root) as cat:
        ns.create_topic("events", SCHEMA)
        for number in range(count):
            ns.produce("events", some)
            cat.publish("bench", "events")
            if number % files == files - 1:
                ns.optimize("events")
        ns.optimize("events")
        cat.publish("bench", "events")
    return str(root / "bench/events")


def openings(folder: Path, spark: Any, many: int, few: int, turns: int) -> list[Row]:
    """Opening a table with many versions over opening one with few."""
    began = time.perf_counter()
    old, new = versions(folder, many, few), versions(folder, few, few)
    print(f"published {many:,} versions in {time.perf_counter() - began:.0f} s", file=sys.stderr, flush=True)
    opened = {path: len(deltalake.DeltaTable(path).file_uris()) for path in (old, new)}
    by_spark = Pair(
        f"Spark opens a table of {many:,} versions ({opened[old]:,} files), over one of {few:,} ({opened[new]:,})",
        2,
        lambda: _opened(spark, old),
        lambda: _opened(spark, new),
    )
    by_deltalake = Pair(
        "the same by deltalake", 2, lambda: deltalake.DeltaTable(old), lambda: deltalake.DeltaTable(new), unit="ms"
    )
    return [pair.measured(turns) for pair in (by_spark, by_deltalake)]


def _opened(spark: Any, path: str) -> None:
    spark._jvm.org.apache.spark.sql.delta.DeltaLog.clearCache()
    spark.read.format("delta").load(path).limit(1).collect()


def main() -> list[Row]:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=60, help="of commits")
    parser.add_argument("--rows", type=int, default=10_000_000, help="to read")
    parser.add_argument("--versions", type=int, default=10_000, help="of the table with many")
    parser.add_argument("--turns", type=int, default=PAIRS)
    arguments = parser.parse_args()
    with scratch() as folder:
        found = commits(folder, arguments.seconds)
        spark = start_spark(delta=True)
        try:
            found += reads(folder, spark, arguments.rows, arguments.turns)
            found += openings(folder, spark, arguments.versions, 100, arguments.turns)
        finally:
            spark.stop()
    return found


if __name__ == "__main__":
    report(main())
