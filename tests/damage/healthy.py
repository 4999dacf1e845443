"""Healthy namespaces, of which no check may report anything: what simulated clients leave behind.

``python -m tests.damage.healthy [--count 1000] [--first 0]``: runs so many schedules, of every workload in turn, checks
what each leaves at every level, and prints how many of them had findings; it fails where one had.
"""

from __future__ import annotations

import argparse
import logging
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

from txnlog.api.checking import check_namespace
from txnlog.results import CheckLevel, Finding
from txnlog.store import MemoryStore
from txnlog.testing import ManualClock
from txnlog.testing.scheduler import START_MS
from txnlog.testing.simulation import Simulation
from txnlog.testing.workloads import WORKLOADS, Workload

LEVELS: Final[tuple[CheckLevel, ...]] = ("quick", "full", "deep")


class Checked(NamedTuple):
    """What the checks of one namespace found.

    Attributes:
        seed, workload: give the same namespace again.
        findings: what was found, but for notes; empty, or txnlog has a bug.
        failures: what the simulation itself found.
        looked_at: how many objects of each kind the deepest check looked at.
    """

    seed: int
    workload: Workload
    findings: tuple[Finding, ...]
    failures: tuple[str, ...]
    looked_at: Counter[str]


def checked(seed: int) -> Checked:
    """Run the schedule of a seed, whose workload follows from it, and check what it left, at rest, at every level.

    What was damaged on purpose was put back before.
    """
    workload = WORKLOADS[seed % len(WORKLOADS)]
    simulation = Simulation(seed, workload=workload)
    failures = tuple(map(str, simulation.run().failures))
    store = MemoryStore()
    for key, (data, *_) in simulation.store.objects.items():
        store.put(key, data)
    found: list[Finding] = []
    looked_at: Counter[str] = Counter()
    for level in LEVELS:
        report = check_namespace("x", "sim", level=level, store=store, clock=ManualClock(START_MS))
        found += [item for item in report.findings if item.severity != "note"]
        looked_at = Counter(report.checked)
    return Checked(seed, workload, tuple(found), failures, looked_at)


def all_checked(first: int, count: int) -> Iterator[Checked]:
    """So many, from a seed on."""
    return (checked(seed) for seed in range(first, first + count))


def main(arguments: Sequence[str] | None = None) -> int:
    """Check them, and print what was found."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=1_000, help="how many namespaces")
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    given = parser.parse_args(arguments)
    logging.getLogger("txnlog").setLevel(logging.CRITICAL)  # of transactions that killed clients leave
    wrong, looked_at, by_workload = 0, Counter[str](), Counter[str]()
    for item in all_checked(given.first, given.count):
        looked_at += item.looked_at
        by_workload[item.workload] += 1
        if item.findings or item.failures:
            wrong += 1
            print(f"seed {item.seed} ({item.workload}): {[*item.failures, *map(str, item.findings)]}", flush=True)
    counts = ", ".join(f"{count:,} {kind}" for kind, count in sorted(looked_at.items()))
    print(
        f"{given.count:,} healthy namespaces ({dict(by_workload)}), each at {', '.join(LEVELS)}: {wrong} with findings"
    )
    print(f"looked at, at the deepest level: {counts}")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
