"""``python -m benchmarks.peers``: list the questions, run them, or write the report of a run again."""

from __future__ import annotations

import contextlib
import datetime
import os
import shutil
import signal
import sys
import tempfile
import traceback
from collections.abc import Iterator
from pathlib import Path

import click
from rich.console import Console
from rich.table import Table

from benchmarks.peers import results
from benchmarks.peers.driver import Driver
from benchmarks.peers.questions import QUESTIONS
from benchmarks.peers.report import write
from benchmarks.peers.systems import ALL
from benchmarks.run import machine
from tools.install import ROOT

OUT = ROOT / "out" / "bench-peers"
KEPT = ROOT / "benchmarks" / "peers" / "results"
_RESULTS = "results.json"
_TRIAL = 0.1


@click.group()
def main() -> None:
    """The peers on this machine."""


@main.command("list")
def list_questions() -> None:
    """List the questions and the systems."""
    table = Table(title="Questions", title_justify="left")
    for heading in ("name", "asked"):
        table.add_column(heading)
    for question in QUESTIONS:
        table.add_row(question.name, question.asked)
    systems = Table(title="Systems", title_justify="left")
    for heading in ("name", "what a commit has reached when it returns"):
        systems.add_column(heading)
    for kind in ALL:
        systems.add_row(kind.name, kind.durability)
    console = Console()
    console.print(table)
    console.print(systems)


@main.command()
@click.argument("names", nargs=-1)
@click.option("--system", "chosen", multiple=True, help="Only systems whose name contains this; several may be given.")
@click.option("--minutes", default=30.0, show_default=True, help="No case begins after that.")
@click.option("--trial", is_flag=True, help="A tenth of everything, to see that it runs: its figures mean nothing.")
@click.option("--write", "keep", is_flag=True, help="Put the report into benchmarks/peers/results as well.")
@click.option("--out", type=click.Path(path_type=Path), default=OUT, help="Where the report goes.")
def run(names: tuple[str, ...], chosen: tuple[str, ...], minutes: float, trial: bool, keep: bool, out: Path) -> None:
    """Measure the questions of these NAMES, by default all, and write the report."""
    if unknown := set(names) - {question.name for question in QUESTIONS}:
        raise click.UsageError(f"There is no question {', '.join(sorted(unknown))}. `list` shows their names.")
    questions = [question for question in QUESTIONS if question.name in names or not names]
    if trial:
        questions = [question.shortened(_TRIAL) for question in questions]
    kinds = [
        kind
        for kind in ALL
        if any(kind in (case.systems or question.systems) for question in questions for case in question.cases)
        and (not chosen or any(part.lower() in kind.name.lower() for part in chosen))
    ]
    out.mkdir(parents=True, exist_ok=True)
    found = results.Run(
        command=" ".join(["python -m benchmarks.peers", *sys.argv[1:]]),
        date=datetime.datetime.now(datetime.UTC).date().isoformat(),
        machine=machine(),
    )
    # Whoever ends this program ends the servers with it.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    try:
        with scratch() as folder:
            driver = Driver(found, folder, minutes, lambda line: print(line, flush=True), lambda each: put(each, out))
            with driver.started(kinds):
                for question in questions:
                    driver.ask(question)
    except BaseException:  # noqa: BLE001 (it is printed, and ends the run)
        # The servers have ended. Clients in threads that still wait for them would keep this process for a minute.
        traceback.print_exc()
        sys.stderr.flush()
        os._exit(1)
    put(found, out)
    print(write(found, out))
    if keep:
        shutil.copytree(out, KEPT, dirs_exist_ok=True)


@main.command()
@click.option("--out", type=click.Path(path_type=Path, exists=True), default=OUT, help="Where the run's file lies.")
@click.option("--write", "keep", is_flag=True, help="Put the report into benchmarks/peers/results as well.")
def report(out: Path, keep: bool) -> None:
    """Write the report and the pictures of a run again."""
    print(write(results.load(out / _RESULTS), out))
    if keep:
        shutil.copytree(out, KEPT, dirs_exist_ok=True)


def put(found: results.Run, out: Path) -> None:
    """Keep what was found until now."""
    results.save(found, out / _RESULTS)


@contextlib.contextmanager
def scratch() -> Iterator[Path]:
    """A folder on the disk of the project, that the user of a database server can pass through."""
    parent = ROOT / "out"
    parent.mkdir(exist_ok=True)
    folder = Path(tempfile.mkdtemp(prefix="peers-", dir=parent))
    folder.chmod(0o711)
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main()
