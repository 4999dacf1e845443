"""What a process says of itself before and after it acts: lines that outlive it."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

Line = dict[str, Any]


class Journal:
    """One process's file of JSON lines; each is on disk when ``write`` returns."""

    def __init__(self, path: Path) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND, 0o600)

    def write(self, kind: str, **fields: Any) -> None:
        """Append one line."""
        os.write(self._file, (json.dumps({"kind": kind, **fields}) + "\n").encode())
        os.fsync(self._file)


def name_of(worker: int, generation: int) -> str:
    """A process's name: its producer's name is that of its worker."""
    return f"w{worker}g{generation}"


def producer_of(name: str) -> str:
    """The producer name that a process (or the one of a label) uses, like all of its worker's, one after the other."""
    return "worker-" + name[1:].partition("g")[0]


def read(path: Path) -> list[Line]:
    """The whole lines of a journal; a kill may have cut the last one off."""
    lines = path.read_bytes().split(b"\n")
    return [json.loads(line) for line in lines[:-1]]


def read_all(folder: Path) -> Iterator[tuple[str, list[Line]]]:
    """All journals by process name, oldest generation of each worker first."""
    for path in sorted(folder.glob("w*g*.jsonl"), key=_place):
        yield path.stem, read(path)


def read_some(folder: Path, worker: int, wanted: Callable[[int], bool]) -> Iterator[tuple[str, list[Line]]]:
    """The journals of some generations of a worker, oldest first."""
    for path in sorted(folder.glob(f"w{worker}g*.jsonl"), key=_place):
        if wanted(_place(path)[1]):
            yield path.stem, read(path)


def _place(path: Path) -> tuple[int, int]:
    worker, _, generation = path.stem[1:].partition("g")
    return int(worker), int(generation)
