"""Opening a namespace with many ended transactions, in a fresh process, without an explicit checkpoint call.

Two cases, each beside a namespace with 1,000 transactions: 100,000 transactions with an entry each; and 1,000,000 in
group commits (64 in flight), where both namespaces have the same 10,000 producers and 1,000 subscriptions. Measured:
time of ``txnlog.open``, peak memory of the process, and then 1,000 random TxnIDs and 100 of aborted transactions, each
of which must give its right outcome.
"""

from __future__ import annotations

import argparse
import json
import random
import statistics
import subprocess
import sys
import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path

import txnlog
from benchmarks.report import Row, report, scratch
from txnlog.api.namespace import Namespace
from txnlog.results import Committed

FEW = 1_000
ASKED = 1_000
ASKED_ABORTED = 100
PAIRS = 7
PARTITIONS = 4
MOST_MEMORY_MB = 20
CHILD = """
import json, sys, time
import txnlog, txnlog.api.opening, pyarrow.parquet
def peak():
    # Not getrusage, whose figure begins with the peak of the process that started this one.
    with open("/proc/self/status") as status:
        return next(int(line.split()[1]) for line in status if line.startswith("VmHWM"))
started = time.perf_counter()
ns = txnlog.open(sys.argv[1], mode="r")
opened = time.perf_counter() - started
memory = peak()
state = ns._connection.follower.state
held = (len(state.producers), len(state.subscriptions))
ids = json.loads(sys.stdin.read())
wrong = sum(ns.transaction(txn_id).state != state for txn_id, state in ids)
asked = peak()
print(json.dumps({"seconds": opened, "kb": memory, "asked_kb": asked, "wrong": wrong, "held": held}))
"""


@dataclass(frozen=True, slots=True)
class Case:
    """A namespace with many transactions, which is compared with one that has few and is else the same."""

    transactions: int
    in_flight: int
    abort_every: int
    producers: int = 0
    subscriptions: int = 0

    def __str__(self) -> str:
        names = f", {self.producers:,} producers, {self.subscriptions:,} subscriptions" if self.producers else ""
        return f"{self.transactions:,} ended transactions against {FEW:,}{names}"


CASES = {
    "single": Case(100_000, in_flight=1, abort_every=10),
    "grouped": Case(1_000_000, in_flight=64, abort_every=1_000, producers=10_000, subscriptions=1_000),
}


def _abort(txn: txnlog.Transaction) -> None:
    txn.flush()  # else the log would not show it at all
    txn.abort()


def end_many(
    begin: Callable[[int], txnlog.Transaction], case: Case, count: int, pool: ThreadPoolExecutor
) -> list[tuple[str, str]]:
    """So many transactions, committed or aborted. Returns random ones, and random aborted ones, with their outcomes."""
    generator = random.Random(1)
    chosen = set(generator.sample(range(count), min(count, ASKED)))
    aborted_ones = range(0, count, case.abort_every)
    chosen.update(generator.sample(aborted_ones, min(len(aborted_ones), ASKED_ABORTED)))
    outcomes: list[tuple[str, str]] = []
    waiting: deque[tuple[int, txnlog.Transaction, Future[Committed] | Future[None]]] = deque()

    def settle() -> None:
        number, txn, future = waiting.popleft()
        future.result()
        if number in chosen:
            outcomes.append((str(txn.id), "ABORTED" if number % case.abort_every == 0 else "COMMITTED"))

    for number in range(count):
        txn = begin(number)
        txn.produce("events", [{"value": b"x"}])
        aborted = number % case.abort_every == 0
        waiting.append((number, txn, pool.submit(_abort, txn) if aborted else txn.commit_async()))
        if len(waiting) >= case.in_flight:
            settle()
    while waiting:
        settle()
    return outcomes


def subscribe(ns: Namespace, number: int) -> None:
    """A subscription that has acknowledged some messages: it has a cursor."""
    with ns.consumer("events", f"subscription-{number}") as consumer:
        consumer.acknowledge(consumer.receive(10, timeout_ms=0))


def fill(root: Path, case: Case, count: int) -> list[tuple[str, str]]:
    """A namespace with so many ended transactions. Returns some of them with their outcomes."""
    with txnlog.open(root, namespace="bench", create=True) as ns, ThreadPoolExecutor(16) as pool:
        ns.create_topic("events", partitions=PARTITIONS)
        names = [f"producer-{number}" for number in range(case.producers)]
        producers = list(pool.map(ns.producer, names)) or [ns.producer()]
        ns.produce("events", [{"value": b"x"}] * 100)
        for done in [pool.submit(subscribe, ns, number) for number in range(case.subscriptions)]:
            done.result()
        return end_many(lambda number: producers[number % len(producers)].begin(), case, count, pool)


def open_once(root: Path, case: Case, sample: list[tuple[str, str]]) -> dict[str, float]:
    """Open in a fresh process and ask for the sample."""
    done = subprocess.run(
        [sys.executable, "-c", CHILD, str(root / "bench")],
        input=json.dumps(sample),
        capture_output=True,
        text=True,
        check=True,
    )
    result = json.loads(done.stdout)
    assert result.pop("held") == [case.producers, case.subscriptions], "all of them, opened"
    found: dict[str, float] = result
    return found


def measure(case: Case, folder: Path) -> list[Row]:
    """One case: both namespaces, opened in turns."""
    started = time.perf_counter()
    small, large = folder / "small", folder / "large"
    fill(small, case, FEW)
    sample = fill(large, case, case.transactions)
    print(f"{case}: filled in {time.perf_counter() - started:.0f} s", file=sys.stderr, flush=True)
    open_once(small, case, [])
    open_once(large, case, [])
    pairs = [(open_once(small, case, []), open_once(large, case, [])) for _ in range(PAIRS)]
    ratio = statistics.median(b["seconds"] / a["seconds"] for a, b in pairs)
    times = [statistics.median(pair[index]["seconds"] for pair in pairs) * 1e3 for index in (0, 1)]
    more = statistics.median(b["kb"] - a["kb"] for a, b in pairs) / 1024
    asked = open_once(large, case, sample)
    for_asking = (asked["asked_kb"] - asked["kb"]) / 1024
    return [
        Row(f"opening after {case}", f"{ratio:.2f} ({times[1]:.0f} ms and {times[0]:.0f} ms)", "at most 2", ratio <= 2),
        Row("memory it takes more", f"{more:.1f} MB", f"at most {MOST_MEMORY_MB} MB", more <= MOST_MEMORY_MB),
        Row(f"{len(sample):,} random TxnIDs: wrong outcomes", f"{asked['wrong']:.0f}", "0", asked["wrong"] == 0),
        Row("memory that asking for them takes", f"{for_asking:.1f} MB", "reported", True),
    ]


def main() -> list[Row]:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("cases", nargs="*", metavar="case", help=f"of {', '.join(CASES)}; all if none is named")
    parser.add_argument("--transactions", type=int, help="of each case, in place of its own number")
    arguments = parser.parse_args()
    rows: list[Row] = []
    for name in arguments.cases or CASES:
        case = CASES[name]
        if arguments.transactions:
            case = replace(case, transactions=arguments.transactions)
        with scratch() as folder:
            rows += measure(case, folder)
    return rows


if __name__ == "__main__":
    report(main())
