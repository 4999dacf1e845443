"""Run the benchmarks, or those that are named, and write RESULTS.md: the figures, the command, the day and the machine.

``--quick`` runs those that need a few seconds each and no Spark, and only prints. ``--trial`` runs a little of all of
them, to see that they run, and only prints. Both fail only if a benchmark cannot run.
"""

from __future__ import annotations

import datetime
import os
import platform
import subprocess
import sys
from pathlib import Path

import click

SCRIPTS = {
    "Small transactions": "transactions",
    "Log bytes of small transactions": "log_bytes",
    "Requests of a commit on S3": "requests",
    "Partitions": "partitions",
    "Receiving and acknowledging": "acknowledge",
    "Reading small segments": "small_reads",
    "Opening": "opening",
    "Merging small segments": "optimize",
    "Operating": "operating",
    "Holes": "holes",
    "Simulation": "simulation",
    "Scans in Spark": "scan",
    "Writes in Spark": "spark_write",
    "Streams in Spark": "spark_stream",
    "Running aggregates in Spark": "spark_state",
    "Newest rows in Spark": "spark_newest",
    "From Kafka in Spark": "spark_kafka",
    "Topics as Delta tables": "publication",
}
QUICK = {
    "transactions": ["--seconds", "6"],
    "log_bytes": [],
    "requests": [],
    "partitions": [],
    "acknowledge": [],
    "operating": ["--quick"],
    "holes": ["--rows", "100000", "--turns", "3"],
}
"""What the quick tier runs, and with which arguments."""

TRIAL = QUICK | {
    "transactions": ["--seconds", "2"],
    "small_reads": ["three", "--turns", "1"],
    "opening": ["--transactions", "100"],
    "optimize": ["100"],
    "simulation": ["--schedules", "20"],
    "scan": ["--rows", "100000", "--turns", "1"],
    "spark_write": ["--rows", "100000", "--turns", "1"],
    "spark_stream": ["--batches", "4", "--turns", "1"],
    "spark_state": ["--keys", "1000", "--rows", "3000", "--batches", "4", "--turns", "1"],
    "spark_newest": ["--rows", "100000", "--keys", "10000", "--turns", "1"],
    "spark_kafka": ["--messages", "20000", "--turns", "1"],
    "publication": ["--seconds", "4", "--rows", "100000", "--versions", "100", "--turns", "1"],
}
"""As little as each can run with."""

RESULTS = Path(__file__).parent / "RESULTS.md"


def machine() -> str:
    """Processor, cores, memory, Python."""
    model = next(
        (line.split(":", 1)[1].strip() for line in _cpuinfo() if line.startswith("model name")), platform.machine()
    )
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    return f"{model}, {os.cpu_count()} cores, {memory:.0f} GiB, {platform.system()}, Python {platform.python_version()}"


def _cpuinfo() -> list[str]:
    path = Path("/proc/cpuinfo")
    return path.read_text(encoding="utf-8").splitlines() if path.exists() else []


@click.command()
@click.argument("names", nargs=-1)
@click.option("--quick", is_flag=True, help="A few seconds each, without Spark; printed only.")
@click.option("--trial", is_flag=True, help="A little of each; printed only.")
def main(names: tuple[str, ...], quick: bool, trial: bool) -> None:
    """Run the benchmarks of these NAMES, by default all."""
    given = QUICK if quick else TRIAL if trial else {}
    chosen = names or tuple(given or SCRIPTS.values())
    if unknown := set(chosen) - set(SCRIPTS.values()):
        raise click.UsageError(
            f"There is no benchmark {', '.join(sorted(unknown))}; {', '.join(SCRIPTS.values())} are."
        )
    failed: list[str] = []
    for title, script in SCRIPTS.items():
        if script not in chosen:
            continue
        print(f"== {title} ({script})", flush=True)
        command = [sys.executable, "-m", f"benchmarks.{script}", *given.get(script, [])]
        done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False)
        print(done.stdout, flush=True)
        if done.returncode:
            failed.append(f"benchmarks.{script} ended with {done.returncode}")
        elif not given:
            record(title, f"`python -m benchmarks.{script}`, {today()}, on {machine()}\n\n{done.stdout.strip()}\n")
    if failed:
        sys.exit("\n".join(failed))


def today() -> str:
    """The date, in UTC."""
    return datetime.datetime.now(datetime.UTC).date().isoformat()


def record(title: str, text: str) -> None:
    """Put one section into RESULTS.md; the others stay as they are."""
    known = RESULTS.read_text(encoding="utf-8") if RESULTS.exists() else ""
    sections = dict(part.split("\n\n", 1) for part in known.split("\n## ")[1:])
    sections[title] = text
    head = (
        "# Figures\n\nMeasured by `make bench-all`: local disk, every write fsynced. "
        "Ratios are medians of pairs measured in one run, in turns (A B A B).\n"
        "Each section names its day and its machine. [README.md](README.md) says what else there is.\n"
    )
    ordered = [f"## {name}\n\n{sections[name].strip()}\n" for name in SCRIPTS if name in sections]
    RESULTS.write_text("\n".join([head, *ordered]), encoding="utf-8")


if __name__ == "__main__":
    main()
