"""What a run has found, as it is kept in a JSON file: everything that the report and its pictures are made from."""

from __future__ import annotations

import statistics
from pathlib import Path

import msgspec

QUANTILES = (0, 0.01, 0.05, 0.1, 0.25, 0.5, 0.75, 0.9, 0.95, 0.99, 0.999, 1)


class Unit(msgspec.Struct, kw_only=True):
    """One load on one system, once."""

    question: str
    case: str
    system: str
    turn: int
    durable: bool
    figures: dict[str, float]
    """By the heading of their column."""
    seconds: float
    quantiles_ms: list[float]
    """The latencies at QUANTILES."""
    progress: list[tuple[float, int, int]]
    fsync_ms: float
    """Of the machine, just before."""
    loop_rate: float
    """Millions of turns of a loop of Python in a second, just before."""
    others: float
    """The share of the processors that others took meanwhile."""
    attempts: int
    """How often it was run: again while others took too much. This is the quietest one."""


class Gap(msgspec.Struct, kw_only=True):
    """A figure that is not there."""

    question: str
    case: str
    system: str
    reason: str


class System(msgspec.Struct, kw_only=True):
    """What was measured."""

    name: str
    version: str
    durability: str
    settings: str


class Run(msgspec.Struct, kw_only=True):
    """All of a run."""

    command: str
    date: str
    machine: str
    systems: list[System] = []
    units: list[Unit] = []
    gaps: list[Gap] = []
    minutes: float = 0.0

    def of(self, question: str, case: str, system: str) -> list[Unit]:
        """The turns of a case on a system."""
        return [unit for unit in self.units if (unit.question, unit.case, unit.system) == (question, case, system)]

    def figure(self, question: str, case: str, system: str, column: str) -> float | None:
        """The median of the turns."""
        found = [unit.figures[column] for unit in self.of(question, case, system) if column in unit.figures]
        return statistics.median(found) if found else None

    def reason(self, question: str, case: str, system: str) -> str:
        """Why there is no figure; empty if nobody knows."""
        found = [gap.reason for gap in self.gaps if (gap.question, gap.case, gap.system) == (question, case, system)]
        return found[0] if found else ""


def save(run: Run, path: Path) -> None:
    """Write it, whole or not at all."""
    part = path.with_suffix(".part")
    part.write_bytes(msgspec.json.format(msgspec.json.encode(run), indent=1))
    part.replace(path)


def load(path: Path) -> Run:
    """Read what was saved."""
    return msgspec.json.decode(path.read_bytes(), type=Run)


def quantiles_of(values: list[float]) -> list[float]:
    """The values at QUANTILES; none if there are none."""
    ordered = sorted(values)
    return [round(ordered[min(len(ordered) - 1, int(len(ordered) * each))], 4) for each in QUANTILES if ordered]


__all__ = ["QUANTILES", "Gap", "Run", "System", "Unit", "load", "quantiles_of", "save"]
