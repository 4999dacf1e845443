"""What one run is to do: written by the test, read by every process of the run; and the memory that they share."""

from __future__ import annotations

import json
import mmap
import random
import struct
import time
import zlib
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Self

NAMESPACE = "crash"

MINUTE_MS = 60_000
LONGEST_NIGHTS_MS = 6 * 24 * 60 * MINUTE_MS
"""All nights of a run together: outcomes are remembered for seven days."""


def decision(txn: str) -> bool:
    """What the outside system decides about a prepared transaction: the same, whoever asks and whenever."""
    return zlib.crc32(txn.encode()) % 3 > 0


def late(txn: str) -> bool:
    """Whether the outside system takes a night to decide."""
    return zlib.crc32(txn.encode()) % 2 > 0


@dataclass(frozen=True)
class Plan:
    """One run.

    Attributes:
        root: of the store; ``options`` are its storage options.
        folder: where journals, late requests and the report go.
        seed: of every choice that a process makes; what the machine makes of it differs from run to run.
        seconds: of load; it goes on until the least numbers are met, up to ``longest_seconds``.
        least_counts: of what the supervisor counts, by name.
        least_figures: of what the journals tell, by name.
        workers: how many processes do the work; 0 is the number that a supervisor has by itself.
        pause_ms: of a worker between two transactions, at most.
        faults: rates by name, see ``faulty_store``.
    """

    root: str
    folder: str
    seed: int
    seconds: float
    options: dict[str, Any] = field(default_factory=dict)
    workers: int = 0
    pause_ms: float = 140.0
    kills_per_second: float = 8.0
    least_counts: dict[str, int] = field(default_factory=dict)
    least_figures: dict[str, int] = field(default_factory=dict)
    longest_seconds: float = 180.0
    faults: dict[str, float] = field(default_factory=dict)

    def write(self) -> Path:
        """The plan as a file in its folder."""
        path = Path(self.folder) / "plan.json"
        path.write_text(json.dumps(asdict(self)))
        return path

    @classmethod
    def read(cls, path: str | Path) -> Self:
        """The plan that a file holds."""
        return cls(**json.loads(Path(path).read_text()))

    def random(self, *what: object) -> random.Random:
        """Choices of one process, by the seed of the run and what the process is."""
        return random.Random(f"{self.seed}/{'/'.join(map(str, what))}")

    @property
    def journals(self) -> Path:
        """Folder of the journals."""
        return Path(self.folder) / "journals"

    @property
    def spool(self) -> Path:
        """Folder of requests that arrive late."""
        return Path(self.folder) / "late"


class SharedNumbers:
    """Whole numbers in memory that all processes of a run share."""

    def __init__(self, count: int) -> None:
        self._memory = mmap.mmap(-1, 8 * count)

    def __getitem__(self, place: int) -> int:
        return int(struct.unpack_from("<q", self._memory, 8 * place)[0])

    def __setitem__(self, place: int, value: int) -> None:
        struct.pack_into("<q", self._memory, 8 * place, value)


class Board:
    """Whether to stop, how late it is, and where each process stands."""

    def __init__(self, workers: int) -> None:
        self._numbers = SharedNumbers(2 * workers + 2)

    def begin_work(self, worker: int) -> None:
        """A worker says that it starts something that is worth being killed in."""
        self._numbers[2 * worker + 2] += 1

    def works(self, worker: int) -> int:
        """How often."""
        return self._numbers[2 * worker + 2]

    def note_recovered(self, worker: int, generation: int) -> None:
        """A process has answered for everything that the generations before it left open when it was started."""
        self._numbers[2 * worker + 3] = generation + 1

    def recovered(self, worker: int) -> int:
        """The generation that said so last, -1 before the first."""
        return self._numbers[2 * worker + 3] - 1

    def stop(self) -> None:
        """No more work."""
        self._numbers[0] = 1

    @property
    def stopped(self) -> bool:
        """Whether the load is over."""
        return bool(self._numbers[0])

    def pass_time(self, milliseconds: int) -> None:
        """Let so much time go by at once, for all processes."""
        self._numbers[1] += milliseconds

    @property
    def passed_ms(self) -> int:
        """How much went by so."""
        return self._numbers[1]

    def now_ms(self) -> int:
        """The time of the run: a board is the clock of every client."""
        return time.time_ns() // 1_000_000 + self.passed_ms
