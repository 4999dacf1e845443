"""Starts the processes of a run, kills and stops them, starts successors, and lets others look at what is left.

It imports everything and then only forks, so that a process is at work a few milliseconds after its start; it touches
no store itself, and signals only children that it has not reaped.
"""

from __future__ import annotations

import contextlib
import ctypes
import faulthandler
import gc
import json
import logging
import os
import random
import signal
import sys
import time
import traceback
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, TypeVar

import pyarrow.dataset
import pyarrow.parquet  # noqa: F401 - a worker that is forked need not import it
import s3fs  # noqa: F401 - a worker that is forked need not import it

from tests.crash.harness import journal, judging
from tests.crash.harness.faulty_store import deliver
from tests.crash.harness.member import BROKEN, DONE, FENCED, GAVE_UP, Member
from tests.crash.harness.plan import Board, Plan
from txnlog.store import open_store

P = TypeVar("P", bound=Plan)

_LATEST_SIGNAL_MS = 80.0
_EARLY = 0.1
_FIRST_WORKS = 3
_LATEST_WORK_SECONDS = 10.0
_LONGEST_WAIT_SECONDS = 2.0
_MOST_STOPPED = 2
_STOPPED_SECONDS = (0.2, 1.5)
_ENDING_SECONDS = 30.0
_PR_SET_PDEATHSIG = 1

PROGRESS = "progress.json"


@dataclass
class Process:
    """A worker's process that has not been reaped."""

    pid: int
    worker: int
    generation: int
    started: float
    first_works: int
    cont_at: float | None = None
    armed_works: int | None = None
    signal_at: float | None = None
    armed_until: float = 0.0

    @property
    def name(self) -> str:
        """As in the journals."""
        return journal.name_of(self.worker, self.generation)

    def is_at_work(self, board: Board, now: float) -> bool:
        """Whether it has got over its start, or takes very long for it."""
        return board.works(self.worker) >= self.first_works + _FIRST_WORKS or now >= self.started + _LATEST_WORK_SECONDS


class Unsettled:
    """The generations of a worker whose journals a new one must read: without this it would be all that ever were.

    Where all of them were dead when one started, and it recovered, they are settled, with what it found out.
    """

    def __init__(self) -> None:
        self._open: set[int] = set()
        self._seen_dead: tuple[int, frozenset[int]] | None = None

    def start(self, generation: int, *, alone: bool, recovered: int) -> frozenset[int]:
        """One starts: ``alone`` if no other one of its worker lives; ``recovered`` is the last one that did."""
        if self._seen_dead is not None and self._seen_dead[0] == recovered:
            self._open -= self._seen_dead[1]
        found = frozenset(self._open)
        self._seen_dead = (generation, found) if alone else None
        self._open.add(generation)
        return found


class Supervisor:
    """See the module. A subclass says who takes part, and what comes before and after the load."""

    keepers_share: ClassVar[float] = 0.12
    """Of all signals, those to keepers."""

    def __init__(self, plan: Plan) -> None:
        self._plan = plan
        self._chance = plan.random("supervisor")
        self.cast = self.members(plan)
        self._keepers = {number for number, kind in enumerate(self.cast) if kind.keeper}
        self.board = self._board = Board(len(self.cast))
        self._processes: dict[int, Process] = {}
        self._current: dict[int, int] = {}
        self._looked_at = 0.0
        self._generations: Counter[int] = Counter()
        self._unsettled: dict[int, Unsettled] = defaultdict(Unsettled)
        self.counts: Counter[str] = Counter()
        self.broken: list[str] = []

    @staticmethod
    def members(plan: Plan) -> Sequence[type[Member]]:
        """By number what each process is."""
        raise NotImplementedError

    def set_up(self) -> int:
        """Make the namespace and its topics."""
        raise NotImplementedError

    def checks(self) -> Mapping[str, Callable[[], int]]:
        """What fresh processes do after the load; the last one writes ``found.json``."""
        raise NotImplementedError

    def run(self) -> dict[str, object]:
        """The whole run; returns the report."""
        plan = self._plan
        for folder in (plan.journals, plan.spool, Path(plan.folder) / "logs"):
            folder.mkdir(parents=True)
        self.run_child("set_up", self.set_up)
        self.load()
        began = time.monotonic()
        calls = {
            "asking-first": lambda: judging.ask(plan, self.board, "first"),
            "the latest requests": lambda: deliver_rest(plan),
            "asking-second": lambda: judging.ask(plan, self.board, "second"),
            **self.checks(),
        }
        for name, call in calls.items():
            try:
                self.run_child(name, call)
            except RuntimeError as error:
                self.broken.append(str(error))  # whoever looks at what is left must always be able to
        path = Path(plan.folder) / "found.json"
        found = json.loads(path.read_text()) if path.exists() else {"findings": 0, "explained": [], "figures": {}}
        self.counts["milliseconds of checks"] = int(1e3 * (time.monotonic() - began))
        return {"broken": self.broken, "counts": dict(self.counts), "found": found}

    # --- children ---------------------------------------------------------------------------------------------------

    def _fork(self, log: str, call: Callable[[], int]) -> int:
        """A child that does one thing, and dies with this process."""
        sys.stdout.flush()
        sys.stderr.flush()
        pid = os.fork()
        if pid:
            return pid
        code = BROKEN
        try:
            with contextlib.suppress(OSError):
                ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
            file = os.open(Path(self._plan.folder) / f"{log}.log", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
            os.dup2(file, 1)
            os.dup2(file, 2)
            faulthandler.register(signal.SIGUSR1, file=2, all_threads=True)
            logging.basicConfig(format="%(asctime)s %(name)s %(message)s", level=logging.WARNING)
            code = call()
        except BaseException:  # noqa: BLE001 - a child must never come back into the parent's code
            traceback.print_exc()
        finally:
            with contextlib.suppress(BaseException):
                sys.stdout.flush()
                sys.stderr.flush()
            os._exit(code)

    def run_child(self, log: str, call: Callable[[], int]) -> None:
        """A fresh process for one thing, awaited; raises unless it says that it is done."""
        _, status = os.waitpid(self._fork(log, call), 0)
        if status:
            raise RuntimeError(f"{log} ended with {status}:\n{(Path(self._plan.folder) / f'{log}.log').read_text()}")

    def _start(self, number: int) -> None:
        generation = self._generations[number]
        self._generations[number] += 1
        name = journal.name_of(number, generation)
        alone = all(process.worker != number for process in self._processes.values())
        unsettled = self._unsettled[number].start(generation, alone=alone, recovered=self._board.recovered(number))
        kind = self.cast[number]
        pid = self._fork(f"logs/{name}", lambda: kind(self._plan, self._board, number, generation, unsettled).run())
        self._processes[pid] = Process(pid, number, generation, time.monotonic(), self._board.works(number))
        self._current[number] = pid
        self.counts["processes"] += 1

    def _signal(self, process: Process, number: signal.Signals) -> None:
        """Only to a child that was not reaped: its pid cannot have become somebody else's."""
        assert process.pid in self._processes, "not a child of ours any more"
        os.kill(process.pid, number)

    def _reap(self, *, restart: bool) -> None:
        for pid in list(self._processes):
            found, status = os.waitpid(pid, os.WNOHANG)
            if found:
                process = self._processes.pop(pid)
                self.count_end(process, status)
                if restart and self._current[process.worker] == pid:
                    self._start(process.worker)

    def count_end(self, process: Process, status: int) -> None:
        """Count how a process ended; what must not be is broken."""
        if os.WIFSIGNALED(status):
            number = os.WTERMSIG(status)
            if number == signal.SIGKILL:
                self.counts["kills"] += 1
                self.counts["keepers killed"] += process.worker in self._keepers
            else:
                self.broken.append(f"{process.name} died of signal {number}")
            return
        code = os.WEXITSTATUS(status)
        names = {DONE: "done", FENCED: "fenced", GAVE_UP: "gave up"}
        if code in names:
            self.counts[names[code]] += 1
        else:
            self.broken.append(f"{process.name} broke: see its journal and its log")

    # --- the load ---------------------------------------------------------------------------------------------------

    def load(self) -> None:
        """Workers at work, dying, for the planned time and until the least numbers are met."""
        plan = self._plan
        helpers = {name: self._fork(name, call) for name, call in self.helpers().items()}
        for number in range(len(self.cast)):
            self._start(number)
        began = time.monotonic()
        next_signal = began + 1.0
        while not self.broken and not self._board.stopped:
            now = time.monotonic()
            if now >= self._looked_at + 0.5:
                self._looked_at = now
                self._tell(now - began)
                if now - began >= plan.seconds and self._over(now - began):
                    break
            self._reap(restart=True)
            if now >= next_signal:
                next_signal = now + self._chance.expovariate(plan.kills_per_second)
                self._arm(now)
            for process in list(self._processes.values()):
                self._attend(process, now)
            time.sleep(0.002)
        self.counts["milliseconds"] = int(1e3 * (time.monotonic() - began))
        self._finish(helpers)

    def _over(self, seconds: float) -> bool:
        """Whether the least numbers are met, or the time is over. Reading all journals takes long: at the end only."""
        plan = self._plan
        if seconds >= plan.longest_seconds:
            return True
        if any(self.counts[name] < wanted for name, wanted in plan.least_counts.items()):
            return False
        figures = self.figures()
        return all(figures[name] >= wanted for name, wanted in plan.least_figures.items())

    def figures(self) -> Mapping[str, int]:
        """What the journals tell so far, less what is at work: it has no answer yet, and gets one in the end."""
        known = judging.figures(*journal.read_all(self._plan.journals))
        known["unanswered"] -= len(self._processes)
        return known

    def helpers(self) -> Mapping[str, Callable[[], int]]:
        """Processes that work until the load is over, and are left alone."""
        return {"courier": self._deliver}

    def _tell(self, seconds: float) -> None:
        """Let whoever waits for the run see how far it is."""
        path = Path(self._plan.folder) / PROGRESS
        written = path.with_suffix(".part")
        written.write_text(json.dumps({"seconds": seconds, **self.counts}))
        written.replace(path)

    def _arm(self, now: float) -> None:
        """Choose one to be signalled, a moment after it begins its next work.

        Most are at work already, so that a slow machine gives fewer kills and not fewer transactions.
        """
        early = self._chance.random() < _EARLY
        keeper = self._chance.random() < self.keepers_share
        running = [
            process
            for process in self._processes.values()
            if process.armed_works is None
            and process.cont_at is None
            and self._current[process.worker] == process.pid
            and (process.worker in self._keepers) == keeper
            and (early or process.is_at_work(self._board, now))
        ]
        if running:
            process = self._chance.choice(running)
            process.armed_works = self._board.works(process.worker)
            process.armed_until = now + _LONGEST_WAIT_SECONDS

    def _attend(self, process: Process, now: float) -> None:
        if process.cont_at is not None and now >= process.cont_at:
            process.cont_at = None
            self._signal(process, signal.SIGCONT)
        if process.armed_works is None:
            return
        if process.signal_at is None:
            if now >= process.armed_until or self._board.works(process.worker) != process.armed_works:
                process.signal_at = now + self._chance.uniform(0, _LATEST_SIGNAL_MS) / 1e3
        elif now >= process.signal_at:
            process.armed_works = process.signal_at = None
            self._strike(process, now)

    def _strike(self, process: Process, now: float) -> None:
        stopped = sum(other.cont_at is not None for other in self._processes.values())
        if self._chance.random() < 0.2 and stopped < _MOST_STOPPED:
            self._signal(process, signal.SIGSTOP)
            self.counts["stops"] += 1
            process.cont_at = now + self._chance.uniform(*_STOPPED_SECONDS)
            if self._chance.random() < 0.8:
                self._start(process.worker)  # the stopped one is a zombie from here on
        else:
            self._signal(process, signal.SIGKILL)

    def _finish(self, helpers: Mapping[str, int]) -> None:
        """Everybody ends their work; what is late arrives now."""
        self._board.stop()
        for process in self._processes.values():
            self._signal(process, signal.SIGCONT)
        deadline = time.monotonic() + _ENDING_SECONDS
        while self._processes and time.monotonic() < deadline:
            self._reap(restart=False)
            time.sleep(0.005)
        for process in self._processes.values():
            self._signal(process, signal.SIGUSR1)
        time.sleep(0.5 if self._processes else 0)
        for process in self._processes.values():
            self.broken.append(f"{process.name} did not end: its log says where it was")
            self._signal(process, signal.SIGKILL)
        while self._processes:
            self._reap(restart=False)
            time.sleep(0.005)
        for name, pid in helpers.items():
            _, status = os.waitpid(pid, 0)
            if status:
                self.broken.append(f"the {name} ended with {status}: see its log")

    def _deliver(self) -> int:
        """The courier: sends late requests until the load is over. What is left comes after the first answers."""
        store = open_store(self._plan.root, self._plan.options)
        while not self._board.stopped:
            deliver(store, self._plan.spool)
            time.sleep(0.002)
        return 0


def deliver_rest(plan: Plan) -> int:
    """Every request that is still under way arrives: after an answer was given for whatever it was about."""
    deliver(open_store(plan.root, plan.options), plan.spool, everything=True)
    return 0


def main(plan: P, supervisor: Callable[[P], Supervisor]) -> int:
    """Carry out a plan, whose processes are all forked from this one, and write ``report.json`` beside it."""
    random.seed(plan.seed)
    gc.collect()
    gc.freeze()  # else the first collection in every worker copies all that it got from this process
    report = supervisor(plan).run()
    (Path(plan.folder) / "report.json").write_text(json.dumps(report, indent=1))
    return 0
