"""Publishers, writers, optimize and vacuum together, killed: ``python -m tests.crash_delta.run [--seconds 600]``.

Every version that was published is compared with the log. Fails for any finding, and for too little of anything.
``--seed N`` repeats the choices of a run, ``--keep DIR`` keeps journals, logs and the namespace. A test beside it does
the same for a few seconds.
"""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from tests.crash.command_line import Surroundings, add_arguments
from tests.crash.run import Report, carry_out
from tests.crash_delta.plan import PHASES, DeltaPlan
from tests.crash_delta.processes import CAST

SUPERVISOR = "tests.crash_delta.supervisor"

LONG_SECONDS = 300.0
"""From here on a run must have met everything."""

LONGEST = 2.0
"""So many times the planned seconds a slow machine may take to meet the least numbers."""

SEEN = ("published", "rows", "acknowledged", "rows with offsets", "versions read by polars")
"""Figures that every run must have some of."""

SEEN_IN_LONG = (
    "met",
    "merges",
    "alterations",
    "stops",
    "fenced",
    "refused",
    "in doubt",
    "unanswered",
    "topics made again",
    "nights",
    "vacuums with files",
    "vacuumed, said so",
    "repairs",
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
    """Why a run fails: what it found, and what there was too little of."""
    found = report["found"]
    result = [*report["broken"], *found["explained"]]
    if result:
        return [f"seed {plan.seed}: {text}" for text in result]  # a run that ended early has little of anything
    counts = numbers(report)
    least = {**plan.least_counts, **plan.least_figures}
    result = [
        f"{name}: {counts[name]}, wanted were {wanted}" for name, wanted in least.items() if counts[name] < wanted
    ]
    long = plan.seconds >= LONG_SECONDS
    result += [f"no {name}" for name in (*SEEN, *(SEEN_IN_LONG if long else ())) if not counts[name]]
    if counts["compared"] + counts["gone before they were compared"] != counts["versions"]:
        result.append(f"{counts['versions']} versions, and {counts['compared']} were compared")
    if counts["gone before they were compared"] > max(FEW_GONE, MOST_GONE * counts["versions"]):
        result.append(f"{counts['gone before they were compared']} versions were gone before they were compared")
    return [f"seed {plan.seed}: {text}" for text in result]


def numbers(report: Report) -> Counter[str]:
    """All that was counted."""
    counts = report["counts"]
    seconds = {
        "seconds": counts["milliseconds"] // 1000,
        "seconds of checks": counts["milliseconds of checks"] // 1000,
    }
    return Counter({**counts, **seconds, **report["found"]["figures"]})


def table(report: Report) -> Table:
    """What was done and what came of it."""
    counts = numbers(report)
    result = Table(title="Killed beside publishers", title_justify="left")
    result.add_column("")
    result.add_column("", justify="right")
    for title, name in LINES:
        result.add_row(title, f"{counts[name]:,}")
    result.add_row("findings", f"{report['found']['findings'] + len(report['broken']):,}")
    return result


LINES: tuple[tuple[str, str], ...] = (
    ("seconds", "seconds"),
    ("  and of checks", "seconds of checks"),
    ("kills", "kills"),
    *((f"  of them {role}", f"killed {role}") for role in dict.fromkeys(kind.role for kind in CAST)),
    *((f"  {phase}", f"killed {phase}") for phase in PHASES.values()),
    ("stopped, and let go on", "stops"),
    ("transactions and plain produces", "attempts"),
    ("  acknowledged", "acknowledged"),
    ("  aborted or refused", "refused"),
    ("  in doubt, and resolved", "in doubt"),
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
    ("publications without an answer", "unanswered"),
    ("repairs", "repairs"),
    ("checkpoints of tables", "checkpoints"),
    ("merges", "merges"),
    ("  lost to others", "merges lost"),
    ("alterations", "alterations"),
    ("topics made again", "topics made again"),
    ("nights", "nights"),
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
    report = _watched(plan, here.console)
    here.console.print(table(report))
    return here.end(problems(plan, report), KEPT)


def _watched(plan: DeltaPlan, console: Console) -> Report:
    columns = (TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn())
    with Progress(*columns, console=console, disable=not console.is_terminal) as progress:
        task = progress.add_task("load", total=plan.seconds)

        def watch(known: dict[str, Any]) -> None:
            progress.update(task, completed=known["seconds"], description=f"{known.get('kills', 0)} kills")

        return carry_out(plan, watch, supervisor=SUPERVISOR)


if __name__ == "__main__":
    sys.exit(main())
