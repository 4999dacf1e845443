"""Runs the questions: all systems are started once, and the units of a case have their turns, system after system."""

from __future__ import annotations

import contextlib
import math
import os
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Final

import msgspec

from benchmarks.peers.load import Load, Outcome
from benchmarks.peers.machine import Others, fsync_ms, loop_rate, written_bytes
from benchmarks.peers.peer import NotOfferedError, Peer
from benchmarks.peers.question import Case, Question
from benchmarks.peers.results import Gap, Run, System, Unit, quantiles_of

MOST_OTHERS: Final = 0.08
"""A unit is run again while others take more of the processors."""

_MOST_ATTEMPTS: Final = 3
_MOST_WARMING_S: Final = 40.0
"""Of a system's first load, as what runs on a JVM grows for half a minute and longer."""

_MORE_WARMING_S: Final = 12.0
"""Of each later one."""

_LEAST_RUNS: Final = 3
_GROWING: Final = 1.05
"""A rate that is not so many times the best one before has stopped growing."""

_SETTLE_S: Final = 1.0
_REPEATING: Final = 0.15
"""The share of a run's time that repeating may cost: later questions need theirs."""


class Driver:
    """One run over questions; what it finds is handed on after every unit."""

    def __init__(
        self, run: Run, folder: Path, minutes: float, say: Callable[[str], None], keep: Callable[[Run], None]
    ) -> None:
        self._run = run
        self._folder = folder
        self._say = say
        self._keep = keep
        self._started = time.monotonic()
        self._end = self._started + minutes * 60
        self._peers: dict[type[Peer], Peer] = {}
        self._filled: dict[tuple[type[Peer], str], int] = {}
        self._warm: set[Peer] = set()
        self._repeated_s = 0.0

    @contextlib.contextmanager
    def started(self, kinds: Sequence[type[Peer]]) -> Iterator[None]:
        """Bring and start systems, and stop all of them whatever happens."""
        with contextlib.ExitStack() as stack:
            for kind in kinds:
                peer = kind()
                version = peer.bring()
                folder = self._folder / kind.__name__
                folder.mkdir()
                stack.callback(peer.stop)
                began = time.monotonic()
                peer.start(folder)
                self._peers[kind] = peer
                self._say(f"{kind.name}: {version}, started in {time.monotonic() - began:.1f} s")
                self._run.systems.append(
                    System(name=kind.name, version=version, durability=kind.durability, settings=kind.settings)
                )
            yield

    def ask(self, question: Question) -> None:
        """Measure all cases of a question, while there is time."""
        self._say(f"== {question.title}")
        for case in question.cases:
            systems = [kind for kind in case.systems or question.systems if kind in self._peers]
            if time.monotonic() > self._end:
                for kind in systems:
                    self._note(question, case, kind, "there was no time left for it")
                continue
            ready = [kind for kind in systems if self._prepare(question, case, kind)]
            for turn in range(case.turns):
                for kind in ready:
                    # The first turn is run to its end, so that every system has a figure.
                    if turn == 0 or (
                        time.monotonic() < self._end and self._run.of(question.name, case.name, kind.name)
                    ):
                        self._measure(question, case, kind, turn)
            self._run.minutes = (time.monotonic() - self._started) / 60
            self._keep(self._run)

    def _prepare(self, question: Question, case: Case, kind: type[Peer]) -> bool:
        """Fill the topic, and warm the system up; False if it does not do what the case asks for."""
        peer = self._peers[kind]
        try:
            if case.fill is not None and (kind, case.fill.topic) not in self._filled:
                outcome = peer.run(case.fill)
                committed = outcome.rows - math.floor(outcome.transactions * case.fill.aborted) * case.fill.messages
                self._filled[kind, case.fill.topic] = committed
                self._say(f"   {kind.name}: {committed:,} messages written in {outcome.seconds:.1f} s")
            if case.warm_up_s and kind.warms:
                self._warm_up(peer, msgspec.structs.replace(self._load(case, kind), seconds=case.warm_up_s))
        except NotOfferedError as error:
            self._note(question, case, kind, str(error))
            return False
        except Exception as error:  # noqa: BLE001 (a system that fails must not end the run: the report says that it did)
            self._note(question, case, kind, f"failed: {type(error).__name__}: {str(error)[:200]}")
            return False
        return True

    def _load(self, case: Case, kind: type[Peer]) -> Load:
        if case.fill is None:
            return case.load
        return msgspec.structs.replace(case.load, rows=self._filled[kind, case.fill.topic])

    def _warm_up(self, peer: Peer, load: Load) -> None:
        """Run a load until its rate has not grown for two runs."""
        best, stalled, rates = 0.0, 0, list[float]()
        deadline = time.monotonic() + (_MORE_WARMING_S if peer in self._warm else _MOST_WARMING_S)
        self._warm.add(peer)
        # The first run of a load may also make what it needs, as a producer for each transaction under way.
        while len(rates) < _LEAST_RUNS or (stalled < 2 and time.monotonic() < deadline):
            outcome = peer.run(load)
            rate = outcome.row_rate()
            rates.append(rate)
            stalled = stalled + 1 if rate <= best * _GROWING else 0
            best = max(best, rate)
        self._say(f"   {peer.name}: warmed up: {', '.join(f'{rate:,.0f}' for rate in rates)} messages a second")

    def _measure(self, question: Question, case: Case, kind: type[Peer], turn: int) -> None:
        peer = self._peers[kind]
        units: list[Unit] = []
        while len(units) < _MOST_ATTEMPTS:
            try:
                unit = self._unit(question, case, peer, turn)
            except NotOfferedError as error:
                self._note(question, case, kind, str(error))
                return
            except Exception as error:  # noqa: BLE001 (as above)
                self._note(question, case, kind, f"failed: {type(error).__name__}: {str(error)[:200]}")
                return
            units.append(unit)
            if unit.others <= MOST_OTHERS or not self._may_repeat(unit):
                break
        best = min(units, key=lambda unit: unit.others)
        best.attempts = len(units)
        self._run.units.append(best)
        self._say(f"   {case.name}, {kind.name}: {_said(best)}")

    def _may_repeat(self, unit: Unit) -> bool:
        self._repeated_s += unit.seconds
        return self._repeated_s < (self._end - self._started) * _REPEATING

    def _unit(self, question: Question, case: Case, peer: Peer, turn: int) -> Unit:
        # What an earlier unit left in memory must not be written during this one.
        os.sync()
        speeds = fsync_ms(self._folder), loop_rate()
        load = self._load(case, type(peer))
        wrote = written_bytes(peer.pids())
        others = Others(peer.pids())
        outcome = peer.run(load)
        share = others.share()
        if any("bytes" in column.title for column in case.columns):
            time.sleep(_SETTLE_S)
            outcome.written_bytes = written_bytes(peer.pids()) - wrote
        outcome.size = load.size
        return Unit(
            question=question.name,
            case=case.name,
            system=peer.name,
            turn=turn,
            durable=peer.is_durable(case.fill or load),
            figures=_figures(case, outcome),
            seconds=round(outcome.seconds, 3),
            quantiles_ms=quantiles_of(outcome.latencies_ms),
            progress=outcome.progress,
            fsync_ms=round(speeds[0], 3),
            loop_rate=round(speeds[1], 1),
            others=round(share, 4),
            attempts=1,
        )

    def _note(self, question: Question, case: Case, kind: type[Peer], reason: str) -> None:
        self._say(f"   {case.name}, {kind.name}: {reason}")
        self._run.gaps.append(Gap(question=question.name, case=case.name, system=kind.name, reason=reason))


def _figures(case: Case, outcome: Outcome) -> dict[str, float]:
    found = {column.title: column.figure(outcome) for column in case.columns}
    return {title: value for title, value in found.items() if not math.isnan(value)}


def _said(unit: Unit) -> str:
    figures = ", ".join(f"{title} {value:,.2f}" for title, value in unit.figures.items())
    return (
        f"{figures} (fsync {unit.fsync_ms:.2f} ms, loop {unit.loop_rate:.0f} M/s, others {unit.others:.0%}"
        f"{f', {unit.attempts} attempts' if unit.attempts > 1 else ''})"
    )


__all__ = ["MOST_OTHERS", "Driver"]
