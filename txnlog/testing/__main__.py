"""``python -m txnlog.testing``: simulate, and say what was found.

Exit code 1 where a schedule failed, or when a long run reached too little.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import partial

import click

from txnlog.testing import runner
from txnlog.testing.runner import Tally
from txnlog.testing.simulation import Report, Simulation
from txnlog.testing.workloads import ADDITIONS, WORKLOADS, Workload

Make = Callable[[int], Simulation]
Command = Callable[..., None]


def _with_workloads(command: Command) -> Command:
    """A flag for each workload that adds something, in their order."""
    for name, addition in reversed(ADDITIONS.items()):
        command = click.option(f"--{name}", is_flag=True, help=addition.text)(command)
    return command


@click.command()
@click.option("--schedules", default=1_000, show_default=True, help="How many seeds to run.")
@click.option("--seed", default=0, show_default=True, help="The first seed.")
@click.option("--jobs", default=1, show_default=True, help="Processes to run them in.")
@click.option("--trace", is_flag=True, help="Print every event of the last run.")
@_with_workloads
@click.option("--replay", envvar="TXNLOG_SIM_SEED", type=int, help="Run this one seed again (or TXNLOG_SIM_SEED).")
def main(
    schedules: int,
    seed: int,
    jobs: int,
    replay: int | None,
    *,
    trace: bool,
    **chosen: bool,
) -> None:
    """Simulate clients of txnlog over a store with faults, and judge the answers that they got."""
    workload = _workload(chosen)
    make: Make = partial(Simulation, workload=workload)
    tally = _replay(replay, make, trace=trace) if replay is not None else _search(seed, schedules, jobs, make)
    click.echo(tally.table())
    sys.exit(1 if tally.failures or (tally.missing and workload == "plain") else 0)


def _workload(chosen: dict[str, bool]) -> Workload:
    """The one that was asked for, by the options of their names."""
    asked: list[Workload] = [name for name in WORKLOADS if chosen.get(name)]
    if len(asked) > 1:
        raise click.UsageError(f"give one of {', '.join(f'--{name}' for name in asked)}: each is a workload of its own")
    return asked[0] if asked else "plain"


def _replay(seed: int, make: Make, *, trace: bool) -> Tally:
    """One seed, with its trace if asked for."""

    def show(report: Report) -> bool:
        if trace:
            click.echo("\n".join(report.trace))
        click.echo(f"seed {seed}, trace {report.trace_hash}\nactors {', '.join(report.actors)}\nfaults {report.faults}")
        return True

    return runner.run_seeds([seed], make=make, each=show)


def _search(seed: int, schedules: int, jobs: int, make: Make) -> Tally:
    """Many seeds; how far it got is shown on a terminal only."""
    click.echo(f"seeds {seed} to {seed + schedules - 1}", err=True)
    shows = sys.stderr.isatty()

    def progress(done: int) -> None:
        if shows:
            click.echo(f"\r{done:,} of {schedules:,}", err=True, nl=done >= schedules)

    return runner.run_many(seed, schedules, jobs=jobs, make=make, progress=progress)


if __name__ == "__main__":
    main()
