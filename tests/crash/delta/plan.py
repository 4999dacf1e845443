"""What a run with published topics is to do, and the memory in which its processes say how far they are."""

from __future__ import annotations

import enum
import os
import time
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa

from tests.crash.harness.plan import Plan, SharedNumbers

SCHEMA = pa.schema(
    [
        pa.field("value", pa.int64(), False),
        pa.field("key", pa.string()),
        pa.field("whole", pa.int8()),
        pa.field("real", pa.float32()),
        pa.field("price", pa.decimal128(5, 2)),
    ]
)
"""Of every topic when it is made: the last three columns are widened, and others come behind them."""

MODES = {"orders": "auto", "audit": "manual", "derived": "auto", "keyed": "manual", "hidden": "off"}
TOPICS = {"orders": 2, "audit": 1, "derived": 2, "keyed": 3, "hidden": 1}
"""What writers write to, by number of partitions."""

KEYED = "keyed"
PASSING = "passing"
"""A topic that is dropped and made again; only one process writes to it, and nothing acknowledges what that does."""

PASSING_PARTITIONS = 2
MOST_PASSING = 20
MOST_COLUMNS = 18


@dataclass(frozen=True)
class DeltaPlan(Plan):
    """One run.

    Attributes:
        sample: versions of each table that the other engines read as well.
    """

    sample: int = 3

    @property
    def compared(self) -> Path:
        """Where the one who compares while it goes on writes down what."""
        return Path(self.folder) / "compared.jsonl"

    @property
    def engines(self) -> Path:
        """The folder of the process with the foreign engines."""
        return Path(self.folder) / "engines"


class Phase(enum.IntEnum):
    """Where a process stands with the tables that it publishes."""

    ELSEWHERE = 0
    COMMIT = 1
    BEHIND_COMMIT = 2
    FILE = 3
    BEHIND_FILE = 4
    CHECKPOINT = 5
    BEHIND_CHECKPOINT = 6
    HINT = 7
    BEHIND_HINT = 8


PHASES = {
    Phase.COMMIT: "amid a commit of a table",
    Phase.BEHIND_COMMIT: "behind a commit",
    Phase.FILE: "amid a file of the segments",
    Phase.BEHIND_FILE: "between that file and its commit",
    Phase.CHECKPOINT: "amid a checkpoint",
    Phase.BEHIND_CHECKPOINT: "between checkpoint and hint",
    Phase.HINT: "amid a hint",
    Phase.BEHIND_HINT: "behind a hint",
}
"""Phases in which somebody may be killed, in words."""


class Progress:
    """Memory that all processes of a run share: who stands where, who met whom, and what was compared."""

    _FIELDS = ("phase", "published", "met")

    def __init__(self, processes: int) -> None:
        self._processes = processes
        self._numbers = SharedNumbers(3 + len(self._FIELDS) * processes)
        self.note_compared(-1)

    def _place(self, process: int, field: str) -> int:
        return 3 + len(self._FIELDS) * process + self._FIELDS.index(field)

    def enter(self, process: int, phase: Phase) -> None:
        """A process says where it stands; of a stopped one and its successor the last to speak counts."""
        self._numbers[self._place(process, "phase")] = os.getpid() << 8 | phase

    def phase(self, process: int, pid: int) -> Phase:
        """Where a process stood when it died."""
        found = self._numbers[self._place(process, "phase")]
        return Phase(found & 0xFF) if found >> 8 == pid else Phase.ELSEWHERE

    def count(self, process: int, field: str) -> None:
        """One more version ``published``, or one where somebody else was ``met`` who was first."""
        self._numbers[self._place(process, field)] += 1

    def counts(self) -> Counter[str]:
        """Of all processes together."""
        return Counter(
            {
                field: sum(self._numbers[self._place(process, field)] for process in range(self._processes))
                for field in self._FIELDS[1:]
            }
        )

    def note_compared(self, version: int) -> None:
        """All that was published when the log ended at a version was compared."""
        self._numbers[0] = version

    @property
    def compared(self) -> int:
        """That version; -1 before the first."""
        return self._numbers[0]

    def note_backlog(self, versions: int) -> None:
        """So many published versions are known that were not compared yet."""
        self._numbers[1] = versions

    @property
    def backlog(self) -> int:
        """How many."""
        return self._numbers[1]

    def pause(self, seconds: float) -> None:
        """Nobody is to begin anything for so long: at the most, for who asks for it may die."""
        self._numbers[2] = int(1e3 * (time.monotonic() + seconds))

    @property
    def paused(self) -> bool:
        """Whether somebody asked for it."""
        return time.monotonic() * 1e3 < self._numbers[2]
