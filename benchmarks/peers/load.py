"""What a system is asked to do, and what it says of it. Both travel as JSON to a client in another process."""

from __future__ import annotations

import math
import statistics
import threading
import time
from collections.abc import Callable
from typing import Literal

import msgspec

Kind = Literal["commit", "fill", "read", "pipeline", "deliver", "open"]


class Load(msgspec.Struct, frozen=True, kw_only=True):
    """One named load. What a kind does not need keeps its default."""

    kind: Kind
    """What is done: the docstring of :class:`benchmarks.peers.peer.Peer` says what each kind means."""
    topic: str
    """Made by the first load that names it."""
    partitions: int = 1
    """Of the topic; a transaction writes to each of them."""
    messages: int = 1
    """To each partition in a transaction."""
    size: int = 100
    """Bytes of a message."""
    seconds: float = 0.0
    """How long; the end of what is limited by a count as well."""
    transactions: int = 0
    """How many at most; 0 is no limit."""
    producers: int = 1
    """Transactions under way at a time."""
    rows: int = 0
    """How many messages are there to be read."""
    cycle_ms: int = 0
    """A commit is due so long after the one before."""
    transactional: bool = True
    """False: the same without transactions, where the system has such a way."""
    aborted: float = 0.0
    """The share of transactions that are aborted."""


class Outcome(msgspec.Struct, kw_only=True):
    """What came out."""

    seconds: float
    """Of the clock, for all of it."""
    transactions: int = 0
    rows: int = 0
    """Messages that were written, or read."""
    latencies_ms: list[float] = []
    """Of each transaction, or of each message."""
    progress: list[tuple[float, int, int]] = []
    """(seconds, messages committed, messages read), as it went on."""
    size: int = 0
    """Bytes of a message; the driver fills it in, and the next one."""
    written_bytes: int = 0
    """What the processes of the system and its client sent towards the disk."""

    def rate(self) -> float:
        """Transactions a second."""
        return self.transactions / self.seconds

    def row_rate(self) -> float:
        """Messages a second."""
        return self.rows / self.seconds

    def p50_ms(self) -> float:
        """The median latency."""
        return statistics.median(self.latencies_ms) if self.latencies_ms else math.nan

    def p99_ms(self) -> float:
        """What one of a hundred takes longer than."""
        ordered = sorted(self.latencies_ms)
        return ordered[min(len(ordered) - 1, int(len(ordered) * 0.99))] if ordered else math.nan


def in_threads(load: Load, transact: Callable[[int, int], None], rows_each: int) -> Outcome:
    """Run transactions in as many threads as the load has producers, until its time or its count is over.

    Args:
        load: the limits.
        transact: runs, in the thread of a number, the transaction of a number.
        rows_each: messages of a transaction.
    """
    lock = threading.Lock()
    numbers = iter(range(load.transactions or 1 << 62))
    found: list[float] = []
    failures: list[BaseException] = []
    started = time.perf_counter()
    deadline = started + load.seconds

    def work(thread: int) -> None:
        mine: list[float] = []
        try:
            while time.perf_counter() < deadline and not failures:
                with lock:
                    number = next(numbers, None)
                if number is None:
                    break
                began = time.perf_counter()
                transact(thread, number)
                mine.append((time.perf_counter() - began) * 1e3)
        except BaseException as error:  # noqa: BLE001 (raised again below, in the thread that waits)
            failures.append(error)
        with lock:
            found.extend(mine)

    threads = [threading.Thread(target=work, args=(number,), daemon=True) for number in range(load.producers)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failures:
        raise failures[0]
    seconds = time.perf_counter() - started
    return Outcome(seconds=seconds, transactions=len(found), rows=len(found) * rows_each, latencies_ms=found)


def is_aborted(load: Load, number: int) -> bool:
    """Whether the transaction of a number is one of those that are aborted: spread evenly."""
    return math.floor((number + 1) * load.aborted) > math.floor(number * load.aborted)


__all__ = ["Kind", "Load", "Outcome", "in_threads", "is_aborted"]
