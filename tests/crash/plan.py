"""What one crash run is to do: written by the test, read by every process of the run."""

from __future__ import annotations

import json
import mmap
import random
import struct
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa

NAMESPACE = "crash"

SCHEMA = pa.schema(
    [
        pa.field("label", pa.string(), False),
        pa.field("part", pa.int32(), False),
        pa.field("contents", pa.string(), False),
        pa.field("sequence", pa.int64()),
        pa.field("source", pa.string()),
        pa.field("source_partition", pa.int32()),
        pa.field("source_offset", pa.int64()),
        pa.field("padding", pa.binary()),
    ]
)
"""Of every topic. ``contents`` says how many rows the attempt has in each topic, so that a torn one shows by itself."""

TOPICS = {"orders": 2, "audit": 1, "derived": 2}
"""Topics by number of partitions: orders are consumed, and what comes of them is derived."""


@dataclass(frozen=True)
class Plan:
    """One run.

    Attributes:
        root: of the store; ``options`` are its storage options.
        folder: where journals, late requests and the report go.
        seed: of every choice that a process makes; what the machine makes of it differs from run to run.
        seconds: of load; it goes on until the least numbers are met, up to ``longest_seconds``.
        pause_ms: of a worker between two transactions, at most.
        faults: rates by name, see ``faulty_store``.
    """

    root: str
    folder: str
    seed: int
    seconds: float
    options: dict[str, Any] = field(default_factory=dict)
    workers: int = 8
    consumers: int = 4
    pause_ms: float = 140.0
    kills_per_second: float = 3.5
    least_kills: int = 100
    least_ambiguous: int = 20
    least_unknown: int = 10
    least_fenced: int = 3
    longest_seconds: float = 180.0
    faults: dict[str, float] = field(default_factory=dict)

    def write(self) -> Path:
        """The plan as a file in its folder."""
        path = Path(self.folder) / "plan.json"
        path.write_text(json.dumps(asdict(self)))
        return path

    @classmethod
    def read(cls, path: str | Path) -> Plan:
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


class Board:
    """Memory that all processes of a run share: per worker the number of works begun, and whether to stop."""

    def __init__(self, workers: int) -> None:
        self._memory = mmap.mmap(-1, 8 * (workers + 1))

    def begin_work(self, worker: int) -> None:
        """A worker says that it starts something that is worth being killed in."""
        struct.pack_into("<q", self._memory, 8 * worker + 8, self.works(worker) + 1)

    def works(self, worker: int) -> int:
        """How often."""
        return int(struct.unpack_from("<q", self._memory, 8 * worker + 8)[0])

    def stop(self) -> None:
        """No more work."""
        struct.pack_into("<q", self._memory, 0, 1)

    @property
    def stopped(self) -> bool:
        """Whether the load is over."""
        return bool(struct.unpack_from("<q", self._memory, 0)[0])
