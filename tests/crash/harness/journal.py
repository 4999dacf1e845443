"""What a process called and what it was answered, in a file that outlives it; and notes of its own.

A line is written before each call and after each return, with the time of the clock that all processes of a machine
have in common: so the journals of a run make one history, as a simulation writes it, and the same checker judges it.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec

from txnlog.testing.history import History, Operation, Recorder, merged

Note = dict[str, Any]

_NOTE = b'{"note"'
_OPERATION = msgspec.json.Decoder(Operation)


class Journal(Recorder):
    """The journal of one process. A line is with the system when the call returns: a kill cannot take it back."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND, 0o600)

    def note(self, kind: str, **fields: Any) -> None:
        """Write down something that is no call."""
        os.write(self._file, json.dumps({"note": kind, **fields}).encode() + b"\n")

    def _event(self) -> int:
        return time.monotonic_ns()

    def _noted(self, operation: Operation) -> None:
        os.write(self._file, msgspec.json.encode(operation) + b"\n")


def name_of(worker: int, generation: int) -> str:
    """A process's name: its producer's name is that of its worker."""
    return f"w{worker}g{generation}"


def producer_of(worker: int) -> str:
    """The producer name of all of a worker's processes, one after the other."""
    return f"worker-{worker}"


def read(path: Path) -> tuple[list[Operation], list[Note]]:
    """The operations and notes of a journal; a kill may have cut the last line off."""
    operations: dict[int, Operation] = {}
    notes: list[Note] = []
    for line in path.read_bytes().split(b"\n")[:-1]:
        if line.startswith(_NOTE):
            notes.append(json.loads(line))
        else:
            operation = _OPERATION.decode(line)
            operations[operation.number] = operation
    return [*operations.values()], notes


def read_all(folder: Path) -> tuple[History, dict[str, list[Note]]]:
    """The history of a run so far, and the notes of all processes by name."""
    parts: list[list[Operation]] = []
    notes: dict[str, list[Note]] = {}
    for path in sorted(folder.glob("*.jsonl")):
        operations, notes[path.stem] = read(path)
        parts.append(operations)
    return merged(parts), notes


def read_some(folder: Path, worker: int, wanted: Callable[[int], bool]) -> Iterator[Operation]:
    """The operations of some generations of a worker, oldest first."""
    known = {int(path.stem.rpartition("g")[2]): path for path in folder.glob(f"w{worker}g*.jsonl")}
    for generation in sorted(filter(wanted, known)):
        yield from read(known[generation])[0]
