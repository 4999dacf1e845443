"""Kill processes until so many died: ``python -m tests.crash.core.run [--local 2000] [--s3 300] [--seed N]``.

Fails for any finding, for too little of anything, and where the time is over before the kills are. The tests beside it
do the same with fewer kills; ``--keep DIR`` keeps journals and logs.
"""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from tests.crash.harness import run
from tests.crash.harness.command_line import Surroundings, add_arguments
from tests.crash.harness.plan import Plan
from tests.crash.harness.run import Line, Report
from tools.servers import S3Server, s3_server

SUPERVISOR = "tests.crash.core.supervisor"

LOCAL_KILL_SECONDS = 1.5
S3_KILL_SECONDS = 5.0
"""So long a kill may take on a busy machine, on the whole; a quiet one with two cores needs a fifth."""

MANY_KILLS = 100

SEEN = (
    "without answer",
    "unanswered, then committed",
    "acknowledged",
    "sequenced rows",
    "consumed",
    "prepared",
)
"""Figures that every run must have some of."""

SEEN_IN_MANY = (
    "consumed, exclusive",
    "consumed, failover",
    "consumed, shared",
    "dead letters",
    "drained",
    "prepared, then committed",
    "a commit was brought by another writer",
    "a proposal was made void",
    "collectors",
)
"""Likewise, of many kills; what a run can wait for is in its plan."""


def local_plan(folder: Path, seed: int, kills: int, seconds: float, longest_seconds: float) -> Plan:
    """A run over local files."""
    return Plan(
        root=str(folder / "lake"),
        folder=str(folder),
        seed=seed,
        seconds=seconds,
        longest_seconds=longest_seconds,
        **_least(kills),
    )


def s3_plan(server: S3Server, folder: Path, seed: int, kills: int, seconds: float, longest_seconds: float) -> Plan:
    """A run over an S3 server, which answers more slowly than files do.

    A successor takes more than a second of a processor for its client of S3. With more kills in a second two processors
    would do nothing but start processes, and hardly a transaction would be there to be killed in.
    """
    return Plan(
        root=server.url("crash"),
        folder=str(folder),
        seed=seed,
        seconds=seconds,
        longest_seconds=longest_seconds,
        options=server.storage_options,
        faults={"storm": 0.06},
        kills_per_second=0.8,
        **_least(kills),
    )


def _least(kills: int) -> dict[str, Any]:
    """What a run with so many kills must have met before it ends."""
    counts = {"kills": kills, "fenced": max(1, kills // 40)}
    figures = {"unanswered": max(10, kills // 5), "unknown": max(5, kills // 10)}
    if kills >= MANY_KILLS:
        counts["keepers killed"] = 1
        figures |= dict.fromkeys(("decided from outside", "night", "files deleted", "blocks closed"), 1)
    return {"least_counts": counts, "least_figures": figures}


def problems(plan: Plan, report: Report) -> list[str]:
    """Why a run fails."""

    def of_many(counts: Counter[str]) -> list[str]:
        return [f"no {name}" for name in SEEN_IN_MANY if counts["kills"] >= MANY_KILLS and not counts[name]]

    return run.problems(plan, report, SEEN, of_many)


LINES: tuple[Line, ...] = (
    ("seconds", "seconds"),
    ("  and of checks", "seconds of checks"),
    ("kills", "kills"),
    ("  of them vacuums and deciders", "keepers killed"),
    ("stopped, and let go on", "stops"),
    ("zombies fenced", "fenced"),
    ("transactions and plain produces", "attempts"),
    ("committed", "visible"),
    ("outcome unknown, and resolved", "unanswered"),
    ("  of them OutcomeUnknown", "unknown"),
    ("  of them committed after all", "unanswered, then committed"),
    ("prepared", "prepared"),
    ("  of them committed from outside", "prepared, then committed"),
    ("messages consumed, exclusive", "consumed, exclusive"),
    ("messages consumed, failover", "consumed, failover"),
    ("messages consumed, shared", "consumed, shared"),
    ("dead letters", "dead letters"),
    ("messages left to the last consumers", "drained"),
    ("processes that collected, of all", "collectors"),
    ("commits that another process brought", "a commit was brought by another writer"),
    ("proposals made void", "a proposal was made void"),
    ("nights", "night"),
    ("files that vacuums deleted", "files deleted"),
    ("blocks of numbers closed", "blocks closed"),
    ("MB of memory for the checks", "megabytes of checks"),
)

KEPT = "journals and logs"


def main(arguments: Sequence[str] | None = None) -> int:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--local", type=int, default=2000, metavar="KILLS", help="over local files (2000)")
    parser.add_argument("--s3", type=int, default=300, metavar="KILLS", help="over an S3 server on loopback (300)")
    parser.add_argument("--workers", type=int, default=16, help="processes that live at once (16; the tests have 8)")
    add_arguments(parser, KEPT)
    given = parser.parse_args(arguments)
    here = Surroundings.of(given, "crash")
    columns: list[tuple[str, Counter[str]]] = []
    found: list[str] = []
    for name, plan in _plans(here.base, here.seed, given.workers, given.local, given.s3):
        report = run.carry_out_watched(name, plan, SUPERVISOR, here.console)
        columns.append((name, run.numbers(report)))
        found += problems(plan, report)
    here.console.print(run.table("Killed processes", LINES, columns))
    return here.end(found, KEPT) or int(not columns)


def _plans(base: Path, seed: int, workers: int, local: int, s3: int) -> Iterator[tuple[str, Plan]]:
    if local > 0:
        folder = base / "local"
        folder.mkdir()
        plan = local_plan(folder, seed, local, 0, 60 + LOCAL_KILL_SECONDS * local)
        yield "local files", replace(plan, workers=workers)
    if s3 > 0:
        folder = base / "s3"
        folder.mkdir()
        with s3_server() as server:
            plan = s3_plan(server, folder, seed, s3, 0, 60 + S3_KILL_SECONDS * s3)
            yield "S3", replace(plan, workers=workers)


if __name__ == "__main__":
    sys.exit(main())
