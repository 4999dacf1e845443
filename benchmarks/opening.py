"""Opening a namespace with many ended transactions, in a fresh process, without an explicit checkpoint call.

100,000 single transactions against 1,000: time of ``txnlog.open``, peak memory of the process, and then 1,000 random
TxnIDs, each of which must give its right outcome.
"""

from __future__ import annotations

import argparse
import json
import random
import statistics
import subprocess
import sys
from pathlib import Path

import txnlog
from benchmarks.report import Row, report, scratch

CHILD = """
import json, resource, sys, time
import txnlog, txnlog.namespace, pyarrow.parquet
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
started = time.perf_counter()
ns = txnlog.open(sys.argv[1], mode="r")
opened = time.perf_counter() - started
memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
ids = json.loads(sys.stdin.read())
wrong = sum(ns.transaction(txn_id).state != state for txn_id, state in ids)
print(json.dumps({"seconds": opened, "kb": memory, "wrong": wrong}))
"""


def fill(root: Path, count: int) -> list[tuple[str, str]]:
    """A namespace with so many ended transactions, an entry each; every tenth is aborted. Returns the outcomes."""
    outcomes: list[tuple[str, str]] = []
    with txnlog.open(root, namespace="bench", create=True) as ns:
        ns.create_topic("events")
        for number in range(count):
            txn = ns.begin()
            txn.produce("events", [{"value": b"x"}])
            if number % 10 == 0:
                txn.flush()
                txn.abort()
            else:
                txn.commit()
            outcomes.append((str(txn.id), txn.state))
    return outcomes


def open_once(root: Path, sample: list[tuple[str, str]]) -> dict[str, float]:
    """Open in a fresh process and ask for the sample."""
    done = subprocess.run(
        [sys.executable, "-c", CHILD, str(root / "bench")],
        input=json.dumps(sample),
        capture_output=True,
        text=True,
        check=True,
    )
    result: dict[str, float] = json.loads(done.stdout)
    return result


def main() -> list[Row]:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--transactions", type=int, default=100_000)
    arguments, _ = parser.parse_known_args()
    with scratch() as folder:
        small = fill(folder / "small", 1_000)
        large = fill(folder / "large", arguments.transactions)
        sample = random.Random(1).sample(large, 1_000)
        times: dict[str, list[float]] = {"small": [], "large": []}
        memory: dict[str, list[float]] = {"small": [], "large": []}
        wrong = 0.0
        for _ in range(7):
            for name, ids in (("small", small), ("large", sample)):
                result = open_once(folder / name, ids if name == "small" else [])
                times[name].append(result["seconds"])
                memory[name].append(result["kb"])
        asked = open_once(folder / "large", sample)
        wrong += asked["wrong"]
    ratio = statistics.median(b / a for a, b in zip(times["small"], times["large"], strict=True))
    more = (statistics.median(memory["large"]) - statistics.median(memory["small"])) / 1024
    return [
        Row(
            f"opening after {arguments.transactions:,} ended transactions against 1,000",
            f"{ratio:.2f} ({statistics.median(times['large']) * 1e3:.0f} ms)",
            "at most 2",
            ratio <= 2,
        ),
        Row("memory it takes more", f"{more:.1f} MB", "at most 20 MB", more <= 20),
        Row("1,000 random TxnIDs: wrong outcomes", f"{wrong:.0f}", "0", wrong == 0),
    ]


if __name__ == "__main__":
    report(main())
