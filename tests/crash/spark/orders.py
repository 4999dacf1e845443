"""What executors are to suffer: a list of files, one an order, which tasks carry out one after the other.

Tasks run in processes that nobody else talks to, on several executors at once; who renames an order's file carries it
out, nobody else does. A stage suffers one order at most, so that what is tried again gets through.
"""

from __future__ import annotations

import enum
import random
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

_SLOW_MS: Final = (1_500, 3_000)
_LATER_MS: Final = (1, 1_500)


class Moment(enum.Enum):
    """When a task is met."""

    BEFORE_FILE = "before"
    """It has computed its rows and stores its file next."""
    AFTER_FILE = "after"
    """Its file is stored, and the driver was not told."""


class Blow(enum.Enum):
    """What happens to it."""

    EXECUTOR = "executor"
    """SIGKILL to the executor's JVM; the task's Python process finds out when it answers."""
    EXECUTOR_LATER = "later"
    """The same some time afterwards, whatever runs there by then."""
    WORKER = "worker"
    """SIGKILL to the task's Python process."""
    SLOW = "slow"
    """It sleeps: Spark starts a speculative copy elsewhere, and the slower one of the two comes too late."""


@dataclass(frozen=True)
class Order:
    """One blow."""

    number: int
    moment: Moment
    blow: Blow
    ms: int

    def __str__(self) -> str:
        return f"{self.number:04}-{self.moment.value}-{self.blow.value}-{self.ms}"

    @classmethod
    def parse(cls, text: str) -> Order:
        """The order that ``str`` wrote, also with the stage behind it."""
        number, moment, blow, ms = text.split("-")[:4]
        return cls(int(number), Moment(moment), Blow(blow), int(ms))


def orders_for(seed: str, wanted: Mapping[Blow, int]) -> list[Order]:
    """So many of each blow, in an order that the seed decides."""
    chance = random.Random(f"{seed} orders")
    blows = [blow for blow in Blow for _ in range(wanted[blow])]
    chance.shuffle(blows)
    spans = {Blow.SLOW: _SLOW_MS, Blow.EXECUTOR_LATER: _LATER_MS}
    return [
        Order(number, chance.choice([*Moment]), blow, chance.randint(*spans.get(blow, (0, 0))))
        for number, blow in enumerate(blows)
    ]


class Board:
    """The orders of one run, in a folder."""

    def __init__(self, folder: Path) -> None:
        self._open = folder / "open"
        self._done = folder / "done"

    def write(self, orders: list[Order]) -> None:
        """Put up the orders."""
        for folder in (self._open, self._done):
            folder.mkdir(parents=True)
        for order in orders:
            (self._open / str(order)).touch()

    def take(self, moment: Moment, stage: int, seed: int) -> Order | None:
        """The next order, for a task of a stage at a moment; None where it is not its turn."""
        if random.Random(f"{seed} {stage}").random() < 0.4:
            return None  # stages in between go undisturbed, or no executor would ever be there
        waiting = min((path.name for path in self._open.iterdir()), default=None)
        if waiting is None or Order.parse(waiting).moment is not moment:
            return None
        if any(path.name.endswith(f"-stage{stage}") for path in self._done.iterdir()):
            return None
        try:
            (self._open / waiting).rename(self._done / f"{waiting}-stage{stage}")
        except FileNotFoundError:
            return None  # another task was quicker
        return Order.parse(waiting)

    def done(self) -> list[Order]:
        """What was carried out, or begun."""
        return sorted((Order.parse(path.name) for path in self._done.iterdir()), key=lambda order: order.number)


__all__ = ["Blow", "Board", "Moment", "Order", "orders_for"]
