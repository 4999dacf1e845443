"""What several writers of one namespace reach over a store that is far away, in the simulation's virtual time.

Each writer is a simulated process that commits small transactions, one after the other or with some in flight. What
processors cost shows ``benchmarks.writers``.
"""

from __future__ import annotations

import statistics
from collections import Counter, deque
from concurrent.futures import Future
from functools import partial

import click

from txnlog.api.namespace import Namespace
from txnlog.results import Committed
from txnlog.testing.far_store import FarWorld

_WARM_UP_MS = 20_000.0


def measure(writers: int, in_flight: int, trip_ms: float, seconds: float, seed: int) -> str:
    """A line about so many writers."""
    world = FarWorld(seed, trip_ms)
    end_ms = _WARM_UP_MS + seconds * 1e3
    latencies: dict[str, list[float]] = {}
    before: dict[str, Counter[str]] = {}

    def work(name: str, ns: Namespace) -> None:
        mine = latencies[name] = []
        waiting: deque[tuple[float, Future[Committed]]] = deque()
        while world.now_ms < end_ms:
            txn = ns.begin()
            txn.produce("audit", [{"value": 1}])
            waiting.append((world.now_ms, txn.commit_async()))
            if len(waiting) >= in_flight:
                began_ms, future = waiting.popleft()
                world.scheduler.wait_for(future.done)
                future.result()
                if _WARM_UP_MS <= world.now_ms < end_ms:
                    mine.append(world.now_ms - began_ms)

    for number in range(writers):
        world.start(f"w{number}", partial(work, f"w{number}"))
    world.scheduler.after(
        _WARM_UP_MS, lambda: before.update({name: Counter(store.calls) for name, store in world.stores.items()})
    )
    world.run(end_ms)
    world.close()
    counts = [len(item) for item in latencies.values()]
    every = sorted(value for item in latencies.values() for value in item)
    calls: Counter[str] = Counter()
    for name, store in world.stores.items():
        calls.update(store.calls - before[name])
    total = sum(counts)
    return (
        f"{writers:3} writers: {total / seconds:7.1f} commits/s  p50 {statistics.median(every):6.0f} ms  "
        f"p99 {every[int(len(every) * 0.99)]:6.0f} ms  slowest/fastest {min(counts) / max(counts):.2f}  "
        f"requests a commit {calls.total() / total:5.2f}: "
        + ", ".join(f"{count / total:.2f} {name}" for name, count in calls.most_common(7))
    )


@click.command()
@click.argument("writers", type=int, nargs=-1)
@click.option("--in-flight", default=1, show_default=True, help="Transactions of a writer at a time.")
@click.option("--trip", default=41.0, show_default=True, help="Milliseconds of a round trip.")
@click.option("--seconds", default=20.0, show_default=True, help="Virtual ones.")
@click.option("--seed", default=1, show_default=True, help="Decides everything.")
def main(writers: tuple[int, ...], in_flight: int, trip: float, seconds: float, seed: int) -> None:
    """Measure so many WRITERS, and print a line for each number of them."""
    for number in writers or (1, 2, 4, 8, 16, 32, 64):
        click.echo(measure(number, in_flight, trip, seconds, seed))


if __name__ == "__main__":
    main()
