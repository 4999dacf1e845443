"""Kill operations at each of their calls: ``python -m tests.crash.operations.run [--kills 200] [--seed N] [NAME ...]``.

Each is repeated until it ends, and must end as if it had never been killed. Fails for any finding, and where one was
killed less often. ``--some N`` kills each at N places of the calls that change something, evenly spaced and others each
``--day``, and at nothing else; ``--plant BUG`` plants a bug first, which must be found. The tests next to it do so.
``--keep DIR`` keeps the namespaces.
"""

from __future__ import annotations

import argparse
import json
import os
import pickle
import random
import sys
import time
import traceback
from collections.abc import Sequence
from pathlib import Path

from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeElapsedColumn
from rich.table import Table

from tests.crash.harness.command_line import Surroundings, add_arguments
from tests.crash.operations import planted
from tests.crash.operations.deaths import Place
from tests.crash.operations.operations import OPERATIONS
from tests.crash.operations.trials import MOST_FINDINGS, Result, Trials
from tests.crash.operations.warm import warm

_PROGRESS, _RESULT = "kills", "result"
_LOOK_S = 0.2

KEPT = "the namespaces, each before its operation and behind the last kill,"

COLUMNS = (
    ("kills", "kills"),
    ("before", "before"),
    ("amid", "amid a write"),
    ("behind", "after"),
    ("any time", "at a random time"),
    ("again", "of repetitions"),
)
"""Titles, and what was counted: kills by their moment of a call, and of them those of repetitions."""


def some_of(places: Sequence[Place], count: int, day: int) -> list[Place]:
    """So many, evenly spaced, in their order; after as many days as it takes each was among them."""
    assert places, "an operation that changes nothing shows nothing"
    count = min(count, len(places))
    step = -(-len(places) // count)
    return [places[number] for number in range(day % step, len(places), step)]


def table(results: Sequence[Result]) -> Table:
    """What was tried of each operation."""
    found = Table(title="Killed operations", title_justify="left")
    found.add_column("operation", no_wrap=True)
    for title, _ in (*COLUMNS, ("calls", ""), ("kept", ""), ("s", ""), ("findings", "")):
        found.add_column(title, justify="right", no_wrap=True)
    for result in results:
        found.add_row(
            result.operation,
            *(f"{result.counts[name]:,}" for _, name in COLUMNS),
            f"{len(result.covered)} of {result.calls}",
            f"{result.counts['kept']:,}",
            f"{result.counts['seconds']:,}",
            f"{len(result.findings):,}",
        )
    return found


def problems(results: Sequence[Result], kills: int) -> list[str]:
    """Why a run fails."""
    found = [text for result in results for text in result.findings]
    if not found:
        found += [
            f"{result.operation}: {result.counts['kills']} kills, wanted were {kills}"
            for result in results
            if result.counts["kills"] < kills
        ]
    return found


def main(arguments: Sequence[str] | None = None) -> int:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"of {', '.join(OPERATIONS)} (all)")
    parser.add_argument("--kills", type=int, default=200, help="of each operation at least (200)")
    parser.add_argument(
        "--jobs", type=int, default=3, help="operations at work at once (3): most of the time they wait"
    )
    parser.add_argument("--some", type=int, metavar="N", help="instead: once at each of N places of its changes")
    parser.add_argument("--day", type=int, default=0, metavar="D", help="which ones these are (0)")
    parser.add_argument("--plant", choices=sorted(planted.BUGS), metavar="BUG", help="a bug that must be found")
    parser.add_argument("--report", type=Path, metavar="FILE", help="the findings and figures as JSON")
    add_arguments(parser, KEPT)
    given = parser.parse_args(arguments)
    if unknown := sorted(set(given.names) - OPERATIONS.keys()):
        parser.error(f"there is no operation {', '.join(unknown)}")
    here = Surroundings.of(given, "crash-operations")
    warm()
    if given.plant is not None:
        planted.BUGS[given.plant].plant()
    results = _all_tried(given.names or list(OPERATIONS), given, here)
    here.console.print(table(results))
    found = problems(results, 1 if given.some else given.kills)
    if given.report is not None:
        figures = {result.operation: dict(result.counts) | {"covered": len(result.covered)} for result in results}
        given.report.write_text(json.dumps({"findings": found, "figures": figures}))
    return here.end(found, KEPT)


def _all_tried(names: Sequence[str], given: argparse.Namespace, here: Surroundings) -> list[Result]:
    """Some operations at once, each in a process with children of its own; in the order in which they were named."""
    waiting, at_work, ended = list(names), dict[int, str](), dict[str, Result]()
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=here.console, disable=not here.console.is_terminal) as progress:
        bars: dict[str, TaskID] = {}
        while waiting or at_work:
            while waiting and len(at_work) < given.jobs:
                name = waiting.pop(0)
                at_work[_begun(name, given, here)] = name
                bars[name] = progress.add_task(f"kills, {name}", total=given.kills)
            time.sleep(_LOOK_S)
            for worker, name in list(at_work.items()):
                folder = _folder(here, name)
                if (done := folder / _PROGRESS).exists():
                    progress.update(bars[name], completed=int(done.read_text() or 0))
                if os.waitpid(worker, os.WNOHANG)[0]:
                    del at_work[worker]
                    result = ended[name] = _result(folder, name)
                    if not here.console.is_terminal:
                        kills, seconds = result.counts["kills"], result.counts["seconds"]
                        print(f"{name}: {kills} kills in {seconds} s, {len(result.findings)} findings", flush=True)
    return [ended[name] for name in names]


def _folder(here: Surroundings, name: str) -> Path:
    return here.base / name.replace(" ", "-")


def _begun(name: str, given: argparse.Namespace, here: Surroundings) -> int:
    """A process that tries one operation, and leaves what came of it in its folder. Returns its id."""
    folder = _folder(here, name)
    folder.mkdir()
    worker = os.fork()
    if worker:
        return worker
    try:
        result = _tried(name, given, folder, here.seed)
        (folder / _RESULT).write_bytes(pickle.dumps(result))
    except BaseException:  # noqa: BLE001 - it is the answer
        failed = Result(name, findings=[f"{name}: {traceback.format_exc()}"])
        (folder / _RESULT).write_bytes(pickle.dumps(failed))
    finally:
        os._exit(0)


def _result(folder: Path, name: str) -> Result:
    path = folder / _RESULT
    if not path.exists():
        return Result(name, findings=[f"{name}: its process was killed"])
    found: Result = pickle.loads(path.read_bytes())
    return found


def _tried(name: str, given: argparse.Namespace, folder: Path, seed: int) -> Result:
    began = time.monotonic()
    trials = Trials(OPERATIONS[name], folder, random.Random(f"{seed}/{name}"))
    if given.some:
        places = some_of(trials.in_order(lambda made: made.changes), given.some, given.day)
        result = trials.try_each(places, 1 if given.plant else MOST_FINDINGS)
    else:
        result = trials.run(given.kills, lambda kills: (folder / _PROGRESS).write_text(str(kills)))
    result.counts["seconds"] = round(time.monotonic() - began)
    return result


if __name__ == "__main__":
    sys.exit(main())
