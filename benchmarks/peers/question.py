"""The shape of a question: what is asked, how it is measured, what would make it unfair, and its cases."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import msgspec

from benchmarks.peers.load import Load, Outcome
from benchmarks.peers.peer import Peer


@dataclass(frozen=True, slots=True)
class Column:
    """A figure of a case: its heading, how it comes out of an outcome, its unit."""

    title: str
    figure: Callable[[Outcome], float]
    unit: str = ""
    """Printed behind it."""

    def text(self, value: float) -> str:
        """A value for people: three digits that count, and thousands with commas."""
        decimals = 0 if abs(value) >= 100 else 1 if abs(value) >= 10 else 2
        return f"{value:,.{decimals}f} {self.unit}".strip()


@dataclass(frozen=True, slots=True)
class Case:
    """One load, the same for all systems."""

    name: str
    """As the tables call it."""
    load: Load
    columns: tuple[Column, ...]
    fill: Load | None = None
    """Run once for each system before: what it wrote is there to be read."""
    turns: int = 2
    warm_up_s: float = 0.0
    """How long one run for warming up lasts; without, the load needs none."""
    systems: tuple[type[Peer], ...] | None = None
    """Where they are not all of the question's."""

    def shortened(self, factor: float) -> Case:
        """The same in a part of the time, once, and without warming up."""
        return dataclasses.replace(
            self,
            load=_shortened(self.load, factor),
            fill=_shortened(self.fill, factor) if self.fill is not None else None,
            turns=1,
            warm_up_s=0.0,
        )


@dataclass(frozen=True, slots=True)
class Picture:
    """A picture of a question."""

    kind: Literal["bars", "curves", "steps", "progress"]
    title: str
    column: str
    unit: str
    logarithmic: bool = False
    cases: tuple[str, ...] = ()
    """Those that are shown; all by default."""


@dataclass(frozen=True, slots=True)
class Question:
    """One question and its cases."""

    name: str
    """For the command line."""
    title: str
    asked: str
    measured: str
    unfair: str
    systems: tuple[type[Peer], ...]
    cases: tuple[Case, ...]
    picture: Picture

    def shortened(self, factor: float) -> Question:
        """The same with loads that take a part of the time, once."""
        return dataclasses.replace(self, cases=tuple(case.shortened(factor) for case in self.cases))


def _shortened(load: Load, factor: float) -> Load:
    # What reads ends at its last message: its time is only a limit.
    seconds = load.seconds if load.kind in {"read", "fill"} else load.seconds * factor
    return msgspec.structs.replace(load, seconds=seconds, transactions=math.ceil(load.transactions * factor))


RATE = Column("transactions a second", Outcome.rate)
P50 = Column("p50", Outcome.p50_ms, "ms")
P99 = Column("p99", Outcome.p99_ms, "ms")
ROWS = Column("messages a second", Outcome.row_rate)

__all__ = ["P50", "P99", "RATE", "ROWS", "Case", "Column", "Picture", "Question"]
