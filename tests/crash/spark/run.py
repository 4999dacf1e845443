"""Kill Spark until so much of it died: ``python -m tests.crash.spark.run [--drivers 100] [--executors 50] [--seed N]``.

Drivers are processes of their own with ``local[2]``, killed at places of batches and started again until all orders are
taken. Executors are those of a standalone cluster on two addresses of the loopback, so that Spark runs speculative
copies; one driver lives through all of that. Every engine does both. Then every version is read, and compared with
an undisturbed run. Fails for any finding, and for too little of anything.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import math
import os
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

import txnlog
from examples.demo.kills import Kill, Place, kill_plan
from examples.demo.runs import DemoFailed, Event, run_with_kills
from tests.crash.harness.command_line import Surroundings, add_arguments
from tests.crash.harness.run import Line, table, too_little
from tests.crash.spark import workers
from tests.crash.spark.broker import running_broker
from tests.crash.spark.deaths import Manner, death_of, processes_of
from tests.crash.spark.driver import REPOSITORY, events_of, root_of
from tests.crash.spark.history import MOST_FINDINGS, History, differences, read_history
from tests.crash.spark.orders import Blow, Board, Moment, orders_for
from tests.crash.spark.workload import NAMESPACE, REAL, Engine, expected, prepare
from tests.places.servers import standalone_cluster

DRIVER = "tests.crash.spark.driver"
HOSTS = ("127.0.0.1", "127.0.0.2")
ENDING_S = 120

LEAST_AT_A_PLACE = 10
MANY_KILLS = 100

Watch = Callable[[int], object]
"""Told how many kills there were so far."""


@dataclass
class Outcome:
    """What one run did, and what came of it."""

    engine: Engine
    what: str
    seconds: float = 0.0
    figures: Counter[str] = field(default_factory=Counter)
    history: History = field(default_factory=History)
    findings: list[str] = field(default_factory=list)

    @property
    def title(self) -> str:
        """For findings."""
        return f"{self.engine.value}, {self.what}"

    @property
    def counts(self) -> Counter[str]:
        """All that was counted."""
        more = {
            "batches": len(self.history.steps),
            "versions": self.history.versions,
            "garbage": self.history.garbage,
            "seconds": round(self.seconds),
            "findings": len(self.findings),
            "restarts": self.figures["drivers"] - 1,
            "executors later": self.figures["executors"] - self.figures["executor"],
        }
        return Counter({**self.figures, **more})


# --- runs -------------------------------------------------------------------------------------------------------------


def undisturbed(folder: Path, engine: Engine, seed: int, batches: int) -> Outcome:
    """A run that nobody kills."""
    return _carried_out(folder, engine, "undisturbed", seed, batches, [])


def with_dead_drivers(
    folder: Path, engine: Engine, seed: int, kills: Sequence[Kill], batches: int, watch: Watch = lambda _: None
) -> Outcome:
    """Drivers that die at places, one after the other."""
    outcome = _carried_out(folder, engine, "drivers", seed, batches, kills, watch=watch)
    zombies = folder / workers.ZOMBIES
    for answer in zombies.read_text().split() if zombies.exists() else ():
        outcome.figures["zombies"] += 1
        outcome.figures["zombies too late"] += answer != workers.IN_TIME
    return outcome


def batches_for(kills: int) -> int:
    """Batches enough for so many deaths of drivers, some of which come a moment later than planned."""
    return 4 * kills + 2


def with_dead_executors(
    folder: Path,
    engine: Engine,
    seed: int,
    blows: Mapping[Blow, int],
    batches: int,
    watch: Watch = lambda _: None,
) -> Outcome:
    """One driver, whose cluster suffers so many of each blow."""
    board = Board(folder / workers.ORDERS)
    wanted = orders_for(f"{seed} {engine.value}", blows)
    board.write(wanted)
    place = folder / "cluster"
    place.mkdir()
    with standalone_cluster(place, HOSTS) as url, _watching(board, watch):
        outcome = _carried_out(folder, engine, "executors", seed, batches, [], master=url)
    done = board.done()
    if len(done) < len(wanted):
        outcome.findings.append(f"of {len(wanted)} orders {len(done)} were carried out: more batches are needed")
    for order in done:
        outcome.figures[order.blow.value] += 1
        if order.blow is Blow.EXECUTOR:
            outcome.figures[f"executor {order.moment.value} the file"] += 1
    killed = folder / workers.KILLED
    outcome.figures["executors"] = len(killed.read_text().split()) if killed.exists() else 0
    outcome.figures += told_by_spark(events_of(folder))
    return outcome


@contextlib.contextmanager
def _watching(board: Board, watch: Watch) -> Iterator[None]:
    """Inside, ``watch`` is told how many orders are carried out: the driver knows nothing of them."""
    ended = threading.Event()

    def look() -> None:
        while not ended.wait(0.5):
            watch(len(board.done()))

    thread = threading.Thread(target=look, daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


def told_by_spark(events: Path) -> Counter[str]:
    """What Spark itself wrote down: speculative copies, attempts that did not succeed, executors lost."""
    found: Counter[str] = Counter()
    for log in events.iterdir():
        for line in log.read_text().splitlines():
            event = json.loads(line)
            match event["Event"]:
                case "SparkListenerTaskStart":
                    found["speculative"] += event["Task Info"]["Speculative"]
                case "SparkListenerTaskEnd":
                    found["attempts lost"] += event["Task End Reason"]["Reason"] != "Success"
                case "SparkListenerExecutorRemoved":
                    found["executors lost"] += 1
    return found


def _carried_out(
    folder: Path,
    engine: Engine,
    what: str,
    seed: int,
    batches: int,
    kills: Sequence[Kill],
    master: str | None = None,
    watch: Watch = lambda _: None,
) -> Outcome:
    """Make the orders, run drivers until all are taken, read what there is."""
    folder.mkdir(parents=True, exist_ok=True)
    root = str(root_of(folder))
    with txnlog.open(root, NAMESPACE, create=True) as ns:
        prepare(ns, batches)
    outcome = Outcome(engine, what)
    if engine is Engine.INGEST:
        with running_broker(folder, batches):
            return _run(folder, outcome, seed, batches, kills, master, watch)
    return _run(folder, outcome, seed, batches, kills, master, watch)


def _run(
    folder: Path,
    outcome: Outcome,
    seed: int,
    batches: int,
    kills: Sequence[Kill],
    master: str | None,
    watch: Watch,
) -> Outcome:
    engine, root = outcome.engine, str(root_of(folder))
    began = time.monotonic()
    sessions: list[int] = []

    def on_event(event: Event) -> None:
        if event["event"] == "started":
            sessions.append(event["pid"])
        watch(len(sessions) - 1)

    arguments = [str(folder), engine.value, str(seed), *(["--master", master] if master else [])]
    try:
        for death in run_with_kills(DRIVER, arguments, kills, folder / "log", on_event):
            outcome.figures["kills"] += 1
            outcome.figures[death.kill.place.value] += 1
            outcome.figures[death_of(seed, engine, death.kill).manner.name] += 1
    except DemoFailed as error:
        outcome.findings.append(str(error))
    _wait_for_the_end(sessions, outcome)
    outcome.figures["drivers"] = len(sessions)
    outcome.seconds = time.monotonic() - began
    outcome.history = read_history(root, engine)
    outcome.findings += outcome.history.findings
    outcome.findings += differences(outcome.history.steps, expected(engine, batches))
    return outcome


def _wait_for_the_end(sessions: Sequence[int], outcome: Outcome) -> None:
    """What a driver left behind may still write; it must end by itself."""
    deadline = time.monotonic() + ENDING_S
    while left := {process: text for session in sessions for process, text in processes_of(session).items()}:
        if time.monotonic() > deadline:
            outcome.findings.append(f"processes of dead drivers are still there: {left}")
            return
        time.sleep(0.1)


# --- all of it --------------------------------------------------------------------------------------------------------


def compare(engine: Engine, reference: Outcome, outcomes: Sequence[Outcome]) -> None:
    """Add to the findings where a run is not what the undisturbed one was."""
    for outcome in outcomes:
        wanted = reference.history.steps[: len(outcome.history.steps)]
        texts = differences(outcome.history.steps, wanted)
        outcome.findings += [f"unlike the undisturbed run of {engine.value}: {text}" for text in texts]


def missed(outcomes: Sequence[Outcome], drivers: int, executors: int) -> list[str]:
    """What there was too little of."""
    figures = sum((outcome.figures for outcome in outcomes), Counter[str]())
    wanted = {"kills": drivers, "executors": executors}
    if drivers >= MANY_KILLS:
        wanted |= {place.value: LEAST_AT_A_PLACE for place in Place}
        wanted |= {manner.name: LEAST_AT_A_PLACE for manner in (Manner.THERE, Manner.LATER)}
        if any(outcome.engine.is_sink for outcome in outcomes):
            wanted["zombies"] = 1
    if executors >= MANY_KILLS // 2:
        wanted |= {f"executor {moment.value} the file": LEAST_AT_A_PLACE for moment in Moment} | {"speculative": 10}
    return too_little(wanted, figures)


ALL_LINES: tuple[Line, ...] = (
    ("batches", "batches"),
    ("versions read", "versions"),
    ("files left that no entry names", "garbage"),
    ("seconds", "seconds"),
)
DRIVER_LINES: tuple[Line, ...] = (
    ("drivers killed", "kills"),
    *((f"  {place.title}", place.value) for place in Place),
    *((f"  of all {manner.value}", manner.name) for manner in Manner),
    ("sinks that outlived their driver, and came back", "zombies"),
    ("  of them too late: refused, or the batch was there", "zombies too late"),
    ("restarts", "restarts"),
    *ALL_LINES,
)
EXECUTOR_LINES: tuple[Line, ...] = (
    ("executors killed", "executors"),
    ("  by a task, before its file", "executor before the file"),
    ("  by a task, behind its file, before its answer", "executor after the file"),
    ("  at some other moment", "executors later"),
    ("Python processes of tasks killed", "worker"),
    ("tasks made slow", "slow"),
    ("speculative copies that Spark ran", "speculative"),
    ("attempts lost", "attempts lost"),
    *ALL_LINES,
)
LINES = {"drivers": DRIVER_LINES, "executors": EXECUTOR_LINES, "undisturbed": ALL_LINES}


def tables(outcomes: Sequence[Outcome]) -> Iterator[Table]:
    """What was done and what came of it: a table for each kind of run that there was, a column for each engine."""
    for what, lines in LINES.items():
        columns = [(outcome.engine.value, outcome.counts) for outcome in outcomes if outcome.what == what]
        if columns:
            everything = sum((counts for _, counts in columns), Counter[str]())
            title = f"Spark, killed: {what}" if what != "undisturbed" else "Undisturbed"
            yield table(title, lines, [*columns, ("all", everything)])


KEPT = "namespaces and logs"


def main(arguments: Sequence[str] | None = None) -> int:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--drivers", type=int, default=100, metavar="KILLS", help="of drivers, at least (100)")
    parser.add_argument("--executors", type=int, default=50, metavar="KILLS", help="of executors, at least (50)")
    parser.add_argument("--engine", type=Engine, action="append", help="one of them only, may be repeated")
    add_arguments(parser, KEPT)
    given = parser.parse_args(arguments)
    engines = given.engine or REAL
    here = Surroundings.of(given, "crash-spark")
    find_project()
    outcomes: list[Outcome] = []
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=here.console, disable=not here.console.is_terminal) as progress:
        for engine in engines:
            outcomes += _of_engine(here.base / engine.name.lower(), engine, here.seed, given, len(engines), progress)
    for found_there in tables(outcomes):
        here.console.print(found_there)
    found = [f"{outcome.title}: {text}" for outcome in outcomes for text in outcome.findings[:MOST_FINDINGS]]
    found += missed(outcomes, given.drivers, given.executors)
    return here.end(found, KEPT)


def find_project() -> None:
    """Processes that Spark starts find the tests as this one does."""
    known = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    os.environ["PYTHONPATH"] = os.pathsep.join([str(REPOSITORY), *filter(None, known)])


def _of_engine(
    folder: Path, engine: Engine, seed: int, given: argparse.Namespace, engines: int, progress: Progress
) -> list[Outcome]:
    per_place = math.ceil(given.drivers / engines / len(Place))
    # Those of a later moment may come when the executor is gone already: they are not counted on.
    executors = math.ceil(given.executors / engines)
    few = math.ceil(executors / 3)
    blows = {Blow.EXECUTOR: executors, Blow.EXECUTOR_LATER: few, Blow.WORKER: few, Blow.SLOW: 2 * few}
    batches = batches_for(per_place * len(Place))
    # Three of five jobs that write are met, and to each topic there is one; the sink has one for all.
    jobs = 1 if engine.is_sink else len(engine.outputs)
    cluster_batches = 4 + sum(blows.values()) * (3 if jobs == 1 else 1)
    result: list[Outcome] = []

    def watched(title: str, total: int, run: Callable[[Watch], Outcome]) -> None:
        task = progress.add_task(f"{engine.value}, {title}", total=total)
        result.append(run(lambda done: progress.update(task, completed=done)))
        progress.update(task, completed=total)

    most = max(batches if given.drivers else 0, cluster_batches if given.executors else 0)
    watched("undisturbed", 1, lambda _: undisturbed(folder / "undisturbed", engine, seed, most))
    if given.drivers:
        plan = kill_plan(per_place, batches)
        run = folder / "drivers"
        watched("drivers", len(plan), lambda watch: with_dead_drivers(run, engine, seed, plan, batches, watch))
    if given.executors:
        place = folder / "executors"
        watched(
            "executors",
            sum(blows.values()),
            lambda watch: with_dead_executors(place, engine, seed, blows, cluster_batches, watch),
        )
    compare(engine, result[0], result[1:])
    return result


if __name__ == "__main__":
    sys.exit(main())
