"""Publishers, writers, optimize and vacuum together, killed: ``python -m tests.crash.delta.run [--seconds 600]``.

Every version that was published is compared with the log. Fails for any finding, and for too little of anything.
``--seed N`` repeats the choices of a run, ``--keep DIR`` keeps journals, logs and the namespace. A test beside it does
the same for a few seconds.
"""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

from tests.crash.delta.plan import PHASES, DeltaPlan
from tests.crash.delta.processes import CAST
from tests.crash.harness import run
from tests.crash.harness.command_line import Surroundings, add_arguments
from tests.crash.harness.run import Line, Report

SUPERVISOR = "tests.crash.delta.supervisor"

LONG_SECONDS = 300.0
"""From here on a run must have met everything."""

LONGEST = 2.0
"""So many times the planned seconds a slow machine may take to meet the least numbers."""

SEEN = ("published", "rows", "acknowledged", "rows with offsets", "versions read by polars")
"""Figures that every run must have some of."""

SEEN_IN_LONG = (
    "met",
    "merges",
    "alter",
    "stops",
    "fenced",
    "refused",
    "unanswered",
    "no answer",
    "drop",
    "night",
    "vacuums with files",
    "vacuumed, said so",
    "repair",
    "checkpoints",
    "versions read by duckdb",
    *(f"killed {role}" for role in dict.fromkeys(kind.role for kind in CAST)),
    *(f"killed {phase}" for phase in PHASES.values()),
)
"""Likewise, of long ones."""

MOST_GONE = 0.1
FEW_GONE = 20
"""Of the versions: their files may be gone, to the vacuum, before somebody compared their rows."""


def plan_for(folder: Path, seed: int, seconds: float) -> DeltaPlan:
    """A run of so many seconds of load."""
    return DeltaPlan(
        root=str(folder / "lake"),
        folder=str(folder),
        seed=seed,
        seconds=seconds,
        longest_seconds=LONGEST * seconds + 20,
        pause_ms=700.0,
        kills_per_second=1.5,
        least_counts={"kills": max(6, round(seconds / 3))},
        least_figures={"compared": max(20, round(seconds))},
    )


def problems(plan: DeltaPlan, report: Report) -> list[str]:
    """Why a run fails."""

    def of_versions(counts: Counter[str]) -> Iterator[str]:
        if plan.seconds >= LONG_SECONDS:
            yield from (f"no {name}" for name in SEEN_IN_LONG if not counts[name])
        gone = counts["gone before they were compared"]
        if counts["compared"] + gone != counts["versions"]:
            yield f"{counts['versions']} versions, and {counts['compared']} were compared"
        if gone > max(FEW_GONE, MOST_GONE * counts["versions"]):
            yield f"{gone} versions were gone before they were compared"

    return run.problems(plan, report, SEEN, of_versions)


LINES: tuple[Line, ...] = (
    ("seconds", "seconds"),
    ("  and of checks", "seconds of checks"),
    ("kills", "kills"),
    *((f"  of them {role}", f"killed {role}") for role in dict.fromkeys(kind.role for kind in CAST)),
    *((f"  {phase}", f"killed {phase}") for phase in PHASES.values()),
    ("stopped, and let go on", "stops"),
    ("transactions and plain produces", "attempts"),
    ("  acknowledged", "acknowledged"),
    ("  aborted or refused", "refused"),
    ("  of unknown outcome, and resolved", "unanswered"),
    ("versions of tables", "versions"),
    ("  of them of the table of segments", "versions of the segments"),
    ("  compared with the log", "compared"),
    ("    while it went on", "compared while it went on"),
    ("  gone before they were compared", "gone before they were compared"),
    ("  read by Polars too", "versions read by polars"),
    ("  read by DuckDB too", "versions read by duckdb"),
    ("  vacuumed, and engines said so", "vacuumed, said so"),
    ("  vacuumed, and nothing of them was gone", "vacuumed, and whole"),
    ("rows compared", "rows"),
    ("rows whose offsets were compared", "rows with offsets"),
    ("publishers that met another", "met"),
    ("publications without an answer", "no answer"),
    ("repairs", "repair"),
    ("checkpoints of tables", "checkpoints"),
    ("merges", "merges"),
    ("  lost to others", "merges lost"),
    ("alterations", "alter"),
    ("topics made again", "drop"),
    ("nights", "night"),
    ("vacuums that removed files", "vacuums with files"),
    ("  files", "files deleted"),
    ("MB of memory for the checks", "megabytes of checks"),
)


KEPT = "journals, logs and the namespace"


def main(arguments: Sequence[str] | None = None) -> int:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=600.0, help="of load (600)")
    add_arguments(parser, KEPT)
    given = parser.parse_args(arguments)
    here = Surroundings.of(given, "crash-delta")
    plan = plan_for(here.base, here.seed, given.seconds)
    report = run.carry_out_watched("beside publishers", plan, SUPERVISOR, here.console)
    here.console.print(run.table("Killed beside publishers", LINES, [("", run.numbers(report))]))
    return here.end(problems(plan, report), KEPT)


if __name__ == "__main__":
    sys.exit(main())
