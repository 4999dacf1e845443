"""Many runs: seeds in, a tally out. What the command line, the tests and the search for mutants share."""

from __future__ import annotations

import contextlib
import gc
import logging
import multiprocessing
import statistics
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import islice
from multiprocessing.pool import Pool
from typing import Final

from txnlog.testing.simulation import Failure, Report, Simulation

_COLLECT_EVERY: Final = 25
"""Runs between two collections of cycles: a collection in the middle of a run costs as much as the run."""

_CHUNK: Final = 25

_CHUNKS_A_PROCESS: Final = 32
"""A run leaves one to two megabytes behind."""

REACHED: Final = (
    "a batch of an aborted transaction is sent again outside of one",
    "a batch was skipped",
    "a checkpoint was made",
    "a dead letter",
    "a seek of all consumers of a Shared subscription",
    "a seek of one subscription",
    "a transaction was left open",
    "a transaction with sequences is done again",
    "a vacuum closed blocks",
    "a vacuum deleted files of aborted transactions",
    "a vacuum deleted files that nobody named",
    "acknowledge: TransactionConflict",
    "ambiguous put resolved as another's",
    "ambiguous put resolved as mine",
    "an administrator sought",
    "an entry names a checkpoint",
    "an overdue transaction ended with an entry",
    "asked for an outcome: ABORTED",
    "asked for an outcome: COMMITTED",
    "clock: jump",
    "clock: stop",
    "commit again after an abortable error",
    "commit again after an unknown outcome",
    "commit again after success",
    "commit: OutcomeUnknown",
    "commit: ProducerFenced",
    "commit: StoreError",
    "commit: TransactionAborted",
    "commit: TransactionTimedOut",
    "commit_async: ProducerFenced",
    "commit_async: TransactionTimedOut",
    "completed by another client",
    "completed: False",
    "completed: True",
    "crash with an entry in flight, applied",
    "crash with an entry in flight, delayed",
    "crash with an entry in flight, dropped",
    "crash",
    "damage at rest: cut of entry",
    "damage at rest: deletion of checkpoint",
    "damage at rest: deletion of segment",
    "damage at rest: flip of entry",
    "damage at rest: flip of segment",
    "damage at rest: swap of entry",
    "damage at rest: swap of segment",
    "damage was reported",
    "damaged entry was read",
    "entry of unknown outcome created by a later put",
    "everything was released",
    "failover: a seek has to wait, too",
    "failover: fenced during a pause",
    "failover: took over, the other was closed",
    "failover: took over, the other was silent for its lease",
    "failover: waits",
    "forced an outcome: ABORTED",
    "late entry found itself in the slot",
    "late entry found the slot occupied by another",
    "late entry landed of the living",
    "lost a race for a slot",
    "messages released while they are pending",
    "messages released whose transaction was aborted",
    "messages were released",
    "open_consumer: OutcomeUnknown",
    "open_producer: ClockSkew",
    "open_producer: OutcomeUnknown",
    "opened from a checkpoint",
    "prepared, and nobody heard of it",
    "produce: OutcomeUnknown",
    "produce: ProducerFenced",
    "produce: TransactionTimedOut",
    "read at the oldest readable version",
    "read: VersionNotAvailable",
    "receive: ConsumerFenced",
    "refused: a number of a closed block",
    "seek: InvalidTransactionState",
    "several commits in one entry",
    "shared messages came again",
    "slot free after an unknown outcome: the same bytes again",
    "storm of 409",
    "storm of 429",
    "storm of 500",
    "storm of 503",
    "storm of expired",
    "the opposite decision was refused",
    "torn upload arrives late",
    "torn upload never arrives",
)
"""Situations that a long run has to reach: without them it would prove less than it seems to."""

LONG: Final = 6_000
"""Schedules from which on a run is long."""


@dataclass
class Tally:
    """What some runs came to.

    Attributes:
        schedules: how many there were.
        elapsed_s: wall time in seconds.
        processor_s: processor time in seconds, of all processes together.
        requests: of each run.
        actors: of each run, how many.
        faults: of each run, how many kinds were on.
        labels: situations, with the number of times they were reached.
        failures: by seed.
    """

    schedules: int = 0
    elapsed_s: float = 0.0
    processor_s: float = 0.0
    requests: list[int] = field(default_factory=list)
    actors: list[int] = field(default_factory=list)
    faults: list[int] = field(default_factory=list)
    labels: Counter[str] = field(default_factory=Counter)
    failures: dict[int, list[Failure]] = field(default_factory=dict)

    def add(self, report: Report) -> None:
        """Count a run."""
        self.schedules += 1
        self.requests.append(report.requests)
        self.actors.append(len(report.actors))
        self.faults.append(len(report.faults.rates))
        self.labels.update(report.labels)
        if report.failures:
            self.failures[report.seed] = report.failures

    def merge(self, other: Tally) -> None:
        """Count the runs of another tally."""
        self.schedules += other.schedules
        self.processor_s += other.processor_s
        self.requests += other.requests
        self.actors += other.actors
        self.faults += other.faults
        self.labels.update(other.labels)
        self.failures.update(other.failures)

    @property
    def missing(self) -> list[str]:
        """What a long run of random schedules should have come to and did not; it failed then, as by a failure."""
        return self.unreached(REACHED)

    def unreached(self, situations: Iterable[str]) -> list[str]:
        """Those of some labels that were never reached in a long run: a short one need not come to all."""
        return [name for name in situations if not self.labels[name]] if self.schedules >= LONG else []

    @property
    def rate(self) -> float:
        """Schedules a second of one core: by processor time, whoever else uses the machine."""
        return self.schedules / self.processor_s if self.processor_s else 0.0

    def table(self) -> str:
        """All of it, for people."""
        lines = [
            f"{'schedules':<28}{self.schedules:>10,}",
            f"{'seconds':<28}{self.elapsed_s:>10.1f}",
            f"{'schedules a second and core':<28}{self.rate:>10.1f}",
        ]
        if len(self.requests) > 1:
            low, median, high = (round(cut) for cut in _spread(self.requests))
            lines += [
                f"{'requests: tenth, median':<28}{low:>10,}{median:>10,}",
                f"{'requests: nine tenths, most':<28}{high:>10,}{max(self.requests):>10,}",
                f"{'actors, median':<28}{statistics.median(self.actors):>10g}",
                f"{'kinds of fault on, median':<28}{statistics.median(self.faults):>10g}",
            ]
        lines += ["", f"labels ({len(self.labels)})"]
        lines += [
            f"{count:>12,}  {name}" for name, count in sorted(self.labels.items(), key=lambda item: item[0].lower())
        ]
        lines += [f"{'NEVER':>12}  {name}" for name in self.missing]
        lines += ["", f"{'schedules that failed':<28}{len(self.failures):>10,}"]
        for seed, failures in sorted(self.failures.items()):
            lines.append(f"  seed {seed}: TXNLOG_SIM_SEED={seed} python -m txnlog.testing")
            lines += [f"    {str(failure)[:1_000]}" for failure in failures[:4]]
        return "\n".join(lines)


def _spread(numbers: Sequence[int]) -> tuple[float, float, float]:
    cuts = statistics.quantiles(numbers, n=10, method="inclusive")
    return cuts[0], statistics.median(numbers), cuts[-1]


def run_seeds(
    seeds: Iterable[int],
    *,
    make: Callable[[int], Simulation] = Simulation,
    each: Callable[[Report], bool] = lambda _report: True,
) -> Tally:
    """Run seeds one by one; ``make`` gives a seed its simulation, ``each`` sees reports and says whether to go on."""
    tally = Tally()
    began, used = time.monotonic(), time.process_time()
    with _collecting_between_runs() as collect:
        for number, seed in enumerate(seeds, start=1):
            report = make(seed).run()
            tally.add(report)
            if not each(report):
                break
            if number % _COLLECT_EVERY == 0:
                collect()
    tally.elapsed_s, tally.processor_s = time.monotonic() - began, time.process_time() - used
    return tally


@contextlib.contextmanager
def _collecting_between_runs() -> Iterator[Callable[[], object]]:
    """Cycles are collected between runs only, and what was there before the first run is not looked at again.

    Not at all in a process that is prepared for runs: it is replaced by another one before they are too many.
    """
    if not gc.isenabled():
        yield lambda: None
        return
    gc.collect()
    gc.freeze()
    gc.disable()
    try:
        yield gc.collect
    finally:
        gc.enable()
        gc.unfreeze()


def run_many(
    first: int,
    count: int,
    *,
    jobs: int = 1,
    make: Callable[[int], Simulation] = Simulation,
    progress: Callable[[int], None] = lambda _done: None,
) -> Tally:
    """Run ``count`` seeds from ``first`` on, in ``jobs`` processes; ``progress`` is called with how many are done."""
    tally = Tally()
    run = partial(run_seeds, make=make)
    began = time.monotonic()
    chunks = _chunks(range(first, first + count))
    if jobs == 1:
        for chunk in chunks:
            tally.merge(run(chunk))
            progress(tally.schedules)
    else:
        with process_pool(jobs, _CHUNKS_A_PROCESS) as pool:
            for part in pool.imap_unordered(run, chunks):
                tally.merge(part)
                progress(tally.schedules)
    tally.elapsed_s = time.monotonic() - began
    return tally


def process_pool(jobs: int, tasks: int) -> Pool:
    """Processes for runs, each for so many tasks: what runs leave behind goes with it, which takes no time."""
    return multiprocessing.get_context("spawn").Pool(jobs, _prepare_process, maxtasksperchild=tasks)


def _prepare_process() -> None:
    """Once in each process: nothing is collected in it, and nobody is warned of what runs leave behind."""
    logging.getLogger("txnlog").setLevel(logging.ERROR)
    gc.disable()


def _chunks(seeds: Iterable[int]) -> Iterator[list[int]]:
    left = iter(seeds)
    while chunk := list(islice(left, _CHUNK)):
        yield chunk


__all__ = ["LONG", "REACHED", "Tally", "process_pool", "run_many", "run_seeds"]
