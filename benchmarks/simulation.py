"""How many schedules a second the simulation runs on one core, and what a schedule is: ``python -m txnlog.testing``.

A schedule counts with everything: its scheduled part, the quiet end in which all work must finish, and the checks. It
is only worth its time if there is something in it, so the distribution of requests, actors and faults is shown too.
"""

from __future__ import annotations

import argparse
import statistics

from benchmarks.report import Row, report
from txnlog.testing.runner import REACHED, run_many

RATE = 60
REQUESTS = 200
ACTORS = 3
FAULTS = 3


def distribution(numbers: list[int]) -> str:
    """Least, tenth, median, nine tenths, most."""
    cuts = statistics.quantiles(numbers, n=10, method="inclusive")
    return f"{statistics.median(numbers):g} ({min(numbers)}, {cuts[0]:.0f}, {cuts[-1]:.0f}, {max(numbers)})"


def main() -> list[Row]:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--schedules", type=int, default=1_000)
    parser.add_argument("--seed", type=int, default=10_000_000, help="the first one")
    arguments = parser.parse_args()
    run_many(arguments.seed - 50, 50)  # what is imported and compiled at the first use
    tally = run_many(arguments.seed, arguments.schedules)
    by_clock = tally.schedules / tally.elapsed_s
    rows = [
        Row(
            "schedules a second of one core",
            f"{tally.rate:.1f} by processor time, {by_clock:.1f} by the clock",
            f"at least {RATE}",
            tally.rate >= RATE,
        )
    ]
    for name, numbers, least in (
        ("store requests", tally.requests, REQUESTS),
        ("actors", tally.actors, ACTORS),
        ("kinds of fault on", tally.faults, FAULTS),
    ):
        median = statistics.median(numbers)
        rows.append(
            Row(
                f"{name} of a schedule, median (least, tenth, nine tenths, most)",
                distribution(numbers),
                f"median at least {least}",
                median >= least,
            )
        )
    rows.append(Row(f"failed, of {tally.schedules:,} schedules", f"{len(tally.failures)}", "0", not tally.failures))
    reached = sum(tally.labels[name] > 0 for name in REACHED)
    asked = "situations that they reached, of those that a long run must reach"
    rows.append(Row(asked, f"{reached} of {len(REACHED)}", "reported", True))
    return rows


if __name__ == "__main__":
    report(main())
