"""Kill processes until so many died: ``python -m tests.crash.run [--local 2000] [--s3 300] [--seed N] [--keep DIR]``.

Fails for any finding, for too little of anything, and where the time is over before the kills are. The tests beside it
do the same with fewer kills.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from tests.crash.command_line import Surroundings, add_arguments
from tests.crash.plan import Plan
from tests.crash.supervisor import PROGRESS
from tools.servers import S3Server, s3_server

ROOT = Path(__file__).resolve().parent.parent.parent

LOCAL_KILL_SECONDS = 1.5
S3_KILL_SECONDS = 5.0
"""So long a kill may take on a busy machine, on the whole; a quiet one with two cores needs a fifth."""

MANY_KILLS = 100

SEEN = (
    "without answer",
    "in doubt, then committed",
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
)
"""Likewise, of many kills; what a run can wait for is in its plan."""

Report = dict[str, Any]


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
    """A run over an S3 server, which answers more slowly than files do."""
    return Plan(
        root=server.url("crash"),
        folder=str(folder),
        seed=seed,
        seconds=seconds,
        longest_seconds=longest_seconds,
        options=server.storage_options,
        faults={"storm": 0.06},
        kills_per_second=2.5,
        **_least(kills),
    )


def _least(kills: int) -> dict[str, Any]:
    """What a run with so many kills must have met before it ends."""
    counts = {"kills": kills, "fenced": max(1, kills // 40)}
    figures = {"ambiguous": max(10, kills // 5), "unknown": max(5, kills // 10)}
    if kills >= MANY_KILLS:
        counts["keepers killed"] = 1
        figures |= dict.fromkeys(("decided from outside", "nights", "files deleted", "blocks closed"), 1)
    return {"least_counts": counts, "least_figures": figures}


def carry_out(
    plan: Plan,
    watch: Callable[[dict[str, Any]], object] = lambda _progress: None,
    *,
    supervisor: str = "tests.crash.supervisor",
) -> Report:
    """Carry out a plan in processes of its own; what it found. ``watch`` is told now and then how far it is."""
    path = plan.write()
    progress = path.parent / PROGRESS
    with open(path.parent / "supervisor.log", "w+", encoding="utf-8") as log:
        command = [sys.executable, "-m", supervisor, str(path)]
        process = subprocess.Popen(command, cwd=ROOT, stdout=log, stderr=subprocess.STDOUT)
        try:
            while process.poll() is None:
                time.sleep(0.2)
                if progress.exists():
                    watch(json.loads(progress.read_text()))
        except BaseException:
            process.kill()  # its children die with it
            process.wait()
            raise
        log.seek(0)
        if process.returncode:
            raise RuntimeError(f"seed {plan.seed}: the supervisor ended with {process.returncode}\n{log.read()}")
    found: Report = json.loads((path.parent / "report.json").read_text())
    return found


def problems(plan: Plan, report: Report) -> list[str]:
    """Why a run fails: what it found, and what there was too little of."""
    counts: Counter[str] = Counter(report["counts"])
    found = report["found"]
    figures: Counter[str] = Counter(found["figures"])
    result = [*report["broken"], *found["explained"]]
    if not found["figures"]:
        return [f"seed {plan.seed}: {text}" for text in result]  # what is broken says why there are none
    for seen, least in ((counts, plan.least_counts), (figures, plan.least_figures)):
        result += [
            f"{name}: {seen[name]}, wanted were {wanted}" for name, wanted in least.items() if seen[name] < wanted
        ]
    many = counts["kills"] >= MANY_KILLS
    result += [f"no {name}" for name in (*SEEN, *(SEEN_IN_MANY if many else ())) if not figures[name]]
    assert result or not found["findings"], "every finding is explained"
    return [f"seed {plan.seed}: {text}" for text in result]


def table(rows: Sequence[tuple[str, Report]]) -> Table:
    """What was done and what came of it."""
    result = Table(title="Killed processes", title_justify="left")
    result.add_column("")
    for name, _ in rows:
        result.add_column(name, justify="right")
    for title, get in LINES:
        result.add_row(
            title, *(f"{get(Counter(report['counts']), Counter(report['found']['figures'])):,}" for _, report in rows)
        )
    result.add_row("findings", *(f"{report['found']['findings'] + len(report['broken']):,}" for _, report in rows))
    return result


Line = Callable[[Counter[str], Counter[str]], int]
LINES: tuple[tuple[str, Line], ...] = (
    ("seconds", lambda counts, _: counts["milliseconds"] // 1000),
    ("  and of checks", lambda counts, _: counts["milliseconds of checks"] // 1000),
    ("kills", lambda counts, _: counts["kills"]),
    ("  of them vacuums and deciders", lambda counts, _: counts["keepers killed"]),
    ("stopped, and let go on", lambda counts, _: counts["stops"]),
    ("zombies fenced", lambda counts, _: counts["fenced"]),
    ("transactions and plain produces", lambda _, figures: figures["attempts"]),
    ("committed", lambda _, figures: figures["visible"]),
    ("in doubt, and resolved", lambda _, figures: figures["ambiguous"]),
    ("  of them OutcomeUnknown", lambda _, figures: figures["unknown"]),
    ("  of them committed after all", lambda _, figures: figures["in doubt, then committed"]),
    ("prepared", lambda _, figures: figures["prepared"]),
    ("  of them committed from outside", lambda _, figures: figures["prepared, then committed"]),
    ("messages consumed, exclusive", lambda _, figures: figures["consumed, exclusive"]),
    ("messages consumed, failover", lambda _, figures: figures["consumed, failover"]),
    ("messages consumed, shared", lambda _, figures: figures["consumed, shared"]),
    ("dead letters", lambda _, figures: figures["dead letters"]),
    ("messages left to the last consumers", lambda _, figures: figures["drained"]),
    ("nights", lambda _, figures: figures["nights"]),
    ("files that vacuums deleted", lambda _, figures: figures["files deleted"]),
    ("blocks of numbers closed", lambda _, figures: figures["blocks closed"]),
    ("MB of memory for the checks", lambda _, figures: figures["megabytes of checks"]),
)


KEPT = "journals and logs"


def main(arguments: Sequence[str] | None = None) -> int:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--local", type=int, default=2000, metavar="KILLS", help="over local files (2000)")
    parser.add_argument("--s3", type=int, default=300, metavar="KILLS", help="over an S3 server on loopback (300)")
    add_arguments(parser, KEPT)
    given = parser.parse_args(arguments)
    here = Surroundings.of(given, "crash")
    rows: list[tuple[str, Report]] = []
    found: list[str] = []
    for name, plan in _plans(here.base, here.seed, given.local, given.s3):
        report = _watched(name, plan, here.console)
        rows.append((name, report))
        found += problems(plan, report)
    here.console.print(table(rows))
    return here.end(found, KEPT) or int(not rows)


def _plans(base: Path, seed: int, local: int, s3: int) -> Iterator[tuple[str, Plan]]:
    if local > 0:
        folder = base / "local"
        folder.mkdir()
        yield "local files", local_plan(folder, seed, local, 0, 60 + LOCAL_KILL_SECONDS * local)
    if s3 > 0:
        folder = base / "s3"
        folder.mkdir()
        with s3_server() as server:
            yield "S3", s3_plan(server, folder, seed, s3, 0, 60 + S3_KILL_SECONDS * s3)


def _watched(name: str, plan: Plan, console: Console) -> Report:
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=console, disable=not console.is_terminal) as progress:
        task = progress.add_task(f"kills, {name}", total=plan.least_counts["kills"])
        return carry_out(plan, lambda known: progress.update(task, completed=known.get("kills", 0)))


if __name__ == "__main__":
    sys.exit(main())
