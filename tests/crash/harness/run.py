"""Carrying out a run in processes of its own, and saying what came of it."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from tests.crash.harness.plan import Plan
from tests.crash.harness.supervisor import PROGRESS

ROOT = Path(__file__).resolve().parents[3]

Report = dict[str, Any]

Line = tuple[str, str]
"""A title, and the name of what was counted."""


def carry_out(plan: Plan, supervisor: str, watch: Callable[[dict[str, Any]], object] = lambda _done: None) -> Report:
    """Carry out a plan by a module that supervises it; what it found. ``watch`` is told now and then how far it is."""
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


def carry_out_watched(name: str, plan: Plan, supervisor: str, console: Console) -> Report:
    """The same, with a bar of kills."""
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=console, disable=not console.is_terminal) as progress:
        task = progress.add_task(f"kills, {name}", total=plan.least_counts["kills"])
        return carry_out(plan, supervisor, lambda known: progress.update(task, completed=known.get("kills", 0)))


def numbers(report: Report) -> Counter[str]:
    """All that was counted."""
    counts = report["counts"]
    seconds = {
        "seconds": counts.get("milliseconds", 0) // 1000,
        "seconds of checks": counts.get("milliseconds of checks", 0) // 1000,
        "findings": report["found"]["findings"] + len(report["broken"]),
    }
    return Counter({**counts, **report["found"]["figures"], **seconds})


Also = Callable[[Counter[str]], Iterable[str]]
"""More of what there may be too little of, by all that was counted."""


def problems(plan: Plan, report: Report, seen: Iterable[str], also: Also) -> list[str]:
    """Why a run fails: what it found; else what there was too little of, or none of what must be ``seen``."""
    found = report["found"]
    result = [*report["broken"], *found["explained"]]
    assert result or not found["findings"], "every finding is explained"
    if not result:  # a run that ended early has little of anything
        counts = numbers(report)
        result = too_little({**plan.least_counts, **plan.least_figures}, counts)
        result += [f"no {name}" for name in seen if not counts[name]]
        result += also(counts)
    return [f"seed {plan.seed}: {text}" for text in result]


def too_little(wanted: Mapping[str, int], counts: Mapping[str, int]) -> list[str]:
    """What of the least numbers was not met."""
    return [f"{name}: {counts[name]}, wanted were {least}" for name, least in wanted.items() if counts[name] < least]


def table(title: str, lines: Iterable[Line], columns: Sequence[tuple[str, Mapping[str, int]]]) -> Table:
    """What was done and what came of it, a column a run."""
    result = Table(title=title, title_justify="left")
    result.add_column("")
    for name, _ in columns:
        result.add_column(name, justify="right")
    for text, name in (*lines, ("findings", "findings")):
        result.add_row(text, *(f"{counts[name]:,}" for _, counts in columns))
    return result
