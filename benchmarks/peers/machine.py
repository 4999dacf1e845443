"""What the machine is, how fast it is at this moment, and how much of it others take."""

from __future__ import annotations

import contextlib
import os
import statistics
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Final

_FSYNCS: Final = 25
_BLOCK: Final = bytes(4096)
_LOOP: Final = 1_000_000
_TICKS: Final = os.sysconf("SC_CLK_TCK")
_KERNEL: Final = 2
"""The process that kernel threads are children of: they work for whoever is measured."""


def fsync_ms(folder: Path) -> float:
    """The median time of appending a block to a file and fsyncing it."""
    path = folder / "fsync"
    times = []
    with path.open("ab", buffering=0) as file:
        for _ in range(_FSYNCS):
            started = time.perf_counter()
            file.write(_BLOCK)
            os.fsync(file.fileno())
            times.append((time.perf_counter() - started) * 1e3)
    path.unlink()
    return statistics.median(times)


def loop_rate() -> float:
    """Millions of turns of an empty loop of Python in a second."""
    started = time.perf_counter()
    for _ in range(_LOOP):
        pass
    return _LOOP / (time.perf_counter() - started) / 1e6


class Others:
    """How much of the processors is taken by processes that are not part of a measurement.

    A consumer that a load starts and ends itself is not there before and after it, and so does not count.
    """

    def __init__(self, ours: Iterable[int]) -> None:
        self._ours = {os.getpid(), *ours}
        self._before = _processor_s(self._ours)
        self._busy = _busy_s()
        self._started = time.monotonic()

    def share(self) -> float:
        """Of all processors, since this was made; what is stolen by other machines is counted as well."""
        passed = (time.monotonic() - self._started) * (os.cpu_count() or 1)
        now = _processor_s(self._ours)
        used = sum(max(0.0, seconds - self._before.get(pid, 0.0)) for pid, seconds in now.items())
        busy, stolen = (now - before for now, before in zip(_busy_s(), self._busy, strict=True))
        # The end of a process adds all of its life to its parent's times, and ticks are 10 ms long: no more
        # than the processors did counts, and no more than there was.
        return min(1.0, (min(used, busy) + stolen) / passed)


def _processor_s(ours: set[int]) -> dict[int, float]:
    """Processor seconds of every process, with its children that ended, but for ours and for what is below them."""
    parents: dict[int, int] = {}
    seconds: dict[int, float] = {}
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        try:
            fields = (entry / "stat").read_text().rpartition(")")[2].split()
        except OSError:  # it has ended
            continue
        pid = int(entry.name)
        parents[pid] = int(fields[1])
        seconds[pid] = sum(int(field) for field in fields[11:15]) / _TICKS
    # Peers that are not measured now are below this process too, but count as others: only what is named is ours.
    named = (ours - {os.getpid()}) | {_KERNEL}
    return {
        pid: value
        for pid, value in seconds.items()
        if pid != os.getpid() and pid not in named and not _is_below(pid, parents, named)
    }


def _is_below(pid: int, parents: dict[int, int], tops: set[int]) -> bool:
    while pid > 1:
        pid = parents.get(pid, 0)
        if pid in tops:
            return True
    return False


def _busy_s() -> tuple[float, float]:
    """Seconds for which the processors worked for anybody here, and for which other machines had them."""
    first = [int(field) for field in Path("/proc/stat").read_text().partition("\n")[0].split()[1:]]
    return sum(first[:3]) / _TICKS, first[7] / _TICKS


def written_bytes(servers: Iterable[int]) -> int:
    """What this process, and servers with their children, sent towards the disk until now."""
    trees = set(servers)
    parents = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with contextlib.suppress(OSError):  # it has ended
                parents[int(entry.name)] = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
    total = 0
    for pid in parents:
        if pid == os.getpid() or pid in trees or _is_below(pid, parents, trees):
            with contextlib.suppress(OSError):
                lines = dict(line.split(": ") for line in Path(f"/proc/{pid}/io").read_text().splitlines())
                total += int(lines["write_bytes"])
    return total


__all__ = ["Others", "fsync_ms", "loop_rate", "written_bytes"]
