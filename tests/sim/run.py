"""``make sim``: all kept seeds, every planted bug, and many fresh schedules.

Exit code 1 where a schedule failed, for a bug that was not found, and where a situation was never reached. The first
fresh seed is drawn, and printed; ``--seed`` repeats a run.
"""

from __future__ import annotations

import ast
import hashlib
import logging
import random
import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Final, NamedTuple

import click

from tests.sim.planted import ALARM, MOST_SCHEDULES, schedules_until_found
from tests.sim.planted_all import ALL_MUTANTS
from txnlog.testing.runner import Tally, process_pool, run_many, run_seeds
from txnlog.testing.simulation import Simulation
from txnlog.testing.workloads import Workload

KEPT: Final = Path(__file__).parent / "seeds.txt"
"""Seeds that found something once, a line each."""


class Besides(NamedTuple):
    """The runs of one workload besides the plain ones.

    Attributes:
        share: one of so many schedules more is of it; of the crowded ones it is no schedule more, but every other one.
        reached: what has to happen in many of them.
    """

    share: int
    reached: tuple[str, ...]


BESIDES: Final[dict[Workload, Besides]] = {
    "crowded": Besides(
        2,
        (
            "a commit was brought by another writer",
            "a proposal was made void",
            "a proposal was put",
            "numbers were reserved by another writer",
            "segments were replaced",
            "who collects was said",
        ),
    ),
    "maintained": Besides(
        3,
        (
            "a topic was altered",
            "a vacuum deleted files of merged segments",
            "an optimize planned again",
            "segments were merged",
        ),
    ),
    "retained": Besides(
        3,
        (
            "messages were deleted by hand",
            "messages were deleted by retention",
            "segments were replaced",
        ),
    ),
    "erased": Besides(3, ("messages were erased", "segments were replaced")),
    "expired": Besides(3, ("messages expired", "messages were deleted by retention", "segments were replaced")),
    "compacted": Besides(
        10,
        (
            "a compaction decided again",
            "a compaction left a part",
            "a compaction took several entries",
            "a dead letter",
            "a key ended for good",
            "a vacuum deleted files of merged segments",
            "maintenance compacted a topic",
            "messages were compacted",
            "segments were merged",
            "segments were replaced",
            "settings of compaction were altered",
        ),
    ),
    "truncated": Besides(
        10,
        (
            "a topic was truncated",
            "a truncation was refused: a subscription needs the messages",
            "commit_async: InvalidInputError",
            "messages were deleted by hand",
            "segments were merged",
            "segments were replaced",
        ),
    ),
    "restored": Besides(
        30,
        (
            "a backup had nothing to copy",
            "a backup was continued",
            "a namespace was restored",
            "a restore was refused, since it had ended",
            "a restore was repeated",
            "an earlier backup was restored",
            "backup: VersionNotAvailable",
            "messages expired",
            "messages were erased",
            "segments were merged",
            "somebody went on in what was restored",
        ),
    ),
}
"""By workload what is run of it, and what that has to reach."""


def kept_seeds() -> list[int]:
    """All of them."""
    lines = KEPT.read_text(encoding="utf-8").splitlines()
    return [int(line) for line in lines if line and not line.startswith("#")]


def find_mutants(first: int, jobs: int) -> dict[str, int | None]:
    """By name of each planted bug how many schedules it took to find it, from a seed on; None: too many."""
    with process_pool(jobs, 2) as pool:
        found = pool.starmap(_find, [(number, first) for number in range(len(ALL_MUTANTS))], chunksize=1)
    return {mutant.name: count for mutant, count in zip(ALL_MUTANTS, found, strict=True)}


class Part(click.ParamType):
    """``2/5`` as a pair."""

    name = "part"

    def convert(self, value: str, param: click.Parameter | None, ctx: click.Context | None) -> tuple[int, int]:
        """See ParamType."""
        number, separator, parts = value.partition("/")
        if not (separator and number.isdecimal() and parts.isdecimal() and 1 <= int(number) <= int(parts)):
            self.fail(f"{value!r} is no part such as 2/5", param, ctx)
        return int(number), int(parts)


def code_digest() -> str:
    """Of all that a simulation runs of txnlog: parts of a run belong together where it is the same.

    Of what Python runs: comments and docstrings may change between two parts.
    """
    modules = sorted(name for name in sys.modules if name.partition(".")[0] == "txnlog")
    files = [file for name in modules if (file := sys.modules[name].__file__) is not None]
    return hashlib.sha256("\0".join([what_runs(Path(file).read_text()) for file in files]).encode()).hexdigest()[:16]


def what_runs(source: str) -> str:
    """A module without what Python does not run."""
    tree = ast.parse(source)
    for node in ast.walk(tree):
        body = getattr(node, "body", None)
        if isinstance(body, list):
            node.body = [line for line in body if not _is_text(line)]  # type: ignore[attr-defined]
    return ast.dump(tree)


def _is_text(line: ast.AST) -> bool:
    return isinstance(line, ast.Expr) and isinstance(line.value, ast.Constant) and isinstance(line.value.value, str)


def _find(number: int, first: int) -> int | None:
    return schedules_until_found(ALL_MUTANTS[number], first)


@click.command()
@click.option("--schedules", default=6_000, show_default=True, help="How many fresh ones; half of them crowded.")
@click.option("--seed", type=int, help="The first fresh seed; drawn where it is left out.")
@click.option("--jobs", default=2, show_default=True, help="Processes to run them in.")
@click.option("--part", type=Part(), default="1/1", help="2/5: the second fifth of the schedules, of --seed.")
@click.option("--only", multiple=True, type=click.Choice([*BESIDES]), help="Besides plain ones; else of all workloads.")
def main(schedules: int, seed: int | None, jobs: int, part: tuple[int, int], only: tuple[Workload, ...]) -> None:
    """Simulate clients of txnlog over a store with faults.

    A run that takes too long for one sitting goes in parts, if all of them print the same code and the same seed: the
    first one has the kept seeds and the planted bugs.
    """
    number, parts = part
    if parts > 1 and seed is None:
        raise click.UsageError("a part needs the --seed that all parts have")
    logging.getLogger("txnlog").setLevel(logging.ERROR)  # worlds that are left behind, with open transactions in them
    first = random.SystemRandom().randrange(10**12) if seed is None else seed
    click.echo(f"the first fresh seed is {first}; --seed {first} repeats this run; the code is {code_digest()}\n")
    kept, found = Tally(), {ALARM.name: 1}
    if number == 1:
        kept = run_seeds(kept_seeds())
        click.echo(f"{kept.schedules} kept seeds, {len(kept.failures)} failed\n")
        found = find_mutants(first, jobs)
        click.echo(_mutants(found, first))

    def run(count: int, workload: Workload) -> Tally:
        begin, end = count * (number - 1) // parts, count * number // parts
        return run_many(first + begin, end - begin, jobs=jobs, make=partial(Simulation, workload=workload))

    tally = run(schedules - schedules // 2, "plain")
    click.echo(tally.table())
    more: list[tuple[Tally, Sequence[str]]] = []
    for workload, besides in BESIDES.items():
        if only and workload not in only:
            continue
        runs = run(schedules // besides.share, workload)
        click.echo(f"\nwith --{workload}\n{runs.table()}")
        for name in runs.unreached(besides.reached):
            click.echo(f"{'NEVER':>12}  {name}")
        more.append((runs, besides.reached))
    sys.exit(1 if failed(kept, found, tally, more) else 0)


def _mutants(found: dict[str, int | None], first: int) -> str:
    lines = [f"{'planted bug':<50}{'seed':>16}{'schedules':>12}"]
    for name, count in found.items():
        seed = f"{first + count - 1}" if count else f"not within {MOST_SCHEDULES:,}"
        lines.append(f"{name:<50}{seed:>16}{count or 'NEVER':>12}")
    return "\n".join([*lines, ""])


def failed(
    kept: Tally,
    found: dict[str, int | None],
    tally: Tally,
    workloads: Sequence[tuple[Tally, Sequence[str]]],
) -> bool:
    """Whether anything is not as it has to be; the alarm rings in the first run, whatever the seed.

    Of each workload: its runs, and what they have to reach.
    """
    return bool(
        any(item.failures for item in (kept, tally, *(runs for runs, _ in workloads)))
        or tally.missing
        or any(runs.unreached(wanted) for runs, wanted in workloads)
        or None in found.values()
        or found[ALARM.name] != 1
    )


if __name__ == "__main__":
    main()
