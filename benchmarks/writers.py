"""How many transactions a second several processes commit to one namespace, over a store that is far away.

Each process commits small transactions, one after the other or with some in flight, for a fixed time. The store is a
folder in memory whose every request takes a delay longer: what is measured are round trips, not the store's processor.
Printed by number of processes: commits a second of all together, p50 and p99 of a commit, the slowest process against
the fastest, requests and processor time of a commit.
"""

from __future__ import annotations

import argparse
import json
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections import Counter, deque
from collections.abc import Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from pathlib import Path

import txnlog
from txnlog.format.keys import kind_of
from txnlog.results import Committed
from txnlog.store import HookStore, open_store
from txnlog.store.identity import StoreIdentity, identity_of, make_identity
from txnlog.store.wrappers import StoreCall

VALUE = b"x" * 100
_WARM_UP_S = 2.0
_IN_MEMORY = "/dev/shm"  # noqa: S108 - a folder of this system's memory, in which each run makes one of its own


class FarStore(HookStore):
    """A folder behind a delay. It counts as an object store: nobody moves its folders under a writer at work."""

    def __init__(self, root: Path, delay_ms: float) -> None:
        self.calls: Counter[str] = Counter()
        self.delay_ms = delay_ms
        super().__init__(open_store(str(root), {}), before=self._far)
        self._root = str(root)

    @property
    def identity(self) -> StoreIdentity:
        """Of a kind of its own; without a delay it is what it is, a folder."""
        return make_identity("bench", "", self._root) if self.delay_ms else identity_of(self.inner)

    def _far(self, call: StoreCall, key: str) -> None:
        if call is not StoreCall.SYNC:  # which is no request on an object store
            self.calls[f"{call.value} {kind_of(key)}"] += 1
            if self.delay_ms:
                time.sleep(self.delay_ms / 1e3)


@dataclass(frozen=True, slots=True)
class Run:
    """What a number of processes came to."""

    processes: int
    in_flight: int
    rate: float
    p50_ms: float
    p99_ms: float
    fairness: float
    requests: float
    cpu_ms: float
    calls: dict[str, float]

    def line(self) -> str:
        """It, for people."""
        calls = ", ".join(f"{count:.2f} {name}" for name, count in sorted(self.calls.items(), key=lambda x: -x[1])[:5])
        return (
            f"{self.processes:3} processes x {self.in_flight:2}: {self.rate:7.1f}/s  p50 {self.p50_ms:6.0f} ms  "
            f"p99 {self.p99_ms:7.0f} ms  slowest/fastest {self.fairness:.2f}  requests {self.requests:5.1f}  "
            f"cpu {self.cpu_ms:5.1f} ms  ({calls})"
        )


def work(root: Path, delay_ms: float, in_flight: int, begin_at: float, seconds: float) -> None:
    """One process: prints what it came to as a line of JSON."""
    store = FarStore(root, delay_ms)
    with txnlog.open(str(root), namespace="bench", store=store) as ns:
        with ns.begin() as txn:
            txn.produce("events", [{"value": VALUE}])
        time.sleep(max(0.0, begin_at - _WARM_UP_S - time.time()))
        latencies: list[float] = []
        waiting: deque[tuple[float, Future[Committed]]] = deque()
        end = begin_at + seconds
        counted_from: tuple[Counter[str], float] | None = None

        def finish() -> None:
            began, future = waiting.popleft()
            future.result()
            now = time.time()
            if begin_at <= now < end:
                latencies.append(now - began)

        while time.time() < end:
            if counted_from is None and time.time() >= begin_at:
                counted_from = (Counter(store.calls), _cpu_s())
            began = time.time()
            txn = ns.begin()
            txn.produce("events", [{"value": VALUE}])
            waiting.append((began, txn.commit_async()))
            if len(waiting) >= in_flight:
                finish()
        before, cpu_s = counted_from or (Counter[str](), 0.0)
        seen = {"latencies": latencies, "calls": Counter(store.calls) - before, "cpu_s": _cpu_s() - cpu_s}
        while waiting:
            finish()
        print(json.dumps(seen), flush=True)


def _cpu_s() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def measure(processes: int, in_flight: int, delay_ms: float, seconds: float, folder: Path | None = None) -> Run:
    """Start so many processes on a new namespace, and gather what they came to."""
    with tempfile.TemporaryDirectory(dir=folder or _IN_MEMORY) as name:
        root = Path(name) / "root"
        with txnlog.open(str(root), namespace="bench", create=True, store=FarStore(root, 0)) as ns:
            ns.create_topic("events", partitions=1)
        begin_at = time.time() + 3 + 1.2 * processes + _WARM_UP_S
        arguments = ["--root", str(root), "--delay", str(delay_ms), "--begin-at", str(begin_at)]
        arguments += ["--in-flight", str(in_flight), "--seconds", str(seconds)]
        running = [
            subprocess.Popen(
                [sys.executable, "-m", "benchmarks.writers", "--worker", *arguments], stdout=subprocess.PIPE, text=True
            )
            for _ in range(processes)
        ]
        seen = [json.loads(process.communicate()[0]) for process in running]
        with txnlog.open(str(root), namespace="bench", mode="r", store=FarStore(root, 0)) as ns:
            rows = ns.snapshot().read("events").num_rows
    latencies = sorted(value for item in seen for value in item["latencies"])
    counts = [len(item["latencies"]) for item in seen]
    assert latencies, "nothing was committed"
    assert rows >= len(latencies) + processes, f"{rows} rows of {len(latencies)} commits"
    calls: Counter[str] = Counter()
    for item in seen:
        calls.update(item["calls"])
    done = len(latencies)
    return Run(
        processes,
        in_flight,
        done / seconds,
        statistics.median(latencies) * 1e3,
        latencies[int(done * 0.99)] * 1e3,
        min(counts) / max(counts),
        sum(calls.values()) / done,
        sum(item["cpu_s"] for item in seen) / done * 1e3,
        {name: count / done for name, count in calls.items()},
    )


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--processes", type=int, nargs="+", default=[1, 2, 4, 8, 16])
    parser.add_argument("--in-flight", type=int, default=1)
    parser.add_argument("--delay", type=float, default=40.0, help="milliseconds of a request")
    parser.add_argument("--folder", type=Path, help="where to make the root; left out, in memory")
    parser.add_argument("--seconds", type=float, default=20.0)
    parser.add_argument("--worker", action="store_true")
    parser.add_argument("--root", type=Path)
    parser.add_argument("--begin-at", type=float)
    chosen = parser.parse_args(arguments)
    if chosen.worker:
        work(chosen.root, chosen.delay, chosen.in_flight, chosen.begin_at, chosen.seconds)
        return
    for processes in chosen.processes:
        print(measure(processes, chosen.in_flight, chosen.delay, chosen.seconds, chosen.folder).line(), flush=True)


if __name__ == "__main__":
    main()
