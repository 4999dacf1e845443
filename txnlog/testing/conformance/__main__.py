"""``python -m txnlog.testing.conformance``: make the golden roots, ask a reader, or be the reader.

Exit code of ``run``: 0 where every case passed, else 1.
"""

from __future__ import annotations

import json
import sys
from functools import partial
from pathlib import Path

import click

from txnlog.cli.output import StatusLine
from txnlog.errors import TxnLogError
from txnlog.testing.conformance.cases import EXIT_CODES, GOLDEN, LEVELS, cases_of
from txnlog.testing.conformance.making import make
from txnlog.testing.conformance.reference import answer
from txnlog.testing.conformance.runner import Result, ask, run, table

_FAILED = 1


@click.group()
def main() -> None:
    """The conformance kit of PROTOCOL.md; conformance/README.md describes it."""


@main.command("make")
@click.argument("folder", type=click.Path(file_okay=False, path_type=Path))
@click.option("--seed", default=1, show_default=True, help="Other seeds give other rows, numbers and names of files.")
def make_command(folder: Path, seed: int) -> None:
    """Make all golden roots below FOLDER, with the answers of this txnlog."""
    make(folder, seed)
    click.echo(f"{len(cases_of(folder))} cases in {folder}")


@main.command("run")
@click.option("--golden", default=GOLDEN, type=click.Path(exists=True, path_type=Path), help="Other golden roots.")
@click.option("--only", multiple=True, help="Golden roots whose name begins so; may be given several times.")
@click.option("--jobs", default=1, show_default=True, help="Cases to ask at once.")
@click.argument("command", nargs=-1, required=True)
def run_command(golden: Path, only: tuple[str, ...], jobs: int, command: tuple[str, ...]) -> None:
    """Ask the reader COMMAND... all cases, and print which of its answers differ.

    On a terminal a line says meanwhile how many were asked; to a pipe or a file nothing but the table is written.
    """
    cases = [case for case in cases_of(golden) if not only or case.golden.startswith(only)]
    if not cases:
        raise click.UsageError("no golden root has such a name")
    with StatusLine() as status:
        done = wrong = 0

        def show(name: str) -> None:
            differ = f", {wrong} differ" if wrong else ""
            status.show(f"{done} of {len(cases)} cases{differ}: {name}")

        def progress(result: Result) -> None:
            nonlocal done, wrong
            done += 1
            wrong += result.difference is not None
            show(result.case.golden)

        show(cases[0].golden)
        results = run(cases, partial(ask, command), jobs=jobs, each=progress)
    click.echo(table(results))
    sys.exit(any(result.difference is not None for result in results))


@main.group()
def reference() -> None:
    """The reference: txnlog itself as a reader."""


@reference.command()
@click.argument("root", type=click.Path(path_type=Path))
@click.argument("namespace")
@click.argument("topic")
@click.argument("version")
@click.argument("level", type=click.Choice(LEVELS))
def read(root: Path, namespace: str, topic: str, version: str, level: str) -> None:
    """Print the rows of TOPIC at VERSION (a number, or "latest") as JSON, one a line."""
    try:
        found = answer(root, namespace, topic, version, level)
    except TxnLogError as error:
        click.echo(str(error), err=True)
        sys.exit(_FAILED)
    for row in found.rows:
        click.echo(json.dumps(row))
    sys.exit(EXIT_CODES[found.kind])


if __name__ == "__main__":
    main()
